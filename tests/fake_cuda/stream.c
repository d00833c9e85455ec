/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: a thread each that takes work in order. Events. Copies, words, kernel launches. */
#define _GNU_SOURCE
#include "fake.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* After that long a wait for a stream means that it never ends. */
#define DRAIN_S 60

typedef struct fake_op {
    struct fake_op *next;
    fake_op_kind_t kind;
    uint64_t target, source, bytes, value; /* of WRITE and WAIT: the word is the target */
    int queued;                            /* in the one queue of all streams */
    uint64_t after;                        /* pieces of work before it there */
    unsigned ctas, threads;
    mpath_cu_event_t event;
    uint64_t ticket; /* of RECORD */
    const struct mpath_device_function *function;
    void *arguments;
} fake_op_t;

struct mpath_device_event {
    uint64_t recorded, passed; /* tickets */
    fake_origin_t origin;
};

struct mpath_device_stream {
    struct mpath_device_stream *next;
    struct mpath_device_context *context;
    pthread_t thread;
    fake_op_t *first, **last;
    uint64_t enqueued, finished;
    unsigned random, life; /* the latter of the context */
    int ends, is_default;
    int awaited;         /* by so many threads: it stays until they have seen its end */
    pthread_cond_t work; /* its thread waits for this: others wake no thread in vain, and streams are many */
};

/* Everything below is under this lock, but for the work itself. */
static pthread_mutex_t lock  = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER; /* a stream has got on */
static int watchers;                                     /* threads that wait for it */
static mpath_cu_stream_t streams;
static uint64_t all_enqueued, all_finished; /* in the one queue */

static void nap_us(unsigned us)
{
    struct timespec time = {.tv_nsec = (long)us * 1000};

    nanosleep(&time, NULL);
}

static unsigned delay_us(void)
{
    static atomic_int limit = -1;
    const char *text;

    if (atomic_load(&limit) < 0) {
        text = getenv("FAKE_CUDA_DELAY_US");
        atomic_store(&limit, (text != NULL) ? atoi(text) : 30);
    }
    return (unsigned)atomic_load(&limit);
}

static void word_await(const char *word, uint64_t value)
{
    time_t start_s = time(NULL);

    while ((int64_t)(__atomic_load_n((const uint64_t *)(const void *)word, __ATOMIC_ACQUIRE) - value) < 0) {
        if (time(NULL) - start_s > DRAIN_S) {
            fake_die("a stream still waits for a word to become %" PRIu64 " after %d s", value, DRAIN_S);
        }
        nap_us(20);
    }
}

/* Apart, as nearly always, by memcpy: AddressSanitizer's memmove copies byte by byte. */
static void copy(char *target, const char *source, size_t bytes)
{
    if (target + bytes <= source || source + bytes <= target) {
        memcpy(target, source, bytes);
    } else {
        memmove(target, source, bytes);
    }
}

static void op_run(struct mpath_device_context *context, const fake_op_t *op)
{
    char *target, *source;
    int port;

    switch (op->kind) {
    case FAKE_OP_COPY:
        target = fake_bytes(op->target, op->bytes, context, FAKE_BY_COPY, "cuMemcpyAsync, target");
        source = fake_bytes(op->source, op->bytes, context, FAKE_BY_COPY, "cuMemcpyAsync, source");
        port   = fake_port_begin(op->target, op->source);
        copy(target, source, op->bytes);
        fake_port_end(port);
        break;
    case FAKE_OP_FILL:
        target = fake_bytes(op->target, op->bytes, context, FAKE_BY_COPY, "cuMemsetD8Async");
        memset(target, (int)op->value, op->bytes);
        break;
    case FAKE_OP_WRITE:
        target = fake_bytes(op->target, 8, context, FAKE_BY_KERNEL, "cuStreamWriteValue64");
        __atomic_store_n((uint64_t *)target, op->value, __ATOMIC_RELEASE);
        break;
    case FAKE_OP_WAIT:
        word_await(fake_bytes(op->target, 8, context, FAKE_BY_KERNEL, "cuStreamWaitValue64"), op->value);
        break;
    case FAKE_OP_KERNEL:
        op->function->run(context, op->function->name, op->arguments, op->ctas, op->threads);
        break;
    case FAKE_OP_FREE:
        fake_free(op->target, 1);
        break;
    case FAKE_OP_RECORD:
        pthread_mutex_lock(&lock);
        op->event->passed = (op->event->passed < op->ticket) ? op->ticket : op->event->passed;
        pthread_mutex_unlock(&lock);
        break;
    }
}

/* Under `lock`. */
static void wake_streams(void)
{
    for (mpath_cu_stream_t stream = streams; stream != NULL; stream = stream->next) {
        pthread_cond_signal(&stream->work);
    }
}

static void *stream_main(void *argument)
{
    mpath_cu_stream_t stream = argument;
    fake_op_t *op;

    pthread_mutex_lock(&lock);
    while (!stream->ends || (stream->first != NULL)) {
        op = stream->first;
        if ((op == NULL) || (op->queued && (op->after != all_finished))) {
            pthread_cond_wait(&stream->work, &lock);
            continue;
        }
        stream->first = op->next;
        if (stream->first == NULL) {
            stream->last = &stream->first;
        }
        pthread_mutex_unlock(&lock);
        if (delay_us() > 0) {
            nap_us((unsigned)rand_r(&stream->random) % delay_us());
        }
        op_run(stream->context, op);
        pthread_mutex_lock(&lock);
        if (op->queued) {
            all_finished++;
            wake_streams();
        }
        free(op->arguments);
        free(op);
        stream->finished++;
        if (watchers > 0) {
            pthread_cond_broadcast(&change);
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int stream_known(mpath_cu_stream_t stream)
{
    mpath_cu_stream_t other;

    for (other = streams; (other != NULL) && (other != stream); other = other->next) {
    }
    return other != NULL;
}

static void stream_check(mpath_cu_stream_t stream, const char *call)
{
    mpath_cu_context_t current = fake_need_context(call);
    int known;

    pthread_mutex_lock(&lock);
    known = stream_known(stream);
    pthread_mutex_unlock(&lock);
    if (!known) {
        fake_die("%s on a stream that does not exist", call);
    }
    if (!stream->is_default && (stream->life != stream->context->life)) {
        fake_die("%s on a stream of a context that has ended since", call);
    }
    if (stream->context != current) {
        fake_die("%s on a stream of device %d while the context of device %d is current", call, stream->context->device,
                 current->device);
    }
}

static mpath_cu_stream_t stream_make(mpath_cu_context_t context, int is_default)
{
    mpath_cu_stream_t made = calloc(1, sizeof(*made));

    made->context    = context;
    made->is_default = is_default;
    made->life       = context->life;
    made->last       = &made->first;
    (void)pthread_cond_init(&made->work, NULL);
    pthread_mutex_lock(&lock);
    made->next   = streams;
    streams      = made;
    made->random = (unsigned)getpid() * 31 + (unsigned)(uintptr_t)made;
    pthread_mutex_unlock(&lock);
    if (pthread_create(&made->thread, NULL, stream_main, made) != 0) {
        fake_die("no thread for a stream");
    }
    return made;
}

/* The end of a copy from pageable memory, which is on its way still although the call has returned. */
static struct {
    uint64_t target;
    size_t bytes;
    char data[FAKE_PAGE];
} late;

/* Whoever waits for the default stream, or uses it. */
static void late_arrive(void)
{
    fake_region_t *region;

    pthread_mutex_lock(&fake_lock);
    region = (late.bytes > 0) ? fake_find(late.target) : NULL;
    if (region != NULL) {
        memcpy(region->bytes_at + (late.target - region->base), late.data, late.bytes);
    }
    late.bytes = 0;
    pthread_mutex_unlock(&fake_lock);
}

/* Of the current context; NULL: nothing has been enqueued there yet. */
static mpath_cu_stream_t default_stream(const char *call)
{
    mpath_cu_context_t current = fake_need_context(call);
    mpath_cu_stream_t stream;

    fake_default_stream_is_free(call);
    late_arrive();
    pthread_mutex_lock(&lock);
    for (stream = streams; (stream != NULL) && (!stream->is_default || (stream->context != current));
         stream = stream->next) {
    }
    pthread_mutex_unlock(&lock);
    return stream;
}

static mpath_cu_result_t enqueue(mpath_cu_stream_t stream, fake_op_t *op, const char *call)
{
    if (stream == NULL) {
        stream = default_stream(call);
        stream = (stream == NULL) ? stream_make(fake_need_context(call), 1) : stream;
    }
    stream_check(stream, call);
    pthread_mutex_lock(&lock);
    if (op->kind == FAKE_OP_RECORD) {
        op->ticket = ++op->event->recorded;
    }
    op->queued = getenv("FAKE_CUDA_ONE_QUEUE") != NULL;
    op->after  = all_enqueued;
    all_enqueued += (uint64_t)op->queued;
    op->next      = NULL;
    *stream->last = op;
    stream->last  = &op->next;
    stream->enqueued++;
    pthread_cond_signal(&stream->work);
    pthread_mutex_unlock(&lock);
    return MPATH_CU_SUCCESS;
}

static fake_op_t *op_make(fake_op_kind_t kind)
{
    fake_op_t *op = calloc(1, sizeof(*op));

    op->kind = kind;
    return op;
}

/* Under `lock`. */
static void stream_finish(mpath_cu_stream_t stream, uint64_t until)
{
    struct timespec deadline;

    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += DRAIN_S;
    stream->awaited++;
    watchers++;
    while (stream->finished < until) {
        if (pthread_cond_timedwait(&change, &lock, &deadline) == ETIMEDOUT) {
            fake_die("a stream of device %d still has %" PRIu64 " pieces of work after %d s", stream->context->device,
                     until - stream->finished, DRAIN_S);
        }
    }
    watchers--;
    stream->awaited--;
    if (watchers > 0) {
        pthread_cond_broadcast(&change);
    }
}

/* How many bytes of such a copy are late. */
static size_t late_bytes(mpath_cu_ptr_t target, const void *source, size_t bytes)
{
    fake_region_t *region;
    size_t most = (bytes < FAKE_PAGE) ? bytes : FAKE_PAGE;

    if (getenv("FAKE_CUDA_LATE") == NULL) {
        return 0;
    }
    pthread_mutex_lock(&fake_lock);
    region = fake_find(target);
    most   = ((region == NULL) || region->settled || (fake_find((uint64_t)(uintptr_t)source) != NULL)) ? 0 : most;
    pthread_mutex_unlock(&fake_lock);
    return most;
}

static void finish_default(const char *call)
{
    mpath_cu_stream_t stream = default_stream(call);

    if (stream != NULL) {
        pthread_mutex_lock(&lock);
        stream_finish(stream, stream->enqueued);
        pthread_mutex_unlock(&lock);
    }
}

void fake_drain(const struct mpath_device_context *context)
{
    mpath_cu_stream_t stream;

    late_arrive();
    pthread_mutex_lock(&lock);
    for (stream = streams; stream != NULL; stream = stream->next) {
        if ((context == NULL) || (stream->context == context)) {
            stream_finish(stream, stream->enqueued);
        }
    }
    pthread_mutex_unlock(&lock);
}

FAKE_API mpath_cu_result_t cuStreamCreateWithPriority(mpath_cu_stream_t *stream, unsigned flags, int priority)
{
    (void)priority;
    if (flags != MPATH_CU_STREAM_NON_BLOCKING) {
        fake_die("a stream that waits for the default stream");
    }
    if (fake_without("streams")) {
        return MPATH_CU_OUT_OF_MEMORY;
    }
    *stream = stream_make(fake_need_context("cuStreamCreateWithPriority"), 0);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least    = 0;
    *greatest = -5;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuStreamDestroy_v2(mpath_cu_stream_t stream)
{
    mpath_cu_stream_t *at;

    stream_check(stream, "cuStreamDestroy");
    pthread_mutex_lock(&lock);
    stream->ends = 1;
    pthread_cond_signal(&stream->work);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&lock);
    watchers++;
    while (stream->awaited > 0) {
        pthread_cond_wait(&change, &lock);
    }
    watchers--;
    for (at = &streams; *at != stream; at = &(*at)->next) {
    }
    *at = stream->next;
    pthread_mutex_unlock(&lock);
    (void)pthread_cond_destroy(&stream->work);
    free(stream);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuStreamQuery(mpath_cu_stream_t stream)
{
    mpath_cu_result_t result;

    if (stream == NULL) {
        stream = default_stream("cuStreamQuery");
        if (stream == NULL) {
            return MPATH_CU_SUCCESS;
        }
    }
    stream_check(stream, "cuStreamQuery");
    pthread_mutex_lock(&lock);
    result = (stream->finished == stream->enqueued) ? MPATH_CU_SUCCESS : MPATH_CU_NOT_READY;
    pthread_mutex_unlock(&lock);
    return result;
}

FAKE_API mpath_cu_result_t cuStreamSynchronize(mpath_cu_stream_t stream)
{
    if (stream == NULL) {
        finish_default("cuStreamSynchronize");
        return MPATH_CU_SUCCESS;
    }
    stream_check(stream, "cuStreamSynchronize");
    pthread_mutex_lock(&lock);
    stream_finish(stream, stream->enqueued);
    pthread_mutex_unlock(&lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuEventCreate(mpath_cu_event_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof(**event));
    fake_origin_make(&(*event)->origin, "cuEventCreate");
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuEventDestroy_v2(mpath_cu_event_t event)
{
    fake_origin_check(&event->origin, "cuEventDestroy");
    fake_drain(NULL);
    fake_origin_drop(&event->origin);
    free(event);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuEventRecord(mpath_cu_event_t event, mpath_cu_stream_t stream)
{
    fake_op_t *op = op_make(FAKE_OP_RECORD);

    fake_origin_check(&event->origin, "cuEventRecord");
    op->event = event;
    return enqueue(stream, op, "cuEventRecord");
}

FAKE_API mpath_cu_result_t cuEventQuery(mpath_cu_event_t event)
{
    mpath_cu_result_t result;

    fake_origin_check(&event->origin, "cuEventQuery");
    pthread_mutex_lock(&lock);
    result = (event->passed == event->recorded) ? MPATH_CU_SUCCESS : MPATH_CU_NOT_READY;
    pthread_mutex_unlock(&lock);
    return result;
}

FAKE_API mpath_cu_result_t cuMemcpyAsync(mpath_cu_ptr_t target, mpath_cu_ptr_t source, size_t bytes,
                                         mpath_cu_stream_t stream)
{
    fake_op_t *op = op_make(FAKE_OP_COPY);

    fake_port_count_commands(target, source, bytes);
    op->target = target;
    op->source = source;
    op->bytes  = bytes;
    return enqueue(stream, op, "cuMemcpyAsync");
}

FAKE_API mpath_cu_result_t cuMemcpyBatchAsync_v2(mpath_cu_ptr_t *targets, mpath_cu_ptr_t *sources, size_t *bytes,
                                                 size_t count, mpath_cu_copy_attributes_t *attributes, size_t *indices,
                                                 size_t attributes_count, mpath_cu_stream_t stream)
{
    if ((stream == NULL) || (count == 0) || (attributes_count != 1) || (indices[0] != 0) ||
        (attributes[0].source_order != MPATH_CU_COPY_STREAM_ORDER)) {
        return MPATH_CU_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) { /* in any order: the last one first */
        mpath_cu_result_t result = cuMemcpyAsync(targets[count - 1 - i], sources[count - 1 - i], bytes[count - 1 - i],
                                                 stream);

        if (result != MPATH_CU_SUCCESS) {
            return result;
        }
    }
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemsetD8Async(mpath_cu_ptr_t pointer, unsigned char value, size_t bytes,
                                           mpath_cu_stream_t stream)
{
    fake_op_t *op = op_make(FAKE_OP_FILL);

    op->target = pointer;
    op->value  = value;
    op->bytes  = bytes;
    return enqueue(stream, op, "cuMemsetD8Async");
}

FAKE_API mpath_cu_result_t cuStreamWriteValue64_v2(mpath_cu_stream_t stream, mpath_cu_ptr_t address, uint64_t value,
                                                   unsigned flags)
{
    fake_op_t *op;

    (void)flags;
    if (fake_without("values")) {
        return MPATH_CU_NOT_SUPPORTED;
    }
    op         = op_make(FAKE_OP_WRITE);
    op->target = address;
    op->value  = value;
    return enqueue(stream, op, "cuStreamWriteValue64");
}

FAKE_API mpath_cu_result_t cuStreamWaitValue64_v2(mpath_cu_stream_t stream, mpath_cu_ptr_t address, uint64_t value,
                                                  unsigned flags)
{
    fake_op_t *op;

    if (fake_without("values")) {
        return MPATH_CU_NOT_SUPPORTED;
    }
    if (flags != MPATH_CU_WAIT_GEQ) {
        return MPATH_CU_INVALID_VALUE;
    }
    op         = op_make(FAKE_OP_WAIT);
    op->target = address;
    op->value  = value;
    return enqueue(stream, op, "cuStreamWaitValue64");
}

mpath_cu_result_t fake_enqueue_free(mpath_cu_stream_t stream, uint64_t address)
{
    fake_op_t *op = op_make(FAKE_OP_FREE);

    op->target = address;
    return enqueue(stream, op, "cuMemFreeAsync");
}

mpath_cu_result_t fake_enqueue_kernel(mpath_cu_stream_t stream, const struct mpath_device_context *context,
                                      mpath_cu_function_t function, const void *arguments, unsigned ctas,
                                      unsigned threads)
{
    fake_op_t *op = op_make(FAKE_OP_KERNEL);

    if (context != stream->context) {
        fake_die("%s is launched on a stream of another context than its own", function->name);
    }
    op->function  = function;
    op->ctas      = ctas;
    op->threads   = threads;
    op->arguments = malloc(function->arguments_bytes);
    memcpy(op->arguments, arguments, function->arguments_bytes);
    return enqueue(stream, op, function->name);
}

static void copy_now(mpath_cu_ptr_t target, mpath_cu_ptr_t source, size_t bytes, const char *call)
{
    mpath_cu_context_t context = fake_need_context(call);
    char *to                   = fake_bytes(target, bytes, context, FAKE_BY_COPY, call);

    finish_default(call);
    copy(to, fake_bytes(source, bytes, context, FAKE_BY_COPY, call), bytes);
}

FAKE_API mpath_cu_result_t cuMemcpy(mpath_cu_ptr_t target, mpath_cu_ptr_t source, size_t bytes)
{
    if (bytes > 0) {
        copy_now(target, source, bytes, "cuMemcpy");
    }
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemcpyHtoD_v2(mpath_cu_ptr_t target, const void *source, size_t bytes)
{
    size_t behind = late_bytes(target, source, bytes);

    fake_port_count_commands(target, (uint64_t)(uintptr_t)source, bytes);
    if (bytes > behind) {
        copy_now(target, (uint64_t)(uintptr_t)source, bytes - behind, "cuMemcpyHtoD");
    }
    if (behind > 0) {
        late_arrive();
        (void)fake_bytes(target, bytes, fake_need_context("cuMemcpyHtoD"), FAKE_BY_COPY, "cuMemcpyHtoD");
        pthread_mutex_lock(&fake_lock);
        memcpy(late.data, (const char *)source + bytes - behind, behind);
        late.target = target + bytes - behind;
        late.bytes  = behind;
        pthread_mutex_unlock(&fake_lock);
    }
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemcpy2DAsync_v2(const mpath_cu_copy_2d_t *copy, mpath_cu_stream_t stream)
{
    uint64_t source = (copy->source_type == MPATH_CU_MEMORY_HOST) ? (uint64_t)(uintptr_t)copy->source_host
                                                                  : copy->source;
    uint64_t target = (copy->target_type == MPATH_CU_MEMORY_HOST) ? (uint64_t)(uintptr_t)copy->target_host
                                                                  : copy->target;

    if ((copy->source_pitch < copy->row_bytes) || (copy->target_pitch < copy->row_bytes) ||
        (copy->source_array != NULL) || (copy->target_array != NULL)) {
        return MPATH_CU_INVALID_VALUE;
    }
    for (size_t row = 0; (row < copy->rows) && (copy->row_bytes > 0); row++) {
        fake_op_t *op = op_make(FAKE_OP_COPY);

        op->target = target + (copy->target_y + row) * copy->target_pitch + copy->target_x;
        op->source = source + (copy->source_y + row) * copy->source_pitch + copy->source_x;
        op->bytes  = copy->row_bytes;
        enqueue(stream, op, "cuMemcpy2DAsync");
    }
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemcpyDtoH_v2(void *target, mpath_cu_ptr_t source, size_t bytes)
{
    if (bytes > 0) {
        copy_now((uint64_t)(uintptr_t)target, source, bytes, "cuMemcpyDtoH");
    }
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemsetD8_v2(mpath_cu_ptr_t pointer, unsigned char value, size_t bytes)
{
    if (bytes > 0) {
        memset(fake_bytes(pointer, bytes, fake_need_context("cuMemsetD8"), FAKE_BY_COPY, "cuMemsetD8"), value, bytes);
    }
    return MPATH_CU_SUCCESS;
}
