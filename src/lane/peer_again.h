/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of the lane "peer" by kernels that are made again: an application mostly exchanges the same buffers by the
 * same counts, call after call. A launch like an earlier one becomes a repeat (gpu/repeat.h), whose end the host sees
 * some 2 us earlier.
 *
 * Thread-safety: as of the streams; who owns it has one launch under way at a time.
 */
#ifndef MPATH_LANE_PEER_AGAIN_H
#define MPATH_LANE_PEER_AGAIN_H

#include "gpu/launch.h"

#include <stdatomic.h>

typedef struct mpath_peer_again mpath_peer_again_t;

/* The number of a call, in host memory; `address`: as devices know it. Nothing writes it while a launch is under way.
 */
typedef struct mpath_peer_number {
    _Atomic uint64_t *word;
    mpath_cu_ptr_t address;
} mpath_peer_number_t;

/* NULL: no memory, which costs nothing but time; not logged. */
mpath_peer_again_t *mpath_peer_again_create(void);
/* Its launches have ended. NULL: nothing. */
void mpath_peer_again_destroy(mpath_peer_again_t *again);

/*
 * As mpath_launch_copy(), for a launch without waits and mark, and with one flag, whose value goes through `number`.
 * `again` may be NULL.
 */
mpath_status_t mpath_peer_again_launch(mpath_peer_again_t *again, mpath_stream_t *stream,
                                       const mpath_launch_copy_t *launch, const mpath_peer_number_t *number);

#endif
