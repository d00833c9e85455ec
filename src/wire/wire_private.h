/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of the wire: what is under way. */
#ifndef MPATH_WIRE_WIRE_PRIVATE_H
#define MPATH_WIRE_WIRE_PRIVATE_H

#include "wire/links.h"
#include "wire/wire.h"

/* A transfer under way. The lane knows the address of `op`: never freed before the wire. */
typedef struct mpath_wire_transfer {
    struct mpath_wire_transfer *next;
    mpath_lane_op_t op;
    int nic;  /* the fabric's */
    int rank; /* that it is sent to; -1: something is taken */
    int end;  /* the NIC there; of what is taken the lane's number of its sender, -1: unknown */
    mpath_chunk_t chunk;
    void *item; /* the caller's */
} mpath_wire_transfer_t;

struct mpath_wire {
    mpath_team_user_t user; /* of the team */
    mpath_team_t *team;
    mpath_fabric_t *fabric;
    mpath_links_t *links;
    mpath_links_user_t links_user;
    mpath_inbox_t inbox;

    mpath_wire_transfer_t *spare, *active;

    /* The call under way */
    const mpath_wire_ops_t *ops;
    void *argument;
    mpath_nic_set_t nics; /* of the topology */
    int repeats;          /* over the others, when one fails */
    mpath_nic_set_t lost; /* of them: a transfer has failed */
};

#endif
