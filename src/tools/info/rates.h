/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_info: the file of what calls have shown. */
#ifndef MPATH_TOOLS_INFO_RATES_H
#define MPATH_TOOLS_INFO_RATES_H

#include "util/status.h"

/* Prints what the file (parameter adapt_file) says: rates, the shares that follow from them, and other shares. */
mpath_status_t info_show_rates(const char *path);

#endif
