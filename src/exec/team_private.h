/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of context and team, for the files of exec/ only. */
#ifndef MPATH_EXEC_TEAM_PRIVATE_H
#define MPATH_EXEC_TEAM_PRIVATE_H

#include "exec/fabric.h"
#include "exec/team.h"
#include "lane/shm.h"

struct mpath_context {
    mpath_settings_t settings;
    mpath_machine_t machine;
    mpath_fabric_t *fabric;
    int job_rank;
    int local_rank_hint;
};

/*
 * A context on a given machine instead of the discovered one. Processes whose machines have the same host name, and that can
 * share memory, form a node. For tests and virtual nodes.
 */
mpath_status_t mpath_context_create_on(const mpath_settings_t *settings, const mpath_machine_t *machine,
                                       int local_rank_hint, mpath_context_t **context_p);

/* State of the agreement (agree.c) and of the movement (move.c); each is made and ended by its own file. */
typedef struct mpath_agree_state mpath_agree_state_t;
typedef struct mpath_mover mpath_mover_t;

struct mpath_team {
    mpath_context_t *context;
    mpath_oob_t oob;
    uint64_t id; /* the same on all ranks, unlike that of any other team that one of them is in */
    int rank, size;

    int num_nodes, node; /* in order of each node's lowest rank */
    int num_local, local_rank;
    int *node_of;   /* rank -> node */
    int *local_of;  /* rank -> its number on its own node */
    int *local;     /* ranks of my node, ascending */
    int *leaders;   /* node -> its lowest rank */

    mpath_topo_t *topo;

    mpath_segment_t segment; /* of the node: header, agreement cells, shm region */
    mpath_shm_shape_t shm_shape;
    mpath_lane_t *shm; /* peers are local ranks; NULL when alone on the node */

    mpath_agree_state_t *agree;
    mpath_mover_t *mover; /* made by the first call that moves chunks */

    mpath_status_t broken; /* first reason; MPATH_OK while whole */
};

/* move.c */
void mpath_mover_destroy(mpath_mover_t *mover);

#endif
