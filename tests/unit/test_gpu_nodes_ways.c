/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kernels of reductions between nodes of GPUs read and write over the GPUs' ways to the host, on the driver without
 * a GPU: counted by the addresses that they are given. And what others are told of the rails meanwhile.
 */
#include "device/cuda/driver.h"
#include "pipeline/gpu.h"
#include "gpu_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static mpath_cu_t *driver(void)
{
    return (mpath_cu_t *)(uintptr_t)mpath_gpu_driver(); /* no constant */
}

static struct {
    __typeof__(((mpath_cu_t *)NULL)->LaunchKernel) launch;
    const mpath_symmetric_t *symmetric;
    uint64_t in, out; /* bytes from the host, and to it */
} ways;

static uint64_t on_host(const uint64_t *addresses, uint32_t count)
{
    const mpath_pinned_t *arena = mpath_arena_pinned(ways.symmetric->share->arena);
    uint64_t found              = 0;

    for (uint32_t i = 0; i < count; i++) {
        found += (addresses[i] >= arena->device_base) && (addresses[i] < arena->device_base + arena->bytes);
    }
    return found;
}

/* All kernels combine or copy words of 8 bytes here. */
static mpath_cu_result_t launch_counted(mpath_cu_function_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                        mpath_cu_stream_t stream, void **arguments, void **extra)
{
    const mpath_kernel_reduce_t *reduce = arguments[0];

    ways.in += on_host(reduce->sources, reduce->sources_count) * reduce->elements * sizeof(double);
    ways.out += on_host(reduce->targets, reduce->targets_count) * reduce->elements * sizeof(double);
    return ways.launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, arguments,
                       extra);
}

/* Of all ranks since the last call of this function. */
static void check_ways(own_t *own, uint64_t in, uint64_t out)
{
    uint64_t mine[2] = {ways.in, ways.out}, all[RANKS_MAX][2], sum[2] = {0, 0};

    ranks_check(mpath_team_allgather(own->member.team, mine, sizeof(mine), all) == MPATH_OK);
    for (int rank = 0; rank < own->self->size; rank++) {
        sum[0] += all[rank][0];
        sum[1] += all[rank][1];
    }
    if ((sum[0] != in) || (sum[1] != out)) {
        fprintf(stderr, "%llu and %llu bytes crossed, not %llu and %llu\n", (unsigned long long)sum[0],
                (unsigned long long)sum[1], (unsigned long long)in, (unsigned long long)out);
    }
    ranks_check((sum[0] == in) && (sum[1] == out));
    ways.in = ways.out = 0;
}

typedef struct layout {
    job_t job;
    int slow;        /* rails decide: there is nothing to gain */
    unsigned sliced; /* bit per node: its GPUs bring the results of its part to the receive buffers together */
} layout_t;

#define ELEMENTS 30011ull

/* Each sum goes where it is combined, and each result to one rank. */
static void check_scatter(own_t *own, uint64_t nodes, uint64_t round)
{
    uint64_t total = 0;

    for (int rank = 0; rank < own->self->size; rank++) {
        total += block_of(rank, ELEMENTS / 3, round) * sizeof(double);
    }
    ranks_check(reduce_scatter(own, ELEMENTS / 3, round) == MPATH_OK);
    check_blocks(own, ELEMENTS / 3, round);
    check_ways(own, (nodes - 1) * total, (nodes - 1) * total);
}

/* In: what is combined between the nodes, and handed out; out: sums, and what is final. */
static void check_all(own_t *own, uint64_t nodes, const layout_t *layout, uint64_t round)
{
    const mpath_share_t *share = own->member.symmetric->share;
    int again                  = share->settings->resend_min_ms == 0 && (round % 2); /* data may be needed */
    int late                   = layout->slow || again;
    uint64_t all = ELEMENTS * sizeof(double), sums_bytes = (nodes - !late) * all, in = sums_bytes;

    ranks_check(allreduce(own, ELEMENTS, round, 0) == MPATH_OK);
    check_sums(own, ELEMENTS, round, 0);
    for (uint64_t node = 0; node < nodes; node++) {
        in += all - ((late || ((layout->sliced >> node) & 1)) ? 0 : share->part_elements[node] * sizeof(double));
    }
    check_ways(own, in, sums_bytes + all);
}

static int ways_body(ranks_self_t *self, void *argument)
{
    const layout_t *layout = argument;
    uint64_t nodes;
    own_t own;

    own_init(&own, self, &layout->job);
    nodes                  = (uint64_t)mpath_topo_num_nodes(mpath_team_topo(own.member.team));
    ways.launch            = driver()->LaunchKernel;
    ways.symmetric         = own.member.symmetric;
    driver()->LaunchKernel = launch_counted;
    for (uint64_t round = 0; round < 4; round++) { /* odd ones in place */
        check_all(&own, nodes, layout, round);
        check_scatter(&own, nodes, round);
    }
    own_end(&own);
    return 0;
}

static void run_rails(int size, int nodes, const int *node_of, int nics, uint64_t nic_bps, int repeatable,
                      unsigned sliced)
{
    layout_t layout = {
        .job    = {.setup      = {.size = size, .nodes = nodes, .node_of = node_of, .nics = nics, .nic_bps = nic_bps},
                   .access     = MPATH_ACCESS_ALL,
                   .algorithm  = MPATH_ALGORITHM_AUTO,
                   .repeatable = repeatable},
        .slow   = nic_bps < FAST_RAIL_BPS,
        .sliced = sliced};

    assert_int_equal(ranks_run(&layout.job.setup, ways_body, &layout), 0);
}

static void run_ways(int size, int nodes, const int *node_of, int nics, int repeatable, unsigned sliced)
{
    run_rails(size, nodes, node_of, nics, FAST_RAIL_BPS, repeatable, sliced);
}

static void test_own_part(void **state)
{
    const int uneven[] = {0, 1, 0, 0, 1, 0}, dealt[] = {0, 1, 0, 1};

    (void)state;
    run_ways(2, 2, NULL, 1, 0, 0);
    run_ways(4, 2, NULL, 2, 0, 0);
    run_ways(6, 3, NULL, 2, 0, 0);
    run_ways(6, 0, uneven, 2, 0, 0);
    run_ways(4, 0, dealt, 3, 0, 0);
}

/* Two rails of 12.5 GB/s take as long as the ways of two GPUs with all of it. */
static void test_slow_rails(void **state)
{
    (void)state;
    run_rails(4, 2, NULL, 2, UINT64_C(12500000000), 0, 0);
    run_rails(6, 3, NULL, 2, 1000000000, 0, 0);
}

/* What goes to a receive buffer early must not take the place of data that another attempt needs. */
static void test_repeatable(void **state)
{
    (void)state;
    run_ways(4, 2, NULL, 2, 1, 0);
    run_ways(6, 3, NULL, 2, 1, 0);
}

/* Where one GPU combines much more than others, or ranks and arena are more targets than a kernel has. */
static void test_sliced(void **state)
{
    const int full[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

    (void)state;
    run_ways(6, 2, NULL, 1, 0, 3);
    run_ways(17, 0, full, 8, 0, 1);
}

/* --- rails are their GPUs' own ------------------------------------------------------------------------------------ */

static struct {
    mpath_owners_t others; /* what a communicator sees that passes chunks on */
    unsigned told;
    mpath_owner_ports_t seen;
} rails;

void __real_mpath_owners_announce(mpath_owners_t *owners, mpath_owner_ports_t ports, uint64_t now_ns);
void __wrap_mpath_owners_announce(mpath_owners_t *owners, mpath_owner_ports_t ports, uint64_t now_ns);
void __wrap_mpath_owners_announce(mpath_owners_t *owners, mpath_owner_ports_t ports, uint64_t now_ns)
{
    mpath_owner_ports_t seen;

    __real_mpath_owners_announce(owners, ports, now_ns);
    if ((ports.sends | ports.receives) != 0) {
        rails.told++;
        rails.others.looked_ns = 0;
        seen                   = mpath_owners_busy(&rails.others, now_ns);
        rails.seen.sends |= seen.sends;
        rails.seen.receives |= seen.receives;
    }
}

/* Of GPUs; data on the host makes nobody an owner. */
static int rails_body(ranks_self_t *self, void *argument)
{
    mpath_machine_t machine;
    mpath_nic_set_t mine;
    own_t own;

    own_init(&own, self, argument);
    mpath_topo_copy_machine(own.member.symmetric->share->topo, own.member.symmetric->share->node, &machine);
    mpath_owners_open(&machine, mpath_team_id(own.member.team) + 1, 0, &rails.others);
    for (uint64_t round = 0; round < 4; round++) {
        rails.told = 0;
        rails.seen = (mpath_owner_ports_t){0};
        if (round % 2) {
            check_allreduce(&own.member, self, ELEMENTS, round);
            ranks_check(rails.told == 0);
            continue;
        }
        ranks_check(allreduce(&own, ELEMENTS, round, 0) == MPATH_OK);
        check_sums(&own, ELEMENTS, round, 0);
        mine = own.member.symmetric->share->nics;
        ranks_check((rails.told > 0) == (mine != 0));
        ranks_check((rails.seen.sends & mine) == mine && (rails.seen.receives & mine) == mine);
        ranks_check(own.member.symmetric->share->gpu->owners.held.sends == 0);
        ranks_check(own.member.symmetric->share->gpu->owners.held.receives == 0);
    }
    mpath_owners_close(&rails.others);
    own_end(&own);
    return 0;
}

static void test_rails_are_announced(void **state)
{
    job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS},
                 .access    = MPATH_ACCESS_AFFINE,
                 .algorithm = MPATH_ALGORITHM_LANES};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, rails_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rails_are_announced), cmocka_unit_test(test_own_part),
                                       cmocka_unit_test(test_slow_rails), cmocka_unit_test(test_repeatable),
                                       cmocka_unit_test(test_sliced)};

    return cmocka_run_group_tests_name("gpu_nodes_ways", tests, NULL, NULL);
}
