/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan_bench: how long planning takes, cold, on one core, beside the published figures of other planners. It measures the
 * thread's processor time, page faults included, so that other programs on the machine count little.
 */
#include "plan/plan.h"
#include "tools/plan_input.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_NS (200 * MPATH_NS_PER_MS) /* of planning per figure */
#define LEAST_RUNS 3
#define MOST_RUNS 2000

typedef struct figure {
    double best_us, gap;
    size_t fragments;
} figure_t;

/* Published planning times: NIMBLE (arXiv 2604.00317) and FAST (arXiv 2505.09764). */
static const char *published(int num_ranks)
{
    switch (num_ranks) {
    case 16:
        return "FAST 3.1";
    case 32:
        return "FAST 25";
    case 64:
        return "FAST 221";
    case 96:
        return "FAST 805";
    case 320:
        return "FAST 77000";
    default:
        return "";
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * MPATH_NS_PER_S + (uint64_t)now.tv_nsec;
}

static mpath_status_t measure(const plan_input_t *input, figure_t *figure_p)
{
    uint64_t *demand, start, took, best = UINT64_MAX, total = 0;
    mpath_status_t status;
    mpath_topo_t *topo;
    mpath_plan_t *plan;
    int run;

    status = plan_input_make(input, &topo, &demand);
    if (status != MPATH_OK) {
        return status;
    }
    for (run = 0; status == MPATH_OK && run < MOST_RUNS && (run < LEAST_RUNS || total < LEAST_NS); run++) {
        start  = cpu_ns();
        status = mpath_plan_create(topo, demand, NULL, &plan);
        took   = cpu_ns() - start;
        if (status == MPATH_OK) {
            total += took;
            best          = took < best ? took : best;
            figure_p->gap = (double)mpath_plan_z_ns(plan) / (double)mpath_plan_bound_ns(plan) - 1;
            mpath_plan_flows(plan, &figure_p->fragments);
            mpath_plan_destroy(plan);
        }
    }
    figure_p->best_us = (double)best / 1e3;
    free(demand);
    mpath_topo_destroy(topo);
    return status;
}

/* One line: the input with a hot spot of 0.7 and with Zipf 0.8. */
static int bench_line(plan_input_t *input, int num_ranks, const char *name, const char *others)
{
    figure_t hot, zipf;

    input->zipf     = 0;
    input->skew_ppm = 700000;
    if (measure(input, &hot) != MPATH_OK) {
        return 1;
    }
    input->zipf     = 1;
    input->skew_ppm = 800000;
    if (measure(input, &zipf) != MPATH_OK) {
        return 1;
    }
    printf("%6d  %-14s %12.1f %7.3f %12.1f %7.3f  %10zu  %s\n", num_ranks, name, hot.best_us, hot.gap * 100,
           zipf.best_us, zipf.gap * 100, hot.fragments, others);
    fflush(stdout);
    return 0;
}

/* GPUs that reach each other and the NICs in several ways. */
static int bench_preset(const char *name, int nodes, int ranks_per_node, const char *others)
{
    plan_input_t input;

    plan_input_init(&input);
    input.preset      = name;
    input.num_nodes   = nodes;
    input.nodes_given = 1;
    return bench_line(&input, nodes * ranks_per_node, name, others);
}

static int bench_size(int nodes)
{
    static const char *const access_names[] = {"all", "affine", "affine, spine"};
    plan_input_t input;
    int access;

    for (access = 0; access < 3; access++) {
        plan_input_init(&input);
        input.num_nodes          = nodes;
        input.ranks_per_node     = 8;
        input.num_nics           = 8;
        input.rate_bps           = 50000000000ull;
        input.topo_params.access = access == 0 ? MPATH_REACH_ALL : MPATH_REACH_AFFINE;
        input.topo_params.fabric = access == 2 ? MPATH_FABRIC_SPINE : 0;
        input.bytes              = (uint64_t)nodes * 8 << 20;
        if (bench_line(&input, nodes * 8, access_names[access], access == 0 ? published(nodes * 8) : "") != 0) {
            return 1;
        }
    }
    return bench_preset("hgx-h200", nodes, 8, "");
}

int main(int argc, char **argv)
{
    static const int nodes[] = {1, 2, 4, 8, 12, 40, 128, 512};
    size_t i, count = sizeof(nodes) / sizeof(nodes[0]) - 1;

    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--large") != 0)) {
        fprintf(stderr, "Usage: plan_bench [--large]\nTimes the planner; --large adds 4096 GPUs (2 GiB of memory).\n");
        return 2;
    }
    printf("Planning time in us, best of many, one core; nodes of 8 ranks and 8 NICs, or of GPUs\n"
           "%6s  %-14s %12s %7s %12s %7s  %10s  %s\n",
           "ranks", "access", "h 0.7", "gap %", "Zipf 0.8", "gap %", "fragments", "published (us)");
    for (i = 1; i <= 4; i *= 2) {
        if (bench_preset("h100-mesh4", (int)i, 4, i == 2 ? "NIMBLE 32-48" : "") != 0) {
            return 1;
        }
    }
    for (i = 0; i < count + (argc == 2); i++) {
        if (bench_size(nodes[i]) != 0) {
            return 1;
        }
    }
    return 0;
}
