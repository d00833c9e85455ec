/* SPDX-License-Identifier: BSD-3-Clause */
/* The rail lane between real processes, with UCX on TCP over the loopback device: settings, errors, contents. */
#include "rail/rail.h"
#include "unit/lane_pattern.h"
#include "unit/rail_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* -- settings and errors, in a child of their own: UCX reads the environment -- */

static char last_error[1024];

static void keep_error(mpath_log_level_t level, const char *line)
{
    if (level == MPATH_LOG_ERROR) {
        strncpy(last_error, line, sizeof(last_error) - 1);
    }
}

/* The line that says what carries a rail. */
static char opened[256];

static void keep_opened(mpath_log_level_t level, const char *line)
{
    (void)level;
    if (strstr(line, ": open, ") != NULL) {
        strncpy(opened, line, sizeof(opened) - 1);
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
    mpath_log_set_level(MPATH_LOG_DEBUG);
    mpath_log_set_sink(keep_opened);
    rail = rail_open(RAIL_MAX_OPEN);
    mpath_log_set_sink(NULL);
    CHECK(rail != NULL);
    CHECK(strstr(opened, "rail lo: open, tcp on lo") != NULL);
    CHECK(strcmp(rail->ops->name, "rail") == 0);
    CHECK(rail->ops->max_chunk(rail) == RAIL_MAX_CHUNK);
    rail->ops->destroy(rail);
}

static void errors_main(void)
{
    mpath_chunk_t chunk = {.bytes = RAIL_MAX_CHUNK + 1};
    mpath_lane_t *rail  = rail_open(RAIL_MAX_OPEN);
    const void *address;
    mpath_lane_op_t op;
    char data[8] = {0};
    size_t bytes;
    void *slot;

    CHECK(rail != NULL);
    mpath_log_set_sink(lane_ignore_log);
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
    rail_run_child(no_device_main);
}

/* Transports of the other class open no device of theirs instead of the one that is named. */
static void other_class_main(void)
{
    mpath_log_set_sink(lane_ignore_log);
    rail_tls = "shm";
    CHECK(rail_open(RAIL_MAX_OPEN) == NULL);
    rail_nic = "memory";
    rail_tls = "tcp";
    CHECK(rail_open(RAIL_MAX_OPEN) == NULL);
}

static void test_other_class(void **state)
{
    (void)state;
    rail_run_child(other_class_main);
}

static void test_environment(void **state)
{
    (void)state;
    rail_run_child(environment_main);
}

static void test_errors(void **state)
{
    (void)state;
    rail_run_child(errors_main);
}

/* -- all to all at once, random sizes, arrivals ended in random order -- */

static int flood_by_rendezvous;       /* large chunks may come so, and some do */
static uint64_t flood_chunks = 17000; /* that each rank sends to each other one */

#define FLOOD_KEPT 4
#define FLOOD_OPS 8
#define FLOOD_TAKES 200 /* more rendezvous than the windows of two senders allow */

typedef struct flood_take {
    mpath_lane_op_t op;
    int busy;
    mpath_chunk_t chunk;
    unsigned char to[RAIL_MAX_CHUNK];
} flood_take_t;

typedef struct flood {
    uint32_t random;
    int rank;
    uint64_t received[RAIL_MAX_RANKS]; /* chunks */
    uint64_t sum[RAIL_MAX_RANKS];      /* of their numbers */
    mpath_arrival_t kept[FLOOD_KEPT];
    int num_kept;
    uint64_t rendezvous; /* chunks */
    flood_take_t takes[FLOOD_TAKES];
} flood_t;

typedef struct flood_send {
    mpath_lane_op_t op;
    int busy;
    unsigned char data[RAIL_MAX_CHUNK];
} flood_send_t;

static uint32_t flood_bytes(uint32_t *random)
{
    static const uint32_t limits[] = {64, 1000, 1000, 1000, 1000, 1000, 9000, 20000};
    uint32_t dice                  = lane_random(random) % 100;

    return lane_random(random) % ((dice == 0) ? RAIL_MAX_CHUNK + 1 : limits[dice % 8]);
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
    CHECK(flood_by_rendezvous || (arrival->data != NULL)); /* eager on TCP */
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

static void flood_rank(rail_world_t *world, int rank, mpath_lane_t *rail)
{
    flood_t *flood                = calloc(1, sizeof(*flood));
    flood_send_t *sends           = calloc((size_t)world->num_ranks * FLOOD_OPS, sizeof(*sends));
    uint64_t sent[RAIL_MAX_RANKS] = {0}, open;
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
    CHECK(!flood_by_rendezvous || (flood->rendezvous > 0));
    for (peer = 0; peer < world->num_ranks; peer++) {
        CHECK((peer == rank) || (flood->sum[peer] == flood_chunks * (flood_chunks - 1) / 2));
    }
    rail_leave(world, rail);
    free(flood);
    free(sends);
}

static void test_flood(void **state)
{
    (void)state;
    rail_run_ranks(3, -1, flood_rank);
}

/* Large chunks by rendezvous, as on a NIC with RDMA. */
static void test_flood_rendezvous(void **state)
{
    (void)state;
    flood_chunks        = 4000;
    flood_by_rendezvous = 1;
    rail_tls            = "tcp,tcp";
    setenv("UCX_RNDV_THRESH", "8k", 1);
    rail_run_ranks(3, -1, flood_rank);
    unsetenv("UCX_RNDV_THRESH");
    rail_tls = NULL;
}

/* Between virtual nodes on one host. */
static void test_flood_shared_memory(void **state)
{
    (void)state;
    flood_chunks        = 4000;
    flood_by_rendezvous = 1;
    rail_nic            = "memory";
    rail_run_ranks(3, -1, flood_rank);
    rail_nic = "lo";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_other_class),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_flood_rendezvous),
        cmocka_unit_test(test_flood_shared_memory),
    };
    int missing = rail_check_missing();

    return (missing != 0) ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
