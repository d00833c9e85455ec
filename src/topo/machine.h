/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Discovery of the machine that this process runs on: NICs with state, speed and NUMA node through hwloc, sysfs and
 * (where built in) libibverbs.
 */
#ifndef MPATH_TOPO_MACHINE_H
#define MPATH_TOPO_MACHINE_H

#include "topo/topo.h"

/*
 * Finds this node. `rails` limits and orders the NICs (comma-separated names, as parameter coll_mpath_rails); NULL or ""
 * takes every NIC that is up, has an address other than loopback and is not a bridge or container end, in name order;
 * rail numbers follow that order. `default_rate_bps` is used where the system knows no speed; 0 means 10 Gbit/s.
 * A name in `rails` that does not exist is reported and left out.
 */
mpath_status_t mpath_machine_discover(const char *rails, uint64_t default_rate_bps, mpath_machine_t *machine);

/* The NIC nearest to where this process is bound; spread round-robin over equals by `local_rank`. -1 without NICs. */
int mpath_machine_nearest_nic(const mpath_machine_t *machine, int local_rank);

#endif
