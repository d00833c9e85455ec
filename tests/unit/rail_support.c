/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of the rail lane's tests: how they start, learn of each other, exchange chunks and end. */
#include "unit/rail_support.h"

#include "unit/child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define EXIT_SKIP 77

const char *rail_nic = "lo", *rail_tls;

mpath_lane_t *rail_open(size_t max_open)
{
    mpath_rail_params_t params = {
        .nic = rail_nic, .tls = rail_tls, .max_chunk_bytes = RAIL_MAX_CHUNK, .max_open_arrival_bytes = max_open};
    mpath_lane_t *rail;

    return (mpath_rail_open(&params, &rail) == MPATH_OK) ? rail : NULL;
}

void rail_turn(mpath_lane_t *rail)
{
    int events = rail->ops->progress(rail);

    CHECK(events >= 0);
    if (events == 0) {
        sched_yield();
    }
}

/* Opens the rail and makes all ranks known under their ranks (its own number is given out, too). */
static mpath_lane_t *rail_join(rail_world_t *world, int rank)
{
    mpath_lane_t *rail = rail_open(RAIL_MAX_OPEN);
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

void rail_leave(rail_world_t *world, mpath_lane_t *rail)
{
    atomic_fetch_add(&world->done, 1);
    while (atomic_load(&world->done) < world->num_ranks) {
        rail_turn(rail);
    }
    rail->ops->destroy(rail);
}

void rail_run_ranks(int num_ranks, int victim, rail_rank_main_t rank_main)
{
    pid_t children[RAIL_MAX_RANKS];
    rail_world_t *world;
    int rank;

    world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(world != MAP_FAILED);
    world->num_ranks = num_ranks;
    for (rank = 0; rank < num_ranks; rank++) {
        children[rank] = child_fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) {
            lane_child_start();
            rank_main(world, rank, rail_join(world, rank));
            _exit(0);
        }
    }
    assert_int_equal(child_wait_all(children, num_ranks, victim), 0);
    munmap(world, sizeof(*world));
}

void rail_run_child(void (*child_main)(void))
{
    pid_t child = child_fork();

    assert_true(child >= 0);
    if (child == 0) {
        lane_child_start();
        child_main();
        _exit(0);
    }
    assert_int_equal(child_wait_all(&child, 1, -1), 0);
}

void rail_inbox_arrive(void *argument, const mpath_arrival_t *arrival)
{
    rail_inbox_t *inbox = argument;

    CHECK(inbox->count < INBOX_CHUNKS);
    inbox->arrivals[inbox->count++] = *arrival;
}

void rail_exchange(mpath_lane_t *rail, int peer, rail_inbox_t *inbox, int chunks)
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
        rail_turn(rail);
        CHECK(!mpath_status_is_error(op.status));
        for (; inbox->ended < inbox->count; inbox->ended++) {
            CHECK(inbox->arrivals[inbox->ended].peer == peer);
            rail->ops->release(rail, &inbox->arrivals[inbox->ended]);
        }
        sched_yield();
    }
}

static void can_open_main(void)
{
    mpath_lane_t *rail = rail_open(RAIL_MAX_OPEN);

    _exit((rail != NULL) ? 0 : EXIT_SKIP);
}

int rail_check_missing(void)
{
    pid_t child = child_fork();
    int status;

    if (child == 0) {
        can_open_main();
    }
    if ((child < 0) || (waitpid(child, &status, 0) != child) || (status != 0)) {
        printf("SKIP: UCX offers no tcp on the loopback device here\n");
        return EXIT_SKIP;
    }
    return 0;
}
