/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The greeting. Each side says who it is, by which link it is reached and where all its rails are; whoever is greeted
 * by somebody that does not know its link yet greets back. A known peer that greets with another nonce has lost its
 * side of the connection: the old one ends here too. Who has lost a relayed rail greets as if the link were not known:
 * the answer tells which relays there are now. Where the rails are more than one message has room for, the
 * greeting is several messages, each of which says all but the other rails.
 */
#include "ucx_tl_mpath/message.h"
#include "ucx_tl_mpath/relay.h"

#include <stdlib.h>
#include <string.h>

typedef struct hello_pack {
    const uct_mpath_peer_t *peer;
    unsigned rail;  /* that it travels on */
    uint64_t rails; /* that it tells */
} hello_pack_t;

/* A rail that a neighbour drives for this interface. */
static void pack_gateway(const uct_mpath_gateway_t *gateway, uct_mpath_hello_rail_t *to)
{
    to->gateway       = gateway->uid;
    to->rail          = gateway->rail.number;
    to->device_length = gateway->rail.device_length;
    to->iface_length  = gateway->rail.iface_length;
    memcpy(to->device, gateway->rail.device, sizeof(to->device));
    memcpy(to->iface, gateway->rail.iface, sizeof(to->iface));
}

static void pack_lane(const uct_mpath_lane_t *lane, uct_mpath_hello_rail_t *to)
{
    to->gateway       = 0;
    to->rail          = lane->number;
    to->device_length = (uint8_t)lane->attr.device_addr_len;
    to->iface_length  = (uint8_t)lane->attr.iface_addr_len;
    memcpy(to->device, lane->device_addr, sizeof(to->device));
    memcpy(to->iface, lane->iface_addr, sizeof(to->iface));
}

static size_t pack_hello(void *destination, void *arg)
{
    const hello_pack_t *pack       = arg;
    const uct_mpath_iface_t *iface = pack->peer->iface;
    uct_mpath_hello_t *hello       = destination;
    uct_mpath_hello_rail_t *to;
    unsigned number;
    uint64_t rest;

    hello->link          = pack->peer->asks ? (uct_mpath_link_t){0} : pack->peer->link;
    hello->to            = pack->peer->uid;
    hello->uid           = iface->uid;
    hello->me.handle     = pack->peer->handle;
    hello->me.nonce      = pack->peer->nonce;
    hello->window        = iface->window;
    hello->segment_bytes = (uint32_t)iface->segment_bytes;
    hello->version       = UCT_MPATH_WIRE_VERSION;
    hello->rail          = (uint8_t)pack->rail;
    hello->num_rails     = 0;
    for (rest = pack->rails; rest != 0; rest &= rest - 1) {
        number = (unsigned)__builtin_ctzll(rest);
        to     = &hello->rails[hello->num_rails++];
        if (iface->lanes_mask & UCS_BIT(number)) {
            pack_lane(&iface->lanes[number], to);
        } else {
            pack_gateway(&iface->relay->gateways[number], to);
        }
    }
    return sizeof(*hello) + hello->num_rails * sizeof(hello->rails[0]);
}

/* How many rails a message has room for on a rail; UD's is as long as the MTU. */
static unsigned room_for_rails(const uct_mpath_peer_t *peer, unsigned rail)
{
    const uct_mpath_lane_t *lane = &peer->iface->lanes[rail];
    size_t bytes                 = peer->iface->segment_bytes;

    if (!peer->rails[rail].relayed && lane->attr.cap.am.max_bcopy < bytes) {
        bytes = lane->attr.cap.am.max_bcopy;
    }
    return (unsigned)((bytes - sizeof(uct_mpath_hello_t)) / sizeof(uct_mpath_hello_rail_t));
}

/* The lowest `count` bits that are set. */
static uint64_t lowest(uint64_t mask, unsigned count)
{
    uint64_t rest = mask;

    for (; count > 0; --count) {
        rest &= rest - 1;
    }
    return mask & ~rest;
}

static ucs_status_t send_over(uct_mpath_peer_t *peer, unsigned rail)
{
    const uct_mpath_iface_t *iface = peer->iface;
    uint64_t left                  = iface->lanes_mask | (iface->relay != NULL ? iface->relay->rails : 0);
    hello_pack_t pack              = {.peer = peer, .rail = rail};
    ssize_t packed;

    for (; left != 0; left &= ~pack.rails) {
        pack.rails = lowest(left, room_for_rails(peer, rail));
        packed     = peer->rails[rail].relayed
                         ? (ssize_t)uct_mpath_route_send(peer, rail, UCT_MPATH_ID_HELLO, pack_hello, &pack)
                         : uct_ep_am_bcopy(peer->rails[rail].ep, UCT_MPATH_ID_HELLO, pack_hello, &pack, 0);
        if (packed < 0) {
            return (ucs_status_t)packed;
        }
    }
    return UCS_OK;
}

/* Over the first rail that takes it; all that are open have been chosen because they reach. */
void uct_mpath_hello_send(uct_mpath_peer_t *peer, uint64_t now_ns)
{
    uint64_t usable = peer->up_mask != 0 ? peer->up_mask : peer->open_mask;
    ucs_status_t status;
    unsigned rail;

    for (; usable != 0; usable &= usable - 1) {
        rail   = (unsigned)__builtin_ctzll(usable);
        status = send_over(peer, rail);
        if (status == UCS_OK) {
            peer->hello_due  = 0;
            peer->asks       = 0;
            peer->greeted_ns = now_ns;
            return;
        }
        if (status != UCS_ERR_NO_RESOURCE) {
            uct_mpath_peer_rail_broken(peer, rail);
        }
    }
}

/* Not of a rail that is open, unless it is one that waits for a gateway of which the peer has another now. */
static int may_learn(uct_mpath_peer_t *peer, const uct_mpath_hello_rail_t *from)
{
    const uct_mpath_peer_rail_t *rail = &peer->rails[from->rail];

    if (rail->state == UCT_MPATH_RAIL_CLOSED) {
        return 1;
    }
    if (!rail->relayed || from->gateway == 0 || from->gateway == rail->gateway || rail->state == UCT_MPATH_RAIL_UP) {
        return 0;
    }
    uct_mpath_peer_rail_broken(peer, from->rail);
    return 1;
}

/* Remembers the peer's rails that this interface can reach. */
static void learn_rails(uct_mpath_peer_t *peer, const uct_mpath_hello_t *hello)
{
    const uct_mpath_hello_rail_t *from;
    uct_mpath_peer_rail_t *to;
    uct_mpath_lane_t *lane;
    unsigned i;

    for (i = 0; i < hello->num_rails; ++i) {
        from = &hello->rails[i];
        lane = &peer->iface->lanes[from->rail];
        if ((lane->child != NULL &&
             (from->device_length != lane->attr.device_addr_len || from->iface_length != lane->attr.iface_addr_len)) ||
            !may_learn(peer, from)) {
            continue;
        }
        to = &peer->rails[from->rail];
        memcpy(to->device_addr, from->device, sizeof(to->device_addr));
        memcpy(to->iface_addr, from->iface, sizeof(to->iface_addr));
        if (lane->child != NULL && from->gateway == 0) {
            to->known = uct_iface_is_reachable(lane->child, (const uct_device_addr_t *)to->device_addr,
                                               (const uct_iface_addr_t *)to->iface_addr) != 0;
        } else {
            to->known = uct_mpath_route_exists(peer, from->rail, from->gateway) != 0;
            if (to->known) {
                uct_mpath_route_learn(peer, from->rail, from->gateway);
            }
        }
    }
}

static int compatible(uct_mpath_peer_t *peer, const uct_mpath_hello_t *hello)
{
    if (hello->segment_bytes != peer->iface->segment_bytes) {
        ucs_error(
            "mpath: packets of %zu bytes here and %u at the peer; set UCX_MPATH_SEG_SIZE to one value on all nodes",
            peer->iface->segment_bytes, hello->segment_bytes);
        return 0;
    }
    return 1;
}

/* The peer that greets: the one that is known, or a new one. NULL: it cannot be had. */
static uct_mpath_peer_t *greeted_peer(uct_mpath_iface_t *iface, const uct_mpath_hello_t *hello)
{
    uct_mpath_peer_t *peer = uct_mpath_peer_find(iface, hello->uid);

    if (peer != NULL && peer->state == UCT_MPATH_PEER_READY && peer->link.nonce != hello->me.nonce) {
        uct_mpath_peer_fail(peer, UCS_ERR_CONNECTION_RESET, "its other side began anew");
        peer = NULL;
    }
    if (peer == NULL && uct_mpath_peer_create(iface, hello->uid, &peer) != UCS_OK) {
        return NULL;
    }
    return peer;
}

void uct_mpath_stranger_note(uct_mpath_iface_t *iface, const char *rail)
{
    if (iface->strangers++ == 0) {
        ucs_warn(
            "mpath: rail %s: a message came from a sender that is none of this job's processes; it is dropped, and so "
            "are others of the kind, which are only counted (UCX_MPATH_STATS); doc/security.md says who can send",
            rail);
    }
}

void uct_mpath_hello_received(uct_mpath_iface_t *iface, unsigned rail, const void *data, size_t length)
{
    const uct_mpath_hello_t *hello = data;
    uct_mpath_peer_t *peer;

    if (!mpath_message_is_whole(UCT_MPATH_ID_HELLO, data, length, iface->segment_bytes) || hello->to != iface->uid) {
        uct_mpath_stranger_note(iface, iface->lanes[rail].name);
        return;
    }
    if (hello->version != UCT_MPATH_WIRE_VERSION || hello->rail != rail) {
        ucs_error("mpath: a peer with protocol version %u greets on rail %u (here %u on rail %u); not connected",
                  hello->version, hello->rail, UCT_MPATH_WIRE_VERSION, rail);
        return;
    }
    peer = greeted_peer(iface, hello);
    if (peer == NULL) {
        return;
    }
    if (peer->state == UCT_MPATH_PEER_GREETING) {
        if (!compatible(peer, hello)) {
            uct_mpath_peer_fail(peer, UCS_ERR_INVALID_PARAM, "it has other settings");
            return;
        }
        peer->link   = hello->me;
        peer->tx.max = hello->window < peer->iface->window ? hello->window : peer->iface->window;
        peer->state  = UCT_MPATH_PEER_READY;
    }
    learn_rails(peer, hello);
    if (peer->rails[rail].state == UCT_MPATH_RAIL_CLOSED && peer->rails[rail].known) {
        uct_mpath_peer_rail_open_soon(peer, rail);
    } else if (peer->rails[rail].state == UCT_MPATH_RAIL_OPENING) {
        uct_mpath_peer_rail_up(peer, rail);
    }
    if (hello->link.handle != peer->handle || hello->link.nonce != peer->nonce) {
        peer->hello_due = 1;
    }
    uct_mpath_peer_set_busy(peer);
}
