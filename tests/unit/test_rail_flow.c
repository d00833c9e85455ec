/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunks on their way by the rail lane: back pressure, a sender that sleeps, relays between two kinds of lane. */
#include "rail/rail.h"
#include "lane/shm.h"
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

/* -- a receiver that ends nothing stops the sender, and memory stays bounded -- */

#define PRESSURE_SLACK (16u << 20)

/* Rank 0 fills rank 1 until nothing goes any more for a long while, then rank 1 starts to read. */
static void pressure_sender(rail_world_t *world, mpath_lane_t *rail)
{
    mpath_lane_op_t *ops = calloc(INBOX_CHUNKS, sizeof(*ops));
    mpath_chunk_t chunk  = {.bytes = RAIL_MAX_CHUNK};
    unsigned char *data  = malloc(RAIL_MAX_CHUNK);
    int sent = 0, finished, idle = 0;
    mpath_status_t status;

    CHECK((ops != NULL) && (data != NULL));
    memset(data, 1, RAIL_MAX_CHUNK);
    do {
        if (sent < INBOX_CHUNKS) {
            chunk.offset = (uint64_t)sent;
            status       = rail->ops->send(rail, 1, &chunk, data, &ops[sent]);
            CHECK((status == MPATH_OK) || (status == MPATH_INPROGRESS) || (status == MPATH_NO_RESOURCE));
            sent += (status != MPATH_NO_RESOURCE);
            idle = (status == MPATH_NO_RESOURCE) ? idle + 1 : 0;
        }
        rail_turn(rail);
        if (idle > 2000) {
            CHECK(sent < INBOX_CHUNKS);
            atomic_store(&world->step, 1);
            sched_yield();
        }
        for (finished = 0; (finished < sent) && (ops[finished].status == MPATH_OK); finished++) {
        }
    } while (finished < INBOX_CHUNKS);
    atomic_store(&world->step, 2);
    rail_leave(world, rail);
    free(ops);
    free(data);
}

static void pressure_receiver(rail_world_t *world, mpath_lane_t *rail)
{
    rail_inbox_t *inbox = calloc(1, sizeof(*inbox));

    CHECK(inbox != NULL);
    mpath_lane_set_arrive(rail, rail_inbox_arrive, inbox);
    while (inbox->ended < INBOX_CHUNKS) {
        rail_turn(rail);
        CHECK((uint64_t)(inbox->count - inbox->ended) * RAIL_MAX_CHUNK <= RAIL_MAX_OPEN + PRESSURE_SLACK);
        if ((atomic_load(&world->step) > 0) && (inbox->ended < inbox->count)) {
            rail->ops->release(rail, &inbox->arrivals[inbox->ended++]);
        }
    }
    rail_leave(world, rail);
    free(inbox);
}

static void pressure_rank(rail_world_t *world, int rank, mpath_lane_t *rail)
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
    rail_run_ranks(2, -1, pressure_rank);
}

/* -- what a finished op has sent gets there though the sender does nothing any more -- */

#define QUIET_MAX 60000 /* chunks */

static const uint32_t quiet_bytes[] = {1000, 3000, 7000, 20000, RAIL_MAX_CHUNK};

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
        rail_turn(rail);
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
static void quiet_sender(rail_world_t *world, mpath_lane_t *rail, quiet_t *quiet)
{
    static unsigned char data[RAIL_MAX_CHUNK];
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

static void quiet_receiver(rail_world_t *world, mpath_lane_t *rail, quiet_t *quiet)
{
    int round;

    while (quiet->arrived < 1) {
        rail_turn(rail);
    }
    for (round = 0; round < QUIET_ROUNDS; round++) {
        quiet->arrived = 0;
        atomic_store(&world->step, 3 * round + 1);
        while (atomic_load(&world->step) < 3 * round + 2) { /* asleep */
            sched_yield();
        }
        while (quiet->arrived < (uint64_t)atomic_load(&world->finished)) {
            rail_turn(rail);
        }
        atomic_store(&world->step, 3 * round + 3);
        while (quiet->arrived < (uint64_t)atomic_load(&world->sent)) {
            rail_turn(rail);
        }
    }
}

static void quiet_rank(rail_world_t *world, int rank, mpath_lane_t *rail)
{
    quiet_t *quiet = calloc(1, sizeof(*quiet));

    CHECK(quiet != NULL);
    mpath_lane_set_arrive(rail, quiet_arrive, quiet);
    if (rank == 0) {
        quiet_sender(world, rail, quiet);
    } else {
        quiet_receiver(world, rail, quiet);
    }
    rail_leave(world, rail);
    free(quiet);
}

static void test_quiet_sender(void **state)
{
    (void)state;
    rail_run_ranks(2, -1, quiet_rank);
}

/* -- relay: 0 -shm-> 1 -rail-> 2 -shm-> 3, without a copy in between that the lanes do not make -- */

#define RELAY_CHUNKS 3000
#define RELAY_OPS 4

typedef struct relay {
    mpath_arrival_t waiting[INBOX_CHUNKS];
    int head, count; /* a ring */
    uint64_t got;
} relay_t;

static void relay_arrive(void *argument, const mpath_arrival_t *arrival)
{
    relay_t *relay = argument;

    CHECK(relay->count < INBOX_CHUNKS);
    relay->waiting[(relay->head + relay->count++) % INBOX_CHUNKS] = *arrival;
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
        rail_turn(rail);
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
                    relay->head = (relay->head + 1) % INBOX_CHUNKS;
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
        rail_turn(rail);
        arrival = &relay->waiting[relay->head];
        if ((relay->count == 0) || (shm->ops->reserve(shm, 1, arrival->chunk.bytes, &slot) != MPATH_OK)) {
            sched_yield();
            continue;
        }
        CHECK(rail->ops->take(rail, arrival, slot, &op) == MPATH_OK);
        shm->ops->commit(shm, 1, slot, &arrival->chunk);
        relay->head = (relay->head + 1) % INBOX_CHUNKS;
        relay->count--;
        forwarded++;
    }
}

/* The lane of ranks 0 and 1, or of 2 and 3. */
static mpath_lane_t *relay_open(rail_world_t *world, int rank, mpath_shm_t **shm_p, mpath_shm_port_t **port_p)
{
    const mpath_shm_shape_t shape = {.depth = 4, .slot_bytes = 16384};
    mpath_lane_t *lane;

    CHECK(mpath_shm_create(shm_p) == MPATH_OK);
    CHECK(mpath_shm_port_create(*shm_p, MPATH_SHM_LAST, &shape, port_p) == MPATH_OK);
    world->queues[rank] = *mpath_shm_port_address(*port_p);
    atomic_fetch_add(&world->step, 1);
    while (atomic_load(&world->step) < 4) {
        sched_yield();
    }
    CHECK(mpath_shm_open(*port_p, 8, &world->queues[rank / 2 * 2], 2, rank % 2, &lane) == MPATH_OK);
    atomic_fetch_add(&world->step, 1);
    while (atomic_load(&world->step) < 8) {
        sched_yield();
    }
    return lane;
}

static void relay_rank(rail_world_t *world, int rank, mpath_lane_t *rail)
{
    relay_t *relay = calloc(1, sizeof(*relay));
    mpath_shm_port_t *port;
    mpath_lane_t *shm;
    mpath_shm_t *node;

    CHECK(relay != NULL);
    shm = relay_open(world, rank, &node, &port);
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
    rail_leave(world, rail);
    shm->ops->destroy(shm);
    mpath_shm_port_put(port);
    mpath_shm_destroy(node);
    free(relay);
}

static void test_relay(void **state)
{
    (void)state;
    rail_run_ranks(4, -1, relay_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_quiet_sender),
        cmocka_unit_test(test_relay),
    };
    int missing = rail_check_missing();

    return (missing != 0) ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
