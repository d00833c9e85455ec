/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of agreement: calls whose matrix and contents every rank knows from the number of the call. */
#ifndef MPATH_TESTS_UNIT_AGREE_SUPPORT_H
#define MPATH_TESTS_UNIT_AGREE_SUPPORT_H

#include "team/agree.h"
#include "ranks.h"

#define MAX_PAIR 6000 /* more than small_bytes: some pairs stay outside */

typedef struct job {
    int calls;
    uint64_t small_bytes;
    uint64_t leader_bytes; /* 0: the default */
    int affine;            /* ranks send what is too much for the leaders by themselves */
} job_t;

typedef struct buffers {
    mpath_call_t call;
    uint64_t *send_bytes, *send_offsets, *recv_bytes, *recv_offsets;
    unsigned char *send, *recv;
    size_t recv_room;
} buffers_t;

uint64_t hash(uint64_t a, uint64_t b, uint64_t c);

void buffers_init(buffers_t *b, int size);
void buffers_free(buffers_t *b);

/* A member of a team that makes the calls of its job, a job_t. */
int random_body(ranks_self_t *self, void *argument);

#endif
