/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: times collectives on skewed matrices, checks what arrives, and compares with the functions that mpath
 * replaces, interleaved in the same run. Every matrix is run with every size, one case after the other.
 */
#include "tools/bench/op.h"

#include "plan/demand.h"
#include "plan/matrix.h"
#include "plan/workload.h"
#include "tools/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPU_ALIGNMENT 128 /* of pieces, as allocators and NCCL's own test have them */

/* A matrix file on rank 0; 0 or 1. */
static int load_matrix(const bench_t *bench, const bench_matrix_t *matrix, uint64_t **demand_p)
{
    const mpath_matrix_format_t format = {.scale = bench->options.matrix_scale, .step = matrix->step};
    const char *path                   = matrix->file;
    int file_ranks, has_shares;

    if (mpath_matrix_load(path, &format, &file_ranks, &has_shares, demand_p) != MPATH_OK) {
        return 1;
    }
    if (file_ranks == bench->size) {
        return 0;
    }
    fprintf(stderr, "mpath_bench: matrix file %s is for %d ranks, the job has %d; it was not run\n", path, file_ranks,
            bench->size);
    free(*demand_p);
    *demand_p = NULL;
    return 1;
}

/* A workload's on rank 0; 0 or 1. */
static int make_workload(const bench_t *bench, const bench_matrix_t *matrix, uint64_t bytes, uint64_t *demand)
{
    const bench_options_t *options = &bench->options;
    mpath_workload_t workload;
    mpath_status_t status = mpath_workload_open(matrix->workload, &workload);

    if (status == MPATH_OK) {
        status = mpath_workload_demand(&workload, bench->size, options->seed, matrix->step, bytes, options->unit,
                                       demand);
        mpath_workload_close(&workload);
    }
    return status != MPATH_OK;
}

static void allocate_demand(const bench_t *bench, bench_case_t *a_case)
{
    if (a_case->demand == NULL) {
        a_case->demand = calloc((size_t)bench->size * (size_t)bench->size, sizeof(*a_case->demand));
    }
    if (a_case->demand == NULL) {
        fprintf(stderr, "mpath_bench: rank %d: out of memory\n", bench->rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The matrix of a case, the same on every rank: rank 0 makes or reads it. */
static int make_demand(const bench_t *bench, const bench_matrix_t *matrix, bench_case_t *a_case)
{
    const bench_options_t *options = &bench->options;
    size_t entries                 = (size_t)bench->size * (size_t)bench->size;
    int status                     = 0;

    if (bench->rank == 0 && matrix->kind == BENCH_FILE) {
        status = load_matrix(bench, matrix, &a_case->demand);
    }
    if (status == 0) {
        allocate_demand(bench, a_case);
    }
    if (bench->rank == 0 && matrix->kind == BENCH_WORKLOAD) {
        status = make_workload(bench, matrix, a_case->bytes, a_case->demand);
    }
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (status != 0) {
        return -1;
    }
    if (matrix->kind == BENCH_PAIR) {
        memset(a_case->demand, 0, entries * sizeof(*a_case->demand));
        a_case->demand[(size_t)matrix->source * (size_t)bench->size + (size_t)matrix->destination] = a_case->bytes;
    }
    if (bench->rank == 0 && matrix->kind == BENCH_HOT) {
        mpath_demand_hot(bench->size, options->hot_rank, matrix->ppm, a_case->bytes, options->unit, a_case->demand);
    } else if (bench->rank == 0 && matrix->kind == BENCH_ZIPF) {
        mpath_demand_zipf(bench->size, matrix->ppm, options->seed, a_case->bytes, options->unit, a_case->demand);
    }
    MPI_Bcast(a_case->demand, (int)(entries * sizeof(*a_case->demand)), MPI_BYTE, 0, MPI_COMM_WORLD);
    return 0;
}

/* Nonzero: no rank below it is on its node. */
static int is_first(const bench_t *bench, int rank)
{
    int before;

    for (before = 0; before < rank; before++) {
        if (bench->rails.places[before].node == bench->rails.places[rank].node) {
            return 0;
        }
    }
    return 1;
}

/* What has to cross between nodes, as a matrix of their first ranks. */
static int make_bound(const bench_t *bench, bench_case_t *a_case)
{
    int nodes = bench->rails.num_nodes, size = bench->size, i, j, status;
    uint64_t bytes   = bench->options.op->crossing_bytes(a_case->bytes, nodes, size / nodes);
    uint64_t *demand = calloc((size_t)size * (size_t)size, sizeof(*demand));

    if (demand == NULL) {
        fprintf(stderr, "mpath_bench: rank %d: out of memory\n", bench->rank);
        return -1;
    }
    for (i = 0; i < size; i++) {
        for (j = 0; j < size; j++) {
            int from = bench->rails.places[i].node, to = bench->rails.places[j].node;

            if (from != to && is_first(bench, i) && is_first(bench, j)) {
                demand[(size_t)i * (size_t)size + (size_t)j] = bytes;
            }
        }
    }
    status = bench_rails_bound(&bench->rails, size, demand, &a_case->bound_ns);
    free(demand);
    return status;
}

static int make_case(const bench_t *bench, const bench_matrix_t *matrix, uint64_t bytes, bench_case_t *a_case)
{
    memset(a_case, 0, sizeof(*a_case));
    a_case->bytes = bytes;
    if (bench->options.op->has_matrix) {
        switch (matrix->kind) {
        case BENCH_HOT:
            snprintf(a_case->name, sizeof(a_case->name), "hot %.6g", matrix->ppm / 1e6);
            break;
        case BENCH_ZIPF:
            snprintf(a_case->name, sizeof(a_case->name), "zipf %.6g", matrix->ppm / 1e6);
            break;
        case BENCH_PAIR:
            snprintf(a_case->name, sizeof(a_case->name), "pair %d-%d", matrix->source, matrix->destination);
            break;
        case BENCH_FILE:
            snprintf(a_case->name, sizeof(a_case->name), bench->options.num_steps > 0 ? "%s step %llu" : "%s",
                     matrix->file, (unsigned long long)matrix->step);
            break;
        case BENCH_WORKLOAD:
            snprintf(a_case->name, sizeof(a_case->name), "%s step %llu", matrix->workload,
                     (unsigned long long)matrix->step);
            break;
        }
        if (make_demand(bench, matrix, a_case) != 0) {
            return -1;
        }
        if (bench->emulated != NULL
                ? bench_emulation_bound(bench, a_case) != 0
                : bench_rails_bound(&bench->rails, bench->size, a_case->demand, &a_case->bound_ns) != 0) {
            return -1;
        }
    }
    if (bench->options.op->crossing_bytes != NULL && bench->emulated == NULL && make_bound(bench, a_case) != 0) {
        return -1;
    }
    bench->options.op->weigh(bench->size, a_case);
    return 0;
}

/* Sums and gathers to rank 0, and reports there; returns nonzero on all ranks when something was wrong. */
static int report(bench_t *bench, const bench_case_t *a_case, int index, int num_cases)
{
    size_t per_node = 2 * MPATH_MAX_NICS, all_nodes = per_node * (size_t)bench->rails.num_nodes;
    uint64_t *rail_bytes = NULL, wrong;
    unsigned long long counters[BENCH_MAX_PVARS];
    int64_t gpu_bytes;
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
        MPI_Reduce(&contestant->gpu_bytes, &gpu_bytes, 1, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Reduce(contestant->counters, counters, BENCH_MAX_PVARS, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (bench->rails.leaders != MPI_COMM_NULL) {
            MPI_Gather(contestant->rail_bytes, (int)per_node, MPI_UINT64_T,
                       bench->rank == 0 ? rail_bytes + (size_t)i * all_nodes : NULL, (int)per_node, MPI_UINT64_T, 0,
                       bench->rails.leaders);
        }
        if (bench->rank == 0) {
            contestant->wrong_bytes    = wrong;
            contestant->most_gpu_bytes = gpu_bytes;
            memcpy(contestant->counters, counters, sizeof(counters));
        }
    }
    if (bench->rank == 0) {
        status = bench_report(bench, a_case, index, num_cases, rail_bytes);
        free(rail_bytes);
    }
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return status;
}

/* What the stock functions are given in the place of device memory. */
static int create_host_copies(const bench_options_t *options, bench_data_t *data)
{
    int status = 0;

    if ((options->sides & BENCH_STOCK_MASK) == 0) {
        return 0;
    }
    if (!bench_memory_on_host(data->send.kind)) {
        status |= bench_buffer_create(BENCH_MEMORY_PINNED, data->send.bytes, &data->host_send);
    }
    if (!bench_memory_on_host(data->receive.kind)) {
        status |= bench_buffer_create(BENCH_MEMORY_PINNED, data->receive.bytes, &data->host_receive);
        if (status == 0) {
            bench_buffer_set(&data->host_receive, BENCH_GUARD_VALUE);
        }
    }
    return status;
}

static void progress_case(const bench_case_t *a_case, int index, int num_cases)
{
    const char *separator = a_case->name[0] != '\0' ? ", " : "";

    progress_step("case %d of %d: %s%s%llu bytes", index + 1, num_cases, a_case->name, separator,
                  (unsigned long long)a_case->bytes);
}

/* 0, 1: a byte was wrong, 2: the case could not be run. */
static int run_case(bench_t *bench, const bench_matrix_t *matrix, uint64_t bytes, int index, int num_cases)
{
    int gpu           = bench_uses_gpu(&bench->options);
    bench_data_t data = {.op      = bench->options.op,
                         .rank    = bench->rank,
                         .size    = bench->size,
                         .send    = {.kind = bench->options.send_memory},
                         .receive = {.kind = bench->options.receive_memory},
                         .align   = gpu ? GPU_ALIGNMENT : 1};
    bench_case_t a_case;
    int status, bad;

    if (make_case(bench, matrix, bytes, &a_case) != 0) {
        free(a_case.demand);
        return 2;
    }
    data.a_case = &a_case;
    bad         = data.op->create(&data) != 0 || create_host_copies(&bench->options, &data) != 0;
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (bad) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    progress_case(&a_case, index, num_cases);
    bench_contest_run(bench, &data);
    if (bench->options.overlap) {
        bench_overlap_run(bench, &data);
    }
    progress_stop();
    status = report(bench, &a_case, index, num_cases) != 0;
    if (bench->options.overlap && bench->rank == 0) {
        bench_overlap_report(bench);
    }
    data.op->destroy(&data);
    bench_buffer_destroy(&data.host_send);
    bench_buffer_destroy(&data.host_receive);
    free(a_case.demand);
    return status;
}

static int run_all(bench_t *bench)
{
    const bench_options_t *options = &bench->options;
    int status = 0, case_status, num_cases = 0, index = 0, m, s, sizes;

    for (m = 0; m < options->num_matrices; m++) {
        num_cases += options->matrices[m].kind == BENCH_FILE ? 1 : options->num_sizes;
    }
    for (m = 0; m < options->num_matrices; m++) {
        sizes = options->matrices[m].kind == BENCH_FILE ? 1 : options->num_sizes;
        for (s = 0; s < sizes; s++, index++) {
            case_status = run_case(bench, &options->matrices[m], options->sizes[s], index, num_cases);
            status      = case_status > status ? case_status : status;
        }
    }
    if (bench->rank == 0 && bench_report_finish(bench) != 0 && status == 0) {
        status = 1;
    }
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return status;
}

/* The GPU of this rank, and what the report says of them. Collective; returns 0, or -1 on all ranks with a message. */
static int open_gpu(bench_t *bench)
{
    const bench_options_t *options = &bench->options;
    int bad                        = 0;

    if (bench_uses_gpu(options)) {
        bad = bench_gpu_open(bench->rails.node_rank) != 0;
    }
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return bad ? -1 : 0;
}

static void describe_gpu(bench_t *bench)
{
    const bench_options_t *options = &bench->options;
    char nccl[64]                  = "";
    int version                    = bench_nccl.version;

    if (version > 0) {
        snprintf(nccl, sizeof(nccl), ", NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    }
    snprintf(bench->gpu_text, sizeof(bench->gpu_text), "%d x %s, CUDA %d.%d%s, %s to %s", bench_gpu.num_devices,
             bench_gpu.name, bench_gpu.driver_version / 1000, bench_gpu.driver_version % 1000 / 10, nccl,
             bench_memory_names[options->send_memory], bench_memory_names[options->receive_memory]);
}

/* Everything that outlives a case. 0, 1: a byte was wrong, 2: not everything could be run. */
static int run_job(bench_t *bench)
{
    int status = 2, bad = bench_rails_create(&bench->options, &bench->rails) != 0;

    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (bad) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (bench_emulation_open(bench) == 0 && open_gpu(bench) == 0) {
        if (bench_contest_create(bench) == 0) {
            describe_gpu(bench);
            status = run_all(bench);
        }
        bench_contest_destroy(bench);
    }
    bench_gpu_close();
    bench_emulation_close(bench);
    bench_rails_destroy(&bench->rails);
    return status;
}

/* Whether the result can be written, as told before anything is run; 0 or 2. */
static int check_json(const bench_t *bench)
{
    const char *path = bench->options.json;
    int status       = 0;
    FILE *file;

    if ((bench->rank == 0) && (path != NULL) && (strcmp(path, "-") != 0)) {
        file = fopen(path, "a");
        if (file == NULL) {
            fprintf(stderr, "mpath_bench: --json %s cannot be written: %s; nothing was run\n", path, strerror(errno));
            status = 2;
        } else {
            fclose(file);
        }
    }
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return status;
}

/* What the options can only be held against in the job; 0 or 2. */
static int check_options(const bench_t *bench)
{
    const bench_options_t *options = &bench->options;
    int i;

    if (options->hot_rank >= bench->size) {
        if (bench->rank == 0) {
            fprintf(stderr, "mpath_bench: --hot-rank %d: the job has %d ranks; nothing was run\n", options->hot_rank,
                    bench->size);
        }
        return 2;
    }
    for (i = 0; i < options->num_matrices; i++) {
        if (options->matrices[i].source >= bench->size || options->matrices[i].destination >= bench->size) {
            if (bench->rank == 0) {
                fprintf(stderr, "mpath_bench: --pair %d-%d: the job has %d ranks; nothing was run\n",
                        options->matrices[i].source, options->matrices[i].destination, bench->size);
            }
            return 2;
        }
    }
    return check_json(bench);
}

/* Standard output is for the JSON: everything else that this process writes there goes to standard error. 0 or 2. */
static int keep_stdout(bench_t *bench)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

    bench->json_file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (bench->json_file == NULL || fflush(stdout) != 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        fprintf(stderr, "mpath_bench: rank %d: --json -: standard output cannot be written: %s; the job ends\n",
                bench->rank, strerror(errno));
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static bench_t bench;
    int provided, status;

    /* tuned reads forced algorithms only with dynamic rules; the fixed rules stay in force where none is forced */
    setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0);
    bench_nccl_prepare();
    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.size);
    status = bench_options_parse(argc, argv, bench.rank, &bench.options);
    progress_start("mpath_bench", bench.rank != 0          ? PROGRESS_NEVER
                                  : bench.options.progress ? PROGRESS_LINES
                                                           : PROGRESS_AUTO);
    if (status == 0) {
        status = check_options(&bench);
    }
    if (status == 0 && bench.options.json != NULL && strcmp(bench.options.json, "-") == 0) {
        status = keep_stdout(&bench);
    }
    if (status == 0) {
        status = run_job(&bench);
    } else if (status == 1) {
        status = 0;
    }
    MPI_T_finalize();
    MPI_Finalize();
    return status;
}
