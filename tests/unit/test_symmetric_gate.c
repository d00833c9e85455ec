/* SPDX-License-Identifier: BSD-3-Clause */
/* When the symmetric collectives are left to the previous functions: settings, sizes, topologies, predicted times. */
#include "unit/symmetric_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 4
#define MIB (UINT64_C(1) << 20)
#define REDUCES MPATH_SHARE_REDUCE
#define GATHERS MPATH_SHARE_GATHER

static void open_member(member_t *member, ranks_self_t *self)
{
    mpath_settings_init(&member->settings);
    member->settings.memory_bytes = 8 * MIB;
    member_open(member, self);
}

static mpath_operation_t operation_of(unsigned flags)
{
    return (flags == (REDUCES | GATHERS)) ? MPATH_OPERATION_ALLREDUCE
           : (flags == REDUCES)           ? MPATH_OPERATION_REDUCE_SCATTER
                                          : MPATH_OPERATION_ALLGATHER;
}

/* `because` NULL: mpath goes on. */
static void check_gate(member_t *member, int algorithm, unsigned flags, uint64_t bytes, const char *because)
{
    mpath_settings_t settings = member->settings;
    mpath_status_t status;

    settings.allreduce_algorithm = settings.reduce_scatter_algorithm = settings.allgather_algorithm = algorithm;
    mpath_tuning_read(&settings, 0, &member->symmetric->tuning);
    status = mpath_symmetric_gate(member->symmetric, operation_of(flags), bytes, bytes, 0);

    ranks_check(status == ((because == NULL) ? MPATH_OK : MPATH_DECLINED));
    ranks_check(strcmp(mpath_symmetric_declined_because(member->symmetric), (because == NULL) ? "" : because) == 0);
}

/* Slow rails, of which there are two. */
static int rails_body(ranks_self_t *self, void *argument)
{
    const unsigned kinds[] = {REDUCES | GATHERS, REDUCES, GATHERS};
    member_t member;

    (void)argument;
    open_member(&member, self);
    check_gate(&member, MPATH_ALGORITHM_AUTO, REDUCES | GATHERS, 4 * MIB, NULL);
    check_gate(&member, MPATH_ALGORITHM_AUTO, GATHERS, 4 * MIB, NULL);
    check_gate(&member, MPATH_ALGORITHM_PREVIOUS, GATHERS, 4 * MIB, "a parameter says never");
    check_gate(&member, MPATH_ALGORITHM_SMALL, GATHERS, 4 * MIB, "more than travels in the agreement");
    check_gate(&member, MPATH_ALGORITHM_SMALL, GATHERS, 8, NULL);
    check_gate(&member, MPATH_ALGORITHM_LANES, GATHERS, 8, NULL);
    member.context->settings.symmetric_min_bytes = 4 * MIB + 1;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        check_gate(&member, MPATH_ALGORITHM_AUTO, kinds[i], 4 * MIB, "less than symmetric_min_bytes");
    }
    check_gate(&member, MPATH_ALGORITHM_LANES, GATHERS, 4 * MIB, NULL);
    member.context->settings.gate = MPATH_GATE_ALWAYS;
    check_gate(&member, MPATH_ALGORITHM_AUTO, GATHERS, 4 * MIB, NULL);
    member.context->settings.gate = MPATH_GATE_NEVER;
    check_gate(&member, MPATH_ALGORITHM_LANES, GATHERS, 4 * MIB, "a parameter says never");
    member_end(&member);
    return 0;
}

/* `argument`: why there is nothing to gain, however large the vector. */
static int no_gain_body(ranks_self_t *self, void *argument)
{
    member_t member;

    open_member(&member, self);
    check_gate(&member, MPATH_ALGORITHM_AUTO, REDUCES | GATHERS, 64 * MIB, argument);
    check_gate(&member, MPATH_ALGORITHM_AUTO, GATHERS, 64 * MIB, argument);
    member.context->settings.gate = MPATH_GATE_ALWAYS;
    check_gate(&member, MPATH_ALGORITHM_AUTO, GATHERS, 64 * MIB, NULL);
    member_end(&member);
    return 0;
}

/* Rails so fast that only the messages of the agreement count. */
static int fast_body(ranks_self_t *self, void *argument)
{
    member_t member;

    (void)argument;
    open_member(&member, self);
    check_gate(&member, MPATH_ALGORITHM_AUTO, REDUCES | GATHERS, 32768,
               "predicted to be no faster than the previous function");
    member_end(&member);
    return 0;
}

/* What ranks decide by is the same for all, on nodes of however many ranks. */
static int same_body(ranks_self_t *self, void *argument)
{
    const unsigned kinds[] = {REDUCES | GATHERS, REDUCES, GATHERS};
    uint64_t mine[6], all[RANKS][6];
    member_t member;

    (void)argument;
    open_member(&member, self);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        for (uint64_t bytes = 1; bytes <= 64 * MIB; bytes *= 4) {
            const mpath_share_t *share = member.symmetric->share;

            mine[0] = mpath_share_predict_ns(share, kinds[i], bytes);
            mine[1] = mpath_share_previous_ns(share, kinds[i], bytes);
            mine[2] = mpath_share_predict_gpus_ns(share, kinds[i], bytes);
            mine[3] = mpath_share_previous_gpus_ns(share, kinds[i], bytes);
            mine[4] = mpath_share_links_ns(share, kinds[i], bytes);
            mine[5] = (uint64_t)mpath_symmetric_gate(member.symmetric, operation_of(kinds[i]), bytes, bytes, 0);
            ranks_check(mpath_team_allgather(member.team, mine, sizeof(mine), all) == MPATH_OK);
            for (int rank = 0; rank < self->size; rank++) {
                ranks_check(memcmp(all[rank], mine, sizeof(mine)) == 0);
            }
        }
    }
    member_end(&member);
    return 0;
}

static void test_same(void **state)
{
    const int node_of[RANKS]    = {0, 1, 1, 1};
    const ranks_setup_t setup[] = {{.size = RANKS, .nodes = 2, .node_of = node_of, .nics = 4},
                                   {.size = RANKS, .nodes = 2, .node_of = node_of, .nics = 2, .nic_bps = 25000000}};

    (void)state;
    for (size_t i = 0; i < sizeof(setup) / sizeof(setup[0]); i++) {
        assert_int_equal(ranks_run(&setup[i], same_body, NULL), 0);
    }
}

static void run(int nodes, int nics, uint64_t nic_bps, ranks_body_t body, const char *argument)
{
    ranks_setup_t setup = {.size = RANKS, .nodes = nodes, .nics = nics, .nic_bps = nic_bps};

    assert_int_equal(ranks_run(&setup, body, (void *)(uintptr_t)argument), 0);
}

static void test_rails(void **state)
{
    (void)state;
    run(2, 2, 25000000, rails_body, NULL);
}

static void test_no_gain(void **state)
{
    (void)state;
    run(1, 2, 25000000, no_gain_body, "all ranks share one node");
    run(2, 1, 25000000, no_gain_body, "there is one rail");
}

static void test_fast(void **state)
{
    (void)state;
    run(2, 2, UINT64_C(100000000000), fast_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rails),
        cmocka_unit_test(test_no_gain),
        cmocka_unit_test(test_fast),
        cmocka_unit_test(test_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
