/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of relays, on the driver without a GPU: what one rank cannot have none uses, and calls go on without it. Slots
 * in host memory that the driver refuses or /dev/shm has no room for; small ones; slots on GPUs of many communicators,
 * and on GPUs that are nearly full or have no memory.
 */
#include "device/usage.h"
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
    int declines, stages;  /* expected, as the next one */
    int is_refused;        /* which is said */
} short_job_t;

static int short_body(ranks_self_t *self, void *argument)
{
    const short_job_t *given = argument;
    const relay_job_t *job   = &given->job;
    mpath_coll_counters_t counters;
    uint64_t staged[RANKS_MAX], sum = 0;
    member_t member;

    capture_start();
    relay_member_init(&member, self, job);
    member.copies = given->declines;
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
            member_round(&member, A2A_HOT, job->max_bytes, (uint64_t)round);
            ranks_check(member.was_copied);
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
    ranks_check((strstr(capture_text(), "WARN a rank cannot have slots") != NULL) ==
                ((self->rank == 0) && given->is_refused));
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
    run_short((short_job_t){.job = mesh, .who = 2, .pinned = "1000000", .is_refused = 1});
    run_short((short_job_t){.job = mesh, .who = 0, .file_bytes = 64 * MIB, .is_refused = 1});
    run_short((short_job_t){.job = mesh, .who = 3, .shared_bytes = 100000, .is_refused = 1});
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
    run_short((short_job_t){.job = apart, .who = 1, .pinned = "17000000", .declines = 1, .is_refused = 1});
}

/* Slots of rails are smaller where a rank cannot have them as large, and calls are declined where it can have none. */
static void test_rail_slots(void **state)
{
    relay_job_t nodes = {.setup = {.size = 4, .nodes = 2}, .pcie_bps = 1000, .max_bytes = 300000};

    (void)state;
    run_short((short_job_t){.job = nodes, .who = 2, .pinned = "1048576"});
    run_short((short_job_t){.job = nodes, .who = 2, .pinned = "100000", .declines = 1, .is_refused = 1});
}

/* -- slots on GPUs -- */

#define MANY 12

static relay_job_t slow_pcie(int size, int nodes)
{
    return (relay_job_t){
        .setup     = {.size = size, .nodes = nodes, .nics = (nodes > 0) ? size / nodes : 0, .nic_bps = RELAY_RAIL_BPS},
        .link      = MPATH_GPU_LINK_MESH,
        .pcie_bps  = 1000,
        .max_bytes = 300000,
        .killed    = -1};
}

/* All live at once: the last one has slots, too, and all together keep to the limit. */
static int many_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    uint64_t passed[RANKS_MAX], limit, sum = 0;
    mpath_coll_counters_t counters;
    member_t members[MANY];
    mpath_gpu_usage_t usage;
    mpath_oob_t oob;

    relay_member_init(&members[0], self, job);
    limit = mpath_team_settings(members[0].team)->gpu_device_bytes;
    ranks_check(limit == 64 * MIB);
    for (int i = 1; i < MANY; i++) {
        members[i] = (member_t){.context = members[0].context};
        ranks_oob(self, i, NULL, self->size, &oob);
        relay_member_join(&members[i], self, &oob, job);
    }
    for (int i = 0; i < MANY; i++) {
        member_round(&members[i], A2A_ONE_PAIR, job->max_bytes, (uint64_t)i);
        member_forwarded(&members[i], passed, &counters);
        ranks_check((passed[1] > 0) && (passed[2] > 0));
        ranks_check(counters.relay.moved.slot_bytes >= MIB);
        sum += counters.relay.moved.slot_bytes;
    }
    mpath_gpu_usage(&usage);
    ranks_check((sum <= limit) && (usage.memory_bytes <= limit + MIB)); /* counters of kernels are beside it */
    for (int i = MANY - 1; i > 0; i--) {
        member_leave(&members[i]);
    }
    member_end(&members[0]);
    return 0;
}

static void test_many(void **state)
{
    relay_job_t job = slow_pcie(4, 0);

    (void)state;
    assert_int_equal(ranks_run(&job.setup, many_body, &job), 0);
}

/* With a rank on each node nothing passes through any: none takes slots, and none is said to lack them. */
static int no_relay_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    capture_start();
    member_round(&member, A2A_EVEN, job->max_bytes, 1);
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.relay.moved.calls == 1) && (counters.relay.moved.slot_bytes == 0));
    ranks_check(strstr(capture_text(), "no slots") == NULL);
    member_end(&member);
    return 0;
}

static void test_no_relay(void **state)
{
    relay_job_t job = slow_pcie(3, 3);

    (void)state;
    assert_int_equal(ranks_run(&job.setup, no_relay_body, &job), 0);
}

/* The GPU of rank 1 has little memory, or gives none: with what slots it takes part, and what is said. */
typedef struct full_job {
    relay_job_t job;
    const char *free, *largest;
    uint64_t slot_bytes;
} full_job_t;

static int full_body(ranks_self_t *self, void *argument)
{
    const full_job_t *given = argument;
    uint64_t passed[RANKS_MAX];
    mpath_coll_counters_t counters;
    const char *said;
    member_t member;

    relay_member_init(&member, self, &given->job);
    if (self->rank == 1) {
        setenv("FAKE_CUDA_FREE", given->free, 1);
        setenv("FAKE_CUDA_LARGEST", given->largest, 1);
    }
    capture_start();
    member_round(&member, A2A_ONE_PAIR, given->job.max_bytes, 1);
    said = strstr(capture_text(),
                  "WARN no slots on, or no way to them from all for, the GPUs of rank 1; data of others "
                  "does not pass through");
    member_forwarded(&member, passed, &counters);
    ranks_check((passed[1] > 0) == (given->slot_bytes > 0));
    ranks_check(passed[2] > 0);
    ranks_check((self->rank != 1) || (counters.relay.moved.slot_bytes == given->slot_bytes));
    ranks_check((said != NULL) == ((self->rank == 0) && (given->slot_bytes == 0)));
    member_end(&member);
    return 0;
}

static void test_full(void **state)
{
    full_job_t nearly  = {.job = slow_pcie(4, 0), .free = "314572800", .largest = "", .slot_bytes = 32 * MIB};
    full_job_t more    = {.job = slow_pcie(4, 0), .free = "104857600", .largest = "", .slot_bytes = 16 * MIB};
    full_job_t refused = {.job = slow_pcie(4, 0), .free = "", .largest = "5000000", .slot_bytes = 4 * MIB};
    full_job_t none    = {.job = slow_pcie(4, 0), .free = "", .largest = "100000"};

    (void)state;
    assert_int_equal(ranks_run(&nearly.job.setup, full_body, &nearly), 0);
    assert_int_equal(ranks_run(&more.job.setup, full_body, &more), 0);
    assert_int_equal(ranks_run(&refused.job.setup, full_body, &refused), 0);
    assert_int_equal(ranks_run(&none.job.setup, full_body, &none), 0);
}

/* A GPU gets short of memory: one that is called rarely gives its slots back with its next call, and all say so. */
static int rare_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t busy, rare;
    mpath_oob_t oob;

    relay_member_init(&busy, self, job);
    rare = (member_t){.context = busy.context};
    ranks_oob(self, 1, NULL, self->size, &oob);
    relay_member_join(&rare, self, &oob, job);
    member_round(&rare, A2A_ONE_PAIR, job->max_bytes, 1);
    member_round(&busy, A2A_ONE_PAIR, job->max_bytes, 1);
    setenv("FAKE_CUDA_FULL", (self->rank == 1) ? "1" : "", 1);
    capture_start();
    for (int round = 0; round < 70; round++) {
        member_round(&busy, A2A_EVEN, 2000, (uint64_t)round);
    }
    member_round(&busy, A2A_ONE_PAIR, job->max_bytes, 2);
    ranks_check((strstr(capture_text(), "memory is short on the GPUs, which give their slots back, of rank 1; ") !=
                 NULL) == (self->rank == 0));
    member_round(&rare, A2A_ONE_PAIR, job->max_bytes, 2);
    mpath_coll_counters(rare.coll, &counters);
    ranks_check((counters.relay.moved.slot_bytes == 0) == (self->rank == 1));
    member_leave(&rare);
    member_end(&busy);
    return 0;
}

static void test_rare(void **state)
{
    relay_job_t job = slow_pcie(4, 0);

    (void)state;
    job.max_bytes = 2000000; /* shorter calls need no relays */
    assert_int_equal(ranks_run(&job.setup, rare_body, &job), 0);
}

/* Slots that are made one after the other where memory is scarce do not make it short: none is given back. */
static int scarce_body(ranks_self_t *self, void *argument)
{
    enum { FEW = 5 };
    const relay_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t members[FEW];
    mpath_oob_t oob;

    relay_member_init(&members[0], self, job);
    setenv("FAKE_CUDA_FREE", (self->rank == 1) ? "62914560" : "", 1);
    capture_start();
    for (int i = 0; i < FEW; i++) {
        if (i > 0) {
            members[i] = (member_t){.context = members[0].context};
            ranks_oob(self, i, NULL, self->size, &oob);
            relay_member_join(&members[i], self, &oob, job);
        }
        member_round(&members[i], A2A_ONE_PAIR, job->max_bytes, (uint64_t)i);
    }
    for (int round = 0; round < 70; round++) {
        member_round(&members[0], A2A_EVEN, 2000, (uint64_t)round);
    }
    member_round(&members[0], A2A_ONE_PAIR, job->max_bytes, 1);
    mpath_coll_counters(members[0].coll, &counters);
    ranks_check(counters.relay.moved.slot_bytes > 0);
    for (int i = FEW - 1; i > 0; i--) {
        member_leave(&members[i]);
    }
    member_end(&members[0]);
    return 0;
}

static void test_scarce(void **state)
{
    relay_job_t job = slow_pcie(4, 0);

    (void)state;
    job.max_bytes = 2000000;
    assert_int_equal(ranks_run(&job.setup, scarce_body, &job), 0);
}

/* A GPU that has no memory for streams: no rank's call fails, all go by way of the host. */
static int streamless_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    member_t member;

    relay_member_init(&member, self, job);
    setenv("FAKE_CUDA_WITHOUT", (self->rank == 2) ? "streams" : "", 1);
    capture_start();
    member.copies = 1;
    member_round(&member, A2A_EVEN, job->max_bytes, 1);
    ranks_check(member.was_copied && !mpath_coll_takes_device(member.coll));
    ranks_check((self->rank != 0) || (strstr(capture_text(), "relays of device memory cannot be set up on some rank")));
    ranks_check(mpath_team_status(member.team) == MPATH_OK);
    member_end(&member);
    return 0;
}

static void test_streamless(void **state)
{
    relay_job_t job = slow_pcie(4, 2);

    (void)state;
    assert_int_equal(ranks_run(&job.setup, streamless_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_slots), cmocka_unit_test(test_no_other_way), cmocka_unit_test(test_rail_slots),
        cmocka_unit_test(test_many),       cmocka_unit_test(test_no_relay),     cmocka_unit_test(test_full),
        cmocka_unit_test(test_rare),       cmocka_unit_test(test_scarce),       cmocka_unit_test(test_streamless),
    };

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay_memory", tests, NULL, NULL);
}
