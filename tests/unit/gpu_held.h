/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests that are linked with -Wl,--wrap=mpath_stream_done: a GPU that does not come to this rank's work. */
#ifndef MPATH_TESTS_UNIT_GPU_HELD_H
#define MPATH_TESTS_UNIT_GPU_HELD_H

/* Nonzero: an application's kernel holds the GPU of this rank, whose copies and kernels do not end. */
extern int gpu_is_held;

#endif
