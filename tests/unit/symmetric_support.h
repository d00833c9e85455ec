/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of Allreduce and its like: a rank of a job, and sums whose order of combination shows in every bit. */
#ifndef MPATH_TESTS_UNIT_SYMMETRIC_SUPPORT_H
#define MPATH_TESTS_UNIT_SYMMETRIC_SUPPORT_H

#include "coll/reduction_private.h"
#include "team/team_private.h"
#include "ranks.h"

typedef struct job {
    ranks_setup_t setup;
    int access, algorithm;
    const char *adapt_file, *tune; /* NULL: the defaults */
    uint64_t memory_bytes;
    int gate_auto, deterministic;
    int steps_nodes;   /* from so many nodes on in steps; 0: by predicted time */
    int repeatable;    /* calls settle, however short they are */
    int victim, stall; /* of the failures */
} job_t;

typedef struct member {
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_coll_t *coll;
    mpath_symmetric_t *symmetric;
    int order[RANKS_MAX], node_of[RANKS_MAX]; /* ranks by node, then rank */
} member_t;

void member_init(member_t *member, ranks_self_t *self, const job_t *job);
/* The same on member->settings, which the caller has set; a context made from them, */
void member_open(member_t *member, ranks_self_t *self);
/* and, on member->context, a team of all ranks and collectives. */
void member_begin(member_t *member, ranks_self_t *self);
void member_end(member_t *member);

/* Memory of zeroes, and some more of them behind it; for free(). */
void *zeroed(size_t bytes);

/* Sums of doubles, which have to be aligned. */
void add_doubles(void *argument, const void *in, void *inout, uint64_t elements);
extern const mpath_combination_t doubles;

/* Numbers whose sum depends on the order. */
double value_of(int rank, uint64_t position, uint64_t round);
/* By rank on each node, then by node. */
double sum_of(const member_t *member, int size, uint64_t position, uint64_t round);
/* Whether calls too long for the agreement go in steps, and the order of these: the element of a part of `owner`'s node, from it on. */
int has_steps(const member_t *member);
double sum_in_steps(const member_t *member, int size, int owner, uint64_t position, uint64_t round);
/*
 * As a call combines them whose largest pair has `bytes` bytes: so, or in steps the element of a part of `owner`'s node from
 * those of nodes before it.
 */
double expected_of(const member_t *member, int size, uint64_t bytes, int owner, uint64_t position, uint64_t round);

/* Carries an Allreduce of such numbers, in place in odd rounds, and checks every bit. */
void check_allreduce(member_t *member, const ranks_self_t *self, uint64_t elements, uint64_t round);

#endif
