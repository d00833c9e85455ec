/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory segment of the processes of one node: POSIX shared memory, created by one, attached by the others, its
 * name removed as soon as all have attached, so that nothing is left behind however the processes end. What is killed
 * before that leaves a name, which later processes of the user remove.
 */
#ifndef MPATH_LANE_SEGMENT_H
#define MPATH_LANE_SEGMENT_H

#include "util/status.h"

#include <stddef.h>

#define MPATH_SEGMENT_NAME_MAX 48

typedef struct mpath_segment {
    void *base;
    size_t bytes;
    char name[MPATH_SEGMENT_NAME_MAX];
} mpath_segment_t;

/* Creates a zeroed segment under a fresh name. The pages are reserved (posix_fallocate), so a full /dev/shm is an error
 * here and not a SIGBUS later. */
mpath_status_t mpath_segment_create(size_t bytes, mpath_segment_t *segment);
mpath_status_t mpath_segment_attach(const char *name, size_t bytes, mpath_segment_t *segment);
/* Removes old names of processes that are gone. The first mpath_segment_create() of a process does it. */
void mpath_segment_sweep(void);
/* Removes the name; mappings stay. */
void mpath_segment_unlink(mpath_segment_t *segment);
void mpath_segment_detach(mpath_segment_t *segment);

#endif
