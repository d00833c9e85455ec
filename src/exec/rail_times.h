/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rail times: what a call shows of its rails to this rank. When the last byte has come by each NIC of the node, beside
 * what the NICs at both ends of its ways take at least. A receiver knows it best: what it misses its mates have begun to
 * send, since all have agreed on the call just before, while a sender is done when its bytes lie in buffers of the
 * system. Where rails are copies (MPATH_EMULATED_COPIES) nothing comes by a NIC, and nothing is shown.
 */
#ifndef MPATH_EXEC_RAIL_TIMES_H
#define MPATH_EXEC_RAIL_TIMES_H

#include "exec/schedule.h"
#include "exec/team.h"
#include "plan/plan.h"

/* Of the call under way, by NIC of this node. */
typedef struct mpath_rail_clock {
    uint64_t start_ns;
    uint64_t missing_bytes[MPATH_MAX_NICS]; /* that are to come by it */
    uint64_t took_ns[MPATH_MAX_NICS];       /* from the start until the last of them was here; 0: it is not */
} mpath_rail_clock_t;

/* All have agreed on the call, and this rank begins with these duties. */
void mpath_rail_clock_start(mpath_rail_clock_t *clock, const mpath_schedule_t *schedule);
/* Bytes of a duty have come by rail. */
void mpath_rail_clock_came(mpath_rail_clock_t *clock, const mpath_duty_t *duty, uint32_t bytes);

/*
 * Of a call that is over, by NIC of this node: how long it took until all bytes for this rank had come by it (0: there
 * were none, or few beside what other ranks got), and what the busiest NIC on their ways takes at least for what the plan
 * sends through it.
 */
typedef struct mpath_rail_times {
    uint64_t took_ns[MPATH_MAX_NICS], least_ns[MPATH_MAX_NICS];
} mpath_rail_times_t;

/* At the rates of `topo`, which has the team's ranks and the plan's paths. */
void mpath_rail_times_read(const mpath_rail_clock_t *clock, const mpath_team_t *team, const mpath_topo_t *topo,
                           const mpath_schedule_t *schedule, const mpath_plan_t *plan, mpath_rail_times_t *times);
/* What the busiest NIC of all takes for the plan at the rates of a topology with its paths. */
uint64_t mpath_rail_times_busiest_ns(const mpath_topo_t *topo, const mpath_plan_t *plan);

#endif
