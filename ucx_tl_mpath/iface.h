/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface: one interface of a child transport per rail, and the peers that it talks to. Everything happens in the
 * progress of the worker and in calls of its user, under the worker's lock.
 */
#ifndef UCX_TL_MPATH_IFACE_H
#define UCX_TL_MPATH_IFACE_H

#include "ucx_tl_mpath/md.h"
#include "ucx_tl_mpath/spread.h"

#include <limits.h>

/* Count of a completion that a child has called. UCX's tcp calls it again when a send fails of which a part had gone, and
 * asserts that the count was above 0; it does not come to 0 a second time. */
#define UCT_MPATH_TOLD (1 << 20)

typedef struct uct_mpath_peer uct_mpath_peer_t;
typedef struct uct_mpath_packet uct_mpath_packet_t;
typedef struct uct_mpath_iface uct_mpath_iface_t;
typedef struct uct_mpath_relay uct_mpath_relay_t;

typedef struct uct_mpath_iface_config {
    uct_iface_config_t super;
    size_t segment_bytes;
    unsigned window;
    size_t spread_bytes;
    double stall_s;
    int am_copy;
    int plan;
    char *rates_file;
    int relays; /* ucs_ternary_auto_value_t; UCS_TRY: where this process does not drive all NICs */
    char *relay_group;
    ucs_config_names_array_t relay_tls;
    int stats;
} uct_mpath_iface_config_t;

/* One rail of this interface. */
typedef struct uct_mpath_lane {
    uct_mpath_iface_t *iface;
    uct_iface_h child; /* NULL: not open */
    uct_iface_attr_t attr;
    unsigned md_child, rma_md_child;
    uct_iface_h rma_child; /* for remote access; NULL: none */
    uct_iface_attr_t rma_attr;
    int rma_needs_rkey;
    uint64_t rate_bps;        /* as the system tells */
    mpath_spread_rail_t load; /* what all peers together have under way, and the rate that it shows */
    uint64_t sent_packets, sent_bytes, received_packets, received_bytes; /* counters */
    uint8_t number;
    uint8_t idle_polls; /* that found nothing, up to a limit */
    uint8_t zcopy;      /* packets may be sent out of the memory in which they lie */
    char name[UCT_DEVICE_NAME_MAX];
    uint8_t device_addr[UCT_MPATH_ADDRESS_MAX];
    uint8_t iface_addr[UCT_MPATH_ADDRESS_MAX];
} uct_mpath_lane_t;

struct uct_mpath_iface {
    uct_base_iface_t super;
    uint64_t uid;       /* secret: wire.h */
    uint64_t strangers; /* messages of theirs that were dropped */
    uint32_t window;
    uint64_t spread_bytes;        /* a message from this size on opens the other rails, */
    uint64_t spread_packet_bytes; /* or a packet: that of a longer message is nearly full */
    uint64_t stall_ns;
    int stats;
    int am_copy;          /* active messages are sent out of a copy */
    size_t segment_bytes; /* of a packet with its headers: what every rail can carry */
    size_t short_bytes;   /* of a packet that a rail takes as a short message */
    size_t max_iov;
    uint64_t lanes_mask;                         /* rails that are open */
    uct_mpath_lane_t lanes[UCT_MPATH_MAX_RAILS]; /* by rail number */
    uint64_t address_mask;                       /* rails whose addresses fit into the address */
    uct_mpath_peer_t **peers;                    /* by handle; NULL: free */
    uint32_t num_peers;
    ucs_list_link_t busy; /* peers with something to do */
    uct_mpath_packet_t *free_small, *free_large;
    uint64_t rma_lanes;       /* those with remote access */
    uct_mpath_relay_t *relay; /* NULL: none */
    uint64_t sent_bytes;      /* over all rails */
    int relays_idle;          /* the plan has no use for rails behind relays */
    uint64_t resent_packets, lost_rails, plans, rma_bytes;
    int plan; /* the planner divides the rails */
    uint64_t planned_ns;
    char rates_file[PATH_MAX]; /* empty: none */
    int event_fd;
    uint64_t polled_all_ns;
};

typedef struct uct_mpath_ep {
    uct_base_ep_t super;
    uct_mpath_peer_t *peer;
    int reported;         /* its user was told that it failed */
    ucs_list_link_t list; /* of the peer's endpoints */
} uct_mpath_ep_t;

UCS_CLASS_DECLARE(uct_mpath_iface_t, uct_md_h, uct_worker_h, const uct_iface_params_t *, const uct_iface_config_t *);
UCS_CLASS_DECLARE(uct_mpath_ep_t, const uct_ep_params_t *);
UCS_CLASS_DECLARE_NEW_FUNC(uct_mpath_ep_t, uct_ep_t, const uct_ep_params_t *);
UCS_CLASS_DECLARE_DELETE_FUNC(uct_mpath_ep_t, uct_ep_t);
UCS_CLASS_DECLARE_NEW_FUNC(uct_mpath_iface_t, uct_iface_t, uct_md_h, uct_worker_h, const uct_iface_params_t *,
                           const uct_iface_config_t *);

extern ucs_config_field_t uct_mpath_iface_config_table[];

/* lanes.c */
/* Opens and closes the children. An interface without any is an error. */
ucs_status_t uct_mpath_lanes_open(uct_mpath_iface_t *iface, uct_mpath_md_t *md, uct_worker_h worker,
                                  const uct_iface_params_t *params);
void uct_mpath_lanes_close(uct_mpath_iface_t *iface);
/* Opens a child's interface of which messages are at most message_bytes long. */
ucs_status_t uct_mpath_child_open(uct_mpath_lane_t *lane, uct_md_h child_md, const char *transport, const char *device,
                                  uct_worker_h worker, const uct_iface_params_t *user, size_t message_bytes);
/* What each rail carried, and what relays did; to standard error. */
void uct_mpath_lanes_report(const uct_mpath_iface_t *iface);

/* iface_shares.c: has the planner divide the rails from time to time; the file of rates. */
void uct_mpath_shares_progress(uct_mpath_iface_t *iface, uint64_t now_ns);
void uct_mpath_rates_load(uct_mpath_iface_t *iface);
void uct_mpath_rates_save(const uct_mpath_iface_t *iface);

/* rma.c: the operations of remote access. */
ucs_status_t uct_mpath_ep_put_short(uct_ep_h tl_ep, const void *buffer, unsigned length, uint64_t remote_addr,
                                    uct_rkey_t rkey);
ssize_t uct_mpath_ep_put_bcopy(uct_ep_h tl_ep, uct_pack_callback_t pack, void *arg, uint64_t remote_addr,
                               uct_rkey_t rkey);
ucs_status_t uct_mpath_ep_put_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr,
                                    uct_rkey_t rkey, uct_completion_t *comp);
ucs_status_t uct_mpath_ep_get_bcopy(uct_ep_h tl_ep, uct_unpack_callback_t unpack, void *arg, size_t length,
                                    uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t *comp);
ucs_status_t uct_mpath_ep_get_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr,
                                    uct_rkey_t rkey, uct_completion_t *comp);

#endif
