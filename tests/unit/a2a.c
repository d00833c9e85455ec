/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's side of an alltoallv: demands, buffers with guards, data that tells where it comes from. */
#include "a2a.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 24u
#define GUARD 0xe7
#define SPOILED 0x55

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185ull;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44dull;
    return x ^ (x >> 33);
}

static uint64_t cell(a2a_kind_t kind, int size, int source, int destination, uint64_t max_bytes, uint64_t random)
{
    switch (kind) {
    case A2A_ZERO:
        return 0;
    case A2A_DIAGONAL:
        return (source == destination) ? max_bytes : 0;
    case A2A_ONE_PAIR:
        return ((source == 0) && (destination == size - 1)) ? max_bytes : 0;
    case A2A_EVEN:
        return max_bytes;
    case A2A_HOT:
        return (destination == 0) ? max_bytes : max_bytes / 16;
    case A2A_SPARSE:
        return ((random & 1) != 0) ? 0 : (random >> 8) % (max_bytes + 1);
    default:
        return (random >> 8) % ((max_bytes >> (random % 12)) + 1);
    }
}

void a2a_demand(a2a_kind_t kind, int size, uint64_t max_bytes, uint64_t seed, uint64_t *demand)
{
    for (int source = 0; source < size; source++) {
        for (int destination = 0; destination < size; destination++) {
            uint64_t random = mix(seed * 1000003 + (uint64_t)(source * size + destination) + 1);

            demand[source * size + destination] = cell(kind, size, source, destination, max_bytes, random);
        }
    }
}

void a2a_init(a2a_t *a2a, int rank, int size)
{
    memset(a2a, 0, sizeof(*a2a));
    a2a->rank         = rank;
    a2a->size         = size;
    a2a->send_bytes   = calloc(4 * (size_t)size, sizeof(uint64_t));
    a2a->send_offsets = a2a->send_bytes + size;
    a2a->recv_bytes   = a2a->send_offsets + size;
    a2a->recv_offsets = a2a->recv_bytes + size;
}

void a2a_end(a2a_t *a2a)
{
    free(a2a->send_bytes);
    free(a2a->send);
    free(a2a->recv);
}

/*
 * Bytes repeat with the lowest nine bits of their key, which differs from block to block: they are copied and compared in
 * blocks, for most of the time of many tests goes here.
 */
#define BLOCK 256u

static const unsigned char *block_of(uint64_t key, uint64_t block)
{
    static unsigned char blocks[512][BLOCK];
    static int are_made;

    if (!are_made) {
        for (unsigned start = 0; start < 512; start++) {
            for (unsigned i = 0; i < BLOCK; i++) {
                blocks[start][i] = (unsigned char)((start + i * 167) >> 1);
            }
        }
        are_made = 1;
    }
    return blocks[(key + block * 59) % 512];
}

static uint64_t block_bytes(uint64_t bytes, uint64_t block)
{
    return (bytes - block * BLOCK < BLOCK) ? bytes - block * BLOCK : BLOCK;
}

static uint64_t key_of(uint64_t round, int source, int destination)
{
    return mix(round * 4099 + (uint64_t)(source * 64 + destination) + 17) >> 8;
}

/* Places the messages, last rank first; the room that they take. */
static uint64_t lay_out(const uint64_t *bytes, uint64_t *offsets, int size)
{
    uint64_t at = GUARD_BYTES;

    for (int rank = size - 1; rank >= 0; rank--) {
        offsets[rank] = at;
        at += bytes[rank] + GUARD_BYTES;
    }
    return at;
}

void a2a_fill(a2a_t *a2a, const uint64_t *demand, uint64_t round)
{
    a2a->round = round;
    for (int rank = 0; rank < a2a->size; rank++) {
        a2a->send_bytes[rank] = demand[a2a->rank * a2a->size + rank];
        a2a->recv_bytes[rank] = demand[rank * a2a->size + a2a->rank];
    }
    a2a->send_room = lay_out(a2a->send_bytes, a2a->send_offsets, a2a->size);
    a2a->recv_room = lay_out(a2a->recv_bytes, a2a->recv_offsets, a2a->size);
    a2a->send      = realloc(a2a->send, a2a->send_room);
    a2a->recv      = realloc(a2a->recv, a2a->recv_room);
    memset(a2a->send, GUARD, a2a->send_room);
    memset(a2a->recv, GUARD, a2a->recv_room);
    for (int rank = 0; rank < a2a->size; rank++) {
        uint64_t key = key_of(round, a2a->rank, rank);

        for (uint64_t block = 0; block * BLOCK < a2a->send_bytes[rank]; block++) {
            memcpy(a2a->send + a2a->send_offsets[rank] + block * BLOCK, block_of(key, block),
                   block_bytes(a2a->send_bytes[rank], block));
        }
    }
    a2a->call = (mpath_call_t){.flags        = a2a->flags,
                               .send_bytes   = a2a->send_bytes,
                               .send_offsets = a2a->send_offsets,
                               .send_buffer  = a2a->send,
                               .recv_bytes   = a2a->recv_bytes,
                               .recv_offsets = a2a->recv_offsets,
                               .recv_buffer  = a2a->recv};
}

static int check_guard(const a2a_t *a2a, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        if ((unsigned char)a2a->recv[i] != GUARD) {
            fprintf(stderr, "round %llu: rank %d: byte %llu between two messages was overwritten\n",
                    (unsigned long long)a2a->round, a2a->rank, (unsigned long long)i);
            return 1;
        }
    }
    return 0;
}

static int check_message(const a2a_t *a2a, int source)
{
    uint64_t key = key_of(a2a->round, source, a2a->rank), bytes = a2a->recv_bytes[source], at = 0;

    for (uint64_t block = 0; block * BLOCK < bytes; block++) {
        const unsigned char *want = block_of(key, block);
        const unsigned char *got  = (unsigned char *)a2a->recv + a2a->recv_offsets[source] + block * BLOCK;

        if (memcmp(got, want, block_bytes(bytes, block)) != 0) {
            while (got[at] == want[at]) {
                at++;
            }
            fprintf(stderr, "round %llu: rank %d: byte %llu of %llu from rank %d is %02x instead of %02x\n",
                    (unsigned long long)a2a->round, a2a->rank, (unsigned long long)(block * BLOCK + at),
                    (unsigned long long)bytes, source, got[at], want[at]);
            return 1;
        }
    }
    return 0;
}

int a2a_check(const a2a_t *a2a)
{
    uint64_t end = 0;

    for (int rank = a2a->size - 1; rank >= 0; rank--) {
        if (check_guard(a2a, end, a2a->recv_offsets[rank]) || check_message(a2a, rank)) {
            return 1;
        }
        end = a2a->recv_offsets[rank] + a2a->recv_bytes[rank];
    }
    return check_guard(a2a, end, a2a->recv_room);
}

void a2a_spoil(a2a_t *a2a)
{
    memset(a2a->send, SPOILED, a2a->send_room);
}
