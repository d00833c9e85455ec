/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting: a short spin, then sched_yield between looks, then sleeps once nothing has happened for so long that a
 * few microseconds more do not matter. They grow with the wait, so that ranks that wait for seconds (for one that computes,
 * for a deadline) leave the processors to others.
 */
#include "exec/idle.h"
#include "util/fiber.h"
#include "util/time.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define IDLE_SPIN_ROUNDS 2000 /* about 50 us */
#define IDLE_SPIN_CROWDED 4
#define IDLE_SLEEP_AFTER_NS (200 * MPATH_NS_PER_MS)
#define IDLE_SLEEP_PART 4000 /* of what has been waited: 50 us in the beginning */
#define IDLE_SLEEP_MOST_NS MPATH_NS_PER_MS
#define IDLE_AWAY_NS (10 * MPATH_NS_PER_MS) /* what a look at a fiber counts at most */

static atomic_uint idle_spin = IDLE_SPIN_ROUNDS;

void mpath_idle_set_load(int processes, int processors)
{
    if (processes > processors) {
        atomic_store_explicit(&idle_spin, IDLE_SPIN_CROWDED, memory_order_relaxed);
    }
}

int mpath_idle_is_crowded(void)
{
    return atomic_load_explicit(&idle_spin, memory_order_relaxed) == IDLE_SPIN_CROWDED;
}

void mpath_idle_start(mpath_idle_t *idle)
{
    idle->last_event_ns = 0;
    idle->rounds        = 0;
    idle->warnings      = 0;
}

void mpath_idle_event(mpath_idle_t *idle)
{
    mpath_idle_start(idle);
    mpath_fiber_breathe();
}

void mpath_idle_give_way(void)
{
    if (mpath_idle_is_crowded() && !mpath_fiber_is_on()) {
        sched_yield();
    }
}

static void idle_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* While the application computes, data may have come that this rank has not looked at: that time is no waiting. */
static uint64_t idle_on_fiber(mpath_idle_t *idle)
{
    uint64_t before_ns = mpath_time_ns(), now_ns, away_ns;

    if (idle->last_event_ns == 0) {
        idle->last_event_ns = before_ns;
    }
    (void)mpath_fiber_rest();
    now_ns  = mpath_time_ns();
    away_ns = now_ns - before_ns;
    if (away_ns > IDLE_AWAY_NS) {
        idle->last_event_ns += away_ns - IDLE_AWAY_NS;
    }
    return now_ns - idle->last_event_ns;
}

uint64_t mpath_idle_wait(mpath_idle_t *idle)
{
    uint64_t now_ns, waited_ns, sleep_ns;

    idle->rounds++;
    if (mpath_fiber_is_on()) {
        return idle_on_fiber(idle);
    }
    if (idle->rounds <= atomic_load_explicit(&idle_spin, memory_order_relaxed)) {
        idle_relax();
        return 0;
    }
    now_ns = mpath_time_ns();
    if (idle->last_event_ns == 0) {
        idle->last_event_ns = now_ns;
    }
    waited_ns = now_ns - idle->last_event_ns;
    if (waited_ns > IDLE_SLEEP_AFTER_NS) {
        sleep_ns = waited_ns / IDLE_SLEEP_PART;
        sleep_ns = (sleep_ns < IDLE_SLEEP_MOST_NS) ? sleep_ns : IDLE_SLEEP_MOST_NS;
        nanosleep(&(struct timespec){.tv_nsec = (long)sleep_ns}, NULL);
    } else {
        sched_yield();
    }
    return waited_ns;
}

mpath_status_t mpath_idle_patience(mpath_idle_t *idle, uint64_t waited_ns, int timeout_s)
{
    uint64_t timeout_ns = (uint64_t)timeout_s * MPATH_NS_PER_S;

    if (waited_ns <= (idle->warnings + 1) * timeout_ns) {
        return MPATH_OK;
    }
    if (!mpath_idle_others_may_rest()) {
        return MPATH_ERR_TIMED_OUT;
    }
    idle->warnings++;
    return MPATH_INPROGRESS;
}

int mpath_idle_others_may_rest(void)
{
    return mpath_fiber_is_on();
}
