/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives of the MPI tests, on copies of their host buffers in the kinds of memory that MPATH_TEST_MEMORY names
 * (mpi/memory.h); without it on the buffers themselves. Behind each result lie at least DEVICE_GUARD bytes, which are
 * compared too.
 */
#ifndef MPATH_TESTS_MPI_DEVICE_CALLS_H
#define MPATH_TESTS_MPI_DEVICE_CALLS_H

#include <mpi.h>

#define DEVICE_GUARD 64

int device_allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int device_reduce_scatter(const void *send, void *recv, const int *counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int device_reduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int device_allgather(const void *send, int send_count, void *recv, int recv_count, MPI_Datatype type, MPI_Comm comm);
int device_allgatherv(const void *send, int send_count, void *recv, const int *counts, const int *displs,
                      MPI_Datatype type, MPI_Comm comm);

#endif
