/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: contestants. Each is a communicator; the stock ones are made while the component is told to keep away
 * (control variable coll_mpath_enable). Every iteration runs all of them one after the other, so that they see the same
 * machine.
 */
#include "tools/bench/op.h"

#include "tools/progress.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

static bench_contestant_t *add_contestant(bench_t *bench, bench_how_t how, const char *name)
{
    bench_contestant_t *contestant = &bench->contestants[bench->num_contestants++];

    contestant->name       = name;
    contestant->how        = how;
    contestant->comm       = MPI_COMM_NULL;
    contestant->times_ns   = calloc((size_t)bench->options.iterations, sizeof(uint64_t));
    contestant->rail_bytes = calloc(2 * MPATH_MAX_NICS, sizeof(uint64_t));
    if (contestant->times_ns == NULL || contestant->rail_bytes == NULL) {
        fprintf(stderr, "mpath_bench: rank %d: out of memory\n", bench->rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return contestant;
}

static void add_mpi(bench_t *bench, bench_how_t how, const char *name, int algorithm)
{
    unsigned long long before[BENCH_MAX_PVARS], after[BENCH_MAX_PVARS];
    bench_contestant_t *contestant = add_contestant(bench, how, name);

    bench_pvars_read(&bench->pvars, before);
    if (algorithm >= 0) {
        if (bench_cvar_write(bench->options.op->stock_variable, algorithm) != MPI_SUCCESS && bench->rank == 0) {
            fprintf(stderr, "mpath_bench: coll/tuned takes no algorithm here; '%s' is the library's own choice\n",
                    name);
        }
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &contestant->comm);
    bench_pvars_read(&bench->pvars, after);
    contestant->gpu_bytes = (int64_t)(after[BENCH_PVAR_DEVICE_BYTES] - before[BENCH_PVAR_DEVICE_BYTES]);
}

/* Communicators keep the number of paths that they see in their first collective, which is made here. */
static int add_limited(bench_t *bench)
{
    static const char *const names[] = {"1 path",  "2 paths", "3 paths", "4 paths",
                                        "5 paths", "6 paths", "7 paths", "8 paths"};
    int *all = malloc(2 * (size_t)bench->size * sizeof(*all)), i, paths, bad = all == NULL;

    for (i = 0; i < bench->options.num_paths && !bad; i++) {
        paths = bench->options.paths[i];
        bad   = bench_cvar_write("coll_mpath_max_paths", paths) != MPI_SUCCESS;
        if (!bad) {
            add_mpi(bench, BENCH_HOW_MPI, paths <= 8 ? names[paths - 1] : "many paths", -1);
            bench->contestants[bench->num_contestants - 1].is_mpath = 1;
            memset(all, 0, 2 * (size_t)bench->size * sizeof(*all));
            MPI_Alltoall(all, 1, MPI_INT, all + bench->size, 1, MPI_INT,
                         bench->contestants[bench->num_contestants - 1].comm);
        }
    }
    free(all);
    if (!bad && bench->options.num_paths > 0) {
        bad = bench_cvar_write("coll_mpath_max_paths", 0) != MPI_SUCCESS;
    }
    if (bad) {
        fprintf(stderr,
                "mpath_bench: rank %d: --paths: control variable coll_mpath_max_paths cannot be written here; "
                "nothing was run (mpirun --mca coll mpath)\n",
                bench->rank);
    }
    return bad ? -1 : 0;
}

static int add_nccl(bench_t *bench)
{
    uint64_t free_bytes = bench_gpu_free_bytes();

    if (bench_nccl_open() != 0) {
        return -1;
    }
    add_contestant(bench, BENCH_HOW_NCCL, "nccl")->gpu_bytes = (int64_t)(free_bytes - bench_gpu_free_bytes());
    return 0;
}

/* Stock Open MPI takes a pointer into device memory for one into host memory, and crashes. */
static bench_how_t stock_how(const bench_options_t *options)
{
    return bench_memory_on_host(options->send_memory) && bench_memory_on_host(options->receive_memory)
               ? BENCH_HOW_MPI
               : BENCH_HOW_STAGED;
}

int bench_contest_create(bench_t *bench)
{
    unsigned sides             = bench->options.sides;
    int enabled                = bench_cvar_write("coll_mpath_enable", 1) == MPI_SUCCESS;
    bench_how_t stock          = stock_how(&bench->options);
    const bench_stock_t *known = bench->options.op->stock;
    int i;

    if (!enabled && (sides & BENCH_MPATH) && stock == BENCH_HOW_STAGED) {
        if (bench->rank == 0) {
            fprintf(stderr, "mpath_bench: the component is not in this job, and without it the MPI library may not be "
                            "given device memory; nothing was run (mpirun --mca coll mpath, or --without-mpath)\n");
        }
        return -1;
    }
    bench_pvars_open(&bench->pvars);
    if (sides & BENCH_MPATH) {
        add_mpi(bench, BENCH_HOW_MPI, enabled ? "mpath" : "as started", -1);
        bench->contestants[bench->num_contestants - 1].is_mpath = enabled;
    }
    if (add_limited(bench) != 0) {
        return -1;
    }
    if (enabled) {
        bench_cvar_write("coll_mpath_enable", 0);
    }
    for (i = 0; known[i].name != NULL; i++) {
        if ((sides >> (BENCH_STOCK_SHIFT + i)) & 1) {
            add_mpi(bench, stock, known[i].name, known[i].algorithm);
        }
    }
    if (enabled) {
        bench_cvar_write("coll_mpath_enable", 1);
    }
    return (sides & BENCH_NCCL) ? add_nccl(bench) : 0;
}

void bench_contest_destroy(bench_t *bench)
{
    int i;

    for (i = 0; i < bench->num_contestants; i++) {
        if (bench->contestants[i].comm != MPI_COMM_NULL) {
            MPI_Comm_free(&bench->contestants[i].comm);
        }
        free(bench->contestants[i].times_ns);
        free(bench->contestants[i].rail_bytes);
    }
    bench_nccl_close();
    bench_pvars_close(&bench->pvars);
}

/* Until the receive buffer is complete and the send buffer may be written. */
static void perform(bench_data_t *data, const bench_contestant_t *contestant)
{
    int stage_send    = !bench_memory_on_host(data->send.kind);
    int stage_receive = !bench_memory_on_host(data->receive.kind);

    switch (contestant->how) {
    case BENCH_HOW_MPI:
        data->op->call(data, data->send.address, data->receive.address, contestant->comm);
        break;
    case BENCH_HOW_NCCL:
        data->op->call_nccl(data);
        bench_nccl_finish();
        break;
    case BENCH_HOW_STAGED:
        if (stage_send) {
            bench_buffer_copy(&data->host_send, &data->send);
        }
        data->op->call(data, stage_send ? data->host_send.address : data->send.address,
                       stage_receive ? data->host_receive.address : data->receive.address, contestant->comm);
        if (stage_receive) {
            bench_buffer_copy(&data->receive, &data->host_receive);
            bench_gpu_settle();
        }
        break;
    }
}

/* One call; returns nanoseconds on rank 0. */
static uint64_t time_call(bench_t *bench, bench_data_t *data, bench_contestant_t *contestant)
{
    uint64_t span[2], extremes[2];

    MPI_Barrier(MPI_COMM_WORLD);
    span[0] = mpath_time_ns();
    perform(data, contestant);
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
    uint64_t rails_before[2 * MPATH_MAX_NICS], rails_after[2 * MPATH_MAX_NICS], elapsed_ns, free_bytes = 0;
    int leader      = bench->rails.leaders != MPI_COMM_NULL, i;
    int verify      = iteration == -bench->options.warmup || bench->options.check;
    int nccl_begins = contestant->how == BENCH_HOW_NCCL && iteration == -bench->options.warmup;

    if (verify) {
        data->op->fill(data, ++bench->round);
    }
    bench_pvars_read(&bench->pvars, before);
    bench_gpu_settle();
    if (nccl_begins) {
        MPI_Barrier(MPI_COMM_WORLD);
        free_bytes = bench_gpu_free_bytes();
    }
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
    contestant->gpu_bytes += (int64_t)(after[BENCH_PVAR_DEVICE_BYTES] - before[BENCH_PVAR_DEVICE_BYTES]);
    if (nccl_begins) {
        contestant->gpu_bytes += (int64_t)(free_bytes - bench_gpu_free_bytes());
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
        if (iteration >= 0) {
            progress_more(", call %d of %d", iteration + 1, bench->options.iterations);
        }
        for (i = 0; i < bench->num_contestants; i++) {
            run_one(bench, data, &bench->contestants[i], iteration);
        }
    }
}

int bench_carried_none(const bench_contestant_t *contestant)
{
    return contestant->is_mpath && contestant->counters[BENCH_PVAR_CALLS] == 0;
}

const char *bench_row_name(const bench_contestant_t *contestant)
{
    return bench_carried_none(contestant) ? "not mpath" : contestant->name;
}
