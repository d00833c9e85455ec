/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce and Allgather that do not go as they should: declined by all, of ranks that disagree, on rails that are
 * lost, and with ranks that die or stall in the middle of a call.
 */
#include "mover/mover.h"
#include "symmetric_support.h"
#include "unit/capture.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* One rank cannot take part: all decline, and the next call works. */
static int decline_body(ranks_self_t *self, void *argument)
{
    member_t member;
    double *data = zeroed(50000 * sizeof(double));
    uint64_t bytes[RANKS_MAX], offsets[RANKS_MAX];

    member_init(&member, self, argument);
    for (int rank = 0; rank < self->size; rank++) {
        bytes[rank]   = 9000;
        offsets[rank] = (uint64_t)rank * 9000;
    }
    for (int round = 0; round < 3; round++) {
        int bad = self->rank == round;

        ranks_check(mpath_allreduce(member.symmetric, bad ? NULL : data, bad ? NULL : data, 50000, &doubles, bad) ==
                    MPATH_DECLINED);
        ranks_check(strcmp(mpath_symmetric_declined_because(member.symmetric), "") != 0);
        ranks_check(mpath_allgather(member.symmetric, bad ? NULL : data, bad ? NULL : data, bytes, offsets, bad) ==
                    MPATH_DECLINED);
        check_allreduce(&member, self, 5000, (uint64_t)round);
    }
    free(data);
    member_end(&member);
    return 0;
}

static void test_decline(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = MPATH_ACCESS_ALL};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, decline_body, &job), 0);
}

/* A rail that Alltoallv has lost is left out here as well, and used again when it is back. */
static int lost_rail_body(ranks_self_t *self, void *argument)
{
    member_t member;

    member_init(&member, self, argument);
    check_allreduce(&member, self, 50000, 0);
    ranks_check(mpath_share_num_rails(member.symmetric->share) == 2);
    for (int up = 0; up < 2; up++) {
        /* As the end of a call does it, on all ranks. */
        ranks_check(mpath_topo_set_nic(member.team->topo, 1, 1, up) == MPATH_OK);
        member.team->topo_version++;
        for (uint64_t round = 0; round < 6; round++) {
            check_allreduce(&member, self, 50000 + round, round);
            ranks_check(mpath_share_num_rails(member.symmetric->share) == 1 + up);
        }
    }
    member_end(&member);
    return 0;
}

static void test_lost_rail(void **state)
{
    (void)state;
    for (int access = MPATH_ACCESS_ALL; access <= MPATH_ACCESS_AFFINE; access++) {
        job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = access, .algorithm = MPATH_ALGORITHM_LANES};

        assert_int_equal(ranks_run(&job.setup, lost_rail_body, &job), 0);
    }
}

/* The ranks of node 1 have lost a rail in a call. */
static void lose_rail(const member_t *member)
{
    const mpath_failover_loss_t loss = {.lost = (member->team->node == 1) ? 1u << 1 : 0};

    ranks_check(mpath_failover_settle(member->team, (loss.lost != 0) ? MPATH_ERR_UNREACHABLE : MPATH_OK, &loss) ==
                MPATH_AGAIN);
    ranks_stay_lost(member->team);
    ranks_check(member->team->lost[1] == 1u << 1);
}

#define SIZES 64 /* that decisions are compared for: multiples of 16 KiB */

/* Which calls on GPUs, and on the host, are mpath's. */
static void decide(member_t *member, int *taken)
{
    for (uint64_t i = 0; i < SIZES; i++) {
        const mpath_operation_t operation = MPATH_OPERATION_ALLREDUCE;
        uint64_t bytes                    = (i + 1) << 14;
        int on_gpus = mpath_symmetric_gate(member->symmetric, operation, bytes, bytes, 1) == MPATH_OK;

        taken[i] = on_gpus +
                   ((mpath_symmetric_gate(member->symmetric, operation, bytes, bytes, 0) == MPATH_OK) ? 2 : 0);
    }
}

/* A communicator that is made after the loss decides as the one before it, and so do calls on GPUs of both. */
static void check_decisions(member_t *member, ranks_self_t *self, const int *taken)
{
    member_t late = *member;
    int now[SIZES];
    mpath_oob_t oob;

    decide(member, now);
    ranks_check(memcmp(now, taken, sizeof(now)) == 0);
    ranks_oob(self, 1, NULL, self->size, &oob);
    ranks_check(mpath_team_create(member->context, &oob, &late.team) == MPATH_OK);
    ranks_check(mpath_coll_create(late.team, &late.coll) == MPATH_OK);
    ranks_check(mpath_symmetric_create(late.team, late.coll, &late.symmetric) == MPATH_OK);
    ranks_check(mpath_share_num_rails(late.symmetric->share) == 1);
    decide(&late, now);
    ranks_check(memcmp(now, taken, sizeof(now)) == 0);
    check_allreduce(&late, self, 1 << 20, 2);
    mpath_symmetric_destroy(late.symmetric);
    mpath_coll_destroy(late.coll);
    mpath_team_destroy(late.team);
}

/* With one rail left the previous function would be as fast; with `deterministic` the order of combination stays. */
static int one_rail_body(ranks_self_t *self, void *argument)
{
    const job_t *job     = argument;
    const uint64_t count = 1 << 20;
    double *data         = zeroed(count * sizeof(double));
    int taken[SIZES];
    member_t member;

    member_init(&member, self, argument);
    check_allreduce(&member, self, count, 0);
    decide(&member, taken);
    ranks_check((taken[0] == 0) && (taken[SIZES - 1] == 3));
    lose_rail(&member);
    if (job->deterministic) {
        check_decisions(&member, self, taken);
        check_allreduce(&member, self, count, 2);
        ranks_check(mpath_share_num_rails(member.symmetric->share) == 1);
    } else {
        ranks_check(mpath_allreduce(member.symmetric, data, data, count, &doubles, 0) == MPATH_DECLINED);
        ranks_check(strcmp(mpath_symmetric_declined_because(member.symmetric), "there is one rail") == 0);
        ranks_check(member.team->lost[1] != 0);
        member.team->next_probe_ns = 0;
        member.team->recover_in    = 0;
        ranks_check(mpath_allreduce(member.symmetric, data, data, count, &doubles, 0) == MPATH_DECLINED);
    }
    member.team->next_probe_ns = 0;
    member.team->recover_in    = 0;
    check_allreduce(&member, self, count, 3); /* takes it back, unless a call that was declined has done so */
    ranks_check(member.team->lost[1] == 0);
    check_allreduce(&member, self, count, 4);
    ranks_check(mpath_share_num_rails(member.symmetric->share) == 2);
    free(data);
    member_end(&member);
    return 0;
}

static void test_deterministic(void **state)
{
    (void)state;
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        job_t job = {.setup         = {.size = 4, .nodes = 2, .nics = 2},
                     .access        = MPATH_ACCESS_AFFINE,
                     .gate_auto     = 1,
                     .deterministic = deterministic};

        assert_int_equal(ranks_run(&job.setup, one_rail_body, &job), 0);
    }
}

/* Ranks that disagree about the size of the vector hear of it. */
static int mismatch_body(ranks_self_t *self, void *argument)
{
    double *data = zeroed(60000 * sizeof(double));
    member_t member;

    member_init(&member, self, argument);
    ranks_check(mpath_status_is_error(
        mpath_allreduce(member.symmetric, data, data, 50000 + (uint64_t)(self->rank == 1), &doubles, 0)));
    free(data);
    member_end(&member);
    return 0;
}

static void test_mismatch(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = MPATH_ACCESS_ALL};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, mismatch_body, &job), 0);
}

typedef struct trap {
    int calls_left, kill, others;
} trap_t;

/* Shared by the ranks: how many have come back from the call with the trap. */
static atomic_int *gave_up;

/* In the middle of the pipeline a rank dies, or does nothing any more until the others have given up. */
static void trapped_add(void *argument, const void *in, void *inout, uint64_t elements)
{
    trap_t *trap = argument;

    if (trap->calls_left-- == 0) {
        if (trap->kill) {
            raise(SIGKILL);
        }
        while (atomic_load(gave_up) < trap->others) {
            usleep(10000);
        }
    }
    add_doubles(NULL, in, inout, elements);
}

static int trapped_body(ranks_self_t *self, void *argument)
{
    const job_t *job                = argument;
    uint64_t elements               = 200000;
    double *data                    = zeroed(elements * sizeof(double));
    trap_t trap                     = {.calls_left = 5, .kill = !job->stall, .others = self->size - 1};
    mpath_combination_t combination = doubles;
    mpath_status_t status;
    member_t member;

    member_init(&member, self, job);
    check_allreduce(&member, self, 30000, 0);
    ranks_barrier(self);
    if (job->stall) {
        member.context->settings.timeout_s = 2;
    }
    if (self->rank == job->victim) {
        combination.reduce   = trapped_add;
        combination.argument = &trap;
    }
    status = mpath_allreduce(member.symmetric, data, data, elements, &combination, 0);
    atomic_fetch_add(gave_up, 1);
    ranks_check(mpath_status_is_error(status));
    ranks_check(mpath_status_is_error(mpath_allreduce(member.symmetric, data, data, elements, &doubles, 0)));
    free(data);
    member_end(&member);
    return 0;
}

static void test_killed(void **state)
{
    (void)state;
    for (int victim = 0; victim < 4; victim++) {
        job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .may_die = 1u << victim, .deaf = 1},
                     .access    = MPATH_ACCESS_AFFINE,
                     .algorithm = MPATH_ALGORITHM_LANES,
                     .victim    = victim};

        assert_int_equal(ranks_run(&job.setup, trapped_body, &job), 0);
    }
}

/* In steps, where most nodes hear nothing from the one whose rank has died. */
static void test_killed_in_steps(void **state)
{
    job_t job = {.setup       = {.size = 10, .nodes = 5, .nics = 2, .may_die = 1u << 3, .deaf = 1},
                 .access      = MPATH_ACCESS_AFFINE,
                 .algorithm   = MPATH_ALGORITHM_LANES,
                 .steps_nodes = 2,
                 .victim      = 3};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, trapped_body, &job), 0);
}

static void test_stalled(void **state)
{
    job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .deaf = 1},
                 .access    = MPATH_ACCESS_AFFINE,
                 .algorithm = MPATH_ALGORITHM_LANES,
                 .victim    = 2,
                 .stall     = 1};

    (void)state;
    atomic_store(gave_up, 0);
    assert_int_equal(ranks_run(&job.setup, trapped_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decline),  cmocka_unit_test(test_lost_rail), cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_killed),    cmocka_unit_test(test_killed_in_steps),
        cmocka_unit_test(test_stalled),
    };

    gave_up = mmap(NULL, sizeof(*gave_up), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return (gave_up == MAP_FAILED) ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
