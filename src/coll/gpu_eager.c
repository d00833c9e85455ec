/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for kernels that are started before the agreement. */
#include "coll/gpu_eager.h"

#include "exec/idle.h"
#include "util/log.h"

#define EAGER_CHECK_NS (50 * MPATH_NS_PER_MS)
#define EAGER_GIVE_UP_NS (5 * MPATH_NS_PER_S) /* for a kernel that is under way when a call has failed */

static int count_started(const mpath_gpu_coll_t *coll)
{
    int count = 0;

    for (int rank = 0; rank < coll->size; rank++) {
        count += gpu_cell(coll, rank)->eager == GPU_EAGER_STARTED;
    }
    return count;
}

int mpath_gpu_eager_all(const mpath_gpu_coll_t *coll)
{
    return count_started(coll) == coll->size;
}

int mpath_gpu_eager_any(const mpath_gpu_coll_t *coll)
{
    return count_started(coll) > 0;
}

static volatile uint64_t *words_of(const gpu_eager_kernel_t *kernel)
{
    return kernel->words.base;
}

/* Whether all CTAs have ended; *good_p: with their results. */
static int has_ended(const gpu_eager_kernel_t *kernel, int *good_p)
{
    volatile uint64_t *words = words_of(kernel);
    int good                 = 1;

    for (unsigned cta = 0; cta < kernel->ctas; cta++) {
        uint64_t word = words[cta];

        if ((word & ~MPATH_EAGER_GAVE_UP) != kernel->number) {
            return 0;
        }
        good = good && (word == kernel->number);
    }
    atomic_thread_fence(memory_order_acquire);
    *good_p = good;
    return 1;
}

/* All others may have sent what this rank's kernel did not wait for. */
static mpath_status_t launch_again(const gpu_eager_kernel_t *kernel)
{
    for (unsigned cta = 0; cta < kernel->ctas; cta++) {
        words_of(kernel)[cta] = 0;
    }
    return kernel->launch_again(kernel->of);
}

/* Whether a rank has yet to end its part; one that has may be gone. */
static int is_missing(const mpath_gpu_coll_t *coll, int rank)
{
    return (rank != coll->me) &&
           (atomic_load_explicit(&coll->room.words[rank].kernel_done, memory_order_acquire) < coll->number);
}

static int first_missing(const mpath_gpu_coll_t *coll)
{
    int rank = 0;

    while ((rank < coll->size) && !is_missing(coll, rank)) {
        rank++;
    }
    return (rank < coll->size) ? rank : -1;
}

static mpath_status_t check_processes(const mpath_gpu_coll_t *coll, const char *what)
{
    for (int rank = 0; rank < coll->size; rank++) {
        if (is_missing(coll, rank) && !mpath_room_is_alive(&coll->room, coll->half, rank) && is_missing(coll, rank)) {
            mpath_error(
                "rank %d has ended while rank %d waits for its %s in call %llu on device memory; the call fails", rank,
                coll->me, what, (unsigned long long)coll->number);
            return MPATH_ERR_UNREACHABLE;
        }
    }
    return MPATH_OK;
}

/* A fault in the kernel shows on the stream, never in the words. */
static mpath_status_t check_stream(const gpu_eager_kernel_t *kernel)
{
    mpath_status_t status;
    mpath_mark_t mark;

    mpath_gpu_coll_lock();
    status = mpath_stream_mark(kernel->stream, &mark);
    if (status == MPATH_OK) {
        status = mpath_stream_done(kernel->stream, mark);
    }
    mpath_gpu_coll_unlock();
    return mpath_status_is_error(status) ? status : MPATH_OK;
}

static mpath_status_t check_patience(const mpath_gpu_coll_t *coll, const char *what, mpath_idle_t *idle,
                                     uint64_t waited_ns)
{
    int timeout_s = coll->settings->timeout_s, rank = first_missing(coll);
    mpath_status_t verdict    = mpath_idle_patience(idle, waited_ns, timeout_s);
    mpath_log_level_t level   = (verdict == MPATH_ERR_TIMED_OUT) ? MPATH_LOG_ERROR : MPATH_LOG_WARN;
    const char *next          = (verdict == MPATH_ERR_TIMED_OUT) ? "fails" : "goes on waiting";
    unsigned long long number = coll->number;

    if (verdict == MPATH_OK) {
        return MPATH_OK;
    }
    if (rank >= 0) {
        mpath_log(level,
                  "rank %d waits for the %s of rank %d in call %llu on device memory, whose GPU has not ended its "
                  "part for %d s; the call %s",
                  coll->me, what, rank, number, timeout_s, next);
    } else {
        mpath_log(level, "rank %d waits for its own GPU in call %llu on device memory, for %d s; the call %s", coll->me,
                  number, timeout_s, next);
    }
    return (verdict == MPATH_ERR_TIMED_OUT) ? verdict : MPATH_OK;
}

/* From time to time while nothing comes. */
static mpath_status_t check(const mpath_gpu_coll_t *coll, const gpu_eager_kernel_t *kernel, int all, mpath_idle_t *idle,
                            uint64_t waited_ns)
{
    mpath_status_t status = all ? check_processes(coll, kernel->what) : MPATH_OK;

    if (status == MPATH_OK) {
        status = check_stream(kernel);
    }
    return (status == MPATH_OK) ? check_patience(coll, kernel->what, idle, waited_ns) : status;
}

mpath_status_t mpath_gpu_eager_await(const mpath_gpu_coll_t *coll, const gpu_eager_kernel_t *kernel, int all)
{
    uint64_t next_check_ns = EAGER_CHECK_NS;
    mpath_status_t status  = MPATH_OK;
    mpath_idle_t idle;
    int good;

    mpath_idle_start(&idle);
    while (status == MPATH_OK) {
        uint64_t waited_ns;

        if (has_ended(kernel, &good)) {
            if (good || !all) {
                return MPATH_OK;
            }
            status = launch_again(kernel);
            continue;
        }
        waited_ns = mpath_idle_wait(&idle);
        if (waited_ns == 0) {
            continue;
        }
        status = all ? mpath_team_status(coll->team) : MPATH_OK;
        if ((status == MPATH_OK) && (waited_ns >= next_check_ns)) {
            next_check_ns = waited_ns + EAGER_CHECK_NS;
            status        = check(coll, kernel, all, &idle, waited_ns);
        }
    }
    return status;
}

void mpath_gpu_eager_abandon(const gpu_eager_kernel_t *kernel)
{
    mpath_mark_t mark;

    mpath_gpu_coll_lock();
    if (mpath_stream_mark(kernel->stream, &mark) == MPATH_OK) {
        (void)mpath_stream_finish(kernel->stream, mark, EAGER_GIVE_UP_NS, "a kernel of a call that failed");
    }
    mpath_gpu_coll_unlock();
}
