/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow-level simulator: what happens when all flows of a plan start at once. A check on the planner and on its time
 * model that shares with them only the topology and the sizes of chunks.
 *
 * Each hop of a flow is a stage that moves its bytes through the hop's resources. At any moment the rates of all stages
 * are max-min fair: all rise together until a resource is full, the stages on it stop there, the rest rises on
 * (progressive filling; Bertsekas and Gallager, Data Networks, 1992, section 6.5). A stage beyond the first one starts
 * when the first chunk has arrived, stays a chunk behind the stage before it, and gets the last chunk when it has
 * arrived whole. A relay has room for a few chunks of each flow; the stage before it moves no faster than the one after
 * it when they are full.
 *
 * Rates change only at events (a stage starts, catches up, ends), and time jumps from event to event. Floating point:
 * the result is for people, not for ranks that have to agree.
 */
#ifndef MPATH_TOOLS_SIMULATE_H
#define MPATH_TOOLS_SIMULATE_H

#include "plan/plan.h"
#include "plan/time_model.h"

typedef enum simulate_share {
    SIMULATE_SHARE_BYTES, /* flows share in proportion to their bytes, as mpath serves them: what is furthest behind */
    SIMULATE_SHARE_EQUAL  /* every flow the same, as independent connections do */
} simulate_share_t;

typedef struct simulate_params {
    mpath_time_params_t time; /* chunks and latencies, as in the time model */
    simulate_share_t share;
    uint32_t depth; /* chunks of a flow that a relay holds, at least 2; 0: any number */
    /* Events within this fraction of Z count as one: 0 is exact, 0.001 lets hundreds of ranks take seconds. */
    double resolution;
} simulate_params_t;

/* Shares by bytes, 4 chunks, exact. */
void simulate_params_init(simulate_params_t *params);

typedef struct simulate_result {
    double seconds;      /* until the last byte of the last flow has arrived */
    uint64_t peak_bytes; /* most that all relays hold at one time */
} simulate_result_t;

#define SIMULATE_MAX_FLOWS 1000000u

/* MPATH_ERR_NO_MEMORY, MPATH_ERR_UNSUPPORTED for more flows than SIMULATE_MAX_FLOWS; logged. */
mpath_status_t simulate_plan(const mpath_topo_t *topo, const mpath_plan_t *plan, const simulate_params_t *params,
                             simulate_result_t *result);

#endif
