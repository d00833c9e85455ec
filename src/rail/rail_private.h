/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of lane "rail", for the files of this room only:
 *
 *   rail/rail.c         one NIC: UCX configuration, opening, the vtable, chunks out and in, progress, giving up
 *   rail/peer.c         peers, their endpoints and what becomes of them
 *   rail/socket.c       TCP connections that are closed with bytes under way
 *   rail/gpu_memory.c   memory of GPUs that chunks lie in, and whether UCX can move such
 *   rail/wire_format.c  what is read of messages and addresses of other processes
 */
#ifndef MPATH_RAIL_RAIL_PRIVATE_H
#define MPATH_RAIL_RAIL_PRIVATE_H

#include "device/gpu.h"
#include "record/record.h"
#include "rail/rail.h"
#include "rail/wire_format.h"

#include <ucp/api/ucp.h>

#define RAIL_NAME_MAX 64
#define RAIL_AM_ID 0
#define RAIL_TRIAL_AM_ID 1
#define RAIL_EVENT_SETS_MAX 4

typedef struct rail rail_t;
typedef struct rail_peer rail_peer_t;
typedef struct rail_trial rail_trial_t;

/* GPU memory that UCX knows. Of a lost GPU it counts no more: its addresses may be those of other memory. */
typedef struct rail_region {
    struct rail_region *next;
    const mpath_gpu_t *gpu;
    uint64_t address, bytes;
    ucp_mem_h memh;
} rail_region_t;

/* A send or a rendezvous take that UCX works on; the caller's op is done when this is. */
typedef struct rail_op {
    struct rail_op *previous, *next; /* in rail_t.active, or next alone in rail_t.spare_ops */
    rail_t *rail;
    rail_peer_t *peer; /* of a send; NULL for a take */
    mpath_lane_op_t *op;
    uint64_t charge_bytes; /* counted in the peer's window */
    uint64_t began_ns;     /* 0: nobody wants to know */
    rail_wire_t wire;      /* UCX reads it until the send is done */
} rail_op_t;

/* An arrival that the receiver has not ended. */
typedef struct rail_arrival {
    struct rail_arrival *previous, *next;
    void *data; /* UCX's: the bytes, or the descriptor of a rendezvous; NULL: nothing to give back */
    uint64_t bytes;
    int peer;
    mpath_chunk_t chunk;
    uint8_t rendezvous;
    uint8_t in_callback; /* UCX takes the data back when its callback returns */
    uint8_t ended;       /* inside the callback */
    uint8_t held;        /* came while the rail was being given up: not delivered yet */
} rail_arrival_t;

struct rail_peer {
    rail_t *rail;
    int number; /* -1: removed, waits for UCX to let go of it */
    uint64_t uid;
    char name[RAIL_NAME_MAX];
    ucp_address_t *address;
    ucp_ep_h ep;                           /* NULL: not connected */
    ucs_status_t ep_error;                 /* UCX's report, dealt with by the next progress() */
    mpath_status_t status;                 /* MPATH_OK, or it failed for good */
    int fruitless;                         /* connections lost since something last went through */
    uint64_t window_bytes;                 /* taken from callers and not done */
    unsigned sends;                        /* UCX works on */
    unsigned references;                   /* of UCX callbacks to come: sends, close */
    ucp_ep_h probe;                        /* of mpath_rail_probe(); NULL: none */
    int probe_failed;                      /* UCX's report, dealt with by the next look */
    uint64_t probe_lost_ns, probe_next_ns; /* when one failed last, 0: none has; when the next one is made */
    rail_peer_t *next;                     /* in rail_t.removed */
};

struct rail {
    mpath_lane_t base;
    char nic[RAIL_NAME_MAX];
    char description[2 * RAIL_NAME_MAX + 8];
    int takes_writes; /* mpath_rail_takes_writes() */
    size_t max_chunk_bytes;
    uint64_t max_open_bytes;
    uint64_t max_window_bytes; /* per peer */
    uint64_t rate_bps;
    int expected_peers, sharing; /* that UCX is told to expect; 0: it is not told */
    mpath_page_rail_t *record;   /* what it carries is counted there; NULL: nowhere */
    char *why;                   /* mpath_rail_params_t's, while it opens */

    ucp_context_h context;
    ucp_worker_h worker;                 /* NULL: the rail is down */
    int event_sets[RAIL_EVENT_SETS_MAX]; /* descriptors of the worker's */
    int num_event_sets;
    int closed_early; /* connections of tcp with bytes under way, which rail/socket.c has to end */
    uint64_t uid;     /* secret: rail/wire_format.h */
    rail_address_t *address;
    size_t address_bytes;
    uint64_t strangers; /* messages of theirs that were dropped */

    rail_peer_t **peers; /* by number; NULL: free */
    int num_peers, max_peers;
    rail_peer_t *removed;
    int *by_uid; /* hash table of peer numbers, -1: empty */
    uint32_t by_uid_mask;
    int endpoint_failed; /* some peer has an ep_error */

    rail_op_t *active, *spare_ops;
    rail_arrival_t *open, *spare_arrivals;
    uint64_t open_bytes;
    int num_held;
    int giving_up;
    mpath_status_t error; /* of an arrival; fails progress() */
    int events;           /* since progress() began */

    int has_cuda;           /* the context knows CUDA memory */
    int eager;              /* then: host memory has to be told to go eagerly (TCP) */
    rail_region_t *regions; /* few */
    rail_trial_t *trial;    /* under way */
    int tried;              /* 1: it succeeded; -1: it did not */
};

/* rail/peer.c */
mpath_status_t rail_peer_find(const rail_t *rail, int number, rail_peer_t **peer_p);
/* The number of the peer with this uid, -1 when unknown. */
int rail_peer_by_uid(const rail_t *rail, uint64_t uid);
/* Connects unless connected. MPATH_NO_RESOURCE while a lost connection is still to be cleaned up. */
mpath_status_t rail_peer_connect(rail_peer_t *peer);
/* Marks a peer as failed, once, with the reason; its endpoint is closed by the next progress(). */
void rail_peer_fail(rail_peer_t *peer, const char *reason);
void rail_peer_close(rail_peer_t *peer);
/* The same of the endpoint of mpath_rail_probe(). */
void rail_peer_probe_end(rail_peer_t *peer);
/* Closes the endpoints that UCX has reported. */
void rail_peers_clean(rail_t *rail);
void rail_peer_put(rail_peer_t *peer);
void rail_peers_destroy(rail_t *rail);
/* A message of a sender that is none of the job's: dropped and counted, the first one named. */
void rail_note_stranger(rail_t *rail);

/* rail/socket.c; creates the worker, and notes its event sets. */
ucs_status_t rail_socket_create_worker(rail_t *rail, const ucp_worker_params_t *params);
/* Ends what was closed early, once nothing else is under way. Before the worker is progressed. */
void rail_socket_end_closed(rail_t *rail);

/* Progresses the worker once; nonzero: something happened. */
static inline unsigned rail_poll(rail_t *rail)
{
    if (rail->closed_early) {
        rail_socket_end_closed(rail);
    }
    return ucp_worker_progress(rail->worker);
}

/* rail/gpu_memory.c */
int rail_memory_is_gpu(const rail_t *rail, const void *address);
/* Puts the kind of the memory into the parameters of a request; nonzero: it is a GPU's. */
int rail_memory_describe(const rail_t *rail, const void *address, ucp_request_param_t *params);
/* Before the context ends. */
void rail_memory_drop(rail_t *rail);
/* rail/gpu_memory.c; callback of its active message, `argument` is the rail. */
ucs_status_t rail_trial_arrived(void *argument, const void *header, size_t header_bytes, void *data, size_t bytes,
                                const ucp_am_recv_param_t *param);

#endif
