/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interfaces of a job on one node, as far as they relay for each other. Each puts a card into a file in shared
 * memory: who it is, how it is reached there, and which rails it drives. A card is alive as long as its owner holds a
 * lock on it, which the kernel releases when the process ends, however it ends. No UCX in here.
 *
 * One thread at a time may use a handle.
 */
#ifndef UCX_TL_MPATH_NEIGHBOURS_H
#define UCX_TL_MPATH_NEIGHBOURS_H

#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

#define MPATH_NEIGHBOURS_MAX 256 /* interfaces on a node */
#define MPATH_NEIGHBOUR_RAILS 16
#define MPATH_NEIGHBOUR_ADDRESS_MAX 32
#define MPATH_NEIGHBOUR_SHM_MAX 64

typedef struct mpath_neighbour_rail {
    uint64_t rate_bps;
    uint8_t number;
    uint8_t device_length, iface_length;
    uint8_t device[MPATH_NEIGHBOUR_ADDRESS_MAX], iface[MPATH_NEIGHBOUR_ADDRESS_MAX];
} mpath_neighbour_rail_t;

typedef struct mpath_neighbour_card {
    uint64_t uid; /* not 0 */
    int32_t pid;
    uint8_t device_length, iface_length; /* address in shared memory */
    uint8_t device[MPATH_NEIGHBOUR_SHM_MAX], iface[MPATH_NEIGHBOUR_SHM_MAX];
    uint32_t num_rails;
    mpath_neighbour_rail_t rails[MPATH_NEIGHBOUR_RAILS];
} mpath_neighbour_card_t;

typedef struct mpath_neighbours mpath_neighbours_t;

/*
 * The name of the group: `wanted`, or where that is empty what the launcher calls the job in the environment of its
 * processes. MPATH_DECLINED: it says nothing; MPATH_ERR_PARAM: the name is too long.
 */
mpath_status_t mpath_neighbours_group(const char *wanted, char *group, size_t size);

/*
 * Joins the interfaces of `group`, a name that only processes of one job know, in `folder` (NULL: /dev/shm). Files of
 * this user's jobs of which no process lives any more are removed first. MPATH_ERR_IO: the file cannot be made, belongs
 * to someone else or has another layout; MPATH_ERR_TIMED_OUT: somebody keeps it locked; MPATH_NO_RESOURCE: it is full.
 * None is logged.
 */
mpath_status_t mpath_neighbours_join(const char *folder, const char *group, const mpath_neighbour_card_t *card,
                                     mpath_neighbours_t **neighbours_p);
/* Another card in the own slot. */
void mpath_neighbours_update(mpath_neighbours_t *neighbours, const mpath_neighbour_card_t *card);
/* The last one to leave removes the file; who is killed leaves that to the next job. */
void mpath_neighbours_leave(mpath_neighbours_t *neighbours);

/* Changes whenever somebody joins, leaves or has another card; not when a process ends without leaving. */
uint32_t mpath_neighbours_version(const mpath_neighbours_t *neighbours);
/* One more than the highest slot that was ever taken; the own slot. */
int mpath_neighbours_count(const mpath_neighbours_t *neighbours);
int mpath_neighbours_self(const mpath_neighbours_t *neighbours);
/* A copy of the card in a slot; 0 when there is none, or one whose lengths and numbers are out of their range. */
int mpath_neighbours_card(const mpath_neighbours_t *neighbours, int slot, mpath_neighbour_card_t *card_p);
/* Nonzero while the owner of this card lives. */
int mpath_neighbours_alive(const mpath_neighbours_t *neighbours, int slot, uint64_t uid);

/* Bytes per second that the owner of a slot itself sends at the moment; 0 for a slot without a card. */
void mpath_neighbours_set_demand(mpath_neighbours_t *neighbours, uint64_t bps);
uint64_t mpath_neighbours_demand(const mpath_neighbours_t *neighbours, int slot);

#endif
