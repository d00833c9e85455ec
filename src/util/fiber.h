/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fiber: a function on a stack of its own, which can be left in the middle and taken up again. A body that waits in
 * loops becomes an operation that others progress: the loops call mpath_idle_wait(), which leaves the fiber.
 *
 * A fiber may be resumed by one thread now and by another later, never by two at a time, and not by a fiber. So a body
 * holds no lock, and no thread-local value or current context of a GPU, over a place where it may be left.
 */
#ifndef MPATH_UTIL_FIBER_H
#define MPATH_UTIL_FIBER_H

#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mpath_fiber mpath_fiber_t;

typedef void (*mpath_fiber_body_t)(void *argument);

typedef enum mpath_fiber_state {
    MPATH_FIBER_ENDED, /* the body has returned, or was never started */
    MPATH_FIBER_IDLE,  /* left because nothing happened */
    MPATH_FIBER_BUSY   /* left after its slice of time; there is more to do */
} mpath_fiber_state_t;

/* Reserves a stack of at least `stack_bytes` with a guard page below; only what is used takes memory. */
mpath_status_t mpath_fiber_create(size_t stack_bytes, mpath_fiber_t **fiber_p);
/* NULL is allowed. The body must have ended, or what it holds is lost. */
void mpath_fiber_destroy(mpath_fiber_t *fiber);

/* Makes an ended fiber ready to run a body; it begins with the first mpath_fiber_resume(). */
void mpath_fiber_start(mpath_fiber_t *fiber, mpath_fiber_body_t body, void *argument);
/* Runs the body until it leaves the fiber or returns. */
mpath_fiber_state_t mpath_fiber_resume(mpath_fiber_t *fiber);

/* From now on waits that have no other end give up, see mpath_fiber_is_ending(). */
void mpath_fiber_end_soon(mpath_fiber_t *fiber);

/* -- for code that may run on a fiber -- */

/*
 * Nonzero: the caller runs on a fiber. Then other ranks may leave their part of the work alone for as long as they
 * like.
 */
int mpath_fiber_is_on(void);
/* Nonzero on a fiber that is to end. */
int mpath_fiber_is_ending(void);
/* Leaves the fiber because nothing happened. Nonzero when resumed; 0 at once when the caller is not on a fiber. */
int mpath_fiber_rest(void);
/* On a fiber, leaves it when its slice is over: whoever progresses it has other things to do. */
void mpath_fiber_breathe(void);

#endif
