/* SPDX-License-Identifier: BSD-3-Clause */
/* Relay owners: a table of entries that expire, in a file that all processes of a user on a host map. */
#include "mover/relay_owners.h"

#include "mover/relay_private.h"
#include "util/file.h"
#include "util/log.h"
#include "util/number.h"
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
#include <time.h>
#include <unistd.h>

#define NUM_ENTRIES 255
#define NUM_ATTEMPTS 16
#define NUM_NAMES 8
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

static unsigned table_number; /* of the file's name */

static unsigned users;

static owner_table_t private_table;

static atomic_uint next_holder;

/* -- the file -- */

/* Others may have made files of such names: of several the first one that is none of theirs. */
static void file_name(unsigned number, char *name, size_t size)
{
    snprintf(name, size, "/dev/shm/mpath-nics1-%u.%u", (unsigned)geteuid(), number);
}

/* Nonzero: the file still has its name, and is locked against removal. It is this user's. */
static int file_holds(int fd)
{
    struct stat info;

    return (flock(fd, LOCK_SH | LOCK_NB) == 0) && (fstat(fd, &info) == 0) && (info.st_nlink > 0);
}

/* -1 with errno. */
static int file_open(unsigned number)
{
    const struct timespec pause = {.tv_nsec = 100000};
    char name[64];

    file_name(number, name, sizeof(name));
    for (int attempt = 0; attempt < NUM_ATTEMPTS; attempt++) {
        int fd = mpath_file_open_own(AT_FDCWD, name, O_CREAT);

        if (fd < 0) {
            return -1;
        }
        if (file_holds(fd) && (mpath_file_reserve(fd, sizeof(owner_table_t)) == 0)) {
            return fd;
        }
        close(fd); /* its last user removes it just now */
        nanosleep(&pause, NULL);
    }
    errno = EAGAIN;
    return -1;
}

/* Removes the name unless another process uses it. */
static void file_close(int fd)
{
    char name[64];

    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        file_name(table_number, name, sizeof(name));
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
    table_file = -1;
    for (table_number = 0; (table_file < 0) && (table_number < NUM_NAMES); table_number++) {
        table_file = file_open(table_number);
    }
    if (table_file >= 0) {
        table_number--;
        base = mmap(NULL, sizeof(owner_table_t), PROT_READ | PROT_WRITE, MAP_SHARED, table_file, 0);
    }
    table = (base == MAP_FAILED) ? &private_table : base;
    if ((base == MAP_FAILED) && !told) {
        told = 1;
        mpath_info_by(
            mpath_log_speaks(),
            "the NICs that carry bytes of their own GPUs cannot be told to other processes: %s; relays do not "
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

/* Ports are numbered: those that NICs send by, then those that they receive by. */
static mpath_nic_set_t *ports_of(mpath_owner_ports_t *ports, int port)
{
    return port < MPATH_MAX_NICS ? &ports->sends : &ports->receives;
}

static void entry_begin(mpath_owners_t *owners, int port, uint64_t until_ns, uint64_t now_ns)
{
    owner_entry_t *entry;

    owners->entries[port] = entry_take(holder_of(owners), now_ns);
    if (owners->entries[port] != MPATH_OWNER_NONE) {
        *ports_of(&owners->held, port) |= mpath_nic_bit(port % MPATH_MAX_NICS);
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
    *ports_of(&owners->held, port) &= ~mpath_nic_bit(port % MPATH_MAX_NICS);
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
    mpath_owners_announce(owners, (mpath_owner_ports_t){0}, 0);
    pthread_mutex_lock(&mutex);
    table_put();
    pthread_mutex_unlock(&mutex);
    memset(owners, 0, sizeof(*owners));
}

/* Of the ports of one direction, whose numbers begin with `first`. */
static void announce(mpath_owners_t *owners, int first, mpath_nic_set_t nics, mpath_nic_set_t held, int renews,
                     uint64_t now_ns)
{
    for (mpath_nic_set_t left = nics | held; left != 0; left &= left - 1) {
        int nic = mpath_nic_first(left), port = first + nic;

        if (!((nics >> nic) & 1)) {
            entry_end(owners, port);
        } else if (!entry_is_mine(owners, port)) {
            entry_begin(owners, port, owners->until_ns, now_ns);
        } else if (renews) {
            atomic_store_explicit(&table->entries[owners->entries[port]].until_ns, owners->until_ns,
                                  memory_order_relaxed);
        }
    }
}

void mpath_owners_announce(mpath_owners_t *owners, mpath_owner_ports_t ports, uint64_t now_ns)
{
    int renews = owners->until_ns < now_ns + RENEW_NS;

    owners->until_ns = renews ? now_ns + MPATH_OWNER_NS : owners->until_ns;
    announce(owners, 0, ports.sends, owners->held.sends, renews, now_ns);
    announce(owners, MPATH_MAX_NICS, ports.receives, owners->held.receives, renews, now_ns);
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

mpath_owner_ports_t mpath_owners_busy(mpath_owners_t *owners, uint64_t now_ns)
{
    uint64_t used = atomic_load_explicit(&table->used, memory_order_relaxed);

    if (now_ns < owners->looked_ns + LOOK_NS) {
        return owners->busy;
    }
    owners->looked_ns = now_ns;
    owners->busy      = (mpath_owner_ports_t){0};
    for (uint64_t i = 0; (i < used) && (i < NUM_ENTRIES); i++) {
        const owner_entry_t *entry = &table->entries[i];

        if ((atomic_load_explicit(&entry->until_ns, memory_order_acquire) > now_ns) &&
            (atomic_load_explicit(&entry->team, memory_order_relaxed) != owners->team)) {
            int port = port_of(owners, atomic_load_explicit(&entry->key, memory_order_relaxed));

            if (port >= 0) {
                *ports_of(&owners->busy, port) |= mpath_nic_bit(port % MPATH_MAX_NICS);
            }
        }
    }
    return owners->busy;
}

/*
 * Relay, NICs that GPUs lend each other: a GPU comes first on the NIC beside it. Who sends or receives bytes of its own
 * says so to the other communicators of its node (mover/relay_owners.h); what they pass over this NIC meanwhile gets one slot
 * at a time. A sender looks for the NIC on its own node. That of the other node is looked for there, by the rank that
 * passes the chunks on, which tells its senders: in its gate where rails are copies, else with the credits.
 */

/* Bytes of this rank's own are still to come by rails. */
static int still_receives(const mpath_relay_t *relay)
{
    uint64_t left = relay->bound.rail_sources;

    for (; left != 0; left &= left - 1) {
        if (mpath_relay_missing_from(relay, __builtin_ctzll(left)) != 0) {
            return 1;
        }
    }
    return !relay->by_copies && (relay->fetch_left > 0);
}

void mpath_relay_announce(mpath_relay_t *relay)
{
    const mpath_schedule_t *schedule = relay->bound.schedule;
    _Atomic mpath_nic_set_t *busy    = &relay->shared.gates[relay->shared.my_member].nics_busy;
    mpath_owner_ports_t ports        = {0};
    mpath_nic_set_t seen;
    uint64_t now_ns;

    if (schedule->rails == 0) {
        return;
    }
    for (size_t i = 0; i < schedule->num_outlets; i++) {
        const mpath_outlet_t *given = &schedule->outlets[i];
        int owns                    = (given->kind == MPATH_OUTLET_RAIL) && (relay->bound.outlets[i].own_left > 0);

        ports.sends |= owns ? mpath_nic_bit(given->nic) : 0;
    }
    if ((relay->bound.own_rails != 0) && still_receives(relay)) {
        ports.receives = relay->bound.own_rails;
    }
    now_ns = mpath_time_ns();
    mpath_owners_announce(&relay->owners, ports, now_ns);
    if (relay->bound.lent_rails != 0) {
        seen = mpath_owners_busy(&relay->owners, now_ns).receives & relay->bound.lent_rails;
        if (seen != atomic_load_explicit(busy, memory_order_relaxed)) {
            atomic_store_explicit(busy, seen, memory_order_relaxed);
        }
    }
}

void mpath_relay_announce_end(mpath_relay_t *relay)
{
    mpath_owners_announce(&relay->owners, (mpath_owner_ports_t){0}, 0);
    atomic_store_explicit(&relay->shared.gates[relay->shared.my_member].nics_busy, 0, memory_order_relaxed);
}

int mpath_relay_yields(mpath_relay_t *relay, const relay_op_t *op)
{
    const mpath_duty_t *duty = op->duty;
    mpath_nic_set_t busy;

    if ((duty->out.lane == MPATH_LANE_RAIL) && (duty->ahead > 0)) {
        busy = relay->by_copies
                   ? atomic_load_explicit(&relay->shared.gates[relay->shared.member_of[duty->out.to]].nics_busy,
                                          memory_order_relaxed)
                   : relay->rails.far[duty->out.to].nics_busy;
        return (int)(busy >> duty->out.nic_to) & 1;
    }
    if (op->to_class == MPATH_RELAY_TO_RAIL) {
        const mpath_path_t *path = &relay->bound.paths[duty - relay->bound.schedule->duties];

        busy = mpath_owners_busy(&relay->owners, mpath_time_ns()).sends;
        return (busy & mpath_nic_bit(path->hops[duty->hop_out + 1].nic_from)) != 0;
    }
    return 0;
}
