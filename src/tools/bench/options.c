/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_bench: the command line. */
#include "tools/bench/op.h"

#include "plan/matrix.h"
#include "plan/workload.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: mpirun ... mpath_bench [options]\n"
    "Times a collective and checks what arrives.\n"
    "\n"
    "what (lists are separated by commas; every matrix is run with every size):\n"
    "  --op NAME        alltoallv (default), allreduce, reduce_scatter, allgather, iallreduce\n"
    "  --hot LIST       each rank sends the fraction H (0 to 1) of its bytes to the hot rank, the rest evenly\n"
    "                   (default 0)\n"
    "  --zipf LIST      destinations of Zipf popularity 1/k^S, S from 0 to 4\n"
    "  --pair LIST      only one rank sends, to one other: 0-1,0-4\n"
    "  --workload LIST  popularity of the ranks by name, seed and step: balanced, mild, hot:H, moving:H, burst:H,\n"
    "                   zipf:S, lognormal:SIGMA, or file:PATH:LAYER, a table of loads of experts\n"
    "  --matrix FILE    byte matrix: a row per source, as nccl-tests' alltoallv, or a pattern file of UCC's\n"
    "                   perftest\n"
    "  --matrix-scale F each number of the matrix times F: 1024 where it is in KiB\n"
    "  --step LIST      each workload, and each matrix file of several, at these steps (default 0)\n"
    "  --bytes LIST     bytes that each rank sends, with suffix k, m, g (default 1m); not with --matrix\n"
    "  --sweep A:B[:F]  the same from A to B, each F times the one before (default 2)\n"
    "  --unit N         counts are multiples of N bytes (default 1; 16 in GPU memory)\n"
    "  --memory S[,R]   memory of the send and the receive buffer: host (default), pinned, registered, cuda, exact\n"
    "                   (cuda, not rounded up), pool, vmm, managed; a rank uses the GPU of its number on the node,\n"
    "                   modulo their number\n"
    "  --hot-rank R     the hot rank (default 0)\n"
    "  --seed N         draws the order of popularity of --zipf and --workload (default 1)\n"
    "run:\n"
    "  --iters N        timed iterations of each contestant (default 5; 20 in GPU memory)\n"
    "  --warmup N       iterations before (default 1; 3 in GPU memory); the bytes of the first are always checked\n"
    "  --check          checks every byte of every iteration\n"
    "  --against LIST   interleaves others: the MPI library's own functions (stock, or some of them: linear,\n"
    "                   pairwise; allreduce: default, nonoverlapping, doubling, ring, segmented, rabenseifner),\n"
    "                   from GPU memory through the host; NCCL on the same buffers (nccl)\n"
    "  --paths LIST     interleaves mpath with the first N paths of each pair: 1 is the static route\n"
    "  --overlap        iallreduce once more, beside a computation of equal length: arithmetic with MPI_Test in\n"
    "                   between, or in GPU memory a kernel that spins on every multiprocessor\n"
    "  --without-mpath  runs the others alone\n"
    "output:\n"
    "  --progress       a line on standard error for each case; at a terminal it is shown by itself\n"
    "  --json FILE      writes the result as JSON, '-' for standard output\n"
    "  --label TEXT     goes into the JSON\n"
    "  --rails LIST     NICs for the bound and the byte counts (default: those of the component)\n"
    "  --rail-rates R   their rates in bytes per second (default: those of the component)\n"
    "  -h, --help       this text\n"
    "  --version        the version\n"
    "\n"
    "exit status: 0: done; 1: a byte was wrong, or a result could not be written; 2: wrong options, or something could\n"
    "not be run\n";

static int complain(int rank, const char *option, const char *value, const char *what)
{
    if (rank == 0) {
        fprintf(stderr, "mpath_bench: --%s '%s': %s; nothing was run (--help lists the options)\n", option, value,
                what);
    }
    return 2;
}

/* A decimal fraction as millionths. */
static int parse_ppm(const char *text, double max, uint32_t *ppm)
{
    char *end;
    double value;

    errno = 0;
    value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !(value >= 0.0 && value <= max)) {
        return -1;
    }
    *ppm = (uint32_t)(value * 1e6 + 0.5);
    return 0;
}

static int parse_bytes(const char *text, uint64_t *bytes)
{
    char *end;
    unsigned long long value;
    int shift = 0;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (end == text || !isdigit((unsigned char)text[0]) || errno != 0) {
        return -1;
    }
    switch (tolower((unsigned char)*end)) {
    case 'k':
        shift = 10;
        end++;
        break;
    case 'm':
        shift = 20;
        end++;
        break;
    case 'g':
        shift = 30;
        end++;
        break;
    default:
        break;
    }
    if (*end != '\0' || value > (UINT64_MAX >> shift)) {
        return -1;
    }
    *bytes = (uint64_t)value << shift;
    return 0;
}

static int parse_int(const char *text, long min, long max, int *value)
{
    char *end;
    long number;

    errno  = 0;
    number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < min || number > max) {
        return -1;
    }
    *value = (int)number;
    return 0;
}

/* Calls `add` for each word of a comma-separated list; -1 when one is refused or the list is empty or too long. */
static int parse_list(const char *text, bench_options_t *options,
                      int (*add)(const char *word, bench_options_t *options))
{
    char copy[512], *word, *rest = copy;

    if (strlen(text) >= sizeof(copy)) {
        return -1;
    }
    strcpy(copy, text);
    while ((word = strsep(&rest, ",")) != NULL) {
        if (add(word, options) != 0) {
            return -1;
        }
    }
    return 0;
}

/* "stock" for all that the collective has, "nccl", or the name of one without "stock ". */
static int add_against(const char *word, bench_options_t *options)
{
    const bench_stock_t *stock = options->op->stock;
    int i, all = strcmp(word, "stock") == 0, found = 0;

    if (strcmp(word, "nccl") == 0) {
        options->sides |= BENCH_NCCL;
        return 0;
    }
    for (i = 0; stock[i].name != NULL; i++) {
        if (all || strcmp(word, stock[i].name + strlen("stock ")) == 0) {
            options->sides |= 1u << (BENCH_STOCK_SHIFT + i);
            found = 1;
        }
    }
    return found ? 0 : -1;
}

static int add_matrix(bench_matrix_kind_t kind, const char *word, double max, bench_options_t *options)
{
    bench_matrix_t *matrix = &options->matrices[options->num_matrices];

    if (options->num_matrices == BENCH_MAX_MATRICES || parse_ppm(word, max, &matrix->ppm) != 0) {
        return -1;
    }
    matrix->kind = kind;
    options->num_matrices++;
    return 0;
}

static int add_hot(const char *word, bench_options_t *options)
{
    return add_matrix(BENCH_HOT, word, 1.0, options);
}

static int add_zipf(const char *word, bench_options_t *options)
{
    return add_matrix(BENCH_ZIPF, word, 4.0, options);
}

/* "0-4" */
static int add_pair(const char *word, bench_options_t *options)
{
    bench_matrix_t *matrix = &options->matrices[options->num_matrices];
    char copy[64], *to = copy;

    if (options->num_matrices == BENCH_MAX_MATRICES || strlen(word) >= sizeof(copy)) {
        return -1;
    }
    strcpy(copy, word);
    matrix->kind = BENCH_PAIR;
    if (parse_int(strsep(&to, "-"), 0, 1 << 30, &matrix->source) != 0 || to == NULL ||
        parse_int(to, 0, 1 << 30, &matrix->destination) != 0 || matrix->source == matrix->destination) {
        return -1;
    }
    options->num_matrices++;
    return 0;
}

static int add_paths(const char *word, bench_options_t *options)
{
    if (options->num_paths == BENCH_MAX_PATHS || parse_int(word, 1, 64, &options->paths[options->num_paths]) != 0) {
        return -1;
    }
    options->num_paths++;
    return 0;
}

static int add_size(const char *word, bench_options_t *options)
{
    if (options->num_sizes == BENCH_MAX_SIZES || parse_bytes(word, &options->sizes[options->num_sizes]) != 0) {
        return -1;
    }
    options->num_sizes++;
    return 0;
}

/* "1k:256m" or "1k:256m:4" */
static int parse_sweep(const char *text, bench_options_t *options)
{
    char copy[128], *from, *to, *factor_text, *rest = copy;
    uint64_t first, last, factor = 2;

    if (strlen(text) >= sizeof(copy)) {
        return -1;
    }
    strcpy(copy, text);
    from        = strsep(&rest, ":");
    to          = strsep(&rest, ":");
    factor_text = strsep(&rest, ":");
    if (to == NULL || rest != NULL || parse_bytes(from, &first) != 0 || parse_bytes(to, &last) != 0 || first == 0 ||
        first > last || (factor_text != NULL && parse_bytes(factor_text, &factor) != 0) || factor < 2) {
        return -1;
    }
    for (;;) {
        if (options->num_sizes == BENCH_MAX_SIZES) {
            return -1;
        }
        options->sizes[options->num_sizes++] = first;
        if (first > last / factor) {
            return 0;
        }
        first *= factor;
    }
}

/* "cuda" or "host,cuda" */
static int add_memory(const char *word, bench_options_t *options)
{
    int kind;

    for (kind = 0; kind < BENCH_MEMORY_KINDS && strcmp(word, bench_memory_names[kind]) != 0; kind++) {
    }
    if (kind == BENCH_MEMORY_KINDS || options->num_memories == 2) {
        return -1;
    }
    options->receive_memory = (bench_memory_t)kind;
    if (options->num_memories++ == 0) {
        options->send_memory = (bench_memory_t)kind;
    }
    return 0;
}

static int add_workload(const char *word, bench_options_t *options)
{
    bench_matrix_t *matrix = &options->matrices[options->num_matrices];

    if (options->num_matrices == BENCH_MAX_MATRICES || !mpath_workload_is_name(word) ||
        strlen(word) >= sizeof(matrix->workload)) {
        return -1;
    }
    matrix->kind = BENCH_WORKLOAD;
    strcpy(matrix->workload, word);
    options->num_matrices++;
    return 0;
}

static int add_step(const char *word, bench_options_t *options)
{
    if (options->num_steps == BENCH_MAX_MATRICES || parse_bytes(word, &options->steps[options->num_steps]) != 0) {
        return -1;
    }
    options->num_steps++;
    return 0;
}

/* What is repeated at each step, at the first one now, and at the others behind all. 0 when they are too many. */
static int spread_steps(bench_options_t *options)
{
    int given = options->num_matrices;

    for (int step = 0; step < options->num_steps; step++) {
        for (int i = 0; i < given; i++) {
            bench_matrix_t *matrix = &options->matrices[i];

            if (matrix->kind != BENCH_WORKLOAD && matrix->kind != BENCH_FILE) {
                continue;
            }
            if (step > 0) {
                if (options->num_matrices == BENCH_MAX_MATRICES) {
                    return 0;
                }
                options->matrices[options->num_matrices] = *matrix;
                matrix                                   = &options->matrices[options->num_matrices++];
            }
            matrix->step = options->steps[step];
        }
    }
    return 1;
}

static int add_file(const char *path, bench_options_t *options)
{
    if (options->num_matrices == BENCH_MAX_MATRICES) {
        return -1;
    }
    options->matrices[options->num_matrices++] = (bench_matrix_t){.kind = BENCH_FILE, .file = path};
    return 0;
}

/* What is wrong with the value of an option; NULL when nothing is. */
static const char *set_option(int code, const char *value, bench_options_t *options)
{
    switch (code) {
    case 'o':
        options->op = bench_op_find(value);
        return options->op == NULL ? bench_op_unknown() : NULL;
    case 'f':
        return parse_list(value, options, add_hot) ? "expected fractions from 0 to 1, at most 16 matrices" : NULL;
    case 'z':
        return parse_list(value, options, add_zipf) ? "expected exponents from 0 to 4, at most 16 matrices" : NULL;
    case 'p':
        return parse_list(value, options, add_pair) ? "expected pairs of two ranks, at most 16 matrices" : NULL;
    case 'P':
        return parse_list(value, options, add_paths) ? "expected at most 8 numbers from 1 to 64" : NULL;
    case 'm':
        return add_file(value, options) ? "at most 16 matrices" : NULL;
    case 'k':
        return parse_list(value, options, add_workload)
                   ? "expected names of workloads (balanced, mild, hot, moving, burst, zipf, lognormal, file:PATH), at most "
                     "16 matrices"
                   : NULL;
    case 'q':
        return parse_list(value, options, add_step) ? "expected numbers, at most 16" : NULL;
    case 'y':
        options->matrix_scale = value;
        return mpath_matrix_is_scale(value) ? NULL : "expected a positive number";
    case 'b':
        return parse_list(value, options, add_size) ? "expected numbers of bytes, at most 40" : NULL;
    case 'S':
        return parse_sweep(value, options) ? "expected FROM:TO or FROM:TO:FACTOR with at most 40 sizes" : NULL;
    case 'u':
        return parse_bytes(value, &options->unit) || options->unit == 0 || options->unit > 4096
                   ? "expected 1 to 4096 bytes"
                   : NULL;
    case 'M':
        options->num_memories = 0;
        return parse_list(value, options, add_memory) ? "expected one or two kinds of memory" : NULL;
    case 'r':
        return parse_int(value, 0, 1 << 30, &options->hot_rank) ? "expected a rank" : NULL;
    case 's':
        return parse_bytes(value, &options->seed) ? "expected a number" : NULL;
    case 'i':
        return parse_int(value, 1, 1000000, &options->iterations) ? "expected 1 to 1000000" : NULL;
    case 'w':
        return parse_int(value, 0, 1000000, &options->warmup) ? "expected 0 to 1000000" : NULL;
    case 'c':
        options->check = 1;
        return NULL;
    case 'g':
        options->progress = 1;
        return NULL;
    case 'a':
        options->against = value;
        return NULL;
    case 'O':
        options->overlap = 1;
        return NULL;
    case 'W':
        options->sides &= ~(unsigned)BENCH_MPATH;
        return NULL;
    case 'j':
        options->json = value;
        return NULL;
    case 'l':
        options->label = value;
        return NULL;
    case 'R':
        options->rails = value;
        return NULL;
    default:
        options->rates = value;
        return NULL;
    }
}

/* What options say together; 0 or 2. */
static int complete(int rank, bench_options_t *options)
{
    int gpu = bench_uses_gpu(options);

    if (options->against != NULL && parse_list(options->against, options, add_against) != 0) {
        return complain(rank, "against", options->against,
                        "expected stock, nccl, or names of functions that the collective has, separated by commas");
    }
    options->iterations = options->iterations > 0 ? options->iterations : (gpu ? 20 : 5);
    options->warmup     = options->warmup >= 0 ? options->warmup : (gpu ? 3 : 1);
    options->unit       = options->unit > 0 ? options->unit : (gpu ? 16 : 1);
    if ((options->sides & BENCH_NCCL) &&
        (options->send_memory == BENCH_MEMORY_HOST || options->receive_memory == BENCH_MEMORY_HOST ||
         options->op->call_nccl == NULL)) {
        if (rank == 0) {
            fprintf(stderr, "mpath_bench: --against nccl needs --memory that a GPU reaches, and a collective that NCCL "
                            "has; nothing was run\n");
        }
        return 2;
    }
    if ((options->num_matrices > 0) && (options->op != &bench_op_alltoallv)) {
        return complain(rank, "op", options->op->name,
                        "it has no matrix, which --hot, --zipf, --pair, --workload and --matrix describe");
    }
    if (!spread_steps(options)) {
        return complain(rank, "step", "", "with every workload at every step there are more than 16 matrices");
    }
    if (options->num_matrices == 0) {
        options->matrices[options->num_matrices++] = (bench_matrix_t){.kind = BENCH_HOT};
    }
    if (options->num_sizes == 0) {
        options->sizes[options->num_sizes++] = 1 << 20;
    }
    if (options->num_paths > 0 && !(options->sides & BENCH_MPATH)) {
        return complain(rank, "paths", "", "it is mpath whose paths are limited, and --without-mpath leaves that out");
    }
    if (options->overlap && options->op->start == NULL) {
        return complain(rank, "overlap", options->op->name, "the collective is blocking; --op iallreduce is not");
    }
    if (options->sides == 0) {
        if (rank == 0) {
            fprintf(stderr, "mpath_bench: --without-mpath leaves nothing to run; --against names others\n");
        }
        return 2;
    }
    return 0;
}

int bench_options_parse(int argc, char **argv, int rank, bench_options_t *options)
{
    static const struct option table[] = {{"op", required_argument, NULL, 'o'},
                                          {"hot", required_argument, NULL, 'f'},
                                          {"zipf", required_argument, NULL, 'z'},
                                          {"pair", required_argument, NULL, 'p'},
                                          {"paths", required_argument, NULL, 'P'},
                                          {"matrix", required_argument, NULL, 'm'},
                                          {"workload", required_argument, NULL, 'k'},
                                          {"step", required_argument, NULL, 'q'},
                                          {"matrix-scale", required_argument, NULL, 'y'},
                                          {"bytes", required_argument, NULL, 'b'},
                                          {"sweep", required_argument, NULL, 'S'},
                                          {"unit", required_argument, NULL, 'u'},
                                          {"memory", required_argument, NULL, 'M'},
                                          {"hot-rank", required_argument, NULL, 'r'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"iters", required_argument, NULL, 'i'},
                                          {"warmup", required_argument, NULL, 'w'},
                                          {"check", no_argument, NULL, 'c'},
                                          {"progress", no_argument, NULL, 'g'},
                                          {"against", required_argument, NULL, 'a'},
                                          {"without-mpath", no_argument, NULL, 'W'},
                                          {"overlap", no_argument, NULL, 'O'},
                                          {"json", required_argument, NULL, 'j'},
                                          {"label", required_argument, NULL, 'l'},
                                          {"rails", required_argument, NULL, 'R'},
                                          {"rail-rates", required_argument, NULL, 'T'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'v'},
                                          {NULL, 0, NULL, 0}};
    int code, index = 0;
    const char *wrong;

    *options = (bench_options_t){.op = &bench_op_alltoallv, .warmup = -1, .seed = 1, .label = "", .sides = BENCH_MPATH};
    opterr   = rank == 0;
    while ((code = getopt_long(argc, argv, "h", table, &index)) != -1) {
        if (code == '?') {
            return 2;
        }
        if (code == 'h' || code == 'v') {
            if (rank == 0) {
                fputs(code == 'h' ? usage : "mpath_bench " MPATH_VERSION "\n", stdout);
            }
            return 1;
        }
        wrong = set_option(code, optarg, options);
        if (wrong != NULL) {
            return complain(rank, table[index].name, optarg, wrong);
        }
    }
    if (optind != argc) {
        if (rank == 0) {
            fprintf(stderr, "mpath_bench: unexpected '%s'; nothing was run (--help lists the options)\n", argv[optind]);
        }
        return 2;
    }
    return complete(rank, options);
}
