/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends of calls in which NICs were lost, without the calls. */
#include "lost_nics.h"

mpath_context_t *lost_context(ranks_self_t *self)
{
    mpath_settings_t settings;

    ranks_drop_log();
    mpath_settings_init(&settings);
    settings.memory_bytes = 4 << 20;
    settings.gate         = MPATH_GATE_ALWAYS;
    return ranks_context(self, &settings);
}

mpath_links_t *lost_open_links(mpath_team_t *team)
{
    mpath_links_t *links = NULL;

    ranks_check(mpath_links_get(team, MPATH_LINKS_ALL, &links) == MPATH_OK);
    return links;
}

mpath_status_t lost_end_call(mpath_team_t *team, const mpath_failover_loss_t *loss)
{
    const mpath_failover_loss_t none = {0};

    return mpath_failover_settle(team, (loss != NULL) ? MPATH_ERR_UNREACHABLE : MPATH_OK,
                                 (loss != NULL) ? loss : &none);
}

void lose(mpath_team_t *team, int rank, uint32_t nics)
{
    const mpath_failover_loss_t loss = {.lost = nics};
    unsigned version                 = mpath_team_topo_version(team);

    ranks_check(lost_end_call(team, (mpath_team_rank(team) == rank) ? &loss : NULL) == MPATH_AGAIN);
    ranks_check(mpath_team_topo_version(team) == version + 1);
}

void check_out(const mpath_team_t *team, uint32_t on_first, uint32_t on_second)
{
    const uint32_t out[] = {on_first, on_second};

    ranks_check(team->num_nodes <= 2);
    for (int node = 0; node < team->num_nodes; node++) {
        const mpath_machine_t *machine = mpath_topo_machine(team->topo, node);

        ranks_check(team->lost[node] == out[node]);
        for (int nic = 0; nic < machine->num_nics; nic++) {
            ranks_check((machine->nics[nic].up != 0) == !((out[node] >> nic) & 1));
        }
    }
}
