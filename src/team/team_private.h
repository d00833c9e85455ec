/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of context and team, for the files of this room. */
#ifndef MPATH_TEAM_TEAM_PRIVATE_H
#define MPATH_TEAM_TEAM_PRIVATE_H

#include "record/page.h"
#include "lane/shm.h"
#include "rail/fabric.h"
#include "team/lost.h"
#include "team/outbox.h"
#include "team/team.h"
#include "util/number.h"
#include "util/process.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* What a rank tells the others about itself when a team is set up, and whether such ranks can form a team. */

#define TEAM_RECORD_VALUES 31

typedef struct team_record {
    uint64_t node_key;
    uint64_t topo_key;
    uint64_t team_id;                    /* rank 0's proposal counts */
    uint64_t shared_memory_bytes;        /* that the processes of its node may take in all */
    uint64_t held_bytes;                 /* of those, its own part by now */
    uint64_t outbox_bytes;               /* 0: it has none yet */
    uint64_t num_processes;              /* of the job on its node; 0: unknown */
    uint64_t values[TEAM_RECORD_VALUES]; /* of the parameters that all ranks must share */
    int32_t status;                      /* of its context */
    int32_t num_nics;                    /* of its node */
} team_record_t;

struct mpath_context {
    mpath_settings_t settings;
    mpath_machine_t machine;
    mpath_fabric_t *fabric;
    mpath_shm_t *shm; /* queues in the node's shared memory */
    mpath_outbox_t *outbox;
    int job_rank;
    int local_rank_hint;
    int num_processes; /* of the job on this node; 0: unknown */
    uint64_t node_key; /* processes with the same key share memory */
    uint64_t topo_key; /* checksum of the topology file that places the ranks; 0: none */
    mpath_topo_params_t topo_params;
    mpath_node_gpus_t gpus;     /* of this process's node, by the topology file; no GPUs: it tells of none */
    mpath_emulation_t emulated; /* of that file */
    int gpu;                    /* this process's in them; -1: none */
    mpath_status_t usable;      /* not MPATH_OK: why teams with this process are declined */
    pthread_mutex_t lock;       /* of what follows */
    int nic, nic_known;         /* the same in all teams, whichever thread asks first */
    mpath_nic_set_t lost;       /* NICs of the machine that teams have left out and not taken back, a bit each */
    uint64_t lost_until_ns;     /* when they may be asked for */
    uint64_t unopened_ns;       /* how long those that could not be opened were left out last; 0: there were none */
    int unopened_told;
};

/*
 * A context on a given machine instead of the discovered one. Processes whose machines have the same host name, and
 * that can share memory, form a node. For tests and virtual nodes.
 */
mpath_status_t mpath_context_create_on(const mpath_settings_t *settings, const mpath_machine_t *machine,
                                       int local_rank_hint, mpath_context_t **context_p);

/* The NIC beside this process, -1 without NICs; `local_rank` is used where the context has no hint. */
int mpath_context_nic(mpath_context_t *context, int local_rank);

/*
 * Shared memory that all processes of the node may take: node_memory_bytes, or a quarter of what there is without them
 * where that is less. *held_bytes_p: what this process holds.
 */
uint64_t mpath_context_shared_memory(const mpath_context_t *context, uint64_t *held_bytes_p);

/*
 * The nodes of a team and the memory that the ranks of a node share:
 *
 *   mpath_team_header_t     one line
 *   members                 every local rank: its process, and the processors it may use
 *   agreement               team/agree_private.h
 */

/* First line of the node's segment. */
typedef struct mpath_team_header {
    atomic_uint broken; /* see team/team.c; 0: whole */
} mpath_team_header_t;

#define MPATH_TEAM_HEADER_BYTES 64

/* A process of the node. */
typedef struct mpath_team_member {
    mpath_process_t process;
    atomic_uint published;
    cpu_set_t processors;
    /* Written before an exchange, read after it: where the mates find its outbox, and, by wire/connect.c, its queues. */
    mpath_segment_address_t outbox, queues[MPATH_SHM_KINDS];
    uint64_t numbers[MPATH_TEAM_NUMBERS]; /* the same, of mpath_team_most_and_mates() */
    char said[MPATH_TEAM_MATE_BYTES];     /* the same */
} mpath_team_member_t;

typedef struct mpath_agree_state mpath_agree_state_t; /* team/agree.c makes and ends it */

typedef struct mpath_channels mpath_channels_t; /* team/team.c: messages between nodes */

struct mpath_team {
    /* What each call looks at, and what its waits do */
    mpath_context_t *context;
    int rank, size;
    int num_nodes, node; /* in order of each node's lowest rank */
    int num_local, local_rank;
    mpath_team_header_t *header;
    mpath_status_t broken; /* first reason; MPATH_OK while whole */
    uint32_t call;         /* number of the last call; by the agreement */
    mpath_agree_state_t *agree;
    mpath_channels_t *channels; /* NULL on a single node, and on ranks that are neither leader nor deputy */
    uint64_t next_look_ns;      /* mpath_team_status() looks at the control plane from then on */
    mpath_page_slot_t *page;    /* where mpath_info --job sees the communicator */
    int num_drains;             /* of the users: how many have something to drain, see mpath_team_user_ops_t */
    unsigned topo_version;
    mpath_topo_t *topo;
    int *node_of;                  /* rank -> node */
    int *local_of;                 /* rank -> its number on its own node */
    int *local;                    /* ranks of my node, ascending */
    int *leaders;                  /* node -> its lowest rank */
    int *num_on;                   /* node -> its number of ranks */
    int *met;                      /* node -> 1 + the place of its first rank; 0: see mpath_team_meet() */
    int num_met;                   /* ranks of nodes that are met */
    mpath_team_user_t *users;      /* the last one that has attached itself first */
    mpath_record_t *record;        /* the caller's, of its calls; NULL: nobody counts */
    mpath_nic_set_t lost_anywhere; /* NICs that some node has lost, by their numbers */
    uint64_t settled_from_ns;      /* predicted time from which on the ranks end a call together */
    mpath_oob_t oob;
    uint64_t id; /* the same on all ranks, unlike that of any other team that one of them is in */

    mpath_topo_t
        *gpu_topo; /* the same nodes and ranks with their GPUs, for device memory; NULL: nobody tells of GPUs */
    const mpath_topo_t *gpu_topo_left; /* see mpath_team_set_gpu_topo_left() */
    unsigned gpu_topo_version;         /* of both */
    mpath_nic_set_t *lost;    /* node -> bit per NIC that has failed and is left out; all of them: lost_anywhere */
    uint64_t probe_ns;        /* how long they are left out at least */
    uint64_t back_ns;         /* when some were used again last; 0: none since others failed */
    uint64_t next_probe_ns;   /* when they are looked at again */
    mpath_nic_set_t carriers; /* of those of this node: had one when last looked at */
    uint64_t next_carrier_ns;
    unsigned recover_in; /* calls until mpath_team_lost_is_due(); alike on all ranks */

    mpath_segment_t segment;      /* of the node: header, members, agreement cells; private memory when alone */
    mpath_team_member_t *members; /* of my node */
    int (*is_marked)(const mpath_team_t *team); /* by the agreement: see mpath_team_marked() */
    mpath_outbox_share_t *outbox_share;         /* NULL: none */
};

/* team/lost.c: NICs of this node that other teams of this process have left out, by the numbers of `machine`. */
mpath_nic_set_t mpath_team_lost_known(const mpath_team_t *team, const mpath_machine_t *machine);

/* The new team leaves out what its ranks have told, team->lost. The same on all ranks. */
void mpath_team_lost_begin(mpath_team_t *team);

/* From which predicted time on the exchange that ends a call together is a hundredth of it, or by parameter. The team has its topology. */
uint64_t mpath_team_settled_from_ns(const mpath_team_t *team);

/* Like mpath_team_break(), where all ranks come to it from what they have agreed on: each says why, and none is told. */
void mpath_team_break_alike(mpath_team_t *team, mpath_status_t reason);

#endif
