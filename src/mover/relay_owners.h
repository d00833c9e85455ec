/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay owners: which NICs of this host send, and which receive, bytes of the GPUs beside them at present, for all
 * communicators of all processes of the user. A rank that would send over another GPU's NIC, or passes on what comes by
 * its own, looks here whether bytes of that GPU go over it in another communicator: two ranks on one GPU, or processes
 * that share no communicator, know of each other in no other way.
 *
 * The table is a file in /dev/shm, removed by the last process that uses it; what is killed may leave it to the next
 * one. An entry says until when it counts, and its owner renews it while it sends, so that a process that dies is no
 * owner for longer than MPATH_OWNER_NS. Where the file cannot be had the table is the process's own, which the log says
 * once.
 *
 * Entries are hints, read and written without locks: a wrong one costs a little time.
 */
#ifndef MPATH_MOVER_RELAY_OWNERS_H
#define MPATH_MOVER_RELAY_OWNERS_H

#include "topo/topo.h"

#define MPATH_OWNER_NS 20000000u
#define MPATH_OWNER_NONE (-1)
#define MPATH_OWNER_PORTS (2 * MPATH_MAX_NICS) /* a NIC has two: it sends and receives at a time */

/* Of a node. */
typedef struct mpath_owner_ports {
    mpath_nic_set_t sends, receives;
} mpath_owner_ports_t;

/* The view of one communicator, on a node with these NICs. */
typedef struct mpath_owners {
    int opened;
    uint64_t team;                    /* all ranks of the communicator have the same */
    uint64_t keys[MPATH_OWNER_PORTS]; /* 0: no such NIC */
    int entries[MPATH_OWNER_PORTS];   /* of this rank; MPATH_OWNER_NONE: it is no owner at present */
    mpath_owner_ports_t held;         /* ports with an entry */
    uint64_t until_ns;                /* of these */
    uint64_t looked_ns;
    mpath_owner_ports_t busy; /* what was seen then */
} mpath_owners_t;

/*
 * `scope` tells apart NICs of the same name that are not the same: those of emulated clusters. Always succeeds.
 */
void mpath_owners_open(const mpath_machine_t *machine, uint64_t team, uint64_t scope, mpath_owners_t *owners);
/* A zeroed struct is left alone. */
void mpath_owners_close(mpath_owners_t *owners);

/* `ports`: those that carry bytes of this rank's own now. Often called: costs little. */
void mpath_owners_announce(mpath_owners_t *owners, mpath_owner_ports_t ports, uint64_t now_ns);
/* Ports that carry bytes of their owners in other communicators; as of some microseconds ago. */
mpath_owner_ports_t mpath_owners_busy(mpath_owners_t *owners, uint64_t now_ns);

#endif
