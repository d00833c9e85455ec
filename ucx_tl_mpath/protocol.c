/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What two peers say to each other, and what progress does for a peer.
 *
 * Rails are proven by a first answer, given up when they fail or stall, and opened again after a while.
 *
 * Acknowledgements: how many packets came over each rail. They go out when much has come, when the sender asked for one
 * and nothing more comes, or after a millisecond; so a ping-pong of small messages is not slowed down by them.
 *
 * The greeting. Each side says who it is, by which link it is reached and where all its rails are; whoever is greeted
 * by somebody that does not know its link yet greets back. A known peer that greets with another nonce has lost its
 * side of the connection: the old one ends here too. Who has lost a relayed rail greets as if the link were not known:
 * the answer tells which relays there are now. Where the rails are more than one message has room for, the
 * greeting is several messages, each of which says all but the other rails.
 *
 * What arrives: active messages go up in order, early ones wait in a copy; puts and replies to gets go to their places
 * at once, and gets are answered as the rails have room, both only where memory is registered. Whatever does not name a
 * living connection is dropped: it is late post of an earlier one.
 *
 * Operations end with their peer, with their endpoint, or because they are cancelled.
 */
#include "ucx_tl_mpath/counters.h"
#include "ucx_tl_mpath/message.h"
#include "ucx_tl_mpath/peer.h"
#include "ucx_tl_mpath/relay.h"
#include "ucx_tl_mpath/rma.h"

#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/* A peer that ends closes its rails one after the other: TCP does not stand a new connection towards one that is being
 * closed, and there is no hurry. */
#define LAST_TRY_NS (10 * MPATH_NS_PER_MS)
#define BACKOFF_LAST_NS (8 * MPATH_NS_PER_S)

/* Both lists are in order of the numbers; the lost ones are sent again in that order. */
static void move_to_lost(uct_mpath_peer_t *peer, ucs_list_link_t *inflight)
{
    ucs_list_link_t *next = peer->lost.next;
    uct_mpath_packet_t *packet;

    while (!ucs_list_is_empty(inflight)) {
        packet = ucs_list_extract_head(inflight, uct_mpath_packet_t, list);
        while (next != &peer->lost &&
               mpath_psn_before(ucs_container_of(next, uct_mpath_packet_t, list)->psn, packet->psn)) {
            next = next->next;
        }
        ucs_list_insert_before(next, &packet->list);
    }
}

/* What a stalled rail holds goes over the others. Its child's endpoint stays: it may be in the middle of a message, and
 * TCP's cannot be destroyed then without spoiling the stream for its next user. */
static void peer_rail_suspend(uct_mpath_peer_t *peer, unsigned number)
{
    uct_mpath_peer_rail_t *rail = &peer->rails[number];
    uct_mpath_packet_t *packet, *next, *twin;

    rail->state = UCT_MPATH_RAIL_SUSPENDED;
    peer->up_mask &= ~UCS_BIT(number);
    ++peer->iface->lost_rails;
    uct_mpath_count(MPATH_UCX_LOST_RAILS, 1);
    ucs_list_for_each_safe(packet, next, &rail->inflight, list)
    {
        uct_mpath_load_lost(peer, number, packet->data_bytes + packet->iov_bytes);
        ++rail->ghosts;
        if (!packet->reading) {
            continue;
        }
        twin = uct_mpath_packet_replace(packet);
        if (twin == NULL) {
            uct_mpath_peer_fail(peer, UCS_ERR_NO_MEMORY, "no memory to send again what a stalled rail holds");
            return;
        }
        ucs_list_insert_before(&packet->list, &twin->list);
        ucs_list_del(&packet->list);
        ucs_list_add_tail(&peer->held, &packet->list);
    }
    move_to_lost(peer, &rail->inflight);
    uct_mpath_peer_set_busy(peer);
}

/* Packets of a suspended rail were acknowledged after all. */
static void peer_rail_moves(uct_mpath_peer_t *peer, unsigned number, uint32_t packets)
{
    uct_mpath_peer_rail_t *rail = &peer->rails[number];

    packets = packets < rail->ghosts ? packets : rail->ghosts;
    rail->ghosts -= packets;
    rail->acked_packets += packets;
    if (rail->ghosts == 0) {
        rail->stalled_since_ns = 0;
        uct_mpath_peer_rail_up(peer, number);
    }
}

static void bury(uct_mpath_peer_t *peer, unsigned number, uint64_t now_ns)
{
    uct_mpath_peer_rail_t *rail = &peer->rails[number];
    uct_mpath_packet_t *packet;
    uct_ep_h ep = rail->ep;

    rail->ep    = NULL;
    rail->hop   = NULL;
    rail->state = UCT_MPATH_RAIL_CLOSED;
    if (ep != NULL) {
        uct_ep_destroy(ep); /* what it still held comes back */
    }
    if (peer->state != UCT_MPATH_PEER_FAILED) {
        ++peer->iface->lost_rails;
        uct_mpath_count(MPATH_UCX_LOST_RAILS, 1);
    }
    ucs_list_for_each(packet, &rail->inflight, list)
    {
        uct_mpath_load_lost(peer, number, packet->data_bytes + packet->iov_bytes);
    }
    move_to_lost(peer, &rail->inflight);
    /* Another relay may be in the gateway's place by now, and the news of it lost. */
    if (rail->relayed && rail->gateway != peer->uid && peer->state == UCT_MPATH_PEER_READY) {
        peer->asks      = 1;
        peer->hello_due = 1;
    }
    if (rail->backoff_ns == 0) {
        rail->backoff_ns = UCT_MPATH_BACKOFF_FIRST_NS;
    }
    rail->closed_ns  = now_ns;
    rail->retry_ns   = now_ns + rail->backoff_ns;
    rail->backoff_ns = rail->backoff_ns * 2 < BACKOFF_LAST_NS ? rail->backoff_ns * 2 : BACKOFF_LAST_NS;
}

/* No rail is open any more: a rail that has not failed yet may still reach the peer. */
static void try_another(uct_mpath_peer_t *peer)
{
    unsigned number;

    for (number = 0; number < UCT_MPATH_MAX_RAILS; ++number) {
        if (peer->rails[number].known && peer->rails[number].retry_ns == 0 &&
            peer->rails[number].state == UCT_MPATH_RAIL_CLOSED && uct_mpath_peer_rail_open(peer, number) == UCS_OK) {
            peer->hello_due |= peer->state == UCT_MPATH_PEER_GREETING;
            return;
        }
    }
}

/* Not sooner than it would be tried again for the first time: what carries one way may fail the other at once. */
static void open_due(uct_mpath_peer_t *peer, uint64_t now_ns)
{
    unsigned number;

    for (number = 0; number < UCT_MPATH_MAX_RAILS; ++number) {
        if (!peer->rails[number].open_due) {
            continue;
        }
        peer->rails[number].open_due = 0;
        if (peer->state == UCT_MPATH_PEER_READY && peer->rails[number].state == UCT_MPATH_RAIL_CLOSED &&
            now_ns - peer->rails[number].closed_ns >= UCT_MPATH_BACKOFF_FIRST_NS &&
            uct_mpath_peer_rail_open(peer, number) == UCS_OK) {
            uct_mpath_peer_rail_up(peer, number);
        }
    }
}

/* A relay may have lost the probe, or the answer. Or it does something else: so ever more seldom. */
static void probe(uct_mpath_peer_t *peer, unsigned number, uint64_t now_ns)
{
    uct_mpath_peer_rail_t *rail = &peer->rails[number];

    if (rail->state == UCT_MPATH_RAIL_OPENING && rail->relayed && !rail->probe_due &&
        now_ns - rail->probed_ns >= rail->patience_ns) {
        rail->probe_due   = 1;
        rail->patience_ns = rail->patience_ns * 2 < BACKOFF_LAST_NS ? rail->patience_ns * 2 : BACKOFF_LAST_NS;
    }
    if (rail->probe_due) {
        rail->probed_ns = now_ns;
        uct_mpath_probe_send(peer, number);
    }
}

/* Destroys what is broken, moves its packets to the others, opens again what may be. */
static void peer_rails_progress(uct_mpath_peer_t *peer, uint64_t now_ns)
{
    unsigned number;
    int broken = 0;

    for (number = 0; number < UCT_MPATH_MAX_RAILS; ++number) {
        if (peer->rails[number].state == UCT_MPATH_RAIL_BROKEN) {
            bury(peer, number, now_ns);
            broken = 1;
        }
    }
    uct_mpath_packets_let_go(peer);
    if (peer->state == UCT_MPATH_PEER_FAILED) {
        return;
    }
    open_due(peer, now_ns);
    if (broken && peer->open_mask == 0 && peer->last_try_ns == 0) {
        peer->last_try_ns = now_ns + LAST_TRY_NS;
    }
    if (peer->last_try_ns != 0 && peer->open_mask != 0) {
        peer->last_try_ns = 0;
    } else if (peer->last_try_ns != 0 && now_ns >= peer->last_try_ns) {
        peer->last_try_ns = 0;
        try_another(peer);
        if (peer->open_mask == 0) {
            uct_mpath_peer_fail(peer, UCS_ERR_ENDPOINT_TIMEOUT, "no rail to it is left");
            return;
        }
    }
    for (number = 0; peer->state == UCT_MPATH_PEER_READY && number < UCT_MPATH_MAX_RAILS; ++number) {
        if (peer->open_mask & UCS_BIT(number)) {
            probe(peer, number, now_ns);
        } else if (peer->opened && peer->rails[number].known && peer->rails[number].state == UCT_MPATH_RAIL_CLOSED &&
                   now_ns >= peer->rails[number].retry_ns) {
            if (uct_mpath_peer_rail_open(peer, number) != UCS_OK) {
                peer->rails[number].retry_ns = now_ns + BACKOFF_LAST_NS;
            }
        }
    }
}

#define ACK_BYTES (128 * 1024)
#define ACK_PACKETS 64 /* each acknowledgement is a message of its own */

static int newer_generation(uint8_t generation, uint8_t than)
{
    return (int8_t)(generation - than) > 0 || than == 0;
}

/* Something came over a rail, so it works: the answer takes it too, and not one that may be dead without knowing it. */
static void note_arrival(uct_mpath_peer_t *peer, unsigned rail)
{
    peer->last_rail = (uint8_t)rail;
    if (peer->rails[rail].state == UCT_MPATH_RAIL_CLOSED && peer->rails[rail].known &&
        peer->state == UCT_MPATH_PEER_READY) {
        uct_mpath_peer_rail_open_soon(peer, rail);
    }
}

static void ack_note(uct_mpath_peer_t *peer, unsigned rail, const uct_mpath_packet_header_t *header, size_t bytes)
{
    uct_mpath_peer_rail_t *peer_rail = &peer->rails[rail];

    if (header->generation != peer_rail->peer_generation) {
        if (!newer_generation(header->generation, peer_rail->peer_generation)) {
            return;
        }
        peer_rail->peer_generation  = header->generation;
        peer_rail->received_packets = 0;
    }
    /* Relays may lose messages: what comes behind a gap arrives, but does not count. */
    peer_rail->received_packets += header->rail_packet == peer_rail->received_packets;
    ++peer->unacked_packets;
    peer->unacked_bytes += bytes;
    note_arrival(peer, rail);
    peer->ack_soon |= (header->flags & UCT_MPATH_ACK_SOON) != 0;
    if (peer->unacked_bytes >= ACK_BYTES || peer->unacked_packets >= ACK_PACKETS ||
        peer->unacked_packets >= peer->iface->window / 4) {
        peer->ack_due = 1;
    }
    uct_mpath_peer_set_busy(peer);
}

/* Packets that are acknowledged on a rail, oldest first. Completions may send more meanwhile. */
static void take_acknowledged(uct_mpath_peer_t *peer, unsigned rail, uint32_t count, uint64_t now_ns)
{
    uct_mpath_peer_rail_t *peer_rail = &peer->rails[rail];
    uct_mpath_packet_t *packet;
    int moved = 0;

    for (; count > 0 && !ucs_list_is_empty(&peer_rail->inflight); --count) {
        packet = ucs_list_extract_head(&peer_rail->inflight, uct_mpath_packet_t, list);
        ++peer_rail->acked_packets;
        uct_mpath_load_delivered(peer, rail, packet->data_bytes + packet->iov_bytes, now_ns);
        moved |= !uct_mpath_packet_waits(packet) && mpath_tx_window_done(&peer->tx, packet->psn);
        uct_mpath_packet_done(packet, UCS_OK);
    }
    if (moved) {
        uct_mpath_peer_check_flushes(peer);
    }
}

/* The peer is alive and says nothing new about a rail that has packets under way. */
static void note_stall(uct_mpath_peer_t *peer, unsigned rail, uint64_t now_ns)
{
    uct_mpath_peer_rail_t *peer_rail = &peer->rails[rail];

    if (peer_rail->stalled_since_ns == 0) {
        peer_rail->stalled_since_ns = now_ns;
    } else if (now_ns - peer_rail->stalled_since_ns > peer->iface->stall_ns && (peer->up_mask & ~UCS_BIT(rail)) != 0) {
        ucs_diag("mpath: rail %s carried nothing for %.1f s while its peer answered over others; its packets take them",
                 peer->iface->lanes[rail].name, (double)(now_ns - peer_rail->stalled_since_ns) / MPATH_NS_PER_S);
        if (peer_rail->relayed) { /* a relay may have lost them; nothing is spoilt by opening it anew */
            uct_mpath_peer_rail_broken(peer, rail);
        } else {
            peer_rail_suspend(peer, rail);
        }
    }
}

/* Of a message that is whole, as the next one. */
static void ack_received(uct_mpath_peer_t *peer, const uct_mpath_ack_t *message)
{
    uint32_t advance[UCT_MPATH_MAX_RAILS] = {0};
    uint64_t now_ns                       = mpath_time_ns();
    unsigned i, rail;

    peer->progress_ns = now_ns;
    for (i = 0; i < message->count; ++i) {
        rail = message->entries[i].rail;
        if (message->entries[i].generation != peer->rails[rail].generation) {
            continue;
        }
        if (peer->rails[rail].state == UCT_MPATH_RAIL_OPENING) {
            uct_mpath_peer_rail_up(peer, rail);
        }
        if (peer->rails[rail].state == UCT_MPATH_RAIL_UP || peer->rails[rail].state == UCT_MPATH_RAIL_SUSPENDED) {
            advance[rail] = message->entries[i].packets - peer->rails[rail].acked_packets;
            /* An older acknowledgement that was overtaken on another rail. */
            advance[rail] = (int32_t)advance[rail] > 0 ? advance[rail] : 0;
        }
    }
    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        if (advance[rail] > 0 && peer->rails[rail].state == UCT_MPATH_RAIL_SUSPENDED) {
            peer_rail_moves(peer, rail, advance[rail]);
        } else if (advance[rail] > 0) {
            peer->rails[rail].stalled_since_ns = 0;
            take_acknowledged(peer, rail, advance[rail], now_ns);
        } else if (peer->rails[rail].state == UCT_MPATH_RAIL_UP && !ucs_list_is_empty(&peer->rails[rail].inflight)) {
            note_stall(peer, rail, now_ns);
        }
    }
    uct_mpath_peer_set_busy(peer);
}

static void probe_received(uct_mpath_peer_t *peer, unsigned rail, const uct_mpath_probe_t *probe)
{
    uct_mpath_peer_rail_t *peer_rail = &peer->rails[rail];

    /* It may have been opened any number of times without success since the last one that came. */
    if (probe->rail == rail && probe->generation != peer_rail->peer_generation) {
        peer_rail->peer_generation  = probe->generation;
        peer_rail->received_packets = 0;
    }
    note_arrival(peer, rail);
    peer->ack_due = 1;
    uct_mpath_peer_set_busy(peer);
}

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
static void hello_send(uct_mpath_peer_t *peer, uint64_t now_ns)
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

static void hello_received(uct_mpath_iface_t *iface, unsigned rail, const void *data, size_t length)
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

/* In one round of progress: what the other side wants is asked for, too, before the rails are full. */
#define REPLIES_AT_ONCE 8

static mpath_regions_t *regions_of(const uct_mpath_peer_t *peer)
{
    return &ucs_derived_of(peer->iface->super.md, uct_mpath_md_t)->regions;
}

/* As where a network adapter finds no key: the other side is told, and ends the connection. */
static void refuse(uct_mpath_peer_t *peer, const char *what, const uct_mpath_place_t *place, size_t bytes)
{
    if (!peer->refusing) {
        ucs_error("mpath: a peer %s %zu bytes at 0x%lx, where no memory is registered for it; its connection ends",
                  what, bytes, (unsigned long)place->address);
    }
    peer->refusing = 1;
    uct_mpath_peer_set_busy(peer);
}

static void refusal_send(uct_mpath_peer_t *peer)
{
    if (uct_mpath_control_send(peer, UCT_MPATH_ID_REFUSED, &peer->link, sizeof(peer->link)) == UCS_OK) {
        peer->refusing = 2;
    }
}

/* Data begin with what follows the packet's header. */
static void put_serve(uct_mpath_peer_t *peer, const char *data, size_t length)
{
    mpath_regions_t *regions = regions_of(peer);
    uct_mpath_place_t place;

    memcpy(&place, data, sizeof(place));
    data += sizeof(place);
    length -= sizeof(place);
    if (!mpath_regions_enter(regions, place.region, place.address, length)) {
        refuse(peer, "writes", &place, length);
        return;
    }
    memcpy((void *)(uintptr_t)place.address, data, length);
    mpath_regions_leave(regions);
}

/* The peer has no more of them under way than packets. */
static void get_serve(uct_mpath_peer_t *peer, const void *data)
{
    uct_mpath_reply_t *reply;

    if (peer->num_replies >= peer->tx.max) {
        ucs_error("mpath: a peer has more than %u remote reads under way; its connection ends", peer->tx.max);
        uct_mpath_peer_fail(peer, UCS_ERR_IO_ERROR, "more remote reads than may be under way");
        return;
    }
    reply = malloc(sizeof(*reply));
    if (reply == NULL) {
        uct_mpath_peer_fail(peer, UCS_ERR_NO_MEMORY, "no memory for a remote read");
        return;
    }
    memcpy(&reply->get, data, sizeof(reply->get));
    ucs_list_add_tail(&peer->replies, &reply->list);
    ++peer->num_replies;
    uct_mpath_peer_set_busy(peer);
}

/* Gets of one segment at most, which was looked at when they came (message.h), so that a reply is one packet. */
static ucs_status_t send_reply(uct_mpath_peer_t *peer, const uct_mpath_get_t *get)
{
    size_t bytes               = UCT_MPATH_REPLY_HEAD + get->length_bytes;
    mpath_regions_t *regions   = regions_of(peer);
    uct_mpath_packet_t *packet = uct_mpath_packet_get(peer->iface, bytes > UCT_MPATH_MAX_HEADER);
    uint64_t id                = get->id;
    ucs_status_t status;

    if (packet == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }
    packet->peer                             = peer;
    uct_mpath_packet_header(packet)->kind_am = UCT_MPATH_GET_REPLY << 5;
    uct_mpath_packet_header(packet)->flags   = bytes > UCT_MPATH_MAX_HEADER ? UCT_MPATH_ACK_SOON : 0;
    memcpy(packet->data + sizeof(uct_mpath_packet_header_t), &id, sizeof(id));
    if (!mpath_regions_enter(regions, get->place.region, get->place.address, get->length_bytes)) {
        uct_mpath_packet_put(packet);
        refuse(peer, "reads", &get->place, get->length_bytes);
        return UCS_OK;
    }
    memcpy(packet->data + UCT_MPATH_REPLY_HEAD, (const void *)(uintptr_t)get->place.address, get->length_bytes);
    mpath_regions_leave(regions);
    packet->data_bytes = (uint32_t)bytes;
    status             = uct_mpath_packet_send(peer, packet);
    if (status != UCS_OK) {
        uct_mpath_packet_put(packet);
    }
    return status;
}

/* Answers some of the peer's gets. */
static void replies_send(uct_mpath_peer_t *peer)
{
    uct_mpath_reply_t *reply;
    int left;

    for (left = REPLIES_AT_ONCE; left > 0 && !ucs_list_is_empty(&peer->replies); --left) {
        reply = ucs_list_head(&peer->replies, uct_mpath_reply_t, list);
        if (send_reply(peer, &reply->get) != UCS_OK) {
            return;
        }
        ucs_list_del(&reply->list);
        --peer->num_replies;
        free(reply);
    }
}

/* A packet that came early: all of it when it has to wait for its turn. */
typedef struct early {
    size_t length;
    char data[];
} early_t;

/* Stands for an early packet that was dealt with at once. */
static early_t dealt_with;

static void drop_early(void *entry, void *arg)
{
    (void)arg;
    if (entry != &dealt_with) {
        free(entry);
    }
}

static void scatter(const uct_mpath_get_op_t *get, const char *data, size_t length)
{
    size_t i, part;

    if (get->unpack != NULL) {
        get->unpack(get->unpack_arg, data, length);
        return;
    }
    for (i = 0; i < get->num_iov && length > 0; ++i) {
        part = uct_mpath_iov_bytes(&get->iov[i]);
        part = part < length ? part : length;
        memcpy(get->iov[i].buffer, data, part);
        data += part;
        length -= part;
    }
}

static void take_reply(uct_mpath_peer_t *peer, const char *data, size_t length)
{
    uct_mpath_get_op_t *get;
    uint64_t id;

    memcpy(&id, data, sizeof(id));
    length -= sizeof(id);
    ucs_list_for_each(get, &peer->gets, list)
    {
        if (get->id == id) {
            break;
        }
    }
    if (&get->list == &peer->gets) {
        return;
    }
    if (length != get->bytes) {
        ucs_error("mpath: a peer answers a remote read of %zu bytes with %zu; its connection ends", get->bytes, length);
        uct_mpath_peer_fail(peer, UCS_ERR_IO_ERROR, "a reply of another length than was asked for");
        return;
    }
    ucs_list_del(&get->list);
    --peer->num_gets;
    if (get->ep != NULL) {
        scatter(get, data + sizeof(id), length);
    }
    if (get->user != NULL) {
        uct_invoke_completion(get->user, UCS_OK);
    }
    free(get);
    uct_mpath_peer_check_flushes(peer);
}

static void deliver(uct_mpath_peer_t *peer, char *data, size_t length)
{
    const uct_mpath_packet_header_t *header = (const uct_mpath_packet_header_t *)data;

    data += sizeof(*header);
    length -= sizeof(*header);
    switch (header->kind_am >> 5) {
    case UCT_MPATH_AM:
        uct_iface_invoke_am(&peer->iface->super, header->kind_am & 31, data, (unsigned)length, 0);
        break;
    case UCT_MPATH_PUT:
        put_serve(peer, data, length);
        break;
    case UCT_MPATH_GET:
        get_serve(peer, data);
        break;
    case UCT_MPATH_GET_REPLY:
        take_reply(peer, data, length);
        break;
    }
}

static void deliver_in_order(uct_mpath_peer_t *peer, char *data, size_t length)
{
    early_t *early;

    deliver(peer, data, length);
    while ((early = mpath_rx_window_step(&peer->rx)) != NULL) {
        if (early != &dealt_with) {
            deliver(peer, early->data, early->length);
            free(early);
        }
    }
}

static void keep(uct_mpath_peer_t *peer, uint32_t psn, const char *data, size_t length)
{
    early_t *early = malloc(sizeof(*early) + length);

    if (early == NULL || mpath_rx_window_keep(&peer->rx, psn, early) != MPATH_OK) {
        free(early);
        uct_mpath_peer_fail(peer, UCS_ERR_NO_MEMORY, "no memory for a message that came early");
        return;
    }
    early->length = length;
    memcpy(early->data, data, length);
}

static void take_early(uct_mpath_peer_t *peer, char *data, size_t length)
{
    const uct_mpath_packet_header_t *header = (const uct_mpath_packet_header_t *)data;

    if (header->kind_am >> 5 == UCT_MPATH_AM || (header->flags & UCT_MPATH_ORDERED)) {
        keep(peer, header->psn, data, length);
    } else if (mpath_rx_window_keep(&peer->rx, header->psn, &dealt_with) != MPATH_OK) {
        uct_mpath_peer_fail(peer, UCS_ERR_NO_MEMORY, "no memory for the window of packets");
    } else {
        deliver(peer, data, length);
    }
}

ucs_status_t uct_mpath_packet_received(void *arg, void *data, size_t length, unsigned flags)
{
    const uct_mpath_packet_header_t *header = data;
    uct_mpath_lane_t *lane                  = arg;
    uct_mpath_peer_t *peer;

    (void)flags;
    uct_mpath_count(MPATH_UCX_RECEIVED_PACKETS, 1);
    uct_mpath_count(MPATH_UCX_RECEIVED_BYTES, length);
    ++lane->received_packets;
    lane->received_bytes += length;
    peer = uct_mpath_peer_of_message(lane, UCT_MPATH_ID_PACKET, data, length);
    if (peer == NULL || header->rail != lane->number) {
        return UCS_OK;
    }
    ack_note(peer, lane->number, header, length);
    switch (mpath_rx_window_classify(&peer->rx, header->psn)) {
    case MPATH_RX_IN_ORDER:
        deliver_in_order(peer, data, length);
        break;
    case MPATH_RX_EARLY:
        take_early(peer, data, length);
        break;
    case MPATH_RX_DUPLICATE:
        break;
    case MPATH_RX_OUTSIDE:
        uct_mpath_peer_fail(peer, UCS_ERR_IO_ERROR, "a packet far ahead of what it may be");
        break;
    }
    return UCS_OK;
}

ucs_status_t uct_mpath_ack_message(void *arg, void *data, size_t length, unsigned flags)
{
    uct_mpath_peer_t *peer = uct_mpath_peer_of_message(arg, UCT_MPATH_ID_ACK, data, length);

    (void)flags;
    if (peer != NULL) {
        ack_received(peer, data);
    }
    return UCS_OK;
}

ucs_status_t uct_mpath_probe_message(void *arg, void *data, size_t length, unsigned flags)
{
    const uct_mpath_probe_message_t *message = data;
    const uct_mpath_lane_t *lane             = arg;
    uct_mpath_peer_t *peer                   = uct_mpath_peer_of_message(lane, UCT_MPATH_ID_PROBE, data, length);

    (void)flags;
    if (peer != NULL) {
        probe_received(peer, lane->number, &message->probe);
    }
    return UCS_OK;
}

ucs_status_t uct_mpath_refused_message(void *arg, void *data, size_t length, unsigned flags)
{
    uct_mpath_peer_t *peer = uct_mpath_peer_of_message(arg, UCT_MPATH_ID_REFUSED, data, length);

    (void)flags;
    if (peer != NULL) {
        uct_mpath_peer_fail(peer, UCS_ERR_IO_ERROR, "it refused an access to memory that is not registered there");
    }
    return UCS_OK;
}

ucs_status_t uct_mpath_hello_message(void *arg, void *data, size_t length, unsigned flags)
{
    const uct_mpath_lane_t *lane = arg;

    (void)flags;
    hello_received(lane->iface, lane->number, data, length);
    return UCS_OK;
}

#define ACK_DELAY_NS MPATH_NS_PER_MS
#define PROBE_NS (100 * MPATH_NS_PER_MS)
#define GREETING_LAST_NS (64 * MPATH_NS_PER_S)

static void end_gets(uct_mpath_peer_t *peer, ucs_status_t status)
{
    uct_mpath_get_op_t *get;

    while (!ucs_list_is_empty(&peer->gets)) {
        get = ucs_list_extract_head(&peer->gets, uct_mpath_get_op_t, list);
        if (get->user != NULL) {
            uct_invoke_completion(get->user, status);
        }
        free(get);
    }
}

static void end_flushes(uct_mpath_peer_t *peer, ucs_status_t status)
{
    uct_mpath_flush_t *flush;

    while (!ucs_list_is_empty(&peer->flushes)) {
        flush = ucs_list_extract_head(&peer->flushes, uct_mpath_flush_t, list);
        if (flush->user != NULL) {
            uct_invoke_completion(flush->user, status);
        }
        free(flush);
    }
}

static void end_operations(uct_mpath_peer_t *peer, ucs_status_t status)
{
    uct_mpath_reply_t *reply;

    uct_mpath_rma_links_close(peer);
    while (!ucs_list_is_empty(&peer->lost)) {
        uct_mpath_packet_done(ucs_list_extract_head(&peer->lost, uct_mpath_packet_t, list), status);
    }
    end_gets(peer, status);
    while (!ucs_list_is_empty(&peer->replies)) {
        reply = ucs_list_extract_head(&peer->replies, uct_mpath_reply_t, list);
        free(reply);
    }
    peer->num_replies = 0;
    uct_mpath_rma_end(peer, status);
    peer->cleaned = 1;
    end_flushes(peer, status);
}

/* The user may destroy any endpoint in the handler, so the search starts anew each time. */
static void report(uct_mpath_peer_t *peer)
{
    uct_mpath_ep_t *ep;

again:
    ucs_list_for_each(ep, &peer->eps, list)
    {
        if (!ep->reported) {
            ep->reported = 1;
            uct_iface_handle_ep_err(&peer->iface->super.super, &ep->super.super, peer->failure);
            goto again;
        }
    }
}

static void clean_up(uct_mpath_peer_t *peer, uint64_t now_ns)
{
    if (!peer->cleaned) {
        peer_rails_progress(peer, now_ns);
        end_operations(peer, peer->failure);
    }
    report(peer);
}

/* 0 when some are left. */
static int resend_lost(uct_mpath_peer_t *peer)
{
    uct_mpath_packet_t *packet;

    while (!ucs_list_is_empty(&peer->lost)) {
        packet = ucs_list_head(&peer->lost, uct_mpath_packet_t, list);
        if (packet->abandoned) {
            uct_mpath_peer_fail(peer, UCS_ERR_ENDPOINT_TIMEOUT, "a rail failed with bytes that nobody has any more");
            return 0;
        }
        if (packet->reading) {
            return 0;
        }
        ucs_list_del(&packet->list);
        if (uct_mpath_packet_resend(peer, packet) != UCS_OK) {
            ucs_list_add_head(&peer->lost, &packet->list);
            return 0;
        }
        ++peer->iface->resent_packets;
        uct_mpath_count(MPATH_UCX_RESENT_PACKETS, 1);
    }
    return 1;
}

typedef struct pending_priv {
    uct_pending_req_priv_queue_t super;
    uct_ep_h ep;
} pending_priv_t;

static void dispatch_pending(uct_mpath_peer_t *peer)
{
    pending_priv_t *priv;

    peer->dispatching = 1;
    uct_pending_queue_dispatch(priv, &peer->pending, peer->state == UCT_MPATH_PEER_READY);
    peer->dispatching = 0;
}

/* What the peer asked for and what the user wants to send take turns: neither keeps the other waiting. */
static void send_waiting(uct_mpath_peer_t *peer)
{
    peer->replies_first = !peer->replies_first;
    if (peer->replies_first) {
        replies_send(peer);
    }
    dispatch_pending(peer);
    if (!peer->replies_first) {
        replies_send(peer);
    }
}

static void acknowledge(uct_mpath_peer_t *peer, uint64_t now_ns)
{
    if (peer->unacked_packets == 0 && !peer->ack_due) {
        return;
    }
    if (peer->unacked_since_ns == 0) {
        peer->unacked_since_ns = now_ns;
    }
    if (peer->ack_due || (peer->ack_soon && peer->unacked_packets == peer->unacked_seen) ||
        now_ns - peer->unacked_since_ns >= ACK_DELAY_NS) {
        uct_mpath_ack_send(peer);
    }
    peer->unacked_seen = peer->unacked_packets;
}

static void ask_for_ack(uct_mpath_peer_t *peer, uint64_t now_ns)
{
    if (mpath_tx_window_outstanding(&peer->tx) > 0 && now_ns - peer->progress_ns >= PROBE_NS && peer->up_mask != 0) {
        peer->progress_ns = now_ns;
        uct_mpath_probe_send(peer, (unsigned)__builtin_ctzll(peer->up_mask));
    }
}

static int has_work(uct_mpath_peer_t *peer)
{
    return peer->hello_due || peer->refusing == 1 || peer->last_try_ns != 0 || peer->state == UCT_MPATH_PEER_GREETING ||
           peer->unacked_packets > 0 || peer->ack_due || mpath_tx_window_outstanding(&peer->tx) > 0 ||
           !ucs_list_is_empty(&peer->rma) || !ucs_list_is_empty(&peer->gets) || !ucs_list_is_empty(&peer->replies) ||
           !ucs_queue_is_empty(&peer->pending) || (peer->open_mask & ~peer->up_mask) != 0;
}

/* A relay may have lost the greeting, or the answer. Or the peer does something else: so ever more seldom. */
static void greet_again(uct_mpath_peer_t *peer, uint64_t now_ns)
{
    if (peer->state == UCT_MPATH_PEER_GREETING && !peer->hello_due && (peer->open_mask & peer->relayed_mask) != 0 &&
        now_ns - peer->greeted_ns >= peer->patience_ns) {
        peer->hello_due   = 1;
        peer->patience_ns = peer->patience_ns < GREETING_LAST_NS ? 2 * peer->patience_ns : GREETING_LAST_NS;
    }
}

int uct_mpath_peer_progress(uct_mpath_peer_t *peer, uint64_t now_ns)
{
    int links_left = 0;

    peer_rails_progress(peer, now_ns);
    greet_again(peer, now_ns);
    if (peer->hello_due && peer->open_mask != 0) {
        hello_send(peer, now_ns);
    }
    if (peer->state == UCT_MPATH_PEER_READY) {
        acknowledge(peer, now_ns);
        if (peer->refusing == 1) {
            refusal_send(peer);
        }
        links_left = peer->iface->rma_lanes != 0 && uct_mpath_rma_links_progress(peer, now_ns);
        if (resend_lost(peer)) {
            uct_mpath_rma_retry(peer);
            send_waiting(peer);
        }
        ask_for_ack(peer, now_ns);
    }
    if (peer->state == UCT_MPATH_PEER_FAILED) {
        clean_up(peer, now_ns);
        return !peer->cleaned;
    }
    return has_work(peer) || links_left;
}

static void forget_packets(ucs_list_link_t *list, const uct_mpath_ep_t *ep)
{
    uct_mpath_packet_t *packet;

    ucs_list_for_each(packet, list, list)
    {
        if (packet->ep == ep) {
            packet->ep        = NULL;
            packet->user      = NULL;
            packet->abandoned = packet->num_iov > 0;
        }
    }
}

void uct_mpath_peer_forget(uct_mpath_peer_t *peer, uct_mpath_ep_t *ep)
{
    uct_mpath_flush_t *flush, *next;
    uct_mpath_get_op_t *get;
    unsigned rail;

    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        forget_packets(&peer->rails[rail].inflight, ep);
    }
    forget_packets(&peer->lost, ep);
    forget_packets(&peer->held, ep);
    uct_mpath_rma_forget(peer, ep);
    ucs_list_for_each(get, &peer->gets, list)
    {
        if (get->ep == ep) {
            get->ep   = NULL;
            get->user = NULL;
        }
    }
    ucs_list_for_each_safe(flush, next, &peer->flushes, list)
    {
        if (flush->ep == ep) {
            ucs_list_del(&flush->list);
            free(flush);
        }
    }
}

/* One at a time: a completion may send and so change the list. */
static int cancel_one(ucs_list_link_t *list, const uct_mpath_ep_t *ep, int *held)
{
    uct_mpath_packet_t *packet;
    uct_completion_t *user;

    ucs_list_for_each(packet, list, list)
    {
        if (packet->ep != ep || packet->num_iov == 0 || packet->abandoned || packet->done == UCT_MPATH_REPLACED) {
            continue;
        }
        if (packet->reading) {
            *held = 1;
            continue;
        }
        user              = packet->user;
        packet->user      = NULL;
        packet->abandoned = 1;
        if (user != NULL) {
            uct_invoke_completion(user, UCS_ERR_CANCELED);
        }
        return 1;
    }
    return 0;
}

int uct_mpath_peer_cancel(uct_mpath_peer_t *peer, uct_mpath_ep_t *ep)
{
    uct_completion_t *user;
    uct_mpath_get_op_t *get;
    unsigned rail;
    int held = 0;

    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        while (cancel_one(&peer->rails[rail].inflight, ep, &held)) {
        }
    }
    while (cancel_one(&peer->lost, ep, &held)) {
    }
    while (cancel_one(&peer->held, ep, &held)) {
    }
    held |= uct_mpath_rma_cancel(peer, ep);
again:
    ucs_list_for_each(get, &peer->gets, list)
    {
        if (get->ep == ep) {
            user      = get->user;
            get->ep   = NULL;
            get->user = NULL;
            if (user != NULL) {
                uct_invoke_completion(user, UCS_ERR_CANCELED);
                goto again;
            }
        }
    }
    return held;
}

/* The child lets go of them later, or never. */
static void leave_held(uct_mpath_peer_t *peer)
{
    uct_mpath_packet_t *packet;

    while (!ucs_list_is_empty(&peer->held)) {
        packet       = ucs_list_extract_head(&peer->held, uct_mpath_packet_t, list);
        packet->peer = NULL;
        ucs_list_head_init(&packet->list);
    }
}

void uct_mpath_peer_destroy(uct_mpath_peer_t *peer)
{
    uct_mpath_ep_t *ep, *next;
    unsigned rail;

    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        uct_mpath_peer_rail_broken(peer, rail);
    }
    peer->state = UCT_MPATH_PEER_FAILED;
    peer_rails_progress(peer, mpath_time_ns());
    end_operations(peer, UCS_ERR_CANCELED);
    leave_held(peer);
    ucs_list_for_each_safe(ep, next, &peer->eps, list)
    {
        ep->peer = NULL;
        ucs_list_del(&ep->list);
    }
    if (peer->is_busy) {
        ucs_list_del(&peer->busy);
    }
    peer->iface->peers[peer->handle] = NULL;
    mpath_rx_window_release(&peer->rx, drop_early, NULL);
    mpath_tx_window_release(&peer->tx);
    free(peer);
}
