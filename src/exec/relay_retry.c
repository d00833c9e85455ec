/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, rails that fail during a call: as move_retry.c does it for host memory. Who has lost a rail ends its copies and
 * says so at the end of the call; the others see that while they wait, and follow. When nothing is under way on any of
 * them, over rails neither, every rank puts its own part of the room back in order (slots, rings, credits), and the call
 * is planned and moved anew without the rails: its send buffers are unchanged, and bytes that come again are the same.
 */
#include "exec/relay_private.h"

#include "exec/move.h"
#include "exec/relay_rail.h"
#include "exec/team_private.h"
#include "util/log.h"

static int waits_for_arrival(const mpath_duty_t *duty)
{
    return (duty->hop_in != MPATH_DUTY_NO_HOP) && (duty->arrived_chunks < duty->num_chunks);
}

static void give_up(mpath_relay_t *relay, const mpath_hop_t *hop, int nic, int seconds)
{
    if (relay->lost == 0) {
        mpath_warn("%s: no device memory has moved from rank %d (%s) to rank %d (%s) by rail %s for %d s; the call "
                   "is repeated over other rails",
                   relay->team->oob.name, hop->from, mpath_team_host(relay->team, hop->from), hop->to,
                   mpath_team_host(relay->team, hop->to), mpath_relay_rails_name(relay, nic), seconds);
    }
    relay->lost |= 1u << nic;
}

mpath_status_t mpath_relay_give_rails_up(mpath_relay_t *relay, int seconds)
{
    const mpath_schedule_t *schedule = relay->bound.schedule;
    int all_moved;

    for (size_t i = 0; i < schedule->num_duties; i++) {
        const mpath_duty_t *duty = &schedule->duties[i];
        int waits                = waits_for_arrival(duty);
        const mpath_hop_t *hop   = waits ? &duty->in : &duty->out;

        if ((duty->done_bytes < duty->bytes) && (waits || (duty->hop_out != MPATH_DUTY_NO_HOP)) &&
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
    mpath_relay_room_t *room = &relay->room;
    mpath_relay_gate_t *gate = &room->gates[room->my_member];

    for (int i = 0; i < MPATH_RELAY_CLASSES; i++) {
        atomic_store(&gate->free[i], (1ull << MPATH_RELAY_MAX_SLOTS) - 1);
    }
    for (int member = 0; member < room->num_members; member++) {
        mpath_relay_ring_t *ring = mpath_relay_ring(room, room->my_member, member);

        ring->tail              = atomic_load(&ring->head);
        relay->expected[member] = atomic_load(&ring->landed_bytes);
    }
    return mpath_relay_rails_restart(relay);
}

mpath_status_t mpath_relay_settle(mpath_relay_t *relay, mpath_status_t status)
{
    relay->lost |= mpath_relay_rails_lost(relay);
    if (!relay->settles || ((status != MPATH_OK) && (status != MPATH_AGAIN) &&
                            ((status != MPATH_ERR_UNREACHABLE) || (relay->lost == 0)))) {
        return status;
    }
    if ((status != MPATH_OK) && (mpath_relay_stop(relay, relay->settings->timeout_s) != MPATH_OK)) {
        return MPATH_ERR_TIMED_OUT; /* it would write to slots of the next attempt */
    }
    status = mpath_move_settle(relay->team, status, relay->lost);
    if (status == MPATH_AGAIN) {
        mpath_status_t restarted = put_in_order(relay);

        status = (restarted == MPATH_OK) ? MPATH_AGAIN : restarted;
    }
    return status;
}
