/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shadow: a copy in host memory of a range of device memory, for what has to look at the data on the host: datatypes
 * with gaps, communicators over several nodes, functions that know nothing of devices. Copies are on the default
 * stream: after what the application has under way there, such as the last bytes of copies from pageable memory that
 * have returned. A stream of mpath's own would not wait for these; only an ordinary stream that is captured forbids the
 * default one.
 */
#ifndef MPATH_COLL_SHADOW_H
#define MPATH_COLL_SHADOW_H

#include "gpu/memory.h"
#include "gpu/pinned.h"

#include <stddef.h>

typedef struct mpath_shadow {
    void *host; /* NULL: not open */
    const void *device;
    size_t bytes;
    mpath_gpu_t *gpu;
    mpath_pinned_t pinned; /* short ones lie in it; base NULL: in pageable memory */
} mpath_shadow_t;

/* `memory` classifies the `bytes` bytes at `device`. Contents are undefined until loaded. Errors are logged. */
mpath_status_t mpath_shadow_open(const void *device, size_t bytes, const mpath_memory_t *memory,
                                 mpath_shadow_t *shadow);
/* A shadow that is not open is left alone. */
void mpath_shadow_close(mpath_shadow_t *shadow);

/*
 * Start copies from the device to the host, and back: `bytes` bytes at `offset`. They are done, and what has been
 * stored is there for every stream, after mpath_shadow_wait(), without which nothing may be closed; `stored`: some of
 * them go to the device. Errors are logged.
 */
mpath_status_t mpath_shadow_load(const mpath_shadow_t *shadow, size_t offset, size_t bytes);
mpath_status_t mpath_shadow_store(const mpath_shadow_t *shadow, size_t offset, size_t bytes);
mpath_status_t mpath_shadow_wait(const mpath_shadow_t *shadow, int stored);

/* Starts storing many ranges that do not overlap, none empty: one kernel does all of them where there may be one. */
typedef struct mpath_shadow_range {
    size_t offset, bytes;
} mpath_shadow_range_t;
mpath_status_t mpath_shadow_store_all(const mpath_shadow_t *shadow, const mpath_shadow_range_t *ranges, unsigned count);

#endif
