/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runtime at scale in one process: every rank is a fiber, the control plane and the rails are memory. What is under
 * test is the library as it is; only what is below it is replaced: the network (rails.c, control.c) and the operating
 * system's allocation (memory.c).
 */
#ifndef TESTS_SCALE_SCALE_H
#define TESTS_SCALE_SCALE_H

#include "team/exchange.h"

#include <stddef.h>
#include <stdint.h>

/* What a rank has caused, counted since the program began. */
typedef struct scale_counts {
    uint64_t control_bytes, control_messages; /* to ranks of other nodes */
    uint64_t rail_bytes, rail_messages;
    uint64_t cpu_ns, resumes; /* of its fiber */
    /* Of that, what stands for the work of NICs and of GPUs' engines: copies between nodes, and between memories of devices. */
    uint64_t message_cpu_ns;
    int64_t heap_bytes; /* that are in use now: allocated by the library on this rank's behalf */
} scale_counts_t;

typedef struct scale {
    int size, num_local, num_nodes, num_rails;
    int running; /* the rank whose fiber runs, or that is prepared; -1: none */
    scale_counts_t *counts;
    uint64_t segment_bytes; /* made by all ranks and not removed */
} scale_t;

extern scale_t scale;

static inline int scale_node(int rank)
{
    return rank / scale.num_local;
}

/* Of this thread. */
uint64_t scale_cpu_ns(void);
/* Counts what the running rank has done since scale_cpu_ns() said so as work of others, and what it takes to ask for both times. */
void scale_message_took(uint64_t began_ns);

/* control.c */
void scale_control_init(void);
void scale_control_oob(int *rank, mpath_oob_t *oob_p);

/* memory.c: allocations that are no part of what is measured. */
void *scale_allocate(size_t bytes); /* zeroed; ends the program when there is none */
void scale_free(void *memory);
/* What ranks have reserved (util/reserve.h): adds the pages that are there to by_rank, all that rank 0 has to *whole_p. */
void scale_reserved(int64_t *by_rank, uint64_t *whole_p);

#endif
