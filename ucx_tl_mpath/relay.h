/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relays: rails that a process does not drive itself are used through a process of its node that does.
 *
 *     source --shared memory--> neighbour --rail r--> gateway --shared memory--> destination
 *
 * The neighbour is left out where the source drives rail r, the gateway where the destination does. A message that is
 * relayed carries a head with source, destination, gateway and rail; what is inside is the same as on a rail of one's
 * own, so numbers, acknowledgements, measured rates and failures work from end to end and a relayed rail is one more
 * rail of the peer. Relays keep no state of a connection and may lose what they hold: the source sends it again over
 * other rails.
 *
 * Memory is bounded. A hop may hold UCT_MPATH_RELAY_SLOTS messages that its other end has to pass on (credits). What
 * waits for a rail waits for slots of the gateway, and what waits at the gateway waits for its neighbour only, who
 * takes what is for himself at any time; so full slots cannot wait for each other in a circle.
 *
 * A relay passes messages on while its process progresses UCX. One that does so rarely is measured as a slow rail.
 */
#ifndef UCX_TL_MPATH_RELAY_H
#define UCX_TL_MPATH_RELAY_H

#include "ucx_tl_mpath/neighbours.h"
#include "ucx_tl_mpath/peer.h"

#define UCT_MPATH_RAIL_SHM UCT_MPATH_MAX_RAILS /* in the place of a rail: shared memory of the node */
#define UCT_MPATH_RELAY_SLOTS 32               /* of a hop, at its other end */

/* Whose messages have gone over a hop: who is told when it fails. */
typedef struct uct_mpath_hop_user {
    uint64_t source, destination, previous;
    uint8_t rail, generation, previous_rail;
} uct_mpath_hop_user_t;

/* A connection between two interfaces that relay: to a neighbour, or to a gateway or relay on another node. */
typedef struct uct_mpath_hop {
    ucs_list_link_t list; /* of the relay */
    uct_mpath_iface_t *iface;
    uint64_t uid; /* of the other end */
    uint8_t rail; /* or UCT_MPATH_RAIL_SHM */
    uint8_t broken, greet_due;
    int slot;    /* of a neighbour */
    uct_ep_h ep; /* NULL: made in progress */
    uint8_t device_addr[MPATH_NEIGHBOUR_SHM_MAX], iface_addr[MPATH_NEIGHBOUR_SHM_MAX];
    uint32_t credits, owed;
    ucs_list_link_t queue; /* messages to pass on, oldest first */
    uct_mpath_hop_user_t *users;
    unsigned num_users, max_users;
} uct_mpath_hop_t;

/* The neighbour that drives a rail for this interface. */
typedef struct uct_mpath_gateway {
    int slot; /* -1: none */
    uint64_t uid;
    mpath_neighbour_rail_t rail;
} uct_mpath_gateway_t;

typedef struct uct_mpath_relayed uct_mpath_relayed_t;

typedef struct uct_mpath_relay {
    uct_mpath_iface_t *iface;
    mpath_neighbours_t *neighbours;
    uct_md_h shm_md;
    uct_mpath_lane_t shm;
    uct_iface_params_t params; /* by which it is opened */
    uct_ep_h echo;             /* to this interface itself (relay.c); NULL: none */
    uint64_t echo_ns;
    uint8_t echo_due, echo_under_way, silent_looks;
    ucs_list_link_t hops;
    uint32_t version; /* of the neighbours, when they were looked at last */
    int num_slots;
    uint64_t uids[MPATH_NEIGHBOURS_MAX]; /* by slot; 0: none */
    uint64_t rails;                      /* that only neighbours drive */
    uct_mpath_gateway_t gateways[UCT_MPATH_MAX_RAILS];
    uint64_t looked_ns, looked_bytes;
    uint64_t passed_messages, passed_bytes;
    uct_mpath_relayed_t *free;
} uct_mpath_relay_t;

/* relay.c: the interface's relay; none (iface->relay NULL) where it is not wanted or cannot be had. */
void uct_mpath_relay_open(uct_mpath_iface_t *iface, const uct_mpath_md_t *md, uct_worker_h worker,
                          const uct_iface_params_t *params, const uct_mpath_iface_config_t *config);
void uct_mpath_relay_close(uct_mpath_iface_t *iface);
/* Takes what came through shared memory, passes on what can be, looks after hops and neighbours. */
unsigned uct_mpath_relay_progress(uct_mpath_iface_t *iface, uint64_t now_ns);

/* route.c: the neighbours. */
void uct_mpath_relay_write_card(const uct_mpath_iface_t *iface, const uct_mpath_relay_t *relay, const uint8_t *shm_addr,
                                mpath_neighbour_card_t *card);
/* Who is there; peers hear of rails that have come or gone. */
void uct_mpath_relay_look(uct_mpath_relay_t *relay);
/* Writes into the table where this interface is in shared memory. */
void uct_mpath_relay_tell_address(uct_mpath_relay_t *relay, const uint8_t *shm_addr);

/* route.c: hops. */
uct_mpath_hop_t *uct_mpath_hop_find(uct_mpath_relay_t *relay, uint64_t uid, unsigned rail);
/* To an interface on another node; NULL: it cannot be reached. */
uct_mpath_hop_t *uct_mpath_hop_trunk(uct_mpath_relay_t *relay, unsigned rail, uint64_t uid, const void *device_addr,
                                     const void *iface_addr);
/* Greets, returns credits, sends what waits. Nonzero: it carried something. */
unsigned uct_mpath_hop_progress(uct_mpath_hop_t *hop);
/* Ends a hop: everybody who used it hears of it. */
void uct_mpath_hop_bury(uct_mpath_hop_t *hop);
void uct_mpath_hop_close(uct_mpath_hop_t *hop);
/* A child's endpoint failed; nonzero when it was one of a hop. */
int uct_mpath_hop_child_failed(uct_mpath_iface_t *iface, uct_ep_h child);
/* A message of somebody else: waits here until it can go. */
void uct_mpath_hop_pass_on(uct_mpath_relay_t *relay, const uct_mpath_relay_head_t *head, const void *data, size_t bytes,
                           unsigned previous_rail);
void uct_mpath_relayed_free(uct_mpath_relay_t *relay);

/* lanes.c: what the children call for relays. */
ucs_status_t uct_mpath_relay_message(void *arg, void *data, size_t length, unsigned flags);
ucs_status_t uct_mpath_route_message(void *arg, void *data, size_t length, unsigned flags);
ucs_status_t uct_mpath_credit_message(void *arg, void *data, size_t length, unsigned flags);

/* route.c: a peer's rails that lead through relays. */
/* Rails in another's address that a neighbour drives. */
uint64_t uct_mpath_route_reachable(uct_mpath_iface_t *iface, const uct_mpath_device_addr_t *device);
/*
 * Nonzero when this rail of a peer, which `gateway` drives for it, can be used through relays, now or when they come.
 */
int uct_mpath_route_exists(const uct_mpath_peer_t *peer, unsigned rail, uint64_t gateway);
void uct_mpath_route_learn(uct_mpath_peer_t *peer, unsigned rail, uint64_t gateway);
ucs_status_t uct_mpath_route_send(uct_mpath_peer_t *peer, unsigned rail, uint8_t id, uct_pack_callback_t pack,
                                  void *arg);
void uct_mpath_route_down(uct_mpath_relay_t *relay, const uct_mpath_relay_head_t *head);

#endif
