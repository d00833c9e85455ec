/* SPDX-License-Identifier: BSD-3-Clause */
/* The lines of the arena: counters that say how far each rank, or rail, of the node has come, and what may go on then, links included. */
#include "pipeline/pipeline_private.h"

uint64_t mpath_share_least(const mpath_share_t *share, const share_line_t *lines, int count, int *who_p)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < count; i++) {
        uint64_t value = atomic_load_explicit(&lines[i].value, memory_order_acquire) - share->base;

        if (value < least) {
            least = value;
            if (who_p != NULL) {
                *who_p = i;
            }
        }
    }
    return least;
}

void mpath_share_step(const mpath_share_t *share, share_line_t *lines, uint64_t value)
{
    atomic_store_explicit(&lines[share->local_rank].value, share->base + value, memory_order_release);
}

int mpath_share_may_publish(const mpath_share_t *share, uint64_t k)
{
    return (k < share->num_segments) &&
           ((k < SHARE_AHEAD) || (mpath_share_least(share, share->consumed, share->num_local, NULL) > k - SHARE_AHEAD));
}

int mpath_share_is_delivered(const mpath_share_t *share, uint64_t k)
{
    if (share->num_nodes > 1) {
        return mpath_share_least(share, share->delivered, share->num_rails, NULL) > k;
    }
    return mpath_share_least(share, share_has(share, MPATH_SHARE_REDUCE) ? share->reduced : share->published,
                             share->num_local, NULL) > k;
}

uint64_t mpath_share_arrived(const mpath_share_t *share, const share_link_t *link, int phase)
{
    uint64_t least = UINT64_MAX;

    for (int turn = 0; turn < share->num_turns; turn++) {
        if (mpath_share_turn_is_mine(share, turn) && (link->arrived[phase][turn] < least)) {
            least = link->arrived[phase][turn];
        }
    }
    return least;
}

int mpath_share_may_combine(const mpath_share_t *share, const share_link_t *link, uint64_t k)
{
    return (k < share->num_segments) && (mpath_share_arrived(share, link, SHARE_SCATTER) > k) &&
           (mpath_share_least(share, share->reduced, share->num_local, NULL) > k);
}
