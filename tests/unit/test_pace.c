/* SPDX-License-Identifier: BSD-3-Clause */
/* The clocks of emulated ports: declared rates hold on a virtual time, whoever uses them and in whatever order. */
#include "unit/capture.h"
#include "unit/child.h"

#include "mover/pace.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NODES 2
#define GPUS 4
#define RANKS (NODES * GPUS)
#define NIC_BPS 11000000000ull
#define LINK_BPS 30000000000ull
#define PCIE_BPS 55000000000ull
#define MIB (1024ull * 1024)
#define SECOND_NS 1000000000.0
#define START_NS 1000000000ull /* not 0: clocks start there */
#define FOREVER UINT64_MAX

/* Two nodes of four GPUs, the ranks of which sit as `nodes` and `gpus` say; `first`: the host that is node 0. */
static mpath_topo_t *topo_of(const int *nodes, const int *gpus, int num_ranks, int first, mpath_emulation_t emulated)
{
    const mpath_topo_params_t params = {.access = MPATH_REACH_AFFINE, .fabric = 0, .emulated = emulated};
    static mpath_machine_t machines[NODES];
    static mpath_node_gpus_t node_gpus[NODES];
    mpath_place_t places[RANKS];
    mpath_topo_t *topo = NULL;

    memset(node_gpus, 0, sizeof(node_gpus));
    for (int n = 0; n < NODES; n++) {
        machines[n] = (mpath_machine_t){.num_nics = GPUS, .num_numa = 1, .host_memory_bps = 4 * PCIE_BPS};
        snprintf(machines[n].host, sizeof(machines[n].host), "node%d", n ^ first);
        node_gpus[n].num_gpus = GPUS;
        node_gpus[n].link     = MPATH_GPU_LINK_MESH;
        node_gpus[n].domain   = -1;
        for (int g = 0; g < GPUS; g++) {
            machines[n].nics[g]  = (mpath_nic_t){.name = "none", .rate_bps = NIC_BPS, .rail = (int16_t)g, .up = 1};
            node_gpus[n].gpus[g] = (mpath_gpu_t){.pcie_up_bps = PCIE_BPS, .pcie_down_bps = PCIE_BPS, .nics = 1u << g};
            for (int to = 0; to < GPUS; to++) {
                node_gpus[n].nvlink_bps[g][to] = (to == g) ? 0 : LINK_BPS;
            }
        }
    }
    for (int r = 0; r < num_ranks; r++) {
        places[r] = (mpath_place_t){.node = nodes[r], .nic = gpus[r], .gpu = gpus[r]};
    }
    assert_int_equal(mpath_topo_create_with_gpus(machines, node_gpus, NODES, places, num_ranks, &params, &topo),
                     MPATH_OK);
    return topo;
}

static mpath_topo_t *topo_whole(void)
{
    static const int nodes[RANKS] = {0, 0, 0, 0, 1, 1, 1, 1}, gpus[RANKS] = {0, 1, 2, 3, 0, 1, 2, 3};

    return topo_of(nodes, gpus, RANKS, 0, MPATH_EMULATED_COPIES);
}

typedef struct fixture {
    void *shared;
    mpath_topo_t *topo;
    mpath_pace_t *pace;
} fixture_t;

static int set_up(void **state)
{
    fixture_t *f = calloc(1, sizeof(*f));

    f->shared = mmap(NULL, MPATH_PACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* zeroed */
    assert_ptr_not_equal(f->shared, MAP_FAILED);
    f->topo = topo_whole();
    assert_int_equal(mpath_pace_open(f->topo, f->shared, &f->pace), MPATH_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture_t *f = *state;

    mpath_pace_close(f->pace);
    mpath_topo_destroy(f->topo);
    munmap(f->shared, MPATH_PACE_BYTES);
    free(f);
    return 0;
}

/* The path of a pair that takes the rail, or goes through the relay, of that number; -1: the direct one in the node. */
static mpath_path_t find_path(const mpath_topo_t *topo, int from, int to, int through)
{
    mpath_path_t path;

    for (int i = 0; i < mpath_topo_num_paths(topo, from, to); i++) {
        mpath_topo_path(topo, from, to, i, &path);
        for (int h = 0; h < path.num_hops; h++) {
            if ((path.hops[h].lane == MPATH_LANE_RAIL) && (path.hops[h].nic_from == through)) {
                return path;
            }
        }
        if ((path.num_hops == 1) && (through < 0)) {
            return path;
        }
    }
    fail_msg("no path from %d to %d through %d", from, to, through);
    return path;
}

static uint64_t take(fixture_t *f, const mpath_path_t *path, int hop, uint64_t bytes, uint64_t now_ns)
{
    uint64_t when_ns = 0;

    assert_int_equal(mpath_pace_take(f->pace, path, hop, bytes, now_ns, FOREVER, &when_ns), MPATH_OK);
    return when_ns;
}

static void assert_rate(uint64_t bytes, uint64_t from_ns, uint64_t to_ns, uint64_t rate_bps, double tolerance)
{
    double seen = (double)bytes * SECOND_NS / (double)(to_ns - from_ns);

    if ((seen > (double)rate_bps * (1 + tolerance)) || (seen < (double)rate_bps * (1 - tolerance))) {
        fail_msg("%.4g bytes/s in place of %.4g", seen, (double)rate_bps);
    }
}

/* Chunks of random sizes, also such that take less than a nanosecond, one after the other over one port. */
static void one_link_holds_its_rate(void **state)
{
    fixture_t *f      = *state;
    mpath_path_t path = find_path(f->topo, 0, 1, -1);

    for (uint64_t largest = 64; largest <= 4 * MIB; largest *= 16) {
        uint64_t sum = 0, last = 0, begin = START_NS * (largest + 1);

        for (int i = 0; i < 20000; i++) {
            uint64_t bytes = 1 + (uint64_t)rand() % largest;

            sum += bytes;
            last = take(f, &path, 0, bytes, begin);
        }
        assert_rate(sum, begin, last, LINK_BPS, 0.01);
    }
}

static void idle_time_is_not_saved_up(void **state)
{
    fixture_t *f      = *state;
    mpath_path_t path = find_path(f->topo, 0, 1, -1);
    uint64_t first    = take(f, &path, 0, MIB, START_NS);
    uint64_t later    = START_NS + 10 * (first - START_NS);

    assert_in_range(first, START_NS + MIB / 30, START_NS + MIB / 30 + 2);
    assert_int_equal(take(f, &path, 0, MIB, later) - later, first - START_NS);
}

/* Two directions of a pair are two ports, and so are two pairs of one GPU. */
static void ports_are_apart(void **state)
{
    fixture_t *f       = *state;
    mpath_path_t there = find_path(f->topo, 0, 1, -1), back = find_path(f->topo, 1, 0, -1);
    mpath_path_t other = find_path(f->topo, 0, 2, -1);
    uint64_t alone     = take(f, &there, 0, MIB, START_NS);

    assert_int_equal(take(f, &back, 0, MIB, START_NS), alone);
    assert_int_equal(take(f, &other, 0, MIB, START_NS), alone);
}

/* Four senders on rails of their own into one receiver's NIC, and one NIC to two receivers: the shared port decides. */
static void both_ends_of_a_rail_count(void **state)
{
    static const int nodes[] = {0, 0, 0, 1}, gpus[] = {0, 0, 0, 0};
    fixture_t *f       = *state;
    mpath_topo_t *topo = topo_of(nodes, gpus, 4, 0, MPATH_EMULATED_COPIES); /* three ranks beside one NIC */
    mpath_pace_t *pace;
    uint64_t last = 0, when_ns;

    assert_int_equal(mpath_pace_open(topo, f->shared, &pace), MPATH_OK);
    for (int i = 0; i < 300; i++) {
        mpath_path_t path;

        mpath_topo_path(topo, i % 3, 3, 0, &path);
        for (int h = 0; h < path.num_hops; h++) {
            if (path.hops[h].lane == MPATH_LANE_RAIL) {
                assert_int_equal(mpath_pace_take(pace, &path, h, MIB, START_NS, FOREVER, &when_ns), MPATH_OK);
                last = (when_ns > last) ? when_ns : last;
            }
        }
    }
    assert_rate(300 * MIB, START_NS, last, NIC_BPS, 0.001);
    mpath_pace_close(pace);
    mpath_topo_destroy(topo);
}

/*
 * A source with chunks for a hot and for a cold destination takes what is not refused; another flow fills the hot link
 * too. The cold link runs at its full rate all the same, and the hot one carries all that was given to it at its rate.
 */
static void busy_ports_do_not_hold_up_others(void **state)
{
    enum { CHUNKS = 400, AHEAD_NS = 200000, STEP_NS = 5000 };
    fixture_t *f    = *state;
    uint64_t now_ns = START_NS, when_ns, last_hot = 0, last_cold = 0;
    mpath_path_t to_hot = find_path(f->topo, 0, 1, -1), to_cold = find_path(f->topo, 0, 2, -1);
    int hot = 0, cold = 0;

    for (; (hot < 3 * CHUNKS) || (cold < CHUNKS); now_ns += STEP_NS) {
        while ((hot < 3 * CHUNKS) && /* the other flow and this one alike */
               (mpath_pace_take(f->pace, &to_hot, 0, MIB, now_ns, AHEAD_NS, &when_ns) == MPATH_OK)) {
            last_hot = when_ns;
            hot++;
        }
        if ((cold < CHUNKS) && (mpath_pace_take(f->pace, &to_cold, 0, MIB, now_ns, AHEAD_NS, &when_ns) == MPATH_OK)) {
            last_cold = when_ns;
            cold++;
        }
    }
    assert_rate(CHUNKS * MIB, START_NS, last_cold, LINK_BPS, 0.03);
    assert_rate(3 * CHUNKS * MIB, START_NS, last_hot, LINK_BPS, 0.03);
}

static void what_waits_is_bounded(void **state)
{
    enum { AHEAD_NS = 100000 };
    fixture_t *f      = *state;
    mpath_path_t path = find_path(f->topo, 0, 1, -1);
    uint64_t when_ns, again_ns;
    int taken = 0;

    while (mpath_pace_take(f->pace, &path, 0, MIB, START_NS, AHEAD_NS, &when_ns) == MPATH_OK) {
        assert_in_range(when_ns, START_NS, START_NS + AHEAD_NS + 2 * MIB / 30);
        taken++;
    }
    assert_in_range(taken, 3, 4); /* 35 us each */
    assert_true(when_ns > START_NS);
    assert_int_equal(mpath_pace_take(f->pace, &path, 0, MIB, when_ns - 2, AHEAD_NS, &again_ns), MPATH_NO_RESOURCE);
    assert_int_equal(mpath_pace_take(f->pace, &path, 0, MIB, when_ns, AHEAD_NS, &again_ns), MPATH_OK);
}

/* Processes at the same ports at the same time lose nothing and gain nothing. */
static void processes_share_a_port(void **state)
{
    enum { CHILDREN = 4, CHUNKS = 20000 };
    fixture_t *f      = *state;
    mpath_path_t path = find_path(f->topo, 0, 1, -1);
    uint64_t last;
    pid_t children[CHILDREN];

    for (int c = 0; c < CHILDREN; c++) {
        children[c] = child_fork();
        assert_true(children[c] >= 0);
        if (children[c] == 0) {
            uint64_t when_ns;

            for (int i = 0; i < CHUNKS; i++) {
                if (mpath_pace_take(f->pace, &path, 0, 30000, START_NS, FOREVER, &when_ns) != MPATH_OK) {
                    _exit(1);
                }
            }
            _exit(0);
        }
    }
    assert_int_equal(child_wait_all(children, CHILDREN, -1), 0);
    last = take(f, &path, 0, 30000, START_NS); /* 30000 bytes take 1000 ns */
    assert_int_equal(last - START_NS, (CHILDREN * CHUNKS + 1) * 1000ull);
}

/* A communicator of other ranks, whose nodes are numbered the other way, meets the same clocks. */
static void communicators_share_ports(void **state)
{
    static const int nodes[] = {0, 0}, gpus[] = {2, 3};
    fixture_t *f        = *state;
    mpath_topo_t *small = topo_of(nodes, gpus, 2, 1, MPATH_EMULATED_COPIES);
    mpath_path_t whole = find_path(f->topo, 6, 7, -1), part = find_path(small, 0, 1, -1);
    mpath_pace_t *pace;
    uint64_t when_ns, alone;

    assert_int_equal(mpath_pace_open(small, f->shared, &pace), MPATH_OK);
    alone = take(f, &whole, 0, MIB, START_NS);
    assert_int_equal(mpath_pace_take(pace, &part, 0, MIB, START_NS, FOREVER, &when_ns), MPATH_OK);
    assert_in_range(when_ns - START_NS, 2 * (alone - START_NS) - 1, 2 * (alone - START_NS));
    mpath_pace_close(pace);
    mpath_topo_destroy(small);
}

static void real_machines_are_refused(void **state)
{
    static const int nodes[] = {0, 1}, gpus[] = {0, 0};
    fixture_t *f       = *state;
    mpath_topo_t *real = topo_of(nodes, gpus, 2, 0, MPATH_EMULATED_NO);
    mpath_pace_t *pace;

    capture_start();
    assert_int_equal(mpath_pace_open(real, f->shared, &pace), MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_text(), "only where the topology file says emulated"));
    mpath_topo_destroy(real);
}

static void equal_names_are_refused(void **state)
{
    const mpath_topo_params_t params = {.emulated = MPATH_EMULATED_RAILS};
    const mpath_machine_t machines[] = {{.host = "same", .host_memory_bps = 1}, {.host = "same", .host_memory_bps = 1}};
    const mpath_place_t places[]     = {{.node = 0, .nic = -1, .gpu = -1}, {.node = 1, .nic = -1, .gpu = -1}};
    fixture_t *f                     = *state;
    mpath_topo_t *topo;
    mpath_pace_t *pace;

    assert_int_equal(mpath_topo_create(machines, 2, places, 2, &params, &topo), MPATH_OK);
    capture_start();
    assert_int_equal(mpath_pace_open(topo, f->shared, &pace), MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_text(), "nodes 0 and 1"));
    assert_non_null(strstr(capture_text(), "'same'"));
    mpath_topo_destroy(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_link_holds_its_rate, set_up, tear_down),
        cmocka_unit_test_setup_teardown(idle_time_is_not_saved_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ports_are_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(both_ends_of_a_rail_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(busy_ports_do_not_hold_up_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_waits_is_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(processes_share_a_port, set_up, tear_down),
        cmocka_unit_test_setup_teardown(communicators_share_ports, set_up, tear_down),
        cmocka_unit_test_setup_teardown(real_machines_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(equal_names_are_refused, set_up, tear_down),
    };

    srand(20261121);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
