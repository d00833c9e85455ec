/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a request: what it keeps, its start, and the previous component's request inside it. */
#include "coll_mpath_request.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Symmetric operations up to this go to the previous component without a question: Open MPI itself numbers new
 * communicators with them, from inside its progress engine and on no agreed moment. A constant, so that all ranks
 * decide alike. */
#define REQUEST_AT_ONCE_BYTES 256u

/* -- what a request keeps -- */

static void request_keep(mca_coll_mpath_request_t *request)
{
    const mca_coll_mpath_arguments_t *arguments = &request->arguments;

    OBJ_RETAIN(request->module->comm);
    if ((NULL != arguments->sdtype) && !ompi_datatype_is_predefined(arguments->sdtype)) {
        OBJ_RETAIN(arguments->sdtype);
    }
    if ((NULL != arguments->rdtype) && !ompi_datatype_is_predefined(arguments->rdtype)) {
        OBJ_RETAIN(arguments->rdtype);
    }
    if (NULL != arguments->op) {
        OBJ_RETAIN(arguments->op);
    }
}

static void request_let_go(mca_coll_mpath_request_t *request)
{
    mca_coll_mpath_arguments_t *arguments = &request->arguments;
    struct ompi_communicator_t *comm      = request->module->comm;

    if ((NULL != arguments->sdtype) && !ompi_datatype_is_predefined(arguments->sdtype)) {
        OBJ_RELEASE(arguments->sdtype);
    }
    if ((NULL != arguments->rdtype) && !ompi_datatype_is_predefined(arguments->rdtype)) {
        OBJ_RELEASE(arguments->rdtype);
    }
    if (NULL != arguments->op) {
        OBJ_RELEASE(arguments->op);
    }
    OBJ_RELEASE(comm);
}

void mca_coll_mpath_request_release(mca_coll_mpath_request_t *request)
{
    bool has_previous = (NULL != request->previous) && (&ompi_request_empty != request->previous) &&
                        (MPI_REQUEST_NULL != request->previous);

    /* One that has not ended in time is left to its owner, with the memory that it may still use. */
    if (!has_previous || REQUEST_COMPLETE(request->previous)) {
        if (has_previous) {
            (void)ompi_request_free(&request->previous);
        }
        mca_coll_mpath_device_close(&request->send_device);
        mca_coll_mpath_device_close(&request->recv_device);
        free(request->arrays);
        if (NULL != request->in_place_copy) {
            (void)munmap(request->in_place_copy, request->copy_bytes + 1);
        }
        if (NULL != request->twin) {
            OBJ_RELEASE(request->twin);
        }
    }
    OMPI_REQUEST_FINI(&request->super);
    mca_coll_mpath_queue_let_go(request->module);
    request_let_go(request);
    OBJ_RELEASE(request);
}

/* -- the previous component's request -- */

static bool request_in_place(const mca_coll_mpath_request_t *request)
{
    return MPI_IN_PLACE == request->arguments.sbuf;
}

/* It must not meet memory that the host cannot read: such a side gets a copy, which is filled when it is needed. */
static mpath_status_t request_open_sides(mca_coll_mpath_request_t *request)
{
    mpath_status_t status;

    mca_coll_mpath_arguments_sides(&request->arguments, request->module->comm, request);
    status = mca_coll_mpath_device_look(&request->recv, request->recv_parts, &request->recv_device);
    if ((MPATH_OK == status) && !request_in_place(request)) {
        status = mca_coll_mpath_device_look(&request->send, request->send_parts, &request->send_device);
    }
    if (MPATH_OK == status) {
        status = mca_coll_mpath_device_open(&request->recv, request->recv_parts, &request->recv_device);
    }
    if ((MPATH_OK == status) && !request_in_place(request)) {
        status = mca_coll_mpath_device_open(&request->send, request->send_parts, &request->send_device);
    }
    return status;
}

/* The arguments of the previous request: the user's, or those that lead to copies. */
static mca_coll_mpath_arguments_t request_arguments(const mca_coll_mpath_request_t *request)
{
    mca_coll_mpath_arguments_t arguments = request->arguments;
    bool in_place                        = request_in_place(request);

    arguments.sbuf   = in_place ? MPI_IN_PLACE : request->send.buffer;
    arguments.sdtype = in_place ? request->recv.datatype : request->send.datatype;
    arguments.sdisps = request->send.displs;
    arguments.rbuf   = request->recv.buffer;
    arguments.rdtype = request->recv.datatype;
    arguments.rdisps = request->recv.displs;
    return arguments;
}

/* The elements alone: what lies between them may not be there. */
static void request_fill_copy(const mca_coll_mpath_request_t *request)
{
    char *from = request->recv.buffer, *to = (char *)request->in_place_copy - request->copy_lowest;

    for (int peer = 0; peer < request->recv_parts; peer++) {
        ptrdiff_t at = mca_coll_mpath_args_displacement(&request->recv, peer);
        size_t count = mca_coll_mpath_args_count(&request->recv, peer);

        if (0 < count) {
            (void)ompi_datatype_copy_content_same_ddt(request->recv.datatype, count, to + at, from + at);
        }
    }
}

/* Fills the copies. */
static mpath_status_t request_load_sides(const mca_coll_mpath_request_t *request)
{
    bool in_place         = request_in_place(request);
    mpath_status_t status = MPATH_OK;

    if (MPATH_SYNC_DEVICE == mca_coll_mpath_component.settings.sync) {
        status = mca_coll_mpath_device_sync(in_place ? NULL : &request->send_device, &request->recv_device);
    }
    if ((MPATH_OK == status) && !in_place) {
        status = mca_coll_mpath_device_load(request->send_parts, &request->send_device);
    }
    if ((MPATH_OK == status) && (in_place || !request->recv_device.contiguous)) {
        status = mca_coll_mpath_device_load(request->recv_parts, &request->recv_device);
    }
    if ((MPATH_OK == status) && (NULL != request->in_place_copy)) {
        request_fill_copy(request);
    }
    return status;
}

/*
 * See mca_coll_mpath_arguments_need_copy(). The copy lies as the buffer does, which may have holes, and wide ones: only
 * what is written takes memory.
 */
static int request_make_copy(mca_coll_mpath_request_t *request, mca_coll_mpath_arguments_t *arguments)
{
    void *copy;

    mca_coll_mpath_device_span(&request->recv, request->recv_parts, &request->copy_lowest, &request->copy_bytes);
    copy = mmap(NULL, request->copy_bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
    if (MAP_FAILED == copy) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    request->in_place_copy = copy;
    arguments->sbuf        = (char *)copy - request->copy_lowest;
    arguments->scounts     = arguments->rcounts;
    arguments->sdisps      = arguments->rdisps;
    return OMPI_SUCCESS;
}

/* What the previous function is to be called with. */
static int request_open(mca_coll_mpath_request_t *request, mca_coll_mpath_arguments_t *arguments)
{
    mpath_status_t status = request_open_sides(request);

    if (MPATH_OK != status) {
        return mca_coll_mpath_error(status);
    }
    *arguments = request_arguments(request);
    return mca_coll_mpath_arguments_need_copy(&request->arguments, request->module->comm)
               ? request_make_copy(request, arguments)
               : OMPI_SUCCESS;
}

static int request_load(const mca_coll_mpath_request_t *request)
{
    return mca_coll_mpath_error(request_load_sides(request));
}

/* The previous component's persistent request. */
static int request_init_previous(mca_coll_mpath_request_t *request, struct ompi_communicator_t *comm)
{
    mca_coll_mpath_arguments_t arguments;
    int rc = request_open(request, &arguments);

    return (OMPI_SUCCESS == rc) ? mca_coll_mpath_arguments_init(&arguments, request->module, comm, &request->previous)
                                : rc;
}

/* The previous component's non-blocking function. */
static int request_run_previous(mca_coll_mpath_request_t *request, struct ompi_communicator_t *comm)
{
    mca_coll_mpath_arguments_t arguments;
    int rc = request_open(request, &arguments);

    if (OMPI_SUCCESS == rc) {
        rc = request_load(request);
    }
    return (OMPI_SUCCESS == rc) ? mca_coll_mpath_arguments_pass(&arguments, request->module, comm, &request->previous)
                                : rc;
}

/* When mpath has declined, for the first time. */
static int request_make_late(mca_coll_mpath_request_t *request)
{
    int rc = OMPI_ERR_OUT_OF_RESOURCE;

    request->twin = mca_coll_mpath_tag_twin(request->module, request->tag);
    if (NULL != request->twin) {
        rc = request->super.req_persistent ? request_init_previous(request, request->twin)
                                           : request_run_previous(request, request->twin);
    }
    if ((OMPI_SUCCESS == rc) && !mca_coll_mpath_tag_fits(request->twin, request->tag)) {
        mpath_error("%s: the previous component takes several tags in one non-blocking collective, which mpath cannot "
                    "serve; the call fails. Set coll_mpath_nonblocking to 0",
                    request->module->comm->c_name);
        return OMPI_ERR_NOT_SUPPORTED;
    }
    if (OMPI_SUCCESS != rc) {
        mpath_error("%s: the previous component cannot take over a non-blocking collective (Open MPI error %d); the "
                    "call fails",
                    request->module->comm->c_name, rc);
    }
    return rc;
}

int mca_coll_mpath_request_leave(mca_coll_mpath_request_t *request)
{
    int rc = (NULL == request->previous) ? request_make_late(request) : OMPI_SUCCESS;

    if ((OMPI_SUCCESS != rc) || !request->super.req_persistent) {
        return rc;
    }
    rc = request_load(request);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    if (NULL == request->previous->req_start) {
        return OMPI_SUCCESS; /* the common, empty request: there is nothing to do */
    }
    return request->previous->req_start(1, &request->previous);
}

int mca_coll_mpath_request_take(mca_coll_mpath_request_t *request)
{
    ompi_status_public_t status = {.MPI_ERROR = MPI_SUCCESS};
    int ended = 0, rc = ompi_request_test(&request->previous, &ended, &status); /* makes it inactive */

    if (OMPI_SUCCESS == rc) {
        rc = mca_coll_mpath_error(mca_coll_mpath_device_store(request->recv_parts, &request->recv_device));
    }
    return rc;
}

/* -- what MPI calls -- */

static int request_start(size_t count, ompi_request_t **requests)
{
    size_t i;

    for (i = 0; i < count; i++) {
        mca_coll_mpath_request_t *request = (mca_coll_mpath_request_t *)requests[i];

        request->super.req_status.MPI_ERROR = MPI_SUCCESS;
        request->super.req_complete         = REQUEST_PENDING;
        request->super.req_state            = OMPI_REQUEST_ACTIVE;
        mca_coll_mpath_queue_start(request);
    }
    return OMPI_SUCCESS;
}

static int request_free(ompi_request_t **request)
{
    mca_coll_mpath_queue_free((mca_coll_mpath_request_t *)*request);
    *request = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

static int request_cancel(ompi_request_t *request, int flag)
{
    (void)request;
    (void)flag;
    return MPI_ERR_REQUEST; /* MPI forbids it for collectives */
}

static void request_construct(mca_coll_mpath_request_t *request)
{
    memset((char *)request + sizeof(ompi_request_t), 0, sizeof(*request) - sizeof(ompi_request_t));
    request->super.req_type   = OMPI_REQUEST_COLL;
    request->super.req_start  = request_start;
    request->super.req_free   = request_free;
    request->super.req_cancel = request_cancel;
    memset(&request->super.req_status, 0, sizeof(request->super.req_status));
}

OBJ_CLASS_INSTANCE(mca_coll_mpath_request_t, ompi_request_t, request_construct, NULL);

void mca_coll_mpath_request_watch(mca_coll_mpath_request_t *request, ompi_request_t **request_p)
{
    *request_p                  = &request->super;
    request->super.req_complete = REQUEST_PENDING;
    request->super.req_state    = OMPI_REQUEST_ACTIVE;
    mca_coll_mpath_queue_watch(request);
}

/*
 * Hands a small operation to the previous component, with copies of what lies in device memory: by the same function as
 * on ranks without a GPU.
 */
static int request_pass(mca_coll_mpath_request_t *request, ompi_request_t **request_p)
{
    mpath_status_t status = request_open_sides(request);
    mca_coll_mpath_arguments_t arguments;
    bool copies;
    int rc;

    if (MPATH_OK == status) {
        status = request_load_sides(request);
    }
    if (MPATH_OK != status) {
        return mca_coll_mpath_error(status);
    }
    copies    = (NULL != request->send_device.copy) || (NULL != request->recv_device.copy);
    arguments = request_arguments(request);
    rc        = mca_coll_mpath_arguments_pass(&arguments, request->module, request->module->comm,
                                       copies ? &request->previous : request_p);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    if (copies) {
        mca_coll_mpath_request_watch(request, request_p);
    } else {
        mca_coll_mpath_request_release(request);
    }
    return OMPI_SUCCESS;
}

static int request_new(mca_coll_mpath_module_t *module, const mca_coll_mpath_arguments_t *arguments,
                       const mca_coll_mpath_request_ops_t *ops, bool persistent, mca_coll_mpath_request_t **new_p)
{
    mca_coll_mpath_request_t *request;
    int rc = mca_coll_mpath_queue_prepare(module);

    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    request = OBJ_NEW(mca_coll_mpath_request_t);
    if (NULL == request) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    OMPI_REQUEST_INIT(&request->super, persistent);
    request->super.req_mpi_object.comm = module->comm;
    request->module                    = module;
    request->ops                       = ops;
    request->arguments                 = *arguments;
    request_keep(request);
    mca_coll_mpath_queue_hold(module);
    rc = mca_coll_mpath_arguments_take_arrays(
        &request->arguments, (size_t)mca_coll_mpath_arguments_parts(arguments, module->comm), &request->arrays);
    if (OMPI_SUCCESS != rc) {
        mca_coll_mpath_request_release(request);
        return rc;
    }
    *new_p = request;
    return OMPI_SUCCESS;
}

int mca_coll_mpath_request_adopt(mca_coll_mpath_module_t *module, const mca_coll_mpath_stage_t *stage, bool persistent,
                                 mca_coll_mpath_request_t **new_p)
{
    const mca_coll_mpath_arguments_t arguments = {.kind = COLL_MPATH_ALLTOALLW,
                                                  .sbuf = stage->in_place ? MPI_IN_PLACE : NULL};
    mca_coll_mpath_request_t *request;
    int rc = request_new(module, &arguments, NULL, persistent, &request);

    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    request->at_once                = true;
    request->send_parts             = stage->send_parts;
    request->recv_parts             = stage->recv_parts;
    request->send_device            = stage->send_device;
    request->recv_device            = stage->recv_device;
    request->recv_device.contiguous = request->recv_device.contiguous && !stage->loads_recv; /* with each start */
    *new_p                          = request;
    return OMPI_SUCCESS;
}

/*
 * The same as request_pass() without a request of mpath's, which costs a small call as much again. Takes one tag, as on
 * ranks that queue the call: see coll_mpath_tag.c.
 */
static bool request_pass_now(mca_coll_mpath_module_t *module, const mca_coll_mpath_arguments_t *arguments,
                             const mca_coll_mpath_request_ops_t *ops, ompi_request_t **request_p, int *rc_p)
{
    int32_t before = mca_coll_mpath_tag_look(module);

    if (mpath_gpu_available() || (NULL != __atomic_load_n(&module->queue_first, __ATOMIC_ACQUIRE)) ||
        mca_coll_mpath_arguments_need_copy(arguments, module->comm) || !ops->passes(arguments, module)) {
        return false;
    }
    *rc_p = mca_coll_mpath_arguments_pass(arguments, module, module->comm, request_p);
    mca_coll_mpath_tag_level(module, before);
    return true;
}

int mca_coll_mpath_request_make(mca_coll_mpath_module_t *module, const mca_coll_mpath_arguments_t *given,
                                const mca_coll_mpath_request_ops_t *ops, bool persistent, ompi_request_t **request_p)
{
    mca_coll_mpath_arguments_t arguments = *given;
    bool at_once                         = OMPI_COMM_IS_INTER(module->comm) ||
                   (REQUEST_AT_ONCE_BYTES >= mca_coll_mpath_arguments_bytes(given, module->comm));
    bool passes;
    mca_coll_mpath_request_t *request;
    int rc;

    if (MPI_IN_PLACE == arguments.sbuf) {
        arguments.sdtype = arguments.rdtype; /* what was given is to be ignored: it need not be a datatype */
    }
    if (persistent && OMPI_COMM_IS_INTER(module->comm) && !mpath_gpu_available()) {
        return mca_coll_mpath_arguments_init(&arguments, module, module->comm, request_p);
    }
    passes = at_once && !persistent;
    if (passes && !mpath_gpu_available()) {
        return mca_coll_mpath_arguments_pass(&arguments, module, module->comm, request_p);
    }
    if (!at_once && !persistent && request_pass_now(module, &arguments, ops, request_p, &rc)) {
        return rc;
    }
    rc = request_new(module, &arguments, ops, persistent, &request);
    if (OMPI_SUCCESS != rc) {
        mca_coll_mpath_queue_refuse(module, rc, at_once);
        return rc;
    }
    request->at_once = at_once;
    if (passes) {
        rc = request_pass(request, request_p);
    } else if (OMPI_COMM_IS_INTER(module->comm)) {
        rc = request_init_previous(request, module->comm);
    } else {
        request->tag = mca_coll_mpath_tag_take(module);
    }
    if (OMPI_SUCCESS != rc) {
        mpath_error("%s: a non-blocking collective cannot be prepared (Open MPI error %d); the call fails",
                    module->comm->c_name, rc);
        mca_coll_mpath_request_release(request);
        mca_coll_mpath_queue_refuse(module, rc, at_once);
        return rc;
    }
    if (passes) {
        return OMPI_SUCCESS;
    }
    *request_p = &request->super;
    return persistent ? OMPI_SUCCESS : request_start(1, request_p);
}
