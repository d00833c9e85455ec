/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that fall silent in the middle of reductions and gathers between nodes of GPUs, on the driver without a GPU: the
 * calls go on over those that are left, with the same bits.
 */
#include "coll/share_private.h"
#include "gpu_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUNDS 4

enum { ALLREDUCE_IN_PLACE, REDUCE_SCATTER, ALLGATHER };

typedef struct cut {
    int operation, failures;
    uint64_t after; /* segments */
} cut_t;

/*
 * The rail of rank 1 falls silent, and where there are two failures that of rank 2 in the attempt after: as far as its
 * driver knows it has sent all, from the moment on when it has had so many segments. The rank notices that while it
 * waits.
 */
#define FIRST_VICTIM 1
#define RAILS 3

static struct {
    const mpath_symmetric_t *symmetric;
    int rails; /* of the engine in which it happens; 0: the trap is not set */
    uint64_t after;
    void (*progress)(void *context);
} trap;

static int is_due(const mpath_share_t *share)
{
    return (trap.rails == share->num_rails) && (share->job != NULL) && share->job->settles &&
           (((share->job->flags & MPATH_SHARE_REDUCE) ? share->links[0].combined : share->links[0].delivered) >=
            trap.after);
}

static void fall_silent(void *context)
{
    trap.progress(context);
    if ((trap.rails > 0) && is_due(trap.symmetric->share)) {
        mpath_share_t *share = trap.symmetric->share;

        for (int k = 0; k < SHARE_PHASES * share->num_nodes; k++) {
            share->links[0].next_send[k % SHARE_PHASES][k / SHARE_PHASES]  = share->num_segments;
            share->links[0].sent_bytes[k % SHARE_PHASES][k / SHARE_PHASES] = 0;
        }
        trap.rails = 0;
    }
}

static void cut_init(own_t *own, ranks_self_t *self)
{
    member_t *member = &own->member;
    mpath_oob_t oob  = self->oob;
    int next         = 0;

    memset(own, 0, sizeof(*own));
    own->self = self;
    mpath_settings_init(&member->settings);
    member->settings.access         = MPATH_ACCESS_AFFINE;
    member->settings.gate           = MPATH_GATE_ALWAYS;
    member->settings.memory_bytes   = 4 << 20;
    member->settings.resend_min_ms  = 0;
    member->settings.resend_after_s = 1;
    trap.progress                   = oob.progress;
    oob.progress                    = fall_silent;
    member->context                 = ranks_context(self, &member->settings);
    ranks_check(mpath_team_create(member->context, &oob, &member->team) == MPATH_OK);
    ranks_check(mpath_coll_create(member->team, &member->coll) == MPATH_OK);
    ranks_check(mpath_symmetric_create(member->team, member->coll, &member->symmetric) == MPATH_OK);
    for (int rank = 0; rank < self->size; rank++) { /* nodes have ranks in a row */
        member->order[next++] = rank;
        member->node_of[rank] = mpath_topo_place(mpath_team_topo(member->team), rank)->node;
    }
    own_alloc(own, MPATH_MEMORY_DEVICE);
}

static void run(own_t *own, int operation)
{
    switch (operation) {
    case REDUCE_SCATTER:
        ranks_check(reduce_scatter(own, MOST / 8, 1) == MPATH_OK);
        check_blocks(own, MOST / 8, 1);
        break;
    case ALLGATHER:
        ranks_check(allgather(own, 2 * MOST, 1) == MPATH_OK);
        check_gathered(own, 2 * MOST, 1);
        break;
    default:
        ranks_check(allreduce(own, MOST, 1, 0) == MPATH_OK);
        check_sums(own, MOST, 1, 0);
    }
}

static int cut_body(ranks_self_t *self, void *argument)
{
    const cut_t *cut = argument;
    int order        = self->rank - FIRST_VICTIM, rails; /* which failure is this rank's */
    own_t own;

    setenv("FAKE_CUDA_DEVICES", "8", 1);
    setenv("FAKE_CUDA_DELAY_US", "2000", 1); /* so that ranks wait, and the trap is looked at */
    gpu_application_starts();
    cut_init(&own, self);
    trap.symmetric = own.member.symmetric;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        trap.after = cut->after;
        trap.rails = ((round == 1) && (order >= 0) && (order < cut->failures)) ? RAILS - order : 0;
        run(&own, cut->operation);
        rails = mpath_share_num_rails(own.member.symmetric->share);
        ranks_check(rails <= RAILS - ((round == 0) ? 0 : cut->failures));
        /* the others may lose one more on a busy machine */
        if ((cut->operation == ALLREDUCE_IN_PLACE) && (cut->failures == 1)) {
            ranks_check((rails == RAILS - (round > 0)) && (trap.rails == 0));
        }
    }
    ranks_check(gpu_calls(&own) == ROUNDS);
    own_end(&own);
    return 0;
}

static void test_cut(void **state)
{
    cut_t cuts[]        = {{ALLREDUCE_IN_PLACE, 1, 0}, {ALLREDUCE_IN_PLACE, 1, 2}, {ALLREDUCE_IN_PLACE, 1, 5},
                           {ALLREDUCE_IN_PLACE, 2, 3}, {REDUCE_SCATTER, 1, 2},     {ALLGATHER, 1, 2}};
    ranks_setup_t setup = {.size = 6, .nodes = 2, .nics = RAILS, .limit_s = 120};

    (void)state;
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        assert_int_equal(ranks_run(&setup, cut_body, &cuts[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut)};

    return cmocka_run_group_tests_name("gpu_nodes_cut", tests, NULL, NULL);
}
