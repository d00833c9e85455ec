/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting inside a call: gives up the processor, and from time to time asks whether waiting still makes sense. */
#include "exec/attend.h"
#include "exec/move_private.h"

#include "util/log.h"
#include "util/time.h"

#include <stdio.h>

#define CHECK_NS (50 * MPATH_NS_PER_MS)
#define CONTROL_PLANE_ROUNDS 64 /* looks between two turns for the MPI library */

static const char *host_of(const mpath_team_t *team, int rank)
{
    return mpath_topo_machine(team->topo, team->node_of[rank])->host;
}

static void hop_text(const mpath_mover_t *mover, const mpath_hop_t *hop, char *text, size_t size)
{
    const mpath_team_t *team = mover->team;

    if (hop->lane == MPATH_LANE_RAIL) {
        snprintf(text, size, "rail %s",
                 mpath_topo_machine(team->topo, team->node_of[hop->from])->nics[hop->nic_from].name);
    } else {
        snprintf(text, size, "shared memory");
    }
}

static int is_done(const mpath_duty_t *duty)
{
    return duty->done_bytes == duty->bytes;
}

/* Chunks are missing, or a chunk that has come is not passed on: which of the two does this rank wait for? */
static int waits_for_arrival(const mpath_duty_t *duty)
{
    return (duty->hop_in != MPATH_DUTY_NO_HOP) && (duty->arrived_chunks < duty->num_chunks);
}

static mpath_status_t hop_status(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop, int peer_rank)
{
    mpath_team_t *team = mover->team;
    int peer;

    if (hop->lane != MPATH_LANE_RAIL) {
        return team->shm->ops->peer_status(team->shm, team->local_of[peer_rank]);
    }
    if (hop == &duty->out) {
        peer = mover->queues[duty->outlet].peer;
        return mpath_fabric_peer_status(mover->fabric, mover->fabric_nic[hop->nic_from], peer);
    }
    /* What TCP has taken for sent may be lost with the connection, which then only the receiver misses. */
    peer = mpath_mover_peer(mover, hop->nic_to, peer_rank, hop->nic_from);
    return (peer < 0) ? (mpath_status_t)peer
                      : mpath_fabric_peer_status(mover->fabric, mover->fabric_nic[hop->nic_to], peer);
}

static void lose_hop(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop)
{
    if (hop->lane == MPATH_LANE_RAIL) {
        mpath_mover_lose(mover, (hop == &duty->out) ? hop->nic_from : hop->nic_to);
    }
}

/* A chunk that has come, while its bytes are still fetched over the rail that brought it. */
static int is_fetched(const parcel_t *parcel)
{
    return (parcel->nic >= 0) && ((parcel->state == PARCEL_TAKES_TO_SLOT) || (parcel->state == PARCEL_TAKES_TO_USER));
}

static void give_up(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop, int seconds)
{
    char text[MPATH_NIC_NAME_MAX + 16];

    if (mover->lost == 0) {
        hop_text(mover, hop, text, sizeof(text));
        mpath_warn("%s: nothing has moved between rank %d (%s) and rank %d (%s) by %s for %d s; the call is repeated "
                   "over other rails",
                   mover->team->oob.name, hop->from, host_of(mover->team, hop->from), hop->to,
                   host_of(mover->team, hop->to), text, seconds);
    }
    lose_hop(mover, duty, hop);
}

/* Nothing has come for long: takes the rails that chunks, or their bytes, are awaited on for failed. */
static mpath_status_t give_rails_up(mpath_mover_t *mover, int seconds)
{
    for (size_t i = 0; i < mover->schedule->num_duties; i++) {
        const mpath_duty_t *duty = &mover->schedule->duties[i];
        const mpath_hop_t *hop   = waits_for_arrival(duty) ? &duty->in : &duty->out;

        if (!is_done(duty) && (hop->lane == MPATH_LANE_RAIL) && (waits_for_arrival(duty) || (duty->hop_out >= 0))) {
            give_up(mover, duty, hop, seconds);
        }
    }
    for (const parcel_t *parcel = mover->under_way; parcel != NULL; parcel = parcel->next) {
        if (is_fetched(parcel)) {
            give_up(mover, parcel->duty, &parcel->duty->in, seconds);
        }
    }
    return (mover->lost != 0) ? MPATH_ERR_UNREACHABLE : MPATH_OK;
}

/* What becomes of a call that has lost a rail. */
static const char *outcome(const mpath_mover_t *mover, int rail, mpath_log_level_t *level_p)
{
    int repeats = rail && mover->settles_call;

    *level_p = repeats ? MPATH_LOG_WARN : MPATH_LOG_ERROR;
    return repeats ? "is repeated over the other rails" : "fails";
}

static void say_lost(const mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop,
                     mpath_status_t status)
{
    int peer_rank = (hop == &duty->out) ? hop->to : hop->from;
    char text[MPATH_NIC_NAME_MAX + 16];
    mpath_log_level_t level;
    const char *next = outcome(mover, (hop->lane == MPATH_LANE_RAIL) && (status == MPATH_ERR_UNREACHABLE), &level);

    hop_text(mover, hop, text, sizeof(text));
    mpath_log(
        level,
        "%s: rank %d (%s) can no longer be reached by %s: %s; %llu bytes from rank %d to rank %d are missing, the "
        "call %s",
        mover->team->oob.name, peer_rank, host_of(mover->team, peer_rank), text, mpath_status_string(status),
        (unsigned long long)(duty->bytes - duty->done_bytes), duty->source, duty->destination, next);
}

void mpath_mover_op_failed(mpath_mover_t *mover, const parcel_t *parcel, mpath_status_t status)
{
    int sends              = (parcel->state == PARCEL_SENDS_OWN) || (parcel->state == PARCEL_SENDS_ON);
    const mpath_hop_t *hop = sends ? &parcel->duty->out : &parcel->duty->in;

    if (parcel->op_nic >= 0) {
        say_lost(mover, parcel->duty, hop, status);
    }
    if ((parcel->op_nic >= 0) && (status == MPATH_ERR_UNREACHABLE)) {
        lose_hop(mover, parcel->duty, hop);
    }
}

void mpath_mover_rail_failed(mpath_mover_t *mover, int nic, mpath_status_t status)
{
    const mpath_team_t *team = mover->team;
    mpath_log_level_t level;
    const char *next = outcome(mover, status == MPATH_ERR_UNREACHABLE, &level);

    mpath_log(level, "%s: rank %d (%s): rail %s has failed: %s; the call %s", team->oob.name, team->rank,
              host_of(team, team->rank), mpath_topo_machine(team->topo, team->node)->nics[nic].name,
              mpath_status_string(status), next);
    if (status == MPATH_ERR_UNREACHABLE) {
        mpath_mover_lose(mover, nic);
    }
}

/* Whether the other end of a hop answers. */
static mpath_status_t check_hop(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop)
{
    mpath_status_t status = hop_status(mover, duty, hop, (hop == &duty->out) ? hop->to : hop->from);

    if (status != MPATH_OK) {
        say_lost(mover, duty, hop, status);
        lose_hop(mover, duty, hop);
    }
    return status;
}

static mpath_status_t check_duty(mpath_mover_t *mover, const mpath_duty_t *duty)
{
    if (is_done(duty)) {
        return MPATH_OK;
    }
    if (waits_for_arrival(duty)) {
        return check_hop(mover, duty, &duty->in);
    }
    return (duty->hop_out != MPATH_DUTY_NO_HOP) ? check_hop(mover, duty, &duty->out) : MPATH_OK;
}

static mpath_status_t check_peers(mpath_mover_t *mover)
{
    mpath_status_t status = MPATH_OK;

    for (size_t i = 0; (i < mover->schedule->num_duties) && (status == MPATH_OK); i++) {
        status = check_duty(mover, &mover->schedule->duties[i]);
    }
    for (const parcel_t *parcel = mover->under_way; (parcel != NULL) && (status == MPATH_OK); parcel = parcel->next) {
        status = is_fetched(parcel) ? check_hop(mover, parcel->duty, &parcel->duty->in) : MPATH_OK;
    }
    return status;
}

/* `verdict`: of mpath_idle_patience(). */
static void log_duty_edge(const mpath_mover_t *mover, const mpath_duty_t *duty, int seconds, mpath_status_t verdict)
{
    const mpath_team_t *team = mover->team;
    int waits                = waits_for_arrival(duty);
    const mpath_hop_t *hop   = waits ? &duty->in : &duty->out;
    int peer                 = waits ? hop->from : hop->to;
    char text[MPATH_NIC_NAME_MAX + 16];

    if (!waits && (duty->hop_out == MPATH_DUTY_NO_HOP)) {
        hop = &duty->in;
    }
    hop_text(mover, hop, text, sizeof(text));
    mpath_log((verdict == MPATH_ERR_TIMED_OUT) ? MPATH_LOG_ERROR : MPATH_LOG_WARN,
              "%s, call %u: rank %d (%s) waits %s rank %d (%s) by %s: %llu of %llu bytes from rank %d to rank %d are "
              "missing; nothing happened for %d s, the call %s",
              team->oob.name, mover->call_number, team->rank, host_of(team, team->rank),
              waits ? "for chunks of" : "to hand chunks to", peer, host_of(team, peer), text,
              (unsigned long long)(duty->bytes - duty->done_bytes), (unsigned long long)duty->bytes, duty->source,
              duty->destination, seconds, (verdict == MPATH_ERR_TIMED_OUT) ? "fails" : "goes on waiting");
}

/* Names one edge: that of a chunk which has not come, for it is the likelier cause; else one that is not passed on. */
static void log_deadline(const mpath_mover_t *mover, int seconds, mpath_status_t verdict)
{
    const mpath_duty_t *edge = NULL;

    for (size_t i = 0; i < mover->schedule->num_duties; i++) {
        const mpath_duty_t *duty = &mover->schedule->duties[i];

        if (!is_done(duty) && ((edge == NULL) || (waits_for_arrival(duty) && !waits_for_arrival(edge)))) {
            edge = duty;
        }
    }
    if (edge != NULL) {
        log_duty_edge(mover, edge, seconds, verdict);
    }
}

/* Is this attempt given up? */
static mpath_status_t check_rails(mpath_mover_t *mover, uint64_t waited_ns)
{
    int patience_s = mover->team->context->settings.resend_after_s;

    if (mpath_team_marked(mover->team)) {
        return MPATH_AGAIN;
    }
    return ((waited_ns > (uint64_t)patience_s * MPATH_NS_PER_S) && mpath_attend_all(mover->team, patience_s))
               ? give_rails_up(mover, patience_s)
               : MPATH_OK;
}

mpath_status_t mpath_mover_wait(mpath_mover_t *mover)
{
    mpath_team_t *team = mover->team;
    uint64_t waited_ns = mpath_idle_wait(&mover->idle), now_ns;
    int timeout_s      = team->context->settings.timeout_s;
    mpath_status_t status, verdict;

    if (mover->idle.rounds % CONTROL_PLANE_ROUNDS == CONTROL_PLANE_ROUNDS - 1) {
        team->oob.progress(team->oob.context);
    }
    if (mover->settles_call) {
        mpath_attend_look(team, &mover->idle, waited_ns);
    }
    if (waited_ns < CHECK_NS) {
        return MPATH_OK;
    }
    now_ns = mover->idle.last_event_ns + waited_ns;
    if (now_ns - mover->checked_ns < CHECK_NS) {
        return MPATH_OK;
    }
    mover->checked_ns = now_ns;
    status            = mpath_team_status(team);
    if (status == MPATH_OK) {
        status = check_peers(mover);
    }
    if ((status == MPATH_OK) && mover->settles_call) {
        status = check_rails(mover, waited_ns);
    }
    verdict = mpath_idle_patience(&mover->idle, waited_ns, timeout_s);
    if ((verdict == MPATH_INPROGRESS) && mover->settles_call && mpath_attend_all(team, timeout_s)) {
        verdict = MPATH_ERR_TIMED_OUT;
    }
    if ((status == MPATH_OK) && (verdict != MPATH_OK)) {
        log_deadline(mover, (int)(waited_ns / MPATH_NS_PER_S), verdict);
    }
    return ((status == MPATH_OK) && (verdict == MPATH_ERR_TIMED_OUT)) ? verdict : status;
}
