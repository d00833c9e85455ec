/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rates that plans of a communicator count on. All ranks change them between the same two calls and to the same
 * values: what they decide on has been exchanged. They come from
 *
 *   calls of Alltoallv    see coll/learn.c
 *   reductions, gathers   of this communicator, see coll/learn.c
 *   other communicators   by way of tune/history.h: a rank whose process knows something new says so in the agreement of
 *                         the next call, in which all exchange what they know
 *   the file              (parameter adapt_file), which rank 0 reads before its first call and then knows, too
 */
#include "coll/alltoallv_private.h"

#include "coll/reduction_private.h"
#include "mover/clock.h"
#include "plan/cache.h"
#include "team/wait.h"
#include "tune/history.h"
#include "tune/start.h"
#include "util/cache.h"
#include "util/file.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int size_class(uint64_t bytes);

#define OPERATION "alltoallv" /* in the file */
#define CLASSES 3             /* of sizes, of operations whose rates serve as well */

/* Whether rates are learned here. The same on all ranks, as all of these. */
static int coll_rates_are_on(const mpath_coll_t *coll)
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

static mpath_status_t coll_rates_init(mpath_coll_t *coll)
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

/* The topology that plans are for is another one, or has other rates. Nothing is left of a part then. */
static mpath_status_t coll_renew_parts(mpath_coll_t *coll)
{
    mpath_status_t status;

    mpath_parts_destroy(coll->parts);
    coll->parts = NULL;
    coll->parts_number++;
    status = mpath_parts_create(mpath_plans_topo(&coll->plans), coll->settings, &coll->parts);
    return status == MPATH_DECLINED ? MPATH_OK : status;
}

/* In a communicator of ranks beside different rails, affine ranks do not reach each other. Rates that were learned are heard of again. */
mpath_status_t mpath_coll_read_topo(mpath_coll_t *coll)
{
    const mpath_topo_t *topo = mpath_team_topo(coll->team);
    mpath_status_t status    = mpath_plans_follow(&coll->plans, coll->settings, topo);

    if (status != MPATH_OK) {
        return status;
    }
    coll->has_view     = 0;
    coll->has_load     = 0;
    coll->is_planned   = 0;
    coll->topo_version = mpath_team_topo_version(coll->team);
    status             = coll_renew_parts(coll);
    coll->connected    = mpath_topo_num_apart(topo) == 0;
    return status == MPATH_OK ? coll_rates_init(coll) : status;
}

/* Starts anew with the rates of the team's present topology where that is another one. */
static mpath_status_t coll_rates_refresh(mpath_coll_t *coll)
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
    mpath_status_t status          = mpath_plans_rate(&coll->plans, &rates);

    if (status == MPATH_OK) {
        mpath_relay_coll_set_rates(coll->relay, &rates);
        status = coll_renew_parts(coll);
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
static mpath_history_key_t known_nic(const mpath_coll_t *coll, int nic)
{
    const mpath_nics_t *nics = &coll->rates.nics;
    const mpath_topo_t *topo = mpath_team_topo(coll->team);
    int node                 = nic / nics->num_rails;

    return mpath_history_nic((nics->num_nodes > 1) ? mpath_topo_host(topo, node) : NULL,
                             coll->rates.numbers[nic % nics->num_rails]);
}

/* Other communicators of this process will ask for it. */
static void publish(mpath_coll_t *coll)
{
    const mpath_nics_t *nics = &coll->rates.nics;
    mpath_learned_t known    = {.learned_ns = mpath_history_now()};

    for (int nic = 0; nic < nics->num_nics; nic++) {
        if (nics->nominal_bps[nic] > 0) {
            const mpath_history_key_t key = known_nic(coll, nic);

            known.value       = nics->current_bps[nic];
            known.nominal_bps = nics->nominal_bps[nic];
            coll->rates.heard += mpath_history_note(&key, &known);
        }
    }
    coll->rates.is_known = 1;
}

mpath_status_t mpath_coll_rates_learned(mpath_coll_t *coll, int num_rails, const int *numbers, const uint64_t *nominal,
                                        const uint64_t *bps)
{
    mpath_status_t status = coll_rates_refresh(coll);
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

static void consider(void *argument, const mpath_history_line_t *line)
{
    static const char *const operations[] = {"start", "reduce_scatter", "allgather", "allreduce", OPERATION};
    search_t *search                      = argument;
    size_t bytes                          = (size_t)line->num_rails * sizeof(*line->bps);

    if ((line->key.machine != search->machine) || (line->num_rails != search->nics->num_rails) ||
        (line->key.size_class >= CLASSES)) {
        return;
    }
    if (line->key.kind == MPATH_HISTORY_NODE_RATES) {
        if ((search->nics->num_nodes > 1) && (line->key.node < search->nics->num_nodes) &&
            (strcmp(line->key.operation, OPERATION) == 0)) {
            memcpy(&search->nics_bps[mpath_nics_index(search->nics, line->key.node, 0)], line->bps, bytes);
            search->has_nodes = 1;
        }
        return;
    }
    for (int i = 0; i < (int)(sizeof(operations) / sizeof(operations[0])); i++) {
        int worth = i * CLASSES + line->key.size_class + 1;

        if ((strcmp(line->key.operation, operations[i]) == 0) && (worth >= search->worth)) {
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
    if ((path[0] != '\0') && !mpath_file_is_special(path)) {
        (void)mpath_history_read(path, consider, &search);
        if ((search.worth > 0) || search.has_nodes) {
            take_found(coll, &search);
        }
    }
}

uint32_t mpath_coll_rates_call_flags(mpath_coll_t *coll)
{
    if (!coll_rates_are_on(coll)) {
        return 0;
    }
    if (!coll->rates.looked && (coll->topo_version == mpath_team_topo_version(coll->team)) &&
        (mpath_team_rank(coll->team) == 0)) {
        look_into_file(coll);
    }
    return ((coll->rates.stored_bps != NULL) || (mpath_history_changes() != coll->rates.heard)) ? MPATH_CALL_RATES : 0;
}

static void fill_row(const mpath_coll_t *coll, mpath_learned_t *row)
{
    const mpath_coll_rates_t *rates = &coll->rates;

    for (int nic = 0; nic < rates->nics.num_nics; nic++) {
        const mpath_history_key_t key = known_nic(coll, nic);

        row[nic] = mpath_history_of(&key);
        if ((row[nic].learned_ns == 0) && (rates->stored_bps != NULL) && (rates->stored_bps[nic] > 0)) {
            row[nic] = (mpath_learned_t){.learned_ns  = MPATH_HISTORY_FROM_FILE_NS,
                                         .value       = rates->stored_bps[nic],
                                         .nominal_bps = rates->nics.nominal_bps[nic]};
        }
    }
}

/* The latest that some rank knows of each NIC. Nonzero: rates have changed. */
static int take_row(mpath_coll_t *coll, const mpath_learned_t *row)
{
    mpath_nics_t *nics = &coll->rates.nics;
    int changed        = 0;

    for (int nic = 0; nic < nics->num_nics; nic++) {
        if ((row[nic].learned_ns > 0) && (nics->nominal_bps[nic] > 0)) {
            uint64_t before = nics->current_bps[nic];

            nics->current_bps[nic] = scaled(row[nic].value, row[nic].nominal_bps, nics->nominal_bps[nic]);
            changed |= (nics->current_bps[nic] != before);
            coll->rates.is_known = 1;
        }
        if (row[nic].learned_ns > MPATH_HISTORY_FROM_FILE_NS) {
            const mpath_history_key_t key = known_nic(coll, nic);

            coll->rates.heard += mpath_history_note(&key, &row[nic]);
        }
    }
    return changed;
}

static mpath_status_t hear(mpath_coll_t *coll)
{
    size_t count         = (size_t)coll->rates.nics.num_nics;
    mpath_learned_t *row = malloc(count * sizeof(*row));
    mpath_status_t status;

    if (row == NULL) {
        mpath_error("no memory for the rates of %zu NICs; the call fails", count);
        return MPATH_ERR_NO_MEMORY;
    }
    coll->rates.heard = mpath_history_changes();
    fill_row(coll, row);
    status = mpath_history_agree(coll->team, row, count);
    if ((status == MPATH_OK) && take_row(coll, row)) {
        status = apply_news(coll);
    }
    free(coll->rates.stored_bps);
    coll->rates.stored_bps = NULL;
    free(row);
    return status;
}

mpath_status_t mpath_coll_rates_take(mpath_coll_t *coll, uint32_t flags)
{
    mpath_status_t status;

    if (!(flags & MPATH_CALL_RATES)) {
        return MPATH_OK;
    }
    status = coll_rates_refresh(coll);
    if (status == MPATH_OK) {
        status = hear(coll);
    }
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
    }
    return status;
}

/* -- what calls have shown -- */

/* A line for each node whose rates have changed. */
static void log_rates(const mpath_coll_t *coll)
{
    const mpath_nics_t *nics = &coll->rates.nics;

    for (int node = 0; (node < nics->num_nodes) && (mpath_team_rank(coll->team) == 0); node++) {
        int first                      = mpath_nics_index(nics, node, 0);
        const uint64_t *bps            = &nics->current_bps[first];
        char text[MPATH_MAX_NICS * 24] = "";
        size_t used                    = 0;

        if (memcmp(bps, &nics->before_bps[first], (size_t)nics->num_rails * sizeof(*bps)) == 0) {
            continue;
        }
        for (int i = 0; (i < nics->num_rails) && (used < sizeof(text)); i++) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, " %llu", (unsigned long long)bps[i]);
        }
        mpath_info("alltoallv: rails of %s carry%s bytes per second; plans follow",
                   (nics->num_nodes > 1) ? mpath_topo_host(mpath_team_topo(coll->team), node) : "all nodes", text);
    }
}

static void save(const mpath_coll_t *coll)
{
    const mpath_nics_t *nics    = &coll->rates.nics;
    uint64_t machine            = mpath_topo_signature(mpath_team_topo(coll->team));
    const char *path            = coll->settings->adapt_file;
    mpath_history_line_t *lines = NULL;

    if ((mpath_team_rank(coll->team) != 0) || (path[0] == '\0')) {
        return;
    }
    if (nics->num_nodes == 1) {
        (void)mpath_history_save(path, machine, OPERATION, 0, nics->num_rails, nics->current_bps);
        return;
    }
    lines = calloc((size_t)nics->num_nodes, sizeof(*lines));
    for (int node = 0; (node < nics->num_nodes) && (lines != NULL); node++) {
        lines[node] = (mpath_history_line_t){
            .key       = {.machine = machine, .operation = OPERATION, .kind = MPATH_HISTORY_NODE_RATES, .node = node},
            .num_rails = nics->num_rails};
        memcpy(lines[node].bps, &nics->current_bps[mpath_nics_index(nics, node, 0)],
               (size_t)nics->num_rails * sizeof(*lines[node].bps));
    }
    if (lines != NULL) {
        (void)mpath_history_put(path, lines, nics->num_nodes);
    }
    free(lines);
}

/* Calls have shown the present ones: plans follow, other communicators can hear of it, the file has them. */
static mpath_status_t coll_rates_changed(mpath_coll_t *coll)
{
    mpath_status_t status;

    log_rates(coll);
    status = apply(coll);
    publish(coll);
    save(coll);
    return status;
}

/*
 * What calls of Alltoallv show of the rails, on host memory and, between nodes, on device memory: both feed the same
 * windows (tune/nic_rates.h), for it is the same NICs that carry them. Not those that take their time for other links, that
 * are too short, or that others progress, whose ranks compute meanwhile. Calls that another way is chosen for
 * (tune/doubt.h, tune/function.h) show nothing; those that try mpath's own way again do.
 */

#define SHARES_TIMES 50 /* that a call has to take longer than an exchange of loads */
#define BUSY_PERCENT 80 /* of the busiest NIC's time: what others take may be its doing */

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
static void observe_source(mpath_coll_t *coll, int node, const mpath_rail_source_t *sources, int num_nics,
                           uint64_t rails_ns)
{
    for (int nic = 0; nic < num_nics; nic++) {
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
            observe_source(coll, other, &times->sources[other * times->source_nics], times->source_nics, rails_ns);
        }
    }
}

/* Whether the call can show something; the same on all ranks. */
static int may_show(const mpath_coll_t *coll, const mpath_plan_t *plan)
{
    return mpath_plan_z_ns(plan) >= MPATH_RAIL_TIMES_LEAST_NS && coll_rates_are_on(coll) &&
           !mpath_idle_others_may_rest() && (coll->topo_version == mpath_team_topo_version(coll->team));
}

/*
 * What the busiest NIC takes at the present rates; 0: that is not what a call with this plan takes its time for, or
 * nothing comes by NICs.
 */
static uint64_t rails_ns_of(const mpath_topo_t *rated, const mpath_plan_t *plan)
{
    uint64_t rails_ns = mpath_rail_times_busiest_ns(rated, plan);
    int counts        = (rails_ns >= MPATH_RAIL_TIMES_LEAST_NS) &&
                 (mpath_topo_params(rated)->emulated != MPATH_EMULATED_COPIES) &&
                 ((double)rails_ns >= (double)mpath_plan_z_ns(plan) * BUSY_PERCENT / 100);

    return counts ? rails_ns : 0;
}

/* Counts the call. `ends`: with it the window does. Collective then, and when enough has been seen. */
static mpath_status_t count(mpath_coll_t *coll, const mpath_rail_times_t *times, uint64_t rails_ns, int ends,
                            int *changed_p)
{
    mpath_status_t status = MPATH_OK;

    observe_rails(coll, times, rails_ns);
    ends |= mpath_nics_end_call(&coll->rates.nics, rails_ns);
    *changed_p = 0;
    if (ends) {
        status = mpath_nics_exchange(&coll->rates.nics, coll->team, changed_p);
    }
    if (*changed_p) {
        status = coll_rates_changed(coll);
    }
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
    }
    return status;
}

int mpath_coll_rates_follow(const mpath_coll_t *coll, uint64_t links_ns)
{
    return coll_rates_are_on(coll) && (links_ns >= MPATH_RAIL_TIMES_LEAST_NS);
}

/*
 * A plan by pairs of nodes, the last of `parts`, has no loads until the ranks tell each other what they put on their NICs; in calls
 * that take much longer than that. Collective, an error breaks the team.
 */
static mpath_status_t share_loads(mpath_coll_t *coll, mpath_parts_t *parts, const mpath_plan_t *plan)
{
    size_t size = (size_t)mpath_team_size(coll->team), words;
    mpath_status_t status;
    uint64_t *shares;

    if (!mpath_plan_is_part(plan) || mpath_plan_loads(plan) != NULL) {
        return MPATH_OK;
    }
    words = mpath_parts_share_words(parts);
    if (mpath_plan_z_ns(plan) / SHARES_TIMES < size * words * sizeof(*shares)) { /* a byte takes about a nanosecond */
        return MPATH_OK;
    }
    shares = malloc((size + 1) * words * sizeof(*shares)); /* the last one is this rank's */
    if (shares == NULL) {
        mpath_error("no memory for the loads of %zu ranks; the call fails", size);
        status = MPATH_ERR_NO_MEMORY;
    } else {
        mpath_parts_share(parts, mpath_team_rank(coll->team), shares + size * words);
        status = mpath_team_allgather(coll->team, shares + size * words, words * sizeof(*shares), shares);
    }
    if (status == MPATH_OK) {
        status = mpath_parts_set_loads(parts, shares);
    }
    free(shares);
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
    }
    return status;
}

mpath_status_t mpath_coll_rates_observe(mpath_coll_t *coll, const mpath_plan_t *plan)
{
    const mpath_topo_t *topo = mpath_plans_topo(&coll->plans);
    int may                  = may_show(coll, plan);
    mpath_status_t status    = may ? share_loads(coll, coll->parts, plan) : MPATH_OK;
    uint64_t rails_ns;
    mpath_rail_times_t times;
    unsigned in_doubt;
    int changed;

    if (status != MPATH_OK) {
        return status;
    }
    rails_ns = may && mpath_plan_loads(plan) != NULL ? rails_ns_of(topo, plan) : 0;
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
    mpath_status_t status    = coll_rates_refresh(coll);
    int may                  = (plan != NULL) && may_show(coll, plan), changed;
    mpath_rail_times_t times;
    uint64_t rails_ns;

    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
        return status;
    }
    status = may ? share_loads(coll, mpath_relay_coll_parts(coll->relay), plan) : MPATH_OK;
    if (status != MPATH_OK) {
        return status;
    }
    rails_ns = may && (mpath_plan_loads(plan) != NULL) ? rails_ns_of(rated, plan) : 0;
    if (rails_ns == 0) {
        return MPATH_OK;
    }
    mpath_relay_coll_times(coll->relay, &times);
    return count(coll, &times, rails_ns, 0, &changed);
}

/*
 * What the engine learns from its own calls. Shares follow rates that are kept for each operation and size class, since
 * small calls see more latency than rate. All ranks change them between the same two calls and to the same values: what
 * they decide on has been exchanged.
 *
 *   first run   rates that other communicators of the job have learned, else those of the file (parameter adapt_file,
 *               read by rank 0); with adapt=start a measurement where there are neither
 *   each run    what the driver of each rail has seen
 *   now and then, when enough has been seen: exchange; a change goes to the shares, to the planner of Alltoallv, to other
 *   communicators, and to the file
 *
 * Only blocking calls show something: in others ranks may compute in between, and what is late says nothing of a rail.
 */

#define LEARN_MIN_BYTES (512u << 10)   /* smaller calls show latency */
#define TUNE_NS (40 * MPATH_NS_PER_MS) /* a measurement keeps the rails busy for about so long, */
#define TUNE_MIN_BYTES (1u << 20)
#define TUNE_MAX_BYTES (64u << 20) /* in several runs where they carry more than this in it, */
#define TUNE_RUNS 16               /* but no more than these */

static const char *const operation_names[3] = {"allreduce", "reduce_scatter", "allgather"};

/* 0: below 4 MiB, 1: below 64 MiB, 2: the rest */
static int size_class(uint64_t bytes)
{
    return (bytes < (4u << 20)) ? 0 : (bytes < (64u << 20)) ? 1 : 2;
}

static int is_on(const mpath_symmetric_t *symmetric)
{
    return (symmetric->settings->adapt != MPATH_ADAPT_OFF) && (mpath_share_num_rails(symmetric->share) > 1);
}

int mpath_symmetric_adapts(const mpath_symmetric_t *symmetric, uint64_t bytes)
{
    return is_on(symmetric) && (bytes >= LEARN_MIN_BYTES) && !mpath_idle_others_may_rest();
}

/* Rates in bytes per second, for the log. */
static void reduction_adapt_log_rates(const mpath_symmetric_t *symmetric, const char *why, const uint64_t *bps)
{
    char text[MPATH_MAX_NICS * 24] = "";
    size_t used                    = 0;

    for (int i = 0; (i < mpath_share_num_rails(symmetric->share)) && (used < sizeof(text)); i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %llu", (unsigned long long)bps[i]);
    }
    if (symmetric->rank == 0) {
        mpath_info("%s: rails carry%s bytes per second; shares follow", why, text);
    }
}

/* Makes rates known to everybody who counts on them. */
static mpath_status_t spread(mpath_symmetric_t *symmetric, const uint64_t *bps)
{
    uint64_t nominal_bps[MPATH_MAX_NICS];
    int num_rails = mpath_share_num_rails(symmetric->share), numbers[MPATH_MAX_NICS];

    for (int i = 0; i < num_rails; i++) {
        nominal_bps[i] = mpath_share_rail_bps(symmetric->share, i);
        numbers[i]     = mpath_share_rail_number(symmetric->share, i);
    }
    return mpath_coll_rates_learned(symmetric->coll, num_rails, numbers, nominal_bps, bps);
}

/* Rates are in use. */
static int is_known(const mpath_nics_t *rates)
{
    return rates->num_rails > 0;
}

/* Shares follow those from here on. */
static mpath_status_t reduction_adapt_begin(const mpath_symmetric_t *symmetric, mpath_nics_t *rates,
                                            const uint64_t *bps)
{
    mpath_status_t status = mpath_nics_init(rates, 1, mpath_share_num_rails(symmetric->share), bps);

    rates->looks = 1;
    return status;
}

static void forget_rates(mpath_symmetric_t *symmetric)
{
    for (int op = 0; op < 3; op++) {
        for (int k = 0; k < SYMMETRIC_CLASSES; k++) {
            mpath_nics_release(&symmetric->adapt.rates[op][k]);
        }
    }
}

void mpath_symmetric_adapt_forget(mpath_symmetric_t *symmetric)
{
    forget_rates(symmetric);
    memset(&symmetric->adapt, 0, sizeof(symmetric->adapt));
}

uint32_t mpath_symmetric_adapt_call_flags(const mpath_symmetric_t *symmetric)
{
    return mpath_coll_rates_call_flags(symmetric->coll);
}

/* -- the file -- */

/* Of an operation and class, in an array that has those of all for each rail. */
static size_t stored_at(const mpath_symmetric_t *symmetric, int op, int k)
{
    return (size_t)(op * SYMMETRIC_CLASSES + k) * (size_t)mpath_share_num_rails(symmetric->share);
}

/* The rates of rails that the file has for reductions. */
typedef struct stored {
    const mpath_symmetric_t *symmetric;
    uint64_t machine;
    uint64_t *bps; /* zeroed; 0: none */
} stored_t;

static void take_stored_line(void *argument, const mpath_history_line_t *line)
{
    const stored_t *stored = argument;

    if ((line->key.kind != MPATH_HISTORY_RATES) || (line->key.machine != stored->machine) ||
        (line->num_rails != mpath_share_num_rails(stored->symmetric->share)) ||
        (line->key.size_class >= SYMMETRIC_CLASSES)) {
        return;
    }
    for (int op = 0; op < 3; op++) {
        if (strcmp(line->key.operation, operation_names[op]) == 0) {
            memcpy(stored->bps + stored_at(stored->symmetric, op, line->key.size_class), line->bps,
                   (size_t)line->num_rails * sizeof(*line->bps));
        }
    }
}

static void store_load(const mpath_symmetric_t *symmetric, uint64_t *bps)
{
    const char *path = symmetric->settings->adapt_file;
    stored_t stored  = {
         .symmetric = symmetric, .machine = mpath_topo_signature(mpath_team_topo(symmetric->team)), .bps = bps};

    if ((path[0] != '\0') && (symmetric->rank == 0)) {
        (void)mpath_history_take(path, take_stored_line, &stored);
    }
}

static void store_save(const mpath_symmetric_t *symmetric, const char *operation, int k, const uint64_t *bps)
{
    const char *path = symmetric->settings->adapt_file;

    if ((symmetric->rank == 0) && (path[0] != '\0')) {
        (void)mpath_history_save(path, mpath_topo_signature(mpath_team_topo(symmetric->team)), operation, k,
                                 mpath_share_num_rails(symmetric->share), bps);
    }
}

/* Rank 0 reads, all hear what, if it has a file. Plans count on it already, see mpath_coll_rates_call_flags(). */
static mpath_status_t take_stored(mpath_symmetric_t *symmetric)
{
    mpath_symmetric_adapt_t *adapt    = &symmetric->adapt;
    size_t count                      = stored_at(symmetric, 3, 0);
    uint64_t most[MPATH_TEAM_NUMBERS] = {(symmetric->rank == 0) && (symmetric->settings->adapt_file[0] != '\0')};
    mpath_status_t status             = mpath_team_most(symmetric->team, most);
    uint64_t *all, *mine;

    if ((status != MPATH_OK) || (most[0] == 0)) {
        return status;
    }
    all = calloc((size_t)symmetric->size + 1, count * sizeof(*all));
    if (all == NULL) {
        mpath_error("no memory for the learned rates of %d ranks; the call fails", symmetric->size);
        return MPATH_ERR_NO_MEMORY;
    }
    mine = all + (size_t)symmetric->size * count;
    store_load(symmetric, mine);
    status = mpath_team_allgather(symmetric->team, mine, count * sizeof(*mine), all);
    for (int op = 0; (op < 3) && (status == MPATH_OK); op++) {
        for (int k = 0; (k < SYMMETRIC_CLASSES) && (status == MPATH_OK); k++) {
            const uint64_t *bps = all + stored_at(symmetric, op, k); /* rank 0's */

            if (bps[0] > 0) {
                status = reduction_adapt_begin(symmetric, &adapt->rates[op][k], bps);
            }
        }
    }
    free(all);
    return status;
}

/* -- the measurement -- */

/* What a run moves, and how many there are to a measurement. */
static uint64_t tune_bytes(const mpath_symmetric_t *symmetric, int *runs_p)
{
    uint64_t bytes = 0, runs;

    for (int i = 0; i < mpath_share_num_rails(symmetric->share); i++) {
        bytes += (uint64_t)((double)mpath_share_rail_bps(symmetric->share, i) * (double)TUNE_NS /
                            (double)MPATH_NS_PER_S);
    }
    bytes *= (uint64_t)mpath_topo_num_nodes(mpath_team_topo(symmetric->team));
    runs    = (bytes + TUNE_MAX_BYTES - 1) / TUNE_MAX_BYTES;
    *runs_p = (runs < 1) ? 1 : (runs > TUNE_RUNS) ? TUNE_RUNS : (int)runs;
    bytes   = (bytes < TUNE_MAX_BYTES) ? bytes : TUNE_MAX_BYTES;
    return (bytes > TUNE_MIN_BYTES) ? bytes : TUNE_MIN_BYTES;
}

/* The longest time that a driver saw each rail busy. */
static mpath_status_t exchange_times(mpath_symmetric_t *symmetric, const uint64_t *mine, uint64_t *times_ns)
{
    int num_rails = mpath_share_num_rails(symmetric->share);
    size_t row    = (size_t)num_rails * sizeof(uint64_t);
    uint64_t *all = malloc((size_t)symmetric->size * row);
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("no memory for the times of %d ranks; the call fails", symmetric->size);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_team_allgather(symmetric->team, mine, row, all);
    memset(times_ns, 0, row);
    for (int rank = 0; (rank < symmetric->size) && (status == MPATH_OK); rank++) {
        for (int i = 0; i < num_rails; i++) {
            uint64_t time_ns = all[(size_t)rank * (size_t)num_rails + (size_t)i];

            times_ns[i] = (time_ns > times_ns[i]) ? time_ns : times_ns[i];
        }
    }
    free(all);
    return status;
}

/* One run over all rails with the shares under test: nothing but a gather of what lies in a buffer. */
static mpath_status_t tune_run(mpath_symmetric_t *symmetric, const mpath_tune_t *tune, char *buffer, uint64_t block)
{
    mpath_share_stats_t stats = {0};
    uint64_t rates_bps[MPATH_MAX_NICS];
    mpath_share_job_t job = {.flags          = MPATH_SHARE_GATHER,
                             .element_bytes  = 1,
                             .block_elements = symmetric->elements,
                             .send_buffer    = buffer,
                             .send_offsets   = symmetric->send_offsets,
                             .recv_buffer    = buffer,
                             .recv_offsets   = symmetric->recv_offsets,
                             .own_in_place   = 1};

    for (int i = 0; i < tune->num_rails; i++) {
        rates_bps[i] = tune->shares[i];
    }
    mpath_share_set_rates(symmetric->share, rates_bps, mpath_nics_below(tune->num_rails));
    for (int rank = 0; rank < symmetric->size; rank++) {
        symmetric->elements[rank]     = block;
        symmetric->send_offsets[rank] = 0;
        symmetric->recv_offsets[rank] = block;
    }
    return mpath_share_run(symmetric->share, &job, &stats);
}

/*
 * How long each rail takes with the shares under test. The times are exchanged after every run, for chunks carry no
 * number of the run: those of the next one must not come where the last one has not ended.
 */
static mpath_status_t tune_measure(mpath_symmetric_t *symmetric, const mpath_tune_t *tune, char *buffer, uint64_t block,
                                   int runs, uint64_t *times_ns)
{
    uint64_t mine[MPATH_MAX_NICS] = {0}, bytes, busy_ns;
    mpath_status_t status         = MPATH_OK;

    for (int run = 0; (run < runs) && (status == MPATH_OK); run++) {
        status = tune_run(symmetric, tune, buffer, block);
        for (int i = 0; (i < tune->num_rails) && (status == MPATH_OK); i++) {
            mine[i] += mpath_share_measured(symmetric->share, i, &bytes, &busy_ns) ? busy_ns : 0;
        }
        if (status == MPATH_OK) {
            status = exchange_times(symmetric, mine, times_ns);
        }
    }
    return status;
}

/* Shares with which all rails end together, as rates. */
static mpath_status_t measure(mpath_symmetric_t *symmetric)
{
    int num_rails  = mpath_share_num_rails(symmetric->share), runs;
    uint64_t block = tune_bytes(symmetric, &runs) / (uint64_t)symmetric->size, times_ns[MPATH_MAX_NICS], sum_bps = 0;
    uint64_t rates_bps[MPATH_MAX_NICS], *arrays;
    char *buffer = malloc(2 * block);
    mpath_status_t status;
    mpath_tune_t tune;

    arrays = malloc(5 * (size_t)symmetric->size * sizeof(*arrays)); /* the call under way has its own in there */
    if ((buffer == NULL) || (arrays == NULL)) {
        free(arrays);
        free(buffer);
        mpath_error("no memory to measure rails with; the call fails");
        return MPATH_ERR_NO_MEMORY;
    }
    memcpy(arrays, symmetric->send_bytes, 5 * (size_t)symmetric->size * sizeof(*arrays));
    memset(buffer, 0, 2 * block);
    for (int i = 0; i < num_rails; i++) {
        rates_bps[i] = mpath_share_rail_bps(symmetric->share, i);
        sum_bps += rates_bps[i];
    }
    mpath_tune_init(&tune, num_rails, rates_bps);
    do {
        status = tune_measure(symmetric, &tune, buffer, block, runs, times_ns);
    } while ((status == MPATH_OK) && mpath_tune_step(&tune, times_ns));
    for (int i = 0; i < num_rails; i++) {
        rates_bps[i] = (uint64_t)((double)sum_bps * tune.shares[i] / MPATH_TUNE_WHOLE) + 1;
    }
    memcpy(symmetric->send_bytes, arrays, 5 * (size_t)symmetric->size * sizeof(*arrays));
    free(arrays);
    free(buffer);
    if (status == MPATH_OK) {
        reduction_adapt_log_rates(symmetric, "measured", rates_bps);
        status = spread(symmetric, rates_bps);
        store_save(symmetric, "start", 0, rates_bps);
    }
    return status;
}

static mpath_status_t start(mpath_symmetric_t *symmetric)
{
    mpath_status_t status = take_stored(symmetric);

    symmetric->adapt.started  = 1;
    symmetric->adapt.measures = (symmetric->settings->adapt == MPATH_ADAPT_START);
    return status;
}

/* Where nothing is known yet; all operations and size classes begin with what it shows. */
static mpath_status_t start_measure(mpath_symmetric_t *symmetric)
{
    symmetric->adapt.measures = 0;
    if (mpath_coll_rates_are_known(symmetric->coll)) {
        return MPATH_OK;
    }
    forget_rates(symmetric);
    return measure(symmetric);
}

/* -- calls -- */

/* Where an operation and size begins that has not run yet: with what is known of rails by now. */
static mpath_status_t begin(const mpath_symmetric_t *symmetric, mpath_nics_t *rates)
{
    int num_rails = mpath_share_num_rails(symmetric->share);
    uint64_t bps[MPATH_MAX_NICS];

    for (int i = 0; i < num_rails; i++) {
        bps[i] = mpath_coll_rates_of(symmetric->coll, mpath_share_rail_number(symmetric->share, i),
                                     mpath_share_rail_bps(symmetric->share, i));
    }
    return reduction_adapt_begin(symmetric, rates, bps);
}

/*
 * Rails that the call uses. Those that the system says to be fast enough, and that calls have shown not to be, are looked
 * at in some calls.
 */
static mpath_nic_set_t lanes_of(mpath_symmetric_t *symmetric, int op, int k, uint64_t bytes)
{
    mpath_symmetric_adapt_t *adapt = &symmetric->adapt;
    const mpath_nics_t *rates      = &adapt->rates[op][k];
    mpath_nic_set_t lanes          = mpath_rates_worth(rates->num_rails, rates->current_bps);
    mpath_nic_set_t slow           = mpath_share_lanes(symmetric->share) & ~lanes;

    if ((slow == 0) || !mpath_symmetric_adapts(symmetric, bytes)) {
        return lanes;
    }
    adapt->unseen[op][k]++;
    return (adapt->unseen[op][k] % MPATH_RATES_SEEN_CALLS == 0) ? lanes | slow : lanes;
}

mpath_status_t mpath_symmetric_adapt_before(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes)
{
    mpath_symmetric_adapt_t *adapt = &symmetric->adapt;
    int op = mpath_symmetric_index(operation), k = size_class(bytes);
    mpath_status_t status;

    if (!is_on(symmetric)) {
        return MPATH_OK;
    }
    status = mpath_coll_rates_take(symmetric->coll, symmetric->agreed_flags);
    if ((status == MPATH_OK) && !adapt->started) {
        status = start(symmetric);
    }
    if ((status == MPATH_OK) && adapt->measures && !mpath_idle_others_may_rest()) {
        status = start_measure(symmetric);
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (!is_known(&adapt->rates[op][k])) {
        status = begin(symmetric, &adapt->rates[op][k]);
    }
    if (status == MPATH_OK) {
        mpath_share_set_rates(symmetric->share, adapt->rates[op][k].current_bps, lanes_of(symmetric, op, k, bytes));
    }
    return status;
}

static mpath_status_t reduction_adapt_exchange(mpath_symmetric_t *symmetric, int op, int k)
{
    mpath_nics_t *rates = &symmetric->adapt.rates[op][k];
    mpath_status_t status;
    int changed;

    status = mpath_nics_exchange(rates, symmetric->team, &changed);
    if (changed) {
        reduction_adapt_log_rates(symmetric, operation_names[op], rates->current_bps);
        status = spread(symmetric, rates->current_bps);
        store_save(symmetric, operation_names[op], k, rates->current_bps);
    }
    mpath_doubt_adapted(&symmetric->doubts[op], changed);
    return status;
}

mpath_status_t mpath_symmetric_adapt_after(mpath_symmetric_t *symmetric, mpath_operation_t operation, unsigned flags,
                                           uint64_t bytes)
{
    int op = mpath_symmetric_index(operation), k = size_class(bytes), ends;
    mpath_nics_t *rates = &symmetric->adapt.rates[op][k];
    uint64_t taken_bytes, busy_ns;
    unsigned in_doubt;

    if (!mpath_symmetric_adapts(symmetric, bytes)) {
        return MPATH_OK;
    }
    in_doubt = mpath_doubt_window_call(&symmetric->doubts[op]);
    if (in_doubt == 1) { /* what calls before have shown has become wrong */
        mpath_nics_restart(rates);
    }
    for (int i = 0; i < rates->num_rails; i++) {
        if (mpath_share_measured(symmetric->share, i, &taken_bytes, &busy_ns)) {
            mpath_nics_carried(rates, i, taken_bytes, busy_ns);
        }
    }
    ends = mpath_nics_end_call(rates, mpath_share_predict_ns(symmetric->share, flags, bytes));
    return (ends || (in_doubt == MPATH_DOUBT_WINDOW_CALLS)) ? reduction_adapt_exchange(symmetric, op, k) : MPATH_OK;
}
