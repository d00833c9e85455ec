/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce, Reduce_scatter and Allgather from agreement to result, on virtual nodes: sizes on both sides of every
 * threshold, uneven nodes and blocks, in place, shares of rails that differ by orders, the order of combination bit by
 * bit; ranks that die or stall in the middle of a call, and calls that are declined by all.
 */
#include "a2a.h"
#include "coll/symmetric_private.h"
#include "exec/team_private.h"
#include "ranks.h"
#include "unit/capture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct job {
    ranks_setup_t setup;
    int access, algorithm;
    const char *adapt_file;
    uint64_t memory_bytes;
    int gate_auto, deterministic;
    int victim, stall; /* of the failures */
} job_t;

typedef struct member {
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_coll_t *coll;
    mpath_symmetric_t *symmetric;
    int order[RANKS_MAX], node_of[RANKS_MAX]; /* ranks by node, then rank */
} member_t;

static void member_init(member_t *member, ranks_self_t *self, const job_t *job)
{
    const mpath_topo_t *topo;
    int next = 0;

    memset(member, 0, sizeof(*member));
    mpath_settings_init(&member->settings);
    member->settings.access                   = job->access;
    member->settings.gate                     = job->gate_auto ? MPATH_GATE_AUTO : MPATH_GATE_ALWAYS;
    member->settings.deterministic            = job->deterministic;
    member->settings.memory_bytes             = job->memory_bytes ? job->memory_bytes : 8 << 20;
    member->settings.timeout_s                = job->stall ? 2 : 100;
    member->settings.allreduce_algorithm      = job->algorithm;
    member->settings.reduce_scatter_algorithm = job->algorithm;
    member->settings.allgather_algorithm      = job->algorithm;
    member->settings.adapt_file               = job->adapt_file ? job->adapt_file : "";
    member->context                           = ranks_context(self, &member->settings);
    member->team                              = ranks_team(self, member->context);
    ranks_check(mpath_coll_create(member->team, &member->coll) == MPATH_OK);
    ranks_check(mpath_symmetric_create(member->team, member->coll, &member->symmetric) == MPATH_OK);
    topo = mpath_team_topo(member->team);
    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        for (int rank = 0; rank < self->size; rank++) {
            if (mpath_topo_place(topo, rank)->node == node) {
                member->order[next++] = rank;
                member->node_of[rank] = node;
            }
        }
    }
}

static void member_end(member_t *member)
{
    mpath_symmetric_destroy(member->symmetric);
    mpath_coll_destroy(member->coll);
    mpath_team_destroy(member->team);
    mpath_context_destroy(member->context);
}

static void *get(size_t bytes)
{
    void *memory = calloc(1, bytes + 64);

    ranks_check(memory != NULL);
    return memory;
}

static void add_doubles(void *argument, const void *in, void *inout, uint64_t elements)
{
    (void)argument;
    ranks_check(((uintptr_t)in % sizeof(double) == 0) && ((uintptr_t)inout % sizeof(double) == 0));
    for (uint64_t i = 0; i < elements; i++) {
        ((double *)inout)[i] = ((const double *)in)[i] + ((double *)inout)[i];
    }
}

static const mpath_combination_t doubles = {.element_bytes = sizeof(double), .reduce = add_doubles};

/* Numbers whose sum depends on the order. */
static double value_of(int rank, uint64_t position, uint64_t round)
{
    uint64_t x = ((uint64_t)rank + 1) * 0x9e3779b97f4a7c15ull + position * 0xbf58476d1ce4e5b9ull + round * 77;

    x ^= x >> 29;
    x *= 0x94d049bb133111ebull;
    return ((double)(x >> 11) - 4e15) * (double)(1u << (x % 30)) / 3.0;
}

/* By rank on each node, then by node. */
static double sum_of(const member_t *member, int size, uint64_t position, uint64_t round)
{
    double whole = 0, part = 0;
    int first_node = 1;

    for (int i = 0; i < size; i++) {
        int rank = member->order[i];

        part = (i > 0 && member->node_of[rank] == member->node_of[member->order[i - 1]])
                   ? value_of(rank, position, round) + part
                   : value_of(rank, position, round);
        if (i == size - 1 || member->node_of[member->order[i + 1]] != member->node_of[rank]) {
            whole      = first_node ? part : part + whole;
            first_node = 0;
        }
    }
    return whole;
}

static void check_allreduce(member_t *member, const ranks_self_t *self, uint64_t elements, uint64_t round)
{
    int in_place = (int)(round % 2);
    double *send = get(elements * sizeof(double)), *recv = get((elements + 1) * sizeof(double));
    double *from = in_place ? recv : send;

    for (uint64_t i = 0; i < elements; i++) {
        from[i] = value_of(self->rank, i, round);
    }
    recv[elements] = 4711;
    ranks_check(mpath_allreduce(member->symmetric, from, recv, elements, &doubles, 0) == MPATH_OK);
    memset(send, 0xEE, elements * sizeof(double));
    for (uint64_t i = 0; i < elements; i++) {
        double expected = sum_of(member, self->size, i, round);

        ranks_check(memcmp(&recv[i], &expected, sizeof(expected)) == 0);
    }
    ranks_check(recv[elements] == 4711);
    free(send);
    free(recv);
}

static uint64_t block_of(int rank, uint64_t about, uint64_t round)
{
    return ((uint64_t)rank + round) % 3 == 0 ? 0 : about + (uint64_t)rank * (about / 5 + 1);
}

static void check_reduce_scatter(member_t *member, const ranks_self_t *self, uint64_t about, uint64_t round)
{
    int in_place = (int)(round % 2);
    uint64_t blocks[RANKS_MAX], total = 0, first = 0;
    double *send, *recv, *from;

    for (int rank = 0; rank < self->size; rank++) {
        blocks[rank] = block_of(rank, about, round);
        first += (rank < self->rank) ? blocks[rank] : 0;
        total += blocks[rank];
    }
    send = get(total * sizeof(double));
    recv = get((total + 1) * sizeof(double));
    from = in_place ? recv : send;
    for (uint64_t i = 0; i < total; i++) {
        from[i] = value_of(self->rank, i, round);
    }
    recv[total] = 4711;
    ranks_check(mpath_reduce_scatter(member->symmetric, from, recv, blocks, &doubles, 0) == MPATH_OK);
    for (uint64_t i = 0; i < blocks[self->rank]; i++) {
        double expected = sum_of(member, self->size, first + i, round);

        ranks_check(memcmp(&recv[i], &expected, sizeof(expected)) == 0);
    }
    ranks_check(recv[total] == 4711);
    free(send);
    free(recv);
}

static unsigned char byte_of(int rank, uint64_t position, uint64_t round)
{
    return (unsigned char)((uint64_t)rank * 29 + position * 3 + (position >> 8) + round * 7 + 1);
}

/* Blocks in reverse order with a guard byte between them. */
static void check_allgather(member_t *member, const ranks_self_t *self, uint64_t about, uint64_t round)
{
    int in_place = (int)(round % 2);
    uint64_t bytes[RANKS_MAX], offsets[RANKS_MAX], total = 1;
    unsigned char *send, *recv, *from;

    for (int rank = self->size - 1; rank >= 0; rank--) {
        bytes[rank]   = block_of(rank, about, round);
        offsets[rank] = total;
        total += bytes[rank] + 1;
    }
    send = get(bytes[self->rank]);
    recv = get(total);
    memset(recv, 0xA5, total);
    from = in_place ? recv + offsets[self->rank] : send;
    for (uint64_t i = 0; i < bytes[self->rank]; i++) {
        from[i] = byte_of(self->rank, i, round);
    }
    ranks_check(mpath_allgather(member->symmetric, in_place ? NULL : send, recv, bytes, offsets, 0) == MPATH_OK);
    memset(send, 0xEE, bytes[self->rank]);
    for (int rank = 0; rank < self->size; rank++) {
        ranks_check(recv[offsets[rank] - 1] == 0xA5);
        for (uint64_t i = 0; i < bytes[rank]; i++) {
            ranks_check(recv[offsets[rank] + i] == byte_of(rank, i, round));
        }
    }
    ranks_check(recv[total - 1] == 0xA5);
    free(send);
    free(recv);
}

/* Alltoallv beside it, which plans with the rates that the others have learned. */
static void check_alltoallv(member_t *member, const ranks_self_t *self)
{
    uint64_t *demand = get((size_t)self->size * (size_t)self->size * sizeof(*demand));
    a2a_t a2a;

    a2a_init(&a2a, self->rank, self->size);
    for (uint64_t round = 0; round < 3; round++) {
        a2a_demand(round == 0 ? A2A_EVEN : round == 1 ? A2A_HOT : A2A_SPARSE, self->size, 60000, round, demand);
        a2a_fill(&a2a, demand, round);
        ranks_check(mpath_alltoallv(member->coll, &a2a.call) == MPATH_OK);
        a2a_spoil(&a2a);
        ranks_check(a2a_check(&a2a) == 0);
    }
    a2a_end(&a2a);
    free(demand);
}

static int all_body(ranks_self_t *self, void *argument)
{
    static const uint64_t sizes[] = {0, 1, 100, 1000, 20011, 50021};
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, argument);
    for (uint64_t round = 0; round < 2 * sizeof(sizes) / sizeof(sizes[0]); round++) {
        uint64_t elements = sizes[round / 2];

        check_allreduce(&member, self, elements, round);
        check_reduce_scatter(&member, self, elements / 3, round);
        check_allgather(&member, self, elements * 2, round);
    }
    check_alltoallv(&member, self);
    mpath_symmetric_counters(member.symmetric, &counters);
    ranks_check(counters.calls == 3 * 12 && counters.declined == 0);
    member_end(&member);
    return 0;
}

static void run_all(int size, int nodes, const int *node_of, int nics, int access, int algorithm)
{
    job_t job = {.setup     = {.size = size, .nodes = nodes, .node_of = node_of, .nics = nics},
                 .access    = access,
                 .algorithm = algorithm};

    assert_int_equal(ranks_run(&job.setup, all_body, &job), 0);
}

static void test_layouts(void **state)
{
    const int uneven[] = {0, 1, 0, 0, 1};

    (void)state;
    run_all(3, 1, NULL, 0, MPATH_ACCESS_ALL, MPATH_ALGORITHM_AUTO);
    run_all(8, 2, NULL, 4, MPATH_ACCESS_AFFINE, MPATH_ALGORITHM_AUTO);
    run_all(4, 2, NULL, 3, MPATH_ACCESS_ALL, MPATH_ALGORITHM_AUTO);
    run_all(6, 3, NULL, 2, MPATH_ACCESS_AFFINE, MPATH_ALGORITHM_LANES);
    run_all(4, 4, NULL, 2, MPATH_ACCESS_ALL, MPATH_ALGORITHM_LANES);
    run_all(5, 0, uneven, 2, MPATH_ACCESS_ALL, MPATH_ALGORITHM_LANES);
}

/* Slots of a few hundred bytes: every step waits for every other. */
static void test_tight_memory(void **state)
{
    job_t job = {.setup        = {.size = 6, .nodes = 3, .nics = 2},
                 .access       = MPATH_ACCESS_AFFINE,
                 .algorithm    = MPATH_ALGORITHM_LANES,
                 .memory_bytes = 1 << 20};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, all_body, &job), 0);
}

/* The same bits with whatever shares: those of the file differ by a factor of a million. */
static int signature_body(ranks_self_t *self, void *argument)
{
    member_t member;
    FILE *out;

    member_init(&member, self, argument);
    if (self->rank == 0) {
        out = fopen(member.settings.adapt_file, "w");
        ranks_check(out != NULL);
        fprintf(out, "mpath-rates 1\n");
        for (int k = 0; k < 3; k++) {
            fprintf(out, "%016llx allreduce %d 1000000000 1000\n",
                    (unsigned long long)mpath_topo_signature(mpath_team_topo(member.team)), k);
            fprintf(out, "%016llx allgather %d 1000 1000000000\n",
                    (unsigned long long)mpath_topo_signature(mpath_team_topo(member.team)), k);
        }
        fclose(out);
    }
    member_end(&member);
    return 0;
}

static void test_any_shares(void **state)
{
    char path[64];
    job_t job = {.setup      = {.size = 4, .nodes = 2, .nics = 2},
                 .access     = MPATH_ACCESS_AFFINE,
                 .algorithm  = MPATH_ALGORITHM_LANES,
                 .adapt_file = path};

    (void)state;
    snprintf(path, sizeof(path), "/tmp/mpath-test-shares.%ld", (long)getpid());
    assert_int_equal(ranks_run(&job.setup, signature_body, &job), 0);
    assert_int_equal(ranks_run(&job.setup, all_body, &job), 0);
    unlink(path);
}

/* One rank cannot take part: all decline, and the next call works. */
static int decline_body(ranks_self_t *self, void *argument)
{
    member_t member;
    double *data = get(50000 * sizeof(double));
    uint64_t bytes[RANKS_MAX], offsets[RANKS_MAX];

    member_init(&member, self, argument);
    for (int rank = 0; rank < self->size; rank++) {
        bytes[rank]   = 9000;
        offsets[rank] = (uint64_t)rank * 9000;
    }
    for (int round = 0; round < 3; round++) {
        int bad = self->rank == round;

        ranks_check(mpath_allreduce(member.symmetric, bad ? NULL : data, bad ? NULL : data, 50000, &doubles, bad) ==
                    MPATH_DECLINED);
        ranks_check(strcmp(mpath_symmetric_declined_because(member.symmetric), "") != 0);
        ranks_check(mpath_allgather(member.symmetric, bad ? NULL : data, bad ? NULL : data, bytes, offsets, bad) ==
                    MPATH_DECLINED);
        check_allreduce(&member, self, 5000, (uint64_t)round);
    }
    free(data);
    member_end(&member);
    return 0;
}

static void test_decline(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = MPATH_ACCESS_ALL};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, decline_body, &job), 0);
}

/* A rail that Alltoallv has lost is left out here as well, and used again when it is back. */
static int lost_rail_body(ranks_self_t *self, void *argument)
{
    member_t member;

    member_init(&member, self, argument);
    check_allreduce(&member, self, 50000, 0);
    ranks_check(mpath_share_num_rails(member.symmetric->share) == 2);
    for (int up = 0; up < 2; up++) {
        /* As the end of a call does it, on all ranks. */
        ranks_check(mpath_topo_set_nic(member.team->topo, 1, 1, up) == MPATH_OK);
        member.team->topo_version++;
        for (uint64_t round = 0; round < 6; round++) {
            check_allreduce(&member, self, 50000 + round, round);
            ranks_check(mpath_share_num_rails(member.symmetric->share) == 1 + up);
        }
    }
    member_end(&member);
    return 0;
}

static void test_lost_rail(void **state)
{
    (void)state;
    for (int access = MPATH_ACCESS_ALL; access <= MPATH_ACCESS_AFFINE; access++) {
        job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = access, .algorithm = MPATH_ALGORITHM_LANES};

        assert_int_equal(ranks_run(&job.setup, lost_rail_body, &job), 0);
    }
}

/* With one rail left the previous function would be as fast; with `deterministic` the order of combination stays. */
static int one_rail_body(ranks_self_t *self, void *argument)
{
    const job_t *job     = argument;
    const uint64_t count = 1 << 20;
    double *data         = get(count * sizeof(double));
    member_t member;

    member_init(&member, self, argument);
    check_allreduce(&member, self, count, 0);
    ranks_check(mpath_topo_set_nic(member.team->topo, 1, 1, 0) == MPATH_OK);
    member.team->topo_version++;
    if (job->deterministic) {
        check_allreduce(&member, self, count, 2);
        ranks_check(mpath_share_num_rails(member.symmetric->share) == 1);
    } else {
        ranks_check(mpath_allreduce(member.symmetric, data, data, count, &doubles, 0) == MPATH_DECLINED);
        ranks_check(strcmp(mpath_symmetric_declined_because(member.symmetric), "there is one rail") == 0);
    }
    free(data);
    member_end(&member);
    return 0;
}

static void test_deterministic(void **state)
{
    (void)state;
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        job_t job = {.setup         = {.size = 4, .nodes = 2, .nics = 2},
                     .access        = MPATH_ACCESS_AFFINE,
                     .gate_auto     = 1,
                     .deterministic = deterministic};

        assert_int_equal(ranks_run(&job.setup, one_rail_body, &job), 0);
    }
}

/* Ranks that disagree about the size of the vector hear of it. */
static int mismatch_body(ranks_self_t *self, void *argument)
{
    double *data = get(60000 * sizeof(double));
    member_t member;

    member_init(&member, self, argument);
    ranks_check(mpath_status_is_error(
        mpath_allreduce(member.symmetric, data, data, 50000 + (uint64_t)(self->rank == 1), &doubles, 0)));
    free(data);
    member_end(&member);
    return 0;
}

static void test_mismatch(void **state)
{
    job_t job = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = MPATH_ACCESS_ALL};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, mismatch_body, &job), 0);
}

/* -- failures -- */

typedef struct trap {
    int calls_left, kill;
} trap_t;

/* In the middle of the pipeline a rank dies, or does nothing any more for longer than the others wait. */
static void trapped_add(void *argument, const void *in, void *inout, uint64_t elements)
{
    trap_t *trap = argument;

    if (trap->calls_left-- == 0) {
        if (trap->kill) {
            raise(SIGKILL);
        }
        sleep(6);
    }
    add_doubles(NULL, in, inout, elements);
}

static int trapped_body(ranks_self_t *self, void *argument)
{
    const job_t *job                = argument;
    uint64_t elements               = 200000;
    double *data                    = get(elements * sizeof(double));
    trap_t trap                     = {.calls_left = 5, .kill = !job->stall};
    mpath_combination_t combination = doubles;
    mpath_status_t status;
    member_t member;

    member_init(&member, self, job);
    check_allreduce(&member, self, 30000, 0);
    ranks_barrier(self);
    if (self->rank == job->victim) {
        combination.reduce   = trapped_add;
        combination.argument = &trap;
    }
    status = mpath_allreduce(member.symmetric, data, data, elements, &combination, 0);
    ranks_check(mpath_status_is_error(status));
    ranks_check(mpath_status_is_error(mpath_allreduce(member.symmetric, data, data, elements, &doubles, 0)));
    free(data);
    member_end(&member);
    return 0;
}

static void test_killed(void **state)
{
    (void)state;
    for (int victim = 0; victim < 4; victim++) {
        job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .may_die = 1u << victim, .deaf = 1},
                     .access    = MPATH_ACCESS_AFFINE,
                     .algorithm = MPATH_ALGORITHM_LANES,
                     .victim    = victim};

        assert_int_equal(ranks_run(&job.setup, trapped_body, &job), 0);
    }
}

static void test_stalled(void **state)
{
    job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .deaf = 1},
                 .access    = MPATH_ACCESS_AFFINE,
                 .algorithm = MPATH_ALGORITHM_LANES,
                 .victim    = 2,
                 .stall     = 1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, trapped_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts), cmocka_unit_test(test_tight_memory), cmocka_unit_test(test_any_shares),
        cmocka_unit_test(test_decline), cmocka_unit_test(test_mismatch),     cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stalled), cmocka_unit_test(test_lost_rail),    cmocka_unit_test(test_deterministic),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
