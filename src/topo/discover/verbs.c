/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asks libibverbs about a port. Sysfs shows the devices of the host even where a container has no access to them; only
 * opening a device tells.
 */
#include "topo/discover/machine_internal.h"

#include <infiniband/verbs.h>
#include <string.h>

static struct ibv_context *device_open(const char *name)
{
    struct ibv_context *context = NULL;
    struct ibv_device **devices;
    int i, count;

    devices = ibv_get_device_list(&count);
    if (devices == NULL) {
        return NULL;
    }
    for (i = 0; i < count; i++) {
        if (strcmp(ibv_get_device_name(devices[i]), name) == 0) {
            context = ibv_open_device(devices[i]);
            break;
        }
    }
    ibv_free_device_list(devices);
    return context;
}

static int port_state(const char *device, int port)
{
    struct ibv_port_attr attributes;
    struct ibv_context *context;
    int state = -1;

    context = device_open(device);
    if (context == NULL) {
        return -1;
    }
    if (ibv_query_port(context, (uint8_t)port, &attributes) == 0) {
        state = (attributes.state == IBV_PORT_ACTIVE);
    }
    ibv_close_device(context);
    return state;
}

mpath_port_state_t mpath_verbs_port_state(void)
{
    return port_state;
}
