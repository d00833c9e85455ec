/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Team: the processes of one communicator, and what they share. Created collectively on first use of the
 * communicator. It knows who sits on which node, holds the node's shared segment (agreement cells), the
 * topology, and the rails in use.
 *
 * Threads: one thread at a time per team (as MPI demands of collectives on a communicator); different teams may be used
 * by different threads at the same time.
 */
#ifndef MPATH_TEAM_TEAM_H
#define MPATH_TEAM_TEAM_H

#include "team/exchange.h"
#include "lane/lane.h"
#include "lane/segment.h"
#include "lane/shm.h"
#include "rail/fabric.h"
#include "record/record.h"
#include "topo/topo.h"
#include "util/param.h"
#include "util/process.h"

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
/* Processes of the job on this node, which share its memory; by itself those of the largest communicator count. */
void mpath_context_set_processes(mpath_context_t *context, int num_processes);
/*
 * Whether one thread at a time makes calls, of all teams of the context, which need no locks among each other then; by itself it is
 * not so. Before any team of several threads is made.
 */
void mpath_context_set_alone(mpath_context_t *context, int is_alone);
/*
 * When the calls of all processes have ended, as they have in MPI_Finalize: what others have not read yet is lost with the
 * connections.
 */
void mpath_context_destroy(mpath_context_t *context);

/* Which processes can share memory. */

/*
 * Processes with the same key form a node: the same host name, the same boot of the same kernel, the same IPC and
 * process id namespaces. `host` is the name that counts as host name; NULL: what the system says.
 */
uint64_t mpath_node_key(const char *host);

/* Bytes free where shared memory segments live; UINT64_MAX when the system does not say. */
uint64_t mpath_shared_memory_free(void);

typedef struct mpath_team mpath_team_t;

/*
 * Collective over oob->size processes. Either all get a team or all get an error or MPATH_DECLINED (a communicator of
 * one process, or one whose processes differ in build or settings that matter): decided from data that all have seen.
 * `oob` is copied; it serves one team in its life, which keeps receives posted on it until mpath_team_destroy().
 */
mpath_status_t mpath_team_create(mpath_context_t *context, const mpath_oob_t *oob, mpath_team_t **team_p);
/* Local; waits for nobody. */
void mpath_team_destroy(mpath_team_t *team);

/* Whoever carries calls on the team notes in it what they are; borrowed. NULL, as at the start: nobody counts. */
void mpath_team_set_record(mpath_team_t *team, mpath_record_t *record);
mpath_record_t *mpath_team_record(const mpath_team_t *team);

int mpath_team_rank(const mpath_team_t *team);
/* This process's number in its job. */
int mpath_team_job_rank(const mpath_team_t *team);
const char *mpath_team_name(const mpath_team_t *team); /* the communicator's, for messages */
/* The same on all ranks, unlike that of any other team that one of them is in. */
uint64_t mpath_team_id(const mpath_team_t *team);
int mpath_team_size(const mpath_team_t *team);

/* Nodes are numbered in the order of their lowest ranks, which lead them, and the ranks of a node in their order. */
int mpath_team_num_nodes(const mpath_team_t *team);
int mpath_team_node(const mpath_team_t *team); /* this rank's */
int mpath_team_node_of(const mpath_team_t *team, int rank);
int mpath_team_leader(const mpath_team_t *team, int node);
int mpath_team_num_on(const mpath_team_t *team, int node);   /* ranks */
int mpath_team_num_local(const mpath_team_t *team);          /* ranks of this node */
int mpath_team_local_rank(const mpath_team_t *team);         /* this rank's number on it */
int mpath_team_local_of(const mpath_team_t *team, int rank); /* that of any rank on its own node */
/* The name of the host that a rank runs on, for messages. */
const char *mpath_team_host(const mpath_team_t *team, int rank);

const mpath_context_t *mpath_team_context(const mpath_team_t *team);
/* Of its context: the machine of this process as it was found, its rails, its queues in shared memory. */
const mpath_machine_t *mpath_team_machine(const mpath_team_t *team);
mpath_fabric_t *mpath_team_fabric(const mpath_team_t *team);
mpath_shm_t *mpath_team_shm(const mpath_team_t *team);
int mpath_team_num_processes(const mpath_team_t *team); /* of the job on this node; 0: unknown */
/* Where the queues of a rank of this node are, by kind: it writes that before an exchange, and its mates read it after that. */
mpath_segment_address_t *mpath_team_queues(const mpath_team_t *team, int local);
/* The processes of the team's ranks on this node, in their order, and how many; to be freed. NULL: no memory. */
mpath_process_t *mpath_team_mates(const mpath_team_t *team, int *num_p);
const mpath_topo_t *mpath_team_topo(const mpath_team_t *team);
/*
 * That for device memory: the same ranks and nodes with their GPUs. NULL where nobody tells of GPUs; the same on all
 * ranks.
 */
const mpath_topo_t *mpath_team_gpu_topo(const mpath_team_t *team);
/* One that was found out later, by all ranks alike, where there was none. The team owns it. */
void mpath_team_set_gpu_topo(mpath_team_t *team, mpath_topo_t *topo);
/*
 * What is left of it without NICs that have failed, on all ranks alike: its static routes are those that the agreement counts. The
 * caller's, until it is set to another one, or to NULL: all of it.
 */
const mpath_topo_t *mpath_team_gpu_topo_left(const mpath_team_t *team);
void mpath_team_set_gpu_topo_left(mpath_team_t *team, const mpath_topo_t *topo);
const mpath_settings_t *mpath_team_settings(const mpath_team_t *team); /* its context's */
/*
 * Bytes of memory that the team takes for this rank, with those that other teams of the process use, too: its outbox, and from the
 * first call on that moves chunks its queues and chunks open on rails.
 */
uint64_t mpath_team_memory_bytes(const mpath_team_t *team);

/*
 * Gathers `bytes` bytes of every rank into all[size * bytes], on all ranks. Collective; for set-up inside of calls that
 * have been agreed on: ranks that do not come to it within timeout_s end the call in an error that names them.
 */
mpath_status_t mpath_team_allgather(mpath_team_t *team, const void *mine, size_t bytes, void *all);

/*
 * Of `num_nodes` nodes, whether two are near each other: whether one is 2^i, ceil(num_nodes / 2^i), or, where agreements need it, one
 * less than that behind the other, going round. Leaders wait for messages of near nodes only, but for small data, and reductions in
 * steps go between them. Of up to 7 nodes all are near; of more, a few for each time that their number doubles.
 */
int mpath_team_is_near(int num_nodes, int node, int other);

/*
 * Nodes that this one has met: itself, those near it, and those that it has met since, in a call in which some of its ranks have pairs
 * with theirs. Both nodes meet, and all ranks of a node meet the same nodes in the same order. Agreements tell of pairs with others
 * (mpath_agreed_t). Ranks of nodes that are met have places, counted from 0 in this order; -1: none.
 */
void mpath_team_meet(mpath_team_t *team, int node);
int mpath_team_num_met(const mpath_team_t *team);
int mpath_team_place(const mpath_team_t *team, int rank);

/*
 * mpath_team_allgather() among nodes that have met, those whose places begin at `since` or later; this one's count as the first.
 * What a rank says comes to all[place * bytes]. Collective over all ranks of the team, also where a node has met none since then.
 */
mpath_status_t mpath_team_gather_met(mpath_team_t *team, int since, const void *mine, size_t bytes, void *all);

/*
 * What nodes say to each other where only few of them have more than numbers to say: the most of any of these, and entries of the others.
 * All ranks of a node say the same.
 */
#define MPATH_TEAM_NUMBERS 3
#define MPATH_TEAM_ENTRY_BYTES 68 /* at most; a multiple of 4 */

typedef struct mpath_team_few {
    uint64_t most[MPATH_TEAM_NUMBERS]; /* in: of this node; out: of all */
    size_t entry_bytes;                /* the same on all ranks */
    size_t
        num_entries; /* in: 0 or 1, with the number of this node in its first four bytes; out: of all, in any order */
    char *entries;   /* capacity: one of each node */
} mpath_team_few_t;

/* Collective, on several nodes, as above: what a leader sends and gets is a few bytes for each entry, in ceil(log2 N) messages. */
mpath_status_t mpath_team_gather_few(mpath_team_t *team, mpath_team_few_t *said);

/* The most that any rank has, of some numbers. Collective, as above; a leader sends some bytes to ceil(log2 N) nodes. */
mpath_status_t mpath_team_most(mpath_team_t *team, uint64_t most[MPATH_TEAM_NUMBERS]);

/*
 * The same, and `bytes` bytes of every rank of this node, MPATH_TEAM_MATE_BYTES at most, in all_mates[num_local * bytes], in
 * their order.
 */
#define MPATH_TEAM_MATE_BYTES 112
mpath_status_t mpath_team_most_and_mates(mpath_team_t *team, uint64_t most[MPATH_TEAM_NUMBERS], const void *mine,
                                         size_t bytes, void *all_mates);

/*
 * A number for mpath_team_most() that says whether something has failed: 0: no. Of ranks on which it has, the lowest one
 * counts. mpath_team_most_failed(): MPATH_OK, or its status.
 */
uint64_t mpath_team_most_fails(const mpath_team_t *team, mpath_status_t status);
mpath_status_t mpath_team_most_failed(uint64_t number, int *rank_p);

/*
 * Shared memory that every rank may still take, its part of a segment, for what communicators share: *capacity_bytes_p is the
 * least of all ranks. Who wants much takes at most half of it, so that there is something for others; of what a node's
 * processes are to share in all, that half is what is left, with `all_of_it`, or half of that. Collective, as above.
 */
mpath_status_t mpath_team_shared_capacity(mpath_team_t *team, int all_of_it, uint64_t *capacity_bytes_p);

/*
 * mpath_team_allgather() for a few bytes, which have to fit into one agreement, with a mark: who waits for something inside a call
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
/* Whether the ranks end a call of which this time is predicted together. Alike on all. */
int mpath_team_settles(const mpath_team_t *team, uint64_t predicted_ns);

/* Grows when the topology changes: a rail failed, or is used again (team/lost.h). */
unsigned mpath_team_topo_version(const mpath_team_t *team);
void mpath_team_topo_changed(mpath_team_t *team);
/* NICs of a node that are out of the topology since they failed, also in another team before this one; a bit each. */
mpath_nic_set_t mpath_team_lost(const mpath_team_t *team, int node);

/*
 * Marks the team as broken: every later call on it fails, and every rank that waits in a call on it learns so soon
 * (node mates through the segment, other nodes through notices over the control plane). The first reason is kept; the
 * caller has logged it.
 */
void mpath_team_break(mpath_team_t *team, mpath_status_t reason);
/*
 * A call returns: the first time that the team is broken then, gives the control plane up to a second to let go of the notices
 * (mpath_exchange_let_go()).
 */
void mpath_team_flush_notices(mpath_team_t *team);
/* MPATH_OK or the reason; looks at the node's flag too. */
mpath_status_t mpath_team_status(mpath_team_t *team);

/*
 * For a wait that lasts: does a rank of this node still live? MPATH_OK (also for ranks of other nodes) or an error.
 * Costs system calls.
 */
mpath_status_t mpath_team_peer_status(const mpath_team_t *team, int rank);

/*
 * What the leader of a node says to that of another one by another network than the control plane, which may not get
 * through: how many messages that has been sent, and whether the team is broken here.
 */
typedef struct mpath_team_word {
    uint32_t sent;         /* modulo 2^32 */
    mpath_status_t reason; /* MPATH_OK: it is whole */
    int origin;            /* then 0, else the rank that broke it */
} mpath_team_word_t;

/*
 * What works on a team attaches itself to it, so that a team does not have to know who that is. Told in the reverse order
 * of attaching, by the thread that is in a call of the team.
 */
typedef struct mpath_team_user_ops {
    /* The team has failed: whatever comes from now on is dropped. What is under way goes on. May be NULL. */
    void (*stop)(void *self);
    /*
     * This rank waits in an agreement: reads what others still send, and drops it where it is given up. Asked while
     * mpath_team_count_drains() counts somebody who has something to read. May be NULL.
     */
    void (*drain)(void *self);
    /*
     * This rank has waited long for a rank of another node: nonzero when none of its connections with that answers any more, whose
     * names are put into `text` then. `anew`: in another wait than before. May be NULL.
     */
    int (*is_cut_off)(void *self, int rank, int anew, char *text, size_t size);
    /* To and from the leader `rank` of another node; 0: it has said nothing. What is said may be lost. May be NULL. */
    void (*say)(void *self, int rank, const mpath_team_word_t *word);
    int (*heard)(void *self, int rank, mpath_team_word_t *word);
    /* This rank's share of the memory that it has taken; NULL: none worth counting. */
    uint64_t (*memory_bytes)(const void *self);
    /* The team ends. */
    void (*destroy)(void *self);
} mpath_team_user_ops_t;

/* Part of who attaches itself. */
typedef struct mpath_team_user {
    struct mpath_team_user *next;
    const mpath_team_user_ops_t *ops;
    void *self;
} mpath_team_user_t;

void mpath_team_attach(mpath_team_t *team, mpath_team_user_t *user, const mpath_team_user_ops_t *ops, void *self);
/* Who has attached itself with these; NULL: nobody. */
void *mpath_team_attached(const mpath_team_t *team, const mpath_team_user_ops_t *ops);
/* Somebody has something to drain from now on, 1, or has not any more, -1. */
void mpath_team_count_drains(mpath_team_t *team, int more);

#endif
