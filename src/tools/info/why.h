/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_info --why: which algorithms could carry a call, what each is predicted to take, and which is taken. */
#ifndef MPATH_TOOLS_INFO_WHY_H
#define MPATH_TOOLS_INFO_WHY_H

#include "tools/plan/input.h"
#include "util/param.h"
#include "util/status.h"

/*
 * `collective` by its name in parameter tune; `bytes`: of each rank in an Alltoallv, else of the whole vector. `input`
 * says of which machines (neither file nor preset: nodes like this one) and, for an Alltoallv, how hot which rank is.
 * MPATH_ERR_PARAM, logged: there is no such collective, or no ranks.
 */
mpath_status_t info_why(const mpath_settings_t *settings, const char *collective, const plan_input_t *input);

#endif
