/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of the reduction kernels: values of every type, and what each operation makes of two of them. */
#ifndef MPATH_TESTS_UNIT_REDUCE_REFERENCE_H
#define MPATH_TESTS_UNIT_REDUCE_REFERENCE_H

#include "device/kernels/reduce.h"

#define REFERENCE_OPS (MPATH_REDUCE_MINLOC + 1)
#define REFERENCE_TYPES (MPATH_REDUCE_I64_AT + 1)

/* What elements with a hole have there: what memory was filled with, for a kernel may copy it or leave it alone. */
#define REFERENCE_HOLE 0x5a

/* Zero for half precision where the compiler lacks the type: the tests of other compilers have it. */
int reference_is_tested(mpath_reduce_type_t type);

/*
 * Writes element `index` of a rank's vector. Small numbers, so that reals are exact and values meet again; places
 * differ by rank. Half precision and complex numbers are rounded in every step; some complex ones are infinite, and
 * multiplied such that no part of a product is a number until C's rules say so.
 */
void reference_fill(mpath_reduce_type_t type, unsigned char *to, uint64_t index, unsigned rank);

/* sum = sum op next, for one element of any alignment. */
void reference_combine(const mpath_reduce_how_t *how, unsigned char *sum, const unsigned char *next);

#endif
