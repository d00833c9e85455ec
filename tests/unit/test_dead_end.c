/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that cannot be repeated, of which the other end of a rail does not answer any more: who waits for something from
 * there asks, whatever else holds it up, and the call ends in an error at once. What is not asked about has a deadline
 * only in blocking calls. The answers are not UCX's here.
 */
#include "coll/alltoallv.h"
#include "rail/fabric.h"
#include "unit/a2a.h"
#include "unit/capture.h"
#include "unit/silent_rail.h"
#include "unit/symmetric_support.h"
#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS 6
#define NICS 3
#define VICTIM 1 /* drives rail 1 of node 0 */
#define OTHER_END 4
#define ELEMENTS 150000ull
#define TIMEOUT_S 100
#define STALL_US 3000000

static int dead_rank = -1; /* does not answer over rails */
static int stalls;         /* this rank is late with its first connection */
static int asked;          /* for the state of a peer */
static int sends_fail;     /* of this rank */

/* Instead of the functions of these names, by the linker. */
mpath_status_t __real_mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to);
mpath_status_t __wrap_mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to);
mpath_status_t __wrap_mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to)
{
    if (rank == dead_rank) {
        asked++;
        return MPATH_ERR_UNREACHABLE;
    }
    return __real_mpath_wire_peer_status(wire, nic, rank, nic_to);
}

int __real_mpath_fabric_peer(mpath_fabric_t *fabric, int rail, const void *address, size_t bytes, const char *name);
int __wrap_mpath_fabric_peer(mpath_fabric_t *fabric, int rail, const void *address, size_t bytes, const char *name);
int __wrap_mpath_fabric_peer(mpath_fabric_t *fabric, int rail, const void *address, size_t bytes, const char *name)
{
    if (stalls) {
        stalls = 0;
        usleep(STALL_US);
    }
    return __real_mpath_fabric_peer(fabric, rail, address, bytes, name);
}

mpath_status_t __wrap_mpath_fabric_peer_status(mpath_fabric_t *fabric, int rail, int peer);
mpath_status_t __wrap_mpath_fabric_peer_status(mpath_fabric_t *fabric, int rail, int peer)
{
    (void)fabric;
    (void)rail;
    (void)peer;
    asked++;
    return (dead_rank >= 0) ? MPATH_ERR_UNREACHABLE : MPATH_OK;
}

mpath_status_t __real_mpath_fabric_send(mpath_fabric_t *fabric, int rail, int peer, const mpath_chunk_t *chunk,
                                        const void *data, mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_send(mpath_fabric_t *fabric, int rail, int peer, const mpath_chunk_t *chunk,
                                        const void *data, mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_send(mpath_fabric_t *fabric, int rail, int peer, const mpath_chunk_t *chunk,
                                        const void *data, mpath_lane_op_t *op)
{
    return sends_fail ? MPATH_ERR_UNREACHABLE : __real_mpath_fabric_send(fabric, rail, peer, chunk, data, op);
}

/* A line says whom, by which rail, and what becomes of the call. */
static int says_who(const char *whom)
{
    const char *line = strstr(capture_text(), whom), *end = (line != NULL) ? strstr(line, "the call fails") : NULL;

    return (end != NULL) && (memchr(line, '\n', (size_t)(end - line)) == NULL);
}

static void open_member(member_t *member, ranks_self_t *self)
{
    capture_start();
    mpath_settings_init(&member->settings);
    member->settings.access                   = MPATH_ACCESS_AFFINE;
    member->settings.gate                     = MPATH_GATE_ALWAYS;
    member->settings.memory_bytes             = 4 << 20;
    member->settings.resend_after_s           = 0;
    member->settings.timeout_s                = TIMEOUT_S;
    member->settings.reduce_scatter_algorithm = MPATH_ALGORITHM_LANES;
    member->settings.alltoallv_algorithm      = MPATH_ALGORITHM_LANES;
    member_open(member, self);
}

/* -- a reduction whose rail falls silent: the end of the other node, held up by its mates as well, asks -- */

typedef struct trap {
    mpath_share_t *share;
    int calls_left; /* 0: off */
} trap_t;

static void add_until_trap(void *argument, const void *in, void *inout, uint64_t elements)
{
    trap_t *trap = argument;

    add_doubles(NULL, in, inout, elements);
    if ((trap->calls_left > 0) && (--trap->calls_left == 0)) {
        fall_silent(trap->share, SHARE_SCATTER);
    }
}

/* `argument`: not NULL: that it does not answer any more is known before. */
static int reduction_body(ranks_self_t *self, void *argument)
{
    int known    = argument != NULL;
    double *send = zeroed(ELEMENTS * sizeof(*send)), *recv = zeroed(ELEMENTS * sizeof(*recv));
    trap_t trap                   = {0};
    mpath_combination_t with_trap = {.element_bytes = sizeof(double), .reduce = add_until_trap, .argument = &trap};
    uint64_t blocks[RANKS];
    mpath_status_t status;
    member_t member;

    open_member(&member, self);
    for (int rank = 0; rank < RANKS; rank++) {
        blocks[rank] = ELEMENTS / RANKS;
    }
    ranks_check(mpath_reduce_scatter(member.symmetric, send, recv, blocks, &with_trap, 0) == MPATH_OK);
    ranks_check(mpath_share_num_rails(member.symmetric->share) == NICS);
    trap.share      = member.symmetric->share;
    trap.calls_left = (!known && (self->rank == VICTIM)) ? 2 : 0;
    dead_rank       = (self->node == 1) ? VICTIM : -1;
    sends_fail      = known && (self->rank == VICTIM);
    status          = mpath_reduce_scatter(member.symmetric, send, recv, blocks, &with_trap, 0);
    ranks_check(mpath_status_is_error(status));
    ranks_check((self->rank != OTHER_END) || (status == MPATH_ERR_UNREACHABLE)); /* and not the deadline */
    ranks_check(!sends_fail || says_who("rank 4 (virtual1) can no longer be reached by rail lo"));
    ranks_barrier(self);
    member_end(&member);
    free(send);
    free(recv);
    return 0;
}

static void test_reduction(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS};

    (void)state;
    assert_int_equal(ranks_run(&setup, reduction_body, NULL), 0);
}

static void test_known_reduction(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS};
    int known                 = 1;

    (void)state;
    assert_int_equal(ranks_run(&setup, reduction_body, &known), 0);
}

/* -- a rank that only receives -- */

static mpath_status_t send_to_last(mpath_coll_t *coll, a2a_t *data, uint64_t round)
{
    uint64_t demand[4];

    a2a_demand(A2A_ONE_PAIR, 2, 1000000, round, demand);
    a2a_fill(data, demand, round);
    return mpath_alltoallv(coll, &data->call);
}

/* The sender is late, which is nothing to the receiver while it answers, and then does not answer. */
static int receiver_body(ranks_self_t *self, void *argument)
{
    mpath_status_t status;
    member_t member;
    a2a_t data;

    open_member(&member, self);
    a2a_init(&data, self->rank, self->size);
    stalls    = self->rank == 0;
    dead_rank = ((argument != NULL) && (self->rank == 1)) ? 0 : -1;
    status    = send_to_last(member.coll, &data, 1);
    if (self->rank == 1) {
        ranks_check(asked > 0);
        ranks_check(status == ((argument != NULL) ? MPATH_ERR_UNREACHABLE : MPATH_OK));
        ranks_check((status != MPATH_OK) || (a2a_check(&data) == 0));
    }
    ranks_barrier(self);
    a2a_end(&data);
    member_end(&member);
    return 0;
}

static void run_receiver(void *argument)
{
    const ranks_setup_t setup = {.size = 2, .nodes = 2, .nics = 1};

    assert_int_equal(ranks_run(&setup, receiver_body, argument), 0);
}

static void test_receiver(void **state)
{
    int dead = 1;

    (void)state;
    run_receiver(&dead);
}

static void test_late_sender(void **state)
{
    (void)state;
    run_receiver(NULL);
}

/* -- a rank that sends to an end that is known not to answer -- */

static int sender_body(ranks_self_t *self, void *argument)
{
    mpath_status_t status;
    member_t member;
    a2a_t data;

    (void)argument;
    open_member(&member, self);
    a2a_init(&data, self->rank, self->size);
    ranks_check(send_to_last(member.coll, &data, 1) == MPATH_OK);
    sends_fail = self->rank == 0;
    status     = send_to_last(member.coll, &data, 2);
    ranks_check(status == MPATH_ERR_UNREACHABLE);
    ranks_check((self->rank != 0) || says_who("rank 1 (virtual1) can no longer be reached by rail lo"));
    ranks_barrier(self);
    a2a_end(&data);
    member_end(&member);
    return 0;
}

static void test_sender(void **state)
{
    const ranks_setup_t setup = {.size = 2, .nodes = 2, .nics = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, sender_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reduction), cmocka_unit_test(test_known_reduction),
                                       cmocka_unit_test(test_receiver), cmocka_unit_test(test_late_sender),
                                       cmocka_unit_test(test_sender)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
