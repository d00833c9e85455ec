/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: times MPI_Alltoallv on skewed matrices, checks what arrives, and compares with the functions that mpath
 * replaces, interleaved in the same run: each contestant is a communicator, the stock ones are made while the component is
 * told to keep away (control variable coll_mpath_enable).
 */
#include "tools/bench.h"

#include "plan/demand.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

typedef struct bench {
    bench_options_t options;
    int rank, size;
    uint64_t *demand;
    bench_data_t data;
    bench_rails_t rails;
    bench_pvars_t pvars;
    bench_contestant_t contestants[BENCH_MAX_CONTESTANTS];
    int num_contestants;
    uint32_t round;
} bench_t;

/* The matrix, the same on every rank: rank 0 makes or reads it. */
static int make_demand(bench_t *bench)
{
    const bench_options_t *options = &bench->options;
    size_t entries                 = (size_t)bench->size * (size_t)bench->size;
    int file_ranks, status = 0;

    if (bench->rank == 0) {
        if (options->matrix == BENCH_FILE) {
            if (mpath_demand_load(options->matrix_file, &file_ranks, &bench->demand) != MPATH_OK) {
                status = 1;
            } else if (file_ranks != bench->size) {
                fprintf(stderr, "mpath_bench: matrix file %s is for %d ranks, the job has %d; nothing was run\n",
                        options->matrix_file, file_ranks, bench->size);
                status = 1;
            }
        } else if (options->matrix == BENCH_HOT && options->hot_rank >= bench->size) {
            fprintf(stderr, "mpath_bench: --hot-rank %d: the job has %d ranks; nothing was run\n", options->hot_rank,
                    bench->size);
            status = 1;
        }
    }
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (status != 0) {
        return -1;
    }
    if (bench->demand == NULL) {
        bench->demand = calloc(entries, sizeof(*bench->demand));
        if (bench->demand == NULL) {
            fprintf(stderr, "mpath_bench: rank %d: out of memory\n", bench->rank);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    if (bench->rank == 0 && options->matrix == BENCH_HOT) {
        mpath_demand_hot(bench->size, options->hot_rank, options->hot_ppm, options->bytes, 1, bench->demand);
    } else if (bench->rank == 0 && options->matrix == BENCH_ZIPF) {
        mpath_demand_zipf(bench->size, options->zipf_ppm, options->seed, options->bytes, 1, bench->demand);
    }
    MPI_Bcast(bench->demand, (int)(entries * sizeof(*bench->demand)), MPI_BYTE, 0, MPI_COMM_WORLD);
    return 0;
}

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

static void make_contestants(bench_t *bench)
{
    bench_pvars_t *pvars = &bench->pvars;
    int enabled          = bench_cvar_write("coll_mpath_enable", 1) == MPI_SUCCESS;

    bench_pvars_open(pvars);
    add_contestant(bench, enabled ? "mpath" : "as started", 0);
    if (enabled) {
        bench_cvar_write("coll_mpath_enable", 0);
    }
    if (bench->options.against & BENCH_STOCK_LINEAR) {
        add_contestant(bench, "stock linear", 1);
    }
    if (bench->options.against & BENCH_STOCK_PAIRWISE) {
        add_contestant(bench, "stock pairwise", 2);
    }
    if (enabled) {
        bench_cvar_write("coll_mpath_enable", 1);
    }
}

/* One call; returns nanoseconds on rank 0. */
static uint64_t time_call(bench_t *bench, MPI_Comm comm)
{
    bench_data_t *data = &bench->data;
    uint64_t span[2], extremes[2];

    MPI_Barrier(MPI_COMM_WORLD);
    span[0] = mpath_time_ns();
    MPI_Alltoallv(data->send, data->send_counts, data->send_offsets, MPI_BYTE, data->receive, data->receive_counts,
                  data->receive_offsets, MPI_BYTE, comm);
    span[1] = mpath_time_ns();
    if (!bench->rails.one_clock) {
        span[1] -= span[0];
        span[0] = 0;
    }
    MPI_Reduce(&span[0], &extremes[0], 1, MPI_UINT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&span[1], &extremes[1], 1, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    return bench->rank == 0 ? extremes[1] - extremes[0] : 0;
}

/* iteration < 0: warm-up, which is checked and not timed */
static void run_one(bench_t *bench, bench_contestant_t *contestant, int iteration)
{
    unsigned long long before[BENCH_MAX_PVARS], after[BENCH_MAX_PVARS];
    uint64_t rails_before[2 * MPATH_MAX_NICS], rails_after[2 * MPATH_MAX_NICS], elapsed_ns;
    int leader = bench->rails.leaders != MPI_COMM_NULL, verify = iteration < 0 || bench->options.check, i;

    if (verify) {
        bench_data_fill(&bench->data, ++bench->round);
    }
    bench_pvars_read(&bench->pvars, before);
    MPI_Barrier(MPI_COMM_WORLD);
    if (leader) {
        bench_rails_read(&bench->rails, rails_before, rails_before + MPATH_MAX_NICS);
    }
    elapsed_ns = time_call(bench, contestant->comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (leader) {
        bench_rails_read(&bench->rails, rails_after, rails_after + MPATH_MAX_NICS);
    }
    bench_pvars_read(&bench->pvars, after);
    if (verify) {
        contestant->wrong_bytes += bench_data_check(&bench->data, bench->round);
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

static void run_all(bench_t *bench)
{
    int iteration, i;

    for (iteration = -bench->options.warmup; iteration < bench->options.iterations; iteration++) {
        for (i = 0; i < bench->num_contestants; i++) {
            run_one(bench, &bench->contestants[i], iteration);
        }
    }
}

/* Sums and gathers to rank 0, and reports there; returns the exit status, the same on all ranks. */
static int finish(bench_t *bench)
{
    size_t per_node = 2 * MPATH_MAX_NICS, all_nodes = per_node * (size_t)bench->rails.num_nodes;
    uint64_t *rail_bytes = NULL, wrong;
    unsigned long long counters[BENCH_MAX_PVARS];
    int i, status = 0;

    if (bench->rank == 0) {
        rail_bytes = calloc(all_nodes * (size_t)bench->num_contestants, sizeof(*rail_bytes));
        if (rail_bytes == NULL) {
            fprintf(stderr, "mpath_bench: out of memory\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    for (i = 0; i < bench->num_contestants; i++) {
        bench_contestant_t *contestant = &bench->contestants[i];

        MPI_Reduce(&contestant->wrong_bytes, &wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
        MPI_Reduce(contestant->counters, counters, BENCH_MAX_PVARS, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (bench->rails.leaders != MPI_COMM_NULL) {
            MPI_Gather(contestant->rail_bytes, (int)per_node, MPI_UINT64_T,
                       bench->rank == 0 ? rail_bytes + (size_t)i * all_nodes : NULL, (int)per_node, MPI_UINT64_T, 0,
                       bench->rails.leaders);
        }
        if (bench->rank == 0) {
            contestant->wrong_bytes = wrong;
            memcpy(contestant->counters, counters, sizeof(counters));
        }
    }
    if (bench->rank == 0) {
        status = bench_report(&bench->options, &bench->rails, bench->size, bench->demand, bench->contestants,
                              bench->num_contestants, rail_bytes);
        free(rail_bytes);
    }
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return status;
}

static void release(bench_t *bench)
{
    int i;

    for (i = 0; i < bench->num_contestants; i++) {
        MPI_Comm_free(&bench->contestants[i].comm);
        free(bench->contestants[i].times_ns);
        free(bench->contestants[i].rail_bytes);
    }
    bench_pvars_close(&bench->pvars);
    bench_rails_destroy(&bench->rails);
    bench_data_destroy(&bench->data);
    free(bench->demand);
}

int main(int argc, char **argv)
{
    static bench_t bench;
    int provided, status, bad;

    /* tuned reads forced algorithms only with dynamic rules; the fixed rules stay in force where none is forced */
    setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0);
    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.size);
    status = bench_options_parse(argc, argv, bench.rank, &bench.options);
    if (status == 0) {
        status = make_demand(&bench) == 0 ? 0 : 2;
    }
    if (status != 0) {
        free(bench.demand);
        MPI_T_finalize();
        MPI_Finalize();
        return status == 1 ? 0 : status;
    }
    bad = bench_data_create(bench.rank, bench.size, bench.demand, &bench.data) != 0;
    bad |= bench_rails_create(&bench.options, bench.demand, &bench.rails) != 0;
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (bad) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    make_contestants(&bench);
    run_all(&bench);
    status = finish(&bench);
    release(&bench);
    MPI_T_finalize();
    MPI_Finalize();
    return status;
}
