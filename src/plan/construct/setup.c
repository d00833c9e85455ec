/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a topology as ports and lanes; counts the bytes of the static routes; the cuts. */
#include "plan/construct/construct.h"

#include <stdlib.h>
#include <string.h>

/* Loads of the static routes, in one pass over the demand. */

/* Adds a row to the bytes of each destination; returns its sum. */
static uint64_t add_row(uint64_t *restrict column, const uint64_t *restrict demand, int num_ranks, size_t *num_pairs)
{
    uint64_t sum = 0;
    size_t pairs = 0;
    int i;

    for (i = 0; i < num_ranks; i++) {
        column[i] += demand[i];
        sum += demand[i];
        pairs += demand[i] != 0;
    }
    *num_pairs += pairs;
    return sum;
}

static void load_leg(mpath_ports_t *ports, int from, int to, uint64_t bytes)
{
    mpath_ports_route_t leg;
    int i;

    leg.num_resources = 0;
    mpath_ports_add_leg(ports, &leg, from, to);
    for (i = 0; i < leg.num_resources; i++) {
        ports->load[leg.resources[i]] += bytes;
    }
}

/* The pairs of a row that stay on the node; what goes by ports is added later, in sums. */
static void add_local_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    const mpath_port_t *s          = &ports->ports[source];
    const mpath_ports_node_t *node = &ports->nodes[s->node];
    const int32_t *member = ports->members + node->first, *end = member + node->num_ranks;
    uint64_t bytes, local                                      = 0;
    uint32_t link;

    for (; member < end; member++) {
        bytes = *member == source ? 0 : demand[*member];
        local += bytes;
        ports->local_in[*member] += bytes;
        if (node->by_port || bytes == 0 || ports->on_hosts) {
            continue;
        }
        link = node->link == MPATH_GPU_LINK_MESH ? mpath_ports_link(ports, s, &ports->ports[*member])
                                                 : MPATH_PORTS_NONE;
        if (link != MPATH_PORTS_NONE) {
            ports->load[link] += bytes;
        } else {
            load_leg(ports, source, *member, bytes);
        }
    }
    ports->local_out[source] = local;
    ports->load[node->memory] += ports->on_hosts ? local : 0;
}

/* Those to other nodes of the NVSwitch. */
static void add_linked_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    const mpath_port_t *s = &ports->ports[source], *d;
    int destination;
    uint64_t bytes;

    for (destination = 0; destination < ports->num_ranks; destination++) {
        bytes = demand[destination];
        if (bytes > 0 && mpath_ports_is_linked(ports, source, destination)) {
            d = &ports->ports[destination];
            ports->load[s->egress] += bytes;
            ports->load[d->ingress] += bytes;
            ports->linked_out[source] += bytes;
            ports->linked_in[destination] += bytes;
        }
    }
}

/* One pair over rails; 0: it has no route. */
static int add_odd(mpath_ports_t *ports, int source, int destination, uint64_t bytes)
{
    mpath_ports_route_t route;
    int i;

    if (bytes == 0 || mpath_ports_is_linked(ports, source, destination)) {
        return 1;
    }
    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &route);
    for (i = 0; i < route.num_resources; i++) {
        ports->load[route.resources[i]] += bytes;
    }
    ports->relayed_bytes += bytes * (uint64_t)route.num_relays;
    ports->odd_out[source] += bytes;
    ports->odd_in[destination] += bytes;
    return route.num_resources > 0;
}

/* All pairs of a row to a node, or with `only_odd` those whose destination has no NIC; 0: one has no route. */
static int add_odd_node(mpath_ports_t *ports, int source, const mpath_ports_node_t *node, const uint64_t *demand,
                        int only_odd)
{
    int i;

    for (i = node->first; i < node->first + node->num_ranks; i++) {
        if ((!only_odd || ports->ports[ports->members[i]].slot < 0) &&
            !add_odd(ports, source, ports->members[i], demand[ports->members[i]])) {
            return 0;
        }
    }
    return 1;
}

/* Where routes cross, all but those to and from ranks without a NIC are added later, in sums. */
static int add_crossing_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    int node, only_odd = ports->ports[source].slot >= 0;

    for (node = 0; node < ports->num_nodes; node++) {
        if (node != ports->ports[source].node && !add_odd_node(ports, source, &ports->nodes[node], demand, only_odd)) {
            return 0;
        }
    }
    return 1;
}

/* To a node that has the source's slot: received there, and forwarded by its driver. */
static void add_matched_node(mpath_ports_t *ports, int source, const mpath_ports_node_t *node, const uint64_t *demand)
{
    int slot = ports->ports[source].slot, i, destination, driver;
    const mpath_ports_lane_t *lane;
    uint64_t bytes;

    for (i = node->first; i < node->first + node->num_ranks; i++) {
        destination = ports->members[i];
        bytes       = demand[destination];
        if (bytes == 0 || mpath_ports_is_linked(ports, source, destination)) {
            continue;
        }
        driver = mpath_ports_driver(ports, destination, slot, source, destination);
        lane   = mpath_ports_lane(ports, ports->ports[driver].node, slot);
        ports->load[lane->rx] += bytes;
        if (!ports->on_hosts) {
            ports->load[ports->ports[driver].down] += bytes;
        }
        if (driver != destination) {
            ports->relayed_bytes += bytes;
            load_leg(ports, driver, destination, bytes);
        }
    }
}

static int add_matched_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    int slot = ports->ports[source].slot, node;

    for (node = 0; node < ports->num_nodes; node++) {
        if (node == ports->ports[source].node || ports->nodes[node].num_ranks == 0) {
            continue;
        }
        if (slot >= 0 && ((ports->nodes[node].lanes >> slot) & 1)) {
            add_matched_node(ports, source, &ports->nodes[node], demand);
        } else if (!add_odd_node(ports, source, &ports->nodes[node], demand, 0)) {
            return 0;
        }
    }
    return 1;
}

/* Bytes of a row to the ranks of a node, and the number of its pairs with bytes, which is added. */
static inline uint64_t sum_node(const mpath_ports_t *ports, const mpath_ports_node_t *node, const uint64_t *demand,
                                size_t *num_pairs)
{
    const int32_t *member = ports->members + node->first;
    const uint64_t *bytes = demand + node->run;
    int i = 0, num_run = node->run < 0 ? 0 : node->num_ranks;
    uint64_t sum = 0;
    size_t pairs = 0;

    for (; i + 1 < num_run; i += 2) {
        sum += bytes[i] + bytes[i + 1];
        pairs += (size_t)(bytes[i] != 0) + (bytes[i + 1] != 0);
    }
    for (; i < node->num_ranks; i++) {
        sum += demand[member[i]];
        pairs += demand[member[i]] != 0;
    }
    *num_pairs += pairs;
    return sum;
}

/* Of the bytes of a row to a node those that the ranks beside its NIC receive for others, through its memory. */
static uint64_t relayed_in(const mpath_ports_t *ports, const mpath_ports_lane_t *lane, const uint64_t *demand,
                           uint64_t bytes)
{
    int i;

    for (i = 0; i < lane->count; i++) {
        bytes -= demand[lane->count == 1 ? lane->driver : ports->drivers[lane->driver + i]];
    }
    return bytes;
}

/* A row of ranks on hosts whose routes do not cross, in sums over nodes: by lane and node. 0: a pair has no route. */
static int add_row_by_nodes(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    const mpath_port_t *s          = &ports->ports[source];
    const mpath_ports_node_t *node = ports->nodes;
    uint64_t *by_lane              = ports->by_lane + (size_t)(s->slot < 0 ? 0 : s->slot) * (size_t)ports->num_nodes;
    int n, num_nodes = ports->num_nodes, is_regular = s->slot >= 0 && ports->uniform, relays = !ports->all_drive;
    uint64_t bytes, out = 0;
    size_t pairs = 0;

    for (n = 0; n < num_nodes; n++, node++) {
        bytes = sum_node(ports, node, demand, &pairs);
        if (n == s->node) {
            bytes -= demand[source];
            ports->local_out[source] = bytes;
            ports->load[node->memory] += bytes;
            continue;
        }
        out += bytes;
        if (is_regular || (s->slot >= 0 && ((node->lanes >> s->slot) & 1))) {
            by_lane[n] += bytes;
            if (relays) {
                ports->relayed[n] += relayed_in(ports, mpath_ports_lane(ports, n, s->slot), demand, bytes);
            }
        } else if (bytes > 0) {
            ports->node_bytes[2 * n + 1] += bytes;
            if (!add_odd_node(ports, source, node, demand, 0)) {
                return 0;
            }
        }
    }
    ports->num_pairs += pairs - (demand[source] != 0);
    ports->node_bytes[2 * s->node] += out;
    if (s->slot >= 0) {
        ports->load[s->tx] += out - ports->odd_out[source];
    }
    return 1;
}

/* What the rows have summed up. */
static void add_nodes(mpath_ports_t *ports)
{
    const uint64_t *by_lane = ports->by_lane;
    int slot, n;

    for (slot = 0; slot < ports->num_slots; slot++) {
        for (n = 0; n < ports->num_nodes; n++, by_lane++) {
            if (*by_lane > 0) {
                ports->load[mpath_ports_lane(ports, n, slot)->rx] += *by_lane;
                ports->node_bytes[2 * n + 1] += *by_lane;
            }
        }
    }
    for (n = 0; n < ports->num_nodes; n++) {
        ports->load[ports->nodes[n].memory] += ports->relayed[n];
        ports->relayed_bytes += ports->relayed[n];
    }
}

/* What the rank's own NIC sends and, where routes cross, receives. */
static void add_own_nic(mpath_ports_t *ports, int rank)
{
    const mpath_port_t *port       = &ports->ports[rank];
    const mpath_ports_node_t *node = &ports->nodes[port->node];
    uint64_t out = ports->remote_out[rank] - ports->odd_out[rank], in = ports->remote_in[rank] - ports->odd_in[rank];

    if (node->uplink_tx != MPATH_PORTS_NONE) {
        ports->load[node->uplink_tx] += out;
        ports->load[node->uplink_rx] += in;
    }
    if (port->slot < 0) {
        return;
    }
    ports->load[port->tx] += out;
    if (ports->crossing) {
        ports->load[port->rx] += in;
    }
    if (!ports->on_hosts) {
        ports->load[port->up] += out;
        ports->load[port->down] += ports->crossing ? in : 0;
    }
}

/* Bytes by ports, and those between nodes, once all rows are summed up. */
static void add_sums(mpath_ports_t *ports, int rank)
{
    const mpath_port_t *port = &ports->ports[rank];
    uint64_t *bytes          = &ports->node_bytes[2 * port->node];

    if (ports->nodes[port->node].by_port) {
        ports->load[port->egress] += ports->local_out[rank];
        ports->load[port->ingress] += ports->local_in[rank];
    }

    ports->remote_out[rank] -= ports->local_out[rank] + ports->linked_out[rank];
    ports->remote_in[rank] -= ports->demand[(size_t)rank * (size_t)(ports->num_ranks + 1)] + ports->local_in[rank] +
                              ports->linked_in[rank];
    bytes[0] += ports->remote_out[rank];
    bytes[1] += ports->remote_in[rank];
    if (!ports->one_node) {
        add_own_nic(ports, rank);
    }
}

static int add_whole_row(mpath_ports_t *ports, int rank, const uint64_t *demand)
{
    ports->remote_out[rank] = add_row(ports->remote_in, demand, ports->num_ranks, &ports->num_pairs);
    ports->remote_out[rank] -= demand[rank];
    ports->num_pairs -= demand[rank] != 0;
    add_local_row(ports, rank, demand);
    if (ports->has_domains) {
        add_linked_row(ports, rank, demand);
    }
    if (ports->one_node) {
        return 1;
    }
    if (!ports->crossing) {
        return add_matched_row(ports, rank, demand);
    }
    return ports->uniform || add_crossing_row(ports, rank, demand);
}

mpath_status_t mpath_ports_count(mpath_ports_t *ports)
{
    int rank, by_nodes = ports->on_hosts && !ports->crossing, has_routes = 1;
    const uint64_t *demand = ports->demand;

    for (rank = 0; rank < ports->num_ranks && has_routes; rank++, demand += ports->num_ranks) {
        has_routes = by_nodes ? add_row_by_nodes(ports, rank, demand) : add_whole_row(ports, rank, demand);
    }
    if (by_nodes) {
        add_nodes(ports);
    }
    for (rank = 0; rank < ports->num_ranks && !by_nodes; rank++) {
        add_sums(ports, rank);
    }
    return has_routes ? MPATH_OK : MPATH_DECLINED;
}

/* The cuts: what ports, NICs and nodes must carry whatever the routes are. */

mpath_ratio_t mpath_ports_z(mpath_ports_t *ports)
{
    const uint64_t *load = ports->load, *capacity = ports->capacity;
    mpath_ratio_t z = {0, 1}, ratio;
    int r, at = -1;

    if (ports->z.den != 0) {
        return ports->z;
    }
    for (r = 0; r < ports->num_resources; r++) {
        ratio.num = load[r];
        ratio.den = capacity[r];
        if (ratio.num <= z.num && ratio.den >= z.den) {
            continue; /* most of them, without a product */
        }
        if (ratio.den == z.den ? ratio.num > z.num : mpath_ratio_less(z, ratio)) { /* many are alike */
            z  = ratio;
            at = r;
        }
    }
    ports->z          = z;
    ports->bottleneck = at;
    return z;
}

static void raise(mpath_ratio_t *bound, uint64_t bytes, uint64_t rate_bps)
{
    mpath_ratio_t ratio = {bytes, rate_bps};

    if (bytes > 0 && rate_bps > 0) {
        *bound = mpath_ratio_max(*bound, ratio);
    }
}

/*
 * Into (or out of) the ranks: everything passes a rank's peer links or its PCIe link, and what comes from other nodes its
 * peer links or its own NICs. Of ranks that are as fast, the one with the most bytes counts.
 */
static void cut_ranks(const mpath_ports_t *ports, int into, mpath_ratio_t *bound)
{
    const mpath_ports_rates_t *rates = ports->rates + into * ports->num_ranks;
    const uint64_t *local            = into ? ports->local_in : ports->local_out;
    const uint64_t *linked           = into ? ports->linked_in : ports->linked_out;
    const uint64_t *remote           = into ? ports->remote_in : ports->remote_out;
    uint64_t most = 0, most_far = 0, bytes;
    int rank;

    for (rank = 0; rank < ports->num_ranks; rank++) {
        bytes    = local[rank] + linked[rank] + remote[rank];
        most     = bytes > most ? bytes : most;
        most_far = remote[rank] > most_far ? remote[rank] : most_far;
        if (rates[rank].is_last) {
            raise(bound, most, rates[rank].all);
            raise(bound, most_far, rates[rank].far);
            most = most_far = 0;
        }
    }
}

/* Host memory, where it is the only path between ranks of a node. */
static void cut_memory(const mpath_ports_t *ports, int node, mpath_ratio_t *bound)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    uint64_t bytes              = 0;
    int i;

    for (i = n->first; i < n->first + n->num_ranks; i++) {
        bytes += ports->local_out[ports->members[i]];
    }
    raise(bound, bytes, ports->capacity[n->memory]);
}

mpath_ratio_t mpath_ports_cuts(const mpath_ports_t *ports)
{
    mpath_ratio_t bound = {0, 1};
    int i;

    for (i = 0; i < ports->num_nodes; i++) {
        raise(&bound, ports->node_bytes[2 * i], ports->node_rate[2 * i]);
        raise(&bound, ports->node_bytes[2 * i + 1], ports->node_rate[2 * i + 1]);
        if (ports->nodes[i].link == MPATH_GPU_LINK_NONE) {
            cut_memory(ports, i, &bound);
        }
    }
    if (!ports->on_hosts) {
        cut_ranks(ports, 0, &bound);
        cut_ranks(ports, 1, &bound);
    }
    return bound;
}

#define NO_SLOT (-1)

/* NICs of a node that are up, as a mask. */
static uint64_t nics_up(const mpath_machine_t *machine)
{
    uint64_t mask = 0;
    int nic;

    for (nic = 0; nic < machine->num_nics; nic++) {
        mask |= machine->nics[nic].up ? 1ull << nic : 0;
    }
    return mask;
}

/* Whether nodes have memory and NICs and nothing else that paths consume. */
static int has_only_rails(const mpath_topo_t *topo)
{
    int resources = 0, node;

    for (node = 0; node < mpath_topo_num_nodes(topo); node++) {
        resources += 1 + 2 * mpath_topo_machine(topo, node)->num_nics;
    }
    return resources == mpath_topo_num_resources(topo);
}

static void read_nodes(mpath_ports_t *ports)
{
    const mpath_node_gpus_t *gpus;
    mpath_ports_node_t *n;
    int node;

    for (node = 0; node < ports->num_nodes; node++) {
        gpus      = mpath_topo_gpus(ports->topo, node);
        n         = &ports->nodes[node];
        n->memory = n->uplink_tx = n->uplink_rx = MPATH_PORTS_NONE;
        n->domain                               = -1;
        if (ports->on_hosts) {
            n->link = MPATH_GPU_LINK_NONE;
            continue;
        }
        n->link    = gpus->link;
        n->by_port = 1;
        n->domain  = gpus->link == MPATH_GPU_LINK_SWITCH ? gpus->domain : -1;
        ports->has_mesh |= gpus->link == MPATH_GPU_LINK_MESH;
        ports->has_domains |= n->domain >= 0;
        ports->has_switch |= gpus->link == MPATH_GPU_LINK_SWITCH;
        ports->gpus_per_node = gpus->num_gpus > ports->gpus_per_node ? gpus->num_gpus : ports->gpus_per_node;
    }
}

/* Seats a rank on its GPU; 0: it has none for itself, or may not relay. */
static int take_seat(mpath_ports_t *ports, int rank, const mpath_place_t *place)
{
    int32_t *seat;

    if (place->gpu < 0 || place->no_relay || place->gpu >= mpath_topo_gpus(ports->topo, place->node)->num_gpus) {
        return 0;
    }
    seat = &ports->on_gpu[place->node * ports->gpus_per_node + place->gpu];
    if (*seat >= 0) {
        return 0;
    }
    *seat = rank;
    return 1;
}

/* NICs that a rank drives itself. */
static uint64_t nics_of(const mpath_ports_t *ports, int rank, const mpath_place_t *place)
{
    if (!ports->on_hosts) {
        return mpath_topo_nics_beside(ports->topo, rank);
    }
    if (mpath_topo_params(ports->topo)->access == MPATH_REACH_ALL) {
        return UINT64_MAX;
    }
    return place->nic >= 0 ? 1ull << place->nic : 0;
}

/* Groups the ranks by node. */
static void list_members(mpath_ports_t *ports)
{
    int rank, n, next = 0, used = 0;
    mpath_ports_node_t *node;
    const int32_t *member;

    for (n = 0; n < ports->num_nodes; n++) {
        ports->nodes[n].first = next;
        next += ports->nodes[n].num_ranks;
        used += ports->nodes[n].num_ranks > 0;
    }
    for (rank = 0; rank < ports->num_ranks; rank++) {
        ports->members[ports->nodes[ports->ports[rank].node].first++] = rank;
    }
    for (n = 0; n < ports->num_nodes; n++) {
        node = &ports->nodes[n];
        node->first -= node->num_ranks;
        member    = ports->members + node->first;
        node->run = node->num_ranks > 0 && member[node->num_ranks - 1] - member[0] == node->num_ranks - 1 ? member[0]
                                                                                                          : -1;
    }
    ports->one_node = used < 2;
}

/* Seats the ranks; 0 unless each has a GPU of its own, or none has, and reaches all lanes. */
static int read_seats(mpath_ports_t *ports)
{
    const mpath_place_t *place;
    mpath_port_t *port;
    uint64_t up = 0;
    int rank, node = -1;

    if (!ports->on_hosts && mpath_topo_reach_is_limited(ports->topo)) {
        return 0;
    }
    memset(ports->on_gpu, 0xff, (size_t)ports->num_nodes * (size_t)ports->gpus_per_node * sizeof(*ports->on_gpu));
    for (rank = 0; rank < ports->num_ranks; rank++) {
        place = mpath_topo_place(ports->topo, rank);
        if (!ports->on_hosts && !take_seat(ports, rank, place)) {
            return 0;
        }
        up           = place->node == node ? up : nics_up(mpath_topo_machine(ports->topo, place->node));
        node         = place->node;
        port         = &ports->ports[rank];
        port->node   = node;
        port->gpu    = ports->on_hosts ? -1 : place->gpu;
        port->nics   = nics_of(ports, rank, place) & up;
        port->slot   = port->nics == 0 || ports->on_hosts ? NO_SLOT : __builtin_ctzll(port->nics);
        port->slot   = place->nic >= 0 && ((up >> place->nic) & 1) ? place->nic : port->slot;
        port->egress = port->ingress = port->up = port->down = MPATH_PORTS_NONE;
        ports->nodes[node].num_ranks++;
    }
    list_members(ports);
    return 1;
}

/* The rails beside ranks get slots, in their order. */
static void number_slots(mpath_ports_t *ports, int8_t *slot_of_rail)
{
    const mpath_machine_t *machine;
    uint64_t all = 0;
    uint64_t nics;
    int rank;

    for (rank = 0; rank < ports->num_ranks && !ports->one_node; rank++) {
        machine = mpath_topo_machine(ports->topo, ports->ports[rank].node);
        for (nics = ports->ports[rank].nics; nics != 0; nics &= nics - 1) {
            all |= 1ull << machine->nics[__builtin_ctzll(nics)].rail;
        }
    }
    memset(slot_of_rail, NO_SLOT, MPATH_MAX_RAILS);
    for (; all != 0; all &= all - 1) {
        slot_of_rail[__builtin_ctzll(all)] = (int8_t)ports->num_slots++;
    }
}

/* From NICs to slots, and how many ranks drive each lane. */
static void take_slots(mpath_ports_t *ports, const int8_t *slot_of_rail)
{
    const mpath_machine_t *machine;
    mpath_port_t *port;
    mpath_nic_set_t slots, all = 0;
    uint64_t nics;
    int rank, node;

    ports->uniform = ports->single = 1;
    ports->all_drive               = ports->on_hosts && mpath_topo_params(ports->topo)->access == MPATH_REACH_ALL;
    for (rank = 0; rank < ports->num_ranks && !ports->one_node; rank++) {
        port        = &ports->ports[rank];
        machine     = mpath_topo_machine(ports->topo, port->node);
        port->slots = 0;
        port->slot  = port->slot < 0 ? NO_SLOT : slot_of_rail[machine->nics[port->slot].rail];
        ports->uniform &= port->slot >= 0;
        ports->single &= (port->nics & (port->nics - 1)) == 0;
        for (nics = port->nics; nics != 0; nics &= nics - 1) {
            port->slots |= UINT64_C(1) << slot_of_rail[machine->nics[__builtin_ctzll(nics)].rail];
        }
        ports->nodes[port->node].lanes |= port->slots;
        all |= port->slots;
        for (slots = port->slots; slots != 0; slots &= slots - 1) {
            ports->lanes[port->node * ports->num_slots + __builtin_ctzll(slots)].count++;
        }
    }
    for (node = 0; node < ports->num_nodes; node++) {
        ports->uniform &= ports->nodes[node].num_ranks == 0 || ports->nodes[node].lanes == all;
    }
}

/* Lists the drivers of the lanes, ranks in order. */
static void list_drivers(mpath_ports_t *ports)
{
    int lane, num_lanes = ports->num_nodes * ports->num_slots, next = 0, rank;
    mpath_ports_lane_t *l;
    mpath_nic_set_t slots;

    for (lane = 0; lane < num_lanes; lane++) {
        ports->lanes[lane].driver = next;
        next += ports->lanes[lane].count;
    }
    for (rank = 0; rank < ports->num_ranks && !ports->one_node; rank++) {
        for (slots = ports->ports[rank].slots; slots != 0; slots &= slots - 1) {
            l = &ports->lanes[ports->ports[rank].node * ports->num_slots + __builtin_ctzll(slots)];
            ports->drivers[l->driver++] = rank;
        }
    }
    for (lane = 0; lane < num_lanes; lane++) {
        l = &ports->lanes[lane];
        l->driver -= l->count;
        l->driver = l->count == 1 ? ports->drivers[l->driver] : l->driver;
    }
}

/* The resource that a NIC's lane has under `number`; NULL: the NIC is in no lane. */
static mpath_ports_lane_t *lane_of(mpath_ports_t *ports, const mpath_resource_t *resource, const int8_t *slot_of_rail)
{
    const mpath_nic_t *nic = &mpath_topo_machine(ports->topo, resource->node)->nics[resource->index];
    int slot               = slot_of_rail[nic->rail];
    mpath_ports_lane_t *lane;

    if (!nic->up || slot == NO_SLOT) {
        return NULL;
    }
    lane = &ports->lanes[resource->node * ports->num_slots + slot];
    return lane->count > 0 ? lane : NULL;
}

static void take_nic(mpath_ports_t *ports, uint32_t r, const mpath_resource_t *resource, const int8_t *slot_of_rail)
{
    mpath_ports_lane_t *lane = ports->one_node ? NULL : lane_of(ports, resource, slot_of_rail);

    if (lane != NULL && resource->kind == MPATH_RESOURCE_NIC_TX) {
        lane->tx = r;
    } else if (lane != NULL) {
        lane->rx = r;
    }
}

static void take_link(mpath_ports_t *ports, uint32_t r, const mpath_resource_t *resource, mpath_port_t *port)
{
    int peer = ports->on_gpu[resource->node * ports->gpus_per_node + resource->peer];

    if (peer >= 0) {
        ports->links[(port->node * ports->gpus_per_node + port->gpu) * ports->gpus_per_node + resource->peer] = r;
        port->links_to |= 1u << resource->peer;
        ports->ports[peer].links_from |= 1u << port->gpu;
    }
}

static void take_gpu(mpath_ports_t *ports, uint32_t r, const mpath_resource_t *resource)
{
    int rank = ports->on_gpu[resource->node * ports->gpus_per_node + resource->index];
    mpath_port_t *port;

    if (rank < 0) {
        return;
    }
    port = &ports->ports[rank];
    switch (resource->kind) {
    case MPATH_RESOURCE_PCIE_UP:
        port->up = r;
        break;
    case MPATH_RESOURCE_PCIE_DOWN:
        port->down = r;
        break;
    case MPATH_RESOURCE_GPU_EGRESS:
        port->egress = r;
        break;
    case MPATH_RESOURCE_GPU_INGRESS:
        port->ingress = r;
        break;
    default:
        take_link(ports, r, resource, port);
        break;
    }
}

/* The numbers of the resources, by rank, lane and node. PCIe nodes copy over the links that NICs use too. */
static void read_resources(mpath_ports_t *ports, const int8_t *slot_of_rail)
{
    mpath_port_t *port;
    int rank, r;

    for (r = 0; r < ports->num_resources; r++) {
        const mpath_resource_t resource = mpath_topo_resource(ports->topo, r);

        ports->capacity[r] = resource.capacity_bps;
        switch (resource.kind) {
        case MPATH_RESOURCE_HOST_MEMORY:
            ports->nodes[resource.node].memory = (uint32_t)r;
            break;
        case MPATH_RESOURCE_UPLINK_TX:
            ports->nodes[resource.node].uplink_tx = (uint32_t)r;
            break;
        case MPATH_RESOURCE_UPLINK_RX:
            ports->nodes[resource.node].uplink_rx = (uint32_t)r;
            break;
        case MPATH_RESOURCE_NIC_TX:
        case MPATH_RESOURCE_NIC_RX:
            take_nic(ports, (uint32_t)r, &resource, slot_of_rail);
            break;
        default:
            take_gpu(ports, (uint32_t)r, &resource);
            break;
        }
    }
    for (rank = 0; rank < ports->num_ranks; rank++) {
        port = &ports->ports[rank];
        if (ports->nodes[port->node].link == MPATH_GPU_LINK_PCIE) {
            port->egress  = port->up;
            port->ingress = port->down;
        }
        ports->nodes[port->node].by_port &= ports->nodes[port->node].link != MPATH_GPU_LINK_MESH &&
                                            port->egress != MPATH_PORTS_NONE && port->ingress != MPATH_PORTS_NONE;
        if (port->slot >= 0 && !ports->one_node) {
            port->tx = mpath_ports_lane(ports, port->node, port->slot)->tx;
            port->rx = mpath_ports_lane(ports, port->node, port->slot)->rx;
        }
    }
}

/* How fast bytes go into and out of ranks and nodes at most: what the cuts compare with. */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#define ENDLESS (1ull << 50) /* more than any resource */

/* The PCIe link of a rank, or what has no end where it is on no GPU. */
static uint64_t link_rate(const mpath_ports_t *ports, const mpath_port_t *port, int into)
{
    return ports->on_hosts ? ENDLESS : ports->capacity[into ? port->down : port->up];
}

/* What peer copies into or out of a rank can use together; 0: none but over PCIe. */
static uint64_t peer_rate(const mpath_ports_t *ports, int rank, int into)
{
    const mpath_port_t *port = &ports->ports[rank], *other;
    uint32_t resource        = into ? port->ingress : port->egress, gpus;
    uint64_t rate            = 0;

    if (ports->nodes[port->node].link != MPATH_GPU_LINK_MESH) {
        return resource == MPATH_PORTS_NONE || resource == port->up || resource == port->down
                   ? 0
                   : ports->capacity[resource];
    }
    for (gpus = into ? port->links_from : port->links_to; gpus != 0; gpus &= gpus - 1) {
        other = &ports->ports[ports->on_gpu[port->node * ports->gpus_per_node + __builtin_ctz(gpus)]];
        rate += ports->capacity[into ? mpath_ports_link(ports, other, port) : mpath_ports_link(ports, port, other)];
    }
    return rate;
}

/* What the NICs beside a rank and the PCIe link behind them can do. */
static uint64_t own_nics_rate(const mpath_ports_t *ports, const mpath_port_t *port, int into)
{
    const mpath_ports_lane_t *lane;
    uint64_t rate = 0;
    mpath_nic_set_t slots;

    for (slots = port->slots; slots != 0 && !ports->one_node; slots &= slots - 1) {
        lane = mpath_ports_lane(ports, port->node, __builtin_ctzll(slots));
        rate += ports->capacity[into ? lane->rx : lane->tx];
    }
    return least(rate, link_rate(ports, port, into));
}

static void set_rank_rates(mpath_ports_t *ports, int rank, int into)
{
    const mpath_port_t *port   = &ports->ports[rank];
    mpath_ports_rates_t *rates = &ports->rates[into * ports->num_ranks + rank];
    uint64_t peer              = peer_rate(ports, rank, into);

    rates->all     = peer + link_rate(ports, port, into);
    rates->far     = peer > 0 ? peer + own_nics_rate(ports, port, into) : 0;
    rates->is_last = 1;
    if (rank > 0) {
        rates[-1].is_last = rates[-1].all != rates->all || rates[-1].far != rates->far;
    }
}

/* What the NICs of a slot can do on all nodes but one: at the other ends of that node's routes over the slot. */
static uint64_t others_rate(const mpath_ports_t *ports, const uint64_t *all, int node, int slot, int into)
{
    const mpath_ports_lane_t *lane = mpath_ports_lane(ports, node, slot);

    return all[2 * slot + !into] - ports->capacity[into ? lane->tx : lane->rx];
}

/*
 * The NICs of a node, each no faster than the PCIe links it is reached by and, without a spine, than those of its rail on
 * the other nodes: `all` has these by slot, sending and receiving.
 */
static uint64_t lanes_rate(const mpath_ports_t *ports, const uint64_t *all, int node, int into)
{
    const mpath_ports_lane_t *lane;
    uint64_t rate = 0, here, links;
    int slot, i, driver;

    for (slot = 0; slot < ports->num_slots; slot++) {
        lane = mpath_ports_lane(ports, node, slot);
        if (lane->count == 0) {
            continue;
        }
        for (i = 0, links = 0; i < lane->count; i++) {
            driver = lane->count == 1 ? lane->driver : ports->drivers[lane->driver + i];
            links += link_rate(ports, &ports->ports[driver], into);
        }
        here = least(links, ports->capacity[into ? lane->rx : lane->tx]);
        rate += ports->has_spine ? here : least(here, others_rate(ports, all, node, slot, into));
    }
    return rate;
}

static void sum_lanes(const mpath_ports_t *ports, uint64_t *all)
{
    const mpath_ports_lane_t *lane;
    int node, slot;

    memset(all, 0, 2 * MPATH_PORTS_MAX_SLOTS * sizeof(*all));
    for (node = 0; node < ports->num_nodes; node++) {
        for (slot = 0; slot < ports->num_slots; slot++) {
            lane = mpath_ports_lane(ports, node, slot);
            if (lane->count > 0) {
                all[2 * slot] += ports->capacity[lane->tx];
                all[2 * slot + 1] += ports->capacity[lane->rx];
            }
        }
    }
}

/* The least of the NICs, by lane and by rank, and the uplink. */
static uint64_t node_rate(const mpath_ports_t *ports, const uint64_t *all, int node, int into)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    uint64_t rate = lanes_rate(ports, all, node, into), by_rank = 0;
    int i;

    for (i = n->first; i < n->first + n->num_ranks && !ports->single; i++) {
        by_rank += own_nics_rate(ports, &ports->ports[ports->members[i]], into);
    }
    rate = rate == 0 || (by_rank > 0 && by_rank < rate) ? by_rank : rate;
    if (n->uplink_tx != MPATH_PORTS_NONE) {
        by_rank = ports->capacity[into ? n->uplink_rx : n->uplink_tx];
        rate    = rate == 0 || (by_rank > 0 && by_rank < rate) ? by_rank : rate;
    }
    return rate;
}

/* Whether NICs differ from others, or nodes lack some. */
static int is_unequal(const mpath_ports_t *ports)
{
    const mpath_ports_lane_t *lane = ports->lanes;
    uint64_t rate                  = 0;
    int i, unequal = !ports->uniform;

    for (i = 0; i < ports->num_nodes * ports->num_slots && !unequal; i++, lane++) {
        if (lane->count > 0) {
            rate    = rate == 0 ? ports->capacity[lane->tx] : rate;
            unequal = ports->capacity[lane->tx] != rate || ports->capacity[lane->rx] != rate;
        }
    }
    return unequal;
}

/* Whether some node has NICs over which no static route of its ranks begins. */
static int has_spare_lanes(const mpath_ports_t *ports)
{
    const mpath_ports_node_t *node;
    mpath_nic_set_t own;
    int n, i, slot;

    for (n = 0; n < ports->num_nodes; n++) {
        node = &ports->nodes[n];
        for (i = node->first, own = 0; i < node->first + node->num_ranks; i++) {
            slot = ports->ports[ports->members[i]].slot;
            own |= slot < 0 ? 0 : UINT64_C(1) << slot;
        }
        if ((node->lanes & ~own) != 0) {
            return 1;
        }
    }
    return 0;
}

static void set_rates(mpath_ports_t *ports)
{
    uint64_t all[2 * MPATH_PORTS_MAX_SLOTS];
    int i;

    sum_lanes(ports, all);

    for (i = 0; i < 2 * ports->num_ranks; i++) {
        set_rank_rates(ports, i % ports->num_ranks, i / ports->num_ranks);
    }
    for (i = 0; i < 2 * ports->num_nodes; i++) {
        ports->node_rate[i] = ports->one_node ? 0 : node_rate(ports, all, i / 2, i & 1);
    }
}

/* The order in which resources are relieved. */

static void add_step(mpath_ports_t *ports, uint32_t resource, int rank, int slot, int receives)
{
    mpath_ports_step_t *step = &ports->steps[ports->num_steps++];

    step->resource = resource;
    step->rank     = rank;
    step->slot     = (int16_t)slot;
    step->receives = (int16_t)receives;
}

/* The NICs that a rank drives, and the PCIe link that leads to them; where all drive all, for the first one of each node. */
static void list_nics(mpath_ports_t *ports, int rank, int receives)
{
    const mpath_port_t *port = &ports->ports[rank];
    const mpath_ports_lane_t *lane;
    mpath_nic_set_t slots;

    if (ports->all_drive && ports->members[ports->nodes[port->node].first] != rank) {
        return;
    }
    for (slots = port->slots; slots != 0; slots &= slots - 1) {
        lane = mpath_ports_lane(ports, port->node, __builtin_ctzll(slots));
        add_step(ports, receives ? lane->rx : lane->tx, rank, __builtin_ctzll(slots), receives);
    }
    if (port->slots != 0 && !ports->on_hosts) {
        add_step(ports, receives ? port->down : port->up, rank, -1, receives);
    }
}

/* Its port, or its NVLinks to and from the others of its node. */
static void list_links(mpath_ports_t *ports, int rank, int receives)
{
    const mpath_port_t *port = &ports->ports[rank], *other;
    uint32_t resource        = receives ? port->ingress : port->egress, gpus;

    if (ports->nodes[port->node].link != MPATH_GPU_LINK_MESH) {
        if (resource != MPATH_PORTS_NONE) {
            add_step(ports, resource, rank, -1, receives);
        }
        return;
    }
    for (gpus = receives ? port->links_from : port->links_to; gpus != 0; gpus &= gpus - 1) {
        other = &ports->ports[ports->on_gpu[port->node * ports->gpus_per_node + __builtin_ctz(gpus)]];
        add_step(ports, receives ? mpath_ports_link(ports, other, port) : mpath_ports_link(ports, port, other), rank,
                 -1, receives);
    }
}

static mpath_status_t list_steps(mpath_ports_t *ports)
{
    size_t most = 0;
    int rank, i;

    for (rank = 0; rank < ports->num_ranks; rank++) {
        most += 2 + 2 * (size_t)__builtin_popcountll(ports->ports[rank].slots);
        most += 2 + (size_t)__builtin_popcount(ports->ports[rank].links_to) +
                (size_t)__builtin_popcount(ports->ports[rank].links_from);
    }
    ports->steps = malloc((most + 1) * sizeof(*ports->steps));
    if (ports->steps == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (i = 0; i < 2 * ports->num_ranks && !ports->one_node; i++) {
        list_nics(ports, i % ports->num_ranks, i >= ports->num_ranks);
    }
    ports->num_nic_steps = ports->num_steps;
    for (i = 0; i < 2 * ports->num_ranks; i++) {
        list_links(ports, i % ports->num_ranks, i >= ports->num_ranks);
    }
    return MPATH_OK;
}

/* One block for the tables whose size is known at once. */
static mpath_status_t allocate(mpath_ports_t *ports)
{
    size_t ranks = (size_t)ports->num_ranks, nodes = (size_t)ports->num_nodes, count = (size_t)ports->num_resources;
    size_t bytes = (count + 2 * nodes) * sizeof(uint64_t) + 2 * ranks * sizeof(mpath_ports_rates_t) +
                   nodes * sizeof(mpath_ports_node_t) + ranks * sizeof(mpath_port_t) + ranks * sizeof(int32_t);

    ports->capacity = calloc(bytes, 1);
    if (ports->capacity == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    ports->node_rate = ports->capacity + count;
    ports->rates     = (mpath_ports_rates_t *)(ports->node_rate + 2 * nodes);
    ports->ports     = (mpath_port_t *)(ports->rates + 2 * ranks);
    ports->nodes     = (mpath_ports_node_t *)(ports->ports + ranks);
    ports->members   = (int32_t *)(ports->nodes + nodes);
    return MPATH_OK;
}

/* Tables by GPU, NVLink, lane. */
static mpath_status_t allocate_lanes(mpath_ports_t *ports)
{
    size_t nodes = (size_t)ports->num_nodes, seats = nodes * (size_t)ports->gpus_per_node;
    size_t links = ports->has_mesh ? seats * (size_t)ports->gpus_per_node : 0, lanes = nodes * MPATH_PORTS_MAX_SLOTS;
    size_t drivers = (size_t)ports->num_ranks * MPATH_PORTS_MAX_SLOTS;

    ports->lanes  = calloc(lanes, sizeof(*ports->lanes));
    ports->on_gpu = malloc((seats + links + drivers + 1) * sizeof(*ports->on_gpu));
    if (ports->lanes == NULL || ports->on_gpu == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    ports->drivers = ports->on_gpu + seats;
    if (ports->has_mesh) {
        ports->links = (uint32_t *)(ports->drivers + drivers);
        memset(ports->links, 0xff, links * sizeof(*ports->links));
    }
    return MPATH_OK;
}

/* What is kept with a topology. */
typedef struct frame {
    mpath_topo_extra_t extra;
    mpath_ports_t ports;
    mpath_status_t status; /* MPATH_DECLINED: the topology is not of this kind */
} frame_t;

static void tables_release(mpath_ports_t *ports)
{
    free(ports->capacity);
    free(ports->lanes);
    free(ports->on_gpu);
    free(ports->steps);
    memset(ports, 0, sizeof(*ports));
}

static void frame_release(mpath_topo_extra_t *extra)
{
    frame_t *frame = (frame_t *)extra;

    tables_release(&frame->ports);
    free(frame);
}

static mpath_status_t read_topo(mpath_ports_t *ports, const mpath_topo_t *topo)
{
    int8_t slot_of_rail[MPATH_MAX_RAILS];
    mpath_status_t status;

    const mpath_topo_params_t *params = mpath_topo_params(topo);

    ports->on_hosts = has_only_rails(topo);
    if (mpath_topo_num_nodes(topo) == 0 ||
        (!ports->on_hosts && (params->no_staged || mpath_topo_gpus(topo, 0) == NULL))) {
        return MPATH_DECLINED;
    }
    ports->topo          = topo;
    ports->num_ranks     = mpath_topo_num_ranks(topo);
    ports->num_nodes     = mpath_topo_num_nodes(topo);
    ports->num_resources = mpath_topo_num_resources(topo);
    ports->has_spine     = (params->fabric & MPATH_FABRIC_SPINE) != 0;
    ports->crossing      = ports->has_spine && !(ports->on_hosts && params->access == MPATH_REACH_ALL);
    status               = allocate(ports);
    if (status == MPATH_OK) {
        read_nodes(ports);
        status = allocate_lanes(ports);
    }
    if (status == MPATH_OK) {
        status = read_seats(ports) ? MPATH_OK : MPATH_DECLINED;
    }
    if (status != MPATH_OK) {
        return status;
    }
    number_slots(ports, slot_of_rail);
    take_slots(ports, slot_of_rail);
    if (ports->has_spine && !ports->crossing && !ports->uniform) {
        return MPATH_DECLINED; /* paths cross where nodes lack rails, but not as the static routes do */
    }
    list_drivers(ports);
    read_resources(ports, slot_of_rail);
    set_rates(ports);
    ports->spreads = ports->all_drive && has_spare_lanes(ports);
    ports->unequal = is_unequal(ports);
    return list_steps(ports);
}

/* What follows from the topology alone; NULL: no memory. */
static const frame_t *frame_of(const mpath_topo_t *topo)
{
    const mpath_topo_extra_t *kept = mpath_topo_extra(topo);
    frame_t *frame;

    if (kept != NULL) {
        return (const frame_t *)kept;
    }
    frame = calloc(1, sizeof(*frame));
    if (frame == NULL) {
        return NULL;
    }
    frame->extra.release = frame_release;
    frame->status        = read_topo(&frame->ports, topo);
    if (frame->status == MPATH_DECLINED) {
        tables_release(&frame->ports);
    } else if (frame->status != MPATH_OK) {
        frame_release(&frame->extra);
        return NULL;
    }
    return (const frame_t *)mpath_topo_keep(topo, &frame->extra);
}

/* The tables of one plan, in one block: those that begin with zero, then the others. */
static mpath_status_t allocate_plan(mpath_ports_t *ports)
{
    size_t ranks = (size_t)ports->num_ranks, nodes = (size_t)ports->num_nodes, count = (size_t)ports->num_resources;
    size_t lanes = nodes * (size_t)ports->num_slots;
    size_t zeros = (count + 10 * ranks + 3 * nodes + lanes) * sizeof(uint64_t) + count * sizeof(uint32_t);

    zeros         = (zeros + 7) / 8 * 8;
    ports->memory = malloc(zeros + 2 * count * sizeof(uint64_t));
    if (ports->memory == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    memset(ports->memory, 0, zeros);
    ports->load       = ports->memory;
    ports->local_out  = ports->load + count;
    ports->local_in   = ports->local_out + ranks;
    ports->linked_out = ports->local_in + ranks;
    ports->linked_in  = ports->linked_out + ranks;
    ports->remote_out = ports->linked_in + ranks;
    ports->remote_in  = ports->remote_out + ranks;
    ports->odd_out    = ports->remote_in + ranks;
    ports->odd_in     = ports->odd_out + ranks;
    ports->lent       = ports->odd_in + ranks;
    ports->node_bytes = ports->lent + 2 * ranks;
    ports->relayed    = ports->node_bytes + 2 * nodes;
    ports->by_lane    = ports->relayed + nodes;
    ports->stamp      = (uint32_t *)(ports->by_lane + lanes);
    ports->target     = (uint64_t *)(void *)((char *)ports->memory + zeros);
    ports->saved      = ports->target + count;
    return MPATH_OK;
}

mpath_status_t mpath_ports_init(mpath_ports_t *ports, const mpath_topo_t *topo, const uint64_t *demand,
                                uint64_t min_fragment_bytes)
{
    const frame_t *frame = frame_of(topo);

    if (frame == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    if (frame->status != MPATH_OK) {
        return frame->status;
    }
    *ports                    = frame->ports;
    ports->demand             = demand;
    ports->min_fragment_bytes = min_fragment_bytes;
    return allocate_plan(ports);
}

void mpath_ports_release(mpath_ports_t *ports)
{
    free(ports->memory);
    mpath_moves_release(&ports->moves);
}

int mpath_ports_odd_slots(const mpath_ports_t *ports, int source, int destination, int *from_p, int *to_p)
{
    mpath_nic_set_t matched = mpath_ports_matched(ports, source, destination);
    int from = ports->ports[source].slot, to = ports->ports[destination].slot, skip;

    if (from >= 0 && ((matched >> from) & 1)) {
        to = from;
    } else if (to >= 0 && ((matched >> to) & 1)) {
        from = to;
    } else if (matched != 0) {
        for (skip = source % __builtin_popcountll(matched); skip > 0; skip--) {
            matched &= matched - 1;
        }
        from = to = __builtin_ctzll(matched);
    } else {
        if (!ports->crossing || ports->nodes[ports->ports[source].node].lanes == 0 ||
            ports->nodes[ports->ports[destination].node].lanes == 0) {
            return 0;
        }
        from = __builtin_ctzll(ports->nodes[ports->ports[source].node].lanes);
        to   = __builtin_ctzll(ports->nodes[ports->ports[destination].node].lanes);
    }
    *from_p = from;
    *to_p   = to;
    return 1;
}
