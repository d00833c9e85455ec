/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds the topology and the demand that the planner's programs were asked for. */
#include "tools/plan/input.h"

#include "plan/demand.h"
#include "plan/matrix.h"
#include "plan/workload.h"
#include "topo/file/xml.h"
#include "util/log.h"
#include "util/number.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES 4096
#define MAX_RANKS 16384

void plan_input_init(plan_input_t *input)
{
    memset(input, 0, sizeof(*input));
    input->num_nodes          = 2;
    input->ranks_per_node     = 4;
    input->num_nics           = 4;
    input->rate_bps           = 25000000000ull;
    input->topo_params.access = MPATH_REACH_ALL;
    input->seed               = 1;
    input->bytes              = 64ull << 20;
    input->emulate.scale_ppm  = 1000000;
    input->moe.token_bytes    = 8192; /* 4096 values of 2 bytes */
}

static int parse_scaled(const char *text, uint64_t step, uint64_t *value_p)
{
    unsigned long long value;
    uint64_t factor = 1;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (end == text || errno != 0 || *text == '-') {
        return 0;
    }
    switch (*end) {
    case 'g':
    case 'G':
        factor *= step; /* fall through */
    case 'm':
    case 'M':
        factor *= step; /* fall through */
    case 'k':
    case 'K':
        factor *= step;
        end++;
        break;
    default:
        break;
    }
    if (*end != '\0' || value > (UINT64_MAX >> 2) / factor) {
        return 0;
    }
    *value_p = value * factor;
    return 1;
}

int plan_parse_bytes(const char *text, uint64_t *bytes_p)
{
    return parse_scaled(text, 1024, bytes_p);
}

int plan_parse_rate(const char *text, uint64_t *rate_p)
{
    return parse_scaled(text, 1000, rate_p);
}

int plan_parse_ppm(const char *text, uint32_t *ppm_p)
{
    uint32_t value = 0, unit = 1000000;
    int digits = 0;

    for (; *text >= '0' && *text <= '9' && digits < 3; text++, digits++) {
        value = value * 10 + (uint32_t)(*text - '0');
    }
    value *= unit;
    if (*text == '.') {
        for (text++; *text >= '0' && *text <= '9'; text++, digits++) {
            unit /= 10;
            value += (uint32_t)(*text - '0') * unit;
        }
    }
    if (*text != '\0' || digits == 0) {
        return 0;
    }
    *ppm_p = value;
    return 1;
}

/* A whole number up to `most` and the comma behind it. */
static int parse_field(const char **text, uint64_t most, uint64_t *value_p)
{
    unsigned long long value;
    char *end;

    errno = 0;
    value = strtoull(*text, &end, 10);
    if (**text < '0' || **text > '9' || errno != 0 || *end != ',' || value > most) {
        return 0;
    }
    *text    = end + 1;
    *value_p = value;
    return 1;
}

int plan_parse_moe(const char *text, plan_input_t *input)
{
    uint64_t tokens, topk, experts;
    uint32_t skew_ppm = 0;
    int is_name;

    if (!parse_field(&text, UINT32_MAX, &tokens) || !parse_field(&text, UINT32_MAX, &topk) ||
        !parse_field(&text, UINT32_MAX, &experts)) {
        return 0;
    }
    is_name = mpath_workload_is_name(text);
    if (!is_name && !plan_parse_ppm(text, &skew_ppm)) {
        return 0;
    }
    input->workload     = is_name ? text : NULL;
    input->use_moe      = 1;
    input->moe.tokens   = tokens;
    input->moe.topk     = (uint32_t)topk;
    input->moe.experts  = (uint32_t)experts;
    input->moe.skew_ppm = skew_ppm;
    return 1;
}

/* "65536,16" */
static int parse_transpose(const char *text, mpath_transpose_t *transpose)
{
    return parse_field(&text, MPATH_TRANSPOSE_MAX_SIZE, &transpose->size) && transpose->size > 0 &&
           plan_parse_bytes(text, &transpose->element_bytes) && transpose->element_bytes > 0 &&
           transpose->element_bytes <= MPATH_TRANSPOSE_MAX_BYTES;
}

/* Options. */

const char plan_input_help[] =
    "Topology:\n"
    "  --topo FILE             a topology file (doc/topology.md, NCCL's and hwloc's too); of one without ranks\n"
    "                          --nodes such nodes (2; all of a file of several) with a rank on each GPU,\n"
    "                          else beside each NIC, and --access (affine) and --spine as wanted; or\n"
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
    "Demand:\n"
    "  --matrix FILE           bytes, one row per rank, as numbers, with units (31.25M) or as shares of --bytes,\n"
    "                          in lines or [[...]]; or a pattern file of UCC's perftest, its collective --step\n"
    "  --matrix-scale F        each number of the matrix times F: 1024 where it is in KiB; or generated:\n"
    "  --bytes N               bytes that each rank sends, k m g are powers of 1024 (64m)\n"
    "  --hot H                 share of them for one hot rank, 0 to 1; the rest evenly (0)\n"
    "  --hot-rank R            that rank (0)\n"
    "  --zipf S                shares by popularity to the power -S instead\n"
    "  --moe TOKENS,TOPK,EXPERTS,SKEW\n"
    "                          instead: each of a rank's TOKENS goes to TOPK different ones of\n"
    "                          EXPERTS, dealt out over the ranks, with popularity to the power -SKEW, or\n"
    "                          that of the workload SKEW\n"
    "  --workload NAME         instead: popularity of the ranks by name, seed and step: balanced, mild, hot:H,\n"
    "                          moving:H, burst:H, zipf:S, lognormal:SIGMA, or file:PATH:LAYER, a table of loads\n"
    "                          of experts (doc/mpath_plan.md)\n"
    "  --transpose N,BYTES     instead: rows to columns of an N x N matrix with elements of BYTES bytes, whose rows\n"
    "                          the ranks have in blocks\n"
    "  --step N                of the workload, or of a matrix file of several (0)\n"
    "  --token-bytes N         of one token (8k: 4096 values of 2 bytes)\n"
    "  --seed N                of the popularity and the tokens' choices (1)\n";

static int input_number(plan_input_t *input, int option, const char *text)
{
    uint64_t value = 0;

    if (option == 'R' || option == 'H') {
        return plan_parse_rate(text, option == 'R' ? &input->rate_bps : &input->host_memory_bps);
    }
    if (option == 'K' || option == 'z') {
        input->zipf = option == 'z';
        return plan_parse_ppm(text, &input->skew_ppm) && (option == 'z' || input->skew_ppm <= 1000000);
    }
    if (!plan_parse_bytes(text, &value) || (strchr("nlir", option) != NULL && value > INT32_MAX) ||
        (option == 'B' && (value == 0 || value > 1ull << 30))) {
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
    case 'q':
        input->step = value;
        break;
    case 'b':
        input->bytes       = value;
        input->bytes_given = 1;
        break;
    default:
        input->moe.token_bytes = value;
        break;
    }
    return 1;
}

int plan_input_option(plan_input_t *input, int option, const char *text)
{
    switch (option) {
    case 't':
        input->topo_path = text;
        return 1;
    case 'k':
        input->preset = text;
        return 1;
    case 'm':
        input->matrix_path = text;
        return 1;
    case 'V':
        input->emulate.device = text;
        return 1;
    case 'p':
        input->topo_params.fabric |= MPATH_FABRIC_SPINE;
        return 1;
    case 'e':
        input->emulate.mode = (strcmp(text, "copies") == 0) ? MPATH_EMULATED_COPIES : MPATH_EMULATED_RAILS;
        return (strcmp(text, "copies") == 0) || (strcmp(text, "rails") == 0);
    case 'x':
        return plan_parse_ppm(text, &input->emulate.scale_ppm) && (input->emulate.scale_ppm > 0);
    case 'a':
        input->topo_params.access = strcmp(text, "affine") == 0 ? MPATH_REACH_AFFINE : MPATH_REACH_ALL;
        input->access_given       = 1;
        return strcmp(text, "affine") == 0 || strcmp(text, "all") == 0;
    case 'M':
        return plan_parse_moe(text, input);
    case 'G':
        return parse_transpose(text, &input->transpose);
    case 'w':
        input->workload = text;
        return mpath_workload_is_name(text);
    case 'y':
        input->matrix_scale = text;
        return mpath_matrix_is_scale(text);
    default:
        return option != 0 && strchr("nlirsqbBRHKz", option) != NULL ? input_number(input, option, text) : -1;
    }
}

/* An option, and those that it would leave without effect. */
static const struct {
    char option;
    const char *others;
} exclusive[] = {{'t', "kilRH"}, {'k', "ilRaHp"}, {'m', "KrzMsBw"}, {'K', "zMw"},
                 {'z', "rMw"},   {'M', "brw"},    {'w', "rB"},      {'G', "mKrzMsbBwq"}};

static const char *option_name(const struct option *names, int option)
{
    while (names->val != option) {
        names++;
    }
    return names->name;
}

int plan_input_fits(const plan_input_t *input, const char *program, const struct option *names, const char *given)
{
    for (size_t i = 0; i < sizeof(exclusive) / sizeof(exclusive[0]); i++) {
        for (const char *other = exclusive[i].others; given[(int)exclusive[i].option] && (*other != '\0'); other++) {
            if (given[(int)*other]) {
                fprintf(stderr, "%s: --%s and --%s do not go together; see %s --help\n", program,
                        option_name(names, exclusive[i].option), option_name(names, *other), program);
                return 0;
            }
        }
    }
    if (given['V'] && (input->emulate.mode != MPATH_EMULATED_RAILS)) {
        fprintf(stderr, "%s: --device is that of --emulated rails; see %s --help\n", program, program);
        return 0;
    }
    if (given['y'] && !given['m']) {
        fprintf(stderr, "%s: --matrix-scale is that of --matrix; see %s --help\n", program, program);
        return 0;
    }
    if (given['q'] && !given['m'] && input->workload == NULL) {
        fprintf(stderr, "%s: --step is that of --workload or --matrix; see %s --help\n", program, program);
        return 0;
    }
    return 1;
}

/* The same for all nodes, or "up to". */
static void describe_nodes(const mpath_topo_t *topo, char *text, size_t size)
{
    int gpus = 0, nics = 0, nodes = mpath_topo_num_nodes(topo), alike = 1, least = 0;
    uint64_t rate_bps = 0;
    char rate[MPATH_NUMBER_SHOWN];

    for (int node = 0; node < nodes; node++) {
        const mpath_machine_t *machine = mpath_topo_machine(topo, node);
        int of_node = mpath_topo_gpus(topo, node) != NULL ? mpath_topo_gpus(topo, node)->num_gpus : 0;

        alike = alike && (node == 0 || (of_node == gpus && machine->num_nics == nics));
        gpus  = of_node > gpus ? of_node : gpus;
        nics  = machine->num_nics > nics ? machine->num_nics : nics;
        for (int nic = 0; nic < machine->num_nics; nic++) {
            least    = least || (rate_bps != 0 && machine->nics[nic].rate_bps != rate_bps);
            rate_bps = machine->nics[nic].rate_bps > rate_bps ? machine->nics[nic].rate_bps : rate_bps;
        }
    }
    mpath_number_show((double)rate_bps, "B/s", rate);
    if (gpus > 0) {
        snprintf(text, size, "%d rank%s, on each node %s%d GPU%s and %d NIC%s of %s%s", mpath_topo_num_ranks(topo),
                 mpath_topo_num_ranks(topo) == 1 ? "" : "s", alike ? "" : "up to ", gpus, gpus == 1 ? "" : "s", nics,
                 nics == 1 ? "" : "s", least ? "up to " : "", rate);
    } else {
        snprintf(text, size, "%d rank%s, on each node %s%d NIC%s of %s%s", mpath_topo_num_ranks(topo),
                 mpath_topo_num_ranks(topo) == 1 ? "" : "s", alike ? "" : "up to ", nics, nics == 1 ? "" : "s",
                 least ? "up to " : "", rate);
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static void describe_demand(const plan_input_t *input, char *text, size_t size)
{
    if (input->transpose.size > 0) {
        snprintf(text, size, "transpose of a %" PRIu64 " x %" PRIu64 " matrix of %" PRIu64 " bytes an element",
                 input->transpose.size, input->transpose.size, input->transpose.element_bytes);
    } else if (input->matrix_path != NULL) {
        snprintf(text, size, "matrix %s", base_name(input->matrix_path));
    } else if (input->workload != NULL) {
        snprintf(text, size, "workload %s, seed %" PRIu64 ", step %" PRIu64, base_name(input->workload), input->seed,
                 input->step);
    } else if (input->use_moe) {
        snprintf(text, size, "%" PRIu64 " tokens of a rank to %" PRIu32 " of %" PRIu32 " experts, skew %.4g",
                 input->moe.tokens, input->moe.topk, input->moe.experts, input->moe.skew_ppm / 1e6);
    } else if (input->zipf) {
        snprintf(text, size, "Zipf %.4g", input->skew_ppm / 1e6);
    } else if (input->skew_ppm == 0) {
        snprintf(text, size, "every rank evenly to all");
    } else {
        snprintf(text, size, "%.4g of all bytes to rank %d", input->skew_ppm / 1e6, input->hot_rank);
    }
}

void plan_input_describe_machine(const plan_input_t *input, const mpath_topo_t *topo, char *text)
{
    const char *of   = input->preset != NULL ? " of preset " : input->topo_path != NULL ? " of " : "";
    const char *name = input->preset != NULL      ? input->preset
                       : input->topo_path != NULL ? base_name(input->topo_path)
                                                  : "";
    int count        = mpath_topo_num_nodes(topo);
    char nodes[160];

    describe_nodes(topo, nodes, sizeof(nodes));
    snprintf(text, PLAN_INPUT_TEXT, "%d node%s%s%.80s: %s", count, count == 1 ? "" : "s", of, name, nodes);
}

void plan_input_describe_demand(const plan_input_t *input, char *text)
{
    describe_demand(input, text, PLAN_INPUT_TEXT);
}

void plan_input_describe(const plan_input_t *input, const mpath_topo_t *topo, const uint64_t *demand,
                         plan_captions_t *captions)
{
    char matrix[160], total_text[MPATH_NUMBER_SHOWN], most_text[MPATH_NUMBER_SHOWN];
    int ranks    = mpath_topo_num_ranks(topo);
    double total = 0, most = 0;

    for (int source = 0; source < ranks; source++) {
        double sent = 0;

        for (int destination = 0; destination < ranks; destination++) {
            sent += (double)demand[(size_t)source * (size_t)ranks + (size_t)destination];
        }
        total += sent;
        most = sent > most ? sent : most;
    }
    describe_demand(input, matrix, sizeof(matrix));
    mpath_number_show(total, "B", total_text);
    mpath_number_show(most, "B", most_text);
    plan_input_describe_machine(input, topo, captions->machine);
    snprintf(captions->matrix, sizeof(captions->matrix), "%s: %s in all, up to %s from one rank", matrix, total_text,
             most_text);
}

/* What they describe. */

static void fill_machine(const plan_input_t *input, int node, mpath_machine_t *machine)
{
    int nic;

    memset(machine, 0, sizeof(*machine));
    snprintf(machine->host, sizeof(machine->host), "node%d", node);
    machine->num_nics        = input->num_nics;
    machine->num_numa        = 1;
    machine->host_memory_bps = input->host_memory_bps;
    if (machine->host_memory_bps == 0) {
        machine->host_memory_bps = 4 * input->rate_bps * (uint64_t)input->num_nics;
        if (machine->host_memory_bps > (uint64_t)MPATH_MAX_RATE_BPS) {
            machine->host_memory_bps = (uint64_t)MPATH_MAX_RATE_BPS;
        }
    }
    for (nic = 0; nic < input->num_nics; nic++) {
        snprintf(machine->nics[nic].name, sizeof(machine->nics[nic].name), "rail%d", nic);
        machine->nics[nic].rate_bps = input->rate_bps;
        machine->nics[nic].rail     = (int16_t)nic;
        machine->nics[nic].up       = 1;
    }
}

static mpath_status_t uniform_topo(const plan_input_t *input, mpath_topo_t **topo_p)
{
    int num_ranks = input->num_nodes * input->ranks_per_node, i;
    mpath_machine_t *machines;
    mpath_place_t *places;
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    machines = calloc((size_t)input->num_nodes, sizeof(*machines));
    places   = calloc((size_t)num_ranks, sizeof(*places));
    if (machines != NULL && places != NULL) {
        for (i = 0; i < input->num_nodes; i++) {
            fill_machine(input, i, &machines[i]);
        }
        for (i = 0; i < num_ranks; i++) {
            places[i].node = i / input->ranks_per_node;
            places[i].nic  = i % input->ranks_per_node % input->num_nics;
            places[i].gpu  = -1;
        }
        status = mpath_topo_create(machines, input->num_nodes, places, num_ranks, &input->topo_params, topo_p);
    } else {
        mpath_error("plan: no memory for %d ranks", num_ranks);
    }
    free(machines);
    free(places);
    return status;
}

/* A file without ranks describes machines: the options say how many there are and how they are connected. */
static mpath_status_t fill_file(const plan_input_t *input, mpath_topo_file_t *file)
{
    mpath_status_t status;

    if ((file->num_ranks > 0) && !input->nodes_given && !input->access_given && (input->topo_params.fabric == 0)) {
        return MPATH_OK;
    }
    if (file->num_ranks > 0) {
        mpath_error("topology file %s: it places ranks on its nodes and says how they are connected, so --nodes, "
                    "--access and --spine do not go with it",
                    input->topo_path);
        return MPATH_ERR_PARAM;
    }
    if (input->nodes_given && (input->num_nodes < 1 || input->num_nodes > MAX_NODES)) {
        mpath_error("plan: %d nodes of topology file %s must be 1 to %d", input->num_nodes, input->topo_path,
                    MAX_NODES);
        return MPATH_ERR_PARAM;
    }
    status = mpath_topo_file_populate(input->topo_path, file, input->nodes_given ? input->num_nodes : 0);
    if (input->access_given) {
        file->params.access = input->topo_params.access;
    }
    file->params.fabric |= input->topo_params.fabric;
    if ((status == MPATH_OK) && (file->num_ranks > MAX_RANKS)) {
        mpath_error("plan: %d nodes of topology file %s have %d ranks: all ranks together must be 1 to %d",
                    file->num_nodes, input->topo_path, file->num_ranks, MAX_RANKS);
        status = MPATH_ERR_PARAM;
    }
    return status;
}

static mpath_status_t file_topo(const plan_input_t *input, mpath_topo_t **topo_p)
{
    mpath_topo_file_t file;
    mpath_status_t status;

    mpath_log_set_level(MPATH_LOG_INFO); /* how the file is taken */
    status = mpath_topo_file_load(input->topo_path, &file);
    mpath_log_set_level(MPATH_LOG_WARN);
    if (status != MPATH_OK) {
        return status;
    }
    status = fill_file(input, &file);
    if (status == MPATH_OK) {
        status = mpath_topo_file_build(&file, topo_p);
    }
    mpath_topo_file_release(&file);
    return status;
}

static mpath_status_t preset_topo(const plan_input_t *input, mpath_topo_t **topo_p)
{
    mpath_status_t status;
    mpath_topo_t *topo;

    if (input->num_nodes < 1) {
        mpath_error("plan: %d nodes of preset '%s': at least one is needed", input->num_nodes, input->preset);
        return MPATH_ERR_PARAM;
    }
    status = mpath_topo_preset(input->preset, input->nodes_given ? input->num_nodes : 0, &topo);
    if (status != MPATH_OK) {
        return status;
    }
    if (mpath_topo_num_ranks(topo) > MAX_RANKS) {
        mpath_error("plan: %d nodes of preset '%s' have %d ranks: all ranks together must be 1 to %d", input->num_nodes,
                    input->preset, mpath_topo_num_ranks(topo), MAX_RANKS);
        mpath_topo_destroy(topo);
        return MPATH_ERR_PARAM;
    }
    *topo_p = topo;
    return MPATH_OK;
}

static mpath_status_t make_real_topo(const plan_input_t *input, mpath_topo_t **topo_p)
{
    if (input->topo_path != NULL) {
        return file_topo(input, topo_p);
    }
    if (input->preset != NULL) {
        return preset_topo(input, topo_p);
    }
    if (input->num_nodes < 1 || input->num_nodes > MAX_NODES || input->ranks_per_node < 1 ||
        input->ranks_per_node > MAX_RANKS / input->num_nodes || input->num_nics < 1 ||
        input->num_nics > MPATH_MAX_NICS) {
        mpath_error(
            "plan: %d nodes of %d ranks and %d NICs: nodes must be 1 to %d, all ranks together 1 to %d, NICs 1 to %d",
            input->num_nodes, input->ranks_per_node, input->num_nics, MAX_NODES, MAX_RANKS, MPATH_MAX_NICS);
        return MPATH_ERR_PARAM;
    }
    if (input->rate_bps < 1 || input->rate_bps > (uint64_t)MPATH_MAX_RATE_BPS) {
        mpath_error("plan: the rate of a NIC, %llu, must be 1 to %lld bytes/s", (unsigned long long)input->rate_bps,
                    MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    return uniform_topo(input, topo_p);
}

mpath_status_t plan_input_make_topo(const plan_input_t *input, mpath_topo_t **topo_p)
{
    mpath_topo_t *topo;
    mpath_status_t status = make_real_topo(input, &topo);

    if ((status != MPATH_OK) || ((input->emulate.mode == MPATH_EMULATED_NO) && (input->emulate.scale_ppm == 1000000))) {
        *topo_p = (status == MPATH_OK) ? topo : *topo_p;
        return status;
    }
    status = plan_emulate(&input->emulate, topo, topo_p);
    mpath_topo_destroy(topo);
    return status;
}

static mpath_status_t file_demand(const plan_input_t *input, int num_ranks, uint64_t **demand_p)
{
    const mpath_matrix_format_t format = {
        .share_bytes = input->bytes, .scale = input->matrix_scale, .step = input->step};
    const char *path = input->matrix_path;
    mpath_status_t status;
    uint64_t *demand;
    int rows, has_shares;

    status = mpath_matrix_load(path, &format, &rows, &has_shares, &demand);
    if (status != MPATH_OK) {
        return status;
    }
    if (rows != num_ranks) {
        mpath_error("matrix %s: %d rows for %d ranks; the matrix is not used", path, rows, num_ranks);
        free(demand);
        return MPATH_ERR_PARAM;
    }
    if (input->bytes_given && !has_shares) {
        mpath_error("matrix %s: it has bytes, not shares, so --bytes does not go with it; the matrix is not used",
                    path);
        free(demand);
        return MPATH_ERR_PARAM;
    }
    *demand_p = demand;
    return MPATH_OK;
}

mpath_status_t plan_input_moe(const plan_input_t *input, const mpath_workload_t *workload, mpath_moe_t *moe,
                              uint64_t **weights_p)
{
    mpath_status_t status = MPATH_OK;

    *moe       = input->moe;
    moe->seed  = input->seed;
    *weights_p = NULL;
    if (workload != NULL) {
        *weights_p = malloc(moe->experts * sizeof(**weights_p) + 1);
        if (*weights_p == NULL) {
            mpath_error("plan: no memory for %u experts", moe->experts);
            return MPATH_ERR_NO_MEMORY;
        }
        status       = mpath_workload_popularity(workload, moe->experts, input->seed, input->step, *weights_p);
        moe->weights = *weights_p;
    }
    return status;
}

static mpath_status_t moe_demand(const plan_input_t *input, int num_ranks, const mpath_workload_t *workload,
                                 uint64_t *demand)
{
    mpath_moe_t moe;
    uint64_t *weights;
    mpath_status_t status = plan_input_moe(input, workload, &moe, &weights);

    if (status == MPATH_OK) {
        status = mpath_demand_moe(num_ranks, &moe, demand);
    }
    free(weights);
    return status;
}

static mpath_status_t workload_demand(const plan_input_t *input, int num_ranks, uint64_t *demand)
{
    mpath_workload_t workload;
    mpath_status_t status = mpath_workload_open(input->workload, &workload);

    if (status != MPATH_OK) {
        return status;
    }
    status = input->use_moe
                 ? moe_demand(input, num_ranks, &workload, demand)
                 : mpath_workload_demand(&workload, num_ranks, input->seed, input->step, input->bytes, 1, demand);
    mpath_workload_close(&workload);
    return status;
}

static mpath_status_t make_demand(const plan_input_t *input, int num_ranks, uint64_t **demand_p)
{
    mpath_status_t status = MPATH_OK;
    uint64_t *demand;

    if (input->matrix_path != NULL) {
        return file_demand(input, num_ranks, demand_p);
    }
    if (input->hot_rank < 0 || input->hot_rank >= num_ranks) {
        mpath_error("plan: hot rank %d must be 0 to %d", input->hot_rank, num_ranks - 1);
        return MPATH_ERR_PARAM;
    }
    demand = malloc((size_t)num_ranks * (size_t)num_ranks * sizeof(*demand));
    if (demand == NULL) {
        mpath_error("plan: no memory for the demand of %d ranks", num_ranks);
        return MPATH_ERR_NO_MEMORY;
    }
    if (input->transpose.size > 0) {
        mpath_demand_transpose(num_ranks, &input->transpose, demand);
    } else if (input->workload != NULL) {
        status = workload_demand(input, num_ranks, demand);
    } else if (input->use_moe) {
        status = moe_demand(input, num_ranks, NULL, demand);
    } else if (input->zipf) {
        mpath_demand_zipf(num_ranks, input->skew_ppm, input->seed, input->bytes, 1, demand);
    } else {
        mpath_demand_hot(num_ranks, input->hot_rank, input->skew_ppm, input->bytes, 1, demand);
    }
    if (status != MPATH_OK) {
        free(demand);
        return status;
    }
    *demand_p = demand;
    return MPATH_OK;
}

mpath_status_t plan_input_make(const plan_input_t *input, mpath_topo_t **topo_p, uint64_t **demand_p)
{
    mpath_status_t status;
    mpath_topo_t *topo;

    status = plan_input_make_topo(input, &topo);
    if (status != MPATH_OK) {
        return status;
    }
    status = make_demand(input, mpath_topo_num_ranks(topo), demand_p);
    if (status != MPATH_OK) {
        mpath_topo_destroy(topo);
        return status;
    }
    *topo_p = topo;
    return MPATH_OK;
}
