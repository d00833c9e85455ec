/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which chunk a relay sends next: outlets take turns, and so do chunks of the rank's own and those that it passes on;
 * how many are under way. Copies begin and end as the test says.
 */
#include "mover/relay_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OUTLETS 3
#define MAX_DEPTH 4u
#define MAX_HANDED 64

/* What has been handed over. */
typedef struct handed {
    uint32_t outlet, chunk;
    int is_own;
} handed_t;

static handed_t handed[MAX_HANDED];
static int num_handed, forwarded_wait, own_wait;
static mpath_status_t fails;

/* Each outlet has one duty of this rank's own, and one to pass on. */
typedef struct fixture {
    mpath_relay_t relay;
    mpath_schedule_t schedule;
    mpath_duty_t duties[2 * OUTLETS];
    mpath_outlet_t given[OUTLETS];
    relay_outlet_t outlets[OUTLETS];
    uint32_t own[OUTLETS];
} fixture_t;

/* Instead of mpath_relay_hand(), by the linker. */
mpath_status_t __wrap_mpath_relay_hand(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t chunk,
                                       const relay_item_t *item);
mpath_status_t __wrap_mpath_relay_hand(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t chunk,
                                       const relay_item_t *item)
{
    (void)relay;
    if (fails != MPATH_OK) {
        return fails;
    }
    if ((item == NULL) ? own_wait : forwarded_wait) {
        return MPATH_NO_RESOURCE;
    }
    assert_true(num_handed < MAX_HANDED);
    handed[num_handed++] = (handed_t){.outlet = duty->outlet, .chunk = chunk, .is_own = item == NULL};
    return MPATH_OK;
}

static void fixture_init(fixture_t *f, uint32_t own_chunks)
{
    memset(f, 0, sizeof(*f));
    num_handed     = 0;
    forwarded_wait = own_wait = 0;
    fails                     = MPATH_OK;

    f->schedule.duties      = f->duties;
    f->schedule.num_duties  = 2 * OUTLETS;
    f->schedule.outlets     = f->given;
    f->schedule.num_outlets = OUTLETS;
    f->schedule.own         = f->own;
    for (uint32_t i = 0; i < OUTLETS; i++) {
        f->duties[i] = (mpath_duty_t){
            .flow = i, .hop_in = MPATH_DUTY_NO_HOP, .bytes = own_chunks, .num_chunks = own_chunks, .outlet = i};
        f->duties[OUTLETS + i] = (mpath_duty_t){.flow = OUTLETS + i, .hop_out = 1, .outlet = i};
        f->own[i]              = i;
        f->given[i]            = (mpath_outlet_t){.kind = MPATH_OUTLET_LAST, .own = i, .num_own = 1};
        f->outlets[i]          = (relay_outlet_t){.last_p = &f->outlets[i].first, .own_left = own_chunks};
    }
    f->relay.bound.schedule = &f->schedule;
    f->relay.bound.outlets  = f->outlets;
}

/* A chunk to pass on comes for an outlet. */
static void comes(fixture_t *f, uint32_t outlet, uint32_t chunk)
{
    assert_int_equal(
        mpath_relay_queue(&f->relay, &f->duties[OUTLETS + outlet], chunk, MPATH_RELAY_TO_LAST, (int)chunk, -1),
        MPATH_OK);
}

/* The copies of all outlets end. */
static void all_end(fixture_t *f)
{
    for (int i = 0; i < OUTLETS; i++) {
        f->outlets[i].in_flight = 0;
    }
}

static void check_last(uint32_t outlet, int is_own, uint32_t chunk)
{
    assert_true(num_handed > 0);
    assert_int_equal(handed[num_handed - 1].outlet, outlet);
    assert_int_equal(handed[num_handed - 1].is_own, is_own);
    assert_int_equal(handed[num_handed - 1].chunk, chunk);
}

static int num_spare(const mpath_relay_t *relay)
{
    int num = 0;

    for (const relay_item_t *item = relay->spare_items; item != NULL; item = item->next) {
        num++;
    }
    return num;
}

static void free_spare(mpath_relay_t *relay)
{
    while (relay->spare_items != NULL) {
        relay_item_t *next = relay->spare_items->next;

        free(relay->spare_items);
        relay->spare_items = next;
    }
}

/* Chunks of an outlet: turn by turn, and what holds them is used again. */
static void test_turns_of_chunks(void **state)
{
    static fixture_t f;

    (void)state;
    fixture_init(&f, 3);
    f.schedule.num_outlets = 1;
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        comes(&f, 0, chunk);
    }
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        assert_int_equal(mpath_relay_feed(&f.relay), 1);
        check_last(0, 0, chunk);
        assert_int_equal(num_spare(&f.relay), chunk + 1);
        all_end(&f);
        assert_int_equal(f.outlets[0].own_left, 3 - chunk);
        assert_int_equal(mpath_relay_feed(&f.relay), 1);
        check_last(0, 1, chunk);
        assert_int_equal(f.outlets[0].own_left, 3 - chunk - 1);
        all_end(&f);
    }
    assert_int_equal(mpath_relay_feed(&f.relay), 0);
    assert_null(f.outlets[0].first);

    comes(&f, 0, 3); /* into the queue that was empty */
    comes(&f, 0, 4);
    assert_int_equal(num_spare(&f.relay), 1);
    for (uint32_t chunk = 3; chunk < 5; chunk++) {
        assert_int_equal(mpath_relay_feed(&f.relay), 1);
        check_last(0, 0, chunk);
        all_end(&f);
    }
    assert_int_equal(num_spare(&f.relay), 3);
    free_spare(&f.relay);
}

/* Who has to wait loses neither its chunk nor, to the other, more than the turn. */
static void test_waiting(void **state)
{
    static fixture_t f;

    (void)state;
    fixture_init(&f, 2);
    f.schedule.num_outlets = 1;
    comes(&f, 0, 0);
    comes(&f, 0, 1);
    forwarded_wait = own_wait = 1;
    assert_int_equal(mpath_relay_feed(&f.relay), 0);
    assert_int_equal(f.outlets[0].in_flight, 0);
    own_wait = 0;
    assert_int_equal(mpath_relay_feed(&f.relay), 1);
    check_last(0, 1, 0);
    all_end(&f);
    forwarded_wait = 0;
    assert_int_equal(mpath_relay_feed(&f.relay), 1);
    check_last(0, 0, 0);
    all_end(&f);
    own_wait = 1;
    assert_int_equal(mpath_relay_feed(&f.relay), 1);
    check_last(0, 0, 1);
    all_end(&f);
    fails = MPATH_ERR_NO_MEMORY;
    assert_int_equal(mpath_relay_feed(&f.relay), MPATH_ERR_NO_MEMORY);
    assert_int_equal(f.outlets[0].in_flight, 0);
    free_spare(&f.relay);
}

/* All outlets get their first chunk in one round, and one of those with the fewest another in each further one. */
static void test_depth(void **state)
{
    static fixture_t f;

    (void)state;
    fixture_init(&f, 20);
    assert_int_equal(mpath_relay_feed(&f.relay), OUTLETS);
    for (unsigned depth = 1; depth < MAX_DEPTH; depth++) {
        for (int i = 0; i < OUTLETS; i++) {
            assert_int_equal(mpath_relay_feed(&f.relay), 1);
        }
        for (int i = 0; i < OUTLETS; i++) {
            assert_int_equal(f.outlets[i].in_flight, depth + 1);
        }
    }
    assert_int_equal(mpath_relay_feed(&f.relay), 0);
    f.outlets[1].in_flight = 1;
    f.outlets[2].in_flight = 0;
    assert_int_equal(mpath_relay_feed(&f.relay), 1);
    check_last(2, 1, MAX_DEPTH);
}

/* An outlet whose copies end at once does not keep the others from their next ones. */
static void test_turns_of_outlets(void **state)
{
    static fixture_t f;

    (void)state;
    fixture_init(&f, 20);
    assert_int_equal(mpath_relay_feed(&f.relay), OUTLETS);
    for (uint32_t i = 0; i < 2 * OUTLETS; i++) {
        assert_int_equal(mpath_relay_feed(&f.relay), 1);
        check_last(i % OUTLETS, 1, 1 + i / OUTLETS);
        f.outlets[i % OUTLETS].in_flight--;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns_of_chunks),
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_turns_of_outlets),
    };

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay_feed", tests, NULL, NULL);
}
