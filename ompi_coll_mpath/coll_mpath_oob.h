/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane of a team on Open MPI's point-to-point layer: messages with a private negative tag on the
 * communicator itself, which no user message can match.
 */
#ifndef COLL_MPATH_OOB_H
#define COLL_MPATH_OOB_H

#include "coll_mpath_compat.h"

#include "team/exchange.h"

struct mca_coll_mpath_oob_message_t;
struct mca_coll_mpath_module_t;

typedef struct mca_coll_mpath_oob_t {
    struct mca_coll_mpath_module_t *module; /* of the communicator */
    struct ompi_communicator_t *comm;
    int tag;
    struct mca_coll_mpath_oob_message_t *given_up;
    bool cannot_send; /* has been said */
} mca_coll_mpath_oob_t;

/* Open MPI's collectives, blocking and not, take tags from -7 downwards, and -1 is MPI_ANY_TAG. A small value also
 * survives transports that carry fewer tag bits than int has. */
enum {
    COLL_MPATH_TAG_LOSS   = -4, /* of losses */
    COLL_MPATH_TAG_TEAM   = -5,
    COLL_MPATH_TAG_GATHER = -6 /* of gathers, which need no team */
};

/* Fills *state and *oob for the module's communicator; it and *state have to outlive *oob. Cannot fail. */
void mca_coll_mpath_oob_open(struct mca_coll_mpath_module_t *module, int tag, mca_coll_mpath_oob_t *state,
                             mpath_oob_t *oob);
void mca_coll_mpath_oob_close(mca_coll_mpath_oob_t *state);
/* The same with a state of its own. */
mpath_status_t mca_coll_mpath_oob_create(struct mca_coll_mpath_module_t *module, int tag, mpath_oob_t *oob,
                                         mca_coll_mpath_oob_t **state_p);
/* Gives up a receive. MPATH_OK: what has come is there, as from test(). */
void mca_coll_mpath_oob_destroy(mca_coll_mpath_oob_t *state);

#endif
