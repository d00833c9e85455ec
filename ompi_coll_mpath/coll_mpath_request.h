/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Non-blocking and persistent collectives. An operation is the blocking function on a fiber (util/fiber.h): its waits
 * leave the fiber, and Open MPI's progress engine takes it up again. The operations of a communicator run one after the
 * other, in the order in which they were started; all ranks start them in the same order.
 *
 * What mpath declines is left to the previous component. Its non-blocking functions take their tags in the order in
 * which they are called, which has to be the same on all ranks, while mpath declines at a different moment on every
 * rank. So the call takes a tag, and the previous component's function is called with it when mpath declines
 * (coll_mpath_request.c): the non-blocking one, whose request gives back what it took when it ends. Of a persistent request
 * the previous component's is made then and kept, which spares the later starts its preparation; libnbc never frees its
 * memory, with mpath and without it.
 */
#ifndef COLL_MPATH_REQUEST_H
#define COLL_MPATH_REQUEST_H

#include "coll_mpath.h"
#include "coll_mpath_device.h"
#include "coll_mpath_stage.h"

#include "ompi/request/request.h"

#include "util/fiber.h"

#include <limits.h>

typedef enum mca_coll_mpath_kind_t {
    COLL_MPATH_ALLTOALLV,
    COLL_MPATH_ALLTOALL,
    COLL_MPATH_ALLREDUCE,
    COLL_MPATH_REDUCE_SCATTER,
    COLL_MPATH_REDUCE_SCATTER_BLOCK,
    COLL_MPATH_ALLGATHER,
    COLL_MPATH_ALLGATHERV,
    COLL_MPATH_ALLTOALLW /* the previous function's; of its arguments nothing is kept */
} mca_coll_mpath_kind_t;

/* The arguments of a collective; those that it does not have are zero. Buffers belong to the user. */
typedef struct mca_coll_mpath_arguments_t {
    mca_coll_mpath_kind_t kind;
    const void *sbuf;
    void *rbuf;
    mca_coll_mpath_count_t scount, rcount;
    mca_coll_mpath_counts_t scounts, rcounts;
    mca_coll_mpath_displs_t sdisps, rdisps;
    struct ompi_datatype_t *sdtype, *rdtype; /* reductions have one: rdtype */
    struct ompi_op_t *op;
} mca_coll_mpath_arguments_t;

/* What a request's operation is. */
typedef struct mca_coll_mpath_request_ops_t {
    /* Runs mpath's blocking function. */
    int (*run)(const mca_coll_mpath_arguments_t *arguments, mca_coll_mpath_module_t *module);
    /*
     * True: this non-blocking call can be handed to the previous function at once; no operation of the communicator waits or
     * runs, and no buffer is in device memory. Other ranks may queue it, and leave it to the same function later.
     */
    bool (*passes)(const mca_coll_mpath_arguments_t *arguments, mca_coll_mpath_module_t *module);
} mca_coll_mpath_request_ops_t;

typedef enum mca_coll_mpath_request_state_t {
    COLL_MPATH_INACTIVE,
    COLL_MPATH_QUEUED,    /* waits for its turn, or runs */
    COLL_MPATH_LEFT,      /* the previous component carries it */
    COLL_MPATH_COMPLETING /* the user may see that it has ended, mpath still looks at the request */
} mca_coll_mpath_request_state_t;

/*
 * MPI_Ialltoallv and its like take every request of a component for an ompi_coll_base_nbc_request_t, and keep datatypes
 * and arrays behind its first member: at most 12 pointers. The header with that type includes one that no Open MPI
 * installs.
 */
#define COLL_MPATH_REQUEST_STORAGE 32

typedef struct mca_coll_mpath_request_t {
    ompi_request_t super;
    void *storage[COLL_MPATH_REQUEST_STORAGE]; /* the MPI functions' own */
    mca_coll_mpath_module_t *module;           /* the request keeps its communicator */
    const mca_coll_mpath_request_ops_t *ops;   /* NULL: an adopted one */
    mca_coll_mpath_arguments_t arguments;      /* whose arrays are in the next one */
    void *arrays;                              /* NULL: it has none */
    bool at_once;                     /* so small that mpath is not asked, for a start of a persistent request */
    ompi_request_t *previous;         /* NULL: to be made when mpath declines */
    int32_t tag;                      /* then: for it */
    struct ompi_communicator_t *twin; /* on which it was made; NULL: on the communicator itself */
    int send_parts, recv_parts;
    mca_coll_mpath_args_t send, recv; /* what the previous request works on: the user's buffers or copies on the host */
    mca_coll_mpath_device_t send_device, recv_device;
    void *in_place_copy; /* the previous request sends from it; NULL: there is none */
    ptrdiff_t copy_lowest;
    size_t copy_bytes; /* of the receive side, from copy_lowest on */
    int rc;

    /* under the queue's lock */
    mca_coll_mpath_request_state_t state;
    bool freed; /* by the user, before it has ended */
    struct mca_coll_mpath_request_t *next;
} mca_coll_mpath_request_t;
OBJ_CLASS_DECLARATION(mca_coll_mpath_request_t);

#define COLL_MPATH_UNPACK(...) __VA_ARGS__

/* What the blocking functions return on a fiber where they would call the previous function. */
#define COLL_MPATH_LEAVE INT_MIN

/*
 * The previous function; on a fiber it cannot be called, for it would wait. Nor where the ranks have parted: the others
 * may be doing something else. The arguments are those before the module.
 */
#define COLL_MPATH_PREVIOUS(_mpath, _api, ...)                                                                         \
    ((MPATH_OK != (_mpath)->parted) ? mca_coll_mpath_error((_mpath)->parted)                                           \
     : mpath_fiber_is_on()          ? COLL_MPATH_LEAVE                                                                 \
                                    : (_mpath)->previous_##_api(__VA_ARGS__, (_mpath)->previous_##_api##_module))

/* coll_mpath_request.c */
/* Makes a request; one that is not persistent is started. Local. An Open MPI error code. */
int mca_coll_mpath_request_make(mca_coll_mpath_module_t *module, const mca_coll_mpath_arguments_t *arguments,
                                const mca_coll_mpath_request_ops_t *ops, bool persistent, ompi_request_t **request_p);
/*
 * Makes a request around one of the previous component that works on the stage's copies, which are the new one's then:
 * request->previous is to be set. One that is not persistent is under way and handed to the user by the second.
 */
int mca_coll_mpath_request_adopt(mca_coll_mpath_module_t *module, const mca_coll_mpath_stage_t *stage, bool persistent,
                                 mca_coll_mpath_request_t **new_p);
void mca_coll_mpath_request_watch(mca_coll_mpath_request_t *request, ompi_request_t **request_p);
/* Releases a request that is inactive and that the user has freed. */
void mca_coll_mpath_request_release(mca_coll_mpath_request_t *request);

/* Bytes of all ranks together, the same on all of them; UINT64_MAX where they are not known without asking. */
uint64_t mca_coll_mpath_arguments_bytes(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm);

/* Of the queue. */
/* Waits until the operations that were started before have ended, or are left to the previous component. */
void mca_coll_mpath_queue_wait(mca_coll_mpath_module_t *module);
/*
 * The communicator is freed. Nonzero: it has requests, of which the last one to go ends the team. Not the last operation:
 * a persistent request may be started again, and the ranks would not agree on whether there still is a team.
 */
int mca_coll_mpath_queue_ends_team(mca_coll_mpath_module_t *module);
/* MPI_Finalize begins: ends all operations, for better or worse. */
void mca_coll_mpath_queue_finish(void);
/* The module goes; its operations have ended. */
void mca_coll_mpath_queue_release(mca_coll_mpath_module_t *module);
/* The component closes. */
void mca_coll_mpath_queue_close(void);

/* A blocking call comes after everything that was started before it. */
static inline void mca_coll_mpath_queue_before_blocking(mca_coll_mpath_module_t *module)
{
    if ((NULL != __atomic_load_n(&module->queue_first, __ATOMIC_ACQUIRE)) && !mpath_fiber_is_on()) {
        mca_coll_mpath_queue_wait(module);
    }
}

#endif
