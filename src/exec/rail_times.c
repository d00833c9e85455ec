/* SPDX-License-Identifier: BSD-3-Clause */
/* Rail times: arrivals and loads. */
#include "exec/rail_times.h"

#include "exec/team_private.h"
#include "util/time.h"

#include <string.h>

static int comes_by_rail(const mpath_duty_t *duty)
{
    return (duty->hop_in >= 0) && (duty->in.lane == MPATH_LANE_RAIL);
}

void mpath_rail_clock_start(mpath_rail_clock_t *clock, const mpath_schedule_t *schedule)
{
    memset(clock, 0, sizeof(*clock));
    for (size_t i = 0; i < schedule->num_duties; i++) {
        const mpath_duty_t *duty = &schedule->duties[i];

        if (comes_by_rail(duty)) {
            clock->missing_bytes[duty->in.nic_to] += duty->bytes;
        }
    }
    clock->start_ns = mpath_time_ns();
}

void mpath_rail_clock_came(mpath_rail_clock_t *clock, const mpath_duty_t *duty, uint32_t bytes)
{
    int nic = duty->in.nic_to;

    clock->missing_bytes[nic] -= bytes;
    if (clock->missing_bytes[nic] == 0) {
        clock->took_ns[nic] = mpath_time_ns() - clock->start_ns;
    }
}

/* What the NIC takes for its load of the plan. */
static uint64_t load_ns(const mpath_topo_t *topo, const uint64_t *loads, mpath_resource_kind_t kind, int node, int nic)
{
    int resource = mpath_topo_resource_find(topo, kind, node, nic);

    return (resource < 0) ? 0
                          : (uint64_t)((double)loads[resource] * (double)MPATH_NS_PER_S /
                                       (double)mpath_topo_resource(topo, resource)->capacity_bps);
}

uint64_t mpath_rail_times_busiest_ns(const mpath_topo_t *topo, const mpath_plan_t *plan)
{
    const uint64_t *loads = mpath_plan_loads(plan);
    uint64_t most_ns      = 0;

    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        for (int nic = 0; nic < mpath_topo_machine(topo, node)->num_nics; nic++) {
            uint64_t tx_ns = load_ns(topo, loads, MPATH_RESOURCE_NIC_TX, node, nic);
            uint64_t rx_ns = load_ns(topo, loads, MPATH_RESOURCE_NIC_RX, node, nic);

            most_ns = (tx_ns > most_ns) ? tx_ns : most_ns;
            most_ns = (rx_ns > most_ns) ? rx_ns : most_ns;
        }
    }
    return most_ns;
}

/* Of ranks that share a NIC those that get little of what comes by it have it early. */
static int takes_its_part(const mpath_team_t *team, const mpath_topo_t *topo, const uint64_t *loads, int nic,
                          uint64_t bytes)
{
    int resource = mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_RX, team->node, nic);

    return (bytes > 0) && (resource >= 0) && (bytes >= loads[resource] / (uint64_t)team->num_local);
}

void mpath_rail_times_read(const mpath_rail_clock_t *clock, const mpath_team_t *team, const mpath_topo_t *topo,
                           const mpath_schedule_t *schedule, const mpath_plan_t *plan, mpath_rail_times_t *times)
{
    const uint64_t *loads          = mpath_plan_loads(plan);
    uint64_t bytes[MPATH_MAX_NICS] = {0};

    memset(times, 0, sizeof(*times));
    for (size_t i = 0; i < schedule->num_duties; i++) {
        const mpath_duty_t *duty = &schedule->duties[i];
        int nic                  = duty->in.nic_to;

        if (comes_by_rail(duty)) {
            uint64_t rx_ns = load_ns(topo, loads, MPATH_RESOURCE_NIC_RX, team->node, nic);
            uint64_t tx_ns = load_ns(topo, loads, MPATH_RESOURCE_NIC_TX, team->node_of[duty->in.from],
                                     duty->in.nic_from);

            rx_ns                = (tx_ns > rx_ns) ? tx_ns : rx_ns;
            times->least_ns[nic] = (rx_ns > times->least_ns[nic]) ? rx_ns : times->least_ns[nic];
            bytes[nic] += duty->bytes;
        }
    }
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        times->took_ns[nic] = takes_its_part(team, topo, loads, nic, bytes[nic]) ? clock->took_ns[nic] : 0;
    }
}
