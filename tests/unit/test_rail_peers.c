/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers of the rail lane that die, do not read any more, or are forgotten and known again. */
#include "rail/rail.h"
#include "unit/rail_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* -- one of three is killed: sends to it fail, a receiver that only waits for it notices, the others go on -- */

static void killed_rank(rail_world_t *world, int rank, mpath_lane_t *rail)
{
    rail_inbox_t *inbox = calloc(1, sizeof(*inbox));
    mpath_chunk_t chunk = {.bytes = RAIL_MAX_CHUNK};
    unsigned char *data = calloc(1, RAIL_MAX_CHUNK);
    mpath_lane_op_t op;
    mpath_status_t status;

    CHECK((inbox != NULL) && (data != NULL));
    mpath_log_set_sink(lane_ignore_log);
    mpath_lane_set_arrive(rail, rail_inbox_arrive, inbox);
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
                rail_turn(rail);
                if (atomic_exchange(&world->step, 0) == 1) {
                    kill(world->ranks[2].pid, SIGKILL);
                }
            }
            rail_turn(rail);
            if (atomic_exchange(&world->step, 0) == 1) {
                kill(world->ranks[2].pid, SIGKILL);
            }
        } while (!mpath_status_is_error(status) && !mpath_status_is_error(op.status));
        CHECK((status == MPATH_ERR_UNREACHABLE) || (op.status == MPATH_ERR_UNREACHABLE));
        CHECK(rail->ops->send(rail, 2, &chunk, data, &op) == MPATH_ERR_UNREACHABLE);
    } else { /* never sends to 2 */
        while (rail->ops->peer_status(rail, 2) == MPATH_OK) {
            rail_turn(rail);
        }
    }
    CHECK(rail->ops->peer_status(rail, 2) == MPATH_ERR_UNREACHABLE);
    rail_exchange(rail, 1 - rank, inbox, 200);
    CHECK(rail->ops->peer_status(rail, 1 - rank) == MPATH_OK);
    atomic_fetch_add(&world->done, (rank == 0) ? 1 : 0); /* for the dead one */
    rail_leave(world, rail);
    free(inbox);
    free(data);
}

static void test_killed_peer(void **state)
{
    (void)state;
    rail_run_ranks(3, 2, killed_rank);
}

/* -- abort with chunks under way to a peer that does not read: the memory goes away, the rest goes on -- */

static int by_peer; /* only the connection to that peer */

/* Gives up what is sent to peer 2. */
static void give_up(mpath_lane_t *rail, const mpath_lane_op_t *ops, int num_ops)
{
    if (!by_peer) {
        rail->ops->abort(rail);
        return;
    }
    mpath_rail_abort_peer(rail, 1); /* nothing is under way to it */
    mpath_rail_abort_peer(rail, 2);
    for (int i = 0; i < num_ops; i++) {
        while (ops[i].status == MPATH_INPROGRESS) {
            rail_turn(rail);
        }
    }
}

/* Reads until the connection is there, then no more, until `step` says so. */
static void stop_reading(rail_world_t *world, mpath_lane_t *rail, const rail_inbox_t *inbox)
{
    while (inbox->count == 0) {
        rail_turn(rail);
    }
    atomic_store(&world->asleep, 1);
    while (atomic_load(&world->step) == 0) {
        sched_yield();
    }
}

/* Sends to a peer that stops to read until nothing goes any more; how many. */
static int send_until_full(rail_world_t *world, mpath_lane_t *rail, int peer, const void *data, mpath_lane_op_t *ops)
{
    mpath_chunk_t chunk = {.bytes = RAIL_MAX_CHUNK};
    int sent = 0, idle = 0, unfinished = 0;
    mpath_status_t status;

    while (idle < 2000) {
        CHECK(sent < INBOX_CHUNKS);
        idle   = atomic_load(&world->asleep) ? idle : 0;
        status = rail->ops->send(rail, peer, &chunk, data, &ops[sent]);
        CHECK(!mpath_status_is_error(status));
        sent += (status != MPATH_NO_RESOURCE);
        idle = (status == MPATH_NO_RESOURCE) ? idle + 1 : 0;
        rail_turn(rail);
    }
    for (int i = 0; i < sent; i++) {
        unfinished += (ops[i].status == MPATH_INPROGRESS);
    }
    CHECK(unfinished > 0);
    return sent;
}

static void abort_rank(rail_world_t *world, int rank, mpath_lane_t *rail)
{
    rail_inbox_t *inbox = calloc(1, sizeof(*inbox));
    mpath_chunk_t chunk = {.bytes = RAIL_MAX_CHUNK};
    mpath_lane_op_t ops[INBOX_CHUNKS];
    int sent, unfinished = 0, i;
    void *data;

    CHECK(inbox != NULL);
    mpath_log_set_sink(lane_ignore_log);
    mpath_lane_set_arrive(rail, rail_inbox_arrive, inbox);
    if (rank == 2) {
        stop_reading(world, rail, inbox);
    } else {
        rail_exchange(rail, 1 - rank, inbox, 10);
    }
    if (rank == 0) {
        data = mmap(NULL, RAIL_MAX_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(data != MAP_FAILED);
        memset(data, 7, RAIL_MAX_CHUNK);
        sent = send_until_full(world, rail, 2, data, ops);
        for (i = 0; i < sent; i++) {
            unfinished += (ops[i].status == MPATH_INPROGRESS);
        }
        give_up(rail, ops, sent);
        munmap(data, RAIL_MAX_CHUNK);
        for (i = 0; i < sent; i++) {
            CHECK(ops[i].status != MPATH_INPROGRESS);
            unfinished -= (ops[i].status == MPATH_ERR_UNREACHABLE);
        }
        CHECK(unfinished == 0);
        memset(ops, 0x55, sizeof(ops)); /* nobody writes them any more */
        for (i = 0; i < 2000; i++) {
            rail_turn(rail);
        }
        CHECK(((unsigned char *)ops)[0] == 0x55);
        CHECK(rail->ops->send(rail, 2, &chunk, inbox, &ops[0]) == MPATH_ERR_UNREACHABLE);
        atomic_store(&world->step, 1);
    }
    if (rank < 2) {
        rail_exchange(rail, 1 - rank, inbox, 100);
    }
    rail_leave(world, rail);
    free(inbox);
}

static void test_abort(void **state)
{
    (void)state;
    by_peer = 0;
    rail_run_ranks(3, -1, abort_rank);
}

static void test_abort_peer(void **state)
{
    (void)state;
    by_peer = 1;
    rail_run_ranks(3, -1, abort_rank);
}

/*
 * The peer reads what had come, and closes, before the aborting rank looks again: its end comes in, and its socket can be
 * written, at a time.
 */
static void closed_rank(rail_world_t *world, int rank, mpath_lane_t *rail)
{
    rail_inbox_t *inbox = calloc(1, sizeof(*inbox));
    mpath_lane_op_t ops[INBOX_CHUNKS];
    static unsigned char data[RAIL_MAX_CHUNK];
    int sent;

    CHECK(inbox != NULL);
    mpath_log_set_sink(lane_ignore_log);
    mpath_lane_set_arrive(rail, rail_inbox_arrive, inbox);
    rail_exchange(rail, 1 - rank, inbox, 10);
    if (rank == 1) {
        stop_reading(world, rail, inbox);
        for (int idle = 0; idle < 1000; idle++) {
            idle = (rail->ops->progress(rail) > 0) ? 0 : idle;
            for (; inbox->ended < inbox->count; inbox->ended++) {
                rail->ops->release(rail, &inbox->arrivals[inbox->ended]);
            }
        }
    } else {
        sent = send_until_full(world, rail, 1, data, ops);
        if (by_peer) {
            mpath_rail_abort_peer(rail, 1);
            for (int i = 0; i < sent; i++) {
                while (ops[i].status == MPATH_INPROGRESS) {
                    rail_turn(rail);
                }
            }
        } else {
            rail->ops->abort(rail);
        }
        for (int i = 0; i < 200; i++) { /* lets UCX close */
            rail_turn(rail);
        }
        atomic_store(&world->step, 1);
        while (atomic_load(&world->finished) == 0) {
            sched_yield();
        }
        for (int i = 0; i < 200; i++) {
            rail_turn(rail);
        }
    }
    rail->ops->destroy(rail);
    atomic_store(&world->finished, 1);
    free(inbox);
}

static void test_abort_closed(void **state)
{
    (void)state;
    /* Without rail/socket.c some of these end by SIGSEGV: it depends on what has got the memory that UCX has freed. */
    for (int round = 0; round < 6; round++) {
        by_peer = round % 2;
        rail_run_ranks(2, -1, closed_rank);
    }
}

/* -- a peer that was forgotten and is known again, under the same number or another -- */

static void again_rank(rail_world_t *world, int rank, mpath_lane_t *rail)
{
    rail_inbox_t *inbox = calloc(1, sizeof(*inbox));
    int round, i, peer = 1 - rank;

    CHECK(inbox != NULL);
    mpath_lane_set_arrive(rail, rail_inbox_arrive, inbox);
    for (round = 1; round <= 5; round++) {
        rail_exchange(rail, peer, inbox, 20);
        atomic_fetch_add(&world->step, 1);
        while (atomic_load(&world->step) < 2 * round) {
            rail_turn(rail);
        }
        /* Only one side forgets; the other one sees its idle connection end and makes a new one. */
        if (rank == round % 2) {
            mpath_rail_remove_peer(rail, peer);
            CHECK(mpath_rail_add_peer(rail, world->ranks[peer].address, world->ranks[peer].bytes, "again") == peer);
        } else {
            while (atomic_load(&world->done) < round) {
                rail_turn(rail);
            }
        }
        for (i = 0; i < 200; i++) { /* lets the close go out, or come in */
            rail_turn(rail);
        }
        atomic_fetch_add(&world->done, (rank == round % 2) ? 1 : 0);
    }
    rail_exchange(rail, peer, inbox, 20);
    atomic_fetch_add(&world->step, 1);
    while (atomic_load(&world->step) < 12) {
        rail_turn(rail);
    }
    rail->ops->destroy(rail);
    free(inbox);
}

static void test_peer_again(void **state)
{
    (void)state;
    rail_run_ranks(2, -1, again_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_peer),  cmocka_unit_test(test_abort),      cmocka_unit_test(test_abort_peer),
        cmocka_unit_test(test_abort_closed), cmocka_unit_test(test_peer_again),
    };
    int missing = rail_check_missing();

    return (missing != 0) ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
