/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rates of NICs, learned from calls: a NIC that is slow, and no other one, gets another rate, in whatever direction and
 * traffic; and the pairs of the other nodes keep the rail.
 */
#include "nics_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SETTLES 32 /* calls, in which what has changed is learned */

/* This NIC has that rate, about, and all others their own. */
static void check_learned(const world_t *world, int node, int rail, int percent)
{
    for (int i = 0; i < world->nodes * RAILS; i++) {
        int is = (i == node * RAILS + rail), least = is ? percent * 8 / 10 : 85, most = is ? percent * 12 / 10 : 115;
        int found = world_learned(world, i / RAILS, i % RAILS);

        if ((found < least) || (found > most)) {
            fail_msg("NIC %d of node %d has %d %% instead of %d to %d %%", i % RAILS, i / RAILS, found, least, most);
        }
    }
}

/* Between all pairs of nodes but those of the first one. */
static void scale_others(world_t *world, uint64_t times, uint64_t over)
{
    for (int pair = 0; pair < world->nodes * world->nodes; pair++) {
        if ((pair / world->nodes != 0) && (pair % world->nodes != 0)) {
            world->demand[pair] = world->demand[pair] * times / over;
        }
    }
}

/* So much of each pair's bytes takes the last rail: of pairs of the first node at most, or of others at least, in percent. */
static void check_parts(const world_t *world, int others_least, int first_most)
{
    for (int pair = 0; pair < world->nodes * world->nodes; pair++) {
        int source = pair / world->nodes, destination = pair % world->nodes;

        if (source != destination) {
            int part = world_part_of(world, RAILS - 1, source, destination);

            assert_true((source == 0) || (destination == 0) ? (part <= first_most) : (part >= others_least));
        }
    }
}

/* One NIC slow: it is known, and only pairs of its node lose by it. */
static void test_slow(void **state)
{
    (void)state;
    for (int nodes = 3; nodes <= NODES_MAX; nodes++) {
        world_t world;

        world_start(&world, nodes);
        world.noise = 5;
        world_slow_nic(&world, 0, 3, 0.25, 0.25);
        world_calls(&world, SETTLES);
        check_learned(&world, 0, 3, 25);
        world_check_time(&world);
        check_parts(&world, 0, 12);
        scale_others(&world, 8, 1);
        world_check_time(&world);
        check_parts(&world, 20, 100);
        scale_others(&world, 1, 8);
        /* It recovers. */
        world_slow_nic(&world, 0, 3, 1, 1);
        world_calls(&world, SETTLES);
        check_learned(&world, 0, 3, 100);
        world_end(&world);
    }
}

/* In one direction only: it counts for both. */
static void test_directions(void **state)
{
    world_t world;

    (void)state;
    for (int sends = 0; sends < 2; sends++) {
        world_start(&world, 4);
        world_slow_nic(&world, 2, 1, sends ? 0.3 : 1, sends ? 1 : 0.3);
        world_calls(&world, SETTLES);
        check_learned(&world, 2, 1, 30);
        world_check_time(&world);
        world_end(&world);
    }
}

/* Three quarters of what nodes send go to the first one; slow is a NIC of it, or one of those that send. */
static void test_hot(void **state)
{
    (void)state;
    for (int node = 0; node < 2; node++) {
        world_t world;

        world_start(&world, 4);
        for (int source = 1; source < 4; source++) {
            world.demand[source * 4] = 6 * PAIR_BYTES;
        }
        world_slow_nic(&world, node, 3, 0.125, 0.125);
        world_calls(&world, 2 * SETTLES);
        world_check_time(&world);
        for (int i = 0; i < 4 * RAILS; i++) {
            assert_true((i == node * RAILS + 3) || (world_learned(&world, i / RAILS, i % RAILS) > 80));
        }
        world_end(&world);
    }
}

/* One node sends to all others, by a slow NIC: these are not to blame. */
static void test_one_sends(void **state)
{
    world_t world;

    (void)state;
    world_start(&world, 4);
    for (int pair = 0; pair < 16; pair++) {
        world.demand[pair] = ((pair / 4 == 0) && (pair != 0)) ? PAIR_BYTES : 0;
    }
    world_slow_nic(&world, 0, 2, 0.25, 0.25);
    world_calls(&world, SETTLES);
    check_learned(&world, 0, 2, 25);
    world_check_time(&world);
    world_slow_nic(&world, 0, 2, 1, 1);
    world_calls(&world, SETTLES);
    check_learned(&world, 0, 2, 100);
    world_end(&world);
}

/* Different rails of different nodes, and all NICs of a rail. */
static void test_several(void **state)
{
    world_t world;

    (void)state;
    world_start(&world, 4);
    world_slow_nic(&world, 0, 3, 0.25, 0.25);
    world_slow_nic(&world, 1, 2, 0.5, 0.5);
    world_calls(&world, 2 * SETTLES);
    assert_in_range(world_learned(&world, 0, 3), 20, 30);
    assert_in_range(world_learned(&world, 1, 2), 42, 58);
    for (int node = 2; node < 4; node++) {
        assert_in_range(world_learned(&world, node, 2), 85, 115);
        assert_in_range(world_learned(&world, node, 3), 85, 115);
    }
    for (int node = 0; node < 4; node++) {
        world_slow_nic(&world, node, 1, 0.25, 0.25);
    }
    world_calls(&world, 2 * SETTLES);
    for (int node = 0; node < 4; node++) {
        assert_in_range(world_learned(&world, node, 1), 20, 40);
        assert_in_range(world_learned(&world, node, 0), 85, 115);
    }
    world_check_time(&world);
    world_end(&world);
}

/* On two nodes a rail is as slow as its slower end, whichever is blamed. */
static void test_two_nodes(void **state)
{
    world_t world;
    int first, second;

    (void)state;
    world_start(&world, 2);
    world_slow_nic(&world, 1, 3, 0.25, 0.25);
    world_calls(&world, SETTLES);
    first  = world_learned(&world, 0, 3);
    second = world_learned(&world, 1, 3);
    assert_in_range((first < second) ? first : second, 20, 30);
    world_slow_nic(&world, 1, 3, 1, 1);
    world_calls(&world, SETTLES);
    assert_in_range(world_learned(&world, 0, 3), 85, 115);
    assert_in_range(world_learned(&world, 1, 3), 85, 115);
    world_end(&world);
}

/* A noise of a tenth changes nothing. */
static void test_noise(void **state)
{
    (void)state;
    for (int nodes = 2; nodes <= NODES_MAX; nodes++) {
        world_t world;

        world_start(&world, nodes);
        world.noise = 10;
        world_calls(&world, 500);
        assert_int_equal(world.changes, 0);
        world_end(&world);
    }
}

/* A NIC that has so little to carry that no call shows anything of it is trusted with more, slowly. */
static void test_unseen(void **state)
{
    world_t world;

    (void)state;
    world_start(&world, 3);
    memset(world.demand, 0, sizeof(world.demand));
    world.demand[1] = PAIR_BYTES; /* node 0 to node 1 */
    for (int rank = 0; rank < 3; rank++) {
        world.nics[rank].current_bps[2 * RAILS] = NIC_BPS / 8;
    }
    world_plan_anew(&world);
    world_calls(&world, (MPATH_NICS_UNSEEN_WINDOWS - 1) * MPATH_RATES_WINDOW_CALLS);
    assert_int_equal(world_learned(&world, 2, 0), 12);
    world_calls(&world, MPATH_RATES_WINDOW_CALLS);
    assert_int_equal(world_learned(&world, 2, 0), 25);
    world_calls(&world, 2 * MPATH_NICS_UNSEEN_WINDOWS * MPATH_RATES_WINDOW_CALLS);
    assert_int_equal(world_learned(&world, 2, 0), 100);
    world_end(&world);
}

/* Beyond what can be told apart rails have one rate each: that of the slowest NIC that somebody saw. */
static void test_rails_only(void **state)
{
    const uint64_t nominal[2]   = {NIC_BPS, NIC_BPS};
    static const int node_of[3] = {0, 1, 2};
    mpath_nics_seen_t rows[6];
    mpath_nics_t nics;
    int changed;

    (void)state;
    assert_true(mpath_nics_are_told_apart(MPATH_NICS_MAX / 2, 2));
    assert_false(mpath_nics_are_told_apart(MPATH_NICS_MAX / 2 + 1, 2));
    assert_int_equal(mpath_nics_init(&nics, 1, 2, nominal), MPATH_OK);
    assert_int_equal(mpath_nics_index(&nics, 7, 1), 1);
    mpath_nics_observe(&nics, 0, 1, 0, 1);
    mpath_nics_observe(&nics, 1, mpath_nics_own_pace(&nics, 100, 400, 100), 0, 1);
    mpath_nics_read(&nics, rows);
    memset(rows + 2, 0, sizeof(rows) / 3);
    rows[4] = (mpath_nics_seen_t){.pace = MPATH_NICS_ON_TIME, .limits = 1};
    rows[5] = rows[4];
    assert_int_equal(mpath_nics_update(&nics, rows, 3, node_of, &changed), MPATH_OK);
    assert_true(changed);
    assert_int_equal(nics.current_bps[0], NIC_BPS);
    assert_int_equal(nics.current_bps[1], NIC_BPS / 4);
    mpath_nics_release(&nics);
}

/* A sender's first small flow says little of it, and one fast flow does not make it faster. */
static void test_senders(void **state)
{
    const uint64_t nominal[3]   = {NIC_BPS, NIC_BPS, NIC_BPS};
    static const int node_of[3] = {0, 1, 2};
    static const struct {
        uint16_t parts[2];    /* of what node 0 sends, to nodes 1 and 2, */
        uint32_t paces[2];    /* and how fast */
        unsigned sends, late; /* what is learned of it, and the pace of node 2 as a receiver, in percent */
    } cases[] = {{{60000, 5535}, {250000, 25000000}, 25, 100},
                 {{32767, 32767}, {4000000, 1000000}, 100, 25},
                 {{32767, 32767}, {4000000, 1500000}, 150, 25}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mpath_nics_seen_t rows[9] = {{.pace = 0}};
        mpath_nics_t nics;
        int changed;

        assert_int_equal(mpath_nics_init(&nics, 3, 1, nominal), MPATH_OK);
        for (int to = 1; to < 3; to++) {
            rows[3 * to] = (mpath_nics_seen_t){cases[i].paces[to - 1], cases[i].parts[to - 1], 1};
        }
        rows[4] = (mpath_nics_seen_t){.pace = MPATH_NICS_ON_TIME, .limits = 1};
        rows[8] = (mpath_nics_seen_t){.pace = cases[i].late * 10000, .limits = 1};
        if (cases[i].late < 100) { /* its flow is as late as it is */
            rows[6].pace = rows[6].pace / 100 * cases[i].late;
        }
        assert_int_equal(mpath_nics_update(&nics, rows, 3, node_of, &changed), MPATH_OK);
        assert_true(changed);
        assert_int_equal(nics.current_bps[0] * 100 / NIC_BPS, cases[i].sends);
        assert_int_equal(nics.current_bps[1], NIC_BPS);
        assert_int_equal(nics.current_bps[2] * 100 / NIC_BPS, cases[i].late);
        assert_int_equal(nics.before_bps[0], NIC_BPS);
        assert_int_equal(nics.before_bps[2], NIC_BPS);
        for (int row = 0; row < 9; row++) {
            rows[row].pace = (rows[row].pace > 0) ? MPATH_NICS_ON_TIME : 0;
        }
        assert_int_equal(mpath_nics_update(&nics, rows, 3, node_of, &changed), MPATH_OK);
        assert_false(changed);
        assert_int_equal(nics.before_bps[0], nics.current_bps[0]);
        mpath_nics_release(&nics);
    }
}

/* What most calls show is less than the best quarter does; what came before a restart does not count. */
static void test_samples(void **state)
{
    const uint64_t nominal[2] = {NIC_BPS, NIC_BPS};
    mpath_nics_seen_t row[2];
    mpath_nics_t nics;

    (void)state;
    assert_int_equal(mpath_nics_init(&nics, 2, 1, nominal), MPATH_OK);
    mpath_nics_observe(&nics, 0, 3, 0, 1);
    assert_int_equal(mpath_nics_end_call(&nics, 1), 0);
    mpath_nics_restart(&nics);
    assert_int_equal(nics.window.calls, 0);
    for (int call = 0; call < 4; call++) {
        mpath_nics_observe(&nics, 0, (call == 2) ? 0.9 : 0.3, 0, 1);
    }
    mpath_nics_observe(&nics, 1, 1e30, 0.5, 0);
    mpath_nics_read(&nics, row);
    assert_int_equal(row[0].pace, 900000);
    assert_int_equal(row[0].limits, 1);
    assert_int_equal(row[1].pace, 1000000000);
    assert_int_equal(row[1].part, MPATH_NICS_WHOLE / 2);
    mpath_nics_read(&nics, row);
    assert_int_equal(row[0].pace, 0);
    mpath_nics_release(&nics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow),      cmocka_unit_test(test_directions), cmocka_unit_test(test_hot),
        cmocka_unit_test(test_one_sends), cmocka_unit_test(test_several),    cmocka_unit_test(test_two_nodes),
        cmocka_unit_test(test_noise),     cmocka_unit_test(test_unseen),     cmocka_unit_test(test_rails_only),
        cmocka_unit_test(test_samples),   cmocka_unit_test(test_senders),
    };

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
