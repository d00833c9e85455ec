/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a call shows of its rails: when the last byte came by each NIC, beside what the NICs at both ends of its ways take
 * at least. A receiver knows it best: what it misses its mates have begun to send, since all have agreed on the call just
 * before, while a sender is done when its bytes lie in buffers of the system.
 */
#include "exec/move_private.h"

#include "util/time.h"

#include <string.h>

static int comes_by_rail(const mpath_duty_t *duty)
{
    return (duty->hop_in >= 0) && (duty->in.lane == MPATH_LANE_RAIL);
}

void mpath_mover_time_start(mpath_mover_t *mover)
{
    mover_times_t *times = &mover->times;

    memset(times, 0, sizeof(*times));
    for (size_t i = 0; i < mover->schedule->num_duties; i++) {
        const mpath_duty_t *duty = &mover->schedule->duties[i];

        if (comes_by_rail(duty)) {
            times->missing_bytes[duty->in.nic_to] += duty->bytes;
        }
    }
    times->start_ns = mpath_time_ns();
}

void mpath_mover_time_came(mpath_mover_t *mover, const mpath_duty_t *duty, uint32_t bytes)
{
    mover_times_t *times = &mover->times;
    int nic              = duty->in.nic_to;

    times->missing_bytes[nic] -= bytes;
    if (times->missing_bytes[nic] == 0) {
        times->took_ns[nic] = mpath_time_ns() - times->start_ns;
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

uint64_t mpath_move_rails_ns(const mpath_topo_t *topo, const mpath_plan_t *plan)
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
static int takes_its_part(const mpath_team_t *team, const uint64_t *loads, int nic, uint64_t bytes)
{
    int resource = mpath_topo_resource_find(team->topo, MPATH_RESOURCE_NIC_RX, team->node, nic);

    return (bytes > 0) && (resource >= 0) && (bytes >= loads[resource] / (uint64_t)team->num_local);
}

void mpath_move_times(const mpath_team_t *team, const mpath_plan_t *plan, mpath_move_times_t *times)
{
    const mpath_mover_t *mover     = team->mover;
    const uint64_t *loads          = mpath_plan_loads(plan);
    uint64_t bytes[MPATH_MAX_NICS] = {0};

    memset(times, 0, sizeof(*times));
    for (size_t i = 0; i < mover->schedule->num_duties; i++) {
        const mpath_duty_t *duty = &mover->schedule->duties[i];
        int nic                  = duty->in.nic_to;

        if (comes_by_rail(duty)) {
            uint64_t rx_ns = load_ns(team->topo, loads, MPATH_RESOURCE_NIC_RX, team->node, nic);
            uint64_t tx_ns = load_ns(team->topo, loads, MPATH_RESOURCE_NIC_TX, team->node_of[duty->in.from],
                                     duty->in.nic_from);

            rx_ns                = (tx_ns > rx_ns) ? tx_ns : rx_ns;
            times->least_ns[nic] = (rx_ns > times->least_ns[nic]) ? rx_ns : times->least_ns[nic];
            bytes[nic] += duty->bytes;
        }
    }
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        times->took_ns[nic] = takes_its_part(team, loads, nic, bytes[nic]) ? mover->times.took_ns[nic] : 0;
    }
}
