/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_plan: plans one demand on one topology, without MPI, and shows what every resource would carry. */
#include "coll/algorithm.h"
#include "tools/plan/at_scale.h"
#include "tools/plan/input.h"
#include "tools/plan/report.h"
#include "tools/plan/svg.h"
#include "tools/progress.h"
#include "tools/plan/rivals.h"
#include "topo/file/xml.h"
#include "util/log.h"
#include "util/time.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With these many pieces the simulator counts events together that are close to each other. */
#define EXACT_FRAGMENTS 1000
#define COARSE_RESOLUTION 0.001

typedef struct options {
    plan_input_t input;
    plan_policy_t policy;
    mpath_plan_params_t params; /* but for the policy */
    simulate_params_t simulation;
    int simulate, compare, json, show_flows, show_time;
    int explain, explain_source, explain_destination;
    int at_scale, round_trip;
    uint32_t cpu_ppm; /* of the runtime's costs */
    const char *svg_path, *dump_path, *dump_matrix_path;
} options_t;

/* Behind those of input.h. */
static const char help_options[] =
    "Plan:\n"
    "  --policy mpath|direct|stripe|pxn|pairs|fast|sabre\n"
    "                          minimum congestion; the static routes; every pair evenly over its paths\n"
    "                          without relays; one relay, to the rail beside the receiver; as mpath, but\n"
    "                          for each pair of nodes by itself, where nodes have the same rails; those of\n"
    "                          the papers FAST and SABRE, and how long their steps take (mpath)\n"
    "  --compare               also Z of all policies\n"
    "  --min-fragment N        smallest piece of a split pair (32k)\n"
    "Time:\n"
    "  --simulate              also simulate the flows, chunk by chunk, with fair shares\n"
    "  --chunk N               largest chunk (128k)\n"
    "  --hop-ns N              what a hop costs besides the latency of its links (500)\n"
    "  --share bytes|equal     simulated flows share a link by their bytes, as mpath serves them, or\n"
    "                          equally, as independent connections do (bytes)\n"
    "Thousands of ranks:\n"
    "  --at-scale              in place of one plan: what the network and the ranks' processors take on static\n"
    "                          routes, with mpath, and with the rivals; node by node, without the matrix\n"
    "                          (doc/scale.md)\n"
    "  --round-trip            and then all bytes back, as a layer's dispatch and combine\n"
    "  --cpu F                 processors take F times as long; 0 for nothing (1)\n"
    "Output:\n"
    "  --dump-topo FILE        write the topology to a file, '-' for standard output, and plan nothing\n"
    "  --dump-matrix FILE      the same of the matrix\n"
    "  --json                  JSON instead of text (doc/mpath_plan.md)\n"
    "  --flows                 list the flows\n"
    "  --explain S,D           the paths of one pair: price, fullest link, why used or not\n"
    "  --svg FILE              also draw each node with the load of its links, by static routes and by\n"
    "                          the plan\n"
    "  --no-time               leave the planning time out, for output that can be compared\n"
    "  -h, --help              this text\n"
    "  --version               the version\n";

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
           "%s%s\n",
           plan_input_help, help_options);
    printf("EXIT STATUS\n"
           "  0: done; 1: the input cannot be used or planned; 2: wrong options.\n\n"
           "EXAMPLES\n"
           "  mpath_plan --preset h100-mesh4 --hot 0.7 --simulate\n"
           "  mpath_plan --preset hgx-h200 --nodes 8 --moe 4096,8,256,1.0 --svg load.svg\n"
           "  mpath_plan --preset h100-mesh4 --hot 0.9 --explain 4,0\n"
           "  mpath_plan --topo rack.xml --matrix bytes.txt --json\n"
           "  mpath_plan --nodes 128 --ranks-per-node 8 --nics 8 --rate 50g --moe 4096,8,1024,zipf:1 --at-scale\n"
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

/* An option of the plan, its time or the output; 0 when its value is wrong. */
static int set_option(options_t *options, int option, const char *text)
{
    uint64_t value = 0;

    switch (option) {
    case 'c':
        options->simulation.time.chunk_bytes = plan_parse_bytes(text, &value) && value <= 1ull << 30 ? value : 0;
        return options->simulation.time.chunk_bytes > 0;
    case 'N':
        if (!plan_parse_bytes(text, &value) || value > INT32_MAX) {
            return 0;
        }
        options->simulation.time.hop_ns = (uint32_t)value;
        return 1;
    case 'f':
        return plan_parse_bytes(text, &options->params.min_fragment_bytes);
    case 'P':
        return plan_policy_find(text, &options->policy);
    case 'S':
        options->simulation.share = strcmp(text, "equal") == 0 ? SIMULATE_SHARE_EQUAL : SIMULATE_SHARE_BYTES;
        return strcmp(text, "equal") == 0 || strcmp(text, "bytes") == 0;
    case 'E':
        return set_explain(options, text);
    case 'v':
        options->svg_path = text;
        break;
    case 'D':
        options->dump_path = text;
        break;
    case 'd':
        options->dump_matrix_path = text;
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
    case 'u':
        options->simulate = 1;
        break;
    case 'A':
        options->at_scale = 1;
        break;
    case 'g':
        options->round_trip = 1;
        break;
    case 'U':
        return plan_parse_ppm(text, &options->cpu_ppm) && options->cpu_ppm <= 100000000;
    default:
        options->compare = 1;
        break;
    }
    return 1;
}

/* Options that --at-scale needs, or would leave without effect; says so on standard error. */
static int scale_fits(const options_t *options, const char *given)
{
    static const char others[] = "PCuSEvFTDdm", only[] = "gU";

    for (const char *other = options->at_scale ? others : only; *other != '\0'; other++) {
        if (given[(int)*other]) {
            fprintf(
                stderr,
                options->at_scale
                    ? "mpath_plan: --at-scale plans no single policy and has no matrix: only options of the topology, of "
                      "a demand without file, --min-fragment, --chunk, --hop-ns and --json go with it; see mpath_plan --help\n"
                    : "mpath_plan: --round-trip and --cpu are those of --at-scale; see mpath_plan --help\n");
            return 0;
        }
    }
    return 1;
}

/* 1: go on; 0: done (help); -1: wrong. */
static int parse_options(int argc, char **argv, options_t *options)
{
    static const struct option names[] = {
        PLAN_INPUT_OPTIONS,           {"policy", 1, NULL, 'P'},
        {"compare", 0, NULL, 'C'},    {"chunk", 1, NULL, 'c'},
        {"hop-ns", 1, NULL, 'N'},     {"min-fragment", 1, NULL, 'f'},
        {"simulate", 0, NULL, 'u'},   {"share", 1, NULL, 'S'},
        {"json", 0, NULL, 'j'},       {"flows", 0, NULL, 'F'},
        {"explain", 1, NULL, 'E'},    {"svg", 1, NULL, 'v'},
        {"no-time", 0, NULL, 'T'},    {"help", 0, NULL, 'h'},
        {"dump-topo", 1, NULL, 'D'},  {"dump-matrix", 1, NULL, 'd'},
        {"version", 0, NULL, 'X'},    {"at-scale", 0, NULL, 'A'},
        {"round-trip", 0, NULL, 'g'}, {"cpu", 1, NULL, 'U'},
        {NULL, 0, NULL, 0},
    };
    char given[128] = "";
    int option, index = 0, good;

    while ((option = getopt_long(argc, argv, "h", names, &index)) != -1) {
        given[option & 127] = 1;
        if (option == '?') {
            fprintf(stderr, "mpath_plan: see mpath_plan --help\n");
            return -1;
        }
        if (option == 'h') {
            print_help();
            return 0;
        }
        if (option == 'X') {
            printf("mpath_plan %s\n", MPATH_VERSION);
            return 0;
        }
        good = plan_input_option(&options->input, option, optarg);
        good = good < 0 ? set_option(options, option, optarg) : good;
        if (!good) {
            fprintf(stderr, "mpath_plan: --%s does not take '%s'; see mpath_plan --help\n", names[index].name, optarg);
            return -1;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "mpath_plan: '%s' is not an option; see mpath_plan --help\n", argv[optind]);
        return -1;
    }
    return plan_input_fits(&options->input, "mpath_plan", names, given) && scale_fits(options, given) ? 1 : -1;
}

/* The picture has the static routes beside the plan. */
static mpath_status_t draw(const options_t *options, const mpath_topo_t *topo, const uint64_t *demand,
                           const mpath_plan_t *plan)
{
    mpath_plan_params_t params = options->params;
    plan_captions_t captions;
    mpath_status_t status;
    mpath_plan_t *before;

    params.policy = MPATH_POLICY_DIRECT;
    status        = mpath_plan_create(topo, demand, &params, &before);
    if (status == MPATH_OK) {
        const plan_svg_t svg = {.topo       = topo,
                                .before     = before,
                                .after      = plan,
                                .after_name = plan_policy_name(options->policy),
                                .captions   = &captions};

        plan_input_describe(&options->input, topo, demand, &captions);
        status = plan_svg_write(options->svg_path, &svg);
        mpath_plan_destroy(before);
    }
    return status;
}

/* What mpath would make of the plan between nodes, beside the static routes. */
static mpath_status_t ask_gate(const options_t *options, const mpath_topo_t *topo, const uint64_t *demand,
                               plan_report_t *report)
{
    mpath_gate_forecast_t forecast;
    mpath_settings_t settings;
    mpath_decision_t decision;
    mpath_question_t question;
    mpath_status_t status;

    status = mpath_gate_forecast(topo, demand, &options->params, &options->simulation.time, report->plan, &forecast);
    if (status != MPATH_OK) {
        return status;
    }
    report->static_predicted_ns = report->predicted_ns;
    if (forecast.direct != NULL) {
        status = mpath_time_predict(topo, forecast.direct, &options->simulation.time, &report->static_predicted_ns);
    }
    mpath_settings_init(&settings);
    question = (mpath_question_t){.collective    = MPATH_OPERATION_ALLTOALLV,
                                  .memory        = MPATH_ON_HOST,
                                  .settings      = &settings,
                                  .topo          = topo,
                                  .agreed        = 1,
                                  .between_bytes = 1, /* of the routes between nodes */
                                  .forecast      = &forecast};
    (void)mpath_choose(&question, &decision);
    if (mpath_algorithm_is_previous(decision.algorithm)) {
        report->gate    = "mpath steps aside";
        report->gate_id = "aside";
    } else if (strcmp(decision.algorithm->name, "direct") == 0) {
        report->gate    = "mpath takes these";
        report->gate_id = "direct";
    } else {
        report->gate    = (forecast.direct == NULL) ? "the plan is these" : "mpath takes the plan";
        report->gate_id = "plan";
    }
    mpath_gate_forecast_release(&forecast);
    return status;
}

/* A plan of any policy. *steps_p and *seconds_p: of a rival's steps; 0 of the others. */
static mpath_status_t make_plan(const options_t *options, plan_policy_t policy, const mpath_topo_t *topo,
                                const uint64_t *demand, mpath_plan_t **plan_p, size_t *steps_p, double *seconds_p)
{
    mpath_plan_params_t params = options->params;
    rival_result_t result;
    mpath_status_t status;

    *steps_p   = 0;
    *seconds_p = 0;
    if (policy < PLAN_POLICY_FAST) {
        params.policy = (mpath_policy_t)policy;
        return mpath_plan_create(topo, demand, &params, plan_p);
    }
    status = rival_run(policy == PLAN_POLICY_FAST ? RIVAL_FAST : RIVAL_SABRE, topo, demand, &options->simulation.time,
                       &result);
    if (status == MPATH_OK) {
        *plan_p    = result.plan;
        *steps_p   = result.steps;
        *seconds_p = result.seconds;
    }
    return status;
}

/* Z of every policy for the same demand. */
static mpath_status_t compare(const options_t *options, const mpath_topo_t *topo, const uint64_t *demand,
                              plan_report_t *report)
{
    mpath_status_t status = MPATH_OK;
    mpath_plan_t *plan;
    double seconds;
    size_t steps;

    for (int i = 0; (i < PLAN_REPORT_POLICIES) && (status == MPATH_OK); i++) {
        status = make_plan(options, (plan_policy_t)i, topo, demand, &plan, &steps, &seconds);
        if (status == MPATH_OK) {
            report->policies_z_ns[i] = mpath_plan_z_ns(plan);
            mpath_plan_destroy(plan);
        }
    }
    report->has_policies = 1;
    return status;
}

/* Everything that is asked for about a plan. */
static mpath_status_t report(const options_t *options, const mpath_topo_t *topo, const uint64_t *demand,
                             const mpath_plan_t *plan, size_t steps, double steps_seconds, double plan_us)
{
    simulate_params_t simulation = options->simulation;
    plan_report_t all            = {.topo                = topo,
                                    .plan                = plan,
                                    .policy              = options->policy,
                                    .steps               = steps,
                                    .steps_seconds       = steps_seconds,
                                    .plan_us             = options->show_time ? plan_us : -1,
                                    .show_flows          = options->show_flows,
                                    .explain             = options->explain,
                                    .explain_source      = options->explain_source,
                                    .explain_destination = options->explain_destination};
    mpath_status_t status        = mpath_time_predict(topo, plan, &simulation.time, &all.predicted_ns);
    size_t num_flows;

    if ((status == MPATH_OK) && (options->policy == PLAN_POLICY_MPATH)) {
        status = ask_gate(options, topo, demand, &all);
    }
    if ((status == MPATH_OK) && options->compare) {
        status = compare(options, topo, demand, &all);
    }
    if ((status == MPATH_OK) && options->simulate) {
        mpath_plan_flows(plan, &num_flows);
        progress_step("simulating %zu flows", num_flows);
        progress_count();
        simulation.resolution = (num_flows > EXACT_FRAGMENTS) ? COARSE_RESOLUTION : 0;
        all.has_simulation    = 1;
        status                = simulate_plan(topo, plan, &simulation, &all.simulation);
    }
    if ((status == MPATH_OK) && (options->svg_path != NULL)) {
        progress_step("drawing");
        status = draw(options, topo, demand, plan);
    }
    progress_stop();
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

/* One row per rank, as --matrix reads it. */
static mpath_status_t dump_matrix(const char *path, const uint64_t *demand, int num_ranks)
{
    FILE *out  = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    int failed = out == NULL;

    for (int source = 0; !failed && source < num_ranks; source++) {
        for (int destination = 0; destination < num_ranks; destination++) {
            fprintf(out, "%s%" PRIu64, destination > 0 ? " " : "", *demand++);
        }
        fprintf(out, "\n");
    }
    failed = failed || fflush(out) != 0 || ferror(out);
    if (failed) {
        mpath_error("matrix %s: %s; it is not written", path, strerror(errno));
    }
    if (out != NULL && out != stdout) {
        fclose(out);
    }
    return failed ? MPATH_ERR_IO : MPATH_OK;
}

/* There, and where it is asked for, back. */
static mpath_status_t run_at_scale(const options_t *options)
{
    static const char *const labels[] = {"there", "back"};
    char machine[PLAN_INPUT_TEXT], demand[PLAN_INPUT_TEXT];
    at_scale_result_t results[2] = {{.bound = 0}};
    at_scale_report_t report     = {.machine = machine, .demand = demand, .results = results};
    at_scale_params_t params;
    plan_rows_t *rows = NULL;
    mpath_topo_t *topo;
    mpath_status_t status = plan_input_make_topo(&options->input, &topo);

    if (status != MPATH_OK) {
        return status;
    }
    at_scale_params_init(&params);
    params.time               = options->simulation.time;
    params.min_fragment_bytes = options->params.min_fragment_bytes;
    at_scale_costs_init(options->cpu_ppm / 1e6, &params.costs);
    progress_step("rows of %d ranks", mpath_topo_num_ranks(topo));
    progress_count();
    status = plan_rows_open(&options->input, mpath_topo_num_ranks(topo), &rows);
    for (int i = 0; i < 1 + options->round_trip && status == MPATH_OK; i++) {
        progress_step("%d ranks, %s", mpath_topo_num_ranks(topo), labels[i]);
        progress_count();
        status       = at_scale_run(topo, rows, &params, &results[i]);
        report.count = i + 1;
        plan_rows_reverse(rows);
    }
    progress_stop();
    if (status == MPATH_OK) {
        report.labels = options->round_trip ? labels : NULL;
        plan_input_describe_machine(&options->input, topo, machine);
        plan_input_describe_demand(&options->input, demand);
        if (options->json) {
            status = at_scale_json(&report, stdout);
        } else {
            at_scale_text(&report, stdout);
        }
    }
    for (int i = 0; i < report.count; i++) {
        at_scale_release(&results[i]);
    }
    plan_rows_close(rows);
    mpath_topo_destroy(topo);
    return status;
}

static mpath_status_t finish_output(mpath_status_t status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        mpath_error("writing to standard output failed; it is not complete");
        return MPATH_ERR_IO;
    }
    return status;
}

static int run(const options_t *options)
{
    mpath_status_t status;
    mpath_topo_t *topo;
    mpath_plan_t *plan;
    uint64_t *demand, start;
    double seconds;
    size_t steps;

    if (plan_input_make(&options->input, &topo, &demand) != MPATH_OK) {
        return 1;
    }
    if (options->dump_path != NULL || options->dump_matrix_path != NULL) {
        status = options->dump_path != NULL ? mpath_topo_file_save(topo, options->dump_path) : MPATH_OK;
        if (status == MPATH_OK && options->dump_matrix_path != NULL) {
            status = dump_matrix(options->dump_matrix_path, demand, mpath_topo_num_ranks(topo));
        }
        free(demand);
        mpath_topo_destroy(topo);
        return status != MPATH_OK;
    }
    status = check_explained(options, topo) ? MPATH_OK : MPATH_ERR_PARAM;
    progress_step("planning for %d ranks", mpath_topo_num_ranks(topo));
    progress_count();
    start = mpath_time_ns();
    if (status == MPATH_OK) {
        status = make_plan(options, options->policy, topo, demand, &plan, &steps, &seconds);
    }
    if (status == MPATH_OK) {
        status = report(options, topo, demand, plan, steps, seconds, (double)(mpath_time_ns() - start) / 1e3);
        mpath_plan_destroy(plan);
    }
    progress_stop();
    free(demand);
    mpath_topo_destroy(topo);
    return finish_output(status) != MPATH_OK;
}

int main(int argc, char **argv)
{
    options_t options = {.show_time = 1, .cpu_ppm = 1000000};
    int go_on;

    plan_input_init(&options.input);
    mpath_plan_params_init(&options.params);
    simulate_params_init(&options.simulation);
    go_on = parse_options(argc, argv, &options);
    if (go_on <= 0) {
        return go_on < 0 ? 2 : 0;
    }
    progress_start("mpath_plan", PROGRESS_AUTO);
    return options.at_scale ? finish_output(run_at_scale(&options)) != MPATH_OK : run(&options);
}
