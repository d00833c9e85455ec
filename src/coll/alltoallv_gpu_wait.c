/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a call on device memory: a rank waits until its own copies are done and all of its sources have written
 * the number of the call. The words are in host memory, so looking costs nothing and needs no driver; they are written
 * after the bytes have become visible to the whole system. Every wait has a deadline that names who waits for whom.
 */
#include "coll/alltoallv_gpu_private.h"

#include "exec/idle.h"
#include "util/log.h"
#include "util/time.h"

#define WAIT_CHECK_NS (50 * MPATH_NS_PER_MS)
#define WAIT_GIVE_UP_NS (5 * MPATH_NS_PER_S) /* for what is under way when a call has failed */

static int is_done(const mpath_gpu_coll_t *gpu, const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire) >= gpu->number;
}

/* Where the streams cannot write words, the host does. Also looks at the copy to itself. */
static mpath_status_t look_at_marks(mpath_gpu_coll_t *gpu)
{
    mpath_status_t status = MPATH_OK;

    if (gpu->engine_started && gpu->posts && (gpu->engine_mark != 0)) {
        mpath_gpu_coll_lock();
        status = mpath_stream_done(gpu->engine_stream, gpu->engine_mark);
        mpath_gpu_coll_unlock();
        if (status == MPATH_OK) {
            gpu->engine_mark = 0;
            atomic_store_explicit(&gpu->room.words[gpu->me].engine_done, gpu->number, memory_order_release);
        }
    }
    if (!mpath_status_is_error(status) && (gpu->self_started == 1)) {
        mpath_gpu_coll_lock();
        status = mpath_stream_done(gpu->self_stream, gpu->self_mark);
        mpath_gpu_coll_unlock();
        gpu->self_started = (status == MPATH_OK) ? 0 : 1;
    }
    return mpath_status_is_error(status) ? status : MPATH_OK;
}

/* My own copies have left my send buffer. */
static int is_sent(const mpath_gpu_coll_t *gpu)
{
    const mpath_room_words_t *words = &gpu->room.words[gpu->me];

    return (!gpu->kernel_started || is_done(gpu, &words->kernel_done)) &&
           (!gpu->engine_started || is_done(gpu, &words->engine_done)) && (gpu->self_started != 1);
}

/* Whether rank `rank` has yet to write the word that says so: its message is here, or it has read this rank's. */
static int is_missing(const mpath_gpu_coll_t *gpu, int rank)
{
    const mpath_room_words_t *words = &gpu->room.words[rank];
    gpu_way_t way                   = gpu_way(gpu, rank, gpu->me);

    return (((way == WAY_KERNEL) || (gpu_helped_bytes(gpu, rank, gpu->me) > 0)) &&
            !is_done(gpu, &words->kernel_done)) ||
           ((way == WAY_PUSH) && !is_done(gpu, &words->engine_done)) ||
           ((gpu_way(gpu, gpu->me, rank) == WAY_PULL) && !is_done(gpu, &words->engine_done));
}

/* The first rank of which something is missing; -1: none. */
static int first_missing(const mpath_gpu_coll_t *gpu)
{
    int rank = 0;

    while ((rank < gpu->size) && !is_missing(gpu, rank)) {
        rank++;
    }
    return (rank < gpu->size) ? rank : -1;
}

/* Changes whenever anything of what this rank waits for goes on. */
static uint64_t sum_of_words(const mpath_gpu_coll_t *gpu)
{
    uint64_t sum = 0;

    for (int rank = 0; rank < gpu->size; rank++) {
        const mpath_room_words_t *words = &gpu->room.words[rank];

        sum += atomic_load_explicit(&words->kernel_done, memory_order_relaxed) +
               atomic_load_explicit(&words->engine_done, memory_order_relaxed);
    }
    return sum;
}

/* The streams on which this rank may have work; NULL where not. */
static void own_streams(const mpath_gpu_coll_t *gpu, mpath_stream_t **streams)
{
    streams[0] = (gpu->engine_started || gpu->beside.waits) ? gpu->engine_stream : NULL;
    streams[1] = (gpu->self_started == 1) ? gpu->self_stream : NULL;
    streams[2] = NULL;
    if (gpu->kernel_started) {
        (void)mpath_stream_get(gpu->send.gpu, gpu->first_stream + 1, &streams[2]);
    }
}

/* A fault in a kernel or a copy shows on the streams, never in the words. */
static mpath_status_t check_streams(mpath_gpu_coll_t *gpu)
{
    mpath_stream_t *streams[3];
    mpath_status_t status = MPATH_OK;

    own_streams(gpu, streams);
    mpath_gpu_coll_lock();
    for (int i = 0; (i < 3) && !mpath_status_is_error(status); i++) {
        mpath_mark_t mark;

        if (streams[i] != NULL) {
            status = mpath_stream_mark(streams[i], &mark);
            if (status == MPATH_OK) {
                status = mpath_stream_done(streams[i], mark);
            }
        }
    }
    mpath_gpu_coll_unlock();
    return mpath_status_is_error(status) ? status : MPATH_OK;
}

/* Whether this rank's call still depends on something that rank `rank` has yet to do. */
static int needs(const mpath_gpu_coll_t *gpu, int rank)
{
    return is_missing(gpu, rank) || (gpu->staged_started && mpath_staged_needs(gpu->room.staged, rank));
}

static mpath_status_t check_processes(mpath_gpu_coll_t *gpu)
{
    for (int rank = 0; rank < gpu->size; rank++) {
        if ((rank != gpu->me) && needs(gpu, rank) && !mpath_room_is_alive(&gpu->room, gpu->half, rank) &&
            needs(gpu, rank)) { /* it may have done its part and ended between the looks */
            mpath_error("rank %d has ended while rank %d waits for it in call %llu on device memory; the call fails",
                        rank, gpu->me, (unsigned long long)gpu->number);
            return MPATH_ERR_UNREACHABLE;
        }
    }
    return MPATH_OK;
}

/* `verdict`: of mpath_idle_patience(). */
static void name_the_edge(const mpath_gpu_coll_t *gpu, mpath_status_t verdict)
{
    mpath_log_level_t level = (verdict == MPATH_ERR_TIMED_OUT) ? MPATH_LOG_ERROR : MPATH_LOG_WARN;
    const char *next        = (verdict == MPATH_ERR_TIMED_OUT) ? "fails" : "goes on waiting";
    int rank = first_missing(gpu), timeout_s = gpu->settings->timeout_s;
    unsigned long long number = gpu->number;
    uint64_t bytes            = 0;

    if ((rank >= 0) && (gpu_way(gpu, gpu->me, rank) == WAY_PULL)) {
        mpath_log(level,
                  "rank %d waits for rank %d: %llu bytes that it reads by lane peer in call %llu on device memory, "
                  "nothing has moved for %d s; the call %s",
                  gpu->me, rank, (unsigned long long)gpu_bytes(gpu, gpu->me, rank), number, timeout_s, next);
        return;
    }
    if (rank >= 0) {
        mpath_log(level,
                  "rank %d waits for rank %d: %llu bytes by lane peer (%s) in call %llu on device memory, nothing has "
                  "moved for %d s; the call %s",
                  gpu->me, rank, (unsigned long long)gpu_bytes(gpu, rank, gpu->me),
                  (gpu_way(gpu, rank, gpu->me) == WAY_KERNEL) ? "kernel" : "copy engine", number, timeout_s, next);
        return;
    }
    rank = gpu->staged_started ? mpath_staged_waits_for(gpu->room.staged, &bytes) : -1;
    if (rank >= 0) {
        mpath_log(level,
                  "rank %d waits for rank %d: %llu bytes by lane staged in call %llu on device memory, nothing has "
                  "moved for %d s; the call %s",
                  gpu->me, rank, (unsigned long long)bytes, number, timeout_s, next);
        return;
    }
    rank = gpu->staged_started ? mpath_staged_waits_to_send(gpu->room.staged, &bytes) : -1;
    if (rank >= 0) {
        mpath_log(
            level,
            "rank %d waits for rank %d to take what came before by lane staged: %llu bytes are left to be sent in "
            "call %llu on device memory, nothing has moved for %d s; the call %s",
            gpu->me, rank, (unsigned long long)bytes, number, timeout_s, next);
        return;
    }
    mpath_log(level,
              "rank %d waits for its own copies in call %llu on device memory, nothing has moved for %d s; the call "
              "%s",
              gpu->me, number, timeout_s, next);
}

/* After a failure: nothing of this rank may be under way when its caller gets its buffers back. */
static void abandon(mpath_gpu_coll_t *gpu)
{
    mpath_stream_t *streams[3];

    atomic_store_explicit(&gpu->room.words[gpu->me].stop, gpu->number, memory_order_release);
    own_streams(gpu, streams);
    for (int i = 0; i < 3; i++) {
        mpath_mark_t mark;

        if (streams[i] != NULL) {
            mpath_gpu_coll_lock();
            if (mpath_stream_mark(streams[i], &mark) == MPATH_OK) {
                (void)mpath_stream_finish(streams[i], mark, WAIT_GIVE_UP_NS, "copies of a call that failed");
            }
            mpath_gpu_coll_unlock();
        }
    }
    if (gpu->staged_started) {
        mpath_staged_abandon(gpu->room.staged, WAIT_GIVE_UP_NS);
    }
}

/*
 * What follows the data that went through the host, once it is here; whether that is done, on all ranks if they wait
 * for each other.
 */
static mpath_status_t look_beside(mpath_gpu_coll_t *gpu)
{
    gpu_beside_t *beside = &gpu->beside;
    int done             = 1;

    if (!mpath_staged_is_finished(gpu->room.staged)) {
        return MPATH_INPROGRESS;
    }
    if (beside->then != NULL) {
        mpath_status_t status = beside->then(gpu);

        beside->then  = NULL;
        beside->waits = 1;
        if (status != MPATH_OK) {
            return status;
        }
    }
    for (int rank = 0; beside->waits && done && (rank < gpu->size); rank++) {
        done = ((rank != gpu->me) && !beside->to_all) || is_done(gpu, &gpu->room.words[rank].engine_done);
    }
    return done ? MPATH_OK : MPATH_INPROGRESS;
}

static void note_time(const gpu_beside_t *beside, uint64_t *time_ns)
{
    if ((beside->start_ns != 0) && (*time_ns == 0)) {
        *time_ns = mpath_time_ns() - beside->start_ns;
    }
}

/* One look at everything: MPATH_OK when this rank's part is done. */
static mpath_status_t look(mpath_gpu_coll_t *gpu, int *staged_events_p)
{
    mpath_status_t status = look_at_marks(gpu);

    *staged_events_p = 0;
    if ((status == MPATH_OK) && gpu->staged_started && !mpath_staged_is_finished(gpu->room.staged)) {
        int events = mpath_staged_progress(gpu->room.staged);

        if (events < 0) {
            return (mpath_status_t)events;
        }
        *staged_events_p = events;
    }
    if (status != MPATH_OK) {
        return status;
    }
    status = (is_sent(gpu) && (first_missing(gpu) < 0)) ? MPATH_OK : MPATH_INPROGRESS;
    if (status == MPATH_OK) {
        note_time(&gpu->beside, &gpu->beside.first_ns);
    }
    if (gpu->staged_started) {
        mpath_status_t beside = look_beside(gpu);

        if (beside == MPATH_OK) {
            note_time(&gpu->beside, &gpu->beside.second_ns);
        } else {
            status = beside;
        }
    }
    return status;
}

mpath_status_t mpath_gpu_coll_wait(mpath_gpu_coll_t *gpu)
{
    uint64_t sum = sum_of_words(gpu), quiet_since_ns = 0, next_check_ns = WAIT_CHECK_NS;
    mpath_status_t status, verdict;
    mpath_idle_t idle;
    int events;

    mpath_idle_start(&idle);
    while ((status = look(gpu, &events)) == MPATH_INPROGRESS) {
        uint64_t waited_ns, now_sum;

        if (events > 0) {
            mpath_idle_event(&idle);
            next_check_ns  = WAIT_CHECK_NS;
            quiet_since_ns = 0;
            continue;
        }
        waited_ns = mpath_idle_wait(&idle);
        if (waited_ns == 0) {
            continue;
        }
        status = mpath_team_status(gpu->team);
        if ((status == MPATH_OK) && (waited_ns >= next_check_ns)) {
            next_check_ns = waited_ns + WAIT_CHECK_NS;
            now_sum       = sum_of_words(gpu);
            if (now_sum != sum) {
                sum            = now_sum;
                quiet_since_ns = waited_ns;
            }
            status = check_processes(gpu);
            if (status == MPATH_OK) {
                status = check_streams(gpu);
            }
            verdict = mpath_idle_patience(&idle, waited_ns - quiet_since_ns, gpu->settings->timeout_s);
            if ((status == MPATH_OK) && (verdict != MPATH_OK)) {
                name_the_edge(gpu, verdict);
                status = (verdict == MPATH_ERR_TIMED_OUT) ? verdict : status;
            }
        }
        if (status != MPATH_OK) {
            break;
        }
    }
    if (gpu->staged_started) {
        gpu->counters.staged_bytes += mpath_staged_sent_bytes(gpu->room.staged) - gpu->staged_before;
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
        abandon(gpu);
    }
    return status;
}
