/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters of the process, over all interfaces (load.h names them). Any thread may count. */
#ifndef UCX_TL_MPATH_COUNTERS_H
#define UCX_TL_MPATH_COUNTERS_H

#include "ucx_tl_mpath/load.h"

#include <stdatomic.h>

extern atomic_uint_fast64_t uct_mpath_counters[MPATH_UCX_NUM_COUNTERS];

static inline void uct_mpath_count(mpath_ucx_counter_t counter, uint64_t more)
{
    atomic_fetch_add_explicit(&uct_mpath_counters[counter], more, memory_order_relaxed);
}

#endif
