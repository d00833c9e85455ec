/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up of the movement, at the first call of a team that moves chunks: rails are opened, their addresses exchanged,
 * and nodes whose paths pass through relays get a second set of shared memory rings, for chunks on their way to a
 * relay. Every rank takes part in both exchanges whatever has failed in it, so that all come to the same end.
 */
#include "exec/move_private.h"

#include "topo/machine.h"
#include "util/log.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define RELAY_MEMORY_SHARE 4 /* of memory_bytes */

/* What a rank says in the second exchange, in front of its addresses. */
typedef struct ready {
    int32_t status;
    uint32_t reserved;
} ready_t;

static uint32_t is_left_out(const mpath_team_t *team, int nic)
{
    return (team->lost[team->node] >> nic) & 1;
}

/* NICs of a node that are there, and those that have failed. */
static uint32_t known_nics(const mpath_team_t *team, int node)
{
    const mpath_machine_t *machine = mpath_topo_machine(team->topo, node);
    uint32_t nics                  = team->lost[node];

    for (int nic = 0; nic < machine->num_nics; nic++) {
        nics |= machine->nics[nic].up ? 1u << nic : 0;
    }
    return nics;
}

/* NICs that a rank drives, of those that its node has. */
static uint32_t reach_of(const mpath_team_t *team, int rank)
{
    int own = mpath_topo_place(team->topo, rank)->nic;

    if (mpath_topo_params(team->topo)->access == MPATH_REACH_ALL) {
        return UINT32_MAX;
    }
    return (own >= 0) ? 1u << own : 0;
}

static uint32_t driven_nics(const mpath_team_t *team)
{
    return (team->num_nodes > 1) ? known_nics(team, team->node) & reach_of(team, team->rank) : 0;
}

/* Relays exist where ranks drive their own NIC only. */
static int has_relays(const mpath_team_t *team)
{
    return (team->num_nodes > 1) && (team->num_local > 1) &&
           (mpath_topo_params(team->topo)->access == MPATH_REACH_AFFINE);
}

/* A topology file may number the NICs otherwise than this process's machine does: the name counts. */
static int find_fabric_nic(const mpath_machine_t *mine, const char *name, int number)
{
    int nic = mpath_machine_find_nic(mine, name, number);

    if (nic >= 0) {
        return nic;
    }
    mpath_error(
        "the topology names NIC %s, which this node does not have; mpath leaves this communicator's calls alone", name);
    return MPATH_ERR_PARAM;
}

static mpath_status_t open_rail(mpath_mover_t *mover, int nic, mover_hello_t *hello)
{
    const mpath_team_t *team       = mover->team;
    const mpath_machine_t *machine = mpath_topo_machine(team->topo, team->node);
    int number                     = find_fabric_nic(&team->context->machine, machine->nics[nic].name, nic);
    const void *address;
    size_t bytes, chunk;
    mpath_status_t status;

    if (!is_left_out(team, nic)) {
        mpath_fabric_freshen(mover->fabric, number);
    }
    /* Joined before anybody else can know the address, so that no chunk has to wait. */
    number = (number < 0) ? number : mpath_fabric_join(mover->fabric, number, team->id, mpath_inbox_arrive, mover);
    if (number < 0) {
        return (mpath_status_t)number;
    }
    mover->fabric_nic[nic] = (int8_t)number;
    mover->driven |= 1u << nic;
    if (is_left_out(team, nic)) {
        return MPATH_OK; /* it may not even open; another one takes its place when the NIC is back */
    }
    status = mpath_fabric_address(mover->fabric, number, &address, &bytes);
    if (status != MPATH_OK) {
        return status;
    }
    if ((bytes == 0) || (bytes > UINT16_MAX)) {
        mpath_error("the address of rail %s has %zu bytes; mpath leaves this communicator's calls alone",
                    machine->nics[nic].name, bytes);
        return MPATH_ERR_INTERNAL;
    }
    chunk                     = mpath_fabric_max_chunk(mover->fabric, number);
    hello->address_bytes[nic] = (uint16_t)bytes;
    if ((hello->rail_chunk_bytes == 0) || (chunk < hello->rail_chunk_bytes)) {
        hello->rail_chunk_bytes = (uint32_t)((chunk < UINT32_MAX) ? chunk : UINT32_MAX);
    }
    return MPATH_OK;
}

/* Those of `nics`, as a bit mask, that are not open yet. */
static mpath_status_t open_rails(mpath_mover_t *mover, uint32_t nics, mover_hello_t *hello)
{
    mpath_status_t status = MPATH_OK;

    for (nics &= ~mover->driven; (nics != 0) && (status == MPATH_OK); nics &= nics - 1) {
        status = open_rail(mover, __builtin_ctz(nics), hello);
    }
    return status;
}

static mpath_status_t create_relay_segment(mpath_mover_t *mover, mover_hello_t *hello)
{
    const mpath_team_t *team         = mover->team;
    const mpath_settings_t *settings = &team->context->settings;
    mpath_status_t status            = MPATH_OK;

    if (!has_relays(team)) {
        return MPATH_OK;
    }
    mpath_shm_shape_choose(team->num_local, settings->memory_bytes / RELAY_MEMORY_SHARE, settings->chunk_bytes,
                           &mover->relay_shape);
    hello->relay_slot_bytes   = mover->relay_shape.slot_bytes;
    hello->relay_region_bytes = mpath_shm_region_bytes(&mover->relay_shape);
    if (team->local_rank == 0) {
        status = mpath_segment_create(hello->relay_region_bytes, &mover->relay_segment);
        if (status == MPATH_OK) {
            memcpy(hello->relay_segment, mover->relay_segment.name, sizeof(hello->relay_segment));
        }
    }
    return status;
}

static mpath_status_t open_relay_lane(mpath_mover_t *mover)
{
    mpath_team_t *team         = mover->team;
    const mover_hello_t *first = &mover->hellos[team->local[0]];
    mpath_status_t status      = MPATH_OK;

    if (!has_relays(team)) {
        return MPATH_OK;
    }
    if (team->local_rank != 0) {
        char name[MPATH_SEGMENT_NAME_MAX];

        memcpy(name, first->relay_segment, sizeof(name));
        name[sizeof(name) - 1] = 0;
        status                 = mpath_segment_attach(name, first->relay_region_bytes, &mover->relay_segment);
    }
    if (status == MPATH_OK) {
        status = mpath_shm_open(mover->relay_segment.base, &mover->relay_shape, team->local_rank, &mover->relay);
    }
    if (status == MPATH_OK) {
        mpath_lane_set_arrive(mover->relay, mpath_mover_arrive, mover);
    }
    return status;
}

/* First exchange: what everybody has. MPATH_DECLINED, on all ranks, when one of them could not open what it needs. */
static mpath_status_t exchange_hellos(mpath_mover_t *mover, const mover_hello_t *mine)
{
    mpath_team_t *team    = mover->team;
    mpath_status_t status = mpath_team_allgather(team, mine, sizeof(*mine), mover->hellos);

    if (status != MPATH_OK) {
        return status;
    }
    for (int rank = 0; rank < team->size; rank++) {
        const mover_hello_t *hello = &mover->hellos[rank];
        size_t bytes               = 0;

        if (hello->status != MPATH_OK) {
            if (team->rank == 0) {
                mpath_tell("no-rail",
                           "%s: rank %d (%s) could not open its rails or its memory (%s); the previous functions run",
                           team->oob.name, rank, mpath_team_host(team, rank),
                           mpath_status_string((mpath_status_t)hello->status));
            }
            return MPATH_DECLINED;
        }
        for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
            bytes += hello->address_bytes[nic];
        }
        mover->address_stride = (bytes > mover->address_stride) ? bytes : mover->address_stride;
    }
    mover->address_stride = (mover->address_stride + 7) / 8 * 8;
    return MPATH_OK;
}

/* The addresses of this rank's rails, in order of the NICs. */
static mpath_status_t gather_addresses(const mpath_mover_t *mover, uint8_t *to)
{
    const mover_hello_t *mine = &mover->hellos[mover->team->rank];

    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        const void *address;
        size_t bytes;
        mpath_status_t status;

        if (mine->address_bytes[nic] == 0) {
            continue;
        }
        status = mpath_fabric_address(mover->fabric, mover->fabric_nic[nic], &address, &bytes);
        if (status != MPATH_OK) {
            return status;
        }
        memcpy(to, address, mine->address_bytes[nic]);
        to += mine->address_bytes[nic];
    }
    return MPATH_OK;
}

/* Second exchange: addresses, and whether all could attach to the shared memory. */
static mpath_status_t exchange_addresses(mpath_mover_t *mover, mpath_status_t mine)
{
    mpath_team_t *team = mover->team;
    size_t stride = sizeof(ready_t) + mover->address_stride, size = (size_t)team->size;
    uint8_t *all  = calloc(size + 1, stride), *own;
    ready_t ready = {.status = (int32_t)mine};
    mpath_status_t status;

    if (all == NULL) {
        /* Without room for the others' answers this rank cannot even say so. */
        mpath_error("no memory for the rail addresses of %d ranks", team->size);
        return MPATH_ERR_NO_MEMORY;
    }
    own = all + size * stride;
    if (ready.status == MPATH_OK) {
        ready.status = (int32_t)gather_addresses(mover, own + sizeof(ready));
    }
    memcpy(own, &ready, sizeof(ready));
    status = mpath_team_allgather(team, own, stride, all);
    for (int rank = 0; (rank < team->size) && (status == MPATH_OK); rank++) {
        memcpy(&ready, all + (size_t)rank * stride, sizeof(ready));
        if (ready.status != MPATH_OK) {
            mpath_info("%s: rank %d could not set up its lanes (%s); the previous functions run", team->oob.name, rank,
                       mpath_status_string((mpath_status_t)ready.status));
            status = MPATH_DECLINED;
        } else {
            memmove(all + (size_t)rank * mover->address_stride, all + (size_t)rank * stride + sizeof(ready),
                    mover->address_stride);
        }
    }
    mover->addresses = all;
    return status;
}

/* Limits of chunks, from what all ranks have said. */
static void set_limits(mpath_mover_t *mover)
{
    const mpath_team_t *team = mover->team;
    uint32_t *last = mover->slot_bytes, *relay = mover->slot_bytes + team->num_nodes;

    mover->limits = (mpath_chunk_limits_t){.chunk_bytes      = team->context->settings.chunk_bytes,
                                           .rail_bytes       = UINT64_MAX,
                                           .last_slot_bytes  = last,
                                           .relay_slot_bytes = relay};
    for (int rank = 0; rank < team->size; rank++) {
        uint32_t bytes = mover->hellos[rank].rail_chunk_bytes;

        if ((bytes > 0) && (bytes < mover->limits.rail_bytes)) {
            mover->limits.rail_bytes = bytes;
        }
    }
    for (int node = 0; node < team->num_nodes; node++) {
        last[node]  = mover->hellos[team->leaders[node]].last_slot_bytes;
        relay[node] = mover->hellos[team->leaders[node]].relay_slot_bytes;
    }
}

static mpath_mover_t *new_mover(mpath_team_t *team)
{
    mpath_mover_t *mover = calloc(1, sizeof(*mover));
    size_t size          = (size_t)team->size;

    if (mover == NULL) {
        return NULL;
    }
    mover->team       = team;
    mover->fabric     = team->context->fabric;
    mover->hellos     = calloc(size, sizeof(*mover->hellos));
    mover->slot_bytes = calloc(2 * (size_t)team->num_nodes, sizeof(*mover->slot_bytes));
    mover->peers      = calloc(size * MPATH_MAX_NICS * MPATH_MAX_NICS, sizeof(*mover->peers));
    if ((mover->hellos == NULL) || (mover->slot_bytes == NULL) || (mover->peers == NULL) ||
        (mpath_rail_clock_init(&mover->clock, team) != MPATH_OK) || (mpath_mover_retry_init(mover) != MPATH_OK) ||
        (mpath_inbox_init(&mover->inbox) != MPATH_OK)) {
        mpath_rail_clock_release(&mover->clock);
        free(mover->settles);
        free(mover->hellos);
        free(mover->slot_bytes);
        free(mover->peers);
        free(mover);
        return NULL;
    }
    return mover;
}

mpath_status_t mpath_mover_create(mpath_team_t *team)
{
    mpath_mover_t *mover = new_mover(team);
    mover_hello_t mine;
    mpath_status_t status;

    if (mover == NULL) {
        mpath_error("%s: no memory to set up the movement of data", team->oob.name);
        return MPATH_ERR_NO_MEMORY;
    }
    memset(&mine, 0, sizeof(mine));
    mine.last_slot_bytes = team->shm_shape.slot_bytes;
    status               = open_rails(mover, driven_nics(team), &mine);
    if (status == MPATH_OK) {
        status = create_relay_segment(mover, &mine);
    }
    mine.status = (int32_t)status;
    status      = exchange_hellos(mover, &mine);
    if (status == MPATH_OK) {
        status = exchange_addresses(mover, open_relay_lane(mover));
    }
    if ((mover->relay_segment.base != NULL) && (team->local_rank == 0)) {
        mpath_segment_unlink(&mover->relay_segment);
    }
    if (mpath_status_is_error(status)) {
        mpath_mover_destroy(mover);
        return status;
    }
    if (status == MPATH_OK) {
        set_limits(mover);
        if (team->shm != NULL) {
            mpath_lane_set_arrive(team->shm, mpath_mover_arrive, mover);
        }
    }
    mover->status = status;
    team->mover   = mover;
    return MPATH_OK;
}

/* Goes over to another rail on a NIC that has failed and is back, here or at the other end. */
static mpath_status_t renew_rail(mpath_mover_t *mover, int nic, mover_hello_t *hello)
{
    mpath_team_t *team = mover->team;
    int before         = mover->fabric_nic[nic], number;
    const void *address;
    size_t bytes;
    mpath_status_t status = mpath_fabric_renew(mover->fabric, before, &number);

    if (status == MPATH_OK) {
        status = mpath_fabric_join_rail(mover->fabric, number, team->id, mpath_inbox_arrive, mover);
    }
    if ((status == MPATH_OK) && (team->wire != NULL)) {
        status = mpath_wire_join_rail(team->wire, number);
    }
    if (status == MPATH_OK) {
        status = mpath_fabric_address(mover->fabric, number, &address, &bytes);
    }
    if (status != MPATH_OK) {
        return status;
    }
    mpath_fabric_leave_rail(mover->fabric, before, team->id);
    if (team->wire != NULL) {
        mpath_wire_leave_rail(team->wire, before);
    }
    mover->fabric_nic[nic]    = (int8_t)number;
    hello->address_bytes[nic] = (uint16_t)bytes;
    return MPATH_OK;
}

mpath_status_t mpath_mover_reopen(mpath_mover_t *mover, uint32_t nics)
{
    mover_hello_t mine = mover->hellos[mover->team->rank];
    mpath_status_t status;

    mpath_inbox_close(mover); /* late chunks of earlier attempts, which the rails are about to release */
    for (; nics != 0; nics &= nics - 1) {
        int nic = __builtin_ctz(nics);

        if (is_left_out(mover->team, nic)) {
            mine.address_bytes[nic] =
                0; /* it is back on other nodes only: nothing is sent to it, and it may not open */
        } else if (((mover->driven >> nic) & 1) && (mine.status == MPATH_OK)) {
            mine.status = (int32_t)renew_rail(mover, nic, &mine);
        }
    }
    mpath_inbox_open(mover, 0);
    free(mover->addresses);
    mover->addresses = NULL;
    status           = exchange_hellos(mover, &mine);
    if (status == MPATH_OK) {
        status = exchange_addresses(mover, MPATH_OK);
    }
    if (mpath_status_is_error(status)) {
        return status;
    }
    mover->status = status;
    return MPATH_OK;
}

int mpath_mover_is_narrow(const mpath_mover_t *mover, const uint32_t *nics)
{
    const mpath_team_t *team = mover->team;
    int narrow               = 0;

    for (int rank = 0; rank < team->size; rank++) {
        narrow = narrow || ((nics[rank] & known_nics(team, team->node_of[rank]) & ~reach_of(team, rank)) != 0);
    }
    return narrow;
}

mpath_status_t mpath_mover_open(mpath_mover_t *mover, uint32_t nics, mover_hello_t *hello)
{
    *hello = mover->hellos[mover->team->rank];
    return open_rails(mover, nics & known_nics(mover->team, mover->team->node), hello);
}

mpath_status_t mpath_mover_tell(mpath_mover_t *mover, const mover_hello_t *hello)
{
    mpath_status_t status;

    free(mover->addresses);
    mover->addresses = NULL;
    status           = exchange_hellos(mover, hello);
    if (status == MPATH_OK) {
        status = exchange_addresses(mover, MPATH_OK);
    }
    if (mpath_status_is_error(status)) {
        return status;
    }
    mover->status = status;
    set_limits(mover);
    mpath_schedule_destroy(mover->schedule); /* its chunks have the limits of before */
    mover->schedule = NULL;
    return status;
}

uint64_t mpath_mover_memory_bytes(const mpath_mover_t *mover)
{
    const mpath_team_t *team = mover->team;
    uint64_t bytes           = (mover->relay != NULL) ? mover->relay_segment.bytes / (uint64_t)team->num_local : 0;

    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        bytes += (mover->hellos[team->rank].address_bytes[nic] > 0)
                     ? mpath_fabric_open_limit_bytes(team->context->fabric)
                     : 0;
    }
    return bytes;
}

void mpath_mover_destroy(mpath_mover_t *mover)
{
    parcel_t *parcel;

    if (mover == NULL) {
        return;
    }
    mpath_mover_forget_peers(mover); /* before the rails, which may be closed then */
    mpath_fabric_leave(mover->fabric, mover->team->id);
    if (mover->relay != NULL) {
        mover->relay->ops->destroy(mover->relay);
    }
    if (mover->relay_segment.base != NULL) {
        mpath_segment_detach(&mover->relay_segment);
    }
    while ((parcel = mover->spare) != NULL) {
        mover->spare = parcel->next;
        free(parcel);
    }
    mpath_inbox_cleanup(&mover->inbox);
    mpath_schedule_destroy(mover->schedule);
    free(mover->queues);
    free(mover->hellos);
    free(mover->slot_bytes);
    free(mover->settles);
    free(mover->peers);
    free(mover->addresses);
    mpath_rail_clock_release(&mover->clock);
    free(mover);
}
