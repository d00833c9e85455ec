/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When to ask again for what was refused, memory mostly, which may be free later, where to ask takes as long as some tens
 * of calls that do without: after 64 of these, then after twice as many each time, up to 8192.
 */
#ifndef MPATH_UTIL_PAUSE_H
#define MPATH_UTIL_PAUSE_H

#define MPATH_PAUSE_FIRST 64u
#define MPATH_PAUSE_MOST 8192u

/* Zeroed: nothing was refused. */
typedef struct mpath_pause {
    unsigned left, length; /* calls that do without: still, and in all; 0: what was asked for last was granted */
} mpath_pause_t;

/* It was asked for. */
static inline void mpath_pause_note(mpath_pause_t *pause, int granted)
{
    unsigned length = (pause->length == 0) ? MPATH_PAUSE_FIRST : 2 * pause->length;

    pause->length = granted ? 0 : (length > MPATH_PAUSE_MOST) ? MPATH_PAUSE_MOST : length;
    pause->left   = pause->length;
}

/* Whether it was refused, and is to be asked for again now. */
static inline int mpath_pause_is_over(const mpath_pause_t *pause)
{
    return (pause->length > 0) && (pause->left == 0);
}

/* Counts a call; whether it is one of those that do without. */
static inline int mpath_pause_passes(mpath_pause_t *pause)
{
    int passes = pause->left > 0;

    pause->left -= passes ? 1 : 0;
    return passes;
}

#endif
