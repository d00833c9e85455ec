/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: buffers and their contents. Every 8-byte word of a piece is a function of source, destination, round and position, so
 * that a byte that is lost, swapped, late or out of place is seen. Guards lie before, between and after the pieces.
 */
#include "tools/bench.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 64
#define GUARD_VALUE 0xA5
#define SPOILED_VALUE 0xEE

static uint64_t mix(uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ull;
    value ^= value >> 33;
    return value;
}

static uint64_t piece_key(int source, int destination, uint32_t round)
{
    return mix(((uint64_t)(uint32_t)source << 32 | (uint32_t)destination) + mix(round + 1));
}

static uint64_t word_at(uint64_t key, uint64_t index)
{
    return (key + index) * 0x9e3779b97f4a7c15ull;
}

static void fill_piece(unsigned char *to, uint64_t bytes, uint64_t key)
{
    uint64_t i, word;

    for (i = 0; i + 8 <= bytes; i += 8) {
        word = word_at(key, i / 8);
        memcpy(to + i, &word, 8);
    }
    if (i < bytes) {
        word = word_at(key, i / 8);
        memcpy(to + i, &word, bytes - i);
    }
}

/* Number of wrong bytes; *first_p is the position of the first. */
static uint64_t check_piece(const unsigned char *from, uint64_t bytes, uint64_t key, uint64_t *first_p)
{
    uint64_t i, j, length, word, wrong = 0;

    for (i = 0; i < bytes; i += 8) {
        word   = word_at(key, i / 8);
        length = bytes - i < 8 ? bytes - i : 8;
        if (memcmp(from + i, &word, length) == 0) {
            continue;
        }
        for (j = 0; j < length; j++) {
            if (from[i + j] != ((unsigned char *)&word)[j] && wrong++ == 0) {
                *first_p = i + j;
            }
        }
    }
    return wrong;
}

static uint64_t check_guard(const unsigned char *from)
{
    uint64_t i, wrong = 0;

    for (i = 0; i < GUARD_BYTES; i++) {
        wrong += from[i] != GUARD_VALUE;
    }
    return wrong;
}

/* Lays the pieces out behind each other with guards between; returns the size of the buffer, 0 if MPI cannot count it. */
static uint64_t lay_out(int size, const uint64_t *bytes, size_t stride, int *counts, int *offsets)
{
    uint64_t offset = GUARD_BYTES;
    int peer;

    for (peer = 0; peer < size; peer++) {
        if (bytes[(size_t)peer * stride] > INT_MAX || offset > INT_MAX) {
            return 0;
        }
        counts[peer]  = (int)bytes[(size_t)peer * stride];
        offsets[peer] = (int)offset;
        offset += bytes[(size_t)peer * stride] + GUARD_BYTES;
    }
    return offset;
}

int bench_data_create(int rank, int size, const uint64_t *demand, bench_data_t *data)
{
    size_t entries = (size_t)size * sizeof(int);

    memset(data, 0, sizeof(*data));
    data->rank            = rank;
    data->size            = size;
    data->demand          = demand;
    data->send_counts     = malloc(entries);
    data->send_offsets    = malloc(entries);
    data->receive_counts  = malloc(entries);
    data->receive_offsets = malloc(entries);
    if (!data->send_counts || !data->send_offsets || !data->receive_counts || !data->receive_offsets) {
        goto err_memory;
    }
    data->send_bytes    = lay_out(size, demand + (size_t)rank * (size_t)size, 1, data->send_counts, data->send_offsets);
    data->receive_bytes = lay_out(size, demand + rank, (size_t)size, data->receive_counts, data->receive_offsets);
    if (data->send_bytes == 0 || data->receive_bytes == 0) {
        fprintf(stderr, "mpath_bench: rank %d would send or receive more than 2 GiB, which int counts cannot express\n",
                rank);
        bench_data_destroy(data);
        return -1;
    }
    data->send    = malloc(data->send_bytes);
    data->receive = malloc(data->receive_bytes);
    if (!data->send || !data->receive) {
        goto err_memory;
    }
    memset(data->send, GUARD_VALUE, data->send_bytes);
    return 0;

err_memory:
    fprintf(stderr, "mpath_bench: rank %d: out of memory\n", rank);
    bench_data_destroy(data);
    return -1;
}

void bench_data_destroy(bench_data_t *data)
{
    free(data->send_counts);
    free(data->send_offsets);
    free(data->receive_counts);
    free(data->receive_offsets);
    free(data->send);
    free(data->receive);
    memset(data, 0, sizeof(*data));
}

void bench_data_fill(bench_data_t *data, uint32_t round)
{
    int peer;

    for (peer = 0; peer < data->size; peer++) {
        fill_piece(data->send + data->send_offsets[peer], (uint64_t)data->send_counts[peer],
                   piece_key(data->rank, peer, round));
    }
    memset(data->receive, GUARD_VALUE, data->receive_bytes);
    for (peer = 0; peer < data->size; peer++) {
        memset(data->receive + data->receive_offsets[peer], SPOILED_VALUE, (size_t)data->receive_counts[peer]);
    }
}

uint64_t bench_data_check(const bench_data_t *data, uint32_t round)
{
    uint64_t wrong = 0, here, first = 0;
    int peer;

    for (peer = 0; peer < data->size; peer++) {
        here = check_piece(data->receive + data->receive_offsets[peer], (uint64_t)data->receive_counts[peer],
                           piece_key(peer, data->rank, round), &first);
        if (here != 0 && wrong == 0) {
            fprintf(stderr, "mpath_bench: rank %d: %llu of %d bytes from rank %d are wrong, the first at %llu\n",
                    data->rank, (unsigned long long)here, data->receive_counts[peer], peer, (unsigned long long)first);
        }
        wrong += here;
        here = check_guard(data->receive + data->receive_offsets[peer] - GUARD_BYTES) +
               check_guard(data->receive + data->receive_offsets[peer] + data->receive_counts[peer]);
        if (here != 0) {
            fprintf(stderr, "mpath_bench: rank %d: %llu guard bytes around the data from rank %d were overwritten\n",
                    data->rank, (unsigned long long)here, peer);
        }
        wrong += here;
    }
    return wrong;
}
