/* SPDX-License-Identifier: BSD-3-Clause */
/* What progress does for a peer, and how its operations end: with it, with an endpoint, or because they are cancelled. */
#include "ucx_tl_mpath/counters.h"
#include "ucx_tl_mpath/rma.h"

#include "util/time.h"

#include <stdlib.h>

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
        uct_mpath_peer_rails_progress(peer, now_ns);
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
        uct_mpath_replies_send(peer);
    }
    dispatch_pending(peer);
    if (!peer->replies_first) {
        uct_mpath_replies_send(peer);
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

    uct_mpath_peer_rails_progress(peer, now_ns);
    greet_again(peer, now_ns);
    if (peer->hello_due && peer->open_mask != 0) {
        uct_mpath_hello_send(peer, now_ns);
    }
    if (peer->state == UCT_MPATH_PEER_READY) {
        acknowledge(peer, now_ns);
        if (peer->refusing == 1) {
            uct_mpath_refusal_send(peer);
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
    uct_mpath_peer_rails_progress(peer, mpath_time_ns());
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
    mpath_rx_window_release(&peer->rx, uct_mpath_drop_early, NULL);
    mpath_tx_window_release(&peer->tx);
    free(peer);
}
