/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedule: finds this rank's duties among a plan's flows, cuts them into chunks and sorts them by outlet. */
#include "mover/schedule.h"

#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/* The order in which a rank serves its outlets, and each outlet the destinations behind it. */

#define NOTHING UINT32_MAX

/* While a schedule is made. */
typedef struct schedule_maker {
    mpath_schedule_t *schedule;
    const mpath_topo_t *topo;
    const mpath_chunk_limits_t *limits;
    int rank, node;
    size_t first_capacity, duties_capacity, outlets_capacity;
    uint32_t *of_rank;         /* the outlet that leads to a rank and was made first; NOTHING: none */
    uint32_t *next;            /* of an outlet: the one after it that leads to the same rank; NOTHING: none */
    size_t own_begin, own_end; /* duties of which this rank is the source: flows are in the order of their sources */
    int passes;                /* some duty is to pass bytes on */
    uint64_t slowest_bps;      /* the paths' slowest resources are few: of the last one */
    uint64_t most_bytes, least_bytes;
} schedule_maker_t;

/*
 * All ranks by their turns: the next node's ranks come first, and on every node the one that stands there as this rank
 * does on its own. When all go round like this, no two of them are at the same destination at a time; were they all to
 * begin with rank 0, its rail would have too much to do and the others nothing, and wait for their part at the end.
 * `starts`: room for a number for each node and one more.
 */
static void find_turns(const mpath_topo_t *topo, int rank, uint32_t *starts, uint32_t *by_node, uint32_t *order)
{
    uint32_t num_ranks = (uint32_t)mpath_topo_num_ranks(topo), num_nodes = (uint32_t)mpath_topo_num_nodes(topo);
    uint32_t my_node = (uint32_t)mpath_topo_place(topo, rank)->node, my_local = 0, next = 0;

    memset(starts, 0, (num_nodes + 1) * sizeof(*starts));
    for (uint32_t i = 0; i < num_ranks; i++) {
        order[i] = (uint32_t)mpath_topo_place(topo, (int)i)->node; /* for the moment */
        my_local += i < (uint32_t)rank && order[i] == my_node;
        starts[order[i] + 1]++;
    }
    for (uint32_t node = 0; node < num_nodes; node++) {
        starts[node + 1] += starts[node];
    }
    for (uint32_t i = 0; i < num_ranks; i++) {
        by_node[starts[order[i]]++] = i;
    }
    for (uint32_t k = 0; k < num_nodes; k++) {
        uint32_t node  = my_node + k < num_nodes ? my_node + k : my_node + k - num_nodes;
        uint32_t begin = node > 0 ? starts[node - 1] : 0, count = starts[node] - begin;
        uint32_t turn = my_local < count ? my_local : count > 0 ? my_local % count : 0;

        memcpy(order + next, by_node + begin + turn, (count - turn) * sizeof(*order));
        memcpy(order + next + count - turn, by_node + begin, turn * sizeof(*order));
        next += count;
    }
}

/* Sorts outlets by turns, before that by kind where told to. `now`, room by outlet: where each has gone. */
static mpath_status_t sort_outlets(schedule_maker_t *maker, const uint32_t *order, int by_kind, uint32_t *now)
{
    mpath_schedule_t *schedule = maker->schedule;
    uint32_t num_ranks = (uint32_t)mpath_topo_num_ranks(maker->topo), count = 0;
    mpath_outlet_t *sorted = malloc((schedule->num_outlets + 1) * sizeof(*sorted));

    if (sorted == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (int kind = 0; kind <= (by_kind ? (int)MPATH_OUTLET_LAST : 0); kind++) {
        for (uint32_t turn = 0; turn < num_ranks; turn++) {
            for (uint32_t i = maker->of_rank[order[turn]]; i != NOTHING; i = maker->next[i]) {
                if (!by_kind || (int)schedule->outlets[i].kind == kind) {
                    now[i]          = count;
                    sorted[count++] = schedule->outlets[i];
                }
            }
        }
    }
    free(schedule->outlets);
    schedule->outlets = sorted;
    return MPATH_OK;
}

/* Tells duties where their outlets have gone, but for this rank's own. */
static void follow_outlets(const schedule_maker_t *maker, size_t begin, size_t end, const uint32_t *now)
{
    for (size_t i = begin; i < end; i++) {
        mpath_duty_t *duty = &maker->schedule->duties[i];

        if (duty->hop_out != MPATH_DUTY_NO_HOP) {
            duty->outlet = now[duty->outlet];
        }
    }
}

/* The same with its own, which it groups by outlet, each group by the turns of destinations. `first`: room by rank. */
static mpath_status_t sort_own(schedule_maker_t *maker, const uint32_t *order, const uint32_t *now, uint32_t *first)
{
    mpath_schedule_t *schedule = maker->schedule;
    mpath_duty_t *duties       = schedule->duties;
    uint32_t num_ranks = (uint32_t)mpath_topo_num_ranks(maker->topo), end = (uint32_t)maker->own_end, begin = 0;

    schedule->own = malloc((maker->own_end - maker->own_begin + 1) * sizeof(*schedule->own));
    if (schedule->own == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < schedule->num_outlets; i++) {
        mpath_outlet_t *outlet = &schedule->outlets[i];

        outlet->own = begin;
        begin += outlet->num_own;
        outlet->num_own = 0;
    }
    memset(first, 0xff, num_ranks * sizeof(*first));
    for (uint32_t i = end; i-- > (uint32_t)maker->own_begin;) {
        first[duties[i].destination] = i;
    }
    for (uint32_t turn = 0; turn < num_ranks; turn++) {
        for (uint32_t i = first[order[turn]]; i < end && duties[i].destination == (int32_t)order[turn]; i++) {
            mpath_outlet_t *outlet = &schedule->outlets[now[duties[i].outlet]];

            duties[i].outlet                               = now[duties[i].outlet];
            schedule->own[outlet->own + outlet->num_own++] = i;
        }
    }
    return MPATH_OK;
}

/* Part of mpath_schedule_create(): orders outlets, before turns by kind where told to, and own duties. */
static mpath_status_t schedule_sort(schedule_maker_t *maker, int by_kind)
{
    mpath_schedule_t *schedule = maker->schedule;
    size_t num_ranks = (size_t)mpath_topo_num_ranks(maker->topo), num_nodes = (size_t)mpath_topo_num_nodes(maker->topo);
    uint32_t *order   = malloc((2 * num_ranks + num_nodes + schedule->num_outlets + 1) * sizeof(*order));
    uint32_t *by_node = order + num_ranks, *starts = by_node + num_ranks, *now = starts + num_nodes + 1;
    mpath_status_t status;

    if (order == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    find_turns(maker->topo, maker->rank, starts, by_node, order);
    status = sort_outlets(maker, order, by_kind, now);
    if (status == MPATH_OK) {
        status = sort_own(maker, order, now, by_node);
    }
    if (status == MPATH_OK && maker->passes) {
        follow_outlets(maker, 0, maker->own_begin, now);
        follow_outlets(maker, maker->own_end, schedule->num_duties, now);
    }
    free(order);
    return status;
}

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
    const uint32_t *slot_bytes = limits->last_slot_bytes;

    if (path->hops[hop].lane == MPATH_LANE_RAIL) {
        return limits->rail_bytes;
    }
    if (limits->device_ns > 0) {
        return limits->chunk_bytes;
    }
    if (hop_kind(path, hop) == MPATH_OUTLET_RELAY) {
        slot_bytes = limits->relay_slot_bytes;
    }
    return slot_bytes[mpath_topo_place(topo, path->hops[hop].from)->node];
}

static uint64_t bytes_in(uint64_t bps, uint64_t ns)
{
    return bps / MPATH_NS_PER_MS * ns / (MPATH_NS_PER_S / MPATH_NS_PER_MS);
}

/* Finds the most and the least bytes of a chunk by the path's slowest resource. */
static void look_at_slowest(schedule_maker_t *maker, const mpath_path_t *path)
{
    uint64_t slowest_bps = UINT64_MAX, device_ns = maker->limits->device_ns, least;

    for (int i = 0; i < path->num_resources; i++) {
        slowest_bps = min_u64(slowest_bps, mpath_topo_resource(maker->topo, (int)path->resources[i]).capacity_bps);
    }
    if (slowest_bps == maker->slowest_bps) {
        return;
    }
    maker->slowest_bps = slowest_bps;
    maker->most_bytes  = bytes_in(slowest_bps, device_ns > 0 ? device_ns : CHUNK_MAX_NS);
    maker->least_bytes = PIPELINE_MIN_BYTES;
    if (device_ns > 0) {
        least              = bytes_in(slowest_bps, DEVICE_MIN_NS) / CHUNK_ALIGN * CHUNK_ALIGN;
        maker->least_bytes = least > DEVICE_MIN_BYTES ? least : DEVICE_MIN_BYTES;
    }
}

static uint64_t flow_chunk_bytes(schedule_maker_t *maker, const mpath_path_t *path, uint64_t flow_bytes)
{
    uint64_t limit = min_u64(maker->limits->chunk_bytes, UINT32_MAX), bytes;

    look_at_slowest(maker, path);
    bytes = maker->most_bytes;
    for (int hop = 0; hop < path->num_hops; hop++) {
        limit = min_u64(limit, hop_limit(maker->topo, path, hop, maker->limits));
    }
    if (path->num_hops > 1) {
        bytes = min_u64(bytes, flow_bytes / PIPELINE_CHUNKS);
    }
    bytes = bytes < maker->least_bytes ? maker->least_bytes : (bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
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

/* Room for one more outlet. */
static int make_outlet_capacity(schedule_maker_t *maker)
{
    size_t capacity = maker->outlets_capacity == 0 ? 64 : 2 * maker->outlets_capacity;
    mpath_outlet_t *outlets;
    uint32_t *next;

    if (maker->schedule->num_outlets < maker->outlets_capacity) {
        return 1;
    }
    outlets = realloc(maker->schedule->outlets, capacity * sizeof(*outlets));
    if (outlets == NULL) {
        return 0;
    }
    maker->schedule->outlets = outlets;
    next                     = realloc(maker->next, capacity * sizeof(*next));
    if (next == NULL) {
        return 0;
    }
    maker->next             = next;
    maker->outlets_capacity = capacity;
    return 1;
}

/* The outlet of a hop; made when it is new. Its index, or NOTHING. */
static uint32_t find_outlet(schedule_maker_t *maker, mpath_outlet_kind_t kind, const mpath_hop_t *hop)
{
    mpath_schedule_t *schedule = maker->schedule;
    uint32_t i, last = NOTHING;

    for (i = maker->of_rank[hop->to]; i != NOTHING; i = maker->next[i]) {
        const mpath_outlet_t *outlet = &schedule->outlets[i];

        last = i;
        if ((outlet->kind == kind) && (outlet->nic == hop->nic_from) && (outlet->nic_to == hop->nic_to)) {
            return i;
        }
    }
    if (!make_outlet_capacity(maker)) {
        return NOTHING;
    }
    i                    = (uint32_t)schedule->num_outlets++;
    schedule->outlets[i] = (mpath_outlet_t){.kind = kind, .rank = hop->to, .nic = hop->nic_from, .nic_to = hop->nic_to};
    maker->next[i]       = NOTHING;
    if (last == NOTHING) {
        maker->of_rank[hop->to] = i;
    } else {
        maker->next[last] = i;
    }
    return i;
}

static mpath_status_t duty_set_out(schedule_maker_t *maker, const mpath_path_t *path, int hop, mpath_duty_t *duty)
{
    uint32_t outlet = find_outlet(maker, hop_kind(path, hop), &path->hops[hop]);

    if (outlet == NOTHING) {
        return MPATH_ERR_NO_MEMORY;
    }
    duty->hop_out = (int8_t)hop;
    duty->out     = path->hops[hop];
    duty->outlet  = outlet;
    if (duty->out.lane == MPATH_LANE_RAIL) {
        maker->schedule->rails |= mpath_nic_bit(duty->out.nic_from);
    }
    return MPATH_OK;
}

static void duty_set_in(mpath_schedule_t *schedule, const mpath_path_t *path, int hop, mpath_duty_t *duty)
{
    duty->hop_in = (int8_t)hop;
    duty->in     = path->hops[hop];
    if (duty->in.lane == MPATH_LANE_RAIL) {
        schedule->rails |= mpath_nic_bit(duty->in.nic_to);
    }
}

/* Room for one more duty. */
static int make_duty_capacity(schedule_maker_t *maker)
{
    mpath_schedule_t *schedule = maker->schedule;
    size_t capacity            = maker->duties_capacity == 0 ? maker->first_capacity : 2 * maker->duties_capacity;
    mpath_duty_t *duties;
    uint32_t *numbers;

    if (schedule->num_duties < maker->duties_capacity) {
        return 1;
    }
    duties = realloc(schedule->duties, capacity * sizeof(*duties));
    if (duties == NULL) {
        return 0;
    }
    schedule->duties = duties;
    numbers          = realloc(schedule->numbers, capacity * sizeof(*numbers));
    if (numbers == NULL) {
        return 0;
    }
    schedule->numbers      = numbers;
    maker->duties_capacity = capacity;
    return 1;
}

/* Each member by itself: compilers clear a whole duty by an instruction that takes longer than all else. NULL: no memory. */
static mpath_duty_t *new_duty(schedule_maker_t *maker, const mpath_flow_t *flow, uint32_t number)
{
    mpath_schedule_t *schedule = maker->schedule;
    mpath_duty_t *duty;

    if (!make_duty_capacity(maker)) {
        return NULL;
    }
    schedule->numbers[schedule->num_duties] = number;
    duty                                    = &schedule->duties[schedule->num_duties++];
    duty->flow                              = number;
    duty->source                            = flow->source;
    duty->destination                       = flow->destination;
    duty->hop_in                            = MPATH_DUTY_NO_HOP;
    duty->hop_out                           = MPATH_DUTY_NO_HOP;
    duty->ahead                             = 0;
    duty->in                                = (mpath_hop_t){.lane = 0};
    duty->out                               = (mpath_hop_t){.lane = 0};
    duty->offset                            = flow->offset;
    duty->bytes                             = flow->bytes;
    duty->cut                               = 0;
    duty->outlet                            = 0;
    duty->seen_at                           = 0;
    duty->handed_chunks                     = 0;
    duty->arrived_chunks                    = 0;
    duty->fetches                           = 0;
    duty->done_bytes                        = 0;
    return duty;
}

/* Adds up what the duty makes this rank wait for. */
static void count_duty(schedule_maker_t *maker, mpath_duty_t *duty)
{
    mpath_schedule_t *schedule = maker->schedule;

    if (duty->hop_in == MPATH_DUTY_NO_HOP) {
        if (maker->own_end == 0) {
            maker->own_begin = schedule->num_duties - 1;
        }
        maker->own_end = schedule->num_duties;
        schedule->outlets[duty->outlet].num_own++;
        schedule->send_bytes += duty->bytes;
        return;
    }
    duty->seen_at = schedule->seen_words * WORD_BITS;
    schedule->seen_words += (duty->num_chunks + WORD_BITS - 1) / WORD_BITS;
    if (duty->hop_out == MPATH_DUTY_NO_HOP) {
        schedule->receive_bytes += duty->bytes;
    } else {
        maker->passes = 1;
        schedule->forward_bytes += duty->bytes;
    }
}

/* Bytes are passed on by ranks of their ends' nodes only. */
static int may_pass(const schedule_maker_t *maker, const mpath_flow_t *flow)
{
    return flow->source == maker->rank || flow->destination == maker->rank ||
           mpath_topo_place(maker->topo, flow->source)->node == maker->node ||
           mpath_topo_place(maker->topo, flow->destination)->node == maker->node;
}

static mpath_status_t add_flow(schedule_maker_t *maker, const mpath_flow_t *flow, uint32_t number)
{
    const mpath_chunk_limits_t *limits = maker->limits;
    mpath_schedule_t *schedule         = maker->schedule;
    mpath_duty_t *duty                 = NULL;
    mpath_path_t path;
    mpath_status_t status;

    if (!may_pass(maker, flow)) {
        return MPATH_OK;
    }
    mpath_topo_path(maker->topo, flow->source, flow->destination, flow->path, &path);
    for (int hop = 0; hop < path.num_hops; hop++) {
        int sends = path.hops[hop].from == maker->rank, receives = path.hops[hop].to == maker->rank;

        if (!sends && !receives) {
            continue;
        }
        if (duty == NULL) {
            status = check_path(&path, flow, limits->device_ns > 0);
            if (status != MPATH_OK) {
                return status;
            }
            duty = new_duty(maker, flow, number);
            if (duty == NULL) {
                return MPATH_ERR_NO_MEMORY;
            }
            cut_flow(&path, flow_chunk_bytes(maker, &path, flow->bytes), limits->device_ns > 0, duty);
        }
        if (receives) {
            duty_set_in(schedule, &path, hop, duty);
        } else if (duty_set_out(maker, &path, hop, duty) != MPATH_OK) {
            return MPATH_ERR_NO_MEMORY;
        }
    }
    if (duty != NULL) {
        if ((limits->device_ns > 0) && (duty->hop_out != MPATH_DUTY_NO_HOP)) {
            duty->ahead = (int8_t)(path.num_hops - 1 - duty->hop_out);
        }
        count_duty(maker, duty);
    }
    return MPATH_OK;
}

mpath_status_t mpath_schedule_create(const mpath_topo_t *topo, int rank, const mpath_plan_t *plan,
                                     const mpath_chunk_limits_t *limits, mpath_schedule_t **schedule_p)
{
    mpath_schedule_t *schedule = calloc(1, sizeof(*schedule));
    schedule_maker_t maker     = {.schedule = schedule, .topo = topo, .limits = limits, .rank = rank};
    size_t num_ranks           = (size_t)mpath_topo_num_ranks(topo), num_flows;
    const mpath_flow_t *flows  = mpath_plan_flows(plan, &num_flows);
    mpath_status_t status      = MPATH_ERR_NO_MEMORY;

    maker.node = mpath_topo_place(topo, rank)->node;
    /* a part of a plan has little else than what this rank has to do with */
    maker.first_capacity = mpath_plan_is_part(plan) && num_flows > 0 ? num_flows : 64;
    maker.of_rank        = malloc((num_ranks + 1) * sizeof(*maker.of_rank));
    if (schedule == NULL || maker.of_rank == NULL) {
        goto err_destroy;
    }
    memset(maker.of_rank, 0xff, num_ranks * sizeof(*maker.of_rank));
    for (size_t i = 0; i < num_flows; i++) {
        status = add_flow(&maker, &flows[i], mpath_plan_flow_number(plan, i));
        if (status != MPATH_OK) {
            goto err_destroy;
        }
    }
    status         = MPATH_ERR_NO_MEMORY;
    schedule->seen = calloc(schedule->seen_words + 1, sizeof(*schedule->seen));
    if ((schedule->seen == NULL) || (schedule_sort(&maker, limits->device_ns > 0) != MPATH_OK)) {
        goto err_destroy;
    }
    free(maker.next);
    free(maker.of_rank);
    *schedule_p = schedule;
    return MPATH_OK;

err_destroy:
    free(maker.next);
    free(maker.of_rank);
    mpath_schedule_destroy(schedule);
    if (status == MPATH_ERR_NO_MEMORY) {
        mpath_error("no memory for the schedule of %zu flows", num_flows);
    }
    return status;
}

void mpath_schedule_destroy(mpath_schedule_t *schedule)
{
    if (schedule != NULL) {
        free(schedule->duties);
        free(schedule->numbers);
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
        schedule->duties[i].fetches        = 0;
        schedule->duties[i].done_bytes     = 0;
    }
    memset(schedule->seen, 0, schedule->seen_words * sizeof(*schedule->seen));
}

mpath_duty_t *mpath_schedule_find(mpath_schedule_t *schedule, uint32_t flow)
{
    size_t low = 0, high = schedule->num_duties;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (schedule->numbers[middle] < flow) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < schedule->num_duties && schedule->numbers[low] == flow ? &schedule->duties[low] : NULL;
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
