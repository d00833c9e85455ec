/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fabric: the rails of this process, shared by its teams. Opens a rail lane per NIC when it is first needed, knows
 * peers by process, and sorts arrivals by team. A lock serialises the use of each rail, so that teams may run in
 * different threads: whoever progresses a rail hands the chunks of other teams to their queues.
 *
 * Rails have numbers of their own: a NIC that fails and comes back gets a new one, while teams may still hold the one
 * of before.
 */
#ifndef MPATH_RAIL_FABRIC_H
#define MPATH_RAIL_FABRIC_H

#include "device/stream.h"
#include "lane/lane.h"
#include "topo/topo.h"
#include "util/param.h"

typedef struct mpath_fabric mpath_fabric_t;

#define MPATH_FABRIC_RAILS 4 /* for each NIC of the machine, at most: of before its failures */

/* Takes over an arrival of a rail (a copy of the struct may be kept); must not block. */
typedef void (*mpath_fabric_arrive_t)(void *argument, int rail, const mpath_arrival_t *arrival);

/* Opens nothing yet. `machine` and `settings` outlive the fabric. */
mpath_status_t mpath_fabric_create(const mpath_settings_t *settings, const mpath_machine_t *machine,
                                   mpath_fabric_t **fabric_p);
void mpath_fabric_destroy(mpath_fabric_t *fabric);

/*
 * About how many processes rails that are opened from now on may be connected to, and how many drive such a NIC on this node;
 * of several teams the most counts.
 */
void mpath_fabric_expect(mpath_fabric_t *fabric, int num_peers, int num_sharing);
/*
 * Where a team has lost the rail that new teams use on this NIC of the machine, or a connection of it, they use another
 * one, if it opens.
 */
void mpath_fabric_freshen(mpath_fabric_t *fabric, int nic);
/* As mpath_fabric_join_rail(), on the rail that new teams use on this NIC of the machine: its number; negative status. */
int mpath_fabric_join(mpath_fabric_t *fabric, int nic, uint64_t id, mpath_fabric_arrive_t arrive, void *argument);
/* The name of its NIC. */
const char *mpath_fabric_rail_name(const mpath_fabric_t *fabric, int rail);

/* Nonzero: the rail is open, and mpath_rail_takes_writes(). */
int mpath_fabric_takes_writes(mpath_fabric_t *fabric, int rail);

/* Opens the rail unless it is open; the address stays valid as long as the rail is open. */
mpath_status_t mpath_fabric_address(mpath_fabric_t *fabric, int rail, const void **address_p, size_t *bytes_p);

/* Why a rail on this NIC of the machine could not be opened last; "": they opened. */
void mpath_fabric_why(mpath_fabric_t *fabric, int nic, char *why, size_t size);

/*
 * The number of the process with this address on a rail; the same address gives the same number. Counted: each
 * success is undone by mpath_fabric_forget_peer(), which keeps the connection of a healthy peer for the next user.
 * Negative status on error.
 */
int mpath_fabric_peer(mpath_fabric_t *fabric, int rail, const void *address, size_t bytes, const char *name);
void mpath_fabric_forget_peer(mpath_fabric_t *fabric, int rail, int peer);

/*
 * Memory of the context of `gpu` that chunks are sent from and taken to directly: known to all open rails, and to those
 * that open later, until it is removed or the context has ended. Errors as of rail/gpu_memory.h: no rail knows it
 * then. What was added is removed also after the context's end, when the same address may be that of other memory.
 */
mpath_status_t mpath_fabric_add_memory(mpath_fabric_t *fabric, const mpath_gpu_t *gpu, mpath_device_ptr_t address,
                                       size_t bytes);
void mpath_fabric_remove_memory(mpath_fabric_t *fabric, const mpath_gpu_t *gpu, mpath_device_ptr_t address);
/* MPATH_OK: every open rail has moved some bytes from GPU memory to GPU memory; `stream` is for the copies. */
mpath_status_t mpath_fabric_try_memory(mpath_fabric_t *fabric, mpath_stream_t *stream);

/* Most bytes of chunks that have come by one rail and are not ended. */
uint64_t mpath_fabric_open_limit_bytes(const mpath_fabric_t *fabric);
/* A team has lost this rail: nobody goes over to it from now on. */
void mpath_fabric_suspect(mpath_fabric_t *fabric, int rail);
/* Can a team have another rail on the same NIC? */
int mpath_fabric_can_renew(mpath_fabric_t *fabric, int rail);
/*
 * Another rail on the same NIC for a team that has lost this one: one that another team has opened since, or a new one.
 * The team joins it, leaves the old one, and uses no number of a peer of the old one any more.
 */
mpath_status_t mpath_fabric_renew(mpath_fabric_t *fabric, int rail, int *rail_p);

/*
 * Chunks of team `id` that come by this rail go to `arrive` from now on: called by any thread, under the lock of the
 * rail, which is recursive, so that `arrive` may end the arrival at once. Chunks that came before are handed over here.
 * Nothing happens when the team is there.
 */
mpath_status_t mpath_fabric_join_rail(mpath_fabric_t *fabric, int rail, uint64_t id, mpath_fabric_arrive_t arrive,
                                      void *argument);
/* No call of `arrive` after this returns; open chunks of the team are released, and so are those that still come. */
void mpath_fabric_leave(mpath_fabric_t *fabric, uint64_t id);
void mpath_fabric_leave_rail(mpath_fabric_t *fabric, int rail, uint64_t id);

/* The calls of mpath_lane_ops_t on a rail, under its lock. */
mpath_status_t mpath_fabric_send(mpath_fabric_t *fabric, int rail, int peer, const mpath_chunk_t *chunk,
                                 const void *data, mpath_lane_op_t *op);
mpath_status_t mpath_fabric_take(mpath_fabric_t *fabric, int rail, const mpath_arrival_t *arrival, void *to,
                                 mpath_lane_op_t *op);
void mpath_fabric_release(mpath_fabric_t *fabric, int rail, const mpath_arrival_t *arrival);
mpath_status_t mpath_fabric_peer_status(mpath_fabric_t *fabric, int rail, int peer);
/* mpath_rail_probe(). */
mpath_status_t mpath_fabric_probe(mpath_fabric_t *fabric, int rail, int peer, int anew);
/* The op's status, read under the rail's lock; MPATH_INPROGRESS too while another thread is at the rail. */
mpath_status_t mpath_fabric_op_status(mpath_fabric_t *fabric, int rail, const mpath_lane_op_t *op);
/* Largest chunk that the rail, which is open, takes. */
size_t mpath_fabric_max_chunk(mpath_fabric_t *fabric, int rail);
/* Progresses the rail; 0 at once when another thread is at it. */
int mpath_fabric_progress(mpath_fabric_t *fabric, int rail);
/*
 * Gives up what is under way on the rail, for a failed team that cannot wait for its ops: afterwards no memory of the
 * caller is touched any more. It ends the ops of the other teams on that rail too, with MPATH_ERR_UNREACHABLE.
 */
void mpath_fabric_abort(mpath_fabric_t *fabric, int rail);
/*
 * The same for what is sent to one peer, which ends with the next progress; connections with other peers stay. What is
 * fetched from it cannot be given up by itself.
 */
void mpath_fabric_abort_peer(mpath_fabric_t *fabric, int rail, int peer);

#endif
