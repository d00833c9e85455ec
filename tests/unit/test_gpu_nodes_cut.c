/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that fall silent in the middle of reductions and gathers between nodes of GPUs, on the driver without a GPU: the
 * calls go on over those that are left, with the same bits.
 */
#include "pipeline/pipeline_private.h"
#include "rail/fabric_private.h"
#include "gpu_held.h"
#include "gpu_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ALLREDUCE_IN_PLACE, ALLREDUCE, REDUCE_SCATTER, ALLGATHER };

typedef struct cut {
    int operation, failures;
    uint64_t after;       /* chunks */
    mpath_status_t fails; /* MPATH_OK: the rail falls silent; else it says so, while GPUs are at work */
    int at_once;          /* the second failure: with the first chunk, which may be of results that are handed out */
    int nodes;            /* in steps between so many; 0: two that exchange directly */
} cut_t;

/*
 * The rail of rank 1 falls silent, and where there are two failures that of rank 2 in the attempt after: what its driver
 * sends after so many chunks never arrives.
 */
#define FIRST_VICTIM 1
#define RAILS 3

static struct {
    const mpath_lane_ops_t *sound;
    mpath_lane_ops_t ops;
    const mpath_symmetric_t *symmetric;
    int rails; /* of the engine in which it happens; 0: in none */
    uint64_t after;
    mpath_status_t fails;
    int sprung;
} trap;

static mpath_status_t send_some(mpath_lane_t *lane, int peer, const mpath_chunk_t *chunk, const void *data,
                                mpath_lane_op_t *op)
{
    const mpath_share_t *share = trap.symmetric->share;

    if ((trap.rails == share->num_rails) && (share->job != NULL) && share->job->settles) {
        if (trap.after == 0) {
            trap.sprung = 1;
            return trap.fails;
        }
        trap.after--;
    }
    return trap.sound->send(lane, peer, chunk, data, op);
}

static void set_trap(const own_t *own, int rails, const cut_t *cut)
{
    mpath_fabric_t *fabric = own->member.context->fabric;
    rail_t *rail           = rail_lock(fabric, fabric->newest[own->self->local_rank]);

    trap.sound      = rail->lane->ops;
    trap.ops        = *trap.sound;
    trap.ops.send   = send_some;
    rail->lane->ops = &trap.ops;
    rail_unlock(rail);
    trap.symmetric = own->member.symmetric;
    trap.rails     = rails;
    trap.after     = ((rails < RAILS) && cut->at_once) ? 0 : cut->after;
    trap.fails     = cut->fails;
}

static void cut_init(own_t *own, ranks_self_t *self, int steps_nodes)
{
    member_t *member = &own->member;

    memset(own, 0, sizeof(*own));
    own->self = self;
    mpath_settings_init(&member->settings);
    member->settings.access         = MPATH_ACCESS_AFFINE;
    member->settings.gate           = MPATH_GATE_ALWAYS;
    member->settings.memory_bytes   = 4 << 20;
    member->settings.resend_min_ms  = 0;
    member->settings.resend_after_s = 4; /* rails that work are not silent for so long */
    member->settings.timeout_s      = 120;
    member->settings.steps_nodes    = steps_nodes;
    member_open(member, self);
    own_alloc(own, MPATH_MEMORY_DEVICE);
}

/* `call`: its number, so that a reduction has other results than those before it. */
static void run(own_t *own, int operation, uint64_t call)
{
    uint64_t about = ((own->self->size > 6) ? 2 : 4) * MOST; /* of all ranks as many as a buffer holds */

    switch (operation) {
    case ALLREDUCE:
        ranks_check(allreduce(own, MOST, 2 * call, 0) == MPATH_OK);
        check_sums(own, MOST, 2 * call, 0);
        break;
    case REDUCE_SCATTER:
        ranks_check(reduce_scatter(own, MOST / 8, 1 + 3 * call) == MPATH_OK);
        check_blocks(own, MOST / 8, 1 + 3 * call);
        break;
    case ALLGATHER:
        ranks_check(allgather(own, about, 1) == MPATH_OK);
        check_gathered(own, about, 1);
        break;
    default:
        ranks_check(allreduce(own, MOST, 1, 0) == MPATH_OK);
        check_sums(own, MOST, 1, 0);
    }
}

static int cut_body(ranks_self_t *self, void *argument)
{
    const cut_t *cut = argument;
    int order        = self->rank - FIRST_VICTIM; /* which failure is this rank's */
    uint64_t rounds  = ((cut->operation <= ALLREDUCE) && (cut->fails == MPATH_OK)) ? 4 : 2;
    own_t own;

    setenv("FAKE_CUDA_DEVICES", "8", 1);
    setenv("FAKE_CUDA_DELAY_US", (cut->fails == MPATH_OK) ? "2000" : (self->rank == 0) ? "20000" : "30", 1);
    gpu_application_starts();
    cut_init(&own, self, cut->nodes);
    for (uint64_t round = 0; round < rounds; round++) {
        if ((round == 1) && (order >= 0) && (order < cut->failures)) {
            set_trap(&own, RAILS - order, cut);
        }
        run(&own, cut->operation, round);
        ranks_stay_lost(own.member.team);
        ranks_check(mpath_share_num_rails(own.member.symmetric->share) == RAILS - ((round == 0) ? 0 : cut->failures));
        ranks_check(trap.sprung == (trap.sound != NULL));
    }
    ranks_check(gpu_calls(&own) == rounds);
    own_end(&own);
    return 0;
}

static void test_cut(void **state)
{
    cut_t cuts[]        = {{ALLREDUCE_IN_PLACE, 1, 0, MPATH_OK, 0, 0},
                           {ALLREDUCE_IN_PLACE, 1, 5, MPATH_OK, 0, 0},
                           {ALLREDUCE_IN_PLACE, 1, 12, MPATH_OK, 0, 0},
                           {ALLREDUCE_IN_PLACE, 2, 7, MPATH_OK, 0, 0},
                           {ALLREDUCE_IN_PLACE, 2, 12, MPATH_OK, 1, 0},
                           {ALLREDUCE_IN_PLACE, 1, 8, MPATH_ERR_UNREACHABLE, 0, 0},
                           {ALLREDUCE_IN_PLACE, 1, 13, MPATH_ERR_UNREACHABLE, 0, 0},
                           {ALLREDUCE, 1, 0, MPATH_OK, 0, 0},
                           {ALLREDUCE, 1, 5, MPATH_OK, 0, 0},
                           {ALLREDUCE, 2, 12, MPATH_OK, 1, 0},
                           {ALLREDUCE, 1, 13, MPATH_ERR_UNREACHABLE, 0, 0},
                           {REDUCE_SCATTER, 1, 4, MPATH_OK, 0, 0},
                           {ALLGATHER, 1, 4, MPATH_OK, 0, 0},
                           {ALLREDUCE_IN_PLACE, 2, 3, MPATH_OK, 0, 3},
                           {ALLREDUCE, 1, 5, MPATH_ERR_UNREACHABLE, 0, 3},
                           {REDUCE_SCATTER, 1, 2, MPATH_OK, 0, 3},
                           {ALLGATHER, 1, 2, MPATH_OK, 0, 3}};
    ranks_setup_t setup = {.nics = RAILS, .nic_bps = FAST_RAIL_BPS};

    (void)state;
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        setup.nodes = (cuts[i].nodes > 0) ? cuts[i].nodes : 2;
        setup.size  = 3 * setup.nodes;
        assert_int_equal(ranks_run(&setup, cut_body, &cuts[i]), 0);
    }
}

/* What a GPU does later must not meet another attempt: the call ends in an error when it has not done it by the deadline. */
static int held_body(ranks_self_t *self, void *argument)
{
    own_t own;

    (void)argument;
    setenv("FAKE_CUDA_DEVICES", "8", 1);
    gpu_application_starts();
    cut_init(&own, self, 0);
    run(&own, REDUCE_SCATTER, 0);
    ranks_barrier(self);
    own.member.context->settings.timeout_s = 6;
    gpu_is_held                            = self->rank == 2;
    ranks_check(mpath_status_is_error(reduce_scatter(&own, MOST / 8, 1)));
    gpu_is_held = 0;
    own_end(&own);
    return 0;
}

static void test_held(void **state)
{
    const ranks_setup_t setup = {.size = 6, .nodes = 2, .nics = RAILS, .nic_bps = FAST_RAIL_BPS};

    (void)state;
    assert_int_equal(ranks_run(&setup, held_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut), cmocka_unit_test(test_held)};

    return cmocka_run_group_tests_name("gpu_nodes_cut", tests, NULL, NULL);
}
