/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_bench: the list of collectives, and the pattern that their buffers are filled with. */
#include "tools/bench/op.h"

#include <string.h>

static const bench_op_t *const bench_ops[] = {&bench_op_alltoallv, &bench_op_allreduce, &bench_op_reduce_scatter,
                                              &bench_op_allgather, &bench_op_iallreduce};

#define NUM_OPS (sizeof(bench_ops) / sizeof(bench_ops[0]))

const bench_op_t *bench_op_find(const char *name)
{
    size_t i;

    for (i = 0; i < NUM_OPS; i++) {
        if (strcmp(bench_ops[i]->name, name) == 0) {
            return bench_ops[i];
        }
    }
    return NULL;
}

const char *bench_op_unknown(void)
{
    static char text[256];
    size_t i;

    snprintf(text, sizeof(text), "no such collective; there are ");
    for (i = 0; i < NUM_OPS; i++) {
        strncat(text, i > 0 ? ", " : "", sizeof(text) - strlen(text) - 1);
        strncat(text, bench_ops[i]->name, sizeof(text) - strlen(text) - 1);
    }
    return text;
}

static uint64_t mix(uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ull;
    value ^= value >> 33;
    return value;
}

uint64_t bench_pattern_key(int source, int destination, uint32_t round)
{
    return mix(((uint64_t)(uint32_t)source << 32 | (uint32_t)destination) + mix(round + 1));
}

static uint64_t word_at(uint64_t key, uint64_t index)
{
    return (key + index) * 0x9e3779b97f4a7c15ull;
}

static void fill_words(unsigned char *to, uint64_t start, uint64_t bytes, uint64_t key)
{
    uint64_t i, word;

    for (i = 0; i + 8 <= bytes; i += 8) {
        word = word_at(key, (start + i) / 8);
        memcpy(to + i, &word, 8);
    }
    if (i < bytes) {
        word = word_at(key, (start + i) / 8);
        memcpy(to + i, &word, bytes - i);
    }
}

static uint64_t check_words(const unsigned char *from, uint64_t start, uint64_t bytes, uint64_t key, uint64_t *first_p)
{
    uint64_t i, j, length, word, wrong = 0;

    for (i = 0; i < bytes; i += 8) {
        word   = word_at(key, (start + i) / 8);
        length = bytes - i < 8 ? bytes - i : 8;
        if (memcmp(from + i, &word, length) == 0) {
            continue;
        }
        for (j = 0; j < length; j++) {
            if (from[i + j] != ((unsigned char *)&word)[j] && wrong++ == 0) {
                *first_p = start + i + j;
            }
        }
    }
    return wrong;
}

void bench_piece_fill(bench_buffer_t *buffer, uint64_t offset, uint64_t bytes, uint64_t key)
{
    uint64_t done, length;
    unsigned char *window;

    for (done = 0; done < bytes; done += length) {
        window = bench_buffer_window(buffer, offset + done, bytes - done, &length);
        fill_words(window, done, length, key);
        bench_buffer_put(buffer, offset + done, length);
    }
}

uint64_t bench_piece_check(const bench_buffer_t *buffer, uint64_t offset, uint64_t bytes, uint64_t key,
                           uint64_t *first_p)
{
    uint64_t done, length, first = 0, here, wrong = 0;
    const unsigned char *window;

    for (done = 0; done < bytes; done += length) {
        window = bench_buffer_get(buffer, offset + done, bytes - done, &length);
        here   = check_words(window, done, length, key, &first);
        if (here != 0 && wrong == 0) {
            *first_p = first;
        }
        wrong += here;
    }
    return wrong;
}

uint64_t bench_guard_check(const bench_buffer_t *buffer, uint64_t offset)
{
    uint64_t i, length, wrong = 0;
    const unsigned char *window = bench_buffer_get(buffer, offset, BENCH_GUARD_BYTES, &length);

    for (i = 0; i < length; i++) {
        wrong += window[i] != BENCH_GUARD_VALUE;
    }
    return wrong;
}
