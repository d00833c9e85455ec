/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_info: why a call takes an algorithm. */
#include "tools/info/why.h"

#include "coll/parts.h"
#include "coll/reduction.h"
#include "coll/tuning.h"
#include "plan/demand.h"
#include "plan/pairs.h"
#include "tools/info/gpus.h"
#include "topo/discover/machine.h"
#include "topo/file/xml.h"
#include "util/log.h"
#include "util/number.h"
#include "util/spelling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An Alltoallv whose plan is asked for. */
typedef struct why_call {
    const uint64_t *demand;
    const mpath_settings_t *settings;
    mpath_time_params_t time;
    mpath_plan_t *plan;
    mpath_gate_forecast_t forecast;
} why_call_t;

static mpath_status_t why_plan(mpath_question_t *question)
{
    why_call_t *call = question->planner;
    mpath_plan_params_t params;
    mpath_status_t status;

    mpath_plan_params_init(&params);
    params.min_fragment_bytes = call->settings->min_fragment_bytes;
    status                    = mpath_plan_create(question->topo, call->demand, &params, &call->plan);
    if (status == MPATH_ERR_UNREACHABLE || status == MPATH_ERR_UNSUPPORTED || status == MPATH_ERR_PARAM) {
        question->obstacle = "the topology cannot carry the data";
        return MPATH_OK;
    }
    if (status == MPATH_OK) {
        status = mpath_gate_forecast(question->topo, call->demand, &params, &call->time, call->plan, &call->forecast);
    }
    if (status == MPATH_OK) {
        question->forecast = &call->forecast;
    }
    if (status == MPATH_OK && question->memory == MPATH_ON_DEVICE && mpath_relay_coll_are_mates(question->topo) &&
        call->forecast.direct == NULL) {
        question->obstacle = MPATH_RELAY_MATES_KNOW_MORE;
    }
    return status;
}

static void show_row(const mpath_algorithm_t *row, const mpath_verdict_t *verdict, const mpath_decision_t *decision)
{
    int taken                       = decision->algorithm == row;
    const char *why                 = taken                        ? decision->because
                                      : verdict->unable != NULL    ? verdict->unable
                                      : verdict->pointless != NULL ? verdict->pointless
                                                                   : "";
    char number[MPATH_NUMBER_SHOWN] = "-";

    if (verdict->unable == NULL && verdict->ns != MPATH_ALGORITHM_UNPREDICTED && verdict->ns > 0) {
        mpath_number_show((double)verdict->ns / 1e9, "s", number);
    }
    printf("  %s %-10s %-12s %s%s%s\n", taken ? "*" : " ", row->name, number,
           taken && mpath_algorithm_is_previous(row) ? "taken, mpath steps aside: "
           : taken                                   ? "taken: "
           : verdict->unable != NULL                 ? "not able: "
           : verdict->pointless != NULL              ? "no gain: "
                                                     : "",
           why, why[0] == '\0' ? row->what : "");
}

static mpath_status_t show(mpath_question_t *question, const mpath_settings_t *settings)
{
    const mpath_algorithm_t *rows = mpath_algorithms(question->collective);
    char bytes[MPATH_NUMBER_SHOWN];
    mpath_decision_t decision;
    mpath_tuning_t tuning;
    mpath_status_t status;

    mpath_tuning_read(settings, 1, &tuning);
    mpath_tuning_force(&tuning, question);
    status = mpath_choose(question, &decision);
    if (status != MPATH_OK) {
        return status;
    }
    mpath_number_format((int64_t)question->bytes, MPATH_NUMBER_BYTES, bytes, sizeof(bytes));
    printf("%s of %s bytes%s, %d ranks on %d nodes, %s memory\n", mpath_collective_name(question->collective), bytes,
           question->collective == MPATH_OPERATION_ALLTOALLV ? " at the busiest rank" : " in all",
           mpath_topo_num_ranks(question->topo), mpath_topo_num_nodes(question->topo),
           question->memory == MPATH_ON_HOST ? "host" : "device");
    printf("    %-10s %s\n", "algorithm", "predicted");
    for (size_t i = 0; rows[i].name != NULL; i++) {
        if ((rows[i].memories & question->memory) != 0) {
            show_row(&rows[i], &decision.verdicts[i], &decision);
        }
    }
    return MPATH_OK;
}

/* The same on the GPUs of the ranks, as far as nobody has to look at their memory. */
static void question_on_device(mpath_question_t *question, const mpath_peer_rates_t *rates)
{
    const mpath_topo_t *topo = question->topo;
    int nodes                = mpath_topo_num_nodes(topo);

    question->memory        = MPATH_ON_DEVICE;
    question->obstacle      = !mpath_relay_helps(topo) ? "the GPUs reach each other all alike" : NULL;
    question->node_obstacle = nodes == 1 ? NULL : "the GPUs are of several nodes";
    question->copy_obstacle = nodes == 1 ? "on one node the previous function works on copies, too" : NULL;
    question->rates         = rates;
    question->forecast      = NULL;
    question->by_pairs      = 0;
}

/* As jobs do, whose topology for host memory has no GPUs. */
static int is_by_pairs(const mpath_topo_t *topo)
{
    mpath_pairs_t *pairs;

    if (mpath_topo_num_ranks(topo) <= MPATH_PARTS_WHOLE_RANKS || mpath_topo_num_nodes(topo) == 1) {
        return 0;
    }
    if (mpath_topo_rails_alike(topo)) {
        return 1;
    }
    if (mpath_pairs_create(topo, 1, &pairs) != MPATH_OK) {
        return 0;
    }
    mpath_pairs_destroy(pairs);
    return 1;
}

static mpath_status_t why_alltoallv(const mpath_settings_t *settings, const mpath_topo_t *topo, const uint64_t *demand)
{
    why_call_t on_host = {.demand = demand, .settings = settings}, on_device = on_host;
    size_t ranks   = (size_t)mpath_topo_num_ranks(topo);
    uint64_t *sums = malloc(MPATH_LOAD_SUMS * ranks * sizeof(*sums));
    mpath_peer_rates_t rates;
    mpath_question_t question;
    mpath_gate_view_t view;
    mpath_status_t status;
    mpath_load_t load;

    if (sums == NULL) {
        mpath_error("no memory for %zu ranks", ranks);
        return MPATH_ERR_NO_MEMORY;
    }
    mpath_load_find(topo, demand, sums, &load);
    mpath_gate_look(topo, demand, &view);
    mpath_time_params_init(&on_host.time);
    on_host.time.chunk_bytes = settings->chunk_bytes;
    question                 = (mpath_question_t){.collective    = MPATH_OPERATION_ALLTOALLV,
                                                  .memory        = MPATH_ON_HOST,
                                                  .settings      = settings,
                                                  .topo          = topo,
                                                  .bytes         = load.busiest,
                                                  .largest_bytes = view.largest_bytes,
                                                  .between_bytes = view.between_bytes,
                                                  .by_pairs      = is_by_pairs(topo),
                                                  .plan          = why_plan,
                                                  .planner       = &on_host};
    status                   = show(&question, settings);
    if (status == MPATH_OK && mpath_topo_place(topo, 0)->gpu >= 0) {
        mpath_relay_coll_time_params(&on_device.time);
        mpath_peer_rates_init(&rates);
        question_on_device(&question, &rates);
        question.planner = &on_device;
        status           = show(&question, settings);
    }
    mpath_gate_forecast_release(&on_host.forecast);
    mpath_gate_forecast_release(&on_device.forecast);
    mpath_plan_destroy(on_host.plan);
    mpath_plan_destroy(on_device.plan);
    free(sums);
    return status;
}

static mpath_status_t why_reduction(const mpath_settings_t *settings, const mpath_topo_t *topo,
                                    mpath_operation_t collective, uint64_t bytes)
{
    uint64_t ranks = (uint64_t)mpath_topo_num_ranks(topo);
    mpath_peer_rates_t rates;
    mpath_question_t question;
    mpath_status_t status;
    mpath_share_t *share;

    status = mpath_share_create_for(topo, settings, &share);
    if (status != MPATH_OK) {
        return status;
    }
    question = (mpath_question_t){
        .collective    = collective,
        .memory        = MPATH_ON_HOST,
        .settings      = settings,
        .topo          = topo,
        .bytes         = bytes,
        .largest_bytes = collective == MPATH_OPERATION_ALLREDUCE ? bytes : bytes / ranks + (bytes % ranks != 0),
        .obstacle      = mpath_share_obstacle(share),
        .flags         = mpath_reduction_flags(collective),
        .share         = share};
    status = show(&question, settings);
    if (status == MPATH_OK && mpath_topo_place(topo, 0)->gpu >= 0) {
        mpath_peer_rates_init(&rates);
        question.memory = MPATH_ON_DEVICE;
        question.rates  = &rates;
        status          = show(&question, settings);
    }
    mpath_share_destroy(share);
    return status;
}

/* So many nodes like this one, as mpath_plan takes a file of one machine. */
static mpath_status_t here(const mpath_settings_t *settings, const plan_input_t *input, mpath_topo_t **topo_p,
                           uint64_t **demand_p)
{
    mpath_topo_file_t file   = {.num_nodes = 1};
    mpath_node_gpus_t *gpus  = calloc(1, sizeof(*gpus));
    mpath_machine_t *machine = calloc(1, sizeof(*machine));
    mpath_status_t status    = MPATH_ERR_NO_MEMORY;
    size_t ranks;

    if (machine == NULL || gpus == NULL) {
        mpath_error("no memory for this machine's description");
        free(machine);
        free(gpus);
        return status;
    }
    file.machines = machine;
    file.gpus     = gpus;
    file.params   = input->topo_params;
    status        = mpath_machine_discover(settings->rails, settings->rail_rates, machine);
    if (status == MPATH_OK) {
        status = info_find_gpus(machine, gpus);
    }
    if (status == MPATH_OK) {
        status = mpath_topo_file_populate("this machine", &file, input->nodes_given ? input->num_nodes : 0);
    }
    if (status == MPATH_OK) {
        status = mpath_topo_file_build(&file, topo_p);
    }
    mpath_topo_file_release(&file);
    if (status != MPATH_OK) {
        return status;
    }
    ranks     = (size_t)mpath_topo_num_ranks(*topo_p);
    *demand_p = malloc(ranks * ranks * sizeof(**demand_p));
    if (*demand_p == NULL) {
        mpath_error("no memory for the demand of %zu ranks", ranks);
        mpath_topo_destroy(*topo_p);
        return MPATH_ERR_NO_MEMORY;
    }
    mpath_demand_hot((int)ranks, input->hot_rank, input->skew_ppm, input->bytes, 1, *demand_p);
    return MPATH_OK;
}

mpath_status_t info_why(const mpath_settings_t *settings, const char *collective, const plan_input_t *input)
{
    static const char *const names[] = {"alltoallv", "allreduce", "reduce_scatter", "allgather", NULL};
    mpath_operation_t operation      = mpath_collective_find(collective, strlen(collective));
    const char *nearest              = mpath_spelling_nearest(collective, names);
    mpath_status_t status;
    mpath_topo_t *topo;
    uint64_t *demand;

    if (operation == 0) {
        mpath_error("'%s' is no collective of mpath%s%s%s; there are alltoallv, allreduce, reduce_scatter, allgather",
                    collective, nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
                    nearest != NULL ? "'?" : "");
        return MPATH_ERR_PARAM;
    }
    status = input->topo_path != NULL || input->preset != NULL ? plan_input_make(input, &topo, &demand)
                                                               : here(settings, input, &topo, &demand);
    if (status != MPATH_OK) {
        return status;
    }
    status = operation == MPATH_OPERATION_ALLTOALLV ? why_alltoallv(settings, topo, demand)
                                                    : why_reduction(settings, topo, operation, input->bytes);
    free(demand);
    mpath_topo_destroy(topo);
    return status;
}
