/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gate: step 4 of a collective. Does mpath carry this call, or the function that it replaces? Decided from agreed data and
 * from the topology only, so that all ranks decide alike.
 *
 * Between nodes mpath runs: its static route alone is as fast as the functions it replaces, and every further rail is a
 * gain. It steps aside where it has nothing to offer: between nodes with a single rail that every rank may drive anyway,
 * when the plan is no better than the static route; and inside one node for large messages, which MPI libraries copy
 * once where mpath's rings copy twice.
 */
#ifndef MPATH_COLL_GATE_H
#define MPATH_COLL_GATE_H

#include "plan/plan.h"
#include "topo/topo.h"
#include "util/param.h"

#include <stdint.h>

/* What the decision needs to know of the bytes that are to be moved. */
typedef struct mpath_gate_view {
    uint64_t largest_bytes; /* of a pair */
    uint64_t between_bytes; /* from node to node, all pairs */
} mpath_gate_view_t;

/* demand[source * ranks + destination] of what the plan has to carry. */
void mpath_gate_look(const mpath_topo_t *topo, const uint64_t *demand, mpath_gate_view_t *view);

/* Why mpath steps aside, a static text; NULL when it does not. */
const char *mpath_gate_before_plan(const mpath_settings_t *settings, const mpath_gate_view_t *view);

/* Whether mpath_gate_after_plan() wants to know the time of the static route, which costs a plan of its own. */
int mpath_gate_compares(const mpath_topo_t *topo, const mpath_settings_t *settings);
const char *mpath_gate_after_plan(uint64_t plan_ns, uint64_t direct_ns);

#endif
