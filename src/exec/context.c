/* SPDX-License-Identifier: BSD-3-Clause */
/* Context: what a process knows of itself before it meets others: settings, machine, its place in a topology file. */
#include "exec/node_key.h"
#include "exec/team_private.h"
#include "topo/machine.h"
#include "topo/xml.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* The file's machine of this host; NULL when it has none. A file of one machine stands for every host. */
static const mpath_machine_t *file_machine(const mpath_topo_file_t *file, const char *host)
{
    if (file->num_nodes == 1) {
        return &file->machines[0];
    }
    for (int node = 0; node < file->num_nodes; node++) {
        if (strcmp(file->machines[node].host, host) == 0) {
            return &file->machines[node];
        }
    }
    return NULL;
}

/* The file says where each rank of the job sits, and so which ranks form a node. */
static void use_file_places(mpath_context_t *context, const mpath_topo_file_t *file)
{
    const mpath_place_t *place;

    context->topo_key = mpath_key_mix(1, file->machines, (size_t)file->num_nodes * sizeof(*file->machines));
    context->topo_key = mpath_key_mix(context->topo_key, file->places, (size_t)file->num_ranks * sizeof(*file->places));
    if (context->job_rank < 0 || context->job_rank >= file->num_ranks) {
        mpath_error(
            "topology file %s: it places %d ranks, and this is rank %d of the job; mpath leaves the collectives "
            "of this job alone",
            context->settings.topo_file, file->num_ranks, context->job_rank);
        context->usable = MPATH_ERR_PARAM;
        return;
    }
    place              = &file->places[context->job_rank];
    context->machine   = file->machines[place->node];
    context->nic       = place->nic;
    context->node_key  = mpath_key_mix(context->node_key, &place->node, sizeof(place->node));
    context->nic_known = 1;
    if (file->gpus != NULL) {
        context->gpus     = file->gpus[place->node];
        context->gpu      = (place->gpu < context->gpus.num_gpus) ? place->gpu : -1;
        context->emulated = file->params.emulated;
        context->topo_key = mpath_key_mix(context->topo_key, file->gpus, (size_t)file->num_nodes * sizeof(*file->gpus));
        context->topo_key = mpath_key_mix(context->topo_key, &context->emulated, sizeof(context->emulated));
    }
}

static void use_file(mpath_context_t *context, const mpath_topo_file_t *file)
{
    const mpath_machine_t *machine;
    char host[MPATH_HOST_NAME_MAX];

    if (file->params.access == MPATH_REACH_AFFINE) {
        context->topo_params.access = MPATH_REACH_AFFINE;
    }
    context->topo_params.fabric = file->params.fabric;
    if (file->num_ranks > 0) {
        use_file_places(context, file);
        return;
    }
    machine = file_machine(file, context->machine.host);
    if (machine == NULL) {
        mpath_error(
            "topology file %s: none of its %d nodes is named '%s', as this host is; mpath leaves the collectives "
            "of this job alone",
            context->settings.topo_file, file->num_nodes, context->machine.host);
        context->usable = MPATH_ERR_PARAM;
        return;
    }
    memcpy(host, context->machine.host, sizeof(host));
    context->machine = *machine;
    memcpy(context->machine.host, host, sizeof(host));
}

void mpath_context_limit_paths(mpath_context_t *context, int max_paths)
{
    context->topo_params.max_paths = (max_paths > 0) ? max_paths : 0;
}

static mpath_status_t context_alloc(const mpath_settings_t *settings, int job_rank, int local_rank_hint,
                                    mpath_context_t **context_p)
{
    mpath_context_t *context = calloc(1, sizeof(*context));

    if (context == NULL) {
        mpath_error("no memory for a context; mpath is not used");
        return MPATH_ERR_NO_MEMORY;
    }
    context->settings        = *settings;
    context->job_rank        = job_rank;
    context->local_rank_hint = local_rank_hint;
    context->nic             = -1;
    context->gpu             = -1;
    context->usable          = MPATH_OK;
    mpath_context_limit_paths(context, settings->max_paths);
    if (settings->access == MPATH_ACCESS_AFFINE) {
        context->topo_params.access = MPATH_REACH_AFFINE;
    }
    pthread_mutex_init(&context->lock, NULL);
    *context_p = context;
    return MPATH_OK;
}

/* The machine is known: what follows from it. */
static mpath_status_t context_finish(mpath_context_t *context, mpath_context_t **context_p)
{
    mpath_status_t status = mpath_fabric_create(&context->settings, &context->machine, &context->fabric);

    if (status != MPATH_OK) {
        mpath_context_destroy(context);
        return status;
    }
    *context_p = context;
    return MPATH_OK;
}

mpath_status_t mpath_context_create(const mpath_settings_t *settings, int job_rank, int local_rank_hint,
                                    mpath_context_t **context_p)
{
    mpath_topo_file_t file;
    mpath_context_t *context;
    mpath_status_t status;

    status = context_alloc(settings, job_rank, local_rank_hint, &context);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_machine_discover(settings->rails, settings->rail_rates, &context->machine);
    if (status != MPATH_OK) {
        mpath_context_destroy(context);
        return status;
    }
    context->node_key = mpath_node_key(context->machine.host);
    /* A file that cannot be read is reported by the loader and not used. */
    if (settings->topo_file != NULL && settings->topo_file[0] != '\0' &&
        mpath_topo_file_load(settings->topo_file, &file) == MPATH_OK) {
        use_file(context, &file);
        mpath_machine_apply_rates(settings->rail_rates, &context->machine);
        mpath_topo_file_release(&file);
    }
    return context_finish(context, context_p);
}

mpath_status_t mpath_context_create_on(const mpath_settings_t *settings, const mpath_machine_t *machine,
                                       int local_rank_hint, mpath_context_t **context_p)
{
    mpath_context_t *context;
    mpath_status_t status = context_alloc(settings, -1, local_rank_hint, &context);

    if (status != MPATH_OK) {
        return status;
    }
    context->machine  = *machine;
    context->node_key = mpath_node_key(machine->host);
    return context_finish(context, context_p);
}

void mpath_context_destroy(mpath_context_t *context)
{
    if (context->fabric != NULL) {
        mpath_fabric_destroy(context->fabric);
    }
    pthread_mutex_destroy(&context->lock);
    free(context);
}

int mpath_context_nic(mpath_context_t *context, int local_rank)
{
    int nic;

    pthread_mutex_lock(&context->lock);
    if (!context->nic_known) {
        context->nic       = mpath_machine_nearest_nic(&context->machine,
                                                 context->local_rank_hint >= 0 ? context->local_rank_hint : local_rank);
        context->nic_known = 1;
    }
    nic = context->nic;
    pthread_mutex_unlock(&context->lock);
    return nic;
}
