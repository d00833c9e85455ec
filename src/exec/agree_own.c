/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank sends to another node by itself, beside the leaders' messages: all leaders' data would share the rail of
 * one rank, and pair by pair each rank would hand its rail as many messages as the other node has ranks. It is sent
 * before the sizes are agreed on: the rank's row, which the leaders carry, tells everybody that it comes.
 *
 * A message: mpath_message_t; the pairs' sizes, one for each rank of the destination's node; their data, packed. Its
 * taker puts the data where its node mates look for it, and publishes that in the source's cell.
 */
#include "exec/agree_private.h"
#include "util/log.h"

#include <string.h>

static int is_own(const mpath_agree_limits_t *limits, uint64_t bytes)
{
    return bytes > limits->leader_bytes && bytes <= limits->remote_bytes;
}

static const uint64_t *row_of(const mpath_team_t *team, int source)
{
    const mpath_agree_state_t *state = team->agree;

    return state->demand[state->call & 1] + (size_t)source * (size_t)team->size;
}

/* Whether `source` sends its small pairs with `node` by itself; its row is there. */
static int sends_own(const mpath_team_t *team, const mpath_agree_limits_t *limits, int source, int node)
{
    const int *destinations = team->agree->by_node + team->agree->first_on[node];
    const uint64_t *row     = row_of(team, source);

    if (limits->leader_bytes == limits->remote_bytes || team->local_of[source] == 0 || node == team->node_of[source]) {
        return 0;
    }
    for (int k = 0; k < team->num_on[node]; k++) {
        if (is_own(limits, row[destinations[k]])) {
            return 1;
        }
    }
    return 0;
}

uint64_t mpath_agree_by_leader(const mpath_team_t *team, const mpath_agree_limits_t *limits, int source, int node)
{
    if (team->local_of[source] == 0) {
        return limits->remote_bytes;
    }
    return sends_own(team, limits, source, node) ? 0 : limits->leader_bytes;
}

size_t mpath_agree_own_room(const mpath_team_t *team, int destinations)
{
    const mpath_agree_limits_t *limits = &team->agree->layout.limits;

    if (limits->leader_bytes == limits->remote_bytes) {
        return 0;
    }
    return sizeof(mpath_message_t) + (size_t)destinations * (sizeof(uint64_t) + limits->remote_bytes);
}

/* Writes my data for `node`; the bytes used. */
static size_t own_pack(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits, int node,
                       char *out)
{
    const int *destinations = team->agree->by_node + team->agree->first_on[node];
    char *size_at           = out + sizeof(mpath_message_t);
    char *data_at           = size_at + (size_t)team->num_on[node] * sizeof(uint64_t);
    mpath_message_t message = {.magic       = MPATH_MESSAGE_MAGIC,
                               .type        = MPATH_MESSAGE_OWN,
                               .call        = team->agree->call,
                               .operation   = call->operation,
                               .limit_bytes = limits->remote_bytes};

    for (int k = 0; k < team->num_on[node]; k++) {
        uint64_t bytes = call->send_bytes[destinations[k]];

        bytes = bytes <= limits->remote_bytes ? bytes : 0;
        memcpy(size_at, &bytes, sizeof(bytes));
        size_at += sizeof(bytes);
        if (bytes > 0) {
            memcpy(data_at, (const char *)call->send_buffer + call->send_offsets[destinations[k]], (size_t)bytes);
            data_at += bytes;
        }
    }
    message.bytes = (uint64_t)(data_at - out);
    memcpy(out, &message, sizeof(message));
    return (size_t)message.bytes;
}

mpath_status_t mpath_agree_own_send(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                    mpath_agree_wait_t *wait)
{
    mpath_channels_t *channels = team->channels;

    if (channels == NULL || (call->flags & (MPATH_CALL_DEVICE | MPATH_CALL_INELIGIBLE))) {
        return MPATH_OK;
    }
    for (int i = 0; i < channels->count; i++) {
        mpath_channel_t *channel = &channels->list[i];
        mpath_status_t status;

        if (!channel->takes_own || !sends_own(team, limits, team->rank, channel->node)) {
            continue;
        }
        wait->uses_own = 1; /* the call before has waited until its messages were out of `out` */
        status         = mpath_agree_post(team, channel, own_pack(team, call, limits, channel->node, channel->out));
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

static mpath_status_t own_fail(mpath_team_t *team, const mpath_channel_t *channel, const char *what)
{
    mpath_error("%s: data of rank %d (%s) in call %u: %s; the call fails", team->oob.name, channel->peer,
                mpath_team_host(team, channel->peer), team->agree->call, what);
    mpath_team_break(team, MPATH_ERR_INTERNAL);
    return team->broken;
}

/* The largest pair of a message whose length fits its sizes; UINT64_MAX for any other. */
static uint64_t own_largest(const mpath_team_t *team, const mpath_agree_limits_t *limits,
                            const mpath_channel_t *channel)
{
    size_t bytes     = sizeof(mpath_message_t) + (size_t)team->num_local * sizeof(uint64_t);
    uint64_t largest = 0;

    for (int k = 0; k < team->num_local && bytes <= channel->in_bytes; k++) {
        uint64_t pair_bytes;

        memcpy(&pair_bytes, channel->in + sizeof(mpath_message_t) + (size_t)k * sizeof(pair_bytes), sizeof(pair_bytes));
        largest = pair_bytes > largest ? pair_bytes : largest;
        bytes += largest <= limits->remote_bytes ? (size_t)pair_bytes : 0;
    }
    return bytes == channel->in_bytes && largest <= limits->remote_bytes ? largest : UINT64_MAX;
}

/* Spreads a message over the segment. */
static mpath_status_t own_unpack(mpath_team_t *team, const mpath_agree_limits_t *limits, const mpath_channel_t *channel)
{
    mpath_agree_state_t *state = team->agree;
    int half                   = (int)(state->call & 1);
    mpath_agree_cell_t *cell   = &state->cells[half][channel->peer];
    char *to                   = mpath_agree_data(team, half, channel->peer);
    const char *size_at        = channel->in + sizeof(mpath_message_t);
    const char *data_at        = size_at + (size_t)team->num_local * sizeof(uint64_t);
    uint64_t largest           = own_largest(team, limits, channel);

    if (largest == UINT64_MAX) {
        return own_fail(team, channel, "its length does not fit its sizes");
    }
    cell->stride = mpath_agree_stride(largest);
    for (int k = 0; k < team->num_local; k++) {
        uint64_t bytes;

        memcpy(&bytes, size_at + (size_t)k * sizeof(bytes), sizeof(bytes));
        memcpy(to + (size_t)k * cell->stride, data_at, (size_t)bytes);
        data_at += bytes;
    }
    atomic_store_explicit(&cell->own, state->call, memory_order_release);
    return MPATH_OK;
}

/* Takes what has come in; number of messages, or a status. */
static int own_receive(mpath_team_t *team, const mpath_agree_limits_t *limits)
{
    int received = mpath_channels_test(team);

    if (received < 0) {
        return received;
    }
    received = 0;
    for (int i = 0; team->channels != NULL && i < team->channels->count; i++) {
        mpath_channel_t *channel = &team->channels->list[i];
        mpath_message_t message;
        mpath_status_t status;

        if (!channel->brings_own || channel->state != MPATH_CHANNEL_ARRIVED) {
            continue;
        }
        memcpy(&message, channel->in, sizeof(message));
        if (message.call == team->agree->call + 1) {
            continue; /* its sender has all that it needs of this call */
        }
        status = message.call == team->agree->call ? own_unpack(team, limits, channel)
                                                   : own_fail(team, channel, "it belongs to another call");
        if (status != MPATH_OK) {
            return status;
        }
        (void)mpath_channel_post(team, channel); /* an error matters to the next call, which finds it in the channel */
        received++;
    }
    return received;
}

int mpath_agree_own_is_missing(const mpath_team_t *team, int source)
{
    const mpath_agree_state_t *state = team->agree;

    return atomic_load_explicit(&state->cells[state->call & 1][source].own, memory_order_acquire) != state->call;
}

/* What I take must come in, whether anybody has use for it or not: the channel is for one message per call. */
static int own_concerns_me(const mpath_team_t *team, const mpath_agree_limits_t *limits, int source)
{
    const mpath_agree_cell_t *cell = &team->agree->cells[team->agree->call & 1][source];
    uint64_t bytes                 = row_of(team, source)[team->rank];

    return !(cell->flags & MPATH_CALL_DEVICE) && sends_own(team, limits, source, team->node) &&
           ((bytes > 0 && bytes <= limits->remote_bytes) ||
            team->local_of[source] % team->num_local == team->local_rank);
}

/* The control plane says that nothing more comes from a source that is waited for. */
static mpath_status_t own_check_channel(mpath_team_t *team, int source)
{
    for (int i = 0; team->channels != NULL && i < team->channels->count; i++) {
        const mpath_channel_t *channel = &team->channels->list[i];

        if (channel->peer == source && channel->brings_own && channel->state == MPATH_CHANNEL_FAILED) {
            mpath_error("%s: rank %d (%s) cannot be reached any more (%s) while rank %d waits for its data in call %u; "
                        "the call fails",
                        team->oob.name, source, mpath_team_host(team, source), mpath_status_string(channel->status),
                        team->rank, team->agree->call);
            mpath_team_break(team, MPATH_ERR_UNREACHABLE);
            return team->broken;
        }
    }
    return MPATH_OK;
}

static mpath_status_t own_await_source(mpath_team_t *team, const mpath_agree_limits_t *limits, int source,
                                       mpath_agree_wait_t *wait)
{
    while (mpath_agree_own_is_missing(team, source)) {
        int received = own_receive(team, limits);
        mpath_status_t status;

        if (received < 0) {
            return (mpath_status_t)received;
        }
        if (received > 0) {
            mpath_idle_event(&wait->idle);
            continue;
        }
        status = own_check_channel(team, source);
        if (status == MPATH_OK) {
            status = mpath_agree_idle(team, source, wait);
        }
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_agree_own_await(mpath_team_t *team, const mpath_agree_limits_t *limits, mpath_agree_wait_t *wait)
{
    mpath_status_t status = MPATH_OK;

    if (limits->leader_bytes == limits->remote_bytes) {
        return MPATH_OK;
    }
    for (int source = 0; source < team->size && status == MPATH_OK; source++) {
        if (!mpath_agree_is_local(team, source) && own_concerns_me(team, limits, source) &&
            mpath_agree_own_is_missing(team, source)) {
            mpath_agree_wait_start(wait, team);
            wait->uses_own = 1;
            wait->for_own  = 1;
            status         = own_await_source(team, limits, source, wait);
        }
    }
    wait->for_own = 0;
    return status;
}
