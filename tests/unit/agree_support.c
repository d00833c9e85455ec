/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of random matrices, their buffers, and what is in them afterwards. */
#include "agree_support.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 16
#define GUARD_BYTE 0xa5

enum {
    SHAPE_DENSE,
    SHAPE_SPARSE,
    SHAPE_HOT,
    SHAPE_ZERO_ROW,
    SHAPE_ZERO_COLUMN,
    SHAPE_ZERO,
    SHAPE_DIAGONAL,
    SHAPE_TINY,
    SHAPES
};

uint64_t hash(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = (a * 0x9e3779b97f4a7c15ull + b) * 0xbf58476d1ce4e5b9ull + c;

    x = (x ^ (x >> 30)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* Of the matrix of a call. */
static uint64_t pair_bytes(int call, int size, int source, int destination)
{
    int shape = (int)(hash((uint64_t)call, 1, 1) % SHAPES), chosen = (int)(hash((uint64_t)call, 2, 2) % (uint64_t)size);
    uint64_t draw = hash((uint64_t)call, (uint64_t)source, (uint64_t)destination + 100);

    switch (shape) {
    case SHAPE_DENSE:
        return draw % MAX_PAIR;
    case SHAPE_SPARSE:
        return draw % 4 == 0 ? (draw >> 8) % MAX_PAIR : 0;
    case SHAPE_HOT:
        return destination == chosen ? MAX_PAIR : draw % 64;
    case SHAPE_ZERO_ROW:
        return source == chosen ? 0 : draw % 200;
    case SHAPE_ZERO_COLUMN:
        return destination == chosen ? 0 : draw % 200;
    case SHAPE_ZERO:
        return 0;
    case SHAPE_DIAGONAL:
        return source == destination ? draw % MAX_PAIR : 0;
    default:
        return draw % 17;
    }
}

static unsigned char pattern(int call, int source, int destination, uint64_t i)
{
    return (unsigned char)(call * 7 + source * 31 + destination * 17 + (int)i);
}

void buffers_init(buffers_t *b, int size)
{
    size_t n = (size_t)size;

    memset(b, 0, sizeof(*b));
    b->recv_room    = n * (MAX_PAIR + GUARD) + GUARD;
    b->send_bytes   = calloc(n, sizeof(uint64_t));
    b->send_offsets = calloc(n, sizeof(uint64_t));
    b->recv_bytes   = calloc(n, sizeof(uint64_t));
    b->recv_offsets = calloc(n, sizeof(uint64_t));
    b->send         = malloc(n * MAX_PAIR);
    b->recv         = malloc(b->recv_room);
    ranks_check(b->send_bytes && b->send_offsets && b->recv_bytes && b->recv_offsets && b->send && b->recv);
    b->call = (mpath_call_t){.operation    = 1,
                             .send_bytes   = b->send_bytes,
                             .send_offsets = b->send_offsets,
                             .send_buffer  = b->send,
                             .recv_bytes   = b->recv_bytes,
                             .recv_offsets = b->recv_offsets,
                             .recv_buffer  = b->recv};
}

void buffers_free(buffers_t *b)
{
    free(b->send_bytes);
    free(b->send_offsets);
    free(b->recv_bytes);
    free(b->recv_offsets);
    free(b->send);
    free(b->recv);
}

/* Sends lie in reverse order, receives in order with guards between. */
static void buffers_fill(buffers_t *b, int call, int rank, int size)
{
    uint64_t at = 0;

    for (int to = size - 1; to >= 0; to--) {
        b->send_bytes[to]   = pair_bytes(call, size, rank, to);
        b->send_offsets[to] = at;
        for (uint64_t i = 0; i < b->send_bytes[to]; i++) {
            b->send[at + i] = pattern(call, rank, to, i);
        }
        at += b->send_bytes[to];
    }
    at = GUARD;
    for (int from = 0; from < size; from++) {
        b->recv_bytes[from]   = pair_bytes(call, size, from, rank);
        b->recv_offsets[from] = at;
        at += b->recv_bytes[from] + GUARD;
    }
    memset(b->recv, GUARD_BYTE, at);
    b->recv_room = at;
}

/* What was small has arrived; everything else in the buffer is as it was. */
static void buffers_check(const buffers_t *b, int call, const mpath_team_t *team, const mpath_agreed_t *agreed,
                          int delivered)
{
    int rank = mpath_team_rank(team), size = mpath_team_size(team);
    size_t next = 0;

    for (int from = 0; from < size; from++) {
        uint64_t bytes = b->recv_bytes[from];

        for (; next < b->recv_offsets[from]; next++) {
            ranks_check(b->recv[next] == GUARD_BYTE);
        }
        for (uint64_t i = 0; i < bytes; i++, next++) {
            int arrived = delivered && from != rank && bytes <= mpath_agreed_inline_bytes(team, agreed, from, rank);

            ranks_check(b->recv[next] == (arrived ? pattern(call, from, rank, i) : GUARD_BYTE));
        }
    }
    for (; next < b->recv_room; next++) {
        ranks_check(b->recv[next] == GUARD_BYTE);
    }
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What the pairs that are left ask of ranks, nodes and NICs, and what this node's ranks have said of theirs. */
static void load_check(const mpath_team_t *team, const mpath_agreed_t *agreed, int call)
{
    const mpath_topo_t *topo = mpath_team_topo(team);
    int size = mpath_team_size(team), my_node = mpath_topo_place(topo, mpath_team_rank(team))->node, place = 0;
    uint64_t nodes[RANKS_MAX][2] = {{0}}, nics[RANKS_MAX][8][2] = {{{0}}};
    uint64_t rank_bytes = 0, cross_bytes = 0, node_bytes = 0, static_bytes = 0;

    for (int rank = 0; rank < size; rank++) {
        uint64_t bytes[2] = {0, 0}, away[2] = {0, 0};

        for (int other = 0; other < size; other++) {
            int node = mpath_topo_place(topo, rank)->node, crosses = mpath_topo_place(topo, other)->node != node;

            for (int in = 0; in < 2; in++) {
                int from = in ? other : rank, to = in ? rank : other;
                uint64_t left        = pair_bytes(call, size, from, to);
                const uint64_t *rows = in ? agreed->node_receives : agreed->node_sends;

                left = rank != other && left > mpath_agreed_inline_bytes(team, agreed, from, to) ? left : 0;
                bytes[in] += left;
                away[in] += crosses ? left : 0;
                nodes[node][in] += crosses ? left : 0;
                nics[node][mpath_topo_place(topo, from)->nic & 7][in] += crosses ? left : 0;
                ranks_check(node != my_node || rows == NULL || rows[place * size + other] == left);
            }
        }
        place += mpath_topo_place(topo, rank)->node == my_node;
        rank_bytes  = most(rank_bytes, most(bytes[0], bytes[1]));
        cross_bytes = most(cross_bytes, most(away[0], away[1]));
    }
    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        node_bytes = most(node_bytes, most(nodes[node][0], nodes[node][1]));
        for (int nic = 0; nic < 8; nic++) {
            static_bytes = most(static_bytes, most(nics[node][nic][0], nics[node][nic][1]));
        }
    }
    ranks_check(agreed->busiest_bytes == rank_bytes && agreed->cross_bytes == cross_bytes);
    ranks_check((agreed->node_sends != NULL) ==
                (mpath_topo_num_nodes(topo) > 1 && mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo)));
    if (agreed->node_sends != NULL) {
        ranks_check(agreed->node_bytes == node_bytes && agreed->static_bytes == static_bytes);
    }
}

static void demand_check(mpath_team_t *team, const buffers_t *b, mpath_agreed_t *agreed, int call)
{
    int left = 0, size = mpath_team_size(team);
    uint64_t largest = 0;

    ranks_check(mpath_agree_demand(team, &b->call, agreed) == MPATH_OK);

    for (int s = 0; s < size; s++) {
        for (int d = 0; d < size; d++) {
            uint64_t bytes = pair_bytes(call, size, s, d);

            ranks_check(agreed->demand[s * size + d] == bytes);
            left += s != d && bytes > mpath_agreed_inline_bytes(team, agreed, s, d);
            largest = s != d && bytes > largest ? bytes : largest;
        }
    }
    ranks_check(agreed->finished == (left == 0) && agreed->largest_bytes == largest);
}

/* The same on all ranks? */
static void same_check(mpath_team_t *team, const mpath_agreed_t *agreed)
{
    uint64_t mine[2] = {agreed->signature, agreed->flags}, all[2 * RANKS_MAX];

    ranks_check(mpath_team_allgather(team, mine, sizeof(mine), all) == MPATH_OK);
    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        ranks_check(memcmp(mine, &all[2 * rank], sizeof(mine)) == 0);
    }
}

int random_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    buffers_t b;

    mpath_settings_init(&settings);
    settings.small_bytes = job->small_bytes;
    if (job->leader_bytes > 0) {
        settings.leader_bytes = job->leader_bytes;
    }
    settings.access = job->affine ? MPATH_ACCESS_AFFINE : MPATH_ACCESS_ALL;
    context         = ranks_context(self, &settings);
    team            = ranks_team(self, context);
    buffers_init(&b, self->size);
    for (int call = 0; call < job->calls; call++) {
        int ineligible = hash((uint64_t)call, 3, 3) % 8 == 0;
        int device     = hash((uint64_t)call, 5, 5) % 8 == 0;
        int chosen     = (int)(hash((uint64_t)call, 4, 4) % (uint64_t)self->size);
        mpath_agreed_t agreed;

        buffers_fill(&b, call, self->rank, self->size);
        b.call.flags = ineligible && self->rank == chosen ? MPATH_CALL_INELIGIBLE : 0;
        b.call.flags |= device && self->rank == chosen ? MPATH_CALL_DEVICE : 0;
        ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK);
        ranks_check(agreed.inline_bytes == (device ? 0 : job->small_bytes));
        ranks_check(((agreed.flags & MPATH_CALL_INELIGIBLE) != 0) == ineligible);
        ranks_check(((agreed.flags & MPATH_CALL_DEVICE) != 0) == device);
        ranks_check(agreed.inline_remote_bytes <= agreed.inline_bytes);
        buffers_check(&b, call, team, &agreed, !ineligible && !device);
        if (!ineligible && !device) {
            load_check(team, &agreed, call);
            demand_check(team, &b, &agreed, call);
        }
        if (call % 16 == 0) {
            same_check(team, &agreed);
        }
    }
    buffers_free(&b);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}
