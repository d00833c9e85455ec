/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fabric: the rails of this process, shared by its teams. Opens a rail lane per NIC when it is first needed, knows peers by
 * process, and sorts arrivals by team. A lock serialises the use of each rail, so that teams may run in different threads:
 * whoever progresses a rail hands the chunks of other teams to their queues.
 */
#ifndef MPATH_EXEC_FABRIC_H
#define MPATH_EXEC_FABRIC_H

#include "lane/lane.h"
#include "topo/topo.h"
#include "util/param.h"

typedef struct mpath_fabric mpath_fabric_t;

/* Takes over an arrival of rail `nic` (a copy of the struct may be kept); must not block. */
typedef void (*mpath_fabric_arrive_t)(void *argument, int nic, const mpath_arrival_t *arrival);

/* Opens nothing yet. `machine` and `settings` outlive the fabric. */
mpath_status_t mpath_fabric_create(const mpath_settings_t *settings, const mpath_machine_t *machine,
                                   mpath_fabric_t **fabric_p);
void mpath_fabric_destroy(mpath_fabric_t *fabric);

/* Opens rail `nic` unless it is open; the address stays valid for the fabric's life. */
mpath_status_t mpath_fabric_address(mpath_fabric_t *fabric, int nic, const void **address_p, size_t *bytes_p);

/*
 * The number of the process with this address on rail `nic`; the same address gives the same number. Counted: each
 * success is undone by mpath_fabric_forget_peer(), which keeps the connection of a healthy peer for the next user.
 * Negative status on error.
 */
int mpath_fabric_peer(mpath_fabric_t *fabric, int nic, const void *address, size_t bytes, const char *name);
void mpath_fabric_forget_peer(mpath_fabric_t *fabric, int nic, int peer);

/* Most bytes of chunks that have come by one rail and are not ended. */
uint64_t mpath_fabric_open_limit_bytes(const mpath_fabric_t *fabric);
/* Teams that have joined and may use the rail. */
size_t mpath_fabric_num_teams(mpath_fabric_t *fabric, int nic);
/* Closes the rail with all its connections and opens it anew, at another address; for its only team. */
mpath_status_t mpath_fabric_reopen(mpath_fabric_t *fabric, int nic);

/*
 * Chunks of team `id` go to `arrive` from now on: called by any thread, under the lock of the rail, which is recursive, so
 * that `arrive` may end the arrival at once. Chunks that came before are handed over here.
 */
mpath_status_t mpath_fabric_join(mpath_fabric_t *fabric, uint64_t id, mpath_fabric_arrive_t arrive, void *argument);
/* No call of `arrive` after this returns; open chunks of the team are released, and so are those that still come. */
void mpath_fabric_leave(mpath_fabric_t *fabric, uint64_t id);

/* The calls of mpath_lane_ops_t on rail `nic`, under its lock. */
mpath_status_t mpath_fabric_send(mpath_fabric_t *fabric, int nic, int peer, const mpath_chunk_t *chunk,
                                 const void *data, mpath_lane_op_t *op);
mpath_status_t mpath_fabric_take(mpath_fabric_t *fabric, int nic, const mpath_arrival_t *arrival, void *to,
                                 mpath_lane_op_t *op);
void mpath_fabric_release(mpath_fabric_t *fabric, int nic, const mpath_arrival_t *arrival);
mpath_status_t mpath_fabric_peer_status(mpath_fabric_t *fabric, int nic, int peer);
/* The op's status, read under the rail's lock; MPATH_INPROGRESS too while another thread is at the rail. */
mpath_status_t mpath_fabric_op_status(mpath_fabric_t *fabric, int nic, const mpath_lane_op_t *op);
/* Largest chunk that rail `nic`, which is open, takes. */
size_t mpath_fabric_max_chunk(mpath_fabric_t *fabric, int nic);
/* Progresses rail `nic`; 0 at once when another thread is at it. */
int mpath_fabric_progress(mpath_fabric_t *fabric, int nic);
/*
 * Gives up what is under way on the rail, for a failed team that cannot wait for its ops: afterwards no memory of the
 * caller is touched any more. It ends the ops of the other teams on that rail too, with MPATH_ERR_UNREACHABLE.
 */
void mpath_fabric_abort(mpath_fabric_t *fabric, int nic);

#endif
