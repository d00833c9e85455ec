/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nodes of a team and the memory that the ranks of a node share:
 *
 *   mpath_team_header_t     one line
 *   processor masks         cpu_set_t of every local rank
 *   agreement               agree_private.h
 *   rings                   lane/shm
 */
#ifndef MPATH_EXEC_TEAM_NODES_H
#define MPATH_EXEC_TEAM_NODES_H

#include "exec/agree_private.h"
#include "exec/team_record.h"

/* Numbers the nodes and their ranks. Returns the least shared memory that is free on any node; 0 when nobody knows. */
uint64_t team_nodes_assign(mpath_team_t *team, const team_record_t *records);

/*
 * Round 3 of the set-up: creates (leader) or attaches the node's memory, and learns all nodes' machines. Takes part in
 * the round whatever goes wrong on this rank.
 */
mpath_status_t team_node_memory(mpath_team_t *team, const mpath_agree_layout_t *layout, uint64_t shared_memory_bytes,
                                mpath_machine_t *machines, void **shm_region_p);
/* All ranks of the node have attached or given up: the name is removed. */
void team_node_memory_attached(mpath_team_t *team);
void team_node_memory_release(mpath_team_t *team);

size_t team_node_agree_offset(const mpath_team_t *team);

/* Compares the node's ranks with their processors, for mpath_idle_set_load(). */
void team_node_measure(const mpath_team_t *team);

#endif
