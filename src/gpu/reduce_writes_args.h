/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments and names of the kernels that reduce with nothing but writes between GPUs: shared by the host code,
 * reduce_writes.cuh and the fake driver of the tests. One for each operation and type,
 * "mpath_kernel_writes_<operation>_<type>".
 */
#ifndef MPATH_GPU_REDUCE_WRITES_ARGS_H
#define MPATH_GPU_REDUCE_WRITES_ARGS_H

#include "gpu/reduce_args.h"

#define MPATH_KERNEL_WRITES "mpath_kernel_writes_"

/* CTAs of every rank; all of them have to run at once. */
#define MPATH_WRITES_CTAS 128u

/* Tiles of each other rank that a CTA has memory for, and how many it is ahead with what it sends. */
#define MPATH_WRITES_DEPTH 4u
#define MPATH_WRITES_AHEAD 2u

/* Steps of a call: its number, then turns. */
#define MPATH_WRITES_TURN_BITS 24

/*
 * The vector has a part for each rank, and parts have tiles. CTA c of each rank works on tiles c, c + CTAs, ... of all
 * parts, one in a turn: it writes its own tile of every other rank's part into that rank's memory; two turns later it
 * combines what has come for this rank's part, in the order of the ranks, and writes the result to all targets.
 *
 * Memory of a rank, `memory`: steps that others write, [CTA][2][rank] (a tile has come; a tile of mine has been used),
 * then tiles, [CTA][turn % DEPTH][other rank][tile_bytes]. Steps only grow, from zeroed memory on.
 */
typedef struct mpath_kernel_writes {
    mpath_kernel_control_t control;
    uint64_t number;     /* of the call */
    uint64_t stop;       /* address of a word of host memory: the kernel gives up when it is `number` or greater */
    uint64_t tile_bytes; /* a multiple of 16 and of the element */
    uint64_t
        pace_ns; /* for each tile that a CTA writes to another GPU, at least; 0 but where a slower port is emulated */
    uint32_t ranks, me;
    mpath_kernel_word_t flags[2];
    uint64_t send; /* this rank's vector */
    uint64_t part_offsets[MPATH_KERNEL_REDUCE_RANKS], part_bytes[MPATH_KERNEL_REDUCE_RANKS];
    uint64_t targets[MPATH_KERNEL_REDUCE_RANKS]; /* results, by rank; multiples of 16, as `send` */
    uint64_t memory[MPATH_KERNEL_REDUCE_RANKS];  /* by rank */
} mpath_kernel_writes_t;

#define MPATH_WRITES_STEPS_BYTES(_ranks) (MPATH_WRITES_CTAS * 2u * (_ranks)*8u)
#define MPATH_WRITES_MEMORY_BYTES(_ranks, _tile_bytes)                                                                 \
    (MPATH_WRITES_STEPS_BYTES(_ranks) +                                                                                \
     (uint64_t)MPATH_WRITES_CTAS * MPATH_WRITES_DEPTH * ((_ranks)-1u) * (_tile_bytes))

/* X(operation, type) for every kernel. */
#define MPATH_WRITES_KERNELS(X)                                                                                        \
    X(sum, f32)                                                                                                        \
    X(sum, f64)                                                                                                        \
    X(sum, u32)                                                                                                        \
    X(sum, u64)                                                                                                        \
    X(max, f32)                                                                                                        \
    X(max, f64)                                                                                                        \
    X(max, i32)                                                                                                        \
    X(max, i64)                                                                                                        \
    X(min, f32)                                                                                                        \
    X(min, f64)                                                                                                        \
    X(min, i32)                                                                                                        \
    X(min, i64)

#endif
