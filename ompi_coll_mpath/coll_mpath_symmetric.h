/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What MPI_Allreduce, MPI_Reduce_scatter and MPI_Allgather share: their sizes are the same on all ranks, so a call that
 * is too small to gain goes to the previous function without a word to anybody.
 */
#ifndef COLL_MPATH_SYMMETRIC_H
#define COLL_MPATH_SYMMETRIC_H

#include "coll_mpath.h"
#include "coll_mpath_stage.h"

/*
 * Whether the ranks' parameters are the same, so that a decision by parameters and size alone is a common one. The
 * first time on a communicator it is collective.
 */
bool mca_coll_mpath_symmetric_agreed(mca_coll_mpath_module_t *module);

/*
 * Whether libmpath is to be asked about a call of `bytes` bytes in total, `algorithm` being the operation's parameter.
 * The first time on a communicator it is collective: ranks whose parameters differ would decide differently here.
 */
bool mca_coll_mpath_symmetric_ready(mca_coll_mpath_module_t *module, int algorithm, uint64_t bytes);

/*
 * True: the call is the previous function's, on the buffers as they are and without a word to anybody. For processes
 * that use no GPU, when no operation of the communicator is under way; asked once for each call. Ranks need not do
 * alike: the long way, which begins in mca_coll_mpath_symmetric_begin(), leads there as well. `bytes` as for
 * mca_coll_mpath_symmetric_ready().
 */
bool mca_coll_mpath_symmetric_passes(mca_coll_mpath_module_t *module, int algorithm, uint64_t bytes);

/*
 * How each of these calls goes on after the GPUs have been asked, whose answer is `on_device`. True: on the buffers of
 * `stage`, with a function for host memory and mca_coll_mpath_stage_close(); false: it returns *rc_p.
 */
bool mca_coll_mpath_symmetric_begin(mca_coll_mpath_module_t *module, mca_coll_mpath_stage_t *stage,
                                    mpath_status_t on_device, int *rc_p);

/*
 * Nonzero: libmpath may be asked to combine such elements; the same on all ranks. Everything predefined that commutes.
 */
bool mca_coll_mpath_op_fits(struct ompi_op_t *op, struct ompi_datatype_t *datatype);

/* Of so many elements, gaps included: what reductions go by. */
uint64_t mca_coll_mpath_reduced_bytes(uint64_t elements, struct ompi_datatype_t *datatype);

/* How libmpath combines; lives as long as the call. */
typedef struct mca_coll_mpath_op_t {
    struct ompi_op_t *op;
    struct ompi_datatype_t *datatype;
    mpath_combination_t combination;
} mca_coll_mpath_op_t;
void mca_coll_mpath_op_init(struct ompi_op_t *op, struct ompi_datatype_t *datatype, mca_coll_mpath_op_t *work);

/* Nonzero: the buffer is no host memory, or cannot be used as it is described. */
bool mca_coll_mpath_not_on_host(const void *buffer, size_t bytes);

/* Counts the call and says who carried it; hands the status back. */
mpath_status_t mca_coll_mpath_symmetric_done(mca_coll_mpath_module_t *module, const char *name, mpath_status_t status);
/* A blocking call is over, whoever carried it, for trials. */
void mca_coll_mpath_symmetric_ended(mca_coll_mpath_module_t *module);

#endif
