/* SPDX-License-Identifier: BSD-3-Clause */
/* A team that is made while another one of the same processes has left a NIC out begins without it, on all ranks. */
#include "coll/alltoallv.h"
#include "rail/fabric_private.h"
#include "unit/a2a.h"
#include "unit/lost_nics.h"
#include "util/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 4
#define NODES 2
#define NICS 3
#define LOST 2 /* the NIC that fails, on the first node */
#define HOUR_NS (3600 * MPATH_NS_PER_S)

static mpath_team_t *open_team(ranks_self_t *self, mpath_context_t *context, int channel, const int *members, int size)
{
    mpath_team_t *team;
    mpath_oob_t oob;

    ranks_oob(self, channel, members, size, &oob);
    ranks_check(mpath_team_create(context, &oob, &team) == MPATH_OK);
    return team;
}

/* The end of a good call; the NICs that are out may be asked for. */
static void end_good_call(mpath_team_t *team)
{
    team->next_probe_ns = 0;
    team->recover_in    = 0;
    ranks_check(mpath_failover_recover(team) == MPATH_OK);
}

/* A call of which every byte is checked, unless it fails; *used_p: the NICs over which this rank has sent something. */
static mpath_status_t call(mpath_team_t *team, uint32_t *used_p)
{
    uint64_t demand[RANKS * RANKS];
    uint64_t before[NICS];
    mpath_status_t status;
    mpath_coll_t *coll;
    a2a_t data;

    ranks_check(mpath_coll_create(team, &coll) == MPATH_OK);
    a2a_init(&data, mpath_team_rank(team), mpath_team_size(team));
    a2a_demand(A2A_EVEN, mpath_team_size(team), 6000000, 1, demand);
    a2a_fill(&data, demand, 1);
    for (int nic = 0; nic < NICS; nic++) {
        before[nic] = ranks_sent_bytes(nic);
    }
    status = mpath_alltoallv(coll, &data.call);
    ranks_check((status != MPATH_OK) || (a2a_check(&data) == 0));
    *used_p = 0;
    for (int nic = 0; nic < NICS; nic++) {
        *used_p |= (ranks_sent_bytes(nic) > before[nic]) ? 1u << nic : 0;
    }
    a2a_end(&data);
    mpath_coll_destroy(coll);
    return status;
}

/* A good one; the NICs over which something went. */
static uint32_t carry(mpath_team_t *team)
{
    uint32_t used, all[RANKS];

    ranks_check(call(team, &used) == MPATH_OK);
    ranks_check(mpath_team_allgather(team, &used, sizeof(used), all) == MPATH_OK);
    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        used |= all[rank];
    }
    return used;
}

/* The new team sends over the others, and takes the NIC back like the team that has lost it. */
static int begins_without_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = lost_context(self);
    mpath_team_t *early      = open_team(self, context, 1, NULL, RANKS), *late, *last;

    (void)argument;
    (void)lost_open_links(early);
    lose(early, 1, 1u << LOST);
    late = open_team(self, context, 2, NULL, RANKS);
    check_out(late, 1u << LOST, 0);
    ranks_check(carry(late) == 3);
    check_out(late, 1u << LOST, 0);
    if (self->rank == 0) { /* it waits for no longer than the other team */
        ranks_check(late->next_probe_ns == early->next_probe_ns);
    }
    end_good_call(late);
    check_out(late, 0, 0);
    ranks_check(carry(late) == 7);
    check_out(early, 1u << LOST, 0); /* to which it comes by itself */
    end_good_call(early);
    check_out(early, 0, 0);
    ranks_check(mpath_links_rail(mpath_links_of(early), LOST) == mpath_links_rail(mpath_links_of(late), LOST));
    last = open_team(self, context, 3, NULL, RANKS); /* a NIC that is back is used from the start */
    check_out(last, 0, 0);
    ranks_check(carry(last) == 7);
    ranks_barrier(self);
    mpath_team_destroy(last);
    mpath_team_destroy(late);
    mpath_team_destroy(early);
    mpath_context_destroy(context);
    return 0;
}

/* Neither the first rank of the node nor the other node's knows of the failure, and the team that does is gone. */
static int some_know_body(ranks_self_t *self, void *argument)
{
    static const int members[] = {1, 3};
    uint64_t start_ns          = mpath_time_ns();
    mpath_context_t *context   = lost_context(self);
    mpath_team_t *team;

    (void)argument;
    if ((self->rank == 1) || (self->rank == 3)) {
        team = open_team(self, context, 1, members, 2);
        (void)lost_open_links(team);
        lose(team, 0, 1u << LOST);
        mpath_team_destroy(team);
    }
    ranks_barrier(self);
    for (int channel = 2; channel < 4; channel++) {
        team = open_team(self, context, channel, NULL, RANKS);
        check_out(team, 1u << LOST, 0);
        if (self->node == 0) { /* the first rank counts from when it was told */
            ranks_check(team->next_probe_ns >= start_ns + MPATH_PROBE_FIRST_NS);
            ranks_check(team->next_probe_ns <= mpath_time_ns() + MPATH_PROBE_FIRST_NS);
        }
        ranks_check(carry(team) == 3);
        ranks_barrier(self);
        mpath_team_destroy(team);
        start_ns = (channel == 2) ? start_ns : 0;
    }
    mpath_context_destroy(context);
    return 0;
}

/* Where nobody has asked for the NIC until its time was over, the next team just tries it. */
static int long_ago_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = lost_context(self);
    mpath_team_t *team       = open_team(self, context, 1, NULL, RANKS);

    (void)argument;
    (void)lost_open_links(team);
    lose(team, 0, 1u << LOST);
    mpath_team_destroy(team);
    ranks_barrier(self);
    context->lost_until_ns = 0;
    team                   = open_team(self, context, 2, NULL, RANKS);
    check_out(team, 0, 0);
    ranks_check(carry(team) == 7);
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

/* Instead of the rail's, when it has failed. */
static mpath_status_t failed_send(mpath_lane_t *lane, int peer, const mpath_chunk_t *chunk, const void *data,
                                  mpath_lane_op_t *op)
{
    (void)lane;
    (void)peer;
    (void)chunk;
    (void)data;
    (void)op;
    return MPATH_ERR_UNREACHABLE;
}

static void break_rail(mpath_context_t *context, int nic)
{
    static mpath_lane_ops_t failed_ops;
    rail_t *rail = rail_lock(context->fabric, context->fabric->newest[nic]);

    failed_ops      = *rail->lane->ops;
    failed_ops.send = failed_send;
    rail->lane->ops = &failed_ops;
    rail_unlock(rail);
}

/* It tries it by a rail of its own while the team that has lost the old one still holds that. */
static int still_held_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = lost_context(self);
    mpath_team_t *early      = open_team(self, context, 1, NULL, RANKS), *late;

    (void)argument;
    (void)lost_open_links(early);
    break_rail(context, LOST);
    lose(early, 0, 1u << LOST);
    context->lost_until_ns = 0;
    late                   = open_team(self, context, 2, NULL, RANKS);
    check_out(late, 0, 0);
    ranks_check(carry(late) == 7);
    check_out(late, 0, 0);
    end_good_call(early);
    ranks_check(mpath_links_rail(mpath_links_of(early), LOST) == mpath_links_rail(mpath_links_of(late), LOST));
    ranks_check(carry(early) == 7);
    ranks_barrier(self);
    mpath_team_destroy(late);
    mpath_team_destroy(early);
    mpath_context_destroy(context);
    return 0;
}

/* The same where the failure has ended that team, since its calls are not repeated, and it is still there. */
static int ended_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = lost_context(self);
    mpath_team_t *early, *late;
    uint32_t used;

    (void)argument;
    context->settings.resend_after_s = 0;
    early                            = open_team(self, context, 1, NULL, RANKS);
    (void)lost_open_links(early);
    if (self->rank == 1) {
        break_rail(context, LOST);
    }
    ranks_check(mpath_status_is_error(call(early, &used)));
    ranks_barrier(self);
    late = open_team(self, context, 2, NULL, RANKS);
    ranks_check(carry(late) == 7);
    ranks_barrier(self);
    mpath_team_destroy(late);
    mpath_team_destroy(early);
    mpath_context_destroy(context);
    return 0;
}

/* What is left of the rails has to connect the ranks: where none is left, the last one is tried again. */
static int last_rail_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = lost_context(self);
    mpath_team_t *early      = open_team(self, context, 1, NULL, RANKS), *late;

    (void)argument;
    (void)lost_open_links(early);
    for (int nic = 0; nic < NICS; nic++) {
        lose(early, 3, 1u << nic);
    }
    late = open_team(self, context, 2, NULL, RANKS);
    check_out(late, 0, 3);
    ranks_check(carry(late) == 4);
    ranks_barrier(self);
    mpath_team_destroy(late);
    mpath_team_destroy(early);
    mpath_context_destroy(context);
    return 0;
}

/* A team that has moved nothing yet, since its calls are declined for the rails that are left, finds them all the same. */
static int moved_nothing_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = lost_context(self);
    mpath_team_t *early      = open_team(self, context, 1, NULL, RANKS), *late;

    (void)argument;
    (void)lost_open_links(early);
    lose(early, 0, 1u << LOST);
    late = open_team(self, context, 2, NULL, RANKS);
    end_good_call(late);
    check_out(late, 0, 0);
    ranks_check(carry(late) == 7);
    ranks_barrier(self);
    mpath_team_destroy(late);
    mpath_team_destroy(early);
    mpath_context_destroy(context);
    return 0;
}

/*
 * Of three nodes the second has a dead cable, for which the first has blamed its own NIC. That one comes back, and the
 * dead one, which does not even open, is left alone until it has a carrier, too.
 */
static int dead_end_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = lost_context(self);
    mpath_team_t *team       = open_team(self, context, 1, NULL, self->size);
    char *name               = context->machine.nics[LOST].name, kept[MPATH_NIC_NAME_MAX];

    (void)argument;
    (void)lost_open_links(team);
    lose(team, 0, 1u << LOST);
    lose(team, 1, 1u << LOST);
    strcpy(kept, name);
    if (self->node == 1) {
        strcpy(name, "no-such-nic");
    }
    team->next_probe_ns = (self->node == 0) ? 0 : mpath_time_ns() + HOUR_NS;
    team->recover_in    = 0;
    ranks_check(mpath_failover_recover(team) == MPATH_OK);
    ranks_check((team->lost[0] == 0) && (team->lost[1] == 1u << LOST));
    ranks_check(mpath_links_status(mpath_links_of(team)) == MPATH_OK);
    strcpy(name, kept);
    ranks_check(carry(team) == 7); /* between the others */
    end_good_call(team);
    ranks_check(team->lost[1] == 0);
    ranks_check(carry(team) == 7);
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

/* The ranks of one node need none of its NICs: they neither leave one out nor look after it. */
static int one_node_body(ranks_self_t *self, void *argument)
{
    static const int members[NODES][2] = {{0, 1}, {2, 3}};
    mpath_context_t *context           = lost_context(self);
    mpath_team_t *early                = open_team(self, context, 1, NULL, RANKS), *late;

    (void)argument;
    (void)lost_open_links(early);
    lose(early, 0, 1u << LOST);
    ranks_check(context->lost == ((self->node == 0) ? 1u << LOST : 0));
    late = open_team(self, context, 2 + self->node, members[self->node], 2);
    check_out(late, 0, 0);
    end_good_call(late);
    ranks_check(mpath_links_of(late) == NULL);
    ranks_barrier(self);
    mpath_team_destroy(late);
    mpath_team_destroy(early);
    mpath_context_destroy(context);
    return 0;
}

static void run(ranks_body_t body, int size, int nodes)
{
    const ranks_setup_t setup = {.size = size, .nodes = nodes, .nics = NICS};

    assert_int_equal(ranks_run(&setup, body, NULL), 0);
}

static void test_begins_without(void **state)
{
    (void)state;
    run(begins_without_body, RANKS, NODES);
}

static void test_some_know(void **state)
{
    (void)state;
    run(some_know_body, RANKS, NODES);
}

static void test_long_ago(void **state)
{
    (void)state;
    run(long_ago_body, RANKS, NODES);
}

static void test_still_held(void **state)
{
    (void)state;
    run(still_held_body, RANKS, NODES);
}

static void test_ended(void **state)
{
    (void)state;
    run(ended_body, RANKS, NODES);
}

static void test_last_rail(void **state)
{
    (void)state;
    run(last_rail_body, RANKS, NODES);
}

static void test_moved_nothing(void **state)
{
    (void)state;
    run(moved_nothing_body, RANKS, NODES);
}

static void test_one_node(void **state)
{
    (void)state;
    run(one_node_body, RANKS, NODES);
}

static void test_dead_end(void **state)
{
    (void)state;
    run(dead_end_body, 3, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begins_without), cmocka_unit_test(test_some_know),     cmocka_unit_test(test_long_ago),
        cmocka_unit_test(test_last_rail),      cmocka_unit_test(test_moved_nothing), cmocka_unit_test(test_dead_end),
        cmocka_unit_test(test_one_node),       cmocka_unit_test(test_still_held),    cmocka_unit_test(test_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
