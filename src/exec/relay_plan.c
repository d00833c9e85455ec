/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, what follows from a plan: this rank's duties, the size of chunks and slots, and the receive buffers that it writes to.
 * All of it stays while plan and memory do. Opening a buffer may fail on one rank, so after a change all tell how it went.
 */
#include "exec/relay_private.h"

#include "exec/relay_rail.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

#define CHUNK_COST_NS 8000u /* of the host's time, for a chunk at a hop */
#define CHUNK_LEAST_NS 20000u
#define CHUNK_MOST_NS 250000u
#define SLOT_GRAIN 65536u
#define CHUNK_WITHOUT_SLOTS (4u << 20)
#define SLOTS_LEAST 8u /* of a class: some mates, two chunks each */

static uint64_t root(uint64_t value)
{
    uint64_t low = 0, high = UINT32_MAX;

    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;

        if (middle * middle <= value) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/*
 * A pipeline of k chunks takes 1 + (hops - 1) / k times as long as its slowest hop, and k times what a chunk costs the host:
 * least at the root of the product of the two.
 */
static uint64_t chunk_ns(const mpath_plan_t *plan)
{
    uint64_t z_ns = mpath_plan_z_ns(plan), ns = root((z_ns < UINT64_MAX / CHUNK_COST_NS) ? z_ns * CHUNK_COST_NS : 0);

    ns = (ns < CHUNK_LEAST_NS) ? CHUNK_LEAST_NS : ns;
    return (ns > CHUNK_MOST_NS) ? CHUNK_MOST_NS : ns;
}

/* Slots are as large as chunks of that length at the fastest link of GPUs, if there is room for enough of them. */
static void size_slots(mpath_relay_t *relay, uint64_t ns)
{
    uint64_t half = relay->pool_bytes / 2, fastest_bps = 0, bytes;

    for (int i = 0; i < mpath_topo_num_resources(relay->topo); i++) {
        const mpath_resource_t *resource = mpath_topo_resource(relay->topo, i);

        if (((resource->kind == MPATH_RESOURCE_NVLINK) || (resource->kind == MPATH_RESOURCE_GPU_EGRESS)) &&
            (resource->capacity_bps > fastest_bps)) {
            fastest_bps = resource->capacity_bps;
        }
    }
    bytes = fastest_bps / MPATH_NS_PER_MS * ns / (MPATH_NS_PER_S / MPATH_NS_PER_MS);
    bytes = (bytes > half / SLOTS_LEAST) ? half / SLOTS_LEAST : bytes;
    bytes = bytes / SLOT_GRAIN * SLOT_GRAIN;
    bytes = (bytes < SLOT_GRAIN) ? SLOT_GRAIN : bytes;

    if (half == 0) { /* nobody passes anything on: no slot is ever taken */
        bytes = CHUNK_WITHOUT_SLOTS;
    }
    relay->slot_bytes = (uint32_t)bytes;
    relay->slots      = (int)((half / bytes < MPATH_RELAY_MAX_SLOTS) ? half / bytes : MPATH_RELAY_MAX_SLOTS);
}

void mpath_relay_close_buffers(mpath_relay_t *relay)
{
    for (int rank = 0; rank < relay->size; rank++) {
        if (relay->buffers[rank] != NULL) {
            mpath_import_put(relay->buffers[rank]);
            relay->buffers[rank] = NULL;
        }
    }
}

void mpath_relay_forget_plan(mpath_relay_t *relay)
{
    if (relay->schedule != NULL) {
        mpath_schedule_destroy(relay->schedule);
    }
    free(relay->paths);
    free(relay->outlets);
    relay->schedule      = NULL;
    relay->paths         = NULL;
    relay->outlets       = NULL;
    relay->opened_wanted = 0;
}

/* A hop whose copy this rank makes into the receive buffer of a mate. */
static int writes_final(const mpath_relay_t *relay, const mpath_duty_t *duty)
{
    return (duty->hop_out != MPATH_DUTY_NO_HOP) && (duty->out.to == duty->destination) &&
           ((duty->out.lane == MPATH_LANE_PEER) || ((duty->out.lane == MPATH_LANE_RAIL) && relay->by_copies));
}

/* Whom this rank writes to, and who writes how much to it. */
static mpath_status_t look_at_duties(mpath_relay_t *relay)
{
    mpath_schedule_t *schedule = relay->schedule;

    relay->wanted      = 0;
    relay->fetch_bytes = 0;
    for (int rank = 0; rank < relay->size; rank++) {
        relay->expect[rank] = 0;
    }
    for (size_t i = 0; i < schedule->num_duties; i++) {
        const mpath_duty_t *duty = &schedule->duties[i];

        if (duty->num_chunks >= MPATH_RELAY_MAX_CHUNKS) {
            mpath_error("a message of %llu bytes has too many chunks for relays", (unsigned long long)duty->bytes);
            return MPATH_ERR_UNSUPPORTED;
        }
        if (writes_final(relay, duty)) {
            relay->wanted |= 1ull << duty->destination;
        }
        if (duty->hop_out != MPATH_DUTY_NO_HOP) {
            continue;
        }
        if ((duty->in.lane == MPATH_LANE_STAGED) || ((duty->in.lane == MPATH_LANE_RAIL) && !relay->by_copies)) {
            relay->fetch_bytes += duty->bytes;
        } else {
            relay->expect[duty->in.from] += duty->bytes;
        }
    }
    return MPATH_OK;
}

static mpath_status_t make_tables(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    const mpath_flow_t *flows = mpath_plan_flows(plan, &(size_t){0});

    relay->paths   = malloc((relay->schedule->num_duties + 1) * sizeof(*relay->paths));
    relay->outlets = calloc(relay->schedule->num_outlets + 1, sizeof(*relay->outlets));
    if ((relay->paths == NULL) || (relay->outlets == NULL)) {
        mpath_error("no memory for the paths of %zu flows over GPUs", relay->schedule->num_duties);
        return MPATH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < relay->schedule->num_duties; i++) {
        const mpath_flow_t *flow = &flows[relay->schedule->duties[i].flow];

        mpath_topo_path(relay->topo, flow->source, flow->destination, flow->path, &relay->paths[i]);
    }
    return look_at_duties(relay);
}

static mpath_status_t open_buffers(mpath_relay_t *relay)
{
    mpath_status_t status = MPATH_OK;

    for (uint64_t left = relay->wanted; (left != 0) && (status == MPATH_OK); left &= left - 1) {
        int rank                     = __builtin_ctzll(left);
        const mpath_export_t *memory = &mpath_relay_cell(&relay->room, relay->half, rank)->memory;

        if ((relay->gpu == NULL) || (memory->how == MPATH_EXPORT_NONE) ||
            (mpath_import_get(memory, relay->gpu, &relay->buffers[rank]) != MPATH_OK)) {
            relay->buffers[rank] = NULL;
            status               = MPATH_DECLINED;
        }
    }
    return status;
}

/* Everything of this rank's own; the caller tells the others how it went. */
static mpath_status_t make_schedule(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    mpath_chunk_limits_t limits = {.device_ns = chunk_ns(plan)};
    mpath_status_t status;

    size_slots(relay, limits.device_ns);
    limits.chunk_bytes = relay->slot_bytes;
    limits.rail_bytes  = mpath_relay_rails_chunk(relay);
    status             = mpath_schedule_create(relay->topo, relay->me, plan, &limits, &relay->schedule);
    if (status == MPATH_OK) {
        status = make_tables(relay, plan);
    }
    return (status == MPATH_OK) ? open_buffers(relay) : status;
}

mpath_status_t mpath_relay_take_plan(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    uint64_t signature = mpath_plan_signature(plan);
    mpath_status_t status;

    if (relay->opened_wanted && (relay->schedule_signature == signature) && !relay->moved) {
        mpath_schedule_reset(relay->schedule);
        status = open_buffers(relay);                                       /* the cache of imports has them */
        return (status == MPATH_DECLINED) ? MPATH_ERR_UNREACHABLE : status; /* the others count on it */
    }
    mpath_relay_forget_plan(relay);
    status = mpath_relay_rails_prepare(relay, plan);
    if (status == MPATH_OK) {
        status = make_schedule(relay, plan);
    }
    status = mpath_relay_all(relay->team, status);
    if (status == MPATH_OK) {
        relay->schedule_signature = signature;
        relay->opened_wanted      = 1;
        relay->moved              = 0;
    } else {
        mpath_relay_close_buffers(relay);
        mpath_relay_forget_plan(relay);
    }
    return status;
}
