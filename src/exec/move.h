/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Move: steps 5 and 6 of a collective. Turns a plan's flows into this rank's duties (my sends, my forwards, my
 * receives) and drives the lanes until they are done. Chunks land at their final offset directly; relays hold them only
 * in lane slots. Slots belong to hop classes (first hop, rail, last hop) that only wait for the next class, and final
 * buffers always take data: bounded buffers cannot deadlock.
 */
#ifndef MPATH_EXEC_MOVE_H
#define MPATH_EXEC_MOVE_H

#include "exec/agree.h"
#include "exec/rail_times.h"
#include "exec/team.h"
#include "plan/plan.h"

typedef struct mpath_move_stats {
    uint64_t sent_bytes, received_bytes; /* mine */
    uint64_t forwarded_bytes;            /* others', through me */
    uint64_t rail_bytes[MPATH_MAX_NICS]; /* that I put on each rail */
} mpath_move_stats_t;

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
 * the team's. */
void mpath_move_times(const mpath_team_t *team, const mpath_topo_t *topo, const mpath_plan_t *plan,
                      mpath_rail_times_t *times);

/*
 * Collective, at the end of a successful call that does not go through mpath_move(), or that is declined for what rails
 * there are: uses failed rails again that are back, see mpath_team_topo_version(). Costs nothing while no rail is left
 * out, an agreement for each eighth call otherwise.
 */
mpath_status_t mpath_move_recover(mpath_team_t *team);

/*
 * For calls over the team's wire, which is there: whether their ranks end one with this plan together, so that it can
 * be repeated. Alike on all.
 */
int mpath_move_settles(const mpath_team_t *team, const mpath_plan_t *plan);
/*
 * The end of such a call for this rank: waits for the others. `lost`: NICs of this node that have failed, a bit each;
 * with `status` not MPATH_OK the caller has stopped the wire. MPATH_OK: all have their bytes. MPATH_AGAIN, on all ranks:
 * NICs are out of the team's topology now (mpath_team_topo_version()), nothing is under way any more, the call is to be
 * repeated. Errors are logged; the caller breaks the team and abandons the wire.
 */
mpath_status_t mpath_move_settle(mpath_team_t *team, mpath_status_t status, uint32_t lost);

/*
 * While this rank waits there for the others: one that was late may still send what is given up here, and its rails seem
 * dead to it if nobody reads that.
 */
void mpath_move_drain(mpath_team_t *team);

/*
 * The same for calls without a plan, of which the time is predicted, and where silence of rails shows in how far each
 * has come.
 */
typedef struct mpath_move_loss {
    uint32_t lost; /* as above */
    /* NICs over which something is missing: of those that this rank drives the ones that are furthest behind */
    uint32_t silent;
    /* How far these are: where no NIC has failed outright, those that are furthest behind of all are left out */
    uint32_t progress;
} mpath_move_loss_t;
int mpath_move_settles_ns(const mpath_team_t *team, uint64_t predicted_ns);
mpath_status_t mpath_move_settle_loss(mpath_team_t *team, mpath_status_t status, const mpath_move_loss_t *loss);

#endif
