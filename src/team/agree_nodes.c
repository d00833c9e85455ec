/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The leader's part of an agreement: what all nodes say, put together.
 *
 * Few nodes: each leader sends its node's record, and its small data with it, to every other one. More: an allreduce in
 * ceil(log2 N) rounds for any number N of nodes. A leader that has the sum over w nodes, beginning with its own, and that
 * over the first w - 1 of them, gets those over 2 w and 2 w - 1 by what the leader w nodes further has, or those over
 * 2 w - 1 and 2 w - 2 by what that w - 1 nodes further has; the widths are N halved again and again and rounded up, so the
 * last one is N (Bar-Noy, Kipnis, Schieber: An optimal algorithm for computing census functions in message-passing systems,
 * Parallel Processing Letters 3(1), 1993). The second sum is sent while a later round needs it. Small data goes directly
 * then, in messages of its own.
 *
 * A gather moves blocks, of a node each: its record and the bytes of its ranks. To each other leader, or by Bruck's algorithm; among
 * nodes that have met to each of these.
 */
#include "team/agree_private.h"

#include "util/log.h"
#include "util/reserve.h"

#include <string.h>

static uint32_t record_most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

void mpath_agree_record_add(mpath_agree_record_t *record, const mpath_agree_record_t *other)
{
    mpath_agree_record_t sum = record->lowest_by > 0 ? *record : *other;

    if (record->lowest_by == 0 || other->lowest_by == 0) {
        *record = sum;
        return;
    }
    if (other->lowest < sum.lowest || (other->lowest == sum.lowest && other->lowest_by < sum.lowest_by)) {
        sum.lowest    = other->lowest;
        sum.lowest_by = other->lowest_by;
    }
    if (other->highest > sum.highest || (other->highest == sum.highest && other->highest_by < sum.highest_by)) {
        sum.highest    = other->highest;
        sum.highest_by = other->highest_by;
    }
    sum.flags |= other->flags;
    sum.pair_bytes   = record_most(sum.pair_bytes, other->pair_bytes);
    sum.rank_bytes   = record_most(sum.rank_bytes, other->rank_bytes);
    sum.cross_bytes  = record_most(sum.cross_bytes, other->cross_bytes);
    sum.node_bytes   = record_most(sum.node_bytes, other->node_bytes);
    sum.static_bytes = record_most(sum.static_bytes, other->static_bytes);
    sum.left_sum += other->left_sum;
    sum.sum += other->sum;
    sum.difference += other->difference;
    *record = sum;
}

static int nodes_are_few(const mpath_team_t *team)
{
    return team->num_nodes <= MPATH_AGREE_DIRECT_NODES;
}

static int node_at(const mpath_team_t *team, int distance)
{
    return (team->node + distance + team->num_nodes) % team->num_nodes;
}

static mpath_channel_t *channel_of(const mpath_team_t *team, int node)
{
    return &team->channels->list[team->channels->of_node[node]];
}

static size_t node_block_bytes(const mpath_team_t *team, int node, size_t bytes)
{
    return sizeof(mpath_agree_record_t) + (size_t)team->num_on[node] * bytes;
}

/* Of `count` nodes. */
static size_t node_blocks_bytes(const mpath_team_t *team, int first, int count, size_t bytes)
{
    size_t sum = 0;

    for (int i = 0; i < count; i++) {
        sum += node_block_bytes(team, (first + i) % team->num_nodes, bytes);
    }
    return sum;
}

static int rounds_of(int num_nodes)
{
    int rounds = 0;

    while (1 << rounds < num_nodes) {
        rounds++;
    }
    return rounds;
}

/* How many nodes a leader has summed up before a round. */
static int width_before(int num_nodes, int rounds, int round)
{
    int shift = rounds - round;

    return (num_nodes + (1 << shift) - 1) >> shift;
}

/* Whether a round makes 2 w - 1 out of w. */
static int is_odd(int num_nodes, int rounds, int round)
{
    return width_before(num_nodes, rounds, round + 1) != 2 * width_before(num_nodes, rounds, round);
}

int mpath_team_is_near(int num_nodes, int node, int other)
{
    int behind = (other - node + num_nodes) % num_nodes, before = num_nodes - behind, rounds = rounds_of(num_nodes);

    for (int round = 0; behind > 0 && round < rounds; round++) {
        int width = width_before(num_nodes, rounds, round), less = width - is_odd(num_nodes, rounds, round);

        if (behind == width || before == width || behind == less || before == less || behind == 1 << round ||
            before == 1 << round) {
            return 1;
        }
    }
    return 0;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t mpath_agree_message_max_bytes(const mpath_team_t *team, int from, int to)
{
    size_t bytes = team->agree->layout.block_bytes,
           data  = mpath_agree_data_max_bytes(team, team->num_on[from], team->num_on[to]), most;

    if (nodes_are_few(team)) {
        most = larger(sizeof(mpath_agree_record_t) + data, node_block_bytes(team, from, bytes));
    } else {
        most = larger(larger(2 * sizeof(mpath_agree_record_t), data), node_block_bytes(team, from, bytes));
        for (int have = 1; have < team->num_nodes; have *= 2) {
            int count = have < team->num_nodes - have ? have : team->num_nodes - have;

            if ((from - to + team->num_nodes) % team->num_nodes == have) {
                most = larger(most, node_blocks_bytes(team, from, count, bytes));
            }
        }
    }
    most = larger(most, mpath_agree_said_bytes(nodes_are_few(team) ? team->num_nodes : 1));
    return sizeof(mpath_message_t) + larger(most, sizeof(unsigned) * (size_t)team->num_on[from]);
}

size_t mpath_agree_gathered_bytes(const mpath_team_t *team)
{
    return nodes_are_few(team) ? 0 : node_blocks_bytes(team, 0, team->num_nodes, team->agree->layout.block_bytes);
}

static mpath_status_t message_fail(mpath_team_t *team, const mpath_channel_t *channel, const char *what,
                                   mpath_status_t reason)
{
    mpath_error("%s: message of rank %d (%s) in call %u: %s; the call fails", team->oob.name, channel->peer,
                mpath_team_host(team, channel->peer), team->call, what);
    mpath_team_break(team, reason);
    return team->broken;
}

/* What others say; 0: it names ranks that there are none of. */
static int record_read(const mpath_team_t *team, const char *from, mpath_agree_record_t *record)
{
    memcpy(record, from, sizeof(*record));
    return record->lowest_by <= (uint32_t)team->size && record->highest_by <= (uint32_t)team->size &&
           (record->lowest_by == 0) == (record->highest_by == 0);
}

static mpath_status_t message_send(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                   int node, mpath_message_type_t type, int round, size_t bytes)
{
    mpath_message_t message = {.magic       = MPATH_MESSAGE_MAGIC,
                               .type        = type,
                               .call        = team->call,
                               .operation   = call->operation,
                               .origin      = round,
                               .limit_bytes = limits->remote_bytes,
                               .bytes       = sizeof(message) + bytes};

    memcpy(team->channels->out, &message, sizeof(message));
    return mpath_channel_send(team, channel_of(team, node), (size_t)message.bytes);
}

/* Where the contents of the next message are written. */
static char *message_body(const mpath_team_t *team)
{
    return team->channels->out + sizeof(mpath_message_t);
}

/*
 * What a channel holds: 1: the message of this call that is waited for; 0: none any more, another one was in front of it;
 * or a status.
 */
static int message_look(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                        mpath_channel_t *channel, mpath_message_type_t type, int round)
{
    mpath_message_t message;

    memcpy(&message, channel->in, sizeof(message));
    if ((int32_t)(message.call - team->call) < 0) {
        (void)mpath_channel_post(team, channel); /* of a call that was left to the previous function: nobody took it */
        return 0;
    }
    if (message.call != team->call) {
        return message_fail(team, channel, "it belongs to another call", MPATH_ERR_INTERNAL);
    }
    if (((message.operation ^ call->operation) & MPATH_AGREE_COLLECTIVE) != 0 ||
        message.limit_bytes != limits->remote_bytes) {
        return message_fail(team, channel, "its node calls another collective", MPATH_ERR_PARAM);
    }
    if (message.type == type && message.origin == round) {
        return 1;
    }
    if (message.type != MPATH_MESSAGE_DATA) {
        return message_fail(team, channel, "it is none that is due", MPATH_ERR_INTERNAL);
    }
    if (!mpath_agree_data_unpack(team, limits, channel->node, channel->in + sizeof(message),
                                 channel->in_bytes - sizeof(message))) {
        return message_fail(team, channel, "its length does not fit its sizes", MPATH_ERR_INTERNAL);
    }
    (void)mpath_channel_post(team, channel);
    return 0;
}

/* One look at a channel: as message_look(), 0 also where nothing has come. */
static int message_poll(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                        mpath_channel_t *channel, mpath_message_type_t type, int round)
{
    int result = mpath_channel_test(team, channel);

    if (result < 0) {
        return result;
    }
    if (channel->state == MPATH_CHANNEL_ARRIVED) {
        return message_look(team, call, limits, channel, type, round);
    }
    if (channel->state == MPATH_CHANNEL_FAILED) {
        mpath_error("%s: rank %d (%s) cannot be reached any more (%s) while rank %d waits for it in call %u; the "
                    "call fails",
                    team->oob.name, channel->peer, mpath_team_host(team, channel->peer),
                    mpath_status_string(channel->status), team->rank, team->call);
        mpath_team_break(team, MPATH_ERR_UNREACHABLE);
        return team->broken;
    }
    return 0;
}

/* The message has been used. */
static void message_used(mpath_team_t *team, mpath_channel_t *channel, mpath_agree_wait_t *wait)
{
    (void)mpath_channel_post(team, channel); /* an error matters to the next call, which finds it in the channel */
    if (wait->wait.idle.rounds > 0) {
        mpath_agree_wait_start(wait);
    }
}

/* The same of a gather: these are seldom, and of many channels that nothing else comes by. */
static void block_used(mpath_team_t *team, mpath_channel_t *channel, mpath_agree_wait_t *wait)
{
    mpath_channel_forget(channel);
    message_used(team, channel, wait);
}

static mpath_status_t message_await(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                    mpath_channel_t *channel, mpath_message_type_t type, int round,
                                    mpath_agree_wait_t *wait)
{
    mpath_status_t status;
    int result;

    atomic_store_explicit(&mpath_agree_half(team)->result->awaited, channel->peer, memory_order_relaxed);
    while ((result = message_poll(team, call, limits, channel, type, round)) == 0) {
        status = mpath_agree_idle(team, channel->peer, wait);
        if (status != MPATH_OK) {
            return status;
        }
    }
    return result < 0 ? (mpath_status_t)result : MPATH_OK;
}

static void node_came(const mpath_team_t *team, int node)
{
    atomic_store_explicit(&mpath_agree_half(team)->came[node], team->call, memory_order_release);
}

/* Few nodes. */

/* What a message of another node has behind the record, in a gather of `bytes` bytes of each rank, or small data. */
static int direct_take(mpath_team_t *team, const mpath_agree_limits_t *limits, int node, size_t bytes, const char *in,
                       size_t in_bytes)
{
    const int *ranks = team->agree->by_node + team->agree->first_on[node];
    char *blocks     = mpath_agree_half(team)->blocks;

    if (bytes == 0) {
        return in_bytes == 0 || mpath_agree_data_unpack(team, limits, node, in, in_bytes);
    }
    if (in_bytes != (size_t)team->num_on[node] * bytes) {
        return 0;
    }
    for (int i = 0; i < team->num_on[node]; i++) {
        memcpy(blocks + (size_t)ranks[i] * bytes, in + (size_t)i * bytes, bytes);
    }
    return 1;
}

/* This node's part of a gather; the bytes used. */
static size_t block_pack(const mpath_team_t *team, size_t bytes, const mpath_agree_record_t *record, char *out)
{
    const char *blocks = mpath_agree_half(team)->blocks;

    memcpy(out, record, sizeof(*record));
    out += sizeof(*record);
    for (int i = 0; i < team->num_local; i++) {
        memcpy(out + (size_t)i * bytes, blocks + (size_t)team->local[i] * bytes, bytes);
    }
    return node_block_bytes(team, team->node, bytes);
}

static mpath_status_t direct_send(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                  size_t bytes, const mpath_agree_record_t *record)
{
    mpath_message_type_t type = bytes > 0 ? MPATH_MESSAGE_BLOCKS : MPATH_MESSAGE_RECORD;
    mpath_status_t status     = MPATH_OK;
    char *body                = message_body(team);

    for (int node = 0; node < team->num_nodes && status == MPATH_OK; node++) {
        size_t used = sizeof(*record);

        if (node == team->node) {
            continue;
        }
        if (bytes > 0) {
            used = block_pack(team, bytes, record, body);
        } else {
            memcpy(body, record, sizeof(*record));
            used += mpath_agree_data_pack(team, node, body + sizeof(*record));
        }
        status = message_send(team, call, limits, node, type, 0, used);
    }
    return status;
}

/* A node's message is there. */
static mpath_status_t direct_read(mpath_team_t *team, const mpath_agree_limits_t *limits, int node, size_t bytes,
                                  mpath_agree_record_t *record)
{
    const mpath_channel_t *channel = channel_of(team, node);
    size_t head                    = sizeof(mpath_message_t) + sizeof(*record);
    mpath_agree_record_t theirs;

    if (channel->in_bytes < head ||
        !direct_take(team, limits, node, bytes, channel->in + head, channel->in_bytes - head)) {
        return message_fail(team, channel, "its length does not fit its sizes", MPATH_ERR_INTERNAL);
    }
    if (!record_read(team, channel->in + sizeof(mpath_message_t), &theirs)) {
        return message_fail(team, channel, "it names ranks that there are none of", MPATH_ERR_INTERNAL);
    }
    mpath_agree_record_add(record, &theirs);
    node_came(team, node);
    return MPATH_OK;
}

/* Takes what has come of a node; 1: it has, 0: not yet, or a status. */
static int direct_poll(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits, int node,
                       size_t bytes, mpath_agree_record_t *record)
{
    mpath_message_type_t type = bytes > 0 ? MPATH_MESSAGE_BLOCKS : MPATH_MESSAGE_RECORD;
    int result                = message_poll(team, call, limits, channel_of(team, node), type, 0);
    mpath_status_t status;

    if (result <= 0) {
        return result;
    }
    status = direct_read(team, limits, node, bytes, record);
    return status == MPATH_OK ? 1 : (int)status;
}

static mpath_status_t direct_exchange(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                      size_t bytes, mpath_agree_record_t *record, mpath_agree_wait_t *wait)
{
    mpath_agree_half_t half = *mpath_agree_half(team);
    mpath_status_t status   = direct_send(team, call, limits, bytes, record);
    int late                = 0;

    team->agree->settling = 0;
    while (status == MPATH_OK && late >= 0) {
        int came = 0;

        late = -1;
        for (int node = 0; node < team->num_nodes && status == MPATH_OK; node++) {
            int result;

            if (node == team->node || atomic_load_explicit(&half.came[node], memory_order_relaxed) == team->call) {
                continue;
            }
            result = direct_poll(team, call, limits, node, bytes, record);
            if (result < 0) {
                status = (mpath_status_t)result;
            } else if (result > 0) {
                message_used(team, channel_of(team, node), wait);
                came = 1;
            } else {
                late = late >= 0 ? late : node;
            }
        }
        if (status == MPATH_OK && late >= 0 && !came) {
            atomic_store_explicit(&half.result->awaited, team->leaders[late], memory_order_relaxed);
            status = mpath_agree_idle(team, team->leaders[late], wait);
        }
    }
    return status;
}

/* Many nodes. */

/* Whether sums over w - 1 are needed after a round. */
static int needs_less(int num_nodes, int rounds, int round)
{
    for (int later = round + 1; later < rounds; later++) {
        if (is_odd(num_nodes, rounds, later)) {
            return 1;
        }
    }
    return 0;
}

/* sums[0] over w nodes, sums[1] over w - 1. */
static mpath_status_t reduce_round(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                   int rounds, int round, mpath_agree_record_t sums[2], mpath_agree_wait_t *wait)
{
    int odd      = is_odd(team->num_nodes, rounds, round);
    int distance = width_before(team->num_nodes, rounds, round) - odd;
    size_t count = needs_less(team->num_nodes, rounds, round) ? 2 : 1, bytes = count * sizeof(sums[0]);
    mpath_channel_t *channel       = channel_of(team, node_at(team, distance));
    mpath_agree_record_t theirs[2] = {{0}, {0}}, mine = sums[odd];
    mpath_status_t status;

    memcpy(message_body(team), sums, bytes);
    status = message_send(team, call, limits, node_at(team, -distance), MPATH_MESSAGE_RECORD, round, bytes);
    if (status == MPATH_OK) {
        status = message_await(team, call, limits, channel, MPATH_MESSAGE_RECORD, round, wait);
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (channel->in_bytes != sizeof(mpath_message_t) + bytes) {
        return message_fail(team, channel, "it is of another length", MPATH_ERR_INTERNAL);
    }
    for (size_t i = 0; i < count; i++) {
        if (!record_read(team, channel->in + sizeof(mpath_message_t) + i * sizeof(theirs[0]), &theirs[i])) {
            return message_fail(team, channel, "it names ranks that there are none of", MPATH_ERR_INTERNAL);
        }
    }
    message_used(team, channel, wait);
    for (int i = 0; i < 2; i++) {
        sums[i] = mine;
        mpath_agree_record_add(&sums[i], &theirs[i]);
    }
    return MPATH_OK;
}

static mpath_status_t send_data(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    mpath_status_t status          = MPATH_OK;
    int sends                      = 0;

    for (int i = 0; i < team->num_local; i++) {
        sends = sends || half->cells[i].sends;
    }
    for (int distance = 1; sends && distance < team->num_nodes && status == MPATH_OK; distance++) {
        int node     = node_at(team, distance);
        size_t bytes = mpath_agree_data_pack(team, node, message_body(team));

        if (bytes > 0) {
            status = message_send(team, call, limits, node, MPATH_MESSAGE_DATA, 0, bytes);
        }
    }
    return status;
}

mpath_status_t mpath_agree_nodes_exchange(mpath_team_t *team, const mpath_call_t *call,
                                          const mpath_agree_limits_t *limits, mpath_agree_record_t *record,
                                          mpath_agree_wait_t *wait)
{
    mpath_agree_record_t sums[2] = {*record, {0}};
    int rounds                   = rounds_of(team->num_nodes);
    mpath_status_t status        = MPATH_OK;

    if (nodes_are_few(team)) {
        return direct_exchange(team, call, limits, 0, record, wait);
    }
    status = send_data(team, call, limits);
    for (int round = 0; round < rounds && status == MPATH_OK; round++) {
        status = reduce_round(team, call, limits, rounds, round, sums, wait);
    }
    *record = sums[0];
    return status;
}

/* Bruck's algorithm: of `have` nodes, beginning with this one, the blocks are there. */
static mpath_status_t gather_round(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                   int have, int round, size_t bytes, mpath_agree_wait_t *wait)
{
    int count = have < team->num_nodes - have ? have : team->num_nodes - have, from = node_at(team, have);
    size_t out = node_blocks_bytes(team, team->node, count, bytes), in = node_blocks_bytes(team, from, count, bytes);
    char *blocks             = team->agree->gathered;
    mpath_channel_t *channel = channel_of(team, from);
    mpath_status_t status;

    memcpy(message_body(team), blocks, out);
    status = message_send(team, call, limits, node_at(team, -have), MPATH_MESSAGE_BLOCKS, round, out);
    if (status == MPATH_OK) {
        status = message_await(team, call, limits, channel, MPATH_MESSAGE_BLOCKS, round, wait);
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (channel->in_bytes != sizeof(mpath_message_t) + in) {
        return message_fail(team, channel, "it is of another length", MPATH_ERR_INTERNAL);
    }
    memcpy(blocks + node_blocks_bytes(team, team->node, have, bytes), channel->in + sizeof(mpath_message_t), in);
    for (int i = 0; i < count; i++) {
        node_came(team, node_at(team, have + i));
    }
    block_used(team, channel, wait);
    return MPATH_OK;
}

/* Some rank of this node has a mark: leaders that do not get this node's block at once shall know. */
static mpath_status_t send_marks(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                 const mpath_agree_record_t *record)
{
    mpath_status_t status = MPATH_OK;

    for (int distance = 1; (record->flags & MPATH_CALL_MARKED) && distance < team->num_nodes && status == MPATH_OK;
         distance++) {
        status = message_send(team, call, limits, node_at(team, distance), MPATH_MESSAGE_MARK, 0, 0);
    }
    return status;
}

mpath_status_t mpath_agree_nodes_gather(mpath_team_t *team, const mpath_call_t *call, size_t bytes,
                                        mpath_agree_record_t *record, mpath_agree_wait_t *wait)
{
    const mpath_agree_limits_t limits = {0, 0, 0};
    char *blocks = mpath_agree_half(team)->blocks, *at = team->agree->gathered;
    mpath_agree_record_t theirs;
    mpath_status_t status;

    if (nodes_are_few(team)) {
        return direct_exchange(team, call, &limits, bytes, record, wait);
    }
    status = send_marks(team, call, &limits, record);
    at += block_pack(team, bytes, record, at);
    for (int have = 1, round = 0; have < team->num_nodes && status == MPATH_OK; have *= 2, round++) {
        status = gather_round(team, call, &limits, have, round, bytes, wait);
    }
    for (int distance = 1; distance < team->num_nodes && status == MPATH_OK; distance++) {
        int node         = node_at(team, distance);
        const int *ranks = team->agree->by_node + team->agree->first_on[node];

        if (!record_read(team, at, &theirs)) {
            mpath_error("%s: what node %d says in call %u names ranks that there are none of; the call fails",
                        team->oob.name, node, team->call);
            mpath_team_break(team, MPATH_ERR_INTERNAL);
            return team->broken;
        }
        mpath_agree_record_add(record, &theirs);
        at += sizeof(theirs);
        for (int i = 0; i < team->num_on[node]; i++) {
            memcpy(blocks + (size_t)ranks[i] * bytes, at, bytes);
            at += bytes;
        }
    }
    mpath_reserve_clear(team->agree->gathered, mpath_agree_gathered_bytes(team)); /* gathers are seldom */
    mpath_reserve_clear(team->channels->out, team->channels->out_capacity);
    return status;
}

mpath_status_t mpath_agree_nodes_gather_met(mpath_team_t *team, const mpath_call_t *call, size_t bytes,
                                            mpath_agree_record_t *record, mpath_agree_wait_t *wait)
{
    const mpath_agree_limits_t limits = {0, 0, 0};
    size_t used                       = block_pack(team, bytes, record, message_body(team));
    mpath_status_t status             = MPATH_OK;

    for (int distance = 1; distance < team->num_nodes && status == MPATH_OK; distance++) {
        if (mpath_agree_gathers_with(team, node_at(team, distance))) {
            status = message_send(team, call, &limits, node_at(team, distance), MPATH_MESSAGE_BLOCKS, 0, used);
        }
    }
    for (int distance = 1; distance < team->num_nodes && status == MPATH_OK; distance++) {
        int node = node_at(team, distance);
        mpath_channel_t *channel;

        if (!mpath_agree_gathers_with(team, node)) {
            continue;
        }
        channel = channel_of(team, node);
        status  = message_await(team, call, &limits, channel, MPATH_MESSAGE_BLOCKS, 0, wait);
        if (status == MPATH_OK) {
            status = direct_read(team, &limits, channel->node, bytes, record);
        }
        if (status == MPATH_OK) {
            block_used(team, channel, wait);
        }
    }
    mpath_reserve_clear(team->channels->out, team->channels->out_capacity);
    return status;
}

/* What the nodes up to `count` behind this one say, as far as it is here; the bytes used. */
static size_t said_pack(const mpath_team_t *team, const mpath_team_few_t *said, int count, char *out)
{
    size_t used = sizeof(said->most);

    memcpy(out, said->most, sizeof(said->most));
    for (size_t i = 0; i < said->num_entries; i++) {
        const char *entry = said->entries + i * said->entry_bytes;
        uint32_t node;

        memcpy(&node, entry, sizeof(node));
        if (((int)node - team->node + team->num_nodes) % team->num_nodes < count) {
            memcpy(out + used, entry, said->entry_bytes);
            used += said->entry_bytes;
        }
    }
    return used;
}

/* What `count` nodes from `first` on say; 0: it is no such thing. */
static int said_take(const mpath_team_t *team, mpath_team_few_t *said, int first, int count, const char *in,
                     size_t in_bytes)
{
    uint64_t most[MPATH_TEAM_NUMBERS];
    size_t num;
    uint32_t node;

    if (in_bytes < sizeof(most) || (in_bytes - sizeof(most)) % said->entry_bytes != 0) {
        return 0;
    }
    num = (in_bytes - sizeof(most)) / said->entry_bytes;
    memcpy(most, in, sizeof(most));
    in += sizeof(most);
    for (size_t i = 0; i < num; i++) {
        memcpy(&node, in + i * said->entry_bytes, sizeof(node));
        if (num > (size_t)count || node >= (uint32_t)team->num_nodes ||
            ((int)node - first + team->num_nodes) % team->num_nodes >= count) {
            return 0;
        }
    }
    for (int i = 0; i < MPATH_TEAM_NUMBERS; i++) {
        said->most[i] = most[i] > said->most[i] ? most[i] : said->most[i];
    }
    memcpy(said->entries + said->num_entries * said->entry_bytes, in, num * said->entry_bytes);
    said->num_entries += num;
    return 1;
}

/* As a gather of many nodes; of few, too. */
mpath_status_t mpath_agree_nodes_say(mpath_team_t *team, const mpath_call_t *call, mpath_team_few_t *said,
                                     mpath_agree_wait_t *wait)
{
    const mpath_agree_limits_t limits = {0, 0, 0};

    for (int have = 1, round = 0; have < team->num_nodes; have *= 2, round++) {
        int count                = have < team->num_nodes - have ? have : team->num_nodes - have;
        int from                 = node_at(team, have);
        mpath_channel_t *channel = channel_of(team, from);
        size_t bytes             = said_pack(team, said, count, message_body(team));
        mpath_status_t status;

        status = message_send(team, call, &limits, node_at(team, -have), MPATH_MESSAGE_SAID, round, bytes);
        if (status == MPATH_OK) {
            status = message_await(team, call, &limits, channel, MPATH_MESSAGE_SAID, round, wait);
        }
        if (status != MPATH_OK) {
            return status;
        }
        if (!said_take(team, said, from, count, channel->in + sizeof(mpath_message_t),
                       channel->in_bytes - sizeof(mpath_message_t))) {
            return message_fail(team, channel, "it says what no node can", MPATH_ERR_INTERNAL);
        }
        for (int i = 0; i < count; i++) {
            node_came(team, node_at(team, have + i));
        }
        message_used(team, channel, wait);
    }
    return MPATH_OK;
}

/* A rank of `node` whose data the leaders carry and that somebody here waits for; -1: none. */
static int awaited_source(const mpath_team_t *team, const mpath_agree_limits_t *limits, int node)
{
    const int *sources = team->agree->by_node + team->agree->first_on[node];

    for (int i = 0; i < team->num_local; i++) {
        if (!mpath_agree_half(team)->cells[i].expects) {
            continue;
        }
        for (int k = 0; k < team->num_on[node]; k++) {
            if (mpath_agree_expects(team, i, sources[k]) != MPATH_AGREE_EXPECTS_NONE &&
                !mpath_agree_brings_own(team, limits, sources[k])) {
                return sources[k];
            }
        }
    }
    return -1;
}

mpath_status_t mpath_agree_nodes_await_data(mpath_team_t *team, const mpath_call_t *call,
                                            const mpath_agree_limits_t *limits, mpath_agree_wait_t *wait)
{
    mpath_status_t status = MPATH_OK;
    int expects           = 0;

    for (int i = 0; i < team->num_local; i++) {
        expects = expects || mpath_agree_half(team)->cells[i].expects;
    }
    for (int distance = 1; expects && distance < team->num_nodes && status == MPATH_OK; distance++) {
        int node = node_at(team, distance), source = awaited_source(team, limits, node);
        mpath_channel_t *channel = channel_of(team, node);

        if (source < 0 || !mpath_agree_data_is_missing(team, source)) {
            continue;
        }
        wait->for_data = 1;
        status         = message_await(team, call, limits, channel, MPATH_MESSAGE_DATA, 0, wait);
        wait->for_data = 0;
        if (status == MPATH_OK && (!mpath_agree_data_unpack(team, limits, node, channel->in + sizeof(mpath_message_t),
                                                            channel->in_bytes - sizeof(mpath_message_t)) ||
                                   mpath_agree_data_is_missing(team, source))) {
            status = message_fail(team, channel, "its length does not fit its sizes", MPATH_ERR_INTERNAL);
        }
        if (status == MPATH_OK) {
            message_used(team, channel, wait);
        }
    }
    return status;
}

int mpath_agree_nodes_marked(const mpath_team_t *team, uint32_t call)
{
    for (int i = 0; team->channels != NULL && i < team->channels->count; i++) {
        const mpath_channel_t *channel = &team->channels->list[i];
        mpath_message_t message;
        mpath_agree_record_t record;

        if (channel->leads && channel->marked_call == call) {
            return 1;
        }
        if (!channel->leads || channel->state != MPATH_CHANNEL_ARRIVED ||
            channel->in_bytes < sizeof(message) + sizeof(record)) {
            continue;
        }
        memcpy(&message, channel->in, sizeof(message));
        memcpy(&record, channel->in + sizeof(message), sizeof(record));
        if (message.call == call && message.type == MPATH_MESSAGE_BLOCKS && (record.flags & MPATH_CALL_MARKED)) {
            return 1;
        }
    }
    return 0;
}

mpath_status_t mpath_agree_flush(mpath_team_t *team, int needed, mpath_agree_wait_t *wait)
{
    mpath_channels_t *channels = team->channels;

    while (channels != NULL && channels->num_sending > 0) {
        mpath_channel_t *channel = &channels->list[channels->sending[channels->num_sending - 1]];

        while (needed && channel->send.handle != NULL &&
               team->oob.test(team->oob.context, &channel->send, NULL) == MPATH_INPROGRESS) {
            mpath_status_t status = mpath_agree_idle(team, channel->peer, wait);

            if (status != MPATH_OK) {
                return status;
            }
            (void)mpath_channels_look(team, NULL);
        }
        channel->is_sending = 0;
        channels->num_sending--;
    }
    return MPATH_OK;
}
