/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * History: what calls have shown, for communicators of this process that begin later, and by way of a file
 * (tune/history_file.h) for later jobs: one table, of rates of NICs by the name of the node, and of all else by the keys of
 * the file. Rates come from the file by other ways, since they are by rail and node there (coll/learn.c).
 *
 * Whatever is taken from here has to be exchanged first, for the ranks of a communicator may know different things from
 * others that they are in, and one of them looks into the file. Thread-safe.
 */
#ifndef MPATH_TUNE_HISTORY_H
#define MPATH_TUNE_HISTORY_H

#include "team/team.h"
#include "tune/history_file.h"

#include <stddef.h>
#include <stdint.h>

#define MPATH_HISTORY_MAX 1280       /* things that a process knows; the one that was learned first makes room */
#define MPATH_HISTORY_FROM_FILE_NS 1 /* learned before everything else */

/* Plain data. */
typedef struct mpath_learned {
    uint64_t
        learned_ns; /* when, by the time of day, which nodes have in common as well as they do; 0: nothing is known */
    uint64_t value; /* as in the file; of rates: bytes per second, */
    uint64_t nominal_bps; /* where the system says this */
} mpath_learned_t;

/* The NIC of a node on the rail of a number. Of no node (NULL): the rail on all nodes of communicators that tell no NICs apart. */
mpath_history_key_t mpath_history_nic(const char *host, int rail);

/* The time of day, in nanoseconds. */
uint64_t mpath_history_now(void);

/* Kept unless something later is known. The number of changes, 0 or 1: the same, learned later, is none. */
unsigned mpath_history_note(const mpath_history_key_t *key, const mpath_learned_t *learned);

mpath_learned_t mpath_history_of(const mpath_history_key_t *key);

/* How many changes of rates there were: who has heard of fewer asks anew. */
unsigned mpath_history_changes(void);

/* Once for each machine: what the file has of it but rates is known from then on. */
void mpath_history_look(const char *path, uint64_t machine);

/* The later of two: the same on all ranks for the same two. */
const mpath_learned_t *mpath_history_later(const mpath_learned_t *a, const mpath_learned_t *b);

/*
 * learned[count]: what this rank knows of as many things, on MPATH_OK the latest that some rank does. Collective; an error has
 * been logged.
 */
mpath_status_t mpath_history_agree(mpath_team_t *team, mpath_learned_t *learned, size_t count);

#endif
