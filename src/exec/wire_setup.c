/* SPDX-License-Identifier: BSD-3-Clause */
/* Wire: how it begins on all ranks alike, and how what is under way ends when a call is given up. */
#include "exec/wire_private.h"

#include "exec/move_private.h"
#include "util/log.h"
#include "util/time.h"

#include <sched.h>
#include <stdlib.h>

#define WIRE_ID_MASK 0x9e3779b97f4a7c15ull /* makes the wire's id out of the team's */
#define WIRE_ID_STEP 0xda942042e4dd58b5ull /* makes the next id out of it */
#define WIRE_QUIET_NS (150 * MPATH_NS_PER_MS)
#define WIRE_ABANDON_NS MPATH_NS_PER_S

/* -- the end -- */

static void close_queue(mpath_wire_t *wire)
{
    mpath_wire_waiting_t *waiting;

    pthread_mutex_lock(&wire->lock);
    wire->closed = 1;
    pthread_mutex_unlock(&wire->lock);
    while ((waiting = mpath_wire_dequeue(wire)) != NULL) {
        mpath_fabric_release(wire->fabric, waiting->nic, &waiting->arrival);
        free(waiting);
    }
}

/* Drops the transfers that have ended, whatever came of them. Nonzero: some are left. */
static int sweep(mpath_wire_t *wire)
{
    mpath_wire_transfer_t **at = &wire->active;

    while (*at != NULL) {
        mpath_wire_transfer_t *transfer = *at;

        if (mpath_fabric_op_status(wire->fabric, transfer->nic, &transfer->op) == MPATH_INPROGRESS) {
            at = &transfer->next;
            continue;
        }
        *at = transfer->next;
        mpath_wire_transfer_put(wire, transfer);
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
    for (const mpath_wire_transfer_t *transfer = wire->active; transfer != NULL; transfer = transfer->next) {
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

void mpath_wire_destroy(mpath_wire_t *wire)
{
    mpath_wire_transfer_t *transfer;

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
    return mpath_fabric_join_rail(wire->fabric, rail, wire->id, mpath_wire_arrive, wire);
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

    if (team->wire_declined) {
        return MPATH_DECLINED;
    }
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
        if (status != MPATH_OK) {
            mpath_wire_destroy(wire);
            team->wire_declined = status == MPATH_DECLINED;
            return status;
        }
        team->wire = wire;
    }
    *wire_p = team->wire;
    /* Rails that could not be opened again have left the movement without addresses. */
    return team->mover->status;
}
