/* SPDX-License-Identifier: BSD-3-Clause */
/* Move: binds a call to the schedule of its plan and drives the lanes until this rank's duties are done. */
#include "exec/move_private.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define SELF_PIECE_BYTES 65536u /* of the diagonal, copied between two looks at the lanes */

/* Tells the queues of a new schedule where they lead. */
static mpath_status_t make_queues(mpath_mover_t *mover, mpath_schedule_t *schedule)
{
    outlet_queue_t *queues = calloc(schedule->num_outlets + 1, sizeof(*queues));

    if (queues == NULL) {
        mpath_error("%s: no memory for %zu queues; the call fails", mover->team->oob.name, schedule->num_outlets);
        return MPATH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < schedule->num_outlets; i++) {
        const mpath_outlet_t *outlet = &schedule->outlets[i];

        if (outlet->kind == MPATH_OUTLET_RAIL) {
            queues[i].peer = mpath_mover_peer(mover, outlet->nic, outlet->rank, outlet->nic_to);
            if (queues[i].peer < 0) {
                mpath_status_t status = (mpath_status_t)queues[i].peer;

                free(queues);
                return status;
            }
        }
    }
    free(mover->queues);
    mover->queues = queues;
    return MPATH_OK;
}

/* Calls with the same plan share a schedule. */
static mpath_status_t find_schedule(mpath_mover_t *mover, const mpath_plan_t *plan)
{
    uint64_t signature = mpath_plan_signature(plan);
    mpath_schedule_t *schedule;
    mpath_status_t status;

    if ((mover->schedule != NULL) && (mover->schedule_signature == signature)) {
        return MPATH_OK;
    }
    status = mpath_schedule_create(mover->team->topo, mover->team->rank, plan, &mover->limits, &schedule);
    if (status != MPATH_OK) {
        return status;
    }
    status = make_queues(mover, schedule);
    if (status != MPATH_OK) {
        mpath_schedule_destroy(schedule);
        return status;
    }
    mpath_schedule_destroy(mover->schedule);
    mover->schedule           = schedule;
    mover->schedule_signature = signature;
    return MPATH_OK;
}

/* A plan must stay inside the buffers of the call, whatever it was made from. */
static mpath_status_t check_bounds(const mpath_mover_t *mover, const mpath_call_t *call)
{
    int me = mover->team->rank;

    for (size_t i = 0; i < mover->schedule->num_duties; i++) {
        const mpath_duty_t *duty = &mover->schedule->duties[i];
        uint64_t end             = duty->offset + duty->bytes;

        if (((duty->source == me) && (end > call->send_bytes[duty->destination])) ||
            ((duty->destination == me) && (end > call->recv_bytes[duty->source]))) {
            mpath_error("%s: the plan moves bytes up to %llu from rank %d to rank %d, beyond their message; the call "
                        "fails",
                        mover->team->oob.name, (unsigned long long)end, duty->source, duty->destination);
            return MPATH_ERR_INTERNAL;
        }
    }
    return MPATH_OK;
}

static mpath_status_t bind_call(mpath_mover_t *mover, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                const mpath_plan_t *plan)
{
    mpath_status_t status = find_schedule(mover, plan);

    if (status == MPATH_OK) {
        status = check_bounds(mover, call);
    }
    if (status != MPATH_OK) {
        return status;
    }
    mpath_schedule_reset(mover->schedule);
    for (size_t i = 0; i < mover->schedule->num_outlets; i++) {
        const mpath_outlet_t *outlet = &mover->schedule->outlets[i];
        outlet_queue_t *queue        = &mover->queues[i];

        queue->first    = NULL;
        queue->last_p   = &queue->first;
        queue->own_left = 0;
        for (uint32_t k = 0; k < outlet->num_own; k++) {
            queue->own_left += mover->schedule->duties[mover->schedule->own[outlet->own + k]].num_chunks;
        }
    }
    mover->call         = call;
    mover->call_number  = agreed->call;
    mover->send_left    = mover->schedule->send_bytes;
    mover->forward_left = mover->schedule->forward_bytes;
    mover->receive_left = mover->schedule->receive_bytes;
    mover->self_done    = 0;
    mover->first_outlet = 0;
    mover->rails_full   = 0;
    mover->lost         = 0;
    mover->settles_call = mpath_mover_settles(mover, plan);
    memset(&mover->stats, 0, sizeof(mover->stats));
    return MPATH_OK;
}

/* Arrivals are handled inside, see mpath_mover_arrive(). */
static int progress_slots(mpath_mover_t *mover)
{
    mpath_lane_t *lanes[] = {mover->relay, mover->team->shm};
    int events            = 0;

    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
        int result = (lanes[i] == NULL) ? 0 : lanes[i]->ops->progress(lanes[i]);

        if (result < 0) {
            return result;
        }
        events += result;
    }
    return (mover->failed != MPATH_OK) ? (int)mover->failed : events;
}

/* A piece of what this rank sends to itself. */
static int copy_self(mpath_mover_t *mover)
{
    const mpath_call_t *call = mover->call;
    int me                   = mover->team->rank;
    uint64_t left            = call->send_bytes[me] - mover->self_done;
    size_t piece             = (size_t)((left < SELF_PIECE_BYTES) ? left : SELF_PIECE_BYTES);

    if ((piece == 0) || !mover->rails_full) {
        return 0;
    }
    memcpy((char *)call->recv_buffer + call->recv_offsets[me] + mover->self_done,
           (const char *)call->send_buffer + call->send_offsets[me] + mover->self_done, piece);
    mover->self_done += piece;
    return 1;
}

/* One look at everything, what moves the rails first. Number of events, or an error. */
static int pass(mpath_mover_t *mover)
{
    static int (*const steps[])(mpath_mover_t *) = {
        mpath_inbox_drive, mpath_mover_finish_ops, mpath_mover_take_arrivals,
        progress_slots,    mpath_mover_feed_rails, mpath_mover_feed_slots,
        copy_self};
    int events = 0;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        int result = steps[i](mover);

        if (result < 0) {
            return result;
        }
        events += result;
    }
    return events;
}

static int is_finished(const mpath_mover_t *mover)
{
    return ((mover->send_left | mover->forward_left | mover->receive_left) == 0) &&
           (mover->self_done == mover->call->send_bytes[mover->team->rank]);
}

static mpath_status_t run(mpath_mover_t *mover)
{
    mpath_rail_clock_start(&mover->clock, mover->schedule);
    mpath_idle_start(&mover->idle);
    mover->checked_ns = mover->idle.last_event_ns;
    while (!is_finished(mover)) {
        int events = pass(mover);

        if (events < 0) {
            return (mpath_status_t)events;
        }
        if (events > 0) {
            mpath_idle_event(&mover->idle);
            mpath_idle_give_way();
        } else {
            mpath_status_t status = mpath_mover_wait(mover);

            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

static void add_stats(mpath_move_stats_t *sum, const mpath_move_stats_t *stats)
{
    sum->sent_bytes += stats->sent_bytes;
    sum->received_bytes += stats->received_bytes;
    sum->forwarded_bytes += stats->forwarded_bytes;
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        sum->rail_bytes[nic] += stats->rail_bytes[nic];
    }
}

mpath_status_t mpath_move(mpath_team_t *team, const mpath_call_t *call, const mpath_agreed_t *agreed,
                          const mpath_plan_t *plan, mpath_move_stats_t *stats)
{
    mpath_status_t status = mpath_team_status(team);
    int bound             = 0;

    if ((status == MPATH_OK) && (team->mover == NULL)) {
        status = mpath_mover_create(team);
    }
    if ((status == MPATH_OK) && (team->mover->status != MPATH_OK)) {
        return team->mover->status;
    }
    if (status == MPATH_OK) {
        status = bind_call(team->mover, call, agreed, plan);
        bound  = (status == MPATH_OK);
    }
    if (bound) {
        status = run(team->mover);
        if (team->mover->settles_call && ((status == MPATH_OK) || (status == MPATH_AGAIN) ||
                                          ((status == MPATH_ERR_UNREACHABLE) && (team->mover->lost != 0)))) {
            status = mpath_mover_settle(team->mover, status);
        } else if (status == MPATH_OK) {
            status = mpath_move_recover(team);
        }
        if (status == MPATH_AGAIN) {
            return status;
        }
    }
    if (status != MPATH_OK) {
        mpath_team_break(team, status);
        if (bound) {
            mpath_mover_abandon(team->mover);
        }
        return status;
    }
    team->mover->call = NULL;
    if (stats != NULL) {
        add_stats(stats, &team->mover->stats);
    }
    return MPATH_OK;
}

void mpath_move_times(const mpath_team_t *team, const mpath_topo_t *topo, const mpath_plan_t *plan,
                      mpath_rail_times_t *times)
{
    mpath_rail_times_read(&team->mover->clock, team, topo, team->mover->schedule, plan, times);
}
