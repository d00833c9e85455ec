/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of NICs that are left out: ranks tell each other what a call would have shown them, without the call. */
#ifndef MPATH_TESTS_UNIT_LOST_NICS_H
#define MPATH_TESTS_UNIT_LOST_NICS_H

#include "ranks.h"
#include "team/team_private.h"
#include "wire/failover.h"

/* Of a rank whose log lines are dropped. */
mpath_context_t *lost_context(ranks_self_t *self);
/* What the first call that moves something makes. */
mpath_links_t *lost_open_links(mpath_team_t *team);

/* The end of a call that this rank gives up unless `loss` is NULL. */
mpath_status_t lost_end_call(mpath_team_t *team, const mpath_failover_loss_t *loss);
/* Rank `rank` of the team has lost these NICs; all ranks are to repeat the call. */
void lose(mpath_team_t *team, int rank, uint32_t nics);

/* Of at most two nodes nothing but these NICs is left out, in the table and in the topology. */
void check_out(const mpath_team_t *team, uint32_t on_first, uint32_t on_second);

#endif
