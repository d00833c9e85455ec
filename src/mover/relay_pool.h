/* SPDX-License-Identifier: BSD-3-Clause */
/* Relay, slots on the GPUs for chunks that pass through. For the files relay*.c only. */
#ifndef MPATH_MOVER_RELAY_POOL_H
#define MPATH_MOVER_RELAY_POOL_H

#include "mover/relay_private.h"

/* Finds through whom the topology's paths pass, and makes this rank's slots if it is one of them and has memory. */
void mpath_relay_pool_make(mpath_relay_t *relay);
void mpath_relay_pool_free(mpath_relay_t *relay);
/*
 * Collective: all learn who has slots, and who can open those that it has to write to. *without_p: mask of the ranks
 * that cannot pass on.
 */
mpath_status_t mpath_relay_pool_agree(mpath_relay_t *relay, uint64_t *without_p);
/* Mask of the ranks through whose GPUs paths of a topology pass. */
uint64_t mpath_relay_pool_passers(const mpath_relay_t *relay, const mpath_topo_t *topo);
/* Opens those that this rank would have to write to in a topology. Returns a mask of those with whom it failed. */
uint64_t mpath_relay_pool_open(mpath_relay_t *relay, const mpath_topo_t *topo);
/* Of the ranks of a mask. */
void mpath_relay_pool_close(mpath_relay_t *relay, uint64_t ranks);
/* Who cannot pass on, and why; once as a warning. */
void mpath_relay_pool_say(const mpath_relay_t *relay, uint64_t without, const char *why);
/*
 * Before a call: whether this rank's GPU is short of memory. Every 64 calls of the process that asks the driver, and of
 * every communicator once that has found so.
 */
int mpath_relay_pool_is_short(mpath_relay_t *relay);
/* The same, asked now. */
int mpath_relay_pool_is_short_now(const mpath_relay_t *relay);

#endif
