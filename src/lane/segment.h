/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory segment of the processes of one node: POSIX shared memory, created by one, attached by the others, its
 * name removed as soon as all have attached, so that nothing is left behind however the processes end. What is killed
 * before that leaves a name that says whose it is: its mates remove it when they find that it is gone, or later processes
 * of the user.
 *
 * Or one without a name, for whoever comes later, too: the others reach it through the descriptor that its owner keeps
 * (/proc/PID/fd, which is open to processes of the same user), and it is gone with the last of them.
 */
#ifndef MPATH_LANE_SEGMENT_H
#define MPATH_LANE_SEGMENT_H

#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

#define MPATH_SEGMENT_NAME_MAX 48

typedef struct mpath_segment {
    void *base;
    size_t bytes;
    char name[MPATH_SEGMENT_NAME_MAX];
    int fd;            /* of an open one's owner; else -1 */
    int is_noted;      /* by mpath_segment_note(): */
    size_t part_bytes; /* that the caller holds of it */
} mpath_segment_t;

/* Where the processes of the node find an open segment. Plain data, which another process may have written. */
typedef struct mpath_segment_address {
    int64_t pid; /* 0: there is none */
    int64_t fd;
    uint64_t device, inode, bytes;
} mpath_segment_address_t;

/* Creates a zeroed segment under a fresh name. The pages are reserved (posix_fallocate), so a full /dev/shm is an error
 * here and not a SIGBUS later. */
mpath_status_t mpath_segment_create(size_t bytes, mpath_segment_t *segment);
mpath_status_t mpath_segment_attach(const char *name, size_t bytes, mpath_segment_t *segment);

/* The same without a name, and how to find it as long as its owner has it. */
mpath_status_t mpath_segment_create_open(size_t bytes, mpath_segment_t *segment);
mpath_status_t mpath_segment_address(const mpath_segment_t *segment, mpath_segment_address_t *address);
/* What is there has to be what the address says: it is looked at before it is opened. */
mpath_status_t mpath_segment_attach_open(const mpath_segment_address_t *address, mpath_segment_t *segment);
/*
 * The same, once for all in this process who ask for it: noted as another one's, and given back by each of them with
 * mpath_segment_return(). Any thread.
 */
mpath_status_t mpath_segment_borrow(const mpath_segment_address_t *address, const mpath_segment_t **segment_p);
void mpath_segment_return(const mpath_segment_t *segment);

/*
 * Removes the names of this user's processes that are gone, at once where they had this pid namespace, else after an hour.
 * The first mpath_segment_create() of a process does it, and who finds that a mate is gone.
 */
void mpath_segment_sweep(void);
/* Removes the name; mappings stay. */
void mpath_segment_unlink(mpath_segment_t *segment);
void mpath_segment_detach(mpath_segment_t *segment);

/*
 * Shared memory is budgeted by node: each of its processes may hold the same part of what all may take, and of a segment
 * it holds the part that falls to one of those that share it. So a sum that one process keeps for itself is enough.
 *
 * Notes that the caller, one of `num_processes`, holds a segment, until mpath_segment_detach(). 0: it is another one's, who
 * holds all of it.
 */
void mpath_segment_note(mpath_segment_t *segment, int num_processes);
/* Bytes that this process holds so, and those of the whole segments. */
void mpath_segment_held(uint64_t *part_bytes_p, uint64_t *whole_bytes_p);

#endif
