/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Units of data with a number: see device/kernels/eager_args.h. Nothing here releases or acquires anything at the other end of a link:
 * a unit and its number are one access of 128 bits. What is left to order at the end is the result, in this GPU's own
 * memory, before the host's word.
 */
#ifndef MPATH_GPU_EAGER_CUH
#define MPATH_GPU_EAGER_CUH

#include "device/kernels/access.cuh"
#include "device/kernels/eager_args.h"

/* Looks between two at the clock. */
#define EAGER_POLLS 16

/* The number of this call: of the launch, or the next one after that which the GPU has seen last. */
static __device__ __forceinline__ uint64_t eager_number(uint64_t number, uint64_t memory)
{
    return (number != 0) ? number : reinterpret_cast<volatile uint64_t *>(memory)[blockIdx.x] + 1;
}

/* All threads: this CTA is through, with all of its results or not. */
static __device__ __forceinline__ void eager_end(uint64_t memory, uint64_t words, uint64_t number, bool good)
{
    good = __syncthreads_and(good);
    /*
     * Each counter belongs to one CTA of this launch, and to one that may be another of the next, which has other CTAs.
     */
    if ((threadIdx.x < MPATH_EAGER_CTAS) && (threadIdx.x % gridDim.x == blockIdx.x)) {
        reinterpret_cast<volatile uint64_t *>(memory)[threadIdx.x] = number;
    }
    if (threadIdx.x == 0) {
        /*
         * The result is in this GPU's memory, and whoever reads it does so through the same second-level cache. So it
         * has to be there before the word, and need not wait for what was written to other GPUs.
         */
        __threadfence();
        kernel_store_relaxed(words + blockIdx.x * 8u, good ? number : (number | MPATH_EAGER_GAVE_UP));
    }
}

#endif
