/* SPDX-License-Identifier: BSD-3-Clause */
/* Gate: when mpath steps aside. */
#include "coll/gate.h"

#include <stddef.h>

void mpath_gate_look(const mpath_topo_t *topo, const uint64_t *demand, mpath_gate_view_t *view)
{
    int num_ranks = mpath_topo_num_ranks(topo);

    view->largest_bytes = 0;
    view->between_bytes = 0;
    for (int source = 0; source < num_ranks; source++) {
        int node            = mpath_topo_place(topo, source)->node;
        const uint64_t *row = demand + (size_t)source * (size_t)num_ranks;

        for (int destination = 0; destination < num_ranks; destination++) {
            if ((source == destination) || (row[destination] == 0)) {
                continue;
            }
            if (row[destination] > view->largest_bytes) {
                view->largest_bytes = row[destination];
            }
            if (mpath_topo_place(topo, destination)->node != node) {
                view->between_bytes += row[destination];
            }
        }
    }
}

const char *mpath_gate_before_plan(const mpath_settings_t *settings, const mpath_gate_view_t *view)
{
    switch (settings->gate) {
    case MPATH_GATE_ALWAYS:
        return NULL;
    case MPATH_GATE_NEVER:
        return "the parameter gate says never";
    default:
        break;
    }
    if ((view->between_bytes == 0) && (view->largest_bytes >= settings->node_min_bytes)) {
        return "all data stays inside nodes, in messages of node_min_bytes or more";
    }
    return NULL;
}

int mpath_gate_compares(const mpath_topo_t *topo, const mpath_settings_t *settings)
{
    if ((settings->gate != MPATH_GATE_AUTO) || (mpath_topo_params(topo)->access != MPATH_REACH_ALL)) {
        return 0;
    }
    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        const mpath_machine_t *machine = mpath_topo_machine(topo, node);
        int up                         = 0;

        for (int nic = 0; nic < machine->num_nics; nic++) {
            up += machine->nics[nic].up ? 1 : 0;
        }
        if (up > 1) {
            return 0;
        }
    }
    return 1;
}

const char *mpath_gate_after_plan(uint64_t plan_ns, uint64_t direct_ns)
{
    return (plan_ns < direct_ns) ? NULL : "there is one rail, and no better route than the static one";
}
