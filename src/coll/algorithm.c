/* SPDX-License-Identifier: BSD-3-Clause */
/* Which algorithm carries a call. */
#include "coll/algorithm.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    mpath_operation_t collective;
} collectives[] = {{"alltoallv", MPATH_OPERATION_ALLTOALLV},
                   {"allreduce", MPATH_OPERATION_ALLREDUCE},
                   {"reduce_scatter", MPATH_OPERATION_REDUCE_SCATTER},
                   {"allgather", MPATH_OPERATION_ALLGATHER},
                   {"alltoall", MPATH_OPERATION_ALLTOALLV},
                   {"reduce_scatter_block", MPATH_OPERATION_REDUCE_SCATTER},
                   {"allgatherv", MPATH_OPERATION_ALLGATHER}};
#define COLLECTIVES (sizeof(collectives) / sizeof(collectives[0]))

const mpath_algorithm_t *mpath_algorithms(mpath_operation_t collective)
{
    static const mpath_algorithm_t *const tables[] = {
        [MPATH_OPERATION_ALLTOALLV]      = mpath_alltoallv_algorithms,
        [MPATH_OPERATION_ALLREDUCE]      = mpath_allreduce_algorithms,
        [MPATH_OPERATION_REDUCE_SCATTER] = mpath_reduce_scatter_algorithms,
        [MPATH_OPERATION_ALLGATHER]      = mpath_allgather_algorithms};

    return tables[collective];
}

const mpath_algorithm_t *mpath_algorithm_find(mpath_operation_t collective, const char *name)
{
    const mpath_algorithm_t *row = mpath_algorithms(collective);

    while (row->name != NULL && strcmp(row->name, name) != 0) {
        row++;
    }
    return row->name != NULL ? row : NULL;
}

const char *mpath_collective_name(mpath_operation_t collective)
{
    size_t i = 0;

    while (i < COLLECTIVES - 1 && collectives[i].collective != collective) {
        i++;
    }
    return collectives[i].name;
}

mpath_operation_t mpath_collective_find(const char *name, size_t length)
{
    for (size_t i = 0; i < COLLECTIVES; i++) {
        if (strlen(collectives[i].name) == length && strncasecmp(collectives[i].name, name, length) == 0) {
            return collectives[i].collective;
        }
    }
    return (mpath_operation_t)0;
}

const char *mpath_collective_text(mpath_operation_t collective)
{
    static const char *const texts[] = {[MPATH_OPERATION_ALLTOALLV]      = "MPI_Alltoallv",
                                        [MPATH_OPERATION_ALLREDUCE]      = "MPI_Allreduce",
                                        [MPATH_OPERATION_REDUCE_SCATTER] = "MPI_Reduce_scatter",
                                        [MPATH_OPERATION_ALLGATHER]      = "MPI_Allgather"};

    return collective < sizeof(texts) / sizeof(texts[0]) ? texts[collective] : NULL;
}

static const mpath_algorithm_t *previous_of(const mpath_algorithm_t *rows)
{
    while (!mpath_algorithm_is_previous(rows)) {
        rows++;
    }
    return rows;
}

static int takes_memory(const mpath_algorithm_t *row, const mpath_question_t *question)
{
    return (row->memories & question->memory) != 0;
}

static int is_able(const mpath_algorithm_t *row, const mpath_question_t *question)
{
    return takes_memory(row, question) && row->able(question) == NULL;
}

/* What a parameter forces; NULL: nothing. */
static const mpath_algorithm_t *forced_of(const mpath_question_t *question)
{
    const mpath_algorithm_t *forced = question->forced;

    return forced != NULL && (question->insists || question->memory == MPATH_ON_HOST || is_able(forced, question))
               ? forced
               : NULL;
}

/* Asks for the plan if some row that moves by one could carry the call. */
static mpath_status_t choose_plan(mpath_question_t *question, const mpath_algorithm_t *rows)
{
    const mpath_algorithm_t *forced = forced_of(question);
    int wanted                      = 0;

    if (question->plan == NULL || question->finished) {
        return MPATH_OK;
    }
    for (; !mpath_algorithm_is_previous(rows); rows++) {
        mpath_verdict_t verdict = {.unable = NULL};

        if (rows->has_plan && (forced == NULL || forced == rows) && is_able(rows, question)) {
            rows->cost(question, &verdict);
            wanted |= verdict.pointless == NULL || forced == rows || question->settings->gate == MPATH_GATE_ALWAYS;
        }
    }
    return wanted ? question->plan(question) : MPATH_OK;
}

static void judge(const mpath_question_t *question, const mpath_algorithm_t *rows, mpath_verdict_t *verdicts)
{
    for (size_t i = 0; rows[i].name != NULL; i++) {
        verdicts[i] = (mpath_verdict_t){.ns = MPATH_ALGORITHM_UNPREDICTED};
        if (!takes_memory(&rows[i], question)) {
            verdicts[i].unable = question->memory == MPATH_ON_HOST ? "it is for device memory"
                                                                   : "it is for host memory";
        } else {
            verdicts[i].unable = rows[i].able(question);
        }
        if (verdicts[i].unable == NULL) {
            rows[i].cost(question, &verdicts[i]);
        }
    }
}

/* Why nothing of mpath's carries the call: the obstacle that was met, or what a row has to say. */
static const char *why_previous(const mpath_question_t *question, const mpath_algorithm_t *rows,
                                const mpath_decision_t *decision)
{
    const char *because = question->obstacle;

    if (question->memory == MPATH_ON_DEVICE && question->node_obstacle != NULL &&
        (because == NULL || mpath_topo_num_nodes(question->topo) == 1)) {
        because = question->node_obstacle;
    }
    for (size_t i = 0; !mpath_algorithm_is_previous(&rows[i]); i++) {
        const mpath_verdict_t *verdict = &decision->verdicts[i];

        if (verdict->unable != NULL) {
            because = because != NULL ? because : verdict->unable;
        } else if (verdict->pointless != NULL) {
            return verdict->pointless;
        } else {
            return MPATH_WHY_PREDICTED;
        }
    }
    return because != NULL ? because : "there is no other";
}

static void by_cost(const mpath_question_t *question, const mpath_algorithm_t *rows, mpath_decision_t *decision)
{
    int always                      = question->settings->gate == MPATH_GATE_ALWAYS;
    const mpath_algorithm_t *best   = NULL;
    const mpath_verdict_t *verdicts = decision->verdicts;
    uint64_t best_ns                = MPATH_ALGORITHM_UNPREDICTED;

    for (size_t i = 0; rows[i].name != NULL; i++) {
        int is_out = verdicts[i].unable != NULL || (!always && verdicts[i].pointless != NULL) ||
                     (mpath_algorithm_is_previous(&rows[i]) && best != NULL && (always || verdicts[i].ns >= best_ns));

        if (!is_out && (best == NULL || verdicts[i].ns < best_ns)) {
            best    = &rows[i];
            best_ns = verdicts[i].ns;
        }
    }
    decision->algorithm = best;
    decision->because   = mpath_algorithm_is_previous(best)        ? why_previous(question, rows, decision)
                          : always                                 ? "a parameter says always"
                          : best_ns == MPATH_ALGORITHM_UNPREDICTED ? "it is the first that is able"
                                                                   : "it is predicted to be the fastest";
}

static void decide(const mpath_question_t *question, const mpath_algorithm_t *rows, mpath_decision_t *decision)
{
    const mpath_algorithm_t *forced = forced_of(question);
    const mpath_algorithm_t *tuned  = question->tuned != NULL ? question->tuned : previous_of(rows);

    decision->algorithm = previous_of(rows);
    if (question->settings->gate == MPATH_GATE_NEVER) {
        decision->because = MPATH_WHY_PARAMETER;
    } else if (forced != NULL) {
        const char *unable  = decision->verdicts[forced - rows].unable;
        decision->algorithm = unable == NULL ? forced : decision->algorithm;
        decision->because   = unable != NULL                        ? unable
                              : mpath_algorithm_is_previous(forced) ? MPATH_WHY_PARAMETER
                                                                    : "a parameter says so";
    } else if (question->tuner != NULL && question->settings->gate == MPATH_GATE_AUTO && !question->finished &&
               decision->verdicts[tuned - rows].unable == NULL) {
        decision->algorithm = tuned;
        decision->because   = question->tuner;
    } else {
        by_cost(question, rows, decision);
    }
}

mpath_status_t mpath_choose(mpath_question_t *question, mpath_decision_t *decision)
{
    const mpath_algorithm_t *rows = mpath_algorithms(question->collective);
    int never = question->settings->gate == MPATH_GATE_NEVER || (question->tuner != NULL && question->forced == NULL);
    mpath_status_t status = never ? MPATH_OK : choose_plan(question, rows);

    if (status != MPATH_OK) {
        return status;
    }
    judge(question, rows, decision->verdicts);
    decide(question, rows, decision);
    return MPATH_OK;
}
