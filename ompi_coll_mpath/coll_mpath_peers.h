/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which processes of the job have mpath, and at which place among the components. Each process publishes its word with
 * the data that MPI_Init exchanges anyway, so that whether a communicator gets mpath follows, without a message, from
 * what all its processes read alike: a rank without mpath would leave the others waiting in their first call.
 */
#ifndef COLL_MPATH_PEERS_H
#define COLL_MPATH_PEERS_H

#include "coll_mpath_compat.h"

#include <stdbool.h>

/* Publishes the word of this process. When the component opens, before MPI_Init exchanges what was published. */
void mca_coll_mpath_peers_publish(void);

/* Do all processes of `comm` have mpath at the same place as this one? Says, once, who has not. */
bool mca_coll_mpath_peers_alike(struct ompi_communicator_t *comm);

/*
 * The number of this process among the job's on its node, -1 unknown. Open MPI counts on the machines that it started
 * processes on; nodes as mpath sees them are smaller where several containers share a machine.
 */
int mca_coll_mpath_peers_local_rank(void);

/*
 * Is the process of this rank gone? False where nobody here can tell: of another node, or another job. Costs system calls.
 */
bool mca_coll_mpath_peers_gone(struct ompi_communicator_t *comm, int rank);
/* Can this process tell that? */
bool mca_coll_mpath_peers_watched(struct ompi_communicator_t *comm, int rank);

/* The component closes. */
void mca_coll_mpath_peers_end(void);

#endif
