/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans on ports: static routes where they are good, else what is above the targets moves. */
#include "plan/follow.h"

#include "plan/construct/construct.h"

#include <string.h>

/* Flows and loads of a plan on ports, and which of a pair's paths goes by what. */

/* The paths of a pair over rails: matched slots, then crossing ones; the static route is moved or put to the front. */
typedef struct rail_list {
    mpath_nic_set_t from, to, matched; /* slots of the two nodes, and of both */
    int num_matched;
    int static_from, static_to;
    int first; /* position of the static route; -1: before the list */
} rail_list_t;

static int count(uint64_t mask)
{
    return __builtin_popcountll(mask);
}

static uint64_t below(uint64_t mask, int bit)
{
    return mask & ((UINT64_C(1) << bit) - 1);
}

/* Number of the set bit at a position. */
static int bit_at(uint64_t mask, int position)
{
    for (; position > 0; position--) {
        mask &= mask - 1;
    }
    return __builtin_ctzll(mask);
}

/* Crossing pairs that start at a slot. */
static mpath_nic_set_t crossing_slots(const rail_list_t *list, int from)
{
    return (list->matched >> from) & 1 ? list->to & ~list->matched : list->to;
}

static int position_of(const rail_list_t *list, int from, int to)
{
    int position = list->num_matched;
    mpath_nic_set_t rest;

    if (from == to) {
        return count(below(list->matched, from));
    }
    for (rest = below(list->from, from); rest != 0; rest &= rest - 1) {
        position += count(crossing_slots(list, __builtin_ctzll(rest)));
    }
    return position + count(below(crossing_slots(list, from), to));
}

static void list_init(const mpath_ports_t *ports, int source, int destination, rail_list_t *list)
{
    list->from        = ports->nodes[ports->ports[source].node].lanes;
    list->to          = ports->nodes[ports->ports[destination].node].lanes;
    list->matched     = list->from & list->to;
    list->num_matched = count(list->matched);
    list->static_from = list->static_to = 0;
    mpath_ports_static_slots(ports, source, destination, &list->static_from, &list->static_to);
    list->first = -1;
    if (list->static_from == list->static_to || !((list->matched >> list->static_from) & 1) ||
        !((list->matched >> list->static_to) & 1)) {
        list->first = position_of(list, list->static_from, list->static_to);
    }
}

static int via_between(int from, int to)
{
    return from == to ? from : MPATH_PORTS_CROSS + from * MPATH_PORTS_MAX_SLOTS + to;
}

/* What the path at a position of the list goes by; STATIC: there is none. */
static int via_at(const mpath_ports_t *ports, const rail_list_t *list, int position)
{
    mpath_nic_set_t rest;
    int from;

    if (position < list->num_matched) {
        return bit_at(list->matched, position);
    }
    position -= list->num_matched;
    for (rest = ports->crossing ? list->from : 0; rest != 0; rest &= rest - 1) {
        from = __builtin_ctzll(rest);
        if (position < count(crossing_slots(list, from))) {
            return via_between(from, bit_at(crossing_slots(list, from), position));
        }
        position -= count(crossing_slots(list, from));
    }
    return MPATH_PORTS_STATIC;
}

/* GPUs that can relay for a pair of a node. */
static uint32_t relays_of(const mpath_ports_t *ports, int source, int destination)
{
    return ports->ports[source].links_to & ports->ports[destination].links_from;
}

/* Number of the pair's path by `via`: the static route is 0, then relays and staged, or the rails. */
static int path_number(const void *problem, int source, int destination, int via)
{
    const mpath_ports_t *ports = problem;
    int linked = mpath_ports_is_linked(ports, source, destination), from = via, to = via, position;
    rail_list_t list;

    if (ports->ports[source].node == ports->ports[destination].node) {
        return 1 + count(via == MPATH_PORTS_STAGED ? relays_of(ports, source, destination)
                                                   : below(relays_of(ports, source, destination), via));
    }
    if (ports->uniform && !ports->has_domains) { /* all slots are matched */
        position = ports->ports[source].slot;
        position = ports->crossing && position != ports->ports[destination].slot ? MPATH_PORTS_MAX_SLOTS : position;
        return via < position ? via + 1 : via;
    }
    if (via >= MPATH_PORTS_CROSS) {
        from = (via - MPATH_PORTS_CROSS) / MPATH_PORTS_MAX_SLOTS;
        to   = (via - MPATH_PORTS_CROSS) % MPATH_PORTS_MAX_SLOTS;
    }
    list_init(ports, source, destination, &list);
    if (from == list.static_from && to == list.static_to) {
        return linked;
    }
    position = position_of(&list, from, to);
    return linked + (list.first < 0 || position < list.first ? position + 1 : position);
}

/* What a path other than the static route goes by; MPATH_PORTS_STATIC: there is no such path. */
static int ports_via_of(const mpath_ports_t *ports, int source, int destination, int path)
{
    uint32_t relays = relays_of(ports, source, destination);
    rail_list_t list;

    if (ports->ports[source].node == ports->ports[destination].node) {
        if (path <= count(relays)) {
            return bit_at(relays, path - 1);
        }
        return path == count(relays) + 1 && mpath_ports_can_peer(ports, source, destination) ? MPATH_PORTS_STAGED
                                                                                             : MPATH_PORTS_STATIC;
    }
    list_init(ports, source, destination, &list);
    if (mpath_ports_is_linked(ports, source, destination) && --path == 0) {
        return via_between(list.static_from, list.static_to);
    }
    return via_at(ports, &list, list.first < 0 || path <= list.first ? path - 1 : path);
}

/* The flows, loads and Z. */
static mpath_status_t ports_emit(mpath_ports_t *ports, mpath_plan_t *plan)
{
    mpath_status_t status = mpath_moves_emit(&ports->moves, plan, ports->demand, ports->num_ranks, ports->num_pairs,
                                             path_number, ports);

    if (status == MPATH_OK) {
        memcpy(plan->loads, ports->load, (size_t)ports->num_resources * sizeof(*plan->loads));
        plan->relayed_bytes = ports->relayed_bytes;
        plan->z             = mpath_ports_z(ports);
        plan->bottleneck    = ports->bottleneck;
    }
    return status;
}

#define KINDS 4 /* of resources that a node has mostly: memory, NICs, PCIe links, ports */

/* Bytes that a resource may carry, rounded up: rounding down could leave bytes without a place. */
static void set_targets(mpath_ports_t *ports, mpath_ratio_t z)
{
    uint64_t capacity[KINDS] = {0}, target[KINDS] = {0}, now;
    int r, kind = 0, next = 0;

    for (r = 0; r < ports->num_resources; r++) {
        now = ports->capacity[r];
        if (now != capacity[kind]) {
            for (kind = 0; kind < KINDS && capacity[kind] != now; kind++) {
            }
            if (kind == KINDS) {
                kind           = next;
                next           = (next + 1) % KINDS;
                capacity[kind] = now;
                target[kind]   = mpath_ratio_times_up(z, now);
            }
        }
        ports->target[r] = target[kind];
    }
}

/* Balances the NICs of every node first; where static routes cross, and on uniform nodes only. */
static mpath_status_t balance_and_shed(mpath_ports_t *ports)
{
    mpath_status_t status = MPATH_OK;
    int node;

    for (node = 0; node < 2 * ports->num_nodes && status == MPATH_OK; node++) {
        status = mpath_ports_balance(ports, node % ports->num_nodes, node < ports->num_nodes);
    }
    return status == MPATH_OK ? mpath_ports_shed(ports) : status;
}

/* Half of the accepted gap; all of it where what is above the bound is less than a fragment, which cannot move. */
static int is_good(mpath_ports_t *ports, mpath_ratio_t bound, uint32_t gap_ppm)
{
    mpath_ratio_t z = mpath_ports_z(ports);

    if (mpath_ratio_within(z, bound, gap_ppm / 2)) {
        return 1;
    }
    return mpath_ratio_within(z, bound, gap_ppm) &&
           z.num <= mpath_ratio_times(bound, z.den) + ports->min_fragment_bytes;
}

/*
 * Moves what is above the bound to where capacity is left. With several nodes both ends mostly have enough; between
 * two the NICs have to be balanced with care.
 */
static mpath_status_t move(mpath_ports_t *ports, mpath_ratio_t bound, uint32_t gap_ppm)
{
    int can_balance       = !ports->one_node && ports->crossing && ports->uniform;
    mpath_status_t status = MPATH_OK;

    if (!can_balance || ports->num_nodes > 2) {
        status = mpath_ports_shed(ports);
        if (status != MPATH_OK || !can_balance || is_good(ports, bound, gap_ppm)) {
            return status;
        }
        mpath_ports_reset(ports);
    }
    return balance_and_shed(ports);
}

#define MOST_RELAXED_PPM 2000000

/*
 * Whole small pairs may fit nowhere within the targets: raises the targets step by step until what is left above them
 * finds a place. Each step keeps the moves of the one before.
 */
static mpath_status_t relax(mpath_ports_t *ports, mpath_ratio_t bound, uint32_t gap_ppm)
{
    mpath_status_t status = MPATH_OK;
    uint32_t ppm;

    for (ppm = gap_ppm < 1000 ? 1000 : gap_ppm; ppm < MOST_RELAXED_PPM && status == MPATH_OK; ppm += ppm / 2) {
        if (mpath_ratio_within(mpath_ports_z(ports), bound, ppm)) {
            break;
        }
        set_targets(ports, mpath_ratio_raise(bound, ppm));
        status = mpath_ports_shed(ports);
    }
    return status;
}

/* The same where static routes leave NICs empty: all pairs get their part of these, where rates are equal only if whole pairs do not do. */
static mpath_status_t share_and_move(mpath_ports_t *ports, mpath_ratio_t bound, uint32_t gap_ppm)
{
    mpath_status_t status = ports->unequal ? mpath_ports_share(ports) : MPATH_OK;

    if (status == MPATH_OK) {
        status = move(ports, bound, gap_ppm);
    }
    if (status != MPATH_OK || ports->unequal || is_good(ports, bound, gap_ppm)) {
        return status;
    }
    mpath_ports_reset(ports);
    status = mpath_ports_share(ports);
    return status == MPATH_OK ? move(ports, bound, gap_ppm) : status;
}

/* The same, then to where there is as little too much as is good enough; then evens out the rest. */
static mpath_status_t improve(mpath_ports_t *ports, mpath_ratio_t *bound, uint32_t gap_ppm)
{
    mpath_status_t status = mpath_ports_begin_moves(ports);

    if (status == MPATH_OK) {
        set_targets(ports, *bound);
        status = ports->spreads ? share_and_move(ports, *bound, gap_ppm) : move(ports, *bound, gap_ppm);
    }
    if (status != MPATH_OK || is_good(ports, *bound, gap_ppm)) {
        return status;
    }
    set_targets(ports, mpath_ratio_raise(*bound, gap_ppm));
    status = mpath_ports_shed(ports);
    if (status == MPATH_OK) {
        status = is_good(ports, *bound, gap_ppm) ? MPATH_OK : mpath_ports_repair(ports, bound, gap_ppm / 2);
    }
    return status == MPATH_OK ? relax(ports, *bound, gap_ppm) : status;
}

static mpath_status_t move_flows(mpath_ports_t *ports, const mpath_wanted_t *wanted)
{
    mpath_status_t status = wanted->num_moved > 0 ? mpath_ports_begin_moves(ports) : MPATH_OK;
    const mpath_moved_flow_t *flow;
    size_t i;
    int via;

    for (i = 0; i < wanted->num_moved && status == MPATH_OK; i++) {
        flow   = &wanted->moved[i];
        via    = ports_via_of(ports, flow->source, flow->destination, flow->path);
        status = via == MPATH_PORTS_STATIC
                     ? MPATH_DECLINED
                     : mpath_ports_move_pair(ports, flow->source, flow->destination, via, flow->bytes);
    }
    return status;
}

/* Moves what is wanted. */
static mpath_status_t ports_move(mpath_ports_t *ports, mpath_plan_t *plan, const mpath_wanted_t *wanted)
{
    const mpath_plan_params_t *params = wanted->params;

    if (params == NULL) {
        return move_flows(ports, wanted);
    }
    if (params->policy != MPATH_POLICY_MPATH ||
        mpath_ratio_within(mpath_ports_z(ports), plan->bound, params->gap_ppm)) {
        return MPATH_OK;
    }
    return improve(ports, &plan->bound, params->gap_ppm);
}

mpath_status_t mpath_plan_ports(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_wanted_t *wanted)
{
    mpath_status_t status;
    mpath_ports_t ports;

    status = mpath_ports_init(&ports, topo, demand, wanted->params == NULL ? 1 : wanted->params->min_fragment_bytes);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_ports_count(&ports);
    if (status == MPATH_OK) {
        plan->bound = mpath_ports_cuts(&ports);
        status      = ports_move(&ports, plan, wanted);
    }
    if (status == MPATH_OK) {
        status = ports_emit(&ports, plan);
    }
    mpath_ports_release(&ports);
    return status;
}
