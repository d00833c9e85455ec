/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What calls on device memory of a node have shown, for later communicators and jobs (tune/history.h), and from them. A
 * machine is here a checksum of the driver and of the GPUs of all ranks, as the file of their rates has it
 * (topo/discover/gpu_probe.h), whoever of the ranks has which, and of the rate that ports are emulated with. The lines of the file:
 *
 *     host-share    allreduce, allgather: what goes through the host beside the links (node/reduce.c). Size class:
 *                   the logarithm to the base 2 of the bytes, rounded down, at which a class begins
 *     help          alltoallv, also for Allgathers: what a kernel writes beside copy engines (node/node.c). Size
 *                   class: mpath_trial_kind()
 *
 * Not in the history is what is the fastest where the function that mpath replaces is among it (tune/function.h, tune/doubt.h,
 * tune/passing.h): that is a property of the MPI, how it was built, its parameters and its other components, of which
 * no checksum can be had here, and the trials are a few calls. Nor which routes are, of a plan and the static ones: the
 * kinds of these calls follow from rates that are learned, and mean something else when they have changed.
 *
 * With adapt=off nothing is taken or noted.
 */
#ifndef MPATH_NODE_HISTORY_H
#define MPATH_NODE_HISTORY_H

#include "node/node.h"
#include "tune/history.h"

/*
 * Before the first call of a kind, after mpath_gpu_coll_prepare(): what others have learned, *learned_p the same on all
 * ranks. Collective.
 */
mpath_status_t mpath_gpu_history_take(const mpath_gpu_coll_t *gpu, mpath_history_kind_t kind, const char *operation,
                                      int size_class, mpath_learned_t *learned_p);

/* The calls of all ranks have shown this. Errors of the file are logged. */
void mpath_gpu_history_note(const mpath_gpu_coll_t *gpu, mpath_history_kind_t kind, const char *operation,
                            int size_class, uint64_t value);

#endif
