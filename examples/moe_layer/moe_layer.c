/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mixture-of-experts layer over MPI on GPUs: tokens per second with the ways to exchange rows interleaved, every
 * result compared with that of one GPU alone. doc/moe_layer.md.
 */
#include "moe.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CASES 16
#define MAX_BACKENDS 4
#define TOLERANCE 0.02 /* of the largest value: BF16 has 8 bits, and products of other shapes add up in another order */

#ifndef MPATH_VERSION
#define MPATH_VERSION "(version unknown)"
#endif

static const char usage[] =
    "usage: mpirun ... moe_layer [options]\n"
    "  --tokens LIST    of all ranks together, with suffix k (default 16k)\n"
    "  --skew LIST      share of the tokens whose first expert is expert 0, 0 to 1 (default 0.9); the router chooses\n"
    "                   the rest\n"
    "  --experts N      (default 8); expert e lives on rank e * ranks / experts\n"
    "  --topk N         experts of a token (default 2)\n"
    "  --hidden N       values of a token, a multiple of 8 (default 4096)\n"
    "  --ffn N          values between an expert's two products, a multiple of 8 (default 4096)\n"
    "  --backends LIST  of stock, nccl, static and mpath (default all; those that cannot run are left out)\n"
    "  --iters N        timed iterations of each (default 20)\n"
    "  --warmup N       (default 3)\n"
    "  --seed N         of tokens and weights (default 1)\n"
    "  -h, --help       this text\n"
    "  --version        the version of mpath that it came with\n";

typedef struct options {
    moe_shape_t shape;
    long tokens[MAX_CASES];
    float skews[MAX_CASES];
    int num_tokens, num_skews, iterations, warmup;
    const char *backends;
} options_t;

void moe_fail(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    fputs("moe_layer: ", stderr);
    vfprintf(stderr, format, list);
    fputs("\n", stderr);
    va_end(list);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

/* A whole number with an optional k; -1: none. */
static long parse_number(const char *text, long least, long most)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (end != text && *end == 'k') {
        value *= 1024;
        end++;
    }
    return end == text || *end != '\0' || value < least || value > most ? -1 : value;
}

static int parse_lists(options_t *options, const char *text, int skews)
{
    char copy[256], *rest = copy, *word, *end;

    snprintf(copy, sizeof(copy), "%s", text);
    options->num_tokens = skews ? options->num_tokens : 0;
    options->num_skews  = skews ? 0 : options->num_skews;
    while ((word = strsep(&rest, ",")) != NULL) {
        if (skews) {
            float value = strtof(word, &end);

            if (options->num_skews == MAX_CASES || end == word || *end != '\0' || !(value >= 0 && value <= 1)) {
                return 0;
            }
            options->skews[options->num_skews++] = value;
        } else {
            long value = parse_number(word, 1, 1l << 30);

            if (options->num_tokens == MAX_CASES || value < 0) {
                return 0;
            }
            options->tokens[options->num_tokens++] = value;
        }
    }
    return 1;
}

/* One number into its place; 0 when it is none. */
static int set_number(options_t *options, int option, const char *text)
{
    static const struct {
        int option;
        long least, most;
    } limits[] = {{'e', 1, MOE_MAX_EXPERTS}, {'k', 1, MOE_MAX_TOPK}, {'d', 8, 1 << 16}, {'f', 8, 1 << 18},
                  {'i', 1, 100000},          {'w', 0, 100000},       {'r', 0, 1 << 30}};
    long value = -1;
    size_t i;

    for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        value = limits[i].option == option ? parse_number(text, limits[i].least, limits[i].most) : value;
    }
    switch (value < 0 ? '?' : option) {
    case 'e':
        options->shape.experts = (int)value;
        return 1;
    case 'k':
        options->shape.topk = (int)value;
        return 1;
    case 'd':
        options->shape.hidden = (int)value;
        return value % 8 == 0;
    case 'f':
        options->shape.ffn = (int)value;
        return value % 8 == 0;
    case 'i':
        options->iterations = (int)value;
        return 1;
    case 'w':
        options->warmup = (int)value;
        return 1;
    case 'r':
        options->shape.seed = (uint64_t)value;
        return 1;
    default:
        return 0;
    }
}

/* 0: go on; 1: done; 2: wrong. */
static int parse_options(int argc, char **argv, int rank, options_t *options)
{
    static const struct option names[] = {
        {"tokens", 1, NULL, 't'}, {"skew", 1, NULL, 's'}, {"experts", 1, NULL, 'e'},  {"topk", 1, NULL, 'k'},
        {"hidden", 1, NULL, 'd'}, {"ffn", 1, NULL, 'f'},  {"backends", 1, NULL, 'b'}, {"iters", 1, NULL, 'i'},
        {"warmup", 1, NULL, 'w'}, {"seed", 1, NULL, 'r'}, {"help", 0, NULL, 'h'},     {"version", 0, NULL, 'V'},
        {NULL, 0, NULL, 0}};
    int option, index = 0, good;

    opterr = rank == 0;
    while ((option = getopt_long(argc, argv, "h", names, &index)) != -1) {
        if (option == '?') {
            return 2;
        }
        if (option == 'h' || option == 'V') {
            if (rank == 0) {
                fputs(option == 'h' ? usage : "moe_layer " MPATH_VERSION "\n", stdout);
            }
            return 1;
        }
        if (option == 'b') {
            options->backends = optarg;
            continue;
        }
        good = (option == 't' || option == 's') ? parse_lists(options, optarg, option == 's')
                                                : set_number(options, option, optarg);
        if (!good) {
            if (rank == 0) {
                fprintf(stderr, "moe_layer: --%s does not take '%s' (--help)\n", names[index].name, optarg);
            }
            return 2;
        }
    }
    if (options->shape.topk > options->shape.experts) {
        fputs(rank == 0 ? "moe_layer: --topk is more than --experts\n" : "", stderr);
        return 2;
    }
    return 0;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

/* Whether rates are emulated: then every line has to say so. */
static const char *emulation(void)
{
    char path[1024], line[1024];
    const char *found = "";
    FILE *file;

    moe_variable("coll_mpath_topo_file", path, sizeof(path));
    file = (path[0] != '\0') ? fopen(path, "r") : NULL;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strstr(line, "<mpath ") != NULL && strstr(line, "emulated=\"") != NULL &&
            strstr(line, "emulated=\"no\"") == NULL) {
            found = "  emulated";
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

typedef struct result {
    double median_s, exchange_s, error;
} result_t;

/* The first run of a backend, which sets it up, and the last one are compared. */
static int is_compared(const options_t *options, int iteration)
{
    return iteration == -options->warmup || iteration == options->iterations - 1;
}

/* All backends on one case, interleaved. Times are those of the slowest rank. */
static void run_case(const options_t *options, const moe_shape_t *shape, const moe_backend_t *backends, int count,
                     result_t *results, double *imbalance)
{
    double *times      = calloc((size_t)count * (size_t)options->iterations, sizeof(*times)), start, took, most;
    moe_layer_t *layer = moe_layer_create(shape, MPI_COMM_WORLD);
    int iteration, b;

    if (times == NULL) {
        moe_fail("no memory for %d times", options->iterations);
    }
    memset(results, 0, (size_t)count * sizeof(*results));
    for (iteration = -options->warmup; iteration < options->iterations; iteration++) {
        for (b = 0; b < count; b++) {
            double exchange_s = 0, error;

            if (is_compared(options, iteration)) {
                moe_layer_poison(layer);
            }
            MPI_Barrier(MPI_COMM_WORLD);
            start = MPI_Wtime();
            moe_layer_run(layer, &backends[b], &exchange_s);
            took = MPI_Wtime() - start;
            MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            if (iteration >= 0) {
                times[b * options->iterations + iteration] = most;
                results[b].exchange_s += exchange_s / options->iterations;
            }
            if (is_compared(options, iteration)) {
                error            = moe_layer_error(layer);
                results[b].error = (error > results[b].error) ? error : results[b].error;
            }
        }
    }
    *imbalance = moe_layer_imbalance(layer);
    for (b = 0; b < count; b++) {
        double *mine = &times[b * options->iterations];
        int half     = options->iterations / 2;

        MPI_Allreduce(MPI_IN_PLACE, &results[b].exchange_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        qsort(mine, (size_t)options->iterations, sizeof(*mine), compare_doubles);
        results[b].median_s = options->iterations % 2 ? mine[half] : (mine[half - 1] + mine[half]) / 2;
    }
    moe_layer_destroy(layer);
    free(times);
}

static void print_case(const moe_shape_t *shape, int ranks, const moe_backend_t *backends, int count,
                       const result_t *results, double imbalance, const char *emulated)
{
    long tokens = (long)shape->tokens * ranks;
    int b;

    for (b = 0; b < count; b++) {
        printf("%7ld %5.2f %6.2f  %-7s %10.3f %10.3f %12.0f %6.2f  %.4f %s%s\n", tokens, (double)shape->skew, imbalance,
               backends[b].name, results[b].median_s * 1e3, results[b].exchange_s * 1e3,
               (double)tokens / results[b].median_s, results[0].median_s / results[b].median_s, results[b].error,
               results[b].error <= TOLERANCE ? "right" : "WRONG", emulated);
    }
    fflush(stdout);
}

/* Nonzero when a result was wrong. */
static int run_all(const options_t *options, const moe_backend_t *backends, int count, int rank, int size)
{
    const char *emulated = emulation();
    result_t results[MAX_BACKENDS];
    int t, s, b, wrong = 0;
    double imbalance;

    if (rank == 0) {
        printf(
            "moe_layer: %d ranks, %d experts, top %d, hidden %d, ffn %d, BF16, medians of %d, backends interleaved%s\n",
            size, options->shape.experts, options->shape.topk, options->shape.hidden, options->shape.ffn,
            options->iterations, emulated);
        printf("%7s %5s %6s  %-7s %10s %10s %12s %6s  %s%s\n", "tokens", "skew", "x mean", "", "layer ms", "exch. ms",
               "tokens/s", "x", "error", emulated);
    }
    for (t = 0; t < options->num_tokens; t++) {
        for (s = 0; s < options->num_skews; s++) {
            moe_shape_t shape = options->shape;

            shape.tokens = (int)((options->tokens[t] + size - 1) / size);
            shape.skew   = options->skews[s];
            run_case(options, &shape, backends, count, results, &imbalance);
            for (b = 0; b < count; b++) {
                wrong |= !(results[b].error <= TOLERANCE);
            }
            if (rank == 0) {
                print_case(&shape, size, backends, count, results, imbalance, emulated);
            }
        }
    }
    return wrong;
}

/* The GPU of this rank's number on its node, modulo their number. */
static void choose_gpu(int rank)
{
    int devices, node_rank;
    MPI_Comm node;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &node_rank);
    MPI_Comm_free(&node);
    MOE_CUDA(cudaGetDeviceCount(&devices));
    MOE_CUDA(cudaSetDevice(node_rank % devices));
    MOE_CUDA(cudaFree(NULL)); /* makes the context */
}

int main(int argc, char **argv)
{
    options_t options = {.shape      = {.hidden = 4096, .ffn = 4096, .experts = 8, .topk = 2, .seed = 1},
                         .tokens     = {16384},
                         .skews      = {0.9f},
                         .num_tokens = 1,
                         .num_skews  = 1,
                         .iterations = 20,
                         .warmup     = 3,
                         .backends   = "stock,nccl,static,mpath"};
    moe_backend_t backends[MAX_BACKENDS];
    int rank, size, parsed, status = 0, count, provided;

    setenv("NCCL_NVLS_ENABLE", "0", 1); /* plays no part here, and is off limits on some shared hosts */
    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    parsed = parse_options(argc, argv, rank, &options);
    if (size > MOE_MAX_RANKS) {
        moe_fail("%d ranks are more than %d", size, MOE_MAX_RANKS);
    }
    if (parsed == 0) {
        choose_gpu(rank);
        count  = moe_backends_open(options.backends, backends, MAX_BACKENDS);
        status = count > 0 ? run_all(&options, backends, count, rank, size) : 2;
        moe_backends_close(backends, count);
    }
    MPI_T_finalize();
    MPI_Finalize();
    return parsed == 2 ? 2 : status;
}
