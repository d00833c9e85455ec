/* SPDX-License-Identifier: BSD-3-Clause */
/* Flows and loads of a plan on ports: rows without moves are written straight, the others pair by pair. */
#include "plan/ports.h"

#include <string.h>

/* Ranks of a mesh that can relay for a pair and come before the GPU. */
static int relays_before(const mpath_ports_t *ports, int source, int destination, int gpu)
{
    uint32_t relays = ports->nodes[ports->ports[source].node].occupied;

    relays &= ~(1u << ports->gpu[source]) & ~(1u << ports->gpu[destination]);
    return __builtin_popcount(relays & ((1u << gpu) - 1));
}

/* The slot of the static route where it goes over one rail; -1: it crosses. */
static int static_slot(const mpath_ports_t *ports, int source, int destination)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    mpath_ports_route_t route;
    int slot, i, driver;

    if (!ports->loose) {
        return ports->crossing && s->slot != d->slot ? -1 : s->slot;
    }
    mpath_ports_ask_static(ports, source, destination, &route);
    for (slot = 0; slot < ports->num_slots; slot++) {
        if (!mpath_ports_has_route(ports, source, destination, slot)) {
            continue;
        }
        driver = mpath_ports_driver(ports, s->node, slot);
        for (i = 0; i < route.num_resources && route.resources[i] != ports->ports[driver].tx; i++) {
        }
        if (i == route.num_resources) {
            continue;
        }
        driver = mpath_ports_driver(ports, d->node, slot);
        for (i = 0; i < route.num_resources && route.resources[i] != ports->ports[driver].rx; i++) {
        }
        if (i < route.num_resources) {
            return slot;
        }
    }
    return -1;
}

/* Number of the pair's path by `via`: the static route, then slots in rail order, or relays in GPU order and staged. */
static int path_number(const mpath_ports_t *ports, int source, int destination, int via)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    int fixed, position, slot;

    if (s->node == d->node) {
        if (ports->nodes[s->node].link != MPATH_GPU_LINK_MESH) {
            return 1;
        }
        return 1 + relays_before(ports, source, destination,
                                 via == mpath_ports_staged(ports)
                                     ? MPATH_MAX_GPUS
                                     : ports->gpu[mpath_ports_driver(ports, s->node, via)]);
    }
    fixed    = static_slot(ports, source, destination);
    position = via;
    for (slot = 0; slot < via && ports->loose; slot++) {
        position -= !mpath_ports_has_route(ports, source, destination, slot);
    }
    return fixed < 0 || via < fixed ? position + 1 : position; /* a static route that crosses is none of the slots' */
}

/* Whether the pair may go by a slot, and its static route does not. */
static int is_detour(const mpath_ports_t *ports, int source, int destination, int via)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];

    if (s->node == d->node) {
        return via == mpath_ports_staged(ports) ||
               (ports->nodes[s->node].link == MPATH_GPU_LINK_MESH && via != s->slot && via != d->slot);
    }
    return via < ports->num_slots && mpath_ports_has_route(ports, source, destination, via) &&
           via != static_slot(ports, source, destination);
}

int mpath_ports_via_of(const mpath_ports_t *ports, int source, int destination, int path)
{
    int via;

    for (via = 0; via <= mpath_ports_staged(ports); via++) {
        if (is_detour(ports, source, destination, via) && path_number(ports, source, destination, via) == path) {
            return via;
        }
    }
    return MPATH_PORTS_STATIC;
}

static void emit_row(const mpath_ports_t *ports, mpath_plan_t *plan, int source, const uint64_t *demand)
{
    mpath_flow_t *flow = &plan->flows[plan->num_flows];
    int destination;

    for (destination = 0; destination < ports->num_ranks; destination++) {
        flow->source      = source;
        flow->destination = destination;
        flow->path        = 0;
        flow->reserved    = 0;
        flow->offset      = 0;
        flow->bytes       = demand[destination];
        flow += demand[destination] != 0 && destination != source;
    }
    plan->num_flows = (size_t)(flow - plan->flows);
}

/* What did not move comes first. */
static void emit_pair(const mpath_ports_t *ports, mpath_plan_t *plan, int source, int destination, uint64_t bytes)
{
    uint32_t move  = ports->head[mpath_ports_pair(ports, source, destination)];
    uint64_t moved = 0, offset, by_via[MPATH_PORTS_MAX_SLOTS + 1] = {0};
    int via;

    for (; move != 0; move = ports->moves[move].next) {
        by_via[ports->moves[move].via] += ports->moves[move].bytes;
        moved += ports->moves[move].bytes;
    }
    offset = bytes - moved;
    if (offset > 0) {
        mpath_plan_append(plan, source, destination, 0, 0, offset);
    }
    for (via = 0; via <= mpath_ports_staged(ports) && moved > 0; via++) {
        if (by_via[via] > 0) {
            mpath_plan_append(plan, source, destination, path_number(ports, source, destination, via), offset,
                              by_via[via]);
            offset += by_via[via];
            moved -= by_via[via];
        }
    }
}

mpath_status_t mpath_ports_emit(const mpath_ports_t *ports, mpath_plan_t *plan)
{
    const uint64_t *demand = ports->demand;
    const uint32_t *head;
    mpath_status_t status;
    int source, destination;

    /* one more: a row is written before it is known whether its last entry counts */
    status = mpath_plan_reserve(plan, ports->num_pairs + ports->num_moves + 1);
    if (status != MPATH_OK) {
        return status;
    }
    for (source = 0; source < ports->num_ranks; source++, demand += ports->num_ranks) {
        if (!ports->row_moves[source]) {
            emit_row(ports, plan, source, demand);
            continue;
        }
        head = ports->head + mpath_ports_pair(ports, source, 0);
        for (destination = 0; destination < ports->num_ranks; destination++) {
            if (head[destination] != 0) {
                emit_pair(ports, plan, source, destination, demand[destination]);
            } else if (demand[destination] > 0 && destination != source) {
                mpath_plan_append(plan, source, destination, 0, 0, demand[destination]);
            }
        }
    }
    memcpy(plan->loads, ports->load, (size_t)ports->num_resources * sizeof(*plan->loads));
    plan->relayed_bytes = ports->relayed_bytes;
    return MPATH_OK;
}
