/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links: what connects the ranks of a team. The rails that this rank has opened and the addresses of those of the
 * others, the rings of the node's shared memory, and what bounds chunks on them. Made once, by the first call on the
 * team that moves chunks; those who move some attach themselves and share them.
 *
 * NICs have the topology's numbers here, on the rank's node; rails those of the fabric, which change when a NIC that has
 * failed is used again.
 */
#ifndef MPATH_WIRE_LINKS_H
#define MPATH_WIRE_LINKS_H

#include "lane/lane.h"
#include "team/agree.h"
#include "team/team.h"
#include "wire/inbox.h"

typedef struct mpath_links mpath_links_t;

/*
 * To whom chunks go by rail: to ranks of nodes that this one has met, near ones and those of mpath_links_meet(), or to any. Addresses of
 * others are not sent.
 */
typedef enum mpath_links_reach { MPATH_LINKS_MET, MPATH_LINKS_ALL } mpath_links_reach_t;

/*
 * The team's links, which reach as far as is said here, the same on all ranks, or further. Collective the first time, and when
 * they are to reach further than before: MPATH_DECLINED, on all ranks alike and for ever, when one of them could not open what it
 * needs, or could not open a rail again that had failed. After an error the caller breaks the team.
 */
mpath_status_t mpath_links_get(mpath_team_t *team, mpath_links_reach_t reach, mpath_links_t **links_p);
/*
 * In a call that was agreed on, where some rank has pairs with nodes that its own has not met (agreed->unmet): these meet, and tell each
 * other their addresses. Collective over all ranks. After an error the caller breaks the team.
 */
mpath_status_t mpath_links_meet(mpath_links_t *links, const mpath_agreed_t *agreed);
/* NULL: they are not made yet. */
mpath_links_t *mpath_links_of(const mpath_team_t *team);
/* MPATH_OK or MPATH_DECLINED, as above. */
mpath_status_t mpath_links_status(const mpath_links_t *links);

/* The rail on a NIC that this rank drives; it stays as long as nothing has failed. */
int mpath_links_rail(const mpath_links_t *links, int nic);
/* The number of `rank` on the rail of NIC `nic`, as reached at its NIC `nic_to`; negative status on error. */
int mpath_links_peer(mpath_links_t *links, int nic, int rank, int nic_to);
/* Whose number `peer` is there, as far as this rank has sent to it; 0: unknown. */
int mpath_links_find_peer(const mpath_links_t *links, int nic, int peer, int *rank_p, int *nic_to_p);

/* Largest chunk that every rail of the team takes. */
uint64_t mpath_links_rail_chunk(const mpath_links_t *links);
/* Bytes of a slot of the rings by node, 0 without any; those towards relays have others. */
const uint32_t *mpath_links_slot_bytes(const mpath_links_t *links);
const uint32_t *mpath_links_relay_slot_bytes(const mpath_links_t *links);
/* The rings of this node, of which the peers are local ranks; NULL: alone on the node, or no path has a relay. */
mpath_lane_t *mpath_links_shm(const mpath_links_t *links);
mpath_lane_t *mpath_links_relay(const mpath_links_t *links);

/*
 * For chunks with an id of their own: makes an inbox on the rails that this rank has and on those that come, until it
 * leaves. After an error there is none.
 */
mpath_status_t mpath_links_join(mpath_links_t *links, mpath_inbox_t *inbox, uint64_t id);
void mpath_links_leave(mpath_links_t *links, mpath_inbox_t *inbox);
/* Gives it another id: the fabric drops the chunks of the one before. */
mpath_status_t mpath_links_rejoin(mpath_links_t *links, mpath_inbox_t *inbox, uint64_t id);

/*
 * For ranks that send and receive on further NICs than those that host memory needs: NICs `nics`, by rank, a bit each.
 * Collective, between calls; MPATH_DECLINED, on all ranks alike: what needs these NICs cannot be.
 */
mpath_status_t mpath_links_widen(mpath_links_t *links, const mpath_nic_set_t *nics);
/* Whether all ranks have got something, of which this one says `mine`: MPATH_OK or MPATH_DECLINED on all. Collective. */
mpath_status_t mpath_links_confirm(mpath_team_t *team, mpath_status_t mine);

/* A transfer on a rail, of whoever moves chunks, when its call is given up. */
typedef struct mpath_transfer {
    mpath_status_t status;
    int sends;        /* from here; else what is fetched */
    int rail;         /* the fabric's number */
    int nic;          /* the topology's, of this node */
    int rank, nic_to; /* the other end; rank -1: unknown */
} mpath_transfer_t;
typedef void (*mpath_transfer_visit_t)(void *argument, const mpath_transfer_t *transfer);

/* Who moves chunks, or has derived something from the links. All may be NULL. */
typedef struct mpath_links_user_ops {
    /* Its call is given up: shows what is under way on rails, and drops what of it has ended, whatever came of it. */
    void (*sweep)(void *self, mpath_transfer_visit_t visit, void *argument);
    /* Rails have failed or are used again, or chunks have other limits: what it has derived from them does not hold. */
    void (*changed)(void *self);
    /* Around the progress of rails while its call is given up. */
    mpath_status_t (*enter)(void *self);
    void (*leave)(void *self);
} mpath_links_user_ops_t;

/* Part of who attaches itself. */
typedef struct mpath_links_user {
    struct mpath_links_user *next;
    const mpath_links_user_ops_t *ops;
    void *self;
    int has_entered;
} mpath_links_user_t;

/* Until the links end. */
void mpath_links_attach(mpath_links_t *links, mpath_links_user_t *user, const mpath_links_user_ops_t *ops, void *self);

#endif
