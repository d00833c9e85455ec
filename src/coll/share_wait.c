/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting in the share engine: gives up the processor, and from time to time asks whether waiting still makes sense. */
#include "coll/share_private.h"

#include "exec/attend.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>

#define CHECK_NS (50 * MPATH_NS_PER_MS)
#define CONTROL_PLANE_ROUNDS 64 /* looks between two turns for the MPI library */

/* What this rank waits for. */
typedef struct edge {
    int rank;         /* that has not done its part; -1: nobody in particular */
    int nic, nic_to;  /* mine and its, when it is to send or to take by rail; else -1 */
    const char *what; /* "to publish", ... */
    uint64_t segment;
} edge_t;

static const char *host_of(const mpath_share_t *share, int rank)
{
    return mpath_topo_machine(share->topo, mpath_topo_place(share->topo, rank)->node)->host;
}

/* An edge to a rank of this node that is behind. */
static int behind(const mpath_share_t *share, const share_line_t *lines, uint64_t segment, const char *what,
                  edge_t *edge)
{
    int who = 0;

    if (mpath_share_least(share, lines, share->num_local, &who) > segment) {
        return 0;
    }
    *edge = (edge_t){.rank = share->local[who], .nic = -1, .nic_to = -1, .what = what, .segment = segment};
    return share->local[who] != share->me;
}

static void edge_by_rail(const mpath_share_t *share, const share_link_t *link, int node, const char *what,
                         uint64_t segment, edge_t *edge)
{
    const share_rail_t *rail = &share->rails[link->rail];

    *edge = (edge_t){.rank    = rail->driver[node],
                     .nic     = rail->nic[share->node],
                     .nic_to  = rail->nic[node],
                     .what    = what,
                     .segment = segment};
}

/* Segments of which this rank could have the pieces of a phase; 0: the call does not have it, or the rail no share. */
static uint64_t link_until(const mpath_share_t *share, const share_link_t *link, int phase)
{
    if (share->rails[link->rail].weight == 0) {
        return 0;
    }
    if (phase == SHARE_SCATTER) {
        return share_has(share, MPATH_SHARE_REDUCE) ? share->my_reduced : 0;
    }
    return share_has(share, MPATH_SHARE_GATHER) ? share->my_published : 0;
}

/* What a driver waits for longest: something to come, or else to be taken. */
static int link_edge(const mpath_share_t *share, const share_link_t *link, edge_t *edge)
{
    uint64_t *const *const counts[] = {link->arrived, link->next_send};
    const char *const what[]        = {"to send its piece of", "to take a piece of"};

    for (int way = 0; way < 2; way++) {
        uint64_t least = UINT64_MAX;

        for (int phase = 0; phase < SHARE_PHASES; phase++) {
            for (int node = 0; node < share->num_nodes; node++) {
                uint64_t segment = counts[way][phase][node];

                if ((node != share->node) && (segment < link_until(share, link, phase)) && (segment < least)) {
                    edge_by_rail(share, link, node, what[way], segment, edge);
                    least = segment;
                }
            }
        }
        if (least != UINT64_MAX) {
            return 1;
        }
    }
    return 0;
}

/* The same of all rails that this rank drives: that which is furthest behind, for the others wait for it. */
static int rail_edge(const mpath_share_t *share, edge_t *edge)
{
    int found = 0;

    for (int i = 0; i < share->num_links; i++) {
        edge_t other;

        if (link_edge(share, &share->links[i], &other) && (!found || (other.segment < edge->segment))) {
            *edge = other;
            found = 1;
        }
    }
    return found;
}

/* All is done here but what mates still write to this rank's buffers, or read there. */
static int is_ahead(const mpath_share_t *share)
{
    return (share->job->gpus != NULL) && (share->my_consumed == share->num_segments);
}

/* A rail of this node over which the segment that is copied next has not come, by its driver. */
static int undelivered(const mpath_share_t *share, edge_t *edge)
{
    int rail = 0;

    if ((share->num_nodes == 1) ||
        (mpath_share_least(share, share->delivered, share->num_rails, &rail) > share->my_copied)) {
        return 0;
    }
    *edge = (edge_t){.rank    = share->rails[rail].driver[share->node],
                     .nic     = -1,
                     .nic_to  = -1,
                     .what    = "to complete",
                     .segment = share->my_copied};
    return edge->rank != share->me;
}

/*
 * Causes before their consequences: mates that are late, then what does not come over this rank's rails, which nobody
 * else looks after, then over its mates', and last the mates whose copies hold up the next segments.
 */
static void find_edge(const mpath_share_t *share, edge_t *edge)
{
    if ((is_ahead(share) && behind(share, share->consumed, share->num_segments - 1, "to finish", edge)) ||
        ((share->my_published > share->my_copied) &&
         behind(share, share->published, share->my_copied, "to publish", edge)) ||
        (share_has(share, MPATH_SHARE_REDUCE) && (share->my_reduced > share->my_copied) &&
         behind(share, share->reduced, share->my_copied, "to combine", edge))) {
        return;
    }
    if (rail_edge(share, edge) || undelivered(share, edge) ||
        ((share->my_published < share->num_segments) && (share->my_published >= SHARE_AHEAD) &&
         behind(share, share->consumed, share->my_published - SHARE_AHEAD, "to finish", edge))) {
        return;
    }
    *edge = (edge_t){.rank = -1, .nic = -1, .nic_to = -1, .what = "to complete", .segment = share->my_copied};
}

/* " over rail NAME", "" inside the node */
static void over_text(const mpath_share_t *share, const edge_t *edge, char *text, size_t size)
{
    if (edge->nic >= 0) {
        snprintf(text, size, " over rail %s", mpath_topo_machine(share->topo, share->node)->nics[edge->nic].name);
    } else {
        snprintf(text, size, "%s", "");
    }
}

static mpath_status_t check_edge(mpath_share_t *share, const edge_t *edge)
{
    mpath_status_t status = MPATH_OK;
    char over[MPATH_NIC_NAME_MAX + 16];

    if (edge->rank < 0) {
        return MPATH_OK;
    }
    if (edge->nic >= 0) {
        status = mpath_wire_peer_status(share->wire, edge->nic, edge->rank, edge->nic_to);
    } else {
        status = mpath_team_peer_status(share->team, edge->rank);
    }
    if (status != MPATH_OK) {
        int rail = (edge->nic >= 0) && share->job->settles;

        over_text(share, edge, over, sizeof(over));
        mpath_log(
            rail ? MPATH_LOG_WARN : MPATH_LOG_ERROR,
            "rank %d (%s) can no longer be reached%s: %s; rank %d waits for it %s segment %llu of %llu, the call %s",
            edge->rank, host_of(share, edge->rank), over, mpath_status_string(status), share->me, edge->what,
            (unsigned long long)edge->segment, (unsigned long long)share->num_segments,
            rail ? "is repeated over the other rails" : "fails");
        if (rail) {
            mpath_wire_lose(share->wire, edge->nic);
        }
    }
    return status;
}

/* All ends that pieces are missing from: one that does not answer need not be the one that is waited for longest. */
static mpath_status_t check_links(mpath_share_t *share)
{
    mpath_status_t status = MPATH_OK;

    for (int i = 0; i < share->num_links; i++) {
        const share_link_t *link = &share->links[i];

        for (int phase = 0; phase < SHARE_PHASES; phase++) {
            for (int node = 0; (status == MPATH_OK) && (node < share->num_nodes); node++) {
                edge_t edge;

                if ((node != share->node) && (link->arrived[phase][node] < link_until(share, link, phase))) {
                    edge_by_rail(share, link, node, "to send its piece of", link->arrived[phase][node], &edge);
                    status = check_edge(share, &edge);
                }
            }
        }
    }
    return status;
}

/* Is a call that can be repeated given up? By the drivers that miss something, for all look at the same silence. */
static mpath_status_t check_rails(mpath_share_t *share, uint64_t waited_ns)
{
    int patience_s = share->settings->resend_after_s;
    edge_t edge;

    if (mpath_team_marked(share->team)) {
        return MPATH_AGAIN;
    }
    if ((waited_ns <= (uint64_t)patience_s * MPATH_NS_PER_S) || !mpath_attend_all(share->team, patience_s)) {
        return MPATH_OK;
    }
    if (rail_edge(share, &edge)) {
        char over[MPATH_NIC_NAME_MAX + 16];

        over_text(share, &edge, over, sizeof(over));
        mpath_warn("call %u: rank %d (%s) waits for rank %d (%s) %s segment %llu of %llu%s; nothing happened for %d s, "
                   "the call is repeated over other rails",
                   share->job->call, share->me, host_of(share, share->me), edge.rank, host_of(share, edge.rank),
                   edge.what, (unsigned long long)edge.segment, (unsigned long long)share->num_segments, over,
                   patience_s);
        share->given_up = 1;
        return MPATH_ERR_UNREACHABLE;
    }
    return MPATH_OK;
}

/* `verdict`: of mpath_idle_patience(). */
static void log_deadline(const mpath_share_t *share, const edge_t *edge, int seconds, mpath_status_t verdict)
{
    int failed              = verdict == MPATH_ERR_TIMED_OUT;
    mpath_log_level_t level = failed ? MPATH_LOG_ERROR : MPATH_LOG_WARN;
    const char *next        = failed ? "fails" : "goes on waiting";
    char over[MPATH_NIC_NAME_MAX + 16];

    over_text(share, edge, over, sizeof(over));
    if (edge->rank < 0) {
        mpath_log(level,
                  "call %u: rank %d (%s) waits to end segment %llu of %llu; nothing happened for %d s, the call %s",
                  share->job->call, share->me, host_of(share, share->me), (unsigned long long)edge->segment,
                  (unsigned long long)share->num_segments, seconds, next);
        return;
    }
    mpath_log(level,
              "call %u: rank %d (%s) waits for rank %d (%s) %s segment %llu of %llu%s; nothing happened for %d s, the "
              "call %s",
              share->job->call, share->me, host_of(share, share->me), edge->rank, host_of(share, edge->rank),
              edge->what, (unsigned long long)edge->segment, (unsigned long long)share->num_segments, over, seconds,
              next);
}

mpath_status_t mpath_share_wait(mpath_share_t *share)
{
    uint64_t waited_ns = mpath_idle_wait(&share->idle), now_ns;
    int timeout_s      = share->settings->timeout_s;
    mpath_status_t status, verdict;
    edge_t edge;

    if (share->idle.rounds % CONTROL_PLANE_ROUNDS == CONTROL_PLANE_ROUNDS - 1) {
        mpath_team_progress(share->team);
    }
    if (share->job->settles) {
        mpath_attend_look(share->team, &share->idle, waited_ns);
    }
    if (waited_ns < CHECK_NS) {
        return MPATH_OK;
    }
    now_ns = share->idle.last_event_ns + waited_ns;
    if (now_ns - share->checked_ns < CHECK_NS) {
        return MPATH_OK;
    }
    share->checked_ns = now_ns;
    status            = mpath_team_status(share->team);
    if (status == MPATH_OK) {
        find_edge(share, &edge);
        status = check_links(share);
        status = (status == MPATH_OK) ? check_edge(share, &edge) : status;
        if ((status == MPATH_OK) && share->job->settles) {
            status = check_rails(share, waited_ns);
        }
        verdict = mpath_idle_patience(&share->idle, waited_ns, timeout_s);
        if ((verdict == MPATH_INPROGRESS) && share->job->settles && mpath_attend_all(share->team, timeout_s)) {
            verdict = MPATH_ERR_TIMED_OUT;
        }
        if ((status == MPATH_OK) && (verdict != MPATH_OK)) {
            log_deadline(share, &edge, (int)(waited_ns / MPATH_NS_PER_S), verdict);
            status = (verdict == MPATH_ERR_TIMED_OUT) ? verdict : status;
        }
    }
    return status;
}
