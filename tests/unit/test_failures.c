/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes wrong in an agreement: ranks that die, disagree or are late. Whatever one rank does, every other one comes
 * back, with an error where the call cannot be carried.
 */
#include "team/agree.h"
#include "team/team_private.h"
#include "ranks.h"
#include "util/log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct scene {
    int victim;
    int good_calls; /* before it */
} scene_t;

typedef struct party {
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_call_t call;
    uint64_t send_bytes[RANKS_MAX], recv_bytes[RANKS_MAX], offsets[RANKS_MAX];
    char out[64 * RANKS_MAX], in[64 * RANKS_MAX];
} party_t;

static void party_join(party_t *p, ranks_self_t *self, int timeout_s)
{
    memset(p, 0, sizeof(*p));
    mpath_settings_init(&p->settings);
    p->settings.timeout_s = timeout_s;
    p->context            = ranks_context(self, &p->settings);
    p->team               = ranks_team(self, p->context);
    for (int rank = 0; rank < self->size; rank++) {
        p->send_bytes[rank] = p->recv_bytes[rank] = 8;
        p->offsets[rank]                          = 64 * (uint64_t)rank;
    }
    p->call = (mpath_call_t){.operation    = 1,
                             .send_bytes   = p->send_bytes,
                             .send_offsets = p->offsets,
                             .send_buffer  = p->out,
                             .recv_bytes   = p->recv_bytes,
                             .recv_offsets = p->offsets,
                             .recv_buffer  = p->in};
}

static mpath_status_t party_call(party_t *p)
{
    mpath_agreed_t agreed;

    return mpath_agree(p->team, &p->call, &agreed);
}

/* The team is broken, stays so, and can still be destroyed. */
static int party_broken(party_t *p)
{
    ranks_check(mpath_status_is_error(party_call(p)));
    ranks_check(mpath_status_is_error(party_call(p)));
    ranks_check(mpath_status_is_error(mpath_team_status(p->team)));
    ranks_check(mpath_status_is_error(mpath_team_allgather(p->team, p->out, 8, p->in)));
    mpath_team_destroy(p->team);
    mpath_context_destroy(p->context);
    return 0;
}

static int killed_body(ranks_self_t *self, void *argument)
{
    const scene_t *scene = argument;
    party_t p;

    party_join(&p, self, 100);
    for (int i = 0; i < scene->good_calls; i++) {
        ranks_check(party_call(&p) == MPATH_OK);
    }
    ranks_barrier(self); /* who still is in a good call may learn of the end there, which is not what this tests */
    if (self->rank == scene->victim) {
        usleep(100000); /* most others wait by now */
        raise(SIGKILL);
    }
    return party_broken(&p);
}

static void run_killed(int size, int nodes, int victim, int deaf)
{
    scene_t scene       = {.victim = victim, .good_calls = 3};
    ranks_setup_t setup = {.size = size, .nodes = nodes, .may_die = 1u << victim, .deaf = deaf};

    assert_int_equal(ranks_run(&setup, killed_body, &scene), 0);
}

static void test_killed_on_one_node(void **state)
{
    (void)state;
    run_killed(2, 1, 0, 1);
    run_killed(2, 1, 1, 1);
    run_killed(4, 1, 0, 1);
    run_killed(4, 1, 3, 1);
}

/* Leader, deputy and another one die; the control plane says nothing, so the news goes by notices. */
static void test_killed_across_nodes(void **state)
{
    (void)state;
    for (int victim = 0; victim < 6; victim++) {
        run_killed(6, 2, victim, 1);
    }
    run_killed(9, 3, 3, 1);
    for (int victim = 2; victim < 4; victim++) {
        run_killed(14, 7, victim, 1);
    }
}

/* The deputy has to tell a node of one rank. */
static void test_killed_leader_beside_single(void **state)
{
    const int dealt[]   = {0, 0, 0, 1, 2, 2};
    scene_t scene       = {.victim = 0, .good_calls = 1};
    ranks_setup_t setup = {.size = 6, .node_of = dealt, .may_die = 1u << 0, .deaf = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, killed_body, &scene), 0);
}

/* Nobody on its node is left to tell: the control plane does. */
static void test_killed_alone(void **state)
{
    (void)state;
    run_killed(3, 3, 1, 0);
    run_killed(4, 4, 0, 0);
}

/* A rank gives up between calls; those that wait in their next call learn it. */
static int break_body(ranks_self_t *self, void *argument)
{
    const scene_t *scene = argument;
    party_t p;

    party_join(&p, self, 100);
    ranks_check(party_call(&p) == MPATH_OK);
    ranks_barrier(self);
    if (self->rank == scene->victim) {
        usleep(50000);
        mpath_team_break(p.team, MPATH_ERR_TIMED_OUT);
        ranks_check(mpath_team_status(p.team) == MPATH_ERR_TIMED_OUT);
        usleep(50000);
    }
    ranks_check(party_call(&p) == MPATH_ERR_TIMED_OUT); /* the same reason everywhere */
    party_broken(&p);
    ranks_barrier(self); /* nobody needs the end of a process to notice */
    return 0;
}

static void test_break(void **state)
{
    (void)state;
    for (int victim = 0; victim < 6; victim += 1) {
        scene_t scene       = {.victim = victim};
        ranks_setup_t setup = {.size = 6, .nodes = 2, .deaf = 1};

        assert_int_equal(ranks_run(&setup, break_body, &scene), 0);
    }
}

static void leave(void *self)
{
    (void)self;
}

/* Rank 0 sends less than the victim expects: the victim says so, and the call fails for all. */
static int mismatch_body(ranks_self_t *self, void *argument)
{
    static const mpath_team_user_ops_t ops = {.destroy = leave}; /* as of who has nothing to stop */
    const scene_t *scene                   = argument;
    mpath_team_user_t user;
    mpath_status_t status;
    party_t p;

    party_join(&p, self, 100);
    mpath_team_attach(p.team, &user, &ops, NULL);
    ranks_check(party_call(&p) == MPATH_OK);
    if (self->rank == scene->victim) {
        p.recv_bytes[0] = 16;
        ranks_check(party_call(&p) == MPATH_ERR_TRUNCATED);
    } else {
        status = party_call(&p);
        ranks_check(status == MPATH_ERR_TRUNCATED);
    }
    return party_broken(&p);
}

static void test_mismatch(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 12; nodes += nodes) {
        for (int victim = 0; victim < 4; victim++) {
            scene_t scene       = {.victim = victim};
            ranks_setup_t setup = {.size = nodes > 4 ? nodes : 4, .nodes = nodes, .deaf = 1};

            assert_int_equal(ranks_run(&setup, mismatch_body, &scene), 0);
        }
    }
}

/* Sizes of an ineligible call mean nothing. */
static int ineligible_body(ranks_self_t *self, void *argument)
{
    mpath_agreed_t agreed;
    party_t p;

    (void)argument;
    party_join(&p, self, 100);
    if (self->rank == 1) {
        p.call = (mpath_call_t){.operation = 1, .flags = MPATH_CALL_INELIGIBLE};
    }
    for (int i = 0; i < 3; i++) {
        ranks_check(mpath_agree(p.team, &p.call, &agreed) == MPATH_OK);
        ranks_check((agreed.flags & MPATH_CALL_INELIGIBLE) != 0);
    }
    mpath_team_destroy(p.team);
    mpath_context_destroy(p.context);
    return 0;
}

static void test_ineligible(void **state)
{
    ranks_setup_t setup = {.size = 4, .nodes = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, ineligible_body, NULL), 0);
    setup.size  = 10;
    setup.nodes = 5;
    assert_int_equal(ranks_run(&setup, ineligible_body, NULL), 0);
}

static int operation_body(ranks_self_t *self, void *argument)
{
    const scene_t *scene = argument;
    party_t p;

    party_join(&p, self, 100);
    if (self->rank == scene->victim) {
        p.call.operation = 2;
    }
    ranks_check(party_call(&p) == MPATH_ERR_PARAM);
    ranks_barrier(self); /* before a process ends, which is another reason */
    return party_broken(&p);
}

static void test_operation(void **state)
{
    (void)state;
    for (int victim = 0; victim < 4; victim++) {
        scene_t scene       = {.victim = victim};
        ranks_setup_t setup = {.size = 4, .nodes = 2, .deaf = 1};

        assert_int_equal(ranks_run(&setup, operation_body, &scene), 0);
    }
}

/* A control plane of which one receive cannot be posted. */
static mpath_status_t (*real_irecv)(void *context, int from, void *data, size_t bytes, mpath_oob_request_t *request);
static int receives, bad_receive;

static mpath_status_t counting_irecv(void *context, int from, void *data, size_t bytes, mpath_oob_request_t *request)
{
    return (++receives == bad_receive) ? MPATH_ERR_NO_MEMORY : real_irecv(context, from, data, bytes, request);
}

/* The last receive of a leader's set-up is that for messages of the other one: by then the others have the team. */
static int no_receive_body(ranks_self_t *self, void *argument)
{
    const scene_t *scene = argument;
    mpath_team_t *team;
    mpath_oob_t oob;
    party_t p;

    party_join(&p, self, 100);
    real_irecv = self->oob.irecv;
    for (int round = 0; round < 2; round++) {
        ranks_oob(self, 1 + round, NULL, self->size, &oob);
        oob.irecv   = counting_irecv;
        bad_receive = (self->rank == scene->victim) ? receives : 0; /* that of the first round */
        receives    = 0;
        ranks_check(mpath_team_create(p.context, &oob, &team) == MPATH_OK);
        if (round == 0) {
            mpath_team_destroy(team);
        }
    }
    mpath_team_destroy(p.team);
    p.team = team;
    /* The others may still come through a call for which that rank has sent all that they want of it. */
    ranks_check((party_call(&p) != MPATH_OK) || (self->rank != scene->victim));
    return party_broken(&p);
}

static void test_no_receive(void **state)
{
    scene_t scene       = {.victim = 2};
    ranks_setup_t setup = {.size = 4, .nodes = 2, .deaf = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, no_receive_body, &scene), 0);
}

/* Shared by the ranks: rank 0 has said who is late. */
static atomic_int *saw_warning;

static void warning_sink(mpath_log_level_t level, const char *line)
{
    if (level == MPATH_LOG_WARN && strstr(line, "for rank 2 (virtual0)") != NULL &&
        strstr(line, "test communicator 0")) {
        atomic_store(saw_warning, 1);
    }
}

/* Being late is legal. */
static int late_body(ranks_self_t *self, void *argument)
{
    party_t p;

    (void)argument;
    mpath_log_set_sink(warning_sink);
    party_join(&p, self, 100);
    p.context->settings.timeout_s = 1; /* of the calls; a loaded machine needs more to create the team */
    for (int i = 0; self->rank == 2 && i < 1200 && !atomic_load(saw_warning); i++) {
        usleep(100000);
    }
    ranks_check(party_call(&p) == MPATH_OK);
    ranks_check(atomic_load(saw_warning));
    ranks_check(party_call(&p) == MPATH_OK);
    mpath_team_destroy(p.team);
    mpath_context_destroy(p.context);
    return 0;
}

static void test_late(void **state)
{
    ranks_setup_t setup = {.size = 6, .nodes = 2};

    (void)state;
    saw_warning = mmap(NULL, sizeof(*saw_warning), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(saw_warning != MAP_FAILED);
    assert_int_equal(ranks_run(&setup, late_body, NULL), 0);
    munmap(saw_warning, sizeof(*saw_warning));
}

/* Rank 2 does not come. */
static int absent_body(ranks_self_t *self, void *argument)
{
    int gathers = *(const int *)argument;
    mpath_status_t status;
    party_t p;

    party_join(&p, self, 100);
    ranks_check(party_call(&p) == MPATH_OK);
    p.context->settings.timeout_s       = gathers ? 1 : 100;
    p.context->settings.agree_timeout_s = gathers ? 0 : 1;
    if (self->rank != 2) {
        status = gathers ? mpath_team_allgather(p.team, p.out, 8, p.in) : party_call(&p);
        ranks_check(status == MPATH_ERR_TIMED_OUT);
    }
    ranks_barrier(self);
    return party_broken(&p);
}

/* It ends a call where the user has set a deadline, and a gather inside of a call, in which all are known to be. */
static void test_absent(void **state)
{
    ranks_setup_t setup = {.size = 6, .nodes = 2};

    (void)state;
    for (int gathers = 0; gathers < 2; gathers++) {
        assert_int_equal(ranks_run(&setup, absent_body, &gathers), 0);
    }
}

/* A rank that has finished its last call may end at once: that is no failure for those who still wait for others. */
static int leave_body(ranks_self_t *self, void *argument)
{
    party_t p;

    party_join(&p, self, 100);
    for (int i = 0; i < 3; i++) {
        ranks_check(party_call(&p) == MPATH_OK);
        if (self->rank == *(int *)argument) {
            usleep(120000); /* longer than it takes to look whether mates live */
        }
    }
    mpath_team_destroy(p.team);
    mpath_context_destroy(p.context);
    return 0;
}

static void test_leave(void **state)
{
    (void)state;
    for (int slow = 0; slow < 6; slow++) {
        for (int deaf = 0; deaf < 2; deaf++) {
            ranks_setup_t setup = {.size = 6, .nodes = 2, .deaf = deaf};

            assert_int_equal(ranks_run(&setup, leave_body, &slow), 0);
            setup.nodes = 6;
            assert_int_equal(ranks_run(&setup, leave_body, &slow), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_on_one_node),
        cmocka_unit_test(test_killed_across_nodes),
        cmocka_unit_test(test_killed_leader_beside_single),
        cmocka_unit_test(test_killed_alone),
        cmocka_unit_test(test_break),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_ineligible),
        cmocka_unit_test(test_operation),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_no_receive),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_leave),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
