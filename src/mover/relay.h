/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay: steps 5 and 6 of a collective for device memory, over GPUs that pass chunks on. What mover/mover.h is for host
 * memory.
 *
 * A hop is done by the process that has its source: a copy engine writes the chunk to where it goes, peer-mapped memory
 * of the next GPU, and when the copy is complete the process tells the next one. The last hop writes to the final
 * offset in the receive buffer. A GPU on the way has a few slots for chunks, in classes (mover/relay_segment.h) that wait only
 * for the next one, so that bounded slots cannot deadlock.
 *
 *   peer     copy to a slot or a receive buffer of a GPU of the node
 *   rail     emulated (MPATH_EMULATED_COPIES): the same copy, to a GPU of another virtual node of this host. Else by
 *            slots of rails, in pinned host memory or on the GPUs (mover/relay_hop.c): a copy to a slot, NIC to NIC
 *            (wire/wire.h), a copy from a slot, all three at a time
 *   staged   GPU -> host by the source, host -> GPU by the destination
 *
 * Where the topology is emulated, hops hold its rates (mover/pace.h).
 *
 * Ownership: a relay belongs to a team and ends before it. One thread at a time, as for the team.
 */
#ifndef MPATH_MOVER_RELAY_H
#define MPATH_MOVER_RELAY_H

#include "team/call.h"
#include "team/agree.h"
#include "mover/clock.h"
#include "team/team.h"
#include "plan/plan.h"

typedef struct mpath_relay mpath_relay_t;

/*
 * Local and cheap. *relay_p may be one that is not usable: GPUs that reach each other all alike need no relay, and
 * where no topology describes GPUs there is none.
 */
mpath_status_t mpath_relay_create(mpath_team_t *team, mpath_relay_t **relay_p);
void mpath_relay_destroy(mpath_relay_t *relay);

/* Whether a plan can help such GPUs: of several nodes, with direct links, or with rates that only chunks can hold. */
int mpath_relay_helps(const mpath_topo_t *topo);

/* Whether calls with device memory may be served here. The same on all ranks. */
int mpath_relay_usable(const mpath_relay_t *relay);

/*
 * Before every agreement while usable, with and without device memory: tells the others of this rank's buffers, and
 * sets flags of the call: MPATH_CALL_APART when this rank has bytes that it cannot give to, or take from, a copy
 * engine, or has no GPU yet where the ranks' GPUs are to be found out.
 */
void mpath_relay_publish(mpath_relay_t *relay, mpath_call_t *call);
/* After every agreement: the flags that all have agreed on. */
void mpath_relay_take_flags(mpath_relay_t *relay, uint32_t flags);

/*
 * After an agreement with MPATH_CALL_DEVICE and without MPATH_CALL_INELIGIBLE; slots are made the first time, and anew
 * when the application of some rank has ended the context of its GPU and has buffers in another one, or has its first
 * buffers on a GPU of which nothing was known. *topo_p
 * is what the call is to be planned for; it lives as long as the relay, but another may follow, when a GPU short of
 * memory gives its slots back and passes nothing on from then on. MPATH_DECLINED, on all ranks alike: not this call, none
 * until rails fail or come back, or none from now on (mpath_relay_usable()). Errors break the team.
 */
mpath_status_t mpath_relay_prepare(mpath_relay_t *relay, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                   const mpath_topo_t **topo_p);

/*
 * After mpath_relay_prepare(), with a plan for its topology: makes the slots that the plan's hops need, where they are
 * not there yet. All ranks alike: MPATH_AGAIN where slots in host memory cannot be had: to be repeated from
 * mpath_relay_prepare() on, whose topology does without them. MPATH_DECLINED: not this plan, or none from now on.
 * Errors break the team.
 */
mpath_status_t mpath_relay_provide(mpath_relay_t *relay, const mpath_plan_t *plan);

/* Plans are others from now on for the same topology and the same calls, by which parts of plans are known. On all ranks alike. */
void mpath_relay_forget_plans(mpath_relay_t *relay);

/*
 * After mpath_relay_provide(): carries this rank's part of the flows, and the diagonal.
 * On MPATH_OK all bytes for this rank are in place, for any stream, its duties as a relay are done and nobody reads its
 * send buffer any more. MPATH_DECLINED, on all ranks alike: some rank cannot open memory that it would have to write
 * to; nothing was moved. MPATH_AGAIN, on all ranks alike: rails have failed; to be repeated from mpath_relay_prepare()
 * on, with the same call. Any other result breaks the team, and nothing of this rank is under way any more.
 */
mpath_status_t mpath_relay_move(mpath_relay_t *relay, const mpath_plan_t *plan);

/*
 * What the last call of mpath_relay_move(), with this plan, has shown of the rails, at the rates of a topology
 * like its own. */
void mpath_relay_times(mpath_relay_t *relay, const mpath_topo_t *topo, const mpath_plan_t *plan,
                       mpath_rail_times_t *times);

void mpath_relay_get_stats(const mpath_relay_t *relay, mpath_relay_stats_t *stats);

#endif
