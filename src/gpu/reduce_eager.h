/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions of short vectors over several GPUs, started on each before it is known that the others have come: a kernel
 * sends its rank's vector to all, waits a bounded time for theirs and combines them. As fast as a launch and a trip
 * over the link are.
 */
#ifndef MPATH_GPU_REDUCE_EAGER_H
#define MPATH_GPU_REDUCE_EAGER_H

#include "gpu/reduce.h"
#include "gpu/reduce_eager_args.h"

/* Whether there is such a kernel; the same in all processes. */
int mpath_eager_fits(const mpath_reduce_how_t *how);

/* What a kernel sends to every rank: its vector, or the rank's part of it and later the own part of the result. */
typedef enum mpath_eager_form { MPATH_EAGER_WHOLE, MPATH_EAGER_PARTS, MPATH_EAGER_FORMS } mpath_eager_form_t;

/* As mpath_kernel_find() without a pause. `how` fits. */
mpath_status_t mpath_eager_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_eager_form_t form,
                                mpath_cu_function_t *function_p);

/*
 * CTAs for a vector, each of which writes a word: the same on all ranks. The host knows the end from the words alone:
 * such launches have no mark (mpath_launch_uncounted(), mpath_repeat_create()).
 */
unsigned mpath_eager_ctas(mpath_eager_form_t form, unsigned ranks, uint64_t bytes);

/* Of the slots for a vector, and of the memory that a rank lends for such slots. */
uint64_t mpath_eager_slot_bytes(mpath_eager_form_t form, unsigned ranks, uint64_t bytes);
uint64_t mpath_eager_memory_bytes(mpath_eager_form_t form, unsigned ranks, uint64_t slot_bytes);

#endif
