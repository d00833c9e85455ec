/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Remote access. By the rails themselves where they can (rma.h), each as one access over one rail; else by messages: puts
 * carry their address along, gets ask the peer for their bytes. Both are served by the progress of the peer, as the puts
 * of UCX's TCP transport are.
 *
 * The connections of the second transports of the rails: each side makes an endpoint and tells its address; whoever knows
 * the address of the other connects and says so; a rail is used once both have. An endpoint that fails is replaced after
 * a while by one of a higher generation, and a side that hears of a higher generation than its own makes a new one too.
 */
#include "ucx_tl_mpath/rma.h"
#include "ucx_tl_mpath/counters.h"
#include "ucx_tl_mpath/ep.h"

#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_NS (2 * MPATH_NS_PER_S)

static int is_newer(uint8_t generation, uint8_t than)
{
    return (int8_t)(generation - than) > 0;
}

/* Forgets the endpoint; what it had under way comes back with an error. */
static void close_link(uct_mpath_peer_t *peer, unsigned rail)
{
    uct_mpath_rma_link_t *link = &peer->rails[rail].rma;
    uct_ep_h ep                = link->ep;

    peer->rma_mask &= ~UCS_BIT(rail);
    link->ep             = NULL;
    link->broken         = 0;
    link->connected      = 0;
    link->peer_connected = 0;
    link->message_due    = 0;
    if (ep != NULL) {
        uct_ep_destroy(ep);
    }
}

static ucs_status_t open_link(uct_mpath_peer_t *peer, unsigned rail, uint8_t generation)
{
    uct_mpath_rma_link_t *link = &peer->rails[rail].rma;
    uct_ep_params_t params     = {.field_mask = UCT_EP_PARAM_FIELD_IFACE, .iface = peer->iface->lanes[rail].rma_child};
    ucs_status_t status;

    status = uct_ep_create(&params, &link->ep);
    if (status != UCS_OK) {
        link->ep       = NULL;
        link->retry_ns = UINT64_MAX;
        ucs_diag("mpath: rail %s has no remote access: %s", peer->iface->lanes[rail].name, ucs_status_string(status));
        return status;
    }
    link->generation  = generation;
    link->message_due = 1;
    return UCS_OK;
}

static void rma_link_broken(uct_mpath_peer_t *peer, unsigned rail)
{
    uct_mpath_rma_link_t *link = &peer->rails[rail].rma;

    if (link->ep != NULL && !link->broken) {
        link->broken = 1;
        peer->rma_mask &= ~UCS_BIT(rail);
        ++peer->iface->lost_rails;
        uct_mpath_peer_set_busy(peer);
    }
}

static void send_message(uct_mpath_peer_t *peer, unsigned rail)
{
    const uct_mpath_lane_t *lane = &peer->iface->lanes[rail];
    uct_mpath_rma_link_t *link   = &peer->rails[rail].rma;
    struct {
        uct_mpath_rma_message_t head;
        uint8_t addresses[2 * UCT_MPATH_RMA_ADDRESS_MAX];
    } __attribute__((packed)) message = {.head = {.link          = peer->link,
                                                  .rail          = (uint8_t)rail,
                                                  .generation    = link->generation,
                                                  .connected     = link->connected,
                                                  .device_length = (uint8_t)lane->rma_attr.device_addr_len,
                                                  .ep_length     = (uint8_t)lane->rma_attr.ep_addr_len}};
    uint8_t *device                   = message.addresses;
    uint8_t *address                  = device + message.head.device_length;

    if (uct_iface_get_device_address(lane->rma_child, (uct_device_addr_t *)device) != UCS_OK ||
        uct_ep_get_address(link->ep, (uct_ep_addr_t *)address) != UCS_OK) {
        rma_link_broken(peer, rail);
        return;
    }
    if (uct_mpath_control_send(peer, UCT_MPATH_ID_RMA, &message,
                               sizeof(message.head) + message.head.device_length + message.head.ep_length) == UCS_OK) {
        link->message_due = 0;
    }
}

static void note_up(uct_mpath_peer_t *peer, unsigned rail)
{
    const uct_mpath_rma_link_t *link = &peer->rails[rail].rma;

    if (link->connected && link->peer_connected && !link->broken) {
        peer->rma_mask |= UCS_BIT(rail);
    }
}

static void take_message(uct_mpath_peer_t *peer, const uct_mpath_rma_message_t *message)
{
    uct_mpath_rma_link_t *link = &peer->rails[message->rail].rma;
    unsigned rail              = message->rail;

    if (link->ep != NULL && is_newer(message->generation, link->generation)) {
        close_link(peer, rail);
    }
    if (link->ep == NULL && (is_newer(message->generation, link->generation) || link->generation == 0)) {
        if (open_link(peer, rail, message->generation) != UCS_OK) {
            return;
        }
    }
    if (link->ep == NULL || link->broken || link->generation != message->generation) {
        return;
    }
    if (!link->connected) {
        if (uct_ep_connect_to_ep(link->ep, (const uct_device_addr_t *)message->addresses,
                                 (const uct_ep_addr_t *)(message->addresses + message->device_length)) != UCS_OK) {
            rma_link_broken(peer, rail);
            return;
        }
        link->connected   = 1;
        link->message_due = 1;
    }
    link->peer_connected |= message->connected;
    note_up(peer, rail);
}

ucs_status_t uct_mpath_rma_message(void *arg, void *data, size_t length, unsigned flags)
{
    const uct_mpath_lane_t *lane           = arg;
    const uct_mpath_rma_message_t *message = data;
    uct_mpath_peer_t *peer                 = uct_mpath_peer_of_message(lane, UCT_MPATH_ID_RMA, data, length);
    const uct_mpath_lane_t *target;

    (void)flags;
    if (peer == NULL) {
        return UCS_OK;
    }
    target = &lane->iface->lanes[message->rail];
    if (target->rma_child != NULL && message->device_length == target->rma_attr.device_addr_len &&
        message->ep_length == target->rma_attr.ep_addr_len) {
        take_message(peer, message);
        uct_mpath_peer_set_busy(peer);
    }
    return UCS_OK;
}

ucs_status_t uct_mpath_rma_child_failed(void *arg, uct_ep_h child, ucs_status_t status)
{
    uct_mpath_lane_t *lane = arg;
    uct_mpath_peer_t *peer;
    uint32_t handle;

    (void)status;
    for (handle = 0; handle < lane->iface->num_peers; ++handle) {
        peer = lane->iface->peers[handle];
        if (peer != NULL && peer->rails[lane->number].rma.ep == child) {
            rma_link_broken(peer, lane->number);
            break;
        }
    }
    return UCS_OK;
}

int uct_mpath_rma_links_progress(uct_mpath_peer_t *peer, uint64_t now_ns)
{
    uint64_t rest = peer->iface->rma_lanes;
    uct_mpath_rma_link_t *link;
    unsigned rail;
    int left = 0;

    for (; rest != 0; rest &= rest - 1) {
        rail = (unsigned)__builtin_ctzll(rest);
        link = &peer->rails[rail].rma;
        if (link->broken) {
            close_link(peer, rail);
            link->retry_ns = now_ns + RETRY_NS;
        }
        if (peer->opened && link->ep == NULL && (peer->up_mask & ~peer->relayed_mask & UCS_BIT(rail)) &&
            now_ns >= link->retry_ns) {
            open_link(peer, rail, (uint8_t)(link->generation + 1));
        }
        if (link->message_due) {
            send_message(peer, rail);
        }
        left |= link->message_due || link->broken ||
                (link->ep == NULL && link->retry_ns != UINT64_MAX && peer->opened &&
                 (peer->up_mask & ~peer->relayed_mask & UCS_BIT(rail)));
    }
    return left;
}

void uct_mpath_rma_links_close(uct_mpath_peer_t *peer)
{
    unsigned rail;

    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        close_link(peer, rail);
    }
}

/* -- by messages -- */

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

/* A put as a message: at least one byte, at most a segment. UCS_INPROGRESS: `comp` (may be NULL) will be told. */
static ucs_status_t put_message(uct_mpath_ep_t *ep, const uct_iov_t *iov, size_t iovcnt, const uct_mpath_place_t *place,
                                uct_completion_t *comp)
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
    get->id    = ep->peer->next_get++;
    get->bytes = length;
    get->ep    = ep;
    get->user  = comp;
    ucs_list_add_tail(&ep->peer->gets, &get->list);
    ++ep->peer->num_gets;
    return UCS_INPROGRESS;
}

/* A get, likewise. */
static ucs_status_t get_message(uct_mpath_ep_t *ep, const uct_iov_t *iov, size_t iovcnt, const uct_mpath_place_t *place,
                                uct_completion_t *comp)
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

/* -- by the rails -- */

static void finish(uct_mpath_rma_t *op, ucs_status_t status)
{
    uct_mpath_peer_t *peer = op->peer;
    uct_completion_t *user = op->user;

    ucs_list_del(&op->list);
    free(op);
    if (user != NULL) {
        uct_invoke_completion(user, status);
    }
    uct_mpath_peer_set_busy(peer);
}

static void child_done(uct_completion_t *child)
{
    uct_mpath_rma_t *op    = ucs_container_of(child, uct_mpath_rma_t, child);
    uct_mpath_peer_t *peer = op->peer;

    if (child->status == UCS_OK) {
        uct_mpath_load_delivered(peer, op->rail, op->bytes, mpath_time_ns());
        finish(op, UCS_OK);
        uct_mpath_peer_check_flushes(peer);
        return;
    }
    uct_mpath_load_lost(peer, op->rail, op->bytes);
    op->messages = 1;
    if (peer->rails[op->rail].rma.generation == op->generation) {
        rma_link_broken(peer, op->rail);
    }
    if (op->ep == NULL) { /* nobody waits for it */
        finish(op, UCS_ERR_CANCELED);
    }
    uct_mpath_peer_set_busy(peer);
}

/* Rails over which this access may go. */
static uint64_t usable_rails(const uct_mpath_peer_t *peer, int is_get, size_t bytes, size_t num_iov,
                             const uct_mpath_rkey_t *rkey)
{
    uint64_t usable = 0, rest = peer->rma_mask & peer->up_mask;
    const uct_mpath_lane_t *lane;
    unsigned rail;

    for (; rest != 0; rest &= rest - 1) {
        rail = (unsigned)__builtin_ctzll(rest);
        lane = &peer->iface->lanes[rail];
        if (is_get) {
            if (!(lane->rma_attr.cap.flags & UCT_IFACE_FLAG_GET_ZCOPY) || bytes < lane->rma_attr.cap.get.min_zcopy ||
                bytes > lane->rma_attr.cap.get.max_zcopy || num_iov > lane->rma_attr.cap.get.max_iov) {
                continue;
            }
        } else if (!(lane->rma_attr.cap.flags & UCT_IFACE_FLAG_PUT_ZCOPY) || bytes < lane->rma_attr.cap.put.min_zcopy ||
                   bytes > lane->rma_attr.cap.put.max_zcopy || num_iov > lane->rma_attr.cap.put.max_iov) {
            continue;
        }
        if (!lane->rma_needs_rkey || (rkey != NULL && (rkey->rails & UCS_BIT(rail)))) {
            usable |= UCS_BIT(rail);
        }
    }
    return usable;
}

static ucs_status_t post(uct_mpath_peer_t *peer, uct_mpath_rma_t *op, unsigned rail, const uct_mpath_rkey_t *rkey)
{
    const uct_mpath_lane_t *lane = &peer->iface->lanes[rail];
    uct_rkey_t child_rkey        = UCT_INVALID_RKEY;
    uct_iov_t iov[UCT_MPATH_MAX_IOV];
    ucs_status_t status;
    uct_ep_h ep;
    unsigned i;

    if (rkey != NULL && (rkey->rails & UCS_BIT(rail))) {
        child_rkey = rkey->child[rail].rkey;
    }
    for (i = 0; i < op->num_iov; ++i) {
        iov[i]      = op->iov[i];
        iov[i].memh = uct_mpath_child_memh(iov[i].memh, lane->rma_md_child);
    }
    op->rail         = (uint8_t)rail;
    op->generation   = peer->rails[rail].rma.generation;
    op->child.func   = child_done;
    op->child.count  = 1;
    op->child.status = UCS_OK;
    ep               = peer->rails[rail].rma.ep;
    status           = op->is_get ? uct_ep_get_zcopy(ep, iov, op->num_iov, op->place.address, child_rkey, &op->child)
                                  : uct_ep_put_zcopy(ep, iov, op->num_iov, op->place.address, child_rkey, &op->child);
    if (status != UCS_OK && status != UCS_INPROGRESS) {
        return status;
    }
    op->seq = peer->rma_next++;
    ucs_list_add_tail(&peer->rma, &op->list);
    uct_mpath_load_sent(peer, rail, op->bytes, mpath_time_ns());
    uct_mpath_count(MPATH_UCX_RMA_BYTES, op->bytes);
    peer->iface->rma_bytes += op->bytes;
    uct_mpath_peer_set_busy(peer);
    if (status == UCS_OK) { /* at once */
        op->child.status = UCS_OK;
        child_done(&op->child);
    }
    return UCS_INPROGRESS;
}

/* Relayed rails, over which an access may go in messages: none while one that does so is not sent yet. */
static uint64_t relayed_rails(const uct_mpath_peer_t *peer)
{
    uint64_t relayed = peer->iface->relays_idle ? 0 : peer->up_mask & peer->relayed_mask;
    const uct_mpath_rma_t *op;

    if (relayed == 0) {
        return 0;
    }
    ucs_list_for_each(op, &peer->rma, list)
    {
        if (op->messages == 1) {
            return 0;
        }
    }
    return relayed;
}

/* UCS_ERR_UNSUPPORTED: by messages, since no rail can, or since it would arrive first over a relayed one. */
static ucs_status_t pick_and_post(uct_mpath_peer_t *peer, uct_mpath_rma_t *op, uint64_t usable,
                                  const uct_mpath_rkey_t *rkey)
{
    ucs_status_t status, result = UCS_ERR_UNSUPPORTED;
    uint64_t relayed = relayed_rails(peer) & ~usable;
    int reference    = -1, rail;

    usable |= relayed;
    while ((rail = uct_mpath_rail_pick(peer, usable, 0, op->bytes, reference)) >= 0) {
        status = UCS_ERR_NO_RESOURCE;
        if (mpath_spread_has_room(&peer->loads[rail], peer->iface->segment_bytes)) {
            if (relayed & UCS_BIT(rail)) {
                return UCS_ERR_UNSUPPORTED;
            }
            status = post(peer, op, (unsigned)rail, rkey);
        }
        if (status == UCS_INPROGRESS) {
            return status;
        }
        usable &= ~UCS_BIT(rail);
        if (status == UCS_ERR_NO_RESOURCE) {
            reference = reference < 0 ? rail : reference;
            result    = UCS_ERR_NO_RESOURCE;
        } else {
            rma_link_broken(peer, (unsigned)rail);
        }
    }
    return reference >= 0 ? UCS_ERR_NO_RESOURCE : result;
}

static size_t message_bytes(const uct_mpath_iface_t *iface)
{
    return iface->segment_bytes - UCT_MPATH_PUT_HEAD;
}

/* The next progress sends them: the order of what waits is kept there. */
static void begin_messages(uct_mpath_peer_t *peer, uct_mpath_rma_t *op)
{
    op->seq      = peer->rma_next++;
    op->messages = 1;
    ucs_list_add_tail(&peer->rma, &op->list);
    uct_mpath_peer_set_busy(peer);
}

/* `iov` to or from the peer's memory. UCS_ERR_UNSUPPORTED: not by the rails now, one message will do;
 * UCS_INPROGRESS: `user` (may be NULL) will be told; UCS_ERR_NO_RESOURCE: later. */
static ucs_status_t rma_start(uct_mpath_ep_t *ep, int is_get, const uct_iov_t *iov, size_t iovcnt,
                              const uct_mpath_place_t *place, uct_rkey_t rkey_value, uct_completion_t *user)
{
    const uct_mpath_rkey_t *rkey = (const uct_mpath_rkey_t *)rkey_value;
    uct_mpath_peer_t *peer       = ep->peer;
    size_t bytes = 0, num_iov = 0, i;
    uct_mpath_rma_t *op;
    ucs_status_t status;
    uint64_t usable;

    if (peer->iface->rma_lanes == 0) {
        return UCS_ERR_UNSUPPORTED;
    }
    for (i = 0; i < iovcnt; ++i) {
        bytes += uct_mpath_iov_bytes(&iov[i]);
        num_iov += uct_mpath_iov_bytes(&iov[i]) > 0;
    }
    if (!peer->opened && bytes >= peer->iface->spread_bytes) {
        uct_mpath_peer_open_all(peer);
    }
    /* Behind a fence only messages know their place. */
    usable = mpath_psn_before(peer->tx.base, peer->fence_psn) ? 0 : usable_rails(peer, is_get, bytes, num_iov, rkey);
    if (usable == 0 && bytes <= message_bytes(peer->iface)) {
        return UCS_ERR_UNSUPPORTED;
    }
    op = calloc(1, sizeof(*op));
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    op->peer   = peer;
    op->ep     = ep;
    op->user   = user;
    op->place  = *place;
    op->bytes  = (uint32_t)bytes;
    op->is_get = (uint8_t)is_get;
    for (i = 0; i < iovcnt; ++i) {
        if (uct_mpath_iov_bytes(&iov[i]) > 0) {
            op->iov[op->num_iov++] = iov[i];
        }
    }
    status = usable == 0 ? UCS_ERR_UNSUPPORTED : pick_and_post(peer, op, usable, rkey);
    if (status == UCS_ERR_UNSUPPORTED && bytes > message_bytes(peer->iface)) {
        begin_messages(peer, op);
        return UCS_INPROGRESS;
    }
    if (status != UCS_INPROGRESS) {
        free(op);
    }
    return status;
}

/* The last message is done. */
static void messages_done(uct_completion_t *child)
{
    uct_mpath_rma_t *op    = ucs_container_of(child, uct_mpath_rma_t, child);
    uct_mpath_peer_t *peer = op->peer;

    finish(op, child->status);
    uct_mpath_peer_check_flushes(peer);
}

/* The part [first, first + bytes) of an access. */
static size_t slice(const uct_mpath_rma_t *op, size_t first, size_t bytes, uct_iov_t *iov)
{
    size_t count = 0, length, i;

    for (i = 0; i < op->num_iov && bytes > 0; ++i) {
        length = uct_mpath_iov_bytes(&op->iov[i]);
        if (first >= length) {
            first -= length;
            continue;
        }
        iov[count]        = op->iov[i];
        iov[count].buffer = (char *)op->iov[i].buffer + first;
        iov[count].length = length - first < bytes ? length - first : bytes;
        iov[count].count  = 1;
        bytes -= iov[count++].length;
        first = 0;
    }
    return count;
}

/* UCS_ERR_NO_RESOURCE: not all of it yet. */
static ucs_status_t send_messages(uct_mpath_rma_t *op)
{
    size_t most_bytes       = message_bytes(op->peer->iface), bytes, count;
    uct_mpath_place_t place = op->place;
    uct_iov_t iov[UCT_MPATH_MAX_IOV];
    ucs_status_t status;

    if (op->child.func != messages_done) {
        op->child.func   = messages_done;
        op->child.count  = 1; /* until all are sent */
        op->child.status = UCS_OK;
    }
    while (op->sent_bytes < op->bytes) {
        bytes         = op->bytes - op->sent_bytes < most_bytes ? op->bytes - op->sent_bytes : most_bytes;
        count         = slice(op, op->sent_bytes, bytes, iov);
        place.address = op->place.address + op->sent_bytes;
        status        = op->is_get ? get_message(op->ep, iov, count, &place, &op->child)
                                   : put_message(op->ep, iov, count, &place, &op->child);
        if (status == UCS_ERR_NO_RESOURCE || status == UCS_ERR_NO_MEMORY) {
            return UCS_ERR_NO_RESOURCE;
        }
        if (status != UCS_INPROGRESS) {
            uct_completion_update_status(&op->child, status);
            break;
        }
        ++op->child.count;
        op->sent_bytes += (uint32_t)bytes;
    }
    op->messages = 2;
    uct_invoke_completion(&op->child, UCS_OK); /* the one that it began with */
    return UCS_OK;
}

void uct_mpath_rma_retry(uct_mpath_peer_t *peer)
{
    uct_mpath_rma_t *op, *next;

    ucs_list_for_each_safe(op, next, &peer->rma, list)
    {
        if (op->messages == 1 && send_messages(op) != UCS_OK) {
            break;
        }
    }
    uct_mpath_peer_check_flushes(peer);
}

void uct_mpath_rma_forget(uct_mpath_peer_t *peer, uct_mpath_ep_t *ep)
{
    uct_mpath_rma_t *op, *next;

    ucs_list_for_each_safe(op, next, &peer->rma, list)
    {
        if (op->ep != ep) {
            continue;
        }
        op->ep   = NULL;
        op->user = NULL;
        if (op->messages) { /* which have been forgotten before */
            finish(op, UCS_ERR_CANCELED);
        }
    }
}

/* The children can only be made to let go of everything, which then takes its second way. */
int uct_mpath_rma_cancel(uct_mpath_peer_t *peer, uct_mpath_ep_t *ep)
{
    uct_mpath_rma_t *op, *next;
    int held = 0;

    ucs_list_for_each_safe(op, next, &peer->rma, list)
    {
        if (op->ep != ep) {
            continue;
        }
        if (op->messages == 0) {
            held = 1;
            rma_link_broken(peer, op->rail);
        } else if (op->messages == 1) { /* those that are sent have been cancelled */
            op->sent_bytes = op->bytes;
            (void)send_messages(op);
        }
    }
    return held;
}

void uct_mpath_rma_end(uct_mpath_peer_t *peer, ucs_status_t status)
{
    uct_mpath_rma_t *op;

    while (!ucs_list_is_empty(&peer->rma)) {
        op = ucs_list_head(&peer->rma, uct_mpath_rma_t, list);
        finish(op, status);
    }
}

/* -- the operations of endpoints -- */

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
    status = rma_start(ep, 0, iov, iovcnt, &place, rkey, comp);
    return status == UCS_ERR_UNSUPPORTED ? put_message(ep, iov, iovcnt, &place, comp) : status;
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
    status = rma_start(ep, 1, iov, iovcnt, &place, rkey, comp);
    return status == UCS_ERR_UNSUPPORTED ? get_message(ep, iov, iovcnt, &place, comp) : status;
}
