/* SPDX-License-Identifier: BSD-3-Clause */
/* What libibverbs is asked about a port, of devices that a test shows; all that it gives is given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "topo/discover/machine_internal.h"

#include <infiniband/verbs.h>

#define DEVICES 3
#define PORTS 2

static struct ibv_device devices[DEVICES] = {{.name = "mlx5_1"}, {.name = "mlx5_0"}, {.name = "mlx5_10"}};
static struct ibv_context contexts[DEVICES];
static struct ibv_device *listed[DEVICES + 1]           = {&devices[0], &devices[1], &devices[2]};
static const enum ibv_port_state states[DEVICES][PORTS] = {
    {IBV_PORT_DOWN, IBV_PORT_ACTIVE}, {IBV_PORT_ACTIVE, IBV_PORT_INIT}, {IBV_PORT_ACTIVE_DEFER, IBV_PORT_ARMED}};
static int has_list, is_closed; /* there is a list; a device that cannot be opened, else -1 */
static int lists, opened, asked;

/* The library knows them under names that its header may give to other functions, or under other types. */
struct ibv_device **__wrap_ibv_get_device_list(int *count);
void __wrap_ibv_free_device_list(struct ibv_device **list);
const char *__wrap_ibv_get_device_name(struct ibv_device *device);
struct ibv_context *__wrap_ibv_open_device(struct ibv_device *device);
int __wrap_ibv_close_device(struct ibv_context *context);
int __wrap_ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes);

struct ibv_device **__wrap_ibv_get_device_list(int *count)
{
    lists += has_list;
    *count = DEVICES;
    return has_list ? listed : NULL;
}

void __wrap_ibv_free_device_list(struct ibv_device **list)
{
    assert_ptr_equal(list, listed);
    lists--;
}

const char *__wrap_ibv_get_device_name(struct ibv_device *device)
{
    assert_in_range(device - devices, 0, DEVICES - 1);
    return device->name;
}

struct ibv_context *__wrap_ibv_open_device(struct ibv_device *device)
{
    if (device - devices == is_closed) {
        return NULL;
    }
    opened++;
    return &contexts[device - devices];
}

int __wrap_ibv_close_device(struct ibv_context *context)
{
    assert_in_range(context - contexts, 0, DEVICES - 1);
    opened--;
    return 0;
}

int __wrap_ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes)
{
    assert_in_range(context - contexts, 0, DEVICES - 1);
    assert_int_equal(lists, 0);
    asked++;
    if ((port < 1) || (port > PORTS)) {
        attributes->state = IBV_PORT_ACTIVE;
        return -1;
    }
    attributes->state = states[context - contexts][port - 1];
    return 0;
}

static void assert_port(const char *device, int port, int expected, int asks)
{
    asked = 0;
    assert_int_equal(mpath_verbs_port_state()(device, port), expected);
    assert_int_equal(asked, asks);
    assert_int_equal(lists, 0);
    assert_int_equal(opened, 0);
}

static void test_ports(void **state)
{
    (void)state;
    has_list  = 1;
    is_closed = -1;
    assert_port("mlx5_0", 1, 1, 1);
    assert_port("mlx5_0", 2, 0, 1);
    assert_port("mlx5_1", 1, 0, 1);
    assert_port("mlx5_1", 2, 1, 1);
    assert_port("mlx5_10", 1, 0, 1);
    assert_port("mlx5_10", 2, 0, 1);
}

static void test_no_access(void **state)
{
    (void)state;
    has_list  = 1;
    is_closed = 2;
    assert_port("mlx5_10", 2, -1, 0);
    assert_port("mlx5_0", 3, -1, 1);
    assert_port("mlx5_2", 1, -1, 0); /* there is none */
    has_list = 0;
    assert_port("mlx5_0", 1, -1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ports), cmocka_unit_test(test_no_access)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
