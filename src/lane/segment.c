/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared memory segments: POSIX shared memory, reserved at once and mapped whole. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif

#include "lane/segment.h"
#include "util/file.h"
#include "util/log.h"
#include "util/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SEGMENT_FOLDER "/dev/shm"
#define SEGMENT_NAME_ATTEMPTS 16
#define STALE_AFTER_S 3600 /* of who cannot be looked at: a name is needed for the time of a set-up */

static _Atomic uint64_t held_part_bytes, held_whole_bytes;

/* Opens a fresh name, which tells the others whose it is; -1 with errno. */
static int segment_open_fresh(char *name, size_t size)
{
    mpath_process_t self;
    uint32_t random;
    int attempt, fd = -1;

    mpath_process_self(&self);

    for (attempt = 0; (fd < 0) && (attempt < SEGMENT_NAME_ATTEMPTS); attempt++) {
        if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
            return -1;
        }
        snprintf(name, size, "/mpath-%" PRId64 "-%" PRIx64 "-%" PRIx64 "-%08" PRIx32, self.pid, self.start_ticks,
                 self.pid_space & UINT32_MAX, random);
        fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
        if ((fd < 0) && (errno != EEXIST)) {
            return -1;
        }
    }
    return fd;
}

/* A name as above, of this user, and its process is gone; or old, where that has another PID namespace. */
static int segment_is_stale(int folder, const char *name)
{
    mpath_process_t self, owner = {0};
    int digits = 0, end = 0;
    struct stat info;
    uint32_t random;

    if ((sscanf(name, "mpath-%" SCNd64 "-%" SCNx64 "-%" SCNx64 "-%n%8" SCNx32 "%n", &owner.pid, &owner.start_ticks,
                &owner.pid_space, &digits, &random, &end) != 4) ||
        (end - digits != 8) || (name[end] != '\0') || (owner.pid <= 0)) {
        return 0;
    }
    if ((fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) || !S_ISREG(info.st_mode) ||
        (info.st_uid != geteuid())) {
        return 0;
    }
    mpath_process_self(&self);
    if (self.pid_space == 0 || owner.pid_space != (self.pid_space & UINT32_MAX)) {
        return time(NULL) - info.st_mtime >= STALE_AFTER_S;
    }
    owner.pid_space = self.pid_space;
    return !mpath_process_alive(&owner);
}

void mpath_segment_sweep(void)
{
    DIR *folder = opendir(SEGMENT_FOLDER);
    struct dirent *entry;

    while ((folder != NULL) && ((entry = readdir(folder)) != NULL)) {
        if (segment_is_stale(dirfd(folder), entry->d_name) && (unlinkat(dirfd(folder), entry->d_name, 0) == 0)) {
            mpath_info("removed " SEGMENT_FOLDER "/%s, which a process that was killed had left", entry->d_name);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* Maps a fresh segment; *fd_p: its descriptor. */
static mpath_status_t segment_make(size_t bytes, mpath_segment_t *segment, int *fd_p)
{
    static pthread_once_t swept = PTHREAD_ONCE_INIT;
    mpath_segment_t made        = {.bytes = bytes, .fd = -1};
    int fd, error;

    if (bytes == 0) {
        mpath_error("shared memory segment of 0 bytes asked for; there is nothing to share");
        return MPATH_ERR_PARAM;
    }
    (void)pthread_once(&swept, mpath_segment_sweep);
    fd = segment_open_fresh(made.name, sizeof(made.name));
    if (fd < 0) {
        mpath_error(
            "shm_open of a new shared memory segment failed: %s; the processes of this node cannot share memory",
            strerror(errno));
        return MPATH_ERR_IO;
    }
    error = mpath_file_reserve(fd, bytes);
    if (error != 0) {
        mpath_error("%zu bytes of shared memory cannot be reserved in /dev/shm: %s; the processes of this node cannot "
                    "share memory; lower memory_bytes, enlarge /dev/shm or raise the limit of file sizes (ulimit -f)",
                    bytes, strerror(error));
        goto err_unlink;
    }
    made.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (made.base == MAP_FAILED) {
        mpath_error("mmap of shared memory segment %s (%zu bytes) failed: %s; the processes of this node cannot share "
                    "memory",
                    made.name, bytes, strerror(errno));
        goto err_unlink;
    }
    *segment = made;
    *fd_p    = fd;
    return MPATH_OK;

err_unlink:
    close(fd);
    shm_unlink(made.name);
    return MPATH_ERR_IO;
}

mpath_status_t mpath_segment_create(size_t bytes, mpath_segment_t *segment)
{
    int fd                = -1;
    mpath_status_t status = segment_make(bytes, segment, &fd);

    if (status == MPATH_OK) {
        close(fd);
    }
    return status;
}

mpath_status_t mpath_segment_create_open(size_t bytes, mpath_segment_t *segment)
{
    int fd                = -1;
    mpath_status_t status = segment_make(bytes, segment, &fd);

    if (status == MPATH_OK) {
        segment->fd = fd;
        mpath_segment_unlink(segment);
    }
    return status;
}

mpath_status_t mpath_segment_address(const mpath_segment_t *segment, mpath_segment_address_t *address)
{
    struct stat info;

    if (fstat(segment->fd, &info) != 0) {
        mpath_error("fstat of a shared memory segment failed: %s; the processes of this node cannot share memory",
                    strerror(errno));
        return MPATH_ERR_IO;
    }
    *address = (mpath_segment_address_t){
        .pid = getpid(), .fd = segment->fd, .device = info.st_dev, .inode = info.st_ino, .bytes = segment->bytes};
    return MPATH_OK;
}

/* Is it the segment that the address says? */
static int is_addressed(const mpath_segment_address_t *address, const struct stat *info)
{
    return S_ISREG(info->st_mode) && (info->st_uid == geteuid()) && ((uint64_t)info->st_dev == address->device) &&
           ((uint64_t)info->st_ino == address->inode) && ((uint64_t)info->st_size == address->bytes) &&
           (address->bytes > 0);
}

/* Opens nothing that is not the segment: a descriptor's number may have come to be that of something else. */
static int open_addressed(const mpath_segment_address_t *address)
{
    struct stat info;
    char path[64];
    int place, fd = -1;

    snprintf(path, sizeof(path), "/proc/%" PRId64 "/fd/%" PRId64, address->pid, address->fd);
    place = open(path, O_PATH | O_CLOEXEC);
    if (place < 0) {
        mpath_error("%s, shared memory of a process of this node, cannot be opened: %s; the processes of this node "
                    "cannot share memory",
                    path, strerror(errno));
        return -1;
    }
    if ((fstat(place, &info) != 0) || !is_addressed(address, &info)) {
        mpath_error("%s is not the shared memory of %" PRIu64 " bytes that its process has told of; the processes of "
                    "this node cannot share memory",
                    path, address->bytes);
    } else {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", place);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            mpath_error("shared memory of process %" PRId64 " cannot be opened: %s; the processes of this node cannot "
                        "share memory",
                        address->pid, strerror(errno));
        }
    }
    close(place);
    return fd;
}

mpath_status_t mpath_segment_attach_open(const mpath_segment_address_t *address, mpath_segment_t *segment)
{
    mpath_segment_t made = {.bytes = (size_t)address->bytes, .fd = -1};
    int fd               = open_addressed(address);

    if (fd < 0) {
        return MPATH_ERR_IO;
    }
    made.base = mmap(NULL, made.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (made.base == MAP_FAILED) {
        mpath_error("mmap of %zu bytes of shared memory of process %" PRId64 " failed: %s; the processes of this node "
                    "cannot share memory",
                    made.bytes, address->pid, strerror(errno));
        return MPATH_ERR_IO;
    }
    *segment = made;
    return MPATH_OK;
}

mpath_status_t mpath_segment_attach(const char *name, size_t bytes, mpath_segment_t *segment)
{
    mpath_segment_t made  = {.bytes = bytes, .fd = -1};
    mpath_status_t status = MPATH_ERR_IO;
    struct stat info;
    int fd;

    if ((bytes == 0) || (strlen(name) >= sizeof(made.name))) {
        mpath_error("shared memory segment '%s' of %zu bytes cannot be attached: not a segment of mpath", name, bytes);
        return MPATH_ERR_PARAM;
    }
    strcpy(made.name, name);
    fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) {
        mpath_error("shm_open of shared memory segment %s failed: %s; is /dev/shm the same for all processes of this "
                    "node?",
                    name, strerror(errno));
        return MPATH_ERR_IO;
    }
    if ((fstat(fd, &info) != 0) || ((uint64_t)info.st_size != bytes)) {
        mpath_error("shared memory segment %s does not have the expected %zu bytes; its creator differs in build or "
                    "settings",
                    name, bytes);
        status = MPATH_ERR_PARAM;
        goto err_close;
    }
    made.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (made.base == MAP_FAILED) {
        mpath_error("mmap of shared memory segment %s (%zu bytes) failed: %s; the processes of this node cannot share "
                    "memory",
                    name, bytes, strerror(errno));
        goto err_close;
    }
    close(fd);
    *segment = made;
    return MPATH_OK;

err_close:
    close(fd);
    return status;
}

/* A segment of another process, as long as somebody here uses it. */
typedef struct borrowed {
    mpath_segment_t segment; /* first */
    struct borrowed *next;
    mpath_segment_address_t address;
    int users;
} borrowed_t;

static pthread_mutex_t borrowed_lock = PTHREAD_MUTEX_INITIALIZER; /* of: */
static borrowed_t *all_borrowed;

static int is_same_address(const mpath_segment_address_t *a, const mpath_segment_address_t *b)
{
    return (a->pid == b->pid) && (a->fd == b->fd) && (a->device == b->device) && (a->inode == b->inode) &&
           (a->bytes == b->bytes);
}

static mpath_status_t borrowed_new(const mpath_segment_address_t *address, borrowed_t **borrowed_p)
{
    borrowed_t *borrowed = calloc(1, sizeof(*borrowed));
    mpath_status_t status;

    if (borrowed == NULL) {
        mpath_error("no memory to note the shared memory of another process");
        return MPATH_ERR_NO_MEMORY;
    }
    borrowed->address = *address;
    status            = mpath_segment_attach_open(address, &borrowed->segment);
    if (status != MPATH_OK) {
        free(borrowed);
        return status;
    }
    mpath_segment_note(&borrowed->segment, 0);
    borrowed->next = all_borrowed;
    all_borrowed   = borrowed;
    *borrowed_p    = borrowed;
    return MPATH_OK;
}

mpath_status_t mpath_segment_borrow(const mpath_segment_address_t *address, const mpath_segment_t **segment_p)
{
    mpath_status_t status = MPATH_OK;
    borrowed_t *borrowed;

    pthread_mutex_lock(&borrowed_lock);
    for (borrowed = all_borrowed; (borrowed != NULL) && !is_same_address(&borrowed->address, address);
         borrowed = borrowed->next) {
    }
    if (borrowed == NULL) {
        status = borrowed_new(address, &borrowed);
    }
    if (status == MPATH_OK) {
        borrowed->users++;
        *segment_p = &borrowed->segment;
    }
    pthread_mutex_unlock(&borrowed_lock);
    return status;
}

void mpath_segment_return(const mpath_segment_t *segment)
{
    borrowed_t **at, *borrowed;

    pthread_mutex_lock(&borrowed_lock);
    for (at = &all_borrowed; &(*at)->segment != segment; at = &(*at)->next) {
    }
    borrowed = *at;
    if (--borrowed->users == 0) {
        *at = borrowed->next;
        mpath_segment_detach(&borrowed->segment);
        free(borrowed);
    }
    pthread_mutex_unlock(&borrowed_lock);
}

void mpath_segment_unlink(mpath_segment_t *segment)
{
    if (segment->name[0] == '\0') {
        return;
    }
    if ((shm_unlink(segment->name) != 0) && (errno != ENOENT)) {
        mpath_warn("shm_unlink of %s failed: %s; it stays in /dev/shm", segment->name, strerror(errno));
    }
    segment->name[0] = '\0';
}

void mpath_segment_note(mpath_segment_t *segment, int num_processes)
{
    segment->is_noted   = 1;
    segment->part_bytes = (num_processes > 0) ? segment->bytes / (size_t)num_processes : 0;
    atomic_fetch_add(&held_part_bytes, segment->part_bytes);
    atomic_fetch_add(&held_whole_bytes, segment->bytes);
}

void mpath_segment_held(uint64_t *part_bytes_p, uint64_t *whole_bytes_p)
{
    *part_bytes_p  = atomic_load(&held_part_bytes);
    *whole_bytes_p = atomic_load(&held_whole_bytes);
}

void mpath_segment_detach(mpath_segment_t *segment)
{
    if (segment->base != NULL) {
        if (segment->is_noted) {
            atomic_fetch_sub(&held_part_bytes, segment->part_bytes);
            atomic_fetch_sub(&held_whole_bytes, segment->bytes);
            segment->is_noted   = 0;
            segment->part_bytes = 0;
        }
        if (segment->fd >= 0) {
            close(segment->fd);
            segment->fd = -1;
        }
        munmap(segment->base, segment->bytes);
        segment->base  = NULL;
        segment->bytes = 0;
    }
}
