/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Allreduce, MPI_Reduce_scatter and MPI_Allgather with buffers in device memory: what libmpath lets the GPUs do
 * themselves. Asked before anything else, on communicators of several nodes also for what turns out to be host memory on
 * all ranks. MPATH_DECLINED, on all ranks alike: the function for host memory serves the call, on copies.
 */
#ifndef COLL_MPATH_SYMMETRIC_DEVICE_H
#define COLL_MPATH_SYMMETRIC_DEVICE_H

#include "coll_mpath_stage.h"
#include "coll_mpath_symmetric.h"

/*
 * True: the ranks do not ask each other about devices in this call, which is counted; see
 * mca_coll_mpath_symmetric_passes(), also for `bytes`.
 */
bool mca_coll_mpath_symmetric_device_passes(mca_coll_mpath_module_t *module, uint64_t bytes);

/* `sides` as for mca_coll_mpath_stage_open(), which has not been called yet. */
mpath_status_t mca_coll_mpath_allreduce_device(mca_coll_mpath_module_t *module, const mca_coll_mpath_stage_t *sides,
                                               struct ompi_op_t *op);
/* `blocks` says how many elements each rank gets. */
mpath_status_t mca_coll_mpath_reduce_scatter_device(mca_coll_mpath_module_t *module,
                                                    const mca_coll_mpath_stage_t *sides,
                                                    const mca_coll_mpath_args_t *blocks, struct ompi_op_t *op);
/*
 * Before it: *previous_p says whether the previous function serves the call, on device memory as it is, because it is
 * faster in such calls, or that is tried; the same on all ranks. Not MPATH_OK: the call fails. `bytes`: of all blocks
 * together.
 */
mpath_status_t mca_coll_mpath_allgather_choose(mca_coll_mpath_module_t *module, uint64_t bytes, bool *previous_p);
/* The call has ended, whoever served it. */
void mca_coll_mpath_allgather_ended(mca_coll_mpath_module_t *module);
/* `bytes`: of all blocks together. */
mpath_status_t mca_coll_mpath_allgather_device(mca_coll_mpath_module_t *module, const mca_coll_mpath_stage_t *sides,
                                               uint64_t bytes);

#endif
