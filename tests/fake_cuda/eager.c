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

/* A moment; 0: it has waited for long enough. */
static int wait_on(const kernel_t *kernel)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec > kernel->deadline.tv_sec) ||
        ((now.tv_sec == kernel->deadline.tv_sec) && (now.tv_nsec > kernel->deadline.tv_nsec))) {
        return 0;
    }
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return 1;
}

/* 0: given up. */
static int await(const kernel_t *kernel, const uint64_t *of)
{
    while (__atomic_load_n(&of[1], __ATOMIC_ACQUIRE) != kernel->number) {
        if (!wait_on(kernel)) {
            return 0;
        }
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

/* -- in parts -- */

/* A group's units, in the order of the vector; fewer bytes at the end of the vector. */
typedef struct group {
    uint64_t units[MPATH_EAGER_GROUP_BYTES / MPATH_EAGER_UNIT_BYTES];
} group_t;

static uint64_t part_groups(const kernel_t *kernel)
{
    return MPATH_EAGER_PART_GROUPS(kernel->arguments->ranks, kernel->bytes);
}

/* Where group `index` of part `part` begins in the vector, which ends before the last groups. */
static uint64_t group_at(const kernel_t *kernel, unsigned part, uint64_t index)
{
    return (part * part_groups(kernel) + index) * MPATH_EAGER_GROUP_BYTES;
}

static uint64_t group_bytes(const kernel_t *kernel, unsigned part, uint64_t index)
{
    uint64_t at = group_at(kernel, part, index), left = (at < kernel->bytes) ? kernel->bytes - at : 0;

    return (left < MPATH_EAGER_GROUP_BYTES) ? left : MPATH_EAGER_GROUP_BYTES;
}

/* In the memory of rank `of`: what rank `from` has sent of its vector, or of its result. */
static uint64_t *group_slot(const kernel_t *kernel, unsigned of, int results, unsigned from, uint64_t index)
{
    const mpath_kernel_eager_t *arguments = kernel->arguments;
    uint64_t row                          = ((kernel->number & 1) * 2 + (unsigned)results) * arguments->ranks + from;

    return (uint64_t *)(void *)bytes_at(kernel,
                                        arguments->memory[of] + MPATH_EAGER_COUNTERS_BYTES +
                                            row * arguments->slot_bytes + index * MPATH_EAGER_GROUP_SLOT_BYTES,
                                        MPATH_EAGER_GROUP_SLOT_BYTES);
}

static void group_store(const kernel_t *kernel, uint64_t *slot, const group_t *group)
{
    const uint64_t *units = group->units, *thirds = units + UINT64_C(2) * MPATH_EAGER_LANES;

    for (unsigned lane = 0; lane < MPATH_EAGER_LANES; lane++) {
        for (unsigned half = 0; half < 2; half++) {
            uint64_t *pair = slot + UINT64_C(2) * (half * MPATH_EAGER_LANES + lane);
            uint64_t third = half ? (thirds[lane] >> 32) : (thirds[lane] & 0xffffffff);

            __atomic_store_n(&pair[0], units[half * MPATH_EAGER_LANES + lane], __ATOMIC_RELAXED);
            __atomic_store_n(&pair[1], kernel->number << 32 | third, __ATOMIC_RELEASE);
        }
    }
}

/* 0: given up. */
static int group_await(const kernel_t *kernel, const uint64_t *slot, group_t *group)
{
    uint64_t *units = group->units, *thirds = units + UINT64_C(2) * MPATH_EAGER_LANES, second;

    for (unsigned lane = 0; lane < MPATH_EAGER_LANES; lane++) {
        thirds[lane] = 0;
        for (unsigned half = 0; half < 2; half++) {
            const uint64_t *pair = slot + UINT64_C(2) * (half * MPATH_EAGER_LANES + lane);

            while (((second = __atomic_load_n(&pair[1], __ATOMIC_ACQUIRE)) >> 32) != kernel->number) {
                if (!wait_on(kernel)) {
                    return 0;
                }
            }
            units[half * MPATH_EAGER_LANES + lane] = __atomic_load_n(&pair[0], __ATOMIC_RELAXED);
            thirds[lane] |= (second & 0xffffffff) << (32 * half);
        }
    }
    return 1;
}

static void send_parts(const kernel_t *kernel)
{
    const char *vector = bytes_at(kernel, kernel->arguments->send, kernel->bytes);
    group_t group;

    for (unsigned part = 0; part < kernel->arguments->ranks; part++) {
        for (uint64_t index = 0; index < part_groups(kernel); index++) {
            uint64_t bytes = group_bytes(kernel, part, index);

            if (bytes > 0) {
                memset(&group, 0, sizeof(group));
                memcpy(&group, vector + group_at(kernel, part, index), bytes);
                group_store(kernel, group_slot(kernel, part, 0, kernel->arguments->me, index), &group);
            }
        }
    }
}

/* A group of the own part; 0: given up. */
static int combine_group(const kernel_t *kernel, apply_t apply, uint64_t index, group_t *sum)
{
    unsigned me = kernel->arguments->me;
    group_t next;

    for (unsigned rank = 0; rank < kernel->arguments->ranks; rank++) {
        if (!group_await(kernel, group_slot(kernel, me, 0, rank, index), (rank == 0) ? sum : &next)) {
            return 0;
        }
        for (size_t k = 0; (rank > 0) && (k < sizeof(next.units) / sizeof(next.units[0])); k++) {
            apply(&sum->units[k], &next.units[k]);
        }
    }
    for (unsigned rank = 0; rank < kernel->arguments->ranks; rank++) {
        if (rank != me) {
            group_store(kernel, group_slot(kernel, rank, 1, me, index), sum);
        }
    }
    return 1;
}

static int combine_parts(const kernel_t *kernel, apply_t apply)
{
    const mpath_kernel_eager_t *arguments = kernel->arguments;
    char *result                          = bytes_at(kernel, arguments->recv, kernel->bytes);
    group_t group;

    for (unsigned i = 0; i < arguments->ranks; i++) {
        unsigned part = (arguments->me + i) % arguments->ranks;

        for (uint64_t index = 0; index < part_groups(kernel); index++) {
            uint64_t bytes = group_bytes(kernel, part, index);

            if (bytes == 0) {
                break;
            }
            if ((i == 0) ? !combine_group(kernel, apply, index, &group)
                         : !group_await(kernel, group_slot(kernel, arguments->me, 1, part, index), &group)) {
                return 0;
            }
            memcpy(result + group_at(kernel, part, index), &group, bytes);
        }
    }
    return 1;
}

static void check(const mpath_kernel_eager_t *arguments, uint64_t slot_bytes, uint64_t element_bytes, unsigned ctas,
                  unsigned threads)
{
    if ((threads != MPATH_KERNEL_THREADS) || (ctas < 1) || (ctas > MPATH_EAGER_CTAS) || (arguments->ranks < 2) ||
        (arguments->me >= arguments->ranks) || (arguments->ranks > MPATH_KERNEL_REDUCE_RANKS) ||
        (slot_bytes > arguments->slot_bytes) || (arguments->slot_bytes % 16 != 0) ||
        (arguments->send % element_bytes != 0) || (arguments->recv % element_bytes != 0)) {
        fake_die("an eager reduction has %u threads, %u CTAs, %u ranks and slots of %llu bytes for %llu", threads, ctas,
                 arguments->ranks, (unsigned long long)arguments->slot_bytes, (unsigned long long)slot_bytes);
    }
}

static void run(const struct CUctx_st *context, const mpath_kernel_eager_t *arguments, unsigned ctas, unsigned threads,
                uint64_t element_bytes, apply_t apply, int in_parts)
{
    kernel_t kernel = {.context = context, .arguments = arguments, .bytes = arguments->elements * element_bytes};
    uint64_t *words;
    int good;

    check(arguments,
          in_parts ? MPATH_EAGER_PARTS_SLOT_BYTES(arguments->ranks, kernel.bytes)
                   : MPATH_EAGER_SLOT_BYTES(kernel.bytes),
          element_bytes, ctas, threads);
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
        (in_parts ? send_parts : send)(&kernel);
    }
    good = (in_parts ? combine_parts : combine)(&kernel, apply);
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
        run(context, arguments, ctas, threads, sizeof(mpath_reduce_##_type##_t), apply_##_op##_##_type, 0);            \
    }                                                                                                                  \
                                                                                                                       \
    static void run_parts_##_op##_##_type(const struct CUctx_st *context, const void *arguments, unsigned ctas,        \
                                          unsigned threads)                                                            \
    {                                                                                                                  \
        run(context, arguments, ctas, threads, sizeof(mpath_reduce_##_type##_t), apply_##_op##_##_type, 1);            \
    }

MPATH_EAGER_KERNELS(FAKE_RUN)

#define FAKE_ROW(_op, _type)                                                                                           \
    {MPATH_KERNEL_EAGER #_op "_" #_type, sizeof(mpath_kernel_eager_t), run_##_op##_##_type},                           \
        {MPATH_KERNEL_EAGER_PARTS #_op "_" #_type, sizeof(mpath_kernel_eager_t), run_parts_##_op##_##_type},

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
