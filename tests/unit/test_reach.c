/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between many nodes addresses of rails go as far as calls need them: to near nodes for reductions in steps, to all for the rest,
 * whatever comes first, and also after a rail was renewed.
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
    extend(self, team, MPATH_LINKS_NEAR, MPATH_LINKS_NEAR);
    lose(team, 1, 1u << 0);
    take_back(team);
    extend(self, team, MPATH_LINKS_NEAR, MPATH_LINKS_NEAR);
    extend(self, team, MPATH_LINKS_ALL, MPATH_LINKS_ALL);
    lose(team, 1, 1u << 0);
    take_back(team);
    extend(self, team, MPATH_LINKS_NEAR, MPATH_LINKS_ALL);
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
static void exchange_all(const member_t *member, const ranks_self_t *self)
{
    uint64_t demand[RANKS * RANKS];
    a2a_t data;

    a2a_init(&data, self->rank, self->size);
    a2a_demand(A2A_EVEN, self->size, 300000, 1, demand);
    a2a_fill(&data, demand, 1);
    ranks_check(mpath_alltoallv(member->coll, &data.call) == MPATH_OK);
    ranks_check(a2a_check(&data) == 0);
    a2a_end(&data);
}

static int exchanges; /* else reductions go to all nodes directly */

/* Reductions in steps, then something that goes to all nodes. */
static int calls_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    member_t member;

    member_init(&member, self, job);
    check_allreduce(&member, self, 5000, 0);
    ranks_check(mpath_links_of(member.team)->reach == MPATH_LINKS_NEAR);
    check_allreduce(&member, self, 5000, 1);
    if (exchanges) {
        exchange_all(&member, self);
    } else {
        member.settings.steps_nodes = member.context->settings.steps_nodes = 0;
        check_allreduce(&member, self, 5000, 2);
    }
    ranks_check(mpath_links_of(member.team)->reach == MPATH_LINKS_ALL);
    member.settings.steps_nodes = member.context->settings.steps_nodes = job->steps_nodes;
    check_allreduce(&member, self, 5000, 3);
    ranks_check(mpath_links_of(member.team)->reach == MPATH_LINKS_ALL);
    ranks_barrier(self);
    member_end(&member);
    return 0;
}

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
    assert_int_equal(ranks_run(&job.setup, measure_body, &job), 0);
    exchanges      = 1;
    job.access     = MPATH_ACCESS_AFFINE;
    job.setup.nics = 1; /* node mates have none */
    assert_int_equal(ranks_run(&job.setup, calls_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_links), cmocka_unit_test(test_calls)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
