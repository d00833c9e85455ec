/* SPDX-License-Identifier: BSD-3-Clause */
/* The exact optimum of a planning problem, by linear programming (GLPK). */
#ifndef MPATH_TESTS_PLAN_LP_H
#define MPATH_TESTS_PLAN_LP_H

#include "unit/plan_cases.h"

/* The least Z that flows of any size can reach, in nanoseconds. Fails the running test when the solver does. */
double plan_lp_optimum(const plan_case_t *c);

#endif
