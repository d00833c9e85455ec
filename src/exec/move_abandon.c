/* SPDX-License-Identifier: BSD-3-Clause */
/* The movement when its call is given up: nothing more is fed, and what has ended is dropped. */
#include "exec/move_private.h"

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

static mpath_transfer_t transfer_of(const mpath_mover_t *mover, const parcel_t *parcel)
{
    int sends              = (parcel->state == PARCEL_SENDS_OWN) || (parcel->state == PARCEL_SENDS_ON);
    const mpath_hop_t *hop = sends ? &parcel->duty->out : &parcel->duty->in;

    return (mpath_transfer_t){.status = mpath_fabric_op_status(mover->fabric, parcel->op_nic, &parcel->op),
                              .sends  = sends,
                              .rail   = parcel->op_nic,
                              .nic    = sends ? hop->nic_from : hop->nic_to,
                              .rank   = sends ? hop->to : hop->from,
                              .nic_to = sends ? hop->nic_to : hop->nic_from};
}

void mpath_mover_sweep(mpath_mover_t *mover, mpath_transfer_visit_t visit, void *argument)
{
    parcel_t **at = &mover->under_way;

    while (*at != NULL) {
        parcel_t *parcel = *at;

        if (parcel->op_nic >= 0) {
            mpath_transfer_t transfer = transfer_of(mover, parcel);

            visit(argument, &transfer);
            if (transfer.status == MPATH_INPROGRESS) {
                at = &parcel->next;
                continue;
            }
        }
        *at = parcel->next;
        if (parcel->state == PARCEL_SENDS_ON) {
            mpath_mover_end_arrival(mover, parcel->nic, &parcel->arrival);
        }
        give_slot_back(mover, parcel);
        mpath_mover_drop_parcel(mover, parcel);
    }
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

void mpath_mover_stop(mpath_mover_t *mover)
{
    mpath_inbox_close(mover);
    if (mover->schedule != NULL) {
        drop_queues(mover);
    }
}

void mpath_mover_abandon(mpath_mover_t *mover)
{
    mpath_mover_stop(mover);
    if (mover->schedule != NULL) { /* else the call has ended, and rails were taken back since */
        mpath_transfers_abandon(mover, mover->schedule->rails);
    }
}
