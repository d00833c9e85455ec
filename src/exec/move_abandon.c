/* SPDX-License-Identifier: BSD-3-Clause */
/* After an error: makes sure that no lane touches the caller's memory any more, and empties the queues. */
#include "exec/move_private.h"

#include "util/log.h"
#include "util/time.h"

#include <sched.h>

#define ABANDON_NS (300 * MPATH_NS_PER_MS) /* for ops to end by themselves */

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
            mpath_mover_drop_parcel(mover, parcel);
        }
        queue->last_p = &queue->first;
    }
}

/* Ops that only wait for a living peer end soon; those that do not end are given up together with the rail. */
void mpath_mover_abandon(mpath_mover_t *mover)
{
    uint64_t until = mpath_time_ns() + ABANDON_NS;
    uint32_t stuck = 0;

    mpath_inbox_close(mover);
    drop_queues(mover);
    while (sweep_under_way(mover) && (mpath_time_ns() < until)) {
        for (const parcel_t *parcel = mover->under_way; parcel != NULL; parcel = parcel->next) {
            (void)mpath_fabric_progress(mover->fabric, parcel->op_nic);
        }
        sched_yield();
    }
    for (const parcel_t *parcel = mover->under_way; parcel != NULL; parcel = parcel->next) {
        stuck |= 1u << parcel->op_nic;
    }
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        if ((stuck >> nic) & 1) {
            mpath_warn("%s: gives up what is under way on rail %s", mover->team->oob.name,
                       mover->team->context->machine.nics[nic].name);
            mpath_fabric_abort(mover->fabric, nic);
        }
    }
    while (sweep_under_way(mover)) {
        sched_yield(); /* only while another thread holds the rail's lock */
    }
}
