/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NICs that teams of this process have left out since they failed. A team that is made meanwhile begins without them,
 * instead of finding out by itself, which costs a call of it the time that silence takes to be noticed. It asks for
 * them like the others (move_retry.c). Only some of its processes may know of the failure: they tell the others while
 * the team is made.
 */
#include "exec/team_private.h"
#include "topo/machine.h"
#include "util/log.h"
#include "util/time.h"

/* NICs, a bit each, by the numbers of another machine: a topology file may number them otherwise. */
static uint32_t translate(const mpath_machine_t *from, uint32_t nics, const mpath_machine_t *to)
{
    uint32_t translated = 0;

    for (; nics != 0; nics &= nics - 1) {
        int nic    = __builtin_ctz(nics);
        int number = mpath_machine_find_nic(to, from->nics[nic].name, nic);

        translated |= (number >= 0) ? 1u << number : 0;
    }
    return translated;
}

/* Nobody may have asked for them since: those whose time is over and that have a link are tried from the start. */
static void forget_old(mpath_context_t *context)
{
    if (mpath_time_ns() < context->lost_until_ns) {
        return;
    }
    for (uint32_t nics = context->lost; nics != 0; nics &= nics - 1) {
        if (mpath_machine_has_carrier("/sys", context->machine.nics[__builtin_ctz(nics)].name)) {
            context->lost &= ~(nics & -nics);
        }
    }
}

uint32_t mpath_team_lost_known(const mpath_team_t *team, const mpath_machine_t *machine)
{
    mpath_context_t *context = team->context;
    uint32_t lost;

    pthread_mutex_lock(&context->lock);
    forget_old(context);
    lost = context->lost;
    pthread_mutex_unlock(&context->lock);
    return translate(&context->machine, lost, machine);
}

void mpath_team_lost_note(const mpath_team_t *team, uint32_t nics, int lost)
{
    mpath_context_t *context = team->context;
    uint32_t mine            = translate(mpath_topo_machine(team->topo, team->node), nics, &context->machine);

    if (mine == 0) {
        return;
    }
    pthread_mutex_lock(&context->lock);
    if (lost) {
        context->lost |= mine;
        context->lost_until_ns = team->next_probe_ns;
    } else {
        context->lost &= ~mine;
    }
    pthread_mutex_unlock(&context->lock);
}

static size_t pairs_without_way(const mpath_topo_t *topo)
{
    int size     = mpath_topo_num_ranks(topo);
    size_t count = 0;

    for (int source = 0; source < size; source++) {
        for (int destination = 0; destination < size; destination++) {
            count += (source != destination) && (mpath_topo_num_paths(topo, source, destination) == 0);
        }
    }
    return count;
}

/* One that some pair of ranks cannot do without is tried all the same. */
static void leave_out(mpath_team_t *team, int node, int nic, size_t without_way)
{
    const mpath_machine_t *machine = mpath_topo_machine(team->topo, node);

    if (!machine->nics[nic].up) {
        team->lost[node] &= ~(1u << nic);
        return;
    }
    (void)mpath_topo_set_nic(team->topo, node, nic, 0);
    if (pairs_without_way(team->topo) > without_way) {
        (void)mpath_topo_set_nic(team->topo, node, nic, 1);
        team->lost[node] &= ~(1u << nic);
        return;
    }
    team->topo_version = 1; /* not that which the GPUs' topology has been made for */
    mpath_info("%s: rail %s of %s has failed in another communicator; it is left out until it is back", team->oob.name,
               machine->nics[nic].name, machine->host);
}

/* When this rank's node looks after them. A process that did not know of the failure does so from now on. */
static void set_probe(mpath_team_t *team)
{
    uint32_t known = mpath_team_lost_known(team, mpath_topo_machine(team->topo, team->node));

    team->probe_ns = MPATH_PROBE_FIRST_NS;
    if ((team->lost[team->node] & ~known) != 0) {
        team->next_probe_ns = mpath_time_ns() + MPATH_PROBE_FIRST_NS;
        mpath_team_lost_note(team, team->lost[team->node], 1);
        return;
    }
    pthread_mutex_lock(&team->context->lock);
    team->next_probe_ns = team->context->lost_until_ns;
    pthread_mutex_unlock(&team->context->lock);
}

void mpath_team_lost_begin(mpath_team_t *team)
{
    size_t without_way = 0;
    uint32_t lost      = 0;

    for (int node = 0; node < team->num_nodes; node++) {
        lost |= team->lost[node];
    }
    if (lost == 0) {
        return;
    }
    without_way = pairs_without_way(team->topo);
    for (int node = 0; node < team->num_nodes; node++) {
        for (uint32_t nics = team->lost[node]; nics != 0; nics &= nics - 1) {
            leave_out(team, node, __builtin_ctz(nics), without_way);
        }
    }
    set_probe(team);
}
