/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates of a team's GPUs: whose they are, whether an earlier probe has left them, and what is kept of a new one. */
#include "exec/gpu_rates_private.h"

#include "exec/team_private.h"
#include "util/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_MAX 4

/* What a rank tells of its GPU. */
typedef struct rates_hello {
    int32_t has_gpu;
    int32_t driver_version;
    int32_t busy; /* another call of this process measures at the moment, or this one must not */
    mpath_gpu_info_t info;
} rates_hello_t;

/* Of this process, from earlier communicators. */
static struct {
    pthread_mutex_t mutex;
    mpath_node_rates_t nodes[KEPT_MAX];
    int next;
} kept = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static atomic_flag measuring = ATOMIC_FLAG_INIT;
static atomic_int in_vain; /* this process has measured, and nothing came of it: not tried again */

/* --- whose -------------------------------------------------------------------------------------------------------- */

static void say_hello(const mpath_gpu_t *gpu, rates_hello_t *hello)
{
    const mpath_cu_t *cu = mpath_gpu_driver();

    memset(hello, 0, sizeof(*hello));
    if ((gpu != NULL) && (cu != NULL)) {
        hello->has_gpu = 1;
        hello->info    = *mpath_gpu_info_of(gpu);
        if (cu->DriverGetVersion(&hello->driver_version) != MPATH_CU_SUCCESS) {
            hello->driver_version = 0;
        }
    }
}

/* Puts a GPU where its PCI address belongs. */
static void add_gpu(rates_node_t *place, int rank, const rates_hello_t *hello)
{
    mpath_gpu_survey_t *survey = &place->survey;
    int g                      = survey->num_gpus;

    if ((g == MPATH_MAX_GPUS) || (mpath_gpu_survey_find(survey, &hello->info.uuid) >= 0)) {
        return;
    }
    for (; (g > 0) && (strcmp(survey->gpus[g - 1].info.pci, hello->info.pci) > 0); g--) {
        survey->gpus[g] = survey->gpus[g - 1];
        place->ranks[g] = place->ranks[g - 1];
    }
    survey->gpus[g]        = (mpath_gpu_facts_t){.info = hello->info};
    place->ranks[g]        = rank;
    survey->num_gpus       = survey->num_gpus + 1;
    survey->driver_version = hello->driver_version;
}

static void name_gpus(const rates_node_t *place, mpath_node_rates_t *node)
{
    memset(node, 0, sizeof(*node));
    node->num_gpus = place->survey.num_gpus;
    for (int g = 0; g < node->num_gpus; g++) {
        node->uuids[g] = place->survey.gpus[g].info.uuid;
    }
}

/* --- what is known ----------------------------------------------------------------------------------------------- */

void mpath_gpu_rates_of(const mpath_node_rates_t *node, const mpath_cu_uuid_t *uuids, int num_gpus,
                        mpath_gpu_probe_t *probe)
{
    int to_of[MPATH_MAX_GPUS], found = 0;

    *probe = (mpath_gpu_probe_t){.num_gpus = num_gpus};
    for (int g = 0; g < num_gpus; g++) {
        to_of[g] = -1;
        for (int k = 0; k < node->num_gpus; k++) {
            to_of[g] = (memcmp(&node->uuids[k], &uuids[g], sizeof(uuids[g])) == 0) ? k : to_of[g];
        }
        found += to_of[g] >= 0;
    }
    if (!node->known || (found == 0)) {
        probe->num_gpus = 0;
        return;
    }
    mpath_gpu_probe_pick(&node->probe, to_of, probe);
}

static void remember(const mpath_node_rates_t *node)
{
    pthread_mutex_lock(&kept.mutex);
    kept.nodes[kept.next] = *node;
    kept.next             = (kept.next + 1) % KEPT_MAX;
    pthread_mutex_unlock(&kept.mutex);
}

static int recall(mpath_node_rates_t *node)
{
    pthread_mutex_lock(&kept.mutex);
    for (int i = 0; (i < KEPT_MAX) && !node->known; i++) {
        const mpath_node_rates_t *old = &kept.nodes[i];

        if (old->known && (old->num_gpus == node->num_gpus) &&
            (memcmp(old->uuids, node->uuids, (size_t)node->num_gpus * sizeof(node->uuids[0])) == 0)) {
            *node = *old;
        }
    }
    pthread_mutex_unlock(&kept.mutex);
    return node->known;
}

/* A probe of all GPUs that this process sees, for those of the team. */
static void load_of_all(const char *file, mpath_node_rates_t *node)
{
    mpath_gpu_survey_t *survey = malloc(sizeof(*survey));
    mpath_node_rates_t all     = {.known = 1};
    mpath_gpu_probe_t picked;

    if ((survey != NULL) && (mpath_gpu_survey(survey) == MPATH_OK) && (survey->num_gpus > node->num_gpus) &&
        (mpath_gpu_probe_load_from(file, survey, &all.probe) == MPATH_OK)) {
        all.num_gpus = survey->num_gpus;
        for (int g = 0; g < survey->num_gpus; g++) {
            all.uuids[g] = survey->gpus[g].info.uuid;
        }
        mpath_gpu_rates_of(&all, node->uuids, node->num_gpus, &picked);
        node->known = picked.num_gpus == node->num_gpus;
        node->probe = node->known ? picked : node->probe;
    }
    free(survey);
}

/* By one rank of a node. */
static void look_up(const rates_node_t *place, const char *file, mpath_node_rates_t *node)
{
    if (recall(node)) {
        return;
    }
    node->known = mpath_gpu_probe_load_from(file, &place->survey, &node->probe) == MPATH_OK;
    if (!node->known && ((file == NULL) || (file[0] == '\0'))) {
        load_of_all(file, node);
    }
}

/* --- what is kept ------------------------------------------------------------------------------------------------ */

/* Why the figures are not believed, as far as this process can tell what the links promise; NULL: they are. */
static const char *find_doubt(const mpath_team_t *team, const mpath_node_rates_t *node)
{
    mpath_gpu_survey_t *survey = malloc(sizeof(*survey));
    const char *doubt          = NULL;
    mpath_node_gpus_t gpus;

    if ((survey != NULL) && (mpath_gpu_survey(survey) == MPATH_OK) && survey->has_nvml) {
        mpath_gpu_survey_model(survey, &team->context->machine, &gpus);
        doubt = mpath_gpu_probe_doubt(&node->probe, &gpus);
    }
    free(survey);
    return doubt;
}

/* By the rank that has looked for the file. */
static void keep(const mpath_team_t *team, const rates_node_t *place, mpath_node_rates_t *node)
{
    const char *doubt = find_doubt(team, node);

    if (doubt != NULL) {
        mpath_info(
            "the GPUs of this node copy %.1f GB/s to each other at once, kernels %.1f: these figures are neither used nor "
            "kept, since %s",
            (double)node->probe.ring_bps / 1e9, (double)node->probe.kernel_bps[0] / 1e9, doubt);
        node->known = 0;
        node->probe = (mpath_gpu_probe_t){.num_gpus = 0};
        return;
    }
    mpath_info("measured the %d GPUs of this node: %.1f GB/s to each other at once, kernels %.1f, to and from the host "
               "%.1f and %.1f, all at once %.1f",
               node->num_gpus, (double)node->probe.ring_bps / 1e9, (double)node->probe.kernel_bps[0] / 1e9,
               (double)node->probe.up_bps[0] / 1e9, (double)node->probe.down_bps[0] / 1e9,
               (double)node->probe.host_bps / 1e9);
    (void)mpath_gpu_probe_save_as(team->context->settings.gpu_probe_file, &place->survey, &node->probe);
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

/* Every node's figures are those of the first rank that has a GPU there. */
static mpath_status_t spread(mpath_team_t *team, const rates_node_t *places, mpath_node_rates_t *nodes)
{
    mpath_node_rates_t *all = malloc((size_t)team->size * sizeof(*all));
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("no memory for the rates of %d ranks' GPUs; the call fails", team->size);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_team_allgather(team, &nodes[team->node], sizeof(*nodes), all);
    for (int node = 0; (node < team->num_nodes) && (status == MPATH_OK); node++) {
        if (places[node].survey.num_gpus > 0) {
            nodes[node] = all[places[node].ranks[0]];
        }
    }
    free(all);
    return status;
}

/* Measures the nodes of which nothing is known, and keeps what comes out. */
static mpath_status_t measure(mpath_team_t *team, mpath_gpu_t *gpu, rates_node_t *places, mpath_node_rates_t *nodes)
{
    rates_node_t *place = &places[team->node];
    mpath_status_t status;

    status = mpath_gpu_rates_measure(team, gpu, places, nodes);
    if ((status == MPATH_OK) && place->measures && nodes[team->node].known && (place->ranks[0] == team->rank)) {
        keep(team, place, &nodes[team->node]);
    }
    return (status == MPATH_OK) ? spread(team, places, nodes) : status; /* whether they are believed */
}

static mpath_status_t agree(mpath_team_t *team, mpath_gpu_t *gpu, rates_hello_t *hellos, rates_node_t *places,
                            mpath_node_rates_t *nodes)
{
    const mpath_settings_t *settings = &team->context->settings;
    int claimed                      = (settings->gpu_probe == MPATH_GPU_PROBE_AUTO) && !atomic_load(&in_vain) &&
                  !atomic_flag_test_and_set(&measuring);
    int unknown = 0, busy = 0;
    rates_hello_t mine;
    mpath_status_t status;

    say_hello(gpu, &mine);
    mine.busy = !claimed;
    status    = mpath_team_allgather(team, &mine, sizeof(mine), hellos);
    for (int rank = 0; (rank < team->size) && (status == MPATH_OK); rank++) {
        busy = busy || hellos[rank].busy;
        if (hellos[rank].has_gpu) {
            add_gpu(&places[team->node_of[rank]], rank, &hellos[rank]);
        }
    }
    for (int node = 0; node < team->num_nodes; node++) {
        name_gpus(&places[node], &nodes[node]);
    }
    if ((status == MPATH_OK) && (places[team->node].survey.num_gpus > 0) &&
        (places[team->node].ranks[0] == team->rank)) {
        look_up(&places[team->node], settings->gpu_probe_file, &nodes[team->node]);
    }
    status = (status == MPATH_OK) ? spread(team, places, nodes) : status;
    for (int node = 0; (node < team->num_nodes) && (status == MPATH_OK); node++) {
        places[node].measures = !nodes[node].known && (places[node].survey.num_gpus > 0);
        unknown               = unknown || places[node].measures;
    }
    if ((status == MPATH_OK) && unknown && !busy) {
        status = measure(team, gpu, places, nodes);
        atomic_store(&in_vain, !nodes[team->node].known);
    }
    if ((status == MPATH_OK) && nodes[team->node].known) {
        remember(&nodes[team->node]);
    }
    if (claimed) {
        atomic_flag_clear(&measuring);
    }
    return status;
}

mpath_status_t mpath_gpu_rates_agree(mpath_team_t *team, mpath_gpu_t *gpu, mpath_node_rates_t *nodes)
{
    rates_hello_t *hellos;
    rates_node_t *places;
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    memset(nodes, 0, (size_t)team->num_nodes * sizeof(*nodes));
    if (team->context->settings.gpu_probe == MPATH_GPU_PROBE_OFF) {
        return MPATH_OK; /* the same on all ranks */
    }
    hellos = calloc((size_t)team->size, sizeof(*hellos));
    places = calloc((size_t)team->num_nodes, sizeof(*places));
    if ((hellos != NULL) && (places != NULL)) {
        status = agree(team, gpu, hellos, places, nodes);
    } else {
        mpath_error("no memory for the rates of %d ranks' GPUs; the call fails", team->size);
    }
    free(hellos);
    free(places);
    return status;
}
