/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduces of short vectors (gpu/reduce_eager.h). A rank starts its kernel before the agreement, which passes while
 * the GPU gets to work; each kernel sends its vector to all and waits for theirs. The agreement still decides: only if
 * every rank says that it has started its kernel is the call done this way. If not, no vector is complete anywhere and
 * no kernel has written a result; each gives up soon by itself, and the call goes on as if nothing had been tried.
 *
 * A kernel that has given up while a rank was late is launched again, to wait only, once all have started theirs. So
 * nothing waits on a GPU for longer than EAGER_PATIENCE_NS, and streams that communicators share cannot lock each
 * other.
 */
#include "coll/allreduce_gpu_private.h"

#include "exec/idle.h"
#include "gpu/usage.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/* Where it was the faster way: up to so many bytes of a vector, and of what a rank sends. */
#define EAGER_MAX_BYTES (UINT64_C(256) << 10)
#define EAGER_MAX_SENT_BYTES (UINT64_C(768) << 10)

#define EAGER_PATIENCE_NS (2 * MPATH_NS_PER_MS)
#define EAGER_CHECK_NS (50 * MPATH_NS_PER_MS)
#define EAGER_GIVE_UP_NS (5 * MPATH_NS_PER_S) /* for a kernel that is under way when a call has failed */

struct gpu_eager {
    gpu_lent_t *lent;     /* NULL until a call was short enough */
    mpath_pinned_t words; /* of the CTAs */
    uint64_t number;      /* of calls that could have gone this way, the same on all ranks */
    uint64_t counted;     /* the number that the kernels' counters have */
    /* the call under way */
    mpath_reduce_how_t how;
    int known, fits;              /* of `how` */
    mpath_cu_function_t function; /* the same; NULL: not looked for */
    mpath_stream_t *stream;
    mpath_kernel_eager_t arguments;
    unsigned ctas;
    int wanted; /* its vector is short enough */
    int started;
};

gpu_eager_t *mpath_gpu_eager_create(void)
{
    return calloc(1, sizeof(gpu_eager_t));
}

void mpath_gpu_eager_destroy(gpu_eager_t *eager)
{
    if (eager != NULL) {
        mpath_gpu_lent_destroy(eager->lent);
        mpath_pinned_release(&eager->words);
        free(eager);
    }
}

/* The longest vector, as far as this rank has memory. */
static uint64_t max_bytes(const mpath_symmetric_gpu_t *gpu)
{
    uint64_t size = (uint64_t)gpu->size, most = EAGER_MAX_SENT_BYTES / (size - 1);
    uint64_t room = (gpu->reduce->settings->gpu_memory_bytes - MPATH_EAGER_COUNTERS_BYTES) / (4 * size);

    most = (most < EAGER_MAX_BYTES) ? most : EAGER_MAX_BYTES;
    return ((most < room) ? most : room) & ~UINT64_C(15);
}

static void look_at_how(gpu_eager_t *eager, const mpath_reduce_how_t *how)
{
    if (!eager->known || (eager->how.op != how->op) || (eager->how.type != how->type)) {
        eager->known    = 1;
        eager->how      = *how;
        eager->fits     = mpath_eager_fits(how);
        eager->function = NULL;
    }
}

/* -- one kernel -- */

static volatile uint64_t *words_of(const gpu_eager_t *eager)
{
    return eager->words.base;
}

/* Whether all CTAs have ended; *good_p: with their results. */
static int has_ended(const gpu_eager_t *eager, int *good_p)
{
    volatile uint64_t *words = words_of(eager);
    int good                 = 1;

    for (unsigned cta = 0; cta < eager->ctas; cta++) {
        uint64_t word = words[cta];

        if ((word & ~MPATH_EAGER_GAVE_UP) != eager->number) {
            return 0;
        }
        good = good && (word == eager->number);
    }
    atomic_thread_fence(memory_order_acquire);
    *good_p = good;
    return 1;
}

static mpath_status_t launch(mpath_symmetric_gpu_t *gpu)
{
    gpu_eager_t *eager = gpu->eager;
    mpath_status_t status;

    mpath_gpu_coll_lock();
    if (eager->arguments.again) {
        eager->arguments.number = eager->number;
        status = mpath_launch_eager(eager->stream, eager->function, eager->how.type, &eager->arguments);
    } else {
        status = mpath_gpu_launches_start_eager(gpu->launches, eager->stream, eager->function, eager->how.type,
                                                &eager->arguments, eager->number, eager->counted + 1 == eager->number);
    }
    mpath_gpu_coll_unlock();
    eager->counted = eager->number;
    return status;
}

/* All others may have sent what this rank's kernel did not wait for. */
static mpath_status_t launch_again(mpath_symmetric_gpu_t *gpu)
{
    gpu_eager_t *eager = gpu->eager;

    for (unsigned cta = 0; cta < eager->ctas; cta++) {
        words_of(eager)[cta] = 0;
    }
    eager->arguments.again = 1;
    return launch(gpu);
}

/* This rank's kernel, on the GPU of the memory that it lends. */
static mpath_status_t start(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers, uint64_t elements)
{
    gpu_eager_t *eager    = gpu->eager;
    mpath_gpu_t *device   = eager->lent->device;
    mpath_status_t status = MPATH_OK;

    if (eager->function == NULL) {
        status = mpath_eager_find(device, &eager->how, &eager->function);
    }
    if (status == MPATH_OK) {
        status = mpath_stream_get(device, gpu->reduce->first_stream + 1, &eager->stream);
    }
    if (status != MPATH_OK) {
        return status;
    }
    memset(&eager->arguments, 0, sizeof(eager->arguments)); /* they are compared as bytes */
    eager->arguments.elements    = elements;
    eager->arguments.send        = (mpath_cu_ptr_t)(uintptr_t)buffers->send;
    eager->arguments.recv        = (mpath_cu_ptr_t)(uintptr_t)buffers->recv;
    eager->arguments.words       = mpath_pinned_device(&eager->words, eager->words.base);
    eager->arguments.patience_ns = EAGER_PATIENCE_NS;
    eager->arguments.slot_bytes  = eager->lent->unit_bytes;
    eager->arguments.ranks       = (uint32_t)gpu->size;
    eager->arguments.me          = (uint32_t)gpu->me;
    for (int rank = 0; rank < gpu->size; rank++) {
        eager->arguments.memory[rank] = mpath_gpu_lent_address(eager->lent, rank);
    }
    eager->ctas    = mpath_eager_ctas(elements * mpath_reduce_bytes(eager->how.type));
    eager->started = 1;
    return launch(gpu);
}

mpath_status_t mpath_gpu_eager_start(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                     uint64_t elements, const mpath_reduce_how_t *how, int eligible)
{
    int way               = gpu->reduce->settings->gpu_reduce;
    gpu_eager_t *eager    = gpu->eager;
    uint64_t bytes        = elements * mpath_reduce_bytes(how->type);
    mpath_status_t status = MPATH_OK;
    mpath_gpu_t *device;
    int usable;

    look_at_how(eager, how);
    usable        = (eager->lent != NULL) && eager->lent->usable;
    eager->wanted = eager->fits &&
                    (usable ? (MPATH_EAGER_SLOT_BYTES(bytes) <= eager->lent->unit_bytes) : (bytes <= max_bytes(gpu)));
    eager->started = 0;
    eager->number += (usable && eager->wanted) ? 1 : 0;
    gpu->reduce->eager = eligible && eager->wanted && (way == MPATH_GPU_REDUCE_AUTO);
    if (gpu->reduce->eager && usable &&
        (mpath_gpu_get(buffers->send_memory->device, buffers->send_memory->context, &device) == MPATH_OK) &&
        (device == eager->lent->device)) {
        gpu->reduce->eager = 2;
        status             = start(gpu, buffers, elements);
    }
    if (status != MPATH_OK) {
        mpath_team_break(gpu->team, status);
    }
    return status;
}

/* -- waiting -- */

static int first_missing(const mpath_symmetric_gpu_t *gpu)
{
    const mpath_gpu_coll_t *coll = gpu->reduce;
    int rank                     = 0;

    while ((rank < gpu->size) && ((rank == gpu->me) || (atomic_load_explicit(&coll->room.words[rank].kernel_done,
                                                                             memory_order_acquire) >= coll->number))) {
        rank++;
    }
    return (rank < gpu->size) ? rank : -1;
}

static mpath_status_t check_processes(const mpath_symmetric_gpu_t *gpu)
{
    const mpath_gpu_coll_t *coll = gpu->reduce;

    for (int rank = 0; rank < gpu->size; rank++) {
        if ((rank != gpu->me) && !mpath_room_is_alive(&coll->room, coll->half, rank)) {
            mpath_error("rank %d has ended while rank %d waits for its vector in call %llu on device memory; the call "
                        "fails",
                        rank, gpu->me, (unsigned long long)coll->number);
            return MPATH_ERR_UNREACHABLE;
        }
    }
    return MPATH_OK;
}

/* A fault in the kernel shows on the stream, never in the words. */
static mpath_status_t check_stream(const gpu_eager_t *eager)
{
    mpath_status_t status;
    mpath_mark_t mark;

    mpath_gpu_coll_lock();
    status = mpath_stream_mark(eager->stream, &mark);
    if (status == MPATH_OK) {
        status = mpath_stream_done(eager->stream, mark);
    }
    mpath_gpu_coll_unlock();
    return mpath_status_is_error(status) ? status : MPATH_OK;
}

static mpath_status_t check_patience(const mpath_symmetric_gpu_t *gpu, mpath_idle_t *idle, uint64_t waited_ns)
{
    int timeout_s = gpu->reduce->settings->timeout_s, rank = first_missing(gpu);
    mpath_status_t verdict    = mpath_idle_patience(idle, waited_ns, timeout_s);
    mpath_log_level_t level   = (verdict == MPATH_ERR_TIMED_OUT) ? MPATH_LOG_ERROR : MPATH_LOG_WARN;
    const char *next          = (verdict == MPATH_ERR_TIMED_OUT) ? "fails" : "goes on waiting";
    unsigned long long number = gpu->reduce->number;

    if (verdict == MPATH_OK) {
        return MPATH_OK;
    }
    if (rank >= 0) {
        mpath_log(level,
                  "rank %d waits for the vector of rank %d in call %llu on device memory, whose GPU has not ended its "
                  "part for %d s; the call %s",
                  gpu->me, rank, number, timeout_s, next);
    } else {
        mpath_log(level, "rank %d waits for its own GPU in call %llu on device memory, for %d s; the call %s", gpu->me,
                  number, timeout_s, next);
    }
    return (verdict == MPATH_ERR_TIMED_OUT) ? verdict : MPATH_OK;
}

/* Until the kernel has ended; `all`: with its results, for which all ranks have started theirs. */
static mpath_status_t await(mpath_symmetric_gpu_t *gpu, int all)
{
    gpu_eager_t *eager     = gpu->eager;
    uint64_t next_check_ns = EAGER_CHECK_NS;
    mpath_status_t status  = MPATH_OK;
    mpath_idle_t idle;
    int good;

    mpath_idle_start(&idle);
    while (status == MPATH_OK) {
        uint64_t waited_ns;

        if (has_ended(eager, &good)) {
            if (good || !all) {
                return MPATH_OK;
            }
            status = launch_again(gpu);
            continue;
        }
        waited_ns = mpath_idle_wait(&idle);
        if (waited_ns == 0) {
            continue;
        }
        status = all ? mpath_team_status(gpu->team) : MPATH_OK;
        if ((status == MPATH_OK) && (waited_ns >= next_check_ns)) {
            next_check_ns = waited_ns + EAGER_CHECK_NS;
            status        = all ? check_processes(gpu) : MPATH_OK;
            if (status == MPATH_OK) {
                status = check_stream(eager);
            }
            if (status == MPATH_OK) {
                status = check_patience(gpu, &idle, waited_ns);
            }
        }
    }
    return status;
}

/* The call has failed: no kernel of this rank may be under way when its caller gets its buffers back. */
static void abandon(const gpu_eager_t *eager)
{
    mpath_mark_t mark;

    mpath_gpu_coll_lock();
    if (mpath_stream_mark(eager->stream, &mark) == MPATH_OK) {
        (void)mpath_stream_finish(eager->stream, mark, EAGER_GIVE_UP_NS, "a reduction of a call that failed");
    }
    mpath_gpu_coll_unlock();
}

static int all_started(const mpath_gpu_coll_t *coll)
{
    for (int rank = 0; rank < coll->size; rank++) {
        if (gpu_cell(coll, rank)->eager != 2) {
            return 0;
        }
    }
    return 1;
}

mpath_status_t mpath_gpu_eager_finish(mpath_symmetric_gpu_t *gpu, mpath_status_t agreed, int *done_p)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    gpu_eager_t *eager     = gpu->eager;
    uint64_t start_ns      = mpath_time_ns();
    mpath_status_t status  = agreed;

    *done_p = (agreed == MPATH_OK) && eager->started && all_started(coll);
    if (!eager->started) {
        return agreed;
    }
    if (!mpath_status_is_error(agreed)) {
        status = await(gpu, *done_p);
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
        abandon(eager);
        return status;
    }
    if (*done_p) {
        atomic_store_explicit(&coll->room.words[gpu->me].kernel_done, coll->number, memory_order_release);
        coll->counters.calls++;
        coll->counters.kernel_bytes += eager->arguments.elements * mpath_reduce_bytes(eager->how.type);
        gpu->counters.calls++;
        gpu->counters.move_ns += mpath_time_ns() - start_ns;
    }
    return agreed;
}

/* -- what it needs -- */

mpath_status_t mpath_gpu_eager_prepare(mpath_symmetric_gpu_t *gpu)
{
    const mpath_gpu_coll_t *coll = gpu->reduce;
    gpu_eager_t *eager           = gpu->eager;
    mpath_status_t status;
    uint64_t unit;

    for (int rank = 0; rank < gpu->size; rank++) {
        if (gpu_cell(coll, rank)->eager == 0) {
            return MPATH_OK;
        }
    }
    if (eager->lent == NULL) {
        eager->lent = mpath_gpu_lent_create(gpu->size, gpu->me);
        if (eager->lent == NULL) {
            mpath_error("no memory for reductions of %d ranks on device memory; the call fails", gpu->size);
            return MPATH_ERR_NO_MEMORY; /* the others count on it */
        }
    }
    if (mpath_gpu_lent_is_current(eager->lent, coll)) {
        return MPATH_OK;
    }
    eager->number = eager->counted = 0;
    eager->function                = NULL;
    unit                           = MPATH_EAGER_SLOT_BYTES(max_bytes(gpu));
    if ((eager->words.base == NULL) &&
        (mpath_pinned_alloc(coll->send.gpu, MPATH_EAGER_CTAS * sizeof(uint64_t), &eager->words) != MPATH_OK)) {
        unit = 0;
    }
    status = mpath_gpu_lent_share(eager->lent, coll, unit, MPATH_EAGER_MEMORY_BYTES((uint64_t)gpu->size, unit));
    if ((status == MPATH_OK) && eager->lent->usable) {
        mpath_debug("device memory of %d ranks can be reduced eagerly, up to %llu bytes", gpu->size,
                    (unsigned long long)eager->lent->unit_bytes / 2);
    }
    return status;
}
