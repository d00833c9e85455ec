/* SPDX-License-Identifier: BSD-3-Clause */
/* For unit tests of reductions: a rail that falls silent in the middle of a call. */
#ifndef MPATH_TESTS_UNIT_SILENT_RAIL_H
#define MPATH_TESTS_UNIT_SILENT_RAIL_H

#include "pipeline/pipeline_private.h"

/*
 * As far as the driver knows it has sent everything of a phase, and all that follow. Without the last one its own node
 * goes ahead.
 */
static inline void fall_silent(mpath_share_t *share, int phase)
{
    for (int i = 0; i < share->num_links; i++) {
        share_link_t *link = &share->links[i];

        for (; phase < SHARE_PHASES; phase++) {
            for (int node = 0; node < share->num_nodes; node++) {
                link->next_send[phase][node]  = share->num_segments;
                link->sent_bytes[phase][node] = 0;
            }
        }
    }
}

#endif
