/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes wrong in reductions and gathers between nodes of GPUs, on the driver without a GPU: what a driver refuses
 * to one rank, kernels that do not start, ranks that die. All ranks decline alike or come back with an error, soon, and
 * nobody touches a buffer after its call has returned.
 */
#include "device/cuda/driver.h"
#include "pipeline/gpu.h"
#include "gpu_nodes.h"
#include "util/time.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static mpath_cu_t *driver(void)
{
    return (mpath_cu_t *)(uintptr_t)mpath_gpu_driver(); /* no constant */
}

static unsigned imports_in_use(void)
{
    mpath_import_counts_t counts;

    mpath_import_counts(&counts);
    return counts.in_use;
}

/* -- what the driver refuses to one rank -- */

#define REFUSING 1 /* the rank */

static mpath_cu_result_t refuse_to_open(mpath_cu_ptr_t *pointer, mpath_cu_ipc_t handle, unsigned flags)
{
    (void)pointer;
    (void)handle;
    (void)flags;
    return MPATH_CU_OUT_OF_MEMORY;
}

static mpath_cu_result_t refuse_to_register(void *pointer, size_t bytes, unsigned flags)
{
    (void)pointer;
    (void)bytes;
    (void)flags;
    return MPATH_CU_OUT_OF_MEMORY;
}

static mpath_cu_result_t refuse_streams(mpath_cu_stream_t *stream, unsigned flags, int priority)
{
    (void)stream;
    (void)flags;
    (void)priority;
    return MPATH_CU_OUT_OF_MEMORY;
}

/* Blocks of the same size on all ranks. */
static mpath_status_t gather_evenly(own_t *own, uint64_t block)
{
    mpath_symmetric_buffers_t buffers = buffers_of(own, 0, 0);
    uint64_t bytes[RANKS_MAX], offsets[RANKS_MAX];

    for (int rank = 0; rank < own->self->size; rank++) {
        bytes[rank]   = block;
        offsets[rank] = (uint64_t)rank * block;
    }
    return mpath_allgather_anywhere(own->member.symmetric, &buffers, bytes, offsets);
}

/* The same buffers, but of the send buffers the mates have known nothing yet. */
static int other_side_body(ranks_self_t *self, void *argument)
{
    __typeof__(driver()->IpcOpenMemHandle) open_it;
    own_t own;

    own_init(&own, self, argument);
    open_it = driver()->IpcOpenMemHandle;
    ranks_check(gather_evenly(&own, 8000) == MPATH_OK);
    if (self->rank == REFUSING) {
        driver()->IpcOpenMemHandle = refuse_to_open;
    }
    ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_DECLINED);
    ranks_check(imports_in_use() == 0);
    ranks_check(gather_evenly(&own, 8000) == MPATH_OK);
    driver()->IpcOpenMemHandle = open_it;
    ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_OK);
    check_sums(&own, 4000, 0, 0);
    ranks_check(allreduce(&own, 4000, 1, 0) == MPATH_OK);
    check_sums(&own, 4000, 1, 0);
    own_end(&own);
    return 0;
}

static void test_other_side(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, other_side_body, &job), 0);
}

/* The streams of the first call. */
static int streams_body(ranks_self_t *self, void *argument)
{
    __typeof__(driver()->StreamCreateWithPriority) create;
    mpath_gpu_t *gpu;
    own_t own;

    own_init(&own, self, argument);
    ranks_check(mpath_gpu_get(self->rank, NULL, &gpu) == MPATH_OK);
    ranks_check(mpath_kernels_usable(gpu)); /* who cannot load them does without for good */
    create = driver()->StreamCreateWithPriority;
    if (self->rank == REFUSING) {
        driver()->StreamCreateWithPriority = refuse_streams;
    }
    ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_DECLINED);
    ranks_check(imports_in_use() == 0);
    driver()->StreamCreateWithPriority = create;
    ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_OK);
    check_sums(&own, 4000, 0, 0);
    own_end(&own);
    return 0;
}

static void test_streams(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, streams_body, &job), 0);
}

/* The kernel of an operation and type, which some drivers load when they are asked for it. */
static __typeof__(((mpath_cu_t *)NULL)->ModuleGetFunction) get_function;
static int kernels_refused;

static mpath_cu_result_t refuse_sums(mpath_cu_function_t *function, mpath_cu_module_t module, const char *name)
{
    if (strcmp(name, MPATH_KERNEL_REDUCE "sum_f64") == 0) {
        kernels_refused++;
        return MPATH_CU_OUT_OF_MEMORY;
    }
    return get_function(function, module, name);
}

#define PAUSED_CALLS 64

static int kernels_body(ranks_self_t *self, void *argument)
{
    own_t own;

    own_init(&own, self, argument);
    get_function = driver()->ModuleGetFunction;
    if (self->rank == REFUSING) {
        driver()->ModuleGetFunction = refuse_sums;
    }
    ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_DECLINED);
    ranks_check(gather_evenly(&own, 8000) == MPATH_OK); /* needs others */
    for (int call = 0; call < PAUSED_CALLS; call++) {
        ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_DECLINED);
    }
    ranks_check(kernels_refused == (self->rank == REFUSING));
    driver()->ModuleGetFunction = get_function;
    ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_OK);
    check_sums(&own, 4000, 0, 0);
    own_end(&own);
    return 0;
}

static void test_kernels(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, kernels_body, &job), 0);
}

/* All decline; after three such calls not every one is tried. */
static int refused_body(ranks_self_t *self, void *argument)
{
    __typeof__(driver()->MemHostRegister) register_it;
    own_t own;

    own_init(&own, self, argument);
    register_it = driver()->MemHostRegister;
    if (self->rank == REFUSING) {
        driver()->MemHostRegister = refuse_to_register;
    }
    for (int call = 0; call < 3; call++) {
        ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_DECLINED);
        ranks_check(imports_in_use() == 0);
    }
    driver()->MemHostRegister = register_it;
    for (int call = 0; call < PAUSED_CALLS; call++) {
        ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_DECLINED);
    }
    ranks_check(gpu_calls(&own) == 0);
    ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_OK);
    check_sums(&own, 4000, 0, 0);
    own_end(&own);
    return 0;
}

static void test_refused(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, refused_body, &job), 0);
}

/* GPUs that do not reach each other, or on which the node's processes take turns. */
static int apart_body(ranks_self_t *self, void *argument)
{
    int shared = strcmp(getenv("FAKE_CUDA_WITHOUT"), "mps") == 0;
    own_t own;

    own_init(&own, self, argument);
    own_free(&own);
    side_alloc(&own.send, shared ? self->node : self->rank, MPATH_MEMORY_DEVICE, 1);
    side_alloc(&own.recv, shared ? self->node : self->rank, MPATH_MEMORY_DEVICE, 1);
    for (int call = 0; call < 4; call++) {
        ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_DECLINED);
        ranks_check(imports_in_use() == 0);
    }
    own_end(&own);
    return 0;
}

static void test_apart(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    setenv("FAKE_CUDA_WITHOUT", "mps", 1);
    assert_int_equal(ranks_run(&job.setup, apart_body, &job), 0);
    setenv("FAKE_CUDA_WITHOUT", "peers", 1);
    assert_int_equal(ranks_run(&job.setup, apart_body, &job), 0);
    unsetenv("FAKE_CUDA_WITHOUT");
}

/* There is no room for a segment in the arena. */
static int narrow_body(ranks_self_t *self, void *argument)
{
    own_t own;

    own_init(&own, self, argument);
    for (int call = 0; call < 4; call++) {
        ranks_check(allreduce(&own, 4000, 0, 0) == MPATH_DECLINED);
        ranks_check(imports_in_use() == 0);
    }
    own_end(&own);
    return 0;
}

static void test_narrow(void **state)
{
    job_t job = {.setup        = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS},
                 .access       = MPATH_ACCESS_AFFINE,
                 .memory_bytes = 16384};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, narrow_body, &job), 0);
}

/* -- kernels that do not start, and what the others have started of such a call -- */

typedef struct launches {
    job_t job;
    int operation; /* 0: Allreduce, 1: Reduce_scatter, 2: Allgather */
    uint64_t about;
    int good; /* that start */
    int slow; /* the rank whose GPU takes its time */
    const char *delay_us;
} launches_t;

static __typeof__(((mpath_cu_t *)NULL)->LaunchKernel) launch_it;
static int launches_left;

static mpath_cu_result_t launch_some(mpath_cu_function_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                     mpath_cu_stream_t stream, void **arguments, void **extra)
{
    if (launches_left-- <= 0) {
        return MPATH_CU_OUT_OF_MEMORY;
    }
    return launch_it(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, arguments,
                     extra);
}

#define PATTERN_BYTES (4 * MOST * sizeof(double))

static mpath_status_t run_one(own_t *own, const launches_t *launches)
{
    return (launches->operation == 0)   ? allreduce(own, launches->about, 0, 0)
           : (launches->operation == 1) ? reduce_scatter(own, launches->about, 1)
                                        : allgather(own, launches->about, 8);
}

static int launch_body(ranks_self_t *self, void *argument)
{
    const launches_t *launches = argument;
    mpath_status_t status;
    own_t own;

    setenv("FAKE_CUDA_DELAY_US", (self->rank == launches->slow) ? launches->delay_us : "30", 1);
    own_init(&own, self, &launches->job);
    launch_it     = driver()->LaunchKernel;
    launches_left = launches->good;
    if (self->rank == REFUSING) {
        driver()->LaunchKernel = launch_some;
    }
    status = run_one(&own, launches);
    ranks_check(mpath_status_is_error(status) || ((status == MPATH_OK) && (self->node == 1))); /* which may have all */
    gpu_pattern_write(own.recv.gpu.address, PATTERN_BYTES, 5);
    usleep(200000);
    ranks_check(gpu_pattern_check(own.recv.gpu.address, PATTERN_BYTES, 5) == 0);
    own_end(&own);
    return 0;
}

static void test_launch(void **state)
{
    static const struct {
        int size, operation;
        uint64_t about;
        int good, slow;
        const char *delay_us;
    } cases[] = {{4, 0, MOST, 0, 0, "80000"},
                 {4, 0, MOST, 6, 0, "80000"},
                 {4, 1, MOST / 6, 3, 0, "80000"},
                 {4, 1, MOST / 6, 6, 0, "80000"},
                 {4, 2, 2 * MOST, 1, 0, "80000"},
                 {4, 2, 2 * MOST, 3, 0, "80000"},
                 {6, 2, MOST / 10, 1, REFUSING, "990000"}};

    (void)state;
    /* the last: one segment, of which a slice is two blocks */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        launches_t launches = {
            .job       = {.setup  = {.size = cases[i].size, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS},
                          .access = MPATH_ACCESS_AFFINE},
            .operation = cases[i].operation,
            .about     = cases[i].about,
            .good      = cases[i].good,
            .slow      = cases[i].slow,
            .delay_us  = cases[i].delay_us};

        assert_int_equal(ranks_run(&launches.job.setup, launch_body, &launches), 0);
    }
}

/* -- ranks that die -- */

#define KILLED 2 /* it drives no rail: only its node needs it */

static mpath_share_t *watched;
static atomic_int *came_back; /* shared by the ranks: how many of the other node have everything */

/* The rank dies when only its last slice is missing. */
static mpath_cu_result_t launch_until_last(mpath_cu_function_t function, unsigned grid_x, unsigned grid_y,
                                           unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                                           unsigned shared_bytes, mpath_cu_stream_t stream, void **arguments,
                                           void **extra)
{
    if (watched->gpu->copy_out.started + 1 == watched->num_segments) {
        while (atomic_load(came_back) < watched->num_local) {
            usleep(1000);
        }
        kill(getpid(), SIGKILL);
    }
    return launch_it(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, arguments,
                     extra);
}

static int killed_body(ranks_self_t *self, void *argument)
{
    uint64_t start_ns;
    own_t own;

    own_init(&own, self, argument);
    ranks_check(allgather(&own, 1000, 0) == MPATH_OK);
    launch_it = driver()->LaunchKernel;
    watched   = own.member.symmetric->share;
    if (self->rank == KILLED) {
        driver()->LaunchKernel = launch_until_last;
    }
    start_ns = mpath_time_ns();
    ranks_check(mpath_status_is_error(allgather(&own, MOST, 8)) == (self->node == 0));
    if (self->node == 1) {
        atomic_fetch_add(came_back, 1);
    }
    ranks_check(mpath_time_ns() - start_ns < (uint64_t)own.member.settings.timeout_s * MPATH_NS_PER_S / 2);
    usleep(500000);
    member_end(&own.member);
    own_free(&own);
    mpath_gpu_cleanup();
    return 0;
}

static void test_killed(void **state)
{
    job_t job = {
        .setup  = {.size = 6, .nodes = 2, .nics = 2, .nic_bps = FAST_RAIL_BPS, .may_die = 1u << KILLED, .deaf = 1},
        .access = MPATH_ACCESS_AFFINE};

    (void)state;
    came_back = mmap(NULL, sizeof(*came_back), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(came_back != MAP_FAILED);
    assert_int_equal(ranks_run(&job.setup, killed_body, &job), 0);
    munmap(came_back, sizeof(*came_back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_other_side), cmocka_unit_test(test_streams),
                                       cmocka_unit_test(test_kernels),    cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_apart),      cmocka_unit_test(test_narrow),
                                       cmocka_unit_test(test_launch),     cmocka_unit_test(test_killed)};

    return cmocka_run_group_tests_name("gpu_nodes_faults", tests, NULL, NULL);
}
