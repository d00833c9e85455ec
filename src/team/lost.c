/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the teams of a process have left out is known to all of them: one that is made meanwhile begins without it, instead
 * of finding out by itself, which costs a call of it the time that silence takes to be noticed. Only some of its processes
 * may know of the failure: they tell the others while the team is made.
 */
#include "team/lost.h"

#include "team/team_private.h"
#include "topo/discover/machine.h"
#include "util/log.h"
#include "util/time.h"

#define RECOVER_EVERY 8 /* calls that do not settle by themselves: an agreement more would double the short ones */
#define CARRIER_NS MPATH_NS_PER_S /* how long what the system has said about carriers holds */

/* NICs, a bit each, by the numbers of another machine: a topology file may number them otherwise. */
static mpath_nic_set_t translate(const mpath_machine_t *from, mpath_nic_set_t nics, const mpath_machine_t *to)
{
    mpath_nic_set_t translated = 0;

    for (; nics != 0; nics &= nics - 1) {
        int nic    = mpath_nic_first(nics);
        int number = mpath_machine_find_nic(to, from->nics[nic].name, nic);

        translated |= (number >= 0) ? mpath_nic_bit(number) : 0;
    }
    return translated;
}

/* Nobody may have asked for them since: those whose time is over and that have a link are tried from the start. */
static void forget_old(mpath_context_t *context)
{
    if (mpath_time_ns() < context->lost_until_ns) {
        return;
    }
    for (mpath_nic_set_t nics = context->lost; nics != 0; nics &= nics - 1) {
        if (mpath_machine_has_carrier("/sys", context->machine.nics[mpath_nic_first(nics)].name)) {
            context->lost &= ~(nics & -nics);
        }
    }
}

mpath_nic_set_t mpath_team_lost_known(const mpath_team_t *team, const mpath_machine_t *machine)
{
    mpath_context_t *context = team->context;
    mpath_nic_set_t lost;

    pthread_mutex_lock(&context->lock);
    forget_old(context);
    lost = context->lost;
    pthread_mutex_unlock(&context->lock);
    return translate(&context->machine, lost, machine);
}

void mpath_team_lost_note(const mpath_team_t *team, mpath_nic_set_t nics, int lost)
{
    mpath_context_t *context = team->context;
    mpath_nic_set_t mine     = translate(mpath_topo_machine(team->topo, team->node), nics, &context->machine);

    if (mine == 0) {
        return;
    }
    for (mpath_nic_set_t nic = mine; nic != 0; nic &= nic - 1) {
        const mpath_nic_t *own = &context->machine.nics[mpath_nic_first(nic)];

        mpath_page_rail_lose(mpath_page_rail(own->name, own->rail), lost);
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

/* One that some pair of ranks cannot do without is tried all the same. */
static void leave_out(mpath_team_t *team, int node, int nic, size_t apart)
{
    const mpath_machine_t *machine = mpath_topo_machine(team->topo, node);

    if (!machine->nics[nic].up) {
        team->lost[node] &= ~mpath_nic_bit(nic);
        return;
    }
    (void)mpath_topo_set_nic(team->topo, node, nic, 0);
    if (mpath_topo_num_apart(team->topo) > apart) {
        (void)mpath_topo_set_nic(team->topo, node, nic, 1);
        team->lost[node] &= ~mpath_nic_bit(nic);
        return;
    }
    team->topo_version = 1; /* not that which the GPUs' topology has been made for */
    mpath_info_by(team->rank == 0,
                  "%s: rail %s of %s has failed in another communicator; it is left out until it is back",
                  team->oob.name, machine->nics[nic].name, mpath_topo_host(team->topo, node));
}

static void lost_sum(mpath_team_t *team)
{
    team->lost_anywhere = 0;
    for (int node = 0; node < team->num_nodes; node++) {
        team->lost_anywhere |= team->lost[node];
    }
}

/* When this rank's node looks after them. A process that did not know of the failure does so from now on. */
static void set_probe(mpath_team_t *team)
{
    mpath_nic_set_t known = mpath_team_lost_known(team, mpath_topo_machine(team->topo, team->node));

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
    size_t apart = 0;

    for (int node = 0; node < team->num_nodes; node++) {
        team->lost[node] &= mpath_machine_nics(mpath_topo_machine(team->topo, node)); /* others have said so */
    }
    lost_sum(team);
    if (team->lost_anywhere == 0) {
        return;
    }
    apart = mpath_topo_num_apart(team->topo);
    for (int node = 0; node < team->num_nodes; node++) {
        for (mpath_nic_set_t nics = team->lost[node]; nics != 0; nics &= nics - 1) {
            leave_out(team, node, mpath_nic_first(nics), apart);
        }
    }
    lost_sum(team);
    set_probe(team);
}

/* Each attempt costs a call the time that it takes, and UCX may say something. */
static int wait_for_unopened(mpath_team_t *team)
{
    mpath_context_t *context = team->context;
    int is_first;

    pthread_mutex_lock(&context->lock);
    is_first               = !context->unopened_told;
    context->unopened_told = 1;
    context->unopened_ns   = (context->unopened_ns == 0) ? MPATH_PROBE_FIRST_NS : 2 * context->unopened_ns;
    context->unopened_ns   = (context->unopened_ns < MPATH_PROBE_MOST_NS) ? context->unopened_ns : MPATH_PROBE_MOST_NS;
    team->probe_ns         = context->unopened_ns;
    pthread_mutex_unlock(&context->lock);
    team->back_ns         = 0;
    team->next_probe_ns   = mpath_time_ns() + team->probe_ns;
    team->next_carrier_ns = 0;
    return is_first;
}

static void set_all(mpath_team_t *team, const mpath_nic_set_t *nics, int up)
{
    for (int node = 0; node < team->num_nodes; node++) {
        for (mpath_nic_set_t left = nics[node]; left != 0; left &= left - 1) {
            (void)mpath_topo_set_nic(team->topo, node, mpath_nic_first(left), up);
        }
    }
}

int mpath_team_lost_unopened(mpath_team_t *team, const mpath_nic_set_t *nics)
{
    size_t apart = mpath_topo_num_apart(team->topo);
    int is_first;

    set_all(team, nics, 0);
    if (mpath_topo_num_apart(team->topo) > apart) {
        set_all(team, nics, 1);
        return 0;
    }
    for (int node = 0; node < team->num_nodes; node++) {
        team->lost[node] |= nics[node];
    }
    lost_sum(team);
    team->topo_version++;
    is_first = wait_for_unopened(team);
    mpath_team_lost_note(team, nics[team->node], 1);
    return is_first ? 2 : 1;
}

mpath_nic_set_t mpath_team_lost(const mpath_team_t *team, int node)
{
    return team->lost[node];
}

mpath_nic_set_t mpath_team_lost_anywhere(const mpath_team_t *team)
{
    return team->lost_anywhere;
}

uint64_t mpath_team_lost_probe_ns(const mpath_team_t *team)
{
    return team->probe_ns;
}

/* For summaries: of the nodes' NICs each process counts those of its own. */
static void note_failure(const mpath_team_t *team, int node, int nic, int up)
{
    const mpath_nic_t *own = &mpath_topo_machine(team->topo, team->node)->nics[nic];

    if (node == team->node && !up) {
        atomic_fetch_add(&mpath_page_rail(own->name, own->rail)->failures, 1);
    }
}

int mpath_team_lost_set(mpath_team_t *team, int node, mpath_nic_set_t nics, int up, const char *why)
{
    int count = 0;

    for (; nics != 0; nics &= nics - 1) {
        int nic = mpath_nic_first(nics);

        if ((((team->lost[node] >> nic) & 1) != 0) != up) {
            continue; /* told by several ranks */
        }
        team->lost[node] ^= mpath_nic_bit(nic);
        (void)mpath_topo_set_nic(team->topo, node, nic, up);
        note_failure(team, node, nic, up);
        mpath_warn_by(team->rank == 0, "%s: rail %s of %s %s", team->oob.name,
                      mpath_topo_machine(team->topo, node)->nics[nic].name, mpath_topo_host(team->topo, node), why);
        count++;
    }
    if (count > 0) {
        lost_sum(team);
    }
    return count;
}

/* Another end that shows to be dead before any was used again is the same failure, and one after long is a new one. */
void mpath_team_lost_failed(mpath_team_t *team, mpath_nic_set_t nics)
{
    uint64_t now_ns = mpath_time_ns();

    mpath_team_topo_changed(team);
    if ((team->probe_ns == 0) || ((team->back_ns != 0) && (now_ns - team->back_ns > MPATH_PROBE_MOST_NS))) {
        team->probe_ns = MPATH_PROBE_FIRST_NS;
    } else if (team->back_ns != 0) {
        team->probe_ns = (2 * team->probe_ns < MPATH_PROBE_MOST_NS) ? 2 * team->probe_ns : MPATH_PROBE_MOST_NS;
    }
    team->back_ns         = 0;
    team->next_probe_ns   = now_ns + team->probe_ns;
    team->next_carrier_ns = 0;
    mpath_team_lost_note(team, nics, 1);
}

void mpath_team_lost_found(mpath_team_t *team, mpath_nic_set_t nics)
{
    mpath_team_lost_note(team, nics, 0);
    team->back_ns = mpath_time_ns();
}

int mpath_team_lost_is_due(mpath_team_t *team)
{
    if (team->lost_anywhere == 0) {
        return 0;
    }
    if (team->recover_in > 0) {
        team->recover_in--;
        return 0;
    }
    team->recover_in = RECOVER_EVERY - 1;
    return 1;
}

/* NICs of this node that have a carrier, of the numbers that some node has lost. */
static mpath_nic_set_t carriers(mpath_team_t *team)
{
    const mpath_machine_t *machine = mpath_topo_machine(team->topo, team->node);
    uint64_t now_ns                = mpath_time_ns();
    mpath_nic_set_t lost           = team->lost_anywhere;

    if (now_ns >= team->next_carrier_ns) {
        team->next_carrier_ns = now_ns + CARRIER_NS;
        team->carriers        = 0;
        for (int nic = 0; nic < machine->num_nics; nic++) {
            int has = ((lost >> nic) & 1) && mpath_machine_has_carrier("/sys", machine->nics[nic].name);

            team->carriers |= has ? mpath_nic_bit(nic) : 0;
        }
    }
    return team->carriers & lost;
}

mpath_nic_set_t mpath_team_lost_back(mpath_team_t *team)
{
    if ((team->local_rank != 0) || (team->lost[team->node] == 0) || (mpath_time_ns() < team->next_probe_ns)) {
        return 0;
    }
    return carriers(team) & team->lost[team->node];
}

mpath_nic_set_t mpath_team_lost_dark(mpath_team_t *team)
{
    const mpath_machine_t *machine = mpath_topo_machine(team->topo, team->node);
    mpath_nic_set_t dark           = 0;

    for (int nic = 0; (team->local_rank == 0) && (nic < machine->num_nics); nic++) {
        dark |= machine->nics[nic].up ? team->lost_anywhere & mpath_nic_bit(nic) : 0;
    }
    return (dark != 0) ? dark & ~carriers(team) : 0;
}
