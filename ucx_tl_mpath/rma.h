/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Remote access by the rails themselves. A rail may have a second transport beside the one of its messages, which
 * reaches the peer's memory without its process (rc on InfiniBand and RoCE). Its endpoints connect one to one, so the
 * two sides tell each other their addresses in messages once the rails are open; until then, and where it fails, puts
 * and gets are messages.
 *
 * An access completes when the other side's transport has acknowledged it. One whose rail fails is done once more, by
 * messages: its memory is still as it was, since its user has not been told. An access may be larger than a message;
 * then it takes several.
 */
#ifndef UCX_TL_MPATH_RMA_H
#define UCX_TL_MPATH_RMA_H

#include "ucx_tl_mpath/peer.h"

typedef struct uct_mpath_rma {
    ucs_list_link_t list; /* of the peer, in order of seq */
    uct_mpath_peer_t *peer;
    uct_mpath_ep_t *ep; /* NULL: it is gone */
    uct_completion_t *user;
    uct_completion_t child;
    uct_mpath_place_t place;
    uint32_t seq, bytes;
    uint32_t sent_bytes; /* by messages */
    uint8_t rail, generation, is_get;
    uint8_t messages; /* it is done by messages: no rail could, or its rail failed */
    uint8_t num_iov;
    uct_iov_t iov[UCT_MPATH_MAX_IOV];
} uct_mpath_rma_t;

#define UCT_MPATH_RMA_MAX_BYTES (256 * 1024)

/* rma.c */
/* Sends the messages of accesses that take this way. */
void uct_mpath_rma_retry(uct_mpath_peer_t *peer);
void uct_mpath_rma_forget(uct_mpath_peer_t *peer, uct_mpath_ep_t *ep);
/* Nonzero: the endpoint has accesses under way; they will end soon. */
int uct_mpath_rma_cancel(uct_mpath_peer_t *peer, uct_mpath_ep_t *ep);
/* The peer failed and no rail has anything any more. */
void uct_mpath_rma_end(uct_mpath_peer_t *peer, ucs_status_t status);

ucs_status_t uct_mpath_rma_child_failed(void *arg, uct_ep_h child, ucs_status_t status);
ucs_status_t uct_mpath_rma_message(void *arg, void *data, size_t length, unsigned flags);
/* Opens, greets, buries what is broken. Nonzero: something is left to do. */
int uct_mpath_rma_links_progress(uct_mpath_peer_t *peer, uint64_t now_ns);
void uct_mpath_rma_links_close(uct_mpath_peer_t *peer);

#endif
