/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Team: the processes of one communicator, and what they share. Created collectively on first use of the
 * communicator. It knows who sits on which node, holds the node's shared segment (agreement cells, and shm rings), the
 * topology, and the rails in use.
 *
 * Threads: one thread at a time per team (as MPI demands of collectives on a communicator); different teams may be used
 * by different threads at the same time.
 */
#ifndef MPATH_EXEC_TEAM_H
#define MPATH_EXEC_TEAM_H

#include "exec/oob.h"
#include "lane/lane.h"
#include "lane/segment.h"
#include "topo/topo.h"
#include "util/param.h"

/* One per process: its machine, settings and rails. */
typedef struct mpath_context mpath_context_t;

/*
 * `job_rank`: this process's number in its job (MPI_COMM_WORLD); the <rank> entries of a topology file are in that
 * order, so that a team of a few ranks finds the places of its members. `local_rank_hint`: its number among the job's
 * processes on its node, to spread NICs; -1 unknown. The texts in `settings` outlive the context.
 */
mpath_status_t mpath_context_create(const mpath_settings_t *settings, int job_rank, int local_rank_hint,
                                    mpath_context_t **context_p);
/* Parameter max_paths of the teams that are made from now on. Not while another thread makes one. */
void mpath_context_limit_paths(mpath_context_t *context, int max_paths);
void mpath_context_destroy(mpath_context_t *context);

typedef struct mpath_team mpath_team_t;

/*
 * Collective over oob->size processes. Either all get a team or all get an error or MPATH_DECLINED (a communicator of
 * one process, or one whose processes differ in build or settings that matter): decided from data that all have seen.
 * `oob` is copied; it serves one team in its life, which keeps receives posted on it until mpath_team_destroy().
 */
mpath_status_t mpath_team_create(mpath_context_t *context, const mpath_oob_t *oob, mpath_team_t **team_p);
/* Local; waits for nobody. */
void mpath_team_destroy(mpath_team_t *team);

int mpath_team_rank(const mpath_team_t *team);
/* The same on all ranks, unlike that of any other team that one of them is in. */
uint64_t mpath_team_id(const mpath_team_t *team);
int mpath_team_size(const mpath_team_t *team);
const mpath_topo_t *mpath_team_topo(const mpath_team_t *team);
/*
 * That for device memory: the same ranks and nodes with their GPUs. NULL where nobody tells of GPUs; the same on all
 * ranks.
 */
const mpath_topo_t *mpath_team_gpu_topo(const mpath_team_t *team);
const mpath_settings_t *mpath_team_settings(const mpath_team_t *team); /* its context's */
/*
 * Bytes of memory that the team takes for this rank; rings towards relays and chunks open on rails from its first call
 * on.
 */
uint64_t mpath_team_memory_bytes(const mpath_team_t *team);

/*
 * Gathers `bytes` bytes of every rank into all[size * bytes], on all ranks. Collective; for set-up inside of calls that
 * have been agreed on: ranks that do not come to it within timeout_s end the call in an error that names them.
 */
mpath_status_t mpath_team_allgather(mpath_team_t *team, const void *mine, size_t bytes, void *all);

/*
 * The same for a few bytes, which have to fit into one agreement, with a mark: who waits for something inside a call
 * that will not come sees in mpath_team_marked() that another rank has come here with its mark, and follows with its
 * own. *marked_p: some rank had it set.
 */
mpath_status_t mpath_team_settle(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all,
                                 int *marked_p);
/*
 * The same right after it, with nothing in between that waits for long: ranks that do not come within timeout_s end the
 * call in an error that names them.
 */
mpath_status_t mpath_team_settle_again(mpath_team_t *team, int mark, const void *mine, size_t bytes, void *all,
                                       int *marked_p);
int mpath_team_marked(const mpath_team_t *team);
/* Number of the last agreement, gathers included. */
uint32_t mpath_team_call(const mpath_team_t *team);
/* Grows when the topology changes: a rail failed, or is used again. */
unsigned mpath_team_topo_version(const mpath_team_t *team);
/* NICs of a node that are out of the topology since they failed, also in another team before this one; a bit each. */
uint32_t mpath_team_lost(const mpath_team_t *team, int node);

/*
 * Marks the team as broken: every later call on it fails, and every rank that waits in a call on it learns so soon
 * (node mates through the segment, other nodes through notices over the control plane). The first reason is kept; the
 * caller has logged it.
 */
void mpath_team_break(mpath_team_t *team, mpath_status_t reason);
/* MPATH_OK or the reason; looks at the node's flag too. */
mpath_status_t mpath_team_status(mpath_team_t *team);

/* For a wait that lasts. Lets the MPI library run; */
void mpath_team_progress(mpath_team_t *team);
/*
 * and whether a rank of this node still lives: MPATH_OK (also for ranks of other nodes) or an error. Costs system
 * calls.
 */
mpath_status_t mpath_team_peer_status(const mpath_team_t *team, int rank);

#endif
