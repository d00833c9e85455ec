/* SPDX-License-Identifier: BSD-3-Clause */
/* Load: what the messages of a call ask of the busiest rank, and of the links of the busiest node. Pure arithmetic. */
#ifndef MPATH_COLL_LOAD_H
#define MPATH_COLL_LOAD_H

#include "topo/topo.h"

#include <stdint.h>

typedef struct mpath_load {
    uint64_t busiest;       /* the most that a rank sends, or receives */
    uint64_t busiest_cross; /* the same, to or from other nodes */
    uint64_t node_cross;    /* the most that a node sends or receives so for each of its ranks, on average */
    uint64_t links_ns;      /* what that takes at least, by all NICs of a node at the rates of `topo` */
} mpath_load_t;

#define MPATH_LOAD_SUMS 4 /* for each rank */

/* demand[source * ranks + destination]; what stays on a rank counts as well. `sums`: room for MPATH_LOAD_SUMS * ranks. */
void mpath_load_find(const mpath_topo_t *topo, const uint64_t *demand, uint64_t *sums, mpath_load_t *load);

#endif
