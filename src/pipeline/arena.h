/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arena: memory in which the ranks of a node hand each other the data of reductions and gathers. Communicators of the same
 * processes share one: a call takes it for all of them, and each leaves it when it is through. Where a call of another
 * communicator has it at that time, the ranks make one more. The last communicator that uses one ends it.
 *
 * Shared memory of the node, in a segment that has a name until all have attached; the heap where a node has one rank.
 * Threads: any; each rank of a node has an object of its own.
 */
#ifndef MPATH_PIPELINE_ARENA_H
#define MPATH_PIPELINE_ARENA_H

#include "device/pinned.h"
#include "lane/segment.h"
#include "team/team.h"

typedef struct mpath_arena mpath_arena_t;

/*
 * That which this rank has made last with the mates that it has in the team; NULL: none. Whether they all have it still,
 * its name tells, which no other one has. Undone by mpath_arena_put(), as what follows.
 */
mpath_arena_t *mpath_arena_find(const mpath_team_t *team);
/* A new one of `bytes` bytes; by one rank, while the others attach to it by its name. */
mpath_status_t mpath_arena_create(const mpath_team_t *team, size_t bytes, mpath_arena_t **arena_p);
mpath_status_t mpath_arena_attach(const mpath_team_t *team, const char *name, size_t bytes, mpath_arena_t **arena_p);
/* All have attached or given up: the name may go, and the memory counts as held. */
void mpath_arena_attached(mpath_arena_t *arena);
void mpath_arena_put(mpath_arena_t *arena);

const char *mpath_arena_name(const mpath_arena_t *arena);
size_t mpath_arena_bytes(const mpath_arena_t *arena);
char *mpath_arena_base(const mpath_arena_t *arena); /* at the start of a page */

/* A number for a communicator that uses it, which no other one has. For the rank that takes it. */
uint32_t mpath_arena_number(mpath_arena_t *arena);
/*
 * By one rank for all of the node, before the ranks agree on a call: 1, or 0 where a call of another communicator has it.
 * Mates may still be in the call before of the same communicator; they have left it when they agree.
 */
int mpath_arena_take(mpath_arena_t *arena, uint32_t number);
/* By the same rank: the call does without it after all. Nobody has begun to use it. */
void mpath_arena_return(mpath_arena_t *arena);
/* By each rank of the node, when it neither reads nor writes there any more. */
void mpath_arena_leave(mpath_arena_t *arena);

/* Makes it known to GPUs, anew where the context that knew it has ended; of it then, until mpath_arena_put(). */
mpath_status_t mpath_arena_register(mpath_arena_t *arena, mpath_gpu_t *gpu);
const mpath_pinned_t *mpath_arena_pinned(const mpath_arena_t *arena);

#endif
