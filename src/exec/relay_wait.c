/* SPDX-License-Identifier: BSD-3-Clause */
/* Relay, waiting: when a call is over for this rank, what it looks at meanwhile, and whom a deadline names. */
#include "exec/relay_private.h"

#include "exec/attend.h"
#include "exec/relay_rail.h"
#include "exec/team_private.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>

#define CHECK_NS (50 * MPATH_NS_PER_MS)

uint64_t mpath_relay_missing_from(const mpath_relay_t *relay, int member)
{
    const mpath_relay_ring_t *ring = mpath_relay_ring(&relay->room, relay->room.my_member, member);

    return relay->expected[member] - atomic_load_explicit(&ring->landed_bytes, memory_order_acquire);
}

static int self_is_done(const mpath_relay_t *relay)
{
    mpath_status_t status;

    if (relay->self_stream == NULL) {
        return 1;
    }
    mpath_relay_lock();
    status = mpath_stream_done(relay->self_stream, relay->self_mark);
    mpath_relay_unlock();
    return status == MPATH_OK; /* a failure shows in check_streams() */
}

int mpath_relay_is_finished(const mpath_relay_t *relay)
{
    if ((relay->send_left | relay->forward_left | relay->fetch_left) != 0) {
        return 0;
    }
    for (int member = 0; member < relay->room.num_members; member++) {
        if (mpath_relay_missing_from(relay, member) != 0) {
            return 0;
        }
    }
    return mpath_relay_rails_idle(relay) && self_is_done(relay);
}

/* -- who waits for whom -- */

/* The first duty of which chunks are still to come; NULL: none. */
static const mpath_duty_t *first_awaited(const mpath_relay_t *relay)
{
    for (size_t i = 0; i < relay->bound.schedule->num_duties; i++) {
        const mpath_duty_t *duty = &relay->bound.schedule->duties[i];

        if ((duty->hop_in != MPATH_DUTY_NO_HOP) && (duty->hop_out != MPATH_DUTY_NO_HOP) &&
            (duty->arrived_chunks < duty->num_chunks)) {
            return duty;
        }
    }
    return NULL;
}

static int first_missing(const mpath_relay_t *relay)
{
    for (int member = 0; member < relay->room.num_members; member++) {
        if (mpath_relay_missing_from(relay, member) != 0) {
            return member;
        }
    }
    return -1;
}

/* The first hop by rail whose end has yet to give room back for chunks; NULL: none. */
static const mpath_hop_t *first_debt(const mpath_relay_t *relay)
{
    for (size_t i = 0; i < relay->bound.schedule->num_duties; i++) {
        if (mpath_relay_rails_owe(relay, &relay->bound.schedule->duties[i])) {
            return &relay->bound.schedule->duties[i].out;
        }
    }
    return NULL;
}

/* " NAME" of the rail that chunks come by, "" of other lanes. */
static void rail_text(const mpath_relay_t *relay, const mpath_hop_t *in, char *text, size_t size)
{
    int rail = in->lane == MPATH_LANE_RAIL;

    snprintf(text, size, "%s%s", rail ? " " : "", rail ? mpath_relay_rails_name(relay, in->nic_to) : "");
}

static void name_the_edge(const mpath_relay_t *relay)
{
    const mpath_duty_t *duty = first_awaited(relay);
    const mpath_hop_t *debt  = first_debt(relay);
    int member = first_missing(relay), timeout_s = relay->settings->timeout_s;
    unsigned long long number = relay->number;
    char rail[MPATH_NIC_NAME_MAX + 2];

    for (size_t i = 0; i < relay->bound.schedule->num_outlets; i++) {
        if (relay->bound.outlets[i].blocked != NULL) {
            mpath_error(
                "rank %d waits for %s of rank %d, to which it sends chunks in call %llu on device memory; nothing has "
                "moved for %d s; the call fails",
                relay->me, relay->bound.outlets[i].blocked, relay->bound.schedule->outlets[i].rank, number, timeout_s);
            return;
        }
    }
    if (duty != NULL) {
        rail_text(relay, &duty->in, rail, sizeof(rail));
        mpath_error(
            "rank %d waits for rank %d: chunks from rank %d for rank %d by lane %s%s, which it passes on in call %llu "
            "on device memory (%u of %u are here); nothing has moved for %d s; the call fails",
            relay->me, duty->in.from, duty->source, duty->destination,
            mpath_lane_kind_name((mpath_lane_kind_t)duty->in.lane), rail, number, duty->arrived_chunks,
            duty->num_chunks, timeout_s);
    } else if (member >= 0) {
        mpath_error(
            "rank %d waits for rank %d: %llu bytes by copies into its receive buffer in call %llu on device memory; "
            "nothing has moved for %d s; the call fails",
            relay->me, relay->room.members[member], (unsigned long long)mpath_relay_missing_from(relay, member), number,
            timeout_s);
    } else if (relay->fetch_left > 0) {
        mpath_error(
            "rank %d waits for %llu bytes that come through the host in call %llu on device memory; nothing has moved "
            "for %d s; the call fails",
            relay->me, (unsigned long long)relay->fetch_left, number, timeout_s);
    } else if (debt != NULL) {
        mpath_error(
            "rank %d waits for rank %d to say that what it sent by rail %s in call %llu on device memory has been "
            "used; nothing has moved for %d s; the call fails",
            relay->me, debt->to, mpath_relay_rails_name(relay, debt->nic_from), number, timeout_s);
    } else {
        mpath_error(
            "rank %d waits for its own copies in call %llu on device memory; nothing has moved for %d s; the call "
            "fails",
            relay->me, number, timeout_s);
    }
}

/* Members without whom this rank cannot end: those with bytes for it, and those that have or take what it passes on. */
static uint64_t needed_ranks(const mpath_relay_t *relay)
{
    uint64_t needed = 0;

    for (size_t i = 0; i < relay->bound.schedule->num_duties; i++) {
        const mpath_duty_t *duty = &relay->bound.schedule->duties[i];

        if ((duty->hop_in != MPATH_DUTY_NO_HOP) && (duty->arrived_chunks < duty->num_chunks) &&
            (duty->hop_out != MPATH_DUTY_NO_HOP)) {
            needed |= 1ull << duty->in.from;
        }
        if ((duty->hop_out != MPATH_DUTY_NO_HOP) && (duty->done_bytes < duty->bytes)) {
            needed |= 1ull << duty->out.to;
        }
    }
    for (int member = 0; member < relay->room.num_members; member++) {
        needed |= (mpath_relay_missing_from(relay, member) != 0) ? 1ull << relay->room.members[member] : 0;
    }
    return needed & ~(1ull << relay->me);
}

static mpath_status_t check_processes(const mpath_relay_t *relay)
{
    for (int member = 0; member < relay->room.num_members; member++) {
        int rank                       = relay->room.members[member];
        const mpath_process_t *process = &relay->room.cells[relay->half][member].process;

        /* it may have done its part and ended between the looks */
        if (((needed_ranks(relay) >> rank) & 1) && !mpath_process_alive(process) &&
            ((needed_ranks(relay) >> rank) & 1)) {
            mpath_error("rank %d has ended while rank %d needs it in call %llu on device memory; the call fails", rank,
                        relay->me, (unsigned long long)relay->number);
            return MPATH_ERR_UNREACHABLE;
        }
    }
    return MPATH_OK;
}

/* A copy that fails shows on its stream. */
static mpath_status_t check_streams(const mpath_relay_t *relay)
{
    mpath_status_t status = MPATH_OK;

    if (relay->gpu == NULL) {
        return MPATH_OK;
    }
    mpath_relay_lock();
    for (unsigned i = MPATH_GPU_STREAMS_DIRECT; (i < MPATH_GPU_STREAMS) && !mpath_status_is_error(status); i++) {
        mpath_stream_t *stream;
        mpath_mark_t mark;

        status = mpath_stream_get(relay->gpu, i, &stream);
        if (status == MPATH_OK) {
            status = mpath_stream_mark(stream, &mark);
        }
        if (status == MPATH_OK) {
            status = mpath_stream_done(stream, mark);
        }
    }
    mpath_relay_unlock();
    return mpath_status_is_error(status) ? status : MPATH_OK;
}

/* Whether the other end of a rail answers; it is lost otherwise. */
static mpath_status_t check_end(mpath_relay_t *relay, int nic, int rank, int nic_there)
{
    mpath_status_t status = mpath_wire_peer_status(relay->rails.wire, nic, rank, nic_there);

    if (status != MPATH_OK) {
        mpath_log(relay->settles ? MPATH_LOG_WARN : MPATH_LOG_ERROR,
                  "%s: rank %d (%s) can no longer be reached by rail %s: %s; rank %d needs it in call %llu on device "
                  "memory, which %s",
                  relay->team->oob.name, rank, mpath_team_host(relay->team, rank), mpath_relay_rails_name(relay, nic),
                  mpath_status_string(status), relay->me, (unsigned long long)relay->number,
                  relay->settles ? "is repeated over the other rails" : "fails");
        relay->lost |= 1u << nic;
    }
    return status;
}

/* The same of all by which the call still waits for something; costs system calls. */
static mpath_status_t check_ends(mpath_relay_t *relay)
{
    mpath_status_t status = MPATH_OK;

    for (size_t i = 0; relay->rails.active && (i < relay->bound.schedule->num_duties) && (status == MPATH_OK); i++) {
        const mpath_duty_t *duty = &relay->bound.schedule->duties[i];

        if ((duty->hop_in != MPATH_DUTY_NO_HOP) && (duty->in.lane == MPATH_LANE_RAIL) &&
            (duty->arrived_chunks < duty->num_chunks)) {
            status = check_end(relay, duty->in.nic_to, duty->in.from, duty->in.nic_from);
        }
        if ((status == MPATH_OK) && (duty->hop_out != MPATH_DUTY_NO_HOP) && (duty->out.lane == MPATH_LANE_RAIL) &&
            ((duty->done_bytes < duty->bytes) || mpath_relay_rails_owe(relay, duty))) {
            status = check_end(relay, duty->out.nic_from, duty->out.to, duty->out.nic_to);
        }
    }
    return status;
}

/* Is this attempt given up? */
static mpath_status_t check_rails(mpath_relay_t *relay, uint64_t waited_ns)
{
    int patience_s = relay->settings->resend_after_s;

    if (mpath_team_marked(relay->team)) {
        return MPATH_AGAIN;
    }
    return ((waited_ns > (uint64_t)patience_s * MPATH_NS_PER_S) && mpath_attend_all(relay->team, patience_s))
               ? mpath_relay_give_rails_up(relay, patience_s)
               : MPATH_OK;
}

mpath_status_t mpath_relay_wait(mpath_relay_t *relay, uint64_t *checked_ns)
{
    uint64_t waited_ns    = mpath_idle_wait(&relay->idle);
    mpath_status_t status = MPATH_OK;

    if (relay->settles) {
        mpath_attend_look(relay->team, &relay->idle, waited_ns);
    }
    if (waited_ns == 0) {
        return MPATH_OK;
    }
    status = mpath_team_status(relay->team);
    if ((status != MPATH_OK) || (waited_ns < *checked_ns + CHECK_NS)) {
        return status;
    }
    *checked_ns = waited_ns;
    mpath_team_progress(relay->team);
    status = check_processes(relay);
    if (status == MPATH_OK) {
        status = check_streams(relay);
    }
    if (status == MPATH_OK) {
        status = check_ends(relay);
    }
    if ((status == MPATH_OK) && relay->settles) {
        status = check_rails(relay, waited_ns);
    }
    /* what comes into the receive buffer is no event here, so the words are looked at as well */
    if (status == MPATH_OK && waited_ns >= (uint64_t)relay->settings->timeout_s * MPATH_NS_PER_S) {
        uint64_t landed = 0;

        for (int member = 0; member < relay->room.num_members; member++) {
            landed += mpath_relay_missing_from(relay, member);
        }
        if (landed != relay->missing_seen) {
            relay->missing_seen = landed;
            mpath_idle_event(&relay->idle);
            *checked_ns = 0;
            return MPATH_OK;
        }
        /* a non-blocking operation: no deadline unless all look at it, but a word from time to time */
        if (mpath_idle_others_may_rest() &&
            (!relay->settles || !mpath_attend_all(relay->team, relay->settings->timeout_s))) {
            if (mpath_idle_patience(&relay->idle, waited_ns, relay->settings->timeout_s) == MPATH_INPROGRESS) {
                mpath_warn(
                    "rank %d waits in call %llu on device memory; nothing has moved for %llu s; the call goes on "
                    "waiting",
                    relay->me, (unsigned long long)relay->number, (unsigned long long)(waited_ns / MPATH_NS_PER_S));
            }
            return MPATH_OK;
        }
        name_the_edge(relay);
        status = MPATH_ERR_TIMED_OUT;
    }
    return status;
}

/* Whether all that is on the streams has ended by then. */
static int streams_end(mpath_relay_t *relay, uint64_t end_ns)
{
    int all = 1;

    for (unsigned i = MPATH_GPU_STREAMS_DIRECT; i < MPATH_GPU_STREAMS; i++) {
        mpath_stream_t *stream;
        mpath_mark_t mark;
        mpath_status_t status;

        mpath_relay_lock();
        status = mpath_stream_get(relay->gpu, i, &stream);
        status = (status == MPATH_OK) ? mpath_stream_mark(stream, &mark) : status;
        mpath_relay_unlock();
        for (int done = status != MPATH_OK; !done; done = (status != MPATH_INPROGRESS) || (mpath_time_ns() > end_ns)) {
            (void)mpath_idle_wait(&relay->idle);
            mpath_relay_lock();
            status = mpath_stream_done(stream, mark);
            mpath_relay_unlock();
        }
        all = all && (status != MPATH_INPROGRESS);
    }
    return all;
}

mpath_status_t mpath_relay_stop(mpath_relay_t *relay, int seconds)
{
    mpath_status_t status = MPATH_OK;

    mpath_relay_rails_stop(relay);
    if ((relay->gpu != NULL) && !streams_end(relay, mpath_time_ns() + (uint64_t)seconds * MPATH_NS_PER_S)) {
        mpath_error("rank %d: copies of call %llu on device memory, which is given up, have not ended within %d s",
                    relay->me, (unsigned long long)relay->number, seconds);
        status = MPATH_ERR_TIMED_OUT;
    }
    while (relay->under_way != NULL) {
        relay_op_t *next = relay->under_way->next;

        relay->under_way->next = relay->spare_ops;
        relay->spare_ops       = relay->under_way;
        relay->under_way       = next;
    }
    relay->under_way_last_p = &relay->under_way;
    for (size_t i = 0; i < relay->bound.schedule->num_outlets; i++) {
        while (relay->bound.outlets[i].first != NULL) {
            relay_item_t *next = relay->bound.outlets[i].first->next;

            relay->bound.outlets[i].first->next = relay->spare_items;
            relay->spare_items                  = relay->bound.outlets[i].first;
            relay->bound.outlets[i].first       = next;
        }
    }
    return status;
}

void mpath_relay_abandon(mpath_relay_t *relay, int seconds)
{
    mpath_relay_rails_abandon(relay);
    (void)mpath_relay_stop(relay, seconds);
}
