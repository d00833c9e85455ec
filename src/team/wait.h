/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How ranks wait for each other, in three parts: a moment in which nothing happened (mpath_idle_...), who looks at a
 * non-blocking operation (team/attend.h), and the loop that all engines share (mpath_wait()).
 *
 * A moment: spin first, then give up the processor between looks, so that ranks that share a core do not starve each
 * other, and keep an eye on the clock without reading it every time. On a fiber (util/fiber.h) it leaves the fiber
 * instead; the time until it is taken up again counts as a moment only.
 */
#ifndef MPATH_TEAM_WAIT_H
#define MPATH_TEAM_WAIT_H

#include "record/page.h"
#include "team/team.h"
#include "util/fiber.h"
#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mpath_idle {
    uint64_t last_event_ns; /* when something last happened; 0: not read from the clock yet */
    uint64_t rounds;        /* looks since then */
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

/* Between two looks of a spin. */
static inline void mpath_idle_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Between two rounds of work: lets others run where processors are shared. */
void mpath_idle_yield(void);

/* Nothing happened: waits a moment. Returns the nanoseconds since the last event (0 while spinning). */
uint64_t mpath_idle_wait(mpath_idle_t *idle);

/* Nonzero: silence of the others proves nothing, for they may be computing. */
static inline int mpath_idle_others_may_rest(void)
{
    return mpath_fiber_is_on();
}

/*
 * The loop itself: looks, spins, yields and sleeps; every 50 ms of silence it asks whether waiting still makes sense,
 * tells the process's page and, from time to time, the log who waits for whom, and fails at the deadline. What is waited for is its engine's.
 */
#define MPATH_WAIT_TEXT 768

/* Why an edge is asked for. */
typedef enum mpath_wait_why {
    MPATH_WAIT_WORD,  /* a word in between, by one of those that wait for the same */
    MPATH_WAIT_FAILS, /* the deadline has passed */
    MPATH_WAIT_PAGE   /* for this rank's page (record/page.h), every 50 ms */
} mpath_wait_why_t;

/* What an engine gives its wait. NULL but `look` and `edge`: it has nothing to say there. An error has been logged. */
typedef struct mpath_wait_ops {
    /*
     * One look at everything: MPATH_OK: it is over; MPATH_INPROGRESS, and whether anything happened; an error. Called
     * without a pointer where the loop is compiled into its engine.
     */
    mpath_status_t (*look)(void *engine, int *events_p);
    /* Now and then while nothing happens: do those live that this rank waits for? May cost system calls. */
    mpath_status_t (*check)(void *engine, uint64_t waited_ns);
    /* A number that changes when something comes which look() does not call an event: what others write here. */
    uint64_t (*landed)(const void *engine);
    /*
     * In a call that its ranks end together: nothing has come for so long that rails which are waited for have failed.
     * Takes them for lost; MPATH_OK: there are none.
     */
    mpath_status_t (*lose_silent)(void *engine, int seconds);
    /*
     * Names the edge: who waits for whom, for what, over what; a sentence that "; nothing came for 5 s, the call fails"
     * completes. *rank_p: who is waited for, a rank of the communicator; not set: this rank itself. 0: there is nobody to name
     * (any more), or another rank does; goes on waiting.
     */
    int (*edge)(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size);
} mpath_wait_ops_t;

typedef struct mpath_wait {
    mpath_idle_t idle;
    /* Of the engine, before the wait begins: */
    mpath_page_slot_t *page; /* where it is told who waits for whom; NULL: nowhere */
    mpath_team_t *team;      /* ends the wait when it is broken; NULL: it does not */
    const mpath_oob_t *oob;  /* whose library gets turns; NULL: of those that the team gives it only */
    uint64_t turn_mask;      /* after looks whose number has these bits set */
    int attends;             /* ranks end the call together: mpath_attend_look(), and silence counts when all look */
    int follows;             /* MPATH_AGAIN when another rank has given the call up, see mpath_team_marked() */
    int loses_after_s;       /* lose_silent() then; 0: never */
    int limit_s;             /* the deadline; 0: none */
    int rest_limit_s;        /* that where the others may compute meanwhile (mpath_idle_others_may_rest()) */
    int word_s;              /* so often it is said who waits for whom */
    /* Of the loop: */
    uint64_t spins; /* looks without a word to the system */
    uint64_t checked_ns, words, landed;
    int is_told; /* on the page */
} mpath_wait_t;

/* For turns after every look, and after every 64th. */
#define MPATH_WAIT_TURN_ALWAYS UINT64_C(0)
#define MPATH_WAIT_TURN_SELDOM UINT64_C(63)

/*
 * A wait for data of a call that has been agreed on, with the team's deadline (timeout_s). In a non-blocking operation
 * others may compute for as long as they like, so there is no deadline but where all ranks look, and a word every
 * timeout_s. `settles`: the ranks end the call together, and it is repeated without rails that fail.
 */
void mpath_wait_prepare(mpath_wait_t *wait, mpath_team_t *team, int settles);

/* A wait begins anew; what was prepared stays. */
void mpath_wait_start(mpath_wait_t *wait);

/* Something happened. */
void mpath_wait_event(mpath_wait_t *wait);

/* Nothing happened, and this is no short wait any more. MPATH_OK to go on. */
mpath_status_t mpath_wait_pause(mpath_wait_t *wait, const mpath_wait_ops_t *ops, void *engine);

/* A moment of a short wait. */
static inline void mpath_wait_spin(mpath_wait_t *wait)
{
    wait->idle.rounds++;
    mpath_idle_relax();
    if ((wait->idle.rounds & wait->turn_mask) == wait->turn_mask && wait->oob != NULL) {
        wait->oob->progress(wait->oob->context);
    }
}

/* Until look() says that it is over, or fails. Inline, so that a short wait has no call by a pointer. */
__attribute__((always_inline)) static inline mpath_status_t mpath_wait(mpath_wait_t *wait, const mpath_wait_ops_t *ops,
                                                                       void *engine)
{
    mpath_status_t status;
    int events = 0;

    while ((status = ops->look(engine, &events)) == MPATH_INPROGRESS) {
        if (events > 0) {
            mpath_wait_event(wait);
        } else if (wait->idle.rounds < wait->spins) {
            mpath_wait_spin(wait);
        } else {
            status = mpath_wait_pause(wait, ops, engine);
            if (status != MPATH_OK) {
                break;
            }
        }
    }
    return status;
}

#endif
