/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that are gone while the ranks of a communicator set something up. Who waits in an exchange looks now and then
 * whether the processes of its node live (coll_mpath_peers.c), and listens whether anybody has given up: on processes of
 * other nodes it depends on those beside them. Who finds out is not alone in waiting, for the one that is gone or for each
 * other, so all are told, by a message of their own, and all come out with the same error. On a node where nobody of the
 * communicator is left nobody looks, and only deadlines end the wait.
 */
#include "coll_mpath.h"
#include "coll_mpath_peers.h"

#include "lane/segment.h"

#include <string.h>

#define LOSS_MAGIC 0x6d706c73 /* of a word: this, the reason, the rank that it is about (-1: none), who tells */
#define LOSS_TELLERS 2        /* of a node: one of them may not come to look, or give up in silence */

static void loss_open(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_loss_t *loss = &module->loss;

    if (!loss->is_open) {
        mca_coll_mpath_oob_open(module, COLL_MPATH_TAG_LOSS, &loss->state, &loss->oob);
        loss->is_open = true;
    }
}

void mca_coll_mpath_loss_note(mca_coll_mpath_module_t *module, mpath_status_t reason)
{
    module->parted = (MPATH_OK == module->parted) ? reason : module->parted;
    if (NULL != module->team) {
        mpath_team_break(module->team, reason); /* others may have it, and be in a call */
    }
}

/* `beside`: those of this node, too, which may not look. What is sent needs nobody to wait for it. */
static void loss_tell(mca_coll_mpath_module_t *module, mpath_status_t reason, int about, bool beside)
{
    mca_coll_mpath_loss_t *loss = &module->loss;
    int rank, me = ompi_comm_rank(module->comm);
    const int32_t word[4] = {LOSS_MAGIC, (int32_t)reason, about, me};
    mpath_oob_request_t request;

    if (loss->has_told) {
        return;
    }
    loss->has_told = true;
    loss_open(module);
    (void)mca_coll_mpath_lifetime_watch(module); /* what is under way keeps the communicator */
    for (rank = 0; rank < ompi_comm_size(module->comm); rank++) {
        /* Who is said to be gone may not be: only messages to it have failed, or it is late. */
        if ((me == rank) || (!beside && mca_coll_mpath_peers_watched(module->comm, rank)) ||
            mca_coll_mpath_peers_gone(module->comm, rank)) {
            continue;
        }
        request.handle = NULL;
        if (MPATH_OK == loss->oob.isend(&loss->state, rank, word, sizeof(word), &request)) {
            loss->oob.cancel(&loss->state, &request); /* it goes all the same */
        }
    }
}

void mca_coll_mpath_loss_give_up(mca_coll_mpath_module_t *module, mpath_status_t reason, int peer)
{
    if (MPATH_OK == module->parted) {
        mca_coll_mpath_loss_note(module, reason);
        loss_tell(module, reason, peer, true);
    }
}

static void loss_heard(mca_coll_mpath_module_t *module, size_t bytes)
{
    const int32_t *word   = module->loss.heard;
    mpath_status_t reason = (mpath_status_t)word[1];
    const char *name      = module->comm->c_name;

    if ((sizeof(module->loss.heard) != bytes) || (LOSS_MAGIC != word[0]) || (MPATH_OK != module->parted)) {
        return;
    }
    reason = mpath_status_is_error(reason) ? reason : MPATH_ERR_INTERNAL;
    if (0 > word[2]) {
        mpath_error("%s: rank %d has given up to set up the communicator (%s): every call of mpath on it fails", name,
                    (int)word[3], mpath_status_string(reason));
    } else {
        mpath_error("%s: rank %d has told that rank %d %s (%s): the communicator cannot be set up, and every call of "
                    "mpath on it fails",
                    name, (int)word[3], (int)word[2],
                    (MPATH_ERR_TIMED_OUT == reason) ? "does not come" : "cannot be reached any more",
                    mpath_status_string(reason));
    }
    mca_coll_mpath_loss_note(module, reason);
}

/* A failure to listen is left to the processes beside, and to deadlines. */
static void loss_listen(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_loss_t *loss = &module->loss;
    size_t bytes                = 0;
    mpath_status_t status;

    loss_open(module);
    if (NULL == loss->listens.handle) {
        (void)loss->oob.irecv(&loss->state, MPI_ANY_SOURCE, loss->heard, sizeof(loss->heard), &loss->listens);
    }
    if (NULL != loss->listens.handle) {
        status = loss->oob.test(&loss->state, &loss->listens, &bytes);
        if (MPATH_OK == status) {
            loss_heard(module, bytes);
        }
    }
}

mpath_status_t mca_coll_mpath_loss_look(mca_coll_mpath_module_t *module)
{
    struct ompi_communicator_t *comm = module->comm;
    int rank, gone = -1, before = 0, me = ompi_comm_rank(comm);

    loss_listen(module);
    for (rank = 0; (MPATH_OK == module->parted) && (rank < ompi_comm_size(comm)); rank++) {
        if ((me == rank) || !mca_coll_mpath_peers_watched(comm, rank)) {
            continue;
        }
        if (mca_coll_mpath_peers_gone(comm, rank)) {
            gone = (0 > gone) ? rank : gone;
        } else if (rank < me) {
            before++;
        }
    }
    if ((MPATH_OK == module->parted) && (0 <= gone)) {
        mpath_error("%s: the process of rank %d, on this node, is gone: the communicator cannot be set up, and every "
                    "call of mpath on it fails",
                    comm->c_name, gone);
        mpath_segment_sweep(); /* it may have been about to share memory */
        mca_coll_mpath_loss_note(module, MPATH_ERR_UNREACHABLE);
        if (LOSS_TELLERS > before) {
            loss_tell(module, MPATH_ERR_UNREACHABLE, gone, false);
        }
    }
    return (MPATH_OK != module->parted) ? MPATH_ERR_UNREACHABLE : MPATH_OK;
}

void mca_coll_mpath_loss_rest(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_loss_t *loss = &module->loss;
    size_t bytes                = 0;

    if ((NULL != loss->listens.handle) &&
        (MPATH_OK == mca_coll_mpath_oob_withdraw(&loss->state, &loss->listens, &bytes))) {
        loss_heard(module, bytes);
    }
}

void mca_coll_mpath_loss_end(mca_coll_mpath_module_t *module)
{
    if (module->loss.is_open) {
        mca_coll_mpath_loss_rest(module);
        mca_coll_mpath_oob_close(&module->loss.state);
        module->loss.is_open = false;
    }
}
