/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When to ask again for what was refused, or to try again what was of no use, where that takes as long as many calls that
 * do without. Memory is asked for again after 64 calls, then after twice as many each time. What was of no use is tried
 * after `first` calls, then after twice as many and `first` more each time, `most` in the end: with an even `first` and
 * `most`, of two kinds of calls that take turns the next try falls to the other one.
 */
#ifndef MPATH_UTIL_PAUSE_H
#define MPATH_UTIL_PAUSE_H

/* For memory, which may be free later: asking takes as long as some tens of calls that do without. */
#define MPATH_PAUSE_FIRST 64u
#define MPATH_PAUSE_MOST 8192u

/* Zeroed: nothing was refused. */
typedef struct mpath_pause {
    unsigned left, length; /* calls that do without: still, and in all; 0: what was asked for last was granted */
} mpath_pause_t;

static inline void mpath_pause_for(mpath_pause_t *pause, unsigned length, unsigned most)
{
    pause->length = length < most ? length : most;
    pause->left   = pause->length;
}

/* It was of no use. */
static inline void mpath_pause_begin(mpath_pause_t *pause, unsigned first, unsigned most)
{
    mpath_pause_for(pause, 2 * pause->length + first, most);
}

static inline void mpath_pause_end(mpath_pause_t *pause)
{
    *pause = (mpath_pause_t){0};
}

/* Memory was asked for. */
static inline void mpath_pause_note(mpath_pause_t *pause, int granted)
{
    if (granted) {
        mpath_pause_end(pause);
    } else {
        mpath_pause_for(pause, pause->length == 0 ? MPATH_PAUSE_FIRST : 2 * pause->length, MPATH_PAUSE_MOST);
    }
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
