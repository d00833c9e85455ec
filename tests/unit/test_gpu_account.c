/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that all communicators of a process take together, on the driver without a GPU: on GPUs and pinned on the
 * host. They keep to the limits, later ones do with less or go other ways, with the right data and all ranks alike, also
 * where one rank alone has nothing left; and what has ended leaves room for others.
 */
#include "device/usage.h"
#include "gpu_member.h"
#include "gpu_ranks.h"
#include "unit/capture.h"

#include <stdlib.h>

#define RANKS 3
#define MANY 10
#define MIB (UINT64_C(1) << 20)
#define SHORT_BYTES 60000u
#define LONG_BYTES 300000u
#define ELEMENTS 400000u /* more than GPUs reduce each for itself */

/* Limits of all ranks but the last one, and of that. */
typedef struct job {
    ranks_setup_t setup;
    uint64_t device_bytes, device_last_bytes; /* gpu_device_bytes */
    uint64_t pinned_bytes, pinned_last_bytes; /* gpu_pinned_bytes */
    uint64_t memory_bytes;                    /* gpu_memory_bytes */
    int stages;                               /* GPUs do not reach each other */
    int pushes;                               /* copies between them are those of engines */
    int gpu_reduce;                           /* mpath_gpu_reduce_t */
    int with, without;                        /* of MANY communicators, at least so many have what they want, or not */
} job_t;

static mpath_context_t *start(ranks_self_t *self, const job_t *job)
{
    int is_last = self->rank == self->size - 1;
    mpath_settings_t settings;

    setenv("FAKE_CUDA_MULTIPROCESSORS", "64", 1);
    gpu_ranks_start(RANKS, job->stages ? "peers" : "", &settings);
    settings.gpu_way          = job->pushes ? MPATH_GPU_WAY_PUSH : MPATH_GPU_WAY_AUTO;
    settings.gpu_reduce       = job->gpu_reduce;
    settings.gpu_device_bytes = is_last ? job->device_last_bytes : job->device_bytes;
    settings.gpu_pinned_bytes = is_last ? job->pinned_last_bytes : job->pinned_bytes;
    settings.gpu_memory_bytes = job->memory_bytes;
    return ranks_context(self, &settings);
}

/* What mpath holds beside what has limits: counters of its kernels. */
static void check_usage(const mpath_team_t *team)
{
    const mpath_settings_t *settings = mpath_team_settings(team);
    mpath_gpu_usage_t usage;

    mpath_gpu_usage(&usage);
    ranks_check(usage.memory_bytes <= settings->gpu_device_bytes + 65536);
    ranks_check(usage.pinned_bytes <= settings->gpu_pinned_bytes);
}

/* All ranks have come to the same. */
static void check_alike(mpath_team_t *team, int mine)
{
    int32_t all[RANKS], told = mine;

    ranks_check(mpath_team_allgather(team, &told, sizeof(told), all) == MPATH_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        ranks_check(all[rank] == mine);
    }
}

static void join(member_t *member, ranks_self_t *self, mpath_context_t *context, int channel)
{
    mpath_oob_t oob = self->oob;

    if (channel > 0) {
        ranks_oob(self, channel, NULL, self->size, &oob);
    }
    *member = (member_t){.context = context};
    member_join(member, &oob, self->rank, MPATH_MEMORY_DEVICE, (RANKS + 1) * (LONG_BYTES + 64));
}

/* -- short exchanges, for which ranks lend each other memory -- */

static int exchange(member_t *member)
{
    mpath_coll_counters_t counters;

    for (int round = 0; round < 3; round++) {
        member_round(member, A2A_EVEN, SHORT_BYTES, (uint64_t)round);
    }
    mpath_coll_counters(member->coll, &counters);
    check_alike(member->team, counters.gpu.eager > 0);
    check_usage(member->team);
    return counters.gpu.eager > 0;
}

static int exchanges_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = start(self, job);
    member_t members[MANY];
    int with = 0;

    mpath_log_set_level(MPATH_LOG_INFO);
    capture_start();
    for (int i = 0; i < MANY; i++) {
        join(&members[i], self, context, i);
        with += exchange(&members[i]);
    }
    ranks_check((with >= job->with) && (MANY - with >= job->without));
    for (int i = 0; i < MANY; i++) {
        member_leave(&members[i]);
    }
    join(&members[0], self, context, MANY); /* there is room again */
    ranks_check(exchange(&members[0]) == (job->with > 0));
    if ((job->without > 0) && (self->rank == RANKS - 1)) {
        const char *what = "(gpu_device_bytes) there is less left than wanted", *said = strstr(capture_text(), what);

        ranks_check((said != NULL) && (strstr(said + 1, what) == NULL)); /* once */
    }
    member_end(&members[0]);
    return 0;
}

static void test_exchanges(void **state)
{
    job_t job = {.setup = {.size = RANKS}, .pinned_bytes = MIB, .pinned_last_bytes = MIB, .memory_bytes = 32 * MIB};

    (void)state;
    job.device_bytes = job.device_last_bytes = 64 * MIB;
    job.with                                 = MANY - 1;
    assert_int_equal(ranks_run(&job.setup, exchanges_body, &job), 0);
    job.device_bytes = job.device_last_bytes = 16 * MIB;
    job.with                                 = 2;
    job.without                              = MANY / 2;
    assert_int_equal(ranks_run(&job.setup, exchanges_body, &job), 0);
    job.device_bytes      = 64 * MIB;
    job.device_last_bytes = 4 * MIB;
    job.with              = 1;
    assert_int_equal(ranks_run(&job.setup, exchanges_body, &job), 0);
    job.device_last_bytes = 2 * MIB;
    job.with = job.without = 0;
    assert_int_equal(ranks_run(&job.setup, exchanges_body, &job), 0);
}

/* -- what goes through the host -- */

/* Carried, or left to the previous function. */
static int stage(member_t *member, uint64_t round)
{
    mpath_status_t status = member_call(member, A2A_EVEN, LONG_BYTES, round);

    ranks_check((status == MPATH_OK) || (status == MPATH_DECLINED));
    ranks_check((status != MPATH_OK) || (a2a_check(&member->a2a) == 0));
    ranks_check(mpath_coll_takes_device(member->coll));
    check_alike(member->team, status == MPATH_OK);
    check_usage(member->team);
    return status == MPATH_OK;
}

static int staged_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = start(self, job);
    member_t members[MANY];
    mpath_gpu_usage_t usage;
    int with = 0;

    for (int i = 0; i < MANY; i++) {
        join(&members[i], self, context, i);
        with += stage(&members[i], (uint64_t)i);
    }
    ranks_check((with >= job->with) && (MANY - with >= job->without));
    for (int i = 1; i < MANY; i++) {
        member_leave(&members[i]);
    }
    join(&members[1], self, context, MANY);
    ranks_check(stage(&members[1], MANY));
    member_leave(&members[1]);
    member_leave(&members[0]);
    mpath_gpu_usage(&usage);
    ranks_check(usage.pinned_bytes == 0);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_staged(void **state)
{
    job_t job = {.setup             = {.size = RANKS},
                 .device_bytes      = 64 * MIB,
                 .device_last_bytes = 64 * MIB,
                 .pinned_bytes      = 4 * MIB,
                 .pinned_last_bytes = 4 * MIB,
                 .memory_bytes      = 2 * MIB,
                 .stages            = 1,
                 .with              = 4,
                 .without           = 2};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, staged_body, &job), 0);
    job.pinned_last_bytes = 512 << 10;
    job.with              = 2;
    assert_int_equal(ranks_run(&job.setup, staged_body, &job), 0);
}

/* -- a hot receiver, a part of whose bytes may go through the host beside the copies between GPUs -- */

#define HOT_BYTES (UINT64_C(216) << 20)
#define MARK_AT (HOT_BYTES - 4096)

/* From rank 0 to rank 1. */
static int beside_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = start(self, job);
    uint64_t none[RANKS] = {0, 0, 0}, to_one[RANKS] = {0, HOT_BYTES, 0}, from_zero[RANKS] = {HOT_BYTES, 0, 0};
    mpath_coll_counters_t counters;
    mpath_memory_t memory;
    gpu_memory_t buffer;
    mpath_call_t call = {.send_offsets = none, .recv_offsets = none};
    member_t member   = {.context = context};

    member_join(&member, &self->oob, self->rank, MPATH_MEMORY_DEVICE, 4096);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, self->rank, HOT_BYTES, 1, &buffer);
    ranks_check(mpath_memory_classify((void *)(uintptr_t)buffer.address, HOT_BYTES, &memory) == MPATH_OK);
    call.operation   = member.a2a.call.operation;
    call.send_bytes  = (self->rank == 0) ? to_one : none;
    call.recv_bytes  = (self->rank == 1) ? from_zero : none;
    call.send_buffer = call.recv_buffer = (void *)(uintptr_t)buffer.address;
    call.send_memory                    = (self->rank == 0) ? &memory : NULL;
    call.recv_memory                    = (self->rank == 1) ? &memory : NULL;
    gpu_pattern_write(buffer.address + MARK_AT, 4096, (uint64_t)self->rank);
    ranks_check(mpath_alltoallv(member.coll, &call) == MPATH_OK);
    ranks_check((self->rank != 1) || (gpu_pattern_check(buffer.address + MARK_AT, 4096, 0) == 0));
    mpath_coll_counters(member.coll, &counters);
    ranks_check((self->rank != 0) || ((counters.gpu.staged_bytes > 0) == (job->with > 0)));
    ranks_check(mpath_coll_takes_device(member.coll));
    gpu_memory_free(&buffer);
    member_end(&member);
    return 0;
}

static void test_beside(void **state)
{
    job_t job = {.setup             = {.size = RANKS},
                 .device_bytes      = 64 * MIB,
                 .device_last_bytes = 64 * MIB,
                 .pinned_bytes      = 64 * MIB,
                 .pinned_last_bytes = 64 * MIB,
                 .memory_bytes      = 4 * MIB,
                 .pushes            = 1,
                 .with              = 1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, beside_body, &job), 0);
    job.pinned_last_bytes = 65536;
    job.with              = 0;
    assert_int_equal(ranks_run(&job.setup, beside_body, &job), 0);
}

/* -- large reductions, whose tiles lie in memory that ranks lend each other -- */

static int reductions_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = start(self, argument);
    gpu_sums_t sums[MANY];
    mpath_team_t *teams[MANY];

    for (int i = 0; i < MANY; i++) {
        mpath_oob_t oob = self->oob;

        if (i > 0) {
            ranks_oob(self, i, NULL, self->size, &oob);
        }
        ranks_check(mpath_team_create(context, &oob, &teams[i]) == MPATH_OK);
        gpu_sums_open(&sums[i], teams[i], ELEMENTS);
        for (uint64_t round = 0; round < 2; round++) {
            gpu_sums_round(&sums[i], ELEMENTS, 2 * (uint64_t)i + round);
        }
        check_usage(teams[i]);
    }
    for (int i = 0; i < MANY; i++) {
        gpu_sums_close(&sums[i]);
        mpath_team_destroy(teams[i]);
    }
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_reductions(void **state)
{
    job_t job = {.setup             = {.size = RANKS},
                 .device_bytes      = 24 * MIB,
                 .device_last_bytes = 8 * MIB,
                 .pinned_bytes      = MIB,
                 .pinned_last_bytes = MIB,
                 .memory_bytes      = 8 * MIB,
                 .gpu_reduce        = MPATH_GPU_REDUCE_WRITES};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, reductions_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_staged),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_reductions),
    };

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("gpu_account", tests, NULL, NULL);
}
