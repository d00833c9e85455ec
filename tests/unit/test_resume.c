/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions of which a rail fails in the middle: they complete over the others, and the bits are those of a call
 * without a failure. The rail falls silent: the rank that drives it does not send any more, from a moment inside its
 * combination of elements.
 */
#include "wire/wire_private.h"
#include "unit/silent_rail.h"
#include "unit/symmetric_support.h"
#include "unit/unread.h"
#include "wire/failover.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define RANKS 6 /* of two nodes */
#define RANKS_MOST 9
#define NICS 3
#define VICTIM 1 /* drives rail 1 of node 0 */
#define SECOND 5 /* drives rail 2 of node 1 */
#define LATE 3   /* drives rail 0 of node 1 */
#define LATE_NS (2500 * MPATH_NS_PER_MS)
#define ELEMENTS 150000ull

enum { ALLREDUCE_IN_PLACE, REDUCE_SCATTER };

/* When a second rail falls silent: while results are handed out, or in the rest, too short to be repeated by itself. */
enum { NOT_AGAIN, IN_RESULTS, IN_REST };

typedef struct cut {
    int what;
    int after;  /* combinations of the victim */
    int phase;  /* in which it falls silent */
    int again;  /* and another one later: NOT_AGAIN, ... */
    int back;   /* it is found to be up again soon */
    int behind; /* rank 0 is, with half of the results that it could have */
    int nodes;
    int steps; /* goes in steps between them */
} cut_t;

/* Whom the combination belongs to, and when it takes the rail away. */
typedef struct trap {
    mpath_share_t *share;
    int calls_left; /* 0: off */
    int phase;
} trap_t;

static void add_until_trap(void *argument, const void *in, void *inout, uint64_t elements)
{
    trap_t *trap = argument;

    unread_rest();
    add_doubles(NULL, in, inout, elements);
    if ((trap->calls_left > 0) && (--trap->calls_left == 0)) {
        fall_silent(trap->share, trap->phase);
    }
}

/* The second rail. Instead of the functions of these names, by the linker: a driver that does nothing. */
static int second; /* this rank drives it: NOT_AGAIN, ... */
static int handed, rests, mute;
static int comes_back; /* the first rail, while results are handed out */

/* What the run before was: each has a number of its own, and a wire that drops what is left of an attempt given up. */
static struct {
    uint32_t call;
    uint64_t wire_id;
    mpath_status_t status;
} before;

mpath_status_t __real_mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats);
mpath_status_t __wrap_mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats);
mpath_status_t __wrap_mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats)
{
    mpath_status_t status;

    if ((job->flags == MPATH_SHARE_GATHER) && comes_back) {
        share->team->next_probe_ns   = 0;
        share->team->next_carrier_ns = 0;
    }
    if (job->flags == MPATH_SHARE_GATHER) {
        mute = (handed++ == 0) && (second == IN_RESULTS);
    } else if (second == IN_REST) {
        mute = rests++ == 1; /* the first one is the whole */
    }
    ranks_check(job->call != before.call);
    status = __real_mpath_share_run(share, job, stats);
    ranks_check((before.status != MPATH_AGAIN) || (share->wire->inbox.id != before.wire_id));
    mute           = 0;
    before.call    = job->call;
    before.wire_id = share->wire->inbox.id;
    before.status  = status;
    return status;
}

static int behind;             /* this rank is, when it is asked next */
static const double *own_data; /* which results have taken the place of */
static uint64_t put_back;

mpath_status_t __real_mpath_share_copied(mpath_share_t *share, const mpath_share_job_t *job, uint64_t *segments_p);
mpath_status_t __wrap_mpath_share_copied(mpath_share_t *share, const mpath_share_job_t *job, uint64_t *segments_p);
mpath_status_t __wrap_mpath_share_copied(mpath_share_t *share, const mpath_share_job_t *job, uint64_t *segments_p)
{
    mpath_status_t status = __real_mpath_share_copied(share, job, segments_p);
    double *results       = job->recv_buffer;

    if (!behind || (status != MPATH_OK)) {
        return status;
    }
    for (int node = 0; node < share->num_nodes; node++) {
        uint64_t part = job->send_offsets[node * NICS] / sizeof(double);
        uint64_t from = mpath_share_part_done(share, node, *segments_p / 2);
        uint64_t to   = mpath_share_part_done(share, node, *segments_p);

        for (uint64_t i = part + from; i < part + to; i++) {
            results[i] = own_data[i];
        }
        put_back += to - from;
    }
    *segments_p /= 2;
    behind = 0;
    return status;
}

static int cut_after = -1; /* sends of this rank fail after so many */

mpath_status_t __real_mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                                      const void *data, void *item);
mpath_status_t __wrap_mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                                      const void *data, void *item);
mpath_status_t __wrap_mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                                      const void *data, void *item)
{
    if (cut_after == 0) {
        mpath_wire_lose(wire, nic);
        return MPATH_ERR_UNREACHABLE;
    }
    cut_after -= (cut_after > 0);
    return __real_mpath_wire_send(wire, nic, rank, nic_to, chunk, data, item);
}

int __real_mpath_share_link_step(mpath_share_t *share, share_link_t *link);
int __wrap_mpath_share_link_step(mpath_share_t *share, share_link_t *link);
int __wrap_mpath_share_link_step(mpath_share_t *share, share_link_t *link)
{
    return mute ? 0 : __real_mpath_share_link_step(share, link);
}

static mpath_status_t run(const member_t *member, int what, double *send, double *recv, const mpath_combination_t *how)
{
    uint64_t blocks[RANKS_MOST];
    int size = mpath_team_size(member->team);

    for (int rank = 0; rank < size; rank++) {
        blocks[rank] = ELEMENTS / (uint64_t)size;
    }
    switch (what) {
    case ALLREDUCE_IN_PLACE:
        memcpy(recv, send, ELEMENTS * sizeof(double));
        return mpath_allreduce(member->symmetric, recv, recv, ELEMENTS, how, 0);
    default:
        return mpath_reduce_scatter(member->symmetric, send, recv, blocks, how, 0);
    }
}

static void open_member(member_t *member, ranks_self_t *self, int resend_after_s, int steps)
{
    mpath_settings_init(&member->settings);
    member->settings.access                   = MPATH_ACCESS_AFFINE;
    member->settings.gate                     = MPATH_GATE_ALWAYS;
    member->settings.memory_bytes             = 4 << 20;
    member->settings.resend_min_ms            = 0;
    member->settings.steps_nodes              = steps ? 2 : 0;
    member->settings.resend_after_s           = resend_after_s;
    member->settings.allreduce_algorithm      = MPATH_ALGORITHM_LANES;
    member->settings.reduce_scatter_algorithm = MPATH_ALGORITHM_LANES;
    member->settings.allgather_algorithm      = MPATH_ALGORITHM_LANES;
    member_open(member, self);
}

static atomic_int *num_blamed_once; /* by all ranks, in all cases */

static int cut_body(ranks_self_t *self, void *argument)
{
    const cut_t *cut = argument;
    int left         = NICS - 1 - (cut->again != NOT_AGAIN) + cut->back;
    size_t bytes     = ELEMENTS * sizeof(double);
    double *send = calloc(1, bytes), *whole = calloc(1, bytes), *resumed = calloc(1, bytes);
    trap_t trap                   = {0};
    mpath_combination_t with_trap = {.element_bytes = sizeof(double), .reduce = add_until_trap, .argument = &trap};
    member_t member;

    open_member(&member, self, 4, cut->steps);
    ranks_check(send != NULL && whole != NULL && resumed != NULL);
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        send[i] = value_of(self->rank, i, 0);
    }
    ranks_check(run(&member, cut->what, send, whole, &with_trap) == MPATH_OK);
    ranks_check(mpath_share_num_rails(member.symmetric->share) == NICS);
    trap.share      = member.symmetric->share;
    trap.phase      = cut->phase;
    trap.calls_left = (self->rank == VICTIM) ? cut->after * (cut->nodes - 1) : 0; /* there are more in a segment */
    second          = (self->rank == SECOND) ? cut->again : NOT_AGAIN;
    comes_back      = cut->back;
    behind          = cut->behind && (self->rank == 0);
    own_data        = send;
    if (cut->again == IN_REST) {
        member.team->settled_from_ns = mpath_share_predict_ns(member.symmetric->share,
                                                              MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER, bytes);
    }
    ranks_check(run(&member, cut->what, send, resumed, &with_trap) == MPATH_OK);
    ranks_check(memcmp(whole, resumed, bytes) == 0);
    ranks_check(mpath_share_num_rails(member.symmetric->share) == left);
    for (int rail = 0; !cut->back && (rail < left); rail++) { /* none but the silent ones are blamed */
        ranks_check(mpath_share_rail_number(member.symmetric->share, rail) != 1);
        ranks_check((cut->again == NOT_AGAIN) || (mpath_share_rail_number(member.symmetric->share, rail) != 2));
    }
    if ((cut->nodes > 2) && (cut->again == NOT_AGAIN) && !cut->back) {
        int blamed = 0;

        for (int node = 0; node < cut->nodes; node++) {
            blamed += (mpath_team_lost(member.team, node) & mpath_nic_bit(1)) != 0;
        }
        /* Only who waits for the victim itself blames a NIC, but another one that had no processor is as far behind. */
        ranks_check(blamed >= 1);
        atomic_fetch_add(num_blamed_once, blamed == 1);
    }
    ranks_check((second != IN_RESULTS) || (handed > 1));
    ranks_check(!cut->behind || (self->rank != 0) || (put_back > 0));
    ranks_check((second != IN_REST) || (rests > 2));
    ranks_check(run(&member, cut->what, send, resumed, &with_trap) == MPATH_OK);
    ranks_check(memcmp(whole, resumed, bytes) == 0);
    ranks_barrier(self);
    member_end(&member);
    free(send);
    free(whole);
    free(resumed);
    return 0;
}

static void test_cut(void **state)
{
    static const cut_t cuts[] = {{ALLREDUCE_IN_PLACE, 2, SHARE_SCATTER, NOT_AGAIN, 0, 0, 0, 0},
                                 {ALLREDUCE_IN_PLACE, 12, SHARE_GATHER, NOT_AGAIN, 0, 0, 0, 0},
                                 {ALLREDUCE_IN_PLACE, 12, SHARE_GATHER, IN_RESULTS, 0, 0, 0, 0},
                                 {ALLREDUCE_IN_PLACE, 12, SHARE_GATHER, NOT_AGAIN, 1, 0, 0, 0},
                                 {ALLREDUCE_IN_PLACE, 40, SHARE_GATHER, IN_REST, 0, 0, 0, 0},
                                 {REDUCE_SCATTER, 9, SHARE_SCATTER, NOT_AGAIN, 0, 0, 0, 0},
                                 {ALLREDUCE_IN_PLACE, 40, SHARE_GATHER, NOT_AGAIN, 0, 1, 0, 0}};
    static const struct {
        int nodes, steps;
    } layouts[] = {{2, 0}, {3, 1}};

    (void)state;
    num_blamed_once = mmap(NULL, sizeof(*num_blamed_once), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(num_blamed_once != MAP_FAILED);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]) * (sizeof(cuts) / sizeof(cuts[0])); i++) {
        cut_t cut = cuts[i % (sizeof(cuts) / sizeof(cuts[0]))];
        ranks_setup_t setup;

        cut.nodes = layouts[i / (sizeof(cuts) / sizeof(cuts[0]))].nodes;
        cut.steps = layouts[i / (sizeof(cuts) / sizeof(cuts[0]))].steps;
        /* In steps all have come as far as the others: nobody has results that others lack. */
        cut.behind = cut.behind || ((cut.nodes > 2) && ((cut.again == IN_RESULTS) || cut.back));
        setup      = (ranks_setup_t){.size = NICS * cut.nodes, .nodes = cut.nodes, .nics = NICS};
        print_message("%d nodes, %s, case %zu\n", cut.nodes, cut.steps ? "in steps" : "directly",
                      i % (sizeof(cuts) / sizeof(cuts[0])));
        assert_int_equal(ranks_run(&setup, cut_body, &cut), 0);
    }
    assert_true(atomic_load(num_blamed_once) > 0);
    munmap(num_blamed_once, sizeof(*num_blamed_once));
}

/*
 * A rank is late when another one loses its rail: what is sent to it is not given up before it has come, and the
 * connection stays.
 */
static int late_body(ranks_self_t *self, void *argument)
{
    size_t bytes = ELEMENTS * sizeof(double);
    double *send = calloc(1, bytes), *whole = calloc(1, bytes), *resumed = calloc(1, bytes);
    trap_t trap                   = {0};
    mpath_combination_t with_trap = {.element_bytes = sizeof(double), .reduce = add_until_trap, .argument = &trap};
    member_t member;

    (void)argument;
    open_member(&member, self, 60, 0);
    ranks_check(send != NULL && whole != NULL && resumed != NULL);
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        send[i] = value_of(self->rank, i, 0);
    }
    ranks_check(run(&member, ALLREDUCE_IN_PLACE, send, whole, &with_trap) == MPATH_OK);
    cut_after = (self->rank == VICTIM) ? 4 : -1;
    late_ns   = (self->rank == LATE) ? mpath_time_ns() + LATE_NS : 0;
    unread_ns = (self->rank == 0) ? mpath_time_ns() + LATE_NS : 0;
    ranks_check(run(&member, ALLREDUCE_IN_PLACE, send, resumed, &with_trap) == MPATH_OK);
    ranks_check(memcmp(whole, resumed, bytes) == 0);
    ranks_check(mpath_share_num_rails(member.symmetric->share) == NICS - 1);
    ranks_check((member.team->lost[0] | member.team->lost[1]) == 1u << 1);
    ranks_check(mpath_links_repeats(mpath_links_of(member.team)) == 1);
    ranks_check(aborts == 0);
    ranks_barrier(self);
    member_end(&member);
    free(send);
    free(whole);
    free(resumed);
    return 0;
}

static void test_late(void **state)
{
    ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS};

    (void)state;
    assert_int_equal(ranks_run(&setup, late_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut), cmocka_unit_test(test_late)};

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */

    return cmocka_run_group_tests(tests, NULL, NULL);
}
