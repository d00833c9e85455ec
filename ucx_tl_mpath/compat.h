/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of UCX, which a transport is compiled against and which changes with every minor release. What differs is
 * named here, by features that configure found (m4/check_ucx_source.m4), never by version numbers.
 */
#ifndef UCX_TL_MPATH_COMPAT_H
#define UCX_TL_MPATH_COMPAT_H

/* The configuration of the UCX build, as `ucx_info -b` prints it: it decides about layouts. Not ours. */
#include "ucx_build.h"

#include <stddef.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include <ucs/datastruct/list.h>
#include <ucs/datastruct/queue.h>
#include <ucs/debug/log.h>
#include <ucs/debug/memtrack_int.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>
#include <ucs/sys/uid.h>
#include <ucs/type/class.h>
#include <uct/api/uct.h>
#include <uct/api/version.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
#pragma GCC diagnostic pop

#include "ucx_features.h"

#endif
