/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways that a peer's rails take: directly, or through relays. Which rails relays give, how a rail is opened, and how
 * a message is sent through relays.
 */
#include "ucx_tl_mpath/relay.h"

#include <string.h>

#define DETOUR_NS                                                                                                      \
    20000 /* what a message takes longer, about: it is copied twice and two more processes look after it */

uint64_t uct_mpath_route_reachable(uct_mpath_iface_t *iface, const uct_mpath_device_addr_t *device)
{
    if (iface->relay == NULL) {
        return 0;
    }
    uct_mpath_relay_refresh(iface->relay);
    return iface->relay->rails & device->rails;
}

int uct_mpath_route_exists(const uct_mpath_peer_t *peer, unsigned rail, uint64_t gateway)
{
    const uct_mpath_relay_t *relay         = peer->iface->relay;
    const uct_mpath_lane_t *lane           = &peer->iface->lanes[rail];
    const uct_mpath_peer_rail_t *addresses = &peer->rails[rail];

    if (relay == NULL) {
        return 0;
    }
    if (uct_mpath_relay_slot_of(relay, peer->uid) >= 0) {
        return 1;
    }
    if (lane->child == NULL) {
        return 1; /* a neighbour that drives it may still come */
    }
    return gateway != 0 && uct_iface_is_reachable(lane->child, (const uct_device_addr_t *)addresses->device_addr,
                                                  (const uct_iface_addr_t *)addresses->iface_addr) != 0;
}

void uct_mpath_route_learn(uct_mpath_peer_t *peer, unsigned rail, uint64_t gateway)
{
    peer->rails[rail].relayed = 1;
    peer->rails[rail].gateway = gateway != 0 ? gateway : peer->uid;
    peer->relayed_mask |= UCS_BIT(rail);
    mpath_spread_rail_init(&peer->loads[rail], peer->iface->lanes[rail].rate_bps);
    peer->loads[rail].detour_ns = DETOUR_NS;
}

static ucs_status_t route_open(uct_mpath_peer_t *peer, unsigned number)
{
    uct_mpath_relay_t *relay    = peer->iface->relay;
    uct_mpath_peer_rail_t *rail = &peer->rails[number];
    int slot;

    if (relay == NULL) {
        return UCS_ERR_UNREACHABLE;
    }
    slot            = uct_mpath_relay_slot_of(relay, peer->uid);
    rail->route_due = 0;
    if (slot >= 0) {
        rail->hop = uct_mpath_hop_neighbour(relay, slot);
    } else if (peer->iface->lanes[number].child != NULL) {
        rail->hop = uct_mpath_hop_trunk(relay, number, rail->gateway, rail->device_addr, rail->iface_addr);
    } else if (relay->gateways[number].slot >= 0) {
        if (peer->loads[number].num_samples == 0 &&
            peer->loads[number].nominal_bps < peer->iface->lanes[number].rate_bps) { /* not known until now */
            uct_mpath_route_learn(peer, number, rail->gateway);
        }
        rail->hop       = uct_mpath_hop_neighbour(relay, relay->gateways[number].slot);
        rail->route_due = 1;
    }
    return rail->hop != NULL ? UCS_OK : UCS_ERR_UNREACHABLE;
}

ucs_status_t uct_mpath_peer_rail_open(uct_mpath_peer_t *peer, unsigned number)
{
    uct_mpath_lane_t *lane      = &peer->iface->lanes[number];
    uct_mpath_peer_rail_t *rail = &peer->rails[number];
    uct_ep_params_t params      = {.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                                                 UCT_EP_PARAM_FIELD_IFACE_ADDR,
                                   .iface      = lane->child,
                                   .dev_addr   = (const uct_device_addr_t *)rail->device_addr,
                                   .iface_addr = (const uct_iface_addr_t *)rail->iface_addr};
    ucs_status_t status;

    rail->ep  = NULL;
    rail->hop = NULL;
    status    = rail->relayed ? route_open(peer, number) : uct_ep_create(&params, &rail->ep);
    if (status != UCS_OK) {
        rail->ep  = NULL;
        rail->hop = NULL;
        return status;
    }
    /* 0 stands for none. */
    rail->generation       = rail->generation == UINT8_MAX ? 1 : rail->generation + 1;
    rail->sent_packets     = 0;
    rail->acked_packets    = 0;
    rail->ghosts           = 0;
    rail->stalled_since_ns = 0;
    rail->probe_due        = 1;
    rail->patience_ns      = UCT_MPATH_BACKOFF_FIRST_NS;
    rail->state            = UCT_MPATH_RAIL_OPENING;
    peer->open_mask |= UCS_BIT(number);
    uct_mpath_peer_set_busy(peer);
    return UCS_OK;
}

void uct_mpath_peer_open_all(uct_mpath_peer_t *peer)
{
    unsigned number;

    peer->opened = 1;
    for (number = 0; number < UCT_MPATH_MAX_RAILS; ++number) {
        if (peer->rails[number].known && peer->rails[number].state == UCT_MPATH_RAIL_CLOSED) {
            uct_mpath_peer_rail_open(peer, number);
        }
    }
}

/* Tells the relay where the rail leads. */
static ucs_status_t send_route(const uct_mpath_peer_t *peer, unsigned number)
{
    const uct_mpath_peer_rail_t *rail  = &peer->rails[number];
    const mpath_neighbour_rail_t *like = &peer->iface->relay->gateways[number].rail;
    uct_mpath_trunk_t trunk            = {.to            = rail->hop->uid,
                                          .uid           = rail->gateway,
                                          .rail          = (uint8_t)number,
                                          .device_length = like->device_length,
                                          .iface_length  = like->iface_length};

    memcpy(trunk.device, rail->device_addr, sizeof(trunk.device));
    memcpy(trunk.iface, rail->iface_addr, sizeof(trunk.iface));
    return uct_mpath_hop_control(rail->hop, UCT_MPATH_ID_ROUTE, &trunk, sizeof(trunk));
}

ucs_status_t uct_mpath_route_send(uct_mpath_peer_t *peer, unsigned number, uint8_t id, uct_pack_callback_t pack,
                                  void *arg)
{
    uct_mpath_peer_rail_t *rail = &peer->rails[number];
    uct_mpath_relay_head_t head = {.source      = peer->iface->uid,
                                   .destination = peer->uid,
                                   .gateway     = rail->gateway,
                                   .rail        = (uint8_t)number,
                                   .id          = id,
                                   .generation  = rail->generation};
    ucs_status_t status;

    if (rail->hop == NULL || rail->hop->broken) {
        return UCS_ERR_CONNECTION_RESET;
    }
    if (rail->route_due) {
        status = send_route(peer, number);
        if (status != UCS_OK) {
            return status;
        }
        rail->route_due = 0;
    }
    return uct_mpath_hop_send(rail->hop, &head, pack, arg);
}

void uct_mpath_route_down(uct_mpath_relay_t *relay, const uct_mpath_relay_head_t *head)
{
    uct_mpath_peer_t *peer = uct_mpath_peer_find(relay->iface, head->source);

    if (peer != NULL && peer->rails[head->rail].hop != NULL && peer->rails[head->rail].generation == head->generation) {
        uct_mpath_peer_rail_broken(peer, head->rail);
    }
}
