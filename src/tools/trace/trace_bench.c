/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace_bench: what a timeline costs while it is recorded, and what the tests for it cost while none is: processor time of
 * a record with its two looks at the clock. Times this by the records of a call, which the file of a rank tells.
 */
#include "record/trace.h"
#include "util/time.h"

#include <stdint.h>
#include <stdio.h>

#define RECORDS 1000000
#define ROUNDS 5
#define RING 32768 /* the default of trace_chunks */

static uint64_t chunks(void)
{
    uint64_t start = mpath_time_cpu_ns();

    for (uint32_t i = 0; i < RECORDS; i++) {
        mpath_trace_chunk_t chunk = {.flow = i};

        chunk.began_ns = mpath_trace_is_on() ? mpath_time_ns() : 0;
        if (mpath_trace_is_on()) {
            chunk.ended_ns = mpath_time_ns();
            mpath_trace_add_chunk(&chunk);
        }
    }
    return mpath_time_cpu_ns() - start;
}

static uint64_t phases(void)
{
    uint64_t start = mpath_time_cpu_ns();

    for (uint32_t i = 0; i < RECORDS; i++) {
        mpath_trace_call_t call = {.call = i};

        call.began_ns = mpath_trace_is_on() ? mpath_time_ns() : 0;
        if (mpath_trace_is_on()) {
            call.ended_ns = mpath_time_ns();
            mpath_trace_add_call(&call);
        }
    }
    return mpath_time_cpu_ns() - start;
}

static void measure(const char *what, uint64_t (*pass)(void))
{
    double least = 0, most = 0;

    for (int round = 0; round < ROUNDS; round++) {
        double ns = (double)pass() / RECORDS;

        least = (round == 0 || ns < least) ? ns : least;
        most  = (ns > most) ? ns : most;
    }
    printf("%-24s %6.1f to %6.1f ns\n", what, least, most);
}

int main(void)
{
    measure("chunk, no timeline", chunks);
    measure("phase, no timeline", phases);
    if (mpath_trace_open(RING) != MPATH_OK) {
        fprintf(stderr, "trace_bench: no memory for %d chunks\n", RING);
        return 1;
    }
    measure("chunk", chunks);
    measure("phase", phases);
    return 0;
}
