/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of rates that plans count on: ranks of two nodes with two rails, and how their calls use the second one. */
#ifndef MPATH_TESTS_UNIT_RATES_SUPPORT_H
#define MPATH_TESTS_UNIT_RATES_SUPPORT_H

#include "a2a.h"
#include "coll/alltoallv_private.h"
#include "symmetric_support.h"

#define RANKS 4
#define FAST_BPS 1000000000ull
#define SLOW_BPS 1000000ull
#define CALL_BYTES 100000 /* of a pair: it may be divided */

extern char rates_path[64]; /* of the file; rates_support_init() makes up a name */

void rates_support_init(void);
/* For a test's end, however it was: what it has learned says nothing to the next one. */
int rates_forget(void **state);

/* A communicator of all ranks; `adapt` is the parameter. */
void member_start(member_t *member, ranks_self_t *self, int adapt);
/* Another communicator, of some of the ranks. */
void member_join(member_t *member, const member_t *other, ranks_self_t *self, int channel, const int *ranks, int size);
void member_leave(member_t *member);

/* An even call. Nonzero: next to nothing of what ranks sent went by the second rail. The same on all ranks. */
int avoids_second(member_t *member);

#endif
