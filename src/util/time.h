/* SPDX-License-Identifier: BSD-3-Clause */
/* Monotonic time, and what this thread has had of a processor. */
#ifndef MPATH_UTIL_TIME_H
#define MPATH_UTIL_TIME_H

#include <stdint.h>
#include <time.h>

#define MPATH_NS_PER_S 1000000000ull
#define MPATH_NS_PER_MS 1000000ull

static inline uint64_t mpath_time_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * MPATH_NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline uint64_t mpath_time_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * MPATH_NS_PER_S + (uint64_t)now.tv_nsec;
}

#endif
