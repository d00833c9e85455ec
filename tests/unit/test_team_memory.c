/* SPDX-License-Identifier: BSD-3-Clause */
/* What a team of one node sets aside: its pages are reserved in every communicator, before the first call returns. */
#include "exec/team.h"
#include "unit/ranks.h"
#include "util/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define RANKS 4

static int warnings;

static void count(mpath_log_level_t level, const char *line)
{
    (void)line;
    warnings += level <= MPATH_LOG_WARN;
}

typedef struct expected {
    mpath_gate_t gate;
    uint64_t node_min_bytes;
    uint64_t least, most;
} expected_t;

static int memory_body(ranks_self_t *self, void *argument)
{
    const expected_t *expected = argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;

    mpath_log_set_sink(count);
    mpath_settings_init(&settings);
    settings.gate           = expected->gate;
    settings.node_min_bytes = expected->node_min_bytes;
    context                 = ranks_context(self, &settings);
    team                    = ranks_team(self, context);
    ranks_check(mpath_team_memory_bytes(team) >= expected->least);
    ranks_check(mpath_team_memory_bytes(team) <= expected->most);
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
    const expected_t usual  = {MPATH_GATE_AUTO, 4097, 0, 128 << 10};
    const expected_t none   = {MPATH_GATE_AUTO, 0, 0, 128 << 10};
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_follows_pairs), cmocka_unit_test(test_always)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
