/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Discovery of the machine that this process runs on: NICs with state, speed and NUMA node through hwloc, sysfs and
 * (where built in) libibverbs.
 */
#ifndef MPATH_TOPO_DISCOVER_MACHINE_H
#define MPATH_TOPO_DISCOVER_MACHINE_H

#include "topo/topo.h"

#define MPATH_DEFAULT_RATE_BPS 1250000000ull /* 10 Gbit/s */

/*
 * Finds this node.
 *
 * `rails` chooses the NICs (comma-separated names, as parameter coll_mpath_rails); a NIC's rail is its position in this
 * list, so that nodes which lack one still agree about the others. A name that does not exist is reported and left out.
 * NULL or "" takes the InfiniBand and RoCE ports when one is active; else every network interface that has an address
 * and is not the loopback, a bridge, a port of one or a tunnel. Rails are then numbered in name order ("eth9" before
 * "eth10"). A NIC without carrier is taken and marked down: it keeps its number, and the others keep theirs.
 *
 * `rail_rates` overrides what the system says of speeds (coll_mpath_rail_rates): bytes per second with the suffixes k,
 * m and g as powers of 1000, one value for all NICs, NAME=VALUE for one, comma-separated: "25m",
 * "rail0=25m,rail1=6250k", "25m,rail1=6250k". An entry that cannot be used is reported and ignored. NULL or "": as the
 * system says, 10 Gbit/s where it does not know.
 *
 * Having no NIC is no error. MPATH_ERR_IO when the system refuses to list its interfaces; logged.
 */
mpath_status_t mpath_machine_discover(const char *rails, const char *rail_rates, mpath_machine_t *machine);

/*
 * Whether a NIC has a link now, by its name: an interface a carrier, a port of InfiniBand or RoCE the state ACTIVE. One
 * of which the system says nothing has one. `sysfs`: "/sys".
 */
int mpath_machine_has_carrier(const char *sysfs, const char *nic);

/* The name that discovery gives this machine, in MPATH_HOST_NAME_MAX bytes. */
void mpath_machine_host(char *host);

/* Applies rates as described above to a machine that was not discovered, for instance one of a topology file. */
void mpath_machine_apply_rates(const char *rail_rates, mpath_machine_t *machine);

/*
 * The number of the NIC of this name, -1 without one. Another description of the machine, as a topology file, may number
 * NICs otherwise, but mostly does not: `number`, not negative, is looked at first.
 */
int mpath_machine_find_nic(const mpath_machine_t *machine, const char *name, int number);

/*
 * The NIC nearest to where this process is bound: of those that are up, those on its NUMA node, else all; spread
 * round-robin over equals by `local_rank`. -1 without a NIC that is up.
 */
int mpath_machine_nearest_nic(const mpath_machine_t *machine, int local_rank);

/* For machines that a file describes as well: */

/* UCX's name of a device's port, "mlx5_0:1"; MPATH_ERR_PARAM when it is longer than MPATH_NIC_NAME_MAX. */
mpath_status_t mpath_port_name(const char *device, int port, char *name);

/* Order of names in which digits count as numbers. */
int mpath_name_compare(const char *a, const char *b);

/*
 * An estimate of shared-memory copies of all ranks together. No system tells; a core copies about 4 GB/s while its
 * neighbours do, and a NUMA node's memory takes about 80 GB/s of copies. It only has to keep the planner from taking
 * shared memory for free.
 */
uint64_t mpath_machine_copy_bps(int num_numa, int num_cores);

#endif
