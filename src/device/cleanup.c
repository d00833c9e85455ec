/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of all that this room keeps for the process, users of GPUs before the GPUs. */
#include "device/ipc_export.h"
#include "device/ipc_import.h"
#include "device/kernels/copy.h"
#include "device/pinned.h"
#include "device/stream.h"

static void gpu_end(mpath_gpu_t *gpu)
{
    mpath_launch_cleanup(gpu);
    mpath_stream_cleanup(gpu);
}

void mpath_gpu_cleanup(void)
{
    mpath_gpu_notice_lost();
    mpath_import_cleanup();
    mpath_export_cleanup();
    mpath_pinned_cleanup();
    mpath_gpu_end_all(gpu_end);
}
