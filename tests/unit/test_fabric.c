/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fabric: two rails of one process over the loopback device talk to each other. Sorting by team, chunks that are early,
 * counted peers, teams in two threads on the same rails, and rails that take the place of others.
 */
#include "rail/fabric.h"
#include "unit/capture.h"
#include "util/time.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define LIMIT_NS (120 * MPATH_NS_PER_S)
#define TEAM_CHUNKS 2000
#define CHUNK_BYTES 3000
#define RENEWALS 300
#define OPEN_BYTES (16u * 64u * 1024u) /* that a rail holds before it stops reading */

typedef struct fixture {
    mpath_settings_t settings;
    mpath_machine_t machine;
    mpath_fabric_t *fabric;
    int peer; /* rail 1 as rail 0 knows it */
} fixture_t;

/* A team as its own thread sees it. */
typedef struct receiver {
    fixture_t *f;
    uint64_t id;
    pthread_mutex_t lock;
    mpath_arrival_t arrivals[TEAM_CHUNKS];
    size_t count, taken;
    int wrong;
} receiver_t;

static void arrive(void *argument, int nic, const mpath_arrival_t *arrival)
{
    receiver_t *receiver = argument;

    pthread_mutex_lock(&receiver->lock);
    if ((nic != 1) || (arrival->chunk.team != receiver->id) || (receiver->count == TEAM_CHUNKS)) {
        receiver->wrong = 1;
    } else {
        receiver->arrivals[receiver->count++] = *arrival;
    }
    pthread_mutex_unlock(&receiver->lock);
}

static void receiver_init(receiver_t *receiver, fixture_t *f, uint64_t id)
{
    memset(receiver, 0, sizeof(*receiver));
    receiver->f  = f;
    receiver->id = id;
    pthread_mutex_init(&receiver->lock, NULL);
}

/* The rails that new teams use. */
static void join_rails(receiver_t *receiver)
{
    mpath_fabric_t *fabric = receiver->f->fabric;

    for (int nic = 0; nic < receiver->f->machine.num_nics; nic++) {
        assert_true(mpath_fabric_join(fabric, nic, receiver->id, arrive, receiver) >= 0);
    }
}

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof(*f));
    const void *address;
    size_t bytes;

    mpath_settings_init(&f->settings);
    f->settings.chunk_bytes = 64 * 1024;
    f->machine.num_nics     = 2;
    for (int nic = 0; nic < 2; nic++) {
        f->machine.nics[nic].up = 1;
        strcpy(f->machine.nics[nic].name, "lo");
    }
    assert_int_equal(mpath_fabric_create(&f->settings, &f->machine, &f->fabric), MPATH_OK);
    assert_int_equal(mpath_fabric_address(f->fabric, 1, &address, &bytes), MPATH_OK);
    f->peer = mpath_fabric_peer(f->fabric, 0, address, bytes, "rail 1");
    assert_true(f->peer >= 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;

    mpath_fabric_destroy(f->fabric);
    free(f);
    return 0;
}

static void progress(fixture_t *f)
{
    assert_true(mpath_fabric_progress(f->fabric, 0) >= 0);
    assert_true(mpath_fabric_progress(f->fabric, 1) >= 0);
}

static void fill(char *data, uint64_t team, uint32_t flow)
{
    for (uint32_t i = 0; i < CHUNK_BYTES; i++) {
        data[i] = (char)(team * 37 + flow * 11 + i);
    }
}

/* Sends chunk `flow` of a team from rail 0 and waits until it has left. */
static void send_chunk(fixture_t *f, uint64_t team, uint32_t flow)
{
    mpath_chunk_t chunk = {.team = team, .flow = flow, .bytes = CHUNK_BYTES};
    mpath_lane_op_t op  = {.status = MPATH_INPROGRESS};
    uint64_t end_ns     = mpath_time_ns() + LIMIT_NS;
    mpath_status_t status;
    char data[CHUNK_BYTES];

    fill(data, team, flow);
    while ((status = mpath_fabric_send(f->fabric, 0, f->peer, &chunk, data, &op)) == MPATH_NO_RESOURCE) {
        progress(f);
    }
    while (status == MPATH_INPROGRESS) {
        progress(f);
        status = mpath_fabric_op_status(f->fabric, 0, &op);
        assert_true(mpath_time_ns() < end_ns);
    }
    assert_int_equal(status, MPATH_OK);
}

static void wait_for(receiver_t *receiver, size_t count)
{
    uint64_t end_ns = mpath_time_ns() + LIMIT_NS;

    while (receiver->count < count) {
        progress(receiver->f);
        assert_true(mpath_time_ns() < end_ns);
    }
    assert_int_equal(receiver->count, count);
    assert_false(receiver->wrong);
}

static void take_one(receiver_t *receiver, size_t index)
{
    const mpath_arrival_t *arrival = &receiver->arrivals[index];
    char expected[CHUNK_BYTES], data[CHUNK_BYTES];
    mpath_lane_op_t op = {.status = MPATH_INPROGRESS};
    mpath_status_t status;

    fill(expected, receiver->id, arrival->chunk.flow);
    status = mpath_fabric_take(receiver->f->fabric, 1, arrival, data, &op);
    while (status == MPATH_INPROGRESS) {
        progress(receiver->f);
        status = mpath_fabric_op_status(receiver->f->fabric, 1, &op);
    }
    assert_int_equal(status, MPATH_OK);
    assert_memory_equal(data, expected, CHUNK_BYTES);
}

static void test_sorts(void **state)
{
    fixture_t *f  = *state;
    receiver_t *a = malloc(sizeof(*a)), *b = malloc(sizeof(*b));

    receiver_init(a, f, 100);
    receiver_init(b, f, 200);
    join_rails(a);
    for (uint32_t i = 0; i < 5; i++) {
        send_chunk(f, 100, i);
        send_chunk(f, 200, i); /* b has not joined: kept */
    }
    wait_for(a, 5);
    for (int i = 0; i < 1000; i++) {
        progress(f);
    }
    assert_int_equal(b->count, 0);
    join_rails(b);
    wait_for(b, 5);
    for (size_t i = 0; i < 5; i++) {
        take_one(a, i);
        take_one(b, 4 - i);
    }
    mpath_fabric_leave(f->fabric, b->id);
    mpath_fabric_leave(f->fabric, a->id);
    free(a);
    free(b);
}

/* A team that leaves with open chunks gives their room back: else the rail would stop to read. */
static void test_leave_releases(void **state)
{
    fixture_t *f  = *state;
    receiver_t *a = malloc(sizeof(*a));

    for (int round = 0; round < 50; round++) {
        receiver_init(a, f, 300 + (uint64_t)round);
        join_rails(a);
        for (uint32_t i = 0; i < 20; i++) {
            send_chunk(f, a->id, i);
        }
        wait_for(a, 20);
        mpath_fabric_leave(f->fabric, a->id);
    }
    free(a);
}

/* Chunks that come for a team that has left are dropped: kept, they would stop the rail for the other teams. */
static void test_left_behind(void **state)
{
    fixture_t *f  = *state;
    receiver_t *a = malloc(sizeof(*a)), *b = malloc(sizeof(*b));

    receiver_init(a, f, 500);
    receiver_init(b, f, 600);
    join_rails(a);
    join_rails(b);
    mpath_fabric_leave(f->fabric, a->id);
    for (size_t sent = 0; sent <= 2 * OPEN_BYTES; sent += CHUNK_BYTES) {
        send_chunk(f, a->id, 0);
    }
    send_chunk(f, b->id, 0);
    wait_for(b, 1);
    take_one(b, 0);
    assert_int_equal(a->count, 0);
    mpath_fabric_leave(f->fabric, b->id);
    free(a);
    free(b);
}

static void test_peers(void **state)
{
    fixture_t *f = *state;
    const void *address, *other;
    size_t bytes, other_bytes;
    int again, self;

    assert_int_equal(mpath_fabric_address(f->fabric, 1, &address, &bytes), MPATH_OK);
    again = mpath_fabric_peer(f->fabric, 0, address, bytes, "rail 1 again");
    assert_int_equal(again, f->peer);
    assert_int_equal(mpath_fabric_address(f->fabric, 0, &other, &other_bytes), MPATH_OK);
    self = mpath_fabric_peer(f->fabric, 0, other, other_bytes, "rail 0");
    assert_true(self >= 0 && self != f->peer);
    mpath_fabric_forget_peer(f->fabric, 0, again);
    mpath_fabric_forget_peer(f->fabric, 0, self);
    send_chunk(f, 1, 0); /* still known */
    capture_start();
    assert_int_equal(mpath_fabric_join(f->fabric, 2, 1, arrive, NULL), MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_text(), "2 NICs"));
}

/* A process that is gone keeps its number while somebody uses it; then it is tried again, for it may be back. */
static void test_lost_peer(void **state)
{
    fixture_t *f    = *state;
    uint64_t end_ns = mpath_time_ns() + LIMIT_NS;
    mpath_fabric_t *other;
    const void *address;
    char copy[512];
    size_t bytes;
    int peer;

    assert_int_equal(mpath_fabric_create(&f->settings, &f->machine, &other), MPATH_OK);
    assert_int_equal(mpath_fabric_address(other, 0, &address, &bytes), MPATH_OK);
    assert_true(bytes <= sizeof(copy));
    memcpy(copy, address, bytes);
    peer = mpath_fabric_peer(f->fabric, 0, copy, bytes, "a rail that goes");
    assert_true(peer >= 0);
    mpath_fabric_destroy(other);
    capture_start();
    while (mpath_fabric_peer_status(f->fabric, 0, peer) == MPATH_OK) {
        progress(f);
        assert_true(mpath_time_ns() < end_ns);
    }
    capture_stop();
    assert_int_equal(mpath_fabric_peer(f->fabric, 0, copy, bytes, "a rail that has gone"), peer);
    assert_int_equal(mpath_fabric_peer_status(f->fabric, 0, peer), MPATH_ERR_UNREACHABLE);
    mpath_fabric_forget_peer(f->fabric, 0, peer);
    mpath_fabric_forget_peer(f->fabric, 0, peer);
    peer = mpath_fabric_peer(f->fabric, 0, copy, bytes, "perhaps it has come back");
    assert_true(peer >= 0);
    assert_int_equal(mpath_fabric_peer_status(f->fabric, 0, peer), MPATH_OK); /* nobody has refused yet */
    mpath_fabric_forget_peer(f->fabric, 0, peer);
}

static void *run_team(void *argument)
{
    receiver_t *receiver         = argument;
    fixture_t *f                 = receiver->f;
    uint32_t sent                = 0;
    static const uint32_t window = 4;

    while (receiver->taken < TEAM_CHUNKS) {
        size_t count;

        if ((sent < TEAM_CHUNKS) && (sent < receiver->taken + window)) {
            send_chunk(f, receiver->id, sent++);
        }
        progress(f);
        pthread_mutex_lock(&receiver->lock);
        count = receiver->count;
        pthread_mutex_unlock(&receiver->lock);
        while (receiver->taken < count) {
            take_one(receiver, receiver->taken++);
        }
    }
    return NULL;
}

/* cmocka's asserts in a second thread end the program, which fails the test as well. */
static void test_threads(void **state)
{
    fixture_t *f         = *state;
    receiver_t *teams[2] = {malloc(sizeof(receiver_t)), malloc(sizeof(receiver_t))};
    pthread_t threads[2];

    for (int i = 0; i < 2; i++) {
        receiver_init(teams[i], f, 500 + (uint64_t)i);
        join_rails(teams[i]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_team, teams[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(teams[i]->wrong);
        mpath_fabric_leave(f->fabric, teams[i]->id);
        free(teams[i]);
    }
}

/*
 * Two teams go over to a new rail one after the other; the old one is there until both have, and its number is free
 * then.
 */
static void test_renew(void **state)
{
    fixture_t *f  = *state;
    receiver_t *a = malloc(sizeof(*a)), *b = malloc(sizeof(*b));
    const uint64_t ids[] = {700, 701};
    const void *address;
    char before[512];
    int first = -1, second = -1, third = -1;
    size_t bytes, before_bytes;

    receiver_init(a, f, ids[0]);
    receiver_init(b, f, ids[1]);
    join_rails(a);
    join_rails(b);
    assert_int_equal(mpath_fabric_join(f->fabric, 0, a->id, arrive, a), 0);
    assert_int_equal(mpath_fabric_address(f->fabric, 0, &address, &before_bytes), MPATH_OK);
    assert_true(before_bytes <= sizeof(before));
    memcpy(before, address, before_bytes);

    mpath_fabric_suspect(f->fabric, 0);
    assert_true(mpath_fabric_can_renew(f->fabric, 0));
    assert_int_equal(mpath_fabric_renew(f->fabric, 0, &first), MPATH_OK);
    assert_int_not_equal(first, 0);
    assert_string_equal(mpath_fabric_rail_name(f->fabric, first), mpath_fabric_rail_name(f->fabric, 0));
    assert_int_equal(mpath_fabric_address(f->fabric, first, &address, &bytes), MPATH_OK);
    assert_true((bytes != before_bytes) || (memcmp(address, before, bytes) != 0));
    assert_int_equal(mpath_fabric_join(f->fabric, 0, a->id, arrive, a), first);
    mpath_fabric_leave_rail(f->fabric, 0, a->id);
    send_chunk(f, b->id, 0); /* the old rail still carries */

    /* The other team finds what the first one has opened; once that is lost, too, there is another. */
    assert_int_equal(mpath_fabric_renew(f->fabric, 0, &second), MPATH_OK);
    assert_int_equal(second, first);
    mpath_fabric_suspect(f->fabric, first);
    assert_int_equal(mpath_fabric_renew(f->fabric, 0, &second), MPATH_OK);
    assert_int_not_equal(second, first);
    mpath_fabric_leave_rail(f->fabric, 0, b->id); /* nobody uses it any more */
    mpath_fabric_suspect(f->fabric, second);
    assert_int_equal(mpath_fabric_renew(f->fabric, first, &third), MPATH_OK);
    assert_true((third != first) && (third != second));
    mpath_fabric_leave(f->fabric, a->id);
    mpath_fabric_leave(f->fabric, b->id);
    free(a);
    free(b);
}

/* Old rails on which no team is left do not use the numbers up, in however short a time they follow each other. */
static void test_renew_unused(void **state)
{
    fixture_t *f = *state;
    int number   = 0, next;

    for (int i = 0; i < 2 * MPATH_FABRIC_RAILS; i++) {
        mpath_fabric_suspect(f->fabric, number);
        assert_int_equal(mpath_fabric_renew(f->fabric, number, &next), MPATH_OK);
        assert_int_not_equal(next, number);
        number = next;
    }
}

#define LAST_CHUNKS 3
#define LAST_BYTES (64u * 1024u)

/* From a rail to a peer of it. All chunks have left when this rail alone is driven. */
static void send_large(fixture_t *f, int rail, int peer, uint64_t team, uint32_t count)
{
    static char data[LAST_CHUNKS][LAST_BYTES];
    mpath_lane_op_t ops[LAST_CHUNKS];
    uint64_t end_ns = mpath_time_ns() + LIMIT_NS;

    for (uint32_t i = 0; i < count; i++) {
        mpath_chunk_t chunk = {.team = team, .flow = i, .bytes = LAST_BYTES};
        mpath_status_t status;

        while ((status = mpath_fabric_send(f->fabric, rail, peer, &chunk, data[i], &ops[i])) == MPATH_NO_RESOURCE) {
            assert_true(mpath_fabric_progress(f->fabric, rail) >= 0);
        }
        while (status == MPATH_INPROGRESS) {
            assert_true(mpath_fabric_progress(f->fabric, rail) >= 0);
            status = mpath_fabric_op_status(f->fabric, rail, &ops[i]);
            assert_true(mpath_time_ns() < end_ns);
        }
        assert_int_equal(status, MPATH_OK);
    }
}

/*
 * A team's last call has ended here: what it has sent is in the kernel's hands. The rail is replaced, and the team ends. The
 * other end, which is still in that call, reads all of it, though UCX writes to this end meanwhile.
 */
static void test_last_bytes(void **state)
{
    fixture_t *f     = *state;
    receiver_t *here = malloc(sizeof(*here)), *there = malloc(sizeof(*there));
    const uint64_t id = 800;
    const void *address;
    size_t bytes;
    int back, next;

    receiver_init(here, f, id);
    receiver_init(there, f, id);
    assert_int_equal(mpath_fabric_join(f->fabric, 0, id, arrive, here), 0);
    assert_int_equal(mpath_fabric_join(f->fabric, 1, id, arrive, there), 1);
    assert_int_equal(mpath_fabric_address(f->fabric, 0, &address, &bytes), MPATH_OK);
    back = mpath_fabric_peer(f->fabric, 1, address, bytes, "rail 0");
    assert_true(back >= 0);
    send_chunk(f, id, 0); /* connects */
    wait_for(there, 1);
    send_large(f, 0, f->peer, id, LAST_CHUNKS);

    mpath_fabric_suspect(f->fabric, 0);
    assert_int_equal(mpath_fabric_renew(f->fabric, 0, &next), MPATH_OK);
    mpath_fabric_leave_rail(f->fabric, 0, id);
    send_large(f, 1, back, id, 1);
    for (uint64_t end_ns = mpath_time_ns() + LIMIT_NS; there->count < 1 + LAST_CHUNKS;) {
        assert_true(mpath_fabric_progress(f->fabric, 1) >= 0);
        assert_true(mpath_time_ns() < end_ns);
    }
    mpath_fabric_leave(f->fabric, id);
    free(here);
    free(there);
}

/* A team that goes over to new rails again and again, the only one but for a third that comes and goes. */
static void *run_renewals(void *argument)
{
    receiver_t *team = argument;
    int number       = mpath_fabric_join(team->f->fabric, 0, team->id, arrive, team), next;

    for (int i = 0; i < RENEWALS; i++) {
        mpath_fabric_suspect(team->f->fabric, number);
        assert_int_equal(mpath_fabric_renew(team->f->fabric, number, &next), MPATH_OK);
        assert_int_equal(mpath_fabric_join_rail(team->f->fabric, next, team->id, arrive, team), MPATH_OK);
        mpath_fabric_leave_rail(team->f->fabric, number, team->id);
        number = next;
    }
    __atomic_store_n(&team->wrong, 1, __ATOMIC_RELEASE); /* it is through */
    return NULL;
}

/* A new team finds an open rail, whatever others do to it meanwhile. */
static void test_join_renewed(void **state)
{
    fixture_t *f      = *state;
    receiver_t *other = malloc(sizeof(*other)), *team = malloc(sizeof(*team));
    const void *address;
    pthread_t thread;
    size_t bytes;

    receiver_init(other, f, 900);
    receiver_init(team, f, 901);
    assert_int_equal(pthread_create(&thread, NULL, run_renewals, other), 0);
    while (!__atomic_load_n(&other->wrong, __ATOMIC_ACQUIRE)) {
        int number = mpath_fabric_join(f->fabric, 0, team->id, arrive, team);

        assert_true(number >= 0);
        assert_int_equal(mpath_fabric_address(f->fabric, number, &address, &bytes), MPATH_OK);
        mpath_fabric_leave(f->fabric, team->id);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    mpath_fabric_leave(f->fabric, other->id);
    free(other);
    free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sorts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leave_releases, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_peers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_peer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_renew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_renew_unused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_last_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_join_renewed, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
