/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The child transport between processes of a node, for relays: found among UCX's own and opened with room for whole
 * packets.
 */
#include "ucx_tl_mpath/relay.h"

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

ucs_status_t uct_mpath_shm_open(uct_mpath_iface_t *iface, uct_mpath_lane_t *lane, uct_worker_h worker,
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
