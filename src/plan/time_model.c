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
/* Ways in memory at a time. */
#define MAX_KEPT 65536u

/* What is known of a resource, all in nanoseconds but the bytes. */
typedef struct crossing {
    uint64_t head_ns, tail_ns;
    uint64_t last_bytes; /* last chunks of flows that reach it over an earlier hop */
} crossing_t;

/* One flow's way. */
typedef struct way {
    mpath_path_t path;
    uint64_t chunk_bytes;
    uint64_t chunk_ns[MPATH_PATH_MAX_HOPS], latency_ns[MPATH_PATH_MAX_HOPS];
    uint64_t slowest_bps; /* UINT64_MAX: no resource */
} way_t;

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
        const mpath_resource_t *resource = mpath_topo_resource(topo, (int)path->resources[i]);

        rate = min_u64(rate, resource->capacity_bps);
        latency += resource->latency_ns;
    }
    *rate_bps_p   = rate;
    *latency_ns_p = latency;
}

static uint64_t slowest_bps(const mpath_topo_t *topo, const mpath_path_t *path)
{
    uint64_t slowest = UINT64_MAX;

    for (int i = 0; i < path->num_resources; i++) {
        slowest = min_u64(slowest, mpath_topo_resource(topo, (int)path->resources[i])->capacity_bps);
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

/* way->path is there. */
static void way_init(way_t *way, const mpath_topo_t *topo, uint64_t flow_bytes, const mpath_time_params_t *params)
{
    way->chunk_bytes = mpath_time_chunk_bytes(topo, &way->path, flow_bytes, params);
    way->slowest_bps = UINT64_MAX;
    for (int hop = 0; hop < way->path.num_hops; hop++) {
        uint64_t rate;

        mpath_time_hop(topo, &way->path, hop, params, &rate, &way->latency_ns[hop]);
        way->chunk_ns[hop] = bytes_ns(way->chunk_bytes, rate);
        way->slowest_bps   = min_u64(way->slowest_bps, rate);
    }
}

/* As if nothing else moved. */
static uint64_t alone_ns(const way_t *way, uint64_t bytes)
{
    uint64_t ns = bytes_ns(bytes - way->chunk_bytes, way->slowest_bps);

    for (int hop = 0; hop < way->path.num_hops; hop++) {
        ns = add_capped(ns, way->chunk_ns[hop] + way->latency_ns[hop]);
    }
    return ns;
}

static void count_last_chunks(const way_t *way, crossing_t *crossings)
{
    for (int i = way->path.hops[1].first_resource; i < way->path.num_resources; i++) {
        crossings[way->path.resources[i]].last_bytes += way->chunk_bytes;
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
static uint64_t last_chunk_ns(const way_t *way, int hop, const mpath_topo_t *topo, const crossing_t *crossings)
{
    uint64_t ns = way->chunk_ns[hop];

    for (int i = way->path.hops[hop].first_resource; i < hop_end(&way->path, hop); i++) {
        uint32_t resource = way->path.resources[i];

        ns = max_u64(ns,
                     bytes_ns(crossings[resource].last_bytes, mpath_topo_resource(topo, (int)resource)->capacity_bps));
    }
    return ns;
}

static void add_heads_and_tails(const way_t *way, const mpath_topo_t *topo, crossing_t *crossings)
{
    uint64_t head = 0, tail;

    for (int hop = 0; hop < way->path.num_hops; hop++) {
        for (int i = way->path.hops[hop].first_resource; i < hop_end(&way->path, hop); i++) {
            crossing_t *crossing = &crossings[way->path.resources[i]];

            crossing->head_ns = min_u64(crossing->head_ns, head);
        }
        head = add_capped(head, way->chunk_ns[hop] + way->latency_ns[hop]);
    }
    tail = 0;
    for (int hop = way->path.num_hops - 1; hop >= 0; hop--) {
        tail = add_capped(tail, way->latency_ns[hop]);
        for (int i = way->path.hops[hop].first_resource; i < hop_end(&way->path, hop); i++) {
            crossing_t *crossing = &crossings[way->path.resources[i]];

            crossing->tail_ns = max_u64(crossing->tail_ns, tail);
        }
        tail = add_capped(tail, (hop > 0) ? last_chunk_ns(way, hop, topo, crossings) : 0);
    }
}

/*
 * What crosses each resource first and last. Sets *longest_ns to the time of the slowest flow over several hops, alone.
 * The ways of those flows are kept from the first pass for the second one, as many as `ways` has room for.
 */
static void survey(const mpath_topo_t *topo, const mpath_plan_t *plan, const mpath_time_params_t *params, way_t *ways,
                   size_t room, crossing_t *crossings, uint64_t *longest_ns)
{
    size_t num_flows, num_ways = 0, next = 0;
    const mpath_flow_t *flows = mpath_plan_flows(plan, &num_flows);

    for (size_t i = 0; i < num_flows; i++) {
        way_t *way = &ways[num_ways];

        if (num_ways < room) {
            next = i + 1;
        }
        mpath_topo_path(topo, flows[i].source, flows[i].destination, flows[i].path, &way->path);
        if (way->path.num_hops == 1) {
            add_single_hop(&way->path, params->hop_ns, crossings);
            /* without resources nothing else counts its time */
            *longest_ns = max_u64(*longest_ns, (uint64_t)way->path.latency_ns + params->hop_ns);
            continue;
        }
        way_init(way, topo, flows[i].bytes, params);
        count_last_chunks(way, crossings);
        *longest_ns = max_u64(*longest_ns, alone_ns(way, flows[i].bytes));
        num_ways += (num_ways < room) ? 1 : 0;
    }
    for (size_t i = 0; i < num_ways; i++) {
        add_heads_and_tails(&ways[i], topo, crossings);
    }
    for (size_t i = next; i < num_flows; i++) {
        way_t *way = &ways[room];

        mpath_topo_path(topo, flows[i].source, flows[i].destination, flows[i].path, &way->path);
        if (way->path.num_hops > 1) {
            way_init(way, topo, flows[i].bytes, params);
            add_heads_and_tails(way, topo, crossings);
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
    size_t num_flows, room;
    way_t *ways;

    mpath_time_params_init(&used);
    used = (params != NULL) ? *params : used;
    mpath_plan_flows(plan, &num_flows);
    room      = (num_flows < MAX_KEPT) ? num_flows : MAX_KEPT;
    crossings = calloc((size_t)num_resources + 1, sizeof(*crossings));
    ways      = malloc((room + 1) * sizeof(*ways)); /* touched only as far as flows have several hops */
    if ((crossings == NULL) || (ways == NULL)) {
        free(crossings);
        free(ways);
        mpath_error("plan: no memory to predict the time of %zu flows; the call fails", num_flows);
        return MPATH_ERR_NO_MEMORY;
    }
    for (int r = 0; r < num_resources; r++) {
        crossings[r].head_ns = UINT64_MAX;
    }
    survey(topo, plan, &used, ways, room, crossings, &longest_ns);
    for (int r = 0; r < num_resources; r++) {
        if (loads[r] > 0) {
            uint64_t ns = bytes_ns(loads[r], mpath_topo_resource(topo, r)->capacity_bps);

            longest_ns = max_u64(longest_ns, add_capped(ns, add_capped(crossings[r].head_ns, crossings[r].tail_ns)));
        }
    }
    free(ways);
    free(crossings);
    *predicted_ns_p = longest_ns;
    return MPATH_OK;
}
