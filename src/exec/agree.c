/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement, as every rank sees it: fill my cell, wait for all cells, look at what they say, take the small data. No
 * lock, no system call and no allocation unless a rank is late.
 */
#include "exec/agree_private.h"
#include "util/log.h"

#include <string.h>

/* mpath_team_allgather() is an agreement, too, of this operation. */
#define AGREE_GATHER UINT32_MAX

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull;
    x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44dull;
    return x ^ (x >> 33);
}

/* Terms of the signature are added up, so that it does not matter who adds them in which order. */
static inline uint64_t pair_sum(uint64_t bytes, int source, int destination)
{
    return mix(bytes + mix(((uint64_t)source << 32) + (uint64_t)destination + 1));
}

/* Up to which size my pairs with a node go through the segment; my row is there. */
static uint64_t segment_limit(const mpath_team_t *team, const mpath_agree_limits_t *limits, int node)
{
    return node == team->node ? limits->local_bytes : mpath_agree_by_leader(team, limits, team->rank, node);
}

/* The largest of my pairs that go through the segment. */
static uint64_t find_largest(const mpath_team_t *team, const mpath_agree_limits_t *limits)
{
    const mpath_agree_state_t *state = team->agree;
    const uint64_t *row              = state->demand[state->call & 1] + (size_t)team->rank * (size_t)team->size;
    uint64_t largest                 = 0;

    for (int node = 0; node < team->num_nodes; node++) {
        const int *ranks     = state->by_node + state->first_on[node];
        uint64_t limit_bytes = segment_limit(team, limits, node);

        for (int k = 0; k < team->num_on[node]; k++) {
            uint64_t bytes = row[ranks[k]];

            largest = ranks[k] != team->rank && bytes <= limit_bytes && bytes > largest ? bytes : largest;
        }
    }
    return largest;
}

/* Copies my small pairs with a node to the segment. */
static void copy_small(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits, int node,
                       char *data, uint32_t stride)
{
    const mpath_agree_state_t *state = team->agree;
    const uint64_t *row              = state->demand[state->call & 1] + (size_t)team->rank * (size_t)team->size;
    const int *ranks                 = state->by_node + state->first_on[node];
    uint64_t limit_bytes             = segment_limit(team, limits, node);

    for (int k = 0; k < team->num_on[node]; k++) {
        int to = ranks[k];

        if (to != team->rank && row[to] > 0 && row[to] <= limit_bytes) {
            memcpy(data + (size_t)to * stride, (const char *)call->send_buffer + call->send_offsets[to],
                   (size_t)row[to]);
        }
    }
}

/* Writes my row, my small data and, last, my cell. */
static void agree_publish(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits)
{
    mpath_agree_state_t *state = team->agree;
    int half                   = (int)(state->call & 1);
    mpath_agree_cell_t *cell   = &state->cells[half][team->rank];
    uint64_t *row              = state->demand[half] + (size_t)team->rank * (size_t)team->size;
    char *data                 = mpath_agree_data(team, half, team->rank);
    uint64_t sum = 0, left = 0, largest;

    for (int to = 0; to < team->size; to++) {
        uint64_t bytes = (call->flags & MPATH_CALL_INELIGIBLE) ? 0 : call->send_bytes[to];

        row[to] = bytes;
        if (to != team->rank && bytes > mpath_agree_limit(team, limits, team->rank, to)) {
            sum += pair_sum(bytes, team->rank, to);
            left++;
        }
    }
    largest         = find_largest(team, limits);
    cell->flags     = call->flags;
    cell->operation = call->operation;
    cell->sum       = sum;
    cell->left      = left;
    cell->stride    = mpath_agree_stride(largest);
    /* With device memory nothing will be delivered, see agree_round(). */
    for (int node = 0; node < team->num_nodes && largest > 0 && !(call->flags & MPATH_CALL_DEVICE); node++) {
        copy_small(team, call, limits, node, data, cell->stride);
    }
    atomic_store_explicit(&cell->call, state->call, memory_order_release);
}

/* Do all take part in the same collective? */
static mpath_status_t agree_check_operation(mpath_team_t *team, const mpath_call_t *call, const int *ranks, int count)
{
    const mpath_agree_state_t *state = team->agree;

    for (int i = 0; i < count; i++) {
        int rank           = ranks != NULL ? ranks[i] : i;
        uint32_t operation = state->cells[state->call & 1][rank].operation;

        if (operation != call->operation) {
            mpath_error("%s: in call %u rank %d (%s) calls collective %u and rank %d collective %u; the call fails",
                        team->oob.name, state->call, rank, mpath_team_host(team, rank), operation, team->rank,
                        call->operation);
            mpath_team_break(team, MPATH_ERR_PARAM);
            return team->broken;
        }
    }
    return MPATH_OK;
}

/* Waits until all cells are there; the leader carries them between the nodes. */
static mpath_status_t agree_collect(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits)
{
    int leads = team->local_rank == 0 && team->num_nodes > 1;
    mpath_agree_wait_t wait;
    mpath_status_t status;

    memset(&wait, 0, sizeof(wait));
    mpath_agree_wait_start(&wait, team);
    status = mpath_agree_own_send(team, call, limits, &wait);
    if (status != MPATH_OK) {
        return status;
    }
    if (leads) {
        status = mpath_agree_await(team, call, limits, team->local, team->num_local, &wait);
        if (status != MPATH_OK) {
            return status;
        }
        status = agree_check_operation(team, call, team->local, team->num_local);
        if (status != MPATH_OK) {
            return status;
        }
        status = mpath_agree_send(team, call, limits, &wait);
        if (status != MPATH_OK) {
            return status;
        }
        team->agree->settling = 0;
    }
    status = mpath_agree_await(team, call, limits, NULL, team->size, &wait);
    if (status == MPATH_OK) {
        status = mpath_agree_own_await(team, limits, &wait);
    }
    if (status == MPATH_OK && (leads || wait.uses_own)) {
        status = mpath_agree_flush(team, &wait);
    }
    return status == MPATH_OK ? agree_check_operation(team, call, NULL, team->size) : status;
}

/* Adds up what the cells say. */
static void agree_evaluate(const mpath_team_t *team, const mpath_agree_limits_t *limits, mpath_agreed_t *agreed)
{
    const mpath_agree_state_t *state = team->agree;
    const mpath_agree_cell_t *cells  = state->cells[state->call & 1];
    uint64_t sum = 0, left = 0;
    uint32_t flags = 0;

    for (int rank = 0; rank < team->size; rank++) {
        flags |= cells[rank].flags;
        sum += cells[rank].sum;
        left += cells[rank].left;
    }
    agreed->call                = state->call;
    agreed->flags               = flags;
    agreed->demand              = state->demand[state->call & 1];
    agreed->signature           = sum + mix(flags & ~(uint32_t)MPATH_CALL_SLOW); /* which says nothing of this call */
    agreed->finished            = left == 0 && !(flags & MPATH_CALL_DEVICE);
    agreed->inline_bytes        = (flags & MPATH_CALL_DEVICE) ? 0 : limits->local_bytes;
    agreed->inline_remote_bytes = (flags & MPATH_CALL_DEVICE) ? 0 : limits->remote_bytes;
}

static mpath_status_t agree_mismatch(mpath_team_t *team, int source, uint64_t sent_bytes, uint64_t expected_bytes)
{
    mpath_error("%s: in call %u rank %d (%s) sends %llu bytes to rank %d, which expects %llu; the call fails",
                team->oob.name, team->agree->call, source, mpath_team_host(team, source),
                (unsigned long long)sent_bytes, team->rank, (unsigned long long)expected_bytes);
    mpath_team_break(team, MPATH_ERR_TRUNCATED);
    return MPATH_ERR_TRUNCATED;
}

/* Checks what the others send me against what I expect. */
static mpath_status_t agree_check_sizes(mpath_team_t *team, const mpath_call_t *call)
{
    const mpath_agree_state_t *state = team->agree;
    size_t size                      = (size_t)team->size;
    const uint64_t *column           = state->demand[state->call & 1] + team->rank;

    for (int source = 0; source < team->size; source++) {
        if (column[(size_t)source * size] != call->recv_bytes[source]) {
            return agree_mismatch(team, source, column[(size_t)source * size], call->recv_bytes[source]);
        }
    }
    return MPATH_OK;
}

/* Takes the small data. */
static void agree_deliver(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits)
{
    const mpath_agree_state_t *state = team->agree;
    int half                         = (int)(state->call & 1);

    for (int source = 0; source < team->size; source++) {
        uint64_t bytes = call->recv_bytes[source];

        if (bytes > 0 && bytes <= mpath_agree_limit(team, limits, source, team->rank) && source != team->rank) {
            int slot = mpath_agree_is_local(team, source) ? team->rank : team->local_rank;

            memcpy((char *)call->recv_buffer + call->recv_offsets[source],
                   mpath_agree_data(team, half, source) + (size_t)slot * state->cells[half][source].stride,
                   (size_t)bytes);
        }
    }
}

static mpath_status_t agree_round(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                  mpath_agreed_t *agreed)
{
    mpath_agreed_t result;
    mpath_status_t status;

    if (team->broken != MPATH_OK || atomic_load_explicit(&team->header->broken, memory_order_relaxed) != 0) {
        return mpath_team_status(team);
    }
    team->agree->call++;
    agree_publish(team, call, limits);
    status = agree_collect(team, call, limits);
    if (status != MPATH_OK) {
        return status;
    }
    agree_evaluate(team, limits, &result);
    if (!(result.flags & MPATH_CALL_INELIGIBLE)) {
        status = agree_check_sizes(team, call);
        if (status == MPATH_OK && !(result.flags & MPATH_CALL_DEVICE)) {
            agree_deliver(team, call, limits);
        }
    }
    if (status == MPATH_OK) {
        *agreed = result;
    }
    return status;
}

mpath_status_t mpath_agree(mpath_team_t *team, const mpath_call_t *call, mpath_agreed_t *agreed)
{
    return agree_round(team, call, &team->agree->layout.limits, agreed);
}

uint64_t mpath_agreed_inline_bytes(const mpath_team_t *team, const mpath_agreed_t *agreed, int source, int destination)
{
    return team->node_of[source] == team->node_of[destination] ? agreed->inline_bytes : agreed->inline_remote_bytes;
}

/* An agreement of `bytes` bytes, the same number for everybody; they land in all[offset + rank * stride]. */
static mpath_status_t gather_round(mpath_team_t *team, uint32_t flags, const void *mine, size_t bytes, void *all,
                                   size_t stride, size_t offset, mpath_agreed_t *agreed)
{
    mpath_agree_state_t *state = team->agree;
    size_t size                = (size_t)team->size;
    uint64_t *sizes = state->scratch, *zeros = sizes + size, *offsets = zeros + size;
    mpath_call_t call           = {.operation    = AGREE_GATHER,
                                   .flags        = flags,
                                   .send_bytes   = sizes,
                                   .send_offsets = zeros,
                                   .send_buffer  = (const char *)mine + offset,
                                   .recv_bytes   = sizes,
                                   .recv_offsets = offsets,
                                   .recv_buffer  = all};
    mpath_agree_limits_t limits = {state->layout.capacity, state->layout.capacity, state->layout.capacity};

    for (size_t rank = 0; rank < size; rank++) {
        sizes[rank]   = bytes;
        offsets[rank] = rank * stride + offset;
    }
    return agree_round(team, &call, &limits, agreed);
}

/* The same bytes for everybody, as many at a time as a cell has room for. */
mpath_status_t mpath_team_allgather(mpath_team_t *team, const void *mine, size_t bytes, void *all)
{
    size_t capacity       = team->agree->layout.capacity;
    mpath_status_t status = mpath_team_status(team);
    mpath_agreed_t agreed;

    team->agree->all_here = 1;
    for (size_t done = 0; done < bytes && status == MPATH_OK;) {
        size_t piece = bytes - done < capacity ? bytes - done : capacity;

        status = gather_round(team, 0, mine, piece, all, bytes, done, &agreed);
        done += piece;
    }
    team->agree->all_here = 0;
    if (status == MPATH_OK && bytes > 0) {
        memcpy((char *)all + (size_t)team->rank * bytes, mine, bytes);
    }
    return status;
}

mpath_status_t mpath_team_settle(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all, int *marked_p)
{
    mpath_status_t status = mpath_team_status(team);
    mpath_agreed_t agreed;

    if (status == MPATH_OK) {
        team->agree->settling = 1;
        status                = gather_round(team, mark ? MPATH_CALL_MARKED : 0, mine, bytes, all, bytes, 0, &agreed);
        team->agree->settling = 0;
    }
    if (status == MPATH_OK) {
        memcpy((char *)all + (size_t)team->rank * bytes, mine, bytes);
        *marked_p = (agreed.flags & MPATH_CALL_MARKED) != 0;
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

int mpath_team_marked(const mpath_team_t *team)
{
    const mpath_agree_state_t *state = team->agree;
    const mpath_agree_cell_t *cells  = state->cells[(state->call + 1) & 1];

    /* Those of other nodes are there when the leader, who is through with its own part, has received them. */
    for (int rank = 0; rank < team->size; rank++) {
        if (atomic_load_explicit(&cells[rank].call, memory_order_acquire) == state->call + 1 &&
            (cells[rank].flags & MPATH_CALL_MARKED)) {
            return 1;
        }
    }
    return mpath_agree_remote_marked(team);
}

uint32_t mpath_team_call(const mpath_team_t *team)
{
    return team->agree->call;
}
