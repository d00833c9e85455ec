/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up of links, at the first call of a team that moves chunks: rails are opened, their addresses exchanged, and
 * nodes whose paths pass through relays get a second set of shared memory rings, for chunks to a relay.
 * Every rank takes part in both exchanges whatever has failed in it, so that all come to the same end. Addresses of nodes that
 * are not near come in the first call that goes there.
 */
#include "wire/links_private.h"

#include "team/lost.h"
#include "topo/discover/machine.h"
#include "util/log.h"
#include "util/reserve.h"
#include "util/time.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ends of rails: the peer that a NIC of another rank is, from the addresses that all have exchanged. */

/*
 * Of each rank: the set of its NICs that have an address; behind it, for each of these, the length and the address. NULL: they are not
 * here.
 */
static uint8_t *addresses_of(const mpath_links_t *links, int rank)
{
    int place = links->reach == MPATH_LINKS_ALL ? rank : mpath_team_place(links->team, rank);

    return links->addresses == NULL || place < 0 ? NULL : links->addresses + (size_t)place * links->address_stride;
}

/* NULL: there is none. */
static const uint8_t *address_of(const mpath_links_t *links, int rank, int nic, uint16_t *bytes_p)
{
    const uint8_t *from = addresses_of(links, rank);
    size_t at           = sizeof(mpath_nic_set_t);
    mpath_nic_set_t nics;

    if (from == NULL) {
        return NULL;
    }
    memcpy(&nics, from, sizeof(nics));
    if (((nics >> nic) & 1) == 0) {
        return NULL;
    }
    for (nics &= mpath_nics_below(nic + 1); at + sizeof(*bytes_p) <= links->address_stride; nics &= nics - 1) {
        memcpy(bytes_p, from + at, sizeof(*bytes_p));
        at += sizeof(*bytes_p);
        if ((nics & (nics - 1)) == 0) {
            return (at + *bytes_p <= links->address_stride) ? from + at : NULL;
        }
        at += *bytes_p;
    }
    return NULL;
}

int mpath_links_peer(mpath_links_t *links, int nic, int rank, int nic_to)
{
    const mpath_team_t *team = links->team;
    int *known =
        &links->peers[((size_t)nic * (size_t)mpath_team_size(team) + (size_t)rank) * (size_t)links->num_nics_to +
                      (size_t)nic_to];
    const uint8_t *address;
    uint16_t bytes = 0;
    char name[96];
    int peer;

    if (*known > 0) {
        return *known - 1;
    }
    address = address_of(links, rank, nic_to, &bytes);
    if ((links->hello.address_bytes[nic] == 0) || (address == NULL)) {
        mpath_error(
            "a chunk is to go over NIC %d to NIC %d of rank %d: this NIC is not open, or that one's address was not sent here",
            nic, nic_to, rank);
        return MPATH_ERR_INTERNAL;
    }
    snprintf(name, sizeof(name), "rank %d (%s)", rank,
             mpath_topo_host(mpath_team_topo(team), mpath_team_node_of(team, rank)));
    peer = mpath_fabric_peer(links->fabric, links->fabric_nic[nic], address, bytes, name);
    if (peer >= 0) {
        *known = peer + 1;
    }
    return peer;
}

int mpath_links_find_peer(const mpath_links_t *links, int nic, int peer, int *rank_p, int *nic_to_p)
{
    const mpath_team_t *team = links->team;
    const int *known         = links->peers + (size_t)nic * (size_t)mpath_team_size(team) * (size_t)links->num_nics_to;

    for (int i = 0; (peer >= 0) && (i < mpath_team_size(team) * links->num_nics_to); i++) {
        if (known[i] == peer + 1) {
            *rank_p   = i / links->num_nics_to;
            *nic_to_p = i % links->num_nics_to;
            return 1;
        }
    }
    return 0;
}

void mpath_links_forget_peers(mpath_links_t *links, mpath_nic_set_t nics)
{
    int *known = links->peers;

    for (int nic = 0; nic < links->num_nics; nic++) {
        for (int rank = 0; rank < mpath_team_size(links->team); rank++) {
            for (int nic_to = 0; nic_to < links->num_nics_to; nic_to++, known++) {
                if ((*known > 0) && ((((nics >> nic) | (nics >> nic_to)) & 1) != 0)) {
                    mpath_fabric_forget_peer(links->fabric, links->fabric_nic[nic], *known - 1);
                    *known = 0;
                }
            }
        }
    }
}

#define RELAY_MEMORY_SHARE 4 /* of memory_bytes */

/* Of all processes of a node, which those of more than a few share: what a queue has to hold does not grow with their number. */
#define NODE_LAST_BYTES (32u << 20)
#define NODE_RELAY_BYTES (16u << 20)

/* A queue on a single node holds this many pairs, each of this many bytes at least. */
#define ONE_NODE_PAIRS 16u

#define ONE_NODE_PAIR_BYTES 4096u
#define ONE_NODE_SLOT_EXTRA 256u /* of each slot, with its part of what else is there */

static int is_left_out(const mpath_team_t *team, int nic)
{
    return (int)(mpath_team_lost(team, mpath_team_node(team)) >> nic) & 1;
}

/* NICs of a node that are there, and those that have failed. */
static mpath_nic_set_t known_nics(const mpath_team_t *team, int node)
{
    const mpath_machine_t *machine = mpath_topo_machine(mpath_team_topo(team), node);
    mpath_nic_set_t nics           = mpath_team_lost(team, node);

    for (int nic = 0; nic < machine->num_nics; nic++) {
        nics |= machine->nics[nic].up ? mpath_nic_bit(nic) : 0;
    }
    return nics;
}

/* NICs that a rank drives, of those that its node has. */
static mpath_nic_set_t reach_of(const mpath_team_t *team, int rank)
{
    int own = mpath_topo_place(mpath_team_topo(team), rank)->nic;

    if (mpath_topo_params(mpath_team_topo(team))->access == MPATH_REACH_ALL) {
        return MPATH_NIC_SET_ALL;
    }
    return (own >= 0) ? mpath_nic_bit(own) : 0;
}

static mpath_nic_set_t driven_nics(const mpath_team_t *team)
{
    return (mpath_team_num_nodes(team) > 1)
               ? known_nics(team, mpath_team_node(team)) & reach_of(team, mpath_team_rank(team))
               : 0;
}

/* Relays exist where ranks drive their own NIC only. */
static int has_relays(const mpath_team_t *team)
{
    return (mpath_team_num_nodes(team) > 1) && (mpath_team_num_local(team) > 1) &&
           (mpath_topo_params(mpath_team_topo(team))->access == MPATH_REACH_AFFINE);
}

/* A topology file may number the NICs otherwise than this process's machine does: the name counts. */
static int find_fabric_nic(const mpath_team_t *team, const char *name, int number)
{
    int nic = mpath_machine_find_nic(mpath_team_machine(team), name, number);

    if (nic >= 0) {
        return nic;
    }
    mpath_info_by(mpath_team_local_rank(team) == 0, "the topology names NIC %s, which this node does not have", name);
    return MPATH_ERR_PARAM;
}

/* The others are told, and all leave the NIC out. */
static void note_unopened(mpath_links_t *links, int nic, int number, mpath_links_hello_t *hello)
{
    mpath_links_unopened_t *unopened = &hello->unopened;

    if (unopened->nics == 0 && number >= 0) {
        mpath_fabric_why(links->fabric, number, unopened->why, sizeof(unopened->why));
    } else if (unopened->nics == 0) {
        snprintf(unopened->why, sizeof(unopened->why), "the node has no NIC of this name");
    }
    unopened->nics |= mpath_nic_bit(nic);
    hello->address_bytes[nic] = 0;
}

static mpath_status_t join_others(mpath_links_t *links, int rail)
{
    mpath_status_t status = MPATH_OK;

    for (mpath_inbox_t *inbox = links->others; (inbox != NULL) && (status == MPATH_OK); inbox = inbox->next) {
        status = mpath_inbox_join_rail(inbox, rail);
    }
    return status;
}

static mpath_status_t open_rail(mpath_links_t *links, int nic, mpath_links_hello_t *hello)
{
    const mpath_team_t *team       = links->team;
    const mpath_machine_t *machine = mpath_topo_machine(mpath_team_topo(team), mpath_team_node(team));
    int number                     = find_fabric_nic(team, machine->nics[nic].name, nic);
    const void *address;
    size_t bytes, chunk;
    mpath_status_t status;
    int rail;

    if (number < 0) {
        if (!is_left_out(team, nic)) {
            note_unopened(links, nic, number, hello);
        }
        return MPATH_OK;
    }
    if (!is_left_out(team, nic)) {
        mpath_fabric_freshen(links->fabric, number);
    }
    /* Joined before anybody else can know the address, so that no chunk has to wait. */
    rail   = mpath_inbox_join(&links->inbox, number);
    status = (rail < 0) ? (mpath_status_t)rail : join_others(links, rail);
    if (status != MPATH_OK) {
        return status;
    }
    links->fabric_nic[nic] = (int16_t)rail;
    links->driven |= mpath_nic_bit(nic);
    if (is_left_out(team, nic)) {
        return MPATH_OK; /* it may not even open; another one takes its place when the NIC is back */
    }
    status = mpath_fabric_address(links->fabric, rail, &address, &bytes);
    if (status != MPATH_OK) {
        mpath_fabric_suspect(links->fabric, rail); /* tried anew when it is asked for again */
        note_unopened(links, nic, number, hello);
        return MPATH_OK;
    }
    if ((bytes == 0) || (bytes > UINT16_MAX)) {
        mpath_error("the address of rail %s has %zu bytes; mpath leaves this communicator's calls alone",
                    machine->nics[nic].name, bytes);
        return MPATH_ERR_INTERNAL;
    }
    chunk                     = mpath_fabric_max_chunk(links->fabric, rail);
    hello->address_bytes[nic] = (uint16_t)bytes;
    if ((hello->rail_chunk_bytes == 0) || (chunk < hello->rail_chunk_bytes)) {
        hello->rail_chunk_bytes = (uint32_t)((chunk < UINT32_MAX) ? chunk : UINT32_MAX);
    }
    return MPATH_OK;
}

/* The ranks that may be at the other end of this one's rails, and those of its node that drive the same NICs: for UCX to know. */
static void expect_peers(const mpath_links_t *links)
{
    const mpath_team_t *team = links->team;
    mpath_nic_set_t mine     = reach_of(team, mpath_team_rank(team));
    int num_peers = 0, num_sharing = 0;

    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        int meets = (reach_of(team, rank) & mine) != 0;

        num_sharing += meets && (mpath_team_node_of(team, rank) == mpath_team_node(team));
        num_peers += meets && (mpath_team_node_of(team, rank) != mpath_team_node(team));
    }
    mpath_fabric_expect(links->fabric, num_peers, num_sharing);
}

/* Those of `nics`, as a bit mask, that are not open yet. */
static mpath_status_t open_rails(mpath_links_t *links, mpath_nic_set_t nics, mpath_links_hello_t *hello)
{
    mpath_status_t status = MPATH_OK;

    for (nics &= ~links->driven; (nics != 0) && (status == MPATH_OK); nics &= nics - 1) {
        status = open_rail(links, mpath_nic_first(nics), hello);
    }
    return status;
}

/*
 * On a single node queues are seldom used (other functions are faster there), and so get little unless mpath has to run.
 * No pair of node_min_bytes or more comes to them.
 */
static int is_seldom_used(const mpath_team_t *team)
{
    const mpath_settings_t *settings = mpath_team_settings(team);

    return (mpath_team_num_nodes(team) == 1) && (settings->gate != MPATH_GATE_ALWAYS) &&
           (settings->alltoallv_algorithm == MPATH_ROUTES_AUTO);
}

/* Such a queue, of `share` bytes at most. *chunk_bytes: in: largest chunk; out: that comes to it. */
static uint64_t seldom_share(const mpath_settings_t *settings, uint64_t share, uint64_t *chunk_bytes)
{
    uint64_t pair = (settings->node_min_bytes > ONE_NODE_PAIR_BYTES) ? settings->node_min_bytes : ONE_NODE_PAIR_BYTES;
    uint64_t most = share / 16;

    if (pair < *chunk_bytes) {
        *chunk_bytes = pair;
    }
    return (pair < most / ONE_NODE_PAIRS) ? (pair + ONE_NODE_SLOT_EXTRA) * ONE_NODE_PAIRS : most;
}

/* Ranks of the node that has most, or processes of the job on this one where these are more. */
static int most_on_node(const mpath_team_t *team)
{
    int most = mpath_team_num_processes(team);

    for (int node = 0; node < mpath_team_num_nodes(team); node++) {
        most = (mpath_team_num_on(team, node) > most) ? mpath_team_num_on(team, node) : most;
    }
    return most;
}

/*
 * The shape that a queue of this process should have: last ones get half of memory_bytes, those towards relays a quarter,
 * and no more than their part of a node's. `capacity_bytes` of shared memory are left for it.
 */
static void choose_shape(const mpath_team_t *team, mpath_shm_kind_t kind, uint64_t capacity_bytes,
                         mpath_shm_shape_t *shape)
{
    const mpath_settings_t *settings = mpath_team_settings(team);
    uint64_t share = settings->memory_bytes / 2, node_bytes = NODE_LAST_BYTES, chunk_bytes = settings->chunk_bytes;
    int on_node = most_on_node(team);

    if (kind == MPATH_SHM_RELAY) {
        share      = settings->memory_bytes / RELAY_MEMORY_SHARE;
        node_bytes = NODE_RELAY_BYTES;
    } else if (is_seldom_used(team)) {
        share = seldom_share(settings, share, &chunk_bytes);
    }
    share = (share < node_bytes / (uint64_t)on_node) ? share : node_bytes / (uint64_t)on_node;
    mpath_shm_shape_choose(on_node, (share < capacity_bytes) ? share : capacity_bytes, chunk_bytes, shape);
}

/*
 * A queue of this process for the team: one that it has, if the slots are as large as they would be, else a new one, within
 * half of the shared memory that is left; where that is too little, any that it has. MPATH_DECLINED: none.
 */
static mpath_status_t take_port(mpath_links_t *links, mpath_shm_kind_t kind, uint64_t capacity_bytes)
{
    const mpath_team_t *team = links->team;
    mpath_shm_t *shm         = mpath_team_shm(team);
    uint64_t least           = mpath_shm_least_bytes();
    mpath_shm_shape_t shape;

    choose_shape(team, kind, UINT64_MAX, &shape);
    if (mpath_shm_port_find(shm, kind, shape.slot_bytes, &links->ports[kind]) == MPATH_OK) {
        return MPATH_OK;
    }
    choose_shape(team, kind, capacity_bytes / 2, &shape);
    if (mpath_shm_port_find(shm, kind, (least > capacity_bytes) ? 0 : shape.slot_bytes, &links->ports[kind]) ==
        MPATH_OK) {
        return MPATH_OK;
    }
    if (least > capacity_bytes) {
        mpath_log(
            mpath_team_rank(team) == 0         ? MPATH_LOG_WARN
            : mpath_team_local_rank(team) == 0 ? MPATH_LOG_INFO
                                               : MPATH_LOG_DEBUG,
            "%s: to exchange chunks with others of its node rank %d needs %llu bytes of shared memory, and %llu are left "
            "of what the communicators of a node may take (node_memory_bytes, a quarter of /dev/shm); the previous "
            "functions run",
            mpath_team_name(team), mpath_team_rank(team), (unsigned long long)least,
            (unsigned long long)capacity_bytes);
        return MPATH_DECLINED;
    }
    return mpath_shm_port_create(shm, kind, &shape, &links->ports[kind]);
}

/* The others of the node learn where the queues are with the exchange that follows. */
static mpath_status_t take_ports(mpath_links_t *links, uint64_t capacity_bytes, mpath_links_hello_t *hello)
{
    const mpath_team_t *team        = links->team;
    mpath_segment_address_t *queues = mpath_team_queues(team, mpath_team_local_rank(team));
    int kinds = (mpath_team_num_local(team) == 1) ? 0 : has_relays(team) ? MPATH_SHM_KINDS : MPATH_SHM_LAST + 1;
    mpath_status_t status = MPATH_OK;

    memset(queues, 0, MPATH_SHM_KINDS * sizeof(*queues));
    for (int kind = 0; (kind < kinds) && (status == MPATH_OK); kind++) {
        status = take_port(links, (mpath_shm_kind_t)kind, capacity_bytes / (uint64_t)kinds);
        if (status == MPATH_OK) {
            queues[kind] = *mpath_shm_port_address(links->ports[kind]);
        }
    }
    if ((status == MPATH_OK) && (kinds > 0)) {
        hello->last_slot_bytes  = mpath_shm_port_slot_bytes(links->ports[MPATH_SHM_LAST]);
        hello->relay_slot_bytes = has_relays(team) ? mpath_shm_port_slot_bytes(links->ports[MPATH_SHM_RELAY]) : 0;
    }
    return status;
}

static mpath_status_t open_lanes(mpath_links_t *links)
{
    const mpath_team_t *team        = links->team;
    mpath_segment_address_t *queues = malloc((size_t)mpath_team_num_local(team) * sizeof(*queues));
    mpath_status_t status           = MPATH_OK;

    if (queues == NULL) {
        mpath_error("%s: no memory for the queues of %d processes", mpath_team_name(team), mpath_team_num_local(team));
        return MPATH_ERR_NO_MEMORY;
    }
    for (int kind = 0; (kind < MPATH_SHM_KINDS) && (status == MPATH_OK); kind++) {
        for (int local = 0; local < mpath_team_num_local(team); local++) {
            queues[local] = mpath_team_queues(team, local)[kind];
        }
        if (links->ports[kind] != NULL) {
            status = mpath_shm_open(links->ports[kind], mpath_team_id(team), queues, mpath_team_num_local(team),
                                    mpath_team_local_rank(team), &links->lanes[kind]);
        }
    }
    free(queues);
    return status;
}

static void tell_no_rail(const mpath_team_t *team, int rank, const char *why)
{
    if (mpath_team_rank(team) == 0) {
        mpath_warn_user("no-rail",
                        "%s: rank %d (%s) could not open its rails or its memory (%s); the previous functions run",
                        mpath_team_name(team), rank, mpath_team_host(team, rank), why);
    }
}

/*
 * NICs that some of their processes cannot open are left out on all ranks alike. MPATH_DECLINED, on all ranks, where
 * what is left does not connect them.
 */
static mpath_status_t leave_out_unopened(mpath_links_t *links, const mpath_links_unopened_t *unopened)
{
    mpath_team_t *team    = links->team;
    mpath_nic_set_t *nics = links->unopened;
    int first             = mpath_team_size(team), left_out;

    memset(nics, 0, (size_t)mpath_team_num_nodes(team) * sizeof(*nics));
    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        nics[mpath_team_node_of(team, rank)] |= unopened[rank].nics;
        first = (unopened[rank].nics != 0 && rank < first) ? rank : first;
    }
    if (first == mpath_team_size(team)) {
        return MPATH_OK;
    }
    left_out = mpath_team_lost_unopened(team, nics);
    if (!left_out) {
        tell_no_rail(team, first, unopened[first].why);
        return MPATH_DECLINED;
    }
    for (int rank = first; rank < mpath_team_size(team); rank++) {
        mpath_nic_set_t *untold = &nics[mpath_team_node_of(team, rank)], mine = unopened[rank].nics & *untold;

        *untold &= ~mine;
        for (mpath_nic_set_t left = mine; left != 0; left &= left - 1) {
            mpath_log(
                mpath_team_rank(team) != 0 ? MPATH_LOG_DEBUG
                : left_out == 2            ? MPATH_LOG_WARN
                                           : MPATH_LOG_INFO,
                "%s: NIC %s of %s cannot be opened by rank %d (%s); all ranks do without it, and ask for it again "
                "after %llu s",
                mpath_team_name(team),
                mpath_topo_machine(mpath_team_topo(team), mpath_team_node_of(team, rank))
                    ->nics[mpath_nic_first(left)]
                    .name,
                mpath_team_host(team, rank), rank, unopened[rank].why,
                (unsigned long long)(mpath_team_lost_probe_ns(team) / MPATH_NS_PER_S));
        }
    }
    mpath_links_change(links);
    return MPATH_OK;
}

/* Some rank cannot open a NIC: all hear which and why. */
static mpath_status_t exchange_unopened(mpath_links_t *links, const mpath_links_hello_t *mine)
{
    mpath_team_t *team          = links->team;
    mpath_links_unopened_t *all = calloc((size_t)mpath_team_size(team), sizeof(*all));
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("%s: no memory for what %d ranks say of their rails; the call fails", mpath_team_name(team),
                    mpath_team_size(team));
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_team_allgather(team, &mine->unopened, sizeof(mine->unopened), all);
    status = (status == MPATH_OK) ? leave_out_unopened(links, all) : status;
    free(all);
    return status;
}

/* The smallest of what is there, 0: nothing, as the most of something, and back. */
static uint64_t least_as_most(uint32_t least)
{
    return (least > 0) ? UINT32_MAX - (uint64_t)least + 1 : 0;
}

/* Bytes of what this rank says of its addresses. */
static size_t addresses_bytes(const mpath_links_hello_t *mine)
{
    size_t bytes = sizeof(mpath_nic_set_t);

    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        bytes += (mine->address_bytes[nic] > 0) ? sizeof(uint16_t) + mine->address_bytes[nic] : 0;
    }
    return bytes;
}

/* Limits of chunks: those of the smallest queues and rails of all ranks. */
static void set_limits(mpath_links_t *links)
{
    const mpath_links_hello_t *least = &links->least;
    const mpath_team_t *team         = links->team;
    uint32_t *last = links->slot_bytes, *relay = links->slot_bytes + mpath_team_num_nodes(team);

    links->rail_chunk_bytes = (least->rail_chunk_bytes > 0) ? least->rail_chunk_bytes : UINT64_MAX;
    for (int node = 0; node < mpath_team_num_nodes(team); node++) {
        last[node]  = (mpath_team_num_on(team, node) > 1) ? least->last_slot_bytes : 0;
        relay[node] = (mpath_team_num_on(team, node) > 1) ? least->relay_slot_bytes : 0;
    }
}

/* First exchange: what everybody has. MPATH_DECLINED, on all ranks, when one of them could not open what it needs. */
static mpath_status_t exchange_hellos(mpath_links_t *links, const mpath_links_hello_t *mine)
{
    mpath_team_t *team                = links->team;
    uint64_t most[MPATH_TEAM_NUMBERS] = {mpath_team_most_fails(team, mine->status),
                                         least_as_most(mine->rail_chunk_bytes), mine->unopened.nics != 0};
    mpath_status_t status             = mpath_team_most(team, most), failed;
    int rank;

    if (status != MPATH_OK) {
        return status;
    }
    links->hello = *mine;
    failed       = mpath_team_most_failed(most[0], &rank);
    if (failed != MPATH_OK) {
        tell_no_rail(team, rank, mpath_status_string(failed));
        return MPATH_DECLINED;
    }
    links->least = (mpath_links_hello_t){.rail_chunk_bytes = (uint32_t)least_as_most((uint32_t)most[1])};
    return (most[2] != 0) ? exchange_unopened(links, mine) : MPATH_OK;
}

/* The addresses of this rank's rails, in order of the NICs. */
static mpath_status_t put_addresses(const mpath_links_t *links, uint8_t *to)
{
    const mpath_links_hello_t *mine = &links->hello;
    mpath_nic_set_t nics            = 0;
    uint8_t *at                     = to + sizeof(nics);

    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        const void *address;
        size_t bytes;
        mpath_status_t status;

        if (mine->address_bytes[nic] == 0) {
            continue;
        }
        status = mpath_fabric_address(links->fabric, links->fabric_nic[nic], &address, &bytes);
        if (status != MPATH_OK) {
            return status;
        }
        nics |= mpath_nic_bit(nic);
        memcpy(at, &mine->address_bytes[nic], sizeof(uint16_t));
        memcpy(at + sizeof(uint16_t), address, mine->address_bytes[nic]);
        at += sizeof(uint16_t) + mine->address_bytes[nic];
    }
    memcpy(to, &nics, sizeof(nics));
    return MPATH_OK;
}

/* This rank's are in their place: it gets those of others, of ranks with places only those from `since` on. */
static mpath_status_t gather_addresses(mpath_links_t *links, int since)
{
    const uint8_t *mine = addresses_of(links, mpath_team_rank(links->team));

    return (links->reach == MPATH_LINKS_ALL)
               ? mpath_team_allgather(links->team, mine, links->address_stride, links->addresses)
               : mpath_team_gather_met(links->team, since, mine, links->address_stride, links->addresses);
}

static void forget_addresses(mpath_links_t *links)
{
    mpath_unreserve(links->addresses, links->address_stride * (size_t)mpath_team_size(links->team));
    links->addresses = NULL;
}

/*
 * Second exchange: whether all could attach to the shared memory and have their addresses, and how much their queues, and `bytes` of
 * addresses, take. A failure is a larger number than any size. MPATH_DECLINED, on all ranks, when one of them has failed.
 */
static mpath_status_t exchange_sizes(mpath_links_t *links, mpath_status_t mine, size_t bytes)
{
    const mpath_team_t *team           = links->team;
    const mpath_links_hello_t *hello   = &links->hello;
    uint64_t sizes[MPATH_TEAM_NUMBERS] = {least_as_most(hello->last_slot_bytes), least_as_most(hello->relay_slot_bytes),
                                          mine == MPATH_OK ? bytes : mpath_team_most_fails(team, mine)};
    mpath_status_t status              = mpath_team_most(links->team, sizes);
    int rank;

    if (status != MPATH_OK) {
        return status;
    }
    if (sizes[2] > UINT32_MAX) {
        status = mpath_team_most_failed(sizes[2], &rank);
        mpath_info_by(mpath_team_rank(team) == 0,
                      "%s: rank %d could not set up its lanes (%s); the previous functions run", mpath_team_name(team),
                      rank, mpath_status_string(status));
        return MPATH_DECLINED;
    }
    links->least.last_slot_bytes  = (uint32_t)least_as_most((uint32_t)sizes[0]);
    links->least.relay_slot_bytes = (uint32_t)least_as_most((uint32_t)sizes[1]);
    links->address_stride         = (size_t)sizes[2];
    return MPATH_OK;
}

/* And then the addresses. */
static mpath_status_t exchange_addresses(mpath_links_t *links, mpath_status_t mine)
{
    const mpath_team_t *team = links->team;
    size_t bytes             = addresses_bytes(&links->hello);
    uint8_t *own             = calloc(1, bytes);
    mpath_status_t status;

    if (mine == MPATH_OK) {
        mine = (own != NULL) ? put_addresses(links, own) : MPATH_ERR_NO_MEMORY;
    }
    status = exchange_sizes(links, mine, bytes);
    if (status == MPATH_OK) {
        links->addresses = mpath_reserve(links->address_stride * (size_t)mpath_team_size(team));
        if (links->addresses == NULL) {
            /* Without memory for the others' answers this rank cannot even say so. */
            mpath_error("no memory for the rail addresses of %d ranks", mpath_team_size(team));
            status = MPATH_ERR_NO_MEMORY;
        }
    }
    if (status == MPATH_OK) {
        memcpy(addresses_of(links, mpath_team_rank(team)), own, bytes);
        status = gather_addresses(links, 0);
    }
    free(own);
    return status;
}

/* What another leader says; also while nobody waits for it. */
static void links_word(void *argument, const mpath_chunk_t *chunk)
{
    mpath_links_t *links = argument;
    mpath_links_word_t *word;

    if ((links->words == NULL) || (chunk->flow >= (uint32_t)mpath_team_size(links->team))) {
        return;
    }
    word = &links->words[chunk->flow];
    atomic_store_explicit(&word->sent, chunk->call, memory_order_relaxed);
    atomic_store_explicit(&word->verdict, chunk->offset, memory_order_release);
}

/* Tables that fill up with what is used. */
#define PEERS_BYTES(links)                                                                                             \
    ((size_t)(links)->num_nics * (size_t)mpath_team_size((links)->team) * (size_t)(links)->num_nics_to *               \
     sizeof(*(links)->peers))
#define SETTLES_BYTES(links) ((size_t)mpath_team_size((links)->team) * sizeof(*(links)->settles))
#define WORDS_BYTES(links) ((size_t)mpath_team_size((links)->team) * sizeof(*(links)->words))

static void links_free(mpath_links_t *links)
{
    free(links->slot_bytes);
    free(links->unopened);
    mpath_unreserve(links->peers, PEERS_BYTES(links));
    mpath_unreserve(links->settles, SETTLES_BYTES(links));
    mpath_unreserve(links->words, WORDS_BYTES(links));
    forget_addresses(links);
    free(links);
}

static mpath_links_t *links_new(mpath_team_t *team)
{
    mpath_links_t *links = calloc(1, sizeof(*links));
    int leads            = (mpath_team_local_rank(team) == 0) && (mpath_team_num_nodes(team) > 1);

    if (links == NULL) {
        return NULL;
    }
    links->team        = team;
    links->fabric      = mpath_team_fabric(team);
    links->num_nics    = mpath_topo_machine(mpath_team_topo(team), mpath_team_node(team))->num_nics;
    links->num_nics_to = mpath_topo_most_nics(mpath_team_topo(team));
    links->slot_bytes  = calloc(2 * (size_t)mpath_team_num_nodes(team), sizeof(*links->slot_bytes));
    links->unopened    = calloc((size_t)mpath_team_num_nodes(team), sizeof(*links->unopened));
    links->peers       = mpath_reserve(PEERS_BYTES(links));
    links->settles     = mpath_reserve(SETTLES_BYTES(links));
    links->words       = leads ? mpath_reserve(WORDS_BYTES(links)) : NULL;
    if ((links->slot_bytes == NULL) || (links->unopened == NULL) || (links->peers == NULL) ||
        (links->settles == NULL) || (leads && (links->words == NULL)) ||
        (mpath_inbox_init(&links->inbox, links->fabric, links->fabric_nic, mpath_team_id(team)) != MPATH_OK)) {
        links_free(links);
        return NULL;
    }
    links->inbox.word          = links_word;
    links->inbox.word_argument = links;
    return links;
}

/* UCX has no setting against it, so whoever starts the job has to know; once in a job, by its first process. */
static void tell_who_can_write(const mpath_links_t *links)
{
    static atomic_int told;
    const mpath_team_t *team = links->team;

    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        if (((links->driven >> nic) & 1) && mpath_fabric_takes_writes(links->fabric, links->fabric_nic[nic]) &&
            (mpath_team_job_rank(team) == 0) && !atomic_exchange(&told, 1)) {
            mpath_warn(
                "rail %s is UCX's tcp: whoever reaches its port, from here or over its network, can write to the "
                "memory of this job's processes, as with UCX's tcp anywhere; doc/security.md says how to close it",
                mpath_fabric_rail_name(links->fabric, links->fabric_nic[nic]));
        }
    }
}

/* This rank's queues, and what may be open on the rails; other teams use both, too. */
static uint64_t links_memory_bytes(const mpath_links_t *links)
{
    const mpath_team_t *team = links->team;
    uint64_t bytes           = 0;

    for (int kind = 0; kind < MPATH_SHM_KINDS; kind++) {
        bytes += (links->ports[kind] != NULL) ? mpath_shm_port_bytes(links->ports[kind]) : 0;
    }
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        bytes += (links->hello.address_bytes[nic] > 0) ? mpath_fabric_open_limit_bytes(mpath_team_fabric(team)) : 0;
    }
    return bytes;
}

/* Gives back what this process has of shared memory for the team. */
static void close_lanes(mpath_links_t *links)
{
    for (int kind = 0; kind < MPATH_SHM_KINDS; kind++) {
        if (links->lanes[kind] != NULL) {
            links->lanes[kind]->ops->destroy(links->lanes[kind]);
            links->lanes[kind] = NULL;
        }
        if (links->ports[kind] != NULL) {
            mpath_shm_port_put(links->ports[kind]);
            links->ports[kind] = NULL;
        }
    }
}

static void links_destroy(mpath_links_t *links)
{
    if (links == NULL) {
        return;
    }
    mpath_links_forget_peers(links, MPATH_NIC_SET_ALL); /* before the rails, which may be closed then */
    mpath_inbox_cleanup(&links->inbox);
    close_lanes(links);
    links_free(links);
}

/* -- who uses them -- */

void mpath_links_attach(mpath_links_t *links, mpath_links_user_t *user, const mpath_links_user_ops_t *ops, void *self)
{
    *user        = (mpath_links_user_t){.next = links->users, .ops = ops, .self = self};
    links->users = user;
}

void mpath_links_change(mpath_links_t *links)
{
    for (const mpath_links_user_t *user = links->users; user != NULL; user = user->next) {
        if (user->ops->changed != NULL) {
            user->ops->changed(user->self);
        }
    }
}

int mpath_links_drive(mpath_links_t *links, mpath_nic_set_t nics)
{
    int events = 0;

    for (mpath_links_user_t *user = links->users; user != NULL; user = user->next) {
        user->has_entered = (user->ops->enter != NULL) && (user->ops->enter(user->self) == MPATH_OK);
    }
    for (; nics != 0; nics &= nics - 1) {
        int result = mpath_fabric_progress(links->fabric, links->fabric_nic[mpath_nic_first(nics)]);

        events += (result > 0) ? result : 0;
    }
    for (const mpath_links_user_t *user = links->users; user != NULL; user = user->next) {
        if (user->has_entered) {
            user->ops->leave(user->self);
        }
    }
    return events;
}

static void links_user_stop(void *self)
{
    mpath_links_t *links = self;

    mpath_inbox_close(&links->inbox);
    for (int kind = 0; kind < MPATH_SHM_KINDS; kind++) {
        if (links->lanes[kind] != NULL) {
            mpath_shm_drop_all(links->lanes[kind]);
        }
    }
}

#define WORD_SAID (UINT64_C(1) << 31) /* so that no word is 0 */

static uint64_t word_verdict(const mpath_team_word_t *word)
{
    return (uint64_t)(uint32_t)word->reason << 32 | WORD_SAID | (uint32_t)word->origin;
}

/* The rails between this rank and another one, of those that no rank has lost, as far as both drive them. */
static mpath_nic_set_t links_between(const mpath_links_t *links, int rank)
{
    const mpath_team_t *team = links->team;
    mpath_nic_set_t nics     = links->driven & ~(mpath_team_lost(team, mpath_team_node(team)) |
                                             mpath_team_lost(team, mpath_team_node_of(team, rank)));

    if (links->status != MPATH_OK || links->peers == NULL) {
        return 0;
    }
    for (mpath_nic_set_t left = nics; left != 0; left &= left - 1) {
        int nic = mpath_nic_first(left);

        uint16_t bytes;

        if ((links->hello.address_bytes[nic] == 0) || (address_of(links, rank, nic, &bytes) == NULL)) {
            nics &= ~mpath_nic_bit(nic);
        }
    }
    return nics;
}

static int links_user_is_cut_off(void *self, int rank, int anew, char *text, size_t size)
{
    mpath_links_t *links       = self;
    const mpath_team_t *team   = links->team;
    const mpath_machine_t *own = mpath_topo_machine(mpath_team_topo(team), mpath_team_node(team));
    size_t used                = 0;
    int cut_off                = 0;

    for (mpath_nic_set_t nics = links_between(links, rank); nics != 0; nics &= nics - 1) {
        int nic = mpath_nic_first(nics), rail = links->fabric_nic[nic], peer;

        peer = mpath_links_peer(links, nic, rank, nic);
        if (peer < 0) {
            return 0;
        }
        (void)mpath_fabric_progress(links->fabric, rail);
        /* Looks at every rail, so that all of them are tried. */
        if (mpath_fabric_probe(links->fabric, rail, peer, anew) == MPATH_OK) {
            cut_off = -1;
        } else if ((cut_off >= 0) && (used < size)) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", cut_off ? ", " : "", own->nics[nic].name);
            cut_off = 1;
        }
    }
    return cut_off > 0;
}

/* Over each of these rails: which of them carries it is not known. */
static void links_user_say(void *self, int rank, const mpath_team_word_t *word)
{
    mpath_links_t *links = self;
    mpath_chunk_t chunk  = {.team   = mpath_team_id(links->team),
                            .call   = word->sent,
                            .flow   = (uint32_t)mpath_team_rank(links->team),
                            .offset = word_verdict(word),
                            .hop    = MPATH_INBOX_WORD};

    for (mpath_nic_set_t nics = links_between(links, rank); nics != 0; nics &= nics - 1) {
        int nic = mpath_nic_first(nics), peer = mpath_links_peer(links, nic, rank, nic);

        if (peer >= 0) {
            (void)mpath_fabric_send(links->fabric, links->fabric_nic[nic], peer, &chunk, NULL, NULL);
        }
    }
}

static int links_user_heard(void *self, int rank, mpath_team_word_t *word)
{
    mpath_links_t *links = self;
    uint64_t verdict;

    for (mpath_nic_set_t nics = links_between(links, rank); nics != 0; nics &= nics - 1) {
        (void)mpath_fabric_progress(links->fabric, links->fabric_nic[mpath_nic_first(nics)]);
    }
    verdict = (links->words != NULL) ? atomic_load_explicit(&links->words[rank].verdict, memory_order_acquire) : 0;
    if (verdict == 0) {
        return 0;
    }
    word->sent   = atomic_load_explicit(&links->words[rank].sent, memory_order_relaxed);
    word->reason = (mpath_status_t)(int32_t)(uint32_t)(verdict >> 32);
    word->origin = (int)(verdict & (WORD_SAID - 1));
    return 1;
}

/*
 * This rank waits for the others at the end of a call: one that was late may still send what is given up here, and its
 * rails seem dead to it if nobody reads that.
 */
static void links_user_drain(void *self)
{
    mpath_links_t *links = self;

    if (links->drained != 0) {
        (void)mpath_links_drive(links, links->drained);
    }
}

static uint64_t links_user_memory_bytes(const void *self)
{
    return links_memory_bytes(self);
}

static void links_user_destroy(void *self)
{
    links_destroy(self);
}

static const mpath_team_user_ops_t links_user_ops = {.stop         = links_user_stop,
                                                     .drain        = links_user_drain,
                                                     .is_cut_off   = links_user_is_cut_off,
                                                     .say          = links_user_say,
                                                     .heard        = links_user_heard,
                                                     .memory_bytes = links_user_memory_bytes,
                                                     .destroy      = links_user_destroy};

/* All nodes are met; where that is so of all nodes from the start, links reach all of them. */
static void meet_all(mpath_links_t *links)
{
    for (int node = 0; node < mpath_team_num_nodes(links->team); node++) {
        mpath_team_meet(links->team, node);
    }
    links->reach = MPATH_LINKS_ALL;
}

/* All nodes are near each other. */
static int all_are_near(int num_nodes)
{
    int near = 1;

    for (int node = 1; node < num_nodes; node++) {
        near = near && mpath_team_is_near(num_nodes, 0, node);
    }
    return near;
}

static mpath_status_t links_create(mpath_team_t *team, mpath_links_reach_t reach, mpath_links_t **links_p)
{
    mpath_links_t *links    = links_new(team);
    uint64_t capacity_bytes = 0;
    mpath_links_hello_t mine;
    mpath_status_t status;

    if (links == NULL) {
        mpath_error("%s: no memory to set up the movement of data", mpath_team_name(team));
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_team_shared_capacity(team, 0, &capacity_bytes);
    if (status != MPATH_OK) {
        links_destroy(links);
        return status;
    }
    memset(&mine, 0, sizeof(mine));
    if (reach == MPATH_LINKS_ALL || all_are_near(mpath_team_num_nodes(team))) {
        meet_all(links);
    }
    expect_peers(links);
    status = open_rails(links, driven_nics(team), &mine);
    if (status == MPATH_OK) {
        status = take_ports(links, capacity_bytes, &mine);
    }
    mine.status = status;
    status      = exchange_hellos(links, &mine);
    if (status == MPATH_OK) {
        status = exchange_addresses(links, open_lanes(links));
    }
    if (mpath_status_is_error(status)) {
        links_destroy(links);
        return status;
    }
    if (status == MPATH_OK) {
        set_limits(links);
        tell_who_can_write(links);
    } else {
        close_lanes(links); /* nothing moves here */
    }
    links->status = status;
    mpath_team_attach(team, &links->user, &links_user_ops, links);
    *links_p = links;
    return MPATH_OK;
}

mpath_links_t *mpath_links_of(const mpath_team_t *team)
{
    return mpath_team_attached(team, &links_user_ops);
}

/* As far as `reach` at least; a new one of the team where *links_p is NULL. */
static mpath_status_t links_extend(mpath_team_t *team, mpath_links_reach_t reach, mpath_links_t **links_p)
{
    mpath_links_t *links = *links_p;
    const uint8_t *mine;

    if (links == NULL) {
        return links_create(team, reach, links_p);
    }
    mine = addresses_of(links, mpath_team_rank(team));
    meet_all(links);
    memmove(addresses_of(links, mpath_team_rank(team)), mine, links->address_stride);
    return gather_addresses(links, 0);
}

mpath_status_t mpath_links_get(mpath_team_t *team, mpath_links_reach_t reach, mpath_links_t **links_p)
{
    mpath_links_t *links  = mpath_links_of(team);
    mpath_status_t status = MPATH_OK;

    if ((links == NULL) || ((links->status == MPATH_OK) && (reach > links->reach))) {
        mpath_record_setup(mpath_team_record(team), mpath_time_ns());
        status = links_extend(team, reach, &links);
        mpath_record_phase(mpath_team_record(team), 0, MPATH_RECORD_MOVE, mpath_time_ns());
    }
    if (status != MPATH_OK) {
        return status;
    }
    *links_p = links;
    return links->status;
}

mpath_status_t mpath_links_meet(mpath_links_t *links, const mpath_agreed_t *agreed)
{
    mpath_team_t *team = links->team;
    int since          = mpath_team_num_met(team);
    size_t size        = (size_t)mpath_team_size(team);
    mpath_status_t status;

    mpath_record_setup(mpath_team_record(team), mpath_time_ns());
    for (size_t i = 0; i < (size_t)mpath_team_num_local(team) * size; i++) {
        if ((agreed->node_sends[i] | agreed->node_receives[i]) != 0) {
            mpath_team_meet(team, mpath_team_node_of(team, i % size));
        }
    }
    status = gather_addresses(links, since);
    mpath_record_phase(mpath_team_record(team), 0, MPATH_RECORD_MOVE, mpath_time_ns());
    return status;
}

mpath_status_t mpath_links_status(const mpath_links_t *links)
{
    return links->status;
}

int mpath_links_rail(const mpath_links_t *links, int nic)
{
    return links->fabric_nic[nic];
}

uint64_t mpath_links_rail_chunk(const mpath_links_t *links)
{
    return links->rail_chunk_bytes;
}

const uint32_t *mpath_links_slot_bytes(const mpath_links_t *links)
{
    return links->slot_bytes;
}

const uint32_t *mpath_links_relay_slot_bytes(const mpath_links_t *links)
{
    return links->slot_bytes + mpath_team_num_nodes(links->team);
}

mpath_lane_t *mpath_links_shm(const mpath_links_t *links)
{
    return links->lanes[MPATH_SHM_LAST];
}

mpath_lane_t *mpath_links_relay(const mpath_links_t *links)
{
    return links->lanes[MPATH_SHM_RELAY];
}

/* -- chunks with another id -- */

static mpath_status_t inbox_join_all(mpath_inbox_t *inbox, const mpath_links_t *links)
{
    mpath_status_t status = MPATH_OK;

    for (int nic = 0; (nic < MPATH_MAX_NICS) && (status == MPATH_OK); nic++) {
        if (links->hello.address_bytes[nic] > 0) {
            status = mpath_inbox_join_rail(inbox, links->fabric_nic[nic]);
        }
    }
    return status;
}

mpath_status_t mpath_links_join(mpath_links_t *links, mpath_inbox_t *inbox, uint64_t id)
{
    mpath_status_t status = mpath_inbox_init(inbox, links->fabric, links->fabric_nic, id);

    if (status != MPATH_OK) {
        return status;
    }
    status = inbox_join_all(inbox, links);
    if (status != MPATH_OK) {
        mpath_inbox_cleanup(inbox);
        return status;
    }
    inbox->next   = links->others;
    links->others = inbox;
    return MPATH_OK;
}

void mpath_links_leave(mpath_links_t *links, mpath_inbox_t *inbox)
{
    mpath_inbox_t **at = &links->others;

    while (*at != inbox) {
        at = &(*at)->next;
    }
    *at = inbox->next;
    mpath_inbox_cleanup(inbox);
}

mpath_status_t mpath_links_rejoin(mpath_links_t *links, mpath_inbox_t *inbox, uint64_t id)
{
    mpath_inbox_leave(inbox);
    inbox->id     = id;
    inbox->failed = inbox->status = MPATH_OK;
    mpath_inbox_open(inbox);
    return inbox_join_all(inbox, links);
}

/* Goes over to another rail on a NIC that has failed and is back, here or at the other end. */
static mpath_status_t renew_rail(mpath_links_t *links, int nic, mpath_links_hello_t *hello)
{
    mpath_team_t *team = links->team;
    const char *name   = mpath_topo_machine(mpath_team_topo(team), mpath_team_node(team))->nics[nic].name;
    int before         = links->fabric_nic[nic], number;
    const void *address;
    size_t bytes;
    mpath_status_t status = mpath_fabric_renew(links->fabric, before, &number);

    if (status != MPATH_OK) {
        note_unopened(links, nic, find_fabric_nic(team, name, nic), hello);
        return MPATH_OK;
    }
    status = mpath_inbox_join_rail(&links->inbox, number);
    if (status == MPATH_OK) {
        status = join_others(links, number);
    }
    if (status == MPATH_OK) {
        status = mpath_fabric_address(links->fabric, number, &address, &bytes);
    }
    if (status != MPATH_OK) {
        return status;
    }
    mpath_inbox_leave_rail(&links->inbox, before);
    for (mpath_inbox_t *inbox = links->others; inbox != NULL; inbox = inbox->next) {
        mpath_inbox_leave_rail(inbox, before);
    }
    links->fabric_nic[nic]    = (int16_t)number;
    hello->address_bytes[nic] = (uint16_t)bytes;
    return MPATH_OK;
}

mpath_status_t mpath_links_reopen(mpath_links_t *links, mpath_nic_set_t nics)
{
    mpath_links_hello_t mine = links->hello;
    mpath_status_t status;

    mine.unopened.nics = 0;
    for (; nics != 0; nics &= nics - 1) {
        int nic = mpath_nic_first(nics);

        if (is_left_out(links->team, nic)) {
            mine.address_bytes[nic] =
                0; /* it is back on other nodes only: nothing is sent to it, and it may not open */
        } else if (((links->driven >> nic) & 1) && (mine.status == MPATH_OK)) {
            mine.status = renew_rail(links, nic, &mine);
        }
    }
    forget_addresses(links);
    status = exchange_hellos(links, &mine);
    if (status == MPATH_OK) {
        status = exchange_addresses(links, MPATH_OK);
    }
    if (mpath_status_is_error(status)) {
        return status;
    }
    links->status = status;
    return MPATH_OK;
}

static int is_narrow(const mpath_links_t *links, const mpath_nic_set_t *nics)
{
    const mpath_team_t *team = links->team;
    int narrow               = 0;

    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        narrow = narrow ||
                 ((nics[rank] & known_nics(team, mpath_team_node_of(team, rank)) & ~reach_of(team, rank)) != 0);
    }
    return narrow;
}

mpath_status_t mpath_links_confirm(mpath_team_t *team, mpath_status_t mine)
{
    uint64_t most[MPATH_TEAM_NUMBERS] = {mpath_team_most_fails(team, mine)};
    mpath_status_t status             = mpath_team_most(team, most), failed;
    int rank;

    if (status != MPATH_OK) {
        return status;
    }
    failed = mpath_team_most_failed(most[0], &rank);
    if (failed != MPATH_OK) {
        mpath_info_by(mpath_team_rank(team) == 0,
                      "%s: rank %d could not set up its rails (%s); the previous functions run", mpath_team_name(team),
                      rank, mpath_status_string(failed));
        return MPATH_DECLINED;
    }
    return MPATH_OK;
}

/* All have opened their further rails: each tells the others. */
static mpath_status_t exchange_widened(mpath_links_t *links, const mpath_links_hello_t *hello)
{
    mpath_status_t status;

    forget_addresses(links);
    status = exchange_hellos(links, hello);
    if (status == MPATH_OK) {
        status = exchange_addresses(links, MPATH_OK);
    }
    if (mpath_status_is_error(status)) {
        return status;
    }
    links->status = status;
    set_limits(links);
    mpath_links_change(links); /* chunks had the limits of before */
    return status;
}

mpath_status_t mpath_links_widen(mpath_links_t *links, const mpath_nic_set_t *nics)
{
    const mpath_team_t *team  = links->team;
    mpath_links_hello_t hello = links->hello;
    mpath_status_t status;

    if (!is_narrow(links, nics)) {
        return MPATH_OK;
    }
    hello.unopened.nics = 0;
    status = open_rails(links, nics[mpath_team_rank(team)] & known_nics(team, mpath_team_node(team)), &hello);
    status = mpath_links_confirm(links->team, status);
    return (status == MPATH_OK) ? exchange_widened(links, &hello) : status;
}
