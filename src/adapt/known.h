/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Known: what the communicators of this process have learned about rails, for each other: a table by the numbers of the
 * rails. Whatever is taken from it has to be exchanged first, for the ranks of a communicator may know different things
 * from others that they are in. Thread-safe.
 */
#ifndef MPATH_ADAPT_KNOWN_H
#define MPATH_ADAPT_KNOWN_H

#include "topo/topo.h"

#include <stdint.h>

/* A rail carries bps where the system says nominal_bps. Plain data. */
typedef struct mpath_known_rail {
    uint64_t
        learned_ns; /* when, by the time of day, which nodes have in common as well as they do; 0: nothing is known */
    uint64_t bps, nominal_bps;
} mpath_known_rail_t;

/* The time of day, in nanoseconds. */
uint64_t mpath_known_now(void);

/* Kept unless something newer is known. The number of changes, 0 or 1: the same rate, learned later, is none. */
unsigned mpath_known_note(int rail, const mpath_known_rail_t *known);
mpath_known_rail_t mpath_known_of(int rail);

/* How many changes there were: who has heard of fewer asks anew. */
unsigned mpath_known_changes(void);

/* The later of two: the same on all ranks for the same two. */
const mpath_known_rail_t *mpath_known_later(const mpath_known_rail_t *a, const mpath_known_rail_t *b);

#endif
