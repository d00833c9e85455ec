/* SPDX-License-Identifier: BSD-3-Clause */
/* What mpath's reduction kernels do, in C, from the same arguments. */
#define _GNU_SOURCE
#include "fake_kernel.h"
#include "gpu/reduce_args.h"

#include <complex.h>
#include <string.h>

/* Where the range lies; dies unless the addresses are such as the device takes. */
static char *range(const struct CUctx_st *context, uint64_t address, uint64_t bytes, uint64_t alignment)
{
    if (address % alignment != 0) {
        fake_die("a reduction kernel was told of 0x%llx, which is no multiple of %llu", (unsigned long long)address,
                 (unsigned long long)alignment);
    }
    return fake_bytes(address, bytes, context, FAKE_BY_KERNEL, "reduction kernel");
}

typedef struct ranges {
    char *sources[MPATH_KERNEL_REDUCE_RANKS], *targets[MPATH_KERNEL_REDUCE_RANKS];
} ranges_t;

static void reduce_begin(const struct CUctx_st *context, const mpath_kernel_reduce_t *reduce, unsigned ctas,
                         unsigned threads, uint64_t element_bytes, uint64_t alignment, ranges_t *ranges)
{
    uint64_t bytes = reduce->elements * element_bytes;
    uint32_t index;

    if ((threads % 32 != 0) || (threads < 32) || (threads > MPATH_KERNEL_THREADS) || (reduce->sources_count < 1) ||
        (reduce->elements < 1) || (reduce->sources_count > MPATH_KERNEL_REDUCE_RANKS) ||
        (reduce->targets_count > MPATH_KERNEL_REDUCE_RANKS)) {
        fake_die("a reduction kernel has %u threads, %u sources, %u targets and %llu elements", threads,
                 reduce->sources_count, reduce->targets_count, (unsigned long long)reduce->elements);
    }
    if (reduce->number != 0) {
        (void)fake_bytes(reduce->counters, sizeof(mpath_kernel_counters_t), context, FAKE_BY_KERNEL,
                         "counters of a kernel that repeats");
    } else {
        fake_kernel_begin(context, &reduce->control, ctas);
    }
    for (index = 0; index < reduce->sources_count; index++) {
        ranges->sources[index] = range(context, reduce->sources[index], bytes, alignment);
    }
    for (index = 0; index < reduce->targets_count; index++) {
        ranges->targets[index] = range(context, reduce->targets[index], bytes, alignment);
    }
}

static void reduce_end(const struct CUctx_st *context, const mpath_kernel_reduce_t *reduce)
{
    uint32_t index;

    if (reduce->number == 0) {
        fake_kernel_end(context, &reduce->control, reduce->flags);
        return;
    }
    for (index = 0; index < reduce->control.flags_count; index++) {
        uint64_t *number = (uint64_t *)(void *)fake_bytes(reduce->number, 8, context, FAKE_BY_KERNEL, "number");
        uint64_t *flag   = (uint64_t *)(void *)fake_bytes(reduce->flags[index].address, 8, context, FAKE_BY_KERNEL,
                                                          "flag of a kernel that repeats");

        __atomic_store_n(flag, __atomic_load_n(number, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    }
}

#define PLACE(_a, _b, _better)                                                                                         \
    ((_a).value == (_b).value) ? ((_a).place < (_b).place ? (_a) : (_b))                                               \
                               : (((_a).value _better(_b).value) ? (_a) : (_b))

/* Unsigned: what is narrower would be multiplied as int, which must not overflow. */
#define APPLY_sum(_type, _a, _b) (_type)((_a) + (_b))
#define APPLY_prod(_type, _a, _b) (_type)(1u * (_a) * (_b))
#define APPLY_max(_type, _a, _b) (((_a) > (_b)) ? (_a) : (_b))
#define APPLY_min(_type, _a, _b) (((_a) < (_b)) ? (_a) : (_b))
#define APPLY_band(_type, _a, _b) (_type)((_a) & (_b))
#define APPLY_bor(_type, _a, _b) (_type)((_a) | (_b))
#define APPLY_bxor(_type, _a, _b) (_type)((_a) ^ (_b))
#define APPLY_land(_type, _a, _b) (((_a) != 0) && ((_b) != 0))
#define APPLY_lor(_type, _a, _b) (((_a) != 0) || ((_b) != 0))
#define APPLY_lxor(_type, _a, _b) (((_a) != 0) != ((_b) != 0))
#define APPLY_maxloc(_type, _a, _b) PLACE(_a, _b, >)
#define APPLY_minloc(_type, _a, _b) PLACE(_a, _b, <)

/* -- half precision, without a compiler that has it -- */

float fake_half_load(const char *from)
{
    uint32_t bits, magnitude;
    uint16_t half;
    float value;

    memcpy(&half, from, sizeof(half));
    magnitude = half & 0x7fffu;
    if (magnitude < 0x400) { /* no exponent */
        value = (float)magnitude / (1 << 24);
        memcpy(&bits, &value, sizeof(bits));
    } else {
        bits = (magnitude << 13) + ((magnitude >= 0x7c00) ? 224u << 23 : 112u << 23);
    }
    bits |= (uint32_t)(half & 0x8000u) << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Rounds to the nearest, of two the even one. */
void fake_half_store(char *to, float value)
{
    uint32_t bits, magnitude;
    uint16_t half;

    memcpy(&bits, &value, sizeof(bits));
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000) {
        half = 0x7e00; /* not a number */
    } else if (magnitude >= 0x477ff000) {
        half = 0x7c00; /* infinite, or too large */
    } else if (magnitude < 0x38800000) {
        float sum = ((value < 0) ? -value : value) + 0.5f; /* its last place is that of a half without exponent */

        memcpy(&magnitude, &sum, sizeof(magnitude));
        half = (uint16_t)(magnitude - 0x3f000000);
    } else {
        half = (uint16_t)((magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13);
    }
    half = (uint16_t)(half | ((bits >> 16) & 0x8000u));
    memcpy(to, &half, sizeof(half));
}

#define FAKE_REDUCE_HALF(_op, _type)                                                                                   \
    static void run_##_op##_##_type(const struct CUctx_st *context, const void *arguments, unsigned ctas,              \
                                    unsigned threads)                                                                  \
    {                                                                                                                  \
        const mpath_kernel_reduce_t *reduce = arguments;                                                               \
        ranges_t ranges;                                                                                               \
                                                                                                                       \
        reduce_begin(context, reduce, ctas, threads, 2, 2, &ranges);                                                   \
        for (uint64_t at = 0; at < 2 * reduce->elements; at += 2) {                                                    \
            char sum[2];                                                                                               \
                                                                                                                       \
            memcpy(sum, ranges.sources[0] + at, sizeof(sum));                                                          \
            for (uint32_t index = 1; index < reduce->sources_count; index++) {                                         \
                float next   = fake_half_load(ranges.sources[index] + at);                                             \
                float so_far = fake_half_load(sum);                                                                    \
                                                                                                                       \
                fake_half_store(sum, APPLY_##_op(float, next, so_far));                                                \
            }                                                                                                          \
            for (uint32_t index = 0; index < reduce->targets_count; index++) {                                         \
                memcpy(ranges.targets[index] + at, sum, sizeof(sum));                                                  \
            }                                                                                                          \
        }                                                                                                              \
        reduce_end(context, reduce);                                                                                   \
    }

MPATH_REDUCE_KERNELS_HALF(FAKE_REDUCE_HALF)

/* -- the others: what C computes with -- */

#define FAKE_OWN(_unused, _type) typedef mpath_reduce_##_type##_t fake_##_type##_t;

MPATH_REDUCE_UNSIGNED(FAKE_OWN, 0)
MPATH_REDUCE_SIGNED(FAKE_OWN, 0)
MPATH_REDUCE_FLOATS(FAKE_OWN, 0)
MPATH_REDUCE_PLACES(FAKE_OWN, 0)
typedef float _Complex fake_c64_t;
typedef double _Complex fake_c128_t;

#define FAKE_REDUCE(_op, _type)                                                                                        \
    static void run_##_op##_##_type(const struct CUctx_st *context, const void *arguments, unsigned ctas,              \
                                    unsigned threads)                                                                  \
    {                                                                                                                  \
        const mpath_kernel_reduce_t *reduce = arguments;                                                               \
        fake_##_type##_t sum, next;                                                                                    \
        ranges_t ranges;                                                                                               \
                                                                                                                       \
        reduce_begin(context, reduce, ctas, threads, sizeof(sum), _Alignof(fake_##_type##_t), &ranges);                \
        for (uint64_t at = 0; at < reduce->elements; at++) {                                                           \
            memcpy(&sum, ranges.sources[0] + at * sizeof(sum), sizeof(sum));                                           \
            for (uint32_t index = 1; index < reduce->sources_count; index++) {                                         \
                memcpy(&next, ranges.sources[index] + at * sizeof(next), sizeof(next));                                \
                sum = APPLY_##_op(fake_##_type##_t, next, sum);                                                        \
            }                                                                                                          \
            for (uint32_t index = 0; index < reduce->targets_count; index++) {                                         \
                memcpy(ranges.targets[index] + at * sizeof(sum), &sum, sizeof(sum));                                   \
            }                                                                                                          \
        }                                                                                                              \
        reduce_end(context, reduce);                                                                                   \
    }

MPATH_REDUCE_KERNELS_WHOLE(FAKE_REDUCE)

#define FAKE_ROW(_op, _type) {MPATH_KERNEL_REDUCE #_op "_" #_type, sizeof(mpath_kernel_reduce_t), run_##_op##_##_type},

static const struct CUfunc_st kernels[] = {MPATH_REDUCE_KERNELS(FAKE_ROW)};

const struct CUfunc_st *fake_reduce_kernel(const char *name)
{
    for (size_t index = 0; index < sizeof(kernels) / sizeof(kernels[0]); index++) {
        if (strcmp(kernels[index].name, name) == 0) {
            return &kernels[index];
        }
    }
    return NULL;
}
