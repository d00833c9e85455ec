/* SPDX-License-Identifier: BSD-3-Clause */
/* After an error: makes sure that no lane touches the caller's memory any more, and empties the queues. */
#include "exec/move_private.h"

#include "util/log.h"
#include "util/time.h"

#include <sched.h>

#define ABANDON_QUIET_NS (150 * MPATH_NS_PER_MS) /* nothing came for so long: the others have stopped, too */
#define ABANDON_NS MPATH_NS_PER_S                /* the longest time to wait for that */

/*
 * A ring is read in order: a slot that is never committed would stop it. What is in it is no chunk, which its reader, who
 * may still be in this attempt, sees by its length.
 */
static void give_slot_back(mpath_mover_t *mover, parcel_t *parcel)
{
    if (parcel->slot != NULL) {
        parcel->arrival.chunk.bytes = 0;
        mpath_mover_commit(mover, parcel);
        parcel->slot = NULL;
    }
}

/* Drops what is under way and finished, whatever came of it; returns whether something is left. */
static int sweep_under_way(mpath_mover_t *mover)
{
    parcel_t **at = &mover->under_way;

    while (*at != NULL) {
        parcel_t *parcel = *at;

        if ((parcel->op_nic >= 0) &&
            (mpath_fabric_op_status(mover->fabric, parcel->op_nic, &parcel->op) == MPATH_INPROGRESS)) {
            at = &parcel->next;
            continue;
        }
        *at = parcel->next;
        if (parcel->state == PARCEL_SENDS_ON) {
            mpath_mover_end_arrival(mover, parcel->nic, &parcel->arrival);
        }
        give_slot_back(mover, parcel);
        mpath_mover_drop_parcel(mover, parcel);
    }
    return mover->under_way != NULL;
}

static void drop_queues(mpath_mover_t *mover)
{
    for (size_t i = 0; i < mover->schedule->num_outlets; i++) {
        outlet_queue_t *queue = &mover->queues[i];

        while (queue->first != NULL) {
            parcel_t *parcel = queue->first;

            queue->first = parcel->next;
            if (parcel->nic != ARRIVAL_ENDED) {
                mpath_mover_end_arrival(mover, parcel->nic, &parcel->arrival);
            }
            give_slot_back(mover, parcel);
            mpath_mover_drop_parcel(mover, parcel);
        }
        queue->last_p = &queue->first;
    }
}

/*
 * Reads and drops what the others still send, for they cannot end their sends otherwise, until this rank's own ops have
 * ended and nothing comes any more.
 */
static void drain_rails(mpath_mover_t *mover)
{
    uint64_t start_ns = mpath_time_ns(), event_ns = start_ns, now_ns = start_ns;

    while ((now_ns - start_ns < ABANDON_NS) && (sweep_under_way(mover) || (now_ns - event_ns < ABANDON_QUIET_NS))) {
        int events = 0;

        for (uint32_t rails = mover->schedule->rails; rails != 0; rails &= rails - 1) {
            int result = mpath_fabric_progress(mover->fabric, mover->fabric_nic[__builtin_ctz(rails)]);

            events += (result > 0) ? result : 0;
        }
        sched_yield();
        now_ns   = mpath_time_ns();
        event_ns = (events > 0) ? now_ns : event_ns;
    }
}

/* Ops of which the other end still lives end by themselves; the others are given up together with their connections. */
void mpath_mover_abandon(mpath_mover_t *mover)
{
    uint64_t stuck = 0;

    mpath_inbox_close(mover);
    if (mover->schedule == NULL) {
        return; /* the call has ended, and rails were taken back since: nothing is under way */
    }
    drop_queues(mover);
    drain_rails(mover);
    for (const parcel_t *parcel = mover->under_way; parcel != NULL; parcel = parcel->next) {
        stuck |= UINT64_C(1) << parcel->op_nic;
    }
    for (; stuck != 0; stuck &= stuck - 1) {
        int rail = __builtin_ctzll(stuck);

        mpath_warn("%s: gives up what is under way on rail %s", mover->team->oob.name,
                   mpath_fabric_rail_name(mover->fabric, rail));
        mpath_fabric_abort(mover->fabric, rail);
    }
    while (sweep_under_way(mover)) {
        sched_yield(); /* only while another thread holds the rail's lock */
    }
}
