/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interfaces of the child transports, opened through the public interface of UCT like by any other user, and what
 * they call for messages of relays: those for this interface are taken out of their heads, others passed on; greetings
 * of trunks, requests of neighbours, and credits.
 */
#include "ucx_tl_mpath/message.h"
#include "ucx_tl_mpath/relay.h"
#include "ucx_tl_mpath/rma.h"

#include <string.h>

static int is_whole(const uct_mpath_lane_t *lane, uint8_t id, const void *data, size_t length)
{
    return mpath_message_is_whole(id, data, length, lane->iface->segment_bytes);
}

/* As if it had come over the rail itself. */
static void take(uct_mpath_iface_t *iface, const uct_mpath_relay_head_t *head, void *data, size_t length)
{
    uct_mpath_lane_t *lane = &iface->lanes[head->rail];

    switch (head->id) {
    case UCT_MPATH_ID_PACKET:
        uct_mpath_packet_received(lane, data, length, 0);
        break;
    case UCT_MPATH_ID_ACK:
        uct_mpath_ack_message(lane, data, length, 0);
        break;
    case UCT_MPATH_ID_PROBE:
        uct_mpath_probe_message(lane, data, length, 0);
        break;
    case UCT_MPATH_ID_HELLO:
        uct_mpath_hello_message(lane, data, length, 0);
        break;
    case UCT_MPATH_ID_RMA:
        uct_mpath_rma_message(lane, data, length, 0);
        break;
    case UCT_MPATH_ID_REFUSED:
        uct_mpath_refused_message(lane, data, length, 0);
        break;
    case UCT_MPATH_ID_DOWN:
        uct_mpath_route_down(iface->relay, head);
        break;
    default:
        break; /* not for the far end of a relayed rail */
    }
}

ucs_status_t uct_mpath_relay_message(void *arg, void *data, size_t length, unsigned flags)
{
    const uct_mpath_lane_t *lane       = arg;
    const uct_mpath_relay_head_t *head = data;
    uct_mpath_iface_t *iface           = lane->iface;

    (void)flags;
    if (!is_whole(lane, UCT_MPATH_ID_RELAY, data, length)) {
        uct_mpath_stranger_note(iface, lane->name);
        return UCS_OK;
    }
    if (iface->relay == NULL) {
        return UCS_OK;
    }
    if (head->destination == iface->uid) {
        take(iface, head, (char *)data + sizeof(*head), length - sizeof(*head));
    } else {
        uct_mpath_hop_pass_on(iface->relay, head, (const char *)data + sizeof(*head), length - sizeof(*head),
                              lane->number);
    }
    return UCS_OK;
}

/*
 * The other end is there, perhaps once more: all its slots are free, and what is owed to its earlier self is forgotten.
 */
static ucs_status_t trunk_message(void *arg, void *data, size_t length, unsigned flags)
{
    const uct_mpath_lane_t *lane   = arg;
    const uct_mpath_trunk_t *trunk = data;
    uct_mpath_hop_t *hop;

    (void)flags;
    if (!is_whole(lane, UCT_MPATH_ID_TRUNK, data, length) || trunk->to != lane->iface->uid) {
        uct_mpath_stranger_note(lane->iface, lane->name);
        return UCS_OK;
    }
    if (lane->iface->relay == NULL || trunk->rail != lane->number ||
        trunk->device_length != lane->attr.device_addr_len || trunk->iface_length != lane->attr.iface_addr_len) {
        return UCS_OK;
    }
    hop = uct_mpath_hop_trunk(lane->iface->relay, lane->number, trunk->uid, trunk->device, trunk->iface);
    if (hop != NULL) {
        hop->credits = UCT_MPATH_RELAY_SLOTS;
    }
    return UCS_OK;
}

/* A neighbour wants to be relayed to an interface on another node. */
ucs_status_t uct_mpath_route_message(void *arg, void *data, size_t length, unsigned flags)
{
    const uct_mpath_lane_t *shm    = arg;
    const uct_mpath_trunk_t *trunk = data;
    const uct_mpath_lane_t *lane;

    (void)flags;
    if (!is_whole(shm, UCT_MPATH_ID_ROUTE, data, length) || trunk->to != shm->iface->uid) {
        return UCS_OK;
    }
    lane = &shm->iface->lanes[trunk->rail];
    if (lane->child != NULL && trunk->device_length == lane->attr.device_addr_len &&
        trunk->iface_length == lane->attr.iface_addr_len) {
        /* Without success its messages find no trunk, and it is told. */
        (void)uct_mpath_hop_trunk(shm->iface->relay, trunk->rail, trunk->uid, trunk->device, trunk->iface);
    }
    return UCS_OK;
}

ucs_status_t uct_mpath_credit_message(void *arg, void *data, size_t length, unsigned flags)
{
    const uct_mpath_lane_t *lane     = arg;
    const uct_mpath_credit_t *credit = data;
    uct_mpath_hop_t *hop;

    (void)flags;
    if (lane->iface->relay == NULL || !is_whole(lane, UCT_MPATH_ID_CREDIT, data, length)) {
        return UCS_OK;
    }
    if (credit->uid == lane->iface->uid) {
        lane->iface->relay->echo_under_way = 0;
        return UCS_OK;
    }
    hop = uct_mpath_hop_find(lane->iface->relay, credit->uid, lane->number);
    if (hop != NULL) {
        /* More come back only from slots that an earlier connection had taken. */
        hop->credits = credit->count < UCT_MPATH_RELAY_SLOTS - hop->credits ? hop->credits + credit->count
                                                                            : UCT_MPATH_RELAY_SLOTS;
    }
    return UCS_OK;
}

/* The rail and the peer are found by the child's endpoint; this is rare, so they are searched. */
static ucs_status_t child_failed(void *arg, uct_ep_h child, ucs_status_t status)
{
    uct_mpath_lane_t *lane = arg;
    uct_mpath_peer_t *peer;
    uint32_t handle;

    (void)status;
    if (uct_mpath_hop_child_failed(lane->iface, child) || lane->number >= UCT_MPATH_MAX_RAILS) {
        return UCS_OK;
    }
    for (handle = 0; handle < lane->iface->num_peers; ++handle) {
        peer = lane->iface->peers[handle];
        if (peer != NULL && peer->rails[lane->number].ep == child) {
            uct_mpath_peer_rail_broken(peer, lane->number);
            break;
        }
    }
    return UCS_OK;
}

/* Connecting must not block: a rail without a link would hold up all others. UCX's own variables are still obeyed. */
static void adapt_config(const char *transport, size_t message_bytes, uct_iface_config_t *config)
{
    char value[32];

    if (strcmp(transport, "tcp") == 0) {
        uct_config_modify(config, "CONN_NB", "y");
    }
    if (message_bytes > 0) { /* of transports in shared memory, between relays; buffers are of that size */
        ucs_snprintf_zero(value, sizeof(value), "%zu", message_bytes);
        uct_config_modify(config, "MM_SEG_SIZE", value);
        uct_config_modify(config, "MM_FIFO_SIZE", "64");
        uct_config_modify(config, "MM_RX_BUFS_GROW", "65");
    }
}

static ucs_status_t open_child(uct_mpath_lane_t *lane, uct_md_h child_md, const char *transport, const char *device,
                               uct_worker_h worker, const uct_iface_params_t *user, size_t message_bytes,
                               ucs_status_t (*failed)(void *, uct_ep_h, ucs_status_t), uct_iface_h *child_p,
                               uct_iface_attr_t *attr)
{
    uct_iface_params_t params = {.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                                               UCT_IFACE_PARAM_FIELD_RX_HEADROOM | UCT_IFACE_PARAM_FIELD_ERR_HANDLER |
                                               UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                                               UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS |
                                               (user->field_mask & UCT_IFACE_PARAM_FIELD_CPU_MASK),
                                 .open_mode       = UCT_IFACE_OPEN_MODE_DEVICE,
                                 .err_handler     = failed,
                                 .err_handler_arg = lane};
    uct_iface_config_t *config;
    uct_iface_h child;
    ucs_status_t status;

    if (user->field_mask & UCT_IFACE_PARAM_FIELD_CPU_MASK) {
        params.cpu_mask = user->cpu_mask;
    }
    params.mode.device.tl_name  = transport;
    params.mode.device.dev_name = device;
    status                      = uct_md_iface_config_read(child_md, transport, NULL, NULL, &config);
    if (status != UCS_OK) {
        return status;
    }
    adapt_config(transport, message_bytes, config);
    status = uct_iface_open(child_md, worker, &params, config, &child);
    uct_config_release(config);
    if (status != UCS_OK) {
        return status;
    }
    status = uct_iface_query(child, attr);
    if (status != UCS_OK) {
        uct_iface_close(child);
        return status;
    }
    *child_p = child;
    return UCS_OK;
}

ucs_status_t uct_mpath_child_open(uct_mpath_lane_t *lane, uct_md_h child_md, const char *transport, const char *device,
                                  uct_worker_h worker, const uct_iface_params_t *user, size_t message_bytes)
{
    return open_child(lane, child_md, transport, device, worker, user, message_bytes, child_failed, &lane->child,
                      &lane->attr);
}

/* A rail's second transport, for remote access. One that cannot be used is left out: messages do it then. */
static void open_rma(uct_mpath_lane_t *lane, const uct_mpath_md_t *md, const uct_mpath_rail_t *rail,
                     uct_worker_h worker, const uct_iface_params_t *user)
{
    const uct_mpath_child_md_t *child = &md->children[rail->rma_child];

    if (rail->rma_transport[0] == '\0') {
        return;
    }
    lane->rma_md_child   = rail->rma_child;
    lane->rma_needs_rkey = child->rkey_bytes > 0;
    if (open_child(lane, child->md, rail->rma_transport, rail->device, worker, user, 0, uct_mpath_rma_child_failed,
                   &lane->rma_child, &lane->rma_attr) != UCS_OK) {
        ucs_diag("mpath: rail %s has no remote access: %s does not open", rail->device, rail->rma_transport);
        return;
    }
    if (!(lane->rma_attr.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_EP) ||
        !(lane->rma_attr.cap.flags & (UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_ZCOPY)) ||
        lane->rma_attr.device_addr_len > UCT_MPATH_RMA_ADDRESS_MAX ||
        lane->rma_attr.ep_addr_len > UCT_MPATH_RMA_ADDRESS_MAX || (lane->rma_needs_rkey && !rail->has_rkey)) {
        ucs_diag("mpath: rail %s has no remote access: %s cannot be used for it", rail->device, rail->rma_transport);
        uct_iface_close(lane->rma_child);
        lane->rma_child = NULL;
        return;
    }
    uct_iface_progress_enable(lane->rma_child, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    lane->iface->rma_lanes |= UCS_BIT(lane->number);
}

static int usable_child(const uct_mpath_lane_t *lane)
{
    uint64_t needed = UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY;

    return (lane->attr.cap.flags & needed) == needed && lane->attr.device_addr_len <= UCT_MPATH_ADDRESS_MAX &&
           lane->attr.iface_addr_len <= UCT_MPATH_ADDRESS_MAX;
}

static ucs_status_t take_handlers(uct_mpath_lane_t *lane)
{
    static const uct_am_callback_t handlers[UCT_MPATH_ID_LAST] = {[UCT_MPATH_ID_PACKET]  = uct_mpath_packet_received,
                                                                  [UCT_MPATH_ID_ACK]     = uct_mpath_ack_message,
                                                                  [UCT_MPATH_ID_PROBE]   = uct_mpath_probe_message,
                                                                  [UCT_MPATH_ID_HELLO]   = uct_mpath_hello_message,
                                                                  [UCT_MPATH_ID_RMA]     = uct_mpath_rma_message,
                                                                  [UCT_MPATH_ID_RELAY]   = uct_mpath_relay_message,
                                                                  [UCT_MPATH_ID_TRUNK]   = trunk_message,
                                                                  [UCT_MPATH_ID_CREDIT]  = uct_mpath_credit_message,
                                                                  [UCT_MPATH_ID_REFUSED] = uct_mpath_refused_message};
    ucs_status_t status;
    uint8_t id;

    for (id = 0; id < UCT_MPATH_ID_LAST; ++id) {
        if (handlers[id] == NULL) {
            continue;
        }
        status = uct_iface_set_am_handler(lane->child, id, handlers[id], lane, 0);
        if (status != UCS_OK) {
            return status;
        }
    }
    status = uct_iface_get_device_address(lane->child, (uct_device_addr_t *)lane->device_addr);
    return status == UCS_OK ? uct_iface_get_address(lane->child, (uct_iface_addr_t *)lane->iface_addr) : status;
}

static uint64_t child_rate_bps(const uct_mpath_lane_t *lane, const uct_mpath_rail_t *rail)
{
    double bps = lane->attr.bandwidth.dedicated + lane->attr.bandwidth.shared;

    return rail->rate_bps > 0 ? rail->rate_bps : (uint64_t)bps;
}

/* The limits of a packet are those of the weakest lane. */
static void narrow_limits(uct_mpath_iface_t *iface, uct_mpath_lane_t *lane, int need_memh)
{
    const uct_iface_attr_t *attr = &lane->attr;
    size_t segment;

    lane->zcopy = (attr->cap.flags & UCT_IFACE_FLAG_AM_ZCOPY) && !need_memh && attr->cap.am.max_iov > 0 &&
                  attr->cap.am.max_hdr >= UCT_MPATH_MAX_HEADER;
    segment = lane->zcopy ? attr->cap.am.max_zcopy : attr->cap.am.max_bcopy;
    if (segment < iface->segment_bytes) {
        iface->segment_bytes = segment;
    }
    if (attr->cap.am.max_short < iface->short_bytes) {
        iface->short_bytes = attr->cap.am.max_short;
    }
    if (lane->zcopy && attr->cap.am.max_iov < iface->max_iov) {
        iface->max_iov = attr->cap.am.max_iov;
    }
}

ucs_status_t uct_mpath_lanes_open(uct_mpath_iface_t *iface, uct_mpath_md_t *md, uct_worker_h worker,
                                  const uct_iface_params_t *params)
{
    uct_mpath_lane_t *lane;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < UCT_MPATH_MAX_RAILS; ++i) {
        iface->lanes[i].iface  = iface;
        iface->lanes[i].number = (uint8_t)i;
    }
    for (i = 0; i < md->num_rails; ++i) {
        lane           = &iface->lanes[md->rails[i].number];
        lane->md_child = md->rails[i].child;
        ucs_snprintf_zero(lane->name, sizeof(lane->name), "%s", md->rails[i].device);
        status = open_child(lane, md->children[md->rails[i].child].md, md->rails[i].transport, md->rails[i].device,
                            worker, params, 0, child_failed, &lane->child, &lane->attr);
        if (status == UCS_OK) {
            status = usable_child(lane) ? take_handlers(lane) : UCS_ERR_UNSUPPORTED;
        }
        if (status != UCS_OK) {
            ucs_diag("mpath: rail %s (%s) left out: %s", md->rails[i].device, md->rails[i].transport,
                     ucs_status_string(status));
            if (lane->child != NULL) {
                uct_iface_close(lane->child);
                lane->child = NULL;
            }
            continue;
        }
        lane->rate_bps = child_rate_bps(lane, &md->rails[i]);
        mpath_spread_rail_init(&lane->load, lane->rate_bps);
        narrow_limits(iface, lane, md->children[md->rails[i].child].need_memh);
        iface->lanes_mask |= UCS_BIT(lane->number);
        open_rma(lane, md, &md->rails[i], worker, params);
    }
    return iface->lanes_mask != 0 ? UCS_OK : UCS_ERR_NO_DEVICE;
}

void uct_mpath_lanes_close(uct_mpath_iface_t *iface)
{
    unsigned i;

    for (i = 0; i < UCT_MPATH_MAX_RAILS; ++i) {
        if (iface->lanes[i].rma_child != NULL) {
            uct_iface_close(iface->lanes[i].rma_child);
            iface->lanes[i].rma_child = NULL;
        }
        if (iface->lanes[i].child != NULL) {
            uct_iface_close(iface->lanes[i].child);
            iface->lanes[i].child = NULL;
        }
    }
}

void uct_mpath_lanes_report(const uct_mpath_iface_t *iface)
{
    const uct_mpath_lane_t *lane;
    unsigned i;

    for (i = 0; i < UCT_MPATH_MAX_RAILS; ++i) {
        lane = &iface->lanes[i];
        if (lane->child != NULL || lane->sent_packets > 0) {
            fprintf(stderr, "mpath rail %u %s: sent %lu packets %lu bytes, received %lu packets %lu bytes\n", i,
                    lane->name, (unsigned long)lane->sent_packets, (unsigned long)lane->sent_bytes,
                    (unsigned long)lane->received_packets, (unsigned long)lane->received_bytes);
        }
    }
    fprintf(stderr,
            "mpath: %lu packets sent again, %lu connections of rails lost, %lu plans, %lu bytes by remote access\n",
            (unsigned long)iface->resent_packets, (unsigned long)iface->lost_rails, (unsigned long)iface->plans,
            (unsigned long)iface->rma_bytes);
    if (iface->strangers > 0) {
        fprintf(stderr, "mpath: %lu messages of senders that are none of the job's processes were dropped\n",
                (unsigned long)iface->strangers);
    }
    if (iface->relay != NULL) {
        fprintf(stderr, "mpath relay: passed on %lu messages %lu bytes\n", (unsigned long)iface->relay->passed_messages,
                (unsigned long)iface->relay->passed_bytes);
    }
}
