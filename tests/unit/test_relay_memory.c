/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of relays, on the driver without a GPU: what one rank cannot have none uses, and calls go on without it. Slots
 * in host memory that the driver refuses or /dev/shm has no room for; small ones.
 */
#include "relay_support.h"
#include "unit/capture.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB (UINT64_C(1) << 20)
#define FAST_PCIE 50000000000ull

/* Instead of the function of this name, by the linker: what is free in /dev/shm; 0: what really is. */
static uint64_t shared_bytes;

uint64_t __real_mpath_shared_memory_free(void);
uint64_t __wrap_mpath_shared_memory_free(void);
uint64_t __wrap_mpath_shared_memory_free(void)
{
    return (shared_bytes > 0) ? shared_bytes : __real_mpath_shared_memory_free();
}

/* What goes wrong, and what is expected then. */
typedef struct short_job {
    relay_job_t job; /* first: the others of relay_support.h see that */
    int who;
    const char *largest;   /* FAKE_CUDA_LARGEST of all ranks */
    const char *pinned;    /* FAKE_CUDA_LARGEST_PINNED of that rank */
    uint64_t file_bytes;   /* no longer files for it: 0: any */
    uint64_t shared_bytes; /* free in /dev/shm, as it sees it */
    int declines, stages;  /* expected */
} short_job_t;

static int short_body(ranks_self_t *self, void *argument)
{
    const short_job_t *given = argument;
    const relay_job_t *job   = &given->job;
    mpath_coll_counters_t counters;
    uint64_t staged[RANKS_MAX], sum = 0;
    member_t member;

    ranks_drop_log();
    relay_member_init(&member, self, job);
    setenv("FAKE_CUDA_LARGEST", (given->largest != NULL) ? given->largest : "", 1);
    if (self->rank == given->who) {
        setenv("FAKE_CUDA_LARGEST_PINNED", (given->pinned != NULL) ? given->pinned : "", 1);
        shared_bytes = given->shared_bytes;
    }
    if ((self->rank == given->who) && (given->file_bytes > 0)) {
        struct rlimit limit = {.rlim_cur = given->file_bytes, .rlim_max = RLIM_INFINITY};

        signal(SIGXFSZ, SIG_IGN);
        ranks_check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    for (int round = 0; (round < job->rounds) && mpath_coll_takes_device(member.coll); round++) {
        if (given->declines) {
            ranks_check(member_call(&member, A2A_HOT, job->max_bytes, (uint64_t)round) == MPATH_DECLINED);
            ranks_check(mpath_coll_wants_host(member.coll));
        } else {
            member_round(&member, (round % 2 == 0) ? A2A_ONE_PAIR : A2A_HOT, job->max_bytes, (uint64_t)round);
        }
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check(given->declines || (counters.relay.moved.calls > 0));
    ranks_check(counters.relay.repeats == 0);
    ranks_check(mpath_team_allgather(member.team, &counters.relay.moved.staged_bytes, sizeof(*staged), staged) ==
                MPATH_OK);
    for (int rank = 0; rank < self->size; rank++) {
        sum += staged[rank];
    }
    ranks_check((sum > 0) == given->stages);
    member_end(&member);
    return 0;
}

static void run_short(short_job_t given)
{
    given.job.killed = -1;
    given.job.rounds = 4;
    given.job.link   = given.job.unlinked ? MPATH_GPU_LINK_NONE : MPATH_GPU_LINK_MESH;
    if (given.job.setup.nodes > 1) {
        given.job.setup.nics    = given.job.setup.size / given.job.setup.nodes;
        given.job.setup.nic_bps = RELAY_RAIL_BPS;
    }
    assert_int_equal(ranks_run(&given.job.setup, short_body, &given), 0);
}

/* Host memory has a share of what a mesh moves. Where a rank cannot have slots in it, links carry everything. */
static void test_host_slots(void **state)
{
    relay_job_t mesh = {.setup = {.size = 4}, .pcie_bps = FAST_PCIE, .max_bytes = 1000000};

    (void)state;
    run_short((short_job_t){.job = mesh, .stages = 1});
    run_short((short_job_t){.job = mesh, .who = 2, .pinned = "1000000"});
    run_short((short_job_t){.job = mesh, .who = 0, .file_bytes = 64 * MIB});
    run_short((short_job_t){.job = mesh, .who = 3, .shared_bytes = 100000});
    run_short((short_job_t){.job = mesh, .who = 1, .shared_bytes = 4 * MIB, .stages = 1});
    mesh.host_bytes     = 65536; /* a single slot, smaller than chunks that need none on GPUs */
    mesh.passes_nothing = 1;
    run_short((short_job_t){.job = mesh, .largest = "100000", .stages = 1});
}

/* GPUs without links, which reach each other through host memory only: without slots in it calls are declined. */
static void test_no_other_way(void **state)
{
    relay_job_t apart = {
        .setup = {.size = 4, .nodes = 2}, .unlinked = 1, .spine = 1, .pcie_bps = FAST_PCIE, .max_bytes = 300000};

    (void)state;
    run_short((short_job_t){.job = apart, .stages = 1});
    run_short((short_job_t){.job = apart, .who = 1, .pinned = "17000000", .declines = 1});
}

/* Slots of rails are smaller where a rank cannot have them as large, and calls are declined where it can have none. */
static void test_rail_slots(void **state)
{
    relay_job_t nodes = {.setup = {.size = 4, .nodes = 2}, .pcie_bps = 1000, .max_bytes = 300000};

    (void)state;
    run_short((short_job_t){.job = nodes, .who = 2, .pinned = "1048576"});
    run_short((short_job_t){.job = nodes, .who = 2, .pinned = "100000", .declines = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_slots),
        cmocka_unit_test(test_no_other_way),
        cmocka_unit_test(test_rail_slots),
    };

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay_memory", tests, NULL, NULL);
}
