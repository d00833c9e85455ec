/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes the checks of the UCX transport's messages: nothing behind the end is read, and all that an accepted message
 * announces lies within it and within the tables that it is for.
 */
#include "ucx_tl_mpath/message.h"

#include "ucx_tl_mpath/wire.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENT 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void use_packet(const uint8_t *data, size_t length)
{
    const uct_mpath_packet_header_t *header = (const uct_mpath_packet_header_t *)data;
    uct_mpath_get_t get;

    check(length <= SEGMENT && header->rail < UCT_MPATH_MAX_RAILS && header->kind_am >> 5 <= UCT_MPATH_GET_REPLY);
    switch (header->kind_am >> 5) {
    case UCT_MPATH_GET:
        memcpy(&get, header + 1, sizeof(get));
        check(UCT_MPATH_REPLY_HEAD + (size_t)get.length_bytes <= SEGMENT);
        break;
    case UCT_MPATH_PUT:
        check(length >= UCT_MPATH_PUT_HEAD);
        break;
    case UCT_MPATH_GET_REPLY:
        check(length >= UCT_MPATH_REPLY_HEAD);
        break;
    default:
        break;
    }
}

static void use_hello(const uint8_t *data, size_t length)
{
    const uct_mpath_hello_t *hello = (const uct_mpath_hello_t *)data;
    unsigned i;

    check(hello->rail < UCT_MPATH_MAX_RAILS && hello->num_rails <= UCT_MPATH_MAX_RAILS);
    for (i = 0; i < hello->num_rails; ++i) {
        check((const uint8_t *)&hello->rails[i + 1] <= data + length);
        check(hello->rails[i].rail < UCT_MPATH_MAX_RAILS && hello->rails[i].device_length <= UCT_MPATH_ADDRESS_MAX &&
              hello->rails[i].iface_length <= UCT_MPATH_ADDRESS_MAX);
    }
}

static void use(uint8_t id, const uint8_t *data, size_t length)
{
    const uct_mpath_rma_message_t *rma = (const uct_mpath_rma_message_t *)data;
    const uct_mpath_ack_t *ack         = (const uct_mpath_ack_t *)data;
    const uct_mpath_trunk_t *trunk     = (const uct_mpath_trunk_t *)data;
    unsigned i;

    switch (id) {
    case UCT_MPATH_ID_PACKET:
        use_packet(data, length);
        break;
    case UCT_MPATH_ID_ACK:
        for (i = 0; i < ack->count; ++i) {
            check((const uint8_t *)&ack->entries[i + 1] <= data + length && ack->entries[i].rail < UCT_MPATH_MAX_RAILS);
        }
        break;
    case UCT_MPATH_ID_HELLO:
        use_hello(data, length);
        break;
    case UCT_MPATH_ID_RMA:
        check(rma->addresses + rma->device_length + rma->ep_length <= data + length && rma->rail < UCT_MPATH_MAX_RAILS);
        break;
    case UCT_MPATH_ID_RELAY:
        check(((const uct_mpath_relay_head_t *)data)->rail < UCT_MPATH_MAX_RAILS);
        if (length > sizeof(uct_mpath_relay_head_t)) {
            (void)mpath_message_is_whole(((const uct_mpath_relay_head_t *)data)->id,
                                         data + sizeof(uct_mpath_relay_head_t), length - sizeof(uct_mpath_relay_head_t),
                                         SEGMENT);
        }
        break;
    case UCT_MPATH_ID_TRUNK:
    case UCT_MPATH_ID_ROUTE:
        check(trunk->rail < UCT_MPATH_MAX_RAILS && trunk->device_length <= UCT_MPATH_ADDRESS_MAX &&
              trunk->iface_length <= UCT_MPATH_ADDRESS_MAX);
        break;
    default:
        break;
    }
}

/* The first byte is the id. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;

    if (size == 0) {
        return 0;
    }
    copy = malloc(size > 1 ? size - 1 : 1); /* so that reading further shows */
    check(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    if (mpath_message_is_whole(data[0], copy, size - 1, SEGMENT)) {
        use(data[0], copy, size - 1);
    }
    free(copy);
    return 0;
}
