/* SPDX-License-Identifier: BSD-3-Clause */
/* See random.h. Five signatures: bytes, integers of 16 and 32 bits, doubles, and a mixture of these. */
#include "mpi/random.h"

#include <stdio.h>
#include <string.h>

static type_t types[FAMILIES][FAMILY_TYPES];

const type_t *random_type(int family, int index)
{
    return &types[family][index];
}

/* Takes the MPI type and what it consists of; the extent is MPI's. */
static void add(type_t *type, const char *name, MPI_Datatype mpi, int elements, const piece_t *pieces, int num_pieces)
{
    MPI_Aint lower;

    type->name       = name;
    type->mpi        = mpi;
    type->elements   = elements;
    type->num_pieces = num_pieces;
    type->low        = pieces[0].at;
    type->high       = pieces[0].at + pieces[0].bytes;
    for (int i = 0; i < num_pieces; i++) {
        MPI_Aint end = pieces[i].at + pieces[i].bytes;

        type->pieces[i] = pieces[i];
        type->low       = (pieces[i].at < type->low) ? pieces[i].at : type->low;
        type->high      = (end > type->high) ? end : type->high;
        type->bytes += pieces[i].bytes;
    }
    MPI_Type_get_extent(mpi, &lower, &type->extent);
}

static void add_new(type_t *type, const char *name, MPI_Datatype mpi, int elements, const piece_t *pieces,
                    int num_pieces)
{
    MPI_Type_commit(&mpi);
    add(type, name, mpi, elements, pieces, num_pieces);
}

static MPI_Datatype resized(MPI_Datatype type, int keep, MPI_Aint lower, MPI_Aint extent)
{
    MPI_Datatype result;

    MPI_Type_create_resized(type, lower, extent, &result);
    if (!keep) {
        MPI_Type_free(&type);
    }
    return result;
}

/* `b` is the number of bytes of the basic type. */
static void make_family(type_t *family, MPI_Datatype basic, int b)
{
    MPI_Aint falling[2] = {2 * b, -3 * b};
    int lengths[3] = {3, 4, 1}, offsets[3] = {0, 5, 11};
    MPI_Datatype type, nested;

    add(&family[0], "basic", basic, 1, (piece_t[]){{0, b}}, 1);
    MPI_Type_contiguous(2, basic, &type);
    add_new(&family[1], "contiguous", type, 2, (piece_t[]){{0, 2 * b}}, 1);
    MPI_Type_vector(2, 2, 3, basic, &type);
    add_new(&family[2], "vector", type, 4, (piece_t[]){{0, 2 * b}, {3 * b, 2 * b}}, 2);
    MPI_Type_vector(4, 1, 2, basic, &type);
    add_new(&family[3], "comb", type, 4, (piece_t[]){{0, b}, {2 * b, b}, {4 * b, b}, {6 * b, b}}, 4);
    MPI_Type_create_hindexed_block(2, 1, falling, basic, &type);
    MPI_Type_contiguous(2, type, &nested);
    add_new(&family[4], "falling", type, 2, (piece_t[]){{2 * b, b}, {-3 * b, b}}, 2);
    add_new(&family[5], "nested", nested, 4, (piece_t[]){{2 * b, b}, {-3 * b, b}, {8 * b, b}, {3 * b, b}}, 4);
    MPI_Type_contiguous(2, basic, &type);
    add_new(&family[6], "resized", resized(type, 0, -b, 4 * b), 2, (piece_t[]){{0, 2 * b}}, 1);
    MPI_Type_indexed(3, lengths, offsets, basic, &type);
    add_new(&family[7], "indexed", type, 8, (piece_t[]){{0, 3 * b}, {5 * b, 4 * b}, {11 * b, b}}, 3);
    MPI_Type_vector(2, 1, 3, basic, &type);
    add_new(&family[8], "overlapping", resized(type, 0, 0, b), 2, (piece_t[]){{0, b}, {3 * b, b}}, 2);
    add_new(&family[9], "repeated", resized(basic, 1, 0, 0), 1, (piece_t[]){{0, b}}, 1);
}

/* An int, a double and three bytes, in several orders and distances; each type is one basic element. */
static void make_mixture(type_t *family)
{
    static const MPI_Aint places[FAMILY_TYPES][3] = {{0, 8, 16},   {0, 4, 12},   {11, 3, 0},    {-8, 0, 8}, {20, 4, 16},
                                                     {-4, 24, -7}, {0, 32, 100}, {40, -16, 30}, {0, 8, 16}, {4, 8, 0}};
    static const MPI_Aint extents[FAMILY_TYPES]   = {24, 15, 15, 24, 32, 40, 128, 72, 5, 0};
    static const char *const names[FAMILY_TYPES]  = {"struct",     "packed",  "reversed",  "negative",    "descending",
                                                     "straddling", "distant", "scattered", "overlapping", "repeated"};

    for (int i = 0; i < FAMILY_TYPES; i++) {
        const MPI_Aint *at    = places[i];
        int lengths[3]        = {1, 1, 3};
        MPI_Datatype parts[3] = {MPI_INT, MPI_DOUBLE, MPI_BYTE}, type;
        MPI_Aint low          = (at[0] < at[1]) ? at[0] : at[1];

        low = (at[2] < low) ? at[2] : low;
        MPI_Type_create_struct(3, lengths, at, parts, &type);
        add_new(&family[i], names[i], resized(type, 0, low, extents[i]), 1,
                (piece_t[]){{at[0], 4}, {at[1], 8}, {at[2], 3}}, 3);
    }
}

void random_types_make(void)
{
    make_family(types[0], MPI_BYTE, 1);
    make_family(types[1], MPI_INT16_T, 2);
    make_family(types[2], MPI_INT, 4);
    make_family(types[3], MPI_DOUBLE, 8);
    make_mixture(types[4]);
}

void random_types_free(void)
{
    for (int family = 0; family < FAMILIES; family++) {
        for (int i = (family < FAMILIES - 1) ? 1 : 0; i < FAMILY_TYPES; i++) {
            MPI_Type_free(&types[family][i].mpi);
        }
    }
}

void random_type_pack(const type_t *type, int count, const unsigned char *memory, unsigned char *stream)
{
    if (type->num_pieces == 1 && type->pieces[0].bytes == type->extent) {
        memcpy(stream, memory + type->pieces[0].at, (size_t)count * (size_t)type->extent);
        return;
    }
    for (int i = 0; i < count; i++, memory += type->extent) {
        for (int j = 0; j < type->num_pieces; j++) {
            memcpy(stream, memory + type->pieces[j].at, (size_t)type->pieces[j].bytes);
            stream += type->pieces[j].bytes;
        }
    }
}

void random_type_unpack(const type_t *type, int count, const unsigned char *stream, unsigned char *memory)
{
    if (type->num_pieces == 1 && type->pieces[0].bytes == type->extent) {
        memcpy(memory + type->pieces[0].at, stream, (size_t)count * (size_t)type->extent);
        return;
    }
    for (int i = 0; i < count; i++, memory += type->extent) {
        for (int j = 0; j < type->num_pieces; j++) {
            memcpy(memory + type->pieces[j].at, stream, (size_t)type->pieces[j].bytes);
            stream += type->pieces[j].bytes;
        }
    }
}
