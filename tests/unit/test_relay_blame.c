/* SPDX-License-Identifier: BSD-3-Clause */
/* Which NIC a rank blames where device memory has not moved for long: that of its end of the hop that it waits for. */
#include "capture.h"
#include "mover/relay_private.h"
#include "team/team_private.h"

static int owed; /* the duty of that number is owed what a rail has taken; -1: none */

static const mpath_duty_t *list;

int __wrap_mpath_relay_rails_owe(const mpath_relay_t *relay, const mpath_duty_t *duty);
const char *__wrap_mpath_relay_rails_name(const mpath_relay_t *relay, int nic);
const char *__wrap_mpath_team_host(const mpath_team_t *team, int rank);

int __wrap_mpath_relay_rails_owe(const mpath_relay_t *relay, const mpath_duty_t *duty)
{
    (void)relay;
    return (duty - list) == owed;
}

const char *__wrap_mpath_relay_rails_name(const mpath_relay_t *relay, int nic)
{
    (void)relay;
    (void)nic;
    return "a rail";
}

const char *__wrap_mpath_team_host(const mpath_team_t *team, int rank)
{
    (void)team;
    (void)rank;
    return "a host";
}

/* A duty of which something is left: it waits for what comes over NIC 3, or sends over NIC 5. */
static mpath_duty_t duty_of(int comes_by_rail, int goes_by_rail)
{
    mpath_duty_t duty = {.bytes = 100, .done_bytes = 50, .num_chunks = 4, .arrived_chunks = 2};

    duty.in  = (mpath_hop_t){.lane = comes_by_rail ? MPATH_LANE_RAIL : MPATH_LANE_SHM, .nic_from = 2, .nic_to = 3};
    duty.out = (mpath_hop_t){.lane = goes_by_rail ? MPATH_LANE_RAIL : MPATH_LANE_SHM, .nic_from = 5, .nic_to = 6};
    return duty;
}

static void assert_pair(mpath_duty_t first, mpath_duty_t second, int owes, uint32_t lost)
{
    mpath_team_t team         = {.oob = {.name = "a team"}};
    mpath_duty_t duties[2]    = {first, second};
    mpath_schedule_t schedule = {.duties = duties, .num_duties = 2};
    mpath_relay_t relay       = {.team = &team, .bound = {.schedule = &schedule}};

    list = duties;
    owed = owes;
    capture_start();
    assert_int_equal(mpath_relay_give_rails_up(&relay, 7), (lost != 0) ? MPATH_ERR_UNREACHABLE : MPATH_OK);
    capture_stop();
    assert_int_equal(relay.lost, lost);
    assert_int_equal(capture_count(), lost != 0); /* the first one is named */
}

/* In either place beside a duty of which no rail has a part. `owes`: its rail does, which is seen after the others. */
static void assert_blames(mpath_duty_t duty, int owes, uint32_t lost)
{
    assert_pair(duty_of(0, 0), duty, owes ? 1 : -1, lost);
    assert_pair(duty, duty_of(0, 0), owes ? 0 : -1, lost);
}

static void test_blame(void **state)
{
    mpath_duty_t duty = duty_of(1, 1);

    (void)state;
    assert_pair(duty_of(1, 0), duty_of(1, 1), -1, 1u << 3);
    assert_blames(duty_of(1, 0), 0, 1u << 3);
    assert_blames(duty_of(1, 1), 0, 1u << 3);
    assert_blames(duty_of(0, 1), 0, 0); /* what does not come cannot be sent */
    assert_blames(duty_of(0, 0), 0, 0);
    duty.arrived_chunks = 4; /* all is here */
    assert_blames(duty, 0, 1u << 5);
    assert_pair(duty, duty_of(1, 0), -1, 1u << 5 | 1u << 3);
    duty.hop_in         = MPATH_DUTY_NO_HOP; /* it was from the beginning */
    duty.arrived_chunks = 0;
    assert_blames(duty, 0, 1u << 5);
    duty.done_bytes = duty.bytes;
    assert_blames(duty, 0, 0);
    assert_blames(duty, 1, 1u << 5); /* all has been sent, and not all has been taken */
    duty         = duty_of(1, 0);
    duty.hop_out = MPATH_DUTY_NO_HOP; /* its last stop */
    assert_blames(duty, 0, 1u << 3);
    assert_blames(duty, 1, 1u << 3); /* one reason is enough */
    duty.arrived_chunks = 4;
    duty.out.lane       = MPATH_LANE_RAIL; /* there is none */
    assert_blames(duty, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blame)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
