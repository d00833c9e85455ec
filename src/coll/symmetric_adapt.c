/* SPDX-License-Identifier: BSD-3-Clause */
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
#include "coll/symmetric_private.h"

#include "adapt/store.h"
#include "adapt/tune.h"
#include "exec/idle.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEARN_MIN_BYTES (512u << 10)   /* smaller calls show latency */
#define TUNE_NS (40 * MPATH_NS_PER_MS) /* a measurement keeps the rails busy for about so long, */
#define TUNE_MIN_BYTES (1u << 20)
#define TUNE_MAX_BYTES (64u << 20) /* in several runs where they carry more than this in it, */
#define TUNE_RUNS 16               /* but no more than these */

/* Plain data, exchanged. */
typedef struct stored_rates {
    uint64_t bps[3][SYMMETRIC_CLASSES][MPATH_MAX_NICS]; /* 0: none */
} stored_rates_t;

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
static void log_rates(const mpath_symmetric_t *symmetric, const char *why, const uint64_t *bps)
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

uint32_t mpath_symmetric_adapt_tell(const mpath_symmetric_t *symmetric)
{
    return mpath_coll_rates_tell(symmetric->coll);
}

/* -- the file -- */

static void store_load(const mpath_symmetric_t *symmetric, stored_rates_t *stored)
{
    const char *path = symmetric->settings->adapt_file;
    uint64_t machine = mpath_topo_signature(mpath_team_topo(symmetric->team));

    memset(stored, 0, sizeof(*stored));
    for (int op = 0; (op < 3) && (path[0] != '\0') && (symmetric->rank == 0); op++) {
        for (int k = 0; k < SYMMETRIC_CLASSES; k++) {
            (void)mpath_store_load(path, machine, operation_names[op], k, mpath_share_num_rails(symmetric->share),
                                   stored->bps[op][k]);
        }
    }
}

static void store_save(const mpath_symmetric_t *symmetric, const char *operation, int k, const uint64_t *bps)
{
    const char *path = symmetric->settings->adapt_file;

    if ((symmetric->rank == 0) && (path[0] != '\0')) {
        (void)mpath_store_save(path, mpath_topo_signature(mpath_team_topo(symmetric->team)), operation, k,
                               mpath_share_num_rails(symmetric->share), bps);
    }
}

/* Rank 0 reads, all hear what. Plans count on it already, see mpath_coll_rates_tell(). */
static mpath_status_t take_stored(mpath_symmetric_t *symmetric)
{
    mpath_symmetric_adapt_t *adapt = &symmetric->adapt;
    stored_rates_t mine, *all = malloc((size_t)symmetric->size * sizeof(*all));
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("no memory for the learned rates of %d ranks; the call fails", symmetric->size);
        return MPATH_ERR_NO_MEMORY;
    }
    store_load(symmetric, &mine);
    status = mpath_team_allgather(symmetric->team, &mine, sizeof(mine), all);
    for (int op = 0; (op < 3) && (status == MPATH_OK); op++) {
        for (int k = 0; k < SYMMETRIC_CLASSES; k++) {
            if (all[0].bps[op][k][0] > 0) {
                mpath_rates_init(&adapt->rates[op][k], mpath_share_num_rails(symmetric->share), all[0].bps[op][k]);
                adapt->known[op][k] = 1;
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
    size_t row    = MPATH_MAX_NICS * sizeof(uint64_t);
    uint64_t *all = malloc((size_t)symmetric->size * row);
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("no memory for the times of %d ranks; the call fails", symmetric->size);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_team_allgather(symmetric->team, mine, row, all);
    memset(times_ns, 0, row);
    for (int rank = 0; (rank < symmetric->size) && (status == MPATH_OK); rank++) {
        for (int i = 0; i < MPATH_MAX_NICS; i++) {
            uint64_t time_ns = all[(size_t)rank * MPATH_MAX_NICS + (size_t)i];

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
    mpath_share_set_rates(symmetric->share, rates_bps, (UINT32_C(1) << tune->num_rails) - 1);
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
        log_rates(symmetric, "measured", rates_bps);
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
    memset(symmetric->adapt.known, 0, sizeof(symmetric->adapt.known));
    return measure(symmetric);
}

/* -- calls -- */

/* Where an operation and size begins that has not run yet: with what is known of rails by now. */
static void begin(const mpath_symmetric_t *symmetric, mpath_rates_t *rates)
{
    int num_rails = mpath_share_num_rails(symmetric->share);
    uint64_t bps[MPATH_MAX_NICS];

    for (int i = 0; i < num_rails; i++) {
        bps[i] = mpath_coll_rates_of(symmetric->coll, mpath_share_rail_number(symmetric->share, i),
                                     mpath_share_rail_bps(symmetric->share, i));
    }
    mpath_rates_init(rates, num_rails, bps);
}

/*
 * Rails that the call uses. Those that the system says to be fast enough, and that calls have shown not to be, are looked
 * at in some calls.
 */
static uint32_t lanes_of(mpath_symmetric_t *symmetric, int op, int k, uint64_t bytes)
{
    mpath_symmetric_adapt_t *adapt = &symmetric->adapt;
    const mpath_rates_t *rates     = &adapt->rates[op][k];
    uint32_t lanes                 = mpath_rates_worth(rates->num_rails, rates->current_bps);
    uint32_t slow                  = mpath_share_lanes(symmetric->share) & ~lanes;

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
    if (!adapt->known[op][k]) {
        begin(symmetric, &adapt->rates[op][k]);
        adapt->known[op][k] = 1;
    }
    mpath_share_set_rates(symmetric->share, adapt->rates[op][k].current_bps, lanes_of(symmetric, op, k, bytes));
    return MPATH_OK;
}

static mpath_status_t exchange(mpath_symmetric_t *symmetric, int op, int k)
{
    mpath_rates_t *rates = &symmetric->adapt.rates[op][k];
    uint64_t mine[MPATH_MAX_NICS];
    uint64_t *all = malloc((size_t)symmetric->size * sizeof(mine));
    mpath_status_t status;
    int changed = 0;

    if (all == NULL) {
        mpath_error("no memory for the observed rates of %d ranks; the call fails", symmetric->size);
        return MPATH_ERR_NO_MEMORY;
    }
    mpath_rates_observed(rates, mine);
    status  = mpath_team_allgather(symmetric->team, mine, sizeof(mine), all);
    changed = (status == MPATH_OK) && mpath_rates_update(rates, all, symmetric->size);
    if (changed) {
        log_rates(symmetric, operation_names[op], rates->current_bps);
        status = spread(symmetric, rates->current_bps);
        store_save(symmetric, operation_names[op], k, rates->current_bps);
    }
    mpath_doubt_adapted(&symmetric->doubts[op], changed);
    free(all);
    return status;
}

mpath_status_t mpath_symmetric_adapt_after(mpath_symmetric_t *symmetric, mpath_operation_t operation, unsigned flags,
                                           uint64_t bytes)
{
    int op = mpath_symmetric_index(operation), k = size_class(bytes), ends;
    mpath_rates_t *rates = &symmetric->adapt.rates[op][k];
    uint64_t taken_bytes, busy_ns;
    unsigned in_doubt;

    if (!mpath_symmetric_adapts(symmetric, bytes)) {
        return MPATH_OK;
    }
    in_doubt = mpath_doubt_window_call(&symmetric->doubts[op]);
    if (in_doubt == 1) { /* what calls before have shown has become wrong */
        mpath_rates_restart(rates);
    }
    for (int i = 0; i < rates->num_rails; i++) {
        if (mpath_share_measured(symmetric->share, i, &taken_bytes, &busy_ns)) {
            mpath_rates_observe(rates, i, taken_bytes, busy_ns);
        }
    }
    ends = mpath_rates_end_call(rates, mpath_share_predict_ns(symmetric->share, flags, bytes));
    return (ends || (in_doubt == MPATH_DOUBT_WINDOW_CALLS)) ? exchange(symmetric, op, k) : MPATH_OK;
}
