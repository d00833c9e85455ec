/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on elements: which libmpath combines on the host, by MPI itself, and which the kernels of GPUs know. */
#include "coll_mpath_op.h"

#include <stdio.h>

#if defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h> /* MPIX_C_FLOAT16, where Open MPI was built with it: from 5.0 on */
#endif
#endif

/*
 * The predefined operations that Allreduce takes: all commute. Which types they are defined for has been checked by
 * MPI.
 */
static const struct {
    MPI_Op op;
    const char *name;
} op_known[] = {{MPI_MAX, "MPI_MAX"},   {MPI_MIN, "MPI_MIN"},   {MPI_SUM, "MPI_SUM"},       {MPI_PROD, "MPI_PROD"},
                {MPI_LAND, "MPI_LAND"}, {MPI_BAND, "MPI_BAND"}, {MPI_LOR, "MPI_LOR"},       {MPI_BOR, "MPI_BOR"},
                {MPI_LXOR, "MPI_LXOR"}, {MPI_BXOR, "MPI_BXOR"}, {MPI_MAXLOC, "MPI_MAXLOC"}, {MPI_MINLOC, "MPI_MINLOC"}};
#define OP_KNOWN (sizeof(op_known) / sizeof(op_known[0]))

/* From 1 on; 0: none of them. */
static uint32_t op_number(struct ompi_op_t *op)
{
    uint32_t i;

    for (i = 0; i < OP_KNOWN; i++) {
        if (op_known[i].op == op) {
            return i + 1;
        }
    }
    return 0;
}

/* By the MPI library itself, which has vector code for the common cases. */
static void op_reduce(void *argument, const void *in, void *inout, uint64_t elements)
{
    const mca_coll_mpath_op_t *work = argument;
    const uint64_t most             = 1u << 30; /* MPI counts in int */

    while (elements > 0) {
        uint64_t count = (elements < most) ? elements : most;

        (void)PMPI_Reduce_local(in, inout, (int)count, work->datatype, work->op);
        in    = (const char *)in + count * work->combination.element_bytes;
        inout = (char *)inout + count * work->combination.element_bytes;
        elements -= count;
    }
}

uint64_t mca_coll_mpath_reduced_bytes(uint64_t elements, struct ompi_datatype_t *datatype)
{
    ptrdiff_t lb, extent;

    (void)ompi_datatype_get_extent(datatype, &lb, &extent);
    return elements * (uint64_t)extent;
}

/*
 * Types that hold the same numbers may meet, as a C and a Fortran program's do: the first of its class stands for each.
 */
static struct ompi_datatype_t *op_type(struct ompi_datatype_t *datatype)
{
    const MPI_Datatype whole[]     = {MPI_INT,    MPI_LONG,     MPI_LONG_LONG, MPI_INT32_T,  MPI_INT64_T, MPI_INTEGER,
                                      MPI_AINT,   MPI_OFFSET,   MPI_COUNT,     MPI_SHORT,    MPI_INT16_T, MPI_SIGNED_CHAR,
                                      MPI_INT8_T, MPI_INTEGER1, MPI_INTEGER2,  MPI_INTEGER4, MPI_INTEGER8};
    const MPI_Datatype unsigned_[] = {MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG,
                                      MPI_UINT32_T, MPI_UINT64_T,      MPI_UNSIGNED_SHORT,
                                      MPI_UINT16_T, MPI_UNSIGNED_CHAR, MPI_UINT8_T};
    const MPI_Datatype real[]      = {MPI_FLOAT, MPI_REAL, MPI_REAL4, MPI_DOUBLE, MPI_DOUBLE_PRECISION, MPI_REAL8};
    const struct {
        const MPI_Datatype *types;
        size_t count;
    } classes[] = {{whole, sizeof(whole) / sizeof(whole[0])},
                   {unsigned_, sizeof(unsigned_) / sizeof(unsigned_[0])},
                   {real, sizeof(real) / sizeof(real[0])}};
    size_t c, i, k;

    for (c = 0; c < sizeof(classes) / sizeof(classes[0]); c++) {
        for (i = 0; (i < classes[c].count) && (classes[c].types[i] != datatype); i++) {
        }
        for (k = 0; (i < classes[c].count) && (k <= i); k++) {
            if (classes[c].types[k]->super.size == datatype->super.size) {
                return classes[c].types[k];
            }
        }
    }
    return datatype;
}

/* "MPI_Allreduce with MPI_MAX of MPI_INT": predefined types have the same index in every process. */
static void op_text(uint32_t operation, char *text, size_t size)
{
    mpath_operation_t collective = (mpath_operation_t)(operation & 0xff);
    const char *name             = mpath_collective_text(collective);

    if ((NULL == name) || (1 > (operation >> 8 & 0xff)) || (OP_KNOWN < (operation >> 8 & 0xff))) {
        snprintf(text, size, "%s", (NULL == name) ? "another collective" : name);
        return;
    }
    snprintf(text, size, "%s with %s of %s", name, op_known[(operation >> 8 & 0xff) - 1].name,
             PMPI_Type_f2c((MPI_Fint)(operation >> 16))->name);
}

const mpath_combination_t *mca_coll_mpath_op_of(struct ompi_op_t *op, struct ompi_datatype_t *datatype,
                                                mca_coll_mpath_op_t *work)
{
    uint32_t number = op_number(op);

    if (!ompi_datatype_is_predefined(datatype) || (0 == number)) {
        return NULL;
    }
    work->op          = op;
    work->datatype    = datatype;
    work->combination = (mpath_combination_t){.element_bytes = mca_coll_mpath_reduced_bytes(1, datatype),
                                              .reduce        = op_reduce,
                                              .argument      = work,
                                              .alike      = number | (uint32_t)op_type(datatype)->d_f_to_c_index << 8,
                                              .alike_text = op_text};
    return &work->combination;
}

/* -- on GPUs -- */

typedef struct op_kernel_type {
    MPI_Datatype handle;
    mpath_reduce_type_t type;
} op_kernel_type_t;

#define OP_SIGNED(_handle, _type)                                                                                      \
    {                                                                                                                  \
        _handle, (1 == sizeof(_type))   ? MPATH_REDUCE_I8                                                              \
                 : (2 == sizeof(_type)) ? MPATH_REDUCE_I16                                                             \
                 : (4 == sizeof(_type)) ? MPATH_REDUCE_I32                                                             \
                                        : MPATH_REDUCE_I64                                                             \
    }
#define OP_UNSIGNED(_handle, _type)                                                                                    \
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
static const op_kernel_type_t op_kernel_types[] = {
    {MPI_FLOAT, MPATH_REDUCE_F32},
    {MPI_DOUBLE, MPATH_REDUCE_F64},
    OP_SIGNED(MPI_SIGNED_CHAR, signed char),
    OP_SIGNED(MPI_CHAR, signed char), /* which MPI does not combine, but Open MPI does, as signed numbers */
    OP_SIGNED(MPI_SHORT, short),
    OP_SIGNED(MPI_INT, int),
    OP_SIGNED(MPI_LONG, long),
    OP_SIGNED(MPI_LONG_LONG, long long),
    OP_UNSIGNED(MPI_UNSIGNED_CHAR, unsigned char),
    OP_UNSIGNED(MPI_UNSIGNED_SHORT, unsigned short),
    OP_UNSIGNED(MPI_UNSIGNED, unsigned),
    OP_UNSIGNED(MPI_UNSIGNED_LONG, unsigned long),
    OP_UNSIGNED(MPI_UNSIGNED_LONG_LONG, unsigned long long),
    OP_SIGNED(MPI_INT8_T, int8_t),
    OP_SIGNED(MPI_INT16_T, int16_t),
    OP_SIGNED(MPI_INT32_T, int32_t),
    OP_SIGNED(MPI_INT64_T, int64_t),
    OP_UNSIGNED(MPI_UINT8_T, uint8_t),
    OP_UNSIGNED(MPI_UINT16_T, uint16_t),
    OP_UNSIGNED(MPI_UINT32_T, uint32_t),
    OP_UNSIGNED(MPI_UINT64_T, uint64_t),
    OP_SIGNED(MPI_AINT, MPI_Aint),
    OP_SIGNED(MPI_OFFSET, MPI_Offset),
    OP_SIGNED(MPI_COUNT, MPI_Count),
    OP_UNSIGNED(MPI_C_BOOL, bool),
    OP_UNSIGNED(MPI_BYTE, unsigned char),
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
} op_kernel_ops[] = {
    {MPI_SUM, MPATH_REDUCE_SUM},   {MPI_PROD, MPATH_REDUCE_PROD},     {MPI_MAX, MPATH_REDUCE_MAX},
    {MPI_MIN, MPATH_REDUCE_MIN},   {MPI_BAND, MPATH_REDUCE_BAND},     {MPI_BOR, MPATH_REDUCE_BOR},
    {MPI_BXOR, MPATH_REDUCE_BXOR}, {MPI_LAND, MPATH_REDUCE_LAND},     {MPI_LOR, MPATH_REDUCE_LOR},
    {MPI_LXOR, MPATH_REDUCE_LXOR}, {MPI_MAXLOC, MPATH_REDUCE_MAXLOC}, {MPI_MINLOC, MPATH_REDUCE_MINLOC},
};

bool mca_coll_mpath_op_how(struct ompi_op_t *op, struct ompi_datatype_t *datatype, mpath_reduce_how_t *how)
{
    size_t i = 0, k = 0;
    ptrdiff_t extent;

    while ((i < sizeof(op_kernel_types) / sizeof(op_kernel_types[0])) && (op_kernel_types[i].handle != datatype)) {
        i++;
    }
    while ((k < sizeof(op_kernel_ops) / sizeof(op_kernel_ops[0])) && (op_kernel_ops[k].handle != op)) {
        k++;
    }
    if ((i == sizeof(op_kernel_types) / sizeof(op_kernel_types[0])) ||
        (k == sizeof(op_kernel_ops) / sizeof(op_kernel_ops[0]))) {
        return false;
    }
    if (((MPI_MAX == op) || (MPI_MIN == op)) && ((MPI_UNSIGNED_LONG == datatype) || (MPI_OFFSET == datatype))) {
        return false; /* Open MPI's own functions compare these with the other sign; the memory must not matter */
    }
    *how = (mpath_reduce_how_t){.op = op_kernel_ops[k].op, .type = op_kernel_types[i].type};
    ompi_datatype_type_extent(datatype, &extent);
    return ((ptrdiff_t)mpath_reduce_bytes(how->type) == extent) && mpath_reduce_fits(how);
}
