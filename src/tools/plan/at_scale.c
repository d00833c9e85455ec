/* SPDX-License-Identifier: BSD-3-Clause */
/* Thousands of ranks on paper, node by node. */
#include "tools/plan/at_scale.h"

#include "plan/pairs.h"
#include "tools/plan/rivals.h"
#include "util/log.h"
#include "util/number.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1e9
#define DIRECT_NODES 4 /* leaders of so few tell each other in one round */

void at_scale_costs_init(double factor, at_scale_costs_t *costs)
{
    *costs = (at_scale_costs_t){.agree_ns         = 1500 * factor,
                                .agree_rank_ns    = 12 * factor,
                                .round_ns         = 500 * factor,
                                .plan_flow_ns     = 65 * factor,
                                .schedule_flow_ns = 125 * factor,
                                .message_ns       = 800 * factor};
}

void at_scale_params_init(at_scale_params_t *params)
{
    mpath_plan_params_t plan;

    mpath_plan_params_init(&plan);
    memset(params, 0, sizeof(*params));
    mpath_time_params_init(&params->time);
    at_scale_costs_init(1, &params->costs);
    params->min_fragment_bytes = plan.min_fragment_bytes;
    params->with_rivals        = 1;
    params->fast_ranks         = 1024;
}

const char *at_scale_way_name(int way)
{
    static const char *const names[AT_SCALE_WAYS] = {"static", "mpath-first", "mpath-again", "sabre", "fast"};

    return names[way];
}

/* What flows put on resources and ranks. */
typedef struct traffic {
    uint64_t *loads;    /* by resource */
    uint64_t *messages; /* by rank, sent and received */
    uint64_t *flows;    /* by rank: in its part of the plan, those that it passes on, too */
    uint64_t fill_ns;   /* the longest that a first chunk takes */
} traffic_t;

typedef struct work {
    const mpath_topo_t *topo;
    const plan_rows_t *rows;
    const at_scale_params_t *params;
    mpath_pairs_t *pairs;
    int num_ranks, num_nodes, num_local;
    uint64_t *sends, *none;       /* rows of a node's ranks, and as many of zeros */
    uint64_t *node_out, *node_in; /* by node */
    uint64_t *nic_out, *nic_in;   /* [node * rails + rail], on static routes */
    traffic_t traffic[2];         /* static routes, the plan */
    mpath_pairs_load_t load;
    double bytes, crossing;
} work_t;

static mpath_status_t work_no_memory(const work_t *work)
{
    mpath_error("plan: no memory for an exchange of %d ranks", work->num_ranks);
    return MPATH_ERR_NO_MEMORY;
}

static int node_of(const work_t *work, int rank)
{
    return mpath_topo_place(work->topo, rank)->node;
}

/* Ranks lie by node, as many on each. */
static int work_is_regular(const work_t *work)
{
    for (int rank = 0; rank < work->num_ranks; rank++) {
        if (node_of(work, rank) != rank / work->num_local) {
            return 0;
        }
    }
    return work->num_ranks == work->num_local * work->num_nodes;
}

static mpath_status_t work_init(work_t *work, const mpath_topo_t *topo, const plan_rows_t *rows,
                                const at_scale_params_t *params)
{
    size_t ranks = (size_t)mpath_topo_num_ranks(topo), nodes = (size_t)mpath_topo_num_nodes(topo), rails, local;
    size_t resources = (size_t)mpath_topo_num_resources(topo);
    mpath_status_t status;
    int good = 1;

    *work  = (work_t){.topo      = topo,
                      .rows      = rows,
                      .params    = params,
                      .num_ranks = (int)ranks,
                      .num_nodes = (int)nodes,
                      .num_local = (int)(ranks / nodes)};
    status = mpath_pairs_create(topo, params->min_fragment_bytes, &work->pairs);
    if (status == MPATH_DECLINED ||
        (status == MPATH_OK && (!mpath_pairs_is_alike(work->pairs) || !work_is_regular(work)))) {
        mpath_error(
            "plan: %zu ranks on %zu nodes: plans are made by pairs of nodes here, which is for ranks in the order of "
            "their nodes, as many on each, and nodes with the same rails and no NVLink between them, all of whose GPUs reach all "
            "rails and have one NIC beside them",
            ranks, nodes);
        return MPATH_ERR_UNSUPPORTED;
    }
    if (status != MPATH_OK) {
        return work_no_memory(work);
    }
    rails          = (size_t)mpath_pairs_num_rails(work->pairs);
    local          = (size_t)work->num_local;
    work->sends    = malloc(local * ranks * sizeof(*work->sends));
    work->none     = calloc(local * ranks, sizeof(*work->none));
    work->node_out = calloc(nodes, sizeof(*work->node_out));
    work->node_in  = calloc(nodes, sizeof(*work->node_in));
    work->nic_out  = calloc(nodes * rails, sizeof(*work->nic_out));
    work->nic_in   = calloc(nodes * rails, sizeof(*work->nic_in));
    for (int i = 0; i < 2; i++) {
        traffic_t *traffic = &work->traffic[i];

        traffic->loads    = calloc(resources + 1, sizeof(*traffic->loads));
        traffic->messages = calloc(ranks, sizeof(*traffic->messages));
        traffic->flows    = calloc(ranks, sizeof(*traffic->flows));
        good              = good && traffic->loads != NULL && traffic->messages != NULL && traffic->flows != NULL;
    }
    good = good && work->sends != NULL && work->none != NULL && work->node_out != NULL && work->node_in != NULL &&
           work->nic_out != NULL && work->nic_in != NULL;
    return good ? MPATH_OK : work_no_memory(work);
}

static void work_release(work_t *work)
{
    mpath_pairs_destroy(work->pairs);
    free(work->sends);
    free(work->none);
    free(work->node_out);
    free(work->node_in);
    free(work->nic_out);
    free(work->nic_in);
    for (int i = 0; i < 2; i++) {
        free(work->traffic[i].loads);
        free(work->traffic[i].messages);
        free(work->traffic[i].flows);
    }
}

static void traffic_add(const work_t *work, int source, int destination, int index, uint64_t bytes, traffic_t *traffic)
{
    const mpath_time_params_t *time = &work->params->time;
    uint64_t chunk, chunks, fill;
    mpath_path_t path;

    mpath_topo_path(work->topo, source, destination, index, &path);
    chunk            = mpath_time_chunk_bytes(work->topo, &path, bytes, time);
    chunks           = (bytes + chunk - 1) / chunk;
    fill             = mpath_time_fill_ns(work->topo, &path, bytes, time);
    traffic->fill_ns = fill > traffic->fill_ns ? fill : traffic->fill_ns;
    for (int i = 0; i < path.num_resources; i++) {
        traffic->loads[path.resources[i]] += bytes;
    }
    for (int hop = 0; hop < path.num_hops; hop++) {
        traffic->messages[path.hops[hop].from] += chunks;
        traffic->messages[path.hops[hop].to] += chunks;
        traffic->flows[path.hops[hop].to]++;
    }
    traffic->flows[source]++;
}

/* Sums of the matrix as an agreement makes them, and the static routes. What stays inside of a node does so in the plan, too. */
static void work_survey_pair(work_t *work, int source, int destination, uint64_t bytes)
{
    size_t from = (size_t)node_of(work, source), to = (size_t)node_of(work, destination);
    size_t rails = (size_t)mpath_pairs_num_rails(work->pairs), out, in;

    work->bytes += (double)bytes;
    work->load.largest_bytes = bytes > work->load.largest_bytes ? bytes : work->load.largest_bytes;
    traffic_add(work, source, destination, 0, bytes, &work->traffic[0]);
    if (from == to) {
        traffic_add(work, source, destination, 0, bytes, &work->traffic[1]);
        return;
    }
    out = (size_t)mpath_pairs_static_rail(work->pairs, source, destination);
    in  = (size_t)mpath_pairs_static_rail_in(work->pairs, source, destination);
    work->crossing += (double)bytes;
    work->node_out[from] += bytes;
    work->node_in[to] += bytes;
    work->nic_out[from * rails + out] += bytes;
    work->nic_in[to * rails + in] += bytes;
}

static uint64_t largest(const uint64_t *values, size_t count)
{
    uint64_t most = 0;

    for (size_t i = 0; i < count; i++) {
        most = values[i] > most ? values[i] : most;
    }
    return most;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static mpath_status_t work_survey(work_t *work, rival_phases_t *phases)
{
    size_t nodes = (size_t)work->num_nodes, nics = nodes * (size_t)mpath_pairs_num_rails(work->pairs);
    mpath_status_t status = MPATH_OK;

    for (int node = 0; node < work->num_nodes && status == MPATH_OK; node++) {
        int first           = node * work->num_local;
        const uint64_t *row = work->sends;

        plan_rows_sends(work->rows, first, work->num_local, work->sends);
        for (int source = first; source < first + work->num_local; source++) {
            for (int destination = 0; destination < work->num_ranks; destination++, row++) {
                if (*row > 0 && source != destination) {
                    work_survey_pair(work, source, destination, *row);
                }
            }
        }
        status = phases != NULL ? rival_phases_add(phases, node, work->sends) : MPATH_OK;
    }
    work->load.node_bytes   = larger(largest(work->node_out, nodes), largest(work->node_in, nodes));
    work->load.static_bytes = larger(largest(work->nic_out, nics), largest(work->nic_in, nics));
    return status;
}

/* What the rank sends to other nodes. */
static mpath_status_t work_plan_rank(work_t *work, int rank)
{
    const mpath_pairs_rows_t rows = {.sends = work->sends, .receives = work->none};
    const mpath_flow_t *flows;
    mpath_plan_t *part;
    size_t count;
    mpath_status_t status = mpath_pairs_plan(work->pairs, rank, &rows, &work->load, &part);

    if (status != MPATH_OK) {
        return work_no_memory(work);
    }
    flows = mpath_plan_flows(part, &count);
    for (size_t i = 0; i < count; i++) {
        if (flows[i].source == rank && node_of(work, rank) != node_of(work, flows[i].destination)) {
            traffic_add(work, flows[i].source, flows[i].destination, flows[i].path, flows[i].bytes, &work->traffic[1]);
        }
    }
    mpath_plan_destroy(part);
    return MPATH_OK;
}

/* Both ends of a flow have the same: what all send is all that there is. */
static mpath_status_t work_plan(work_t *work)
{
    mpath_status_t status = MPATH_OK;

    for (int node = 0; node < work->num_nodes && status == MPATH_OK; node++) {
        int first = node * work->num_local;

        plan_rows_sends(work->rows, first, work->num_local, work->sends);
        for (int rank = first; rank < first + work->num_local && status == MPATH_OK; rank++) {
            status = work_plan_rank(work, rank);
        }
    }
    return status;
}

static double z_of(const work_t *work, const uint64_t *loads)
{
    double z = 0;

    for (int r = 0; r < mpath_topo_num_resources(work->topo); r++) {
        double seconds = (double)loads[r] / (double)mpath_topo_resource(work->topo, r).capacity_bps;

        z = seconds > z ? seconds : z;
    }
    return z;
}

/* A message between leaders: both NICs, and the hop. */
static double message_latency_ns(const work_t *work)
{
    uint64_t ns = work->params->time.hop_ns;

    for (int tx = 0; tx < 2; tx++) {
        int r = mpath_topo_resource_find(work->topo, tx ? MPATH_RESOURCE_NIC_TX : MPATH_RESOURCE_NIC_RX, 0, 0);

        ns += r < 0 ? 0 : mpath_topo_resource(work->topo, r).latency_ns;
    }
    return (double)ns;
}

static double agreement_ns(const work_t *work)
{
    const at_scale_costs_t *costs = &work->params->costs;
    int rounds                    = 0;

    while (work->num_nodes > DIRECT_NODES && 1 << rounds < work->num_nodes) {
        rounds++;
    }
    rounds = work->num_nodes > 1 && rounds == 0 ? 1 : rounds;
    return costs->agree_ns + costs->agree_rank_ns * work->num_ranks +
           rounds * (costs->round_ns + (costs->agree_ns > 0 ? message_latency_ns(work) : 0));
}

static void way_set(const work_t *work, const traffic_t *traffic, int agrees, int is_new, at_scale_way_t *way)
{
    const at_scale_costs_t *costs = &work->params->costs;
    double flows                  = (double)largest(traffic->flows, (size_t)work->num_ranks);

    way->z             = z_of(work, traffic->loads);
    way->network       = way->z + (double)traffic->fill_ns / NS_PER_S;
    way->most_messages = largest(traffic->messages, (size_t)work->num_ranks);
    way->messages      = (double)way->most_messages * costs->message_ns / NS_PER_S;
    way->agree         = agrees ? agreement_ns(work) / NS_PER_S : 0;
    way->plan          = is_new ? flows * costs->plan_flow_ns / NS_PER_S : 0;
    way->schedule      = is_new ? flows * costs->schedule_flow_ns / NS_PER_S : 0;
    way->total = way->agree + way->plan + way->schedule + (way->network > way->messages ? way->network : way->messages);
}

static void way_set_rival(double seconds, at_scale_way_t *way)
{
    *way = (at_scale_way_t){.z = seconds, .network = seconds, .total = seconds};
}

/* In steps, which needs the matrix. */
static mpath_status_t work_run_fast(const work_t *work, at_scale_result_t *result)
{
    size_t ranks          = (size_t)work->num_ranks;
    uint64_t *demand      = malloc(ranks * ranks * sizeof(*demand));
    rival_result_t fast   = {0};
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    if (demand == NULL) {
        return work_no_memory(work);
    }
    for (int rank = 0; rank < work->num_ranks; rank += work->num_local) {
        plan_rows_sends(work->rows, rank, work->num_local, demand + (size_t)rank * ranks);
    }
    status = rival_run(RIVAL_FAST, work->topo, demand, &work->params->time, &fast);
    free(demand);
    if (status == MPATH_OK) {
        way_set_rival(fast.seconds, &result->ways[AT_SCALE_FAST]);
        result->fast_steps    = fast.steps;
        result->fast_is_least = 0;
        mpath_plan_destroy(fast.plan);
    }
    return status;
}

static mpath_status_t work_run(work_t *work, rival_phases_t *phases, at_scale_result_t *result)
{
    const traffic_t *planned = &work->traffic[1];
    mpath_status_t status    = work_survey(work, phases);

    if (status != MPATH_OK) {
        return status;
    }
    result->bound    = (double)mpath_pairs_bound_ns(work->pairs, &work->load) / NS_PER_S;
    result->moves    = mpath_pairs_moves(work->pairs, &work->load);
    result->bytes    = work->bytes;
    result->crossing = work->crossing;
    if (result->moves) {
        status = work_plan(work);
    } else {
        planned = &work->traffic[0];
    }
    if (status != MPATH_OK) {
        return status;
    }
    way_set(work, &work->traffic[0], 0, 0, &result->ways[AT_SCALE_STATIC]);
    way_set(work, planned, 1, 1, &result->ways[AT_SCALE_FIRST]);
    way_set(work, planned, 1, 0, &result->ways[AT_SCALE_AGAIN]);
    if (phases != NULL) {
        double sabre, fast;

        rival_phases_seconds(phases, &sabre, &fast);
        way_set_rival(sabre, &result->ways[AT_SCALE_SABRE]);
        way_set_rival(fast, &result->ways[AT_SCALE_FAST]);
        result->fast_is_least = 1;
        if (work->num_ranks <= work->params->fast_ranks) {
            status = work_run_fast(work, result);
        }
    }
    if (status == MPATH_OK) {
        result->loads[0] = work->traffic[0].loads;
        result->loads[1] = work->traffic[result->moves].loads;
        if (!result->moves) {
            memcpy(work->traffic[1].loads, work->traffic[0].loads,
                   (size_t)mpath_topo_num_resources(work->topo) * sizeof(*result->loads[0]));
            result->loads[1] = work->traffic[1].loads;
        }
        work->traffic[0].loads = work->traffic[1].loads = NULL;
    }
    return status;
}

mpath_status_t at_scale_run(const mpath_topo_t *topo, const plan_rows_t *rows, const at_scale_params_t *params,
                            at_scale_result_t *result)
{
    rival_phases_t *phases = NULL;
    mpath_status_t status;
    work_t work;

    memset(result, 0, sizeof(*result));
    status = work_init(&work, topo, rows, params);
    if (status == MPATH_OK && params->with_rivals) {
        status = rival_phases_create(topo, &params->time, &phases);
    }
    if (status == MPATH_OK) {
        status = work_run(&work, phases, result);
    }
    rival_phases_destroy(phases);
    work_release(&work);
    return status;
}

void at_scale_release(at_scale_result_t *result)
{
    free(result->loads[0]);
    free(result->loads[1]);
    result->loads[0] = result->loads[1] = NULL;
}

/* --- reports ----------------------------------------------------------------------------------------------------- */

static const char *shown(double seconds, char *text)
{
    mpath_number_show(seconds, "s", text);
    return text;
}

static void print_result(const at_scale_result_t *result, FILE *out)
{
    char text[8][MPATH_NUMBER_SHOWN];

    mpath_number_show(result->bytes, "B", text[0]);
    mpath_number_show(result->crossing, "B", text[1]);
    fprintf(out, "bytes           %s, %s between nodes\nlower bound     %s\n", text[0], text[1],
            shown(result->bound, text[2]));
    fprintf(out, "%-14s %12s %12s %10s %10s %10s %10s %12s %8s\n", "", "Z", "network", "agree", "plan", "schedule",
            "messages", "total", "/ bound");
    for (int i = 0; i < AT_SCALE_WAYS; i++) {
        const at_scale_way_t *way = &result->ways[i];

        if (way->total > 0) {
            fprintf(out, "%-14s %12s %12s %10s %10s %10s %10s %12s %8.2f%s\n", at_scale_way_name(i),
                    shown(way->z, text[0]), shown(way->network, text[1]), shown(way->agree, text[2]),
                    shown(way->plan, text[3]), shown(way->schedule, text[4]), shown(way->messages, text[5]),
                    shown(way->total, text[6]), result->bound > 0 ? way->total / result->bound : 0,
                    i == AT_SCALE_FAST && result->fast_is_least ? " at least" : "");
        }
    }
}

void at_scale_text(const at_scale_report_t *report, FILE *out)
{
    fprintf(out, "machine         %s\ndemand          %s\n", report->machine, report->demand);
    for (int i = 0; i < report->count; i++) {
        if (report->labels != NULL) {
            fprintf(out, "\n%s\n", report->labels[i]);
        }
        print_result(&report->results[i], out);
    }
    if (report->count < 2) {
        return;
    }
    fprintf(out, "\ntogether\n");
    for (int i = 0; i < AT_SCALE_WAYS; i++) {
        double total = 0, bound = 0;
        char text[MPATH_NUMBER_SHOWN];

        for (int k = 0; k < report->count; k++) {
            total += report->results[k].ways[i].total;
            bound += report->results[k].bound;
        }
        if (total > 0) {
            fprintf(out, "%-14s %12s %8.2f\n", at_scale_way_name(i), shown(total, text), bound > 0 ? total / bound : 0);
        }
    }
}

static json_t *json_result(const at_scale_result_t *result, const char *label)
{
    json_t *ways = json_object();
    json_t *all  = json_pack("{s:f, s:f, s:f, s:b}", "bound_s", result->bound, "bytes", result->bytes, "crossing_bytes",
                             result->crossing, "moves", result->moves);

    if (label != NULL) {
        json_object_set_new(all, "exchange", json_string(label));
    }
    for (int i = 0; i < AT_SCALE_WAYS; i++) {
        const at_scale_way_t *way = &result->ways[i];
        json_t *object;

        if (way->total <= 0) {
            continue;
        }
        object = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "z_s", way->z, "network_s", way->network,
                           "agree_s", way->agree, "plan_s", way->plan, "schedule_s", way->schedule, "messages_s",
                           way->messages, "total_s", way->total, "messages", (json_int_t)way->most_messages);
        if (i == AT_SCALE_FAST) {
            json_object_set_new(object, "at_least", json_boolean(result->fast_is_least));
            json_object_set_new(object, "steps", json_integer((json_int_t)result->fast_steps));
        }
        json_object_set_new(ways, at_scale_way_name(i), object);
    }
    json_object_set_new(all, "ways", ways);
    return all;
}

mpath_status_t at_scale_json(const at_scale_report_t *report, FILE *out)
{
    json_t *list = json_array(), *all;
    int good;

    for (int i = 0; i < report->count; i++) {
        json_array_append_new(list,
                              json_result(&report->results[i], report->labels != NULL ? report->labels[i] : NULL));
    }
    all  = json_pack("{s:s, s:s, s:o}", "machine", report->machine, "demand", report->demand, "exchanges", list);
    good = all != NULL && json_dumpf(all, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
    json_decref(all);
    fprintf(out, "\n");
    if (!good) {
        mpath_error("plan: no memory for the JSON of an exchange");
        return MPATH_ERR_NO_MEMORY;
    }
    return MPATH_OK;
}
