/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_plan: plans one demand on one topology, without MPI, and shows what every resource would carry. */
#include "coll/gate.h"
#include "tools/plan_input.h"
#include "tools/plan_report.h"
#include "tools/plan_svg.h"
#include "topo/xml.h"
#include "util/log.h"
#include "util/time.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With these many pieces the simulator counts events together that are close to each other. */
#define EXACT_FRAGMENTS 1000
#define COARSE_RESOLUTION 0.001

typedef struct options {
    plan_input_t input;
    mpath_plan_params_t params;
    simulate_params_t simulation;
    int simulate, json, show_flows, show_time;
    int explain, explain_source, explain_destination;
    const char *svg_path, *dump_path;
} options_t;

static const char help_options[] =
    "Topology:\n"
    "  --topo FILE             a topology file with ranks (doc/topology.md), or\n"
    "  --preset NAME           machines of a known kind, --nodes of them: h100-mesh4, hgx-h100,\n"
    "                          hgx-h200, h800, a100, gb200-nvl72; or a uniform cluster:\n"
    "  --nodes N               nodes (2)\n"
    "  --ranks-per-node N      ranks of each node (4); rank i sits beside NIC i modulo the NICs\n"
    "  --nics N                NICs of each node (4)\n"
    "  --rate BPS              bytes per second of a NIC, k m g are powers of 1000 (25g)\n"
    "  --host-memory BPS       of a node's memory (four times its NICs)\n"
    "  --access all|affine     NICs that a rank drives itself (all)\n"
    "  --spine                 NICs of different rails reach each other\n"
    "  --scale F               all rates by a factor: 0.25\n"
    "  --emulated copies|rails for virtual nodes on one host: rails are copies between its GPUs, or UCX\n"
    "                          over the device of --device NAME (lo; memory: shared memory); their rates hold by\n"
    "                          clocks (doc/gpu.md)\n"
    "  --dump-topo FILE        write the topology to a file, '-' for standard output, and plan nothing\n"
    "Demand:\n"
    "  --matrix FILE           bytes, one row per rank; or generated:\n"
    "  --bytes N               bytes that each rank sends, k m g are powers of 1024 (64m)\n"
    "  --hot H                 share of them for one hot rank, 0 to 1; the rest evenly (0)\n"
    "  --hot-rank R            that rank (0)\n"
    "  --zipf S                shares by popularity to the power -S instead\n"
    "  --moe TOKENS,TOPK,EXPERTS,SKEW\n"
    "                          instead: each of a rank's TOKENS goes to TOPK different ones of\n"
    "                          EXPERTS, dealt out over the ranks, with popularity to the power -SKEW\n"
    "  --token-bytes N         of one token (8k: 4096 values of 2 bytes)\n"
    "  --seed N                of the popularity and the tokens' choices (1)\n"
    "Plan:\n"
    "  --policy mpath|direct|stripe|pxn\n"
    "                          minimum congestion; the static routes; every pair evenly over its paths\n"
    "                          without relays; one relay, to the rail beside the receiver (mpath)\n"
    "  --min-fragment N        smallest piece of a split pair (32k)\n"
    "Time:\n"
    "  --simulate              also simulate the flows, chunk by chunk, with fair shares\n"
    "  --chunk N               largest chunk (128k)\n"
    "  --hop-ns N              what a hop costs besides the latency of its links (500)\n"
    "  --share bytes|equal     simulated flows share a link by their bytes, as mpath serves them, or\n"
    "                          equally, as independent connections do (bytes)\n"
    "Output:\n"
    "  --json                  JSON instead of text (doc/mpath_plan.md)\n"
    "  --flows                 list the flows\n"
    "  --explain S,D           the paths of one pair: price, fullest link, why used or not\n"
    "  --svg FILE              also draw each node with the load of its links, by static routes and by\n"
    "                          the plan\n"
    "  --no-time               leave the planning time out, for output that can be compared\n"
    "  --help                  this text\n";

static void print_help(void)
{
    printf("NAME\n"
           "  mpath_plan - plan who sends how much over which path, and show what every link carries\n\n"
           "SYNOPSIS\n"
           "  mpath_plan [--topo FILE | --preset NAME | --nodes N ...]\n"
           "             [--matrix FILE | --hot H | --zipf S | --moe TOKENS,TOPK,EXPERTS,SKEW] [OPTION]...\n\n"
           "DESCRIPTION\n"
           "  Computes, without MPI and without a GPU, the routing that mpath computes before a collective: Z,\n"
           "  the time that the busiest resource needs, is made as small as it gets. Prints Z, a lower bound of\n"
           "  it that is proved, the predicted time with latencies and pipelines, and the load of every resource.\n\n"
           "OPTIONS\n"
           "%s\n",
           help_options);
    printf("EXIT STATUS\n"
           "  0: done; 1: the input cannot be used or planned; 2: wrong options.\n\n"
           "EXAMPLES\n"
           "  mpath_plan --preset h100-mesh4 --hot 0.7 --simulate\n"
           "  mpath_plan --preset hgx-h200 --nodes 8 --moe 4096,8,256,1.0 --svg load.svg\n"
           "  mpath_plan --preset h100-mesh4 --hot 0.9 --explain 4,0\n"
           "  mpath_plan --topo rack.xml --matrix bytes.txt --json\n"
           "  mpath_plan --preset h100-mesh4 --scale 0.25 --emulated copies --dump-topo nodes.xml\n");
}

/* "4,0" */
static int set_explain(options_t *options, const char *text)
{
    char *end;
    long source, destination;

    source = strtol(text, &end, 10);
    if ((end == text) || (*end != ',') || (source < 0) || (source > INT32_MAX)) {
        return 0;
    }
    text        = end + 1;
    destination = strtol(text, &end, 10);
    if ((end == text) || (*end != '\0') || (destination < 0) || (destination > INT32_MAX)) {
        return 0;
    }
    options->explain             = 1;
    options->explain_source      = (int)source;
    options->explain_destination = (int)destination;
    return 1;
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
    if (!plan_parse_bytes(text, &value) || (strchr("nlirN", option) != NULL && value > INT32_MAX) ||
        (strchr("cB", option) != NULL && (value == 0 || value > 1ull << 30))) {
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
    case 'B':
        input->moe.token_bytes = value;
        break;
    case 'c':
        options->simulation.time.chunk_bytes = value;
        break;
    case 'N':
        options->simulation.time.hop_ns = (uint32_t)value;
        break;
    default:
        options->params.min_fragment_bytes = value;
        break;
    }
    return 1;
}

static int set_word(options_t *options, int option, const char *text)
{
    switch (option) {
    case 'e':
        options->input.emulate.mode = (strcmp(text, "copies") == 0) ? MPATH_EMULATED_COPIES : MPATH_EMULATED_RAILS;
        return (strcmp(text, "copies") == 0) || (strcmp(text, "rails") == 0);
    case 'x':
        return plan_parse_ppm(text, &options->input.emulate.scale_ppm) && (options->input.emulate.scale_ppm > 0);
    case 'P':
        return plan_policy_find(text, &options->params.policy);
    case 'a':
        options->input.topo_params.access = strcmp(text, "affine") == 0 ? MPATH_REACH_AFFINE : MPATH_REACH_ALL;
        return strcmp(text, "affine") == 0 || strcmp(text, "all") == 0;
    case 'S':
        options->simulation.share = strcmp(text, "equal") == 0 ? SIMULATE_SHARE_EQUAL : SIMULATE_SHARE_BYTES;
        return strcmp(text, "equal") == 0 || strcmp(text, "bytes") == 0;
    case 'M':
        options->input.use_moe = 1;
        return plan_parse_moe(text, &options->input.moe);
    default:
        return set_explain(options, text);
    }
}

/* Options that take no value or any; 0 for the others. */
static int set_plain(options_t *options, int option, const char *text)
{
    switch (option) {
    case 't':
        options->input.topo_path = text;
        return 1;
    case 'k':
        options->input.preset = text;
        return 1;
    case 'm':
        options->input.matrix_path = text;
        return 1;
    case 'v':
        options->svg_path = text;
        return 1;
    case 'D':
        options->dump_path = text;
        return 1;
    case 'V':
        options->input.emulate.device = text;
        return 1;
    case 'p':
        options->input.topo_params.fabric |= MPATH_FABRIC_SPINE;
        return 1;
    case 'j':
        options->json = 1;
        return 1;
    case 'F':
        options->show_flows = 1;
        return 1;
    case 'T':
        options->show_time = 0;
        return 1;
    case 'u':
        options->simulate = 1;
        return 1;
    default:
        return 0;
    }
}

/* An option, and those that it would leave without effect. */
static const struct {
    char option;
    const char *others;
} exclusive[] = {{'t', "knilRaHp"}, {'k', "ilRaHp"}, {'m', "bhrzMsB"}, {'h', "zM"}, {'z', "rM"}, {'M', "br"}};

static const char *option_name(const struct option *names, int option)
{
    while (names->val != option) {
        names++;
    }
    return names->name;
}

/* What does not go together; `given` has a nonzero entry for each option that is there. 0 when something is wrong. */
static int fit_together(const options_t *options, const struct option *names, const char *given)
{
    const char *other;
    size_t i;

    for (i = 0; i < sizeof(exclusive) / sizeof(exclusive[0]); i++) {
        for (other = exclusive[i].others; given[(int)exclusive[i].option] && (*other != '\0'); other++) {
            if (given[(int)*other]) {
                fprintf(stderr, "mpath_plan: --%s and --%s do not go together; see mpath_plan --help\n",
                        option_name(names, exclusive[i].option), option_name(names, *other));
                return 0;
            }
        }
    }
    if (given['V'] && (options->input.emulate.mode != MPATH_EMULATED_RAILS)) {
        fprintf(stderr, "mpath_plan: --device is that of --emulated rails; see mpath_plan --help\n");
        return 0;
    }
    return 1;
}

/* 1: go on; 0: done (help); -1: wrong. */
static int parse_options(int argc, char **argv, options_t *options)
{
    static const struct option names[] = {
        {"topo", 1, NULL, 't'},     {"preset", 1, NULL, 'k'},         {"nodes", 1, NULL, 'n'},
        {"nics", 1, NULL, 'i'},     {"ranks-per-node", 1, NULL, 'l'}, {"rate", 1, NULL, 'R'},
        {"access", 1, NULL, 'a'},   {"host-memory", 1, NULL, 'H'},    {"spine", 0, NULL, 'p'},
        {"matrix", 1, NULL, 'm'},   {"bytes", 1, NULL, 'b'},          {"hot", 1, NULL, 'h'},
        {"hot-rank", 1, NULL, 'r'}, {"zipf", 1, NULL, 'z'},           {"moe", 1, NULL, 'M'},
        {"seed", 1, NULL, 's'},     {"token-bytes", 1, NULL, 'B'},    {"policy", 1, NULL, 'P'},
        {"chunk", 1, NULL, 'c'},    {"min-fragment", 1, NULL, 'f'},   {"hop-ns", 1, NULL, 'N'},
        {"simulate", 0, NULL, 'u'}, {"share", 1, NULL, 'S'},          {"json", 0, NULL, 'j'},
        {"flows", 0, NULL, 'F'},    {"explain", 1, NULL, 'E'},        {"svg", 1, NULL, 'v'},
        {"no-time", 0, NULL, 'T'},  {"help", 0, NULL, 'X'},           {"scale", 1, NULL, 'x'},
        {"emulated", 1, NULL, 'e'}, {"device", 1, NULL, 'V'},         {"dump-topo", 1, NULL, 'D'},
        {NULL, 0, NULL, 0},
    };
    char given[128] = "";
    int option, index = 0, good;

    while ((option = getopt_long(argc, argv, "", names, &index)) != -1) {
        given[option & 127] = 1;
        if (option == '?') {
            fprintf(stderr, "mpath_plan: see mpath_plan --help\n");
            return -1;
        }
        if (option == 'X') {
            print_help();
            return 0;
        }
        if (set_plain(options, option, optarg)) {
            continue;
        }
        good = strchr("PaSMEex", option) != NULL ? set_word(options, option, optarg)
                                                 : set_number(options, option, optarg);
        if (!good) {
            fprintf(stderr, "mpath_plan: --%s does not take '%s'; see mpath_plan --help\n", names[index].name, optarg);
            return -1;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "mpath_plan: '%s' is not an option; see mpath_plan --help\n", argv[optind]);
        return -1;
    }
    return fit_together(options, names, given) ? 1 : -1;
}

/* The picture has the static routes beside the plan. */
static mpath_status_t draw(const options_t *options, const mpath_topo_t *topo, const uint64_t *demand,
                           const mpath_plan_t *plan)
{
    mpath_plan_params_t params = options->params;
    mpath_status_t status;
    mpath_plan_t *before;

    params.policy = MPATH_POLICY_DIRECT;
    status        = mpath_plan_create(topo, demand, &params, &before);
    if (status == MPATH_OK) {
        status = plan_svg_write(options->svg_path, topo, before, plan, plan_policy_name(options->params.policy));
        mpath_plan_destroy(before);
    }
    return status;
}

/* What mpath would make of the plan between nodes, beside the static routes. */
static mpath_status_t ask_gate(const options_t *options, const mpath_topo_t *topo, const uint64_t *demand,
                               plan_report_t *report)
{
    mpath_gate_forecast_t forecast;
    mpath_status_t status;
    const char *because;

    status = mpath_gate_forecast(topo, demand, &options->params, &options->simulation.time, report->plan, &forecast);
    if (status != MPATH_OK) {
        return status;
    }
    report->static_predicted_ns = report->predicted_ns;
    if (forecast.direct != NULL) {
        status = mpath_time_predict(topo, forecast.direct, &options->simulation.time, &report->static_predicted_ns);
    }
    switch (mpath_gate_after_plan(topo, &forecast, &because)) {
    case MPATH_GATE_ASIDE:
        report->gate    = "mpath steps aside";
        report->gate_id = "aside";
        break;
    case MPATH_GATE_DIRECT:
        report->gate    = "mpath takes these";
        report->gate_id = "direct";
        break;
    default:
        report->gate    = (forecast.direct == NULL) ? "the plan is these" : "mpath takes the plan";
        report->gate_id = "plan";
        break;
    }
    mpath_gate_forecast_release(&forecast);
    return status;
}

/* Everything that is asked for about a plan. */
static mpath_status_t report(const options_t *options, const mpath_topo_t *topo, const uint64_t *demand,
                             const mpath_plan_t *plan, double plan_us)
{
    simulate_params_t simulation = options->simulation;
    plan_report_t all            = {.topo                = topo,
                                    .plan                = plan,
                                    .policy              = options->params.policy,
                                    .plan_us             = options->show_time ? plan_us : -1,
                                    .show_flows          = options->show_flows,
                                    .explain             = options->explain,
                                    .explain_source      = options->explain_source,
                                    .explain_destination = options->explain_destination};
    mpath_status_t status        = mpath_time_predict(topo, plan, &simulation.time, &all.predicted_ns);
    size_t num_flows;

    if ((status == MPATH_OK) && (options->params.policy == MPATH_POLICY_MPATH)) {
        status = ask_gate(options, topo, demand, &all);
    }
    if ((status == MPATH_OK) && options->simulate) {
        mpath_plan_flows(plan, &num_flows);
        simulation.resolution = (num_flows > EXACT_FRAGMENTS) ? COARSE_RESOLUTION : 0;
        all.has_simulation    = 1;
        status                = simulate_plan(topo, plan, &simulation, &all.simulation);
    }
    if ((status == MPATH_OK) && (options->svg_path != NULL)) {
        status = draw(options, topo, demand, plan);
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (options->json) {
        return plan_report_json(&all, stdout);
    }
    plan_report_text(&all, stdout);
    return MPATH_OK;
}

static int check_explained(const options_t *options, const mpath_topo_t *topo)
{
    int source = options->explain_source, destination = options->explain_destination;

    if (!options->explain) {
        return 1;
    }
    if ((source >= mpath_topo_num_ranks(topo)) || (destination >= mpath_topo_num_ranks(topo)) ||
        (source == destination)) {
        fprintf(stderr, "mpath_plan: --explain %d,%d: two different ranks must be named, 0 to %d\n", source,
                destination, mpath_topo_num_ranks(topo) - 1);
        return 0;
    }
    return 1;
}

static int run(const options_t *options)
{
    mpath_status_t status;
    mpath_topo_t *topo;
    mpath_plan_t *plan;
    uint64_t *demand, start;

    if (plan_input_make(&options->input, &topo, &demand) != MPATH_OK) {
        return 1;
    }
    if (options->dump_path != NULL) {
        status = mpath_topo_file_save(topo, options->dump_path);
        free(demand);
        mpath_topo_destroy(topo);
        return status != MPATH_OK;
    }
    status = check_explained(options, topo) ? MPATH_OK : MPATH_ERR_PARAM;
    start  = mpath_time_ns();
    if (status == MPATH_OK) {
        status = mpath_plan_create(topo, demand, &options->params, &plan);
    }
    if (status == MPATH_OK) {
        status = report(options, topo, demand, plan, (double)(mpath_time_ns() - start) / 1e3);
        mpath_plan_destroy(plan);
    }
    free(demand);
    mpath_topo_destroy(topo);
    if ((fflush(stdout) != 0) || ferror(stdout)) {
        mpath_error("writing to standard output failed; it is not complete");
        status = MPATH_ERR_IO;
    }
    return status != MPATH_OK;
}

int main(int argc, char **argv)
{
    options_t options = {.show_time = 1};
    int go_on;

    plan_input_init(&options.input);
    mpath_plan_params_init(&options.params);
    simulate_params_init(&options.simulation);
    go_on = parse_options(argc, argv, &options);
    if (go_on <= 0) {
        return go_on < 0 ? 2 : 0;
    }
    return run(&options);
}
