/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions of which a rail fails in the middle: they complete over the others, and the bits are those of a call
 * without a failure. The rail falls silent: the rank that drives it does not send any more, from a moment inside its
 * combination of elements.
 */
#include "coll/symmetric_private.h"
#include "exec/team_private.h"
#include "unit/ranks.h"
#include "unit/silent_rail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 6
#define NICS 3
#define VICTIM 1 /* drives rail 1 of node 0 */
#define SECOND 5 /* drives rail 2 of node 1 */
#define ELEMENTS 150000ull

enum { ALLREDUCE_IN_PLACE, REDUCE_SCATTER };

/* When a second rail falls silent: while results are handed out, or in the rest, too short to be repeated by itself. */
enum { NOT_AGAIN, IN_RESULTS, IN_REST };

typedef struct job {
    int what;
    int after; /* combinations of the victim */
    int phase; /* in which it falls silent */
    int again; /* and another one later: NOT_AGAIN, ... */
    int back;  /* it is found to be up again soon */
} job_t;

/* Whom the combination belongs to, and when it takes the rail away. */
typedef struct trap {
    mpath_share_t *share;
    int calls_left; /* 0: off */
    int phase;
} trap_t;

static void add_doubles(void *argument, const void *in, void *inout, uint64_t elements)
{
    trap_t *trap = argument;

    for (uint64_t i = 0; i < elements; i++) {
        ((double *)inout)[i] = ((const double *)in)[i] + ((double *)inout)[i];
    }
    if ((trap->calls_left > 0) && (--trap->calls_left == 0)) {
        fall_silent(trap->share, trap->phase);
    }
}

/* The second rail. Instead of the functions of these names, by the linker: a driver that does nothing. */
static int second; /* this rank drives it: NOT_AGAIN, ... */
static int handed, rests, mute;
static int comes_back; /* the first rail, while results are handed out */

mpath_status_t __real_mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats);
mpath_status_t __wrap_mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats);
mpath_status_t __wrap_mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats)
{
    mpath_status_t status;

    if ((job->flags == MPATH_SHARE_GATHER) && comes_back) {
        share->team->next_probe_ns   = 0;
        share->team->next_carrier_ns = 0;
    }
    if (job->flags == MPATH_SHARE_GATHER) {
        mute = (handed++ == 0) && (second == IN_RESULTS);
    } else if (second == IN_REST) {
        mute = rests++ == 1; /* the first one is the whole */
    }
    status = __real_mpath_share_run(share, job, stats);
    mute   = 0;
    return status;
}

int __real_mpath_share_link_step(mpath_share_t *share, share_link_t *link);
int __wrap_mpath_share_link_step(mpath_share_t *share, share_link_t *link);
int __wrap_mpath_share_link_step(mpath_share_t *share, share_link_t *link)
{
    return mute ? 0 : __real_mpath_share_link_step(share, link);
}

/* Numbers whose sum depends on the order. */
static void fill(double *data, uint64_t count, int rank)
{
    uint64_t x = (uint64_t)rank * 77 + 5;

    for (uint64_t i = 0; i < count; i++) {
        x       = x * 6364136223846793005ull + 1442695040888963407ull;
        data[i] = ((double)(x >> 11) - 4e15) * (double)(1u << (x >> 60)) / 3.0;
    }
}

static mpath_status_t run(mpath_symmetric_t *symmetric, int what, double *send, double *recv,
                          const mpath_combination_t *doubles)
{
    uint64_t blocks[RANKS];

    for (int rank = 0; rank < RANKS; rank++) {
        blocks[rank] = ELEMENTS / RANKS;
    }
    switch (what) {
    case ALLREDUCE_IN_PLACE:
        memcpy(recv, send, ELEMENTS * sizeof(double));
        return mpath_allreduce(symmetric, recv, recv, ELEMENTS, doubles, 0);
    default:
        return mpath_reduce_scatter(symmetric, send, recv, blocks, doubles, 0);
    }
}

static int cut_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    int left         = NICS - 1 - (job->again != NOT_AGAIN) + job->back;
    size_t bytes     = ELEMENTS * sizeof(double);
    double *send = calloc(1, bytes), *whole = calloc(1, bytes), *cut = calloc(1, bytes);
    trap_t trap                 = {0};
    mpath_combination_t doubles = {.element_bytes = sizeof(double), .reduce = add_doubles, .argument = &trap};
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_coll_t *coll;
    mpath_symmetric_t *symmetric;

    mpath_settings_init(&settings);
    settings.access              = MPATH_ACCESS_AFFINE;
    settings.gate                = MPATH_GATE_ALWAYS;
    settings.memory_bytes        = 4 << 20;
    settings.resend_min_ms       = 0;
    settings.resend_after_s      = 1;
    settings.allreduce_algorithm = settings.reduce_scatter_algorithm                            = settings
                                                                           .allgather_algorithm = MPATH_ALGORITHM_LANES;
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    ranks_check(mpath_coll_create(team, &coll) == MPATH_OK);
    ranks_check(mpath_symmetric_create(team, coll, &symmetric) == MPATH_OK);
    ranks_check(send != NULL && whole != NULL && cut != NULL);
    fill(send, ELEMENTS, self->rank);
    ranks_check(run(symmetric, job->what, send, whole, &doubles) == MPATH_OK);
    ranks_check(mpath_share_num_rails(symmetric->share) == NICS);
    trap.share      = symmetric->share;
    trap.phase      = job->phase;
    trap.calls_left = (self->rank == VICTIM) ? job->after : 0;
    second          = (self->rank == SECOND) ? job->again : NOT_AGAIN;
    comes_back      = job->back;
    if (job->again == IN_REST) {
        team->settled_from_ns = mpath_share_predict_ns(symmetric->share, MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER,
                                                       bytes);
    }
    ranks_check(run(symmetric, job->what, send, cut, &doubles) == MPATH_OK);
    ranks_check(memcmp(whole, cut, bytes) == 0);
    ranks_check(mpath_share_num_rails(symmetric->share) == left);
    for (int rail = 0; !job->back && (rail < left); rail++) { /* none but the silent ones are blamed */
        ranks_check(mpath_share_rail_number(symmetric->share, rail) != 1);
        ranks_check((job->again == NOT_AGAIN) || (mpath_share_rail_number(symmetric->share, rail) != 2));
    }
    ranks_check((second != IN_RESULTS) || (handed > 1));
    ranks_check((second != IN_REST) || (rests > 2));
    ranks_check(run(symmetric, job->what, send, cut, &doubles) == MPATH_OK);
    ranks_check(memcmp(whole, cut, bytes) == 0);
    ranks_barrier(self);
    mpath_symmetric_destroy(symmetric);
    mpath_coll_destroy(coll);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    free(send);
    free(whole);
    free(cut);
    return 0;
}

static void test_cut(void **state)
{
    static const job_t jobs[] = {
        {ALLREDUCE_IN_PLACE, 2, SHARE_SCATTER, NOT_AGAIN, 0},  {ALLREDUCE_IN_PLACE, 12, SHARE_GATHER, NOT_AGAIN, 0},
        {ALLREDUCE_IN_PLACE, 12, SHARE_GATHER, IN_RESULTS, 0}, {ALLREDUCE_IN_PLACE, 12, SHARE_GATHER, NOT_AGAIN, 1},
        {ALLREDUCE_IN_PLACE, 40, SHARE_GATHER, IN_REST, 0},    {REDUCE_SCATTER, 9, SHARE_SCATTER, NOT_AGAIN, 0}};
    ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS, .limit_s = 120};

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        job_t job = jobs[i];

        assert_int_equal(ranks_run(&setup, cut_body, &job), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
