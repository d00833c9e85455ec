/* SPDX-License-Identifier: BSD-3-Clause */
/* Small data between nodes: what leaders send for their node, and what a rank sends by itself. */
#include "team/agree_private.h"

#include "util/log.h"

#include <string.h>

/*
 * What leaders send: a number, the size of all pairs of the two nodes' ranks, or 0; then their sizes follow, by source and
 * destination; then the data, packed in that order.
 */

#define DATA_SIZES(sources, destinations) (((size_t)(sources) * (size_t)(destinations) + 1) * sizeof(uint32_t))

size_t mpath_agree_data_max_bytes(const mpath_team_t *team, int sources, int destinations)
{
    return DATA_SIZES(sources, destinations) +
           (size_t)sources * (size_t)destinations * team->agree->layout.remote_capacity;
}

/* The size that all pairs with `node` have, or 0; *any_p: there is one with data. */
static uint32_t data_uniform(const mpath_team_t *team, int node, int *any_p)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    const int *destinations        = team->agree->by_node + team->agree->first_on[node];
    uint32_t first                 = 0;
    int is_uniform                 = 1;

    *any_p = 0;
    for (int i = 0; i < team->num_local; i++) {
        const uint32_t *pairs = half->pairs + (size_t)i * (size_t)team->size;

        if (!half->cells[i].sends) {
            is_uniform = 0;
            continue;
        }
        first = i == 0 ? pairs[destinations[0]] : first;
        for (int k = 0; k < team->num_on[node]; k++) {
            *any_p     = *any_p || pairs[destinations[k]] > 0;
            is_uniform = is_uniform && pairs[destinations[k]] == first;
        }
    }
    return is_uniform ? first : 0;
}

size_t mpath_agree_data_pack(const mpath_team_t *team, int node, char *out)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    const int *destinations        = team->agree->by_node + team->agree->first_on[node];
    size_t size                    = (size_t)team->size;
    int any, num_destinations = team->num_on[node];
    uint32_t uniform = data_uniform(team, node, &any);
    char *size_at    = out + sizeof(uniform);
    char *data_at    = uniform > 0 ? size_at : out + DATA_SIZES(team->num_local, num_destinations);

    if (!any) {
        return 0;
    }
    memcpy(out, &uniform, sizeof(uniform));
    for (int i = 0; i < team->num_local; i++) {
        const mpath_agree_cell_t *cell = &half->cells[i];
        const char *data               = half->out + (size_t)i * size * team->agree->layout.remote_capacity;

        for (int k = 0; k < num_destinations; k++) {
            uint32_t bytes = cell->sends ? half->pairs[(size_t)i * size + (size_t)destinations[k]] : 0;

            if (uniform == 0) {
                memcpy(size_at, &bytes, sizeof(bytes));
                size_at += sizeof(bytes);
            }
            if (bytes > 0) {
                memcpy(data_at, data + (size_t)destinations[k] * cell->out_stride, bytes);
                data_at += bytes;
            }
        }
    }
    return (size_t)(data_at - out);
}

/* The size of a pair of the message. */
static uint32_t data_size(const char *in, uint32_t uniform, int pair)
{
    uint32_t bytes = uniform;

    if (uniform == 0) {
        memcpy(&bytes, in + ((size_t)pair + 1) * sizeof(bytes), sizeof(bytes));
    }
    return bytes;
}

int mpath_agree_data_unpack(mpath_team_t *team, const mpath_agree_limits_t *limits, int node, const char *in,
                            size_t bytes)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    const int *sources             = team->agree->by_node + team->agree->first_on[node];
    int num_sources = team->num_on[node], num_local = team->num_local;
    const char *data_at, *end                       = in + bytes;
    uint32_t uniform;

    if (bytes < sizeof(uniform)) {
        return 0;
    }
    memcpy(&uniform, in, sizeof(uniform));
    if (uniform == 0 && bytes < DATA_SIZES(num_sources, num_local)) {
        return 0;
    }
    data_at = uniform > 0 ? in + sizeof(uniform) : in + DATA_SIZES(num_sources, num_local);
    for (int i = 0; i < num_sources; i++) {
        char *to         = half->in + (size_t)sources[i] * (size_t)num_local * team->agree->layout.remote_capacity;
        uint32_t largest = 0, stride;

        for (int k = 0; k < num_local; k++) {
            uint32_t pair_bytes = data_size(in, uniform, i * num_local + k);

            largest = pair_bytes > largest ? pair_bytes : largest;
        }
        if (largest > limits->remote_bytes) {
            return 0;
        }
        if (largest == 0) { /* else the stride may be the business of the source's taker */
            continue;
        }
        stride = mpath_agree_stride(largest);
        for (int k = 0; k < num_local; k++) {
            uint32_t pair_bytes = data_size(in, uniform, i * num_local + k);

            if ((size_t)(end - data_at) < pair_bytes) {
                return 0;
            }
            memcpy(to + (size_t)k * stride, data_at, pair_bytes);
            data_at += pair_bytes;
        }
        half->stride[sources[i]] = stride;
        atomic_store_explicit(&half->own[sources[i]], team->call, memory_order_release);
    }
    return data_at == end;
}

/*
 * What a rank sends to another node by itself, beside the leaders' messages: all leaders' data would share the rail of
 * one rank, and pair by pair each rank would hand its rail as many messages as the other node has ranks. It is sent
 * before the sizes are agreed on: who receives knows from what it expects that it comes.
 *
 * A message: mpath_message_t; the pairs' sizes, one for each rank of the destination's node; their data, packed. Its
 * taker puts the data where its node mates look for it, and says so in `own`.
 */

int mpath_agree_sends_own(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                          int node)
{
    const int *destinations = team->agree->by_node + team->agree->first_on[node];

    if (limits->leader_bytes == limits->remote_bytes || team->local_rank == 0 || node == team->node) {
        return 0;
    }
    for (int k = 0; k < team->num_on[node]; k++) {
        uint64_t bytes = call->send_bytes[destinations[k]];

        if (bytes > limits->leader_bytes && bytes <= limits->remote_bytes) {
            return 1;
        }
    }
    return 0;
}

size_t mpath_agree_own_max_bytes(const mpath_team_t *team, int destinations)
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
                               .call        = team->call,
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

    if (channels == NULL || limits->leader_bytes == limits->remote_bytes ||
        !mpath_agree_half(team)->cells[team->local_rank].sends) {
        return MPATH_OK; /* nothing small goes to other nodes, or the leaders carry it */
    }
    for (int i = 0; i < channels->count; i++) {
        mpath_channel_t *channel = &channels->list[i];
        mpath_status_t status;

        if (!channel->takes_own || !mpath_agree_sends_own(team, call, limits, channel->node)) {
            continue;
        }
        wait->uses_own = 1;
        status         = mpath_channel_send(team, channel, own_pack(team, call, limits, channel->node, channels->out));
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

static mpath_status_t own_fail(mpath_team_t *team, const mpath_channel_t *channel, const char *what)
{
    mpath_error("%s: data of rank %d (%s) in call %u: %s; the call fails", team->oob.name, channel->peer,
                mpath_team_host(team, channel->peer), team->call, what);
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
    const mpath_agree_half_t *half = mpath_agree_half(team);
    char *to = half->in + (size_t)channel->peer * (size_t)team->num_local * team->agree->layout.remote_capacity;
    const char *size_at = channel->in + sizeof(mpath_message_t);
    const char *data_at = size_at + (size_t)team->num_local * sizeof(uint64_t);
    uint64_t largest    = own_largest(team, limits, channel);
    uint32_t stride     = mpath_agree_stride(largest);

    if (largest == UINT64_MAX) {
        return own_fail(team, channel, "its length does not fit its sizes");
    }
    half->stride[channel->peer] = stride;
    for (int k = 0; k < team->num_local; k++) {
        uint64_t bytes;

        memcpy(&bytes, size_at + (size_t)k * sizeof(bytes), sizeof(bytes));
        memcpy(to + (size_t)k * stride, data_at, (size_t)bytes);
        data_at += bytes;
    }
    atomic_store_explicit(&half->own[channel->peer], team->call, memory_order_release);
    return MPATH_OK;
}

/* Takes what has come in by the next few channels; number of messages, or a status. */
static int own_receive(mpath_team_t *team, const mpath_agree_limits_t *limits)
{
    int received = 0;

    for (int i = 0; team->channels != NULL && i < team->channels->count && i < MPATH_CHANNELS_LOOK; i++) {
        mpath_channel_t *channel = mpath_channels_next(team->channels);
        int result               = mpath_channel_test(team, channel);
        mpath_message_t message;
        mpath_status_t status = MPATH_OK;

        if (result < 0) {
            return result;
        }
        if (!channel->brings_own || channel->state != MPATH_CHANNEL_ARRIVED) {
            continue;
        }
        memcpy(&message, channel->in, sizeof(message));
        if (message.call == team->call + 1) {
            continue; /* its sender has all that it needs of this call */
        }
        if (message.call == team->call) {
            status = own_unpack(team, limits, channel);
        } /* else of a call that was left to the previous function, where nobody took it */
        if (status != MPATH_OK) {
            return status;
        }
        (void)mpath_channel_post(team, channel); /* an error matters to the next call, which finds it in the channel */
        received++;
    }
    return received;
}

/* What has come of this call, which is left to the previous function, and of those before it: it would stay in the channel, and others behind it. */
void mpath_agree_own_drop(mpath_team_t *team)
{
    for (int i = 0; team->channels != NULL && i < team->channels->count; i++) {
        mpath_channel_t *channel = &team->channels->list[i];
        mpath_message_t message;

        if (!channel->brings_own || mpath_channel_test(team, channel) < 0 || channel->state != MPATH_CHANNEL_ARRIVED) {
            continue;
        }
        memcpy(&message, channel->in, sizeof(message));
        if ((int32_t)(message.call - team->call) <= 0) {
            (void)mpath_channel_post(team, channel); /* as in own_receive() */
        }
    }
}

/* What I take must come in, whether I have use for it or not: the channel is for one message per call. */
static int own_concerns_me(const mpath_team_t *team, const mpath_agree_limits_t *limits, int source)
{
    int expected = mpath_agree_expects(team, team->local_rank, source) != MPATH_AGREE_EXPECTS_NONE;

    return expected || (team->local_of[source] % team->num_local == team->local_rank &&
                        mpath_agree_brings_own(team, limits, source));
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
                        team->rank, team->call);
            mpath_team_break(team, MPATH_ERR_UNREACHABLE);
            return team->broken;
        }
    }
    return MPATH_OK;
}

static mpath_status_t own_await_source(mpath_team_t *team, const mpath_agree_limits_t *limits, int source,
                                       mpath_agree_wait_t *wait)
{
    while (mpath_agree_data_is_missing(team, source)) {
        int received          = limits->leader_bytes == limits->remote_bytes ? 0 : own_receive(team, limits);
        mpath_status_t status = MPATH_OK;

        if (received < 0) {
            return (mpath_status_t)received;
        }
        if (received > 0) {
            mpath_wait_event(&wait->wait);
            continue;
        }
        if (wait->uses_own) {
            status = own_check_channel(team, source);
        }
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
    int takes             = limits->leader_bytes != limits->remote_bytes;
    mpath_status_t status = MPATH_OK;

    if (!takes && !mpath_agree_half(team)->cells[team->local_rank].expects) {
        return MPATH_OK;
    }
    for (int source = 0; source < team->size && status == MPATH_OK; source++) {
        if (!mpath_agree_is_local(team, source) && own_concerns_me(team, limits, source) &&
            mpath_agree_data_is_missing(team, source)) {
            mpath_agree_wait_start(wait);
            wait->uses_own = wait->uses_own || takes;
            wait->for_data = 1;
            status         = own_await_source(team, limits, source, wait);
        }
    }
    wait->for_data = 0;
    return status;
}
