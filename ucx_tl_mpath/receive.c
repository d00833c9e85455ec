/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What arrives: active messages go up in order, early ones wait in a copy; puts and replies to gets go to their places
 * at once. Whatever does not name a living connection is dropped: it is late post of an earlier one.
 */
#include "ucx_tl_mpath/counters.h"
#include "ucx_tl_mpath/message.h"
#include "ucx_tl_mpath/peer.h"

#include <stdlib.h>
#include <string.h>

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

static uct_mpath_peer_t *peer_of_link(const uct_mpath_iface_t *iface, const uct_mpath_link_t *link)
{
    uct_mpath_peer_t *peer = link->handle < iface->num_peers ? iface->peers[link->handle] : NULL;

    return (peer != NULL && peer->nonce == link->nonce && peer->state != UCT_MPATH_PEER_FAILED) ? peer : NULL;
}

uct_mpath_peer_t *uct_mpath_peer_of_message(const uct_mpath_lane_t *lane, uint8_t id, const void *data, size_t length)
{
    uct_mpath_peer_t *peer = length >= sizeof(uct_mpath_link_t) ? peer_of_link(lane->iface, data) : NULL;

    if (peer == NULL || mpath_message_is_whole(id, data, length, lane->iface->segment_bytes)) {
        return peer;
    }
    ucs_error(
        "mpath: rail %s: a message of %zu bytes and kind %u is none of this version of mpath; its connection ends",
        lane->name, length, id);
    uct_mpath_peer_fail(peer, UCS_ERR_IO_ERROR, "a message that is not whole");
    return NULL;
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
        uct_mpath_put_serve(peer, data, length);
        break;
    case UCT_MPATH_GET:
        uct_mpath_get_serve(peer, data);
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
    uct_mpath_peer_t *peer = uct_mpath_peer_of_message(arg, UCT_MPATH_ID_ACK, data, length);

    (void)flags;
    if (peer != NULL) {
        uct_mpath_ack_received(peer, data);
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
        uct_mpath_probe_received(peer, lane->number, &message->probe);
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
    uct_mpath_hello_received(lane->iface, lane->number, data, length);
    return UCS_OK;
}
