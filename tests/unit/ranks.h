/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks: runs a test body in several processes that stand for the ranks of a job, with a control plane in memory that
 * they share. Ranks are dealt to virtual nodes: they get machines of different host names, and that is what decides who
 * shares a node.
 *
 * Inside a body use ranks_check(), not cmocka's asserts (a child must not return into the parent's test runner).
 */
#ifndef MPATH_TESTS_UNIT_RANKS_H
#define MPATH_TESTS_UNIT_RANKS_H

#include "team/exchange.h"
#include "team/team.h"
#include "topo/topo.h"
#include "util/param.h"

#include <stdint.h>

#define RANKS_MAX 32

typedef struct ranks_setup {
    int size;             /* ranks, up to RANKS_MAX */
    int nodes;            /* 0: one */
    const int *node_of;   /* rank -> node; NULL: blocks of (nearly) equal size */
    int nics;             /* NICs of each node, on rails 0, 1, ... */
    const char *nic_name; /* the UCX device behind all of them; NULL: "lo" */
    uint64_t nic_bps;     /* 0: 1 GB/s */
    uint32_t may_die;     /* bit r: rank r ends by a signal, which is no failure */
    uint32_t may_abort;   /* bit r: rank r may be ended by abort(), by a library */
    int deaf;             /* the control plane does not tell that a peer has ended, as most MPI libraries do not */
} ranks_setup_t;

typedef struct ranks_mesh ranks_mesh_t;

/* What a body knows of itself. */
typedef struct ranks_self {
    int rank, size;
    int node, local_rank;
    mpath_machine_t machine;
    mpath_oob_t oob; /* all ranks, channel 0 */
    ranks_mesh_t *mesh;
} ranks_self_t;

/* Returns 0 on success. */
typedef int (*ranks_body_t)(ranks_self_t *self, void *argument);

/* Forks, runs the body in every rank, waits for all. Returns the number of ranks that failed, each named on stderr. */
int ranks_run(const ranks_setup_t *setup, ranks_body_t body, void *argument);

/*
 * A further control plane (a communicator) of `size` members; members[i] is the rank behind its rank i, NULL: all
 * ranks. `channel` tells it apart from the others, the same number on all members. Control planes may be used by
 * different threads. Lives until the body ends.
 */
void ranks_oob(ranks_self_t *self, int channel, const int *members, int size, mpath_oob_t *oob_p);

/* From here on nothing that others send over the control plane comes here. */
void ranks_cut(ranks_self_t *self);

/* From here on this rank's log lines, which the test provokes, are dropped. */
void ranks_drop_log(void);

/* A context on the rank's virtual node, and a team of all ranks on it; a failure ends the rank with a message. */
mpath_context_t *ranks_context(ranks_self_t *self, const mpath_settings_t *settings);
mpath_team_t *ranks_team(ranks_self_t *self, mpath_context_t *context);

/* NICs that have failed are not tried again, here and in teams made from now on, however long the test takes; else after a while. */
void ranks_stay_lost(mpath_team_t *team);

/* What this rank has sent so far over a NIC of its node. */
uint64_t ranks_sent_bytes(int nic);

/* Waits for all ranks. */
void ranks_barrier(ranks_self_t *self);

#define ranks_check(_condition)                                                                                        \
    do {                                                                                                               \
        if (!(_condition)) {                                                                                           \
            ranks_fail(__FILE__, __LINE__, #_condition);                                                               \
        }                                                                                                              \
    } while (0)
void ranks_fail(const char *file, int line, const char *text) __attribute__((noreturn));

#endif
