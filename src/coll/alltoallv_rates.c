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

int mpath_coll_rates_are_on(const mpath_coll_t *coll)
{
    return (coll->settings->adapt != MPATH_ADAPT_OFF) && (coll->rates.nics.num_rails > 1) &&
           (mpath_topo_num_nodes(mpath_team_topo(coll->team)) > 1);
}

/* Of a node's NIC on the rail of a number, where it is up; else 0. */
static uint64_t nic_bps(const mpath_topo_t *topo, int node, int number)
{
    const mpath_machine_t *machine = mpath_topo_machine(topo, node);

    for (int nic = 0; nic < machine->num_nics; nic++) {
        if ((machine->nics[nic].rail == number) && machine->nics[nic].up) {
            return machine->nics[nic].rate_bps;
        }
    }
    return 0;
}

/* The least of the nodes that have the rail; 0: none has. */
static uint64_t rail_bps(const mpath_topo_t *topo, int number)
{
    uint64_t least = 0;

    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        uint64_t bps = nic_bps(topo, node, number);

        least = ((least == 0) || ((bps > 0) && (bps < least))) ? bps : least;
    }
    return least;
}

void mpath_coll_rates_release(mpath_coll_t *coll)
{
    mpath_nics_release(&coll->rates.nics);
    free(coll->rates.stored_bps);
    coll->rates.stored_bps = NULL;
}

mpath_status_t mpath_coll_rates_init(mpath_coll_t *coll)
{
    const mpath_topo_t *topo  = mpath_team_topo(coll->team);
    mpath_coll_rates_t *rates = &coll->rates;
    int num_nodes = mpath_topo_num_nodes(topo), num_rails = 0, looked = rates->looked;
    uint64_t nominal_bps[MPATH_NICS_MAX];

    mpath_relay_coll_set_rates(coll->relay, NULL);
    mpath_coll_rates_release(coll);
    memset(rates, 0, sizeof(*rates));
    rates->looked = looked;
    for (int number = 0; (number < MPATH_MAX_RAILS) && (num_rails < MPATH_MAX_NICS); number++) {
        if (rail_bps(topo, number) > 0) {
            rates->numbers[num_rails++] = number;
        }
    }
    num_nodes = mpath_nics_are_told_apart(num_nodes, num_rails) ? num_nodes : 1;
    for (int nic = 0; nic < num_nodes * num_rails; nic++) {
        int number = rates->numbers[nic % num_rails];

        nominal_bps[nic] = (num_nodes > 1) ? nic_bps(topo, nic / num_rails, number) : rail_bps(topo, number);
    }
    return mpath_nics_init(&rates->nics, num_nodes, num_rails, nominal_bps);
}

mpath_status_t mpath_coll_rates_refresh(mpath_coll_t *coll)
{
    return (coll->topo_version == mpath_team_topo_version(coll->team)) ? MPATH_OK : mpath_coll_read_topo(coll);
}

/* Plans count on the present rates from now on. */
static mpath_status_t apply(mpath_coll_t *coll)
{
    const mpath_nics_t *nics       = &coll->rates.nics;
    const mpath_topo_rates_t rates = {.num_nodes   = nics->num_nodes,
                                      .num_rails   = nics->num_rails,
                                      .numbers     = coll->rates.numbers,
                                      .nominal_bps = nics->nominal_bps,
                                      .bps         = nics->current_bps};
    mpath_status_t status = mpath_topo_rates_apply(mpath_team_topo(coll->team), &rates, coll->cache, &coll->rated);

    if (status == MPATH_OK) {
        mpath_relay_coll_set_rates(coll->relay, &rates);
    }
    return status;
}

static uint64_t scaled(uint64_t bps, uint64_t nominal, uint64_t nominal_here)
{
    double rate = (double)bps * (double)nominal_here / (double)nominal;

    rate = (rate < (double)MPATH_MAX_RATE_BPS) ? rate : (double)MPATH_MAX_RATE_BPS;
    return (nominal == nominal_here) ? bps : (rate < 1) ? 1 : (uint64_t)rate;
}

/* The rail of a number, as those of the rates; -1: plans do not count on it. */
static int rail_of(const mpath_coll_rates_t *rates, int number)
{
    for (int i = 0; i < rates->nics.num_rails; i++) {
        if (rates->numbers[i] == number) {
            return i;
        }
    }
    return -1;
}

/* The slowest NIC of the rail, in terms of that nominal rate. */
static uint64_t slowest_bps(const mpath_nics_t *nics, int rail, uint64_t nominal)
{
    uint64_t least = 0;

    for (int nic = rail; nic < nics->num_nics; nic += nics->num_rails) {
        if (nics->nominal_bps[nic] > 0) {
            uint64_t bps = scaled(nics->current_bps[nic], nics->nominal_bps[nic], nominal);

            least = ((least == 0) || (bps < least)) ? bps : least;
        }
    }
    return (least > 0) ? least : nominal;
}

/*
 * A rail carries so much, on the slowest of its NICs: those that have been slower are as fast now; where none has been as
 * slow, those that have been the slowest are now, and the others can do what they have shown. Nonzero: rates have changed.
 */
static int put_rail(mpath_nics_t *nics, int rail, uint64_t nominal, uint64_t bps)
{
    uint64_t least = slowest_bps(nics, rail, nominal), before;
    double alike   = (double)least * (1 + MPATH_RATES_DRIFT_PPM / 1e6);
    int changed    = 0;

    for (int nic = rail; nic < nics->num_nics; nic += nics->num_rails) {
        if (nics->nominal_bps[nic] > 0) {
            uint64_t here = scaled(nics->current_bps[nic], nics->nominal_bps[nic], nominal);

            before = nics->current_bps[nic];
            if ((here < bps) || ((bps < least) && ((double)here <= alike))) {
                nics->current_bps[nic] = scaled(bps, nominal, nics->nominal_bps[nic]);
            }
            changed |= (nics->current_bps[nic] != before);
        }
    }
    return changed;
}

/* Others have learned something: what this window has shown may be older. */
static mpath_status_t apply_news(mpath_coll_t *coll)
{
    mpath_nics_forget(&coll->rates.nics);
    return apply(coll);
}

/* As other communicators of this process know it. */
static mpath_known_nic_t known_nic(const mpath_coll_t *coll, int nic)
{
    const mpath_nics_t *nics = &coll->rates.nics;
    const mpath_topo_t *topo = mpath_team_topo(coll->team);
    int node                 = nic / nics->num_rails;

    return (mpath_known_nic_t){.node = (nics->num_nodes > 1) ? mpath_known_node(mpath_topo_machine(topo, node)->host)
                                                             : 0,
                               .rail = coll->rates.numbers[nic % nics->num_rails]};
}

/* Other communicators of this process will ask for it. */
static void publish(mpath_coll_t *coll)
{
    const mpath_nics_t *nics = &coll->rates.nics;
    mpath_known_rate_t known = {.learned_ns = mpath_known_now()};

    for (int nic = 0; nic < nics->num_nics; nic++) {
        if (nics->nominal_bps[nic] > 0) {
            known.bps         = nics->current_bps[nic];
            known.nominal_bps = nics->nominal_bps[nic];
            coll->rates.heard += mpath_known_note(known_nic(coll, nic), &known);
        }
    }
    coll->rates.is_known = 1;
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
        int rail = rail_of(&coll->rates, numbers[i]);

        changed |= (rail >= 0) && put_rail(&coll->rates.nics, rail, nominal[i], bps[i]);
    }
    publish(coll);
    return changed ? apply_news(coll) : MPATH_OK;
}

uint64_t mpath_coll_rates_of(const mpath_coll_t *coll, int number, uint64_t nominal)
{
    int rail = rail_of(&coll->rates, number);

    return (rail >= 0) ? slowest_bps(&coll->rates.nics, rail, nominal) : nominal;
}

int mpath_coll_rates_are_known(const mpath_coll_t *coll)
{
    return coll->rates.is_known;
}

/* -- the file, and other communicators -- */

/* Rates of nodes, and of rails the line that serves best: of Alltoallv, else of another operation with large vectors. */
typedef struct search {
    const mpath_nics_t *nics;
    uint64_t machine;
    int worth, has_nodes; /* 0: nothing was found yet; of the best one so far */
    uint64_t rails_bps[MPATH_MAX_NICS], nics_bps[MPATH_NICS_MAX];
} search_t;

static void consider(void *argument, const mpath_store_line_t *line)
{
    static const char *const operations[] = {"start", "reduce_scatter", "allgather", "allreduce", OPERATION};
    search_t *search                      = argument;
    size_t bytes                          = (size_t)line->num_rails * sizeof(*line->bps);

    if ((line->machine != search->machine) || (line->num_rails != search->nics->num_rails) ||
        (line->size_class >= CLASSES)) {
        return;
    }
    if (line->kind == MPATH_STORE_NODE_RATES) {
        if ((search->nics->num_nodes > 1) && (line->node < search->nics->num_nodes) &&
            (strcmp(line->operation, OPERATION) == 0)) {
            memcpy(&search->nics_bps[mpath_nics_index(search->nics, line->node, 0)], line->bps, bytes);
            search->has_nodes = 1;
        }
        return;
    }
    for (int i = 0; i < (int)(sizeof(operations) / sizeof(operations[0])); i++) {
        int worth = i * CLASSES + line->size_class + 1;

        if ((strcmp(line->operation, operations[i]) == 0) && (worth >= search->worth)) {
            memcpy(search->rails_bps, line->bps, bytes);
            search->worth = worth;
        }
    }
}

/* What was found, by NIC; of a NIC of which nothing was, 0. */
static void take_found(mpath_coll_t *coll, const search_t *search)
{
    const mpath_nics_t *nics = &coll->rates.nics;

    coll->rates.stored_bps = calloc((size_t)nics->num_nics, sizeof(*coll->rates.stored_bps));
    for (int nic = 0; (nic < nics->num_nics) && (coll->rates.stored_bps != NULL); nic++) {
        int rail         = nic % nics->num_rails;
        uint64_t nominal = nics->nominal_bps[nic];

        coll->rates.stored_bps[nic] = search->nics_bps[nic];
        if ((search->nics_bps[nic] == 0) && (search->rails_bps[rail] > 0) && (nominal > 0)) {
            coll->rates.stored_bps[nic] = scaled(
                search->rails_bps[rail], rail_bps(mpath_team_topo(coll->team), coll->rates.numbers[rail]), nominal);
        }
    }
}

/* Rank 0, once. That it cannot be read is said when reductions read it, or rates are kept. */
static void look_into_file(mpath_coll_t *coll)
{
    const char *path = coll->settings->adapt_file;
    search_t search  = {.nics = &coll->rates.nics, .machine = mpath_topo_signature(mpath_team_topo(coll->team))};

    coll->rates.looked = 1;
    if ((path[0] != '\0') && !mpath_cache_is_special(path)) {
        (void)mpath_store_read(path, consider, &search);
        if ((search.worth > 0) || search.has_nodes) {
            take_found(coll, &search);
        }
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
    return ((coll->rates.stored_bps != NULL) || (mpath_known_changes() != coll->rates.heard)) ? MPATH_CALL_RATES : 0;
}

static void fill_row(const mpath_coll_t *coll, mpath_known_rate_t *row)
{
    const mpath_coll_rates_t *rates = &coll->rates;

    for (int nic = 0; nic < rates->nics.num_nics; nic++) {
        row[nic] = mpath_known_of(known_nic(coll, nic));
        if ((row[nic].learned_ns == 0) && (rates->stored_bps != NULL) && (rates->stored_bps[nic] > 0)) {
            row[nic] = (mpath_known_rate_t){
                .learned_ns = FROM_FILE_NS, .bps = rates->stored_bps[nic], .nominal_bps = rates->nics.nominal_bps[nic]};
        }
    }
}

/* The latest that some rank knows of each NIC. Nonzero: rates have changed. */
static int take_rows(mpath_coll_t *coll, const mpath_known_rate_t *all)
{
    mpath_nics_t *nics = &coll->rates.nics;
    int changed        = 0;

    for (int nic = 0; nic < nics->num_nics; nic++) {
        const mpath_known_rate_t *latest = &all[nic];

        for (int rank = 1; rank < mpath_team_size(coll->team); rank++) {
            latest = mpath_known_later(latest, &all[(size_t)rank * (size_t)nics->num_nics + (size_t)nic]);
        }
        if ((latest->learned_ns > 0) && (nics->nominal_bps[nic] > 0)) {
            uint64_t before = nics->current_bps[nic];

            nics->current_bps[nic] = scaled(latest->bps, latest->nominal_bps, nics->nominal_bps[nic]);
            changed |= (nics->current_bps[nic] != before);
            coll->rates.is_known = 1;
        }
        if (latest->learned_ns > FROM_FILE_NS) {
            coll->rates.heard += mpath_known_note(known_nic(coll, nic), latest);
        }
    }
    return changed;
}

static mpath_status_t hear(mpath_coll_t *coll)
{
    size_t size = (size_t)mpath_team_size(coll->team), row = (size_t)coll->rates.nics.num_nics;
    mpath_known_rate_t *all = malloc((size + 1) * row * sizeof(*all)); /* the last row is this rank's */
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("no memory for the rates that %zu ranks know; the call fails", size);
        return MPATH_ERR_NO_MEMORY;
    }
    coll->rates.heard = mpath_known_changes();
    fill_row(coll, all + size * row);
    status = mpath_team_allgather(coll->team, all + size * row, row * sizeof(*all), all);
    if ((status == MPATH_OK) && take_rows(coll, all)) {
        status = apply_news(coll);
    }
    free(coll->rates.stored_bps);
    coll->rates.stored_bps = NULL;
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

/* A line for each node. */
static void log_rates(const mpath_coll_t *coll)
{
    const mpath_nics_t *nics = &coll->rates.nics;

    for (int node = 0; (node < nics->num_nodes) && (mpath_team_rank(coll->team) == 0); node++) {
        char text[MPATH_MAX_NICS * 24] = "";
        size_t used                    = 0;

        for (int i = 0; (i < nics->num_rails) && (used < sizeof(text)); i++) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, " %llu",
                                     (unsigned long long)nics->current_bps[mpath_nics_index(nics, node, i)]);
        }
        mpath_info("alltoallv: rails of %s carry%s bytes per second; plans follow",
                   (nics->num_nodes > 1) ? mpath_topo_machine(mpath_team_topo(coll->team), node)->host : "all nodes",
                   text);
    }
}

static void save(const mpath_coll_t *coll)
{
    const mpath_nics_t *nics  = &coll->rates.nics;
    uint64_t machine          = mpath_topo_signature(mpath_team_topo(coll->team));
    const char *path          = coll->settings->adapt_file;
    mpath_store_line_t *lines = NULL;

    if ((mpath_team_rank(coll->team) != 0) || (path[0] == '\0')) {
        return;
    }
    if (nics->num_nodes == 1) {
        (void)mpath_store_save(path, machine, OPERATION, 0, nics->num_rails, nics->current_bps);
        return;
    }
    lines = calloc((size_t)nics->num_nodes, sizeof(*lines));
    for (int node = 0; (node < nics->num_nodes) && (lines != NULL); node++) {
        lines[node] = (mpath_store_line_t){.machine   = machine,
                                           .operation = OPERATION,
                                           .kind      = MPATH_STORE_NODE_RATES,
                                           .node      = node,
                                           .num_rails = nics->num_rails};
        memcpy(lines[node].bps, &nics->current_bps[mpath_nics_index(nics, node, 0)],
               (size_t)nics->num_rails * sizeof(*lines[node].bps));
    }
    if (lines != NULL) {
        (void)mpath_store_put(path, lines, nics->num_nodes);
    }
    free(lines);
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
