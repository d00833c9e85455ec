/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of the symmetric collectives, for coll/reduction.c, coll/entry.c and coll/learn.c. */
#ifndef MPATH_COLL_REDUCTION_PRIVATE_H
#define MPATH_COLL_REDUCTION_PRIVATE_H

#include "tune/nic_rates.h"
#include "tune/doubt.h"
#include "coll/algorithm.h"
#include "coll/reduction.h"
#include "coll/tuning.h"
#include "node/reduce.h"
#include "team/agree.h"
#include "tune/function.h"
#include "util/param.h"

#define SYMMETRIC_CLASSES 3 /* of sizes, see coll/learn.c */

/*
 * What has been learned about rails: by operation (those of mpath_operation_t that move by the engine) and size class.
 */
typedef struct mpath_symmetric_adapt {
    int started;  /* the engine has run, stored rates are loaded */
    int measures; /* rails are still to be measured, unless something is known of them by then */
    mpath_nics_t rates[3][SYMMETRIC_CLASSES]; /* of rails; all zero: there are none yet */
    unsigned unseen[3][SYMMETRIC_CLASSES];    /* calls without rails that have become too slow */
} mpath_symmetric_adapt_t;

struct mpath_symmetric {
    mpath_team_t *team;
    const mpath_settings_t *settings;
    mpath_tuning_t tuning;
    mpath_coll_t *coll;
    mpath_share_t *share;
    mpath_share_t *judge;  /* whose predictions decide with `deterministic`: as if no rail failed; else NULL */
    unsigned topo_version; /* of the team's topology that share and adapt belong to */
    mpath_symmetric_adapt_t adapt;
    int size, rank;
    /* [size] each: the agreement's row and column, and blocks */
    uint64_t *send_bytes, *send_offsets, *recv_bytes, *recv_offsets, *elements;
    int *order; /* ranks in the order of combination: by node, then rank */
    char *scratch;
    uint64_t scratch_bytes;
    mpath_coll_counters_t counters;
    const char *declined_because;
    const char *host_because;  /* why the call under way is to be declined on host memory; NULL: it is not */
    mpath_question_t question; /* of the call under way, on host memory */
    uint32_t agreed_flags;     /* of the call under way */
    mpath_doubt_t doubts[3];   /* of calls on host memory, by operation like rates */
    uint64_t bytes;            /* of the whole vector of the call under way */
    /* Device memory, once all ranks use GPUs: on one node, else NULL; on several */
    mpath_symmetric_gpu_t *gpu;
    int over_nodes;
    int tries_gathers;      /* there: every rank's MPI knows devices */
    mpath_trials_t gathers; /* of functions (tune/function.h), then */
};

/*
 * Whether the previous function carries an Allgather of so many bytes on device memory as it is, because it is faster in
 * such calls, or that is tried: the same on all ranks. Collective now and then; an error breaks the team.
 */
mpath_status_t mpath_symmetric_ask_gathers(mpath_symmetric_t *symmetric, uint64_t bytes, int *previous_p);

/*
 * Before the agreement, from what is the same on all ranks: MPATH_OK to go on; an error of this rank breaks the team.
 * `bytes` is the size of the whole vector, `largest` that of the largest message between two ranks if it travelled in the
 * agreement. With `gpus` also where it gains in device memory alone.
 */
mpath_status_t mpath_symmetric_gate(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes,
                                    uint64_t largest, int gpus);

/* Of a call that may be made again on the host, which counts it then if it is declined: `declined` is from before it. */
static inline mpath_status_t mpath_symmetric_uncounted(mpath_symmetric_t *symmetric, uint64_t declined,
                                                       mpath_status_t status)
{
    symmetric->counters.declined = declined;
    return status;
}

/* Numbers the operations of the engine. */
static inline int mpath_symmetric_index(mpath_operation_t operation)
{
    return (int)operation - (int)MPATH_OPERATION_ALLREDUCE;
}

/* coll/learn.c: whether calls of so many bytes show what rails carry; the same on all ranks. */
int mpath_symmetric_adapts(const mpath_symmetric_t *symmetric, uint64_t bytes);
/* Of another topology, or none: nothing was learned. */
void mpath_symmetric_adapt_forget(mpath_symmetric_t *symmetric);
/* Flags of a call, and before and after a run of the engine. Collective now and then; errors end the call. */
uint32_t mpath_symmetric_adapt_call_flags(const mpath_symmetric_t *symmetric);
mpath_status_t mpath_symmetric_adapt_before(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes);
mpath_status_t mpath_symmetric_adapt_after(mpath_symmetric_t *symmetric, mpath_operation_t operation, unsigned flags,
                                           uint64_t bytes);

#endif
