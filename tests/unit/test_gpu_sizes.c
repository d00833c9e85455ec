/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Neighbouring sizes of exchanges between the GPUs of a node: over the switches from kernels to engines, of single pairs
 * and of the whole, and to a share of the host, the predicted time of the way that is chosen has no cliff. Predictions
 * alone: nothing is moved.
 */
#include "node/node_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS_MAX 8
#define CELLS (RANKS_MAX * RANKS_MAX)
#define MIB (UINT64_C(1) << 20)
#define STEP_PERCENT 3

/*
 * Between two sizes the time rises by no more than they differ by and the first of these. Where pairs get long enough for
 * an engine, whose copies begin one after the other, the second: the kernel keeps them while that is worth 5 %. It falls
 * by no more than the last: pairs that are as long leave a slower kernel, and from 200 MiB on the host takes its share at
 * once. A kernel counts as a tenth slower than it is predicted, as it does for the choice; what it carries beside engines
 * shares the ports with theirs.
 */
#define RISE_PERCENT 3
#define SWITCH_PERCENT 6
#define FALL_PERCENT 6

/* --- a node that is only described -------------------------------------------------------------------------------- */

static struct {
    mpath_gpu_coll_t gpu;
    mpath_settings_t settings;
    uint64_t demand[CELLS], by_engine[CELLS], beside[CELLS], helped[CELLS];
    uint8_t ways[CELLS];
    mpath_board_cell_t cells[RANKS_MAX];
} node;

static void node_begin(int size)
{
    mpath_gpu_coll_t *gpu = &node.gpu;

    memset(&node, 0, sizeof(node));
    mpath_settings_init(&node.settings);
    mpath_peer_rates_init(&gpu->rates);
    gpu->settings          = &node.settings;
    gpu->size              = size;
    gpu->demand            = node.demand;
    gpu->decided.lanes     = node.ways;
    gpu->decided.by_engine = node.by_engine;
    gpu->decided.beside    = node.beside;
    gpu->decided.helped    = node.helped;
    gpu->board.cells[0]    = node.cells;
    for (int rank = 0; rank < size; rank++) {
        node.cells[rank].kernels = 1;
    }
    assert_int_equal(mpath_order_create(size, &gpu->order), MPATH_OK);
}

static void node_end(void)
{
    mpath_order_destroy(node.gpu.order);
}

/* As the call does it, with memory that all have opened on both sides. */
static void choose_ways(void)
{
    mpath_gpu_coll_t *gpu = &node.gpu;
    mpath_gpu_way_t way;

    memset(node.beside, 0, sizeof(node.beside));
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        node.ways[i] = ((i / gpu->size != i % gpu->size) && (node.demand[i] > 0)) ? LANE_PUSH : LANE_NONE;
    }
    way                 = mpath_gpu_coll_fastest_lane(gpu);
    gpu->decided.pushes = 0;
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        if (node.ways[i] == LANE_NONE) {
            continue;
        }
        if ((way == MPATH_GPU_WAY_KERNEL) || (node.demand[i] < mpath_gpu_coll_engine_least(gpu))) {
            node.ways[i] = LANE_KERNEL;
        } else {
            gpu->decided.pushes = 1;
        }
    }
    mpath_gpu_coll_make_order(gpu);
}

/* --- what that takes ---------------------------------------------------------------------------------------------- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return (a > b) ? a : b;
}

/* What the pairs on one of two ways weigh, without what the host takes of them. */
static mpath_peer_load_t load_of(uint8_t way, uint8_t other)
{
    const mpath_gpu_coll_t *gpu = &node.gpu;
    mpath_peer_load_t load      = {0};

    for (int rank = 0; rank < gpu->size; rank++) {
        uint64_t out = 0, in = 0;
        unsigned fragments = 0;

        for (int peer = 0; peer < gpu->size; peer++) {
            int to = rank * gpu->size + peer, from = peer * gpu->size + rank;

            out += ((node.ways[to] == way) || (node.ways[to] == other)) ? node.demand[to] - node.beside[to] : 0;
            in += ((node.ways[from] == way) || (node.ways[from] == other)) ? node.demand[from] - node.beside[from] : 0;
            fragments += node.ways[to] == way;
        }
        load.port_bytes = larger(load.port_bytes, larger(out, in));
        load.both_bytes = larger(load.both_bytes, out + in);
        load.fragments  = (fragments > load.fragments) ? fragments : load.fragments;
    }
    return load;
}

static uint64_t predict_ns(void)
{
    const mpath_gpu_coll_t *gpu = &node.gpu;
    mpath_peer_load_t kernel = load_of(LANE_KERNEL, LANE_KERNEL), push = load_of(LANE_PUSH, LANE_PUSH);
    mpath_peer_load_t all;
    uint64_t by_kernel_ns = mpath_peer_predict_ns(&gpu->rates, MPATH_PEER_KERNEL, &kernel), engine_ns;

    push.order_ns = gpu->decided.order_ns;
    engine_ns     = mpath_peer_predict_ns(&gpu->rates, MPATH_PEER_PUSH, &push);
    if (engine_ns > 0) { /* they share the ports */
        all           = load_of(LANE_KERNEL, LANE_PUSH);
        all.fragments = 1;
        engine_ns     = larger(engine_ns, mpath_peer_predict_ns(&gpu->rates, MPATH_PEER_PUSH, &all));
    }
    return larger(by_kernel_ns + by_kernel_ns / 10, engine_ns);
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

/* What each rank sends, in all: hot_percent of it to rank 0, the rest evenly to all others. */
static void set_hot(uint64_t bytes, unsigned hot_percent)
{
    int size = node.gpu.size;

    for (int i = 0; i < size * size; i++) {
        uint64_t even = bytes / 100 * (100 - hot_percent) / (uint64_t)(size - 1);

        node.demand[i] = (i / size == i % size) ? 0 : even + ((i % size == 0) ? bytes / 100 * hot_percent : 0);
    }
}

/* The k-th receiver gets 1/k of what the first one does. */
static void set_zipf(uint64_t bytes, unsigned unused)
{
    int size = node.gpu.size;

    (void)unused;
    for (int i = 0; i < size * size; i++) {
        node.demand[i] = (i / size == i % size) ? 0 : bytes / 3 / (uint64_t)(1 + i % size);
    }
}

/* One pair alone. */
static void set_pair(uint64_t bytes, unsigned unused)
{
    (void)unused;
    memset(node.demand, 0, sizeof(node.demand));
    node.demand[1] = bytes;
}

typedef void (*shape_t)(uint64_t bytes, unsigned percent);

static void check_sizes(int size, shape_t shape, unsigned percent)
{
    uint64_t before_ns = 0, now_ns;
    unsigned switches  = 0, rise;
    uint8_t ways[CELLS];

    node_begin(size);
    for (uint64_t bytes = 64u << 10; bytes <= 2048 * MIB; bytes += bytes * STEP_PERCENT / 100) {
        shape(bytes, percent);
        choose_ways();
        now_ns = predict_ns();
        rise   = STEP_PERCENT + RISE_PERCENT;
        if ((before_ns > 0) && (memcmp(ways, node.ways, sizeof(ways)) != 0)) {
            switches++;
            rise = STEP_PERCENT + SWITCH_PERCENT;
        }
        memcpy(ways, node.ways, sizeof(ways));
        if ((before_ns > 0) &&
            ((now_ns > before_ns + before_ns * rise / 100) || (now_ns < before_ns - before_ns * FALL_PERCENT / 100))) {
            fail_msg("%d GPUs, shape of %u %%, %llu bytes of each: %llu ns after %llu ns for %d %% less", size, percent,
                     (unsigned long long)bytes, (unsigned long long)now_ns, (unsigned long long)before_ns,
                     STEP_PERCENT);
        }
        before_ns = now_ns;
    }
    assert_true(switches > 0);
    node_end();
}

static void test_no_cliffs(void **state)
{
    static const int sizes[] = {2, 4, 8};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check_sizes(sizes[i], set_hot, 0);
        check_sizes(sizes[i], set_hot, 50);
        check_sizes(sizes[i], set_hot, 90);
        check_sizes(sizes[i], set_zipf, 0);
        check_sizes(sizes[i], set_pair, 0);
    }
}

static uint64_t through_the_host(uint64_t beside_bps)
{
    uint64_t bytes = 0;

    node_begin(4);
    node.gpu.rates.beside_bps = beside_bps;
    set_hot(512 * MIB, 90);
    choose_ways();
    for (int i = 0; i < CELLS; i++) {
        bytes += node.beside[i];
    }
    node_end();
    return bytes;
}

/* A hot receiver gets through the host what that adds to its links: nothing where both share a ceiling. */
static void test_host_adds_to_links(void **state)
{
    uint64_t h200;

    (void)state;
    node_begin(4);
    h200 = node.gpu.rates.beside_bps;
    node_end();
    assert_true(through_the_host(h200) > 64 * MIB);
    assert_in_range(through_the_host(h200 / 4), MIB, through_the_host(h200) / 3);
    assert_int_equal(through_the_host(1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_cliffs), cmocka_unit_test(test_host_adds_to_links)};

    return cmocka_run_group_tests_name("gpu_sizes", tests, NULL, NULL);
}
