/* SPDX-License-Identifier: BSD-3-Clause */
/* Gate: when mpath steps aside, and when it keeps to the static routes. */
#include "plan/gate.h"

#include <stddef.h>

#define DECIDED_NS 100000

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

int mpath_gate_has_one_rail(const mpath_topo_t *topo)
{
    if (mpath_topo_params(topo)->access != MPATH_REACH_ALL) {
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

static int takes_static_routes(const mpath_plan_t *plan)
{
    const mpath_flow_t *flows;
    size_t num_flows;

    flows = mpath_plan_flows(plan, &num_flows);
    for (size_t i = 0; i < num_flows; i++) {
        if (flows[i].path != 0) {
            return 0;
        }
    }
    return 1;
}

/* Pipelines take time to fill, but neither half of Z nor 100 us more than the static routes take themselves. */
static int is_decided_by_z(uint64_t plan_ns, uint64_t direct_ns)
{
    return direct_ns > plan_ns + plan_ns / 2 + DECIDED_NS;
}

mpath_status_t mpath_gate_forecast(const mpath_topo_t *topo, const uint64_t *demand,
                                   const mpath_plan_params_t *plan_params, const mpath_time_params_t *time_params,
                                   const mpath_plan_t *plan, mpath_gate_forecast_t *forecast)
{
    mpath_plan_params_t params = *plan_params;
    mpath_gate_forecast_t made = {.plan_ns = mpath_plan_z_ns(plan), .direct_ns = mpath_plan_z_ns(plan)};
    mpath_status_t status;
    size_t num_flows;

    if (takes_static_routes(plan)) {
        *forecast = made;
        return MPATH_OK;
    }
    params.policy = MPATH_POLICY_DIRECT;
    status        = mpath_plan_create(topo, demand, &params, &made.direct);
    if (status != MPATH_OK) {
        return status;
    }
    made.direct_ns = mpath_plan_z_ns(made.direct);
    mpath_plan_flows(plan, &num_flows);
    if ((num_flows <= MPATH_GATE_MAX_FLOWS) && !is_decided_by_z(made.plan_ns, made.direct_ns)) {
        status = mpath_time_predict(topo, plan, time_params, &made.plan_ns);
        /* their time is no less than Z */
        if ((status == MPATH_OK) && (made.plan_ns > made.direct_ns)) {
            status = mpath_time_predict(topo, made.direct, time_params, &made.direct_ns);
        }
    }
    if (status != MPATH_OK) {
        mpath_plan_destroy(made.direct);
        return status;
    }
    *forecast = made;
    return MPATH_OK;
}

void mpath_gate_forecast_release(mpath_gate_forecast_t *forecast)
{
    mpath_plan_destroy(forecast->direct);
    forecast->direct = NULL;
}
