/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rates that plans of a communicator count on. All ranks change them between the same two calls and to the same
 * values: what they decide on has been exchanged. They come from
 *
 *   calls of Alltoallv    see alltoallv_observe.c
 *   reductions, gathers   of this communicator, see symmetric_adapt.c
 *   other communicators   by way of adapt/known.h: a rank whose process knows something new says so in the agreement of
 *                         the next call, in which all exchange what they know
 *   the file              (parameter adapt_file), which rank 0 reads before its first call and then knows, too
 */
#include "coll/alltoallv_private.h"

#include "adapt/store.h"
#include "coll/topo_rates.h"
#include "exec/idle.h"
#include "util/cache.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPERATION "alltoallv" /* in the file */
#define FROM_FILE_NS 1        /* learned before everything else */
#define CLASSES 3             /* of sizes, of operations whose rates serve as well */

/* What a rank tells when the ranks exchange what they know. Plain data. */
typedef struct known_row {
    mpath_known_rail_t rails[MPATH_MAX_NICS];
} known_row_t;

int mpath_coll_rates_are_on(const mpath_coll_t *coll)
{
    return (coll->settings->adapt != MPATH_ADAPT_OFF) && (coll->rates.observed.num_rails > 1) &&
           (mpath_topo_num_nodes(mpath_team_topo(coll->team)) > 1);
}

/* The least rate of a rail by its number, where it is up; 0: nowhere. */
static uint64_t nominal_bps(const mpath_topo_t *topo, int number)
{
    uint64_t least = 0;

    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        const mpath_machine_t *machine = mpath_topo_machine(topo, node);

        for (int nic = 0; nic < machine->num_nics; nic++) {
            const mpath_nic_t *entry = &machine->nics[nic];

            if ((entry->rail == number) && entry->up && ((least == 0) || (entry->rate_bps < least))) {
                least = entry->rate_bps;
            }
        }
    }
    return least;
}

void mpath_coll_rates_init(mpath_coll_t *coll)
{
    const mpath_topo_t *topo  = mpath_team_topo(coll->team);
    mpath_coll_rates_t *rates = &coll->rates;
    int num_rails = 0, looked = rates->looked;

    memset(rates, 0, sizeof(*rates));
    rates->looked = looked;
    for (int number = 0; (number < MPATH_MAX_RAILS) && (num_rails < MPATH_MAX_NICS); number++) {
        uint64_t bps = nominal_bps(topo, number);

        if (bps > 0) {
            rates->numbers[num_rails]       = number;
            rates->nominal_bps[num_rails++] = bps;
        }
    }
    mpath_rates_init(&rates->observed, num_rails, rates->nominal_bps);
    mpath_relay_coll_set_rates(coll->relay, 0, rates->numbers, rates->nominal_bps, rates->nominal_bps);
}

mpath_status_t mpath_coll_rates_refresh(mpath_coll_t *coll)
{
    return (coll->topo_version == mpath_team_topo_version(coll->team)) ? MPATH_OK : mpath_coll_read_topo(coll);
}

/* Plans count on the present rates from now on. */
static mpath_status_t apply(mpath_coll_t *coll)
{
    const mpath_coll_rates_t *rates = &coll->rates;
    mpath_status_t status           = mpath_topo_rates_apply(mpath_team_topo(coll->team), rates->observed.num_rails,
                                                             rates->numbers, rates->nominal_bps, rates->observed.current_bps,
                                                             coll->cache, &coll->rated);

    if (status != MPATH_OK) {
        return status;
    }
    mpath_relay_coll_set_rates(coll->relay, rates->observed.num_rails, rates->numbers, rates->nominal_bps,
                               rates->observed.current_bps);
    return MPATH_OK;
}

static uint64_t scaled(uint64_t bps, uint64_t nominal, uint64_t nominal_here)
{
    double rate = (double)bps * (double)nominal_here / (double)nominal;

    rate = (rate < (double)MPATH_MAX_RATE_BPS) ? rate : (double)MPATH_MAX_RATE_BPS;
    return (nominal == nominal_here) ? bps : (rate < 1) ? 1 : (uint64_t)rate;
}

/* Nonzero: the rail is one that plans count on, and its rate has changed. */
static int put(mpath_coll_rates_t *rates, int number, uint64_t nominal, uint64_t bps)
{
    for (int i = 0; i < rates->observed.num_rails; i++) {
        if (rates->numbers[i] == number) {
            uint64_t before = rates->observed.current_bps[i];

            rates->observed.current_bps[i] = scaled(bps, nominal, rates->nominal_bps[i]);
            return rates->observed.current_bps[i] != before;
        }
    }
    return 0;
}

/* Others have learned something: what this window has shown may be older. */
static mpath_status_t apply_news(mpath_coll_t *coll)
{
    mpath_rates_t *observed = &coll->rates.observed;
    uint64_t bps[MPATH_MAX_NICS];

    memcpy(bps, observed->current_bps, sizeof(bps));
    mpath_rates_init(observed, observed->num_rails, bps);
    memset(coll->rates.num_samples, 0, sizeof(coll->rates.num_samples));
    return apply(coll);
}

/* Other communicators of this process will ask for it. */
static void publish(mpath_coll_t *coll)
{
    mpath_coll_rates_t *rates = &coll->rates;
    mpath_known_rail_t known  = {.learned_ns = mpath_known_now()};

    for (int i = 0; i < rates->observed.num_rails; i++) {
        known.bps         = rates->observed.current_bps[i];
        known.nominal_bps = rates->nominal_bps[i];
        rates->heard += mpath_known_note(rates->numbers[i], &known);
    }
    rates->is_known = 1;
}

mpath_status_t mpath_coll_rates_learned(mpath_coll_t *coll, int num_rails, const int *numbers, const uint64_t *nominal,
                                        const uint64_t *bps)
{
    mpath_status_t status = mpath_coll_rates_refresh(coll);
    int changed           = 0;

    if (status != MPATH_OK) {
        return status;
    }
    for (int i = 0; i < num_rails; i++) {
        changed |= put(&coll->rates, numbers[i], nominal[i], bps[i]);
    }
    publish(coll);
    return changed ? apply_news(coll) : MPATH_OK;
}

uint64_t mpath_coll_rates_of(const mpath_coll_t *coll, int number, uint64_t nominal)
{
    const mpath_coll_rates_t *rates = &coll->rates;

    for (int i = 0; i < rates->observed.num_rails; i++) {
        if (rates->numbers[i] == number) {
            return scaled(rates->observed.current_bps[i], rates->nominal_bps[i], nominal);
        }
    }
    return nominal;
}

int mpath_coll_rates_are_known(const mpath_coll_t *coll)
{
    return coll->rates.is_known;
}

/* -- the file, and other communicators -- */

/* The line that serves best: of Alltoallv, else of another operation with large vectors. */
typedef struct search {
    mpath_coll_rates_t *rates;
    uint64_t machine;
    int worth; /* of the best one so far */
} search_t;

static void consider(void *argument, const mpath_store_line_t *line)
{
    static const char *const operations[] = {"start", "reduce_scatter", "allgather", "allreduce", OPERATION};
    search_t *search                      = argument;
    int num_rails                         = search->rates->observed.num_rails;

    for (int i = 0; i < (int)(sizeof(operations) / sizeof(operations[0])); i++) {
        int worth = i * CLASSES + line->size_class + 1;

        if ((line->machine == search->machine) && (line->num_rails == num_rails) && (line->size_class < CLASSES) &&
            (strcmp(line->operation, operations[i]) == 0) && (worth >= search->worth)) {
            memcpy(search->rates->stored_bps, line->bps, (size_t)num_rails * sizeof(*line->bps));
            search->worth = worth;
        }
    }
}

/* Rank 0, once. That it cannot be read is said when reductions read it, or rates are kept. */
static void look_into_file(mpath_coll_t *coll)
{
    const char *path = coll->settings->adapt_file;
    search_t search  = {.rates = &coll->rates, .machine = mpath_topo_signature(mpath_team_topo(coll->team))};

    coll->rates.looked = 1;
    if ((path[0] != '\0') && !mpath_cache_is_special(path)) {
        (void)mpath_store_read(path, consider, &search);
        coll->rates.has_stored = search.worth > 0;
    }
}

uint32_t mpath_coll_rates_tell(mpath_coll_t *coll)
{
    if (!mpath_coll_rates_are_on(coll)) {
        return 0;
    }
    if (!coll->rates.looked && (coll->topo_version == mpath_team_topo_version(coll->team)) &&
        (mpath_team_rank(coll->team) == 0)) {
        look_into_file(coll);
    }
    return (coll->rates.has_stored || (mpath_known_changes() != coll->rates.heard)) ? MPATH_CALL_RATES : 0;
}

static void fill_row(const mpath_coll_rates_t *rates, known_row_t *row)
{
    memset(row, 0, sizeof(*row));
    for (int i = 0; i < rates->observed.num_rails; i++) {
        row->rails[i] = mpath_known_of(rates->numbers[i]);
        if ((row->rails[i].learned_ns == 0) && rates->has_stored) {
            row->rails[i] = (mpath_known_rail_t){
                .learned_ns = FROM_FILE_NS, .bps = rates->stored_bps[i], .nominal_bps = rates->nominal_bps[i]};
        }
    }
}

/* The latest that some rank knows of each rail. Nonzero: rates have changed. */
static int take_rows(mpath_coll_t *coll, const known_row_t *all)
{
    mpath_coll_rates_t *rates = &coll->rates;
    int changed               = 0;

    for (int i = 0; i < rates->observed.num_rails; i++) {
        const mpath_known_rail_t *latest = &all[0].rails[i];

        for (int rank = 1; rank < mpath_team_size(coll->team); rank++) {
            latest = mpath_known_later(latest, &all[rank].rails[i]);
        }
        if (latest->learned_ns > 0) {
            changed |= put(rates, rates->numbers[i], latest->nominal_bps, latest->bps);
            rates->is_known = 1;
        }
        if (latest->learned_ns > FROM_FILE_NS) {
            rates->heard += mpath_known_note(rates->numbers[i], latest);
        }
    }
    return changed;
}

static mpath_status_t hear(mpath_coll_t *coll)
{
    size_t size      = (size_t)mpath_team_size(coll->team);
    known_row_t *all = malloc(size * sizeof(*all)), mine;
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("no memory for the rates that %zu ranks know; the call fails", size);
        return MPATH_ERR_NO_MEMORY;
    }
    coll->rates.heard = mpath_known_changes();
    fill_row(&coll->rates, &mine);
    status = mpath_team_allgather(coll->team, &mine, sizeof(mine), all);
    if ((status == MPATH_OK) && take_rows(coll, all)) {
        status = apply_news(coll);
    }
    coll->rates.has_stored = 0;
    free(all);
    return status;
}

mpath_status_t mpath_coll_rates_take(mpath_coll_t *coll, uint32_t flags)
{
    mpath_status_t status;

    if (!(flags & MPATH_CALL_RATES)) {
        return MPATH_OK;
    }
    status = mpath_coll_rates_refresh(coll);
    if (status == MPATH_OK) {
        status = hear(coll);
    }
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
    }
    return status;
}

/* -- what calls have shown -- */

static void log_rates(const mpath_coll_t *coll)
{
    const mpath_rates_t *observed  = &coll->rates.observed;
    char text[MPATH_MAX_NICS * 24] = "";
    size_t used                    = 0;

    for (int i = 0; (i < observed->num_rails) && (used < sizeof(text)); i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %llu",
                                 (unsigned long long)observed->current_bps[i]);
    }
    if (mpath_team_rank(coll->team) == 0) {
        mpath_info("alltoallv: rails carry%s bytes per second; plans follow", text);
    }
}

static void save(const mpath_coll_t *coll)
{
    const char *path = coll->settings->adapt_file;

    if ((mpath_team_rank(coll->team) == 0) && (path[0] != '\0')) {
        (void)mpath_store_save(path, mpath_topo_signature(mpath_team_topo(coll->team)), OPERATION, 0,
                               coll->rates.observed.num_rails, coll->rates.observed.current_bps);
    }
}

mpath_status_t mpath_coll_rates_changed(mpath_coll_t *coll)
{
    mpath_status_t status;

    log_rates(coll);
    status = apply(coll);
    publish(coll);
    save(coll);
    return status;
}
