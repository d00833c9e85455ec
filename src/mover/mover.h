/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Move: steps 5 and 6 of a collective. Turns a plan's flows into this rank's duties (my sends, my forwards, my
 * receives) and drives the lanes until they are done. Chunks land at their final offset directly; relays hold them only
 * in lane slots. Slots belong to hop classes (first hop, rail, last hop) that only wait for the next class, and final
 * buffers always take data: bounded buffers cannot deadlock.
 */
#ifndef MPATH_MOVER_MOVER_H
#define MPATH_MOVER_MOVER_H

#include "team/call.h"
#include "team/agree.h"
#include "mover/clock.h"
#include "team/team.h"
#include "plan/plan.h"

/*
 * Carries the plan's flows for this rank, and the diagonal. Returns MPATH_OK when all bytes for this rank are in place,
 * its duties as a relay are done and nobody reads its send buffer any more. The first call on a team sets the lanes up:
 * MPATH_DECLINED, on all ranks alike and for ever, when that failed on one of them; then nothing was moved.
 * MPATH_AGAIN, on all ranks alike: rails have failed and are out of the topology now; to be called again with a new
 * plan and number (mpath_team_call()). Whether a failed rail has this end follows from the settings and the plan.
 * After an error the team is broken and no lane touches the buffers any more. The error of a deadline names the waiting
 * edge: who waits for whom, lane, pair, bytes missing. Adds to *stats unless NULL.
 */
mpath_status_t mpath_move(mpath_team_t *team, const mpath_call_t *call, const mpath_agreed_t *agreed,
                          const mpath_plan_t *plan, mpath_move_stats_t *stats);

/*
 * What the last call of mpath_move(), with this plan, has shown of the rails, at the rates of a topology like
 * the team's; of a plan of MPATH_RAIL_TIMES_LEAST_NS or more: in shorter calls nobody looks. */
void mpath_move_times(const mpath_team_t *team, const mpath_topo_t *topo, const mpath_plan_t *plan,
                      mpath_rail_times_t *times);

#endif
