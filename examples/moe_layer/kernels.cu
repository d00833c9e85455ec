/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA kernels of the layer: router, packing of rows by expert, activation, weighted sum, and the comparison. */
#include "moe.h"

#include <cuda_bf16.h>

#define THREADS 256

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
static __device__ uint64_t hash(uint64_t z)
{
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static __device__ float value_of(moe_bf16_t bits)
{
    return __uint_as_float((unsigned)bits << 16);
}

static __device__ moe_bf16_t bits_of(float value)
{
    return __bfloat16_as_ushort(__float2bfloat16(value));
}

static unsigned blocks_of(size_t count)
{
    size_t blocks = (count + THREADS - 1) / THREADS;

    return (unsigned)(blocks < 65535 ? (blocks > 0 ? blocks : 1) : 65535);
}

#define FOR_EACH(_i, _count)                                                                                           \
    for (size_t _i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; _i < (_count); _i += (size_t)gridDim.x * blockDim.x)

static void check_launch(const char *name)
{
    cudaError_t error = cudaGetLastError();

    if (error != cudaSuccess) {
        moe_fail("kernel %s: %s", name, cudaGetErrorString(error));
    }
}

static __global__ void fill(moe_bf16_t *values, size_t count, uint64_t seed, size_t first, float scale)
{
    FOR_EACH(i, count)
    {
        values[i] = bits_of(((float)(hash(seed ^ hash(first + i)) >> 40) / 8388608.0f - 1.0f) * scale);
    }
}

void moe_fill(moe_bf16_t *values, size_t count, uint64_t seed, size_t first, float scale, cudaStream_t stream)
{
    fill<<<blocks_of(count), THREADS, 0, stream>>>(values, count, seed, first, scale);
    check_launch("fill");
}

/* One warp per token: scores by dot products, then the chosen ones in order. */
static __global__ void route(moe_shape_t shape, const moe_bf16_t *rows, const moe_bf16_t *router, long first_token,
                             int *experts, float *gates)
{
    int token = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32), lane = threadIdx.x % 32;
    float scores[MOE_MAX_EXPERTS], sum                                         = 0;
    uint64_t taken = 0;

    if (token >= shape.tokens) {
        return;
    }
    for (int e = 0; e < shape.experts; e++) {
        float dot = 0;

        for (int i = lane; i < shape.hidden; i += 32) {
            dot += value_of(rows[(size_t)token * shape.hidden + i]) * value_of(router[(size_t)e * shape.hidden + i]);
        }
        for (int step = 16; step > 0; step /= 2) {
            dot += __shfl_xor_sync(0xffffffffu, dot, step);
        }
        scores[e] = dot;
    }
    if (lane != 0) {
        return;
    }
    for (int k = 0; k < shape.topk; k++) {
        int best     = -1;
        float chance = (float)(hash(shape.seed ^ hash((uint64_t)(first_token + token))) >> 40) / 16777216.0f;

        for (int e = 0; e < shape.experts; e++) {
            if (!((taken >> e) & 1) && (best < 0 || scores[e] > scores[best])) {
                best = e;
            }
        }
        best = (k == 0 && chance < shape.skew) ? 0 : best; /* a router that has collapsed on one expert */
        taken |= 1ull << best;
        experts[(size_t)token * shape.topk + k] = best;
        gates[(size_t)token * shape.topk + k]   = expf(scores[best]);
        sum += expf(scores[best]);
    }
    for (int k = 0; k < shape.topk; k++) {
        gates[(size_t)token * shape.topk + k] /= sum;
    }
}

void moe_route(const moe_shape_t *shape, const moe_bf16_t *rows, const moe_bf16_t *router, long first_token,
               int *experts, float *gates, cudaStream_t stream)
{
    unsigned per_block = THREADS / 32;

    route<<<((unsigned)shape->tokens + per_block - 1) / per_block, THREADS, 0, stream>>>(*shape, rows, router,
                                                                                         first_token, experts, gates);
    check_launch("route");
}

static __global__ void count_rows(const int *experts, size_t count, int *counts)
{
    __shared__ int mine[MOE_MAX_EXPERTS];

    for (int e = threadIdx.x; e < MOE_MAX_EXPERTS; e += blockDim.x) {
        mine[e] = 0;
    }
    __syncthreads();
    FOR_EACH(i, count)
    {
        atomicAdd(&mine[experts[i]], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < MOE_MAX_EXPERTS; e += blockDim.x) {
        if (mine[e] > 0) {
            atomicAdd(&counts[e], mine[e]);
        }
    }
}

void moe_count(const moe_shape_t *shape, const int *experts, int *counts, cudaStream_t stream)
{
    size_t count = (size_t)shape->tokens * (size_t)shape->topk;

    count_rows<<<blocks_of(count), THREADS, 0, stream>>>(experts, count, counts);
    check_launch("count_rows");
}

/* One block per choice; rows are multiples of 16 bytes. */
static __global__ void pack(moe_shape_t shape, const moe_bf16_t *rows, const int *experts, int *next, int *slots,
                            moe_bf16_t *packed)
{
    size_t choice = blockIdx.x, vectors = (size_t)shape.hidden / 8;
    const uint4 *in = (const uint4 *)(rows + choice / shape.topk * shape.hidden);
    __shared__ int slot;

    if (threadIdx.x == 0) {
        slot          = atomicAdd(&next[experts[choice]], 1);
        slots[choice] = slot;
    }
    __syncthreads();
    for (size_t i = threadIdx.x; i < vectors; i += blockDim.x) {
        ((uint4 *)(packed + (size_t)slot * shape.hidden))[i] = in[i];
    }
}

void moe_pack(const moe_shape_t *shape, const moe_bf16_t *rows, const int *experts, int *next, int *slots,
              moe_bf16_t *packed, cudaStream_t stream)
{
    pack<<<(unsigned)(shape->tokens * shape->topk), 128, 0, stream>>>(*shape, rows, experts, next, slots, packed);
    check_launch("pack");
}

static __global__ void gelu(moe_bf16_t *values, size_t count)
{
    FOR_EACH(i, count)
    {
        float x = value_of(values[i]);

        values[i] = bits_of(0.5f * x * (1.0f + erff(x * 0.70710678f)));
    }
}

void moe_gelu(moe_bf16_t *values, size_t count, cudaStream_t stream)
{
    gelu<<<blocks_of(count), THREADS, 0, stream>>>(values, count);
    check_launch("gelu");
}

static __global__ void unpack(moe_shape_t shape, const moe_bf16_t *packed, const int *slots, const float *gates,
                              moe_bf16_t *out)
{
    size_t token = blockIdx.x;

    for (int i = threadIdx.x; i < shape.hidden; i += blockDim.x) {
        float sum = 0;

        for (int k = 0; k < shape.topk; k++) {
            size_t choice = token * shape.topk + k;

            sum += gates[choice] * value_of(packed[(size_t)slots[choice] * shape.hidden + i]);
        }
        out[token * shape.hidden + i] = bits_of(sum);
    }
}

void moe_unpack(const moe_shape_t *shape, const moe_bf16_t *packed, const int *slots, const float *gates,
                moe_bf16_t *out, cudaStream_t stream)
{
    unpack<<<(unsigned)shape->tokens, THREADS, 0, stream>>>(*shape, packed, slots, gates, out);
    check_launch("unpack");
}

static __global__ void accumulate(moe_shape_t shape, const moe_bf16_t *rows, const int *experts, const float *gates,
                                  int expert, float *sums)
{
    size_t token = blockIdx.x;

    for (int k = 0; k < shape.topk; k++) {
        if (experts[token * shape.topk + k] != expert) {
            continue;
        }
        for (int i = threadIdx.x; i < shape.hidden; i += blockDim.x) {
            sums[token * shape.hidden + i] += gates[token * shape.topk + k] * value_of(rows[token * shape.hidden + i]);
        }
    }
}

void moe_accumulate(const moe_shape_t *shape, const moe_bf16_t *rows, const int *experts, const float *gates,
                    int expert, float *sums, cudaStream_t stream)
{
    accumulate<<<(unsigned)shape->tokens, THREADS, 0, stream>>>(*shape, rows, experts, gates, expert, sums);
    check_launch("accumulate");
}

/* Floats that are not negative are ordered as their bits; what is no number counts as infinite. */
static __device__ void raise_to(unsigned *to, float value)
{
    atomicMax(to, isfinite(value) ? __float_as_uint(value) : 0x7f800000u);
}

static __global__ void compare(const moe_bf16_t *out, const float *sums, size_t count, unsigned *result)
{
    float largest = 0, difference = 0;

    FOR_EACH(i, count)
    {
        float here = fabsf(value_of(out[i]) - sums[i]);

        largest    = fmaxf(largest, fabsf(sums[i]));
        difference = fmaxf(difference, isfinite(here) ? here : INFINITY); /* fmaxf drops what is no number */
    }
    raise_to(&result[0], largest);
    raise_to(&result[1], difference);
}

void moe_compare(const moe_bf16_t *out, const float *sums, size_t count, unsigned *result, cudaStream_t stream)
{
    compare<<<blocks_of(count), THREADS, 0, stream>>>(out, sums, count, result);
    check_launch("compare");
}
