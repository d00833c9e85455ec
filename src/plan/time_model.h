/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time model: how long the flows of a plan take when their bytes move in chunks along their hops.
 *
 * Z counts bytes over rates only. A chunk also has to arrive whole before the next hop takes it on, and each hop has a
 * latency. With, for hop i of a flow, rate r_i (of its slowest resource), chunk c and latency L_i,
 *
 *   one flow alone        sum over i of (c / r_i + L_i)  +  (bytes - c) / min over i of r_i
 *   all flows on resource q that they cross on their hop h
 *                         head + load_q / capacity_q + tail
 *       head    the earliest moment at which a first chunk gets there: least of sum over i < h of (c / r_i + L_i)
 *       tail    what a last chunk still has to do behind q: most of L_h + sum over i > h of (max(c / r_i, d_i) + L_i),
 *               with d_i the time in which the last chunks of all flows that end there together cross hop i
 *
 * and the prediction is the largest of all these. That is the pipeline formula of Hockney's and LogGP's kind
 * (Alexandrov et al., SPAA 1995) applied to each resource. It assumes that flows share a resource in proportion to
 * their bytes, as the executor does by serving what is furthest behind; then no flow is late because of another
 * (doc/planner.md).
 *
 * Integers only: every rank predicts the same number for the same plan.
 */
#ifndef MPATH_PLAN_TIME_MODEL_H
#define MPATH_PLAN_TIME_MODEL_H

#include "plan/plan.h"

typedef struct mpath_time_params {
    uint64_t chunk_bytes; /* largest chunk */
    uint32_t hop_ns;      /* that each hop costs besides the latencies of its resources: software, flags */
} mpath_time_params_t;

/* 128 KiB, 500 ns */
void mpath_time_params_init(mpath_time_params_t *params);

/*
 * Size of the chunks of a flow: at most chunk_bytes, and no more than its slowest resource carries in 2 ms; over
 * several hops at least four chunks of 8 KiB or more. The same rule as the executor's, without the limits of its slots.
 */
uint64_t mpath_time_chunk_bytes(const mpath_topo_t *topo, const mpath_path_t *path, uint64_t flow_bytes,
                                const mpath_time_params_t *params);

/* Rate of a hop's slowest resource (UINT64_MAX where it uses none), and its latency. */
void mpath_time_hop(const mpath_topo_t *topo, const mpath_path_t *path, int hop, const mpath_time_params_t *params,
                    uint64_t *rate_bps_p, uint64_t *latency_ns_p);

/* What a first chunk of a flow takes to its end, alone: what a busy resource on its path adds to its load over its rate at most, if flows end one after the other. */
uint64_t mpath_time_fill_ns(const mpath_topo_t *topo, const mpath_path_t *path, uint64_t flow_bytes,
                            const mpath_time_params_t *params);

/* Predicted time of all flows together. `params` NULL: the defaults. MPATH_ERR_NO_MEMORY, logged. */
mpath_status_t mpath_time_predict(const mpath_topo_t *topo, const mpath_plan_t *plan, const mpath_time_params_t *params,
                                  uint64_t *predicted_ns_p);

#endif
