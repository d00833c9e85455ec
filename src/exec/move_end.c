/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How what is under way on rails ends when a call is given up, for the movement and for the wire.
 *
 * In a call that is repeated all ranks have told each other before which NICs are lost, and all are here: they read and
 * drop what comes. So what is under way between other NICs ends by itself, however late its other end is, and nobody
 * ends a connection that works. In a call that fails nobody can be relied upon to read, so a moment has to do.
 */
#include "exec/attend.h"
#include "exec/move_private.h"
#include "exec/wire_private.h"

#include "util/log.h"
#include "util/time.h"

#include <sched.h>
#include <stdio.h>

#define CHECK_NS (50 * MPATH_NS_PER_MS)
#define QUIET_NS (150 * MPATH_NS_PER_MS) /* nothing happened for so long: what works would have ended */
#define ABANDON_NS MPATH_NS_PER_S        /* the longest time to wait for that, and for UCX to end a connection */
#define TEXT_MAX (MPATH_HOST_NAME_MAX + MPATH_NIC_NAME_MAX + 48)

/* Memory of GPUs needs a context that is current. */
static int enter(const mpath_wire_t *wire)
{
    return (wire != NULL) && (wire->ops != NULL) && (wire->ops->enter != NULL) &&
           (wire->ops->enter(wire->argument) == MPATH_OK);
}

int mpath_transfers_drive(const mpath_mover_t *mover, uint32_t nics)
{
    mpath_wire_t *wire = mover->team->wire;
    int entered = enter(wire), events = 0;

    for (; nics != 0; nics &= nics - 1) {
        int result = mpath_fabric_progress(mover->fabric, mover->fabric_nic[__builtin_ctz(nics)]);

        events += (result > 0) ? result : 0;
    }
    if (entered) {
        wire->ops->leave(wire->argument);
    }
    return events;
}

static void sweep(mpath_mover_t *mover, mpath_transfer_visit_t visit, void *argument)
{
    mpath_mover_sweep(mover, visit, argument);
    if (mover->team->wire != NULL) {
        mpath_wire_sweep(mover->team->wire, visit, argument);
    }
}

static void abort_send(mpath_mover_t *mover, const mpath_transfer_t *transfer)
{
    int peer = mpath_mover_peer(mover, transfer->nic, transfer->rank, transfer->nic_to);

    if (peer >= 0) {
        mpath_fabric_abort_peer(mover->fabric, transfer->rail, peer);
    }
}

/* With all its connections on which something is under way. The NICs of rails that are closed over that. */
static uint32_t abort_rails(const mpath_mover_t *mover, uint64_t rails)
{
    uint32_t closed = 0;

    for (; rails != 0; rails &= rails - 1) {
        int rail = __builtin_ctzll(rails), nic = mpath_mover_nic_of(mover, rail);

        mpath_warn("%s: gives up what is under way on rail %s", mover->team->oob.name,
                   mpath_fabric_rail_name(mover->fabric, rail));
        mpath_fabric_abort(mover->fabric, rail);
        closed |= ((nic >= 0) && (mpath_fabric_progress(mover->fabric, rail) < 0)) ? 1u << nic : 0;
    }
    return closed;
}

/* -- of a call that is repeated -- */

/* A look at everything that is under way, what is done about it, and what it has shown. */
typedef struct look {
    mpath_mover_t *mover;
    uint32_t lost;                   /* NICs of this node that have failed since the ranks told each other */
    int aborts;                      /* ends connections over lost NICs that something is sent on */
    int checks;                      /* asks whether other ends still answer */
    int gives_up;                    /* takes other NICs for lost */
    int ended;                       /* transfers */
    uint64_t lost_sends, lost_takes; /* rails on which transfers are left that go over lost NICs */
    uint64_t others;                 /* rails on which others are left, */
    mpath_transfer_t other;          /* and one of these */
} look_t;

static int goes_over_lost(const look_t *look, const mpath_transfer_t *transfer)
{
    const mpath_team_t *team = look->mover->team;
    uint32_t here            = team->lost[team->node] | look->lost;
    int lost                 = (here >> transfer->nic) & 1;

    if (transfer->rank >= 0) {
        return lost || ((team->lost[team->node_of[transfer->rank]] >> transfer->nic_to) & 1);
    }
    for (int node = 0; node < team->num_nodes; node++) { /* NICs of the same number are connected */
        lost = lost || ((team->lost[node] >> transfer->nic) & 1);
    }
    return lost;
}

/* "rank 3 (node1) by rail NAME" */
static void other_end_text(const look_t *look, const mpath_transfer_t *transfer, char *text, size_t size)
{
    const mpath_team_t *team = look->mover->team;
    const char *rail         = mpath_fabric_rail_name(look->mover->fabric, transfer->rail);

    if (transfer->rank >= 0) {
        snprintf(text, size, "rank %d (%s) by rail %s", transfer->rank, mpath_team_host(team, transfer->rank), rail);
    } else {
        snprintf(text, size, "another rank by rail %s", rail);
    }
}

static void lose(look_t *look, const mpath_transfer_t *transfer, const char *why)
{
    const mpath_team_t *team = look->mover->team;
    char text[TEXT_MAX];

    other_end_text(look, transfer, text, sizeof(text));
    mpath_warn("%s: while a call is given up, what rank %d (%s) %s %s %s; the call is repeated without that rail, too",
               team->oob.name, team->rank, mpath_team_host(team, team->rank),
               transfer->sends ? "sends to" : "fetches from", text, why);
    look->lost |= 1u << transfer->nic;
}

static void visit_other(look_t *look, const mpath_transfer_t *transfer)
{
    mpath_mover_t *mover = look->mover;
    int peer             = -1;

    look->others |= UINT64_C(1) << transfer->rail;
    look->other = *transfer;
    if (look->checks && (transfer->rank >= 0)) {
        peer = mpath_mover_peer(mover, transfer->nic, transfer->rank, transfer->nic_to);
    }
    if ((peer >= 0) && (mpath_fabric_peer_status(mover->fabric, transfer->rail, peer) != MPATH_OK)) {
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
        *(transfer->sends ? &look->lost_sends : &look->lost_takes) |= UINT64_C(1) << transfer->rail;
        if (transfer->sends && look->aborts) {
            abort_send(look->mover, transfer);
        }
    }
}

/* Nonzero: something is left. */
static int look_around(look_t *look)
{
    look->ended      = 0;
    look->lost_sends = look->lost_takes = look->others = 0;
    sweep(look->mover, visit, look);
    look->aborts = look->checks = look->gives_up = 0;
    return (look->lost_sends | look->lost_takes | look->others) != 0;
}

static void say_expired(const look_t *look, int seconds, mpath_status_t verdict)
{
    const mpath_team_t *team = look->mover->team;
    int failed               = verdict == MPATH_ERR_TIMED_OUT;
    char text[TEXT_MAX];

    other_end_text(look, &look->other, text, sizeof(text));
    mpath_log(failed ? MPATH_LOG_ERROR : MPATH_LOG_WARN,
              "%s: rank %d (%s), in a call that is given up, waits for the end of what it %s %s; nothing happened for "
              "%d s, the call %s",
              team->oob.name, team->rank, mpath_team_host(team, team->rank),
              look->other.sends ? "has sent to" : "fetches from", text, seconds, failed ? "fails" : "goes on waiting");
}

/* What does not end over lost NICs is not waited for. */
static void end_lost(look_t *look, uint64_t waited_ns)
{
    uint64_t rails = 0;

    look->aborts = waited_ns > QUIET_NS;
    if (waited_ns > QUIET_NS) { /* what is fetched cannot be called back otherwise */
        rails |= look->lost_takes & ~look->others;
    }
    if (waited_ns > QUIET_NS + ABANDON_NS) { /* nor is what UCX does not let go of */
        rails |= look->lost_sends & ~look->others;
    }
    look->lost |= abort_rails(look->mover, rails);
}

/* Nothing has ended: waits a moment, and says what the next look is to do. MPATH_OK to go on. */
static mpath_status_t wait_for_end(look_t *look, mpath_idle_t *idle, uint64_t *checked_ns)
{
    mpath_team_t *team = look->mover->team;
    int patience_s = team->context->settings.resend_after_s, timeout_s = team->context->settings.timeout_s;
    uint64_t waited_ns = mpath_idle_wait(idle);
    mpath_status_t status, verdict;

    mpath_attend_look(team, idle, waited_ns);
    if (waited_ns == 0) {
        return MPATH_OK;
    }
    status = mpath_team_status(team);
    if ((status != MPATH_OK) || (waited_ns < *checked_ns + CHECK_NS)) {
        return status;
    }
    *checked_ns = waited_ns;
    end_lost(look, waited_ns);
    look->checks   = 1;
    look->gives_up = (waited_ns > (uint64_t)patience_s * MPATH_NS_PER_S) && mpath_attend_all(team, patience_s);
    verdict        = mpath_idle_patience(idle, waited_ns, timeout_s);
    if ((verdict == MPATH_INPROGRESS) && mpath_attend_all(team, timeout_s)) {
        verdict = MPATH_ERR_TIMED_OUT;
    }
    if ((verdict == MPATH_OK) || (look->others == 0)) {
        return MPATH_OK;
    }
    say_expired(look, (int)(waited_ns / MPATH_NS_PER_S), verdict);
    return (verdict == MPATH_ERR_TIMED_OUT) ? verdict : MPATH_OK;
}

mpath_status_t mpath_transfers_end(mpath_mover_t *mover, uint32_t nics, uint32_t *lost_p)
{
    look_t look           = {.mover = mover};
    mpath_status_t status = MPATH_OK;
    uint64_t checked_ns   = 0;
    mpath_idle_t idle;

    mpath_idle_start(&idle);
    while ((status == MPATH_OK) && look_around(&look)) {
        if (look.ended > 0) {
            mpath_idle_event(&idle);
            mpath_idle_give_way();
            checked_ns = 0;
        } else {
            status = wait_for_end(&look, &idle, &checked_ns);
        }
        (void)mpath_transfers_drive(mover, nics);
    }
    *lost_p = look.lost & ~mover->team->lost[mover->team->node];
    return status;
}

/* -- of a call that fails -- */

/* What is left, by rails. */
typedef struct rest {
    mpath_mover_t *mover;
    int aborts; /* ends connections that something is sent on */
    uint64_t sends, takes;
} rest_t;

static void visit_rest(void *argument, const mpath_transfer_t *transfer)
{
    rest_t *rest = argument;

    if (transfer->status == MPATH_INPROGRESS) {
        *(transfer->sends ? &rest->sends : &rest->takes) |= UINT64_C(1) << transfer->rail;
        if (transfer->sends && rest->aborts) {
            abort_send(rest->mover, transfer);
        }
    }
}

static void look_at_rest(rest_t *rest)
{
    rest->sends = rest->takes = 0;
    sweep(rest->mover, visit_rest, rest);
}

/* Until this rank's own transfers have ended and nothing comes any more. */
static void drain(rest_t *rest, uint32_t nics)
{
    uint64_t start_ns = mpath_time_ns(), event_ns = start_ns, now_ns = start_ns;

    look_at_rest(rest);
    while ((now_ns - start_ns < ABANDON_NS) && ((rest->sends | rest->takes) || (now_ns - event_ns < QUIET_NS))) {
        int events = mpath_transfers_drive(rest->mover, nics);

        sched_yield();
        now_ns   = mpath_time_ns();
        event_ns = (events > 0) ? now_ns : event_ns;
        look_at_rest(rest);
    }
}

/* Connections on which something is sent end together with it: other teams keep those to other ranks. */
static void abort_sends(rest_t *rest, uint32_t nics)
{
    uint64_t end_ns = mpath_time_ns() + ABANDON_NS;

    for (rest->aborts = 1; (rest->sends != 0) && (mpath_time_ns() < end_ns); rest->aborts = 0) {
        look_at_rest(rest);
        (void)mpath_transfers_drive(rest->mover, nics);
    }
    look_at_rest(rest);
}

void mpath_transfers_abandon(mpath_mover_t *mover, uint32_t nics)
{
    rest_t rest = {.mover = mover};

    drain(&rest, nics);
    abort_sends(&rest, nics);
    (void)abort_rails(mover, rest.sends | rest.takes);
    for (look_at_rest(&rest); (rest.sends | rest.takes) != 0; look_at_rest(&rest)) {
        sched_yield(); /* only while another thread holds the rail's lock */
    }
}
