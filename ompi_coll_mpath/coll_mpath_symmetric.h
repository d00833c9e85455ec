/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What MPI_Allreduce, MPI_Reduce_scatter and MPI_Allgather share: their sizes are the same on all ranks. Who carries a call is
 * decided by coll/entry.h and the tables below it, which ask here where the buffers are, and for copies of them on the host.
 */
#ifndef COLL_MPATH_SYMMETRIC_H
#define COLL_MPATH_SYMMETRIC_H

#include "coll_mpath.h"
#include "coll_mpath_stage.h"

/* A call as MPI has it, and as libmpath is told of it. */
typedef struct mca_coll_mpath_reduction_t {
    mca_coll_mpath_module_t *module;
    mca_coll_mpath_stage_t *stage; /* both sides, which lead to copies once these were made */
    mca_coll_mpath_stage_t looked; /* by mca_coll_mpath_symmetric_look() */
    mpath_reduction_t call;
} mca_coll_mpath_reduction_t;

/* The communicator is enabled. */
void mca_coll_mpath_symmetric_enable(mca_coll_mpath_module_t *module);

/* True: see mpath_entry_passes(). */
bool mca_coll_mpath_symmetric_passes(mca_coll_mpath_module_t *module, mpath_operation_t collective, uint64_t bytes);

/* Sets work->call.buffers by where they are. Of an error the others hear in the agreement. */
void mca_coll_mpath_symmetric_look(mca_coll_mpath_reduction_t *work);

/* Makes copies of the stage's sides if the host cannot read them. */
mpath_status_t mca_coll_mpath_symmetric_open(mca_coll_mpath_reduction_t *work);

/* MPATH_DECLINED: the previous function, on the buffers of the stage. Counts the call. */
mpath_status_t mca_coll_mpath_symmetric_run(mca_coll_mpath_reduction_t *work);

/* A call is over, whoever carried it: for the timeline, and for trials. */
void mca_coll_mpath_symmetric_ended(mca_coll_mpath_module_t *module);

/* Nonzero: the buffer is no host memory, or cannot be used as it is described. */
bool mca_coll_mpath_not_on_host(const void *buffer, size_t bytes);

#endif
