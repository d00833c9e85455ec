/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: an MPI benchmark of MPI_Alltoallv on skewed matrices. This header holds what its files share; one file does one thing:
 *   mpath_bench.c    the run: contestants, interleaving, timing
 *   bench_options.c  the command line
 *   bench_data.c     buffers, their contents, the check of every byte
 *   bench_mpit.c     control and performance variables of the MPI library
 *   bench_rails.c    machines of the job, the analytic bound, bytes on the rails
 *   bench_report.c   table and JSON
 */
#ifndef MPATH_TOOLS_BENCH_H
#define MPATH_TOOLS_BENCH_H

#include "topo/topo.h"

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>

typedef enum bench_matrix { BENCH_HOT, BENCH_ZIPF, BENCH_FILE } bench_matrix_t;

enum { BENCH_STOCK_LINEAR = 1u << 0, BENCH_STOCK_PAIRWISE = 1u << 1 };

typedef struct bench_options {
    bench_matrix_t matrix;
    uint32_t hot_ppm; /* BENCH_HOT: fraction in millionths; 0 is the balanced case */
    int hot_rank;
    uint32_t zipf_ppm;
    uint64_t seed;
    const char *matrix_file;
    uint64_t bytes; /* per rank */
    int iterations, warmup;
    int check;         /* every iteration, not only the first */
    unsigned against;  /* BENCH_STOCK_* */
    const char *json;  /* NULL: none */
    const char *rails; /* NULL: as the component */
    const char *rates; /* NULL: as the component */
    const char *label; /* goes into the JSON */
} bench_options_t;

/* 0: go on, 1: end with status 0 (help), 2: end with an error that is printed. Prints on rank 0 only. */
int bench_options_parse(int argc, char **argv, int rank, bench_options_t *options);

/* One rank's buffers for a matrix. Guard bytes lie between and around the pieces. */
typedef struct bench_data {
    int rank, size;
    const uint64_t *demand; /* size * size */
    unsigned char *send, *receive;
    uint64_t send_bytes, receive_bytes; /* of the buffers, guards included */
    int *send_counts, *send_offsets, *receive_counts, *receive_offsets;
} bench_data_t;

/* Returns 0, or -1 with a message when memory is short or a count exceeds what MPI's int takes. */
int bench_data_create(int rank, int size, const uint64_t *demand, bench_data_t *data);
void bench_data_destroy(bench_data_t *data);
/* New contents for iteration `round`; spoils the receive buffer. */
void bench_data_fill(bench_data_t *data, uint32_t round);
/* Number of wrong bytes, guards included; the first is described on standard error. */
uint64_t bench_data_check(const bench_data_t *data, uint32_t round);

/* Integer control variable by name: MPI_SUCCESS or an MPI_T error. */
int bench_cvar_write(const char *name, int value);
/* String value of a control variable; "" when there is none. */
void bench_cvar_string(const char *name, char *value, int size);

#define BENCH_MAX_PVARS 8
typedef struct bench_pvars {
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handles[BENCH_MAX_PVARS];
    int found[BENCH_MAX_PVARS];
} bench_pvars_t;

typedef enum bench_pvar {
    BENCH_PVAR_CALLS,
    BENCH_PVAR_DECLINED,
    BENCH_PVAR_PLANS,
    BENCH_PVAR_PLAN_HITS,
    BENCH_PVAR_AGREE_NS,
    BENCH_PVAR_PLAN_NS,
    BENCH_PVAR_MOVE_NS,
    BENCH_PVAR_RELAYED_BYTES
} bench_pvar_t;

void bench_pvars_open(bench_pvars_t *pvars);
/* Current values; 0 where the component is not there. */
void bench_pvars_read(const bench_pvars_t *pvars, unsigned long long values[BENCH_MAX_PVARS]);
void bench_pvars_close(bench_pvars_t *pvars);

/* The job's nodes. */
typedef struct bench_rails {
    MPI_Comm node_comm;        /* ranks of my node */
    MPI_Comm leaders;          /* one rank per node; MPI_COMM_NULL on the others */
    int num_nodes, node;       /* of the job, mine */
    int one_clock;             /* all ranks share one monotonic clock */
    mpath_machine_t *machines; /* on every rank */
    mpath_place_t *places;
    uint64_t bound_ns; /* all-rails bound; 0 when nothing crosses nodes or no rail is known */
} bench_rails_t;

/* Collective. Returns 0 or -1 with a message. */
int bench_rails_create(const bench_options_t *options, const uint64_t *demand, bench_rails_t *rails);
void bench_rails_destroy(bench_rails_t *rails);
/* Bytes sent and received by this node's NICs since boot; tx and rx have MPATH_MAX_NICS entries. Leaders only. */
void bench_rails_read(const bench_rails_t *rails, uint64_t *tx, uint64_t *rx);

#define BENCH_MAX_CONTESTANTS 3
typedef struct bench_contestant {
    const char *name; /* "mpath", "stock linear", "stock pairwise", or "as started" */
    MPI_Comm comm;
    uint64_t *times_ns;   /* per iteration, on rank 0 */
    uint64_t *rail_bytes; /* on leaders: [2 * MPATH_MAX_NICS], tx then rx, sums over the timed iterations */
    uint64_t wrong_bytes; /* sum over ranks and iterations */
    unsigned long long counters[BENCH_MAX_PVARS]; /* sum over ranks */
} bench_contestant_t;

typedef struct bench_result {
    uint64_t min_ns, median_ns, max_ns;
    double algbw_bps, busbw_bps;
    double ratio_to_bound; /* 0: no bound */
} bench_result_t;

/* Rank 0; rail_bytes of all nodes: [contestant][node][2 * MPATH_MAX_NICS]. Returns the exit status. */
int bench_report(const bench_options_t *options, const bench_rails_t *rails, int size, const uint64_t *demand,
                 const bench_contestant_t *contestants, int num_contestants, const uint64_t *rail_bytes);

#endif
