/* SPDX-License-Identifier: BSD-3-Clause */
/* A GPU that does not come to this rank's work. */
#include "gpu_held.h"

#include "device/stream.h"

int gpu_is_held;

/* Instead of the function of this name, by the linker. */
mpath_status_t __real_mpath_stream_done(mpath_stream_t *stream, mpath_mark_t mark);
mpath_status_t __wrap_mpath_stream_done(mpath_stream_t *stream, mpath_mark_t mark);
mpath_status_t __wrap_mpath_stream_done(mpath_stream_t *stream, mpath_mark_t mark)
{
    return gpu_is_held ? MPATH_INPROGRESS : __real_mpath_stream_done(stream, mark);
}
