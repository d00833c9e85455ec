/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement on 1 to 16 ranks and 1 to 4 virtual nodes: random matrices and rewritten buffers over many calls, against
 * contents computed from source, destination and call. Every rank knows every matrix: it is a function of the call.
 */
#include "agree_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void run_random(int size, int nodes, int calls, uint64_t small_bytes)
{
    job_t job           = {.calls = calls, .small_bytes = small_bytes};
    ranks_setup_t setup = {.size = size, .nodes = nodes, .nics = 3};

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

/* Leaders talk in rounds, for any number of nodes. */
static void test_many_nodes(void **state)
{
    (void)state;
    for (int nodes = 5; nodes <= 10; nodes++) {
        run_random(nodes, nodes, 100, 4096);
    }
    run_random(14, 7, 60, 4096);
    run_random(19, 12, 40, 4096);
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
    ranks_setup_t setup = {.size = 7, .node_of = dealt, .nics = 2};

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
    setup.size = 9;
    for (setup.nodes = 5; setup.nodes <= 9; setup.nodes++) {
        assert_int_equal(ranks_run(&setup, gather_body, NULL), 0);
    }
}

/* Who is near: alike from both ends, all of few nodes, few of many. */
static void test_near(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 1024; nodes++) {
        int rounds = 0, count = 0;

        while (1 << rounds < nodes) {
            rounds++;
        }
        assert_false(mpath_team_is_near(nodes, nodes - 1, nodes - 1));
        for (int other = 0; other < nodes; other++) {
            int near = mpath_team_is_near(nodes, nodes / 2, other);

            assert_int_equal(near, mpath_team_is_near(nodes, other, nodes / 2));
            assert_true(near || nodes > 7 || other == nodes / 2);
            count += near;
        }
        assert_true(count <= 6 * rounds);
        for (int round = 0; round < rounds; round++) {
            assert_true(mpath_team_is_near(nodes, 0, 1 << round));
            assert_true(mpath_team_is_near(nodes, 0, (nodes + (1 << round)) >> (round + 1)));
        }
    }
    assert_true(mpath_team_is_near(512, 500, 4)); /* 16 further */
    assert_false(mpath_team_is_near(512, 500, 5));
}

enum { MET_BYTES = 10001, UNTOUCHED = 0xa5 };

static unsigned char met_byte(size_t i, int rank, int round)
{
    return (unsigned char)(i * 3 + (size_t)rank * 101 + (size_t)round);
}

/* Gathers among nodes that are met from place `since` on: what these say is at their places, and nothing is written elsewhere. */
static void check_met(const ranks_self_t *self, mpath_team_t *team, int since, int round)
{
    static unsigned char mine[MET_BYTES], all[MET_BYTES * RANKS_MAX];
    int num_met = mpath_team_num_met(team);

    for (size_t i = 0; i < MET_BYTES; i++) {
        mine[i] = met_byte(i, self->rank, round);
    }
    memset(all, UNTOUCHED, sizeof(all));
    ranks_check(mpath_team_gather_met(team, since, mine, MET_BYTES, all) == MPATH_OK);
    for (int rank = 0; rank < self->size; rank++) {
        int node = mpath_topo_place(mpath_team_topo(team), rank)->node, place = mpath_team_place(team, rank);

        ranks_check(place < num_met);
        for (size_t i = 0; place >= 0 && i < MET_BYTES; i++) {
            ranks_check(all[(size_t)place * MET_BYTES + i] ==
                        (place >= since || node == self->node ? met_byte(i, rank, round) : UNTOUCHED));
        }
    }
    for (size_t i = (size_t)num_met * MET_BYTES; i < sizeof(all); i++) {
        ranks_check(all[i] == UNTOUCHED);
    }
}

/* Nodes meet: near ones, then others, of which some nodes have none. */
static int met_body(ranks_self_t *self, void *argument)
{
    const ranks_setup_t *setup = argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    int near;

    mpath_settings_init(&settings);
    settings.small_bytes = 8;
    context              = ranks_context(self, &settings);
    team                 = ranks_team(self, context);
    near                 = mpath_team_num_met(team);
    for (int rank = 0; rank < self->size; rank++) {
        int node = mpath_topo_place(mpath_team_topo(team), rank)->node;

        ranks_check((mpath_team_place(team, rank) >= 0) ==
                    (node == self->node || mpath_team_is_near(setup->nodes, self->node, node)));
    }
    check_met(self, team, 0, 0);
    for (int node = 0; node < setup->nodes; node++) {
        if ((node + self->node) % 3 == 0) {
            mpath_team_meet(team, node);
        }
    }
    check_met(self, team, near, 1);
    check_met(self, team, mpath_team_num_met(team), 2);
    check_met(self, team, 0, 3);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_gather_met(void **state)
{
    const int uneven[] = {0, 1, 2, 3, 4, 5, 6, 7, 3, 3, 0};
    ranks_setup_t one = {.size = 3, .nodes = 1}, setup = {.size = 12};
    ranks_setup_t unequal = {.size = 11, .nodes = 8, .node_of = uneven};

    (void)state;
    assert_int_equal(ranks_run(&one, met_body, &one), 0);
    for (setup.nodes = 2; setup.nodes <= 12; setup.nodes += setup.nodes > 4 ? 4 : 1) {
        assert_int_equal(ranks_run(&setup, met_body, &setup), 0);
    }
    assert_int_equal(ranks_run(&unequal, met_body, &unequal), 0);
}

/* Agreements say whether pairs that are left go to nodes that are not met: of how many, and no more once they are. */
static int unmet_body(ranks_self_t *self, void *argument)
{
    const ranks_setup_t *setup = argument;
    int far = 0, last = self->size - 1, others = 0;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_agreed_t agreed;
    uint64_t signature;
    buffers_t b;

    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    buffers_init(&b, self->size);
    while (far == 0 || mpath_team_is_near(setup->nodes, 0, far)) {
        far++;
    }
    (void)signature_of(team, &b, 0, self->rank, self->size);
    ranks_check(mpath_team_is_near(setup->nodes, 0, last));
    b.send_bytes[last] = self->rank == 0 ? 100000 : 0;
    b.recv_bytes[0]    = self->rank == last ? 100000 : 0;
    ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK && agreed.unmet == MPATH_UNMET_NONE);
    b.send_bytes[far] = self->rank == 0 ? 100 : 0; /* within the agreement */
    b.recv_bytes[0]   = self->rank == last ? 100000 : self->rank == far ? 100 : 0;
    ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK && agreed.unmet == MPATH_UNMET_NONE);
    b.send_bytes[far] = self->rank == 0 ? 100000 : 0;
    b.recv_bytes[0]   = self->rank == last || self->rank == far ? 100000 : 0;
    ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK && agreed.unmet == MPATH_UNMET_SOME);
    signature = agreed.signature;
    if (self->rank == 0 || self->rank == far) {
        mpath_team_meet(team, self->rank == 0 ? far : 0);
    }
    ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK && agreed.unmet == MPATH_UNMET_NONE);
    ranks_check(agreed.signature == signature); /* it is the same call */
    for (int rank = 0; rank < self->size; rank++) {
        b.send_bytes[rank] = self->rank == 0 && rank > 0 ? 100000 : 0;
        others += rank > 0 && rank != far && !mpath_team_is_near(setup->nodes, 0, rank);
    }
    b.recv_bytes[0] = self->rank > 0 ? 100000 : 0;
    ranks_check(others > setup->nodes / 4);
    ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK && agreed.unmet == MPATH_UNMET_MANY);
    buffers_free(&b);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_unmet(void **state)
{
    ranks_setup_t setup = {.size = 16, .nodes = 16};

    (void)state;
    assert_int_equal(ranks_run(&setup, unmet_body, &setup), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node),    cmocka_unit_test(test_several_nodes), cmocka_unit_test(test_many_nodes),
        cmocka_unit_test(test_small_bytes), cmocka_unit_test(test_leader_bytes),  cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_rewrite),     cmocka_unit_test(test_signature),     cmocka_unit_test(test_gather),
        cmocka_unit_test(test_near),        cmocka_unit_test(test_gather_met),    cmocka_unit_test(test_unmet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
