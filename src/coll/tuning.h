/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter tune: which algorithm carries which calls, after the manner of UCC's TUNE. Rules with commas between them, the
 * last one that fits a call counts; a rule is a collective and, behind colons, in any order, the algorithm, a range of bytes
 * and the memory:
 *
 *   rules  := rule { "," rule }
 *   rule   := COLLECTIVE ":" item { ":" item }      COLLECTIVE: alltoallv, allreduce, reduce_scatter, allgather
 *   item   := "@" ALGORITHM | LOW "-" HIGH | "host" | "device"
 *
 * LOW and HIGH are bytes with k, m or g, HIGH also "inf": calls of LOW bytes and more, below HIGH. Without a range all calls,
 * without memory host memory and, where the algorithm knows it and is able, device memory. For instance
 * "alltoallv:@planned:4k-inf,allreduce:@previous:0-64k". What is counted is mpath_question_t.bytes.
 */
#ifndef MPATH_COLL_TUNING_H
#define MPATH_COLL_TUNING_H

#include "coll/algorithm.h"
#include "util/param.h"

#define MPATH_TUNING_RULES 32

typedef struct mpath_tuning_rule {
    mpath_operation_t collective;
    const mpath_algorithm_t *algorithm;
    uint32_t memories;
    int insists;                   /* it names its memory */
    uint64_t from_bytes, to_bytes; /* to UINT64_MAX: however many */
} mpath_tuning_rule_t;

typedef struct mpath_tuning {
    int count;
    mpath_tuning_rule_t rules[MPATH_TUNING_RULES];
} mpath_tuning_t;

#define MPATH_TUNING_MESSAGE 512

/*
 * MPATH_ERR_PARAM: `message` says what is wrong, where, and what there is instead; *tuning has no rule then.
 */
mpath_status_t mpath_tuning_parse(const char *text, mpath_tuning_t *tuning, char *message, size_t size);

/*
 * The rules of the parameter, and of those that it replaces (alltoallv_algorithm, ...), which count where it has none. Says
 * what is wrong, in a process the first time; without rules then. `says`: whether this process does.
 */
void mpath_tuning_read(const mpath_settings_t *settings, int says, mpath_tuning_t *tuning);

/* What is forced for calls of so many bytes; NULL: nothing. */
const mpath_algorithm_t *mpath_tuning_find(const mpath_tuning_t *tuning, mpath_operation_t collective, uint32_t memory,
                                           uint64_t bytes);
/* The same for a question whose collective, memory and bytes are set: sets what is forced. */
void mpath_tuning_force(const mpath_tuning_t *tuning, mpath_question_t *question);
/* Whether there is a rule for some calls of a collective. */
int mpath_tuning_has(const mpath_tuning_t *tuning, mpath_operation_t collective, uint32_t memory);
/*
 * Of a collective whose sizes all ranks know, before there is a team: whether mpath may carry a call of so many bytes.
 * Where not, no rank asks.
 */
int mpath_tuning_may_carry(const mpath_tuning_t *tuning, const mpath_settings_t *settings, mpath_operation_t collective,
                           uint32_t memory, uint64_t bytes);
/* Whether all calls of a collective are the previous function's, on whatever memory and however many bytes. */
int mpath_tuning_is_never(const mpath_tuning_t *tuning, mpath_operation_t collective);

#endif
