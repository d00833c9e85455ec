/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, what follows from a plan: this rank's duties, the size of chunks and slots, and the receive buffers that it
 * writes to. All of it stays while plan and memory do. Opening a buffer may fail on one rank, so after a change all
 * tell how it went.
 */
#include "exec/relay_private.h"

#include "exec/relay_rail.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

#define CHUNK_COST_NS 8000u /* of the host's time, for a chunk at a hop */
#define CROWD 12u
#define CROWD_LEAST 2u
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
 * How many pieces of messages a rank has to do with, in eighths: with twelve and more, chunks cost as much as they
 * gain. A plan without relays has no pipeline to fill.
 */
static uint64_t crowd(const mpath_relay_t *relay, const mpath_plan_t *plan)
{
    uint64_t eighths;
    size_t num_flows;

    mpath_plan_flows(plan, &num_flows);
    eighths = 8 * num_flows / (uint64_t)relay->size;
    eighths = (eighths < CROWD_LEAST) ? CROWD_LEAST : eighths;
    return ((eighths > CROWD) || (mpath_plan_relayed_bytes(plan) == 0)) ? CROWD : eighths;
}

/*
 * A pipeline of k chunks takes 1 + (hops - 1) / k times as long as its slowest hop, and k times what a chunk costs the
 * host: least at the root of the product of the two. Where few messages move, copies of one run while the host looks
 * after another: shorter chunks cost nothing then, and end sooner.
 */
static uint64_t chunk_ns(const mpath_relay_t *relay, const mpath_plan_t *plan)
{
    uint64_t z_ns = mpath_plan_z_ns(plan), ns = root((z_ns < UINT64_MAX / CHUNK_COST_NS) ? z_ns * CHUNK_COST_NS : 0);

    ns = ns * crowd(relay, plan) / CROWD;
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
    if (half == 0) { /* nobody passes anything on: no slot is ever taken */
        bytes = CHUNK_WITHOUT_SLOTS;
    }
    if (relay->bound.has_staged && (bytes > relay->rails.host_bytes / 2)) { /* chunks fit into slots of the host, too */
        bytes = relay->rails.host_bytes / 2;
    }
    bytes                   = bytes / SLOT_GRAIN * SLOT_GRAIN;
    bytes                   = (bytes < SLOT_GRAIN) ? SLOT_GRAIN : bytes;
    relay->bound.slot_bytes = (uint32_t)bytes;
    relay->bound.slots      = (int)((half / bytes < MPATH_RELAY_MAX_SLOTS) ? half / bytes : MPATH_RELAY_MAX_SLOTS);
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

static void release(relay_bound_t *bound)
{
    if (bound->schedule != NULL) {
        mpath_schedule_destroy(bound->schedule);
    }
    free(bound->paths);
    free(bound->outlets);
    *bound = (relay_bound_t){.schedule = NULL};
}

void mpath_relay_forget_plans(mpath_relay_t *relay)
{
    for (int i = 0; i < RELAY_KEPT; i++) {
        release(&relay->kept[i]);
    }
    relay->bound     = (relay_bound_t){.schedule = NULL};
    relay->asked_for = 0;
}

/* A plan that calls were bound to before; NULL: not lately. */
static relay_bound_t *find_kept(mpath_relay_t *relay, uint64_t signature)
{
    for (int i = 0; i < RELAY_KEPT; i++) {
        if ((relay->kept[i].schedule != NULL) && (relay->kept[i].signature == signature)) {
            return &relay->kept[i];
        }
    }
    return NULL;
}

/* The present one moves into the place of the one that was not used for longest. */
static void keep(mpath_relay_t *relay)
{
    relay_bound_t *oldest = &relay->kept[0];

    for (int i = 1; i < RELAY_KEPT; i++) {
        oldest = (relay->kept[i].used < oldest->used) ? &relay->kept[i] : oldest;
    }
    release(oldest);
    *oldest = relay->bound;
}

/* A hop whose copy this rank makes into the receive buffer of a mate. */
static int writes_final(const mpath_relay_t *relay, const mpath_duty_t *duty)
{
    return (duty->hop_out != MPATH_DUTY_NO_HOP) && (duty->out.to == duty->destination) &&
           ((duty->out.lane == MPATH_LANE_PEER) || ((duty->out.lane == MPATH_LANE_RAIL) && relay->by_copies));
}

/* NICs that this rank sends by, and that bring it something. */
static void look_at_rail(relay_bound_t *bound, const mpath_duty_t *duty)
{
    if ((duty->hop_out != MPATH_DUTY_NO_HOP) && (duty->out.lane == MPATH_LANE_RAIL)) {
        bound->send_rails |= 1u << duty->out.nic_from;
    }
    if ((duty->hop_in == MPATH_DUTY_NO_HOP) || (duty->in.lane != MPATH_LANE_RAIL)) {
        return;
    }
    if (duty->hop_out == MPATH_DUTY_NO_HOP) {
        bound->own_rails |= 1u << duty->in.nic_to;
        bound->rail_sources |= 1ull << duty->in.from;
    } else {
        bound->lent_rails |= 1u << duty->in.nic_to;
    }
}

/* Whom this rank writes to, and who writes how much to it. */
static mpath_status_t look_at_duties(mpath_relay_t *relay)
{
    mpath_schedule_t *schedule = relay->bound.schedule;

    relay->bound.wanted      = 0;
    relay->bound.fetch_bytes = 0;
    for (int rank = 0; rank < relay->size; rank++) {
        relay->bound.expect[rank] = 0;
    }
    for (size_t i = 0; i < schedule->num_duties; i++) {
        const mpath_duty_t *duty = &schedule->duties[i];

        if (duty->num_chunks >= MPATH_RELAY_MAX_CHUNKS) {
            mpath_error("a message of %llu bytes has too many chunks for relays", (unsigned long long)duty->bytes);
            return MPATH_ERR_UNSUPPORTED;
        }
        if (writes_final(relay, duty)) {
            relay->bound.wanted |= 1ull << duty->destination;
        }
        look_at_rail(&relay->bound, duty);
        if (duty->hop_out != MPATH_DUTY_NO_HOP) {
            continue;
        }
        if ((duty->in.lane == MPATH_LANE_STAGED) || ((duty->in.lane == MPATH_LANE_RAIL) && !relay->by_copies)) {
            relay->bound.fetch_bytes += duty->bytes;
        } else {
            relay->bound.expect[duty->in.from] += duty->bytes;
        }
    }
    return MPATH_OK;
}

static mpath_status_t make_tables(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    const mpath_flow_t *flows = mpath_plan_flows(plan, &(size_t){0});

    relay->bound.paths   = malloc((relay->bound.schedule->num_duties + 1) * sizeof(*relay->bound.paths));
    relay->bound.outlets = calloc(relay->bound.schedule->num_outlets + 1, sizeof(*relay->bound.outlets));
    if ((relay->bound.paths == NULL) || (relay->bound.outlets == NULL)) {
        mpath_error("no memory for the paths of %zu flows over GPUs", relay->bound.schedule->num_duties);
        return MPATH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < relay->bound.schedule->num_duties; i++) {
        const mpath_flow_t *flow = &flows[relay->bound.schedule->duties[i].flow];

        mpath_topo_path(relay->topo, flow->source, flow->destination, flow->path, &relay->bound.paths[i]);
    }
    return look_at_duties(relay);
}

static mpath_status_t open_buffer(mpath_relay_t *relay, int rank)
{
    const mpath_export_t *memory = &mpath_relay_cell(&relay->room, relay->half, rank)->memory;

    if (relay->buffers[rank] != NULL) {
        return MPATH_OK;
    }
    if ((relay->gpu == NULL) || (memory->how == MPATH_EXPORT_NONE) ||
        (mpath_import_get(memory, relay->gpu, &relay->buffers[rank]) != MPATH_OK)) {
        relay->buffers[rank] = NULL;
        return MPATH_DECLINED;
    }
    return MPATH_OK;
}

/* Those that the plan needs. */
static mpath_status_t open_wanted(mpath_relay_t *relay)
{
    mpath_status_t status = MPATH_OK;

    for (uint64_t left = relay->bound.wanted; (left != 0) && (status == MPATH_OK); left &= left - 1) {
        status = open_buffer(relay, __builtin_ctzll(left));
    }
    return status;
}

/* Those that another plan may need. Nonzero: all that there are. */
static int open_others(mpath_relay_t *relay)
{
    int all = 1;

    for (int member = 0; (relay->gpu != NULL) && (member < relay->room.num_members); member++) {
        int rank = relay->room.members[member];

        if ((rank != relay->me) && (relay->room.cells[relay->half][member].memory.how != MPATH_EXPORT_NONE)) {
            all = (open_buffer(relay, rank) == MPATH_OK) && all;
        }
    }
    return all;
}

/* Everything of this rank's own; the caller tells the others how it went. */
static mpath_status_t make_schedule(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    mpath_chunk_limits_t limits = {.device_ns = chunk_ns(relay, plan)};
    mpath_status_t status;

    relay->bound = (relay_bound_t){.signature = mpath_plan_signature(plan)};
    mpath_relay_rails_look(relay, plan, &relay->bound);
    size_slots(relay, limits.device_ns);
    limits.chunk_bytes = relay->bound.slot_bytes;
    limits.rail_bytes  = mpath_relay_rails_chunk(relay);
    status             = mpath_schedule_create(relay->topo, relay->me, plan, &limits, &relay->bound.schedule);
    if (status == MPATH_OK) {
        status = make_tables(relay, plan);
    }
    if (status != MPATH_OK) {
        release(&relay->bound);
    }
    return status;
}

mpath_status_t mpath_relay_provide(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    mpath_status_t status = MPATH_OK;

    if (find_kept(relay, mpath_plan_signature(plan)) == NULL) {
        status = mpath_relay_rails_prepare(relay, plan);
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(relay->team, status);
    }
    return status;
}

/* Schedule and slots, of before or new. */
static mpath_status_t bind_plan(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    relay_bound_t *kept = find_kept(relay, mpath_plan_signature(plan));

    if (kept == NULL) {
        mpath_status_t status = make_schedule(relay, plan);

        if (status != MPATH_OK) {
            return status;
        }
        keep(relay);
        kept = find_kept(relay, relay->bound.signature);
    }
    kept->used   = ++relay->bound_count;
    relay->bound = *kept;
    mpath_schedule_reset(relay->bound.schedule);
    return MPATH_OK;
}

/* How opening went on all ranks; *partial_p: some rank has not opened all that it might need one day. */
static mpath_status_t agree_on_buffers(mpath_relay_t *relay, mpath_status_t mine, int *partial_p)
{
    int32_t told[2] = {mine, *partial_p}, all[MPATH_RELAY_MAX_RANKS][2];
    mpath_status_t status, worst = MPATH_OK, theirs;

    status = mpath_team_allgather(relay->team, told, sizeof(told), all);
    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        theirs     = (mpath_status_t)all[rank][0];
        *partial_p = *partial_p || all[rank][1];
        if ((theirs != MPATH_OK) && ((worst == MPATH_OK) || !mpath_status_is_error(worst))) {
            worst = theirs;
        }
    }
    return (status == MPATH_OK) ? worst : status;
}

/* All have opened this rank's receive buffer, or could. */
static void know_buffer(mpath_relay_t *relay)
{
    if (!mpath_relay_knows(relay, &relay->told.memory)) {
        relay->known[relay->num_known++ % RELAY_KNOWN] = relay->told.memory;
    }
}

/* Not all can open everything: then what a plan needs is asked for whenever plan or memory change. */
static int must_ask(const mpath_relay_t *relay, uint64_t signature)
{
    return relay->moved || (relay->asked_for == 0) || (relay->partial && (relay->asked_for != signature));
}

mpath_status_t mpath_relay_take_plan(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    uint64_t signature    = mpath_plan_signature(plan);
    int asks              = must_ask(relay, signature), partial;
    mpath_status_t status = bind_plan(relay, plan);

    if ((status != MPATH_OK) && !asks) {
        return status;
    }
    if (status == MPATH_OK) {
        status = open_wanted(relay);
    }
    if (!asks) {
        return (status == MPATH_DECLINED) ? MPATH_ERR_UNREACHABLE : status; /* the others count on it */
    }
    partial = relay->partial || ((status == MPATH_OK) && !open_others(relay));
    status  = agree_on_buffers(relay, status, &partial);
    if (status != MPATH_OK) {
        mpath_relay_close_buffers(relay);
        relay->asked_for = 0;
        return status;
    }
    if (relay->moved && !partial) {
        know_buffer(relay);
    }
    relay->partial   = partial;
    relay->asked_for = signature;
    relay->moved     = 0;
    return MPATH_OK;
}
