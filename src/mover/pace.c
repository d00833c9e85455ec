/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks of emulated ports: a table in shared memory, found by hash, advanced by compare-and-swap. */

#define _GNU_SOURCE /* memfd_create() */

#include "mover/pace.h"

#include "mover/relay_segment.h"
#include "util/file.h"
#include "util/log.h"
#include "util/time.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Relay clocks: anonymous memory with a number, mapped by all processes of a host that share a communicator. */

#define MAX_CLOCKS 8 /* that one process knows: one, unless communicators without a common process met later */

typedef struct clocks {
    uint64_t id; /* 0: free */
    int64_t pid; /* of a process that holds it open, and the descriptor there */
    int32_t fd;
    int32_t status; /* of the making */
} clocks_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static clocks_t known[MAX_CLOCKS]; /* as this process holds them */

static void *mapped[MAX_CLOCKS];

/* A child has the memory of its parent, but is not the process that holds the descriptor. */
static int find(uint64_t id)
{
    for (int i = 0; i < MAX_CLOCKS; i++) {
        if ((known[i].id != 0) && (known[i].pid == getpid()) && ((id == 0) || (known[i].id == id))) {
            return i;
        }
    }
    return -1;
}

static mpath_status_t add(uint64_t id, int fd, int *index_p)
{
    void *base;
    int at = 0;

    while ((at < MAX_CLOCKS) && (known[at].id != 0) && (known[at].pid == getpid())) {
        at++;
    }
    base = (at < MAX_CLOCKS) ? mmap(NULL, MPATH_PACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (base == MAP_FAILED) {
        mpath_error("the clocks of an emulated cluster cannot be mapped: %s",
                    (at < MAX_CLOCKS) ? strerror(errno) : "there are too many of them in this process");
        return MPATH_ERR_NO_MEMORY;
    }
    known[at]  = (clocks_t){.id = id, .pid = getpid(), .fd = fd};
    mapped[at] = base;
    *index_p   = at;
    return MPATH_OK;
}

static mpath_status_t make(int *index_p)
{
    int fd    = memfd_create("mpath-clocks", MFD_CLOEXEC);
    int error = (fd < 0) ? errno : mpath_file_reserve(fd, MPATH_PACE_BYTES);
    mpath_status_t status;

    if (error != 0) {
        mpath_error("no memory for the clocks of an emulated cluster: %s", strerror(error));
        status = MPATH_ERR_NO_MEMORY;
    } else {
        status = add((mpath_time_ns() << 22) ^ (uint64_t)getpid() ^ (1ull << 63), fd, index_p);
    }
    if ((status != MPATH_OK) && (fd >= 0)) {
        close(fd);
    }
    return status;
}

static mpath_status_t attach(const clocks_t *theirs, int *index_p)
{
    mpath_status_t status;
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/%lld/fd/%d", (long long)theirs->pid, theirs->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        mpath_error("%s, which has the clocks of an emulated cluster, cannot be opened: %s", path, strerror(errno));
        return MPATH_ERR_UNREACHABLE;
    }
    status = add(theirs->id, fd, index_p);
    if (status != MPATH_OK) {
        close(fd);
    }
    return status;
}

mpath_status_t mpath_relay_clocks_get(mpath_team_t *team, void **clocks_p)
{
    clocks_t mine = {.status = MPATH_OK}, all[MPATH_RELAY_MAX_MEMBERS]; /* an emulated cluster has no more ranks */
    mpath_status_t status;
    int at = -1;

    if (mpath_team_rank(team) == 0) {
        pthread_mutex_lock(&mutex);
        at     = find(0);
        status = (at < 0) ? make(&at) : MPATH_OK;
        if (status == MPATH_OK) {
            mine = known[at];
        }
        mine.status = status;
        pthread_mutex_unlock(&mutex);
    }
    status = mpath_team_allgather(team, &mine, sizeof(mine), all);
    if (status == MPATH_OK) {
        pthread_mutex_lock(&mutex);
        status = (mpath_status_t)all[0].status;
        at     = (status == MPATH_OK) ? find(all[0].id) : -1;
        if ((status == MPATH_OK) && (at < 0)) {
            status = attach(&all[0], &at);
        }
        pthread_mutex_unlock(&mutex);
        status = mpath_relay_all(team, status);
    }
    if (status == MPATH_OK) {
        *clocks_p = mapped[at];
    }
    return status;
}

uint64_t mpath_relay_clocks_id(const void *clocks)
{
    uint64_t id = 0;

    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_CLOCKS; i++) {
        id = (mapped[i] == clocks) ? known[i].id : id;
    }
    pthread_mutex_unlock(&mutex);
    return id;
}

#define TICKS_PER_NS 64 /* so that rounding a small chunk at a high rate up stays below a percent */

/*
 * A port's place in the table. `key` 0: free. Keys are never taken back: there are as many as the topology file has
 * ports.
 */
typedef struct pace_slot {
    _Atomic uint64_t key;
    _Atomic uint64_t free_ticks; /* when it will have carried all that it was given */
} pace_slot_t;

#define NUM_SLOTS (MPATH_PACE_BYTES / sizeof(pace_slot_t))

typedef struct pace_port {
    pace_slot_t *slot;
    uint64_t rate_bps;
} pace_port_t;

struct mpath_pace {
    int num_ports;
    pace_port_t ports[]; /* by number of the topology's resource */
};

static uint64_t key_mix(uint64_t key, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    size_t i;

    for (i = 0; i < bytes; i++) {
        key = (key ^ byte[i]) * 0x100000001b3ull;
        key ^= key >> 29;
    }
    return key;
}

static uint64_t port_key(const mpath_topo_t *topo, const mpath_resource_t *resource)
{
    const char *host        = mpath_topo_host(topo, resource->node);
    const int32_t numbers[] = {(int32_t)resource->kind, resource->index, resource->peer};
    uint64_t key            = key_mix(0xcbf29ce484222325ull, host, strlen(host));

    return key_mix(key, numbers, sizeof(numbers)) | 1;
}

/* The slot of a key, taken if there is none yet; NULL when all are taken. */
static pace_slot_t *find_slot(pace_slot_t *slots, uint64_t key)
{
    size_t i, at;
    uint64_t seen;

    for (i = 0; i < NUM_SLOTS; i++) {
        at   = (size_t)(key + i) % NUM_SLOTS;
        seen = 0;
        if (atomic_compare_exchange_strong(&slots[at].key, &seen, key) || (seen == key)) {
            return &slots[at];
        }
    }
    return NULL;
}

static mpath_status_t check_topo(const mpath_topo_t *topo)
{
    int node, other;

    if (mpath_topo_params(topo)->emulated == MPATH_EMULATED_NO) {
        mpath_error("rates are paced only where the topology file says emulated; they are not paced");
        return MPATH_ERR_PARAM;
    }
    if (mpath_topo_num_resources(topo) > MPATH_PACE_PORTS) {
        mpath_error("the emulated topology has %d ports, of which %d can be paced; they are not paced",
                    mpath_topo_num_resources(topo), MPATH_PACE_PORTS);
        return MPATH_ERR_PARAM;
    }
    for (node = 1; node < mpath_topo_num_nodes(topo); node++) {
        for (other = 0; other < node; other++) {
            if (strcmp(mpath_topo_host(topo, node), mpath_topo_host(topo, other)) == 0) {
                mpath_error(
                    "nodes %d and %d of the emulated topology have the same host name '%s', by which their ports "
                    "are known; they are not paced",
                    other, node, mpath_topo_host(topo, node));
                return MPATH_ERR_PARAM;
            }
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_pace_open(const mpath_topo_t *topo, void *shared, mpath_pace_t **pace_p)
{
    int count             = mpath_topo_num_resources(topo), i;
    mpath_status_t status = check_topo(topo);
    mpath_resource_t resource;
    mpath_pace_t *pace;

    if (status != MPATH_OK) {
        return status;
    }
    pace = calloc(1, sizeof(*pace) + (size_t)count * sizeof(pace->ports[0]));
    if (pace == NULL) {
        mpath_error("no memory for %d emulated ports; they are not paced", count);
        return MPATH_ERR_NO_MEMORY;
    }
    pace->num_ports = count;
    for (i = 0; i < count; i++) {
        resource                = mpath_topo_resource(topo, i);
        pace->ports[i].slot     = find_slot(shared, port_key(topo, &resource));
        pace->ports[i].rate_bps = resource.capacity_bps;
        if (pace->ports[i].slot == NULL) {
            mpath_error("the job's topologies have more than %zu emulated ports; they are not paced", NUM_SLOTS);
            free(pace);
            return MPATH_ERR_NO_MEMORY;
        }
    }
    *pace_p = pace;
    return MPATH_OK;
}

void mpath_pace_close(mpath_pace_t *pace)
{
    free(pace);
}

/* Moves a port's clock; returns where it stands then. */
static uint64_t port_take(const pace_port_t *port, uint64_t bytes, uint64_t now_ticks)
{
    __extension__ typedef unsigned __int128 wide_t;
    wide_t ticks  = ((wide_t)bytes * MPATH_NS_PER_S * TICKS_PER_NS + port->rate_bps - 1) / port->rate_bps;
    uint64_t seen = atomic_load_explicit(&port->slot->free_ticks, memory_order_relaxed), next;

    do {
        next = ((seen > now_ticks) ? seen : now_ticks) + (uint64_t)ticks;
    } while (!atomic_compare_exchange_weak_explicit(&port->slot->free_ticks, &seen, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return next;
}

mpath_status_t mpath_pace_take(mpath_pace_t *pace, const mpath_path_t *path, int hop, uint64_t bytes, uint64_t now_ns,
                               uint64_t ahead_ns, uint64_t *when_ns_p)
{
    int first          = path->hops[hop].first_resource, i;
    int end            = (hop + 1 < path->num_hops) ? path->hops[hop + 1].first_resource : path->num_resources;
    uint64_t now_ticks = now_ns * TICKS_PER_NS, latest = 0, ticks;

    for (i = first; i < end; i++) {
        ticks  = atomic_load_explicit(&pace->ports[path->resources[i]].slot->free_ticks, memory_order_relaxed);
        latest = (ticks > latest) ? ticks : latest;
    }
    /* Another process may take the ports between this look and the taking: then a chunk more waits than should. */
    if ((latest > now_ticks) && ((latest - now_ticks) / TICKS_PER_NS > ahead_ns)) {
        *when_ns_p = latest / TICKS_PER_NS - ahead_ns + 1;
        return MPATH_NO_RESOURCE;
    }
    for (i = first, latest = now_ticks; i < end; i++) {
        ticks  = port_take(&pace->ports[path->resources[i]], bytes, now_ticks);
        latest = (ticks > latest) ? ticks : latest;
    }
    *when_ns_p = (latest + TICKS_PER_NS - 1) / TICKS_PER_NS;
    return MPATH_OK;
}
