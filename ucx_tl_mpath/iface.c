/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface and its endpoints, as UCT calls them.
 *
 * Addresses. UCP leaves little room for them, so they hold as many rails as fit, those of the lowest numbers with
 * equally long addresses; one that reaches is enough to greet, and the greeting tells the others.
 *
 * Endpoints: active messages, the pending queue, flush and fence. Each operation is one packet on one rail.
 *
 * The interface: settings, opening and closing, its progress, in which the rails and the peers are served, its abilities,
 * flush, events, and the two tables of operations.
 */
#include "ucx_tl_mpath/ep.h"
#include "ucx_tl_mpath/peer.h"
#include "ucx_tl_mpath/relay.h"
#include "ucx_tl_mpath/rma.h"

#include "util/secret.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Chooses the rails that fit; called once the lanes are open. */
static void address_init(uct_mpath_iface_t *iface)
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

/* The two addresses of the interface, and what can be read out of another's. */
static size_t device_addr_length(const uct_mpath_iface_t *iface)
{
    return sizeof(uct_mpath_device_addr_t) +
           num_addresses(iface->address_mask) * first_lane(iface)->attr.device_addr_len;
}

static size_t iface_addr_length(const uct_mpath_iface_t *iface)
{
    return sizeof(uct_mpath_iface_addr_t) + num_addresses(iface->address_mask) * first_lane(iface)->attr.iface_addr_len;
}

static ucs_status_t get_device_address(uct_iface_h tl_iface, uct_device_addr_t *addr)
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

static ucs_status_t get_iface_address(uct_iface_h tl_iface, uct_iface_addr_t *addr)
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

/* The addresses of rail `number` in a peer's addresses; 0 when they do not hold that rail. */
static int address_find(const uct_mpath_device_addr_t *device, const uct_mpath_iface_addr_t *iface, unsigned number,
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

/* Rails over which the addresses can be reached. */
static uint64_t address_reachable(uct_mpath_iface_t *iface, const uct_mpath_device_addr_t *device,
                                  const uct_mpath_iface_addr_t *address)
{
    const void *device_addr, *iface_addr;
    uint64_t reachable = 0, rest;
    unsigned number;

    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        number = (unsigned)__builtin_ctzll(rest);
        if (device->length == iface->lanes[number].attr.device_addr_len &&
            (address == NULL || address->length == iface->lanes[number].attr.iface_addr_len) &&
            address_find(device, address, number, &device_addr, &iface_addr) &&
            uct_iface_is_reachable(iface->lanes[number].child, device_addr, iface_addr)) {
            reachable |= UCS_BIT(number);
        }
    }
    return reachable;
}

typedef struct pending_priv {
    uct_pending_req_priv_queue_t super;
    uct_ep_h ep;
} pending_priv_t;

static void ep_pending_purge(uct_ep_h tl_ep, uct_pending_purge_callback_t cb, void *arg)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    pending_priv_t *priv;

    if (ep->peer != NULL) {
        uct_pending_queue_purge(priv, &ep->peer->pending, priv->ep == tl_ep, cb, arg);
    }
}

/* Opens a first rail to a peer that is not known yet, out of the addresses that UCP exchanged, and greets. */
static ucs_status_t greet(uct_mpath_peer_t *peer, const uct_mpath_device_addr_t *device,
                          const uct_mpath_iface_addr_t *address)
{
    uint64_t direct    = address_reachable(peer->iface, device, address);
    uint64_t reachable = direct != 0 ? direct : uct_mpath_route_reachable(peer->iface, device);
    const void *device_addr, *iface_addr;
    uct_mpath_peer_rail_t *rail;
    unsigned number;
    int opened = 0;

    if (device->length > UCT_MPATH_ADDRESS_MAX || address->length > UCT_MPATH_ADDRESS_MAX) {
        return UCS_ERR_INVALID_ADDR;
    }
    for (; reachable != 0; reachable &= reachable - 1) {
        number = (unsigned)__builtin_ctzll(reachable);
        rail   = &peer->rails[number];
        if (!address_find(device, address, number, &device_addr, &iface_addr)) {
            continue;
        }
        memcpy(rail->device_addr, device_addr, device->length);
        memcpy(rail->iface_addr, iface_addr, address->length);
        rail->known = 1;
        if (direct == 0) {
            uct_mpath_route_learn(peer, number, 0);
        }
        if (!opened && uct_mpath_peer_rail_open(peer, number) == UCS_OK) {
            opened = 1;
        }
    }
    peer->hello_due = 1;
    return opened ? UCS_OK : UCS_ERR_UNREACHABLE;
}

UCS_CLASS_INIT_FUNC(uct_mpath_ep_t, const uct_ep_params_t *params)
{
    uct_mpath_iface_t *iface              = ucs_derived_of(params->iface, uct_mpath_iface_t);
    const uct_mpath_device_addr_t *device = (const uct_mpath_device_addr_t *)params->dev_addr;
    const uct_mpath_iface_addr_t *address = (const uct_mpath_iface_addr_t *)params->iface_addr;
    ucs_status_t status;

    UCT_EP_PARAMS_CHECK_DEV_IFACE_ADDRS(params);
    UCS_CLASS_CALL_SUPER_INIT(uct_base_ep_t, &iface->super);
    self->reported = 0;
    self->peer     = uct_mpath_peer_find(iface, address->uid);
    if (self->peer == NULL) {
        status = uct_mpath_peer_create(iface, address->uid, &self->peer);
        if (status != UCS_OK) {
            return status;
        }
        status = greet(self->peer, device, address);
        if (status != UCS_OK) {
            uct_mpath_peer_destroy(self->peer);
            return status;
        }
    }
    ucs_list_add_tail(&self->peer->eps, &self->list);
    return UCS_OK;
}

UCS_CLASS_CLEANUP_FUNC(uct_mpath_ep_t)
{
    if (self->peer == NULL) {
        return;
    }
    ep_pending_purge(&self->super.super, (uct_pending_purge_callback_t)ucs_empty_function, NULL);
    uct_mpath_peer_forget(self->peer, self);
    ucs_list_del(&self->list);
    if (self->peer->state == UCT_MPATH_PEER_FAILED) {
        uct_mpath_peer_set_busy(self->peer); /* goes with its last endpoint */
    }
}

UCS_CLASS_DEFINE(uct_mpath_ep_t, uct_base_ep_t)
UCS_CLASS_DEFINE_NEW_FUNC(uct_mpath_ep_t, uct_ep_t, const uct_ep_params_t *);
UCS_CLASS_DEFINE_DELETE_FUNC(uct_mpath_ep_t, uct_ep_t);

/* The operations; those of remote access are in rma.c. */

static ucs_status_t ep_am_short(uct_ep_h tl_ep, uint8_t id, uint64_t header, const void *payload, unsigned length)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    size_t bytes       = sizeof(uct_mpath_packet_header_t) + sizeof(header) + length;
    ucs_status_t status;
    uct_mpath_packet_t *packet;
    char *data;

    UCT_CHECK_AM_ID(id);
    status = uct_mpath_ep_ready(ep);
    if (status != UCS_OK) {
        return status;
    }
    packet = uct_mpath_ep_packet(ep, UCT_MPATH_AM, id, bytes);
    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    data = packet->data + sizeof(uct_mpath_packet_header_t);
    memcpy(data, &header, sizeof(header));
    if (length > 0) {
        memcpy(data + sizeof(header), payload, length);
    }
    return uct_mpath_ep_send(ep, packet, bytes);
}

/* Behind the headers that the packet has already. */
static size_t append_iov(uct_mpath_packet_t *packet, size_t bytes, const uct_iov_t *iov, size_t iovcnt)
{
    size_t i;

    for (i = 0; i < iovcnt; ++i) {
        if (uct_mpath_iov_bytes(&iov[i]) > 0) {
            memcpy(packet->data + bytes, iov[i].buffer, uct_mpath_iov_bytes(&iov[i]));
            bytes += uct_mpath_iov_bytes(&iov[i]);
        }
    }
    return bytes;
}

static ucs_status_t ep_am_short_iov(uct_ep_h tl_ep, uint8_t id, const uct_iov_t *iov, size_t iovcnt)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    size_t bytes       = sizeof(uct_mpath_packet_header_t), i;
    ucs_status_t status;
    uct_mpath_packet_t *packet;

    UCT_CHECK_AM_ID(id);
    status = uct_mpath_ep_ready(ep);
    if (status != UCS_OK) {
        return status;
    }
    for (i = 0; i < iovcnt; ++i) {
        bytes += uct_mpath_iov_bytes(&iov[i]);
    }
    packet = uct_mpath_ep_packet(ep, UCT_MPATH_AM, id, bytes);
    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    bytes = append_iov(packet, sizeof(uct_mpath_packet_header_t), iov, iovcnt);
    return uct_mpath_ep_send(ep, packet, bytes);
}

static ssize_t ep_am_bcopy(uct_ep_h tl_ep, uint8_t id, uct_pack_callback_t pack, void *arg, unsigned flags)
{
    uct_mpath_ep_t *ep  = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    ucs_status_t status = uct_mpath_ep_ready(ep);
    uct_mpath_packet_t *packet;
    size_t length;

    (void)flags;
    UCT_CHECK_AM_ID(id);
    if (status != UCS_OK) {
        return status;
    }
    packet = uct_mpath_ep_packet(ep, UCT_MPATH_AM, id, ep->peer->iface->segment_bytes);
    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    length = pack(packet->data + sizeof(uct_mpath_packet_header_t), arg);
    status = uct_mpath_ep_send(ep, packet, sizeof(uct_mpath_packet_header_t) + length);
    return status == UCS_OK ? (ssize_t)length : (ssize_t)status;
}

static ucs_status_t ep_am_zcopy(uct_ep_h tl_ep, uint8_t id, const void *header, unsigned header_length,
                                const uct_iov_t *iov, size_t iovcnt, unsigned flags, uct_completion_t *comp)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    size_t bytes       = sizeof(uct_mpath_packet_header_t);
    ucs_status_t status;
    uct_mpath_packet_t *packet;
    int copy;

    (void)flags;
    UCT_CHECK_AM_ID(id);
    UCT_CHECK_IOV_SIZE(iovcnt, (size_t)UCT_MPATH_MAX_IOV, "uct_mpath_ep_am_zcopy");
    status = uct_mpath_ep_ready(ep);
    if (status != UCS_OK) {
        return status;
    }
    copy   = ep->peer->iface->am_copy;
    packet = uct_mpath_ep_packet(ep, UCT_MPATH_AM, id, copy ? ep->peer->iface->segment_bytes : 0);
    if (packet == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    if (header_length > 0) {
        memcpy(packet->data + bytes, header, header_length);
        bytes += header_length;
    }
    if (copy) {
        return uct_mpath_ep_send(ep, packet, append_iov(packet, bytes, iov, iovcnt));
    }
    uct_mpath_ep_set_iov(packet, iov, iovcnt);
    packet->user = comp;
    status       = uct_mpath_ep_send(ep, packet, bytes);
    return status == UCS_OK ? UCS_INPROGRESS : status;
}

static ucs_status_t ep_flush(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    uct_mpath_ep_t *ep     = ucs_derived_of(tl_ep, uct_mpath_ep_t);
    uct_mpath_peer_t *peer = ep->peer;
    uct_mpath_flush_t *flush;

    if (peer == NULL || (peer->state == UCT_MPATH_PEER_FAILED && peer->cleaned)) {
        return (flags & UCT_FLUSH_FLAG_CANCEL) ? UCS_OK : UCS_ERR_CONNECTION_RESET;
    }
    if (peer->state != UCT_MPATH_PEER_FAILED) {
        if (flags & UCT_FLUSH_FLAG_CANCEL) {
            ep_pending_purge(tl_ep, (uct_pending_purge_callback_t)ucs_empty_function, NULL);
            if (!uct_mpath_peer_cancel(peer, ep)) {
                return UCS_OK;
            }
        } else if (!peer->dispatching && !ucs_queue_is_empty(&peer->pending)) {
            return UCS_ERR_NO_RESOURCE; /* what waits in front of the rails was asked for before */
        } else if (!mpath_psn_before(peer->tx.base, peer->flush_psn) && ucs_list_is_empty(&peer->rma) &&
                   ucs_list_is_empty(&peer->gets)) {
            return UCS_OK;
        }
    }
    if (comp == NULL) {
        return UCS_INPROGRESS;
    }
    flush = malloc(sizeof(*flush));
    if (flush == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    flush->ep      = ep;
    flush->psn     = peer->flush_psn;
    flush->rma_seq = peer->rma_next;
    flush->get_id  = peer->next_get;
    flush->user    = comp;
    ucs_list_add_tail(&peer->flushes, &flush->list);
    peer->progress_ns = 0; /* asks for an acknowledgement at once */
    uct_mpath_peer_set_busy(peer);
    return UCS_INPROGRESS;
}

static ucs_status_t ep_fence(uct_ep_h tl_ep, unsigned flags)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);

    (void)flags;
    if (ep->peer != NULL) {
        uct_mpath_peer_fence(ep->peer);
    }
    return UCS_OK;
}

/* A probe: an answer is not waited for, a dead connection reports itself when something is sent over it. */
static ucs_status_t ep_check(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);

    (void)flags;
    if (comp != NULL) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (ep->peer != NULL && ep->peer->state == UCT_MPATH_PEER_READY && ep->peer->up_mask != 0) {
        uct_mpath_probe_send(ep->peer, (unsigned)__builtin_ctzll(ep->peer->up_mask));
    }
    return UCS_OK;
}

static ucs_status_t ep_pending_add(uct_ep_h tl_ep, uct_pending_req_t *request, unsigned flags)
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);

    (void)flags;
    UCS_STATIC_ASSERT(sizeof(pending_priv_t) <= UCT_PENDING_REQ_PRIV_LEN);
    if (ep->peer == NULL || ep->reported) {
        return UCS_ERR_BUSY;
    }
    ((pending_priv_t *)request->priv)->ep = tl_ep;
    uct_pending_req_queue_push(&ep->peer->pending, request);
    uct_mpath_peer_set_busy(ep->peer);
    return UCS_OK;
}

/* As if the connection had failed; for tests of failure handling above. */
#if HAVE_UCT_EP_INVALIDATE_PARAMS
static ucs_status_t ep_invalidate(uct_ep_h tl_ep, const uct_ep_invalidate_params_t *params)
#else
static ucs_status_t ep_invalidate(uct_ep_h tl_ep, unsigned flags)
#endif
{
    uct_mpath_ep_t *ep = ucs_derived_of(tl_ep, uct_mpath_ep_t);

#if HAVE_UCT_EP_INVALIDATE_PARAMS
    (void)params;
#else
    (void)flags;
#endif
    if (ep->peer != NULL) {
        uct_mpath_peer_fail(ep->peer, UCS_ERR_ENDPOINT_TIMEOUT, "invalidated");
    }
    return UCS_OK;
}

#define MIN_SEGMENT_BYTES 1000 /* `ud` has 1016 where a port's MTU is 1024, as on Ethernet without jumbo frames */
#define MIN_SHORT_BYTES 256    /* short messages of ours; where a rail's are shorter they go as others */
#define LAST_ACKS_NS (20 * MPATH_NS_PER_MS)
#define IDLE_POLLS 200   /* a rail on which nothing came for so many polls is polled less often: */
#define IDLE_NS 10000ull /* as often as this, or at every poll where those are rarer */

ucs_config_field_t uct_mpath_iface_config_table[] = {
    {"", "", NULL, ucs_offsetof(uct_mpath_iface_config_t, super), UCS_CONFIG_TYPE_TABLE(uct_iface_config_table)},

    {"SEG_SIZE", "64k",
     "Largest packet: the unit in which messages are spread over the rails. The rails' transports may force it\n"
     "to be smaller. It has to be the same on all nodes.",
     ucs_offsetof(uct_mpath_iface_config_t, segment_bytes), UCS_CONFIG_TYPE_MEMUNITS},

    {"WINDOW", "1024", "Packets that may be under way to one peer before the oldest is acknowledged. A power of two.",
     ucs_offsetof(uct_mpath_iface_config_t, window), UCS_CONFIG_TYPE_UINT},

    {"SPREAD_THRESH", "8k", "The other rails to a peer are opened with the first message of this size.",
     ucs_offsetof(uct_mpath_iface_config_t, spread_bytes), UCS_CONFIG_TYPE_MEMUNITS},

    {"STALL_TIME", "2s",
     "A rail that carries nothing for so long while its peer answers over others is given up; what it held is sent\n"
     "again over them, and it is tried again later.",
     ucs_offsetof(uct_mpath_iface_config_t, stall_s), UCS_CONFIG_TYPE_TIME},

    {"AM_COPY", "y",
     "Send zero-copy active messages out of a copy: their memory is free at once and more can follow, where it\n"
     "otherwise is free when they are acknowledged. Puts are never copied.",
     ucs_offsetof(uct_mpath_iface_config_t, am_copy), UCS_CONFIG_TYPE_BOOL},

    {"PLAN", "y",
     "The planner divides the rails among the peers by what they are sent and what was measured. Without it each\n"
     "peer's messages go where they arrive first, whatever the others do.",
     ucs_offsetof(uct_mpath_iface_config_t, plan), UCS_CONFIG_TYPE_BOOL},

    {"RATES_FILE", "",
     "Text file in which measured rates are kept for later jobs; it may be the one of coll_mpath_adapt_file. Empty: "
     "none.",
     ucs_offsetof(uct_mpath_iface_config_t, rates_file), UCS_CONFIG_TYPE_STRING},

    {"RELAYS", "try",
     "Rails that this process does not drive are used through processes of its node that do, and the other way round:\n"
     "\"try\" where this process does not drive all NICs of the node, \"y\" everywhere, \"n\" nowhere.",
     ucs_offsetof(uct_mpath_iface_config_t, relays), UCS_CONFIG_TYPE_TERNARY},

    {"RELAY_GROUP", "",
     "Processes of a node relay for each other when they have the same name here. Empty: what the launcher calls the "
     "job.",
     ucs_offsetof(uct_mpath_iface_config_t, relay_group), UCS_CONFIG_TYPE_STRING},

    {"RELAY_TLS", "posix,sysv",
     "Transports between a process and its relays; the first that processes of a node can use.",
     ucs_offsetof(uct_mpath_iface_config_t, relay_tls), UCS_CONFIG_TYPE_STRING_ARRAY},

    {"STATS", "n", "Write what each rail carried to standard error when the interface is closed.",
     ucs_offsetof(uct_mpath_iface_config_t, stats), UCS_CONFIG_TYPE_BOOL},

    {NULL}};

static ucs_status_t take_settings(uct_mpath_iface_t *iface, const uct_mpath_iface_config_t *config)
{
    if (config->window < 16 || config->window > 65536 || (config->window & (config->window - 1)) != 0) {
        ucs_error("mpath: UCX_MPATH_WINDOW is %u; it must be a power of two from 16 to 65536", config->window);
        return UCS_ERR_INVALID_PARAM;
    }
    if (config->segment_bytes < MIN_SEGMENT_BYTES) {
        ucs_error("mpath: UCX_MPATH_SEG_SIZE is %zu; it must be %u at least", config->segment_bytes, MIN_SEGMENT_BYTES);
        return UCS_ERR_INVALID_PARAM;
    }
    iface->segment_bytes = config->segment_bytes;
    iface->window        = config->window;
    iface->spread_bytes  = config->spread_bytes;
    iface->stall_ns      = (uint64_t)(config->stall_s * (double)MPATH_NS_PER_S);
    iface->stats         = config->stats;
    iface->plan          = config->plan;
    ucs_snprintf_zero(iface->rates_file, sizeof(iface->rates_file), "%s", config->rates_file);
    iface->am_copy     = config->am_copy;
    iface->short_bytes = SIZE_MAX;
    iface->max_iov     = UCT_MPATH_MAX_IOV;
    return UCS_OK;
}

/* A longer message than a packet shows only by packets that are nearly full: UD's hold 4 KiB at most. */
static void set_spread(uct_mpath_iface_t *iface)
{
    uint64_t nearly = iface->segment_bytes - iface->segment_bytes / 4;

    iface->spread_packet_bytes = iface->spread_bytes;
    if (iface->spread_bytes != UCS_MEMUNITS_INF && iface->spread_bytes > nearly) {
        iface->spread_packet_bytes = nearly;
    }
}

static uct_iface_ops_t iface_ops;
static uct_iface_internal_ops_t iface_internal_ops;

UCS_CLASS_INIT_FUNC(uct_mpath_iface_t, uct_md_h tl_md, uct_worker_h worker, const uct_iface_params_t *params,
                    const uct_iface_config_t *tl_config)
{
    uct_mpath_md_t *md = ucs_derived_of(tl_md, uct_mpath_md_t);
    ucs_status_t status;

    UCS_CLASS_CALL_SUPER_INIT(uct_base_iface_t, &iface_ops, &iface_internal_ops, tl_md, worker, params,
                              tl_config UCS_STATS_ARG(params->stats_root) UCS_STATS_ARG("mpath"));
    memset((char *)self + sizeof(self->super), 0, sizeof(*self) - sizeof(self->super));
    self->event_fd = -1;
    ucs_list_head_init(&self->busy);
    status = take_settings(self, ucs_derived_of(tl_config, uct_mpath_iface_config_t));
    if (status != UCS_OK) {
        return status;
    }
    if (mpath_secret_make(&self->uid) != MPATH_OK) {
        ucs_error("mpath: getrandom failed: %m; not opened");
        return UCS_ERR_IO_ERROR;
    }
    status = uct_mpath_lanes_open(self, md, worker, params);
    if (status != UCS_OK) {
        return status;
    }
    if (self->segment_bytes < MIN_SEGMENT_BYTES) {
        ucs_error("mpath: a rail's transport takes packets of %zu bytes only, less than %u; not opened",
                  self->segment_bytes, MIN_SEGMENT_BYTES);
        uct_mpath_lanes_close(self);
        return UCS_ERR_UNSUPPORTED;
    }
    self->segment_bytes -= UCT_MPATH_RELAY_ROOM; /* also where nothing is relayed: both sides have to agree */
    set_spread(self);
    self->short_bytes = self->short_bytes > MIN_SHORT_BYTES ? self->short_bytes : MIN_SHORT_BYTES;
    uct_mpath_rates_load(self);
    address_init(self);
    uct_mpath_relay_open(self, md, worker, params, ucs_derived_of(tl_config, uct_mpath_iface_config_t));
    return UCS_OK;
}

/* Peers that have sent something shall not wait for an answer that never comes: a moment for the last words. */
static void acknowledge_all(uct_mpath_iface_t *iface)
{
    uint64_t end_ns = mpath_time_ns() + LAST_ACKS_NS;
    uint32_t handle;
    int left;

    do {
        left = 0;
        for (handle = 0; handle < iface->num_peers; ++handle) {
            if (iface->peers[handle] != NULL && iface->peers[handle]->state == UCT_MPATH_PEER_READY &&
                (iface->peers[handle]->unacked_packets > 0 || iface->peers[handle]->ack_due)) {
                uct_mpath_ack_send(iface->peers[handle]);
                left |= iface->peers[handle]->ack_due;
            }
        }
    } while (left && mpath_time_ns() < end_ns);
}

UCS_CLASS_CLEANUP_FUNC(uct_mpath_iface_t)
{
    uint32_t handle;

    uct_base_iface_progress_disable(&self->super.super, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    acknowledge_all(self);
    for (handle = 0; handle < self->num_peers; ++handle) {
        if (self->peers[handle] != NULL) {
            uct_mpath_peer_destroy(self->peers[handle]);
        }
    }
    free(self->peers);
    self->num_peers = 0;
    uct_mpath_rates_save(self);
    if (self->stats) {
        uct_mpath_lanes_report(self);
    }
    uct_mpath_relay_close(self);
    uct_mpath_lanes_close(self);
    uct_mpath_packets_free(self);
    if (self->event_fd >= 0) {
        close(self->event_fd);
    }
}

UCS_CLASS_DEFINE(uct_mpath_iface_t, uct_base_iface_t)
UCS_CLASS_DEFINE_NEW_FUNC(uct_mpath_iface_t, uct_iface_t, uct_md_h, uct_worker_h, const uct_iface_params_t *,
                          const uct_iface_config_t *);
static UCS_CLASS_DEFINE_DELETE_FUNC(uct_mpath_iface_t, uct_iface_t);

static void iface_close(uct_iface_h tl_iface)
{
    UCS_CLASS_DELETE_FUNC_NAME(uct_mpath_iface_t)(tl_iface);
}

/* The latency of small messages is that of the rail they use, so idle ones may not cost a system call each time. */
static unsigned progress_lanes(uct_mpath_iface_t *iface)
{
    uint64_t now_ns = mpath_time_ns(), rest;
    int all         = now_ns - iface->polled_all_ns >= IDLE_NS;
    unsigned sum    = 0, count;
    uct_mpath_lane_t *lane;

    if (all) {
        iface->polled_all_ns = now_ns;
    }
    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        lane = &iface->lanes[__builtin_ctzll(rest)];
        if (lane->idle_polls == IDLE_POLLS && !all) {
            continue;
        }
        count = uct_iface_progress(lane->child);
        if (lane->rma_child != NULL) {
            count += uct_iface_progress(lane->rma_child);
        }
        lane->idle_polls = count > 0 ? 0 : lane->idle_polls + (lane->idle_polls < IDLE_POLLS);
        sum += count;
    }
    return sum;
}

static unsigned iface_progress(uct_iface_h tl_iface)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    unsigned count           = progress_lanes(iface);
    uct_mpath_peer_t *peer, *next;
    uint64_t now_ns;

    if (iface->relay != NULL) {
        count += uct_mpath_relay_progress(iface, mpath_time_ns());
    }
    if (ucs_list_is_empty(&iface->busy)) {
        return count;
    }
    now_ns = mpath_time_ns();
    uct_mpath_shares_progress(iface, now_ns);
    ucs_list_for_each_safe(peer, next, &iface->busy, busy)
    {
        if (uct_mpath_peer_progress(peer, now_ns)) {
            continue;
        }
        if (peer->state == UCT_MPATH_PEER_FAILED && ucs_list_is_empty(&peer->eps)) {
            uct_mpath_peer_destroy(peer);
        } else {
            peer->is_busy = 0;
            ucs_list_del(&peer->busy);
        }
    }
    return count;
}

/* What only the rails know. */
#ifdef UCT_IFACE_FLAG_INTER_NODE
#define INHERITED_FLAGS (UCT_IFACE_FLAG_EP_KEEPALIVE | UCT_IFACE_FLAG_INTER_NODE)
#else
#define INHERITED_FLAGS UCT_IFACE_FLAG_EP_KEEPALIVE
#endif

/* What one put or get without a copy may hold: a message, more where rails do it by themselves. */
static size_t max_access_bytes(const uct_mpath_iface_t *iface)
{
    size_t message_bytes = iface->segment_bytes - UCT_MPATH_PUT_HEAD;

    return iface->rma_lanes != 0 && message_bytes < UCT_MPATH_RMA_MAX_BYTES ? UCT_MPATH_RMA_MAX_BYTES : message_bytes;
}

static ucs_status_t iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    const size_t head        = sizeof(uct_mpath_packet_header_t);
    const uct_mpath_lane_t *lane;
    uint64_t rest, common = UINT64_MAX, events = UINT64_MAX;

    uct_base_iface_query(ucs_derived_of(tl_iface, uct_base_iface_t), attr);
    attr->device_addr_len     = device_addr_length(iface);
    attr->iface_addr_len      = iface_addr_length(iface);
    attr->ep_addr_len         = 0;
    attr->max_conn_priv       = 0;
    attr->bandwidth.dedicated = 0;
    attr->bandwidth.shared    = 0;
    attr->latency             = ucs_linear_func_make(0, 0);
    attr->overhead            = 0;
    attr->priority            = 1;
    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        lane = &iface->lanes[__builtin_ctzll(rest)];
        common &= lane->attr.cap.flags;
        events &= lane->attr.cap.event_flags & (lane->rma_child != NULL ? lane->rma_attr.cap.event_flags : UINT64_MAX);
        attr->bandwidth.dedicated += lane->attr.bandwidth.dedicated;
        attr->bandwidth.shared += lane->attr.bandwidth.shared;
        attr->latency.c   = attr->latency.c > lane->attr.latency.c ? attr->latency.c : lane->attr.latency.c;
        attr->latency.m   = attr->latency.m > lane->attr.latency.m ? attr->latency.m : lane->attr.latency.m;
        attr->overhead    = attr->overhead > lane->attr.overhead ? attr->overhead : lane->attr.overhead;
        attr->max_num_eps = attr->max_num_eps < lane->attr.max_num_eps ? attr->max_num_eps : lane->attr.max_num_eps;
    }
    attr->cap.flags = UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY |
                      UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY | UCT_IFACE_FLAG_PUT_ZCOPY |
                      UCT_IFACE_FLAG_GET_BCOPY | UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PENDING |
                      UCT_IFACE_FLAG_CB_SYNC | UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_EP_CHECK |
                      UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE | (common & INHERITED_FLAGS);
    attr->cap.event_flags = events &
                            (UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD);
    /* A relay does not sleep: nobody would wake it up for its neighbours. */
    if (!(attr->cap.event_flags & UCT_IFACE_FLAG_EVENT_FD) || iface->relay != NULL) {
        attr->cap.event_flags = 0;
    }
    attr->cap.am.max_short        = iface->short_bytes - head;
    attr->cap.am.max_bcopy        = iface->segment_bytes - head;
    attr->cap.am.min_zcopy        = 0;
    attr->cap.am.max_zcopy        = iface->segment_bytes - head;
    attr->cap.am.max_hdr          = UCT_MPATH_MAX_HEADER - head;
    attr->cap.am.max_iov          = iface->max_iov;
    attr->cap.am.opt_zcopy_align  = 1;
    attr->cap.am.align_mtu        = 1;
    attr->cap.put.max_short       = iface->short_bytes - UCT_MPATH_PUT_HEAD;
    attr->cap.put.max_bcopy       = iface->segment_bytes - UCT_MPATH_PUT_HEAD;
    attr->cap.put.min_zcopy       = 0;
    attr->cap.put.max_zcopy       = max_access_bytes(iface);
    attr->cap.put.max_iov         = iface->max_iov;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu       = 1;
    attr->cap.get.max_short       = 0;
    attr->cap.get.max_bcopy       = iface->segment_bytes - UCT_MPATH_PUT_HEAD;
    attr->cap.get.min_zcopy       = 0;
    attr->cap.get.max_zcopy       = max_access_bytes(iface);
    attr->cap.get.max_iov         = UCT_MPATH_MAX_IOV;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu       = 1;
    return UCS_OK;
}

static int is_flushed(uct_mpath_peer_t *peer)
{
    return !mpath_psn_before(peer->tx.base, peer->flush_psn) && ucs_list_is_empty(&peer->rma) &&
           ucs_list_is_empty(&peer->gets);
}

static ucs_status_t iface_flush(uct_iface_h tl_iface, unsigned flags, uct_completion_t *comp)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    uct_mpath_peer_t *peer;
    uint32_t handle;

    (void)flags;
    if (comp != NULL) {
        return UCS_ERR_UNSUPPORTED;
    }
    for (handle = 0; handle < iface->num_peers; ++handle) {
        peer = iface->peers[handle];
        if (peer != NULL && peer->state != UCT_MPATH_PEER_FAILED && !is_flushed(peer)) {
            return UCS_INPROGRESS;
        }
    }
    return UCS_OK;
}

/* Everything later is delivered after everything earlier: the fence of each peer. */
static ucs_status_t iface_fence(uct_iface_h tl_iface, unsigned flags)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    uint32_t handle;

    (void)flags;
    for (handle = 0; handle < iface->num_peers; ++handle) {
        if (iface->peers[handle] != NULL) {
            uct_mpath_peer_fence(iface->peers[handle]);
        }
    }
    return UCS_OK;
}

static ucs_status_t watch(int fd, uct_iface_h child)
{
    struct epoll_event event = {.events = EPOLLIN};
    ucs_status_t status;
    int child_fd;

    status = uct_iface_event_fd_get(child, &child_fd);
    if (status != UCS_OK) {
        return status;
    }
    if (epoll_ctl(fd, EPOLL_CTL_ADD, child_fd, &event) != 0) {
        ucs_error("mpath: epoll_ctl: %m");
        return UCS_ERR_IO_ERROR;
    }
    return UCS_OK;
}

/* One descriptor that is readable when any rail's is. */
static ucs_status_t iface_event_fd_get(uct_iface_h tl_iface, int *fd_p)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    const uct_mpath_lane_t *lane;
    ucs_status_t status;
    uint64_t rest;
    int fd;

    if (iface->event_fd >= 0) {
        *fd_p = iface->event_fd;
        return UCS_OK;
    }
    fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) {
        ucs_error("mpath: epoll_create1: %m");
        return UCS_ERR_IO_ERROR;
    }
    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        lane   = &iface->lanes[__builtin_ctzll(rest)];
        status = watch(fd, lane->child);
        if (status == UCS_OK && lane->rma_child != NULL) {
            status = watch(fd, lane->rma_child);
        }
        if (status != UCS_OK) {
            goto err_close;
        }
    }
    iface->event_fd = fd;
    *fd_p           = fd;
    return UCS_OK;

err_close:
    close(fd);
    return status;
}

/* While a peer has something to do its time matters, so there is no sleeping. */
static ucs_status_t iface_event_arm(uct_iface_h tl_iface, unsigned events)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);
    const uct_mpath_lane_t *lane;
    ucs_status_t status;
    uint64_t rest;

    if (!ucs_list_is_empty(&iface->busy)) {
        return UCS_ERR_BUSY;
    }
    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        lane   = &iface->lanes[__builtin_ctzll(rest)];
        status = uct_iface_event_arm(lane->child, events);
        if (status == UCS_OK && lane->rma_child != NULL) {
            status = uct_iface_event_arm(lane->rma_child, events);
        }
        if (status != UCS_OK) {
            return status;
        }
    }
    return UCS_OK;
}

/* By a rail of both, or through a neighbour that has one of the peer's. */
static int is_reachable(uct_mpath_iface_t *iface, const uct_mpath_device_addr_t *device,
                        const uct_mpath_iface_addr_t *address)
{
    return address_reachable(iface, device, address) != 0 || uct_mpath_route_reachable(iface, device) != 0;
}

#if HAVE_UCT_IFACE_INTERNAL_OPS_T_IFACE_IS_REACHABLE_V2
static int iface_is_reachable_v2(const uct_iface_h tl_iface, const uct_iface_is_reachable_params_t *params)
{
    uct_mpath_iface_t *iface = ucs_derived_of(tl_iface, uct_mpath_iface_t);

    if (!uct_iface_is_reachable_params_addrs_valid(params)) {
        return 0;
    }
    return is_reachable(iface, (const uct_mpath_device_addr_t *)params->device_addr,
                        (const uct_mpath_iface_addr_t *)params->iface_addr) &&
           uct_iface_scope_is_reachable(tl_iface, params);
}
#define IFACE_IS_REACHABLE uct_base_iface_is_reachable
#else
static int iface_is_reachable(const uct_iface_h tl_iface, const uct_device_addr_t *device,
                              const uct_iface_addr_t *address)
{
    return is_reachable(ucs_derived_of(tl_iface, uct_mpath_iface_t), (const uct_mpath_device_addr_t *)device,
                        (const uct_mpath_iface_addr_t *)address);
}
#define IFACE_IS_REACHABLE iface_is_reachable
#endif

static uct_iface_internal_ops_t iface_internal_ops = {
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_IFACE_QUERY_V2
    .iface_query_v2 = uct_iface_base_query_v2,
#endif
    .iface_estimate_perf = uct_base_iface_estimate_perf,
    .iface_vfs_refresh   = (uct_iface_vfs_refresh_func_t)ucs_empty_function,
    .ep_query            = (uct_ep_query_func_t)ucs_empty_function_return_unsupported,
    .ep_invalidate       = ep_invalidate,
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_CONNECT_TO_EP_V2
    .ep_connect_to_ep_v2 = (uct_ep_connect_to_ep_v2_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_IFACE_IS_REACHABLE_V2
    .iface_is_reachable_v2 = iface_is_reachable_v2,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_IS_CONNECTED
    .ep_is_connected = uct_base_ep_is_connected,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_GET_DEVICE_EP
    .ep_get_device_ep = (uct_ep_get_device_ep_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_IFACE_MEM_ELEMENT_PACK
    .iface_mem_element_pack = (uct_iface_mem_element_pack_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_PUT_SGL_ZCOPY
    .ep_put_sgl_zcopy = (uct_ep_put_sgl_zcopy_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_GET_SGL_ZCOPY
    .ep_get_sgl_zcopy = (uct_ep_get_sgl_zcopy_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_IFACE_INTERNAL_OPS_T_EP_OUTSTANDING_PURGE
    .ep_outstanding_purge = (uct_ep_outstanding_purge_func_t)ucs_empty_function_return_unsupported,
#endif
};

static uct_iface_ops_t iface_ops = {
    .ep_put_short             = uct_mpath_ep_put_short,
    .ep_put_bcopy             = uct_mpath_ep_put_bcopy,
    .ep_put_zcopy             = uct_mpath_ep_put_zcopy,
    .ep_get_bcopy             = uct_mpath_ep_get_bcopy,
    .ep_get_zcopy             = uct_mpath_ep_get_zcopy,
    .ep_am_short              = ep_am_short,
    .ep_am_short_iov          = ep_am_short_iov,
    .ep_am_bcopy              = ep_am_bcopy,
    .ep_am_zcopy              = ep_am_zcopy,
    .ep_pending_add           = ep_pending_add,
    .ep_pending_purge         = ep_pending_purge,
    .ep_flush                 = ep_flush,
    .ep_fence                 = ep_fence,
    .ep_check                 = ep_check,
    .ep_create                = UCS_CLASS_NEW_FUNC_NAME(uct_mpath_ep_t),
    .ep_destroy               = UCS_CLASS_DELETE_FUNC_NAME(uct_mpath_ep_t),
    .iface_flush              = iface_flush,
    .iface_fence              = iface_fence,
    .iface_progress_enable    = uct_base_iface_progress_enable,
    .iface_progress_disable   = uct_base_iface_progress_disable,
    .iface_progress           = iface_progress,
    .iface_event_fd_get       = iface_event_fd_get,
    .iface_event_arm          = iface_event_arm,
    .iface_close              = iface_close,
    .iface_query              = iface_query,
    .iface_get_device_address = get_device_address,
    .iface_get_address        = get_iface_address,
    .iface_is_reachable       = IFACE_IS_REACHABLE,
};
