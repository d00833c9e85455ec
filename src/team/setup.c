/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a team is made: collectively, in rounds over the control plane. Each round tells all ranks how the local steps before
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

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity() */
#endif

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "team/agree_private.h"

#include "team/agree.h"
#include "team/channel.h"
#include "team/exchange.h"
#include "team/team_private.h"
#include "util/log.h"
#include "util/time.h"

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Who shares a node with whom, and the memory of a node. */

static size_t align_line(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static uint64_t shared_capacity_of(uint64_t node_bytes, uint64_t held_bytes, uint64_t num_processes, int num_local)
{
    uint64_t part = node_bytes / (num_processes > (uint64_t)num_local ? num_processes : (uint64_t)num_local);

    return part > held_bytes ? part - held_bytes : 0;
}

/* Shared memory that this rank may still take, as one of its node's processes. */
static uint64_t team_node_capacity(const mpath_team_t *team)
{
    uint64_t held, bytes = mpath_context_shared_memory(team->context, &held);

    return shared_capacity_of(bytes, held, (uint64_t)team->context->num_processes, team->num_local);
}

/* A table whose capacity was all ranks. */
static void team_nodes_fit(int **table, int count)
{
    int *fitting = realloc(*table, (size_t)count * sizeof(**table));

    *table = fitting != NULL ? fitting : *table;
}

/* Numbers the nodes and their ranks, and says what shared memory there is. */
static void team_nodes_assign(mpath_team_t *team, const team_record_t *records, mpath_agree_memory_t *all)
{
    *all = (mpath_agree_memory_t){.bytes = UINT64_MAX, .outbox_bytes = UINT64_MAX, .processes = 1};

    for (int rank = 0; rank < team->size; rank++) {
        int node = 0;

        while (node < team->num_nodes && records[team->leaders[node]].node_key != records[rank].node_key) {
            node++;
        }
        if (node == team->num_nodes) {
            team->leaders[team->num_nodes++] = rank;
        }
        team->node_of[rank]  = node;
        team->local_of[rank] = team->num_on[node]++;
    }
    for (int rank = 0; rank < team->size; rank++) {
        const team_record_t *record = &records[rank];
        int on_node                 = team->num_on[team->node_of[rank]];
        uint64_t capacity = shared_capacity_of(record->shared_memory_bytes, record->held_bytes, record->num_processes,
                                               on_node);

        all->bytes     = capacity < all->bytes ? capacity : all->bytes;
        all->processes = (uint64_t)on_node > all->processes ? (uint64_t)on_node : all->processes;
        all->processes = record->num_processes > all->processes ? record->num_processes : all->processes;
        if (record->outbox_bytes > 0) {
            all->outbox_bytes = record->outbox_bytes < all->outbox_bytes ? record->outbox_bytes : all->outbox_bytes;
        } else {
            all->needs_outbox |= on_node > 1;
        }
    }
    team->node       = team->node_of[team->rank];
    team->local_rank = team->local_of[team->rank];
    for (int rank = 0; rank < team->size; rank++) {
        if (team->node_of[rank] == team->node) {
            team->local[team->num_local++] = rank;
        }
    }
    team_nodes_fit(&team->local, team->num_local);
    team_nodes_fit(&team->leaders, team->num_nodes);
    team_nodes_fit(&team->num_on, team->num_nodes);
    team_nodes_fit(&team->met, team->num_nodes);
    mpath_team_meet(team, team->node);
    for (int node = 0; node < team->num_nodes; node++) {
        if (mpath_team_is_near(team->num_nodes, team->node, node)) {
            mpath_team_meet(team, node);
        }
    }
}

static size_t team_node_agree_offset(const mpath_team_t *team)
{
    return MPATH_TEAM_HEADER_BYTES + align_line((size_t)team->num_local * sizeof(mpath_team_member_t));
}

static mpath_status_t publish_member(mpath_team_t *team, size_t outbox_bytes)
{
    mpath_team_member_t *mine = &team->members[team->local_rank];
    mpath_status_t status     = MPATH_OK;

    if (team->num_local > 1 && outbox_bytes > 0) {
        status = mpath_outbox_join(team->context->outbox, outbox_bytes, &team->outbox_share, &mine->outbox);
    }
    mpath_process_self(&mine->process);
    sched_getaffinity(0, sizeof(mine->processors), &mine->processors);
    atomic_store_explicit(&mine->published, 1, memory_order_release);
    return status;
}

/* What a leader tells about its node in round 3. Travels without the NICs that no node has. */
typedef struct node_block {
    int64_t status;
    char segment[MPATH_SEGMENT_NAME_MAX];
    mpath_machine_t machine;
} node_block_t;

static size_t machine_bytes(int num_nics)
{
    return offsetof(mpath_machine_t, nics) + (size_t)num_nics * sizeof(mpath_nic_t);
}

_Static_assert(sizeof(mpath_nic_t) % sizeof(uint64_t) == 0, "blocks are aligned");

static size_t block_bytes(int num_nics)
{
    return offsetof(node_block_t, machine) + machine_bytes(num_nics);
}

/* Of which only so many bytes are there. */
static const node_block_t *block_of(const void *blocks, int num_nics, int node)
{
    return (const node_block_t *)(const void *)((const char *)blocks + (size_t)node * block_bytes(num_nics));
}

static mpath_status_t create_memory(mpath_team_t *team, size_t bytes)
{
    if (team->num_local > 1) {
        return mpath_segment_create(bytes, &team->segment);
    }
    team->segment.base = aligned_alloc(64, bytes); /* nobody to share with */
    if (team->segment.base == NULL) {
        mpath_error("%s: no memory for the agreement of %d ranks; mpath does not serve the communicator",
                    team->oob.name, team->size);
        return MPATH_ERR_NO_MEMORY;
    }
    memset(team->segment.base, 0, bytes);
    team->segment.bytes = bytes;
    return MPATH_OK;
}

/* The leaders' allgather, then each leader hands the blocks to its node mates; or that it has none. */
static mpath_status_t exchange_blocks(mpath_team_t *team, const node_block_t *mine, int num_nics, void *blocks)
{
    mpath_patience_t patience = mpath_patience_here(&team->context->settings);
    mpath_status_t status     = MPATH_OK, handed;

    if (team->local_rank == 0) {
        status = mpath_exchange_allgather(&team->oob, patience, team->leaders, team->num_nodes, team->node, mine,
                                          block_bytes(num_nics), blocks);
    }
    handed = mpath_exchange_broadcast(&team->oob, patience, team->local, team->num_local, team->local_rank,
                                      (status == MPATH_OK) ? blocks : NULL,
                                      (size_t)team->num_nodes * block_bytes(num_nics));
    return (status != MPATH_OK) ? status : handed;
}

static mpath_status_t attach_memory(mpath_team_t *team, const void *blocks, int num_nics, size_t bytes)
{
    for (int node = 0; node < team->num_nodes; node++) {
        const node_block_t *block = block_of(blocks, num_nics, node);

        if (block->status != MPATH_OK) {
            mpath_info_by(team->rank == 0, "%s: the memory of node %s could not be created (%s)", team->oob.name,
                          block->machine.host, mpath_status_string((mpath_status_t)block->status));
            return MPATH_DECLINED;
        }
    }
    if (team->local_rank != 0) {
        return mpath_segment_attach(block_of(blocks, num_nics, team->node)->segment, bytes, &team->segment);
    }
    return MPATH_OK;
}

/*
 * Round 3 of the set-up: creates (leader) or attaches the node's memory, and learns all nodes' machines. Takes part in
 * the round whatever goes wrong on this rank.
 */
static mpath_status_t team_node_memory(mpath_team_t *team, const mpath_agree_layout_t *layout, int num_nics,
                                       mpath_machine_t *machines)
{
    node_block_t mine = {.status = MPATH_OK};
    void *blocks      = calloc((size_t)team->num_nodes, block_bytes(num_nics));
    size_t bytes      = team_node_agree_offset(team) + align_line(layout->bytes);
    mpath_status_t status;

    if (team->local_rank == 0) {
        mine.machine = team->context->machine;
        mine.status  = create_memory(team, bytes);
        memcpy(mine.segment, team->segment.name, sizeof(mine.segment));
    }
    status = exchange_blocks(team, &mine, num_nics, blocks);
    if (status == MPATH_OK) {
        status = attach_memory(team, blocks, num_nics, bytes);
    }
    if (team->num_local > 1 && team->segment.base != NULL) {
        mpath_segment_note(&team->segment, team->num_local);
    }
    for (int node = 0; node < team->num_nodes && status == MPATH_OK; node++) {
        memcpy(&machines[node], &block_of(blocks, num_nics, node)->machine,
               machine_bytes(num_nics)); /* the rest is zero */
    }
    if (status == MPATH_OK) {
        team->header  = team->segment.base;
        team->members = (mpath_team_member_t *)(void *)((char *)team->segment.base + MPATH_TEAM_HEADER_BYTES);
        status        = publish_member(team, layout->outbox_bytes);
    }
    free(blocks);
    return status;
}

/* All ranks of the node have attached or given up: the name is removed. */
static void team_node_memory_attached(mpath_team_t *team)
{
    if (team->local_rank == 0 && team->num_local > 1 && team->segment.base != NULL) {
        mpath_segment_unlink(&team->segment);
    }
}

/* All ranks of the node have attached or given up: the name is removed. */
static void team_node_memory_release(mpath_team_t *team)
{
    if (team->outbox_share != NULL) {
        mpath_outbox_leave(team->context->outbox, team->outbox_share, &team->segment);
    }
    if (team->segment.base == NULL) {
        return;
    }
    if (team->num_local > 1) {
        mpath_segment_detach(&team->segment);
    } else {
        free(team->segment.base);
    }
}

/* Compares the node's ranks with their processors, for mpath_idle_set_load(). */
static void team_node_measure(const mpath_team_t *team)
{
    cpu_set_t together;

    CPU_ZERO(&together);
    for (int i = 0; i < team->num_local; i++) {
        CPU_OR(&together, &together, &team->members[i].processors);
    }
    mpath_idle_set_load(team->num_local, CPU_COUNT(&together));
}

/* Records of the ranks: filled from the context, compared with rank 0's. */

/* Raised whenever the messages or the shared memory of a team change. */
#define TEAM_PROTOCOL 14

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

static const char *const value_names[] = {"access",
                                          "gate",
                                          "check_plan",
                                          "small_bytes",
                                          "leader_bytes",
                                          "min_fragment_bytes",
                                          "keep_routes_ppm",
                                          "chunk_bytes",
                                          "memory_bytes",
                                          "node_min_bytes",
                                          "topo_file fabric",
                                          "alltoallv_algorithm",
                                          "allreduce_algorithm",
                                          "reduce_scatter_algorithm",
                                          "allgather_algorithm",
                                          "tune (as a checksum)",
                                          "symmetric_min_bytes",
                                          "resend_after_s",
                                          "resend_min_ms",
                                          "deterministic",
                                          "adapt",
                                          "gpu",
                                          "gpu_way",
                                          "gpu_probe",
                                          "gpu_host_percent",
                                          "gpu_help_percent",
                                          "gpu_reduce",
                                          "gpu_memory_bytes",
                                          "gpu_host_min_bytes",
                                          "max_paths",
                                          "steps_nodes"};

_Static_assert(sizeof(value_names) / sizeof(value_names[0]) == TEAM_RECORD_VALUES, "a name for each");

/* A checksum of this build of mpath; ranks with different builds must not even exchange records. */
static uint64_t team_record_build(void)
{
    const uint64_t numbers[] = {TEAM_PROTOCOL, sizeof(team_record_t), sizeof(mpath_machine_t), sizeof(mpath_chunk_t),
                                sizeof(void *)};

    return mpath_key_mix(mpath_key_mix(0, PACKAGE_VERSION, strlen(PACKAGE_VERSION)), numbers, sizeof(numbers));
}

/* Unlike that of any other team: who makes it, when, and a count of its own. */
static uint64_t new_team_id(const mpath_context_t *context)
{
    static atomic_uint count;
    const uint64_t parts[] = {context->node_key, (uint64_t)getpid(), mpath_time_ns(), atomic_fetch_add(&count, 1)};

    return mpath_key_mix(0, parts, sizeof(parts));
}

static void team_record_fill(mpath_context_t *context, const mpath_oob_t *oob, team_record_t *record)
{
    const mpath_settings_t *settings = &context->settings;
    const uint64_t values[]          = {(uint64_t)context->topo_params.access,
                                        (uint64_t)settings->gate,
                                        (uint64_t)settings->check_plan,
                                        settings->small_bytes,
                                        settings->leader_bytes,
                                        settings->min_fragment_bytes,
                                        (uint64_t)settings->keep_routes_ppm,
                                        settings->chunk_bytes,
                                        settings->memory_bytes,
                                        settings->node_min_bytes,
                                        context->topo_params.fabric,
                                        (uint64_t)settings->alltoallv_algorithm,
                                        (uint64_t)settings->allreduce_algorithm,
                                        (uint64_t)settings->reduce_scatter_algorithm,
                                        (uint64_t)settings->allgather_algorithm,
                                        mpath_key_mix(0, settings->tune, strlen(settings->tune)),
                                        settings->symmetric_min_bytes,
                                        (uint64_t)settings->resend_after_s,
                                        (uint64_t)settings->resend_min_ms,
                                        (uint64_t)settings->deterministic,
                                        (uint64_t)settings->adapt,
                                        (uint64_t)settings->gpu,
                                        (uint64_t)settings->gpu_way,
                                        (uint64_t)settings->gpu_probe,
                                        (uint64_t)settings->gpu_host_percent,
                                        (uint64_t)settings->gpu_help_percent,
                                        (uint64_t)settings->gpu_reduce,
                                        settings->gpu_memory_bytes,
                                        settings->gpu_host_min_bytes,
                                        (uint64_t)context->topo_params.max_paths,
                                        (uint64_t)settings->steps_nodes};

    _Static_assert(sizeof(values) == sizeof(record->values), "a value for each");
    memset(record, 0, sizeof(*record));
    record->node_key            = context->node_key;
    record->topo_key            = context->topo_key;
    record->team_id             = oob->rank == 0 ? new_team_id(context) : 0;
    record->shared_memory_bytes = mpath_context_shared_memory(context, &record->held_bytes);
    record->outbox_bytes        = mpath_outbox_bytes(context->outbox);
    record->num_processes       = (uint64_t)context->num_processes;
    record->status              = context->usable;
    record->num_nics            = context->machine.num_nics;
    memcpy(record->values, values, sizeof(values));
}

/* All ranks find the same; one of them says it aloud. */
#define record_tell(_oob, _topic, ...)                                                                                 \
    do {                                                                                                               \
        if ((_oob)->rank == 0) {                                                                                       \
            mpath_warn_user(_topic, __VA_ARGS__);                                                                      \
        } else {                                                                                                       \
            mpath_debug(__VA_ARGS__);                                                                                  \
        }                                                                                                              \
    } while (0)

/* MPATH_OK, or MPATH_DECLINED with a reason logged by rank 0; the same on every rank. */
static mpath_status_t team_record_compare(const mpath_oob_t *oob, const team_record_t *records)
{
    for (int rank = 0; rank < oob->size; rank++) {
        const team_record_t *record = &records[rank];

        if (record->status != MPATH_OK) {
            record_tell(oob, "unusable",
                        "%s: rank %d cannot use mpath (%s); the previous functions serve the communicator", oob->name,
                        rank, mpath_status_string((mpath_status_t)record->status));
            return MPATH_DECLINED;
        }
        if (record->topo_key != records[0].topo_key) {
            record_tell(oob, "settings-differ",
                        "%s: ranks 0 and %d have read different topology files; the previous functions serve the "
                        "communicator",
                        oob->name, rank);
            return MPATH_DECLINED;
        }
        for (int i = 0; i < TEAM_RECORD_VALUES; i++) {
            if (record->values[i] != records[0].values[i]) {
                record_tell(oob, "settings-differ",
                            "%s: parameter %s is %lld on rank 0 and %lld on rank %d; the previous functions serve the "
                            "communicator",
                            oob->name, value_names[i], (long long)records[0].values[i], (long long)record->values[i],
                            rank);
                return MPATH_DECLINED;
            }
        }
    }
    return MPATH_OK;
}

static mpath_status_t agree(const mpath_team_t *team, mpath_status_t mine)
{
    return mpath_exchange_agree(&team->oob, mpath_patience_here(&team->context->settings), mine);
}

/* `all` NULL: this rank has no memory for it. Fails on all ranks when it does so on one, unless that is gone. */
static mpath_status_t gather(const mpath_team_t *team, const void *mine, size_t bytes, void *all)
{
    mpath_status_t status = mpath_exchange_allgather(&team->oob, mpath_patience_here(&team->context->settings), NULL,
                                                     team->size, team->rank, mine, bytes, all);

    return mpath_exchange_is_parted(status) ? status : agree(team, status);
}

#define SETTLE_SHARE 100u /* calls that take so many times as long as the exchange at their end settle */

/* What messages of the control plane take, which mostly are on the network of the rails: rough costs. */
typedef struct message_cost {
    uint64_t first_ns, each_ns, bps; /* to and from the first node, each other one, and what they hold */
} message_cost_t;

static const message_cost_t port_cost = {.first_ns = 10000, .each_ns = 2000, .bps = 10000000000};

static const message_cost_t interface_cost = {.first_ns = 250000, .each_ns = 25000, .bps = 1000000000};

/* InfiniBand and RoCE; a network interface has no colon in its name. */
static int all_are_ports(const mpath_topo_t *topo)
{
    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        const mpath_machine_t *machine = mpath_topo_machine(topo, node);

        for (int nic = 0; nic < machine->num_nics; nic++) {
            if (strchr(machine->nics[nic].name, ':') == NULL) {
                return 0;
            }
        }
    }
    return 1;
}

uint64_t mpath_team_settled_from_ns(const mpath_team_t *team)
{
    const message_cost_t *cost = all_are_ports(team->topo) ? &port_cost : &interface_cost;
    uint64_t others = (uint64_t)team->num_nodes - 1, most = 0, bytes;

    if (team->context->settings.resend_min_ms >= 0) {
        return (uint64_t)team->context->settings.resend_min_ms * MPATH_NS_PER_MS;
    }
    for (int node = 0; node < team->num_nodes; node++) {
        most = ((uint64_t)team->num_on[node] > most) ? (uint64_t)team->num_on[node] : most;
    }
    bytes = others * most * (uint64_t)team->size * sizeof(uint64_t); /* rows of sizes, which every exchange has */
    return SETTLE_SHARE *
           (cost->first_ns + ((others > 0) ? others - 1 : 0) * cost->each_ns + bytes * MPATH_NS_PER_S / cost->bps);
}

/* Round 1. */
static mpath_status_t team_check_build(const mpath_team_t *team)
{
    uint64_t mine         = team_record_build();
    uint64_t *all         = malloc((size_t)team->size * sizeof(*all));
    mpath_status_t status = gather(team, &mine, sizeof(mine), all);

    for (int rank = 0; status == MPATH_OK && rank < team->size; rank++) {
        if (all[rank] != all[0]) {
            mpath_warn_by(
                team->rank == 0,
                "%s: rank %d runs another build of mpath than rank 0; the previous functions serve the communicator",
                team->oob.name, rank);
            status = MPATH_DECLINED;
        }
    }
    free(all);
    return status;
}

/* Of any node; no more than there can be, whatever another process says. */
static int team_most_nics(const mpath_team_t *team, const team_record_t *records)
{
    int most = 0;

    for (int rank = 0; rank < team->size; rank++) {
        most = records[rank].num_nics > most ? records[rank].num_nics : most;
    }
    return most < MPATH_MAX_NICS ? most : MPATH_MAX_NICS;
}

/* Round 2. */
static mpath_status_t team_meet(mpath_team_t *team, mpath_agree_memory_t *memory, int *num_nics_p)
{
    team_record_t mine, *all = malloc((size_t)team->size * sizeof(*all));
    mpath_status_t status;

    team_record_fill(team->context, &team->oob, &mine);
    status = gather(team, &mine, sizeof(mine), all);
    if (status == MPATH_OK) {
        status = team_record_compare(&team->oob, all);
    }
    if (status == MPATH_OK) {
        team->id = all[0].team_id;
        team_nodes_assign(team, all, memory);
        *num_nics_p = team_most_nics(team, all);
    }
    free(all);
    return status;
}

/* What the ranks tell each other in round 4. */
typedef struct team_attached {
    int32_t status;
    int32_t nic;
    int32_t gpu;          /* in its node's GPUs, as a topology file tells; -1: none */
    mpath_nic_set_t lost; /* NICs of its node that it knows to have failed, by the leader's numbers */
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
            mpath_info_by(
                team->rank == 0,
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
    team->met      = calloc(size, sizeof(int));
    if (team->node_of == NULL || team->local_of == NULL || team->local == NULL || team->leaders == NULL ||
        team->num_on == NULL || team->met == NULL) {
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
static mpath_status_t team_build(mpath_team_t *team, const mpath_agree_layout_t *layout, int num_nics)
{
    mpath_machine_t *machines = calloc((size_t)team->num_nodes, sizeof(*machines));
    mpath_place_t *places     = calloc((size_t)team->size, sizeof(*places));
    mpath_status_t status     = MPATH_OK;

    team->lost = calloc((size_t)team->num_nodes, sizeof(*team->lost));
    if (machines == NULL || places == NULL || team->lost == NULL) {
        mpath_error("%s: no memory for the places of %d ranks", team->oob.name, team->size);
        status = MPATH_ERR_NO_MEMORY;
    }
    status = agree(team, status);
    if (status != MPATH_OK) {
        goto out;
    }
    status = team_node_memory(team, layout, num_nics, machines);
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
        team->settled_from_ns = mpath_team_settled_from_ns(team);
        mpath_team_lost_begin(team);
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

/* So that those that carry nothing are in summaries, too. */
static void setup_note_rails(const mpath_team_t *team)
{
    const mpath_machine_t *machine = mpath_topo_machine(team->topo, team->node);

    mpath_record_set_host(mpath_topo_host(team->topo, team->node));
    for (int nic = 0; nic < machine->num_nics; nic++) {
        atomic_store(&mpath_page_rail(machine->nics[nic].name, machine->nics[nic].rail)->is_used, 1);
    }
}

/* "rails rail0 1.25 GB/s, rail1 1.25 GB/s", of this node. */
static void setup_rails_text(const mpath_team_t *team, char *text, size_t size)
{
    const mpath_machine_t *machine = mpath_topo_machine(team->topo, team->node);
    size_t length                  = 0;
    char rate[MPATH_NUMBER_SHOWN];

    snprintf(text, size, "no rails");
    for (int nic = 0; nic < machine->num_nics && length < size; nic++) {
        mpath_number_show((double)machine->nics[nic].rate_bps, "B/s", rate);
        length += (size_t)snprintf(text + length, size - length, "%s%s %s", nic > 0 ? ", " : "rails ",
                                   machine->nics[nic].name, rate);
    }
}

/* What there is, once in a job: of its first communicator, by rank 0 of the job. */
static void setup_say(const mpath_team_t *team)
{
    static atomic_int said;
    int is_first            = team->context->job_rank == 0 && atomic_exchange(&said, 1) == 0;
    mpath_log_level_t level = is_first ? MPATH_LOG_INFO : MPATH_LOG_DEBUG;
    char memory[MPATH_NUMBER_SHOWN], rails[512];

    if ((int)level > atomic_load_explicit(&mpath_log_threshold, memory_order_relaxed)) {
        return;
    }
    setup_rails_text(team, rails, sizeof(rails));
    mpath_number_show((double)mpath_team_memory_bytes(team), "B", memory);
    mpath_log(level, "%s: %d ranks on %d nodes; a node has %s; %s of memory for each rank", team->oob.name, team->size,
              team->num_nodes, rails, memory);
}

mpath_status_t mpath_team_create(mpath_context_t *context, const mpath_oob_t *oob, mpath_team_t **team_p)
{
    int num_nics = 0;
    mpath_agree_layout_t layout;
    mpath_agree_memory_t memory;
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
        status = team_meet(team, &memory, &num_nics);
    }
    if (status == MPATH_OK) {
        status = mpath_agree_layout(team, &memory, &layout);
    }
    if (status == MPATH_OK) {
        status = team_build(team, &layout, num_nics);
    }
    if (status != MPATH_OK) {
        mpath_team_destroy(team);
        return status;
    }
    setup_note_rails(team);
    setup_say(team);
    *team_p = team;
    return MPATH_OK;
}

void mpath_team_destroy(mpath_team_t *team)
{
    mpath_team_set_record(team, NULL);
    while (team->users != NULL) {
        mpath_team_user_t *user = team->users;

        team->users = user->next; /* it is part of what ends now */
        user->ops->destroy(user->self);
    }
    mpath_agree_destroy(team);
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
    free(team->met);
    free(team->lost);
    free(team);
}

/*
 * Of a node: what all communicators share, queues, arenas and outboxes, is to stay below SHARED_BYTES, however large
 * /dev/shm is. That has to be looked after where much is held already; even then SHARED_LEAST_BYTES may be had, for ranks
 * that share a node in other groups.
 */
#define SHARED_BYTES (64u << 20)
#define SHARED_EASY_BYTES (16u << 20)
#define SHARED_LEAST_BYTES (12u << 20)

static uint64_t team_shared_capacity(const mpath_team_t *team, int all)
{
    uint64_t capacity = team_node_capacity(team), processes = (uint64_t)team->context->num_processes, held, whole;

    processes = processes > (uint64_t)team->num_local ? processes : (uint64_t)team->num_local;
    mpath_segment_held(&held, &whole);
    if (held > SHARED_EASY_BYTES / processes) {
        uint64_t left = SHARED_BYTES / processes > held ? SHARED_BYTES / processes - held : 0, least;

        left     = all ? 2 * left : left;
        least    = 2 * (SHARED_LEAST_BYTES / processes);
        left     = left > least ? left : least;
        capacity = left < capacity ? left : capacity;
    }
    return capacity;
}

/* All ranks of a node say the same. */
static mpath_status_t nodes_say(mpath_team_t *team, uint64_t most[MPATH_TEAM_NUMBERS])
{
    char no_entries[MPATH_TEAM_ENTRY_BYTES];
    mpath_team_few_t said = {.entry_bytes = sizeof(uint32_t), .entries = no_entries};
    mpath_status_t status;

    memcpy(said.most, most, sizeof(said.most));
    status = mpath_team_gather_few(team, &said);
    memcpy(most, said.most, sizeof(said.most));
    return status;
}

static void most_add(uint64_t most[MPATH_TEAM_NUMBERS], const uint64_t numbers[MPATH_TEAM_NUMBERS])
{
    for (int i = 0; i < MPATH_TEAM_NUMBERS; i++) {
        most[i] = numbers[i] > most[i] ? numbers[i] : most[i];
    }
}

/* What a rank says on a single node. */
typedef struct most_said {
    uint64_t numbers[MPATH_TEAM_NUMBERS];
    char mine[MPATH_TEAM_MATE_BYTES];
} most_said_t;

static mpath_status_t most_on_one_node(mpath_team_t *team, uint64_t most[MPATH_TEAM_NUMBERS], const void *mine,
                                       size_t bytes, void *all_mates)
{
    most_said_t said = {.mine = {0}}, *all = malloc((size_t)team->size * sizeof(*all));
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("%s: no memory for what %d ranks say; the call fails", team->oob.name, team->size);
        mpath_team_break(team, MPATH_ERR_NO_MEMORY); /* the others would wait */
        return MPATH_ERR_NO_MEMORY;
    }
    memcpy(said.numbers, most, sizeof(said.numbers));
    if (bytes > 0) {
        memcpy(said.mine, mine, bytes);
    }
    status = mpath_team_allgather(team, &said, sizeof(said.numbers) + bytes, all);
    for (int rank = 0; status == MPATH_OK && rank < team->size; rank++) {
        const char *from = (const char *)all + (size_t)rank * (sizeof(said.numbers) + bytes);

        memcpy(said.numbers, from, sizeof(said.numbers));
        most_add(most, said.numbers);
        if (bytes > 0) {
            memcpy((char *)all_mates + (size_t)rank * bytes, from + sizeof(said.numbers), bytes);
        }
    }
    free(all);
    return status;
}

/* The first exchange is for the ranks of the node to meet; the second one also for all to have read what they have said. */
mpath_status_t mpath_team_most_and_mates(mpath_team_t *team, uint64_t most[MPATH_TEAM_NUMBERS], const void *mine,
                                         size_t bytes, void *all_mates)
{
    mpath_team_member_t *member          = &team->members[team->local_rank];
    uint64_t nothing[MPATH_TEAM_NUMBERS] = {0};
    mpath_status_t status;

    if (team->num_nodes == 1) {
        return most_on_one_node(team, most, mine, bytes, all_mates);
    }
    memcpy(member->numbers, most, sizeof(member->numbers));
    if (bytes > 0) {
        memcpy(member->said, mine, bytes);
    }
    status = nodes_say(team, nothing);
    if (status != MPATH_OK) {
        return status;
    }
    for (int i = 0; i < team->num_local; i++) {
        most_add(most, team->members[i].numbers);
        if (bytes > 0) {
            memcpy((char *)all_mates + (size_t)i * bytes, team->members[i].said, bytes);
        }
    }
    return nodes_say(team, most);
}

mpath_status_t mpath_team_most(mpath_team_t *team, uint64_t most[MPATH_TEAM_NUMBERS])
{
    return mpath_team_most_and_mates(team, most, NULL, 0, NULL);
}

uint64_t mpath_team_most_fails(const mpath_team_t *team, mpath_status_t status)
{
    return status == MPATH_OK ? 0 : (uint64_t)(UINT32_MAX - (uint32_t)team->rank) << 32 | (uint32_t) - (int)status;
}

mpath_status_t mpath_team_most_failed(uint64_t number, int *rank_p)
{
    if (number == 0) {
        return MPATH_OK;
    }
    *rank_p = (int)(UINT32_MAX - (uint32_t)(number >> 32));
    return (mpath_status_t) - (int)(uint32_t)number;
}

mpath_status_t mpath_team_shared_capacity(mpath_team_t *team, int all_of_it, uint64_t *capacity_bytes_p)
{
    uint64_t most[MPATH_TEAM_NUMBERS] = {UINT64_MAX - team_shared_capacity(team, all_of_it)};
    mpath_status_t status             = mpath_team_most(team, most);

    *capacity_bytes_p = UINT64_MAX - most[0];
    return status;
}
