/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For unit tests: one rank's side of an alltoallv. Each byte of the data tells round, source, destination and position;
 * the messages lie in reverse order of the ranks with guard bytes between them, in both buffers.
 */
#ifndef MPATH_TESTS_UNIT_A2A_H
#define MPATH_TESTS_UNIT_A2A_H

#include "team/agree.h"

#include <stdint.h>

typedef enum a2a_kind {
    A2A_ZERO,
    A2A_DIAGONAL,
    A2A_ONE_PAIR, /* the first rank to the last */
    A2A_EVEN,
    A2A_HOT,    /* much to rank 0, little to the others */
    A2A_SPARSE, /* random, half of the pairs empty */
    A2A_MIXED   /* random sizes from a few bytes to the maximum */
} a2a_kind_t;

typedef struct a2a {
    int rank, size;
    mpath_call_t call;
    uint64_t *send_bytes, *send_offsets, *recv_bytes, *recv_offsets;
    char *send, *recv;
    uint64_t send_room, recv_room;
    uint64_t round;
    uint32_t flags; /* of the calls to come: MPATH_CALL_... */
} a2a_t;

/* demand[size * size]; sizes up to about max_bytes; the same for the same seed. */
void a2a_demand(a2a_kind_t kind, int size, uint64_t max_bytes, uint64_t seed, uint64_t *demand);

void a2a_init(a2a_t *a2a, int rank, int size);
void a2a_end(a2a_t *a2a);

/* Takes the demand and writes new data for `round`. */
void a2a_fill(a2a_t *a2a, const uint64_t *demand, uint64_t round);

/* 0 when the receive buffer holds exactly what it should; else says on stderr what not. */
int a2a_check(const a2a_t *a2a);

/* Overwrites the send buffer: whoever still reads it sends what no round has. */
void a2a_spoil(a2a_t *a2a);

#endif
