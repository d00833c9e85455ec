/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets: where their memory comes from, which rail they take, and what happens when they are done. */
#include "ucx_tl_mpath/counters.h"
#include "ucx_tl_mpath/ep.h"
#include "ucx_tl_mpath/relay.h"

#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES 2048 /* such packets find room in any queue */

static void child_done(uct_completion_t *child);

uct_mpath_packet_t *uct_mpath_packet_get(uct_mpath_iface_t *iface, int large)
{
    uct_mpath_packet_t **free_list = large ? &iface->free_large : &iface->free_small;
    uct_mpath_packet_t *packet     = *free_list;

    if (packet != NULL) {
        *free_list = packet->next_free;
    } else {
        packet = malloc(sizeof(*packet) + (large ? iface->segment_bytes : UCT_MPATH_MAX_HEADER));
        if (packet == NULL) {
            return NULL;
        }
    }
    packet->large        = (uint8_t)large;
    packet->ep           = NULL;
    packet->user         = NULL;
    packet->data_bytes   = 0;
    packet->iov_bytes    = 0;
    packet->num_iov      = 0;
    packet->reading      = 0;
    packet->done         = UCT_MPATH_UNDER_WAY;
    packet->abandoned    = 0;
    packet->child.func   = child_done;
    packet->child.count  = 0;
    packet->child.status = UCS_OK;
    return packet;
}

void uct_mpath_packet_put(uct_mpath_packet_t *packet)
{
    uct_mpath_iface_t *iface       = packet->peer->iface;
    uct_mpath_packet_t **free_list = packet->large ? &iface->free_large : &iface->free_small;

    packet->next_free = *free_list;
    *free_list        = packet;
}

static void free_all(uct_mpath_packet_t *packet)
{
    uct_mpath_packet_t *next;

    for (; packet != NULL; packet = next) {
        next = packet->next_free;
        free(packet);
    }
}

void uct_mpath_packets_free(uct_mpath_iface_t *iface)
{
    free_all(iface->free_small);
    free_all(iface->free_large);
    iface->free_small = NULL;
    iface->free_large = NULL;
}

/* Both the peer and the child have let go of the packet. */
static void finish(uct_mpath_packet_t *packet)
{
    uct_completion_t *user = packet->user;
    ucs_status_t status    = packet->child.status;

    if (packet->peer != NULL) {
        uct_mpath_packet_put(packet);
    } else {
        free(packet);
    }
    if (user != NULL) {
        uct_invoke_completion(user, status);
    }
}

static void let_go(uct_mpath_packet_t *packet)
{
    uct_mpath_peer_t *peer = packet->peer;
    int moved;

    packet->child.status = packet->done == UCT_MPATH_GIVEN_UP ? UCS_ERR_CANCELED : UCS_OK;
    moved                = packet->done == UCT_MPATH_ACKNOWLEDGED && packet->num_iov > 0 && peer != NULL &&
            mpath_tx_window_done(&peer->tx, packet->psn);
    ucs_list_del(&packet->list);
    finish(packet);
    if (moved) {
        uct_mpath_peer_check_flushes(peer);
        uct_mpath_peer_set_busy(peer);
    }
}

/* The child does not read from the packet's memory any more; what became of the bytes only an acknowledgement tells.
 * When it has failed, the packet must not be used for anything else before the next progress: it may tell again. */
static void child_done(uct_completion_t *child)
{
    uct_mpath_packet_t *packet = ucs_container_of(child, uct_mpath_packet_t, child);

    packet->reading = 0;
    child->count    = UCT_MPATH_TOLD;
    if (packet->done == UCT_MPATH_UNDER_WAY) {
        return;
    }
    if (child->status == UCS_OK || packet->peer == NULL) {
        let_go(packet);
    } else {
        uct_mpath_peer_set_busy(packet->peer);
    }
}

void uct_mpath_packets_let_go(uct_mpath_peer_t *peer)
{
    uct_mpath_packet_t *packet;

again:
    ucs_list_for_each(packet, &peer->held, list)
    {
        if (!packet->reading) {
            let_go(packet);
            goto again; /* its user may have changed the list */
        }
    }
}

void uct_mpath_packet_done(uct_mpath_packet_t *packet, ucs_status_t status)
{
    packet->done = status == UCS_OK ? UCT_MPATH_ACKNOWLEDGED : UCT_MPATH_GIVEN_UP;
    if (!packet->reading) {
        packet->child.status = status;
        finish(packet);
    } else {
        ucs_list_add_tail(&packet->peer->held, &packet->list);
    }
}

uct_mpath_packet_t *uct_mpath_packet_replace(uct_mpath_packet_t *packet)
{
    uct_mpath_packet_t *twin = uct_mpath_packet_get(packet->peer->iface, packet->large);

    if (twin == NULL) {
        return NULL;
    }
    twin->peer       = packet->peer;
    twin->ep         = packet->ep;
    twin->user       = packet->user;
    twin->psn        = packet->psn;
    twin->data_bytes = packet->data_bytes;
    twin->iov_bytes  = packet->iov_bytes;
    twin->abandoned  = packet->abandoned;
    twin->num_iov    = packet->num_iov;
    memcpy(twin->iov, packet->iov, sizeof(twin->iov));
    memcpy(twin->data, packet->data, packet->data_bytes);
    packet->user = NULL;
    packet->done = UCT_MPATH_REPLACED;
    return twin;
}

static size_t pack_packet(void *destination, void *arg)
{
    const uct_mpath_packet_t *packet = arg;
    char *to                         = destination;
    unsigned i;

    memcpy(to, packet->data, packet->data_bytes);
    to += packet->data_bytes;
    for (i = 0; i < packet->num_iov; ++i) {
        memcpy(to, packet->iov[i].buffer, uct_mpath_iov_bytes(&packet->iov[i]));
        to += uct_mpath_iov_bytes(&packet->iov[i]);
    }
    return (size_t)(to - (char *)destination);
}

static ucs_status_t post_zcopy(uct_mpath_peer_t *peer, uct_mpath_packet_t *packet, unsigned rail)
{
    uct_iov_t iov[UCT_MPATH_MAX_IOV];
    unsigned header_bytes = packet->data_bytes, num_iov = packet->num_iov, i;
    ucs_status_t status;

    for (i = 0; i < num_iov; ++i) {
        iov[i]      = packet->iov[i];
        iov[i].memh = uct_mpath_child_memh(iov[i].memh, peer->iface->lanes[rail].md_child);
    }
    if (num_iov == 0) {
        header_bytes  = sizeof(uct_mpath_packet_header_t);
        iov[0].buffer = packet->data + header_bytes;
        iov[0].length = packet->data_bytes - header_bytes;
        iov[0].memh   = UCT_MEM_HANDLE_NULL;
        iov[0].stride = 0;
        iov[0].count  = 1;
        num_iov       = 1;
    }
    packet->reading      = 1;
    packet->child.count  = 1;
    packet->child.status = UCS_OK;
    status = uct_ep_am_zcopy(peer->rails[rail].ep, UCT_MPATH_ID_PACKET, packet->data, header_bytes, iov, num_iov, 0,
                             &packet->child);
    if (status == UCS_INPROGRESS) {
        return UCS_OK;
    }
    packet->reading = 0;
    return status;
}

void uct_mpath_load_sent(uct_mpath_peer_t *peer, unsigned rail, uint64_t bytes, uint64_t now_ns)
{
    uct_mpath_lane_t *lane = &peer->iface->lanes[rail];

    mpath_spread_sent(&peer->loads[rail], bytes, now_ns);
    mpath_spread_sent(&lane->load, bytes, now_ns);
    uct_mpath_count(MPATH_UCX_SENT_PACKETS, 1);
    uct_mpath_count(MPATH_UCX_SENT_BYTES, bytes);
    ++lane->sent_packets;
    lane->sent_bytes += bytes;
    peer->period_bytes += bytes;
    peer->iface->sent_bytes += bytes;
}

void uct_mpath_load_delivered(uct_mpath_peer_t *peer, unsigned rail, uint64_t bytes, uint64_t now_ns)
{
    mpath_spread_delivered(&peer->loads[rail], bytes, now_ns);
    mpath_spread_delivered(&peer->iface->lanes[rail].load, bytes, now_ns);
}

void uct_mpath_load_lost(uct_mpath_peer_t *peer, unsigned rail, uint64_t bytes)
{
    uint64_t now_ns = mpath_time_ns();

    mpath_spread_lost(&peer->loads[rail], bytes, now_ns);
    mpath_spread_lost(&peer->iface->lanes[rail].load, bytes, now_ns);
}

/* Hands a packet to a rail. */
static ucs_status_t post(uct_mpath_peer_t *peer, uct_mpath_packet_t *packet, unsigned rail)
{
    uct_mpath_packet_header_t *header = uct_mpath_packet_header(packet);
    uct_mpath_lane_t *lane            = &peer->iface->lanes[rail];
    uct_mpath_peer_rail_t *peer_rail  = &peer->rails[rail];
    ucs_status_t status;
    uint64_t link;
    ssize_t packed;

    header->link        = peer->link;
    header->rail        = (uint8_t)rail;
    header->generation  = peer_rail->generation;
    header->rail_packet = peer_rail->sent_packets;
    if (peer_rail->relayed) {
        status = uct_mpath_route_send(peer, rail, UCT_MPATH_ID_PACKET, pack_packet, packet);
    } else if (packet->num_iov == 0 && packet->data_bytes <= lane->attr.cap.am.max_short) {
        memcpy(&link, packet->data, sizeof(link));
        status = uct_ep_am_short(peer_rail->ep, UCT_MPATH_ID_PACKET, link, packet->data + sizeof(link),
                                 packet->data_bytes - (unsigned)sizeof(link));
    } else if (lane->zcopy) {
        status = post_zcopy(peer, packet, rail);
    } else {
        packed = uct_ep_am_bcopy(peer_rail->ep, UCT_MPATH_ID_PACKET, pack_packet, packet, 0);
        status = packed >= 0 ? UCS_OK : (ucs_status_t)packed;
    }
    if (status != UCS_OK) {
        return status;
    }
    ++peer_rail->sent_packets;
    packet->rail = (uint8_t)rail;
    ucs_list_add_tail(&peer_rail->inflight, &packet->list);
    uct_mpath_load_sent(peer, rail, packet->data_bytes + packet->iov_bytes, mpath_time_ns());
    return UCS_OK;
}

int uct_mpath_rail_pick(uct_mpath_peer_t *peer, uint64_t usable, uint64_t resting, uint64_t bytes, int reference)
{
    int rail = mpath_spread_pick(peer->loads, usable, bytes, reference), trial = -1;

    if (reference < 0 && bytes > SMALL_BYTES) {
        trial = mpath_spread_pick_trial(peer->loads, rail, usable | resting, bytes, mpath_time_ns());
    }
    return trial >= 0 ? trial : rail;
}

/* Relayed rails that rest since they seem much slower than their devices are: that may be wrong. */
static uint64_t doubtful_rails(const uct_mpath_peer_t *peer)
{
    uint64_t rest = peer->up_mask & peer->relayed_mask, doubtful = 0;
    int rail;

    for (; rest != 0; rest &= rest - 1) {
        rail = __builtin_ctzll(rest);
        if (peer->loads[rail].rate_bps < peer->iface->lanes[rail].rate_bps / 2) {
            doubtful |= UCS_BIT(rail);
        }
    }
    return doubtful;
}

ucs_status_t uct_mpath_packet_resend(uct_mpath_peer_t *peer, uct_mpath_packet_t *packet)
{
    uint64_t bytes = packet->data_bytes + packet->iov_bytes, usable = peer->up_mask, resting = 0;
    int reference = -1, rail;
    ucs_status_t status;

    if (peer->iface->relays_idle && (usable & ~peer->relayed_mask) != 0) {
        usable &= ~peer->relayed_mask;
        resting = bytes > SMALL_BYTES ? doubtful_rails(peer) : 0;
    }
    while ((rail = uct_mpath_rail_pick(peer, usable, resting, bytes, reference)) >= 0) {
        status = UCS_ERR_NO_RESOURCE;
        if (bytes <= SMALL_BYTES || mpath_spread_has_room(&peer->loads[rail], peer->iface->segment_bytes)) {
            status = post(peer, packet, (unsigned)rail);
        }
        if (status == UCS_OK) {
            return UCS_OK;
        }
        usable &= ~UCS_BIT(rail);
        if (status == UCS_ERR_NO_RESOURCE) {
            reference = reference < 0 ? rail : reference;
        } else {
            uct_mpath_peer_rail_broken(peer, (unsigned)rail);
        }
    }
    return UCS_ERR_NO_RESOURCE;
}

ucs_status_t uct_mpath_packet_send(uct_mpath_peer_t *peer, uct_mpath_packet_t *packet)
{
    ucs_status_t status;
    uint32_t psn;

    if (mpath_tx_window_take(&peer->tx, &psn) != MPATH_OK) {
        return UCS_ERR_NO_RESOURCE;
    }
    packet->peer                         = peer;
    packet->psn                          = psn;
    uct_mpath_packet_header(packet)->psn = psn;
    status                               = uct_mpath_packet_resend(peer, packet);
    if (status != UCS_OK) {
        mpath_tx_window_untake(&peer->tx);
        return status;
    }
    if (!peer->opened && packet->data_bytes + packet->iov_bytes >= peer->iface->spread_packet_bytes) {
        uct_mpath_peer_open_all(peer);
    }
    uct_mpath_peer_set_busy(peer);
    return UCS_OK;
}

/* -- packets of endpoints -- */

#define ACK_SOON_BYTES 2048

/* A packet may go now: connected, and nobody waits in front. */
ucs_status_t uct_mpath_ep_ready(const uct_mpath_ep_t *ep)
{
    uct_mpath_peer_t *peer = ep->peer;

    if (peer == NULL || ep->reported) {
        return peer == NULL ? UCS_ERR_CONNECTION_RESET : peer->failure;
    }
    if (peer->state != UCT_MPATH_PEER_READY || !ucs_list_is_empty(&peer->lost) ||
        !uct_mpath_peer_rma_done_before(peer, peer->rma_fence) ||
        !uct_mpath_peer_gets_done_before(peer, peer->get_fence) ||
        (!peer->dispatching && !ucs_queue_is_empty(&peer->pending))) {
        return UCS_ERR_NO_RESOURCE;
    }
    return UCS_OK;
}

uct_mpath_packet_t *uct_mpath_ep_packet(uct_mpath_ep_t *ep, uct_mpath_kind_t kind, uint8_t id, size_t data_bytes)
{
    uct_mpath_packet_t *packet = uct_mpath_packet_get(ep->peer->iface, data_bytes > UCT_MPATH_MAX_HEADER);

    if (packet != NULL) {
        packet->peer                             = ep->peer;
        packet->ep                               = ep;
        uct_mpath_packet_header(packet)->kind_am = (uint8_t)(kind << 5 | id);
        uct_mpath_packet_header(packet)->flags   = 0;
    }
    return packet;
}

ucs_status_t uct_mpath_ep_send(uct_mpath_ep_t *ep, uct_mpath_packet_t *packet, size_t data_bytes)
{
    uct_mpath_peer_t *peer            = ep->peer;
    uct_mpath_packet_header_t *header = uct_mpath_packet_header(packet);
    int accesses                      = header->kind_am >> 5 != UCT_MPATH_AM;
    ucs_status_t status;

    packet->data_bytes = (uint32_t)data_bytes;
    if (data_bytes + packet->iov_bytes >= ACK_SOON_BYTES) {
        header->flags |= UCT_MPATH_ACK_SOON;
    }
    if (accesses && mpath_psn_before(peer->tx.base, peer->fence_psn)) {
        header->flags |= UCT_MPATH_ORDERED;
    }
    status = uct_mpath_packet_send(peer, packet);
    if (status != UCS_OK) {
        uct_mpath_packet_put(packet);
        return status;
    }
    if (accesses || packet->num_iov > 0) {
        peer->flush_psn = packet->psn + 1;
    }
    return UCS_OK;
}

void uct_mpath_ep_set_iov(uct_mpath_packet_t *packet, const uct_iov_t *iov, size_t iovcnt)
{
    size_t i;

    for (i = 0; i < iovcnt; ++i) {
        if (uct_mpath_iov_bytes(&iov[i]) > 0) {
            packet->iov[packet->num_iov++] = iov[i];
            packet->iov_bytes += (uint32_t)uct_mpath_iov_bytes(&iov[i]);
        }
    }
}
