/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What calls of the pipeline teach: nothing where ranks may compute in between; and shares that follow a rail that has
 * become slow before the previous function is tried for it; and rails that are too slow to shorten calls, which carry
 * nothing, not even empty messages; and that runs of a measurement do not meet.
 */
#include "pipeline/pipeline_private.h"
#include "unit/capture.h"
#include "unit/silent_rail.h"
#include "unit/symmetric_support.h"
#include "util/fiber.h"
#include "util/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 4
#define NICS 2
#define NIC_BPS UINT64_C(25000000)
#define MIB (UINT64_C(1) << 20)
#define CALLS (3 * MPATH_RATES_WINDOW_CALLS)
#define COMPUTES_US 3000

static void open_affine(member_t *member, ranks_self_t *self, int adapt)
{
    mpath_settings_init(&member->settings);
    member->settings.memory_bytes = 8 * MIB;
    member->settings.access       = MPATH_ACCESS_AFFINE;
    member->settings.adapt        = adapt;
    member_open(member, self);
}

/* -- non-blocking calls, one rank of which computes in between -- */

static void calls_fiber(void *argument)
{
    member_t *member = argument;
    double *vector   = zeroed(MIB);

    for (int call = 0; call < CALLS; call++) {
        ranks_check(mpath_allreduce(member->symmetric, vector, vector, MIB / sizeof(*vector), &doubles, 0) == MPATH_OK);
    }
    free(vector);
}

static void check_nothing_learned(const member_t *member)
{
    const mpath_nics_t *rates = &member->symmetric->adapt.rates[0][0];

    ranks_check((rates->num_rails == NICS) && (rates->window.calls == 0) && (rates->window.drifts == 0));
    for (int rail = 0; rail < NICS; rail++) {
        ranks_check((rates->current_bps[rail] == NIC_BPS) && (rates->samples[rail].bytes == 0));
    }
    for (int kind = 0; kind < MPATH_FUNCTION_KINDS; kind++) {
        ranks_check(member->symmetric->doubts[0].kinds[kind].slow == 0);
    }
}

static int late_body(ranks_self_t *self, void *argument)
{
    mpath_fiber_t *fiber;
    member_t member;

    open_affine(&member, self, *(const int *)argument);
    ranks_check(mpath_fiber_create(256 << 10, &fiber) == MPATH_OK);
    mpath_fiber_start(fiber, calls_fiber, &member);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
        if (self->rank == 1) {
            usleep(COMPUTES_US);
        }
    }
    mpath_fiber_destroy(fiber);
    check_nothing_learned(&member);
    member_end(&member);
    return 0;
}

static void test_late(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS, .nic_bps = NIC_BPS};
    int adapts[]              = {MPATH_ADAPT_RUN, MPATH_ADAPT_START};

    (void)state;
    for (size_t i = 0; i < sizeof(adapts) / sizeof(adapts[0]); i++) {
        assert_int_equal(ranks_run(&setup, late_body, &adapts[i]), 0);
    }
}

/* -- rails of which the test says what they carry -- */

#define FAST_BPS UINT64_C(1000000000)
#define FAST_BYTES (2 * MIB)
#define RAISED MPATH_DOUBT_ROW
#define EXCHANGED (RAISED + MPATH_DOUBT_WINDOW_CALLS)

static const uint64_t *true_bps; /* by rail; NULL: what is seen counts */
static const mpath_share_t *true_share;

/* Of the bytes of a node that come from the other one, twice. */
static uint64_t rail_bytes(const mpath_share_t *share, int rail)
{
    return FAST_BYTES * share->rails[rail].weight / share->cumulative[share->num_rails];
}

int __real_mpath_share_measured(const mpath_share_t *share, int index, uint64_t *bytes_p, uint64_t *busy_ns_p);
int __wrap_mpath_share_measured(const mpath_share_t *share, int index, uint64_t *bytes_p, uint64_t *busy_ns_p);

int __wrap_mpath_share_measured(const mpath_share_t *share, int index, uint64_t *bytes_p, uint64_t *busy_ns_p)
{
    int drives = __real_mpath_share_measured(share, index, bytes_p, busy_ns_p);

    if (drives && (true_bps != NULL)) {
        *bytes_p   = rail_bytes(share, index);
        *busy_ns_p = *bytes_p * MPATH_NS_PER_S / true_bps[index];
    }
    return drives;
}

void __real_mpath_doubt_took(mpath_doubt_t *doubt, uint64_t took_ns, uint64_t links_ns);
void __wrap_mpath_doubt_took(mpath_doubt_t *doubt, uint64_t took_ns, uint64_t links_ns);

void __wrap_mpath_doubt_took(mpath_doubt_t *doubt, uint64_t took_ns, uint64_t links_ns)
{
    for (int rail = 0; (rail < NICS) && (true_bps != NULL); rail++) {
        uint64_t rail_ns = rail_bytes(true_share, rail) * MPATH_NS_PER_S / true_bps[rail];

        took_ns = ((rail == 0) || (rail_ns > took_ns)) ? rail_ns : took_ns;
    }
    __real_mpath_doubt_took(doubt, took_ns, links_ns);
}

/* Calls, the first of which that is declined is `tried`. */
static void check_tried(member_t *member, unsigned calls, unsigned tried)
{
    double *vector = zeroed(FAST_BYTES);

    for (unsigned call = 0; call < calls; call++) {
        mpath_status_t status = mpath_allreduce(member->symmetric, vector, vector, FAST_BYTES / sizeof(*vector),
                                                &doubles, 0);

        ranks_check(status == ((call == tried) ? MPATH_DECLINED : MPATH_OK));
        mpath_symmetric_ended(member->symmetric);
    }
    free(vector);
}

/* One rail falls to a quarter. */
static int fallen_body(ranks_self_t *self, void *argument)
{
    const uint64_t fallen_bps[] = {FAST_BPS, FAST_BPS / 4};
    const mpath_nics_t *rates;
    const mpath_doubt_kind_t *kind;
    member_t member;

    (void)argument;
    open_affine(&member, self, MPATH_ADAPT_RUN);
    true_share = member.symmetric->share;
    true_bps   = fallen_bps;
    check_tried(&member, EXCHANGED, UINT32_MAX);
    rates = &member.symmetric->adapt.rates[0][0];
    kind  = &member.symmetric->doubts[0].kinds[mpath_function_kind(FAST_BYTES, 0)];
    for (int rail = 0; rail < NICS; rail++) {
        ranks_check(rates->current_bps[rail] / 1000 == fallen_bps[rail] / 1000);
    }
    ranks_check(kind->slow == MPATH_DOUBT_ROW);
    check_tried(&member, 2 * MPATH_DOUBT_ROW, UINT32_MAX);
    ranks_check((kind->slow == 0) && (kind->windows == 0)); /* doubt has ended */
    member_end(&member);
    return 0;
}

/* All rails are slow, which other shares cannot mend; with adapt=off at once. */
static int all_slow_body(ranks_self_t *self, void *argument)
{
    const uint64_t slow_bps[] = {FAST_BPS / 4, FAST_BPS / 4};
    int adapt                 = *(const int *)argument;
    unsigned raised           = (adapt == MPATH_ADAPT_OFF) ? RAISED : EXCHANGED;
    member_t member;

    open_affine(&member, self, adapt);
    true_share = member.symmetric->share;
    true_bps   = slow_bps;
    check_tried(&member, raised + 2, raised + 1); /* own and previous in turns */
    member_end(&member);
    return 0;
}

static void test_slow_rails(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS, .nic_bps = FAST_BPS};
    int run = MPATH_ADAPT_RUN, off = MPATH_ADAPT_OFF;

    (void)state;
    assert_int_equal(ranks_run(&setup, fallen_body, NULL), 0);
    assert_int_equal(ranks_run(&setup, all_slow_body, &run), 0);
    assert_int_equal(ranks_run(&setup, all_slow_body, &off), 0);
}

/* -- rails that are not worth their messages -- */

#define SMALL_BYTES (64 << 10)

static void open_all(member_t *member, ranks_self_t *self, uint64_t slow_bps)
{
    self->machine.nics[1].rate_bps = slow_bps;
    mpath_settings_init(&member->settings);
    member->settings.memory_bytes        = 8 * MIB;
    member->settings.allreduce_algorithm = MPATH_ALGORITHM_LANES;
    member_open(member, self);
}

/* An Allreduce after which the second rail has carried something or nothing; it never waits for it then. */
static void check_carries(member_t *member, ranks_self_t *self, uint64_t elements, int carries)
{
    const mpath_share_t *share = member->symmetric->share;

    check_allreduce(member, self, elements, 0);
    for (int i = 0; i < share->num_links; i++) {
        const share_link_t *link = &share->links[i];
        uint64_t messages        = 0;

        for (int node = 0; node < share->num_nodes; node++) {
            messages += link->next_send[SHARE_SCATTER][node] + link->next_send[SHARE_GATHER][node];
        }
        ranks_check(((messages > 0) && (link->taken_bytes > 0)) == ((link->rail == 0) || carries));
        ranks_check((messages > 0) == ((link->rail == 0) || carries));
    }
}

/* By what the system says of it, with and without what calls show: a sixteenth is worth it. */
static int reported_body(ranks_self_t *self, void *argument)
{
    uint64_t slow_bps = *(const uint64_t *)argument;
    int carries       = slow_bps >= FAST_BPS / MPATH_RATES_SLOW;
    member_t member;

    open_all(&member, self, slow_bps);
    ranks_check(mpath_share_num_lanes(member.symmetric->share) == (carries ? 2 : 1));
    for (int call = 0; call < 3; call++) {
        check_carries(&member, self, SMALL_BYTES / sizeof(double), carries);
    }
    ranks_check(mpath_share_links_ns(member.symmetric->share, MPATH_SHARE_GATHER, 2 * MIB) ==
                MIB * MPATH_NS_PER_S / (FAST_BPS + (carries ? slow_bps : 0)));
    member_end(&member);
    return 0;
}

/* By what calls have shown; one of some calls uses it, and it is back when it carries more. */
static int learned_body(ranks_self_t *self, void *argument)
{
    const uint64_t back_bps[] = {FAST_BPS, FAST_BPS}, first = MPATH_RATES_SEEN_CALLS;
    mpath_symmetric_adapt_t *adapt;
    member_t member;
    uint64_t call;

    (void)argument;
    open_all(&member, self, FAST_BPS);
    true_share = member.symmetric->share;
    true_bps   = back_bps;
    adapt      = &member.symmetric->adapt;
    check_carries(&member, self, FAST_BYTES / sizeof(double), 1);
    adapt->rates[0][0].current_bps[1] = FAST_BPS / MPATH_RATES_SLOW - 1;
    mpath_nics_restart(&adapt->rates[0][0]);
    for (call = 1; call <= first; call++) {
        check_carries(&member, self, FAST_BYTES / sizeof(double), call == first);
    }
    for (; adapt->rates[0][0].current_bps[1] < FAST_BPS / MPATH_RATES_SLOW; call++) {
        ranks_check(call < 2 * first);
        check_carries(&member, self, FAST_BYTES / sizeof(double), call == first);
    }
    check_carries(&member, self, FAST_BYTES / sizeof(double), 1);
    member_end(&member);
    return 0;
}

static void test_worth(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS, .nic_bps = FAST_BPS};
    uint64_t enough = FAST_BPS / MPATH_RATES_SLOW, slow = enough - 1;

    (void)state;
    assert_int_equal(ranks_run(&setup, reported_body, &enough), 0);
    assert_int_equal(ranks_run(&setup, reported_body, &slow), 0);
    assert_int_equal(ranks_run(&setup, learned_body, NULL), 0);
}

/* Of the combinations of the rank that drives the first rail: after so many it is silent. */
static mpath_share_t *silent_share;
static int combinations_left;

static void add_until_silent(void *argument, const void *in, void *inout, uint64_t elements)
{
    add_doubles(argument, in, inout, elements);
    if ((combinations_left > 0) && (--combinations_left == 0)) {
        fall_silent(silent_share, SHARE_SCATTER);
    }
}

/* Those who drive a rail that carries nothing do not wait for each other, although nothing has come by it. */
static int silent_body(ranks_self_t *self, void *argument)
{
    mpath_combination_t combination = doubles;
    double *vector                  = zeroed(2 * FAST_BYTES);
    int waits, all[RANKS];
    member_t member;

    (void)argument;
    self->machine.nics[1].rate_bps = FAST_BPS / MPATH_RATES_SLOW - 1;
    mpath_settings_init(&member.settings);
    member.settings.memory_bytes        = MIB;
    member.settings.access              = MPATH_ACCESS_AFFINE;
    member.settings.gate                = MPATH_GATE_ALWAYS;
    member.settings.allreduce_algorithm = MPATH_ALGORITHM_LANES;
    member.settings.resend_min_ms       = 0;
    member.settings.resend_after_s      = 4;
    member_open(&member, self);
    ranks_check(mpath_share_num_lanes(member.symmetric->share) == 1);
    if (self->rank == 0) {
        silent_share       = member.symmetric->share;
        combinations_left  = 5;
        combination.reduce = add_until_silent;
    }
    capture_start();
    ranks_check(mpath_allreduce(member.symmetric, vector, vector, 2 * FAST_BYTES / sizeof(*vector), &combination, 0) ==
                MPATH_OK);
    capture_stop();
    ranks_check((self->rank != 0) || (combinations_left == 0));
    waits = strstr(capture_text(), "waits for rank") != NULL;
    ranks_check(mpath_team_allgather(member.team, &waits, sizeof(waits), all) == MPATH_OK);
    ranks_check((all[0] || all[2]) && !all[1] && !all[3]);
    ranks_check((member.team->lost[0] | member.team->lost[1]) == 1u << 0);
    free(vector);
    member_end(&member);
    return 0;
}

static void test_unworthy_is_not_blamed(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS, .nic_bps = FAST_BPS};

    (void)state;
    assert_int_equal(ranks_run(&setup, silent_body, NULL), 0);
}

/* Slow ones together may be worth what one alone is not. */
static void test_worth_of_many(void **state)
{
    uint64_t bps[MPATH_MAX_NICS] = {1000, 50, 50, 61, 0};

    (void)state;
    assert_int_equal(mpath_rates_worth(1, bps), 1);
    assert_int_equal(mpath_rates_worth(2, bps), 1);
    assert_int_equal(mpath_rates_worth(3, bps), 7);
    bps[1] = 30;
    bps[2] = 31;
    assert_int_equal(mpath_rates_worth(3, bps), 1);
    bps[2] = 32;
    assert_int_equal(mpath_rates_worth(3, bps), 7);
    bps[1] = bps[2] = 63;
    bps[3]          = 0;
    assert_int_equal(mpath_rates_worth(4, bps), 7);
}

/* -- a measurement of several runs -- */

#define RUN_LATE_US 2000

/* Shared by the ranks: runs that have ended, in all. NULL: calls move data. */
static atomic_int *runs_ended;
static int runs_begun; /* of this rank */

mpath_status_t __real_mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats);
mpath_status_t __wrap_mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats);

/* Runs of a measurement move nothing here. None may begin before the last one has ended on all ranks, one of them late. */
mpath_status_t __wrap_mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats)
{
    if ((runs_ended == NULL) || (job->flags != MPATH_SHARE_GATHER)) {
        return __real_mpath_share_run(share, job, stats);
    }
    ranks_check(atomic_load(runs_ended) >= RANKS * runs_begun);
    runs_begun++;
    if (share->me == 0) {
        usleep(RUN_LATE_US);
    }
    atomic_fetch_add(runs_ended, 1);
    return MPATH_OK;
}

static int several_runs_body(ranks_self_t *self, void *argument)
{
    double *vector = zeroed(FAST_BYTES);
    member_t member;

    (void)argument;
    open_affine(&member, self, MPATH_ADAPT_START);
    ranks_check(mpath_allreduce(member.symmetric, vector, vector, FAST_BYTES / sizeof(*vector), &doubles, 0) ==
                MPATH_OK);
    ranks_check(runs_begun > 1);
    free(vector);
    member_end(&member);
    return 0;
}

static void test_several_runs(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS, .nic_bps = FAST_BPS};

    (void)state;
    runs_ended = mmap(NULL, sizeof(*runs_ended), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(runs_ended != MAP_FAILED);
    assert_int_equal(ranks_run(&setup, several_runs_body, NULL), 0);
    (void)munmap(runs_ended, sizeof(*runs_ended));
    runs_ended = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late),          cmocka_unit_test(test_several_runs),
        cmocka_unit_test(test_slow_rails),    cmocka_unit_test(test_worth),
        cmocka_unit_test(test_worth_of_many), cmocka_unit_test(test_unworthy_is_not_blamed)};

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
