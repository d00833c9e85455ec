/* SPDX-License-Identifier: BSD-3-Clause */
/* Flows and loads of a plan on ports, and which of a pair's paths goes by what. */
#include "plan/ports.h"

#include <string.h>

/* The paths of a pair over rails: matched slots, then crossing ones; the static route is moved or put to the front. */
typedef struct rail_list {
    uint32_t from, to, matched; /* slots of the two nodes, and of both */
    int num_matched;
    int static_from, static_to;
    int first; /* position of the static route; -1: before the list */
} rail_list_t;

static int count(uint32_t mask)
{
    return __builtin_popcount(mask);
}

static uint32_t below(uint32_t mask, int bit)
{
    return mask & ((1u << bit) - 1);
}

/* Number of the set bit at a position. */
static int bit_at(uint32_t mask, int position)
{
    for (; position > 0; position--) {
        mask &= mask - 1;
    }
    return __builtin_ctz(mask);
}

/* Crossing pairs that start at a slot. */
static uint32_t crossing_slots(const rail_list_t *list, int from)
{
    return (list->matched >> from) & 1 ? list->to & ~list->matched : list->to;
}

static int position_of(const rail_list_t *list, int from, int to)
{
    int position = list->num_matched;
    uint32_t rest;

    if (from == to) {
        return count(below(list->matched, from));
    }
    for (rest = below(list->from, from); rest != 0; rest &= rest - 1) {
        position += count(crossing_slots(list, __builtin_ctz(rest)));
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
    uint32_t rest;
    int from;

    if (position < list->num_matched) {
        return bit_at(list->matched, position);
    }
    position -= list->num_matched;
    for (rest = ports->crossing ? list->from : 0; rest != 0; rest &= rest - 1) {
        from = __builtin_ctz(rest);
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

int mpath_ports_via_of(const mpath_ports_t *ports, int source, int destination, int path)
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

mpath_status_t mpath_ports_emit(const mpath_ports_t *ports, mpath_plan_t *plan)
{
    mpath_status_t status = mpath_moves_emit(&ports->moves, plan, ports->demand, ports->num_ranks, ports->num_pairs,
                                             path_number, ports);

    if (status == MPATH_OK) {
        memcpy(plan->loads, ports->load, (size_t)ports->num_resources * sizeof(*plan->loads));
        plan->relayed_bytes = ports->relayed_bytes;
    }
    return status;
}
