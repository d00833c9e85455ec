/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce, Reduce_scatter and Allgather between nodes of GPUs, on the driver without a GPU: the bits are those of host
 * memory, guard bytes stay, memory comes and goes, ranks that differ decline together, and a rail that falls silent in
 * the middle is left out.
 */
#include "coll/share_private.h"
#include "gpu_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int all_body(ranks_self_t *self, void *argument)
{
    static const uint64_t sizes[] = {1, 100, 1000, 20011, 50021};
    uint64_t calls                = 0;
    own_t own;

    own_init(&own, self, argument);
    for (uint64_t round = 0; round < 2 * sizeof(sizes) / sizeof(sizes[0]); round++) {
        uint64_t elements = sizes[round / 2], skip = (round % 3) * 5;

        ranks_check(allreduce(&own, elements, round, skip) == MPATH_OK);
        check_sums(&own, elements, round, skip);
        ranks_check(reduce_scatter(&own, elements / 3 + 1, round) == MPATH_OK);
        check_blocks(&own, elements / 3 + 1, round);
        ranks_check(allgather(&own, elements * 2, round) == MPATH_OK);
        check_gathered(&own, elements * 2, round);
        calls += 3;
        ranks_check(gpu_calls(&own) == calls);
        if (round % 4 == 3) { /* other memory, maybe at the same addresses */
            ranks_barrier(self);
            own_free(&own);
            own_alloc(&own, (round % 8 == 3) ? MPATH_MEMORY_VMM : MPATH_MEMORY_DEVICE);
        }
    }
    ranks_check(allreduce(&own, 0, 0, 0) == MPATH_OK);
    check_sums(&own, 0, 0, 0);
    own_end(&own);
    return 0;
}

static void run_all(int size, int nodes, const int *node_of, int nics, int access, uint64_t memory_bytes)
{
    job_t job = {.setup        = {.size = size, .nodes = nodes, .node_of = node_of, .nics = nics},
                 .access       = access,
                 .algorithm    = MPATH_ALGORITHM_AUTO,
                 .memory_bytes = memory_bytes};

    assert_int_equal(ranks_run(&job.setup, all_body, &job), 0);
}

static void test_layouts(void **state)
{
    const int uneven[] = {0, 1, 0, 0, 1}, dealt[] = {0, 1, 0, 1};

    (void)state;
    run_all(4, 2, NULL, 2, MPATH_ACCESS_AFFINE, 0);
    run_all(3, 3, NULL, 1, MPATH_ACCESS_ALL, 0);
    run_all(5, 0, uneven, 2, MPATH_ACCESS_ALL, 0);
    run_all(4, 0, dealt, 2, MPATH_ACCESS_AFFINE, 2 << 20);
}

/* Who has the data where it cannot be shared makes all decline; afterwards all is as before. */
static int mixed_body(ranks_self_t *self, void *argument)
{
    const uint64_t blocks[] = {100, 100, 100, 100};
    mpath_symmetric_buffers_t buffers;
    gpu_memory_t managed;
    own_t own;

    own_init(&own, self, argument);
    gpu_memory_alloc(MPATH_MEMORY_MANAGED, self->rank, 4096, 0, &managed);
    for (uint64_t round = 0; round < 3; round++) {
        ranks_check(allreduce(&own, 1000, round, 0) == MPATH_OK);
        check_sums(&own, 1000, round, 0);
        buffers = buffers_of(&own, 0, 0);
        if (self->rank == (int)round) {
            buffers.recv        = own.recv.host;
            buffers.recv_memory = NULL;
        }
        ranks_check(mpath_allreduce_anywhere(own.member.symmetric, &buffers, 1000, &doubles, &sums) == MPATH_DECLINED);
        buffers = buffers_of(&own, 0, 0);
        if (self->rank == (int)round) { /* not where a double may lie */
            buffers.send = (const char *)buffers.send + 4;
        }
        ranks_check(mpath_allreduce_anywhere(own.member.symmetric, &buffers, 1000, &doubles, &sums) == MPATH_DECLINED);
        buffers = buffers_of(&own, 1, 0); /* in place */
        ranks_check(mpath_reduce_scatter_anywhere(own.member.symmetric, &buffers, blocks, &doubles, &sums) ==
                    MPATH_DECLINED);
    }
    /* host memory on all ranks is carried in the same agreement */
    for (uint64_t i = 0; i < 1000; i++) {
        own.send.host[i] = value_of(self->rank, i, 9);
    }
    buffers = (mpath_symmetric_buffers_t){.send = own.send.host, .recv = own.recv.host};
    ranks_check(mpath_allreduce_anywhere(own.member.symmetric, &buffers, 1000, &doubles, &sums) == MPATH_OK);
    for (uint64_t i = 0; i < 1000; i++) {
        double expected = sum_of(&own.member, self->size, i, 9);

        ranks_check(memcmp(&own.recv.host[i], &expected, sizeof(expected)) == 0);
    }
    ranks_check(gpu_calls(&own) == 3);
    gpu_memory_free(&managed);
    own_end(&own);
    return 0;
}

static void test_mixed(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, mixed_body, &job), 0);
}

/*
 * A rail that falls silent: as far as its driver knows it has sent all, from the moment on when it has combined so many
 * segments. The rank notices that while it waits.
 */
#define VICTIM 1

static struct {
    mpath_share_t *share; /* NULL: the trap is not set */
    uint64_t after;
    void (*progress)(void *context);
} trap;

static void fall_silent(void *context)
{
    mpath_share_t *share = trap.share;

    trap.progress(context);
    if ((share == NULL) || (share->job == NULL) || (share->links[0].combined < trap.after)) {
        return;
    }
    for (int k = 0; k < SHARE_PHASES * share->num_nodes; k++) {
        share->links[0].next_send[k % SHARE_PHASES][k / SHARE_PHASES]  = share->num_segments;
        share->links[0].sent_bytes[k % SHARE_PHASES][k / SHARE_PHASES] = 0;
    }
    trap.share = NULL; /* the engine is made anew */
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

static int cut_body(ranks_self_t *self, void *argument)
{
    const uint64_t *after = argument;
    own_t own;

    setenv("FAKE_CUDA_DEVICES", "8", 1);
    setenv("FAKE_CUDA_DELAY_US", "2000", 1); /* so that ranks wait, and the trap is looked at */
    gpu_application_starts();
    cut_init(&own, self);
    for (uint64_t round = 0; round < 4; round++) {
        trap.after = *after;
        trap.share = ((self->rank == VICTIM) && (round == 1)) ? own.member.symmetric->share : NULL;
        ranks_check(allreduce(&own, MOST, 1, 0) == MPATH_OK); /* in place */
        check_sums(&own, MOST, 1, 0);
        ranks_check(mpath_share_num_rails(own.member.symmetric->share) == ((round == 0) ? 3 : 2));
        ranks_check(trap.share == NULL);
    }
    ranks_check(gpu_calls(&own) == 4);
    own_end(&own);
    return 0;
}

static void test_cut(void **state)
{
    static uint64_t after[] = {0, 2, 5};
    ranks_setup_t setup     = {.size = 6, .nodes = 2, .nics = 3, .limit_s = 120};

    (void)state;
    for (size_t i = 0; i < sizeof(after) / sizeof(after[0]); i++) {
        assert_int_equal(ranks_run(&setup, cut_body, &after[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts), cmocka_unit_test(test_mixed),
                                       cmocka_unit_test(test_cut)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
