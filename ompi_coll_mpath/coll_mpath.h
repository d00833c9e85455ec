/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Open MPI component "mpath": hands collectives of intracommunicators to libmpath (MPI_Alltoallv and MPI_Alltoall,
 * MPI_Allreduce, MPI_Reduce_scatter and MPI_Allgather with their variants), and runs the functions that it replaced
 * when libmpath declines. MPI_Alltoallw gets copies of device buffers, and no more. It has no logic of its own beyond
 * translation.
 *
 * One context per process, made when it is first needed and ended when the component closes; one team per
 * communicator, made collectively inside its first call that libmpath is asked about, and ended with the communicator.
 */
#ifndef COLL_MPATH_H
#define COLL_MPATH_H

#include "coll_mpath_compat.h"
#include "coll_mpath_oob.h"

#include "coll/allreduce_gpu.h"
#include "coll/alltoallv.h"
#include "coll/symmetric.h"
#include "exec/team.h"
#include "util/log.h"
#include "util/param.h"
#include "util/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct mca_coll_mpath_component_t {
    mca_coll_base_component_t super;
    mpath_settings_t settings; /* registered as MCA variables */
    int enable;                /* communicators made while it is 0 get no module */
    int nonblocking;           /* 0: non-blocking and persistent collectives stay with the previous components */
    char *fallback;            /* components to add to a selection that cannot stand alone */
    uint64_t pack_bytes;       /* most memory that a call takes for packed copies */
} mca_coll_mpath_component_t;

extern __attribute__((visibility("default"))) mca_coll_mpath_component_t mca_coll_mpath_component;

/* The functions of a collective that mpath replaces, and their modules: blocking, non-blocking, persistent. */
#define COLL_MPATH_PREVIOUS_OF(_api)                                                                                   \
    mca_coll_base_module_##_api##_fn_t previous_##_api;                                                                \
    mca_coll_base_module_t *previous_##_api##_module;                                                                  \
    mca_coll_base_module_i##_api##_fn_t previous_i##_api;                                                              \
    mca_coll_base_module_t *previous_i##_api##_module;                                                                 \
    mca_coll_base_module_##_api##_init_fn_t previous_##_api##_init;                                                    \
    mca_coll_base_module_t *previous_##_api##_init_module

typedef struct mca_coll_mpath_module_t {
    mca_coll_base_module_t super;
    COLL_MPATH_PREVIOUS_OF(alltoallv);
    COLL_MPATH_PREVIOUS_OF(alltoall);
    COLL_MPATH_PREVIOUS_OF(allreduce);
    COLL_MPATH_PREVIOUS_OF(reduce_scatter);
    COLL_MPATH_PREVIOUS_OF(reduce_scatter_block);
    COLL_MPATH_PREVIOUS_OF(allgather);
    COLL_MPATH_PREVIOUS_OF(allgatherv);
    COLL_MPATH_PREVIOUS_OF(alltoallw);

    struct ompi_communicator_t *comm; /* borrowed: the communicator owns the module */
    bool tried;                       /* the team has been made, or it never will be */
    mpath_status_t parted;            /* not MPATH_OK: the ranks could not come to a common decision; all calls fail */
    mca_coll_mpath_oob_t *oob;
    mpath_team_t *team;
    mpath_coll_t *coll; /* NULL: the previous functions run */
    mpath_symmetric_t *symmetric;
    bool symmetric_tried, symmetric_usable; /* the ranks' parameters have been compared, and are the same */
    mpath_symmetric_gpu_t
        *symmetric_gpu;     /* device memory of the symmetric collectives on one node; NULL: they go another way */
    bool device_over_nodes; /* on several: `symmetric` takes it */
    struct mpath_way_choice *allgather_choice; /* there, where every rank's MPI knows devices; else NULL */
    bool device_never;
    uint64_t device_calls; /* in which the GPUs might have been asked; the same on all ranks */
    uint64_t *arrays;      /* of the calls: bytes and offsets of both sides, 4 * size */
    mpath_coll_counters_t counted, symmetric_counted, device_counted;
    bool watched;                         /* by coll_mpath_lifetime.c */
    struct mca_coll_mpath_module_t *next; /* in its list */

    /* coll_mpath_queue.c: non-blocking operations in the order of their start; the first one runs on the fiber */
    struct mpath_fiber *fiber; /* made by the first of them */
    struct mca_coll_mpath_request_t *queue_first, *queue_last;
    bool queue_running;   /* the first one has begun */
    unsigned requests;    /* that there are, under way or not */
    bool queue_ends_team; /* the communicator is freed: the team ends with the last request */
    struct mca_coll_mpath_module_t *queue_next;
    uint32_t takes_one_tag; /* coll_mpath_tag.c: previous functions, two bits for each kind */
} mca_coll_mpath_module_t;
OBJ_CLASS_DECLARATION(mca_coll_mpath_module_t);

/* The processes with which this one exchanges data: those of the other group of an intercommunicator. */
static inline int mca_coll_mpath_parts(struct ompi_communicator_t *comm)
{
    return OMPI_COMM_IS_INTER(comm) ? ompi_comm_remote_size(comm) : ompi_comm_size(comm);
}

/* coll_mpath_module.c */
int mca_coll_mpath_init_query(bool enable_progress_threads, bool enable_mpi_threads);
mca_coll_base_module_t *mca_coll_mpath_comm_query(struct ompi_communicator_t *comm, int *priority);

/* coll_mpath_team.c */
/* Makes the team of a communicator on its first call: collective. Afterwards module->coll says who serves the calls. */
void mca_coll_mpath_team_make(mca_coll_mpath_module_t *module);
void mca_coll_mpath_team_end(mca_coll_mpath_module_t *module);
/* Ends the context of the process, after all teams. */
void mca_coll_mpath_context_end(void);

/* coll_mpath_lifetime.c */
/* From now on the team is ended when the communicator is freed or MPI_Finalize begins. Once is enough. */
mpath_status_t mca_coll_mpath_lifetime_watch(mca_coll_mpath_module_t *module);
/* The communicator has been freed, and nothing is under way on it any more. */
void mca_coll_mpath_lifetime_end_team(mca_coll_mpath_module_t *module);
/* The module is about to go. */
void mca_coll_mpath_lifetime_forget(mca_coll_mpath_module_t *module);
/* The component closes. */
void mca_coll_mpath_lifetime_end(void);

/* coll_mpath_gather.c */
/*
 * Gathers one word of every rank. Collective; by point-to-point messages, so that it may be a part of a non-blocking
 * operation and meets no collective of the user's.
 */
mpath_status_t mca_coll_mpath_gather(mca_coll_mpath_module_t *module, uint64_t mine, uint64_t *all);
/* True on all ranks when it is true on each. */
bool mca_coll_mpath_all(mca_coll_mpath_module_t *module, bool mine);
/* The same where all ranks are known to be in the call: with a deadline. */
bool mca_coll_mpath_all_here(mca_coll_mpath_module_t *module, bool mine);

/* coll_mpath_alltoallv.c */
int mca_coll_mpath_alltoallv(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                             struct ompi_datatype_t *sdtype, void *rbuf, mca_coll_mpath_counts_t rcounts,
                             mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *rdtype,
                             struct ompi_communicator_t *comm, mca_coll_base_module_t *module);
int mca_coll_mpath_alltoall(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype, void *rbuf,
                            mca_coll_mpath_count_t rcount, struct ompi_datatype_t *rdtype,
                            struct ompi_communicator_t *comm, mca_coll_base_module_t *module);

/* coll_mpath_alltoallw.c */
int mca_coll_mpath_alltoallw(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                             struct ompi_datatype_t *const *sdtypes, void *rbuf, mca_coll_mpath_counts_t rcounts,
                             mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *const *rdtypes,
                             struct ompi_communicator_t *comm, mca_coll_base_module_t *module);
int mca_coll_mpath_ialltoallw(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                              struct ompi_datatype_t *const *sdtypes, void *rbuf, mca_coll_mpath_counts_t rcounts,
                              mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *const *rdtypes,
                              struct ompi_communicator_t *comm, ompi_request_t **request,
                              mca_coll_base_module_t *module);
int mca_coll_mpath_alltoallw_init(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                                  struct ompi_datatype_t *const *sdtypes, void *rbuf, mca_coll_mpath_counts_t rcounts,
                                  mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *const *rdtypes,
                                  struct ompi_communicator_t *comm, struct ompi_info_t *info, ompi_request_t **request,
                                  mca_coll_base_module_t *module);

/* True: this MPI_Alltoallv or MPI_Alltoall is the previous function's; asked once for each, in their order. */
bool mca_coll_mpath_alltoallv_passes(mca_coll_mpath_module_t *module);

/* coll_mpath_allreduce.c, coll_mpath_reduce_scatter.c, coll_mpath_allgather.c */
int mca_coll_mpath_allreduce(const void *sbuf, void *rbuf, mca_coll_mpath_count_t count,
                             struct ompi_datatype_t *datatype, struct ompi_op_t *op, struct ompi_communicator_t *comm,
                             mca_coll_base_module_t *module);
int mca_coll_mpath_reduce_scatter(const void *sbuf, void *rbuf, mca_coll_mpath_counts_t rcounts,
                                  struct ompi_datatype_t *datatype, struct ompi_op_t *op,
                                  struct ompi_communicator_t *comm, mca_coll_base_module_t *module);
int mca_coll_mpath_reduce_scatter_block(const void *sbuf, void *rbuf, mca_coll_mpath_count_t rcount,
                                        struct ompi_datatype_t *datatype, struct ompi_op_t *op,
                                        struct ompi_communicator_t *comm, mca_coll_base_module_t *module);
int mca_coll_mpath_allgather(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                             void *rbuf, mca_coll_mpath_count_t rcount, struct ompi_datatype_t *rdtype,
                             struct ompi_communicator_t *comm, mca_coll_base_module_t *module);
int mca_coll_mpath_allgatherv(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                              void *rbuf, mca_coll_mpath_counts_t rcounts, mca_coll_mpath_displs_t rdisps,
                              struct ompi_datatype_t *rdtype, struct ompi_communicator_t *comm,
                              mca_coll_base_module_t *module);

/* coll_mpath_nonblocking.c */
int mca_coll_mpath_ialltoallv(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                              struct ompi_datatype_t *sdtype, void *rbuf, mca_coll_mpath_counts_t rcounts,
                              mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *rdtype,
                              struct ompi_communicator_t *comm, ompi_request_t **request,
                              mca_coll_base_module_t *module);
int mca_coll_mpath_alltoallv_init(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                                  struct ompi_datatype_t *sdtype, void *rbuf, mca_coll_mpath_counts_t rcounts,
                                  mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *rdtype,
                                  struct ompi_communicator_t *comm, struct ompi_info_t *info, ompi_request_t **request,
                                  mca_coll_base_module_t *module);
int mca_coll_mpath_ialltoall(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                             void *rbuf, mca_coll_mpath_count_t rcount, struct ompi_datatype_t *rdtype,
                             struct ompi_communicator_t *comm, ompi_request_t **request,
                             mca_coll_base_module_t *module);
int mca_coll_mpath_alltoall_init(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                                 void *rbuf, mca_coll_mpath_count_t rcount, struct ompi_datatype_t *rdtype,
                                 struct ompi_communicator_t *comm, struct ompi_info_t *info, ompi_request_t **request,
                                 mca_coll_base_module_t *module);
int mca_coll_mpath_iallreduce(const void *sbuf, void *rbuf, mca_coll_mpath_count_t rcount,
                              struct ompi_datatype_t *rdtype, struct ompi_op_t *op, struct ompi_communicator_t *comm,
                              ompi_request_t **request, mca_coll_base_module_t *module);
int mca_coll_mpath_allreduce_init(const void *sbuf, void *rbuf, mca_coll_mpath_count_t rcount,
                                  struct ompi_datatype_t *rdtype, struct ompi_op_t *op,
                                  struct ompi_communicator_t *comm, struct ompi_info_t *info, ompi_request_t **request,
                                  mca_coll_base_module_t *module);
int mca_coll_mpath_ireduce_scatter(const void *sbuf, void *rbuf, mca_coll_mpath_counts_t rcounts,
                                   struct ompi_datatype_t *rdtype, struct ompi_op_t *op,
                                   struct ompi_communicator_t *comm, ompi_request_t **request,
                                   mca_coll_base_module_t *module);
int mca_coll_mpath_reduce_scatter_init(const void *sbuf, void *rbuf, mca_coll_mpath_counts_t rcounts,
                                       struct ompi_datatype_t *rdtype, struct ompi_op_t *op,
                                       struct ompi_communicator_t *comm, struct ompi_info_t *info,
                                       ompi_request_t **request, mca_coll_base_module_t *module);
int mca_coll_mpath_ireduce_scatter_block(const void *sbuf, void *rbuf, mca_coll_mpath_count_t rcount,
                                         struct ompi_datatype_t *rdtype, struct ompi_op_t *op,
                                         struct ompi_communicator_t *comm, ompi_request_t **request,
                                         mca_coll_base_module_t *module);
int mca_coll_mpath_reduce_scatter_block_init(const void *sbuf, void *rbuf, mca_coll_mpath_count_t rcount,
                                             struct ompi_datatype_t *rdtype, struct ompi_op_t *op,
                                             struct ompi_communicator_t *comm, struct ompi_info_t *info,
                                             ompi_request_t **request, mca_coll_base_module_t *module);
int mca_coll_mpath_iallgather(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                              void *rbuf, mca_coll_mpath_count_t rcount, struct ompi_datatype_t *rdtype,
                              struct ompi_communicator_t *comm, ompi_request_t **request,
                              mca_coll_base_module_t *module);
int mca_coll_mpath_allgather_init(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                                  void *rbuf, mca_coll_mpath_count_t rcount, struct ompi_datatype_t *rdtype,
                                  struct ompi_communicator_t *comm, struct ompi_info_t *info, ompi_request_t **request,
                                  mca_coll_base_module_t *module);
int mca_coll_mpath_iallgatherv(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                               void *rbuf, mca_coll_mpath_counts_t rcounts, mca_coll_mpath_displs_t rdisps,
                               struct ompi_datatype_t *rdtype, struct ompi_communicator_t *comm,
                               ompi_request_t **request, mca_coll_base_module_t *module);
int mca_coll_mpath_allgatherv_init(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                                   void *rbuf, mca_coll_mpath_counts_t rcounts, mca_coll_mpath_displs_t rdisps,
                                   struct ompi_datatype_t *rdtype, struct ompi_communicator_t *comm,
                                   struct ompi_info_t *info, ompi_request_t **request, mca_coll_base_module_t *module);

/* coll_mpath_param.c */
int mca_coll_mpath_params_register(void);

/* coll_mpath_fallback.c */
/* Adds the components without which no communicator can be made to a selection such as "--mca coll mpath". */
void mca_coll_mpath_fallback_add(void);

/* coll_mpath_pvar.c */
int mca_coll_mpath_pvars_register(void);
/*
 * Adds what a module has counted since the last time: in an MPI_Alltoallv; in one that passed (mpath_coll_passes()); in a
 * reduction or a gather; in one of device memory.
 */
void mca_coll_mpath_pvars_add(mca_coll_mpath_module_t *module);
void mca_coll_mpath_pvars_add_passed(mca_coll_mpath_module_t *module);
void mca_coll_mpath_pvars_add_symmetric(mca_coll_mpath_module_t *module);
void mca_coll_mpath_pvars_add_device(mca_coll_mpath_module_t *module);
/* A non-blocking operation is started, or goes on. */
void mca_coll_mpath_pvars_started(void);
void mca_coll_mpath_pvars_slice(void);

/* The value that an MPI function returns for a status, with the communicator's error handler in mind. */
int mca_coll_mpath_error(mpath_status_t status);

#endif
