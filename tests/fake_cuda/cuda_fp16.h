/* SPDX-License-Identifier: BSD-3-Clause */
/* Half precision as nvcc's header of this name has it, as far as the kernels use it; for a compiler that has none. */
#ifndef FAKE_CUDA_CUDA_FP16_H
#define FAKE_CUDA_CUDA_FP16_H

#include <cstdint>
#include <cstring>

typedef struct __half {
    uint16_t bits;
} __half;

static inline __half __ushort_as_half(uint16_t bits)
{
    return {bits};
}

static inline uint16_t __half_as_ushort(__half half)
{
    return half.bits;
}

static inline float __half2float(__half half)
{
    uint32_t magnitude = half.bits & 0x7fffu, bits;
    float value;

    if (magnitude < 0x400) { /* no exponent */
        value = static_cast<float>(magnitude) / (1 << 24);
        memcpy(&bits, &value, sizeof(bits));
    } else {
        bits = (magnitude << 13) + ((magnitude >= 0x7c00) ? 224u << 23 : 112u << 23);
    }
    bits |= static_cast<uint32_t>(half.bits & 0x8000u) << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Rounds to the nearest, of two the even one. */
static inline __half __float2half_rn(float value)
{
    uint32_t bits, magnitude, half;

    memcpy(&bits, &value, sizeof(bits));
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000) {
        half = 0x7e00; /* not a number */
    } else if (magnitude >= 0x477ff000) {
        half = 0x7c00; /* infinite, or too large */
    } else if (magnitude < 0x38800000) {
        float sum = ((value < 0) ? -value : value) + 0.5f; /* its last place is that of a half without exponent */

        memcpy(&magnitude, &sum, sizeof(magnitude));
        half = magnitude - 0x3f000000;
    } else {
        half = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    }
    return {static_cast<uint16_t>(half | ((bits >> 16) & 0x8000u))};
}

#endif
