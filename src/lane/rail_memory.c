/* SPDX-License-Identifier: BSD-3-Clause */
/* Rails that read and write GPU memory themselves: what is registered, and how send and take tell UCX of it. */
#include "lane/rail_memory.h"

#include "lane/rail_private.h"
#include "util/log.h"

#include <stdlib.h>

int mpath_rail_memory_usable(const mpath_lane_t *lane)
{
    const rail_t *rail = (const rail_t *)lane;

    return rail->has_cuda && (rail->worker != NULL);
}

static rail_region_t *region_at(const rail_t *rail, uint64_t address)
{
    rail_region_t *region = rail->regions;

    while ((region != NULL) && ((address < region->address) || (address >= region->address + region->bytes) ||
                                mpath_gpu_is_lost(region->gpu))) {
        region = region->next;
    }
    return region;
}

static void region_free(rail_t *rail, rail_region_t **link)
{
    rail_region_t *region = *link;

    *link = region->next;
    (void)ucp_mem_unmap(rail->context, region->memh);
    free(region);
}

/* What is allocated next may have their addresses. */
static void drop_lost(rail_t *rail)
{
    rail_region_t **link = &rail->regions;

    while (*link != NULL) {
        if (mpath_gpu_is_lost((*link)->gpu)) {
            region_free(rail, link);
        } else {
            link = &(*link)->next;
        }
    }
}

mpath_status_t mpath_rail_memory_add(mpath_lane_t *lane, const mpath_gpu_t *gpu, mpath_cu_ptr_t address, size_t bytes)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                 UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                   .address     = (void *)(uintptr_t)address,
                                   .length      = bytes,
                                   .memory_type = UCS_MEMORY_TYPE_CUDA};
    rail_t *rail                = (rail_t *)lane;
    rail_region_t *region;
    ucs_status_t status;

    if (!mpath_rail_memory_usable(lane)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    drop_lost(rail);
    if (region_at(rail, address) != NULL) {
        return MPATH_OK;
    }
    region = malloc(sizeof(*region));
    if (region == NULL) {
        mpath_error("rail %s: no memory to note that it knows memory of a GPU", rail->nic);
        return MPATH_ERR_NO_MEMORY;
    }
    *region = (rail_region_t){.next = rail->regions, .gpu = gpu, .address = address, .bytes = bytes};
    status  = ucp_mem_map(rail->context, &params, &region->memh);
    if (status != UCS_OK) {
        mpath_info("rail %s: UCX does not register %zu bytes of GPU memory: %s; its device memory goes through pinned "
                   "host slots",
                   rail->nic, bytes, ucs_status_string(status));
        free(region);
        return MPATH_ERR_UNSUPPORTED;
    }
    rail->regions = region;
    return MPATH_OK;
}

void mpath_rail_memory_remove(mpath_lane_t *lane, const mpath_gpu_t *gpu, mpath_cu_ptr_t address)
{
    rail_t *rail         = (rail_t *)lane;
    rail_region_t **link = &rail->regions;

    while ((*link != NULL) && (((*link)->gpu != gpu) || ((*link)->address != address))) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        region_free(rail, link);
    }
}

void rail_memory_drop(rail_t *rail)
{
    while (rail->regions != NULL) {
        region_free(rail, &rail->regions);
    }
}

int rail_memory_is_gpu(const rail_t *rail, const void *address)
{
    return region_at(rail, (uint64_t)(uintptr_t)address) != NULL;
}

/* UCX would ask the driver about every address that it is not told of. */
int rail_memory_describe(const rail_t *rail, const void *address, ucp_request_param_t *params)
{
    const rail_region_t *region;

    if (!rail->has_cuda) {
        return 0;
    }
    region = region_at(rail, (uint64_t)(uintptr_t)address);
    params->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params->memory_type = UCS_MEMORY_TYPE_HOST;
    if (region != NULL) {
        params->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        params->memory_type = UCS_MEMORY_TYPE_CUDA;
        params->memh        = region->memh;
    }
    return region != NULL;
}
