/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that share GPUs on which processes take turns, on the driver without a GPU: it is said once, and short calls are
 * left to the host, by all ranks alike, where nothing is forced. Ranks 0 and 2 are on one GPU, rank 1 is alone on the
 * other.
 */
#include "gpu_member.h"
#include "gpu_ranks.h"
#include "unit/capture.h"

#include <string.h>

#define DEVICES 2
#define LONG_BYTES (UINT64_C(8) << 20) /* of a pair */
#define SHORT_BYTES UINT64_C(10000)

typedef struct job {
    ranks_setup_t setup;
    int turns; /* the GPUs' processes take turns */
    mpath_gpu_way_t way;
} job_t;

static void member_init(member_t *member, ranks_self_t *self, const job_t *job)
{
    mpath_settings_t settings;

    gpu_ranks_start(DEVICES, job->turns ? "mps" : "", &settings);
    settings.gpu_way = job->way;
    member_open(member, self, &settings, (uint64_t)self->size * (LONG_BYTES + 65536) + 4096);
}

/* Calls with up to so many bytes for each pair; the last pair has them. */
static mpath_status_t call_with(member_t *member, uint64_t bytes, int round)
{
    int size = member->a2a.size;

    for (int i = 0; i < size * size; i++) {
        member->demand[i] = bytes * (uint64_t)(i + 1) / (uint64_t)(size * size);
    }
    return member_call(member, A2A_GIVEN, 0, (uint64_t)round);
}

/* Three lengths, of which the middle one is long. */
static int rounds_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    int leaves = job->turns && (job->way == MPATH_GPU_WAY_AUTO), says = job->turns && (self->rank == 0);
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, job);
    capture_start();
    for (int round = 0; round < 6; round++) {
        int is_long = round % 3 == 1, is_left = leaves && !is_long;
        mpath_status_t status = call_with(&member, is_long ? LONG_BYTES : SHORT_BYTES + (uint64_t)round, round);

        ranks_check(status == (is_left ? MPATH_DECLINED : MPATH_OK));
        ranks_check(is_left ? (strstr(mpath_coll_declined_because(member.coll), "take turns") != NULL)
                            : (a2a_check(&member.a2a) == 0));
    }
    capture_stop();
    ranks_check((strstr(capture_text(), "without CUDA MPS their work on it takes turns") != NULL) == says);
    ranks_check((strstr(capture_text(), "short calls on device memory go through the host") != NULL) ==
                (says && leaves));
    ranks_check(capture_count() == says);
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.gpu.calls == (leaves ? 2 : 6));
    ranks_check(counters.declined == (leaves ? 4 : 0));
    member_end(&member);
    return 0;
}

static void run(int turns, mpath_gpu_way_t way)
{
    job_t job = {.setup = {.size = 3}, .turns = turns, .way = way};

    assert_int_equal(ranks_run(&job.setup, rounds_body, &job), 0);
}

static void test_short_calls_are_left_to_the_host(void **state)
{
    (void)state;
    run(1, MPATH_GPU_WAY_AUTO);
}

static void test_a_forced_way_leaves_none(void **state)
{
    (void)state;
    run(1, MPATH_GPU_WAY_PUSH);
    run(1, MPATH_GPU_WAY_KERNEL);
}

static void test_without_turns_none_is_left(void **state)
{
    (void)state;
    run(0, MPATH_GPU_WAY_AUTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_short_calls_are_left_to_the_host),
                                       cmocka_unit_test(test_a_forced_way_leaves_none),
                                       cmocka_unit_test(test_without_turns_none_is_left)};

    return cmocka_run_group_tests_name("gpu_turns", tests, NULL, NULL);
}
