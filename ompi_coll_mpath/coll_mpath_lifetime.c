/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When a team ends. It keeps receives posted, and pending requests keep the communicator alive: so the module's
 * destructor would never run. Attributes tell in time: one on the communicator, whose delete function MPI_Comm_free
 * calls first, and one on MPI_COMM_SELF, for what MPI_Finalize finds still there.
 */
#include "coll_mpath.h"

#include <pthread.h>

static pthread_mutex_t lifetime_lock = PTHREAD_MUTEX_INITIALIZER;
/* Two: a module of MPI_COMM_SELF has its attribute there, too, and setting one calls the delete function of the former. */
static int lifetime_keyval          = MPI_KEYVAL_INVALID; /* on communicators: the module */
static int lifetime_finalize_keyval = MPI_KEYVAL_INVALID; /* on MPI_COMM_SELF */
static mca_coll_mpath_module_t *lifetime_list;
static const mca_coll_mpath_lifetime_ops_t *lifetime_ops;

static void lifetime_unlink(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_module_t **link = &lifetime_list;

    pthread_mutex_lock(&lifetime_lock);
    while ((NULL != *link) && (module != *link)) {
        link = &(*link)->next;
    }
    if (NULL != *link) {
        *link = module->next;
    }
    pthread_mutex_unlock(&lifetime_lock);
}

/* MPI_Finalize begins: no communicator will be used any more. */
static int lifetime_finalized(MPI_Comm comm, int keyval, void *value, void *extra)
{
    mca_coll_mpath_module_t *module;

    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    lifetime_ops->finish();
    while (NULL != (module = lifetime_list)) {
        lifetime_unlink(module);
        lifetime_ops->end(module);
    }
    return MPI_SUCCESS;
}

void mca_coll_mpath_lifetime_end_team(mca_coll_mpath_module_t *module)
{
    if ((MPATH_OK != module->parted) || ((NULL != module->team) && (MPATH_OK != mpath_team_status(module->team)))) {
        /*
         * Messages about the failure may still be under way: they must not come up in the next communicator of this
         * number.
         */
        OBJ_RETAIN(module->comm);
    }
    lifetime_unlink(module);
    lifetime_ops->end(module);
}

static int lifetime_deleted(MPI_Comm comm, int keyval, void *value, void *extra)
{
    mca_coll_mpath_module_t *module = value;

    (void)comm;
    (void)keyval;
    (void)extra;
    if (!lifetime_ops->waits(module)) {
        mca_coll_mpath_lifetime_end_team(module);
    }
    return MPI_SUCCESS;
}

/* Once per process. A process that only uses sessions has no MPI_COMM_SELF, and has to free its communicators. */
static int lifetime_prepare(void)
{
    int world = 0, rc;

    if (MPI_KEYVAL_INVALID != lifetime_keyval) {
        return MPI_SUCCESS;
    }
    rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, lifetime_deleted, &lifetime_keyval, NULL);
    if (MPI_SUCCESS != rc) {
        return rc;
    }
    PMPI_Initialized(&world);
    if (!world) {
        return MPI_SUCCESS;
    }
    rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, lifetime_finalized, &lifetime_finalize_keyval, NULL);
    return (MPI_SUCCESS == rc) ? PMPI_Comm_set_attr(MPI_COMM_SELF, lifetime_finalize_keyval, NULL) : rc;
}

mpath_status_t mca_coll_mpath_lifetime_watch(mca_coll_mpath_module_t *module)
{
    int rc;

    if (module->watched) {
        return MPATH_OK;
    }
    pthread_mutex_lock(&lifetime_lock);
    rc = lifetime_prepare();
    if (MPI_SUCCESS == rc) {
        module->next  = lifetime_list;
        lifetime_list = module;
    }
    pthread_mutex_unlock(&lifetime_lock);
    if (MPI_SUCCESS != rc) {
        return MPATH_ERR_INTERNAL;
    }
    /* Not under the lock: it takes one of its own, under which the delete function runs. */
    rc = PMPI_Comm_set_attr(module->comm, lifetime_keyval, module);
    if (MPI_SUCCESS != rc) {
        lifetime_unlink(module);
        return MPATH_ERR_INTERNAL;
    }
    module->watched = true;
    return MPATH_OK;
}

void mca_coll_mpath_lifetime_forget(mca_coll_mpath_module_t *module)
{
    lifetime_unlink(module);
}

void mca_coll_mpath_lifetime_begin(const mca_coll_mpath_lifetime_ops_t *ops)
{
    lifetime_ops = ops;
}

void mca_coll_mpath_lifetime_end(void)
{
    /* MPI has freed the attributes and, with them, the keyvals. */
    lifetime_keyval          = MPI_KEYVAL_INVALID;
    lifetime_finalize_keyval = MPI_KEYVAL_INVALID;
}
