/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives over the control plane, for setting up a team. A member on which something has failed takes part all the
 * same, and so does one that has heard of it, so that nobody waits for them; mpath_exchange_agree() then tells
 * everybody. Where a process is gone, or does not come in time, those who find out tell all others, who may wait for it
 * or for each other: none of them has the result, and all end in an error.
 */
#ifndef MPATH_TEAM_EXCHANGE_H
#define MPATH_TEAM_EXCHANGE_H

#include "util/param.h"
#include "util/status.h"

#include <stddef.h>

/*
 * Control plane: how a team's processes exchange small messages before and beside the lanes. The glue implements it on
 * the MPI library's point-to-point layer (on a context of its own, so that it never meets the user's messages); tests
 * implement it on shared memory. Messages between two ranks arrive in order. Never called by two threads at a time for
 * one team.
 */

typedef struct mpath_oob_request {
    void *handle; /* NULL: finished */
} mpath_oob_request_t;

typedef struct mpath_oob {
    void *context;
    int rank, size;
    const char *name; /* of the communicator, for messages */
    /*
     * The bytes may be overwritten as soon as it returns. MPATH_ERR_NO_MEMORY from it and from irecv(): nothing was
     * begun; an empty message, or the few bytes of a verdict, may still go.
     */
    mpath_status_t (*isend)(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request);
    /* `bytes` is the capacity; a longer message is MPATH_ERR_TRUNCATED at test(). */
    mpath_status_t (*irecv)(void *context, int from, void *data, size_t bytes, mpath_oob_request_t *request);
    /* MPATH_OK when finished (then *bytes_p, unless NULL, is the length of a received message), MPATH_INPROGRESS, or
     * an error. */
    mpath_status_t (*test)(void *context, mpath_oob_request_t *request, size_t *bytes_p);
    /* Gives a request up; a send may still be delivered. */
    void (*cancel)(void *context, mpath_oob_request_t *request);
    /* Lets the MPI library run. test() alone need not do so: whoever waits calls this, too. */
    void (*progress)(void *context);
    /*
     * Whether all processes are there, and none of them has given up: MPATH_OK, or an error that has been logged. Costs
     * system calls: asked now and then by who waits. Finds only processes whose node the caller, or another one that
     * looks, shares. NULL: nobody can tell.
     */
    mpath_status_t (*look)(void *context);
    /*
     * This rank leaves an exchange with an error, which it has logged, waiting for `peer`: look() says so to all others.
     * Without an effect where look() has said something. NULL: they have to find out by themselves.
     */
    void (*give_up)(void *context, mpath_status_t reason, int peer);
} mpath_oob_t;

/* How long to wait for another process. */
typedef struct mpath_patience {
    int warn_s;  /* how often to say who is late */
    int limit_s; /* deadline, also where the others may compute meanwhile (mpath_idle_others_may_rest()); 0: none */
    int here_s;  /* deadline where they are known to take part, too; 0: limit_s */
} mpath_patience_t;

static inline int mpath_late_limit_s(const mpath_settings_t *settings)
{
    return settings->agree_timeout_s > 0 ? settings->agree_timeout_s : 0;
}

/* For processes that may not have come to the call yet: they are late by right. */
static inline mpath_patience_t mpath_patience_late(const mpath_settings_t *settings)
{
    return (mpath_patience_t){.warn_s = settings->timeout_s, .limit_s = mpath_late_limit_s(settings)};
}

/* For processes that have all been heard of in this call. */
static inline mpath_patience_t mpath_patience_here(const mpath_settings_t *settings)
{
    return (mpath_patience_t){
        .warn_s = settings->timeout_s, .limit_s = mpath_late_limit_s(settings), .here_s = settings->timeout_s};
}

/*
 * Gathers one block of every member in all[num_members * bytes], in the members' order. `members` are ranks of the
 * control plane, NULL: all. `me` is the caller's index in it. Bruck's algorithm: log2(num_members) steps.
 * `mine` or `all` NULL: this member has failed, and says so. MPATH_DECLINED: another one has. Any other error ends the
 * exchange where it is.
 */
mpath_status_t mpath_exchange_allgather(const mpath_oob_t *oob, mpath_patience_t patience, const int *members,
                                        int num_members, int me, const void *mine, size_t bytes, void *all);

/*
 * members[0] hands `data` to the other members; NULL on members[0]: it has failed, and the others get MPATH_DECLINED.
 */
mpath_status_t mpath_exchange_broadcast(const mpath_oob_t *oob, mpath_patience_t patience, const int *members,
                                        int num_members, int me, void *data, size_t bytes);

/*
 * Tells all ranks whether all are well. MPATH_OK: yes; the error of a rank that has lost another one or waited in vain
 * (mpath_exchange_is_parted()), logged; `mine` where that is not MPATH_OK; else MPATH_DECLINED, logged; an error of the
 * exchange itself before all of these. Needs no memory besides what the control plane takes. Whoever
 * has returned without such an error knows that all have entered.
 */
mpath_status_t mpath_exchange_agree(const mpath_oob_t *oob, mpath_patience_t patience, mpath_status_t mine);

/*
 * Gives the control plane up to a second to let go of sends, of which nobody may take care any more: after an error the
 * program may never come back to MPI, and what waits for a connection would stay where it is. What has not gone then stays in
 * `requests`. Who does not take it in time hears of the error otherwise, or is gone.
 */
void mpath_exchange_let_go(const mpath_oob_t *oob, mpath_oob_request_t *requests, int count);

/* Nonzero: with this status a rank leaves an exchange without knowing what the others have; so do they, then. */
static inline int mpath_exchange_is_parted(mpath_status_t status)
{
    return status == MPATH_ERR_TIMED_OUT || status == MPATH_ERR_UNREACHABLE;
}

#endif
