/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests: a UCX that knows CUDA memory. Functions of UCP in front of the real ones say so, and give the real ones
 * the host memory behind the device memory of the fake driver. What a UCX with CUDA would not forgive ends the process
 * with a line "fake UCX: ...": memory of a GPU that is not registered, or not since its context has ended, not told
 * to be CUDA memory, sent eagerly, or freed while registered.
 *
 * With the driver of a real GPU it leaves all to the UCX at hand, and only counts.
 */
#ifndef MPATH_TESTS_UNIT_FAKE_UCX_H
#define MPATH_TESTS_UNIT_FAKE_UCX_H

#include <stddef.h>
#include <stdint.h>

/* What goes wrong. */
typedef enum fake_ucx_fault {
    FAKE_UCX_SOUND,
    FAKE_UCX_NO_CUDA,  /* it is the UCX at hand */
    FAKE_UCX_REFUSES,  /* memory of a GPU is not registered */
    FAKE_UCX_FAILS,    /* messages from memory of a GPU end in an error */
    FAKE_UCX_CONFUSES, /* they bring other bytes */
    FAKE_UCX_LOSES     /* they never arrive */
} fake_ucx_fault_t;

typedef struct fake_ucx {
    fake_ucx_fault_t fault;
    uint64_t sent_bytes;     /* from memory of GPUs */
    unsigned regions;        /* registered now */
    size_t num_eps, num_ppn; /* that the last context was told to expect */
} fake_ucx_t;

extern fake_ucx_t fake_ucx;

/* After gpu_application_starts(): the driver is the fake one. */
int fake_ucx_has_fake_gpus(void);
/* Writes of NICs that were flushed; 0 with a real driver, which counts none. */
unsigned fake_ucx_flushes(void);

/* The application has ended the context in which everything that is registered was allocated. */
void fake_ucx_context_ends(void);
/* Whether these bytes are registered. A real UCX does not tell: 1. */
int fake_ucx_knows(uint64_t address, uint64_t bytes);

#endif
