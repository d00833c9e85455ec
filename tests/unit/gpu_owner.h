/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of imports: a process that owns allocations. It is the test's program started again with the word "owner",
 * which does what it is told through a pipe.
 */
#ifndef MPATH_TESTS_UNIT_GPU_OWNER_H
#define MPATH_TESTS_UNIT_GPU_OWNER_H

#include "gpu_kinds.h"
#include "device/ipc_import.h"

#include <sys/types.h>

#define MIB (UINT64_C(1) << 20)
#define DEADLINE_NS (UINT64_C(60) * 1000000000)
#define SLOTS 6

typedef struct order {
    char what; /* 'a'llocate and fill, 'f'ree, 'c'heck the pattern; export a 'p'iece, 'r'emap and fill it before,
                  'j'oin it with the next one and fill all */
    mpath_memory_kind_t kind;
    int device, blocks;
    uint64_t bytes, seed;
    unsigned slot; /* one of the owner's allocations */
} order_t;

typedef struct answer {
    mpath_export_t export;
    uint64_t address, bytes, wrong;
} answer_t;

typedef struct owner {
    pid_t pid;
    int to, from;
} owner_t;

/* What the program does as an owner; its exit status. */
int owner_main(void);

/* `visible`: CUDA_VISIBLE_DEVICES of the owner; NULL: as here. */
owner_t owner_start_seeing(const char *visible);
owner_t owner_start(void);
answer_t owner_tell(const owner_t *owner, order_t order);
/* It ends by itself, without an error. */
void owner_stop(const owner_t *owner);
void owner_kill(const owner_t *owner);

mpath_import_counts_t import_counts(void);
mpath_gpu_t *gpu_of(int device);
/* Copies through a stream of `gpu`, as collectives do. */
void gpu_copy(mpath_gpu_t *gpu, uint64_t to, uint64_t from, size_t bytes);

/*
 * Of the group of tests, whose state is an owner for all of them: a process more takes seconds where a tool looks at
 * it. A test frees what it has had allocated, and forgets its imports.
 */
int owner_setup(void **state);
int owner_teardown(void **state);

#endif
