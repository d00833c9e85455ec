/* SPDX-License-Identifier: BSD-3-Clause */
/* Flow-level simulator: stages, max-min fair rates, events. */
#include "tools/plan/simulate.h"

#include "util/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1e9
/* Two levels of filling, or a backlog and nothing, are the same below this fraction. */
#define EPSILON 1e-9

typedef enum stage_state {
    STAGE_WAITS,  /* for its first chunk */
    STAGE_ACTIVE, /* moves bytes, or would if it had any */
    STAGE_DONE
} stage_state_t;

/* One hop of one flow that takes resources. The stages of a flow follow each other. */
typedef struct stage {
    size_t first_resource;
    uint32_t num_resources;
    uint8_t is_first, is_last; /* of its flow */
    uint8_t released;          /* everything has arrived from the stage before */
    uint8_t announced;         /* the next stage knows of the first chunk */
    uint8_t frozen;            /* its rate is settled */
    stage_state_t state;
    double bytes, chunk, weight, latency;
    double sent, rate;
    double wakes_at, released_at; /* seconds, INFINITY: unknown yet */
} stage_t;

typedef struct usage {
    double capacity, left, weight; /* left: of the capacity, after the frozen; weight: of those that still rise */
    size_t first, count;           /* its stages, in by_resource */
} usage_t;

typedef struct simulation {
    const simulate_params_t *params;
    stage_t *stages;
    size_t num_stages;
    uint32_t *resources; /* of the stages */
    size_t num_uses;
    size_t *by_resource; /* the stages of each resource */
    usage_t *usage;
    int num_resources;
    size_t *live; /* stages that are not done, ascending */
    size_t num_live;
    double now, finish, held, peak, grain;
} simulation_t;

void simulate_params_init(simulate_params_t *params)
{
    mpath_time_params_init(&params->time);
    params->share      = SIMULATE_SHARE_BYTES;
    params->depth      = 4;
    params->resolution = 0;
}

/* --- the stages --------------------------------------------------------------------------------------------------- */

static int hop_end(const mpath_path_t *path, int hop)
{
    return (hop + 1 < path->num_hops) ? path->hops[hop + 1].first_resource : path->num_resources;
}

static double add_stage(simulation_t *s, const mpath_topo_t *topo, const mpath_flow_t *flow, const mpath_path_t *path,
                        int hop)
{
    stage_t *stage = &s->stages[s->num_stages++];
    uint64_t rate, latency_ns;

    memset(stage, 0, sizeof(*stage));
    mpath_time_hop(topo, path, hop, &s->params->time, &rate, &latency_ns);
    stage->first_resource = s->num_uses;
    stage->bytes          = (double)flow->bytes;
    stage->chunk          = (double)mpath_time_chunk_bytes(topo, path, flow->bytes, &s->params->time);
    stage->weight         = (s->params->share == SIMULATE_SHARE_BYTES) ? stage->bytes : 1;
    stage->latency        = (double)latency_ns / NS_PER_S;
    stage->wakes_at = stage->released_at = INFINITY;
    for (int i = path->hops[hop].first_resource; i < hop_end(path, hop); i++) {
        s->resources[s->num_uses++] = path->resources[i];
        s->usage[path->resources[i]].count++;
        stage->num_resources++;
    }
    return stage->latency;
}

/*
 * A hop between ranks on one GPU takes no resource, and no time but its latency: it is no stage of its own, unless the
 * flow has no other.
 */
static void add_flow(simulation_t *s, const mpath_topo_t *topo, const mpath_flow_t *flow, const mpath_path_t *path)
{
    stage_t *first = &s->stages[s->num_stages];
    double latency = 0;

    for (int hop = 0; hop < path->num_hops; hop++) {
        double added = add_stage(s, topo, flow, path, hop);

        if ((s->stages[s->num_stages - 1].num_resources == 0) &&
            ((hop + 1 < path->num_hops) || (first != &s->stages[s->num_stages - 1]))) {
            latency += added;
            s->num_stages--;
        }
    }
    first->is_first                      = 1;
    first->released                      = 1;
    first->state                         = STAGE_ACTIVE;
    s->stages[s->num_stages - 1].is_last = 1;
    s->stages[s->num_stages - 1].latency += latency;
}

/* Lists the stages of each resource, once all are counted. */
static void index_resources(simulation_t *s)
{
    size_t first = 0;

    for (int r = 0; r < s->num_resources; r++) {
        s->usage[r].first = first;
        first += s->usage[r].count;
        s->usage[r].count = 0;
    }
    for (size_t i = 0; i < s->num_stages; i++) {
        for (uint32_t k = 0; k < s->stages[i].num_resources; k++) {
            usage_t *usage = &s->usage[s->resources[s->stages[i].first_resource + k]];

            s->by_resource[usage->first + usage->count++] = i;
        }
    }
}

static void simulation_release(simulation_t *s)
{
    free(s->stages);
    free(s->resources);
    free(s->by_resource);
    free(s->usage);
    free(s->live);
}

static mpath_status_t simulation_init(simulation_t *s, const mpath_topo_t *topo, const mpath_plan_t *plan,
                                      const simulate_params_t *params)
{
    size_t num_flows, num_stages = 0, num_uses = 0;
    const mpath_flow_t *flows = mpath_plan_flows(plan, &num_flows);
    mpath_path_t path;

    memset(s, 0, sizeof(*s));
    s->params        = params;
    s->num_resources = mpath_topo_num_resources(topo);
    for (size_t i = 0; i < num_flows; i++) {
        mpath_topo_path(topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        num_stages += (size_t)path.num_hops;
        num_uses += (size_t)path.num_resources;
    }
    s->stages      = calloc(num_stages + 1, sizeof(*s->stages));
    s->live        = calloc(num_stages + 1, sizeof(*s->live));
    s->resources   = calloc(num_uses + 1, sizeof(*s->resources));
    s->by_resource = calloc(num_uses + 1, sizeof(*s->by_resource));
    s->usage       = calloc((size_t)s->num_resources + 1, sizeof(*s->usage));
    if ((s->stages == NULL) || (s->live == NULL) || (s->resources == NULL) || (s->by_resource == NULL) ||
        (s->usage == NULL)) {
        mpath_error("simulator: no memory for %zu flows; nothing is simulated", num_flows);
        simulation_release(s);
        return MPATH_ERR_NO_MEMORY;
    }
    for (int r = 0; r < s->num_resources; r++) {
        s->usage[r].capacity = (double)mpath_topo_resource(topo, r).capacity_bps;
    }
    for (size_t i = 0; i < num_flows; i++) {
        mpath_topo_path(topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        add_flow(s, topo, &flows[i], &path);
    }
    index_resources(s);
    for (size_t i = 0; i < s->num_stages; i++) {
        s->live[s->num_live++] = i;
    }
    s->grain = params->resolution * (double)mpath_plan_z_ns(plan) / NS_PER_S;
    return MPATH_OK;
}

/* --- rates -------------------------------------------------------------------------------------------------------- */

/* Bytes that a stage may send by now. */
static double available(const stage_t *stage)
{
    double behind;

    if (stage->released) {
        return stage->bytes;
    }
    behind = stage[-1].sent - stage->chunk;
    return (behind > 0) ? behind : 0;
}

/* Whether the stage has caught up with the one before it, and moves no faster. */
static int is_coupled(const stage_t *stage)
{
    return !stage->released && (available(stage) - stage->sent <= EPSILON * stage->bytes);
}

static int can_rise(const stage_t *stage)
{
    return (stage->state == STAGE_ACTIVE) && (stage->num_resources > 0);
}

/* Bytes that still fit into the relay behind a stage. */
static double space(const simulation_t *s, const stage_t *stage)
{
    if (stage->is_last || (s->params->depth == 0)) {
        return INFINITY;
    }
    return s->params->depth * stage->chunk - (stage->sent - stage[1].sent);
}

/* Whether the relay behind a stage is full, and the stage moves no faster than the one after it. */
static int is_full(const simulation_t *s, const stage_t *stage)
{
    return space(s, stage) <= EPSILON * stage->bytes;
}

static void freeze_one(simulation_t *s, stage_t *stage, double level)
{
    stage->frozen = 1;
    stage->rate   = stage->weight * level;
    for (uint32_t k = 0; k < stage->num_resources; k++) {
        usage_t *usage = &s->usage[s->resources[stage->first_resource + k]];

        usage->left -= stage->rate;
        usage->weight -= stage->weight;
    }
}

/* Settles a stage at a level, those behind it that have caught up, and those before it whose relays are full. */
static void freeze(simulation_t *s, stage_t *stage, double level)
{
    stage_t *other;

    freeze_one(s, stage, level);
    for (other = stage; !other->is_last && can_rise(other + 1) && !other[1].frozen && is_coupled(other + 1);) {
        freeze_one(s, ++other, level);
    }
    for (other = stage; !other->is_first && can_rise(other - 1) && !other[-1].frozen && is_full(s, other - 1);) {
        freeze_one(s, --other, level);
    }
}

static void start_filling(simulation_t *s)
{
    for (int r = 0; r < s->num_resources; r++) {
        s->usage[r].left   = s->usage[r].capacity;
        s->usage[r].weight = 0;
    }
    for (size_t i = 0; i < s->num_live; i++) {
        stage_t *stage = &s->stages[s->live[i]];

        stage->rate   = 0;
        stage->frozen = !can_rise(stage);
        for (uint32_t k = 0; !stage->frozen && (k < stage->num_resources); k++) {
            s->usage[s->resources[stage->first_resource + k]].weight += stage->weight;
        }
    }
    /* Nothing to send: the last chunk is still under way. Nowhere to send it: the stage after a full relay waits. */
    for (size_t i = 0; i < s->num_live; i++) {
        stage_t *stage = &s->stages[s->live[i]];

        if (!stage->frozen && ((is_coupled(stage) && stage[-1].frozen && (stage[-1].rate == 0)) ||
                               (is_full(s, stage) && !can_rise(stage + 1)))) {
            freeze(s, stage, 0);
        }
    }
}

/* The level at which the first resource is full; INFINITY when none rises any more. */
static double next_level(const simulation_t *s)
{
    double level = INFINITY;

    for (int r = 0; r < s->num_resources; r++) {
        const usage_t *usage = &s->usage[r];

        if (usage->weight > EPSILON && usage->left / usage->weight < level) {
            level = usage->left / usage->weight;
        }
    }
    return (level < 0) ? 0 : level;
}

static void fill(simulation_t *s)
{
    double level;

    start_filling(s);
    while ((level = next_level(s)) < INFINITY) {
        for (int r = 0; r < s->num_resources; r++) {
            usage_t *usage = &s->usage[r];

            if ((usage->weight <= EPSILON) || (usage->left / usage->weight > level * (1 + EPSILON))) {
                continue;
            }
            for (size_t k = 0; k < usage->count; k++) {
                stage_t *stage = &s->stages[s->by_resource[usage->first + k]];

                if (!stage->frozen && can_rise(stage)) {
                    freeze(s, stage, level);
                }
            }
            usage->weight = 0; /* what is left of it is rounding */
        }
    }
}

/* --- events ------------------------------------------------------------------------------------------------------- */

/* When the next thing happens to this stage, from now on, if rates stay. */
static double next_event(const simulation_t *s, const stage_t *stage)
{
    double first = INFINITY, rest;

    if (stage->state == STAGE_WAITS) {
        return stage->wakes_at - s->now;
    }
    if (!stage->released && stage->released_at < INFINITY) {
        first = stage->released_at - s->now;
    }
    if (stage->rate > 0) {
        first = fmin(first, (stage->bytes - stage->sent) / stage->rate);
        if (!stage->announced && !stage->is_last) {
            first = fmin(first, (stage->chunk - stage->sent) / stage->rate);
        }
        if (!stage->is_last && stage->rate > stage[1].rate * (1 + EPSILON)) {
            first = fmin(first, space(s, stage) / (stage->rate - stage[1].rate));
        }
        if (!stage->released && stage->rate > stage[-1].rate * (1 + EPSILON)) {
            rest  = available(stage) - stage->sent;
            first = fmin(first, rest / (stage->rate - stage[-1].rate));
        }
    }
    return first;
}

/* Notes how far a stage is; what it has sent lies with a relay until the next stage sends it. */
static void advance(simulation_t *s, stage_t *stage, double sent)
{
    s->held += (stage->is_last ? 0 : sent - stage->sent) - (stage->is_first ? 0 : sent - stage->sent);
    stage->sent = sent;
}

static void move(simulation_t *s, double seconds)
{
    s->now += seconds;
    for (size_t i = 0; i < s->num_live; i++) {
        stage_t *stage = &s->stages[s->live[i]];
        double sent;

        if (stage->rate > 0) {
            sent = fmin(stage->sent + stage->rate * seconds, available(stage));
            advance(s, stage, (stage->bytes - sent <= EPSILON * stage->bytes) ? stage->bytes : sent);
        }
    }
    s->peak = fmax(s->peak, s->held);
}

/* What follows from where a stage is; a stage without resources takes no time. Nonzero: something changed. */
static int settle(simulation_t *s, stage_t *stage)
{
    int changed = 0;

    if ((stage->state == STAGE_WAITS) && (stage->wakes_at <= s->now * (1 + EPSILON))) {
        stage->state = STAGE_ACTIVE;
        changed      = 1;
    }
    if (!stage->released && (stage->released_at <= s->now * (1 + EPSILON))) {
        stage->released = 1;
        changed         = 1;
    }
    if ((stage->state == STAGE_ACTIVE) && (stage->num_resources == 0) && stage->released) {
        advance(s, stage, stage->bytes);
    }
    if ((stage->state == STAGE_ACTIVE) && !stage->announced && !stage->is_last &&
        (stage->sent >= stage->chunk * (1 - EPSILON))) {
        stage[1].wakes_at = s->now + stage->latency;
        stage->announced  = 1;
        changed           = 1;
    }
    if ((stage->state == STAGE_ACTIVE) && stage->released && (stage->sent >= stage->bytes)) {
        stage->state  = STAGE_DONE;
        stage->rate   = 0;
        stage->frozen = 1;
        changed       = 1;
        if (stage->is_last) {
            s->finish = fmax(s->finish, s->now + stage->latency);
        } else {
            stage[1].released_at = s->now + stage->latency;
        }
    }
    return changed;
}

static void settle_all(simulation_t *s)
{
    int changed = 1;

    while (changed) {
        size_t left = 0;

        changed = 0;
        for (size_t i = 0; i < s->num_live; i++) {
            stage_t *stage = &s->stages[s->live[i]];

            changed |= settle(s, stage);
            if (stage->state != STAGE_DONE) {
                s->live[left++] = s->live[i];
            }
        }
        s->num_live = left;
    }
}

/* Nonzero: time goes on. */
static int step(simulation_t *s)
{
    double seconds = INFINITY;

    settle_all(s);
    if (s->num_live == 0) {
        return 0;
    }
    fill(s);
    for (size_t i = 0; i < s->num_live; i++) {
        seconds = fmin(seconds, next_event(s, &s->stages[s->live[i]]));
    }
    if (seconds == INFINITY) {
        return 0;
    }
    move(s, fmax(fmax(seconds, s->grain), 0));
    return 1;
}

mpath_status_t simulate_plan(const mpath_topo_t *topo, const mpath_plan_t *plan, const simulate_params_t *params,
                             simulate_result_t *result)
{
    mpath_status_t status;
    size_t num_flows;
    simulation_t s;

    mpath_plan_flows(plan, &num_flows);
    if (num_flows > SIMULATE_MAX_FLOWS) {
        mpath_error("simulator: %zu flows would take too long, %u at most; nothing is simulated", num_flows,
                    SIMULATE_MAX_FLOWS);
        return MPATH_ERR_UNSUPPORTED;
    }
    status = simulation_init(&s, topo, plan, params);
    if (status != MPATH_OK) {
        return status;
    }
    memset(result, 0, sizeof(*result));
    while (step(&s)) {
    }
    status = (s.num_live == 0) ? MPATH_OK : MPATH_ERR_INTERNAL;
    if (status != MPATH_OK) {
        mpath_error("simulator: %zu hops never get their bytes; nothing is simulated", s.num_live);
    } else {
        result->seconds    = s.finish;
        result->peak_bytes = (uint64_t)s.peak;
    }
    simulation_release(&s);
    return status;
}
