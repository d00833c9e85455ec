/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rails to one peer in progress: proven by a first answer, given up when they fail or stall, and opened again after a
 * while.
 */
#include "ucx_tl_mpath/counters.h"
#include "ucx_tl_mpath/relay.h"

#include "util/time.h"

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

void uct_mpath_peer_rail_suspend(uct_mpath_peer_t *peer, unsigned number)
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

void uct_mpath_peer_rail_moves(uct_mpath_peer_t *peer, unsigned number, uint32_t packets)
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

void uct_mpath_peer_rails_progress(uct_mpath_peer_t *peer, uint64_t now_ns)
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
