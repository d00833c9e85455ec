/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the MPI test programs share: named cases whose errors are summed over all ranks, the pattern of bytes, and a
 * general check of MPI_Alltoallv. Each case prints "case ok NAME" or "case bad NAME: ..." once, on rank 0.
 */
#ifndef MPATH_TESTS_MPI_CASES_H
#define MPATH_TESTS_MPI_CASES_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* Ends a case: `errors` is this rank's number; collective over MPI_COMM_WORLD. Returns the sum. */
long case_end(const char *name, long errors);
/* Cases that went wrong so far; the exit status of the program is nonzero unless it is 0. */
int cases_failed(void);
/* The command line names the cases to run; no name: all of them. */
int case_wanted(int argc, char **argv, const char *name);
/* Prints "calls mpath=N previous=M" from the component's counters (sums over ranks), collective. */
void cases_print_calls(void);
/* One of them, of this process; 0 where mpath is not loaded. */
unsigned long long cases_counter(const char *name);
/* Of one that has several values, up to `room`; how many, 0 where there is no such counter or it has more. */
int cases_counters(const char *name, unsigned long long *values, int capacity);

/* A reproducible sequence of numbers, the same on all ranks for the same seed. */
typedef struct sequence {
    uint64_t state;
} sequence_t;

/* Inline: it makes the data of most tests, byte by byte. */
static inline uint32_t sequence_next(sequence_t *sequence)
{
    uint64_t value = sequence->state += 0x9e3779b97f4a7c15ull;

    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)((value ^ (value >> 31)) >> 32);
}

/* 0 <= result < limit */
static inline uint32_t sequence_below(sequence_t *sequence, uint32_t limit)
{
    return (uint32_t)(((uint64_t)sequence_next(sequence) * limit) >> 32);
}

/* Order and distance of the pieces in a buffer. */
typedef enum placement {
    PLACE_ASCENDING,
    PLACE_DESCENDING, /* displacements fall with the rank */
    PLACE_SHUFFLED,
    PLACE_OVERLAPPING /* all at 0: send side only */
} placement_t;

/*
 * One exchange on `comm`. units[source * size + destination] is in units; a unit is `send_per_unit` elements of
 * send_type and `receive_per_unit` of receive_type, of the same signature. `in_place` uses receive_type on both sides
 * and needs a symmetric matrix.
 */
typedef struct exchange {
    MPI_Comm comm;
    const int *units;
    MPI_Datatype send_type, receive_type;
    int send_per_unit, receive_per_unit;
    placement_t send_placement, receive_placement;
    int gap; /* elements between pieces */
    int in_place;
    uint32_t round; /* makes contents differ */
} exchange_t;

/* An exchange of bytes, ascending, gap 3. */
void exchange_init(exchange_t *exchange, MPI_Comm comm, const int *units);
/*
 * Runs it and compares the whole receive buffer, gaps and guards included; the number of differing bytes (or 1 for an
 * MPI error).
 */
long exchange_run(const exchange_t *exchange);

#endif
