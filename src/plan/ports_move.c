/* SPDX-License-Identifier: BSD-3-Clause */
/* Single moves of bytes from the static routes, and the loads that follow. */
#include "plan/ports.h"

#include <string.h>

mpath_status_t mpath_ports_begin_moves(mpath_ports_t *ports)
{
    memcpy(ports->saved, ports->load, (size_t)ports->num_resources * sizeof(*ports->saved));
    ports->saved_relayed_bytes = ports->relayed_bytes;
    return mpath_moves_begin(&ports->moves, ports->demand, ports->num_ranks);
}

void mpath_ports_reset(mpath_ports_t *ports)
{
    memcpy(ports->load, ports->saved, (size_t)ports->num_resources * sizeof(*ports->saved));
    ports->relayed_bytes = ports->saved_relayed_bytes;
    mpath_moves_reset(&ports->moves);
}

/* Adds bytes to a route, modulo 2^64 so that a negative amount takes them away. */
static void add_load(mpath_ports_t *ports, const mpath_ports_route_t *route, uint64_t bytes)
{
    int i;

    for (i = 0; i < route->num_resources; i++) {
        ports->load[route->resources[i]] += bytes;
    }
    ports->relayed_bytes += bytes * (uint64_t)route->num_relays;
}

mpath_status_t mpath_ports_move(mpath_ports_t *ports, int source, int destination, const mpath_ports_route_t *from,
                                int via, const mpath_ports_route_t *to, uint64_t bytes)
{
    add_load(ports, from, 0 - bytes);
    add_load(ports, to, bytes);
    return mpath_moves_record(&ports->moves, source, destination, via, bytes);
}

mpath_status_t mpath_ports_shift(mpath_ports_t *ports, const mpath_ports_piece_t *from, int via,
                                 const mpath_ports_route_t *to, uint64_t bytes)
{
    add_load(ports, &from->route, 0 - bytes);
    add_load(ports, to, bytes);
    if (from->via != MPATH_PORTS_STATIC) {
        mpath_moves_take(&ports->moves, from->source, from->destination, from->via, bytes);
    }
    if (via == MPATH_PORTS_STATIC) {
        return MPATH_OK; /* what has no move is there */
    }
    return mpath_moves_record(&ports->moves, from->source, from->destination, via, bytes);
}

mpath_status_t mpath_ports_move_pair(mpath_ports_t *ports, int source, int destination, int via, uint64_t bytes)
{
    mpath_ports_route_t from, to;

    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &from);
    mpath_ports_route(ports, source, destination, via, &to);
    return mpath_ports_move(ports, source, destination, &from, via, &to, bytes);
}

int mpath_ports_stamp(mpath_ports_t *ports, const mpath_ports_route_t *route, uint32_t resource)
{
    int i, found = 0;

    ports->serial++;
    for (i = 0; i < route->num_resources; i++) {
        ports->stamp[route->resources[i]] = ports->serial;
        found |= route->resources[i] == resource;
    }
    return found;
}

mpath_status_t mpath_ports_move_over(mpath_ports_t *ports, int source, int destination, int via, uint64_t bytes,
                                     uint64_t *moved_p)
{
    mpath_ports_route_t from, to, legs = {.num_resources = 0};
    uint64_t all = mpath_moves_left(&ports->moves, source, destination), room;

    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &from);
    mpath_ports_route(ports, source, destination, via, &to);
    mpath_ports_add_leg(ports, &legs, source, mpath_ports_driver(ports, source, via, source, destination));
    mpath_ports_add_leg(ports, &legs, mpath_ports_driver(ports, destination, via, source, destination), destination);
    mpath_ports_stamp(ports, &from, 0);
    room     = mpath_ports_room_on(ports, &legs);
    bytes    = bytes < room ? bytes : room;
    bytes    = bytes == 0 ? 0 : mpath_moves_fit(all, bytes, room, ports->min_fragment_bytes);
    *moved_p = bytes;
    return bytes == 0 ? MPATH_OK : mpath_ports_move(ports, source, destination, &from, via, &to, bytes);
}
