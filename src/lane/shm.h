/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "shm": host memory shared by the processes of a node. For each ordered pair of local ranks there is one ring of
 * slots with one producer and one consumer; slots are filled in order and freed in any order. A process that died is
 * seen by its process id (and start time) in the segment's header.
 *
 * Memory layout of the region: see shm.c.
 */
#ifndef MPATH_LANE_SHM_H
#define MPATH_LANE_SHM_H

#include "lane/lane.h"

typedef struct mpath_shm_shape {
    int num_ranks;       /* processes of the node that take part; peers are numbered 0 .. num_ranks - 1 */
    uint32_t depth;      /* slots per ring, a power of two */
    uint32_t slot_bytes; /* payload of a slot */
} mpath_shm_shape_t;

/* Chooses depth and slot size so that each rank's share of the region is at most `memory_bytes` and a slot at most
 * `chunk_bytes`; at least 2 slots of 4 KiB each, whatever the limit (then logs what it takes). */
void mpath_shm_shape_choose(int num_ranks, uint64_t memory_bytes, uint64_t chunk_bytes, mpath_shm_shape_t *shape);
size_t mpath_shm_region_bytes(const mpath_shm_shape_t *shape);

/* `region` is shared, zeroed before the first process opens it, 64-byte aligned, and outlives the lane. */
mpath_status_t mpath_shm_open(void *region, const mpath_shm_shape_t *shape, int my_rank, mpath_lane_t **lane_p);

#endif
