/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments and names of the kernels for short vectors, in which every GPU sends its vector to all at once: shared by
 * the host code, reduce_eager.cuh and the fake driver of the tests. One for each operation and type,
 * "mpath_kernel_eager_<operation>_<type>".
 */
#ifndef MPATH_DEVICE_KERNELS_REDUCE_EAGER_ARGS_H
#define MPATH_DEVICE_KERNELS_REDUCE_EAGER_ARGS_H

#include "device/kernels/eager_args.h"
#include "device/kernels/reduce_args.h"

#define MPATH_KERNEL_EAGER "mpath_kernel_eager_"

/*
 * A rank's vector is written to the memory of every rank, the own one included, 8 bytes and the number of the call at a
 * time. Whoever finds the number beside them has the bytes: nothing else tells that they have come. Then the vectors
 * are combined in the order of the ranks, and the result goes to `recv`, which may be `send`.
 *
 * A launch waits no longer than `patience_ns`. After that the same call is launched `again` with its number: what was
 * sent lies in the own memory as well, so `send` is not looked at any more.
 *
 * Memory of a rank, zeroed at the start: the number of the last call, for each CTA; slots [number %
 * 2][rank][slot_bytes]. A call's slots may be used again by the next but one: who starts call k has ended k - 1, for
 * which all others have ended k - 2.
 */
typedef struct mpath_kernel_eager {
    uint64_t number;   /* of the call; 0: that of the last call and one */
    uint64_t elements; /* a slot holds them */
    uint64_t send, recv;
    uint64_t words; /* host memory, one for each CTA: get the number of the call at the end */
    uint64_t patience_ns;
    uint64_t slot_bytes;
    uint32_t ranks, me;
    uint32_t again, reserved;
    uint64_t memory[MPATH_KERNEL_REDUCE_RANKS]; /* by rank; multiples of 16 */
} mpath_kernel_eager_t;

#define MPATH_EAGER_MEMORY_BYTES(_ranks, _slot_bytes)                                                                  \
    (MPATH_EAGER_COUNTERS_BYTES + UINT64_C(2) * (_ranks) * (_slot_bytes))

/*
 * The same for longer vectors, "mpath_kernel_eager_parts_<operation>_<type>": of each, every rank gets the part that it
 * combines, and sends the result to all. Who has a unit of the result knows that all ranks have sent theirs, so `recv`
 * may be `send` here, too, and nothing is written to it unless all ranks have started.
 *
 * Numbers have 32 bits here, and three units travel in two pairs of 64 bits: the third one's halves and a number each
 * are the second of a pair. A group is what a warp sends: unit `lane` of each third of its units, as all first pairs and
 * behind them all second ones. Numbers end at MPATH_EAGER_PARTS_CALLS; memory is zeroed before they begin again.
 *
 * Memory of a rank: as above; slots [number % 2][vectors, results][rank][slot_bytes], of groups.
 */
#define MPATH_KERNEL_EAGER_PARTS "mpath_kernel_eager_parts_"
#define MPATH_EAGER_PARTS_CALLS UINT64_C(0xffffffff)
#define MPATH_EAGER_LANES 32u
#define MPATH_EAGER_GROUP_BYTES (3u * MPATH_EAGER_LANES * MPATH_EAGER_UNIT_BYTES)
#define MPATH_EAGER_GROUP_SLOT_BYTES (2u * MPATH_EAGER_LANES * 16u)
#define MPATH_EAGER_GROUPS(_bytes) (((_bytes) + MPATH_EAGER_GROUP_BYTES - 1) / MPATH_EAGER_GROUP_BYTES)
/* Of each rank's part but for the last ones, which have fewer or none. */
#define MPATH_EAGER_PART_GROUPS(_ranks, _bytes) ((MPATH_EAGER_GROUPS(_bytes) + (_ranks)-1) / (_ranks))
#define MPATH_EAGER_PARTS_SLOT_BYTES(_ranks, _bytes)                                                                   \
    (MPATH_EAGER_PART_GROUPS(_ranks, _bytes) * MPATH_EAGER_GROUP_SLOT_BYTES)
#define MPATH_EAGER_PARTS_MEMORY_BYTES(_ranks, _slot_bytes)                                                            \
    (MPATH_EAGER_COUNTERS_BYTES + UINT64_C(4) * (_ranks) * (_slot_bytes))

/* X(operation, type) for every kernel: what is common and fits a unit. */
#define MPATH_EAGER_KERNELS_HALF(X) X(sum, f16) X(prod, f16) X(max, f16) X(min, f16)
#define MPATH_EAGER_KERNELS_WHOLE(X)                                                                                   \
    X(sum, f32)                                                                                                        \
    X(sum, f64)                                                                                                        \
    X(sum, u32)                                                                                                        \
    X(sum, u64)                                                                                                        \
    X(prod, f32)                                                                                                       \
    X(prod, f64)                                                                                                       \
    X(max, f32)                                                                                                        \
    X(max, f64)                                                                                                        \
    X(max, i32)                                                                                                        \
    X(max, i64)                                                                                                        \
    X(min, f32)                                                                                                        \
    X(min, f64)                                                                                                        \
    X(min, i32)                                                                                                        \
    X(min, i64)                                                                                                        \
    X(band, u32)                                                                                                       \
    X(band, u64)                                                                                                       \
    X(bor, u32)                                                                                                        \
    X(bor, u64)                                                                                                        \
    X(land, u32)                                                                                                       \
    X(lor, u32)
#define MPATH_EAGER_KERNELS(X) MPATH_EAGER_KERNELS_WHOLE(X) MPATH_EAGER_KERNELS_HALF(X)

#endif
