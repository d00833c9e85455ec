/* SPDX-License-Identifier: BSD-3-Clause */
/* See random.h: who sends how much to whom, from and to which places. */
#include "mpi/random.h"

#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 96

uint64_t random_mix(uint64_t left, uint64_t right)
{
    uint64_t value = (left ^ (right * 0xd6e8feb86659fd93ull)) * 0x9e3779b97f4a7c15ull + right;

    value = (value ^ (value >> 32)) * 0xbf58476d1ce4e5b9ull;
    return value ^ (value >> 29);
}

int random_gathers(const call_t *call)
{
    return call->function == ALLGATHER || call->function == ALLGATHERV;
}

int random_reduces(const call_t *call)
{
    return call->function >= ALLREDUCE;
}

/* -- sizes -- */

typedef enum pattern {
    EQUAL,
    ANY,
    SPARSE,
    HOT_RECEIVER,
    HOT_SENDER,
    ONE_PAIR,
    PERMUTATION,
    SKEWED,
    AROUND,
    NOBODY,
    TO_ITSELF,
    PATTERNS
} pattern_t;

/* Of rank `from`, or of a pair; `most` is the largest of the call, `special` and `other` are two ranks. */
static int choose_units(pattern_t pattern, int most, int from, int to, int special, int other, sequence_t *sequence)
{
    switch (pattern) {
    case EQUAL:
        return most;
    case ANY:
        return (int)sequence_below(sequence, (uint32_t)most + 1);
    case SPARSE:
        return sequence_below(sequence, 4) == 0 ? most : 0;
    case HOT_RECEIVER:
        return to == special ? most : most / 16;
    case HOT_SENDER:
        return from == special ? most : most / 16;
    case ONE_PAIR:
        return from == special && (to == other || to == special) ? most : 0;
    case PERMUTATION:
        return (from + 1 + special) == to || from + to == other ? most : 0;
    case SKEWED:
        return most >> sequence_below(sequence, 16);
    case AROUND:
        return most + (int)sequence_below(sequence, 5) - (most > 1 ? 2 : 0);
    case TO_ITSELF:
        return from == to ? most : 0;
    default:
        return 0;
    }
}

void random_shape_make(call_t *call, size_t max_bytes)
{
    static const size_t near[] = {1, 8, 96, 512, 1024, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576};
    sequence_t sequence        = {random_mix(call->shape, 1)};
    int size = call->size, special = (int)sequence_below(&sequence, (uint32_t)size), most;
    int other         = (int)sequence_below(&sequence, (uint32_t)size);
    int equal         = call->function == ALLTOALL || call->function == ALLGATHER;
    pattern_t pattern = equal ? EQUAL : (pattern_t)sequence_below(&sequence, PATTERNS);
    size_t bytes      = near[sequence_below(&sequence, sizeof(near) / sizeof(near[0]))];

    if (equal && sequence_below(&sequence, 12) == 0) {
        pattern = NOBODY;
    }
    bytes = (bytes * (size_t)size > max_bytes) ? max_bytes / (size_t)size : bytes;
    bytes /= (size_t)random_type(call->family, 0)->bytes * (size_t)call->unit;
    most        = bytes > 0 ? (int)bytes : 1;
    call->units = malloc((size_t)size * (size_t)size * sizeof(int));
    for (int from = 0; from < size; from++) {
        for (int to = 0; to < size; to++) {
            int units = choose_units(pattern, most, from, to, special, other, &sequence);

            if (random_gathers(call) && to > 0) {
                units = call->units[from * size]; /* all get the same */
            }
            if (call->in_place && to < from && !random_gathers(call)) {
                units = call->units[to * size + from]; /* both ways the same */
            }
            call->units[from * size + to] = units;
        }
    }
}

/* -- places -- */

/* Basic elements of the block `peer` of this side of a rank. */
static int elements_of(const call_t *call, int rank, int receive, int peer)
{
    return call->unit * (receive ? call->units[peer * call->size + rank] : call->units[rank * call->size + peer]);
}

/* elements: basic ones in an element; 0: any number. */
static const type_t *choose_type(const call_t *call, int receive, int elements, sequence_t *sequence)
{
    const type_t *type;

    if (call->unit == 1 && call->family < FAMILIES - 1) {
        return random_type(call->family, 0);
    }
    do {
        type = random_type(call->family, (int)sequence_below(sequence, receive ? FAMILY_RECEIVE_TYPES : FAMILY_TYPES));
    } while (elements > 0 && type->elements != elements);
    return type;
}

/*
 * Of one side of a rank. In place the types of a pair have to be equal; and Open MPI's own MPI_Allgatherv takes the size
 * of a rank's type for that of all, in choosing an algorithm, so that ranks wait for each other where sizes differ.
 */
static const type_t *choose_side_type(const call_t *call, int receive, sequence_t *sequence)
{
    sequence_t all     = {random_mix(call->shape, 999)};
    const type_t *same = choose_type(call, 1, 0, &all);

    if (call->in_place && !random_gathers(call)) {
        return same;
    }
    return choose_type(call, receive, call->function == ALLGATHERV ? same->elements : 0, sequence);
}

/* Where the blocks lie, one behind the other in an order of their own and with gaps; or, what is sent, anywhere. */
static void place(const call_t *call, side_t *side, int receive, sequence_t *sequence)
{
    int order[MAX_RANKS], descending = sequence_below(sequence, 4) == 0, shuffled = sequence_below(sequence, 3) == 0;
    int overlapping = !receive && sequence_below(sequence, 5) == 0, gap = (int)sequence_below(sequence, 3), swap, j;
    MPI_Aint next = 0;

    for (int i = 0; i < side->num_blocks; i++) {
        order[i] = descending ? side->num_blocks - 1 - i : i;
    }
    for (int i = side->num_blocks - 1; i > 0 && shuffled; i--) {
        j        = (int)sequence_below(sequence, (uint32_t)i + 1);
        swap     = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    if (sequence_below(sequence, 4) == 0) {
        next = -(MPI_Aint)sequence_below(sequence, 50); /* the buffer begins before the pointer that MPI gets */
    }
    for (int i = 0; i < side->num_blocks; i++) {
        block_t *block = &side->blocks[order[i]];

        if (overlapping) {
            block->displacement = (int)sequence_below(sequence, 9);
        } else if (call->function ==
                   ALLTOALLW) { /* types of different extents: `next` is in bytes, 64 of which are enough between two */
            MPI_Aint extent     = block->type->extent > 0 ? block->type->extent : 1;
            MPI_Aint first      = next - block->type->low + 64;
            block->displacement = (int)((first + (first > 0 ? extent - 1 : 0)) / extent);
            next = block->displacement * extent + (block->count - 1) * block->type->extent + block->type->high;
        } else {
            block->displacement = (int)next;
            next += block->count + (gap > 0 ? (MPI_Aint)sequence_below(sequence, (uint32_t)gap * 4) : 0);
        }
    }
}

/* The functions without displacements. */
static void place_in_order(side_t *side)
{
    for (int i = 0; i < side->num_blocks; i++) {
        side->blocks[i].displacement = i * side->blocks[i].count;
    }
}

static void measure(side_t *side)
{
    MPI_Aint low = 0, high = 0;

    for (int i = 0; i < side->num_blocks; i++) {
        const block_t *block = &side->blocks[i];
        MPI_Aint first       = block->displacement * block->type->extent;
        MPI_Aint last        = first + (block->count - 1) * block->type->extent;

        if (block->count > 0) {
            low  = (first + block->type->low < low) ? first + block->type->low : low;
            high = (last + block->type->high > high) ? last + block->type->high : high;
        }
    }
    side->origin = (size_t)(GUARD_BYTES - low);
    side->bytes  = side->origin + (size_t)high + GUARD_BYTES;
}

void random_side_make(const call_t *call, int rank, int receive, side_t *side)
{
    sequence_t sequence;
    const type_t *type;

    receive          = receive || call->in_place;
    sequence.state   = random_mix(call->shape, 1000 + 2 * (uint64_t)rank + (uint64_t)receive);
    type             = choose_side_type(call, receive, &sequence);
    side->num_blocks = (!receive && random_gathers(call)) ? 1 : call->size;
    for (int i = 0; i < side->num_blocks; i++) {
        if (call->function == ALLTOALLW && !call->in_place) {
            type = choose_type(call, receive, 0, &sequence);
        }
        side->blocks[i] = (block_t){.type = type, .count = elements_of(call, rank, receive, i) / type->elements};
    }
    if (call->function == ALLTOALL || call->function == ALLGATHER || side->num_blocks == 1) {
        place_in_order(side);
    } else {
        place(call, side, receive, &sequence);
    }
    measure(side);
}

/* -- contents -- */

static uint64_t word_of(uint64_t key, size_t position)
{
    uint64_t word = (key + position / 8) * 0x9e3779b97f4a7c15ull;

    return word ^ (word >> 32);
}

void random_fill(const call_t *call, int rank, int receive, size_t from, size_t bytes, unsigned char *to)
{
    uint64_t key = random_mix(call->key, 2 * (uint64_t)rank + (uint64_t)(receive != 0)), word;
    size_t i     = 0;

    for (; i < bytes && (from + i) % 8 != 0; i++) {
        to[i] = (unsigned char)(word_of(key, from + i) >> (8 * ((from + i) % 8)));
    }
    for (; i + 8 <= bytes; i += 8) {
        word = word_of(key, from + i);
        memcpy(to + i, &word, 8);
    }
    for (; i < bytes; i++) {
        to[i] = (unsigned char)(word_of(key, from + i) >> (8 * ((from + i) % 8)));
    }
}

/* What `source` sends to this rank, as a stream of bytes. */
static unsigned char *stream_of(const call_t *call, int source)
{
    unsigned char *stream, *piece;
    const block_t *block;
    MPI_Aint start, end;
    side_t side;

    random_side_make(call, source, 0, &side);
    block  = &side.blocks[side.num_blocks == 1 ? 0 : (random_gathers(call) ? source : call->rank)];
    start  = (MPI_Aint)side.origin + block->displacement * block->type->extent + block->type->low;
    end    = start + (block->count - 1) * block->type->extent + block->type->high - block->type->low;
    piece  = malloc((size_t)(end - start));
    stream = malloc((size_t)block->count * (size_t)block->type->bytes);
    random_fill(call, source, call->in_place, (size_t)start, (size_t)(end - start), piece);
    random_type_pack(block->type, block->count, piece - block->type->low, stream);
    free(piece);
    return stream;
}

void random_expect(const call_t *call, unsigned char *memory)
{
    for (int source = 0; source < call->size; source++) {
        const block_t *block = &call->receive.blocks[source];
        unsigned char *stream;

        if (block->count > 0) {
            stream = stream_of(call, source);
            random_type_unpack(block->type, block->count, stream,
                               memory + (MPI_Aint)call->receive.origin + block->displacement * block->type->extent);
            free(stream);
        }
    }
}
