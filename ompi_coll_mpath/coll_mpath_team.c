/* SPDX-License-Identifier: BSD-3-Clause */
/* The context of the process and the team of a communicator: made when they are first needed, and ended. */
#include "coll_mpath.h"
#include "coll_mpath_help.h"
#include "coll_mpath_peers.h"

#include "lane/segment.h"
#include "record/page.h"

#include "ompi/proc/proc.h"
#include "ompi/runtime/mpiruntime.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static mpath_context_t *context;
static mpath_status_t context_status; /* of the one attempt to make it */

/* Communicators of several threads may come here at the same time. */
static mpath_status_t context_get(mpath_context_t **context_p)
{
    mpath_status_t status;

    pthread_mutex_lock(&context_lock);
    if ((NULL == context) && (MPATH_OK == context_status)) {
        mpath_segment_sweep(); /* a process alone on its node has no other occasion */
        mpath_page_open((uint64_t)OMPI_PROC_MY_NAME->jobid, (int)OMPI_PROC_MY_NAME->vpid,
                        (int)ompi_process_info.num_procs);
        context_status = mpath_context_create(&mca_coll_mpath_component.settings, (int)OMPI_PROC_MY_NAME->vpid,
                                              mca_coll_mpath_peers_local_rank(), &context);
        if (NULL != context) {
            mpath_context_set_processes(context, (int)ompi_process_info.num_local_peers + 1);
        }
    }
    if (NULL != context) { /* each time: a session that comes later may have threads */
        mpath_context_set_alone(context, !ompi_mpi_thread_multiple);
    }
    status     = context_status;
    *context_p = context;
    pthread_mutex_unlock(&context_lock);
    return status;
}

void mca_coll_mpath_context_end(void)
{
    pthread_mutex_lock(&context_lock);
    if (NULL != context) {
        mpath_context_destroy(context);
        context = NULL;
    }
    mpath_page_close();
    context_status = MPATH_OK;
    pthread_mutex_unlock(&context_lock);
}

/* mpath moves bytes as they are: all processes have to agree on what they mean. */
static bool team_same_representation(struct ompi_communicator_t *comm)
{
#if OPAL_ENABLE_HETEROGENEOUS_SUPPORT
    int rank;

    for (rank = 0; rank < ompi_comm_size(comm); rank++) {
        if (ompi_comm_peer_lookup(comm, rank)->super.proc_arch != ompi_proc_local()->super.proc_arch) {
            return false;
        }
    }
#else
    (void)comm;
#endif
    return true;
}

/* What can fail on one rank alone, before the team's own, collective creation. */
static mpath_status_t team_prepare(mca_coll_mpath_module_t *module, mpath_oob_t *oob, mpath_context_t **context_p)
{
    size_t size = (size_t)ompi_comm_size(module->comm);
    mpath_status_t status;

    if (!team_same_representation(module->comm)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    status = context_get(context_p);
    if (MPATH_OK != status) {
        return status;
    }
    module->arrays = calloc(4 * size, sizeof(*module->arrays));
    if (NULL == module->arrays) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = mca_coll_mpath_oob_create(module, COLL_MPATH_TAG_TEAM, oob, &module->oob);
    if (MPATH_OK != status) {
        return status;
    }
    return mca_coll_mpath_lifetime_watch(module);
}

static mpath_status_t team_create(mca_coll_mpath_module_t *module)
{
    mpath_context_t *the_context = NULL;
    mpath_coll_t *coll           = NULL;
    mpath_symmetric_t *symmetric = NULL;
    mpath_oob_t oob;
    mpath_status_t status, prepared;

    prepared = team_prepare(module, &oob, &the_context);
    if (!mca_coll_mpath_all(module, MPATH_OK == prepared)) {
        return (MPATH_OK != prepared) ? prepared : MPATH_DECLINED;
    }
    mpath_context_limit_paths(the_context, mca_coll_mpath_component.settings.max_paths);
    status = mpath_team_create(the_context, &oob, &module->team);
    if (mpath_exchange_is_parted(status)) {
        mca_coll_mpath_loss_note(module, status);
    }
    if (MPATH_OK == status) {
        mpath_team_set_record(module->team, mca_coll_mpath_record(module));
        status = mpath_coll_create(module->team, &coll);
    }
    if (MPATH_OK == status) {
        status = mpath_symmetric_create(module->team, coll, &symmetric);
    }
    /* Asked by every rank: one on which it went wrong alone must not leave the others here. */
    if (!mca_coll_mpath_all_here(module, MPATH_OK == status)) {
        mpath_symmetric_destroy(symmetric);
        mpath_coll_destroy(coll);
        return (MPATH_OK != status) ? status : MPATH_DECLINED;
    }
    module->coll      = coll;
    module->symmetric = symmetric;
    mca_coll_mpath_pvars_begin(module);
    return MPATH_OK;
}

void mca_coll_mpath_team_make(mca_coll_mpath_module_t *module)
{
    const char *name = module->comm->c_name;
    mpath_status_t status;

    module->tried = true;
    if ((2 > ompi_comm_size(module->comm)) || (MPATH_OK != module->parted)) {
        return; /* there is nobody to make one with */
    }
    status = team_create(module);
    if (MPATH_OK == status) {
        return; /* libmpath has told what there is */
    }
    if (MPATH_OK != module->parted) {
        mpath_info_by(
            0 == ompi_comm_rank(module->comm),
            "%s: the ranks could not set up mpath together (%s): every call of mpath on the communicator fails", name,
            mpath_status_string(module->parted));
    } else if (MPATH_DECLINED == status) {
        mpath_info_by(0 == ompi_comm_rank(module->comm),
                      "%s: mpath stays out of this communicator; the functions that it replaces run", name);
    } else {
        COLL_MPATH_TELL(
            "no-setup",
            "%s: mpath could not be set up here (%s); the functions that it replaces run on this communicator", name,
            mpath_status_string(status));
    }
    mca_coll_mpath_team_end(module);
}

void mca_coll_mpath_team_end(mca_coll_mpath_module_t *module)
{
    if (NULL != module->symmetric) {
        mpath_symmetric_destroy(module->symmetric);
        module->symmetric = NULL;
    }
    if (NULL != module->coll) {
        mca_coll_mpath_pvars_end(module);
        mpath_coll_destroy(module->coll);
        module->coll = NULL;
    }
    if (NULL != module->team) {
        mpath_team_destroy(module->team);
        module->team = NULL;
    }
    if (NULL != module->oob) {
        mca_coll_mpath_oob_destroy(module->oob);
        module->oob = NULL;
    }
    free(module->arrays);
    module->arrays = NULL;
}
