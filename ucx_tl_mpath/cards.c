/* SPDX-License-Identifier: BSD-3-Clause */
/* The neighbours of an interface that relays: what it tells them of itself, who is there, and what they drive. */
#include "ucx_tl_mpath/relay.h"

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

void uct_mpath_relay_refresh(uct_mpath_relay_t *relay)
{
    if (mpath_neighbours_version(relay->neighbours) != relay->version) {
        uct_mpath_relay_look(relay);
    }
}

int uct_mpath_relay_slot_of(const uct_mpath_relay_t *relay, uint64_t uid)
{
    int slot;

    for (slot = 0; slot < relay->num_slots; ++slot) {
        if (relay->uids[slot] == uid) {
            return slot;
        }
    }
    return -1;
}

int uct_mpath_relay_slot_now(uct_mpath_relay_t *relay, uint64_t uid)
{
    int slot = uct_mpath_relay_slot_of(relay, uid);

    if (slot < 0) {
        uct_mpath_relay_refresh(relay);
        slot = uct_mpath_relay_slot_of(relay, uid);
    }
    return slot;
}
