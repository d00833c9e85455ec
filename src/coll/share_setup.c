/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up of the share engine. Who is where and which rails there are follows from the topology; arena and rails are
 * made by the first call, in exchanges in which every rank takes part whatever has failed in it.
 */
#include "coll/share_gpu.h"

#include "adapt/rates.h"
#include "exec/node_key.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_MEMORY_SHARE 8 /* of memory_bytes */
#define ARENA_FREE_SHARE 4   /* of the free shared memory */
#define ARENA_PAGE 4096u

/* What the ranks tell each other. Plain data. */
typedef struct arena_hello {
    int32_t status;
    int32_t reserved;
    uint64_t free_bytes; /* shared memory; 0: unknown */
    char name[MPATH_SEGMENT_NAME_MAX];
} arena_hello_t;

/* -- from the topology -- */

/* Lists the ranks by node. */
static void index_ranks(mpath_share_t *share)
{
    int size = mpath_topo_num_ranks(share->topo), next = 0;

    for (int node = 0; node < share->num_nodes; node++) {
        share->first_on[node] = next;
        for (int rank = 0; rank < size; rank++) {
            if (mpath_topo_place(share->topo, rank)->node == node) {
                if (rank == share->me) {
                    share->local_rank = next - share->first_on[node];
                }
                share->by_node[next++] = rank;
            }
        }
        share->num_on[node] = next - share->first_on[node];
    }
    share->local     = share->by_node + share->first_on[share->node];
    share->num_local = share->num_on[share->node];
}

/* The NIC of a node on a rail; -1: none that is up. */
static int nic_on(const mpath_share_t *share, int node, int rail)
{
    const mpath_machine_t *machine = mpath_topo_machine(share->topo, node);
    uint32_t lost                  = share->whole ? mpath_team_lost(share->team, node) : 0;

    for (int nic = 0; nic < machine->num_nics; nic++) {
        if ((machine->nics[nic].rail == rail) && (machine->nics[nic].up || ((lost >> nic) & 1))) {
            return nic;
        }
    }
    return -1;
}

/* The rank that drives a NIC: one beside it, else, where ranks may drive all, one after the other. -1: none. */
static int driver_of(const mpath_share_t *share, int node, int nic)
{
    const int *ranks = share->by_node + share->first_on[node];

    for (int i = 0; i < share->num_on[node]; i++) {
        if (mpath_topo_place(share->topo, ranks[i])->nic == nic) {
            return ranks[i];
        }
    }
    return (mpath_topo_params(share->topo)->access == MPATH_REACH_ALL) ? ranks[nic % share->num_on[node]] : -1;
}

/* Fills in the rail; 0 when some node lacks it. */
static int rail_find(const mpath_share_t *share, int number, share_rail_t *rail)
{
    rail->number   = number;
    rail->rate_bps = UINT64_MAX;
    for (int node = 0; node < share->num_nodes; node++) {
        int nic = nic_on(share, node, number);
        uint64_t rate_bps;

        if (nic < 0) {
            return 0;
        }
        rail->nic[node]    = nic;
        rail->driver[node] = driver_of(share, node, nic);
        if (rail->driver[node] < 0) {
            return 0;
        }
        rate_bps       = mpath_topo_machine(share->topo, node)->nics[nic].rate_bps;
        rail->rate_bps = (rate_bps < rail->rate_bps) ? rate_bps : rail->rate_bps;
    }
    return rail->rate_bps > 0;
}

static void find_rails(mpath_share_t *share)
{
    for (int number = 0; (number < MPATH_MAX_RAILS) && (share->num_rails < MPATH_MAX_NICS); number++) {
        share_rail_t *rail = &share->rails[share->num_rails];

        rail->nic    = share->rail_memory + 2 * share->num_rails * share->num_nodes;
        rail->driver = rail->nic + share->num_nodes;
        if (rail_find(share, number, rail)) {
            share->num_rails++;
        }
    }
    if (share->num_rails == 0) {
        share->obstacle = "no rail is on every node with a rank that drives it";
    }
}

/* A rail of the mask gets a share however slow it is. */
void mpath_share_set_rates(mpath_share_t *share, const uint64_t *rates_bps, uint32_t lanes)
{
    uint64_t most = 1;

    for (int i = 0; i < share->num_rails; i++) {
        most = (((lanes >> i) & 1) && (rates_bps[i] > most)) ? rates_bps[i] : most;
    }
    share->cumulative[0] = 0;
    for (int i = 0; i < share->num_rails; i++) {
        share_rail_t *rail = &share->rails[i];

        /* Rates are below 2^44. */
        rail->weight             = ((lanes >> i) & 1) ? (uint32_t)((rates_bps[i] * SHARE_WEIGHT + most - 1) / most) : 0;
        share->cumulative[i + 1] = share->cumulative[i] + rail->weight;
    }
}

static void set_nominal_rates(mpath_share_t *share)
{
    uint64_t rates_bps[MPATH_MAX_NICS];

    for (int i = 0; i < share->num_rails; i++) {
        rates_bps[i] = share->rails[i].rate_bps;
    }
    share->lanes = mpath_rates_worth(share->num_rails, rates_bps);
    mpath_share_set_rates(share, rates_bps, share->lanes);
}

static mpath_status_t create(mpath_team_t *team, int whole, mpath_share_t **share_p)
{
    mpath_share_t *share = calloc(1, sizeof(*share));
    size_t size          = (size_t)mpath_team_size(team), nodes;

    if (share == NULL) {
        goto err_no_memory;
    }
    share->team      = team;
    share->whole     = whole;
    share->topo      = mpath_team_topo(team);
    share->settings  = mpath_team_settings(team);
    share->me        = mpath_team_rank(team);
    share->num_nodes = mpath_topo_num_nodes(share->topo);
    share->node      = mpath_topo_place(share->topo, share->me)->node;
    nodes            = (size_t)share->num_nodes;

    share->by_node       = calloc(size + 2 * nodes, sizeof(int));
    share->rails         = calloc(MPATH_MAX_NICS + 1, sizeof(*share->rails));
    share->rail_memory   = calloc(2 * (MPATH_MAX_NICS + 1) * nodes, sizeof(int));
    share->part_elements = calloc(nodes, sizeof(uint64_t));
    share->gpu           = share->settings->gpu ? calloc(1, sizeof(*share->gpu)) : NULL;
    if ((share->by_node == NULL) || (share->rails == NULL) || (share->rail_memory == NULL) ||
        (share->part_elements == NULL) || (share->settings->gpu && (share->gpu == NULL))) {
        goto err_destroy;
    }
    share->first_on = share->by_node + size;
    share->num_on   = share->first_on + nodes;
    index_ranks(share);
    for (int node = 0; node < share->num_nodes; node++) {
        if (share->num_on[node] == 0) {
            share->obstacle = "a node of the topology has no rank";
        }
    }
    if ((share->num_nodes > 1) && (share->obstacle == NULL)) {
        find_rails(share);
        set_nominal_rates(share);
    }
    *share_p = share;
    return MPATH_OK;

err_destroy:
    mpath_share_destroy(share);
err_no_memory:
    mpath_error("no memory for the collectives of a communicator of %zu ranks", size);
    return MPATH_ERR_NO_MEMORY;
}

mpath_status_t mpath_share_create(mpath_team_t *team, mpath_share_t **share_p)
{
    return create(team, 0, share_p);
}

mpath_status_t mpath_share_create_whole(mpath_team_t *team, mpath_share_t **share_p)
{
    return create(team, 1, share_p);
}

void mpath_share_destroy(mpath_share_t *share)
{
    if (share == NULL) {
        return;
    }
    mpath_share_gpu_destroy(share);
    if (share->num_local == 1) {
        free(share->segment.base);
    } else if (share->segment.base != NULL) {
        mpath_segment_detach(&share->segment);
    }
    free(share->cut_memory);
    free(share->link_memory);
    free(share->links);
    free(share->part_elements);
    free(share->rail_memory);
    free(share->rails);
    free(share->by_node);
    free(share);
}

/* -- by the first call -- */

/* Arrays of the rails that this rank drives, and of the cuts. */
static mpath_status_t make_links(mpath_share_t *share)
{
    size_t nodes = (size_t)share->num_nodes, per_link = SHARE_PHASES * nodes * (3 + SHARE_SLOTS), next = 0;

    share->links       = calloc((size_t)share->num_rails + 1, sizeof(*share->links));
    share->link_memory = calloc((size_t)(share->num_rails + 1) * per_link, sizeof(uint64_t));
    share->cut_memory  = calloc(SHARE_SLOTS * (2 * nodes + 1), sizeof(uint64_t));
    if ((share->links == NULL) || (share->link_memory == NULL) || (share->cut_memory == NULL)) {
        mpath_error("no memory for the collectives of a communicator");
        return MPATH_ERR_NO_MEMORY;
    }
    for (int rail = 0; rail < share->num_rails; rail++) {
        share_link_t *link = &share->links[share->num_links];

        if (share->rails[rail].driver[share->node] != share->me) {
            continue;
        }
        link->rail = rail;
        for (int phase = 0; phase < SHARE_PHASES; phase++) {
            link->next_send[phase]  = share->link_memory + next;
            link->sent_bytes[phase] = link->next_send[phase] + nodes;
            link->arrived[phase]    = link->sent_bytes[phase] + nodes;
            link->got[phase]        = link->arrived[phase] + nodes;
            next += (3 + SHARE_SLOTS) * nodes;
        }
        share->nics |= 1u << share->rails[rail].nic[share->node];
        share->num_links++;
    }
    for (int slot = 0; slot < SHARE_SLOTS; slot++) {
        share->cuts[slot].first = share->cut_memory + (size_t)slot * (2 * nodes + 1);
        share->cuts[slot].at    = share->cuts[slot].first + nodes;
    }
    return MPATH_OK;
}

/* One round: everybody's hello; MPATH_DECLINED, on all ranks, when one of them failed. */
static mpath_status_t exchange(mpath_share_t *share, const arena_hello_t *mine, arena_hello_t *all)
{
    mpath_status_t status = mpath_team_allgather(share->team, mine, sizeof(*mine), all);

    for (int rank = 0; (status == MPATH_OK) && (rank < mpath_team_size(share->team)); rank++) {
        if (all[rank].status != MPATH_OK) {
            mpath_info("rank %d could not set up the memory that its node shares (%s); the previous functions run",
                       rank, mpath_status_string((mpath_status_t)all[rank].status));
            status = MPATH_DECLINED;
        }
    }
    return status;
}

static size_t lines_bytes(const mpath_share_t *share)
{
    return (size_t)(4 * share->num_local + share->num_rails) * SHARE_LINE;
}

/* Sizes that follow from what all ranks have said. */
static void size_arena(mpath_share_t *share, const arena_hello_t *all)
{
    uint64_t bytes = share->settings->memory_bytes / ARENA_MEMORY_SHARE, largest = 1;

    for (int node = 0; node < share->num_nodes; node++) {
        largest = ((uint64_t)share->num_on[node] > largest) ? (uint64_t)share->num_on[node] : largest;
    }
    for (int rank = 0; rank < mpath_team_size(share->team); rank++) {
        uint64_t room = all[rank].free_bytes / ARENA_FREE_SHARE / largest;

        bytes = ((room > 0) && (room < bytes)) ? room : bytes;
    }
    share->rank_bytes = bytes;
    share->slot_bytes = bytes * (uint64_t)share->num_local / SHARE_SLOTS / SHARE_LINE * SHARE_LINE;
}

size_t mpath_share_arena_bytes(const mpath_share_t *share)
{
    size_t bytes = lines_bytes(share) + mpath_share_gpu_cells_bytes(share) + (size_t)(SHARE_SLOTS * share->slot_bytes);

    return (bytes + ARENA_PAGE - 1) / ARENA_PAGE * ARENA_PAGE;
}

static mpath_status_t arena_create(mpath_share_t *share)
{
    size_t bytes = mpath_share_arena_bytes(share);

    if (share->num_local > 1) {
        return (share->local_rank == 0) ? mpath_segment_create(bytes, &share->segment) : MPATH_OK;
    }
    share->segment.base = aligned_alloc(ARENA_PAGE, bytes);
    if (share->segment.base == NULL) {
        mpath_error("no memory for %zu bytes to exchange data in", bytes);
        return MPATH_ERR_NO_MEMORY;
    }
    memset(share->segment.base, 0, bytes - (size_t)(SHARE_SLOTS * share->slot_bytes));
    return MPATH_OK;
}

static mpath_status_t arena_attach(mpath_share_t *share, const arena_hello_t *all)
{
    char name[MPATH_SEGMENT_NAME_MAX];

    if ((share->num_local == 1) || (share->local_rank == 0)) {
        return MPATH_OK;
    }
    memcpy(name, all[share->local[0]].name, sizeof(name));
    name[sizeof(name) - 1] = 0;
    return mpath_segment_attach(name, mpath_share_arena_bytes(share), &share->segment);
}

static void arena_lay_out(mpath_share_t *share)
{
    share->published = share->segment.base;
    share->reduced   = share->published + share->num_local;
    share->consumed  = share->reduced + share->num_local;
    share->delivered = share->consumed + share->num_local;
    share->left      = share->delivered + share->num_rails;
    share->cells     = (char *)share->segment.base + lines_bytes(share);
    share->slots     = share->cells + mpath_share_gpu_cells_bytes(share);
}

static mpath_status_t make_arena(mpath_share_t *share, arena_hello_t *all)
{
    arena_hello_t mine;
    mpath_status_t status;

    memset(&mine, 0, sizeof(mine));
    mine.status     = make_links(share);
    mine.free_bytes = mpath_shared_memory_free();
    status          = exchange(share, &mine, all);
    if (status != MPATH_OK) {
        return status;
    }
    size_arena(share, all);
    mine.status = arena_create(share);
    if ((share->num_local > 1) && (share->local_rank == 0)) {
        memcpy(mine.name, share->segment.name, sizeof(mine.name));
    }
    status = exchange(share, &mine, all);
    if (status == MPATH_OK) {
        mine.status = arena_attach(share, all);
        status      = exchange(share, &mine, all);
    }
    if ((share->num_local > 1) && (share->local_rank == 0) && (share->segment.base != NULL)) {
        mpath_segment_unlink(&share->segment);
    }
    return status;
}

mpath_status_t mpath_share_prepare(mpath_share_t *share)
{
    arena_hello_t *all;
    mpath_status_t status = MPATH_OK;

    if (share->tried) {
        return share->ready;
    }
    if (share->num_nodes > 1) {
        status = mpath_wire_get(share->team, &share->wire);
    }
    if (status == MPATH_OK) {
        all = calloc((size_t)mpath_team_size(share->team), sizeof(*all));
        if (all == NULL) {
            /* Without room for the others' answers this rank cannot even say so. */
            mpath_error("no memory to set up the collectives of a communicator; the call fails");
            return MPATH_ERR_NO_MEMORY;
        }
        status = make_arena(share, all);
        free(all);
    }
    if (mpath_status_is_error(status)) {
        return status;
    }
    if (status == MPATH_OK) {
        arena_lay_out(share);
    }
    share->tried = 1;
    share->ready = status;
    return status;
}
