/* SPDX-License-Identifier: BSD-3-Clause */
/* The shm lane between real processes: contents, order of release, full queues, lanes that share one, relays, dead peers. */
#include "lane/segment.h"
#include "lane/shm.h"
#include "unit/child.h"
#include "unit/lane_child.h"
#include "unit/lane_pattern.h"
#include "unit/step_through.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 8
#define MAX_LANES 2

/* The processes of a node and what they tell each other; in shared memory. */
typedef struct node {
    int num_ranks;
    mpath_shm_shape_t shape;
    mpath_segment_address_t queues[MAX_RANKS];
    atomic_int here, there;
} node_t;

/* One process's part. */
typedef struct member {
    mpath_shm_t *shm;
    mpath_shm_port_t *port;
    mpath_lane_t *lanes[MAX_LANES];
} member_t;

static node_t *node_new(int num_ranks, uint32_t depth, uint32_t slot_bytes)
{
    node_t *node = mmap(NULL, sizeof(*node), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(node, MAP_FAILED);
    node->num_ranks = num_ranks;
    node->shape     = (mpath_shm_shape_t){.depth = depth, .slot_bytes = slot_bytes};
    return node;
}

static void node_free(node_t *node)
{
    munmap(node, sizeof(*node));
}

/* The same in a child and in the test itself. */
static void member_make_port(node_t *node, int rank, member_t *member)
{
    CHECK(mpath_shm_create(&member->shm) == MPATH_OK);
    CHECK(mpath_shm_port_create(member->shm, MPATH_SHM_LAST, &node->shape, &member->port) == MPATH_OK);
    node->queues[rank] = *mpath_shm_port_address(member->port);
}

static void member_open(node_t *node, int rank, member_t *member, int number, mpath_lane_arrive_t arrive,
                        void *argument)
{
    CHECK(mpath_shm_open(member->port, 100 + (uint64_t)number, node->queues, node->num_ranks, rank,
                         &member->lanes[number]) == MPATH_OK);
    mpath_lane_set_arrive(member->lanes[number], arrive, argument);
}

static void member_close(member_t *member)
{
    for (int number = 0; number < MAX_LANES; number++) {
        if (member->lanes[number] != NULL) {
            member->lanes[number]->ops->destroy(member->lanes[number]);
            member->lanes[number] = NULL;
        }
    }
    mpath_shm_port_put(member->port);
    mpath_shm_destroy(member->shm);
}

/* Waits until as many have come as there are ranks. */
static void meet(const node_t *node, atomic_int *count)
{
    atomic_fetch_add(count, 1);
    while (atomic_load(count) < node->num_ranks) {
        sched_yield();
    }
}

/* In a child: with lanes of all ranks. */
static void child_join(node_t *node, int rank, member_t *member, int lanes, mpath_lane_arrive_t arrive, void *argument)
{
    member_make_port(node, rank, member);
    meet(node, &node->here);
    for (int number = 0; number < lanes; number++) {
        member_open(node, rank, member, number, arrive, argument);
    }
    meet(node, &node->there);
}

/* All ranks in this process, a lane each. */
static void join_all(node_t *node, member_t *members, mpath_lane_arrive_t arrive, void *argument)
{
    for (int rank = 0; rank < node->num_ranks; rank++) {
        member_make_port(node, rank, &members[rank]);
    }
    for (int rank = 0; rank < node->num_ranks; rank++) {
        member_open(node, rank, &members[rank], 0, arrive, argument);
    }
}

static void close_all(node_t *node, member_t *members)
{
    for (int rank = 0; rank < node->num_ranks; rank++) {
        member_close(&members[rank]);
    }
    node_free(node);
}

typedef void (*rank_main_t)(node_t *node, int rank);

/* Runs rank_main in num_ranks processes; all must end well. */
static void run_ranks(node_t *node, rank_main_t rank_main)
{
    pid_t children[MAX_RANKS];

    for (int rank = 0; rank < node->num_ranks; rank++) {
        children[rank] = child_fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) {
            lane_child_start();
            rank_main(node, rank);
            _exit(0);
        }
    }
    assert_int_equal(child_wait_all(children, node->num_ranks, -1), 0);
    node_free(node);
}

/* -- all to all, random sizes, kept arrivals ended in random order -- */

#define FLOOD_CHUNKS 10000
#define FLOOD_KEPT 3

typedef struct flood {
    node_t *node;
    mpath_lane_t *lane;
    int rank;
    uint32_t random;
    uint64_t received[MAX_RANKS]; /* from each peer, in any order, each once */
    unsigned char seen[MAX_RANKS][FLOOD_CHUNKS];
    mpath_arrival_t kept[FLOOD_KEPT];
    int num_kept;
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
    CHECK(arrival->chunk.offset < FLOOD_CHUNKS);
    CHECK(flood->seen[arrival->peer][arrival->chunk.offset]++ == 0);
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

static void flood_run(flood_t *flood, uint64_t id)
{
    uint64_t sent[MAX_RANKS] = {0}, open;
    mpath_lane_t *lane       = flood->lane;
    const node_t *node       = flood->node;
    unsigned char data[5000];
    mpath_status_t status;
    mpath_chunk_t chunk;
    int peer, events;

    do {
        open   = 0;
        events = 0;
        for (peer = 0; peer < node->num_ranks; peer++) {
            if (peer == flood->rank) {
                continue;
            }
            if (sent[peer] < FLOOD_CHUNKS) {
                chunk = (mpath_chunk_t){
                    .team = id, .flow = (uint32_t)flood->rank, .offset = sent[peer], .hop = (uint32_t)peer};
                chunk.bytes = (uint32_t)(sent[peer] * 7919 + (uint64_t)flood->rank + id) % (node->shape.slot_bytes + 1);
                lane_pattern_fill(data, &chunk);
                status = lane->ops->send(lane, peer, &chunk, data, NULL);
                CHECK((status == MPATH_OK) || (status == MPATH_NO_RESOURCE));
                sent[peer] += (status == MPATH_OK);
                events += (status == MPATH_OK);
            }
            open += (FLOOD_CHUNKS - sent[peer]) + (FLOOD_CHUNKS - flood->received[peer]);
        }
        peer = lane->ops->progress(lane);
        CHECK(peer >= 0);
        if (events + peer == 0) {
            while (flood->num_kept > 0) { /* what is kept must not hold up the last ones */
                flood_end(flood, &flood->kept[--flood->num_kept]);
            }
            sched_yield();
        }
    } while (open > 0);
    while (flood->num_kept > 0) {
        flood_end(flood, &flood->kept[--flood->num_kept]);
    }
    CHECK(lane->ops->progress(lane) == 0);
}

static flood_t *flood_new(node_t *node, int rank)
{
    flood_t *flood = calloc(1, sizeof(*flood));

    CHECK(flood != NULL);
    flood->node   = node;
    flood->rank   = rank;
    flood->random = 17u + (uint32_t)rank;
    return flood;
}

static void flood_rank(node_t *node, int rank)
{
    flood_t *flood  = flood_new(node, rank);
    member_t member = {.shm = NULL};

    child_join(node, rank, &member, 1, flood_arrive, flood);
    flood->lane = member.lanes[0];
    flood_run(flood, 100);
    member_close(&member);
    free(flood);
}

static void test_flood_2(void **state)
{
    (void)state;
    run_ranks(node_new(2, 4, 4096), flood_rank);
}

static void test_flood_5(void **state)
{
    (void)state;
    run_ranks(node_new(5, 7, 1000), flood_rank);
}

static void *flood_thread(void *argument)
{
    flood_t *flood = argument;

    flood_run(flood, 101);
    return NULL;
}

/* Two lanes of each process, each with a thread of its own, over the same queues. */
static void threads_rank(node_t *node, int rank)
{
    flood_t *floods[MAX_LANES] = {flood_new(node, rank), flood_new(node, rank)};
    member_t member            = {.shm = NULL};
    pthread_t thread;

    member_make_port(node, rank, &member);
    meet(node, &node->here);
    for (int number = 0; number < MAX_LANES; number++) {
        member_open(node, rank, &member, number, flood_arrive, floods[number]);
        floods[number]->lane = member.lanes[number];
    }
    meet(node, &node->there);
    CHECK(pthread_create(&thread, NULL, flood_thread, floods[1]) == 0);
    flood_run(floods[0], 100);
    CHECK(pthread_join(thread, NULL) == 0);
    member_close(&member);
    free(floods[0]);
    free(floods[1]);
}

static void test_threads(void **state)
{
    (void)state;
    run_ranks(node_new(3, 16, 1000), threads_rank);
}

/* -- one process, both ends: what happens step by step -- */

typedef struct inbox {
    mpath_arrival_t arrivals[MPATH_SHM_DEPTH_MAX];
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
    member_t members[2] = {{.shm = NULL}};
    node_t *node        = node_new(2, 4, 4096);
    inbox_t inbox       = {.count = 0};
    mpath_lane_t *from, *to;
    uint64_t sum = 0;

    (void)state;
    join_all(node, members, inbox_arrive, &inbox);
    from = members[0].lanes[0];
    to   = members[1].lanes[0];
    assert_int_equal(to->ops->progress(to), 0);
    for (int i = 0; i < 4; i++) {
        send_number(from, 1, (uint64_t)i, MPATH_OK);
    }
    send_number(from, 1, 4, MPATH_NO_RESOURCE);
    assert_int_equal(to->ops->progress(to), 4);
    assert_int_equal(to->ops->progress(to), 0);
    send_number(from, 1, 4, MPATH_NO_RESOURCE); /* seen, but not ended */

    /* One that is held keeps nothing but its slot from the others. */
    for (int i = 4; i < 40; i++) {
        to->ops->release(to, &inbox.arrivals[3]);
        send_number(from, 1, (uint64_t)i, MPATH_OK);
        send_number(from, 1, (uint64_t)i, MPATH_NO_RESOURCE);
        inbox.count = 3;
        assert_int_equal(to->ops->progress(to), 1);
        assert_int_equal(inbox.arrivals[3].chunk.offset, i);
        assert_int_equal(*(const uint64_t *)inbox.arrivals[3].data, i);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(*(const uint64_t *)inbox.arrivals[i].data, inbox.arrivals[i].chunk.offset);
        assert_int_equal(inbox.arrivals[i].peer, 0);
        sum += inbox.arrivals[i].chunk.offset;
    }
    assert_true(sum >= 0 + 1 + 2 && sum <= 1 + 2 + 3);
    close_all(node, members); /* with arrivals that are open */
}

/* Two producers and a consumer, of which one stands still between two instructions while the others go on. */
typedef struct looks {
    mpath_lane_t *lanes[3]; /* the last one is the consumer's */
    uint64_t sent[2], received[2], sent_sum[2], received_sum[2];
    int wrong;
} looks_t;

static void looks_arrive(void *argument, const mpath_arrival_t *arrival)
{
    looks_t *looks = argument;

    looks->received[arrival->peer]++;
    looks->received_sum[arrival->peer] += arrival->chunk.offset * arrival->chunk.offset;
    looks->wrong |= memcmp(arrival->data, &arrival->chunk.offset, sizeof(arrival->chunk.offset)) != 0;
    arrival->lane->ops->release(arrival->lane, arrival);
}

static void looks_send(looks_t *looks, int rank)
{
    mpath_lane_t *lane  = looks->lanes[rank];
    mpath_chunk_t chunk = {.offset = looks->sent[rank], .bytes = sizeof(chunk.offset)};

    if (lane->ops->send(lane, 2, &chunk, &chunk.offset, NULL) == MPATH_OK) {
        looks->sent_sum[rank] += chunk.offset * chunk.offset;
        looks->sent[rank]++;
    }
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

/* Whatever is sent meanwhile comes with the next look at the latest, once and whole. */
static void test_looks(void **state)
{
    /* what was there before, who stands still, what the others do meanwhile */
    static void (*const cases[][3])(void *) = {{first_sends, last_looks, second_sends},
                                               {second_sends, last_looks, both_send},
                                               {both_send, first_sends, second_sends_and_last_looks}};
    looks_t looks                           = {.wrong = 0};
    member_t members[3]                     = {{.shm = NULL}};
    node_t *node;

    (void)state;
    if (!CAN_STEP) {
        skip();
    }
    node = node_new(3, 4, 64);
    join_all(node, members, looks_arrive, &looks);
    for (int rank = 0; rank < 3; rank++) {
        looks.lanes[rank] = members[rank].lanes[0];
    }
    for (int i = 0; i < 3; i++) {
        for (unsigned at = 0, within = 1; within; at += STEP_STRIDE) {
            cases[i][0](&looks);
            within = (unsigned)step_through(cases[i][1], cases[i][2], &looks, at);
            last_looks(&looks);
            assert_int_equal(looks.wrong, 0);
            assert_int_equal(looks.received[0], looks.sent[0]);
            assert_int_equal(looks.received[1], looks.sent[1]);
            assert_int_equal(looks.received_sum[0], looks.sent_sum[0]);
            assert_int_equal(looks.received_sum[1], looks.sent_sum[1]);
        }
    }
    close_all(node, members);
}

/* A chunk in one slot is not kept waiting by others in slots that are filled again and again. */
static void test_everybody_has_a_turn(void **state)
{
    member_t members[3] = {{.shm = NULL}};
    node_t *node        = node_new(3, MPATH_SHM_DEPTH_MAX, 64);
    mpath_lane_t *to;
    int from_last = 0;

    (void)state;
    join_all(node, members, inbox_arrive, NULL);
    to = members[0].lanes[0];
    for (int i = 1; i < MPATH_SHM_DEPTH_MAX; i++) {
        send_number(members[1].lanes[0], 0, 0, MPATH_OK);
    }
    send_number(members[2].lanes[0], 0, 0, MPATH_OK); /* in the last slot, then */
    for (int round = 0; round < 3; round++) {
        inbox_t inbox = {.count = 0};

        mpath_lane_set_arrive(to, inbox_arrive, &inbox);
        assert_true(to->ops->progress(to) > 0);
        for (int i = 0; i < inbox.count; i++) {
            from_last += inbox.arrivals[i].peer == 2;
            to->ops->release(to, &inbox.arrivals[i]);
            send_number(members[1].lanes[0], 0, 0, MPATH_OK);
        }
    }
    assert_int_equal(from_last, 1);
    close_all(node, members);
}

static void test_commit_in_any_order(void **state)
{
    static const uint64_t order[] = {2, 0, 1};
    mpath_chunk_t chunk           = {.bytes = 8};
    member_t members[3]           = {{.shm = NULL}};
    node_t *node                  = node_new(3, 4, 4096);
    inbox_t inbox                 = {.count = 0};
    mpath_lane_t *from, *to;
    void *slots[3];

    (void)state;
    join_all(node, members, inbox_arrive, &inbox);
    from = members[2].lanes[0];
    to   = members[0].lanes[0];
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(from->ops->reserve(from, 0, 4096, &slots[i]), MPATH_OK);
        memcpy(slots[i], &i, sizeof(i));
    }
    for (int i = 0; i < 3; i++) {
        chunk.offset = order[i];
        from->ops->commit(from, 0, slots[order[i]], &chunk);
        assert_int_equal(to->ops->progress(to), 1);
        assert_int_equal(to->ops->progress(to), 0);
        assert_int_equal(inbox.arrivals[i].chunk.offset, order[i]);
        assert_int_equal(*(const uint64_t *)inbox.arrivals[i].data, order[i]);
        assert_int_equal(inbox.arrivals[i].peer, 2);
    }
    close_all(node, members);
}

/* -- lanes that share a queue -- */

typedef struct pair {
    node_t *node;
    member_t members[2];
    inbox_t inboxes[MAX_LANES]; /* of process 1 */
} pair_t;

static void pair_join(pair_t *pair)
{
    memset(pair, 0, sizeof(*pair));
    pair->node = node_new(2, 4, 64);
    join_all(pair->node, pair->members, inbox_arrive, &pair->inboxes[0]);
    member_open(pair->node, 0, &pair->members[0], 1, inbox_arrive, NULL);
    member_open(pair->node, 1, &pair->members[1], 1, inbox_arrive, &pair->inboxes[1]);
}

static void pair_send(pair_t *pair, int number, uint32_t call, mpath_status_t expected)
{
    mpath_chunk_t chunk = {.call = call, .bytes = sizeof(call)};
    mpath_lane_t *lane  = pair->members[0].lanes[number];

    assert_int_equal(lane->ops->send(lane, 1, &chunk, &call, NULL), expected);
}

static int pair_look(pair_t *pair, int number)
{
    mpath_lane_t *lane = pair->members[1].lanes[number];

    pair->inboxes[number].count = 0;
    return lane->ops->progress(lane);
}

/* Who looks gets its own, and keeps those of the others for them: these are no events of its own. */
static void test_lanes_share(void **state)
{
    pair_t pair;

    (void)state;
    pair_join(&pair);
    assert_int_equal(mpath_shm_port_address(pair.members[1].port)->bytes, mpath_shm_queue_bytes(&pair.node->shape));
    pair_send(&pair, 1, 7, MPATH_OK);
    pair_send(&pair, 0, 8, MPATH_OK);
    pair_send(&pair, 1, 9, MPATH_OK);
    assert_int_equal(pair_look(&pair, 0), 1);
    assert_int_equal(pair.inboxes[0].arrivals[0].chunk.call, 8);
    assert_int_equal(pair_look(&pair, 0), 0);
    assert_int_equal(pair_look(&pair, 1), 2);
    assert_int_equal(pair.inboxes[1].arrivals[0].chunk.call + pair.inboxes[1].arrivals[1].chunk.call, 16);
    assert_int_equal(pair_look(&pair, 1), 0);
    close_all(pair.node, pair.members);
}

/* What a lane does not want any more takes no slot from the others: calls that were given up, failed teams, lanes that are gone. */
static void test_dropped(void **state)
{
    pair_t pair;
    mpath_lane_t *lane;

    (void)state;
    pair_join(&pair);
    lane = pair.members[1].lanes[1];
    pair_send(&pair, 1, 5, MPATH_OK);
    pair_send(&pair, 1, 6, MPATH_OK);
    pair_send(&pair, 1, 7, MPATH_OK);
    assert_int_equal(pair_look(&pair, 0), 0); /* all three wait */
    mpath_shm_drop_until(lane, 6);
    pair_send(&pair, 1, 4, MPATH_OK);
    assert_int_equal(pair_look(&pair, 0), 0);
    for (uint32_t call = 8; call < 11; call++) {
        pair_send(&pair, 1, call, MPATH_OK);
    }
    pair_send(&pair, 1, 11, MPATH_NO_RESOURCE); /* calls 7 to 10 are there */
    assert_int_equal(pair_look(&pair, 1), 4);
    mpath_shm_drop_all(lane); /* not those that are in its owner's hands */
    pair_send(&pair, 1, 11, MPATH_NO_RESOURCE);
    for (int i = 0; i < 4; i++) {
        lane->ops->release(lane, &pair.inboxes[1].arrivals[i]);
    }
    for (uint32_t call = 20; call < 40; call++) {
        pair_send(&pair, 1, call, MPATH_OK);
        assert_int_equal(pair_look(&pair, 0), 0);
    }
    mpath_shm_drop_until(lane, 0);
    pair_send(&pair, 1, 3, MPATH_OK);
    assert_int_equal(pair_look(&pair, 1), 1); /* kept for ever */
    pair_send(&pair, 1, 3, MPATH_OK);
    assert_int_equal(pair_look(&pair, 0), 0); /* waits for ever */
    lane->ops->destroy(lane);
    pair.members[1].lanes[1] = NULL;
    for (uint32_t call = 40; call < 60; call++) {
        pair_send(&pair, 1, call, MPATH_OK); /* to who has left */
        for (int i = 0; i < 3; i++) {
            pair_send(&pair, 0, call, MPATH_OK);
        }
        assert_int_equal(pair_look(&pair, 0), 3);
        for (int i = 0; i < 3; i++) {
            pair.members[1].lanes[0]->ops->release(pair.members[1].lanes[0], &pair.inboxes[0].arrivals[i]);
        }
    }
    close_all(pair.node, pair.members);
}

/* A queue is made once for all who can use it, and ends with the last of them. */
static void test_ports(void **state)
{
    const mpath_shm_shape_t small = {.depth = 4, .slot_bytes = 4096}, large = {.depth = 4, .slot_bytes = 65536};
    mpath_shm_port_t *ports[4];
    uint64_t part, before, whole;
    mpath_segment_t segment;
    mpath_segment_address_t address;
    mpath_shm_t *shm;

    (void)state;
    mpath_segment_held(&part, &before);
    assert_int_equal(mpath_shm_create(&shm), MPATH_OK);
    assert_int_equal(mpath_shm_port_find(shm, MPATH_SHM_LAST, 0, &ports[0]), MPATH_DECLINED);
    assert_int_equal(mpath_shm_port_create(shm, MPATH_SHM_LAST, &small, &ports[0]), MPATH_OK);
    assert_int_equal(mpath_shm_port_find(shm, MPATH_SHM_LAST, 4097, &ports[1]), MPATH_DECLINED);
    assert_int_equal(mpath_shm_port_find(shm, MPATH_SHM_RELAY, 0, &ports[1]), MPATH_DECLINED);
    assert_int_equal(mpath_shm_port_create(shm, MPATH_SHM_LAST, &large, &ports[1]), MPATH_OK);
    assert_int_equal(mpath_shm_port_find(shm, MPATH_SHM_LAST, 4096, &ports[2]), MPATH_OK);
    assert_ptr_equal(ports[2], ports[0]);
    assert_int_equal(mpath_shm_port_find(shm, MPATH_SHM_LAST, 4097, &ports[3]), MPATH_OK);
    assert_ptr_equal(ports[3], ports[1]);
    mpath_segment_held(&part, &whole);
    assert_int_equal(whole - before, mpath_shm_queue_bytes(&small) + mpath_shm_queue_bytes(&large));

    mpath_shm_port_put(ports[0]);
    address = *mpath_shm_port_address(ports[2]);
    assert_int_equal(mpath_segment_attach_open(&address, &segment), MPATH_OK);
    mpath_segment_detach(&segment);
    mpath_shm_port_put(ports[2]);
    mpath_log_set_sink(lane_ignore_log);
    assert_int_not_equal(mpath_segment_attach_open(&address, &segment), MPATH_OK);
    mpath_log_set_sink(NULL);
    mpath_shm_port_put(ports[1]);
    mpath_shm_port_put(ports[3]);
    mpath_segment_held(&part, &whole);
    assert_int_equal(whole, before);
    mpath_shm_destroy(shm);
}

static void test_errors(void **state)
{
    mpath_chunk_t chunk = {.bytes = 4097};
    member_t members[2] = {{.shm = NULL}};
    node_t *node        = node_new(2, 4, 4096);
    mpath_lane_t *lane, *second = NULL;
    mpath_segment_t other;
    char data[4097] = {0};
    inbox_t inbox   = {.count = 0};
    uint32_t *shape;

    (void)state;
    join_all(node, members, inbox_arrive, &inbox);
    lane = members[0].lanes[0];
    mpath_log_set_sink(lane_ignore_log);
    assert_int_equal(lane->ops->send(lane, 1, &chunk, data, NULL), MPATH_ERR_PARAM); /* too large */
    chunk.bytes = 1;
    assert_int_equal(lane->ops->send(lane, 0, &chunk, data, NULL), MPATH_ERR_PARAM); /* to itself */
    assert_int_equal(lane->ops->send(lane, 2, &chunk, data, NULL), MPATH_ERR_PARAM);
    assert_int_equal(lane->ops->peer_status(lane, 2), MPATH_ERR_PARAM);
    assert_int_equal(lane->ops->max_chunk(lane), 4096);

    /* What a process tells of is not a queue, or one that cannot be. */
    assert_int_equal(mpath_segment_create_open(mpath_shm_queue_bytes(&node->shape), &other), MPATH_OK);
    assert_int_equal(mpath_segment_address(&other, &node->queues[1]), MPATH_OK);
    assert_int_equal(mpath_shm_open(members[0].port, 9, node->queues, 2, 0, &second), MPATH_ERR_PARAM);
    shape = (uint32_t *)((char *)other.base + 8);
    {
        mpath_segment_t own;

        assert_int_equal(mpath_segment_attach_open(&node->queues[0], &own), MPATH_OK);
        memcpy(other.base, own.base, other.bytes);
        mpath_segment_detach(&own);
    }
    shape[0] = 65;
    assert_int_equal(mpath_shm_open(members[0].port, 9, node->queues, 2, 0, &second), MPATH_ERR_PARAM);
    shape[0] = 4;
    shape[1] = 1 << 20;
    assert_int_equal(mpath_shm_open(members[0].port, 9, node->queues, 2, 0, &second), MPATH_ERR_PARAM);
    shape[1] = 4096;
    assert_int_equal(mpath_shm_open(members[0].port, 9, node->queues, 2, 0, &second), MPATH_OK);
    second->ops->destroy(second);
    mpath_segment_detach(&other);
    second = NULL;
    assert_int_not_equal(mpath_shm_open(members[0].port, 9, node->queues, 2, 0, &second), MPATH_OK); /* it is gone */
    assert_null(second);
    mpath_log_set_sink(NULL);
    close_all(node, members);
}

/* -- relay: 0 -> 1 -> 2, straight from slot to slot; the relay is slower than the source -- */

#define RELAY_CHUNKS 5000

typedef struct relay {
    mpath_arrival_t waiting[8];
    int head, count;
    uint64_t got;
    unsigned char seen[RELAY_CHUNKS];
} relay_t;

static void relay_arrive(void *argument, const mpath_arrival_t *arrival)
{
    relay_t *relay = argument;

    CHECK(relay->count < 4); /* no more than the queue has slots */
    relay->waiting[(relay->head + relay->count++) % 8] = *arrival;
}

static void relay_sink_arrive(void *argument, const mpath_arrival_t *arrival)
{
    relay_t *relay = argument;

    CHECK((arrival->chunk.offset < RELAY_CHUNKS) && (relay->seen[arrival->chunk.offset]++ == 0));
    CHECK(arrival->peer == 1);
    relay->got++;
    CHECK(lane_pattern_check(arrival->data, &arrival->chunk));
    arrival->lane->ops->release(arrival->lane, arrival);
}

static void relay_source(mpath_lane_t *lane)
{
    mpath_chunk_t chunk = {.team = 100};
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
    static relay_t relay;
    member_t member = {.shm = NULL};
    mpath_lane_t *lane;

    child_join(node, rank, &member, 1, (rank == 1) ? relay_arrive : relay_sink_arrive, &relay);
    lane = member.lanes[0];
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
    member_close(&member);
}

static void test_relay(void **state)
{
    (void)state;
    run_ranks(node_new(3, 4, 2048), relay_rank);
}

/* -- a peer that dies, before and after it is reaped, and the slots that it has taken -- */

/* Takes all slots of process 0 but the last, fills one, and waits for its end. */
static void dies(node_t *node, int to_parent)
{
    mpath_chunk_t chunk = {.bytes = 1};
    member_t member     = {.shm = NULL};
    void *slots[4];
    char byte = 0;

    member_make_port(node, 1, &member);
    member_open(node, 1, &member, 0, inbox_arrive, NULL);
    for (int i = 0; i < 3; i++) {
        CHECK(member.lanes[0]->ops->reserve(member.lanes[0], 0, 1, &slots[i]) == MPATH_OK);
    }
    member.lanes[0]->ops->commit(member.lanes[0], 0, slots[0], &chunk);
    CHECK(write(to_parent, &byte, 1) == 1);
    pause();
    _exit(1);
}

static void test_dead_peer(void **state)
{
    member_t members[3] = {{.shm = NULL}};
    node_t *node        = node_new(3, 4, 4096);
    inbox_t inbox       = {.count = 0};
    mpath_lane_t *lane, *third;
    int from_child[2];
    siginfo_t info;
    pid_t child;
    char byte;

    (void)state;
    member_make_port(node, 0, &members[0]);
    member_make_port(node, 2, &members[2]);
    assert_int_equal(pipe(from_child), 0);
    child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        lane_child_start();
        dies(node, from_child[1]);
    }
    assert_int_equal(read(from_child[0], &byte, 1), 1);
    member_open(node, 0, &members[0], 0, inbox_arrive, &inbox);
    member_open(node, 2, &members[2], 0, inbox_arrive, NULL);
    lane  = members[0].lanes[0];
    third = members[2].lanes[0];
    assert_int_equal(lane->ops->peer_status(lane, 1), MPATH_OK);
    assert_int_equal(lane->ops->progress(lane), 1);
    send_number(third, 0, 1, MPATH_OK);
    send_number(third, 0, 2, MPATH_NO_RESOURCE);
    for (int i = 0; i < 200000; i++) {
        assert_true(lane->ops->progress(lane) >= 0);
    }
    assert_int_equal(inbox.count, 2);
    send_number(third, 0, 2, MPATH_NO_RESOURCE); /* it is alive */

    kill(child, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(lane->ops->peer_status(lane, 1), MPATH_ERR_UNREACHABLE); /* a zombie */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(lane->ops->peer_status(lane, 1), MPATH_ERR_UNREACHABLE);
    assert_int_equal(lane->ops->peer_status(lane, 0), MPATH_OK);
    assert_int_equal(lane->ops->peer_status(lane, 2), MPATH_OK);
    for (int i = 0; i < 200000; i++) {
        assert_true(lane->ops->progress(lane) >= 0);
    }
    send_number(third, 0, 2, MPATH_OK);
    send_number(third, 0, 3, MPATH_OK);
    send_number(third, 0, 4, MPATH_NO_RESOURCE); /* what had come of it, and what came before, is still held */
    assert_int_equal(*(const uint64_t *)inbox.arrivals[1].data, 1);
    member_close(&members[0]);
    member_close(&members[2]);
    close(from_child[0]);
    close(from_child[1]);
    node_free(node);
}

/* -- shapes -- */

static void test_shapes(void **state)
{
    static const int ranks[]       = {1, 2, 3, 8, 64, 200, 700};
    static const uint64_t memory[] = {1 << 14, 1 << 18, 1 << 20, 3 << 20, 64 << 20, (uint64_t)3 << 30};
    static const uint64_t chunks[] = {4096, 65536, 131072, 1 << 20};
    mpath_shm_shape_t shape;

    (void)state;
    for (unsigned i = 0; i < 7 * 6 * 4; i++) {
        uint64_t most = memory[i / 7 % 6];

        mpath_shm_shape_choose(ranks[i % 7], most, chunks[i / 42], &shape);
        assert_in_range(shape.depth, 4, 64);
        assert_in_range(shape.slot_bytes, 4096, chunks[i / 42]);
        assert_in_range(mpath_shm_queue_bytes(&shape), mpath_shm_least_bytes(),
                        (most > mpath_shm_least_bytes()) ? most : mpath_shm_least_bytes());
    }
    mpath_shm_shape_choose(8, 64 << 20, 131072, &shape);
    assert_int_equal(shape.slot_bytes, 131072);
    assert_int_equal(shape.depth, 56);
    mpath_shm_shape_choose(64, 512 << 10, 131072, &shape); /* a little memory: fewer, larger slots */
    assert_in_range(shape.slot_bytes, 32768, 131072);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_looks),
        cmocka_unit_test(test_everybody_has_a_turn),
        cmocka_unit_test(test_commit_in_any_order),
        cmocka_unit_test(test_lanes_share),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_flood_2),
        cmocka_unit_test(test_flood_5),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_relay),
        cmocka_unit_test(test_dead_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
