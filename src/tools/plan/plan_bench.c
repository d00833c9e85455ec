/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan_bench: how long planning takes on one core, beside the published figures of other planners: cold, on the routes
 * of an earlier plan when the demand has changed a little, and with a plan that the cache still has. It measures the
 * thread's processor time, page faults included, so that other programs on the machine count little.
 */
#include "plan/cache.h"
#include "plan/demand.h"
#include "plan/plan.h"
#include "tools/plan/clusters.h"
#include "tools/plan/input.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_NS (200 * MPATH_NS_PER_MS) /* of planning per figure */
#define LEAST_RUNS 3
#define MOST_RUNS 2000
#define HITS 64 /* measured together: one takes less than the clock */
#define MOST_WARM_RANKS 1024

typedef struct figure {
    double best_us, gap;
    double follow_us, hit_us; /* 0: not measured */
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

/* Every cell up to 1 % more or less. */
static void add_noise(uint64_t *demand, size_t count)
{
    uint64_t state = 1;
    size_t i;

    for (i = 0; i < count; i++) {
        state     = state * 6364136223846793005ull + 1442695040888963407ull;
        demand[i] = demand[i] - demand[i] / 100 + demand[i] / 100 * (state >> 40) / (1 << 23);
    }
}

/* Time of the plan that the cache has. */
static mpath_status_t measure_hits(const mpath_topo_t *topo, const uint64_t *demand, figure_t *figure_p)
{
    mpath_plan_params_t params;
    mpath_plan_cache_t *cache;
    const mpath_plan_t *plan;
    mpath_status_t status;
    uint64_t start, took, best = UINT64_MAX;
    int run, i, hit;

    mpath_plan_params_init(&params);
    status = mpath_plan_cache_create(topo, &params, &cache);
    if (status != MPATH_OK) {
        return status;
    }
    for (run = 0; run < 16 && status == MPATH_OK; run++) {
        start = cpu_ns();
        for (i = 0; i < HITS && status == MPATH_OK; i++) {
            status = mpath_plan_cache_get(cache, 1, demand, &plan, &hit);
        }
        took = cpu_ns() - start;
        best = took < best && run > 0 ? took : best;
    }
    figure_p->hit_us = (double)best / 1e3 / HITS;
    mpath_plan_cache_destroy(cache);
    return status;
}

/* Time of a plan on the routes of the one before, after a change of 1 %; the demand is changed. */
static mpath_status_t measure_follow(const mpath_topo_t *topo, uint64_t *demand, figure_t *figure_p)
{
    size_t num_ranks = (size_t)mpath_topo_num_ranks(topo);
    mpath_plan_t *previous, *plan;
    uint64_t start, took, best = UINT64_MAX, total = 0;
    mpath_status_t status = mpath_plan_create(topo, demand, NULL, &previous);
    int run;

    if (status != MPATH_OK) {
        return status;
    }
    add_noise(demand, num_ranks * num_ranks);
    for (run = 0; status == MPATH_OK && run < MOST_RUNS && (run < LEAST_RUNS || total < LEAST_NS); run++) {
        start  = cpu_ns();
        status = mpath_plan_follow(topo, demand, NULL, previous, &plan);
        took   = cpu_ns() - start;
        if (status == MPATH_OK) {
            total += took;
            best = took < best ? took : best;
            mpath_plan_destroy(plan);
        }
    }
    figure_p->follow_us = (double)best / 1e3;
    mpath_plan_destroy(previous);
    return status;
}

/* Cold plans. */
static mpath_status_t measure_cold(const mpath_topo_t *topo, const uint64_t *demand, figure_t *figure_p)
{
    uint64_t start, took, best = UINT64_MAX, total = 0;
    mpath_status_t status = MPATH_OK;
    mpath_plan_t *plan;
    int run;

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
    figure_p->best_us   = (double)best / 1e3;
    figure_p->follow_us = figure_p->hit_us = 0;
    return status;
}

static mpath_status_t measure(const plan_input_t *input, figure_t *figure_p)
{
    mpath_status_t status;
    mpath_topo_t *topo;
    uint64_t *demand;

    status = plan_input_make(input, &topo, &demand);
    if (status != MPATH_OK) {
        return status;
    }
    status = measure_cold(topo, demand, figure_p);
    if (status == MPATH_OK && mpath_topo_num_ranks(topo) <= MOST_WARM_RANKS) {
        status = measure_hits(topo, demand, figure_p);
        if (status == MPATH_OK) {
            status = measure_follow(topo, demand, figure_p);
        }
    }
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
    printf("%6d  %-14s %9.1f %7.3f %9.1f %7.3f %9zu %9.1f %7.2f  %s\n", num_ranks, name, hot.best_us, hot.gap * 100,
           zipf.best_us, zipf.gap * 100, hot.fragments, hot.follow_us, hot.hit_us, others);
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

/* A cluster that stands in no order, with the same demands as the others. */
static mpath_status_t measure_cluster(int kind, int num_ranks, uint32_t fabric, figure_t *hot, figure_t *zipf,
                                      int *num_ranks_p)
{
    mpath_status_t status;
    mpath_topo_t *topo;
    uint64_t *demand, bytes;
    int ranks;

    status = plan_cluster_make(kind, num_ranks, fabric, &topo);
    if (status != MPATH_OK) {
        return status;
    }
    ranks  = mpath_topo_num_ranks(topo);
    bytes  = (uint64_t)ranks << 20;
    demand = malloc((size_t)ranks * (size_t)ranks * sizeof(*demand));
    if (demand == NULL) {
        mpath_topo_destroy(topo);
        return MPATH_ERR_NO_MEMORY;
    }
    mpath_demand_hot(ranks, 0, 700000, bytes, 1, demand);
    status = measure_cold(topo, demand, hot);
    if (status == MPATH_OK) {
        mpath_demand_zipf(ranks, 800000, 1, bytes, 1, demand);
        status = measure_cold(topo, demand, zipf);
    }
    free(demand);
    mpath_topo_destroy(topo);
    *num_ranks_p = ranks;
    return status;
}

static int bench_clusters(int num_ranks)
{
    uint32_t fabric;
    figure_t hot, zipf;
    int kind, ranks;

    for (kind = 0; kind < PLAN_NUM_CLUSTERS; kind++) {
        for (fabric = 0; fabric < 2; fabric++) {
            if (!fabric && plan_cluster_needs_spine(kind)) {
                continue;
            }
            if (measure_cluster(kind, num_ranks, fabric ? MPATH_FABRIC_SPINE : 0, &hot, &zipf, &ranks) != MPATH_OK) {
                return 1;
            }
            printf("%6d  %-23s %-5s %9.1f %7.3f %9.1f %7.3f\n", ranks, plan_cluster_name(kind),
                   fabric ? "spine" : "rails", hot.best_us, hot.gap * 100, zipf.best_us, zipf.gap * 100);
            fflush(stdout);
        }
    }
    return 0;
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

static const char usage[] =
    "usage: plan_bench [--large|--irregular]\n"
    "Times the planner; --large adds 4096 GPUs (2 GiB of memory), --irregular has clusters of GPUs in no order instead.\n"
    "  -h, --help  this text\n"
    "  --version   the version\n";

int main(int argc, char **argv)
{
    static const int nodes[] = {1, 2, 4, 8, 12, 40, 128, 512};
    size_t i, count = sizeof(nodes) / sizeof(nodes[0]) - 1;

    if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("plan_bench %s\n", MPATH_VERSION);
        return 0;
    }
    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--large") != 0 && strcmp(argv[1], "--irregular") != 0)) {
        fputs(usage, stderr);
        return 2;
    }
    if (argc == 2 && strcmp(argv[1], "--irregular") == 0) {
        printf("Planning time in us, best of many, one core; GPUs in no order\n%6s  %-23s %-5s %9s %7s %9s %7s\n",
               "ranks", "cluster", "", "h 0.7", "gap %", "Zipf 0.8", "gap %");
        return bench_clusters(160) || bench_clusters(320) || bench_clusters(1024);
    }
    printf(
        "Planning time in us, best of many, one core; nodes of 8 ranks and 8 NICs, or of GPUs. 1 %%: h 0.7 changed by "
        "noise,\nroutes kept. Same: h 0.7 again, from the cache\n"
        "%6s  %-14s %9s %7s %9s %7s %9s %9s %7s  %s\n",
        "ranks", "access", "h 0.7", "gap %", "Zipf 0.8", "gap %", "fragments", "1 %", "same", "published (us)");
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
