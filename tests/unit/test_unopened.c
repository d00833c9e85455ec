/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NICs that UCX does not open in some process of one node: all ranks do without them, say so once, and ask for them again
 * after a while.
 */
#include "coll/alltoallv.h"
#include "rail/fabric_private.h"
#include "symmetric_support.h"
#include "unit/a2a.h"
#include "unit/capture.h"
#include "unit/lost_nics.h"
#include "util/time.h"

#include <stdlib.h>

#define RANKS 4
#define NICS 3
#define BAD 1 /* the NIC that does not open, on the second node */

static const char no_nic[] = "no-such-nic";

static mpath_context_t *open_context(ranks_self_t *self)
{
    mpath_context_t *context = lost_context(self);

    capture_start();
    return context;
}

static mpath_team_t *open_team(ranks_self_t *self, mpath_context_t *context, int channel)
{
    mpath_team_t *team;
    mpath_oob_t oob;

    ranks_oob(self, channel, NULL, self->size, &oob);
    ranks_check(mpath_team_create(context, &oob, &team) == MPATH_OK);
    return team;
}

/* Every byte is checked. The NICs over which some rank has sent something. */
static uint32_t carry(mpath_team_t *team, mpath_status_t expected)
{
    uint64_t demand[RANKS * RANKS];
    uint64_t before[NICS];
    uint32_t used = 0, all[RANKS];
    mpath_status_t status;
    mpath_coll_t *coll;
    a2a_t data;

    ranks_check(mpath_coll_create(team, &coll) == MPATH_OK);
    a2a_init(&data, mpath_team_rank(team), mpath_team_size(team));
    for (int nic = 0; nic < NICS; nic++) {
        before[nic] = ranks_sent_bytes(nic);
    }
    for (int round = 1; round < 3; round++) {
        a2a_demand(A2A_EVEN, mpath_team_size(team), 6000000, round, demand);
        a2a_fill(&data, demand, round);
        status = mpath_alltoallv(coll, &data.call);
        ranks_check(status == expected);
        ranks_check(status != MPATH_OK || a2a_check(&data) == 0);
    }
    a2a_end(&data);
    mpath_coll_destroy(coll);
    for (int nic = 0; nic < NICS; nic++) {
        used |= ranks_sent_bytes(nic) > before[nic] ? 1u << nic : 0;
    }
    ranks_check(mpath_team_allgather(team, &used, sizeof(used), all) == MPATH_OK);
    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        used |= all[rank];
    }
    return used;
}

static void end_good_call(mpath_team_t *team)
{
    team->next_probe_ns = 0;
    team->recover_in    = 0;
    ranks_check(mpath_failover_recover(team) == MPATH_OK);
}

/* How often this rank has said aloud that a NIC is not used. */
static int said(const char *what)
{
    int count = 0;

    for (const char *at = capture_text(); (at = strstr(at, "WARN")) != NULL; at++) {
        const char *end = strchr(at, '\n'), *found = strstr(at, what);

        count += found != NULL && found < end;
    }
    return count;
}

/* A NIC that the second node does not have, or UCX does not know there. */
static int node_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = open_context(self);
    mpath_team_t *team, *late;

    (void)argument;
    if (self->node == 1) {
        strcpy(context->machine.nics[BAD].name, no_nic);
    }
    team = open_team(self, context, 1);
    ranks_check(carry(team, MPATH_OK) == 5);
    check_out(team, 0, 1u << BAD);
    ranks_check(mpath_links_status(mpath_links_of(team)) == MPATH_OK);
    late = open_team(self, context, 2);
    check_out(late, 0, 1u << BAD);
    ranks_check(carry(late, MPATH_OK) == 5);
    ranks_check(said("NIC no-such-nic of ") == (self->rank == 0));
    ranks_check(self->rank != 0 || (said("UCX has no transport 'ib' on a device of this name") == 1 &&
                                    said("all ranks do without it") == 1 && said("cannot be opened by rank 2") == 1));
    ranks_barrier(self);
    mpath_team_destroy(late);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

/* One process of the node alone cannot open it. */
static int process_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = open_context(self);
    mpath_team_t *team;

    (void)argument;
    if (self->rank == 3) {
        context->fabric->rails[BAD].status = MPATH_ERR_UNSUPPORTED;
    }
    team = open_team(self, context, 1);
    ranks_check(carry(team, MPATH_OK) == 5);
    check_out(team, 0, 1u << BAD);
    ranks_check(said("cannot be opened by rank 3") == (self->rank == 0));
    ranks_check(team->probe_ns == MPATH_PROBE_FIRST_NS);
    end_good_call(team); /* it opens now */
    check_out(team, 0, 0);
    ranks_check(carry(team, MPATH_OK) == 7);
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

/* A NIC that has failed has a carrier again, and does not open: it is left out again, each time for longer. */
static int again_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = open_context(self);
    mpath_team_t *team       = open_team(self, context, 1);
    char *name               = context->machine.nics[BAD].name, kept[MPATH_NIC_NAME_MAX];
    uint64_t waits_ns        = 0;

    (void)argument;
    lost_open_links(team);
    lose(team, 2, 1u << BAD);
    strcpy(kept, name);
    for (int time = 0; time < 3; time++) {
        if (self->node == 1) {
            strcpy(name, no_nic);
        }
        end_good_call(team);
        check_out(team, 0, 1u << BAD);
        ranks_check(mpath_links_status(mpath_links_of(team)) == MPATH_OK);
        ranks_check(team->probe_ns > waits_ns && team->next_probe_ns > mpath_time_ns());
        waits_ns = team->probe_ns;
        ranks_check(carry(team, MPATH_OK) == 5);
    }
    strcpy(name, kept);
    end_good_call(team);
    check_out(team, 0, 0);
    ranks_check(carry(team, MPATH_OK) == 7);
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

/* No rail is left between the nodes: the previous functions run, and the reason is told. */
static int none_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = open_context(self);
    mpath_team_t *team;

    (void)argument;
    for (int nic = 0; nic < NICS; nic++) {
        if (self->node == (nic > 0)) { /* another one of each rail */
            strcpy(context->machine.nics[nic].name, no_nic);
        }
    }
    team = open_team(self, context, 1);
    ranks_check(carry(team, MPATH_DECLINED) == 0);
    check_out(team, 0, 0);
    ranks_check(said("could not open its rails or its memory (UCX has no transport") == (self->rank == 0));
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

/* The same for reductions, whose engine has its rails from the topology of before. */
static int reduction_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    member_t member  = {0};

    mpath_settings_init(&member.settings);
    member.settings.access              = job->access;
    member.settings.gate                = MPATH_GATE_ALWAYS;
    member.settings.memory_bytes        = 8 << 20;
    member.settings.allreduce_algorithm = job->algorithm;
    member.context                      = ranks_context(self, &member.settings);
    capture_start();
    if (self->node == 1) {
        strcpy(member.context->machine.nics[BAD].name, no_nic);
    }
    member_begin(&member, self);
    for (uint64_t round = 0; round < 4; round++) {
        check_allreduce(&member, self, 200000 + round, round);
        ranks_check(mpath_share_num_rails(member.symmetric->share) == (job->access == MPATH_ACCESS_ALL ? 2 : 1));
    }
    check_out(member.team, 0, 1u << BAD);
    ranks_check(said("NIC no-such-nic of ") == (self->rank == 0));
    ranks_barrier(self);
    member_end(&member);
    return 0;
}

static void run(ranks_body_t body)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS};

    assert_int_equal(ranks_run(&setup, body, NULL), 0);
}

static void test_node(void **state)
{
    (void)state;
    run(node_body);
}

static void test_process(void **state)
{
    (void)state;
    run(process_body);
}

static void test_again(void **state)
{
    (void)state;
    run(again_body);
}

static void test_none(void **state)
{
    (void)state;
    run(none_body);
}

static void test_reduction(void **state)
{
    (void)state;
    for (int access = MPATH_ACCESS_ALL; access <= MPATH_ACCESS_AFFINE; access++) {
        job_t job = {
            .setup = {.size = RANKS, .nodes = 2, .nics = NICS}, .access = access, .algorithm = MPATH_ALGORITHM_LANES};

        assert_int_equal(ranks_run(&job.setup, reduction_body, &job), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_node), cmocka_unit_test(test_process),   cmocka_unit_test(test_again),
        cmocka_unit_test(test_none), cmocka_unit_test(test_reduction),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
