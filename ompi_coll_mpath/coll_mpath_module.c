/* SPDX-License-Identifier: BSD-3-Clause */
/* The module: mpath on one communicator. Keeps the functions that it replaces; the team is made by the first call. */
#include "coll_mpath_peers.h"
#include "coll_mpath_symmetric.h"
#include "coll_mpath_request.h"

#include "ompi/runtime/mpiruntime.h"

#include <pthread.h>
#include <string.h>

static void module_construct(mca_coll_mpath_module_t *module)
{
    memset((char *)module + sizeof(module->super), 0, sizeof(*module) - sizeof(module->super));
}

#define MODULE_LET_GO(_mpath, _api)                                                                                    \
    do {                                                                                                               \
        if (NULL != (_mpath)->previous_##_api##_module) {                                                              \
            OBJ_RELEASE((_mpath)->previous_##_api##_module);                                                           \
        }                                                                                                              \
    } while (0)

/* All three forms of a collective. */
#define MODULE_LET_GO_OF(_mpath, _api)                                                                                 \
    do {                                                                                                               \
        MODULE_LET_GO(_mpath, _api);                                                                                   \
        MODULE_LET_GO(_mpath, i##_api);                                                                                \
        MODULE_LET_GO(_mpath, _api##_init);                                                                            \
    } while (0)

static void module_destruct(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_lifetime_forget(module);
    mca_coll_mpath_team_end(module);
    mca_coll_mpath_loss_end(module);
    mca_coll_mpath_queue_release(module);
    mca_coll_mpath_record_close(module);
    MODULE_LET_GO_OF(module, alltoallv);
    MODULE_LET_GO_OF(module, alltoall);
    MODULE_LET_GO_OF(module, allreduce);
    MODULE_LET_GO_OF(module, reduce_scatter);
    MODULE_LET_GO_OF(module, reduce_scatter_block);
    MODULE_LET_GO_OF(module, allgather);
    MODULE_LET_GO_OF(module, allgatherv);
    MODULE_LET_GO_OF(module, alltoallw);
}

OBJ_CLASS_INSTANCE(mca_coll_mpath_module_t, mca_coll_base_module_t, module_construct, module_destruct);

/* Modules are enabled in the order of rising priority: what the communicator has now is what mpath replaces. */
#define MODULE_TAKE_OVER(_mpath, _comm, _api)                                                                          \
    do {                                                                                                               \
        (_mpath)->previous_##_api          = (_comm)->c_coll->coll_##_api;                                             \
        (_mpath)->previous_##_api##_module = (_comm)->c_coll->coll_##_api##_module;                                    \
        if (NULL != (_mpath)->previous_##_api##_module) {                                                              \
            OBJ_RETAIN((_mpath)->previous_##_api##_module);                                                            \
        }                                                                                                              \
        if (NULL != (_mpath)->previous_##_api) {                                                                       \
            COLL_MPATH_INSTALL(_comm, _mpath, _api);                                                                   \
        }                                                                                                              \
    } while (0)

/* The forms that have a request: all or none, for a communicator's operations of both have one order. */
#define MODULE_TAKE_OVER_OF(_mpath, _comm, _api)                                                                       \
    do {                                                                                                               \
        MODULE_TAKE_OVER(_mpath, _comm, _api);                                                                         \
        if ((0 != mca_coll_mpath_component.nonblocking) && (NULL != (_mpath)->previous_##_api) &&                      \
            (NULL != (_comm)->c_coll->coll_i##_api) && (NULL != (_comm)->c_coll->coll_##_api##_init)) {                \
            MODULE_TAKE_OVER(_mpath, _comm, i##_api);                                                                  \
            MODULE_TAKE_OVER(_mpath, _comm, _api##_init);                                                              \
        }                                                                                                              \
    } while (0)

#define MODULE_GIVE_BACK_OF(_mpath, _comm, _api)                                                                       \
    do {                                                                                                               \
        COLL_MPATH_UNINSTALL(_comm, _mpath, _api);                                                                     \
        COLL_MPATH_UNINSTALL(_comm, _mpath, i##_api);                                                                  \
        COLL_MPATH_UNINSTALL(_comm, _mpath, _api##_init);                                                              \
    } while (0)

static int module_enable(mca_coll_base_module_t *base, struct ompi_communicator_t *comm)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;

    module->comm = comm;
    if (OMPI_COMM_IS_INTER(comm)) { /* there are only copies of device buffers to be made */
        module->tried = true;
    }
    MODULE_TAKE_OVER_OF(module, comm, alltoallv);
    MODULE_TAKE_OVER_OF(module, comm, alltoall);
    MODULE_TAKE_OVER_OF(module, comm, allreduce);
    MODULE_TAKE_OVER_OF(module, comm, reduce_scatter);
    MODULE_TAKE_OVER_OF(module, comm, reduce_scatter_block);
    MODULE_TAKE_OVER_OF(module, comm, allgather);
    MODULE_TAKE_OVER_OF(module, comm, allgatherv);
    MODULE_TAKE_OVER_OF(module, comm, alltoallw);
    mca_coll_mpath_symmetric_enable(module);
    if (&ompi_mpi_comm_world.comm == comm) {
        mca_coll_mpath_record_world(module);
    }
    if ((NULL == module->previous_alltoallv) && (NULL == module->previous_alltoall)) {
        mpath_info_by(0 == ompi_comm_rank(comm), "%s: no other component serves MPI_Alltoallv there; mpath stays out",
                      comm->c_name);
    }
    return OMPI_SUCCESS;
}

static int module_disable(mca_coll_base_module_t *base, struct ompi_communicator_t *comm)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;

    (void)module;
    (void)comm;
    MODULE_GIVE_BACK_OF(module, comm, alltoallv);
    MODULE_GIVE_BACK_OF(module, comm, alltoall);
    MODULE_GIVE_BACK_OF(module, comm, allreduce);
    MODULE_GIVE_BACK_OF(module, comm, reduce_scatter);
    MODULE_GIVE_BACK_OF(module, comm, reduce_scatter_block);
    MODULE_GIVE_BACK_OF(module, comm, allgather);
    MODULE_GIVE_BACK_OF(module, comm, allgatherv);
    MODULE_GIVE_BACK_OF(module, comm, alltoallw);
    return OMPI_SUCCESS;
}

int mca_coll_mpath_init_query(bool enable_progress_threads, bool enable_mpi_threads)
{
    (void)enable_progress_threads;
    (void)enable_mpi_threads;
    return OMPI_SUCCESS;
}

/*
 * A module in reserve: the others have theirs, and would wait for this rank in the first call. Where there is no memory
 * for one, it has to come to that call all the same, and say so.
 */
static pthread_mutex_t reserve_lock = PTHREAD_MUTEX_INITIALIZER;
static mca_coll_mpath_module_t *reserve;

int mca_coll_mpath_reserve_fill(void)
{
    pthread_mutex_lock(&reserve_lock);
    if (NULL == reserve) {
        reserve = OBJ_NEW(mca_coll_mpath_module_t);
    }
    pthread_mutex_unlock(&reserve_lock);
    return (NULL != reserve) ? OMPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
}

void mca_coll_mpath_reserve_drop(void)
{
    if (NULL != reserve) {
        OBJ_RELEASE(reserve);
        reserve = NULL;
    }
}

static mca_coll_mpath_module_t *module_new(struct ompi_communicator_t *comm)
{
    mca_coll_mpath_module_t *module = OBJ_NEW(mca_coll_mpath_module_t);

    if (NULL != module) {
        (void)mca_coll_mpath_reserve_fill();
        return module;
    }
    pthread_mutex_lock(&reserve_lock);
    module  = reserve;
    reserve = NULL;
    pthread_mutex_unlock(&reserve_lock);
    if (NULL == module) {
        mpath_error("%s: no memory for mpath's part in it, which the other ranks have; the job ends", comm->c_name);
        ompi_mpi_abort(comm, MPI_ERR_NO_MEM);
    }
    return module;
}

mca_coll_base_module_t *mca_coll_mpath_comm_query(struct ompi_communicator_t *comm, int *priority)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;
    mca_coll_mpath_module_t *module;

    *priority = -1;
    if ((0 == settings->priority) || (0 == mca_coll_mpath_component.enable)) {
        return NULL;
    }
    /*
     * A process alone and the groups of an intercommunicator are served as well: device buffers get copies for the
     * previous functions, about which the ranks need not agree.
     */
    if (!OMPI_COMM_IS_INTER(comm) && !mca_coll_mpath_peers_alike(comm)) {
        return NULL;
    }
    module = module_new(comm);
    if (NULL == module) {
        return NULL;
    }
    module->super.coll_module_enable  = module_enable;
    module->super.coll_module_disable = module_disable;
    *priority                         = settings->priority;
    return &module->super;
}
