/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of Alltoallv, for coll/alltoallv.c and coll/learn.c. */
#ifndef MPATH_COLL_ALLTOALLV_PRIVATE_H
#define MPATH_COLL_ALLTOALLV_PRIVATE_H

#include "tune/history.h"
#include "tune/passing.h"
#include "tune/nic_rates.h"
#include "coll/alltoallv.h"
#include "coll/tuning.h"
#include "tune/doubt.h"
#include "plan/demand.h"
#include "plan/gate.h"
#include "coll/parts.h"
#include "coll/plans.h"
#include "tune/function.h"

/* The rails that some node has, and what its NICs carry, see coll/learn.c. Alike on all ranks but for what is local. */
typedef struct mpath_coll_rates {
    int numbers[MPATH_MAX_NICS];
    mpath_nics_t nics;
    int is_known; /* rates have been learned, or are of the file */
    /* local */
    int looked;           /* rank 0: into the file */
    uint64_t *stored_bps; /* by NIC, what it has and is not told yet; NULL: nothing */
    unsigned heard;       /* of mpath_history_changes() */
} mpath_coll_rates_t;

/* An MPI_Alltoall of so many bytes a pair that the ranks have left to the previous function: what it was for coll->doubt. */
typedef struct mpath_coll_equal {
    uint64_t pair_bytes; /* 0: none */
    uint64_t bytes;
    unsigned skew;
} mpath_coll_equal_t;

#define MPATH_COLL_EQUALS 4 /* of half octaves that follow each other */

struct mpath_coll {
    /* What each call looks at */
    mpath_team_t *team;
    const mpath_settings_t *settings; /* the context's */
    mpath_gpu_coll_t *gpu;            /* calls with device memory inside a node */
    mpath_relay_coll_t *relay;        /* those that a plan can help */
    mpath_parts_t *parts;     /* where nodes have the same rails in the topology that plans are for; else NULL */
    const mpath_plan_t *part; /* of the call under way; NULL: its plan is of the whole job */
    uint64_t began_ns;        /* the last call */
    const char *declined_because;
    unsigned topo_version; /* that plans and connected belong to */
    unsigned parts_number; /* another one whenever parts were made anew */
    int part_hit;
    uint32_t watches; /* MPATH_CALL_WATCHED, or 0 */
    mpath_coll_counters_t counters;
    mpath_passing_t passing;
    mpath_doubt_t doubt;  /* of calls on host memory */
    uint64_t equal_bytes; /* of each pair of ranks in the call under way, an MPI_Alltoall; 0: it is none */
    mpath_coll_equal_t equals[MPATH_COLL_EQUALS];
    mpath_coll_rates_t rates;
    mpath_tuning_t tuning;
    /* What the plan has to carry, of the call under way; kept while calls have the same signature. NULL: none had any */
    uint64_t *demand;
    uint64_t demand_signature;
    int has_demand;
    mpath_plans_t plans;    /* for the team's topology */
    mpath_gate_view_t view; /* of it, on the topology that plans are for */
    int has_view;
    int is_planned;        /* the last plan asked of the cache was for it */
    uint64_t *signatures;  /* of all ranks' plans; for check_plan; behind `sums` */
    uint64_t asked_ns;     /* when a timed call was asked about */
    mpath_trials_t device; /* of functions (tune/function.h) on device memory of several nodes */
    mpath_load_t load;     /* of the demand */
    int has_load;
    uint64_t *sums; /* room for mpath_load_find(); reserved */
    int connected;  /* every pair of ranks has a path */
};

/* Counts it. MPATH_DECLINED. */
static inline mpath_status_t mpath_coll_decline(mpath_coll_t *coll, const char *because)
{
    coll->declined_because = because;
    coll->counters.declined++;
    return MPATH_DECLINED;
}

/* coll/learn.c: plans are for a topology: starts anew with the team's present one, and its rates. */
mpath_status_t mpath_coll_read_topo(mpath_coll_t *coll);
void mpath_coll_rates_release(mpath_coll_t *coll);

/*
 * coll/learn.c: after a call on host memory whose bytes this plan has carried, or one on device memory that relays
 * have carried: counts what its rails have shown. Collective at the end of a window, on all ranks alike. An error breaks
 * the team.
 */
mpath_status_t mpath_coll_rates_observe(mpath_coll_t *coll, const mpath_plan_t *plan);
mpath_status_t mpath_coll_rates_observe_device(mpath_coll_t *coll);
/* Whether plans follow what calls on host memory show whose links take so long: the same on all ranks. */
int mpath_coll_rates_follow(const mpath_coll_t *coll, uint64_t links_ns);

#endif
