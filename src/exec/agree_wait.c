/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting inside an agreement. Ranks that have not come to a call are late by right: from time to time a line says who
 * they are, and a deadline there is only where the user sets one (agree_timeout_s). In a gather inside of a call, or
 * where they settle again, all ranks are known to be in it, and have the deadline of data that does not move (timeout_s).
 * The end of a call (mpath_team_settle) has none of its own, since the others may still be moving their data, which has.
 * Besides, a broken team ends the wait, and a process that has ended before it did its part.
 */
#include "exec/agree_private.h"
#include "exec/move.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>

#define WAIT_CHECK_NS (50 * MPATH_NS_PER_MS)
#define WAIT_NAMED 8            /* ranks that an error names */
#define WAIT_PROGRESS_ROUNDS 64 /* idle rounds between looks at the control plane by who needs nothing from it */

void mpath_agree_wait_start(mpath_agree_wait_t *wait, const mpath_team_t *team)
{
    mpath_idle_start(&wait->idle);
    wait->rounds        = 0;
    wait->next_check_ns = WAIT_CHECK_NS;
    wait->next_warn_ns  = (uint64_t)team->context->settings.timeout_s * MPATH_NS_PER_S;
}

/* The deadline now; 0: none. */
static uint64_t wait_limit_ns(const mpath_team_t *team)
{
    const mpath_settings_t *settings = &team->context->settings;
    int nobody_rests                 = team->agree->all_here && !mpath_idle_others_may_rest();

    return (uint64_t)(nobody_rests ? settings->timeout_s : settings->agree_timeout_s) * MPATH_NS_PER_S;
}

/* A process of this node is gone: everybody has to know. */
static mpath_status_t wait_lost(mpath_team_t *team, int rank)
{
    mpath_error("%s: rank %d (%s) has ended while rank %d waits for it in call %u; the call fails", team->oob.name,
                rank, mpath_team_host(team, rank), team->rank, team->agree->call);
    mpath_team_break(team, MPATH_ERR_UNREACHABLE);
    return team->broken;
}

static int wait_behind(const mpath_agree_state_t *state, int rank)
{
    return atomic_load_explicit(&state->cells[state->call & 1][rank].call, memory_order_acquire) != state->call;
}

/* Does the call still need something of a node mate while it waits for `rank`? Other nodes' cells come from the leader,
 * what their ranks send by themselves from its taker. */
static int wait_needs(const mpath_team_t *team, int mate, int rank, const mpath_agree_wait_t *wait)
{
    if (wait->for_own) {
        return mate == mpath_channel_taker(team, team->node, team->local_of[rank]) &&
               mpath_agree_own_is_missing(team, rank);
    }
    return wait_behind(team->agree, mate) ||
           (mate == team->local[0] && !mpath_agree_is_local(team, rank) && wait_behind(team->agree, rank));
}

/* Do the processes of this node live that the call waits for? */
static mpath_status_t wait_check_mates(mpath_team_t *team, int rank, const mpath_agree_wait_t *wait)
{
    for (int i = 0; team->shm != NULL && i < team->num_local; i++) {
        int mate = team->local[i];

        if (mate != team->rank && wait_needs(team, mate, rank, wait) &&
            team->shm->ops->peer_status(team->shm, i) != MPATH_OK &&
            wait_needs(team, mate, rank, wait)) { /* it may have done its part and ended between the looks */
            return wait_lost(team, mate);
        }
    }
    return MPATH_OK;
}

/* One rank of a node speaks for all: the leader, or the deputy when it is the leader who is late. */
static void wait_warn(mpath_team_t *team, int rank, uint64_t waited_ns)
{
    if (team->local_rank != (rank == team->local[0] ? 1 : 0)) {
        return;
    }
    mpath_warn("%s: waiting %llu s for rank %d (%s)%s in call %u", team->oob.name,
               (unsigned long long)(waited_ns / MPATH_NS_PER_S), rank, mpath_team_host(team, rank),
               mpath_agree_is_local(team, rank) ? "" : " or others of its node", team->agree->call);
}

/* "3 (host), 5 (host) and others" */
static void behind_text(const mpath_team_t *team, int rank, char *text, size_t size)
{
    size_t used = 0;
    int named   = 0;

    text[0] = '\0';
    for (int other = 0; other < team->size && used < size; other++) {
        if (!wait_behind(team->agree, other) && other != rank) {
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

/* The deadline for ranks that have not come has passed. */
static mpath_status_t wait_give_up(mpath_team_t *team, int rank, uint64_t waited_ns)
{
    char text[WAIT_NAMED * (MPATH_HOST_NAME_MAX + 16)];

    behind_text(team, rank, text, sizeof(text));
    mpath_error("%s: rank %d (%s) waits in call %u for rank %s; nothing came for %llu s, the call fails",
                team->oob.name, team->rank, mpath_team_host(team, team->rank), team->agree->call, text,
                (unsigned long long)(waited_ns / MPATH_NS_PER_S));
    mpath_team_break(team, MPATH_ERR_TIMED_OUT);
    return team->broken;
}

/* Its row has come, so it is not late by right. */
static mpath_status_t wait_expired(mpath_team_t *team, int rank, uint64_t waited_ns)
{
    mpath_error(
        "%s: rank %d waits in call %u for data of rank %d (%s), which that has to send to rank %d; nothing came "
        "for %llu s, the call fails",
        team->oob.name, team->rank, team->agree->call, rank, mpath_team_host(team, rank),
        mpath_channel_taker(team, team->node, team->local_of[rank]), (unsigned long long)(waited_ns / MPATH_NS_PER_S));
    mpath_team_break(team, MPATH_ERR_TIMED_OUT);
    return team->broken;
}

mpath_status_t mpath_agree_idle(mpath_team_t *team, int rank, mpath_agree_wait_t *wait)
{
    int leads          = team->local_rank == 0 && team->num_nodes > 1;
    int has_turn       = ++wait->rounds % WAIT_PROGRESS_ROUNDS == 0;
    uint64_t waited_ns = mpath_idle_wait(&wait->idle);
    mpath_status_t status;

    if (team->agree->settling) {
        mpath_attend_look(team, &wait->idle, waited_ns);
    }
    mpath_move_drain(team);
    if (atomic_load_explicit(&team->header->broken, memory_order_relaxed) != 0) {
        return mpath_team_status(team);
    }
    /* The library behind the control plane wants to run, whoever waits; a leader waits for it. */
    if (leads || wait->uses_own || has_turn) {
        team->oob.progress(team->oob.context);
    }
    if (!leads && has_turn) {
        status = mpath_team_status(team);
        if (status != MPATH_OK) {
            return status;
        }
    }
    if (waited_ns < wait->next_check_ns) {
        return MPATH_OK;
    }
    wait->next_check_ns = waited_ns + WAIT_CHECK_NS;
    status              = wait_check_mates(team, rank, wait);
    if (status == MPATH_OK && waited_ns >= wait->next_warn_ns && wait->for_own && !mpath_idle_others_may_rest()) {
        return wait_expired(team, rank, waited_ns);
    }
    if (status == MPATH_OK && wait_limit_ns(team) > 0 && waited_ns >= wait_limit_ns(team)) {
        return wait_give_up(team, rank, waited_ns);
    }
    if (status == MPATH_OK && waited_ns >= wait->next_warn_ns) {
        wait_warn(team, rank, waited_ns);
        wait->next_warn_ns += (uint64_t)team->context->settings.timeout_s * MPATH_NS_PER_S;
    }
    return status;
}

mpath_status_t mpath_agree_await(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                 const int *ranks, int count, mpath_agree_wait_t *wait)
{
    const mpath_agree_state_t *state = team->agree;
    mpath_agree_cell_t *cells        = state->cells[state->call & 1];
    int leads                        = team->local_rank == 0 && team->num_nodes > 1;

    for (int i = 0; i < count;) {
        int rank = ranks != NULL ? ranks[i] : i;
        mpath_status_t status;

        if (atomic_load_explicit(&cells[rank].call, memory_order_acquire) == state->call) {
            if (wait->idle.rounds > 0) {
                mpath_agree_wait_start(wait, team);
            }
            i++;
            continue;
        }
        if (leads) {
            int received = mpath_agree_receive(team, call, limits);

            if (received < 0) {
                return (mpath_status_t)received;
            }
            if (received > 0) {
                mpath_agree_wait_start(wait, team);
                continue;
            }
        }
        status = mpath_agree_idle(team, rank, wait);
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}
