/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench --overlap: a non-blocking collective beside a computation that alone takes as long as the collective. On
 * the host the computation is a fixed amount of arithmetic with MPI_Test in between; with device memory a kernel that
 * occupies every multiprocessor for a set time, while this thread calls MPI_Test. Perfect overlap takes as long as the
 * longer of both.
 */
#include "tools/bench/op.h"

#include "util/time.h"

#include <stdlib.h>

#define PIECE_NS 100000u /* of arithmetic between two calls of MPI_Test */
#define CALIBRATE_STEPS 2000000u
#define SPIN_THREADS 256u

/* A loop until the GPU's clock has gone on by `ns`. */
static const char spin_source[] = ".version 6.0\n"
                                  ".target sm_50\n"
                                  ".address_size 64\n"
                                  ".visible .entry bench_spin(.param .u64 ns)\n"
                                  "{\n"
                                  "    .reg .u64 %rd<5>;\n"
                                  "    .reg .pred %p;\n"
                                  "    ld.param.u64 %rd1, [ns];\n"
                                  "    mov.u64 %rd2, %globaltimer;\n"
                                  "    add.u64 %rd3, %rd2, %rd1;\n"
                                  "again:\n"
                                  "    mov.u64 %rd4, %globaltimer;\n"
                                  "    setp.lt.u64 %p, %rd4, %rd3;\n"
                                  "    @%p bra again;\n"
                                  "    ret;\n"
                                  "}\n";

#define CHECK(_call, ...) bench_gpu_check(bench_gpu.cu->_call(__VA_ARGS__), "cu" #_call)

typedef struct computation {
    int on_gpu;
    uint64_t ns; /* how long it takes alone */
    uint64_t steps, piece_steps;
    mpath_cu_module_t module;
    mpath_cu_function_t spin;
    unsigned blocks;
} computation_t;

static volatile double arithmetic_result;

static void arithmetic(uint64_t steps)
{
    double value = arithmetic_result;

    for (uint64_t i = 0; i < steps; i++) {
        value = value * 0.999999 + 1e-3;
    }
    arithmetic_result = value;
}

static void computation_open(int on_gpu, computation_t *computation)
{
    int blocks = 1;

    *computation = (computation_t){.on_gpu = on_gpu};
    if (on_gpu) {
        CHECK(ModuleLoadData, &computation->module, spin_source);
        CHECK(ModuleGetFunction, &computation->spin, computation->module, "bench_spin");
        CHECK(DeviceGetAttribute, &blocks, MPATH_CU_DEV_MULTIPROCESSORS, bench_gpu.device);
        computation->blocks = (unsigned)blocks;
    }
}

static void computation_close(computation_t *computation)
{
    if (computation->on_gpu) {
        CHECK(ModuleUnload, computation->module);
    }
}

/* Makes it take `ns` on every rank. */
static void computation_set(computation_t *computation, uint64_t ns)
{
    uint64_t start_ns, steps_ns;

    computation->ns = ns;
    if (!computation->on_gpu) {
        start_ns = mpath_time_ns();
        arithmetic(CALIBRATE_STEPS);
        steps_ns                 = mpath_time_ns() - start_ns + 1;
        computation->steps       = (uint64_t)((double)CALIBRATE_STEPS * (double)ns / (double)steps_ns) + 1;
        computation->piece_steps = (uint64_t)((double)CALIBRATE_STEPS * PIECE_NS / (double)steps_ns) + 1;
    }
}

/* Computes, and ends the request in the meantime as far as it gets; `request` may be MPI_REQUEST_NULL. */
static void compute(const computation_t *computation, MPI_Request *request)
{
    uint64_t left = computation->steps, ns = computation->ns;
    void *arguments[] = {&ns};
    int done          = *request == MPI_REQUEST_NULL;

    if (computation->on_gpu) {
        CHECK(LaunchKernel, computation->spin, computation->blocks, 1, 1, SPIN_THREADS, 1, 1, 0, bench_gpu.stream,
              arguments, NULL);
        while (!done && bench_gpu.cu->StreamQuery(bench_gpu.stream) == MPATH_CU_NOT_READY) {
            MPI_Test(request, &done, MPI_STATUS_IGNORE);
        }
        CHECK(StreamSynchronize, bench_gpu.stream);
        return;
    }
    while (left > 0) {
        uint64_t piece = left < computation->piece_steps ? left : computation->piece_steps;

        arithmetic(piece);
        left -= piece;
        if (!done) {
            MPI_Test(request, &done, MPI_STATUS_IGNORE);
        }
    }
}

typedef enum part { PART_CALL, PART_COMPUTATION, PART_BOTH, PARTS } part_t;

/* Nanoseconds of the slowest rank, of the whole part and of the start alone. */
typedef struct timing {
    uint64_t all_ns, start_ns;
} timing_t;

static timing_t time_part(const bench_data_t *data, const bench_contestant_t *contestant,
                          const computation_t *computation, part_t part)
{
    MPI_Request request = MPI_REQUEST_NULL;
    uint64_t ns[2]      = {0}, slowest_ns[2], begin_ns;

    MPI_Barrier(MPI_COMM_WORLD);
    begin_ns = mpath_time_ns();
    if (part != PART_COMPUTATION) {
        data->op->start(data, data->send.address, data->receive.address, contestant->comm, &request);
        ns[1] = mpath_time_ns() - begin_ns;
    }
    if (part != PART_CALL) {
        compute(computation, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    ns[0] = mpath_time_ns() - begin_ns;
    MPI_Reduce(ns, slowest_ns, 2, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Bcast(slowest_ns, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    return (timing_t){.all_ns = slowest_ns[0], .start_ns = slowest_ns[1]};
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

static uint64_t median(uint64_t *times, int count)
{
    qsort(times, (size_t)count, sizeof(*times), compare);
    return count % 2 ? times[count / 2] : (times[count / 2 - 1] + times[count / 2]) / 2;
}

static int can_overlap(const bench_data_t *data, const bench_contestant_t *contestant)
{
    return data->op->start != NULL && contestant->how == BENCH_HOW_MPI;
}

/* The call alone first: the computation is to take as long. */
static void measure(bench_t *bench, bench_data_t *data, bench_contestant_t *contestant, computation_t *computation)
{
    int iterations   = bench->options.iterations;
    uint64_t *times  = malloc((size_t)iterations * sizeof(*times)),
             *starts = malloc((size_t)iterations * sizeof(*starts));

    if (times == NULL || starts == NULL) {
        fprintf(stderr, "mpath_bench: rank %d: out of memory\n", bench->rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    data->op->fill(data, ++bench->round);
    bench_gpu_settle();
    for (part_t part = PART_CALL; part < PARTS; part++) {
        (void)time_part(data, contestant, computation, part);
        for (int i = 0; i < iterations; i++) {
            timing_t timing = time_part(data, contestant, computation, part);

            times[i]  = timing.all_ns;
            starts[i] = timing.start_ns;
        }
        contestant->overlap_ns[part] = median(times, iterations);
        if (part == PART_CALL) {
            contestant->start_ns = median(starts, iterations);
            computation_set(computation, contestant->overlap_ns[PART_CALL]);
        }
    }
    contestant->wrong_bytes += data->op->check(data, bench->round);
    free(times);
    free(starts);
}

void bench_overlap_run(bench_t *bench, bench_data_t *data)
{
    int on_gpu = !bench_memory_on_host(data->send.kind) || !bench_memory_on_host(data->receive.kind);
    computation_t computation;

    computation_open(on_gpu, &computation);
    for (int i = 0; i < bench->num_contestants; i++) {
        if (can_overlap(data, &bench->contestants[i])) {
            measure(bench, data, &bench->contestants[i], &computation);
        }
    }
    computation_close(&computation);
}

double bench_overlap_share(const bench_contestant_t *contestant)
{
    const uint64_t *ns = contestant->overlap_ns;
    uint64_t ideal_ns  = ns[PART_CALL] > ns[PART_COMPUTATION] ? ns[PART_CALL] : ns[PART_COMPUTATION];

    return ns[PART_BOTH] > 0 ? (double)ideal_ns / (double)ns[PART_BOTH] : 0;
}

void bench_overlap_report(const bench_t *bench)
{
    printf("overlap, medians in us  start       call  computation         both   of the ideal\n");
    for (int i = 0; i < bench->num_contestants; i++) {
        const bench_contestant_t *contestant = &bench->contestants[i];
        const uint64_t *ns                   = contestant->overlap_ns;

        if (ns[PART_BOTH] > 0) {
            printf("  %-18s %9.1f %10.1f %12.1f %12.1f %12.0f %%\n", bench_row_name(contestant),
                   (double)contestant->start_ns / 1e3, (double)ns[PART_CALL] / 1e3, (double)ns[PART_COMPUTATION] / 1e3,
                   (double)ns[PART_BOTH] / 1e3, 100 * bench_overlap_share(contestant));
        }
    }
    fflush(stdout);
}
