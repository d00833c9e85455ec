/* SPDX-License-Identifier: BSD-3-Clause */
/* See random.h: reductions, with values of which any order of combining gives the same result. */
#include "mpi/random.h"

#include <complex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 96
#define MAX_BYTES 32 /* of an element */

typedef enum kind { SIGNED, UNSIGNED, BOOLEAN, BITS, REAL, COMPLEX, PAIR, AFFINE, AFFINE_GAP } kind_t;

typedef struct reduction {
    const char *name;
    MPI_Datatype type;
    kind_t kind;
    int bytes, extent, second; /* second: where the index of a pair lies */
} reduction_t;

/* Not MPI_UNSIGNED_LONG, of which Open MPI takes the sign in MPI_MAX and MPI_MIN. */
static reduction_t reductions[] = {
    {"int8", MPI_INT8_T, SIGNED, 1, 1, 0},
    {"int16", MPI_INT16_T, SIGNED, 2, 2, 0},
    {"int32", MPI_INT32_T, SIGNED, 4, 4, 0},
    {"int64", MPI_INT64_T, SIGNED, 8, 8, 0},
    {"uint8", MPI_UINT8_T, UNSIGNED, 1, 1, 0},
    {"uint16", MPI_UINT16_T, UNSIGNED, 2, 2, 0},
    {"uint32", MPI_UINT32_T, UNSIGNED, 4, 4, 0},
    {"uint64", MPI_UINT64_T, UNSIGNED, 8, 8, 0},
    {"bool", MPI_C_BOOL, BOOLEAN, 1, 1, 0},
    {"byte", MPI_BYTE, BITS, 1, 1, 0},
    {"float", MPI_FLOAT, REAL, 4, 4, 0},
    {"double", MPI_DOUBLE, REAL, 8, 8, 0},
    {"long double", MPI_LONG_DOUBLE, REAL, 16, 16, 0},
    {"float complex", MPI_C_FLOAT_COMPLEX, COMPLEX, 8, 8, 0},
    {"double complex", MPI_C_DOUBLE_COMPLEX, COMPLEX, 16, 16, 0},
    {"float and int", MPI_FLOAT_INT, PAIR, 8, 8, 4},
    {"double and int", MPI_DOUBLE_INT, PAIR, 12, 16, 8},
    {"two ints", MPI_2INT, PAIR, 8, 8, 4},
    {"affine", MPI_DATATYPE_NULL, AFFINE, 8, 8, 0},
    {"affine with gaps", MPI_DATATYPE_NULL, AFFINE_GAP, 8, 12, 0},
};
#define NUM_REDUCTIONS ((int)(sizeof(reductions) / sizeof(reductions[0])))

typedef struct operator_ {
    const char *name;
    MPI_Op op;
    unsigned kinds; /* bits */
} operator_t;

#define INTEGERS (1u << SIGNED | 1u << UNSIGNED)

enum { SUM, PROD, MAX, MIN, BAND, BOR, BXOR, LAND, LOR, LXOR, MAXLOC, MINLOC, COMPOSE, OPERATORS };

static operator_t operators[OPERATORS] = {
    [SUM]     = {"MPI_SUM", MPI_SUM, INTEGERS | 1u << REAL | 1u << COMPLEX},
    [PROD]    = {"MPI_PROD", MPI_PROD, INTEGERS | 1u << REAL | 1u << COMPLEX},
    [MAX]     = {"MPI_MAX", MPI_MAX, INTEGERS | 1u << REAL},
    [MIN]     = {"MPI_MIN", MPI_MIN, INTEGERS | 1u << REAL},
    [BAND]    = {"MPI_BAND", MPI_BAND, INTEGERS | 1u << BITS},
    [BOR]     = {"MPI_BOR", MPI_BOR, INTEGERS | 1u << BITS},
    [BXOR]    = {"MPI_BXOR", MPI_BXOR, INTEGERS | 1u << BITS},
    [LAND]    = {"MPI_LAND", MPI_LAND, INTEGERS | 1u << BOOLEAN},
    [LOR]     = {"MPI_LOR", MPI_LOR, INTEGERS | 1u << BOOLEAN},
    [LXOR]    = {"MPI_LXOR", MPI_LXOR, INTEGERS | 1u << BOOLEAN},
    [MAXLOC]  = {"MPI_MAXLOC", MPI_MAXLOC, 1u << PAIR},
    [MINLOC]  = {"MPI_MINLOC", MPI_MINLOC, 1u << PAIR},
    [COMPOSE] = {"a composition", MPI_OP_NULL, 1u << AFFINE | 1u << AFFINE_GAP},
};

/* x -> a x + b modulo 2^32; first `left`, then `right`: associative, and the order of the ranks matters. */
typedef struct affine {
    uint32_t a, b;
} affine_t;

static affine_t composed(affine_t left, affine_t right)
{
    return (affine_t){right.a * left.a, right.a * left.b + right.b};
}

/* MPI gives it vectors at any address. */
static void compose(void *in, void *inout, int *count, MPI_Datatype *type)
{
    char *from = in, *to = inout;
    MPI_Aint lower, extent;

    MPI_Type_get_extent(*type, &lower, &extent);
    for (int i = 0; i < *count; i++, from += extent, to += extent) {
        affine_t left, right;

        memcpy(&left, from, sizeof(left));
        memcpy(&right, to, sizeof(right));
        right = composed(left, right);
        memcpy(to, &right, sizeof(right));
    }
}

void random_reductions_make(void)
{
    MPI_Datatype *plain = &reductions[NUM_REDUCTIONS - 2].type, *gap = &reductions[NUM_REDUCTIONS - 1].type;

    MPI_Type_contiguous(2, MPI_UINT32_T, plain);
    MPI_Type_create_resized(*plain, 0, 12, gap);
    MPI_Type_commit(plain);
    MPI_Type_commit(gap);
    MPI_Op_create(compose, 0, &operators[COMPOSE].op);
}

void random_reductions_free(void)
{
    MPI_Type_free(&reductions[NUM_REDUCTIONS - 2].type);
    MPI_Type_free(&reductions[NUM_REDUCTIONS - 1].type);
    MPI_Op_free(&operators[COMPOSE].op);
}

MPI_Datatype random_reduce_type(const call_t *call)
{
    return call->reduction->type;
}

MPI_Op random_reduce_op(const call_t *call)
{
    return operators[call->operation].op;
}

const char *random_reduce_name(const call_t *call)
{
    static _Thread_local char text[64];

    snprintf(text, sizeof(text), "%s of %s", operators[call->operation].name, call->reduction->name);
    return text;
}

static void choose_counts(call_t *call, sequence_t *sequence, size_t max_bytes)
{
    static const size_t near[] = {1, 7, 60, 500, 4000, 8192, 16384, 33000, 65536, 131072, 400000, 1048576, 4194304};
    size_t bytes               = near[sequence_below(sequence, sizeof(near) / sizeof(near[0]))];
    uint32_t how = sequence_below(sequence, 6), special = sequence_below(sequence, (uint32_t)call->size), total;

    bytes = bytes > max_bytes ? max_bytes : bytes;
    total = (uint32_t)(bytes / (size_t)call->reduction->extent) + sequence_below(sequence, 3);
    for (int rank = 0; rank < call->size; rank++) {
        int equal = (int)(total / (uint32_t)call->size);

        if (call->function == ALLREDUCE) {
            call->counts[rank] = rank == 0 ? (int)total : 0;
        } else if (call->function == REDUCE_SCATTER_BLOCK || how < 2) {
            call->counts[rank] = equal;
        } else if (how == 2) {
            call->counts[rank] = rank == (int)special ? (int)total : 0;
        } else if (how == 3) {
            call->counts[rank] = sequence_below(sequence, 2) ? 2 * equal : 0;
        } else {
            call->counts[rank] = (int)sequence_below(sequence, 2 * (uint32_t)equal + 1);
        }
    }
}

static int total_of(const call_t *call)
{
    int total = 0;

    for (int rank = 0; rank < call->size; rank++) {
        total += call->counts[rank];
    }
    return total;
}

void random_reduce_make(call_t *call, sequence_t *sequence, size_t max_bytes)
{
    size_t extent;

    call->reduction = &reductions[sequence_below(sequence, (uint32_t)NUM_REDUCTIONS)];
    do {
        call->operation = (int)sequence_below(sequence, OPERATORS);
    } while ((operators[call->operation].kinds & 1u << call->reduction->kind) == 0);
    choose_counts(call, sequence, max_bytes);
    extent               = (size_t)call->reduction->extent;
    call->send.origin    = GUARD_BYTES;
    call->receive.origin = GUARD_BYTES;
    call->send.bytes     = 2 * GUARD_BYTES + (size_t)total_of(call) * extent;
    call->receive.bytes  = call->send.bytes;
    if (call->function != ALLREDUCE && !call->in_place) {
        call->receive.bytes = 2 * GUARD_BYTES + (size_t)call->counts[call->rank] * extent;
    }
}

/* -- values -- */

static uint64_t bits_of(const call_t *call, int rank, size_t at)
{
    return random_mix(call->key + (uint64_t)rank * 0x9e3779b97f4a7c15ull, at);
}

static void put_real(const reduction_t *reduction, double real, unsigned char *to)
{
    float single      = (float)real;
    long double large = real;

    if (reduction->bytes == 4) {
        memcpy(to, &single, sizeof(single));
    } else if (reduction->bytes == 8) {
        memcpy(to, &real, sizeof(real));
    } else {
        memcpy(to, &large, 10); /* the rest is padding */
    }
}

static double real_of(const call_t *call, uint64_t bits)
{
    static const double factors[] = {1, -1, 2, 0.5};

    return call->operation == PROD ? factors[bits % 4] : (double)(bits % 2001) - 1000;
}

static double complex complex_of(const call_t *call, uint64_t bits)
{
    static const double complex factors[] = {1, -1, I, -I, 1 + I};

    return call->operation == PROD ? factors[bits % 5]
                                   : (double)(bits % 201) - 100 + ((double)(bits / 256 % 201) - 100) * I;
}

static void put_complex(const reduction_t *reduction, double complex value, unsigned char *to)
{
    float single[2] = {(float)creal(value), (float)cimag(value)};
    double plain[2] = {creal(value), cimag(value)};

    memcpy(to, reduction->bytes == 8 ? (void *)single : (void *)plain, (size_t)reduction->bytes);
}

static void put_pair(const reduction_t *reduction, int value, int index, unsigned char *to)
{
    float single = (float)value;
    double plain = value;

    if (reduction->second == 8) {
        memcpy(to, &plain, sizeof(plain));
    } else if (reduction->type == MPI_2INT) {
        memcpy(to, &value, sizeof(value));
    } else {
        memcpy(to, &single, sizeof(single));
    }
    memcpy(to + reduction->second, &index, sizeof(index));
}

/* An element of a rank. */
static void put_value(const call_t *call, int rank, size_t at, unsigned char *to)
{
    const reduction_t *reduction = call->reduction;
    uint64_t bits                = bits_of(call, rank, at);
    int logical                  = call->operation == LAND || call->operation == LOR || call->operation == LXOR;
    affine_t affine              = {(uint32_t)bits | 1, (uint32_t)(bits >> 32)};

    switch (reduction->kind) {
    case REAL:
        put_real(reduction, real_of(call, bits), to);
        break;
    case COMPLEX:
        put_complex(reduction, complex_of(call, bits), to);
        break;
    case PAIR:
        put_pair(reduction, (int)(bits % 5), (int)(bits / 16 % 7), to);
        break;
    case AFFINE:
    case AFFINE_GAP:
        memcpy(to, &affine, sizeof(affine));
        break;
    default:
        bits = reduction->kind == BOOLEAN || (logical && bits % 3) ? bits / 4 % 2 : bits;
        /* Open MPI 4.1 adds small integers with saturation where the processor has AVX */
        bits = (call->operation == SUM && reduction->bytes < 4) ? bits % 3 : bits;
        memcpy(to, &bits, (size_t)reduction->bytes);
    }
}

static uint64_t combine_integers(int operator, uint64_t left, uint64_t right, int is_signed)
{
    int less = is_signed ? (int64_t)left < (int64_t)right : left < right;

    switch (operator) {
    case SUM:
        return left + right;
    case PROD:
        return left * right;
    case MAX:
        return less ? right : left;
    case MIN:
        return less ? left : right;
    case BAND:
        return left & right;
    case BOR:
        return left | right;
    case BXOR:
        return left ^ right;
    case LAND:
        return left && right;
    case LOR:
        return left || right;
    default:
        return !left != !right;
    }
}

static uint64_t integer_at(const reduction_t *reduction, const unsigned char *at)
{
    uint64_t value = 0;
    int shift      = 64 - 8 * reduction->bytes;

    memcpy(&value, at, (size_t)reduction->bytes);
    value <<= shift;
    return reduction->kind == SIGNED ? (uint64_t)((int64_t)value >> shift) : value >> shift;
}

static void expect_integer(const call_t *call, size_t at, unsigned char *to)
{
    unsigned char element[MAX_BYTES];
    uint64_t result = 0, value;

    for (int rank = 0; rank < call->size; rank++) {
        put_value(call, rank, at, element);
        value  = integer_at(call->reduction, element);
        result = rank == 0 ? value : combine_integers(call->operation, result, value, call->reduction->kind == SIGNED);
    }
    memcpy(to, &result, (size_t)call->reduction->bytes);
}

static void expect_real(const call_t *call, size_t at, unsigned char *to)
{
    double result = 0;

    for (int rank = 0; rank < call->size; rank++) {
        double value = real_of(call, bits_of(call, rank, at));
        double more  = call->operation == SUM    ? result + value
                       : call->operation == PROD ? result * value
                       : call->operation == MAX  ? (result < value ? value : result)
                                                 : (result < value ? result : value);

        result = rank == 0 ? value : more;
    }
    put_real(call->reduction, result, to);
}

static void expect_complex(const call_t *call, size_t at, unsigned char *to)
{
    double complex result = call->operation == PROD ? 1 : 0;

    for (int rank = 0; rank < call->size; rank++) {
        double complex value = complex_of(call, bits_of(call, rank, at));

        result = call->operation == PROD ? result * value : result + value;
    }
    put_complex(call->reduction, result, to);
}

static void expect_pair(const call_t *call, size_t at, unsigned char *to)
{
    int value = 0, index = 0;

    for (int rank = 0; rank < call->size; rank++) {
        uint64_t bits = bits_of(call, rank, at);
        int other = (int)(bits % 5), place = (int)(bits / 16 % 7);
        int better = call->operation == MAXLOC ? other > value : other < value;

        if (rank == 0 || better || (other == value && place < index)) {
            value = other;
            index = place;
        }
    }
    put_pair(call->reduction, value, index, to);
}

static void expect_affine(const call_t *call, size_t at, unsigned char *to)
{
    unsigned char element[MAX_BYTES];
    affine_t result = {1, 0}, value;

    for (int rank = 0; rank < call->size; rank++) {
        put_value(call, rank, at, element);
        memcpy(&value, element, sizeof(value));
        result = composed(result, value);
    }
    memcpy(to, &result, sizeof(result));
}

static void expect(const call_t *call, size_t at, unsigned char *to)
{
    switch (call->reduction->kind) {
    case REAL:
        expect_real(call, at, to);
        break;
    case COMPLEX:
        expect_complex(call, at, to);
        break;
    case PAIR:
        expect_pair(call, at, to);
        break;
    case AFFINE:
    case AFFINE_GAP:
        expect_affine(call, at, to);
        break;
    default:
        expect_integer(call, at, to);
    }
}

/* -- buffers -- */

void random_reduce_fill(const call_t *call, unsigned char *send, unsigned char *receive)
{
    unsigned char *vector = (call->in_place ? receive : send) + GUARD_BYTES;
    int total             = total_of(call);

    random_fill(call, call->rank, 1, 0, call->receive.bytes, receive);
    random_fill(call, call->rank, 0, 0, call->send.bytes, send);
    for (int i = 0; i < total; i++) {
        put_value(call, call->rank, (size_t)i, vector + (size_t)i * (size_t)call->reduction->extent);
    }
}

/* Products may have a zero of either sign, and pairs and long double have padding. */
static int is_equal(const reduction_t *reduction, const unsigned char *left, const unsigned char *right)
{
    const float *l4 = (const float *)(const void *)left, *r4 = (const float *)(const void *)right;
    const double *l8 = (const double *)(const void *)left, *r8 = (const double *)(const void *)right;

    if (reduction->kind == COMPLEX) {
        return reduction->bytes == 8 ? l4[0] == r4[0] && l4[1] == r4[1] : l8[0] == r8[0] && l8[1] == r8[1];
    }
    return memcmp(left, right, reduction->bytes == 16 ? 10 : (size_t)reduction->bytes) == 0;
}

static long check_guards(const call_t *call, const unsigned char *received, size_t end, unsigned char *image)
{
    long errors = 0;

    random_fill(call, call->rank, 1, 0, call->receive.bytes, image);
    for (size_t i = 0; i < call->receive.bytes; i++) {
        errors += (i < GUARD_BYTES || i >= end) && received[i] != image[i];
    }
    return errors;
}

long random_reduce_check(const call_t *call, const unsigned char *received, char *text, size_t capacity)
{
    int count     = call->function == ALLREDUCE ? total_of(call) : call->counts[call->rank];
    size_t extent = (size_t)call->reduction->extent, first = 0, bytes = (size_t)call->reduction->bytes;
    _Alignas(16) unsigned char expected[MAX_BYTES], got[MAX_BYTES];
    unsigned char *image = malloc(call->receive.bytes);
    /* in place, MPI says nothing about what is behind the result of MPI_Reduce_scatter */
    size_t end  = call->receive.bytes - GUARD_BYTES;
    long errors = check_guards(call, received, end, image);

    if (errors > 0) {
        snprintf(text, capacity, "%ld bytes outside the buffer have changed", errors);
    }
    for (int rank = 0; rank < call->rank && call->function != ALLREDUCE; rank++) {
        first += (size_t)call->counts[rank];
    }
    for (int i = 0; i < count; i++) {
        const unsigned char *at = received + GUARD_BYTES + (size_t)i * extent;

        expect(call, first + (size_t)i, expected);
        memcpy(got, at, extent);
        if (!is_equal(call->reduction, got, expected) && errors++ == 0) {
            snprintf(text, capacity, "element %d of %d is %02x %02x %02x %02x.., expected %02x %02x %02x %02x..", i,
                     count, got[0], got[1], got[2], got[3], expected[0], expected[1], expected[2], expected[3]);
        }
        if (call->reduction->kind == AFFINE_GAP && !call->in_place &&
            memcmp(at + bytes, image + GUARD_BYTES + (size_t)i * extent + bytes, extent - bytes) != 0 &&
            errors++ == 0) {
            snprintf(text, capacity, "the gap behind element %d of %d has changed", i, count);
        }
    }
    free(image);
    return errors;
}
