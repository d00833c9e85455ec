/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The routes of the rails of a peer: directly, or through relays. Which rails relays give, by what neighbours tell of
 * themselves; how a rail is opened, and how a message is sent through relays.
 *
 * Hops of relayed messages: connections to neighbours and gateways, what waits for them, their credits and their end.
 */
#include "ucx_tl_mpath/counters.h"
#include "ucx_tl_mpath/relay.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void uct_mpath_relay_write_card(const uct_mpath_iface_t *iface, const uct_mpath_relay_t *relay, const uint8_t *shm_addr,
                                mpath_neighbour_card_t *card)
{
    const uct_mpath_lane_t *lane;
    mpath_neighbour_rail_t *rail;
    uint64_t rest;

    memset(card, 0, sizeof(*card));
    card->uid           = iface->uid;
    card->pid           = (int32_t)getpid();
    card->device_length = (uint8_t)relay->shm.attr.device_addr_len;
    card->iface_length  = (uint8_t)relay->shm.attr.iface_addr_len;
    memcpy(card->device, shm_addr, card->device_length);
    memcpy(card->iface, shm_addr + MPATH_NEIGHBOUR_SHM_MAX, card->iface_length);
    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        lane                = &iface->lanes[__builtin_ctzll(rest)];
        rail                = &card->rails[card->num_rails++];
        rail->rate_bps      = lane->rate_bps;
        rail->number        = lane->number;
        rail->device_length = (uint8_t)lane->attr.device_addr_len;
        rail->iface_length  = (uint8_t)lane->attr.iface_addr_len;
        memcpy(rail->device, lane->device_addr, sizeof(rail->device));
        memcpy(rail->iface, lane->iface_addr, sizeof(rail->iface));
    }
}

void uct_mpath_relay_tell_address(uct_mpath_relay_t *relay, const uint8_t *shm_addr)
{
    mpath_neighbour_card_t card;

    uct_mpath_relay_write_card(relay->iface, relay, shm_addr, &card);
    mpath_neighbours_update(relay->neighbours, &card);
}

/* The rails of one neighbour. Where several drive a rail, the slots of all decide who relays for whom. */
static void note_card(uct_mpath_relay_t *relay, int slot, const mpath_neighbour_card_t *card, unsigned *candidates)
{
    int self = mpath_neighbours_self(relay->neighbours);
    uct_mpath_gateway_t *gateway;
    unsigned i, number;

    for (i = 0; i < card->num_rails; ++i) {
        number = card->rails[i].number;
        if (relay->iface->lanes_mask & UCS_BIT(number)) {
            continue;
        }
        gateway = &relay->gateways[number];
        ++candidates[number];
        if (gateway->slot < 0 || ((unsigned)self + number) % candidates[number] == 0) {
            gateway->slot = slot;
            gateway->uid  = card->uid;
            gateway->rail = card->rails[i];
        }
    }
}

static void take_rates(uct_mpath_relay_t *relay)
{
    uct_mpath_lane_t *lane;
    unsigned number;

    relay->rails = 0;
    for (number = 0; number < UCT_MPATH_MAX_RAILS; ++number) {
        lane = &relay->iface->lanes[number];
        if (relay->gateways[number].slot < 0) {
            continue;
        }
        relay->rails |= UCS_BIT(number);
        if (lane->rate_bps == 0) {
            lane->rate_bps = relay->gateways[number].rail.rate_bps;
            mpath_spread_rail_init(&lane->load, lane->rate_bps);
            ucs_snprintf_zero(lane->name, sizeof(lane->name), "rail %u by relays", number);
        }
    }
}

/* Who is there; peers hear of rails that have come or gone. */
void uct_mpath_relay_look(uct_mpath_relay_t *relay)
{
    unsigned candidates[UCT_MPATH_MAX_RAILS] = {0}, number;
    uct_mpath_iface_t *iface                 = relay->iface;
    mpath_neighbour_card_t card;
    uint32_t handle;
    int slot;

    relay->version   = mpath_neighbours_version(relay->neighbours);
    relay->num_slots = mpath_neighbours_count(relay->neighbours);
    for (number = 0; number < UCT_MPATH_MAX_RAILS; ++number) {
        relay->gateways[number].slot = -1;
    }
    for (slot = 0; slot < relay->num_slots; ++slot) {
        relay->uids[slot] = 0;
        if (slot != mpath_neighbours_self(relay->neighbours) && mpath_neighbours_card(relay->neighbours, slot, &card) &&
            card.pid != (int32_t)getpid()) {
            relay->uids[slot] = card.uid;
            note_card(relay, slot, &card, candidates);
        }
    }
    take_rates(relay);
    for (handle = 0; handle < iface->num_peers; ++handle) {
        if (iface->peers[handle] != NULL && iface->peers[handle]->state == UCT_MPATH_PEER_READY) {
            iface->peers[handle]->hello_due = 1;
            uct_mpath_peer_set_busy(iface->peers[handle]);
        }
    }
}

/* Looks at the neighbours again when their table has changed. */
static void relay_refresh(uct_mpath_relay_t *relay)
{
    if (mpath_neighbours_version(relay->neighbours) != relay->version) {
        uct_mpath_relay_look(relay);
    }
}

static int relay_slot_of(const uct_mpath_relay_t *relay, uint64_t uid)
{
    int slot;

    for (slot = 0; slot < relay->num_slots; ++slot) {
        if (relay->uids[slot] == uid) {
            return slot;
        }
    }
    return -1;
}

/* The slot of an interface, also of one that has joined since the last look; -1: it is no neighbour. */
static int relay_slot_now(uct_mpath_relay_t *relay, uint64_t uid)
{
    int slot = relay_slot_of(relay, uid);

    if (slot < 0) {
        relay_refresh(relay);
        slot = relay_slot_of(relay, uid);
    }
    return slot;
}

#define CREDITS_AT_ONCE (UCT_MPATH_RELAY_SLOTS / 4)

/* A message that waits for its next hop, or whose bytes a child still reads. */
struct uct_mpath_relayed {
    ucs_list_link_t list;
    uct_mpath_relayed_t *next_free;
    uct_mpath_relay_t *relay;
    uct_completion_t child;
    uint64_t previous; /* whose slot it takes here; 0: none */
    uint8_t previous_rail;
    uint32_t bytes;
    uct_mpath_relay_head_t head;
    char data[];
};

static uct_mpath_lane_t *lane_of(const uct_mpath_hop_t *hop)
{
    return hop->rail == UCT_MPATH_RAIL_SHM ? &hop->iface->relay->shm : &hop->iface->lanes[hop->rail];
}

/* Its endpoint follows in progress, since this may be called while its transport delivers a message. */
static uct_mpath_hop_t *new_hop(uct_mpath_relay_t *relay, unsigned rail, uint64_t uid, const void *device_addr,
                                const void *iface_addr)
{
    uct_mpath_hop_t *hop = calloc(1, sizeof(*hop));

    if (hop == NULL) {
        return NULL;
    }
    hop->iface   = relay->iface;
    hop->uid     = uid;
    hop->rail    = (uint8_t)rail;
    hop->slot    = -1;
    hop->credits = UCT_MPATH_RELAY_SLOTS;
    memcpy(hop->device_addr, device_addr, lane_of(hop)->attr.device_addr_len);
    memcpy(hop->iface_addr, iface_addr, lane_of(hop)->attr.iface_addr_len);
    ucs_list_head_init(&hop->queue);
    ucs_list_add_tail(&relay->hops, &hop->list);
    return hop;
}

/* To the neighbour in a slot; NULL: it cannot be reached. */
static uct_mpath_hop_t *hop_neighbour(uct_mpath_relay_t *relay, int slot)
{
    uct_mpath_hop_t *hop = uct_mpath_hop_find(relay, relay->uids[slot], UCT_MPATH_RAIL_SHM);
    mpath_neighbour_card_t card;

    if (hop != NULL) {
        return hop;
    }
    if (!mpath_neighbours_card(relay->neighbours, slot, &card) || card.uid != relay->uids[slot] ||
        card.device_length != relay->shm.attr.device_addr_len || card.iface_length != relay->shm.attr.iface_addr_len) {
        return NULL;
    }
    hop = new_hop(relay, UCT_MPATH_RAIL_SHM, card.uid, card.device, card.iface);
    if (hop != NULL) {
        hop->slot = slot;
    }
    return hop;
}

/* A slot that messages of this hop take here is free again. */
static void owe_credit(uct_mpath_relay_t *relay, uint64_t previous, unsigned previous_rail)
{
    int slot             = previous_rail == UCT_MPATH_RAIL_SHM ? relay_slot_of(relay, previous) : -1;
    uct_mpath_hop_t *hop = slot >= 0 ? hop_neighbour(relay, slot) : uct_mpath_hop_find(relay, previous, previous_rail);

    if (hop != NULL) {
        ++hop->owed;
    }
}

static void put_message(uct_mpath_relayed_t *message)
{
    uct_mpath_relay_t *relay = message->relay;

    if (message->previous != 0) {
        owe_credit(relay, message->previous, message->previous_rail);
        message->previous = 0;
    }
    message->next_free = relay->free;
    relay->free        = message;
}

static void child_done(uct_completion_t *child)
{
    child->count = UCT_MPATH_TOLD;
    put_message(ucs_container_of(child, uct_mpath_relayed_t, child));
}

static uct_mpath_relayed_t *get_message(uct_mpath_relay_t *relay)
{
    uct_mpath_relayed_t *message = relay->free;

    if (message != NULL) {
        relay->free = message->next_free;
    } else {
        message = malloc(sizeof(*message) + relay->iface->segment_bytes);
        if (message == NULL) {
            return NULL;
        }
    }
    message->relay        = relay;
    message->child.func   = child_done;
    message->child.count  = 0;
    message->child.status = UCS_OK;
    message->previous     = 0;
    message->bytes        = 0;
    return message;
}

void uct_mpath_relayed_free(uct_mpath_relay_t *relay)
{
    uct_mpath_relayed_t *message;

    while ((message = relay->free) != NULL) {
        relay->free = message->next_free;
        free(message);
    }
}

uct_mpath_hop_t *uct_mpath_hop_find(uct_mpath_relay_t *relay, uint64_t uid, unsigned rail)
{
    uct_mpath_hop_t *hop;

    ucs_list_for_each(hop, &relay->hops, list)
    {
        if (hop->uid == uid && hop->rail == rail && !hop->broken) {
            return hop;
        }
    }
    return NULL;
}

static void open_hop(uct_mpath_hop_t *hop)
{
    uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                                            UCT_EP_PARAM_FIELD_IFACE_ADDR,
                              .iface      = lane_of(hop)->child,
                              .dev_addr   = (const uct_device_addr_t *)hop->device_addr,
                              .iface_addr = (const uct_iface_addr_t *)hop->iface_addr};

    if (uct_ep_create(&params, &hop->ep) != UCS_OK) {
        hop->ep     = NULL;
        hop->broken = 1;
    }
}

uct_mpath_hop_t *uct_mpath_hop_trunk(uct_mpath_relay_t *relay, unsigned rail, uint64_t uid, const void *device_addr,
                                     const void *iface_addr)
{
    uct_mpath_hop_t *hop = uct_mpath_hop_find(relay, uid, rail);

    if (hop == NULL) {
        hop = new_hop(relay, rail, uid, device_addr, iface_addr);
        if (hop != NULL) {
            hop->greet_due = 1;
        }
    }
    return hop;
}

/* Memory of the other end is taken by what it has to pass on. News of a failure is short and has no credit. */
static int needs_credit(const uct_mpath_hop_t *hop, const uct_mpath_relay_head_t *head)
{
    return head->destination != hop->uid && head->id != UCT_MPATH_ID_DOWN;
}

static int may_send(const uct_mpath_hop_t *hop, const uct_mpath_relay_head_t *head)
{
    return hop->ep != NULL && !hop->greet_due && (hop->credits > 0 || !needs_credit(hop, head));
}

typedef struct pack_with_head {
    const uct_mpath_relay_head_t *head;
    uct_pack_callback_t pack;
    void *arg;
} pack_with_head_t;

static size_t pack_with_head(void *destination, void *arg)
{
    const pack_with_head_t *with = arg;

    memcpy(destination, with->head, sizeof(*with->head));
    return sizeof(*with->head) + with->pack((char *)destination + sizeof(*with->head), with->arg);
}

static size_t pack_relayed(void *destination, void *arg)
{
    const uct_mpath_relayed_t *message = arg;

    memcpy(destination, message->data, message->bytes);
    return message->bytes;
}

static ucs_status_t post_packed(uct_mpath_hop_t *hop, const uct_mpath_relay_head_t *head, uct_pack_callback_t pack,
                                void *arg)
{
    pack_with_head_t with = {.head = head, .pack = pack, .arg = arg};
    ssize_t packed        = uct_ep_am_bcopy(hop->ep, UCT_MPATH_ID_RELAY, pack_with_head, &with, 0);

    return packed >= 0 ? UCS_OK : (ucs_status_t)packed;
}

/* UCS_OK: the message is not the caller's any more. */
static ucs_status_t post_message(uct_mpath_hop_t *hop, uct_mpath_relayed_t *message)
{
    uct_iov_t iov = {.buffer = message->data, .length = message->bytes, .memh = UCT_MEM_HANDLE_NULL, .count = 1};
    ucs_status_t status;

    if (!lane_of(hop)->zcopy || message->bytes == 0) {
        status = post_packed(hop, &message->head, pack_relayed, message);
    } else {
        message->child.count  = 1;
        message->child.status = UCS_OK;
        status = uct_ep_am_zcopy(hop->ep, UCT_MPATH_ID_RELAY, &message->head, sizeof(message->head), &iov, 1, 0,
                                 &message->child);
        if (status == UCS_INPROGRESS) {
            return UCS_OK;
        }
        message->child.count = 0;
    }
    if (status == UCS_OK) {
        put_message(message);
    }
    return status;
}

static ucs_status_t send_message(uct_mpath_hop_t *hop, uct_mpath_relayed_t *message)
{
    int costs = needs_credit(hop, &message->head);
    ucs_status_t status;

    if (!may_send(hop, &message->head)) {
        return UCS_ERR_NO_RESOURCE;
    }
    message->head.previous = hop->iface->uid;
    status                 = post_message(hop, message);
    if (status == UCS_OK) {
        hop->credits -= (uint32_t)costs;
    } else if (status != UCS_ERR_NO_RESOURCE) {
        hop->broken = 1;
    }
    return status;
}

/* A message of this interface, of at most segment_bytes, which `pack` writes. */
static ucs_status_t hop_send(uct_mpath_hop_t *hop, uct_mpath_relay_head_t *head, uct_pack_callback_t pack, void *arg)
{
    uct_mpath_relayed_t *message;
    ucs_status_t status;

    if (!may_send(hop, head)) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (lane_of(hop)->zcopy) {
        message = get_message(hop->iface->relay);
        if (message == NULL) {
            return UCS_ERR_NO_RESOURCE;
        }
        message->head  = *head;
        message->bytes = (uint32_t)pack(message->data, arg);
        status         = send_message(hop, message);
        if (status != UCS_OK) {
            put_message(message);
        }
        return status;
    }
    head->previous = hop->iface->uid;
    status         = post_packed(hop, head, pack, arg);
    if (status == UCS_OK) {
        hop->credits -= (uint32_t)needs_credit(hop, head);
    } else if (status != UCS_ERR_NO_RESOURCE) {
        hop->broken = 1;
    }
    return status;
}

typedef struct control {
    const void *message;
    size_t bytes;
} control_t;

static size_t pack_control(void *destination, void *arg)
{
    const control_t *control = arg;

    memcpy(destination, control->message, control->bytes);
    return control->bytes;
}

/* A small message for the other end itself. */
static ucs_status_t hop_control(uct_mpath_hop_t *hop, uint8_t id, const void *message, size_t bytes)
{
    control_t control = {.message = message, .bytes = bytes};
    ssize_t packed;

    if (hop->ep == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }
    packed = uct_ep_am_bcopy(hop->ep, id, pack_control, &control, 0);
    if (packed >= 0) {
        return UCS_OK;
    }
    if (packed != UCS_ERR_NO_RESOURCE) {
        hop->broken = 1;
    }
    return (ucs_status_t)packed;
}

static void greet(uct_mpath_hop_t *hop)
{
    const uct_mpath_lane_t *lane = lane_of(hop);
    uct_mpath_trunk_t trunk      = {.to            = hop->uid,
                                    .uid           = hop->iface->uid,
                                    .rail          = hop->rail,
                                    .device_length = (uint8_t)lane->attr.device_addr_len,
                                    .iface_length  = (uint8_t)lane->attr.iface_addr_len};

    memcpy(trunk.device, lane->device_addr, sizeof(trunk.device));
    memcpy(trunk.iface, lane->iface_addr, sizeof(trunk.iface));
    if (hop_control(hop, UCT_MPATH_ID_TRUNK, &trunk, sizeof(trunk)) == UCS_OK) {
        hop->greet_due = 0;
    }
}

unsigned uct_mpath_hop_progress(uct_mpath_hop_t *hop)
{
    uct_mpath_credit_t credit = {.uid = hop->iface->uid, .rail = hop->rail, .count = hop->owed};
    uct_mpath_relayed_t *message;
    unsigned count = 0;

    if (hop->ep == NULL) {
        open_hop(hop);
    }
    if (hop->greet_due && !hop->broken) {
        greet(hop);
    }
    if (hop->owed >= CREDITS_AT_ONCE && !hop->greet_due && !hop->broken &&
        hop_control(hop, UCT_MPATH_ID_CREDIT, &credit, sizeof(credit)) == UCS_OK) {
        hop->owed = 0;
    }
    while (!hop->broken && !ucs_list_is_empty(&hop->queue)) {
        message = ucs_list_extract_head(&hop->queue, uct_mpath_relayed_t, list);
        if (send_message(hop, message) != UCS_OK) {
            ucs_list_add_head(&hop->queue, &message->list);
            break;
        }
        ++count;
    }
    return count;
}

/* The hop by which a message's source is reached from here. */
static uct_mpath_hop_t *way_back(uct_mpath_relay_t *relay, uint64_t source, uint64_t previous, unsigned previous_rail)
{
    int slot = relay_slot_now(relay, source);

    return slot >= 0 ? hop_neighbour(relay, slot) : uct_mpath_hop_find(relay, previous, previous_rail);
}

/* In the place of a message that cannot go on, its source hears so. */
static void tell_down(uct_mpath_relay_t *relay, const uct_mpath_hop_user_t *user)
{
    uct_mpath_hop_t *hop         = way_back(relay, user->source, user->previous, user->previous_rail);
    uct_mpath_relayed_t *message = hop == NULL ? NULL : get_message(relay);

    if (message == NULL) {
        return; /* the source finds out when nothing is acknowledged */
    }
    memset(&message->head, 0, sizeof(message->head));
    message->head.source      = user->destination;
    message->head.destination = user->source;
    message->head.gateway     = user->previous;
    message->head.rail        = user->rail;
    message->head.id          = UCT_MPATH_ID_DOWN;
    message->head.generation  = user->generation;
    ucs_list_add_tail(&hop->queue, &message->list);
}

static int same_user(const uct_mpath_hop_user_t *a, const uct_mpath_hop_user_t *b)
{
    return a->source == b->source && a->destination == b->destination && a->rail == b->rail;
}

static void note_user(uct_mpath_hop_t *hop, const uct_mpath_hop_user_t *user)
{
    uct_mpath_hop_user_t *users;
    unsigned i;

    for (i = 0; i < hop->num_users; ++i) {
        if (same_user(&hop->users[i], user)) {
            hop->users[i] = *user;
            return;
        }
    }
    if (hop->num_users == hop->max_users) {
        users = realloc(hop->users, (hop->max_users * 2 + 8) * sizeof(*users));
        if (users == NULL) {
            return;
        }
        hop->users     = users;
        hop->max_users = hop->max_users * 2 + 8;
    }
    hop->users[hop->num_users++] = *user;
}

static uct_mpath_hop_t *next_hop(uct_mpath_relay_t *relay, const uct_mpath_relay_head_t *head, unsigned previous_rail)
{
    int slot = relay_slot_now(relay, head->destination);

    if (slot >= 0) {
        return hop_neighbour(relay, slot);
    }
    return previous_rail == UCT_MPATH_RAIL_SHM ? uct_mpath_hop_find(relay, head->gateway, head->rail) : NULL;
}

void uct_mpath_hop_pass_on(uct_mpath_relay_t *relay, const uct_mpath_relay_head_t *head, const void *data, size_t bytes,
                           unsigned previous_rail)
{
    uct_mpath_hop_t *hop            = next_hop(relay, head, previous_rail);
    const uct_mpath_hop_user_t user = {.source        = head->source,
                                       .destination   = head->destination,
                                       .previous      = head->previous,
                                       .rail          = head->rail,
                                       .generation    = head->generation,
                                       .previous_rail = (uint8_t)previous_rail};
    uct_mpath_relayed_t *message    = hop != NULL && bytes <= relay->iface->segment_bytes ? get_message(relay) : NULL;

    if (message == NULL) {
        if (head->id != UCT_MPATH_ID_DOWN) {
            tell_down(relay, &user);
            owe_credit(relay, head->previous, previous_rail);
        }
        return;
    }
    message->head  = *head;
    message->bytes = (uint32_t)bytes;
    memcpy(message->data, data, bytes);
    if (head->id != UCT_MPATH_ID_DOWN) {
        message->previous      = head->previous;
        message->previous_rail = (uint8_t)previous_rail;
        note_user(hop, &user);
    }
    ucs_list_add_tail(&hop->queue, &message->list);
    ++relay->passed_messages;
    relay->passed_bytes += bytes;
    uct_mpath_count(MPATH_UCX_RELAYED_BYTES, bytes);
}

void uct_mpath_hop_close(uct_mpath_hop_t *hop)
{
    hop->broken = 1;
    ucs_list_del(&hop->list);
    if (hop->ep != NULL) {
        uct_ep_destroy(hop->ep); /* what it still held comes back */
    }
    while (!ucs_list_is_empty(&hop->queue)) {
        put_message(ucs_list_extract_head(&hop->queue, uct_mpath_relayed_t, list));
    }
    free(hop->users);
    free(hop);
}

/* No rail leads over this hop any more. */
static void leave_rails(uct_mpath_hop_t *hop)
{
    uct_mpath_iface_t *iface = hop->iface;
    uint32_t handle;
    unsigned rail;

    for (handle = 0; handle < iface->num_peers; ++handle) {
        for (rail = 0; iface->peers[handle] != NULL && rail < UCT_MPATH_MAX_RAILS; ++rail) {
            if (iface->peers[handle]->rails[rail].hop == hop) {
                iface->peers[handle]->rails[rail].hop = NULL;
                uct_mpath_peer_rail_broken(iface->peers[handle], rail);
            }
        }
    }
}

void uct_mpath_hop_bury(uct_mpath_hop_t *hop)
{
    uct_mpath_relay_t *relay = hop->iface->relay;
    unsigned i;

    hop->broken = 1;
    leave_rails(hop);
    for (i = 0; i < hop->num_users; ++i) {
        tell_down(relay, &hop->users[i]);
    }
    uct_mpath_hop_close(hop);
}

int uct_mpath_hop_child_failed(uct_mpath_iface_t *iface, uct_ep_h child)
{
    uct_mpath_hop_t *hop;

    if (iface->relay == NULL) {
        return 0;
    }
    ucs_list_for_each(hop, &iface->relay->hops, list)
    {
        if (hop->ep == child) {
            hop->broken = 1;
            return 1;
        }
    }
    return 0;
}

#define DETOUR_NS                                                                                                      \
    20000 /* what a message takes longer, about: it is copied twice and two more processes look after it */

uint64_t uct_mpath_route_reachable(uct_mpath_iface_t *iface, const uct_mpath_device_addr_t *device)
{
    if (iface->relay == NULL) {
        return 0;
    }
    relay_refresh(iface->relay);
    return iface->relay->rails & device->rails;
}

int uct_mpath_route_exists(const uct_mpath_peer_t *peer, unsigned rail, uint64_t gateway)
{
    const uct_mpath_relay_t *relay         = peer->iface->relay;
    const uct_mpath_lane_t *lane           = &peer->iface->lanes[rail];
    const uct_mpath_peer_rail_t *addresses = &peer->rails[rail];

    if (relay == NULL) {
        return 0;
    }
    if (relay_slot_of(relay, peer->uid) >= 0) {
        return 1;
    }
    if (lane->child == NULL) {
        return 1; /* a neighbour that drives it may still come */
    }
    return gateway != 0 && uct_iface_is_reachable(lane->child, (const uct_device_addr_t *)addresses->device_addr,
                                                  (const uct_iface_addr_t *)addresses->iface_addr) != 0;
}

void uct_mpath_route_learn(uct_mpath_peer_t *peer, unsigned rail, uint64_t gateway)
{
    peer->rails[rail].relayed = 1;
    peer->rails[rail].gateway = gateway != 0 ? gateway : peer->uid;
    peer->relayed_mask |= UCS_BIT(rail);
    mpath_spread_rail_init(&peer->loads[rail], peer->iface->lanes[rail].rate_bps);
    peer->loads[rail].detour_ns = DETOUR_NS;
}

static ucs_status_t route_open(uct_mpath_peer_t *peer, unsigned number)
{
    uct_mpath_relay_t *relay    = peer->iface->relay;
    uct_mpath_peer_rail_t *rail = &peer->rails[number];
    int slot;

    if (relay == NULL) {
        return UCS_ERR_UNREACHABLE;
    }
    slot            = relay_slot_of(relay, peer->uid);
    rail->route_due = 0;
    if (slot >= 0) {
        rail->hop = hop_neighbour(relay, slot);
    } else if (peer->iface->lanes[number].child != NULL) {
        rail->hop = uct_mpath_hop_trunk(relay, number, rail->gateway, rail->device_addr, rail->iface_addr);
    } else if (relay->gateways[number].slot >= 0) {
        if (peer->loads[number].num_samples == 0 &&
            peer->loads[number].nominal_bps < peer->iface->lanes[number].rate_bps) { /* not known until now */
            uct_mpath_route_learn(peer, number, rail->gateway);
        }
        rail->hop       = hop_neighbour(relay, relay->gateways[number].slot);
        rail->route_due = 1;
    }
    return rail->hop != NULL ? UCS_OK : UCS_ERR_UNREACHABLE;
}

ucs_status_t uct_mpath_peer_rail_open(uct_mpath_peer_t *peer, unsigned number)
{
    uct_mpath_lane_t *lane      = &peer->iface->lanes[number];
    uct_mpath_peer_rail_t *rail = &peer->rails[number];
    uct_ep_params_t params      = {.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                                                 UCT_EP_PARAM_FIELD_IFACE_ADDR,
                                   .iface      = lane->child,
                                   .dev_addr   = (const uct_device_addr_t *)rail->device_addr,
                                   .iface_addr = (const uct_iface_addr_t *)rail->iface_addr};
    ucs_status_t status;

    rail->ep  = NULL;
    rail->hop = NULL;
    status    = rail->relayed ? route_open(peer, number) : uct_ep_create(&params, &rail->ep);
    if (status != UCS_OK) {
        rail->ep  = NULL;
        rail->hop = NULL;
        return status;
    }
    /* 0 stands for none. */
    rail->generation       = rail->generation == UINT8_MAX ? 1 : rail->generation + 1;
    rail->sent_packets     = 0;
    rail->acked_packets    = 0;
    rail->ghosts           = 0;
    rail->stalled_since_ns = 0;
    rail->probe_due        = 1;
    rail->patience_ns      = UCT_MPATH_BACKOFF_FIRST_NS;
    rail->state            = UCT_MPATH_RAIL_OPENING;
    peer->open_mask |= UCS_BIT(number);
    uct_mpath_peer_set_busy(peer);
    return UCS_OK;
}

void uct_mpath_peer_open_all(uct_mpath_peer_t *peer)
{
    unsigned number;

    peer->opened = 1;
    for (number = 0; number < UCT_MPATH_MAX_RAILS; ++number) {
        if (peer->rails[number].known && peer->rails[number].state == UCT_MPATH_RAIL_CLOSED) {
            uct_mpath_peer_rail_open(peer, number);
        }
    }
}

/* Tells the relay where the rail leads. */
static ucs_status_t send_route(const uct_mpath_peer_t *peer, unsigned number)
{
    const uct_mpath_peer_rail_t *rail  = &peer->rails[number];
    const mpath_neighbour_rail_t *like = &peer->iface->relay->gateways[number].rail;
    uct_mpath_trunk_t trunk            = {.to            = rail->hop->uid,
                                          .uid           = rail->gateway,
                                          .rail          = (uint8_t)number,
                                          .device_length = like->device_length,
                                          .iface_length  = like->iface_length};

    memcpy(trunk.device, rail->device_addr, sizeof(trunk.device));
    memcpy(trunk.iface, rail->iface_addr, sizeof(trunk.iface));
    return hop_control(rail->hop, UCT_MPATH_ID_ROUTE, &trunk, sizeof(trunk));
}

ucs_status_t uct_mpath_route_send(uct_mpath_peer_t *peer, unsigned number, uint8_t id, uct_pack_callback_t pack,
                                  void *arg)
{
    uct_mpath_peer_rail_t *rail = &peer->rails[number];
    uct_mpath_relay_head_t head = {.source      = peer->iface->uid,
                                   .destination = peer->uid,
                                   .gateway     = rail->gateway,
                                   .rail        = (uint8_t)number,
                                   .id          = id,
                                   .generation  = rail->generation};
    ucs_status_t status;

    if (rail->hop == NULL || rail->hop->broken) {
        return UCS_ERR_CONNECTION_RESET;
    }
    if (rail->route_due) {
        status = send_route(peer, number);
        if (status != UCS_OK) {
            return status;
        }
        rail->route_due = 0;
    }
    return hop_send(rail->hop, &head, pack, arg);
}

void uct_mpath_route_down(uct_mpath_relay_t *relay, const uct_mpath_relay_head_t *head)
{
    uct_mpath_peer_t *peer = uct_mpath_peer_find(relay->iface, head->source);

    if (peer != NULL && peer->rails[head->rail].hop != NULL && peer->rails[head->rail].generation == head->generation) {
        uct_mpath_peer_rail_broken(peer, head->rail);
    }
}
