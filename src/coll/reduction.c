/* SPDX-License-Identifier: BSD-3-Clause */
/* What the symmetric collectives have in common: life, gate, agreement, the order of combination. */
#include "coll/reduction_private.h"

#include "device/gpu.h"
#include "node/reduce_predict.h"
#include "team/wait.h"
#include "util/log.h"
#include "util/time.h"
#include "wire/failover.h"
#include "wire/links.h"
#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>

static mpath_status_t symmetric_resume(mpath_symmetric_t *symmetric, mpath_share_job_t *job, uint64_t *bytes_p);

#define SCRATCH_ALIGN 64u

/* By node, then rank: the order in which elements are combined. */
static void order_ranks(mpath_symmetric_t *symmetric)
{
    const mpath_topo_t *topo = mpath_team_topo(symmetric->team);
    int next                 = 0;

    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        for (int rank = 0; rank < symmetric->size; rank++) {
            if (mpath_topo_place(topo, rank)->node == node) {
                symmetric->order[next++] = rank;
            }
        }
    }
}

mpath_status_t mpath_symmetric_create(mpath_team_t *team, mpath_coll_t *coll, mpath_symmetric_t **symmetric_p)
{
    mpath_symmetric_t *symmetric = calloc(1, sizeof(*symmetric));
    size_t size                  = (size_t)mpath_team_size(team);
    mpath_status_t status        = MPATH_ERR_NO_MEMORY;

    if (symmetric == NULL) {
        goto err_no_memory;
    }
    symmetric->team             = team;
    symmetric->coll             = coll;
    symmetric->settings         = mpath_team_settings(team);
    symmetric->size             = mpath_team_size(team);
    symmetric->rank             = mpath_team_rank(team);
    symmetric->declined_because = "";
    mpath_tuning_read(symmetric->settings, symmetric->rank == 0, &symmetric->tuning);
    symmetric->send_bytes = calloc(5 * size, sizeof(uint64_t));
    symmetric->order      = calloc(size, sizeof(int));
    if ((symmetric->send_bytes == NULL) || (symmetric->order == NULL)) {
        goto err_no_memory;
    }
    symmetric->send_offsets = symmetric->send_bytes + size;
    symmetric->recv_bytes   = symmetric->send_offsets + size;
    symmetric->recv_offsets = symmetric->recv_bytes + size;
    symmetric->elements     = symmetric->recv_offsets + size;
    order_ranks(symmetric);
    status = mpath_share_create(team, &symmetric->share);
    if ((status == MPATH_OK) && symmetric->settings->deterministic) {
        status = mpath_share_create_whole(team, &symmetric->judge);
    }
    if (status != MPATH_OK) {
        mpath_symmetric_destroy(symmetric);
        return status;
    }
    symmetric->topo_version = mpath_team_topo_version(team);
    *symmetric_p            = symmetric;
    return MPATH_OK;

err_no_memory:
    mpath_error("no memory for the collectives of a communicator of %zu ranks", size);
    mpath_symmetric_destroy(symmetric);
    return status;
}

void mpath_symmetric_destroy(mpath_symmetric_t *symmetric)
{
    if (symmetric != NULL) {
        mpath_symmetric_gpu_destroy(symmetric->gpu);
        mpath_trials_forget(&symmetric->gathers);
        mpath_symmetric_adapt_forget(symmetric);
        mpath_share_destroy(symmetric->judge);
        mpath_share_destroy(symmetric->share);
        for (size_t i = 0; i < sizeof(symmetric->doubts) / sizeof(symmetric->doubts[0]); i++) {
            mpath_doubt_release(&symmetric->doubts[i]);
        }
        free(symmetric->scratch);
        free(symmetric->order);
        free(symmetric->send_bytes);
        free(symmetric);
    }
}

void mpath_symmetric_counters(const mpath_symmetric_t *symmetric, mpath_coll_counters_t *counters)
{
    mpath_coll_counters_t node;

    *counters = symmetric->counters;
    if (symmetric->gpu != NULL) {
        mpath_symmetric_gpu_counters(symmetric->gpu, &node);
        counters->calls += node.calls;
        counters->agree_ns += node.agree_ns;
        counters->move_ns += node.move_ns;
        counters->gpu.calls += node.gpu.calls;
        counters->gpu.kernel_bytes += node.gpu.kernel_bytes;
        counters->gpu.engine_bytes += node.gpu.engine_bytes;
        counters->gpu.staged_bytes += node.gpu.staged_bytes;
        counters->gpu.imports += node.gpu.imports;
        counters->gpu.eager += node.gpu.eager;
    }
}

const char *mpath_symmetric_declined_because(const mpath_symmetric_t *symmetric)
{
    return symmetric->declined_because;
}

/* Notes why. MPATH_DECLINED. */
static mpath_status_t decline(mpath_symmetric_t *symmetric, const char *because)
{
    symmetric->declined_because = because;
    symmetric->counters.declined++;
    return MPATH_DECLINED;
}

/* Room for `bytes` bytes, 64-byte aligned; kept for the next call. NULL when there is no memory. */
static char *symmetric_scratch(mpath_symmetric_t *symmetric, uint64_t bytes)
{
    bytes = (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    if (bytes > symmetric->scratch_bytes) {
        free(symmetric->scratch);
        symmetric->scratch       = aligned_alloc(SCRATCH_ALIGN, bytes);
        symmetric->scratch_bytes = (symmetric->scratch != NULL) ? bytes : 0;
    }
    return symmetric->scratch;
}

/* coll/reduction.c: the engine for the team's present topology. */
/*
 * A rail was left out of the topology, or is used again: the engine starts anew with those that there are now, and so
 * does what was learned, which is kept by the rails' numbers in the engine. All ranks come here in the same call.
 */
static mpath_status_t symmetric_read_topo(mpath_symmetric_t *symmetric)
{
    mpath_share_t *share;
    mpath_status_t status = mpath_share_create(symmetric->team, &share);

    if (status != MPATH_OK) {
        mpath_team_break(symmetric->team, status); /* the others go on, and would wait */
        return status;
    }
    mpath_share_destroy(symmetric->share);
    symmetric->share        = share;
    symmetric->topo_version = mpath_team_topo_version(symmetric->team);
    mpath_symmetric_adapt_forget(symmetric);
    return MPATH_OK;
}

/* Whose predictions decide: with `deterministic` those of the rails at the start, whatever has become of them. */
static const mpath_share_t *judge_of(const mpath_symmetric_t *symmetric)
{
    return (symmetric->judge != NULL) ? symmetric->judge : symmetric->share;
}

/* -- what the rows of the tables have in common, see coll/algorithm.h -- */

static const char *inline_able(const mpath_question_t *question)
{
    int fits = question->agreed ? question->finished : question->largest_bytes <= question->settings->small_bytes;

    return fits ? NULL : MPATH_WHY_VECTOR_NOT_SHORT;
}

static int is_on_one_node_of_gpus(const mpath_question_t *question)
{
    return question->memory == MPATH_ON_DEVICE && mpath_topo_num_nodes(question->topo) == 1;
}

static const char *pipeline_able(const mpath_question_t *question)
{
    return is_on_one_node_of_gpus(question) ? MPATH_WHY_NODE_OF_GPUS : question->obstacle;
}

static const char *node_able(const mpath_question_t *question)
{
    return is_on_one_node_of_gpus(question) ? question->node_obstacle : "the GPUs are of several nodes";
}

static const char *copied_able(const mpath_question_t *question)
{
    return question->copy_obstacle;
}

static const char *previous_able(const mpath_question_t *question)
{
    (void)question;
    return NULL;
}

static uint64_t pipeline_ns(const mpath_question_t *question)
{
    return question->memory == MPATH_ON_DEVICE
               ? mpath_share_predict_gpus_ns(question->share, question->flags, question->bytes)
               : mpath_share_predict_ns(question->share, question->flags, question->bytes);
}

/* On device memory it goes through the host, whole on every rank. */
static uint64_t previous_ns(const mpath_question_t *question)
{
    if (is_on_one_node_of_gpus(question)) {
        return MPATH_ALGORITHM_UNPREDICTED;
    }
    return question->memory == MPATH_ON_DEVICE
               ? mpath_share_previous_gpus_ns(question->share, question->flags, question->bytes)
               : mpath_share_previous_ns(question->share, question->flags, question->bytes);
}

/*
 * Between nodes a call gains by more rails than one; in one node there is no rail to gain. On GPUs of several nodes even
 * one rail may be a gain.
 */
static const char *why_pointless(const mpath_question_t *question)
{
    if (question->memory == MPATH_ON_HOST) {
        if (mpath_topo_num_nodes(question->topo) == 1) {
            return MPATH_WHY_ONE_NODE;
        }
        if (mpath_share_num_rails(question->share) < 2) {
            return MPATH_WHY_ONE_RAIL;
        }
        if (mpath_share_num_lanes(question->share) < 2) {
            return MPATH_WHY_SLOW_RAILS;
        }
    }
    if (question->bytes < question->settings->symmetric_min_bytes) {
        return MPATH_WHY_LESS;
    }
    return pipeline_ns(question) > previous_ns(question) ? MPATH_WHY_PREDICTED : NULL;
}

/* Short calls gain where the nodes' rails would carry longer ones. */
static void inline_cost(const mpath_question_t *question, mpath_verdict_t *verdict)
{
    verdict->pointless = question->agreed ? NULL : why_pointless(question);
    verdict->ns        = 0; /* the agreement is there anyway */
}

static void pipeline_cost(const mpath_question_t *question, mpath_verdict_t *verdict)
{
    verdict->pointless = why_pointless(question);
    verdict->ns        = pipeline_ns(question);
}

static void previous_cost(const mpath_question_t *question, mpath_verdict_t *verdict)
{
    verdict->ns = previous_ns(question);
}

/* The fastest algorithm of an Allreduce where the rates of the GPUs are known before they are asked. */
static void node_cost(const mpath_question_t *question, mpath_verdict_t *verdict)
{
    unsigned ranks = (unsigned)mpath_topo_num_ranks(question->topo), algorithms;

    verdict->ns = MPATH_ALGORITHM_UNPREDICTED;
    if (question->rates != NULL && question->collective == MPATH_OPERATION_ALLREDUCE) {
        algorithms  = mpath_reduce_in_ring(ranks, question->bytes)
                          ? MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_RING)
                          : MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_WHOLE) | MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_PARTS);
        verdict->ns = mpath_reduce_predict_ns(question->rates,
                                              mpath_reduce_fastest(question->rates, algorithms, ranks, question->bytes),
                                              ranks, question->bytes);
    }
}

/* What follows takes no longer than the previous function, which works on copies, too. */
static void copied_cost(const mpath_question_t *question, mpath_verdict_t *verdict)
{
    verdict->ns = question->settings->gate == MPATH_GATE_ALWAYS ? MPATH_ALGORITHM_UNPREDICTED : previous_ns(question);
}

/* Who asks makes the copies, and asks about these. */
static mpath_status_t copied_run(void *call)
{
    (void)call;
    return MPATH_DECLINED;
}

/* Whether mpath is done with the call on the memory where it is. */
static int leaves_memory(const mpath_algorithm_t *algorithm)
{
    return mpath_algorithm_is_previous(algorithm) || algorithm->run == copied_run;
}

int mpath_reduction_is_for_nodes(const mpath_algorithm_t *algorithm)
{
    return algorithm->able == inline_able || algorithm->able == pipeline_able;
}

#define ON_BOTH (MPATH_ON_HOST | MPATH_ON_DEVICE)

#define REDUCTION_ROWS(_inline_run, _node_run, _pipeline_run)                                                          \
    {                                                                                                                  \
        {"inline", "short vectors inside the agreement", MPATH_ON_HOST, 0, inline_able, inline_cost, _inline_run},     \
            {"node", "kernels and engines of a node's GPUs", MPATH_ON_DEVICE, 0, node_able, node_cost, _node_run},     \
            {"pipeline", "segments, over all rails at once", ON_BOTH, 0, pipeline_able, pipeline_cost, _pipeline_run}, \
            {"copied",  "copies in host memory, and what carries these", MPATH_ON_DEVICE, 0, copied_able, copied_cost, \
             copied_run},                                                                                              \
            {"previous", "the function that mpath replaces", ON_BOTH, 0, previous_able, previous_cost, NULL},          \
        {                                                                                                              \
            .name = NULL                                                                                               \
        }                                                                                                              \
    }

unsigned mpath_reduction_flags(mpath_operation_t operation)
{
    return operation == MPATH_OPERATION_ALLREDUCE        ? MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER
           : operation == MPATH_OPERATION_REDUCE_SCATTER ? MPATH_SHARE_REDUCE
                                                         : MPATH_SHARE_GATHER;
}

int mpath_symmetric_never_gains(const mpath_symmetric_t *symmetric)
{
    return symmetric->settings->gate == MPATH_GATE_AUTO &&
           mpath_topo_num_nodes(mpath_team_topo(symmetric->team)) == 1 &&
           mpath_team_status(symmetric->team) == MPATH_OK;
}

/* The same for a large call, maybe for rails that have failed: the next one shall find those that are back. */
static mpath_status_t decline_for_rails(mpath_symmetric_t *symmetric, const char *because)
{
    mpath_status_t status = mpath_failover_recover(symmetric->team);

    if (status != MPATH_OK) {
        mpath_team_break(symmetric->team, status);
        return status;
    }
    return decline(symmetric, because);
}

/* The question about the call under way, as it is where the data is in this memory. */
static void ask_on(const mpath_symmetric_t *symmetric, uint32_t memory, mpath_question_t *question)
{
    *question        = symmetric->question;
    question->memory = memory;
    mpath_tuning_force(&symmetric->tuning, question);
}

/* Rails have no part in why. */
static int is_forced_aside(const mpath_question_t *question)
{
    return question->settings->gate == MPATH_GATE_NEVER ||
           (question->forced != NULL && question->forced->able != pipeline_able);
}

/*
 * What calls before have shown of one that the pipeline would carry, without asking the others: the previous function is
 * faster. Not where data may be on GPUs, of which the agreement tells.
 */
static int passes(mpath_symmetric_t *symmetric, mpath_operation_t operation, const mpath_question_t *question)
{
    return question->settings->gate == MPATH_GATE_AUTO && question->forced == NULL &&
           !question->settings->deterministic && question->obstacle == NULL &&
           question->largest_bytes > question->settings->small_bytes &&
           mpath_team_status(symmetric->team) == MPATH_OK &&
           mpath_doubt_passes(&symmetric->doubts[mpath_symmetric_index(operation)], symmetric->team, question->bytes,
                              0);
}

mpath_status_t mpath_symmetric_gate(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes,
                                    uint64_t largest, int gpus)
{
    mpath_record_t *record = mpath_team_record(symmetric->team);
    mpath_question_t host, device;
    mpath_decision_t on_host, on_device;
    mpath_status_t status;

    symmetric->declined_because = "";
    symmetric->host_because     = NULL;
    symmetric->bytes            = bytes;
    if (record != NULL) {
        record->call.bytes = operation == MPATH_OPERATION_ALLGATHER ? symmetric->send_bytes[symmetric->rank] : bytes;
    }
    if (symmetric->topo_version != mpath_team_topo_version(symmetric->team)) {
        status = symmetric_read_topo(symmetric);
        if (status != MPATH_OK) {
            return status;
        }
    }
    symmetric->question = (mpath_question_t){.collective    = operation,
                                             .settings      = symmetric->settings,
                                             .topo          = mpath_team_topo(symmetric->team),
                                             .bytes         = bytes,
                                             .largest_bytes = largest,
                                             .obstacle      = mpath_share_obstacle(symmetric->share),
                                             .node_obstacle = "no GPUs are set up for it",
                                             .flags         = mpath_reduction_flags(operation),
                                             .share         = judge_of(symmetric)};
    ask_on(symmetric, MPATH_ON_HOST, &host);
    (void)mpath_choose(&host, &on_host); /* without a plan it never fails */
    if (!mpath_algorithm_is_previous(on_host.algorithm)) {
        return !gpus && passes(symmetric, operation, &host) ? decline(symmetric, MPATH_WHY_FASTER) : MPATH_OK;
    }
    if (gpus) {
        ask_on(symmetric, MPATH_ON_DEVICE, &device);
        (void)mpath_choose(&device, &on_device);
        if (!leaves_memory(on_device.algorithm)) {
            symmetric->host_because = on_host.because;
            return MPATH_OK;
        }
    }
    return is_forced_aside(&host) || bytes < symmetric->settings->symmetric_min_bytes
               ? decline(symmetric, on_host.because)
               : decline_for_rails(symmetric, on_host.because);
}

/* Where the data of all ranks is: `flags` is what they have agreed on. NULL: the call goes on. */
static const char *settle_memory(mpath_symmetric_t *symmetric, mpath_share_job_t *job, uint32_t flags)
{
    if ((job->gpus != NULL) && (flags & MPATH_CALL_DEVICE)) {
        return (flags & MPATH_CALL_APART) ? MPATH_WHY_NOT_SHARED : NULL;
    }
    job->gpus = NULL;
    return symmetric->host_because;
}

/*
 * What calls before have shown of one on host memory for which parameters force nothing: the previous function is faster,
 * or that is tried. Not with `deterministic`: that function combines in another order. Collective now and then.
 */
static mpath_status_t ask_tuner(mpath_symmetric_t *symmetric, mpath_doubt_t *doubt, uint64_t start_ns,
                                mpath_question_t *question)
{
    const mpath_settings_t *settings = symmetric->settings;
    const mpath_doubt_call_t call    = {.bytes  = symmetric->bytes,
                                        .adapts = mpath_symmetric_adapts(symmetric, symmetric->bytes)};
    mpath_status_t status;
    int previous;

    if (settings->gate != MPATH_GATE_AUTO || question->forced != NULL || settings->deterministic ||
        question->finished || question->memory != MPATH_ON_HOST || question->obstacle != NULL) {
        return MPATH_OK;
    }
    status          = mpath_doubt_next(doubt, symmetric->team, symmetric->agreed_flags, &call, start_ns, &previous);
    question->tuner = status == MPATH_OK && previous ? MPATH_WHY_FASTER : NULL;
    return status;
}

void mpath_symmetric_ended(mpath_symmetric_t *symmetric)
{
    mpath_trials_ended(&symmetric->gathers);
    for (size_t i = 0; i < sizeof(symmetric->doubts) / sizeof(symmetric->doubts[0]); i++) {
        mpath_doubt_ended(&symmetric->doubts[i]);
    }
}

/* What was decided, and what was predicted for it and for the previous function. */
static void symmetric_record_choice(const mpath_symmetric_t *symmetric, const mpath_question_t *question,
                                    const mpath_decision_t *decision)
{
    mpath_record_t *record        = mpath_team_record(symmetric->team);
    const mpath_algorithm_t *rows = mpath_algorithms(question->collective), *previous = rows;
    const mpath_verdict_t *verdicts = decision->verdicts;

    if (record == NULL) {
        return;
    }
    while (!mpath_algorithm_is_previous(previous)) {
        previous++;
    }
    record->call.memory    = question->memory == MPATH_ON_DEVICE ? MPATH_RECORD_DEVICE : MPATH_RECORD_HOST;
    record->call.algorithm = mpath_record_algorithm_find(decision->algorithm->name);
    if (verdicts[decision->algorithm - rows].ns != MPATH_ALGORITHM_UNPREDICTED &&
        verdicts[previous - rows].ns != MPATH_ALGORITHM_UNPREDICTED) {
        record->call.static_ns = verdicts[previous - rows].ns;
        record->call.mpath_ns  = verdicts[decision->algorithm - rows].ns;
    }
}

/*
 * The agreement over what the arrays of `symmetric` say, and about device memory if the job has `gpus`: set to NULL
 * when all have their data on the host. MPATH_OK: all ranks go on with *algorithm_p, and job->call is set.
 * `combination` NULL: nothing is combined.
 */
static mpath_status_t symmetric_agree(mpath_symmetric_t *symmetric, mpath_operation_t operation,
                                      const mpath_combination_t *combination, const void *send, void *recv,
                                      int ineligible, mpath_share_job_t *job, const mpath_algorithm_t **algorithm_p)
{
    mpath_call_t call      = {.operation    = (uint32_t)operation,
                              .flags        = ineligible ? MPATH_CALL_INELIGIBLE : 0,
                              .send_bytes   = symmetric->send_bytes,
                              .send_offsets = symmetric->send_offsets,
                              .send_buffer  = send,
                              .recv_bytes   = symmetric->recv_bytes,
                              .recv_offsets = symmetric->recv_offsets,
                              .recv_buffer  = recv};
    mpath_record_t *record = mpath_team_record(symmetric->team);
    mpath_doubt_t *doubt   = &symmetric->doubts[mpath_symmetric_index(operation)];
    uint64_t start_ns      = mpath_time_ns(), agreed_ns;
    mpath_question_t question;
    mpath_decision_t decision;
    mpath_agreed_t agreed;
    const char *because;
    mpath_status_t status;

    if (combination != NULL) {
        call.operation |= combination->alike << 8;
        call.operation_text = combination->alike_text;
    }
    call.flags |= mpath_doubt_call_flags(doubt) | mpath_symmetric_adapt_call_flags(symmetric) |
                  mpath_share_call_flags(symmetric->share);
    call.flags |= mpath_gpu_was_found() ? MPATH_CALL_GPUS : 0;
    if (job->gpus != NULL) {
        call.flags |= mpath_share_gpus_call_flags(symmetric->share, job);
    }
    mpath_record_agree(record, operation, mpath_team_call(symmetric->team) + 1, start_ns);
    mpath_record_is_long(record, symmetric->bytes);
    status    = mpath_agree(symmetric->team, &call, &agreed);
    agreed_ns = mpath_time_ns();
    mpath_record_phase(record, operation, MPATH_RECORD_PLAN, agreed_ns);
    symmetric->counters.agree_ns += agreed_ns - start_ns;
    if (status != MPATH_OK) {
        return status;
    }
    job->call               = agreed.call;
    symmetric->agreed_flags = agreed.flags;
    if (agreed.flags & MPATH_CALL_INELIGIBLE) {
        return decline(symmetric, MPATH_WHY_NOT_CARRIED);
    }
    because = settle_memory(symmetric, job, agreed.flags);
    if (because != NULL) {
        return decline(symmetric, because);
    }
    ask_on(symmetric, job->gpus != NULL ? MPATH_ON_DEVICE : MPATH_ON_HOST, &question);
    question.agreed   = 1;
    question.finished = agreed.finished;
    status            = ask_tuner(symmetric, doubt, start_ns, &question);
    if (status != MPATH_OK) {
        return status;
    }
    (void)mpath_choose(&question, &decision);
    *algorithm_p = decision.algorithm;
    symmetric_record_choice(symmetric, &question, &decision);
    return leaves_memory(decision.algorithm) ? decline(symmetric, decision.because) : MPATH_OK;
}

/*
 * Of GPUs of one node, whose agreement is a part of the row that carries the call: whether that is "node". Where not, it is
 * a case for copies.
 */
static mpath_status_t choose_on_node(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes,
                                     const mpath_algorithm_t **algorithm_p)
{
    mpath_question_t question = {.collective = operation,
                                 .memory     = MPATH_ON_DEVICE,
                                 .settings   = symmetric->settings,
                                 .topo       = mpath_team_topo(symmetric->team),
                                 .bytes      = bytes,
                                 .agreed     = 1};
    mpath_record_t *record    = mpath_team_record(symmetric->team);
    mpath_decision_t decision;

    mpath_tuning_force(&symmetric->tuning, &question);
    (void)mpath_choose(&question, &decision); /* without a plan it never fails */
    *algorithm_p                = decision.algorithm;
    symmetric->declined_because = decision.because;
    if (record != NULL) {
        record->call.memory    = MPATH_RECORD_DEVICE;
        record->call.algorithm = mpath_record_algorithm_find(decision.algorithm->name);
        record->call.bytes     = bytes;
    }
    return leaves_memory(decision.algorithm) ? MPATH_DECLINED : MPATH_OK;
}

mpath_status_t mpath_symmetric_ask_gathers(mpath_symmetric_t *symmetric, uint64_t bytes, int *previous_p)
{
    const mpath_function_call_t call = {.bytes = bytes, .open = 1u << MPATH_FUNCTION_PREVIOUS};
    mpath_function_t function        = MPATH_FUNCTION_OWN;
    mpath_question_t question;
    mpath_decision_t decision;
    mpath_status_t status;

    *previous_p = 0;
    if (!symmetric->tries_gathers || symmetric->settings->gate != MPATH_GATE_AUTO ||
        mpath_tuning_has(&symmetric->tuning, MPATH_OPERATION_ALLGATHER, MPATH_ON_DEVICE) ||
        mpath_idle_others_may_rest() || mpath_team_topo_version(symmetric->team) != 0) {
        return MPATH_OK;
    }
    status = mpath_function_next(&symmetric->gathers, symmetric->team, &call, mpath_time_ns(), &function);
    if (status != MPATH_OK) {
        mpath_team_break(symmetric->team, status);
    }
    if (function != MPATH_FUNCTION_PREVIOUS) {
        return status;
    }
    question = (mpath_question_t){.collective = MPATH_OPERATION_ALLGATHER,
                                  .memory     = MPATH_ON_DEVICE,
                                  .settings   = symmetric->settings,
                                  .topo       = mpath_team_topo(symmetric->team),
                                  .bytes      = bytes,
                                  .agreed     = 1,
                                  .obstacle   = mpath_share_obstacle(symmetric->share),
                                  .tuner      = MPATH_WHY_FASTER,
                                  .flags      = MPATH_SHARE_GATHER,
                                  .share      = judge_of(symmetric)};
    (void)mpath_choose(&question, &decision);
    *previous_p = mpath_algorithm_is_previous(decision.algorithm);
    return MPATH_OK;
}

/* A call on which the ranks have agreed has ended so. */
static mpath_status_t symmetric_end(mpath_symmetric_t *symmetric, mpath_status_t status)
{
    mpath_share_leave(symmetric->share, status);
    symmetric->counters.calls += status == MPATH_OK ? 1 : 0;
    return status;
}

/* Combines the vectors of all ranks, which lie at multiples of `stride` from `data`; returns where the result is. */
static char *symmetric_combine(const mpath_symmetric_t *symmetric, char *data, uint64_t stride, uint64_t elements,
                               const mpath_combination_t *combination)
{
    const mpath_topo_t *topo = mpath_team_topo(symmetric->team);
    const int *order         = symmetric->order;
    char *whole = data + (uint64_t)order[0] * stride, *sum = whole;

    for (int i = 1; i < symmetric->size; i++) {
        char *next = data + (uint64_t)order[i] * stride;

        if (mpath_topo_place(topo, order[i])->node == mpath_topo_place(topo, order[i - 1])->node) {
            combination->reduce(combination->argument, next, sum, elements);
            continue;
        }
        if (sum != whole) {
            combination->reduce(combination->argument, sum, whole, elements);
        }
        sum = next;
    }
    if (sum != whole) {
        combination->reduce(combination->argument, sum, whole, elements);
    }
    return whole;
}

/*
 * A run of the engine, at whose end the ranks settle if the job does. MPATH_AGAIN, on all ranks: rails have failed and are
 * left out.
 */
static mpath_status_t symmetric_run(mpath_symmetric_t *symmetric, const mpath_share_job_t *job,
                                    mpath_share_stats_t *stats)
{
    mpath_status_t status = mpath_share_run(symmetric->share, job, stats);
    mpath_failover_loss_t loss;

    if (job->settles && ((status == MPATH_OK) || (status == MPATH_AGAIN) ||
                         ((status == MPATH_ERR_UNREACHABLE) && (mpath_team_status(symmetric->team) == MPATH_OK)))) {
        mpath_share_loss(symmetric->share, &loss);
        status = mpath_failover_settle(symmetric->team, status, &loss);
    }
    if (mpath_status_is_error(status)) {
        mpath_share_abandon(symmetric->share, status);
    }
    return status;
}

/* One attempt. MPATH_AGAIN, on all ranks: rails have failed and are left out. */
static mpath_status_t share_once(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes,
                                 mpath_share_job_t *job, mpath_share_stats_t *stats)
{
    mpath_share_t *share  = symmetric->share;
    mpath_status_t status = mpath_symmetric_adapt_before(symmetric, operation, bytes);

    if (status != MPATH_OK) {
        return status;
    }
    if (job->gpus != NULL) {
        status = mpath_share_gpus_open(share, job, symmetric->agreed_flags);
        if (status != MPATH_OK) {
            return status;
        }
    }
    if (!job->settles) { /* the rest of one that does, does, however short it is */
        job->settles = mpath_team_settles(symmetric->team, mpath_share_predict_ns(share, job->flags, bytes));
    }
    status = symmetric_run(symmetric, job, stats);
    if (status == MPATH_OK) {
        status = mpath_symmetric_adapt_after(symmetric, operation, job->flags, bytes);
    }
    return ((status == MPATH_OK) && !job->settles) ? mpath_failover_recover(symmetric->team) : status;
}

/*
 * The engine for the rails that there are: those that do not open are known once they were tried. MPATH_DECLINED where
 * they are too few for the call; where none can be opened the engine says so.
 */
static mpath_status_t open_rails(mpath_symmetric_t *symmetric, const mpath_share_job_t *job)
{
    mpath_status_t status = MPATH_DECLINED;
    mpath_links_t *links;

    if (mpath_topo_num_nodes(mpath_team_topo(symmetric->team)) > 1) {
        status = mpath_links_get(symmetric->team, job->in_steps ? MPATH_LINKS_MET : MPATH_LINKS_ALL, &links);
    }
    if ((status == MPATH_OK) && (symmetric->topo_version != mpath_team_topo_version(symmetric->team))) {
        status = symmetric_read_topo(symmetric);
        return ((status == MPATH_OK) && (mpath_share_obstacle(symmetric->share) != NULL)) ? MPATH_DECLINED : status;
    }
    return (status == MPATH_DECLINED) ? MPATH_OK : status;
}

/* Runs the engine on a vector of `bytes` in total, again where rails fail, counts, and learns. Changes the job. */
static mpath_status_t symmetric_share(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes,
                                      mpath_share_job_t *job)
{
    mpath_record_t *record    = mpath_team_record(symmetric->team);
    uint64_t start_ns         = mpath_time_ns(), took_ns;
    mpath_share_stats_t stats = {0};
    const char *because       = MPATH_WHY_NO_SETUP;
    mpath_status_t status;

    mpath_record_phase(record, operation, MPATH_RECORD_MOVE, start_ns);
    job->in_steps = mpath_share_in_steps(symmetric->share, job->flags, bytes);
    status        = open_rails(symmetric, job);
    if (status == MPATH_DECLINED) {
        return decline(symmetric, mpath_share_obstacle(symmetric->share));
    }
    if ((status == MPATH_OK) && (symmetric->agreed_flags & MPATH_CALL_BUSY)) {
        status  = mpath_share_arena_add(symmetric->share);
        because = status == MPATH_OK ? because : MPATH_WHY_IN_USE;
        symmetric->agreed_flags |= MPATH_CALL_MOVED; /* GPUs do not know what is new */
    }
    if (status == MPATH_OK) {
        status = share_once(symmetric, operation, bytes, job, &stats);
    }
    if (job->gpus == NULL) {
        mpath_doubt_took(&symmetric->doubts[mpath_symmetric_index(operation)], mpath_time_ns() - start_ns,
                         mpath_share_links_ns(symmetric->share, job->flags, bytes));
    }
    while (status == MPATH_AGAIN) { /* each time with a rail less */
        if (record != NULL) {
            record->call.repeats++;
        }
        status = symmetric_resume(symmetric, job, &bytes);
        if ((status == MPATH_OK) && (bytes > 0)) {
            status = share_once(symmetric, operation, bytes, job, &stats);
            status = (status == MPATH_DECLINED) ? MPATH_ERR_NO_MEMORY : status; /* a part of the call is done */
        }
    }
    took_ns = mpath_time_ns() - start_ns;
    symmetric->counters.move_ns += took_ns;
    if (record != NULL) {
        record->call.taken_ns = took_ns;
    }
    if (status == MPATH_DECLINED) {
        return decline(symmetric, because);
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(symmetric->team, status);
        if (job->gpus != NULL) {
            mpath_share_gpus_leave(symmetric->share);
        }
    }
    symmetric->counters.moved.sent_bytes += stats.rail_bytes;
    symmetric->counters.gpu.calls += (job->gpus != NULL) && (status == MPATH_OK);
    symmetric->counters.gpu.kernel_bytes += stats.kernel_bytes;
    symmetric->counters.gpu.engine_bytes += stats.engine_bytes;
    return status;
}

/*
 * What becomes of a call whose rails fail under the engine. A Reduce_scatter and an Allgather are done once more from
 * the start: what they read is what it was. An Allreduce may be in place, where results have taken the place of data:
 * so it goes on where the rank stands that has most of the results. They come segment by segment on every rank; that
 * rank hands those to the others which some of them lack, and of the rest everybody still has the data. The order of
 * combination is the same, and so are the bits.
 */

/* Where the ranks stand. */
typedef struct stand {
    uint64_t least, most; /* segments of which ranks have the results */
    int holder;           /* a rank that has the most */
} stand_t;

/* A range of the vector, in elements of a node's part: what some ranks lack. */
typedef struct range {
    uint64_t from, to;
} range_t;

static mpath_status_t find_stand(mpath_symmetric_t *symmetric, const mpath_share_job_t *job, uint64_t *all,
                                 stand_t *stand)
{
    uint64_t mine;
    mpath_status_t status = mpath_share_copied(symmetric->share, job, &mine);

    if (status != MPATH_OK) {
        mpath_team_break(symmetric->team, status); /* the others would wait */
        return status;
    }
    status = mpath_team_allgather(symmetric->team, &mine, sizeof(mine), all);
    *stand = (stand_t){.least = UINT64_MAX};
    for (int rank = 0; (status == MPATH_OK) && (rank < symmetric->size); rank++) {
        stand->least = (all[rank] < stand->least) ? all[rank] : stand->least;
        if (all[rank] > stand->most) {
            stand->most   = all[rank];
            stand->holder = rank;
        }
    }
    return status;
}

/* An agreement, so that chunks of the next run meet nobody in the one before; its number. */
static mpath_status_t agree_on_run(mpath_symmetric_t *symmetric, uint64_t *all, uint32_t *call_p)
{
    uint64_t nothing      = 0;
    mpath_status_t status = mpath_team_allgather(symmetric->team, &nothing, sizeof(nothing), all);

    *call_p = mpath_team_call(symmetric->team);
    return status;
}

/* Rails of the topology that there is now; chunks of the attempt before are dropped. */
static mpath_status_t renew(mpath_symmetric_t *symmetric)
{
    mpath_wire_t *wire;
    mpath_status_t status = mpath_wire_get(symmetric->team, MPATH_LINKS_MET, &wire);

    if (status == MPATH_OK) {
        status = mpath_wire_restart(wire);
    }
    return (status == MPATH_OK) ? symmetric_read_topo(symmetric) : status;
}

/* The same in the middle of a call, whose results have taken the place of data. */
static mpath_status_t renew_for_rest(mpath_symmetric_t *symmetric, const mpath_share_job_t *job)
{
    mpath_status_t status = renew(symmetric);

    if ((status == MPATH_OK) && (mpath_share_obstacle(symmetric->share) != NULL)) {
        mpath_error("call %u: %s any more, and results have taken the place of data; the call fails", job->call,
                    mpath_share_obstacle(symmetric->share));
        return MPATH_ERR_UNREACHABLE;
    }
    return status;
}

static mpath_status_t hand_out_once(mpath_symmetric_t *symmetric, mpath_share_job_t *handing, uint64_t *arrays)
{
    mpath_share_stats_t stats = {0};
    mpath_status_t status     = MPATH_OK;

    handing->block_elements = arrays;
    handing->send_offsets = handing->recv_offsets = arrays + symmetric->size;
    if (handing->gpus != NULL) {
        status = mpath_share_gpus_open(symmetric->share, handing, MPATH_CALL_MOVED);
    }
    return (status == MPATH_OK) ? symmetric_run(symmetric, handing, &stats) : status;
}

/* The holder's `bytes` at `offset` of the result go to all; once more where further rails fail, since they stay there. */
static mpath_status_t hand_out(mpath_symmetric_t *symmetric, const mpath_share_job_t *job, int holder, uint64_t offset,
                               uint64_t bytes, uint64_t *arrays)
{
    size_t size               = (size_t)symmetric->size;
    mpath_share_gpus_t gpus   = {0};
    mpath_share_job_t handing = {.flags         = MPATH_SHARE_GATHER,
                                 .element_bytes = 1,
                                 .send_buffer   = job->recv_buffer,
                                 .recv_buffer   = job->recv_buffer,
                                 .own_in_place  = 1,
                                 .settles       = job->settles};
    mpath_status_t status     = MPATH_AGAIN;
    stand_t stand;

    if (job->gpus != NULL) {
        gpus             = *job->gpus;
        handing.gpus     = &gpus;
        gpus.send_memory = gpus.recv_memory;
        gpus.send_bytes  = gpus.recv_bytes;
    }
    while (status == MPATH_AGAIN) {
        status = agree_on_run(symmetric, arrays, &handing.call);
        for (size_t rank = 0; rank < size; rank++) {
            arrays[rank]        = (rank == (size_t)holder) ? bytes : 0;
            arrays[size + rank] = offset;
        }
        status = (status == MPATH_OK) ? hand_out_once(symmetric, &handing, arrays) : status;
        if (status == MPATH_AGAIN) { /* how far the ranks have come is no matter, but that their copies have ended */
            status = find_stand(symmetric, &handing, arrays, &stand);
            status = (status == MPATH_OK) ? renew_for_rest(symmetric, job) : status;
            status = (status == MPATH_OK) ? MPATH_AGAIN : status;
        }
    }
    if ((status == MPATH_OK) && (symmetric->topo_version != mpath_team_topo_version(symmetric->team))) {
        status = symmetric_read_topo(symmetric); /* rails are back */
    }
    return status;
}

/*
 * Goes through the blocks of the vector: with `hands`, hands out what lies in the ranges of the nodes' parts; without,
 * takes what lies before their ends out of the job.
 */
static mpath_status_t walk(mpath_symmetric_t *symmetric, const mpath_share_job_t *job, const range_t *ranges,
                           int holder, int hands, uint64_t *arrays)
{
    const mpath_topo_t *topo = mpath_team_topo(symmetric->team);
    mpath_status_t status    = MPATH_OK;
    uint64_t at              = 0; /* in the node's part */
    int node                 = -1;

    for (int i = 0; (i < symmetric->size) && (status == MPATH_OK); i++) {
        int rank       = symmetric->order[i];
        uint64_t count = symmetric->elements[rank], from, to;
        const range_t *range;

        if (mpath_topo_place(topo, rank)->node != node) {
            node = mpath_topo_place(topo, rank)->node;
            at   = 0;
        }
        range = &ranges[node];
        from  = ((hands ? range->from : 0) > at) ? range->from : at;
        to    = (range->to < at + count) ? range->to : at + count;
        if ((from < to) && hands) {
            status = hand_out(symmetric, job, holder, symmetric->send_offsets[rank] + (from - at) * job->element_bytes,
                              (to - from) * job->element_bytes, arrays);
        } else if (from < to) {
            symmetric->elements[rank] -= to - from;
            symmetric->send_offsets[rank] += (to - from) * job->element_bytes;
        }
        at += count;
    }
    return status;
}

static uint64_t bytes_left(const mpath_symmetric_t *symmetric, const mpath_share_job_t *job)
{
    uint64_t elements = 0;

    for (int rank = 0; rank < symmetric->size; rank++) {
        elements += job->block_elements[rank];
    }
    return elements * job->element_bytes;
}

/* An Allreduce. */
static mpath_status_t go_on(mpath_symmetric_t *symmetric, mpath_share_job_t *job, range_t *ranges, uint64_t *arrays)
{
    int num_nodes = mpath_topo_num_nodes(mpath_team_topo(symmetric->team));
    mpath_status_t status;
    stand_t stand;

    status = find_stand(symmetric, job, arrays, &stand);
    for (int node = 0; (node < num_nodes) && (status == MPATH_OK); node++) {
        ranges[node].from = mpath_share_part_done(symmetric->share, node, stand.least);
        ranges[node].to   = mpath_share_part_done(symmetric->share, node, stand.most);
    }
    if (status == MPATH_OK) {
        status = (stand.most == 0) ? renew(symmetric) : renew_for_rest(symmetric, job);
    }
    if ((status == MPATH_OK) && (mpath_share_obstacle(symmetric->share) != NULL)) {
        return MPATH_DECLINED;
    }
    if (status == MPATH_OK) {
        mpath_info_by(symmetric->rank == 0,
                      "call %u goes on behind its first %llu segments; rank %d hands those from %llu on to the others",
                      job->call, (unsigned long long)stand.most, stand.holder, (unsigned long long)stand.least);
        status = walk(symmetric, job, ranges, stand.holder, 1, arrays);
    }
    if (status == MPATH_OK) {
        (void)walk(symmetric, job, ranges, stand.holder, 0, NULL);
        status = agree_on_run(symmetric, arrays, &job->call);
    }
    return (status == MPATH_DECLINED) ? MPATH_ERR_NO_MEMORY
                                      : status; /* in the middle of a call nothing can be left to others */
}

/*
 * coll/reduction.c: rails have failed in a run of the engine, and all ranks have settled so. Goes over to those that
 * are left; of an Allreduce what some ranks have of the results goes to all, and *job and *bytes_p are what is left to
 * do. MPATH_DECLINED: the call may be left to the previous function.
 */
static mpath_status_t symmetric_resume(mpath_symmetric_t *symmetric, mpath_share_job_t *job, uint64_t *bytes_p)
{
    size_t nodes = (size_t)mpath_topo_num_nodes(mpath_team_topo(symmetric->team));
    mpath_status_t status;
    uint64_t *arrays;
    range_t *ranges;

    if (job->flags != (MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER)) {
        status    = renew(symmetric);
        job->call = mpath_team_call(symmetric->team);
        if ((status == MPATH_OK) && (mpath_share_obstacle(symmetric->share) != NULL)) {
            return MPATH_DECLINED;
        }
        return status;
    }
    arrays = calloc(2 * (size_t)symmetric->size, sizeof(*arrays));
    ranges = calloc(nodes, sizeof(*ranges));
    status = MPATH_ERR_NO_MEMORY;
    if ((arrays == NULL) || (ranges == NULL)) {
        mpath_error("no memory to go on with a call of %d ranks after a rail has failed; the call fails",
                    symmetric->size);
    } else {
        status = go_on(symmetric, job, ranges, arrays);
    }
    if (status == MPATH_OK) {
        *bytes_p = bytes_left(symmetric, job);
    }
    free(ranges);
    free(arrays);
    return status;
}

/*
 * Allreduce: small vectors travel in the agreement and every rank combines them; others are shared out over the rails.
 */

/* Everybody's vector to everybody, as far as it is small. */
static char *describe(mpath_symmetric_t *symmetric, uint64_t bytes, uint64_t *stride_p)
{
    uint64_t stride = (bytes + 63) / 64 * 64;
    int small       = bytes <= symmetric->settings->small_bytes;

    for (int rank = 0; rank < symmetric->size; rank++) {
        symmetric->send_bytes[rank]   = bytes;
        symmetric->send_offsets[rank] = 0;
        symmetric->recv_bytes[rank]   = bytes;
        symmetric->recv_offsets[rank] = (uint64_t)rank * stride;
    }
    *stride_p = stride;
    return small ? symmetric_scratch(symmetric, (uint64_t)symmetric->size * stride) : NULL;
}

typedef struct allreduce_call {
    mpath_symmetric_t *symmetric;
    const mpath_symmetric_buffers_t *buffers;
    uint64_t elements, stride;
    const mpath_combination_t *combination;
    mpath_share_job_t *job;
    const mpath_reduce_how_t *how;
} allreduce_call_t;

/* All vectors are here. */
static mpath_status_t allreduce_inline(void *argument)
{
    const allreduce_call_t *work = argument;
    mpath_symmetric_t *symmetric = work->symmetric;
    uint64_t bytes               = work->elements * work->combination->element_bytes;

    if (bytes > 0) {
        memcpy(symmetric->scratch + (uint64_t)symmetric->rank * work->stride, work->buffers->send, bytes);
        memcpy(work->buffers->recv,
               symmetric_combine(symmetric, symmetric->scratch, work->stride, work->elements, work->combination),
               bytes);
    }
    return MPATH_OK;
}

/*
 * Nodes have equal parts of the vector, and so have the ranks of a node: that is the least for every rail. Parts are cut
 * at multiples of `grain` elements.
 */
static void cut_blocks(mpath_symmetric_t *symmetric, uint64_t elements, uint64_t element_bytes, uint64_t grain)
{
    const mpath_topo_t *topo = mpath_team_topo(symmetric->team);
    uint64_t grains = elements / grain + (elements % grain != 0), nodes = (uint64_t)mpath_topo_num_nodes(topo), at = 0;

    for (int first = 0, last; first < symmetric->size; first = last) {
        uint64_t node = (uint64_t)mpath_topo_place(topo, symmetric->order[first])->node, part, ranks;

        last = first;
        while ((last < symmetric->size) && ((uint64_t)mpath_topo_place(topo, symmetric->order[last])->node == node)) {
            last++;
        }
        ranks = (uint64_t)(last - first);
        part  = grains / nodes + (node < grains % nodes);
        for (uint64_t i = 0; i < ranks; i++) {
            symmetric->elements[symmetric->order[first + (int)i]] = (part / ranks + (i < part % ranks)) * grain;
        }
    }
    for (int rank = 0; rank < symmetric->size; rank++) {
        uint64_t left = elements - at; /* the last grain may be short */

        symmetric->elements[rank]     = (symmetric->elements[rank] < left) ? symmetric->elements[rank] : left;
        symmetric->send_offsets[rank] = at * element_bytes;
        at += symmetric->elements[rank];
    }
}

static mpath_status_t allreduce_pipeline(void *argument)
{
    const allreduce_call_t *work = argument;
    mpath_share_job_t *job       = work->job;
    uint64_t element_bytes       = job->element_bytes;
    int in_grains                = (job->gpus != NULL) && (MPATH_SHARE_GRAIN_BYTES % element_bytes == 0);

    if (work->elements == 0) {
        return MPATH_OK;
    }
    cut_blocks(work->symmetric, work->elements, element_bytes, in_grains ? MPATH_SHARE_GRAIN_BYTES / element_bytes : 1);
    return symmetric_share(work->symmetric, MPATH_OPERATION_ALLREDUCE, work->elements * element_bytes, job);
}

static mpath_status_t allreduce_node(void *argument)
{
    const allreduce_call_t *work = argument;

    return mpath_allreduce_gpu(work->symmetric->gpu, work->buffers, work->elements, work->how);
}

const mpath_algorithm_t mpath_allreduce_algorithms[] = REDUCTION_ROWS(allreduce_inline, allreduce_node,
                                                                      allreduce_pipeline);

static mpath_status_t allreduce_on_node(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                        uint64_t elements, const mpath_reduce_how_t *how)
{
    allreduce_call_t work = {.symmetric = symmetric, .buffers = buffers, .elements = elements, .how = how};
    const mpath_algorithm_t *algorithm;
    mpath_status_t status = choose_on_node(symmetric, MPATH_OPERATION_ALLREDUCE,
                                           elements * mpath_reduce_bytes(how->type), &algorithm);

    return status == MPATH_OK ? algorithm->run(&work) : status;
}

static mpath_share_job_t job_of(const mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                const mpath_combination_t *combination)
{
    return (mpath_share_job_t){.flags           = MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER,
                               .element_bytes   = combination->element_bytes,
                               .block_elements  = symmetric->elements,
                               .send_buffer     = buffers->send,
                               .send_offsets    = symmetric->send_offsets,
                               .recv_buffer     = buffers->recv,
                               .recv_offsets    = symmetric->send_offsets,
                               .reduce          = combination->reduce,
                               .reduce_argument = combination->argument};
}

/* `gpus` NULL: host memory on all ranks. */
static mpath_status_t allreduce(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                uint64_t elements, const mpath_combination_t *combination,
                                const mpath_share_gpus_t *gpus)
{
    uint64_t bytes        = elements * combination->element_bytes;
    mpath_share_job_t job = job_of(symmetric, buffers, combination);
    allreduce_call_t work = {
        .symmetric = symmetric, .buffers = buffers, .elements = elements, .combination = combination, .job = &job};
    const mpath_algorithm_t *algorithm = NULL;
    mpath_status_t status;
    char *scratch;
    int ineligible;

    status = mpath_symmetric_gate(symmetric, MPATH_OPERATION_ALLREDUCE, bytes, bytes, gpus != NULL);
    if (status != MPATH_OK) {
        return status;
    }
    job.gpus   = gpus;
    scratch    = describe(symmetric, bytes, &work.stride);
    ineligible = buffers->ineligible ||
                 ((scratch == NULL) && (bytes <= symmetric->settings->small_bytes) && (bytes > 0));
    status = symmetric_agree(symmetric, MPATH_OPERATION_ALLREDUCE, combination, buffers->send, scratch, ineligible,
                             &job, &algorithm);
    return symmetric_end(symmetric, status == MPATH_OK ? algorithm->run(&work) : status);
}

mpath_status_t mpath_allreduce(mpath_symmetric_t *symmetric, const void *send, void *recv, uint64_t elements,
                               const mpath_combination_t *combination, int ineligible)
{
    const mpath_symmetric_buffers_t buffers = {.send = send, .recv = recv, .ineligible = ineligible};

    return allreduce(symmetric, &buffers, elements, combination, NULL);
}

mpath_status_t mpath_allreduce_anywhere(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                        uint64_t elements, const mpath_combination_t *combination,
                                        const mpath_reduce_how_t *how)
{
    uint64_t declined             = symmetric->counters.declined;
    uint64_t bytes                = elements * combination->element_bytes;
    const mpath_share_gpus_t gpus = {.send_memory = buffers->send_memory,
                                     .recv_memory = buffers->recv_memory,
                                     .send_bytes  = bytes,
                                     .recv_bytes  = bytes,
                                     .how         = *how};

    if (symmetric->gpu != NULL) {
        return allreduce_on_node(symmetric, buffers, elements, how);
    }
    return mpath_symmetric_uncounted(symmetric, declined, allreduce(symmetric, buffers, elements, combination, &gpus));
}

/*
 * Reduce_scatter: small blocks travel in the agreement, straight to who combines them; others are shared out over the
 * rails.
 */

/* What the call is about, in bytes. */
typedef struct sizes {
    uint64_t total, largest; /* of all blocks, of one */
    uint64_t mine, stride;   /* of this rank's block */
} sizes_t;

static void measure(const mpath_symmetric_t *symmetric, const uint64_t *elements, uint64_t element_bytes,
                    sizes_t *sizes)
{
    memset(sizes, 0, sizeof(*sizes));
    for (int rank = 0; rank < symmetric->size; rank++) {
        uint64_t bytes = elements[rank] * element_bytes;

        sizes->total += bytes;
        sizes->largest = (bytes > sizes->largest) ? bytes : sizes->largest;
    }
    sizes->mine   = elements[symmetric->rank] * element_bytes;
    sizes->stride = (sizes->mine + 63) / 64 * 64;
}

static void reduce_scatter_describe(mpath_symmetric_t *symmetric, const uint64_t *elements, uint64_t element_bytes,
                                    const sizes_t *sizes)
{
    uint64_t at = 0;

    for (int rank = 0; rank < symmetric->size; rank++) {
        symmetric->send_bytes[rank]   = elements[rank] * element_bytes;
        symmetric->send_offsets[rank] = at;
        symmetric->recv_bytes[rank]   = sizes->mine;
        symmetric->recv_offsets[rank] = (uint64_t)rank * sizes->stride;
        at += symmetric->send_bytes[rank];
    }
}

/* Room for what may travel in the agreement, or for the result when the input lies where it goes. */
static char *scratch_get(mpath_symmetric_t *symmetric, const sizes_t *sizes, int in_place)
{
    uint64_t inside = (sizes->mine <= symmetric->settings->small_bytes) ? (uint64_t)symmetric->size * sizes->stride : 0;
    uint64_t result = in_place ? sizes->stride : 0, bytes = (inside > result) ? inside : result;

    return symmetric_scratch(symmetric, (bytes > 0) ? bytes : 1);
}

typedef struct reduce_scatter_call {
    mpath_symmetric_t *symmetric;
    const mpath_symmetric_buffers_t *buffers;
    const sizes_t *sizes;
    const mpath_combination_t *combination;
    mpath_share_job_t *job;
    const uint64_t *elements; /* by rank */
    const mpath_reduce_how_t *how;
} reduce_scatter_call_t;

static mpath_status_t reduce_scatter_inline(void *argument)
{
    const reduce_scatter_call_t *work      = argument;
    const mpath_combination_t *combination = work->combination;
    mpath_symmetric_t *symmetric           = work->symmetric;
    const sizes_t *sizes                   = work->sizes;
    char *scratch                          = symmetric->scratch;

    if (sizes->mine > 0) {
        memcpy(scratch + (uint64_t)symmetric->rank * sizes->stride,
               (const char *)work->buffers->send + symmetric->send_offsets[symmetric->rank], sizes->mine);
        memcpy(
            work->buffers->recv,
            symmetric_combine(symmetric, scratch, sizes->stride, sizes->mine / combination->element_bytes, combination),
            sizes->mine);
    }
    return MPATH_OK;
}

/* On GPUs nothing is in place. */
static mpath_status_t reduce_scatter_pipeline(void *argument)
{
    const reduce_scatter_call_t *work = argument;
    mpath_symmetric_t *symmetric      = work->symmetric;
    const sizes_t *sizes              = work->sizes;
    mpath_share_job_t *job            = work->job;
    int in_place                      = job->send_buffer == job->recv_buffer;
    void *recv                        = job->recv_buffer;
    mpath_status_t status;

    if (sizes->total == 0) {
        return MPATH_OK;
    }
    job->recv_buffer = in_place ? symmetric->scratch : recv;
    memset(symmetric->recv_offsets, 0, (size_t)symmetric->size * sizeof(*symmetric->recv_offsets));
    status = symmetric_share(symmetric, MPATH_OPERATION_REDUCE_SCATTER, sizes->total, job);
    if ((status == MPATH_OK) && in_place && (sizes->mine > 0)) {
        memcpy(recv, symmetric->scratch, sizes->mine);
    }
    return status;
}

static mpath_status_t reduce_scatter_node(void *argument)
{
    const reduce_scatter_call_t *work = argument;

    return mpath_reduce_scatter_gpu(work->symmetric->gpu, work->buffers, work->elements, work->how);
}

const mpath_algorithm_t mpath_reduce_scatter_algorithms[] = REDUCTION_ROWS(reduce_scatter_inline, reduce_scatter_node,
                                                                           reduce_scatter_pipeline);

static mpath_status_t reduce_scatter_on_node(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                             const uint64_t *elements, const mpath_reduce_how_t *how)
{
    reduce_scatter_call_t work = {.symmetric = symmetric, .buffers = buffers, .elements = elements, .how = how};
    const mpath_algorithm_t *algorithm;
    mpath_status_t status;
    sizes_t sizes;

    measure(symmetric, elements, mpath_reduce_bytes(how->type), &sizes);
    status = choose_on_node(symmetric, MPATH_OPERATION_REDUCE_SCATTER, sizes.total, &algorithm);
    return status == MPATH_OK ? algorithm->run(&work) : status;
}

static mpath_share_job_t reduce_scatter_job_of(const mpath_symmetric_t *symmetric,
                                               const mpath_symmetric_buffers_t *buffers, const uint64_t *elements,
                                               const mpath_combination_t *combination)
{
    return (mpath_share_job_t){.flags           = MPATH_SHARE_REDUCE,
                               .element_bytes   = combination->element_bytes,
                               .block_elements  = elements,
                               .send_buffer     = buffers->send,
                               .send_offsets    = symmetric->send_offsets,
                               .recv_buffer     = buffers->recv,
                               .recv_offsets    = symmetric->recv_offsets,
                               .reduce          = combination->reduce,
                               .reduce_argument = combination->argument};
}

/* `gpus` NULL: host memory on all ranks. */
static mpath_status_t reduce_scatter(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                     const uint64_t *elements, const mpath_combination_t *combination,
                                     mpath_share_gpus_t *gpus)
{
    mpath_share_job_t job = reduce_scatter_job_of(symmetric, buffers, elements, combination);
    sizes_t sizes;
    const reduce_scatter_call_t work = {
        .symmetric = symmetric, .buffers = buffers, .sizes = &sizes, .combination = combination, .job = &job};
    const mpath_algorithm_t *algorithm = NULL;
    mpath_status_t status;
    char *scratch;

    measure(symmetric, elements, combination->element_bytes, &sizes);
    status = mpath_symmetric_gate(symmetric, MPATH_OPERATION_REDUCE_SCATTER, sizes.total, sizes.largest, gpus != NULL);
    if (status != MPATH_OK) {
        return status;
    }
    if (gpus != NULL) {
        gpus->send_bytes = sizes.total;
        gpus->recv_bytes = sizes.mine;
        job.gpus         = gpus;
    }
    reduce_scatter_describe(symmetric, elements, combination->element_bytes, &sizes);
    scratch = scratch_get(symmetric, &sizes, buffers->send == buffers->recv);
    status  = symmetric_agree(symmetric, MPATH_OPERATION_REDUCE_SCATTER, combination, buffers->send, scratch,
                              buffers->ineligible || (scratch == NULL), &job, &algorithm);
    return symmetric_end(symmetric, status == MPATH_OK ? algorithm->run((void *)&work) : status);
}

mpath_status_t mpath_reduce_scatter(mpath_symmetric_t *symmetric, const void *send, void *recv,
                                    const uint64_t *elements, const mpath_combination_t *combination, int ineligible)
{
    const mpath_symmetric_buffers_t buffers = {.send = send, .recv = recv, .ineligible = ineligible};

    return reduce_scatter(symmetric, &buffers, elements, combination, NULL);
}

mpath_status_t mpath_reduce_scatter_anywhere(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                             const uint64_t *elements, const mpath_combination_t *combination,
                                             const mpath_reduce_how_t *how)
{
    uint64_t declined       = symmetric->counters.declined;
    mpath_share_gpus_t gpus = {.send_memory = buffers->send_memory, .recv_memory = buffers->recv_memory, .how = *how};

    if (symmetric->gpu != NULL) {
        return reduce_scatter_on_node(symmetric, buffers, elements, how);
    }
    return mpath_symmetric_uncounted(symmetric, declined,
                                     reduce_scatter(symmetric, buffers, elements, combination, &gpus));
}

/* Allgather: small blocks travel in the agreement; others are shared out over the rails, once for each node. */

typedef struct allgather_call {
    mpath_symmetric_t *symmetric;
    mpath_share_job_t *job;
    const void *send; /* this rank's block */
    uint64_t total;
    const mpath_symmetric_buffers_t *buffers;
    const uint64_t *bytes, *offsets; /* by rank */
} allgather_call_t;

static mpath_status_t allgather_inline(void *argument)
{
    const allgather_call_t *work = argument;
    const mpath_share_job_t *job = work->job;
    int me                       = work->symmetric->rank;

    if (!job->own_in_place && job->block_elements[me] > 0) {
        memcpy((char *)job->recv_buffer + job->recv_offsets[me], work->send, job->block_elements[me]);
    }
    return MPATH_OK;
}

static mpath_status_t allgather_pipeline(void *argument)
{
    const allgather_call_t *work = argument;

    return work->total > 0 ? symmetric_share(work->symmetric, MPATH_OPERATION_ALLGATHER, work->total, work->job)
                           : MPATH_OK;
}

static mpath_status_t allgather_node(void *argument)
{
    const allgather_call_t *work = argument;

    return mpath_allgather_gpu(work->symmetric->gpu, work->buffers, work->bytes, work->offsets);
}

const mpath_algorithm_t mpath_allgather_algorithms[] = REDUCTION_ROWS(allgather_inline, allgather_node,
                                                                      allgather_pipeline);

static mpath_status_t allgather_on_node(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                        const uint64_t *bytes, const uint64_t *offsets)
{
    allgather_call_t work = {.symmetric = symmetric, .buffers = buffers, .bytes = bytes, .offsets = offsets};
    const mpath_algorithm_t *algorithm;
    mpath_status_t status;

    for (int rank = 0; rank < symmetric->size; rank++) {
        work.total += bytes[rank];
    }
    status = choose_on_node(symmetric, MPATH_OPERATION_ALLGATHER, work.total, &algorithm);
    return status == MPATH_OK ? algorithm->run(&work) : status;
}

/* `gpus` NULL: host memory on all ranks. */
static mpath_status_t allgather(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                const uint64_t *bytes, const uint64_t *offsets, mpath_share_gpus_t *gpus)
{
    int me = symmetric->rank, in_place = buffers->send == NULL, ineligible = buffers->ineligible;
    const void *send = buffers->send;
    void *recv       = buffers->recv;
    uint64_t total = 0, largest = 0, end = 0;
    mpath_share_job_t job              = {.flags          = MPATH_SHARE_GATHER,
                                          .element_bytes  = 1,
                                          .block_elements = bytes,
                                          .send_offsets   = symmetric->send_offsets,
                                          .recv_buffer    = recv,
                                          .recv_offsets   = offsets,
                                          .own_in_place   = in_place};
    const mpath_algorithm_t *algorithm = NULL;
    allgather_call_t work              = {.symmetric = symmetric, .job = &job};
    mpath_status_t status;

    for (int rank = 0; rank < symmetric->size; rank++) {
        total += bytes[rank];
        largest                       = (bytes[rank] > largest) ? bytes[rank] : largest;
        end                           = (offsets[rank] + bytes[rank] > end) ? offsets[rank] + bytes[rank] : end;
        symmetric->send_bytes[rank]   = bytes[me];
        symmetric->send_offsets[rank] = 0;
        symmetric->recv_bytes[rank]   = bytes[rank];
        symmetric->recv_offsets[rank] = offsets[rank];
    }
    status = mpath_symmetric_gate(symmetric, MPATH_OPERATION_ALLGATHER, total, largest, gpus != NULL);
    if (status != MPATH_OK) {
        return status;
    }
    if (in_place && (bytes[me] > 0) && !ineligible) {
        send = (const char *)recv + offsets[me];
    }
    job.send_buffer = send;
    if (gpus != NULL) {
        gpus->send_bytes = bytes[me];
        gpus->recv_bytes = end;
        job.gpus         = gpus;
    }
    work.send  = send;
    work.total = total;
    status     = symmetric_agree(symmetric, MPATH_OPERATION_ALLGATHER, NULL, send, recv, ineligible, &job, &algorithm);
    return symmetric_end(symmetric, status == MPATH_OK ? algorithm->run(&work) : status);
}

mpath_status_t mpath_allgather(mpath_symmetric_t *symmetric, const void *send, void *recv, const uint64_t *bytes,
                               const uint64_t *offsets, int ineligible)
{
    const mpath_symmetric_buffers_t buffers = {.send = send, .recv = recv, .ineligible = ineligible};

    return allgather(symmetric, &buffers, bytes, offsets, NULL);
}

mpath_status_t mpath_allgather_anywhere(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                        const uint64_t *bytes, const uint64_t *offsets)
{
    uint64_t declined       = symmetric->counters.declined;
    mpath_share_gpus_t gpus = {.send_memory = buffers->send_memory, .recv_memory = buffers->recv_memory};

    if (symmetric->gpu != NULL) {
        return allgather_on_node(symmetric, buffers, bytes, offsets);
    }
    return mpath_symmetric_uncounted(symmetric, declined, allgather(symmetric, buffers, bytes, offsets, &gpus));
}
