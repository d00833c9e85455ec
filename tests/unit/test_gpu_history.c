/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What calls on device memory of a node have shown, on the driver without a GPU: the next communicator begins with it, and
 * so does the next job, all ranks alike, whoever of them knows it; a job of other GPUs does not, nor one that shall not.
 */
#include "tune/share.h"
#include "tune/history.h"
#include "node/reduce.h"
#include "gpu_kinds.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define ELEMENTS 400000 /* of a vector, or a block */
#define CALLS 60        /* until a share is found and watched */
#define CLASS 20        /* of these sizes, with the least one below */
#define LEAST_BYTES (UINT64_C(1) << CLASS)

/* What the parent gets to know: bytes of rank 0 through the host in the last call, in the first one of a second communicator. */
typedef struct seen {
    uint64_t last_bytes, next_bytes;
} seen_t;

static char path[64];
static seen_t *seen;

typedef struct job {
    ranks_setup_t setup;
    int adapt; /* mpath_adapt_t */
    int gather;
    int first_gpu;
    int calls;
    int second;     /* a second communicator makes a call */
    uint64_t knows; /* to the last rank, of the machine below, as newer than the file; 0: nothing */
    uint64_t machine;
} job_t;

/* --- what is measured ----------------------------------------------------------------------------------------------- */

void __real_mpath_beside_note(mpath_beside_t *beside, uint64_t first_ns, uint64_t second_ns);
void __wrap_mpath_beside_note(mpath_beside_t *beside, uint64_t first_ns, uint64_t second_ns);
void __wrap_mpath_beside_note(mpath_beside_t *beside, uint64_t first_ns, uint64_t second_ns)
{
    uint64_t share = mpath_beside_share(beside);

    (void)first_ns;
    __real_mpath_beside_note(beside, (MPATH_TUNE_WHOLE - share) * 10, (second_ns > 0) ? share * 20 : 0);
}

/* --- calls ---------------------------------------------------------------------------------------------------------- */

typedef struct own {
    ranks_self_t *self;
    mpath_team_t *team;
    mpath_symmetric_gpu_t *gpu;
    gpu_memory_t send, recv;
    mpath_memory_t send_memory, recv_memory;
} own_t;

static void alloc(int device, uint64_t bytes, gpu_memory_t *memory, mpath_memory_t *kind)
{
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, bytes, 0, memory);
    ranks_check(mpath_memory_classify((void *)(uintptr_t)memory->address, bytes, kind) == MPATH_OK);
}

static void own_init(own_t *own, ranks_self_t *self, mpath_context_t *context, const mpath_oob_t *oob, const job_t *job)
{
    int device     = job->first_gpu + self->rank;
    uint64_t bytes = ELEMENTS * sizeof(float);

    own->self = self;
    ranks_check(mpath_team_create(context, oob, &own->team) == MPATH_OK);
    ranks_check(mpath_symmetric_gpu_create(own->team, &own->gpu) == MPATH_OK);
    alloc(device, bytes, &own->send, &own->send_memory);
    alloc(device, bytes * (uint64_t)(job->gather ? self->size : 1), &own->recv, &own->recv_memory);
}

static void own_end(own_t *own)
{
    mpath_symmetric_gpu_destroy(own->gpu);
    mpath_team_destroy(own->team);
    gpu_memory_free(&own->send);
    gpu_memory_free(&own->recv);
}

static void move(own_t *own, int gather)
{
    const mpath_reduce_how_t how            = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    const mpath_symmetric_buffers_t buffers = {.send        = (void *)(uintptr_t)own->send.address,
                                               .recv        = (void *)(uintptr_t)own->recv.address,
                                               .send_memory = &own->send_memory,
                                               .recv_memory = &own->recv_memory};
    uint64_t bytes[RANKS_MAX], offsets[RANKS_MAX];

    for (int rank = 0; rank < own->self->size; rank++) {
        bytes[rank]   = ELEMENTS * sizeof(float);
        offsets[rank] = (uint64_t)rank * ELEMENTS * sizeof(float);
    }
    if (gather) {
        ranks_check(mpath_allgather_gpu(own->gpu, &buffers, bytes, offsets) == MPATH_OK);
    } else {
        ranks_check(mpath_allreduce_gpu(own->gpu, &buffers, ELEMENTS, &how) == MPATH_OK);
    }
}

static float value(int rank, unsigned i)
{
    return (float)((i * 7 + (unsigned)rank * 13) % 101);
}

/* Element i of the result. */
static float expected(const own_t *own, int gather, unsigned i)
{
    float sum = 0;

    if (gather) {
        return value((int)(i / ELEMENTS), i % ELEMENTS);
    }
    for (int rank = 0; rank < own->self->size; rank++) {
        sum += value(rank, i);
    }
    return sum;
}

/* A call; returns the bytes of this rank that went through the host. */
static uint64_t call(own_t *own, int gather)
{
    static float host[ELEMENTS * RANKS_MAX];
    unsigned elements = ELEMENTS * (unsigned)(gather ? own->self->size : 1);
    mpath_coll_counters_t before, now;

    for (unsigned i = 0; i < ELEMENTS; i++) {
        host[i] = value(own->self->rank, i);
    }
    gpu_memory_write(own->send.address, host, ELEMENTS * sizeof(float));
    gpu_memory_fill(own->recv.address, 0xee, own->recv.bytes);
    mpath_symmetric_gpu_counters(own->gpu, &before);
    move(own, gather);
    mpath_symmetric_gpu_counters(own->gpu, &now);
    gpu_memory_read(own->recv.address, host, elements * sizeof(float));
    for (unsigned i = 0; i < elements; i++) {
        ranks_check(host[i] == expected(own, gather, i));
    }
    return now.gpu.staged_bytes - before.gpu.staged_bytes;
}

/* The first call of a communicator that can go through the host: a gather's comes after the first, which finds the rates. */
static uint64_t first_call(own_t *own, int gather)
{
    if (gather) {
        ranks_check(call(own, gather) == 0);
    }
    return call(own, gather);
}

static int body(ranks_self_t *self, void *argument)
{
    const job_t *job              = argument;
    const mpath_learned_t knows   = {.learned_ns = mpath_history_now(), .value = job->knows};
    const mpath_history_key_t key = {
        .machine = job->machine, .operation = "allreduce", .size_class = CLASS, .kind = MPATH_HISTORY_HOST_SHARE};
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_oob_t oob;
    own_t own, other;
    uint64_t bytes;

    setenv("FAKE_CUDA_DEVICES", "4", 1);
    setenv("FAKE_CUDA_MULTIPROCESSORS", "64", 1);
    gpu_application_starts();
    mpath_settings_init(&settings);
    settings.timeout_s          = 100;
    settings.gpu_probe          = MPATH_GPU_PROBE_OFF;
    settings.gpu_reduce         = MPATH_GPU_REDUCE_WRITES;
    settings.gpu_host_min_bytes = LEAST_BYTES;
    settings.adapt              = job->adapt;
    settings.adapt_file         = path;
    context                     = ranks_context(self, &settings);
    if ((job->knows > 0) && (self->rank == self->size - 1)) {
        (void)mpath_history_note(&key, &knows);
    }
    own_init(&own, self, context, &self->oob, job);
    bytes = first_call(&own, job->gather);
    for (int i = 1; i < job->calls; i++) {
        bytes = call(&own, job->gather);
    }
    if (self->rank == 0) {
        seen->last_bytes = bytes;
    }
    if (job->second) {
        ranks_oob(self, 1, NULL, self->size, &oob);
        own_init(&other, self, context, &oob, job);
        bytes = first_call(&other, job->gather);
        if (self->rank == 0) {
            seen->next_bytes = bytes;
        }
        own_end(&other);
    }
    own_end(&own);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

/* --- tests ---------------------------------------------------------------------------------------------------------- */

typedef struct lines {
    int count;
    mpath_history_line_t last;
} lines_t;

static void take_line(void *argument, const mpath_history_line_t *line)
{
    lines_t *lines = argument;

    lines->count++;
    lines->last = *line;
}

static lines_t read_lines(void)
{
    lines_t lines = {.count = 0};

    (void)mpath_history_read(path, take_line, &lines);
    return lines;
}

/* A job that finds a share; the line that it leaves. */
static mpath_history_line_t learn(job_t *job)
{
    lines_t lines;

    unlink(path);
    job->calls  = CALLS;
    job->second = 1;
    assert_int_equal(ranks_run(&job->setup, body, job), 0);
    lines = read_lines();
    assert_int_equal(lines.count, 1);
    assert_int_equal(lines.last.key.kind, MPATH_HISTORY_HOST_SHARE);
    assert_int_equal(lines.last.key.size_class, job->gather ? CLASS + 1 : CLASS);
    assert_in_range(lines.last.value, 250000, 400000);
    assert_true(seen->last_bytes > 0);
    job->calls  = 1;
    job->second = 0;
    return lines.last;
}

static void test_share(void **state)
{
    job_t job = {.setup = {.size = 2}, .adapt = MPATH_ADAPT_RUN};
    mpath_history_line_t line;
    uint64_t bytes;

    (void)state;
    line = learn(&job);
    assert_string_equal(line.key.operation, "allreduce");
    bytes = seen->last_bytes;
    assert_int_equal(seen->next_bytes, bytes); /* another communicator begins with it */
    assert_int_equal(ranks_run(&job.setup, body, &job), 0);
    assert_int_equal(seen->last_bytes, bytes); /* another job does */
    assert_int_equal(read_lines().count, 1);
    job.adapt = MPATH_ADAPT_START;
    assert_int_equal(ranks_run(&job.setup, body, &job), 0);
    assert_int_equal(seen->last_bytes, bytes);

    /* not one that shall not, nor one of other GPUs */
    job.adapt = MPATH_ADAPT_OFF;
    assert_int_equal(ranks_run(&job.setup, body, &job), 0);
    assert_int_equal(seen->last_bytes, 0);
    job.adapt     = MPATH_ADAPT_RUN;
    job.first_gpu = 1;
    assert_int_equal(ranks_run(&job.setup, body, &job), 0);
    assert_int_equal(seen->last_bytes, 0);
    unlink(path);
}

/* What one rank's process knows all begin with, though the file says something else. */
static void test_one_knows(void **state)
{
    job_t job = {.setup = {.size = 2}, .adapt = MPATH_ADAPT_RUN};
    uint64_t bytes;

    (void)state;
    job.machine = learn(&job).key.machine;
    bytes       = seen->last_bytes;
    job.knows   = 200000;
    assert_int_equal(ranks_run(&job.setup, body, &job), 0);
    assert_in_range(seen->last_bytes, 1, bytes - 1);
    unlink(path);
}

static void test_gather(void **state)
{
    job_t job = {.setup = {.size = 2}, .adapt = MPATH_ADAPT_RUN, .gather = 1};
    mpath_history_line_t line;
    uint64_t bytes;

    (void)state;
    line = learn(&job);
    assert_string_equal(line.key.operation, "allgather");
    bytes = seen->last_bytes;
    assert_int_equal(seen->next_bytes, bytes);
    assert_int_equal(ranks_run(&job.setup, body, &job), 0);
    assert_int_equal(seen->last_bytes, bytes);
    unlink(path);
}

/* With adapt=off nothing is kept, whatever is found. */
static void test_off(void **state)
{
    job_t job = {.setup = {.size = 2}, .adapt = MPATH_ADAPT_OFF, .calls = CALLS, .second = 1};

    (void)state;
    unlink(path);
    assert_int_equal(ranks_run(&job.setup, body, &job), 0);
    assert_true(seen->last_bytes > 0);
    assert_int_equal(seen->next_bytes, 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_share), cmocka_unit_test(test_one_knows),
                                       cmocka_unit_test(test_gather), cmocka_unit_test(test_off)};

    snprintf(path, sizeof(path), "/tmp/mpath-test-kept.%ld", (long)getpid());
    seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
