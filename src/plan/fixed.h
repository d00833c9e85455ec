/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Integer arithmetic of the planner: exact ratios of bytes to bytes per second, and fixed-point powers and logarithms
 * of two from tables. No floating point, so that every compiler and machine computes the same plan.
 */
#ifndef MPATH_PLAN_FIXED_H
#define MPATH_PLAN_FIXED_H

#include <stdint.h>

__extension__ typedef unsigned __int128 mpath_u128_t;

/* num / den seconds; den is never 0. */
typedef struct mpath_ratio {
    uint64_t num; /* bytes */
    uint64_t den; /* bytes per second */
} mpath_ratio_t;

static inline int mpath_ratio_less(mpath_ratio_t a, mpath_ratio_t b)
{
    return (mpath_u128_t)a.num * b.den < (mpath_u128_t)b.num * a.den;
}

static inline mpath_ratio_t mpath_ratio_max(mpath_ratio_t a, mpath_ratio_t b)
{
    return mpath_ratio_less(a, b) ? b : a;
}

/* Whether a <= b (1 + ppm / 1e6); differences under half a part per million count as equal. */
static inline int mpath_ratio_within(mpath_ratio_t a, mpath_ratio_t b, uint32_t ppm)
{
    /* 2^-20 steps: the products stay below 2^128 after both sides lose 21 bits where they are long */
    mpath_u128_t left = (mpath_u128_t)a.num * b.den, right = (mpath_u128_t)b.num * a.den;

    if ((left | right) >> 104) {
        left >>= 24;
        right >>= 24;
    }
    return left * 1000000u <= right * ((mpath_u128_t)1000000u + ppm);
}

/* ratio (1 + ppm / 1e6), for numerators below 2^63. */
static inline mpath_ratio_t mpath_ratio_raise(mpath_ratio_t ratio, uint32_t ppm)
{
    mpath_u128_t num = (mpath_u128_t)ratio.num * (1000000u + ppm) / 1000000u;

    ratio.num = (num >> 64) != 0 ? UINT64_MAX : (uint64_t)num;
    return ratio;
}

/* By how much a exceeds b in parts per million, rounded up; at most 2000000. */
uint32_t mpath_ratio_excess_ppm(mpath_ratio_t a, mpath_ratio_t b);

/* floor(ratio * factor), at most UINT64_MAX. */
static inline uint64_t mpath_ratio_times(mpath_ratio_t ratio, uint64_t factor)
{
    mpath_u128_t value = (mpath_u128_t)ratio.num * factor / ratio.den;

    return (value >> 64) != 0 ? UINT64_MAX : (uint64_t)value;
}

/* The same, rounded up. */
static inline uint64_t mpath_ratio_times_up(mpath_ratio_t ratio, uint64_t factor)
{
    mpath_u128_t value = ((mpath_u128_t)ratio.num * factor + ratio.den - 1) / ratio.den;

    return (value >> 64) != 0 ? UINT64_MAX : (uint64_t)value;
}

/* num / den with both shortened to 63 bits, rounded down: what is proved of the result holds for the argument. */
mpath_ratio_t mpath_ratio_floor(mpath_u128_t num, mpath_u128_t den);

/* Nanoseconds, rounded down or up; at most UINT64_MAX. */
uint64_t mpath_ratio_ns_floor(mpath_ratio_t ratio);
uint64_t mpath_ratio_ns_ceil(mpath_ratio_t ratio);

/* 2^(-x / 2^20) * 2^32 for x >= 0; 0 when below 2^-32. */
uint64_t mpath_exp2_negative(uint64_t x);
/* log2(x) * 2^20 for x >= 1. */
int64_t mpath_log2(uint64_t x);

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): small, and the same everywhere. */
uint64_t mpath_random_next(uint64_t *state);

#endif
