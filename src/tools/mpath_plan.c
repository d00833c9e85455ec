/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_plan: plans one demand on one topology, without MPI, and shows what every resource would carry. */
#include "plan/demand.h"
#include "plan/plan.h"
#include "tools/plan_input.h"
#include "util/time.h"

#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const policy_names[] = {"mpath", "direct", "stripe", "pxn"};

typedef struct options {
    plan_input_t input;
    mpath_plan_params_t params;
    int json;
    int show_flows;
    int show_time;
} options_t;

static void print_help(void)
{
    printf("Usage: mpath_plan [OPTION]...\n"
           "Plans who sends how much over which path, and shows what every resource carries.\n\n"
           "Topology:\n"
           "  --topo FILE             a topology file with ranks, or\n"
           "  --preset NAME           machines of a known kind, --nodes of them: h100-mesh4, hgx-h100,\n"
           "                          hgx-h200, h800, a100, gb200-nvl72; or a uniform cluster:\n"
           "  --nodes N               nodes (2)\n"
           "  --ranks-per-node N      ranks of each node (4); rank i sits beside NIC i modulo the NICs\n"
           "  --nics N                NICs of each node (4)\n"
           "  --rate BPS              bytes per second of a NIC, k m g are powers of 1000 (25g)\n"
           "  --host-memory BPS       of a node's memory (four times its NICs)\n"
           "  --access all|affine     NICs that a rank drives itself (all)\n"
           "  --spine                 NICs of different rails reach each other\n"
           "Demand:\n"
           "  --matrix FILE           bytes, one row per rank; or generated:\n"
           "  --bytes N               bytes that each rank sends, k m g are powers of 1024 (64m)\n"
           "  --hot H                 share of them for one hot rank, 0 to 1 (0)\n"
           "  --hot-rank R            that rank (0)\n"
           "  --zipf S                shares by popularity to the power -S instead\n"
           "  --seed N                of the popularity (1)\n"
           "Plan:\n"
           "  --policy mpath|direct|stripe|pxn   (mpath)\n"
           "  --min-fragment N        smallest piece of a split pair (32k)\n"
           "  --json                  JSON instead of text\n"
           "  --flows                 list the flows\n"
           "  --no-time               leave the planning time out, for output that can be compared\n");
}

/* One option with a value that is a number; 0 when it is not one. */
static int set_number(options_t *options, int option, const char *text)
{
    plan_input_t *input = &options->input;
    uint64_t value      = 0;

    if (option == 'R' || option == 'H') {
        return plan_parse_rate(text, option == 'R' ? &input->rate_bps : &input->host_memory_bps);
    }
    if (option == 'h' || option == 'z') {
        input->zipf = option == 'z';
        return plan_parse_ppm(text, &input->skew_ppm) && (option == 'z' || input->skew_ppm <= 1000000);
    }
    if (!plan_parse_bytes(text, &value) ||
        ((option == 'n' || option == 'l' || option == 'i' || option == 'r') && value > INT32_MAX)) {
        return 0;
    }
    switch (option) {
    case 'n':
        input->num_nodes   = (int)value;
        input->nodes_given = 1;
        break;
    case 'l':
        input->ranks_per_node = (int)value;
        break;
    case 'i':
        input->num_nics = (int)value;
        break;
    case 'r':
        input->hot_rank = (int)value;
        break;
    case 's':
        input->seed = value;
        break;
    case 'b':
        input->bytes = value;
        break;
    default:
        options->params.min_fragment_bytes = value;
        break;
    }
    return 1;
}

static int set_policy(options_t *options, const char *text)
{
    size_t i;

    for (i = 0; i < sizeof(policy_names) / sizeof(policy_names[0]); i++) {
        if (strcmp(text, policy_names[i]) == 0) {
            options->params.policy = (mpath_policy_t)i;
            return 1;
        }
    }
    return 0;
}

static int set_access(options_t *options, const char *text)
{
    options->input.topo_params.access = strcmp(text, "affine") == 0 ? MPATH_REACH_AFFINE : MPATH_REACH_ALL;
    return strcmp(text, "affine") == 0 || strcmp(text, "all") == 0;
}

/* 1: go on; 0: done (help); -1: wrong. */
static int parse_options(int argc, char **argv, options_t *options)
{
    static const struct option names[] = {
        {"topo", 1, NULL, 't'},         {"preset", 1, NULL, 'k'},
        {"nodes", 1, NULL, 'n'},        {"ranks-per-node", 1, NULL, 'l'},
        {"nics", 1, NULL, 'i'},         {"rate", 1, NULL, 'R'},
        {"host-memory", 1, NULL, 'H'},  {"access", 1, NULL, 'a'},
        {"spine", 0, NULL, 'p'},        {"matrix", 1, NULL, 'm'},
        {"bytes", 1, NULL, 'b'},        {"hot", 1, NULL, 'h'},
        {"hot-rank", 1, NULL, 'r'},     {"zipf", 1, NULL, 'z'},
        {"seed", 1, NULL, 's'},         {"policy", 1, NULL, 'P'},
        {"min-fragment", 1, NULL, 'f'}, {"json", 0, NULL, 'j'},
        {"flows", 0, NULL, 'F'},        {"no-time", 0, NULL, 'T'},
        {"help", 0, NULL, '?' + 256},   {NULL, 0, NULL, 0},
    };
    int option, index = 0, good;

    while ((option = getopt_long(argc, argv, "", names, &index)) != -1) {
        good = 1;
        switch (option) {
        case '?':
            return -1;
        case '?' + 256:
            print_help();
            return 0;
        case 't':
            options->input.topo_path = optarg;
            break;
        case 'k':
            options->input.preset = optarg;
            break;
        case 'm':
            options->input.matrix_path = optarg;
            break;
        case 'p':
            options->input.topo_params.fabric |= MPATH_FABRIC_SPINE;
            break;
        case 'j':
            options->json = 1;
            break;
        case 'F':
            options->show_flows = 1;
            break;
        case 'T':
            options->show_time = 0;
            break;
        case 'a':
            good = set_access(options, optarg);
            break;
        case 'P':
            good = set_policy(options, optarg);
            break;
        default:
            good = set_number(options, option, optarg);
            break;
        }
        if (!good) {
            fprintf(stderr, "mpath_plan: --%s does not take '%s'; see mpath_plan --help\n", names[index].name, optarg);
            return -1;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "mpath_plan: '%s' is not an option; see mpath_plan --help\n", argv[optind]);
        return -1;
    }
    return 1;
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static double gap_of(const mpath_plan_t *plan)
{
    uint64_t bound = mpath_plan_bound_ns(plan);

    return bound == 0 ? 0 : (double)mpath_plan_z_ns(plan) / (double)bound - 1;
}

/* "0 ~ 4 > 12": ranks of a path; ~ host memory, > a rail. */
static void print_path(const mpath_topo_t *topo, const mpath_flow_t *flow)
{
    mpath_path_t path;
    int i;

    mpath_topo_path(topo, flow->source, flow->destination, flow->path, &path);
    printf("  %4d %4d %14" PRIu64 " %14" PRIu64 "   %d", flow->source, flow->destination, flow->offset, flow->bytes,
           path.hops[0].from);
    for (i = 0; i < path.num_hops; i++) {
        if (path.hops[i].lane == MPATH_LANE_RAIL) {
            printf(" -nic%d:nic%d-> %d", path.hops[i].nic_from, path.hops[i].nic_to, path.hops[i].to);
        } else if (path.hops[i].lane == MPATH_LANE_SHM) {
            printf(" ~> %d", path.hops[i].to);
        } else {
            printf(" -%s-> %d", mpath_lane_kind_name((mpath_lane_kind_t)path.hops[i].lane), path.hops[i].to);
        }
    }
    printf("\n");
}

static void print_text(const options_t *options, const mpath_topo_t *topo, const mpath_plan_t *plan, double plan_us)
{
    const uint64_t *loads = mpath_plan_loads(plan);
    uint64_t z_ns         = mpath_plan_z_ns(plan);
    const mpath_flow_t *flows;
    size_t num_flows, i;
    int r;

    flows = mpath_plan_flows(plan, &num_flows);
    printf("policy          %s\n", policy_names[options->params.policy]);
    printf("Z               %.9f s\n", seconds(z_ns));
    printf("lower bound     %.9f s\n", seconds(mpath_plan_bound_ns(plan)));
    printf("gap             %.3f %%\n", gap_of(plan) * 100);
    printf("relayed bytes   %" PRIu64 "\n", mpath_plan_relayed_bytes(plan));
    printf("fragments       %zu\n", num_flows);
    printf("signature       %016" PRIx64 "\n", mpath_plan_signature(plan));
    if (options->show_time) {
        printf("planning time   %.1f us\n", plan_us);
    }
    printf("\n%-24s %14s %16s %12s\n", "resource", "bytes/s", "bytes", "% of Z");
    for (r = 0; r < mpath_topo_num_resources(topo); r++) {
        const mpath_resource_t *resource = mpath_topo_resource(topo, r);
        char name[64];

        mpath_topo_resource_name(topo, r, name, sizeof(name));
        printf("%-24s %14" PRIu64 " %16" PRIu64 " %12.2f%s\n", name, resource->capacity_bps, loads[r],
               z_ns == 0 ? 0 : (double)loads[r] * 1e11 / (double)resource->capacity_bps / (double)z_ns,
               r == mpath_plan_bottleneck(plan) ? " <" : "");
    }
    if (options->show_flows) {
        printf("\n  from   to         offset          bytes   path\n");
        for (i = 0; i < num_flows; i++) {
            print_path(topo, &flows[i]);
        }
    }
}

static json_t *json_resources(const mpath_topo_t *topo, const mpath_plan_t *plan)
{
    const uint64_t *loads = mpath_plan_loads(plan);
    json_t *list          = json_array();
    char name[64];
    int r;

    for (r = 0; r < mpath_topo_num_resources(topo); r++) {
        mpath_topo_resource_name(topo, r, name, sizeof(name));
        json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "name", name, "capacity_Bps",
                                              (json_int_t)mpath_topo_resource(topo, r)->capacity_bps, "load_bytes",
                                              (json_int_t)loads[r]));
    }
    return list;
}

/* The ranks and NICs of a path: {"to": rank} over host memory, {"to": rank, "nic_from": n, "nic_to": n} over a rail. */
static json_t *json_path(const mpath_topo_t *topo, const mpath_flow_t *flow)
{
    json_t *list = json_array(), *hop;
    mpath_path_t path;
    int i;

    mpath_topo_path(topo, flow->source, flow->destination, flow->path, &path);
    for (i = 0; i < path.num_hops; i++) {
        hop = json_pack("{s:i, s:s}", "to", (int)path.hops[i].to, "lane",
                        mpath_lane_kind_name((mpath_lane_kind_t)path.hops[i].lane));
        if (path.hops[i].lane == MPATH_LANE_RAIL) {
            json_object_set_new(hop, "nic_from", json_integer(path.hops[i].nic_from));
            json_object_set_new(hop, "nic_to", json_integer(path.hops[i].nic_to));
        }
        json_array_append_new(list, hop);
    }
    return list;
}

static json_t *json_flows(const mpath_topo_t *topo, const mpath_plan_t *plan)
{
    json_t *list = json_array();
    const mpath_flow_t *flows;
    size_t num_flows, i;

    flows = mpath_plan_flows(plan, &num_flows);
    for (i = 0; i < num_flows; i++) {
        json_array_append_new(list, json_pack("{s:i, s:i, s:I, s:I, s:o}", "src", (int)flows[i].source, "dst",
                                              (int)flows[i].destination, "offset", (json_int_t)flows[i].offset, "bytes",
                                              (json_int_t)flows[i].bytes, "path", json_path(topo, &flows[i])));
    }
    return list;
}

static int print_json(const options_t *options, const mpath_topo_t *topo, const mpath_plan_t *plan, double plan_us)
{
    size_t num_flows;
    json_t *all;
    int result;

    mpath_plan_flows(plan, &num_flows);
    all = json_pack("{s:f, s:f, s:f, s:s, s:f, s:I, s:I, s:o, s:o}", "z_s", seconds(mpath_plan_z_ns(plan)), "bound_s",
                    seconds(mpath_plan_bound_ns(plan)), "gap", gap_of(plan), "policy",
                    policy_names[options->params.policy], "plan_us", options->show_time ? plan_us : 0.0,
                    "relayed_bytes", (json_int_t)mpath_plan_relayed_bytes(plan), "fragments", (json_int_t)num_flows,
                    "resources", json_resources(topo, plan), "flows", json_flows(topo, plan));
    if (all == NULL) {
        fprintf(stderr, "mpath_plan: no memory for the JSON output\n");
        return 1;
    }
    result = json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    printf("\n");
    json_decref(all);
    return result != 0;
}

static int run(const options_t *options)
{
    mpath_topo_t *topo;
    mpath_plan_t *plan;
    uint64_t *demand, start;
    double plan_us;
    int result = 1;

    if (plan_input_make(&options->input, &topo, &demand) != MPATH_OK) {
        return 1;
    }
    start = mpath_time_ns();
    if (mpath_plan_create(topo, demand, &options->params, &plan) == MPATH_OK) {
        plan_us = (double)(mpath_time_ns() - start) / 1e3;
        if (options->json) {
            result = print_json(options, topo, plan, plan_us);
        } else {
            print_text(options, topo, plan, plan_us);
            result = 0;
        }
        mpath_plan_destroy(plan);
    }
    free(demand);
    mpath_topo_destroy(topo);
    return result | (fflush(stdout) != 0);
}

int main(int argc, char **argv)
{
    options_t options = {.show_time = 1};
    int go_on;

    plan_input_init(&options.input);
    mpath_plan_params_init(&options.params);
    go_on = parse_options(argc, argv, &options);
    if (go_on <= 0) {
        return go_on < 0 ? 2 : 0;
    }
    return run(&options);
}
