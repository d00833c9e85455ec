/* SPDX-License-Identifier: BSD-3-Clause */
/* What teams of one node set aside: little before chunks move, rings then, all of them within the budget of the node. */
#include "team/team_private.h"
#include "unit/ranks.h"
#include "util/log.h"
#include "wire/links.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define RANKS 4
#define TEAMS 24

static int warnings;

static void count(mpath_log_level_t level, const char *line)
{
    (void)line;
    warnings += level <= MPATH_LOG_WARN;
}

typedef struct expected {
    mpath_gate_t gate;
    uint64_t node_min_bytes;
    uint64_t least, most; /* of rings */
} expected_t;

static int memory_body(ranks_self_t *self, void *argument)
{
    const expected_t *expected = argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_links_t *links;
    mpath_team_t *team;
    uint64_t bytes;

    mpath_log_set_sink(count);
    mpath_settings_init(&settings);
    settings.gate           = expected->gate;
    settings.node_min_bytes = expected->node_min_bytes;
    context                 = ranks_context(self, &settings);
    team                    = ranks_team(self, context);
    bytes                   = mpath_team_memory_bytes(team);
    ranks_check(bytes <= 64 << 10); /* nothing has moved yet */
    ranks_check(mpath_links_get(team, MPATH_LINKS_ALL, &links) == MPATH_OK);
    ranks_check(mpath_team_memory_bytes(team) - bytes >= expected->least);
    ranks_check(mpath_team_memory_bytes(team) - bytes <= expected->most);
    ranks_check(warnings == 0);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void check(const expected_t *expected)
{
    ranks_setup_t setup = {.size = RANKS, .nics = 1};

    assert_int_equal(ranks_run(&setup, memory_body, (void *)(uintptr_t)expected), 0);
}

/* Nothing larger than 4 KiB comes to the rings; up to 64 KiB where the user says so. */
static void test_follows_pairs(void **state)
{
    const expected_t usual  = {MPATH_GATE_AUTO, 4097, 16 << 10, 96 << 10};
    const expected_t none   = {MPATH_GATE_AUTO, 0, 16 << 10, 96 << 10};
    const expected_t larger = {MPATH_GATE_AUTO, 65537, 512 << 10, 2 << 20};
    const expected_t all    = {MPATH_GATE_AUTO, INT64_MAX, 1 << 20, 3 << 20};

    (void)state;
    check(&usual);
    check(&none);
    check(&larger);
    check(&all);
}

/* Where mpath has to run, large pairs come to them. */
static void test_always(void **state)
{
    const expected_t always = {MPATH_GATE_ALWAYS, 4097, 3 << 20, 64 << 20};

    (void)state;
    check(&always);
}

/* Bytes of segments that this process holds with the teams that it makes; *num_links_p: of the teams that can move chunks. */
static uint64_t make_teams(ranks_self_t *self, mpath_context_t *context, int first_channel, mpath_team_t **teams,
                           int *num_teams_p, int *num_links_p)
{
    uint64_t before, part, bytes;

    mpath_segment_held(&part, &before);
    *num_teams_p = *num_links_p = 0;
    for (int i = 0; i < TEAMS; i++) {
        mpath_links_t *links;
        mpath_oob_t oob;
        mpath_status_t status;

        ranks_oob(self, first_channel + i, NULL, self->size, &oob);
        status = mpath_team_create(context, &oob, &teams[i]);
        ranks_check((status == MPATH_OK) || (status == MPATH_DECLINED));
        if (status != MPATH_OK) {
            teams[i] = NULL;
            continue;
        }
        *num_teams_p += 1;
        status = mpath_links_get(teams[i], MPATH_LINKS_ALL, &links);
        ranks_check((status == MPATH_OK) || (status == MPATH_DECLINED));
        *num_links_p += status == MPATH_OK;
    }
    mpath_segment_held(&part, &bytes);
    return bytes - before;
}

/* All ranks decide alike, the node keeps to its budget, and what is freed can be had again. */
static int budget_body(ranks_self_t *self, void *argument)
{
    int made[2], again[2], all[RANKS][2];
    mpath_team_t *teams[TEAMS], *whole;
    mpath_settings_t settings;
    mpath_context_t *context;
    uint64_t part, bytes, before;

    (void)argument;
    ranks_drop_log();
    mpath_settings_init(&settings);
    settings.gate = MPATH_GATE_ALWAYS;
    context       = ranks_context(self, &settings);
    whole         = ranks_team(self, context);
    mpath_segment_held(&part, &before);

    context->settings.node_memory_bytes = 384 << 10;
    ranks_check(make_teams(self, context, 1, teams, &made[0], &made[1]) <= (384 << 10) - before);
    ranks_check((made[1] > 1) && (made[1] < TEAMS));
    ranks_check(mpath_team_allgather(whole, made, sizeof(made), all) == MPATH_OK);
    for (int rank = 0; rank < self->size; rank++) {
        ranks_check((all[rank][0] == made[0]) && (all[rank][1] == made[1]));
    }
    for (int i = 0; i < TEAMS; i++) {
        if (teams[i] != NULL) {
            mpath_team_destroy(teams[i]);
        }
    }
    mpath_segment_held(&part, &bytes);
    ranks_check(bytes == before);
    ranks_barrier(self);
    ranks_check(make_teams(self, context, 1 + TEAMS, teams, &again[0], &again[1]) > 64 << 10);
    ranks_check((again[0] == made[0]) && (again[1] == made[1]));
    for (int i = 0; i < TEAMS; i++) {
        if (teams[i] != NULL) {
            mpath_team_destroy(teams[i]);
        }
    }
    ranks_barrier(self);
    mpath_team_destroy(whole);
    mpath_context_destroy(context);
    return 0;
}

/* The queues of one communicator serve all others, also those of other ranks, and go with the last. */
static int shared_body(ranks_self_t *self, void *argument)
{
    int half[2] = {self->rank & ~1, (self->rank & ~1) + 1}, num_teams, num_links;
    mpath_team_t *teams[TEAMS], *first, *pair;
    uint64_t part, before, bytes, one, held;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_links_t *links;
    mpath_oob_t oob;

    (void)argument;
    mpath_settings_init(&settings);
    settings.gate = MPATH_GATE_ALWAYS;
    context       = ranks_context(self, &settings);
    first         = ranks_team(self, context);
    mpath_segment_held(&part, &before);
    ranks_check(before == first->segment.bytes + RANKS * mpath_outbox_bytes(context->outbox));
    ranks_check(mpath_links_get(first, MPATH_LINKS_ALL, &links) == MPATH_OK);
    mpath_segment_held(&part, &one);
    one -= before; /* of the whole node */
    ranks_check((one >= RANKS * (3ull << 20)) && (one <= RANKS * (8ull << 20)));

    ranks_check(make_teams(self, context, 1, teams, &num_teams, &num_links) == TEAMS * first->segment.bytes);
    ranks_check((num_teams == TEAMS) && (num_links == TEAMS));
    ranks_oob(self, 1 + TEAMS, half, 2, &oob);
    ranks_check(mpath_team_create(context, &oob, &pair) == MPATH_OK);
    mpath_segment_held(&part, &held);
    ranks_check(mpath_links_get(pair, MPATH_LINKS_ALL, &links) == MPATH_OK);
    mpath_segment_held(&part, &bytes);
    ranks_check(bytes == held);

    mpath_team_destroy(first);
    mpath_team_destroy(pair);
    for (int i = 0; i + 1 < TEAMS; i++) {
        mpath_team_destroy(teams[i]);
    }
    mpath_segment_held(&part, &bytes);
    ranks_check(bytes == one + before);
    ranks_barrier(self);
    mpath_team_destroy(teams[TEAMS - 1]);
    mpath_segment_held(&part, &bytes);
    ranks_check(bytes == 0 && part == 0);
    ranks_barrier(self);
    mpath_context_destroy(context);
    return 0;
}

static void test_shared(void **state)
{
    ranks_setup_t setup = {.size = RANKS, .nics = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, shared_body, NULL), 0);
}

static void test_budget(void **state)
{
    ranks_setup_t setup = {.size = RANKS, .nics = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, budget_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_follows_pairs), cmocka_unit_test(test_always),
                                       cmocka_unit_test(test_budget), cmocka_unit_test(test_shared)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
