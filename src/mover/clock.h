/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rail times: what a call shows of its rails to this rank. When the last byte has come by each NIC of the node, and from
 * each NIC of the others, beside what the NICs at both ends of its paths take at least. A receiver knows it best: what it
 * misses its mates have begun to send, since all have agreed on the call just before, while a sender is done when its
 * bytes lie in buffers of the system. Where rails are copies (MPATH_EMULATED_COPIES) nothing comes by a NIC, and nothing
 * is shown.
 */
#ifndef MPATH_MOVER_CLOCK_H
#define MPATH_MOVER_CLOCK_H

#include "mover/schedule.h"
#include "team/team.h"
#include "plan/plan.h"
#include "util/time.h"

#define MPATH_RAIL_TIMES_LEAST_NS                                                                                      \
    MPATH_NS_PER_MS                /* of a plan: shorter calls show latencies, nobody asks for their times */
#define MPATH_RAIL_TIMES_NODES 128 /* of larger teams only the NICs of this node are looked at */

/* A NIC of another node that sends to this rank. */
typedef struct mpath_rail_source {
    uint64_t bytes, missing_bytes; /* from it to this rank, and those that have not come */
    uint64_t took_ns;              /* from the start until the last of them was here; 0: it is not */
    uint64_t least_ns;             /* what the busier of the NICs at both ends takes at least, for all of its load, */
    uint64_t own_ns;               /* and what the source itself takes */
    uint64_t load_bytes;           /* that the plan sends through the source */
} mpath_rail_source_t;

/* Of the call under way. */
typedef struct mpath_rail_clock {
    const mpath_team_t *team;
    int num_sources;              /* 0: they are not looked at */
    int source_nics;              /* most that a node has */
    mpath_rail_source_t *sources; /* by node and NIC number there, [source_nics] each; else NULL */
    int *used, num_used;          /* those of them that this rank gets something from: the others are zero */
    uint64_t start_ns;
    /* by NIC of this node */
    uint64_t bytes[MPATH_MAX_NICS];         /* that come by it */
    uint64_t missing_bytes[MPATH_MAX_NICS]; /* that are still to come */
    uint64_t took_ns[MPATH_MAX_NICS];       /* from the start until the last of them was here; 0: it is not */
    uint64_t pace_ns[MPATH_MAX_NICS];       /* see below */
} mpath_rail_clock_t;

mpath_status_t mpath_rail_clock_init(mpath_rail_clock_t *clock, const mpath_team_t *team);
void mpath_rail_clock_release(mpath_rail_clock_t *clock);

/* All have agreed on the call, and this rank begins with these duties. */
void mpath_rail_clock_start(mpath_rail_clock_t *clock, const mpath_schedule_t *schedule);
/* Bytes of a duty have come by rail. */
void mpath_rail_clock_came(mpath_rail_clock_t *clock, const mpath_duty_t *duty, uint32_t bytes);

/*
 * Of a call that is over, by NIC of this node: how long it took until all bytes for this rank had come by it (0: there
 * were none, or few beside what other ranks got), what the busiest NIC on their paths takes at least for what the plan
 * sends through it, and what the NIC itself takes. pace_ns is how long all would have taken at the pace at which bytes had
 * come by the NIC when a source, with half of them here or more, had nothing more to send: while the others are late the
 * NIC still shows what it carries.
 */
typedef struct mpath_rail_times {
    uint64_t took_ns[MPATH_MAX_NICS], least_ns[MPATH_MAX_NICS], own_ns[MPATH_MAX_NICS], pace_ns[MPATH_MAX_NICS];
    int source_nics;
    const mpath_rail_source_t *sources; /* as in the clock; what this rank gets nothing from has 0 bytes */
} mpath_rail_times_t;

/* At the rates of `topo`, which has the team's ranks and the plan's paths. */
void mpath_rail_times_read(mpath_rail_clock_t *clock, const mpath_team_t *team, const mpath_topo_t *topo,
                           const mpath_schedule_t *schedule, const mpath_plan_t *plan, mpath_rail_times_t *times);
/* What the busiest NIC of all takes for the plan at the rates of a topology with its paths. */
uint64_t mpath_rail_times_busiest_ns(const mpath_topo_t *topo, const mpath_plan_t *plan);

#endif
