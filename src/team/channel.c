/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels between the leaders of a team's nodes, their deputies, and ranks and the takers of their own data. */
#include "team/channel.h"
#include "team/attend.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* The rank of `node` that gets the notices of a local rank `from` (0 or 1) of another node. */
static int notice_target(int num_on_node, int from)
{
    return from < num_on_node ? from : num_on_node - 1;
}

static int rank_on(const mpath_team_t *team, int node, int local_rank)
{
    for (int rank = team->leaders[node]; rank < team->size; rank++) {
        if (team->node_of[rank] == node && team->local_of[rank] == local_rank) {
            return rank;
        }
    }
    return -1;
}

int mpath_channel_taker(const mpath_team_t *team, int node, int local_rank)
{
    return rank_on(team, node, local_rank % team->num_on[node]);
}

/* The channel with a rank, made when it is new, with at least this room. */
static mpath_channel_t *channel_with(mpath_team_t *team, int peer, size_t in_room, size_t out_room)
{
    mpath_channels_t *channels = team->channels;
    int leads = channels->of_node != NULL && team->leaders[team->node_of[peer]] == peer, i = channels->count;
    mpath_channel_t *channel;

    if (leads && channels->of_node[team->node_of[peer]] >= 0) {
        i = channels->of_node[team->node_of[peer]];
    } else if (!leads) {
        for (i = 0; i < channels->count && channels->list[i].peer != peer; i++) {
        }
    }
    channel = &channels->list[i];
    if (i == channels->count) {
        channels->count++;
        channel->peer = peer;
        channel->node = team->node_of[peer];
        if (leads) {
            channels->of_node[channel->node] = i;
        }
    }
    channel->in_room   = channel->in_room > in_room ? channel->in_room : in_room;
    channels->out_room = channels->out_room > out_room ? channels->out_room : out_room;
    return channel;
}

/* The leaders carry the data of a leader together with that of others. */
static void add_own_channels(mpath_team_t *team, const mpath_channel_rooms_t *rooms, int node)
{
    size_t out_room = rooms->own(team, team->num_on[node]), in_room = rooms->own(team, team->num_local);

    if (out_room > 0 && team->local_rank > 0) {
        channel_with(team, mpath_channel_taker(team, node, team->local_rank), 0, out_room)->takes_own = 1;
    }
    for (int from = team->local_rank; in_room > 0 && from < team->num_on[node]; from += team->num_local) {
        if (from > 0) {
            channel_with(team, rank_on(team, node, from), in_room, 0)->brings_own = 1;
        }
    }
}

static void add_channels(mpath_team_t *team, const mpath_channel_rooms_t *rooms)
{
    for (int node = 0; node < team->num_nodes; node++) {
        if (node == team->node) {
            continue;
        }
        if (team->local_rank == 0) {
            channel_with(team, team->leaders[node], rooms->nodes(team, node, team->node),
                         rooms->nodes(team, team->node, node))
                ->leads = 1;
        }
        /* The deputy's notices. */
        if (team->num_on[node] > 1 && notice_target(team->num_local, 1) == team->local_rank) {
            channel_with(team, rank_on(team, node, 1), sizeof(mpath_message_t), 0);
        }
        add_own_channels(team, rooms, node);
    }
}

/* More than this rank can need: a leader, a deputy and a taker on every other node, and those whose taker it is. */
static size_t max_channels(const mpath_team_t *team)
{
    return 3 * (size_t)(team->num_nodes - 1) + (size_t)(team->size - team->num_local);
}

static mpath_status_t allocate_messages(mpath_channels_t *channels)
{
    for (int i = 0; i < channels->count; i++) {
        mpath_channel_t *channel = &channels->list[i];

        channel->in = channel->in_room > 0 ? malloc(channel->in_room) : NULL;
        if (channel->in == NULL && channel->in_room > 0) {
            return MPATH_ERR_NO_MEMORY;
        }
    }
    channels->out = channels->out_room > 0 ? malloc(channels->out_room) : NULL;
    return channels->out == NULL && channels->out_room > 0 ? MPATH_ERR_NO_MEMORY : MPATH_OK;
}

mpath_status_t mpath_channels_create(mpath_team_t *team, const mpath_channel_rooms_t *rooms)
{
    size_t others = (size_t)team->num_nodes - 1;
    mpath_channels_t *channels;

    if (others == 0 || (team->local_rank > 1 && rooms->own(team, 1) == 0)) {
        return MPATH_OK;
    }
    channels = calloc(1, sizeof(*channels));
    if (channels == NULL) {
        goto err_no_memory;
    }
    team->channels    = channels;
    channels->list    = calloc(max_channels(team), sizeof(*channels->list));
    channels->sending = calloc(max_channels(team), sizeof(*channels->sending));
    channels->notices = calloc(others, sizeof(*channels->notices));
    if (channels->list == NULL || channels->sending == NULL || channels->notices == NULL) {
        goto err_destroy;
    }
    if (team->local_rank == 0) {
        channels->of_node = malloc((size_t)team->num_nodes * sizeof(*channels->of_node));
        if (channels->of_node == NULL) {
            goto err_destroy;
        }
        for (int node = 0; node < team->num_nodes; node++) {
            channels->of_node[node] = -1;
        }
    }
    add_channels(team, rooms);
    if (allocate_messages(channels) != MPATH_OK) {
        goto err_destroy;
    }
    return MPATH_OK;

err_destroy:
    mpath_channels_destroy(team);
err_no_memory:
    mpath_error("%s: no memory for the messages between %d nodes; mpath does not serve the communicator",
                team->oob.name, team->num_nodes);
    return MPATH_ERR_NO_MEMORY;
}

mpath_status_t mpath_channel_post(mpath_team_t *team, mpath_channel_t *channel)
{
    channel->state  = MPATH_CHANNEL_POSTED;
    channel->status = team->oob.irecv(team->oob.context, channel->peer, channel->in, channel->in_room,
                                      &channel->receive);
    if (channel->status != MPATH_OK) {
        channel->state = MPATH_CHANNEL_FAILED;
    }
    return channel->status;
}

void mpath_channels_start(mpath_team_t *team)
{
    for (int i = 0; team->channels != NULL && i < team->channels->count; i++) {
        if (team->channels->list[i].in_room > 0) {
            (void)mpath_channel_post(team, &team->channels->list[i]);
        }
    }
}

static void cancel(mpath_team_t *team, mpath_oob_request_t *request)
{
    if (request->handle != NULL) {
        team->oob.cancel(team->oob.context, request);
    }
}

void mpath_channels_destroy(mpath_team_t *team)
{
    mpath_channels_t *channels = team->channels;

    if (channels == NULL) {
        return;
    }
    for (int i = 0; i < channels->count; i++) {
        cancel(team, &channels->list[i].receive);
        cancel(team, &channels->list[i].send);
        cancel(team, &channels->list[i].pulse);
        free(channels->list[i].in);
    }
    for (int i = 0; i < channels->num_notices; i++) {
        cancel(team, &channels->notices[i]);
    }
    free(channels->list);
    free(channels->sending);
    free(channels->of_node);
    free(channels->out);
    free(channels->notices);
    free(channels);
    team->channels = NULL;
}

uint64_t mpath_channels_memory_bytes(const mpath_team_t *team)
{
    uint64_t bytes = team->channels != NULL ? team->channels->out_room : 0;

    for (int i = 0; team->channels != NULL && i < team->channels->count; i++) {
        bytes += team->channels->list[i].in_room;
    }
    return bytes;
}

/* A message is there: 1 when it stays for the agreement, or the status of the team that a notice has broken. */
static int channel_arrived(mpath_team_t *team, mpath_channel_t *channel, size_t bytes)
{
    mpath_message_t message;

    if (bytes >= sizeof(message)) {
        memcpy(&message, channel->in, sizeof(message));
        if (message.magic == MPATH_MESSAGE_MAGIC && message.type == MPATH_MESSAGE_NOTICE) {
            mpath_team_break_by_notice(team, (mpath_status_t)message.reason, message.origin);
            return team->broken;
        }
        channel->received += message.magic == MPATH_MESSAGE_MAGIC;
        if (message.magic == MPATH_MESSAGE_MAGIC && message.type == MPATH_MESSAGE_MARK && channel->leads) {
            channel->marked_call = message.call;
            (void)mpath_channel_post(team, channel);
            return 0;
        }
        if (message.magic == MPATH_MESSAGE_MAGIC && message.type == MPATH_MESSAGE_PULSE && channel->leads) {
            mpath_attend_pulse(team, channel->node, channel->in + sizeof(message), bytes - sizeof(message));
            (void)mpath_channel_post(team, channel); /* an error is left in the channel */
            return 0;
        }
    }
    if (bytes < sizeof(message) || message.magic != MPATH_MESSAGE_MAGIC || message.bytes != bytes ||
        !(message.type == MPATH_MESSAGE_OWN ? channel->brings_own : channel->leads)) {
        mpath_error("%s: a message of %zu bytes from rank %d (%s) is no message of mpath; the call fails",
                    team->oob.name, bytes, channel->peer, mpath_team_host(team, channel->peer));
        mpath_team_break(team, MPATH_ERR_INTERNAL);
        return team->broken;
    }
    channel->in_bytes = bytes;
    channel->state    = MPATH_CHANNEL_ARRIVED;
    return 1;
}

int mpath_channel_test(mpath_team_t *team, mpath_channel_t *channel)
{
    size_t bytes = 0;
    mpath_status_t status;

    if (channel->in_room == 0 || channel->state != MPATH_CHANNEL_POSTED) {
        return 0;
    }
    status = team->oob.test(team->oob.context, &channel->receive, &bytes);
    if (status == MPATH_OK) {
        return channel_arrived(team, channel, bytes);
    }
    if (status != MPATH_INPROGRESS) {
        channel->state  = MPATH_CHANNEL_FAILED;
        channel->status = status;
    }
    return 0;
}

mpath_channel_t *mpath_channels_next(mpath_channels_t *channels)
{
    mpath_channel_t *channel = &channels->list[channels->next];

    channels->next = channels->next + 1 < channels->count ? channels->next + 1 : 0;
    return channel;
}

int mpath_channels_look(mpath_team_t *team, int *round_p)
{
    mpath_channels_t *channels = team->channels;
    int arrived                = 0;

    for (int i = 0; i < MPATH_CHANNELS_LOOK && i < channels->count; i++) {
        int result = mpath_channel_test(team, mpath_channels_next(channels));

        if (result < 0) {
            return result;
        }
        if (round_p != NULL && channels->next == 0) {
            *round_p = 1;
        }
        arrived += result;
    }
    return arrived;
}

mpath_status_t mpath_channel_send(mpath_team_t *team, mpath_channel_t *channel, size_t bytes)
{
    mpath_status_t status;

    cancel(team, &channel->send);
    status = team->oob.isend(team->oob.context, channel->peer, team->channels->out, bytes, &channel->send);
    if (status != MPATH_OK) {
        mpath_error("%s: cannot send to rank %d (%s) in call %u (%s); the call fails", team->oob.name, channel->peer,
                    mpath_team_host(team, channel->peer), mpath_team_call(team), mpath_status_string(status));
        mpath_team_break(team, MPATH_ERR_UNREACHABLE);
        return team->broken;
    }
    if (channel->send.handle != NULL && !channel->is_sending) {
        team->channels->sending[team->channels->num_sending++] = (int)(channel - team->channels->list);
        channel->is_sending                                    = 1;
    }
    channel->sent++;
    channel->sent_call = mpath_team_call(team);
    return MPATH_OK;
}

void mpath_channels_say(mpath_team_t *team, mpath_status_t reason, int origin)
{
    for (int i = 0; team->channels != NULL && i < team->channels->count; i++) {
        const mpath_channel_t *channel = &team->channels->list[i];

        if (channel->leads && channel->sent > 0 && channel->sent_call == mpath_team_call(team)) {
            const mpath_team_word_t word = {.sent = channel->sent, .reason = reason, .origin = origin};

            mpath_team_say(team, channel->peer, &word);
        }
    }
}

void mpath_channels_notify(mpath_team_t *team, mpath_status_t reason, int origin)
{
    mpath_channels_t *channels = team->channels;

    if (channels == NULL || channels->num_notices > 0 || team->local_rank > 1) {
        return;
    }
    mpath_channels_say(team, reason, origin);
    channels->notice = (mpath_message_t){.magic  = MPATH_MESSAGE_MAGIC,
                                         .type   = MPATH_MESSAGE_NOTICE,
                                         .reason = reason,
                                         .origin = origin,
                                         .bytes  = sizeof(mpath_message_t)};
    for (int node = 0; node < team->num_nodes; node++) {
        if (node != team->node) {
            int peer = rank_on(team, node, notice_target(team->num_on[node], team->local_rank));

            /* An error means that the peer is gone, too. */
            (void)team->oob.isend(team->oob.context, peer, &channels->notice, sizeof(channels->notice),
                                  &channels->notices[channels->num_notices++]);
        }
    }
}
