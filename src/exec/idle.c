/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting: a short spin, then sched_yield between looks, then short sleeps once nothing has happened for so long that a
 * few microseconds more do not matter.
 */
#include "exec/idle.h"
#include "util/time.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define IDLE_SPIN_ROUNDS 2000 /* about 50 us */
#define IDLE_SPIN_CROWDED 4
#define IDLE_SLEEP_AFTER_NS (200 * MPATH_NS_PER_MS)
#define IDLE_SLEEP_NS 50000

static atomic_uint idle_spin = IDLE_SPIN_ROUNDS;

void mpath_idle_set_load(int processes, int processors)
{
    if (processes > processors) {
        atomic_store_explicit(&idle_spin, IDLE_SPIN_CROWDED, memory_order_relaxed);
    }
}

void mpath_idle_start(mpath_idle_t *idle)
{
    idle->last_event_ns = 0;
    idle->rounds        = 0;
}

void mpath_idle_event(mpath_idle_t *idle)
{
    mpath_idle_start(idle);
}

void mpath_idle_give_way(void)
{
    if (atomic_load_explicit(&idle_spin, memory_order_relaxed) == IDLE_SPIN_CROWDED) {
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

uint64_t mpath_idle_wait(mpath_idle_t *idle)
{
    const struct timespec moment = {.tv_nsec = IDLE_SLEEP_NS};
    uint64_t now_ns;

    idle->rounds++;
    if (idle->rounds <= atomic_load_explicit(&idle_spin, memory_order_relaxed)) {
        idle_relax();
        return 0;
    }
    now_ns = mpath_time_ns();
    if (idle->last_event_ns == 0) {
        idle->last_event_ns = now_ns;
    }
    if (now_ns - idle->last_event_ns > IDLE_SLEEP_AFTER_NS) {
        nanosleep(&moment, NULL);
    } else {
        sched_yield();
    }
    return now_ns - idle->last_event_ns;
}
