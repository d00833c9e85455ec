/* SPDX-License-Identifier: BSD-3-Clause */
/* Contents that follow from a chunk's header, for the tests of lanes. */
#ifndef MPATH_TESTS_LANE_PATTERN_H
#define MPATH_TESTS_LANE_PATTERN_H

#include "lane/lane.h"

static inline uint32_t lane_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static inline unsigned char lane_pattern_byte(const mpath_chunk_t *chunk, uint32_t i)
{
    uint64_t seed = chunk->team * 31 + chunk->call * 17 + chunk->flow * 7 + chunk->offset;

    return (unsigned char)((seed * 0x9e3779b97f4a7c15ull >> 40) + i * 13 + (i >> 8));
}

static inline void lane_pattern_fill(void *data, const mpath_chunk_t *chunk)
{
    unsigned char *bytes = data;
    uint32_t i;

    for (i = 0; i < chunk->bytes; i++) {
        bytes[i] = lane_pattern_byte(chunk, i);
    }
}

/* Nonzero: all bytes are as they should be. */
static inline int lane_pattern_check(const void *data, const mpath_chunk_t *chunk)
{
    const unsigned char *bytes = data;
    uint32_t i;

    for (i = 0; i < chunk->bytes; i++) {
        if (bytes[i] != lane_pattern_byte(chunk, i)) {
            return 0;
        }
    }
    return 1;
}

#endif
