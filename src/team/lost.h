/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NICs that a team leaves out since they failed, and when it asks whether they may be used again. Whoever learns that some
 * have failed (wire/failover.h, wire/connect.c) says so here, on all ranks alike; teams that the process makes from then on
 * begin without them. A bit for each NIC, by the numbers of its node in the team's topology.
 */
#ifndef MPATH_TEAM_LOST_H
#define MPATH_TEAM_LOST_H

#include "team/team.h"
#include "util/time.h"

#define MPATH_PROBE_FIRST_NS (10 * MPATH_NS_PER_S) /* a NIC that has failed is left out for so long at least, */
#define MPATH_PROBE_MOST_NS (640 * MPATH_NS_PER_S) /* and where it fails again and again for so long at most */

/* Of any node, by their numbers; of one node: mpath_team_lost(). */
mpath_nic_set_t mpath_team_lost_anywhere(const mpath_team_t *team);

/*
 * Takes NICs of a node out of the topology or in again, saying why, and counts those for which that was news. The same on
 * all ranks, which come to mpath_team_lost_failed() or mpath_team_topo_changed() then.
 */
int mpath_team_lost_set(mpath_team_t *team, int node, mpath_nic_set_t nics, int up, const char *why);

/* Some have failed in a call, `nics` of this node among them: when to ask for them, here and in other teams. */
void mpath_team_lost_failed(mpath_team_t *team, mpath_nic_set_t nics);
/* Some are used again, `nics` of this node among them. */
void mpath_team_lost_found(mpath_team_t *team, mpath_nic_set_t nics);
/* These of this node are left out, or not any more: for the teams that are made from now on. */
void mpath_team_lost_note(const mpath_team_t *team, mpath_nic_set_t nics, int lost);

/*
 * NICs that some of their processes cannot open, by node: left out like those that have failed, and asked for after twice as
 * long each time. 0: some pair of ranks would have no path without them, and nothing was done; else 1, or 2 when this
 * process has not been told of such before. The same on all ranks but for that.
 */
int mpath_team_lost_unopened(mpath_team_t *team, const mpath_nic_set_t *nics);
/* How long those are left out at least. */
uint64_t mpath_team_lost_probe_ns(const mpath_team_t *team);

/* Whether it is the turn of a call that does not settle to ask about them all the same. Alike on all ranks. */
int mpath_team_lost_is_due(mpath_team_t *team);
/*
 * Asked of the first rank of each node; 0 of the others. NICs of the node that are left out and may be tried again; it goes
 * on saying so from call to call, since that of another node may come to it a call later, and they have to say it in the
 * same one.
 */
mpath_nic_set_t mpath_team_lost_back(mpath_team_t *team);
/* NICs in use without a carrier, where other nodes have lost theirs: they may be the dead end to which silence was due. */
mpath_nic_set_t mpath_team_lost_dark(mpath_team_t *team);

#endif
