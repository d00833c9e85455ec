/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random clusters of GPUs for the planner's tests: meshes, NVSwitches, PCIe, one NVLink domain over all nodes; NICs
 * shared by GPUs or several of them beside one, degraded, unequal, missing; scarce host memory, oversubscribed uplinks;
 * nodes of unequal size, communicators of some of the ranks, in any order, with host ranks among them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/plan_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GBPS 1000000000ull
#define MIB (1024 * 1024)

/* One in `chances`. */
static int one_in(uint64_t *state, uint64_t chances)
{
    return plan_case_random(state) % chances == 0;
}

static int between(uint64_t *state, int least, int most)
{
    return least + (int)(plan_case_random(state) % (uint64_t)(most - least + 1));
}

static const char *const family_names[] = {"mesh", "switch", "pcie", "domain", "no links", "mixed"};

static mpath_gpu_link_t draw_link(uint64_t *state, int family)
{
    static const mpath_gpu_link_t links[] = {MPATH_GPU_LINK_MESH, MPATH_GPU_LINK_SWITCH, MPATH_GPU_LINK_PCIE,
                                             MPATH_GPU_LINK_SWITCH, MPATH_GPU_LINK_NONE};

    return family < 5 ? links[family] : links[plan_case_random(state) % 5];
}

/* NICs beside each GPU: its own, one of its pair's, or two. */
static void draw_nics(plan_case_t *c, uint64_t *state, int node, int num_gpus, int layout, int rates)
{
    mpath_machine_t *machine = &c->machines[node];
    mpath_node_gpus_t *gpus  = &c->gpus[node];
    int nic, gpu;

    machine->num_nics = layout == 1 ? (num_gpus + 1) / 2 : layout == 2 ? 2 * num_gpus : num_gpus;
    for (nic = 0; nic < machine->num_nics; nic++) {
        mpath_nic_t *n = &machine->nics[nic];

        snprintf(n->name, sizeof(n->name), "nic%d", nic);
        n->rate_bps = 50 * GBPS;
        n->rail     = (int16_t)nic;
        n->up       = 1;
        if (rates == 1) { /* every NIC its own rate */
            n->rate_bps = n->rate_bps / 4 * (uint64_t)between(state, 1, 4);
        } else if (rates == 2 && one_in(state, 6)) { /* now and then a degraded one */
            n->rate_bps /= 4;
        } else if (rates == 3 && nic > 0 && one_in(state, 5)) { /* or one that is down */
            n->up = 0;
        }
    }
    for (gpu = 0; gpu < num_gpus; gpu++) {
        gpus->gpus[gpu].nics = layout == 1 ? 1u << gpu / 2 : layout == 2 ? 3u << 2 * gpu : 1u << gpu;
    }
}

static void draw_links(plan_case_t *c, uint64_t *state, int node, int num_gpus, int degraded)
{
    mpath_node_gpus_t *gpus = &c->gpus[node];
    int from, to;

    for (from = 0; from < num_gpus; from++) {
        mpath_gpu_t *gpu = &gpus->gpus[from];

        gpu->pcie_up_bps = gpu->pcie_down_bps = 55 * GBPS;
        if (gpus->link == MPATH_GPU_LINK_SWITCH) {
            gpu->egress_bps = gpu->ingress_bps = 391 * GBPS;
            if (degraded && one_in(state, 4)) {
                gpu->ingress_bps /= (uint64_t)between(state, 1, 8);
            }
        }
        for (to = 0; to < num_gpus && gpus->link == MPATH_GPU_LINK_MESH; to++) {
            if (from != to) {
                gpus->nvlink_bps[from][to] = 120 * GBPS;
                if (degraded && one_in(state, 4)) {
                    gpus->nvlink_bps[from][to] = one_in(state, 2) ? 0 : 60 * GBPS;
                }
            }
        }
    }
}

static void draw_node(plan_case_t *c, uint64_t *state, int node, int family, int num_gpus, int layout, int rates,
                      int degraded)
{
    mpath_machine_t *machine = &c->machines[node];
    mpath_node_gpus_t *gpus  = &c->gpus[node];

    snprintf(machine->host, sizeof(machine->host), "node%d", node);
    machine->num_numa        = 1;
    machine->host_memory_bps = 93 * GBPS;
    gpus->num_gpus           = num_gpus;
    gpus->link               = (int32_t)draw_link(state, family);
    gpus->domain             = family == 3 ? 0 : -1;
    draw_nics(c, state, node, num_gpus, layout, rates);
    draw_links(c, state, node, num_gpus, degraded);
}

/* Ranks on the GPUs of all nodes: all of them or some, in order or not, now and then two on one GPU or one in host
 * memory. */
static int draw_places(plan_case_t *c, uint64_t *state, int max_ranks, int layout, mpath_place_t *places)
{
    int keep = one_in(state, 4), shuffle = one_in(state, 6), twice = one_in(state, 10), hosts = one_in(state, 10);
    int count           = 0, node, gpu, i, j, copies;
    mpath_place_t place = {.node = 0};

    for (node = 0; node < c->num_nodes; node++) {
        for (gpu = 0; gpu < c->gpus[node].num_gpus; gpu++) {
            copies = twice && one_in(state, 3) ? 2 : 1;
            for (; copies > 0 && count < max_ranks && !(keep && one_in(state, 3)); copies--) {
                place.node = node;
                place.gpu  = hosts && one_in(state, 4) ? -1 : gpu;
                place.nic  = layout == 1 ? gpu / 2 : layout == 2 ? 2 * gpu + (int)(plan_case_random(state) % 2) : gpu;
                place.nic  = one_in(state, 12) ? -1 : place.nic;
                places[count++] = place;
            }
        }
    }
    for (i = count - 1; shuffle && i > 0; i--) {
        j         = between(state, 0, i);
        place     = places[i];
        places[i] = places[j];
        places[j] = place;
    }
    return count;
}

static void drop_unreachable(plan_case_t *c, int num_ranks)
{
    int source, destination;

    for (source = 0; source < num_ranks; source++) {
        for (destination = 0; destination < num_ranks; destination++) {
            if (source != destination && mpath_topo_num_paths(c->topo, source, destination) == 0) {
                c->demand[source * num_ranks + destination] = 0;
            }
        }
    }
}

void plan_case_draw_gpus(plan_case_t *c, uint64_t seed, int max_ranks)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 7, bytes;
    int family     = (int)(seed % 6), layout, rates, degraded, num_gpus, num_ranks, kind, node, scarce, narrow, unequal;
    mpath_place_t places[PLAN_CASE_MAX_NODES * MPATH_MAX_GPUS];

    memset(c, 0, sizeof(*c));
    layout   = one_in(&state, 2) ? 0 : between(&state, 0, 2);
    rates    = one_in(&state, 2) ? 0 : between(&state, 1, 3);
    degraded = one_in(&state, 4);
    scarce   = one_in(&state, 4);
    narrow   = one_in(&state, 4);
    unequal  = one_in(&state, 5);
    num_gpus = family == 3 || family == 0 || one_in(&state, 3) ? 4 : between(&state, 2, 8);
    do {
        c->num_nodes = between(&state, 1, family == 3 ? 18 : 8);
    } while (c->num_nodes * num_gpus > max_ranks);
    for (node = 0; node < c->num_nodes; node++) {
        draw_node(c, &state, node, family, unequal ? between(&state, 1, num_gpus) : num_gpus, layout, rates, degraded);
        c->machines[node].host_memory_bps = scarce ? 10 * GBPS : c->machines[node].host_memory_bps;
        c->gpus[node].uplink_bps          = narrow ? 100 * GBPS : 0;
    }
    c->params.access = MPATH_REACH_AFFINE;
    c->params.fabric = one_in(&state, 3) ? 0 : MPATH_FABRIC_SPINE;
    num_ranks        = draw_places(c, &state, max_ranks, layout, places);
    assert_int_equal(
        mpath_topo_create_with_gpus(c->machines, c->gpus, c->num_nodes, places, num_ranks, &c->params, &c->topo),
        MPATH_OK);
    c->demand = calloc((size_t)num_ranks * (size_t)num_ranks + 1, sizeof(*c->demand));
    assert_non_null(c->demand);
    bytes    = (8 + plan_case_random(&state) % 57) * MIB;
    c->small = one_in(&state, 4);
    bytes    = c->small ? bytes / 64 : bytes;
    kind     = between(&state, 0, 4);
    plan_case_draw_demand(c, &state, num_ranks, kind, bytes);
    drop_unreachable(c, num_ranks);
    snprintf(c->text, sizeof(c->text),
             "GPU seed %llu: %s, %d nodes x %d GPUs%s, %d ranks, %s, NICs %d, rates %d%s%s%s, demand %d%s",
             (unsigned long long)seed, family_names[family], c->num_nodes, num_gpus, unequal ? " at most" : "",
             num_ranks, c->params.fabric ? "spine" : "rails", layout, rates, degraded ? ", links degraded" : "",
             scarce ? ", memory scarce" : "", narrow ? ", uplinks" : "", kind, c->small ? " small" : "");
}
