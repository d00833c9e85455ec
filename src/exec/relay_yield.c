/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, NICs that GPUs lend each other: a GPU comes first on the NIC beside it. Who sends or receives bytes of its own
 * says so to the other communicators of its node (relay_owners.h); what they pass over this NIC meanwhile gets one slot
 * at a time. A sender looks for the NIC on its own node. That of the other node is looked for there, by the rank that
 * passes the chunks on, which tells its senders: in its gate where rails are copies, else with the credits.
 */
#include "exec/relay_private.h"

#include "util/time.h"

/* Bytes of this rank's own are still to come by rails. */
static int still_receives(const mpath_relay_t *relay)
{
    uint64_t left = relay->by_copies ? relay->bound.rail_sources : 0;

    for (; left != 0; left &= left - 1) {
        if (mpath_relay_missing_from(relay, relay->room.member_of[__builtin_ctzll(left)]) != 0) {
            return 1;
        }
    }
    return !relay->by_copies && (relay->fetch_left > 0);
}

void mpath_relay_announce(mpath_relay_t *relay)
{
    const mpath_schedule_t *schedule = relay->bound.schedule;
    _Atomic uint32_t *busy           = &relay->room.gates[relay->room.my_member].nics_busy;
    uint32_t ports                   = 0, seen;
    uint64_t now_ns;

    if (schedule->rails == 0) {
        return;
    }
    for (size_t i = 0; i < schedule->num_outlets; i++) {
        const mpath_outlet_t *given = &schedule->outlets[i];
        int owns                    = (given->kind == MPATH_OUTLET_RAIL) && (relay->bound.outlets[i].own_left > 0);

        ports |= owns ? MPATH_OWNER_SENDS(1u << given->nic) : 0;
    }
    if ((relay->bound.own_rails != 0) && still_receives(relay)) {
        ports |= MPATH_OWNER_RECEIVES(relay->bound.own_rails);
    }
    now_ns = mpath_time_ns();
    mpath_owners_announce(&relay->owners, ports, now_ns);
    if (relay->bound.lent_rails != 0) {
        seen = MPATH_OWNER_RECEIVING(mpath_owners_busy(&relay->owners, now_ns)) & relay->bound.lent_rails;
        if (seen != atomic_load_explicit(busy, memory_order_relaxed)) {
            atomic_store_explicit(busy, seen, memory_order_relaxed);
        }
    }
}

void mpath_relay_announce_end(mpath_relay_t *relay)
{
    mpath_owners_announce(&relay->owners, 0, 0);
    atomic_store_explicit(&relay->room.gates[relay->room.my_member].nics_busy, 0, memory_order_relaxed);
}

int mpath_relay_yields(mpath_relay_t *relay, const relay_op_t *op)
{
    const mpath_duty_t *duty = op->duty;
    uint32_t busy;

    if ((duty->out.lane == MPATH_LANE_RAIL) && (duty->ahead > 0)) {
        busy = relay->by_copies
                   ? atomic_load_explicit(&relay->room.gates[relay->room.member_of[duty->out.to]].nics_busy,
                                          memory_order_relaxed)
                   : relay->rails.nics_busy[duty->out.to];
        return (int)(busy >> duty->out.nic_to) & 1;
    }
    if (op->to_class == MPATH_RELAY_TO_RAIL) {
        const mpath_path_t *path = &relay->bound.paths[duty - relay->bound.schedule->duties];

        busy = mpath_owners_busy(&relay->owners, mpath_time_ns());
        return (busy & MPATH_OWNER_SENDS(1u << path->hops[duty->hop_out + 1].nic_from)) != 0;
    }
    return 0;
}
