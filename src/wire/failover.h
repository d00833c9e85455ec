/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failover: how the ranks of a team end a call together, so that it can be repeated over other rails when one has
 * failed, and when rails are used again. For whoever moves chunks over the team's links, which are there.
 */
#ifndef MPATH_WIRE_FAILOVER_H
#define MPATH_WIRE_FAILOVER_H

#include "team/team.h"
#include "wire/links.h"

/* What a call has lost on this rank: NICs of its node, a bit each. */
typedef struct mpath_failover_loss {
    mpath_nic_set_t lost; /* have failed */
    /*
     * Where silence of rails shows in how far each has come: NICs over which something is missing, of those that this
     * rank drives the ones that are furthest behind
     */
    mpath_nic_set_t silent;
    /* How far these are: where no NIC has failed outright, those that are furthest behind of all are left out */
    uint32_t progress;
} mpath_failover_loss_t;

/*
 * The end of such a call for this rank, whatever came of it: waits for the others. With `status` not MPATH_OK the caller
 * feeds no more, and what comes is dropped. MPATH_OK: all have their bytes. MPATH_AGAIN, on all ranks: NICs are out of
 * the team's topology now (mpath_team_topo_version()), nothing is under way any more, the call is to be repeated. Errors
 * are logged; the caller breaks the team and abandons what it moves.
 */
mpath_status_t mpath_failover_settle(mpath_team_t *team, mpath_status_t status, const mpath_failover_loss_t *loss);

/*
 * Collective, at the end of a successful call that is not settled, or that is declined for what rails there are: uses
 * failed rails again that are back, see mpath_team_topo_version(). Costs nothing while no rail is left out, an agreement
 * for each eighth call otherwise.
 */
mpath_status_t mpath_failover_recover(mpath_team_t *team);

/* How often calls were repeated on this team. */
unsigned mpath_links_repeats(const mpath_links_t *links);

/*
 * Of a call that fails, after whoever moves chunks has stopped: the others may do anything, so what does not end in a
 * moment is aborted. Afterwards no rail touches memory of the caller. `nics`: those of this rank that are driven.
 */
void mpath_links_abandon(mpath_links_t *links, mpath_nic_set_t nics);

#endif
