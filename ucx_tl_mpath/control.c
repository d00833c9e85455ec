/* SPDX-License-Identifier: BSD-3-Clause */
/* Control messages: acknowledgements, probes, and what others have to say in a few bytes. */
#include "ucx_tl_mpath/relay.h"

#include <string.h>

typedef struct control_pack {
    const void *message;
    size_t bytes;
} control_pack_t;

static size_t pack_control(void *destination, void *arg)
{
    const control_pack_t *pack = arg;

    memcpy(destination, pack->message, pack->bytes);
    return pack->bytes;
}

/* Some transports take very short messages only. */
static ucs_status_t post_control(uct_mpath_peer_t *peer, unsigned rail, uint8_t id, const void *message, size_t bytes)
{
    control_pack_t pack = {.message = message, .bytes = bytes};
    uint64_t first; /* bytes, which UCT takes apart from the others */
    ssize_t packed;

    if (peer->rails[rail].relayed) {
        return uct_mpath_route_send(peer, rail, id, pack_control, &pack);
    }
    if (bytes > peer->iface->lanes[rail].attr.cap.am.max_short) {
        packed = uct_ep_am_bcopy(peer->rails[rail].ep, id, pack_control, &pack, 0);
        return packed >= 0 ? UCS_OK : (ucs_status_t)packed;
    }
    memcpy(&first, message, sizeof(first));
    return uct_ep_am_short(peer->rails[rail].ep, id, first, (const char *)message + sizeof(first),
                           (unsigned)(bytes - sizeof(first)));
}

/* Control messages take the rail over which something came last, else the one with the least in front of them. */
ucs_status_t uct_mpath_control_send(uct_mpath_peer_t *peer, uint8_t id, const void *message, size_t bytes)
{
    uint64_t usable = peer->up_mask != 0 ? peer->up_mask : peer->open_mask;
    int rail        = peer->last_rail;
    ucs_status_t status;

    if (!(usable & UCS_BIT(rail))) {
        rail = mpath_spread_pick(peer->loads, usable, bytes, -1);
    }
    for (; rail >= 0; rail = mpath_spread_pick(peer->loads, usable, bytes, -1)) {
        status = post_control(peer, (unsigned)rail, id, message, bytes);
        if (status == UCS_OK) {
            return UCS_OK;
        }
        if (status != UCS_ERR_NO_RESOURCE) {
            uct_mpath_peer_rail_broken(peer, (unsigned)rail);
        }
        usable &= ~UCS_BIT(rail);
    }
    return UCS_ERR_NO_RESOURCE;
}

void uct_mpath_ack_send(uct_mpath_peer_t *peer)
{
    struct {
        uct_mpath_ack_t head;
        uct_mpath_ack_entry_t entries[UCT_MPATH_MAX_RAILS];
    } __attribute__((packed)) message = {.head = {.link = peer->link}};
    unsigned rail;

    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        if (peer->rails[rail].peer_generation != 0) {
            message.entries[message.head.count].rail       = (uint8_t)rail;
            message.entries[message.head.count].generation = peer->rails[rail].peer_generation;
            message.entries[message.head.count].packets    = peer->rails[rail].received_packets;
            ++message.head.count;
        }
    }
    if (uct_mpath_control_send(peer, UCT_MPATH_ID_ACK, &message,
                               sizeof(message.head) + message.head.count * sizeof(message.entries[0])) != UCS_OK) {
        peer->ack_due = 1;
        return;
    }
    peer->ack_due          = 0;
    peer->ack_soon         = 0;
    peer->unacked_packets  = 0;
    peer->unacked_seen     = 0;
    peer->unacked_bytes    = 0;
    peer->unacked_since_ns = 0;
}

/* Over the rail itself when that has been opened; else over any. */
void uct_mpath_probe_send(uct_mpath_peer_t *peer, unsigned rail)
{
    uct_mpath_peer_rail_t *peer_rail  = &peer->rails[rail];
    uct_mpath_probe_message_t message = {.link  = peer->link,
                                         .probe = {.rail = (uint8_t)rail, .generation = peer_rail->generation}};
    ucs_status_t status;

    if (!peer_rail->probe_due) {
        uct_mpath_control_send(peer, UCT_MPATH_ID_PROBE, &message, sizeof(message));
        return;
    }
    status = post_control(peer, rail, UCT_MPATH_ID_PROBE, &message, sizeof(message));
    if (status == UCS_OK) {
        peer_rail->probe_due = 0;
    } else if (status != UCS_ERR_NO_RESOURCE) {
        uct_mpath_peer_rail_broken(peer, rail);
    }
}
