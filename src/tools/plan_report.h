/* SPDX-License-Identifier: BSD-3-Clause */
/* What mpath_plan has found out about one plan, and how it says so. The JSON is described in doc/mpath_plan.md. */
#ifndef MPATH_TOOLS_PLAN_REPORT_H
#define MPATH_TOOLS_PLAN_REPORT_H

#include "plan/plan.h"
#include "tools/simulate.h"
#include "topo/topo.h"

#include <stdint.h>
#include <stdio.h>

typedef struct plan_report {
    const mpath_topo_t *topo;
    const mpath_plan_t *plan;
    mpath_policy_t policy;
    double plan_us; /* negative: not to be shown */
    uint64_t predicted_ns;
    const char *gate;             /* what mpath would do with the plan, for people; NULL: not known */
    const char *gate_id;          /* the same for programs: "plan", "direct", "aside" */
    uint64_t static_predicted_ns; /* with gate: of the static routes */
    int has_simulation;
    simulate_result_t simulation;
    int show_flows;                          /* text: list them */
    int explain;                             /* nonzero: the pair below */
    int explain_source, explain_destination; /* ranks */
} plan_report_t;

/* "mpath", "direct", "stripe", "pxn". */
const char *plan_policy_name(mpath_policy_t policy);
/* 0 when there is no such policy. */
int plan_policy_find(const char *name, mpath_policy_t *policy_p);

/* Load over capacity of a resource, in seconds. */
double plan_resource_seconds(const mpath_topo_t *topo, const mpath_plan_t *plan, int resource);

void plan_report_text(const plan_report_t *report, FILE *out);
/* MPATH_ERR_NO_MEMORY, logged. */
mpath_status_t plan_report_json(const plan_report_t *report, FILE *out);

/* --- plan_explain.c: every path of one pair ----------------------------------------------------------------------- */

typedef struct plan_alternative {
    int path;
    mpath_path_t route;
    uint64_t bytes;      /* of the pair that take it */
    int fullest;         /* resource; -1: it uses none */
    double fill;         /* load of that resource over what it carries within Z */
    double price;        /* of a byte, by the planner's price function; 1: the cheapest path of the pair */
    double z_if_all_s;   /* Z if all bytes of the pair took this path and everything else stayed */
    const char *verdict; /* static text */
} plan_alternative_t;

/* The paths of the pair in their order; malloc'ed. MPATH_ERR_NO_MEMORY, logged. */
mpath_status_t plan_explain(const mpath_topo_t *topo, const mpath_plan_t *plan, int source, int destination,
                            plan_alternative_t **alternatives_p, int *count_p);

#endif
