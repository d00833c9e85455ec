/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane of a team on Open MPI's point-to-point layer: messages with a private negative tag on the
 * communicator itself, which no user message can match.
 */
#ifndef COLL_MPATH_OOB_H
#define COLL_MPATH_OOB_H

#include "coll_mpath_compat.h"

#include "exec/oob.h"

typedef struct mca_coll_mpath_oob_t mca_coll_mpath_oob_t;

/* Fills *oob for the communicator, which has to outlive the result. */
mpath_status_t mca_coll_mpath_oob_create(struct ompi_communicator_t *comm, mpath_oob_t *oob,
                                         mca_coll_mpath_oob_t **state_p);
void mca_coll_mpath_oob_destroy(mca_coll_mpath_oob_t *state);

#endif
