/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer's life: made by an endpoint or by a greeting, worked for in progress(), ended by a failure or with the
 * interface.
 */
#include "ucx_tl_mpath/counters.h"
#include "ucx_tl_mpath/rma.h"

#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define ACK_DELAY_NS MPATH_NS_PER_MS
#define PROBE_NS (100 * MPATH_NS_PER_MS)
#define GREETING_FIRST_NS MPATH_NS_PER_S
#define GREETING_LAST_NS (64 * MPATH_NS_PER_S)

static ucs_status_t new_handle(uct_mpath_iface_t *iface, uint32_t *handle_p)
{
    uct_mpath_peer_t **peers;
    uint32_t handle, count;

    for (handle = 0; handle < iface->num_peers; ++handle) {
        if (iface->peers[handle] == NULL) {
            *handle_p = handle;
            return UCS_OK;
        }
    }
    count = iface->num_peers > 0 ? 2 * iface->num_peers : 16;
    peers = realloc(iface->peers, count * sizeof(*peers));
    if (peers == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memset(peers + iface->num_peers, 0, (count - iface->num_peers) * sizeof(*peers));
    *handle_p        = iface->num_peers;
    iface->peers     = peers;
    iface->num_peers = count;
    return UCS_OK;
}

static void init_lists(uct_mpath_peer_t *peer)
{
    unsigned rail;

    ucs_list_head_init(&peer->eps);
    ucs_list_head_init(&peer->lost);
    ucs_list_head_init(&peer->held);
    ucs_list_head_init(&peer->gets);
    ucs_list_head_init(&peer->rma);
    ucs_list_head_init(&peer->replies);
    ucs_list_head_init(&peer->flushes);
    ucs_queue_head_init(&peer->pending);
    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        ucs_list_head_init(&peer->rails[rail].inflight);
        mpath_spread_rail_init(&peer->loads[rail], peer->iface->lanes[rail].rate_bps);
        peer->loads[rail].rate_bps = peer->iface->lanes[rail].load.rate_bps;
    }
}

ucs_status_t uct_mpath_peer_create(uct_mpath_iface_t *iface, uint64_t uid, uct_mpath_peer_t **peer_p)
{
    uct_mpath_peer_t *peer = calloc(1, sizeof(*peer));
    ucs_status_t status    = UCS_ERR_NO_MEMORY;

    if (peer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    peer->iface       = iface;
    peer->uid         = uid;
    peer->state       = UCT_MPATH_PEER_GREETING;
    peer->nonce       = iface->next_nonce++;
    peer->patience_ns = GREETING_FIRST_NS;
    init_lists(peer);
    if (mpath_tx_window_init(&peer->tx, iface->window) != MPATH_OK) {
        goto err_free;
    }
    if (mpath_rx_window_init(&peer->rx, iface->window) != MPATH_OK) {
        goto err_release_tx;
    }
    status = new_handle(iface, &peer->handle);
    if (status != UCS_OK) {
        goto err_release_rx;
    }
    iface->peers[peer->handle] = peer;
    *peer_p                    = peer;
    return UCS_OK;

err_release_rx:
    mpath_rx_window_release(&peer->rx, uct_mpath_drop_early, NULL);
err_release_tx:
    mpath_tx_window_release(&peer->tx);
err_free:
    free(peer);
    return status;
}

uct_mpath_peer_t *uct_mpath_peer_find(uct_mpath_iface_t *iface, uint64_t uid)
{
    uint32_t handle;

    for (handle = 0; handle < iface->num_peers; ++handle) {
        if (iface->peers[handle] != NULL && iface->peers[handle]->uid == uid &&
            iface->peers[handle]->state != UCT_MPATH_PEER_FAILED) {
            return iface->peers[handle];
        }
    }
    return NULL;
}

void uct_mpath_peer_set_busy(uct_mpath_peer_t *peer)
{
    if (!peer->is_busy) {
        peer->is_busy = 1;
        ucs_list_add_tail(&peer->iface->busy, &peer->busy);
    }
}

void uct_mpath_peer_fail(uct_mpath_peer_t *peer, ucs_status_t status, const char *why)
{
    unsigned rail;

    if (peer->state == UCT_MPATH_PEER_FAILED) {
        return;
    }
    ucs_debug("mpath: connection %u to interface %016lx failed (%s): %s", peer->handle, (unsigned long)peer->uid,
              ucs_status_string(status), why);
    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        uct_mpath_peer_rail_broken(peer, rail);
    }
    peer->state   = UCT_MPATH_PEER_FAILED;
    peer->failure = status;
    uct_mpath_peer_set_busy(peer);
}

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

int uct_mpath_peer_gets_done_before(uct_mpath_peer_t *peer, uint32_t id)
{
    return ucs_list_is_empty(&peer->gets) ||
           !mpath_psn_before(ucs_list_head(&peer->gets, uct_mpath_get_op_t, list)->id, id);
}

void uct_mpath_peer_fence(uct_mpath_peer_t *peer)
{
    peer->fence_psn = peer->tx.next;
    peer->rma_fence = peer->rma_next;
    peer->get_fence = peer->next_get;
}

void uct_mpath_peer_check_flushes(uct_mpath_peer_t *peer)
{
    uct_mpath_flush_t *flush;

    /* Marks that lie behind move along, or they would seem to lie ahead when the numbers have wrapped. */
    peer->flush_psn = mpath_psn_before(peer->flush_psn, peer->tx.base) ? peer->tx.base : peer->flush_psn;
    peer->fence_psn = mpath_psn_before(peer->fence_psn, peer->tx.base) ? peer->tx.base : peer->fence_psn;
    peer->rma_fence = ucs_list_is_empty(&peer->rma) ? peer->rma_next : peer->rma_fence;
    peer->get_fence = ucs_list_is_empty(&peer->gets) ? peer->next_get : peer->get_fence;
    while (!ucs_list_is_empty(&peer->flushes)) {
        flush = ucs_list_head(&peer->flushes, uct_mpath_flush_t, list);
        if (mpath_psn_before(peer->tx.base, flush->psn) || !uct_mpath_rma_done_before(peer, flush->rma_seq) ||
            !uct_mpath_peer_gets_done_before(peer, flush->get_id)) {
            return;
        }
        ucs_list_del(&flush->list);
        if (flush->user != NULL) {
            uct_invoke_completion(flush->user, UCS_OK);
        }
        free(flush);
    }
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
