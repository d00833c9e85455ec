/* SPDX-License-Identifier: BSD-3-Clause */
/* NICs: windows and hysteresis, samples of a window, and which end of a late flow is to blame. */
#include "tune/nic_rates.h"

#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define RATES_MILLION 1000000ull
#define TRUSTED_BYTES 65536u /* fewer say little about a rate */

mpath_nic_set_t mpath_rates_worth(int num_rails, const uint64_t *bps)
{
    uint64_t most = 0, slow_bps = 0, others_bps = 0;
    mpath_nic_set_t slow = 0, empty = 0;

    for (int rail = 0; rail < num_rails; rail++) {
        most = (bps[rail] > most) ? bps[rail] : most;
    }
    for (int rail = 0; rail < num_rails; rail++) {
        if (bps[rail] < most / MPATH_RATES_SLOW) {
            slow |= mpath_nic_bit(rail);
            slow_bps += bps[rail];
        } else {
            others_bps += bps[rail];
        }
        empty |= (bps[rail] == 0) ? mpath_nic_bit(rail) : 0;
    }
    return mpath_nics_below(num_rails) & ~empty & ~((slow_bps < others_bps / MPATH_RATES_SLOW) ? slow : 0);
}

/* a * MILLION / b for sums of rates; the product may be beyond 64 bits. */
static uint64_t ratio_ppm(uint64_t a, uint64_t b)
{
    return (uint64_t)((double)a * (double)RATES_MILLION / (double)b);
}

/* How far the one that stands out most is from the mean of all, in millionths of the mean. */
static uint64_t spread_ppm(int num, const uint64_t *seen_bps, const uint64_t *current_bps)
{
    uint64_t sum_seen = 0, sum_current = 0, mean, most = 0;

    for (int i = 0; i < num; i++) {
        if (seen_bps[i] > 0) {
            sum_seen += seen_bps[i];
            sum_current += current_bps[i];
        }
    }
    if (sum_seen == 0) {
        return 0;
    }
    mean = ratio_ppm(sum_seen, sum_current);
    mean = (mean > 0) ? mean : 1;
    for (int i = 0; i < num; i++) {
        uint64_t ratio, away;

        if (seen_bps[i] > 0) {
            ratio = ratio_ppm(seen_bps[i], current_bps[i]);
            away  = (ratio > mean) ? ratio - mean : mean - ratio;
            away  = (uint64_t)((double)away * (double)RATES_MILLION / (double)mean);
            most  = (away > most) ? away : most;
        }
    }
    return most;
}

static uint64_t limited(uint64_t bps, uint64_t current_bps)
{
    uint64_t most = current_bps * MPATH_RATES_MOST_RISE, least = current_bps / MPATH_RATES_MOST_FALL;

    bps = (bps < most) ? bps : most;
    bps = (bps > least) ? bps : least;
    return (bps > 0) ? bps : 1;
}

/*
 * The rules above for `num` rails or NICs of which seen_bps[] has been seen (0: nothing) where plans count on current_bps[]:
 * begins the next window.
 */
static void rates_follow(mpath_rates_window_t *window, int num, const uint64_t *seen_bps, uint64_t *current_bps)
{
    uint64_t away = spread_ppm(num, seen_bps, current_bps);

    window->calls       = 0;
    window->expected_ns = 0;
    window->drifts      = (away > MPATH_RATES_DRIFT_PPM) ? window->drifts + 1 : 0;
    if ((away <= MPATH_RATES_JUMP_PPM) && (window->drifts < 2)) {
        return;
    }
    window->drifts = 0;
    for (int i = 0; i < num; i++) {
        if (seen_bps[i] > 0) {
            current_bps[i] = limited(seen_bps[i], current_bps[i]);
        }
    }
}

#define MILLION 1000000.0
#define NOISE (MPATH_RATES_DRIFT_PPM / MILLION)

static double smaller(double a, double b)
{
    return (a < b) ? a : b;
}

static double larger(double a, double b)
{
    return (a > b) ? a : b;
}

int mpath_nics_are_told_apart(int num_nodes, int num_rails)
{
    return num_nodes * num_rails <= MPATH_NICS_MAX;
}

mpath_status_t mpath_nics_init(mpath_nics_t *nics, int num_nodes, int num_rails, const uint64_t *nominal_bps)
{
    size_t count = (size_t)num_nodes * (size_t)num_rails;

    memset(nics, 0, sizeof(*nics));
    nics->num_nodes   = num_nodes;
    nics->num_rails   = num_rails;
    nics->num_nics    = (int)count;
    nics->nominal_bps = malloc((count + 1) * sizeof(*nics->nominal_bps));
    nics->current_bps = malloc((count + 1) * sizeof(*nics->current_bps));
    nics->before_bps  = malloc((count + 1) * sizeof(*nics->before_bps));
    nics->unseen      = calloc(count + 1, sizeof(*nics->unseen));
    nics->samples     = calloc(count + 1, sizeof(*nics->samples));
    if ((nics->nominal_bps == NULL) || (nics->current_bps == NULL) || (nics->before_bps == NULL) ||
        (nics->unseen == NULL) || (nics->samples == NULL)) {
        mpath_error("no memory for the rates of %zu NICs", count);
        mpath_nics_release(nics);
        return MPATH_ERR_NO_MEMORY;
    }
    memcpy(nics->nominal_bps, nominal_bps, count * sizeof(*nominal_bps));
    memcpy(nics->current_bps, nominal_bps, count * sizeof(*nominal_bps));
    memcpy(nics->before_bps, nominal_bps, count * sizeof(*nominal_bps));
    return MPATH_OK;
}

void mpath_nics_release(mpath_nics_t *nics)
{
    free(nics->nominal_bps);
    free(nics->current_bps);
    free(nics->before_bps);
    free(nics->unseen);
    free(nics->samples);
    memset(nics, 0, sizeof(*nics));
}

int mpath_nics_index(const mpath_nics_t *nics, int node, int rail)
{
    return ((nics->num_nodes > 1) ? node * nics->num_rails : 0) + rail;
}

/* -- the window -- */

void mpath_nics_forget(mpath_nics_t *nics)
{
    mpath_nics_restart(nics);
    nics->window.drifts = 0;
}

void mpath_nics_restart(mpath_nics_t *nics)
{
    nics->window.calls       = 0;
    nics->window.expected_ns = 0;
    for (int nic = 0; nic < nics->num_nics; nic++) {
        nics->samples[nic].count = 0;
        nics->samples[nic].bytes = nics->samples[nic].busy_ns = 0;
    }
}

int mpath_nics_end_call(mpath_nics_t *nics, uint64_t expected_ns)
{
    nics->window.expected_ns += expected_ns;
    return (++nics->window.calls >= MPATH_RATES_WINDOW_CALLS) && (nics->window.expected_ns >= MPATH_RATES_WINDOW_NS);
}

double mpath_nics_own_pace(const mpath_nics_t *nics, uint64_t least_ns, uint64_t took_ns, uint64_t pace_ns)
{
    double pace = (double)least_ns / (double)took_ns, others;

    if ((pace >= 1) || (nics->num_nodes == 1)) {
        return pace;
    }
    others = (double)least_ns / (double)pace_ns;
    return (others < 1) ? others : 1;
}

void mpath_nics_observe(mpath_nics_t *nics, int nic, double pace, double part, int limits)
{
    mpath_nics_samples_t *samples = &nics->samples[nic];

    pace *= MILLION;
    pace = (pace < MPATH_NICS_MOST_PACE) ? pace : MPATH_NICS_MOST_PACE;
    if (pace >= 1) {
        samples->paces[samples->count++ % MPATH_NICS_SAMPLES] = (uint32_t)pace;
        samples->last.part   = (uint16_t)((part < 1) ? part * MPATH_NICS_WHOLE : MPATH_NICS_WHOLE);
        samples->last.limits = (uint16_t)(limits != 0);
    }
}

void mpath_nics_carried(mpath_nics_t *nics, int nic, uint64_t bytes, uint64_t busy_ns)
{
    nics->samples[nic].bytes += bytes;
    nics->samples[nic].busy_ns += busy_ns;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/*
 * What most calls of the window show is less than a NIC carries where ranks were kept from running, here or at the other
 * end, which is no property of the NIC. What the best quarter of them shows it has carried.
 */
static mpath_nics_seen_t take_paces(mpath_nics_samples_t *samples)
{
    unsigned count         = (samples->count < MPATH_NICS_SAMPLES) ? samples->count : MPATH_NICS_SAMPLES;
    mpath_nics_seen_t seen = samples->last;

    qsort(samples->paces, count, sizeof(samples->paces[0]), compare);
    seen.pace      = samples->paces[count * 3 / 4];
    samples->count = 0;
    return seen;
}

/* What was carried, where that is enough. */
static mpath_nics_seen_t take_carried(mpath_nics_samples_t *samples, uint64_t current_bps)
{
    mpath_nics_seen_t seen = {.limits = 1};

    if ((samples->bytes >= TRUSTED_BYTES) && (samples->busy_ns > 0)) {
        double bps = (double)samples->bytes * (double)MPATH_NS_PER_S / (double)samples->busy_ns;

        seen.pace = (uint32_t)larger(smaller(bps / (double)current_bps * MILLION + 0.5, MPATH_NICS_MOST_PACE), 1);
    }
    if (samples->bytes >= TRUSTED_BYTES) {
        samples->bytes = samples->busy_ns = 0;
    }
    return seen;
}

void mpath_nics_read(mpath_nics_t *nics, mpath_nics_seen_t *row)
{
    for (int nic = 0; nic < nics->num_nics; nic++) {
        mpath_nics_samples_t *samples = &nics->samples[nic];

        row[nic] = (samples->count > 0) ? take_paces(samples) : take_carried(samples, nics->current_bps[nic]);
    }
}

/* -- which end is to blame -- */

/* The ranks' rows, and what follows from them for each NIC: its pace, as receiver and as sender; 0: nothing was seen. */
typedef struct verdict {
    const mpath_nics_t *nics;
    const mpath_nics_seen_t *rows;
    const int *node_of;
    int num_ranks;
    double *receives, *sends;
} verdict_t;

/* What a rank has seen of the NIC: the node's own ranks what it receives, those of others what it sends. NULL: nothing. */
static const mpath_nics_seen_t *seen_by(const verdict_t *verdict, int rank, int nic, int own)
{
    const mpath_nics_t *nics      = verdict->nics;
    const mpath_nics_seen_t *seen = &verdict->rows[(size_t)rank * (size_t)nics->num_nics + (size_t)nic];
    int is_own                    = (nics->num_nodes == 1) || (verdict->node_of[rank] == nic / nics->num_rails);

    return ((seen->pace > 0) && (is_own == own)) ? seen : NULL;
}

/* The NIC of the rank's node on the rail of another one. */
static int partner_of(const verdict_t *verdict, int rank, int nic)
{
    return mpath_nics_index(verdict->nics, verdict->node_of[rank], nic % verdict->nics->num_rails);
}

/* What the NIC leaves unexplained of the pace of a flow at whose other end it is; late or on time where it is not known. */
static double beside(double pace, double explains)
{
    return (explains > 0) ? pace / smaller(explains, 1) : pace;
}

/* An end that has less to do than the other one shows no rise, and no small fall. */
static double of_slack(double pace)
{
    return (pace < 1 - NOISE) ? pace : 0;
}

/* The least of what the ranks of its node have seen; 0: nothing. */
static double judge_receiver(const verdict_t *verdict, int nic, int *limits_p)
{
    uint32_t least = 0;

    *limits_p = 0;
    for (int rank = 0; rank < verdict->num_ranks; rank++) {
        const mpath_nics_seen_t *seen = seen_by(verdict, rank, nic, 1);

        if (seen != NULL) {
            least     = ((least == 0) || (seen->pace < least)) ? seen->pace : least;
            *limits_p = *limits_p || seen->limits;
        }
    }
    return least / MILLION;
}

/*
 * A NIC whose pace as a receiver is behind: where senders explain that, what the flows of the others show, each of which is
 * on time at most. 0: there are none.
 */
static double excuse_receiver(const verdict_t *verdict, int nic, int limits, double pace)
{
    const mpath_nics_t *nics = verdict->nics;
    double blames = pace * (limits ? 1 - NOISE : 1 + NOISE), sum = 0;
    int excused = 0, others = 0;

    for (int rank = 0; rank < verdict->num_ranks; rank++) {
        for (int node = 0; (node < nics->num_nodes) && (verdict->node_of[rank] == nic / nics->num_rails); node++) {
            int source                    = mpath_nics_index(nics, node, nic % nics->num_rails);
            const mpath_nics_seen_t *flow = seen_by(verdict, rank, source, 0);

            if ((flow != NULL) && (verdict->sends[source] > 0) && (verdict->sends[source] < blames)) {
                excused = 1;
            } else if (flow != NULL) {
                sum += smaller(flow->pace / MILLION, 1);
                others++;
            }
        }
    }
    return !excused ? pace : (others > 0) ? larger(sum / others, pace) : 0;
}

/*
 * The mean of its flows; those with less than half of the largest one's bytes may be through before the others begin. It
 * is faster than before when all of them are.
 */
static double judge_sender(const verdict_t *verdict, int nic, int *limits_p)
{
    double sum = 0, parts = 0, least = 0;
    unsigned largest = 0;

    *limits_p = 0;
    for (int rank = 0; rank < verdict->num_ranks; rank++) {
        const mpath_nics_seen_t *flow = seen_by(verdict, rank, nic, 0);

        largest = ((flow != NULL) && (flow->part > largest)) ? flow->part : largest;
    }
    for (int rank = 0; rank < verdict->num_ranks; rank++) {
        const mpath_nics_seen_t *flow = seen_by(verdict, rank, nic, 0);

        if ((flow != NULL) && (2u * flow->part >= largest)) {
            double pace = beside(flow->pace / MILLION, verdict->receives[partner_of(verdict, rank, nic)]);

            sum += flow->part * pace;
            parts += flow->part;
            least     = ((least == 0) || (pace < least)) ? pace : least;
            *limits_p = *limits_p || flow->limits;
        }
    }
    if (parts == 0) {
        return 0;
    }
    sum /= parts;
    return (sum <= 1) ? sum : (least > 1) ? least : 1;
}

/* By NIC what was seen; 0: nothing was learned. First as if all that have little to do were on time. */
static void judge(verdict_t *verdict, uint64_t *seen_bps)
{
    const mpath_nics_t *nics = verdict->nics;
    int limits;

    for (int nic = 0; nic < nics->num_nics; nic++) {
        double pace = judge_receiver(verdict, nic, &limits);

        verdict->receives[nic] = limits ? pace : 0;
    }
    for (int nic = 0; nic < nics->num_nics; nic++) {
        double pace = judge_sender(verdict, nic, &limits);

        verdict->sends[nic] = limits ? pace : of_slack(pace);
    }
    for (int nic = 0; nic < nics->num_nics; nic++) {
        double receives = judge_receiver(verdict, nic, &limits), sends = verdict->sends[nic], bps;

        if ((receives > 0) && (receives < 1) && (nics->num_nodes > 1)) {
            receives = excuse_receiver(verdict, nic, limits, receives);
        }
        receives = limits ? receives : of_slack(receives);
        bps      = (receives == 0) ? sends : (sends == 0) ? receives : smaller(receives, sends);
        bps      = smaller(bps * (double)nics->current_bps[nic], (double)MPATH_MAX_RATE_BPS);

        seen_bps[nic] = (bps >= 1) ? (uint64_t)bps : 0;
    }
}

static int some_has_seen(const verdict_t *verdict, int nic)
{
    for (int rank = 0; rank < verdict->num_ranks; rank++) {
        if ((seen_by(verdict, rank, nic, 0) != NULL) || (seen_by(verdict, rank, nic, 1) != NULL)) {
            return 1;
        }
    }
    return 0;
}

/* A slow NIC may have so little to carry that no call shows whether it has recovered. */
static void trust_unseen(mpath_nics_t *nics, const verdict_t *verdict)
{
    for (int nic = 0; nic < nics->num_nics; nic++) {
        uint64_t *bps = &nics->current_bps[nic], nominal = nics->nominal_bps[nic];

        nics->unseen[nic] = some_has_seen(verdict, nic) ? 0 : nics->unseen[nic] + 1;
        if (!nics->looks && (nics->unseen[nic] >= MPATH_NICS_UNSEEN_WINDOWS) && (*bps < nominal)) {
            *bps              = (*bps < nominal / 2) ? 2 * *bps : nominal;
            nics->unseen[nic] = 0;
        }
    }
}

mpath_status_t mpath_nics_update(mpath_nics_t *nics, const mpath_nics_seen_t *rows, int num_ranks, const int *node_of,
                                 int *changed_p)
{
    size_t count          = (size_t)nics->num_nics + 1;
    uint64_t *seen_bps    = malloc(count * sizeof(*seen_bps));
    double *paces         = malloc(2 * count * sizeof(*paces));
    verdict_t verdict     = {.nics = nics, .rows = rows, .node_of = node_of, .num_ranks = num_ranks, .receives = paces};
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    if ((seen_bps == NULL) || (paces == NULL)) {
        mpath_error("no memory for the rates of %d NICs; the call fails", nics->num_nics);
    } else {
        verdict.sends = paces + count;
        judge(&verdict, seen_bps);
        memcpy(nics->before_bps, nics->current_bps, (size_t)nics->num_nics * sizeof(*nics->before_bps));
        rates_follow(&nics->window, nics->num_nics, seen_bps, nics->current_bps);
        trust_unseen(nics, &verdict);
        *changed_p = memcmp(nics->before_bps, nics->current_bps, (size_t)nics->num_nics * sizeof(*nics->before_bps)) !=
                     0;
        status = MPATH_OK;
    }
    free(paces);
    free(seen_bps);
    return status;
}

mpath_status_t mpath_nics_exchange(mpath_nics_t *nics, mpath_team_t *team, int *changed_p)
{
    const mpath_topo_t *topo = mpath_team_topo(team);
    size_t size = (size_t)mpath_team_size(team), row_bytes = (size_t)nics->num_nics * sizeof(mpath_nics_seen_t);
    mpath_nics_seen_t *rows = malloc((size + 1) * row_bytes); /* the last one is this rank's */
    int *node_of            = malloc(size * sizeof(*node_of));
    mpath_status_t status   = MPATH_ERR_NO_MEMORY;

    *changed_p = 0;
    if ((rows == NULL) || (node_of == NULL)) {
        mpath_error("no memory for the observed rates of %zu ranks; the call fails", size);
    } else {
        mpath_nics_read(nics, rows + size * (size_t)nics->num_nics);
        status = mpath_team_allgather(team, rows + size * (size_t)nics->num_nics, row_bytes, rows);
    }
    for (size_t rank = 0; (rank < size) && (status == MPATH_OK); rank++) {
        node_of[rank] = mpath_topo_place(topo, (int)rank)->node;
    }
    if (status == MPATH_OK) {
        status = mpath_nics_update(nics, rows, (int)size, node_of, changed_p);
    }
    free(node_of);
    free(rows);
    return status;
}
