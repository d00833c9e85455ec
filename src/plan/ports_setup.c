/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a topology of GPUs as ports, and says whether it is in order. */
#include "plan/ports.h"

#include <stdlib.h>
#include <string.h>

/* Where a rank sits, before the slots are known. */
typedef struct seat {
    int16_t nic, rail; /* -1: no NIC is up beside it; rail -2: several are */
    int32_t gpu;
} seat_t;

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

/* Whether the GPUs of the nodes are joined in a way that slots describe. */
static int read_nodes(mpath_ports_t *ports, uint32_t *nics)
{
    const mpath_node_gpus_t *gpus;
    int node;

    for (node = 0; node < ports->num_nodes; node++) {
        gpus = mpath_topo_gpus(ports->topo, node);
        if (gpus->link == MPATH_GPU_LINK_NONE || (gpus->link == MPATH_GPU_LINK_SWITCH && gpus->domain >= 0)) {
            return 0;
        }
        ports->nodes[node].link       = gpus->link;
        ports->nodes[node].first_rank = -1;
        ports->nodes[node].memory     = MPATH_PORTS_NONE;
        ports->nodes[node].uplink_tx = ports->nodes[node].uplink_rx = MPATH_PORTS_NONE;
        ports->has_mesh |= gpus->link == MPATH_GPU_LINK_MESH;
        nics[node] = nics_up(mpath_topo_machine(ports->topo, node));
    }
    return 1;
}

/* Takes the seats of the ranks; 0 unless each has a GPU of its own. */
static int read_seats(mpath_ports_t *ports, const uint32_t *nics, seat_t *seats)
{
    const mpath_node_gpus_t *gpus;
    const mpath_place_t *place;
    mpath_ports_node_t *node;
    int rank, last = -1;
    uint32_t beside;

    ports->consecutive = 1;
    for (rank = 0; rank < ports->num_ranks; rank++) {
        place = mpath_topo_place(ports->topo, rank);
        gpus  = mpath_topo_gpus(ports->topo, place->node);
        node  = &ports->nodes[place->node];
        if (place->gpu < 0 || place->gpu >= gpus->num_gpus || ((node->occupied >> place->gpu) & 1)) {
            return 0;
        }
        node->occupied |= 1u << place->gpu;
        beside           = (gpus->gpus[place->gpu].nics | (place->nic >= 0 ? 1u << place->nic : 0)) & nics[place->node];
        seats[rank].gpu  = place->gpu;
        seats[rank].nic  = -1;
        seats[rank].rail = beside == 0 ? -1 : -2;
        if (beside != 0 && (beside & (beside - 1)) == 0) {
            seats[rank].nic  = (int16_t)__builtin_ctz(beside);
            seats[rank].rail = mpath_topo_machine(ports->topo, place->node)->nics[seats[rank].nic].rail;
        }
        ports->consecutive &= place->node == last || node->num_ranks == 0;
        node->first_rank        = node->num_ranks == 0 ? rank : node->first_rank;
        last                    = place->node;
        ports->ports[rank].node = place->node;
        ports->gpu[rank]        = (uint8_t)place->gpu;
        ports->is_beside[rank]  = place->nic >= 0 && place->nic == seats[rank].nic;
        node->num_ranks++;
    }
    return 1;
}

/* Takes the rails of the nodes; 0 where a rank has several, or shares one. */
static int read_rails(mpath_ports_t *ports, const seat_t *seats, uint64_t *rails, uint64_t *all)
{
    int rank, node;

    for (rank = 0; rank < ports->num_ranks; rank++) {
        node = ports->ports[rank].node;
        if (seats[rank].rail < -1 || (seats[rank].rail >= 0 && ((rails[node] >> seats[rank].rail) & 1))) {
            return 0;
        }
        ports->loose |= seats[rank].rail < 0;
        rails[node] |= seats[rank].rail < 0 ? 0 : 1ull << seats[rank].rail;
        *all |= rails[node];
    }
    for (node = 0; node < ports->num_nodes; node++) {
        ports->loose |= ports->nodes[node].num_ranks > 0 && rails[node] != *all;
    }
    return 1;
}

/* Slots are the rails in order; on one node alone, which needs none, its GPUs. */
static int number_slots(mpath_ports_t *ports, const seat_t *seats, uint64_t *rails)
{
    int rank, node, used = 0;
    uint64_t all = 0;
    mpath_port_t *port;

    for (node = 0; node < ports->num_nodes; node++) {
        if (ports->nodes[node].num_ranks > 0) {
            used++;
            ports->num_slots = ports->nodes[node].num_ranks;
        }
    }
    ports->one_node = used < 2;
    if (!ports->one_node) {
        if (!read_rails(ports, seats, rails, &all)) {
            return 0;
        }
        ports->num_slots = __builtin_popcountll(all);
        if (ports->num_slots == 0 || ports->num_slots > MPATH_PORTS_MAX_SLOTS || (ports->loose && ports->has_mesh)) {
            return 0;
        }
    }
    memset(ports->driver, 0xff, (size_t)(ports->num_nodes * ports->num_slots) * sizeof(*ports->driver));
    for (rank = 0; rank < ports->num_ranks; rank++) {
        port       = &ports->ports[rank];
        port->slot = -1;
        if (ports->one_node) {
            port->slot = __builtin_popcount(ports->nodes[port->node].occupied & ((1u << seats[rank].gpu) - 1));
        } else if (seats[rank].rail >= 0) {
            port->slot = __builtin_popcountll(all & ((1ull << seats[rank].rail) - 1));
        }
        if (port->slot >= 0) {
            ports->driver[port->node * ports->num_slots + port->slot] = rank;
        }
    }
    return 1;
}

/* The rank on a GPU or beside a NIC of a node; NULL: none. */
static mpath_port_t *port_at(mpath_ports_t *ports, const int32_t *ranks, int node, int index)
{
    int rank = ranks[node * MPATH_MAX_NICS + index];

    return rank < 0 ? NULL : &ports->ports[rank];
}

static void take_resource(mpath_ports_t *ports, uint32_t r, const mpath_resource_t *resource, const int32_t *on_gpu,
                          const int32_t *at_nic)
{
    mpath_ports_node_t *node = &ports->nodes[resource->node];
    int is_nic               = resource->kind == MPATH_RESOURCE_NIC_TX || resource->kind == MPATH_RESOURCE_NIC_RX;
    mpath_port_t *port       = port_at(ports, is_nic ? at_nic : on_gpu, resource->node, resource->index), *peer;
    mpath_port_t none;

    port = port == NULL ? &none : port;
    switch (resource->kind) {
    case MPATH_RESOURCE_HOST_MEMORY:
        node->memory = r;
        break;
    case MPATH_RESOURCE_UPLINK_TX:
        node->uplink_tx = r;
        break;
    case MPATH_RESOURCE_UPLINK_RX:
        node->uplink_rx = r;
        break;
    case MPATH_RESOURCE_NIC_TX:
        port->tx = r;
        break;
    case MPATH_RESOURCE_NIC_RX:
        port->rx = r;
        break;
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
    case MPATH_RESOURCE_NVLINK:
        peer = port_at(ports, on_gpu, resource->node, resource->peer);
        if (port != &none && peer != NULL) {
            ports->links[(port->node * ports->num_slots + port->slot) * ports->num_slots + peer->slot] = r;
        }
        break;
    }
}

/* Whether every rank reaches every other of its node by one copy; PCIe nodes copy over the links that NICs use too. */
static int complete_ports(mpath_ports_t *ports)
{
    mpath_port_t *port;
    int rank, slot;

    for (rank = 0; rank < ports->num_ranks; rank++) {
        port = &ports->ports[rank];
        switch (ports->nodes[port->node].link) {
        case MPATH_GPU_LINK_PCIE:
            port->egress  = port->up;
            port->ingress = port->down;
            break;
        case MPATH_GPU_LINK_MESH:
            for (slot = 0; slot < ports->num_slots; slot++) {
                if (slot != port->slot &&
                    mpath_ports_link(ports, port, &ports->ports[mpath_ports_driver(ports, port->node, slot)]) ==
                        MPATH_PORTS_NONE) {
                    return 0;
                }
            }
            break;
        default:
            if (port->egress == MPATH_PORTS_NONE || port->ingress == MPATH_PORTS_NONE) {
                return 0;
            }
        }
    }
    return 1;
}

static void set_none(void *numbers, size_t count)
{
    memset(numbers, 0xff, count * sizeof(uint32_t));
}

/* The numbers of the resources, by rank and node. */
static mpath_status_t read_resources(mpath_ports_t *ports, const seat_t *seats)
{
    size_t seats_of_nodes = (size_t)ports->num_nodes * MPATH_MAX_NICS;
    size_t links          = (size_t)ports->num_nodes * (size_t)ports->num_slots * (size_t)ports->num_slots;
    int32_t *on_gpu = malloc(2 * seats_of_nodes * sizeof(*on_gpu)), *at_nic = on_gpu + seats_of_nodes;
    const mpath_resource_t *resource;
    int rank, r;

    if (ports->has_mesh) {
        ports->links = malloc((links + 1) * sizeof(*ports->links));
    }
    if (on_gpu == NULL || (ports->has_mesh && ports->links == NULL)) {
        free(on_gpu);
        return MPATH_ERR_NO_MEMORY;
    }
    set_none(on_gpu, 2 * seats_of_nodes);
    if (ports->has_mesh) {
        set_none(ports->links, links);
    }
    for (rank = 0; rank < ports->num_ranks; rank++) {
        mpath_port_t *port = &ports->ports[rank];

        on_gpu[port->node * MPATH_MAX_NICS + seats[rank].gpu] = rank;
        if (seats[rank].nic >= 0) {
            at_nic[port->node * MPATH_MAX_NICS + seats[rank].nic] = rank;
        }
        port->egress = port->ingress = port->up = port->down = port->tx = port->rx = MPATH_PORTS_NONE;
    }
    for (r = 0; r < ports->num_resources; r++) {
        resource           = mpath_topo_resource(ports->topo, r);
        ports->capacity[r] = resource->capacity_bps;
        take_resource(ports, (uint32_t)r, resource, on_gpu, at_nic);
    }
    free(on_gpu);
    return complete_ports(ports) ? MPATH_OK : MPATH_DECLINED;
}

/* One block for all tables but the NVLinks'. */
static mpath_status_t allocate(mpath_ports_t *ports)
{
    size_t ranks = (size_t)ports->num_ranks, nodes = (size_t)ports->num_nodes, count = (size_t)ports->num_resources;
    size_t words = 4 * count + 6 * ranks;
    size_t bytes = words * sizeof(uint64_t) + ranks * sizeof(mpath_port_t) + nodes * sizeof(mpath_ports_node_t) +
                   (count + nodes * MPATH_PORTS_MAX_SLOTS) * sizeof(uint32_t) + 3 * ranks;

    ports->memory = calloc(bytes + 1, 1);
    if (ports->memory == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    ports->capacity   = ports->memory;
    ports->load       = ports->capacity + count;
    ports->target     = ports->load + count;
    ports->saved      = ports->target + count;
    ports->local_out  = ports->saved + count;
    ports->local_in   = ports->local_out + ranks;
    ports->remote_out = ports->local_in + ranks;
    ports->remote_in  = ports->remote_out + ranks;
    ports->lent       = ports->remote_in + ranks;
    ports->nodes      = (mpath_ports_node_t *)(ports->lent + 2 * ranks);
    ports->ports      = (mpath_port_t *)(ports->nodes + nodes);
    ports->stamp      = (uint32_t *)(ports->ports + ranks);
    ports->driver     = (int32_t *)(ports->stamp + count);
    ports->row_moves  = (uint8_t *)(ports->driver + nodes * MPATH_PORTS_MAX_SLOTS);
    ports->gpu        = ports->row_moves + ranks;
    ports->is_beside  = ports->gpu + ranks;
    return MPATH_OK;
}

mpath_status_t mpath_ports_init(mpath_ports_t *ports, const mpath_topo_t *topo, const uint64_t *demand,
                                uint64_t min_fragment_bytes)
{
    size_t nodes = (size_t)mpath_topo_num_nodes(topo), ranks = (size_t)mpath_topo_num_ranks(topo);
    mpath_status_t status;
    uint64_t *rails;
    uint32_t *nics;
    seat_t *seats;

    memset(ports, 0, sizeof(*ports));
    if (nodes == 0 || mpath_topo_gpus(topo, 0) == NULL) {
        return MPATH_DECLINED;
    }
    ports->topo               = topo;
    ports->demand             = demand;
    ports->min_fragment_bytes = min_fragment_bytes;
    ports->num_ranks          = (int)ranks;
    ports->num_nodes          = (int)nodes;
    ports->num_resources      = mpath_topo_num_resources(topo);
    ports->crossing           = (mpath_topo_params(topo)->fabric & MPATH_FABRIC_SPINE) != 0;
    rails                     = calloc(nodes * (sizeof(*rails) + sizeof(*nics)) + ranks * sizeof(*seats), 1);
    status                    = rails == NULL ? MPATH_ERR_NO_MEMORY : allocate(ports);
    if (status == MPATH_OK) {
        nics   = (uint32_t *)(rails + nodes);
        seats  = (seat_t *)(nics + nodes);
        status = read_nodes(ports, nics) && read_seats(ports, nics, seats) && number_slots(ports, seats, rails)
                     ? read_resources(ports, seats)
                     : MPATH_DECLINED;
    }
    free(rails);
    if (status != MPATH_OK) {
        mpath_ports_release(ports);
    }
    return status;
}

void mpath_ports_release(mpath_ports_t *ports)
{
    free(ports->memory);
    free(ports->links);
    free(ports->moves);
    free(ports->head);
    memset(ports, 0, sizeof(*ports));
}

void mpath_ports_ask_static(const mpath_ports_t *ports, int source, int destination, mpath_ports_route_t *route)
{
    mpath_path_t path;

    route->num_resources = 0;
    route->num_relays    = 0;
    if (mpath_topo_num_paths(ports->topo, source, destination) > 0) {
        mpath_topo_path(ports->topo, source, destination, 0, &path);
        route->num_resources = path.num_resources;
        route->num_relays    = path.num_relays;
        memcpy(route->resources, path.resources, (size_t)path.num_resources * sizeof(path.resources[0]));
    }
}
