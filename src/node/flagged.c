/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for kernels that are started before the agreement. */
#include "node/flagged.h"

#include "device/kernels/exchange.h"
#include "node/launches.h"
#include "node/node_private.h"
#include "node/window.h"
#include "team/wait.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

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

/* Whether some rank has: others may not have. */
static int gpu_eager_any(const mpath_gpu_coll_t *coll)
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
           (atomic_load_explicit(&coll->board.words[rank].kernel_done, memory_order_acquire) < coll->number);
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
        if (is_missing(coll, rank) && !mpath_board_is_alive(&coll->board, coll->half, rank) && is_missing(coll, rank)) {
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

/* A wait for a kernel; `all`: for what the ranks do together, else for its end only. */
typedef struct eager_wait {
    const mpath_gpu_coll_t *coll;
    const gpu_eager_kernel_t *kernel;
    int all;
} eager_wait_t;

static mpath_status_t eager_look(void *engine, int *events_p)
{
    const eager_wait_t *wait = engine;
    mpath_status_t status;
    int good;

    *events_p = 0;
    if (!has_ended(wait->kernel, &good)) {
        return MPATH_INPROGRESS;
    }
    if (good || !wait->all) {
        return MPATH_OK;
    }
    status    = launch_again(wait->kernel);
    *events_p = 1;
    return status == MPATH_OK ? MPATH_INPROGRESS : status;
}

static mpath_status_t eager_check(void *engine, uint64_t waited_ns)
{
    const eager_wait_t *wait = engine;
    mpath_status_t status    = wait->all ? check_processes(wait->coll, wait->kernel->what) : MPATH_OK;

    (void)waited_ns;
    return status == MPATH_OK ? check_stream(wait->kernel) : status;
}

static int eager_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    const eager_wait_t *wait  = engine;
    int rank                  = first_missing(wait->coll);
    unsigned long long number = wait->coll->number;

    (void)why;
    *rank_p = rank;
    if (rank >= 0) {
        snprintf(text, size,
                 "rank %d waits for the %s of rank %d in call %llu on device memory, whose GPU has not ended its part",
                 wait->coll->me, wait->kernel->what, rank, number);
    } else {
        snprintf(text, size, "rank %d waits for its own GPU in call %llu on device memory", wait->coll->me, number);
    }
    return 1;
}

mpath_status_t mpath_gpu_eager_await(const mpath_gpu_coll_t *coll, const gpu_eager_kernel_t *kernel, int all)
{
    static const mpath_wait_ops_t ops = {.look = eager_look, .check = eager_check, .edge = eager_edge};
    eager_wait_t engine               = {.coll = coll, .kernel = kernel, .all = all};
    mpath_status_t status;
    mpath_wait_t wait;

    mpath_wait_prepare(&wait, coll->team, 0);
    wait.team = all ? wait.team : NULL;
    wait.oob  = NULL;
    status    = mpath_wait(&wait, &ops, &engine);
    if (mpath_trace_is_on() && status == MPATH_OK) {
        mpath_record_trace_gpu(mpath_team_record(coll->team), mpath_team_call(coll->team), MPATH_TRACE_GPU_KERNEL,
                               kernel->bytes, kernel->began_ns);
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

/*
 * Alltoallv and Allgather of short messages (device/kernels/exchange.h). A rank starts its kernel before the agreement
 * (node/flagged.h): it sends into the others' windows (node/window.h), from where each puts what it expects in its place.
 * Only the rank itself writes to its receive buffer, and nothing but what belongs there; so where the agreement finds
 * that some rank has not started, or that sizes differ, no harm is done: all kernels are called back, and
 * another algorithm carries the call, or it fails.
 *
 * Whether messages are short enough each rank decides from its own row and column. Where that has gone wrong, the next
 * calls do not try it, more of them each time.
 */

/* Of a rank's window, at most: more than the longest messages for which it is faster, of up to 8 ranks. */
#define EXCHANGE_MAX_WINDOW_BYTES (UINT64_C(8) << 20)

/*
 * What it saves: the agreement, and words of host memory that all wait for. And what it costs besides the numbers, which
 * go over the links as the data does: the receiver reads both and writes the data, femtoseconds for each byte of it. From
 * each of 4 H200 half a MiB took 11.6 us so and 13.2 after the agreement, one MiB 15.2 and 14.4.
 */
#define EXCHANGE_SAVED_NS 3300u

#define EXCHANGE_COPY_FS 2000u

/* Even numbers of calls that do not try it, see util/pause.h. */
#define EXCHANGE_PAUSE_FIRST 2u
#define EXCHANGE_PAUSE_MOST 30u

struct gpu_exchange {
    gpu_window_t *window; /* NULL until calls were short enough */
    gpu_launches_t *launches;
    gpu_eager_kernel_t kernel;
    mpath_device_function_t function; /* of the window's GPU */
    mpath_kernel_exchange_t arguments;
    uint64_t counted;    /* the number that the kernel's counters have */
    int started;         /* a kernel, in this call */
    mpath_pause_t pause; /* since it was of no use; the same on all ranks */
};

mpath_status_t mpath_gpu_exchange_create(mpath_gpu_coll_t *gpu)
{
    gpu_exchange_t *exchange;

    if ((gpu->size < 2) || (gpu->size > MPATH_EXCHANGE_RANKS) || !gpu->usable) {
        return MPATH_OK;
    }
    exchange = calloc(1, sizeof(*exchange));
    if (exchange == NULL) {
        goto err_log;
    }
    gpu->exchange      = exchange;
    exchange->launches = mpath_gpu_launches_create();
    if (exchange->launches == NULL) {
        goto err_log;
    }
    return MPATH_OK;

err_log:
    mpath_error("no memory for short messages of %d ranks on device memory", gpu->size);
    return MPATH_ERR_NO_MEMORY;
}

void mpath_gpu_exchange_destroy(mpath_gpu_coll_t *gpu)
{
    if (gpu->exchange != NULL) {
        mpath_gpu_launches_destroy(gpu->exchange->launches);
        mpath_gpu_window_destroy(gpu->exchange->window);
        mpath_pinned_release(&gpu->exchange->kernel.words);
        free(gpu->exchange);
        gpu->exchange = NULL;
    }
}

/* -- which calls -- */

/* Of this rank's row and column. */
typedef struct load {
    uint64_t sent, received; /* from and to others */
    uint64_t own;            /* to itself */
    uint64_t longest;        /* message of another or to one */
} load_t;

static void find_load(const mpath_gpu_coll_t *gpu, const mpath_call_t *call, load_t *load)
{
    *load = (load_t){.own = call->send_bytes[gpu->me]};
    for (int rank = 0; rank < gpu->size; rank++) {
        uint64_t out = call->send_bytes[rank], in = call->recv_bytes[rank];

        if (rank != gpu->me) {
            load->sent += out;
            load->received += in;
            load->longest = (out > load->longest) ? out : load->longest;
            load->longest = (in > load->longest) ? in : load->longest;
        }
    }
}

int mpath_gpu_exchange_pays(const mpath_peer_rates_t *rates, int ranks, uint64_t sent, uint64_t received)
{
    uint64_t port_bytes     = (sent > received) ? sent : received;
    mpath_peer_load_t plain = {.port_bytes = port_bytes + 1, /* 0 takes no time */
                               .both_bytes = sent + received + 1,
                               .fragments  = (unsigned)ranks - 1};
    mpath_peer_load_t twice = {
        .port_bytes = 2 * plain.port_bytes, .both_bytes = 2 * plain.both_bytes, .fragments = plain.fragments};
    uint64_t more_ns = mpath_peer_predict_ns(rates, MPATH_PEER_KERNEL, &twice) -
                       mpath_peer_predict_ns(rates, MPATH_PEER_KERNEL, &plain) +
                       received / 1000 * EXCHANGE_COPY_FS / 1000;

    return more_ns < EXCHANGE_SAVED_NS;
}

/* By what this rank knows. */
static int is_short(const mpath_gpu_coll_t *gpu, const load_t *load)
{
    return mpath_gpu_exchange_pays(&gpu->rates, gpu->size, load->sent, load->received) &&
           (load->own <= EXCHANGE_MAX_WINDOW_BYTES / 2);
}

/* Of one message, in slots; 0: there is no memory. */
static uint64_t slot_bytes(const mpath_gpu_coll_t *gpu)
{
    uint64_t most = gpu->settings->gpu_memory_bytes / 2, slots = 2 * (uint64_t)gpu->size;

    most = (most < EXCHANGE_MAX_WINDOW_BYTES) ? most : EXCHANGE_MAX_WINDOW_BYTES;
    most = mpath_gpu_window_most(gpu->exchange->window, gpu, most);
    return (most > sizeof(mpath_exchange_head_t)) ? (most - sizeof(mpath_exchange_head_t)) / slots & ~UINT64_C(15) : 0;
}

/* Whether this rank's GPU can work on a side; *device_p: that of both, NULL so far. */
static int can_work_on(const mpath_memory_t *memory, uint64_t bytes, mpath_gpu_t **device_p)
{
    mpath_gpu_t *device;

    if (memory == NULL) {
        return bytes == 0;
    }
    if (mpath_memory_on_host(memory->kind) || (memory->kind == MPATH_MEMORY_MANAGED) ||
        (mpath_gpu_get(memory->device, memory->context, &device) != MPATH_OK) ||
        ((*device_p != NULL) && (device != *device_p))) {
        return 0;
    }
    *device_p = device;
    return 1;
}

/* The GPU that could do this rank's part; NULL: none. */
static mpath_gpu_t *gpu_of(const mpath_call_t *call, const load_t *load)
{
    mpath_gpu_t *device = NULL;

    return can_work_on(call->send_memory, load->sent + load->own, &device) &&
                   can_work_on(call->recv_memory, load->received + load->own, &device) && (device != NULL) &&
                   mpath_kernels_usable(device)
               ? device
               : NULL;
}

/* -- the kernel -- */

static mpath_status_t launch(mpath_gpu_coll_t *gpu)
{
    gpu_exchange_t *exchange  = gpu->exchange;
    gpu_eager_launch_t launch = {.function  = exchange->function,
                                 .arguments = &exchange->arguments,
                                 .bytes     = sizeof(exchange->arguments),
                                 .ctas      = exchange->kernel.ctas,
                                 .number    = exchange->kernel.number,
                                 .follows   = exchange->counted + 1 == exchange->kernel.number,
                                 .once      = (int)exchange->arguments.again};
    mpath_status_t status;

    mpath_gpu_coll_lock();
    status = mpath_gpu_launches_start_eager(exchange->launches, exchange->kernel.stream, &launch);
    mpath_gpu_coll_unlock();
    exchange->counted = exchange->kernel.number;
    return status;
}

static mpath_status_t flagged_exchange_launch_again(void *of)
{
    mpath_gpu_coll_t *gpu = of;

    gpu->exchange->arguments.again = 1;
    return launch(gpu);
}

/* Where rank `of` has the slot of rank `from`, in even calls. */
static uint64_t slot_of(const gpu_window_t *window, int of, int from)
{
    return mpath_gpu_window_address(window, of) + sizeof(mpath_exchange_head_t) + (uint64_t)from * window->unit_bytes;
}

static void set_messages(const mpath_gpu_coll_t *gpu, const mpath_call_t *call, mpath_kernel_exchange_t *arguments)
{
    const gpu_window_t *window = gpu->exchange->window;
    uint64_t send = (uint64_t)(uintptr_t)call->send_buffer, recv = (uint64_t)(uintptr_t)call->recv_buffer;

    for (int i = 1; i < gpu->size; i++) { /* GPUs begin with different ones */
        int to = (gpu->me + i) % gpu->size, from = (gpu->me + gpu->size - i) % gpu->size;

        if (call->send_bytes[to] > 0) {
            arguments->send[arguments->send_count++] = (mpath_kernel_message_t){.source = send + call->send_offsets[to],
                                                                                .target = slot_of(window, to, gpu->me),
                                                                                .bytes  = call->send_bytes[to]};
        }
        if (call->recv_bytes[from] > 0) {
            arguments->receive[arguments->receive_count++] = (mpath_kernel_message_t){
                .source = slot_of(window, gpu->me, from),
                .target = recv + call->recv_offsets[from],
                .bytes  = call->recv_bytes[from]};
        }
    }
    arguments->receive[arguments->receive_count++] = (mpath_kernel_message_t){
        .source = send + call->send_offsets[gpu->me],
        .target = recv + call->recv_offsets[gpu->me],
        .bytes  = (call->send_bytes[gpu->me] < call->recv_bytes[gpu->me]) ? call->send_bytes[gpu->me]
                                                                          : call->recv_bytes[gpu->me]};
}

/* This rank's kernel, on the GPU of its window. */
static mpath_status_t start(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    gpu_exchange_t *exchange           = gpu->exchange;
    mpath_kernel_exchange_t *arguments = &exchange->arguments;
    gpu_eager_kernel_t *kernel         = &exchange->kernel;
    mpath_gpu_t *device                = exchange->window->device;
    mpath_status_t status              = mpath_stream_get(device, gpu->first_stream + 1, &kernel->stream);

    if (status != MPATH_OK) {
        return status;
    }
    memset(arguments, 0, sizeof(*arguments)); /* they are compared as bytes */
    arguments->words            = mpath_pinned_device(&kernel->words, kernel->words.base);
    arguments->patience_ns      = GPU_EAGER_PATIENCE_NS;
    arguments->memory           = exchange->window->memory;
    arguments->generation_bytes = (uint64_t)gpu->size * exchange->window->unit_bytes;
    set_messages(gpu, call, arguments);
    kernel->ctas         = mpath_exchange_count(arguments);
    kernel->number       = gpu->number;
    kernel->what         = "message";
    kernel->launch_again = flagged_exchange_launch_again;
    kernel->of           = gpu;
    exchange->started    = 1;
    return launch(gpu);
}

/* What this rank will publish of the call; *device_p: with what it can start a kernel, NULL: for which it needs none. */
static int exchange_state(const mpath_gpu_coll_t *gpu, const mpath_call_t *call, load_t *load, mpath_gpu_t **device_p)
{
    const gpu_window_t *window = gpu->exchange->window;
    int usable                 = (window != NULL) && window->usable;
    mpath_gpu_t *device;

    *device_p = NULL;
    if ((gpu->settings->gpu_way != MPATH_GPU_WAY_AUTO) || (gpu->exchange->pause.left > 0) ||
        (call->flags & (MPATH_CALL_INELIGIBLE | MPATH_CALL_IN_PLACE)) || (mpath_team_status(gpu->team) != MPATH_OK)) {
        return GPU_EAGER_NOT;
    }
    find_load(gpu, call, load);
    if (load->sent + load->received + load->own == 0) {
        return usable ? GPU_EAGER_STARTED : GPU_EAGER_NOT;
    }
    device = is_short(gpu, load) ? gpu_of(call, load) : NULL;
    if ((device == NULL) || (MPATH_EAGER_SLOT_BYTES(load->longest) > (usable ? window->unit_bytes : slot_bytes(gpu)))) {
        return GPU_EAGER_NOT;
    }
    if (usable && (device == window->device)) {
        *device_p = device;
        return GPU_EAGER_STARTED;
    }
    return (call->send_memory != NULL) ? GPU_EAGER_WANTED : GPU_EAGER_NOT; /* the GPU of which all know */
}

uint64_t mpath_gpu_exchange_start(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    gpu_exchange_t *exchange = gpu->exchange;
    mpath_status_t status    = MPATH_OK;
    uint64_t start_ns, launch_ns = 0;
    mpath_gpu_t *device;
    load_t load;

    if (exchange == NULL) {
        return 0;
    }
    exchange->started = 0;
    gpu->eager        = exchange_state(gpu, call, &load, &device);
    if ((gpu->eager == GPU_EAGER_STARTED) && (device != NULL)) {
        start_ns                  = mpath_time_ns();
        exchange->kernel.began_ns = start_ns;
        exchange->kernel.bytes    = load.sent;
        status                    = start(gpu, call);
        launch_ns                 = mpath_time_ns() - start_ns;
    }
    if (status != MPATH_OK) {
        mpath_team_break(gpu->team, status);
    }
    return launch_ns;
}

/* Nobody waits for this rank's kernel, and it is not to wait for others. Without words in streams it ends later. */
static void call_back(const mpath_gpu_coll_t *gpu)
{
    const gpu_exchange_t *exchange = gpu->exchange;
    mpath_stream_t *stream;

    if ((mpath_stream_get(exchange->window->device, gpu->first_stream, &stream) == MPATH_OK) &&
        mpath_stream_has_values(stream)) {
        mpath_gpu_coll_lock();
        (void)mpath_stream_write(stream, exchange->window->memory + offsetof(mpath_exchange_head_t, stop), gpu->number);
        mpath_gpu_coll_unlock();
    }
}

/* What has been seen of all ranks' cells: whether to try it the next time, and that a rank has turned to another GPU. */
static void note_result(mpath_gpu_coll_t *gpu, int eligible, int done)
{
    gpu_exchange_t *exchange = gpu->exchange;

    if (eligible && !done && (exchange->window != NULL) && !mpath_gpu_window_is_current(exchange->window, gpu)) {
        exchange->window->usable = 0;
    }
    if (done) {
        mpath_pause_end(&exchange->pause);
    } else if (!mpath_pause_passes(&exchange->pause) && gpu_eager_any(gpu)) {
        mpath_pause_begin(&exchange->pause, EXCHANGE_PAUSE_FIRST, EXCHANGE_PAUSE_MOST);
    }
}

mpath_status_t mpath_gpu_coll_exchanged(mpath_gpu_coll_t *gpu, const mpath_call_t *call, mpath_status_t agreed,
                                        uint32_t flags, int *done_p)
{
    gpu_exchange_t *exchange = gpu->exchange;
    int eligible             = (agreed == MPATH_OK) && !(flags & MPATH_CALL_INELIGIBLE);
    mpath_status_t status    = agreed;
    load_t load;

    *done_p = 0;
    if ((exchange == NULL) || !gpu->opened || !gpu->usable) {
        return agreed;
    }
    if (!mpath_status_is_error(agreed)) { /* whoever is not eligible has left its cell as it was, and all see that */
        *done_p = eligible && mpath_gpu_eager_all(gpu);
        note_result(gpu, eligible, *done_p);
    }
    if (exchange->started) {
        if (!*done_p) {
            call_back(gpu);
        }
        if (!mpath_status_is_error(agreed)) {
            status = mpath_gpu_eager_await(gpu, &exchange->kernel, *done_p);
        }
        if (mpath_status_is_error(status)) {
            mpath_team_break(gpu->team, status);
            mpath_gpu_eager_abandon(&exchange->kernel);
            return status;
        }
    }
    if (*done_p) {
        find_load(gpu, call, &load);
        atomic_store_explicit(&gpu->board.words[gpu->me].kernel_done, gpu->number, memory_order_release);
        gpu->counters.calls++;
        gpu->counters.eager++;
        gpu->counters.kernel_bytes += load.sent;
    }
    return agreed;
}

/* -- what it needs -- */

mpath_status_t mpath_gpu_exchange_prepare(mpath_gpu_coll_t *gpu)
{
    gpu_exchange_t *exchange = gpu->exchange;
    int size = gpu->size, all = exchange != NULL;
    mpath_status_t status;
    uint64_t slot;

    for (int rank = 0; rank < size; rank++) { /* memory of one that has started may be in use */
        all = all && (gpu_cell(gpu, rank)->eager == GPU_EAGER_WANTED);
    }
    if (!all) {
        return MPATH_OK;
    }
    if (exchange->window == NULL) {
        exchange->window = mpath_gpu_window_create(size, gpu->me);
        if (exchange->window == NULL) {
            mpath_error("no memory for short messages of %d ranks on device memory; the call fails", size);
            return MPATH_ERR_NO_MEMORY; /* the others count on it */
        }
    }
    if (!mpath_gpu_window_is_due(exchange->window, gpu)) {
        mpath_gpu_window_pass(exchange->window);
        return MPATH_OK;
    }
    exchange->counted = 0;
    slot              = slot_bytes(gpu);
    mpath_pinned_release_lost(&exchange->kernel.words);
    if ((mpath_exchange_find(gpu->send.gpu, &exchange->function) != MPATH_OK) ||
        ((exchange->kernel.words.base == NULL) &&
         (mpath_pinned_alloc(gpu->send.gpu, MPATH_EAGER_CTAS * sizeof(uint64_t), &exchange->kernel.words) !=
          MPATH_OK))) {
        slot = 0;
    }
    status = mpath_gpu_window_share(exchange->window, gpu, slot, MPATH_EXCHANGE_MEMORY_BYTES((uint64_t)size, slot));
    if ((status == MPATH_OK) && exchange->window->usable) {
        mpath_debug("device memory of %d ranks can be exchanged eagerly, in messages of up to %llu bytes", size,
                    (unsigned long long)exchange->window->unit_bytes / 2);
    }
    return status;
}
