/* SPDX-License-Identifier: BSD-3-Clause */
/* What the driver tells of addresses. */
#include "fake.h"

FAKE_API mpath_cu_result_t cuMemGetAddressRange_v2(mpath_cu_ptr_t *base, size_t *bytes, mpath_cu_ptr_t pointer)
{
    fake_region_t *region;

    pthread_mutex_lock(&fake_lock);
    region = fake_find(pointer);
    pthread_mutex_unlock(&fake_lock);
    if (region == NULL) {
        return MPATH_CU_NOT_FOUND;
    }
    *base  = region->base;
    *bytes = region->bytes;
    return MPATH_CU_SUCCESS;
}

/* Under the lock. */
static mpath_cu_result_t attribute_of(const fake_region_t *region, int attribute, void *value, uint64_t address)
{
    switch (attribute) {
    case MPATH_CU_PTR_CONTEXT:
        *(mpath_cu_context_t *)value = region->context;
        break;
    case MPATH_CU_PTR_MEMORY_TYPE:
        *(unsigned *)value = (region->kind == FAKE_HOST) ? MPATH_CU_MEMORY_HOST : MPATH_CU_MEMORY_DEVICE;
        break;
    case MPATH_CU_PTR_DEVICE_POINTER:
        *(mpath_cu_ptr_t *)value = address;
        break;
    case MPATH_CU_PTR_SYNC_MEMOPS:
        *(unsigned *)value = region->settled;
        break;
    case MPATH_CU_PTR_BUFFER_ID:
        *(unsigned long long *)value = region->id;
        break;
    case MPATH_CU_PTR_IS_MANAGED:
        *(unsigned *)value = region->kind == FAKE_MANAGED;
        break;
    case MPATH_CU_PTR_DEVICE_ORDINAL:
        *(int *)value = region->device;
        break;
    case MPATH_CU_PTR_IS_IPC_CAPABLE:
        *(unsigned *)value = (region->kind == FAKE_DEVICE) && !region->imported;
        break;
    case MPATH_CU_PTR_RANGE_START:
    case MPATH_CU_PTR_MAPPING_START:
        *(mpath_cu_ptr_t *)value = region->base;
        break;
    case MPATH_CU_PTR_RANGE_BYTES:
    case MPATH_CU_PTR_MAPPING_BYTES:
        *(size_t *)value = region->bytes;
        break;
    case MPATH_CU_PTR_MAPPED:
        *(unsigned *)value = 1;
        break;
    case MPATH_CU_PTR_ALLOWED_HANDLES:
        *(uint64_t *)value = (uint64_t)region->handle_types;
        break;
    case MPATH_CU_PTR_POOL:
        *(mpath_cu_pool_t *)value = region->pool;
        break;
    case MPATH_CU_PTR_PHYSICAL_BLOCK:
        *(unsigned long long *)value = (region->physical != NULL) ? region->physical->id : region->id;
        break;
    default:
        return MPATH_CU_INVALID_VALUE;
    }
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuPointerGetAttribute(void *value, int attribute, mpath_cu_ptr_t pointer)
{
    mpath_cu_result_t result = MPATH_CU_INVALID_VALUE;
    fake_region_t *region;

    if (!fake_ready()) {
        return MPATH_CU_NOT_INITIALIZED;
    }
    pthread_mutex_lock(&fake_lock);
    region = fake_find(pointer);
    if (region != NULL) {
        result = attribute_of(region, attribute, value, pointer);
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

FAKE_API mpath_cu_result_t cuPointerSetAttribute(const void *value, int attribute, mpath_cu_ptr_t pointer)
{
    fake_region_t *region;

    pthread_mutex_lock(&fake_lock);
    region = (attribute == MPATH_CU_PTR_SYNC_MEMOPS) ? fake_find(pointer) : NULL;
    if (region != NULL) {
        region->settled = *(const unsigned *)value;
    }
    pthread_mutex_unlock(&fake_lock);
    return (region != NULL) ? MPATH_CU_SUCCESS : MPATH_CU_INVALID_VALUE;
}

FAKE_API mpath_cu_result_t cuPointerGetAttributes(unsigned count, int *attributes, void **values,
                                                  mpath_cu_ptr_t pointer)
{
    mpath_cu_result_t result = MPATH_CU_SUCCESS;
    fake_region_t *region;
    unsigned index;

    pthread_mutex_lock(&fake_lock);
    region = fake_find(pointer);
    for (index = 0; (region != NULL) && (result == MPATH_CU_SUCCESS) && (index < count); index++) {
        result = attribute_of(region, attributes[index], values[index], pointer);
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}
