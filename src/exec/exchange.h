/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives over the control plane, for setting up a team. They wait for late ranks, saying so from time to time. */
#ifndef MPATH_EXEC_EXCHANGE_H
#define MPATH_EXEC_EXCHANGE_H

#include "exec/oob.h"

/*
 * Gathers one block of every member in all[num_members * bytes], in the members' order. `members` are ranks of the
 * control plane, NULL: all. `me` is the caller's index in it. Bruck's algorithm: log2(num_members) steps.
 */
mpath_status_t mpath_exchange_allgather(const mpath_oob_t *oob, int timeout_s, const int *members, int num_members,
                                        int me, const void *mine, size_t bytes, void *all);

/* members[0] hands `data` to the other members. */
mpath_status_t mpath_exchange_broadcast(const mpath_oob_t *oob, int timeout_s, const int *members, int num_members,
                                        int me, void *data, size_t bytes);

#endif
