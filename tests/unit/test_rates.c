/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rates that plans count on: those of the file in the first Alltoallv, those that other communicators have learned, on ranks
 * that know different things, and those of a measurement, which is kept.
 */
#include "tune/history.h"
#include "rates_support.h"
#include "unit/capture.h"
#include "util/fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WINDOW_BPS 5000000ull /* of rails: four calls are a window */

static const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = 2};

/* -- the file -- */

static void write_line(const member_t *member, const char *operation, int k)
{
    FILE *out = fopen(rates_path, "w");

    ranks_check(out != NULL);
    fprintf(out, "mpath-rates 2\n%016llx %s %d rates %llu %llu\n",
            (unsigned long long)mpath_topo_signature(mpath_team_topo(member->team)), operation, k, FAST_BPS, SLOW_BPS);
    fclose(out);
}

static int file_body(ranks_self_t *self, void *argument)
{
    const char *operation = argument;
    member_t member;

    member_start(&member, self, MPATH_ADAPT_RUN);
    if (self->rank == 0) {
        write_line(&member, operation, (strcmp(operation, "allgather") == 0) ? 1 : 0);
    }
    ranks_check(avoids_second(&member));
    member_end(&member);
    return 0;
}

/* What is there is used by the first Alltoallv, be it of another operation; not what is of another machine. */
static void test_file(void **state)
{
    static char operations[][16] = {"alltoallv", "allgather", "start"};

    (void)state;
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
        assert_int_equal(ranks_run(&setup, file_body, operations[i]), 0);
    }
}

static int off_body(ranks_self_t *self, void *argument)
{
    member_t member;

    (void)argument;
    member_start(&member, self, MPATH_ADAPT_OFF);
    if (self->rank == 0) {
        write_line(&member, "alltoallv", 0);
    }
    ranks_check(!avoids_second(&member));
    member_end(&member);
    return 0;
}

static void test_off(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(&setup, off_body, NULL), 0);
}

/* -- other communicators -- */

static void learn(const member_t *member)
{
    const int numbers[2]      = {0, 1};
    const uint64_t nominal[2] = {FAST_BPS, FAST_BPS}, bps[2] = {FAST_BPS, SLOW_BPS};

    ranks_check(mpath_coll_rates_learned(member->coll, 2, numbers, nominal, bps) == MPATH_OK);
}

/* Two ranks, one of each node, learn in a communicator of their own; then it spreads to all that they are in. */
static int others_body(ranks_self_t *self, void *argument)
{
    static const int pair[] = {0, 2}, rest[] = {1, 3};
    int mine = self->rank % 2 == 0;
    member_t world, part, late;

    (void)argument;
    member_start(&world, self, MPATH_ADAPT_RUN);
    ranks_check(!avoids_second(&world));
    member_join(&part, &world, self, 1, mine ? pair : rest, 2);
    ranks_check(!avoids_second(&part));
    if (mine) {
        learn(&part);
    }
    ranks_check(avoids_second(&part) == mine);
    ranks_check(avoids_second(&world)); /* ranks know different things */
    ranks_check(avoids_second(&world));
    ranks_check(avoids_second(&part)); /* the others have heard of it in the one before */
    member_join(&late, &world, self, 2, NULL, RANKS);
    ranks_check(avoids_second(&late));
    check_allreduce(&late, self, 20000, 0);
    ranks_check(late.symmetric->adapt.rates[0][0].current_bps[1] == SLOW_BPS);
    ranks_check(late.symmetric->adapt.rates[0][0].current_bps[0] == FAST_BPS);
    member_leave(&late);
    member_leave(&part);
    member_end(&world);
    return 0;
}

static void test_others(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(&setup, others_body, NULL), 0);
}

/* An Allreduce hears first, and its communicator's Alltoallv plans with it; then nobody asks any more. */
static int allreduce_first_body(ranks_self_t *self, void *argument)
{
    member_t world, other;
    uint32_t call;

    (void)argument;
    member_start(&world, self, MPATH_ADAPT_RUN);
    member_join(&other, &world, self, 1, NULL, RANKS);
    learn(&world);
    check_allreduce(&other, self, 20000, 0);
    ranks_check(mpath_coll_rates_call_flags(other.coll) == 0);
    ranks_check(mpath_coll_rates_call_flags(world.coll) == 0);
    ranks_check(avoids_second(&other));
    call = mpath_team_call(other.team);
    check_allreduce(&other, self, 20000, 0);
    ranks_check(mpath_team_call(other.team) == call + 1);
    member_leave(&other);
    member_end(&world);
    return 0;
}

static void test_allreduce_first(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(&setup, allreduce_first_body, NULL), 0);
}

/* What calls have shown before says nothing about what others have learned since. */
static int window_body(ranks_self_t *self, void *argument)
{
    member_t member;

    (void)argument;
    member_start(&member, self, MPATH_ADAPT_RUN);
    for (int call = 1; call < MPATH_RATES_WINDOW_CALLS; call++) {
        ranks_check(!avoids_second(&member));
    }
    ranks_check(member.coll->rates.nics.window.calls == MPATH_RATES_WINDOW_CALLS - 1);
    learn(&member);
    ranks_check(avoids_second(&member));
    ranks_check(member.coll->rates.nics.current_bps[1] == WINDOW_BPS / (FAST_BPS / SLOW_BPS));
    ranks_check(member.coll->rates.nics.window.calls == 1);
    member_end(&member);
    return 0;
}

static void test_window(void **state)
{
    ranks_setup_t slow = setup;

    (void)state;
    slow.nic_bps = WINDOW_BPS;
    assert_int_equal(ranks_run(&slow, window_body, NULL), 0);
}

/* What rails are said to have taken, over what they take at their rates; 0: what they have. */
static uint64_t times_slower[2];

void __real_mpath_move_times(const mpath_team_t *team, const mpath_topo_t *topo, const mpath_plan_t *plan,
                             mpath_rail_times_t *times);
void __wrap_mpath_move_times(const mpath_team_t *team, const mpath_topo_t *topo, const mpath_plan_t *plan,
                             mpath_rail_times_t *times);

void __wrap_mpath_move_times(const mpath_team_t *team, const mpath_topo_t *topo, const mpath_plan_t *plan,
                             mpath_rail_times_t *times)
{
    static mpath_rail_source_t sources[2 * MPATH_MAX_NICS];

    __real_mpath_move_times(team, topo, plan, times);
    memcpy(sources, times->sources, 2 * (size_t)times->source_nics * sizeof(sources[0]));
    for (int nic = 0; (nic < 2) && (times_slower[0] > 0); nic++) {
        times->took_ns[nic] = times->pace_ns[nic] = times->least_ns[nic] * times_slower[nic];
        for (int node = 0; node < 2; node++) {
            mpath_rail_source_t *source = &sources[node * times->source_nics + nic];

            source->took_ns = source->least_ns * times_slower[nic];
        }
    }
    times->sources = sources;
}

/* A window in which one rail is slow, and once less so: what the best quarter of the calls shows counts. */
static int slow_body(ranks_self_t *self, void *argument)
{
    static const uint64_t slower[MPATH_RATES_WINDOW_CALLS] = {8, 16, 4, 8};
    int slow                                               = *(const int *)argument;
    const uint64_t *bps;
    member_t member;

    member_start(&member, self, MPATH_ADAPT_RUN);
    bps = member.coll->rates.nics.current_bps;
    for (int call = 0; call < MPATH_RATES_WINDOW_CALLS; call++) {
        ranks_check((bps[0] == WINDOW_BPS) && (bps[1] == WINDOW_BPS));
        times_slower[slow]     = slower[call % 4];
        times_slower[1 - slow] = 1;
        (void)avoids_second(&member);
    }
    ranks_check(member.coll->rates.nics.window.calls == 0);
    ranks_check(bps[1 - slow] == WINDOW_BPS);
    ranks_check(bps[slow] / 1000 == WINDOW_BPS / 4 / 1000);
    ranks_check(mpath_coll_rates_are_known(member.coll));
    member_end(&member);
    return 0;
}

static void test_slow(void **state)
{
    ranks_setup_t slow = setup;

    (void)state;
    slow.nic_bps = WINDOW_BPS;
    for (int rail = 0; rail < 2; rail++) {
        assert_int_equal(ranks_run(&slow, slow_body, &rail), 0);
        unlink(rates_path); /* it has been kept */
    }
}

static void rest_fiber(void *argument)
{
    for (int call = 0; call < MPATH_RATES_WINDOW_CALLS - 1; call++) {
        (void)avoids_second(argument);
    }
}

static int rest_body(ranks_self_t *self, void *argument)
{
    mpath_fiber_t *fiber;
    member_t member;

    (void)argument;
    member_start(&member, self, MPATH_ADAPT_RUN);
    ranks_check(mpath_fiber_create(1 << 20, &fiber) == MPATH_OK);
    mpath_fiber_start(fiber, rest_fiber, &member);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
    }
    mpath_fiber_destroy(fiber);
    ranks_check(member.coll->rates.nics.window.calls == 0);
    (void)avoids_second(&member);
    ranks_check(member.coll->rates.nics.window.calls == 1);
    member_end(&member);
    return 0;
}

/* In calls that others progress ranks may compute, which is no property of rails: they do not count. */
static void test_rest(void **state)
{
    ranks_setup_t slow = setup;

    (void)state;
    slow.nic_bps = WINDOW_BPS;
    assert_int_equal(ranks_run(&slow, rest_body, NULL), 0);
}

/* -- a rail of which no call shows anything -- */

static int unseen_body(ranks_self_t *self, void *argument)
{
    const int numbers[2]      = {0, 1};
    const uint64_t nominal[2] = {WINDOW_BPS, WINDOW_BPS}, bps[2] = {WINDOW_BPS, WINDOW_BPS / 100000};
    member_t member;
    int calls = 0;

    (void)argument;
    member_start(&member, self, MPATH_ADAPT_RUN);
    ranks_check(mpath_coll_rates_learned(member.coll, 2, numbers, nominal, bps) == MPATH_OK);
    times_slower[0] = times_slower[1] = 1; /* rates that rise make calls too short to show anything */
    while (member.coll->rates.nics.current_bps[1] == bps[1]) {
        ranks_check(avoids_second(&member));
        ranks_check(++calls <= 9 * MPATH_RATES_WINDOW_CALLS);
    }
    ranks_check(calls > 7 * MPATH_RATES_WINDOW_CALLS);
    ranks_check(member.coll->rates.nics.current_bps[1] == 2 * bps[1]);
    member_end(&member);
    return 0;
}

/* It is trusted with more, slowly. */
static void test_unseen(void **state)
{
    ranks_setup_t slow = setup;

    (void)state;
    slow.nic_bps = WINDOW_BPS;
    assert_int_equal(ranks_run(&slow, unseen_body, NULL), 0);
}

/* -- a measurement before the first call -- */

/* Nonzero: the file keeps a measurement; then *second_p is what it found of the second rail. */
static int read_start(unsigned long long *second_p)
{
    char line[256];
    FILE *in  = fopen(rates_path, "r");
    int found = 0;

    while ((in != NULL) && (fgets(line, sizeof(line), in) != NULL)) {
        found |= sscanf(line, "%*x start 0 rates %*u %llu", second_p) == 1;
    }
    if (in != NULL) {
        fclose(in);
    }
    return found;
}

/* It is kept, and not made again in another communicator. */
static int start_body(ranks_self_t *self, void *argument)
{
    unsigned long long second = 0;
    member_t world, other;

    (void)argument;
    member_start(&world, self, MPATH_ADAPT_START);
    check_allreduce(&world, self, 20000, 0);
    ranks_check(mpath_coll_rates_are_known(world.coll));
    if (self->rank == 0) {
        ranks_check(read_start(&second) && (world.symmetric->adapt.rates[0][0].current_bps[1] == second));
        unlink(rates_path);
    }
    member_join(&other, &world, self, 1, NULL, RANKS);
    check_allreduce(&other, self, 20000, 0);
    ranks_check((self->rank != 0) || !read_start(&second));
    ranks_check(other.symmetric->adapt.rates[0][0].current_bps[1] == world.symmetric->adapt.rates[0][0].current_bps[1]);
    member_leave(&other);
    member_end(&world);
    return 0;
}

/* Nor in another job, which has the file. */
static int started_body(ranks_self_t *self, void *argument)
{
    unsigned long long second = 0;
    member_t member;

    (void)argument;
    member_start(&member, self, MPATH_ADAPT_START);
    if (self->rank == 0) {
        write_line(&member, "start", 0);
    }
    check_allreduce(&member, self, 20000, 0);
    ranks_check(member.symmetric->adapt.rates[0][0].current_bps[1] == SLOW_BPS);
    ranks_check((self->rank != 0) || (read_start(&second) && (second == SLOW_BPS)));
    member_end(&member);
    return 0;
}

static void test_start(void **state)
{
    ranks_setup_t slow = setup;

    (void)state;
    slow.nic_bps = WINDOW_BPS; /* nothing to measure for long */
    assert_int_equal(ranks_run(&slow, start_body, NULL), 0);
    assert_int_equal(ranks_run(&setup, started_body, NULL), 0);
}

/* -- the table -- */

static void test_known(void **state)
{
    const mpath_learned_t old = {.learned_ns = 5, .value = 7, .nominal_bps = 9}, later = {6, 8, 9}, same = {7, 8, 9};
    const mpath_history_key_t nic = mpath_history_nic("a", 3), other_rail = mpath_history_nic("a", 2);
    const mpath_history_key_t other_node = mpath_history_nic("b", 3), rails = mpath_history_nic(NULL, 3);
    mpath_history_key_t first;

    (void)state;
    assert_int_equal(mpath_history_changes(), 0);
    assert_int_equal(mpath_history_of(&nic).learned_ns, 0);
    assert_int_equal(mpath_history_note(&nic, &later), 1);
    assert_int_equal(mpath_history_note(&nic, &old), 0);
    assert_int_equal(mpath_history_of(&nic).value, 8);
    assert_int_equal(mpath_history_note(&nic, &same), 0);
    assert_int_equal(mpath_history_of(&nic).learned_ns, 7);
    assert_int_equal(mpath_history_changes(), 1);
    assert_int_equal(mpath_history_of(&other_rail).learned_ns, 0);
    assert_int_equal(mpath_history_of(&other_node).learned_ns, 0);
    assert_int_equal(mpath_history_of(&rails).learned_ns, 0);
    assert_ptr_equal(mpath_history_later(&old, &later), &later);
    assert_ptr_equal(mpath_history_later(&later, &old), &later);

    /* more than it has room for: what was learned first makes room */
    for (int rail = 0; rail < MPATH_HISTORY_MAX; rail++) {
        const mpath_learned_t known   = {.learned_ns = 10 + (uint64_t)rail, .value = 1, .nominal_bps = 1};
        const mpath_history_key_t key = mpath_history_nic("b", rail);

        assert_int_equal(mpath_history_note(&key, &known), 1);
    }
    assert_int_equal(mpath_history_of(&nic).learned_ns, 0);
    first = mpath_history_nic("b", 0);
    assert_int_equal(mpath_history_of(&first).learned_ns, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_file, rates_forget),
        cmocka_unit_test_teardown(test_off, rates_forget),

        cmocka_unit_test_teardown(test_others, rates_forget),
        cmocka_unit_test_teardown(test_allreduce_first, rates_forget),
        cmocka_unit_test_teardown(test_start, rates_forget),
        cmocka_unit_test(test_known),
        cmocka_unit_test_teardown(test_unseen, rates_forget),
        cmocka_unit_test_teardown(test_window, rates_forget),
        cmocka_unit_test_teardown(test_rest, rates_forget),
        cmocka_unit_test_teardown(test_slow, rates_forget),
    };

    rates_support_init();
    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
