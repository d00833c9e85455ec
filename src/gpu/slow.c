/* SPDX-License-Identifier: BSD-3-Clause */
/* See slow.h. */
#include "gpu/slow.h"

#include <stdatomic.h>

void mpath_memory_is_slow(int rank, const char *side, const mpath_memory_t *memory)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    if (memory->exportable || atomic_flag_test_and_set(&warned)) {
        return;
    }
    mpath_warn("rank %d: the %s buffer is %s memory that other processes cannot open; it goes through host memory, at "
               "about a tenth of the speed. Memory of cudaMalloc, or of a pool or cuMemCreate with POSIX file "
               "descriptor handles, goes from GPU to GPU",
               rank, side, mpath_memory_kind_name(memory->kind));
}
