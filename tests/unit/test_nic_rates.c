/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates of single NICs: those of the file, and what becomes of them when reductions learn the rate of a rail. */
#include "rates_support.h"
#include "unit/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = 2};

/* Of the first node's NIC on the second rail less than of the second one's; these go before rates of rails. */
static void write_nodes(const member_t *member)
{
    FILE *out = fopen(rates_path, "w");

    ranks_check(out != NULL);
    fprintf(out, "mpath-rates 3\n");
    for (int node = 0; node < 2; node++) {
        fprintf(out, "%016llx alltoallv 0 node-rates %d %llu %llu\n",
                (unsigned long long)mpath_topo_signature(mpath_team_topo(member->team)), node, FAST_BPS,
                FAST_BPS / (node == 0 ? 8 : 2));
    }
    fprintf(out, "%016llx alltoallv 0 rates %llu %llu\n",
            (unsigned long long)mpath_topo_signature(mpath_team_topo(member->team)), SLOW_BPS, SLOW_BPS);
    fclose(out);
}

/* What NICs of both nodes carry on the second rail, as plans count on it. */
static void check_second(const member_t *member, uint64_t first_bps, uint64_t second_bps)
{
    const uint64_t *bps = member->coll->rates.nics.current_bps;

    ranks_check((bps[0] == FAST_BPS) && (bps[2] == FAST_BPS));
    ranks_check((bps[1] == first_bps) && (bps[3] == second_bps));
}

/* A rail is as slow as its slowest NIC: what reductions have learned since concerns that one. */
static int nodes_body(ranks_self_t *self, void *argument)
{
    static const struct {
        uint64_t rail_bps, first_bps, second_bps;
    } learned[]               = {{FAST_BPS / 8, FAST_BPS / 8, FAST_BPS / 2},
                                 {FAST_BPS / 16, FAST_BPS / 16, FAST_BPS / 2},
                                 {FAST_BPS * 3 / 4, FAST_BPS * 3 / 4, FAST_BPS * 3 / 4},
                                 {FAST_BPS / 4, FAST_BPS / 4, FAST_BPS / 4}};
    const int numbers[2]      = {0, 1};
    const uint64_t nominal[2] = {FAST_BPS, FAST_BPS};
    member_t member, late;

    (void)argument;
    member_start(&member, self, MPATH_ADAPT_RUN);
    if (self->rank == 0) {
        write_nodes(&member);
    }
    (void)avoids_second(&member);
    check_second(&member, FAST_BPS / 8, FAST_BPS / 2);
    for (size_t i = 0; i < sizeof(learned) / sizeof(learned[0]); i++) {
        const uint64_t bps[2] = {FAST_BPS, learned[i].rail_bps};

        ranks_check(mpath_coll_rates_learned(member.coll, 2, numbers, nominal, bps) == MPATH_OK);
        check_second(&member, learned[i].first_bps, learned[i].second_bps);
        ranks_check(mpath_coll_rates_of(member.coll, 1, FAST_BPS) == learned[i].rail_bps);
        ranks_check(mpath_coll_rates_of(member.coll, 7, 5) == 5); /* there is no such rail */
        member_join(&late, &member, self, (int)i + 1, NULL, RANKS);
        (void)avoids_second(&late);
        check_second(&late, learned[i].first_bps, learned[i].second_bps);
        member_leave(&late);
    }
    member_end(&member);
    return 0;
}

static void test_nodes(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(&setup, nodes_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_nodes, rates_forget)};

    rates_support_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
