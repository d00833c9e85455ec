/* SPDX-License-Identifier: BSD-3-Clause */
/* Time model: Z of every resource, with the time until its first chunk arrives and that behind its last one. */
#include "plan/time_model.h"

#include "plan/fixed.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

#define CHUNK_MAX_NS 2000000u
#define PIPELINE_CHUNKS 4
#define PIPELINE_MIN_BYTES 8192u
#define CHUNK_ALIGN 64u
/* Timings in memory at a time. */
#define MAX_TIMINGS 65536u

/* What is known of a resource, all in nanoseconds but the bytes. */
typedef struct crossing {
    uint64_t head_ns, tail_ns;
    uint64_t last_bytes; /* last chunks of flows that reach it over an earlier hop */
} crossing_t;

/* One flow's path, and what its chunks take there. */
typedef struct timing {
    mpath_path_t path;
    uint64_t chunk_bytes;
    uint64_t chunk_ns[MPATH_PATH_MAX_HOPS], latency_ns[MPATH_PATH_MAX_HOPS];
    uint64_t slowest_bps; /* UINT64_MAX: no resource */
} timing_t;

void mpath_time_params_init(mpath_time_params_t *params)
{
    params->chunk_bytes = 128 * 1024;
    params->hop_ns      = 500;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? b : a;
}

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return (a + b < a) ? UINT64_MAX : a + b;
}

/* Rounded up; 0 for a hop without resources. Long division only where the product is long. */
static uint64_t bytes_ns(uint64_t bytes, uint64_t rate_bps)
{
    if (rate_bps == UINT64_MAX) {
        return 0;
    }
    if (bytes >> 34) {
        return mpath_ratio_ns_ceil((mpath_ratio_t){.num = bytes, .den = rate_bps});
    }
    return (bytes * MPATH_NS_PER_S + rate_bps - 1) / rate_bps; /* rates are below 2^44 */
}

static int hop_end(const mpath_path_t *path, int hop)
{
    return (hop + 1 < path->num_hops) ? path->hops[hop + 1].first_resource : path->num_resources;
}

void mpath_time_hop(const mpath_topo_t *topo, const mpath_path_t *path, int hop, const mpath_time_params_t *params,
                    uint64_t *rate_bps_p, uint64_t *latency_ns_p)
{
    uint64_t rate = UINT64_MAX, latency = params->hop_ns;

    for (int i = path->hops[hop].first_resource; i < hop_end(path, hop); i++) {
        const mpath_resource_t resource = mpath_topo_resource(topo, (int)path->resources[i]);

        rate = min_u64(rate, resource.capacity_bps);
        latency += resource.latency_ns;
    }
    *rate_bps_p   = rate;
    *latency_ns_p = latency;
}

static uint64_t slowest_bps(const mpath_topo_t *topo, const mpath_path_t *path)
{
    uint64_t slowest = UINT64_MAX;

    for (int i = 0; i < path->num_resources; i++) {
        slowest = min_u64(slowest, mpath_topo_resource(topo, (int)path->resources[i]).capacity_bps);
    }
    return slowest;
}

uint64_t mpath_time_chunk_bytes(const mpath_topo_t *topo, const mpath_path_t *path, uint64_t flow_bytes,
                                const mpath_time_params_t *params)
{
    uint64_t slowest = slowest_bps(topo, path), bytes = UINT64_MAX;

    if (slowest != UINT64_MAX) {
        bytes = slowest / MPATH_NS_PER_MS * CHUNK_MAX_NS / (MPATH_NS_PER_S / MPATH_NS_PER_MS);
    }
    if (path->num_hops > 1) {
        bytes = min_u64(bytes, flow_bytes / PIPELINE_CHUNKS);
    }
    bytes = max_u64(min_u64(bytes, params->chunk_bytes), PIPELINE_MIN_BYTES);
    bytes = (bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
    return min_u64(min_u64(bytes, max_u64(params->chunk_bytes, 1)), flow_bytes);
}

uint64_t mpath_time_fill_ns(const mpath_topo_t *topo, const mpath_path_t *path, uint64_t flow_bytes,
                            const mpath_time_params_t *params)
{
    uint64_t chunk = path->num_hops > 1 ? mpath_time_chunk_bytes(topo, path, flow_bytes, params) : 0, ns = 0;

    for (int hop = 0; hop < path->num_hops; hop++) {
        uint64_t rate, latency;

        mpath_time_hop(topo, path, hop, params, &rate, &latency);
        ns = add_capped(ns, latency + (chunk > 0 ? bytes_ns(chunk, rate) : 0));
    }
    return ns;
}

/* timing->path is set. */
static void timing_init(timing_t *timing, const mpath_topo_t *topo, uint64_t flow_bytes,
                        const mpath_time_params_t *params)
{
    timing->chunk_bytes = mpath_time_chunk_bytes(topo, &timing->path, flow_bytes, params);
    timing->slowest_bps = UINT64_MAX;
    for (int hop = 0; hop < timing->path.num_hops; hop++) {
        uint64_t rate;

        mpath_time_hop(topo, &timing->path, hop, params, &rate, &timing->latency_ns[hop]);
        timing->chunk_ns[hop] = bytes_ns(timing->chunk_bytes, rate);
        timing->slowest_bps   = min_u64(timing->slowest_bps, rate);
    }
}

/* As if nothing else moved. */
static uint64_t alone_ns(const timing_t *timing, uint64_t bytes)
{
    uint64_t ns = bytes_ns(bytes - timing->chunk_bytes, timing->slowest_bps);

    for (int hop = 0; hop < timing->path.num_hops; hop++) {
        ns = add_capped(ns, timing->chunk_ns[hop] + timing->latency_ns[hop]);
    }
    return ns;
}

static void count_last_chunks(const timing_t *timing, crossing_t *crossings)
{
    for (int i = timing->path.hops[1].first_resource; i < timing->path.num_resources; i++) {
        crossings[timing->path.resources[i]].last_bytes += timing->chunk_bytes;
    }
}

/* A flow of one hop: nothing comes before its resources, and behind them only the latency. */
static void add_single_hop(const mpath_path_t *path, uint32_t hop_ns, crossing_t *crossings)
{
    for (int i = 0; i < path->num_resources; i++) {
        crossing_t *crossing = &crossings[path->resources[i]];

        crossing->head_ns = 0;
        crossing->tail_ns = max_u64(crossing->tail_ns, (uint64_t)path->latency_ns + hop_ns);
    }
}

/* The last chunk's time on a hop that it shares with the last chunks of others. */
static uint64_t last_chunk_ns(const timing_t *timing, int hop, const mpath_topo_t *topo, const crossing_t *crossings)
{
    uint64_t ns = timing->chunk_ns[hop];

    for (int i = timing->path.hops[hop].first_resource; i < hop_end(&timing->path, hop); i++) {
        uint32_t resource = timing->path.resources[i];

        ns = max_u64(ns,
                     bytes_ns(crossings[resource].last_bytes, mpath_topo_resource(topo, (int)resource).capacity_bps));
    }
    return ns;
}

static void add_heads_and_tails(const timing_t *timing, const mpath_topo_t *topo, crossing_t *crossings)
{
    uint64_t head = 0, tail;

    for (int hop = 0; hop < timing->path.num_hops; hop++) {
        for (int i = timing->path.hops[hop].first_resource; i < hop_end(&timing->path, hop); i++) {
            crossing_t *crossing = &crossings[timing->path.resources[i]];

            crossing->head_ns = min_u64(crossing->head_ns, head);
        }
        head = add_capped(head, timing->chunk_ns[hop] + timing->latency_ns[hop]);
    }
    tail = 0;
    for (int hop = timing->path.num_hops - 1; hop >= 0; hop--) {
        tail = add_capped(tail, timing->latency_ns[hop]);
        for (int i = timing->path.hops[hop].first_resource; i < hop_end(&timing->path, hop); i++) {
            crossing_t *crossing = &crossings[timing->path.resources[i]];

            crossing->tail_ns = max_u64(crossing->tail_ns, tail);
        }
        tail = add_capped(tail, (hop > 0) ? last_chunk_ns(timing, hop, topo, crossings) : 0);
    }
}

/*
 * What crosses each resource first and last. Sets *longest_ns to the time of the slowest flow over several hops, alone.
 * The timings of those flows stay from the first pass for the second one, up to `capacity` of them; `timings` holds one
 * more.
 */
static void survey(const mpath_topo_t *topo, const mpath_plan_t *plan, const mpath_time_params_t *params,
                   timing_t *timings, size_t capacity, crossing_t *crossings, uint64_t *longest_ns)
{
    size_t num_flows, num_timings = 0, next = 0;
    const mpath_flow_t *flows = mpath_plan_flows(plan, &num_flows);

    for (size_t i = 0; i < num_flows; i++) {
        timing_t *timing = &timings[num_timings];

        if (num_timings < capacity) {
            next = i + 1;
        }
        mpath_topo_path(topo, flows[i].source, flows[i].destination, flows[i].path, &timing->path);
        if (timing->path.num_hops == 1) {
            add_single_hop(&timing->path, params->hop_ns, crossings);
            /* without resources nothing else counts its time */
            *longest_ns = max_u64(*longest_ns, (uint64_t)timing->path.latency_ns + params->hop_ns);
            continue;
        }
        timing_init(timing, topo, flows[i].bytes, params);
        count_last_chunks(timing, crossings);
        *longest_ns = max_u64(*longest_ns, alone_ns(timing, flows[i].bytes));
        num_timings += (num_timings < capacity) ? 1 : 0;
    }
    for (size_t i = 0; i < num_timings; i++) {
        add_heads_and_tails(&timings[i], topo, crossings);
    }
    for (size_t i = next; i < num_flows; i++) {
        timing_t *timing = &timings[capacity];

        mpath_topo_path(topo, flows[i].source, flows[i].destination, flows[i].path, &timing->path);
        if (timing->path.num_hops > 1) {
            timing_init(timing, topo, flows[i].bytes, params);
            add_heads_and_tails(timing, topo, crossings);
        }
    }
}

mpath_status_t mpath_time_predict(const mpath_topo_t *topo, const mpath_plan_t *plan, const mpath_time_params_t *params,
                                  uint64_t *predicted_ns_p)
{
    int num_resources     = mpath_topo_num_resources(topo);
    const uint64_t *loads = mpath_plan_loads(plan);
    uint64_t longest_ns   = 0;
    mpath_time_params_t used;
    crossing_t *crossings;
    size_t num_flows, capacity;
    timing_t *timings;

    mpath_time_params_init(&used);
    used = (params != NULL) ? *params : used;
    mpath_plan_flows(plan, &num_flows);
    capacity  = (num_flows < MAX_TIMINGS) ? num_flows : MAX_TIMINGS;
    crossings = calloc((size_t)num_resources + 1, sizeof(*crossings));
    timings   = malloc((capacity + 1) * sizeof(*timings)); /* touched only as far as flows have several hops */
    if ((crossings == NULL) || (timings == NULL)) {
        free(crossings);
        free(timings);
        mpath_error("plan: no memory to predict the time of %zu flows; the call fails", num_flows);
        return MPATH_ERR_NO_MEMORY;
    }
    for (int r = 0; r < num_resources; r++) {
        crossings[r].head_ns = UINT64_MAX;
    }
    survey(topo, plan, &used, timings, capacity, crossings, &longest_ns);
    for (int r = 0; r < num_resources; r++) {
        if (loads[r] > 0) {
            uint64_t ns = bytes_ns(loads[r], mpath_topo_resource(topo, r).capacity_bps);

            longest_ns = max_u64(longest_ns, add_capped(ns, add_capped(crossings[r].head_ns, crossings[r].tail_ns)));
        }
    }
    free(timings);
    free(crossings);
    *predicted_ns_p = longest_ns;
    return MPATH_OK;
}
