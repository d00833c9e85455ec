/* SPDX-License-Identifier: BSD-3-Clause */
/* Which calls end together, so that they can be repeated: those for which that exchange is next to nothing. */
#include "wire/failover.h"
#include "team/team_private.h"
#include "util/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_NODES 64
#define NICS 2

typedef struct shape {
    int nodes, ranks; /* ranks per node */
    const char *nics[NICS];
} shape_t;

/* What the function looks at of a team, and no more. */
static void make_team(const shape_t *shape, int min_ms, mpath_context_t *context, mpath_team_t *team)
{
    const mpath_topo_params_t params = {.access = MPATH_REACH_ALL};
    mpath_machine_t *machines        = calloc((size_t)shape->nodes, sizeof(*machines));

    assert_non_null(machines);
    memset(context, 0, sizeof(*context));
    memset(team, 0, sizeof(*team));
    mpath_settings_init(&context->settings);
    if (min_ms != -1) {
        context->settings.resend_min_ms = min_ms;
    }
    assert_true((min_ms != -1) || (context->settings.resend_min_ms == -1)); /* the default */
    team->context   = context;
    team->num_nodes = shape->nodes;
    team->size      = shape->nodes * shape->ranks;
    team->num_on    = calloc((size_t)shape->nodes, sizeof(int));
    assert_non_null(team->num_on);
    for (int node = 0; node < shape->nodes; node++) {
        machines[node] = (mpath_machine_t){.num_nics = NICS, .num_numa = 1, .host_memory_bps = 1u << 30};
        snprintf(machines[node].host, sizeof(machines[node].host), "node%d", node);
        for (int nic = 0; nic < NICS; nic++) {
            machines[node].nics[nic] = (mpath_nic_t){.rate_bps = 25000000000, .numa = 0, .rail = (int16_t)nic, .up = 1};
            snprintf(machines[node].nics[nic].name, sizeof(machines[node].nics[nic].name), "%s", shape->nics[nic]);
        }
        team->num_on[node] = shape->ranks;
    }
    assert_int_equal(mpath_topo_create(machines, shape->nodes, NULL, 0, &params, &team->topo), MPATH_OK);
    team->settled_from_ns = mpath_team_settled_from_ns(team);
    free(machines);
}

static uint64_t settled_from(const shape_t *shape, int min_ms)
{
    mpath_context_t context;
    mpath_team_t team;
    uint64_t from_ns;

    make_team(shape, min_ms, &context, &team);
    from_ns = team.settled_from_ns;
    assert_int_equal(mpath_team_settles(&team, from_ns), shape->nodes > 1);
    assert_int_equal((from_ns > 0) && mpath_team_settles(&team, from_ns - 1), 0);
    context.settings.resend_after_s = 0;
    assert_int_equal(mpath_team_settles(&team, UINT64_MAX), 0);
    mpath_topo_destroy(team.topo);
    free(team.num_on);
    return from_ns;
}

static const shape_t ports           = {2, 4, {"mlx5_0:1", "mlx5_1:1"}};
static const shape_t interfaces      = {2, 4, {"eth0", "eth1"}};
static const shape_t mixed           = {2, 4, {"mlx5_0:1", "eth1"}};
static const shape_t many_ports      = {MAX_NODES, 8, {"mlx5_0:1", "mlx5_1:1"}};
static const shape_t many_interfaces = {MAX_NODES, 8, {"eth0", "eth1"}};

/* Calls of a few milliseconds, as those of fast networks are, can be repeated there. */
static void test_by_network(void **state)
{
    uint64_t fast = settled_from(&ports, -1), slow = settled_from(&interfaces, -1);

    (void)state;
    assert_in_range(fast, 1 * MPATH_NS_PER_MS, 2 * MPATH_NS_PER_MS);
    assert_in_range(slow, 25 * MPATH_NS_PER_MS, 26 * MPATH_NS_PER_MS);
    assert_int_equal(settled_from(&mixed, -1), slow);
}

/* The first rank of a node tells every other node's, and what it tells grows with the ranks. */
static void test_by_size(void **state)
{
    shape_t more_ranks = ports, more_nodes = ports;

    (void)state;
    more_ranks.ranks = 64;
    more_nodes.nodes = 8;
    assert_true(settled_from(&more_ranks, -1) > settled_from(&ports, -1));
    assert_true(settled_from(&more_nodes, -1) > settled_from(&ports, -1));
    assert_in_range(settled_from(&many_ports, -1), 10 * MPATH_NS_PER_MS, 100 * MPATH_NS_PER_MS);
    assert_true(settled_from(&many_interfaces, -1) > settled_from(&many_ports, -1));
}

static void test_by_parameter(void **state)
{
    const shape_t *shapes[] = {&ports, &interfaces, &many_interfaces};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        assert_int_equal(settled_from(shapes[i], 0), 0);
        assert_int_equal(settled_from(shapes[i], 7), 7 * MPATH_NS_PER_MS);
    }
}

static void test_one_node(void **state)
{
    const shape_t one = {1, 4, {"eth0", "eth1"}};

    (void)state;
    (void)settled_from(&one, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_network),
        cmocka_unit_test(test_by_size),
        cmocka_unit_test(test_by_parameter),
        cmocka_unit_test(test_one_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
