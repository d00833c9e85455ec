/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "rail": one NIC, through UCX. One UCX context and worker per NIC, limited to that NIC by the context's device
 * list, so that rails are independent and their rates add up. Chunks travel as UCP active messages whose header is the
 * mpath_chunk_t: small and medium ones eagerly, large ones by rendezvous straight into place where the
 * transport has RDMA; on TCP always eagerly and without put (its rendezvous runs two-way traffic at half rate).
 *
 * Endpoints are created on first use. A rail belongs to the process; the teams of the process share it (rail/fabric).
 */
#ifndef MPATH_RAIL_RAIL_H
#define MPATH_RAIL_RAIL_H

#include "lane/lane.h"
#include "record/record.h"
#include "util/time.h"

#define MPATH_RAIL_ADDRESS_MAX 1024
#define MPATH_RAIL_WHY_MAX 128

typedef struct mpath_rail_params {
    const char *nic; /* UCX device name; "memory": processes of one host */
    const char *tls; /* UCX transports, as UCX_TLS; NULL: "tcp" on a network interface, "shm" on "memory", else "ib" */
    size_t max_chunk_bytes;        /* largest chunk */
    size_t max_open_arrival_bytes; /* back-pressure: the rail stops reading above it */
    uint64_t rate_bps;             /* of the NIC; 0: unknown */
    int num_peers, num_sharing; /* processes that it may be connected to, and that drive the NIC, about; 0: unknown */
    int gpu_memory;             /* chunks may lie in GPU memory, where UCX knows such: rail/gpu_memory.h */
    mpath_page_rail_t *record;  /* counts what it carries; NULL: nobody does */
    char *why; /* room for MPATH_RAIL_WHY_MAX bytes, or NULL: gets the reason of a failure, which is no error then */
} mpath_rail_params_t;

/* The reason of a failure names what UCX offers instead; without `why` it is logged as an error. */
mpath_status_t mpath_rail_open(const mpath_rail_params_t *params, mpath_lane_t **lane_p);

/* This process's address on the rail, to be carried to the peers by the control plane; owned by the lane. */
void mpath_rail_address(mpath_lane_t *lane, const void **address_p, size_t *bytes_p);

/* Makes a peer known; the address is copied. Returns its number, or a negative status. */
int mpath_rail_add_peer(mpath_lane_t *lane, const void *address, size_t bytes, const char *name);

/* Closes and forgets a peer, so that a later one may take its number. */
void mpath_rail_remove_peer(mpath_lane_t *lane, int peer);

/* Gives up what is being sent to a peer, which fails for good: the sends end with the next progress of the lane. */
void mpath_rail_abort_peer(mpath_lane_t *lane, int peer);

/*
 * Whether the peer's NIC still answers, by connections beside the one that chunks take: that one may wait for minutes until the
 * kernel gives it up. `anew` forgets earlier tries. MPATH_ERR_UNREACHABLE: a try has failed within MPATH_RAIL_PROBE_NS, which
 * is seen while the lane is progressed; MPATH_OK is no proof. Nothing is asked of the peer's process. Costs system calls.
 */
#define MPATH_RAIL_PROBE_NS (30 * MPATH_NS_PER_S)
mpath_status_t mpath_rail_probe(mpath_lane_t *lane, int peer, int anew);

/*
 * Nonzero: UCX's tcp carries it, which takes writes to any address of the process from whoever connects, also where nobody
 * of the job sends such (doc/security.md).
 */
int mpath_rail_takes_writes(const mpath_lane_t *lane);

#endif
