/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Planner: demand + topology -> flows.
 *
 * Minimises Z = max over resources of load / capacity with all demand shipped; among plans of (nearly) equal Z the one
 * with the fewest relayed bytes, then the fewest fragments. Multiplicative weights in the Garg-Konemann / Fleischer
 * family (Garg and Konemann, SIAM J. Comput. 37(2), 2007; Fleischer, SIAM J. Discrete Math. 13(4), 2000) with
 * bottleneck pricing, closed forms where rails are equal. Every plan carries a lower bound of the optimum, proved by
 * the weights (LP duality) and by cuts.
 *
 * Determinism: integer arithmetic and fixed iteration order only, so that every rank computes the same bits, whatever
 * compiler and machine. A plan is immutable after creation and may be read by several threads.
 */
#ifndef MPATH_PLAN_PLAN_H
#define MPATH_PLAN_PLAN_H

#include "topo/topo.h"
#include "util/status.h"

#include <stdint.h>

typedef enum mpath_policy {
    MPATH_POLICY_MPATH,  /* minimum congestion */
    MPATH_POLICY_DIRECT, /* path 0 of every pair */
    MPATH_POLICY_STRIPE, /* every pair evenly over all its paths without a relay; path 0 where there is none */
    MPATH_POLICY_PXN,    /* one relay on the source's node to the destination's rail, as NCCL's PXN */
    MPATH_POLICY_PAIRS   /* minimum congestion by pairs of nodes (plan/pairs.h); where there is no such plan as mpath */
} mpath_policy_t;

typedef struct mpath_plan_params {
    mpath_policy_t policy;
    uint64_t min_fragment_bytes; /* a pair is not split into flows smaller than this; at least 1 */
    uint32_t gap_ppm;            /* accepted gap between Z and the bound, parts per million */
    uint32_t max_rounds;         /* limit of the iteration */
    uint32_t keep_ppm;           /* what kept routes may cost above new ones, parts per million of Z */
} mpath_plan_params_t;

/* policy mpath, 32 KiB, 2000 ppm, enough rounds, 20000 ppm */
void mpath_plan_params_init(mpath_plan_params_t *params);

/* A part of a pair's message: bytes [offset, offset + bytes) of it take path `path` of the pair. 32 bytes. */
typedef struct mpath_flow {
    int32_t source, destination;
    int32_t path;
    uint32_t number; /* in a part of a plan, see mpath_plan_flow_number() */
    uint64_t offset;
    uint64_t bytes;
} mpath_flow_t;

typedef struct mpath_plan mpath_plan_t;

/*
 * demand[source * num_ranks + destination] in bytes; the diagonal is ignored. MPATH_ERR_UNREACHABLE when a pair with
 * bytes has no path, MPATH_ERR_PARAM when the demands add up to 2^62 bytes or more (both logged). `params` NULL: the
 * defaults.
 */
mpath_status_t mpath_plan_create(const mpath_topo_t *topo, const uint64_t *demand, const mpath_plan_params_t *params,
                                 mpath_plan_t **plan_p);
void mpath_plan_destroy(mpath_plan_t *plan);

/*
 * A plan of flows that somebody else has made: in order of source, destination and offset, those of each pair its
 * bytes exactly, on paths that the topology has. MPATH_ERR_PARAM, logged, where they are not. The bound is that of the
 * cuts.
 */
mpath_status_t mpath_plan_from_flows(const mpath_topo_t *topo, const uint64_t *demand, const mpath_flow_t *flows,
                                     size_t num_flows, mpath_plan_t **plan_p);

/*
 * The same, with hysteresis: keeps the routes of `previous`, each pair divided as before and scaled to its bytes, while
 * their Z is within keep_ppm of the new bound, or of the Z that new routes would have; else these. So the loss against
 * new routes never exceeds keep_ppm, however often routes are kept. Searches for new routes start from the old ones.
 * A function of its arguments only. The topology must have the same ranks and paths as that of `previous`; its rates
 * may differ. `previous` NULL, or keep_ppm 0: as mpath_plan_create().
 */
mpath_status_t mpath_plan_follow(const mpath_topo_t *topo, const uint64_t *demand, const mpath_plan_params_t *params,
                                 const mpath_plan_t *previous, mpath_plan_t **plan_p);
/* Nonzero: two topologies have the same ranks and paths; only rates may differ. */
int mpath_plan_has_same_paths(const mpath_topo_t *topo, const mpath_topo_t *other);

/* What the policy PXN takes: the path with one relay at most, on the source's node, over the rail beside the destination; 0 without one. */
int mpath_plan_pxn_path(const mpath_topo_t *topo, int source, int destination);

/* Flows in order of source, destination, offset; owned by the plan. Those of a pair cover its bytes exactly. */
const mpath_flow_t *mpath_plan_flows(const mpath_plan_t *plan, size_t *num_flows_p);
/*
 * Nonzero: the flows are those that one rank has to do with, out of a plan that nobody has as a whole (plan/pairs.h). Such
 * a plan has no loads.
 */
int mpath_plan_is_part(const mpath_plan_t *plan);
/* What all ranks call the flow at this index: ascending with it, the same on all that have the flow. */
uint32_t mpath_plan_flow_number(const mpath_plan_t *plan, size_t index);
/* Bytes on each resource of the topology; owned by the plan. */
const uint64_t *mpath_plan_loads(const mpath_plan_t *plan);

/* Z and its certified lower bound, in nanoseconds (rounded up and down). */
uint64_t mpath_plan_z_ns(const mpath_plan_t *plan);
uint64_t mpath_plan_bound_ns(const mpath_plan_t *plan);
/* The most loaded resource; -1 in an empty plan. */
int mpath_plan_bottleneck(const mpath_plan_t *plan);
/* Bytes that land in a relay's memory, counted once per relay. */
uint64_t mpath_plan_relayed_bytes(const mpath_plan_t *plan);
/* Nonzero: the routes are those of an earlier plan; *loss_ppm_p (may be NULL) bounds what they cost above new ones. */
int mpath_plan_is_kept(const mpath_plan_t *plan, uint32_t *loss_ppm_p);
/* A checksum over the flows. */
uint64_t mpath_plan_signature(const mpath_plan_t *plan);

/*
 * The bound of inter-node traffic that needs no plan: over all nodes, the larger of the bytes that leave it and that
 * enter it, divided by the sum of its rails' rates ("all-rails bound"). Nanoseconds.
 */
uint64_t mpath_plan_all_rails_bound_ns(const mpath_topo_t *topo, const uint64_t *demand);

#endif
