/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Combining elements on a GPU: one launch reads a range of up to MPATH_KERNEL_REDUCE_RANKS buffers, wherever they lie,
 * combines them in the order given and writes the result to as many others.
 */
#ifndef MPATH_GPU_REDUCE_H
#define MPATH_GPU_REDUCE_H

#include "gpu/launch.h"
#include "gpu/reduce_args.h"
#include "gpu/repeat.h"

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

/* "sum_f32": operation and type as the kernel that serves them is called. */
void mpath_reduce_name(const mpath_reduce_how_t *how, char *name, size_t size);

/* As mpath_kernel_find(). `how` fits. */
mpath_status_t mpath_reduce_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                                 mpath_cu_function_t *function_p);

/*
 * Enqueues. The caller has set elements, sources and targets of the arguments, and zeroed the rest; `flag` is written
 * when the results are visible everywhere; address 0: there is none.
 */
mpath_status_t mpath_launch_reduce(mpath_stream_t *stream, mpath_cu_function_t function, mpath_reduce_type_t type,
                                   mpath_kernel_word_t flag, mpath_kernel_reduce_t *arguments);
/*
 * The same while a reduction by writes or round a ring (gpu/reduce_writes.h) runs, which has half of the registers of
 * nearly every multiprocessor: the CTAs are so small that the other half is enough for one.
 */
mpath_status_t mpath_launch_reduce_beside(mpath_stream_t *stream, mpath_cu_function_t function,
                                          mpath_reduce_type_t type, mpath_kernel_word_t flag,
                                          mpath_kernel_reduce_t *arguments);

/* The same where sources or targets are in host memory, whose link few CTAs keep busy. */
mpath_status_t mpath_launch_reduce_by_host(mpath_stream_t *stream, mpath_cu_function_t function,
                                           mpath_reduce_type_t type, mpath_kernel_word_t flag,
                                           mpath_kernel_reduce_t *arguments);

/*
 * The same, to be started often: `flag` gets the value that the word at `number`, an address of pinned host memory, has
 * at the time. As mpath_repeat_create(). The arguments are completed, and may be compared afterwards.
 */
mpath_status_t mpath_repeat_reduce(mpath_stream_t *stream, mpath_cu_function_t function, mpath_reduce_type_t type,
                                   mpath_cu_ptr_t flag, mpath_cu_ptr_t number, mpath_kernel_reduce_t *arguments,
                                   mpath_repeat_t **repeat_p);

#endif
