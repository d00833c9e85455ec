/* SPDX-License-Identifier: BSD-3-Clause */
/* Relay owners: a table of entries that expire, in a file that all processes of a user on a host map. */
#include "exec/relay_owners.h"

#include "exec/node_key.h"
#include "util/log.h"
#include "util/time.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NUM_ENTRIES 255
#define NUM_ATTEMPTS 16
#define LOOK_NS 20000u                 /* no more often than this */
#define RENEW_NS (MPATH_OWNER_NS / 2u) /* when so much is left */

typedef struct owner_entry {
    _Atomic uint64_t holder; /* who may write the rest; 0: nobody */
    _Atomic uint64_t key;    /* of the NIC */
    _Atomic uint64_t team;
    _Atomic uint64_t until_ns; /* 0: it says nothing */
} owner_entry_t;

typedef struct owner_table {
    _Atomic uint64_t used; /* entries from here on have never been held */
    uint64_t padding[3];
    owner_entry_t entries[NUM_ENTRIES];
} owner_table_t;

/* The process's, for all its communicators. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static owner_table_t *table;
static int table_file = -1;
static unsigned users;
static owner_table_t private_table;
static atomic_uint next_holder;

/* -- the file -- */

static void file_name(char *name, size_t size)
{
    snprintf(name, size, "/dev/shm/mpath-nics1-%u", (unsigned)geteuid());
}

/* Nonzero: the file is this user's, still has its name, and is locked against removal. */
static int file_holds(int fd)
{
    struct stat info;

    return (flock(fd, LOCK_SH) == 0) && (fstat(fd, &info) == 0) && S_ISREG(info.st_mode) &&
           (info.st_uid == geteuid()) && (info.st_nlink > 0);
}

/* -1 with errno. */
static int file_open(void)
{
    char name[64];

    file_name(name, sizeof(name));
    for (int attempt = 0; attempt < NUM_ATTEMPTS; attempt++) {
        int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);

        if (fd < 0) {
            return -1;
        }
        if (file_holds(fd) && (posix_fallocate(fd, 0, sizeof(owner_table_t)) == 0)) {
            return fd;
        }
        close(fd); /* its last user has removed it just now */
    }
    errno = EAGAIN;
    return -1;
}

/* Removes the name unless another process uses it. */
static void file_close(int fd)
{
    char name[64];

    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        file_name(name, sizeof(name));
        unlink(name);
    }
    close(fd);
}

/* Under the mutex. */
static void table_get(void)
{
    static int told;
    void *base = MAP_FAILED;

    if (users++ > 0) {
        return;
    }
    table_file = file_open();
    if (table_file >= 0) {
        base = mmap(NULL, sizeof(owner_table_t), PROT_READ | PROT_WRITE, MAP_SHARED, table_file, 0);
    }
    table = (base == MAP_FAILED) ? &private_table : base;
    if ((base == MAP_FAILED) && !told) {
        told = 1;
        mpath_info("the NICs that carry bytes of their own GPUs cannot be told to other processes: %s; relays do not "
                   "make way for these",
                   strerror(errno));
    }
}

/* Under the mutex. */
static void table_put(void)
{
    if (--users > 0) {
        return;
    }
    if (table != &private_table) {
        munmap(table, sizeof(*table));
    }
    if (table_file >= 0) {
        file_close(table_file);
    }
    table      = NULL;
    table_file = -1;
}

/* -- entries -- */

static int entry_is_free(const owner_entry_t *entry, uint64_t now_ns)
{
    return (atomic_load_explicit(&entry->holder, memory_order_relaxed) == 0) ||
           (atomic_load_explicit(&entry->until_ns, memory_order_relaxed) + MPATH_NS_PER_S < now_ns);
}

/* One for this rank; MPATH_OWNER_NONE: all are taken. */
static int entry_take(uint64_t holder, uint64_t now_ns)
{
    for (int i = 0; i < NUM_ENTRIES; i++) {
        owner_entry_t *entry = &table->entries[i];
        uint64_t before      = atomic_load_explicit(&entry->holder, memory_order_relaxed);
        uint64_t used        = atomic_load_explicit(&table->used, memory_order_relaxed);

        if (!entry_is_free(entry, now_ns) || !atomic_compare_exchange_strong(&entry->holder, &before, holder)) {
            continue;
        }
        while ((used <= (uint64_t)i) && !atomic_compare_exchange_weak(&table->used, &used, (uint64_t)i + 1)) {
        }
        return i;
    }
    return MPATH_OWNER_NONE;
}

/* Whose an entry is: of this process and this view, unlike all others. */
static uint64_t holder_of(const mpath_owners_t *owners)
{
    return ((uint64_t)getpid() << 32) | (uint32_t)owners->opened;
}

static void entry_begin(mpath_owners_t *owners, int port, uint64_t until_ns, uint64_t now_ns)
{
    owner_entry_t *entry;

    owners->entries[port] = entry_take(holder_of(owners), now_ns);
    if (owners->entries[port] != MPATH_OWNER_NONE) {
        owners->held |= 1u << port;
        entry = &table->entries[owners->entries[port]];
        atomic_store_explicit(&entry->key, owners->keys[port], memory_order_relaxed);
        atomic_store_explicit(&entry->team, owners->team, memory_order_relaxed);
        atomic_store_explicit(&entry->until_ns, until_ns, memory_order_release);
    }
}

/* Nonzero while the entry is this rank's: one that was stopped for long may have lost it. */
static int entry_is_mine(const mpath_owners_t *owners, int port)
{
    return (owners->entries[port] != MPATH_OWNER_NONE) &&
           (atomic_load_explicit(&table->entries[owners->entries[port]].holder, memory_order_relaxed) ==
            holder_of(owners));
}

static void entry_end(mpath_owners_t *owners, int port)
{
    if (entry_is_mine(owners, port)) {
        owner_entry_t *entry = &table->entries[owners->entries[port]];

        atomic_store_explicit(&entry->until_ns, 0, memory_order_relaxed);
        atomic_store_explicit(&entry->holder, 0, memory_order_release);
    }
    owners->entries[port] = MPATH_OWNER_NONE;
    owners->held &= ~(1u << port);
}

/* -- views -- */

void mpath_owners_open(const mpath_machine_t *machine, uint64_t team, uint64_t scope, mpath_owners_t *owners)
{
    *owners = (mpath_owners_t){.opened = (int)(atomic_fetch_add(&next_holder, 1) % INT32_MAX) + 1, .team = team};
    for (int port = 0; port < MPATH_OWNER_PORTS; port++) {
        const mpath_nic_t *nic = &machine->nics[port % MPATH_MAX_NICS];
        uint64_t key           = mpath_key_mix(scope, machine->host, strlen(machine->host));

        owners->entries[port] = MPATH_OWNER_NONE;
        if (port % MPATH_MAX_NICS < machine->num_nics) {
            key                = mpath_key_mix(key, nic->name, strlen(nic->name));
            owners->keys[port] = mpath_key_mix(key, &port, sizeof(port)) | 1;
        }
    }
    pthread_mutex_lock(&mutex);
    table_get();
    pthread_mutex_unlock(&mutex);
}

void mpath_owners_close(mpath_owners_t *owners)
{
    if (!owners->opened) {
        return;
    }
    mpath_owners_announce(owners, 0, 0);
    pthread_mutex_lock(&mutex);
    table_put();
    pthread_mutex_unlock(&mutex);
    memset(owners, 0, sizeof(*owners));
}

void mpath_owners_announce(mpath_owners_t *owners, uint32_t ports, uint64_t now_ns)
{
    int renews = owners->until_ns < now_ns + RENEW_NS;

    owners->until_ns = renews ? now_ns + MPATH_OWNER_NS : owners->until_ns;
    for (uint32_t left = ports | owners->held; left != 0; left &= left - 1) {
        int port = __builtin_ctz(left);

        if (!((ports >> port) & 1)) {
            entry_end(owners, port);
        } else if (!entry_is_mine(owners, port)) {
            entry_begin(owners, port, owners->until_ns, now_ns);
        } else if (renews) {
            atomic_store_explicit(&table->entries[owners->entries[port]].until_ns, owners->until_ns,
                                  memory_order_relaxed);
        }
    }
}

/* The port of a key; -1: not one of this node. */
static int port_of(const mpath_owners_t *owners, uint64_t key)
{
    for (int port = 0; port < MPATH_OWNER_PORTS; port++) {
        if (owners->keys[port] == key) {
            return port;
        }
    }
    return -1;
}

uint32_t mpath_owners_busy(mpath_owners_t *owners, uint64_t now_ns)
{
    uint64_t used = atomic_load_explicit(&table->used, memory_order_relaxed);

    if (now_ns < owners->looked_ns + LOOK_NS) {
        return owners->busy;
    }
    owners->looked_ns = now_ns;
    owners->busy      = 0;
    for (uint64_t i = 0; (i < used) && (i < NUM_ENTRIES); i++) {
        const owner_entry_t *entry = &table->entries[i];

        if ((atomic_load_explicit(&entry->until_ns, memory_order_acquire) > now_ns) &&
            (atomic_load_explicit(&entry->team, memory_order_relaxed) != owners->team)) {
            int port = port_of(owners, atomic_load_explicit(&entry->key, memory_order_relaxed));

            owners->busy |= (port >= 0) ? 1u << port : 0;
        }
    }
    return owners->busy;
}
