/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kernel that writes a part of what copy engines push, on the driver without a GPU: every byte arrives, once, whatever
 * the share, the shape and the streams; it is found by trial, on all ranks alike, and given up where it is not faster.
 */
#include "tune/trial.h"
#include "gpu_member.h"
#include "gpu_ranks.h"
#include "node/peer.h"
#include "util/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GRAIN (64u << 10)
#define MIB (UINT64_C(1) << 20)
#define NUM_RUNS (MPATH_TRIAL_OPTIONS * MPATH_TRIAL_RUNS)

typedef struct job {
    ranks_setup_t setup;
    uint64_t pair_bytes;
    int percent;      /* of the parameter */
    int way;          /* mpath_gpu_way_t */
    int adapt;        /* mpath_adapt_t */
    int without;      /* this rank's GPU runs no kernels; -1: all do */
    int late;         /* the kernels of rank 1 start when its engine has ended */
    int hot;          /* rank 0 gets three times as much */
    int good;         /* the way whose trials are faster than those of the others; 0: none */
    int rounds;       /* calls */
    int kept;         /* it is known from the start */
    int sure;         /* trials leave no doubt */
    const char *file; /* adapt_file; NULL: none */
} job_t;

/* --- what trials measure ------------------------------------------------------------------------------------------- */

static int good_option, trials, are_sure;

void __wrap_mpath_trials_ended(mpath_trials_t *calls);
void __wrap_mpath_trials_ended(mpath_trials_t *calls)
{
    int option, took_ns;

    if (calls->tried == NULL) {
        return;
    }
    ranks_check(mpath_time_ns() > calls->start_ns);
    option  = calls->run % calls->tried->options;
    took_ns = ((option > 0) && (option == good_option)) ? 900000 : 1000000;
    took_ns -= (!are_sure && (option != good_option) && (calls->run < MPATH_TRIAL_OPTIONS))
                   ? 500000
                   : 0; /* one that was fast, once */
    mpath_trials_took(calls, (uint64_t)took_ns);
    trials++;
}

/* --- kernels that are late ----------------------------------------------------------------------------------------- */

static int is_late;

mpath_status_t __real_mpath_peer_again_launch(mpath_peer_again_t *again, mpath_stream_t *stream,
                                              const mpath_launch_copy_t *launch, const mpath_peer_number_t *number);
mpath_status_t __wrap_mpath_peer_again_launch(mpath_peer_again_t *again, mpath_stream_t *stream,
                                              const mpath_launch_copy_t *launch, const mpath_peer_number_t *number);
mpath_status_t __wrap_mpath_peer_again_launch(mpath_peer_again_t *again, mpath_stream_t *stream,
                                              const mpath_launch_copy_t *launch, const mpath_peer_number_t *number)
{
    if (is_late) {
        usleep(100000);
    }
    return __real_mpath_peer_again_launch(again, stream, launch, number);
}

/* --- calls --------------------------------------------------------------------------------------------------------- */

static void member_init(member_t *member, ranks_self_t *self, const job_t *job)
{
    mpath_settings_t settings;

    gpu_ranks_start(self->size, (job->without == self->rank) ? "kernels" : "", &settings);
    settings.gpu_way          = job->way;
    settings.gpu_help_percent = job->percent;
    settings.adapt            = job->adapt;
    settings.adapt_file       = (job->file != NULL) ? job->file : "";
    member_open(member, self, &settings,
                2 * (uint64_t)self->size * job->pair_bytes); /* a multiple of 64 KiB: engines are slow in others */
    is_late     = job->late && (self->rank == 1);
    good_option = job->good;
    are_sure    = job->sure;
    trials      = 0;
}

/* The next call; what this rank's kernel has written in it, and what its engine has pushed. */
static void next_call(member_t *member, const job_t *job, int round, uint64_t *by_kernel_p, uint64_t *by_engine_p)
{
    int size = member->a2a.size;
    mpath_coll_counters_t before, now;

    for (int i = 0; i < size * size; i++) {
        uint64_t more = (uint64_t)(16 * (i % 7)); /* no multiples of the grain */

        member->demand[i] = (i / size == i % size) ? 4096
                                                   : job->pair_bytes * ((job->hot && (i % size == 0)) ? 2 : 1) + more;
    }
    mpath_coll_counters(member->coll, &before);
    member_round(member, A2A_GIVEN, 0, (uint64_t)round);
    mpath_coll_counters(member->coll, &now);
    *by_kernel_p = now.gpu.kernel_bytes - before.gpu.kernel_bytes;
    *by_engine_p = now.gpu.engine_bytes - before.gpu.engine_bytes;
}

/* What a kernel writes of this rank's messages at that share. */
static uint64_t share_of(const member_t *member, unsigned percent)
{
    int size = member->a2a.size, rank = member->a2a.rank;
    uint64_t bytes = 0;

    for (int peer = 0; peer < size; peer++) {
        bytes += (peer != rank) ? member->demand[rank * size + peer] / 100 * percent & ~(uint64_t)(GRAIN - 1) : 0;
    }
    return bytes;
}

static uint64_t sent_to_others(const member_t *member)
{
    int size = member->a2a.size, rank = member->a2a.rank;
    uint64_t bytes = 0;

    for (int peer = 0; peer < size; peer++) {
        bytes += (peer != rank) ? member->demand[rank * size + peer] : 0;
    }
    return bytes;
}

/* --- a share that is given ----------------------------------------------------------------------------------------- */

static int given_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    int helps        = (job->way == MPATH_GPU_WAY_PUSH) && (job->without < 0);
    uint64_t by_kernel, by_engine;
    member_t member;

    member_init(&member, self, job);
    for (int round = 0; round < job->rounds; round++) {
        next_call(&member, job, round, &by_kernel, &by_engine);
        ranks_check(by_kernel == (helps ? share_of(&member, (unsigned)job->percent) : 0));
        ranks_check(by_kernel + by_engine == sent_to_others(&member));
    }
    ranks_check(trials == 0);
    member_end(&member);
    return 0;
}

static void test_given(void **state)
{
    static const int percents[] = {1, 30, 50};

    (void)state;
    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
        job_t job = {.setup      = {.size = 4},
                     .pair_bytes = 3 * MIB,
                     .percent    = percents[i],
                     .way        = MPATH_GPU_WAY_PUSH,
                     .without    = -1,
                     .hot        = (int)i % 2,
                     .rounds     = 3};

        assert_int_equal(ranks_run(&job.setup, given_body, &job), 0);
    }
}

/* Whoever has what an engine pushed still waits for what the kernel writes. */
static void test_late_kernels(void **state)
{
    job_t job = {.setup      = {.size = 3},
                 .pair_bytes = 2 * MIB,
                 .percent    = 30,
                 .way        = MPATH_GPU_WAY_PUSH,
                 .without    = -1,
                 .late       = 1,
                 .rounds     = 3};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, given_body, &job), 0);
}

/* Where a GPU runs no kernels engines carry everything. */
static void test_engines_only(void **state)
{
    job_t job = {.setup      = {.size = 3},
                 .pair_bytes = 2 * MIB,
                 .percent    = 30,
                 .way        = MPATH_GPU_WAY_PUSH,
                 .without    = 1,
                 .rounds     = 2};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, given_body, &job), 0);
}

/* --- a share that is found ----------------------------------------------------------------------------------------- */

/* In percent, by way. */
static const unsigned tried[] = {0, 30, 12};

/* The shares take turns, and one stays; or it is there from the start. */
static int found_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    int tries        = job->kept ? 0 : (job->rounds < NUM_RUNS) ? job->rounds : NUM_RUNS;
    uint64_t by_kernel, by_engine;
    member_t member;

    member_init(&member, self, job);
    for (int round = 0; round < job->rounds; round++) {
        int way = (round < tries) ? round % MPATH_TRIAL_OPTIONS : job->good;

        next_call(&member, job, round, &by_kernel, &by_engine);
        ranks_check(by_kernel == share_of(&member, tried[way]));
        ranks_check(by_kernel + by_engine == sent_to_others(&member));
    }
    ranks_check(trials == tries);
    member_end(&member);
    return 0;
}

static void change_share(const char *path, const char *from, char first_digit)
{
    char text[256] = "", *at;
    FILE *file     = fopen(path, "r+");

    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    at = strstr(text, from);
    assert_non_null(at);
    at[strcspn(at, "0123456789")] = first_digit;
    rewind(file);
    fputs(text, file);
    fclose(file);
}

/* Calls of the next job begin with it, if trials have left no doubt; and not with a share that is none of those tried. */
static void test_found(void **state)
{
    char path[64];
    job_t job = {.setup      = {.size = 4},
                 .pair_bytes = 4 * MIB,
                 .percent    = -1,
                 .adapt      = MPATH_ADAPT_RUN,
                 .without    = -1,
                 .rounds     = NUM_RUNS + 4,
                 .file       = path};

    (void)state;
    snprintf(path, sizeof(path), "/tmp/mpath-test-help.%ld", (long)getpid());
    unlink(path);
    for (job.good = 0; job.good < MPATH_TRIAL_OPTIONS; job.good++) {
        assert_int_not_equal(access(path, F_OK), 0);
        job.sure = job.good == MPATH_TRIAL_OPTIONS - 1;
        assert_int_equal(ranks_run(&job.setup, found_body, &job), 0);
    }
    job.good   = MPATH_TRIAL_OPTIONS - 1;
    job.rounds = 3;
    job.kept   = 1;
    assert_int_equal(ranks_run(&job.setup, found_body, &job), 0);
    change_share(path, "help 12\n", '3');
    job.kept = 0;
    assert_int_equal(ranks_run(&job.setup, found_body, &job), 0);
    unlink(path);
}

/* Nothing is tried where nothing shall be, and where an engine has fewer than three messages: all would have had a turn. */
static int untried_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    uint64_t by_kernel, by_engine;
    member_t member;

    member_init(&member, self, job);
    for (int round = 0; round <= MPATH_TRIAL_OPTIONS; round++) {
        next_call(&member, job, round, &by_kernel, &by_engine);
        ranks_check((by_kernel == 0) && (by_engine == sent_to_others(&member)));
    }
    ranks_check(trials == 0);
    member_end(&member);
    return 0;
}

static void test_untried(void **state)
{
    job_t job = {.setup = {.size = 4}, .pair_bytes = 4 * MIB, .percent = -1, .adapt = MPATH_ADAPT_OFF, .without = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, untried_body, &job), 0);
    job.adapt      = MPATH_ADAPT_RUN;
    job.setup.size = 3;
    job.pair_bytes = 8 * MIB;
    assert_int_equal(ranks_run(&job.setup, untried_body, &job), 0);
    job.setup.size = 4;
    job.percent    = 0;
    assert_int_equal(ranks_run(&job.setup, untried_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given), cmocka_unit_test(test_late_kernels), cmocka_unit_test(test_engines_only),
        cmocka_unit_test(test_found), cmocka_unit_test(test_untried),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
