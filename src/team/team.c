/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Team: what its ranks know of each other, whether it is whole, and who has attached itself to it.
 *
 * Channels between the leaders of the nodes of a team, their deputies, and ranks and the takers of their own data. A team that
 * breaks says so through them, and hears of it there.
 */
#include "team/attend.h"
#include "team/channel.h"
#include "team/team_private.h"

#include "util/log.h"
#include "util/reserve.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/* Leaders, by who can carry it. */
static void team_say(mpath_team_t *team, int rank, const mpath_team_word_t *word)
{
    for (const mpath_team_user_t *user = team->users; user != NULL; user = user->next) {
        if (user->ops->say != NULL) {
            user->ops->say(user->self, rank, word);
        }
    }
}

static void team_break_by_notice(mpath_team_t *team, mpath_status_t reason, int origin);

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

/* The channel with a rank, made when it is new, with at least these capacities. */
static mpath_channel_t *channel_with(mpath_team_t *team, int peer, size_t in_capacity, size_t out_capacity)
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
    channel->in_capacity   = channel->in_capacity > in_capacity ? channel->in_capacity : in_capacity;
    channels->out_capacity = channels->out_capacity > out_capacity ? channels->out_capacity : out_capacity;
    return channel;
}

/* The leaders carry the data of a leader together with that of others. */
static void add_own_channels(mpath_team_t *team, const mpath_channel_capacities_t *capacities, int node)
{
    size_t out_capacity = capacities->own(team, team->num_on[node]),
           in_capacity  = capacities->own(team, team->num_local);

    if (out_capacity > 0 && team->local_rank > 0) {
        channel_with(team, mpath_channel_taker(team, node, team->local_rank), 0, out_capacity)->takes_own = 1;
    }
    for (int from = team->local_rank; in_capacity > 0 && from < team->num_on[node]; from += team->num_local) {
        if (from > 0) {
            channel_with(team, rank_on(team, node, from), in_capacity, 0)->brings_own = 1;
        }
    }
}

static void add_channels(mpath_team_t *team, const mpath_channel_capacities_t *capacities)
{
    for (int node = 0; node < team->num_nodes; node++) {
        if (node == team->node) {
            continue;
        }
        if (team->local_rank == 0) {
            channel_with(team, team->leaders[node], capacities->nodes(team, node, team->node),
                         capacities->nodes(team, team->node, node))
                ->leads = 1;
        }
        /* The deputy's notices. */
        if (team->num_on[node] > 1 && notice_target(team->num_local, 1) == team->local_rank) {
            channel_with(team, rank_on(team, node, 1), sizeof(mpath_message_t), 0);
        }
        add_own_channels(team, capacities, node);
    }
}

/* At least what this rank needs: a leader, a deputy and a taker on every other node, and those whose taker it is. */
static size_t max_channels(const mpath_team_t *team, const mpath_channel_capacities_t *capacities)
{
    int has_own = capacities->own(team, 1) > 0, count = 0;

    for (int node = 0; node < team->num_nodes; node++) {
        if (node == team->node) {
            continue;
        }
        count += (team->local_rank == 0) + (notice_target(team->num_local, 1) == team->local_rank);
        count += has_own ? 1 + (team->num_on[node] + team->num_local - 1) / team->num_local : 0;
    }
    return (size_t)count;
}

/* Those with more than a page have pages of their own, in front of the others; *bytes_p: what all take. */
static void place_messages(mpath_channels_t *channels, char *at, size_t *bytes_p)
{
    size_t page = mpath_reserve_pages(1), bytes = 0;

    for (int small = 0; small < 2; small++) {
        for (int i = 0; i < channels->count; i++) {
            mpath_channel_t *channel = &channels->list[i];

            if ((channel->in_capacity <= page) == small) {
                channel->in = at != NULL ? at + bytes : NULL;
                bytes += small ? (channel->in_capacity + 7) & ~(size_t)7 : mpath_reserve_pages(channel->in_capacity);
            }
        }
    }
    *bytes_p = bytes;
}

/* Few channels ever have a large message, and of many nodes most have none at all: what is reserved is seldom taken. */
static mpath_status_t allocate_messages(mpath_channels_t *channels)
{
    place_messages(channels, NULL, &channels->in_bytes);
    channels->in  = mpath_reserve(channels->in_bytes);
    channels->out = mpath_reserve(channels->out_capacity);
    if (channels->in == NULL || channels->out == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    place_messages(channels, channels->in, &channels->in_bytes);
    return MPATH_OK;
}

void mpath_channel_forget(mpath_channel_t *channel)
{
    if (channel->in_capacity > mpath_reserve_pages(1)) {
        mpath_reserve_clear(channel->in, mpath_reserve_pages(channel->in_capacity));
    }
}

mpath_status_t mpath_channels_create(mpath_team_t *team, const mpath_channel_capacities_t *capacities)
{
    size_t others = (size_t)team->num_nodes - 1, most;
    mpath_channels_t *channels;

    if (others == 0 || (team->local_rank > 1 && capacities->own(team, 1) == 0)) {
        return MPATH_OK;
    }
    channels = calloc(1, sizeof(*channels));
    if (channels == NULL) {
        goto err_no_memory;
    }
    team->channels    = channels;
    most              = max_channels(team, capacities);
    channels->list    = calloc(most + 1, sizeof(*channels->list)); /* a rank may have none: calloc(0) may be NULL */
    channels->sending = calloc(most + 1, sizeof(*channels->sending));
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
    add_channels(team, capacities);
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
    channel->status = team->oob.irecv(team->oob.context, channel->peer, channel->in, channel->in_capacity,
                                      &channel->receive);
    if (channel->status != MPATH_OK) {
        channel->state = MPATH_CHANNEL_FAILED;
    }
    return channel->status;
}

void mpath_channels_start(mpath_team_t *team)
{
    for (int i = 0; team->channels != NULL && i < team->channels->count; i++) {
        if (team->channels->list[i].in_capacity > 0) {
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
    }
    for (int i = 0; i < channels->num_notices; i++) {
        cancel(team, &channels->notices[i]);
    }
    free(channels->list);
    free(channels->sending);
    free(channels->of_node);
    mpath_unreserve(channels->in, channels->in_bytes);
    mpath_unreserve(channels->out, channels->out_capacity);
    free(channels->notices);
    free(channels);
    team->channels = NULL;
}

static uint64_t channels_memory_bytes(const mpath_team_t *team)
{
    return team->channels != NULL ? team->channels->out_capacity + team->channels->in_bytes : 0;
}

/* A message is there: 1 when it stays for the agreement, or the status of the team that a notice has broken. */
static int channel_arrived(mpath_team_t *team, mpath_channel_t *channel, size_t bytes)
{
    mpath_message_t message;

    if (bytes >= sizeof(message)) {
        memcpy(&message, channel->in, sizeof(message));
        if (message.magic == MPATH_MESSAGE_MAGIC && message.type == MPATH_MESSAGE_NOTICE) {
            team_break_by_notice(team, (mpath_status_t)message.reason, message.origin);
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

    if (channel->in_capacity == 0 || channel->state != MPATH_CHANNEL_POSTED) {
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

            team_say(team, channel->peer, &word);
        }
    }
}

/*
 * Tells other nodes that the team is broken; once. Who has found it out tells all of them, who was told those that are 1, 2, 4, ...
 * nodes away: so all hear of it when whoever began, or a connection to it, is gone.
 */
static void channels_notify(mpath_team_t *team, mpath_status_t reason, int origin, int was_told)
{
    mpath_channels_t *channels = team->channels;

    if (channels == NULL || channels->num_notices > 0 || team->local_rank > 1) {
        return;
    }
    if (!was_told) {
        mpath_channels_say(team, reason, origin);
    }
    channels->notice = (mpath_message_t){.magic  = MPATH_MESSAGE_MAGIC,
                                         .type   = MPATH_MESSAGE_NOTICE,
                                         .reason = reason,
                                         .origin = origin,
                                         .bytes  = sizeof(mpath_message_t)};
    for (int distance = 1; distance < team->num_nodes; distance += was_told ? distance : 1) {
        int node = (team->node + team->num_nodes - distance) % team->num_nodes;

        if (!was_told || node != team->node_of[origin]) {
            int peer = rank_on(team, node, notice_target(team->num_on[node], team->local_rank));

            /* An error means that the peer is gone, too. */
            (void)team->oob.isend(team->oob.context, peer, &channels->notice, sizeof(channels->notice),
                                  &channels->notices[channels->num_notices++]);
        }
    }
}

/*
 * Breaking a team. The reason stands in the header of the node's segment, where node mates see it whenever they wait,
 * and goes to the other nodes as a notice from the leader and from the deputy of the node that broke it, as soon as
 * each of them learns of it: in the call it is in, or in its next one.
 *
 * The word in the header: bits 0-7 the status, negated; bit 8 set when another node has told this one; from bit 9 on the
 * rank that broke the team.
 */

#define BREAK_TOLD (1u << 8)
#define BREAK_RANK_SHIFT 9
#define LOOK_INTERVAL_NS (2 * MPATH_NS_PER_MS)

static unsigned break_word(mpath_status_t reason, int origin, unsigned known)
{
    return (unsigned)-reason | known | (unsigned)origin << BREAK_RANK_SHIFT;
}

static void team_stop_users(const mpath_team_t *team)
{
    for (const mpath_team_user_t *user = team->users; user != NULL; user = user->next) {
        if (user->ops->stop != NULL) {
            user->ops->stop(user->self);
        }
    }
}

/* Takes over what stands in the header. */
static void break_adopt(mpath_team_t *team)
{
    unsigned word = atomic_load_explicit(&team->header->broken, memory_order_acquire);

    team->broken = (mpath_status_t) - (int)(word & 0xff);
    channels_notify(team, team->broken, (int)(word >> BREAK_RANK_SHIFT), (word & BREAK_TOLD) != 0);
    /* Others may be sending already what this rank, if it has not come to moving, will never look at. */
    team_stop_users(team);
}

void mpath_team_break(mpath_team_t *team, mpath_status_t reason)
{
    unsigned expected = 0;

    if (team->broken != MPATH_OK) {
        return;
    }
    reason = mpath_status_is_error(reason) ? reason : MPATH_ERR_INTERNAL;
    if (atomic_compare_exchange_strong(&team->header->broken, &expected, break_word(reason, team->rank, 0))) {
        mpath_info("%s: rank %d gives up (%s): every later call of mpath on the communicator fails, on all ranks",
                   team->oob.name, team->rank, mpath_status_string(reason)); /* the caller has logged why */
    }
    break_adopt(team);
}

void mpath_team_break_alike(mpath_team_t *team, mpath_status_t reason)
{
    if (team->broken != MPATH_OK) {
        return;
    }
    team->broken = reason;
    team_stop_users(team);
}

/* A notice came from another node: like mpath_team_break(), but others know already. */
static void team_break_by_notice(mpath_team_t *team, mpath_status_t reason, int origin)
{
    unsigned expected = 0;

    if (team->broken != MPATH_OK) {
        return;
    }
    reason = mpath_status_is_error(reason) ? reason : MPATH_ERR_INTERNAL;
    if (atomic_compare_exchange_strong(&team->header->broken, &expected, break_word(reason, origin, BREAK_TOLD))) {
        mpath_info("%s: rank %d has given up (%s)", team->oob.name, origin, mpath_status_string(reason));
    }
    break_adopt(team);
}

mpath_status_t mpath_team_status(mpath_team_t *team)
{
    uint64_t now_ns;

    if (team->broken != MPATH_OK) {
        return team->broken;
    }
    if (atomic_load_explicit(&team->header->broken, memory_order_relaxed) != 0) {
        break_adopt(team);
        return team->broken;
    }
    if (team->channels != NULL) {
        now_ns = mpath_time_ns();
        if (now_ns >= team->next_look_ns) {
            team->next_look_ns = now_ns + LOOK_INTERVAL_NS;
            team->oob.progress(team->oob.context);
            (void)mpath_channels_look(team, NULL); /* notices break the team; other messages wait for the next call */
        }
    }
    return team->broken;
}

void mpath_team_attach(mpath_team_t *team, mpath_team_user_t *user, const mpath_team_user_ops_t *ops, void *self)
{
    *user       = (mpath_team_user_t){.next = team->users, .ops = ops, .self = self};
    team->users = user;
}

void *mpath_team_attached(const mpath_team_t *team, const mpath_team_user_ops_t *ops)
{
    for (const mpath_team_user_t *user = team->users; user != NULL; user = user->next) {
        if (user->ops == ops) {
            return user->self;
        }
    }
    return NULL;
}

void mpath_team_count_drains(mpath_team_t *team, int more)
{
    team->num_drains += more;
}

void mpath_team_set_record(mpath_team_t *team, mpath_record_t *record)
{
    mpath_record_leave_team(team->record);
    mpath_record_enter_team(record, team->id, team->rank, team->size);
    team->record = record;
    team->page   = record != NULL ? record->slot : NULL;
}

mpath_record_t *mpath_team_record(const mpath_team_t *team)
{
    return team->record;
}

int mpath_team_job_rank(const mpath_team_t *team)
{
    return team->context->job_rank;
}

const char *mpath_team_name(const mpath_team_t *team)
{
    return team->oob.name;
}

uint64_t mpath_team_id(const mpath_team_t *team)
{
    return team->id;
}

int mpath_team_rank(const mpath_team_t *team)
{
    return team->rank;
}

void mpath_team_meet(mpath_team_t *team, int node)
{
    if (team->met[node] == 0) {
        team->met[node] = 1 + team->num_met;
        team->num_met += team->num_on[node];
    }
}

int mpath_team_num_met(const mpath_team_t *team)
{
    return team->num_met;
}

int mpath_team_place(const mpath_team_t *team, int rank)
{
    int first = team->met[team->node_of[rank]];

    return first == 0 ? -1 : first - 1 + team->local_of[rank];
}

int mpath_team_size(const mpath_team_t *team)
{
    return team->size;
}

int mpath_team_num_nodes(const mpath_team_t *team)
{
    return team->num_nodes;
}

int mpath_team_node(const mpath_team_t *team)
{
    return team->node;
}

int mpath_team_node_of(const mpath_team_t *team, int rank)
{
    return team->node_of[rank];
}

int mpath_team_leader(const mpath_team_t *team, int node)
{
    return team->leaders[node];
}

int mpath_team_num_on(const mpath_team_t *team, int node)
{
    return team->num_on[node];
}

int mpath_team_num_local(const mpath_team_t *team)
{
    return team->num_local;
}

int mpath_team_local_rank(const mpath_team_t *team)
{
    return team->local_rank;
}

int mpath_team_local_of(const mpath_team_t *team, int rank)
{
    return team->local_of[rank];
}

const mpath_topo_t *mpath_team_topo(const mpath_team_t *team)
{
    return team->topo;
}

const mpath_topo_t *mpath_team_gpu_topo(const mpath_team_t *team)
{
    return team->gpu_topo;
}

unsigned mpath_team_topo_version(const mpath_team_t *team)
{
    return team->topo_version;
}

void mpath_team_set_gpu_topo(mpath_team_t *team, mpath_topo_t *topo)
{
    team->gpu_topo = topo;
    team->gpu_topo_version++;
}

const mpath_topo_t *mpath_team_gpu_topo_left(const mpath_team_t *team)
{
    return team->gpu_topo_left != NULL ? team->gpu_topo_left : team->gpu_topo;
}

void mpath_team_set_gpu_topo_left(mpath_team_t *team, const mpath_topo_t *topo)
{
    team->gpu_topo_left = topo;
    team->gpu_topo_version++;
}

int mpath_team_settles(const mpath_team_t *team, uint64_t predicted_ns)
{
    return team->context->settings.resend_after_s > 0 && team->num_nodes > 1 && predicted_ns >= team->settled_from_ns;
}

void mpath_team_topo_changed(mpath_team_t *team)
{
    team->topo_version++;
}

const mpath_settings_t *mpath_team_settings(const mpath_team_t *team)
{
    return &team->context->settings;
}

const mpath_context_t *mpath_team_context(const mpath_team_t *team)
{
    return team->context;
}

const mpath_machine_t *mpath_team_machine(const mpath_team_t *team)
{
    return &team->context->machine;
}

mpath_fabric_t *mpath_team_fabric(const mpath_team_t *team)
{
    return team->context->fabric;
}

mpath_shm_t *mpath_team_shm(const mpath_team_t *team)
{
    return team->context->shm;
}

int mpath_team_num_processes(const mpath_team_t *team)
{
    return team->context->num_processes;
}

mpath_segment_address_t *mpath_team_queues(const mpath_team_t *team, int local)
{
    return team->members[local].queues;
}

mpath_process_t *mpath_team_mates(const mpath_team_t *team, int *num_p)
{
    mpath_process_t *mates = malloc((size_t)team->num_local * sizeof(*mates));

    for (int i = 0; mates != NULL && i < team->num_local; i++) {
        mates[i] = team->members[i].process;
    }
    *num_p = team->num_local;
    return mates;
}

uint64_t mpath_team_memory_bytes(const mpath_team_t *team)
{
    uint64_t bytes = team->segment.bytes / (uint64_t)team->num_local + channels_memory_bytes(team) +
                     (team->outbox_share != NULL ? mpath_outbox_bytes(team->context->outbox) : 0);

    for (const mpath_team_user_t *user = team->users; user != NULL; user = user->next) {
        bytes += user->ops->memory_bytes != NULL ? user->ops->memory_bytes(user->self) : 0;
    }
    return bytes;
}

const char *mpath_team_host(const mpath_team_t *team, int rank)
{
    return mpath_topo_host(team->topo, team->node_of[rank]);
}

/* System calls: for a caller that has waited a while. */
static mpath_status_t team_node_member_status(const mpath_team_t *team, int local_rank)
{
    const mpath_team_member_t *member = &team->members[local_rank];

    if (!atomic_load_explicit(&member->published, memory_order_acquire)) {
        return MPATH_OK; /* has not attached yet */
    }
    return mpath_process_alive(&member->process) ? MPATH_OK : MPATH_ERR_UNREACHABLE;
}

mpath_status_t mpath_team_peer_status(const mpath_team_t *team, int rank)
{
    mpath_status_t status;

    if (team->node_of[rank] != team->node || rank == team->rank) {
        return MPATH_OK;
    }
    status = team_node_member_status(team, team->local_of[rank]);
    if (status != MPATH_OK) {
        mpath_segment_sweep(); /* it may have been about to share more memory */
    }
    return status;
}

int mpath_team_marked(const mpath_team_t *team)
{
    return team->is_marked(team);
}

uint32_t mpath_team_call(const mpath_team_t *team)
{
    return team->call;
}
