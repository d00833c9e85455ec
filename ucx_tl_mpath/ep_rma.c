/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Remote access, by the rails themselves where they can (rma.h), else by messages: puts carry their address along, gets
 * ask the peer for their bytes. Both are served by the peer's progress, as the puts of UCX's TCP transport are.
 */
#include "ucx_tl_mpath/ep.h"
#include "ucx_tl_mpath/rma.h"

#include <stdlib.h>
#include <string.h>

static uct_mpath_place_t place_of(uint64_t remote_addr, uct_rkey_t rkey)
{
    const uct_mpath_rkey_t *keys = (const uct_mpath_rkey_t *)rkey;

    /* Without a key the peer will refuse the access. */
    return (uct_mpath_place_t){.region  = keys != NULL && rkey != UCT_INVALID_RKEY ? keys->region : 0,
                               .address = remote_addr};
}

static uct_mpath_packet_t *put_packet(uct_mpath_ep_t *ep, const uct_mpath_place_t *place, size_t data_bytes)
{
    uct_mpath_packet_t *packet = uct_mpath_ep_packet(ep, UCT_MPATH_PUT, 0, data_bytes);

    if (packet != NULL) {
        memcpy(packet->data + sizeof(uct_mpath_packet_header_t), place, sizeof(*place));
    }
    return packet;
}

ucs_status_t uct_mpath_ep_put_short(uct_ep_h tl_ep, const void *buffer, unsigned length, uint64_t remote_addr,
                                    uct_rkey_t rkey)
{
    uct_mpath_ep_t *ep      = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    ucs_status_t status     = uct_mpath_ep_ready(ep);
    uct_mpath_place_t place = place_of(remote_addr, rkey);
    uct_mpath_packet_t *packet;

    if (status != UCS_OK || length == 0) {
        return status;
    }
    packet = put_packet(ep, &place, UCT_MPATH_PUT_HEAD + length);
    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memcpy(packet->data + UCT_MPATH_PUT_HEAD, buffer, length);
    return uct_mpath_ep_send(ep, packet, UCT_MPATH_PUT_HEAD + length);
}

ssize_t uct_mpath_ep_put_bcopy(uct_ep_h tl_ep, uct_pack_callback_t pack, void *arg, uint64_t remote_addr,
                               uct_rkey_t rkey)
{
    uct_mpath_ep_t *ep      = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    ucs_status_t status     = uct_mpath_ep_ready(ep);
    uct_mpath_place_t place = place_of(remote_addr, rkey);
    uct_mpath_packet_t *packet;
    size_t length;

    if (status != UCS_OK) {
        return status;
    }
    packet = put_packet(ep, &place, ep->peer->iface->segment_bytes);
    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    length = pack(packet->data + UCT_MPATH_PUT_HEAD, arg);
    status = uct_mpath_ep_send(ep, packet, UCT_MPATH_PUT_HEAD + length);
    return status == UCS_OK ? (ssize_t)length : (ssize_t)status;
}

ucs_status_t uct_mpath_ep_put_message(uct_mpath_ep_t *ep, const uct_iov_t *iov, size_t iovcnt,
                                      const uct_mpath_place_t *place, uct_completion_t *comp)
{
    uct_mpath_packet_t *packet = put_packet(ep, place, 0);
    ucs_status_t status;

    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    uct_mpath_ep_set_iov(packet, iov, iovcnt);
    packet->user = comp;
    status       = uct_mpath_ep_send(ep, packet, UCT_MPATH_PUT_HEAD);
    return status == UCS_OK ? UCS_INPROGRESS : status;
}

static size_t iov_bytes(const uct_iov_t *iov, size_t iovcnt)
{
    size_t bytes = 0, i;

    for (i = 0; i < iovcnt; ++i) {
        bytes += uct_mpath_iov_bytes(&iov[i]);
    }
    return bytes;
}

ucs_status_t uct_mpath_ep_put_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr,
                                    uct_rkey_t rkey, uct_completion_t *comp)
{
    uct_mpath_ep_t *ep      = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    ucs_status_t status     = uct_mpath_ep_ready(ep);
    uct_mpath_place_t place = place_of(remote_addr, rkey);

    UCT_CHECK_IOV_SIZE(iovcnt, (size_t)UCT_MPATH_MAX_IOV, "uct_mpath_ep_put_zcopy");
    if (status != UCS_OK || iov_bytes(iov, iovcnt) == 0) {
        return status;
    }
    status = uct_mpath_rma_start(ep, 0, iov, iovcnt, &place, rkey, comp);
    return status == UCS_ERR_UNSUPPORTED ? uct_mpath_ep_put_message(ep, iov, iovcnt, &place, comp) : status;
}

static ucs_status_t send_get(uct_mpath_ep_t *ep, uct_mpath_get_op_t *get, const uct_mpath_place_t *place, size_t length,
                             uct_completion_t *comp)
{
    uct_mpath_get_t request    = {.place = *place, .id = ep->peer->next_get, .length_bytes = (uint32_t)length};
    size_t bytes               = sizeof(uct_mpath_packet_header_t) + sizeof(request);
    uct_mpath_packet_t *packet = uct_mpath_ep_packet(ep, UCT_MPATH_GET, 0, bytes);
    ucs_status_t status;

    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    if (ep->peer->num_gets >= ep->peer->tx.max) { /* the peer keeps them until it can answer */
        uct_mpath_packet_put(packet);
        return UCS_ERR_NO_RESOURCE;
    }
    memcpy(packet->data + sizeof(uct_mpath_packet_header_t), &request, sizeof(request));
    if (ep->peer->ack_soon) {
        uct_mpath_ack_send(ep->peer); /* or the peer spreads its replies as if the last ones were still under way */
    }
    status = uct_mpath_ep_send(ep, packet, bytes);
    if (status != UCS_OK) {
        return status;
    }
    get->id   = ep->peer->next_get++;
    get->ep   = ep;
    get->user = comp;
    ucs_list_add_tail(&ep->peer->gets, &get->list);
    ++ep->peer->num_gets;
    return UCS_INPROGRESS;
}

ucs_status_t uct_mpath_ep_get_bcopy(uct_ep_h tl_ep, uct_unpack_callback_t unpack, void *arg, size_t length,
                                    uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t *comp)
{
    uct_mpath_ep_t *ep      = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    ucs_status_t status     = uct_mpath_ep_ready(ep);
    uct_mpath_place_t place = place_of(remote_addr, rkey);
    uct_mpath_get_op_t *get;

    if (status != UCS_OK || length == 0) {
        return status;
    }
    get = malloc(sizeof(*get));
    if (get == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    get->unpack     = unpack;
    get->unpack_arg = arg;
    get->num_iov    = 0;
    status          = send_get(ep, get, &place, length, comp);
    if (status != UCS_INPROGRESS) {
        free(get);
    }
    return status;
}

ucs_status_t uct_mpath_ep_get_message(uct_mpath_ep_t *ep, const uct_iov_t *iov, size_t iovcnt,
                                      const uct_mpath_place_t *place, uct_completion_t *comp)
{
    uct_mpath_get_op_t *get = malloc(sizeof(*get));
    ucs_status_t status;

    if (get == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    get->unpack  = NULL;
    get->num_iov = iovcnt;
    memcpy(get->iov, iov, iovcnt * sizeof(*iov));
    status = send_get(ep, get, place, iov_bytes(iov, iovcnt), comp);
    if (status != UCS_INPROGRESS) {
        free(get);
    }
    return status;
}

ucs_status_t uct_mpath_ep_get_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr,
                                    uct_rkey_t rkey, uct_completion_t *comp)
{
    uct_mpath_ep_t *ep      = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    ucs_status_t status     = uct_mpath_ep_ready(ep);
    uct_mpath_place_t place = place_of(remote_addr, rkey);

    UCT_CHECK_IOV_SIZE(iovcnt, (size_t)UCT_MPATH_MAX_IOV, "uct_mpath_ep_get_zcopy");
    if (status != UCS_OK || iov_bytes(iov, iovcnt) == 0) {
        return status;
    }
    status = uct_mpath_rma_start(ep, 1, iov, iovcnt, &place, rkey, comp);
    return status == UCS_ERR_UNSUPPORTED ? uct_mpath_ep_get_message(ep, iov, iovcnt, &place, comp) : status;
}
