/* SPDX-License-Identifier: BSD-3-Clause */
/* Which reduction kernel serves an operation and a type, and its launch. */
#include "gpu/reduce.h"
#include "gpu/private.h"

#include <stdio.h>

/* What a CTA reads and writes: sources and targets together, since it has that to wait for. */
#define REDUCE_BYTES_PER_CTA (UINT64_C(16) << 10)

/* Threads of a CTA: one for each vector of 16 bytes, so that a short part keeps many multiprocessors at work. */
#define REDUCE_VECTOR_BYTES 16u
#define REDUCE_THREADS_MIN 64u
#define REDUCE_THREADS_BESIDE (MPATH_KERNEL_THREADS / 2u) /* of up to 128 registers each */
#define REDUCE_CTAS_BY_HOST 32u

#define REDUCE_NAME_MAX 64

_Static_assert(sizeof(mpath_kernel_reduce_t) <= 4096, "arguments of a kernel");

static const char *const op_names[] = {
    [MPATH_REDUCE_SUM] = "sum",   [MPATH_REDUCE_PROD] = "prod",     [MPATH_REDUCE_MAX] = "max",
    [MPATH_REDUCE_MIN] = "min",   [MPATH_REDUCE_BAND] = "band",     [MPATH_REDUCE_BOR] = "bor",
    [MPATH_REDUCE_BXOR] = "bxor", [MPATH_REDUCE_LAND] = "land",     [MPATH_REDUCE_LOR] = "lor",
    [MPATH_REDUCE_LXOR] = "lxor", [MPATH_REDUCE_MAXLOC] = "maxloc", [MPATH_REDUCE_MINLOC] = "minloc",
};

typedef enum reduce_class { CLASS_SIGNED, CLASS_UNSIGNED, CLASS_FLOAT, CLASS_COMPLEX, CLASS_PLACE } reduce_class_t;

static const struct {
    const char *name;
    unsigned bytes, alignment;
    reduce_class_t class;
    mpath_reduce_type_t without_sign;
} types[] = {
    [MPATH_REDUCE_I8]     = {"i8", 1, 1, CLASS_SIGNED, MPATH_REDUCE_U8},
    [MPATH_REDUCE_I16]    = {"i16", 2, 2, CLASS_SIGNED, MPATH_REDUCE_U16},
    [MPATH_REDUCE_I32]    = {"i32", 4, 4, CLASS_SIGNED, MPATH_REDUCE_U32},
    [MPATH_REDUCE_I64]    = {"i64", 8, 8, CLASS_SIGNED, MPATH_REDUCE_U64},
    [MPATH_REDUCE_U8]     = {"u8", 1, 1, CLASS_UNSIGNED, MPATH_REDUCE_U8},
    [MPATH_REDUCE_U16]    = {"u16", 2, 2, CLASS_UNSIGNED, MPATH_REDUCE_U16},
    [MPATH_REDUCE_U32]    = {"u32", 4, 4, CLASS_UNSIGNED, MPATH_REDUCE_U32},
    [MPATH_REDUCE_U64]    = {"u64", 8, 8, CLASS_UNSIGNED, MPATH_REDUCE_U64},
    [MPATH_REDUCE_F32]    = {"f32", 4, 4, CLASS_FLOAT, MPATH_REDUCE_F32},
    [MPATH_REDUCE_F64]    = {"f64", 8, 8, CLASS_FLOAT, MPATH_REDUCE_F64},
    [MPATH_REDUCE_F16]    = {"f16", 2, 2, CLASS_FLOAT, MPATH_REDUCE_F16},
    [MPATH_REDUCE_C64]    = {"c64", 8, 4, CLASS_COMPLEX, MPATH_REDUCE_C64},
    [MPATH_REDUCE_C128]   = {"c128", 16, 8, CLASS_COMPLEX, MPATH_REDUCE_C128},
    [MPATH_REDUCE_F32_AT] = {"f32_at", 8, 4, CLASS_PLACE, MPATH_REDUCE_F32_AT},
    [MPATH_REDUCE_F64_AT] = {"f64_at", 16, 8, CLASS_PLACE, MPATH_REDUCE_F64_AT},
    [MPATH_REDUCE_I32_AT] = {"i32_at", 8, 4, CLASS_PLACE, MPATH_REDUCE_I32_AT},
    [MPATH_REDUCE_I64_AT] = {"i64_at", 16, 8, CLASS_PLACE, MPATH_REDUCE_I64_AT},
};

int mpath_reduce_fits(const mpath_reduce_how_t *how)
{
    reduce_class_t class = types[how->type].class;

    switch (how->op) {
    case MPATH_REDUCE_SUM:
    case MPATH_REDUCE_PROD:
        return class != CLASS_PLACE;
    case MPATH_REDUCE_MAX:
    case MPATH_REDUCE_MIN:
        return (class != CLASS_PLACE) && (class != CLASS_COMPLEX);
    case MPATH_REDUCE_MAXLOC:
    case MPATH_REDUCE_MINLOC:
        return class == CLASS_PLACE;
    default:
        return (class == CLASS_SIGNED) || (class == CLASS_UNSIGNED);
    }
}

unsigned mpath_reduce_bytes(mpath_reduce_type_t type)
{
    return types[type].bytes;
}

unsigned mpath_reduce_alignment(mpath_reduce_type_t type)
{
    return types[type].alignment;
}

void mpath_reduce_name(const mpath_reduce_how_t *how, char *name, size_t size)
{
    int compares             = (how->op == MPATH_REDUCE_MAX) || (how->op == MPATH_REDUCE_MIN);
    mpath_reduce_type_t type = compares ? how->type : types[how->type].without_sign;

    snprintf(name, size, "%s_%s", op_names[how->op], types[type].name);
}

mpath_status_t mpath_reduce_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                                 mpath_cu_function_t *function_p)
{
    char name[REDUCE_NAME_MAX], full[2 * REDUCE_NAME_MAX];

    mpath_reduce_name(how, name, sizeof(name));
    snprintf(full, sizeof(full), MPATH_KERNEL_REDUCE "%s", name);
    return mpath_kernel_find(gpu, full, pause, function_p);
}

typedef struct reduce_grid {
    unsigned ctas, threads;
} reduce_grid_t;

static reduce_grid_t reduce_grid(const mpath_stream_t *stream, mpath_reduce_type_t type,
                                 const mpath_kernel_reduce_t *arguments, uint64_t most_threads)
{
    uint64_t bytes   = arguments->elements * types[type].bytes;
    uint64_t moved   = bytes * (arguments->sources_count + arguments->targets_count);
    uint64_t ctas    = (moved + REDUCE_BYTES_PER_CTA - 1) / REDUCE_BYTES_PER_CTA;
    uint64_t most    = (uint64_t)stream->gpu->info.multiprocessors;
    uint64_t threads = REDUCE_THREADS_MIN;

    ctas = (ctas < 1) ? 1 : (ctas > most) ? most : ctas;
    while ((threads < most_threads) && (threads * ctas * REDUCE_VECTOR_BYTES < bytes)) {
        threads *= 2;
    }
    return (reduce_grid_t){.ctas = (unsigned)ctas, .threads = (unsigned)threads};
}

static mpath_status_t reduce_launch(mpath_stream_t *stream, mpath_cu_function_t function, reduce_grid_t grid,
                                    mpath_kernel_word_t flag, mpath_kernel_reduce_t *arguments)
{
    mpath_launch_control(stream, grid.ctas, &arguments->control);
    arguments->control.flags_count = (flag.address != 0) ? 1 : 0;
    arguments->flags[0]            = flag;
    return mpath_launch_kernel(stream, function, arguments, grid.ctas, grid.threads);
}

mpath_status_t mpath_launch_reduce(mpath_stream_t *stream, mpath_cu_function_t function, mpath_reduce_type_t type,
                                   mpath_kernel_word_t flag, mpath_kernel_reduce_t *arguments)
{
    return reduce_launch(stream, function, reduce_grid(stream, type, arguments, MPATH_KERNEL_THREADS), flag, arguments);
}

mpath_status_t mpath_launch_reduce_beside(mpath_stream_t *stream, mpath_cu_function_t function,
                                          mpath_reduce_type_t type, mpath_kernel_word_t flag,
                                          mpath_kernel_reduce_t *arguments)
{
    return reduce_launch(stream, function, reduce_grid(stream, type, arguments, REDUCE_THREADS_BESIDE), flag,
                         arguments);
}

mpath_status_t mpath_launch_reduce_by_host(mpath_stream_t *stream, mpath_cu_function_t function,
                                           mpath_reduce_type_t type, mpath_kernel_word_t flag,
                                           mpath_kernel_reduce_t *arguments)
{
    reduce_grid_t grid = reduce_grid(stream, type, arguments, MPATH_KERNEL_THREADS);

    if (grid.ctas > REDUCE_CTAS_BY_HOST) {
        grid = (reduce_grid_t){.ctas = REDUCE_CTAS_BY_HOST, .threads = MPATH_KERNEL_THREADS};
    }
    return reduce_launch(stream, function, grid, flag, arguments);
}

mpath_status_t mpath_repeat_reduce(mpath_stream_t *stream, mpath_cu_function_t function, mpath_reduce_type_t type,
                                   mpath_cu_ptr_t flag, mpath_cu_ptr_t number, mpath_kernel_reduce_t *arguments,
                                   mpath_repeat_t **repeat_p)
{
    reduce_grid_t grid = reduce_grid(stream, type, arguments, MPATH_KERNEL_THREADS);

    arguments->control  = (mpath_kernel_control_t){.flags_count = 1, .ctas = grid.ctas};
    arguments->flags[0] = (mpath_kernel_word_t){.address = flag};
    arguments->number   = number;
    arguments->counters = mpath_launch_counters(stream);
    return mpath_repeat_create(stream, function, arguments, grid.ctas, grid.threads, repeat_p);
}
