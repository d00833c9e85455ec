/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Entry: how the reductions and gathers of a communicator come to be asked about. Their sizes are the same on all ranks, so
 * a call that is too short to gain is the previous function's without a word to anybody, and a team is made by the first
 * one that may gain. An application may start CUDA at any time, on one rank earlier than on another: so the ranks compare in
 * their 1st, 2nd, 4th, 8th ... call that is long enough, until all have. From then on calls are asked about on device
 * memory first, and where that leaves them on copies in host memory: which algorithm carries them the tables of
 * coll/reduction.h say.
 *
 * Thread-safety: as of the communicator, of which one call is under way at a time.
 */
#ifndef MPATH_COLL_ENTRY_H
#define MPATH_COLL_ENTRY_H

#include "coll/reduction.h"
#include "coll/tuning.h"

/* What the communicator's MPI does. `user` is its own. */
typedef struct mpath_entry_ops {
    /*
     * Sets *symmetric_p to the communicator's team's, or NULL: none. `makes`: makes the team if that has not been tried,
     * together with the other ranks. Returns whether it has been tried.
     */
    int (*team)(void *user, int makes, mpath_symmetric_t **symmetric_p);
    /* Whether all ranks say so. Collective; `here`: with a deadline, since all are known to be in the call. */
    int (*all)(void *user, int mine, int here);
    /* Whether all ranks have this key, and says so where they have not. Collective. */
    int (*same)(void *user, uint64_t key);
    /* Whether the functions that mpath replaces move device memory as it is, in this process. */
    int (*knows_devices)(void *user);
    const char *(*name)(void *user); /* of the communicator, for the log */
} mpath_entry_ops_t;

/* Belongs to the communicator. The members are coll/entry.c's. */
typedef struct mpath_entry {
    const mpath_settings_t *settings;
    const mpath_tuning_t *tuning;
    const mpath_entry_ops_t *ops; /* NULL: no call is asked about */
    void *user;
    int size, rank;
    int is_remote;             /* ranks are on several nodes */
    int is_compared, is_alike; /* the ranks' parameters have been compared, and are the same */
    int never_on_devices;
    const char *why; /* the last call was left to the previous function: a text of record/reason.h */
    uint64_t calls;  /* in which devices might have been asked about; the same on all ranks */
} mpath_entry_t;

/* `ops` NULL: the calls are all the previous function's. */
void mpath_entry_init(mpath_entry_t *entry, const mpath_settings_t *settings, const mpath_tuning_t *tuning,
                      const mpath_entry_ops_t *ops, void *user, int size, int rank, int is_remote);

/* A call. What is said of buffers is this rank's own, the rest the same on all ranks. */
typedef struct mpath_reduction mpath_reduction_t;
struct mpath_reduction {
    mpath_operation_t collective;
    uint64_t bytes;          /* of the whole vector */
    uint64_t elements;       /* of an Allreduce */
    const uint64_t *blocks;  /* by rank: elements of a Reduce_scatter; bytes of an Allgather, which look() and */
    const uint64_t *offsets; /* to_host() set; and where they lie */
    const mpath_combination_t *combination; /* NULL: mpath does not combine so */
    const mpath_reduce_how_t *how;          /* NULL: GPUs do not */
    mpath_symmetric_buffers_t buffers;      /* in an Allgather send NULL: this rank's block is in its place */
    /* Finds out where the buffers are, before devices are asked about. An error is told in the agreement. */
    void (*look)(mpath_reduction_t *call, void *user);
    /*
     * Describes the call by buffers in host memory, by copies where they are of devices. `asks`: for mpath; else for the
     * previous function, which may know devices. An error is this rank's own.
     */
    mpath_status_t (*to_host)(mpath_reduction_t *call, int asks, void *user);
    void *user;
};

/*
 * Nonzero: the call is the previous function's, on the buffers as they are and without a word to anybody. For processes that
 * use no GPU, when no operation of the communicator is under way; asked once for each call. Ranks need not do alike:
 * mpath_entry_run() leads there as well.
 */
int mpath_entry_passes(mpath_entry_t *entry, mpath_operation_t collective, uint64_t bytes);

/*
 * Collective. MPATH_DECLINED, on all ranks alike: the previous function carries the call, as to_host() has described it.
 */
mpath_status_t mpath_entry_run(mpath_entry_t *entry, mpath_reduction_t *call);

/* A blocking call has ended, whoever carried it. */
void mpath_entry_ended(mpath_entry_t *entry);

#endif
