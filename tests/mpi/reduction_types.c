/* SPDX-License-Identifier: BSD-3-Clause */
/* All predefined types with all predefined operations, and sums that have to be rounded. */
#include "mpi/reduction_types.h"

#include "mpi/device_calls.h"
#include "mpi/reduction_checks.h"

#include <float.h>
#include <math.h>
#include <mpi-ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static type_t types[] = {
    TYPE(MPI_SIGNED_CHAR, KIND_INTEGER),
    TYPE(MPI_UNSIGNED_CHAR, KIND_INTEGER),
    TYPE(MPI_SHORT, KIND_INTEGER),
    TYPE(MPI_UNSIGNED_SHORT, KIND_INTEGER),
    TYPE(MPI_INT, KIND_INTEGER),
    TYPE(MPI_UNSIGNED, KIND_INTEGER),
    TYPE(MPI_LONG, KIND_INTEGER),
    TYPE(MPI_UNSIGNED_LONG, KIND_INTEGER),
    TYPE(MPI_LONG_LONG, KIND_INTEGER),
    TYPE(MPI_UNSIGNED_LONG_LONG, KIND_INTEGER),
    TYPE(MPI_INT8_T, KIND_INTEGER),
    TYPE(MPI_INT16_T, KIND_INTEGER),
    TYPE(MPI_INT32_T, KIND_INTEGER),
    TYPE(MPI_INT64_T, KIND_INTEGER),
    TYPE(MPI_UINT8_T, KIND_INTEGER),
    TYPE(MPI_UINT16_T, KIND_INTEGER),
    TYPE(MPI_UINT32_T, KIND_INTEGER),
    TYPE(MPI_UINT64_T, KIND_INTEGER),
    TYPE(MPI_AINT, KIND_INTEGER),
    TYPE(MPI_OFFSET, KIND_INTEGER),
    TYPE(MPI_COUNT, KIND_INTEGER),
    TYPE(MPI_FLOAT, KIND_FLOAT),
    TYPE(MPI_DOUBLE, KIND_FLOAT),
    TYPE(MPI_LONG_DOUBLE, KIND_FLOAT),
#ifdef MPIX_C_FLOAT16
    TYPE(MPIX_C_FLOAT16, KIND_FLOAT),
#endif
    TYPE(MPI_C_BOOL, KIND_LOGICAL),
    TYPE(MPI_BYTE, KIND_BYTE),
    TYPE(MPI_C_FLOAT_COMPLEX, KIND_COMPLEX),
    TYPE(MPI_C_DOUBLE_COMPLEX, KIND_COMPLEX),
    TYPE(MPI_C_LONG_DOUBLE_COMPLEX, KIND_COMPLEX),
    TYPE(MPI_FLOAT_INT, KIND_PAIR),
    TYPE(MPI_DOUBLE_INT, KIND_PAIR),
    TYPE(MPI_LONG_INT, KIND_PAIR),
    TYPE(MPI_2INT, KIND_PAIR),
    TYPE(MPI_SHORT_INT, KIND_PAIR),
    TYPE(MPI_LONG_DOUBLE_INT, KIND_PAIR),
    TYPE(MPI_INTEGER, KIND_FORTRAN_INTEGER),
    TYPE(MPI_LOGICAL, KIND_LOGICAL),
    TYPE(MPI_REAL, KIND_FLOAT),
    TYPE(MPI_DOUBLE_PRECISION, KIND_FLOAT),
    TYPE(MPI_COMPLEX, KIND_COMPLEX),
    TYPE(MPI_DOUBLE_COMPLEX, KIND_COMPLEX),
    TYPE(MPI_COMPLEX8, KIND_COMPLEX),
    TYPE(MPI_COMPLEX16, KIND_COMPLEX),
    TYPE(MPI_2INTEGER, KIND_PAIR),
    TYPE(MPI_2REAL, KIND_PAIR),
    TYPE(MPI_2DOUBLE_PRECISION, KIND_PAIR),
    TYPE(MPI_INTEGER1, KIND_FORTRAN_INTEGER),
    TYPE(MPI_INTEGER2, KIND_FORTRAN_INTEGER),
    TYPE(MPI_INTEGER4, KIND_FORTRAN_INTEGER),
    TYPE(MPI_INTEGER8, KIND_FORTRAN_INTEGER),
    TYPE(MPI_REAL4, KIND_FLOAT),
    TYPE(MPI_REAL8, KIND_FLOAT),
    TYPE(MPI_C_COMPLEX, KIND_COMPLEX),
    TYPE(MPI_CXX_BOOL, KIND_LOGICAL),
    TYPE(MPI_CXX_FLOAT_COMPLEX, KIND_COMPLEX),
    TYPE(MPI_CXX_DOUBLE_COMPLEX, KIND_COMPLEX),
    TYPE(MPI_CHAR, KIND_OTHER),
    TYPE(MPI_WCHAR, KIND_OTHER),
    TYPE(MPI_CHARACTER, KIND_OTHER),
    TYPE(MPI_LOGICAL1, KIND_OTHER),
    TYPE(MPI_LOGICAL4, KIND_OTHER),
    TYPE(MPI_PACKED, KIND_OTHER),
};

typedef struct operation {
    MPI_Op handle;
    unsigned kinds; /* bit per kind_t */
    const char *name;
} operation_t;

#define K(_kind) (1u << (_kind))
#define OPERATION(_handle, _kinds)                                                                                     \
    {                                                                                                                  \
        _handle, _kinds, #_handle                                                                                      \
    }

static operation_t operations[] = {
    OPERATION(MPI_SUM, K(KIND_INTEGER) | K(KIND_FORTRAN_INTEGER) | K(KIND_FLOAT) | K(KIND_COMPLEX)),
    OPERATION(MPI_PROD, K(KIND_INTEGER) | K(KIND_FORTRAN_INTEGER) | K(KIND_FLOAT) | K(KIND_COMPLEX)),
    OPERATION(MPI_MAX, K(KIND_INTEGER) | K(KIND_FORTRAN_INTEGER) | K(KIND_FLOAT)),
    OPERATION(MPI_MIN, K(KIND_INTEGER) | K(KIND_FORTRAN_INTEGER) | K(KIND_FLOAT)),
    OPERATION(MPI_LAND, K(KIND_INTEGER) | K(KIND_LOGICAL)),
    OPERATION(MPI_LOR, K(KIND_INTEGER) | K(KIND_LOGICAL)),
    OPERATION(MPI_LXOR, K(KIND_INTEGER) | K(KIND_LOGICAL)),
    OPERATION(MPI_BAND, K(KIND_INTEGER) | K(KIND_FORTRAN_INTEGER) | K(KIND_BYTE)),
    OPERATION(MPI_BOR, K(KIND_INTEGER) | K(KIND_FORTRAN_INTEGER) | K(KIND_BYTE)),
    OPERATION(MPI_BXOR, K(KIND_INTEGER) | K(KIND_FORTRAN_INTEGER) | K(KIND_BYTE)),
    OPERATION(MPI_MAXLOC, K(KIND_PAIR)),
    OPERATION(MPI_MINLOC, K(KIND_PAIR)),
};

/* A library without Fortran has its types in name only; of pairs it tells a size, but combines none. */
static int is_type(const type_t *type)
{
    int is_pair = type->handle == MPI_2REAL || type->handle == MPI_2DOUBLE_PRECISION, size = 0;

    if (type->handle != MPI_DATATYPE_NULL) {
        MPI_Type_size(is_pair ? MPI_REAL : type->handle, &size);
    }
    return size > 0;
}

/* Whether the MPI at hand defines the operation for the type; it says so by itself, with an error otherwise. */
static int is_defined(const type_t *type, MPI_Op op)
{
    long double in[4] = {0}, inout[4] = {0};

    return MPI_Reduce_local(in, inout, 1, type->handle, op) == MPI_SUCCESS;
}

/* An operation that is not defined for the type is an error on all ranks, and a call after it works. */
static long check_undefined(const type_t *type, MPI_Op op)
{
    size_t count = 20000;
    char *send = reductions_get(count * 16), *recv = reductions_get(count * 16);
    long errors = MPI_Allreduce(send, recv, (int)count, type->handle, op, MPI_COMM_WORLD) == MPI_SUCCESS;

    free(send);
    free(recv);
    return errors;
}

/* Every predefined type with every predefined operation: what the standard defines has to be there; what else the MPI
 * defines has to be right. */
long case_types(int rank)
{
    long errors = 0;
    int defined = 0, undefined = 0;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        for (size_t o = 0; o < sizeof(operations) / sizeof(operations[0]); o++) {
            int has_to  = (operations[o].kinds & K(types[t].kind)) != 0;
            type_t type = types[t];
            long wrong;

            if (!is_type(&types[t])) {
                continue;
            }
            if (is_defined(&types[t], operations[o].handle)) {
                type.kind = has_to ? type.kind : KIND_OTHER; /* small numbers: some vector code adds with saturation */
                wrong     = check_allreduce(MPI_COMM_WORLD, &type, operations[o].handle, 1009 + 97 * t, (int)(o % 2), 0,
                                            (uint32_t)(t * 13 + o));
                defined++;
            } else {
                wrong = has_to + (undefined % 8 == 0 ? check_undefined(&types[t], operations[o].handle) : 0);
                undefined++;
            }
            if (wrong != 0 && rank == 0) {
                printf("note %s of %s: %ld wrong\n", operations[o].name, types[t].name, wrong);
            }
            errors += wrong;
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    if (rank == 0) {
        printf("%d pairs of a type and an operation, %d more are not defined\n", defined, undefined);
    }
    return errors;
}

/* -- rounding -- */

/* A floating point type as real numbers: `digits` of its significand. */
typedef struct rounded {
    MPI_Datatype handle;
    int digits;
    size_t bytes; /* of a number */
    int parts;    /* numbers of an element */
} rounded_t;

/* Numbers of either sign between 2^-5 and 2^6, with all digits of their type in use. */
static void rounded_fill(const rounded_t *type, void *data, size_t numbers, int source)
{
    sequence_t sequence = {(uint64_t)source * 911 + 17};

    for (size_t i = 0; i < numbers; i++) {
        uint32_t bits = sequence_next(&sequence), more = sequence_next(&sequence);
        long double value = ldexpl((long double)(((uint64_t)bits << 32) | more | 1u), (int)(bits % 11) - 68);

        value = bits & 64 ? -value : value;
        if (type->bytes == 2) { /* half: sign, 5 bits of exponent, 10 of fraction */
            ((uint16_t *)data)[i] = (uint16_t)((bits & 0x8000u) | ((10 + bits % 11) << 10) | (more & 0x3FFu));
        } else if (type->bytes == 4) {
            ((float *)data)[i] = (float)value;
        } else if (type->bytes == 8) {
            ((double *)data)[i] = (double)value;
        } else {
            ((long double *)data)[i] = value;
        }
    }
}

static long double rounded_get(const rounded_t *type, const void *data, size_t i)
{
    uint16_t half;

    switch (type->bytes) {
    case 2:
        half = ((const uint16_t *)data)[i];
        if ((half & 0x7C00u) == 0) {
            return ldexpl((half & 0x3FFu) * ((half & 0x8000u) ? -1.0L : 1.0L), -24);
        }
        return ldexpl((1024 + (half & 0x3FFu)) * ((half & 0x8000u) ? -1.0L : 1.0L), (half >> 10 & 31) - 25);
    case 4:
        return ((const float *)data)[i];
    case 8:
        return ((const double *)data)[i];
    default:
        return ((const long double *)data)[i];
    }
}

/* The sum may be off by a rounding of each step, and has to be the same on all ranks. */
static long check_rounded(const rounded_t *type, size_t elements, int rank, int size)
{
    size_t numbers = elements * (size_t)type->parts, bytes = numbers * type->bytes;
    void *send = reductions_get(bytes), *recv = reductions_get(bytes + GUARD), *other = reductions_get(bytes);
    long double *sum = reductions_get(numbers * sizeof(*sum)), *size_of = reductions_get(numbers * sizeof(*size_of));
    long errors = 0;

    for (int source = 0; source < size; source++) {
        rounded_fill(type, other, numbers, source);
        for (size_t i = 0; i < numbers; i++) {
            sum[i] += rounded_get(type, other, i);
            size_of[i] += fabsl(rounded_get(type, other, i));
        }
    }
    rounded_fill(type, send, numbers, rank);
    errors += device_allreduce(send, recv, (int)elements, type->handle, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
    for (size_t i = 0; i < numbers; i++) {
        errors += !(fabsl(rounded_get(type, recv, i) - sum[i]) <= ldexpl(size_of[i] * size, -type->digits));
    }
    memcpy(other, recv, bytes);
    MPI_Bcast(other, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (size_t i = 0; i < numbers; i++) { /* beyond the value of a long double there is padding */
        errors += rounded_get(type, other, i) != rounded_get(type, recv, i);
    }
    free(send);
    free(recv);
    free(other);
    free(sum);
    free(size_of);
    return errors;
}

long case_rounded(int rank, int size)
{
    const rounded_t kinds[] = {
#ifdef MPIX_C_FLOAT16
        {MPIX_C_FLOAT16, 11, 2, 1},
#endif
        {MPI_FLOAT, FLT_MANT_DIG, sizeof(float), 1},
        {MPI_DOUBLE, DBL_MANT_DIG, sizeof(double), 1},
        {MPI_LONG_DOUBLE, LDBL_MANT_DIG - 1, sizeof(long double), 1}, /* the sum to compare with is rounded, too */
        {MPI_C_FLOAT_COMPLEX, FLT_MANT_DIG, sizeof(float), 2},
        {MPI_C_DOUBLE_COMPLEX, DBL_MANT_DIG, sizeof(double), 2},
    };
    long errors = 0;

    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        int has = 0;

        MPI_Type_size(kinds[k].handle, &has);
        if (has > 0) {
            errors += check_rounded(&kinds[k], 33, rank, size);
            errors += check_rounded(&kinds[k], 40009, rank, size);
        }
    }
    return errors;
}

/* -- on GPUs -- */

long case_complex_and_half(int rank)
{
    static const char *const names[] = {"MPI_C_FLOAT_COMPLEX", "MPI_C_DOUBLE_COMPLEX", "MPIX_C_FLOAT16", "MPI_CHAR"};
    long errors                      = 0;
    int calls                        = 0;

    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
            if (strcmp(types[t].name, names[n]) == 0) {
                errors += check_allreduce(MPI_COMM_WORLD, &types[t], MPI_SUM, 5003, 0, 0, 1);
                errors += check_allreduce(MPI_COMM_WORLD, &types[t], MPI_PROD, 60013, 1, 0, 2);
                calls += 2;
            }
        }
    }
    if (rank == 0) {
        printf("calls %d\n", calls);
    }
    return errors;
}
