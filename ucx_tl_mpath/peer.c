/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer: made by an endpoint or by a greeting, marked for progress, failed; and what all that work on it change of it. */
#include "ucx_tl_mpath/message.h"
#include "ucx_tl_mpath/rma.h"

#include "util/secret.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define GREETING_FIRST_NS MPATH_NS_PER_S

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
    peer->patience_ns = GREETING_FIRST_NS;
    init_lists(peer);
    if (mpath_secret_make(&peer->nonce) != MPATH_OK) {
        status = UCS_ERR_IO_ERROR;
        goto err_free;
    }
    status = new_handle(iface, &peer->handle);
    if (status != UCS_OK) {
        goto err_free;
    }
    status = UCS_ERR_NO_MEMORY;
    if (mpath_tx_window_init(&peer->tx, iface->window) != MPATH_OK) {
        goto err_free;
    }
    if (mpath_rx_window_init(&peer->rx, iface->window) != MPATH_OK) {
        goto err_release_tx;
    }
    iface->peers[peer->handle] = peer;
    *peer_p                    = peer;
    return UCS_OK;

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

/* -- its rails -- */

void uct_mpath_peer_rail_open_soon(uct_mpath_peer_t *peer, unsigned number)
{
    peer->rails[number].open_due = 1;
    uct_mpath_peer_set_busy(peer);
}

void uct_mpath_peer_rail_up(uct_mpath_peer_t *peer, unsigned number)
{
    uct_mpath_peer_rail_t *rail = &peer->rails[number];

    rail->state      = UCT_MPATH_RAIL_UP;
    rail->backoff_ns = UCT_MPATH_BACKOFF_FIRST_NS;
    peer->up_mask |= UCS_BIT(number);
}

void uct_mpath_peer_rail_broken(uct_mpath_peer_t *peer, unsigned number)
{
    if (peer->rails[number].state == UCT_MPATH_RAIL_CLOSED || peer->rails[number].state == UCT_MPATH_RAIL_BROKEN) {
        return;
    }
    peer->rails[number].state = UCT_MPATH_RAIL_BROKEN;
    peer->up_mask &= ~UCS_BIT(number);
    peer->open_mask &= ~UCS_BIT(number);
    uct_mpath_peer_set_busy(peer);
}

void uct_mpath_peer_fail(uct_mpath_peer_t *peer, ucs_status_t status, const char *why)
{
    unsigned rail;

    if (peer->state == UCT_MPATH_PEER_FAILED) {
        return;
    }
    ucs_debug("mpath: connection %u failed (%s): %s", peer->handle, ucs_status_string(status), why);
    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        uct_mpath_peer_rail_broken(peer, rail);
    }
    peer->state   = UCT_MPATH_PEER_FAILED;
    peer->failure = status;
    uct_mpath_peer_set_busy(peer);
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

int uct_mpath_peer_rma_done_before(uct_mpath_peer_t *peer, uint32_t seq)
{
    return ucs_list_is_empty(&peer->rma) ||
           !mpath_psn_before(ucs_list_head(&peer->rma, uct_mpath_rma_t, list)->seq, seq);
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
        if (mpath_psn_before(peer->tx.base, flush->psn) || !uct_mpath_peer_rma_done_before(peer, flush->rma_seq) ||
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
