/* SPDX-License-Identifier: BSD-3-Clause */
/* Integer arithmetic of the planner: ratios, and powers and logarithms of two by table and linear interpolation. */
#include "plan/fixed.h"

#include "util/time.h"

#define STEPS_BITS 6
#define STEPS (1 << STEPS_BITS)

/* round(2^32 * 2^(-i / 64)) */
static const uint64_t exp2_table[STEPS + 1] = {
    4294967296, 4248701965, 4202935003, 4157661043, 4112874773, 4068570940, 4024744348, 3981389855, 3938502376,
    3896076880, 3854108391, 3812591987, 3771522796, 3730896002, 3690706840, 3650950594, 3611622603, 3572718252,
    3534232978, 3496162267, 3458501653, 3421246719, 3384393094, 3347936457, 3311872529, 3276197082, 3240905930,
    3205994934, 3171459999, 3137297074, 3103502151, 3070071267, 3037000500, 3004285971, 2971923842, 2939910317,
    2908241642, 2876914102, 2845924021, 2815267765, 2784941738, 2754942382, 2725266179, 2695909648, 2666869345,
    2638141863, 2609723834, 2581611923, 2553802834, 2526293303, 2499080105, 2472160047, 2445529972, 2419186755,
    2393127307, 2367348571, 2341847524, 2316621173, 2291666561, 2266980759, 2242560872, 2218404036, 2194507417,
    2170868212, 2147483648};

/* round(2^20 * log2(1 + i / 64)) */
static const int32_t log2_table[STEPS + 1] = {
    0,      23454,  46551,  69300,  91711,  113796, 135563, 157021, 178179,  199045,  219628,  239934,  259971,
    279746, 299266, 318537, 337566, 356359, 374920, 393257, 411375, 429278,  446971,  464460,  481749,  498843,
    515745, 532461, 548995, 565349, 581529, 597537, 613378, 629054, 644570,  659928,  675132,  690185,  705089,
    719848, 734464, 748941, 763280, 777484, 791557, 805500, 819315, 833005,  846573,  860020,  873348,  886561,
    899658, 912644, 925518, 938284, 950944, 963498, 975949, 988298, 1000547, 1012698, 1024752, 1036711, 1048576};

mpath_ratio_t mpath_ratio_floor(mpath_u128_t num, mpath_u128_t den)
{
    mpath_ratio_t ratio;
    int shift = 0;

    while (((num | den) >> shift) >> 63) {
        shift++;
    }
    ratio.num = (uint64_t)(num >> shift);
    ratio.den = (uint64_t)(den >> shift) + (shift > 0 && (den & (((mpath_u128_t)1 << shift) - 1)) != 0);
    if (ratio.den == 0) {
        ratio.num = 0;
        ratio.den = 1;
    }
    return ratio;
}

uint32_t mpath_ratio_excess_ppm(mpath_ratio_t a, mpath_ratio_t b)
{
    uint32_t low = 0, high = 2000000, middle;

    while (low < high) {
        middle = low + (high - low) / 2;
        if (mpath_ratio_within(a, b, middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static uint64_t ratio_ns(mpath_ratio_t ratio, uint64_t add)
{
    mpath_u128_t value = ((mpath_u128_t)ratio.num * MPATH_NS_PER_S + add) / ratio.den;

    return (value >> 64) != 0 ? UINT64_MAX : (uint64_t)value;
}

uint64_t mpath_ratio_ns_floor(mpath_ratio_t ratio)
{
    return ratio_ns(ratio, 0);
}

uint64_t mpath_ratio_ns_ceil(mpath_ratio_t ratio)
{
    return ratio_ns(ratio, ratio.den - 1);
}

uint64_t mpath_exp2_negative(uint64_t x)
{
    uint64_t whole = x >> 20, step = (x >> (20 - STEPS_BITS)) & (STEPS - 1), rest = x & ((1u << (20 - STEPS_BITS)) - 1);
    uint64_t drop;

    if (whole >= 32) {
        return 0;
    }
    drop = ((exp2_table[step] - exp2_table[step + 1]) * rest) >> (20 - STEPS_BITS);
    return (exp2_table[step] - drop) >> whole;
}

int64_t mpath_log2(uint64_t x)
{
    int whole         = 63 - __builtin_clzll(x);
    uint64_t mantissa = (x << (63 - whole)) & ~(1ull << 63); /* 63 bits behind the point */
    int step          = (int)(mantissa >> (63 - STEPS_BITS));
    int64_t rest      = (int64_t)((mantissa >> (63 - STEPS_BITS - 20)) & 0xfffff);

    return ((int64_t)whole << 20) + log2_table[step] + (((log2_table[step + 1] - log2_table[step]) * rest) >> 20);
}

uint64_t mpath_random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
