/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pace: the declared rates of an emulated cluster, held by clocks in memory that all its processes share.
 *
 * A port (NIC transmit, NIC receive, an ordered NVLink pair, a GPU's port into a switch, PCIe, host memory: a resource
 * of the topology) has a clock: the time at which it will have carried all that it was given. A chunk that takes a hop
 * moves the clock of each of the hop's ports by bytes / rate, from now on or from where it stands if that is later. It
 * counts as arrived when the last of these times has passed and the real copy is complete:
 *
 *   status = mpath_pace_take(pace, &path, hop, bytes, mpath_time_ns(), ahead_ns, &arrives_ns);
 *   ...MPATH_OK: launch the copy; done when it is complete and mpath_time_ns() >= arrives_ns
 *
 * So no port ever carries more than its rate from the start of a busy period on. A port does not stand still while a
 * chunk waits for the hop's other port, as between real NICs with buffers between them; `ahead_ns` bounds what may wait
 * in those: a chunk is refused while a port of its hop has more than that before it, and the caller turns to chunks for
 * other ports.
 *
 * Ports are known by the node's host name, kind and number, so that communicators which number nodes differently, and
 * all their topologies, meet at the same clocks. The rates are those of the topology at mpath_pace_open().
 *
 * Thread-safety: mpath_pace_take() may be called by any thread and process at any time; it waits for nobody, and a
 * process that dies in it holds up nobody.
 */
#ifndef MPATH_MOVER_PACE_H
#define MPATH_MOVER_PACE_H

#include "team/team.h"
#include "topo/topo.h"

#define MPATH_PACE_BYTES (64 * 1024) /* of shared memory, for up to MPATH_PACE_PORTS ports */
#define MPATH_PACE_PORTS 2048

typedef struct mpath_pace mpath_pace_t;

/*
 * `shared` has MPATH_PACE_BYTES bytes at a cache line, zeroed by who made them, and outlives the pace. MPATH_ERR_PARAM
 * for a topology that is not emulated, or whose nodes' host names are not distinct; MPATH_ERR_NO_MEMORY. Errors are
 * logged.
 */
mpath_status_t mpath_pace_open(const mpath_topo_t *topo, void *shared, mpath_pace_t **pace_p);

void mpath_pace_close(mpath_pace_t *pace);

/*
 * Takes the ports of hop `hop` of a path of the same topology for `bytes` bytes. MPATH_OK: *when_ns_p is when the chunk
 * counts as arrived. MPATH_NO_RESOURCE: nothing is taken; a port has more than `ahead_ns` before it, and *when_ns_p is
 * when it will not. UINT64_MAX as `ahead_ns` is never refused. A hop without ports (inside a GPU) arrives now.
 */
mpath_status_t mpath_pace_take(mpath_pace_t *pace, const mpath_path_t *path, int hop, uint64_t bytes, uint64_t now_ns,
                               uint64_t ahead_ns, uint64_t *when_ns_p);

/*
 * Relay clocks: where the clocks of emulated ports (mover/pace.h) lie, for all communicators of a job. The lowest rank
 * of a communicator lends those that its process has, or makes some; the others map them through its /proc folder, so
 * that nothing is left behind by processes that are killed. A process keeps what it has mapped to its end.
 */

/*
 * Collective. MPATH_PACE_BYTES bytes that stay to the end of the process; either all ranks have them or all get an
 * error, logged.
 */
mpath_status_t mpath_relay_clocks_get(mpath_team_t *team, void **clocks_p);

/* What tells these clocks from others of the host. */
uint64_t mpath_relay_clocks_id(const void *clocks);

#endif
