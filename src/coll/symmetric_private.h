/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of the symmetric collectives, for allreduce.c, reduce_scatter.c, allgather.c and symmetric*.c. */
#ifndef MPATH_COLL_SYMMETRIC_PRIVATE_H
#define MPATH_COLL_SYMMETRIC_PRIVATE_H

#include "adapt/rates.h"
#include "coll/doubt.h"
#include "coll/symmetric.h"
#include "exec/agree.h"
#include "util/param.h"

#define SYMMETRIC_CLASSES 3 /* of sizes, see symmetric_adapt.c */

/*
 * What has been learned about rails: by operation (those of mpath_operation_t that move by the engine) and size class.
 */
typedef struct mpath_symmetric_adapt {
    int started;  /* the engine has run, stored rates are loaded */
    int measures; /* rails are still to be measured, unless something is known of them by then */
    mpath_rates_t rates[3][SYMMETRIC_CLASSES];
    int known[3][SYMMETRIC_CLASSES];       /* rates are in use */
    unsigned unseen[3][SYMMETRIC_CLASSES]; /* calls without rails that have become too slow */
} mpath_symmetric_adapt_t;

struct mpath_symmetric {
    mpath_team_t *team;
    const mpath_settings_t *settings;
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
    const char *host_because; /* why the call under way is to be declined on host memory; NULL: it is not */
    uint32_t agreed_flags;    /* of the call under way */
    mpath_doubt_t doubts[3];  /* of calls on host memory, by operation like rates */
    uint64_t bytes;           /* of the whole vector of the call under way */
};

/*
 * Before the agreement, from what is the same on all ranks: MPATH_OK to go on; an error of this rank breaks the team.
 * `algorithm` is the operation's parameter, `flags` what the engine would do (MPATH_SHARE_*), `bytes` the size of the
 * whole vector, `largest` that of the largest message between two ranks if it travelled in the agreement. With `gpus`
 * also where it gains in device memory alone.
 */
mpath_status_t mpath_symmetric_gate(mpath_symmetric_t *symmetric, int algorithm, unsigned flags, uint64_t bytes,
                                    uint64_t largest, int gpus);

/* Room for `bytes` bytes, 64-byte aligned; kept for the next call. NULL when there is no memory. */
char *mpath_symmetric_scratch(mpath_symmetric_t *symmetric, uint64_t bytes);

/*
 * The agreement over what the arrays of `symmetric` say, and about device memory if the job has `gpus`: set to NULL
 * when all have their data on the host. MPATH_OK: all ranks go on; *finished_p says whether all data has travelled
 * inside and the algorithm may take it from there.
 */
mpath_status_t mpath_symmetric_agree(mpath_symmetric_t *symmetric, mpath_operation_t operation, int algorithm,
                                     const void *send, void *recv, int ineligible, mpath_share_job_t *job,
                                     mpath_agreed_t *agreed, int *finished_p);

/* Of a call that may be made again on the host, which counts it then if it is declined: `declined` is from before it. */
static inline mpath_status_t mpath_symmetric_uncounted(mpath_symmetric_t *symmetric, uint64_t declined,
                                                       mpath_status_t status)
{
    symmetric->counters.declined = declined;
    return status;
}

/* Combines the vectors of all ranks, which lie at multiples of `stride` from `data`; returns where the result is. */
char *mpath_symmetric_combine(const mpath_symmetric_t *symmetric, char *data, uint64_t stride, uint64_t elements,
                              const mpath_combination_t *combination);

/*
 * A run of the engine, at whose end the ranks settle if the job does. MPATH_AGAIN, on all ranks: rails have failed and are
 * left out.
 */
mpath_status_t mpath_symmetric_run(mpath_symmetric_t *symmetric, const mpath_share_job_t *job,
                                   mpath_share_stats_t *stats);

/* Runs the engine on a vector of `bytes` in total, again where rails fail, counts, and learns. Changes the job. */
mpath_status_t mpath_symmetric_share(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes,
                                     mpath_share_job_t *job);

/*
 * symmetric_resume.c: rails have failed in a run of the engine, and all ranks have settled so. Goes over to those that
 * are left; of an Allreduce what some ranks have of the results goes to all, and *job and *bytes_p are what is left to
 * do. MPATH_DECLINED: the call may be left to the previous function.
 */
mpath_status_t mpath_symmetric_resume(mpath_symmetric_t *symmetric, mpath_share_job_t *job, uint64_t *bytes_p);
/* symmetric.c: the engine for the team's present topology. */
mpath_status_t mpath_symmetric_read_topo(mpath_symmetric_t *symmetric);

/* Numbers the operations of the engine. */
static inline int mpath_symmetric_index(mpath_operation_t operation)
{
    return (int)operation - (int)MPATH_OPERATION_ALLREDUCE;
}

/* symmetric_adapt.c: whether calls of so many bytes show what rails carry; the same on all ranks. */
int mpath_symmetric_adapts(const mpath_symmetric_t *symmetric, uint64_t bytes);
/* Flags of a call, and before and after a run of the engine. Collective now and then; errors end the call. */
uint32_t mpath_symmetric_adapt_tell(const mpath_symmetric_t *symmetric);
mpath_status_t mpath_symmetric_adapt_before(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes);
mpath_status_t mpath_symmetric_adapt_after(mpath_symmetric_t *symmetric, mpath_operation_t operation, unsigned flags,
                                           uint64_t bytes);

#endif
