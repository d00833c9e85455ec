/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions with nothing but writes between GPUs, of which a port carries more than of reads: see
 * device/kernels/reduce_writes_args.h. Included by kernels.cu.
 *
 * A turn of a CTA waits once, works on two tiles (one to send, one to combine) and ends with one fence, so that the
 * time of a trip to another GPU passes while other CTAs work. Tiles that have come are read past the first-level cache.
 *
 * In a ring a step waits, combines, writes and ends with a fence. A tile is a few accesses of each thread.
 */
#include "device/kernels/reduce_writes_args.h"

/* Polls between two looks at the clock and at the host's word. */
#define WRITES_POLLS 4096

/* Vectors of a thread that are under way together. */
#define WRITES_DEEP 2

/* Steps that rank `from` writes for CTA `cta` into the memory of rank `of`. */
static __device__ __forceinline__ uint64_t writes_step(const mpath_kernel_writes_t &arguments, unsigned of,
                                                       unsigned from, unsigned used)
{
    return arguments.memory[of] + ((blockIdx.x * 2u + used) * arguments.ranks + from) * 8u;
}

static __device__ __forceinline__ uint64_t writes_slot(const mpath_kernel_writes_t &arguments, unsigned of,
                                                       unsigned from, uint64_t turn)
{
    const uint64_t row  = blockIdx.x * MPATH_WRITES_DEPTH + turn % MPATH_WRITES_DEPTH;
    const uint64_t slot = row * (arguments.ranks - 1) + from - (from > of ? 1 : 0);

    return arguments.memory[of] + MPATH_WRITES_TILES_AT(arguments.ranks) + slot * arguments.tile_bytes;
}

/* One thread: until the step has been reached, or it is time to give up. */
static __device__ bool writes_await(const mpath_kernel_writes_t &arguments, uint64_t address, uint64_t value,
                                    uint64_t deadline_ns)
{
    unsigned polls = 0;

    while (kernel_load_acquire(address) < value) {
        if ((++polls % WRITES_POLLS == 0) &&
            ((kernel_now_ns() > deadline_ns) || (kernel_load_relaxed(arguments.stop) >= arguments.number))) {
            return false;
        }
    }
    return true;
}

/* Bytes of the CTA's tile of rank `of`'s part in a turn, which begins at *from. */
static __device__ __forceinline__ uint64_t writes_tile(const mpath_kernel_writes_t &arguments, unsigned of,
                                                       uint64_t turn, uint64_t *from)
{
    const uint64_t at = (blockIdx.x + turn * gridDim.x) * arguments.tile_bytes, bytes = arguments.part_bytes[of];

    *from = arguments.part_offsets[of] + at;
    return (at >= bytes) ? 0 : (bytes - at < arguments.tile_bytes) ? bytes - at : arguments.tile_bytes;
}

/* The tile of each other rank's part into its memory. */
template <typename type_t>
static __device__ __forceinline__ void writes_send(const mpath_kernel_writes_t &arguments, uint64_t turn)
{
    for (unsigned i = 1; i < arguments.ranks; i++) {
        const unsigned to = (arguments.me + i) % arguments.ranks; /* all GPUs in the same order */
        uint64_t from, bytes = writes_tile(arguments, to, turn, &from), vectors = bytes / sizeof(int4);
        const auto source = reinterpret_cast<const int4 *>(arguments.send + from);
        const auto target = reinterpret_cast<int4 *>(writes_slot(arguments, to, arguments.me, turn));
        int4 held[WRITES_DEEP];

        for (uint64_t base = threadIdx.x; base < vectors; base += WRITES_DEEP * blockDim.x) {
#pragma unroll
            for (int deep = 0; deep < WRITES_DEEP; deep++) {
                if (base + deep * blockDim.x < vectors) {
                    held[deep] = __ldcs(source + base + deep * blockDim.x);
                }
            }
#pragma unroll
            for (int deep = 0; deep < WRITES_DEEP; deep++) {
                if (base + deep * blockDim.x < vectors) {
                    target[base + deep * blockDim.x] = held[deep];
                }
            }
        }
        for (uint64_t at = vectors * (sizeof(int4) / sizeof(type_t)) + threadIdx.x; at < bytes / sizeof(type_t);
             at += blockDim.x) {
            reinterpret_cast<type_t *>(target)[at] = reinterpret_cast<const type_t *>(source)[at];
        }
    }
}

/* This rank's tile: what has come and the own one, in the order of the ranks, to everybody. */
template <typename type_t, typename op_t>
static __device__ __forceinline__ void writes_combine(const mpath_kernel_writes_t &arguments, uint64_t turn)
{
    uint64_t from, bytes = writes_tile(arguments, arguments.me, turn, &from), vectors = bytes / sizeof(int4);
    const uint64_t own = arguments.send + from;

    for (uint64_t base = threadIdx.x; base < vectors; base += WRITES_DEEP * blockDim.x) {
        reduce_pack<int4, type_t> held[WRITES_DEEP], sum[WRITES_DEEP];

        for (unsigned rank = 0; rank < arguments.ranks; rank++) {
            const uint64_t source = (rank == arguments.me) ? own : writes_slot(arguments, arguments.me, rank, turn);

#pragma unroll
            for (int deep = 0; deep < WRITES_DEEP; deep++) {
                if (base + deep * blockDim.x < vectors) {
                    held[deep].vector = __ldcg(reinterpret_cast<const int4 *>(source) + base + deep * blockDim.x);
                }
            }
#pragma unroll
            for (int deep = 0; deep < WRITES_DEEP; deep++) {
                if (rank == 0) {
                    sum[deep] = held[deep];
                } else {
                    reduce_pair<int4, type_t, op_t>(sum[deep], held[deep]);
                }
            }
        }
        for (unsigned i = 0; i < arguments.ranks; i++) {
            const auto target = reinterpret_cast<int4 *>(arguments.targets[(arguments.me + i) % arguments.ranks] +
                                                         from);

#pragma unroll
            for (int deep = 0; deep < WRITES_DEEP; deep++) {
                if (base + deep * blockDim.x < vectors) {
                    target[base + deep * blockDim.x] = sum[deep].vector;
                }
            }
        }
    }
    for (uint64_t at = vectors * (sizeof(int4) / sizeof(type_t)) + threadIdx.x; at < bytes / sizeof(type_t);
         at += blockDim.x) {
        type_t sum = {};

        for (unsigned rank = 0; rank < arguments.ranks; rank++) {
            const uint64_t source = (rank == arguments.me) ? own : writes_slot(arguments, arguments.me, rank, turn);
            const type_t next     = reinterpret_cast<const volatile type_t *>(source)[at];

            sum = (rank == 0) ? next : op_t::apply(next, sum);
        }
        for (unsigned rank = 0; rank < arguments.ranks; rank++) {
            reinterpret_cast<type_t *>(arguments.targets[rank] + from)[at] = sum;
        }
    }
}

/* Turns in which there is a tile of any part. */
static __device__ __forceinline__ uint64_t writes_turns(const mpath_kernel_writes_t &arguments)
{
    uint64_t most = 0;

    for (unsigned rank = 0; rank < arguments.ranks; rank++) {
        most = (arguments.part_bytes[rank] > most) ? arguments.part_bytes[rank] : most;
    }
    return (most + arguments.tile_bytes * gridDim.x - 1) / (arguments.tile_bytes * gridDim.x);
}

template <typename type_t, typename op_t>
static __device__ __forceinline__ void writes_all(const mpath_kernel_writes_t &arguments)
{
    const uint64_t turns = writes_turns(arguments), base = arguments.number << MPATH_WRITES_TURN_BITS;
    const uint64_t deadline_ns = kernel_now_ns() + arguments.timeout_ns;
    const unsigned rank        = threadIdx.x; /* the first threads look after a rank each */
    const bool looks           = (rank < arguments.ranks) && (rank != arguments.me);

    for (uint64_t turn = 0; turn < turns + MPATH_WRITES_AHEAD; turn++) {
        const bool sends = turn < turns, combines = turn >= MPATH_WRITES_AHEAD;
        bool good = true;

        if (looks && sends && (turn >= MPATH_WRITES_DEPTH)) { /* the tile that was there before has been used */
            good = writes_await(arguments, writes_step(arguments, arguments.me, rank, 1),
                                base + turn - MPATH_WRITES_DEPTH + 1, deadline_ns);
        }
        if (looks && combines) {
            good = good && writes_await(arguments, writes_step(arguments, arguments.me, rank, 0),
                                        base + turn - MPATH_WRITES_AHEAD + 1, deadline_ns);
        }
        if (!__syncthreads_and(good)) {
            kernel_skip(arguments.control);
            return;
        }
        if (sends) {
            writes_send<type_t>(arguments, turn);
        }
        if (combines) {
            writes_combine<type_t, op_t>(arguments, turn - MPATH_WRITES_AHEAD);
        }
        __syncthreads();
        if (looks) {
            __threadfence_system();
            if (sends) {
                kernel_store_relaxed(writes_step(arguments, rank, arguments.me, 0), base + turn + 1);
            }
            if (combines) {
                kernel_store_relaxed(writes_step(arguments, rank, arguments.me, 1),
                                     base + turn - MPATH_WRITES_AHEAD + 1);
            }
        }
    }
    kernel_end(arguments.control, arguments.flags);
}

#define WRITES_KERNEL(_op, _type)                                                                                      \
    extern "C" __global__ void __launch_bounds__(MPATH_KERNEL_THREADS, 2)                                              \
        mpath_kernel_writes_##_op##_##_type(KERNEL_ARGUMENTS(mpath_kernel_writes_t))                                   \
    {                                                                                                                  \
        writes_all<mpath_reduce_##_type##_t, reduce_##_op<mpath_reduce_##_type##_t>>(arguments);                       \
    }

MPATH_WRITES_KERNELS(WRITES_KERNEL)

/* -- a ring -- */

/* The threads that wait, of other warps than the one that is held up by the fence of the step before. */
#define RING_LOOKS_BEFORE 32u
#define RING_LOOKS_BEHIND 64u

/* Words of rank `of`: what the rank before it writes, and the one behind it. */
static __device__ __forceinline__ uint64_t ring_word(const mpath_kernel_writes_t &arguments, unsigned of,
                                                     unsigned behind)
{
    return arguments.memory[of] + MPATH_WRITES_STEPS_BYTES(arguments.ranks) +
           (blockIdx.x * 2u + behind) * MPATH_RING_WORD_BYTES;
}

static __device__ __forceinline__ uint64_t ring_slot(const mpath_kernel_writes_t &arguments, unsigned of, uint64_t tile)
{
    const uint64_t slot = blockIdx.x * MPATH_RING_DEPTH + tile % MPATH_RING_DEPTH;

    return arguments.memory[of] + MPATH_WRITES_TILES_AT(arguments.ranks) + slot * arguments.tile_bytes;
}

/* A step of a CTA. */
typedef struct ring_step {
    unsigned step;  /* of the turn */
    uint64_t sent;  /* tiles to the next rank's memory before it, in all turns; as many have come before the next step */
    uint64_t bytes; /* of the tile */
    uint64_t own;   /* this rank's vector */
} ring_step_t;

/* Where a tile comes from, if not from this rank's vector alone, and where it goes. */
typedef struct ring_tile {
    uint64_t come;       /* what the rank before has written; 0: nothing, the path begins here */
    uint64_t to, result; /* at the next rank; and here, where it ends; else 0 */
    bool combines;
} ring_tile_t;

static __device__ __forceinline__ ring_tile_t ring_look(const mpath_kernel_writes_t &arguments, const ring_step_t &step)
{
    const unsigned last = arguments.ranks - 1, next = (arguments.me == last) ? 0 : arguments.me + 1;
    const uint64_t here = arguments.targets[arguments.me] + (step.own - arguments.send);
    ring_tile_t tile;

    tile.come     = (step.step == 0)     ? 0
                    : (step.step > last) ? here
                                         : ring_slot(arguments, arguments.me, step.sent - 1);
    tile.to       = (step.step < last) ? ring_slot(arguments, next, step.sent)
                                       : arguments.targets[next] + (step.own - arguments.send);
    tile.result   = (step.step == last) ? here : 0;
    tile.combines = (step.step > 0) && (step.step <= last);
    return tile;
}

/* This rank's vectors of a pass. */
template <typename type_t>
static __device__ __forceinline__ void ring_fetch(uint64_t own, unsigned base, uint64_t vectors,
                                                  reduce_pack<int4, type_t> *held)
{
#pragma unroll
    for (unsigned deep = 0; deep < MPATH_RING_DEEP; deep++) {
        const unsigned at = base + threadIdx.x + deep * blockDim.x;

        if (at < vectors) {
            held[deep].vector = kernel_load_vector(own + at * sizeof(int4));
        }
    }
}

/* The vectors of a pass; `own`: this rank's, where they are needed. */
template <typename type_t, typename op_t>
static __device__ __forceinline__ void ring_pass(const ring_tile_t &tile, unsigned base, uint64_t vectors,
                                                 reduce_pack<int4, type_t> *own)
{
    reduce_pack<int4, type_t> held[MPATH_RING_DEEP];

#pragma unroll
    for (unsigned deep = 0; deep < MPATH_RING_DEEP; deep++) {
        const unsigned at = base + threadIdx.x + deep * blockDim.x;

        if ((at < vectors) && (tile.come != 0)) {
            held[deep].vector = kernel_load_vector(tile.come + at * sizeof(int4));
        }
    }
#pragma unroll
    for (unsigned deep = 0; deep < MPATH_RING_DEEP; deep++) {
        const unsigned at = base + threadIdx.x + deep * blockDim.x;

        if (tile.combines) {
            reduce_pair<int4, type_t, op_t>(held[deep], own[deep]);
        } else if (tile.come == 0) {
            held[deep] = own[deep];
        }
        if (at < vectors) {
            reinterpret_cast<int4 *>(tile.to)[at] = held[deep].vector;
            if (tile.result != 0) {
                reinterpret_cast<int4 *>(tile.result)[at] = held[deep].vector;
            }
        }
    }
}

/* An element behind the last vector. */
template <typename type_t, typename op_t>
static __device__ __forceinline__ void ring_element(const ring_tile_t &tile, uint64_t own, uint64_t at)
{
    type_t sum;

    if (tile.come == 0) {
        sum = reinterpret_cast<const type_t *>(own)[at];
    } else {
        sum = reinterpret_cast<const volatile type_t *>(tile.come)[at];
    }
    if (tile.combines) {
        sum = op_t::apply(reinterpret_cast<const type_t *>(own)[at], sum);
    }
    reinterpret_cast<type_t *>(tile.to)[at] = sum;
    if (tile.result != 0) {
        reinterpret_cast<type_t *>(tile.result)[at] = sum;
    }
}

/* The tile of a step; `own`: this rank's vectors of the first pass, already fetched. */
template <typename type_t, typename op_t>
static __device__ __forceinline__ void ring_move(const mpath_kernel_writes_t &arguments, const ring_step_t &step,
                                                 reduce_pack<int4, type_t> *own)
{
    const ring_tile_t tile = ring_look(arguments, step);
    const uint64_t vectors = step.bytes / sizeof(int4);

    for (unsigned base = 0; base < vectors; base += MPATH_RING_DEEP * blockDim.x) {
        if ((base > 0) && (step.step < arguments.ranks)) {
            ring_fetch<type_t>(step.own, base, vectors, own);
        }
        ring_pass<type_t, op_t>(tile, base, vectors, own);
    }
    if (threadIdx.x < (step.bytes % sizeof(int4)) / sizeof(type_t)) {
        ring_element<type_t, op_t>(tile, step.own, vectors * (sizeof(int4) / sizeof(type_t)) + threadIdx.x);
    }
}

/* Until the rank before has done so many steps, and the next one has used what was in the slot; false: given up. */
static __device__ __forceinline__ bool ring_await(const mpath_kernel_writes_t &arguments, const ring_step_t &step,
                                                  uint64_t done, uint64_t deadline_ns)
{
    bool good = true;

    if ((step.step > 0) && (threadIdx.x == RING_LOOKS_BEFORE)) {
        good = writes_await(arguments, ring_word(arguments, arguments.me, 0), done, deadline_ns);
    }
    if ((step.step + 1 < arguments.ranks) && (step.sent >= MPATH_RING_DEPTH) && (threadIdx.x == RING_LOOKS_BEHIND)) {
        good = writes_await(arguments, ring_word(arguments, arguments.me, 1),
                            (arguments.number << MPATH_WRITES_TURN_BITS) + step.sent - MPATH_RING_DEPTH + 1, deadline_ns);
    }
    if (__syncthreads_and(good)) {
        return true;
    }
    kernel_skip(arguments.control);
    return false;
}

/* What a step works on; its own vectors, if it has a use for them, set out on their way. */
template <typename type_t>
static __device__ __forceinline__ ring_step_t ring_begin(const mpath_kernel_writes_t &arguments, uint64_t turn,
                                                         unsigned step, reduce_pack<int4, type_t> *own)
{
    const unsigned ranks = arguments.ranks;
    uint64_t from;
    ring_step_t next;

    next.step  = step;
    next.sent  = turn * (ranks - 1) + step;
    next.bytes = writes_tile(arguments, (arguments.me + 2 * ranks - 1 - step) % ranks, turn, &from);
    next.own   = arguments.send + from;
    if (step < ranks) {
        ring_fetch<type_t>(next.own, 0, next.bytes / sizeof(int4), own);
    }
    return next;
}

static __device__ __forceinline__ void ring_wait_until(uint64_t due_ns)
{
    if (threadIdx.x == 0) {
        while (kernel_now_ns() < due_ns) {
            __nanosleep(200);
        }
    }
    __syncthreads();
}

/* The ranks on both sides hear of a step; one thread. */
static __device__ __forceinline__ void ring_signal(const mpath_kernel_writes_t &arguments, const ring_step_t &step,
                                                   uint64_t done)
{
    const unsigned last = arguments.ranks - 1, me = arguments.me;

    kernel_fence_acq_rel();
    kernel_store_relaxed(ring_word(arguments, (me == last) ? 0 : me + 1, 0), done);
    if ((step.step > 0) && (step.step <= last)) {
        kernel_store_relaxed(ring_word(arguments, (me == 0) ? last : me - 1, 1),
                             (arguments.number << MPATH_WRITES_TURN_BITS) + step.sent);
    }
}

/*
 * A step's own vectors are fetched before the fence of the step before it. CTAs that all began at once would write, and
 * then wait, at the same time: the port would be idle meanwhile.
 */
template <typename type_t, typename op_t>
static __device__ __forceinline__ void ring_all(const mpath_kernel_writes_t &arguments)
{
    const unsigned steps = 2 * arguments.ranks - 2;
    const uint64_t turns = writes_turns(arguments), deadline_ns = kernel_now_ns() + arguments.timeout_ns;
    const uint64_t begun_ns = kernel_now_ns();
    uint64_t done        = arguments.number << MPATH_WRITES_TURN_BITS; /* of this rank's steps, in all turns */
    reduce_pack<int4, type_t> own[MPATH_RING_DEEP];
    ring_step_t step = ring_begin<type_t>(arguments, 0, 0, own);

    ring_wait_until(begun_ns + (blockIdx.x % MPATH_RING_GROUPS) * arguments.stagger_ns);
    for (uint64_t turn = 0; turn < turns;) {
        ring_step_t before;

        if (!ring_await(arguments, step, done, deadline_ns)) {
            return;
        }
        ring_move<type_t, op_t>(arguments, step, own);
        __syncthreads();
        before = step;
        turn += (step.step + 1 == steps) ? 1 : 0;
        step = ring_begin<type_t>(arguments, turn, (step.step + 1) % steps, own);
        done++;
        if (threadIdx.x == 0) {
            ring_signal(arguments, before, done);
        }
    }
    step.step = steps; /* what comes last, to stay */
    if (ring_await(arguments, step, done, deadline_ns)) {
        kernel_end(arguments.control, arguments.flags);
    }
}

#define RING_KERNEL(_op, _type)                                                                                        \
    extern "C" __global__ void __launch_bounds__(MPATH_KERNEL_THREADS, 2)                                              \
        mpath_kernel_ring_##_op##_##_type(KERNEL_ARGUMENTS(mpath_kernel_writes_t))                                     \
    {                                                                                                                  \
        ring_all<mpath_reduce_##_type##_t, reduce_##_op<mpath_reduce_##_type##_t>>(arguments);                         \
    }

MPATH_WRITES_KERNELS(RING_KERNEL)
