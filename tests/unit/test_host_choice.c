/* SPDX-License-Identifier: BSD-3-Clause */
/* Host choice: kinds of calls, trials in turns, and that all ranks come to one decision from what the slowest saw. */
#include "coll/host_choice.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3

static void test_kinds(void **state)
{
    int last = -1;

    (void)state;
    assert_int_equal(mpath_host_choice_kind(0), -1);
    assert_int_equal(mpath_host_choice_kind(1), 0);
    assert_int_equal(mpath_host_choice_kind(4), 4);
    assert_int_equal(mpath_host_choice_kind(5), 4);
    assert_int_equal(mpath_host_choice_kind(6), 5);
    assert_int_equal(mpath_host_choice_kind(MPATH_HOST_CHOICE_MOST_BYTES + 1), -1);
    for (uint64_t bytes = 1; bytes <= MPATH_HOST_CHOICE_MOST_BYTES; bytes++) {
        int kind = mpath_host_choice_kind(bytes);

        assert_in_range(kind, (last < 0) ? 0 : last, MPATH_HOST_CHOICE_KINDS - 1);
        assert_true(kind <= last + 2);
        last = kind;
    }
}

/* The next call; whether it goes by way of the host. */
static int next(mpath_host_choice_t *choice, mpath_team_t *team, const uint64_t *demand)
{
    int by_host = -1;

    ranks_check(mpath_host_choice_next(choice, team, demand, 1, &by_host) == MPATH_OK);
    mpath_host_choice_ended(choice);
    return by_host;
}

/* Six trials in turns, which are then said to have taken these times on this rank. */
static void try_both(mpath_host_choice_t *choice, mpath_team_t *team, const uint64_t *demand, int kind,
                     uint64_t relays_ns, uint64_t host_ns)
{
    for (int i = 0; i < MPATH_CHOICE_TIMES; i++) {
        ranks_check(next(choice, team, demand) == i % 2);
        ranks_check(choice->kinds[kind].times_ns[i] > 0);
        choice->kinds[kind].times_ns[i] = (i % 2) ? host_ns : relays_ns;
    }
}

static int decide_body(ranks_self_t *self, void *argument)
{
    /* the busiest rank is the one that receives */
    const uint64_t demand[RANKS * RANKS] = {0, 10, 900, 5, 0, 800, 5, 5, 0}, none[RANKS * RANKS] = {0};
    uint64_t large[RANKS * RANKS] = {0, MPATH_HOST_CHOICE_MOST_BYTES + 1};
    int kind                      = mpath_host_choice_kind(1700);
    mpath_host_choice_t choice    = {.tried = NULL};
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;

    (void)argument;
    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    ranks_check((next(&choice, team, none) == 0) && (next(&choice, team, large) == 0));
    /* one rank alone is slow over relays */
    try_both(&choice, team, demand, kind, (self->rank == 1) ? 900 : 100, 500);
    ranks_check((next(&choice, team, demand) == 1) && (next(&choice, team, demand) == 1));
    ranks_check(choice.kinds[kind].is_known && (choice.kinds[kind].way == MPATH_CHOICE_PLAN));
    /* and now with copies on the host; who knows nothing of the decision so far begins anew */
    memset(&choice, 0, sizeof(choice));
    try_both(&choice, team, demand, kind, 500, (self->rank == 2) ? 600 : 100);
    ranks_check((next(&choice, team, demand) == 0) && (next(&choice, team, demand) == 0));
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_decide(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, decide_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_decide)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
