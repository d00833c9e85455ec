/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedule: finds this rank's duties among a plan's flows, cuts them into chunks and sorts them by outlet. */
#include "exec/schedule.h"

#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/* A flow over several hops is cut into at least this many chunks, unless they get smaller than the minimum: a pipeline
 * has to fill before it flows. */
#define PIPELINE_CHUNKS 4
#define PIPELINE_MIN_BYTES 8192u
#define CHUNK_ALIGN 64u
/* No chunk occupies its slowest resource for longer: the last one of a call is waited for at full length. */
#define CHUNK_MAX_NS 2000000u
/* Copy engines take some 10 us from start to end: shorter chunks of device memory fill no pipeline any sooner. */
#define DEVICE_MIN_BYTES 65536u
#define DEVICE_MIN_NS 20000u
#define WORD_BITS 64u

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

static mpath_outlet_kind_t hop_kind(const mpath_path_t *path, int hop)
{
    switch (path->hops[hop].lane) {
    case MPATH_LANE_RAIL:
        return MPATH_OUTLET_RAIL;
    case MPATH_LANE_STAGED:
        return MPATH_OUTLET_STAGED;
    default:
        break;
    }
    if (hop == path->num_hops - 1) {
        return MPATH_OUTLET_LAST;
    }
    return ((path->hops[hop].lane == MPATH_LANE_PEER) && (path->hops[hop + 1].lane == MPATH_LANE_PEER))
               ? MPATH_OUTLET_PASS
               : MPATH_OUTLET_RELAY;
}

static uint64_t hop_limit(const mpath_topo_t *topo, const mpath_path_t *path, int hop,
                          const mpath_chunk_limits_t *limits)
{
    int node = mpath_topo_place(topo, path->hops[hop].from)->node;

    if (path->hops[hop].lane == MPATH_LANE_RAIL) {
        return limits->rail_bytes;
    }
    if (limits->device_ns > 0) {
        return limits->chunk_bytes;
    }
    switch (hop_kind(path, hop)) {
    case MPATH_OUTLET_RELAY:
        return limits->relay_slot_bytes[node];
    default:
        return limits->last_slot_bytes[node];
    }
}

/* What the path's slowest resource carries in `ns`. */
static uint64_t path_bytes_in(const mpath_topo_t *topo, const mpath_path_t *path, uint64_t ns)
{
    uint64_t slowest_bps = UINT64_MAX;

    for (int i = 0; i < path->num_resources; i++) {
        slowest_bps = min_u64(slowest_bps, mpath_topo_resource(topo, (int)path->resources[i])->capacity_bps);
    }
    return slowest_bps / MPATH_NS_PER_MS * ns / (MPATH_NS_PER_S / MPATH_NS_PER_MS);
}

static uint64_t flow_chunk_bytes(const mpath_topo_t *topo, const mpath_path_t *path, uint64_t flow_bytes,
                                 const mpath_chunk_limits_t *limits)
{
    uint64_t limit = min_u64(limits->chunk_bytes, UINT32_MAX);
    uint64_t bytes = path_bytes_in(topo, path, (limits->device_ns > 0) ? limits->device_ns : CHUNK_MAX_NS);
    uint64_t least = PIPELINE_MIN_BYTES;

    if (limits->device_ns > 0) {
        least = path_bytes_in(topo, path, DEVICE_MIN_NS);
        least = (least > DEVICE_MIN_BYTES) ? least / CHUNK_ALIGN * CHUNK_ALIGN : DEVICE_MIN_BYTES;
    }
    for (int hop = 0; hop < path->num_hops; hop++) {
        limit = min_u64(limit, hop_limit(topo, path, hop, limits));
    }
    if (path->num_hops > 1) {
        bytes = min_u64(bytes, flow_bytes / PIPELINE_CHUNKS);
    }
    bytes = (bytes < least) ? least : (bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
    return min_u64(limit, bytes);
}

static int crosses_rail(const mpath_path_t *path)
{
    int crosses = 0;

    for (int hop = 0; hop < path->num_hops; hop++) {
        crosses = crosses || (path->hops[hop].lane == MPATH_LANE_RAIL);
    }
    return crosses;
}

/*
 * Between GPUs a rail is slower than the hops before and behind it: it stands still while these carry the first and the
 * last chunk, which therefore are equal and about half as long as the others.
 */
static void cut_flow(const mpath_path_t *path, uint64_t chunk_bytes, int on_gpus, mpath_duty_t *duty)
{
    duty->chunk_bytes = (uint32_t)chunk_bytes;
    duty->num_chunks  = (uint32_t)((duty->bytes + chunk_bytes - 1) / chunk_bytes);
    if (on_gpus && (path->num_hops > 1) && crosses_rail(path) && (duty->num_chunks >= PIPELINE_CHUNKS)) {
        duty->num_chunks = (uint32_t)((duty->bytes + chunk_bytes / 2) / chunk_bytes) + 1;
        duty->cut        = (uint32_t)((duty->num_chunks * chunk_bytes - duty->bytes) / 2 / CHUNK_ALIGN * CHUNK_ALIGN);
    }
}

/* Whether the ranks have the lane of a hop. Device memory reaches a GPU that passes it on by lane peer or rail only. */
static int has_lane(const mpath_path_t *path, int hop, int on_gpus)
{
    int lane = path->hops[hop].lane;

    if (!on_gpus) {
        return (lane == MPATH_LANE_SHM) || (lane == MPATH_LANE_RAIL);
    }
    return (lane == MPATH_LANE_PEER) || (lane == MPATH_LANE_RAIL) ||
           ((lane == MPATH_LANE_STAGED) && (path->num_hops == 1));
}

/* What a rank can pass on without a buffer of its own: out of shared memory, or into it. GPUs have slots for all. */
static mpath_status_t check_path(const mpath_path_t *path, const mpath_flow_t *flow, int on_gpus)
{
    for (int hop = 0; hop < path->num_hops; hop++) {
        int lane = path->hops[hop].lane;

        if (!has_lane(path, hop, on_gpus)) {
            mpath_error("path %d from rank %d to rank %d needs a lane that this build does not have", flow->path,
                        flow->source, flow->destination);
            return MPATH_ERR_UNSUPPORTED;
        }
        if ((hop > 0) && (lane == MPATH_LANE_RAIL) && (path->hops[hop - 1].lane == MPATH_LANE_RAIL)) {
            mpath_error(
                "path %d from rank %d to rank %d passes from rail to rail in rank %d, which has no slots for it",
                flow->path, flow->source, flow->destination, path->hops[hop].from);
            return MPATH_ERR_UNSUPPORTED;
        }
    }
    return MPATH_OK;
}

/* The outlet of a hop; made when it is new. Its index, or negative. */
static int64_t find_outlet(mpath_schedule_t *schedule, mpath_outlet_kind_t kind, const mpath_hop_t *hop)
{
    mpath_outlet_t *outlets;

    for (size_t i = 0; i < schedule->num_outlets; i++) {
        const mpath_outlet_t *outlet = &schedule->outlets[i];

        if ((outlet->kind == kind) && (outlet->rank == hop->to) && (outlet->nic == hop->nic_from) &&
            (outlet->nic_to == hop->nic_to)) {
            return (int64_t)i;
        }
    }
    outlets = realloc(schedule->outlets, (schedule->num_outlets + 1) * sizeof(*outlets));
    if (outlets == NULL) {
        return -1;
    }
    schedule->outlets              = outlets;
    outlets[schedule->num_outlets] = (mpath_outlet_t){
        .kind = kind, .rank = hop->to, .nic = hop->nic_from, .nic_to = hop->nic_to};
    return (int64_t)schedule->num_outlets++;
}

static mpath_status_t duty_set_out(mpath_schedule_t *schedule, const mpath_path_t *path, int hop, mpath_duty_t *duty)
{
    int64_t outlet = find_outlet(schedule, hop_kind(path, hop), &path->hops[hop]);

    if (outlet < 0) {
        return MPATH_ERR_NO_MEMORY;
    }
    duty->hop_out = (int8_t)hop;
    duty->out     = path->hops[hop];
    duty->outlet  = (uint32_t)outlet;
    if (duty->out.lane == MPATH_LANE_RAIL) {
        schedule->rails |= 1u << duty->out.nic_from;
    }
    return MPATH_OK;
}

static void duty_set_in(mpath_schedule_t *schedule, const mpath_path_t *path, int hop, mpath_duty_t *duty)
{
    duty->hop_in = (int8_t)hop;
    duty->in     = path->hops[hop];
    if (duty->in.lane == MPATH_LANE_RAIL) {
        schedule->rails |= 1u << duty->in.nic_to;
    }
}

static mpath_duty_t *new_duty(mpath_schedule_t *schedule, size_t *room_p)
{
    mpath_duty_t *duties;

    if (schedule->num_duties == *room_p) {
        size_t room = (*room_p == 0) ? 64 : 2 * *room_p;

        duties = realloc(schedule->duties, room * sizeof(*duties));
        if (duties == NULL) {
            return NULL;
        }
        schedule->duties = duties;
        *room_p          = room;
    }
    return &schedule->duties[schedule->num_duties++];
}

/* Adds up what the duty makes this rank wait for. */
static void count_duty(mpath_schedule_t *schedule, mpath_duty_t *duty)
{
    if (duty->hop_in == MPATH_DUTY_NO_HOP) {
        schedule->send_bytes += duty->bytes;
        return;
    }
    duty->seen_at = schedule->seen_words * WORD_BITS;
    schedule->seen_words += (duty->num_chunks + WORD_BITS - 1) / WORD_BITS;
    if (duty->hop_out == MPATH_DUTY_NO_HOP) {
        schedule->receive_bytes += duty->bytes;
    } else {
        schedule->forward_bytes += duty->bytes;
    }
}

static mpath_status_t add_flow(mpath_schedule_t *schedule, const mpath_topo_t *topo, int rank, const mpath_flow_t *flow,
                               uint32_t index, const mpath_chunk_limits_t *limits, size_t *room_p)
{
    mpath_duty_t *duty = NULL;
    mpath_path_t path;
    mpath_status_t status;

    mpath_topo_path(topo, flow->source, flow->destination, flow->path, &path);
    for (int hop = 0; hop < path.num_hops; hop++) {
        int sends = path.hops[hop].from == rank, receives = path.hops[hop].to == rank;

        if (!sends && !receives) {
            continue;
        }
        if (duty == NULL) {
            status = check_path(&path, flow, limits->device_ns > 0);
            if (status != MPATH_OK) {
                return status;
            }
            duty = new_duty(schedule, room_p);
            if (duty == NULL) {
                return MPATH_ERR_NO_MEMORY;
            }
            *duty = (mpath_duty_t){.flow        = index,
                                   .source      = flow->source,
                                   .destination = flow->destination,
                                   .hop_in      = MPATH_DUTY_NO_HOP,
                                   .hop_out     = MPATH_DUTY_NO_HOP,
                                   .offset      = flow->offset,
                                   .bytes       = flow->bytes};
            cut_flow(&path, flow_chunk_bytes(topo, &path, flow->bytes, limits), limits->device_ns > 0, duty);
        }
        if (receives) {
            duty_set_in(schedule, &path, hop, duty);
        } else if (duty_set_out(schedule, &path, hop, duty) != MPATH_OK) {
            return MPATH_ERR_NO_MEMORY;
        }
    }
    if (duty != NULL) {
        if ((limits->device_ns > 0) && (duty->hop_out != MPATH_DUTY_NO_HOP)) {
            duty->ahead = (int8_t)(path.num_hops - 1 - duty->hop_out);
        }
        count_duty(schedule, duty);
    }
    return MPATH_OK;
}

mpath_status_t mpath_schedule_create(const mpath_topo_t *topo, int rank, const mpath_plan_t *plan,
                                     const mpath_chunk_limits_t *limits, mpath_schedule_t **schedule_p)
{
    mpath_schedule_t *schedule = calloc(1, sizeof(*schedule));
    mpath_status_t status      = MPATH_ERR_NO_MEMORY;
    size_t num_flows, room = 0;
    const mpath_flow_t *flows = mpath_plan_flows(plan, &num_flows);

    if (schedule == NULL) {
        goto err;
    }
    for (size_t i = 0; i < num_flows; i++) {
        status = add_flow(schedule, topo, rank, &flows[i], (uint32_t)i, limits, &room);
        if (status != MPATH_OK) {
            goto err_destroy;
        }
    }
    status         = MPATH_ERR_NO_MEMORY;
    schedule->seen = calloc(schedule->seen_words + 1, sizeof(*schedule->seen));
    if ((schedule->seen == NULL) || (mpath_schedule_sort(schedule, topo, rank, limits->device_ns > 0) != MPATH_OK)) {
        goto err_destroy;
    }
    *schedule_p = schedule;
    return MPATH_OK;

err_destroy:
    mpath_schedule_destroy(schedule);
err:
    if (status == MPATH_ERR_NO_MEMORY) {
        mpath_error("no memory for the schedule of %zu flows", num_flows);
    }
    return status;
}

void mpath_schedule_destroy(mpath_schedule_t *schedule)
{
    if (schedule != NULL) {
        free(schedule->duties);
        free(schedule->outlets);
        free(schedule->own);
        free(schedule->seen);
        free(schedule);
    }
}

void mpath_schedule_reset(mpath_schedule_t *schedule)
{
    for (size_t i = 0; i < schedule->num_duties; i++) {
        schedule->duties[i].handed_chunks  = 0;
        schedule->duties[i].arrived_chunks = 0;
        schedule->duties[i].done_bytes     = 0;
    }
    memset(schedule->seen, 0, schedule->seen_words * sizeof(*schedule->seen));
}

mpath_duty_t *mpath_schedule_find(mpath_schedule_t *schedule, uint32_t flow)
{
    size_t low = 0, high = schedule->num_duties;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (schedule->duties[middle].flow < flow) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return ((low < schedule->num_duties) && (schedule->duties[low].flow == flow)) ? &schedule->duties[low] : NULL;
}

void mpath_duty_chunk(const mpath_duty_t *duty, uint32_t index, uint64_t *offset_p, uint32_t *bytes_p)
{
    uint64_t start = (index == 0) ? 0 : (uint64_t)index * duty->chunk_bytes - duty->cut;
    uint64_t end   = min_u64(((uint64_t)index + 1) * duty->chunk_bytes - duty->cut, duty->bytes);

    *offset_p = duty->offset + start;
    *bytes_p  = (uint32_t)(end - start);
}

mpath_status_t mpath_schedule_accept(mpath_schedule_t *schedule, mpath_duty_t *duty, const mpath_chunk_t *chunk)
{
    uint64_t offset, bit, mask;
    uint32_t index, bytes;

    if ((duty->hop_in == MPATH_DUTY_NO_HOP) || (chunk->hop != (uint32_t)duty->hop_in) ||
        (chunk->offset < duty->offset) || (chunk->offset - duty->offset >= duty->bytes)) {
        return MPATH_ERR_PARAM;
    }
    index = mpath_duty_index(duty, chunk->offset);
    mpath_duty_chunk(duty, index, &offset, &bytes);
    bit  = duty->seen_at + index;
    mask = 1ull << (bit % WORD_BITS);
    if ((chunk->offset != offset) || (chunk->bytes != bytes) || ((schedule->seen[bit / WORD_BITS] & mask) != 0)) {
        return MPATH_ERR_PARAM;
    }
    schedule->seen[bit / WORD_BITS] |= mask;
    duty->arrived_chunks++;
    return MPATH_OK;
}

/* All flows of an outlet end together when the next chunk comes from the one with the smallest share handed over; the
 * middle of the chunk decides, so that flows of different sizes do not start in step. */
static int is_behind(const mpath_duty_t *a, const mpath_duty_t *b)
{
    if (a->ahead != b->ahead) {
        return a->ahead > b->ahead;
    }
    return (2ull * a->handed_chunks + 1) * b->num_chunks < (2ull * b->handed_chunks + 1) * a->num_chunks;
}

mpath_duty_t *mpath_schedule_next_own(mpath_schedule_t *schedule, const mpath_outlet_t *outlet, int most_ahead)
{
    mpath_duty_t *next = NULL;

    for (uint32_t i = 0; i < outlet->num_own; i++) {
        mpath_duty_t *duty = &schedule->duties[schedule->own[outlet->own + i]];

        if ((duty->handed_chunks < duty->num_chunks) && (duty->ahead <= most_ahead) &&
            ((next == NULL) || is_behind(duty, next))) {
            next = duty;
        }
    }
    return next;
}
