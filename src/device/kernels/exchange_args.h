/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments of the kernel that exchanges short messages between GPUs and is started before the ranks have agreed:
 * shared by the host code, exchange.cuh and the fake driver of the tests.
 */
#ifndef MPATH_DEVICE_KERNELS_EXCHANGE_ARGS_H
#define MPATH_DEVICE_KERNELS_EXCHANGE_ARGS_H

#include "device/kernels/eager_args.h"

#define MPATH_KERNEL_EXCHANGE "mpath_kernel_exchange"
#define MPATH_EXCHANGE_RANKS 16

/* A message, of any length and alignment; the side that is a slot is a multiple of 16. */
typedef struct mpath_kernel_message {
    uint64_t source, target;
    uint64_t bytes;
    uint64_t end; /* units of this message and of those before it */
} mpath_kernel_message_t;

/*
 * Each message is written to a slot in the memory of its receiver's rank, MPATH_EAGER_UNIT_BYTES and the number of the
 * call at a time, and copied by the receiver from there to its place. Who receives less or more than was sent waits in
 * vain, or leaves the rest: the agreement tells of it. What a rank sends to itself is copied without a slot.
 *
 * A launch waits no longer than `patience_ns`, nor once the word `stop` in its memory has the number of the call. After
 * that the same call may be launched `again`, which sends nothing.
 *
 * Memory of a rank, zeroed at the start: mpath_exchange_head_t; slots [number % 2][rank]. A call's slots may be used
 * again by the next but one: who starts call k has ended k - 1, for which all others have ended k - 2.
 */
typedef struct mpath_kernel_exchange {
    uint64_t number; /* of the call; 0: that of the last call and one */
    uint64_t words;  /* host memory, one for each CTA: get the number of the call at the end */
    uint64_t patience_ns;
    uint64_t memory;           /* the rank's own */
    uint64_t generation_bytes; /* from a slot to the same one of the next call; slots are told of those of even calls */
    uint32_t send_count, receive_count;
    uint32_t again, reserved;
    mpath_kernel_message_t send[MPATH_EXCHANGE_RANKS];    /* to slots of others */
    mpath_kernel_message_t receive[MPATH_EXCHANGE_RANKS]; /* from the own slots, but for the last one: to itself */
} mpath_kernel_exchange_t;

typedef struct mpath_exchange_head {
    uint64_t counters[MPATH_EAGER_CTAS];
    uint64_t stop;
    uint64_t reserved[63];
} mpath_exchange_head_t;

#define MPATH_EXCHANGE_MEMORY_BYTES(_ranks, _slot_bytes)                                                               \
    (sizeof(mpath_exchange_head_t) + UINT64_C(2) * (_ranks) * (_slot_bytes))

#endif
