/* SPDX-License-Identifier: BSD-3-Clause */
/* Wire: how it begins on all ranks alike, and how what is under way ends when a call is given up. */
#include "exec/wire_private.h"

#include "util/log.h"

#include <stdlib.h>

#define WIRE_ID_MASK 0x9e3779b97f4a7c15ull /* makes the wire's id out of the team's */
#define WIRE_ID_STEP 0xda942042e4dd58b5ull /* makes the next id out of it */

/* -- the end -- */

void mpath_wire_stop(mpath_wire_t *wire)
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

/* Whose number `peer` is on a NIC, as far as this rank has sent to it. */
static void find_sender(const mpath_mover_t *mover, int peer, mpath_transfer_t *transfer)
{
    const mpath_team_t *team = mover->team;
    const int *known         = mover->peers + (size_t)transfer->nic * (size_t)team->size * MPATH_MAX_NICS;

    for (int i = 0; (peer >= 0) && (i < team->size * MPATH_MAX_NICS); i++) {
        if (known[i] == peer + 1) {
            transfer->rank   = i / MPATH_MAX_NICS;
            transfer->nic_to = i % MPATH_MAX_NICS;
            return;
        }
    }
}

static mpath_transfer_t describe(const mpath_wire_t *wire, const mpath_wire_transfer_t *transfer)
{
    mpath_transfer_t described = {.status = mpath_fabric_op_status(wire->fabric, transfer->nic, &transfer->op),
                                  .sends  = transfer->rank >= 0,
                                  .rail   = transfer->nic,
                                  .nic    = mpath_mover_nic_of(wire->team->mover, transfer->nic),
                                  .rank   = transfer->rank,
                                  .nic_to = transfer->end};

    if (!described.sends) {
        find_sender(wire->team->mover, transfer->end, &described);
    }
    return described;
}

void mpath_wire_sweep(mpath_wire_t *wire, mpath_transfer_visit_t visit, void *argument)
{
    mpath_wire_transfer_t **at = &wire->active;

    while (*at != NULL) {
        mpath_wire_transfer_t *transfer = *at;
        mpath_transfer_t described      = describe(wire, transfer);

        visit(argument, &described);
        if (described.status == MPATH_INPROGRESS) {
            at = &transfer->next;
            continue;
        }
        *at = transfer->next;
        mpath_wire_transfer_put(wire, transfer);
    }
}

void mpath_wire_abandon(mpath_wire_t *wire)
{
    mpath_wire_stop(wire);
    mpath_transfers_abandon(wire->team->mover, wire->nics);
}

void mpath_wire_destroy(mpath_wire_t *wire)
{
    mpath_wire_transfer_t *transfer;

    if (wire == NULL) {
        return;
    }
    mpath_wire_stop(wire);
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
    mpath_wire_stop(wire);
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

mpath_status_t mpath_wire_widen(mpath_wire_t *wire, const uint32_t *nics)
{
    mpath_team_t *team   = wire->team;
    mpath_mover_t *mover = team->mover;
    mover_hello_t mine;
    mpath_status_t status;

    if (!mpath_mover_is_narrow(mover, nics)) {
        return MPATH_OK;
    }
    status = mpath_mover_open(mover, nics[team->rank], &mine);
    for (int nic = 0; (nic < MPATH_MAX_NICS) && (status == MPATH_OK); nic++) {
        if ((mine.address_bytes[nic] > 0) && (mover->hellos[team->rank].address_bytes[nic] == 0)) {
            status = mpath_wire_join_rail(wire, mover->fabric_nic[nic]);
        }
    }
    status = wire_confirm(team, status);
    if (status == MPATH_OK) {
        status = mpath_mover_tell(mover, &mine);
    }
    team->wire_declined = team->wire_declined || (status == MPATH_DECLINED);
    return status;
}
