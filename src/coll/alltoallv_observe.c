/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What calls of Alltoallv show of the rails, on host memory and, between nodes, on device memory: both feed the same
 * windows (adapt/rates.h), for it is the same NICs that carry them. Not those that take their time for other links, that
 * are too short, or that others progress, whose ranks compute meanwhile. Calls that another way is chosen for
 * (coll/doubt.h, coll/way_choice.h) show nothing; those that try mpath's own way again do.
 */
#include "coll/alltoallv_private.h"

#include "exec/idle.h"
#include "exec/rail_times.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define LEARN_MIN_NS MPATH_NS_PER_MS /* that rails take: shorter calls show latencies */
#define BUSY_PERCENT 80              /* of the busiest NIC's time: what others take may be its doing */
#define UNSEEN_WINDOWS 8             /* in a row */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/*
 * What most calls of the window show is less than a rail carries where ranks were kept from running, here or at the other
 * end, which is no property of the rail. What the best quarter of them shows it has carried.
 */
static void read_samples(mpath_coll_rates_t *rates, uint64_t *bps)
{
    memset(bps, 0, MPATH_MAX_NICS * sizeof(*bps));
    for (int i = 0; i < rates->observed.num_rails; i++) {
        unsigned count = rates->num_samples[i];

        count = (count < MPATH_COLL_SAMPLES) ? count : MPATH_COLL_SAMPLES;
        if (count > 0) {
            qsort(rates->samples_bps[i], count, sizeof(rates->samples_bps[i][0]), compare);
            bps[i] = rates->samples_bps[i][count * 3 / 4];
        }
        rates->num_samples[i] = 0;
    }
}

static int some_has_seen(const uint64_t *all, int size, int rail)
{
    for (int rank = 0; rank < size; rank++) {
        if (all[(size_t)rank * MPATH_MAX_NICS + (size_t)rail] > 0) {
            return 1;
        }
    }
    return 0;
}

/*
 * A slow rail may have so little to carry that no call shows whether it has recovered: now and then plans count on more
 * of it. Nonzero: they do.
 */
static int try_unseen(mpath_coll_rates_t *rates, const uint64_t *all, int size)
{
    int changed = 0;

    for (int i = 0; i < rates->observed.num_rails; i++) {
        uint64_t *bps = &rates->observed.current_bps[i];

        rates->unseen[i] = some_has_seen(all, size, i) ? 0 : rates->unseen[i] + 1;
        if ((rates->unseen[i] >= UNSEEN_WINDOWS) && (*bps < rates->nominal_bps[i])) {
            *bps             = (*bps < rates->nominal_bps[i] / 2) ? 2 * *bps : rates->nominal_bps[i];
            rates->unseen[i] = 0;
            changed          = 1;
        }
    }
    return changed;
}

/* The end of a window. *changed_p: plans count on other rates from now on. */
static mpath_status_t exchange(mpath_coll_t *coll, int *changed_p)
{
    mpath_coll_rates_t *rates = &coll->rates;
    int size                  = mpath_team_size(coll->team);
    uint64_t mine[MPATH_MAX_NICS], *all = malloc((size_t)size * sizeof(mine));
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("no memory for the observed rates of %d ranks; the call fails", size);
        return MPATH_ERR_NO_MEMORY;
    }
    read_samples(rates, mine);
    status     = mpath_team_allgather(coll->team, mine, sizeof(mine), all);
    *changed_p = (status == MPATH_OK) && mpath_rates_update(&rates->observed, all, size);
    *changed_p |= (status == MPATH_OK) && try_unseen(rates, all, size);
    free(all);
    return *changed_p ? mpath_coll_rates_changed(coll) : status;
}

/* The rail of a NIC of this rank's node, as an index; -1: none. */
static int rail_of(const mpath_coll_t *coll, int nic)
{
    const mpath_topo_t *topo       = mpath_team_topo(coll->team);
    const mpath_machine_t *machine = mpath_topo_machine(topo,
                                                        mpath_topo_place(topo, mpath_team_rank(coll->team))->node);

    for (int i = 0; (i < coll->rates.observed.num_rails) && (nic < machine->num_nics); i++) {
        if (coll->rates.numbers[i] == machine->nics[nic].rail) {
            return i;
        }
    }
    return -1;
}

static void add_sample(mpath_coll_rates_t *rates, int rail, double bps)
{
    bps = (bps < (double)MPATH_MAX_RATE_BPS) ? bps : (double)MPATH_MAX_RATE_BPS;
    if (bps >= 1) {
        rates->samples_bps[rail][rates->num_samples[rail]++ % MPATH_COLL_SAMPLES] = (uint64_t)bps;
    }
}

/* Rails that were busy about as long as the busiest one. */
static void observe_rails(mpath_coll_t *coll, const mpath_rail_times_t *times, uint64_t rails_ns)
{
    mpath_coll_rates_t *rates = &coll->rates;

    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        int rail = (times->took_ns[nic] > 0) ? rail_of(coll, nic) : -1;
        double nominal, least_ns = (double)times->least_ns[nic];

        if (rail >= 0) {
            nominal = (double)rates->nominal_bps[rail];
            if (least_ns * nominal / (double)rates->observed.current_bps[rail] >=
                (double)rails_ns * BUSY_PERCENT / 100) {
                add_sample(rates, rail, nominal * least_ns / (double)times->took_ns[nic]);
            }
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
    ends |= mpath_rates_end_call(&coll->rates.observed, rails_ns);
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

/* Doubt about calls on host memory has begun: what calls before have shown has become wrong. */
static void restart(mpath_coll_rates_t *rates)
{
    mpath_rates_restart(&rates->observed);
    memset(rates->num_samples, 0, sizeof(rates->num_samples));
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
    if (in_doubt == 1) {
        restart(&coll->rates);
    }
    mpath_move_times(coll->team, plan, &times);
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
