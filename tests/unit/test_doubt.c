/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When the previous function is tried for calls on host memory: after some in a row that took longer than their links
 * explain, where nothing forbids it; and what becomes of the trials.
 */
#include "a2a.h"
#include "team/agree.h"
#include "unit/symmetric_support.h"
#include "util/fiber.h"
#include "util/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 4
#define MIB (UINT64_C(1) << 20)
#define TRIALS (2 * MPATH_TRIAL_RUNS)
#define MS MPATH_NS_PER_MS
#define NICS 2
#define NIC_BPS UINT64_C(1000000000)

/* -- trials, of which the test says how long they take: a busy machine would say something else -- */

static uint64_t trial_ns;

void __wrap_mpath_trials_ended(mpath_trials_t *trials);

void __wrap_mpath_trials_ended(mpath_trials_t *trials)
{
    ranks_check((trials->tried == NULL) || ((mpath_time_ns() > trials->start_ns) && (trial_ns > 0)));
    mpath_trials_took(trials, trial_ns);
}

/* -- the ranks' word -- */

void __real_mpath_doubt_took(mpath_doubt_t *doubt, uint64_t took_ns, uint64_t links_ns);

/* A call of `bytes` and `skew` on all ranks; whether it is the previous function's. */
static int next(mpath_doubt_t *doubt, mpath_team_t *team, uint32_t flags, uint64_t bytes, unsigned skew)
{
    const mpath_doubt_call_t call = {.bytes = bytes, .skew = skew};
    int previous                  = 2;

    ranks_check(mpath_doubt_next(doubt, team, flags, &call, mpath_time_ns(), &previous) == MPATH_OK);
    return previous;
}

/* `calls` of them that mpath carries, each slow by the ranks' word of the one before. */
static void slow_calls(mpath_doubt_t *doubt, mpath_team_t *team, unsigned calls, uint64_t bytes, unsigned skew)
{
    for (unsigned call = 0; call < calls; call++) {
        ranks_check(!next(doubt, team, (call > 0) ? MPATH_CALL_SLOW : 0, bytes, skew));
    }
}

/* Six trials, in which mpath's way takes 20 ms and the previous function so many. */
static void run_trials(mpath_doubt_t *doubt, mpath_team_t *team, uint32_t first, uint64_t bytes, unsigned skew,
                       unsigned previous_ms)
{
    for (int trial = 0; trial < TRIALS; trial++) {
        int previous = next(doubt, team, (trial == 0) ? first : 0, bytes, skew);

        ranks_check(previous == trial % 2);
        trial_ns = (previous ? previous_ms : 20) * MS;
        mpath_doubt_ended(doubt);
    }
}

/* Where there is nothing to gain a little is enough, and only there. */
static void check_even(mpath_doubt_t *doubt, mpath_team_t *team)
{
    const mpath_doubt_call_t even = {.bytes = MIB, .is_even = 1};
    const uint64_t most_ns        = 105 * MS + MPATH_DOUBT_FIRST_NS;
    int previous;

    ranks_check(mpath_doubt_next(doubt, team, 0, &even, mpath_time_ns(), &previous) == MPATH_OK);
    __real_mpath_doubt_took(doubt, most_ns, 100 * MS);
    ranks_check(mpath_doubt_call_flags(doubt) == 0);
    __real_mpath_doubt_took(doubt, most_ns + 1, 100 * MS);
    ranks_check(mpath_doubt_call_flags(doubt) == MPATH_CALL_SLOW);
    ranks_check(!next(doubt, team, 0, MIB, 0));
    __real_mpath_doubt_took(doubt, most_ns + 1, 100 * MS);
    ranks_check(mpath_doubt_call_flags(doubt) == 0);
}

static void check_word(mpath_team_t *team)
{
    mpath_doubt_t doubt = {.last = NULL};

    ranks_check(mpath_doubt_call_flags(&doubt) == 0);
    ranks_check(!next(&doubt, team, MPATH_CALL_SLOW, MIB, 0)); /* of no call of this operation */
    __real_mpath_doubt_took(&doubt, 2 * MS + MPATH_DOUBT_FIRST_NS, MS);
    ranks_check(mpath_doubt_call_flags(&doubt) == 0);
    __real_mpath_doubt_took(&doubt, 2 * MS + MPATH_DOUBT_FIRST_NS + 1, MS);
    ranks_check(mpath_doubt_call_flags(&doubt) == MPATH_CALL_SLOW);
    check_even(&doubt, team);
    /* one that was not slow, and those of other kinds, do not count */
    slow_calls(&doubt, team, MPATH_DOUBT_ROW, MIB, 0);
    ranks_check(!next(&doubt, team, 0, MIB, 0));
    slow_calls(&doubt, team, MPATH_DOUBT_ROW, MIB, 1);
    slow_calls(&doubt, team, MPATH_DOUBT_ROW, 2 * MIB, 0);
    ranks_check(doubt.trials.kinds == NULL);
    /* a call of a kind in doubt, whatever came between */
    slow_calls(&doubt, team, MPATH_DOUBT_ROW, MIB, 0);
    ranks_check(!next(&doubt, team, MPATH_CALL_SLOW, 8 * MIB, 0));
    ranks_check(doubt.trials.kinds == NULL);
    run_trials(&doubt, team, 0, MIB, 0, 150);
    ranks_check(!next(&doubt, team, 0, MIB, 0));
    ranks_check(!next(&doubt, team, 0, MIB, 0));
    slow_calls(&doubt, team, MPATH_DOUBT_ROW, 2 * MIB, 0);
    run_trials(&doubt, team, MPATH_CALL_SLOW, 2 * MIB, 0, 1);
    ranks_check(next(&doubt, team, 0, 2 * MIB, 0));
    ranks_check(mpath_doubt_call_flags(&doubt) == 0); /* it was not mpath's */
    ranks_check(next(&doubt, team, 0, 2 * MIB, 0));
    ranks_check(!next(&doubt, team, 0, MIB, 0));
    mpath_doubt_release(&doubt);
}

/* Shares that change with every window hold trials up for some windows only. */
static void check_windows(mpath_team_t *team)
{
    const mpath_doubt_call_t call = {.bytes = MIB, .adapts = 1};
    mpath_doubt_t doubt           = {.last = NULL};
    int previous;

    slow_calls(&doubt, team, MPATH_DOUBT_ROW, MIB, 0);
    for (unsigned window = 0; window < MPATH_DOUBT_WINDOWS; window++) {
        for (unsigned number = 1; number <= MPATH_DOUBT_WINDOW_CALLS; number++) {
            ranks_check(mpath_doubt_next(&doubt, team, MPATH_CALL_SLOW, &call, 0, &previous) == MPATH_OK);
            ranks_check(!previous && (mpath_doubt_window_call(&doubt) == number));
        }
        mpath_doubt_adapted(&doubt, 1);
    }
    for (int trial = 0; trial < 2; trial++) {
        ranks_check(mpath_doubt_next(&doubt, team, MPATH_CALL_SLOW, &call, 0, &previous) == MPATH_OK);
        ranks_check((previous == trial) && (mpath_doubt_window_call(&doubt) == 0));
    }
    mpath_doubt_release(&doubt);
}

/* Calls that are no longer slow end the doubt, and what trials have found with it, unless that is the other way. */
static void check_end(mpath_team_t *team)
{
    for (int is_faster = 0; is_faster < 2; is_faster++) {
        mpath_doubt_t doubt      = {.last = NULL};
        mpath_doubt_kind_t *kind = &doubt.kinds[mpath_function_kind(MIB, 0)];
        const mpath_trial_t *trial;

        slow_calls(&doubt, team, MPATH_DOUBT_ROW, MIB, 0);
        run_trials(&doubt, team, MPATH_CALL_SLOW, MIB, 0, is_faster ? 1 : 150);
        ranks_check(next(&doubt, team, 0, MIB, 0) == is_faster);
        trial = mpath_trials_of(&doubt.trials, mpath_function_kind(MIB, 0));
        ranks_check(mpath_trial_is_known(trial) && (kind->slow == MPATH_DOUBT_ROW));
        for (unsigned call = 0; call <= MPATH_DOUBT_ROW; call++) {
            doubt.last = kind; /* a call of mpath's, as in the next trials */
            ranks_check(next(&doubt, team, 0, MIB, 0) == is_faster);
        }
        ranks_check(((kind->slow == MPATH_DOUBT_ROW) == is_faster) && (mpath_trial_is_known(trial) == is_faster));
        mpath_doubt_release(&doubt);
    }
}

/* What another thread of control would do: no trials, and what is known. */
typedef struct rest {
    mpath_doubt_t *doubt;
    mpath_team_t *team;
} rest_t;

static void rest_fiber(void *argument)
{
    const rest_t *rest = argument;

    for (int call = 0; call < 2 * TRIALS; call++) {
        ranks_check(!next(rest->doubt, rest->team, 0, MIB, 0));
        ranks_check(next(rest->doubt, rest->team, 0, 2 * MIB, 0));
    }
}

static void check_rest(mpath_team_t *team)
{
    mpath_doubt_t doubt = {.last = NULL};
    rest_t rest         = {.doubt = &doubt, .team = team};
    mpath_fiber_t *fiber;

    slow_calls(&doubt, team, MPATH_DOUBT_ROW, 2 * MIB, 0);
    run_trials(&doubt, team, MPATH_CALL_SLOW, 2 * MIB, 0, 1);
    ranks_check(next(&doubt, team, 0, 2 * MIB, 0));
    slow_calls(&doubt, team, MPATH_DOUBT_ROW, MIB, 0);
    ranks_check(!next(&doubt, team, MPATH_CALL_SLOW, 16 * MIB, 0));
    ranks_check(mpath_fiber_create(256 << 10, &fiber) == MPATH_OK);
    mpath_fiber_start(fiber, rest_fiber, &rest);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
    }
    mpath_fiber_destroy(fiber);
    run_trials(&doubt, team, 0, MIB, 0, 1); /* from the first one on */
    mpath_doubt_release(&doubt);
}

/* How many calls pass, one after the other, that are left without an agreement. */
static unsigned passed(mpath_doubt_t *doubt, const mpath_team_t *team, uint64_t bytes, unsigned skew)
{
    unsigned calls = 0;

    while (mpath_doubt_passes(doubt, team, bytes, skew)) {
        calls++;
    }
    return calls;
}

/* What trials have found holds for calls without an agreement, too, more and more of them and of no other kind. */
static void check_passes(mpath_team_t *team)
{
    mpath_doubt_t doubt = {.last = NULL};
    unsigned calls = 0, most = MPATH_DOUBT_PASS_FIRST, expected;

    ranks_check(passed(&doubt, team, MIB, 0) == 0);
    slow_calls(&doubt, team, MPATH_DOUBT_ROW, MIB, 0);
    run_trials(&doubt, team, MPATH_CALL_SLOW, MIB, 0, 1);
    ranks_check(passed(&doubt, team, MIB, 0) == 0); /* nobody has decided yet */
    while (calls < MPATH_TRIAL_HOLDS) {
        ranks_check(next(&doubt, team, 0, MIB, 0));
        calls++;
        ranks_check(passed(&doubt, team, 2 * MIB, 0) == 0);
        ranks_check(passed(&doubt, team, MIB, 1) == 0);
        expected = (most < MPATH_TRIAL_HOLDS - calls) ? most : MPATH_TRIAL_HOLDS - calls;
        ranks_check(passed(&doubt, team, MIB, 0) == expected);
        calls += expected;
        most = (2 * most + 1 < MPATH_DOUBT_PASS_MOST) ? 2 * most + 1 : MPATH_DOUBT_PASS_MOST;
    }
    run_trials(&doubt, team, 0, MIB, 0, 150);
    ranks_check(!next(&doubt, team, 0, MIB, 0) && (passed(&doubt, team, MIB, 0) == 0));
    mpath_doubt_release(&doubt);
}

static void check_lost(mpath_team_t *team)
{
    mpath_doubt_t doubt = {.last = NULL};

    slow_calls(&doubt, team, MPATH_DOUBT_ROW, MIB, 0);
    run_trials(&doubt, team, MPATH_CALL_SLOW, MIB, 0, 1);
    ranks_check(next(&doubt, team, 0, MIB, 0) && (passed(&doubt, team, MIB, 0) == MPATH_DOUBT_PASS_FIRST));
    ranks_check(next(&doubt, team, MPATH_CALL_GPUS, MIB, 0) && (passed(&doubt, team, MIB, 0) == 0));
    ranks_check(next(&doubt, team, 0, MIB, 0) && (doubt.passes.left == MPATH_DOUBT_PASS_FIRST));
    team->topo_version++; /* as when a rail has failed */
    ranks_check(passed(&doubt, team, MIB, 0) == 0);
    ranks_check(!next(&doubt, team, 0, MIB, 0));
    mpath_doubt_release(&doubt);
}

static int word_body(ranks_self_t *self, void *argument)
{
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;

    (void)argument;
    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    check_word(team);
    check_windows(team);
    check_end(team);
    check_rest(team);
    check_passes(team);
    check_lost(team);
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_word(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, word_body, NULL), 0);
}

/* -- whole calls, of which the test says how long they take -- */

#define ELEMENTS (MIB / 8)
#define BLOCK (MIB / 4)

static int calls_are_slow;
static uint64_t last_links_ns;

void __wrap_mpath_doubt_took(mpath_doubt_t *doubt, uint64_t took_ns, uint64_t links_ns);

void __wrap_mpath_doubt_took(mpath_doubt_t *doubt, uint64_t took_ns, uint64_t links_ns)
{
    ranks_check(took_ns > 0);
    last_links_ns = links_ns;
    __real_mpath_doubt_took(doubt, calls_are_slow ? 4 * links_ns + MS : links_ns, links_ns);
}

typedef enum operation { ALLTOALLV, ALLREDUCE, REDUCE_SCATTER, ALLGATHER, OPERATIONS } operation_t;

typedef struct call_job {
    ranks_setup_t setup;
    int gate, deterministic;
    int slow;         /* mpath's calls take long */
    int tried, taken; /* the previous function is tried; it is by far the faster one */
    int equal;        /* an exchange is an MPI_Alltoall */
} call_job_t;

static mpath_status_t make_call(member_t *member, operation_t operation, int is_equal, a2a_t *a2a, uint64_t round)
{
    uint64_t elements = ELEMENTS, blocks[RANKS] = {elements / 4, elements / 4, elements / 4, elements / 4};
    uint64_t offsets[RANKS], demand[RANKS * RANKS];
    double *vector = zeroed(elements * sizeof(*vector));
    mpath_status_t status;

    switch (operation) {
    case ALLTOALLV:
        a2a_demand(A2A_EVEN, RANKS, BLOCK, 1, demand);
        a2a_fill(a2a, demand, round);
        if (mpath_coll_passes(member->coll, is_equal ? BLOCK : 0)) {
            status = MPATH_DECLINED;
            break;
        }
        status = mpath_alltoallv(member->coll, &a2a->call);
        ranks_check((status != MPATH_OK) || (a2a_check(a2a) == 0));
        break;
    case ALLREDUCE:
        status = mpath_allreduce(member->symmetric, vector, vector, elements, &doubles, 0);
        break;
    case REDUCE_SCATTER:
        status = mpath_reduce_scatter(member->symmetric, vector, vector, blocks, &doubles, 0);
        break;
    default:
        for (int rank = 0; rank < RANKS; rank++) {
            blocks[rank]  = BLOCK;
            offsets[rank] = (uint64_t)rank * BLOCK;
        }
        status = mpath_allgather(member->symmetric, NULL, vector, blocks, offsets, 0);
        break;
    }
    free(vector);
    return status;
}

static void end_call(member_t *member, int is_slower)
{
    trial_ns = (is_slower ? 20 : 5) * MS;
    mpath_coll_ended(member->coll);
    mpath_symmetric_ended(member->symmetric);
}

/* Of two nodes, each half of the ranks; a reduction that all get crosses twice. */
static void check_links(operation_t operation)
{
    const uint64_t bytes[OPERATIONS] = {0, ELEMENTS * sizeof(double), ELEMENTS / 2 * sizeof(double), RANKS / 2 * BLOCK};

    ranks_check(last_links_ns > 0);
    ranks_check((operation == ALLTOALLV) || (last_links_ns == bytes[operation] * MPATH_NS_PER_S / (NICS * NIC_BPS)));
}

static void check_calls(member_t *member, operation_t operation, const call_job_t *job, a2a_t *a2a)
{
    int number = 0;

    for (unsigned call = 0; call < MPATH_DOUBT_ROW + TRIALS + 4; call++) {
        uint64_t agreed       = mpath_team_call(member->team);
        mpath_status_t status = make_call(member, operation, job->equal, a2a, call);
        int previous          = 0, passes;

        if (job->tried && (call >= MPATH_DOUBT_ROW)) {
            previous = (number < TRIALS) ? number % 2 : job->taken;
            number++;
        }
        ranks_check(status == (previous ? MPATH_DECLINED : MPATH_OK));
        /* once that is decided, every second one of the first needs no agreement */
        passes = previous && (number > TRIALS) && ((number - TRIALS) % 2 == 0) &&
                 ((operation != ALLTOALLV) || job->equal);
        ranks_check((mpath_team_call(member->team) == agreed) == passes);
        if ((status == MPATH_OK) && (job->gate == MPATH_GATE_AUTO)) {
            check_links(operation);
        }
        end_call(member, (number > 0) && (number <= TRIALS) && (previous != job->taken));
    }
}

static int call_body(ranks_self_t *self, void *argument)
{
    const call_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;
    a2a_t a2a;

    calls_are_slow = job->slow;
    mpath_settings_init(&member.settings);
    member.settings.memory_bytes  = 8 * MIB;
    member.settings.gate          = job->gate;
    member.settings.deterministic = job->deterministic;
    member.settings.adapt         = MPATH_ADAPT_OFF;
    member_open(&member, self);
    a2a_init(&a2a, self->rank, self->size);
    for (int operation = 0; operation < OPERATIONS; operation++) {
        call_job_t this = *job;

        /* an Alltoallv has the same bytes whoever carries it */
        this.tried = job->tried && !(job->deterministic && (operation != ALLTOALLV));
        check_calls(&member, (operation_t)operation, &this, &a2a);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.plans == 1); /* whatever the ranks say of their last call */
    a2a_end(&a2a);
    member_end(&member);
    return 0;
}

static void check_job(int slow, int gate, int deterministic, int tried, int taken, int equal)
{
    call_job_t job = {.setup         = {.size = RANKS, .nodes = 2, .nics = NICS, .nic_bps = NIC_BPS},
                      .slow          = slow,
                      .gate          = gate,
                      .deterministic = deterministic,
                      .tried         = tried,
                      .taken         = taken,
                      .equal         = equal};

    assert_int_equal(ranks_run(&job.setup, call_body, &job), 0);
}

static void test_calls(void **state)
{
    (void)state;
    check_job(1, MPATH_GATE_AUTO, 0, 1, 1, 0);
    check_job(1, MPATH_GATE_AUTO, 0, 1, 1, 1);
    check_job(1, MPATH_GATE_AUTO, 0, 1, 0, 0);
    check_job(1, MPATH_GATE_AUTO, 1, 1, 1, 0);
    check_job(1, MPATH_GATE_ALWAYS, 0, 0, 0, 0);
    check_job(0, MPATH_GATE_AUTO, 0, 0, 0, 0);
}

/*
 * Plans of Alltoallv follow the rails first, for some windows of calls, where these show them: not if they are too short,
 * or wait for the memory of their nodes.
 */
typedef struct follow_job {
    ranks_setup_t setup;
    uint64_t memory_bps;        /* 0: what there is */
    unsigned least, most, step; /* calls until the first trial */
} follow_job_t;

static int follow_body(ranks_self_t *self, void *argument)
{
    const follow_job_t *job = argument;
    unsigned call           = 0;
    mpath_status_t status;
    member_t member;
    a2a_t a2a;

    calls_are_slow = 1;
    if (job->memory_bps > 0) {
        self->machine.host_memory_bps = job->memory_bps;
    }
    mpath_settings_init(&member.settings);
    member.settings.memory_bytes = 8 * MIB;
    member_open(&member, self);
    a2a_init(&a2a, self->rank, self->size);
    do {
        status = make_call(&member, ALLTOALLV, 0, &a2a, call++);
        end_call(&member, 0);
    } while ((status == MPATH_OK) && (call < 100));
    ranks_check(status == MPATH_DECLINED);
    call -= 2; /* a trial of mpath's way comes before that of the other */
    ranks_check((call >= job->least) && (call <= job->most) && ((call - job->least) % job->step == 0));
    a2a_end(&a2a);
    member_end(&member);
    return 0;
}

static void test_follow(void **state)
{
    follow_job_t job = {.setup = {.size = RANKS, .nodes = 2, .nics = NICS, .nic_bps = NIC_BPS},
                        .least = MPATH_DOUBT_ROW,
                        .most  = MPATH_DOUBT_ROW,
                        .step  = 1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, follow_body, &job), 0);
    job.setup.nic_bps = NIC_BPS / 10;
    job.memory_bps    = NIC_BPS / 100;
    job.least = job.most = MPATH_DOUBT_ROW + 1;
    assert_int_equal(ranks_run(&job.setup, follow_body, &job), 0);
    /* calls long enough to show something also where windows have shown that rails are faster */
    job.setup.nic_bps = NIC_BPS / 100;
    job.memory_bps    = 0;
    job.least         = MPATH_DOUBT_ROW + MPATH_DOUBT_WINDOW_CALLS;
    job.most          = MPATH_DOUBT_ROW + MPATH_DOUBT_WINDOWS * MPATH_DOUBT_WINDOW_CALLS;
    job.step          = MPATH_DOUBT_WINDOW_CALLS;
    assert_int_equal(ranks_run(&job.setup, follow_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_word), cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_follow)};

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
