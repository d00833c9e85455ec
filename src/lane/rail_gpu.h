/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a NIC could read and write GPU memory itself (GPUDirect RDMA) with the UCX at hand. Three things must come
 * together: a UCX that knows CUDA memory, an InfiniBand or RoCE device, and the kernel's leave to register GPU memory
 * with it (nvidia_peermem, or the older nv_peer_mem). Where all are there rails try it (rail_memory.h); else device
 * memory goes through pinned host slots (exec/relay_rail.c).
 */
#ifndef MPATH_LANE_RAIL_GPU_H
#define MPATH_LANE_RAIL_GPU_H

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
