/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments and names of the kernels that reduce with nothing but writes between GPUs: shared by the host code,
 * reduce_writes.cuh and the fake driver of the tests. Two for each operation and type,
 * "mpath_kernel_writes_<operation>_<type>", which send all to all, and "mpath_kernel_ring_<operation>_<type>".
 */
#ifndef MPATH_DEVICE_KERNELS_REDUCE_WRITES_ARGS_H
#define MPATH_DEVICE_KERNELS_REDUCE_WRITES_ARGS_H

#include "device/kernels/reduce_args.h"

#define MPATH_KERNEL_WRITES "mpath_kernel_writes_"
#define MPATH_KERNEL_RING "mpath_kernel_ring_"

/* CTAs of every rank; all of them have to run at once. */
#define MPATH_WRITES_CTAS 128u

/* Tiles of each other rank that a CTA has memory for, and how many it is ahead with what it sends. */
#define MPATH_WRITES_DEPTH 4u
#define MPATH_WRITES_AHEAD 2u

/*
 * CTAs of every rank in a ring at most, tiles that one has memory for, groups that begin one after the other, and the
 * longest tile: passes of a CTA's threads. No multiprocessor has two of them, so that other kernels can run beside them.
 */
#define MPATH_RING_CTAS 128u
#define MPATH_RING_DEPTH 3u
#define MPATH_RING_GROUPS 4u
#define MPATH_RING_DEEP 4u /* vectors of 16 bytes of a thread in a pass */
#define MPATH_RING_TILE_MAX (2u * MPATH_RING_DEEP * 16u * MPATH_KERNEL_THREADS)

/* Steps of a call: its number, then turns, or tiles in a ring. */
#define MPATH_WRITES_TURN_BITS 24

/*
 * The vector has a part for each rank, and parts have tiles. CTA c of each rank works on tiles c, c + CTAs, ... of all
 * parts, one in a turn: it writes its own tile of every other rank's part into that rank's memory; two turns later it
 * combines what has come for this rank's part, in the order of the ranks, and writes the result to all targets.
 *
 * Memory of a rank, `memory`: steps that others write, [CTA][2][rank] (a tile has come; a tile of mine has been used),
 * those of the ring, then tiles, [CTA][turn % MPATH_WRITES_DEPTH][other rank][tile_bytes]. Steps only grow, from zeroed
 * memory on.
 *
 * In a ring each rank writes to the next one only, so that no port serves two at once. The parts are the same, and so
 * are the tiles of a CTA. The tile of rank r's part begins its path at rank r + 1, whose elements travel to r + 2, are
 * combined there with what r + 2 has, travel on, and are the result at rank r; from there the result goes once round.
 * A tile of each part is on its way at a time, one step of a CTA apart: 2 (n - 1) steps, each of which waits for the
 * tile before it and ends with a word of the CTA at the next rank. In the first n - 1 steps of a turn tiles are written
 * to `memory`, once the next rank has signalled that it has used what was there, then to the next target.
 *
 * Of the ring in `memory`: two words of each CTA (how many steps the rank before has done; how many tiles in memory the
 * next rank has used), MPATH_RING_WORD_BYTES each; tiles, in the place of the other ones,
 * [CTA][tile % MPATH_RING_DEPTH][tile_bytes]. In a call both count from its number, shifted by MPATH_WRITES_TURN_BITS,
 * on.
 */
typedef struct mpath_kernel_writes {
    mpath_kernel_control_t control;
    uint64_t number;     /* of the call */
    uint64_t stop;       /* address of a word of host memory: the kernel gives up when it is `number` or greater */
    uint64_t timeout_ns; /* and after such a time; it then writes no flag */
    uint64_t tile_bytes; /* a multiple of 16 and of the element */
    uint64_t stagger_ns; /* of a ring: groups of CTAs begin so long after each other */
    uint32_t ranks, me;
    mpath_kernel_word_t flags[2];
    uint64_t send; /* this rank's vector */
    uint64_t part_offsets[MPATH_KERNEL_REDUCE_RANKS], part_bytes[MPATH_KERNEL_REDUCE_RANKS];
    uint64_t targets[MPATH_KERNEL_REDUCE_RANKS]; /* results, by rank; multiples of 16, as `send` */
    uint64_t memory[MPATH_KERNEL_REDUCE_RANKS];  /* by rank */
} mpath_kernel_writes_t;

#define MPATH_WRITES_STEPS_BYTES(_ranks) (MPATH_WRITES_CTAS * 2u * (_ranks)*8u)
#define MPATH_RING_WORD_BYTES 64u /* a line of its own */
#define MPATH_WRITES_TILES_AT(_ranks) (MPATH_WRITES_STEPS_BYTES(_ranks) + MPATH_RING_CTAS * 2u * MPATH_RING_WORD_BYTES)
#define MPATH_WRITES_MEMORY_BYTES(_ranks, _tile_bytes)                                                                 \
    (MPATH_WRITES_TILES_AT(_ranks) + (uint64_t)MPATH_WRITES_CTAS * MPATH_WRITES_DEPTH * ((_ranks)-1u) * (_tile_bytes))

/* The longest tile of a ring of so many CTAs in that memory. */
#define MPATH_RING_TILE_BYTES(_ranks, _ctas, _tile_bytes)                                                              \
    (MPATH_WRITES_CTAS * MPATH_WRITES_DEPTH * ((_ranks)-1u) * (_tile_bytes) / (MPATH_RING_DEPTH * (_ctas)))

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
