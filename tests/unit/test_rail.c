/* SPDX-License-Identifier: BSD-3-Clause */
/* The rail lane between real processes, with UCX on TCP over the loopback device. */
#include "lane/rail.h"
#include "lane/segment.h"
#include "lane/shm.h"
#include "util/log.h"
#include "unit/lane_pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 4
#define MAX_CHUNK (128u * 1024)
#define MAX_OPEN (1u << 20)
#define DEADLINE_S 600
#define EXIT_SKIP 77

/* In a child: ends it with a line that says where. */
#define CHECK(_condition)                                                                                              \
    do {                                                                                                               \
        if (!(_condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #_condition);                                           \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* What the processes of a test share. */
typedef struct world {
    int num_ranks;
    struct {
        atomic_int ready;
        size_t bytes;
        char address[MPATH_RAIL_ADDRESS_MAX];
        pid_t pid;
    } ranks[MAX_RANKS];
    atomic_int step;                                   /* raised by the processes, as each test wants */
    atomic_int asleep;                                 /* reads no more */
    atomic_int sent, finished;                         /* chunks, of the quiet sender */
    atomic_int done;                                   /* processes that need nothing any more */
    char region[1 << 20] __attribute__((aligned(64))); /* of shm lanes */
} world_t;

typedef void (*rank_main_t)(world_t *world, int rank, mpath_lane_t *rail);

/* Transports of the rails to come; with other than the default, large chunks go by rendezvous. */
static const char *test_tls;

static mpath_lane_t *rail_open(size_t max_open)
{
    mpath_rail_params_t params = {
        .nic = "lo", .tls = test_tls, .max_chunk_bytes = MAX_CHUNK, .max_open_arrival_bytes = max_open};
    mpath_lane_t *rail;

    return (mpath_rail_open(&params, &rail) == MPATH_OK) ? rail : NULL;
}

/* Lets the rail run, or others when there is nothing to do. */
static void turn(mpath_lane_t *rail)
{
    int events = rail->ops->progress(rail);

    CHECK(events >= 0);
    if (events == 0) {
        sched_yield();
    }
}

/* Opens the rail and makes all ranks known under their ranks (its own number is given out, too). */
static mpath_lane_t *join(world_t *world, int rank)
{
    mpath_lane_t *rail = rail_open(MAX_OPEN);
    const void *address;
    char name[32];
    size_t bytes;
    int i;

    CHECK(rail != NULL);
    mpath_rail_address(rail, &address, &bytes);
    CHECK(bytes <= sizeof(world->ranks[rank].address));
    memcpy(world->ranks[rank].address, address, bytes);
    world->ranks[rank].bytes = bytes;
    world->ranks[rank].pid   = getpid();
    atomic_store(&world->ranks[rank].ready, 1);
    for (i = 0; i < world->num_ranks; i++) {
        while (!atomic_load(&world->ranks[i].ready)) {
            sched_yield();
        }
        snprintf(name, sizeof(name), "rank %d", i);
        CHECK(mpath_rail_add_peer(rail, world->ranks[i].address, world->ranks[i].bytes, name) == i);
    }
    return rail;
}

/* Nobody closes a connection that another still uses. */
static void leave(world_t *world, mpath_lane_t *rail)
{
    atomic_fetch_add(&world->done, 1);
    while (atomic_load(&world->done) < world->num_ranks) {
        turn(rail);
    }
    rail->ops->destroy(rail);
}

/* A child ends when its parent does, and in any case some time. */
static void child_start(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(DEADLINE_S);
}

/* Runs rank_main in num_ranks processes. All must end well, but `victim` (-1: none) by SIGKILL. */
static void run_ranks(int num_ranks, int victim, rank_main_t rank_main)
{
    pid_t children[MAX_RANKS];
    int rank, status;
    world_t *world;

    world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(world != MAP_FAILED);
    world->num_ranks = num_ranks;
    fflush(NULL);
    for (rank = 0; rank < num_ranks; rank++) {
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) {
            child_start();
            rank_main(world, rank, join(world, rank));
            _exit(0);
        }
    }
    for (rank = 0; rank < num_ranks; rank++) {
        assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
        assert_int_equal(status, (rank == victim) ? SIGKILL : 0);
    }
    munmap(world, sizeof(*world));
}

static void ignore_log(mpath_log_level_t level, const char *line)
{
    (void)level;
    (void)line;
}

/* -- all to all at once, random sizes, arrivals ended in random order -- */

/* Chunks that each rank sends to each other one. */
static uint64_t flood_chunks = 17000;

#define FLOOD_KEPT 4
#define FLOOD_OPS 8
#define FLOOD_TAKES 200 /* more rendezvous than the windows of two senders allow */

typedef struct flood_take {
    mpath_lane_op_t op;
    int busy;
    mpath_chunk_t chunk;
    unsigned char to[MAX_CHUNK];
} flood_take_t;

typedef struct flood {
    uint32_t random;
    int rank;
    uint64_t received[MAX_RANKS]; /* chunks */
    uint64_t sum[MAX_RANKS];      /* of their numbers */
    mpath_arrival_t kept[FLOOD_KEPT];
    int num_kept;
    uint64_t rendezvous; /* chunks */
    flood_take_t takes[FLOOD_TAKES];
} flood_t;

typedef struct flood_send {
    mpath_lane_op_t op;
    int busy;
    unsigned char data[MAX_CHUNK];
} flood_send_t;

static uint32_t flood_bytes(uint32_t *random)
{
    static const uint32_t limits[] = {64, 1000, 1000, 1000, 1000, 1000, 9000, 20000};
    uint32_t dice                  = lane_random(random) % 100;

    return lane_random(random) % ((dice == 0) ? MAX_CHUNK + 1 : limits[dice % 8]);
}

static void flood_take(flood_t *flood, const mpath_arrival_t *arrival)
{
    flood_take_t *take = &flood->takes[0];
    mpath_status_t status;
    int i;

    for (i = 0; i < FLOOD_TAKES; i++) {
        take = &flood->takes[i];
        if (!take->busy) {
            break;
        }
    }
    CHECK(i < FLOOD_TAKES);
    take->chunk = arrival->chunk;
    status      = arrival->lane->ops->take(arrival->lane, arrival, take->to, &take->op);
    take->busy  = (status == MPATH_INPROGRESS);
    CHECK((status == MPATH_OK) || (take->busy && (arrival->data == NULL)));
    CHECK(take->busy || lane_pattern_check(take->to, &take->chunk));
}

static void flood_end(flood_t *flood, const mpath_arrival_t *arrival)
{
    CHECK((test_tls != NULL) || (arrival->data != NULL)); /* eager on TCP */
    flood->rendezvous += (arrival->data == NULL);
    if ((arrival->data == NULL) || (lane_random(&flood->random) % 2)) {
        flood_take(flood, arrival);
    } else {
        CHECK(lane_pattern_check(arrival->data, &arrival->chunk));
        arrival->lane->ops->release(arrival->lane, arrival);
    }
}

/* Looks at what was taken; the number of takes that are still under way. */
static int flood_taken(flood_t *flood)
{
    int i, open = 0;

    for (i = 0; i < FLOOD_TAKES; i++) {
        if (flood->takes[i].busy && (flood->takes[i].op.status != MPATH_INPROGRESS)) {
            CHECK(flood->takes[i].op.status == MPATH_OK);
            CHECK(lane_pattern_check(flood->takes[i].to, &flood->takes[i].chunk));
            flood->takes[i].busy = 0;
        }
        open += flood->takes[i].busy;
    }
    return open;
}

static void flood_arrive(void *argument, const mpath_arrival_t *arrival)
{
    flood_t *flood = argument;
    int victim;

    CHECK((int)arrival->chunk.flow == arrival->peer);
    CHECK((int)arrival->chunk.hop == flood->rank);
    flood->received[arrival->peer]++;
    flood->sum[arrival->peer] += arrival->chunk.offset;
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

/* Sends the next chunk to a peer if one of its ops is free; nonzero when it went. */
static int flood_send(flood_t *flood, mpath_lane_t *rail, int peer, flood_send_t *sends, uint64_t number)
{
    mpath_chunk_t chunk = {.team = 5, .flow = (uint32_t)flood->rank, .hop = (uint32_t)peer, .offset = number};
    mpath_status_t status;
    int i;

    for (i = 0; i < FLOOD_OPS; i++) {
        if (sends[i].busy && (sends[i].op.status != MPATH_INPROGRESS)) {
            CHECK(sends[i].op.status == MPATH_OK);
            sends[i].busy = 0;
            memset(sends[i].data, 0xee, 64); /* it may be reused: nobody reads it any more */
        }
    }
    for (i = 0; (i < FLOOD_OPS) && sends[i].busy; i++) {
    }
    if ((i == FLOOD_OPS) || (number == flood_chunks)) {
        return 0;
    }
    chunk.bytes = flood_bytes(&flood->random);
    lane_pattern_fill(sends[i].data, &chunk);
    status = rail->ops->send(rail, peer, &chunk, sends[i].data, &sends[i].op);
    CHECK((status == MPATH_OK) || (status == MPATH_INPROGRESS) || (status == MPATH_NO_RESOURCE));
    sends[i].busy = (status != MPATH_NO_RESOURCE);
    return sends[i].busy;
}

static int flood_sends_open(const flood_send_t *sends)
{
    int i, open = 0;

    for (i = 0; i < FLOOD_OPS; i++) {
        open += sends[i].busy && (sends[i].op.status == MPATH_INPROGRESS);
    }
    return open;
}

static void flood_rank(world_t *world, int rank, mpath_lane_t *rail)
{
    flood_t *flood           = calloc(1, sizeof(*flood));
    flood_send_t *sends      = calloc((size_t)world->num_ranks * FLOOD_OPS, sizeof(*sends));
    uint64_t sent[MAX_RANKS] = {0}, open;
    int peer, events;

    CHECK((flood != NULL) && (sends != NULL));
    flood->rank   = rank;
    flood->random = 99u + (uint32_t)rank;
    mpath_lane_set_arrive(rail, flood_arrive, flood);
    do {
        open   = 0;
        events = 0;
        for (peer = 0; peer < world->num_ranks; peer++) {
            if (peer != rank) {
                if (flood_send(flood, rail, peer, &sends[peer * FLOOD_OPS], sent[peer])) {
                    sent[peer]++;
                    events++;
                }
                open += (flood_chunks - sent[peer]) + (flood_chunks - flood->received[peer]) +
                        (uint64_t)flood_sends_open(&sends[peer * FLOOD_OPS]);
            }
        }
        peer = rail->ops->progress(rail);
        CHECK(peer >= 0);
        if (events + peer == 0) {
            while (flood->num_kept > 0) { /* a rendezvous that is kept holds up its sender */
                flood_end(flood, &flood->kept[--flood->num_kept]);
            }
            sched_yield();
        }
        open += (uint64_t)flood_taken(flood);
    } while ((open > 0) || (flood->num_kept > 0));
    CHECK((test_tls == NULL) || (flood->rendezvous > 0));
    for (peer = 0; peer < world->num_ranks; peer++) {
        CHECK((peer == rank) || (flood->sum[peer] == flood_chunks * (flood_chunks - 1) / 2));
    }
    leave(world, rail);
    free(flood);
    free(sends);
}

static void test_flood(void **state)
{
    (void)state;
    run_ranks(3, -1, flood_rank);
}

/* Large chunks by rendezvous, as on a NIC with RDMA. */
static void test_flood_rendezvous(void **state)
{
    (void)state;
    flood_chunks = 4000;
    test_tls     = "tcp,tcp";
    setenv("UCX_RNDV_THRESH", "8k", 1);
    run_ranks(3, -1, flood_rank);
    unsetenv("UCX_RNDV_THRESH");
    test_tls = NULL;
}

/* -- a receiver that ends nothing stops the sender, and memory stays bounded -- */

#define PRESSURE_CHUNKS 1000 /* of MAX_CHUNK: 125 MiB, more than any socket buffers */
#define PRESSURE_SLACK (16u << 20)

typedef struct inbox {
    mpath_arrival_t arrivals[PRESSURE_CHUNKS];
    int count, ended, expected;
} inbox_t;

static void inbox_arrive(void *argument, const mpath_arrival_t *arrival)
{
    inbox_t *inbox = argument;

    CHECK(inbox->count < PRESSURE_CHUNKS);
    inbox->arrivals[inbox->count++] = *arrival;
}

/* Rank 0 fills rank 1 until nothing goes any more for a long while, then rank 1 starts to read. */
static void pressure_sender(world_t *world, mpath_lane_t *rail)
{
    mpath_lane_op_t *ops = calloc(PRESSURE_CHUNKS, sizeof(*ops));
    mpath_chunk_t chunk  = {.bytes = MAX_CHUNK};
    unsigned char *data  = malloc(MAX_CHUNK);
    int sent = 0, finished, idle = 0;
    mpath_status_t status;

    CHECK((ops != NULL) && (data != NULL));
    memset(data, 1, MAX_CHUNK);
    do {
        if (sent < PRESSURE_CHUNKS) {
            chunk.offset = (uint64_t)sent;
            status       = rail->ops->send(rail, 1, &chunk, data, &ops[sent]);
            CHECK((status == MPATH_OK) || (status == MPATH_INPROGRESS) || (status == MPATH_NO_RESOURCE));
            sent += (status != MPATH_NO_RESOURCE);
            idle = (status == MPATH_NO_RESOURCE) ? idle + 1 : 0;
        }
        turn(rail);
        if (idle > 2000) {
            CHECK(sent < PRESSURE_CHUNKS);
            atomic_store(&world->step, 1);
            sched_yield();
        }
        for (finished = 0; (finished < sent) && (ops[finished].status == MPATH_OK); finished++) {
        }
    } while (finished < PRESSURE_CHUNKS);
    atomic_store(&world->step, 2);
    leave(world, rail);
    free(ops);
    free(data);
}

static void pressure_receiver(world_t *world, mpath_lane_t *rail)
{
    inbox_t *inbox = calloc(1, sizeof(*inbox));

    CHECK(inbox != NULL);
    mpath_lane_set_arrive(rail, inbox_arrive, inbox);
    while (inbox->ended < PRESSURE_CHUNKS) {
        turn(rail);
        CHECK((uint64_t)(inbox->count - inbox->ended) * MAX_CHUNK <= MAX_OPEN + PRESSURE_SLACK);
        if ((atomic_load(&world->step) > 0) && (inbox->ended < inbox->count)) {
            rail->ops->release(rail, &inbox->arrivals[inbox->ended++]);
        }
    }
    leave(world, rail);
    free(inbox);
}

static void pressure_rank(world_t *world, int rank, mpath_lane_t *rail)
{
    if (rank == 0) {
        pressure_sender(world, rail);
    } else {
        pressure_receiver(world, rail);
    }
}

static void test_back_pressure(void **state)
{
    (void)state;
    run_ranks(2, -1, pressure_rank);
}

/* -- what a finished op has sent gets there though the sender does nothing any more -- */

#define QUIET_MAX 60000 /* chunks */

static const uint32_t quiet_bytes[] = {1000, 3000, 7000, 20000, MAX_CHUNK};

#define QUIET_ROUNDS (int)(sizeof(quiet_bytes) / sizeof(quiet_bytes[0]))

typedef struct quiet {
    mpath_lane_op_t ops[QUIET_MAX];
    int sent, finished;
    uint64_t arrived;
} quiet_t;

/* Sends until nothing goes any more, the receiver being asleep; or finishes what was sent. */
static void quiet_send(quiet_t *quiet, mpath_lane_t *rail, const mpath_chunk_t *chunk, const void *data, int fill)
{
    mpath_status_t status;
    int idle = 0;

    while (fill ? (idle < 300) : (quiet->finished < quiet->sent)) {
        idle++;
        if (fill) {
            CHECK(quiet->sent < QUIET_MAX);
            status = rail->ops->send(rail, 1, chunk, data, &quiet->ops[quiet->sent]);
            CHECK(!mpath_status_is_error(status));
            quiet->sent += (status != MPATH_NO_RESOURCE);
            idle = (status == MPATH_NO_RESOURCE) ? idle : 0;
        }
        turn(rail);
        for (; (quiet->finished < quiet->sent) && (quiet->ops[quiet->finished].status == MPATH_OK); quiet->finished++) {
            idle = 0;
        }
    }
}

static void quiet_arrive(void *argument, const mpath_arrival_t *arrival)
{
    quiet_t *quiet = argument;

    quiet->arrived++;
    arrival->lane->ops->release(arrival->lane, arrival);
}

/* Steps: 0 the receiver reads (so the connection is there), then per round: sender has filled; receiver has all. */
static void quiet_sender(world_t *world, mpath_lane_t *rail, quiet_t *quiet)
{
    static unsigned char data[MAX_CHUNK];
    mpath_chunk_t chunk = {.bytes = 1};
    int round;

    CHECK(rail->ops->send(rail, 1, &chunk, data, &quiet->ops[quiet->sent++]) >= 0);
    quiet_send(quiet, rail, &chunk, data, 0);
    for (round = 0; round < QUIET_ROUNDS; round++) {
        while (atomic_load(&world->step) < 3 * round + 1) {
            sched_yield();
        }
        quiet->sent = quiet->finished = 0;
        chunk.bytes                   = quiet_bytes[round];
        quiet_send(quiet, rail, &chunk, data, 1);
        atomic_store(&world->sent, quiet->sent);
        atomic_store(&world->finished, quiet->finished);
        atomic_store(&world->step, 3 * round + 2);
        while (atomic_load(&world->step) < 3 * round + 3) { /* without progress */
            sched_yield();
        }
        quiet_send(quiet, rail, &chunk, data, 0);
    }
}

static void quiet_receiver(world_t *world, mpath_lane_t *rail, quiet_t *quiet)
{
    int round;

    while (quiet->arrived < 1) {
        turn(rail);
    }
    for (round = 0; round < QUIET_ROUNDS; round++) {
        quiet->arrived = 0;
        atomic_store(&world->step, 3 * round + 1);
        while (atomic_load(&world->step) < 3 * round + 2) { /* asleep */
            sched_yield();
        }
        while (quiet->arrived < (uint64_t)atomic_load(&world->finished)) {
            turn(rail);
        }
        atomic_store(&world->step, 3 * round + 3);
        while (quiet->arrived < (uint64_t)atomic_load(&world->sent)) {
            turn(rail);
        }
    }
}

static void quiet_rank(world_t *world, int rank, mpath_lane_t *rail)
{
    quiet_t *quiet = calloc(1, sizeof(*quiet));

    CHECK(quiet != NULL);
    mpath_lane_set_arrive(rail, quiet_arrive, quiet);
    if (rank == 0) {
        quiet_sender(world, rail, quiet);
    } else {
        quiet_receiver(world, rail, quiet);
    }
    leave(world, rail);
    free(quiet);
}

static void test_quiet_sender(void **state)
{
    (void)state;
    run_ranks(2, -1, quiet_rank);
}

/* -- one of three is killed: sends to it fail, a receiver that only waits for it notices, the others go on -- */

static void exchange(mpath_lane_t *rail, int peer, inbox_t *inbox, int chunks)
{
    mpath_chunk_t chunk      = {.bytes = 1000};
    unsigned char data[1000] = {0};
    mpath_lane_op_t op       = {.status = MPATH_OK};
    mpath_status_t status;
    int sent = 0;

    inbox->expected += chunks;
    while ((sent < chunks) || (op.status == MPATH_INPROGRESS) || (inbox->count < inbox->expected)) {
        if ((sent < chunks) && (op.status != MPATH_INPROGRESS)) {
            status = rail->ops->send(rail, peer, &chunk, data, &op);
            CHECK(!mpath_status_is_error(status));
            sent += (status != MPATH_NO_RESOURCE);
        }
        turn(rail);
        CHECK(!mpath_status_is_error(op.status));
        for (; inbox->ended < inbox->count; inbox->ended++) {
            CHECK(inbox->arrivals[inbox->ended].peer == peer);
            rail->ops->release(rail, &inbox->arrivals[inbox->ended]);
        }
        sched_yield();
    }
}

static void killed_rank(world_t *world, int rank, mpath_lane_t *rail)
{
    inbox_t *inbox      = calloc(1, sizeof(*inbox));
    mpath_chunk_t chunk = {.bytes = MAX_CHUNK};
    unsigned char *data = calloc(1, MAX_CHUNK);
    mpath_lane_op_t op;
    mpath_status_t status;

    CHECK((inbox != NULL) && (data != NULL));
    mpath_log_set_sink(ignore_log);
    mpath_lane_set_arrive(rail, inbox_arrive, inbox);
    if (rank == 2) {
        while (1) {
            rail->ops->progress(rail);
            atomic_fetch_or(&world->step, (inbox->count > 0) ? 1 : 0);
            sched_yield();
        }
    }
    if (rank == 0) { /* sends to 2 until it does not go any more */
        do {
            op.status = MPATH_OK;
            status    = rail->ops->send(rail, 2, &chunk, data, &op);
            while (op.status == MPATH_INPROGRESS) {
                turn(rail);
                if (atomic_exchange(&world->step, 0) == 1) {
                    kill(world->ranks[2].pid, SIGKILL);
                }
            }
            turn(rail);
            if (atomic_exchange(&world->step, 0) == 1) {
                kill(world->ranks[2].pid, SIGKILL);
            }
        } while (!mpath_status_is_error(status) && !mpath_status_is_error(op.status));
        CHECK((status == MPATH_ERR_UNREACHABLE) || (op.status == MPATH_ERR_UNREACHABLE));
        CHECK(rail->ops->send(rail, 2, &chunk, data, &op) == MPATH_ERR_UNREACHABLE);
    } else { /* never sends to 2 */
        while (rail->ops->peer_status(rail, 2) == MPATH_OK) {
            turn(rail);
        }
    }
    CHECK(rail->ops->peer_status(rail, 2) == MPATH_ERR_UNREACHABLE);
    exchange(rail, 1 - rank, inbox, 200);
    CHECK(rail->ops->peer_status(rail, 1 - rank) == MPATH_OK);
    atomic_fetch_add(&world->done, (rank == 0) ? 1 : 0); /* for the dead one */
    leave(world, rail);
    free(inbox);
    free(data);
}

static void test_killed_peer(void **state)
{
    (void)state;
    run_ranks(3, 2, killed_rank);
}

/* -- abort with chunks under way to a peer that does not read: the memory goes away, the rest goes on -- */

static void abort_rank(world_t *world, int rank, mpath_lane_t *rail)
{
    inbox_t *inbox      = calloc(1, sizeof(*inbox));
    mpath_chunk_t chunk = {.bytes = MAX_CHUNK};
    mpath_lane_op_t ops[PRESSURE_CHUNKS];
    int sent = 0, unfinished = 0, idle = 0, i;
    mpath_status_t status;
    void *data;

    CHECK(inbox != NULL);
    mpath_log_set_sink(ignore_log);
    mpath_lane_set_arrive(rail, inbox_arrive, inbox);
    if (rank == 2) {
        while (inbox->count == 0) { /* reads until the connection is there, then no more */
            turn(rail);
        }
        atomic_store(&world->asleep, 1);
        while (atomic_load(&world->step) == 0) {
            sched_yield();
        }
    } else {
        exchange(rail, 1 - rank, inbox, 10);
    }
    if (rank == 0) {
        data = mmap(NULL, MAX_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(data != MAP_FAILED);
        memset(data, 7, MAX_CHUNK);
        while (idle < 2000) {
            CHECK(sent < PRESSURE_CHUNKS);
            idle   = atomic_load(&world->asleep) ? idle : 0;
            status = rail->ops->send(rail, 2, &chunk, data, &ops[sent]);
            CHECK(!mpath_status_is_error(status));
            sent += (status != MPATH_NO_RESOURCE);
            idle = (status == MPATH_NO_RESOURCE) ? idle + 1 : 0;
            turn(rail);
        }
        for (i = 0; i < sent; i++) {
            unfinished += (ops[i].status == MPATH_INPROGRESS);
        }
        CHECK(unfinished > 0);
        rail->ops->abort(rail);
        munmap(data, MAX_CHUNK);
        for (i = 0; i < sent; i++) {
            CHECK(ops[i].status != MPATH_INPROGRESS);
            unfinished -= (ops[i].status == MPATH_ERR_UNREACHABLE);
        }
        CHECK(unfinished == 0);
        memset(ops, 0x55, sizeof(ops)); /* nobody writes them any more */
        for (i = 0; i < 2000; i++) {
            turn(rail);
        }
        CHECK(((unsigned char *)ops)[0] == 0x55);
        CHECK(rail->ops->send(rail, 2, &chunk, inbox, &ops[0]) == MPATH_ERR_UNREACHABLE);
        atomic_store(&world->step, 1);
    }
    if (rank < 2) {
        exchange(rail, 1 - rank, inbox, 100);
    }
    leave(world, rail);
    free(inbox);
}

static void test_abort(void **state)
{
    (void)state;
    run_ranks(3, -1, abort_rank);
}

/* -- a peer that was forgotten and is known again, under the same number or another -- */

static void again_rank(world_t *world, int rank, mpath_lane_t *rail)
{
    inbox_t *inbox = calloc(1, sizeof(*inbox));
    int round, i, peer = 1 - rank;

    CHECK(inbox != NULL);
    mpath_lane_set_arrive(rail, inbox_arrive, inbox);
    for (round = 1; round <= 5; round++) {
        exchange(rail, peer, inbox, 20);
        atomic_fetch_add(&world->step, 1);
        while (atomic_load(&world->step) < 2 * round) {
            turn(rail);
        }
        /* Only one side forgets; the other one sees its idle connection end and makes a new one. */
        if (rank == round % 2) {
            mpath_rail_remove_peer(rail, peer);
            CHECK(mpath_rail_add_peer(rail, world->ranks[peer].address, world->ranks[peer].bytes, "again") == peer);
        } else {
            while (atomic_load(&world->done) < round) {
                turn(rail);
            }
        }
        for (i = 0; i < 200; i++) { /* lets the close go out, or come in */
            turn(rail);
        }
        atomic_fetch_add(&world->done, (rank == round % 2) ? 1 : 0);
    }
    exchange(rail, peer, inbox, 20);
    atomic_fetch_add(&world->step, 1);
    while (atomic_load(&world->step) < 12) {
        turn(rail);
    }
    rail->ops->destroy(rail);
    free(inbox);
}

static void test_peer_again(void **state)
{
    (void)state;
    run_ranks(2, -1, again_rank);
}

/* -- relay: 0 -shm-> 1 -rail-> 2 -shm-> 3, without a copy in between that the lanes do not make -- */

#define RELAY_CHUNKS 3000
#define RELAY_OPS 4

typedef struct relay {
    mpath_arrival_t waiting[PRESSURE_CHUNKS];
    int head, count; /* a ring */
    uint64_t got;
} relay_t;

static void relay_arrive(void *argument, const mpath_arrival_t *arrival)
{
    relay_t *relay = argument;

    CHECK(relay->count < PRESSURE_CHUNKS);
    relay->waiting[(relay->head + relay->count++) % PRESSURE_CHUNKS] = *arrival;
}

static void relay_sink_arrive(void *argument, const mpath_arrival_t *arrival)
{
    relay_t *relay = argument;

    CHECK(lane_pattern_check(arrival->data, &arrival->chunk));
    relay->got++;
    arrival->lane->ops->release(arrival->lane, arrival);
}

static void relay_source(mpath_lane_t *shm)
{
    uint32_t random     = 4;
    mpath_chunk_t chunk = {.team = 8};
    mpath_status_t status;
    void *slot;

    while (chunk.offset < RELAY_CHUNKS) {
        status = shm->ops->reserve(shm, 1, 16384, &slot);
        if (status == MPATH_NO_RESOURCE) {
            sched_yield();
            continue;
        }
        CHECK(status == MPATH_OK);
        chunk.bytes = lane_random(&random) % 16385;
        lane_pattern_fill(slot, &chunk);
        shm->ops->commit(shm, 1, slot, &chunk);
        chunk.offset++;
    }
}

/* Shared memory to rail: the slot is sent from, and freed when the send is done. */
static void relay_out(mpath_lane_t *shm, mpath_lane_t *rail, relay_t *relay)
{
    mpath_arrival_t sending[RELAY_OPS];
    mpath_lane_op_t ops[RELAY_OPS];
    int busy[RELAY_OPS] = {0}, forwarded = 0, i;
    mpath_status_t status;

    while (forwarded < RELAY_CHUNKS) {
        turn(rail);
        CHECK(shm->ops->progress(shm) >= 0);
        for (i = 0; i < RELAY_OPS; i++) {
            if (busy[i] && (ops[i].status != MPATH_INPROGRESS)) {
                CHECK(ops[i].status == MPATH_OK);
                shm->ops->release(shm, &sending[i]);
                busy[i] = 0;
                forwarded++;
            }
            if (!busy[i] && (relay->count > 0)) {
                sending[i] = relay->waiting[relay->head];
                status     = rail->ops->send(rail, 2, &sending[i].chunk, sending[i].data, &ops[i]);
                CHECK(!mpath_status_is_error(status));
                if (status != MPATH_NO_RESOURCE) {
                    busy[i]     = 1;
                    relay->head = (relay->head + 1) % PRESSURE_CHUNKS;
                    relay->count--;
                }
            }
        }
        sched_yield();
    }
}

/* Rail to shared memory: taken straight into a slot. */
static void relay_in(mpath_lane_t *shm, mpath_lane_t *rail, relay_t *relay)
{
    mpath_arrival_t *arrival;
    int forwarded = 0;
    mpath_lane_op_t op;
    void *slot;

    while (forwarded < RELAY_CHUNKS) {
        turn(rail);
        arrival = &relay->waiting[relay->head];
        if ((relay->count == 0) || (shm->ops->reserve(shm, 1, arrival->chunk.bytes, &slot) != MPATH_OK)) {
            sched_yield();
            continue;
        }
        CHECK(rail->ops->take(rail, arrival, slot, &op) == MPATH_OK);
        shm->ops->commit(shm, 1, slot, &arrival->chunk);
        relay->head = (relay->head + 1) % PRESSURE_CHUNKS;
        relay->count--;
        forwarded++;
    }
}

static void relay_rank(world_t *world, int rank, mpath_lane_t *rail)
{
    mpath_shm_shape_t shape = {.num_ranks = 2, .depth = 4, .slot_bytes = 16384};
    size_t bytes            = mpath_shm_region_bytes(&shape);
    relay_t *relay          = calloc(1, sizeof(*relay));
    mpath_lane_t *shm;

    CHECK((relay != NULL) && (2 * bytes <= sizeof(world->region)) && (bytes % 64 == 0));
    CHECK(mpath_shm_open(world->region + (size_t)(rank / 2) * bytes, &shape, rank % 2, &shm) == MPATH_OK);
    mpath_lane_set_arrive(rail, relay_arrive, relay);
    mpath_lane_set_arrive(shm, (rank == 3) ? relay_sink_arrive : relay_arrive, relay);
    if (rank == 0) {
        relay_source(shm);
    } else if (rank == 1) {
        relay_out(shm, rail, relay);
    } else if (rank == 2) {
        relay_in(shm, rail, relay);
    } else {
        while (relay->got < RELAY_CHUNKS) {
            if (shm->ops->progress(shm) == 0) {
                sched_yield();
            }
        }
    }
    leave(world, rail);
    shm->ops->destroy(shm);
    free(relay);
}

static void test_relay(void **state)
{
    (void)state;
    run_ranks(4, -1, relay_rank);
}

/* -- settings and errors, in a child of their own: UCX reads the environment -- */

static void run_child(void (*child_main)(void))
{
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        child_start();
        child_main();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static char last_error[1024];

static void keep_error(mpath_log_level_t level, const char *line)
{
    if (level == MPATH_LOG_ERROR) {
        strncpy(last_error, line, sizeof(last_error) - 1);
    }
}

static void no_device_main(void)
{
    mpath_rail_params_t params = {.nic = "no_such_nic", .max_chunk_bytes = 4096, .max_open_arrival_bytes = 1 << 20};
    mpath_lane_t *rail         = NULL;

    CHECK(freopen("/dev/null", "w", stdout) != NULL); /* UCX says it, too */
    mpath_log_set_sink(keep_error);
    CHECK(mpath_rail_open(&params, &rail) == MPATH_ERR_UNSUPPORTED);
    CHECK(rail == NULL);
    CHECK(strstr(last_error, "no_such_nic") != NULL);
    CHECK(strstr(last_error, "tcp/lo") != NULL);
}

static void environment_main(void)
{
    mpath_lane_t *rail;

    setenv("UCX_TLS", "self,sm", 1);
    setenv("UCX_NET_DEVICES", "none", 1);
    setenv("UCX_RNDV_THRESH", "0", 1);
    setenv("UCX_MAX_RNDV_RAILS", "4", 1);
    rail = rail_open(MAX_OPEN);
    CHECK(rail != NULL);
    CHECK(strcmp(mpath_rail_description(rail), "tcp on lo") == 0);
    CHECK(strcmp(rail->ops->name, "rail") == 0);
    CHECK(rail->ops->max_chunk(rail) == MAX_CHUNK);
    rail->ops->destroy(rail);
}

static void errors_main(void)
{
    mpath_chunk_t chunk = {.bytes = MAX_CHUNK + 1};
    mpath_lane_t *rail  = rail_open(MAX_OPEN);
    const void *address;
    mpath_lane_op_t op;
    char data[8] = {0};
    size_t bytes;
    void *slot;

    CHECK(rail != NULL);
    mpath_log_set_sink(ignore_log);
    mpath_rail_address(rail, &address, &bytes);
    CHECK(mpath_rail_add_peer(rail, address, 3, "short") == MPATH_ERR_PARAM);
    CHECK(mpath_rail_add_peer(rail, address, bytes - 1, "cut") == MPATH_ERR_PARAM);
    CHECK(mpath_rail_add_peer(rail, "no address at all, but long enough", 34, "wrong") == MPATH_ERR_PARAM);
    CHECK(rail->ops->send(rail, 0, &chunk, data, &op) == MPATH_ERR_PARAM);
    CHECK(mpath_rail_add_peer(rail, address, bytes, "me") == 0);
    CHECK(rail->ops->send(rail, 0, &chunk, data, &op) == MPATH_ERR_PARAM);
    CHECK(rail->ops->reserve(rail, 0, 1, &slot) == MPATH_ERR_UNSUPPORTED);
    CHECK(rail->ops->progress(rail) == 0);
    rail->ops->abort(rail); /* nothing under way */
    CHECK(rail->ops->progress(rail) == 0);
    rail->ops->destroy(rail);
}

static void test_no_device(void **state)
{
    (void)state;
    run_child(no_device_main);
}

static void test_environment(void **state)
{
    (void)state;
    run_child(environment_main);
}

static void test_errors(void **state)
{
    (void)state;
    run_child(errors_main);
}

static void can_open_main(void)
{
    mpath_lane_t *rail = rail_open(MAX_OPEN);

    _exit((rail != NULL) ? 0 : EXIT_SKIP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_flood_rendezvous),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_quiet_sender),
        cmocka_unit_test(test_killed_peer),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_peer_again),
        cmocka_unit_test(test_relay),
    };
    pid_t child = fork();
    int status;

    if (child == 0) {
        can_open_main();
    }
    if ((child < 0) || (waitpid(child, &status, 0) != child) || (status != 0)) {
        printf("SKIP: UCX offers no tcp on the loopback device here\n");
        return EXIT_SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
