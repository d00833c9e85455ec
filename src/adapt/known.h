/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Known: what the communicators of this process have learned about NICs, for each other: a table by the names of nodes and
 * the numbers of rails. Whatever is taken from it has to be exchanged first, for the ranks of a communicator may know
 * different things from others that they are in. Thread-safe.
 */
#ifndef MPATH_ADAPT_KNOWN_H
#define MPATH_ADAPT_KNOWN_H

#include "topo/topo.h"

#include <stdint.h>

#define MPATH_KNOWN_MAX 1024 /* NICs of a process; what was learned first makes room */

/* The NIC of a node on a rail. */
typedef struct mpath_known_nic {
    uint64_t node; /* mpath_known_node(); 0: the rail on all nodes of communicators that tell no NICs apart */
    int rail;      /* its number */
} mpath_known_nic_t;

/* A NIC carries bps where the system says nominal_bps. Plain data. */
typedef struct mpath_known_rate {
    uint64_t
        learned_ns; /* when, by the time of day, which nodes have in common as well as they do; 0: nothing is known */
    uint64_t bps, nominal_bps;
} mpath_known_rate_t;

/* A checksum of a node's name. */
uint64_t mpath_known_node(const char *host);

/* The time of day, in nanoseconds. */
uint64_t mpath_known_now(void);

/* Kept unless something newer is known. The number of changes, 0 or 1: the same rate, learned later, is none. */
unsigned mpath_known_note(mpath_known_nic_t nic, const mpath_known_rate_t *known);
mpath_known_rate_t mpath_known_of(mpath_known_nic_t nic);

/* How many changes there were: who has heard of fewer asks anew. */
unsigned mpath_known_changes(void);

/* The later of two: the same on all ranks for the same two. */
const mpath_known_rate_t *mpath_known_later(const mpath_known_rate_t *a, const mpath_known_rate_t *b);

#endif
