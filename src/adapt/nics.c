/* SPDX-License-Identifier: BSD-3-Clause */
/* NICs: samples of a window, and which end of a late flow is to blame. */
#include "adapt/nics.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define MILLION 1000000.0
#define NOISE (MPATH_RATES_DRIFT_PPM / MILLION)

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
    nics->unseen      = calloc(count + 1, sizeof(*nics->unseen));
    nics->samples     = calloc(count + 1, sizeof(*nics->samples));
    if ((nics->nominal_bps == NULL) || (nics->current_bps == NULL) || (nics->unseen == NULL) ||
        (nics->samples == NULL)) {
        mpath_error("no memory for the rates of %zu NICs", count);
        mpath_nics_release(nics);
        return MPATH_ERR_NO_MEMORY;
    }
    memcpy(nics->nominal_bps, nominal_bps, count * sizeof(*nominal_bps));
    memcpy(nics->current_bps, nominal_bps, count * sizeof(*nominal_bps));
    return MPATH_OK;
}

void mpath_nics_release(mpath_nics_t *nics)
{
    free(nics->nominal_bps);
    free(nics->current_bps);
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
    }
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

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/*
 * What most calls of the window show is less than a NIC carries where ranks were kept from running, here or at the other
 * end, which is no property of the NIC. What the best quarter of them shows it has carried.
 */
void mpath_nics_read(mpath_nics_t *nics, mpath_nics_seen_t *row)
{
    for (int nic = 0; nic < nics->num_nics; nic++) {
        mpath_nics_samples_t *samples = &nics->samples[nic];
        unsigned count                = (samples->count < MPATH_NICS_SAMPLES) ? samples->count : MPATH_NICS_SAMPLES;

        row[nic] = (mpath_nics_seen_t){.pace = 0};
        if (count > 0) {
            qsort(samples->paces, count, sizeof(samples->paces[0]), compare);
            row[nic]      = samples->last;
            row[nic].pace = samples->paces[count * 3 / 4];
        }
        samples->count = 0;
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

static double smaller(double a, double b)
{
    return (a < b) ? a : b;
}

static double larger(double a, double b)
{
    return (a > b) ? a : b;
}

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

/* A slow NIC may have so little to carry that no call shows whether it has recovered. Nonzero: plans count on more. */
static int trust_unseen(mpath_nics_t *nics, const verdict_t *verdict)
{
    int changed = 0;

    for (int nic = 0; nic < nics->num_nics; nic++) {
        uint64_t *bps = &nics->current_bps[nic], nominal = nics->nominal_bps[nic];

        nics->unseen[nic] = some_has_seen(verdict, nic) ? 0 : nics->unseen[nic] + 1;
        if ((nics->unseen[nic] >= MPATH_NICS_UNSEEN_WINDOWS) && (*bps < nominal)) {
            *bps              = (*bps < nominal / 2) ? 2 * *bps : nominal;
            nics->unseen[nic] = 0;
            changed           = 1;
        }
    }
    return changed;
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
        *changed_p = mpath_rates_follow(&nics->window, nics->num_nics, seen_bps, nics->current_bps);
        *changed_p |= trust_unseen(nics, &verdict);
        status = MPATH_OK;
    }
    free(paces);
    free(seen_bps);
    return status;
}
