/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fabric: memory of GPUs that rails read and write themselves. What a team has had registered is registered with every
 * rail that is open, and with those that are opened as long as it stays: a rail that takes the place of one that has
 * failed has to know it. The list has a lock of its own, after those of rails.
 */
#include "exec/fabric_private.h"

#include "lane/rail_gpu.h"
#include "lane/rail_memory.h"
#include "util/log.h"

#include <stdlib.h>

int mpath_fabric_wants_memory(const mpath_fabric_t *fabric)
{
    switch (fabric->settings->gpu_rail) {
    case MPATH_GPU_RAIL_HOST:
        return 0;
    case MPATH_GPU_RAIL_DIRECT:
        return mpath_gpu_available();
    default:
        return mpath_gpu_available() && mpath_rail_gpu_can("/sys");
    }
}

/* Under the rail's lock. */
mpath_status_t mpath_fabric_rail_register(mpath_fabric_t *fabric, rail_t *rail)
{
    mpath_status_t status = MPATH_OK;

    pthread_mutex_lock(&fabric->memory_lock);
    for (const fabric_memory_t *memory = fabric->memory; (memory != NULL) && (status == MPATH_OK);
         memory                        = memory->next) {
        if (!mpath_gpu_is_lost(memory->gpu)) {
            status = mpath_rail_memory_add(rail->lane, memory->gpu, memory->address, memory->bytes);
        }
    }
    pthread_mutex_unlock(&fabric->memory_lock);
    return status;
}

static mpath_status_t list_add(mpath_fabric_t *fabric, const mpath_gpu_t *gpu, mpath_cu_ptr_t address, size_t bytes)
{
    fabric_memory_t *memory = malloc(sizeof(*memory));

    if (memory == NULL) {
        mpath_error("no memory to note memory of a GPU that rails use");
        return MPATH_ERR_NO_MEMORY;
    }
    pthread_mutex_lock(&fabric->memory_lock);
    *memory        = (fabric_memory_t){.next = fabric->memory, .gpu = gpu, .address = address, .bytes = bytes};
    fabric->memory = memory;
    pthread_mutex_unlock(&fabric->memory_lock);
    return MPATH_OK;
}

static void list_remove(mpath_fabric_t *fabric, const mpath_gpu_t *gpu, mpath_cu_ptr_t address)
{
    fabric_memory_t **link = &fabric->memory, *memory;

    pthread_mutex_lock(&fabric->memory_lock);
    while ((*link != NULL) && (((*link)->gpu != gpu) || ((*link)->address != address))) {
        link = &(*link)->next;
    }
    memory = *link;
    if (memory != NULL) {
        *link = memory->next;
        free(memory);
    }
    pthread_mutex_unlock(&fabric->memory_lock);
}

mpath_status_t mpath_fabric_add_memory(mpath_fabric_t *fabric, const mpath_gpu_t *gpu, mpath_cu_ptr_t address,
                                       size_t bytes)
{
    mpath_status_t status = list_add(fabric, gpu, address, bytes);

    for (int number = 0; (number < MPATH_FABRIC_RAILS) && (status == MPATH_OK); number++) {
        rail_t *rail = rail_lock(fabric, number);

        if (rail->lane != NULL) {
            status = mpath_rail_memory_add(rail->lane, gpu, address, bytes);
        }
        rail_unlock(rail);
    }
    if (status != MPATH_OK) {
        mpath_fabric_remove_memory(fabric, gpu, address);
    }
    return status;
}

void mpath_fabric_remove_memory(mpath_fabric_t *fabric, const mpath_gpu_t *gpu, mpath_cu_ptr_t address)
{
    list_remove(fabric, gpu, address);
    for (int number = 0; number < MPATH_FABRIC_RAILS; number++) {
        rail_t *rail = rail_lock(fabric, number);

        if (rail->lane != NULL) {
            mpath_rail_memory_remove(rail->lane, gpu, address);
        }
        rail_unlock(rail);
    }
}

/* UCX learns of GPUs when a rail is opened: under the rail's lock. */
static mpath_status_t try_rail(const mpath_fabric_t *fabric, rail_t *rail, mpath_stream_t *stream)
{
    if (!rail->for_gpus && mpath_fabric_wants_memory(fabric)) {
        mpath_info("rail %s was opened before the application used CUDA: device memory goes over rails through pinned "
                   "host slots (gpu_rail) in this job",
                   fabric->machine->nics[rail->nic].name);
        return MPATH_ERR_UNSUPPORTED;
    }
    return mpath_rail_memory_try(rail->lane, stream);
}

mpath_status_t mpath_fabric_try_memory(mpath_fabric_t *fabric, mpath_stream_t *stream)
{
    mpath_status_t status = MPATH_OK;

    for (int number = 0; (number < MPATH_FABRIC_RAILS) && (status == MPATH_OK); number++) {
        rail_t *rail = rail_lock(fabric, number);

        if (rail->lane != NULL) {
            status = try_rail(fabric, rail, stream);
        }
        rail_unlock(rail);
    }
    return status;
}
