/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_info --check: what keeps mpath from doing its work here. */
#ifndef MPATH_TOOLS_INFO_CHECK_H
#define MPATH_TOOLS_INFO_CHECK_H

#include "util/param.h"

/* From here on a warning of the log is a problem that is found. To be called before the settings are read. */
void info_check_begin(void);

/* Prints a line per fact; returns the number of problems. */
int info_check(const mpath_settings_t *settings);

#endif
