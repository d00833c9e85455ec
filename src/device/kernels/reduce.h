/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Combining elements on a GPU: one launch reads a range of up to MPATH_KERNEL_REDUCE_RANKS buffers, wherever they lie,
 * combines them in the order given and writes the result to as many others.
 */
#ifndef MPATH_DEVICE_KERNELS_REDUCE_H
#define MPATH_DEVICE_KERNELS_REDUCE_H

#include "device/graph.h"
#include "device/kernels/copy.h"
#include "device/kernels/reduce_args.h"
#include "device/kernels/reduce_eager_args.h"
#include "device/kernels/reduce_writes_args.h"

typedef enum mpath_reduce_op {
    MPATH_REDUCE_SUM,
    MPATH_REDUCE_PROD,
    MPATH_REDUCE_MAX,
    MPATH_REDUCE_MIN,
    MPATH_REDUCE_BAND,
    MPATH_REDUCE_BOR,
    MPATH_REDUCE_BXOR,
    MPATH_REDUCE_LAND, /* of integers; true is 1 */
    MPATH_REDUCE_LOR,
    MPATH_REDUCE_LXOR,
    MPATH_REDUCE_MAXLOC,
    MPATH_REDUCE_MINLOC
} mpath_reduce_op_t;

typedef enum mpath_reduce_type {
    MPATH_REDUCE_I8,
    MPATH_REDUCE_I16,
    MPATH_REDUCE_I32,
    MPATH_REDUCE_I64,
    MPATH_REDUCE_U8,
    MPATH_REDUCE_U16,
    MPATH_REDUCE_U32,
    MPATH_REDUCE_U64,
    MPATH_REDUCE_F32,
    MPATH_REDUCE_F64,
    MPATH_REDUCE_F16,
    MPATH_REDUCE_C64, /* complex, of float and double: sums and products only */
    MPATH_REDUCE_C128,
    MPATH_REDUCE_F32_AT, /* with a 32-bit place: for MAXLOC and MINLOC, which take no others */
    MPATH_REDUCE_F64_AT,
    MPATH_REDUCE_I32_AT,
    MPATH_REDUCE_I64_AT
} mpath_reduce_type_t;

/* How elements are combined: the same on all ranks. */
typedef struct mpath_reduce_how {
    mpath_reduce_op_t op;
    mpath_reduce_type_t type;
} mpath_reduce_how_t;

/* Whether the operation is defined for the type. */
int mpath_reduce_fits(const mpath_reduce_how_t *how);

/* From one element to the next, and what addresses are a multiple of. */
unsigned mpath_reduce_bytes(mpath_reduce_type_t type);

unsigned mpath_reduce_alignment(mpath_reduce_type_t type);

/* As mpath_kernel_find(). `how` fits. */
mpath_status_t mpath_reduce_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                                 mpath_device_function_t *function_p);

/*
 * Enqueues. The caller has set elements, sources and targets of the arguments, and zeroed the rest; `flag` is written
 * when the results are visible everywhere; address 0: there is none.
 */
mpath_status_t mpath_launch_reduce(mpath_stream_t *stream, mpath_device_function_t function, mpath_reduce_type_t type,
                                   mpath_kernel_word_t flag, mpath_kernel_reduce_t *arguments);

/*
 * The same while a reduction by writes or round a ring (device/kernels/reduce.h) runs, which has half of the registers of
 * nearly every multiprocessor: the CTAs are so small that the other half is enough for one.
 */
mpath_status_t mpath_launch_reduce_beside(mpath_stream_t *stream, mpath_device_function_t function,
                                          mpath_reduce_type_t type, mpath_kernel_word_t flag,
                                          mpath_kernel_reduce_t *arguments);

/* The same where sources or targets are in host memory, whose link few CTAs keep busy. */
mpath_status_t mpath_launch_reduce_by_host(mpath_stream_t *stream, mpath_device_function_t function,
                                           mpath_reduce_type_t type, mpath_kernel_word_t flag,
                                           mpath_kernel_reduce_t *arguments);

/*
 * The same, to be started often: `flag` gets the value that the word at `number`, an address of pinned host memory, has
 * at the time. As mpath_repeat_create(). The arguments are completed, and may be compared afterwards.
 */
mpath_status_t mpath_repeat_reduce(mpath_stream_t *stream, mpath_device_function_t function, mpath_reduce_type_t type,
                                   mpath_device_ptr_t flag, mpath_device_ptr_t number, mpath_kernel_reduce_t *arguments,
                                   mpath_repeat_t **repeat_p);

/*
 * Reductions of short vectors over several GPUs, started on each before it is known that the others have come: a kernel
 * sends its rank's vector to all, waits a bounded time for theirs and combines them. As fast as a launch and a trip
 * over the link are.
 */

/* Whether there is such a kernel; the same in all processes. */
int mpath_eager_fits(const mpath_reduce_how_t *how);

/* What a kernel sends to every rank: its vector, or the rank's part of it and later the own part of the result. */
typedef enum mpath_eager_form { MPATH_EAGER_WHOLE, MPATH_EAGER_PARTS, MPATH_EAGER_FORMS } mpath_eager_form_t;

/* As mpath_kernel_find() without a pause. `how` fits. */
mpath_status_t mpath_eager_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_eager_form_t form,
                                mpath_device_function_t *function_p);

/*
 * CTAs for a vector, each of which writes a word: the same on all ranks. The host knows the end from the words alone:
 * such launches have no mark (mpath_launch_uncounted(), mpath_repeat_create()).
 */
unsigned mpath_eager_ctas(mpath_eager_form_t form, unsigned ranks, uint64_t bytes);

/* Of the slots for a vector, and of the memory that a rank lends for such slots. */
uint64_t mpath_eager_slot_bytes(mpath_eager_form_t form, unsigned ranks, uint64_t bytes);

uint64_t mpath_eager_memory_bytes(mpath_eager_form_t form, unsigned ranks, uint64_t slot_bytes);

/*
 * Reductions of large vectors over several GPUs, each with a kernel that waits for those of the others: the exception
 * to "nothing on a stream waits for other ranks". They must run at once: each on a GPU of its own, one of a process at
 * a time.
 */

/* Whether there is such a kernel; the same in all processes. */
int mpath_writes_fits(const mpath_reduce_how_t *how);

/* Whether all CTAs run at once on this GPU. */
int mpath_writes_usable(const mpath_gpu_t *gpu);

/* How many CTAs a ring has on GPUs of so many multiprocessors: one on each, so that other kernels fit beside it. */
unsigned mpath_ring_ctas(unsigned multiprocessors);

/* Bytes of the tiles of a ring, of which the longest part has `part_bytes`: equal turns. `most`: as there is memory. */
uint64_t mpath_ring_tile(uint64_t part_bytes, unsigned ctas, uint64_t most);

/* As mpath_reduce_find(). `how` fits. */
mpath_status_t mpath_writes_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                                 mpath_device_function_t *function_p);

mpath_status_t mpath_ring_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                               mpath_device_function_t *function_p);

/*
 * Enqueues. The caller has set all but control and flags; `flag` is written when this rank's part is everywhere. A
 * kernel that has given up writes no flag, and its stream goes on: others may have work on it.
 */
mpath_status_t mpath_launch_writes(mpath_stream_t *stream, mpath_device_function_t function, mpath_kernel_word_t flag,
                                   mpath_kernel_writes_t *arguments);

/* The same round a ring, with as many CTAs on all ranks. */
mpath_status_t mpath_launch_ring(mpath_stream_t *stream, mpath_device_function_t function, unsigned ctas,
                                 mpath_kernel_word_t flag, mpath_kernel_writes_t *arguments);

#endif
