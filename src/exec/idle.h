/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a waiting loop does when nothing happened: spin first, then give up the processor between looks, so that ranks
 * that share a core do not starve each other, and keep an eye on the clock without reading it every time. On a fiber
 * (util/fiber.h) it leaves the fiber instead; the time until it is taken up again counts as a moment only.
 */
#ifndef MPATH_EXEC_IDLE_H
#define MPATH_EXEC_IDLE_H

#include "util/status.h"

#include <stdint.h>

typedef struct mpath_idle {
    uint64_t last_event_ns; /* when something last happened; 0: not read from the clock yet */
    uint64_t rounds;        /* looks since then */
    uint64_t warnings;      /* of mpath_idle_patience() since then */
} mpath_idle_t;

/*
 * Says how many processes of this node wait in such loops and how many processors they have together. With fewer
 * processors than processes a wait does not spin, from then on, in the whole process. Thread-safe.
 */
void mpath_idle_set_load(int processes, int processors);

/* Nonzero: these are fewer. */
int mpath_idle_is_crowded(void);

void mpath_idle_start(mpath_idle_t *idle);
/* Something happened. On a fiber, a place where it may be left. */
void mpath_idle_event(mpath_idle_t *idle);
/* Between two rounds of work: lets others run where processors are shared. */
void mpath_idle_give_way(void);
/* Nothing happened: waits a moment. Returns the nanoseconds since the last event (0 while spinning). */
uint64_t mpath_idle_wait(mpath_idle_t *idle);

/*
 * What a wait of `waited_ns` for data that has been agreed on means, with a deadline of timeout_s: MPATH_OK: go on;
 * MPATH_ERR_TIMED_OUT: it has failed; MPATH_INPROGRESS: go on, but say who is waited for. The last only on a fiber: in
 * a non-blocking operation others may compute for as long as they like, so there is no deadline, but a word every
 * timeout_s.
 */
mpath_status_t mpath_idle_patience(mpath_idle_t *idle, uint64_t waited_ns, int timeout_s);
/* Nonzero: silence of the others proves nothing, for they may be computing. */
int mpath_idle_others_may_rest(void);

#endif
