/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, where no topology file tells of GPUs: what the ranks' processes find out of them. Each rank tells of its own
 * GPU, and by their PCI addresses of what that one reaches; a node's GPUs are those of its ranks. So it does not matter
 * whether a process sees all GPUs, some, or its own only.
 */
#include "exec/relay_private.h"

#include "exec/gpu_rates.h"
#include "exec/team_private.h"
#include "topo/machine_gpus.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

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

/* What a rank tells. Plain data. */
static void look(const mpath_relay_t *relay, mpath_gpu_facts_t *told)
{
    const mpath_gpu_info_t *info     = mpath_gpu_info_of(relay->next_gpu);
    const mpath_gpu_survey_t *survey = survey_once();
    int number                       = mpath_gpu_survey_find(survey, &info->uuid);

    memset(told, 0, sizeof(*told));
    *told = (number >= 0) ? survey->gpus[number] : (mpath_gpu_facts_t){.info = *info};
    mpath_gpu_find_nics(told, mpath_topo_machine(relay->team->topo, relay->team->node));
}

/* The GPUs of a node's ranks. */
static void survey_node(const mpath_team_t *team, const mpath_gpu_facts_t *all, int node, mpath_gpu_survey_t *survey)
{
    memset(survey, 0, sizeof(*survey));
    for (int rank = 0; rank < team->size; rank++) {
        if (team->node_of[rank] == node) {
            mpath_gpu_survey_add(survey, &all[rank]);
        }
    }
    mpath_gpu_survey_number(survey);
}

/* The rank's number of it; -1: it is not known. All ranks find the same, one of them says so. */
static int find_gpu(const mpath_team_t *team, const mpath_gpu_survey_t *survey, const mpath_gpu_facts_t *all, int rank)
{
    int gpu = mpath_gpu_survey_find(survey, &all[rank].info.uuid);

    if ((gpu < 0) && (team->rank == 0)) {
        mpath_info(
            "the GPU of rank %d is one more than the %d of its node that mpath knows: no relays of device memory "
            "in this communicator",
            rank, MPATH_MAX_GPUS);
    }
    return gpu;
}

/* Processes that do not see each other's GPUs, and no NVML that does. */
static void say_untold(const mpath_team_t *team, const mpath_gpu_survey_t *survey, int node)
{
    for (int g = 0; (g < survey->num_gpus) && (team->rank == 0); g++) {
        if (survey->gpus[g].untold != 0) {
            mpath_info(
                "%s: nothing tells that GPU %s reaches GPU %s, as no process sees both and NVML does not say so: "
                "relays do without a way between the GPUs of this node",
                mpath_topo_machine(team->topo, node)->host, survey->gpus[g].info.pci,
                survey->gpus[__builtin_ctz(survey->gpus[g].untold)].info.pci);
            return;
        }
    }
}

/* What was measured of a node's GPUs in place of what their links promise. */
static void rate(const mpath_gpu_probe_t *probe, mpath_machine_t *machine, mpath_node_gpus_t *gpus)
{
    if ((probe->num_gpus > 0) && (probe->num_gpus == gpus->num_gpus)) {
        mpath_gpu_probe_apply(probe, machine, gpus);
    }
}

/* Each has copied to the next one: so does any, where nothing tells of a pair. */
static void describe_node(const mpath_team_t *team, const mpath_node_rates_t *rates, int node,
                          mpath_gpu_survey_t *survey, mpath_machine_t *machine, mpath_node_gpus_t *gpus)
{
    mpath_cu_uuid_t uuids[MPATH_MAX_GPUS];
    mpath_gpu_probe_t probe;

    for (int g = 0; g < survey->num_gpus; g++) {
        uuids[g] = survey->gpus[g].info.uuid;
    }
    mpath_gpu_rates_of(rates, uuids, survey->num_gpus, &probe);
    for (int g = 0; (g < survey->num_gpus) && (probe.ring_bps > 0); g++) {
        survey->gpus[g].reaches |= survey->gpus[g].untold;
    }
    *machine = *mpath_topo_machine(team->topo, node);
    mpath_gpu_survey_model(survey, machine, gpus);
    if ((survey->num_gpus > 1) && (gpus->link == MPATH_GPU_LINK_NONE)) {
        say_untold(team, survey, node);
    }
    rate(&probe, machine, gpus);
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

/* The ranks of a node on its GPUs; MPATH_DECLINED: one is on none. */
static mpath_status_t place_node(const mpath_team_t *team, const mpath_gpu_facts_t *all, int node,
                                 const mpath_gpu_survey_t *survey, mpath_place_t *places)
{
    mpath_status_t status = MPATH_OK;

    for (int rank = 0; rank < team->size; rank++) {
        if (team->node_of[rank] == node) {
            places[rank]     = *mpath_topo_place(team->topo, rank);
            places[rank].gpu = find_gpu(team, survey, all, rank);
            status           = (places[rank].gpu < 0) ? MPATH_DECLINED : status;
        }
    }
    return status;
}

/* The topology. The same on all ranks. */
static mpath_status_t build(mpath_team_t *team, const mpath_gpu_facts_t *all, const mpath_node_rates_t *rates)
{
    mpath_machine_t *machines  = calloc((size_t)team->num_nodes, sizeof(*machines));
    mpath_node_gpus_t *gpus    = calloc((size_t)team->num_nodes, sizeof(*gpus));
    mpath_gpu_survey_t *survey = malloc(sizeof(*survey));
    mpath_topo_params_t params = *mpath_topo_params(team->topo);
    mpath_place_t places[MPATH_RELAY_MAX_RANKS];
    mpath_status_t status = ((machines != NULL) && (gpus != NULL) && (survey != NULL)) ? MPATH_OK : MPATH_ERR_NO_MEMORY;

    for (int node = 0; (status == MPATH_OK) && (node < team->num_nodes); node++) {
        survey_node(team, all, node, survey);
        status = place_node(team, all, node, survey, places);
        describe_node(team, &rates[node], node, survey, &machines[node], &gpus[node]);
    }
    for (int rank = 0; (status == MPATH_OK) && (rank < team->size); rank++) {
        places[rank].nic = nic_of(machines, gpus, places, rank);
    }
    if (status == MPATH_OK) {
        params.peer_legs = 1;
        status           = mpath_topo_create_with_gpus(machines, gpus, team->num_nodes, places, team->size, &params,
                                                       &team->gpu_topo);
    }
    free(machines);
    free(gpus);
    free(survey);
    return status;
}

mpath_status_t mpath_relay_discover(mpath_relay_t *relay)
{
    mpath_gpu_facts_t mine, *all = malloc((size_t)relay->size * sizeof(*all));
    mpath_node_rates_t *rates = malloc((size_t)relay->team->num_nodes * sizeof(*rates));
    mpath_status_t status;

    if ((all == NULL) || (rates == NULL)) {
        free(all);
        free(rates);
        mpath_error("no memory for the GPUs of %d ranks; the call fails", relay->size);
        return MPATH_ERR_NO_MEMORY;
    }
    look(relay, &mine);
    status = mpath_team_allgather(relay->team, &mine, sizeof(mine), all);
    if (status == MPATH_OK) {
        status = mpath_gpu_rates_agree(relay->team, relay->next_gpu, rates);
    }
    if (status == MPATH_OK) {
        status = mpath_relay_all(relay->team, build(relay->team, all, rates));
    }
    free(all);
    free(rates);
    if ((status != MPATH_OK) && (mpath_team_status(relay->team) == MPATH_OK)) {
        status = MPATH_DECLINED;
    }
    return status;
}
