/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of the UCX transport: whole ones pass; what is cut, announces more than it has or points past a table does not. */
#include "ucx_tl_mpath/message.h"

#include "ucx_tl_mpath/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#define SEGMENT 65000

static char storage[SEGMENT + 1];

static int whole(uint8_t id, const void *data, size_t length)
{
    return mpath_message_is_whole(id, data, length, SEGMENT);
}

/* A message passes at its length, and neither shorter nor, unless `open`, longer. */
static void check_length(uint8_t id, const void *data, size_t length, int open)
{
    memset(storage + length, 0, sizeof(storage) - length);
    memmove(storage, data, length);
    assert_true(whole(id, storage, length));
    assert_false(whole(id, storage, length - 1));
    assert_false(whole(id, storage, 0));
    assert_int_equal(whole(id, storage, length + 1), open);
}

static void test_packets(void **state)
{
    struct {
        uct_mpath_packet_header_t header;
        uct_mpath_get_t get;
    } __attribute__((packed)) get    = {.header = {.kind_am = UCT_MPATH_GET << 5}};
    uct_mpath_packet_header_t header = {.kind_am = UCT_MPATH_AM << 5 | 31};

    (void)state;
    check_length(UCT_MPATH_ID_PACKET, &header, sizeof(header), 1);
    assert_true(whole(UCT_MPATH_ID_PACKET, storage, SEGMENT));
    assert_false(whole(UCT_MPATH_ID_PACKET, storage, SEGMENT + 1));
    header.rail = UCT_MPATH_MAX_RAILS;
    assert_false(whole(UCT_MPATH_ID_PACKET, &header, sizeof(header)));
    header.rail    = 0;
    header.kind_am = (UCT_MPATH_GET_REPLY + 1) << 5;
    assert_false(whole(UCT_MPATH_ID_PACKET, &header, sizeof(header)));
    check_length(UCT_MPATH_ID_PACKET, &get, sizeof(get), 0);
    /* A reply that is longer than a packet would be written behind its end. */
    get.get.length_bytes = SEGMENT - UCT_MPATH_REPLY_HEAD;
    assert_true(whole(UCT_MPATH_ID_PACKET, &get, sizeof(get)));
    get.get.length_bytes++;
    assert_false(whole(UCT_MPATH_ID_PACKET, &get, sizeof(get)));
    get.get.length_bytes = UINT32_MAX;
    assert_false(whole(UCT_MPATH_ID_PACKET, &get, sizeof(get)));
    memset(storage, 0, sizeof(storage));
    ((uct_mpath_packet_header_t *)storage)->kind_am = UCT_MPATH_PUT << 5;
    check_length(UCT_MPATH_ID_PACKET, storage, UCT_MPATH_PUT_HEAD, 1);
    ((uct_mpath_packet_header_t *)storage)->kind_am = UCT_MPATH_GET_REPLY << 5;
    check_length(UCT_MPATH_ID_PACKET, storage, UCT_MPATH_REPLY_HEAD, 1);
}

static void test_acks(void **state)
{
    struct {
        uct_mpath_ack_t head;
        uct_mpath_ack_entry_t entries[UCT_MPATH_MAX_RAILS + 1];
    } __attribute__((packed)) ack   = {.head = {.count = UCT_MPATH_MAX_RAILS}};
    uct_mpath_probe_message_t probe = {.probe = {.rail = UCT_MPATH_MAX_RAILS - 1}};
    uct_mpath_link_t refused        = {.handle = 0};

    (void)state;
    check_length(UCT_MPATH_ID_ACK, &ack, sizeof(ack) - sizeof(ack.entries[0]), 0);
    ack.head.count = UCT_MPATH_MAX_RAILS + 1;
    assert_false(whole(UCT_MPATH_ID_ACK, &ack, sizeof(ack)));
    ack.head.count      = 1;
    ack.entries[0].rail = UCT_MPATH_MAX_RAILS;
    assert_false(whole(UCT_MPATH_ID_ACK, &ack, sizeof(ack.head) + sizeof(ack.entries[0])));
    check_length(UCT_MPATH_ID_PROBE, &probe, sizeof(probe), 0);
    probe.probe.rail++;
    assert_false(whole(UCT_MPATH_ID_PROBE, &probe, sizeof(probe)));
    check_length(UCT_MPATH_ID_REFUSED, &refused, sizeof(refused), 0);
}

static void test_hello(void **state)
{
    struct {
        uct_mpath_hello_t head;
        uct_mpath_hello_rail_t rails[UCT_MPATH_MAX_RAILS + 1];
    } __attribute__((packed)) hello = {.head = {.uid = 1, .window = 1024, .num_rails = 2}};
    size_t length                   = sizeof(hello.head) + 2 * sizeof(hello.rails[0]);

    (void)state;
    check_length(UCT_MPATH_ID_HELLO, &hello, length, 0);
    hello.head.num_rails = UCT_MPATH_MAX_RAILS + 1;
    assert_false(whole(UCT_MPATH_ID_HELLO, &hello, sizeof(hello)));
    hello.head.num_rails         = 2;
    hello.rails[1].device_length = UCT_MPATH_ADDRESS_MAX + 1;
    assert_false(whole(UCT_MPATH_ID_HELLO, &hello, length));
    hello.rails[1].device_length = UCT_MPATH_ADDRESS_MAX;
    hello.rails[1].rail          = UCT_MPATH_MAX_RAILS;
    assert_false(whole(UCT_MPATH_ID_HELLO, &hello, length));
    hello.rails[1].rail = 0;
    hello.head.window   = 1000;
    assert_false(whole(UCT_MPATH_ID_HELLO, &hello, length));
    hello.head.window = 0;
    assert_false(whole(UCT_MPATH_ID_HELLO, &hello, length));
    hello.head.window = 1;
    assert_true(whole(UCT_MPATH_ID_HELLO, &hello, length));
    hello.head.uid = 0;
    assert_false(whole(UCT_MPATH_ID_HELLO, &hello, length));
}

static void test_rma(void **state)
{
    struct {
        uct_mpath_rma_message_t head;
        uint8_t addresses[2 * UCT_MPATH_RMA_ADDRESS_MAX + 1];
    } __attribute__((packed)) rma = {.head = {.device_length = 3, .ep_length = UCT_MPATH_RMA_ADDRESS_MAX}};

    (void)state;
    check_length(UCT_MPATH_ID_RMA, &rma, sizeof(rma.head) + 3 + UCT_MPATH_RMA_ADDRESS_MAX, 0);
    rma.head.device_length = UCT_MPATH_RMA_ADDRESS_MAX + 1;
    assert_false(whole(UCT_MPATH_ID_RMA, &rma, sizeof(rma)));
    rma.head = (uct_mpath_rma_message_t){.rail = UCT_MPATH_MAX_RAILS};
    assert_false(whole(UCT_MPATH_ID_RMA, &rma, sizeof(rma.head)));
}

static void test_relays(void **state)
{
    uct_mpath_relay_head_t head = {.source = 1, .destination = 2, .id = UCT_MPATH_ID_PACKET};
    uct_mpath_trunk_t trunk     = {.uid = 1, .device_length = UCT_MPATH_ADDRESS_MAX};
    uct_mpath_credit_t credit   = {.uid = 1, .count = UINT32_MAX};

    (void)state;
    check_length(UCT_MPATH_ID_RELAY, &head, sizeof(head), 1);
    head.rail = UCT_MPATH_MAX_RAILS;
    assert_false(whole(UCT_MPATH_ID_RELAY, &head, sizeof(head)));
    head.rail = 0;
    head.id   = UCT_MPATH_ID_LAST;
    assert_false(whole(UCT_MPATH_ID_RELAY, &head, sizeof(head)));
    check_length(UCT_MPATH_ID_TRUNK, &trunk, sizeof(trunk), 0);
    check_length(UCT_MPATH_ID_ROUTE, &trunk, sizeof(trunk), 0);
    trunk.iface_length = UCT_MPATH_ADDRESS_MAX + 1;
    assert_false(whole(UCT_MPATH_ID_ROUTE, &trunk, sizeof(trunk)));
    check_length(UCT_MPATH_ID_CREDIT, &credit, sizeof(credit), 0);
    assert_true(whole(UCT_MPATH_ID_DOWN, &head, 0));
    assert_false(whole(UCT_MPATH_ID_DOWN, &head, 1));
    assert_false(whole(UCT_MPATH_ID_LAST, &head, sizeof(head)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packets), cmocka_unit_test(test_acks),   cmocka_unit_test(test_hello),
        cmocka_unit_test(test_rma),     cmocka_unit_test(test_relays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
