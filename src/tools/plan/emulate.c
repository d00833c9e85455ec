/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns a topology into one for virtual nodes of one host: rates by a factor, and how rails are emulated. */
#include "tools/plan/emulate.h"

#include "util/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rate of 0 means that there is no such link. */
static void scale(uint64_t *rate_bps, uint32_t ppm)
{
    if (*rate_bps > 0) {
        *rate_bps = *rate_bps / 1000000 * ppm + *rate_bps % 1000000 * ppm / 1000000;
        *rate_bps = (*rate_bps > 0) ? *rate_bps : 1;
    }
}

static void scale_machine(mpath_machine_t *machine, uint32_t ppm)
{
    int i;

    scale(&machine->host_memory_bps, ppm);
    for (i = 0; i < machine->num_nics; i++) {
        scale(&machine->nics[i].rate_bps, ppm);
    }
}

static void scale_gpus(mpath_node_gpus_t *gpus, uint32_t ppm)
{
    int from, to;

    scale(&gpus->uplink_bps, ppm);
    for (from = 0; from < gpus->num_gpus; from++) {
        scale(&gpus->gpus[from].egress_bps, ppm);
        scale(&gpus->gpus[from].ingress_bps, ppm);
        scale(&gpus->gpus[from].pcie_up_bps, ppm);
        scale(&gpus->gpus[from].pcie_down_bps, ppm);
        for (to = 0; to < gpus->num_gpus; to++) {
            scale(&gpus->nvlink_bps[from][to], ppm);
        }
    }
}

/* Copies have no device; rails over UCX share the one that is named, or keep their names. */
static void name_nics(mpath_machine_t *machine, const plan_emulate_t *emulate)
{
    char name[MPATH_NIC_NAME_MAX];
    int i;

    for (i = 0; i < machine->num_nics; i++) {
        if (emulate->mode == MPATH_EMULATED_COPIES) {
            snprintf(machine->nics[i].name, sizeof(machine->nics[i].name), "emulated%d", i);
        } else if (emulate->device != NULL) {
            snprintf(name, sizeof(name), "%s", emulate->device);
            memcpy(machine->nics[i].name, name, sizeof(name));
        }
    }
}

static int fits(const plan_emulate_t *emulate, const mpath_topo_t *topo)
{
    int rank;

    if ((emulate->device != NULL) &&
        ((emulate->device[0] == '\0') || (strlen(emulate->device) >= MPATH_NIC_NAME_MAX))) {
        mpath_error("plan: device '%.40s' for emulated rails must have 1 byte or more and less than %d",
                    emulate->device, MPATH_NIC_NAME_MAX);
        return 0;
    }
    for (rank = 0; (emulate->mode == MPATH_EMULATED_COPIES) && (rank < mpath_topo_num_ranks(topo)); rank++) {
        if ((mpath_topo_gpus(topo, 0) == NULL) || (mpath_topo_place(topo, rank)->gpu < 0)) {
            mpath_error("plan: rank %d is on no GPU, and emulated rails are copies between GPUs; take a --preset, or "
                        "--emulated rails",
                        rank);
            return 0;
        }
    }
    return 1;
}

mpath_status_t plan_emulate(const plan_emulate_t *emulate, const mpath_topo_t *topo, mpath_topo_t **emulated_p)
{
    int num_nodes = mpath_topo_num_nodes(topo), num_ranks = mpath_topo_num_ranks(topo), i;
    mpath_topo_params_t params = *mpath_topo_params(topo);
    mpath_machine_t *machines  = calloc((size_t)num_nodes, sizeof(*machines));
    mpath_node_gpus_t *gpus    = calloc((size_t)num_nodes, sizeof(*gpus));
    mpath_place_t *places      = calloc((size_t)num_ranks + 1, sizeof(*places));
    mpath_status_t status      = MPATH_ERR_PARAM;

    if ((machines == NULL) || (gpus == NULL) || (places == NULL)) {
        mpath_error("plan: no memory for %d nodes", num_nodes);
        status = MPATH_ERR_NO_MEMORY;
        goto out;
    }
    if (!fits(emulate, topo)) {
        goto out;
    }
    for (i = 0; i < num_nodes; i++) {
        mpath_topo_copy_machine(topo, i, &machines[i]);
        scale_machine(&machines[i], emulate->scale_ppm);
        if (mpath_topo_gpus(topo, i) != NULL) {
            gpus[i] = *mpath_topo_gpus(topo, i);
            scale_gpus(&gpus[i], emulate->scale_ppm);
        }
        if (emulate->mode != MPATH_EMULATED_NO) {
            name_nics(&machines[i], emulate);
        }
    }
    for (i = 0; i < num_ranks; i++) {
        places[i] = *mpath_topo_place(topo, i);
    }
    params.emulated = emulate->mode;
    status          = mpath_topo_create_with_gpus(machines, gpus, num_nodes, places, num_ranks, &params, emulated_p);
out:
    free(machines);
    free(gpus);
    free(places);
    return status;
}
