/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce, Reduce_scatter and Allgather from agreement to result, on virtual nodes: sizes on both sides of every
 * threshold, uneven nodes and blocks, in place, shares of rails that differ by orders, the order of combination bit by
 * bit.
 */
#include "a2a.h"
#include "symmetric_support.h"
#include "unit/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t block_of(int rank, uint64_t about, uint64_t round)
{
    return ((uint64_t)rank + round) % 3 == 0 ? 0 : about + (uint64_t)rank * (about / 5 + 1);
}

static void check_reduce_scatter(member_t *member, const ranks_self_t *self, uint64_t about, uint64_t round)
{
    int in_place = (int)(round % 2);
    uint64_t blocks[RANKS_MAX], total = 0, first = 0, largest = 0;
    double *send, *recv, *from;

    for (int rank = 0; rank < self->size; rank++) {
        blocks[rank] = block_of(rank, about, round);
        first += (rank < self->rank) ? blocks[rank] : 0;
        total += blocks[rank];
        largest = (blocks[rank] > largest) ? blocks[rank] : largest;
    }
    send = zeroed(total * sizeof(double));
    recv = zeroed((total + 1) * sizeof(double));
    from = in_place ? recv : send;
    for (uint64_t i = 0; i < total; i++) {
        from[i] = value_of(self->rank, i, round);
    }
    recv[total] = 4711;
    ranks_check(mpath_reduce_scatter(member->symmetric, from, recv, blocks, &doubles, 0) == MPATH_OK);
    for (uint64_t i = 0; i < blocks[self->rank]; i++) {
        double expected = expected_of(member, self->size, largest * sizeof(double), self->rank, first + i, round);

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
    send = zeroed(bytes[self->rank]);
    recv = zeroed(total);
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
    uint64_t *demand = zeroed((size_t)self->size * (size_t)self->size * sizeof(*demand));
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

/* In steps between nodes, of whose number some are no power of two, and of which some have more ranks than others. */
static void test_steps(void **state)
{
    const int uneven[] = {0, 1, 0, 2, 3, 2, 4, 4};
    job_t jobs[]       = {
              {.setup = {.size = 4, .nodes = 2, .nics = 2}, .access = MPATH_ACCESS_AFFINE},
              {.setup = {.size = 6, .nodes = 3, .nics = 2}, .access = MPATH_ACCESS_AFFINE},
              {.setup = {.size = 8, .nodes = 4, .nics = 3}, .access = MPATH_ACCESS_ALL},
              {.setup = {.size = 8, .node_of = uneven, .nics = 2}, .access = MPATH_ACCESS_ALL},
              {.setup = {.size = 7, .nodes = 7, .nics = 2}, .access = MPATH_ACCESS_ALL, .algorithm = MPATH_ALGORITHM_LANES},
              {.setup        = {.size = 6, .nodes = 3, .nics = 2},
               .access       = MPATH_ACCESS_AFFINE,
               .algorithm    = MPATH_ALGORITHM_LANES,
               .memory_bytes = 1 << 20}};

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        jobs[i].steps_nodes = 2;
        assert_int_equal(ranks_run(&jobs[i].setup, all_body, &jobs[i]), 0);
    }
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
    job.steps_nodes = 2;
    assert_int_equal(ranks_run(&job.setup, all_body, &job), 0);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_tight_memory),
        cmocka_unit_test(test_any_shares),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
