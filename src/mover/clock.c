/* SPDX-License-Identifier: BSD-3-Clause */
/* Rail times: arrivals and loads. */
#include "mover/clock.h"

#include "team/team.h"
#include "util/reserve.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

static int comes_by_rail(const mpath_duty_t *duty)
{
    return (duty->hop_in >= 0) && (duty->in.lane == MPATH_LANE_RAIL);
}

/* Most of them send nothing to this rank. */
#define SOURCES_BYTES(clock) ((size_t)(clock)->num_sources * (sizeof(*(clock)->sources) + sizeof(*(clock)->used)))

mpath_status_t mpath_rail_clock_init(mpath_rail_clock_t *clock, const mpath_team_t *team)
{
    memset(clock, 0, sizeof(*clock));
    clock->team        = team;
    clock->source_nics = mpath_topo_most_nics(mpath_team_topo(team));
    clock->num_sources = (mpath_team_num_nodes(team) <= MPATH_RAIL_TIMES_NODES)
                             ? mpath_team_num_nodes(team) * clock->source_nics
                             : 0;
    if (clock->num_sources > 0) {
        clock->sources = mpath_reserve(SOURCES_BYTES(clock));
        if (clock->sources != NULL) {
            clock->used = (int *)(void *)(clock->sources + clock->num_sources);
        }
    }
    return ((clock->num_sources > 0) && (clock->sources == NULL)) ? MPATH_ERR_NO_MEMORY : MPATH_OK;
}

void mpath_rail_clock_release(mpath_rail_clock_t *clock)
{
    mpath_unreserve(clock->sources, SOURCES_BYTES(clock));
    clock->sources = NULL;
    clock->used    = NULL;
}

/* Where the bytes of a duty come from; NULL: sources are not looked at. */
static mpath_rail_source_t *source_of(const mpath_rail_clock_t *clock, const mpath_duty_t *duty)
{
    return (clock->sources == NULL)
               ? NULL
               : &clock->sources[mpath_team_node_of(clock->team, duty->in.from) * clock->source_nics +
                                 duty->in.nic_from];
}

void mpath_rail_clock_start(mpath_rail_clock_t *clock, const mpath_schedule_t *schedule)
{
    memset(clock->bytes, 0, sizeof(clock->bytes));
    memset(clock->took_ns, 0, sizeof(clock->took_ns));
    memset(clock->pace_ns, 0, sizeof(clock->pace_ns));
    for (; clock->num_used > 0; clock->num_used--) {
        clock->sources[clock->used[clock->num_used - 1]] = (mpath_rail_source_t){.bytes = 0};
    }
    for (size_t i = 0; i < schedule->num_duties; i++) {
        const mpath_duty_t *duty = &schedule->duties[i];

        if (comes_by_rail(duty)) {
            mpath_rail_source_t *source = source_of(clock, duty);

            clock->bytes[duty->in.nic_to] += duty->bytes;
            if (source != NULL) {
                if (source->bytes == 0 && duty->bytes > 0) {
                    clock->used[clock->num_used++] = (int)(source - clock->sources);
                }
                source->bytes += duty->bytes;
                source->missing_bytes += duty->bytes;
            }
        }
    }
    memcpy(clock->missing_bytes, clock->bytes, sizeof(clock->bytes));
    clock->start_ns = mpath_time_ns();
}

/* A source of what comes by a NIC has nothing more to send, `now_ns` after the start. */
static void note_pace(mpath_rail_clock_t *clock, int nic, uint64_t now_ns)
{
    uint64_t came = clock->bytes[nic] - clock->missing_bytes[nic], pace_ns;

    if (2 * came >= clock->bytes[nic]) {
        pace_ns = (uint64_t)((double)now_ns * (double)clock->bytes[nic] / (double)came);

        clock->pace_ns[nic] = ((clock->pace_ns[nic] == 0) || (pace_ns < clock->pace_ns[nic])) ? pace_ns
                                                                                              : clock->pace_ns[nic];
    }
}

void mpath_rail_clock_came(mpath_rail_clock_t *clock, const mpath_duty_t *duty, uint32_t bytes)
{
    mpath_rail_source_t *source = source_of(clock, duty);
    int nic                     = duty->in.nic_to, ends;
    uint64_t now_ns;

    clock->missing_bytes[nic] -= bytes;
    ends = (clock->missing_bytes[nic] == 0);
    if (source != NULL) {
        source->missing_bytes -= bytes;
        ends = ends || (source->missing_bytes == 0);
    }
    if (ends) {
        now_ns              = mpath_time_ns() - clock->start_ns;
        clock->took_ns[nic] = (clock->missing_bytes[nic] == 0) ? now_ns : 0;
        if ((source != NULL) && (source->missing_bytes == 0)) {
            source->took_ns = now_ns;
        }
        note_pace(clock, nic, now_ns);
    }
}

/* What the NIC takes for its load of the plan. */
static uint64_t load_ns(const mpath_topo_t *topo, const uint64_t *loads, mpath_resource_kind_t kind, int node, int nic)
{
    int resource = mpath_topo_resource_find(topo, kind, node, nic);

    return (resource < 0) ? 0
                          : (uint64_t)((double)loads[resource] * (double)MPATH_NS_PER_S /
                                       (double)mpath_topo_resource(topo, resource).capacity_bps);
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
    int resource = mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_RX, mpath_team_node(team), nic);

    return (bytes > 0) && (resource >= 0) && (bytes >= loads[resource] / (uint64_t)mpath_team_num_local(team));
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return (a > b) ? a : b;
}

void mpath_rail_times_read(mpath_rail_clock_t *clock, const mpath_team_t *team, const mpath_topo_t *topo,
                           const mpath_schedule_t *schedule, const mpath_plan_t *plan, mpath_rail_times_t *times)
{
    const uint64_t *loads = mpath_plan_loads(plan);

    memset(times, 0, sizeof(*times));
    times->sources     = clock->sources;
    times->source_nics = clock->source_nics;
    for (size_t i = 0; i < schedule->num_duties; i++) {
        const mpath_duty_t *duty = &schedule->duties[i];
        int nic                  = duty->in.nic_to;

        if (comes_by_rail(duty)) {
            mpath_rail_source_t *source = source_of(clock, duty);
            int node = mpath_team_node_of(team, duty->in.from), nic_from = duty->in.nic_from;
            uint64_t rx_ns = load_ns(topo, loads, MPATH_RESOURCE_NIC_RX, mpath_team_node(team), nic);
            uint64_t tx_ns = load_ns(topo, loads, MPATH_RESOURCE_NIC_TX, node, nic_from), least_ns;

            least_ns             = larger(rx_ns, tx_ns);
            times->own_ns[nic]   = rx_ns;
            times->least_ns[nic] = larger(times->least_ns[nic], least_ns);
            if (source != NULL) {
                source->own_ns     = tx_ns;
                source->least_ns   = larger(source->least_ns, least_ns);
                source->load_bytes = loads[mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_TX, node, nic_from)];
            }
        }
    }
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        if (takes_its_part(team, topo, loads, nic, clock->bytes[nic])) {
            times->took_ns[nic] = clock->took_ns[nic];
            times->pace_ns[nic] = clock->pace_ns[nic];
        }
    }
}
