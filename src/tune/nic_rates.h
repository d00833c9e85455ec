/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NICs: what each NIC of a team carries, a rail of a node, as real calls have shown, and when that is reason enough to change
 * shares. The one learner of rates: Alltoallv has one for its plans, by NIC; reductions and gathers have one for each operation
 * and size class, by rail, since all NICs of a rail carry as much in them, and small calls see more latency than rate.
 *
 * Calls are gathered in windows, of a few calls and long enough that bursts and pauses of a few milliseconds, which are
 * no property of a NIC, do not count. At the end of a window the ranks exchange what they have seen, as a pace: over what
 * plans count on. All of them come to the same decision by the same arithmetic:
 *
 *   a NIC that differs from the others' mean by more than MPATH_RATES_JUMP_PPM           moves at once
 *   by more than MPATH_RATES_DRIFT_PPM, in two windows in a row                          moves then
 *   by less                                                                              is noise
 *
 * In the manner of FlexLink's second stage (arXiv 2510.15882), which watches the last calls and moves shares in small
 * steps.
 *
 * A rank sees either what a rail that it drives has carried in the time in which it had something to carry, or, as a
 * receiver, the pace of what comes by its own NIC, and that of the flow of each NIC that sends to it: what they take
 * at the present rates over what they have taken. A flow may be late for either of its ends. So a NIC is as slow as what
 * all its flows leave unexplained:
 *
 *   receiving   what has come from all NICs together, when those that are on time were through (mover/clock.h)
 *   sending     the mean of its flows, by bytes, each of them beside what its receiver's NIC explains
 *
 * and the smaller of both counts. An end that has less to do than the other one is late only for what the other one does
 * not explain, and never faster than it was. Where flows have a single other end, both may be blamed; so it is on two
 * nodes, where it makes no difference: a rail is as slow as its slower end.
 *
 * Of more than MPATH_NICS_MAX NICs, and in reductions, only rails are told apart: a rail is as slow as the slowest pace that
 * a rank has seen of it.
 *
 * Pure arithmetic but for mpath_nics_exchange(). All ranks come to the same from the same rows.
 */
#ifndef MPATH_TUNE_NIC_RATES_H
#define MPATH_TUNE_NIC_RATES_H

#include "team/team.h"
#include "topo/topo.h"
#include "util/status.h"

#include <stdint.h>

#define MPATH_RATES_WINDOW_CALLS 4 /* at least */
#define MPATH_RATES_WINDOW_NS 40000000ull
#define MPATH_RATES_JUMP_PPM 300000
#define MPATH_RATES_DRIFT_PPM 130000
#define MPATH_RATES_MOST_RISE 2 /* in one window: what a rail with a small share shows of its rate is mostly bursts */
#define MPATH_RATES_MOST_FALL 8
#define MPATH_RATES_SLOW 16       /* a part of the fastest rail's rate that is worth its messages */
#define MPATH_RATES_SEEN_CALLS 64 /* one of so many uses rails that have become slower, to see when they are not */

/* Where a window is. The same on all ranks. All zero at first. */
typedef struct mpath_rates_window {
    int calls;            /* of this window */
    uint64_t expected_ns; /* what its calls were predicted to take */
    int drifts;           /* windows in a row that drifted */
} mpath_rates_window_t;

/*
 * Rails that are worth using, a bit each: a call waits for the slowest of its messages, so not those with less than a
 * MPATH_RATES_SLOW-th of the fastest one's rate, unless all of these together would add so much to what the others carry.
 */
mpath_nic_set_t mpath_rates_worth(int num_rails, const uint64_t *bps);

#define MPATH_NICS_MAX 256                /* each rank exchanges 8 bytes for each at the end of a window */
#define MPATH_NICS_SAMPLES 16             /* the last ones of a window */
#define MPATH_NICS_ON_TIME 1000000        /* a pace */
#define MPATH_NICS_MOST_PACE 1000000000.0 /* a pace */
#define MPATH_NICS_WHOLE 65535            /* of what a NIC sends */
#define MPATH_NICS_UNSEEN_WINDOWS 8       /* in a row */

/* Of a window, what a rank has seen of a NIC: of its own node what it receives, of others what they send. Plain data. */
typedef struct mpath_nics_seen {
    uint32_t pace;   /* MPATH_NICS_ON_TIME: what plans count on; 0: nothing was seen */
    uint16_t part;   /* that the rank gets of what another node's NIC sends, of MPATH_NICS_WHOLE */
    uint16_t limits; /* the NIC had about as much to do as the busiest */
} mpath_nics_seen_t;

/* What calls of a window have shown to this rank: paces of calls, or what was carried in all, and in which time. */
typedef struct mpath_nics_samples {
    unsigned count;
    mpath_nics_seen_t last; /* whose pace is not used */
    uint32_t paces[MPATH_NICS_SAMPLES];
    uint64_t bytes, busy_ns;
} mpath_nics_samples_t;

/* NICs are numbered by node, then rail; all that plans count on is the same on all ranks. */
typedef struct mpath_nics {
    int num_nodes; /* that are told apart; 1: they are not, or there is one */
    int num_rails, num_nics;
    int looks; /* the owner looks now and then at what has become slow: nothing is trusted unseen */
    mpath_rates_window_t window;
    uint64_t *nominal_bps; /* as the system says; 0: the node does not have the NIC */
    uint64_t *current_bps; /* that plans count on */
    uint64_t *before_bps;  /* that they counted on before the latest window */
    int *unseen;           /* windows in which no rank saw anything of the NIC */
    mpath_nics_samples_t *samples;
} mpath_nics_t;

/* Nonzero: so many NICs are told apart; else rails are. */
int mpath_nics_are_told_apart(int num_nodes, int num_rails);

/* nominal_bps[num_nodes * num_rails], or of rails. Only on MPATH_OK there is something to release. */
mpath_status_t mpath_nics_init(mpath_nics_t *nics, int num_nodes, int num_rails, const uint64_t *nominal_bps);

void mpath_nics_release(mpath_nics_t *nics);
int mpath_nics_index(const mpath_nics_t *nics, int node, int rail);

/* Forgets what has been seen in the window, on all ranks alike. */
void mpath_nics_restart(mpath_nics_t *nics);

/* And the windows before it: others have learned something later. */
void mpath_nics_forget(mpath_nics_t *nics);

/*
 * The pace of what came by a NIC of this rank's node, `took_ns` in all, where `least_ns` was expected: where it is late, up
 * to on time, that which it had when others were not (pace_ns, see mover/clock.h): they may be late for their own ends.
 */
double mpath_nics_own_pace(const mpath_nics_t *nics, uint64_t least_ns, uint64_t took_ns, uint64_t pace_ns);

/* A call has shown this to this rank. `pace` is a fraction here: 1 is on time. */
void mpath_nics_observe(mpath_nics_t *nics, int nic, double pace, double part, int limits);

/* This rank has seen it carry `bytes` in the `busy_ns` in which it had something to carry. Where rails are told apart. */
void mpath_nics_carried(mpath_nics_t *nics, int nic, uint64_t bytes, uint64_t busy_ns);

/* Counts a call that was predicted to take `expected_ns`, on all ranks alike. Nonzero: the window ends with it. */
int mpath_nics_end_call(mpath_nics_t *nics, uint64_t expected_ns);

/* What this rank has seen in the window, row[num_nics], which is forgotten but for what is too little yet. */
void mpath_nics_read(mpath_nics_t *nics, mpath_nics_seen_t *row);

/*
 * rows[num_ranks * num_nics]: what every rank has seen; node_of[]: of ranks. Begins the next window. A NIC of which nothing
 * is seen in MPATH_NICS_UNSEEN_WINDOWS, having too little to carry, is trusted with twice as much. Nonzero: some of
 * current_bps differs from before_bps.
 */
mpath_status_t mpath_nics_update(mpath_nics_t *nics, const mpath_nics_seen_t *rows, int num_ranks, const int *node_of,
                                 int *changed_p);

/* The end of a window: exchanges what the ranks have seen, and follows it. Collective; an error has been logged. */
mpath_status_t mpath_nics_exchange(mpath_nics_t *nics, mpath_team_t *team, int *changed_p);

#endif
