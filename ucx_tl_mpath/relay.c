/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface as a relay: whether it is one, its interface in the node's shared memory, and its progress, in which it
 * watches its neighbours while it has connections to them.
 */
#include "ucx_tl_mpath/relay.h"

#include "util/time.h"

#include <stdlib.h>
#include <string.h>

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
    if (uct_mpath_shm_open(iface, &relay->shm, worker, params, &config->relay_tls, &relay->shm_md, shm_addr) !=
        UCS_OK) {
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
    uct_mpath_echo_open(relay, shm_addr);
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
    uct_mpath_echo_close(relay);
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
        uct_mpath_echo_look(relay, now_ns);
    }
    if (relay->echo_due) {
        uct_mpath_echo_send(relay);
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
