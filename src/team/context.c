/* SPDX-License-Identifier: BSD-3-Clause */
/* Context: what a process knows of itself before it meets others: settings, machine, its place in a topology file. */

#include "team/team_private.h"
#include "topo/discover/machine.h"
#include "topo/file/xml.h"
#include "util/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Identity of a node, from what the kernel says about names and namespaces. */

static uint64_t mix_file(uint64_t key, const char *path)
{
    char text[128];
    ssize_t length;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return key; /* not told: then the other criteria decide */
    }
    length = read(fd, text, sizeof(text));
    close(fd);
    return length > 0 ? mpath_key_mix(key, text, (size_t)length) : key;
}

static uint64_t mix_namespace(uint64_t key, const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        return key;
    }
    key = mpath_key_mix(key, &info.st_dev, sizeof(info.st_dev));
    return mpath_key_mix(key, &info.st_ino, sizeof(info.st_ino));
}

uint64_t mpath_node_key(const char *host)
{
    char name[MPATH_HOST_NAME_MAX];
    uint64_t key;

    if (host == NULL) {
        mpath_machine_host(name);
        host = name;
    }
    key = mpath_key_mix(0xcbf29ce484222325ull, host, strlen(host));
    key = mix_file(key, "/proc/sys/kernel/random/boot_id");
    key = mix_namespace(key, "/proc/self/ns/ipc");
    return mix_namespace(key, "/proc/self/ns/pid");
}

uint64_t mpath_shared_memory_free(void)
{
    struct statvfs info;

    if (statvfs("/dev/shm", &info) != 0) {
        return UINT64_MAX;
    }
    return (uint64_t)info.f_bavail * info.f_frsize;
}

#define SHARED_MEMORY_PART                                                                                             \
    4 /* of /dev/shm: so much is left to others, as to the MPI library, which takes its own later */

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
    mpath_status_t status;

    status = mpath_fabric_create(&context->settings, &context->machine, &context->fabric);
    if (status == MPATH_OK) {
        status = mpath_shm_create(&context->shm);
    }
    if (status == MPATH_OK) {
        status = mpath_outbox_create(&context->outbox);
    }
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

void mpath_context_set_processes(mpath_context_t *context, int num_processes)
{
    context->num_processes = num_processes;
}

void mpath_context_set_alone(mpath_context_t *context, int is_alone)
{
    mpath_outbox_set_alone(context->outbox, is_alone);
}

uint64_t mpath_context_shared_memory(const mpath_context_t *context, uint64_t *held_bytes_p)
{
    uint64_t limit = context->settings.node_memory_bytes, free_bytes = mpath_shared_memory_free(), whole;

    mpath_segment_held(held_bytes_p, &whole);
    if (free_bytes < UINT64_MAX - whole) {
        uint64_t most = (free_bytes + whole) / SHARED_MEMORY_PART;

        limit = (most < limit) ? most : limit;
    }
    return limit;
}

void mpath_context_destroy(mpath_context_t *context)
{
    if (context->fabric != NULL) {
        mpath_fabric_destroy(context->fabric);
    }
    mpath_outbox_destroy(context->outbox);
    mpath_shm_destroy(context->shm);
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
