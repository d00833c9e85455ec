/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of GPUs that a rail's chunks are sent from and taken to without a copy through the host. A rail can do that
 * when it was opened for it (mpath_rail_params_t.gpu_memory) and UCX knows CUDA memory on its context; the memory has
 * to be registered with it first. send() and take() of a rail then find out by the address. Such chunks go by
 * rendezvous, so that none arrives in a buffer of UCX's.
 *
 * Whether what UCX says it can do works on this machine, a trial tells: the rail sends a few KiB from GPU memory to GPU
 * memory of this process.
 */
#ifndef MPATH_LANE_RAIL_MEMORY_H
#define MPATH_LANE_RAIL_MEMORY_H

#include "gpu/stream.h"
#include "lane/lane.h"

/* Whether chunks can go from and to GPU memory, as far as UCX says. */
int mpath_rail_memory_usable(const mpath_lane_t *lane);

/*
 * Registers memory that was allocated in the context of `gpu`, until mpath_rail_memory_remove(), the rail's end or the
 * context's; nothing happens where it is registered. MPATH_ERR_UNSUPPORTED, logged as information: UCX cannot.
 */
mpath_status_t mpath_rail_memory_add(mpath_lane_t *lane, const mpath_gpu_t *gpu, mpath_cu_ptr_t address, size_t bytes);
/* No chunk from or to it is under way. */
void mpath_rail_memory_remove(mpath_lane_t *lane, const mpath_gpu_t *gpu, mpath_cu_ptr_t address);

/*
 * The trial, once for a rail; later calls give the same answer. `stream` is for its copies, on the GPU whose memory is
 * tried. Takes some milliseconds, and seconds where UCX does not end the transfer. MPATH_ERR_UNSUPPORTED, with the
 * reason in the log as information: no.
 */
mpath_status_t mpath_rail_memory_try(mpath_lane_t *lane, mpath_stream_t *stream);

#endif
