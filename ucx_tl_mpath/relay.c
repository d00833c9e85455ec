/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface as a relay: whether it is one, its interface in the shared memory of the node, found among the transports
 * of UCX and opened with room for whole packets, and its progress, in which it watches its neighbours while it has
 * connections to them.
 *
 * Messages of all neighbours lie in one queue of the receiver in shared memory. One that is killed while it writes
 * leaves a place there that nobody fills, and what lies behind it is never read. So an interface sends itself a message
 * from time to time. When that does not come, it opens its shared memory anew and writes into the table of neighbours
 * where it is now; what lay in the old queue is lost, as with any relay that ends.
 */
#include "ucx_tl_mpath/relay.h"

#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/* The first device of the transport, in the memory domain of the same name. */
static ucs_status_t open_md(uct_component_h component, const char *transport, uct_md_h *md_p, char *device)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    uct_tl_resource_desc_t *resources;
    uct_md_config_t *config;
    ucs_status_t status;
    unsigned count, i;

    status = uct_component_query(component, &attr);
    if (status != UCS_OK || strcmp(attr.name, transport) != 0) {
        return UCS_ERR_NO_DEVICE;
    }
    status = uct_md_config_read(component, NULL, NULL, &config);
    if (status != UCS_OK) {
        return status;
    }
    status = uct_md_open(component, transport, config, md_p);
    uct_config_release(config);
    if (status != UCS_OK) {
        return status;
    }
    status = uct_md_query_tl_resources(*md_p, &resources, &count);
    if (status != UCS_OK) {
        goto err_close;
    }
    status = UCS_ERR_NO_DEVICE;
    for (i = 0; i < count && status != UCS_OK; ++i) {
        if (strcmp(resources[i].tl_name, transport) == 0) {
            ucs_snprintf_zero(device, UCT_DEVICE_NAME_MAX, "%s", resources[i].dev_name);
            status = UCS_OK;
        }
    }
    uct_release_tl_resource_list(resources);
    if (status == UCS_OK) {
        return UCS_OK;
    }

err_close:
    uct_md_close(*md_p);
    return status;
}

static ucs_status_t take_handlers(uct_mpath_lane_t *lane)
{
    ucs_status_t status;

    status = uct_iface_set_am_handler(lane->child, UCT_MPATH_ID_RELAY, uct_mpath_relay_message, lane, 0);
    if (status == UCS_OK) {
        status = uct_iface_set_am_handler(lane->child, UCT_MPATH_ID_ROUTE, uct_mpath_route_message, lane, 0);
    }
    if (status == UCS_OK) {
        status = uct_iface_set_am_handler(lane->child, UCT_MPATH_ID_CREDIT, uct_mpath_credit_message, lane, 0);
    }
    return status;
}

static ucs_status_t use_lane(const uct_mpath_iface_t *iface, uct_mpath_lane_t *lane, uint8_t *addresses)
{
    const uint64_t needed = UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_AM_BCOPY;
    ucs_status_t status;

    if ((lane->attr.cap.flags & needed) != needed || lane->attr.device_addr_len > MPATH_NEIGHBOUR_SHM_MAX ||
        lane->attr.iface_addr_len > MPATH_NEIGHBOUR_SHM_MAX ||
        iface->segment_bytes + sizeof(uct_mpath_relay_head_t) > UINT16_MAX || /* its messages have no more */
        lane->attr.cap.am.max_bcopy < iface->segment_bytes + sizeof(uct_mpath_relay_head_t)) {
        return UCS_ERR_UNSUPPORTED;
    }
    status = take_handlers(lane);
    if (status == UCS_OK) {
        status = uct_iface_get_device_address(lane->child, (uct_device_addr_t *)addresses);
    }
    if (status == UCS_OK) {
        status = uct_iface_get_address(lane->child, (uct_iface_addr_t *)(addresses + MPATH_NEIGHBOUR_SHM_MAX));
    }
    if (status == UCS_OK) {
        uct_iface_progress_enable(lane->child, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    }
    return status;
}

static ucs_status_t open_transport(uct_mpath_iface_t *iface, uct_mpath_lane_t *lane, uct_worker_h worker,
                                   const uct_iface_params_t *params, const char *transport, uct_component_h component,
                                   uct_md_h *md_p, uint8_t *addresses)
{
    char device[UCT_DEVICE_NAME_MAX];
    ucs_status_t status;

    status = open_md(component, transport, md_p, device);
    if (status != UCS_OK) {
        return status;
    }
    lane->iface = iface;
    ucs_snprintf_zero(lane->name, sizeof(lane->name), "%s", transport);
    status = uct_mpath_child_open(lane, *md_p, transport, device, worker, params,
                                  iface->segment_bytes + sizeof(uct_mpath_relay_head_t));
    if (status != UCS_OK) {
        goto err_close_md;
    }
    status = use_lane(iface, lane, addresses);
    if (status != UCS_OK) {
        goto err_close;
    }
    return UCS_OK;

err_close:
    uct_iface_close(lane->child);
    lane->child = NULL;
err_close_md:
    uct_md_close(*md_p);
    return status;
}

/* The same for the first of `transports` that processes of this node have, with its memory domain; addresses: of
 * the device and, behind MPATH_NEIGHBOUR_SHM_MAX bytes, of the interface. */
static ucs_status_t relay_shm_open(uct_mpath_iface_t *iface, uct_mpath_lane_t *lane, uct_worker_h worker,
                                   const uct_iface_params_t *params, const ucs_config_names_array_t *transports,
                                   uct_md_h *md_p, uint8_t *addresses)
{
    uct_component_h *components;
    ucs_status_t status;
    unsigned count, i, t;

    status = uct_query_components(&components, &count);
    if (status != UCS_OK) {
        return status;
    }
    status = UCS_ERR_NO_DEVICE;
    for (t = 0; t < transports->count && status != UCS_OK; ++t) {
        for (i = 0; i < count && status != UCS_OK; ++i) {
            status = open_transport(iface, lane, worker, params, transports->names[t], components[i], md_p, addresses);
        }
    }
    uct_release_component_list(components);
    return status;
}

#define ECHO_NS MPATH_NS_PER_S
#define SILENT_LOOKS 20 /* looks at the neighbours, with an echo under way: a process in no progress is not silent */

/* Messages to this interface itself, by which it finds out that its queue in shared memory is stuck. */
static void echo_open(uct_mpath_relay_t *relay, const uint8_t *shm_addr)
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

static void echo_close(uct_mpath_relay_t *relay)
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

static void echo_send(uct_mpath_relay_t *relay)
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
    echo_close(relay);
    if (relay_shm_open(relay->iface, &relay->shm, &relay->iface->super.worker->super, &relay->params, &transports,
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
    echo_open(relay, shm_addr);
}

/* Called from time to time. */
static void echo_look(uct_mpath_relay_t *relay, uint64_t now_ns)
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

#define LOOK_NS (50 * MPATH_NS_PER_MS)
#define LAST_MESSAGES_NS (20 * MPATH_NS_PER_MS)

/* Its shared memory is another now. */
static int has_moved(const uct_mpath_relay_t *relay, const uct_mpath_hop_t *hop)
{
    mpath_neighbour_card_t card;

    return !mpath_neighbours_card(relay->neighbours, hop->slot, &card) ||
           memcmp(card.iface, hop->iface_addr, card.iface_length) != 0;
}

static void watch_neighbours(uct_mpath_relay_t *relay)
{
    uct_mpath_hop_t *hop;
    int changed = mpath_neighbours_version(relay->neighbours) != relay->version;

    ucs_list_for_each(hop, &relay->hops, list)
    {
        if (hop->rail == UCT_MPATH_RAIL_SHM &&
            (!mpath_neighbours_alive(relay->neighbours, hop->slot, hop->uid) || has_moved(relay, hop))) {
            hop->broken = 1;
            changed     = 1;
        }
    }
    if (changed) {
        uct_mpath_relay_look(relay);
    }
}

static void tell_demand(uct_mpath_relay_t *relay, uint64_t now_ns)
{
    double seconds = (double)(now_ns - relay->looked_ns) / (double)MPATH_NS_PER_S;

    if (relay->looked_ns != 0) {
        mpath_neighbours_set_demand(relay->neighbours,
                                    (uint64_t)((double)(relay->iface->sent_bytes - relay->looked_bytes) / seconds));
    }
    relay->looked_ns    = now_ns;
    relay->looked_bytes = relay->iface->sent_bytes;
}

static int wanted(const uct_mpath_md_t *md, const uct_mpath_iface_config_t *config)
{
    return config->relays == UCS_YES || (config->relays == UCS_TRY && md->num_left_out > 0);
}

void uct_mpath_relay_open(uct_mpath_iface_t *iface, const uct_mpath_md_t *md, uct_worker_h worker,
                          const uct_iface_params_t *params, const uct_mpath_iface_config_t *config)
{
    char group[256];
    uint8_t shm_addr[2 * MPATH_NEIGHBOUR_SHM_MAX];
    mpath_neighbour_card_t card;
    uct_mpath_relay_t *relay;
    mpath_status_t status;

    if (!wanted(md, config)) {
        return;
    }
    status = mpath_neighbours_group(config->relay_group, group, sizeof(group));
    if (status != MPATH_OK) {
        ucs_log(config->relays == UCS_YES ? UCS_LOG_LEVEL_WARN : UCS_LOG_LEVEL_DIAG, "mpath: no relays: %s",
                status == MPATH_DECLINED
                    ? "no launcher names the job in the environment, and UCX_MPATH_RELAY_GROUP is empty"
                    : "the job's name in the environment or in UCX_MPATH_RELAY_GROUP is too long");
        return;
    }
    relay = calloc(1, sizeof(*relay));
    if (relay == NULL) {
        return;
    }
    relay->iface             = iface;
    relay->params.field_mask = params->field_mask & UCT_IFACE_PARAM_FIELD_CPU_MASK;
    relay->params.cpu_mask   = params->cpu_mask;
    ucs_list_head_init(&relay->hops);
    if (relay_shm_open(iface, &relay->shm, worker, params, &config->relay_tls, &relay->shm_md, shm_addr) != UCS_OK) {
        ucs_warn("mpath: no relays: none of UCX_MPATH_RELAY_TLS can be used between processes of this node");
        goto err_free;
    }
    uct_mpath_relay_write_card(iface, relay, shm_addr, &card);
    status = mpath_neighbours_join(NULL, group, &card, &relay->neighbours);
    if (status != MPATH_OK) {
        ucs_warn("mpath: no relays: the table of this node's processes in /dev/shm cannot be used: %s",
                 mpath_status_string(status));
        goto err_close;
    }
    relay->shm.number = UCT_MPATH_RAIL_SHM;
    iface->relay      = relay;
    echo_open(relay, shm_addr);
    uct_mpath_relay_look(relay);
    return;

err_close:
    uct_iface_close(relay->shm.child);
    uct_md_close(relay->shm_md);
err_free:
    free(relay);
}

static int has_queued(const uct_mpath_relay_t *relay)
{
    uct_mpath_hop_t *hop;

    ucs_list_for_each(hop, &relay->hops, list)
    {
        if (!ucs_list_is_empty(&hop->queue) && !hop->broken) {
            return 1;
        }
    }
    return 0;
}

void uct_mpath_relay_close(uct_mpath_iface_t *iface)
{
    uct_mpath_relay_t *relay = iface->relay;
    uint64_t end_ns          = mpath_time_ns() + LAST_MESSAGES_NS;

    if (relay == NULL) {
        return;
    }
    mpath_neighbours_leave(relay->neighbours);
    relay->neighbours = NULL;
    relay->num_slots  = 0;
    while (has_queued(relay) && mpath_time_ns() < end_ns) {
        uct_mpath_hop_t *hop;

        ucs_list_for_each(hop, &relay->hops, list)
        {
            if (!hop->broken) {
                (void)uct_mpath_hop_progress(hop);
            }
        }
    }
    while (!ucs_list_is_empty(&relay->hops)) {
        uct_mpath_hop_close(ucs_list_head(&relay->hops, uct_mpath_hop_t, list));
    }
    echo_close(relay);
    uct_iface_close(relay->shm.child);
    uct_md_close(relay->shm_md);
    uct_mpath_relayed_free(relay);
    iface->relay = NULL;
    free(relay);
}

unsigned uct_mpath_relay_progress(uct_mpath_iface_t *iface, uint64_t now_ns)
{
    uct_mpath_relay_t *relay = iface->relay;
    unsigned count           = uct_iface_progress(relay->shm.child);
    uct_mpath_hop_t *hop, *next;

    if (now_ns - relay->looked_ns >= LOOK_NS) {
        tell_demand(relay, now_ns);
        watch_neighbours(relay);
        echo_look(relay, now_ns);
    }
    if (relay->echo_due) {
        echo_send(relay);
    }
    ucs_list_for_each_safe(hop, next, &relay->hops, list)
    {
        if (hop->broken) {
            uct_mpath_hop_bury(hop);
        } else {
            count += uct_mpath_hop_progress(hop);
        }
    }
    return count;
}
