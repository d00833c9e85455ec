/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Team: created collectively, in rounds over the control plane. Each round tells all ranks how the local steps before
 * it went, so that all of them go on or all give up; who has failed takes part to the end of the round. Only the first
 * waits for ranks that are late by right: who has come out of it knows that all have entered, and the others have a
 * deadline.
 *
 *   0. all are here
 *   1. which build          allgather of a checksum
 *   2. who I am             allgather of records: settings and node keys; nodes follow from them
 *   3. my node              leaders: machine and name of the new segment, then from each leader to its node mates
 *   4. attached, my NIC,    allgather; the name of the segment is removed
 *      lost NICs
 *   5. everything is there  allgather; from here on the control plane belongs to the channels
 */
#include "exec/agree_private.h"
#include "exec/exchange.h"
#include "exec/team_nodes.h"
#include "exec/team_record.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

static mpath_status_t agree(const mpath_team_t *team, mpath_status_t mine)
{
    return mpath_exchange_agree(&team->oob, mpath_patience_here(&team->context->settings), mine);
}

/* `all` NULL: this rank has no memory for it. Fails on all ranks when it does so on one, unless that is gone. */
static mpath_status_t gather(const mpath_team_t *team, const void *mine, size_t bytes, void *all)
{
    mpath_status_t status = mpath_exchange_allgather(&team->oob, mpath_patience_here(&team->context->settings), NULL,
                                                     team->size, team->rank, mine, bytes, all);

    return (status == MPATH_ERR_TIMED_OUT || status == MPATH_ERR_UNREACHABLE) ? status : agree(team, status);
}

/* Round 1. */
static mpath_status_t team_check_build(const mpath_team_t *team)
{
    uint64_t mine         = team_record_build();
    uint64_t *all         = malloc((size_t)team->size * sizeof(*all));
    mpath_status_t status = gather(team, &mine, sizeof(mine), all);

    for (int rank = 0; status == MPATH_OK && rank < team->size; rank++) {
        if (all[rank] != all[0]) {
            mpath_log(
                team->rank == 0 ? MPATH_LOG_WARN : MPATH_LOG_INFO,
                "%s: rank %d runs another build of mpath than rank 0; the previous functions serve the communicator",
                team->oob.name, rank);
            status = MPATH_DECLINED;
        }
    }
    free(all);
    return status;
}

/* Round 2. */
static mpath_status_t team_meet(mpath_team_t *team, uint64_t *shared_memory_bytes_p)
{
    team_record_t mine, *all = malloc((size_t)team->size * sizeof(*all));
    mpath_status_t status;

    team_record_fill(team->context, &team->oob, &mine);
    status = gather(team, &mine, sizeof(mine), all);
    if (status == MPATH_OK) {
        status = team_record_compare(&team->oob, all);
    }
    if (status == MPATH_OK) {
        team->id               = all[0].team_id;
        *shared_memory_bytes_p = team_nodes_assign(team, all);
    }
    free(all);
    return status;
}

/* What the ranks tell each other in round 4. */
typedef struct team_attached {
    int32_t status;
    int32_t nic;
    int32_t gpu;   /* in its node's GPUs, as a topology file tells; -1: none */
    uint32_t lost; /* NICs of its node that it knows to have failed, by the leader's numbers */
} team_attached_t;

/*
 * Round 4: `status` says whether my node's memory is there, and its machine is known. Places of all ranks on success,
 * and the NICs that some rank has lost.
 */
static mpath_status_t team_gather_places(mpath_team_t *team, mpath_status_t status, const mpath_machine_t *machine,
                                         mpath_place_t *places)
{
    team_attached_t mine = {
        .status = status, .nic = mpath_context_nic(team->context, team->local_rank), .gpu = team->context->gpu};
    team_attached_t *all = malloc((size_t)team->size * sizeof(*all));

    /* Ranks of one node need no NIC, so that they would never ask for one that is back, either. */
    mine.lost = ((status == MPATH_OK) && (team->num_nodes > 1)) ? mpath_team_lost_known(team, machine) : 0;
    status    = gather(team, &mine, sizeof(mine), all);
    for (int rank = 0; status == MPATH_OK && rank < team->size; rank++) {
        if (all[rank].status != MPATH_OK) {
            mpath_info(
                "%s: rank %d cannot share memory on its node (%s); the previous functions serve the communicator",
                team->oob.name, rank, mpath_status_string((mpath_status_t)all[rank].status));
            status = MPATH_DECLINED;
        }
        places[rank] = (mpath_place_t){.node = team->node_of[rank], .nic = all[rank].nic, .gpu = all[rank].gpu};
        team->lost[team->node_of[rank]] |= all[rank].lost;
    }
    free(all);
    return status;
}

/*
 * Between rounds 4 and 5, only where all ranks have a GPU that a topology file tells of: the GPUs of the nodes, and the
 * topology of device memory. Host memory has one without GPUs.
 */
static mpath_status_t team_describe_gpus(mpath_team_t *team, const mpath_machine_t *machines, mpath_place_t *places)
{
    mpath_topo_params_t params = team->context->topo_params;
    mpath_node_gpus_t *all = NULL, *gpus = NULL;
    mpath_status_t status = MPATH_OK;
    int described         = 1;

    for (int rank = 0; rank < team->size; rank++) {
        described = described && places[rank].gpu >= 0;
    }
    if (described) {
        all    = malloc((size_t)team->size * sizeof(*all));
        gpus   = malloc((size_t)team->num_nodes * sizeof(*gpus));
        status = gather(team, (gpus != NULL) ? &team->context->gpus : NULL, sizeof(*all), all);
        for (int node = 0; status == MPATH_OK && node < team->num_nodes; node++) {
            gpus[node] = all[team->leaders[node]];
        }
        params.emulated  = team->context->emulated;
        params.peer_legs = 1;
        if (status == MPATH_OK) {
            status = mpath_topo_create_with_gpus(machines, gpus, team->num_nodes, places, team->size, &params,
                                                 &team->gpu_topo);
        }
    }
    for (int rank = 0; rank < team->size; rank++) {
        places[rank].gpu = -1;
    }
    free(all);
    free(gpus);
    return status;
}

static mpath_status_t team_alloc(mpath_context_t *context, const mpath_oob_t *oob, mpath_team_t **team_p)
{
    size_t size        = (size_t)oob->size;
    mpath_team_t *team = calloc(1, sizeof(*team));

    if (team == NULL) {
        goto err_no_memory;
    }
    team->context  = context;
    team->oob      = *oob;
    team->rank     = oob->rank;
    team->size     = oob->size;
    team->broken   = MPATH_OK;
    team->node_of  = calloc(size, sizeof(int));
    team->local_of = calloc(size, sizeof(int));
    team->local    = calloc(size, sizeof(int));
    team->leaders  = calloc(size, sizeof(int));
    team->num_on   = calloc(size, sizeof(int));
    team->lost     = calloc(size, sizeof(*team->lost));
    if (team->node_of == NULL || team->local_of == NULL || team->local == NULL || team->leaders == NULL ||
        team->num_on == NULL || team->lost == NULL) {
        goto err_destroy;
    }
    *team_p = team;
    return MPATH_OK;

err_destroy:
    mpath_team_destroy(team);
err_no_memory:
    mpath_error("%s: no memory for a team of %d ranks", oob->name, oob->size);
    return MPATH_ERR_NO_MEMORY;
}

/* Rounds 3 to 5: the node's memory, the topology, and what lies in them. */
static mpath_status_t team_build(mpath_team_t *team, const mpath_agree_layout_t *layout, uint64_t shared_memory_bytes)
{
    mpath_machine_t *machines = calloc((size_t)team->num_nodes, sizeof(*machines));
    mpath_place_t *places     = calloc((size_t)team->size, sizeof(*places));
    mpath_status_t status     = MPATH_OK;
    void *shm_region;

    if (machines == NULL || places == NULL) {
        mpath_error("%s: no memory for the places of %d ranks", team->oob.name, team->size);
        status = MPATH_ERR_NO_MEMORY;
    }
    status = agree(team, status);
    if (status != MPATH_OK) {
        goto out;
    }
    status = team_node_memory(team, layout, shared_memory_bytes, machines, &shm_region);
    status = team_gather_places(team, status, &machines[team->node], places);
    team_node_memory_attached(team);
    if (status != MPATH_OK) {
        goto out;
    }
    team_node_measure(team);
    status = team_describe_gpus(team, machines, places);
    if (status == MPATH_OK) {
        status = mpath_topo_create(machines, team->num_nodes, places, team->size, &team->context->topo_params,
                                   &team->topo);
    }
    if (status == MPATH_OK) {
        team->settled_from_ns = mpath_move_settled_from_ns(team);
        mpath_team_lost_begin(team);
    }
    if (status == MPATH_OK && team->num_local > 1) {
        status = mpath_shm_open(shm_region, &team->shm_shape, team->local_rank, &team->shm);
    }
    if (status == MPATH_OK) {
        status = mpath_agree_create(team, layout, (char *)team->segment.base + team_node_agree_offset(team));
    }
    status = agree(team, status); /* round 5 */
    if (status == MPATH_OK) {
        mpath_channels_start(team);
    }
out:
    free(machines);
    free(places);
    return status;
}

mpath_status_t mpath_team_create(mpath_context_t *context, const mpath_oob_t *oob, mpath_team_t **team_p)
{
    uint64_t shared_memory_bytes = 0;
    mpath_agree_layout_t layout;
    mpath_team_t *team = NULL;
    mpath_status_t status;

    if (oob->size < 2) {
        return MPATH_DECLINED;
    }
    status = team_alloc(context, oob, &team);
    status = mpath_exchange_agree(oob, mpath_patience_late(&context->settings), status);
    if (team == NULL) {
        return status;
    }
    if (status == MPATH_OK) {
        status = team_check_build(team);
    }
    if (status == MPATH_OK) {
        status = team_meet(team, &shared_memory_bytes);
    }
    if (status == MPATH_OK) {
        status = mpath_agree_layout(team, &layout);
    }
    if (status == MPATH_OK) {
        status = team_build(team, &layout, shared_memory_bytes);
    }
    if (status != MPATH_OK) {
        mpath_team_destroy(team);
        return status;
    }
    mpath_info("%s: %d ranks on %d nodes, %llu bytes of memory for this rank, pairs up to %llu bytes travel with their "
               "sizes",
               oob->name, team->size, team->num_nodes, (unsigned long long)mpath_team_memory_bytes(team),
               (unsigned long long)layout.limits.local_bytes);
    *team_p = team;
    return MPATH_OK;
}

void mpath_team_destroy(mpath_team_t *team)
{
    mpath_wire_destroy(team->wire);
    if (team->mover != NULL) {
        mpath_mover_destroy(team->mover);
    }
    mpath_agree_destroy(team);
    if (team->shm != NULL) {
        team->shm->ops->destroy(team->shm);
    }
    if (team->topo != NULL) {
        mpath_topo_destroy(team->topo);
    }
    if (team->gpu_topo != NULL) {
        mpath_topo_destroy(team->gpu_topo);
    }
    team_node_memory_release(team);
    free(team->node_of);
    free(team->local_of);
    free(team->local);
    free(team->leaders);
    free(team->num_on);
    free(team->lost);
    free(team);
}

uint64_t mpath_team_id(const mpath_team_t *team)
{
    return team->id;
}

int mpath_team_rank(const mpath_team_t *team)
{
    return team->rank;
}

int mpath_team_size(const mpath_team_t *team)
{
    return team->size;
}

const mpath_topo_t *mpath_team_topo(const mpath_team_t *team)
{
    return team->topo;
}

const mpath_topo_t *mpath_team_gpu_topo(const mpath_team_t *team)
{
    return team->gpu_topo;
}

unsigned mpath_team_topo_version(const mpath_team_t *team)
{
    return team->topo_version;
}

uint32_t mpath_team_lost(const mpath_team_t *team, int node)
{
    return team->lost[node];
}

const mpath_settings_t *mpath_team_settings(const mpath_team_t *team)
{
    return &team->context->settings;
}

uint64_t mpath_team_memory_bytes(const mpath_team_t *team)
{
    uint64_t mover_bytes = (team->mover != NULL) ? mpath_mover_memory_bytes(team->mover) : 0;

    return team->segment.bytes / (uint64_t)team->num_local + mpath_channels_memory_bytes(team) + mover_bytes;
}

const char *mpath_team_host(const mpath_team_t *team, int rank)
{
    return mpath_topo_machine(team->topo, team->node_of[rank])->host;
}

void mpath_team_progress(mpath_team_t *team)
{
    team->oob.progress(team->oob.context);
}

mpath_status_t mpath_team_peer_status(const mpath_team_t *team, int rank)
{
    if (team->node_of[rank] != team->node || rank == team->rank) {
        return MPATH_OK;
    }
    return team->shm->ops->peer_status(team->shm, team->local_of[rank]);
}
