/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions on device memory between ranks, on the driver without a GPU: blocks of which some are empty, and memory that
 * is freed between calls; and operations that others progress, whose kernels wait for each other: beside blocking ones on
 * the same streams, and for long.
 */
#include "capture.h"
#include "node/reduce.h"
#include "device/ipc_import.h"
#include "gpu_kinds.h"
#include "ranks.h"
#include "team/team_private.h"
#include "util/fiber.h"
#include "util/log.h"
#include "util/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 3
#define IMPORTS_KEPT 1
#define PARTS_OF_TWO 100 /* elements: parts for two ranks */
#define MOST 400000      /* elements: more than GPUs reduce each for itself */

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

static void own_alloc(own_t *own)
{
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, own->self->rank, MOST * sizeof(float), 0, &own->send);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, own->self->rank, MOST * sizeof(float), 0, &own->recv);
    classify(&own->send, &own->send_memory);
    classify(&own->recv, &own->recv_memory);
}

static void own_free(own_t *own)
{
    gpu_memory_free(&own->send);
    gpu_memory_free(&own->recv);
}

static mpath_context_t *start(ranks_self_t *self, int timeout_s, int way)
{
    mpath_settings_t settings;

    setenv("FAKE_CUDA_DEVICES", "3", 1);
    setenv("FAKE_CUDA_MULTIPROCESSORS", "64", 1);
    gpu_application_starts();
    mpath_settings_init(&settings);
    settings.timeout_s   = timeout_s;
    settings.gpu_probe   = MPATH_GPU_PROBE_OFF;
    settings.gpu_reduce  = way;
    settings.gpu_imports = (way == MPATH_GPU_REDUCE_DIRECT) ? 0 : IMPORTS_KEPT;
    return ranks_context(self, &settings);
}

static void own_init(own_t *own, ranks_self_t *self, mpath_context_t *context, const mpath_oob_t *oob)
{
    own->self    = self;
    own->context = context;
    ranks_check(mpath_team_create(context, oob, &own->team) == MPATH_OK);
    ranks_check(mpath_symmetric_gpu_create(own->team, &own->gpu) == MPATH_OK);
    own_alloc(own);
}

static void own_end(own_t *own)
{
    mpath_symmetric_gpu_destroy(own->gpu);
    mpath_team_destroy(own->team);
    own_free(own);
}

static float value(int rank, uint64_t i)
{
    return (float)((i * 7 + (uint64_t)rank * 13) % 101);
}

static float sum(int size, uint64_t i)
{
    float all = 0;

    for (int rank = 0; rank < size; rank++) {
        all += value(rank, i);
    }
    return all;
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

    for (int rank = 0; rank < own->self->size; rank++) {
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
        ranks_check(host[i] == sum(own->self->size, mine_at + i));
    }
    for (size_t i = mine * sizeof(float); !in_place && (i < sizeof(host)); i++) {
        ranks_check(((unsigned char *)host)[i] == 0xee);
    }
}

/* What its owner frees must not be in use here, nor much of it open. */
static void check_closed(void)
{
    mpath_import_counts_t counts;

    mpath_import_counts(&counts);
    ranks_check((counts.opened > 0) && (counts.in_use == 0) && (counts.entries <= IMPORTS_KEPT));
}

static int empty_blocks_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = start(self, 100, MPATH_GPU_REDUCE_WRITES);
    own_t own;

    (void)argument;
    own_init(&own, self, context, &self->oob);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
            reduce_scatter(&own, blocks[i], 0);
            reduce_scatter(&own, blocks[i], 1);
            check_closed();
        }
        ranks_barrier(self);
        own_free(&own); /* other memory at the same addresses */
        own_alloc(&own);
    }
    own_end(&own);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_empty_blocks(void **state)
{
    const ranks_setup_t setup = {.size = RANKS};

    (void)state;
    assert_int_equal(ranks_run(&setup, empty_blocks_body, NULL), 0);
}

/*
 * The vector has parts for two ranks: the third has nothing to do with the memory of the others, who free it as soon as
 * the call has ended for them, while it is late.
 */
static mpath_cu_result_t (*open_at_once)(mpath_cu_ptr_t *, mpath_cu_ipc_t, unsigned);

static mpath_cu_result_t open_late(mpath_cu_ptr_t *pointer, mpath_cu_ipc_t handle, unsigned flags)
{
    usleep(200000);
    return open_at_once(pointer, handle, flags);
}

static int without_a_part_body(ranks_self_t *self, void *argument)
{
    const mpath_reduce_how_t how = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    mpath_context_t *context     = start(self, 100, MPATH_GPU_REDUCE_DIRECT);
    mpath_cu_t *driver           = (mpath_cu_t *)(uintptr_t)mpath_gpu_driver(); /* no constant */
    float host[PARTS_OF_TWO];
    own_t own;

    (void)argument;
    own_init(&own, self, context, &self->oob);
    for (int round = 0; round < 3; round++) {
        const mpath_symmetric_buffers_t buffers = {.send        = (void *)(uintptr_t)own.send.address,
                                                   .recv        = (void *)(uintptr_t)own.send.address,
                                                   .send_memory = &own.send_memory,
                                                   .recv_memory = &own.send_memory};

        if ((round == 2) && (self->rank == 2)) {
            open_at_once             = driver->IpcOpenMemHandle;
            driver->IpcOpenMemHandle = open_late;
        }
        for (unsigned i = 0; i < PARTS_OF_TWO; i++) {
            host[i] = value(self->rank, i);
        }
        gpu_memory_write(own.send.address, host, sizeof(host));
        ranks_barrier(self);
        ranks_check(mpath_allreduce_gpu(own.gpu, &buffers, PARTS_OF_TWO, &how) == MPATH_OK);
        gpu_memory_read(own.send.address, host, sizeof(host));
        for (unsigned i = 0; i < PARTS_OF_TWO; i++) {
            ranks_check(host[i] == sum(self->size, i));
        }
    }
    own_end(&own); /* frees the memory */
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_without_a_part(void **state)
{
    const ranks_setup_t setup = {.size = RANKS};

    (void)state;
    assert_int_equal(ranks_run(&setup, without_a_part_body, NULL), 0);
}

/* Data of one kind and its result in another: the GPUs do it all the same. */
static int two_kinds_body(ranks_self_t *self, void *argument)
{
    static const mpath_memory_kind_t others[] = {MPATH_MEMORY_VMM, MPATH_MEMORY_POOL};
    const mpath_reduce_how_t how              = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    mpath_context_t *context                  = start(self, 100, MPATH_GPU_REDUCE_DIRECT);
    float host[PARTS_OF_TWO];
    own_t own;

    (void)argument;
    own_init(&own, self, context, &self->oob);
    for (int round = 0; round < 4; round++) {
        gpu_memory_t other;
        mpath_memory_t memory;
        const gpu_memory_t *send = (round % 2) ? &other : &own.send, *recv = (round % 2) ? &own.recv : &other;
        mpath_symmetric_buffers_t buffers;

        gpu_memory_alloc(others[round / 2], self->rank, MOST * sizeof(float), 1, &other);
        classify(&other, &memory);
        buffers = (mpath_symmetric_buffers_t){.send        = (void *)(uintptr_t)send->address,
                                              .recv        = (void *)(uintptr_t)recv->address,
                                              .send_memory = (round % 2) ? &memory : &own.send_memory,
                                              .recv_memory = (round % 2) ? &own.recv_memory : &memory};
        for (unsigned i = 0; i < PARTS_OF_TWO; i++) {
            host[i] = value(self->rank, i);
        }
        gpu_memory_write(send->address, host, sizeof(host));
        ranks_check(mpath_allreduce_gpu(own.gpu, &buffers, PARTS_OF_TWO, &how) == MPATH_OK);
        gpu_memory_read(recv->address, host, sizeof(host));
        for (unsigned i = 0; i < PARTS_OF_TWO; i++) {
            ranks_check(host[i] == sum(self->size, i));
        }
        ranks_barrier(self);
        gpu_memory_free(&other);
    }
    own_end(&own);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_two_kinds(void **state)
{
    const ranks_setup_t setup = {.size = RANKS};

    (void)state;
    assert_int_equal(ranks_run(&setup, two_kinds_body, NULL), 0);
}

/* -- an operation that others progress -- */

#define PAIRS 3 /* of streams, which communicators share */

/* An Allreduce on a fiber. */
static mpath_fiber_t *fiber;
static mpath_status_t ended;

static void allreduce(void *argument)
{
    const mpath_reduce_how_t how      = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    own_t *own                        = argument;
    mpath_symmetric_buffers_t buffers = {.send        = (void *)(uintptr_t)own->send.address,
                                         .recv        = (void *)(uintptr_t)own->recv.address,
                                         .send_memory = &own->send_memory,
                                         .recv_memory = &own->recv_memory};

    ended = mpath_allreduce_gpu(own->gpu, &buffers, MOST, &how);
}

static void fill_vector(const own_t *own)
{
    static float host[MOST];

    for (uint64_t i = 0; i < MOST; i++) {
        host[i] = value(own->self->rank, i);
    }
    gpu_memory_write(own->send.address, host, sizeof(host));
    gpu_memory_fill(own->recv.address, 0xee, sizeof(host));
}

static void check_vector(const own_t *own)
{
    static float host[MOST];

    ranks_check(ended == MPATH_OK);
    gpu_memory_read(own->recv.address, host, sizeof(host));
    for (uint64_t i = 0; i < MOST; i++) {
        ranks_check(host[i] == sum(own->self->size, i));
    }
}

/* Until it has ended, or so long; nonzero: it has. */
static int progress_for(uint64_t ns)
{
    uint64_t start_ns = mpath_time_ns();

    while (mpath_time_ns() - start_ns < ns) {
        if (mpath_fiber_resume(fiber) == MPATH_FIBER_ENDED) {
            return 1;
        }
        usleep(200);
    }
    return 0;
}

/* Rank 1 tells that it has come, and leaves it at that; rank 0 goes on as far as it gets. */
static void begin(own_t *own)
{
    ranks_check(mpath_fiber_create(1u << 20, &fiber) == MPATH_OK);
    fill_vector(own);
    mpath_fiber_start(fiber, allreduce, own);
    if (own->self->rank == 1) {
        ranks_check(mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED);
    }
    ranks_barrier(own->self);
    if (own->self->rank == 0) {
        ranks_check(!progress_for(UINT64_C(300000000)));
    }
    ranks_barrier(own->self);
}

static void finish(own_t *own)
{
    ranks_check(progress_for(UINT64_C(300000000000)));
    mpath_fiber_destroy(fiber);
    fiber = NULL;
    check_vector(own);
}

/* What Open MPI's progress engine does, whoever calls it; not so early that the agreement would do. */
static void (*progress_of_oob)(void *context);
static uint64_t earliest_ns;

static void progress_all(void *context)
{
    progress_of_oob(context);
    if ((fiber != NULL) && !mpath_fiber_is_on() && (ended == MPATH_INPROGRESS) && (mpath_time_ns() > earliest_ns)) {
        (void)mpath_fiber_resume(fiber);
    }
}

/*
 * On rank 0 the kernel waits for that of rank 1, which is in a blocking operation. That one's data comes behind the
 * kernel, on the same stream.
 */
static int beside_blocking_body(ranks_self_t *self, void *argument)
{
    static const uint64_t halves[] = {MOST / 2, MOST / 2};
    mpath_context_t *context       = start(self, 100, MPATH_GPU_REDUCE_WRITES);
    own_t owns[PAIRS + 1];

    (void)argument;
    ended = MPATH_OK;
    for (int i = 0; i <= PAIRS; i++) {
        mpath_oob_t oob;

        ranks_oob(self, 1 + i, NULL, self->size, &oob);
        progress_of_oob = oob.progress;
        oob.progress    = progress_all;
        own_init(&owns[i], self, context, &oob);
        fill_vector(&owns[i]);
        allreduce(&owns[i]); /* each has streams from its first call on */
        check_vector(&owns[i]);
        reduce_scatter(&owns[i], halves, 0);
    }
    ended = MPATH_INPROGRESS;
    begin(&owns[0]);
    if (self->rank == 1) {
        usleep(200000);
        earliest_ns = mpath_time_ns() + UINT64_C(300000000);
    }
    reduce_scatter(&owns[PAIRS], halves, 0);
    if (ended == MPATH_INPROGRESS) {
        finish(&owns[0]);
    }
    ranks_barrier(self);
    for (int i = 0; i <= PAIRS; i++) {
        own_end(&owns[i]);
    }
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_beside_blocking(void **state)
{
    const ranks_setup_t setup = {.size = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, beside_blocking_body, NULL), 0);
}

/* Rank 1 computes for longer than any deadline. */
static int long_away_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = start(self, 100, MPATH_GPU_REDUCE_WRITES);
    own_t own;

    (void)argument;
    own_init(&own, self, context, &self->oob);
    fill_vector(&own);
    allreduce(&own);
    check_vector(&own);
    ranks_barrier(self);
    context->settings.timeout_s = 1; /* of the call in which the rank is away */
    begin(&own);
    if (self->rank == 1) {
        sleep(5);
    }
    finish(&own);
    own_end(&own);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_long_away(void **state)
{
    const ranks_setup_t setup = {.size = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, long_away_body, NULL), 0);
}

static int names_both;

static void look_for_both(mpath_log_level_t level, const char *line)
{
    names_both |= (level == MPATH_LOG_ERROR) && (strstr(line, "sum of floats") != NULL) &&
                  (strstr(line, "maximum of integers") != NULL);
}

static void alike_text(uint32_t operation, char *text, size_t size)
{
    snprintf(text, size, "%s", ((operation >> 8) == 1) ? "sum of floats" : "maximum of integers");
}

/* The last rank combines otherwise, in elements of the same size: an error on all, which names both. */
static int differing_body(ranks_self_t *self, void *argument)
{
    const uint64_t *elements = argument;
    int last                 = self->rank == self->size - 1;
    mpath_reduce_how_t how   = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    mpath_context_t *context = start(self, 100, MPATH_GPU_REDUCE_WRITES);
    mpath_symmetric_buffers_t buffers;
    own_t own;

    own_init(&own, self, context, &self->oob);
    fill_vector(&own);
    buffers = (mpath_symmetric_buffers_t){.send        = (void *)(uintptr_t)own.send.address,
                                          .recv        = (void *)(uintptr_t)own.recv.address,
                                          .send_memory = &own.send_memory,
                                          .recv_memory = &own.recv_memory,
                                          .alike       = 1,
                                          .alike_text  = alike_text};
    for (int round = 0; round < 3; round++) {
        ranks_check(mpath_allreduce_gpu(own.gpu, &buffers, *elements, &how) == MPATH_OK);
    }
    if (last) {
        how           = (mpath_reduce_how_t){MPATH_REDUCE_MAX, MPATH_REDUCE_I32};
        buffers.alike = 2;
    }
    mpath_log_set_sink(look_for_both);
    ranks_check(mpath_allreduce_gpu(own.gpu, &buffers, *elements, &how) == MPATH_ERR_PARAM);
    ranks_check(names_both);
    own_end(&own);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_differing(void **state)
{
    const ranks_setup_t setup = {.size = RANKS};
    uint64_t few = 100, many = MOST;

    (void)state;
    assert_int_equal(ranks_run(&setup, differing_body, &few), 0);
    assert_int_equal(ranks_run(&setup, differing_body, &many), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_empty_blocks), cmocka_unit_test(test_without_a_part),
                                       cmocka_unit_test(test_two_kinds),    cmocka_unit_test(test_beside_blocking),
                                       cmocka_unit_test(test_long_away),    cmocka_unit_test(test_differing)};

    return cmocka_run_group_tests_name("gpu_symmetric", tests, NULL, NULL);
}
