/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared memory segments: named POSIX shared memory, reserved at once and mapped whole. */
#include "lane/segment.h"
#include "util/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SEGMENT_FOLDER "/dev/shm"
#define SEGMENT_NAME_ATTEMPTS 16
#define STALE_AFTER_S 3600 /* a name is needed for the time of a set-up */

/* Opens a fresh name; -1 with errno. */
static int segment_open_fresh(char *name, size_t size)
{
    uint64_t random;
    int attempt, fd = -1;

    for (attempt = 0; (fd < 0) && (attempt < SEGMENT_NAME_ATTEMPTS); attempt++) {
        if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
            return -1;
        }
        snprintf(name, size, "/mpath-%d-%016" PRIx64, (int)getpid(), random);
        fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
        if ((fd < 0) && (errno != EEXIST)) {
            return -1;
        }
    }
    return fd;
}

/* A name as above, of this user, old, and its process is gone. (Another PID namespace may have it: hence the age.) */
static int segment_is_stale(int folder, const char *name)
{
    int pid, digits = 0, end = 0;
    struct stat info;
    uint64_t random;

    if ((sscanf(name, "mpath-%d-%n%16" SCNx64 "%n", &pid, &digits, &random, &end) != 2) || (end - digits != 16) ||
        (name[end] != '\0') || (pid <= 0)) {
        return 0;
    }
    if ((fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) || !S_ISREG(info.st_mode) ||
        (info.st_uid != geteuid()) || (time(NULL) - info.st_mtime < STALE_AFTER_S)) {
        return 0;
    }
    return (kill(pid, 0) != 0) && (errno == ESRCH);
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

static int segment_reserve(int fd, size_t bytes)
{
    int error;

    do {
        error = posix_fallocate(fd, 0, (off_t)bytes);
    } while (error == EINTR);
    return error;
}

mpath_status_t mpath_segment_create(size_t bytes, mpath_segment_t *segment)
{
    static pthread_once_t swept = PTHREAD_ONCE_INIT;
    mpath_segment_t made        = {.bytes = bytes};
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
    error = segment_reserve(fd, bytes);
    if (error != 0) {
        mpath_error("%zu bytes of shared memory cannot be reserved in /dev/shm: %s; the processes of this node cannot "
                    "share memory, lower memory_bytes or enlarge /dev/shm",
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
    close(fd);
    *segment = made;
    return MPATH_OK;

err_unlink:
    close(fd);
    shm_unlink(made.name);
    return MPATH_ERR_IO;
}

mpath_status_t mpath_segment_attach(const char *name, size_t bytes, mpath_segment_t *segment)
{
    mpath_segment_t made  = {.bytes = bytes};
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

void mpath_segment_detach(mpath_segment_t *segment)
{
    if (segment->base != NULL) {
        munmap(segment->base, segment->bytes);
        segment->base  = NULL;
        segment->bytes = 0;
    }
}
