/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connections of the rails' second transports. Each side makes an endpoint and tells its address; whoever knows the
 * other's address connects and says so; a rail is used once both have. An endpoint that fails is replaced after a while
 * by one of a higher generation, and a side that hears of a higher generation than its own makes a new one too.
 */
#include "ucx_tl_mpath/rma.h"

#include "util/time.h"

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
        uct_mpath_rma_link_broken(peer, rail);
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
            uct_mpath_rma_link_broken(peer, rail);
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

void uct_mpath_rma_link_broken(uct_mpath_peer_t *peer, unsigned rail)
{
    uct_mpath_rma_link_t *link = &peer->rails[rail].rma;

    if (link->ep != NULL && !link->broken) {
        link->broken = 1;
        peer->rma_mask &= ~UCS_BIT(rail);
        ++peer->iface->lost_rails;
        uct_mpath_peer_set_busy(peer);
    }
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
            uct_mpath_rma_link_broken(peer, lane->number);
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
