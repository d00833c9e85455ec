/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire: the thread of a call drives its rails and handles at once what comes for it, while the bytes are still where
 * the lane has received them. What another thread, or a call on another team, finds for it is queued.
 */
#include "exec/wire.h"

#include "exec/move_private.h"
#include "util/log.h"
#include "util/time.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define WIRE_ID_MASK 0x9e3779b97f4a7c15ull /* makes the wire's id out of the team's */
#define WIRE_ID_STEP 0xda942042e4dd58b5ull /* makes the next id out of it */
#define WIRE_QUIET_NS (150 * MPATH_NS_PER_MS)
#define WIRE_ABANDON_NS MPATH_NS_PER_S

/* A transfer under way. The lane knows the address of `op`: never freed before the wire. */
typedef struct transfer {
    struct transfer *next;
    mpath_lane_op_t op;
    int nic; /* the fabric's */
    int is_take;
    mpath_chunk_t chunk;
} transfer_t;

/* An arrival that nobody has looked at yet. */
typedef struct waiting {
    struct waiting *next;
    int nic;
    mpath_arrival_t arrival;
} waiting_t;

struct mpath_wire {
    mpath_team_t *team;
    mpath_fabric_t *fabric;
    mpath_status_t status; /* MPATH_OK or MPATH_DECLINED, alike on all ranks */
    uint64_t id;

    pthread_mutex_t lock; /* of the queue: other threads append */
    waiting_t *first, **last_p;
    unsigned queued;       /* written under the lock, looked at without */
    int closed;            /* arrivals are ended at once */
    mpath_status_t failed; /* an arrival was lost */

    transfer_t *spare, *active;

    /* The call under way */
    const mpath_wire_ops_t *ops;
    void *argument;
    uint32_t nics; /* of the topology */
    uint32_t lost; /* of them: a transfer has failed */
};

/* The wire that this thread progresses its rails for. */
static _Thread_local mpath_wire_t *driven;
static _Thread_local int driven_events;

/* -- transfers -- */

static transfer_t *transfer_get(mpath_wire_t *wire, int nic, int is_take, const mpath_chunk_t *chunk)
{
    transfer_t *transfer = wire->spare;

    if (transfer != NULL) {
        wire->spare = transfer->next;
    } else if ((transfer = malloc(sizeof(*transfer))) == NULL) {
        mpath_error("%s: no memory to handle a chunk; the call fails", wire->team->oob.name);
        return NULL;
    }
    *transfer = (transfer_t){.nic = nic, .is_take = is_take, .chunk = *chunk, .op = {.status = MPATH_INPROGRESS}};
    return transfer;
}

static void transfer_put(mpath_wire_t *wire, transfer_t *transfer)
{
    transfer->next = wire->spare;
    wire->spare    = transfer;
}

static void transfer_finish(mpath_wire_t *wire, transfer_t *transfer)
{
    if (transfer->is_take) {
        wire->ops->placed(wire->argument, &transfer->chunk);
    } else {
        wire->ops->sent(wire->argument, &transfer->chunk);
    }
    transfer_put(wire, transfer);
}

/* What came of starting a transfer. */
static mpath_status_t transfer_started(mpath_wire_t *wire, transfer_t *transfer, mpath_status_t status)
{
    switch (status) {
    case MPATH_OK:
        transfer_finish(wire, transfer);
        return MPATH_OK;
    case MPATH_INPROGRESS:
        transfer->next = wire->active;
        wire->active   = transfer;
        return MPATH_OK;
    default:
        transfer_put(wire, transfer);
        return status;
    }
}

/* A transfer on a rail of the fabric has failed: which NIC is that? */
static void lose(mpath_wire_t *wire, int rail)
{
    const mpath_mover_t *mover = wire->team->mover;

    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        if (((wire->nics >> nic) & 1) && (mover->fabric_nic[nic] == rail)) {
            wire->lost |= 1u << nic;
        }
    }
}

/* Ends the transfers that are done. Their number, or the error of one. */
static int transfers_poll(mpath_wire_t *wire)
{
    transfer_t **at = &wire->active;
    int events      = 0;

    while (*at != NULL) {
        transfer_t *transfer  = *at;
        mpath_status_t status = mpath_fabric_op_status(wire->fabric, transfer->nic, &transfer->op);

        if (status == MPATH_INPROGRESS) {
            at = &transfer->next;
            continue;
        }
        if (mpath_status_is_error(status)) {
            lose(wire, transfer->nic);
            return (int)status;
        }
        *at = transfer->next;
        transfer_finish(wire, transfer);
        events++;
    }
    return events;
}

/* -- arrivals -- */

static mpath_status_t handle(mpath_wire_t *wire, int nic, const mpath_arrival_t *arrival)
{
    transfer_t *transfer;
    void *to;
    mpath_status_t status = wire->ops->place(wire->argument, &arrival->chunk, &to);

    if ((status != MPATH_OK) || (to == NULL)) {
        mpath_fabric_release(wire->fabric, nic, arrival);
        if (status == MPATH_OK) {
            wire->ops->placed(wire->argument, &arrival->chunk);
        }
        return status;
    }
    transfer = transfer_get(wire, nic, 1, &arrival->chunk);
    if (transfer == NULL) {
        mpath_fabric_release(wire->fabric, nic, arrival);
        return MPATH_ERR_NO_MEMORY;
    }
    status = transfer_started(wire, transfer, mpath_fabric_take(wire->fabric, nic, arrival, to, &transfer->op));
    if (mpath_status_is_error(status)) {
        lose(wire, nic);
    }
    if (status == MPATH_NO_RESOURCE) {
        mpath_error("%s: a lane has no room to take a chunk to its place; the call fails", wire->team->oob.name);
        mpath_fabric_release(wire->fabric, nic, arrival);
        status = MPATH_ERR_INTERNAL;
    }
    return status;
}

/* Nonzero when the arrival is queued; else the caller ends it. */
static int enqueue(mpath_wire_t *wire, int nic, const mpath_arrival_t *arrival)
{
    waiting_t *waiting = malloc(sizeof(*waiting));
    int taken          = 0;

    pthread_mutex_lock(&wire->lock);
    if (waiting == NULL) {
        mpath_error("no memory to queue an arrived chunk; the call fails");
        wire->failed = MPATH_ERR_NO_MEMORY;
    } else if (!wire->closed) {
        *waiting      = (waiting_t){.nic = nic, .arrival = *arrival};
        *wire->last_p = waiting;
        wire->last_p  = &waiting->next;
        __atomic_store_n(&wire->queued, wire->queued + 1, __ATOMIC_RELEASE);
        taken = 1;
    }
    pthread_mutex_unlock(&wire->lock);
    if (!taken) {
        free(waiting);
    }
    return taken;
}

static waiting_t *dequeue(mpath_wire_t *wire)
{
    waiting_t *waiting;

    if (__atomic_load_n(&wire->queued, __ATOMIC_ACQUIRE) == 0) {
        return NULL;
    }
    pthread_mutex_lock(&wire->lock);
    waiting     = wire->first;
    wire->first = waiting->next;
    if (wire->first == NULL) {
        wire->last_p = &wire->first;
    }
    __atomic_store_n(&wire->queued, wire->queued - 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&wire->lock);
    return waiting;
}

/* Fabric callback. */
static void arrive(void *argument, int nic, const mpath_arrival_t *arrival)
{
    mpath_wire_t *wire = argument;

    if ((wire == driven) && (wire->failed == MPATH_OK)) {
        mpath_status_t status = handle(wire, nic, arrival);

        driven_events++;
        wire->failed = (status != MPATH_OK) ? status : wire->failed;
    } else if (!enqueue(wire, nic, arrival)) {
        mpath_fabric_release(wire->fabric, nic, arrival);
    }
}

/* -- the call -- */

void mpath_wire_begin(mpath_wire_t *wire, const mpath_wire_ops_t *ops, void *argument, uint32_t nics)
{
    wire->ops      = ops;
    wire->argument = argument;
    wire->nics     = nics;
    wire->lost     = 0;
}

void mpath_wire_end(mpath_wire_t *wire)
{
    wire->ops      = NULL;
    wire->argument = NULL;
    wire->nics     = 0;
}

mpath_status_t mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                               const void *data)
{
    mpath_mover_t *mover = wire->team->mover;
    int peer             = mpath_mover_peer(mover, nic, rank, nic_to);
    transfer_t *transfer;
    mpath_status_t status;

    if (peer < 0) {
        return (mpath_status_t)peer;
    }
    transfer = transfer_get(wire, mover->fabric_nic[nic], 0, chunk);
    if (transfer == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    transfer->chunk.team = wire->id;
    status               = transfer_started(
                      wire, transfer, mpath_fabric_send(wire->fabric, transfer->nic, peer, &transfer->chunk, data, &transfer->op));
    if (mpath_status_is_error(status)) {
        wire->lost |= 1u << nic;
    }
    return status;
}

static int take_queued(mpath_wire_t *wire)
{
    waiting_t *waiting;
    int events = 0;

    while ((waiting = dequeue(wire)) != NULL) {
        mpath_status_t status = handle(wire, waiting->nic, &waiting->arrival);

        free(waiting);
        if (status != MPATH_OK) {
            return (int)status;
        }
        events++;
    }
    return events;
}

int mpath_wire_progress(mpath_wire_t *wire)
{
    const mpath_mover_t *mover = wire->team->mover;
    int events                 = take_queued(wire), result;

    if (events < 0) {
        return events;
    }
    driven        = wire;
    driven_events = 0;
    result        = 0;
    for (uint32_t nics = wire->nics; (nics != 0) && (result >= 0); nics &= nics - 1) {
        result = mpath_fabric_progress(wire->fabric, mover->fabric_nic[__builtin_ctz(nics)]);
        if (result < 0) {
            wire->lost |= nics & -nics;
        }
    }
    driven = NULL;
    if (wire->failed != MPATH_OK) {
        return (int)wire->failed;
    }
    if (result < 0) {
        return result;
    }
    events += driven_events;
    result = transfers_poll(wire);
    return (result < 0) ? result : events + result;
}

uint64_t mpath_wire_max_chunk(const mpath_wire_t *wire)
{
    const mpath_chunk_limits_t *limits = &wire->team->mover->limits;

    return (limits->chunk_bytes < limits->rail_bytes) ? limits->chunk_bytes : limits->rail_bytes;
}

mpath_status_t mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to)
{
    mpath_mover_t *mover = wire->team->mover;
    int peer             = mpath_mover_peer(mover, nic, rank, nic_to);

    return (peer < 0) ? (mpath_status_t)peer : mpath_fabric_peer_status(wire->fabric, mover->fabric_nic[nic], peer);
}

/* -- the end -- */

static void close_queue(mpath_wire_t *wire)
{
    waiting_t *waiting;

    pthread_mutex_lock(&wire->lock);
    wire->closed = 1;
    pthread_mutex_unlock(&wire->lock);
    while ((waiting = dequeue(wire)) != NULL) {
        mpath_fabric_release(wire->fabric, waiting->nic, &waiting->arrival);
        free(waiting);
    }
}

/* Drops the transfers that have ended, whatever came of them. Nonzero: some are left. */
static int sweep(mpath_wire_t *wire)
{
    transfer_t **at = &wire->active;

    while (*at != NULL) {
        transfer_t *transfer = *at;

        if (mpath_fabric_op_status(wire->fabric, transfer->nic, &transfer->op) == MPATH_INPROGRESS) {
            at = &transfer->next;
            continue;
        }
        *at = transfer->next;
        transfer_put(wire, transfer);
    }
    return wire->active != NULL;
}

/* Reads and drops what the others still send, for they cannot end their sends otherwise. */
static void drain(mpath_wire_t *wire)
{
    const mpath_mover_t *mover = wire->team->mover;
    uint64_t start_ns = mpath_time_ns(), event_ns = start_ns, now_ns = start_ns;

    while ((now_ns - start_ns < WIRE_ABANDON_NS) && (sweep(wire) || (now_ns - event_ns < WIRE_QUIET_NS))) {
        int events = 0;

        for (uint32_t nics = wire->nics; nics != 0; nics &= nics - 1) {
            int result = mpath_fabric_progress(wire->fabric, mover->fabric_nic[__builtin_ctz(nics)]);

            events += (result > 0) ? result : 0;
        }
        sched_yield();
        now_ns   = mpath_time_ns();
        event_ns = (events > 0) ? now_ns : event_ns;
    }
}

void mpath_wire_abandon(mpath_wire_t *wire, int close_only)
{
    uint64_t stuck = 0;

    close_queue(wire);
    if (close_only) {
        return;
    }
    drain(wire);
    for (const transfer_t *transfer = wire->active; transfer != NULL; transfer = transfer->next) {
        stuck |= UINT64_C(1) << transfer->nic;
    }
    for (; stuck != 0; stuck &= stuck - 1) {
        int rail = __builtin_ctzll(stuck);

        mpath_warn("%s: gives up what is under way on rail %s", wire->team->oob.name,
                   mpath_fabric_rail_name(wire->fabric, rail));
        mpath_fabric_abort(wire->fabric, rail);
    }
    while (sweep(wire)) {
        sched_yield(); /* only while another thread holds the rail's lock */
    }
}

uint32_t mpath_wire_lost(const mpath_wire_t *wire)
{
    return wire->lost;
}

void mpath_wire_lose(mpath_wire_t *wire, int nic)
{
    wire->lost |= 1u << nic;
}

void mpath_wire_destroy(mpath_wire_t *wire)
{
    transfer_t *transfer;

    if (wire == NULL) {
        return;
    }
    close_queue(wire);
    mpath_fabric_leave(wire->fabric, wire->id);
    while ((transfer = wire->spare) != NULL) {
        wire->spare = transfer->next;
        free(transfer);
    }
    pthread_mutex_destroy(&wire->lock);
    free(wire);
}

/* -- set-up -- */

mpath_status_t mpath_wire_join_rail(mpath_wire_t *wire, int rail)
{
    return mpath_fabric_join_rail(wire->fabric, rail, wire->id, arrive, wire);
}

void mpath_wire_leave_rail(mpath_wire_t *wire, int rail)
{
    mpath_fabric_leave_rail(wire->fabric, rail, wire->id);
}

/* On the rails that the mover uses. */
static mpath_status_t wire_join(mpath_wire_t *wire)
{
    const mpath_mover_t *mover = wire->team->mover;
    mpath_status_t status      = MPATH_OK;

    for (int nic = 0; (nic < MPATH_MAX_NICS) && (status == MPATH_OK); nic++) {
        if (mover->hellos[wire->team->rank].address_bytes[nic] > 0) {
            status = mpath_wire_join_rail(wire, mover->fabric_nic[nic]);
        }
    }
    return status;
}

/* Another id: the fabric drops the chunks of the one before. */
mpath_status_t mpath_wire_restart(mpath_wire_t *wire)
{
    close_queue(wire);
    mpath_fabric_leave(wire->fabric, wire->id);
    wire->id     = wire->id * WIRE_ID_STEP + 1;
    wire->failed = MPATH_OK;
    pthread_mutex_lock(&wire->lock);
    wire->closed = 0;
    pthread_mutex_unlock(&wire->lock);
    return wire_join(wire);
}

static mpath_status_t wire_open(mpath_team_t *team, mpath_wire_t **wire_p)
{
    mpath_wire_t *wire = calloc(1, sizeof(*wire));
    mpath_status_t status;

    if (wire == NULL) {
        mpath_error("%s: no memory to set up the movement of data", team->oob.name);
        return MPATH_ERR_NO_MEMORY;
    }
    wire->team   = team;
    wire->fabric = team->context->fabric;
    wire->last_p = &wire->first;
    pthread_mutex_init(&wire->lock, NULL);
    wire->id = team->id ^ WIRE_ID_MASK;
    status   = wire_join(wire);
    if (status != MPATH_OK) {
        mpath_wire_destroy(wire);
        return status;
    }
    *wire_p = wire;
    return MPATH_OK;
}

/* All ranks have it, or none. */
static mpath_status_t wire_confirm(mpath_team_t *team, mpath_status_t mine)
{
    int32_t my_status = mine, *all = malloc((size_t)team->size * sizeof(*all));
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("%s: no memory to set up the movement of data", team->oob.name);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_team_allgather(team, &my_status, sizeof(my_status), all);
    for (int rank = 0; (status == MPATH_OK) && (rank < team->size); rank++) {
        if (all[rank] != MPATH_OK) {
            mpath_info("%s: rank %d could not set up its rails (%s); the previous functions run", team->oob.name, rank,
                       mpath_status_string((mpath_status_t)all[rank]));
            status = MPATH_DECLINED;
        }
    }
    free(all);
    return status;
}

mpath_status_t mpath_wire_get(mpath_team_t *team, mpath_wire_t **wire_p)
{
    mpath_wire_t *wire    = NULL;
    mpath_status_t status = MPATH_OK;

    if (team->wire == NULL) {
        if (team->mover == NULL) {
            status = mpath_mover_create(team);
        }
        if ((status == MPATH_OK) && (team->mover->status != MPATH_OK)) {
            status = team->mover->status;
        }
        if (status != MPATH_OK) {
            return status;
        }
        status = wire_confirm(team, wire_open(team, &wire));
        if (mpath_status_is_error(status) || (wire == NULL)) {
            mpath_wire_destroy(wire);
            return status;
        }
        wire->status = status;
        team->wire   = wire;
    }
    *wire_p = team->wire;
    return team->wire->status;
}
