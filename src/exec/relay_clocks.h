/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay clocks: where the clocks of emulated ports (lane/pace.h) lie, for all communicators of a job. The lowest rank
 * of a communicator lends those that its process has, or makes some; the others map them through its /proc folder, so
 * that nothing is left behind by processes that are killed. A process keeps what it has mapped to its end.
 */
#ifndef MPATH_EXEC_RELAY_CLOCKS_H
#define MPATH_EXEC_RELAY_CLOCKS_H

#include "exec/team.h"

/*
 * Collective. MPATH_PACE_BYTES bytes that stay to the end of the process; either all ranks have them or all get an
 * error, logged.
 */
mpath_status_t mpath_relay_clocks_get(mpath_team_t *team, void **clocks_p);
/* What tells these clocks from others of the host. */
uint64_t mpath_relay_clocks_id(const void *clocks);

#endif
