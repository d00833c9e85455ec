/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the peer does in this process's memory by messages: puts go to their place, gets are answered as the rails have
 * room. Both only where memory is registered.
 */
#include "ucx_tl_mpath/peer.h"

#include <stdlib.h>
#include <string.h>

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

void uct_mpath_refusal_send(uct_mpath_peer_t *peer)
{
    if (uct_mpath_control_send(peer, UCT_MPATH_ID_REFUSED, &peer->link, sizeof(peer->link)) == UCS_OK) {
        peer->refusing = 2;
    }
}

void uct_mpath_put_serve(uct_mpath_peer_t *peer, const char *data, size_t length)
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
void uct_mpath_get_serve(uct_mpath_peer_t *peer, const void *data)
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
        --peer->num_replies;
        free(reply);
    }
}
