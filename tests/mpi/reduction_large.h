/* SPDX-License-Identifier: BSD-3-Clause */
/* Allreduce, Reduce_scatter_block and Allgather of more than 2^31 bytes; errors. */
#ifndef MPATH_TESTS_MPI_REDUCTION_LARGE_H
#define MPATH_TESTS_MPI_REDUCTION_LARGE_H

long reductions_large(void);
long reductions_large_scatter(void);
long reductions_large_gather(void);

#endif
