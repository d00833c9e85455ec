/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kept: what calls have shown of a machine, for communicators of this process that begin later, and in the file
 * (adapt/store.h) for later jobs: all its kinds but rates, which have a table by rails of their own (adapt/known.h).
 * Whatever is taken from here has to be exchanged first, for the ranks of a communicator may know different things from
 * others that they are in, and one of them looks into the file. Thread-safe.
 */
#ifndef MPATH_ADAPT_KEPT_H
#define MPATH_ADAPT_KEPT_H

#include "adapt/store.h"

#include <stdint.h>

#define MPATH_KEPT_MAX 256 /* lines of a process; the one that was learned first makes room */

/* Plain data. */
typedef struct mpath_kept {
    uint64_t learned_ns; /* mpath_known_now(); 0: nothing is known */
    uint64_t value;
} mpath_kept_t;

/* What this process knows of the key of a line. */
mpath_kept_t mpath_kept_of(const mpath_store_line_t *key);
/* Kept unless something later is known. */
void mpath_kept_note(const mpath_store_line_t *key, const mpath_kept_t *kept);

/* Once for each machine: what the file has of it is known from then on, as learned before everything else. */
void mpath_kept_look(const char *path, uint64_t machine);

/* The later of two: the same on all ranks for the same two. */
const mpath_kept_t *mpath_kept_later(const mpath_kept_t *a, const mpath_kept_t *b);

#endif
