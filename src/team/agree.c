/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement, as every rank sees it: fill my cell, wait for all cells, look at what they say, take the small data. No
 * lock, no system call and no allocation unless a rank is late.
 */
#include "team/agree_private.h"

#include "util/log.h"
#include "util/reserve.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The agreement's memory: how much of it small pairs may take, where everything lies, and its life. */

#define AGREE_MIN_BLOCK 64u             /* of a rank in a gather: what ranks settle with fits in */
#define AGREE_BLOCKS_BYTES (128u << 10) /* of all ranks */
#define AGREE_MAX_BLOCK (4u << 10)
#define AGREE_REMOTE_BYTES (4u << 20) /* of a node: small data for and from other nodes, and rows */
#define AGREE_ROWS_BYTES 8u           /* that rows take of this for each of such data's places */
#define AGREE_LOCAL_BYTES 128u        /* of a pair of node mates, where it takes memory of its own */
#define AGREE_MAX_CAPACITY (1u << 20)
#define AGREE_HEADER_BYTES 512u /* of a rank, with what lies in front of the cells */

static uint64_t align_line(uint64_t bytes)
{
    return (bytes + 63) & ~63ull;
}

static size_t layout_place(uint64_t *offset, uint64_t bytes)
{
    size_t at = (size_t)*offset;

    *offset += align_line(bytes);
    return at;
}

/* Where everything lies on a node of so many of the team's ranks. */
static void layout_place_all(const mpath_team_t *team, int on_node, mpath_agree_layout_t *layout)
{
    uint64_t size = (uint64_t)team->size, num_local = (uint64_t)on_node, offset = 0;
    int several   = team->num_nodes > 1;
    uint64_t data = num_local * num_local * layout->local_capacity +
                    (several ? 2 * num_local * size * layout->remote_capacity : 0);

    data = data > size * layout->block_bytes ? data : size * layout->block_bytes;
    data = several && data < mpath_agree_said_bytes(team->num_nodes) ? mpath_agree_said_bytes(team->num_nodes) : data;
    for (int half = 0; half < 2; half++) {
        mpath_agree_offsets_t *at = &layout->halves[half];

        at->cells   = layout_place(&offset, num_local * sizeof(mpath_agree_cell_t));
        at->result  = layout_place(&offset, sizeof(mpath_agree_result_t));
        at->came    = layout_place(&offset, (uint64_t)team->num_nodes * sizeof(atomic_uint));
        at->own     = layout_place(&offset, several ? size * sizeof(atomic_uint) : 0);
        at->stride  = layout_place(&offset, several ? size * sizeof(uint32_t) : 0);
        at->pairs   = layout_place(&offset, several ? num_local * size * sizeof(uint32_t) : 0);
        at->expects = layout_place(&offset, several ? num_local * size : 0);
        at->rails   = layout_place(&offset, several ? num_local * sizeof(mpath_agree_rails_t) : 0);
        at->rows    = layout_place(&offset, several ? 2 * num_local * size * sizeof(uint64_t) : 0);
        at->demand  = layout_place(&offset, several ? 0 : size * size * sizeof(uint64_t));
        at->data    = layout_place(&offset, data);
    }
    layout->left  = layout_place(&offset, num_local * sizeof(mpath_outbox_left_t));
    layout->beats = layout_place(&offset, size * sizeof(atomic_uint));
    layout->bytes = (size_t)offset;
}

/*
 * What a message goes through is one rail, that of the leaders or that of its sender: only as much as costs no time
 * there. Where each rank has a NIC beside it, the MPI library's messages use it; where they have not, all may be on the
 * same one, and what is too much for the leaders is left to the rails.
 */
static void agree_remote_limits(const mpath_team_t *team, uint64_t most, mpath_agree_limits_t *limits)
{
    uint64_t message_bytes = team->context->settings.leader_bytes, capacity, remote, leader;

    leader   = message_bytes / (most * most) & ~7ull;
    remote   = team->context->topo_params.access == MPATH_REACH_AFFINE ? message_bytes / most & ~7ull : leader;
    capacity = AGREE_REMOTE_BYTES / (4 * most * (uint64_t)team->size) & ~7ull;
    capacity = capacity > AGREE_ROWS_BYTES ? capacity - AGREE_ROWS_BYTES : 0;
    remote   = remote < capacity ? remote : capacity;
    limits->remote_bytes = remote < limits->local_bytes ? remote : limits->local_bytes;
    limits->leader_bytes = leader < limits->remote_bytes ? leader : limits->remote_bytes;
}

/* Of a pair of node mates: what a gather needs anyway; on several nodes data for and from others lies there, too. */
static uint64_t agree_local_capacity(const mpath_team_t *team, uint64_t most, uint64_t block_bytes)
{
    uint64_t bytes = (uint64_t)team->size * block_bytes / (most * most) & ~7ull;

    bytes = team->num_nodes > 1 && bytes > AGREE_LOCAL_BYTES ? AGREE_LOCAL_BYTES : bytes;
    return bytes > 8 ? bytes : 8;
}

/* The layout with pairs of up to `local_bytes` inside; what it takes of the rank that has most. */
static void layout_try(const mpath_team_t *team, uint64_t local_bytes, uint64_t most, mpath_agree_layout_t *layout,
                       uint64_t *shared_p, uint64_t *all_p)
{
    uint64_t size = (uint64_t)team->size, shared = 0, all = 0;

    layout->limits.local_bytes = local_bytes;
    agree_remote_limits(team, most, &layout->limits);
    layout->local_capacity = agree_local_capacity(team, most, layout->block_bytes);
    if (layout->local_capacity > local_bytes) {
        layout->local_capacity = mpath_agree_stride(local_bytes > 8 ? local_bytes : 8);
    }
    layout->remote_capacity = mpath_agree_stride(layout->limits.remote_bytes > 8 ? layout->limits.remote_bytes : 8);
    for (int node = 0; node < team->num_nodes; node++) {
        uint64_t num_local = (uint64_t)team->num_on[node], here, messages;

        layout_place_all(team, team->num_on[node], layout);
        here     = layout->bytes / num_local + AGREE_HEADER_BYTES;
        messages = num_local * (size - num_local) * layout->remote_capacity + size * layout->block_bytes +
                   (uint64_t)team->num_nodes * 2 * sizeof(mpath_message_t);
        messages = team->num_nodes > 1 ? messages : 0;
        all      = here + messages > all ? here + messages : all;
        shared   = num_local > 1 && here > shared ? here : shared;
    }
    *shared_p = shared;
    *all_p    = all;
}

#define OUTBOX_ROWS 2 /* rows of small pairs that a new outbox holds: two calls of one team */
#define OUTBOX_PAGE 4096u

static uint64_t outbox_new_bytes(const mpath_settings_t *settings, const mpath_agree_memory_t *memory)
{
    uint64_t bytes = OUTBOX_ROWS * memory->processes * mpath_agree_stride(settings->small_bytes);

    bytes = bytes < memory->bytes / 2 ? bytes : memory->bytes / 2;
    return (bytes + (bytes < memory->bytes / 4 ? OUTBOX_PAGE - 1 : 0)) / OUTBOX_PAGE * OUTBOX_PAGE;
}

mpath_status_t mpath_agree_layout(const mpath_team_t *team, const mpath_agree_memory_t *memory,
                                  mpath_agree_layout_t *layout)
{
    const mpath_settings_t *settings = &team->context->settings;
    uint64_t block = AGREE_BLOCKS_BYTES / (uint64_t)team->size & ~7ull, local, shared, all, most = 1;
    uint64_t fresh = outbox_new_bytes(settings, memory), outbox = memory->outbox_bytes, capacity_bytes = memory->bytes;
    int least, fits;

    if (memory->needs_outbox) {
        outbox = fresh < outbox ? fresh : outbox;
        capacity_bytes -= fresh;
    }
    for (int node = 0; node < team->num_nodes; node++) {
        most = (uint64_t)team->num_on[node] > most ? (uint64_t)team->num_on[node] : most;
    }
    block = block < AGREE_MAX_BLOCK ? block : AGREE_MAX_BLOCK;
    local = settings->small_bytes < AGREE_MAX_CAPACITY ? settings->small_bytes : AGREE_MAX_CAPACITY;
    for (;;) {
        uint64_t inside, outside = outbox / (2 * most) & ~7ull;

        layout->block_bytes = block > AGREE_MIN_BLOCK ? block : AGREE_MIN_BLOCK;
        inside              = agree_local_capacity(team, most, layout->block_bytes);
        outside             = outside > inside ? outside : inside;
        local               = local < outside ? local : outside;
        layout_try(team, local, most, layout, &shared, &all);
        /* More than the least may take half of the shared memory, and a quarter of the rank's. */
        least = layout->block_bytes == AGREE_MIN_BLOCK;
        fits  = all <= settings->memory_bytes / 4;
        if ((shared <= capacity_bytes / 2 && fits) || (least && (local == 0 || (local > inside && fits)))) {
            break;
        }
        block = layout->block_bytes / 2 & ~7ull;
        /* What is outside takes no shared memory here, but its messages to other nodes take the rank's. */
        local = local > inside && !least ? local : local / 2 & ~7ull;
    }
    layout->outbox_bytes = local <= layout->local_capacity ? 0 : fresh > 0 ? (size_t)fresh : OUTBOX_PAGE;
    if (all > settings->memory_bytes / 2) {
        mpath_warn_by(
            team->rank == 0,
            "%s: to agree about sizes %d ranks need %llu bytes each, more than half of memory_bytes (%llu); the "
            "previous functions serve the communicator",
            team->oob.name, team->size, (unsigned long long)all, (unsigned long long)settings->memory_bytes);
        return MPATH_DECLINED;
    }
    if (shared > memory->bytes) {
        mpath_warn_by(
            team->rank == 0,
            "%s: to agree about sizes each of %d ranks needs %llu bytes of shared memory, and %llu are left of "
            "what the communicators of a node may take (node_memory_bytes, a quarter of /dev/shm); the previous "
            "functions serve the communicator",
            team->oob.name, team->size, (unsigned long long)shared, (unsigned long long)memory->bytes);
        return MPATH_DECLINED;
    }
    layout_place_all(team, team->num_local, layout);
    return MPATH_OK;
}

/* Lists the ranks by node. */
static void agree_index(const mpath_team_t *team, mpath_agree_state_t *state)
{
    int next = 0;

    for (int node = 0; node < team->num_nodes; node++) {
        state->first_on[node] = next;
        next += team->num_on[node];
    }
    for (int rank = 0; rank < team->size; rank++) {
        state->by_node[state->first_on[team->node_of[rank]] + team->local_of[rank]] = rank;
    }
}

static void agree_half_init(const mpath_team_t *team, const mpath_agree_layout_t *layout, int number, char *region,
                            mpath_agree_half_t *half)
{
    const mpath_agree_offsets_t *at = &layout->halves[number];
    size_t num_local = (size_t)team->num_local, size = (size_t)team->size;

    half->cells   = (mpath_agree_cell_t *)(void *)(region + at->cells);
    half->result  = (mpath_agree_result_t *)(void *)(region + at->result);
    half->came    = (atomic_uint *)(void *)(region + at->came);
    half->own     = (atomic_uint *)(void *)(region + at->own);
    half->stride  = (uint32_t *)(void *)(region + at->stride);
    half->pairs   = (uint32_t *)(void *)(region + at->pairs);
    half->expects = (uint8_t *)(region + at->expects);
    half->rails   = (mpath_agree_rails_t *)(void *)(region + at->rails);
    half->rows    = (uint64_t *)(void *)(region + at->rows);
    half->demand  = team->num_nodes > 1 ? NULL : (uint64_t *)(void *)(region + at->demand);
    half->blocks  = region + at->data;
    half->local   = region + at->data;
    half->out     = half->local + num_local * num_local * layout->local_capacity;
    half->in      = half->out + num_local * size * layout->remote_capacity;
}

/* See mpath_team_marked(). */
static int agree_is_marked(const mpath_team_t *team)
{
    uint32_t next                  = team->call + 1;
    const mpath_agree_half_t *half = &team->agree->halves[next & 1];

    for (int i = 0; i < team->num_local; i++) {
        if (atomic_load_explicit(&half->cells[i].call, memory_order_acquire) == next &&
            (half->cells[i].flags & MPATH_CALL_MARKED)) {
            return 1;
        }
    }
    return atomic_load_explicit(&half->result->marked, memory_order_acquire) == next ||
           mpath_agree_nodes_marked(team, next);
}

/* Opens those of the node mates. */
static mpath_status_t agree_join_outboxes(mpath_team_t *team)
{
    mpath_agree_state_t *state  = team->agree;
    mpath_outbox_share_t *share = team->outbox_share;
    mpath_status_t status       = MPATH_OK;

    if (share == NULL) {
        return MPATH_OK;
    }
    share->left      = state->left;
    share->num_local = team->num_local;
    state->mates     = calloc((size_t)team->num_local, sizeof(mpath_segment_t *));
    if (state->mates == NULL) {
        mpath_error("%s: no memory for the small data of %d ranks of this node", team->oob.name, team->num_local);
        return MPATH_ERR_NO_MEMORY;
    }
    for (int local = 0; local < team->num_local && status == MPATH_OK; local++) {
        if (local != team->local_rank) {
            status = mpath_segment_borrow(&team->members[local].outbox, &state->mates[local]);
        }
    }
    return status;
}

#define SCRATCH_BYTES(team) (3 * (size_t)(team)->size * sizeof(uint64_t))
#define SEEN_BYTES(team) ((size_t)(team)->size * sizeof(unsigned))

static size_t gathered_bytes(const mpath_team_t *team)
{
    return team->local_rank == 0 ? mpath_agree_gathered_bytes(team) : 0;
}

mpath_status_t mpath_agree_create(mpath_team_t *team, const mpath_agree_layout_t *layout, void *region)
{
    const mpath_channel_capacities_t capacities = {.nodes = mpath_agree_message_max_bytes,
                                                   .own   = mpath_agree_own_max_bytes};
    size_t size                                 = (size_t)team->size;
    mpath_agree_state_t *state                  = calloc(1, sizeof(*state));
    mpath_status_t status;

    if (state == NULL) {
        goto err_no_memory;
    }
    team->agree     = state;
    team->is_marked = agree_is_marked;
    state->layout   = *layout;
    state->by_node  = calloc(size, sizeof(int));
    state->first_on = calloc((size_t)team->num_nodes, sizeof(int));
    state->scratch  = mpath_reserve(SCRATCH_BYTES(team));
    state->gathered = mpath_reserve(gathered_bytes(team));

    state->attend.seen     = mpath_reserve(SEEN_BYTES(team));
    state->attend.told     = calloc((size_t)team->num_local, sizeof(unsigned));
    state->attend.heard_ns = calloc((size_t)team->num_nodes, sizeof(uint64_t));
    if (state->by_node == NULL || state->first_on == NULL || state->scratch == NULL || state->gathered == NULL ||
        state->attend.seen == NULL || state->attend.told == NULL || state->attend.heard_ns == NULL) {
        goto err_destroy;
    }
    for (int half = 0; half < 2; half++) {
        agree_half_init(team, layout, half, region, &state->halves[half]);
    }
    state->beats = (atomic_uint *)(void *)((char *)region + layout->beats);
    state->left  = (mpath_outbox_left_t *)(void *)((char *)region + layout->left);
    agree_index(team, state);
    status = agree_join_outboxes(team);
    if (status == MPATH_OK) {
        status = mpath_channels_create(team, &capacities);
    }
    if (status != MPATH_OK) {
        mpath_agree_destroy(team);
        return status;
    }
    return MPATH_OK;

err_destroy:
    mpath_agree_destroy(team);
err_no_memory:
    mpath_error("%s: no memory for the agreement of %d ranks; mpath does not serve the communicator", team->oob.name,
                team->size);
    return MPATH_ERR_NO_MEMORY;
}

void mpath_agree_destroy(mpath_team_t *team)
{
    mpath_agree_state_t *state = team->agree;

    mpath_channels_destroy(team);
    if (state != NULL) {
        if (state->left != NULL) {
            atomic_store_explicit(&state->left[team->local_rank].gone, 1, memory_order_release);
        }
        for (int local = 0; local < team->num_local && state->mates != NULL; local++) {
            if (state->mates[local] != NULL) {
                mpath_segment_return(state->mates[local]);
            }
        }
        free(state->mates);
        mpath_pairs_destroy(state->routes);
        mpath_pairs_destroy(state->gpu_routes);
        free(state->by_node);
        free(state->first_on);
        mpath_unreserve(state->scratch, SCRATCH_BYTES(team));
        free(state->matrix);
        mpath_unreserve(state->gathered, gathered_bytes(team));
        mpath_unreserve(state->attend.seen, SEEN_BYTES(team));
        free(state->attend.told);
        free(state->attend.heard_ns);
        free(state);
        team->agree = NULL;
    }
}

/* A leader at the end of a call: those of its mates that have not come there wait for what other nodes have given up. */
static void agree_pass_on_mark(mpath_team_t *team)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    uint32_t call                  = team->call;
    int is_round                   = 0;

    if (team->agree->settling && team->channels != NULL && team->local_rank == 0 &&
        atomic_load_explicit(&half->result->marked, memory_order_relaxed) != call) {
        (void)mpath_channels_look(team, &is_round); /* a broken team is seen in the wait */
        if (is_round && mpath_agree_nodes_marked(team, call)) {
            atomic_store_explicit(&half->result->marked, call, memory_order_release);
        }
    }
}

/* Waits until the cells of this node's ranks are published for the current call. */
static mpath_status_t agree_await_mates(mpath_team_t *team, mpath_agree_wait_t *wait)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);

    for (int i = 0; i < team->num_local;) {
        mpath_status_t status;

        if (atomic_load_explicit(&half->cells[i].call, memory_order_acquire) == team->call) {
            if (wait->wait.idle.rounds > 0) {
                mpath_agree_wait_start(wait);
            }
            i++;
            continue;
        }
        agree_pass_on_mark(team);
        status = mpath_agree_idle(team, team->local[i], wait);
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

/* Waits until the leader has heard of all its mates, whose cells need no second look, and of all nodes. */
static mpath_status_t agree_await_result(mpath_team_t *team, mpath_agree_wait_t *wait)
{
    while (mpath_agree_lacks_result(team)) {
        mpath_status_t status = mpath_agree_idle(team, MPATH_AGREE_LATE, wait);

        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

/*
 * mpath_team_allgather() is an agreement, too, of this operation; and so are the search for a wrong count, mpath_team_gather_few() and
 * mpath_team_gather_met().
 */
#define AGREE_GATHER UINT32_MAX
#define AGREE_COUNTS (UINT32_MAX - 1)
#define AGREE_SAYS (UINT32_MAX - 2)
#define AGREE_MET (UINT32_MAX - 3)

#define AGREE_TEXT 128

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull;
    x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44dull;
    return x ^ (x >> 33);
}

/* Terms of the sums are added up, so that it does not matter who adds them in which order. */
static inline uint64_t pair_sum(uint64_t bytes, int source, int destination)
{
    return mix(bytes + mix(((uint64_t)source << 32) + (uint64_t)destination + 1));
}

/*
 * Publishes what I say. Mates that are here already look at the line all the time, so it is written at once: between two stores it
 * would come and go.
 */
static void cell_publish(const mpath_team_t *team, const mpath_agree_cell_t *said, mpath_agree_cell_t *cell)
{
    cell->flags       = said->flags;
    cell->operation   = said->operation;
    cell->pair_bytes  = said->pair_bytes;
    cell->rank_bytes  = said->rank_bytes;
    cell->cross_bytes = said->cross_bytes;
    cell->stride      = said->stride;
    cell->out_stride  = said->out_stride;
    cell->left_sum    = said->left_sum;
    cell->sum         = said->sum;
    cell->difference  = said->difference;
    cell->row         = said->row;
    cell->sends       = said->sends;
    cell->expects     = said->expects;
    cell->rails       = said->rails;
    atomic_store_explicit(&cell->call, team->call, memory_order_release);
}

/* What a rank of this node says, as a record. */
static void cell_record(const mpath_team_t *team, int local, mpath_agree_record_t *record)
{
    const mpath_agree_cell_t *cell = &mpath_agree_half(team)->cells[local];
    uint32_t by                    = (uint32_t)team->local[local] + 1;

    *record = (mpath_agree_record_t){.flags       = cell->flags,
                                     .lowest      = cell->operation,
                                     .highest     = cell->operation,
                                     .lowest_by   = by,
                                     .highest_by  = by,
                                     .pair_bytes  = cell->pair_bytes,
                                     .rank_bytes  = cell->rank_bytes,
                                     .cross_bytes = cell->cross_bytes,
                                     .left_sum    = cell->left_sum,
                                     .sum         = cell->sum,
                                     .difference  = cell->difference};
}

/* Puts the others to what the first rank of this node says; ranks ascend. */
static void record_add_cell(const mpath_team_t *team, int local, mpath_agree_record_t *record)
{
    const mpath_agree_cell_t *cell = &mpath_agree_half(team)->cells[local];

    if (cell->operation < record->lowest) {
        record->lowest    = cell->operation;
        record->lowest_by = (uint32_t)team->local[local] + 1;
    }
    if (cell->operation > record->highest) {
        record->highest    = cell->operation;
        record->highest_by = (uint32_t)team->local[local] + 1;
    }
    record->flags |= cell->flags;
    record->pair_bytes  = cell->pair_bytes > record->pair_bytes ? cell->pair_bytes : record->pair_bytes;
    record->rank_bytes  = cell->rank_bytes > record->rank_bytes ? cell->rank_bytes : record->rank_bytes;
    record->cross_bytes = cell->cross_bytes > record->cross_bytes ? cell->cross_bytes : record->cross_bytes;
    record->left_sum += cell->left_sum;
    record->sum += cell->sum;
    record->difference += cell->difference;
}

/* In the place of others; NULL: there are none that an agreement has place for. */
static mpath_status_t agree_make_routes(mpath_team_t *team, const mpath_topo_t *topo, mpath_pairs_t **routes_p)
{
    mpath_status_t status = MPATH_OK;

    mpath_pairs_destroy(*routes_p);
    *routes_p = NULL;
    if (topo != NULL) {
        status = mpath_pairs_create(topo, 1, routes_p);
    }
    if (status != MPATH_OK && status != MPATH_DECLINED) {
        mpath_error("%s: no memory for the static routes of %d ranks; the call fails", team->oob.name, team->size);
        mpath_team_break(team, status);
        return status;
    }
    if (*routes_p != NULL && mpath_pairs_num_rails(*routes_p) > MPATH_AGREE_RAILS) {
        mpath_pairs_destroy(*routes_p);
        *routes_p = NULL;
    }
    return MPATH_OK;
}

/* Looks at the topologies anew where they have changed. */
static mpath_status_t agree_find_routes(mpath_team_t *team)
{
    mpath_agree_state_t *state = team->agree;
    mpath_status_t status      = MPATH_OK;

    if (team->topo == NULL || team->num_nodes == 1) {
        return MPATH_OK;
    }
    if (!state->routes_are_known || state->routes_version != team->topo_version) {
        status                = agree_make_routes(team, team->topo, &state->routes);
        state->routes_version = team->topo_version;
    }
    if (status == MPATH_OK && (!state->routes_are_known || state->gpu_routes_version != team->gpu_topo_version)) {
        status                    = agree_make_routes(team, mpath_team_gpu_topo_left(team), &state->gpu_routes);
        state->gpu_routes_version = team->gpu_topo_version;
    }
    state->routes_are_known = 1;
    return status;
}

/* Those of a call; before it is known which GPUs there are, those of host memory. */
static const mpath_pairs_t *agree_routes(const mpath_team_t *team, uint32_t flags)
{
    const mpath_agree_state_t *state = team->agree;

    return (flags & MPATH_CALL_DEVICE) != 0 && team->gpu_topo != NULL ? state->gpu_routes : state->routes;
}

/* My pairs that are not small, added up, and which small ones there are: nobody looks for those that there are not. */
typedef struct agree_left {
    int takes, sends_away, takes_away; /* whether there are small ones of others for me, and with other nodes */
    uint64_t sent, received, sent_away, received_away; /* bytes; away: with other nodes */
    uint64_t received_sum; /* of the pairs that I receive, as left_sum of those that I send */
    int unmet, unmet_last; /* nodes that mine has not met with which I have some; 1 + the last of them */
    uint16_t rails;        /* by which they go, or come: a bit each */
} agree_left_t;

/* What my cell says of the rails: written only where something crosses one, so that there is nothing to clear. */
static void left_cross(const mpath_team_t *team, agree_left_t *left, int rail, uint64_t out, uint64_t in)
{
    mpath_agree_rails_t *rails = &mpath_agree_half(team)->rails[team->local_rank];
    int is_first               = (left->rails >> rail & 1) == 0;

    rails->of[rail].out = (is_first ? 0 : rails->of[rail].out) + out;
    rails->of[rail].in  = (is_first ? 0 : rails->of[rail].in) + in;
    left->rails |= (uint16_t)(1u << rail);
}

/* A pair with another node. Ranks ascend, and so do most nodes with them: where they do not, one may count twice. */
static inline void left_meet(const mpath_team_t *team, agree_left_t *left, int other)
{
    int node = team->node_of[other];

    if (team->met[node] == 0 && left->unmet_last != node + 1) {
        left->unmet++;
        left->unmet_last = node + 1;
    }
}

/* With how many nodes it is worth to go to all of them, in a few messages. */
static uint32_t left_unmet_flags(const mpath_team_t *team, const agree_left_t *left)
{
    return left->unmet == 0 ? 0 : MPATH_AGREE_UNMET | (left->unmet > team->num_nodes / 4 ? MPATH_AGREE_UNMET_MANY : 0);
}

#define COUNT_ROWS 8 /* counts of a row that are looked at together: most rows have few that are not zero */

/* Whether nothing goes to these ranks, nor comes from them. */
static inline int counts_are_zero(const uint64_t *sends, const uint64_t *receives)
{
    uint64_t any = 0;

    for (int i = 0; i < COUNT_ROWS; i++) {
        any |= sends[i] | receives[i];
    }
    return any == 0;
}

/* Adds up my row and my column. `left` is all zero. */
static void cell_count(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                       mpath_agree_cell_t *cell, agree_left_t *left)
{
    const mpath_pairs_t *routes = agree_routes(team, call->flags);
    uint64_t largest = 0, sum = 0, left_sum = 0, expected_sum = 0;
    int me = team->rank;

    for (int other = 0; other < team->size; other++) {
        uint64_t bytes, term;

        while (other % COUNT_ROWS == 0 && team->size - other >= COUNT_ROWS &&
               counts_are_zero(call->send_bytes + other, call->recv_bytes + other)) {
            other += COUNT_ROWS;
        }
        if (other == team->size) {
            break;
        }
        bytes = call->send_bytes[other];
        if (bytes > 0) {
            term = pair_sum(bytes, me, other);
            sum += term;
            largest = other != me && bytes > largest ? bytes : largest;
            if (other != me && bytes <= mpath_agree_limit(team, limits, me, other)) {
                left->sends_away = left->sends_away || !mpath_agree_is_local(team, other);
            } else if (other != me) {
                left_sum += term;
                left->sent += bytes;
                if (!mpath_agree_is_local(team, other)) {
                    left->sent_away += bytes;
                    left_meet(team, left, other);
                    if (routes != NULL) {
                        left_cross(team, left, mpath_pairs_static_rail(routes, me, other), bytes, 0);
                    }
                }
            }
        }
        bytes = call->recv_bytes[other];
        if (bytes > 0) {
            term = pair_sum(bytes, other, me);
            expected_sum += term;
            if (other != me && bytes <= mpath_agree_limit(team, limits, other, me)) {
                left->takes      = 1;
                left->takes_away = left->takes_away || !mpath_agree_is_local(team, other);
            } else if (other != me) {
                left->received_sum += term;
                left->received += bytes;
                if (!mpath_agree_is_local(team, other)) {
                    left->received_away += bytes;
                    left_meet(team, left, other);
                    if (routes != NULL) {
                        left_cross(team, left, mpath_pairs_static_rail_in(routes, other, me), 0, bytes);
                    }
                }
            }
        }
    }
    cell->sum        = sum;
    cell->left_sum   = left_sum;
    cell->difference = sum - expected_sum;
    cell->flags |= (left->sent > 0 ? MPATH_AGREE_LEFT : 0) | left_unmet_flags(team, left);
    cell->pair_bytes  = mpath_agree_round(largest);
    cell->rank_bytes  = mpath_agree_round(left->sent > left->received ? left->sent : left->received);
    cell->cross_bytes = mpath_agree_round(left->sent_away > left->received_away ? left->sent_away
                                                                                : left->received_away);
}

/*
 * For the leader and for plans of my node mates: my pairs that are not small. My rows of two calls ago may be the same; nobody
 * reads those any more, since all mates were seen in the agreement between.
 */
static void publish_left(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                         const agree_left_t *left, mpath_agree_cell_t *cell)
{
    mpath_agree_half_t *half = &team->agree->halves[team->agree->turn];
    size_t row               = (size_t)team->local_rank * (size_t)team->size;
    uint64_t *sends = half->rows + row, *receives = sends + (size_t)team->num_local * (size_t)team->size;

    if (team->agree->routes == NULL && team->agree->gpu_routes == NULL) {
        return;
    }
    cell->rails = left->rails;
    if (half->rows_sent == cell->left_sum && half->rows_received == left->received_sum) {
        return;
    }
    for (int other = 0; other < team->size; other++) {
        uint64_t limit = other == team->rank ? UINT64_MAX : mpath_agree_limit(team, limits, team->rank, other);

        sends[other]    = call->send_bytes[other] > limit ? call->send_bytes[other] : 0;
        receives[other] = call->recv_bytes[other] > limit ? call->recv_bytes[other] : 0;
    }
    half->rows_sent     = cell->left_sum;
    half->rows_received = left->received_sum;
}

/* The leader's: what its node and the NICs there have to carry; the cells of the node are there. */
static void record_load(const mpath_team_t *team, mpath_agree_record_t *record)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    uint64_t out = 0, in = 0, largest = 0;
    mpath_agree_rails_t sum = {{{0, 0}}};

    for (int i = 0; i < team->num_local; i++) {
        for (uint32_t rails = half->cells[i].rails; rails != 0; rails &= rails - 1) {
            int rail = __builtin_ctz(rails);

            sum.of[rail].out += half->rails[i].of[rail].out;
            sum.of[rail].in += half->rails[i].of[rail].in;
        }
    }
    for (int rail = 0; rail < MPATH_AGREE_RAILS; rail++) {
        out += sum.of[rail].out;
        in += sum.of[rail].in;
        largest = sum.of[rail].out > largest ? sum.of[rail].out : largest;
        largest = sum.of[rail].in > largest ? sum.of[rail].in : largest;
    }
    record->node_bytes   = mpath_agree_round(out > in ? out : in);
    record->static_bytes = mpath_agree_round(largest);
}

/* My small pairs with the node's own ranks, and where they go. */
typedef struct local_row {
    char *data;
    size_t offset; /* in the outbox, where the stride says that they are there */
    uint32_t stride;
} local_row_t;

/* Zero: they do not fit in the segment, and the outbox has no block free. */
static int local_row_find(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                          local_row_t *row)
{
    mpath_agree_state_t *state     = team->agree;
    const mpath_agree_half_t *half = mpath_agree_half(team);
    size_t num_local               = (size_t)team->num_local;
    uint64_t largest               = 0;

    *row = (local_row_t){.data = half->local + (size_t)team->local_rank * num_local * state->layout.local_capacity};
    if ((call->flags & (MPATH_CALL_INELIGIBLE | MPATH_CALL_DEVICE)) != 0) {
        return 1;
    }
    for (int i = 0; i < team->num_local; i++) {
        uint64_t bytes = call->send_bytes[team->local[i]];

        largest = i != team->local_rank && bytes <= limits->local_bytes && bytes > largest ? bytes : largest;
    }
    row->stride = mpath_agree_stride(largest);
    if (row->stride > state->layout.local_capacity) {
        row->data = mpath_outbox_take(team->context->outbox, team->outbox_share, (int)(team->call & 1),
                                      num_local * row->stride, team->call, &row->offset);
    }
    return row->data != NULL;
}

/* Copies them. */
static void publish_local(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                          const local_row_t *row, mpath_agree_cell_t *cell)
{
    cell->stride = row->stride;
    cell->row    = (uint32_t)(row->offset / MPATH_OUTBOX_LINE);
    for (int i = 0; i < team->num_local && row->stride > 0; i++) {
        uint64_t bytes = call->send_bytes[team->local[i]];

        if (i != team->local_rank && bytes > 0 && bytes <= limits->local_bytes) {
            memcpy(row->data + (size_t)i * row->stride,
                   (const char *)call->send_buffer + call->send_offsets[team->local[i]], (size_t)bytes);
        }
    }
}

/* The same for the leader, of those with other nodes that it sends. */
static void publish_out(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                        mpath_agree_cell_t *cell)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    size_t row                     = (size_t)team->local_rank * (size_t)team->size;
    char *data                     = half->out + row * team->agree->layout.remote_capacity;
    uint32_t *pairs                = half->pairs + row;
    uint64_t largest               = 0;

    for (int node = 0; node < team->num_nodes; node++) {
        const int *ranks = team->agree->by_node + team->agree->first_on[node];
        int is_mine      = node == team->node || mpath_agree_sends_own(team, call, limits, node);

        for (int k = 0; k < team->num_on[node]; k++) {
            uint64_t bytes = call->send_bytes[ranks[k]];

            pairs[ranks[k]] = is_mine || bytes > limits->remote_bytes ? 0 : (uint32_t)bytes;
            largest         = pairs[ranks[k]] > largest ? pairs[ranks[k]] : largest;
        }
    }
    cell->out_stride = mpath_agree_stride(largest);
    for (int to = 0; to < team->size; to++) {
        if (pairs[to] > 0) {
            memcpy(data + (size_t)to * cell->out_stride, (const char *)call->send_buffer + call->send_offsets[to],
                   pairs[to]);
        }
    }
}

/* Of which ranks of other nodes I wait for small data. */
static void publish_expects(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits)
{
    uint8_t *expects = mpath_agree_half(team)->expects + (size_t)team->local_rank * (size_t)team->size;

    for (int from = 0; from < team->size; from++) {
        uint64_t bytes = call->recv_bytes[from];
        int is_small   = bytes > 0 && bytes <= limits->remote_bytes && !mpath_agree_is_local(team, from);

        expects[from] = !is_small                      ? MPATH_AGREE_EXPECTS_NONE
                        : bytes > limits->leader_bytes ? MPATH_AGREE_EXPECTS_OWN
                                                       : MPATH_AGREE_EXPECTS_SMALL;
    }
}

/* What I send, for plans of one node: written where it is another than two calls ago, since mates hold the lines. */
static void publish_demand(mpath_team_t *team, const mpath_call_t *call, uint64_t sum)
{
    mpath_agree_half_t *half = &team->agree->halves[team->call & 1];
    size_t size              = (size_t)team->size;
    uint64_t *row;

    if (half->demand == NULL || half->demand_sum == sum) {
        return;
    }
    half->demand_sum = sum;
    row              = half->demand + (size_t)team->rank * size;
    if (sum != 0) {
        memcpy(row, call->send_bytes, size * sizeof(*row));
    } else {
        memset(row, 0, size * sizeof(*row));
    }
}

/* Writes what I say, my small data and, last, my cell. */
static void agree_publish(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                          const local_row_t *row, agree_left_t *left)
{
    static const mpath_agree_limits_t none = {0, 0, 0};
    mpath_agree_cell_t cell                = {.flags = call->flags, .operation = call->operation};
    int counts                             = !(call->flags & MPATH_CALL_INELIGIBLE);

    if (counts) { /* of device memory nothing is small */
        cell_count(team, call, (call->flags & MPATH_CALL_DEVICE) ? &none : limits, &cell, left);
        publish_left(team, call, (call->flags & MPATH_CALL_DEVICE) ? &none : limits, left, &cell);
    }
    publish_demand(team, call, cell.sum);
    /* With device memory nothing will be delivered, see agree_round(). */
    if (counts && !(call->flags & MPATH_CALL_DEVICE)) {
        publish_local(team, call, limits, row, &cell);
        cell.sends   = left->sends_away != 0;
        cell.expects = left->takes_away != 0;
        if (cell.sends) {
            publish_out(team, call, limits, &cell);
        }
        if (cell.expects) {
            publish_expects(team, call, limits);
        }
    }
    cell_publish(team, &cell, &mpath_agree_half(team)->cells[team->local_rank]);
}

/* The same in a gather of `bytes` bytes. */
static void agree_publish_block(mpath_team_t *team, const mpath_call_t *call, const void *block, size_t bytes)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    const mpath_agree_cell_t cell  = {.flags = call->flags, .operation = call->operation};

    memcpy(half->blocks + (size_t)team->rank * bytes, block, bytes);
    cell_publish(team, &cell, &half->cells[team->local_rank]);
}

static void operation_text(const mpath_call_t *call, uint32_t operation, char *text, size_t size)
{
    if (call->operation_text != NULL) {
        call->operation_text(operation, text, size);
    } else {
        snprintf(text, size, "collective %u", operation);
    }
}

static void agree_tell_differ(const mpath_team_t *team, const mpath_call_t *call, int rank, uint32_t operation,
                              uint32_t number)
{
    char theirs[AGREE_TEXT], mine[AGREE_TEXT];

    operation_text(call, operation, theirs, sizeof(theirs));
    operation_text(call, call->operation, mine, sizeof(mine));
    mpath_error("%s: in call %u rank %d (%s) calls %s and rank %d %s; the call fails", team->oob.name, number, rank,
                mpath_team_host(team, rank), theirs, team->rank, mine);
}

/* Says of a rank that calls something else, as far as this record knows; of the operation the bits of `mask` count. */
static int agree_differs(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_record_t *record,
                         uint32_t mask)
{
    if (((record->lowest ^ call->operation) & mask) != 0) {
        agree_tell_differ(team, call, (int)record->lowest_by - 1, record->lowest, team->call);
        return 1;
    }
    if (((record->highest ^ call->operation) & mask) != 0) {
        agree_tell_differ(team, call, (int)record->highest_by - 1, record->highest, team->call);
        return 1;
    }
    return 0;
}

/* The team is broken: if another rank has seen before that this call's ranks differ, this one says so, too. */
static void agree_explain(const mpath_team_t *team, const mpath_call_t *call)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);

    mpath_agree_record_t record;

    for (int i = 0; i < team->num_local; i++) {
        if (atomic_load_explicit(&half->cells[i].call, memory_order_acquire) == team->call) {
            cell_record(team, i, &record);
            if (agree_differs(team, call, &record, UINT32_MAX)) {
                return;
            }
        }
    }
}

/* The leader's part: what all nodes say. */
static mpath_status_t agree_lead(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                 size_t block_bytes, mpath_agree_record_t *record, mpath_agree_wait_t *wait)
{
    mpath_agree_result_t *result = mpath_agree_half(team)->result;
    mpath_agree_record_t said;
    mpath_status_t status;

    for (int i = 0; i < team->num_local; i++) {
        /* What else differs all nodes are to see, each with its own words. */
        cell_record(team, i, &said);
        if (agree_differs(team, call, &said, MPATH_AGREE_COLLECTIVE)) {
            mpath_team_break(team, MPATH_ERR_PARAM);
            return team->broken;
        }
    }
    if (block_bytes == 0) {
        status = mpath_agree_nodes_exchange(team, call, limits, record, wait);
    } else if (call->operation == AGREE_MET) {
        status = mpath_agree_nodes_gather_met(team, call, block_bytes, record, wait);
    } else {
        status = mpath_agree_nodes_gather(team, call, block_bytes, record, wait);
    }
    if (status != MPATH_OK) {
        return status;
    }
    result->record = *record;
    atomic_store_explicit(&result->call, team->call, memory_order_release);
    return MPATH_OK;
}

/* Waits until it is known what all say. */
static mpath_status_t agree_collect(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                    size_t block_bytes, mpath_agree_record_t *record, mpath_agree_wait_t *wait)
{
    mpath_status_t status;

    mpath_agree_wait_start(wait);
    status = block_bytes > 0 ? MPATH_OK : mpath_agree_own_send(team, call, limits, wait);
    if (status != MPATH_OK) {
        return status;
    }
    if (team->num_nodes > 1 && team->local_rank > 0) {
        status  = agree_await_result(team, wait);
        *record = mpath_agree_half(team)->result->record;
    } else {
        status = agree_await_mates(team, wait);
    }
    if (status == MPATH_OK && (team->num_nodes == 1 || team->local_rank == 0)) {
        cell_record(team, 0, record);
        for (int i = 1; i < team->num_local; i++) {
            record_add_cell(team, i, record);
        }
        if (block_bytes == 0) {
            record_load(team, record);
        }
    }
    if (status == MPATH_OK && team->num_nodes > 1 && team->local_rank == 0) {
        status = agree_lead(team, call, limits, block_bytes, record, wait);
    }
    if (status != MPATH_OK) {
        agree_explain(team, call);
        return status;
    }
    if (record->lowest == record->highest) {
        return MPATH_OK;
    }
    if (team->num_nodes > 1 && team->local_rank == 0) {
        (void)mpath_agree_flush(team, 1, wait); /* the others are to see it, too */
    }
    (void)agree_differs(team, call, record, UINT32_MAX);
    mpath_team_break_alike(team, MPATH_ERR_PARAM);
    return team->broken;
}

/* The small data of other nodes that this rank waits for; none comes where nothing is delivered. */
static mpath_status_t agree_await_data(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                       int delivers, mpath_agree_wait_t *wait)
{
    mpath_status_t status = MPATH_OK;

    if (team->num_nodes == 1) {
        return MPATH_OK;
    }
    if (delivers && team->local_rank == 0) {
        status = mpath_agree_nodes_await_data(team, call, limits, wait);
    }
    if (delivers && status == MPATH_OK) {
        status = mpath_agree_own_await(team, limits, wait);
    }
    if (status == MPATH_OK && (team->local_rank == 0 || wait->uses_own)) {
        status = mpath_agree_flush(team, delivers, wait);
    }
    return status;
}

/* Where small data of a node mate lies, who has said so; NULL: it cannot be there. */
static const char *local_data(const mpath_team_t *team, int source, uint64_t bytes)
{
    const mpath_agree_state_t *state = team->agree;
    const mpath_agree_half_t *half   = mpath_agree_half(team);
    size_t num_local = (size_t)team->num_local, slot = (size_t)team->local_rank, local = (size_t)team->local_of[source];
    uint64_t stride = half->cells[local].stride, row = (uint64_t)half->cells[local].row * MPATH_OUTBOX_LINE;

    if (stride <= state->layout.local_capacity) {
        return half->local + local * num_local * state->layout.local_capacity + slot * stride;
    }
    if (state->mates == NULL || bytes > stride || row > state->mates[local]->bytes ||
        stride * num_local > state->mates[local]->bytes - row) {
        return NULL;
    }
    return (const char *)state->mates[local]->base + row + slot * stride;
}

/* Takes the small data. */
static mpath_status_t agree_deliver(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    size_t row_bytes               = (size_t)team->num_local * team->agree->layout.remote_capacity;

    for (int source = 0; source < team->size; source++) {
        uint64_t bytes = call->recv_bytes[source];
        const char *data;

        if (bytes == 0 || source == team->rank || bytes > mpath_agree_limit(team, limits, source, team->rank)) {
            continue;
        }
        data = mpath_agree_is_local(team, source)
                   ? local_data(team, source, bytes)
                   : half->in + (size_t)source * row_bytes + (size_t)team->local_rank * half->stride[source];
        if (data == NULL) {
            mpath_error("%s: rank %d (%s) says of its data in call %u that it is where it cannot be; the call fails",
                        team->oob.name, source, mpath_team_host(team, source), team->call);
            mpath_team_break(team, MPATH_ERR_PARAM);
            return team->broken;
        }
        memcpy((char *)call->recv_buffer + call->recv_offsets[source], data, (size_t)bytes);
    }
    return MPATH_OK;
}

/* Begins to fetch a line that is to be written soon and that mates have read. */
static inline void line_want(const void *line)
{
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw (%0)" : : "r"(line));
#else
    __builtin_prefetch(line, 1);
#endif
}

static mpath_status_t agree_begin(mpath_team_t *team)
{
    if (team->broken != MPATH_OK || atomic_load_explicit(&team->header->broken, memory_order_relaxed) != 0) {
        atomic_store_explicit(&team->agree->left[team->local_rank].gone, 1, memory_order_release);
        return mpath_team_status(team);
    }
    team->call++;
    return MPATH_OK;
}

static void agree_evaluate(const mpath_team_t *team, const mpath_agree_limits_t *limits,
                           const mpath_agree_record_t *record, mpath_agreed_t *agreed)
{
    const mpath_agree_half_t *half = &team->agree->halves[team->agree->turn];
    int device                     = (record->flags & MPATH_CALL_DEVICE) != 0;
    uint32_t flags                 = record->flags & ~MPATH_AGREE_OWN_FLAGS;
    int has_rows                   = agree_routes(team, record->flags) != NULL;

    agreed->call      = team->call;
    agreed->flags     = flags;
    agreed->demand    = mpath_agree_half(team)->demand;
    agreed->signature = (device ? record->sum : record->left_sum) +
                        mix(flags & MPATH_CALL_DEVICE); /* no others: they say nothing of the matrix */
    agreed->finished            = !(record->flags & MPATH_AGREE_LEFT) && !device;
    agreed->unmet               = (record->flags & MPATH_AGREE_UNMET_MANY) ? MPATH_UNMET_MANY
                                  : (record->flags & MPATH_AGREE_UNMET)    ? MPATH_UNMET_SOME
                                                                           : MPATH_UNMET_NONE;
    agreed->largest_bytes       = mpath_agree_rounded(record->pair_bytes);
    agreed->busiest_bytes       = mpath_agree_rounded(record->rank_bytes);
    agreed->cross_bytes         = mpath_agree_rounded(record->cross_bytes);
    agreed->node_bytes          = mpath_agree_rounded(record->node_bytes);
    agreed->static_bytes        = mpath_agree_rounded(record->static_bytes);
    agreed->node_sends          = has_rows ? half->rows : NULL;
    agreed->node_receives       = has_rows ? half->rows + (size_t)team->num_local * (size_t)team->size : NULL;
    agreed->inline_bytes        = device ? 0 : limits->local_bytes;
    agreed->inline_remote_bytes = device ? 0 : limits->remote_bytes;
}

static mpath_status_t agree_find_mismatch(mpath_team_t *team, const mpath_call_t *call);

/* In the exchange of the counts themselves all are alike: what does not add up there was not said by mpath. */
static mpath_status_t agree_nonsense(mpath_team_t *team)
{
    mpath_error("%s: what other ranks say of their byte counts in call %u does not add up; the call fails",
                team->oob.name, team->call);
    mpath_team_break(team, MPATH_ERR_PARAM);
    return team->broken;
}

static mpath_status_t agree_rest(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                 const local_row_t *row, mpath_agreed_t *agreed)
{
    mpath_agree_wait_t wait;
    mpath_agree_record_t record;
    agree_left_t left = {.takes = 0};
    mpath_status_t status;
    int counts, delivers;

    mpath_agree_wait_init(&wait);
    agree_publish(team, call, limits, row, &left);
    status = agree_collect(team, call, limits, 0, &record, &wait);
    if (status != MPATH_OK) {
        return status;
    }
    counts   = !(record.flags & MPATH_CALL_INELIGIBLE);
    delivers = counts && record.difference == 0 && !(record.flags & MPATH_CALL_DEVICE);
    if (!delivers && limits->leader_bytes != limits->remote_bytes && (!counts || record.sum != record.left_sum)) {
        mpath_agree_own_drop(
            team); /* not where no pair of the job is small, since that looks at a channel of each node */
    }
    status = agree_await_data(team, call, limits, delivers, &wait);
    if (status == MPATH_OK && counts && record.difference != 0) {
        status = call->operation == AGREE_COUNTS ? agree_nonsense(team) : agree_find_mismatch(team, call);
    }
    if (status == MPATH_OK && delivers && left.takes) {
        status = agree_deliver(team, call, limits);
    }
    if (status == MPATH_OK) {
        agree_evaluate(team, limits, &record, agreed);
    }
    return status;
}

static mpath_status_t agree_round(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                  mpath_agreed_t *agreed)
{
    mpath_status_t status = agree_begin(team);
    mpath_call_t refused;
    local_row_t row;

    if (status == MPATH_OK) {
        line_want(&mpath_agree_half(team)->cells[team->local_rank]);
        status = agree_find_routes(team);
    }
    if (status != MPATH_OK) {
        return status;
    }
    team->agree->turn ^= 1;
    if (!local_row_find(team, call, limits, &row)) {
        refused = *call;
        refused.flags |= MPATH_CALL_INELIGIBLE;
        call = &refused;
    }
    status = agree_rest(team, call, limits, &row, agreed);
    atomic_store_explicit(&team->agree->left[team->local_rank].call, team->call, memory_order_release);
    return status;
}

static void agree_mismatch(const mpath_team_t *team, int source, uint64_t sent_bytes, uint64_t expected_bytes)
{
    mpath_error("%s: in call %u rank %d (%s) sends %llu bytes to rank %d, which expects %llu; the call fails",
                team->oob.name, team->call - 1, source, mpath_team_host(team, source), (unsigned long long)sent_bytes,
                team->rank, (unsigned long long)expected_bytes);
}

/*
 * What is sent is not what is expected, as all ranks know: they send each other the counts. An error on all of them; who
 * expects something else than it gets names the pair.
 */
static mpath_status_t agree_find_mismatch(mpath_team_t *team, const mpath_call_t *call)
{
    const mpath_agree_limits_t limits = {sizeof(uint64_t), sizeof(uint64_t), sizeof(uint64_t)};
    size_t size                       = (size_t)team->size;
    uint64_t *sizes = team->agree->scratch, *offsets = sizes + size, *sent = offsets + size;
    mpath_call_t counts = {.operation    = AGREE_COUNTS,
                           .send_bytes   = sizes,
                           .send_offsets = offsets,
                           .send_buffer  = call->send_bytes,
                           .recv_bytes   = sizes,
                           .recv_offsets = offsets,
                           .recv_buffer  = sent};
    mpath_agreed_t agreed;
    mpath_status_t status;

    for (size_t rank = 0; rank < size; rank++) {
        sizes[rank]   = sizeof(uint64_t);
        offsets[rank] = rank * sizeof(uint64_t);
    }
    status = agree_round(team, &counts, &limits, &agreed);
    if (status != MPATH_OK) {
        return status;
    }
    sent[team->rank] = call->send_bytes[team->rank];
    for (int source = 0; source < team->size; source++) {
        if (sent[source] != call->recv_bytes[source]) {
            agree_mismatch(team, source, sent[source], call->recv_bytes[source]);
            break;
        }
    }
    mpath_team_break_alike(team, MPATH_ERR_TRUNCATED);
    return MPATH_ERR_TRUNCATED;
}

mpath_status_t mpath_agree(mpath_team_t *team, const mpath_call_t *call, mpath_agreed_t *agreed)
{
    return agree_round(team, call, &team->agree->layout.limits, agreed);
}

uint64_t mpath_agreed_inline_bytes(const mpath_team_t *team, const mpath_agreed_t *agreed, int source, int destination)
{
    return team->node_of[source] == team->node_of[destination] ? agreed->inline_bytes : agreed->inline_remote_bytes;
}

mpath_status_t mpath_agree_demand(mpath_team_t *team, const mpath_call_t *call, mpath_agreed_t *agreed)
{
    size_t row_bytes           = (size_t)team->size * sizeof(uint64_t);
    mpath_agree_state_t *state = team->agree;
    mpath_status_t status;

    if (agreed->demand != NULL) {
        return MPATH_OK;
    }
    if (state->matrix == NULL) {
        state->matrix = malloc((size_t)team->size * row_bytes);
    }
    if (state->matrix == NULL) {
        mpath_error("%s: no memory for the byte counts of %d ranks; the call fails", team->oob.name, team->size);
        mpath_team_break(team, MPATH_ERR_NO_MEMORY);
        return team->broken;
    }
    status = mpath_team_allgather(team, call->send_bytes, row_bytes, state->matrix);
    if (status == MPATH_OK) {
        agreed->demand = state->matrix;
    }
    return status;
}

/* An agreement of `bytes` bytes, the same number for everybody, which lie in its blocks then. */
static mpath_status_t gather_round(mpath_team_t *team, uint32_t operation, uint32_t flags, const void *mine,
                                   size_t bytes, uint32_t *flags_p)
{
    const mpath_agree_limits_t limits = {0, 0, 0};
    mpath_call_t call                 = {.operation = operation, .flags = flags};
    mpath_status_t status             = agree_begin(team);
    mpath_agree_wait_t wait           = {.uses_own = 0};
    mpath_agree_record_t record;

    if (status != MPATH_OK) {
        return status;
    }
    agree_publish_block(team, &call, mine, bytes);
    status = agree_collect(team, &call, &limits, bytes, &record, &wait);
    if (status == MPATH_OK && team->num_nodes > 1 && team->local_rank == 0) {
        status = mpath_agree_flush(team, 1, &wait);
    }
    *flags_p = status == MPATH_OK ? record.flags : 0;
    return status;
}

/* Of a round of `bytes` bytes from `offset` on: of all ranks, which land in all[rank * stride + offset], */
static void gather_take(const mpath_team_t *team, size_t bytes, char *all, size_t stride, size_t offset)
{
    const char *blocks = mpath_agree_half(team)->blocks;

    for (int rank = 0; rank < team->size; rank++) {
        memcpy(all + (size_t)rank * stride + offset, blocks + (size_t)rank * bytes, bytes);
    }
}

/* and of those of this node and of others that it gathers with, at their places. */
static void gather_take_met(const mpath_team_t *team, size_t bytes, char *all, size_t stride, size_t offset)
{
    const char *blocks = mpath_agree_half(team)->blocks;

    for (int node = 0; node < team->num_nodes; node++) {
        const int *ranks = team->agree->by_node + team->agree->first_on[node];

        if (node != team->node && !mpath_agree_gathers_with(team, node)) {
            continue;
        }
        for (int i = 0; i < team->num_on[node]; i++) {
            memcpy(all + (size_t)mpath_team_place(team, ranks[i]) * stride + offset, blocks + (size_t)ranks[i] * bytes,
                   bytes);
        }
    }
}

/* The same bytes for everybody, as many at a time as a block holds. */
static mpath_status_t gather_blocks(mpath_team_t *team, uint32_t operation, const void *mine, size_t bytes, void *all)
{
    size_t capacity       = team->agree->layout.block_bytes;
    mpath_status_t status = mpath_team_status(team);
    uint32_t flags;

    team->agree->all_here = 1;
    for (size_t done = 0, block; done < bytes && status == MPATH_OK; done += block) {
        block  = bytes - done < capacity ? bytes - done : capacity;
        status = gather_round(team, operation, 0, (const char *)mine + done, block, &flags);
        if (status == MPATH_OK && operation == AGREE_MET) {
            gather_take_met(team, block, all, bytes, done);
        } else if (status == MPATH_OK) {
            gather_take(team, block, all, bytes, done);
        }
    }
    team->agree->all_here = 0;
    return status;
}

mpath_status_t mpath_team_allgather(mpath_team_t *team, const void *mine, size_t bytes, void *all)
{
    return gather_blocks(team, AGREE_GATHER, mine, bytes, all);
}

mpath_status_t mpath_team_gather_met(mpath_team_t *team, int since, const void *mine, size_t bytes, void *all)
{
    team->agree->since = since;
    return gather_blocks(team, AGREE_MET, mine, bytes, all);
}

/* The leader's part; what was said stands in the segment then, behind the numbers. */
static mpath_status_t say_lead(mpath_team_t *team, const mpath_call_t *call, mpath_team_few_t *said,
                               mpath_agree_wait_t *wait)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    mpath_agree_record_t record;
    mpath_status_t status;

    for (int i = 0; i < team->num_local; i++) {
        cell_record(team, i, &record);
        if (agree_differs(team, call, &record, UINT32_MAX)) {
            mpath_team_break(team, MPATH_ERR_PARAM);
            return team->broken;
        }
    }
    status = mpath_agree_nodes_say(team, call, said, wait);
    if (status == MPATH_OK) {
        memcpy(half->blocks, said, sizeof(*said));
        memcpy(half->blocks + sizeof(*said), said->entries, said->num_entries * said->entry_bytes);
        atomic_store_explicit(&half->result->call, team->call, memory_order_release);
        status = mpath_agree_flush(team, 1, wait);
    }
    return status;
}

/* What the leader has left there. */
static mpath_status_t say_follow(mpath_team_t *team, mpath_team_few_t *said, mpath_agree_wait_t *wait)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    mpath_status_t status          = agree_await_result(team, wait);
    mpath_team_few_t all;

    if (status == MPATH_OK) {
        memcpy(&all, half->blocks, sizeof(all));
        memcpy(said->most, all.most, sizeof(said->most));
        said->num_entries = all.num_entries < (size_t)team->num_nodes ? all.num_entries : (size_t)team->num_nodes;
        memcpy(said->entries, half->blocks + sizeof(all), said->num_entries * said->entry_bytes);
    }
    return status;
}

mpath_status_t mpath_team_gather_few(mpath_team_t *team, mpath_team_few_t *said)
{
    const mpath_agree_cell_t cell = {.operation = AGREE_SAYS};
    mpath_call_t call             = {.operation = AGREE_SAYS};
    mpath_status_t status         = agree_begin(team);
    mpath_agree_wait_t wait;

    if (status != MPATH_OK) {
        return status;
    }
    mpath_agree_wait_init(&wait);
    team->agree->all_here = 1;
    cell_publish(team, &cell, &mpath_agree_half(team)->cells[team->local_rank]);
    mpath_agree_wait_start(&wait);
    status = team->local_rank > 0 ? say_follow(team, said, &wait) : agree_await_mates(team, &wait);
    if (status == MPATH_OK && team->local_rank == 0) {
        status = say_lead(team, &call, said, &wait);
    }
    if (status != MPATH_OK) {
        agree_explain(team, &call);
    }
    team->agree->all_here = 0;
    return status;
}

mpath_status_t mpath_team_settle(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all, int *marked_p)
{
    mpath_status_t status = mpath_team_status(team);
    uint32_t flags;

    if (status == MPATH_OK) {
        team->agree->settling = 1;
        status                = gather_round(team, AGREE_GATHER, mark ? MPATH_CALL_MARKED : 0, mine, bytes, &flags);
        team->agree->settling = 0;
    }
    if (status == MPATH_OK) {
        gather_take(team, bytes, all, bytes, 0);
        *marked_p = (flags & MPATH_CALL_MARKED) != 0;
    }
    return status;
}

mpath_status_t mpath_team_settle_again(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all,
                                       int *marked_p)
{
    mpath_status_t status;

    team->agree->all_here = 1;
    status                = mpath_team_settle(team, mark, mine, bytes, all, marked_p);
    team->agree->all_here = 0;
    return status;
}
