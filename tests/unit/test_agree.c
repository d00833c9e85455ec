/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement on 1 to 16 ranks and 1 to 4 virtual nodes: random matrices and rewritten buffers over many calls, against
 * contents computed from source, destination and call. Every rank knows every matrix: it is a function of the call.
 */
#include "exec/agree.h"
#include "exec/channel.h"
#include "exec/team_private.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_PAIR 6000 /* more than small_bytes: some pairs stay outside */
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

typedef struct job {
    int calls;
    uint64_t small_bytes;
    uint64_t leader_bytes; /* 0: the default */
    int affine;            /* ranks send what is too much for the leaders by themselves */
} job_t;

typedef struct buffers {
    mpath_call_t call;
    uint64_t *send_bytes, *send_offsets, *recv_bytes, *recv_offsets;
    unsigned char *send, *recv;
    size_t recv_room;
} buffers_t;

static uint64_t hash(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = (a * 0x9e3779b97f4a7c15ull + b) * 0xbf58476d1ce4e5b9ull + c;

    x = (x ^ (x >> 30)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

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

static void buffers_init(buffers_t *b, int size)
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

static void buffers_free(buffers_t *b)
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

static void demand_check(const mpath_team_t *team, const mpath_agreed_t *agreed, int call)
{
    int left = 0, size = mpath_team_size(team);

    for (int s = 0; s < size; s++) {
        for (int d = 0; d < size; d++) {
            uint64_t bytes = pair_bytes(call, size, s, d);

            ranks_check(agreed->demand[s * size + d] == bytes);
            left += s != d && bytes > mpath_agreed_inline_bytes(team, agreed, s, d);
        }
    }
    ranks_check(agreed->finished == (left == 0));
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

static int random_body(ranks_self_t *self, void *argument)
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
            demand_check(team, &agreed, call);
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

static void run_random(int size, int nodes, int calls, uint64_t small_bytes)
{
    job_t job           = {.calls = calls, .small_bytes = small_bytes};
    ranks_setup_t setup = {.size = size, .nodes = nodes};

    assert_int_equal(ranks_run(&setup, random_body, &job), 0);
}

static void test_one_node(void **state)
{
    (void)state;
    run_random(2, 1, 500, 4096);
    run_random(3, 1, 300, 4096);
    run_random(8, 1, 150, 4096);
    run_random(16, 1, 60, 4096);
}

static void test_several_nodes(void **state)
{
    (void)state;
    run_random(2, 2, 500, 4096);
    run_random(4, 4, 300, 4096);
    run_random(5, 2, 300, 4096);
    run_random(8, 2, 150, 4096);
    run_random(16, 4, 60, 4096);
}

static void test_small_bytes(void **state)
{
    (void)state;
    run_random(4, 2, 100, 0);
    run_random(4, 2, 100, 1);
    run_random(4, 2, 100, 100); /* no multiple of 8 */
    run_random(4, 2, 100, 65536);
}

/* Between nodes nothing, less than, or as much as on them travels inside. */
static void test_leader_bytes(void **state)
{
    const uint64_t leader_bytes[] = {1, 4000, 1 << 20};

    (void)state;
    for (int i = 0; i < 3; i++) {
        job_t job           = {.calls = 100, .small_bytes = 4096, .leader_bytes = leader_bytes[i]};
        ranks_setup_t setup = {.size = 6, .nodes = 2};

        assert_int_equal(ranks_run(&setup, random_body, &job), 0);
    }
}

/* Ranks of a node that do not follow each other, nodes of unequal size. */
static void test_interleaved(void **state)
{
    const int dealt[]   = {2, 0, 1, 0, 2, 0, 0};
    job_t job           = {.calls = 150, .small_bytes = 4096};
    ranks_setup_t setup = {.size = 7, .node_of = dealt};

    (void)state;
    assert_int_equal(ranks_run(&setup, random_body, &job), 0);
}

/*
 * 8 bytes per pair, thousands of times, the buffer rewritten at once after each call: no call may read another call's
 * data.
 */
static int rewrite_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    uint64_t bytes[RANKS_MAX], offsets[RANKS_MAX], out[RANKS_MAX], in[RANKS_MAX];
    mpath_call_t call = {.operation    = 1,
                         .send_bytes   = bytes,
                         .send_offsets = offsets,
                         .send_buffer  = out,
                         .recv_bytes   = bytes,
                         .recv_offsets = offsets,
                         .recv_buffer  = in};
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;

    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    for (int rank = 0; rank < self->size; rank++) {
        bytes[rank]   = 8;
        offsets[rank] = 8 * (uint64_t)rank;
    }
    for (int i = 0; i < job->calls; i++) {
        mpath_agreed_t agreed;

        for (int rank = 0; rank < self->size; rank++) {
            out[rank] = hash((uint64_t)i, (uint64_t)self->rank, (uint64_t)rank);
        }
        ranks_check(mpath_agree(team, &call, &agreed) == MPATH_OK);
        memset(out, 0, sizeof(out));
        ranks_check(agreed.finished);
        for (int rank = 0; rank < self->size; rank++) {
            ranks_check(rank == self->rank || in[rank] == hash((uint64_t)i, (uint64_t)rank, (uint64_t)self->rank));
        }
    }
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_rewrite(void **state)
{
    job_t job           = {.calls = 3000};
    ranks_setup_t setup = {.size = 4, .nodes = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, rewrite_body, &job), 0);
    setup.nodes = 2;
    job.calls   = 600;
    assert_int_equal(ranks_run(&setup, rewrite_body, &job), 0);
}

/* Ranks send by themselves what is too much for the leaders: takers of one, of several and of no rank. */
static void test_own(void **state)
{
    const int dealt[] = {2, 0, 1, 0, 2, 0, 0}, few_lead[] = {0, 1, 1, 1, 1, 1};
    const ranks_setup_t setups[] = {{.size = 8, .nodes = 2},
                                    {.size = 9, .nodes = 3},
                                    {.size = 5, .nodes = 2},
                                    {.size = 7, .node_of = dealt},
                                    {.size = 6, .node_of = few_lead}};

    (void)state;
    for (size_t i = 0; i < sizeof(setups) / sizeof(setups[0]); i++) {
        job_t job = {.calls = 60, .small_bytes = 4096, .affine = 1};

        assert_int_equal(ranks_run(&setups[i], random_body, &job), 0);
        job.leader_bytes = 3000;
        assert_int_equal(ranks_run(&setups[i], random_body, &job), 0);
    }
}

/* How far pairs between nodes of 4 ranks travel inside, and that the data of the largest has arrived. */
static int limits_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_agreed_t agreed;
    mpath_team_t *team;
    buffers_t b;

    mpath_settings_init(&settings);
    settings.access = job->affine ? MPATH_ACCESS_AFFINE : MPATH_ACCESS_ALL;
    context         = ranks_context(self, &settings);
    team            = ranks_team(self, context);
    buffers_init(&b, self->size);
    for (int other = 0; other < self->size; other++) {
        b.send_bytes[other] = b.recv_bytes[other] = job->affine ? 4096 : 1024;
        b.send_offsets[other] = b.recv_offsets[other] = (uint64_t)other * 4096;
    }
    for (int call = 0; call < job->calls; call++) {
        memset(b.send, self->rank + call, (size_t)self->size * 4096);
        ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK);
        memset(b.send, 0, (size_t)self->size * 4096);
        ranks_check(agreed.finished && agreed.inline_remote_bytes == b.send_bytes[0]);
        for (int other = 0; other < self->size; other++) {
            const unsigned char *from = b.recv + b.recv_offsets[other];

            ranks_check(other == self->rank || (from[0] == (unsigned char)(other + call) &&
                                                memcmp(from, from + 1, b.recv_bytes[other] - 1) == 0));
        }
    }
    buffers_free(&b);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_limits(void **state)
{
    ranks_setup_t setup = {.size = 8, .nodes = 2};
    job_t job           = {.calls = 50};

    (void)state;
    assert_int_equal(ranks_run(&setup, limits_body, &job), 0);
    job.affine = 1;
    assert_int_equal(ranks_run(&setup, limits_body, &job), 0);
}

static mpath_status_t (*really_send)(void *context, int to, const void *data, size_t bytes,
                                     mpath_oob_request_t *request);

/* Loses what ranks send by themselves. */
static mpath_status_t lossy_send(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request)
{
    mpath_message_t message = {0};

    memcpy(&message, data, bytes < sizeof(message) ? bytes : sizeof(message));
    if (message.magic == MPATH_MESSAGE_MAGIC && message.type == MPATH_MESSAGE_OWN) {
        request->handle = NULL;
        return MPATH_OK;
    }
    return really_send(context, to, data, bytes, request);
}

/* A row announces data that does not come: an error on every rank that lacks it, and no wait without end. */
static int lost_body(ranks_self_t *self, void *argument)
{
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_agreed_t agreed;
    mpath_team_t *team;
    buffers_t b;

    (void)argument;
    mpath_settings_init(&settings);
    settings.access    = MPATH_ACCESS_AFFINE;
    settings.timeout_s = 3;
    if (self->rank == 1) {
        really_send     = self->oob.isend;
        self->oob.isend = lossy_send;
    }
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    buffers_init(&b, self->size);
    for (int other = 0; other < self->size; other++) {
        b.send_offsets[other] = b.recv_offsets[other] = (uint64_t)other * 4096;
    }
    ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK);
    if (self->rank == 1) {
        b.send_bytes[self->size - 1] = 8192;
    }
    if (self->rank == self->size - 1) {
        b.recv_bytes[1] = 8192;
    }
    ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK && !agreed.finished);
    if (self->rank == 1) {
        b.send_bytes[self->size - 1] = 3000;
    }
    if (self->rank == self->size - 1) {
        b.recv_bytes[1] = 3000;
    }
    if (self->rank >= self->size / 2 && self->rank % 4 == 1) { /* the taker */
        ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_ERR_TIMED_OUT);
    } else if (self->rank == self->size - 1) { /* sees the deadline itself, or hears of it */
        ranks_check(mpath_status_is_error(mpath_agree(team, &b.call, &agreed)));
    } else {
        (void)mpath_agree(team, &b.call, &agreed);
    }
    ranks_barrier(self);
    buffers_free(&b);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_own_lost(void **state)
{
    ranks_setup_t setup = {.size = 8, .nodes = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, lost_body, NULL), 0);
}

static uint64_t signature_of(mpath_team_t *team, buffers_t *b, uint64_t far_pair, int rank, int size)
{
    mpath_agreed_t agreed;

    for (int other = 0; other < size; other++) {
        b->send_bytes[other] = b->recv_bytes[other] = 0;
    }
    if (rank == 0) {
        b->send_bytes[size - 1] = far_pair;
    }
    if (rank == size - 1) {
        b->recv_bytes[0] = far_pair;
    }
    ranks_check(mpath_agree(team, &b->call, &agreed) == MPATH_OK);
    return agreed.signature;
}

/* The signature tells demands apart, but only by what is left of them. */
static int signature_body(ranks_self_t *self, void *argument)
{
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    uint64_t none, small, large, larger;
    buffers_t b;

    (void)argument;
    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    buffers_init(&b, self->size);
    none   = signature_of(team, &b, 0, self->rank, self->size);
    small  = signature_of(team, &b, 4096, self->rank, self->size);
    large  = signature_of(team, &b, 4097, self->rank, self->size);
    larger = signature_of(team, &b, 4098, self->rank, self->size);
    ranks_check(none == small && small != large && large != larger && small != larger);
    ranks_check(large == signature_of(team, &b, 4097, self->rank, self->size));
    buffers_free(&b);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_signature(void **state)
{
    ranks_setup_t setup = {.size = 4, .nodes = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, signature_body, NULL), 0);
}

/* mpath_team_allgather() of more than a cell holds, between calls whose demand stays what it was. */
static int gather_body(ranks_self_t *self, void *argument)
{
    enum { BYTES = 10001 };
    static unsigned char mine[BYTES], all[BYTES * RANKS_MAX];
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;

    (void)argument;
    mpath_settings_init(&settings);
    settings.small_bytes = 8;
    context              = ranks_context(self, &settings);
    team                 = ranks_team(self, context);
    for (size_t i = 0; i < BYTES; i++) {
        mine[i] = (unsigned char)(i * 3 + (size_t)self->rank * 101);
    }
    ranks_check(mpath_team_allgather(team, mine, BYTES, all) == MPATH_OK);
    ranks_check(mpath_team_allgather(team, mine, 0, all) == MPATH_OK);
    for (size_t rank = 0; rank < (size_t)self->size; rank++) {
        for (size_t i = 0; i < BYTES; i++) {
            ranks_check(all[rank * BYTES + i] == (unsigned char)(i * 3 + rank * 101));
        }
    }
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_gather(void **state)
{
    ranks_setup_t setup = {.size = 6, .nodes = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, gather_body, NULL), 0);
    setup.nodes = 3;
    assert_int_equal(ranks_run(&setup, gather_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node),     cmocka_unit_test(test_several_nodes), cmocka_unit_test(test_small_bytes),
        cmocka_unit_test(test_leader_bytes), cmocka_unit_test(test_rewrite),       cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_signature),    cmocka_unit_test(test_gather),        cmocka_unit_test(test_own),
        cmocka_unit_test(test_limits),       cmocka_unit_test(test_own_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
