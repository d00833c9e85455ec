/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of context and team, for the files of exec/ only. */
#ifndef MPATH_EXEC_TEAM_PRIVATE_H
#define MPATH_EXEC_TEAM_PRIVATE_H

#include "exec/fabric.h"
#include "exec/team.h"
#include "exec/wire.h"
#include "lane/shm.h"

#include <pthread.h>
#include <stdatomic.h>

struct mpath_context {
    mpath_settings_t settings;
    mpath_machine_t machine;
    mpath_fabric_t *fabric;
    int job_rank;
    int local_rank_hint;
    uint64_t node_key; /* processes with the same key share memory */
    uint64_t topo_key; /* checksum of the topology file that places the ranks; 0: none */
    mpath_topo_params_t topo_params;
    mpath_node_gpus_t gpus;     /* of this process's node, by the topology file; no GPUs: it tells of none */
    mpath_emulation_t emulated; /* of that file */
    int gpu;                    /* this process's in them; -1: none */
    mpath_status_t usable;      /* not MPATH_OK: why teams with this process are declined */
    pthread_mutex_t lock;       /* of what follows */
    int nic, nic_known;         /* the same in all teams, whichever thread asks first */
    uint32_t lost;              /* NICs of the machine that teams have left out and not taken back, a bit each */
    uint64_t lost_until_ns;     /* when they may be asked for */
};

/*
 * A context on a given machine instead of the discovered one. Processes whose machines have the same host name, and
 * that can share memory, form a node. For tests and virtual nodes.
 */
mpath_status_t mpath_context_create_on(const mpath_settings_t *settings, const mpath_machine_t *machine,
                                       int local_rank_hint, mpath_context_t **context_p);

/* The NIC beside this process, -1 without NICs; `local_rank` is used where the context has no hint. */
int mpath_context_nic(mpath_context_t *context, int local_rank);

/* First line of the node's segment. */
typedef struct mpath_team_header {
    atomic_uint broken; /* see team_break.c; 0: whole */
} mpath_team_header_t;

#define MPATH_TEAM_HEADER_BYTES 64

/* State of the agreement (agree_layout.c) and of the movement (move_setup.c), made and ended by these files. */
typedef struct mpath_agree_state mpath_agree_state_t;
typedef struct mpath_mover mpath_mover_t;
typedef struct mpath_channels mpath_channels_t; /* channel.c: messages between nodes */

struct mpath_team {
    mpath_context_t *context;
    mpath_oob_t oob;
    uint64_t id; /* the same on all ranks, unlike that of any other team that one of them is in */
    int rank, size;

    int num_nodes, node; /* in order of each node's lowest rank */
    int num_local, local_rank;
    int *node_of;  /* rank -> node */
    int *local_of; /* rank -> its number on its own node */
    int *local;    /* ranks of my node, ascending */
    int *leaders;  /* node -> its lowest rank */
    int *num_on;   /* node -> its number of ranks */

    mpath_topo_t *topo;
    mpath_topo_t
        *gpu_topo; /* the same nodes and ranks with their GPUs, for device memory; NULL: nobody tells of GPUs */
    unsigned topo_version;
    uint64_t settled_from_ns; /* predicted time from which on the ranks end a call together; by move_retry.c */
    uint32_t *lost;           /* node -> bit per NIC that has failed and is left out; by move_retry.c */
    uint64_t probe_ns;        /* how long they are left out at least */
    uint64_t back_ns;         /* when some were used again last; 0: none since others failed */
    uint64_t next_probe_ns;   /* when they are looked at again */
    uint32_t carriers;        /* of those of this node: had one when last looked at */
    uint64_t next_carrier_ns;
    unsigned recover_in; /* calls until mpath_move_recover() asks the others again; alike on all ranks */

    mpath_segment_t segment; /* of the node: header, agreement cells, shm region; private memory when alone */
    mpath_team_header_t *header;
    mpath_shm_shape_t shm_shape;
    mpath_lane_t *shm; /* peers are local ranks; NULL when alone on the node */

    mpath_channels_t *channels; /* NULL on a single node, and on ranks that are neither leader nor deputy */
    mpath_agree_state_t *agree;
    mpath_mover_t *mover; /* made by the first call that moves chunks */
    mpath_wire_t *wire;   /* made by the first call that needs it; after the mover */
    int wire_declined;    /* some rank could not make it; alike on all */

    mpath_status_t broken; /* first reason; MPATH_OK while whole */
    uint64_t next_look_ns; /* mpath_team_status() looks at the control plane from then on */
};

#define MPATH_PROBE_FIRST_NS (10 * MPATH_NS_PER_S) /* a NIC that has failed is left out for so long at least */

/* team_lost.c: NICs of this node that other teams of this process have left out, by the numbers of `machine`; */
uint32_t mpath_team_lost_known(const mpath_team_t *team, const mpath_machine_t *machine);
/* NICs of this node have been left out, or are used again: for the teams that are made from now on; */
void mpath_team_lost_note(const mpath_team_t *team, uint32_t nics, int lost);
/* and the new team leaves out what its ranks have told, team->lost. The same on all ranks. */
void mpath_team_lost_begin(mpath_team_t *team);

/* move_retry.c: by parameter, or such that the exchange is a hundredth of it. The team has its topology. */
uint64_t mpath_move_settled_from_ns(const mpath_team_t *team);

/* The name of the host that a rank runs on, for messages. */
const char *mpath_team_host(const mpath_team_t *team, int rank);

/* A notice came from another node: like mpath_team_break(), but the other nodes know already. */
void mpath_team_break_by_notice(mpath_team_t *team, mpath_status_t reason, int origin);

/* move_setup.c */
void mpath_mover_destroy(mpath_mover_t *mover);
/* This rank's share of the rings towards relays, and what may be open on the rails, which other teams use, too. */
uint64_t mpath_mover_memory_bytes(const mpath_mover_t *mover);
/* move_inbox.c: drops the chunks that are not looked at yet and all that come. */
void mpath_inbox_close(mpath_mover_t *mover);

#endif
