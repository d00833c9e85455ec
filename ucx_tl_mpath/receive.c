/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What arrives: active messages go up in order, early ones wait in a copy; puts and replies to gets go to their places
 * at once. Whatever does not name a living connection is dropped: it is late post of an earlier one.
 */
#include "ucx_tl_mpath/counters.h"
#include "ucx_tl_mpath/peer.h"

#include <stdlib.h>
#include <string.h>

/* In one round of progress: what the other side wants is asked for, too, before the rails are full. */
#define REPLIES_AT_ONCE 8

/* A packet that came early: all of it when it has to wait for its turn. */
typedef struct early {
    size_t length;
    char data[];
} early_t;

/* Stands for an early packet that was dealt with at once. */
static early_t dealt_with;

void uct_mpath_drop_early(void *entry, void *arg)
{
    (void)arg;
    if (entry != &dealt_with) {
        free(entry);
    }
}

uct_mpath_peer_t *uct_mpath_peer_of_link(const uct_mpath_iface_t *iface, const uct_mpath_link_t *link)
{
    uct_mpath_peer_t *peer = link->handle < iface->num_peers ? iface->peers[link->handle] : NULL;

    return (peer != NULL && peer->nonce == link->nonce && peer->state != UCT_MPATH_PEER_FAILED) ? peer : NULL;
}

static void serve_get(uct_mpath_peer_t *peer, const void *data, size_t length)
{
    uct_mpath_reply_t *reply;

    if (length < sizeof(reply->get)) {
        return;
    }
    reply = malloc(sizeof(*reply));
    if (reply == NULL) {
        uct_mpath_peer_fail(peer, UCS_ERR_NO_MEMORY, "no memory for a remote read");
        return;
    }
    memcpy(&reply->get, data, sizeof(reply->get));
    ucs_list_add_tail(&peer->replies, &reply->list);
    uct_mpath_peer_set_busy(peer);
}

/* Gets of one segment at most, so that a reply is one packet. */
static ucs_status_t send_reply(uct_mpath_peer_t *peer, const uct_mpath_get_t *get)
{
    size_t head_bytes          = sizeof(uct_mpath_packet_header_t) + sizeof(uint64_t);
    size_t bytes               = head_bytes + get->length_bytes;
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
    memcpy(packet->data + head_bytes, (const void *)(uintptr_t)get->address, get->length_bytes);
    packet->data_bytes = (uint32_t)bytes;
    status             = uct_mpath_packet_send(peer, packet);
    if (status != UCS_OK) {
        uct_mpath_packet_put(packet);
    }
    return status;
}

void uct_mpath_replies_send(uct_mpath_peer_t *peer)
{
    uct_mpath_reply_t *reply;
    int left;

    for (left = REPLIES_AT_ONCE; left > 0 && !ucs_list_is_empty(&peer->replies); --left) {
        reply = ucs_list_head(&peer->replies, uct_mpath_reply_t, list);
        if (send_reply(peer, &reply->get) != UCS_OK) {
            return;
        }
        ucs_list_del(&reply->list);
        free(reply);
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

    if (length < sizeof(id)) {
        return;
    }
    memcpy(&id, data, sizeof(id));
    ucs_list_for_each(get, &peer->gets, list)
    {
        if (get->id == id) {
            break;
        }
    }
    if (&get->list == &peer->gets) {
        return;
    }
    ucs_list_del(&get->list);
    --peer->num_gets;
    if (get->ep != NULL) {
        scatter(get, data + sizeof(id), length - sizeof(id));
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
    uint64_t address;

    data += sizeof(*header);
    length -= sizeof(*header);
    switch (header->kind_am >> 5) {
    case UCT_MPATH_AM:
        uct_iface_invoke_am(&peer->iface->super, header->kind_am & 31, data, (unsigned)length, 0);
        break;
    case UCT_MPATH_PUT:
        if (length >= sizeof(address)) {
            memcpy(&address, data, sizeof(address));
            memcpy((void *)(uintptr_t)address, data + sizeof(address), length - sizeof(address));
        }
        break;
    case UCT_MPATH_GET:
        serve_get(peer, data, length);
        break;
    case UCT_MPATH_GET_REPLY:
        take_reply(peer, data, length);
        break;
    default:
        uct_mpath_peer_fail(peer, UCS_ERR_IO_ERROR, "a packet of a kind that does not exist");
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
    if (length < sizeof(*header) || header->rail != lane->number ||
        (peer = uct_mpath_peer_of_link(lane->iface, &header->link)) == NULL) {
        return UCS_OK;
    }
    uct_mpath_ack_note(peer, lane->number, header, length);
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
    const uct_mpath_lane_t *lane = arg;
    uct_mpath_peer_t *peer;

    (void)flags;
    if (length >= sizeof(uct_mpath_link_t) && (peer = uct_mpath_peer_of_link(lane->iface, data)) != NULL) {
        uct_mpath_ack_received(peer, data, length);
    }
    return UCS_OK;
}

ucs_status_t uct_mpath_probe_message(void *arg, void *data, size_t length, unsigned flags)
{
    const uct_mpath_lane_t *lane = arg;
    uct_mpath_peer_t *peer;

    (void)flags;
    if (length >= sizeof(uct_mpath_link_t) && (peer = uct_mpath_peer_of_link(lane->iface, data)) != NULL) {
        uct_mpath_probe_received(peer, lane->number, data, length);
    }
    return UCS_OK;
}

ucs_status_t uct_mpath_hello_message(void *arg, void *data, size_t length, unsigned flags)
{
    const uct_mpath_lane_t *lane = arg;

    (void)flags;
    uct_mpath_hello_received(lane->iface, lane->number, data, length);
    return UCS_OK;
}
