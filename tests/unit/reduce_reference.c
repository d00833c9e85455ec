/* SPDX-License-Identifier: BSD-3-Clause */
/* Every operation on every type, written once more and plainly, for tests of the reduction kernels. */
#include "config.h"
#include "reduce_reference.h"
#include "gpu_kinds.h"

#include <complex.h>
#include <math.h>
#include <string.h>

typedef union element {
    uint8_t bytes[16];
    int64_t i;
    uint64_t u;
    float f;
    double d;
    float _Complex c;
    double _Complex z;
    mpath_reduce_c64_t c_parts;
    mpath_reduce_c128_t z_parts;
#ifdef __FLT16_MANT_DIG__
    _Float16 h;
#endif
    uint16_t half;
    mpath_reduce_f32_at_t f_at;
    mpath_reduce_f64_at_t d_at;
    mpath_reduce_i32_at_t i_at;
    mpath_reduce_i64_at_t l_at;
} element_t;

static int is_signed(mpath_reduce_type_t type)
{
    return type <= MPATH_REDUCE_I64;
}

/* Integers as the widest one that has their value. */
static uint64_t widen(mpath_reduce_type_t type, const unsigned char *from)
{
    unsigned bytes = mpath_reduce_bytes(type);
    uint64_t value = 0;

    memcpy(&value, from, bytes);
    if (is_signed(type) && (bytes < 8) && ((value >> (8 * bytes - 1)) & 1)) {
        value |= ~UINT64_C(0) << (8 * bytes);
    }
    return value;
}

static uint64_t combine_integers(const mpath_reduce_how_t *how, uint64_t a, uint64_t b)
{
    int less = is_signed(how->type) ? ((int64_t)a < (int64_t)b) : (a < b);

    switch (how->op) {
    case MPATH_REDUCE_SUM:
        return a + b;
    case MPATH_REDUCE_PROD:
        return a * b;
    case MPATH_REDUCE_MAX:
        return less ? b : a;
    case MPATH_REDUCE_MIN:
        return less ? a : b;
    case MPATH_REDUCE_BAND:
        return a & b;
    case MPATH_REDUCE_BOR:
        return a | b;
    case MPATH_REDUCE_BXOR:
        return a ^ b;
    case MPATH_REDUCE_LAND:
        return a && b;
    case MPATH_REDUCE_LOR:
        return a || b;
    default:
        return !a != !b;
    }
}

int reference_is_tested(mpath_reduce_type_t type)
{
#ifdef __FLT16_MANT_DIG__
    (void)type;
    return 1;
#else
    return type != MPATH_REDUCE_F16;
#endif
}

static double combine_reals(mpath_reduce_op_t op, double a, double b)
{
    return (op == MPATH_REDUCE_SUM)                ? a + b
           : (op == MPATH_REDUCE_PROD)             ? a * b
           : ((op == MPATH_REDUCE_MAX) == (a > b)) ? a
                                                   : b;
}

/* Whether the second of two values with places replaces the first. */
static int replaces(mpath_reduce_op_t op, double a, int a_place, double b, int b_place)
{
    return (a == b) ? (b_place < a_place) : ((op == MPATH_REDUCE_MAXLOC) == (b > a));
}

void reference_combine(const mpath_reduce_how_t *how, unsigned char *sum, const unsigned char *next)
{
    unsigned bytes = mpath_reduce_bytes(how->type);
    element_t a, b;
    uint64_t value;

    memcpy(&a, sum, bytes);
    memcpy(&b, next, bytes);
    switch (how->type) {
    case MPATH_REDUCE_F32:
        a.f = (float)combine_reals(how->op, a.f, b.f);
        break;
    case MPATH_REDUCE_F64:
        a.d = combine_reals(how->op, a.d, b.d);
        break;
#ifdef __FLT16_MANT_DIG__
    case MPATH_REDUCE_F16: {
        _Float16 sum = a.h + b.h, product = a.h * b.h;

        a.h = (how->op == MPATH_REDUCE_SUM)    ? sum
              : (how->op == MPATH_REDUCE_PROD) ? product
                                               : (_Float16)combine_reals(how->op, (double)a.h, (double)b.h);
        break;
    }
#endif
    case MPATH_REDUCE_C64:
        a.c = (how->op == MPATH_REDUCE_SUM) ? a.c + b.c : a.c * b.c;
        break;
    case MPATH_REDUCE_C128:
        a.z = (how->op == MPATH_REDUCE_SUM) ? a.z + b.z : a.z * b.z;
        break;
    case MPATH_REDUCE_F32_AT:
        a = replaces(how->op, a.f_at.value, a.f_at.place, b.f_at.value, b.f_at.place) ? b : a;
        break;
    case MPATH_REDUCE_F64_AT:
        a = replaces(how->op, a.d_at.value, a.d_at.place, b.d_at.value, b.d_at.place) ? b : a;
        break;
    case MPATH_REDUCE_I32_AT:
        a = replaces(how->op, a.i_at.value, a.i_at.place, b.i_at.value, b.i_at.place) ? b : a;
        break;
    case MPATH_REDUCE_I64_AT:
        a = replaces(how->op, (double)a.l_at.value, a.l_at.place, (double)b.l_at.value, b.l_at.place) ? b : a;
        break;
    default:
        value = combine_integers(how, widen(how->type, sum), widen(how->type, next));
        memcpy(a.bytes, &value, bytes);
    }
    memcpy(sum, a.bytes, bytes);
}

void reference_fill(mpath_reduce_type_t type, unsigned char *to, uint64_t index, unsigned rank)
{
    int number = gpu_pattern(rank + 1, index) % 7 - 2, infinite = index % 97 == 5, first = rank == 0;
    element_t element;

    memset(&element, REFERENCE_HOLE, sizeof(element));
    switch (type) {
    case MPATH_REDUCE_F32:
        element.f = (float)number;
        break;
    case MPATH_REDUCE_F64:
        element.d = number;
        break;
    case MPATH_REDUCE_F16: /* of all signs and digits, exponents around 1 and some without one */
        element.half = (uint16_t)((gpu_pattern(rank + 1, index) << 8) | gpu_pattern(rank + 5, index * 3));
        element.half = (uint16_t)((element.half & 0x8fff) | ((index % 50 == 0) ? 0 : 0x3000));
        break;
    case MPATH_REDUCE_C64:
        element.c_parts = infinite
                              ? (mpath_reduce_c64_t){first ? INFINITY : 0, first ? INFINITY : (float)rank}
                              : (mpath_reduce_c64_t){((float)number + 0.5f) / 3, ((float)(index % 11) + 0.25f) / 7};
        break;
    case MPATH_REDUCE_C128:
        element.z_parts = infinite
                              ? (mpath_reduce_c128_t){first ? (double)INFINITY : 0, first ? (double)INFINITY : rank}
                              : (mpath_reduce_c128_t){(number + 0.5) / 3, ((double)(index % 11) + 0.25) / 7};
        break;
    case MPATH_REDUCE_F32_AT:
        element.f_at = (mpath_reduce_f32_at_t){(float)number, (int)(rank * 7 % 5)};
        break;
    case MPATH_REDUCE_F64_AT:
        element.d_at.value = number;
        element.d_at.place = (int)(rank * 7 % 5);
        break;
    case MPATH_REDUCE_I32_AT:
        element.i_at = (mpath_reduce_i32_at_t){number, (int)(rank * 7 % 5)};
        break;
    case MPATH_REDUCE_I64_AT:
        element.l_at.value = number;
        element.l_at.place = (int)(rank * 7 % 5);
        break;
    default:
        element.i = (index % 3 == 0) ? (int64_t)gpu_pattern(rank + 3, index) << (index % 50) : number;
    }
    memcpy(to, element.bytes, mpath_reduce_bytes(type));
}
