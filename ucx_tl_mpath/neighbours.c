/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighbours: cards in a shared file. Locks on bytes of it say who lives and who may change the table. */
#define _GNU_SOURCE
#include "ucx_tl_mpath/neighbours.h"

#include "util/file.h"
#include "util/time.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAYOUT 0x6d70617468303031ull    /* of the file; changes with the structures below */
#define TABLE_LOCK MPATH_NEIGHBOURS_MAX /* the byte behind those of the slots */
#define LOCK_NS (2 * MPATH_NS_PER_S)
#define LOCK_POLL_NS 200000
#define NAME_PREFIX "mpath-ucx-%u-" /* the user */
#define NAME_DIGITS 16
#define NUM_NAMES 8

typedef struct slot {
    atomic_uint sequence; /* even and not 0: the card is whole */
    atomic_uint_fast64_t demand_bps;
    mpath_neighbour_card_t card;
} slot_t;

typedef struct table {
    uint64_t layout;
    atomic_uint version;
    atomic_uint count;
    slot_t slots[MPATH_NEIGHBOURS_MAX];
} table_t;

struct mpath_neighbours {
    table_t *table;
    int fd; /* holds the locks */
    int self;
    char path[PATH_MAX];
};

/* Locks belong to the open file, not to the process: two interfaces of a process see each other's. */
static int try_lock(int fd, short type, int byte)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(fd, F_OFD_SETLK, &lock);
}

/* By somebody else. */
static int is_locked(int fd, int byte, int num_bytes)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = num_bytes};

    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static mpath_status_t lock_table(int fd)
{
    const struct timespec pause = {.tv_nsec = LOCK_POLL_NS};
    uint64_t end_ns             = mpath_time_ns() + LOCK_NS;

    while (try_lock(fd, F_WRLCK, TABLE_LOCK) != 0) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
            return MPATH_ERR_IO;
        }
        if (mpath_time_ns() > end_ns) {
            return MPATH_ERR_TIMED_OUT;
        }
        nanosleep(&pause, NULL);
    }
    return MPATH_OK;
}

static void unlock_table(int fd)
{
    (void)try_lock(fd, F_UNLCK, TABLE_LOCK);
}

static int is_name(const char *name)
{
    char prefix[32];
    int length = snprintf(prefix, sizeof(prefix), NAME_PREFIX, (unsigned)geteuid());

    return strncmp(name, prefix, (size_t)length) == 0 && strlen(name) == (size_t)length + NAME_DIGITS &&
           strspn(name + length, "0123456789abcdef") == NAME_DIGITS;
}

/* Who joins meanwhile waits for the table's lock, and finds that the file has lost its name. */
static void remove_dead(int folder, const char *name)
{
    int fd = mpath_file_open_own(folder, name, 0);

    if (fd < 0) {
        return;
    }
    if (try_lock(fd, F_WRLCK, TABLE_LOCK) == 0 && !is_locked(fd, 0, MPATH_NEIGHBOURS_MAX)) {
        (void)unlinkat(folder, name, 0);
    }
    close(fd);
}

/* Removes the files of jobs whose last process was killed: nobody else does. */
static void sweep(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (is_name(entry->d_name)) {
            remove_dead(dirfd(folder), entry->d_name);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* Why a name could not be opened: somebody else has it. */
static int is_taken(int error)
{
    return error == EPERM || error == EACCES || error == ELOOP || error == EISDIR || error == ENXIO;
}

/* Opened, ours, locked, and still the file of that name: the last one that leaves removes it. */
static mpath_status_t open_locked(const char *path, int *fd_p)
{
    struct stat info;
    mpath_status_t status;
    int fd;

    for (;;) {
        fd = mpath_file_open_own(AT_FDCWD, path, O_CREAT);
        if (fd < 0) {
            return MPATH_ERR_IO;
        }
        status = lock_table(fd);
        if (status != MPATH_OK) {
            close(fd);
            return status;
        }
        if (fstat(fd, &info) == 0 && info.st_nlink > 0) {
            *fd_p = fd;
            return MPATH_OK;
        }
        close(fd);
    }
}

/* Under the table's lock. By another open file, since a mapping keeps its own open, and children inherit it. */
static mpath_status_t map_table(int fd, const char *path, table_t **table_p)
{
    struct stat info;
    table_t *table;
    int other;

    if (fstat(fd, &info) != 0 || (info.st_size != 0 && info.st_size != (off_t)sizeof(*table)) ||
        (info.st_size == 0 && mpath_file_reserve(fd, sizeof(*table)) != 0)) {
        return MPATH_ERR_IO;
    }
    other = mpath_file_open_own(AT_FDCWD, path, 0);
    if (other < 0) {
        return MPATH_ERR_IO;
    }
    table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
    close(other);
    if (table == MAP_FAILED) {
        return MPATH_ERR_IO;
    }
    if (table->layout != 0 && table->layout != LAYOUT) {
        munmap(table, sizeof(*table));
        return MPATH_ERR_IO;
    }
    table->layout = LAYOUT;
    *table_p      = table;
    return MPATH_OK;
}

/* A slot that nobody lives in; its lock is taken. -1: none. */
static int take_slot(int fd)
{
    int slot;

    for (slot = 0; slot < MPATH_NEIGHBOURS_MAX; ++slot) {
        if (try_lock(fd, F_WRLCK, slot) == 0) {
            return slot;
        }
    }
    return -1;
}

static void write_card(table_t *table, int slot, const mpath_neighbour_card_t *card)
{
    unsigned sequence = atomic_load(&table->slots[slot].sequence) | 1;

    atomic_store(&table->slots[slot].sequence, sequence);
    atomic_thread_fence(memory_order_seq_cst);
    table->slots[slot].card = *card;
    atomic_store(&table->slots[slot].demand_bps, 0);
    atomic_store(&table->slots[slot].sequence, sequence + 1);
    if (atomic_load(&table->count) < (unsigned)slot + 1) {
        atomic_store(&table->count, (unsigned)slot + 1);
    }
    atomic_fetch_add(&table->version, 1);
}

/* What launchers call a job; SLURM's steps have a number within their job, which other jobs have as well. */
mpath_status_t mpath_neighbours_group(const char *wanted, char *group, size_t size)
{
    static const char *const names[] = {
        "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_STEP_ID", "PMI_JOBID", "PBS_JOBID", "LSB_JOBID"};
    const char *job = "", *slurm_job = secure_getenv("SLURM_JOB_ID");
    int length;
    size_t i;

    for (i = 0; wanted[0] == '\0' && i < sizeof(names) / sizeof(names[0]); ++i) {
        wanted = secure_getenv(names[i]);
        wanted = wanted == NULL ? "" : wanted;
        job    = strcmp(names[i], "SLURM_STEP_ID") == 0 && slurm_job != NULL ? slurm_job : "";
    }
    if (wanted[0] == '\0') {
        return MPATH_DECLINED;
    }
    length = snprintf(group, size, "%s%s%s", job, job[0] == '\0' ? "" : ".", wanted);
    return length >= 0 && (size_t)length < size ? MPATH_OK : MPATH_ERR_PARAM;
}

/* Any name becomes one of a file, or another one for each number. */
static uint64_t hash(const char *group, unsigned number)
{
    uint64_t key = (0xcbf29ce484222325ull ^ number) * 0x100000001b3ull; /* FNV-1a */

    for (; *group != '\0'; ++group) {
        key = (key ^ (uint8_t)*group) * 0x100000001b3ull;
    }
    return key;
}

/* Others may have made files of a group's names: of several the first one that is none of theirs. */
static mpath_status_t open_table(const char *folder, const char *group, char *path, size_t size, int *fd_p)
{
    mpath_status_t status = MPATH_ERR_IO;
    unsigned number;

    for (number = 0; number < NUM_NAMES; ++number) {
        snprintf(path, size, "%s/" NAME_PREFIX "%0*lx", folder, (unsigned)geteuid(), NAME_DIGITS,
                 (unsigned long)hash(group, number));
        status = open_locked(path, fd_p);
        if (status != MPATH_ERR_IO || !is_taken(errno)) {
            return status;
        }
    }
    return status;
}

mpath_status_t mpath_neighbours_join(const char *folder, const char *group, const mpath_neighbour_card_t *card,
                                     mpath_neighbours_t **neighbours_p)
{
    mpath_neighbours_t *neighbours = calloc(1, sizeof(*neighbours));
    mpath_status_t status;

    if (neighbours == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    folder = folder == NULL ? "/dev/shm" : folder;
    sweep(folder);
    status = open_table(folder, group, neighbours->path, sizeof(neighbours->path), &neighbours->fd);
    if (status != MPATH_OK) {
        goto err_free;
    }
    status = map_table(neighbours->fd, neighbours->path, &neighbours->table);
    if (status != MPATH_OK) {
        goto err_close;
    }
    neighbours->self = take_slot(neighbours->fd);
    if (neighbours->self < 0) {
        status = MPATH_NO_RESOURCE;
        goto err_unmap;
    }
    write_card(neighbours->table, neighbours->self, card);
    mpath_file_hide_from_children(neighbours->fd); /* or this process would seem to live as long as they do */
    unlock_table(neighbours->fd);
    *neighbours_p = neighbours;
    return MPATH_OK;

err_unmap:
    munmap(neighbours->table, sizeof(*neighbours->table));
err_close:
    close(neighbours->fd);
err_free:
    free(neighbours);
    return status;
}

void mpath_neighbours_update(mpath_neighbours_t *neighbours, const mpath_neighbour_card_t *card)
{
    write_card(neighbours->table, neighbours->self, card);
}

void mpath_neighbours_leave(mpath_neighbours_t *neighbours)
{
    table_t *table = neighbours->table;

    atomic_fetch_or(&table->slots[neighbours->self].sequence, 1u);
    atomic_fetch_add(&table->version, 1);
    if (lock_table(neighbours->fd) == MPATH_OK && !is_locked(neighbours->fd, 0, MPATH_NEIGHBOURS_MAX)) {
        (void)unlink(neighbours->path);
    }
    munmap(table, sizeof(*table));
    mpath_file_hide_end(neighbours->fd);
    close(neighbours->fd); /* and with it all locks */
    free(neighbours);
}

uint32_t mpath_neighbours_version(const mpath_neighbours_t *neighbours)
{
    return atomic_load(&neighbours->table->version);
}

int mpath_neighbours_count(const mpath_neighbours_t *neighbours)
{
    unsigned count = atomic_load(&neighbours->table->count);

    return count < MPATH_NEIGHBOURS_MAX ? (int)count : MPATH_NEIGHBOURS_MAX;
}

int mpath_neighbours_self(const mpath_neighbours_t *neighbours)
{
    return neighbours->self;
}

static int is_whole(unsigned sequence)
{
    return sequence != 0 && sequence % 2 == 0;
}

/* A card that another process has written. */
static int is_sound(const mpath_neighbour_card_t *card)
{
    uint32_t i;

    if (card->uid == 0 || card->device_length > sizeof(card->device) || card->iface_length > sizeof(card->iface) ||
        card->num_rails > MPATH_NEIGHBOUR_RAILS) {
        return 0;
    }
    for (i = 0; i < card->num_rails; ++i) {
        if (card->rails[i].number >= MPATH_NEIGHBOUR_RAILS ||
            card->rails[i].device_length > sizeof(card->rails[i].device) ||
            card->rails[i].iface_length > sizeof(card->rails[i].iface)) {
            return 0;
        }
    }
    return 1;
}

int mpath_neighbours_card(const mpath_neighbours_t *neighbours, int slot, mpath_neighbour_card_t *card_p)
{
    slot_t *from = &neighbours->table->slots[slot];
    unsigned sequence;

    do {
        sequence = atomic_load(&from->sequence);
        if (!is_whole(sequence)) {
            return 0;
        }
        *card_p = from->card;
        atomic_thread_fence(memory_order_seq_cst);
    } while (atomic_load(&from->sequence) != sequence);
    if (!is_sound(card_p)) {
        return 0;
    }
    return slot == neighbours->self || is_locked(neighbours->fd, slot, 1);
}

int mpath_neighbours_alive(const mpath_neighbours_t *neighbours, int slot, uint64_t uid)
{
    const slot_t *at = &neighbours->table->slots[slot];

    return is_whole(atomic_load(&at->sequence)) && at->card.uid == uid &&
           (slot == neighbours->self || is_locked(neighbours->fd, slot, 1));
}

void mpath_neighbours_set_demand(mpath_neighbours_t *neighbours, uint64_t bps)
{
    atomic_store_explicit(&neighbours->table->slots[neighbours->self].demand_bps, bps, memory_order_relaxed);
}

uint64_t mpath_neighbours_demand(const mpath_neighbours_t *neighbours, int slot)
{
    const slot_t *at = &neighbours->table->slots[slot];

    return is_whole(atomic_load(&at->sequence)) ? atomic_load_explicit(&at->demand_bps, memory_order_relaxed) : 0;
}
