/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that fail during a call. No rank leaves a call before all have their bytes: at its end the ranks settle, in an
 * agreement. Who has lost a rail feeds no more and comes there early and marked; the others see the mark and follow.
 * Only when all are there, and know of all that is lost, they end what is under way (wire/failover.c): so who is late finds
 * somebody to read what it sends, and no rail seems dead for that. They settle once more, and again as long as further
 * rails show to have failed meanwhile. Then nothing is under way anywhere, and all repeat the call on what is left of the
 * topology: the send buffers are still what they were, and bytes that come again are the same. Chunks of the attempt
 * before that are only in the network still are known, by the wire's id, which is another one then, and dropped; those that are
 * in slots by the number of the call.
 *
 * A rail that has failed is used again when both its ends find its NIC with a carrier after a while, which doubles when
 * rails fail soon after they were used again: what tells a dead cable is the carrier, what tells the rest is trying. Of
 * more ends than two, which the silence of one makes suspicious, those come back that have a carrier. The rail is
 * opened anew, beside the old one that other communicators may still hold (rail/fabric.c): each of them comes to it by
 * itself.
 */
#include "wire/failover.h"

#include "team/lost.h"
#include "team/wait.h"
#include "util/log.h"
#include "util/time.h"
#include "wire/links_private.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * How what is under way on rails ends when a call is given up, for all that move chunks over the links.
 *
 * In a call that is repeated all ranks have told each other before which NICs are lost, and all are here: they read and
 * drop what comes. So what is under way between other NICs ends by itself, however late its other end is, and nobody
 * ends a connection that works. In a call that fails nobody can be relied upon to read, so a moment has to do.
 */

#define QUIET_NS (150 * MPATH_NS_PER_MS) /* nothing happened for so long: what works would have ended */
#define ABANDON_NS MPATH_NS_PER_S        /* the longest time to wait for that, and for UCX to end a connection */
#define TEXT_MAX (MPATH_HOST_NAME_MAX + MPATH_NIC_NAME_MAX + 48)

static void sweep(mpath_links_t *links, mpath_transfer_visit_t visit, void *argument)
{
    for (const mpath_links_user_t *user = links->users; user != NULL; user = user->next) {
        if (user->ops->sweep != NULL) {
            user->ops->sweep(user->self, visit, argument);
        }
    }
}

static void abort_send(mpath_links_t *links, const mpath_transfer_t *transfer)
{
    int peer = mpath_links_peer(links, transfer->nic, transfer->rank, transfer->nic_to);

    if (peer >= 0) {
        mpath_fabric_abort_peer(links->fabric, transfer->rail, peer);
    }
}

/* With all its connections on which something is under way. The NICs of rails that are closed over that. */
static mpath_nic_set_t abort_rails(const mpath_links_t *links, mpath_nic_set_t nics)
{
    mpath_nic_set_t closed = 0;

    for (; nics != 0; nics &= nics - 1) {
        int nic = mpath_nic_first(nics), rail = links->fabric_nic[nic];

        mpath_warn("%s: gives up what is under way on rail %s", mpath_team_name(links->team),
                   mpath_fabric_rail_name(links->fabric, rail));
        mpath_fabric_abort(links->fabric, rail);
        closed |= (mpath_fabric_progress(links->fabric, rail) < 0) ? mpath_nic_bit(nic) : 0;
    }
    return closed;
}

/* -- of a call that is repeated -- */

/* A look at everything that is under way, what is done about it, and what it has shown. */
typedef struct look {
    mpath_links_t *links;
    mpath_nic_set_t nics;                   /* that this rank drives */
    mpath_nic_set_t lost;                   /* NICs of this node that have failed since the ranks told each other */
    int aborts;                             /* ends connections over lost NICs that something is sent on */
    int checks;                             /* asks whether other ends still answer */
    int gives_up;                           /* takes other NICs for lost */
    int ended;                              /* transfers */
    mpath_nic_set_t lost_sends, lost_takes; /* on whose rails transfers are left that go over lost NICs */
    mpath_nic_set_t others;                 /* on whose rails others are left, */
    mpath_transfer_t other;                 /* and one of these */
} look_t;

static int goes_over_lost(const look_t *look, const mpath_transfer_t *transfer)
{
    const mpath_team_t *team = look->links->team;
    mpath_nic_set_t here     = mpath_team_lost(team, mpath_team_node(team)) | look->lost;
    int lost                 = (int)(here >> transfer->nic) & 1;

    if (transfer->rank >= 0) {
        return lost || ((mpath_team_lost(team, mpath_team_node_of(team, transfer->rank)) >> transfer->nic_to) & 1);
    }
    for (int node = 0; node < mpath_team_num_nodes(team); node++) { /* NICs of the same number are connected */
        lost = lost || ((mpath_team_lost(team, node) >> transfer->nic) & 1);
    }
    return lost;
}

/* "rank 3 (node1) by rail NAME" */
static void other_end_text(const look_t *look, const mpath_transfer_t *transfer, char *text, size_t size)
{
    const mpath_team_t *team = look->links->team;
    const char *rail         = mpath_fabric_rail_name(look->links->fabric, transfer->rail);

    if (transfer->rank >= 0) {
        snprintf(text, size, "rank %d (%s) by rail %s", transfer->rank, mpath_team_host(team, transfer->rank), rail);
    } else {
        snprintf(text, size, "another rank by rail %s", rail);
    }
}

static void lose(look_t *look, const mpath_transfer_t *transfer, const char *why)
{
    const mpath_team_t *team = look->links->team;
    char text[TEXT_MAX];

    other_end_text(look, transfer, text, sizeof(text));
    mpath_warn("%s: while a call is given up, what rank %d (%s) %s %s %s; the call is repeated without that rail, too",
               mpath_team_name(team), mpath_team_rank(team), mpath_team_host(team, mpath_team_rank(team)),
               transfer->sends ? "sends to" : "fetches from", text, why);
    look->lost |= mpath_nic_bit(transfer->nic);
}

static void visit_other(look_t *look, const mpath_transfer_t *transfer)
{
    mpath_links_t *links = look->links;
    int peer             = -1;

    look->others |= mpath_nic_bit(transfer->nic);
    look->other = *transfer;
    if (look->checks && (transfer->rank >= 0)) {
        peer = mpath_links_peer(links, transfer->nic, transfer->rank, transfer->nic_to);
    }
    if ((peer >= 0) && (mpath_fabric_peer_status(links->fabric, transfer->rail, peer) != MPATH_OK)) {
        lose(look, transfer, "does not answer any more");
    } else if (look->gives_up) {
        lose(look, transfer, "does not end");
    }
}

static void visit(void *argument, const mpath_transfer_t *transfer)
{
    look_t *look = argument;

    if (transfer->status != MPATH_INPROGRESS) {
        look->ended++;
        if (mpath_status_is_error(transfer->status) && !goes_over_lost(look, transfer)) {
            lose(look, transfer, "has failed");
        }
    } else if (!goes_over_lost(look, transfer)) {
        visit_other(look, transfer);
    } else {
        *(transfer->sends ? &look->lost_sends : &look->lost_takes) |= mpath_nic_bit(transfer->nic);
        if (transfer->sends && look->aborts) {
            abort_send(look->links, transfer);
        }
    }
}

/* Nonzero: something is left. */
static int look_around(look_t *look)
{
    look->ended      = 0;
    look->lost_sends = look->lost_takes = look->others = 0;
    sweep(look->links, visit, look);
    look->aborts = look->checks = look->gives_up = 0;
    return (look->lost_sends | look->lost_takes | look->others) != 0;
}

/* What does not end over lost NICs is not waited for. */
static void end_lost(look_t *look, uint64_t waited_ns)
{
    mpath_nic_set_t rails = 0;

    look->aborts = waited_ns > QUIET_NS;
    if (waited_ns > QUIET_NS) { /* what is fetched cannot be called back otherwise */
        rails |= look->lost_takes & ~look->others;
    }
    if (waited_ns > QUIET_NS + ABANDON_NS) { /* nor is what UCX does not let go of */
        rails |= look->lost_sends & ~look->others;
    }
    look->lost |= abort_rails(look->links, rails);
}

static mpath_status_t end_look(void *engine, int *events_p)
{
    look_t *look = engine;

    if (!look_around(look)) {
        return MPATH_OK;
    }
    *events_p = look->ended;
    if (look->ended > 0) {
        mpath_idle_yield();
    }
    (void)mpath_links_drive(look->links, look->nics);
    return MPATH_INPROGRESS;
}

/* Says what the next look is to do. */
static mpath_status_t end_check(void *engine, uint64_t waited_ns)
{
    look_t *look = engine;

    end_lost(look, waited_ns);
    look->checks = 1;
    return MPATH_OK;
}

static mpath_status_t end_lose_silent(void *engine, int seconds)
{
    look_t *look = engine;

    (void)seconds;
    look->gives_up = 1;
    return MPATH_OK;
}

static int end_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    const look_t *look       = engine;
    const mpath_team_t *team = look->links->team;
    char other[TEXT_MAX];

    (void)why;
    if (look->others == 0) {
        return 0; /* what goes over lost NICs is ended by force */
    }
    *rank_p = look->other.rank;
    other_end_text(look, &look->other, other, sizeof(other));
    snprintf(text, size, "%s: rank %d (%s), in a call that is given up, waits for the end of what it %s %s",
             mpath_team_name(team), mpath_team_rank(team), mpath_team_host(team, mpath_team_rank(team)),
             look->other.sends ? "has sent to" : "fetches from", other);
    return 1;
}

/*
 * All ranks are in this and know which NICs the team has lost: until nothing of this rank is under way. *lost_p: NICs of
 * this node that have failed meanwhile. Errors, which are logged, leave something under way.
 */
static mpath_status_t transfers_end(mpath_links_t *links, mpath_nic_set_t nics, mpath_nic_set_t *lost_p)
{
    static const mpath_wait_ops_t ops = {
        .look = end_look, .check = end_check, .lose_silent = end_lose_silent, .edge = end_edge};
    look_t look = {.links = links, .nics = nics};
    mpath_status_t status;
    mpath_wait_t wait;

    mpath_wait_prepare(&wait, links->team, 1);
    wait.follows = 0; /* all ranks are here */
    status       = mpath_wait(&wait, &ops, &look);
    *lost_p      = look.lost & ~mpath_team_lost(links->team, mpath_team_node(links->team));
    return status;
}

/* -- of a call that fails -- */

/* What is left, by the NICs of its rails. */
typedef struct rest {
    mpath_links_t *links;
    int aborts; /* ends connections that something is sent on */
    mpath_nic_set_t sends, takes;
} rest_t;

static void visit_rest(void *argument, const mpath_transfer_t *transfer)
{
    rest_t *rest = argument;

    if (transfer->status == MPATH_INPROGRESS) {
        *(transfer->sends ? &rest->sends : &rest->takes) |= mpath_nic_bit(transfer->nic);
        if (transfer->sends && rest->aborts) {
            abort_send(rest->links, transfer);
        }
    }
}

static void look_at_rest(rest_t *rest)
{
    rest->sends = rest->takes = 0;
    sweep(rest->links, visit_rest, rest);
}

/* Until this rank's own transfers have ended and nothing comes any more. */
static void drain(rest_t *rest, mpath_nic_set_t nics)
{
    uint64_t start_ns = mpath_time_ns(), event_ns = start_ns, now_ns = start_ns;

    look_at_rest(rest);
    while ((now_ns - start_ns < ABANDON_NS) && ((rest->sends | rest->takes) || (now_ns - event_ns < QUIET_NS))) {
        int events = mpath_links_drive(rest->links, nics);

        sched_yield();
        now_ns   = mpath_time_ns();
        event_ns = (events > 0) ? now_ns : event_ns;
        look_at_rest(rest);
    }
}

/* Connections on which something is sent end together with it: other teams keep those to other ranks. */
static void abort_sends(rest_t *rest, mpath_nic_set_t nics)
{
    uint64_t end_ns = mpath_time_ns() + ABANDON_NS;

    for (rest->aborts = 1; (rest->sends != 0) && (mpath_time_ns() < end_ns); rest->aborts = 0) {
        look_at_rest(rest);
        (void)mpath_links_drive(rest->links, nics);
    }
    look_at_rest(rest);
}

void mpath_links_abandon(mpath_links_t *links, mpath_nic_set_t nics)
{
    rest_t rest = {.links = links};

    drain(&rest, nics);
    abort_sends(&rest, nics);
    (void)abort_rails(links, rest.sends | rest.takes);
    for (look_at_rest(&rest); (rest.sends | rest.takes) != 0; look_at_rest(&rest)) {
        sched_yield(); /* only while another thread holds the rail's lock */
    }
}

/* NICs of this rank for which there is no place for another rail now. */
static mpath_nic_set_t nics_busy(const mpath_links_t *links, mpath_nic_set_t nics)
{
    mpath_nic_set_t busy = 0;

    for (; nics != 0; nics &= nics - 1) {
        int nic = mpath_nic_first(nics);

        if (((links->driven >> nic) & 1) && !mpath_fabric_can_renew(links->fabric, links->fabric_nic[nic])) {
            busy |= mpath_nic_bit(nic);
        }
    }
    return busy;
}

/* This rank's rails on lost NICs, and those of the same number, which are connected to them. */
static void suspect_rails(mpath_links_t *links, mpath_nic_set_t nics)
{
    for (; nics != 0; nics &= nics - 1) {
        int nic = mpath_nic_first(nics);

        if ((links->driven >> nic) & 1) {
            mpath_fabric_suspect(links->fabric, links->fabric_nic[nic]);
        }
    }
}

/* Nobody has seen a rail fail: those that are furthest behind of all are it, for the others wait for them. */
static void blame_silent(mpath_links_t *links)
{
    uint32_t least = UINT32_MAX;

    for (int rank = 0; rank < mpath_team_size(links->team); rank++) {
        const mpath_links_settle_t *settle = &links->settles[rank];

        if (settle->lost != 0) {
            return;
        }
        least = ((settle->silent != 0) && (settle->progress < least)) ? settle->progress : least;
    }
    for (int rank = 0; rank < mpath_team_size(links->team); rank++) {
        if (links->settles[rank].progress == least) {
            links->settles[rank].lost = links->settles[rank].silent;
        }
    }
}

/* All ranks know what each has lost: leaves it out. The same on all ranks. */
static mpath_status_t leave_out(mpath_links_t *links)
{
    mpath_team_t *team   = links->team;
    mpath_nic_set_t mine = 0;
    int count            = 0;

    blame_silent(links);
    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        count += mpath_team_lost_set(
            team, mpath_team_node_of(team, rank), links->settles[rank].lost, 0,
            "has failed; the call is repeated without it, and it is left out until it is back");
        suspect_rails(links, links->settles[rank].lost);
        mine |= (mpath_team_node_of(team, rank) == mpath_team_node(team)) ? links->settles[rank].lost : 0;
    }
    if (count == 0) {
        mpath_error("%s: a call cannot be completed, and no rail that it uses is to blame; the call fails",
                    mpath_team_name(team));
        return MPATH_ERR_UNREACHABLE;
    }
    mpath_team_lost_failed(team, mine);
    return MPATH_OK;
}

/* What the ranks have said is of the NICs that their nodes have. */
static void settles_trim(mpath_links_t *links)
{
    const mpath_team_t *team = links->team;

    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        mpath_links_settle_t *settle = &links->settles[rank];
        mpath_nic_set_t nics         = mpath_machine_nics(
                    mpath_topo_machine(mpath_team_topo(team), mpath_team_node_of(team, rank)));

        settle->lost &= nics;
        settle->back &= nics;
        settle->dark &= nics;
        settle->silent &= nics;
    }
}

/* All ranks have come with what they have lost: until nothing is under way on any of them. */
static mpath_status_t give_up_together(mpath_links_t *links)
{
    mpath_team_t *team        = links->team;
    mpath_status_t status     = leave_out(links);
    mpath_links_settle_t mine = {0};
    int marked                = 1;

    while ((status == MPATH_OK) && marked) {
        status = transfers_end(links, links->drained, &mine.lost);
        if (status == MPATH_OK) {
            status = mpath_team_settle_again(team, mine.lost != 0, &mine, sizeof(mine), links->settles, &marked);
            settles_trim(links);
        }
        if ((status == MPATH_OK) && marked) {
            status = leave_out(links);
        }
    }
    if (status != MPATH_OK) {
        return status;
    }
    links->repeats++;
    mpath_links_change(links);
    return MPATH_AGAIN;
}

/* NICs that nodes have lost and that would have nobody at the other end: on one node at most there would be one. */
static mpath_nic_set_t without_other_end(const mpath_links_t *links)
{
    const mpath_team_t *team = links->team;
    mpath_nic_set_t once = 0, twice = 0, out = 0;

    for (int node = 0; node < mpath_team_num_nodes(team); node++) {
        const mpath_machine_t *machine = mpath_topo_machine(mpath_team_topo(team), node);
        mpath_nic_set_t back = links->settles[mpath_team_leader(team, node)].back, there = back;

        for (int nic = 0; nic < machine->num_nics; nic++) {
            there |= machine->nics[nic].up ? mpath_nic_bit(nic) : 0;
        }
        twice |= once & there;
        once |= there;
        out |= mpath_team_lost(team, node) & ~back;
    }
    return out & ~twice;
}

static int leave_out_dark(mpath_links_t *links)
{
    mpath_team_t *team = links->team;
    int count          = 0;

    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        count += mpath_team_lost_set(team, mpath_team_node_of(team, rank), links->settles[rank].dark, 0,
                                     "has no carrier; it is left out until it is back");
        suspect_rails(links, links->settles[rank].dark);
    }
    mpath_team_lost_note(team, links->settles[mpath_team_leader(team, mpath_team_node(team))].dark, 1);
    return count;
}

/*
 * Uses NICs again that their nodes want back. The ranks of all nodes go over to new rails and tell each other the
 * addresses: on connections of before UCX cannot be relied upon.
 */
static mpath_status_t take_back(mpath_links_t *links)
{
    mpath_team_t *team   = links->team;
    mpath_nic_set_t back = 0, busy = 0;
    int changes = leave_out_dark(links);

    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        back |= links->settles[rank].back;
        busy |= links->settles[rank].busy;
    }
    back &= ~(busy | without_other_end(links));
    if ((back == 0) && (changes == 0)) {
        return MPATH_OK;
    }
    mpath_team_topo_changed(team);
    mpath_links_change(links);
    if (back == 0) {
        return MPATH_OK;
    }
    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        (void)mpath_team_lost_set(team, mpath_team_node_of(team, rank), links->settles[rank].back & back, 1,
                                  "is used again");
    }
    mpath_team_lost_found(team, links->settles[mpath_team_leader(team, mpath_team_node(team))].back & back);
    mpath_links_forget_peers(links, back);
    return mpath_links_reopen(links, back);
}

/* NICs of this rank that it reads while it waits for others. */
static void drain_while_waiting(mpath_links_t *links, mpath_nic_set_t nics)
{
    mpath_team_count_drains(links->team, (nics != 0) - (links->drained != 0));
    links->drained = nics;
}

/* With `status` not MPATH_OK nothing more is fed. */
static mpath_status_t settle(mpath_links_t *links, mpath_status_t status, const mpath_failover_loss_t *loss)
{
    mpath_team_t *team        = links->team;
    mpath_links_settle_t mine = {.lost = loss->lost, .silent = loss->silent, .progress = loss->progress};
    mpath_nic_set_t nics;
    int marked;

    if (status == MPATH_OK) {
        mine.back = mpath_team_lost_back(team);
        mine.dark = mpath_team_lost_dark(team);
        mine.busy = nics_busy(links, mpath_team_lost_anywhere(team));
    }
    nics = links->driven & ~mpath_team_lost(team, mpath_team_node(team));
    drain_while_waiting(links, status != MPATH_OK ? nics : 0);
    status = mpath_team_settle(team, status != MPATH_OK, &mine, sizeof(mine), links->settles, &marked);
    settles_trim(links);
    if ((status == MPATH_OK) && marked) {
        drain_while_waiting(links, nics);
        status = give_up_together(links);
    } else if (status == MPATH_OK) {
        status = take_back(links);
    }
    drain_while_waiting(links, 0);
    return status;
}

mpath_status_t mpath_failover_settle(mpath_team_t *team, mpath_status_t status, const mpath_failover_loss_t *loss)
{
    mpath_record_phase(mpath_team_record(team), 0, MPATH_RECORD_SETTLE, mpath_time_ns());
    return settle(mpath_links_of(team), status, loss);
}

mpath_status_t mpath_failover_recover(mpath_team_t *team)
{
    const mpath_failover_loss_t none = {0};
    mpath_links_t *links;
    mpath_status_t status;

    if (!mpath_team_lost_is_due(team)) {
        return MPATH_OK;
    }
    /* The team may have begun with too few rails to move anything yet. */
    status = mpath_links_get(team, MPATH_LINKS_MET, &links);
    if (status != MPATH_OK) {
        return mpath_status_is_error(status) ? status : MPATH_OK;
    }
    return settle(links, MPATH_OK, &none);
}

unsigned mpath_links_repeats(const mpath_links_t *links)
{
    return links->repeats;
}
