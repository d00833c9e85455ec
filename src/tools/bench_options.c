/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_bench: the command line. */
#include "tools/bench.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: mpirun ... mpath_bench [options]\n"
    "Times MPI_Alltoallv on a matrix of bytes and checks what arrives.\n"
    "\n"
    "matrix (one of):\n"
    "  --hot H          each rank sends the fraction H (0 to 1) of its bytes to the hot rank, the rest evenly (default 0)\n"
    "  --zipf S         destinations of Zipf popularity 1/k^S, S from 0 to 4\n"
    "  --matrix FILE    byte matrix: a row per source, as nccl-tests' alltoallv\n"
    "  --bytes N        bytes that each rank sends, with suffix k, m, g (default 1m); not with --matrix\n"
    "  --hot-rank R     the hot rank (default 0)\n"
    "  --seed N         draws the order of popularity of --zipf (default 1)\n"
    "run:\n"
    "  --iters N        timed iterations of each contestant (default 5)\n"
    "  --warmup N       iterations before (default 1); their bytes are always checked\n"
    "  --check          checks every byte of every iteration\n"
    "  --against LIST   interleaves the MPI library's own functions: stock, linear, pairwise (stock is both)\n"
    "output:\n"
    "  --json FILE      writes the result as JSON, '-' for standard output\n"
    "  --label TEXT     goes into the JSON\n"
    "  --rails LIST     NICs for the bound and the byte counts (default: those of the component)\n"
    "  --rail-rates R   their rates in bytes per second (default: those of the component)\n"
    "  --help\n";

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

static int parse_against(const char *text, unsigned *against)
{
    char copy[64], *word, *rest = copy;

    if (strlen(text) >= sizeof(copy)) {
        return -1;
    }
    strcpy(copy, text);
    while ((word = strsep(&rest, ",")) != NULL) {
        if (strcmp(word, "stock") == 0) {
            *against |= BENCH_STOCK_LINEAR | BENCH_STOCK_PAIRWISE;
        } else if (strcmp(word, "linear") == 0) {
            *against |= BENCH_STOCK_LINEAR;
        } else if (strcmp(word, "pairwise") == 0) {
            *against |= BENCH_STOCK_PAIRWISE;
        } else {
            return -1;
        }
    }
    return 0;
}

/* One option; 0 or 2. */
static int set_option(int code, const char *name, const char *value, int rank, bench_options_t *options)
{
    uint64_t number;

    switch (code) {
    case 'h':
        options->matrix = BENCH_HOT;
        return parse_ppm(value, 1.0, &options->hot_ppm) ? complain(rank, name, value, "expected 0 to 1") : 0;
    case 'z':
        options->matrix = BENCH_ZIPF;
        return parse_ppm(value, 4.0, &options->zipf_ppm) ? complain(rank, name, value, "expected 0 to 4") : 0;
    case 'm':
        options->matrix      = BENCH_FILE;
        options->matrix_file = value;
        return 0;
    case 'b':
        return parse_bytes(value, &options->bytes) ? complain(rank, name, value, "expected a number of bytes") : 0;
    case 'r':
        return parse_int(value, 0, 1 << 30, &options->hot_rank) ? complain(rank, name, value, "expected a rank") : 0;
    case 's':
        if (parse_bytes(value, &number)) {
            return complain(rank, name, value, "expected a number");
        }
        options->seed = number;
        return 0;
    case 'i':
        return parse_int(value, 1, 1000000, &options->iterations) ? complain(rank, name, value, "expected 1 to 1000000")
                                                                  : 0;
    case 'w':
        return parse_int(value, 0, 1000000, &options->warmup) ? complain(rank, name, value, "expected 0 to 1000000")
                                                              : 0;
    case 'c':
        options->check = 1;
        return 0;
    case 'a':
        return parse_against(value, &options->against)
                   ? complain(rank, name, value, "expected stock, linear or pairwise, separated by commas")
                   : 0;
    case 'j':
        options->json = value;
        return 0;
    case 'l':
        options->label = value;
        return 0;
    case 'R':
        options->rails = value;
        return 0;
    case 'T':
        options->rates = value;
        return 0;
    default:
        return 2;
    }
}

int bench_options_parse(int argc, char **argv, int rank, bench_options_t *options)
{
    static const struct option table[] = {
        {"hot", required_argument, NULL, 'h'},      {"zipf", required_argument, NULL, 'z'},
        {"matrix", required_argument, NULL, 'm'},   {"bytes", required_argument, NULL, 'b'},
        {"hot-rank", required_argument, NULL, 'r'}, {"seed", required_argument, NULL, 's'},
        {"iters", required_argument, NULL, 'i'},    {"warmup", required_argument, NULL, 'w'},
        {"check", no_argument, NULL, 'c'},          {"against", required_argument, NULL, 'a'},
        {"json", required_argument, NULL, 'j'},     {"label", required_argument, NULL, 'l'},
        {"rails", required_argument, NULL, 'R'},    {"rail-rates", required_argument, NULL, 'T'},
        {"help", no_argument, NULL, 'H'},           {NULL, 0, NULL, 0}};
    int code, index = 0, status;

    memset(options, 0, sizeof(*options));
    options->bytes      = 1 << 20;
    options->iterations = 5;
    options->warmup     = 1;
    options->seed       = 1;
    options->label      = "";
    opterr              = rank == 0;
    while ((code = getopt_long(argc, argv, "", table, &index)) != -1) {
        if (code == 'H') {
            if (rank == 0) {
                fputs(usage, stdout);
            }
            return 1;
        }
        status = set_option(code, table[index].name, optarg, rank, options);
        if (status != 0) {
            return status;
        }
    }
    if (optind != argc) {
        if (rank == 0) {
            fprintf(stderr, "mpath_bench: unexpected '%s'; nothing was run (--help lists the options)\n", argv[optind]);
        }
        return 2;
    }
    return 0;
}
