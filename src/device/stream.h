/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams: ordered work on a GPU, and how the host learns that it is done without a system call.
 *
 * A gpu has MPATH_GPU_STREAMS_ALL streams, made on first use, non-blocking (they wait for no other stream of the
 * application) and of the highest priority. Work on a stream runs in order; marks number its places.
 * mpath_stream_done() reads a word of host memory that the device writes (cuStreamWriteValue64), or queries an event
 * where the driver cannot do that. Both tell of a small copy after 7 to 8 us on an H200; the word costs no driver call
 * per poll.
 *
 * Addresses are those that the gpu's context knows: its own memory, imports, peers in this process, pinned host memory
 * (mpath_pinned_device()). Copies choose their direction by the addresses.
 *
 * Thread-safety: the caller serialises calls on one stream.
 */
#ifndef MPATH_DEVICE_STREAM_H
#define MPATH_DEVICE_STREAM_H

#include "device/gpu.h"

#define MPATH_GPU_STREAMS 18
#define MPATH_GPU_STREAMS_PROBE MPATH_GPU_STREAMS        /* this and the next one: of ranks that measure rates */
#define MPATH_GPU_STREAM_STAGING (MPATH_GPU_STREAMS + 2) /* of copies on the host, see coll/staging.h */
#define MPATH_GPU_STREAMS_ALL (MPATH_GPU_STREAMS + 3)
#define MPATH_GPU_STREAMS_DIRECT                                                                                       \
    10 /* the first of them: of calls that GPUs carry without relays, and of staged copies */

typedef struct mpath_stream mpath_stream_t;

/* A place in a stream: everything enqueued before it. 0 is the start: always done. */
typedef uint64_t mpath_mark_t;

/* Stream `index` (0 to MPATH_GPU_STREAMS_ALL - 1) of the gpu; belongs to the gpu. Errors are logged. */
mpath_status_t mpath_stream_get(mpath_gpu_t *gpu, unsigned index, mpath_stream_t **stream_p);

mpath_gpu_t *mpath_stream_gpu(const mpath_stream_t *stream);

/* For copies that need no marks, which several threads may make at a time. */
mpath_device_stream_t mpath_stream_native(const mpath_stream_t *stream);

/*
 * Many calls on one stream are cheaper between enter and leave: the functions below then skip their own. A bracket is
 * of one thread.
 */
mpath_status_t mpath_stream_enter(mpath_stream_t *stream);

void mpath_stream_leave(mpath_stream_t *stream);

/* Copy engine; 0 bytes: nothing. */
mpath_status_t mpath_stream_copy(mpath_stream_t *stream, mpath_device_ptr_t target, mpath_device_ptr_t source,
                                 size_t bytes);

/*
 * Copies, none of 0 bytes, that need no order among each other: in one call, after which an engine passes sooner from
 * one to the next, where the driver has such a call, else one after the other. The driver may write to the lists.
 */
mpath_status_t mpath_stream_copy_all(mpath_stream_t *stream, mpath_device_ptr_t *targets, mpath_device_ptr_t *sources,
                                     size_t *bytes, size_t count);

/* A large copy within the stream's GPU that leaves its multiprocessors alone; MPATH_ERR_UNSUPPORTED: the driver cannot, silent. */
mpath_status_t mpath_stream_copy_aside(mpath_stream_t *stream, mpath_device_ptr_t target, mpath_device_ptr_t source,
                                       size_t bytes);

/* Whether the device writes values by itself; else the next one returns MPATH_ERR_UNSUPPORTED, silent. */
int mpath_stream_has_values(const mpath_stream_t *stream);

/* Writes a 64-bit word, aligned to 8, after all work before it is visible everywhere. */
mpath_status_t mpath_stream_write(mpath_stream_t *stream, mpath_device_ptr_t address, uint64_t value);

/*
 * What follows waits until the word, aligned to 8, is at least `value`; both are below 2^62, since the driver compares
 * in a circle. MPATH_ERR_UNSUPPORTED, silent, without mpath_gpu_has_waits(). The driver may put several streams of a
 * process, the application's among them, into one queue: they wait as well. So only what is under way already may be
 * waited for.
 */
mpath_status_t mpath_stream_wait(mpath_stream_t *stream, mpath_device_ptr_t address, uint64_t value);

/* Numbers the present end of the stream. After an error the work before it has been waited for, 5 s at most. */
mpath_status_t mpath_stream_mark(mpath_stream_t *stream, mpath_mark_t *mark_p);

/* MPATH_OK, MPATH_INPROGRESS, or MPATH_ERR_IO (logged) when work on the stream has failed. Cheap enough to poll. */
mpath_status_t mpath_stream_done(mpath_stream_t *stream, mpath_mark_t mark);

/* MPATH_ERR_IO (logged) when work on the stream has failed, for those who look at words; asks the driver. */
mpath_status_t mpath_stream_check(mpath_stream_t *stream);

/* Polls until done; MPATH_ERR_TIMED_OUT, logged with `what`, after `timeout_ns`. */
mpath_status_t mpath_stream_finish(mpath_stream_t *stream, mpath_mark_t mark, uint64_t timeout_ns, const char *what);

/* Waiting for all work that the application has under way on GPUs (parameter sync). */

/* In one context. Errors are logged. */
mpath_status_t mpath_gpu_drain(mpath_gpu_t *gpu);

/*
 * In all contexts of this process that can be known: those that are primary, those of its buffers so far, and the
 * caller's current one. For memory of the host: any GPU may be writing it.
 */
mpath_status_t mpath_gpu_drain_all(void);

/* For mpath_gpu_cleanup(). */
void mpath_stream_cleanup(mpath_gpu_t *gpu);

#endif
