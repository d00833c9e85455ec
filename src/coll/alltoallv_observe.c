/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What calls of Alltoallv show of the rails, on host memory and, between nodes, on device memory: both feed the same
 * windows (adapt/nics.h), for it is the same NICs that carry them. Not those that take their time for other links, that
 * are too short, or that others progress, whose ranks compute meanwhile. Calls that another way is chosen for
 * (coll/doubt.h, coll/way_choice.h) show nothing; those that try mpath's own way again do.
 */
#include "coll/alltoallv_private.h"

#include "exec/idle.h"
#include "exec/rail_times.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

#define LEARN_MIN_NS MPATH_NS_PER_MS /* that rails take: shorter calls show latencies */
#define BUSY_PERCENT 80              /* of the busiest NIC's time: what others take may be its doing */

/* The end of a window. *changed_p: plans count on other rates from now on. */
static mpath_status_t exchange(mpath_coll_t *coll, int *changed_p)
{
    const mpath_topo_t *topo = mpath_team_topo(coll->team);
    mpath_nics_t *nics       = &coll->rates.nics;
    size_t size = (size_t)mpath_team_size(coll->team), row_bytes = (size_t)nics->num_nics * sizeof(mpath_nics_seen_t);
    mpath_nics_seen_t *rows = malloc((size + 1) * row_bytes); /* the last one is this rank's */
    int *node_of            = malloc(size * sizeof(*node_of));
    mpath_status_t status   = MPATH_ERR_NO_MEMORY;

    if ((rows == NULL) || (node_of == NULL)) {
        mpath_error("no memory for the observed rates of %zu ranks; the call fails", size);
    } else {
        mpath_nics_read(nics, rows + size * (size_t)nics->num_nics);
        status = mpath_team_allgather(coll->team, rows + size * (size_t)nics->num_nics, row_bytes, rows);
    }
    for (size_t rank = 0; (rank < size) && (status == MPATH_OK); rank++) {
        node_of[rank] = mpath_topo_place(topo, (int)rank)->node;
    }
    if (status == MPATH_OK) {
        status = mpath_nics_update(nics, rows, (int)size, node_of, changed_p);
    }
    free(node_of);
    free(rows);
    return ((status == MPATH_OK) && *changed_p) ? mpath_coll_rates_changed(coll) : status;
}

/* A NIC of a node, as those of the rates; -1: it is not among them. */
static int nic_of(const mpath_coll_t *coll, int node, int nic)
{
    const mpath_machine_t *machine = mpath_topo_machine(mpath_team_topo(coll->team), node);

    for (int i = 0; (i < coll->rates.nics.num_rails) && (nic < machine->num_nics); i++) {
        if (coll->rates.numbers[i] == machine->nics[nic].rail) {
            return mpath_nics_index(&coll->rates.nics, node, i);
        }
    }
    return -1;
}

/* Whether something that takes so long does so for about as long as the busiest NIC of all. */
static int is_busy(uint64_t least_ns, uint64_t rails_ns)
{
    return (double)least_ns >= (double)rails_ns * BUSY_PERCENT / 100;
}

/* The NICs of this node that what came by them was as much work for as for the busiest, or for those that sent it. */
static void observe_own(mpath_coll_t *coll, int node, const mpath_rail_times_t *times, uint64_t rails_ns)
{
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        int index = (times->took_ns[nic] > 0) ? nic_of(coll, node, nic) : -1;

        if ((index >= 0) && is_busy(times->least_ns[nic], rails_ns)) {
            double pace = mpath_nics_own_pace(&coll->rates.nics, times->least_ns[nic], times->took_ns[nic],
                                              times->pace_ns[nic]);

            mpath_nics_observe(&coll->rates.nics, index, pace, 0, is_busy(times->own_ns[nic], rails_ns));
        }
    }
}

/* The same for those of a node that have sent to this rank. */
static void observe_source(mpath_coll_t *coll, int node, const mpath_rail_source_t *sources, uint64_t rails_ns)
{
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        const mpath_rail_source_t *source = &sources[nic];
        int index = ((source->bytes > 0) && (source->took_ns > 0)) ? nic_of(coll, node, nic) : -1;

        if ((index >= 0) && is_busy(source->least_ns, rails_ns)) {
            mpath_nics_observe(&coll->rates.nics, index, (double)source->least_ns / (double)source->took_ns,
                               (double)source->bytes / (double)source->load_bytes, is_busy(source->own_ns, rails_ns));
        }
    }
}

static void observe_rails(mpath_coll_t *coll, const mpath_rail_times_t *times, uint64_t rails_ns)
{
    const mpath_topo_t *topo = mpath_team_topo(coll->team);
    int node                 = mpath_topo_place(topo, mpath_team_rank(coll->team))->node;

    observe_own(coll, node, times, rails_ns);
    for (int other = 0; (other < coll->rates.nics.num_nodes) && (times->sources != NULL); other++) {
        if ((coll->rates.nics.num_nodes > 1) && (other != node)) {
            observe_source(coll, other, &times->sources[other * MPATH_MAX_NICS], rails_ns);
        }
    }
}

/* Whether the call can show something; the same on all ranks. */
static int may_show(const mpath_coll_t *coll, const mpath_plan_t *plan)
{
    return mpath_coll_rates_are_on(coll) && (mpath_plan_z_ns(plan) >= LEARN_MIN_NS) && !mpath_idle_others_may_rest() &&
           (coll->topo_version == mpath_team_topo_version(coll->team));
}

/*
 * What the busiest NIC takes at the present rates; 0: that is not what a call with this plan takes its time for, or
 * nothing comes by NICs.
 */
static uint64_t rails_ns_of(const mpath_topo_t *rated, const mpath_plan_t *plan)
{
    uint64_t rails_ns = mpath_rail_times_busiest_ns(rated, plan);
    int counts        = (rails_ns >= LEARN_MIN_NS) && (mpath_topo_params(rated)->emulated != MPATH_EMULATED_COPIES) &&
                 ((double)rails_ns >= (double)mpath_plan_z_ns(plan) * BUSY_PERCENT / 100);

    return counts ? rails_ns : 0;
}

/* Counts the call. `ends`: with it the window does. Collective then, and when enough has been seen. */
static mpath_status_t count(mpath_coll_t *coll, const mpath_rail_times_t *times, uint64_t rails_ns, int ends,
                            int *changed_p)
{
    mpath_status_t status = MPATH_OK;

    observe_rails(coll, times, rails_ns);
    ends |= mpath_rates_window_ends(&coll->rates.nics.window, rails_ns);
    *changed_p = 0;
    if (ends) {
        status = exchange(coll, changed_p);
    }
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
    }
    return status;
}

int mpath_coll_rates_follow(const mpath_coll_t *coll, uint64_t links_ns)
{
    return mpath_coll_rates_are_on(coll) && (links_ns >= LEARN_MIN_NS);
}

mpath_status_t mpath_coll_rates_observe(mpath_coll_t *coll, const mpath_plan_t *plan)
{
    const mpath_topo_t *topo = (coll->rated != NULL) ? coll->rated : mpath_team_topo(coll->team);
    uint64_t rails_ns        = may_show(coll, plan) ? rails_ns_of(topo, plan) : 0;
    mpath_rail_times_t times;
    mpath_status_t status;
    unsigned in_doubt;
    int changed;

    if (rails_ns == 0) {
        mpath_doubt_adapted(&coll->doubt, 0); /* nothing will */
        return MPATH_OK;
    }
    in_doubt = mpath_doubt_window_call(&coll->doubt);
    if (in_doubt == 1) { /* what calls before have shown has become wrong */
        mpath_nics_restart(&coll->rates.nics);
    }
    mpath_move_times(coll->team, topo, plan, &times);
    status = count(coll, &times, rails_ns, in_doubt == MPATH_DOUBT_WINDOW_CALLS, &changed);
    if (in_doubt == MPATH_DOUBT_WINDOW_CALLS) {
        mpath_doubt_adapted(&coll->doubt, changed);
    }
    return status;
}

mpath_status_t mpath_coll_rates_observe_device(mpath_coll_t *coll)
{
    const mpath_topo_t *rated;
    const mpath_plan_t *plan = mpath_relay_coll_moved(coll->relay, &rated);
    mpath_status_t status    = mpath_coll_rates_refresh(coll);
    mpath_rail_times_t times;
    uint64_t rails_ns;
    int changed;

    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
        return status;
    }
    rails_ns = ((plan != NULL) && may_show(coll, plan)) ? rails_ns_of(rated, plan) : 0;
    if (rails_ns == 0) {
        return MPATH_OK;
    }
    mpath_relay_coll_times(coll->relay, &times);
    return count(coll, &times, rails_ns, 0, &changed);
}
