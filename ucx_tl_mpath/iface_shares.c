/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface's rails as one supply for all its peers: the planner divides them every now and then by what each peer
 * was sent and what was measured, and a file keeps the measured rates for the next job.
 */
#include "ucx_tl_mpath/counters.h"
#include "ucx_tl_mpath/relay.h"
#include "ucx_tl_mpath/shares.h"

#include "tune/history_file.h"
#include "util/time.h"

#include <string.h>

#define PERIOD_NS (50 * MPATH_NS_PER_MS)
/* Among several peers nobody knows what one of them could take alone, only what it gets: leave it room to grow. */
#define GROWTH 1.25
/* However little the plan gives, a rail that is never used is never measured. */
#define LEAST_SHARE (1.0 / 16)
/* Relays cost two copies and two more processes: they have to save a tenth of the time. */
#define RELAYS_PAY 0.9
#define STORE_OPERATION "transport"

typedef struct active {
    int count;
    uct_mpath_peer_t *peers[MPATH_SHARES_MAX_PEERS];
    uint64_t demand_bytes[MPATH_SHARES_MAX_PEERS];
} active_t;

/* Without a plan: each peer uses its rails by their rates. */
static void forget_shares(uct_mpath_iface_t *iface)
{
    uint32_t handle;
    int rail;

    for (handle = 0; handle < iface->num_peers; ++handle) {
        for (rail = 0; iface->peers[handle] != NULL && rail < UCT_MPATH_MAX_RAILS; ++rail) {
            iface->peers[handle]->loads[rail].planned_bps = 0;
        }
    }
}

/* Peers that were sent something in the period; 0: more than can be planned for. Those that have more to send than goes
 * count alike: what they were sent is what they got, not what they want. */
static int find_active(uct_mpath_iface_t *iface, active_t *active)
{
    uint64_t most_bytes = 0;
    uct_mpath_peer_t *peer;
    uint32_t handle;
    int i;

    active->count = 0;
    for (handle = 0; handle < iface->num_peers; ++handle) {
        peer = iface->peers[handle];
        if (peer == NULL || peer->state != UCT_MPATH_PEER_READY || peer->period_bytes < iface->spread_bytes) {
            continue;
        }
        if (active->count == MPATH_SHARES_MAX_PEERS) {
            return 0;
        }
        active->peers[active->count]          = peer;
        active->demand_bytes[active->count++] = peer->period_bytes;
        most_bytes                            = most_bytes > peer->period_bytes ? most_bytes : peer->period_bytes;
    }
    for (i = 0; i < active->count; ++i) {
        if (!ucs_queue_is_empty(&active->peers[i]->pending)) {
            active->demand_bytes[i] = most_bytes;
        }
    }
    return 1;
}

static void begin_period(uct_mpath_iface_t *iface, uint64_t now_ns)
{
    uint32_t handle;

    iface->planned_ns = now_ns;
    for (handle = 0; handle < iface->num_peers; ++handle) {
        if (iface->peers[handle] != NULL) {
            iface->peers[handle]->period_bytes = 0;
        }
    }
}

static void set_shares(const active_t *active, const uint64_t *share_bps)
{
    mpath_spread_rail_t *load;
    uint64_t least_bps;
    int i, rail;

    for (i = 0; i < active->count; ++i) {
        for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
            load              = &active->peers[i]->loads[rail];
            least_bps         = (uint64_t)((double)load->rate_bps * LEAST_SHARE) + 1;
            load->planned_bps = share_bps[i * UCT_MPATH_MAX_RAILS + rail];
            if (load->planned_bps < least_bps) {
                load->planned_bps = least_bps;
            }
        }
    }
}

/* What a rail can carry for this interface. One of a neighbour has what that does not need for itself. */
static uint64_t supply_bps(const uct_mpath_iface_t *iface, int rail)
{
    const uct_mpath_lane_t *lane   = &iface->lanes[rail];
    const uct_mpath_relay_t *relay = iface->relay;
    uint64_t demand_bps;

    if (lane->child != NULL) {
        return lane->load.rate_bps;
    }
    if (relay == NULL || !(relay->rails & UCS_BIT(rail))) {
        return 0;
    }
    demand_bps = mpath_neighbours_demand(relay->neighbours, relay->gateways[rail].slot);
    return demand_bps < lane->load.rate_bps ? lane->load.rate_bps - demand_bps : 0;
}

/* Nonzero when every peer has a rail that both ends can use: the planner calls anything else an error. */
static int can_plan(const mpath_shares_t *shares)
{
    int i, rail;

    for (i = 0; i < shares->num_peers; ++i) {
        for (rail = 0; rail < shares->num_rails; ++rail) {
            if (shares->own_bps[rail] != 0 && shares->peer_bps[i * shares->num_rails + rail] != 0) {
                break;
            }
        }
        if (rail == shares->num_rails) {
            return 0;
        }
    }
    return 1;
}

/* Seconds, in no special unit, until the last peer has what it was sent; 0: it never has. */
static double plan_time(const mpath_shares_t *shares, uint64_t *share_bps)
{
    double longest = 0, rate;
    int i, rail;

    if (!can_plan(shares) || mpath_shares_plan(shares, share_bps) != MPATH_OK) {
        return 0;
    }
    for (i = 0; i < shares->num_peers; ++i) {
        rate = 0;
        for (rail = 0; rail < shares->num_rails; ++rail) {
            rate += (double)share_bps[i * shares->num_rails + rail];
        }
        if (rate <= 0) {
            return 0;
        }
        longest = longest > (double)shares->demand_bytes[i] / rate ? longest : (double)shares->demand_bytes[i] / rate;
    }
    return longest;
}

/* Both ways are planned; the one without relays is taken unless they save enough, and leaves its shares. */
static int plan_relays(uct_mpath_iface_t *iface, const mpath_shares_t *shares, uint64_t *own_bps, uint64_t *share_bps)
{
    uint64_t kept_bps[UCT_MPATH_MAX_RAILS];
    double with, without;
    int rail;

    with = plan_time(shares, share_bps);
    memcpy(kept_bps, own_bps, sizeof(kept_bps));
    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        own_bps[rail] = iface->lanes[rail].child != NULL ? own_bps[rail] : 0;
    }
    without            = plan_time(shares, share_bps);
    iface->relays_idle = without > 0 && (with <= 0 || with > RELAYS_PAY * without);
    if (iface->relays_idle) {
        return 1;
    }
    memcpy(own_bps, kept_bps, sizeof(kept_bps));
    return plan_time(shares, share_bps) > 0;
}

static void plan(uct_mpath_iface_t *iface, active_t *active)
{
    uint64_t own_bps[UCT_MPATH_MAX_RAILS] = {0};
    uint64_t peer_bps[MPATH_SHARES_MAX_PEERS * UCT_MPATH_MAX_RAILS];
    uint64_t share_bps[MPATH_SHARES_MAX_PEERS * UCT_MPATH_MAX_RAILS];
    const mpath_shares_t shares = {.num_peers    = active->count,
                                   .num_rails    = UCT_MPATH_MAX_RAILS,
                                   .own_bps      = own_bps,
                                   .peer_bps     = peer_bps,
                                   .demand_bytes = active->demand_bytes};
    double growth               = active->count > 1 ? GROWTH : 1;
    int i, rail;

    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        own_bps[rail] = supply_bps(iface, rail);
        for (i = 0; i < active->count; ++i) {
            peer_bps[i * UCT_MPATH_MAX_RAILS + rail] = (active->peers[i]->up_mask & UCS_BIT(rail)) && own_bps[rail] != 0
                                                           ? (uint64_t)((double)active->peers[i]->loads[rail].rate_bps *
                                                                        growth)
                                                           : 0;
        }
    }
    if (iface->relay != NULL && iface->relay->rails != 0 ? plan_relays(iface, &shares, own_bps, share_bps)
                                                         : plan_time(&shares, share_bps) > 0) {
        set_shares(active, share_bps);
        ++iface->plans;
        uct_mpath_count(MPATH_UCX_PLANS, 1);
    } else {
        forget_shares(iface);
    }
}

void uct_mpath_shares_progress(uct_mpath_iface_t *iface, uint64_t now_ns)
{
    active_t active;

    if (!iface->plan || now_ns - iface->planned_ns < PERIOD_NS) {
        return;
    }
    if (!find_active(iface, &active)) {
        forget_shares(iface);
    } else if (active.count > 0) {
        plan(iface, &active);
    }
    begin_period(iface, now_ns);
}

/* By what the file's lines are found: the NICs that are rails here and the rates that the system tells of them. */
static uint64_t machine_key(const uct_mpath_iface_t *iface)
{
    uint64_t key = 0xcbf29ce484222325ull, rest; /* FNV-1a */
    const uct_mpath_lane_t *lane;
    const char *at;

    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        lane = &iface->lanes[__builtin_ctzll(rest)];
        for (at = lane->name; *at != '\0'; ++at) {
            key = (key ^ (uint8_t)*at) * 0x100000001b3ull;
        }
        key = (key ^ lane->rate_bps) * 0x100000001b3ull;
    }
    return key;
}

static int num_lanes(const uct_mpath_iface_t *iface)
{
    return __builtin_popcountll(iface->lanes_mask);
}

void uct_mpath_rates_load(uct_mpath_iface_t *iface)
{
    uint64_t bps[UCT_MPATH_MAX_RAILS], rest;
    int i = 0;

    if (iface->rates_file[0] == '\0' || mpath_history_load(iface->rates_file, machine_key(iface), STORE_OPERATION, 0,
                                                           num_lanes(iface), bps) != MPATH_OK) {
        return;
    }
    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        mpath_spread_rail_init(&iface->lanes[__builtin_ctzll(rest)].load, bps[i++]);
    }
}

/* Who has sent for less than a second has seen little of the rates. */
static int has_measured(const uct_mpath_iface_t *iface)
{
    uint64_t sent_bytes = 0, second_bytes = 0, rest;
    const uct_mpath_lane_t *lane;

    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        lane = &iface->lanes[__builtin_ctzll(rest)];
        sent_bytes += lane->sent_bytes;
        second_bytes += lane->load.rate_bps;
    }
    return sent_bytes >= second_bytes;
}

void uct_mpath_rates_save(const uct_mpath_iface_t *iface)
{
    uint64_t bps[UCT_MPATH_MAX_RAILS], rest;
    int i = 0;

    if (iface->rates_file[0] == '\0' || !has_measured(iface)) {
        return;
    }
    for (rest = iface->lanes_mask; rest != 0; rest &= rest - 1) {
        bps[i++] = iface->lanes[__builtin_ctzll(rest)].load.rate_bps;
    }
    (void)mpath_history_save(iface->rates_file, machine_key(iface), STORE_OPERATION, 0, num_lanes(iface), bps);
}
