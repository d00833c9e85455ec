/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a collective is done: a table of algorithms for each, and one function that chooses. A row is able or says why not,
 * says what it is predicted to take, and runs. All ranks choose alike: what a row looks at is the same on all of them
 * (sizes that MPI makes equal, what was agreed on, the topology, parameters that teams compare), in integers.
 *
 * The rules, in this order:
 *   never     parameter gate says so: the previous function
 *   forced    parameter tune (coll/tuning.h) names a row: it, if it is able, else the previous function; a rule that names
 *             no memory leaves calls on device memory alone that its row is not able to carry
 *   tuner     calls before have shown which row is the fastest, or that is tried (tune/trial.h)
 *   cost      the least predicted time of the rows that are able and may gain; the first of the table where equal
 *
 * Small data travels inside the agreement, before which nobody knows whether it all has: who asks before, asks once more
 * afterwards (mpath_question_t.agreed). A row that has been run and cannot carry the call after all, on all ranks alike,
 * leaves its obstacle in the question, and the call is asked about again.
 */
#ifndef MPATH_COLL_ALGORITHM_H
#define MPATH_COLL_ALGORITHM_H

#include "node/peer.h"
#include "pipeline/pipeline.h"
#include "plan/gate.h"
#include "team/call.h"
#include "topo/topo.h"
#include "util/param.h"
#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

/* Where the data of a call is: on the host of all ranks, or on a device of some. */
enum { MPATH_ON_HOST = 1u << 0, MPATH_ON_DEVICE = 1u << 1 };

#define MPATH_ALGORITHM_UNPREDICTED UINT64_MAX

/* What a row says of a call. The texts are static. */
typedef struct mpath_verdict {
    const char *unable;    /* why it cannot; NULL: it can, and the rest counts */
    const char *pointless; /* why it would be no gain, whatever it takes; NULL: it may be one */
    uint64_t ns;           /* predicted; MPATH_ALGORITHM_UNPREDICTED: nobody knows, and it is the last choice */
} mpath_verdict_t;

typedef struct mpath_question mpath_question_t;

typedef struct mpath_algorithm {
    const char *name; /* in the parameter, the log and mpath_info --why; NULL ends a table */
    const char *what; /* a line for people */
    uint32_t memories;
    int has_plan; /* it moves data by what mpath_question_t.plan() makes */
    /* NULL, or why it cannot carry the call. The same on all ranks; looks at nothing but the question. */
    const char *(*able)(const mpath_question_t *question);
    /* Of a row that is able: fills in the rest. */
    void (*cost)(const mpath_question_t *question, mpath_verdict_t *verdict);
    /* Carries the call, which its collective describes. NULL: the previous function, which the caller of mpath runs. */
    mpath_status_t (*run)(void *call);
} mpath_algorithm_t;

/* A call, as the rows see it. Who asks fills in what its collective has. */
struct mpath_question {
    mpath_operation_t collective;
    uint32_t memory; /* MPATH_ON_ */
    const mpath_settings_t *settings;
    const mpath_topo_t *topo;
    uint64_t bytes;                 /* Alltoallv: that the busiest rank sends or receives; else of the whole vector */
    uint64_t largest_bytes;         /* to one other rank, were each sent its part */
    int agreed, finished;           /* the ranks have agreed, and all data has travelled inside */
    const char *obstacle;           /* why no route of a plan, and no pipeline, can carry it; NULL: they can */
    const char *tuner;              /* why that row is the fastest which `tuned` says; NULL: nothing says so */
    const mpath_algorithm_t *tuned; /* NULL: the previous function */
    const mpath_algorithm_t *forced;
    int insists; /* it is forced by a rule for just this memory */
    /* Alltoallv */
    uint64_t between_bytes;                /* from node to node */
    int by_pairs;                          /* the plan is made by pairs of nodes */
    const mpath_gate_forecast_t *forecast; /* NULL: not made */
    /*
     * Makes the plan, and the forecast where times decide; called once, and only if a row could take it. Sets the
     * obstacle where there is no plan, and `tuner` where trials of routes decide. An error is this rank's own, or has broken
     * the team. NULL: nothing is to be made.
     */
    mpath_status_t (*plan)(mpath_question_t *question);
    void *planner; /* whose call it is */
    /* On device memory */
    const char *node_obstacle; /* why the GPUs of a node cannot carry it among themselves; NULL: they can */
    const char *copy_obstacle; /* why copies in host memory are left to the previous function; NULL: they are not */
    const mpath_peer_rates_t *rates; /* of copies between the GPUs of a node, before the agreement; NULL: not known */
    /* Reductions and gathers */
    unsigned flags;             /* MPATH_SHARE_ */
    const mpath_share_t *share; /* whose predictions count */
};

#define MPATH_ALGORITHM_ROWS 8

typedef struct mpath_decision {
    const mpath_algorithm_t *algorithm;             /* the row that carries the call */
    const char *because;                            /* static text */
    mpath_verdict_t verdicts[MPATH_ALGORITHM_ROWS]; /* by row */
} mpath_decision_t;

/* The table of a collective: the last row is the previous function. */
const mpath_algorithm_t *mpath_algorithms(mpath_operation_t collective);
/* Its row of that name; NULL: there is none. */
const mpath_algorithm_t *mpath_algorithm_find(mpath_operation_t collective, const char *name);
/* "alltoallv", and the collective of a name, in which MPI_Alltoall is an Alltoallv; 0: none. */
const char *mpath_collective_name(mpath_operation_t collective);
mpath_operation_t mpath_collective_find(const char *name, size_t length);
/* "MPI_Alltoallv", as users call it; NULL: none of them. */
const char *mpath_collective_text(mpath_operation_t collective);

/* Local, pure but for question->plan(), whose error it returns. */
mpath_status_t mpath_choose(mpath_question_t *question, mpath_decision_t *decision);

static inline int mpath_algorithm_is_previous(const mpath_algorithm_t *algorithm)
{
    return algorithm->run == NULL;
}

/* The rows of the tables, by who has them. */
extern const mpath_algorithm_t mpath_alltoallv_algorithms[], mpath_allreduce_algorithms[],
    mpath_reduce_scatter_algorithms[], mpath_allgather_algorithms[];

#endif
