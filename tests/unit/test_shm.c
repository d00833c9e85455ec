/* SPDX-License-Identifier: BSD-3-Clause */
/* The shm lane between real processes: contents, order of release, full rings, relays, dead peers. */
#include "lane/segment.h"
#include "lane/shm.h"
#include "unit/lane_child.h"
#include "unit/lane_pattern.h"
#include "unit/step_through.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 8

typedef struct node {
    mpath_segment_t segment;
    mpath_shm_shape_t shape;
} node_t;

static void node_open(node_t *node, int num_ranks, uint32_t depth, uint32_t slot_bytes)
{
    node->shape.num_ranks  = num_ranks;
    node->shape.depth      = depth;
    node->shape.slot_bytes = slot_bytes;
    assert_int_equal(mpath_segment_create(mpath_shm_region_bytes(&node->shape), &node->segment), MPATH_OK);
    mpath_segment_unlink(&node->segment);
}

static mpath_lane_t *lane_open(node_t *node, int rank, mpath_lane_arrive_t arrive, void *argument)
{
    mpath_lane_t *lane;

    if (mpath_shm_open(node->segment.base, &node->shape, rank, &lane) != MPATH_OK) {
        abort();
    }
    mpath_lane_set_arrive(lane, arrive, argument);
    return lane;
}

typedef void (*rank_main_t)(node_t *node, int rank);

/* Runs rank_main in num_ranks processes; all must end well. */
static void run_ranks(node_t *node, rank_main_t rank_main)
{
    pid_t children[MAX_RANKS];
    int rank, status;

    fflush(NULL);
    for (rank = 0; rank < node->shape.num_ranks; rank++) {
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) {
            lane_child_start();
            rank_main(node, rank);
            _exit(0);
        }
    }
    for (rank = 0; rank < node->shape.num_ranks; rank++) {
        assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
        assert_int_equal(status, 0);
    }
    mpath_segment_detach(&node->segment);
}

/* -- all to all, random sizes, kept arrivals ended in random order -- */

#define FLOOD_CHUNKS 10000
#define FLOOD_KEPT 3

typedef struct flood {
    uint32_t random;
    uint64_t received[MAX_RANKS]; /* next offset expected of each peer: rings keep the order */
    mpath_arrival_t kept[FLOOD_KEPT];
    int num_kept;
    mpath_lane_t *lane;
} flood_t;

static void flood_end(flood_t *flood, const mpath_arrival_t *arrival)
{
    unsigned char to[5000];
    mpath_lane_op_t op;

    if (lane_random(&flood->random) % 2) {
        CHECK(flood->lane->ops->take(flood->lane, arrival, to, &op) == MPATH_OK);
        CHECK(op.status == MPATH_OK);
        CHECK(lane_pattern_check(to, &arrival->chunk));
    } else {
        CHECK(lane_pattern_check(arrival->data, &arrival->chunk));
        flood->lane->ops->release(flood->lane, arrival);
    }
}

static void flood_arrive(void *argument, const mpath_arrival_t *arrival)
{
    flood_t *flood = argument;
    int victim;

    CHECK((int)arrival->chunk.flow == arrival->peer);
    CHECK(arrival->chunk.offset == flood->received[arrival->peer]);
    flood->received[arrival->peer]++;
    if (flood->num_kept < FLOOD_KEPT) {
        flood->kept[flood->num_kept++] = *arrival;
        return;
    }
    victim = (int)(lane_random(&flood->random) % (FLOOD_KEPT + 1));
    if (victim == FLOOD_KEPT) {
        flood_end(flood, arrival);
    } else {
        flood_end(flood, &flood->kept[victim]);
        flood->kept[victim] = *arrival;
    }
}

static void flood_rank(node_t *node, int rank)
{
    flood_t flood            = {.random = 17u + (uint32_t)rank};
    mpath_lane_t *lane       = lane_open(node, rank, flood_arrive, &flood);
    uint64_t sent[MAX_RANKS] = {0}, open;
    unsigned char data[5000];
    mpath_status_t status;
    mpath_chunk_t chunk;
    int peer, events;

    flood.lane = lane;
    do {
        open   = 0;
        events = 0;
        for (peer = 0; peer < node->shape.num_ranks; peer++) {
            if (peer == rank) {
                continue;
            }
            if (sent[peer] < FLOOD_CHUNKS) {
                chunk = (mpath_chunk_t){.team = 9, .flow = (uint32_t)rank, .offset = sent[peer], .hop = (uint32_t)peer};
                chunk.bytes = (uint32_t)(sent[peer] * 7919 + (uint64_t)rank) % (node->shape.slot_bytes + 1);
                lane_pattern_fill(data, &chunk);
                status = lane->ops->send(lane, peer, &chunk, data, NULL);
                CHECK((status == MPATH_OK) || (status == MPATH_NO_RESOURCE));
                sent[peer] += (status == MPATH_OK);
                events += (status == MPATH_OK);
            }
            open += (FLOOD_CHUNKS - sent[peer]) + (FLOOD_CHUNKS - flood.received[peer]);
        }
        peer = lane->ops->progress(lane);
        CHECK(peer >= 0);
        if (events + peer == 0) {
            while (flood.num_kept > 0) { /* what is kept must not hold up the last ones */
                flood_end(&flood, &flood.kept[--flood.num_kept]);
            }
            sched_yield();
        }
    } while (open > 0);
    while (flood.num_kept > 0) {
        flood_end(&flood, &flood.kept[--flood.num_kept]);
    }
    CHECK(lane->ops->progress(lane) == 0);
    lane->ops->destroy(lane);
}

static void test_flood_2(void **state)
{
    node_t node;

    (void)state;
    node_open(&node, 2, 4, 4096);
    run_ranks(&node, flood_rank);
}

static void test_flood_5(void **state)
{
    node_t node;

    (void)state;
    node_open(&node, 5, 2, 1000);
    run_ranks(&node, flood_rank);
}

/* -- one process, both ends: what happens step by step -- */

typedef struct inbox {
    mpath_arrival_t arrivals[64];
    int count;
} inbox_t;

static void inbox_arrive(void *argument, const mpath_arrival_t *arrival)
{
    inbox_t *inbox = argument;

    inbox->arrivals[inbox->count++] = *arrival;
}

static void send_number(mpath_lane_t *lane, int peer, uint64_t number, mpath_status_t expected)
{
    mpath_chunk_t chunk = {.offset = number, .bytes = sizeof(number)};

    assert_int_equal(lane->ops->send(lane, peer, &chunk, &number, NULL), expected);
}

static void test_back_pressure(void **state)
{
    inbox_t inbox = {.count = 0};
    mpath_lane_t *from, *to;
    node_t node;
    int i;

    (void)state;
    node_open(&node, 2, 4, 4096);
    from = lane_open(&node, 0, inbox_arrive, NULL);
    to   = lane_open(&node, 1, inbox_arrive, &inbox);
    assert_int_equal(to->ops->progress(to), 0);
    for (i = 0; i < 4; i++) {
        send_number(from, 1, (uint64_t)i, MPATH_OK);
    }
    send_number(from, 1, 4, MPATH_NO_RESOURCE);
    assert_int_equal(to->ops->progress(to), 4);
    assert_int_equal(to->ops->progress(to), 0);
    send_number(from, 1, 4, MPATH_NO_RESOURCE); /* seen, but not ended */

    /* Freed in the wrong order: the producer waits for the slot that is next, then gets all of them. */
    to->ops->release(to, &inbox.arrivals[2]);
    to->ops->release(to, &inbox.arrivals[1]);
    send_number(from, 1, 4, MPATH_NO_RESOURCE);
    to->ops->release(to, &inbox.arrivals[0]);
    for (i = 4; i < 7; i++) {
        send_number(from, 1, (uint64_t)i, MPATH_OK);
    }
    send_number(from, 1, 7, MPATH_NO_RESOURCE);
    assert_int_equal(*(const uint64_t *)inbox.arrivals[3].data, 3); /* the open one was not overwritten */
    assert_int_equal(to->ops->progress(to), 3);
    to->ops->release(to, &inbox.arrivals[3]);
    for (i = 0; i < 7; i++) {
        assert_int_equal(inbox.arrivals[i].chunk.offset, i);
        assert_int_equal(inbox.arrivals[i].peer, 0);
    }
    from->ops->destroy(from);
    to->ops->destroy(to);
    mpath_segment_detach(&node.segment);
}

/* Two producers and a consumer, of which one stands still between two instructions while the others go on. */
typedef struct looks {
    mpath_lane_t *lanes[3]; /* the last one is the consumer's */
    uint64_t sent[2], received[2];
    int wrong;
} looks_t;

static void looks_arrive(void *argument, const mpath_arrival_t *arrival)
{
    looks_t *looks = argument;

    looks->wrong |= (arrival->chunk.offset != looks->received[arrival->peer]++) ||
                    (memcmp(arrival->data, &arrival->chunk.offset, sizeof(arrival->chunk.offset)) != 0);
    arrival->lane->ops->release(arrival->lane, arrival);
}

static void looks_send(looks_t *looks, int rank)
{
    mpath_lane_t *lane  = looks->lanes[rank];
    mpath_chunk_t chunk = {.offset = looks->sent[rank], .bytes = sizeof(chunk.offset)};

    looks->sent[rank] += lane->ops->send(lane, 2, &chunk, &chunk.offset, NULL) == MPATH_OK;
}

static void first_sends(void *argument)
{
    looks_send(argument, 0);
}

static void last_looks(void *argument)
{
    looks_t *looks = argument;

    looks->wrong |= looks->lanes[2]->ops->progress(looks->lanes[2]) < 0;
}

static void second_sends(void *argument)
{
    looks_send(argument, 1);
}

static void both_send(void *argument)
{
    first_sends(argument);
    second_sends(argument);
}

static void second_sends_and_last_looks(void *argument)
{
    second_sends(argument);
    last_looks(argument);
}

/* Whatever is sent meanwhile comes with the next look at the latest, in order and whole. */
static void test_looks(void **state)
{
    /* what was there before, who stands still, what the others do meanwhile */
    static void (*const cases[][3])(void *) = {{first_sends, last_looks, second_sends},
                                               {second_sends, last_looks, both_send},
                                               {both_send, first_sends, second_sends_and_last_looks}};
    looks_t looks                           = {.wrong = 0};
    node_t node;

    (void)state;
    if (!CAN_STEP) {
        skip();
    }
    node_open(&node, 3, 2, 64);
    for (int rank = 0; rank < 3; rank++) {
        looks.lanes[rank] = lane_open(&node, rank, looks_arrive, &looks);
    }
    for (int i = 0; i < 3; i++) {
        for (unsigned at = 0, within = 1; within; at += STEP_STRIDE) {
            cases[i][0](&looks);
            within = (unsigned)step_through(cases[i][1], cases[i][2], &looks, at);
            last_looks(&looks);
            assert_int_equal(looks.wrong, 0);
            assert_int_equal(looks.received[0], looks.sent[0]);
            assert_int_equal(looks.received[1], looks.sent[1]);
        }
    }
    for (int rank = 0; rank < 3; rank++) {
        looks.lanes[rank]->ops->destroy(looks.lanes[rank]);
    }
    mpath_segment_detach(&node.segment);
}

/* Rings that are full again and again do not keep the others waiting. */
static void test_everybody_has_a_turn(void **state)
{
    mpath_lane_t *lanes[MAX_RANKS];
    int from_last = 0, last;
    node_t node;

    (void)state;
    node_open(&node, MAX_RANKS, 8, 4096);
    last = MAX_RANKS - 1;
    for (int rank = 0; rank < MAX_RANKS; rank++) {
        lanes[rank] = lane_open(&node, rank, inbox_arrive, NULL);
    }
    for (int round = 0; (round < MAX_RANKS) && (from_last == 0); round++) {
        inbox_t inbox = {.count = 0};

        mpath_lane_set_arrive(lanes[0], inbox_arrive, &inbox);
        for (int rank = 1; rank < MAX_RANKS; rank++) {
            uint64_t number     = 0;
            mpath_chunk_t chunk = {.bytes = sizeof(number)};

            while (lanes[rank]->ops->send(lanes[rank], 0, &chunk, &number, NULL) == MPATH_OK) {
            }
        }
        assert_true(lanes[0]->ops->progress(lanes[0]) > 0);
        for (int i = 0; i < inbox.count; i++) {
            from_last += inbox.arrivals[i].peer == last;
            lanes[0]->ops->release(lanes[0], &inbox.arrivals[i]);
        }
    }
    assert_true(from_last > 0);
    for (int rank = 0; rank < MAX_RANKS; rank++) {
        lanes[rank]->ops->destroy(lanes[rank]);
    }
    mpath_segment_detach(&node.segment);
}

static void test_commit_in_any_order(void **state)
{
    mpath_chunk_t chunk = {.bytes = 8};
    inbox_t inbox       = {.count = 0};
    mpath_lane_t *from, *to;
    void *slots[3];
    node_t node;
    uint64_t i;

    (void)state;
    node_open(&node, 3, 4, 4096);
    from = lane_open(&node, 2, inbox_arrive, NULL);
    to   = lane_open(&node, 0, inbox_arrive, &inbox);
    for (i = 0; i < 3; i++) {
        assert_int_equal(from->ops->reserve(from, 0, 4096, &slots[i]), MPATH_OK);
        memcpy(slots[i], &i, sizeof(i));
    }
    chunk.offset = 2;
    from->ops->commit(from, 0, slots[2], &chunk);
    assert_int_equal(to->ops->progress(to), 0);
    chunk.offset = 0;
    from->ops->commit(from, 0, slots[0], &chunk);
    assert_int_equal(to->ops->progress(to), 1);
    assert_int_equal(to->ops->progress(to), 0);
    chunk.offset = 1;
    from->ops->commit(from, 0, slots[1], &chunk);
    assert_int_equal(to->ops->progress(to), 2);
    for (i = 0; i < 3; i++) {
        assert_int_equal(inbox.arrivals[i].chunk.offset, i);
        assert_int_equal(*(const uint64_t *)inbox.arrivals[i].data, i);
        assert_int_equal(inbox.arrivals[i].peer, 2);
    }
    from->ops->destroy(from);
    to->ops->destroy(to);
    mpath_segment_detach(&node.segment);
}

static void test_errors(void **state)
{
    mpath_shm_shape_t other;
    mpath_chunk_t chunk = {.bytes = 4097};
    mpath_lane_t *lane, *second = NULL;
    char data[4097] = {0};
    node_t node;

    (void)state;
    node_open(&node, 2, 4, 4096);
    lane = lane_open(&node, 0, inbox_arrive, NULL);
    mpath_log_set_sink(lane_ignore_log);
    assert_int_equal(lane->ops->send(lane, 1, &chunk, data, NULL), MPATH_ERR_PARAM); /* too large */
    chunk.bytes = 1;
    assert_int_equal(lane->ops->send(lane, 0, &chunk, data, NULL), MPATH_ERR_PARAM); /* to itself */
    assert_int_equal(lane->ops->send(lane, 2, &chunk, data, NULL), MPATH_ERR_PARAM);
    assert_int_equal(lane->ops->peer_status(lane, 2), MPATH_ERR_PARAM);
    other       = node.shape;
    other.depth = 2;
    assert_int_equal(mpath_shm_open(node.segment.base, &other, 1, &second), MPATH_ERR_PARAM);
    other.depth = 3;
    assert_int_equal(mpath_shm_open(node.segment.base, &other, 1, &second), MPATH_ERR_PARAM);
    assert_int_equal(mpath_shm_open(node.segment.base, &node.shape, 2, &second), MPATH_ERR_PARAM);
    assert_null(second);
    mpath_log_set_sink(NULL);
    assert_int_equal(lane->ops->max_chunk(lane), 4096);
    lane->ops->destroy(lane);
    mpath_segment_detach(&node.segment);
}

/* -- relay: 0 -> 1 -> 2, straight from slot to slot; the relay is slower than the source -- */

#define RELAY_CHUNKS 5000

typedef struct relay {
    mpath_arrival_t waiting[8];
    int head, count;
    uint64_t got;
} relay_t;

static void relay_arrive(void *argument, const mpath_arrival_t *arrival)
{
    relay_t *relay = argument;

    CHECK(relay->count < 4); /* no more than the ring has slots */
    relay->waiting[(relay->head + relay->count++) % 8] = *arrival;
}

static void relay_sink_arrive(void *argument, const mpath_arrival_t *arrival)
{
    relay_t *relay = argument;

    CHECK(arrival->chunk.offset == relay->got++);
    CHECK(arrival->peer == 1);
    CHECK(lane_pattern_check(arrival->data, &arrival->chunk));
    arrival->lane->ops->release(arrival->lane, arrival);
}

static void relay_source(mpath_lane_t *lane)
{
    mpath_chunk_t chunk = {.team = 3};
    mpath_status_t status;
    void *slot;

    while (chunk.offset < RELAY_CHUNKS) {
        chunk.bytes = (uint32_t)(chunk.offset % 2048);
        status      = lane->ops->reserve(lane, 1, chunk.bytes, &slot);
        if (status == MPATH_NO_RESOURCE) {
            sched_yield();
            continue;
        }
        CHECK(status == MPATH_OK);
        lane_pattern_fill(slot, &chunk);
        lane->ops->commit(lane, 1, slot, &chunk);
        chunk.offset++;
    }
}

static void relay_forward(mpath_lane_t *lane, relay_t *relay)
{
    uint64_t forwarded = 0;
    mpath_arrival_t *arrival;
    mpath_lane_op_t op;
    void *slot;

    while (forwarded < RELAY_CHUNKS) {
        CHECK(lane->ops->progress(lane) >= 0);
        arrival = &relay->waiting[relay->head];
        if ((relay->count == 0) || (lane->ops->reserve(lane, 2, arrival->chunk.bytes, &slot) != MPATH_OK)) {
            sched_yield();
            continue;
        }
        CHECK(lane->ops->take(lane, arrival, slot, &op) == MPATH_OK);
        lane->ops->commit(lane, 2, slot, &arrival->chunk);
        relay->head = (relay->head + 1) % 8;
        relay->count--;
        forwarded++;
    }
}

static void relay_rank(node_t *node, int rank)
{
    relay_t relay      = {.count = 0};
    mpath_lane_t *lane = lane_open(node, rank, (rank == 1) ? relay_arrive : relay_sink_arrive, &relay);

    if (rank == 0) {
        relay_source(lane);
    } else if (rank == 1) {
        relay_forward(lane, &relay);
    } else {
        while (relay.got < RELAY_CHUNKS) {
            if (lane->ops->progress(lane) == 0) {
                sched_yield();
            }
        }
    }
    lane->ops->destroy(lane);
}

static void test_relay(void **state)
{
    node_t node;

    (void)state;
    node_open(&node, 3, 4, 2048);
    run_ranks(&node, relay_rank);
}

/* -- a peer that dies, before and after it is reaped -- */

static void test_dead_peer(void **state)
{
    mpath_lane_t *lane;
    siginfo_t info;
    node_t node;
    pid_t child;
    int to_child[2], from_child[2];
    char byte = 0;

    (void)state;
    node_open(&node, 3, 2, 4096);
    lane = lane_open(&node, 0, inbox_arrive, NULL);
    assert_int_equal(pipe(to_child), 0);
    assert_int_equal(pipe(from_child), 0);
    assert_int_equal(lane->ops->peer_status(lane, 1), MPATH_OK); /* not there yet */
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        lane_child_start();
        lane_open(&node, 1, inbox_arrive, NULL);
        CHECK(write(from_child[1], &byte, 1) == 1);
        CHECK(read(to_child[0], &byte, 1) == 1); /* for ever */
        _exit(1);
    }
    assert_int_equal(read(from_child[0], &byte, 1), 1);
    assert_int_equal(lane->ops->peer_status(lane, 1), MPATH_OK);
    kill(child, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(lane->ops->peer_status(lane, 1), MPATH_ERR_UNREACHABLE); /* a zombie */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(lane->ops->peer_status(lane, 1), MPATH_ERR_UNREACHABLE);
    assert_int_equal(lane->ops->peer_status(lane, 0), MPATH_OK);
    assert_int_equal(lane->ops->peer_status(lane, 2), MPATH_OK);
    lane->ops->destroy(lane);
    mpath_segment_detach(&node.segment);
}

/* -- shapes -- */

static void test_shapes(void **state)
{
    static const int ranks[]       = {1, 2, 3, 8, 64, 200, 700};
    static const uint64_t memory[] = {1 << 20, 3 << 20, 64 << 20, (uint64_t)3 << 30};
    static const uint64_t chunks[] = {4096, 65536, 131072, 1 << 20};
    mpath_shm_shape_t shape;
    size_t share;
    unsigned i;

    (void)state;
    mpath_log_set_sink(lane_ignore_log);
    for (i = 0; i < 7 * 4 * 4; i++) {
        mpath_shm_shape_choose(ranks[i % 7], memory[i / 7 % 4], chunks[i / 28], &shape);
        assert_int_equal(shape.num_ranks, ranks[i % 7]);
        assert_true((shape.depth >= 2) && ((shape.depth & (shape.depth - 1)) == 0));
        assert_in_range(shape.slot_bytes, 4096, chunks[i / 28]);
        share = mpath_shm_region_bytes(&shape) / (size_t)shape.num_ranks;
        if ((shape.depth > 2) || (shape.slot_bytes > 4096)) {
            assert_in_range(share, 1, memory[i / 7 % 4]);
        }
    }
    mpath_log_set_sink(NULL);
    mpath_shm_shape_choose(8, 64 << 20, 131072, &shape);
    assert_int_equal(shape.slot_bytes, 131072);
    mpath_shm_shape_choose(4, 1 << 20, 131072, &shape); /* a little memory: fewer, larger slots */
    assert_in_range(shape.slot_bytes, 32768, 131072);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_looks),
        cmocka_unit_test(test_everybody_has_a_turn),
        cmocka_unit_test(test_commit_in_any_order),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_flood_2),
        cmocka_unit_test(test_flood_5),
        cmocka_unit_test(test_relay),
        cmocka_unit_test(test_dead_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
