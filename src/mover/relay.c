/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay: a call from what this rank tells of its buffers to the last byte, and which chunk goes next: of the outlets of
 * this rank, of those in its slots, and of its own.
 */
#include "mover/relay_private.h"

#include "device/memory.h"
#include "team/team.h"
#include "team/wait.h"
#include "util/log.h"
#include "util/reserve.h"
#include "util/time.h"
#include "wire/failover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 4u /* copies of an outlet under way: one runs, one is ready, the others hide the host */

/* The next chunk of those in slots. MPATH_NO_RESOURCE: there is none, or it has to wait. */
static mpath_status_t feed_forwarded(mpath_relay_t *relay, relay_outlet_t *outlet)
{
    relay_item_t *item    = outlet->first;
    mpath_status_t status = (item != NULL) ? mpath_relay_hand(relay, item->duty, item->chunk, item) : MPATH_NO_RESOURCE;

    if (status == MPATH_OK) {
        outlet->first      = item->next;
        outlet->last_p     = (outlet->first == NULL) ? &outlet->first : outlet->last_p;
        item->next         = relay->spare_items;
        relay->spare_items = item;
        outlet->own_turn   = 1;
    }
    return status;
}

/* The own chunk with the longest path ahead of those that do not have to wait. */
static mpath_status_t feed_own(mpath_relay_t *relay, relay_outlet_t *outlet, const mpath_outlet_t *given)
{
    mpath_status_t status = MPATH_NO_RESOURCE;
    int ahead             = INT8_MAX;
    mpath_duty_t *duty;

    while ((status == MPATH_NO_RESOURCE) && (outlet->own_left > 0) &&
           ((duty = mpath_schedule_next_own(relay->bound.schedule, given, ahead)) != NULL)) {
        status = mpath_relay_hand(relay, duty, duty->handed_chunks, NULL);
        ahead  = duty->ahead - 1;
        if (status == MPATH_OK) {
            duty->handed_chunks++;
            outlet->own_left--;
            outlet->own_turn = 0;
        }
    }
    return status;
}

/* In turns, unless one has to wait and the other does not. */
static mpath_status_t feed_one(mpath_relay_t *relay, size_t index)
{
    relay_outlet_t *outlet      = &relay->bound.outlets[index];
    const mpath_outlet_t *given = &relay->bound.schedule->outlets[index];
    int own_first               = outlet->own_turn;
    mpath_status_t status       = own_first ? feed_own(relay, outlet, given) : feed_forwarded(relay, outlet);

    if (status == MPATH_NO_RESOURCE) {
        status = own_first ? feed_forwarded(relay, outlet) : feed_own(relay, outlet, given);
    }
    return status;
}

/* 1: a chunk is on its way; 0: there is none, or it has to wait; or an error. */
static int feed_outlet(mpath_relay_t *relay, size_t index)
{
    mpath_status_t status = feed_one(relay, index);

    relay->bound.outlets[index].in_flight += (status == MPATH_OK) ? 1 : 0;
    return (status == MPATH_OK) ? 1 : mpath_status_is_error(status) ? (int)status : 0;
}

/*
 * A chunk for every outlet that has none under way; if there is no such, one for an outlet with the fewest. To start a
 * copy takes the host microseconds in which no end of another is noticed, so one more has to do until the next round.
 */
int mpath_relay_feed(mpath_relay_t *relay)
{
    size_t num = relay->bound.schedule->num_outlets, first = relay->first_outlet;
    int events = 0;

    for (unsigned under_way = 0; (under_way < DEPTH) && (events == 0); under_way++) {
        for (size_t i = 0; (i < num) && ((events == 0) || (under_way == 0)); i++) {
            size_t index = (first + i) % num;
            int result   = (relay->bound.outlets[index].in_flight == under_way) ? feed_outlet(relay, index) : 0;

            if (result < 0) {
                return result;
            }
            relay->first_outlet = (result > 0) ? (index + 1) % num : relay->first_outlet;
            events += result;
        }
    }
    return events;
}

static void end(mpath_relay_t *relay);

/* Relay, waiting: when a call is over for this rank, what it looks at meanwhile, and whom a deadline names. */

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

static int relay_is_finished(const mpath_relay_t *relay)
{
    if ((relay->send_left | relay->forward_left | relay->fetch_left) != 0) {
        return 0;
    }
    for (int member = 0; member < relay->shared.num_members; member++) {
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

        if (mpath_duty_awaits(duty) && (duty->hop_out != MPATH_DUTY_NO_HOP)) {
            return duty;
        }
    }
    return NULL;
}

static int first_missing(const mpath_relay_t *relay)
{
    for (int member = 0; member < relay->shared.num_members; member++) {
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

/* The rank that does not give room for chunks that this one sends; -1: none. */
static int first_blocked(const mpath_relay_t *relay, const char **what_p)
{
    for (size_t i = 0; i < relay->bound.schedule->num_outlets; i++) {
        if (relay->bound.outlets[i].blocked != NULL) {
            *what_p = relay->bound.outlets[i].blocked;
            return relay->bound.schedule->outlets[i].rank;
        }
    }
    return -1;
}

static int relay_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    const mpath_relay_t *relay = engine;
    const mpath_duty_t *duty   = first_awaited(relay);
    const mpath_hop_t *debt    = first_debt(relay);
    const char *what           = "";
    int member = first_missing(relay), blocked = first_blocked(relay, &what);
    unsigned long long number = relay->number;
    char rail[MPATH_NIC_NAME_MAX + 2];

    (void)why;
    if (blocked >= 0) {
        *rank_p = blocked;
        snprintf(text, size, "rank %d waits for %s of rank %d, to which it sends chunks in call %llu on device memory",
                 relay->me, what, blocked, number);
    } else if (duty != NULL) {
        *rank_p = duty->in.from;
        rail_text(relay, &duty->in, rail, sizeof(rail));
        snprintf(text, size,
                 "rank %d waits for rank %d: chunks from rank %d for rank %d by lane %s%s, which it passes on in call "
                 "%llu on device memory (%u of %u are here)",
                 relay->me, duty->in.from, duty->source, duty->destination,
                 mpath_lane_kind_name((mpath_lane_kind_t)duty->in.lane), rail, number, duty->arrived_chunks,
                 duty->num_chunks);
    } else if (member >= 0) {
        *rank_p = relay->shared.members[member];
        snprintf(
            text, size,
            "rank %d waits for rank %d: %llu bytes by copies into its receive buffer in call %llu on device memory",
            relay->me, relay->shared.members[member], (unsigned long long)mpath_relay_missing_from(relay, member),
            number);
    } else if (relay->fetch_left > 0) {
        snprintf(text, size, "rank %d waits for %llu bytes that come through the host in call %llu on device memory",
                 relay->me, (unsigned long long)relay->fetch_left, number);
    } else if (debt != NULL) {
        *rank_p = debt->to;
        snprintf(text, size,
                 "rank %d waits for rank %d to say that what it sent by rail %s in call %llu on device memory has been "
                 "used",
                 relay->me, debt->to, mpath_relay_rails_name(relay, debt->nic_from), number);
    } else {
        snprintf(text, size, "rank %d waits for its own copies in call %llu on device memory", relay->me, number);
    }
    return 1;
}

/* Members without whom this rank cannot end: those with bytes for it, and those that have or take what it passes on. A mask. */
static uint64_t needed_members(const mpath_relay_t *relay)
{
    uint64_t needed = 0;

    for (size_t i = 0; i < relay->bound.schedule->num_duties; i++) {
        const mpath_duty_t *duty = &relay->bound.schedule->duties[i];

        if (mpath_duty_awaits(duty) && (duty->hop_out != MPATH_DUTY_NO_HOP)) {
            needed |= mpath_relay_member_bit(relay, duty->in.from);
        }
        if ((duty->hop_out != MPATH_DUTY_NO_HOP) && !mpath_duty_is_done(duty)) {
            needed |= mpath_relay_member_bit(relay, duty->out.to);
        }
    }
    for (int member = 0; member < relay->shared.num_members; member++) {
        needed |= (mpath_relay_missing_from(relay, member) != 0) ? 1ull << member : 0;
    }
    return needed & ~(1ull << relay->shared.my_member);
}

static mpath_status_t check_processes(const mpath_relay_t *relay)
{
    for (int member = 0; member < relay->shared.num_members; member++) {
        int rank                       = relay->shared.members[member];
        const mpath_process_t *process = &relay->shared.cells[relay->half][member].process;

        /* it may have done its part and ended between the looks */
        if (((needed_members(relay) >> member) & 1) && !mpath_process_alive(process) &&
            ((needed_members(relay) >> member) & 1)) {
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
                  mpath_team_name(relay->team), rank, mpath_team_host(relay->team, rank),
                  mpath_relay_rails_name(relay, nic), mpath_status_string(status), relay->me,
                  (unsigned long long)relay->number, relay->settles ? "is repeated over the other rails" : "fails");
        relay->lost |= mpath_nic_bit(nic);
    }
    return status;
}

/* The same of all by which the call still waits for something; costs system calls. */
static mpath_status_t check_ends(mpath_relay_t *relay)
{
    mpath_status_t status = MPATH_OK;

    for (size_t i = 0; relay->rails.active && (i < relay->bound.schedule->num_duties) && (status == MPATH_OK); i++) {
        const mpath_duty_t *duty = &relay->bound.schedule->duties[i];

        if (mpath_duty_awaits(duty) && (duty->in.lane == MPATH_LANE_RAIL)) {
            status = check_end(relay, duty->in.nic_to, duty->in.from, duty->in.nic_from);
        }
        if ((status == MPATH_OK) && (duty->hop_out != MPATH_DUTY_NO_HOP) && (duty->out.lane == MPATH_LANE_RAIL) &&
            (!mpath_duty_is_done(duty) || mpath_relay_rails_owe(relay, duty))) {
            status = check_end(relay, duty->out.nic_from, duty->out.to, duty->out.nic_to);
        }
    }
    return status;
}

/* The processes, the streams and the ends of rails. */
static mpath_status_t relay_check(void *engine, uint64_t waited_ns)
{
    mpath_relay_t *relay  = engine;
    mpath_status_t status = check_processes(relay);

    (void)waited_ns;
    if (status == MPATH_OK) {
        status = check_streams(relay);
    }
    return status == MPATH_OK ? check_ends(relay) : status;
}

static mpath_status_t relay_lose_silent(void *engine, int seconds)
{
    return mpath_relay_give_rails_up(engine, seconds);
}

/* What comes into the receive buffer is no event of a look. */
static uint64_t relay_landed(const void *engine)
{
    const mpath_relay_t *relay = engine;
    uint64_t missing           = 0;

    for (int member = 0; member < relay->shared.num_members; member++) {
        missing += mpath_relay_missing_from(relay, member);
    }
    return missing;
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
            (void)mpath_idle_wait(&relay->wait.idle);
            mpath_relay_lock();
            status = mpath_stream_done(stream, mark);
            mpath_relay_unlock();
        }
        all = all && (status != MPATH_INPROGRESS);
    }
    return all;
}

/*
 * When a call is given up: until no copy of this rank is under way; what rails have under way ends when the ranks settle.
 * MPATH_ERR_TIMED_OUT, logged: some copy still is after so many seconds.
 */
static mpath_status_t relay_stop(mpath_relay_t *relay, int seconds)
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

/* The same after an error, rails included. */
static void relay_abandon(mpath_relay_t *relay, int seconds)
{
    mpath_relay_rails_abandon(relay);
    (void)relay_stop(relay, seconds);
}

/*
 * Relay, rails that fail during a call: as wire/failover.c does it for host memory. Who has lost a rail ends its copies and
 * says so at the end of the call; the others see that while they wait, and follow. When nothing is under way on any of
 * them, over rails neither, every rank puts its own part of the segment back in order (slots, rings, credits), and the call
 * is planned and moved anew without the rails: its send buffers are unchanged, and bytes that come again are the same.
 */

static void give_up(mpath_relay_t *relay, const mpath_hop_t *hop, int nic, int seconds)
{
    if (relay->lost == 0) {
        mpath_warn("%s: no device memory has moved from rank %d (%s) to rank %d (%s) by rail %s for %d s; the call "
                   "is repeated over other rails",
                   mpath_team_name(relay->team), hop->from, mpath_team_host(relay->team, hop->from), hop->to,
                   mpath_team_host(relay->team, hop->to), mpath_relay_rails_name(relay, nic), seconds);
    }
    relay->lost |= mpath_nic_bit(nic);
}

mpath_status_t mpath_relay_give_rails_up(mpath_relay_t *relay, int seconds)
{
    const mpath_schedule_t *schedule = relay->bound.schedule;
    int all_moved;

    for (size_t i = 0; i < schedule->num_duties; i++) {
        const mpath_duty_t *duty = &schedule->duties[i];
        int waits                = mpath_duty_awaits(duty);
        const mpath_hop_t *hop   = waits ? &duty->in : &duty->out;

        if (!mpath_duty_is_done(duty) && (waits || (duty->hop_out != MPATH_DUTY_NO_HOP)) &&
            (hop->lane == MPATH_LANE_RAIL)) {
            give_up(relay, hop, waits ? hop->nic_to : hop->nic_from, seconds);
        }
    }
    all_moved = relay->lost == 0;
    for (size_t i = 0; all_moved && (i < schedule->num_duties); i++) {
        const mpath_duty_t *duty = &schedule->duties[i];

        if (mpath_relay_rails_owe(relay, duty)) {
            give_up(relay, &duty->out, duty->out.nic_from, seconds);
        }
    }
    return (relay->lost != 0) ? MPATH_ERR_UNREACHABLE : MPATH_OK;
}

/*
 * All ranks have stopped: what belongs to this one is free again. Nobody takes of it before an exchange of all has
 * followed.
 */
static mpath_status_t put_in_order(mpath_relay_t *relay)
{
    mpath_relay_segment_t *shared = &relay->shared;
    mpath_relay_gate_t *gate      = &shared->gates[shared->my_member];

    for (int i = 0; i < MPATH_RELAY_CLASSES; i++) {
        atomic_store(&gate->free[i], (1ull << MPATH_RELAY_MAX_SLOTS) - 1);
    }
    for (int member = 0; member < shared->num_members; member++) {
        mpath_relay_ring_t *ring = mpath_relay_ring(shared, shared->my_member, member);

        ring->tail              = atomic_load(&ring->head);
        relay->expected[member] = atomic_load(&ring->landed_bytes);
    }
    return mpath_relay_rails_restart(relay);
}

/*
 * mover/relay.c: the end of a call for this rank; MPATH_AGAIN, on all ranks alike: it is to be repeated on another
 * topology.
 */
static mpath_status_t relay_settle(mpath_relay_t *relay, mpath_status_t status)
{
    relay->lost |= mpath_relay_rails_lost(relay);
    if (!relay->settles || ((status != MPATH_OK) && (status != MPATH_AGAIN) &&
                            ((status != MPATH_ERR_UNREACHABLE) || (relay->lost == 0)))) {
        return status;
    }
    if ((status != MPATH_OK) && (relay_stop(relay, relay->settings->timeout_s) != MPATH_OK)) {
        return MPATH_ERR_TIMED_OUT; /* it would write to slots of the next attempt */
    }
    status = mpath_failover_settle(relay->team, status, &(mpath_failover_loss_t){.lost = relay->lost});
    if (status == MPATH_AGAIN) {
        mpath_status_t restarted = put_in_order(relay);

        status = (restarted == MPATH_OK) ? MPATH_AGAIN : restarted;
    }
    return status;
}

#define GIVE_UP_S 5 /* for copies under way when a call has failed */

/* -- life -- */

int mpath_relay_helps(const mpath_topo_t *topo)
{
    int helps = (mpath_topo_num_nodes(topo) > 1) || (mpath_topo_params(topo)->emulated != MPATH_EMULATED_NO);

    for (int rank = 0; rank < mpath_topo_num_ranks(topo); rank++) {
        const mpath_place_t *place    = mpath_topo_place(topo, rank);
        const mpath_node_gpus_t *gpus = mpath_topo_gpus(topo, place->node);

        if ((gpus == NULL) || (place->gpu < 0) || (place->gpu >= gpus->num_gpus)) {
            return 0;
        }
        helps = helps || (gpus->link == MPATH_GPU_LINK_MESH);
    }
    return helps;
}

/* Whether the ranks that share memory are few enough: those of each node, or all where a host stands for several nodes. */
static int members_fit(const mpath_team_t *team, const mpath_topo_t *topo)
{
    int is_emulated = (topo != NULL) && (mpath_topo_params(topo)->emulated != MPATH_EMULATED_NO);

    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        if ((is_emulated ? rank : mpath_team_local_of(team, rank)) >= MPATH_RELAY_MAX_MEMBERS) {
            return 0;
        }
    }
    return mpath_team_size(team) <= MPATH_RELAY_MAX_RANKS;
}

static int is_usable(const mpath_team_t *team, const mpath_topo_t *topo)
{
    if ((topo == NULL) || !mpath_team_settings(team)->gpu || !mpath_relay_helps(topo)) {
        return 0;
    }
    if (!members_fit(team, topo)) {
        mpath_info_by(
            mpath_team_rank(team) == 0,
            "more than %d ranks of this communicator share a host's memory, or it has more than %d: no relays "
            "of device memory in it",
            MPATH_RELAY_MAX_MEMBERS, MPATH_RELAY_MAX_RANKS);
        return 0;
    }
    return 1;
}

/* A topology file without GPUs wants none. The same on all ranks. */
static int may_discover(const mpath_team_t *team)
{
    const mpath_settings_t *settings = mpath_team_settings(team);

    return (mpath_team_gpu_topo(team) == NULL) && settings->gpu && members_fit(team, NULL) &&
           ((settings->topo_file == NULL) || (settings->topo_file[0] == '\0'));
}

mpath_status_t mpath_relay_create(mpath_team_t *team, mpath_relay_t **relay_p)
{
    mpath_relay_t *relay = mpath_reserve(sizeof(*relay)); /* without GPUs most of it is not used */

    if ((relay == NULL) || (mpath_rail_clock_init(&relay->clock, team) != MPATH_OK)) {
        mpath_error("no memory for relays of device memory");
        mpath_unreserve(relay, sizeof(*relay));
        return MPATH_ERR_NO_MEMORY;
    }
    relay->team      = team;
    relay->settings  = mpath_team_settings(team);
    relay->size      = mpath_team_size(team);
    relay->me        = mpath_team_rank(team);
    relay->usable    = is_usable(team, mpath_team_gpu_topo(team));
    relay->discovers = may_discover(team);
    relay->by_copies = relay->usable &&
                       (mpath_topo_params(mpath_team_gpu_topo(team))->emulated == MPATH_EMULATED_COPIES);
    relay->under_way_last_p = &relay->under_way;
    *relay_p                = relay;
    return MPATH_OK;
}

void mpath_relay_destroy(mpath_relay_t *relay)
{
    if (relay == NULL) {
        return;
    }
    if (relay->opened) {
        mpath_relay_cleanup(relay);
    }
    while (relay->spare_ops != NULL) {
        relay_op_t *next = relay->spare_ops->next;

        free(relay->spare_ops);
        relay->spare_ops = next;
    }
    while (relay->spare_items != NULL) {
        relay_item_t *next = relay->spare_items->next;

        free(relay->spare_items);
        relay->spare_items = next;
    }
    mpath_rail_clock_release(&relay->clock);
    free(relay->ranks);
    free(relay->said);
    mpath_unreserve(relay, sizeof(*relay));
}

int mpath_relay_usable(const mpath_relay_t *relay)
{
    return relay->usable || relay->discovers;
}

void mpath_relay_get_stats(const mpath_relay_t *relay, mpath_relay_stats_t *stats)
{
    *stats            = relay->stats;
    stats->slot_bytes = relay->my_pool_bytes;
}

/* -- before the agreement -- */

static uint64_t span_bytes(const uint64_t *bytes, const uint64_t *offsets, int size)
{
    uint64_t end = 0;

    for (int rank = 0; rank < size; rank++) {
        end = ((bytes[rank] > 0) && (offsets[rank] + bytes[rank] > end)) ? offsets[rank] + bytes[rank] : end;
    }
    return end;
}

/* Slots, streams and rails of this rank were made in a context that the application has ended since. */
static int has_lost_gpu(const mpath_relay_t *relay)
{
    return (relay->gpu != NULL) && mpath_gpu_is_lost(relay->gpu);
}

/*
 * The GPU that a set-up would take: that of the buffers, else that of the thread, on which the buffers to come may be.
 * What is known stays: the driver is not asked again.
 */
static void look_for_gpu(mpath_relay_t *relay, const mpath_call_t *call)
{
    const mpath_memory_t *memory = mpath_relay_memory(call);
    mpath_gpu_t *gpu;

    if ((relay->next_gpu != NULL) && mpath_gpu_is_lost(relay->next_gpu)) {
        relay->next_gpu = NULL;
    }
    if (memory != NULL) {
        if ((!relay->opened || relay->is_guess || (relay->next_gpu == NULL)) &&
            (mpath_gpu_get(memory->device, memory->context, &gpu) == MPATH_OK)) {
            relay->next_gpu = gpu;
            relay->is_guess = 0;
        }
    } else if ((relay->next_gpu == NULL) && !has_lost_gpu(relay) && (mpath_gpu_current(&gpu) == MPATH_OK)) {
        relay->next_gpu = gpu;
        relay->is_guess = 1;
    }
}

/* Memory that copy engines of this rank's GPU reach, of the one that slots and rails were or will be made with. */
static int is_reachable(const mpath_relay_t *relay, const mpath_memory_t *memory)
{
    mpath_gpu_t *gpu;

    return (memory != NULL) && !mpath_memory_on_host(memory->kind) && (memory->kind != MPATH_MEMORY_MANAGED) &&
           (mpath_gpu_get(memory->device, memory->context, &gpu) == MPATH_OK) &&
           (!relay->opened || (relay->gpu == gpu) || (relay->next_gpu == gpu));
}

/*
 * Sides without bytes may be any memory. But a rank whose context has ended waits for the next buffers to tell of one,
 * and all wait for the GPUs of all where nobody else tells of them.
 */
static int is_apart(const mpath_relay_t *relay, const mpath_call_t *call, uint64_t send_bytes, uint64_t recv_bytes)
{
    if ((has_lost_gpu(relay) && (mpath_relay_memory(call) == NULL)) ||
        (relay->discovers && (relay->next_gpu == NULL))) {
        return 1;
    }
    if (((send_bytes > 0) && !is_reachable(relay, call->send_memory)) ||
        ((recv_bytes > 0) && !is_reachable(relay, call->recv_memory))) {
        return 1;
    }
    return (send_bytes > 0) && (recv_bytes > 0) && (call->send_memory->device != call->recv_memory->device);
}

/* What keeps the call of all ranks from the GPUs is the kind of this rank's memory, which its user can change. */
static void tell_if_slow(const mpath_relay_t *relay, const mpath_call_t *call, uint64_t send_bytes, uint64_t recv_bytes)
{
    const mpath_memory_t *send = call->send_memory, *recv = call->recv_memory;

    if ((recv_bytes > 0) && (recv != NULL) && !mpath_memory_on_host(recv->kind)) {
        mpath_memory_is_slow(relay->me, "receive", recv);
    }
    if ((send_bytes > 0) && (send != NULL) && (send->kind == MPATH_MEMORY_MANAGED)) {
        mpath_memory_is_slow(relay->me, "send", send);
    }
}

static void write_cell(mpath_relay_t *relay, const mpath_call_t *call)
{
    mpath_relay_cell_t *cell = &relay->shared.cells[relay->half][relay->shared.my_member];

    if (cell->generation != relay->told.generation) {
        *cell = relay->told;
    } else {
        cell->address = relay->told.address;
    }
    memcpy(mpath_relay_offsets(&relay->shared, relay->half, relay->me), call->recv_offsets,
           (size_t)relay->size * sizeof(uint64_t));
}

static int has_bytes(const mpath_relay_t *relay, const mpath_call_t *call)
{
    for (int rank = 0; rank < relay->size; rank++) {
        if ((call->send_bytes[rank] > 0) || (call->recv_bytes[rank] > 0)) {
            return 1;
        }
    }
    return 0;
}

/* What this rank tells of its buffers. */
static void tell_buffers(mpath_relay_t *relay, mpath_call_t *call)
{
    mpath_export_t memory = {.how = MPATH_EXPORT_NONE};
    uint64_t send_bytes, recv_bytes;

    if (mpath_relay_pool_is_short(relay)) {
        call->flags |= MPATH_CALL_SHORT;
    }
    if ((mpath_relay_memory(call) == NULL) && has_bytes(relay, call)) { /* on the host: short calls come here, too */
        call->flags |= MPATH_CALL_APART;
        return;
    }
    send_bytes = span_bytes(call->send_bytes, call->send_offsets, relay->size);
    recv_bytes = span_bytes(call->recv_bytes, call->recv_offsets, relay->size);
    if ((send_bytes + recv_bytes == 0) || (mpath_relay_memory(call) != NULL)) {
        look_for_gpu(relay, call);
    }
    if (is_apart(relay, call, send_bytes, recv_bytes)) {
        tell_if_slow(relay, call, send_bytes, recv_bytes);
        call->flags |= MPATH_CALL_APART;
        return;
    }
    call->flags |= (relay->opened && (relay->next_gpu != relay->gpu)) ? MPATH_CALL_LOST : 0;
    if ((recv_bytes > 0) &&
        (mpath_export_make(call->recv_buffer, recv_bytes, call->recv_memory, &memory) != MPATH_OK)) {
        tell_if_slow(relay, call, send_bytes, recv_bytes);
        call->flags |= MPATH_CALL_APART;
        return;
    }
    if (!mpath_relay_is_same_memory(&memory, &relay->told.memory) || (relay->told.generation == 0)) {
        relay->told.generation++;
        call->flags |= mpath_relay_knows(relay, &memory) ? 0 : MPATH_CALL_MOVED;
    }
    relay->told.memory  = memory;
    relay->told.address = (uint64_t)(uintptr_t)call->recv_buffer;
    if (relay->opened) {
        write_cell(relay, call);
    }
}

void mpath_relay_publish(mpath_relay_t *relay, mpath_call_t *call)
{
    if (relay->opened) {
        relay->number++;
        relay->half = (int)(relay->number & 1);
    }
    if (mpath_relay_usable(relay) && !(call->flags & MPATH_CALL_INELIGIBLE)) {
        tell_buffers(relay, call);
    }
}

/* -- after it -- */

/* Once: this is why. */
static void say_waits(mpath_relay_t *relay)
{
    if (relay->discovers && (relay->next_gpu == NULL) && !relay->has_said) {
        relay->has_said = 1;
        mpath_info(
            "rank %d has no GPU so far: no relays of device memory in this communicator until every rank has one",
            relay->me);
    }
}

void mpath_relay_take_flags(mpath_relay_t *relay, uint32_t flags)
{
    relay->moved    = relay->moved || (flags & MPATH_CALL_MOVED);
    relay->is_short = relay->is_short || (flags & MPATH_CALL_SHORT);
    relay->is_lost  = relay->is_lost || (flags & MPATH_CALL_LOST);
}

mpath_status_t mpath_relay_prepare(mpath_relay_t *relay, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                   const mpath_topo_t **topo_p)
{
    mpath_status_t status = MPATH_OK;

    if (!mpath_relay_usable(relay) || (agreed->flags & MPATH_CALL_APART)) {
        say_waits(relay);
        return MPATH_DECLINED;
    }
    if (relay->discovers) {
        relay->discovers = 0;
        status           = mpath_relay_discover(relay);
        relay->usable    = (status == MPATH_OK) && is_usable(relay->team, mpath_team_gpu_topo(relay->team));
        status           = ((status == MPATH_OK) && !relay->usable) ? MPATH_DECLINED : status;
    }
    if ((status == MPATH_OK) && !relay->opened) {
        status = mpath_relay_setup(relay);
        if (status == MPATH_OK) {
            write_cell(relay, call);
            status = mpath_relay_all(relay->team, MPATH_OK); /* all cells are there */
        }
    }
    if ((status == MPATH_OK) && relay->is_lost) {
        relay->is_lost = 0;
        status         = mpath_relay_renew(relay);
    }
    if ((status == MPATH_OK) && (relay->rails.wire != NULL)) {
        status = mpath_failover_recover(relay->team);
    }
    if ((status == MPATH_OK) && (relay->topo_version != mpath_team_topo_version(relay->team))) {
        status = mpath_relay_follow_topo(relay);
    }
    if ((status == MPATH_OK) && relay->is_short) {
        relay->is_short = 0;
        status          = mpath_relay_give_back(relay);
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(relay->team, status);
    }
    relay->call      = call;
    relay->signature = agreed->signature;
    *topo_p          = relay->topo;
    return ((status == MPATH_OK) && relay->has_no_way) ? MPATH_DECLINED : status;
}

/* What a rank sends to itself, on the GPU. */
static mpath_status_t start_self(mpath_relay_t *relay)
{
    const mpath_call_t *call = relay->call;
    uint64_t bytes           = call->send_bytes[relay->me];
    mpath_status_t status;

    if (bytes == 0) {
        return MPATH_OK;
    }
    status = mpath_stream_get(relay->gpu, MPATH_GPU_STREAMS_DIRECT, &relay->self_stream);
    if (status == MPATH_OK) {
        mpath_relay_lock();
        status = mpath_stream_copy(
            relay->self_stream, (mpath_device_ptr_t)(uintptr_t)call->recv_buffer + call->recv_offsets[relay->me],
            (mpath_device_ptr_t)(uintptr_t)call->send_buffer + call->send_offsets[relay->me], bytes);
        if (status == MPATH_OK) {
            status = mpath_stream_mark(relay->self_stream, &relay->self_mark);
        }
        mpath_relay_unlock();
    }
    return status;
}

static void begin(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    const mpath_schedule_t *schedule = relay->bound.schedule;

    for (size_t i = 0; i < schedule->num_outlets; i++) {
        relay_outlet_t *outlet      = &relay->bound.outlets[i];
        const mpath_outlet_t *given = &schedule->outlets[i];

        *outlet = (relay_outlet_t){.last_p = &outlet->first};
        for (uint32_t k = 0; k < given->num_own; k++) {
            outlet->own_left += schedule->duties[schedule->own[given->own + k]].num_chunks;
        }
    }
    relay->send_left    = schedule->send_bytes;
    relay->forward_left = schedule->forward_bytes;
    relay->fetch_left   = relay->bound.fetch_bytes;
    relay->first_outlet = 0;
    relay->self_stream  = NULL;
    relay->settles      = relay->bound.has_rails && mpath_team_settles(relay->team, mpath_plan_z_ns(plan));
    relay->lost         = 0;
    for (int member = 0; member < relay->shared.num_members; member++) {
        relay->expected[member] += relay->bound.expect[member];
    }
    mpath_relay_rails_begin(relay);
    mpath_wait_prepare(&relay->wait, relay->team, relay->settles);
}

static void end(mpath_relay_t *relay)
{
    mpath_relay_announce_end(relay);
    mpath_relay_rails_end(relay);
    mpath_relay_close_buffers(relay);
    relay->call = NULL;
}

/* One round of everything. Number of events, or an error. */
static int progress(mpath_relay_t *relay)
{
    int (*const steps[])(mpath_relay_t *) = {mpath_relay_finish_ops, mpath_relay_take_arrivals,
                                             mpath_relay_rails_progress, mpath_relay_feed};
    int events                            = 0;

    mpath_relay_announce(relay);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        int result = steps[i](relay);

        if (result < 0) {
            return result;
        }
        events += result;
    }
    return events;
}

static mpath_status_t relay_look(void *engine, int *events_p)
{
    mpath_relay_t *relay = engine;

    if (relay_is_finished(relay)) {
        return MPATH_OK;
    }
    *events_p = progress(relay);
    if (*events_p > 0) {
        mpath_idle_yield();
    }
    return *events_p < 0 ? (mpath_status_t)*events_p : MPATH_INPROGRESS;
}

static mpath_status_t run(mpath_relay_t *relay)
{
    static const mpath_wait_ops_t ops = {.look        = relay_look,
                                         .check       = relay_check,
                                         .landed      = relay_landed,
                                         .lose_silent = relay_lose_silent,
                                         .edge        = relay_edge};
    int begun                         = progress(relay); /* what others wait for comes first */
    mpath_status_t status             = (begun < 0) ? (mpath_status_t)begun : start_self(relay);

    return status == MPATH_OK ? mpath_wait(&relay->wait, &ops, relay) : status;
}

mpath_status_t mpath_relay_move(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    mpath_status_t status = mpath_relay_take_plan(relay, plan);

    if (status == MPATH_OK) {
        begin(relay, plan);
        status = relay_settle(relay, run(relay));
        if (mpath_status_is_error(status)) {
            mpath_team_break(relay->team, status);
            relay_abandon(relay, GIVE_UP_S);
        }
        relay->stats.calls += (status == MPATH_OK) ? 1 : 0;
        end(relay);
    } else if (mpath_status_is_error(status)) {
        mpath_team_break(relay->team, status);
    }
    return status;
}

void mpath_relay_times(mpath_relay_t *relay, const mpath_topo_t *topo, const mpath_plan_t *plan,
                       mpath_rail_times_t *times)
{
    mpath_rail_times_read(&relay->clock, relay->team, topo, relay->bound.schedule, plan, times);
}
