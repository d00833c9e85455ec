/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between many nodes addresses of rails go as far as calls need them: to near nodes for reductions in steps, to those that have pairs for
 * exchanges, to all for the rest, whatever comes first, and also after a rail was renewed.
 */
#include "unit/a2a.h"
#include "unit/lost_nics.h"
#include "unit/symmetric_support.h"
#include "wire/links_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define RANKS 9
#define NODES 8
#define NICS 2
#define MANY 16
#define NARROW 2 /* this node has one NIC: its ranks have less to say */

static const int node_of[RANKS] = {0, 1, 2, 3, 4, 5, 6, 7, 3};

/* Whom this rank can send to. */
static void check_reach(const ranks_self_t *self, mpath_links_t *links, mpath_links_reach_t reach)
{
    int near = 0, far = 0;

    ranks_check(links->reach == reach);
    for (int rank = 0; rank < RANKS; rank++) {
        int is_near = mpath_team_is_near(NODES, self->node, node_of[rank]);

        for (int nic = 0; node_of[rank] != self->node && nic < self->machine.num_nics; nic++) {
            int has = (reach == MPATH_LINKS_ALL || is_near) && (nic == 0 || node_of[rank] != NARROW);

            ranks_check((mpath_links_peer(links, nic, rank, nic) >= 0) == has);
        }
        near += is_near;
        far += !is_near && node_of[rank] != self->node;
    }
    ranks_check(near > 0 && far > 0);
}

/* Makes `reach` of the links, and checks it. */
static void extend(const ranks_self_t *self, mpath_team_t *team, mpath_links_reach_t reach,
                   mpath_links_reach_t expected)
{
    mpath_links_t *links;

    ranks_check(mpath_links_get(team, reach, &links) == MPATH_OK);
    check_reach(self, links, expected);
}

static void take_back(mpath_team_t *team)
{
    ranks_check(team->lost_anywhere != 0);
    team->next_probe_ns   = 0;
    team->next_carrier_ns = 0;
    team->recover_in      = 0;
    ranks_check(mpath_failover_recover(team) == MPATH_OK);
    ranks_check(team->lost_anywhere == 0);
}

static int links_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context;
    mpath_team_t *team, *other;
    mpath_oob_t oob;

    (void)argument;
    self->machine.num_nics = self->node == NARROW ? 1 : NICS;
    context                = lost_context(self);
    team                   = ranks_team(self, context);
    extend(self, team, MPATH_LINKS_MET, MPATH_LINKS_MET);
    lose(team, 1, 1u << 0);
    take_back(team);
    extend(self, team, MPATH_LINKS_MET, MPATH_LINKS_MET);
    extend(self, team, MPATH_LINKS_ALL, MPATH_LINKS_ALL);
    lose(team, 1, 1u << 0);
    take_back(team);
    extend(self, team, MPATH_LINKS_MET, MPATH_LINKS_ALL);
    ranks_oob(self, 1, NULL, self->size, &oob);
    ranks_check(mpath_team_create(context, &oob, &other) == MPATH_OK);
    extend(self, other, MPATH_LINKS_ALL, MPATH_LINKS_ALL);
    ranks_barrier(self);
    mpath_team_destroy(other);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_links(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .node_of = node_of, .nics = NICS};

    (void)state;
    assert_int_equal(ranks_run(&setup, links_body, NULL), 0);
}

/* Every byte is checked. */
static void exchange(const member_t *member, const ranks_self_t *self, const uint64_t *demand)
{
    a2a_t data;

    a2a_init(&data, self->rank, self->size);
    a2a_fill(&data, demand, 1);
    ranks_check(mpath_alltoallv(member->coll, &data.call) == MPATH_OK);
    ranks_check(a2a_check(&data) == 0);
    a2a_end(&data);
}

static void exchange_all(const member_t *member, const ranks_self_t *self)
{
    uint64_t demand[RANKS * RANKS];

    a2a_demand(A2A_EVEN, self->size, 300000, 1, demand);
    exchange(member, self, demand);
}

/* Each rank sends to the one `step` further; nodes that have met by that are marked. */
static void exchange_step(const member_t *member, const ranks_self_t *self, int step, int met[NODES])
{
    uint64_t demand[RANKS * RANKS] = {0};

    for (int rank = 0; rank < RANKS; rank++) {
        int to = (rank + step) % RANKS;

        demand[rank * RANKS + to] = 300000;
        if (node_of[rank] == self->node || node_of[to] == self->node) {
            met[node_of[rank]] = met[node_of[to]] = 1;
        }
    }
    exchange(member, self, demand);
}

/* Who can be sent to: nodes that are met. */
static void check_met(const member_t *member, const ranks_self_t *self, const int met[NODES])
{
    mpath_links_t *links = mpath_links_of(member->team);
    int unmet            = 0;

    ranks_check(links->reach == MPATH_LINKS_MET);
    for (int rank = 0; rank < RANKS; rank++) {
        if (node_of[rank] != self->node) {
            ranks_check((mpath_team_place(member->team, rank) >= 0) == met[node_of[rank]]);
            ranks_check(member->settings.access != MPATH_ACCESS_ALL ||
                        (mpath_links_peer(links, 0, rank, 0) >= 0) == met[node_of[rank]]);
            unmet += !met[node_of[rank]];
        }
    }
    ranks_check(unmet > 0 || self->node != 0);
}

static int exchanges; /* else reductions go to all nodes directly */

/* Reductions in steps, then something that goes to all nodes. */
static int calls_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    member_t member;

    member_init(&member, self, job);
    check_allreduce(&member, self, 5000, 0);
    ranks_check(mpath_links_of(member.team)->reach == MPATH_LINKS_MET);
    check_allreduce(&member, self, 5000, 1);
    if (exchanges) {
        exchange_all(&member, self);
        ranks_check(mpath_team_num_met(member.team) == RANKS);
    }
    member.settings.steps_nodes = member.context->settings.steps_nodes = 0;
    check_allreduce(&member, self, 5000, 2);
    ranks_check(mpath_links_of(member.team)->reach == MPATH_LINKS_ALL);
    member.settings.steps_nodes = member.context->settings.steps_nodes = job->steps_nodes;
    check_allreduce(&member, self, 5000, 3);
    ranks_check(mpath_links_of(member.team)->reach == MPATH_LINKS_ALL);
    ranks_barrier(self);
    member_end(&member);
    return 0;
}

/* Plans by pairs of nodes: addresses go to nodes that are near or have pairs, and stay with them when a rail was renewed. */
static int sparse_body(ranks_self_t *self, void *argument)
{
    int met[NODES];
    member_t member;

    member_init(&member, self, argument);
    for (int node = 0; node < NODES; node++) {
        met[node] = node == self->node || mpath_team_is_near(NODES, self->node, node);
    }
    exchange_step(&member, self, 1, met);
    check_met(&member, self, met);
    exchange_step(&member, self, 3, met);
    check_met(&member, self, met);
    exchange_step(&member, self, 3, met);
    check_met(&member, self, met);
    lose(member.team, 1, 1u << 0);
    take_back(member.team);
    exchange_step(&member, self, 3, met);
    check_met(&member, self, met);
    for (int i = 0; i < 2; i++) {
        exchange_all(&member, self);
    }
    ranks_check(mpath_team_num_met(member.team) == RANKS);
    exchange_step(&member, self, 5, met);
    ranks_barrier(self);
    member_end(&member);
    return 0;
}

/* With half of the nodes at once: all meet. */
static int many_body(ranks_self_t *self, void *argument)
{
    uint64_t demand[MANY * MANY];
    member_t member;

    member_init(&member, self, argument);
    a2a_demand(A2A_EVEN, MANY, 30000, 1, demand);
    for (int i = 0; i < 2; i++) {
        exchange(&member, self, demand);
        ranks_check(mpath_links_of(member.team)->reach == MPATH_LINKS_ALL);
    }
    ranks_barrier(self);
    member_end(&member);
    return 0;
}

static void test_many(void **state)
{
    job_t job = {.setup = {.size = MANY, .nodes = MANY, .nics = 1}};

    (void)state;
    job.access = MPATH_ACCESS_ALL;
    assert_int_equal(ranks_run(&job.setup, many_body, &job), 0);
}

static void test_sparse(void **state)
{
    job_t job = {.setup = {.size = RANKS, .node_of = node_of, .nics = NICS}, .tune = "alltoallv:@pairs"};

    (void)state;
    job.access = MPATH_ACCESS_ALL;
    assert_int_equal(ranks_run(&job.setup, sparse_body, &job), 0);
    job.access = MPATH_ACCESS_AFFINE;
    assert_int_equal(ranks_run(&job.setup, sparse_body, &job), 0);
}

#define MEASURED_BPS 25000000 /* what is measured with is as much as a rail carries in a time: a megabyte */

/* Rails are measured inside of the first reduction, by gathers that go to all nodes. */
static int measure_body(ranks_self_t *self, void *argument)
{
    member_t member;

    member_init(&member, self, argument);
    member.context->settings.adapt = MPATH_ADAPT_START;
    check_allreduce(&member, self, 5000, 0);
    ranks_check(mpath_links_of(member.team)->reach == MPATH_LINKS_ALL);
    ranks_barrier(self);
    member_end(&member);
    return 0;
}

static void test_calls(void **state)
{
    job_t job = {.setup       = {.size = RANKS, .node_of = node_of, .nics = NICS},
                 .algorithm   = MPATH_ALGORITHM_LANES,
                 .steps_nodes = 2};

    (void)state;
    job.access = MPATH_ACCESS_ALL;
    assert_int_equal(ranks_run(&job.setup, calls_body, &job), 0);
    job.setup.nic_bps = MEASURED_BPS;
    assert_int_equal(ranks_run(&job.setup, measure_body, &job), 0);
    job.setup.nic_bps = 0;
    exchanges         = 1;
    job.access        = MPATH_ACCESS_AFFINE;
    job.setup.nics    = 1; /* node mates have none */
    assert_int_equal(ranks_run(&job.setup, calls_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_links), cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_sparse), cmocka_unit_test(test_many)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
