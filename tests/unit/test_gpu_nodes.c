/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce, Reduce_scatter and Allgather between nodes of GPUs, on the driver without a GPU: the bits are those of host
 * memory, guard bytes stay, memory comes and goes, ranks that differ decline together, and a rail that falls silent in
 * the middle is left out.
 */
#include "coll/share_private.h"
#include "gpu_kinds.h"
#include "symmetric_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST 200000ull /* elements of a buffer, at least */

/* Buffers of a rank, and what the host has put there. */
typedef struct side {
    gpu_memory_t gpu;
    mpath_memory_t memory;
    double *host;
} side_t;

typedef struct own {
    ranks_self_t *self;
    member_t member;
    side_t send, recv;
} own_t;

static const mpath_reduce_how_t sums = {MPATH_REDUCE_SUM, MPATH_REDUCE_F64};

static void side_alloc(side_t *side, int device, mpath_memory_kind_t kind)
{
    uint64_t bytes = (4 * MOST + 64) * sizeof(double);

    gpu_memory_alloc(kind, device, bytes, 1, &side->gpu);
    ranks_check(mpath_memory_classify((void *)(uintptr_t)side->gpu.address, bytes, &side->memory) == MPATH_OK);
    side->host = zeroed(bytes);
}

static void side_free(side_t *side)
{
    gpu_memory_free(&side->gpu);
    free(side->host);
}

static void own_alloc(own_t *own, mpath_memory_kind_t kind)
{
    side_alloc(&own->send, own->self->rank, kind);
    side_alloc(&own->recv, own->self->rank, kind);
}

static void own_free(own_t *own)
{
    side_free(&own->send);
    side_free(&own->recv);
}

static void own_init(own_t *own, ranks_self_t *self, const job_t *job)
{
    setenv("FAKE_CUDA_DEVICES", "8", 1);
    gpu_application_starts();
    memset(own, 0, sizeof(*own));
    own->self = self;
    member_init(&own->member, self, job);
    own_alloc(own, MPATH_MEMORY_DEVICE);
}

static void own_end(own_t *own)
{
    ranks_barrier(own->self);
    member_end(&own->member);
    own_free(own);
    mpath_gpu_cleanup();
}

static void store(const side_t *side, uint64_t bytes)
{
    gpu_memory_write(side->gpu.address, side->host, bytes);
}

static void load(const side_t *side, uint64_t bytes)
{
    gpu_memory_read(side->gpu.address, side->host, bytes);
}

/* `skip` bytes into both buffers. */
static mpath_symmetric_buffers_t buffers_of(const own_t *own, int in_place, uint64_t skip)
{
    const side_t *send = in_place ? &own->recv : &own->send;

    return (mpath_symmetric_buffers_t){.send        = (void *)(uintptr_t)(send->gpu.address + skip),
                                       .recv        = (void *)(uintptr_t)(own->recv.gpu.address + skip),
                                       .send_memory = &send->memory,
                                       .recv_memory = &own->recv.memory};
}

static uint64_t gpu_calls(const own_t *own)
{
    mpath_coll_counters_t counters;

    mpath_symmetric_counters(own->member.symmetric, &counters);
    return counters.gpu.calls;
}

static mpath_status_t allreduce(own_t *own, uint64_t elements, uint64_t round, uint64_t skip)
{
    mpath_symmetric_buffers_t buffers = buffers_of(own, (int)(round % 2), skip * sizeof(double));
    double *from                      = ((round % 2) ? &own->recv : &own->send)->host + skip;

    own->recv.host[skip + elements] = 4711;
    for (uint64_t i = 0; i < elements; i++) {
        from[i] = value_of(own->self->rank, i, round);
    }
    store(&own->send, (skip + elements) * sizeof(double));
    store(&own->recv, (skip + elements + 1) * sizeof(double));
    return mpath_allreduce_anywhere(own->member.symmetric, &buffers, elements, &doubles, &sums);
}

static void check_sums(own_t *own, uint64_t elements, uint64_t round, uint64_t skip)
{
    const double *data = own->recv.host + skip;

    load(&own->recv, (skip + elements + 1) * sizeof(double));
    for (uint64_t i = 0; i < elements; i++) {
        double expected = sum_of(&own->member, own->self->size, i, round);

        ranks_check(memcmp(&data[i], &expected, sizeof(expected)) == 0);
    }
    ranks_check(data[elements] == 4711);
}

static uint64_t block_of(int rank, uint64_t about, uint64_t round)
{
    return ((uint64_t)rank + round) % 3 == 0 ? 0 : about + (uint64_t)rank * (about / 5 + 1);
}

static void check_reduce_scatter_on(own_t *own, uint64_t about, uint64_t round)
{
    mpath_symmetric_buffers_t buffers = buffers_of(own, 0, 0);
    uint64_t blocks[RANKS_MAX], total = 0, first = 0, mine;

    for (int rank = 0; rank < own->self->size; rank++) {
        blocks[rank] = block_of(rank, about, round);
        first += (rank < own->self->rank) ? blocks[rank] : 0;
        total += blocks[rank];
    }
    mine = blocks[own->self->rank];
    for (uint64_t i = 0; i < total; i++) {
        own->send.host[i] = value_of(own->self->rank, i, round);
    }
    own->recv.host[mine] = 4711;
    store(&own->send, total * sizeof(double));
    store(&own->recv, (mine + 1) * sizeof(double));
    if (mine == 0) { /* as glue tells of empty sides */
        buffers.recv        = NULL;
        buffers.recv_memory = NULL;
    }
    ranks_check(mpath_reduce_scatter_anywhere(own->member.symmetric, &buffers, blocks, &doubles, &sums) == MPATH_OK);
    load(&own->recv, (mine + 1) * sizeof(double));
    for (uint64_t i = 0; i < mine; i++) {
        double expected = sum_of(&own->member, own->self->size, first + i, round);

        ranks_check(memcmp(&own->recv.host[i], &expected, sizeof(expected)) == 0);
    }
    ranks_check(own->recv.host[mine] == 4711);
}

static unsigned char byte_of(int rank, uint64_t position, uint64_t round)
{
    return (unsigned char)((uint64_t)rank * 29 + position * 3 + (position >> 8) + round * 7 + 1);
}

/* Blocks in an order that differs between ranks, with guard bytes between them; of odd sizes, or multiples of 16. */
static void check_allgather_on(own_t *own, uint64_t about, uint64_t round)
{
    int in_place = (int)(round % 2), size = own->self->size, me = own->self->rank;
    mpath_symmetric_buffers_t buffers = buffers_of(own, in_place, 0);
    uint64_t bytes[RANKS_MAX], offsets[RANKS_MAX], gap = (round < 6) ? 1 : 16, total = gap;
    unsigned char *send = (unsigned char *)own->send.host, *recv = (unsigned char *)own->recv.host;

    for (int i = 0; i < size; i++) {
        int rank      = (i + me) % size;
        bytes[rank]   = (round < 6) ? block_of(rank, about, round) : block_of(rank, about / 16, round) * 16;
        offsets[rank] = total;
        total += bytes[rank] + gap;
    }
    memset(recv, 0xA5, total);
    for (uint64_t i = 0; i < bytes[me]; i++) {
        send[i] = byte_of(me, i, round);
        if (in_place) {
            recv[offsets[me] + i] = send[i];
        }
    }
    store(&own->send, bytes[me]);
    store(&own->recv, total);
    buffers.send_memory = (bytes[me] > 0) ? buffers.send_memory : NULL;
    if (in_place) {
        buffers.send = NULL;
    }
    ranks_check(mpath_allgather_anywhere(own->member.symmetric, &buffers, bytes, offsets) == MPATH_OK);
    load(&own->recv, total);
    for (int rank = 0; rank < size; rank++) {
        ranks_check(recv[offsets[rank] - 1] == 0xA5);
        for (uint64_t i = 0; i < bytes[rank]; i++) {
            ranks_check(recv[offsets[rank] + i] == byte_of(rank, i, round));
        }
    }
    ranks_check(recv[total - 1] == 0xA5);
}

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
        check_reduce_scatter_on(&own, elements / 3 + 1, round);
        check_allgather_on(&own, elements * 2, round);
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
