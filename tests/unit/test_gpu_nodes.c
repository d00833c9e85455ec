/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce, Reduce_scatter and Allgather between nodes of GPUs, on the driver without a GPU: the bits are those of host
 * memory, guard bytes stay, memory and contexts come and go, and ranks that differ decline together.
 */
#include "pipeline/pipeline_private.h"
#include "gpu_nodes.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t kernel_bytes(own_t *own)
{
    uint64_t all[RANKS_MAX], sum = 0;
    mpath_coll_counters_t counters;

    mpath_symmetric_counters(own->member.symmetric, &counters);
    ranks_check(mpath_team_allgather(own->member.team, &counters.gpu.kernel_bytes, sizeof(all[0]), all) == MPATH_OK);
    for (int rank = 0; rank < own->self->size; rank++) {
        sum += all[rank];
    }
    return sum;
}

/*
 * Every node combines the vector once and hands out what is not its part; each part is combined over the nodes on one of
 * them, and handed out in the same step.
 */
static void check_work(own_t *own, uint64_t elements)
{
    uint64_t before = kernel_bytes(own), nodes = (uint64_t)mpath_topo_num_nodes(mpath_team_topo(own->member.team));

    ranks_check(allreduce(own, elements, 0, 0) == MPATH_OK);
    ranks_check(kernel_bytes(own) - before == 2 * nodes * elements * sizeof(double));
}

static int all_body(ranks_self_t *self, void *argument)
{
    static const uint64_t sizes[] = {1, 100, 1000, 20011, 50021};
    uint64_t calls                = 0;
    own_t own;

    own_init(&own, self, argument);
    for (uint64_t round = 0; round < 2 * sizeof(sizes) / sizeof(sizes[0]); round++) {
        uint64_t elements = sizes[round / 2], skip = (round % 3) * 5;

        ranks_check(allreduce(&own, elements, round, skip) == MPATH_OK);
        check_sums(&own, elements, round, skip);
        ranks_check(reduce_scatter(&own, elements / 3 + 1, round) == MPATH_OK);
        check_blocks(&own, elements / 3 + 1, round);
        ranks_check(allgather(&own, elements * 2, round) == MPATH_OK);
        check_gathered(&own, elements * 2, round);
        calls += 3;
        ranks_check(gpu_calls(&own) == calls);
        if (round % 4 == 3) { /* other memory, maybe at the same addresses */
            ranks_barrier(self);
            own_free(&own);
            own_alloc(&own, (round % 8 == 3) ? MPATH_MEMORY_VMM : MPATH_MEMORY_DEVICE);
        }
    }
    ranks_check(allreduce(&own, 0, 0, 0) == MPATH_OK);
    check_sums(&own, 0, 0, 0);
    check_work(&own, 30011);
    own_end(&own);
    return 0;
}

static void run_all(int size, int nodes, const int *node_of, int nics, int access, uint64_t memory_bytes)
{
    job_t job = {.setup  = {.size = size, .nodes = nodes, .node_of = node_of, .nics = nics, .nic_bps = FAST_RAIL_BPS},
                 .access = access,
                 .algorithm    = MPATH_ALGORITHM_AUTO,
                 .memory_bytes = memory_bytes};

    assert_int_equal(ranks_run(&job.setup, all_body, &job), 0);
}

static void test_layouts(void **state)
{
    const int uneven[] = {0, 1, 0, 0, 1}, dealt[] = {0, 1, 0, 1};

    (void)state;
    run_all(4, 2, NULL, 2, MPATH_ACCESS_AFFINE, 0);
    run_all(3, 3, NULL, 1, MPATH_ACCESS_ALL, 0);
    run_all(5, 0, uneven, 2, MPATH_ACCESS_ALL, 0);
    run_all(4, 0, dealt, 2, MPATH_ACCESS_AFFINE, 2 << 20);
    setenv("FAKE_CUDA_WITHOUT", "values", 1); /* marks are events */
    run_all(3, 2, NULL, 1, MPATH_ACCESS_AFFINE, 0);
    unsetenv("FAKE_CUDA_WITHOUT");
}

/* In steps between nodes, of whose number some are no power of two, with the rails' parts of a slot one behind the other. */
static void test_steps(void **state)
{
    const int uneven[] = {0, 1, 0, 2, 3, 2, 4, 4};
    job_t jobs[]       = {
              {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = MPATH_ACCESS_AFFINE},
              {.setup = {.size = 6, .nodes = 3, .nics = 2}, .access = MPATH_ACCESS_AFFINE},
              {.setup = {.size = 8, .node_of = uneven, .nics = 3}, .access = MPATH_ACCESS_ALL},
              {.setup = {.size = 6, .nodes = 3, .nics = 2}, .access = MPATH_ACCESS_AFFINE, .memory_bytes = 2 << 20}};

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        jobs[i].setup.nic_bps = FAST_RAIL_BPS;
        jobs[i].steps_nodes   = 2;
        assert_int_equal(ranks_run(&jobs[i].setup, all_body, &jobs[i]), 0);
    }
}

/* Who has the data where it cannot be shared makes all decline; afterwards all is as before. */
static int mixed_body(ranks_self_t *self, void *argument)
{
    const uint64_t blocks[] = {100, 100, 100, 100};
    mpath_symmetric_buffers_t buffers;
    gpu_memory_t managed;
    own_t own;

    own_init(&own, self, argument);
    gpu_memory_alloc(MPATH_MEMORY_MANAGED, self->rank, 4096, 0, &managed);
    for (uint64_t round = 0; round < 3; round++) {
        ranks_check(allreduce(&own, 1000, round, 0) == MPATH_OK);
        check_sums(&own, 1000, round, 0);
        buffers = buffers_of(&own, 0, 0);
        if (self->rank == (int)round) {
            buffers.recv        = own.recv.host;
            buffers.recv_memory = NULL;
        }
        ranks_check(mpath_allreduce_anywhere(own.member.symmetric, &buffers, 1000, &doubles, &sums) == MPATH_DECLINED);
        buffers = buffers_of(&own, 0, 0);
        if (self->rank == (int)round) { /* not where a double may lie */
            buffers.send = (const char *)buffers.send + 4;
        }
        ranks_check(mpath_allreduce_anywhere(own.member.symmetric, &buffers, 1000, &doubles, &sums) == MPATH_DECLINED);
        buffers = buffers_of(&own, 1, 0); /* in place */
        ranks_check(mpath_reduce_scatter_anywhere(own.member.symmetric, &buffers, blocks, &doubles, &sums) ==
                    MPATH_DECLINED);
    }
    /* host memory on all ranks is carried in the same agreement */
    for (uint64_t i = 0; i < 1000; i++) {
        own.send.host[i] = value_of(self->rank, i, 9);
    }
    buffers = (mpath_symmetric_buffers_t){.send = own.send.host, .recv = own.recv.host};
    ranks_check(mpath_allreduce_anywhere(own.member.symmetric, &buffers, 1000, &doubles, &sums) == MPATH_OK);
    for (uint64_t i = 0; i < 1000; i++) {
        double expected = sum_of(&own.member, self->size, i, 9);

        ranks_check(memcmp(&own.recv.host[i], &expected, sizeof(expected)) == 0);
    }
    ranks_check(gpu_calls(&own) == 3);
    gpu_memory_free(&managed);
    own_end(&own);
    return 0;
}

static void test_mixed(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, mixed_body, &job), 0);
}

/* More buffers than the ranks remember of each other, of every kind; each rank takes another one. */
#define PAIRS 11

static void pair_alloc(own_t *own, int pair, side_t *send, side_t *recv)
{
    static const struct {
        mpath_memory_kind_t kind;
        int blocks;
    } kinds[] = {{MPATH_MEMORY_DEVICE, 1}, {MPATH_MEMORY_VMM, 3}, {MPATH_MEMORY_POOL, 1}, {MPATH_MEMORY_VMM, 1}};
    int from = (pair + own->self->rank) % 4, to = (pair / 2) % 4;

    side_alloc(send, own->self->rank, kinds[from].kind, kinds[from].blocks);
    side_alloc(recv, own->self->rank, kinds[to].kind, kinds[to].blocks);
}

static void run_round(own_t *own, uint64_t round)
{
    uint64_t elements = 900 + 3001 * (round % 5), calls = gpu_calls(own);

    if (round % 3 != 0) {
        ranks_check(reduce_scatter(own, elements, round) == MPATH_OK);
        check_blocks(own, elements, round);
    }
    if (round % 3 != 1) {
        ranks_check(allgather(own, elements, round) == MPATH_OK);
        check_gathered(own, elements, round);
    }
    check_allreduce(&own->member, own->self, elements, round); /* host memory */
    ranks_check(allreduce(own, elements, round, 0) == MPATH_OK);
    check_sums(own, elements, round, 0);
    ranks_check(gpu_calls(own) - calls == ((round % 3 == 2) ? 3 : 2));
}

static int memory_body(ranks_self_t *self, void *argument)
{
    side_t send[PAIRS], recv[PAIRS];
    own_t own;

    own_init(&own, self, argument);
    own_free(&own);
    for (int pair = 0; pair < PAIRS; pair++) {
        pair_alloc(&own, pair, &send[pair], &recv[pair]);
    }
    for (uint64_t round = 0; round < 24; round++) {
        size_t pair = (round < 12) ? round * ((uint64_t)self->rank + 1) % PAIRS : round % 3;

        if ((round > 12) && (round % (uint64_t)self->size == (uint64_t)self->rank)) { /* one alone, and in the middle */
            side_t *side = (round % 2) ? &send[pair] : &recv[pair];

            if (side->memory.kind == MPATH_MEMORY_VMM) {
                gpu_memory_remap(&side->gpu, (side->gpu.block_bytes < side->gpu.bytes) ? 1 : 0);
            } else {
                side_free(side);
                side_alloc(side, self->rank, MPATH_MEMORY_DEVICE, 1);
            }
        }
        own.send = send[pair];
        own.recv = recv[pair];
        run_round(&own, round);
    }
    for (int pair = 1; pair < PAIRS; pair++) {
        side_free(&send[pair]);
        side_free(&recv[pair]);
    }
    own.send = send[0];
    own.recv = recv[0];
    own_end(&own);
    return 0;
}

static void test_memory(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, memory_body, &job), 0);
}

/*
 * Contexts that the application ends between calls, of all ranks, of one, of those of a node; of two GPUs in turns; and
 * one GPU for all ranks of a node.
 */
static int contexts_body(ranks_self_t *self, void *argument)
{
    own_t own;

    own_init(&own, self, argument);
    for (uint64_t round = 0; round < 16; round++) {
        int other  = (round >= 8) && ((round + (uint64_t)self->rank) % 3 == 0);
        int device = (round >= 14) ? self->node : self->rank + (other ? 4 : 0);
        int resets = (round == 1) || ((round < 8) && ((int)round % self->size == self->rank)) ||
                     ((round == 6) && (self->node == 1)) || (round == 11);

        ranks_barrier(self);
        own_free(&own);
        if (resets) {
            gpu_application_resets(self->rank);
            mpath_gpu_notice_lost();
        }
        side_alloc(&own.send, device, MPATH_MEMORY_DEVICE, 1);
        side_alloc(&own.recv, device, (round % 2) ? MPATH_MEMORY_DEVICE : MPATH_MEMORY_VMM, 2);
        run_round(&own, round);
        run_round(&own, round + 1);
    }
    own_end(&own);
    return 0;
}

static void test_contexts(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, contexts_body, &job), 0);
}

/* Two communicators, a thread each, share streams, imports and rails. */
static void *thread_main(void *argument)
{
    own_t *own = argument;

    for (uint64_t round = 0; round < 12; round++) {
        run_round(own, round);
    }
    return NULL;
}

static int threads_body(ranks_self_t *self, void *argument)
{
    pthread_t thread;
    mpath_oob_t oob;
    own_t own[2];

    own_init(&own[0], self, argument);
    own[1] = own[0];
    own_alloc(&own[1], MPATH_MEMORY_VMM);
    ranks_oob(self, 1, NULL, self->size, &oob);
    ranks_check(mpath_team_create(own[1].member.context, &oob, &own[1].member.team) == MPATH_OK);
    ranks_check(mpath_coll_create(own[1].member.team, &own[1].member.coll) == MPATH_OK);
    ranks_check(mpath_symmetric_create(own[1].member.team, own[1].member.coll, &own[1].member.symmetric) == MPATH_OK);
    ranks_check(pthread_create(&thread, NULL, thread_main, &own[1]) == 0);
    thread_main(&own[0]);
    ranks_check(pthread_join(thread, NULL) == 0);
    mpath_symmetric_destroy(own[1].member.symmetric);
    mpath_coll_destroy(own[1].member.coll);
    mpath_team_destroy(own[1].member.team);
    own_free(&own[1]);
    own_end(&own[0]);
    return 0;
}

static void test_threads(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, threads_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts),  cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_mixed),    cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_contexts), cmocka_unit_test(test_threads)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
