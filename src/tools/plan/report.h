/* SPDX-License-Identifier: BSD-3-Clause */
/* What mpath_plan has found out about one plan, and how it says so. The JSON is described in doc/mpath_plan.md. */
#ifndef MPATH_TOOLS_PLAN_REPORT_H
#define MPATH_TOOLS_PLAN_REPORT_H

#include "plan/plan.h"
#include "tools/plan/simulate.h"
#include "topo/topo.h"

#include <stdint.h>
#include <stdio.h>

/* Whose plan: the planner's policies, with the values of mpath_policy_t, and rivals on paper. */
typedef enum plan_policy {
    PLAN_POLICY_MPATH  = MPATH_POLICY_MPATH,
    PLAN_POLICY_DIRECT = MPATH_POLICY_DIRECT,
    PLAN_POLICY_STRIPE = MPATH_POLICY_STRIPE,
    PLAN_POLICY_PXN    = MPATH_POLICY_PXN,
    PLAN_POLICY_PAIRS  = MPATH_POLICY_PAIRS,
    PLAN_POLICY_FAST,
    PLAN_POLICY_SABRE
} plan_policy_t;

#define PLAN_OWN_POLICIES 5 /* those of the planner, which come first */
#define PLAN_REPORT_POLICIES 7

typedef struct plan_report {
    const mpath_topo_t *topo;
    const mpath_plan_t *plan;
    plan_policy_t policy;
    double plan_us; /* negative: not to be shown */
    uint64_t predicted_ns;
    const char *gate;             /* what mpath would do with the plan, for people; NULL: not known */
    const char *gate_id;          /* the same for programs: "plan", "direct", "aside" */
    uint64_t static_predicted_ns; /* with gate: of the static routes */
    int has_policies;
    uint64_t policies_z_ns[PLAN_REPORT_POLICIES]; /* by plan_policy_t */
    int has_simulation;
    simulate_result_t simulation;
    size_t steps;                            /* of a rival; 0: it is none */
    double steps_seconds;                    /* that they take, one after the other */
    int show_flows;                          /* text: list them */
    int explain;                             /* nonzero: the pair below */
    int explain_source, explain_destination; /* ranks */
} plan_report_t;

/* "mpath", "direct", "stripe", "pxn", "pairs", "fast", "sabre". */
const char *plan_policy_name(plan_policy_t policy);
/* 0 when there is no such policy. */
int plan_policy_find(const char *name, plan_policy_t *policy_p);

/* Load over capacity of a resource, in seconds. */
double plan_resource_seconds(const mpath_topo_t *topo, const mpath_plan_t *plan, int resource);

void plan_report_text(const plan_report_t *report, FILE *out);
/* MPATH_ERR_NO_MEMORY, logged. */
mpath_status_t plan_report_json(const plan_report_t *report, FILE *out);

/* --- every path of one pair --------------------------------------------------------------------------------------- */

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
