/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters and the one symbol of the transport that others may use, to read them. */
#include "ucx_tl_mpath/counters.h"

atomic_uint_fast64_t uct_mpath_counters[MPATH_UCX_NUM_COUNTERS];

__attribute__((visibility("default"))) uint64_t mpath_ucx_counter_value(mpath_ucx_counter_t counter)
{
    return (unsigned)counter < MPATH_UCX_NUM_COUNTERS ? atomic_load(&uct_mpath_counters[counter]) : 0;
}
