/* SPDX-License-Identifier: BSD-3-Clause */
/* What arrives for relays: messages for this interface are taken out of their heads, others passed on; greetings of
 * trunks, requests of neighbours, and credits. */
#include "ucx_tl_mpath/message.h"
#include "ucx_tl_mpath/relay.h"
#include "ucx_tl_mpath/rma.h"

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
ucs_status_t uct_mpath_trunk_message(void *arg, void *data, size_t length, unsigned flags)
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
