/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relays where nobody tells of the GPUs: which NIC stands for a rank, by what the driver shows of the machine. The NICs
 * beside the GPUs are given by the test.
 */
#include "exec/team_private.h"
#include "relay_support.h"
#include "topo/machine_gpus.h"
#include "unit/capture.h"

#include <stdlib.h>

/* Instead of the function of this name, by the linker. */
static const uint32_t *beside; /* NICs by GPU */

void __wrap_mpath_gpu_survey_model(const mpath_gpu_survey_t *survey, const mpath_machine_t *machine,
                                   mpath_node_gpus_t *gpus_p);
void __real_mpath_gpu_survey_model(const mpath_gpu_survey_t *survey, const mpath_machine_t *machine,
                                   mpath_node_gpus_t *gpus_p);
void __wrap_mpath_gpu_survey_model(const mpath_gpu_survey_t *survey, const mpath_machine_t *machine,
                                   mpath_node_gpus_t *gpus_p)
{
    __real_mpath_gpu_survey_model(survey, machine, gpus_p);
    for (int gpu = 0; gpu < gpus_p->num_gpus; gpu++) {
        gpus_p->gpus[gpu].nics = beside[gpu];
    }
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
    const ranks_setup_t setup = {.size = 4, .nodes = 2, .nics = 3, .limit_s = 120};

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_another), cmocka_unit_test(test_several),
                                       cmocka_unit_test(test_down)};

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay_discover", tests, NULL, NULL);
}
