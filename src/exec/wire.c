/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire: the thread of a call drives its rails and handles at once what comes for it, while the bytes are still where
 * the lane has received them. What another thread, or a call on another team, finds for it is queued.
 */
#include "exec/wire_private.h"

#include "exec/move_private.h"
#include "util/log.h"

#include <stdlib.h>

/* The wire that this thread progresses its rails for. */
static _Thread_local mpath_wire_t *driven;
static _Thread_local int driven_events;

/* -- transfers -- */

/* `rank`: that it is sent to, there to NIC `end`; -1: it is a take, from the lane's peer `end`. */
static mpath_wire_transfer_t *transfer_get(mpath_wire_t *wire, int nic, int rank, int end, const mpath_chunk_t *chunk)
{
    mpath_wire_transfer_t *transfer = wire->spare;

    if (transfer != NULL) {
        wire->spare = transfer->next;
    } else if ((transfer = malloc(sizeof(*transfer))) == NULL) {
        mpath_error("%s: no memory to handle a chunk; the call fails", wire->team->oob.name);
        return NULL;
    }
    *transfer = (mpath_wire_transfer_t){
        .nic = nic, .rank = rank, .end = end, .chunk = *chunk, .op = {.status = MPATH_INPROGRESS}};
    return transfer;
}

void mpath_wire_transfer_put(mpath_wire_t *wire, mpath_wire_transfer_t *transfer)
{
    transfer->next = wire->spare;
    wire->spare    = transfer;
}

static void transfer_finish(mpath_wire_t *wire, mpath_wire_transfer_t *transfer)
{
    if (transfer->rank < 0) {
        wire->ops->placed(wire->argument, &transfer->chunk);
    } else {
        wire->ops->sent(wire->argument, &transfer->chunk);
    }
    mpath_wire_transfer_put(wire, transfer);
}

/* What came of starting a transfer. */
static mpath_status_t transfer_started(mpath_wire_t *wire, mpath_wire_transfer_t *transfer, mpath_status_t status)
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
        mpath_wire_transfer_put(wire, transfer);
        return status;
    }
}

/* `rank`: of the other end; -1: of whichever. */
static void lose(mpath_wire_t *wire, int nic, int rank, mpath_status_t status)
{
    const mpath_team_t *team = wire->team;
    const char *name         = mpath_topo_machine(team->topo, team->node)->nics[nic].name;
    int repeats              = wire->repeats && (status == MPATH_ERR_UNREACHABLE);
    mpath_log_level_t level  = repeats ? MPATH_LOG_WARN : MPATH_LOG_ERROR;
    const char *next         = repeats ? "is repeated over the other rails" : "fails";

    if (rank >= 0) {
        mpath_log(level, "%s: rank %d (%s) can no longer be reached over rail %s: %s; rank %d sends to it, the call %s",
                  team->oob.name, rank, mpath_team_host(team, rank), name, mpath_status_string(status), team->rank,
                  next);
    } else {
        mpath_log(level, "%s: rank %d (%s): nothing can be had over rail %s any more: %s; the call %s", team->oob.name,
                  team->rank, mpath_team_host(team, team->rank), name, mpath_status_string(status), next);
    }
    wire->lost |= 1u << nic;
}

/* The same by the number of a rail of the fabric. */
static void lose_rail(mpath_wire_t *wire, int rail, int rank, mpath_status_t status)
{
    const mpath_mover_t *mover = wire->team->mover;

    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        if (((wire->nics >> nic) & 1) && (mover->fabric_nic[nic] == rail)) {
            lose(wire, nic, rank, status);
        }
    }
}

/* Ends the transfers that are done. Their number, or the error of one. */
static int transfers_poll(mpath_wire_t *wire)
{
    mpath_wire_transfer_t **at = &wire->active;
    int events                 = 0;

    while (*at != NULL) {
        mpath_wire_transfer_t *transfer = *at;
        mpath_status_t status           = mpath_fabric_op_status(wire->fabric, transfer->nic, &transfer->op);

        if (status == MPATH_INPROGRESS) {
            at = &transfer->next;
            continue;
        }
        if (mpath_status_is_error(status)) {
            lose_rail(wire, transfer->nic, transfer->rank, status);
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
    mpath_wire_transfer_t *transfer;
    void *to;
    mpath_status_t status = wire->ops->place(wire->argument, &arrival->chunk, &to);

    if ((status != MPATH_OK) || (to == NULL)) {
        mpath_fabric_release(wire->fabric, nic, arrival);
        if (status == MPATH_OK) {
            wire->ops->placed(wire->argument, &arrival->chunk);
        }
        return status;
    }
    transfer = transfer_get(wire, nic, -1, arrival->peer, &arrival->chunk);
    if (transfer == NULL) {
        mpath_fabric_release(wire->fabric, nic, arrival);
        return MPATH_ERR_NO_MEMORY;
    }
    status = transfer_started(wire, transfer, mpath_fabric_take(wire->fabric, nic, arrival, to, &transfer->op));
    if (mpath_status_is_error(status)) {
        lose_rail(wire, nic, -1, status);
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
    mpath_wire_waiting_t *waiting = malloc(sizeof(*waiting));
    int taken                     = 0;

    pthread_mutex_lock(&wire->lock);
    if (waiting == NULL) {
        mpath_error("no memory to queue an arrived chunk; the call fails");
        wire->failed = MPATH_ERR_NO_MEMORY;
    } else if (!wire->closed) {
        *waiting      = (mpath_wire_waiting_t){.nic = nic, .arrival = *arrival};
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

mpath_wire_waiting_t *mpath_wire_dequeue(mpath_wire_t *wire)
{
    mpath_wire_waiting_t *waiting;

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

void mpath_wire_arrive(void *argument, int nic, const mpath_arrival_t *arrival)
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

void mpath_wire_begin(mpath_wire_t *wire, const mpath_wire_ops_t *ops, void *argument, uint32_t nics, int repeats)
{
    wire->ops      = ops;
    wire->argument = argument;
    wire->nics     = nics;
    wire->repeats  = repeats;
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
    mpath_wire_transfer_t *transfer;
    mpath_status_t status;

    if (peer < 0) {
        return (mpath_status_t)peer;
    }
    transfer = transfer_get(wire, mover->fabric_nic[nic], rank, nic_to, chunk);
    if (transfer == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    transfer->chunk.team = wire->id;
    status               = mpath_fabric_send(wire->fabric, transfer->nic, peer, &transfer->chunk, data, &transfer->op);
    status               = transfer_started(wire, transfer, status);
    if (mpath_status_is_error(status)) {
        lose(wire, nic, rank, status);
    }
    return status;
}

static int take_queued(mpath_wire_t *wire)
{
    mpath_wire_waiting_t *waiting;
    int events = 0;

    while ((waiting = mpath_wire_dequeue(wire)) != NULL) {
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
            lose(wire, __builtin_ctz(nics), -1, (mpath_status_t)result);
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

uint64_t mpath_wire_rail_chunk(const mpath_wire_t *wire)
{
    return wire->team->mover->limits.rail_bytes;
}

mpath_status_t mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to)
{
    mpath_mover_t *mover = wire->team->mover;
    int peer             = mpath_mover_peer(mover, nic, rank, nic_to);

    return (peer < 0) ? (mpath_status_t)peer : mpath_fabric_peer_status(wire->fabric, mover->fabric_nic[nic], peer);
}

uint32_t mpath_wire_lost(const mpath_wire_t *wire)
{
    return wire->lost;
}

void mpath_wire_lose(mpath_wire_t *wire, int nic)
{
    wire->lost |= 1u << nic;
}
