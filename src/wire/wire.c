/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire: the thread of a call drives its rails and handles at once what comes for it, while the bytes are still where
 * the lane has received them. What another thread, or a call on another team, finds for it is queued.
 */
#include "wire/wire_private.h"

#include "util/log.h"
#include "wire/failover.h"
#include "wire/links_private.h"

#include <stdlib.h>

/* -- transfers -- */

/* `rank`: that it is sent to, there to NIC `end`; -1: it is a take, from the lane's peer `end`. */
static mpath_wire_transfer_t *transfer_get(mpath_wire_t *wire, int nic, int rank, int end, const mpath_chunk_t *chunk,
                                           void *item)
{
    mpath_wire_transfer_t *transfer = wire->spare;

    if (transfer != NULL) {
        wire->spare = transfer->next;
    } else if ((transfer = malloc(sizeof(*transfer))) == NULL) {
        mpath_error("%s: no memory to handle a chunk; the call fails", mpath_team_name(wire->team));
        return NULL;
    }
    *transfer = (mpath_wire_transfer_t){
        .nic = nic, .rank = rank, .end = end, .chunk = *chunk, .item = item, .op = {.status = MPATH_INPROGRESS}};
    return transfer;
}

/* A transfer that is over, for the next one. */
static void wire_transfer_put(mpath_wire_t *wire, mpath_wire_transfer_t *transfer)
{
    transfer->next = wire->spare;
    wire->spare    = transfer;
}

static void transfer_finish(mpath_wire_t *wire, mpath_wire_transfer_t *transfer)
{
    if (transfer->rank < 0) {
        wire->ops->placed(wire->argument, &transfer->chunk, transfer->item);
    } else {
        wire->ops->sent(wire->argument, &transfer->chunk, transfer->item);
    }
    wire_transfer_put(wire, transfer);
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
        wire_transfer_put(wire, transfer);
        return status;
    }
}

/* `rank`: of the other end; -1: of whichever. */
static void wire_lose(mpath_wire_t *wire, int nic, int rank, mpath_status_t status)
{
    const mpath_team_t *team = wire->team;
    const char *name         = mpath_topo_machine(mpath_team_topo(team), mpath_team_node(team))->nics[nic].name;
    int repeats              = wire->repeats && (status == MPATH_ERR_UNREACHABLE);
    mpath_log_level_t level  = repeats ? MPATH_LOG_WARN : MPATH_LOG_ERROR;
    const char *next         = repeats ? "is repeated over the other rails" : "fails";

    if (rank >= 0) {
        mpath_log(level, "%s: rank %d (%s) can no longer be reached by rail %s: %s; rank %d sends to it, the call %s",
                  mpath_team_name(team), rank, mpath_team_host(team, rank), name, mpath_status_string(status),
                  mpath_team_rank(team), next);
    } else {
        mpath_log(level, "%s: rank %d (%s): nothing can be had over rail %s any more: %s; the call %s",
                  mpath_team_name(team), mpath_team_rank(team), mpath_team_host(team, mpath_team_rank(team)), name,
                  mpath_status_string(status), next);
    }
    wire->lost |= mpath_nic_bit(nic);
}

/* The same by the number of a rail of the fabric. */
static void lose_rail(mpath_wire_t *wire, int rail, int rank, mpath_status_t status)
{
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        if (((wire->nics >> nic) & 1) && (mpath_links_rail(wire->links, nic) == rail)) {
            wire_lose(wire, nic, rank, status);
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

void mpath_wire_drop(mpath_wire_t *wire, const mpath_wire_arrival_t *arrival)
{
    mpath_fabric_release(wire->fabric, arrival->rail, &arrival->lane);
}

mpath_status_t mpath_wire_take(mpath_wire_t *wire, const mpath_wire_arrival_t *arrival, void *to, void *item)
{
    mpath_wire_transfer_t *transfer = transfer_get(wire, arrival->rail, -1, arrival->lane.peer, &arrival->lane.chunk,
                                                   item);
    mpath_status_t status;

    if (transfer == NULL) {
        mpath_wire_drop(wire, arrival);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_fabric_take(wire->fabric, arrival->rail, &arrival->lane, to, &transfer->op);
    status = transfer_started(wire, transfer, status);
    if (mpath_status_is_error(status)) {
        lose_rail(wire, arrival->rail, -1, status);
    }
    if (status == MPATH_NO_RESOURCE) {
        mpath_error("%s: a lane has no memory to take a chunk to its place; the call fails",
                    mpath_team_name(wire->team));
        mpath_wire_drop(wire, arrival);
        status = MPATH_ERR_INTERNAL;
    }
    return status;
}

static mpath_status_t wire_handle(void *self, int rail, const mpath_arrival_t *lane)
{
    const mpath_wire_arrival_t arrival = {.rail = rail, .lane = *lane};
    mpath_wire_t *wire                 = self;
    void *to = NULL, *item = NULL;
    mpath_status_t status = wire->ops->place(wire->argument, &arrival, &to, &item);

    if (status == MPATH_INPROGRESS) {
        return MPATH_OK; /* the caller's from now on */
    }
    if (status == MPATH_OK && to != NULL) {
        return mpath_wire_take(wire, &arrival, to, item);
    }
    mpath_wire_drop(wire, &arrival);
    if (status == MPATH_OK) {
        wire->ops->placed(wire->argument, &lane->chunk, item);
    }
    return status;
}

static void wire_lose_nic(void *self, int nic, mpath_status_t status)
{
    wire_lose(self, nic, -1, status);
}

static const mpath_inbox_ops_t wire_inbox_ops = {.handle = wire_handle, .lose = wire_lose_nic};

/* -- the call -- */

void mpath_wire_begin(mpath_wire_t *wire, const mpath_wire_ops_t *ops, void *argument, mpath_nic_set_t nics,
                      int repeats)
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
                               const void *data, void *item)
{
    int peer = mpath_links_peer(wire->links, nic, rank, nic_to);
    mpath_wire_transfer_t *transfer;
    mpath_status_t status;

    if (peer < 0) {
        return (mpath_status_t)peer;
    }
    transfer = transfer_get(wire, mpath_links_rail(wire->links, nic), rank, nic_to, chunk, item);
    if (transfer == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    transfer->chunk.team = wire->inbox.id;
    status               = mpath_fabric_send(wire->fabric, transfer->nic, peer, &transfer->chunk, data, &transfer->op);
    status               = transfer_started(wire, transfer, status);
    if (mpath_status_is_error(status)) {
        wire_lose(wire, nic, rank, status);
    }
    return status;
}

static int wire_take(mpath_wire_t *wire)
{
    return mpath_inbox_take(&wire->inbox);
}

static int wire_drive(mpath_wire_t *wire)
{
    return mpath_inbox_drive(&wire->inbox, wire->nics);
}

int mpath_wire_progress(mpath_wire_t *wire)
{
    static int (*const steps[])(mpath_wire_t *) = {wire_take, wire_drive, transfers_poll};
    int events                                  = 0;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        int result = steps[i](wire);

        if (result < 0) {
            return result;
        }
        events += result;
    }
    return events;
}

uint64_t mpath_wire_rail_chunk(const mpath_wire_t *wire)
{
    return mpath_links_rail_chunk(wire->links);
}

uint64_t mpath_wire_max_chunk(const mpath_wire_t *wire)
{
    uint64_t most = mpath_team_settings(wire->team)->chunk_bytes, rail = mpath_wire_rail_chunk(wire);

    return (most < rail) ? most : rail;
}

mpath_status_t mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to)
{
    int peer = mpath_links_peer(wire->links, nic, rank, nic_to);

    return (peer < 0) ? (mpath_status_t)peer
                      : mpath_fabric_peer_status(wire->fabric, mpath_links_rail(wire->links, nic), peer);
}

mpath_nic_set_t mpath_wire_lost(const mpath_wire_t *wire)
{
    return wire->lost;
}

void mpath_wire_lose(mpath_wire_t *wire, int nic)
{
    wire->lost |= mpath_nic_bit(nic);
}

/* Wire: how it begins on all ranks alike, and how what is under way ends when a call is given up. */

#define WIRE_ID_MASK 0x9e3779b97f4a7c15ull /* makes the wire's id out of the team's */
#define WIRE_ID_STEP 0xda942042e4dd58b5ull /* makes the next id out of it */

/* -- the end -- */

void mpath_wire_stop(mpath_wire_t *wire)
{
    mpath_inbox_close(&wire->inbox);
}

/* The NIC on which this rank has a rail; -1: it has not. */
static int wire_nic_of(const mpath_links_t *links, int rail)
{
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        if (((links->driven >> nic) & 1) && (links->fabric_nic[nic] == rail)) {
            return nic;
        }
    }
    return -1;
}

static mpath_transfer_t describe(const mpath_wire_t *wire, const mpath_wire_transfer_t *transfer)
{
    mpath_transfer_t described = {.status = mpath_fabric_op_status(wire->fabric, transfer->nic, &transfer->op),
                                  .sends  = transfer->rank >= 0,
                                  .rail   = transfer->nic,
                                  .nic    = wire_nic_of(wire->links, transfer->nic),
                                  .rank   = transfer->rank,
                                  .nic_to = transfer->end};

    if (!described.sends) {
        (void)mpath_links_find_peer(wire->links, described.nic, transfer->end, &described.rank, &described.nic_to);
    }
    return described;
}

static void wire_sweep(void *self, mpath_transfer_visit_t visit, void *argument)
{
    mpath_wire_t *wire         = self;
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
        if (wire->ops != NULL && wire->ops->dropped != NULL) {
            wire->ops->dropped(wire->argument, transfer->item);
        }
        wire_transfer_put(wire, transfer);
    }
}

/* Memory of GPUs needs a context that is current. */
static mpath_status_t wire_enter(void *self)
{
    mpath_wire_t *wire = self;

    return ((wire->ops != NULL) && (wire->ops->enter != NULL)) ? wire->ops->enter(wire->argument) : MPATH_DECLINED;
}

static void wire_leave(void *self)
{
    mpath_wire_t *wire = self;

    wire->ops->leave(wire->argument);
}

static const mpath_links_user_ops_t wire_links_ops = {.sweep = wire_sweep, .enter = wire_enter, .leave = wire_leave};

void mpath_wire_abandon(mpath_wire_t *wire)
{
    mpath_wire_stop(wire);
    mpath_links_abandon(wire->links, wire->nics);
}

static void wire_destroy(mpath_wire_t *wire)
{
    mpath_wire_transfer_t *transfer;

    if (wire == NULL) {
        return;
    }
    mpath_wire_stop(wire);
    mpath_links_leave(wire->links, &wire->inbox);
    while ((transfer = wire->spare) != NULL) {
        wire->spare = transfer->next;
        free(transfer);
    }
    free(wire);
}

/* -- set-up -- */

mpath_status_t mpath_wire_restart(mpath_wire_t *wire)
{
    mpath_wire_stop(wire);
    return mpath_links_rejoin(wire->links, &wire->inbox, wire->inbox.id * WIRE_ID_STEP + 1);
}

static mpath_status_t wire_open(mpath_links_t *links, mpath_wire_t **wire_p)
{
    mpath_wire_t *wire = calloc(1, sizeof(*wire));
    mpath_status_t status;

    if (wire == NULL) {
        mpath_error("%s: no memory to set up the movement of data", mpath_team_name(links->team));
        return MPATH_ERR_NO_MEMORY;
    }
    wire->links  = links;
    wire->team   = links->team;
    wire->fabric = links->fabric;
    status       = mpath_links_join(links, &wire->inbox, mpath_team_id(links->team) ^ WIRE_ID_MASK);
    if (status != MPATH_OK) {
        free(wire);
        return status;
    }
    wire->inbox.ops      = &wire_inbox_ops;
    wire->inbox.argument = wire;
    *wire_p              = wire;
    return MPATH_OK;
}

static void wire_user_stop(void *self)
{
    mpath_wire_stop(self);
}

static void wire_user_destroy(void *self)
{
    wire_destroy(self);
}

static const mpath_team_user_ops_t wire_user_ops = {.stop = wire_user_stop, .destroy = wire_user_destroy};

mpath_status_t mpath_wire_get(mpath_team_t *team, mpath_links_reach_t reach, mpath_wire_t **wire_p)
{
    mpath_wire_t *wire = NULL;
    mpath_links_t *links;
    mpath_status_t status = mpath_links_get(team, reach,
                                            &links); /* rails that could not be opened again have no addresses */

    if (status != MPATH_OK) {
        return status;
    }
    if (links->wire_is_declined) {
        return MPATH_DECLINED;
    }
    if (links->wire == NULL) {
        status = mpath_links_confirm(team, wire_open(links, &wire));
        if (status != MPATH_OK) {
            wire_destroy(wire);
            links->wire_is_declined = status == MPATH_DECLINED;
            return status;
        }
        links->wire = wire;
        mpath_links_attach(links, &wire->links_user, &wire_links_ops, wire);
        mpath_team_attach(team, &wire->user, &wire_user_ops, wire);
    }
    *wire_p = links->wire;
    return MPATH_OK;
}

mpath_status_t mpath_wire_widen(mpath_wire_t *wire, const mpath_nic_set_t *nics)
{
    mpath_links_t *links  = wire->links;
    mpath_status_t status = links->wire_is_narrow ? MPATH_DECLINED : mpath_links_widen(links, nics);

    links->wire_is_narrow = status == MPATH_DECLINED;
    return status;
}
