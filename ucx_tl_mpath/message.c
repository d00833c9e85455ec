/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of other processes: one check for each, and all of them here. */
#include "ucx_tl_mpath/message.h"

#include "ucx_tl_mpath/wire.h"

#include <string.h>

static int is_packet(const char *data, size_t length, size_t segment_bytes)
{
    uct_mpath_packet_header_t header;
    uct_mpath_get_t get;

    if (length < sizeof(header) || length > segment_bytes) {
        return 0;
    }
    memcpy(&header, data, sizeof(header));
    length -= sizeof(header);
    if (header.rail >= UCT_MPATH_MAX_RAILS) {
        return 0;
    }
    switch (header.kind_am >> 5) {
    case UCT_MPATH_AM:
        return 1;
    case UCT_MPATH_PUT:
        return length >= sizeof(uct_mpath_place_t);
    case UCT_MPATH_GET:
        if (length != sizeof(get)) {
            return 0;
        }
        memcpy(&get, data + sizeof(header), sizeof(get));
        return get.length_bytes <= segment_bytes - UCT_MPATH_REPLY_HEAD;
    case UCT_MPATH_GET_REPLY:
        return length >= sizeof(uint64_t);
    default:
        return 0;
    }
}

static int is_ack(const char *data, size_t length)
{
    uct_mpath_ack_t head;
    unsigned i;

    if (length < sizeof(head)) {
        return 0;
    }
    memcpy(&head, data, sizeof(head));
    if (head.count > UCT_MPATH_MAX_RAILS || length != sizeof(head) + head.count * sizeof(head.entries[0])) {
        return 0;
    }
    for (i = 0; i < head.count; ++i) {
        if (((const uct_mpath_ack_t *)data)->entries[i].rail >= UCT_MPATH_MAX_RAILS) {
            return 0;
        }
    }
    return 1;
}

static int is_rma(const char *data, size_t length)
{
    uct_mpath_rma_message_t head;

    if (length < sizeof(head)) {
        return 0;
    }
    memcpy(&head, data, sizeof(head));
    return head.rail < UCT_MPATH_MAX_RAILS && head.device_length <= UCT_MPATH_RMA_ADDRESS_MAX &&
           head.ep_length <= UCT_MPATH_RMA_ADDRESS_MAX && length == sizeof(head) + head.device_length + head.ep_length;
}

static int are_addresses(uint8_t device_length, uint8_t iface_length)
{
    return device_length <= UCT_MPATH_ADDRESS_MAX && iface_length <= UCT_MPATH_ADDRESS_MAX;
}

/* A power of two, as windows are. */
static int is_window(uint32_t window)
{
    return window != 0 && (window & (window - 1)) == 0;
}

static int is_hello(const char *data, size_t length)
{
    const uct_mpath_hello_t *hello = (const uct_mpath_hello_t *)data;
    const uct_mpath_hello_rail_t *rail;
    unsigned i;

    if (length < sizeof(*hello) || hello->num_rails > UCT_MPATH_MAX_RAILS ||
        length != sizeof(*hello) + hello->num_rails * sizeof(hello->rails[0]) || hello->uid == 0 ||
        hello->rail >= UCT_MPATH_MAX_RAILS || !is_window(hello->window)) {
        return 0;
    }
    for (i = 0; i < hello->num_rails; ++i) {
        rail = &hello->rails[i];
        if (rail->rail >= UCT_MPATH_MAX_RAILS || !are_addresses(rail->device_length, rail->iface_length)) {
            return 0;
        }
    }
    return 1;
}

static int is_relay(const char *data, size_t length)
{
    const uct_mpath_relay_head_t *head = (const uct_mpath_relay_head_t *)data;

    return length >= sizeof(*head) && head->rail < UCT_MPATH_MAX_RAILS && head->id < UCT_MPATH_ID_LAST &&
           head->source != 0 && head->destination != 0;
}

/* The rail of shared memory has a number of its own. */
static int is_trunk(const char *data, size_t length)
{
    const uct_mpath_trunk_t *trunk = (const uct_mpath_trunk_t *)data;

    return length == sizeof(*trunk) && trunk->uid != 0 && trunk->rail < UCT_MPATH_MAX_RAILS &&
           are_addresses(trunk->device_length, trunk->iface_length);
}

int mpath_message_is_whole(uint8_t id, const void *data, size_t length, size_t segment_bytes)
{
    switch (id) {
    case UCT_MPATH_ID_PACKET:
        return is_packet(data, length, segment_bytes);
    case UCT_MPATH_ID_ACK:
        return is_ack(data, length);
    case UCT_MPATH_ID_PROBE:
        return length == sizeof(uct_mpath_probe_message_t) &&
               ((const uct_mpath_probe_message_t *)data)->probe.rail < UCT_MPATH_MAX_RAILS;
    case UCT_MPATH_ID_REFUSED:
        return length == sizeof(uct_mpath_link_t);
    case UCT_MPATH_ID_RMA:
        return is_rma(data, length);
    case UCT_MPATH_ID_HELLO:
        return is_hello(data, length);
    case UCT_MPATH_ID_RELAY:
        return is_relay(data, length);
    case UCT_MPATH_ID_TRUNK:
    case UCT_MPATH_ID_ROUTE:
        return is_trunk(data, length);
    case UCT_MPATH_ID_CREDIT:
        return length == sizeof(uct_mpath_credit_t);
    case UCT_MPATH_ID_DOWN:
        return length == 0;
    default:
        return 0;
    }
}
