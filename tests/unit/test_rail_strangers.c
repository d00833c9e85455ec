/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes to a rail from senders that have not got its address from the job, and from those that have and send nonsense. */
#include "rail/wire_format.h"
#include "unit/rail_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define OUR_TEAM 7
#define NO_TEAM 0x4242424242424242ull
#define CHUNK_BYTES 16384
#define OUR_CHUNKS 50
#define JUNK_CHUNKS (4 * RAIL_MAX_OPEN / CHUNK_BYTES) /* four times what a rail keeps before it stops to read */

enum { VICTIM, MEMBER, STRANGER, NUM_RANKS };

static int warnings, reports;

static void count_log(mpath_log_level_t level, const char *line)
{
    warnings += (level <= MPATH_LOG_WARN) && (strstr(line, "none of this job's processes; it is dropped") != NULL);
    reports += (level == MPATH_LOG_INFO) && (strstr(line, "none of this job's processes were dropped") != NULL);
}

static void send_chunks(mpath_lane_t *rail, int peer, uint64_t team, int count)
{
    static unsigned char data[CHUNK_BYTES];
    mpath_chunk_t chunk = {.team = team, .bytes = CHUNK_BYTES};
    mpath_lane_op_t op  = {.status = MPATH_OK};
    mpath_status_t status;

    while ((count > 0) || (op.status == MPATH_INPROGRESS)) {
        if (op.status != MPATH_INPROGRESS) {
            status = rail->ops->send(rail, peer, &chunk, data, &op);
            CHECK(!mpath_status_is_error(status));
            count -= (status != MPATH_NO_RESOURCE);
        }
        rail_turn(rail);
        CHECK(!mpath_status_is_error(op.status));
    }
}

/* Knows where the victim listens, as anybody can who looks at ports, and not what the job's processes told each other. */
static void stranger_main(rail_world_t *world, mpath_lane_t *rail)
{
    rail_address_t *head = (rail_address_t *)world->ranks[VICTIM].address;
    char address[MPATH_RAIL_ADDRESS_MAX];
    int peer;

    memcpy(address, head, world->ranks[VICTIM].bytes);
    ((rail_address_t *)address)->uid ^= 1;
    peer = mpath_rail_add_peer(rail, address, world->ranks[VICTIM].bytes, "victim");
    CHECK(peer >= 0);
    send_chunks(rail, peer, NO_TEAM, JUNK_CHUNKS);
}

static void victim_main(rail_world_t *world, mpath_lane_t *rail)
{
    rail_inbox_t *inbox = calloc(1, sizeof(*inbox));

    CHECK(inbox != NULL);
    mpath_log_set_level(MPATH_LOG_INFO);
    mpath_log_set_sink(count_log);
    mpath_lane_set_arrive(rail, rail_inbox_arrive, inbox);
    while ((inbox->count < OUR_CHUNKS) || (atomic_load(&world->step) < 2)) {
        rail_turn(rail);
        for (; inbox->ended < inbox->count; inbox->ended++) {
            CHECK(inbox->arrivals[inbox->ended].chunk.team == OUR_TEAM);
            rail->ops->release(rail, &inbox->arrivals[inbox->ended]);
        }
    }
    CHECK(inbox->count == OUR_CHUNKS);
    CHECK(warnings == 1);
    free(inbox);
    rail_leave(world, rail);
    CHECK(reports == 1);
}

static void strangers_rank(rail_world_t *world, int rank, mpath_lane_t *rail)
{
    rail_inbox_t *inbox = calloc(1, sizeof(*inbox));

    CHECK(inbox != NULL);
    if (rank == VICTIM) {
        victim_main(world, rail);
    } else {
        mpath_lane_set_arrive(rail, rail_inbox_arrive, inbox);
        if (rank == STRANGER) {
            stranger_main(world, rail);
        } else {
            while (atomic_load(&world->step) < 1) {
                rail_turn(rail);
            }
            send_chunks(rail, VICTIM, OUR_TEAM, OUR_CHUNKS);
        }
        atomic_fetch_add(&world->step, 1);
        rail_leave(world, rail);
    }
    free(inbox);
}

/* More than a rail keeps: it stops neither the rail nor what the job's processes send over it, and is named once. */
static void test_junk(void **state)
{
    (void)state;
    rail_run_ranks(NUM_RANKS, -1, strangers_rank);
}

static void test_header(void **state)
{
    rail_wire_t sent = {.receiver = 99, .sender = 5, .chunk = {.team = OUR_TEAM, .bytes = 10}}, wire;
    char longer[sizeof(sent) + 1];

    (void)state;
    assert_int_equal(rail_wire_read(99, &sent, sizeof(sent), 10, &wire), RAIL_WIRE_CHUNK);
    assert_memory_equal(&wire, &sent, sizeof(sent));
    assert_int_equal(rail_wire_read(99, &sent, sizeof(sent), 9, &wire), RAIL_WIRE_BROKEN);
    assert_int_equal(rail_wire_read(99, &sent, sizeof(sent) - 1, 10, &wire), RAIL_WIRE_BROKEN);
    memcpy(longer, &sent, sizeof(sent));
    longer[sizeof(sent)] = 0;
    assert_int_equal(rail_wire_read(99, longer, sizeof(longer), 10, &wire), RAIL_WIRE_BROKEN);
    assert_int_equal(rail_wire_read(98, &sent, sizeof(sent), 10, &wire), RAIL_WIRE_STRANGER);
    assert_int_equal(rail_wire_read(99, &sent, 7, 10, &wire), RAIL_WIRE_STRANGER);
    assert_int_equal(rail_wire_read(99, NULL, 0, 0, &wire), RAIL_WIRE_STRANGER);
    sent.receiver = 0;
    assert_int_equal(rail_wire_read(0, &sent, sizeof(sent), 10, &wire), RAIL_WIRE_STRANGER);
    assert_int_equal(rail_wire_read(0, NULL, 0, 0, &wire), RAIL_WIRE_STRANGER);
}

static void test_address(void **state)
{
    struct {
        rail_address_t head;
        char worker[4];
    } sent;
    rail_address_t head;

    (void)state;
    memset(&sent, 0, sizeof(sent));
    rail_address_write(77, sizeof(sent.worker), &sent.head);
    assert_int_equal(rail_address_read(&sent, sizeof(sent.head) + 4, &head), MPATH_OK);
    assert_int_equal(head.uid, 77);
    assert_int_equal(head.worker_bytes, 4);
    assert_int_equal(rail_address_read(&sent, sizeof(sent.head) + 3, &head), MPATH_ERR_PARAM);
    assert_int_equal(rail_address_read(&sent, sizeof(sent.head) - 1, &head), MPATH_ERR_PARAM);
    sent.head.worker_bytes = 0;
    assert_int_equal(rail_address_read(&sent, sizeof(sent.head) + 4, &head), MPATH_ERR_PARAM);
    sent.head.worker_bytes = UINT32_MAX;
    assert_int_equal(rail_address_read(&sent, sizeof(sent.head) + 4, &head), MPATH_ERR_PARAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_address),
        cmocka_unit_test(test_junk),
    };
    int missing = rail_check_missing();

    return (missing != 0) ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
