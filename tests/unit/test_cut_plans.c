/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that fail under calls over plans at moments that a cluster seldom hits: when what is left is not worth a plan,
 * while a relay takes the last chunk, and while the bytes of a chunk that is here are still fetched. The transfers that
 * fail, or never end, are not UCX's here.
 */
#include "coll/alltoallv.h"
#include "team/team_private.h"
#include "unit/a2a.h"
#include "unit/capture.h"
#include "unit/ranks.h"
#include "util/fiber.h"
#include "util/time.h"
#include "wire/failover.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES 1000000ull
#define SILENT_S 4 /* a rail that works is not silent for so long, however loaded this machine is */
#define HELD_NS (300 * MPATH_NS_PER_MS)

typedef struct member {
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_coll_t *coll;
    a2a_t a2a;
    uint64_t *demand;
} member_t;

static const char *tune; /* NULL: none */

/* `resend_after_s` 0: calls are not repeated. */
static void member_init(member_t *member, ranks_self_t *self, int access, int resend_after_s)
{
    mpath_settings_t settings;

    ranks_drop_log();
    mpath_settings_init(&settings);
    settings.access         = access;
    settings.gate           = MPATH_GATE_ALWAYS;
    settings.resend_after_s = resend_after_s;
    settings.resend_min_ms  = 0;
    settings.timeout_s      = 100;
    settings.memory_bytes   = 8 << 20;
    settings.tune           = (tune != NULL) ? tune : settings.tune;
    member->context         = ranks_context(self, &settings);
    member->team            = ranks_team(self, member->context);
    member->demand          = calloc((size_t)self->size * (size_t)self->size, sizeof(*member->demand));
    ranks_check((member->demand != NULL) && (mpath_coll_create(member->team, &member->coll) == MPATH_OK));
    a2a_init(&member->a2a, self->rank, self->size);
}

static void member_end(member_t *member, ranks_self_t *self)
{
    ranks_barrier(self);
    a2a_end(&member->a2a);
    free(member->demand);
    mpath_coll_destroy(member->coll);
    mpath_team_destroy(member->team);
    mpath_context_destroy(member->context);
}

static void fill_bytes(member_t *member, a2a_kind_t kind, uint64_t bytes, uint64_t round)
{
    a2a_demand(kind, member->a2a.size, bytes, round, member->demand);
    a2a_fill(&member->a2a, member->demand, round);
}

static void fill(member_t *member, a2a_kind_t kind, uint64_t round)
{
    fill_bytes(member, kind, BYTES, round);
}

/* -- what goes wrong on this rank; instead of the functions of these names, by the linker -- */

static int sends_fail;     /* once something has come */
static int late_us;        /* so late is this rank with the next chunk that it sends or takes */
static int aborts;         /* of connections over rails whose ends answer */
static int dead_rail = -1; /* the other end of this one does not answer */
static int next_rail = -1; /* this one fails, too, and is closed when the sender is there to settle */
static int gone_rail = -1; /* it is */
static int hold_rail = -1; /* the take of the next chunk on this one is held until the rail is aborted */
static int taken;          /* chunks */
static uint64_t taken_bytes;
static uint64_t hold_last_bytes; /* the take of the chunk with which so much has come is held; 0: none is */
static mpath_lane_op_t *held;
static int held_rail;
static uint64_t held_ns; /* when it fails; 0: with its rail */
static mpath_arrival_t held_arrival;

static void rest(void)
{
    if (late_us > 0) {
        usleep((useconds_t)late_us);
        late_us = 0;
    }
}

mpath_status_t __real_mpath_fabric_send(mpath_fabric_t *fabric, int rail, int peer, const mpath_chunk_t *chunk,
                                        const void *data, mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_send(mpath_fabric_t *fabric, int rail, int peer, const mpath_chunk_t *chunk,
                                        const void *data, mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_send(mpath_fabric_t *fabric, int rail, int peer, const mpath_chunk_t *chunk,
                                        const void *data, mpath_lane_op_t *op)
{
    rest();
    if (sends_fail) {
        return (taken > 0) ? MPATH_ERR_UNREACHABLE : MPATH_NO_RESOURCE;
    }
    return __real_mpath_fabric_send(fabric, rail, peer, chunk, data, op);
}

mpath_status_t __real_mpath_fabric_take(mpath_fabric_t *fabric, int rail, const mpath_arrival_t *arrival, void *to,
                                        mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_take(mpath_fabric_t *fabric, int rail, const mpath_arrival_t *arrival, void *to,
                                        mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_take(mpath_fabric_t *fabric, int rail, const mpath_arrival_t *arrival, void *to,
                                        mpath_lane_op_t *op)
{
    rest();
    taken_bytes += arrival->chunk.bytes;
    if ((rail == hold_rail) || ((hold_last_bytes > 0) && (taken_bytes == hold_last_bytes))) {
        hold_last_bytes = 0;
        hold_rail       = -1;
        held            = op;
        held_rail       = rail;
        held_arrival    = *arrival;
        held_ns         = (held_ns != 0) ? mpath_time_ns() + HELD_NS : 0;
        return MPATH_INPROGRESS;
    }
    taken++;
    return __real_mpath_fabric_take(fabric, rail, arrival, to, op);
}

static void end_held(mpath_fabric_t *fabric)
{
    held->status = MPATH_ERR_UNREACHABLE;
    held         = NULL;
    mpath_fabric_release(fabric, held_rail, &held_arrival);
}

mpath_status_t __real_mpath_fabric_op_status(mpath_fabric_t *fabric, int rail, const mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_op_status(mpath_fabric_t *fabric, int rail, const mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_op_status(mpath_fabric_t *fabric, int rail, const mpath_lane_op_t *op)
{
    if ((op == held) && (held_ns != 0) && (mpath_time_ns() >= held_ns)) {
        end_held(fabric);
    }
    return __real_mpath_fabric_op_status(fabric, rail, op);
}

void __real_mpath_fabric_abort(mpath_fabric_t *fabric, int rail);
void __wrap_mpath_fabric_abort(mpath_fabric_t *fabric, int rail);
void __wrap_mpath_fabric_abort(mpath_fabric_t *fabric, int rail)
{
    aborts += (rail != dead_rail) && (rail != next_rail);
    if ((held != NULL) && (rail == held_rail)) {
        end_held(fabric);
    }
    __real_mpath_fabric_abort(fabric, rail);
}

void __real_mpath_fabric_abort_peer(mpath_fabric_t *fabric, int rail, int peer);
void __wrap_mpath_fabric_abort_peer(mpath_fabric_t *fabric, int rail, int peer);
void __wrap_mpath_fabric_abort_peer(mpath_fabric_t *fabric, int rail, int peer)
{
    aborts += (rail != dead_rail) && (rail != next_rail);
    __real_mpath_fabric_abort_peer(fabric, rail, peer);
}

mpath_status_t __real_mpath_team_settle(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all,
                                        int *marked_p);
mpath_status_t __wrap_mpath_team_settle(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all,
                                        int *marked_p);
mpath_status_t __wrap_mpath_team_settle(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all,
                                        int *marked_p)
{
    if (mark && (next_rail >= 0) && (team->rank == 0)) {
        __real_mpath_fabric_abort(team->context->fabric, next_rail);
        gone_rail = next_rail;
    }
    return __real_mpath_team_settle(team, mark, mine, bytes, all, marked_p);
}

int __real_mpath_fabric_progress(mpath_fabric_t *fabric, int rail);
int __wrap_mpath_fabric_progress(mpath_fabric_t *fabric, int rail);
int __wrap_mpath_fabric_progress(mpath_fabric_t *fabric, int rail)
{
    return (rail == gone_rail) ? -1 : __real_mpath_fabric_progress(fabric, rail);
}

static int dies; /* this rank, when all know what is lost */

mpath_status_t __real_mpath_team_settle_again(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all,
                                              int *marked_p);
mpath_status_t __wrap_mpath_team_settle_again(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all,
                                              int *marked_p);
mpath_status_t __wrap_mpath_team_settle_again(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all,
                                              int *marked_p)
{
    if (dies) {
        raise(SIGKILL);
    }
    return __real_mpath_team_settle_again(team, mark, mine, bytes, all, marked_p);
}

/* While a take is held, the other ends do not answer where calls are not repeated. */
static int dead;

mpath_status_t __real_mpath_fabric_peer_status(mpath_fabric_t *fabric, int rail, int peer);
mpath_status_t __wrap_mpath_fabric_peer_status(mpath_fabric_t *fabric, int rail, int peer);
mpath_status_t __wrap_mpath_fabric_peer_status(mpath_fabric_t *fabric, int rail, int peer)
{
    return ((dead && (held != NULL)) || (rail == dead_rail)) ? MPATH_ERR_UNREACHABLE
                                                             : __real_mpath_fabric_peer_status(fabric, rail, peer);
}

/* -- one rail after the other fails, until none is left: in place, the previous function finds the data as they were -- */

static int in_place_body(ranks_self_t *self, void *argument)
{
    member_t member;
    a2a_t *a2a = &member.a2a;

    (void)argument;
    member_init(&member, self, MPATH_ACCESS_ALL, 60);
    fill(&member, A2A_EVEN, 1);
    ranks_check(mpath_alltoallv(member.coll, &a2a->call) == MPATH_OK);
    fill(&member, A2A_EVEN, 2);
    ranks_check(a2a->send_room == a2a->recv_room);
    memcpy(a2a->recv, a2a->send, a2a->send_room);
    a2a->call.flags = MPATH_CALL_IN_PLACE;
    taken           = 0;
    sends_fail      = self->rank == 1;
    ranks_check(mpath_alltoallv(member.coll, &a2a->call) == MPATH_DECLINED);
    ranks_check((member.team->lost[0] | member.team->lost[1]) == 3);
    ranks_check((self->rank != 1) || (taken > 0));
    ranks_check(memcmp(a2a->recv, a2a->send, a2a->send_room) == 0);
    member_end(&member, self);
    return 0;
}

static void test_in_place(void **state)
{
    const ranks_setup_t setup = {.size = 4, .nodes = 2, .nics = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, in_place_body, NULL), 0);
}

/* -- a relay cannot fetch a chunk, in a call that is not repeated: its mate does not take the empty slot for the chunk -- */

/* The take of the last chunk that this rank gets or passes on in the next call, which is as its first one, is held. */
static void hold_last(void)
{
    ranks_check(taken_bytes > 0);
    hold_last_bytes = taken_bytes;
    taken_bytes     = 0;
}

static int relay_body(ranks_self_t *self, void *argument)
{
    mpath_status_t status;
    member_t member;

    (void)argument;
    member_init(&member, self, MPATH_ACCESS_AFFINE, 0);
    fill(&member, A2A_ONE_PAIR, 1); /* 0 to 3, one half through rank 1, the other through rank 2 */
    ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_OK);
    fill(&member, A2A_ONE_PAIR, 2);
    if (self->rank == 2) {
        hold_last();
        held_ns = 1;
    }
    status = mpath_alltoallv(member.coll, &member.a2a.call);
    ranks_check((self->rank != 2) || (hold_last_bytes == 0));
    ranks_check((self->rank < 2) || mpath_status_is_error(status));
    member_end(&member, self);
    return 0;
}

static void test_relay(void **state)
{
    const ranks_setup_t setup = {.size = 4, .nodes = 2, .nics = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, relay_body, NULL), 0);
}

/* -- the last chunk is here, but not its bytes: the rail that they are fetched over is the one that is silent -- */

/* Also where the plan is made by pairs of nodes, as with many ranks, and then once more without the rail. */
static int fetch_body(ranks_self_t *self, void *argument)
{
    int access = *(const int *)argument;
    int rank   = (access == MPATH_ACCESS_AFFINE) ? 2 : self->size - 1;
    mpath_record_t *record;
    member_t member;

    member_init(&member, self, access, SILENT_S);
    record = mpath_record_open("cut_plans", self->rank);
    ranks_check(record != NULL);
    mpath_team_set_record(member.team, record);
    fill(&member, A2A_ONE_PAIR, 1);
    ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_OK);
    fill(&member, A2A_ONE_PAIR, 2);
    if (self->rank == rank) {
        hold_last();
    }
    ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_OK);
    ranks_check(a2a_check(&member.a2a) == 0);
    ranks_check((hold_last_bytes == 0) && (held == NULL));
    ranks_check((member.team->lost[0] | member.team->lost[1]) != 0);
    ranks_check(record->call.repeats > 0);
    ranks_check((record->call.algorithm == MPATH_RECORD_PAIRS) == (tune != NULL));
    mpath_team_set_record(member.team, NULL);
    mpath_record_close(record);
    member_end(&member, self);
    return 0;
}

static void run_fetch(int size, int access)
{
    const ranks_setup_t setup = {.size = size, .nodes = 2, .nics = 2};

    assert_int_equal(ranks_run(&setup, fetch_body, &access), 0);
}

static void test_fetch(void **state)
{
    (void)state;
    run_fetch(2, MPATH_ACCESS_ALL);
}

static void test_fetch_by_pairs(void **state)
{
    (void)state;
    tune = "alltoallv:@pairs";
    run_fetch(4, MPATH_ACCESS_ALL);
    run_fetch(4, MPATH_ACCESS_AFFINE);
    tune = NULL;
}

static void test_fetch_to_pass_on(void **state)
{
    (void)state;
    run_fetch(4, MPATH_ACCESS_AFFINE);
}

/* The same in a call that is not repeated: who fetches asks the other end, and does not wait for the deadline. */
static int dead_body(ranks_self_t *self, void *argument)
{
    member_t member;

    (void)argument;
    member_init(&member, self, MPATH_ACCESS_ALL, 0);
    fill(&member, A2A_ONE_PAIR, 1);
    ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_OK);
    fill(&member, A2A_ONE_PAIR, 2);
    dead = 1;
    if (self->rank == 1) {
        hold_last();
    }
    ranks_check((mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_ERR_UNREACHABLE) || (self->rank != 1));
    ranks_check((hold_last_bytes == 0) && (held == NULL));
    member_end(&member, self);
    return 0;
}

static void test_fetch_from_dead(void **state)
{
    const ranks_setup_t setup = {.size = 2, .nodes = 2, .nics = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, dead_body, NULL), 0);
}

/*
 * -- a rank is late, while the other one gives up: whatever it has to do with other rails goes on when it comes, and no
 * connection ends that works --
 */

typedef struct late {
    int rank;      /* 0 sends, 1 reads */
    int us;        /* far longer than anything waits for it; less than silence that counts */
    int next;      /* a further NIC, which fails when the sender is there to settle; -1 */
    int hold;      /* or on which what the reader takes stays under way; -1 */
    int apart;     /* the call is a non-blocking one, and the rank computes once it has begun to move */
    uint32_t lost; /* NICs in the end */
} late_t;

typedef struct operation {
    member_t *member;
    mpath_status_t status;
} operation_t;

static void operation_body(void *argument)
{
    operation_t *operation = argument;

    operation->status = mpath_alltoallv(operation->member->coll, &operation->member->a2a.call);
}

static mpath_status_t run_apart(member_t *member, int us)
{
    operation_t operation = {.member = member, .status = MPATH_OK};
    mpath_fiber_t *fiber;

    taken = 0;
    ranks_check(mpath_fiber_create(1 << 20, &fiber) == MPATH_OK);
    mpath_fiber_start(fiber, operation_body, &operation);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
        if ((taken > 0) && (us > 0)) {
            usleep((useconds_t)us);
            us = 0;
        }
    }
    mpath_fiber_destroy(fiber);
    return operation.status;
}

static int late_body(ranks_self_t *self, void *argument)
{
    const late_t *late = argument;
    int loser          = 1 - late->rank; /* it has seen NIC 1 fail */
    mpath_status_t status;
    mpath_links_t *links;
    member_t member;

    member_init(&member, self, MPATH_ACCESS_ALL, (late->hold >= 0) ? SILENT_S : 60);
    fill(&member, A2A_ONE_PAIR, 1);
    ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_OK);
    fill_bytes(&member, A2A_ONE_PAIR, 40 * BYTES, 2);
    links     = mpath_links_of(member.team);
    late_us   = ((self->rank == late->rank) && !late->apart) ? late->us : 0;
    dead_rail = (self->rank == loser) ? mpath_links_rail(links, 1) : -1;
    next_rail = (late->next >= 0) ? mpath_links_rail(links, late->next) : -1;
    hold_rail = ((self->rank == 1) && (late->hold >= 0)) ? mpath_links_rail(links, late->hold) : -1;
    aborts    = 0;
    status    = late->apart ? run_apart(&member, (self->rank == late->rank) ? late->us : 0)
                            : mpath_alltoallv(member.coll, &member.a2a.call);
    ranks_check(status == MPATH_OK);
    ranks_check(a2a_check(&member.a2a) == 0);
    ranks_check((held == NULL) && (hold_rail < 0));
    ranks_check(gone_rail == ((self->rank == 0) ? next_rail : -1));
    ranks_check((member.team->lost[0] | member.team->lost[1]) == late->lost);
    ranks_check(mpath_links_repeats(links) == 1);
    ranks_check(aborts == ((self->rank == 1) && (late->hold >= 0)));
    ranks_check(__real_mpath_fabric_peer_status(member.context->fabric, mpath_links_rail(links, 0),
                                                mpath_links_peer(links, 0, 1 - self->rank, 0)) == MPATH_OK);
    member_end(&member, self);
    return 0;
}

static void run_late(int nics, const late_t *late)
{
    const ranks_setup_t setup = {.size = 2, .nodes = 2, .nics = nics};

    assert_int_equal(ranks_run(&setup, late_body, (void *)late), 0);
}

static void test_late(void **state)
{
    const late_t late = {.rank = 0, .us = 600000, .next = -1, .hold = -1, .lost = 1u << 1};

    (void)state;
    run_late(2, &late);
}

static void test_late_reader(void **state)
{
    const late_t late = {.rank = 1, .us = 2500000, .next = -1, .hold = -1, .lost = 1u << 1};

    (void)state;
    run_late(2, &late);
}

static void test_late_apart(void **state)
{
    const late_t late = {.rank = 1, .us = 2500000, .next = -1, .hold = -1, .apart = 1, .lost = 1u << 1};

    (void)state;
    run_late(2, &late);
}

/* Of three nodes one has lost a NIC, and another one is late: those without that NIC keep what connects them. */
static int three_body(ranks_self_t *self, void *argument)
{
    mpath_links_t *links;
    member_t member;

    (void)argument;
    member_init(&member, self, MPATH_ACCESS_ALL, 60);
    fill(&member, A2A_EVEN, 1);
    ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_OK);
    fill_bytes(&member, A2A_EVEN, 20 * BYTES, 2);
    links     = mpath_links_of(member.team);
    dead_rail = (self->rank == 0) ? mpath_links_rail(links, 1) : -1;
    late_us   = (self->rank == 2) ? 2500000 : 0;
    ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_OK);
    ranks_check(a2a_check(&member.a2a) == 0);
    ranks_check((member.team->lost[0] == 1u << 1) && ((member.team->lost[1] | member.team->lost[2]) == 0));
    ranks_check(mpath_links_repeats(links) == 1);
    for (int rank = 0; rank < self->size; rank++) {
        for (int nic = 0; (rank != self->rank) && (nic < 2); nic++) {
            ranks_check(((nic == 1) && ((rank == 0) || (self->rank == 0))) ||
                        (__real_mpath_fabric_peer_status(member.context->fabric, mpath_links_rail(links, nic),
                                                         mpath_links_peer(links, nic, rank, nic)) == MPATH_OK));
        }
    }
    member_end(&member, self);
    return 0;
}

static void test_three(void **state)
{
    const ranks_setup_t setup = {.size = 3, .nodes = 3, .nics = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, three_body, NULL), 0);
}

/* A second rail fails while the ranks wait for each other: the call is repeated once, without both. */
static void test_second(void **state)
{
    const late_t late = {.rank = 1, .us = 600000, .next = 2, .hold = -1, .lost = 1u << 1 | 1u << 2};

    (void)state;
    run_late(3, &late);
}

/* Or something stays under way on it, which is waited for as long as for anything else. */
static void test_second_silent(void **state)
{
    const late_t late = {.rank = 1, .us = 600000, .next = -1, .hold = 2, .lost = 1u << 1 | 1u << 2};

    (void)state;
    run_late(3, &late);
}

/* -- a rank dies while what is under way ends: the others name it, although the control plane does not -- */

/* Of a line that goes on with so many seconds. */
static int silent_s(const char *before)
{
    const char *line = strstr(capture_text(), before);

    return (line != NULL) ? atoi(line + strlen(before)) : -1;
}

static int dies_body(ranks_self_t *self, void *argument)
{
    member_t member;

    (void)argument;
    member_init(&member, self, MPATH_ACCESS_ALL, 60);
    fill(&member, A2A_EVEN, 1);
    ranks_check(mpath_alltoallv(member.coll, &member.a2a.call) == MPATH_OK);
    fill(&member, A2A_EVEN, 2);
    ranks_barrier(self);
    member.context->settings.timeout_s = 4;
    dies                               = self->rank == self->size - 1;
    sends_fail                         = self->rank == 0;
    taken                              = 0;
    capture_start();
    ranks_check(mpath_status_is_error(mpath_alltoallv(member.coll, &member.a2a.call)));
    if (self->size == 2) { /* nobody is left on its node who knows better */
        ranks_check(strstr(capture_text(), "rank 0 (virtual0) waits in call") != NULL);
        ranks_check(silent_s("for rank 1 (virtual1); nothing came for ") >= 4);
    } else if (self->rank == self->size - 2) {
        ranks_check(strstr(capture_text(), "rank 3 (virtual1) has ended while rank 2 waits for it") != NULL);
    }
    _exit(0); /* no rank can wait for the one that is gone */
}

static void test_dies(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size += 2) {
        const ranks_setup_t setup = {.size = size, .nodes = 2, .nics = 2, .may_die = 1u << (size - 1), .deaf = 1};

        assert_int_equal(ranks_run(&setup, dies_body, NULL), 0);
    }
}

/* -- a rank of the other node gives up when the first of this one is through: its mates that still wait see it -- */

static int mark_body(ranks_self_t *self, void *argument)
{
    uint64_t start_ns = mpath_time_ns();
    int mine = self->rank, all[4], marked = 0;
    member_t member;

    (void)argument;
    member_init(&member, self, MPATH_ACCESS_ALL, 60);
    while ((self->rank == 1) && !mpath_team_marked(member.team)) {
        ranks_check(mpath_time_ns() - start_ns < 300 * MPATH_NS_PER_S);
        usleep(1000);
    }
    ranks_check(mpath_team_settle(member.team, self->rank == 3, &mine, sizeof(mine), all, &marked) == MPATH_OK);
    ranks_check(marked);
    member_end(&member, self);
    return 0;
}

static void test_mark(void **state)
{
    const ranks_setup_t setup = {.size = 4, .nodes = 2, .nics = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, mark_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_place),
                                       cmocka_unit_test(test_relay),
                                       cmocka_unit_test(test_fetch),
                                       cmocka_unit_test(test_fetch_by_pairs),
                                       cmocka_unit_test(test_fetch_to_pass_on),
                                       cmocka_unit_test(test_fetch_from_dead),
                                       cmocka_unit_test(test_late),
                                       cmocka_unit_test(test_late_reader),
                                       cmocka_unit_test(test_late_apart),
                                       cmocka_unit_test(test_three),
                                       cmocka_unit_test(test_second),
                                       cmocka_unit_test(test_second_silent),
                                       cmocka_unit_test(test_dies),
                                       cmocka_unit_test(test_mark)};

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
