/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a driver refuses one of several ranks on a node: all do without, alike, and have it when it is to be had later.
 * Streams, registered memory, kernels, and memory that ranks lend each other; in exchanges and in reductions.
 */
#include "device/cuda/driver.h"
#include "device/kernels/copy.h"
#include "device/kernels/reduce_args.h"
#include "device/kernels/reduce_eager_args.h"
#include "device/kernels/reduce_writes_args.h"
#include "gpu_member.h"
#include "gpu_ranks.h"
#include "unit/capture.h"

#include <stdlib.h>
#include <string.h>

#define RANKS 3
#define MIB (UINT64_C(1) << 20)
#define SHORT_BYTES 60000u
#define LONG_BYTES 300000u
#define MANY_ELEMENTS 200000u /* more than GPUs reduce each for itself */

static int is_refusing;

static mpath_cu_t *driver(void)
{
    return (mpath_cu_t *)(uintptr_t)mpath_gpu_driver();
}

/* What calls are made of. */
typedef struct job {
    uint64_t bytes;     /* that each pair exchanges, */
    unsigned elements;  /* or that are reduced */
    int gpu_reduce;     /* mpath_gpu_reduce_t */
    int stages;         /* GPUs do not reach each other */
    const char *kernel; /* that a driver does not load */
} job_t;

typedef struct caller {
    const job_t *job;
    member_t member;
    gpu_sums_t sums;
} caller_t;

static void caller_init(caller_t *caller, ranks_self_t *self, const job_t *job)
{
    mpath_settings_t settings;

    *caller = (caller_t){.job = job};
    setenv("FAKE_CUDA_MULTIPROCESSORS", "64", 1);
    gpu_ranks_start(RANKS, job->stages ? "peers" : "", &settings);
    settings.gpu_host_min_bytes = 65536;
    settings.gpu_reduce         = job->gpu_reduce;
    member_open(&caller->member, self, &settings, (RANKS + 1) * (LONG_BYTES + 64));
    if (job->elements > 0) {
        gpu_sums_open(&caller->sums, caller->member.team, job->elements);
    }
}

static void caller_end(caller_t *caller, ranks_self_t *self)
{
    ranks_barrier(self);
    if (caller->job->elements > 0) {
        gpu_sums_close(&caller->sums);
    }
    member_end(&caller->member);
}

static mpath_status_t call(caller_t *caller, unsigned round)
{
    mpath_status_t status;

    if (caller->job->elements > 0) {
        return gpu_sums_call(&caller->sums, caller->job->elements, round);
    }
    status = member_call(&caller->member, A2A_EVEN, caller->job->bytes, round);
    ranks_check((status != MPATH_OK) || (a2a_check(&caller->member.a2a) == 0));
    return status;
}

static uint64_t eager_calls(const caller_t *caller)
{
    mpath_coll_counters_t counters;

    if (caller->job->elements > 0) {
        mpath_symmetric_gpu_counters(caller->sums.gpu, &counters);
    } else {
        mpath_coll_counters(caller->member.coll, &counters);
    }
    return counters.gpu.eager;
}

static void run(ranks_body_t body, const job_t *job)
{
    const ranks_setup_t setup = {.size = RANKS};

    assert_int_equal(ranks_run(&setup, body, (void *)(uintptr_t)job), 0);
}

/* -- what every call needs -- */

#define DECLINED_CALLS 65 /* the one that is refused, and those after it */

static __typeof__(((mpath_cu_t *)NULL)->StreamCreateWithPriority) create_stream;
static __typeof__(((mpath_cu_t *)NULL)->MemHostRegister) register_memory;
static int streams_left, attempts;

static mpath_cu_result_t create_unless_refusing(mpath_cu_stream_t *stream, unsigned flags, int priority)
{
    attempts += is_refusing;
    return (is_refusing && (streams_left-- <= 0)) ? MPATH_CU_OUT_OF_MEMORY : create_stream(stream, flags, priority);
}

static mpath_cu_result_t register_unless_refusing(void *memory, size_t bytes, unsigned flags)
{
    attempts += is_refusing;
    return is_refusing ? MPATH_CU_OUT_OF_MEMORY : register_memory(memory, bytes, flags);
}

/* Each stream is the first that cannot be had, and then the room. */
#define STREAMS 6

static int refused_body(ranks_self_t *self, void *argument)
{
    caller_t caller;
    mpath_gpu_t *gpu;

    for (int given = 0; given <= STREAMS; given++) {
        caller_init(&caller, self, argument);
        ranks_check(mpath_gpu_get(self->rank, NULL, &gpu) == MPATH_OK);
        ranks_check(mpath_kernels_usable(gpu)); /* who cannot load them does without for good */
        ranks_drop_log();
        attempts                           = 0;
        streams_left                       = given;
        is_refusing                        = self->rank == RANKS - 1;
        create_stream                      = mpath_gpu_driver()->StreamCreateWithPriority;
        register_memory                    = mpath_gpu_driver()->MemHostRegister;
        driver()->StreamCreateWithPriority = (given < STREAMS) ? create_unless_refusing : create_stream;
        driver()->MemHostRegister          = (given < STREAMS) ? register_memory : register_unless_refusing;
        for (unsigned round = 0; round < DECLINED_CALLS; round++) {
            ranks_check(call(&caller, round) == MPATH_DECLINED);
        }
        ranks_check(!is_refusing || ((attempts > 0) && (attempts <= STREAMS))); /* in one call of them */
        is_refusing = 0;
        ranks_check(call(&caller, DECLINED_CALLS) == MPATH_OK);
        ranks_check(call(&caller, DECLINED_CALLS + 1) == MPATH_OK);
        driver()->StreamCreateWithPriority = create_stream;
        driver()->MemHostRegister          = register_memory;
        caller_end(&caller, self);
    }
    return 0;
}

static void test_refused(void **state)
{
    (void)state;
    run(refused_body, &(job_t){.bytes = 2000});
    run(refused_body, &(job_t){.elements = 1000});
}

/* -- kernels, which some drivers load when they are asked for -- */

static __typeof__(((mpath_cu_t *)NULL)->ModuleGetFunction) get_function;
static const char *kernel_refused;
static int kernels_refused;

static mpath_cu_result_t get_unless_refusing(mpath_cu_function_t *function, mpath_cu_module_t module, const char *name)
{
    if (is_refusing && (strncmp(name, kernel_refused, strlen(kernel_refused)) == 0)) {
        kernels_refused++;
        return MPATH_CU_OUT_OF_MEMORY;
    }
    return get_function(function, module, name);
}

static void begin_kernels(caller_t *caller, ranks_self_t *self, const job_t *job)
{
    caller_init(caller, self, job);
    kernel_refused              = job->kernel;
    kernels_refused             = 0;
    get_function                = mpath_gpu_driver()->ModuleGetFunction;
    driver()->ModuleGetFunction = get_unless_refusing;
    is_refusing                 = self->rank == RANKS - 1;
}

/* Without the one that every reduction needs. */
static int no_kernel_body(ranks_self_t *self, void *argument)
{
    caller_t caller;

    begin_kernels(&caller, self, argument);
    for (unsigned round = 0; round < DECLINED_CALLS; round++) {
        ranks_check(call(&caller, round) == MPATH_DECLINED);
    }
    ranks_check(kernels_refused == is_refusing);
    is_refusing = 0;
    for (unsigned round = 0; round < 2; round++) {
        ranks_check(call(&caller, round) == MPATH_OK);
    }
    caller_end(&caller, self);
    return 0;
}

/* Without that of a way: another one carries the calls. */
static int other_way_body(ranks_self_t *self, void *argument)
{
    caller_t caller;

    begin_kernels(&caller, self, argument);
    mpath_log_set_level(MPATH_LOG_DEBUG);
    capture_start();
    for (unsigned round = 0; round < DECLINED_CALLS; round++) {
        ranks_check(call(&caller, round) == MPATH_OK);
    }
    ranks_check(kernels_refused == is_refusing);
    ranks_check(strstr(capture_text(), "can be reduced by writes only") == NULL);
    is_refusing = 0;
    ranks_check(call(&caller, DECLINED_CALLS) == MPATH_OK);
    ranks_check(strstr(capture_text(), "can be reduced by writes only") != NULL);
    capture_stop();
    caller_end(&caller, self);
    return 0;
}

/* Of an operation that comes when others have been reduced before the agreement already. */
static int rare_body(ranks_self_t *self, void *argument)
{
    uint64_t before, round = 0;
    caller_t caller;

    begin_kernels(&caller, self, argument);
    for (; eager_calls(&caller) == 0; round++) {
        ranks_check(round < 10);
        ranks_check(call(&caller, (unsigned)round) == MPATH_OK);
    }
    before         = eager_calls(&caller);
    caller.sums.op = MPATH_REDUCE_MAX;
    for (unsigned i = 0; i < DECLINED_CALLS; i++, round++) {
        ranks_check(call(&caller, (unsigned)round) == MPATH_OK);
    }
    ranks_check((eager_calls(&caller) == before) && (kernels_refused == is_refusing));
    is_refusing = 0;
    for (; eager_calls(&caller) == before; round++) {
        ranks_check(round < 2 * DECLINED_CALLS);
        ranks_check(call(&caller, (unsigned)round) == MPATH_OK);
    }
    caller_end(&caller, self);
    return 0;
}

static void test_kernels(void **state)
{
    (void)state;
    run(no_kernel_body, &(job_t){.elements = 1000, .kernel = MPATH_KERNEL_REDUCE});
    run(other_way_body,
        &(job_t){.elements = MANY_ELEMENTS, .gpu_reduce = MPATH_GPU_REDUCE_WRITES, .kernel = MPATH_KERNEL_WRITES});
    run(other_way_body,
        &(job_t){.elements = MANY_ELEMENTS, .gpu_reduce = MPATH_GPU_REDUCE_RING, .kernel = MPATH_KERNEL_RING});
    run(rare_body, &(job_t){.elements = 3000, .kernel = MPATH_KERNEL_EAGER "max_"});
    run(rare_body,
        &(job_t){.elements = 3000, .gpu_reduce = MPATH_GPU_REDUCE_PARTS, .kernel = MPATH_KERNEL_EAGER_PARTS "max_"});
}

/* -- slots in host memory -- */

#define SLOTS_BYTES (UINT64_C(300) << 10) /* of all ranks, at least; all else is shorter */

static mpath_cu_result_t register_no_slots(void *memory, size_t bytes, unsigned flags)
{
    if (is_refusing && (bytes >= SLOTS_BYTES)) {
        attempts++;
        return MPATH_CU_OUT_OF_MEMORY;
    }
    return register_memory(memory, bytes, flags);
}

static uint64_t staged_bytes(const caller_t *caller)
{
    mpath_coll_counters_t counters;

    if (caller->job->elements > 0) {
        mpath_symmetric_gpu_counters(caller->sums.gpu, &counters);
    } else {
        mpath_coll_counters(caller->member.coll, &counters);
    }
    return counters.gpu.staged_bytes;
}

#define LONGER_CALLS 12
#define LONGER 100u /* are reductions a part of which goes through the host than those that ask for slots */

/* Exchanges that need them are declined, and reductions have all of the vector go from GPU to GPU. */
static int slots_body(ranks_self_t *self, void *argument)
{
    job_t job = *(const job_t *)argument;
    mpath_status_t without;
    unsigned round = 0;
    caller_t caller;

    caller_init(&caller, self, argument);
    caller.job = &job;
    job.elements /= LONGER;
    without                   = caller.job->stages ? MPATH_DECLINED : MPATH_OK;
    attempts                  = 0;
    is_refusing               = self->rank == RANKS - 1;
    register_memory           = mpath_gpu_driver()->MemHostRegister;
    driver()->MemHostRegister = register_no_slots;
    for (; round < DECLINED_CALLS; round++) {
        ranks_check(call(&caller, round) == without);
    }
    ranks_check((attempts == is_refusing) && (staged_bytes(&caller) == 0));
    is_refusing = 0;
    job.elements *= LONGER;
    for (; staged_bytes(&caller) == 0; round++) { /* reductions are measured without them first */
        ranks_check(round < DECLINED_CALLS + LONGER_CALLS);
        ranks_check(call(&caller, round) == MPATH_OK);
    }
    driver()->MemHostRegister = register_memory;
    caller_end(&caller, self);
    return 0;
}

static void test_slots(void **state)
{
    (void)state;
    run(slots_body, &(job_t){.bytes = SHORT_BYTES, .stages = 1});
    run(slots_body, &(job_t){.elements = LONGER * 20000, .gpu_reduce = MPATH_GPU_REDUCE_WRITES});
}

/* -- memory that ranks lend each other -- */

#define REFUSED_CALLS 70
#define REFUSALS 2         /* with 64 calls in between */
#define RETRIED_CALLS 129u /* until the next try */

static __typeof__(((mpath_cu_t *)NULL)->MemAlloc) allocate;
static int refusals;

static mpath_cu_result_t allocate_unless_refusing(mpath_cu_ptr_t *address_p, size_t bytes)
{
    if (is_refusing && (bytes >= 2 * MIB)) {
        refusals++;
        return MPATH_CU_OUT_OF_MEMORY;
    }
    return allocate(address_p, bytes);
}

/* Whether a call so far has used what is lent. */
static int has_borrowed(const caller_t *caller)
{
    return (caller->job->gpu_reduce == MPATH_GPU_REDUCE_WRITES)
               ? (strstr(capture_text(), "can be reduced by writes only") != NULL)
               : (eager_calls(caller) > 0);
}

static int lent_body(ranks_self_t *self, void *argument)
{
    uint64_t rounds[RANKS], round = 0;
    caller_t caller;

    caller_init(&caller, self, argument);
    mpath_log_set_level((caller.job->gpu_reduce == MPATH_GPU_REDUCE_WRITES) ? MPATH_LOG_DEBUG : MPATH_LOG_WARN);
    capture_start();
    allocate           = mpath_gpu_driver()->MemAlloc;
    driver()->MemAlloc = allocate_unless_refusing;
    is_refusing        = self->rank == RANKS - 1;
    for (; round < REFUSED_CALLS; round++) {
        ranks_check(call(&caller, (unsigned)round) == MPATH_OK);
        ranks_check(!has_borrowed(&caller));
    }
    ranks_check(refusals == (is_refusing ? REFUSALS : 0));
    is_refusing = 0;
    for (; !has_borrowed(&caller); round++) {
        ranks_check(round < REFUSED_CALLS + RETRIED_CALLS);
        ranks_check(call(&caller, (unsigned)round) == MPATH_OK);
    }
    capture_stop();
    ranks_check(mpath_team_allgather(caller.member.team, &round, sizeof(round), rounds) == MPATH_OK);
    ranks_check((rounds[0] == round) && (rounds[1] == round) && (rounds[2] == round));
    caller_end(&caller, self);
    return 0;
}

static void test_lent(void **state)
{
    (void)state;
    run(lent_body, &(job_t){.bytes = SHORT_BYTES});
    run(lent_body, &(job_t){.elements = 3000});
    run(lent_body, &(job_t){.elements = MANY_ELEMENTS, .gpu_reduce = MPATH_GPU_REDUCE_WRITES});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_kernels),
                                       cmocka_unit_test(test_slots), cmocka_unit_test(test_lent)};

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("gpu_refused", tests, NULL, NULL);
}
