/* SPDX-License-Identifier: BSD-3-Clause */
/* The run of the pipeline: all steps in turn until this rank has nothing left to do. */
#include "pipeline/pipeline.h"

#include "pipeline/gpu.h"
#include "pipeline/pipeline_private.h"
#include "team/wait.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>
#include <string.h>

static void end(mpath_share_t *share);
static mpath_status_t run(mpath_share_t *share);

/* What a rank does inside its node: publishes its data, combines its slice, copies the result out. */

/* Copies a run between a rank's buffer and the segment that begins at `segment`. */
static void copy_run(const mpath_share_t *share, const share_cut_t *cut, int node, const share_run_t *run,
                     char *segment, char *buffer, int publishes)
{
    uint64_t element = share->job->element_bytes, count;

    for (uint64_t done = 0; done < run->count; done += count) {
        char *in_buffer = buffer + (run->in_block + done) * element, *in_segment;

        count      = run->count - done;
        in_segment = segment +
                     mpath_share_spot(share, cut, node, run->in_segment - cut->at[node] + done, &count) * element;
        memcpy(publishes ? in_segment : in_buffer, publishes ? in_buffer : in_segment, count * element);
    }
}

static void publish_part(mpath_share_t *share, const share_cut_t *cut, int node, char *to)
{
    const mpath_share_job_t *job = share->job;
    int only_mine                = !share_has(share, MPATH_SHARE_REDUCE);
    share_run_t run              = {0};

    while (mpath_share_run_next(share, cut, node, &run)) {
        if (!only_mine || (run.rank == share->me)) {
            copy_run(share, cut, node, &run, to, (char *)job->send_buffer + job->send_offsets[run.rank], 1);
        }
    }
}

/* pipeline/pipeline.c: steps inside the node. Number of events. */
static int share_publish(mpath_share_t *share)
{
    uint64_t k = share->my_published;
    const share_cut_t *cut;

    if (!mpath_share_may_publish(share, k)) {
        return 0;
    }
    cut = mpath_share_cut(share, k);
    if (share_has(share, MPATH_SHARE_REDUCE)) {
        for (int node = 0; node < share->num_nodes; node++) {
            publish_part(share, cut, node, share_input(share, k, share->local_rank));
        }
    } else {
        publish_part(share, cut, share->node, share_input(share, k, 0));
    }
    mpath_share_step(share, share->published, ++share->my_published);
    return 1;
}

/* pipeline/pipeline.c: steps inside the node. Number of events. */
static int share_reduce(mpath_share_t *share)
{
    const mpath_share_job_t *job = share->job;
    uint64_t k = share->my_reduced, all, from, to, ranks = (uint64_t)share->num_local;

    if (!share_has(share, MPATH_SHARE_REDUCE) || (k == share->num_segments) ||
        (mpath_share_least(share, share->published, share->num_local, NULL) <= k)) {
        return 0;
    }
    all  = mpath_share_cut(share, k)->at[share->num_nodes];
    from = all * (uint64_t)share->local_rank / ranks;
    to   = all * ((uint64_t)share->local_rank + 1) / ranks;
    for (int i = 1; (i < share->num_local) && (from < to); i++) {
        job->reduce(job->reduce_argument, share_input(share, k, i) + from * job->element_bytes,
                    share_input(share, k, 0) + from * job->element_bytes, to - from);
    }
    mpath_share_step(share, share->reduced, ++share->my_reduced);
    return 1;
}

static void copy_part(mpath_share_t *share, const share_cut_t *cut, int node)
{
    const mpath_share_job_t *job = share->job;
    char *segment                = share_input(share, cut->segment, 0);
    share_run_t run              = {0};

    if ((node == share->node) && !job->in_steps) {
        segment = share_own_result(share, cut->segment) - cut->at[node] * job->element_bytes;
    }
    while (mpath_share_run_next(share, cut, node, &run)) {
        int mine = run.rank == share->me;

        if (mine ? !job->own_in_place : share_has(share, MPATH_SHARE_GATHER)) {
            copy_run(share, cut, node, &run, segment, (char *)job->recv_buffer + job->recv_offsets[run.rank], 0);
        }
    }
}

/* pipeline/pipeline.c: steps inside the node. Number of events. */
static int share_copy_out(mpath_share_t *share)
{
    uint64_t k = share->my_copied;
    const share_cut_t *cut;

    if ((k == share->num_segments) || !mpath_share_is_delivered(share, k)) {
        return 0;
    }
    cut = mpath_share_cut(share, k);
    if (share_has(share, MPATH_SHARE_GATHER)) {
        for (int node = 0; node < share->num_nodes; node++) {
            copy_part(share, cut, node);
        }
    } else {
        copy_part(share, cut, share->node);
    }
    share->my_copied++;
    return 1;
}

/* pipeline/pipeline.c: steps inside the node. Number of events. */
static int share_consume(mpath_share_t *share)
{
    uint64_t until = share->my_copied;

    for (int i = 0; i < share->num_links; i++) {
        until = (share->links[i].freed < until) ? share->links[i].freed : until;
    }
    if (until == share->my_consumed) {
        return 0;
    }
    share->my_consumed = until;
    mpath_share_step(share, share->consumed, until);
    return 1;
}

/* Waiting in the pipeline (team/wait.h): whether the others still answer, and who is waited for. */

/* What this rank waits for. */
typedef struct edge {
    int rank;         /* that has not done its part; -1: nobody in particular */
    int nic, nic_to;  /* mine and its, when it is to send or to take by rail; else -1 */
    const char *what; /* "to publish", ... */
    uint64_t segment;
} edge_t;

static const char *host_of(const mpath_share_t *share, int rank)
{
    return mpath_topo_host(share->topo, mpath_topo_place(share->topo, rank)->node);
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

/* To or from the node of a turn, over a rail. */
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

/* Segments of which this rank could have the fragments of a phase; 0: the call does not have it, or the rail no share. */
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

#define PROGRESS_SEGMENT (2 * SHARE_TURNS_MAX) /* more turns than a segment has */

/* The turns of both phases in the order in which they depend on each other in steps: a gather is a scatter back. */
static int turn_after(const mpath_share_t *share, int phase, int index)
{
    return (share->job->in_steps && (phase == SHARE_GATHER)) ? share->num_turns - 1 - index : index;
}

/*
 * What a driver waits for longest: something to come, or else to be taken. In steps it is the first turn of that segment that
 * has not come: who is to send in the turns after it may itself wait for them.
 */
static int link_edge(const mpath_share_t *share, const share_link_t *link, edge_t *edge)
{
    uint64_t *const *const counts[]                       = {link->arrived, link->next_send};
    const char *const what[]                              = {"to send its fragment of", "to take a fragment of"};
    int (*const other[])(const mpath_share_t *, int, int) = {mpath_share_turn_from, mpath_share_turn_to};

    for (int side = 0; side < 2; side++) {
        uint64_t least = UINT64_MAX;

        for (int phase = 0; phase < SHARE_PHASES; phase++) {
            for (int i = 0; i < share->num_turns; i++) {
                int turn         = turn_after(share, phase, i);
                uint64_t segment = counts[side][phase][turn];

                if (mpath_share_turn_is_mine(share, turn) && (segment < link_until(share, link, phase)) &&
                    (segment < least)) {
                    edge_by_rail(share, link, other[side](share, phase, turn), what[side], segment, edge);
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

/* All ends that fragments are missing from: one that does not answer need not be the one that is waited for longest. */
static mpath_status_t check_links(mpath_share_t *share)
{
    mpath_status_t status = MPATH_OK;

    for (int i = 0; i < share->num_links; i++) {
        const share_link_t *link = &share->links[i];

        for (int phase = 0; phase < SHARE_PHASES; phase++) {
            for (int turn = 0; (status == MPATH_OK) && (turn < share->num_turns); turn++) {
                edge_t edge;

                if (mpath_share_turn_is_mine(share, turn) &&
                    (link->arrived[phase][turn] < link_until(share, link, phase))) {
                    edge_by_rail(share, link, mpath_share_turn_from(share, phase, turn), "to send its fragment of",
                                 link->arrived[phase][turn], &edge);
                    status = check_edge(share, &edge);
                }
            }
        }
    }
    return status;
}

static mpath_status_t share_check(void *engine, uint64_t waited_ns)
{
    mpath_share_t *share  = engine;
    mpath_status_t status = check_links(share);
    edge_t edge;

    (void)waited_ns;
    find_edge(share, &edge);
    return status == MPATH_OK ? check_edge(share, &edge) : status;
}

static void edge_text(const mpath_share_t *share, const edge_t *edge, char *text, size_t size)
{
    char over[MPATH_NIC_NAME_MAX + 16];

    over_text(share, edge, over, sizeof(over));
    if (edge->rank < 0) {
        snprintf(text, size, "call %u: rank %d (%s) waits to end segment %llu of %llu", share->job->call, share->me,
                 host_of(share, share->me), (unsigned long long)edge->segment, (unsigned long long)share->num_segments);
    } else {
        snprintf(text, size, "call %u: rank %d (%s) waits for rank %d (%s) %s segment %llu of %llu%s", share->job->call,
                 share->me, host_of(share, share->me), edge->rank, host_of(share, edge->rank), edge->what,
                 (unsigned long long)edge->segment, (unsigned long long)share->num_segments, over);
    }
}

static int share_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    edge_t edge;

    (void)why;
    find_edge(engine, &edge);
    *rank_p = edge.rank;
    edge_text(engine, &edge, text, size);
    return 1;
}

/* By the drivers that miss something, for all look at the same silence. */
static mpath_status_t share_lose_silent(void *engine, int seconds)
{
    mpath_share_t *share = engine;
    char text[MPATH_WAIT_TEXT];
    edge_t edge;

    if (!rail_edge(share, &edge)) {
        return MPATH_OK;
    }
    edge_text(share, &edge, text, sizeof(text));
    mpath_warn("%s; nothing came for %d s, the call is repeated over other rails", text, seconds);
    share->given_up = 1;
    return MPATH_ERR_UNREACHABLE;
}

const char *mpath_share_obstacle(const mpath_share_t *share)
{
    return share->obstacle;
}

int mpath_share_num_rails(const mpath_share_t *share)
{
    return share->num_rails;
}

mpath_nic_set_t mpath_share_lanes(const mpath_share_t *share)
{
    return share->lanes;
}

int mpath_share_num_lanes(const mpath_share_t *share)
{
    return mpath_nic_count(share->lanes);
}

uint64_t mpath_share_rail_bps(const mpath_share_t *share, int index)
{
    return share->rails[index].rate_bps;
}

int mpath_share_rail_number(const mpath_share_t *share, int index)
{
    return share->rails[index].number;
}

int mpath_share_measured(const mpath_share_t *share, int index, uint64_t *bytes_p, uint64_t *busy_ns_p)
{
    for (int i = 0; i < share->num_links; i++) {
        if (share->links[i].rail == index) {
            *bytes_p   = share->links[i].taken_bytes;
            *busy_ns_p = share->links[i].busy_ns;
            return 1;
        }
    }
    return 0;
}

static mpath_status_t begin(mpath_share_t *share)
{
    share->my_published = share->my_reduced = share->my_copied = share->my_consumed = 0;
    for (int i = 0; i < share->num_links; i++) {
        mpath_share_link_reset(share, &share->links[i]);
    }
    if (share->wire != NULL) {
        share->max_chunk = mpath_wire_max_chunk(share->wire);
        mpath_wire_begin(share->wire, &mpath_share_wire_ops, share, share->nics, share->job->settles);
    }
    mpath_wait_prepare(&share->wait, share->team, share->job->settles);
    share->given_up = 0;
    if (share->job->gpus == NULL) {
        return MPATH_OK;
    }
    mpath_share_gpu_owners_begin(share);
    return mpath_share_gpu_begin(share);
}

/* Brings the counters that this call has not used to where the others are. */
static void end(mpath_share_t *share)
{
    uint64_t end = share->base + share->num_segments;

    atomic_store_explicit(&share->published[share->local_rank].value, end, memory_order_release);
    atomic_store_explicit(&share->reduced[share->local_rank].value, end, memory_order_release);
    share->base = end;
    if (share->wire != NULL) {
        mpath_wire_end(share->wire);
    }
}

/* The steps inside the node. */
static int node_pass(mpath_share_t *share)
{
    int (*const host[])(mpath_share_t *) = {share_copy_out, share_consume, share_reduce, share_publish};
    int (*const gpu[])(mpath_share_t *)  = {mpath_share_gpu_copy_out, share_consume, mpath_share_gpu_reduce,
                                            mpath_share_gpu_publish};
    int events                           = 0;

    for (size_t i = 0; i < sizeof(host) / sizeof(host[0]); i++) {
        int result = (share->job->gpus != NULL) ? gpu[i](share) : host[i](share);

        if (result < 0) {
            return result;
        }
        events += result;
    }
    return events;
}

/* One look at everything, what moves the rails first. Number of events, or an error. */
static int pass(mpath_share_t *share)
{
    int events = 0, result;

    if (share->num_links > 0) {
        if (share->job->gpus != NULL) {
            mpath_share_gpu_owners_announce(share);
        }
        events = mpath_wire_progress(share->wire);
        if (events < 0) {
            return events;
        }
        for (int i = 0; i < share->num_links; i++) {
            result = mpath_share_link_step(share, &share->links[i]);
            if (result < 0) {
                return result;
            }
            events += result;
        }
    }
    result = node_pass(share);
    return (result < 0) ? result : events + result;
}

/* GPUs of the node read and write each other's buffers: a rank has all only when all others are done. */
static int is_done(const mpath_share_t *share)
{
    return (share->my_consumed == share->num_segments) &&
           ((share->job->gpus == NULL) ||
            (mpath_share_least(share, share->consumed, share->num_local, NULL) >= share->num_segments));
}

static mpath_status_t share_look(void *engine, int *events_p)
{
    if (is_done(engine)) {
        return MPATH_OK;
    }
    *events_p = pass(engine);
    return *events_p < 0 ? (mpath_status_t)*events_p : MPATH_INPROGRESS;
}

static mpath_status_t run(mpath_share_t *share)
{
    static const mpath_wait_ops_t ops = {
        .look = share_look, .check = share_check, .lose_silent = share_lose_silent, .edge = share_edge};

    return mpath_wait(&share->wait, &ops, share);
}

/* A job that settles has lost a rail, or hears that another rank has. */
static int is_given_up(const mpath_share_t *share, mpath_status_t status)
{
    return share->job->settles && (share->wire != NULL) &&
           ((status == MPATH_AGAIN) ||
            ((status == MPATH_ERR_UNREACHABLE) && (share->given_up || (mpath_wire_lost(share->wire) != 0))));
}

/*
 * How far a rail has come: segments, and in steps the turns of the next one that have come. A node whose partner in a turn
 * waits for another one in the turn before is not further behind than that.
 */
static uint64_t link_progress(const mpath_share_t *share, const share_link_t *link)
{
    uint64_t turns = 0;

    if (!share->job->in_steps || (link->delivered == share->num_segments)) {
        return link->delivered * (share->job->in_steps ? PROGRESS_SEGMENT : 1);
    }
    for (int phase = 0; phase < SHARE_PHASES; phase++) {
        for (int i = 0; share_has(share, phase == SHARE_SCATTER ? MPATH_SHARE_REDUCE : MPATH_SHARE_GATHER) &&
                        (i < share->num_turns);
             i++, turns++) {
            if (link->arrived[phase][turn_after(share, phase, i)] <= link->delivered) {
                return link->delivered * PROGRESS_SEGMENT + turns;
            }
        }
    }
    return link->delivered * PROGRESS_SEGMENT + turns;
}

/* The rails of this rank that are furthest behind: the others wait for them. */
static void find_silent(const mpath_share_t *share, mpath_failover_loss_t *loss)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < share->num_links; i++) {
        const share_link_t *link = &share->links[i];
        mpath_nic_set_t nic      = mpath_nic_bit(share->rails[link->rail].nic[share->node]);

        uint64_t progress = link_progress(share, link);

        if (progress < least) {
            least        = progress;
            loss->silent = 0;
        }
        loss->silent |= ((progress == least) && (link->delivered < share->num_segments)) ? nic : 0;
    }
    loss->progress = (least < UINT32_MAX) ? (uint32_t)least : UINT32_MAX;
}

static void note_loss(mpath_share_t *share)
{
    share->loss = (mpath_failover_loss_t){.lost = (share->wire != NULL) ? mpath_wire_lost(share->wire) : 0};
    find_silent(share, &share->loss);
}

/* What is complete on the node is brought to its ranks, so that no buffer has a part of a segment. */
static mpath_status_t copy_rest(mpath_share_t *share)
{
    uint64_t start_ns = mpath_time_ns(), limit_ns = (uint64_t)share->settings->timeout_s * MPATH_NS_PER_S;
    int result = 0;

    while ((result >= 0) && (share->my_copied < share->num_segments) &&
           ((share->my_copied < share->gpu->copy_out.started) || mpath_share_is_delivered(share, share->my_copied))) {
        result = mpath_share_gpu_copy_out(share);
        if ((result == 0) && (mpath_time_ns() - start_ns > limit_ns)) {
            mpath_error("call %u: the GPU of rank %d has not brought segment %llu to its place within %d s; the call "
                        "fails",
                        share->job->call, share->me, (unsigned long long)share->my_copied, share->settings->timeout_s);
            return MPATH_ERR_TIMED_OUT;
        }
        if (result == 0) {
            (void)mpath_idle_wait(&share->wait.idle);
        }
    }
    return (result < 0) ? (mpath_status_t)result : MPATH_OK;
}

mpath_status_t mpath_share_copied(mpath_share_t *share, const mpath_share_job_t *job, uint64_t *segments_p)
{
    mpath_status_t status = MPATH_OK, drained;

    if (job->gpus != NULL) {
        share->job = job;
        status     = copy_rest(share);
        drained    = mpath_share_gpu_drain(share);
        status     = (status == MPATH_OK) ? drained : status;
        mpath_share_gpu_close(share);
        share->job = NULL;
    }
    *segments_p = share->my_copied;
    return status;
}

void mpath_share_loss(const mpath_share_t *share, mpath_failover_loss_t *loss)
{
    *loss = share->loss;
}

static mpath_status_t run_steps(mpath_share_t *share)
{
    mpath_status_t status = begin(share);

    if (status == MPATH_OK) {
        status = run(share);
    }
    if (share->job->gpus != NULL) {
        mpath_share_gpu_owners_end(share);
        share->gpu->in_use = status != MPATH_OK;
        if (share->gpu->in_use && (mpath_share_gpu_drain(share) != MPATH_OK) && is_given_up(share, status)) {
            status = MPATH_ERR_TIMED_OUT; /* what the GPU does later would meet another attempt */
        }
    }
    note_loss(share);
    return status;
}

void mpath_share_abandon(mpath_share_t *share, mpath_status_t status)
{
    mpath_team_break(share->team, status);
    if (share->wire != NULL) {
        mpath_wire_abandon(share->wire);
    }
}

mpath_status_t mpath_share_gpus_open(mpath_share_t *share, const mpath_share_job_t *job, uint32_t flags)
{
    mpath_status_t status = share->gpu->cell_written ? MPATH_OK : mpath_share_prepare(share, job);

    return status == MPATH_OK ? mpath_share_gpu_open(share, job, flags) : status;
}

mpath_status_t mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats)
{
    mpath_status_t status = mpath_share_prepare(share, job);

    if (status == MPATH_OK) {
        share->job   = job;
        share->stats = (mpath_share_stats_t){.calls = 1};
        status       = mpath_share_cut_job(share);
    }
    if (status == MPATH_OK) {
        status = run_steps(share);
        if (is_given_up(share, status)) {
            mpath_wire_stop(share->wire);
        } else if (status != MPATH_OK) {
            mpath_share_abandon(share, status);
        } else {
            end(share);
            stats->calls++;
            stats->rail_bytes += share->stats.rail_bytes;
            stats->kernel_bytes += share->stats.kernel_bytes;
            stats->engine_bytes += share->stats.engine_bytes;
        }
    } else if (mpath_status_is_error(status)) {
        mpath_team_break(share->team, status);
    }
    if ((job->gpus != NULL) && ((status == MPATH_OK) || (status == MPATH_DECLINED))) {
        mpath_share_gpu_close(share); /* after a job that is given up, what is complete is still to be copied */
    }
    share->job = NULL;
    return status;
}
