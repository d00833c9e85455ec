/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of ranks with a GPU each share: their start, and sums that are easy to check. */
#include "gpu_ranks.h"

#include <stdio.h>
#include <stdlib.h>

void gpu_ranks_start(int devices, const char *without, mpath_settings_t *settings)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", devices);
    setenv("FAKE_CUDA_DEVICES", number, 1);
    setenv("FAKE_CUDA_WITHOUT", without, 1);
    gpu_application_starts();
    mpath_settings_init(settings);
    settings->gate      = MPATH_GATE_ALWAYS;
    settings->timeout_s = 100;
    settings->gpu_probe = MPATH_GPU_PROBE_OFF;
}

void gpu_sums_open(gpu_sums_t *sums, mpath_team_t *team, uint64_t most)
{
    *sums = (gpu_sums_t){.me = mpath_team_rank(team), .size = mpath_team_size(team)};
    ranks_check(mpath_symmetric_gpu_create(team, &sums->gpu) == MPATH_OK);
    sums->host = malloc(most * sizeof(*sums->host));
    ranks_check(sums->host != NULL);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, sums->me, most * sizeof(*sums->host), 0, &sums->send);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, sums->me, most * sizeof(*sums->host), 0, &sums->recv);
}

#define PERIOD 101 /* of the elements: they and their sums are computed for so many */

static float value(int rank, uint64_t round, uint64_t i)
{
    return (float)((i * 7 + (uint64_t)rank * 13 + round * 29) % PERIOD);
}

static void make_expected(const gpu_sums_t *sums, uint64_t round, float *expected)
{
    for (uint64_t i = 0; i < PERIOD; i++) {
        expected[i] = 0;
        for (int rank = 0; rank < sums->size; rank++) {
            float next = value(rank, round, i);

            expected[i] = sums->op == MPATH_REDUCE_SUM ? expected[i] + next : next > expected[i] ? next : expected[i];
        }
    }
}

mpath_status_t gpu_sums_call(gpu_sums_t *sums, uint64_t elements, uint64_t round)
{
    const mpath_reduce_how_t how = {sums->op, MPATH_REDUCE_F32};
    const gpu_memory_t *recv     = sums->in_place ? &sums->send : &sums->recv;
    mpath_memory_t send_memory, recv_memory;
    mpath_symmetric_buffers_t buffers = {.send        = (void *)(uintptr_t)sums->send.address,
                                         .recv        = (void *)(uintptr_t)recv->address,
                                         .send_memory = &send_memory,
                                         .recv_memory = &recv_memory};
    float own[PERIOD], expected[PERIOD];
    mpath_status_t status;

    ranks_check(mpath_memory_classify(buffers.send, sums->send.bytes, &send_memory) == MPATH_OK);
    ranks_check(mpath_memory_classify(buffers.recv, recv->bytes, &recv_memory) == MPATH_OK);
    make_expected(sums, round, expected);
    for (uint64_t i = 0; i < PERIOD; i++) {
        own[i] = value(sums->me, round, i);
    }
    for (uint64_t i = 0; i < elements; i++) {
        sums->host[i] = own[i % PERIOD];
    }
    gpu_memory_write(sums->send.address, sums->host, elements * sizeof(*sums->host));
    if (!sums->in_place) {
        gpu_memory_fill(recv->address, 0xee, recv->bytes);
    }
    status = mpath_allreduce_gpu(sums->gpu, &buffers, elements, &how);
    gpu_memory_read(recv->address, sums->host, elements * sizeof(*sums->host));
    for (uint64_t i = 0; status == MPATH_OK && i < elements; i++) {
        ranks_check(sums->host[i] == expected[i % PERIOD]);
    }
    return status;
}

void gpu_sums_round(gpu_sums_t *sums, uint64_t elements, uint64_t round)
{
    ranks_check(gpu_sums_call(sums, elements, round) == MPATH_OK);
}

void gpu_sums_close(gpu_sums_t *sums)
{
    mpath_symmetric_gpu_destroy(sums->gpu);
    gpu_memory_free(&sums->send);
    gpu_memory_free(&sums->recv);
    free(sums->host);
}
