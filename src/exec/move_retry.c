/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that fail during a call. No rank leaves a call before all have their bytes: at its end the ranks settle, in an
 * agreement. Who has lost a rail feeds no more and comes there early and marked; the others see the mark and follow.
 * Only when all are there, and know of all that is lost, they end what is under way (move_end.c): so who is late finds
 * somebody to read what it sends, and no rail seems dead for that. They settle once more, and again as long as further
 * rails show to have failed meanwhile. Then nothing is under way anywhere, and all repeat the call on what is left of the
 * topology: the send buffers are still what they were, and bytes that come again are the same. Chunks of the attempt
 * before that are only in the network still are known by its number and dropped.
 *
 * A rail that has failed is used again when both its ends find its NIC with a carrier after a while, which doubles when
 * rails fail soon after they were used again: what tells a dead cable is the carrier, what tells the rest is trying. Of
 * more ends than two, which the silence of one makes suspicious, those come back that have a carrier. The rail is
 * opened anew, beside the old one that other communicators may still hold (fabric_renew.c): each of them comes to it by
 * itself.
 */
#include "exec/move_private.h"

#include "topo/machine.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define SETTLE_SHARE 100u /* calls that take so many times as long as the exchange at their end settle */
#define PROBE_MOST_NS (640 * MPATH_NS_PER_S)
#define RECOVER_EVERY 8 /* calls that do not settle by themselves: an agreement more would double the short ones */
#define CARRIER_NS MPATH_NS_PER_S /* how long what the system has said about carriers holds */

/* What a rank tells the others at the end of a call: NICs of its node, a bit each. */
struct mover_settle {
    uint32_t lost;             /* failed in this call */
    uint32_t back;             /* left out, and may be used again; from the first rank of a node */
    uint32_t dark;             /* in use, without a carrier, where other nodes have lost theirs; from the same */
    uint32_t busy;             /* left out, and have to stay so for this rank; by number, of whatever node */
    uint32_t silent, progress; /* see mpath_move_loss_t */
};

mpath_status_t mpath_mover_retry_init(mpath_mover_t *mover)
{
    mover->settles = calloc((size_t)mover->team->size, sizeof(*mover->settles));
    return (mover->settles != NULL) ? MPATH_OK : MPATH_ERR_NO_MEMORY;
}

/* What messages of the control plane take, which mostly are on the network of the rails: rough costs. */
typedef struct message_cost {
    uint64_t first_ns, each_ns, bps; /* to and from the first node, each other one, and what they hold */
} message_cost_t;

static const message_cost_t port_cost      = {.first_ns = 10000, .each_ns = 2000, .bps = 10000000000};
static const message_cost_t interface_cost = {.first_ns = 250000, .each_ns = 25000, .bps = 1000000000};

/* InfiniBand and RoCE; a network interface has no colon in its name. */
static int all_are_ports(const mpath_topo_t *topo)
{
    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        const mpath_machine_t *machine = mpath_topo_machine(topo, node);

        for (int nic = 0; nic < machine->num_nics; nic++) {
            if (strchr(machine->nics[nic].name, ':') == NULL) {
                return 0;
            }
        }
    }
    return 1;
}

uint64_t mpath_move_settled_from_ns(const mpath_team_t *team)
{
    const message_cost_t *cost = all_are_ports(team->topo) ? &port_cost : &interface_cost;
    uint64_t others = (uint64_t)team->num_nodes - 1, most = 0, bytes;

    if (team->context->settings.resend_min_ms >= 0) {
        return (uint64_t)team->context->settings.resend_min_ms * MPATH_NS_PER_MS;
    }
    for (int node = 0; node < team->num_nodes; node++) {
        most = ((uint64_t)team->num_on[node] > most) ? (uint64_t)team->num_on[node] : most;
    }
    bytes = others * most * (uint64_t)team->size * sizeof(uint64_t); /* rows of sizes, which every exchange has */
    return SETTLE_SHARE *
           (cost->first_ns + ((others > 0) ? others - 1 : 0) * cost->each_ns + bytes * MPATH_NS_PER_S / cost->bps);
}

int mpath_move_settles_ns(const mpath_team_t *team, uint64_t predicted_ns)
{
    return (team->context->settings.resend_after_s > 0) && (team->num_nodes > 1) &&
           (predicted_ns >= team->settled_from_ns);
}

int mpath_mover_settles(const mpath_mover_t *mover, const mpath_plan_t *plan)
{
    return mpath_move_settles_ns(mover->team, mpath_plan_z_ns(plan));
}

void mpath_mover_lose(mpath_mover_t *mover, int nic)
{
    if (mover->settles_call) {
        mover->lost |= 1u << nic;
    }
}

static uint32_t lost_anywhere(const mpath_team_t *team)
{
    uint32_t lost = 0;

    for (int node = 0; node < team->num_nodes; node++) {
        lost |= team->lost[node];
    }
    return lost;
}

/* NICs of this node that have a carrier, of the numbers that some node has lost. */
static uint32_t carriers(mpath_team_t *team)
{
    const mpath_machine_t *machine = mpath_topo_machine(team->topo, team->node);
    uint64_t now_ns                = mpath_time_ns();
    uint32_t lost                  = lost_anywhere(team);

    if (now_ns >= team->next_carrier_ns) {
        team->next_carrier_ns = now_ns + CARRIER_NS;
        team->carriers        = 0;
        for (int nic = 0; nic < machine->num_nics; nic++) {
            int has = ((lost >> nic) & 1) && mpath_machine_has_carrier("/sys", machine->nics[nic].name);

            team->carriers |= has ? 1u << nic : 0;
        }
    }
    return team->carriers & lost;
}

/*
 * NICs of this node that may be tried again; asked of its first rank. It goes on saying so from call to call: that of
 * another node may come to it a call later, and they have to say it in the same one.
 */
static uint32_t nics_back(mpath_team_t *team)
{
    if ((team->local_rank != 0) || (team->lost[team->node] == 0) || (mpath_time_ns() < team->next_probe_ns)) {
        return 0;
    }
    return carriers(team) & team->lost[team->node];
}

/* The dead end of a rail may be on this node although only that on the other one was blamed for the silence. */
static uint32_t nics_dark(mpath_team_t *team)
{
    const mpath_machine_t *machine = mpath_topo_machine(team->topo, team->node);
    uint32_t dark                  = 0;

    for (int nic = 0; (team->local_rank == 0) && (nic < machine->num_nics); nic++) {
        dark |= machine->nics[nic].up ? lost_anywhere(team) & (1u << nic) : 0;
    }
    return (dark != 0) ? dark & ~carriers(team) : 0;
}

/* Takes NICs of a node out of the topology or in again, saying why; their number. The same on all ranks. */
static int set_nics(mpath_team_t *team, int node, uint32_t nics, int up, const char *why)
{
    int count = 0;

    for (; nics != 0; nics &= nics - 1) {
        int nic = __builtin_ctz(nics);

        if ((((team->lost[node] >> nic) & 1) != 0) != up) {
            continue; /* told by several ranks */
        }
        team->lost[node] ^= 1u << nic;
        (void)mpath_topo_set_nic(team->topo, node, nic, up);
        mpath_log((team->rank == 0) ? MPATH_LOG_WARN : MPATH_LOG_INFO, "%s: rail %s of %s %s", team->oob.name,
                  mpath_topo_machine(team->topo, node)->nics[nic].name, mpath_topo_machine(team->topo, node)->host,
                  why);
        count++;
    }
    return count;
}

/* Lets go of the connections from and to NICs. */
static void forget_peers(mpath_mover_t *mover, uint32_t nics)
{
    int *known = mover->peers;

    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        for (int rank = 0; rank < mover->team->size; rank++) {
            for (int nic_to = 0; nic_to < MPATH_MAX_NICS; nic_to++, known++) {
                if ((*known > 0) && ((((nics >> nic) | (nics >> nic_to)) & 1) != 0)) {
                    mpath_fabric_forget_peer(mover->fabric, mover->fabric_nic[nic], *known - 1);
                    *known = 0;
                }
            }
        }
    }
}

/* NICs of this rank for which there is no place for another rail now. */
static uint32_t nics_busy(const mpath_mover_t *mover, uint32_t nics)
{
    uint32_t busy = 0;

    for (; nics != 0; nics &= nics - 1) {
        int nic = __builtin_ctz(nics);

        if (((mover->driven >> nic) & 1) && !mpath_fabric_can_renew(mover->fabric, mover->fabric_nic[nic])) {
            busy |= 1u << nic;
        }
    }
    return busy;
}

/* This rank's rails on lost NICs, and those of the same number, which are connected to them. */
static void suspect_rails(mpath_mover_t *mover, uint32_t nics)
{
    for (; nics != 0; nics &= nics - 1) {
        int nic = __builtin_ctz(nics);

        if ((mover->driven >> nic) & 1) {
            mpath_fabric_suspect(mover->fabric, mover->fabric_nic[nic]);
        }
    }
}

/* Nobody has seen a rail fail: those that are furthest behind of all are it, for the others wait for them. */
static void blame_silent(mpath_mover_t *mover)
{
    uint32_t least = UINT32_MAX;

    for (int rank = 0; rank < mover->team->size; rank++) {
        const mover_settle_t *settle = &mover->settles[rank];

        if (settle->lost != 0) {
            return;
        }
        least = ((settle->silent != 0) && (settle->progress < least)) ? settle->progress : least;
    }
    for (int rank = 0; rank < mover->team->size; rank++) {
        if (mover->settles[rank].progress == least) {
            mover->settles[rank].lost = mover->settles[rank].silent;
        }
    }
}

/* Another end that shows to be dead before any was used again is the same failure, and one after long is a new one. */
static void wait_longer(mpath_team_t *team)
{
    uint64_t now_ns = mpath_time_ns();

    if ((team->probe_ns == 0) || ((team->back_ns != 0) && (now_ns - team->back_ns > PROBE_MOST_NS))) {
        team->probe_ns = MPATH_PROBE_FIRST_NS;
    } else if (team->back_ns != 0) {
        team->probe_ns = (2 * team->probe_ns < PROBE_MOST_NS) ? 2 * team->probe_ns : PROBE_MOST_NS;
    }
    team->back_ns         = 0;
    team->next_probe_ns   = now_ns + team->probe_ns;
    team->next_carrier_ns = 0;
}

/* All ranks know what each has lost: leaves it out. The same on all ranks. */
static mpath_status_t leave_out(mpath_mover_t *mover)
{
    mpath_team_t *team = mover->team;
    uint32_t mine      = 0;
    int count          = 0;

    blame_silent(mover);
    for (int rank = 0; rank < team->size; rank++) {
        count += set_nics(team, team->node_of[rank], mover->settles[rank].lost, 0,
                          "has failed; the call is repeated without it, and it is left out until it is back");
        suspect_rails(mover, mover->settles[rank].lost);
        mine |= (team->node_of[rank] == team->node) ? mover->settles[rank].lost : 0;
    }
    if (count == 0) {
        mpath_error("%s: a call cannot be completed, and no rail that it uses is to blame; the call fails",
                    team->oob.name);
        return MPATH_ERR_UNREACHABLE;
    }
    team->topo_version++;
    wait_longer(team);
    mpath_team_lost_note(team, mine, 1);
    return MPATH_OK;
}

/* All ranks have come with what they have lost: until nothing is under way on any of them. */
static mpath_status_t give_up_together(mpath_mover_t *mover)
{
    mpath_team_t *team    = mover->team;
    mpath_status_t status = leave_out(mover);
    mover_settle_t mine   = {0};
    int marked            = 1;

    while ((status == MPATH_OK) && marked) {
        status = mpath_transfers_end(mover, mover->drained, &mine.lost);
        if (status == MPATH_OK) {
            status = mpath_team_settle_again(team, mine.lost != 0, &mine, sizeof(mine), mover->settles, &marked);
        }
        if ((status == MPATH_OK) && marked) {
            status = leave_out(mover);
        }
    }
    if (status != MPATH_OK) {
        return status;
    }
    mover->repeats++;
    mpath_schedule_destroy(mover->schedule);
    mover->schedule = NULL;
    return MPATH_AGAIN;
}

/* NICs that nodes have lost and that would have nobody at the other end: on one node at most there would be one. */
static uint32_t without_other_end(const mpath_mover_t *mover)
{
    const mpath_team_t *team = mover->team;
    uint32_t once = 0, twice = 0, out = 0;

    for (int node = 0; node < team->num_nodes; node++) {
        const mpath_machine_t *machine = mpath_topo_machine(team->topo, node);
        uint32_t back = mover->settles[team->leaders[node]].back, there = back;

        for (int nic = 0; nic < machine->num_nics; nic++) {
            there |= machine->nics[nic].up ? 1u << nic : 0;
        }
        twice |= once & there;
        once |= there;
        out |= team->lost[node] & ~back;
    }
    return out & ~twice;
}

static int leave_out_dark(mpath_mover_t *mover)
{
    mpath_team_t *team = mover->team;
    int count          = 0;

    for (int rank = 0; rank < team->size; rank++) {
        count += set_nics(team, team->node_of[rank], mover->settles[rank].dark, 0,
                          "has no carrier; it is left out until it is back");
        suspect_rails(mover, mover->settles[rank].dark);
    }
    mpath_team_lost_note(team, mover->settles[team->leaders[team->node]].dark, 1);
    return count;
}

/*
 * Uses NICs again that their nodes want back. The ranks of all nodes go over to new rails and tell each other the
 * addresses: on connections of before UCX cannot be relied upon.
 */
static mpath_status_t take_back(mpath_mover_t *mover)
{
    mpath_team_t *team = mover->team;
    uint32_t back = 0, busy = 0;
    int changes = leave_out_dark(mover);

    for (int rank = 0; rank < team->size; rank++) {
        back |= mover->settles[rank].back;
        busy |= mover->settles[rank].busy;
    }
    back &= ~(busy | without_other_end(mover));
    if ((back == 0) && (changes == 0)) {
        return MPATH_OK;
    }
    team->topo_version++;
    mpath_schedule_destroy(mover->schedule);
    mover->schedule = NULL;
    if (back == 0) {
        return MPATH_OK;
    }
    for (int rank = 0; rank < team->size; rank++) {
        (void)set_nics(team, team->node_of[rank], mover->settles[rank].back & back, 1, "is used again");
    }
    mpath_team_lost_note(team, mover->settles[team->leaders[team->node]].back & back, 0);
    team->back_ns = mpath_time_ns();
    forget_peers(mover, back);
    return mpath_mover_reopen(mover, back);
}

void mpath_move_drain(mpath_team_t *team)
{
    if ((team->mover != NULL) && (team->mover->drained != 0)) {
        (void)mpath_transfers_drive(team->mover, team->mover->drained);
    }
}

/* With `status` not MPATH_OK nothing more is fed. */
static mpath_status_t settle(mpath_mover_t *mover, mpath_status_t status, const mpath_move_loss_t *loss)
{
    mpath_team_t *team  = mover->team;
    mover_settle_t mine = {.lost = loss->lost, .silent = loss->silent, .progress = loss->progress};
    uint32_t nics;
    int marked;

    if (status == MPATH_OK) {
        mine.back = nics_back(team);
        mine.dark = nics_dark(team);
        mine.busy = nics_busy(mover, lost_anywhere(team));
    }
    nics           = mover->driven & ~team->lost[team->node];
    mover->drained = (status != MPATH_OK) ? nics : 0;
    status         = mpath_team_settle(team, status != MPATH_OK, &mine, sizeof(mine), mover->settles, &marked);
    if ((status == MPATH_OK) && marked) {
        mover->drained = nics;
        status         = give_up_together(mover);
    } else if (status == MPATH_OK) {
        status = take_back(mover);
    }
    mover->drained = 0;
    return status;
}

mpath_status_t mpath_mover_settle(mpath_mover_t *mover, mpath_status_t status)
{
    mpath_move_loss_t loss = {.lost = mover->lost};
    int gives_up           = status != MPATH_OK;

    if (gives_up) {
        mpath_mover_stop(mover);
        mpath_inbox_open(mover, 1);
        mover->failed = MPATH_OK;
    }
    mover->lost = 0;
    status      = settle(mover, status, &loss);
    if (gives_up) {
        mpath_inbox_open(mover, 0);
    }
    return status;
}

int mpath_move_settles(const mpath_team_t *team, const mpath_plan_t *plan)
{
    return mpath_mover_settles(team->mover, plan);
}

mpath_status_t mpath_move_settle(mpath_team_t *team, mpath_status_t status, uint32_t lost)
{
    mpath_move_loss_t loss = {.lost = lost};

    return settle(team->mover, status, &loss);
}

mpath_status_t mpath_move_settle_loss(mpath_team_t *team, mpath_status_t status, const mpath_move_loss_t *loss)
{
    return settle(team->mover, status, loss);
}

mpath_status_t mpath_move_recover(mpath_team_t *team)
{
    mpath_status_t status = MPATH_OK;

    if (lost_anywhere(team) == 0) {
        return MPATH_OK;
    }
    if (team->recover_in > 0) {
        team->recover_in--;
        return MPATH_OK;
    }
    team->recover_in = RECOVER_EVERY - 1;
    if (team->mover == NULL) { /* the team has begun with so few rails that it had nothing to move yet */
        status = mpath_mover_create(team);
    }
    if ((status != MPATH_OK) || (team->mover->status != MPATH_OK)) {
        return status;
    }
    return mpath_mover_settle(team->mover, MPATH_OK);
}

int mpath_mover_is_stale(const mpath_mover_t *mover, const mpath_chunk_t *chunk)
{
    return (chunk->bytes == 0) || ((mover->repeats > 0) && ((int32_t)(mover->call_number - chunk->call) > 0));
}
