/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up of the pipeline. Who is where and which rails there are follows from the topology; arena and rails are
 * made by the first call, in exchanges in which every rank takes part whatever has failed in it.
 */
#include "pipeline/gpu.h"

#include "team/agree.h"
#include "tune/nic_rates.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_MEMORY_SHARE 8         /* of memory_bytes */
#define ARENA_NODE_BYTES (32u << 20) /* of a node; */
#define ARENA_MANY_BYTES (16u << 20) /* of one with more ranks than */
#define ARENA_MANY 32
#define ARENA_LEAST_BYTES 16384u /* of a rank: less is none */
#define ARENA_PAGE 4096u

/* What the ranks of a node tell each other. Plain data. */
typedef struct arena_hello {
    uint64_t arena_bytes;
    char arena[MPATH_SEGMENT_NAME_MAX]; /* "": none; the first rank of a node says which it is to be */
    char lines[MPATH_SEGMENT_NAME_MAX];
} arena_hello_t;

_Static_assert(sizeof(arena_hello_t) <= MPATH_TEAM_MATE_BYTES, "what mates can tell each other");

/* A round of the set-up. */
typedef struct arena_round {
    mpath_status_t status; /* of this rank */
    uint64_t most;         /* in: of this rank; out: of all */
    arena_hello_t hello;   /* of this rank */
    arena_hello_t *mates;  /* out, by local rank */
} arena_round_t;

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

/* The NIC of a node on a rail; -1: none that is up, or, with `whole`, has been since the job began. */
static int nic_on(const mpath_share_t *share, int node, int rail, int whole)
{
    const mpath_machine_t *machine = mpath_topo_machine(share->topo, node);
    mpath_nic_set_t lost           = whole && (share->team != NULL) ? mpath_team_lost(share->team, node) : 0;

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
        int nic = nic_on(share, node, number, share->whole);
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

/* Of the rail of a number: its rate, whether or not it has been lost since; 0: some node has not had it. */
static uint64_t declared_rate(const mpath_share_t *share, int number)
{
    uint64_t least_bps = UINT64_MAX;

    for (int node = 0; node < share->num_nodes; node++) {
        int nic = nic_on(share, node, number, 1);
        uint64_t rate_bps;

        if (nic < 0) {
            return 0;
        }
        rate_bps  = mpath_topo_machine(share->topo, node)->nics[nic].rate_bps;
        least_bps = (rate_bps < least_bps) ? rate_bps : least_bps;
    }
    return least_bps;
}

static void find_declared(mpath_share_t *share)
{
    for (int number = 0; number < MPATH_MAX_RAILS; number++) {
        uint64_t rate_bps = declared_rate(share, number);

        share->num_declared += rate_bps > 0;
        share->declared_bps += rate_bps;
    }
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
        share->obstacle = MPATH_WHY_NO_RAIL;
    }
}

/* A rail of the mask gets a share however slow it is. */
void mpath_share_set_rates(mpath_share_t *share, const uint64_t *rates_bps, mpath_nic_set_t lanes)
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

/* `team` NULL: there is none. */
static mpath_status_t create(mpath_team_t *team, const mpath_topo_t *topo, const mpath_settings_t *settings, int whole,
                             mpath_share_t **share_p)
{
    mpath_share_t *share = calloc(1, sizeof(*share));
    size_t size          = (size_t)mpath_topo_num_ranks(topo), nodes;

    if (share == NULL) {
        goto err_no_memory;
    }
    share->team      = team;
    share->whole     = whole;
    share->topo      = topo;
    share->settings  = settings;
    share->me        = team != NULL ? mpath_team_rank(team) : 0;
    share->num_nodes = mpath_topo_num_nodes(share->topo);
    share->node      = mpath_topo_place(share->topo, share->me)->node;
    nodes            = (size_t)share->num_nodes;

    share->by_node       = calloc(size + 2 * nodes, sizeof(int));
    share->rails         = calloc(MPATH_MAX_NICS + 1, sizeof(*share->rails));
    share->rail_memory   = calloc(2 * (MPATH_MAX_NICS + 1) * nodes, sizeof(int));
    share->part_elements = calloc(nodes, sizeof(uint64_t));
    share->gpu           = team != NULL && share->settings->gpu ? calloc(1, sizeof(*share->gpu)) : NULL;
    if ((share->by_node == NULL) || (share->rails == NULL) || (share->rail_memory == NULL) ||
        (share->part_elements == NULL) || (team != NULL && share->settings->gpu && (share->gpu == NULL))) {
        goto err_destroy;
    }
    share->first_on = share->by_node + size;
    share->num_on   = share->first_on + nodes;
    index_ranks(share);
    for (int node = 0; node < share->num_nodes; node++) {
        if (share->num_on[node] == 0) {
            share->obstacle = MPATH_WHY_EMPTY_NODE;
        }
    }
    if ((share->num_nodes > 1) && (share->obstacle == NULL)) {
        find_rails(share);
        find_declared(share);
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
    return create(team, mpath_team_topo(team), mpath_team_settings(team), 0, share_p);
}

mpath_status_t mpath_share_create_whole(mpath_team_t *team, mpath_share_t **share_p)
{
    return create(team, mpath_team_topo(team), mpath_team_settings(team), 1, share_p);
}

mpath_status_t mpath_share_create_for(const mpath_topo_t *topo, const mpath_settings_t *settings,
                                      mpath_share_t **share_p)
{
    return create(NULL, topo, settings, 0, share_p);
}

void mpath_share_destroy(mpath_share_t *share)
{
    if (share == NULL) {
        return;
    }
    mpath_share_gpu_destroy(share);
    mpath_share_leave(share, MPATH_OK);
    if (share->arena != NULL) {
        mpath_arena_put(share->arena);
    }
    if (share->num_local == 1) {
        free(share->segment.base);
    } else if (share->segment.base != NULL) {
        mpath_segment_detach(&share->segment);
    }
    free(share->fragment_memory);
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
    size_t nodes = (size_t)share->num_nodes, per_link = nodes * (1 + SHARE_PHASES * (3 + SHARE_SLOTS)), next = 0;

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
        link->rail  = rail;
        link->added = share->link_memory + next;
        next += nodes;
        for (int phase = 0; phase < SHARE_PHASES; phase++) {
            link->next_send[phase]  = share->link_memory + next;
            link->sent_bytes[phase] = link->next_send[phase] + nodes;
            link->arrived[phase]    = link->sent_bytes[phase] + nodes;
            link->got[phase]        = link->arrived[phase] + nodes;
            next += (3 + SHARE_SLOTS) * nodes;
        }
        share->nics |= mpath_nic_bit(share->rails[rail].nic[share->node]);
        share->num_links++;
    }
    for (int slot = 0; slot < SHARE_SLOTS; slot++) {
        share->cuts[slot].first = share->cut_memory + (size_t)slot * (2 * nodes + 1);
        share->cuts[slot].at    = share->cuts[slot].first + nodes;
    }
    return MPATH_OK;
}

/* One round: the hellos of the node; MPATH_DECLINED, on all ranks, when one of them failed. */
static mpath_status_t exchange(mpath_share_t *share, arena_round_t *round)
{
    uint64_t most[MPATH_TEAM_NUMBERS] = {mpath_team_most_fails(share->team, round->status), round->most};
    mpath_status_t failed,
        status = mpath_team_most_and_mates(share->team, most, &round->hello, sizeof(round->hello), round->mates);
    int rank;

    if (status != MPATH_OK) {
        return status;
    }
    round->most = most[1];
    failed      = mpath_team_most_failed(most[0], &rank);
    if (failed != MPATH_OK) {
        mpath_info_by(mpath_team_rank(share->team) == 0,
                      "rank %d could not set up the memory that its node shares (%s); the previous functions run", rank,
                      mpath_status_string(failed));
        return MPATH_DECLINED;
    }
    return MPATH_OK;
}

/* Lines and cells of a node with so many of the ranks, in whole pages. */
static size_t lines_bytes(const mpath_share_t *share, int num_local)
{
    size_t bytes = (size_t)(4 * num_local + share->num_rails) * SHARE_LINE +
                   mpath_share_gpu_cells_bytes(share, num_local);

    return (bytes + ARENA_PAGE - 1) / ARENA_PAGE * ARENA_PAGE;
}

static int most_on_node(const mpath_share_t *share)
{
    int most = 1;

    for (int node = 0; node < share->num_nodes; node++) {
        most = share->num_on[node] > most ? share->num_on[node] : most;
    }
    return most;
}

/* Of shared memory, of each rank at most, for lines and cells. */
static uint64_t lines_part(const mpath_share_t *share)
{
    uint64_t most = 0;

    for (int node = 0; node < share->num_nodes; node++) {
        uint64_t ranks = (uint64_t)share->num_on[node], part = lines_bytes(share, share->num_on[node]) / ranks;

        most = ranks > 1 && part > most ? part : most;
    }
    return most;
}

static mpath_status_t too_little(const mpath_share_t *share, uint64_t capacity_bytes)
{
    mpath_info_by(
        mpath_team_rank(share->team) == 0,
        "%llu bytes of shared memory are left for each rank of a communicator, too little for its collectives; "
        "the previous functions run",
        (unsigned long long)capacity_bytes);
    return MPATH_DECLINED;
}

/* What a new arena has for each rank, by `capacity_bytes` of shared memory, which all ranks have. */
static mpath_status_t choose_rank_bytes(const mpath_share_t *share, uint64_t capacity_bytes, uint64_t *bytes_p)
{
    uint64_t bytes = share->settings->memory_bytes / ARENA_MEMORY_SHARE, most = (uint64_t)most_on_node(share);
    uint64_t node_bytes = most > ARENA_MANY ? ARENA_MANY_BYTES : ARENA_NODE_BYTES;

    bytes = node_bytes / most < bytes ? node_bytes / most : bytes;
    bytes = most > 1 && capacity_bytes / 2 < bytes ? capacity_bytes / 2 : bytes;
    if (bytes < ARENA_LEAST_BYTES) {
        return too_little(share, capacity_bytes);
    }
    *bytes_p = bytes;
    return MPATH_OK;
}

/* Slots of equal size, in what the ranks of a node have. */
static uint64_t slot_bytes_of(const mpath_share_t *share, uint64_t rank_bytes, int node)
{
    return rank_bytes * (uint64_t)share->num_on[node] / SHARE_SLOTS / SHARE_LINE * SHARE_LINE;
}

static mpath_status_t lines_create(mpath_share_t *share)
{
    size_t bytes = lines_bytes(share, share->num_local);

    if (share->num_local > 1) {
        return share->local_rank == 0 ? mpath_segment_create(bytes, &share->segment) : MPATH_OK;
    }
    share->segment.base = calloc(1, bytes);
    if (share->segment.base == NULL) {
        mpath_error("no memory for %zu bytes of counters", bytes);
        return MPATH_ERR_NO_MEMORY;
    }
    return MPATH_OK;
}

static mpath_status_t lines_attach(mpath_share_t *share, const arena_hello_t *mates)
{
    char name[MPATH_SEGMENT_NAME_MAX];
    mpath_status_t status = MPATH_OK;

    if (share->num_local > 1 && share->local_rank > 0) {
        memcpy(name, mates[0].lines, sizeof(name));
        name[sizeof(name) - 1] = 0;
        status                 = mpath_segment_attach(name, lines_bytes(share, share->num_local), &share->segment);
    }
    if (share->num_local > 1 && status == MPATH_OK) {
        mpath_segment_note(&share->segment, share->num_local);
    }
    return status;
}

/* The arena that this rank would share, if the first one of its node could take it. */
static mpath_arena_t *arena_offer(mpath_share_t *share, arena_hello_t *mine)
{
    mpath_arena_t *arena = mpath_arena_find(share->team);

    if (arena != NULL && share->local_rank == 0) {
        share->arena_number = mpath_arena_number(arena);
        if (!mpath_arena_take(arena, share->arena_number)) {
            mpath_arena_put(arena);
            arena = NULL;
        }
    }
    if (arena != NULL) {
        strcpy(mine->arena, mpath_arena_name(arena));
        mine->arena_bytes = mpath_arena_bytes(arena);
    }
    return arena;
}

/* All ranks of this node offer the same one. */
static int arena_is_shared(const mpath_share_t *share, const arena_hello_t *mates)
{
    int same = mates[0].arena[0] != '\0';

    for (int i = 1; i < share->num_local; i++) {
        same = same && memcmp(mates[i].arena, mates[0].arena, sizeof(mates[0].arena)) == 0;
    }
    return same;
}

/* Makes a new one, as the first rank of a node; it is this communicator's at once. */
static mpath_status_t arena_create(mpath_share_t *share, uint64_t rank_bytes, arena_hello_t *mine)
{
    size_t bytes = (size_t)(SHARE_SLOTS * slot_bytes_of(share, rank_bytes, share->node));
    mpath_arena_t *arena;
    mpath_status_t status;

    bytes  = (bytes + ARENA_PAGE - 1) / ARENA_PAGE * ARENA_PAGE;
    status = mpath_arena_create(share->team, bytes, &arena);
    if (status == MPATH_OK) {
        share->arena        = arena;
        share->arena_number = mpath_arena_number(arena);
        (void)mpath_arena_take(arena, share->arena_number);
        strcpy(mine->arena, mpath_arena_name(arena));
        mine->arena_bytes = mpath_arena_bytes(arena);
    }
    return status;
}

static mpath_status_t arena_attach(mpath_share_t *share, const arena_hello_t *first)
{
    char name[MPATH_SEGMENT_NAME_MAX];

    memcpy(name, first->arena, sizeof(name));
    name[sizeof(name) - 1] = 0;
    return mpath_arena_attach(share->team, name, (size_t)first->arena_bytes, &share->arena);
}

/* No arena after all, alike on all ranks, or after an error. */
static void arena_drop(mpath_share_t *share, mpath_status_t status)
{
    if (share->arena != NULL) {
        if (share->local_rank == 0 && !mpath_status_is_error(status)) {
            mpath_arena_return(share->arena);
        }
        mpath_arena_put(share->arena);
        share->arena = NULL;
    }
}

/* First round: everybody has its links, each node its lines; and whether the node has an arena that it can share. */
static mpath_status_t offer_round(mpath_share_t *share, int anew, arena_round_t *round)
{
    int is_first         = share->links == NULL;
    mpath_arena_t *offer = anew ? NULL : arena_offer(share, &round->hello);
    mpath_status_t status;

    if (is_first) {
        round->status = make_links(share);
        round->status = round->status == MPATH_OK ? lines_create(share) : round->status;
        memcpy(round->hello.lines, share->segment.name, sizeof(round->hello.lines));
    }
    share->arena = offer;
    status       = exchange(share, round);
    if (status != MPATH_OK || !arena_is_shared(share, round->mates)) {
        arena_drop(share, status);
    }
    return status;
}

/* Second round: whether some node has none. */
static mpath_status_t lack_round(mpath_share_t *share, int *some_lack_p)
{
    uint64_t most[MPATH_TEAM_NUMBERS] = {share->arena == NULL};
    mpath_status_t status             = mpath_team_most(share->team, most);

    *some_lack_p = most[0] != 0;
    return status;
}

/* Third round, in that case: a new one of `rank_bytes` for each of its ranks. */
static mpath_status_t create_round(mpath_share_t *share, uint64_t rank_bytes, arena_round_t *round)
{
    if (share->arena == NULL) {
        memset(round->hello.arena, 0, sizeof(round->hello.arena));
        round->status = share->local_rank == 0 ? arena_create(share, rank_bytes, &round->hello) : MPATH_OK;
    }
    return exchange(share, round);
}

/* Last round: everybody has attached. Where an arena is smaller than the others, all nodes use as much of theirs. */
static mpath_status_t attach_round(mpath_share_t *share, int is_new, arena_round_t *round)
{
    uint64_t rank_bytes = round->mates[0].arena_bytes / (uint64_t)share->num_local;
    mpath_status_t status;

    if (share->lines_attached == 0) {
        round->status         = lines_attach(share, round->mates);
        share->lines_attached = round->status == MPATH_OK;
    }
    if (round->status == MPATH_OK && share->arena == NULL) {
        round->status = arena_attach(share, &round->mates[0]);
    }
    round->most = UINT64_MAX - rank_bytes;
    status      = exchange(share, round);
    if (share->arena != NULL && is_new) {
        mpath_arena_attached(share->arena);
    }
    if (status == MPATH_OK) {
        share->rank_bytes = UINT64_MAX - round->most;
        share->slot_bytes = slot_bytes_of(share, share->rank_bytes, share->node);
    }
    return status;
}

/*
 * Lines of the communicator, where it has none yet, and an arena: one that its ranks have, or, with `anew`, another one.
 * Counts as taken.
 */
static mpath_status_t make_arena(mpath_share_t *share, int anew, arena_hello_t *mates)
{
    uint64_t capacity_bytes = 0, rank_bytes = 0, lines = share->links == NULL ? lines_part(share) : 0;
    mpath_status_t status = mpath_team_shared_capacity(share->team, 1, &capacity_bytes);
    arena_round_t round   = {.status = MPATH_OK, .mates = mates};
    int some_lack         = 0, is_new;

    if (status == MPATH_OK && capacity_bytes < lines) {
        status = too_little(share, capacity_bytes);
    }
    if (status == MPATH_OK) {
        status = offer_round(share, anew, &round);
    }
    is_new = share->arena == NULL;
    if (status == MPATH_OK) {
        status = lack_round(share, &some_lack);
    }
    if (status == MPATH_OK && some_lack) {
        status = choose_rank_bytes(share, capacity_bytes - lines, &rank_bytes);
        if (status == MPATH_OK) {
            status = create_round(share, rank_bytes, &round);
        }
    }
    if (status == MPATH_OK) {
        status = attach_round(share, is_new, &round);
    }
    if (share->num_local > 1 && share->local_rank == 0 && share->segment.base != NULL) {
        mpath_segment_unlink(&share->segment);
    }
    if (status != MPATH_OK) {
        arena_drop(share, status);
        if (!anew && share->num_local > 1) {
            mpath_segment_detach(&share->segment);
        }
        return status;
    }
    share->slots     = mpath_arena_base(share->arena);
    share->is_inside = 1;
    return MPATH_OK;
}

static void lines_lay_out(mpath_share_t *share)
{
    share->published = share->segment.base;
    share->reduced   = share->published + share->num_local;
    share->consumed  = share->reduced + share->num_local;
    share->delivered = share->consumed + share->num_local;
    share->left      = share->delivered + share->num_rails;
    share->cells     = (char *)(share->left + share->num_local);
}

static mpath_status_t arena_get(mpath_share_t *share, int anew)
{
    arena_hello_t *mates = calloc((size_t)share->num_local, sizeof(*mates));
    mpath_status_t status;

    if (mates == NULL) {
        /* Without memory for the others' answers this rank cannot even say so. */
        mpath_error("no memory to set up the collectives of a communicator; the call fails");
        return MPATH_ERR_NO_MEMORY;
    }
    status = make_arena(share, anew, mates);
    free(mates);
    return status;
}

mpath_status_t mpath_share_prepare(mpath_share_t *share, const mpath_share_job_t *job)
{
    mpath_links_reach_t reach = job->in_steps ? MPATH_LINKS_MET : MPATH_LINKS_ALL;
    mpath_status_t status     = share->tried ? share->ready : MPATH_OK;

    if (status == MPATH_OK && share->num_nodes > 1) {
        status = mpath_wire_get(share->team, reach, &share->wire);
    }
    if (share->tried) {
        share->is_inside = status == MPATH_OK;
        return status;
    }
    if (status == MPATH_OK) {
        status = arena_get(share, 0);
    }
    if (mpath_status_is_error(status)) {
        return status;
    }
    if (status == MPATH_OK) {
        lines_lay_out(share);
    }
    share->tried = 1;
    share->ready = status;
    return status;
}

uint32_t mpath_share_call_flags(mpath_share_t *share)
{
    if (share->arena == NULL || share->local_rank > 0) {
        return 0;
    }
    share->is_taken = share->is_taken || mpath_arena_take(share->arena, share->arena_number);
    return share->is_taken ? 0 : MPATH_CALL_BUSY;
}

mpath_status_t mpath_share_arena_add(mpath_share_t *share)
{
    mpath_arena_t *old  = share->arena;
    uint32_t old_number = share->arena_number;
    mpath_status_t status;

    if (old == NULL) {
        return MPATH_OK; /* the call makes one anyway */
    }
    if (share->is_alone) {
        return MPATH_DECLINED;
    }
    if (share->is_taken) {
        mpath_arena_return(old);
        share->is_taken = 0;
    }
    share->arena = NULL;
    status       = arena_get(share, 1);
    if (status == MPATH_OK) {
        mpath_arena_put(old);
    } else {
        share->arena        = old;
        share->arena_number = old_number;
        share->is_alone     = 1;
    }
    return status;
}

void mpath_share_leave(mpath_share_t *share, mpath_status_t status)
{
    int is_broken = mpath_status_is_error(status) && mpath_team_status(share->team) != MPATH_OK;

    /* In a team that is broken others may still be inside: then nobody takes this arena any more. */
    if (share->arena != NULL && !is_broken) {
        if (share->is_inside) {
            mpath_arena_leave(share->arena);
        } else if (share->is_taken) {
            mpath_arena_return(share->arena);
        }
    }
    share->is_inside = share->is_taken = 0;
}
