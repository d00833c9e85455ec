/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, where no topology file tells of GPUs: what the ranks' processes see of them. The first rank of each node
 * describes its GPUs for all; a rank's own is found in them by its uuid, since processes may see them under other
 * numbers, or only some.
 */
#include "exec/relay_private.h"

#include "exec/gpu_rates.h"
#include "exec/team_private.h"
#include "topo/machine_gpus.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* What a rank tells. Plain data. */
typedef struct seen_gpus {
    int32_t num_gpus;
    int32_t has_gpu;      /* this rank has one */
    mpath_cu_uuid_t mine; /* it */
    mpath_cu_uuid_t uuids[MPATH_MAX_GPUS];
    mpath_node_gpus_t gpus;
} seen_gpus_t;

/* Takes NVML some time, and does not change. */
static const mpath_gpu_survey_t *survey_once(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static mpath_gpu_survey_t survey;
    static int done;

    pthread_mutex_lock(&mutex);
    if (!done && (mpath_gpu_survey(&survey) != MPATH_OK)) {
        survey.num_gpus = 0;
    }
    done = 1;
    pthread_mutex_unlock(&mutex);
    return &survey;
}

static void look(const mpath_relay_t *relay, const mpath_call_t *call, seen_gpus_t *seen, mpath_gpu_t **gpu_p)
{
    const mpath_memory_t *memory = mpath_relay_memory(call);
    const mpath_gpu_survey_t *survey;
    mpath_gpu_t *gpu = NULL;

    memset(seen, 0, sizeof(*seen));
    if (!mpath_gpu_available()) {
        return;
    }
    survey         = survey_once();
    seen->num_gpus = survey->num_gpus;
    for (int g = 0; g < survey->num_gpus; g++) {
        seen->uuids[g] = survey->gpus[g].info.uuid;
    }
    mpath_gpu_survey_model(survey, &relay->team->context->machine, &seen->gpus);
    if (((memory != NULL) ? mpath_gpu_get(memory->device, memory->context, &gpu) : mpath_gpu_current(&gpu)) ==
        MPATH_OK) {
        seen->has_gpu = 1;
        seen->mine    = mpath_gpu_info_of(gpu)->uuid;
        *gpu_p        = gpu;
    }
}

/* Number of a rank's GPU in what the first rank of its node sees; -1: none. */
static int find_gpu(const seen_gpus_t *leader, const seen_gpus_t *rank)
{
    for (int g = 0; rank->has_gpu && (g < leader->num_gpus); g++) {
        if (memcmp(&leader->uuids[g], &rank->mine, sizeof(rank->mine)) == 0) {
            return g;
        }
    }
    return -1;
}

/* What was measured of a node's GPUs in place of what their links promise. */
static void rate(const mpath_node_rates_t *rates, const seen_gpus_t *leader, mpath_machine_t *machine,
                 mpath_node_gpus_t *gpus)
{
    mpath_gpu_probe_t probe;

    mpath_gpu_rates_of(rates, leader->uuids, leader->num_gpus, &probe);
    if ((probe.num_gpus > 0) && (probe.num_gpus == gpus->num_gpus)) {
        mpath_gpu_probe_apply(&probe, machine, gpus);
    }
}

static uint32_t nics_up_beside(const mpath_machine_t *machine, const mpath_gpu_t *gpu)
{
    uint32_t up = 0;

    for (int nic = 0; nic < machine->num_nics; nic++) {
        up |= machine->nics[nic].up ? 1u << nic : 0;
    }
    return gpu->nics & up;
}

/*
 * The NIC beside a rank's processor is not always one beside its GPU, where its data is. Ranks whose GPUs have the same
 * ones take them in turns.
 */
static int32_t nic_of(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus, const mpath_place_t *places,
                      int rank)
{
    const mpath_place_t *place = &places[rank];
    uint32_t nics = nics_up_beside(&machines[place->node], &gpus[place->node].gpus[place->gpu]), left = nics;
    int turn = 0;

    if ((nics == 0) || ((place->nic >= 0) && ((nics >> place->nic) & 1))) {
        return place->nic;
    }
    for (int mate = 0; mate < rank; mate++) {
        turn += (places[mate].node == place->node) &&
                (nics_up_beside(&machines[place->node], &gpus[place->node].gpus[places[mate].gpu]) == nics);
    }
    for (turn %= __builtin_popcount(nics); turn > 0; turn--) {
        left &= left - 1;
    }
    return __builtin_ctz(left);
}

/* The topology, where every rank has a GPU. The same on all ranks. */
static mpath_status_t build(mpath_team_t *team, const seen_gpus_t *all, const mpath_node_rates_t *rates)
{
    mpath_machine_t *machines  = calloc((size_t)team->num_nodes, sizeof(*machines));
    mpath_node_gpus_t *gpus    = calloc((size_t)team->num_nodes, sizeof(*gpus));
    mpath_topo_params_t params = *mpath_topo_params(team->topo);
    mpath_place_t places[MPATH_RELAY_MAX_RANKS];
    mpath_status_t status = ((machines != NULL) && (gpus != NULL)) ? MPATH_OK : MPATH_ERR_NO_MEMORY;

    for (int node = 0; (status == MPATH_OK) && (node < team->num_nodes); node++) {
        machines[node] = *mpath_topo_machine(team->topo, node);
        gpus[node]     = all[team->leaders[node]].gpus;
        rate(&rates[node], &all[team->leaders[node]], &machines[node], &gpus[node]);
    }
    for (int rank = 0; (status == MPATH_OK) && (rank < team->size); rank++) {
        places[rank]     = *mpath_topo_place(team->topo, rank);
        places[rank].gpu = find_gpu(&all[team->leaders[team->node_of[rank]]], &all[rank]);
        status           = (places[rank].gpu >= 0) ? MPATH_OK : MPATH_DECLINED;
        places[rank].nic = (status == MPATH_OK) ? nic_of(machines, gpus, places, rank) : places[rank].nic;
    }
    if (status == MPATH_OK) {
        params.peer_legs = 1;
        status           = mpath_topo_create_with_gpus(machines, gpus, team->num_nodes, places, team->size, &params,
                                                       &team->gpu_topo);
    }
    free(machines);
    free(gpus);
    return status;
}

mpath_status_t mpath_relay_discover(mpath_relay_t *relay, const mpath_call_t *call)
{
    seen_gpus_t mine, *all = malloc((size_t)relay->size * sizeof(*all));
    mpath_node_rates_t *rates = malloc((size_t)relay->team->num_nodes * sizeof(*rates));
    mpath_gpu_t *gpu          = NULL;
    mpath_status_t status;

    if ((all == NULL) || (rates == NULL)) {
        free(all);
        free(rates);
        mpath_error("no memory for the GPUs of %d ranks; the call fails", relay->size);
        return MPATH_ERR_NO_MEMORY;
    }
    look(relay, call, &mine, &gpu);
    status = mpath_team_allgather(relay->team, &mine, sizeof(mine), all);
    if (status == MPATH_OK) {
        status = mpath_gpu_rates_agree(relay->team, gpu, rates);
    }
    if (status == MPATH_OK) {
        status = mpath_relay_all(relay->team, build(relay->team, all, rates));
    }
    free(all);
    free(rates);
    if ((status != MPATH_OK) && (mpath_team_status(relay->team) == MPATH_OK)) {
        mpath_debug("not every rank has a GPU that the first rank of its node sees; no relays of device memory");
        status = MPATH_DECLINED;
    }
    return status;
}
