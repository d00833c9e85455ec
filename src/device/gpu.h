/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU as mpath works on it: a device and the context that calls are made in. There is one object per (device,
 * context) in the process, made on first use and kept until mpath_gpu_cleanup(); mostly the context is the device's
 * primary one, which the CUDA runtime uses, and which is retained. An application that makes its own contexts gets
 * objects for those, since memory belongs to the context that allocated it.
 *
 * Devices are numbered as the process sees them (CUDA_VISIBLE_DEVICES); between processes only the uuid and the PCI
 * address name them.
 *
 * Thread-safety: every function may be called by any thread.
 */
#ifndef MPATH_DEVICE_GPU_H
#define MPATH_DEVICE_GPU_H

#include "device/device.h"
#include "util/log.h"

#include <stddef.h>
#include <stdint.h>

#define MPATH_GPU_PCI_MAX 16
#define MPATH_GPU_NAME_MAX 64

/* What a device is. */
typedef struct mpath_gpu_info {
    int ordinal;
    mpath_device_uuid_t uuid;
    char pci[MPATH_GPU_PCI_MAX]; /* "0000:3b:00.0", lower case, as in sysfs */
    char name[MPATH_GPU_NAME_MAX];
    uint64_t memory_bytes;
    int capability; /* 90: compute capability 9.0 */
    int multiprocessors;
    int copy_engines;
    int numa; /* node of host memory beside it; -1: unknown */
    int pools;
    int mps; /* processes work on it at the same time, by CUDA MPS; 0: they take turns; -1: the driver does not tell */
} mpath_gpu_info_t;

typedef struct mpath_gpu mpath_gpu_t;

/* 0 when there is no driver or no device. */
int mpath_gpu_count(void);

/* Makes no context and touches no GPU. */
mpath_status_t mpath_gpu_info(int ordinal, mpath_gpu_info_t *info);

/* Ordinal of the device with that uuid in this process; -1: not visible. */
int mpath_gpu_find(const mpath_device_uuid_t *uuid);

/* `context` NULL: the primary context of the device, made if there is none yet. Errors are logged. */
mpath_status_t mpath_gpu_get(int ordinal, mpath_device_context_t context, mpath_gpu_t **gpu_p);

/*
 * The GPU that the calling thread's driver calls go to at the moment; MPATH_ERR_UNSUPPORTED, not logged, without one,
 * and when the application has ended its context and not begun another. Takes the driver some time.
 */
mpath_status_t mpath_gpu_current(mpath_gpu_t **gpu_p);

const mpath_gpu_info_t *mpath_gpu_info_of(const mpath_gpu_t *gpu);

/* Of the object, from 0 on, never given twice in a process. */
int mpath_gpu_number(const mpath_gpu_t *gpu);

/* Whether its streams wait for words of memory, and write some, by themselves (mpath_stream_wait()). */
int mpath_gpu_has_waits(const mpath_gpu_t *gpu);

/*
 * Notices contexts that the application has ended (cudaDeviceReset, cuCtxDestroy) since the last time; everything that
 * was made in one has gone with it, and the driver must not see its handles any more. Objects of such contexts are lost:
 * mpath_gpu_enter() refuses them, releasing what they had only forgets it, and mpath_gpu_get() makes new ones. To be
 * called before other functions when the application has had the control; takes some 60 ns for each object.
 */
void mpath_gpu_notice_lost(void);

int mpath_gpu_is_lost(const mpath_gpu_t *gpu);

/*
 * Makes the context current for the driver calls up to mpath_gpu_leave(), which brings back what the caller had. Every
 * function of this room that takes a gpu or a stream does that itself; it is only for direct calls of the driver.
 * MPATH_ERR_UNREACHABLE, not logged: it is lost.
 */
mpath_status_t mpath_gpu_enter(mpath_gpu_t *gpu);

void mpath_gpu_leave(mpath_gpu_t *gpu);

/*
 * Can kernels and copies of `gpu` reach memory of the device `peer` (an ordinal of this process)? The first only asks.
 * The second also enables it, for memory that this process has allocated there: that makes a context on the peer, which
 * takes half a gigabyte of its memory. Imports of other processes' memory need no such thing.
 */
int mpath_gpu_can_reach(const mpath_gpu_t *gpu, int peer);

int mpath_gpu_reaches(mpath_gpu_t *gpu, int peer);

/*
 * Gives back everything the room holds: imports, exports, streams, modules, contexts. What is under way must have
 * ended; a driver that has shut down already (at exit) is left alone. Afterwards everything may be used again from the
 * start.
 */
void mpath_gpu_cleanup(void);

/*
 * GPUs on which several processes work without CUDA MPS. The driver gives the engine for kernels to one process at a
 * time: two that launch a kernel each wait 145 us for every change (H100 and H200, whatever the kernels do).
 * That engine also does copies within the GPU, and copies of less than 32 KiB to it, whose bytes the driver sends with
 * its commands. Copies to the host, longer ones from pinned memory of it, and short ones in rows go by engines of their
 * own, which need no turn: 11 to 16 us with two processes, 14 to 23 with four (H100).
 */

/* Shorter copies to the GPU are sent with commands. */
#define MPATH_GPU_COMMAND_BYTES (UINT64_C(32) << 10)

/* Of each process that works on the GPU: how long the others wait for it. */
#define MPATH_GPU_TURN_NS 145000u

/* Another process is known to work on the GPU, and they take turns. It stays so. */
void mpath_gpu_set_turns(mpath_gpu_t *gpu);

int mpath_gpu_takes_turns(const mpath_gpu_t *gpu);

/*
 * How long a copy took that may have needed a turn, from the call until it was done. Who has not been told of others
 * supposes them after a few that took as long as a turn, one after the other: nothing is lost by it but some
 * microseconds of each such copy.
 */
void mpath_gpu_note_copy(mpath_gpu_t *gpu, uint64_t took_ns);

/* Enqueues a copy from pinned memory of the host to the GPU, which has been entered: no turn but for a single byte. */
mpath_device_result_t mpath_gpu_copy_without_turn(mpath_device_ptr_t target, const void *source, size_t bytes,
                                                  mpath_device_stream_t stream);

/*
 * GPUDirect RDMA: memory of a GPU that a NIC reads and writes itself. A NIC's writes may still be on their way when its
 * completion is seen by the processor (CUDA driver API, cuFlushGPUDirectRDMAWrites); on GPUs that do not keep that
 * order themselves a flush has to come before the first work that reads them.
 */

/*
 * Whether this GPU needs mpath_gpu_flush_writes(); one whose memory NICs cannot reach does not. MPATH_ERR_UNSUPPORTED,
 * silent: it would, and the driver has none.
 */
mpath_status_t mpath_gpu_needs_flush(const mpath_gpu_t *gpu, int *needs_p);

/* What NICs have written, as far as their completions were seen, is seen by work that is enqueued from now on. */
mpath_status_t mpath_gpu_flush_writes(mpath_gpu_t *gpu);

/* For mpath_gpu_cleanup(): ends all objects, when nothing uses them any more; before each goes `end` is called. */
void mpath_gpu_end_all(void (*end)(mpath_gpu_t *gpu));

#endif
