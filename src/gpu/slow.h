/* SPDX-License-Identifier: BSD-3-Clause */
/* What makes device buffers slow, and what helps: said once per process. */
#ifndef MPATH_GPU_SLOW_H
#define MPATH_GPU_SLOW_H

#include "gpu/memory.h"

/*
 * The buffer of `side` ("send", "receive") of a rank goes through host memory, since other processes cannot open its
 * memory. Silent where the driver has refused: that has been told of (gpu/export.h).
 */
void mpath_memory_is_slow(int rank, const char *side, const mpath_memory_t *memory);

#endif
