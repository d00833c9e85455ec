/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions on device memory between ranks, on the driver without a GPU: blocks of which some are empty. */
#include "capture.h"
#include "coll/allreduce_gpu.h"
#include "gpu_kinds.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3
#define MOST 5000 /* elements of all blocks */

static const uint64_t blocks[][RANKS] = {{5, 0, 7}, {0, 0, 9}, {4000, 0, 1}, {0, 700, 0}};

typedef struct own {
    ranks_self_t *self;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_symmetric_gpu_t *gpu;
    gpu_memory_t send, recv;
    mpath_memory_t send_memory, recv_memory;
} own_t;

static void classify(const gpu_memory_t *of, mpath_memory_t *memory)
{
    ranks_check(mpath_memory_classify((void *)(uintptr_t)of->address, of->bytes, memory) == MPATH_OK);
}

static void own_init(own_t *own, ranks_self_t *self)
{
    mpath_settings_t settings;

    setenv("FAKE_CUDA_DEVICES", "3", 1);
    gpu_application_starts();
    mpath_settings_init(&settings);
    settings.timeout_s = 100;
    settings.gpu_probe = MPATH_GPU_PROBE_OFF;
    own->self          = self;
    own->context       = ranks_context(self, &settings);
    own->team          = ranks_team(self, own->context);
    ranks_check(mpath_symmetric_gpu_create(own->team, &own->gpu) == MPATH_OK);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, self->rank, MOST * sizeof(float), 0, &own->send);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, self->rank, MOST * sizeof(float), 0, &own->recv);
    classify(&own->send, &own->send_memory);
    classify(&own->recv, &own->recv_memory);
}

static void own_end(own_t *own)
{
    mpath_symmetric_gpu_destroy(own->gpu);
    mpath_team_destroy(own->team);
    gpu_memory_free(&own->send);
    gpu_memory_free(&own->recv);
    mpath_context_destroy(own->context);
    mpath_gpu_cleanup();
}

static float value(int rank, uint64_t i)
{
    return (float)((i * 7 + (uint64_t)rank * 13) % 101);
}

/* Whoever gets nothing may have no memory to get it in. */
static void reduce_scatter(own_t *own, const uint64_t *elements, int in_place)
{
    const mpath_reduce_how_t how = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    int me                       = own->self->rank;
    gpu_memory_t *recv           = in_place ? &own->send : &own->recv;
    uint64_t total = 0, mine_at = 0, mine = elements[me];
    static float host[MOST];
    mpath_symmetric_buffers_t buffers;

    for (int rank = 0; rank < RANKS; rank++) {
        mine_at = (rank == me) ? total : mine_at;
        total += elements[rank];
    }
    for (uint64_t i = 0; i < total; i++) {
        host[i] = value(me, i);
    }
    gpu_memory_write(own->send.address, host, total * sizeof(float));
    gpu_memory_fill(own->recv.address, 0xee, own->recv.bytes);
    buffers = (mpath_symmetric_buffers_t){.send        = (void *)(uintptr_t)own->send.address,
                                          .recv        = (void *)(uintptr_t)recv->address,
                                          .send_memory = &own->send_memory,
                                          .recv_memory = in_place ? &own->send_memory : &own->recv_memory};
    if ((mine == 0) && !in_place) {
        buffers.recv        = NULL;
        buffers.recv_memory = NULL;
    }
    ranks_check(mpath_reduce_scatter_gpu(own->gpu, &buffers, elements, &how) == MPATH_OK);
    gpu_memory_read(recv->address, host, MOST * sizeof(float));
    for (uint64_t i = 0; i < mine; i++) {
        ranks_check(host[i] == value(0, mine_at + i) + value(1, mine_at + i) + value(2, mine_at + i));
    }
    for (size_t i = mine * sizeof(float); !in_place && (i < sizeof(host)); i++) {
        ranks_check(((unsigned char *)host)[i] == 0xee);
    }
}

static int empty_blocks_body(ranks_self_t *self, void *argument)
{
    own_t own;

    (void)argument;
    own_init(&own, self);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
            reduce_scatter(&own, blocks[i], 0);
            reduce_scatter(&own, blocks[i], 1);
        }
    }
    own_end(&own);
    return 0;
}

static void test_empty_blocks(void **state)
{
    const ranks_setup_t setup = {.size = RANKS};

    (void)state;
    assert_int_equal(ranks_run(&setup, empty_blocks_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_empty_blocks)};

    return cmocka_run_group_tests_name("gpu_symmetric", tests, NULL, NULL);
}
