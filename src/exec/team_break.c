/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Breaking a team. The reason stands in the header of the node's segment, where node mates see it whenever they wait,
 * and goes to the other nodes as a notice from the leader and from the deputy of the node that broke it, as soon as
 * each of them learns of it: in the call it is in, or in its next one.
 *
 * The word in the header: bits 0-7 the status, negated; bit 8 set when the other nodes know already; from bit 9 on the
 * rank that broke the team.
 */
#include "exec/channel.h"
#include "exec/team_private.h"
#include "util/log.h"
#include "util/time.h"

#define BREAK_KNOWN (1u << 8)
#define BREAK_RANK_SHIFT 9

#define LOOK_INTERVAL_NS (2 * MPATH_NS_PER_MS)

static unsigned break_word(mpath_status_t reason, int origin, unsigned known)
{
    return (unsigned)-reason | known | (unsigned)origin << BREAK_RANK_SHIFT;
}

/* Takes over what stands in the header. */
static void break_adopt(mpath_team_t *team)
{
    unsigned word = atomic_load_explicit(&team->header->broken, memory_order_acquire);

    team->broken = (mpath_status_t) - (int)(word & 0xff);
    if (!(word & BREAK_KNOWN)) {
        mpath_channels_notify(team, team->broken, (int)(word >> BREAK_RANK_SHIFT));
    }
    /* Others may be sending already what this rank, if it has not come to moving, will never look at. */
    if (team->mover != NULL) {
        mpath_inbox_close(team->mover);
    }
    if (team->wire != NULL) {
        mpath_wire_stop(team->wire);
    }
}

void mpath_team_break(mpath_team_t *team, mpath_status_t reason)
{
    unsigned expected = 0;

    if (team->broken != MPATH_OK) {
        return;
    }
    reason = mpath_status_is_error(reason) ? reason : MPATH_ERR_INTERNAL;
    if (atomic_compare_exchange_strong(&team->header->broken, &expected, break_word(reason, team->rank, 0))) {
        mpath_info("%s: rank %d gives up (%s): every later call of mpath on the communicator fails, on all ranks",
                   team->oob.name, team->rank, mpath_status_string(reason)); /* the caller has logged why */
    }
    break_adopt(team);
}

void mpath_team_break_by_notice(mpath_team_t *team, mpath_status_t reason, int origin)
{
    unsigned expected = 0;

    if (team->broken != MPATH_OK) {
        return;
    }
    reason = mpath_status_is_error(reason) ? reason : MPATH_ERR_INTERNAL;
    if (atomic_compare_exchange_strong(&team->header->broken, &expected, break_word(reason, origin, BREAK_KNOWN))) {
        mpath_info("%s: rank %d has given up (%s)", team->oob.name, origin, mpath_status_string(reason));
    }
    break_adopt(team);
}

mpath_status_t mpath_team_status(mpath_team_t *team)
{
    uint64_t now_ns;

    if (team->broken != MPATH_OK) {
        return team->broken;
    }
    if (atomic_load_explicit(&team->header->broken, memory_order_relaxed) != 0) {
        break_adopt(team);
        return team->broken;
    }
    if (team->channels != NULL) {
        now_ns = mpath_time_ns();
        if (now_ns >= team->next_look_ns) {
            team->next_look_ns = now_ns + LOOK_INTERVAL_NS;
            team->oob.progress(team->oob.context);
            (void)mpath_channels_test(team); /* notices break the team; other messages wait for the next call */
        }
    }
    return team->broken;
}
