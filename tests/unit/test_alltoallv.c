/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Alltoallv from agreement to movement, on virtual nodes: random demands with buffers that are rewritten at once, calls
 * that are declined by all or by none, counters, several communicators at a time, and in two threads.
 */
#include "a2a.h"
#include "coll/alltoallv.h"
#include "ranks.h"
#include "team/team_private.h"
#include "unit/capture.h"
#include "util/time.h"
#include "wire/failover.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define NUM_TEAMS 3
#define LATE_TIMEOUT_S 4
#define LATE_US 10000000

typedef struct job {
    ranks_setup_t setup;
    int access, gate;
    const char *tune; /* NULL: nothing is forced */
    uint64_t max_bytes;
    int rounds;
    int last_deaf; /* node */
    atomic_int *ended;
} job_t;

typedef struct member {
    mpath_team_t *team;
    mpath_coll_t *coll;
    a2a_t a2a;
    uint64_t *demand;
} member_t;

static mpath_context_t *context_of(ranks_self_t *self, const job_t *job)
{
    mpath_settings_t settings;

    mpath_settings_init(&settings);
    settings.access       = job->access;
    settings.gate         = job->gate;
    settings.check_plan   = 1;
    settings.tune         = job->tune != NULL ? job->tune : "";
    settings.memory_bytes = 8 << 20;
    settings.timeout_s    = 100;
    return ranks_context(self, &settings);
}

/* As in an MPI job, no process ends before the others' calls have: what they have not read would be lost. */
static void context_end(ranks_self_t *self, mpath_context_t *context)
{
    ranks_barrier(self);
    mpath_context_destroy(context);
}

static void member_init(member_t *member, mpath_context_t *context, const mpath_oob_t *oob)
{
    memset(member, 0, sizeof(*member));
    ranks_check(mpath_team_create(context, oob, &member->team) == MPATH_OK);
    ranks_check(mpath_coll_create(member->team, &member->coll) == MPATH_OK);
    a2a_init(&member->a2a, oob->rank, oob->size);
    member->demand = calloc((size_t)oob->size * (size_t)oob->size, sizeof(uint64_t));
}

static void member_end(member_t *member)
{
    a2a_end(&member->a2a);
    free(member->demand);
    mpath_coll_destroy(member->coll);
    mpath_team_destroy(member->team);
}

static void call_round(member_t *member, a2a_kind_t kind, uint64_t max_bytes, uint64_t seed)
{
    a2a_demand(kind, member->a2a.size, max_bytes, seed, member->demand);
    a2a_fill(&member->a2a, member->demand, seed);
    ranks_check(mpath_alltoallv(member->coll, &member->a2a.call) == MPATH_OK);
    a2a_spoil(&member->a2a);
    ranks_check(a2a_check(&member->a2a) == 0);
}

static int repeat_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = context_of(self, job);
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, context, &self->oob);
    for (int round = 0; round < job->rounds; round++) {
        call_round(&member, (a2a_kind_t)(round % 7), (round % 3 == 0) ? 6000 : job->max_bytes, (uint64_t)round);
    }
    for (int round = 0; round < 20; round++) {
        call_round(&member, A2A_HOT, job->max_bytes, 1000);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.calls == (uint64_t)job->rounds + 20);
    ranks_check(counters.declined == 0);
    ranks_check(counters.plan_hits >= 19);
    ranks_check(counters.plans > 0 && counters.plans + counters.plan_hits <= counters.calls);
    ranks_check(counters.moved.sent_bytes > 0);
    member_end(&member);
    context_end(self, context);
    return 0;
}

static void repeat(int size, int nodes, int nics, int access, uint64_t max_bytes, int rounds)
{
    job_t job = {.setup     = {.size = size, .nodes = nodes, .nics = nics},
                 .access    = access,
                 .gate      = MPATH_GATE_ALWAYS,
                 .max_bytes = max_bytes,
                 .rounds    = rounds};

    assert_int_equal(ranks_run(&job.setup, repeat_body, &job), 0);
}

/* Plans by pairs of nodes: nodes of several sizes, ranks that do not follow each other, rails without a rank, pairs that are cut and not. */
static void test_pairs(void **state)
{
    static const int dealt[] = {2, 0, 1, 0, 2, 0, 0, 1, 1};
    job_t jobs[]             = {{.setup = {.size = 8, .nodes = 2, .nics = 4}, .access = MPATH_ACCESS_ALL},
                                {.setup = {.size = 8, .nodes = 2, .nics = 4}, .access = MPATH_ACCESS_AFFINE},
                                {.setup = {.size = 9, .node_of = dealt, .nics = 3}, .access = MPATH_ACCESS_ALL},
                                {.setup = {.size = 6, .nodes = 6, .nics = 3}, .access = MPATH_ACCESS_ALL},
                                {.setup = {.size = 12, .nodes = 5, .nics = 2}, .access = MPATH_ACCESS_AFFINE}};

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        jobs[i].gate      = MPATH_GATE_ALWAYS;
        jobs[i].tune      = "alltoallv:@pairs";
        jobs[i].max_bytes = i % 2 == 0 ? 200000 : 40000;
        jobs[i].rounds    = 42;
        assert_int_equal(ranks_run(&jobs[i].setup, repeat_body, &jobs[i]), 0);
    }
}

static void test_repeat(void **state)
{
    (void)state;
    repeat(3, 1, 0, MPATH_ACCESS_ALL, 100000, 140);
    repeat(8, 2, 4, MPATH_ACCESS_ALL, 100000, 70);
    repeat(8, 2, 4, MPATH_ACCESS_AFFINE, 100000, 70);
    repeat(6, 3, 2, MPATH_ACCESS_AFFINE, 50000, 70);
}

/* Declined by everybody, for a reason; and the call after it works. */
static int decline_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = context_of(self, job);
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, context, &self->oob);
    call_round(&member, A2A_MIXED, 2000, 1);
    a2a_demand(A2A_EVEN, self->size, 100000, 2, member.demand);
    a2a_fill(&member.a2a, member.demand, 2);
    if (self->rank == 1) {
        member.a2a.call.flags |= MPATH_CALL_INELIGIBLE;
    }
    ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_DECLINED);
    ranks_check(mpath_coll_declined_because(member.coll)[0] != '\0');
    member.a2a.call.flags = 0;
    if (self->size == job->setup.size && job->setup.nodes == 1) { /* large and inside a node */
        ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_DECLINED);
        ranks_check(mpath_coll_declined_because(member.coll)[0] != '\0');
    } else {
        ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_OK);
        ranks_check(a2a_check(&member.a2a) == 0);
    }
    call_round(&member, A2A_MIXED, 2000, 3);
    ranks_check(mpath_coll_declined_because(member.coll)[0] == '\0');
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.declined == ((job->setup.nodes == 1) ? 2 : 1));
    member_end(&member);
    context_end(self, context);
    return 0;
}

static void test_decline(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 1, .nics = 2}, .access = MPATH_ACCESS_ALL, .gate = MPATH_GATE_AUTO};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, decline_body, &job), 0);
    job.setup.nodes = 2;
    assert_int_equal(ranks_run(&job.setup, decline_body, &job), 0);
}

/* In place, the previous function finds its data as they were, though small pairs had been exchanged already. */
static int decline_in_place_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = context_of(self, job);
    uint64_t large           = (job->gate == MPATH_GATE_NEVER) ? 16 : 300000;
    member_t member;
    a2a_t *a2a = &member.a2a;

    member_init(&member, context, &self->oob);
    for (int source = 0; source < self->size; source++) {
        for (int to = 0; to < self->size; to++) {
            member.demand[source * self->size + to] = (source + to == self->size - 1) ? large : 8;
        }
    }
    a2a_fill(a2a, member.demand, 1);
    ranks_check(a2a->send_room == a2a->recv_room);
    memcpy(a2a->recv, a2a->send, a2a->send_room);
    a2a->call.flags = MPATH_CALL_IN_PLACE;
    ranks_check(mpath_alltoallv(member.coll, &a2a->call) == MPATH_DECLINED);
    for (int rank = 0; rank < self->size; rank++) {
        ranks_check(memcmp(a2a->recv + a2a->recv_offsets[rank], a2a->send + a2a->send_offsets[rank],
                           a2a->send_bytes[rank]) == 0);
    }
    member_end(&member);
    context_end(self, context);
    return 0;
}

static void test_decline_in_place(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 1, .nics = 2}, .access = MPATH_ACCESS_ALL, .gate = MPATH_GATE_AUTO};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, decline_in_place_body, &job), 0);
    job.gate        = MPATH_GATE_NEVER;
    job.setup.nodes = 2;
    assert_int_equal(ranks_run(&job.setup, decline_in_place_body, &job), 0);
}

/* A rail that does not exist: all ranks leave the call alone, every time. */
static int no_rail_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = context_of(self, job);
    member_t member;

    member_init(&member, context, &self->oob);
    for (uint64_t round = 0; round < 3; round++) {
        a2a_demand(A2A_EVEN, self->size, 100000, round, member.demand);
        a2a_fill(&member.a2a, member.demand, round);
        ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_DECLINED);
        ranks_check(mpath_coll_declined_because(member.coll)[0] != '\0');
    }
    call_round(&member, A2A_MIXED, 100, 3); /* small data needs no rail */
    member_end(&member);
    context_end(self, context);
    return 0;
}

static void test_no_rail(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 1, .nic_name = "nosuchnic0"}, .gate = MPATH_GATE_AUTO};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, no_rail_body, &job), 0);
}

/*
 * Communicators without ranks beside the same rail: affine ranks cannot reach each other, and all leave the calls
 * alone.
 */
static int no_mates_body(ranks_self_t *self, void *argument)
{
    static const int members[] = {0, 3}; /* rail 0 of the first node, rail 1 of the second */
    const job_t *job           = argument;
    mpath_context_t *context   = context_of(self, job);
    member_t member;
    mpath_oob_t oob;

    ranks_oob(self, 1, members, 2, &oob);
    if ((self->rank == 0) || (self->rank == 3)) {
        member_init(&member, context, &oob);
        a2a_demand(A2A_EVEN, 2, 100000, 1, member.demand);
        a2a_fill(&member.a2a, member.demand, 1);
        ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_DECLINED);
        ranks_check(mpath_coll_declined_because(member.coll)[0] != '\0');
        call_round(&member, A2A_MIXED, 100, 3);
        member_end(&member);
    }
    context_end(self, context);
    return 0;
}

static void test_no_mates(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = MPATH_ACCESS_AFFINE};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, no_mates_body, &job), 0);
}

/* All ranks have lost these NICs in a call. */
static void lose_rails(const member_t *member, mpath_nic_set_t nics)
{
    const mpath_failover_loss_t loss = {.lost = nics};

    ranks_check(mpath_failover_settle(member->team, MPATH_ERR_UNREACHABLE, &loss) == MPATH_AGAIN);
    ranks_check((member->team->lost[0] == nics) && (member->team->lost[1] == nics));
}

/* Calls that are too short to be repeated take rails back, too, and so do those that the rest of the rails is not worth
 * or too few for: else a communicator that makes no others would do without them for good. */
static int lost_rail_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = context_of(self, job);
    int carries              = job->gate == MPATH_GATE_ALWAYS;
    member_t member;

    member_init(&member, context, &self->oob);
    call_round(&member, A2A_EVEN, job->max_bytes, 0);
    for (uint32_t nics = 1; nics < 4; nics++) { /* one, the other, both */
        lose_rails(&member, nics);
        member.team->next_probe_ns = 0;
        member.team->recover_in    = 0;
        a2a_fill(&member.a2a, member.demand, nics);
        ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) ==
                    ((carries && nics < 3) ? MPATH_OK : MPATH_DECLINED));
        ranks_check((member.team->lost[0] == 0) && (member.team->lost[1] == 0));
        call_round(&member, A2A_EVEN, job->max_bytes, nics);
    }
    member_end(&member);
    context_end(self, context);
    return 0;
}

static void test_lost_rail(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = MPATH_ACCESS_ALL, .max_bytes = 200000};

    (void)state;
    job.gate = MPATH_GATE_ALWAYS;
    assert_int_equal(ranks_run(&job.setup, lost_rail_body, &job), 0);
    job.gate = MPATH_GATE_AUTO;
    assert_int_equal(ranks_run(&job.setup, lost_rail_body, &job), 0);
}

/* Of a rank that is late, shared by all. */
typedef struct late {
    atomic_int is_back, know;
} late_t;

static late_t *late;
static int is_told; /* this rank has heard that the late one is back */
static mpath_context_t *late_context;
static void (*progress_of_oob)(void *context);

/* The short deadline is that of the wait for the late rank: what follows takes as long as it takes on this machine. */
static void progress_and_hear(void *context)
{
    progress_of_oob(context);
    if (!is_told && atomic_load(&late->is_back)) {
        is_told                          = 1;
        late_context->settings.timeout_s = 100;
        atomic_fetch_add(&late->know, 1);
    }
}

/* A rank that computes for several times the deadline of data is late by right, as long as its rails answer. */
static int late_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    member_t member;

    late_context       = context_of(self, job);
    progress_of_oob    = self->oob.progress;
    self->oob.progress = progress_and_hear;
    member_init(&member, late_context, &self->oob);
    call_round(&member, A2A_EVEN, job->max_bytes, 0);
    ranks_barrier(self);
    if (self->rank == 2) {
        usleep(LATE_US);
        is_told = 1;
        atomic_store(&late->is_back, 1);
        while (atomic_load(&late->know) < self->size - 1) {
            usleep(10000);
        }
    } else {
        late_context->settings.timeout_s = LATE_TIMEOUT_S;
    }
    call_round(&member, A2A_EVEN, job->max_bytes, 1);
    member_end(&member);
    context_end(self, late_context);
    return 0;
}

static void test_late(void **state)
{
    job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2},
                 .access    = MPATH_ACCESS_ALL,
                 .gate      = MPATH_GATE_ALWAYS,
                 .max_bytes = 200000};

    (void)state;
    late = mmap(NULL, sizeof(*late), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(late != MAP_FAILED);
    assert_int_equal(ranks_run(&job.setup, late_body, &job), 0);
    munmap(late, sizeof(*late));
}

/*
 * The control plane brings nothing any more, to all ranks or to those of one node only, and the rails work: every rank gets an
 * error, since leaders say over the rails what they have sent, and that they have given up.
 */
static int deaf_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = context_of(self, job);
    member_t member;

    member_init(&member, context, &self->oob);
    call_round(&member, A2A_EVEN, job->max_bytes, 0);
    ranks_barrier(self);
    context->settings.timeout_s = 2; /* nothing that comes from here on */
    ranks_drop_log();
    if (self->node <= job->last_deaf) {
        ranks_cut(self);
    }
    a2a_demand(A2A_EVEN, self->size, job->max_bytes, 1, member.demand);
    a2a_fill(&member.a2a, member.demand, 1);
    ranks_check(mpath_status_is_error(mpath_alltoallv(member.coll, &member.a2a.call)));
    atomic_fetch_add(job->ended, 1);
    while (atomic_load(job->ended) < self->size) { /* a barrier without the control plane */
        usleep(10000);
    }
    member_end(&member);
    mpath_context_destroy(context);
    return 0;
}

static void test_deaf(void **state)
{
    job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2},
                 .access    = MPATH_ACCESS_ALL,
                 .gate      = MPATH_GATE_ALWAYS,
                 .max_bytes = 200000};

    (void)state;
    job.ended = mmap(NULL, sizeof(*job.ended), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(job.ended != MAP_FAILED);
    for (job.last_deaf = 0; job.last_deaf < 2; job.last_deaf++) {
        atomic_store(job.ended, 0);
        assert_int_equal(ranks_run(&job.setup, deaf_body, &job), 0);
    }
    munmap(job.ended, sizeof(*job.ended));
}

/* As many NICs as a node may have: a call uses each of them, and does without the last one when that has failed. */
static int many_nics_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = context_of(self, job);
    uint64_t last_bytes;
    member_t member;

    member_init(&member, context, &self->oob);
    call_round(&member, A2A_EVEN, job->max_bytes, 0);
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        ranks_check(ranks_sent_bytes(nic) > 0);
    }
    last_bytes = ranks_sent_bytes(MPATH_MAX_NICS - 1);
    lose_rails(&member, mpath_nic_bit(MPATH_MAX_NICS - 1));
    call_round(&member, A2A_EVEN, job->max_bytes, 1);
    ranks_check(ranks_sent_bytes(MPATH_MAX_NICS - 1) == last_bytes);
    member_end(&member);
    context_end(self, context);
    return 0;
}

static void test_many_nics(void **state)
{
    job_t job = {.setup     = {.size = 2, .nodes = 2, .nics = MPATH_MAX_NICS},
                 .access    = MPATH_ACCESS_ALL,
                 .gate      = MPATH_GATE_ALWAYS,
                 .max_bytes = 8 << 20};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, many_nics_body, &job), 0);
}

/* Communicators made from the same processes, used in turn, made and freed in between. */
static int teams_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = context_of(self, job);
    int some[RANKS_MAX], reversed[RANKS_MAX], num_some = 0;
    member_t members[NUM_TEAMS];
    mpath_oob_t oobs[NUM_TEAMS];

    for (int rank = 0; rank < self->size; rank++) {
        reversed[rank] = self->size - 1 - rank;
        if (self->size / 2 - 1 != rank % (self->size / 2)) { /* all but the last of each node */
            some[num_some++] = rank;
        }
    }
    oobs[0] = self->oob;
    ranks_oob(self, 1, reversed, self->size, &oobs[1]);
    member_init(&members[0], context, &oobs[0]);
    member_init(&members[1], context, &oobs[1]);
    for (int round = 0; round < job->rounds; round++) {
        call_round(&members[0], A2A_MIXED, job->max_bytes, (uint64_t)round);
        if (self->local_rank < self->size / 2 - 1) {
            ranks_oob(self, 10 + round, some, num_some, &oobs[2]);
            member_init(&members[2], context, &oobs[2]);
            call_round(&members[2], A2A_SPARSE, job->max_bytes, (uint64_t)round + 100);
            member_end(&members[2]);
        }
        call_round(&members[1], A2A_HOT, job->max_bytes, (uint64_t)round + 200);
    }
    member_end(&members[1]);
    member_end(&members[0]);
    context_end(self, context);
    return 0;
}

static void test_teams(void **state)
{
    job_t job = {.setup     = {.size = 6, .nodes = 2, .nics = 3},
                 .access    = MPATH_ACCESS_AFFINE,
                 .gate      = MPATH_GATE_ALWAYS,
                 .max_bytes = 80000,
                 .rounds    = 6};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, teams_body, &job), 0);
    job.access = MPATH_ACCESS_ALL;
    assert_int_equal(ranks_run(&job.setup, teams_body, &job), 0);
}

typedef struct thread_arg {
    member_t member;
    const job_t *job;
    uint64_t seed;
} thread_arg_t;

static void *thread_body(void *argument)
{
    thread_arg_t *arg = argument;

    for (int round = 0; round < arg->job->rounds; round++) {
        call_round(&arg->member, (a2a_kind_t)(A2A_EVEN + round % 4), arg->job->max_bytes, arg->seed + (uint64_t)round);
    }
    return NULL;
}

/* Two communicators of the same ranks, each in a thread of its own, on the same rails. */
static int threads_body(ranks_self_t *self, void *argument)
{
    const job_t *job         = argument;
    mpath_context_t *context = context_of(self, job);
    thread_arg_t args[2];
    pthread_t threads[2];
    mpath_oob_t other;

    ranks_oob(self, 1, NULL, self->size, &other);
    member_init(&args[0].member, context, &self->oob);
    member_init(&args[1].member, context, &other);
    for (int i = 0; i < 2; i++) {
        args[i].job  = job;
        args[i].seed = (uint64_t)i * 5000;
        ranks_check(pthread_create(&threads[i], NULL, thread_body, &args[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        ranks_check(pthread_join(threads[i], NULL) == 0);
        member_end(&args[i].member);
    }
    context_end(self, context);
    return 0;
}

static void test_threads(void **state)
{
    job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2},
                 .access    = MPATH_ACCESS_ALL,
                 .gate      = MPATH_GATE_ALWAYS,
                 .max_bytes = 100000,
                 .rounds    = 20};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, threads_body, &job), 0);
    job.access = MPATH_ACCESS_AFFINE;
    assert_int_equal(ranks_run(&job.setup, threads_body, &job), 0);
}

/*
 * The clock that the library reads, by the linker: while it is slow, time passes in a thousandth of its speed, and for as long
 * as calls are said to take.
 */
static uint64_t slow_from_ns, said_ns; /* 0: not slow */

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = __real_clock_gettime(clock, now);
    uint64_t ns;

    if (slow_from_ns != 0) {
        ns   = (uint64_t)now->tv_sec * MPATH_NS_PER_S + (uint64_t)now->tv_nsec;
        ns   = slow_from_ns + (ns - slow_from_ns) / 1000 + said_ns;
        *now = (struct timespec){.tv_sec = (time_t)(ns / MPATH_NS_PER_S), .tv_nsec = (long)(ns % MPATH_NS_PER_S)};
    }
    return status;
}

/* Of calls: what is sent, how they end where the ranks agree on them, and how much longer than nothing either way takes. */
typedef struct asked {
    a2a_kind_t kind;
    uint64_t max_bytes;
    mpath_status_t expected;
    uint64_t agreed_ns, passed_ns;
} asked_t;

/* How many of `calls` calls the ranks agreed on; none of the others is carried. */
static int asked_of(member_t *member, const asked_t *asked, int calls)
{
    int count = 0;

    for (int call = 0; call < calls; call++) {
        a2a_demand(asked->kind, member->a2a.size, asked->max_bytes, (uint64_t)call, member->demand);
        a2a_fill(&member->a2a, member->demand, (uint64_t)call);
        if (mpath_coll_passes(member->coll, 0)) {
            said_ns += asked->passed_ns;
        } else {
            said_ns += asked->agreed_ns;
            ranks_check(mpath_alltoallv(member->coll, &member->a2a.call) == asked->expected);
            count++;
        }
        mpath_coll_ended(member->coll);
    }
    return count;
}

/*
 * On one node, calls that cannot gain are asked about less and less; short ones among them are found again, and pass as
 * well where a trial shows that they had better.
 */
static int passes_body(ranks_self_t *self, void *argument)
{
    const asked_t slower = {A2A_EVEN, 2000, MPATH_OK, 0, 20000000}, faster = {A2A_EVEN, 100, MPATH_OK, 20000000, 0};
    const asked_t large      = {A2A_EVEN, 100000, MPATH_DECLINED, 0, 0};
    const job_t *job         = argument;
    mpath_context_t *context = context_of(self, job);
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, context, &self->oob);
    slow_from_ns = mpath_time_ns();
    ranks_check(asked_of(&member, &slower, 100) == 100 - 8);
    ranks_check(asked_of(&member, &large, 1 + 1 + 3 + 7 + 15 + 31 + 5 + 5 * 64) == 6 + 5);
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.declined == 8 + 63 + 5 * 64);
    ranks_check(asked_of(&member, &slower, 63 + 1 + 6 * 16) == 1 + 6 * 16);
    ranks_check(asked_of(&member, &faster, 16 + 16 + 1) == 16 + 8 + 1);
    ranks_check(asked_of(&member, &faster, 1 + 1 + 3 + 1 + 7 + 1 + 15) == 3);
    slow_from_ns = 0;
    member_end(&member);
    context_end(self, context);
    return 0;
}

/* Between nodes every call is asked about. */
static int no_passes_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = context_of(self, argument);
    member_t member;

    member_init(&member, context, &self->oob);
    for (int call = 0; call < 10; call++) {
        a2a_demand(A2A_EVEN, self->size, 100000, (uint64_t)call, member.demand);
        a2a_fill(&member.a2a, member.demand, (uint64_t)call);
        member.a2a.call.flags |= MPATH_CALL_INELIGIBLE;
        ranks_check(!mpath_coll_passes(member.coll, 0));
        ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_DECLINED);
    }
    member_end(&member);
    context_end(self, context);
    return 0;
}

static void test_passes(void **state)
{
    job_t job = {.setup = {.size = 3, .nodes = 1}, .access = MPATH_ACCESS_ALL, .gate = MPATH_GATE_AUTO};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, passes_body, &job), 0);
    job.gate = MPATH_GATE_ALWAYS;
    assert_int_equal(ranks_run(&job.setup, no_passes_body, &job), 0);
    job.gate  = MPATH_GATE_AUTO;
    job.setup = (ranks_setup_t){.size = 4, .nodes = 2, .nics = 2};
    assert_int_equal(ranks_run(&job.setup, no_passes_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeat),    cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_decline),   cmocka_unit_test(test_no_rail),
        cmocka_unit_test(test_no_mates),  cmocka_unit_test(test_teams),
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_decline_in_place),
        cmocka_unit_test(test_lost_rail), cmocka_unit_test(test_passes),
        cmocka_unit_test(test_late),      cmocka_unit_test(test_deaf),
        cmocka_unit_test(test_many_nics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
