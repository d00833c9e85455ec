/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Non-blocking and persistent operations: their arguments as data, their queue, and the life of a request: what it keeps,
 * its start, and the request of the previous component inside it.
 *
 * Tags of non-blocking collectives. All components take them from one counter of the communicator, in the order of the
 * calls. Who takes a tag without making a request keeps its place in that order, and the request can be made later,
 * with this tag, if it is wanted at all.
 *
 * It is made on a twin of the communicator: the same but for a counter of its own, from which the previous function takes
 * the tag that was kept. The communicator's own counter may be in use by other threads, and by collectives that mpath does
 * not see. Messages go by the context, so ranks that use the communicator itself meet those that use a twin.
 *
 * One tag is taken in each call, by whichever way, so that ranks need not do alike: libnbc takes none on a rank that has
 * nothing to send or receive in place, and then the next non-blocking collectives of the ranks would not find each other.
 *
 * The queues of operations, one per communicator, and what Open MPI's progress engine calls. One thread at a time runs
 * fibers; the lock guards lists and states only, and is never held while an operation runs or a request completes.
 */
#include "coll_mpath_request.h"
#include "coll_mpath_symmetric.h"

#include "ompi/mca/coll/base/coll_tags.h"
#include "opal/runtime/opal_progress.h"

#include "team/wait.h"
#include "util/time.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The message layer refers to a twin for as long as it has something under way there. */
typedef struct tag_twin_t {
    struct ompi_communicator_t comm; /* first; with the head of this class */
    struct ompi_communicator_t *original;
} tag_twin_t;
OBJ_CLASS_DECLARATION(tag_twin_t);

static void twin_destruct(tag_twin_t *twin)
{
    OBJ_RELEASE(twin->original);
}

/* Not of the communicator's class, whose destructor would take apart what belongs to the original. */
OBJ_CLASS_INSTANCE(tag_twin_t, opal_object_t, NULL, twin_destruct);

static int32_t *tag_counter(struct ompi_communicator_t *comm)
{
    return (int32_t *)(void *)&comm->c_nbc_tag;
}

/* Takes this call's tag, as the components do, which begin anew at the end. */
static int32_t tag_take(mca_coll_mpath_module_t *module)
{
    int32_t *counter = tag_counter(module->comm), before = __atomic_load_n(counter, __ATOMIC_RELAXED), tag;

    do {
        tag = (MCA_COLL_BASE_TAG_NONBLOCKING_END > before - 1) ? MCA_COLL_BASE_TAG_NONBLOCKING_BASE : before;
    } while (!__atomic_compare_exchange_n(counter, &before, tag - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return tag;
}

/* The counter, before the previous function is called with the call itself; afterwards one tag is taken if that took none. */
static int32_t tag_look(const mca_coll_mpath_module_t *module)
{
    return module->comm->c_nbc_tag;
}

static void tag_level(mca_coll_mpath_module_t *module, int32_t before)
{
    if (module->comm->c_nbc_tag == before) {
        (void)tag_take(module);
    }
}

/* The communicator for a late call, whose next tag is this one; an object of Open MPI's, the caller's. NULL: no memory. */
static struct ompi_communicator_t *tag_twin(const mca_coll_mpath_module_t *module, int32_t tag)
{
    tag_twin_t *twin  = OBJ_NEW(tag_twin_t);
    const size_t head = sizeof(opal_object_t);

    if (NULL == twin) {
        return NULL;
    }
    memcpy((char *)twin + head, (const char *)module->comm + head, sizeof(twin->comm) - head);
    *tag_counter(&twin->comm) = tag;
    twin->original            = module->comm;
    OBJ_RETAIN(twin->original);
    return &twin->comm;
}

/* False: a call on the twin has taken more tags than one, those of others. */
static bool tag_fits(const struct ompi_communicator_t *twin, int32_t tag)
{
    return (twin->c_nbc_tag == tag) || (twin->c_nbc_tag == tag - 1);
}

/* Copies an array of the user to where there is room for it, which moves on. */
static void *take_array(const void *data, size_t bytes, char **storage)
{
    void *copy = memcpy(*storage, data, bytes);

    *storage += (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
    return copy;
}

/*
 * Takes copies of the counts and displacements into memory that is the caller's then: MPI lets nobody change them before the
 * end, but libnbc reads them in the call only, and bindings such as mpi4py's free them then.
 */
static int arguments_take_arrays(mca_coll_mpath_arguments_t *a, size_t size, void **arrays_p)
{
    bool sends    = (COLL_MPATH_ALLTOALLV == a->kind) && (MPI_IN_PLACE != a->sbuf);
    bool receives = (COLL_MPATH_ALLTOALLV == a->kind) || (COLL_MPATH_ALLGATHERV == a->kind);
    char *storage;

    *arrays_p = NULL;
    if (!receives && (COLL_MPATH_REDUCE_SCATTER != a->kind)) {
        return OMPI_SUCCESS;
    }
    storage = *arrays_p = malloc(4 * size * sizeof(uint64_t));
    if (NULL == storage) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    a->rcounts = COLL_MPATH_COUNTS_AT(a->rcounts, take_array(COLL_MPATH_COUNTS_DATA(a->rcounts),
                                                             size * COLL_MPATH_COUNTS_WIDTH(a->rcounts), &storage));
    if (receives) {
        a->rdisps = COLL_MPATH_DISPLS_AT(a->rdisps, take_array(COLL_MPATH_DISPLS_DATA(a->rdisps),
                                                               size * COLL_MPATH_DISPLS_WIDTH(a->rdisps), &storage));
    }
    if (sends) {
        a->scounts = COLL_MPATH_COUNTS_AT(a->scounts, take_array(COLL_MPATH_COUNTS_DATA(a->scounts),
                                                                 size * COLL_MPATH_COUNTS_WIDTH(a->scounts), &storage));
        a->sdisps  = COLL_MPATH_DISPLS_AT(a->sdisps, take_array(COLL_MPATH_DISPLS_DATA(a->sdisps),
                                                                size * COLL_MPATH_DISPLS_WIDTH(a->sdisps), &storage));
    }
    return OMPI_SUCCESS;
}

/* Into how many parts both sides, or counts, are divided. */
static int arguments_parts(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm)
{
    bool scatters = (COLL_MPATH_REDUCE_SCATTER == arguments->kind) ||
                    (COLL_MPATH_REDUCE_SCATTER_BLOCK == arguments->kind);

    return scatters ? ompi_comm_size(comm) : mca_coll_mpath_parts(comm);
}

static uint64_t arguments_elements(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm)
{
    uint64_t sum = 0;
    int rank;

    for (rank = 0; rank < arguments_parts(arguments, comm); rank++) {
        sum += COLL_MPATH_COUNT(arguments->rcounts, rank);
    }
    return sum;
}

static mca_coll_mpath_args_t arguments_block(void *buffer, struct ompi_datatype_t *datatype, uint64_t count)
{
    return (mca_coll_mpath_args_t){.buffer = buffer, .datatype = datatype, .equal = true, .count = (size_t)count};
}

static mca_coll_mpath_args_t arguments_vector(void *buffer, struct ompi_datatype_t *datatype, uint64_t count)
{
    mca_coll_mpath_args_t vector = arguments_block(buffer, datatype, count);

    vector.combined = true;
    return vector;
}

/* Both sides as mpath sees them; in place the receive side stands for both. */
static void arguments_sides(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm,
                            mca_coll_mpath_request_t *request)
{
    bool in_place = MPI_IN_PLACE == arguments->sbuf;
    int size = arguments_parts(arguments, comm), rank = ompi_comm_rank(comm);
    void *sbuf = (void *)arguments->sbuf;
    uint64_t total, mine;

    request->send_parts = request->recv_parts = 1;
    switch (arguments->kind) {
    case COLL_MPATH_ALLTOALLV:
        request->send_parts = request->recv_parts = size;
        request->send                             = (mca_coll_mpath_args_t){
                                        .buffer   = sbuf,
                                        .datatype = arguments->sdtype,
                                        .counts   = arguments->scounts,
                                        .displs   = arguments->sdisps,
        };
        request->recv = (mca_coll_mpath_args_t){.buffer   = arguments->rbuf,
                                                .datatype = arguments->rdtype,
                                                .counts   = arguments->rcounts,
                                                .displs   = arguments->rdisps};
        return;
    case COLL_MPATH_ALLTOALL:
        request->send_parts = request->recv_parts = size;
        request->send                             = arguments_block(sbuf, arguments->sdtype, arguments->scount);
        request->recv = arguments_block(arguments->rbuf, arguments->rdtype, arguments->rcount);
        return;
    case COLL_MPATH_ALLREDUCE:
        request->send = arguments_vector(sbuf, arguments->rdtype, arguments->rcount);
        request->recv = arguments_vector(arguments->rbuf, arguments->rdtype, arguments->rcount);
        return;
    case COLL_MPATH_REDUCE_SCATTER:
    case COLL_MPATH_REDUCE_SCATTER_BLOCK:
        if (COLL_MPATH_REDUCE_SCATTER == arguments->kind) {
            total = arguments_elements(arguments, comm);
            mine  = COLL_MPATH_COUNT(arguments->rcounts, rank);
        } else {
            total = (uint64_t)arguments->rcount * (uint64_t)size;
            mine  = (uint64_t)arguments->rcount;
        }
        request->send = arguments_vector(sbuf, arguments->rdtype, total);
        request->recv = arguments_vector(arguments->rbuf, arguments->rdtype, in_place ? total : mine);
        return;
    case COLL_MPATH_ALLGATHER:
        request->recv_parts = size;
        request->send       = arguments_block(sbuf, arguments->sdtype, arguments->scount);
        request->recv       = arguments_block(arguments->rbuf, arguments->rdtype, arguments->rcount);
        return;
    case COLL_MPATH_ALLGATHERV:
        request->recv_parts = size;
        request->send       = arguments_block(sbuf, arguments->sdtype, arguments->scount);
        request->recv       = (mca_coll_mpath_args_t){.buffer   = arguments->rbuf,
                                                      .datatype = arguments->rdtype,
                                                      .counts   = arguments->rcounts,
                                                      .displs   = arguments->rdisps};
        return;
    case COLL_MPATH_ALLTOALLW:
        return;
    }
}

uint64_t mca_coll_mpath_arguments_bytes(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm)
{
    uint64_t elements = UINT64_MAX;
    size_t bytes      = 0;

    switch (arguments->kind) {
    case COLL_MPATH_ALLTOALLV: /* nobody knows what the others send each other */
    case COLL_MPATH_ALLTOALL:  /* as MPI_Alltoallv */
    case COLL_MPATH_ALLTOALLW:
        return UINT64_MAX;
    case COLL_MPATH_ALLREDUCE:
        elements = (uint64_t)arguments->rcount;
        break;
    case COLL_MPATH_REDUCE_SCATTER_BLOCK:
    case COLL_MPATH_ALLGATHER:
        elements = (uint64_t)arguments->rcount * (uint64_t)arguments_parts(arguments, comm);
        break;
    case COLL_MPATH_REDUCE_SCATTER:
    case COLL_MPATH_ALLGATHERV:
        elements = arguments_elements(arguments, comm);
        break;
    }
    (void)ompi_datatype_type_size(arguments->rdtype, &bytes);
    return elements * (uint64_t)bytes;
}

/*
 * Whether libnbc spoils this operation (doc/openmpi.md says in which versions). It exchanges the blocks of an in-place
 * MPI_Ialltoallv in steps, each with the ranks so far after and before this one. Where only one of these has data, it
 * does not wait at one half of the step: it receives over what it still sends, or keeps the next block where the last
 * one is still sent from. When a rank sends from a copy instead, the same messages go over the wire.
 */
static bool arguments_need_copy(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm)
{
    int rank = ompi_comm_rank(comm), size = ompi_comm_size(comm), step;

    if ((COLL_MPATH_ALLTOALLV != arguments->kind) || (MPI_IN_PLACE != arguments->sbuf) || OMPI_COMM_IS_INTER(comm)) {
        return false;
    }
    for (step = 1; step < (size + 1) / 2; step++) {
        if ((0 == COLL_MPATH_COUNT(arguments->rcounts, (rank + step) % size)) !=
            (0 == COLL_MPATH_COUNT(arguments->rcounts, (rank + size - step) % size))) {
            return true;
        }
    }
    return false;
}

/* Makes the previous component's persistent request, or runs its non-blocking function; on `comm`, the module's or a twin. */
static int arguments_init(const mca_coll_mpath_arguments_t *a, mca_coll_mpath_module_t *m,
                          struct ompi_communicator_t *comm, ompi_request_t **request_p)
{
    struct ompi_info_t *info = MPI_INFO_NULL;

    switch (a->kind) {
    case COLL_MPATH_ALLTOALLV:
        return m->previous_alltoallv_init(a->sbuf, a->scounts, a->sdisps, a->sdtype, a->rbuf, a->rcounts, a->rdisps,
                                          a->rdtype, comm, info, request_p, m->previous_alltoallv_init_module);
    case COLL_MPATH_ALLTOALL:
        return m->previous_alltoall_init(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcount, a->rdtype, comm, info,
                                         request_p, m->previous_alltoall_init_module);
    case COLL_MPATH_ALLREDUCE:
        return m->previous_allreduce_init(a->sbuf, a->rbuf, a->rcount, a->rdtype, a->op, comm, info, request_p,
                                          m->previous_allreduce_init_module);
    case COLL_MPATH_REDUCE_SCATTER:
        return m->previous_reduce_scatter_init(a->sbuf, a->rbuf, a->rcounts, a->rdtype, a->op, comm, info, request_p,
                                               m->previous_reduce_scatter_init_module);
    case COLL_MPATH_REDUCE_SCATTER_BLOCK:
        return m->previous_reduce_scatter_block_init(a->sbuf, a->rbuf, a->rcount, a->rdtype, a->op, comm, info,
                                                     request_p, m->previous_reduce_scatter_block_init_module);
    case COLL_MPATH_ALLGATHER:
        return m->previous_allgather_init(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcount, a->rdtype, comm, info,
                                          request_p, m->previous_allgather_init_module);
    case COLL_MPATH_ALLGATHERV:
        return m->previous_allgatherv_init(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcounts, a->rdisps, a->rdtype,
                                           comm, info, request_p, m->previous_allgatherv_init_module);
    case COLL_MPATH_ALLTOALLW:
        break;
    }
    return OMPI_ERR_NOT_SUPPORTED;
}

static int arguments_pass(const mca_coll_mpath_arguments_t *a, mca_coll_mpath_module_t *m,
                          struct ompi_communicator_t *comm, ompi_request_t **request_p)
{
    switch (a->kind) {
    case COLL_MPATH_ALLTOALLV:
        return m->previous_ialltoallv(a->sbuf, a->scounts, a->sdisps, a->sdtype, a->rbuf, a->rcounts, a->rdisps,
                                      a->rdtype, comm, request_p, m->previous_ialltoallv_module);
    case COLL_MPATH_ALLTOALL:
        return m->previous_ialltoall(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcount, a->rdtype, comm, request_p,
                                     m->previous_ialltoall_module);
    case COLL_MPATH_ALLREDUCE:
        return m->previous_iallreduce(a->sbuf, a->rbuf, a->rcount, a->rdtype, a->op, comm, request_p,
                                      m->previous_iallreduce_module);
    case COLL_MPATH_REDUCE_SCATTER:
        return m->previous_ireduce_scatter(a->sbuf, a->rbuf, a->rcounts, a->rdtype, a->op, comm, request_p,
                                           m->previous_ireduce_scatter_module);
    case COLL_MPATH_REDUCE_SCATTER_BLOCK:
        return m->previous_ireduce_scatter_block(a->sbuf, a->rbuf, a->rcount, a->rdtype, a->op, comm, request_p,
                                                 m->previous_ireduce_scatter_block_module);
    case COLL_MPATH_ALLGATHER:
        return m->previous_iallgather(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcount, a->rdtype, comm, request_p,
                                      m->previous_iallgather_module);
    case COLL_MPATH_ALLGATHERV:
        return m->previous_iallgatherv(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcounts, a->rdisps, a->rdtype, comm,
                                       request_p, m->previous_iallgatherv_module);
    case COLL_MPATH_ALLTOALLW:
        break;
    }
    return OMPI_ERR_NOT_SUPPORTED;
}

static int request_leave(mca_coll_mpath_request_t *request);
static int request_take(mca_coll_mpath_request_t *request);

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
    int rc = request_leave(request);

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
        queue_complete(request, request_take(request));
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
        mpath_idle_yield();
    }
    return events;
}

/* -- requests come and go -- */

/* What operations of a communicator need; before the first one. */
static int queue_prepare(mca_coll_mpath_module_t *module)
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

/* Takes a request that is to run, and runs it as far as it gets without waiting. */
static void queue_start(mca_coll_mpath_request_t *request)
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

/* Takes a request whose previous one runs already. */
static void queue_watch(mca_coll_mpath_request_t *request)
{
    mca_coll_mpath_pvars_started();
    atomic_fetch_add(&queue_active, 1);
    queue_put_left(request);
}

/* The user frees a request: it is released now, or when it has ended. */
static void queue_free(mca_coll_mpath_request_t *request)
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

/*
 * An operation could not be made here, and the other ranks have theirs, which end in an error. `at_once`: they do not ask
 * mpath about it.
 */
static void queue_refuse(mca_coll_mpath_module_t *module, int rc, bool at_once)
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

/* A request of the module is made; it goes. */
static void queue_hold(mca_coll_mpath_module_t *module)
{
    pthread_mutex_lock(&queue_lock);
    module->requests++;
    pthread_mutex_unlock(&queue_lock);
}

static void queue_let_go(mca_coll_mpath_module_t *module)
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

/* Symmetric operations up to this go to the previous component without a question: Open MPI itself numbers new
 * communicators with them, from inside its progress engine and on no agreed moment. A constant, so that all ranks
 * decide alike. */
#define REQUEST_AT_ONCE_BYTES 256u

/* -- what a request keeps -- */

static void request_keep(mca_coll_mpath_request_t *request)
{
    const mca_coll_mpath_arguments_t *arguments = &request->arguments;

    OBJ_RETAIN(request->module->comm);
    if ((NULL != arguments->sdtype) && !ompi_datatype_is_predefined(arguments->sdtype)) {
        OBJ_RETAIN(arguments->sdtype);
    }
    if ((NULL != arguments->rdtype) && !ompi_datatype_is_predefined(arguments->rdtype)) {
        OBJ_RETAIN(arguments->rdtype);
    }
    if (NULL != arguments->op) {
        OBJ_RETAIN(arguments->op);
    }
}

static void request_let_go(mca_coll_mpath_request_t *request)
{
    mca_coll_mpath_arguments_t *arguments = &request->arguments;
    struct ompi_communicator_t *comm      = request->module->comm;

    if ((NULL != arguments->sdtype) && !ompi_datatype_is_predefined(arguments->sdtype)) {
        OBJ_RELEASE(arguments->sdtype);
    }
    if ((NULL != arguments->rdtype) && !ompi_datatype_is_predefined(arguments->rdtype)) {
        OBJ_RELEASE(arguments->rdtype);
    }
    if (NULL != arguments->op) {
        OBJ_RELEASE(arguments->op);
    }
    OBJ_RELEASE(comm);
}

void mca_coll_mpath_request_release(mca_coll_mpath_request_t *request)
{
    bool has_previous = (NULL != request->previous) && (&ompi_request_empty != request->previous) &&
                        (MPI_REQUEST_NULL != request->previous);

    /* One that has not ended in time is left to its owner, with the memory that it may still use. */
    if (!has_previous || REQUEST_COMPLETE(request->previous)) {
        if (has_previous) {
            (void)ompi_request_free(&request->previous);
        }
        mca_coll_mpath_device_close(&request->send_device);
        mca_coll_mpath_device_close(&request->recv_device);
        free(request->arrays);
        if (NULL != request->in_place_copy) {
            (void)munmap(request->in_place_copy, request->copy_bytes + 1);
        }
        if (NULL != request->twin) {
            OBJ_RELEASE(request->twin);
        }
    }
    OMPI_REQUEST_FINI(&request->super);
    queue_let_go(request->module);
    request_let_go(request);
    OBJ_RELEASE(request);
}

/* -- the previous component's request -- */

static bool request_in_place(const mca_coll_mpath_request_t *request)
{
    return MPI_IN_PLACE == request->arguments.sbuf;
}

/* It must not meet memory that the host cannot read: such a side gets a copy, which is filled when it is needed. */
static mpath_status_t request_open_sides(mca_coll_mpath_request_t *request)
{
    mpath_status_t status;

    arguments_sides(&request->arguments, request->module->comm, request);
    status = mca_coll_mpath_device_look(&request->recv, request->recv_parts, &request->recv_device);
    if ((MPATH_OK == status) && !request_in_place(request)) {
        status = mca_coll_mpath_device_look(&request->send, request->send_parts, &request->send_device);
    }
    if (MPATH_OK == status) {
        status = mca_coll_mpath_device_open(&request->recv, request->recv_parts, &request->recv_device);
    }
    if ((MPATH_OK == status) && !request_in_place(request)) {
        status = mca_coll_mpath_device_open(&request->send, request->send_parts, &request->send_device);
    }
    return status;
}

/* The arguments of the previous request: the user's, or those that lead to copies. */
static mca_coll_mpath_arguments_t request_arguments(const mca_coll_mpath_request_t *request)
{
    mca_coll_mpath_arguments_t arguments = request->arguments;
    bool in_place                        = request_in_place(request);

    arguments.sbuf   = in_place ? MPI_IN_PLACE : request->send.buffer;
    arguments.sdtype = in_place ? request->recv.datatype : request->send.datatype;
    arguments.sdisps = request->send.displs;
    arguments.rbuf   = request->recv.buffer;
    arguments.rdtype = request->recv.datatype;
    arguments.rdisps = request->recv.displs;
    return arguments;
}

/* The elements alone: what lies between them may not be there. */
static void request_fill_copy(const mca_coll_mpath_request_t *request)
{
    char *from = request->recv.buffer, *to = (char *)request->in_place_copy - request->copy_lowest;

    for (int peer = 0; peer < request->recv_parts; peer++) {
        ptrdiff_t at = mca_coll_mpath_args_displacement(&request->recv, peer);
        size_t count = mca_coll_mpath_args_count(&request->recv, peer);

        if (0 < count) {
            (void)ompi_datatype_copy_content_same_ddt(request->recv.datatype, count, to + at, from + at);
        }
    }
}

/* Fills the copies. */
static mpath_status_t request_load_sides(const mca_coll_mpath_request_t *request)
{
    bool in_place         = request_in_place(request);
    mpath_status_t status = MPATH_OK;

    if (MPATH_SYNC_DEVICE == mca_coll_mpath_component.settings.sync) {
        status = mca_coll_mpath_device_sync(in_place ? NULL : &request->send_device, &request->recv_device);
    }
    if ((MPATH_OK == status) && !in_place) {
        status = mca_coll_mpath_device_load(request->send_parts, &request->send_device);
    }
    if ((MPATH_OK == status) && (in_place || !request->recv_device.contiguous)) {
        status = mca_coll_mpath_device_load(request->recv_parts, &request->recv_device);
    }
    if ((MPATH_OK == status) && (NULL != request->in_place_copy)) {
        request_fill_copy(request);
    }
    return status;
}

/*
 * See arguments_need_copy(). The copy lies as the buffer does, which may have holes, and wide ones: only
 * what is written takes memory.
 */
static int request_make_copy(mca_coll_mpath_request_t *request, mca_coll_mpath_arguments_t *arguments)
{
    void *copy;

    mca_coll_mpath_device_span(&request->recv, request->recv_parts, &request->copy_lowest, &request->copy_bytes);
    copy = mmap(NULL, request->copy_bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
    if (MAP_FAILED == copy) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    request->in_place_copy = copy;
    arguments->sbuf        = (char *)copy - request->copy_lowest;
    arguments->scounts     = arguments->rcounts;
    arguments->sdisps      = arguments->rdisps;
    return OMPI_SUCCESS;
}

/* What the previous function is to be called with. */
static int request_open(mca_coll_mpath_request_t *request, mca_coll_mpath_arguments_t *arguments)
{
    mpath_status_t status = request_open_sides(request);

    if (MPATH_OK != status) {
        return mca_coll_mpath_error(status);
    }
    *arguments = request_arguments(request);
    return arguments_need_copy(&request->arguments, request->module->comm) ? request_make_copy(request, arguments)
                                                                           : OMPI_SUCCESS;
}

static int request_load(const mca_coll_mpath_request_t *request)
{
    return mca_coll_mpath_error(request_load_sides(request));
}

/* The previous component's persistent request. */
static int request_init_previous(mca_coll_mpath_request_t *request, struct ompi_communicator_t *comm)
{
    mca_coll_mpath_arguments_t arguments;
    int rc = request_open(request, &arguments);

    return (OMPI_SUCCESS == rc) ? arguments_init(&arguments, request->module, comm, &request->previous) : rc;
}

/* The previous component's non-blocking function. */
static int request_run_previous(mca_coll_mpath_request_t *request, struct ompi_communicator_t *comm)
{
    mca_coll_mpath_arguments_t arguments;
    int rc = request_open(request, &arguments);

    if (OMPI_SUCCESS == rc) {
        rc = request_load(request);
    }
    return (OMPI_SUCCESS == rc) ? arguments_pass(&arguments, request->module, comm, &request->previous) : rc;
}

/* When mpath has declined, for the first time. */
static int request_make_late(mca_coll_mpath_request_t *request)
{
    int rc = OMPI_ERR_OUT_OF_RESOURCE;

    request->twin = tag_twin(request->module, request->tag);
    if (NULL != request->twin) {
        rc = request->super.req_persistent ? request_init_previous(request, request->twin)
                                           : request_run_previous(request, request->twin);
    }
    if ((OMPI_SUCCESS == rc) && !tag_fits(request->twin, request->tag)) {
        mpath_error("%s: the previous component takes several tags in one non-blocking collective, which mpath cannot "
                    "serve; the call fails. Set coll_mpath_nonblocking to 0",
                    request->module->comm->c_name);
        return OMPI_ERR_NOT_SUPPORTED;
    }
    if (OMPI_SUCCESS != rc) {
        mpath_error("%s: the previous component cannot take over a non-blocking collective (Open MPI error %d); the "
                    "call fails",
                    request->module->comm->c_name, rc);
    }
    return rc;
}

/*
 * Starts the previous request on the present data; and, when REQUEST_COMPLETE(request->previous), takes what it has
 * brought.
 */
static int request_leave(mca_coll_mpath_request_t *request)
{
    int rc = (NULL == request->previous) ? request_make_late(request) : OMPI_SUCCESS;

    if ((OMPI_SUCCESS != rc) || !request->super.req_persistent) {
        return rc;
    }
    rc = request_load(request);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    if (NULL == request->previous->req_start) {
        return OMPI_SUCCESS; /* the common, empty request: there is nothing to do */
    }
    return request->previous->req_start(1, &request->previous);
}

static int request_take(mca_coll_mpath_request_t *request)
{
    ompi_status_public_t status = {.MPI_ERROR = MPI_SUCCESS};
    int ended = 0, rc = ompi_request_test(&request->previous, &ended, &status); /* makes it inactive */

    if (OMPI_SUCCESS == rc) {
        rc = mca_coll_mpath_error(mca_coll_mpath_device_store(request->recv_parts, &request->recv_device));
    }
    return rc;
}

/* -- what MPI calls -- */

static int request_start(size_t count, ompi_request_t **requests)
{
    size_t i;

    for (i = 0; i < count; i++) {
        mca_coll_mpath_request_t *request = (mca_coll_mpath_request_t *)requests[i];

        request->super.req_status.MPI_ERROR = MPI_SUCCESS;
        request->super.req_complete         = REQUEST_PENDING;
        request->super.req_state            = OMPI_REQUEST_ACTIVE;
        queue_start(request);
    }
    return OMPI_SUCCESS;
}

static int request_free(ompi_request_t **request)
{
    queue_free((mca_coll_mpath_request_t *)*request);
    *request = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

static int request_cancel(ompi_request_t *request, int flag)
{
    (void)request;
    (void)flag;
    return MPI_ERR_REQUEST; /* MPI forbids it for collectives */
}

static void request_construct(mca_coll_mpath_request_t *request)
{
    memset((char *)request + sizeof(ompi_request_t), 0, sizeof(*request) - sizeof(ompi_request_t));
    request->super.req_type   = OMPI_REQUEST_COLL;
    request->super.req_start  = request_start;
    request->super.req_free   = request_free;
    request->super.req_cancel = request_cancel;
    memset(&request->super.req_status, 0, sizeof(request->super.req_status));
}

OBJ_CLASS_INSTANCE(mca_coll_mpath_request_t, ompi_request_t, request_construct, NULL);

void mca_coll_mpath_request_watch(mca_coll_mpath_request_t *request, ompi_request_t **request_p)
{
    *request_p                  = &request->super;
    request->super.req_complete = REQUEST_PENDING;
    request->super.req_state    = OMPI_REQUEST_ACTIVE;
    queue_watch(request);
}

/*
 * Hands a small operation to the previous component, with copies of what lies in device memory: by the same function as
 * on ranks without a GPU.
 */
static int request_pass(mca_coll_mpath_request_t *request, ompi_request_t **request_p)
{
    mpath_status_t status = request_open_sides(request);
    mca_coll_mpath_arguments_t arguments;
    bool copies;
    int rc;

    if (MPATH_OK == status) {
        status = request_load_sides(request);
    }
    if (MPATH_OK != status) {
        return mca_coll_mpath_error(status);
    }
    copies    = (NULL != request->send_device.copy) || (NULL != request->recv_device.copy);
    arguments = request_arguments(request);
    rc = arguments_pass(&arguments, request->module, request->module->comm, copies ? &request->previous : request_p);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    if (copies) {
        mca_coll_mpath_request_watch(request, request_p);
    } else {
        mca_coll_mpath_request_release(request);
    }
    return OMPI_SUCCESS;
}

static int request_new(mca_coll_mpath_module_t *module, const mca_coll_mpath_arguments_t *arguments,
                       const mca_coll_mpath_request_ops_t *ops, bool persistent, mca_coll_mpath_request_t **new_p)
{
    mca_coll_mpath_request_t *request;
    int rc = queue_prepare(module);

    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    request = OBJ_NEW(mca_coll_mpath_request_t);
    if (NULL == request) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    OMPI_REQUEST_INIT(&request->super, persistent);
    request->super.req_mpi_object.comm = module->comm;
    request->module                    = module;
    request->ops                       = ops;
    request->arguments                 = *arguments;
    request_keep(request);
    queue_hold(module);
    rc = arguments_take_arrays(&request->arguments, (size_t)arguments_parts(arguments, module->comm), &request->arrays);
    if (OMPI_SUCCESS != rc) {
        mca_coll_mpath_request_release(request);
        return rc;
    }
    *new_p = request;
    return OMPI_SUCCESS;
}

int mca_coll_mpath_request_adopt(mca_coll_mpath_module_t *module, const mca_coll_mpath_stage_t *stage, bool persistent,
                                 mca_coll_mpath_request_t **new_p)
{
    const mca_coll_mpath_arguments_t arguments = {.kind = COLL_MPATH_ALLTOALLW,
                                                  .sbuf = stage->in_place ? MPI_IN_PLACE : NULL};
    mca_coll_mpath_request_t *request;
    int rc = request_new(module, &arguments, NULL, persistent, &request);

    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    request->at_once                = true;
    request->send_parts             = stage->send_parts;
    request->recv_parts             = stage->recv_parts;
    request->send_device            = stage->send_device;
    request->recv_device            = stage->recv_device;
    request->recv_device.contiguous = request->recv_device.contiguous && !stage->loads_recv; /* with each start */
    *new_p                          = request;
    return OMPI_SUCCESS;
}

/*
 * The same as request_pass() without a request of mpath's, which costs a small call as much again. Takes one tag, as on
 * ranks that queue the call: see the tags above.
 */
static bool request_pass_now(mca_coll_mpath_module_t *module, const mca_coll_mpath_arguments_t *arguments,
                             const mca_coll_mpath_request_ops_t *ops, ompi_request_t **request_p, int *rc_p)
{
    int32_t before = tag_look(module);

    if (mpath_gpu_available() || (NULL != __atomic_load_n(&module->queue_first, __ATOMIC_ACQUIRE)) ||
        arguments_need_copy(arguments, module->comm) || !ops->passes(arguments, module)) {
        return false;
    }
    *rc_p = arguments_pass(arguments, module, module->comm, request_p);
    tag_level(module, before);
    return true;
}

int mca_coll_mpath_request_make(mca_coll_mpath_module_t *module, const mca_coll_mpath_arguments_t *given,
                                const mca_coll_mpath_request_ops_t *ops, bool persistent, ompi_request_t **request_p)
{
    mca_coll_mpath_arguments_t arguments = *given;
    bool at_once                         = OMPI_COMM_IS_INTER(module->comm) ||
                   (REQUEST_AT_ONCE_BYTES >= mca_coll_mpath_arguments_bytes(given, module->comm));
    bool passes;
    mca_coll_mpath_request_t *request;
    int rc;

    if (MPI_IN_PLACE == arguments.sbuf) {
        arguments.sdtype = arguments.rdtype; /* what was given is to be ignored: it need not be a datatype */
    }
    if (persistent && OMPI_COMM_IS_INTER(module->comm) && !mpath_gpu_available()) {
        return arguments_init(&arguments, module, module->comm, request_p);
    }
    passes = at_once && !persistent;
    if (passes && !mpath_gpu_available()) {
        return arguments_pass(&arguments, module, module->comm, request_p);
    }
    if (!at_once && !persistent && request_pass_now(module, &arguments, ops, request_p, &rc)) {
        return rc;
    }
    rc = request_new(module, &arguments, ops, persistent, &request);
    if (OMPI_SUCCESS != rc) {
        queue_refuse(module, rc, at_once);
        return rc;
    }
    request->at_once = at_once;
    if (passes) {
        rc = request_pass(request, request_p);
    } else if (OMPI_COMM_IS_INTER(module->comm)) {
        rc = request_init_previous(request, module->comm);
    } else {
        request->tag = tag_take(module);
    }
    if (OMPI_SUCCESS != rc) {
        mpath_error("%s: a non-blocking collective cannot be prepared (Open MPI error %d); the call fails",
                    module->comm->c_name, rc);
        mca_coll_mpath_request_release(request);
        queue_refuse(module, rc, at_once);
        return rc;
    }
    if (passes) {
        return OMPI_SUCCESS;
    }
    *request_p = &request->super;
    return persistent ? OMPI_SUCCESS : request_start(1, request_p);
}
