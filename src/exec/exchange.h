/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives over the control plane, for setting up a team. A member on which something has failed takes part all the
 * same, and so does one that has heard of it, so that nobody waits for them; mpath_exchange_agree() then tells
 * everybody.
 */
#ifndef MPATH_EXEC_EXCHANGE_H
#define MPATH_EXEC_EXCHANGE_H

#include "exec/oob.h"
#include "util/param.h"

/* How long to wait for another process. */
typedef struct mpath_patience {
    int warn_s;  /* how often to say who is late */
    int limit_s; /* deadline, also where the others may compute meanwhile (mpath_idle_others_may_rest()); 0: none */
    int here_s;  /* deadline where they are known to take part, too; 0: limit_s */
} mpath_patience_t;

/* For processes that may not have come to the call yet: they are late by right. */
static inline mpath_patience_t mpath_patience_late(const mpath_settings_t *settings)
{
    return (mpath_patience_t){.warn_s = settings->timeout_s, .limit_s = settings->agree_timeout_s};
}

/* For processes that have all been heard of in this call. */
static inline mpath_patience_t mpath_patience_here(const mpath_settings_t *settings)
{
    return (mpath_patience_t){
        .warn_s = settings->timeout_s, .limit_s = settings->agree_timeout_s, .here_s = settings->timeout_s};
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
 * Tells all ranks whether all are well. MPATH_OK: yes; `mine` where that is not MPATH_OK; else MPATH_DECLINED, logged;
 * an error of the exchange itself before all of these. Needs no memory besides what the control plane takes. Whoever
 * has returned without such an error knows that all have entered.
 */
mpath_status_t mpath_exchange_agree(const mpath_oob_t *oob, mpath_patience_t patience, mpath_status_t mine);

#endif
