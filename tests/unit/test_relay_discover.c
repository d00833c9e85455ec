/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relays where nobody tells of the GPUs: which NIC stands for a rank, by what the driver shows of the machine. The NICs
 * beside the GPUs are given by the test. And ranks whose GPU is not known in the first call.
 */
#include "device/cuda/driver.h"
#include "team/team_private.h"
#include "relay_support.h"
#include "topo/discover/gpus.h"
#include "unit/capture.h"

#include <stdlib.h>

/* Instead of the function of this name, by the linker. */
static const uint32_t *beside; /* NICs by GPU */

void __wrap_mpath_gpu_find_nics(mpath_gpu_facts_t *facts, const mpath_machine_t *machine);
void __wrap_mpath_gpu_find_nics(mpath_gpu_facts_t *facts, const mpath_machine_t *machine)
{
    (void)machine;
    facts->nics = (beside != NULL) ? beside[facts->info.uuid.bytes[15]] : 0;
}

/* Ranks 0 and 1 on GPUs 0 and 1 of their node, or both on GPU 0; 2 and 3 of another one on GPUs 2 and 3, or 1. */
typedef struct expectation {
    uint32_t beside[4];
    int on_gpu;
    int affine;
    int down;   /* this NIC is, on all nodes; -1: none */
    int nic[4]; /* of the ranks, for device memory */
} expectation_t;

static int expect_body(ranks_self_t *self, void *argument)
{
    const expectation_t *expected = argument;
    relay_job_t job               = {.setup     = {.size = 4, .nodes = 2, .nics = 3},
                                     .discovers = 1,
                                     .on_gpu    = expected->on_gpu,
                                     .affine    = expected->affine,
                                     .down      = (expected->down >= 0) ? 1u << expected->down : 0,
                                     .max_bytes = 300000};
    const mpath_topo_t *topo;
    member_t member;

    beside = expected->beside;
    relay_member_init(&member, self, &job);
    for (uint64_t round = 0; round < 3; round++) {
        member_round(&member, A2A_EVEN, job.max_bytes, round);
    }
    topo = mpath_team_gpu_topo(member.team);
    ranks_check(topo != NULL);
    for (int rank = 0; rank < self->size; rank++) {
        ranks_check(mpath_topo_place(topo, rank)->nic == expected->nic[rank]);
        ranks_check(mpath_topo_place(member.team->topo, rank)->nic == (rank % 2) / (job.on_gpu > 0 ? job.on_gpu : 1));
    }
    member_end(&member);
    return 0;
}

static void expect(const expectation_t *expected)
{
    const ranks_setup_t setup = {.size = 4, .nodes = 2, .nics = 3};

    assert_int_equal(ranks_run(&setup, expect_body, (void *)expected), 0);
}

static void test_another(void **state)
{
    (void)state;
    for (int affine = 0; affine < 2; affine++) {
        expect(&(expectation_t){
            .beside = {1u << 1, 1u << 2, 1u << 1, 1u << 0}, .affine = affine, .down = -1, .nic = {1, 2, 1, 0}});
    }
}

/* That beside the rank's processor is as good as any; ranks that have to leave it do not all take the same. */
static void test_several(void **state)
{
    (void)state;
    expect(&(expectation_t){.beside = {7, 7, 6, 5}, .down = -1, .nic = {0, 1, 1, 0}});
    expect(&(expectation_t){.beside = {6, 5}, .on_gpu = 2, .affine = 1, .down = -1, .nic = {1, 2, 0, 0}});
}

static void test_down(void **state)
{
    (void)state;
    expect(&(expectation_t){.beside = {6, 4, 6, 4}, .down = 1, .nic = {2, 2, 2, 2}});
    expect(&(expectation_t){.beside = {4, 4, 4, 4}, .down = 2, .nic = {0, 1, 0, 1}});
}

/* What ranks find out of which each sees its own GPU only, and whether data passes through others' GPUs. */
typedef struct found {
    const char *links;
    int nodes, alone;
    mpath_gpu_link_t link;
    int on_gpu;
    int passes; /* GPUs do so for others */
} found_t;

static void check_gpus(const ranks_self_t *self, const mpath_topo_t *topo, const found_t *expected)
{
    int on_node = self->size / expected->nodes, on_gpu = (expected->on_gpu > 0) ? expected->on_gpu : 1;

    for (int rank = 0; rank < self->size; rank++) {
        const mpath_place_t *place    = mpath_topo_place(topo, rank);
        const mpath_node_gpus_t *gpus = mpath_topo_gpus(topo, place->node);

        ranks_check(gpus->num_gpus == on_node / on_gpu);
        ranks_check(gpus->link == (int32_t)expected->link);
        ranks_check(place->gpu == rank % on_node / on_gpu);
        for (int peer = 0; (peer < gpus->num_gpus) && (expected->link == MPATH_GPU_LINK_MESH); peer++) {
            ranks_check((gpus->nvlink_bps[place->gpu][peer] > 0) == (peer != place->gpu));
        }
        ranks_check((gpus->gpus[place->gpu].egress_bps > 0) == (expected->link == MPATH_GPU_LINK_SWITCH));
    }
}

static int alone_body(ranks_self_t *self, void *argument)
{
    const found_t *expected = argument;
    relay_job_t job         = {.setup     = {.size = 4, .nodes = expected->nodes, .nics = 4 / expected->nodes},
                               .discovers = 1,
                               .links     = expected->links,
                               .alone     = expected->alone,
                               .on_gpu    = expected->on_gpu,
                               .affine    = 1,
                               .max_bytes = 1000000};
    uint64_t passed[RANKS_MAX], sum = 0, signature, signatures[RANKS_MAX];
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, &job);
    mpath_log_set_level(MPATH_LOG_INFO);
    capture_start();
    for (uint64_t round = 0; round < 3; round++) {
        mpath_status_t status = member_call(&member, (round == 1) ? A2A_ONE_PAIR : A2A_HOT, job.max_bytes, round);

        ranks_check(status == ((expected->link == MPATH_GPU_LINK_NONE) ? MPATH_DECLINED : MPATH_OK));
        ranks_check((status != MPATH_OK) || (a2a_check(&member.a2a) == 0));
    }
    capture_stop();
    ranks_check((strstr(capture_text(), "nothing tells that GPU 0000:10:00.0 reaches GPU 0000:11:00.0") != NULL) ==
                ((expected->link == MPATH_GPU_LINK_NONE) && (self->rank == 0)));
    ranks_check(mpath_team_gpu_topo(member.team) != NULL);
    check_gpus(self, mpath_team_gpu_topo(member.team), expected);
    signature = mpath_topo_signature(mpath_team_gpu_topo(member.team));
    ranks_check(mpath_team_allgather(member.team, &signature, sizeof(signature), signatures) == MPATH_OK);
    member_forwarded(&member, passed, &counters);
    for (int rank = 0; rank < self->size; rank++) {
        sum += passed[rank];
        ranks_check(signatures[rank] == signature);
    }
    ranks_check((sum > 0) == expected->passes);
    ranks_check(counters.relay.moved.calls == ((expected->link == MPATH_GPU_LINK_NONE) ? 0 : 3));
    member_end(&member);
    return 0;
}

static void expect_alone(const found_t *expected)
{
    const ranks_setup_t setup = {.size = 4, .nodes = expected->nodes, .nics = 4 / expected->nodes};

    assert_int_equal(ranks_run(&setup, alone_body, (void *)expected), 0);
}

/* CUDA_VISIBLE_DEVICES; NVML knows the others. */
static void test_each_its_own(void **state)
{
    (void)state;
    expect_alone(&(found_t){.links = "mesh", .nodes = 1, .alone = 1, .link = MPATH_GPU_LINK_MESH, .passes = 1});
    expect_alone(&(found_t){.links = "switch", .nodes = 2, .alone = 1, .link = MPATH_GPU_LINK_SWITCH, .passes = 1});
    expect_alone(&(found_t){.links = "none", .nodes = 2, .alone = 1, .link = MPATH_GPU_LINK_PCIE, .passes = 1});
    expect_alone(&(found_t){.links = "switch", .nodes = 2, .alone = 1, .link = MPATH_GPU_LINK_SWITCH, .on_gpu = 2});
}

/*
 * Containers and control groups: links name what is at their other end all the same. Without links nothing tells, and
 * where GPUs drive different rails data goes through the host.
 */
static void test_nvml_too(void **state)
{
    (void)state;
    expect_alone(&(found_t){.links = "mesh", .nodes = 2, .alone = 2, .link = MPATH_GPU_LINK_MESH, .passes = 1});
    expect_alone(&(found_t){.links = "none", .nodes = 2, .alone = 2, .link = MPATH_GPU_LINK_NONE});
    expect_alone(&(found_t){.links = NULL, .nodes = 2, .alone = 1, .link = MPATH_GPU_LINK_NONE});
}

/*
 * The first call in which every rank has a GPU finds them for all that follow; a rank that has none before is named. Its
 * buffers or the context of its thread tell of it.
 */
static int without_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job     = argument;
    mpath_cu_context_t context = NULL;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    mpath_log_set_level(MPATH_LOG_INFO);
    if (self->rank == 2) {
        ranks_check(mpath_gpu_driver()->CtxGetCurrent(&context) == MPATH_CU_SUCCESS);
        member.memory = MEMBER_NONE;
        ranks_check(mpath_gpu_driver()->CtxSetCurrent(NULL) == MPATH_CU_SUCCESS);
    }
    for (uint64_t round = 0; round < 2; round++) {
        capture_start();
        ranks_check(member_call(&member, A2A_ONE_PAIR, job->max_bytes, round) == MPATH_DECLINED);
        capture_stop();
        ranks_check((strstr(capture_text(), "rank 2 has no GPU so far") != NULL) ==
                    ((self->rank == 2) && (round == 0)));
        ranks_check(mpath_team_gpu_topo(member.team) == NULL);
    }
    if (self->rank == 2) {
        member.memory = (job->rounds > 0) ? MEMBER_NONE : MEMBER_DEVICE;
        ranks_check((job->rounds == 0) || (mpath_gpu_driver()->CtxSetCurrent(context) == MPATH_CU_SUCCESS));
    }
    member_round(&member, A2A_ONE_PAIR, job->max_bytes, 2);
    member.memory = MEMBER_DEVICE;
    member_round(&member, A2A_HOT, job->max_bytes, 3);
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.relay.moved.calls == 2);
    ranks_check(mpath_topo_place(mpath_team_gpu_topo(member.team), 2)->gpu == 0);
    member_end(&member);
    return 0;
}

static void test_one_without(void **state)
{
    relay_job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .discovers = 1, .max_bytes = 300000};

    (void)state;
    for (job.rounds = 0; job.rounds < 2; job.rounds++) {
        assert_int_equal(ranks_run(&job.setup, without_body, &job), 0);
    }
}

/*
 * A rank of which no GPU is known, or another one than that of its buffers to come, when slots and rails are made: they
 * are made anew when it has device memory for the first time, and it passes on from then on.
 */
static int late_device; /* current on rank 1 meanwhile; -1: none */

static int late_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job     = argument;
    mpath_cu_context_t context = NULL;
    uint64_t passed[2][RANKS_MAX];
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    if (self->rank == 1) {
        if (late_device >= 0) {
            ranks_check(mpath_gpu_driver()->DevicePrimaryCtxRetain(&context, late_device) == MPATH_CU_SUCCESS);
        }
        ranks_check(mpath_gpu_driver()->CtxSetCurrent(context) == MPATH_CU_SUCCESS);
        member.memory = MEMBER_NONE;
    }
    member_round(&member, A2A_ONE_PAIR, job->max_bytes, 1);
    member_forwarded(&member, passed[0], &counters);
    ranks_check((passed[0][1] > 0) == (late_device >= 0));
    member.memory = MEMBER_DEVICE;
    member_round(&member, A2A_HOT, job->max_bytes, 2);
    member.memory = (self->rank == 1) ? MEMBER_NONE : MEMBER_DEVICE;
    member_forwarded(&member, passed[0], &counters);
    member_round(&member, A2A_ONE_PAIR, job->max_bytes, 3);
    member_forwarded(&member, passed[1], &counters);
    ranks_check(passed[1][1] > passed[0][1]);
    ranks_check(counters.relay.moved.calls == 3 && counters.declined == 0);
    member_end(&member);
    return 0;
}

static void test_late_gpu(void **state)
{
    relay_job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                       .link      = MPATH_GPU_LINK_MESH,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 1000000,
                       .killed    = -1};

    (void)state;
    for (late_device = -1; late_device < 3; late_device += 3) {
        assert_int_equal(ranks_run(&job.setup, late_body, &job), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_another),  cmocka_unit_test(test_several),
                                       cmocka_unit_test(test_down),     cmocka_unit_test(test_each_its_own),
                                       cmocka_unit_test(test_nvml_too), cmocka_unit_test(test_one_without),
                                       cmocka_unit_test(test_late_gpu)};

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay_discover", tests, NULL, NULL);
}
