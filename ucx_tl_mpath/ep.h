/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets of endpoints, send.c: what the files with the endpoint's operations share. */
#ifndef UCX_TL_MPATH_EP_H
#define UCX_TL_MPATH_EP_H

#include "ucx_tl_mpath/peer.h"

/* UCS_OK when a packet may go now: connected, and nobody waits in front. */
ucs_status_t uct_mpath_ep_ready(const uct_mpath_ep_t *ep);
/* A packet of the endpoint with room for data_bytes, headers included. */
uct_mpath_packet_t *uct_mpath_ep_packet(uct_mpath_ep_t *ep, uct_mpath_kind_t kind, uint8_t id, size_t data_bytes);
/* Sends it, or takes it back when that fails. data_bytes: headers and what was copied behind them. */
ucs_status_t uct_mpath_ep_send(uct_mpath_ep_t *ep, uct_mpath_packet_t *packet, size_t data_bytes);
/* Takes over the parts of an iov that are not empty. */
void uct_mpath_ep_set_iov(uct_mpath_packet_t *packet, const uct_iov_t *iov, size_t iovcnt);

#endif
