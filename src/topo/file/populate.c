/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes and ranks for topology files that describe machines only. */
#include "topo/beside.h"
#include "topo/file/xml.h"
#include "util/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_POPULATED_NODES 65536
#define MAX_POPULATED_RANKS (1 << 20)

static int ranks_of(const mpath_topo_file_t *file, int node)
{
    const mpath_machine_t *machine = &file->machines[node];
    int gpus = (file->gpus != NULL) ? file->gpus[node].num_gpus : 0, up = 0;

    for (int nic = 0; nic < machine->num_nics; nic++) {
        up += machine->nics[nic].up != 0;
    }
    return (gpus > 0) ? gpus : up;
}

/* NVLink domains of several machines are those of each group of them. */
static void copy_node(const mpath_topo_file_t *from, int domains, mpath_topo_file_t *to, int node)
{
    mpath_machine_t *machine = &to->machines[node];
    int source               = node % from->num_nodes;

    *machine = from->machines[source];
    if ((machine->host[0] == '\0') || (to->num_nodes > from->num_nodes)) {
        memset(machine->host, 0, sizeof(machine->host));
        snprintf(machine->host, sizeof(machine->host), "node%d", node);
    }
    if (from->gpus != NULL) {
        to->gpus[node] = from->gpus[source];
        if ((to->gpus[node].domain >= 0) && (from->num_nodes > 1)) {
            to->gpus[node].domain += node / from->num_nodes * domains;
        }
    }
}

static void place_ranks(mpath_topo_file_t *file)
{
    int rank = 0;

    for (int node = 0; node < file->num_nodes; node++) {
        int on_gpus = (file->gpus != NULL) && (file->gpus[node].num_gpus > 0);

        for (int i = 0; i < ranks_of(file, node); i++) {
            file->places[rank++] = (mpath_place_t){.node = node, .nic = -1, .gpu = on_gpus ? i : -1};
        }
    }
}

static int count_domains(const mpath_topo_file_t *file)
{
    int domains = 0;

    for (int node = 0; (file->gpus != NULL) && (node < file->num_nodes); node++) {
        domains = (file->gpus[node].domain >= domains) ? file->gpus[node].domain + 1 : domains;
    }
    return domains;
}

static mpath_status_t check(const char *name, const mpath_topo_file_t *file, int num_nodes, long num_ranks)
{
    const char *wrong = NULL;

    if (file->num_ranks > 0) {
        wrong = "it places ranks on its nodes, so their number cannot be chosen";
    } else if ((num_nodes < 1) || (num_nodes > MAX_POPULATED_NODES) || (num_ranks > MAX_POPULATED_RANKS)) {
        wrong = "nodes must be 1 to 65536, and all ranks together 1048576 at most";
    } else if (num_ranks == 0) {
        wrong = "it has no GPU, and no NIC that is up, so that there is nothing that ranks could be on";
    } else {
        return MPATH_OK;
    }
    mpath_error("topology file %s, %d nodes: %s", name, num_nodes, wrong);
    return MPATH_ERR_PARAM;
}

mpath_status_t mpath_topo_file_populate(const char *name, mpath_topo_file_t *file, int num_nodes)
{
    mpath_topo_file_t made = {.params = file->params, .tells_access = file->tells_access};
    mpath_status_t status;
    long num_ranks = 0;

    made.num_nodes = (num_nodes != 0) ? num_nodes : (file->num_nodes == 1) ? 2 : file->num_nodes;
    for (int node = 0; (node < made.num_nodes) && (node < MAX_POPULATED_NODES); node++) {
        num_ranks += ranks_of(file, node % file->num_nodes);
    }
    status = check(name, file, made.num_nodes, num_ranks);
    if (status != MPATH_OK) {
        return status;
    }
    made.num_ranks = (int)num_ranks;
    made.machines  = calloc((size_t)made.num_nodes, sizeof(*made.machines));
    made.gpus      = (file->gpus != NULL) ? calloc((size_t)made.num_nodes, sizeof(*made.gpus)) : NULL;
    made.places    = calloc((size_t)made.num_ranks, sizeof(*made.places));
    if ((made.machines == NULL) || (made.places == NULL) || ((made.gpus == NULL) != (file->gpus == NULL))) {
        mpath_error("topology file %s: no memory for %d nodes", name, made.num_nodes);
        mpath_topo_file_release(&made);
        return MPATH_ERR_NO_MEMORY;
    }
    for (int node = 0; node < made.num_nodes; node++) {
        copy_node(file, count_domains(file), &made, node);
    }
    place_ranks(&made);
    status = mpath_beside_deal(made.machines, made.gpus, made.num_nodes, made.places, made.num_ranks);
    if (!made.tells_access) {
        made.params.access = MPATH_REACH_AFFINE;
    }
    mpath_topo_file_release(file);
    *file = made;
    return status;
}
