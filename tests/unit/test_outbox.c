/* SPDX-License-Identifier: BSD-3-Clause */
/* The outbox: blocks are used anew when all mates have left the call, also when the team has ended; and calls of many teams. */
#include "team/agree.h"
#include "team/outbox.h"
#include "team/team_private.h"
#include "unit/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define MATES 3
#define OUTBOX_BYTES 4096

/* A team of three ranks, of which this process is the first. */
typedef struct user {
    mpath_outbox_share_t *share;
    mpath_segment_t segment;
    mpath_outbox_left_t *left;
    mpath_segment_address_t address;
} user_t;

static void user_join(mpath_outbox_t *outbox, user_t *user)
{
    assert_int_equal(mpath_outbox_join(outbox, OUTBOX_BYTES, &user->share, &user->address), MPATH_OK);
    assert_int_equal(mpath_segment_create_open(MATES * sizeof(*user->left), &user->segment), MPATH_OK);
    mpath_segment_note(&user->segment, MATES);
    user->left             = user->segment.base;
    user->share->left      = user->left;
    user->share->num_local = MATES;
}

static void leave_call(user_t *user, uint32_t call)
{
    for (int mate = 0; mate < MATES; mate++) {
        atomic_store(&user->left[mate].call, call);
    }
}

static void *take(mpath_outbox_t *outbox, user_t *user, size_t bytes, uint32_t call)
{
    mpath_segment_address_t address;
    const mpath_segment_t *mapped;
    size_t offset = SIZE_MAX;
    void *at      = mpath_outbox_take(outbox, user->share, (int)(call & 1), bytes, call, &offset);

    address = user->address;
    if (at != NULL) { /* what mates find there */
        memset(at, (int)call, bytes);
        assert_int_equal(mpath_segment_borrow(&address, &mapped), MPATH_OK);
        assert_true(offset + bytes <= mapped->bytes);
        assert_int_equal(((char *)mapped->base)[offset + bytes - 1], (char)call);
        mpath_segment_return(mapped);
    }
    return at;
}

/* Two teams; one takes from the other what all mates have left, and nothing else. */
static void test_reuse(void **state)
{
    user_t first = {.share = NULL}, second = {.share = NULL};
    mpath_outbox_t *outbox;
    void *blocks[2];

    (void)state;
    assert_int_equal(mpath_outbox_create(&outbox), MPATH_OK);
    assert_int_equal(mpath_outbox_bytes(outbox), 0);
    user_join(outbox, &first);
    user_join(outbox, &second);
    assert_int_equal(mpath_outbox_bytes(outbox), OUTBOX_BYTES);

    leave_call(&first, 0xfffffffd);
    blocks[0] = take(outbox, &first, 2000, 0xfffffffe); /* numbers of calls come round */
    blocks[1] = take(outbox, &first, 2000, 0xffffffff);
    assert_non_null(blocks[0]);
    assert_non_null(blocks[1]);
    assert_null(take(outbox, &second, 100, 1));
    leave_call(&first, 0xfffffffe);
    assert_ptr_equal(take(outbox, &first, 1000, 0), blocks[0]); /* a team keeps what it has */
    leave_call(&first, 0xffffffff);
    assert_ptr_equal(take(outbox, &second, 2000, 1), blocks[1]);
    assert_null(take(outbox, &second, 2000, 2));
    assert_null(take(outbox, &first, 2000, 1));
    atomic_store(&first.left[0].call, 0);
    atomic_store(&first.left[1].call, 0);
    assert_null(take(outbox, &second, 2000, 2));
    atomic_store(&first.left[2].gone, 1); /* it will not read any more */
    assert_non_null(take(outbox, &second, 2000, 2));

    /* A larger one, in the place of several. */
    leave_call(&second, 2);
    assert_non_null(take(outbox, &second, OUTBOX_BYTES, 3));
    assert_null(take(outbox, &second, OUTBOX_BYTES + 1, 4));
    mpath_outbox_leave(outbox, first.share, &first.segment);
    mpath_outbox_leave(outbox, second.share, &second.segment);
    assert_int_equal(mpath_outbox_bytes(outbox), 0);
    mpath_outbox_destroy(outbox);
}

/* One team's calls, of any sizes up to half of it, never wait for room: the one before has not been left by anybody. */
static void test_sizes(void **state)
{
    user_t user = {.share = NULL};
    mpath_outbox_t *outbox;
    uint32_t random = 5;

    (void)state;
    assert_int_equal(mpath_outbox_create(&outbox), MPATH_OK);
    user_join(outbox, &user);
    for (uint32_t call = 1; call < 1000; call++) {
        random = random * 1664525u + 1013904223u;
        assert_non_null(take(outbox, &user, (random >> 8) % (OUTBOX_BYTES / 2) + 1, call));
        leave_call(&user, call - 1);
    }
    mpath_outbox_leave(outbox, user.share, &user.segment);
    mpath_outbox_destroy(outbox);
}

/* The block of a team that has ended, while a mate reads it; everything is given back with the last team. */
static void test_ended(void **state)
{
    user_t first = {.share = NULL}, second = {.share = NULL}, third = {.share = NULL};
    uint64_t part, before, with_first, bytes;
    mpath_outbox_left_t *left;
    mpath_outbox_t *outbox;
    const mpath_segment_t *mapped;

    (void)state;
    mpath_segment_held(&part, &before);
    assert_int_equal(mpath_outbox_create(&outbox), MPATH_OK);
    user_join(outbox, &first);
    mpath_segment_held(&part, &with_first);
    user_join(outbox, &second);
    assert_non_null(take(outbox, &second, 4000, 7));
    assert_int_equal(mpath_segment_address(&second.segment, &second.address), MPATH_OK);
    assert_int_equal(mpath_segment_borrow(&second.address, &mapped), MPATH_OK); /* the mates' */
    left = mapped->base;
    atomic_store(&left[0].gone, 1);
    mpath_outbox_leave(outbox, second.share, &second.segment);
    assert_null(second.segment.base);
    assert_null(take(outbox, &first, 4000, 1));
    atomic_store(&left[1].call, 7);
    assert_null(take(outbox, &first, 4000, 1));
    atomic_store(&left[2].gone, 1);
    assert_non_null(take(outbox, &first, 4000, 1));
    mpath_segment_return(mapped);
    mpath_segment_held(&part, &bytes);
    assert_int_equal(bytes, with_first);

    leave_call(&first, 1);
    user_join(outbox, &third);
    assert_non_null(take(outbox, &third, 4000, 1));
    mpath_outbox_leave(outbox, third.share, &third.segment);
    mpath_outbox_leave(outbox, first.share, &first.segment);
    assert_int_equal(mpath_outbox_bytes(outbox), 0);
    mpath_segment_held(&part, &bytes);
    assert_int_equal(bytes, before);
    mpath_outbox_destroy(outbox);
}

#define RANKS 4
#define TEAMS 16
#define PAIR_BYTES 4096
#define ROUNDS 6
#define TRIES 200

/* One exchange of the pairs of a team inside its agreement; every byte is looked at. */
static void exchange(mpath_team_t *team, int rank, size_t bytes, unsigned round)
{
    uint64_t sizes[RANKS], offsets[RANKS];
    unsigned char *send = malloc(RANKS * PAIR_BYTES), *recv = calloc(RANKS, PAIR_BYTES);
    mpath_agreed_t agreed;
    mpath_call_t call = {.operation    = 1,
                         .send_bytes   = sizes,
                         .send_offsets = offsets,
                         .send_buffer  = send,
                         .recv_bytes   = sizes,
                         .recv_offsets = offsets,
                         .recv_buffer  = recv};
    int inside        = 0;

    ranks_check(send != NULL && recv != NULL);
    for (int other = 0; other < RANKS; other++) {
        sizes[other]   = bytes;
        offsets[other] = (uint64_t)other * PAIR_BYTES;
        memset(send + offsets[other], (int)(round * 17 + (unsigned)rank * RANKS + (unsigned)other), bytes);
    }
    /* Where a mate is slow to leave the call before there may be no room yet, and the pairs go another way, as all ranks see. */
    for (int tries = 0; !inside && tries < TRIES; tries++) {
        ranks_check(mpath_agree(team, &call, &agreed) == MPATH_OK);
        inside = agreed.finished && (agreed.flags & MPATH_CALL_INELIGIBLE) == 0;
    }
    ranks_check(inside);
    for (int other = 0; other < RANKS; other++) {
        for (size_t i = 0; i < bytes && other != rank; i++) {
            ranks_check(recv[offsets[other] + i] ==
                        (unsigned char)(round * 17 + (unsigned)other * RANKS + (unsigned)rank));
        }
    }
    free(send);
    free(recv);
}

/* Pairs as large as any that travel inside, on many teams in turns, which share what that takes, and come and go. */
static int teams_body(ranks_self_t *self, void *argument)
{
    mpath_team_t *teams[TEAMS];
    mpath_settings_t settings;
    mpath_context_t *context;
    uint64_t part, bytes, one;

    (void)argument;
    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    for (int i = 0; i < TEAMS; i++) {
        mpath_oob_t oob;

        ranks_oob(self, 1 + i, NULL, self->size, &oob);
        ranks_check(mpath_team_create(context, &oob, &teams[i]) == MPATH_OK);
        mpath_segment_held(&part, i == 0 ? &one : &bytes);
    }
    /* A team has less than half of what its pairs need; the outboxes hold two rows of each process. */
    ranks_check(bytes - one <= (TEAMS - 1) * RANKS * RANKS * (size_t)PAIR_BYTES);
    ranks_check(one <= 2 * RANKS * RANKS * (size_t)PAIR_BYTES + RANKS * (2 * RANKS * (size_t)PAIR_BYTES));
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < TEAMS; i++) {
            exchange(teams[i], self->rank, (round + (unsigned)i) % 3 == 0 ? 3 : PAIR_BYTES - 4 * (size_t)i, round);
            exchange(teams[(5 * i) % TEAMS], self->rank, PAIR_BYTES, round);
        }
        mpath_team_destroy(teams[round]); /* others may still read */
        exchange(teams[TEAMS - 1], self->rank, PAIR_BYTES, round);
        {
            mpath_oob_t oob;

            ranks_oob(self, 1 + TEAMS + (int)round, NULL, self->size, &oob);
            ranks_check(mpath_team_create(context, &oob, &teams[round]) == MPATH_OK);
        }
    }
    for (int i = 0; i < TEAMS; i++) {
        mpath_team_destroy(teams[i]);
    }
    mpath_segment_held(&part, &bytes);
    ranks_check(bytes == 0 && part == 0);
    ranks_barrier(self);
    mpath_context_destroy(context);
    return 0;
}

static void test_teams(void **state)
{
    ranks_setup_t setup = {.size = RANKS, .nics = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, teams_body, NULL), 0);
}

/* An outbox that another team holds for longer than that: the call is left on all ranks alike, later ones are not. */
static int held_body(ranks_self_t *self, void *argument)
{
    unsigned char send[RANKS * PAIR_BYTES] = {1}, recv[RANKS * PAIR_BYTES];
    uint64_t sizes[RANKS], offsets[RANKS];
    mpath_outbox_share_t *share;
    mpath_segment_address_t address;
    mpath_outbox_left_t left = {.gone = 0};
    mpath_segment_t none     = {.base = NULL};
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_agreed_t agreed;
    mpath_team_t *team;
    size_t offset;
    mpath_call_t call = {.operation    = 1,
                         .send_bytes   = sizes,
                         .send_offsets = offsets,
                         .send_buffer  = send,
                         .recv_bytes   = sizes,
                         .recv_offsets = offsets,
                         .recv_buffer  = recv};

    (void)argument;
    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    for (int other = 0; other < RANKS; other++) {
        sizes[other]   = PAIR_BYTES;
        offsets[other] = (uint64_t)other * PAIR_BYTES;
    }
    exchange(team, self->rank, PAIR_BYTES, 0);
    exchange(team, self->rank, PAIR_BYTES, 1);
    ranks_barrier(self);
    if (self->rank == 2) {
        ranks_check(mpath_outbox_join(context->outbox, 0, &share, &address) == MPATH_OK);
        share->left      = &left;
        share->num_local = 1;
        ranks_check(mpath_outbox_take(context->outbox, share, 0, mpath_outbox_bytes(context->outbox), 1, &offset) !=
                    NULL);
    }
    for (int i = 0; i < 3; i++) {
        ranks_check(mpath_agree(team, &call, &agreed) == MPATH_OK);
        ranks_check((agreed.flags & MPATH_CALL_INELIGIBLE) != 0);
    }
    exchange(team, self->rank, 100, 2); /* needs none */
    if (self->rank == 2) {
        atomic_store(&left.call, 1);
    }
    exchange(team, self->rank, PAIR_BYTES, 3);
    if (self->rank == 2) {
        mpath_outbox_leave(context->outbox, share, &none);
    }
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_held(void **state)
{
    ranks_setup_t setup = {.size = RANKS, .nics = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, held_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reuse), cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_ended), cmocka_unit_test(test_teams),
                                       cmocka_unit_test(test_held)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
