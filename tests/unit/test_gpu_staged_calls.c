/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on device memory that other processes cannot open, on the driver without a GPU: goes through the host, by
 * streams that wait for each other only where both GPUs can do that, no rank says no, and no processes take turns on a
 * GPU that several ranks share; each rank finds the same for a pair.
 */
#include "device/cuda/driver.h"
#include "device/pinned.h"
#include "gpu_member.h"
#include "gpu_ranks.h"
#include "unit/capture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTES UINT64_C(3000000) /* of a pair, at most */

typedef struct job {
    ranks_setup_t setup;
    const char *without; /* of the driver */
    int devices;
    int says_no;             /* a rank with gpu_stream_waits=no; -1: none */
    int streams[3];          /* to so many ranks each rank sends by streams */
    mpath_gpu_waits_t waits; /* of the others */
    uint64_t bytes;          /* of a pair */
    int crowded;             /* more processes than processors */
} job_t;

static int crowded;

int __wrap_mpath_idle_is_crowded(void);
int __wrap_mpath_idle_is_crowded(void)
{
    return crowded;
}

static void member_init(member_t *member, ranks_self_t *self, const job_t *job)
{
    mpath_settings_t settings;

    gpu_ranks_start(job->devices, job->without, &settings);
    settings.gpu_way          = MPATH_GPU_WAY_PUSH; /* leaves nothing to copies on the host */
    settings.gpu_stream_waits = (self->rank == job->says_no) ? MPATH_GPU_WAITS_NO : job->waits;
    crowded                   = job->crowded;
    member_open(member, self, &settings, (uint64_t)self->size * (BYTES + 65536) + 4096);
}

static int calls_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;
    char line[80];

    member_init(&member, self, job);
    mpath_log_set_level(MPATH_LOG_DEBUG);
    capture_start();
    for (int round = 0; round < 3; round++) {
        ranks_check(member_call(&member, ((round == 1) && (job->waits == MPATH_GPU_WAITS_YES)) ? A2A_HOT : A2A_EVEN,
                                job->bytes, (uint64_t)round) == MPATH_OK);
        ranks_check(a2a_check(&member.a2a) == 0);
    }
    capture_stop();
    mpath_log_set_level(MPATH_LOG_WARN);
    snprintf(line, sizeof(line), "sends to %d ranks through the host by streams", job->streams[self->rank]);
    ranks_check((strstr(capture_text(), "through the host by streams") != NULL) == (job->streams[self->rank] > 0));
    ranks_check((job->streams[self->rank] == 0) || (strstr(capture_text(), line) != NULL));
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.gpu.staged_bytes > 0);
    member_end(&member);
    return 0;
}

static void run(job_t job)
{
    job.setup.size = 3;
    job.waits      = (job.waits == MPATH_GPU_WAITS_NO) ? MPATH_GPU_WAITS_YES : job.waits;
    job.bytes      = (job.bytes == 0) ? BYTES : job.bytes;
    assert_int_equal(ranks_run(&job.setup, calls_body, &job), 0);
}

static void test_streams(void **state)
{
    (void)state;
    run((job_t){.without = "peers", .devices = 3, .says_no = -1, .streams = {2, 2, 2}});
    run((job_t){.without = "peers", .devices = 2, .says_no = -1, .streams = {1, 2, 1}}); /* 0 and 2 on one GPU */
}

static void test_hosts(void **state)
{
    (void)state;
    run((job_t){.without = "peers,values", .devices = 3, .says_no = -1});
    run((job_t){.without = "peers,mps", .devices = 2, .says_no = -1}); /* in turns */
}

/* A rank of its own may wait where processes would take turns. */
static void test_alone(void **state)
{
    (void)state;
    run((job_t){.without = "peers,mps", .devices = 3, .says_no = -1, .streams = {2, 2, 2}});
}

static void test_one_says_no(void **state)
{
    (void)state;
    run((job_t){.without = "peers", .devices = 3, .says_no = 2, .streams = {1, 1, 0}});
}

/* Short messages by hosts, long ones as well unless the ranks share processors. */
static void test_auto(void **state)
{
    (void)state;
    run((job_t){.without = "peers", .devices = 3, .says_no = -1, .waits = MPATH_GPU_WAITS_AUTO, .bytes = 131071});
    run((job_t){.without = "peers",
                .devices = 3,
                .says_no = -1,
                .waits   = MPATH_GPU_WAITS_AUTO,
                .bytes   = 131072,
                .streams = {2, 2, 2}});
    run((job_t){.without = "peers", .devices = 3, .says_no = -1, .waits = MPATH_GPU_WAITS_AUTO});
    run((job_t){.without = "peers",
                .devices = 3,
                .says_no = -1,
                .waits   = MPATH_GPU_WAITS_AUTO,
                .crowded = 1,
                .streams = {2, 2, 2}});
}

/* -- a rank that dies in the middle -- */

static __typeof__(((mpath_cu_t *)NULL)->MemcpyAsync) copy_async;
static mpath_pinned_t never; /* a word that stays 0 */
static int copies_left = 3;

/* The others hear of copies that its GPU does not come to. */
static mpath_cu_result_t copy_and_die(mpath_cu_ptr_t to, mpath_cu_ptr_t from, size_t bytes, mpath_cu_stream_t stream)
{
    if (copies_left-- == 0) {
        usleep(200000);
        kill(getpid(), SIGKILL);
    }
    (void)mpath_gpu_driver()->StreamWaitValue64(stream, never.device_base, 1, MPATH_CU_WAIT_GEQ);
    return copy_async(to, from, bytes, stream);
}

static int death_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_status_t status;
    mpath_gpu_t *gpu;
    member_t member;

    member_init(&member, self, job);
    member_round(&member, A2A_EVEN, BYTES, 1);
    if (self->rank == self->size - 1) {
        ranks_check(mpath_gpu_get(self->rank, NULL, &gpu) == MPATH_OK);
        ranks_check(mpath_pinned_alloc(gpu, 4096, &never) == MPATH_OK);
        copy_async                                                 = mpath_gpu_driver()->MemcpyAsync;
        ((mpath_cu_t *)(uintptr_t)mpath_gpu_driver())->MemcpyAsync = copy_and_die;
    }
    capture_start();
    status = member_call(&member, A2A_EVEN, BYTES, 2);
    capture_stop();
    ranks_check(mpath_status_is_error(status));
    ranks_check(strstr(capture_text(), "staged copies of a call that failed have not ended") == NULL);
    member_end(&member); /* no stream waits any more */
    return 0;
}

static void test_death(void **state)
{
    job_t job = {.setup   = {.size = 3, .may_die = 1 << 2},
                 .without = "peers",
                 .devices = 3,
                 .says_no = -1,
                 .waits   = MPATH_GPU_WAITS_YES};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, death_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_streams), cmocka_unit_test(test_hosts),
                                       cmocka_unit_test(test_alone),   cmocka_unit_test(test_one_says_no),
                                       cmocka_unit_test(test_auto),    cmocka_unit_test(test_death)};

    return cmocka_run_group_tests_name("gpu_staged_calls", tests, NULL, NULL);
}
