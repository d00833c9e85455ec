/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a topology of GPUs as ports and lanes. */
#include "plan/ports.h"

#include <stdlib.h>
#include <string.h>

#define NO_SLOT (-1)

/* NICs of a node that are up, as a mask. */
static uint32_t nics_up(const mpath_machine_t *machine)
{
    uint32_t mask = 0;
    int nic;

    for (nic = 0; nic < machine->num_nics; nic++) {
        mask |= machine->nics[nic].up ? 1u << nic : 0;
    }
    return mask;
}

static void read_nodes(mpath_ports_t *ports)
{
    const mpath_node_gpus_t *gpus;
    mpath_ports_node_t *n;
    int node;

    for (node = 0; node < ports->num_nodes; node++) {
        gpus      = mpath_topo_gpus(ports->topo, node);
        n         = &ports->nodes[node];
        n->link   = gpus->link;
        n->domain = gpus->link == MPATH_GPU_LINK_SWITCH ? gpus->domain : -1;
        n->memory = n->uplink_tx = n->uplink_rx = MPATH_PORTS_NONE;
        ports->has_mesh |= gpus->link == MPATH_GPU_LINK_MESH;
        ports->has_domains |= n->domain >= 0;
        ports->gpus_per_node = gpus->num_gpus > ports->gpus_per_node ? gpus->num_gpus : ports->gpus_per_node;
    }
}

/* Seats the ranks; 0 unless each has a GPU of its own and reaches all lanes. The masks are of NICs for now. */
static int read_seats(mpath_ports_t *ports)
{
    const mpath_place_t *place;
    mpath_port_t *port;
    int32_t *seat;
    uint32_t up;
    int rank, node = -1, used = 0, next = 0, n;

    if (mpath_topo_reach_is_limited(ports->topo)) {
        return 0;
    }
    memset(ports->on_gpu, 0xff, (size_t)ports->num_nodes * (size_t)ports->gpus_per_node * sizeof(*ports->on_gpu));
    for (rank = 0, up = 0; rank < ports->num_ranks; rank++) {
        place = mpath_topo_place(ports->topo, rank);
        if (place->gpu < 0 || place->no_relay || place->gpu >= mpath_topo_gpus(ports->topo, place->node)->num_gpus) {
            return 0;
        }
        seat = &ports->on_gpu[place->node * ports->gpus_per_node + place->gpu];
        if (*seat >= 0) {
            return 0;
        }
        *seat                  = rank;
        up                     = place->node == node ? up : nics_up(mpath_topo_machine(ports->topo, place->node));
        node                   = place->node;
        port                   = &ports->ports[rank];
        port->node             = node;
        port->gpu              = place->gpu;
        port->slots            = mpath_topo_gpus(ports->topo, node)->gpus[place->gpu].nics;
        port->slots            = (port->slots | (place->nic >= 0 ? 1u << place->nic : 0)) & up;
        port->slot             = port->slots == 0 ? NO_SLOT : __builtin_ctz(port->slots);
        port->slot             = place->nic >= 0 && ((up >> place->nic) & 1) ? place->nic : port->slot;
        ports->is_beside[rank] = place->nic >= 0 && port->slot == place->nic;
        port->egress = port->ingress = port->up = port->down = MPATH_PORTS_NONE;
        used += ports->nodes[node].num_ranks++ == 0;
    }
    for (n = 0; n < ports->num_nodes; n++) {
        ports->nodes[n].first = next;
        next += ports->nodes[n].num_ranks;
    }
    for (rank = 0; rank < ports->num_ranks; rank++) {
        ports->members[ports->nodes[ports->ports[rank].node].first++] = rank;
    }
    for (n = 0; n < ports->num_nodes; n++) {
        ports->nodes[n].first -= ports->nodes[n].num_ranks;
    }
    ports->one_node = used < 2;
    return 1;
}

/* The rails beside ranks get slots, in their order; 0: they are too many. */
static int number_slots(mpath_ports_t *ports, int8_t *slot_of_rail)
{
    const mpath_machine_t *machine;
    uint64_t all = 0;
    uint32_t nics;
    int rank, rail;

    for (rank = 0; rank < ports->num_ranks && !ports->one_node; rank++) {
        machine = mpath_topo_machine(ports->topo, ports->ports[rank].node);
        for (nics = ports->ports[rank].slots; nics != 0; nics &= nics - 1) {
            all |= 1ull << machine->nics[__builtin_ctz(nics)].rail;
        }
    }
    for (rail = 0; rail < MPATH_MAX_RAILS; rail++) {
        slot_of_rail[rail] = (int8_t)((all >> rail) & 1 ? __builtin_popcountll(all & ((1ull << rail) - 1)) : NO_SLOT);
    }
    ports->num_slots = __builtin_popcountll(all);
    return ports->num_slots <= MPATH_PORTS_MAX_SLOTS;
}

/* From NICs to slots, and how many ranks drive each lane. */
static void take_slots(mpath_ports_t *ports, const int8_t *slot_of_rail)
{
    const mpath_machine_t *machine;
    mpath_port_t *port;
    uint32_t nics, all = 0;
    int rank, node;

    ports->uniform = ports->single = 1;
    for (rank = 0; rank < ports->num_ranks && !ports->one_node; rank++) {
        port        = &ports->ports[rank];
        machine     = mpath_topo_machine(ports->topo, port->node);
        nics        = port->slots;
        port->slots = 0;
        port->slot  = port->slot < 0 ? NO_SLOT : slot_of_rail[machine->nics[port->slot].rail];
        ports->uniform &= port->slot >= 0;
        ports->single &= (nics & (nics - 1)) == 0;
        for (; nics != 0; nics &= nics - 1) {
            port->slots |= 1u << slot_of_rail[machine->nics[__builtin_ctz(nics)].rail];
        }
        ports->nodes[port->node].lanes |= port->slots;
        all |= port->slots;
        for (nics = port->slots; nics != 0; nics &= nics - 1) {
            ports->lanes[port->node * ports->num_slots + __builtin_ctz(nics)].count++;
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
    uint32_t slots;

    for (lane = 0; lane < num_lanes; lane++) {
        ports->lanes[lane].driver = next;
        next += ports->lanes[lane].count;
    }
    for (rank = 0; rank < ports->num_ranks && !ports->one_node; rank++) {
        for (slots = ports->ports[rank].slots; slots != 0; slots &= slots - 1) {
            l = &ports->lanes[ports->ports[rank].node * ports->num_slots + __builtin_ctz(slots)];
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
    const mpath_resource_t *resource;
    int rank, r;

    for (r = 0; r < ports->num_resources; r++) {
        resource           = mpath_topo_resource(ports->topo, r);
        ports->capacity[r] = resource->capacity_bps;
        switch (resource->kind) {
        case MPATH_RESOURCE_HOST_MEMORY:
            ports->nodes[resource->node].memory = (uint32_t)r;
            break;
        case MPATH_RESOURCE_UPLINK_TX:
            ports->nodes[resource->node].uplink_tx = (uint32_t)r;
            break;
        case MPATH_RESOURCE_UPLINK_RX:
            ports->nodes[resource->node].uplink_rx = (uint32_t)r;
            break;
        case MPATH_RESOURCE_NIC_TX:
        case MPATH_RESOURCE_NIC_RX:
            take_nic(ports, (uint32_t)r, resource, slot_of_rail);
            break;
        default:
            take_gpu(ports, (uint32_t)r, resource);
            break;
        }
    }
    for (rank = 0; rank < ports->num_ranks; rank++) {
        if (ports->nodes[ports->ports[rank].node].link == MPATH_GPU_LINK_PCIE) {
            ports->ports[rank].egress  = ports->ports[rank].up;
            ports->ports[rank].ingress = ports->ports[rank].down;
        }
    }
}

/* One block for the tables whose size is known at once. */
static mpath_status_t allocate(mpath_ports_t *ports)
{
    size_t ranks = (size_t)ports->num_ranks, nodes = (size_t)ports->num_nodes, count = (size_t)ports->num_resources;
    size_t words = 4 * count + 10 * ranks;
    size_t bytes = words * sizeof(uint64_t) + nodes * sizeof(mpath_ports_node_t) + ranks * sizeof(mpath_port_t) +
                   (count + 2 * ranks) * sizeof(uint32_t) + ranks;

    ports->memory = calloc(bytes, 1);
    if (ports->memory == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    ports->capacity   = ports->memory;
    ports->load       = ports->capacity + count;
    ports->target     = ports->load + count;
    ports->saved      = ports->target + count;
    ports->local_out  = ports->saved + count;
    ports->local_in   = ports->local_out + ranks;
    ports->linked_out = ports->local_in + ranks;
    ports->linked_in  = ports->linked_out + ranks;
    ports->remote_out = ports->linked_in + ranks;
    ports->remote_in  = ports->remote_out + ranks;
    ports->odd_out    = ports->remote_in + ranks;
    ports->odd_in     = ports->odd_out + ranks;
    ports->lent       = ports->odd_in + ranks;
    ports->nodes      = (mpath_ports_node_t *)(ports->lent + 2 * ranks);
    ports->ports      = (mpath_port_t *)(ports->nodes + nodes);
    ports->stamp      = (uint32_t *)(ports->ports + ranks);
    ports->members    = (int32_t *)(ports->stamp + count);
    ports->is_beside  = (uint8_t *)(ports->members + ranks);
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

mpath_status_t mpath_ports_init(mpath_ports_t *ports, const mpath_topo_t *topo, const uint64_t *demand,
                                uint64_t min_fragment_bytes)
{
    int8_t slot_of_rail[MPATH_MAX_RAILS];
    mpath_status_t status;

    memset(ports, 0, sizeof(*ports));
    if (mpath_topo_num_nodes(topo) == 0 || mpath_topo_gpus(topo, 0) == NULL || mpath_topo_params(topo)->no_staged) {
        return MPATH_DECLINED;
    }
    ports->topo               = topo;
    ports->demand             = demand;
    ports->min_fragment_bytes = min_fragment_bytes;
    ports->num_ranks          = mpath_topo_num_ranks(topo);
    ports->num_nodes          = mpath_topo_num_nodes(topo);
    ports->num_resources      = mpath_topo_num_resources(topo);
    ports->crossing           = (mpath_topo_params(topo)->fabric & MPATH_FABRIC_SPINE) != 0;
    status                    = allocate(ports);
    if (status == MPATH_OK) {
        read_nodes(ports);
        status = allocate_lanes(ports);
    }
    if (status == MPATH_OK) {
        status = read_seats(ports) && number_slots(ports, slot_of_rail) ? MPATH_OK : MPATH_DECLINED;
    }
    if (status != MPATH_OK) {
        mpath_ports_release(ports);
        return status;
    }
    take_slots(ports, slot_of_rail);
    list_drivers(ports);
    read_resources(ports, slot_of_rail);
    return MPATH_OK;
}

void mpath_ports_release(mpath_ports_t *ports)
{
    free(ports->memory);
    free(ports->lanes);
    free(ports->on_gpu);
    mpath_moves_release(&ports->moves);
    memset(ports, 0, sizeof(*ports));
}

int mpath_ports_odd_slots(const mpath_ports_t *ports, int source, int destination, int *from_p, int *to_p)
{
    uint32_t matched = mpath_ports_matched(ports, source, destination);
    int from = ports->ports[source].slot, to = ports->ports[destination].slot, skip;

    if (from >= 0 && ((matched >> from) & 1)) {
        to = from;
    } else if (to >= 0 && ((matched >> to) & 1)) {
        from = to;
    } else if (matched != 0) {
        for (skip = source % __builtin_popcount(matched); skip > 0; skip--) {
            matched &= matched - 1;
        }
        from = to = __builtin_ctz(matched);
    } else {
        if (!ports->crossing || ports->nodes[ports->ports[source].node].lanes == 0 ||
            ports->nodes[ports->ports[destination].node].lanes == 0) {
            return 0;
        }
        from = __builtin_ctz(ports->nodes[ports->ports[source].node].lanes);
        to   = __builtin_ctz(ports->nodes[ports->ports[destination].node].lanes);
    }
    *from_p = from;
    *to_p   = to;
    return 1;
}
