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
#ifndef MPATH_RAIL_GPU_MEMORY_H
#define MPATH_RAIL_GPU_MEMORY_H

#include "device/stream.h"
#include "lane/lane.h"

/* Whether chunks can go from and to GPU memory, as far as UCX says. */
int mpath_rail_memory_usable(const mpath_lane_t *lane);

/*
 * Registers memory that was allocated in the context of `gpu`, until mpath_rail_memory_remove(), the rail's end or the
 * context's; nothing happens where it is registered. MPATH_ERR_UNSUPPORTED, logged as information: UCX cannot.
 */
mpath_status_t mpath_rail_memory_add(mpath_lane_t *lane, const mpath_gpu_t *gpu, mpath_device_ptr_t address,
                                     size_t bytes);

/* No chunk from or to it is under way. */
void mpath_rail_memory_remove(mpath_lane_t *lane, const mpath_gpu_t *gpu, mpath_device_ptr_t address);

/*
 * The trial, once for a rail; later calls give the same answer. `stream` is for its copies, on the GPU whose memory is
 * tried. Takes some milliseconds, and seconds where UCX does not end the transfer. MPATH_ERR_UNSUPPORTED, with the
 * reason in the log as information: no.
 */
mpath_status_t mpath_rail_memory_try(mpath_lane_t *lane, mpath_stream_t *stream);

/*
 * Whether a NIC could read and write GPU memory itself (GPUDirect RDMA) with the UCX at hand. Three things must come
 * together: a UCX that knows CUDA memory, an InfiniBand or RoCE device, and the kernel's leave to register GPU memory
 * with it (nvidia_peermem, or the older nv_peer_mem). Where all are there rails try it (rail/gpu_memory.h); else device
 * memory goes through pinned host slots (mover/relay_hop.c).
 */

typedef enum mpath_rail_gpu {
    MPATH_RAIL_GPU_NO_CUDA,   /* UCX does not know CUDA memory */
    MPATH_RAIL_GPU_NO_RDMA,   /* no RDMA device */
    MPATH_RAIL_GPU_NO_MODULE, /* the kernel does not register GPU memory */
    MPATH_RAIL_GPU_DIRECT
} mpath_rail_gpu_t;

/* Whether the UCX at hand knows CUDA memory. Opens a context with all transports, once for the process. */
int mpath_rail_gpu_ucx(void);

/* What follows from the three. */
mpath_rail_gpu_t mpath_rail_gpu_judge(int ucx_has, int rdma, int module);

/* Asks UCX, see above, and the system, below the folder `sys` ("/sys"). */
mpath_rail_gpu_t mpath_rail_gpu_find(const char *sys);

/* Whether all three are there; UCX is only asked where the others are. */
int mpath_rail_gpu_can(const char *sys);

/* "pinned host slots; the UCX at hand does not know CUDA memory", "GPUDirect RDMA"; a static text. */
const char *mpath_rail_gpu_text(mpath_rail_gpu_t what);

#endif
