/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the MPI test of reductions: cases about types. Each returns the number of errors of this rank of MPI_COMM_WORLD.
 */
#ifndef MPATH_TESTS_MPI_REDUCTION_TYPES_H
#define MPATH_TESTS_MPI_REDUCTION_TYPES_H

/*
 * Every predefined type with every predefined operation, combined exactly; those that the MPI does not define are
 * errors.
 */
long case_types(int rank);
/* Sums of floating point numbers that have to be rounded, half precision included, against a longer reference. */
long case_rounded(int rank, int size);
/* Sums and products that GPUs make of device memory; prints how many calls of MPI_Allreduce these are. */
long case_complex_and_half(int rank);

#endif
