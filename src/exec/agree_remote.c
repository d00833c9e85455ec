/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The leader's part of an agreement: one message to every other leader and one from each.
 *
 * A message from node A to node B: mpath_message_t; a record for each rank of A; its row of byte counts; then the small
 * pairs from A to B, packed, by source and destination. Which these are is known from the rows
 * (mpath_agree_by_leader()).
 */
#include "exec/agree_private.h"
#include "util/log.h"

#include <string.h>

/* What a cell says, beside its call. */
typedef struct agree_record {
    uint32_t flags;
    uint32_t operation;
    uint64_t sum;
    uint64_t left;
} agree_record_t;

static size_t rows_bytes(const mpath_team_t *team, int sources)
{
    return sizeof(mpath_message_t) + (size_t)sources * (sizeof(agree_record_t) + (size_t)team->size * sizeof(uint64_t));
}

size_t mpath_agree_message_room(const mpath_team_t *team, int sources, int destinations)
{
    return rows_bytes(team, sources) + (size_t)sources * (size_t)destinations * team->agree->layout.capacity;
}

/* Writes what this node tells `node`; the bytes used. */
static size_t message_pack(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                           int node, char *out)
{
    const mpath_agree_state_t *state = team->agree;
    int half                         = (int)(state->call & 1);
    size_t size                      = (size_t)team->size;
    const int *destinations          = state->by_node + state->first_on[node];
    char *record_at                  = out + sizeof(mpath_message_t),
         *row_at                     = record_at + (size_t)team->num_local * sizeof(agree_record_t);
    char *data_at                    = out + rows_bytes(team, team->num_local);
    mpath_message_t message          = {.magic       = MPATH_MESSAGE_MAGIC,
                                        .type        = MPATH_MESSAGE_ROWS,
                                        .call        = state->call,
                                        .operation   = call->operation,
                                        .limit_bytes = limits->remote_bytes};

    for (int i = 0; i < team->num_local; i++) {
        int source                     = team->local[i];
        const mpath_agree_cell_t *cell = &state->cells[half][source];
        const uint64_t *row            = state->demand[half] + (size_t)source * size;
        const char *data               = mpath_agree_data(team, half, source);
        uint64_t limit_bytes           = mpath_agree_by_leader(team, limits, source, node);
        agree_record_t record          = {
                     .flags = cell->flags, .operation = cell->operation, .sum = cell->sum, .left = cell->left};

        memcpy(record_at, &record, sizeof(record));
        memcpy(row_at, row, size * sizeof(uint64_t));
        record_at += sizeof(record);
        row_at += size * sizeof(uint64_t);
        for (int k = 0; k < team->num_on[node]; k++) {
            int destination = destinations[k];

            if (row[destination] > 0 && row[destination] <= limit_bytes) {
                memcpy(data_at, data + (size_t)destination * cell->stride, (size_t)row[destination]);
                data_at += row[destination];
            }
        }
    }
    message.bytes = (uint64_t)(data_at - out);
    memcpy(out, &message, sizeof(message));
    return (size_t)message.bytes;
}

mpath_status_t mpath_agree_post(mpath_team_t *team, mpath_channel_t *channel, size_t bytes)
{
    mpath_status_t status;

    status = team->oob.isend(team->oob.context, channel->peer, channel->out, bytes, &channel->send);
    if (status != MPATH_OK) {
        mpath_error("%s: cannot send to rank %d (%s) in call %u (%s); the call fails", team->oob.name, channel->peer,
                    mpath_team_host(team, channel->peer), team->agree->call, mpath_status_string(status));
        mpath_team_break(team, MPATH_ERR_UNREACHABLE);
        return team->broken;
    }
    return MPATH_OK;
}

mpath_status_t mpath_agree_send(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                mpath_agree_wait_t *wait)
{
    mpath_channels_t *channels = team->channels;
    mpath_status_t status      = mpath_agree_flush(team, wait);

    for (int i = 0; i < channels->count && status == MPATH_OK; i++) {
        mpath_channel_t *channel = &channels->list[i];

        if (!channel->carries_rows) {
            continue;
        }
        status = mpath_agree_post(team, channel, message_pack(team, call, limits, channel->node, channel->out));
    }
    return status;
}

static mpath_status_t message_fail(mpath_team_t *team, const mpath_channel_t *channel, const char *what,
                                   mpath_status_t reason)
{
    mpath_error("%s: message of rank %d (%s) in call %u: %s; the call fails", team->oob.name, channel->peer,
                mpath_team_host(team, channel->peer), team->agree->call, what);
    mpath_team_break(team, reason);
    return team->broken;
}

/* Takes one rank's row and small data out of a message; NULL when the message is too short for them. */
static const char *message_take_source(mpath_team_t *team, const mpath_agree_limits_t *limits, int source,
                                       const agree_record_t *record, const char *row_at, const char *data_at,
                                       const char *end)
{
    mpath_agree_state_t *state = team->agree;
    int half                   = (int)(state->call & 1);
    uint64_t *row              = state->demand[half] + (size_t)source * (size_t)team->size;
    char *data                 = mpath_agree_data(team, half, source);
    mpath_agree_cell_t *cell   = &state->cells[half][source];
    uint64_t largest           = 0, limit_bytes;

    memcpy(row, row_at, (size_t)team->size * sizeof(uint64_t));
    limit_bytes = mpath_agree_by_leader(team, limits, source, team->node);
    for (int k = 0; k < team->num_local; k++) {
        uint64_t bytes = row[team->local[k]];

        largest = bytes <= limit_bytes && bytes > largest ? bytes : largest;
    }
    cell->flags     = record->flags;
    cell->operation = record->operation;
    cell->sum       = record->sum;
    cell->left      = record->left;
    if (largest > 0) { /* else the stride may be the business of the source's taker */
        cell->stride = mpath_agree_stride(largest);
    }
    for (int k = 0; k < team->num_local && largest > 0; k++) {
        uint64_t bytes = row[team->local[k]];

        if (bytes > 0 && bytes <= limit_bytes) {
            if ((uint64_t)(end - data_at) < bytes) {
                return NULL;
            }
            memcpy(data + (size_t)k * cell->stride, data_at, (size_t)bytes);
            data_at += bytes;
        }
    }
    return data_at;
}

/* Spreads a node's message over the segment and publishes its ranks' cells. */
static mpath_status_t message_unpack(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                     const mpath_channel_t *channel)
{
    mpath_agree_state_t *state = team->agree;
    mpath_agree_cell_t *cells  = state->cells[state->call & 1];
    int sources                = team->num_on[channel->node];
    const int *ranks           = state->by_node + state->first_on[channel->node];
    const char *record_at      = channel->in + sizeof(mpath_message_t);
    const char *row_at         = record_at + (size_t)sources * sizeof(agree_record_t);
    const char *data_at = channel->in + rows_bytes(team, sources), *end = channel->in + channel->in_bytes;
    mpath_message_t message;

    memcpy(&message, channel->in, sizeof(message));
    if (message.call != state->call) {
        return message_fail(team, channel, "it belongs to another call", MPATH_ERR_INTERNAL);
    }
    if (message.operation != call->operation || message.limit_bytes != limits->remote_bytes) {
        return message_fail(team, channel, "its node calls another collective", MPATH_ERR_PARAM);
    }
    if (channel->in_bytes < rows_bytes(team, sources)) {
        return message_fail(team, channel, "it is too short", MPATH_ERR_INTERNAL);
    }
    for (int k = 0; k < sources; k++) {
        agree_record_t record;

        memcpy(&record, record_at + (size_t)k * sizeof(record), sizeof(record));
        data_at = message_take_source(team, limits, ranks[k], &record,
                                      row_at + (size_t)k * (size_t)team->size * sizeof(uint64_t), data_at, end);
        if (data_at == NULL) {
            break;
        }
    }
    if (data_at != end) {
        return message_fail(team, channel, "its length does not fit its sizes", MPATH_ERR_INTERNAL);
    }
    for (int k = 0; k < sources; k++) {
        atomic_store_explicit(&cells[ranks[k]].call, state->call, memory_order_release);
    }
    return MPATH_OK;
}

int mpath_agree_receive(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits)
{
    mpath_agree_state_t *state = team->agree;
    mpath_agree_cell_t *cells  = state->cells[state->call & 1];
    int received               = mpath_channels_test(team);

    if (received < 0) {
        return received;
    }
    received = 0;
    for (int i = 0; i < team->channels->count; i++) {
        mpath_channel_t *channel = &team->channels->list[i];
        mpath_status_t status;

        /* A node whose cells are there has nothing more to say in this call. */
        if (!channel->carries_rows || channel->state == MPATH_CHANNEL_POSTED ||
            atomic_load_explicit(&cells[channel->peer].call, memory_order_relaxed) == state->call) {
            continue;
        }
        if (channel->state == MPATH_CHANNEL_FAILED) {
            mpath_error("%s: rank %d (%s) cannot be reached any more (%s) while rank %d waits for it in call %u; the "
                        "call fails",
                        team->oob.name, channel->peer, mpath_team_host(team, channel->peer),
                        mpath_status_string(channel->status), team->rank, state->call);
            mpath_team_break(team, MPATH_ERR_UNREACHABLE);
            return team->broken;
        }
        status = message_unpack(team, call, limits, channel);
        if (status != MPATH_OK) {
            return status;
        }
        (void)mpath_channel_post(team, channel); /* an error matters to the next call, which finds it in the channel */
        received++;
    }
    return received;
}

int mpath_agree_remote_marked(const mpath_team_t *team)
{
    for (int i = 0; team->channels != NULL && i < team->channels->count; i++) {
        const mpath_channel_t *channel = &team->channels->list[i];
        mpath_message_t message;
        agree_record_t record;

        if (!channel->carries_rows || channel->state != MPATH_CHANNEL_ARRIVED ||
            channel->in_bytes < rows_bytes(team, team->num_on[channel->node])) {
            continue;
        }
        memcpy(&message, channel->in, sizeof(message));
        for (int k = 0; k < team->num_on[channel->node] && message.call == team->agree->call + 1; k++) {
            memcpy(&record, channel->in + sizeof(message) + (size_t)k * sizeof(record), sizeof(record));
            if (record.flags & MPATH_CALL_MARKED) {
                return 1;
            }
        }
    }
    return 0;
}

mpath_status_t mpath_agree_flush(mpath_team_t *team, mpath_agree_wait_t *wait)
{
    for (int i = 0; i < team->channels->count; i++) {
        mpath_channel_t *channel = &team->channels->list[i];
        mpath_status_t status    = MPATH_INPROGRESS;

        while (channel->send.handle != NULL &&
               (status = team->oob.test(team->oob.context, &channel->send, NULL)) == MPATH_INPROGRESS) {
            status = mpath_agree_idle(team, channel->peer, wait);
            if (status != MPATH_OK) {
                return status;
            }
            (void)mpath_channels_test(team);
        }
    }
    return MPATH_OK;
}
