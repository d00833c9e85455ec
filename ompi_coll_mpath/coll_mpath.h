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

#include "coll/alltoallv.h"
#include "coll/entry.h"
#include "coll/reduction.h"
#include "record/record.h"
#include "team/team.h"
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
} mca_coll_mpath_component_t;

extern __attribute__((visibility("default"))) mca_coll_mpath_component_t mca_coll_mpath_component;

/* How a rank hears that another one is gone or has given up, and tells that. */
typedef struct mca_coll_mpath_loss_t {
    mca_coll_mpath_oob_t state;
    mpath_oob_t oob;
    mpath_oob_request_t listens; /* for the word of anybody, during an exchange that lasts */
    int32_t heard[4];
    bool is_open, has_told;
} mca_coll_mpath_loss_t;

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
    mca_coll_mpath_loss_t loss;       /* of why not, see coll_mpath_oob.c */
    mpath_record_t *record;           /* made by the first call; NULL: nobody counts */
    bool record_tried;
    mca_coll_mpath_oob_t *oob;
    mpath_team_t *team;
    mpath_coll_t *coll; /* NULL: the previous functions run */
    mpath_symmetric_t *symmetric;
    mpath_entry_t entry; /* of reductions and gathers */
    uint64_t *arrays;    /* of the calls: bytes and offsets of both sides, 4 * size */
    mpath_coll_counters_t symmetric_counted;
    struct mca_coll_mpath_module_t *counts_next; /* coll_mpath_pvar.c: of those with a team */
    unsigned looks;                              /* calls that could do without looking for GPUs */
    bool watched;                                /* by coll_mpath_lifetime.c */
    struct mca_coll_mpath_module_t *next;        /* in its list */

    /* coll_mpath_request.c: non-blocking operations in the order of their start; the first one runs on the fiber */
    struct mpath_fiber *fiber; /* made by the first of them */
    struct mca_coll_mpath_request_t *queue_first, *queue_last;
    bool queue_running;   /* the first one has begun */
    unsigned requests;    /* that there are, under way or not */
    bool queue_ends_team; /* the communicator is freed: the team ends with the last request */
    struct mca_coll_mpath_module_t *queue_next;
} mca_coll_mpath_module_t;
OBJ_CLASS_DECLARATION(mca_coll_mpath_module_t);

/* The processes with which this one exchanges data: those of the other group of an intercommunicator. */
static inline int mca_coll_mpath_parts(struct ompi_communicator_t *comm)
{
    return OMPI_COMM_IS_INTER(comm) ? ompi_comm_remote_size(comm) : ompi_comm_size(comm);
}

/* coll_mpath_team.c */
/* Makes the team of a communicator on its first call: collective. Afterwards module->coll says who serves the calls. */
void mca_coll_mpath_team_make(mca_coll_mpath_module_t *module);
void mca_coll_mpath_team_end(mca_coll_mpath_module_t *module);
/* Ends the context of the process, after all teams. */
void mca_coll_mpath_context_end(void);

/* coll_mpath_lifetime.c */
/* What is to be done when. */
typedef struct mca_coll_mpath_lifetime_ops_t {
    void (*finish)(void);                          /* MPI_Finalize begins; before the modules' teams end */
    int (*waits)(mca_coll_mpath_module_t *module); /* its communicator is freed; nonzero: _end_team() comes later */
    void (*end)(mca_coll_mpath_module_t *module);  /* its team ends */
} mca_coll_mpath_lifetime_ops_t;
/* The component opens. */
void mca_coll_mpath_lifetime_begin(const mca_coll_mpath_lifetime_ops_t *ops);
/* From now on the team is ended when the communicator is freed or MPI_Finalize begins. Once is enough. */
mpath_status_t mca_coll_mpath_lifetime_watch(mca_coll_mpath_module_t *module);
/* The communicator has been freed, and nothing is under way on it any more. */
void mca_coll_mpath_lifetime_end_team(mca_coll_mpath_module_t *module);
/* The module is about to go. */
void mca_coll_mpath_lifetime_forget(mca_coll_mpath_module_t *module);
/* The component closes. */
void mca_coll_mpath_lifetime_end(void);

/* coll_mpath_oob.c: gathers */
/*
 * Gathers one word of every rank. Collective; by point-to-point messages, so that it may be a part of a non-blocking
 * operation and meets no collective of the user's.
 */
mpath_status_t mca_coll_mpath_gather(mca_coll_mpath_module_t *module, uint64_t mine, uint64_t *all);
/* True on all ranks when it is true on each. */
bool mca_coll_mpath_all(mca_coll_mpath_module_t *module, bool mine);
/* The same where all ranks are known to be in the call: with a deadline. */
bool mca_coll_mpath_all_here(mca_coll_mpath_module_t *module, bool mine);

/* coll_mpath_oob.c: loss */
/* The control plane's give_up(), for exchanges that set something up on the communicator. */
void mca_coll_mpath_loss_give_up(mca_coll_mpath_module_t *module, mpath_status_t reason, int peer);
/* This rank cannot know what the others do: every call fails from now on. */
void mca_coll_mpath_loss_note(mca_coll_mpath_module_t *module, mpath_status_t reason);
/* The communicator is freed. */
void mca_coll_mpath_loss_end(mca_coll_mpath_module_t *module);

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

/*
 * True: this MPI_Alltoallv or MPI_Alltoall is the previous function's; asked once for each, in their order. `equal_bytes`: of
 * each pair of ranks in an MPI_Alltoall, else 0.
 */
bool mca_coll_mpath_alltoallv_passes(mca_coll_mpath_module_t *module, uint64_t equal_bytes);

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

/* Value of coll_mpath_fallback: a selection that is just mpath gets every component that is installed. */
#define COLL_MPATH_FALLBACK_ALL "all"

/* coll_mpath_record.c */
/* Made when it is first asked for. NULL: there is no memory for it. */
mpath_record_t *mca_coll_mpath_record(mca_coll_mpath_module_t *module);
void mca_coll_mpath_record_close(mca_coll_mpath_module_t *module);
/* A call is over, or is left: MPATH_DECLINED, and `why`, a text of record/reason.h. Once for each. */
void mca_coll_mpath_record_end(mca_coll_mpath_module_t *module, mpath_operation_t collective, mpath_status_t status,
                               const char *why);
/* The module of MPI_COMM_WORLD: its ranks tell rank 0 in MPI_Finalize what they have counted. */
void mca_coll_mpath_record_world(mca_coll_mpath_module_t *module);

/* coll_mpath_pvar.c */
int mca_coll_mpath_pvars_register(void);
/* What the module's team counts is in the sums from now on, which ask it; and what it has counted when it ends. */
void mca_coll_mpath_pvars_begin(mca_coll_mpath_module_t *module);
void mca_coll_mpath_pvars_end(mca_coll_mpath_module_t *module);
/* Adds what reductions and gathers of a module have counted since the last time. */
void mca_coll_mpath_pvars_add_symmetric(mca_coll_mpath_module_t *module);
/* Into the report of this process: what is no record's. */
struct mpath_report;
void mca_coll_mpath_pvars_report(struct mpath_report *report);
/* A non-blocking operation is started, or goes on. */
void mca_coll_mpath_pvars_started(void);
void mca_coll_mpath_pvars_slice(void);

/* The value that an MPI function returns for a status, with the communicator's error handler in mind. */
int mca_coll_mpath_error(mpath_status_t status);

#endif
