/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue of a process group, and the calls of MPI in it: without the interpreter lock, and without Python where
 * nothing has gone wrong. native.py is its other half.
 *
 * A group's calls are made one after the other. Who would wait anyway makes its call itself where nothing is
 * before it (mpath_make), a thread of the group makes all others (mpath_post), in the order in which they were
 * given. MPI's functions are found in the libmpi that the process has loaded, whose handles are pointers (Open
 * MPI), so this file needs no mpi.h, and one library serves all releases. CUDA's driver is looked for at run time, and
 * so are the functions of Python's stable interface that read lists. Tensors are read through the table of DLPack's C
 * exchange, which PyTorch has from 2.10 on.
 *
 * Python is called by who makes a call of the queue, and never with the lock held: to make a call that is
 * Python's (MPATH_BODY), when one has failed, and when one has ended whose end somebody wants to be told. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* How long a thread looks before it sleeps: about what it takes to be woken. */
enum { SPIN_NS = 20000, NS_PER_S = 1000000000, MOST_DEVICES = 64 };

enum mpath_operation {
    MPATH_BODY,
    MPATH_ALLTOALLV,
    MPATH_ALLGATHER,
    MPATH_REDUCE_SCATTER_BLOCK,
    MPATH_ALLREDUCE,
    MPATH_BARRIER
};

/* Of a call. FAILED: MPI's error is in rc. CUDA_FAILED: the driver's is. STOPPED: the group was given up while the
 * call was under way, so MPI may still use its buffers. BROKEN: the group had been given up before. RAISED: its
 * Python function has raised an exception. ENDED: the group was destroyed before. */
enum mpath_state {
    MPATH_PENDING,
    MPATH_DONE,
    MPATH_FAILED,
    MPATH_CUDA_FAILED,
    MPATH_STOPPED,
    MPATH_BROKEN,
    MPATH_RAISED,
    MPATH_ENDED
};

typedef struct mpath_event {
    void *event;
    int32_t device;
    struct mpath_event *next;
} mpath_event_t;

/* Python's until it is made or posted, and again once it is no more pending. The fields are those of Call in
 * native.py, in this order. */
typedef struct mpath_call {
    const void *send;
    const int *send_counts, *send_places;
    void *send_type;
    void *receive;
    const int *receive_counts, *receive_places;
    void *receive_type;
    void *reduction; /* MPI_Op */
    void *stream;    /* what it has now comes before the call */
    int64_t key;     /* by which Python knows the call */
    int32_t operation;
    int32_t count;
    int32_t device; /* whose stream that is; -1: none */
    int32_t rc;
    int64_t number;   /* in its group, from 1 on */
    int64_t began_ns; /* when MPI or Python was called, 0 before */
    int32_t is_told;  /* the end of the call is told to Python */
    _Atomic int32_t state;
    mpath_event_t *event; /* of the stream, once posted */
    struct mpath_call *next;
} mpath_call_t;

typedef struct mpath_group {
    void *communicator;
    int size;
    void *byte;          /* MPI_BYTE */
    int stops;           /* see Communicator in mpi.py */
    pid_t pid;           /* of who made it: MPI is not for processes that are forked later */
    void (*start)(void); /* of the thread; may be NULL */
    int (*body)(int64_t key);
    void (*failed)(int64_t key, int state, int rc);
    void (*told)(int64_t key);
    pthread_mutex_t lock;
    pthread_cond_t posted, ended;
    mpath_call_t *head, **tail;
    _Atomic int number_posted; /* in the queue */
    mpath_call_t *current;
    int is_busy; /* a call is being made */
    int is_broken, is_ending, has_thread;
    int sleepers; /* in mpath_wait() */
    int64_t number;
    mpath_event_t *events; /* not in use */
    void *requests[2];     /* of the call, and the one that stops it */
    void *stop;            /* the latter, until it is completed */
    pthread_t thread;
} mpath_group_t;

#define MPI_FUNCTIONS(X)                                                                                               \
    X(Alltoallv, (const void *, const int *, const int *, void *, void *, const int *, const int *, void *, void *))   \
    X(Ialltoallv,                                                                                                      \
      (const void *, const int *, const int *, void *, void *, const int *, const int *, void *, void *, void **))     \
    X(Allgather, (const void *, int, void *, void *, int, void *, void *))                                             \
    X(Iallgather, (const void *, int, void *, void *, int, void *, void *, void **))                                   \
    X(Reduce_scatter_block, (const void *, void *, int, void *, void *, void *))                                       \
    X(Ireduce_scatter_block, (const void *, void *, int, void *, void *, void *, void **))                             \
    X(Allreduce, (const void *, void *, int, void *, void *, void *))                                                  \
    X(Iallreduce, (const void *, void *, int, void *, void *, void *, void **))                                        \
    X(Barrier, (void *))                                                                                               \
    X(Ibarrier, (void *, void **))                                                                                     \
    X(Waitany, (int, void **, int *, void *))                                                                          \
    X(Grequest_start, (int (*)(void *, void *), int (*)(void *), int (*)(void *, int), void *, void **))               \
    X(Grequest_complete, (void *))                                                                                     \
    X(Request_free, (void **))

#define CUDA_FUNCTIONS(X)                                                                                              \
    X(DeviceGet, cuDeviceGet, (int *, int))                                                                            \
    X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **, int))                                                \
    X(CtxPushCurrent, cuCtxPushCurrent_v2, (void *))                                                                   \
    X(CtxPopCurrent, cuCtxPopCurrent_v2, (void **))                                                                    \
    X(StreamIsCapturing, cuStreamIsCapturing, (void *, int *))                                                         \
    X(StreamSynchronize, cuStreamSynchronize, (void *))                                                                \
    X(EventCreate, cuEventCreate, (void **, unsigned))                                                                 \
    X(EventRecord, cuEventRecord, (void *, void *))                                                                    \
    X(EventSynchronize, cuEventSynchronize, (void *))                                                                  \
    X(EventDestroy, cuEventDestroy_v2, (void *))

enum { CUDA_EVENT_DISABLE_TIMING = 2 };

/* Python's objects are pointers here, those of threads, too. All but RestoreThread with the interpreter lock. */
#define PYTHON_FUNCTIONS(X)                                                                                            \
    X(intptr_t, List_Size, (void *))                                                                                   \
    X(void *, List_GetItem, (void *, intptr_t))                                                                        \
    X(long long, Long_AsLongLong, (void *))                                                                            \
    X(void, Err_Clear, (void))                                                                                         \
    X(void *, Eval_SaveThread, (void))                                                                                 \
    X(void, Eval_RestoreThread, (void *))

#define POINTER(name, arguments) int(*name) arguments;
#define CUDA_POINTER(name, symbol, arguments) int(*name) arguments;
#define PYTHON_POINTER(result, name, arguments) result(*name) arguments;
static struct {
    MPI_FUNCTIONS(POINTER)
} mpi;
static struct {
    CUDA_FUNCTIONS(CUDA_POINTER)
} cuda;
static struct {
    PYTHON_FUNCTIONS(PYTHON_POINTER)
} python;

/* What DLPack 1.x lays down (its header dlpack.h): a tensor as its owner describes it, and the owner's functions. */
enum { DLPACK_MAJOR = 1, DLPACK_CPU = 1, DLPACK_CUDA = 2, BITS_PER_BYTE = 8 };

typedef struct mpath_tensor {
    void *data;
    int32_t device_kind, device;
    int32_t dimensions;
    uint8_t code, bits;
    uint16_t lanes;
    const int64_t *shape, *strides; /* in elements */
    uint64_t offset;                /* of the first element, in bytes */
} mpath_tensor_t;

typedef struct mpath_tensors {
    uint32_t major, minor;
    void *former;
    void *not_used[3];
    int (*describe)(void *object, mpath_tensor_t *tensor); /* as long as the object lives */
    int (*current_stream)(int device_kind, int32_t device, void **stream_p);
} mpath_tensors_t;

static const mpath_tensors_t *tensors; /* PyTorch's; NULL: it has none */
static void *contexts[MOST_DEVICES];
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- libraries ----------------------------------------------------------------------------------------------- */

/* The name of a function of MPI that `library`, from dlopen(), does not have; NULL: all are there. */
const char *mpath_open_mpi(void *library)
{
#define FIND(name, arguments)                                                                                          \
    if ((mpi.name = (int(*) arguments)dlsym(library, "MPI_" #name)) == NULL) {                                         \
        return "MPI_" #name;                                                                                           \
    }
    MPI_FUNCTIONS(FIND)
    return NULL;
}

/* The same of CUDA's driver. */
const char *mpath_open_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        return "libcuda.so.1";
    }
#define CUDA_FIND(name, symbol, arguments)                                                                             \
    if ((cuda.name = (int(*) arguments)dlsym(library, #symbol)) == NULL) {                                             \
        return #symbol;                                                                                                \
    }
    CUDA_FUNCTIONS(CUDA_FIND)
    return NULL;
}

/* The same of Python. `table`: of PyTorch's tensors. */
const char *mpath_open_tensors(const mpath_tensors_t *table)
{
#define PYTHON_FIND(result, name, arguments)                                                                           \
    if ((python.name = (result(*) arguments)dlsym(RTLD_DEFAULT, "Py" #name)) == NULL) {                                \
        return "Py" #name;                                                                                             \
    }
    PYTHON_FUNCTIONS(PYTHON_FIND)
    if (table->major != DLPACK_MAJOR || table->describe == NULL) {
        return "DLPack 1";
    }
    tensors = table;
    return NULL;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* --- CUDA ---------------------------------------------------------------------------------------------------- */

/* Makes the device's primary context, which PyTorch uses, the thread's current one, until CtxPopCurrent. Stream 0
 * is that of the current context. */
static int context_enter(int device)
{
    int rc = 0, handle;
    if (device >= MOST_DEVICES) {
        return 101; /* CUDA_ERROR_INVALID_DEVICE */
    }
    pthread_mutex_lock(&contexts_lock);
    if (contexts[device] == NULL && (rc = cuda.DeviceGet(&handle, device)) == 0) {
        rc = cuda.DevicePrimaryCtxRetain(&contexts[device], handle);
    }
    pthread_mutex_unlock(&contexts_lock);
    return rc != 0 ? rc : cuda.CtxPushCurrent(contexts[device]);
}

static void context_leave(void)
{
    void *context;
    cuda.CtxPopCurrent(&context);
}

/* An event of the device that is not in use; NULL: one is to be made. */
static mpath_event_t *event_take(mpath_group_t *group, int device)
{
    mpath_event_t **at = &group->events, *found;
    while (*at != NULL && (*at)->device != device) {
        at = &(*at)->next;
    }
    found = *at;
    if (found != NULL) {
        *at = found->next;
    }
    return found;
}

static void event_give_back(mpath_group_t *group, mpath_call_t *call)
{
    if (call->event != NULL) {
        call->event->next = group->events;
        group->events     = call->event;
        call->event       = NULL;
    }
}

/* Marks the end of what the call's stream has now. */
static int event_record(mpath_group_t *group, mpath_call_t *call)
{
    int rc = context_enter(call->device);
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&group->lock);
    call->event = event_take(group, call->device);
    pthread_mutex_unlock(&group->lock);
    if (call->event == NULL) {
        call->event = calloc(1, sizeof(*call->event));
        rc          = call->event == NULL ? 2 /* CUDA_ERROR_OUT_OF_MEMORY */
                                          : cuda.EventCreate(&call->event->event, CUDA_EVENT_DISABLE_TIMING);
        if (rc != 0) {
            free(call->event);
            call->event = NULL;
        } else {
            call->event->device = call->device;
        }
    }
    if (rc == 0) {
        rc = cuda.EventRecord(call->event->event, call->stream);
    }
    context_leave();
    return rc;
}

/* Waits until the stream has come to the call. */
static int stream_wait(mpath_call_t *call)
{
    mpath_event_t *event = call->event;
    int rc;
    if (event != NULL) {
        return cuda.EventSynchronize(event->event);
    }
    rc = context_enter(call->device);
    if (rc == 0) {
        rc = cuda.StreamSynchronize(call->stream);
        context_leave();
    }
    return rc;
}

/* --- one call ------------------------------------------------------------------------------------------------ */

static int collective_block(mpath_group_t *group, mpath_call_t *c)
{
    switch (c->operation) {
    case MPATH_ALLTOALLV:
        return mpi.Alltoallv(c->send, c->send_counts, c->send_places, c->send_type, c->receive, c->receive_counts,
                             c->receive_places, c->receive_type, group->communicator);
    case MPATH_ALLGATHER:
        return mpi.Allgather(c->send, c->count, c->send_type, c->receive, c->count, c->send_type, group->communicator);
    case MPATH_REDUCE_SCATTER_BLOCK:
        return mpi.Reduce_scatter_block(c->send, c->receive, c->count, c->send_type, c->reduction, group->communicator);
    case MPATH_ALLREDUCE:
        return mpi.Allreduce(c->send, c->receive, c->count, c->send_type, c->reduction, group->communicator);
    default:
        return mpi.Barrier(group->communicator);
    }
}

static int collective_begin(mpath_group_t *group, mpath_call_t *c)
{
    void **request = &group->requests[0];
    switch (c->operation) {
    case MPATH_ALLTOALLV:
        return mpi.Ialltoallv(c->send, c->send_counts, c->send_places, c->send_type, c->receive, c->receive_counts,
                              c->receive_places, c->receive_type, group->communicator, request);
    case MPATH_ALLGATHER:
        return mpi.Iallgather(c->send, c->count, c->send_type, c->receive, c->count, c->send_type, group->communicator,
                              request);
    case MPATH_REDUCE_SCATTER_BLOCK:
        return mpi.Ireduce_scatter_block(c->send, c->receive, c->count, c->send_type, c->reduction, group->communicator,
                                         request);
    case MPATH_ALLREDUCE:
        return mpi.Iallreduce(c->send, c->receive, c->count, c->send_type, c->reduction, group->communicator, request);
    default:
        return mpi.Ibarrier(group->communicator, request);
    }
}

/* The call by MPI, to its end: its state. By who has the turn: also by Python's functions (MPATH_BODY), for calls
 * that are parts of theirs. */
int mpath_execute(mpath_group_t *group, mpath_call_t *call)
{
    int which = 0;
    if (!group->stops) {
        call->rc = collective_block(group, call);
        return call->rc == 0 ? MPATH_DONE : MPATH_FAILED;
    }
    call->rc = collective_begin(group, call);
    if (call->rc == 0) {
        call->rc = mpi.Waitany(2, group->requests, &which, NULL);
    }
    return call->rc != 0 ? MPATH_FAILED : which != 0 ? MPATH_STOPPED : MPATH_DONE;
}

/* By who has the turn. */
static int call_make(mpath_group_t *group, mpath_call_t *call)
{
    if (call->device >= 0) {
        call->rc = stream_wait(call);
        if (call->rc != 0) {
            return MPATH_CUDA_FAILED;
        }
    }
    __atomic_store_n(&call->began_ns, now_ns(), __ATOMIC_RELAXED);
    return call->operation == MPATH_BODY ? group->body(call->key) : mpath_execute(group, call);
}

/* The last thing done to a call, which is Python's again; with the lock held. */
static void call_end(mpath_group_t *group, mpath_call_t *call, int state)
{
    event_give_back(group, call);
    atomic_store(&call->state, state);
    if (group->sleepers > 0) {
        pthread_cond_broadcast(&group->ended);
    }
}

/* Ends the turn of a call, unless the group was given up meanwhile: then the call is no more known here. 1: Python
 * is to be told. */
static int turn_end(mpath_group_t *group, mpath_call_t *call, int state)
{
    int is_told = 0;
    pthread_mutex_lock(&group->lock);
    group->is_busy = 0;
    if (group->current == call) {
        group->current = NULL;
        is_told        = call->is_told;
        call_end(group, call, state);
    }
    if (group->head != NULL) {
        pthread_cond_signal(&group->posted);
    }
    pthread_mutex_unlock(&group->lock);
    return is_told;
}

/* The first call of the queue gets its turn; with the lock held. */
static mpath_call_t *turn_take(mpath_group_t *group)
{
    mpath_call_t *call = group->head;
    group->head        = call->next;
    if (group->head == NULL) {
        group->tail = &group->head;
    }
    atomic_fetch_sub(&group->number_posted, 1);
    group->is_busy = 1;
    group->current = call;
    return call;
}

/* The call whose turn it is, to its end, and what Python has to do with that. */
static void turn_make(mpath_group_t *group, mpath_call_t *call)
{
    int64_t key = call->key;
    int state   = call_make(group, call);
    if (state == MPATH_FAILED || state == MPATH_CUDA_FAILED) {
        group->failed(key, state, call->rc); /* gives the group up, and with it the call */
    }
    if (turn_end(group, call, state)) {
        group->told(key);
    }
}

/* --- the group's thread -------------------------------------------------------------------------------------- */

/* The next call, whose turn it is; NULL: there will be none. */
static mpath_call_t *thread_next(mpath_group_t *group)
{
    mpath_call_t *call = NULL;
    int64_t until      = now_ns() + SPIN_NS;
    while (atomic_load_explicit(&group->number_posted, memory_order_relaxed) == 0 && now_ns() < until) {
        sched_yield();
    }
    pthread_mutex_lock(&group->lock);
    while (!group->is_broken && (group->is_busy || (group->head == NULL && !group->is_ending))) {
        pthread_cond_wait(&group->posted, &group->lock);
    }
    if (!group->is_broken && group->head != NULL) {
        call = turn_take(group);
    }
    pthread_mutex_unlock(&group->lock);
    return call;
}

static void *thread_run(void *argument)
{
    mpath_group_t *group = argument;
    mpath_call_t *call;
    if (group->start != NULL) {
        group->start();
    }
    while ((call = thread_next(group)) != NULL) {
        turn_make(group, call);
    }
    return NULL;
}

/* Puts the call at the end of the queue; with the lock held. */
static int queue_put(mpath_group_t *group, mpath_call_t *call)
{
    if (!group->has_thread) {
        if (pthread_create(&group->thread, NULL, thread_run, group) != 0) {
            return 0;
        }
        group->has_thread = 1;
    }
    call->next   = NULL;
    *group->tail = call;
    group->tail  = &call->next;
    atomic_fetch_add(&group->number_posted, 1);
    pthread_cond_signal(&group->posted);
    return 1;
}

/* Why no call can begin; 0: it can. With the lock held. */
static int group_refuses(const mpath_group_t *group)
{
    return group->is_broken ? MPATH_BROKEN : group->is_ending ? MPATH_ENDED : 0;
}

static void call_open(mpath_group_t *group, mpath_call_t *call)
{
    call->number   = ++group->number;
    call->began_ns = 0;
    atomic_store(&call->state, MPATH_PENDING);
}

/* --- all_to_all_single ---------------------------------------------------------------------------------------- */

/* The rows of a dense tensor and the bytes of each; 0: it is not one that is described here. */
static int rows_read(void *object, mpath_tensor_t *tensor, int64_t *rows_p, int64_t *row_bytes_p)
{
    int64_t elements = 1; /* of a row, at the end */
    if (tensors->describe(object, tensor) != 0 || tensor->dimensions < 1 || tensor->lanes != 1 ||
        tensor->bits % BITS_PER_BYTE != 0) {
        return 0;
    }
    for (int i = tensor->dimensions - 1; i > 0; i--) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != elements) {
            return 0;
        }
        elements *= tensor->shape[i];
    }
    *rows_p      = tensor->shape[0];
    *row_bytes_p = elements * (tensor->bits / BITS_PER_BYTE);
    return tensor->shape[0] <= 1 || tensor->strides[0] == elements;
}

/* Counts and displacements in bytes of `size` ranks, whose rows the list tells, or that have equal parts where it is
 * empty; 0: such a list is not for here. */
static int splits_read(void *list, int size, int64_t rows, int64_t row_bytes, int *counts, int *places)
{
    intptr_t length = python.List_Size(list);
    int64_t sum     = 0;
    if ((length != size && (length != 0 || rows % size != 0)) || (row_bytes > 0 && rows > INT32_MAX / row_bytes)) {
        return 0;
    }
    for (int rank = 0; rank < size; rank++) {
        int64_t part = rows / size;
        if (length != 0) {
            void *item = python.List_GetItem(list, rank);
            part       = item == NULL ? -1 : python.Long_AsLongLong(item);
        }
        if (part < 0 || part > rows - sum) {
            return 0;
        }
        counts[rank] = (int)(part * row_bytes);
        places[rank] = (int)(sum * row_bytes);
        sum += part;
    }
    return sum == rows;
}

static int alltoall_read(const mpath_group_t *group, mpath_call_t *call, int *sizes, void *output, void *input,
                         void *output_splits, void *input_splits)
{
    mpath_tensor_t to = {.data = NULL}, from = {.data = NULL};
    int64_t to_rows, to_row_bytes, from_rows, from_row_bytes;
    int size = group->size, is_capturing = 0;
    if (!rows_read(output, &to, &to_rows, &to_row_bytes) || !rows_read(input, &from, &from_rows, &from_row_bytes) ||
        to.code != from.code || to.bits != from.bits || to.device_kind != from.device_kind ||
        to.device != from.device || (from.device_kind != DLPACK_CPU && from.device_kind != DLPACK_CUDA) ||
        !splits_read(input_splits, size, from_rows, from_row_bytes, sizes, sizes + size) ||
        !splits_read(output_splits, size, to_rows, to_row_bytes, sizes + 2 * size, sizes + 3 * size)) {
        return 0;
    }
    call->device = -1;
    if (from.device_kind == DLPACK_CUDA) {
        call->device = from.device;
        if (tensors->current_stream(DLPACK_CUDA, from.device, &call->stream) != 0 ||
            (call->stream != NULL && (cuda.StreamIsCapturing(call->stream, &is_capturing) != 0 || is_capturing != 0))) {
            return 0;
        }
    }
    call->send           = (char *)from.data + from.offset;
    call->receive        = (char *)to.data + to.offset;
    call->send_counts    = sizes;
    call->send_places    = sizes + size;
    call->receive_counts = sizes + 2 * size;
    call->receive_places = sizes + 3 * size;
    call->send_type = call->receive_type = group->byte;
    return 1;
}

/* Fills in the call of an all_to_all_single, its stream included. Tensors are PyTorch's and of no class derived from
 * them, splits are lists, `sizes` takes four numbers for each rank and lives with the call. 0: it is wrong, or too
 * rare for here; calls.py knows. With the interpreter lock. */
int mpath_describe(const mpath_group_t *group, mpath_call_t *call, int *sizes, void *output, void *input,
                   void *output_splits, void *input_splits)
{
    int is_read = tensors != NULL && group->pid == getpid() &&
                  alltoall_read(group, call, sizes, output, input, output_splits, input_splits);
    if (!is_read && tensors != NULL) {
        python.Err_Clear();
    }
    return is_read;
}

/* The same, and makes the call at once: its state. MPATH_PENDING: nothing was done, as it is not for here, something
 * is before it, or it could not be stopped. `call` and `sizes` are the group's, of whoever has the turn. */
int mpath_exchange(mpath_group_t *group, mpath_call_t *call, int *sizes, void *output, void *input, void *output_splits,
                   void *input_splits)
{
    int state, is_mine;
    void *thread;
    pthread_mutex_lock(&group->lock);
    is_mine = group->stops && !group->is_busy && group->head == NULL && group_refuses(group) == 0;
    group->is_busy |= is_mine;
    pthread_mutex_unlock(&group->lock);
    if (!is_mine) {
        return MPATH_PENDING;
    }
    if (!mpath_describe(group, call, sizes, output, input, output_splits, input_splits)) {
        turn_end(group, call, MPATH_PENDING);
        return MPATH_PENDING;
    }
    pthread_mutex_lock(&group->lock);
    state = group_refuses(group);
    if (state == 0) {
        call_open(group, call);
        group->current = call;
    }
    pthread_mutex_unlock(&group->lock);
    if (state != 0) {
        turn_end(group, call, state);
        return state;
    }
    thread = python.Eval_SaveThread();
    state  = call_make(group, call);
    if (state == MPATH_DONE) {
        turn_end(group, call, state);
    } /* else the turn is not given to anybody: the caller gives the group up */
    python.Eval_RestoreThread(thread);
    return state;
}

/* --- what Python calls --------------------------------------------------------------------------------------- */

/* Both sides of the interface are of one release. */
int64_t mpath_layout(void)
{
    return (int64_t)sizeof(mpath_call_t) * 1000 + 3;
}

static int stop_query(void *state, void *status)
{
    (void)state;
    (void)status;
    return 0;
}

static int stop_free(void *state)
{
    (void)state;
    return 0;
}

static int stop_cancel(void *state, int complete)
{
    (void)state;
    (void)complete;
    return 0;
}

/* NULL: no memory, or MPI cannot make the request that stops calls. */
mpath_group_t *mpath_group_create(void *communicator, int size, void *byte, int stops)
{
    mpath_group_t *group = calloc(1, sizeof(*group));
    pthread_condattr_t attributes;
    if (group == NULL) {
        return NULL;
    }
    group->communicator = communicator;
    group->size         = size;
    group->byte         = byte;
    group->pid          = getpid();
    group->stops        = stops;
    group->tail         = &group->head;
    if (stops && mpi.Grequest_start(stop_query, stop_free, stop_cancel, NULL, &group->stop) != 0) {
        free(group);
        return NULL;
    }
    group->requests[1] = group->stop;
    pthread_mutex_init(&group->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&group->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_cond_init(&group->posted, NULL);
    return group;
}

/* Python's functions; before the first call. */
void mpath_group_functions(mpath_group_t *group, void (*start)(void), int (*body)(int64_t),
                           void (*failed)(int64_t, int, int), void (*told)(int64_t))
{
    group->start  = start;
    group->body   = body;
    group->failed = failed;
    group->told   = told;
}

/* Makes the call at once, to its end, where nothing is before it and it can be stopped; else queues it, and it is
 * pending. */
int mpath_make(mpath_group_t *group, mpath_call_t *call)
{
    int state, is_mine = 0;
    pthread_mutex_lock(&group->lock);
    state = group_refuses(group);
    if (state == 0) {
        call_open(group, call);
        is_mine = group->stops && !group->is_busy && group->head == NULL;
        if (is_mine) {
            group->is_busy = 1;
            group->current = call;
        } else if (!queue_put(group, call)) {
            state = MPATH_ENDED;
        }
    }
    pthread_mutex_unlock(&group->lock);
    if (!is_mine) {
        return state;
    }
    state = call_make(group, call);
    if (state == MPATH_DONE) {
        turn_end(group, call, state);
    } /* else the turn is not given to anybody: the caller gives the group up */
    return state;
}

/* Queues the call: MPATH_PENDING, or why that cannot be. */
int mpath_post(mpath_group_t *group, mpath_call_t *call)
{
    int state;
    if (call->device >= 0 && (call->rc = event_record(group, call)) != 0) {
        return MPATH_CUDA_FAILED;
    }
    pthread_mutex_lock(&group->lock);
    state = group_refuses(group);
    if (state == 0) {
        call_open(group, call);
        if (!queue_put(group, call)) {
            state = MPATH_ENDED;
        }
    }
    if (state != 0) {
        call_end(group, call, state);
    }
    pthread_mutex_unlock(&group->lock);
    return state;
}

/* The state of a call that was queued. */
int mpath_state(mpath_call_t *call)
{
    return atomic_load(&call->state);
}

/* Whoever waits for a call that the group's thread has not begun can make it, which saves two hand-overs. */
static int wait_makes(mpath_group_t *group, mpath_call_t *call)
{
    int is_mine;
    pthread_mutex_lock(&group->lock);
    is_mine = group->head == call && !group->is_busy && group->stops && call->operation != MPATH_BODY;
    if (is_mine) {
        turn_take(group);
    }
    pthread_mutex_unlock(&group->lock);
    if (is_mine) {
        turn_make(group, call);
    }
    return is_mine;
}

/* The same, once it is no more pending or the time is over. `makes`: the caller may make the call, and the time
 * does not count then. */
int mpath_wait(mpath_group_t *group, mpath_call_t *call, int64_t timeout_ns, int makes)
{
    int64_t begin = now_ns(), until = begin + timeout_ns;
    struct timespec deadline = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
    int rc                   = 0;
    if (makes && atomic_load(&call->state) == MPATH_PENDING && wait_makes(group, call)) {
        return atomic_load(&call->state);
    }
    while (atomic_load_explicit(&call->state, memory_order_acquire) == MPATH_PENDING && now_ns() - begin < SPIN_NS) {
        sched_yield();
    }
    if (atomic_load(&call->state) != MPATH_PENDING) {
        return atomic_load(&call->state);
    }
    pthread_mutex_lock(&group->lock);
    group->sleepers++;
    while (atomic_load(&call->state) == MPATH_PENDING && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&group->ended, &group->lock, &deadline);
    }
    group->sleepers--;
    pthread_mutex_unlock(&group->lock);
    return atomic_load(&call->state);
}

/* The end of a queued call is to be told. 0: it has come already. */
int mpath_tell(mpath_group_t *group, mpath_call_t *call)
{
    int is_pending;
    pthread_mutex_lock(&group->lock);
    is_pending    = atomic_load(&call->state) == MPATH_PENDING;
    call->is_told = is_pending;
    pthread_mutex_unlock(&group->lock);
    return is_pending;
}

/* A number for a call that is not made. */
int64_t mpath_number(mpath_group_t *group)
{
    int64_t number;
    pthread_mutex_lock(&group->lock);
    number = ++group->number;
    pthread_mutex_unlock(&group->lock);
    return number;
}

/* The call under way: 0, or 1 and its key, its number and how long it has been there. */
int mpath_look(mpath_group_t *group, int64_t *key, int64_t *number, int64_t *ns)
{
    int64_t began = 0;
    pthread_mutex_lock(&group->lock);
    if (group->current != NULL) {
        began   = __atomic_load_n(&group->current->began_ns, __ATOMIC_RELAXED);
        *key    = group->current->key;
        *number = group->current->number;
    }
    pthread_mutex_unlock(&group->lock);
    *ns = now_ns() - began;
    return began != 0;
}

/* Gives the group up: calls that wait are broken, one under way is stopped, whoever makes it. The key of the
 * latter, of which MPI may still use the buffers, or -1. */
int64_t mpath_break(mpath_group_t *group)
{
    int64_t key = -1;
    void *stop;
    pthread_mutex_lock(&group->lock);
    group->is_broken = 1;
    if (group->current != NULL) {
        mpath_call_t *call = group->current;
        key                = call->key;
        group->current     = NULL;
        atomic_store(&call->state, MPATH_STOPPED); /* its event stays: who makes the call may be waiting for it */
    }
    while (group->head != NULL) {
        mpath_call_t *call = group->head;
        group->head        = call->next;
        call_end(group, call, MPATH_BROKEN);
    }
    group->tail = &group->head;
    atomic_store(&group->number_posted, 0);
    stop        = group->stop;
    group->stop = NULL;
    pthread_cond_broadcast(&group->posted);
    pthread_cond_broadcast(&group->ended);
    pthread_mutex_unlock(&group->lock);
    if (stop != NULL) {
        mpi.Grequest_complete(stop);
    }
    return key;
}

/* Completes and frees the request that stops calls, when no call will come; MPI's error. */
int mpath_group_release(mpath_group_t *group)
{
    int rc = 0;
    if (group->stop != NULL) {
        rc          = mpi.Grequest_complete(group->stop);
        group->stop = NULL;
        if (rc == 0) {
            rc = mpi.Request_free(&group->requests[1]);
        }
    }
    return rc;
}

/* Ends the thread once the queue is empty. Where the group was given up, the thread may be in MPI for ever and is
 * left alone, with the group. */
void mpath_group_end(mpath_group_t *group)
{
    int joins;
    pthread_mutex_lock(&group->lock);
    group->is_ending = 1;
    joins            = group->has_thread && !group->is_broken;
    pthread_cond_broadcast(&group->posted);
    pthread_mutex_unlock(&group->lock);
    if (joins) {
        pthread_join(group->thread, NULL);
        group->has_thread = 0;
    }
}

/* After mpath_group_end(), of a group that was not given up. */
void mpath_group_free(mpath_group_t *group)
{
    if (group->has_thread || group->is_broken || !group->is_ending) {
        return;
    }
    while (group->events != NULL) {
        mpath_event_t *event = group->events;
        group->events        = event->next;
        cuda.EventDestroy(event->event);
        free(event);
    }
    pthread_cond_destroy(&group->posted);
    pthread_cond_destroy(&group->ended);
    pthread_mutex_destroy(&group->lock);
    free(group);
}
