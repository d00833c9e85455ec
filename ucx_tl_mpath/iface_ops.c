/* SPDX-License-Identifier: BSD-3-Clause */
/* What the interface answers to UCT: its abilities, flush, events, and the two tables of operations. */
#include "ucx_tl_mpath/relay.h"
#include "ucx_tl_mpath/rma.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* What only the rails know. */
#ifdef UCT_IFACE_FLAG_INTER_NODE
#define INHERITED_FLAGS (UCT_IFACE_FLAG_EP_KEEPALIVE | UCT_IFACE_FLAG_INTER_NODE)
#else
#define INHERITED_FLAGS UCT_IFACE_FLAG_EP_KEEPALIVE
#endif

/* What one put or get without a copy may hold: a message, more where rails do it by themselves. */
static size_t max_access_bytes(const uct_mpath_iface_t *iface)
{
    size_t message_bytes = iface->segment_bytes - UCT_MPATH_PUT_HEAD;

    return iface->rma_lanes != 0 && message_bytes < UCT_MPATH_RMA_MAX_BYTES ? UCT_MPATH_RMA_MAX_BYTES : message_bytes;
}

static ucs_status_t iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    const size_t head        = sizeof(uct_mpath_packet_header_t);
    const uct_mpath_lane_t *lane;
    uint64_t rest, common = UINT64_MAX, events = UINT64_MAX;

    uct_base_iface_query(ucs_derived_of(tl_iface, uct_base_iface_t), attr);
    attr->device_addr_len     = uct_mpath_device_addr_length(iface);
    attr->iface_addr_len      = uct_mpath_iface_addr_length(iface);
    attr->ep_addr_len         = 0;
    attr->max_conn_priv       = 0;
    attr->bandwidth.dedicated = 0;
    attr->bandwidth.shared    = 0;
    attr->latency             = ucs_linear_func_make(0, 0);
    attr->overhead            = 0;
    attr->priority            = 1;
    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        lane = &iface->lanes[__builtin_ctzll(rest)];
        common &= lane->attr.cap.flags;
        events &= lane->attr.cap.event_flags & (lane->rma_child != NULL ? lane->rma_attr.cap.event_flags : UINT64_MAX);
        attr->bandwidth.dedicated += lane->attr.bandwidth.dedicated;
        attr->bandwidth.shared += lane->attr.bandwidth.shared;
        attr->latency.c   = attr->latency.c > lane->attr.latency.c ? attr->latency.c : lane->attr.latency.c;
        attr->latency.m   = attr->latency.m > lane->attr.latency.m ? attr->latency.m : lane->attr.latency.m;
        attr->overhead    = attr->overhead > lane->attr.overhead ? attr->overhead : lane->attr.overhead;
        attr->max_num_eps = attr->max_num_eps < lane->attr.max_num_eps ? attr->max_num_eps : lane->attr.max_num_eps;
    }
    attr->cap.flags = UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY |
                      UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY | UCT_IFACE_FLAG_PUT_ZCOPY |
                      UCT_IFACE_FLAG_GET_BCOPY | UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PENDING |
                      UCT_IFACE_FLAG_CB_SYNC | UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_EP_CHECK |
                      UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE | (common & INHERITED_FLAGS);
    attr->cap.event_flags = events &
                            (UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD);
    /* A relay does not sleep: nobody would wake it up for its neighbours. */
    if (!(attr->cap.event_flags & UCT_IFACE_FLAG_EVENT_FD) || iface->relay != NULL) {
        attr->cap.event_flags = 0;
    }
    attr->cap.am.max_short        = iface->short_bytes - head;
    attr->cap.am.max_bcopy        = iface->segment_bytes - head;
    attr->cap.am.min_zcopy        = 0;
    attr->cap.am.max_zcopy        = iface->segment_bytes - head;
    attr->cap.am.max_hdr          = UCT_MPATH_MAX_HEADER - head;
    attr->cap.am.max_iov          = iface->max_iov;
    attr->cap.am.opt_zcopy_align  = 1;
    attr->cap.am.align_mtu        = 1;
    attr->cap.put.max_short       = iface->short_bytes - UCT_MPATH_PUT_HEAD;
    attr->cap.put.max_bcopy       = iface->segment_bytes - UCT_MPATH_PUT_HEAD;
    attr->cap.put.min_zcopy       = 0;
    attr->cap.put.max_zcopy       = max_access_bytes(iface);
    attr->cap.put.max_iov         = iface->max_iov;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu       = 1;
    attr->cap.get.max_short       = 0;
    attr->cap.get.max_bcopy       = iface->segment_bytes - UCT_MPATH_PUT_HEAD;
    attr->cap.get.min_zcopy       = 0;
    attr->cap.get.max_zcopy       = max_access_bytes(iface);
    attr->cap.get.max_iov         = UCT_MPATH_MAX_IOV;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu       = 1;
    return UCS_OK;
}

static int is_flushed(uct_mpath_peer_t *peer)
{
    return !mpath_psn_before(peer->tx.base, peer->flush_psn) && ucs_list_is_empty(&peer->rma) &&
           ucs_list_is_empty(&peer->gets);
}

static ucs_status_t iface_flush(uct_iface_h tl_iface, unsigned flags, uct_completion_t *comp)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    uct_mpath_peer_t *peer;
    uint32_t handle;

    (void)flags;
    if (comp != NULL) {
        return UCS_ERR_UNSUPPORTED;
    }
    for (handle = 0; handle < iface->num_peers; ++handle) {
        peer = iface->peers[handle];
        if (peer != NULL && peer->state != UCT_MPATH_PEER_FAILED && !is_flushed(peer)) {
            return UCS_INPROGRESS;
        }
    }
    return UCS_OK;
}

/* Everything later is delivered after everything earlier: the fence of each peer. */
static ucs_status_t iface_fence(uct_iface_h tl_iface, unsigned flags)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    uint32_t handle;

    (void)flags;
    for (handle = 0; handle < iface->num_peers; ++handle) {
        if (iface->peers[handle] != NULL) {
            uct_mpath_peer_fence(iface->peers[handle]);
        }
    }
    return UCS_OK;
}

static ucs_status_t watch(int fd, uct_iface_h child)
{
    struct epoll_event event = {.events = EPOLLIN};
    ucs_status_t status;
    int child_fd;

    status = uct_iface_event_fd_get(child, &child_fd);
    if (status != UCS_OK) {
        return status;
    }
    if (epoll_ctl(fd, EPOLL_CTL_ADD, child_fd, &event) != 0) {
        ucs_error("mpath: epoll_ctl: %m");
        return UCS_ERR_IO_ERROR;
    }
    return UCS_OK;
}

/* One descriptor that is readable when any rail's is. */
static ucs_status_t iface_event_fd_get(uct_iface_h tl_iface, int *fd_p)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    const uct_mpath_lane_t *lane;
    ucs_status_t status;
    uint64_t rest;
    int fd;

    if (iface->event_fd >= 0) {
        *fd_p = iface->event_fd;
        return UCS_OK;
    }
    fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) {
        ucs_error("mpath: epoll_create1: %m");
        return UCS_ERR_IO_ERROR;
    }
    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        lane   = &iface->lanes[__builtin_ctzll(rest)];
        status = watch(fd, lane->child);
        if (status == UCS_OK && lane->rma_child != NULL) {
            status = watch(fd, lane->rma_child);
        }
        if (status != UCS_OK) {
            goto err_close;
        }
    }
    iface->event_fd = fd;
    *fd_p           = fd;
    return UCS_OK;

err_close:
    close(fd);
    return status;
}

/* While a peer has something to do its time matters, so there is no sleeping. */
static ucs_status_t iface_event_arm(uct_iface_h tl_iface, unsigned events)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    const uct_mpath_lane_t *lane;
    ucs_status_t status;
    uint64_t rest;

    if (!ucs_list_is_empty(&iface->busy)) {
        return UCS_ERR_BUSY;
    }
    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        lane   = &iface->lanes[__builtin_ctzll(rest)];
        status = uct_iface_event_arm(lane->child, events);
        if (status == UCS_OK && lane->rma_child != NULL) {
            status = uct_iface_event_arm(lane->rma_child, events);
        }
        if (status != UCS_OK) {
            return status;
        }
    }
    return UCS_OK;
}

/* By a rail of both, or through a neighbour that has one of the peer's. */
static int is_reachable(uct_mpath_iface_t *iface, const uct_mpath_device_addr_t *device,
                        const uct_mpath_iface_addr_t *address)
{
    return uct_mpath_address_reachable(iface, device, address) != 0 || uct_mpath_route_reachable(iface, device) != 0;
}

#if HAVE_UCT_IFACE_INTERNAL_OPS_T_IFACE_IS_REACHABLE_V2
static int iface_is_reachable_v2(const uct_iface_h tl_iface, const uct_iface_is_reachable_params_t *params)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);

    if (!uct_iface_is_reachable_params_addrs_valid(params)) {
        return 0;
    }
    return is_reachable(iface, (const uct_mpath_device_addr_t *)params->device_addr,
                        (const uct_mpath_iface_addr_t *)params->iface_addr) &&
           uct_iface_scope_is_reachable(tl_iface, params);
}
#define IFACE_IS_REACHABLE uct_base_iface_is_reachable
#else
static int iface_is_reachable(const uct_iface_h tl_iface, const uct_device_addr_t *device,
                              const uct_iface_addr_t *address)
{
    return is_reachable(ucs_derived_of(tl_iface, uct_mpath_iface_t), (const uct_mpath_device_addr_t *)device,
                        (const uct_mpath_iface_addr_t *)address);
}
#define IFACE_IS_REACHABLE iface_is_reachable
#endif

uct_iface_internal_ops_t uct_mpath_iface_internal_ops = {
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_IFACE_QUERY_V2
    .iface_query_v2 = uct_iface_base_query_v2,
#endif
    .iface_estimate_perf = uct_base_iface_estimate_perf,
    .iface_vfs_refresh   = (uct_iface_vfs_refresh_func_t)ucs_empty_function,
    .ep_query            = (uct_ep_query_func_t)ucs_empty_function_return_unsupported,
    .ep_invalidate       = uct_mpath_ep_invalidate,
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_CONNECT_TO_EP_V2
    .ep_connect_to_ep_v2 = (uct_ep_connect_to_ep_v2_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_IFACE_IS_REACHABLE_V2
    .iface_is_reachable_v2 = iface_is_reachable_v2,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_IS_CONNECTED
    .ep_is_connected = uct_base_ep_is_connected,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_GET_DEVICE_EP
    .ep_get_device_ep = (uct_ep_get_device_ep_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_IFACE_MEM_ELEMENT_PACK
    .iface_mem_element_pack = (uct_iface_mem_element_pack_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_PUT_SGL_ZCOPY
    .ep_put_sgl_zcopy = (uct_ep_put_sgl_zcopy_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_GET_SGL_ZCOPY
    .ep_get_sgl_zcopy = (uct_ep_get_sgl_zcopy_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_OUTSTANDING_PURGE
    .ep_outstanding_purge = (uct_ep_outstanding_purge_func_t)ucs_empty_function_return_unsupported,
#endif
};

uct_iface_ops_t uct_mpath_iface_ops = {
    .ep_put_short             = uct_mpath_ep_put_short,
    .ep_put_bcopy             = uct_mpath_ep_put_bcopy,
    .ep_put_zcopy             = uct_mpath_ep_put_zcopy,
    .ep_get_bcopy             = uct_mpath_ep_get_bcopy,
    .ep_get_zcopy             = uct_mpath_ep_get_zcopy,
    .ep_am_short              = uct_mpath_ep_am_short,
    .ep_am_short_iov          = uct_mpath_ep_am_short_iov,
    .ep_am_bcopy              = uct_mpath_ep_am_bcopy,
    .ep_am_zcopy              = uct_mpath_ep_am_zcopy,
    .ep_pending_add           = uct_mpath_ep_pending_add,
    .ep_pending_purge         = uct_mpath_ep_pending_purge,
    .ep_flush                 = uct_mpath_ep_flush,
    .ep_fence                 = uct_mpath_ep_fence,
    .ep_check                 = uct_mpath_ep_check,
    .ep_create                = UCS_CLASS_NEW_FUNC_NAME(uct_mpath_ep_t),
    .ep_destroy               = UCS_CLASS_DELETE_FUNC_NAME(uct_mpath_ep_t),
    .iface_flush              = iface_flush,
    .iface_fence              = iface_fence,
    .iface_progress_enable    = uct_base_iface_progress_enable,
    .iface_progress_disable   = uct_base_iface_progress_disable,
    .iface_progress           = uct_mpath_iface_progress,
    .iface_event_fd_get       = iface_event_fd_get,
    .iface_event_arm          = iface_event_arm,
    .iface_close              = uct_mpath_iface_close,
    .iface_query              = iface_query,
    .iface_get_device_address = uct_mpath_get_device_address,
    .iface_get_address        = uct_mpath_get_iface_address,
    .iface_is_reachable       = IFACE_IS_REACHABLE,
};
