/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More than 2 GiB in one call: counts stay below 2^31, but offsets in bytes and sums do not. Ranks 1 and 2 have 1.1 GiB
 * each: rank 0 receives both in an MPI_Alltoallv; in an MPI_Allgatherv all ranks do. An MPI_Allreduce and an
 * MPI_Reduce_scatter are of 2.2 GiB. Large element types keep counts and displacements small. Buffers are of the kind
 * that MPATH_TEST_MEMORY names; on the host, where it takes most time, alltoallv alone runs unless others are named.
 * Needs 3 to 16 ranks, and about 6 GiB of memory for alltoallv, 7 for each rank for the others.
 *
 * usage: large [--mib MIB] [CASE...]: MIB instead of 1125 for a short trial, of which no limit is met
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ELEMENT_BYTES 4096
#define WORDS_PER_MIB (UINT64_C(1) << 17)
#define BLOCK_WORDS WORDS_PER_MIB /* through the host at a time */
#define RANKS_MOST 16

static int rank, size;
static uint64_t words; /* of a half: what each of two ranks has for others */

static uint64_t word_at(int source, uint64_t index)
{
    return ((uint64_t)(unsigned)source + index * 4) * 0x9e3779b97f4a7c15ull;
}

/* What all ranks have together at an index, where each has word_at() of its rank. */
static uint64_t sum_at(uint64_t index)
{
    uint64_t sum = 0;

    for (int source = 0; source < size; source++) {
        sum += word_at(source, index);
    }
    return sum;
}

static uint64_t *new_block(void)
{
    uint64_t *block = malloc(BLOCK_WORDS * sizeof(*block));

    if (block == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return block;
}

static char *new_words(uint64_t count, unsigned seed)
{
    return memory_new(count * sizeof(uint64_t), seed);
}

/* For what is to come. */
static char *new_empty_words(uint64_t count, unsigned seed)
{
    char *memory = new_words(count, seed);

    memory_fill(memory, 0, count * sizeof(uint64_t));
    return memory;
}

static void put_words(char *memory, int source, uint64_t count)
{
    uint64_t *block = new_block();

    for (uint64_t first = 0; first < count; first += BLOCK_WORDS) {
        for (uint64_t i = 0; i < BLOCK_WORDS; i++) {
            block[i] = word_at(source, first + i);
        }
        memory_put(memory + first * sizeof(*block), block, BLOCK_WORDS * sizeof(*block));
    }
    free(block);
}

/* Wrong ones of `count` words that begin with number `start`: those of `source`, or sums where that is -1. */
static long wrong_words(const char *memory, int source, uint64_t start, uint64_t count)
{
    uint64_t *block = new_block();
    long wrong      = 0;

    for (uint64_t first = 0; first < count; first += BLOCK_WORDS) {
        memory_get(block, memory + first * sizeof(*block), BLOCK_WORDS * sizeof(*block));
        for (uint64_t i = 0; i < BLOCK_WORDS; i++) {
            uint64_t index = start + first + i;

            wrong += block[i] != ((source < 0) ? sum_at(index) : word_at(source, index));
        }
    }
    free(block);
    return wrong;
}

static long case_alltoallv(void)
{
    int counts[2][RANKS_MOST] = {{0}}, offsets[2][RANKS_MOST] = {{0}}, is_source = rank == 1 || rank == 2;
    int elements = (int)(words * sizeof(uint64_t) / ELEMENT_BYTES);
    char *send = new_words(is_source ? words : 1, 1), *receive = new_empty_words(rank == 0 ? 2 * words : 1, 2);
    MPI_Datatype element;
    long errors;

    MPI_Type_contiguous(ELEMENT_BYTES, MPI_BYTE, &element);
    MPI_Type_commit(&element);
    if (is_source) {
        counts[0][0] = elements;
        put_words(send, rank, words);
    }
    if (rank == 0) {
        counts[1][1]  = elements;
        counts[1][2]  = elements;
        offsets[1][2] = elements;
    }
    errors = MPI_Alltoallv(send, counts[0], offsets[0], element, receive, counts[1], offsets[1], element,
                           MPI_COMM_WORLD) != MPI_SUCCESS;
    for (int source = 1; rank == 0 && source <= 2; source++) {
        errors += wrong_words(receive + (uint64_t)(source - 1) * words * sizeof(uint64_t), source, 0, words);
    }
    memory_free(send);
    memory_free(receive);
    MPI_Type_free(&element);
    return errors;
}

static long case_allreduce(void)
{
    char *data = new_words(2 * words, 3);
    long errors;

    put_words(data, rank, 2 * words);
    errors = MPI_Allreduce(MPI_IN_PLACE, data, (int)(2 * words), MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
    errors += wrong_words(data, -1, 0, 2 * words);
    memory_free(data);
    return errors;
}

/* Ranks 1 and 2 get a half each, the others nothing. */
static long case_reduce_scatter(void)
{
    int counts[RANKS_MOST] = {0, (int)words, (int)words};
    char *send = new_words(2 * words, 4), *receive = new_empty_words(words, 5);
    long errors;

    put_words(send, rank, 2 * words);
    errors = MPI_Reduce_scatter(send, receive, counts, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
    if (counts[rank] > 0) {
        errors += wrong_words(receive, -1, (uint64_t)(rank - 1) * words, words);
    }
    memory_free(send);
    memory_free(receive);
    return errors;
}

static long case_allgather(void)
{
    int counts[RANKS_MOST] = {0, (int)words, (int)words}, offsets[RANKS_MOST] = {0, 0, (int)words};
    char *send = new_words(words, 6), *receive = new_empty_words(2 * words, 7);
    long errors;

    put_words(send, rank, words);
    errors = MPI_Allgatherv(send, counts[rank], MPI_UINT64_T, receive, counts, offsets, MPI_UINT64_T, MPI_COMM_WORLD) !=
             MPI_SUCCESS;
    for (int source = 1; source <= 2; source++) {
        errors += wrong_words(receive + (uint64_t)(source - 1) * words * sizeof(uint64_t), source, 0, words);
    }
    memory_free(send);
    memory_free(receive);
    return errors;
}

/* All ranks do the same. */
static int host_has_memory(void)
{
    int capacity = memory_is_special() || (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) >= 8e9;

    MPI_Bcast(&capacity, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return capacity;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        long (*run)(void);
    } cases[]    = {{"alltoallv", case_alltoallv},
                    {"allreduce", case_allreduce},
                    {"reduce_scatter", case_reduce_scatter},
                    {"allgather", case_allgather}};
    uint64_t mib = 1125;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 3 || size > RANKS_MOST) {
        fprintf(stderr, "large: needs 3 to 16 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (argc > 2 && strcmp(argv[1], "--mib") == 0) {
        mib = (uint64_t)atoi(argv[2]);
        argc -= 2;
        argv += 2;
    }
    words = mib * WORDS_PER_MIB;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if ((argc == 1) ? i > 0 && !memory_is_special() : !case_wanted(argc, argv, cases[i].name)) {
            continue;
        }
        if (host_has_memory()) {
            case_end(cases[i].name, cases[i].run());
        } else if (rank == 0) {
            printf("case skip %s: less than 8 GB of memory are free\n", cases[i].name);
        }
    }
    cases_print_calls();
    MPI_Finalize();
    return cases_failed() != 0;
}
