/* SPDX-License-Identifier: BSD-3-Clause */
/* What the constructions need to keep the routes of an earlier plan. */
#ifndef MPATH_PLAN_FOLLOW_H
#define MPATH_PLAN_FOLLOW_H

#include "plan/internal.h"

/* Bytes of a pair that take a path other than 0. */
typedef struct mpath_piece {
    int32_t source, destination, path;
    uint64_t bytes;
} mpath_piece_t;

/*
 * The pieces of `previous` off path 0, scaled to `demand`: each pair is divided as it was, in whole fragments; pieces
 * go where a pair has become too small for them. Malloc'ed, in the order of flows.
 */
mpath_status_t mpath_plan_scale(const mpath_plan_t *previous, const uint64_t *demand, int num_ranks, uint64_t smallest,
                                mpath_piece_t **pieces_p, size_t *num_pieces_p);

/*
 * Fills a plan from pieces; what they leave takes path 0. Sets flows, loads, relayed bytes, Z and the bottleneck, the
 * constructions (plan/rails/rails.c, plan/construct/construct.c) also the bound of the cuts. MPATH_DECLINED: the topology is of another kind, or has
 * no such path.
 */
mpath_status_t mpath_plan_replay(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                 const mpath_piece_t *pieces, size_t num_pieces);
mpath_status_t mpath_plan_replay_rails(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                       const mpath_piece_t *pieces, size_t num_pieces);
mpath_status_t mpath_plan_replay_ports(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                       const mpath_piece_t *pieces, size_t num_pieces);

#endif
