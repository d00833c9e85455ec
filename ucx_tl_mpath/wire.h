/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels between two interfaces, as active messages of the rails' own transports. Each message starts with a
 * link: which connection of the receiver it belongs to, and a number that tells this connection from an earlier one.
 *
 *   UCT_MPATH_ID_PACKET   link, packet header, [place | get], data
 *   UCT_MPATH_ID_ACK      link, count, count times ack entry: packets that came over each rail since it was opened
 *   UCT_MPATH_ID_PROBE    link, probe: asks for an ack, and tells that a rail starts to count at zero
 *   UCT_MPATH_ID_REFUSED  link: a put or get was not done, since no memory is registered there
 *   UCT_MPATH_ID_RMA      link, address of an endpoint for remote access (rma.c)
 *   UCT_MPATH_ID_HELLO    hello: who I am, where my rails are, and by which link I am reached
 *   UCT_MPATH_ID_RELAY    relay head, one of the messages above: for another interface, or through one (relay.h)
 *   UCT_MPATH_ID_TRUNK    trunk: the first message between two interfaces that relay; where the sender is reached
 *   UCT_MPATH_ID_ROUTE    trunk: asks a neighbour to relay to the interface that it names
 *   UCT_MPATH_ID_CREDIT   credit: so many relayed messages of the receiver have been passed on
 *   UCT_MPATH_ID_DOWN     inside of a relay head only, without data: messages to this destination were lost
 *
 * Both ends have the same byte order, as everywhere in UCX. What a message must be before it is used stands in message.h.
 *
 * Anybody who reaches a rail's port can send messages. The uid of an interface is a secret (util/secret.h): it is told with
 * the address that the runtime carries, and to those who have shown that they know that of the teller. So the first message
 * of a connection names the uid of its receiver, and the later ones a nonce that came with the answer.
 */
#ifndef UCX_TL_MPATH_WIRE_H
#define UCX_TL_MPATH_WIRE_H

#include <stdint.h>

#define UCT_MPATH_WIRE_VERSION 5
#define UCT_MPATH_MAX_RAILS 16
#define UCT_MPATH_RMA_ADDRESS_MAX 32 /* bytes of a device or endpoint address for remote access */
#define UCT_MPATH_ADDRESS_MAX 32     /* bytes of a rail's device or interface address */

enum {
    UCT_MPATH_ID_PACKET,
    UCT_MPATH_ID_ACK,
    UCT_MPATH_ID_PROBE,
    UCT_MPATH_ID_HELLO,
    UCT_MPATH_ID_RMA,
    UCT_MPATH_ID_RELAY,
    UCT_MPATH_ID_TRUNK,
    UCT_MPATH_ID_ROUTE,
    UCT_MPATH_ID_CREDIT,
    UCT_MPATH_ID_DOWN,
    UCT_MPATH_ID_REFUSED,
    UCT_MPATH_ID_LAST
};

typedef struct uct_mpath_link {
    uint32_t handle; /* of the receiver's table of peers */
    uint64_t nonce;  /* the receiver's, a secret of this connection */
} __attribute__((packed)) uct_mpath_link_t;

typedef enum uct_mpath_kind {
    UCT_MPATH_AM,
    UCT_MPATH_PUT,      /* followed by uct_mpath_place_t */
    UCT_MPATH_GET,      /* followed by uct_mpath_get_t, no data */
    UCT_MPATH_GET_REPLY /* followed by the id of the get as 64 bits */
} uct_mpath_kind_t;

enum {
    UCT_MPATH_ACK_SOON = 1u << 0, /* somebody waits for the acknowledgement */
    UCT_MPATH_ORDERED  = 1u << 1  /* a remote access behind a fence: after all earlier packets */
};

typedef struct uct_mpath_packet_header {
    uct_mpath_link_t link;
    uint32_t psn;
    uint32_t rail_packet; /* number of this packet among those of its rail and generation */
    uint8_t kind_am;      /* kind << 5 | id of the active message */
    uint8_t rail;
    uint8_t generation; /* of the rail at the sender: counts how often it was opened */
    uint8_t flags;
} __attribute__((packed)) uct_mpath_packet_header_t;

/* In the memory of the receiver. */
typedef struct uct_mpath_place {
    uint64_t region; /* that it has registered (regions.h), as its key says */
    uint64_t address;
} __attribute__((packed)) uct_mpath_place_t;

typedef struct uct_mpath_get {
    uct_mpath_place_t place;
    uint32_t id;
    uint32_t length_bytes;
} __attribute__((packed)) uct_mpath_get_t;

/* What a message holds beside the data of a put, of a reply to a get. */
#define UCT_MPATH_PUT_HEAD (sizeof(uct_mpath_packet_header_t) + sizeof(uct_mpath_place_t))
#define UCT_MPATH_REPLY_HEAD (sizeof(uct_mpath_packet_header_t) + sizeof(uint64_t))

typedef struct uct_mpath_ack_entry {
    uint8_t rail;
    uint8_t generation;
    uint32_t packets;
} __attribute__((packed)) uct_mpath_ack_entry_t;

typedef struct uct_mpath_ack {
    uct_mpath_link_t link;
    uint8_t count;
    uct_mpath_ack_entry_t entries[];
} __attribute__((packed)) uct_mpath_ack_t;

typedef struct uct_mpath_probe {
    uint8_t rail;
    uint8_t generation;
} __attribute__((packed)) uct_mpath_probe_t;

typedef struct uct_mpath_probe_message {
    uct_mpath_link_t link;
    uct_mpath_probe_t probe;
} __attribute__((packed)) uct_mpath_probe_message_t;

typedef struct uct_mpath_rma_message {
    uct_mpath_link_t link;
    uint8_t rail, generation;
    uint8_t connected; /* the sender has connected to the receiver's endpoint of this generation */
    uint8_t device_length, ep_length;
    uint8_t addresses[];
} __attribute__((packed)) uct_mpath_rma_message_t;

typedef struct uct_mpath_hello_rail {
    uint64_t gateway; /* the neighbour that drives this rail for the sender; 0: it does so itself */
    uint8_t rail;
    uint8_t device_length, iface_length;
    uint8_t device[UCT_MPATH_ADDRESS_MAX];
    uint8_t iface[UCT_MPATH_ADDRESS_MAX];
} __attribute__((packed)) uct_mpath_hello_rail_t;

typedef struct uct_mpath_hello {
    uct_mpath_link_t link; /* the receiver's, as far as known: handle and nonce 0 before its first hello */
    uint64_t to;           /* uid of the receiver's interface */
    uint64_t uid;          /* of the sender's */
    uct_mpath_link_t me;   /* what the receiver shall put into its messages to the sender */
    uint32_t window;       /* packets */
    uint32_t segment_bytes;
    uint8_t version;
    uint8_t rail; /* that this hello travels on */
    uint8_t num_rails;
    uct_mpath_hello_rail_t rails[];
} __attribute__((packed)) uct_mpath_hello_t;

typedef struct uct_mpath_relay_head {
    uint64_t source, destination; /* interfaces; their uids */
    uint64_t gateway;             /* to which the rail leads: the destination, or its neighbour */
    uint64_t previous;            /* whose message this is on this hop */
    uint8_t rail;
    uint8_t id;         /* of the message that follows */
    uint8_t generation; /* of the rail at the source */
    uint8_t reserved[5];
} __attribute__((packed)) uct_mpath_relay_head_t;

typedef struct uct_mpath_trunk {
    uint64_t to;  /* uid of the receiver's interface */
    uint64_t uid; /* of the sender's; of a route: of the interface that it names */
    uint8_t rail;
    uint8_t device_length, iface_length;
    uint8_t device[UCT_MPATH_ADDRESS_MAX];
    uint8_t iface[UCT_MPATH_ADDRESS_MAX];
} __attribute__((packed)) uct_mpath_trunk_t;

typedef struct uct_mpath_credit {
    uint64_t uid; /* of the sender */
    uint8_t rail; /* UCT_MPATH_MAX_RAILS: shared memory */
    uint32_t count;
} __attribute__((packed)) uct_mpath_credit_t;

/* What packets leave free for the head of a relay; with it 64 KiB stay below 65536, which is more than a message in
 * UCX's shared memory can have. */
#define UCT_MPATH_RELAY_ROOM (sizeof(uct_mpath_relay_head_t) + 8)

/* Addresses as UCP exchanges them: 31 bytes of device and 63 of interface address, so only the first rails fit. */
typedef struct uct_mpath_device_addr {
    uint16_t rails; /* mask of rail numbers, in order of which the addresses follow */
    uint8_t length; /* of each */
    uint8_t addresses[];
} __attribute__((packed)) uct_mpath_device_addr_t;

typedef struct uct_mpath_iface_addr {
    uint64_t uid;
    uint8_t length;
    uint8_t addresses[];
} __attribute__((packed)) uct_mpath_iface_addr_t;

#define UCT_MPATH_DEVICE_ADDR_MAX 31
#define UCT_MPATH_IFACE_ADDR_MAX 63

#endif
