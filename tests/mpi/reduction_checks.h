/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the MPI tests of reductions and gathers: types, data that combine exactly, and one checked call of each
 * collective.
 */
#ifndef MPATH_TESTS_MPI_REDUCTION_CHECKS_H
#define MPATH_TESTS_MPI_REDUCTION_CHECKS_H

#include "mpi/cases.h"
#include "mpi/device_calls.h"

/* A library without Fortran has its types in name only, and those whose names tell a size not even so. */
#ifndef MPI_INTEGER1
#define MPI_INTEGER1 MPI_INTEGER
#endif
#ifndef MPI_INTEGER2
#define MPI_INTEGER2 MPI_INTEGER
#endif
#ifndef MPI_INTEGER4
#define MPI_INTEGER4 MPI_INTEGER
#endif
#ifndef MPI_INTEGER8
#define MPI_INTEGER8 MPI_INTEGER
#endif
#ifndef MPI_REAL4
#define MPI_REAL4 MPI_REAL
#define MPI_COMPLEX8 MPI_COMPLEX
#endif
#ifndef MPI_REAL8
#define MPI_REAL8 MPI_REAL
#define MPI_COMPLEX16 MPI_COMPLEX
#endif
#ifndef MPI_LOGICAL1
#define MPI_LOGICAL1 MPI_LOGICAL
#endif
#ifndef MPI_LOGICAL4
#define MPI_LOGICAL4 MPI_LOGICAL
#endif

#define GUARD DEVICE_GUARD /* bytes behind every result */

typedef enum kind {
    KIND_INTEGER,
    KIND_FORTRAN_INTEGER,
    KIND_FLOAT,
    KIND_COMPLEX,
    KIND_LOGICAL,
    KIND_BYTE,
    KIND_PAIR,
    KIND_OTHER /* for which the standard defines no operation */
} kind_t;

typedef struct type {
    MPI_Datatype handle;
    kind_t kind;
    const char *name;
} type_t;

#define TYPE(_handle, _kind)                                                                                           \
    {                                                                                                                  \
        _handle, _kind, #_handle                                                                                       \
    }

/* Zeroed memory; ends the job when there is none. */
void *reductions_get(size_t bytes);
/* Small whole numbers: whatever order they are combined in, sums and products of floating point numbers are exact. */
void reductions_fill(const type_t *type, void *data, size_t count, int source, uint32_t round);
/* What all ranks of a communicator of `size` combine to. */
void reductions_reference(const type_t *type, MPI_Op op, size_t count, int size, uint32_t round, void *result);

/*
 * One call on `comm`, on buffers of its own; each returns the number of wrong elements, bytes and guards, plus 1 for an
 * MPI error. MPI_Allreduce: the buffers begin `shift` bytes behind an aligned address.
 */
long check_allreduce(MPI_Comm comm, const type_t *type, MPI_Op op, size_t count, int in_place, size_t shift,
                     uint32_t round);
/* Nonzero `block`: MPI_Reduce_scatter_block of counts[0] elements each. */
long check_reduce_scatter(MPI_Comm comm, const type_t *type, MPI_Op op, const int *counts, int block, int in_place,
                          uint32_t round);
/* Elements of `type` with a gap at their end; a gap of two elements between blocks unless `equal` (MPI_Allgather). */
long check_allgather(MPI_Comm comm, const int *counts, int equal, int in_place, MPI_Datatype type, uint32_t round);

#endif
