/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One layer: route, dispatch, experts, combine. And the same on one GPU, without any of the machinery, to compare with.
 */
#include "moe.h"

#include <cublas_v2.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 16384 /* through an expert at a time: bounds what lies between its two products */
#define POISON 0xff     /* bytes of values that are no number */

/* Device memory that grows. */
typedef struct buffer {
    void *memory;
    size_t bytes;
} buffer_t;

struct moe_layer {
    moe_shape_t shape;
    MPI_Comm comm;
    int rank, size, first_expert, num_experts; /* of this rank */
    cudaStream_t stream;
    cublasHandle_t cublas;
    moe_bf16_t *rows, *router, *out, *weights; /* weights: of each expert hidden x ffn, then ffn x hidden */
    int *experts, *slots, *counters;           /* counters: [MOE_MAX_EXPERTS], of device */
    float *gates;
    buffer_t packed, back, received, results, middle;
    moe_counts_t there, home;
    int rows_of[MOE_MAX_EXPERTS];                 /* this rank's, by expert */
    int arrived[MOE_MAX_RANKS * MOE_MAX_EXPERTS]; /* by source, then by this rank's expert */
    long received_rows;
};

/* New memory may hold what an earlier layer has left there. */
static void *grow(moe_layer_t *layer, buffer_t *buffer, size_t bytes)
{
    if (buffer->bytes < bytes) {
        MOE_CUDA(cudaFree(buffer->memory));
        MOE_CUDA(cudaMalloc(&buffer->memory, bytes));
        MOE_CUDA(cudaMemsetAsync(buffer->memory, POISON, bytes, layer->stream));
        buffer->bytes = bytes;
    }
    return buffer->memory;
}

static void *allocate(size_t bytes)
{
    void *memory;

    MOE_CUDA(cudaMalloc(&memory, bytes));
    return memory;
}

static void check_cublas(cublasStatus_t status, const char *call)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        moe_fail("%s: cuBLAS status %d", call, (int)status);
    }
}

static int first_expert_of(const moe_layer_t *layer, int rank)
{
    return (rank * layer->shape.experts + layer->size - 1) / layer->size;
}

static size_t weights_of_expert(const moe_shape_t *shape)
{
    return 2 * (size_t)shape->hidden * (size_t)shape->ffn;
}

/* Scales keep the values of every stage near those of its input. */
static void make_weights(moe_layer_t *layer, int expert, moe_bf16_t *weights)
{
    const moe_shape_t *shape = &layer->shape;
    size_t half              = weights_of_expert(shape) / 2;

    moe_fill(weights, half, shape->seed + 2, 2 * (size_t)expert * half, 3 / sqrtf((float)shape->hidden), layer->stream);
    moe_fill(weights + half, half, shape->seed + 2, (2 * (size_t)expert + 1) * half, 3 / sqrtf((float)shape->ffn),
             layer->stream);
}

moe_layer_t *moe_layer_create(const moe_shape_t *shape, MPI_Comm comm)
{
    moe_layer_t *layer = calloc(1, sizeof(*layer));
    size_t values      = (size_t)shape->tokens * (size_t)shape->hidden;
    size_t choices     = (size_t)shape->tokens * (size_t)shape->topk;
    int e;

    if (layer == NULL) {
        moe_fail("no memory for a layer");
    }
    layer->shape = *shape;
    layer->comm  = comm;
    MPI_Comm_rank(comm, &layer->rank);
    MPI_Comm_size(comm, &layer->size);
    layer->first_expert = first_expert_of(layer, layer->rank);
    layer->num_experts  = first_expert_of(layer, layer->rank + 1) - layer->first_expert;
    MOE_CUDA(cudaStreamCreateWithFlags(&layer->stream, cudaStreamNonBlocking));
    check_cublas(cublasCreate(&layer->cublas), "cublasCreate");
    check_cublas(cublasSetStream(layer->cublas, layer->stream), "cublasSetStream");
    layer->rows     = allocate(values * sizeof(moe_bf16_t));
    layer->out      = allocate(values * sizeof(moe_bf16_t));
    layer->router   = allocate((size_t)shape->experts * (size_t)shape->hidden * sizeof(moe_bf16_t));
    layer->experts  = allocate(choices * sizeof(int));
    layer->slots    = allocate(choices * sizeof(int));
    layer->gates    = allocate(choices * sizeof(float));
    layer->counters = allocate(MOE_MAX_EXPERTS * sizeof(int));
    layer->weights  = allocate(((size_t)layer->num_experts * weights_of_expert(shape) + 1) * sizeof(moe_bf16_t));
    moe_fill(layer->rows, values, shape->seed, (size_t)layer->rank * values, 1, layer->stream);
    moe_fill(layer->router, (size_t)shape->experts * (size_t)shape->hidden, shape->seed + 1, 0,
             3 / sqrtf((float)shape->hidden), layer->stream);
    for (e = 0; e < layer->num_experts; e++) {
        make_weights(layer, layer->first_expert + e, layer->weights + (size_t)e * weights_of_expert(shape));
    }
    MOE_CUDA(cudaStreamSynchronize(layer->stream));
    return layer;
}

void moe_layer_destroy(moe_layer_t *layer)
{
    void *const memory[] = {layer->rows,          layer->out,         layer->router,          layer->experts,
                            layer->slots,         layer->gates,       layer->counters,        layer->weights,
                            layer->packed.memory, layer->back.memory, layer->received.memory, layer->results.memory,
                            layer->middle.memory};
    size_t i;

    for (i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        MOE_CUDA(cudaFree(memory[i]));
    }
    check_cublas(cublasDestroy(layer->cublas), "cublasDestroy");
    MOE_CUDA(cudaStreamDestroy(layer->stream));
    free(layer);
}

void moe_layer_poison(moe_layer_t *layer)
{
    buffer_t *const buffers[] = {&layer->packed, &layer->received, &layer->results, &layer->back};
    size_t out_bytes          = (size_t)layer->shape.tokens * (size_t)layer->shape.hidden * sizeof(*layer->out), i;

    for (i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        if (buffers[i]->memory != NULL) {
            MOE_CUDA(cudaMemsetAsync(buffers[i]->memory, POISON, buffers[i]->bytes, layer->stream));
        }
    }
    MOE_CUDA(cudaMemsetAsync(layer->out, POISON, out_bytes, layer->stream));
    MOE_CUDA(cudaStreamSynchronize(layer->stream));
    moe_exchange_poison(POISON);
}

/* --- experts ----------------------------------------------------------------------------------------------------- */

/* out[rows][columns] = in[rows][inner] * weights[inner][columns]; cuBLAS sees the transposes of all three. */
static void multiply(moe_layer_t *layer, const moe_bf16_t *in, const moe_bf16_t *weights, moe_bf16_t *out, int rows,
                     int inner, int columns)
{
    const float one = 1, zero = 0;

    check_cublas(cublasGemmEx(layer->cublas, CUBLAS_OP_N, CUBLAS_OP_N, columns, rows, inner, &one, weights, CUDA_R_16BF,
                              columns, in, CUDA_R_16BF, inner, &zero, out, CUDA_R_16BF, columns, CUBLAS_COMPUTE_32F,
                              CUBLAS_GEMM_DEFAULT),
                 "cublasGemmEx");
}

static void run_expert(moe_layer_t *layer, const moe_bf16_t *weights, const moe_bf16_t *in, moe_bf16_t *out, int rows)
{
    int hidden = layer->shape.hidden, ffn = layer->shape.ffn, done, now;
    moe_bf16_t *middle = grow(layer, &layer->middle, (size_t)MOST_ROWS * (size_t)ffn * sizeof(*middle));

    for (done = 0; done < rows; done += now) {
        now = (rows - done < MOST_ROWS) ? rows - done : MOST_ROWS;
        multiply(layer, in + (size_t)done * (size_t)hidden, weights, middle, now, hidden, ffn);
        moe_gelu(middle, (size_t)now * (size_t)ffn, layer->stream);
        multiply(layer, middle, weights + (size_t)hidden * (size_t)ffn, out + (size_t)done * (size_t)hidden, now, ffn,
                 hidden);
    }
}

/* What has arrived lies by source, and of each source by expert: runs of one expert's rows go together. */
static void run_experts(moe_layer_t *layer, const moe_bf16_t *in, moe_bf16_t *out)
{
    size_t hidden = (size_t)layer->shape.hidden, row = 0, first = 0;
    int segments = layer->size * layer->num_experts, i, rows = 0;

    for (i = 0; i < segments; i++) {
        rows += layer->arrived[i];
        row += (size_t)layer->arrived[i];
        if ((i + 1 == segments) || (layer->num_experts > 1)) {
            run_expert(layer, layer->weights + (size_t)(i % layer->num_experts) * weights_of_expert(&layer->shape),
                       in + first * hidden, out + first * hidden, rows);
            first = row;
            rows  = 0;
        }
    }
}

/* --- dispatch and combine ---------------------------------------------------------------------------------------- */

static void set_offsets(int size, const int *counts, int *offsets)
{
    int i;

    for (i = 1, offsets[0] = 0; i < size; i++) {
        offsets[i] = offsets[i - 1] + counts[i - 1];
    }
}

/* Who sends how many rows to whom, out of rows_of; the way home is the way there in reverse. */
static void agree_on_counts(moe_layer_t *layer)
{
    int to_each[MOE_MAX_RANKS] = {0}, at[MOE_MAX_RANKS] = {0}, from_each[MOE_MAX_RANKS] = {0},
        from_at[MOE_MAX_RANKS] = {0};
    int rank, i;

    memset(&layer->there, 0, sizeof(layer->there));
    for (rank = 0; rank < layer->size; rank++) {
        at[rank]        = first_expert_of(layer, rank);
        to_each[rank]   = first_expert_of(layer, rank + 1) - at[rank];
        from_at[rank]   = rank * layer->num_experts;
        from_each[rank] = layer->num_experts;
        for (i = 0; i < to_each[rank]; i++) {
            layer->there.send[rank] += layer->rows_of[at[rank] + i];
        }
    }
    MPI_Alltoallv(layer->rows_of, to_each, at, MPI_INT, layer->arrived, from_each, from_at, MPI_INT, layer->comm);
    for (i = 0; i < layer->size * layer->num_experts; i++) {
        layer->there.receive[i / layer->num_experts] += layer->arrived[i];
    }
    set_offsets(layer->size, layer->there.send, layer->there.send_offset);
    set_offsets(layer->size, layer->there.receive, layer->there.receive_offset);
    memcpy(layer->home.send, layer->there.receive, sizeof(layer->home.send));
    memcpy(layer->home.send_offset, layer->there.receive_offset, sizeof(layer->home.send_offset));
    memcpy(layer->home.receive, layer->there.send, sizeof(layer->home.receive));
    memcpy(layer->home.receive_offset, layer->there.send_offset, sizeof(layer->home.receive_offset));
    layer->received_rows = layer->there.receive_offset[layer->size - 1] + layer->there.receive[layer->size - 1];
}

void moe_layer_run(moe_layer_t *layer, const moe_backend_t *backend, double *exchange_s)
{
    const moe_shape_t *shape  = &layer->shape;
    size_t row_bytes          = (size_t)shape->hidden * sizeof(moe_bf16_t);
    size_t choices            = (size_t)shape->tokens * (size_t)shape->topk;
    moe_bf16_t *packed        = grow(layer, &layer->packed, choices * row_bytes);
    moe_bf16_t *back          = grow(layer, &layer->back, choices * row_bytes), *received, *results;
    int next[MOE_MAX_EXPERTS] = {0};
    double start;

    MOE_CUDA(cudaMemsetAsync(layer->counters, 0, MOE_MAX_EXPERTS * sizeof(int), layer->stream));
    moe_route(shape, layer->rows, layer->router, (long)layer->rank * shape->tokens, layer->experts, layer->gates,
              layer->stream);
    moe_count(shape, layer->experts, layer->counters, layer->stream);
    MOE_CUDA(cudaMemcpyAsync(layer->rows_of, layer->counters, sizeof(layer->rows_of), cudaMemcpyDeviceToHost,
                             layer->stream));
    MOE_CUDA(cudaStreamSynchronize(layer->stream));
    set_offsets(shape->experts, layer->rows_of, next);
    MOE_CUDA(cudaMemcpyAsync(layer->counters, next, sizeof(next), cudaMemcpyHostToDevice, layer->stream));
    moe_pack(shape, layer->rows, layer->experts, layer->counters, layer->slots, packed, layer->stream);
    agree_on_counts(layer);
    received = grow(layer, &layer->received, (size_t)layer->received_rows * row_bytes + 1);
    results  = grow(layer, &layer->results, (size_t)layer->received_rows * row_bytes + 1);
    MOE_CUDA(cudaStreamSynchronize(layer->stream));
    start = MPI_Wtime();
    moe_exchange(backend, &layer->there, row_bytes, packed, received, layer->stream);
    *exchange_s += MPI_Wtime() - start;
    run_experts(layer, received, results);
    MOE_CUDA(cudaStreamSynchronize(layer->stream));
    start = MPI_Wtime();
    moe_exchange(backend, &layer->home, row_bytes, results, back, layer->stream);
    *exchange_s += MPI_Wtime() - start;
    moe_unpack(shape, back, layer->slots, layer->gates, layer->out, layer->stream);
    MOE_CUDA(cudaStreamSynchronize(layer->stream));
}

double moe_layer_imbalance(const moe_layer_t *layer)
{
    long rows = layer->received_rows, most, all;

    MPI_Allreduce(&rows, &most, 1, MPI_LONG, MPI_MAX, layer->comm);
    MPI_Allreduce(&rows, &all, 1, MPI_LONG, MPI_SUM, layer->comm);
    return (double)most * layer->size / (double)all;
}

/* --- reference --------------------------------------------------------------------------------------------------- */

double moe_layer_error(moe_layer_t *layer)
{
    const moe_shape_t *shape = &layer->shape;
    size_t values            = (size_t)shape->tokens * (size_t)shape->hidden;
    moe_bf16_t *weights      = allocate(weights_of_expert(shape) * sizeof(*weights));
    moe_bf16_t *rows         = allocate(values * sizeof(*rows));
    float *sums              = allocate(values * sizeof(*sums)), found[2];
    unsigned *result         = allocate(2 * sizeof(*result));
    double error, worst;
    int expert;

    MOE_CUDA(cudaMemsetAsync(sums, 0, values * sizeof(*sums), layer->stream));
    MOE_CUDA(cudaMemsetAsync(result, 0, 2 * sizeof(*result), layer->stream));
    for (expert = 0; expert < shape->experts; expert++) {
        make_weights(layer, expert, weights);
        run_expert(layer, weights, layer->rows, rows, shape->tokens);
        moe_accumulate(shape, rows, layer->experts, layer->gates, expert, sums, layer->stream);
    }
    moe_compare(layer->out, sums, values, result, layer->stream);
    MOE_CUDA(cudaMemcpyAsync(found, result, sizeof(found), cudaMemcpyDeviceToHost, layer->stream));
    MOE_CUDA(cudaStreamSynchronize(layer->stream));
    MOE_CUDA(cudaFree(weights));
    MOE_CUDA(cudaFree(rows));
    MOE_CUDA(cudaFree(sums));
    MOE_CUDA(cudaFree(result));
    error = (found[0] > 0) ? (double)found[1] / (double)found[0] : 1; /* nothing but zeros is no result */
    error = (isfinite(found[0]) && isfinite(error)) ? error : INFINITY;
    MPI_Allreduce(&error, &worst, 1, MPI_DOUBLE, MPI_MAX, layer->comm);
    return worst;
}
