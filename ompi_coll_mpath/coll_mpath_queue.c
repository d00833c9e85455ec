/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queues of operations, one per communicator, and what Open MPI's progress engine calls. One thread at a time runs
 * fibers; the lock guards lists and states only, and is never held while an operation runs or a request completes.
 */
#include "coll_mpath_request.h"

#include "opal/runtime/opal_progress.h"

#include "team/wait.h"
#include "util/time.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* An operation may open rails: UCX and the CUDA driver are generous with stack. Only what is used takes memory. */
#define QUEUE_STACK_BYTES (1024u * 1024u)

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static mca_coll_mpath_module_t *queue_modules; /* that have operations which wait or run */
static mca_coll_mpath_request_t *queue_left;   /* operations that the previous component carries */
static atomic_int queue_active;                /* operations in those lists */
static atomic_flag queue_runner = ATOMIC_FLAG_INIT;
static bool queue_registered;

/* -- the end of an operation -- */

static int queue_mpi_error(int rc)
{
    if (0 <= rc) {
        return rc;
    }
    return (OMPI_ERR_OUT_OF_RESOURCE == rc) ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
}

/* Afterwards the request may be gone, and with it the module. */
static void queue_complete(mca_coll_mpath_request_t *request, int rc)
{
    bool release;

    request->super.req_status.MPI_ERROR = queue_mpi_error(rc);
    pthread_mutex_lock(&queue_lock);
    request->state = COLL_MPATH_COMPLETING;
    pthread_mutex_unlock(&queue_lock);
    atomic_fetch_sub(&queue_active, 1);
    (void)ompi_request_complete(&request->super, true);
    pthread_mutex_lock(&queue_lock);
    if (COLL_MPATH_COMPLETING == request->state) { /* else it has been started again already */
        request->state = COLL_MPATH_INACTIVE;
    }
    release = request->freed && (COLL_MPATH_INACTIVE == request->state);
    pthread_mutex_unlock(&queue_lock);
    if (release) {
        mca_coll_mpath_request_release(request);
    }
}

/* The previous request is under way. */
static void queue_put_left(mca_coll_mpath_request_t *request)
{
    pthread_mutex_lock(&queue_lock);
    request->state = COLL_MPATH_LEFT;
    request->next  = queue_left;
    queue_left     = request;
    pthread_mutex_unlock(&queue_lock);
}

/* mpath has declined, or was not to be asked. */
static void queue_leave(mca_coll_mpath_request_t *request)
{
    int rc = mca_coll_mpath_request_leave(request);

    if (OMPI_SUCCESS != rc) {
        queue_complete(request, rc);
        return;
    }
    queue_put_left(request);
}

/* -- running -- */

static void queue_body(void *argument)
{
    mca_coll_mpath_request_t *request = argument;

    request->rc = request->ops->run(&request->arguments, request->module);
}

/* Under the lock. */
static void queue_unlink_module(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_module_t **link = &queue_modules;

    while (module != *link) {
        link = &(*link)->queue_next;
    }
    *link = module->queue_next;
}

/* Takes the first request of a queue out. */
static void queue_pop(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_request_t *next;

    pthread_mutex_lock(&queue_lock);
    next = module->queue_first->next;
    if (NULL == next) {
        module->queue_last = NULL;
        queue_unlink_module(module);
    }
    __atomic_store_n(&module->queue_first, next, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&queue_lock);
}

/* Goes on with the first operation of a communicator. Nonzero when something happened. */
static int queue_step(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_request_t *request = __atomic_load_n(&module->queue_first, __ATOMIC_ACQUIRE);
    mpath_fiber_state_t state;

    if (!module->queue_running) {
        mpath_fiber_start(module->fiber, queue_body, request);
        module->queue_running = true;
    }
    mca_coll_mpath_pvars_slice();
    state = mpath_fiber_resume(module->fiber);
    if (MPATH_FIBER_ENDED != state) {
        return MPATH_FIBER_BUSY == state;
    }
    module->queue_running = false;
    queue_pop(module);
    if (COLL_MPATH_LEAVE == request->rc) {
        queue_leave(request);
    } else {
        queue_complete(request, request->rc);
    }
    return 1;
}

static mca_coll_mpath_module_t *queue_next_module(const mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_module_t *next;

    pthread_mutex_lock(&queue_lock);
    next = (NULL == module) ? queue_modules : module->queue_next;
    pthread_mutex_unlock(&queue_lock);
    return next;
}

/* Looks for operations that the previous component has carried. */
static int queue_take_left(void)
{
    mca_coll_mpath_request_t **link, *request, *ended = NULL;
    int events = 0;

    pthread_mutex_lock(&queue_lock);
    for (link = &queue_left; NULL != (request = *link);) {
        if (REQUEST_COMPLETE(request->previous)) {
            *link         = request->next;
            request->next = ended;
            ended         = request;
        } else {
            link = &request->next;
        }
    }
    pthread_mutex_unlock(&queue_lock);
    while (NULL != (request = ended)) {
        ended = request->next;
        queue_complete(request, mca_coll_mpath_request_take(request));
        events++;
    }
    return events;
}

/* Called by the progress engine, in any thread, also from inside an operation. */
static int queue_progress(void)
{
    mca_coll_mpath_module_t *module, *next;
    int events = 0;

    if ((0 == atomic_load_explicit(&queue_active, memory_order_relaxed)) || atomic_flag_test_and_set(&queue_runner)) {
        return 0;
    }
    /* Only who runs fibers takes modules out of the list. */
    for (module = queue_next_module(NULL); NULL != module; module = next) {
        next = queue_next_module(module);
        events += queue_step(module);
    }
    events += queue_take_left();
    atomic_flag_clear(&queue_runner);
    if (0 == events) {
        mpath_idle_give_way();
    }
    return events;
}

/* -- requests come and go -- */

int mca_coll_mpath_queue_prepare(mca_coll_mpath_module_t *module)
{
    mpath_fiber_t *fiber = NULL;
    bool registers;

    if (NULL != __atomic_load_n(&module->fiber, __ATOMIC_ACQUIRE)) {
        return OMPI_SUCCESS;
    }
    if ((MPATH_OK != mca_coll_mpath_lifetime_watch(module)) ||
        (MPATH_OK != mpath_fiber_create(QUEUE_STACK_BYTES, &fiber))) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    __atomic_store_n(&module->fiber, fiber, __ATOMIC_RELEASE);
    pthread_mutex_lock(&queue_lock);
    registers        = !queue_registered;
    queue_registered = true;
    pthread_mutex_unlock(&queue_lock);
    if (registers) {
        (void)opal_progress_register(queue_progress);
    }
    return OMPI_SUCCESS;
}

void mca_coll_mpath_queue_start(mca_coll_mpath_request_t *request)
{
    mca_coll_mpath_module_t *module = request->module;

    mca_coll_mpath_pvars_started();
    atomic_fetch_add(&queue_active, 1);
    if (request->at_once) {
        queue_leave(request);
        return;
    }
    pthread_mutex_lock(&queue_lock);
    request->state = COLL_MPATH_QUEUED;
    request->next  = NULL;
    if (NULL == module->queue_first) {
        module->queue_next = queue_modules;
        queue_modules      = module;
        __atomic_store_n(&module->queue_first, request, __ATOMIC_RELEASE);
    } else {
        module->queue_last->next = request;
    }
    module->queue_last = request;
    pthread_mutex_unlock(&queue_lock);
    (void)queue_progress();
}

void mca_coll_mpath_queue_watch(mca_coll_mpath_request_t *request)
{
    mca_coll_mpath_pvars_started();
    atomic_fetch_add(&queue_active, 1);
    queue_put_left(request);
}

void mca_coll_mpath_queue_free(mca_coll_mpath_request_t *request)
{
    bool release;

    pthread_mutex_lock(&queue_lock);
    release        = COLL_MPATH_INACTIVE == request->state;
    request->freed = !release;
    pthread_mutex_unlock(&queue_lock);
    if (release) {
        mca_coll_mpath_request_release(request);
    }
}

/* One look of a waiting thread. The nanoseconds since something happened. */
static uint64_t queue_look(mpath_idle_t *idle)
{
    if (0 != queue_progress()) {
        mpath_idle_event(idle);
        return 0;
    }
    opal_progress();
    return mpath_idle_wait(idle);
}

void mca_coll_mpath_queue_wait(mca_coll_mpath_module_t *module)
{
    mpath_idle_t idle;

    mpath_idle_start(&idle);
    while (NULL != __atomic_load_n(&module->queue_first, __ATOMIC_ACQUIRE)) {
        (void)queue_look(&idle);
    }
}

void mca_coll_mpath_queue_refuse(mca_coll_mpath_module_t *module, int rc, bool at_once)
{
    mpath_status_t status = (OMPI_ERR_OUT_OF_RESOURCE == rc) ? MPATH_ERR_NO_MEMORY : MPATH_ERR_INTERNAL;

    if (OMPI_COMM_IS_INTER(module->comm)) {
        return;
    }
    while (atomic_flag_test_and_set(&queue_runner)) { /* another thread runs operations, maybe of this team */
        sched_yield();
    }
    if (NULL != module->team) {
        mpath_team_break(module->team, status);
    } else if (!at_once && (!module->tried || (NULL != __atomic_load_n(&module->queue_first, __ATOMIC_ACQUIRE)))) {
        mca_coll_mpath_loss_give_up(module, status, -1); /* they set it up in that operation, or are at it */
    }
    atomic_flag_clear(&queue_runner);
}

/* -- the end -- */

void mca_coll_mpath_queue_hold(mca_coll_mpath_module_t *module)
{
    pthread_mutex_lock(&queue_lock);
    module->requests++;
    pthread_mutex_unlock(&queue_lock);
}

void mca_coll_mpath_queue_let_go(mca_coll_mpath_module_t *module)
{
    bool ends;

    pthread_mutex_lock(&queue_lock);
    module->requests--;
    ends = module->queue_ends_team && (0 == module->requests);
    pthread_mutex_unlock(&queue_lock);
    if (ends) {
        mca_coll_mpath_lifetime_end_team(module);
    }
}

int mca_coll_mpath_queue_ends_team(mca_coll_mpath_module_t *module)
{
    int ends;

    pthread_mutex_lock(&queue_lock);
    ends                    = 0 < module->requests;
    module->queue_ends_team = ends;
    pthread_mutex_unlock(&queue_lock);
    return ends;
}

/* Their waits end now: that of a team because it is broken, those of its set-up because the fiber is to end. */
static void queue_give_up(mca_coll_mpath_module_t *module)
{
    if (NULL != module->team) {
        mpath_team_break(module->team, MPATH_ERR_TIMED_OUT);
    }
    mpath_fiber_end_soon(module->fiber);
}

void mca_coll_mpath_queue_finish(void)
{
    uint64_t patience_ns = (uint64_t)mca_coll_mpath_component.settings.timeout_s * MPATH_NS_PER_S;
    mca_coll_mpath_module_t *module;
    mpath_idle_t idle;

    mpath_idle_start(&idle);
    while ((0 != atomic_load(&queue_active)) && (queue_look(&idle) < patience_ns)) {
    }
    if (0 == atomic_load(&queue_active)) {
        return;
    }
    mpath_error("MPI_Finalize was called %d s ago and %d non-blocking collectives have not ended; they are given up",
                mca_coll_mpath_component.settings.timeout_s, atomic_load(&queue_active));
    while (NULL != (module = queue_next_module(NULL))) {
        queue_give_up(module);
        (void)queue_progress();
    }
}

void mca_coll_mpath_queue_release(mca_coll_mpath_module_t *module)
{
    mpath_fiber_destroy(module->fiber);
    module->fiber = NULL;
}

void mca_coll_mpath_queue_close(void)
{
    if (queue_registered) {
        (void)opal_progress_unregister(queue_progress);
        queue_registered = false;
    }
}
