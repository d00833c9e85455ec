/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of all neighbours lie in one queue of the receiver in shared memory. One that is killed while it writes
 * leaves a place there that nobody fills, and what lies behind it is never read. So an interface sends itself a message
 * from time to time. When that does not come, it opens its shared memory anew and writes into the table of neighbours
 * where it is now; what lay in the old queue is lost, as with any relay that ends.
 */
#include "ucx_tl_mpath/relay.h"

#include "util/time.h"

#include <string.h>

#define ECHO_NS MPATH_NS_PER_S
#define SILENT_LOOKS 20 /* looks at the neighbours, with an echo under way: a process in no progress is not silent */

void uct_mpath_echo_open(uct_mpath_relay_t *relay, const uint8_t *shm_addr)
{
    uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                                            UCT_EP_PARAM_FIELD_IFACE_ADDR,
                              .iface      = relay->shm.child,
                              .dev_addr   = (const uct_device_addr_t *)shm_addr,
                              .iface_addr = (const uct_iface_addr_t *)(shm_addr + MPATH_NEIGHBOUR_SHM_MAX)};

    relay->echo_due       = 0;
    relay->echo_under_way = 0;
    if (uct_ep_create(&params, &relay->echo) != UCS_OK) {
        relay->echo = NULL;
    }
}

void uct_mpath_echo_close(uct_mpath_relay_t *relay)
{
    if (relay->echo != NULL) {
        uct_ep_destroy(relay->echo);
        relay->echo     = NULL;
        relay->echo_due = 0;
    }
}

static size_t pack_echo(void *destination, void *arg)
{
    const uct_mpath_relay_t *relay = arg;
    const uct_mpath_credit_t echo  = {.uid = relay->iface->uid, .rail = UCT_MPATH_RAIL_SHM, .count = 0};

    memcpy(destination, &echo, sizeof(echo));
    return sizeof(echo);
}

void uct_mpath_echo_send(uct_mpath_relay_t *relay)
{
    relay->echo_due = uct_ep_am_bcopy(relay->echo, UCT_MPATH_ID_CREDIT, pack_echo, relay, 0) < 0;
}

/* Those that come to be while others are buried have no endpoint yet and stay. */
static void bury_hops(uct_mpath_relay_t *relay)
{
    uct_mpath_hop_t *hop, *next;

    ucs_list_for_each_safe(hop, next, &relay->hops, list)
    {
        if (hop->rail == UCT_MPATH_RAIL_SHM && hop->ep != NULL) {
            uct_mpath_hop_bury(hop);
        }
    }
}

static void rejoin(uct_mpath_relay_t *relay)
{
    const uct_mpath_lane_t old = relay->shm;
    const uct_md_h old_md      = relay->shm_md;
    char transport[sizeof(old.name)];
    char *names[]                             = {transport};
    const ucs_config_names_array_t transports = {.names = names, .count = 1};
    uint8_t shm_addr[2 * MPATH_NEIGHBOUR_SHM_MAX];

    ucs_diag("mpath: a process of this node ended in the middle of a message; all relays here connect anew");
    memcpy(transport, old.name, sizeof(transport));
    bury_hops(relay);
    uct_mpath_echo_close(relay);
    if (uct_mpath_shm_open(relay->iface, &relay->shm, &relay->iface->super.worker->super, &relay->params, &transports,
                           &relay->shm_md, shm_addr) != UCS_OK) {
        relay->shm    = old;
        relay->shm_md = old_md;
        ucs_warn("mpath: no relays any more: a process of this node ended in the middle of a message, and shared "
                 "memory does not open anew");
        return;
    }
    uct_iface_close(old.child);
    uct_md_close(old_md);
    uct_mpath_relay_tell_address(relay, shm_addr);
    uct_mpath_echo_open(relay, shm_addr);
}

void uct_mpath_echo_look(uct_mpath_relay_t *relay, uint64_t now_ns)
{
    if (relay->echo == NULL || ucs_list_is_empty(&relay->hops)) {
        return;
    }
    if (!relay->echo_under_way && now_ns - relay->echo_ns >= ECHO_NS) {
        relay->echo_ns        = now_ns;
        relay->echo_due       = 1;
        relay->echo_under_way = 1;
        relay->silent_looks   = 0;
    } else if (relay->echo_under_way && ++relay->silent_looks >= SILENT_LOOKS) {
        rejoin(relay);
    }
}
