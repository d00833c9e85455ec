/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: contestants. Each is a communicator; the stock ones are made while the component is told to keep away
 * (control variable coll_mpath_enable). Every iteration runs all of them one after the other, so that they see the same
 * machine.
 */
#include "tools/bench_op.h"

#include "util/time.h"

#include <stdlib.h>
#include <string.h>

static void add_contestant(bench_t *bench, const char *name, int algorithm)
{
    bench_contestant_t *contestant = &bench->contestants[bench->num_contestants++];

    contestant->name       = name;
    contestant->times_ns   = calloc((size_t)bench->options.iterations, sizeof(uint64_t));
    contestant->rail_bytes = calloc(2 * MPATH_MAX_NICS, sizeof(uint64_t));
    if (contestant->times_ns == NULL || contestant->rail_bytes == NULL) {
        fprintf(stderr, "mpath_bench: rank %d: out of memory\n", bench->rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (algorithm > 0) {
        if (bench_cvar_write("coll_tuned_alltoallv_algorithm", algorithm) != MPI_SUCCESS && bench->rank == 0) {
            fprintf(stderr, "mpath_bench: coll/tuned takes no algorithm here; '%s' is the library's own choice\n",
                    name);
        }
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &contestant->comm);
}

void bench_contest_create(bench_t *bench)
{
    unsigned sides = bench->options.sides;
    int enabled    = bench_cvar_write("coll_mpath_enable", 1) == MPI_SUCCESS;

    bench_pvars_open(&bench->pvars);
    if (sides & BENCH_MPATH) {
        add_contestant(bench, enabled ? "mpath" : "as started", 0);
    }
    if (enabled) {
        bench_cvar_write("coll_mpath_enable", 0);
    }
    if (sides & BENCH_STOCK_LINEAR) {
        add_contestant(bench, "stock linear", 1);
    }
    if (sides & BENCH_STOCK_PAIRWISE) {
        add_contestant(bench, "stock pairwise", 2);
    }
    if (enabled) {
        bench_cvar_write("coll_mpath_enable", 1);
    }
}

void bench_contest_destroy(bench_t *bench)
{
    int i;

    for (i = 0; i < bench->num_contestants; i++) {
        MPI_Comm_free(&bench->contestants[i].comm);
        free(bench->contestants[i].times_ns);
        free(bench->contestants[i].rail_bytes);
    }
    bench_pvars_close(&bench->pvars);
}

/* One call; returns nanoseconds on rank 0. */
static uint64_t time_call(bench_t *bench, bench_data_t *data, bench_contestant_t *contestant)
{
    uint64_t span[2], extremes[2];

    MPI_Barrier(MPI_COMM_WORLD);
    span[0] = mpath_time_ns();
    data->op->call(data, data->send.address, data->receive.address, contestant->comm);
    span[1] = mpath_time_ns();
    if (!bench->rails.one_clock) {
        span[1] -= span[0];
        span[0] = 0;
    }
    MPI_Reduce(&span[0], &extremes[0], 1, MPI_UINT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&span[1], &extremes[1], 1, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    return bench->rank == 0 ? extremes[1] - extremes[0] : 0;
}

/* iteration < 0: warm-up, which is not timed */
static void run_one(bench_t *bench, bench_data_t *data, bench_contestant_t *contestant, int iteration)
{
    unsigned long long before[BENCH_MAX_PVARS], after[BENCH_MAX_PVARS];
    uint64_t rails_before[2 * MPATH_MAX_NICS], rails_after[2 * MPATH_MAX_NICS], elapsed_ns;
    int leader = bench->rails.leaders != MPI_COMM_NULL, i;
    int verify = iteration == -bench->options.warmup || bench->options.check;

    if (verify) {
        data->op->fill(data, ++bench->round);
    }
    bench_pvars_read(&bench->pvars, before);
    MPI_Barrier(MPI_COMM_WORLD);
    if (leader) {
        bench_rails_read(&bench->rails, rails_before, rails_before + MPATH_MAX_NICS);
    }
    elapsed_ns = time_call(bench, data, contestant);
    MPI_Barrier(MPI_COMM_WORLD);
    if (leader) {
        bench_rails_read(&bench->rails, rails_after, rails_after + MPATH_MAX_NICS);
    }
    bench_pvars_read(&bench->pvars, after);
    if (verify) {
        contestant->wrong_bytes += data->op->check(data, bench->round);
    }
    if (iteration < 0) {
        return;
    }
    contestant->times_ns[iteration] = elapsed_ns;
    for (i = 0; i < BENCH_MAX_PVARS; i++) {
        contestant->counters[i] += after[i] - before[i];
    }
    for (i = 0; leader && i < 2 * MPATH_MAX_NICS; i++) {
        contestant->rail_bytes[i] += rails_after[i] - rails_before[i];
    }
}

void bench_contest_run(bench_t *bench, bench_data_t *data)
{
    int iteration, i;

    for (i = 0; i < bench->num_contestants; i++) {
        bench->contestants[i].wrong_bytes = 0;
        memset(bench->contestants[i].counters, 0, sizeof(bench->contestants[i].counters));
        memset(bench->contestants[i].rail_bytes, 0, 2 * MPATH_MAX_NICS * sizeof(uint64_t));
    }
    for (iteration = -bench->options.warmup; iteration < bench->options.iterations; iteration++) {
        for (i = 0; i < bench->num_contestants; i++) {
            run_one(bench, data, &bench->contestants[i], iteration);
        }
    }
}
