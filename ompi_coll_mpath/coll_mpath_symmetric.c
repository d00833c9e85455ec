/* SPDX-License-Identifier: BSD-3-Clause */
/* See coll_mpath_symmetric.h. */
#include "coll_mpath_symmetric.h"
#include "coll_mpath_pack.h"
#include "coll_mpath_symmetric_device.h"

#include "gpu/memory.h"

#include <stdlib.h>

/* A number that differs when parameters differ that decide about calls before libmpath does. */
static uint64_t symmetric_key(const mpath_settings_t *settings)
{
    const uint64_t values[] = {(uint64_t)settings->gate, (uint64_t)settings->allreduce_algorithm,
                               (uint64_t)settings->reduce_scatter_algorithm, (uint64_t)settings->allgather_algorithm,
                               settings->symmetric_min_bytes};
    uint64_t key            = 14695981039346656037ull; /* FNV-1a, in words */
    size_t i;

    for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        key = (key ^ values[i]) * 1099511628211ull;
    }
    return key;
}

static bool symmetric_same(mca_coll_mpath_module_t *module)
{
    int size      = ompi_comm_size(module->comm), rank;
    uint64_t mine = symmetric_key(&mca_coll_mpath_component.settings);
    uint64_t *all = calloc((size_t)size, sizeof(*all));
    bool same     = MPATH_OK == mca_coll_mpath_gather(module, mine, all);

    for (rank = 0; same && (rank < size); rank++) {
        same = mine == all[rank];
    }
    free(all);
    return same;
}

bool mca_coll_mpath_symmetric_agreed(mca_coll_mpath_module_t *module)
{
    if (!module->symmetric_tried) {
        module->symmetric_tried  = true;
        module->symmetric_usable = symmetric_same(module);
        if (!module->symmetric_usable && (MPATH_OK == module->parted)) {
            mpath_warn("%s: parameters of mpath differ between the ranks; the previous functions serve MPI_Allreduce, "
                       "MPI_Reduce_scatter and MPI_Allgather there",
                       module->comm->c_name);
        }
    }
    return module->symmetric_usable;
}

bool mca_coll_mpath_symmetric_ready(mca_coll_mpath_module_t *module, int algorithm, uint64_t bytes)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;

    if ((NULL == module->previous_allreduce) || !mca_coll_mpath_symmetric_agreed(module)) {
        return false;
    }
    if ((MPATH_GATE_NEVER == settings->gate) || (MPATH_ALGORITHM_PREVIOUS == algorithm)) {
        return false;
    }
    if ((MPATH_GATE_AUTO == settings->gate) && (MPATH_ALGORITHM_AUTO == algorithm) &&
        (bytes < settings->symmetric_min_bytes)) {
        return false;
    }
    if (!module->tried) {
        mca_coll_mpath_team_make(module);
    }
    return NULL != module->symmetric;
}

bool mca_coll_mpath_symmetric_passes(mca_coll_mpath_module_t *module, int algorithm, uint64_t bytes)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;

    if ((NULL == module->previous_allreduce) || !module->symmetric_tried || (MPATH_OK != module->parted) ||
        (MPATH_GATE_AUTO != settings->gate) || (MPATH_ALGORITHM_AUTO != algorithm) || mpath_gpu_available()) {
        return false;
    }
    if (module->symmetric_usable && (bytes >= settings->symmetric_min_bytes) &&
        !(module->tried &&
          ((NULL == module->symmetric) || mpath_symmetric_never_gains(module->symmetric, algorithm)))) {
        return false;
    }
    return mca_coll_mpath_symmetric_device_passes(module, bytes);
}

/*
 * What this rank's call returns when only this rank has failed: the others would wait, so they hear of it in the
 * agreement.
 */
static int symmetric_broken(mca_coll_mpath_module_t *module, mpath_status_t status)
{
    if (NULL != module->team) {
        mpath_team_break(module->team, status);
    }
    return mca_coll_mpath_error(status);
}

bool mca_coll_mpath_symmetric_begin(mca_coll_mpath_module_t *module, mca_coll_mpath_stage_t *stage,
                                    mpath_status_t on_device, int *rc_p)
{
    mpath_status_t status;

    if (MPATH_DECLINED != on_device) {
        *rc_p = mca_coll_mpath_error(on_device);
        return false;
    }
    status = mca_coll_mpath_stage_open(stage);
    if ((MPATH_OK == status) || (MPATH_DECLINED == status)) {
        return true;
    }
    *rc_p = symmetric_broken(module, status);
    return false;
}

/*
 * The predefined operations that Allreduce takes: all commute. Which types they are defined for has been checked by
 * MPI.
 */
bool mca_coll_mpath_op_fits(struct ompi_op_t *op, struct ompi_datatype_t *datatype)
{
    const MPI_Op ops[] = {MPI_MAX, MPI_MIN, MPI_SUM,  MPI_PROD, MPI_LAND,   MPI_BAND,
                          MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MAXLOC, MPI_MINLOC};
    size_t i;

    if (!ompi_datatype_is_predefined(datatype)) {
        return false;
    }
    for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (ops[i] == op) {
            return true;
        }
    }
    return false;
}

/* By the MPI library itself, which has vector code for the common cases. */
static void op_reduce(void *argument, const void *in, void *inout, uint64_t elements)
{
    const mca_coll_mpath_op_t *work = argument;
    const uint64_t most             = 1u << 30; /* MPI counts in int */

    while (elements > 0) {
        uint64_t count = (elements < most) ? elements : most;

        (void)PMPI_Reduce_local(in, inout, (int)count, work->datatype, work->op);
        in    = (const char *)in + count * work->combination.element_bytes;
        inout = (char *)inout + count * work->combination.element_bytes;
        elements -= count;
    }
}

uint64_t mca_coll_mpath_reduced_bytes(uint64_t elements, struct ompi_datatype_t *datatype)
{
    ptrdiff_t lb, extent;

    (void)ompi_datatype_get_extent(datatype, &lb, &extent);
    return elements * (uint64_t)extent;
}

void mca_coll_mpath_op_init(struct ompi_op_t *op, struct ompi_datatype_t *datatype, mca_coll_mpath_op_t *work)
{
    work->op          = op;
    work->datatype    = datatype;
    work->combination = (mpath_combination_t){
        .element_bytes = mca_coll_mpath_reduced_bytes(1, datatype), .reduce = op_reduce, .argument = work};
}

bool mca_coll_mpath_not_on_host(const void *buffer, size_t bytes)
{
    mpath_memory_t memory;

    if ((NULL == buffer) || (0 == bytes)) {
        return false;
    }
    return (MPATH_OK != mpath_memory_classify(buffer, bytes, &memory)) || !mpath_memory_on_host(memory.kind) ||
           mca_coll_mpath_is_device(buffer);
}

mpath_status_t mca_coll_mpath_symmetric_done(mca_coll_mpath_module_t *module, const char *name, mpath_status_t status)
{
    mca_coll_mpath_pvars_add_symmetric(module);
    if (MPATH_DECLINED == status) {
        mpath_debug("%s: the previous function runs for %s: %s", module->comm->c_name, name,
                    mpath_symmetric_declined_because(module->symmetric));
    } else if (MPATH_OK == status) {
        mpath_debug("%s: mpath carried %s", module->comm->c_name, name);
    }
    return status;
}

void mca_coll_mpath_symmetric_ended(mca_coll_mpath_module_t *module)
{
    if (NULL != module->symmetric) {
        mpath_symmetric_ended(module->symmetric);
    }
}
