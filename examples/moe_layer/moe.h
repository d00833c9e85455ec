/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mixture-of-experts layer over MPI: what its files share.
 *
 *   moe_layer.c   the program: cases, timing, table
 *   layer.c       one layer: route, dispatch, experts, combine; and the reference on one GPU
 *   exchange.c    the ways to move rows between ranks: MPI on device buffers, MPI through the host, NCCL
 *   kernels.cu    CUDA kernels
 *
 * Every rank has `tokens` rows of `hidden` BF16 values. A router chooses `topk` experts for each; expert e lives on
 * rank e * ranks / experts. Rows travel there and back in two MPI_Alltoallv.
 */
#ifndef MOE_H
#define MOE_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOE_MAX_EXPERTS 64
#define MOE_MAX_TOPK 8
#define MOE_MAX_RANKS 64

typedef uint16_t moe_bf16_t; /* the bits */

typedef struct moe_shape {
    int hidden, ffn, experts, topk;
    int tokens; /* of each rank */
    float skew; /* share of the tokens whose first expert is expert 0, whatever the router would choose */
    uint64_t seed;
} moe_shape_t;

/* --- kernels.cu: all enqueue on the stream and return --- */

/* Values in [-scale, scale) that are a function of seed and position only. */
void moe_fill(moe_bf16_t *values, size_t count, uint64_t seed, size_t first, float scale, cudaStream_t stream);
/*
 * Router: experts [tokens][topk], all different, and their gates, which add up to 1. `first_token`: of all ranks'
 * tokens.
 */
void moe_route(const moe_shape_t *shape, const moe_bf16_t *rows, const moe_bf16_t *router, long first_token,
               int *experts, float *gates, cudaStream_t stream);
/* Rows of each expert: counts[experts], which the caller has zeroed. */
void moe_count(const moe_shape_t *shape, const int *experts, int *counts, cudaStream_t stream);
/*
 * Copies rows to where those of their expert belong: next[experts] starts as the first row of each expert and ends as
 * the last one's successor. slots [tokens][topk] says which row of `packed` each became.
 */
void moe_pack(const moe_shape_t *shape, const moe_bf16_t *rows, const int *experts, int *next, int *slots,
              moe_bf16_t *packed, cudaStream_t stream);
void moe_gelu(moe_bf16_t *values, size_t count, cudaStream_t stream);
/* out[token] = sum over k of gate * packed[slot] */
void moe_unpack(const moe_shape_t *shape, const moe_bf16_t *packed, const int *slots, const float *gates,
                moe_bf16_t *out, cudaStream_t stream);
/* sums[token] += gate * rows[token] for the tokens that chose this expert. */
void moe_accumulate(const moe_shape_t *shape, const moe_bf16_t *rows, const int *experts, const float *gates,
                    int expert, float *sums, cudaStream_t stream);
/* result[0]: the largest |sums|, result[1]: the largest |out - sums|, both as bits of floats; zeroed by the caller. */
void moe_compare(const moe_bf16_t *out, const float *sums, size_t count, unsigned *result, cudaStream_t stream);

/* --- exchange.c --- */

typedef enum moe_way { MOE_MPI, MOE_STAGED, MOE_NCCL } moe_way_t;

/* One way to move rows, with a name for the table. */
typedef struct moe_backend {
    const char *name;
    moe_way_t way;
    MPI_Comm comm; /* MPI_COMM_NULL: NCCL */
} moe_backend_t;

/* In rows, per rank. */
typedef struct moe_counts {
    int send[MOE_MAX_RANKS], send_offset[MOE_MAX_RANKS];
    int receive[MOE_MAX_RANKS], receive_offset[MOE_MAX_RANKS];
} moe_counts_t;

/*
 * The backends of a list such as "stock,nccl,static,mpath"; those that cannot run here are left out with a message.
 * Collective; returns their number.
 */
int moe_backends_open(const char *list, moe_backend_t *backends, int max);
void moe_backends_close(moe_backend_t *backends, int count);
/* Moves rows of `row_bytes` bytes; done when it returns. */
void moe_exchange(const moe_backend_t *backend, const moe_counts_t *counts, size_t row_bytes, const void *send,
                  void *receive, cudaStream_t stream);
/* Overwrites what earlier exchanges have left in memory of this file. */
void moe_exchange_poison(int byte);
/* The value of a control variable of the MPI library, "" when there is none. */
void moe_variable(const char *name, char *value, size_t size);

/* --- layer.c --- */

typedef struct moe_layer moe_layer_t;

/* Makes this rank's tokens and the weights of its experts. */
moe_layer_t *moe_layer_create(const moe_shape_t *shape, MPI_Comm comm);
void moe_layer_destroy(moe_layer_t *layer);
/* The whole layer; done when it returns. Seconds in the two exchanges are added to *exchange_s. */
void moe_layer_run(moe_layer_t *layer, const moe_backend_t *backend, double *exchange_s);
/*
 * Overwrites all that earlier runs have left with what is no number, so that rows which do not come cannot pass for those
 * of another run. Outside of what is timed.
 */
void moe_layer_poison(moe_layer_t *layer);
/*
 * Largest difference between the last output and that of this GPU alone, with all experts, as a part of the largest
 * value; infinite where the output is no number.
 */
double moe_layer_error(moe_layer_t *layer);
/* Most rows that a rank received in the last run, divided by the mean. */
double moe_layer_imbalance(const moe_layer_t *layer);

/* --- errors: end the job --- */

void moe_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define MOE_CUDA(_call)                                                                                                \
    do {                                                                                                               \
        cudaError_t moe_error = (_call);                                                                               \
        if (moe_error != cudaSuccess) {                                                                                \
            moe_fail("%s: %s", #_call, cudaGetErrorString(moe_error));                                                 \
        }                                                                                                              \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
