/* SPDX-License-Identifier: BSD-3-Clause */
/* Data of every predefined type, what ranks combine them to, and one checked call of each reduction and gather. */
#include "mpi/reduction_checks.h"

#include <complex.h>
#include <mpi-ext.h>
#include <stdlib.h>
#include <string.h>

static MPI_Aint extent_of(MPI_Datatype type)
{
    MPI_Aint lb, extent;

    MPI_Type_get_extent(type, &lb, &extent);
    return extent;
}

void *reductions_get(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);

    if (memory == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return memory;
}

#define FILL_AS(_c, _value)                                                                                            \
    do {                                                                                                               \
        _c *to_ = (_c *)data;                                                                                          \
        for (size_t i_ = 0; i_ < count; i_++) {                                                                        \
            to_[i_] = (_c)(_value);                                                                                    \
        }                                                                                                              \
    } while (0)

#define FILL_PAIR(_c)                                                                                                  \
    do {                                                                                                               \
        struct {                                                                                                       \
            _c value;                                                                                                  \
            int place;                                                                                                 \
        } *to_ = (void *)data;                                                                                         \
        for (size_t i_ = 0; i_ < count; i_++) {                                                                        \
            to_[i_].value = (_c)(sequence_below(&sequence, 50));                                                       \
            to_[i_].place = (int)sequence_below(&sequence, 1000);                                                      \
        }                                                                                                              \
    } while (0)

/* Fortran has pairs of one type. */
#define FILL_TWICE(_c)                                                                                                 \
    do {                                                                                                               \
        _c *to_ = (_c *)data;                                                                                          \
        for (size_t i_ = 0; i_ < 2 * count; i_++) {                                                                    \
            to_[i_] = (_c)(sequence_below(&sequence, 50));                                                             \
        }                                                                                                              \
    } while (0)

void reductions_fill(const type_t *type, void *data, size_t count, int source, uint32_t round)
{
    sequence_t sequence = {(uint64_t)source * 7919 + round * 31 + 5};
    MPI_Datatype handle = type->handle;
    size_t extent = (size_t)extent_of(handle), bytes = count * extent;

    memset(data, 0, bytes);
#ifdef MPIX_C_FLOAT16
    if (handle == MPIX_C_FLOAT16) {
        FILL_AS(uint16_t, 0x3C00u + 0x400u * sequence_below(&sequence, 2)); /* 1 or 2 */
        return;
    }
#endif
    if (handle == MPI_FLOAT || handle == MPI_REAL || handle == MPI_REAL4) {
        FILL_AS(float, sequence_below(&sequence, 2) + 1);
    } else if (handle == MPI_DOUBLE || handle == MPI_DOUBLE_PRECISION || handle == MPI_REAL8) {
        FILL_AS(double, sequence_below(&sequence, 2) + 1);
    } else if (handle == MPI_LONG_DOUBLE) {
        FILL_AS(long double, sequence_below(&sequence, 2) + 1);
    } else if (handle == MPI_C_FLOAT_COMPLEX || handle == MPI_C_COMPLEX || handle == MPI_CXX_FLOAT_COMPLEX ||
               handle == MPI_COMPLEX || handle == MPI_COMPLEX8) {
        /* No power of 2 + i has a part that is 0: the sign of such a zero would depend on the order of factors. */
        FILL_AS(float _Complex, sequence_below(&sequence, 2) == 0 ? 1 : 2 + 1 * _Complex_I);
    } else if (handle == MPI_C_DOUBLE_COMPLEX || handle == MPI_CXX_DOUBLE_COMPLEX || handle == MPI_DOUBLE_COMPLEX ||
               handle == MPI_COMPLEX16) {
        FILL_AS(double _Complex, sequence_below(&sequence, 2) == 0 ? 1 : 2 + 1 * _Complex_I);
    } else if (handle == MPI_C_LONG_DOUBLE_COMPLEX) {
        FILL_AS(long double _Complex, sequence_below(&sequence, 2) + 1);
    } else if (handle == MPI_C_BOOL || handle == MPI_CXX_BOOL) {
        FILL_AS(_Bool, sequence_below(&sequence, 2));
    } else if (handle == MPI_FLOAT_INT) {
        FILL_PAIR(float);
    } else if (handle == MPI_DOUBLE_INT) {
        FILL_PAIR(double);
    } else if (handle == MPI_LONG_INT) {
        FILL_PAIR(long);
    } else if (handle == MPI_2INT || handle == MPI_2INTEGER) {
        FILL_PAIR(int);
    } else if (handle == MPI_SHORT_INT) {
        FILL_PAIR(short);
    } else if (handle == MPI_LONG_DOUBLE_INT) {
        FILL_PAIR(long double);
    } else if (handle == MPI_2REAL) {
        FILL_TWICE(float);
    } else if (handle == MPI_2DOUBLE_PRECISION) {
        FILL_TWICE(double);
    } else if (type->kind != KIND_BYTE && extent <= 2) {
        /* Open MPI's vector code adds short integers with saturation: beyond their range the order would count. */
        for (size_t i = 0; i < count; i++) {
            ((unsigned char *)data)[i * extent] = (unsigned char)sequence_below(&sequence, 4);
        }
    } else {
        for (size_t i = 0; i < bytes; i++) {
            ((unsigned char *)data)[i] = (unsigned char)sequence_next(&sequence);
        }
    }
}

/*
 * Nonzero: elements differ. The padding of pairs and of long double says nothing, so values are compared by the type's
 * fields.
 */
static long compare(const type_t *type, const void *got, const void *expected, size_t count)
{
    size_t extent = (size_t)extent_of(type->handle), value = extent, place = 0;
    long errors = 0;
    int size;

    if (memcmp(got, expected, count * extent) == 0) {
        return 0;
    }
    MPI_Type_size(type->handle, &size);
    if (type->kind == KIND_PAIR) {
        value = (size_t)size - sizeof(int);
        place = type->handle == MPI_SHORT_INT ? sizeof(int) : value;
    }
    if (type->handle == MPI_LONG_DOUBLE || type->handle == MPI_LONG_DOUBLE_INT) {
        value = 10; /* of 16 bytes; x86 */
    }
    for (size_t i = 0; i < count; i++) {
        const char *a = (const char *)got + i * extent, *b = (const char *)expected + i * extent;

        if (type->handle == MPI_C_LONG_DOUBLE_COMPLEX) {
            errors += memcmp(a, b, 10) != 0 || memcmp(a + extent / 2, b + extent / 2, 10) != 0;
        } else if (type->kind == KIND_PAIR) {
            errors += memcmp(a, b, value) != 0 || memcmp(a + place, b + place, sizeof(int)) != 0;
        } else {
            errors += memcmp(a, b, value) != 0;
        }
    }
    return errors;
}

void reductions_reference(const type_t *type, MPI_Op op, size_t count, int size, uint32_t round, void *result)
{
    void *data = reductions_get(count * (size_t)extent_of(type->handle));

    reductions_fill(type, result, count, 0, round);
    for (int source = 1; source < size; source++) {
        reductions_fill(type, data, count, source, round);
        MPI_Reduce_local(data, result, (int)count, type->handle, op);
    }
    free(data);
}

static int guard_ok(const unsigned char *end)
{
    for (int i = 0; i < GUARD; i++) {
        if (end[i] != 0xA5) {
            return 0;
        }
    }
    return 1;
}

long check_allreduce(MPI_Comm comm, const type_t *type, MPI_Op op, size_t count, int in_place, size_t shift,
                     uint32_t round)
{
    size_t bytes = count * (size_t)extent_of(type->handle);
    int rank, size;
    unsigned char *send = reductions_get(bytes + shift), *recv = reductions_get(bytes + GUARD + shift);
    void *expected = reductions_get(bytes);
    long errors;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    reductions_reference(type, op, count, size, round, expected);
    {
        void *aligned = reductions_get(bytes);

        reductions_fill(type, aligned, count, rank, round);
        memcpy((in_place ? recv : send) + shift, aligned, bytes);
        free(aligned);
    }
    memset(recv + shift + bytes, 0xA5, GUARD);
    errors = device_allreduce(in_place ? MPI_IN_PLACE : send + shift, recv + shift, (int)count, type->handle, op,
                              comm) != MPI_SUCCESS;
    errors += compare(type, recv + shift, expected, count) + !guard_ok(recv + shift + bytes);
    free(send);
    free(recv);
    free(expected);
    return errors;
}

long check_reduce_scatter(MPI_Comm comm, const type_t *type, MPI_Op op, const int *counts, int block, int in_place,
                          uint32_t round)
{
    size_t extent = (size_t)extent_of(type->handle), total = 0, before = 0, mine, capacity;
    int rank, size, rc;
    unsigned char *send, *recv, *expected;
    long errors;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < size; i++) {
        before += i < rank ? (size_t)counts[i] : 0;
        total += (size_t)counts[i];
    }
    mine     = (size_t)counts[rank];
    capacity = in_place ? total : mine;
    send     = reductions_get(total * extent);
    recv     = reductions_get(capacity * extent + GUARD);
    expected = reductions_get(total * extent);
    reductions_reference(type, op, total, size, round, expected);
    reductions_fill(type, in_place ? recv : send, total, rank, round);
    memset(recv + capacity * extent, 0xA5, GUARD);
    if (block) {
        rc = device_reduce_scatter_block(in_place ? MPI_IN_PLACE : send, recv, counts[0], type->handle, op, comm);
    } else {
        rc = device_reduce_scatter(in_place ? MPI_IN_PLACE : send, recv, counts, type->handle, op, comm);
    }
    errors = rc != MPI_SUCCESS;
    errors += compare(type, recv, expected + before * extent, mine) + !guard_ok(recv + capacity * extent);
    free(send);
    free(recv);
    free(expected);
    return errors;
}

static unsigned char byte_of(int source, size_t position, uint32_t round)
{
    return (unsigned char)(source * 37 + (int)(position * 11) + (int)(position >> 9) + (int)round * 5 + 1);
}

/* Elements of `type` with `per` bytes each at `stride`; a gap of two elements between blocks unless `equal`. */
long check_allgather(MPI_Comm comm, const int *counts, int equal, int in_place, MPI_Datatype type, uint32_t round)
{
    size_t extent = (size_t)extent_of(type), end = 0, capacity;
    int rank, size, rc, type_size, *displs;
    unsigned char *send, *recv, *expected;
    long errors = 0;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Type_size(type, &type_size);
    displs = reductions_get((size_t)size * sizeof(int));
    for (int i = 0; i < size; i++) {
        int who = equal ? i : size - 1 - i; /* Allgatherv: blocks in reverse order */

        displs[who] = (int)end;
        end += (size_t)counts[who] + (equal ? 0 : 2);
    }
    capacity = end * extent;
    send     = reductions_get((size_t)counts[rank] * extent);
    recv     = reductions_get(capacity + GUARD);
    expected = reductions_get(capacity + GUARD);
    memset(recv, 0xA5, capacity + GUARD);
    memset(expected, 0xA5, capacity + GUARD);
    for (int source = 0; source < size; source++) {
        for (size_t i = 0; i < (size_t)counts[source]; i++) {
            for (size_t b = 0; b < extent; b++) {
                unsigned char value = byte_of(source, i * extent + b, round);
                size_t at           = ((size_t)displs[source] + i) * extent + b;

                if ((int)b < type_size) { /* the types here have their gap at the end */
                    expected[at] = value;
                }
                if (source == rank) {
                    send[i * extent + b] = value;
                    if (in_place && (int)b < type_size) {
                        recv[at] = value;
                    }
                }
            }
        }
    }
    if (equal) {
        rc = device_allgather(in_place ? MPI_IN_PLACE : send, counts[rank], recv, counts[0], type, comm);
    } else {
        rc = device_allgatherv(in_place ? MPI_IN_PLACE : send, counts[rank], recv, counts, displs, type, comm);
    }
    errors += rc != MPI_SUCCESS;
    if (memcmp(recv, expected, capacity + GUARD) != 0) {
        for (size_t i = 0; i < capacity + GUARD; i++) {
            errors += recv[i] != expected[i];
        }
    }
    free(displs);
    free(send);
    free(recv);
    free(expected);
    return errors;
}
