/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What mpath's kernels that reduce by writes do, in C, from the same arguments: CTA after CTA, which wait for the same
 * of others.
 */
#define _GNU_SOURCE
#include "fake_kernel.h"
#include "gpu/reduce_writes_args.h"

#include <string.h>
#include <time.h>

#define TILE_MAX (64u << 10)

typedef struct kernel {
    const struct CUctx_st *context;
    const mpath_kernel_writes_t *arguments;
    unsigned cta, ctas;
    struct timespec deadline;
} kernel_t;

typedef void (*apply_t)(void *sum, const void *next, uint64_t bytes);

static char *bytes_at(const kernel_t *kernel, uint64_t address, uint64_t bytes)
{
    return fake_bytes(address, bytes, kernel->context, FAKE_BY_KERNEL, "reduction by writes");
}

static uint64_t *step(const kernel_t *kernel, unsigned of, unsigned from, unsigned used)
{
    const mpath_kernel_writes_t *arguments = kernel->arguments;
    uint64_t index                         = (kernel->cta * 2u + used) * arguments->ranks + from;

    return (uint64_t *)(void *)bytes_at(kernel, arguments->memory[of] + index * 8, 8);
}

static char *slot(const kernel_t *kernel, unsigned of, unsigned from, uint64_t turn)
{
    const mpath_kernel_writes_t *arguments = kernel->arguments;
    uint64_t steps = MPATH_WRITES_TILES_AT(arguments->ranks), bytes = arguments->tile_bytes;
    uint64_t row   = kernel->cta * MPATH_WRITES_DEPTH + turn % MPATH_WRITES_DEPTH;
    uint64_t index = row * (arguments->ranks - 1) + from - (from > of ? 1 : 0);

    return bytes_at(kernel, arguments->memory[of] + steps + index * bytes, bytes);
}

static int await(const kernel_t *kernel, const uint64_t *word, uint64_t value)
{
    const uint64_t *stop = (const uint64_t *)(void *)bytes_at(kernel, kernel->arguments->stop, 8);
    struct timespec now;

    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec > kernel->deadline.tv_sec) ||
            (__atomic_load_n(stop, __ATOMIC_ACQUIRE) >= kernel->arguments->number)) {
            return 0;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return 1;
}

static uint64_t tile(const kernel_t *kernel, unsigned of, uint64_t turn, uint64_t *from)
{
    const mpath_kernel_writes_t *arguments = kernel->arguments;
    uint64_t at = (kernel->cta + turn * kernel->ctas) * arguments->tile_bytes, bytes = arguments->part_bytes[of];

    *from = arguments->part_offsets[of] + at;
    return (at >= bytes) ? 0 : (bytes - at < arguments->tile_bytes) ? bytes - at : arguments->tile_bytes;
}

static void send(const kernel_t *kernel, uint64_t turn)
{
    const mpath_kernel_writes_t *arguments = kernel->arguments;

    for (unsigned rank = 0; rank < arguments->ranks; rank++) {
        uint64_t from, bytes = tile(kernel, rank, turn, &from);

        if ((rank != arguments->me) && (bytes > 0)) {
            memcpy(slot(kernel, rank, arguments->me, turn), bytes_at(kernel, arguments->send + from, bytes), bytes);
        }
    }
}

static void combine(const kernel_t *kernel, uint64_t turn, apply_t apply)
{
    const mpath_kernel_writes_t *arguments = kernel->arguments;
    uint64_t from, bytes = tile(kernel, arguments->me, turn, &from);
    char sum[TILE_MAX];

    if (bytes == 0) {
        return;
    }
    for (unsigned rank = 0; rank < arguments->ranks; rank++) {
        const char *next = (rank == arguments->me) ? bytes_at(kernel, arguments->send + from, bytes)
                                                   : slot(kernel, arguments->me, rank, turn);

        if (rank == 0) {
            memcpy(sum, next, bytes);
        } else {
            apply(sum, next, bytes);
        }
    }
    for (unsigned rank = 0; rank < arguments->ranks; rank++) {
        memcpy(bytes_at(kernel, arguments->targets[rank] + from, bytes), sum, bytes);
    }
}

/* The tiles of a turn, all CTAs together, on an emulated port. */
static void pace(const kernel_t *kernel, unsigned tiles)
{
    uint64_t ns = kernel->arguments->pace_ns * tiles;

    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}, NULL);
}

/* 0: given up. */
static int await_turn(const kernel_t *kernel, unsigned rank, uint64_t turn, int sends, int combines)
{
    unsigned me   = kernel->arguments->me;
    uint64_t base = kernel->arguments->number << MPATH_WRITES_TURN_BITS;

    return (!sends || (turn < MPATH_WRITES_DEPTH) ||
            await(kernel, step(kernel, me, rank, 1), base + turn - MPATH_WRITES_DEPTH + 1)) &&
           (!combines || await(kernel, step(kernel, me, rank, 0), base + turn - MPATH_WRITES_AHEAD + 1));
}

static int run_turn(const kernel_t *kernel, uint64_t turn, uint64_t turns, apply_t apply)
{
    const mpath_kernel_writes_t *arguments = kernel->arguments;
    uint64_t base                          = arguments->number << MPATH_WRITES_TURN_BITS;
    int sends = turn < turns, combines = turn >= MPATH_WRITES_AHEAD;

    for (unsigned rank = 0; rank < arguments->ranks; rank++) {
        if ((rank != arguments->me) && !await_turn(kernel, rank, turn, sends, combines)) {
            return 0;
        }
    }
    if (sends) {
        send(kernel, turn);
    }
    if (combines) {
        combine(kernel, turn - MPATH_WRITES_AHEAD, apply);
    }
    for (unsigned rank = 0; rank < arguments->ranks; rank++) {
        if ((rank != arguments->me) && sends) {
            __atomic_store_n(step(kernel, rank, arguments->me, 0), base + turn + 1, __ATOMIC_RELEASE);
        }
        if ((rank != arguments->me) && combines) {
            __atomic_store_n(step(kernel, rank, arguments->me, 1), base + turn - MPATH_WRITES_AHEAD + 1,
                             __ATOMIC_RELEASE);
        }
    }
    return 1;
}

static void begin(const struct CUctx_st *context, const mpath_kernel_writes_t *arguments, unsigned ctas,
                  unsigned threads, kernel_t *kernel)
{
    if ((threads != MPATH_KERNEL_THREADS) || (arguments->tile_bytes % 16 != 0) || (arguments->tile_bytes > TILE_MAX) ||
        (arguments->send % 16 != 0)) {
        fake_die("a reduction by writes has %u threads, %u CTAs and tiles of %llu bytes", threads, ctas,
                 (unsigned long long)arguments->tile_bytes);
    }
    *kernel = (kernel_t){.context = context, .arguments = arguments, .ctas = ctas};
    clock_gettime(CLOCK_MONOTONIC, &kernel->deadline);
    kernel->deadline.tv_sec += (time_t)(arguments->timeout_ns / 1000000000) + 1;
    fake_kernel_begin(context, &arguments->control, ctas);
}

static uint64_t turns_of(const kernel_t *kernel)
{
    const mpath_kernel_writes_t *arguments = kernel->arguments;
    uint64_t most = 0, per_turn = kernel->ctas * arguments->tile_bytes;

    for (unsigned rank = 0; rank < arguments->ranks; rank++) {
        most = (arguments->part_bytes[rank] > most) ? arguments->part_bytes[rank] : most;
    }
    return (most + per_turn - 1) / per_turn;
}

static void run(const struct CUctx_st *context, const mpath_kernel_writes_t *arguments, unsigned ctas, unsigned threads,
                apply_t apply)
{
    uint64_t turns;
    kernel_t kernel;

    if (ctas != MPATH_WRITES_CTAS) {
        fake_die("a reduction by writes has %u CTAs", ctas);
    }
    begin(context, arguments, ctas, threads, &kernel);
    turns = turns_of(&kernel);
    for (uint64_t turn = 0; turn < turns + MPATH_WRITES_AHEAD; turn++) {
        for (kernel.cta = 0; kernel.cta < MPATH_WRITES_CTAS; kernel.cta++) {
            if (!run_turn(&kernel, turn, turns, apply)) {
                fake_kernel_fail(context, &arguments->control);
                return;
            }
        }
        if (arguments->pace_ns > 0) {
            pace(&kernel, ((turn < turns) + (turn >= MPATH_WRITES_AHEAD)) * (arguments->ranks - 1));
        }
    }
    fake_kernel_end(context, &arguments->control, arguments->flags);
}

/* -- a ring -- */

static uint64_t *ring_word(const kernel_t *kernel, unsigned of, unsigned behind)
{
    uint64_t word = kernel->cta * 2u + behind;
    uint64_t at   = MPATH_WRITES_STEPS_BYTES(kernel->arguments->ranks) + word * MPATH_RING_WORD_BYTES;

    return (uint64_t *)(void *)bytes_at(kernel, kernel->arguments->memory[of] + at, 8);
}

static char *ring_slot(const kernel_t *kernel, unsigned of, uint64_t sent)
{
    const mpath_kernel_writes_t *arguments = kernel->arguments;
    uint64_t slot = kernel->cta * MPATH_RING_DEPTH + sent % MPATH_RING_DEPTH, bytes = arguments->tile_bytes;

    return bytes_at(kernel, arguments->memory[of] + MPATH_WRITES_TILES_AT(arguments->ranks) + slot * bytes, bytes);
}

/* One tile: what has come, combined with the own one on its first round, to the next rank. `sent`: in all turns. */
static void ring_move(const kernel_t *kernel, unsigned step, uint64_t sent, uint64_t from, uint64_t bytes,
                      apply_t apply)
{
    const mpath_kernel_writes_t *arguments = kernel->arguments;
    unsigned me = arguments->me, last = arguments->ranks - 1, next = (me + 1) % arguments->ranks;
    const char *own = bytes_at(kernel, arguments->send + from, bytes);
    char sum[TILE_MAX];

    if (step == 0) {
        memcpy(sum, own, bytes);
    } else if (step <= last) {
        memcpy(sum, ring_slot(kernel, me, sent - 1), bytes);
        apply(sum, own, bytes);
    } else {
        memcpy(sum, bytes_at(kernel, arguments->targets[me] + from, bytes), bytes);
    }
    if (step < last) {
        memcpy(ring_slot(kernel, next, sent), sum, bytes);
        return;
    }
    memcpy(bytes_at(kernel, arguments->targets[next] + from, bytes), sum, bytes);
    if (step == last) {
        memcpy(bytes_at(kernel, arguments->targets[me] + from, bytes), sum, bytes);
    }
}

/* 0: given up. */
static int ring_step(const kernel_t *kernel, uint64_t turn, unsigned step, apply_t apply)
{
    const mpath_kernel_writes_t *arguments = kernel->arguments;
    unsigned ranks = arguments->ranks, last = ranks - 1, me = arguments->me;
    uint64_t base = arguments->number << MPATH_WRITES_TURN_BITS, done = base + turn * 2 * last + step;
    uint64_t sent = turn * last + step, from, bytes;

    if (((step > 0) && !await(kernel, ring_word(kernel, me, 0), done)) ||
        ((step < last) && (sent >= MPATH_RING_DEPTH) &&
         !await(kernel, ring_word(kernel, me, 1), base + sent - MPATH_RING_DEPTH + 1))) {
        return 0;
    }
    if (step == 2 * last) {
        return 1;
    }
    bytes = tile(kernel, (me + 2 * ranks - 1 - step) % ranks, turn, &from);
    if (bytes > 0) {
        ring_move(kernel, step, sent, from, bytes, apply);
    }
    __atomic_store_n(ring_word(kernel, (me + 1) % ranks, 0), done + 1, __ATOMIC_RELEASE);
    if ((step > 0) && (step <= last)) {
        __atomic_store_n(ring_word(kernel, (me + last) % ranks, 1), base + sent, __ATOMIC_RELEASE);
    }
    return 1;
}

static void run_ring(const struct CUctx_st *context, const mpath_kernel_writes_t *arguments, unsigned ctas,
                     unsigned threads, apply_t apply)
{
    kernel_t kernel;

    if ((ctas > MPATH_RING_CTAS) || (arguments->tile_bytes > MPATH_RING_TILE_MAX)) {
        fake_die("a reduction round a ring has %u CTAs and tiles of %llu bytes", ctas,
                 (unsigned long long)arguments->tile_bytes);
    }
    begin(context, arguments, ctas, threads, &kernel);
    for (uint64_t turn = 0; turn < turns_of(&kernel); turn++) {
        for (unsigned step = 0; step <= 2 * arguments->ranks - 2; step++) {
            for (kernel.cta = 0; kernel.cta < ctas; kernel.cta++) {
                if (!ring_step(&kernel, turn, step, apply)) {
                    fake_kernel_fail(context, &arguments->control);
                    return;
                }
            }
            if (arguments->pace_ns > 0) {
                pace(&kernel, 1);
            }
        }
    }
    fake_kernel_end(context, &arguments->control, arguments->flags);
}

#define APPLY_sum(_a, _b) ((_a) + (_b))
#define APPLY_max(_a, _b) (((_a) > (_b)) ? (_a) : (_b))
#define APPLY_min(_a, _b) (((_a) < (_b)) ? (_a) : (_b))

#define FAKE_WRITES(_op, _type)                                                                                        \
    static void apply_##_op##_##_type(void *sum, const void *next, uint64_t bytes)                                     \
    {                                                                                                                  \
        mpath_reduce_##_type##_t a, b;                                                                                 \
                                                                                                                       \
        for (uint64_t at = 0; at < bytes; at += sizeof(a)) {                                                           \
            memcpy(&a, (const char *)next + at, sizeof(a));                                                            \
            memcpy(&b, (char *)sum + at, sizeof(b));                                                                   \
            b = APPLY_##_op(a, b);                                                                                     \
            memcpy((char *)sum + at, &b, sizeof(b));                                                                   \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void run_##_op##_##_type(const struct CUctx_st *context, const void *arguments, unsigned ctas,              \
                                    unsigned threads)                                                                  \
    {                                                                                                                  \
        run(context, arguments, ctas, threads, apply_##_op##_##_type);                                                 \
    }                                                                                                                  \
                                                                                                                       \
    static void ring_##_op##_##_type(const struct CUctx_st *context, const void *arguments, unsigned ctas,             \
                                     unsigned threads)                                                                 \
    {                                                                                                                  \
        run_ring(context, arguments, ctas, threads, apply_##_op##_##_type);                                            \
    }

MPATH_WRITES_KERNELS(FAKE_WRITES)

#define FAKE_ROW(_op, _type) {MPATH_KERNEL_WRITES #_op "_" #_type, sizeof(mpath_kernel_writes_t), run_##_op##_##_type},

#define RING_ROW(_op, _type) {MPATH_KERNEL_RING #_op "_" #_type, sizeof(mpath_kernel_writes_t), ring_##_op##_##_type},

static const struct CUfunc_st kernels[] = {MPATH_WRITES_KERNELS(FAKE_ROW) MPATH_WRITES_KERNELS(RING_ROW)};

const struct CUfunc_st *fake_writes_kernel(const char *name)
{
    for (size_t index = 0; index < sizeof(kernels) / sizeof(kernels[0]); index++) {
        if (strcmp(kernels[index].name, name) == 0) {
            return &kernels[index];
        }
    }
    return NULL;
}
