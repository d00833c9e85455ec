/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting: a short spin, then sched_yield between looks, then sleeps once nothing has happened for so long that a
 * few microseconds more do not matter. They grow with the wait, so that ranks that wait for seconds (for one that computes,
 * for a deadline) leave the processors to others. Where ranks share processors they begin sooner and are longer, as who is
 * waited for may be the one that needs the processor: a yield comes back at once, and is most of what such a wait costs.
 */
#include "team/wait.h"

#include "team/attend.h"
#include "team/team_private.h"
#include "util/fiber.h"
#include "util/time.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define IDLE_SPIN_ROUNDS 2000 /* about 50 us */
#define IDLE_SPIN_CROWDED 4
#define IDLE_SLEEP_AFTER_NS (200 * MPATH_NS_PER_MS)
#define IDLE_SLEEP_PART 4000 /* of what has been waited: 50 us in the beginning */
#define IDLE_SLEEP_CROWDED_NS (20 * MPATH_NS_PER_MS)
#define IDLE_SLEEP_CROWDED_PART 200 /* half a percent: 100 us in the beginning */
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
}

void mpath_idle_event(mpath_idle_t *idle)
{
    mpath_idle_start(idle);
    mpath_fiber_breathe();
}

void mpath_idle_yield(void)
{
    if (mpath_idle_is_crowded() && !mpath_fiber_is_on()) {
        sched_yield();
    }
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

/* How long to sleep after a wait of so long; 0: not yet. */
static uint64_t idle_sleep_ns(uint64_t waited_ns)
{
    int crowded   = mpath_idle_is_crowded();
    uint64_t part = waited_ns / (crowded ? IDLE_SLEEP_CROWDED_PART : IDLE_SLEEP_PART);

    if (waited_ns <= (crowded ? IDLE_SLEEP_CROWDED_NS : IDLE_SLEEP_AFTER_NS)) {
        return 0;
    }
    return part < IDLE_SLEEP_MOST_NS ? part : IDLE_SLEEP_MOST_NS;
}

uint64_t mpath_idle_wait(mpath_idle_t *idle)
{
    uint64_t now_ns, waited_ns, sleep_ns;

    idle->rounds++;
    if (mpath_fiber_is_on()) {
        return idle_on_fiber(idle);
    }
    if (idle->rounds <= atomic_load_explicit(&idle_spin, memory_order_relaxed)) {
        mpath_idle_relax();
        return 0;
    }
    now_ns = mpath_time_ns();
    if (idle->last_event_ns == 0) {
        idle->last_event_ns = now_ns;
    }
    waited_ns = now_ns - idle->last_event_ns;
    sleep_ns  = idle_sleep_ns(waited_ns);
    if (sleep_ns > 0) {
        nanosleep(&(struct timespec){.tv_nsec = (long)sleep_ns}, NULL);
    } else {
        sched_yield();
    }
    return waited_ns;
}

#define WAIT_CHECK_NS (50 * MPATH_NS_PER_MS)

void mpath_wait_prepare(mpath_wait_t *wait, mpath_team_t *team, int settles)
{
    const mpath_settings_t *settings = &team->context->settings;

    *wait = (mpath_wait_t){.page          = team->page,
                           .team          = team,
                           .oob           = &team->oob,
                           .turn_mask     = MPATH_WAIT_TURN_SELDOM,
                           .attends       = settles,
                           .follows       = settles,
                           .loses_after_s = settles ? settings->resend_after_s : 0,
                           .limit_s       = settings->timeout_s,
                           .word_s        = settings->timeout_s};
    if (team->page != NULL) {
        mpath_page_wait_end(team->page); /* of another one */
    }
    mpath_wait_start(wait);
}

void mpath_wait_start(mpath_wait_t *wait)
{
    mpath_idle_start(&wait->idle);
    wait->spins      = mpath_fiber_is_on() ? 0 : atomic_load_explicit(&idle_spin, memory_order_relaxed);
    wait->checked_ns = wait->words = 0;
}

void mpath_wait_event(mpath_wait_t *wait)
{
    mpath_wait_start(wait);
    if (wait->is_told) {
        mpath_page_wait_end(wait->page);
        wait->is_told = 0;
    }
    mpath_fiber_breathe();
}

/* The deadline now, in seconds; 0: none. */
static int wait_limit_s(const mpath_wait_t *wait)
{
    int may_rest = mpath_idle_others_may_rest();

    if (may_rest && (!wait->attends || wait->limit_s == 0 || !mpath_attend_all(wait->team, wait->limit_s))) {
        return wait->rest_limit_s;
    }
    return wait->limit_s;
}

static int wait_exceeds(uint64_t waited_ns, uint64_t seconds)
{
    return seconds > 0 && waited_ns > seconds * MPATH_NS_PER_S;
}

static int wait_say(const mpath_wait_ops_t *ops, const void *engine, int fails, uint64_t waited_ns)
{
    char text[MPATH_WAIT_TEXT];
    int rank = -1;

    if (!ops->edge(engine, fails ? MPATH_WAIT_FAILS : MPATH_WAIT_WORD, &rank, text, sizeof(text))) {
        return 0;
    }
    mpath_log(fails ? MPATH_LOG_ERROR : MPATH_LOG_WARN, "%s; nothing came for %llu s, the call %s", text,
              (unsigned long long)(waited_ns / MPATH_NS_PER_S), fails ? "fails" : "goes on waiting");
    return 1;
}

static void wait_tell_page(mpath_wait_t *wait, const mpath_wait_ops_t *ops, const void *engine, uint64_t waited_ns)
{
    char text[MPATH_WAIT_TEXT];
    int rank = -1;

    if (wait->page != NULL && ops->edge(engine, MPATH_WAIT_PAGE, &rank, text, sizeof(text))) {
        mpath_page_wait_begin(wait->page, rank, waited_ns, text);
        wait->is_told = 1;
    }
}

/* Whether silence has lasted too long, or so long that it is said who is waited for. */
static mpath_status_t wait_check_limit(mpath_wait_t *wait, const mpath_wait_ops_t *ops, const void *engine,
                                       uint64_t waited_ns)
{
    if (wait_exceeds(waited_ns, (uint64_t)wait_limit_s(wait))) {
        return wait_say(ops, engine, 1, waited_ns) ? MPATH_ERR_TIMED_OUT : MPATH_OK;
    }
    if (wait_exceeds(waited_ns, (wait->words + 1) * (uint64_t)wait->word_s)) {
        wait->words++;
        (void)wait_say(ops, engine, 0, waited_ns);
    }
    return MPATH_OK;
}

/* Is this attempt given up? */
static mpath_status_t wait_check_rails(const mpath_wait_t *wait, const mpath_wait_ops_t *ops, void *engine,
                                       uint64_t waited_ns)
{
    if (wait->follows && mpath_team_marked(wait->team)) {
        return MPATH_AGAIN;
    }
    return wait_exceeds(waited_ns, (uint64_t)wait->loses_after_s) && mpath_attend_all(wait->team, wait->loses_after_s)
               ? ops->lose_silent(engine, wait->loses_after_s)
               : MPATH_OK;
}

static mpath_status_t wait_check(mpath_wait_t *wait, const mpath_wait_ops_t *ops, void *engine, uint64_t waited_ns)
{
    mpath_status_t status = ops->check != NULL ? ops->check(engine, waited_ns) : MPATH_OK;
    uint64_t landed       = ops->landed != NULL ? ops->landed(engine) : wait->landed;

    if (status == MPATH_OK) {
        status = wait_check_rails(wait, ops, engine, waited_ns);
    }
    if (status == MPATH_OK && landed != wait->landed) {
        wait->landed = landed;
        mpath_wait_event(wait);
        return MPATH_OK;
    }
    if (status == MPATH_OK) {
        wait_tell_page(wait, ops, engine, waited_ns);
        status = wait_check_limit(wait, ops, engine, waited_ns);
    }
    return status;
}

mpath_status_t mpath_wait_pause(mpath_wait_t *wait, const mpath_wait_ops_t *ops, void *engine)
{
    uint64_t waited_ns    = mpath_idle_wait(&wait->idle);
    mpath_status_t status = MPATH_OK;

    if ((wait->idle.rounds & wait->turn_mask) == wait->turn_mask && wait->oob != NULL) {
        wait->oob->progress(wait->oob->context);
    }
    if (wait->attends) {
        mpath_attend_look(wait->team, &wait->idle, waited_ns);
    }
    if (waited_ns == 0) {
        return MPATH_OK;
    }
    if (wait->team != NULL) {
        status = mpath_team_status(wait->team);
    }
    if (status != MPATH_OK || waited_ns < wait->checked_ns + WAIT_CHECK_NS) {
        return status;
    }
    wait->checked_ns = waited_ns;
    return wait_check(wait, ops, engine, waited_ns);
}
