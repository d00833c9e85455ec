/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting inside an agreement. Ranks that have not come to a call are late by right: from time to time a line says who
 * they are, and their deadline is one of hours (agree_timeout_s). In a gather inside of a call, or
 * where they settle again, all ranks are known to be in it, and have the deadline of data that does not move (timeout_s).
 * The end of a call (mpath_team_settle) has none of its own, since the others may still be moving their data, which has.
 * Who cannot be reached is not late: the leader asks the rails, by half of timeout_s, and where none of those to another node
 * connects any more by the end of it, nor later on, the wait ends. What the control plane runs over it does not know.
 * Besides, a broken team ends the wait, and a process that has ended before it did its part. The last wait of a call that
 * fails is for its notices: mpath_team_flush_notices().
 */
#include "team/agree_private.h"

#include "util/log.h"
#include "util/time.h"

#include <stdio.h>
#include <string.h>

#define WAIT_NAMED 8 /* ranks that an error names */
#define CUT_OFF_TEXT 256

void mpath_agree_wait_start(mpath_agree_wait_t *wait)
{
    wait->is_prepared      = 0;
    wait->wait.idle.rounds = 0;
}

/* -- what the team's users do in a wait -- */

static void users_drain(const mpath_team_t *team)
{
    for (const mpath_team_user_t *user = team->users; user != NULL && team->num_drains > 0; user = user->next) {
        if (user->ops->drain != NULL) {
            user->ops->drain(user->self);
        }
    }
}

/* Whether rails to `rank` do not connect any more; `anew`: the question is a new one. */
static int users_are_cut_off(const mpath_team_t *team, int rank, int anew, char *text, size_t size)
{
    int cut_off = 0;

    for (const mpath_team_user_t *user = team->users; user != NULL && !cut_off; user = user->next) {
        cut_off = user->ops->is_cut_off != NULL && user->ops->is_cut_off(user->self, rank, anew, text, size);
    }
    return cut_off;
}

/* The last word of a leader, by whoever can carry it. */
static int users_heard(const mpath_team_t *team, int rank, mpath_team_word_t *word)
{
    int heard = 0;

    for (const mpath_team_user_t *user = team->users; user != NULL && !heard; user = user->next) {
        heard = user->ops->heard != NULL && user->ops->heard(user->self, rank, word);
    }
    return heard;
}

/* -- who is waited for -- */

/* A process of this node is gone: everybody has to know. */
static mpath_status_t wait_lost(mpath_team_t *team, int rank)
{
    mpath_error("%s: rank %d (%s) has ended while rank %d waits for it in call %u; the call fails", team->oob.name,
                rank, mpath_team_host(team, rank), team->rank, team->call);
    mpath_team_break(team, MPATH_ERR_UNREACHABLE);
    return team->broken;
}

/* Whether a rank of this node has not come, or a rank of another node may not have. */
static int wait_behind(const mpath_team_t *team, int rank)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);
    uint32_t call                  = team->call;
    int node                       = team->node_of[rank];

    if (node == team->node) {
        return atomic_load_explicit(&half->cells[team->local_of[rank]].call, memory_order_acquire) != call;
    }
    if (!mpath_agree_lacks_result(team)) {
        return 0;
    }
    if (team->num_nodes <= MPATH_AGREE_DIRECT_NODES) {
        return atomic_load_explicit(&half->came[node], memory_order_acquire) != call;
    }
    return atomic_load_explicit(&half->result->awaited, memory_order_relaxed) == team->leaders[node];
}

/* Who is waited for. */
static int wait_rank(const mpath_agree_wait_t *wait)
{
    const mpath_team_t *team = wait->team;
    int awaited;

    if (wait->rank != MPATH_AGREE_LATE) {
        return wait->rank;
    }
    for (int i = 0; i < team->num_local; i++) {
        if (wait_behind(team, team->local[i])) {
            return team->local[i];
        }
    }
    awaited = atomic_load_explicit(&mpath_agree_half(team)->result->awaited, memory_order_relaxed);
    return awaited > 0 || team->node != 0 ? awaited : team->leaders[1]; /* nothing was written there yet */
}

/* A mate that comes is an event to those that wait for all of them, which do not look at each cell. */
static uint64_t wait_landed(const void *engine)
{
    const mpath_agree_wait_t *wait = engine;
    const mpath_team_t *team       = wait->team;
    uint64_t here                  = 0;

    for (int i = 0; wait->rank == MPATH_AGREE_LATE && i < team->num_local; i++) {
        here += !wait_behind(team, team->local[i]);
    }
    return here;
}

/* The rank of this node that brings small data of a rank of another one. */
static int wait_carrier(const mpath_team_t *team, int source)
{
    return mpath_agree_brings_own(team, &team->agree->layout.limits, source)
               ? mpath_channel_taker(team, team->node, team->local_of[source])
               : team->local[0];
}

/* Does the call still need something of a node mate while it waits for `rank`? What other nodes say comes from the leader,
 * what their ranks send by themselves from its taker. */
static int wait_needs(const mpath_team_t *team, int mate, int rank, const mpath_agree_wait_t *wait)
{
    if (wait->for_data) {
        return mate == wait_carrier(team, rank) && mpath_agree_data_is_missing(team, rank);
    }
    return wait_behind(team, mate) ||
           (mate == team->local[0] && !mpath_agree_is_local(team, rank) && mpath_agree_lacks_result(team));
}

/* "3 (host), 5 (host) and others" */
static void behind_text(const mpath_team_t *team, int rank, char *text, size_t size)
{
    size_t used = 0;
    int named   = 0;

    text[0] = '\0';
    for (int other = 0; other < team->size && used < size; other++) {
        if (!wait_behind(team, other) && other != rank) {
            continue;
        }
        if (named == WAIT_NAMED) {
            snprintf(text + used, size - used, " and others");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%d (%s)", (named++ > 0) ? ", " : "", other,
                                 mpath_team_host(team, other));
    }
}

/* Of another node only the leader is known not to have come with what its ranks say. */
static const char *wait_others(const mpath_team_t *team, int rank)
{
    int node = team->node_of[rank];

    return node != team->node && rank == team->leaders[node] && team->num_on[node] > 1 ? " or others of its node" : "";
}

/* In between one rank of a node speaks for all: the leader, or the deputy when it is the leader who is late. */
static int wait_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    const mpath_agree_wait_t *wait = engine;
    const mpath_team_t *team       = wait->team;
    int rank                       = wait_rank(wait);
    char late[WAIT_NAMED * (MPATH_HOST_NAME_MAX + 16)];

    *rank_p = rank;
    if (wait->for_data) { /* it is in the call, so it is not late by right */
        int brings_own = mpath_agree_brings_own(team, &team->agree->layout.limits, rank);

        snprintf(text, size,
                 "%s: rank %d waits in call %u for data of rank %d (%s), which rank %d has to send to rank %d",
                 team->oob.name, team->rank, team->call, rank, mpath_team_host(team, rank),
                 brings_own ? rank : team->leaders[team->node_of[rank]], wait_carrier(team, rank));
        return 1;
    }
    if (why == MPATH_WAIT_FAILS) {
        behind_text(team, rank, late, sizeof(late));
    } else {
        snprintf(late, sizeof(late), "%d (%s)%s", rank, mpath_team_host(team, rank), wait_others(team, rank));
    }
    snprintf(text, size, "%s: rank %d (%s) waits in call %u for rank %s", team->oob.name, team->rank,
             mpath_team_host(team, team->rank), team->call, late);
    return why != MPATH_WAIT_WORD || team->local_rank == (rank == team->local[0] ? 1 : 0);
}

/* The deadline of what moves, which also bounds how long a message may take. */
static uint64_t wait_timeout_ns(const mpath_team_t *team)
{
    return (uint64_t)team->context->settings.timeout_s * MPATH_NS_PER_S;
}

/*
 * What the leader that is waited for says over the rails: it has sent more than has come, and that does not come any more; or
 * it has given the call up.
 */
static mpath_status_t wait_check_words(mpath_agree_wait_t *wait, int leader, uint64_t waited_ns)
{
    mpath_team_t *team             = wait->team;
    const mpath_channel_t *channel = &team->channels->list[team->channels->of_node[team->node_of[leader]]];
    mpath_team_word_t word;

    if (!users_heard(team, leader, &word)) {
        return MPATH_OK;
    }
    if (word.reason != MPATH_OK) {
        mpath_error(
            "%s: rank %d (%s), for which rank %d (%s) waits in call %u, says over a rail that rank %d has given up "
            "(%s), and no message of the MPI library has said so; the call fails",
            team->oob.name, leader, mpath_team_host(team, leader), team->rank, mpath_team_host(team, team->rank),
            team->call, word.origin, mpath_status_string(word.reason));
        return mpath_status_is_error(word.reason) ? word.reason : MPATH_ERR_INTERNAL;
    }
    if (channel->state != MPATH_CHANNEL_POSTED || (int32_t)(word.sent - channel->received) <= 0) {
        wait->missing_ns = 0;
        return MPATH_OK;
    }
    wait->missing_ns = wait->missing_ns > 0 ? wait->missing_ns : waited_ns;
    if (waited_ns - wait->missing_ns < wait_timeout_ns(team)) {
        return MPATH_OK;
    }
    mpath_error(
        "%s: rank %d (%s) waits in call %u for rank %d (%s), which says over a rail that it has sent %u messages "
        "of which only %u have come, and %llu s later no more have: messages of the MPI library do not get through "
        "between their nodes; the call fails",
        team->oob.name, team->rank, mpath_team_host(team, team->rank), team->call, leader,
        mpath_team_host(team, leader), word.sent, channel->received,
        (unsigned long long)((waited_ns - wait->missing_ns) / MPATH_NS_PER_S));
    return MPATH_ERR_UNREACHABLE;
}

/*
 * Asks, once the wait is long, whether the node of the rank that is waited for can be reached, by the rails and by the
 * control plane: what was sent to others is said over the rails, too, so that they know what has not come.
 */
static mpath_status_t wait_check_network(mpath_agree_wait_t *wait, uint64_t waited_ns)
{
    mpath_team_t *team = wait->team;
    int rank = wait_rank(wait), leader = team->leaders[team->node_of[rank]], anew = !wait->asks_rails, cut_off;
    mpath_status_t status;
    char text[CUT_OFF_TEXT];

    if (team->local_rank != 0 || mpath_agree_is_local(team, rank) || waited_ns < wait_timeout_ns(team) / 2) {
        return MPATH_OK;
    }
    wait->asks_rails = 1;
    if (anew) {
        mpath_channels_say(team, MPATH_OK, 0);
    }
    status = wait_check_words(wait, leader, waited_ns);
    if (status != MPATH_OK || team->context->settings.agree_timeout_s < 0) {
        return status;
    }
    cut_off = users_are_cut_off(team, leader, anew, text, sizeof(text));
    if (!cut_off || waited_ns < wait_timeout_ns(team)) {
        return MPATH_OK;
    }
    mpath_error("%s: rank %d (%s) waits in call %u for rank %d (%s)%s; nothing came for %llu s, and its node cannot be "
                "reached any more by rail %s; the call fails",
                team->oob.name, team->rank, mpath_team_host(team, team->rank), team->call, rank,
                mpath_team_host(team, rank), wait_others(team, rank), (unsigned long long)(waited_ns / MPATH_NS_PER_S),
                text);
    return MPATH_ERR_UNREACHABLE;
}

/* Do the processes of this node live that the call waits for, and can the others be reached? */
static mpath_status_t wait_check(void *engine, uint64_t waited_ns)
{
    mpath_agree_wait_t *wait = engine;
    mpath_team_t *team       = wait->team;
    int rank                 = wait_rank(wait);

    for (int i = 0; i < team->num_local; i++) {
        int mate = team->local[i];

        if (mate != team->rank && wait_needs(team, mate, rank, wait) &&
            mpath_team_peer_status(team, mate) != MPATH_OK &&
            wait_needs(team, mate, rank, wait)) { /* it may have done its part and ended between the looks */
            return wait_lost(team, mate);
        }
    }
    return wait_check_network(wait, waited_ns);
}

mpath_status_t mpath_agree_idle(mpath_team_t *team, int rank, mpath_agree_wait_t *wait)
{
    static const mpath_wait_ops_t ops = {.check = wait_check, .landed = wait_landed, .edge = wait_edge};
    mpath_status_t status;

    if (!wait->is_prepared) {
        mpath_wait_prepare(&wait->wait, team, 0);
        wait->team         = team;
        wait->data_limit_s = team->context->settings.timeout_s;
        wait->late_limit_s = mpath_late_limit_s(&team->context->settings);
        wait->is_prepared  = 1;
        wait->asks_rails   = 0;
        wait->missing_ns   = 0;
        wait->wait.attends = team->agree->settling;
    }
    wait->rank = rank;
    /* The library behind the control plane wants to run, whoever waits; a leader waits for it. */
    wait->wait.turn_mask = (team->local_rank == 0 && team->num_nodes > 1) || wait->uses_own ? MPATH_WAIT_TURN_ALWAYS
                                                                                            : MPATH_WAIT_TURN_SELDOM;
    if (wait->wait.idle.rounds < wait->wait.spins) {
        mpath_wait_spin(&wait->wait);
        users_drain(team);
        return MPATH_OK;
    }
    wait->wait.rest_limit_s = wait->late_limit_s;
    wait->wait.limit_s      = team->agree->all_here || wait->for_data ? wait->data_limit_s : wait->late_limit_s;
    users_drain(team);
    status = mpath_wait_pause(&wait->wait, &ops, wait);
    if (mpath_status_is_error(status)) {
        mpath_team_break(team, status);
        return team->broken;
    }
    return status;
}

void mpath_team_flush_notices(mpath_team_t *team)
{
    if (team->broken != MPATH_OK && team->channels != NULL && !team->channels->has_told) {
        team->channels->has_told = 1;
        mpath_exchange_let_go(&team->oob, team->channels->notices, team->channels->num_notices);
    }
}
