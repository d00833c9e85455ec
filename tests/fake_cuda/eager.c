/* SPDX-License-Identifier: BSD-3-Clause */
/* What mpath's kernels for short vectors that all send to all do, in C, from the same arguments. */
#define _GNU_SOURCE
#include "fake_kernel.h"
#include "gpu/reduce_eager_args.h"

#include <string.h>
#include <time.h>

typedef struct kernel {
    const struct CUctx_st *context;
    const mpath_kernel_eager_t *arguments;
    uint64_t number, units, bytes; /* of the call, of the vector */
    struct timespec deadline;
} kernel_t;

typedef void (*apply_t)(void *sum, const void *next);

static char *bytes_at(const kernel_t *kernel, uint64_t address, uint64_t bytes)
{
    return fake_bytes(address, bytes, kernel->context, FAKE_BY_KERNEL, "eager reduction");
}

static uint64_t *counters(const kernel_t *kernel)
{
    return (uint64_t *)(void *)bytes_at(kernel, kernel->arguments->memory[kernel->arguments->me],
                                        MPATH_EAGER_COUNTERS_BYTES);
}

/* Where rank `of` keeps a unit of rank `from`, and behind it the number. */
static uint64_t *unit(const kernel_t *kernel, unsigned of, unsigned from, uint64_t index)
{
    const mpath_kernel_eager_t *arguments = kernel->arguments;
    uint64_t row                          = (kernel->number & 1) * arguments->ranks + from;

    return (uint64_t *)(void *)bytes_at(
        kernel, arguments->memory[of] + MPATH_EAGER_COUNTERS_BYTES + row * arguments->slot_bytes + index * 16, 16);
}

static uint64_t unit_bytes(const kernel_t *kernel, uint64_t index)
{
    uint64_t left = kernel->bytes - index * MPATH_EAGER_UNIT_BYTES;

    return (left < MPATH_EAGER_UNIT_BYTES) ? left : MPATH_EAGER_UNIT_BYTES;
}

static void send(const kernel_t *kernel)
{
    const mpath_kernel_eager_t *arguments = kernel->arguments;
    const char *vector                    = bytes_at(kernel, arguments->send, kernel->bytes);

    for (uint64_t index = 0; index < kernel->units; index++) {
        uint64_t own = 0;

        memcpy(&own, vector + index * MPATH_EAGER_UNIT_BYTES, unit_bytes(kernel, index));
        for (unsigned rank = 0; rank < arguments->ranks; rank++) {
            uint64_t *to = unit(kernel, rank, arguments->me, index);

            __atomic_store_n(&to[0], own, __ATOMIC_RELAXED);
            __atomic_store_n(&to[1], kernel->number, __ATOMIC_RELEASE);
        }
    }
}

/* 0: given up. */
static int await(const kernel_t *kernel, const uint64_t *of)
{
    struct timespec now;

    while (__atomic_load_n(&of[1], __ATOMIC_ACQUIRE) != kernel->number) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec > kernel->deadline.tv_sec) ||
            ((now.tv_sec == kernel->deadline.tv_sec) && (now.tv_nsec > kernel->deadline.tv_nsec))) {
            return 0;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return 1;
}

static int combine(const kernel_t *kernel, apply_t apply)
{
    const mpath_kernel_eager_t *arguments = kernel->arguments;
    char *result                          = bytes_at(kernel, arguments->recv, kernel->bytes);

    for (uint64_t index = 0; index < kernel->units; index++) {
        uint64_t sum = 0, next;

        for (unsigned rank = 0; rank < arguments->ranks; rank++) {
            const uint64_t *from = unit(kernel, arguments->me, rank, index);

            if (!await(kernel, from)) {
                return 0;
            }
            next = __atomic_load_n(&from[0], __ATOMIC_RELAXED);
            if (rank == 0) {
                sum = next;
            } else {
                apply(&sum, &next);
            }
        }
        memcpy(result + index * MPATH_EAGER_UNIT_BYTES, &sum, unit_bytes(kernel, index));
    }
    return 1;
}

static void check(const mpath_kernel_eager_t *arguments, uint64_t bytes, uint64_t element_bytes, unsigned ctas,
                  unsigned threads)
{
    if ((threads != MPATH_KERNEL_THREADS) || (ctas < 1) || (ctas > MPATH_EAGER_CTAS) || (arguments->ranks < 2) ||
        (arguments->me >= arguments->ranks) || (arguments->ranks > MPATH_KERNEL_REDUCE_RANKS) ||
        (MPATH_EAGER_SLOT_BYTES(bytes) > arguments->slot_bytes) || (arguments->slot_bytes % 16 != 0) ||
        (arguments->send % element_bytes != 0) || (arguments->recv % element_bytes != 0)) {
        fake_die("an eager reduction has %u threads, %u CTAs, %u ranks and slots of %llu bytes for %llu", threads, ctas,
                 arguments->ranks, (unsigned long long)arguments->slot_bytes, (unsigned long long)bytes);
    }
}

static void run(const struct CUctx_st *context, const mpath_kernel_eager_t *arguments, unsigned ctas, unsigned threads,
                uint64_t element_bytes, apply_t apply)
{
    kernel_t kernel = {.context = context, .arguments = arguments, .bytes = arguments->elements * element_bytes};
    uint64_t *words;
    int good;

    check(arguments, kernel.bytes, element_bytes, ctas, threads);
    kernel.units  = (kernel.bytes + MPATH_EAGER_UNIT_BYTES - 1) / MPATH_EAGER_UNIT_BYTES;
    kernel.number = (arguments->number != 0) ? arguments->number : counters(&kernel)[0] + 1;
    clock_gettime(CLOCK_MONOTONIC, &kernel.deadline);
    kernel.deadline.tv_sec += (time_t)(arguments->patience_ns / 1000000000);
    kernel.deadline.tv_nsec += (long)(arguments->patience_ns % 1000000000);
    if (kernel.deadline.tv_nsec >= 1000000000) {
        kernel.deadline.tv_nsec -= 1000000000;
        kernel.deadline.tv_sec++;
    }
    if (!arguments->again) {
        send(&kernel);
    }
    good = combine(&kernel, apply);
    for (unsigned cta = 0; cta < MPATH_EAGER_CTAS; cta++) {
        counters(&kernel)[cta] = kernel.number;
    }
    words = (uint64_t *)(void *)bytes_at(&kernel, arguments->words, ctas * UINT64_C(8));
    for (unsigned cta = 0; cta < ctas; cta++) {
        __atomic_store_n(&words[cta], good ? kernel.number : (kernel.number | MPATH_EAGER_GAVE_UP), __ATOMIC_RELEASE);
    }
}

#define APPLY_sum(_type, _a, _b) (_type)((_a) + (_b))
#define APPLY_prod(_type, _a, _b) (_type)(1u * (_a) * (_b))
#define APPLY_max(_type, _a, _b) (((_a) > (_b)) ? (_a) : (_b))
#define APPLY_min(_type, _a, _b) (((_a) < (_b)) ? (_a) : (_b))
#define APPLY_band(_type, _a, _b) (_type)((_a) & (_b))
#define APPLY_bor(_type, _a, _b) (_type)((_a) | (_b))
#define APPLY_land(_type, _a, _b) (((_a) != 0) && ((_b) != 0))
#define APPLY_lor(_type, _a, _b) (((_a) != 0) || ((_b) != 0))

#define FAKE_EAGER(_op, _type)                                                                                         \
    static void apply_##_op##_##_type(void *sum, const void *next)                                                     \
    {                                                                                                                  \
        mpath_reduce_##_type##_t a, b;                                                                                 \
                                                                                                                       \
        for (unsigned at = 0; at < MPATH_EAGER_UNIT_BYTES; at += sizeof(a)) {                                          \
            memcpy(&a, (const char *)next + at, sizeof(a));                                                            \
            memcpy(&b, (char *)sum + at, sizeof(b));                                                                   \
            b = APPLY_##_op(mpath_reduce_##_type##_t, a, b);                                                           \
            memcpy((char *)sum + at, &b, sizeof(b));                                                                   \
        }                                                                                                              \
    }

#define FAKE_EAGER_HALF(_op, _type)                                                                                    \
    static void apply_##_op##_##_type(void *sum, const void *next)                                                     \
    {                                                                                                                  \
        for (unsigned at = 0; at < MPATH_EAGER_UNIT_BYTES; at += 2) {                                                  \
            float a = fake_half_load((const char *)next + at), b = fake_half_load((char *)sum + at);                   \
                                                                                                                       \
            fake_half_store((char *)sum + at, APPLY_##_op(float, a, b));                                               \
        }                                                                                                              \
    }

MPATH_EAGER_KERNELS_WHOLE(FAKE_EAGER)
MPATH_EAGER_KERNELS_HALF(FAKE_EAGER_HALF)

#define FAKE_RUN(_op, _type)                                                                                           \
    static void run_##_op##_##_type(const struct CUctx_st *context, const void *arguments, unsigned ctas,              \
                                    unsigned threads)                                                                  \
    {                                                                                                                  \
        run(context, arguments, ctas, threads, sizeof(mpath_reduce_##_type##_t), apply_##_op##_##_type);               \
    }

MPATH_EAGER_KERNELS(FAKE_RUN)

#define FAKE_ROW(_op, _type) {MPATH_KERNEL_EAGER #_op "_" #_type, sizeof(mpath_kernel_eager_t), run_##_op##_##_type},

static const struct CUfunc_st kernels[] = {MPATH_EAGER_KERNELS(FAKE_ROW)};

const struct CUfunc_st *fake_eager_kernel(const char *name)
{
    for (size_t index = 0; index < sizeof(kernels) / sizeof(kernels[0]); index++) {
        if (strcmp(kernels[index].name, name) == 0) {
            return &kernels[index];
        }
    }
    return NULL;
}
