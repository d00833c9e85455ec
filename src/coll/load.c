/* SPDX-License-Identifier: BSD-3-Clause */
/* Load: sums of a matrix by rank and by node. */
#include "coll/load.h"

#include "util/time.h"

#include <string.h>

enum { SENT, RECEIVED, SENT_AWAY, RECEIVED_AWAY }; /* which sums, each of all ranks */

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? b : a;
}

/* Of those that are up, together. */
static uint64_t nics_bps(const mpath_machine_t *machine)
{
    uint64_t bps = 0;

    for (int nic = 0; nic < machine->num_nics; nic++) {
        bps += machine->nics[nic].up ? machine->nics[nic].rate_bps : 0;
    }
    return bps;
}

/* For times below some days. */
static uint64_t time_of(uint64_t bytes, uint64_t bps)
{
    return (uint64_t)((double)bytes * (double)MPATH_NS_PER_S / (double)((bps > 0) ? bps : 1));
}

static void add_rank(const mpath_topo_t *topo, const uint64_t *demand, int source, uint64_t *sums)
{
    int size = mpath_topo_num_ranks(topo), node = mpath_topo_place(topo, source)->node;
    size_t ranks = (size_t)size, from = (size_t)source;
    const uint64_t *row = demand + from * ranks;

    for (int destination = 0; destination < size; destination++) {
        uint64_t bytes = row[destination];
        size_t to      = (size_t)destination;

        if (bytes == 0) {
            continue;
        }
        sums[SENT * ranks + from] += bytes;
        sums[RECEIVED * ranks + to] += bytes;
        if (mpath_topo_place(topo, destination)->node != node) {
            sums[SENT_AWAY * ranks + from] += bytes;
            sums[RECEIVED_AWAY * ranks + to] += bytes;
        }
    }
}

static void add_node(const mpath_topo_t *topo, int node, const uint64_t *sums, mpath_load_t *load)
{
    size_t ranks  = (size_t)mpath_topo_num_ranks(topo);
    uint64_t sent = 0, received = 0, local = 0;

    for (size_t rank = 0; rank < ranks; rank++) {
        if (mpath_topo_place(topo, (int)rank)->node == node) {
            sent += sums[SENT_AWAY * ranks + rank];
            received += sums[RECEIVED_AWAY * ranks + rank];
            local++;
        }
    }
    load->node_cross = max_u64(load->node_cross, max_u64(sent, received) / max_u64(local, 1));
    load->links_ns   = max_u64(load->links_ns,
                               time_of(max_u64(sent, received), nics_bps(mpath_topo_machine(topo, node))));
}

void mpath_load_find(const mpath_topo_t *topo, const uint64_t *demand, uint64_t *sums, mpath_load_t *load)
{
    size_t ranks = (size_t)mpath_topo_num_ranks(topo);

    *load = (mpath_load_t){0};
    memset(sums, 0, MPATH_LOAD_SUMS * ranks * sizeof(*sums));
    for (size_t rank = 0; rank < ranks; rank++) {
        add_rank(topo, demand, (int)rank, sums);
    }
    for (size_t rank = 0; rank < ranks; rank++) {
        load->busiest       = max_u64(load->busiest, max_u64(sums[SENT * ranks + rank], sums[RECEIVED * ranks + rank]));
        load->busiest_cross = max_u64(load->busiest_cross,
                                      max_u64(sums[SENT_AWAY * ranks + rank], sums[RECEIVED_AWAY * ranks + rank]));
    }
    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        add_node(topo, node, sums, load);
    }
}
