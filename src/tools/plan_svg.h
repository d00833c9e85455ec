/* SPDX-License-Identifier: BSD-3-Clause */
/* A picture of a plan: every node with its GPUs, links and NICs, as loaded by the static routes and by the plan. */
#ifndef MPATH_TOOLS_PLAN_SVG_H
#define MPATH_TOOLS_PLAN_SVG_H

#include "plan/plan.h"
#include "topo/topo.h"

#define PLAN_SVG_MAX_NODES 64

/*
 * Writes an SVG file. `before` and `after` are plans on `topo` for one demand; `after_name` is the policy of the
 * second. Colours and heights of all gauges are times, on one scale up to the Z of `before` (or of `after`, where that
 * is longer). MPATH_ERR_PARAM for more than PLAN_SVG_MAX_NODES nodes, MPATH_ERR_IO with the system's reason; both
 * logged.
 */
mpath_status_t plan_svg_write(const char *path, const mpath_topo_t *topo, const mpath_plan_t *before,
                              const mpath_plan_t *after, const char *after_name);

#endif
