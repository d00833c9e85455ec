/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on NICs that divide their rates fairly. */
#include "nics_world.h"

#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static mpath_topo_t *make_topo(int nodes)
{
    const mpath_topo_params_t params = {.access = MPATH_REACH_ALL};
    mpath_machine_t machines[NODES_MAX];
    mpath_place_t places[NODES_MAX];
    mpath_topo_t *topo;

    memset(machines, 0, sizeof(machines));
    for (int node = 0; node < nodes; node++) {
        places[node] = (mpath_place_t){.node = node, .nic = 0, .gpu = -1};
        snprintf(machines[node].host, sizeof(machines[node].host), "node%d", node);
        machines[node].num_nics        = RAILS;
        machines[node].host_memory_bps = 100000 * MB;
        for (int nic = 0; nic < RAILS; nic++) {
            mpath_nic_t *entry = &machines[node].nics[nic];

            *entry = (mpath_nic_t){.rate_bps = NIC_BPS, .numa = -1, .rail = (int16_t)nic, .up = 1};
            snprintf(entry->name, sizeof(entry->name), "rail%d", nic);
        }
    }
    assert_int_equal(mpath_topo_create(machines, nodes, places, nodes, &params, &topo), MPATH_OK);
    return topo;
}

static mpath_topo_rates_t rates_of(const world_t *world)
{
    return (mpath_topo_rates_t){world->nodes, RAILS, world->numbers, world->nics[0].nominal_bps,
                                world->nics[0].current_bps};
}

void world_plan_anew(world_t *world)
{
    const mpath_topo_rates_t rates = rates_of(world);

    if (world->rated != NULL) {
        mpath_topo_destroy(world->rated);
    }
    assert_int_equal(mpath_topo_with_rates(world->topo, &rates, &world->rated), MPATH_OK);
}

void world_start(world_t *world, int nodes)
{
    uint64_t nominal[ROOM];

    memset(world, 0, sizeof(*world));
    world->nodes  = nodes;
    world->topo   = make_topo(nodes);
    world->random = 1;
    for (int i = 0; i < nodes * RAILS; i++) {
        nominal[i]                            = NIC_BPS;
        world->sends[i / RAILS][i % RAILS]    = 1;
        world->receives[i / RAILS][i % RAILS] = 1;
        world->numbers[i % RAILS]             = i % RAILS;
    }
    for (int pair = 0; pair < nodes * nodes; pair++) {
        world->demand[pair] = (pair / nodes == pair % nodes) ? 0 : PAIR_BYTES;
    }
    for (int rank = 0; rank < nodes; rank++) {
        assert_int_equal(mpath_nics_init(&world->nics[rank], nodes, RAILS, nominal), MPATH_OK);
    }
    world_plan_anew(world);
}

void world_end(world_t *world)
{
    for (int rank = 0; rank < world->nodes; rank++) {
        mpath_nics_release(&world->nics[rank]);
    }
    mpath_topo_destroy(world->rated);
    mpath_topo_destroy(world->topo);
}

/* -- a call -- */

static double noisy(world_t *world, double rate)
{
    world->random = world->random * 6364136223846793005ull + 1442695040888963407ull;
    if (world->noise > 0) {
        rate *= (100 - world->noise + (double)((world->random >> 33) % (2 * world->noise + 1))) / 100;
    }
    return rate * NIC_BPS / 1e9; /* bytes in a nanosecond */
}

/* Rates of flows that have bytes left: every NIC is divided evenly, what some flow cannot use the others get. */
static void divide(const world_t *world, double left[NODES_MAX][NODES_MAX], const double *tx, const double *rx,
                   double rates[NODES_MAX][NODES_MAX])
{
    int nodes = world->nodes, open[NODES_MAX][NODES_MAX], some = 0;
    double room[2 * NODES_MAX];

    memcpy(room, tx, (size_t)nodes * sizeof(*tx));
    memcpy(room + nodes, rx, (size_t)nodes * sizeof(*rx));
    for (int i = 0; i < nodes * nodes; i++) {
        open[i / nodes][i % nodes]  = left[i / nodes][i % nodes] > 1;
        rates[i / nodes][i % nodes] = 0;
        some += open[i / nodes][i % nodes];
    }
    while (some > 0) {
        double least = -1;
        int at       = -1;

        for (int port = 0; port < 2 * nodes; port++) {
            int count = 0;

            for (int peer = 0; peer < nodes; peer++) {
                count += (port < nodes) ? open[port][peer] : open[peer][port - nodes];
            }
            if ((count > 0) && ((least < 0) || (room[port] / count < least))) {
                least = room[port] / count;
                at    = port;
            }
        }
        for (int peer = 0; peer < nodes; peer++) {
            int from = (at < nodes) ? at : peer, to = (at < nodes) ? peer : at - nodes;

            if (open[from][to]) {
                rates[from][to] = least;
                room[from] -= least;
                room[nodes + to] -= least;
                open[from][to] = 0;
                some--;
            }
        }
    }
}

static void carry_rail(world_t *world, int rail)
{
    double left[NODES_MAX][NODES_MAX], rates[NODES_MAX][NODES_MAX], tx[NODES_MAX], rx[NODES_MAX], now_ns = 0;

    memcpy(left, world->bytes[rail], sizeof(left));
    for (int node = 0; node < world->nodes; node++) {
        tx[node] = noisy(world, world->sends[node][rail]);
        rx[node] = noisy(world, world->receives[node][rail]);
    }
    for (;;) {
        double step_ns = 0;

        divide(world, left, tx, rx, rates);
        for (int i = 0; i < NODES_MAX * NODES_MAX; i++) {
            int n = i / NODES_MAX, m = i % NODES_MAX;

            if ((n < world->nodes) && (m < world->nodes) && (rates[n][m] > 0)) {
                double ends_ns = left[n][m] / rates[n][m];

                step_ns = ((step_ns == 0) || (ends_ns < step_ns)) ? ends_ns : step_ns;
            }
        }
        if (step_ns == 0) {
            return;
        }
        now_ns += step_ns;
        for (int n = 0; n < world->nodes; n++) {
            for (int m = 0; m < world->nodes; m++) {
                left[n][m] -= rates[n][m] * step_ns;
                if ((rates[n][m] > 0) && (left[n][m] <= 1)) {
                    world->took_ns[rail][n][m] = now_ns;
                }
            }
        }
    }
}

/* What a NIC takes for all that goes through it, as plans count on it. */
static double own_ns(const world_t *world, int node, int rail, int sends)
{
    double bytes = 0;

    for (int peer = 0; peer < world->nodes; peer++) {
        bytes += sends ? world->bytes[rail][node][peer] : world->bytes[rail][peer][node];
    }
    return bytes * 1e9 / (double)world->nics[0].current_bps[node * RAILS + rail];
}

static double larger(double a, double b)
{
    return (a > b) ? a : b;
}

/* As mover/clock.c and coll/learn.c do. */
static void observe(world_t *world, int me, int rail, double busiest_ns)
{
    double bytes = 0, last_ns = 0, least_ns = 0, pace_ns = 0, rx_ns = own_ns(world, me, rail, 0);
    mpath_nics_t *nics = &world->nics[me];

    for (int from = 0; from < world->nodes; from++) {
        bytes += world->bytes[rail][from][me];
    }
    for (int from = 0; from < world->nodes; from++) {
        double flow = world->bytes[rail][from][me], took_ns = world->took_ns[rail][from][me];
        double tx_ns = own_ns(world, from, rail, 1), load = 0, came = 0, flow_least_ns = larger(rx_ns, tx_ns);

        if (flow == 0) {
            continue;
        }
        for (int other = 0; other < world->nodes; other++) {
            double took_other = world->took_ns[rail][other][me];

            load += world->bytes[rail][from][other];
            came += world->bytes[rail][other][me] * ((took_other > took_ns) ? took_ns / took_other : 1);
        }
        if (flow_least_ns >= 0.8 * busiest_ns) {
            mpath_nics_observe(nics, from * RAILS + rail, flow_least_ns / took_ns, flow / load,
                               tx_ns >= 0.8 * busiest_ns);
        }
        if (2 * came >= bytes) {
            pace_ns = ((pace_ns == 0) || (took_ns * bytes / came < pace_ns)) ? took_ns * bytes / came : pace_ns;
        }
        last_ns  = larger(last_ns, took_ns);
        least_ns = larger(least_ns, flow_least_ns);
    }
    if ((bytes > 0) && (least_ns >= 0.8 * busiest_ns)) {
        mpath_nics_observe(nics, me * RAILS + rail,
                           mpath_nics_own_pace(nics, (uint64_t)least_ns, (uint64_t)last_ns, (uint64_t)pace_ns), 0,
                           rx_ns >= 0.8 * busiest_ns);
    }
}

/* The ranks exchange what they have seen, and come to the same. */
static void end_window(world_t *world)
{
    static mpath_nics_seen_t rows[NODES_MAX * ROOM];
    static const int node_of[NODES_MAX] = {0, 1, 2, 3, 4};
    int num_nics = world->nodes * RAILS, changed, first = 0;

    for (int rank = 0; rank < world->nodes; rank++) {
        mpath_nics_read(&world->nics[rank], rows + rank * num_nics);
    }
    for (int rank = 0; rank < world->nodes; rank++) {
        assert_int_equal(mpath_nics_update(&world->nics[rank], rows, world->nodes, node_of, &changed), MPATH_OK);
        first = (rank == 0) ? changed : first;
        assert_int_equal(changed, first);
        assert_memory_equal(world->nics[rank].current_bps, world->nics[0].current_bps,
                            (size_t)num_nics * sizeof(uint64_t));
    }
    world->changes += first;
    if (first) {
        world_plan_anew(world);
    }
}

static void find_bytes(world_t *world)
{
    mpath_plan_t *plan;
    const mpath_flow_t *flows;
    size_t num_flows;
    mpath_path_t path;

    assert_int_equal(mpath_plan_create(world->rated, world->demand, NULL, &plan), MPATH_OK);
    flows = mpath_plan_flows(plan, &num_flows);
    memset(world->bytes, 0, sizeof(world->bytes));
    for (size_t i = 0; i < num_flows; i++) {
        mpath_topo_path(world->rated, flows[i].source, flows[i].destination, flows[i].path, &path);
        assert_int_equal(path.num_hops, 1);
        world->bytes[path.hops[0].nic_from][flows[i].source][flows[i].destination] += (double)flows[i].bytes;
    }
    mpath_plan_destroy(plan);
}

void world_calls(world_t *world, int count)
{
    for (int call = 0; call < count; call++) {
        double busiest_ns = 0;
        int ends          = 0;

        find_bytes(world);
        for (int i = 0; i < world->nodes * RAILS; i++) {
            busiest_ns = larger(busiest_ns, own_ns(world, i / RAILS, i % RAILS, 0));
            busiest_ns = larger(busiest_ns, own_ns(world, i / RAILS, i % RAILS, 1));
        }
        for (int rail = 0; rail < RAILS; rail++) {
            carry_rail(world, rail);
            for (int rank = 0; rank < world->nodes; rank++) {
                observe(world, rank, rail, busiest_ns);
            }
        }
        for (int rank = 0; rank < world->nodes; rank++) {
            ends = mpath_nics_end_call(&world->nics[rank], MPATH_RATES_WINDOW_NS);
        }
        if (ends) {
            end_window(world);
        }
    }
}

/* -- what they learn -- */

void world_slow_nic(world_t *world, int node, int rail, double sends, double receives)
{
    world->sends[node][rail]    = sends;
    world->receives[node][rail] = receives;
}

int world_learned(const world_t *world, int node, int rail)
{
    return (int)(world->nics[0].current_bps[node * RAILS + rail] * 100 / NIC_BPS);
}

void world_check_time(world_t *world)
{
    uint64_t carries[ROOM];
    mpath_topo_rates_t rates = rates_of(world);
    mpath_topo_t *topo;
    mpath_plan_t *plan;
    double took_ns = 0;

    for (int i = 0; i < world->nodes * RAILS; i++) {
        double sends = world->sends[i / RAILS][i % RAILS], receives = world->receives[i / RAILS][i % RAILS];

        carries[i] = (uint64_t)(((sends < receives) ? sends : receives) * NIC_BPS);
    }
    rates.bps    = carries;
    world->noise = 0;
    assert_int_equal(mpath_topo_with_rates(world->topo, &rates, &topo), MPATH_OK);
    assert_int_equal(mpath_plan_create(topo, world->demand, NULL, &plan), MPATH_OK);
    find_bytes(world);
    for (int rail = 0; rail < RAILS; rail++) {
        carry_rail(world, rail);
        for (int i = 0; i < world->nodes * world->nodes; i++) {
            int from = i / world->nodes, to = i % world->nodes;

            took_ns = larger(took_ns, (world->bytes[rail][from][to] > 0) ? world->took_ns[rail][from][to] : 0);
        }
    }
    if (took_ns > 1.35 * (double)mpath_plan_z_ns(plan)) {
        fail_msg("the call takes %.0f us where %.0f us do", took_ns / 1e3, (double)mpath_plan_z_ns(plan) / 1e3);
    }
    mpath_plan_destroy(plan);
    mpath_topo_destroy(topo);
}

int world_part_of(const world_t *world, int rail, int source, int destination)
{
    return (int)(world->bytes[rail][source][destination] * 100 /
                 (double)world->demand[source * world->nodes + destination]);
}
