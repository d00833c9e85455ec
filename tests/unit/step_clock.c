/* SPDX-License-Identifier: BSD-3-Clause */
/* Step clock: steps, and who has looked, in memory that all ranks share. */
#include "step_clock.h"

#include "util/time.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct step_clock {
    _Atomic uint64_t steps, real_ns; /* the last one was at */
    atomic_uint looked, all;         /* since then: ranks, a bit each */
    uint64_t start_ns;
} step_clock_t;

static step_clock_t *shared;
static unsigned mine; /* 0: real time */

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);

static uint64_t real_ns(void)
{
    struct timespec now;

    __real_clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * MPATH_NS_PER_S + (uint64_t)now.tv_nsec;
}

void step_clock_make(int size)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("step clock: mmap");
        abort();
    }
    shared->start_ns = real_ns();
    atomic_store(&shared->real_ns, shared->start_ns);
    atomic_store(&shared->all, (1u << size) - 1);
}

void step_clock_start(int rank)
{
    mine = 1u << rank;
}

void step_clock_end(void)
{
    atomic_fetch_and(&shared->all, ~mine);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
    unsigned looked, all;
    uint64_t ns;

    if (mine == 0 || id != CLOCK_MONOTONIC) {
        return __real_clock_gettime(id, now);
    }
    ns     = real_ns();
    looked = atomic_fetch_or(&shared->looked, mine) | mine;
    all    = atomic_load(&shared->all);
    if (((looked & all) == all || ns > atomic_load(&shared->real_ns) + STEP_CLOCK_MOST_NS) &&
        atomic_compare_exchange_strong(&shared->looked, &looked, 0)) {
        atomic_store(&shared->real_ns, ns);
        atomic_fetch_add(&shared->steps, 1);
    }
    ns   = shared->start_ns + atomic_load(&shared->steps) * STEP_CLOCK_NS;
    *now = (struct timespec){.tv_sec = (time_t)(ns / MPATH_NS_PER_S), .tv_nsec = (long)(ns % MPATH_NS_PER_S)};
    return 0;
}
