/* SPDX-License-Identifier: BSD-3-Clause */
/* See coll_mpath_symmetric_device.h. */
#include "coll_mpath_symmetric_device.h"

#include "coll/allreduce_gpu.h"
#include "coll/way_choice.h"
#include "exec/idle.h"
#include "util/time.h"

#include "ompi/group/group.h"

#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h> /* MPIX_C_FLOAT16, where Open MPI was built with it: from 5.0 on */
#endif
#endif

/* -- who is asked -- */

/*
 * Whether all ranks say so. Where there is a team, by an agreement without data: MPI's own messages may take a rail that
 * has failed since.
 */
static bool device_everywhere(mca_coll_mpath_module_t *module, bool mine)
{
    mpath_call_t call = {.operation = MPATH_OPERATION_ALLREDUCE, .flags = mine ? 0 : MPATH_CALL_APART};
    mpath_agreed_t agreed;

    if (NULL == module->symmetric) {
        return mca_coll_mpath_all(module, mine);
    }
    memset(module->arrays, 0, 4 * (size_t)ompi_comm_size(module->comm) * sizeof(*module->arrays));
    call.send_bytes = call.send_offsets = call.recv_bytes = call.recv_offsets = module->arrays;
    return (MPATH_OK == mpath_agree(module->team, &call, &agreed)) && (0 == (agreed.flags & MPATH_CALL_APART));
}

/* Where every rank's MPI can move device memory by itself, an Allgather may be faster so. */
static void device_make_choice(mca_coll_mpath_module_t *module)
{
    module->allgather_choice = mca_coll_mpath_knows_devices() ? calloc(1, sizeof(*module->allgather_choice)) : NULL;
    if (!device_everywhere(module, NULL != module->allgather_choice)) {
        free(module->allgather_choice);
        module->allgather_choice = NULL;
    }
}

/* On one node GPUs have forms of their own: of what the parameters force only "previous" is one there. */
static void device_tell_forced(const mca_coll_mpath_module_t *module)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;
    const int forced[]               = {settings->allreduce_algorithm, settings->reduce_scatter_algorithm,
                                        settings->allgather_algorithm};

    for (size_t i = 0; i < sizeof(forced) / sizeof(forced[0]); ++i) {
        if ((0 == ompi_comm_rank(module->comm)) &&
            ((MPATH_ALGORITHM_SMALL == forced[i]) || (MPATH_ALGORITHM_LANES == forced[i]))) {
            mpath_info("%s: \"small\" and \"lanes\" of coll_mpath_*_algorithm do not act on device memory of one node; "
                       "GPUs combine there, see coll_mpath_gpu_reduce",
                       module->comm->c_name);
            return;
        }
    }
}

/* Every rank's application has started CUDA: makes what the calls need. Collective. */
static void device_make(mca_coll_mpath_module_t *module)
{
    mpath_status_t status = MPATH_DECLINED;

    if (!module->tried) {
        mca_coll_mpath_team_make(module);
    }
    if (NULL == module->symmetric) { /* the same on all ranks */
        module->device_never = true;
        return;
    }
    if (1 < mpath_topo_num_nodes(mpath_team_topo(module->team))) {
        module->device_over_nodes = true;
        device_make_choice(module);
        return;
    }
    status = mpath_symmetric_gpu_create(module->team, &module->symmetric_gpu);
    if (!mca_coll_mpath_all_here(module, MPATH_OK == status)) {
        mpath_symmetric_gpu_destroy(module->symmetric_gpu);
        module->symmetric_gpu = NULL;
        module->device_never  = true;
        return;
    }
    device_tell_forced(module);
}

/* Between nodes calls so short go to the previous function anyway: they are not worth a question. */
static bool device_too_short(const mca_coll_mpath_module_t *module, uint64_t bytes)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;

    return (bytes < settings->symmetric_min_bytes) && (MPATH_GATE_ALWAYS != settings->gate) &&
           ompi_group_have_remote_peers(module->comm->c_local_group);
}

/*
 * Whether libmpath is to be asked. An application may start CUDA at any time, on one rank earlier than on another; so
 * the ranks compare in their 1st, 2nd, 4th, 8th ... call of these functions that is long enough.
 */
static bool device_ready(mca_coll_mpath_module_t *module, int algorithm, uint64_t bytes)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;

    if (module->device_never || (NULL == module->previous_allreduce) || device_too_short(module, bytes) ||
        (module->tried && (NULL == module->symmetric))) {
        return false; /* the last: there is no team, or it is just being made, with these very functions */
    }
    if (0 == module->device_calls) {
        module->device_never = (2 > ompi_comm_size(module->comm)) || !mca_coll_mpath_symmetric_agreed(module);
    }
    module->device_calls++;
    if (module->device_never || (MPATH_GATE_NEVER == settings->gate) || (MPATH_ALGORITHM_PREVIOUS == algorithm)) {
        return false;
    }
    if ((NULL == module->symmetric_gpu) && !module->device_over_nodes &&
        (0 == (module->device_calls & (module->device_calls - 1))) &&
        device_everywhere(module, mpath_gpu_available() && settings->gpu)) {
        device_make(module);
    }
    return (NULL != module->symmetric_gpu) || module->device_over_nodes;
}

/* -- what is to be done -- */

typedef struct device_type {
    MPI_Datatype handle;
    mpath_reduce_type_t type;
} device_type_t;

#define DEVICE_SIGNED(_handle, _type)                                                                                  \
    {                                                                                                                  \
        _handle, (1 == sizeof(_type))   ? MPATH_REDUCE_I8                                                              \
                 : (2 == sizeof(_type)) ? MPATH_REDUCE_I16                                                             \
                 : (4 == sizeof(_type)) ? MPATH_REDUCE_I32                                                             \
                                        : MPATH_REDUCE_I64                                                             \
    }
#define DEVICE_UNSIGNED(_handle, _type)                                                                                \
    {                                                                                                                  \
        _handle, (1 == sizeof(_type))   ? MPATH_REDUCE_U8                                                              \
                 : (2 == sizeof(_type)) ? MPATH_REDUCE_U16                                                             \
                 : (4 == sizeof(_type)) ? MPATH_REDUCE_U32                                                             \
                                        : MPATH_REDUCE_U64                                                             \
    }

/*
 * Types whose layout the kernels know; the others go through the host, and so do those of Fortran that have other
 * sizes.
 */
static const device_type_t device_types[] = {
    {MPI_FLOAT, MPATH_REDUCE_F32},
    {MPI_DOUBLE, MPATH_REDUCE_F64},
    DEVICE_SIGNED(MPI_SIGNED_CHAR, signed char),
    DEVICE_SIGNED(MPI_CHAR, signed char), /* which MPI does not combine, but Open MPI does, as signed numbers */
    DEVICE_SIGNED(MPI_SHORT, short),
    DEVICE_SIGNED(MPI_INT, int),
    DEVICE_SIGNED(MPI_LONG, long),
    DEVICE_SIGNED(MPI_LONG_LONG, long long),
    DEVICE_UNSIGNED(MPI_UNSIGNED_CHAR, unsigned char),
    DEVICE_UNSIGNED(MPI_UNSIGNED_SHORT, unsigned short),
    DEVICE_UNSIGNED(MPI_UNSIGNED, unsigned),
    DEVICE_UNSIGNED(MPI_UNSIGNED_LONG, unsigned long),
    DEVICE_UNSIGNED(MPI_UNSIGNED_LONG_LONG, unsigned long long),
    DEVICE_SIGNED(MPI_INT8_T, int8_t),
    DEVICE_SIGNED(MPI_INT16_T, int16_t),
    DEVICE_SIGNED(MPI_INT32_T, int32_t),
    DEVICE_SIGNED(MPI_INT64_T, int64_t),
    DEVICE_UNSIGNED(MPI_UINT8_T, uint8_t),
    DEVICE_UNSIGNED(MPI_UINT16_T, uint16_t),
    DEVICE_UNSIGNED(MPI_UINT32_T, uint32_t),
    DEVICE_UNSIGNED(MPI_UINT64_T, uint64_t),
    DEVICE_SIGNED(MPI_AINT, MPI_Aint),
    DEVICE_SIGNED(MPI_OFFSET, MPI_Offset),
    DEVICE_SIGNED(MPI_COUNT, MPI_Count),
    DEVICE_UNSIGNED(MPI_C_BOOL, bool),
    DEVICE_UNSIGNED(MPI_BYTE, unsigned char),
#ifdef MPIX_C_FLOAT16
    {MPIX_C_FLOAT16, MPATH_REDUCE_F16},
#endif
    {MPI_REAL, MPATH_REDUCE_F32},
#ifdef MPI_REAL4 /* an Open MPI without Fortran has no types of these names */
    {MPI_REAL4, MPATH_REDUCE_F32},
    {MPI_COMPLEX8, MPATH_REDUCE_C64},
#endif
#ifdef MPI_REAL8
    {MPI_REAL8, MPATH_REDUCE_F64},
    {MPI_COMPLEX16, MPATH_REDUCE_C128},
#endif
    {MPI_DOUBLE_PRECISION, MPATH_REDUCE_F64},
    {MPI_C_COMPLEX, MPATH_REDUCE_C64},
    {MPI_C_FLOAT_COMPLEX, MPATH_REDUCE_C64},
    {MPI_C_DOUBLE_COMPLEX, MPATH_REDUCE_C128},
    {MPI_CXX_FLOAT_COMPLEX, MPATH_REDUCE_C64},
    {MPI_CXX_DOUBLE_COMPLEX, MPATH_REDUCE_C128},
    {MPI_COMPLEX, MPATH_REDUCE_C64},
    {MPI_DOUBLE_COMPLEX, MPATH_REDUCE_C128},
    {MPI_FLOAT_INT, MPATH_REDUCE_F32_AT},
    {MPI_DOUBLE_INT, MPATH_REDUCE_F64_AT},
    {MPI_2INT, MPATH_REDUCE_I32_AT},
    {MPI_LONG_INT, (8 == sizeof(long)) ? MPATH_REDUCE_I64_AT : MPATH_REDUCE_I32_AT},
};

static const struct {
    MPI_Op handle;
    mpath_reduce_op_t op;
} device_ops[] = {
    {MPI_SUM, MPATH_REDUCE_SUM},   {MPI_PROD, MPATH_REDUCE_PROD},     {MPI_MAX, MPATH_REDUCE_MAX},
    {MPI_MIN, MPATH_REDUCE_MIN},   {MPI_BAND, MPATH_REDUCE_BAND},     {MPI_BOR, MPATH_REDUCE_BOR},
    {MPI_BXOR, MPATH_REDUCE_BXOR}, {MPI_LAND, MPATH_REDUCE_LAND},     {MPI_LOR, MPATH_REDUCE_LOR},
    {MPI_LXOR, MPATH_REDUCE_LXOR}, {MPI_MAXLOC, MPATH_REDUCE_MAXLOC}, {MPI_MINLOC, MPATH_REDUCE_MINLOC},
};

/* The same on all ranks. */
static bool device_how(struct ompi_op_t *op, struct ompi_datatype_t *datatype, mpath_reduce_how_t *how)
{
    size_t i = 0, k = 0;
    ptrdiff_t extent;

    while ((i < sizeof(device_types) / sizeof(device_types[0])) && (device_types[i].handle != datatype)) {
        i++;
    }
    while ((k < sizeof(device_ops) / sizeof(device_ops[0])) && (device_ops[k].handle != op)) {
        k++;
    }
    if ((i == sizeof(device_types) / sizeof(device_types[0])) || (k == sizeof(device_ops) / sizeof(device_ops[0]))) {
        return false;
    }
    if (((MPI_MAX == op) || (MPI_MIN == op)) && ((MPI_UNSIGNED_LONG == datatype) || (MPI_OFFSET == datatype))) {
        return false; /* Open MPI's own functions compare these with the other sign; the memory must not matter */
    }
    *how = (mpath_reduce_how_t){.op = device_ops[k].op, .type = device_types[i].type};
    ompi_datatype_type_extent(datatype, &extent);
    return ((ptrdiff_t)mpath_reduce_bytes(how->type) == extent) && mpath_reduce_fits(how);
}

/* -- where the data lies -- */

/* Device memory that mpath knows nothing of, though Open MPI does. */
static bool device_is_foreign(const mca_coll_mpath_device_t *device, const void *buffer)
{
    return mpath_memory_on_host(device->memory.kind) && mca_coll_mpath_is_device(buffer);
}

/* Memory in parts is not for the GPUs: it gets a copy later. */
static bool device_drop_parts(mca_coll_mpath_device_t *device)
{
    if (!mca_coll_mpath_device_in_parts(device)) {
        return false;
    }
    mca_coll_mpath_device_close(device);
    device->memory.kind = MPATH_MEMORY_HOST;
    return true;
}

/* Where both sides lie, and that nobody works on them any more if the user wants that. */
static mpath_status_t device_look_both(mca_coll_mpath_stage_t *sides)
{
    mpath_status_t status = mca_coll_mpath_device_look(&sides->recv, sides->recv_parts, &sides->recv_device);

    if ((MPATH_OK == status) && !sides->in_place) {
        status = mca_coll_mpath_device_look(&sides->send, sides->send_parts, &sides->send_device);
    }
    if ((MPATH_OK == status) && (MPATH_SYNC_DEVICE == mca_coll_mpath_component.settings.sync)) {
        status = mca_coll_mpath_device_sync(sides->in_place ? NULL : &sides->send_device, &sides->recv_device);
    }
    return status;
}

/* Of an error here the others hear in the agreement. */
static void device_look(const mca_coll_mpath_module_t *module, mca_coll_mpath_stage_t *sides,
                        mpath_symmetric_buffers_t *buffers)
{
    mpath_status_t status = device_look_both(sides);
    bool in_parts         = device_drop_parts(&sides->recv_device);

    if (sides->in_place) {
        sides->send_device = sides->recv_device;
    } else {
        in_parts |= device_drop_parts(&sides->send_device);
    }
    *buffers            = (mpath_symmetric_buffers_t){.send = sides->in_place ? sides->recv.buffer : sides->send.buffer,
                                                      .recv = sides->recv.buffer};
    buffers->ineligible = (MPATH_OK != status) || in_parts || device_is_foreign(&sides->recv_device, buffers->recv) ||
                          device_is_foreign(&sides->send_device, buffers->send);
    if (MPATH_OK != status) {
        mpath_team_break(module->team, status);
    }
    if (!mpath_memory_on_host(sides->send_device.memory.kind)) {
        buffers->send_memory = &sides->send_device.memory;
    }
    if (!mpath_memory_on_host(sides->recv_device.memory.kind)) {
        buffers->recv_memory = &sides->recv_device.memory;
    }
}

static mpath_status_t device_done(mca_coll_mpath_module_t *module, const char *name, mpath_status_t status)
{
    if (module->device_over_nodes) {
        mca_coll_mpath_pvars_add_symmetric(module);
    } else {
        mca_coll_mpath_pvars_add_device(module);
    }
    if (MPATH_OK == status) {
        mpath_debug("%s: %s %s", module->comm->c_name, module->device_over_nodes ? "mpath carried" : "the GPUs carried",
                    name);
    } else if (module->device_over_nodes && (MPATH_DECLINED == status)) {
        mpath_debug("%s: %s goes on with data on the host: %s", module->comm->c_name, name,
                    mpath_symmetric_declined_because(module->symmetric));
    }
    return status;
}

/* -- the calls -- */

bool mca_coll_mpath_symmetric_device_passes(mca_coll_mpath_module_t *module, uint64_t bytes)
{
    uint64_t next = module->device_calls + 1;

    if (module->device_never || device_too_short(module, bytes) || (module->tried && (NULL == module->symmetric))) {
        return true;
    }
    if ((NULL != module->symmetric_gpu) || module->device_over_nodes || (0 == module->device_calls) ||
        (0 == (next & (next - 1)))) {
        return false;
    }
    module->device_calls = next;
    return true;
}

mpath_status_t mca_coll_mpath_allreduce_device(mca_coll_mpath_module_t *module, const mca_coll_mpath_stage_t *sides,
                                               struct ompi_op_t *op)
{
    mca_coll_mpath_stage_t mine = *sides;
    uint64_t elements           = sides->recv.count;
    mpath_symmetric_buffers_t buffers;
    mca_coll_mpath_op_t work;
    mpath_reduce_how_t how;
    mpath_status_t status;

    if (!device_ready(module, mca_coll_mpath_component.settings.allreduce_algorithm,
                      mca_coll_mpath_reduced_bytes(elements, sides->recv.datatype)) ||
        !device_how(op, sides->recv.datatype, &how)) {
        return MPATH_DECLINED;
    }
    device_look(module, &mine, &buffers);
    if (module->device_over_nodes) {
        mca_coll_mpath_op_init(op, sides->recv.datatype, &work);
        status = mpath_allreduce_anywhere(module->symmetric, &buffers, elements, &work.combination, &how);
    } else {
        status = mpath_allreduce_gpu(module->symmetric_gpu, &buffers, elements, &how);
    }
    return device_done(module, "MPI_Allreduce", status);
}

mpath_status_t mca_coll_mpath_reduce_scatter_device(mca_coll_mpath_module_t *module,
                                                    const mca_coll_mpath_stage_t *sides,
                                                    const mca_coll_mpath_args_t *blocks, struct ompi_op_t *op)
{
    mca_coll_mpath_stage_t mine = *sides;
    mpath_symmetric_buffers_t buffers;
    mca_coll_mpath_op_t work;
    mpath_reduce_how_t how;
    mpath_status_t status;
    uint64_t elements = 0;
    int rank;

    for (rank = 0; rank < ompi_comm_size(module->comm); rank++) {
        elements += mca_coll_mpath_args_count(blocks, rank);
    }
    if (!device_ready(module, mca_coll_mpath_component.settings.reduce_scatter_algorithm,
                      mca_coll_mpath_reduced_bytes(elements, sides->recv.datatype)) ||
        !device_how(op, sides->recv.datatype, &how)) {
        return MPATH_DECLINED;
    }
    for (rank = 0; rank < ompi_comm_size(module->comm); rank++) {
        module->arrays[rank] = mca_coll_mpath_args_count(blocks, rank);
    }
    device_look(module, &mine, &buffers);
    if (module->device_over_nodes) {
        mca_coll_mpath_op_init(op, sides->recv.datatype, &work);
        status = mpath_reduce_scatter_anywhere(module->symmetric, &buffers, module->arrays, &work.combination, &how);
    } else {
        status = mpath_reduce_scatter_gpu(module->symmetric_gpu, &buffers, module->arrays, &how);
    }
    return device_done(module, "MPI_Reduce_scatter", status);
}

mpath_status_t mca_coll_mpath_allgather_choose(mca_coll_mpath_module_t *module, uint64_t bytes, bool *previous_p)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;
    const mpath_way_call_t call      = {.bytes = bytes, .open = 1u << MPATH_WAY_PREVIOUS};
    mpath_way_t way                  = MPATH_WAY_OWN;
    mpath_status_t status            = MPATH_OK;

    if ((NULL != module->allgather_choice) && (MPATH_GATE_AUTO == settings->gate) &&
        (MPATH_ALGORITHM_AUTO == settings->allgather_algorithm) && !device_too_short(module, bytes) &&
        !mpath_idle_others_may_rest() && (0 == mpath_team_topo_version(module->team))) {
        status = mpath_way_choice_next(module->allgather_choice, module->team, &call, mpath_time_ns(), &way);
    }
    if (MPATH_OK != status) {
        mpath_team_break(module->team, status);
    }
    *previous_p = MPATH_WAY_PREVIOUS == way;
    return status;
}

void mca_coll_mpath_allgather_ended(mca_coll_mpath_module_t *module)
{
    if (NULL != module->allgather_choice) {
        mpath_way_choice_ended(module->allgather_choice);
    }
}

/* What is not contiguous goes through the host, which also complains of a block that is not what the others expect. */
static bool allgather_fits(const mca_coll_mpath_module_t *module, const mca_coll_mpath_stage_t *sides,
                           mca_coll_mpath_side_t *send, mca_coll_mpath_side_t *recv)
{
    int size         = ompi_comm_size(module->comm);
    uint64_t *arrays = module->arrays, budget = 0;
    bool fits;

    fits = (MPATH_OK == mca_coll_mpath_side_init(&sides->recv, size, false, &budget, arrays, arrays + size, recv));
    if (!sides->in_place && fits) {
        fits = (MPATH_OK == mca_coll_mpath_side_init(&sides->send, 1, false, &budget, arrays + 2 * size,
                                                     arrays + 3 * size, send)) &&
               (arrays[2 * size] == arrays[ompi_comm_rank(module->comm)]);
    }
    return fits;
}

mpath_status_t mca_coll_mpath_allgather_device(mca_coll_mpath_module_t *module, const mca_coll_mpath_stage_t *sides,
                                               uint64_t bytes)
{
    mca_coll_mpath_stage_t mine = *sides;
    mca_coll_mpath_side_t send = {0}, recv = {0};
    mpath_symmetric_buffers_t buffers;
    static const char nothing;
    int size = ompi_comm_size(module->comm);
    mpath_status_t status;

    if (!device_ready(module, mca_coll_mpath_component.settings.allgather_algorithm, bytes)) {
        return MPATH_DECLINED;
    }
    device_look(module, &mine, &buffers);
    if (!allgather_fits(module, sides, &send, &recv)) {
        buffers.ineligible = true;
    }
    buffers.recv = recv.buffer;
    buffers.send = NULL;
    if (!sides->in_place) {
        buffers.send = (NULL == send.buffer) ? &nothing : (const char *)send.buffer + module->arrays[3 * size];
    } else if (!mpath_memory_on_host(mine.recv_device.memory.kind) && !buffers.ineligible) {
        uint64_t *arrays = module->arrays;
        int rank         = ompi_comm_rank(module->comm);

        /* this rank's block may lie in another allocation than the beginning of the buffer */
        buffers.ineligible = (MPATH_OK != mpath_memory_classify((char *)recv.buffer + arrays[size + rank], arrays[rank],
                                                                &mine.send_device.memory));
        buffers.send_memory = (arrays[rank] > 0) ? &mine.send_device.memory : NULL;
    }
    if (module->device_over_nodes) {
        status = mpath_allgather_anywhere(module->symmetric, &buffers, module->arrays, module->arrays + size);
    } else {
        status = mpath_allgather_gpu(module->symmetric_gpu, &buffers, module->arrays, module->arrays + size);
    }
    return device_done(module, "MPI_Allgather", status);
}
