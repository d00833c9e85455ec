/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, the hops.
 *
 * Rails and the part of the host: a chunk for a rail is copied to a slot that rails send from (in pinned host memory,
 * or on the GPU), sent from NIC to NIC into the slot of the receiver that the sender has a credit for, and copied from
 * there into a slot of the pool of the receiver or to its place; copies out, rails and copies in work on different chunks
 * at a time. The credit goes back when the slot is empty. All credits are back at the end of a call: the rails serve
 * other collectives next.
 *
 * What this rank copies: chunks of its own and chunks in its slots go to outlets, a few at a time each; a copy that is
 * complete, and whose time has come where the topology is emulated, is told to who has it now.
 */
#include "mover/relay_private.h"

#include "device/gpu.h"
#include "device/usage.h"
#include "rail/gpu_memory.h"
#include "team/team.h"
#include "util/log.h"
#include "util/time.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * Relay, the slots that rails send from and receive into: on the GPUs, where the rails of all ranks read and write
 * their memory themselves (rail/gpu_memory.h), else in pinned host memory. All ranks have the same kind: a chunk for
 * GPU memory has to leave its sender in another way than one for host memory. Also the slots in host memory that
 * destinations fetch from. What one rank cannot have none has: without the latter plans do without host memory, without
 * the former the communicator does without relays.
 */

#define SLOT_LEAST_BYTES 65536u
#define SHARED_SPARE 4 /* of what is free in /dev/shm, slots take one part in so many */

static int node_of(const mpath_relay_t *relay, int rank)
{
    return mpath_topo_place(relay->topo, rank)->node;
}

/* Marks the ranks that send to this one by rails on some path from them to `destination`, which is on this node. */
static void mark_senders(mpath_relay_t *relay, int source, int destination)
{
    int num = mpath_topo_num_paths(relay->topo, source, destination);

    for (int index = 0; index < num; index++) {
        mpath_path_t path;

        mpath_topo_path(relay->topo, source, destination, index, &path);
        for (int hop = 0; hop < path.num_hops; hop++) {
            if ((path.hops[hop].lane == MPATH_LANE_RAIL) && (path.hops[hop].to == relay->me)) {
                relay->ranks[path.hops[hop].from].marked = 1;
            }
        }
    }
}

/* Slots for each sender that there is memory for, one at least. */
static uint64_t window_within(const mpath_relay_t *relay, uint64_t senders)
{
    uint64_t slots = relay->settings->gpu_memory_bytes / SLOT_LEAST_BYTES;

    if (slots >= senders * RELAY_WINDOW + RELAY_SENDS) {
        return RELAY_WINDOW;
    }
    return (slots < senders + RELAY_SENDS) ? 1 : (slots - RELAY_SENDS) / senders;
}

/*
 * Who may send to this rank by rails: all of other nodes where they are few enough for slots of their own in any topology that
 * rails may leave; else those that do in the present one, most often those beside the same rail.
 */
static void number_senders(mpath_relay_t *relay)
{
    uint64_t others = 0;
    int node        = node_of(relay, relay->me);

    for (int rank = 0; rank < relay->size; rank++) {
        relay->ranks[rank].marked = node_of(relay, rank) != node;
        others += relay->ranks[rank].marked;
    }
    relay->rails.is_of_topo = window_within(relay, others) < RELAY_WINDOW;
    for (int rank = 0; (rank < relay->size) && relay->rails.is_of_topo; rank++) {
        relay->ranks[rank].marked = 0;
    }
    for (int pair = 0; (pair < relay->size * relay->shared.num_members) && relay->rails.is_of_topo; pair++) {
        int source = pair / relay->shared.num_members;

        if (node_of(relay, source) != node) {
            mark_senders(relay, source, relay->shared.members[pair % relay->shared.num_members]);
        }
    }
    relay->rails.senders = 0;
    for (int rank = 0; rank < relay->size; rank++) {
        relay->rails.far[rank].sender = relay->ranks[rank].marked ? relay->rails.senders++ : -1;
    }
}

static uint32_t all_credits(const mpath_relay_t *relay)
{
    return (1u << relay->rails.window) - 1;
}

static uint64_t num_receives(const mpath_relay_t *relay)
{
    return (uint64_t)relay->rails.senders * relay->rails.window;
}

/* The same on all ranks: slots of a size that every rail takes, and as many as every rank has memory for. */
static mpath_status_t agree_on_size(mpath_relay_t *relay, mpath_wire_t *wire)
{
    uint64_t window = window_within(relay, (uint64_t)relay->rails.senders), mine, most[MPATH_TEAM_NUMBERS];
    mpath_status_t status;

    mine    = relay->settings->gpu_memory_bytes / ((uint64_t)relay->rails.senders * window + RELAY_SENDS);
    mine    = mine / SLOT_LEAST_BYTES * SLOT_LEAST_BYTES;
    mine    = (mine < SLOT_LEAST_BYTES) ? SLOT_LEAST_BYTES : mine;
    mine    = (mine > mpath_wire_rail_chunk(wire)) ? mpath_wire_rail_chunk(wire) : mine;
    mine    = (mine > relay->settings->gpu_chunk_bytes) ? relay->settings->gpu_chunk_bytes : mine;
    most[0] = UINT64_MAX - mine;
    most[1] = UINT64_MAX - window;
    most[2] = (uint64_t)relay->rails.is_of_topo;
    status  = mpath_team_most(relay->team, most);

    relay->rails.slot_bytes = UINT64_MAX - most[0];
    relay->rails.window     = (uint32_t)(UINT64_MAX - most[1]);
    relay->rails.is_of_topo = most[2] != 0;
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
        MPATH_DEVICE_DONE) {
        slots->device_base = 0;
        mpath_info("rank %d: GPU %d has no %llu bytes for slots of rails", relay->me,
                   mpath_gpu_info_of(relay->gpu)->ordinal, (unsigned long long)bytes);
        return MPATH_ERR_NO_MEMORY;
    }
    slots->gpu_bytes = bytes;
    slots->base      = (char *)(uintptr_t)slots->device_base;
    status           = mpath_fabric_add_memory(mpath_team_fabric(relay->team), relay->gpu, slots->device_base, bytes);
    slots->is_known  = status == MPATH_OK;
    return status;
}

static void free_slots(const mpath_relay_t *relay, relay_slots_t *slots)
{
    mpath_pins_give(slots->pinned.bytes);
    mpath_pinned_release(&slots->pinned);
    if (slots->is_known) {
        mpath_fabric_remove_memory(mpath_team_fabric(relay->team), relay->gpu, slots->device_base);
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
        if ((status == MPATH_OK) && (num_receives(relay) > 0)) {
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
        status = mpath_fabric_try_memory(mpath_team_fabric(relay->team), stream);
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
                status = mpath_fabric_add_memory(mpath_team_fabric(relay->team), relay->gpu, relay->pool,
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
        mpath_fabric_remove_memory(mpath_team_fabric(relay->team), relay->gpu, relay->pool);
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

    relay->rails.far = calloc((size_t)relay->size, sizeof(*relay->rails.far));
    status           = mpath_relay_all(relay->team, (relay->rails.far != NULL) ? MPATH_OK : MPATH_ERR_NO_MEMORY);
    if (status == MPATH_OK) {
        number_senders(relay);
        status = agree_on_size(relay, wire);
    }
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
    uint64_t free_bytes = mpath_shared_memory_free() / SHARED_SPARE / (uint64_t)relay->shared.num_members;
    uint64_t limit = relay->settings->gpu_pinned_bytes, bytes = relay->settings->gpu_memory_bytes;

    bytes = (free_bytes < bytes) ? free_bytes : bytes;
    bytes = mpath_pins_share(limit, bytes) / SLOT_LEAST_BYTES * SLOT_LEAST_BYTES;
    return mpath_pins_take(limit, bytes) ? bytes : 0;
}

/* Of a member, as much as all can have. The same on all ranks. */
static mpath_status_t agree_on_host_bytes(mpath_relay_t *relay)
{
    uint64_t mine = claim_host_bytes(relay), most[MPATH_TEAM_NUMBERS] = {UINT64_MAX - mine};
    mpath_status_t status = mpath_team_most(relay->team, most);
    uint64_t least        = (status == MPATH_OK) ? UINT64_MAX - most[0] : 0;

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
        status = mpath_relay_segment_share(&relay->shared, rails->host_bytes * (uint64_t)relay->shared.num_members,
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
    return MPATH_AGAIN;
}

/* Slots on the host, of all members: how many each has, and where one is for this rank's GPU. */
static int relay_host_slots(const mpath_relay_t *relay)
{
    uint64_t slots = relay->rails.host_bytes / relay->bound.slot_bytes;

    return (int)((slots < MPATH_RELAY_MAX_SLOTS) ? slots : MPATH_RELAY_MAX_SLOTS);
}

static mpath_device_ptr_t relay_host_slot(const mpath_relay_t *relay, int member, int slot)
{
    return relay->rails.host_pinned.device_base + (uint64_t)member * relay->rails.host_bytes +
           (uint64_t)slot * relay->bound.slot_bytes;
}

/* -- what a plan needs -- */

static mpath_status_t list_make(relay_pinned_list_t *list, uint32_t capacity)
{
    list->items    = calloc(capacity, sizeof(*list->items));
    list->capacity = capacity;
    return (list->items != NULL) ? MPATH_OK : MPATH_ERR_NO_MEMORY;
}

/* Whether the static route of some pair of a node goes through host memory. The same on all ranks. */
static int has_staged_pairs(mpath_relay_t *relay)
{
    if (relay->looked_at == relay->topo) {
        return relay->has_staged_pairs;
    }
    relay->looked_at        = relay->topo;
    relay->has_staged_pairs = 0;
    for (int rank = 0; rank < relay->size; rank++) {
        for (int mate = relay->ranks[rank].mate; mate >= 0; mate = relay->ranks[mate].mate) {
            mpath_path_t path;

            mpath_topo_path(relay->topo, rank, mate, 0, &path);
            relay->has_staged_pairs |= path.hops[0].lane == MPATH_LANE_STAGED;
            mpath_topo_path(relay->topo, mate, rank, 0, &path);
            relay->has_staged_pairs |= path.hops[0].lane == MPATH_LANE_STAGED;
        }
    }
    return relay->has_staged_pairs;
}

/* What the plan's hops need. The same on all ranks, of which none knows those of others in a plan by pairs of nodes. */
static void look_at_plan(mpath_relay_t *relay, const mpath_plan_t *plan, int *rails_p, int *staged_p)
{
    size_t num_flows;
    const mpath_flow_t *flows = mpath_plan_flows(plan, &num_flows);

    *rails_p = *staged_p = 0;
    if (mpath_plan_is_part(plan)) {
        *rails_p  = !relay->by_copies;
        *staged_p = has_staged_pairs(relay);
        return;
    }
    for (size_t i = 0; (i < num_flows) && !(*rails_p && *staged_p); i++) {
        mpath_path_t path;

        mpath_topo_path(relay->topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        for (int hop = 0; hop < path.num_hops; hop++) {
            *rails_p  = *rails_p || ((path.hops[hop].lane == MPATH_LANE_RAIL) && !relay->by_copies);
            *staged_p = *staged_p || (path.hops[hop].lane == MPATH_LANE_STAGED);
        }
    }
}

void mpath_relay_rails_look(mpath_relay_t *relay, const mpath_plan_t *plan, relay_bound_t *bound)
{
    look_at_plan(relay, plan, &bound->has_rails, &bound->has_staged);
}

/* All slots of rails are free, here and at the other ends. */
static void free_all(mpath_relay_t *relay)
{
    relay_rails_t *rails = &relay->rails;

    rails->send_free   = RELAY_ALL_SENDS;
    rails->credits_out = 0;
    for (int rank = 0; rank < relay->size; rank++) {
        rails->far[rank].credits   = all_credits(relay);
        rails->far[rank].nics_busy = 0;
    }
}

static mpath_status_t make_lists(mpath_relay_t *relay)
{
    relay_rails_t *rails = &relay->rails;
    uint32_t receives    = (uint32_t)num_receives(relay) + 1; /* some list, where nobody sends */

    if ((list_make(&rails->ready, RELAY_SENDS + MPATH_RELAY_MAX_SLOTS) != MPATH_OK) ||
        (list_make(&rails->landed, receives) != MPATH_OK) || (list_make(&rails->owed, receives) != MPATH_OK)) {
        mpath_error("no memory for %u slots of rails", receives);
        return MPATH_ERR_NO_MEMORY;
    }
    free_all(relay);
    return MPATH_OK;
}

/* The process beside a GPU drives all NICs beside it. */
static mpath_status_t reach_nics(const mpath_relay_t *relay, mpath_wire_t *wire)
{
    const mpath_topo_t *topo = mpath_team_gpu_topo(relay->team);
    mpath_nic_set_t *nics    = malloc((size_t)relay->size * sizeof(*nics));
    mpath_status_t status;

    if (nics == NULL) {
        mpath_error("no memory for the NICs beside the GPUs of %d ranks; the call fails", relay->size);
        mpath_team_break(relay->team, MPATH_ERR_NO_MEMORY); /* the others would wait */
        return MPATH_ERR_NO_MEMORY;
    }
    for (int rank = 0; rank < relay->size; rank++) {
        nics[rank] = mpath_topo_nics_beside(topo, rank);
    }
    status = mpath_wire_widen(wire, nics);
    free(nics);
    return status;
}

static mpath_status_t open_rails(mpath_relay_t *relay)
{
    mpath_wire_t *wire;
    mpath_status_t status = mpath_wire_get(relay->team, MPATH_LINKS_ALL, &wire);

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
        /* Rails that had failed may not have opened again. */
        status = mpath_wire_get(relay->team, MPATH_LINKS_ALL, &wire);
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
    free(rails->far);
    memset(rails, 0, sizeof(*rails));
}

#define IN_PLACE RELAY_SENDS /* numbers of sending slots from here on: slots of the pool */
#define STREAM_FROM_RAIL (MPATH_GPU_STREAMS - 1)
#define CREDIT_HOP                                                                                                     \
    0x80000000u /* in mpath_chunk_t.hop; else bits 0 to 7 the hop, 8 to 15 the receiver's slot, 16 to 23 the sender's */
#define CREDIT_BUSY 0x40000000u /* of a credit: the NIC that bits 0 to 7 name is busy with its owner's bytes */

/* -- lists -- */

/* The bytes have left this rank: its slot is free, or its send buffer no longer read. */
static void relay_left(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t bytes)
{
    duty->done_bytes += bytes;
    if (duty->hop_in == MPATH_DUTY_NO_HOP) {
        relay->send_left -= bytes;
        relay->stats.sent_bytes += bytes;
    } else {
        relay->forward_left -= bytes;
        relay->stats.forwarded_bytes += bytes;
    }
    relay->stats.rail_bytes += (duty->out.lane == MPATH_LANE_RAIL) ? bytes : 0;
    relay->stats.staged_bytes += (duty->out.lane == MPATH_LANE_STAGED) ? bytes : 0;
}

static relay_op_t *op_get(mpath_relay_t *relay)
{
    relay_op_t *op = relay->spare_ops;

    if (op != NULL) {
        relay->spare_ops = op->next;
    } else if ((op = malloc(sizeof(*op))) == NULL) {
        mpath_error("no memory for a copy under way; the call fails");
    }
    return op;
}

/* A copy onto a stream of the rank's GPU, as an op under way; the op's other fields are the caller's. */
static mpath_status_t relay_launch(mpath_relay_t *relay, unsigned stream, mpath_device_ptr_t to,
                                   mpath_device_ptr_t from, const relay_op_t *op)
{
    relay_op_t *copy = op_get(relay);
    mpath_status_t status;

    if (copy == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    *copy          = *op;
    copy->next     = NULL;
    copy->began_ns = mpath_trace_is_on() ? mpath_time_ns() : 0;
    status         = mpath_gpu_enter(relay->gpu); /* once for all that follows */
    if (status == MPATH_OK) {
        status = mpath_stream_get(relay->gpu, stream, &copy->stream);
        if (status == MPATH_OK) {
            mpath_relay_lock();
            status = mpath_stream_copy(copy->stream, to, from, copy->bytes);
            if (status == MPATH_OK) {
                status = mpath_stream_mark(copy->stream, &copy->mark);
            }
            mpath_relay_unlock();
        }
        mpath_gpu_leave(relay->gpu);
    }
    if (status != MPATH_OK) {
        copy->next       = relay->spare_ops;
        relay->spare_ops = copy;
        return status;
    }
    *relay->under_way_last_p = copy;
    relay->under_way_last_p  = &copy->next;
    return MPATH_OK;
}

static void list_put(relay_pinned_list_t *list, const relay_pinned_chunk_t *chunk)
{
    list->items[(list->first + list->count++) % list->capacity] = *chunk;
}

static relay_pinned_chunk_t *list_first(const relay_pinned_list_t *list)
{
    return (list->count > 0) ? &list->items[list->first] : NULL;
}

static void list_drop(relay_pinned_list_t *list)
{
    list->first = (list->first + 1) % list->capacity;
    list->count--;
}

/* -- callbacks of the wire -- */

static char *receive_slot(const mpath_relay_t *relay, int rank, int slot)
{
    return relay->rails.receives.base +
           ((uint64_t)relay->rails.far[rank].sender * relay->rails.window + (uint64_t)slot) * relay->rails.slot_bytes;
}

static mpath_status_t wire_place(void *argument, const mpath_wire_arrival_t *arrival, void **to_p, void **item_p)
{
    const mpath_chunk_t *chunk = &arrival->lane.chunk;
    mpath_relay_t *relay       = argument;
    mpath_duty_t *duty         = mpath_schedule_find(relay->bound.schedule, chunk->flow);
    uint32_t slot              = (chunk->hop >> 8) & 0xff;

    if ((chunk->hop & CREDIT_HOP) && (chunk->bytes == sizeof(relay->rails.sink)) &&
        (chunk->flow < (uint32_t)relay->size) && (chunk->offset < relay->rails.window) &&
        ((chunk->hop & 0xff) < MPATH_MAX_NICS)) {
        *to_p = &relay->rails.sink;
        return MPATH_OK;
    }
    if ((chunk->hop & CREDIT_HOP) || (duty == NULL) || (duty->hop_in == MPATH_DUTY_NO_HOP) ||
        (duty->in.lane != MPATH_LANE_RAIL) || (slot >= relay->rails.window) ||
        (chunk->bytes > relay->rails.slot_bytes) || (relay->rails.receives.base == NULL) ||
        (relay->rails.far[duty->in.from].sender < 0)) {
        mpath_error(
            "rank %d: a chunk of flow %u that this rank does not expect came by a rail in call %llu on device memory; "
            "the call fails",
            relay->me, chunk->flow, (unsigned long long)relay->number);
        return MPATH_ERR_INTERNAL;
    }
    *to_p   = receive_slot(relay, duty->in.from, (int)slot);
    *item_p = duty;
    return MPATH_OK;
}

/* A slot at the other end is free again. */
static void give_credit(mpath_relay_t *relay, int rank, int slot)
{
    relay_far_t *far = &relay->rails.far[rank];

    relay->rails.credits_out -= ((far->credits >> slot) & 1) ? 0 : 1;
    far->credits |= 1u << slot;
}

/* `item`: the duty that the chunk belongs to; as in wire_sent(). */
static void wire_placed(void *argument, const mpath_chunk_t *chunk, void *item)
{
    mpath_relay_t *relay = argument;
    relay_rails_t *rails = &relay->rails;
    mpath_duty_t *duty   = item;
    mpath_chunk_t header = *chunk;

    if (chunk->hop & CREDIT_HOP) {
        relay_far_t *far = &rails->far[chunk->flow];

        give_credit(relay, (int)chunk->flow, (int)chunk->offset);
        far->nics_busy &= ~mpath_nic_bit(chunk->hop & 0xff);
        far->nics_busy |= (chunk->hop & CREDIT_BUSY) ? mpath_nic_bit(chunk->hop & 0xff) : 0;
        return;
    }
    header.hop = chunk->hop & 0xff;
    if (mpath_schedule_accept(relay->bound.schedule, duty, &header) != MPATH_OK) {
        mpath_error("rank %d: a chunk from rank %d came twice, or is cut otherwise than here; the call fails",
                    relay->me, duty->in.from);
        rails->failed = MPATH_ERR_INTERNAL;
        return;
    }
    mpath_rail_clock_came(&relay->clock, duty, chunk->bytes);
    list_put(&rails->landed, &(relay_pinned_chunk_t){.duty  = duty,
                                                     .chunk = mpath_duty_index(duty, chunk->offset),
                                                     .bytes = chunk->bytes,
                                                     .slot  = (int)((chunk->hop >> 8) & 0xff)});
}

/* A slot that rails send from has been read. */
static void free_send(mpath_relay_t *relay, uint32_t send)
{
    if (send >= IN_PLACE) {
        mpath_relay_slot_give(&relay->shared.gates[relay->shared.my_member], MPATH_RELAY_TO_RAIL,
                              (int)(send - IN_PLACE));
    } else {
        relay->rails.send_free |= 1ull << send;
    }
}

static void wire_sent(void *argument, const mpath_chunk_t *chunk, void *item)
{
    mpath_relay_t *relay = argument;
    relay_rails_t *rails = &relay->rails;

    if (chunk->hop & CREDIT_HOP) {
        rails->credits_sent--;
        return;
    }
    free_send(relay, (chunk->hop >> 16) & 0xff);
    relay_left(relay, item, chunk->bytes);
}

/* UCX copies memory of the GPU whose context it finds with the thread, which may be none. */
static mpath_status_t enter(void *argument)
{
    const mpath_relay_t *relay = argument;

    return (relay->rails.direct && (relay->gpu != NULL)) ? mpath_gpu_enter(relay->gpu) : MPATH_OK;
}

static void leave(void *argument)
{
    const mpath_relay_t *relay = argument;

    if (relay->rails.direct && (relay->gpu != NULL)) {
        mpath_gpu_leave(relay->gpu);
    }
}

/* -- the call -- */

void mpath_relay_rails_begin(mpath_relay_t *relay)
{
    static const mpath_wire_ops_t ops = {
        .place = wire_place, .placed = wire_placed, .sent = wire_sent, .enter = enter, .leave = leave};

    relay->rails.failed = MPATH_OK;
    relay->rails.active = (relay->rails.wire != NULL) && (relay->bound.schedule->rails != 0);
    if (relay->rails.active) {
        mpath_rail_clock_start(&relay->clock, relay->bound.schedule);
        mpath_wire_begin(relay->rails.wire, &ops, relay, relay->bound.schedule->rails, relay->settles);
    }
}

void mpath_relay_rails_end(mpath_relay_t *relay)
{
    if (relay->rails.active) {
        mpath_wire_end(relay->rails.wire);
        relay->rails.active = 0;
    }
}

/* Slots that are held for chunks of a NIC. */
static unsigned held_by(const uint8_t *nics, uint64_t held, int nic)
{
    unsigned count = 0;

    for (; held != 0; held &= held - 1) {
        count += (nics[__builtin_ctzll(held)] == nic) ? 1 : 0;
    }
    return count;
}

/* Each NIC that this rank sends by has its part of the slots here and there: a slow one would come to hold all. */
static int has_its_part(const mpath_relay_t *relay, const mpath_hop_t *out)
{
    const relay_rails_t *rails = &relay->rails;
    const relay_far_t *far     = &rails->far[out->to];
    unsigned nics              = (unsigned)mpath_nic_count(relay->bound.send_rails);
    unsigned window            = (rails->window + nics - 1) / nics;
    unsigned sends             = 2 * ((RELAY_WINDOW + nics - 1) / nics);

    return (nics > 1) && ((held_by(far->credit_nics, all_credits(relay) & ~far->credits, out->nic_from) >= window) ||
                          (held_by(rails->send_nics, RELAY_ALL_SENDS & ~rails->send_free, out->nic_from) >= sends));
}

/*
 * A slot to send the op's chunk from, with room at the other end for it; RELAY_NO_SLOT: none now. Where rails know the
 * pool, a chunk that waits there is sent from its place. One that yields takes no other room than the first slot there.
 */
static int relay_rails_slot(mpath_relay_t *relay, const relay_op_t *op, int yields)
{
    relay_rails_t *rails   = &relay->rails;
    const mpath_hop_t *out = &op->duty->out;
    relay_far_t *far       = &rails->far[out->to];
    unsigned credits       = far->credits & (yields ? 1u : all_credits(relay));
    int in_place = rails->knows_pool && (op->from_slot != RELAY_NO_SLOT) && (op->from_class == MPATH_RELAY_TO_RAIL);
    int send, receive;

    if ((!in_place && (rails->send_free == 0)) || (credits == 0) || has_its_part(relay, out)) {
        return RELAY_NO_SLOT;
    }
    receive = __builtin_ctz(credits);
    if (in_place) {
        send = (int)IN_PLACE + op->from_slot;
    } else {
        send = __builtin_ctzll(rails->send_free);
        rails->send_free &= ~(1ull << send);
        rails->send_nics[send] = (uint8_t)out->nic_from;
    }
    rails->credits_out++;
    far->credits &= ~(1u << receive);
    far->credit_nics[receive] = (uint8_t)out->nic_from;
    return (send << 8) | receive;
}

/* Whether that slot is the chunk's place in the pool. */
static int relay_rails_in_place(const relay_op_t *op)
{
    return (op->to_slot >> 8) >= (int)IN_PLACE;
}

static void relay_rails_give(mpath_relay_t *relay, const mpath_duty_t *duty, int slot)
{
    relay->rails.send_free |= ((slot >> 8) < (int)IN_PLACE) ? 1ull << (slot >> 8) : 0;
    give_credit(relay, duty->out.to, slot & 0xff);
}

static mpath_device_ptr_t relay_rails_address(const mpath_relay_t *relay, const mpath_duty_t *duty, int slot)
{
    (void)duty;
    return relay->rails.sends.device_base + (uint64_t)(slot >> 8) * relay->rails.slot_bytes;
}

/* The chunk of a RELAY_TO_WIRE op is in its slot: to the rail with it. */
static mpath_status_t relay_rails_send(mpath_relay_t *relay, const relay_op_t *op)
{
    list_put(&relay->rails.ready,
             &(relay_pinned_chunk_t){.duty = op->duty, .chunk = op->chunk, .bytes = op->bytes, .slot = op->to_slot});
    return MPATH_OK;
}

static const void *send_address(const mpath_relay_t *relay, uint32_t send)
{
    if (send >= IN_PLACE) {
        return (const void *)(uintptr_t)mpath_relay_slot_at(relay->pool, relay, MPATH_RELAY_TO_RAIL,
                                                            (int)(send - IN_PLACE));
    }
    return relay->rails.sends.base + send * relay->rails.slot_bytes;
}

static mpath_status_t send_chunk(mpath_relay_t *relay, const relay_pinned_chunk_t *ready)
{
    mpath_duty_t *duty = ready->duty;
    uint32_t send = (uint32_t)ready->slot >> 8, receive = (uint32_t)ready->slot & 0xff;
    mpath_chunk_t chunk = {.call = (uint32_t)relay->number,
                           .flow = duty->flow,
                           .hop  = (uint32_t)duty->hop_out | (receive << 8) | (send << 16)};

    mpath_duty_chunk(duty, ready->chunk, &chunk.offset, &chunk.bytes);
    return mpath_wire_send(relay->rails.wire, duty->out.nic_from, duty->out.to, duty->out.nic_to, &chunk,
                           send_address(relay, send), duty);
}

/* Chunks that are in their slots, to the NICs. Those of a NIC without room wait behind the others, in their order. */
static mpath_status_t send_ready(mpath_relay_t *relay, int *events_p)
{
    relay_pinned_list_t *ready = &relay->rails.ready;
    mpath_nic_set_t full       = 0;

    for (uint32_t left = ready->count; left > 0; left--) {
        relay_pinned_chunk_t chunk = *list_first(ready);
        mpath_nic_set_t nic        = mpath_nic_bit(chunk.duty->out.nic_from);
        mpath_status_t status;

        list_drop(ready);
        status = (full & nic) ? MPATH_NO_RESOURCE : send_chunk(relay, &chunk);
        if (status == MPATH_NO_RESOURCE) {
            full |= nic;
            list_put(ready, &chunk);
        } else if (status != MPATH_OK) {
            return status;
        } else {
            *events_p += 1;
        }
    }
    return MPATH_OK;
}

static mpath_status_t send_credits(mpath_relay_t *relay, int *events_p)
{
    relay_rails_t *rails = &relay->rails;
    relay_pinned_chunk_t *owed;

    while ((owed = list_first(&rails->owed)) != NULL) {
        const mpath_hop_t *in = &owed->duty->in;
        mpath_nic_set_t busy  = atomic_load_explicit(&relay->shared.gates[relay->shared.my_member].nics_busy,
                                                     memory_order_relaxed);
        mpath_chunk_t chunk   = {.call   = (uint32_t)relay->number,
                                 .flow   = (uint32_t)relay->me,
                                 .offset = (uint64_t)owed->slot,
                                 .bytes  = sizeof(rails->credit),
                                 .hop    = CREDIT_HOP | (uint32_t)in->nic_to |
                                        (((busy >> in->nic_to) & 1) ? CREDIT_BUSY : 0)};
        mpath_status_t status;

        rails->credits_sent++; /* `sent` may be called inside */
        status = mpath_wire_send(rails->wire, in->nic_to, in->from, in->nic_from, &chunk, &rails->credit, NULL);
        if (status != MPATH_OK) {
            rails->credits_sent--;
            return (status == MPATH_NO_RESOURCE) ? MPATH_OK : status;
        }
        list_drop(&rails->owed);
        *events_p += 1;
    }
    return MPATH_OK;
}

/* What NICs have written into this rank's GPU, before copies read it. */
static mpath_status_t flush(const mpath_relay_t *relay)
{
    return (relay->rails.needs_flush && (relay->rails.landed.count > 0)) ? mpath_gpu_flush_writes(relay->gpu)
                                                                         : MPATH_OK;
}

/* Chunks that rails have brought: to their place, or into a slot of the pool when there is one. */
static mpath_status_t take_landed(mpath_relay_t *relay, int *events_p)
{
    relay_rails_t *rails     = &relay->rails;
    mpath_relay_gate_t *gate = &relay->shared.gates[relay->shared.my_member];
    relay_pinned_chunk_t *landed;
    mpath_status_t flushed = flush(relay);

    if (flushed != MPATH_OK) {
        return flushed;
    }
    while ((landed = list_first(&rails->landed)) != NULL) {
        mpath_duty_t *duty = landed->duty;
        relay_op_t op      = {.step      = RELAY_FROM_WIRE,
                              .duty      = duty,
                              .chunk     = landed->chunk,
                              .bytes     = landed->bytes,
                              .from_slot = landed->slot,
                              .to_class  = MPATH_RELAY_TO_LAST,
                              .to_slot   = RELAY_NO_SLOT};
        size_t from        = (size_t)(receive_slot(relay, duty->in.from, landed->slot) - rails->receives.base);
        mpath_device_ptr_t to;
        mpath_status_t status;
        uint64_t offset;
        uint32_t bytes;

        mpath_duty_chunk(duty, landed->chunk, &offset, &bytes);
        if (duty->hop_out == MPATH_DUTY_NO_HOP) {
            to = (mpath_device_ptr_t)(uintptr_t)relay->call->recv_buffer + relay->call->recv_offsets[duty->source] +
                 offset;
        } else {
            op.to_slot = mpath_relay_slot_take(gate, op.to_class, relay->bound.slots);
            if (op.to_slot == RELAY_NO_SLOT) {
                return MPATH_OK;
            }
            to = mpath_relay_slot_at(relay->pool, relay, op.to_class, op.to_slot);
        }
        list_drop(&rails->landed);
        status = relay_launch(relay, STREAM_FROM_RAIL, to, rails->receives.device_base + from, &op);
        if (status != MPATH_OK) {
            return status;
        }
        *events_p += 1;
    }
    return MPATH_OK;
}

/* That of a RELAY_FROM_WIRE op is on the GPU. */
static mpath_status_t relay_rails_taken(mpath_relay_t *relay, const relay_op_t *op)
{
    list_put(&relay->rails.owed,
             &(relay_pinned_chunk_t){.duty = op->duty, .chunk = op->chunk, .bytes = op->bytes, .slot = op->from_slot});
    if (op->to_slot != RELAY_NO_SLOT) {
        return mpath_relay_queue(relay, op->duty, op->chunk, op->to_class, op->to_slot, -1);
    }
    op->duty->done_bytes += op->bytes;
    relay->fetch_left -= op->bytes;
    return MPATH_OK;
}

int mpath_relay_rails_progress(mpath_relay_t *relay)
{
    relay_rails_t *rails = &relay->rails;
    mpath_status_t status;
    int events = 0, result;

    if (!rails->active) {
        return 0;
    }
    status = enter(relay);
    if (status != MPATH_OK) {
        return (int)status;
    }
    result = mpath_wire_progress(rails->wire);
    status = (result < 0) ? (mpath_status_t)result : rails->failed;
    events = result;
    if (status == MPATH_OK) {
        status = send_ready(relay, &events);
    }
    if (status == MPATH_OK) {
        status = take_landed(relay, &events);
    }
    if (status == MPATH_OK) {
        status = send_credits(relay, &events);
    }
    leave(relay);
    return (status == MPATH_OK) ? events : (int)status;
}

int mpath_relay_rails_idle(const mpath_relay_t *relay)
{
    const relay_rails_t *rails = &relay->rails;

    return !rails->active || ((rails->credits_out == 0) && (rails->ready.count == 0) && (rails->landed.count == 0) &&
                              (rails->owed.count == 0) && (rails->credits_sent == 0));
}

int mpath_relay_rails_owe(const mpath_relay_t *relay, const mpath_duty_t *duty)
{
    return relay->rails.active && (duty->hop_out != MPATH_DUTY_NO_HOP) && (duty->out.lane == MPATH_LANE_RAIL) &&
           (relay->rails.far[duty->out.to].credits != all_credits(relay));
}

const char *mpath_relay_rails_name(const mpath_relay_t *relay, int nic)
{
    return mpath_topo_machine(mpath_team_topo(relay->team), mpath_team_node(relay->team))->nics[nic].name;
}

void mpath_relay_rails_stop(mpath_relay_t *relay)
{
    if (relay->rails.active) {
        mpath_wire_stop(relay->rails.wire);
    }
}

void mpath_relay_rails_abandon(mpath_relay_t *relay)
{
    if (relay->rails.active) {
        mpath_wire_abandon(relay->rails.wire);
    }
}

mpath_nic_set_t mpath_relay_rails_lost(const mpath_relay_t *relay)
{
    return relay->rails.active ? mpath_wire_lost(relay->rails.wire) : 0;
}

static void list_clear(relay_pinned_list_t *list)
{
    list->first = list->count = 0;
}

mpath_status_t mpath_relay_rails_restart(mpath_relay_t *relay)
{
    relay_rails_t *rails = &relay->rails;

    free_all(relay);
    list_clear(&rails->ready);
    list_clear(&rails->landed);
    list_clear(&rails->owed);
    rails->credits_sent = 0;
    rails->failed       = MPATH_OK;
    return mpath_wire_restart(rails->wire);
}

#define PACE_AHEAD_NS 400000u /* an emulated port takes chunks for so long in advance */
#define STREAM_FETCH (MPATH_GPU_STREAMS - 1)
#define STREAM_TO_HOST (MPATH_GPU_STREAMS - 2)
#define STREAMS_TO_MATES (MPATH_GPU_STREAMS - 2 - MPATH_GPU_STREAMS_DIRECT)

static pthread_mutex_t stream_mutex = PTHREAD_MUTEX_INITIALIZER;

void mpath_relay_lock(void)
{
    pthread_mutex_lock(&stream_mutex);
}

void mpath_relay_unlock(void)
{
    pthread_mutex_unlock(&stream_mutex);
}

/* -- ops and items -- */

static relay_item_t *item_get(mpath_relay_t *relay)
{
    relay_item_t *item = relay->spare_items;

    if (item != NULL) {
        relay->spare_items = item->next;
    } else if ((item = malloc(sizeof(*item))) == NULL) {
        mpath_error("no memory for a chunk that waits; the call fails");
    }
    return item;
}

/* An op without a copy: the bytes are where they have to be. */
static mpath_status_t note(mpath_relay_t *relay, const relay_op_t *op)
{
    relay_op_t *noted = op_get(relay);

    if (noted == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    *noted                   = *op;
    noted->next              = NULL;
    noted->stream            = NULL;
    noted->began_ns          = 0;
    *relay->under_way_last_p = noted;
    relay->under_way_last_p  = &noted->next;
    return MPATH_OK;
}

mpath_status_t mpath_relay_queue(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t chunk,
                                 mpath_relay_class_t slot_class, int slot, int owner)
{
    relay_outlet_t *outlet = &relay->bound.outlets[duty->outlet];
    relay_item_t *item     = item_get(relay);

    if (item == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    *item = (relay_item_t){.duty = duty, .chunk = chunk, .slot_class = slot_class, .slot = slot, .owner = owner};
    *outlet->last_p = item;
    outlet->last_p  = &item->next;
    return MPATH_OK;
}

/* -- arrivals -- */

/* A chunk in a host slot of a mate: this rank is its destination. */
static mpath_status_t fetch(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t chunk, int owner, int slot)
{
    relay_op_t op         = {.step       = RELAY_FETCH,
                             .duty       = duty,
                             .chunk      = chunk,
                             .from_class = MPATH_RELAY_ON_HOST,
                             .from_slot  = slot,
                             .from_owner = owner,
                             .to_slot    = RELAY_NO_SLOT};
    mpath_device_ptr_t to = (mpath_device_ptr_t)(uintptr_t)relay->call->recv_buffer;
    uint64_t offset;

    mpath_duty_chunk(duty, chunk, &offset, &op.bytes);
    to += relay->call->recv_offsets[duty->source] + offset;
    return relay_launch(relay, STREAM_FETCH, to, relay_host_slot(relay, owner, slot), &op);
}

/* A chunk has come into a slot. */
static mpath_status_t arrive(mpath_relay_t *relay, int producer, uint64_t entry)
{
    mpath_duty_t *duty             = mpath_schedule_find(relay->bound.schedule, (uint32_t)(entry >> 32));
    uint32_t chunk                 = (uint32_t)(entry >> 8) & (MPATH_RELAY_MAX_CHUNKS - 1);
    mpath_relay_class_t slot_class = (mpath_relay_class_t)((entry >> 6) & 3);
    int slot                       = (int)(entry & 63);
    mpath_chunk_t header           = {0};
    mpath_status_t status          = MPATH_ERR_PARAM;

    if ((duty != NULL) && (chunk < duty->num_chunks)) {
        header.hop = (uint32_t)duty->hop_in;
        mpath_duty_chunk(duty, chunk, &header.offset, &header.bytes);
        status = mpath_schedule_accept(relay->bound.schedule, duty, &header);
    }
    if ((status != MPATH_OK) || ((slot_class != MPATH_RELAY_ON_HOST) && (duty->hop_out == MPATH_DUTY_NO_HOP))) {
        mpath_error("rank %d: chunk %u of flow %u from rank %d is not one that is still to come in call %llu on device "
                    "memory; the call fails",
                    relay->me, chunk, (unsigned)(entry >> 32), relay->shared.members[producer],
                    (unsigned long long)relay->number);
        return MPATH_ERR_INTERNAL;
    }
    return (slot_class == MPATH_RELAY_ON_HOST) ? fetch(relay, duty, chunk, producer, slot)
                                               : mpath_relay_queue(relay, duty, chunk, slot_class, slot, -1);
}

int mpath_relay_take_arrivals(mpath_relay_t *relay)
{
    int events = 0;

    for (int producer = 0; producer < relay->shared.num_members; producer++) {
        mpath_relay_ring_t *ring = mpath_relay_ring(&relay->shared, relay->shared.my_member, producer);
        uint64_t entry;

        while (mpath_relay_ring_get(ring, &entry)) {
            mpath_status_t status = arrive(relay, producer, entry);

            if (status != MPATH_OK) {
                return (int)status;
            }
            events++;
        }
    }
    return events;
}

/* -- departures -- */

/* Where the bytes of a chunk lie here. */
static mpath_device_ptr_t source_of(const mpath_relay_t *relay, const mpath_duty_t *duty, const relay_item_t *item,
                                    uint64_t offset)
{
    if (item != NULL) {
        return mpath_relay_slot_at(relay->pool, relay, item->slot_class, item->slot);
    }
    return (mpath_device_ptr_t)(uintptr_t)relay->call->send_buffer + relay->call->send_offsets[duty->destination] +
           offset;
}

/* Where in the destination's receive buffer they go, as this process addresses it. */
static mpath_device_ptr_t final_of(const mpath_relay_t *relay, const mpath_duty_t *duty, uint64_t offset)
{
    const mpath_relay_cell_t *cell = mpath_relay_cell(&relay->shared, relay->half, duty->destination);
    const uint64_t *offsets        = mpath_relay_offsets(&relay->shared, relay->half, duty->destination);

    return mpath_import_address(relay->buffers[relay->shared.member_of[duty->destination]],
                                cell->address + offsets[duty->source] + offset);
}

/* What the copy of a hop does, and the class of the slot that it needs. */
static relay_step_t step_of(const mpath_relay_t *relay, const mpath_duty_t *duty, mpath_relay_class_t *class_p)
{
    switch (relay->bound.schedule->outlets[duty->outlet].kind) {
    case MPATH_OUTLET_RAIL:
        *class_p = MPATH_RELAY_TO_LAST;
        if (!relay->by_copies) {
            return RELAY_TO_WIRE;
        }
        return (duty->out.to == duty->destination) ? RELAY_TO_FINAL : RELAY_TO_SLOT;
    case MPATH_OUTLET_RELAY:
        *class_p = MPATH_RELAY_TO_RAIL;
        return RELAY_TO_SLOT;
    case MPATH_OUTLET_PASS:
        *class_p = MPATH_RELAY_TO_LAST;
        return RELAY_TO_SLOT;
    case MPATH_OUTLET_STAGED:
        *class_p = MPATH_RELAY_ON_HOST;
        return RELAY_TO_HOST;
    default:
        *class_p = MPATH_RELAY_TO_LAST;
        return RELAY_TO_FINAL;
    }
}

/* The gate of the slot that the op needs. */
static mpath_relay_gate_t *gate_of(const mpath_relay_t *relay, const relay_op_t *op)
{
    int rank = (op->step == RELAY_TO_HOST) ? relay->me : op->duty->out.to;

    return &relay->shared.gates[relay->shared.member_of[rank]];
}

/* Gets the slot that the op needs. A NIC that is busy with its owner's bytes is lent by one slot at a time. */
static mpath_status_t take_slot(mpath_relay_t *relay, relay_op_t *op)
{
    mpath_relay_gate_t *gate = gate_of(relay, op);
    int slots                = (op->step == RELAY_TO_HOST) ? relay_host_slots(relay) : relay->bound.slots;
    int yields               = mpath_relay_yields(relay, op);

    if (op->step == RELAY_TO_WIRE) {
        op->to_slot = relay_rails_slot(relay, op, yields);
    } else {
        op->to_slot = mpath_relay_slot_take(gate, op->to_class, yields ? 1 : slots);
    }
    if (yields && (op->to_slot == RELAY_NO_SLOT)) {
        *((op->duty->out.lane == MPATH_LANE_RAIL) ? &relay->stats.receive_yields : &relay->stats.yields) += 1;
    }
    return (op->to_slot == RELAY_NO_SLOT) ? MPATH_NO_RESOURCE : MPATH_OK;
}

static void give_slot(mpath_relay_t *relay, const relay_op_t *op)
{
    if (op->to_slot == RELAY_NO_SLOT) {
        return;
    }
    if (op->step == RELAY_TO_WIRE) {
        relay_rails_give(relay, op->duty, op->to_slot);
    } else {
        mpath_relay_slot_give(gate_of(relay, op), op->to_class, op->to_slot);
    }
}

/* Where the op's bytes go, and the stream for it: a GPU's copies to different mates run beside one another. */
static mpath_device_ptr_t target_of(const mpath_relay_t *relay, const relay_op_t *op, uint64_t offset,
                                    unsigned *stream_p)
{
    int to = op->duty->out.to, member = relay->shared.member_of[to];

    *stream_p = MPATH_GPU_STREAMS_DIRECT + (unsigned)to % STREAMS_TO_MATES;
    switch (op->step) {
    case RELAY_TO_FINAL:
        return final_of(relay, op->duty, offset);
    case RELAY_TO_SLOT:
        return mpath_relay_slot_at(mpath_import_address(relay->pools[member], relay->shared.pools[member].base), relay,
                                   op->to_class, op->to_slot);
    case RELAY_TO_WIRE:
        *stream_p = STREAM_TO_HOST;
        return relay_rails_address(relay, op->duty, op->to_slot);
    default:
        *stream_p = STREAM_TO_HOST;
        return relay_host_slot(relay, relay->shared.my_member, op->to_slot);
    }
}

mpath_status_t mpath_relay_hand(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t chunk, const relay_item_t *item)
{
    relay_op_t op            = {.duty       = duty,
                                .chunk      = chunk,
                                .outlet     = duty->outlet,
                                .from_class = (item != NULL) ? item->slot_class : MPATH_RELAY_TO_LAST,
                                .from_slot  = (item != NULL) ? item->slot : RELAY_NO_SLOT,
                                .to_slot    = RELAY_NO_SLOT};
    relay_outlet_t *outlet   = &relay->bound.outlets[duty->outlet];
    const mpath_path_t *path = &relay->bound.paths[duty - relay->bound.schedule->duties];
    mpath_status_t status    = MPATH_OK;
    mpath_device_ptr_t target;
    uint64_t offset, when_ns = 0;
    unsigned stream;

    mpath_duty_chunk(duty, chunk, &offset, &op.bytes);
    op.step = step_of(relay, duty, &op.to_class);
    if (op.step != RELAY_TO_FINAL) {
        status          = take_slot(relay, &op);
        outlet->blocked = (op.step == RELAY_TO_WIRE) ? "room at the other end of the rail" : "a slot";
    }
    if ((status == MPATH_OK) && (relay->pace != NULL)) {
        status = mpath_pace_take(relay->pace, path, duty->hop_out, op.bytes, mpath_time_ns(), PACE_AHEAD_NS, &when_ns);
        outlet->blocked = "its emulated port";
        op.arrives_ns   = when_ns;
        if (status != MPATH_OK) {
            give_slot(relay, &op);
        }
    }
    if (status != MPATH_OK) {
        return status;
    }
    outlet->blocked = NULL;
    if ((op.step == RELAY_TO_WIRE) && relay_rails_in_place(&op)) {
        return note(relay, &op);
    }
    target = target_of(relay, &op, offset, &stream);
    return relay_launch(relay, stream, target, source_of(relay, duty, item, offset), &op);
}

/* -- ends -- */

/* Tells who has the chunk now. */
static void tell(mpath_relay_t *relay, const relay_op_t *op)
{
    mpath_relay_ring_t *ring = mpath_relay_ring(&relay->shared, relay->shared.member_of[op->duty->out.to],
                                                relay->shared.my_member);

    if (op->step == RELAY_TO_FINAL) {
        atomic_fetch_add_explicit(&ring->landed_bytes, op->bytes, memory_order_release);
    } else {
        mpath_relay_ring_put(ring, mpath_relay_entry(op->duty->flow, op->chunk, op->to_class, op->to_slot));
    }
}

static mpath_status_t op_end(mpath_relay_t *relay, const relay_op_t *op)
{
    mpath_relay_gate_t *mine = &relay->shared.gates[relay->shared.my_member];

    switch (op->step) {
    case RELAY_FETCH:
        op->duty->done_bytes += op->bytes;
        relay->fetch_left -= op->bytes;
        mpath_relay_slot_give(&relay->shared.gates[op->from_owner], MPATH_RELAY_ON_HOST, op->from_slot);
        return MPATH_OK;
    case RELAY_FROM_WIRE:
        return relay_rails_taken(relay, op);
    case RELAY_TO_WIRE:
        relay->bound.outlets[op->outlet].in_flight--;
        if ((op->from_slot != RELAY_NO_SLOT) && !relay_rails_in_place(op)) {
            mpath_relay_slot_give(mine, op->from_class, op->from_slot);
        }
        return relay_rails_send(relay, op);
    default:
        relay->bound.outlets[op->outlet].in_flight--;
        tell(relay, op);
        if (op->from_slot != RELAY_NO_SLOT) {
            mpath_relay_slot_give(mine, op->from_class, op->from_slot);
        }
        relay_left(relay, op->duty, op->bytes);
        return MPATH_OK;
    }
}

/* MPATH_OK when the copy is complete and, where ports are emulated, they have carried it. */
static mpath_status_t op_status(relay_op_t *op, uint64_t now_ns)
{
    mpath_status_t status = (op->stream == NULL) ? MPATH_OK : mpath_stream_done(op->stream, op->mark);

    if (status == MPATH_OK) {
        op->stream = NULL;
        status     = (op->arrives_ns <= now_ns) ? MPATH_OK : MPATH_INPROGRESS;
    }
    return status;
}

int mpath_relay_finish_ops(mpath_relay_t *relay)
{
    uint64_t now_ns = (relay->pace != NULL) ? mpath_time_ns() : 0;
    relay_op_t **at = &relay->under_way;
    int events      = 0;

    while (*at != NULL) {
        relay_op_t *op = *at;
        mpath_status_t status;

        mpath_relay_lock();
        status = op_status(op, now_ns);
        mpath_relay_unlock();
        if (status == MPATH_INPROGRESS) {
            at = &op->next;
            continue;
        }
        if (status == MPATH_OK) {
            *at                     = op->next;
            relay->under_way_last_p = (op->next == NULL) ? at : relay->under_way_last_p;
            if (op->began_ns > 0) {
                mpath_record_trace_gpu(mpath_team_record(relay->team), mpath_team_call(relay->team),
                                       MPATH_TRACE_GPU_ENGINE, op->bytes, op->began_ns);
            }
            status           = op_end(relay, op);
            op->next         = relay->spare_ops;
            relay->spare_ops = op;
        }
        if (status != MPATH_OK) {
            return (int)status;
        }
        events++;
    }
    return events;
}
