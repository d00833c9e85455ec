/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of the lane "staged" by streams: ranks of one process with device memory. */
#ifndef MPATH_TESTS_UNIT_STAGED_STREAMS_H
#define MPATH_TESTS_UNIT_STAGED_STREAMS_H

#include "staged_ranks.h"
#include "util/time.h"

#define DEADLINE_NS (120 * MPATH_NS_PER_S)
#define MARGIN 4096u /* on both sides of what is received */

extern mpath_staged_side_t send_of[RANKS_MAX], receive_of[RANKS_MAX];

/* gpu_group_setup(), on a driver that has queues for all streams: what is held holds up nothing else. */
int streams_group_setup(void **state);

/* Ranks with a GPU each, as far as there are some; `streams` of them in each direction. */
void ranks_open(int count, uint64_t bytes, int streams);
void ranks_close(void);

/* Device memory on both sides, until memory_free(). */
void message(int from, int to, uint64_t bytes);
void memory_free(void);

/* At the receiver: 0, or the number of the first wrong one of so many bytes plus 1. */
uint64_t wrong_byte(int from, int to, uint64_t bytes);
/* Until they are right, while nobody looks. */
void await(int from, int to, uint64_t bytes);
void check_margins(int from, int to);
void check_message(int from, int to);
void check_all(void);

/* A call of all ranks. */
void start(uint64_t call);
int look(int rank);

int is_idle(const mpath_staged_side_t *side);

/*
 * Streams of a side come to nothing from the first to the second. Ends the test where the driver is so short of queues
 * that others do not, either.
 */
void gate_close(const mpath_staged_side_t *side);
void gate_open(void);
void gate_free(void);

#endif
