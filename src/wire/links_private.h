/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of links, for the files of this room. */
#ifndef MPATH_WIRE_LINKS_PRIVATE_H
#define MPATH_WIRE_LINKS_PRIVATE_H

#include "lane/shm.h"
#include "rail/rail.h"
#include "team/team.h"
#include "wire/links.h"
#include "wire/wire.h"

#include <stdatomic.h>

/* NICs that a rank drives and cannot open. Plain data. */
typedef struct mpath_links_unopened {
    mpath_nic_set_t nics;
    char why[MPATH_RAIL_WHY_MAX]; /* of the first of these */
} mpath_links_unopened_t;

/* What a rank has when links are made. */
typedef struct mpath_links_hello {
    mpath_status_t status;
    uint32_t last_slot_bytes, relay_slot_bytes; /* of its queues in shared memory; 0: none */
    uint32_t rail_chunk_bytes;                  /* smallest of the rails it has opened; 0: none */
    mpath_links_unopened_t unopened;
    uint16_t address_bytes[MPATH_MAX_NICS]; /* by NIC of the topology; 0: not driven by this rank, or left out */
} mpath_links_hello_t;

/* What a rank tells the others at the end of a call: NICs of its node, a bit each. */
typedef struct mpath_links_settle {
    mpath_nic_set_t lost;   /* failed in this call */
    mpath_nic_set_t back;   /* left out, and may be used again; from the first rank of a node */
    mpath_nic_set_t dark;   /* in use, without a carrier, where other nodes have lost theirs; from the same */
    mpath_nic_set_t busy;   /* left out, and have to stay so for this rank; by number, of whatever node */
    mpath_nic_set_t silent; /* see mpath_failover_loss_t */
    uint32_t progress;
    uint32_t reserved;
} mpath_links_settle_t;

/* The last word of another leader, see mpath_team_word_t. */
typedef struct mpath_links_word {
    atomic_uint sent;
    atomic_ullong verdict; /* 0: no word yet; else the reason and the origin */
} mpath_links_word_t;

struct mpath_links {
    mpath_team_user_t user; /* of the team */
    mpath_team_t *team;
    mpath_fabric_t *fabric;
    mpath_status_t status; /* MPATH_OK, or MPATH_DECLINED: some rank could not open what it needs */
    mpath_links_user_t *users;

    mpath_nic_set_t driven;             /* NICs of the topology that this rank drives, those left out too */
    int16_t fabric_nic[MPATH_MAX_NICS]; /* of those: the topology's NIC number on this node -> the fabric's rail */
    mpath_inbox_t inbox;                /* of the team's id, for words */
    mpath_inbox_t *others;              /* of other ids */
    mpath_shm_port_t *ports[MPATH_SHM_KINDS]; /* queues of this process; NULL: none is needed */
    mpath_lane_t
        *lanes[MPATH_SHM_KINDS]; /* peers are local ranks; NULL when alone on the node, or no path has a relay */
    mpath_links_hello_t hello;   /* this rank's */
    mpath_links_hello_t least;   /* of all ranks' limits, where there is something */
    uint8_t *addresses;          /* address_stride bytes of each rank; NULL: they are not exchanged yet */
    size_t address_stride;
    mpath_links_reach_t reach; /* whose addresses there are: by rank of all, by place of those that are met */
    int num_nics, num_nics_to; /* of this node; most of any node */
    int *peers;                /* [(nic * size + rank) * num_nics_to + nic_to]: number + 1; 0: not known yet */
    uint32_t *slot_bytes;      /* last, then relay, by node */
    mpath_nic_set_t *unopened; /* by node, while they are left out */
    uint64_t rail_chunk_bytes;
    mpath_links_word_t *words; /* by rank; a leader's, of several nodes */

    /* Rails that fail, wire/failover.c */
    mpath_nic_set_t drained;       /* of this rank, while others may still send what is given up */
    unsigned repeats;              /* of calls, on this team */
    mpath_links_settle_t *settles; /* by rank */

    mpath_wire_t *wire;   /* made by the first call that needs it */
    int wire_is_declined; /* some rank could not make it; alike on all */
    int wire_is_narrow;   /* some rank could not open the further NICs that were wanted; alike on all */
};

/* wire/connect.c */
/* Of a call that is given up: drives NICs `nics` of this rank, so that what others still send is read. Number of events. */
int mpath_links_drive(mpath_links_t *links, mpath_nic_set_t nics);
/* Lets go of the connections from and to NICs of these numbers. */
void mpath_links_forget_peers(mpath_links_t *links, mpath_nic_set_t nics);
/* What users have derived from the links does not hold any more. */
void mpath_links_change(mpath_links_t *links);
/*
 * Collective: goes over to other rails on the NICs of these numbers and exchanges addresses. Those that some rank cannot
 * open are left out again. When a rank fails otherwise, the links decline from then on.
 */
mpath_status_t mpath_links_reopen(mpath_links_t *links, mpath_nic_set_t nics);

#endif
