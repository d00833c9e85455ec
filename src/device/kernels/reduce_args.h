/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments and names of the reduction kernels: shared by the host code, reduce.cuh and the fake driver of the tests.
 * There is one kernel for each operation and type, "mpath_kernel_reduce_<operation>_<type>". Where the sign does not
 * matter, signed integers share the kernel of the unsigned ones.
 */
#ifndef MPATH_DEVICE_KERNELS_REDUCE_ARGS_H
#define MPATH_DEVICE_KERNELS_REDUCE_ARGS_H

#include "device/kernels/kernel_args.h"

#define MPATH_KERNEL_REDUCE "mpath_kernel_reduce_"
#define MPATH_KERNEL_REDUCE_RANKS 16

/*
 * Combines element by element what lies at the sources, in their order, and writes the result to every target. A target
 * may be a source, and otherwise no two ranges overlap. All addresses are multiples of the type's alignment.
 *
 * A launch that repeats with the same arguments (device/graph.h) has no use for the control's counts: the flags get the
 * value that `number` holds.
 */
typedef struct mpath_kernel_reduce {
    mpath_kernel_control_t control;
    uint64_t number;   /* address of a word of host memory; 0: a launch of its own */
    uint64_t counters; /* of a launch that repeats: address of the stream's mpath_kernel_counters_t */
    uint64_t elements;
    uint32_t sources_count, targets_count;
    uint32_t first, reserved; /* the source that is read first, so that GPUs do not all read from the same one */
    mpath_kernel_word_t flags[2];
    uint64_t sources[MPATH_KERNEL_REDUCE_RANKS];
    uint64_t targets[MPATH_KERNEL_REDUCE_RANKS];
} mpath_kernel_reduce_t;

typedef int8_t mpath_reduce_i8_t;
typedef int16_t mpath_reduce_i16_t;
typedef int32_t mpath_reduce_i32_t;
typedef int64_t mpath_reduce_i64_t;
typedef uint8_t mpath_reduce_u8_t;
typedef uint16_t mpath_reduce_u16_t;
typedef uint32_t mpath_reduce_u32_t;
typedef uint64_t mpath_reduce_u64_t;
typedef float mpath_reduce_f32_t;
typedef double mpath_reduce_f64_t;

/* IEEE binary16: combined as float and rounded, which gives the bits of arithmetic in half precision. */
typedef struct mpath_reduce_f16 {
    uint16_t bits;
} mpath_reduce_f16_t;

/* As C, C++ and Fortran keep complex numbers; aligned as their parts. */
typedef struct mpath_reduce_c64 {
    float real, imag;
} mpath_reduce_c64_t;

typedef struct mpath_reduce_c128 {
    double real, imag;
} mpath_reduce_c128_t;

/* A value and where it is, for MINLOC and MAXLOC: of equal values the lowest place wins. */
typedef struct mpath_reduce_f32_at {
    float value;
    int32_t place;
} mpath_reduce_f32_at_t;

typedef struct mpath_reduce_f64_at {
    double value;
    int32_t place;
} mpath_reduce_f64_at_t;

typedef struct mpath_reduce_i32_at {
    int32_t value;
    int32_t place;
} mpath_reduce_i32_at_t;

typedef struct mpath_reduce_i64_at {
    int64_t value;
    int32_t place;
} mpath_reduce_i64_at_t;

/* X(operation, type) for every kernel. */
#define MPATH_REDUCE_UNSIGNED(X, _op) X(_op, u8) X(_op, u16) X(_op, u32) X(_op, u64)
#define MPATH_REDUCE_SIGNED(X, _op) X(_op, i8) X(_op, i16) X(_op, i32) X(_op, i64)
#define MPATH_REDUCE_FLOATS(X, _op) X(_op, f32) X(_op, f64)
#define MPATH_REDUCE_COMPLEX(X, _op) X(_op, c64) X(_op, c128)
#define MPATH_REDUCE_PLACES(X, _op) X(_op, f32_at) X(_op, f64_at) X(_op, i32_at) X(_op, i64_at)
#define MPATH_REDUCE_NUMBERS(X, _op) MPATH_REDUCE_UNSIGNED(X, _op) MPATH_REDUCE_FLOATS(X, _op)
#define MPATH_REDUCE_KERNELS_HALF(X) X(sum, f16) X(prod, f16) X(max, f16) X(min, f16)
#define MPATH_REDUCE_KERNELS_WHOLE(X)                                                                                  \
    MPATH_REDUCE_NUMBERS(X, sum)                                                                                       \
    MPATH_REDUCE_COMPLEX(X, sum)                                                                                       \
    MPATH_REDUCE_NUMBERS(X, prod)                                                                                      \
    MPATH_REDUCE_COMPLEX(X, prod)                                                                                      \
    MPATH_REDUCE_NUMBERS(X, max)                                                                                       \
    MPATH_REDUCE_SIGNED(X, max)                                                                                        \
    MPATH_REDUCE_NUMBERS(X, min)                                                                                       \
    MPATH_REDUCE_SIGNED(X, min)                                                                                        \
    MPATH_REDUCE_UNSIGNED(X, band)                                                                                     \
    MPATH_REDUCE_UNSIGNED(X, bor)                                                                                      \
    MPATH_REDUCE_UNSIGNED(X, bxor)                                                                                     \
    MPATH_REDUCE_UNSIGNED(X, land)                                                                                     \
    MPATH_REDUCE_UNSIGNED(X, lor)                                                                                      \
    MPATH_REDUCE_UNSIGNED(X, lxor)                                                                                     \
    MPATH_REDUCE_PLACES(X, maxloc)                                                                                     \
    MPATH_REDUCE_PLACES(X, minloc)
#define MPATH_REDUCE_KERNELS(X) MPATH_REDUCE_KERNELS_WHOLE(X) MPATH_REDUCE_KERNELS_HALF(X)

#endif
