/* SPDX-License-Identifier: BSD-3-Clause */
/* A picture of a plan: every node with its GPUs, links and NICs, as loaded by the static routes and by the plan. */
#ifndef MPATH_TOOLS_PLAN_SVG_H
#define MPATH_TOOLS_PLAN_SVG_H

#include "plan/plan.h"
#include "tools/plan/input.h"
#include "topo/topo.h"

#include <stdio.h>

#define PLAN_SVG_MAX_NODES 1024
#define PLAN_SVG_HEAT_FROM 64 /* GPUs, or NICs where those are more: a heat map, one cell for each, instead of gauges */

/* Plans on `topo` for one demand; `after_name` is the policy of the second. */
typedef struct plan_svg {
    const mpath_topo_t *topo;
    const mpath_plan_t *before, *after;
    const char *after_name;
    const plan_captions_t *captions;
} plan_svg_t;

/*
 * Colours and heights of all gauges are times, on one scale up to the Z of `before` (or of `after`, where that is longer).
 * MPATH_ERR_PARAM for more than PLAN_SVG_MAX_NODES nodes, MPATH_ERR_IO with the system's reason; both logged.
 */
mpath_status_t plan_svg_write(const char *path, const plan_svg_t *svg);
/* The same as an element of a page, which is the caller's; ferror() tells of errors. */
mpath_status_t plan_svg_draw(const plan_svg_t *svg, FILE *out);

/* Text, so that nothing in it is taken for XML or HTML; NULL is none. */
void plan_put_text(FILE *out, const char *text);

#endif
