/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What examples/moe_layer takes of a GPU, on the host: the CUDA runtime, one function of cuBLAS and the kernels of
 * kernels.cu. Its other files are compiled as they are, so that its own checks can be tried without a GPU.
 *
 * MOE_LOSE=A,B: on every rank the exchanges of rows with these numbers, from 0, deliver nothing.
 */
#include "../../examples/moe_layer/moe.h"

#include <cublas_v2.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- exchanges that deliver nothing ------------------------------------------------------------------------------ */

static int is_lost(void)
{
    static int number;
    const char *lost = getenv("MOE_LOSE");
    char *end;

    for (number++; lost != NULL && *lost != '\0'; lost = *end == ',' ? end + 1 : end) {
        if (strtol(lost, &end, 10) == number - 1) {
            return 1;
        }
    }
    return 0;
}

int MPI_Alltoallv(const void *send, const int *send_counts, const int *send_offsets, MPI_Datatype send_type,
                  void *receive, const int *receive_counts, const int *receive_offsets, MPI_Datatype receive_type,
                  MPI_Comm comm)
{
    if (send_type != MPI_INT && is_lost()) { /* MPI_INT: how many rows */
        return MPI_SUCCESS;
    }
    return PMPI_Alltoallv(send, send_counts, send_offsets, send_type, receive, receive_counts, receive_offsets,
                          receive_type, comm);
}

/* --- runtime ----------------------------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = malloc(bytes);
    return *memory != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    return cudaMalloc(memory, bytes);
}

cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)stream;
    return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    *stream = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an error";
}

/* --- cuBLAS ------------------------------------------------------------------------------------------------------ */

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    *handle = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    (void)stream;
    return CUBLAS_STATUS_SUCCESS;
}

static float value_of(moe_bf16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof(value));
    return value;
}

/* Rounds to the nearest; what is no number stays so. */
static moe_bf16_t bits_of(float value)
{
    uint32_t wide;

    memcpy(&wide, &value, sizeof(wide));
    return (moe_bf16_t)((wide + (isnan(value) ? 0 : 0x8000)) >> 16);
}

/* Columns come first in memory, nothing is transposed, beta is 0. */
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType type_a, int lda, const void *b,
                            cudaDataType type_b, int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    const moe_bf16_t *left = a, *right = b;
    moe_bf16_t *out = c;
    int row, column, i;

    (void)handle;
    (void)alpha;
    (void)compute;
    (void)algo;
    if (op_a != CUBLAS_OP_N || op_b != CUBLAS_OP_N || type_a != CUDA_R_16BF || type_b != type_a || type_c != type_a ||
        *(const float *)beta != 0) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (column = 0; column < n; column++) {
        for (row = 0; row < m; row++) {
            float sum = 0;

            for (i = 0; i < k; i++) {
                sum += value_of(left[row + i * lda]) * value_of(right[i + column * ldb]);
            }
            out[row + column * ldc] = bits_of(sum);
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* --- kernels ----------------------------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t z)
{
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static float unit_of(uint64_t position)
{
    return (float)(hash(position) >> 40) / 16777216.0f;
}

void moe_fill(moe_bf16_t *values, size_t count, uint64_t seed, size_t first, float scale, cudaStream_t stream)
{
    size_t i;

    (void)stream;
    for (i = 0; i < count; i++) {
        values[i] = bits_of((2 * unit_of(seed ^ hash(first + i)) - 1) * scale);
    }
}

/* The first expert by the skew, or by a hash; the others are its successors. */
void moe_route(const moe_shape_t *shape, const moe_bf16_t *rows, const moe_bf16_t *router, long first_token,
               int *experts, float *gates, cudaStream_t stream)
{
    int token, k, first;

    (void)rows;
    (void)router;
    (void)stream;
    for (token = 0; token < shape->tokens; token++) {
        uint64_t chance = hash((uint64_t)(first_token + token));

        first = unit_of(chance) < shape->skew ? 0 : (int)(chance % (uint64_t)shape->experts);
        for (k = 0; k < shape->topk; k++) {
            experts[token * shape->topk + k] = (first + k) % shape->experts;
            gates[token * shape->topk + k]   = 1.0f / (float)shape->topk;
        }
    }
}

void moe_count(const moe_shape_t *shape, const int *experts, int *counts, cudaStream_t stream)
{
    int i;

    (void)stream;
    for (i = 0; i < shape->tokens * shape->topk; i++) {
        counts[experts[i]]++;
    }
}

void moe_pack(const moe_shape_t *shape, const moe_bf16_t *rows, const int *experts, int *next, int *slots,
              moe_bf16_t *packed, cudaStream_t stream)
{
    size_t hidden = (size_t)shape->hidden;
    int i;

    (void)stream;
    for (i = 0; i < shape->tokens * shape->topk; i++) {
        slots[i] = next[experts[i]]++;
        memcpy(packed + (size_t)slots[i] * hidden, rows + (size_t)(i / shape->topk) * hidden, hidden * sizeof(*packed));
    }
}

void moe_gelu(moe_bf16_t *values, size_t count, cudaStream_t stream)
{
    size_t i;

    (void)stream;
    for (i = 0; i < count; i++) {
        float x = value_of(values[i]);

        values[i] = bits_of(0.5f * x * (1 + erff(x * 0.70710678f)));
    }
}

void moe_unpack(const moe_shape_t *shape, const moe_bf16_t *packed, const int *slots, const float *gates,
                moe_bf16_t *out, cudaStream_t stream)
{
    int token, i, k;

    (void)stream;
    for (token = 0; token < shape->tokens; token++) {
        for (i = 0; i < shape->hidden; i++) {
            float sum = 0;

            for (k = token * shape->topk; k < (token + 1) * shape->topk; k++) {
                sum += gates[k] * value_of(packed[slots[k] * shape->hidden + i]);
            }
            out[token * shape->hidden + i] = bits_of(sum);
        }
    }
}

void moe_accumulate(const moe_shape_t *shape, const moe_bf16_t *rows, const int *experts, const float *gates,
                    int expert, float *sums, cudaStream_t stream)
{
    int choice, i, row;

    (void)stream;
    for (choice = 0; choice < shape->tokens * shape->topk; choice++) {
        row = choice / shape->topk * shape->hidden;
        for (i = row; experts[choice] == expert && i < row + shape->hidden; i++) {
            sums[i] += gates[choice] * value_of(rows[i]);
        }
    }
}

void moe_compare(const moe_bf16_t *out, const float *sums, size_t count, unsigned *result, cudaStream_t stream)
{
    float found[2] = {0, 0};
    size_t i;

    (void)stream;
    for (i = 0; i < count; i++) {
        float here = fabsf(value_of(out[i]) - sums[i]);

        found[0] = fmaxf(found[0], fabsf(sums[i]));
        found[1] = fmaxf(found[1], isfinite(here) ? here : INFINITY);
    }
    memcpy(result, found, sizeof(found));
}
