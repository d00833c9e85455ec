/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: active messages, the pending queue, flush and fence. Each operation is one packet on one rail. */
#include "ucx_tl_mpath/ep.h"
#include "ucx_tl_mpath/relay.h"
#include "ucx_tl_mpath/rma.h"

#include <stdlib.h>
#include <string.h>

typedef struct pending_priv {
    uct_pending_req_priv_queue_t super;
    uct_ep_h ep;
} pending_priv_t;

/* Opens a first rail to a peer that is not known yet, out of the addresses that UCP exchanged, and greets. */
static ucs_status_t greet(uct_mpath_peer_t *peer, const uct_mpath_device_addr_t *device,
                          const uct_mpath_iface_addr_t *address)
{
    uint64_t direct    = uct_mpath_address_reachable(peer->iface, device, address);
    uint64_t reachable = direct != 0 ? direct : uct_mpath_route_reachable(peer->iface, device);
    const void *device_addr, *iface_addr;
    uct_mpath_peer_rail_t *rail;
    unsigned number;
    int opened = 0;

    if (device->length > UCT_MPATH_ADDRESS_MAX || address->length > UCT_MPATH_ADDRESS_MAX) {
        return UCS_ERR_INVALID_ADDR;
    }
    for (; reachable != 0; reachable &= reachable - 1) {
        number = (unsigned)__builtin_ctzll(reachable);
        rail   = &peer->rails[number];
        uct_mpath_address_find(device, address, number, &device_addr, &iface_addr);
        memcpy(rail->device_addr, device_addr, device->length);
        memcpy(rail->iface_addr, iface_addr, address->length);
        rail->known = 1;
        if (direct == 0) {
            uct_mpath_route_learn(peer, number, 0);
        }
        if (!opened && uct_mpath_peer_rail_open(peer, number) == UCS_OK) {
            opened = 1;
        }
    }
    peer->hello_due = 1;
    return opened ? UCS_OK : UCS_ERR_UNREACHABLE;
}

UCS_CLASS_INIT_FUNC(uct_mpath_ep_t, const uct_ep_params_t *params)
{
    uct_mpath_iface_t *iface              = ucs_derived_of(params->iface, uct_mpath_iface_t);
    const uct_mpath_device_addr_t *device = (const uct_mpath_device_addr_t *)params->dev_addr;
    const uct_mpath_iface_addr_t *address = (const uct_mpath_iface_addr_t *)params->iface_addr;
    ucs_status_t status;

    UCT_EP_PARAMS_CHECK_DEV_IFACE_ADDRS(params);
    UCS_CLASS_CALL_SUPER_INIT(uct_base_ep_t, &iface->super);
    self->reported = 0;
    self->peer     = uct_mpath_peer_find(iface, address->uid);
    if (self->peer == NULL) {
        status = uct_mpath_peer_create(iface, address->uid, &self->peer);
        if (status != UCS_OK) {
            return status;
        }
        status = greet(self->peer, device, address);
        if (status != UCS_OK) {
            uct_mpath_peer_destroy(self->peer);
            return status;
        }
    }
    ucs_list_add_tail(&self->peer->eps, &self->list);
    return UCS_OK;
}

UCS_CLASS_CLEANUP_FUNC(uct_mpath_ep_t)
{
    if (self->peer == NULL) {
        return;
    }
    uct_mpath_ep_pending_purge(&self->super.super, (uct_pending_purge_callback_t)ucs_empty_function, NULL);
    uct_mpath_peer_forget(self->peer, self);
    ucs_list_del(&self->list);
    if (self->peer->state == UCT_MPATH_PEER_FAILED) {
        uct_mpath_peer_set_busy(self->peer); /* goes with its last endpoint */
    }
}

UCS_CLASS_DEFINE(uct_mpath_ep_t, uct_base_ep_t)
UCS_CLASS_DEFINE_NEW_FUNC(uct_mpath_ep_t, uct_ep_t, const uct_ep_params_t *);
UCS_CLASS_DEFINE_DELETE_FUNC(uct_mpath_ep_t, uct_ep_t);

ucs_status_t uct_mpath_ep_am_short(uct_ep_h tl_ep, uint8_t id, uint64_t header, const void *payload, unsigned length)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    size_t bytes       = sizeof(uct_mpath_packet_header_t) + sizeof(header) + length;
    ucs_status_t status;
    uct_mpath_packet_t *packet;
    char *data;

    UCT_CHECK_AM_ID(id);
    status = uct_mpath_ep_ready(ep);
    if (status != UCS_OK) {
        return status;
    }
    packet = uct_mpath_ep_packet(ep, UCT_MPATH_AM, id, bytes);
    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    data = packet->data + sizeof(uct_mpath_packet_header_t);
    memcpy(data, &header, sizeof(header));
    if (length > 0) {
        memcpy(data + sizeof(header), payload, length);
    }
    return uct_mpath_ep_send(ep, packet, bytes);
}

/* Behind the headers that the packet has already. */
static size_t append_iov(uct_mpath_packet_t *packet, size_t bytes, const uct_iov_t *iov, size_t iovcnt)
{
    size_t i;

    for (i = 0; i < iovcnt; ++i) {
        if (uct_mpath_iov_bytes(&iov[i]) > 0) {
            memcpy(packet->data + bytes, iov[i].buffer, uct_mpath_iov_bytes(&iov[i]));
            bytes += uct_mpath_iov_bytes(&iov[i]);
        }
    }
    return bytes;
}

ucs_status_t uct_mpath_ep_am_short_iov(uct_ep_h tl_ep, uint8_t id, const uct_iov_t *iov, size_t iovcnt)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    size_t bytes       = sizeof(uct_mpath_packet_header_t), i;
    ucs_status_t status;
    uct_mpath_packet_t *packet;

    UCT_CHECK_AM_ID(id);
    status = uct_mpath_ep_ready(ep);
    if (status != UCS_OK) {
        return status;
    }
    for (i = 0; i < iovcnt; ++i) {
        bytes += uct_mpath_iov_bytes(&iov[i]);
    }
    packet = uct_mpath_ep_packet(ep, UCT_MPATH_AM, id, bytes);
    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    bytes = append_iov(packet, sizeof(uct_mpath_packet_header_t), iov, iovcnt);
    return uct_mpath_ep_send(ep, packet, bytes);
}

ssize_t uct_mpath_ep_am_bcopy(uct_ep_h tl_ep, uint8_t id, uct_pack_callback_t pack, void *arg, unsigned flags)
{
    uct_mpath_ep_t *ep  = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    ucs_status_t status = uct_mpath_ep_ready(ep);
    uct_mpath_packet_t *packet;
    size_t length;

    (void)flags;
    UCT_CHECK_AM_ID(id);
    if (status != UCS_OK) {
        return status;
    }
    packet = uct_mpath_ep_packet(ep, UCT_MPATH_AM, id, ep->peer->iface->segment_bytes);
    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    length = pack(packet->data + sizeof(uct_mpath_packet_header_t), arg);
    status = uct_mpath_ep_send(ep, packet, sizeof(uct_mpath_packet_header_t) + length);
    return status == UCS_OK ? (ssize_t)length : (ssize_t)status;
}

ucs_status_t uct_mpath_ep_am_zcopy(uct_ep_h tl_ep, uint8_t id, const void *header, unsigned header_length,
                                   const uct_iov_t *iov, size_t iovcnt, unsigned flags, uct_completion_t *comp)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    size_t bytes       = sizeof(uct_mpath_packet_header_t);
    ucs_status_t status;
    uct_mpath_packet_t *packet;
    int copy;

    (void)flags;
    UCT_CHECK_AM_ID(id);
    UCT_CHECK_IOV_SIZE(iovcnt, (size_t)UCT_MPATH_MAX_IOV, "uct_mpath_ep_am_zcopy");
    status = uct_mpath_ep_ready(ep);
    if (status != UCS_OK) {
        return status;
    }
    copy   = ep->peer->iface->am_copy;
    packet = uct_mpath_ep_packet(ep, UCT_MPATH_AM, id, copy ? ep->peer->iface->segment_bytes : 0);
    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    if (header_length > 0) {
        memcpy(packet->data + bytes, header, header_length);
        bytes += header_length;
    }
    if (copy) {
        return uct_mpath_ep_send(ep, packet, append_iov(packet, bytes, iov, iovcnt));
    }
    uct_mpath_ep_set_iov(packet, iov, iovcnt);
    packet->user = comp;
    status       = uct_mpath_ep_send(ep, packet, bytes);
    return status == UCS_OK ? UCS_INPROGRESS : status;
}

ucs_status_t uct_mpath_ep_flush(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    uct_mpath_ep_t *ep     = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    uct_mpath_peer_t *peer = ep->peer;
    uct_mpath_flush_t *flush;

    if (peer == NULL || (peer->state == UCT_MPATH_PEER_FAILED && peer->cleaned)) {
        return (flags & UCT_FLUSH_FLAG_CANCEL) ? UCS_OK : UCS_ERR_CONNECTION_RESET;
    }
    if (peer->state != UCT_MPATH_PEER_FAILED) {
        if (flags & UCT_FLUSH_FLAG_CANCEL) {
            uct_mpath_ep_pending_purge(tl_ep, (uct_pending_purge_callback_t)ucs_empty_function, NULL);
            if (!uct_mpath_peer_cancel(peer, ep)) {
                return UCS_OK;
            }
        } else if (!peer->dispatching && !ucs_queue_is_empty(&peer->pending)) {
            return UCS_ERR_NO_RESOURCE; /* what waits in front of the rails was asked for before */
        } else if (!mpath_psn_before(peer->tx.base, peer->flush_psn) && ucs_list_is_empty(&peer->rma) &&
                   ucs_list_is_empty(&peer->gets)) {
            return UCS_OK;
        }
    }
    if (comp == NULL) {
        return UCS_INPROGRESS;
    }
    flush = malloc(sizeof(*flush));
    if (flush == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    flush->ep      = ep;
    flush->psn     = peer->flush_psn;
    flush->rma_seq = peer->rma_next;
    flush->get_id  = peer->next_get;
    flush->user    = comp;
    ucs_list_add_tail(&peer->flushes, &flush->list);
    peer->progress_ns = 0; /* asks for an acknowledgement at once */
    uct_mpath_peer_set_busy(peer);
    return UCS_INPROGRESS;
}

ucs_status_t uct_mpath_ep_fence(uct_ep_h tl_ep, unsigned flags)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);

    (void)flags;
    if (ep->peer != NULL) {
        uct_mpath_peer_fence(ep->peer);
    }
    return UCS_OK;
}

/* A probe: an answer is not waited for, a dead connection reports itself when something is sent over it. */
ucs_status_t uct_mpath_ep_check(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);

    (void)flags;
    if (comp != NULL) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (ep->peer != NULL && ep->peer->state == UCT_MPATH_PEER_READY && ep->peer->up_mask != 0) {
        uct_mpath_probe_send(ep->peer, (unsigned)__builtin_ctzll(ep->peer->up_mask));
    }
    return UCS_OK;
}

ucs_status_t uct_mpath_ep_pending_add(uct_ep_h tl_ep, uct_pending_req_t *request, unsigned flags)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);

    (void)flags;
    UCS_STATIC_ASSERT(sizeof(pending_priv_t) <= UCT_PENDING_REQ_PRIV_LEN);
    if (ep->peer == NULL || ep->reported) {
        return UCS_ERR_BUSY;
    }
    ((pending_priv_t *)request->priv)->ep = tl_ep;
    uct_pending_req_queue_push(&ep->peer->pending, request);
    uct_mpath_peer_set_busy(ep->peer);
    return UCS_OK;
}

void uct_mpath_ep_pending_purge(uct_ep_h tl_ep, uct_pending_purge_callback_t cb, void *arg)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    pending_priv_t *priv;

    if (ep->peer != NULL) {
        uct_pending_queue_purge(priv, &ep->peer->pending, priv->ep == tl_ep, cb, arg);
    }
}

/* As if the connection had failed; for tests of failure handling above. */
#if HAVE_UCT_EP_INVALIDATE_PARAMS
ucs_status_t uct_mpath_ep_invalidate(uct_ep_h tl_ep, const uct_ep_invalidate_params_t *params)
#else
ucs_status_t uct_mpath_ep_invalidate(uct_ep_h tl_ep, unsigned flags)
#endif
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);

#if HAVE_UCT_EP_INVALIDATE_PARAMS
    (void)params;
#else
    (void)flags;
#endif
    if (ep->peer != NULL) {
        uct_mpath_peer_fail(ep->peer, UCS_ERR_ENDPOINT_TIMEOUT, "invalidated");
    }
    return UCS_OK;
}
