/* SPDX-License-Identifier: BSD-3-Clause */
/* Attention: counts of who looks at a non-blocking operation, and how they get from node to node. */
#include "team/attend.h"

#include "team/agree_private.h"
#include "util/time.h"

#include <stdatomic.h>
#include <string.h>

#define BEGIN_NS (50 * MPATH_NS_PER_MS) /* shorter waits are none */
#define BEATS_PER_DEADLINE 8            /* of a short one; else a beat per second */

/* The same on all ranks, as are the deadlines. */
static uint64_t interval_ns(const mpath_team_t *team)
{
    const mpath_settings_t *settings = &team->context->settings;
    int seconds                      = settings->timeout_s;

    if ((settings->resend_after_s > 0) && (settings->resend_after_s < seconds)) {
        seconds = settings->resend_after_s;
    }
    return (seconds < BEATS_PER_DEADLINE) ? (uint64_t)seconds * MPATH_NS_PER_S / BEATS_PER_DEADLINE : MPATH_NS_PER_S;
}

/* In the node's segment. */
static atomic_uint *beats_of(const mpath_team_t *team, int rank)
{
    return &team->agree->beats[rank];
}

/* All ranks of the node have come to the end of the call: nobody waits for them any more. */
static int node_is_through(const mpath_team_t *team, const mpath_channel_t *channel)
{
    const mpath_agree_state_t *state = team->agree;
    const atomic_uint *came          = &mpath_agree_half(team)->came[channel->node];

    return (channel->state == MPATH_CHANNEL_ARRIVED) ||
           (state->settling && (atomic_load_explicit(came, memory_order_relaxed) == team->call));
}

/*
 * Which ranks of this node have looked since the last beat: their counts would bring what was before the wait of who
 * hears of them. What the control plane refuses now is lost, and the others wait a beat longer.
 */
static void send_pulse(mpath_team_t *team, mpath_channel_t *channel, const unsigned *looked, int count)
{
    char text[sizeof(mpath_message_t) + sizeof(unsigned) * MPATH_PULSE_RANKS];
    size_t bytes            = sizeof(mpath_message_t) + sizeof(*looked) * (size_t)count;
    mpath_message_t message = {.magic = MPATH_MESSAGE_MAGIC, .type = MPATH_MESSAGE_PULSE, .bytes = bytes};

    if ((channel->pulse.handle != NULL) &&
        (team->oob.test(team->oob.context, &channel->pulse, NULL) == MPATH_INPROGRESS)) {
        return;
    }
    memcpy(text, &message, sizeof(message));
    memcpy(text + sizeof(message), looked, sizeof(*looked) * (size_t)count);
    channel->sent += team->oob.isend(team->oob.context, channel->peer, text, bytes, &channel->pulse) == MPATH_OK;
}

/* Pulses that have waited here until this rank looked come one after the other, and tell of one beat. */
static int is_heard(mpath_team_t *team, int node)
{
    uint64_t *heard_ns = &team->agree->attend.heard_ns[node], now_ns = mpath_time_ns();

    if (now_ns - *heard_ns < interval_ns(team) / 2) {
        return 0;
    }
    *heard_ns = now_ns;
    return 1;
}

void mpath_attend_pulse(mpath_team_t *team, int node, const char *looked, size_t bytes)
{
    if (!is_heard(team, node)) {
        return;
    }
    for (int i = 0; (i < team->num_on[node]) && (bytes >= sizeof(unsigned)); i++) {
        int rank = team->agree->by_node[team->agree->first_on[node] + i];
        unsigned has_looked;

        memcpy(&has_looked, looked, sizeof(has_looked));
        atomic_fetch_add_explicit(beats_of(team, rank), has_looked != 0, memory_order_relaxed);
        looked += sizeof(has_looked);
        bytes -= sizeof(has_looked);
    }
}

/*
 * The leader tells the others of its node, and counts for nodes that are through. Where it has not looked itself
 * for long, it does not know when its mates have.
 */
static void lead(mpath_team_t *team, uint64_t now_ns)
{
    mpath_agree_state_t *state = team->agree;
    int knows                  = now_ns - state->attend.led_ns < BEATS_PER_DEADLINE * interval_ns(team);
    unsigned looked[MPATH_PULSE_RANKS];
    int count = (team->num_local < MPATH_PULSE_RANKS) ? team->num_local : MPATH_PULSE_RANKS;

    for (int i = 0; i < count; i++) {
        int rank       = team->local[i];
        unsigned beats = atomic_load_explicit(beats_of(team, rank), memory_order_relaxed);

        looked[i]             = knows && (beats != state->attend.told[i]);
        state->attend.told[i] = beats;
    }
    state->attend.led_ns = now_ns;
    for (int i = 0; i < team->channels->count; i++) {
        mpath_channel_t *channel = &team->channels->list[i];
        int node                 = channel->node;

        if (!channel->leads) {
            continue;
        }
        if (node_is_through(team, channel)) {
            for (int k = 0; k < team->num_on[node]; k++) {
                atomic_fetch_add_explicit(beats_of(team, state->by_node[state->first_on[node] + k]), 1,
                                          memory_order_relaxed);
            }
        } else {
            send_pulse(team, channel, looked, count);
        }
    }
}

static void begin(mpath_team_t *team)
{
    mpath_attend_t *attend = &team->agree->attend;

    attend->begun = 1;
    for (int rank = 0; rank < team->size; rank++) {
        attend->seen[rank] = atomic_load_explicit(beats_of(team, rank), memory_order_relaxed);
    }
}

void mpath_attend_look(mpath_team_t *team, const mpath_idle_t *idle, uint64_t waited_ns)
{
    mpath_attend_t *attend = &team->agree->attend;
    uint64_t now_ns;

    if (!mpath_idle_others_may_rest()) {
        return;
    }
    attend->begun = attend->begun && (idle->rounds > 1);
    if (!attend->begun && (waited_ns >= BEGIN_NS)) {
        begin(team);
    }
    now_ns = mpath_time_ns();
    if (now_ns < attend->next_beat_ns) {
        return;
    }
    attend->next_beat_ns = now_ns + interval_ns(team);
    atomic_fetch_add_explicit(beats_of(team, team->rank), 1, memory_order_relaxed);
    if ((team->local_rank == 0) && (team->channels != NULL)) {
        lead(team, now_ns);
    }
}

int mpath_attend_all(const mpath_team_t *team, int seconds)
{
    const mpath_attend_t *attend = &team->agree->attend;
    unsigned needed              = (unsigned)((uint64_t)seconds * MPATH_NS_PER_S / interval_ns(team));

    if (!mpath_idle_others_may_rest()) {
        return 1;
    }
    for (int rank = 0; rank < team->size; rank++) {
        if (!attend->begun ||
            atomic_load_explicit(beats_of(team, rank), memory_order_relaxed) - attend->seen[rank] < needed) {
            return 0;
        }
    }
    return 1;
}
