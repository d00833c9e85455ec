/* SPDX-License-Identifier: BSD-3-Clause */
/* Who shares a node with whom, and the memory of a node. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity() */
#endif
#include "exec/team_nodes.h"
#include "exec/exchange.h"
#include "util/log.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Room of a ring on a single node: this many pairs, each of this many bytes at least. */
#define ONE_NODE_PAIRS 4u
#define ONE_NODE_PAIR_BYTES 4096u

static size_t align_line(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

uint64_t team_nodes_assign(mpath_team_t *team, const team_record_t *records)
{
    uint64_t least = 0;

    for (int rank = 0; rank < team->size; rank++) {
        uint64_t room = records[rank].shared_memory_bytes;
        int node      = 0;

        while (node < team->num_nodes && records[team->leaders[node]].node_key != records[rank].node_key) {
            node++;
        }
        if (node == team->num_nodes) {
            team->leaders[team->num_nodes++] = rank;
        }
        team->node_of[rank]  = node;
        team->local_of[rank] = team->num_on[node]++;
        if (room > 0 && (least == 0 || room < least)) {
            least = room;
        }
    }
    team->node       = team->node_of[team->rank];
    team->local_rank = team->local_of[team->rank];
    for (int rank = 0; rank < team->size; rank++) {
        if (team->node_of[rank] == team->node) {
            team->local[team->num_local++] = rank;
        }
    }
    return least;
}

size_t team_node_agree_offset(const mpath_team_t *team)
{
    return MPATH_TEAM_HEADER_BYTES + align_line((size_t)team->num_local * sizeof(cpu_set_t));
}

/*
 * On a single node rings are seldom used (other functions are faster there), and so get little unless mpath has to run:
 * the pages of each communicator are reserved before its first call. No pair of node_min_bytes or more comes to them.
 */
static uint64_t one_node_share(const mpath_settings_t *settings, uint64_t share, int num_local)
{
    uint64_t pair = (settings->node_min_bytes > ONE_NODE_PAIR_BYTES) ? settings->node_min_bytes : ONE_NODE_PAIR_BYTES;
    uint64_t most = share / 16, pairs = ONE_NODE_PAIRS * (uint64_t)num_local;

    return (pair < most / pairs) ? pair * pairs : most;
}

/*
 * Rings get half of memory_bytes, less when shared memory is short: a quarter of what is free is taken at most. Slots
 * are the same on all nodes, as chunks pass through several of them.
 */
static void choose_shape(mpath_team_t *team, uint64_t shared_memory_bytes)
{
    const mpath_settings_t *settings = &team->context->settings;
    uint64_t share                   = settings->memory_bytes / 2;
    int largest                      = 1;

    if (team->num_nodes == 1 && settings->gate != MPATH_GATE_ALWAYS &&
        settings->alltoallv_algorithm == MPATH_ROUTES_AUTO) {
        share = one_node_share(settings, share, team->num_local);
    }
    for (int node = 0; node < team->num_nodes; node++) {
        largest = team->num_on[node] > largest ? team->num_on[node] : largest;
    }
    if (shared_memory_bytes > 0 && shared_memory_bytes / 4 / (uint64_t)largest < share) {
        share = shared_memory_bytes / 4 / (uint64_t)largest;
    }
    mpath_shm_shape_choose(largest, share, settings->chunk_bytes, &team->shm_shape);
    team->shm_shape.num_ranks = team->num_local;
}

/* What a leader tells about its node in round 3. */
typedef struct node_block {
    int64_t status;
    char segment[MPATH_SEGMENT_NAME_MAX];
    mpath_machine_t machine;
} node_block_t;

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
static mpath_status_t exchange_blocks(mpath_team_t *team, const node_block_t *mine, node_block_t *blocks)
{
    mpath_patience_t patience = mpath_patience_here(&team->context->settings);
    mpath_status_t status     = MPATH_OK, handed;

    if (team->local_rank == 0) {
        status = mpath_exchange_allgather(&team->oob, patience, team->leaders, team->num_nodes, team->node, mine,
                                          sizeof(*mine), blocks);
    }
    handed = mpath_exchange_broadcast(&team->oob, patience, team->local, team->num_local, team->local_rank,
                                      (status == MPATH_OK) ? blocks : NULL, (size_t)team->num_nodes * sizeof(*blocks));
    return (status != MPATH_OK) ? status : handed;
}

static mpath_status_t attach_memory(mpath_team_t *team, const node_block_t *blocks, size_t bytes)
{
    for (int node = 0; node < team->num_nodes; node++) {
        if (blocks[node].status != MPATH_OK) {
            mpath_info("%s: the memory of node %s could not be created (%s)", team->oob.name, blocks[node].machine.host,
                       mpath_status_string((mpath_status_t)blocks[node].status));
            return MPATH_DECLINED;
        }
    }
    if (team->local_rank != 0) {
        return mpath_segment_attach(blocks[team->node].segment, bytes, &team->segment);
    }
    return MPATH_OK;
}

mpath_status_t team_node_memory(mpath_team_t *team, const mpath_agree_layout_t *layout, uint64_t shared_memory_bytes,
                                mpath_machine_t *machines, void **shm_region_p)
{
    node_block_t mine = {.status = MPATH_OK}, *blocks = calloc((size_t)team->num_nodes, sizeof(*blocks));
    size_t shm_offset = team_node_agree_offset(team) + align_line(layout->bytes), bytes = shm_offset;
    mpath_status_t status;

    choose_shape(team, shared_memory_bytes);
    if (team->num_local > 1) {
        bytes += align_line(mpath_shm_region_bytes(&team->shm_shape));
    }
    if (team->local_rank == 0) {
        mine.machine = team->context->machine;
        mine.status  = create_memory(team, bytes);
        memcpy(mine.segment, team->segment.name, sizeof(mine.segment));
    }
    status = exchange_blocks(team, &mine, blocks);
    if (status == MPATH_OK) {
        status = attach_memory(team, blocks, bytes);
    }
    for (int node = 0; node < team->num_nodes && status == MPATH_OK; node++) {
        machines[node] = blocks[node].machine;
    }
    if (status == MPATH_OK) {
        cpu_set_t *masks = (cpu_set_t *)(void *)((char *)team->segment.base + MPATH_TEAM_HEADER_BYTES);

        team->header  = team->segment.base;
        *shm_region_p = (char *)team->segment.base + shm_offset;
        sched_getaffinity(0, sizeof(masks[0]), &masks[team->local_rank]);
    }
    free(blocks);
    return status;
}

void team_node_memory_attached(mpath_team_t *team)
{
    if (team->local_rank == 0 && team->num_local > 1 && team->segment.base != NULL) {
        mpath_segment_unlink(&team->segment);
    }
}

void team_node_memory_release(mpath_team_t *team)
{
    if (team->segment.base == NULL) {
        return;
    }
    if (team->num_local > 1) {
        mpath_segment_detach(&team->segment);
    } else {
        free(team->segment.base);
    }
}

void team_node_measure(const mpath_team_t *team)
{
    const cpu_set_t *masks = (const cpu_set_t *)(const void *)((char *)team->segment.base + MPATH_TEAM_HEADER_BYTES);
    cpu_set_t together;

    CPU_ZERO(&together);
    for (int i = 0; i < team->num_local; i++) {
        CPU_OR(&together, &together, &masks[i]);
    }
    mpath_idle_set_load(team->num_local, CPU_COUNT(&together));
}
