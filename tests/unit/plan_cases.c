/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies and demands for the planner's tests, and the checks that hold for every plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/plan_cases.h"

#include "plan/demand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024 * 1024)

uint64_t plan_case_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void plan_case_machines(plan_case_t *c, int num_nodes, int num_nics, uint64_t rate_bps, uint64_t host_memory_bps)
{
    int node, nic;

    memset(c, 0, sizeof(*c));
    c->num_nodes = num_nodes;
    c->num_nics  = num_nics;
    for (node = 0; node < num_nodes; node++) {
        snprintf(c->machines[node].host, sizeof(c->machines[node].host), "node%d", node);
        c->machines[node].num_nics        = num_nics;
        c->machines[node].num_numa        = 1;
        c->machines[node].host_memory_bps = host_memory_bps;
        for (nic = 0; nic < num_nics; nic++) {
            snprintf(c->machines[node].nics[nic].name, MPATH_NIC_NAME_MAX, "rail%d", nic);
            c->machines[node].nics[nic].rate_bps = rate_bps;
            c->machines[node].nics[nic].rail     = (int16_t)nic;
            c->machines[node].nics[nic].up       = 1;
        }
    }
}

void plan_case_build(plan_case_t *c, int ranks_per_node, mpath_access_mode_t access, uint32_t fabric)
{
    int num_ranks         = c->num_nodes * ranks_per_node, rank;
    mpath_place_t *places = calloc((size_t)num_ranks, sizeof(*places));

    assert_non_null(places);
    c->ranks_per_node = ranks_per_node;
    c->params.access  = access;
    c->params.fabric  = fabric;
    for (rank = 0; rank < num_ranks; rank++) {
        places[rank].node = rank / ranks_per_node;
        places[rank].nic  = rank % ranks_per_node % c->num_nics;
        places[rank].gpu  = -1;
    }
    assert_int_equal(mpath_topo_create(c->machines, c->num_nodes, places, num_ranks, &c->params, &c->topo), MPATH_OK);
    free(places);
    c->demand = calloc((size_t)num_ranks * (size_t)num_ranks, sizeof(*c->demand));
    assert_non_null(c->demand);
}

static void draw_rates(plan_case_t *c, uint64_t *state, int kind)
{
    int node, nic;

    for (node = 0; node < c->num_nodes; node++) {
        for (nic = 0; nic < c->num_nics; nic++) {
            mpath_nic_t *n = &c->machines[node].nics[nic];

            if (kind == 1) { /* every NIC its own rate */
                n->rate_bps = n->rate_bps / 4 * (1 + plan_case_random(state) % 4);
            } else if (kind == 2 && plan_case_random(state) % 6 == 0) { /* now and then a degraded one */
                n->rate_bps /= 4;
            } else if (kind == 3 && nic > 0 && plan_case_random(state) % 5 == 0) { /* or one that is down */
                n->up = 0;
            }
        }
    }
}

void plan_case_draw_demand(plan_case_t *c, uint64_t *state, int num_ranks, int kind, uint64_t bytes)
{
    int i, count = num_ranks * num_ranks;
    uint64_t first = plan_case_random(state), second = plan_case_random(state); /* arguments have no order */

    switch (kind) {
    case 0:
        mpath_demand_hot(num_ranks, num_ranks == 0 ? 0 : (int)(first % (uint64_t)num_ranks),
                         (uint32_t)(second % 1000001), bytes, 1, c->demand);
        break;
    case 1:
        mpath_demand_zipf(num_ranks, (uint32_t)(first % 1500000), second, bytes, 1, c->demand);
        break;
    case 2: /* sparse */
        for (i = 0; i < count; i++) {
            c->demand[i] = plan_case_random(state) % 8 == 0 ? 1 + plan_case_random(state) % (bytes / 2) : 0;
        }
        break;
    case 3: /* one pair */
        c->demand[count == 0 ? 0 : first % (uint64_t)count] = bytes;
        break;
    default: /* any */
        for (i = 0; i < count; i++) {
            c->demand[i] = plan_case_random(state) % (bytes / 4);
        }
        break;
    }
}

void plan_case_draw(plan_case_t *c, uint64_t seed, int max_ranks)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    int nodes = 2 + (int)(plan_case_random(&state) % 3), nics = 1 + (int)(plan_case_random(&state) % 4), ranks;
    int rates = (int)(plan_case_random(&state) % 4), kind = (int)(plan_case_random(&state) % 5);
    uint64_t host  = plan_case_random(&state) % 4 == 0 ? 100000000 : 8000000000ull, bytes;
    uint32_t spine = plan_case_random(&state) % 3 == 0 ? MPATH_FABRIC_SPINE : 0;
    int affine     = (int)(plan_case_random(&state) % 2);

    do {
        ranks = 1 + (int)(plan_case_random(&state) % 8);
    } while (ranks * nodes > max_ranks);
    plan_case_machines(c, nodes, nics, 25000000, host);
    draw_rates(c, &state, rates);
    plan_case_build(c, ranks, affine ? MPATH_REACH_AFFINE : MPATH_REACH_ALL, spine);
    bytes    = (8 + plan_case_random(&state) % 57) * MIB;
    c->small = plan_case_random(&state) % 4 == 0;
    bytes    = c->small ? bytes / 64 : bytes;
    plan_case_draw_demand(c, &state, nodes * ranks, kind, bytes);
    snprintf(c->text, sizeof(c->text), "seed %llu: %d nodes x %d ranks x %d NICs, %s%s, rates %d, demand %d, host %llu",
             (unsigned long long)seed, nodes, ranks, nics, affine ? "affine" : "all", spine ? " spine" : "", rates,
             kind, (unsigned long long)host);
}

void plan_case_release(plan_case_t *c)
{
    mpath_topo_destroy(c->topo);
    free(c->demand);
    c->topo   = NULL;
    c->demand = NULL;
}

/* Bytes of the pair that the flows ship, from `flow` on; checks offsets and paths and adds up the loads. */
static size_t check_pair(const plan_case_t *c, const mpath_flow_t *flow, size_t left, uint64_t bytes, uint64_t *loads,
                         uint64_t *relayed)
{
    const mpath_flow_t *first = flow;
    uint64_t offset           = 0;
    mpath_path_t path;
    size_t count = 0;
    int i;

    while (count < left && flow->source == first->source && flow->destination == first->destination) {
        assert_true(flow->bytes > 0);
        assert_int_equal(flow->offset, offset);
        assert_in_range(flow->path, 0, mpath_topo_num_paths(c->topo, flow->source, flow->destination) - 1);
        mpath_topo_path(c->topo, flow->source, flow->destination, flow->path, &path);
        for (i = 0; i < path.num_resources; i++) {
            loads[path.resources[i]] += flow->bytes;
        }
        *relayed += flow->bytes * (uint64_t)path.num_relays;
        offset += flow->bytes;
        flow++;
        count++;
    }
    assert_int_equal(offset, bytes);
    return count;
}

void plan_case_check(const plan_case_t *c, const mpath_plan_t *plan)
{
    int num_ranks = mpath_topo_num_ranks(c->topo), num_resources = mpath_topo_num_resources(c->topo), s, d, r;
    uint64_t *loads = calloc((size_t)num_resources + 1, sizeof(*loads)), relayed = 0, ns, worst = 0;
    size_t num_flows, next = 0;
    const mpath_flow_t *flows = mpath_plan_flows(plan, &num_flows);

    assert_non_null(loads);
    for (s = 0; s < num_ranks; s++) {
        for (d = 0; d < num_ranks; d++) {
            uint64_t bytes = s == d ? 0 : c->demand[(size_t)s * (size_t)num_ranks + (size_t)d];

            if (bytes > 0) {
                assert_true(next < num_flows);
                assert_int_equal(flows[next].source, s);
                assert_int_equal(flows[next].destination, d);
                next += check_pair(c, &flows[next], num_flows - next, bytes, loads, &relayed);
            }
        }
    }
    assert_int_equal(next, num_flows);
    assert_memory_equal(loads, mpath_plan_loads(plan), (size_t)num_resources * sizeof(*loads));
    assert_int_equal(relayed, mpath_plan_relayed_bytes(plan));
    for (r = 0; r < num_resources; r++) {
        uint64_t capacity = mpath_topo_resource(c->topo, r).capacity_bps;

        /* the cases stay below 2^33 bytes, so that this does not overflow */
        ns    = (loads[r] * 1000000000 + capacity - 1) / capacity;
        worst = ns > worst ? ns : worst;
    }
    assert_int_equal(worst, mpath_plan_z_ns(plan));
    assert_true(mpath_plan_bound_ns(plan) <= worst);
    assert_true((mpath_plan_bottleneck(plan) < 0) == (worst == 0)); /* a copy inside a GPU loads nothing */
    free(loads);
}

size_t plan_case_crumbs(const plan_case_t *c, const mpath_plan_t *plan, uint64_t smallest)
{
    size_t num_ranks = (size_t)mpath_topo_num_ranks(c->topo), num_flows, i, crumbs = 0;
    const mpath_flow_t *flows = mpath_plan_flows(plan, &num_flows);

    for (i = 0; i < num_flows; i++) {
        crumbs += flows[i].bytes < smallest &&
                  flows[i].bytes != c->demand[(size_t)flows[i].source * num_ranks + (size_t)flows[i].destination];
    }
    return crumbs;
}
