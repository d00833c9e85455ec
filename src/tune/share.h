/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Beside: how much of a call's data goes over a second, slower path while the first one carries the rest, from nothing
 * but how long each took. Calls begin without the second path, which gives the time to beat; then share moves between
 * the two until they end together, and the best one is kept; then both are watched. The second path had better end a
 * little earlier: the first one carries most, so that what the second one is late for is lost whole, and what it is
 * early for in small part only. A path that does not shorten the call is left alone, and tried again seldom.
 *
 * A share that others have found is where calls may begin: it is watched, not moved, and calls without the second path
 * come after the first watch, to see whether it is still worth it. Pure arithmetic, the same on all ranks.
 */
#ifndef MPATH_TUNE_SHARE_H
#define MPATH_TUNE_SHARE_H

#include "tune/start.h"

#define MPATH_BESIDE_WINDOW 3u       /* calls of a median while shares move */
#define MPATH_BESIDE_ROUNDS 10u      /* such windows at most */
#define MPATH_BESIDE_WATCH 9u        /* and afterwards */
#define MPATH_BESIDE_REST 512u       /* calls without the second path before it is tried again */
#define MPATH_BESIDE_REST_KEPT 64u   /* the same where others have found that it is of no use */
#define MPATH_BESIDE_PATIENCE 3u     /* windows that take longer before it is left alone */
#define MPATH_BESIDE_GAIN_PPM 10000u /* by which the call has to be shorter with it */

typedef enum mpath_beside_state {
    MPATH_BESIDE_ALONE, /* measuring without the second path */
    MPATH_BESIDE_MOVES,
    MPATH_BESIDE_KEPT,
    MPATH_BESIDE_OFF
} mpath_beside_state_t;

typedef struct mpath_beside {
    mpath_beside_state_t state;
    uint32_t share;             /* of the second path, in parts of MPATH_TUNE_WHOLE */
    uint32_t best_share;        /* of those tried since moves began */
    uint64_t alone_ns, best_ns; /* medians without the second path, and with the best share */
    unsigned rounds;            /* windows since moves began */
    uint64_t first_ns[MPATH_BESIDE_WATCH], second_ns[MPATH_BESIDE_WATCH];
    unsigned calls;   /* since the state or the share changed */
    unsigned strayed; /* watches in a row in which the paths did not end together */
    unsigned longer;  /* windows in a row that took longer than without the second path, while shares moved */
    int useful;       /* calls have been shorter with it: it may take its time to find its share again */
    int resumed;      /* the share is that of others: without the second path nothing has been measured yet */
    int settled;      /* moves have come to an end since mpath_beside_found() was asked */
    int is_told;      /* there is a result that others know */
    uint32_t told;    /* it: a share, or 0: of no use */
} mpath_beside_t;

/* Rates that the paths may have; calls say more. */
void mpath_beside_init(mpath_beside_t *beside, uint64_t first_bps, uint64_t second_bps);

/*
 * After that: begins with what mpath_beside_found() has told of calls like these. Anything but a share of less than the
 * whole is ignored.
 */
void mpath_beside_resume(mpath_beside_t *beside, uint64_t share);

/* Of the next call, for the second path; in parts of MPATH_TUNE_WHOLE. */
uint32_t mpath_beside_share(const mpath_beside_t *beside);

/*
 * A call with that share has ended: how long each path took, the slowest rank counts. second_ns is 0 where the share
 * is.
 */
void mpath_beside_note(mpath_beside_t *beside, uint64_t first_ns, uint64_t second_ns);

/*
 * Nonzero, once each time: moves have ended with another share than others know. *share_p; 0: none makes calls shorter.
 * That watched calls have become longer is no such end: without the second path they may have, too.
 */
int mpath_beside_found(mpath_beside_t *beside, uint32_t *share_p);

#endif
