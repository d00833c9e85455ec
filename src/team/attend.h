/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention: who looks at a non-blocking operation. Its ranks may compute for as long as they like, so that nothing
 * moves proves nothing by itself. While a rank does look, it counts: a beat for each interval, at most, in which it has
 * looked. The counts of a node lie in its segment, and the leaders tell each other of their node's beats while they
 * wait (MPATH_MESSAGE_PULSE), which costs a message of a few bytes per second and pair of nodes. When all ranks have
 * looked for as long as a deadline while nothing came, it means what it means in a blocking call.
 *
 * Only in calls that the ranks end together (mpath_team_settle()): a message that came later than the end of a call
 * would precede those of the next.
 */
#ifndef MPATH_TEAM_ATTEND_H
#define MPATH_TEAM_ATTEND_H

#include "team/wait.h"

/* State of a team. */
typedef struct mpath_attend {
    uint64_t next_beat_ns;
    int begun;      /* the present wait has lasted a while */
    unsigned *seen; /* by rank: its beats then; reserved */
    /* A leader's: beats of its node's ranks that it has told of, and when; by node, when its pulse came */
    unsigned *told;
    uint64_t led_ns;
    uint64_t *heard_ns;
} mpath_attend_t;

/* For every round of a wait in such a call, which has lasted `waited_ns`; does nothing but on a fiber. */
void mpath_attend_look(mpath_team_t *team, const mpath_idle_t *idle, uint64_t waited_ns);

/* Nonzero: since the present wait began all ranks have looked for `seconds` in all. Always so in a blocking call. */
int mpath_attend_all(const mpath_team_t *team, int seconds);

/* A pulse of another node has come. */
void mpath_attend_pulse(mpath_team_t *team, int node, const char *looked, size_t bytes);

#endif
