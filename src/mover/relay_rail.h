/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, rails and the host's part: slots that a rail sends from and receives into, and slots on the host that a
 * destination fetches from. For the files relay*.c only.
 *
 * A rank that receives by rails has a window of slots for each that sends to it; the sender chooses the slot, so a
 * chunk that arrives always has one, and gets it back as a credit when the chunk has gone on from it.
 */
#ifndef MPATH_MOVER_RELAY_RAIL_H
#define MPATH_MOVER_RELAY_RAIL_H

#include "mover/relay_private.h"

/*
 * Collective, for every new plan: makes what its hops need and is not there yet. MPATH_AGAIN, on all ranks: there are no
 * slots on hosts, and another topology is to be planned for.
 */
mpath_status_t mpath_relay_rails_prepare(mpath_relay_t *relay, const mpath_plan_t *plan);
/* Notes whether some rank's hops go over NICs, or through host memory. The same on all ranks. */
void mpath_relay_rails_look(const mpath_relay_t *relay, const mpath_plan_t *plan, relay_bound_t *bound);
/* Most bytes of a chunk that crosses a rail. */
uint64_t mpath_relay_rails_chunk(const mpath_relay_t *relay);
void mpath_relay_rails_cleanup(mpath_relay_t *relay);

void mpath_relay_rails_begin(mpath_relay_t *relay);
void mpath_relay_rails_end(mpath_relay_t *relay);
/* Drives the NICs, and what waits for a slot. Number of events, or an error. */
int mpath_relay_rails_progress(mpath_relay_t *relay);
/* Nothing of the call is left in the rails. */
int mpath_relay_rails_idle(const mpath_relay_t *relay);
/* Whether the other end of the rail that the duty sends by has yet to give room back, which may be all that is missing. */
int mpath_relay_rails_owe(const mpath_relay_t *relay, const mpath_duty_t *duty);
/* Of a NIC of this node, for messages. */
const char *mpath_relay_rails_name(const mpath_relay_t *relay, int nic);
/* A call is given up: what comes is dropped; what is under way ends when the ranks settle. */
void mpath_relay_rails_stop(mpath_relay_t *relay);
/* It fails: nothing is under way afterwards. */
void mpath_relay_rails_abandon(mpath_relay_t *relay);
/*
 * When all ranks have settled after mpath_relay_rails_stop(): all slots and credits are where they belong, for the call's
 * repetition.
 */
mpath_status_t mpath_relay_rails_restart(mpath_relay_t *relay);
/* NICs, a bit each, on which something of the call has failed. */
mpath_nic_set_t mpath_relay_rails_lost(const mpath_relay_t *relay);

/*
 * A slot to send the op's chunk from, with room at the other end for it; RELAY_NO_SLOT: none now. Where rails know the
 * pool, a chunk that waits there is sent from its place. One that yields takes no other room than the first slot there.
 */
int mpath_relay_rails_slot(mpath_relay_t *relay, const relay_op_t *op, int yields);
/* Whether that slot is the chunk's place in the pool. */
int mpath_relay_rails_in_place(const relay_op_t *op);
void mpath_relay_rails_give(mpath_relay_t *relay, const mpath_duty_t *duty, int slot);
mpath_device_ptr_t mpath_relay_rails_address(const mpath_relay_t *relay, const mpath_duty_t *duty, int slot);
/* The chunk of a RELAY_TO_WIRE op is in its slot: to the rail with it. */
mpath_status_t mpath_relay_rails_send(mpath_relay_t *relay, const relay_op_t *op);
/* That of a RELAY_FROM_WIRE op is on the GPU. */
mpath_status_t mpath_relay_rails_taken(mpath_relay_t *relay, const relay_op_t *op);
/* mover/relay_rail.c: before the pool goes. */
void mpath_relay_slots_forget_pool(mpath_relay_t *relay);

/* mover/relay_hop.c: the chunk has left this rank. */
void mpath_relay_left(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t bytes);

/* Slots on the host, of all members: how many each has, and where one is for this rank's GPU. */
int mpath_relay_host_slots(const mpath_relay_t *relay);
mpath_device_ptr_t mpath_relay_host_slot(const mpath_relay_t *relay, int member, int slot);

#endif
