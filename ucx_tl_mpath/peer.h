/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer: another interface that this one talks to, with all endpoints towards it. Both directions share one peer, so
 * that acknowledgements and replies have a way back. Two interfaces greet each other over the first rail that reaches;
 * the greeting carries the addresses of all other rails, which are opened when the first larger message comes along.
 *
 * Every packet is numbered (window.h) and kept until it is acknowledged. Active messages are delivered in the order of
 * their numbers, remote accesses as they come: so an active message never overtakes a put. When a rail fails, what it
 * carried is sent again over the others; what has arrived already is dropped there by its number.
 *
 * A rail is reliable and ordered in itself, so an acknowledgement is a count of packets per rail. The count starts anew
 * whenever a rail is opened (its generation).
 */
#ifndef UCX_TL_MPATH_PEER_H
#define UCX_TL_MPATH_PEER_H

#include "ucx_tl_mpath/iface.h"
#include "ucx_tl_mpath/window.h"

#include "util/time.h"

#define UCT_MPATH_MAX_IOV 4
#define UCT_MPATH_MAX_HEADER 512 /* bytes of headers in front of data that is not copied; also of a small packet */

typedef enum uct_mpath_rail_state {
    UCT_MPATH_RAIL_CLOSED,
    UCT_MPATH_RAIL_OPENING, /* the child's endpoint is there; it has not proven that it carries anything */
    UCT_MPATH_RAIL_UP,
    UCT_MPATH_RAIL_SUSPENDED, /* it stalls: nothing new until what it has is acknowledged, or the child gives up */
    UCT_MPATH_RAIL_BROKEN     /* failed; its endpoint has to be destroyed */
} uct_mpath_rail_state_t;

/* A rail's connection for remote access (rma.h). */
typedef struct uct_mpath_rma_link {
    uct_ep_h ep;
    uint8_t generation;                /* of the endpoint; 0: there was none */
    uint8_t connected, peer_connected; /* to the other's endpoint of this generation */
    uint8_t message_due, broken;
    uint64_t retry_ns; /* no endpoint: not before */
} uct_mpath_rma_link_t;

struct uct_mpath_hop;

typedef struct uct_mpath_peer_rail {
    uct_mpath_rma_link_t rma;
    uct_ep_h ep;               /* NULL: not open, or relayed */
    struct uct_mpath_hop *hop; /* a relayed rail's first hop (relay.h) */
    uint64_t gateway;          /* where a relayed rail leads to */
    uint8_t relayed, route_due;
    uint8_t open_due; /* the peer uses it: to be opened in progress */
    uct_mpath_rail_state_t state;
    uint8_t known; /* its addresses are */
    uint8_t generation, peer_generation;
    uint8_t probe_due;
    uint32_t sent_packets;     /* of this generation */
    uint32_t acked_packets;    /* the same */
    uint32_t ghosts;           /* SUSPENDED: packets that it still has, sent again over others meanwhile */
    uint32_t received_packets; /* of the peer's generation */
    ucs_list_link_t inflight;  /* packets, oldest first */
    uint64_t stalled_since_ns; /* first acknowledgement that did not move this rail; 0: it moves */
    uint64_t retry_ns;         /* CLOSED: not before */
    uint64_t backoff_ns, closed_ns;
    uint64_t probed_ns, patience_ns; /* OPENING: when last, and how long an answer is waited for */
    uint8_t device_addr[UCT_MPATH_ADDRESS_MAX];
    uint8_t iface_addr[UCT_MPATH_ADDRESS_MAX];
} uct_mpath_peer_rail_t;

typedef enum uct_mpath_peer_state {
    UCT_MPATH_PEER_GREETING, /* waiting for the first hello */
    UCT_MPATH_PEER_READY,
    UCT_MPATH_PEER_FAILED
} uct_mpath_peer_state_t;

struct uct_mpath_peer {
    uct_mpath_iface_t *iface;
    uct_mpath_peer_state_t state;
    uint64_t uid;
    uint32_t handle;       /* by which the peer names me, */
    uint64_t nonce;        /* with this secret */
    uct_mpath_link_t link; /* by which I name the peer */
    ucs_list_link_t busy;  /* member of the interface's list */
    uint8_t is_busy, hello_due, opened, dispatching, replies_first;
    uint8_t asks;      /* it shall greet again: relays that it has now may be others than those that are known */
    uint8_t refusing;  /* 1: it has to be told that it accessed memory that is not registered; 2: it was told */
    uint8_t last_rail; /* over which something came */
    uint8_t cleaned;   /* FAILED, and all operations have ended */
    ucs_status_t failure;
    uint64_t up_mask, open_mask, relayed_mask;
    uint64_t last_try_ns; /* no rail is open: when one that has not failed is tried; 0: never */
    uint64_t rma_mask;    /* rails with remote access */
    uct_mpath_peer_rail_t rails[UCT_MPATH_MAX_RAILS];
    mpath_spread_rail_t loads[UCT_MPATH_MAX_RAILS]; /* of the rails */
    mpath_tx_window_t tx;
    mpath_rx_window_t rx;
    ucs_list_link_t eps;
    ucs_list_link_t lost;    /* packets to be sent again, in order of their numbers */
    ucs_list_link_t held;    /* packets that are over, but a child still reads from their memory */
    ucs_list_link_t gets;    /* that wait for their data */
    ucs_list_link_t rma;     /* accesses by the rails themselves, see rma.h */
    uint32_t rma_next;       /* number of the next one */
    uint32_t rma_fence;      /* nothing goes before those with lower numbers are done */
    uint32_t get_fence;      /* the same for gets */
    ucs_list_link_t replies; /* gets of the peer that wait to be served */
    uint32_t num_replies;
    ucs_list_link_t flushes;
    ucs_queue_head_t pending;
    uint32_t next_get, num_gets;
    uint32_t
        flush_psn; /* a flush waits for everything before it: remote accesses and what is sent out of user memory */
    uint32_t fence_psn;     /* remote accesses are delivered in order until everything before it is done */
    uint64_t period_bytes;  /* sent since the rails were divided last */
    uint64_t unacked_bytes; /* received */
    uint32_t unacked_packets, unacked_seen;
    uint8_t ack_soon, ack_due;
    uint64_t unacked_since_ns, progress_ns;
    uint64_t greeted_ns, patience_ns; /* GREETING: when last, and how long an answer is waited for */
};

typedef enum uct_mpath_done {
    UCT_MPATH_UNDER_WAY,
    UCT_MPATH_ACKNOWLEDGED,
    UCT_MPATH_GIVEN_UP,
    UCT_MPATH_REPLACED /* by a twin */
} uct_mpath_done_t;

/* A packet. `data` holds its headers and what was copied; `iov` what was not. */
struct uct_mpath_packet {
    ucs_list_link_t list; /* rail's or peer's */
    uct_mpath_packet_t *next_free;
    uct_mpath_peer_t *peer;
    uct_mpath_ep_t *ep; /* that posted it; NULL: none, or it is gone */
    uct_completion_t *user;
    uct_completion_t child;
    uint32_t psn;
    uint32_t data_bytes, iov_bytes;
    uint8_t rail, large;
    uint8_t reading;   /* the child reads from the packet's memory */
    uint8_t done;      /* uct_mpath_done_t */
    uint8_t abandoned; /* its user has been told; its memory may be gone */
    uint8_t num_iov;
    uct_iov_t iov[UCT_MPATH_MAX_IOV];
    char data[] __attribute__((aligned(8)));
};

typedef struct uct_mpath_get_op {
    ucs_list_link_t list;
    uct_mpath_ep_t *ep;
    uint32_t id;
    size_t bytes;
    uct_completion_t *user;
    uct_unpack_callback_t unpack; /* NULL: zero copy, into iov */
    void *unpack_arg;
    size_t num_iov;
    uct_iov_t iov[UCT_MPATH_MAX_IOV];
} uct_mpath_get_op_t;

typedef struct uct_mpath_reply {
    ucs_list_link_t list;
    uct_mpath_get_t get;
} uct_mpath_reply_t;

typedef struct uct_mpath_flush {
    ucs_list_link_t list;
    uct_mpath_ep_t *ep;
    uint32_t psn;     /* everything before it has to be done */
    uint32_t rma_seq; /* and all accesses before this one */
    uint32_t get_id;  /* and all gets before this one */
    uct_completion_t *user;
} uct_mpath_flush_t;

/* peer.c */
ucs_status_t uct_mpath_peer_create(uct_mpath_iface_t *iface, uint64_t uid, uct_mpath_peer_t **peer_p);
uct_mpath_peer_t *uct_mpath_peer_find(uct_mpath_iface_t *iface, uint64_t uid);
/*
 * The living connection that a message names, if it is whole; NULL: there is none. What is not whole ends the connection.
 */
uct_mpath_peer_t *uct_mpath_peer_of_message(const uct_mpath_lane_t *lane, uint8_t id, const void *data, size_t length);
void uct_mpath_peer_set_busy(uct_mpath_peer_t *peer);
/* All operations end with an error and the endpoints' user is told. */
void uct_mpath_peer_fail(uct_mpath_peer_t *peer, ucs_status_t status, const char *why);
void uct_mpath_peer_check_flushes(uct_mpath_peer_t *peer);
/* Nonzero: no get before that with the number `id` is under way. */
int uct_mpath_peer_gets_done_before(uct_mpath_peer_t *peer, uint32_t id);
/* The same of accesses by the rails themselves, see rma.h. */
int uct_mpath_peer_rma_done_before(uct_mpath_peer_t *peer, uint32_t seq);
/* What is sent from now on comes after all that was sent. */
void uct_mpath_peer_fence(uct_mpath_peer_t *peer);
/* A rail that has failed is tried again after so long at first. */
#define UCT_MPATH_BACKOFF_FIRST_NS (500 * MPATH_NS_PER_MS)
/* The next progress opens a closed rail over which something has come. Not at once: UCX's TCP does not stand an
 * endpoint that is made while it delivers a message of the same connection and has more of them. */
void uct_mpath_peer_rail_open_soon(uct_mpath_peer_t *peer, unsigned number);
void uct_mpath_peer_rail_up(uct_mpath_peer_t *peer, unsigned number);
void uct_mpath_peer_rail_broken(uct_mpath_peer_t *peer, unsigned number);

/* protocol.c */
/* One round of work; 0 when nothing is left to do. */
int uct_mpath_peer_progress(uct_mpath_peer_t *peer, uint64_t now_ns);
void uct_mpath_peer_destroy(uct_mpath_peer_t *peer);
/* The endpoint goes: its operations have no user any more. */
void uct_mpath_peer_forget(uct_mpath_peer_t *peer, uct_mpath_ep_t *ep);
/* Ends the endpoint's operations with UCS_ERR_CANCELED. Nonzero when a child still reads from their memory. */
int uct_mpath_peer_cancel(uct_mpath_peer_t *peer, uct_mpath_ep_t *ep);

/* route.c */
ucs_status_t uct_mpath_peer_rail_open(uct_mpath_peer_t *peer, unsigned number);
/* The first larger message: opens all rails that both sides have. */
void uct_mpath_peer_open_all(uct_mpath_peer_t *peer);

/* send.c */
uct_mpath_packet_t *uct_mpath_packet_get(uct_mpath_iface_t *iface, int large);
void uct_mpath_packet_put(uct_mpath_packet_t *packet);
/* A second packet with the same contents, number and user, in place of one that a child does not let go of; that one
 * goes when the child does. NULL: no memory. */
uct_mpath_packet_t *uct_mpath_packet_replace(uct_mpath_packet_t *packet);
/* Numbers a packet and sends it. Anything but UCS_OK: nothing was sent and the packet is still the caller's. */
ucs_status_t uct_mpath_packet_send(uct_mpath_peer_t *peer, uct_mpath_packet_t *packet);
/* Sends a numbered packet (again). UCS_ERR_NO_RESOURCE: no rail takes it now. */
ucs_status_t uct_mpath_packet_resend(uct_mpath_peer_t *peer, uct_mpath_packet_t *packet);
/* Nonzero: the packet is acknowledged, but its number has to wait until the child does not read from the user's memory
 * any more, for which a flush waits. */
static inline int uct_mpath_packet_waits(const uct_mpath_packet_t *packet)
{
    return packet->num_iov > 0 && packet->reading;
}
/* The packet was acknowledged (UCS_OK) or will never be: completes its operation. Not in any list any more. */
void uct_mpath_packet_done(uct_mpath_packet_t *packet, ucs_status_t status);
/* Ends packets that a child which has failed let go of: by now it has told so as often as it does. */
void uct_mpath_packets_let_go(uct_mpath_peer_t *peer);
/* The rail of `usable` for the next packet, see mpath_spread_pick; or one that has to be tried, also of `resting`. */
int uct_mpath_rail_pick(uct_mpath_peer_t *peer, uint64_t usable, uint64_t resting, uint64_t bytes, int reference);
/* The books of a rail: bytes that it has been given, that were acknowledged, that it will not deliver. */
void uct_mpath_load_sent(uct_mpath_peer_t *peer, unsigned rail, uint64_t bytes, uint64_t now_ns);
void uct_mpath_load_delivered(uct_mpath_peer_t *peer, unsigned rail, uint64_t bytes, uint64_t now_ns);
void uct_mpath_load_lost(uct_mpath_peer_t *peer, unsigned rail, uint64_t bytes);
void uct_mpath_packets_free(uct_mpath_iface_t *iface);

/* UCP passes contiguous pieces only: count is 1. */
static inline size_t uct_mpath_iov_bytes(const uct_iov_t *iov)
{
    return iov->length * iov->count;
}

static inline uct_mpath_packet_header_t *uct_mpath_packet_header(uct_mpath_packet_t *packet)
{
    return (uct_mpath_packet_header_t *)packet->data;
}

/* control.c */
/* Over the rail on which something came last, else over any. */
ucs_status_t uct_mpath_control_send(uct_mpath_peer_t *peer, uint8_t id, const void *message, size_t bytes);
void uct_mpath_probe_send(uct_mpath_peer_t *peer, unsigned rail);
void uct_mpath_ack_send(uct_mpath_peer_t *peer);

/* protocol.c: what the lanes call. */
/* A message of a sender that is none of the job's: dropped and counted, the first one named. */
void uct_mpath_stranger_note(uct_mpath_iface_t *iface, const char *rail);
ucs_status_t uct_mpath_packet_received(void *arg, void *data, size_t length, unsigned flags);
ucs_status_t uct_mpath_ack_message(void *arg, void *data, size_t length, unsigned flags);
ucs_status_t uct_mpath_probe_message(void *arg, void *data, size_t length, unsigned flags);
ucs_status_t uct_mpath_hello_message(void *arg, void *data, size_t length, unsigned flags);
ucs_status_t uct_mpath_refused_message(void *arg, void *data, size_t length, unsigned flags);

#endif
