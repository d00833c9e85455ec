/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory runs out on one rank, for each of its allocations in turn, from the set-up of a team to its end: no rank hangs, none touches
 * what is not there or forgets what it has (by the sanitizers), and who has no error has the right data. tests/mpi/no_memory does so in
 * a job, with rails; here nothing goes over these: UCX may abort a process whose peer ends while they connect.
 */
#include "coll/alltoallv.h"
#include "coll/reduction.h"
#include "unit/ranks.h"
#include "util/log.h"
#include "util/reserve.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define RANKS 4
#define PAIR_BYTES 20000
#define ELEMENTS 30000
#define PLANE_BYTES 64 /* messages up to this do not fail: those of a verdict do not */
#define MANY 100000
#define MOST 2000 /* allocations of a rank; fewer are made */

/* Which allocation of this process from now on fails, 0: none, and how many there were. Those of the control plane do not count. */
static int armed;
static atomic_int num_made;
static _Thread_local int is_plane;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__real_mpath_reserve(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_mpath_reserve(size_t bytes);

static int fails(void)
{
    if (armed == 0 || is_plane || atomic_fetch_add(&num_made, 1) + 1 != armed) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return fails() ? NULL : __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

void *__wrap_mpath_reserve(size_t bytes)
{
    return fails() ? NULL : __real_mpath_reserve(bytes);
}

/* The control plane of the communicator, which is the test's. Its messages may fail, too: each counts as an allocation. */
static mpath_oob_t plane;

static mpath_status_t plane_isend(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request)
{
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    if (bytes <= PLANE_BYTES || !fails()) {
        is_plane = 1;
        status   = plane.isend(context, to, data, bytes, request);
        is_plane = 0;
    }
    return status;
}

static mpath_status_t plane_irecv(void *context, int from, void *data, size_t bytes, mpath_oob_request_t *request)
{
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    if (bytes <= PLANE_BYTES || !fails()) {
        is_plane = 1;
        status   = plane.irecv(context, from, data, bytes, request);
        is_plane = 0;
    }
    return status;
}

static mpath_status_t plane_test(void *context, mpath_oob_request_t *request, size_t *bytes_p)
{
    mpath_status_t status;

    is_plane = 1;
    status   = plane.test(context, request, bytes_p);
    is_plane = 0;
    return status;
}

static void plane_progress(void *context)
{
    is_plane = 1;
    plane.progress(context);
    is_plane = 0;
}

static void plane_open(ranks_self_t *self, int channel, mpath_oob_t *oob_p)
{
    is_plane = 1;
    ranks_oob(self, channel, NULL, RANKS, &plane);
    is_plane        = 0;
    *oob_p          = plane;
    oob_p->isend    = plane_isend;
    oob_p->irecv    = plane_irecv;
    oob_p->test     = plane_test;
    oob_p->progress = plane_progress;
}

/* Of all ranks. */
typedef struct job {
    ranks_setup_t setup;
    atomic_int made, errors; /* of the last round's victim; rounds in which it had an error */
} job_t;

typedef struct buffers {
    uint64_t bytes[RANKS], offsets[RANKS];
    unsigned char send[RANKS * PAIR_BYTES], receive[RANKS * PAIR_BYTES];
    uint32_t in[ELEMENTS], out[ELEMENTS];
} buffers_t;

static mpath_status_t exchange(buffers_t *b, mpath_coll_t *coll, int rank, uint64_t pair_bytes)
{
    mpath_call_t call = {.send_bytes   = b->bytes,
                         .send_offsets = b->offsets,
                         .send_buffer  = b->send,
                         .recv_bytes   = b->bytes,
                         .recv_offsets = b->offsets,
                         .recv_buffer  = b->receive};
    mpath_status_t status;

    for (int peer = 0; peer < RANKS; peer++) {
        b->bytes[peer]   = pair_bytes;
        b->offsets[peer] = (uint64_t)peer * pair_bytes;
    }
    memset(b->send, rank + 1, sizeof(b->send));
    memset(b->receive, 0, sizeof(b->receive));
    status = mpath_alltoallv(coll, &call);
    for (uint64_t i = 0; status == MPATH_OK && i < RANKS * pair_bytes; i++) {
        ranks_check(b->receive[i] == i / pair_bytes + 1);
    }
    return status;
}

static void add(void *argument, const void *in, void *inout, uint64_t elements)
{
    const uint32_t *from = in;
    uint32_t *to         = inout;

    (void)argument;
    for (uint64_t i = 0; i < elements; i++) {
        to[i] += from[i];
    }
}

static mpath_status_t sum(buffers_t *b, mpath_symmetric_t *symmetric, int rank, uint32_t elements)
{
    mpath_combination_t combination = {.element_bytes = sizeof(uint32_t), .reduce = add};
    mpath_status_t status;

    for (uint32_t i = 0; i < elements; i++) {
        b->in[i] = (uint32_t)rank + i;
    }
    status = mpath_allreduce(symmetric, b->in, b->out, elements, &combination, 0);
    for (uint32_t i = 0; status == MPATH_OK && i < elements; i++) {
        ranks_check(b->out[i] == RANKS * i + RANKS * (RANKS - 1) / 2);
    }
    return status;
}

/* Declined calls are the previous function's, which is not here. */
static int goes_on(mpath_status_t status)
{
    return status == MPATH_OK || status == MPATH_DECLINED;
}

/* One communicator, as the component makes and uses it, to its end; whether this rank has had an error. */
static int use(ranks_self_t *self, mpath_context_t *context, buffers_t *b, int channel, int reduces_first, int is_short)
{
    mpath_symmetric_t *symmetric = NULL;
    mpath_coll_t *coll           = NULL;
    mpath_team_t *team           = NULL;
    mpath_status_t status;
    uint32_t elements = is_short ? 10 : ELEMENTS;
    mpath_oob_t oob, other;

    plane_open(self, channel, &oob);
    is_plane = 1;
    ranks_oob(self, channel + MANY, NULL, RANKS, &other); /* the team keeps the first one to itself */
    is_plane = 0;
    status   = mpath_team_create(context, &oob, &team);
    if (status == MPATH_OK) {
        status   = mpath_coll_create(team, &coll);
        status   = status == MPATH_OK ? mpath_symmetric_create(team, coll, &symmetric) : status;
        is_plane = 1;
        status   = mpath_exchange_agree(&other, (mpath_patience_t){.limit_s = 60}, status);
        is_plane = 0;
    }
    if (status == MPATH_OK) {
        status = reduces_first ? sum(b, symmetric, self->rank, elements) : status;
        status = goes_on(status) ? exchange(b, coll, self->rank, is_short ? 200 : PAIR_BYTES) : status;
        status = goes_on(status) ? exchange(b, coll, self->rank, 100) : status;
        status = goes_on(status) && !reduces_first ? sum(b, symmetric, self->rank, elements) : status;
    }
    mpath_symmetric_destroy(symmetric);
    mpath_coll_destroy(coll);
    if (team != NULL) {
        mpath_team_destroy(team);
    }
    return !goes_on(status);
}

static int body(ranks_self_t *self, void *argument)
{
    buffers_t *b  = __real_calloc(1, sizeof(*b));
    job_t *shared = argument;
    mpath_settings_t settings;
    int channel = 1;

    ranks_drop_log();
    mpath_settings_init(&settings);
    settings.gate = MPATH_GATE_ALWAYS;
    for (int victim = 0; victim < RANKS; victim += RANKS - 1) {
        for (int n = 1; n <= MOST; n++) {
            mpath_context_t *context = ranks_context(self, &settings);
            int had_error;

            atomic_store(&num_made, 0);
            armed     = self->rank == victim ? n : 0;
            had_error = use(self, context, b, channel++, n % 2, shared->setup.nodes > 1);
            armed     = 0;
            if (self->rank == victim) {
                atomic_store(&shared->made, atomic_load(&num_made));
                atomic_fetch_add(&shared->errors, had_error);
            }
            ranks_barrier(self);
            mpath_context_destroy(context);
            if (atomic_load(&shared->made) < n) {
                ranks_check(!had_error); /* memory was enough */
                break;
            }
            ranks_check(n < MOST);
        }
        ranks_barrier(self);
    }
    free(b);
    return 0;
}

static void check(int nodes)
{
    job_t *job = mmap(NULL, sizeof(*job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(job != MAP_FAILED);
    job->setup = (ranks_setup_t){.size = RANKS, .nodes = nodes, .nics = 2};
    assert_int_equal(ranks_run(&job->setup, body, job), 0);
    assert_true(atomic_load(&job->made) > 0 && atomic_load(&job->errors) > 0);
    print_message("%d allocations, %d errors\n", atomic_load(&job->made), atomic_load(&job->errors));
    munmap(job, sizeof(*job));
}

static void test_one_node(void **state)
{
    (void)state;
    check(1);
}

static void test_two_nodes(void **state)
{
    (void)state;
    check(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_node), cmocka_unit_test(test_two_nodes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
