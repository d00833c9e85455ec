/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: an MPI benchmark of collectives on skewed data. This header holds what its files share; one file does
 * one thing:
 *   mpath_bench.c the run: cases one after the other
 *   options.c     the command line
 *   op.h          a collective: its buffers, their contents, the check of every byte, the call
 *   alltoallv.c   MPI_Alltoallv
 *   symmetric.c   MPI_Allreduce, MPI_Reduce_scatter_block, MPI_Allgather
 *   memory.h      the GPU, buffers of every kind of memory
 *   nccl.h        NCCL
 *   overlap.c     a non-blocking collective beside a computation
 *   contest.c     contestants, interleaving, timing
 *   mpit.c        control and performance variables of the MPI library
 *   emulation.c   emulated clusters, what a matrix takes on them
 *   rails.c       machines of the job, the analytic bound, bytes on the rails
 *   report.c      figures out of times, table, JSON
 */
#ifndef MPATH_TOOLS_BENCH_H
#define MPATH_TOOLS_BENCH_H

#include "tools/bench/memory.h"
#include "topo/topo.h"

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>

/* --- the command line -------------------------------------------------------------------------------------------- */

typedef enum bench_matrix_kind { BENCH_HOT, BENCH_ZIPF, BENCH_PAIR, BENCH_FILE, BENCH_WORKLOAD } bench_matrix_kind_t;

/* Who sends what to whom; of no meaning to collectives whose sizes are equal. */
typedef struct bench_matrix {
    bench_matrix_kind_t kind;
    uint32_t ppm;            /* HOT: fraction in millionths, 0 is the balanced case; ZIPF: the exponent */
    int source, destination; /* PAIR: nobody else sends */
    const char *file;        /* FILE */
    char workload[256];      /* WORKLOAD: its name */
    uint64_t step;           /* WORKLOAD, FILE of several matrices */
} bench_matrix_t;

typedef enum bench_side {
    BENCH_MPATH       = 1u << 0,
    BENCH_NCCL        = 1u << 1,
    BENCH_STOCK_SHIFT = 2 /* bit BENCH_STOCK_SHIFT + i: entry i of the collective's bench_stock_t list */
} bench_side_t;

#define BENCH_STOCK_MASK (~(unsigned)(BENCH_MPATH | BENCH_NCCL))

#define BENCH_MAX_MATRICES 16
#define BENCH_MAX_SIZES 40
#define BENCH_MAX_PATHS 8

struct bench_op;

typedef struct bench_options {
    const struct bench_op *op;
    int num_matrices, num_sizes; /* every matrix with every size; matrices from files have their own */
    bench_matrix_t matrices[BENCH_MAX_MATRICES];
    uint64_t sizes[BENCH_MAX_SIZES]; /* bytes per rank */
    uint64_t unit;                   /* cells of generated matrices are multiples of it, and so are element counts */
    bench_memory_t send_memory, receive_memory;
    int num_memories; /* given */
    int hot_rank;
    uint64_t seed;
    int num_steps; /* given; each workload and file at each of them */
    uint64_t steps[BENCH_MAX_MATRICES];
    const char *matrix_scale; /* NULL: as it stands */
    int iterations, warmup;
    int num_paths, paths[BENCH_MAX_PATHS]; /* mpath again, with so many paths of a pair */
    int overlap;                           /* beside a computation */
    int check;                             /* every iteration, not only the warm-up */
    int progress;                          /* a line for each case, also where standard error is no terminal */
    unsigned sides;                        /* BENCH_MPATH, ... */
    const char *against;                   /* list of names; NULL: none */
    const char *json;                      /* NULL: none */
    const char *rails;                     /* NULL: as the component */
    const char *rates;                     /* NULL: as the component */
    const char *label;                     /* goes into the JSON */
} bench_options_t;

static inline int bench_uses_gpu(const bench_options_t *options)
{
    return options->send_memory != BENCH_MEMORY_HOST || options->receive_memory != BENCH_MEMORY_HOST;
}

/* 0: go on, 1: end with status 0 (help), 2: end with an error that is printed. Prints on rank 0 only. */
int bench_options_parse(int argc, char **argv, int rank, bench_options_t *options);

/* --- variables of the MPI library -------------------------------------------------------------------------------- */

/* Integer control variable by name: MPI_SUCCESS or an MPI_T error. */
int bench_cvar_write(const char *name, int value);
/* String value of a control variable; "" when there is none. */
void bench_cvar_string(const char *name, char *value, int size);

typedef enum bench_pvar {
    BENCH_PVAR_CALLS,
    BENCH_PVAR_DECLINED,
    BENCH_PVAR_PLANS,
    BENCH_PVAR_PLAN_HITS,
    BENCH_PVAR_AGREE_NS,
    BENCH_PVAR_PLAN_NS,
    BENCH_PVAR_MOVE_NS,
    BENCH_PVAR_RELAYED_BYTES,
    BENCH_PVAR_KERNEL_BYTES,
    BENCH_PVAR_ENGINE_BYTES,
    BENCH_PVAR_STAGED_BYTES,
    BENCH_PVAR_YIELDS,
    BENCH_PVAR_RECEIVE_YIELDS,
    BENCH_PVAR_KERNEL_LAUNCHES,
    BENCH_PVAR_KERNEL_CTAS,
    BENCH_PVAR_DEVICE_BYTES,
    BENCH_MAX_PVARS
} bench_pvar_t;

typedef struct bench_pvars {
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handles[BENCH_MAX_PVARS];
    int found[BENCH_MAX_PVARS];
} bench_pvars_t;

void bench_pvars_open(bench_pvars_t *pvars);
/* Current values; 0 where the component is not there. */
void bench_pvars_read(const bench_pvars_t *pvars, unsigned long long values[BENCH_MAX_PVARS]);
void bench_pvars_close(bench_pvars_t *pvars);

/* --- nodes and rails --------------------------------------------------------------------------------------------- */

typedef struct bench_rails {
    MPI_Comm node_comm;        /* ranks of my node */
    MPI_Comm leaders;          /* one rank per node; MPI_COMM_NULL on the others */
    int num_nodes, node;       /* of the job, mine */
    int node_rank;             /* mine in node_comm */
    int one_clock;             /* all ranks share one monotonic clock */
    mpath_machine_t *machines; /* on every rank */
    mpath_place_t *places;
} bench_rails_t;

/* Collective. Returns 0 or -1 with a message. */
int bench_rails_create(const bench_options_t *options, bench_rails_t *rails);
void bench_rails_destroy(bench_rails_t *rails);
/*
 * The all-rails bound of a matrix: 0 when nothing crosses nodes or no rail is known. Returns 0 or -1 with a message.
 */
int bench_rails_bound(const bench_rails_t *rails, int size, const uint64_t *demand, uint64_t *bound_ns_p);
/* Bytes sent and received by this node's NICs since boot; tx and rx have MPATH_MAX_NICS entries. Leaders only. */
void bench_rails_read(const bench_rails_t *rails, uint64_t *tx, uint64_t *rx);

/* --- cases and contestants --------------------------------------------------------------------------------------- */

/* One matrix of one size. */
typedef struct bench_case {
    char name[512];              /* of the matrix: "hot 0.7"; "" where there is none */
    uint64_t bytes;              /* per rank, as asked for */
    uint64_t *demand;            /* size * size, on every rank */
    uint64_t largest_rank_bytes; /* numerator of algbw: most that a rank sends or receives, its own share included */
    uint64_t busiest_port_bytes; /* the same without what a rank sends to itself */
    double busbw_factor;         /* busbw / algbw */
    uint64_t bound_ns;           /* 0: none */
    uint64_t static_ns;          /* of an emulated cluster: what the static routes take at least; else 0 */
} bench_case_t;

#define BENCH_MAX_CONTESTANTS 16

typedef enum bench_how {
    BENCH_HOW_MPI,    /* the MPI function on the buffers */
    BENCH_HOW_STAGED, /* through host memory: for an MPI library that knows no device memory */
    BENCH_HOW_NCCL
} bench_how_t;

/* One way to perform the collective. The results are those of one case. */
typedef struct bench_contestant {
    int is_mpath;     /* it may carry the calls */
    const char *name; /* "mpath", "stock linear", ..., or "as started" without the component */
    bench_how_t how;
    MPI_Comm comm;          /* MPI_COMM_NULL: NCCL */
    uint64_t *times_ns;     /* per iteration, on rank 0 */
    uint64_t *rail_bytes;   /* on leaders: [2 * MPATH_MAX_NICS], tx then rx, sums over the timed iterations */
    uint64_t overlap_ns[3]; /* --overlap: medians of the call, the computation, both; 0: not measured */
    uint64_t start_ns;      /* and of the function that starts the call, on the rank where it takes longest */
    int64_t gpu_bytes;      /* device memory that this rank has taken; NCCL: by what the driver says is free */
    int64_t most_gpu_bytes; /* in the report: of any rank */
    uint64_t wrong_bytes;   /* sum over iterations; in the report over ranks too */
    unsigned long long counters[BENCH_MAX_PVARS]; /* the same */
} bench_contestant_t;

struct bench_data;

/* The job as long as it runs. */
typedef struct bench {
    bench_options_t options;
    int rank, size;
    bench_rails_t rails;
    bench_pvars_t pvars;
    bench_contestant_t contestants[BENCH_MAX_CONTESTANTS];
    int num_contestants;
    char gpu_text[192];      /* "4 x NVIDIA H200, CUDA 13.0, NCCL 2.28.9, cuda to cuda" */
    mpath_topo_t *emulated;  /* the emulated cluster that the job runs on; NULL: none */
    char emulated_text[512]; /* what it is */
    uint32_t round;          /* of contents: each is different */
    FILE *json_file;         /* --json -: the standard output; NULL: the JSON goes into a file, or nowhere */
} bench_t;

/* Collective. Returns 0, or -1 with a message on all ranks. */
int bench_contest_create(bench_t *bench);
void bench_contest_destroy(bench_t *bench);
/* Runs all contestants on one case, interleaved. */
void bench_contest_run(bench_t *bench, struct bench_data *data);
/* It is mpath, and carried no call. */
int bench_carried_none(const bench_contestant_t *contestant);
/* The name of its row: of mpath only where it carried calls. */
const char *bench_row_name(const bench_contestant_t *contestant);

/* --- overlap ----------------------------------------------------------------------------------------------------- */

/* Runs all contestants that can be overlapped on one case. */
void bench_overlap_run(bench_t *bench, struct bench_data *data);
/* The time that perfect overlap takes / that measured; 0: not measured. */
double bench_overlap_share(const bench_contestant_t *contestant);
/* Rank 0: prints it. */
void bench_overlap_report(const bench_t *bench);

/* --- emulated clusters ------------------------------------------------------------------------------------------- */

/* What the component's topology file says. Returns 0, or -1 with a message on all ranks. */
int bench_emulation_open(bench_t *bench);
void bench_emulation_close(bench_t *bench);
/* Fills bound_ns and static_ns of a case. Returns 0 or -1 with a message. */
int bench_emulation_bound(const bench_t *bench, bench_case_t *a_case);

/* --- the report -------------------------------------------------------------------------------------------------- */

typedef struct bench_result {
    uint64_t min_ns, median_ns, p99_ns, max_ns;
    double algbw_bps, busbw_bps, port_bps;
    double ratio_to_bound; /* 0: no bound */
    double speedup;        /* of the first contestant over this one */
} bench_result_t;

/*
 * Rank 0, after each case: prints it, writes the JSON of all cases so far. rail_bytes of all nodes:
 * [contestant][node][2 * MPATH_MAX_NICS]. Returns nonzero when a byte was wrong or something could not be written.
 */
int bench_report(const bench_t *bench, const bench_case_t *a_case, int index, int num_cases,
                 const uint64_t *rail_bytes);
/* After the last one. */
int bench_report_finish(const bench_t *bench);

#endif
