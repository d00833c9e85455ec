/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduces of short vectors whose calls run out of numbers: the ranks lend each other memory anew, and numbers begin
 * again, which must not meet those that old calls have left. With 5 numbers instead of 2^32 - 1.
 */
#include "capture.h"
#include "gpu/reduce_eager_args.h"
#include "gpu_kinds.h"
#include "ranks.h"

#undef MPATH_EAGER_PARTS_CALLS
#define MPATH_EAGER_PARTS_CALLS UINT64_C(5)
#include "coll/allreduce_gpu_eager.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define RANKS 3
#define ROUNDS 40
#define MOST 200000

static float value(int rank, uint64_t round, uint64_t i)
{
    return (float)((i * 7 + (uint64_t)rank * 13 + round * 29) % 101);
}

static void round_of(mpath_symmetric_gpu_t *gpu, int me, const gpu_memory_t *send, const gpu_memory_t *recv,
                     uint64_t elements, uint64_t round)
{
    const mpath_reduce_how_t how = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    static float host[MOST];
    mpath_memory_t send_memory, recv_memory;
    mpath_symmetric_buffers_t buffers = {.send        = (void *)(uintptr_t)send->address,
                                         .recv        = (void *)(uintptr_t)recv->address,
                                         .send_memory = &send_memory,
                                         .recv_memory = &recv_memory};

    ranks_check(mpath_memory_classify(buffers.send, send->bytes, &send_memory) == MPATH_OK);
    ranks_check(mpath_memory_classify(buffers.recv, recv->bytes, &recv_memory) == MPATH_OK);
    for (uint64_t i = 0; i < elements; i++) {
        host[i] = value(me, round, i);
    }
    gpu_memory_write(send->address, host, elements * sizeof(float));
    gpu_memory_fill(recv->address, 0xee, recv->bytes);
    ranks_check(mpath_allreduce_gpu(gpu, &buffers, elements, &how) == MPATH_OK);
    gpu_memory_read(recv->address, host, elements * sizeof(float));
    for (uint64_t i = 0; i < elements; i++) {
        ranks_check(host[i] == value(0, round, i) + value(1, round, i) + value(2, round, i));
    }
}

static int numbers_body(ranks_self_t *self, void *argument)
{
    mpath_symmetric_gpu_t *gpu;
    mpath_coll_counters_t counters;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    gpu_memory_t send, recv;

    (void)argument;
    setenv("FAKE_CUDA_DEVICES", "3", 1);
    gpu_application_starts();
    mpath_settings_init(&settings);
    settings.timeout_s = 100;
    settings.gpu_probe = MPATH_GPU_PROBE_OFF;
    context            = ranks_context(self, &settings);
    team               = ranks_team(self, context);
    ranks_check(mpath_symmetric_gpu_create(team, &gpu) == MPATH_OK);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, self->rank, MOST * sizeof(float), 0, &send);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, self->rank, MOST * sizeof(float), 0, &recv);
    for (uint64_t round = 0; round < ROUNDS; round++) { /* whole and in parts, shorter ones now and then */
        round_of(gpu, self->rank, &send, &recv, (round % 3 == 2) ? 100 : 3000, round);
        round_of(gpu, self->rank, &send, &recv, (round % 3 == 2) ? 130000 : MOST, round);
        ranks_check(gpu->eager->forms[MPATH_EAGER_PARTS].number <= MPATH_EAGER_PARTS_CALLS);
    }
    mpath_symmetric_gpu_counters(gpu, &counters);
    ranks_check(counters.calls == 2 * ROUNDS);
    /* Of 6 calls one lends memory, and takes another way. */
    ranks_check(counters.gpu.eager == 2 * (ROUNDS - (ROUNDS + 5) / 6));
    ranks_barrier(self);
    mpath_symmetric_gpu_destroy(gpu);
    mpath_team_destroy(team);
    gpu_memory_free(&send);
    gpu_memory_free(&recv);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_numbers_end(void **state)
{
    const ranks_setup_t setup = {.size = RANKS};

    (void)state;
    assert_int_equal(ranks_run(&setup, numbers_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers_end)};

    return cmocka_run_group_tests_name("gpu_eager", tests, NULL, NULL);
}
