/* SPDX-License-Identifier: BSD-3-Clause */
/* Which reduction kernel serves an operation and a type, and its launch. */
#include "device/kernels/reduce.h"

#include <stdio.h>
#include <string.h>

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

/* "sum_f32": operation and type as the kernel that serves them is called. */
static void reduce_name(const mpath_reduce_how_t *how, char *name, size_t size)
{
    int compares             = (how->op == MPATH_REDUCE_MAX) || (how->op == MPATH_REDUCE_MIN);
    mpath_reduce_type_t type = compares ? how->type : types[how->type].without_sign;

    snprintf(name, size, "%s_%s", op_names[how->op], types[type].name);
}

mpath_status_t mpath_reduce_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                                 mpath_device_function_t *function_p)
{
    char name[REDUCE_NAME_MAX], full[2 * REDUCE_NAME_MAX];

    reduce_name(how, name, sizeof(name));
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
    uint64_t most    = (uint64_t)mpath_gpu_info_of(mpath_stream_gpu(stream))->multiprocessors;
    uint64_t threads = REDUCE_THREADS_MIN;

    ctas = (ctas < 1) ? 1 : (ctas > most) ? most : ctas;
    while ((threads < most_threads) && (threads * ctas * REDUCE_VECTOR_BYTES < bytes)) {
        threads *= 2;
    }
    return (reduce_grid_t){.ctas = (unsigned)ctas, .threads = (unsigned)threads};
}

static mpath_status_t reduce_launch(mpath_stream_t *stream, mpath_device_function_t function, reduce_grid_t grid,
                                    mpath_kernel_word_t flag, mpath_kernel_reduce_t *arguments)
{
    mpath_launch_control(stream, grid.ctas, &arguments->control);
    arguments->control.flags_count = (flag.address != 0) ? 1 : 0;
    arguments->flags[0]            = flag;
    return mpath_launch_kernel(stream, function, arguments, grid.ctas, grid.threads);
}

mpath_status_t mpath_launch_reduce(mpath_stream_t *stream, mpath_device_function_t function, mpath_reduce_type_t type,
                                   mpath_kernel_word_t flag, mpath_kernel_reduce_t *arguments)
{
    return reduce_launch(stream, function, reduce_grid(stream, type, arguments, MPATH_KERNEL_THREADS), flag, arguments);
}

mpath_status_t mpath_launch_reduce_beside(mpath_stream_t *stream, mpath_device_function_t function,
                                          mpath_reduce_type_t type, mpath_kernel_word_t flag,
                                          mpath_kernel_reduce_t *arguments)
{
    return reduce_launch(stream, function, reduce_grid(stream, type, arguments, REDUCE_THREADS_BESIDE), flag,
                         arguments);
}

mpath_status_t mpath_launch_reduce_by_host(mpath_stream_t *stream, mpath_device_function_t function,
                                           mpath_reduce_type_t type, mpath_kernel_word_t flag,
                                           mpath_kernel_reduce_t *arguments)
{
    reduce_grid_t grid = reduce_grid(stream, type, arguments, MPATH_KERNEL_THREADS);

    if (grid.ctas > REDUCE_CTAS_BY_HOST) {
        grid = (reduce_grid_t){.ctas = REDUCE_CTAS_BY_HOST, .threads = MPATH_KERNEL_THREADS};
    }
    return reduce_launch(stream, function, grid, flag, arguments);
}

mpath_status_t mpath_repeat_reduce(mpath_stream_t *stream, mpath_device_function_t function, mpath_reduce_type_t type,
                                   mpath_device_ptr_t flag, mpath_device_ptr_t number, mpath_kernel_reduce_t *arguments,
                                   mpath_repeat_t **repeat_p)
{
    reduce_grid_t grid = reduce_grid(stream, type, arguments, MPATH_KERNEL_THREADS);

    arguments->control  = (mpath_kernel_control_t){.flags_count = 1, .ctas = grid.ctas};
    arguments->flags[0] = (mpath_kernel_word_t){.address = flag};
    arguments->number   = number;
    arguments->counters = mpath_launch_counters(stream);
    return mpath_repeat_create(stream, function, arguments, grid.ctas, grid.threads, repeat_p);
}

/* Which kernel reduces short vectors that all GPUs send to all, and with how many CTAs. */

#define EAGER_NAME_MAX 64

/* One unit of 8 bytes for each thread. On an H200 fewer CTAs take longer, and so do more, from 64 KiB on. */
#define EAGER_BYTES_PER_CTA (UINT64_C(8) * MPATH_KERNEL_THREADS)

/* Parts are spread over multiprocessors: a quarter of a CTA's warps are enough for it. */
#define PARTS_GROUPS_PER_CTA 4u

_Static_assert(sizeof(mpath_kernel_eager_t) <= 4096, "arguments of a kernel");

#define EAGER_NAME(_op, _type) #_op "_" #_type,

static const char *const names[] = {MPATH_EAGER_KERNELS(EAGER_NAME)};

int mpath_eager_fits(const mpath_reduce_how_t *how)
{
    char name[EAGER_NAME_MAX];

    reduce_name(how, name, sizeof(name));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

mpath_status_t mpath_eager_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_eager_form_t form,
                                mpath_device_function_t *function_p)
{
    char name[EAGER_NAME_MAX], full[2 * EAGER_NAME_MAX];

    reduce_name(how, name, sizeof(name));
    snprintf(full, sizeof(full), "%s%s", (form == MPATH_EAGER_PARTS) ? MPATH_KERNEL_EAGER_PARTS : MPATH_KERNEL_EAGER,
             name);
    return mpath_kernel_find(gpu, full, NULL, function_p);
}

unsigned mpath_eager_ctas(mpath_eager_form_t form, unsigned ranks, uint64_t bytes)
{
    uint64_t ctas = (bytes + EAGER_BYTES_PER_CTA - 1) / EAGER_BYTES_PER_CTA;

    if (form == MPATH_EAGER_PARTS) {
        ctas = MPATH_EAGER_PART_GROUPS(ranks, bytes) * ranks / PARTS_GROUPS_PER_CTA;
    }
    return (unsigned)((ctas < 1) ? 1 : (ctas > MPATH_EAGER_CTAS) ? MPATH_EAGER_CTAS : ctas);
}

uint64_t mpath_eager_slot_bytes(mpath_eager_form_t form, unsigned ranks, uint64_t bytes)
{
    return (form == MPATH_EAGER_PARTS) ? MPATH_EAGER_PARTS_SLOT_BYTES(ranks, bytes) : MPATH_EAGER_SLOT_BYTES(bytes);
}

uint64_t mpath_eager_memory_bytes(mpath_eager_form_t form, unsigned ranks, uint64_t slot_bytes)
{
    return (form == MPATH_EAGER_PARTS) ? MPATH_EAGER_PARTS_MEMORY_BYTES(ranks, slot_bytes)
                                       : MPATH_EAGER_MEMORY_BYTES(ranks, slot_bytes);
}

/* Which kernels reduce with writes only, and their launches. */

#define WRITES_NAME_MAX 64
#define WRITES_CTAS_PER_MULTIPROCESSOR 2u /* the kernels are compiled for it */
#define RING_TILE_GRAIN UINT64_C(512)     /* a vector for each thread of a warp */

_Static_assert(sizeof(mpath_kernel_writes_t) <= 4096, "arguments of a kernel");

#define WRITES_NAME(_op, _type) #_op "_" #_type,

static const char *const reduce_writes_names[] = {MPATH_WRITES_KERNELS(WRITES_NAME)};

int mpath_writes_fits(const mpath_reduce_how_t *how)
{
    char name[WRITES_NAME_MAX];

    reduce_name(how, name, sizeof(name));
    for (size_t i = 0; i < sizeof(reduce_writes_names) / sizeof(reduce_writes_names[0]); i++) {
        if (strcmp(name, reduce_writes_names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

int mpath_writes_usable(const mpath_gpu_t *gpu)
{
    return (unsigned)mpath_gpu_info_of(gpu)->multiprocessors * WRITES_CTAS_PER_MULTIPROCESSOR >= MPATH_WRITES_CTAS;
}

unsigned mpath_ring_ctas(unsigned multiprocessors)
{
    return (multiprocessors < MPATH_RING_CTAS) ? multiprocessors : MPATH_RING_CTAS;
}

uint64_t mpath_ring_tile(uint64_t part_bytes, unsigned ctas, uint64_t most)
{
    uint64_t longest = (most < MPATH_RING_TILE_MAX) ? most & ~(RING_TILE_GRAIN - 1) : MPATH_RING_TILE_MAX;
    uint64_t turns   = (part_bytes + ctas * longest - 1) / (ctas * longest);
    uint64_t tile    = (part_bytes + ctas * turns - 1) / (ctas * turns);

    return (tile + RING_TILE_GRAIN - 1) & ~(RING_TILE_GRAIN - 1);
}

static mpath_status_t find(mpath_gpu_t *gpu, const char *prefix, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                           mpath_device_function_t *function_p)
{
    char name[WRITES_NAME_MAX], full[2 * WRITES_NAME_MAX];

    reduce_name(how, name, sizeof(name));
    snprintf(full, sizeof(full), "%s%s", prefix, name);
    return mpath_kernel_find(gpu, full, pause, function_p);
}

mpath_status_t mpath_writes_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                                 mpath_device_function_t *function_p)
{
    return find(gpu, MPATH_KERNEL_WRITES, how, pause, function_p);
}

mpath_status_t mpath_ring_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                               mpath_device_function_t *function_p)
{
    return find(gpu, MPATH_KERNEL_RING, how, pause, function_p);
}

static mpath_status_t launch(mpath_stream_t *stream, mpath_device_function_t function, unsigned ctas,
                             mpath_kernel_word_t flag, mpath_kernel_writes_t *arguments)
{
    mpath_launch_control(stream, ctas, &arguments->control);
    arguments->control.flags_count = 1;
    arguments->flags[0]            = flag;
    return mpath_launch_kernel(stream, function, arguments, ctas, MPATH_KERNEL_THREADS);
}

mpath_status_t mpath_launch_writes(mpath_stream_t *stream, mpath_device_function_t function, mpath_kernel_word_t flag,
                                   mpath_kernel_writes_t *arguments)
{
    return launch(stream, function, MPATH_WRITES_CTAS, flag, arguments);
}

mpath_status_t mpath_launch_ring(mpath_stream_t *stream, mpath_device_function_t function, unsigned ctas,
                                 mpath_kernel_word_t flag, mpath_kernel_writes_t *arguments)
{
    return launch(stream, function, ctas, flag, arguments);
}
