/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses. UCP leaves little room for them, so they hold as many rails as fit, those of the lowest numbers with
 * equally long addresses; one that reaches is enough to greet, and the greeting tells the others.
 */
#include "ucx_tl_mpath/peer.h"

#include <string.h>

void uct_mpath_address_init(uct_mpath_iface_t *iface)
{
    size_t device_bytes = sizeof(uct_mpath_device_addr_t), iface_bytes = sizeof(uct_mpath_iface_addr_t);
    const uct_mpath_lane_t *lane, *first                               = NULL;
    unsigned number;

    iface->address_mask = 0;
    for (number = 0; number < UCT_MPATH_MAX_RAILS; ++number) {
        lane = &iface->lanes[number];
        if (lane->child == NULL) {
            continue;
        }
        first = first == NULL ? lane : first;
        if (lane->attr.device_addr_len != first->attr.device_addr_len ||
            lane->attr.iface_addr_len != first->attr.iface_addr_len ||
            device_bytes + lane->attr.device_addr_len > UCT_MPATH_DEVICE_ADDR_MAX ||
            iface_bytes + lane->attr.iface_addr_len > UCT_MPATH_IFACE_ADDR_MAX) {
            continue;
        }
        device_bytes += lane->attr.device_addr_len;
        iface_bytes += lane->attr.iface_addr_len;
        iface->address_mask |= UCS_BIT(number);
    }
}

static const uct_mpath_lane_t *first_lane(const uct_mpath_iface_t *iface)
{
    return &iface->lanes[__builtin_ctzll(iface->address_mask)];
}

static size_t num_addresses(uint64_t mask)
{
    return (size_t)__builtin_popcountll(mask);
}

size_t uct_mpath_device_addr_length(const uct_mpath_iface_t *iface)
{
    return sizeof(uct_mpath_device_addr_t) +
           num_addresses(iface->address_mask) * first_lane(iface)->attr.device_addr_len;
}

size_t uct_mpath_iface_addr_length(const uct_mpath_iface_t *iface)
{
    return sizeof(uct_mpath_iface_addr_t) + num_addresses(iface->address_mask) * first_lane(iface)->attr.iface_addr_len;
}

ucs_status_t uct_mpath_get_device_address(uct_iface_h tl_iface, uct_device_addr_t *addr)
{
    const uct_mpath_iface_t *iface  = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    uct_mpath_device_addr_t *device = (uct_mpath_device_addr_t *)addr;
    uint8_t *to                     = device->addresses;
    uint64_t rest;

    device->rails  = (uint16_t)iface->address_mask;
    device->length = (uint8_t)first_lane(iface)->attr.device_addr_len;
    for (rest = iface->address_mask; rest != 0; rest &= rest - 1) {
        memcpy(to, iface->lanes[__builtin_ctzll(rest)].device_addr, device->length);
        to += device->length;
    }
    return UCS_OK;
}

ucs_status_t uct_mpath_get_iface_address(uct_iface_h tl_iface, uct_iface_addr_t *addr)
{
    const uct_mpath_iface_t *iface  = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    uct_mpath_iface_addr_t *address = (uct_mpath_iface_addr_t *)addr;
    uint8_t *to                     = address->addresses;
    uint64_t rest;

    address->uid    = iface->uid;
    address->length = (uint8_t)first_lane(iface)->attr.iface_addr_len;
    for (rest = iface->address_mask; rest != 0; rest &= rest - 1) {
        memcpy(to, iface->lanes[__builtin_ctzll(rest)].iface_addr, address->length);
        to += address->length;
    }
    return UCS_OK;
}

int uct_mpath_address_find(const uct_mpath_device_addr_t *device, const uct_mpath_iface_addr_t *iface, unsigned number,
                           const void **device_p, const void **iface_p)
{
    size_t index;

    if (number >= 16 || !(device->rails & UCS_BIT(number))) {
        return 0;
    }
    index     = num_addresses(device->rails & (UCS_BIT(number) - 1));
    *device_p = device->addresses + index * device->length;
    *iface_p  = iface == NULL ? NULL : iface->addresses + index * iface->length;
    return 1;
}

uint64_t uct_mpath_address_reachable(uct_mpath_iface_t *iface, const uct_mpath_device_addr_t *device,
                                     const uct_mpath_iface_addr_t *address)
{
    const void *device_addr, *iface_addr;
    uint64_t reachable = 0, rest;
    unsigned number;

    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        number = (unsigned)__builtin_ctzll(rest);
        if (device->length == iface->lanes[number].attr.device_addr_len &&
            (address == NULL || address->length == iface->lanes[number].attr.iface_addr_len) &&
            uct_mpath_address_find(device, address, number, &device_addr, &iface_addr) &&
            uct_iface_is_reachable(iface->lanes[number].child, device_addr, iface_addr)) {
            reachable |= UCS_BIT(number);
        }
    }
    return reachable;
}
