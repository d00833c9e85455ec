/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging buffer: a copy in host memory of a range of device memory, for what has to look at the data on the host: datatypes
 * with gaps, communicators over several nodes, functions that know nothing of devices. Copies are on a stream of
 * mpath's own, after the last bytes of the application's copies that have returned before. On the default stream they
 * would come after all that the application has there, which may wait for this very call on another rank.
 */
#ifndef MPATH_COLL_STAGING_H
#define MPATH_COLL_STAGING_H

#include "device/memory.h"
#include "device/pinned.h"

#include <stddef.h>

typedef struct mpath_staging {
    void *host; /* NULL: not open */
    const void *device;
    size_t bytes;
    mpath_gpu_t *gpu;
    mpath_device_stream_t stream; /* NULL: the driver has refused one, the default stream is used */
    int settled;                  /* the application's copies into this memory have ended when they return */
    mpath_pinned_t pinned;        /* short ones lie in it; base NULL: in pageable memory */
} mpath_staging_t;

/* `memory` classifies the `bytes` bytes at `device`. Contents are undefined until loaded. Errors are logged. */
mpath_status_t mpath_staging_open(const void *device, size_t bytes, const mpath_memory_t *memory,
                                  mpath_staging_t *staging);

/* A staging buffer that is not open is left alone. */
void mpath_staging_close(mpath_staging_t *staging);

/* Before the first of a call's copies: waits for the last bytes of the application's that have returned. Errors are logged. */
mpath_status_t mpath_staging_settle(const mpath_staging_t *staging);

/*
 * Start copies from the device to the host, and back: `bytes` bytes at `offset`. They are done, and what has been
 * stored is there for every stream, after mpath_staging_wait(), without which nothing may be closed; `stored`: some of
 * them go to the device. Errors are logged.
 */
mpath_status_t mpath_staging_load(const mpath_staging_t *staging, size_t offset, size_t bytes);

mpath_status_t mpath_staging_store(const mpath_staging_t *staging, size_t offset, size_t bytes);

mpath_status_t mpath_staging_wait(const mpath_staging_t *staging, int stored);

/* Starts storing many ranges that do not overlap, none empty: one kernel does all of them where there may be one. */
typedef struct mpath_staging_range {
    size_t offset, bytes;
} mpath_staging_range_t;

mpath_status_t mpath_staging_store_all(const mpath_staging_t *staging, const mpath_staging_range_t *ranges,
                                       unsigned count);

/*
 * Iov: a copy in host memory of data that lies in several allocations, of devices and of the host, one fragment behind
 * the other. For buffers that are no one piece of memory, which is rare: MPI_BOTTOM with absolute addresses,
 * displacements from one allocation into another, memory that is mapped from several GPUs. Copies are on the
 * streams that those of a staging buffer use.
 */

typedef struct mpath_iov mpath_iov_t;

/* MPATH_ERR_NO_MEMORY is logged. */
mpath_status_t mpath_iov_create(mpath_iov_t **iov_p);

/* NULL is left alone. */
void mpath_iov_destroy(mpath_iov_t *iov);

/* The next fragment; fragments may overlap. MPATH_ERR_PARAM, logged: it begins in device memory and reaches beyond its end. */
mpath_status_t mpath_iov_add(mpath_iov_t *iov, const void *address, size_t bytes);

/* Nonzero: all are in memory of the host that is not managed by CUDA. */
int mpath_iov_on_host(const mpath_iov_t *iov);

/* After the last fragment: makes the copy. `gapped`: what is between fragments near each other may be written as it was. */
mpath_status_t mpath_iov_open(mpath_iov_t *iov, int gapped, void **host_p);

/* All fragments to the copy, and back; done when it returns. Errors are logged. */
mpath_status_t mpath_iov_load(const mpath_iov_t *iov);

mpath_status_t mpath_iov_store(const mpath_iov_t *iov);

#endif
