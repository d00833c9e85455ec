/* SPDX-License-Identifier: BSD-3-Clause */
/* The interface: settings, opening and closing, and its progress, in which the rails and the peers are served. */
#include "ucx_tl_mpath/relay.h"

#include "util/secret.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

UCS_CLASS_INIT_FUNC(uct_mpath_iface_t, uct_md_h tl_md, uct_worker_h worker, const uct_iface_params_t *params,
                    const uct_iface_config_t *tl_config)
{
    uct_mpath_md_t *md = ucs_derived_of(tl_md, uct_mpath_md_t);
    ucs_status_t status;

    UCS_CLASS_CALL_SUPER_INIT(uct_base_iface_t, &uct_mpath_iface_ops, &uct_mpath_iface_internal_ops, tl_md, worker,
                              params, tl_config UCS_STATS_ARG(params->stats_root) UCS_STATS_ARG("mpath"));
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
    uct_mpath_address_init(self);
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

void uct_mpath_iface_close(uct_iface_h tl_iface)
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

unsigned uct_mpath_iface_progress(uct_iface_h tl_iface)
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
