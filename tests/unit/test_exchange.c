/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges over the control plane before there is a team: what they carry, members that fail but take part, members
 * that do not come.
 */
#include "team/exchange.h"
#include "ranks.h"
#include "util/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BLOCK 24

static const mpath_patience_t patient = {.warn_s = 100, .limit_s = 0, .here_s = 200};

static int all_body(ranks_self_t *self, void *argument)
{
    char mine[BLOCK], all[RANKS_MAX * BLOCK], told[BLOCK];
    int odd[RANKS_MAX], num_odd = 0, me = -1;

    (void)argument;
    memset(mine, 'a' + self->rank, sizeof(mine));
    ranks_check(mpath_exchange_allgather(&self->oob, patient, NULL, self->size, self->rank, mine, BLOCK, all) ==
                MPATH_OK);
    for (int i = 0; i < self->size * BLOCK; i++) {
        ranks_check(all[i] == 'a' + i / BLOCK);
    }
    for (int rank = 1; rank < self->size; rank += 2) {
        me             = rank == self->rank ? num_odd : me;
        odd[num_odd++] = rank;
    }
    if (me >= 0) {
        ranks_check(mpath_exchange_allgather(&self->oob, patient, odd, num_odd, me, mine, BLOCK, all) == MPATH_OK);
        for (int i = 0; i < num_odd * BLOCK; i++) {
            ranks_check(all[i] == 'a' + odd[i / BLOCK]);
        }
        memcpy(told, mine, BLOCK);
        ranks_check(mpath_exchange_broadcast(&self->oob, patient, odd, num_odd, me, told, BLOCK) == MPATH_OK);
        ranks_check(told[0] == 'a' + 1 && told[BLOCK - 1] == 'a' + 1);
    }
    ranks_check(mpath_exchange_agree(&self->oob, patient, MPATH_OK) == MPATH_OK);
    return 0;
}

static void test_all(void **state)
{
    (void)state;
    for (int size = 2; size <= 9; size++) {
        ranks_setup_t setup = {.size = size, .nodes = 1};

        assert_int_equal(ranks_run(&setup, all_body, NULL), 0);
    }
}

/* The victim has no memory for the gather, the others may come out of it as they like; then all know. */
static int failed_body(ranks_self_t *self, void *argument)
{
    int victim            = *(const int *)argument, members[RANKS_MAX];
    char mine[BLOCK]      = "block", all[RANKS_MAX * BLOCK];
    int fails             = self->rank == victim;
    mpath_status_t status = mpath_exchange_allgather(&self->oob, patient, NULL, self->size, self->rank, mine, BLOCK,
                                                     fails ? NULL : all);

    ranks_check(fails ? status == MPATH_ERR_NO_MEMORY : (status == MPATH_OK || status == MPATH_DECLINED));
    status = mpath_exchange_agree(&self->oob, patient, status);
    ranks_check(status == (fails ? MPATH_ERR_NO_MEMORY : MPATH_DECLINED));

    for (int rank = 0; rank < self->size; rank++) {
        members[rank] = rank;
    }
    status = mpath_exchange_broadcast(&self->oob, patient, members, self->size, self->rank, fails ? NULL : mine, BLOCK);
    if (victim == 0) {
        ranks_check(fails || status == MPATH_DECLINED);
    } else {
        ranks_check(status == (fails ? MPATH_ERR_NO_MEMORY : MPATH_OK));
    }
    ranks_check(mpath_exchange_agree(&self->oob, patient, MPATH_OK) == MPATH_OK); /* nothing is left over */
    return 0;
}

static void test_failed(void **state)
{
    (void)state;
    for (int size = 2; size <= 7; size += 5) {
        for (int victim = 0; victim < size; victim++) {
            ranks_setup_t setup = {.size = size, .nodes = 1};

            assert_int_equal(ranks_run(&setup, failed_body, &victim), 0);
        }
    }
}

#define SHORT_MESSAGE 64

static mpath_oob_t plain_oob;

static mpath_status_t short_isend(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request)
{
    return (bytes > SHORT_MESSAGE) ? MPATH_ERR_NO_MEMORY : plain_oob.isend(context, to, data, bytes, request);
}

static mpath_status_t short_irecv(void *context, int from, void *data, size_t bytes, mpath_oob_request_t *request)
{
    return (bytes > SHORT_MESSAGE) ? MPATH_ERR_NO_MEMORY : plain_oob.irecv(context, from, data, bytes, request);
}

typedef struct shortage {
    int victim;
    int sends, receives; /* what the victim has no memory for */
} shortage_t;

/* The control plane of one rank has memory for short messages only: it takes part, and all learn of it. */
static int shortage_body(ranks_self_t *self, void *argument)
{
    const shortage_t *shortage   = argument;
    char mine[4 * SHORT_MESSAGE] = "block", all[RANKS_MAX * sizeof(mine)];
    int fails                    = self->rank == shortage->victim, members[RANKS_MAX];
    mpath_status_t status;

    plain_oob = self->oob;
    if (fails && shortage->sends) {
        self->oob.isend = short_isend;
    }
    if (fails && shortage->receives) {
        self->oob.irecv = short_irecv;
    }
    status = mpath_exchange_allgather(&self->oob, patient, NULL, self->size, self->rank, mine, sizeof(mine), all);
    ranks_check(fails ? status == MPATH_ERR_NO_MEMORY : (status == MPATH_OK || status == MPATH_DECLINED));
    status = mpath_exchange_agree(&self->oob, patient, status);
    ranks_check(status == (fails ? MPATH_ERR_NO_MEMORY : MPATH_DECLINED));
    for (int rank = 0; rank < self->size; rank++) {
        members[rank] = rank;
    }
    status = mpath_exchange_broadcast(&self->oob, patient, members, self->size, self->rank, mine, sizeof(mine));
    if (shortage->victim == 0 && shortage->sends) {
        ranks_check(status == (fails ? MPATH_ERR_NO_MEMORY : MPATH_DECLINED));
    }
    ranks_check(mpath_exchange_agree(&self->oob, patient, MPATH_OK) == MPATH_OK); /* nothing is left over */
    return 0;
}

static void test_shortage(void **state)
{
    (void)state;
    for (int victim = 0; victim < 5; victim++) {
        for (int kinds = 1; kinds < 4; kinds++) {
            ranks_setup_t setup = {.size = 5, .nodes = 1};
            shortage_t shortage = {.victim = victim, .sends = kinds & 1, .receives = kinds >> 1};

            assert_int_equal(ranks_run(&setup, shortage_body, &shortage), 0);
        }
    }
}

/* The last rank does not come: all others give up. */
static int absent_body(ranks_self_t *self, void *argument)
{
    const mpath_patience_t short_here = {.warn_s = 1, .limit_s = 0, .here_s = 1};
    const mpath_patience_t short_late = {.warn_s = 100, .limit_s = 1, .here_s = 0};

    if (self->rank != self->size - 1) {
        ranks_check(mpath_exchange_agree(&self->oob, *(const int *)argument ? short_here : short_late, MPATH_OK) ==
                    MPATH_ERR_TIMED_OUT);
    }
    ranks_barrier(self);
    return 0;
}

static void test_absent(void **state)
{
    ranks_setup_t setup = {.size = 4, .nodes = 1};

    (void)state;
    for (int here = 0; here < 2; here++) {
        assert_int_equal(ranks_run(&setup, absent_body, &here), 0);
    }
}

/* A rank that comes late, by right: after warnings, without a deadline. */
static int late_body(ranks_self_t *self, void *argument)
{
    const mpath_patience_t late = {.warn_s = 1, .limit_s = 0, .here_s = 0};

    (void)argument;
    if (self->rank == 1) {
        sleep(2);
    }
    ranks_check(mpath_exchange_agree(&self->oob, late, MPATH_OK) == MPATH_OK);
    return 0;
}

static void test_late(void **state)
{
    ranks_setup_t setup = {.size = 3, .nodes = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, late_body, NULL), 0);
}

/* Sends of a control plane that gets on with them as it is let run. */
typedef struct slow_sends {
    int runs, needs; /* -1: never */
} slow_sends_t;

static mpath_status_t slow_test(void *context, mpath_oob_request_t *request, size_t *bytes_p)
{
    const slow_sends_t *sends = context;

    (void)bytes_p;
    if (sends->needs < 0 || sends->runs < sends->needs) {
        return MPATH_INPROGRESS;
    }
    request->handle = NULL;
    return MPATH_OK;
}

static void slow_progress(void *context)
{
    slow_sends_t *sends = context;

    sends->runs++;
}

/* Words that nobody waits for later go as long as the control plane gets on with them, but not for ever. */
static void test_let_go(void **state)
{
    slow_sends_t sends        = {.needs = 500};
    const mpath_oob_t oob     = {.context = &sends, .name = "test", .test = slow_test, .progress = slow_progress};
    mpath_oob_request_t of[3] = {{.handle = &sends}, {.handle = NULL}, {.handle = &sends}};

    (void)state;
    mpath_exchange_let_go(&oob, of, 3);
    assert_true(sends.runs >= sends.needs);
    assert_null(of[0].handle);
    assert_null(of[2].handle);
    of[1].handle = &sends;
    sends.needs  = -1;
    mpath_exchange_let_go(&oob, of, 3);
    assert_ptr_equal(of[1].handle, &sends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),      cmocka_unit_test(test_let_go), cmocka_unit_test(test_failed),
        cmocka_unit_test(test_shortage), cmocka_unit_test(test_absent), cmocka_unit_test(test_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
