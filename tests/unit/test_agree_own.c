/* SPDX-License-Identifier: BSD-3-Clause */
/* Agreement where ranks send by themselves what is too much for the leaders, up to the limits, and where it is lost. */
#include "team/channel.h"
#include "team/team_private.h"
#include "agree_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Ranks send by themselves what is too much for the leaders: takers of one, of several and of no rank. */
static void test_own(void **state)
{
    const int dealt[] = {2, 0, 1, 0, 2, 0, 0}, few_lead[] = {0, 1, 1, 1, 1, 1};
    const ranks_setup_t setups[] = {{.size = 8, .nodes = 2},       {.size = 9, .nodes = 3},
                                    {.size = 5, .nodes = 2},       {.size = 12, .nodes = 6},
                                    {.size = 7, .node_of = dealt}, {.size = 6, .node_of = few_lead}};

    (void)state;
    for (size_t i = 0; i < sizeof(setups) / sizeof(setups[0]); i++) {
        job_t job = {.calls = 60, .small_bytes = 4096, .affine = 1};

        assert_int_equal(ranks_run(&setups[i], random_body, &job), 0);
        job.leader_bytes = 3000;
        assert_int_equal(ranks_run(&setups[i], random_body, &job), 0);
    }
}

/* How far pairs between nodes of 4 ranks travel inside, and that the data of the largest has arrived. */
static int limits_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_agreed_t agreed;
    mpath_team_t *team;
    buffers_t b;

    mpath_settings_init(&settings);
    settings.access = job->affine ? MPATH_ACCESS_AFFINE : MPATH_ACCESS_ALL;
    context         = ranks_context(self, &settings);
    team            = ranks_team(self, context);
    buffers_init(&b, self->size);
    for (int other = 0; other < self->size; other++) {
        b.send_bytes[other] = b.recv_bytes[other] = job->affine ? 4096 : 1024;
        b.send_offsets[other] = b.recv_offsets[other] = (uint64_t)other * 4096;
    }
    for (int call = 0; call < job->calls; call++) {
        memset(b.send, self->rank + call, (size_t)self->size * 4096);
        ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK);
        memset(b.send, 0, (size_t)self->size * 4096);
        ranks_check(agreed.finished && agreed.inline_remote_bytes == b.send_bytes[0]);
        for (int other = 0; other < self->size; other++) {
            const unsigned char *from = b.recv + b.recv_offsets[other];

            ranks_check(other == self->rank || (from[0] == (unsigned char)(other + call) &&
                                                memcmp(from, from + 1, b.recv_bytes[other] - 1) == 0));
        }
    }
    buffers_free(&b);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_limits(void **state)
{
    ranks_setup_t setup = {.size = 8, .nodes = 2};
    job_t job           = {.calls = 50};

    (void)state;
    assert_int_equal(ranks_run(&setup, limits_body, &job), 0);
    job.affine = 1;
    assert_int_equal(ranks_run(&setup, limits_body, &job), 0);
}

static mpath_status_t (*really_send)(void *context, int to, const void *data, size_t bytes,
                                     mpath_oob_request_t *request);

/* Loses what ranks send by themselves. */
static mpath_status_t lossy_send(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request)
{
    mpath_message_t message = {0};

    memcpy(&message, data, bytes < sizeof(message) ? bytes : sizeof(message));
    if (message.magic == MPATH_MESSAGE_MAGIC && message.type == MPATH_MESSAGE_OWN) {
        request->handle = NULL;
        return MPATH_OK;
    }
    return really_send(context, to, data, bytes, request);
}

/* A row announces data that does not come: an error on every rank that lacks it, and no wait without end. */
static int lost_body(ranks_self_t *self, void *argument)
{
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_agreed_t agreed;
    mpath_team_t *team;
    buffers_t b;

    (void)argument;
    mpath_settings_init(&settings);
    settings.access    = MPATH_ACCESS_AFFINE;
    settings.timeout_s = 100;
    if (self->rank == 1) {
        really_send     = self->oob.isend;
        self->oob.isend = lossy_send;
    }
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    buffers_init(&b, self->size);
    for (int other = 0; other < self->size; other++) {
        b.send_offsets[other] = b.recv_offsets[other] = (uint64_t)other * 4096;
    }
    ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK);
    if (self->rank == 1) {
        b.send_bytes[self->size - 1] = 8192;
    }
    if (self->rank == self->size - 1) {
        b.recv_bytes[1] = 8192;
    }
    ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_OK && !agreed.finished);
    if (self->rank == 1) {
        b.send_bytes[self->size - 1] = 3000;
    }
    if (self->rank == self->size - 1) {
        b.recv_bytes[1] = 3000;
    }
    if (self->rank >= self->size / 2 && self->rank % 4 == 1) { /* the taker */
        context->settings.timeout_s = 3; /* what the others wait for comes, however slow this machine */
        ranks_check(mpath_agree(team, &b.call, &agreed) == MPATH_ERR_TIMED_OUT);
    } else if (self->rank == self->size - 1) { /* sees the deadline itself, or hears of it */
        ranks_check(mpath_status_is_error(mpath_agree(team, &b.call, &agreed)));
    } else {
        (void)mpath_agree(team, &b.call, &agreed);
    }
    ranks_barrier(self);
    buffers_free(&b);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_own_lost(void **state)
{
    ranks_setup_t setup = {.size = 8, .nodes = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, lost_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_own_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
