/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators and calls for the tests of rates. */
#include "rates_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char rates_path[64];

void rates_support_init(void)
{
    snprintf(rates_path, sizeof(rates_path), "/tmp/mpath-test-learned.%ld", (long)getpid());
}

int rates_forget(void **state)
{
    (void)state;
    unlink(rates_path);
    return 0;
}

void member_start(member_t *member, ranks_self_t *self, int adapt)
{
    memset(member, 0, sizeof(*member));
    mpath_settings_init(&member->settings);
    member->settings.gate         = MPATH_GATE_ALWAYS;
    member->settings.check_plan   = 1;
    member->settings.timeout_s    = 100;
    member->settings.memory_bytes = 8 << 20;
    member->settings.adapt        = adapt;
    member->settings.adapt_file   = rates_path;
    member_open(member, self);
}

void member_join(member_t *member, const member_t *other, ranks_self_t *self, int channel, const int *ranks, int size)
{
    mpath_oob_t oob;

    *member = *other;
    ranks_oob(self, channel, ranks, size, &oob);
    ranks_check(mpath_team_create(other->context, &oob, &member->team) == MPATH_OK);
    ranks_check(mpath_coll_create(member->team, &member->coll) == MPATH_OK);
    ranks_check(mpath_symmetric_create(member->team, member->coll, &member->symmetric) == MPATH_OK);
}

void member_leave(member_t *member)
{
    mpath_symmetric_destroy(member->symmetric);
    mpath_coll_destroy(member->coll);
    mpath_team_destroy(member->team);
}

int avoids_second(member_t *member)
{
    int size         = mpath_team_size(member->team);
    uint64_t *demand = zeroed((size_t)size * (size_t)size * sizeof(*demand));
    uint64_t all[RANKS][2], sent[2];
    a2a_t a2a;

    a2a_init(&a2a, mpath_team_rank(member->team), size);
    a2a_demand(A2A_EVEN, size, CALL_BYTES, 1, demand);
    a2a_fill(&a2a, demand, 1);
    for (int nic = 0; nic < 2; nic++) {
        sent[nic] = ranks_sent_bytes(nic);
    }
    ranks_check(mpath_alltoallv(member->coll, &a2a.call) == MPATH_OK);
    ranks_check(a2a_check(&a2a) == 0);
    a2a_end(&a2a);
    free(demand);
    for (int nic = 0; nic < 2; nic++) {
        sent[nic] = ranks_sent_bytes(nic) - sent[nic];
    }
    ranks_check(mpath_team_allgather(member->team, sent, sizeof(sent), all) == MPATH_OK);
    sent[0] = sent[1] = 0;
    for (int rank = 0; rank < size; rank++) {
        sent[0] += all[rank][0];
        sent[1] += all[rank][1];
    }
    ranks_check(sent[0] > 0);
    return sent[1] * 10 < sent[0];
}
