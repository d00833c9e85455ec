/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of Alltoallv, for alltoallv.c, alltoallv_choice.c, alltoallv_observe.c and alltoallv_rates.c. */
#ifndef MPATH_COLL_ALLTOALLV_PRIVATE_H
#define MPATH_COLL_ALLTOALLV_PRIVATE_H

#include "adapt/known.h"
#include "adapt/passing.h"
#include "adapt/nics.h"
#include "coll/alltoallv.h"
#include "coll/doubt.h"
#include "coll/load.h"
#include "coll/plan_cache.h"
#include "coll/way_choice.h"

/* The rails that some node has, and what its NICs carry, see alltoallv_rates.c. Alike on all ranks but for what is local. */
typedef struct mpath_coll_rates {
    int numbers[MPATH_MAX_NICS];
    mpath_nics_t nics;
    int is_known; /* rates have been learned, or are of the file */
    /* local */
    int looked;           /* rank 0: into the file */
    uint64_t *stored_bps; /* by NIC, what it has and is not told yet; NULL: nothing */
    unsigned heard;       /* of mpath_known_changes() */
} mpath_coll_rates_t;

struct mpath_coll {
    mpath_team_t *team;
    const mpath_settings_t *settings; /* the context's */
    mpath_topo_t *rated;              /* the team's topology with rates that calls have shown; NULL: none yet */
    mpath_coll_rates_t rates;
    mpath_plan_cache_t *cache;
    mpath_gpu_coll_t *gpu;     /* calls with device memory inside a node */
    mpath_relay_coll_t *relay; /* those that a plan can help */
    uint64_t *demand;          /* what the plan has to carry, of the call under way */
    uint64_t *signatures;      /* of all ranks' plans; for check_plan */
    mpath_coll_counters_t counters;
    const char *declined_because;
    mpath_passing_t passing;
    uint64_t asked_ns;  /* when a timed call was asked about */
    uint32_t *times_ns; /* of all ranks' trials; NULL: there were none yet */
    mpath_way_choice_t device;
    mpath_doubt_t doubt; /* of calls on host memory */
    mpath_load_t load;   /* of the last call on host memory */
    uint64_t load_signature;
    int has_load;
    uint64_t *sums;        /* room for mpath_load_find() */
    uint64_t began_ns;     /* the last call */
    int wants_host;        /* the last call was declined for its device memory, on several nodes or for want of slots */
    int connected;         /* every pair of ranks has a path */
    unsigned topo_version; /* that cache and connected belong to */
};

/* Counts it. MPATH_DECLINED. */
static inline mpath_status_t mpath_coll_decline(mpath_coll_t *coll, const char *because)
{
    coll->declined_because = because;
    coll->counters.declined++;
    return MPATH_DECLINED;
}

/* alltoallv.c: plans are for a topology: starts anew with the team's present one, and its rates. */
mpath_status_t mpath_coll_read_topo(mpath_coll_t *coll);

/* alltoallv_rates.c: for a new topology. */
mpath_status_t mpath_coll_rates_init(mpath_coll_t *coll);
void mpath_coll_rates_release(mpath_coll_t *coll);
/* Whether rates are learned here. The same on all ranks, as all of these. */
int mpath_coll_rates_are_on(const mpath_coll_t *coll);
/* Starts anew with the rates of the team's present topology where that is another one. */
mpath_status_t mpath_coll_rates_refresh(mpath_coll_t *coll);
/* Calls have shown the present ones: plans follow, other communicators can hear of it, the file has them. */
mpath_status_t mpath_coll_rates_changed(mpath_coll_t *coll);

/*
 * alltoallv_observe.c: after a call on host memory whose bytes this plan has carried, or one on device memory that relays
 * have carried: counts what its rails have shown. Collective at the end of a window, on all ranks alike. An error breaks
 * the team.
 */
mpath_status_t mpath_coll_rates_observe(mpath_coll_t *coll, const mpath_plan_t *plan);
mpath_status_t mpath_coll_rates_observe_device(mpath_coll_t *coll);
/* Whether plans follow what calls on host memory show whose links take so long: the same on all ranks. */
int mpath_coll_rates_follow(const mpath_coll_t *coll, uint64_t links_ns);

/*
 * alltoallv_choice.c: what calls before have shown. How a call on device memory goes that relays could carry: the same
 * on all ranks; may be collective.
 */
mpath_status_t mpath_coll_choose_device(mpath_coll_t *coll, const mpath_agreed_t *agreed, mpath_way_t *way_p);
/*
 * Whether a call on host memory, of which coll->demand is left after the agreement, is the previous function's: the same
 * on all ranks; may be collective. An error breaks the team.
 */
mpath_status_t mpath_coll_choose_host(mpath_coll_t *coll, const mpath_agreed_t *agreed, int *previous_p);
/* How a call has ended, for those that may do without an agreement: its status, or an error. */
mpath_status_t mpath_coll_note_agreed(mpath_coll_t *coll, mpath_status_t status, const mpath_agreed_t *agreed);

#endif
