/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Movement on virtual nodes, with real shared memory and UCX over the loopback device: every access mode, many shapes
 * of nodes and demands, slots that run out; plans that differ and ranks that die, which every rank has to survive.
 */
#include "a2a.h"
#include "mover/mover.h"
#include "team/team_private.h"
#include "plan/plan.h"
#include "ranks.h"
#include "unit/capture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct job {
    ranks_setup_t setup;
    int access;
    uint64_t chunk_bytes, memory_bytes; /* 0: the default */
    uint64_t max_bytes;
    int rounds;
    int wrong_rank; /* makes another plan than the others; -1: nobody */
    int dead_rank;  /* dies inside the second round; -1: nobody */
} job_t;

static void settings_of(const job_t *job, mpath_settings_t *settings)
{
    mpath_settings_init(settings);
    settings->access             = job->access;
    settings->min_fragment_bytes = 4096;
    settings->timeout_s          = 100;
    if (job->chunk_bytes > 0) {
        settings->chunk_bytes = job->chunk_bytes;
    }
    if (job->memory_bytes > 0) {
        settings->memory_bytes = job->memory_bytes;
    }
}

static mpath_plan_t *plan_of(mpath_team_t *team, const uint64_t *demand)
{
    mpath_plan_t *plan;

    ranks_check(mpath_plan_create(mpath_team_topo(team), demand, NULL, &plan) == MPATH_OK);
    return plan;
}

/* A move that has no agreement in front of it: the barriers keep the rounds apart. */
static mpath_status_t move_round(mpath_team_t *team, a2a_t *a2a, const uint64_t *demand, const mpath_plan_t *plan,
                                 uint32_t round, mpath_move_stats_t *stats)
{
    mpath_agreed_t agreed = {.call = round, .demand = demand};

    a2a_fill(a2a, demand, round);
    return mpath_move(team, &a2a->call, &agreed, plan, stats);
}

static void check_stats(const a2a_t *a2a, const mpath_move_stats_t *stats)
{
    uint64_t sent = 0, received = 0;

    for (int rank = 0; rank < a2a->size; rank++) {
        if (rank != a2a->rank) {
            sent += a2a->send_bytes[rank];
            received += a2a->recv_bytes[rank];
        }
    }
    ranks_check(stats->sent_bytes == sent);
    ranks_check(stats->received_bytes == received);
}

static int carry_body(ranks_self_t *self, void *argument)
{
    static const a2a_kind_t kinds[] = {A2A_MIXED, A2A_HOT, A2A_ZERO, A2A_SPARSE, A2A_ONE_PAIR, A2A_EVEN, A2A_DIAGONAL};
    static uint64_t demand[RANKS_MAX * RANKS_MAX];
    const job_t *job = argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    a2a_t a2a;

    settings_of(job, &settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    a2a_init(&a2a, self->rank, self->size);
    for (int round = 0; round < job->rounds; round++) {
        mpath_move_stats_t stats = {0};
        mpath_plan_t *plan;

        a2a_demand(kinds[round % 7], self->size, job->max_bytes, (uint64_t)round, demand);
        plan = plan_of(team, demand);
        ranks_check(move_round(team, &a2a, demand, plan, (uint32_t)round, &stats) == MPATH_OK);
        a2a_spoil(&a2a);
        ranks_check(a2a_check(&a2a) == 0);
        check_stats(&a2a, &stats);
        mpath_plan_destroy(plan);
        ranks_barrier(self);
    }
    a2a_end(&a2a);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void carry(int size, int nodes, int nics, int access, uint64_t max_bytes, uint64_t chunk_bytes, uint64_t memory)
{
    job_t job = {.setup        = {.size = size, .nodes = nodes, .nics = nics},
                 .access       = access,
                 .chunk_bytes  = chunk_bytes,
                 .memory_bytes = memory,
                 .max_bytes    = max_bytes,
                 .rounds       = 14};

    assert_int_equal(ranks_run(&job.setup, carry_body, &job), 0);
}

static void test_one_node(void **state)
{
    (void)state;
    carry(2, 1, 0, MPATH_ACCESS_ALL, 3000000, 0, 0);
    carry(5, 1, 1, MPATH_ACCESS_AFFINE, 300000, 0, 0);
}

static void test_all(void **state)
{
    (void)state;
    carry(2, 2, 1, MPATH_ACCESS_ALL, 3000000, 0, 0);
    carry(8, 2, 4, MPATH_ACCESS_ALL, 400000, 0, 0);
    carry(6, 3, 2, MPATH_ACCESS_ALL, 200000, 0, 0);
}

static void test_affine(void **state)
{
    (void)state;
    carry(4, 2, 2, MPATH_ACCESS_AFFINE, 1000000, 0, 0);
    carry(8, 2, 4, MPATH_ACCESS_AFFINE, 400000, 0, 0);
    carry(16, 4, 4, MPATH_ACCESS_AFFINE, 100000, 0, 0);
    carry(6, 2, 1, MPATH_ACCESS_AFFINE, 200000, 0, 0); /* everybody through one rank of the node */
}

/* Small slots, few of them, and messages of many chunks: everything has to wait for something. */
static void test_scarce(void **state)
{
    (void)state;
    carry(8, 2, 4, MPATH_ACCESS_AFFINE, 600000, 4096, 1 << 20);
    carry(12, 3, 2, MPATH_ACCESS_AFFINE, 150000, 4096, 1 << 20);
    carry(8, 2, 4, MPATH_ACCESS_ALL, 300000, 4096, 1 << 20);
}

/* Nodes with different numbers of ranks: slots differ from node to node, chunks must not. */
static void test_uneven(void **state)
{
    static const int node_of[] = {0, 1, 1, 0, 1, 1, 1};
    job_t job                  = {.setup        = {.size = 7, .nodes = 2, .node_of = node_of, .nics = 2},
                                  .access       = MPATH_ACCESS_AFFINE,
                                  .memory_bytes = 1 << 20,
                                  .max_bytes    = 300000,
                                  .rounds       = 7};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, carry_body, &job), 0);
}

/* One round that works, one that cannot: nobody hangs, and the team is of no use to anybody afterwards. */
static int broken_body(ranks_self_t *self, void *argument)
{
    static uint64_t demand[RANKS_MAX * RANKS_MAX], wrong[RANKS_MAX * RANKS_MAX];
    const job_t *job = argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_plan_t *plan;
    mpath_status_t status;
    a2a_t a2a;

    settings_of(job, &settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    a2a_init(&a2a, self->rank, self->size);
    a2a_demand(A2A_EVEN, self->size, job->max_bytes, 1, demand);
    plan = plan_of(team, demand);
    ranks_check(move_round(team, &a2a, demand, plan, 0, NULL) == MPATH_OK);
    ranks_barrier(self);

    context->settings.timeout_s = 5; /* what works may take longer on a loaded machine */
    if (self->rank == job->dead_rank) {
        kill(getpid(), SIGKILL);
    }
    if (self->rank == job->wrong_rank) {
        mpath_plan_destroy(plan);
        for (int i = 0; i < self->size * self->size; i++) {
            wrong[i] = (i % 3 == 0) ? 0 : job->max_bytes / 2 + (uint64_t)i;
        }
        plan = plan_of(team, wrong);
    }
    status = move_round(team, &a2a, demand, plan, 1, NULL);
    ranks_check(mpath_status_is_error(status));
    free(a2a.send); /* no lane may touch the buffers any more */
    free(a2a.recv);
    a2a.send = NULL;
    a2a.recv = NULL;
    usleep(100000);
    ranks_check(mpath_status_is_error(move_round(team, &a2a, demand, plan, 2, NULL)));
    mpath_plan_destroy(plan);
    a2a_end(&a2a);
    if (job->dead_rank < 0) {
        ranks_barrier(
            self); /* a process that ends earlier resets connections in use, which some UCX versions abort on */
    }
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void broken(int access, int wrong_rank, int dead_rank)
{
    job_t job = {.setup       = {.size = 8, .nodes = 2, .nics = 4},
                 .access      = access,
                 .chunk_bytes = 4096,
                 .max_bytes   = 300000,
                 .wrong_rank  = wrong_rank,
                 .dead_rank   = dead_rank};

    job.setup.may_die = (dead_rank >= 0) ? 1u << dead_rank : 0;
    assert_int_equal(ranks_run(&job.setup, broken_body, &job), 0);
}

static void test_wrong_plan(void **state)
{
    (void)state;
    broken(MPATH_ACCESS_ALL, 5, -1);
    broken(MPATH_ACCESS_AFFINE, 0, -1);
}

static void test_dead_rank(void **state)
{
    (void)state;
    broken(MPATH_ACCESS_ALL, -1, 3);
    broken(MPATH_ACCESS_AFFINE, -1, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node),  cmocka_unit_test(test_all),    cmocka_unit_test(test_affine),
        cmocka_unit_test(test_scarce),    cmocka_unit_test(test_uneven), cmocka_unit_test(test_wrong_plan),
        cmocka_unit_test(test_dead_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
