/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, the slots that rails send from and receive into: on the GPUs, where the rails of all ranks read and write
 * their memory themselves (lane/rail_memory.h), else in pinned host memory. All ranks have the same kind: a chunk for
 * GPU memory has to leave its sender in another way than one for host memory. Also the slots in host memory that
 * destinations fetch from. What one rank cannot have none has: without the latter plans do without host memory, without
 * the former the communicator does without relays.
 */
#include "exec/relay_rail.h"

#include "exec/node_key.h"
#include "exec/team_private.h"
#include "gpu/direct.h"
#include "gpu/usage.h"
#include "lane/rail_gpu.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define SLOT_LEAST_BYTES 65536u
#define SHARED_SPARE 4 /* of what is free in /dev/shm, slots take one part in so many */

static void number_senders(mpath_relay_t *relay)
{
    int node = mpath_topo_place(relay->topo, relay->me)->node;

    relay->rails.senders = 0;
    for (int rank = 0; rank < relay->size; rank++) {
        relay->rails.sender_of[rank] = (mpath_topo_place(relay->topo, rank)->node == node) ? -1
                                                                                           : relay->rails.senders++;
    }
}

static uint64_t num_receives(const mpath_relay_t *relay)
{
    return (uint64_t)relay->rails.senders * RELAY_WINDOW;
}

/* The same size on all ranks: what every rail takes and every rank has memory for. */
static mpath_status_t agree_on_size(mpath_relay_t *relay, mpath_wire_t *wire)
{
    uint64_t slots = num_receives(relay) + RELAY_SENDS, all[MPATH_RELAY_MAX_RANKS];
    uint64_t mine  = relay->settings->gpu_memory_bytes / slots / SLOT_LEAST_BYTES * SLOT_LEAST_BYTES;
    mpath_status_t status;

    mine   = (mine < SLOT_LEAST_BYTES) ? SLOT_LEAST_BYTES : mine;
    mine   = (mine > mpath_wire_rail_chunk(wire)) ? mpath_wire_rail_chunk(wire) : mine;
    mine   = (mine > relay->settings->gpu_chunk_bytes) ? relay->settings->gpu_chunk_bytes : mine;
    status = mpath_team_allgather(relay->team, &mine, sizeof(mine), all);
    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        mine = (all[rank] < mine) ? all[rank] : mine;
    }
    relay->rails.slot_bytes = mine;
    return status;
}

/* -- slots of either kind -- */

static mpath_status_t make_on_host(const mpath_relay_t *relay, uint64_t bytes, relay_slots_t *slots)
{
    mpath_status_t status;

    if (!mpath_pins_take(relay->settings->gpu_pinned_bytes, bytes)) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_pinned_alloc(relay->gpu, bytes, &slots->pinned);
    if (status != MPATH_OK) {
        mpath_pins_give(bytes);
        return status;
    }
    slots->base        = slots->pinned.base;
    slots->device_base = slots->pinned.device_base;
    return MPATH_OK;
}

/* Chunks name it to the lane by its address, which no processor reads. */
static mpath_status_t make_on_gpu(const mpath_relay_t *relay, uint64_t bytes, relay_slots_t *slots)
{
    mpath_status_t status;

    if (mpath_gpu_memory_take_within(relay->settings->gpu_device_bytes, &slots->device_base, bytes) !=
        MPATH_CU_SUCCESS) {
        slots->device_base = 0;
        mpath_info("rank %d: GPU %d has no %llu bytes for slots of rails", relay->me,
                   mpath_gpu_info_of(relay->gpu)->ordinal, (unsigned long long)bytes);
        return MPATH_ERR_NO_MEMORY;
    }
    slots->gpu_bytes = bytes;
    slots->base      = (char *)(uintptr_t)slots->device_base;
    status           = mpath_fabric_add_memory(relay->team->context->fabric, relay->gpu, slots->device_base, bytes);
    slots->is_known  = status == MPATH_OK;
    return status;
}

static void free_slots(const mpath_relay_t *relay, relay_slots_t *slots)
{
    mpath_pins_give(slots->pinned.bytes);
    mpath_pinned_release(&slots->pinned);
    if (slots->is_known) {
        mpath_fabric_remove_memory(relay->team->context->fabric, relay->gpu, slots->device_base);
    }
    if (slots->gpu_bytes > 0) {
        mpath_gpu_memory_give(relay->gpu, slots->device_base, slots->gpu_bytes);
    }
    *slots = (relay_slots_t){.base = NULL};
}

/* A rank without a GPU sends and receives nothing. */
static mpath_status_t make(mpath_relay_t *relay,
                           mpath_status_t (*make_one)(const mpath_relay_t *, uint64_t, relay_slots_t *))
{
    relay_rails_t *rails  = &relay->rails;
    mpath_status_t status = MPATH_OK;

    if (relay->gpu != NULL) {
        status = make_one(relay, RELAY_SENDS * rails->slot_bytes, &rails->sends);
        if (status == MPATH_OK) {
            status = make_one(relay, num_receives(relay) * rails->slot_bytes, &rails->receives);
        }
    }
    return status;
}

/* -- on GPUs -- */

static mpath_status_t try_rails(const mpath_relay_t *relay)
{
    mpath_stream_t *stream;
    mpath_status_t status = mpath_stream_get(relay->gpu, MPATH_GPU_STREAMS_DIRECT, &stream);

    if (status == MPATH_OK) {
        mpath_relay_lock();
        status = mpath_fabric_try_memory(relay->team->context->fabric, stream);
        mpath_relay_unlock();
    }
    return status;
}

/* Slots on this rank's GPU, and those of its pool as well: chunks go on from there as they are. */
static mpath_status_t make_direct(mpath_relay_t *relay)
{
    mpath_status_t status = MPATH_OK;

    if (relay->settings->gpu_rail == MPATH_GPU_RAIL_HOST) {
        return MPATH_ERR_UNSUPPORTED;
    }
    if (relay->gpu != NULL) {
        status = try_rails(relay);
        if (status == MPATH_OK) {
            status = mpath_gpu_needs_flush(relay->gpu, &relay->rails.needs_flush);
        }
        if (status == MPATH_OK) {
            status = mpath_gpu_enter(relay->gpu);
        }
        if (status == MPATH_OK) {
            status = make(relay, make_on_gpu);
            if ((status == MPATH_OK) && (relay->pool != 0)) {
                status                  = mpath_fabric_add_memory(relay->team->context->fabric, relay->gpu, relay->pool,
                                                                  relay->my_pool_bytes);
                relay->rails.knows_pool = status == MPATH_OK;
            }
            mpath_gpu_leave(relay->gpu);
        }
    }
    return status;
}

void mpath_relay_slots_forget_pool(mpath_relay_t *relay)
{
    if (relay->rails.knows_pool) {
        mpath_fabric_remove_memory(relay->team->context->fabric, relay->gpu, relay->pool);
        relay->rails.knows_pool = 0;
    }
}

static void free_rail_slots(mpath_relay_t *relay)
{
    mpath_relay_slots_forget_pool(relay);
    free_slots(relay, &relay->rails.sends);
    free_slots(relay, &relay->rails.receives);
    relay->rails.direct      = 0;
    relay->rails.needs_flush = 0;
}

/* Those that destinations fetch from. */
static void free_host_slots(mpath_relay_t *relay)
{
    mpath_pinned_release(&relay->rails.host_pinned);
    mpath_segment_detach(&relay->rails.host);
    mpath_pins_give(relay->rails.host_bytes);
    relay->rails.host_bytes = 0;
}

/* -- all ranks -- */

static void say_how(const mpath_relay_t *relay)
{
    mpath_rail_gpu_t what = mpath_rail_gpu_find("/sys");

    if (relay->rails.direct) {
        mpath_info("device memory goes over rails from slots on GPU to slots on GPU, by UCX itself (gpu_rail)");
    } else if (what == MPATH_RAIL_GPU_DIRECT) {
        mpath_info("device memory goes over rails through pinned host slots; not all ranks can do without (gpu_rail)");
    } else {
        mpath_info("device memory goes over rails through %s", mpath_rail_gpu_text(what));
    }
}

/* Collective: in pinned host memory, smaller ones where a rank cannot have them as large. */
static mpath_status_t make_on_hosts(mpath_relay_t *relay)
{
    mpath_status_t status = mpath_relay_all(relay->team, make(relay, make_on_host));

    while ((status != MPATH_OK) && (mpath_team_status(relay->team) == MPATH_OK) &&
           (relay->rails.slot_bytes / 2 >= SLOT_LEAST_BYTES)) {
        free_rail_slots(relay);
        relay->rails.slot_bytes /= 2;
        status = mpath_relay_all(relay->team, make(relay, make_on_host));
    }
    return status;
}

/* Collective: slots of the same size and kind for all ranks. An error of one is told to all. */
static mpath_status_t open_rail_slots(mpath_relay_t *relay, mpath_wire_t *wire)
{
    mpath_status_t status;

    number_senders(relay);
    status = agree_on_size(relay, wire);
    if (status != MPATH_OK) {
        return status;
    }
    status              = mpath_relay_all(relay->team, make_direct(relay));
    relay->rails.direct = status == MPATH_OK;
    if (status != MPATH_OK) {
        free_rail_slots(relay);
        status = mpath_team_status(relay->team);
        if (status == MPATH_OK) {
            status = make_on_hosts(relay);
        }
    }
    if ((status == MPATH_OK) && (relay->me == 0)) {
        say_how(relay);
    }
    return status;
}

/* -- slots on the host -- */

/* What this rank can have of them, noted as taken. */
static uint64_t claim_host_bytes(const mpath_relay_t *relay)
{
    uint64_t free_bytes = mpath_shared_memory_free() / SHARED_SPARE / (uint64_t)relay->room.num_members;
    uint64_t limit = relay->settings->gpu_pinned_bytes, bytes = relay->settings->gpu_memory_bytes;

    bytes = ((free_bytes > 0) && (free_bytes < bytes)) ? free_bytes : bytes;
    bytes = mpath_pins_share(limit, bytes) / SLOT_LEAST_BYTES * SLOT_LEAST_BYTES;
    return mpath_pins_take(limit, bytes) ? bytes : 0;
}

/* Of a member, as much as all can have. The same on all ranks. */
static mpath_status_t agree_on_host_bytes(mpath_relay_t *relay)
{
    uint64_t mine = claim_host_bytes(relay), least = mine, all[MPATH_RELAY_MAX_RANKS];
    mpath_status_t status = mpath_team_allgather(relay->team, &mine, sizeof(mine), all);

    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        least = (all[rank] < least) ? all[rank] : least;
    }
    mpath_pins_give(mine - least);
    relay->rails.host_bytes = least;
    return ((status == MPATH_OK) && (least == 0)) ? MPATH_ERR_NO_MEMORY : status;
}

/* Of all members; collective. An error of one is told to all. */
static mpath_status_t make_host_slots(mpath_relay_t *relay)
{
    relay_rails_t *rails  = &relay->rails;
    mpath_status_t status = agree_on_host_bytes(relay);

    if (status == MPATH_OK) {
        status = mpath_relay_room_share(&relay->room, rails->host_bytes * (uint64_t)relay->room.num_members,
                                        &rails->host);
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (relay->gpu != NULL) {
        status = mpath_pinned_register(relay->gpu, rails->host.base, rails->host.bytes, &rails->host_pinned);
    }
    return mpath_relay_all(relay->team, status);
}

/* MPATH_AGAIN: there are none, and another topology is to be planned for. */
static mpath_status_t open_host_slots(mpath_relay_t *relay)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    mpath_log_level_t level;
    mpath_status_t status = make_host_slots(relay);

    if ((status == MPATH_OK) || (mpath_team_status(relay->team) != MPATH_OK)) {
        return status;
    }
    if (relay->me == 0) {
        level = atomic_flag_test_and_set(&warned) ? MPATH_LOG_INFO : MPATH_LOG_WARN;
        mpath_log(level,
                  "a rank cannot have slots in host memory (%s); device memory goes over GPUs and rails only in this "
                  "communicator, and where it cannot by way of the host",
                  mpath_status_string(status));
    }
    free_host_slots(relay);
    relay->no_staged = 1;
    status           = mpath_relay_follow_topo(relay);
    return (status == MPATH_OK) ? MPATH_AGAIN : status;
}

int mpath_relay_host_slots(const mpath_relay_t *relay)
{
    uint64_t slots = relay->rails.host_bytes / relay->bound.slot_bytes;

    return (int)((slots < MPATH_RELAY_MAX_SLOTS) ? slots : MPATH_RELAY_MAX_SLOTS);
}

mpath_cu_ptr_t mpath_relay_host_slot(const mpath_relay_t *relay, int member, int slot)
{
    return relay->rails.host_pinned.device_base + (uint64_t)member * relay->rails.host_bytes +
           (uint64_t)slot * relay->bound.slot_bytes;
}

/* -- what a plan needs -- */

static mpath_status_t list_make(relay_pinned_list_t *list, uint32_t room)
{
    list->items = calloc(room, sizeof(*list->items));
    list->room  = room;
    return (list->items != NULL) ? MPATH_OK : MPATH_ERR_NO_MEMORY;
}

/* What the plan's hops need. The same on all ranks. */
static void look_at_plan(const mpath_relay_t *relay, const mpath_plan_t *plan, int *rails_p, int *staged_p)
{
    size_t num_flows;
    const mpath_flow_t *flows = mpath_plan_flows(plan, &num_flows);

    *rails_p = *staged_p = 0;
    for (size_t i = 0; (i < num_flows) && !(*rails_p && *staged_p); i++) {
        mpath_path_t path;

        mpath_topo_path(relay->topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        for (int hop = 0; hop < path.num_hops; hop++) {
            *rails_p  = *rails_p || ((path.hops[hop].lane == MPATH_LANE_RAIL) && !relay->by_copies);
            *staged_p = *staged_p || (path.hops[hop].lane == MPATH_LANE_STAGED);
        }
    }
}

void mpath_relay_rails_look(const mpath_relay_t *relay, const mpath_plan_t *plan, relay_bound_t *bound)
{
    look_at_plan(relay, plan, &bound->has_rails, &bound->has_staged);
}

static mpath_status_t make_lists(mpath_relay_t *relay)
{
    relay_rails_t *rails = &relay->rails;
    uint32_t receives    = (uint32_t)num_receives(relay);

    if ((list_make(&rails->ready, RELAY_SENDS + MPATH_RELAY_MAX_SLOTS) != MPATH_OK) ||
        (list_make(&rails->landed, receives) != MPATH_OK) || (list_make(&rails->owed, receives) != MPATH_OK)) {
        mpath_error("no memory for %u slots of rails", receives);
        return MPATH_ERR_NO_MEMORY;
    }
    rails->send_free = RELAY_ALL_SENDS;
    for (int rank = 0; rank < relay->size; rank++) {
        rails->credits[rank] = RELAY_ALL_CREDITS;
    }
    return MPATH_OK;
}

/* The process beside a GPU drives all NICs beside it. */
static mpath_status_t reach_nics(const mpath_relay_t *relay, mpath_wire_t *wire)
{
    const mpath_topo_t *topo = mpath_team_gpu_topo(relay->team);
    uint32_t nics[MPATH_RELAY_MAX_RANKS];

    for (int rank = 0; rank < relay->size; rank++) {
        nics[rank] = mpath_topo_nics_beside(topo, rank);
    }
    return mpath_wire_widen(wire, nics);
}

static mpath_status_t open_rails(mpath_relay_t *relay)
{
    mpath_wire_t *wire;
    mpath_status_t status = mpath_wire_get(relay->team, &wire);

    if (status == MPATH_OK) {
        status = reach_nics(relay, wire);
    }
    if (status == MPATH_OK) {
        status = open_rail_slots(relay, wire);
    }
    if (status == MPATH_OK) {
        status = mpath_relay_all(relay->team, make_lists(relay));
    }
    if (status == MPATH_OK) {
        relay->rails.wire = wire;
    }
    return status;
}

/* All ranks have failed alike: the communicator goes on by way of the host. */
static mpath_status_t do_without_rails(mpath_relay_t *relay, mpath_status_t status)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    mpath_log_level_t level;

    if (mpath_team_status(relay->team) != MPATH_OK) {
        return status;
    }
    if (relay->me == 0) {
        level = atomic_flag_test_and_set(&warned) ? MPATH_LOG_INFO : MPATH_LOG_WARN;
        mpath_log(level,
                  "a rank cannot have slots for rails (%s); device memory goes by way of the host in this communicator",
                  mpath_status_string(status));
    }
    free_rail_slots(relay);
    relay->usable = 0;
    return MPATH_DECLINED;
}

mpath_status_t mpath_relay_rails_prepare(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    mpath_status_t status = MPATH_OK;
    int has_rails, has_staged;
    mpath_wire_t *wire;

    look_at_plan(relay, plan, &has_rails, &has_staged);
    if (has_rails && (relay->rails.wire == NULL)) {
        status = open_rails(relay);
        status = mpath_status_is_error(status) ? do_without_rails(relay, status) : status;
    } else if (has_rails) {
        status = mpath_wire_get(relay->team, &wire); /* rails that had failed may not have opened again */
    }
    if ((status == MPATH_OK) && has_staged && (relay->rails.host.base == NULL)) {
        status = relay->no_staged ? MPATH_DECLINED : open_host_slots(relay);
    }
    return status;
}

uint64_t mpath_relay_rails_chunk(const mpath_relay_t *relay)
{
    return (relay->by_copies || (relay->rails.slot_bytes == 0)) ? UINT32_MAX : relay->rails.slot_bytes;
}

void mpath_relay_rails_cleanup(mpath_relay_t *relay)
{
    relay_rails_t *rails = &relay->rails;

    free_rail_slots(relay);
    free_host_slots(relay);
    free(rails->ready.items);
    free(rails->landed.items);
    free(rails->owed.items);
    memset(rails, 0, sizeof(*rails));
}
