/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions of vectors in parts, each combined by one GPU and sent to all at once, with numbers among the bytes: see
 * device/kernels/reduce_eager_args.h. Included by kernels.cu, behind reduce_eager.cuh.
 */

/* Lanes' packs of three units: of a thread, and of ranks, that are under way together. */
#define PARTS_DEEP 2
#define PARTS_SLOTS 8
#define PARTS_PACK 3

/* Vectors that memory is lent for have far less than 2^32 groups, and divisions of 64 bits take long. */
typedef struct parts_call {
    uint64_t number;
    uint64_t vectors, results; /* where their slots begin in a rank's memory */
    unsigned groups, total;    /* of a part, of the vector */
    unsigned warp, warps;      /* of the grid; the first ones are of different CTAs */
    unsigned lane;
} parts_call_t;

static __device__ __forceinline__ void parts_store(uint64_t address, const uint64_t *units, uint64_t number)
{
    kernel_store_unit(address, units[0], (number << 32) | (units[2] & 0xffffffffu));
    kernel_store_unit(address + MPATH_EAGER_LANES * 16u, units[1], (number << 32) | (units[2] >> 32));
}

/* Whether the pack has come. */
static __device__ __forceinline__ bool parts_load(uint64_t address, uint64_t *units, uint64_t number)
{
    uint64_t low, high;

    kernel_load_unit(address, &units[0], &low);
    kernel_load_unit(address + MPATH_EAGER_LANES * 16u, &units[1], &high);
    units[2] = (low & 0xffffffffu) | (high << 32);
    return ((low >> 32) == (number & 0xffffffffu)) && ((high >> 32) == (number & 0xffffffffu));
}

/* Until the packs at `from` (0: none) have come to all lanes; false: that takes too long. All lanes of the warp. */
template <unsigned count>
static __device__ __forceinline__ bool parts_await(const uint64_t (&from)[count], const parts_call_t &call,
                                                   uint64_t patience_ns, uint64_t (&held)[count][PARTS_PACK])
{
    uint64_t since_ns = 0;
    unsigned polls    = 0;
    bool all, good = true;

    do {
        all = true;
#pragma unroll
        for (unsigned i = 0; i < count; i++) {
            if (from[i] != 0) {
                all = parts_load(from[i], held[i], call.number) && all;
            }
        }
        if (!all && (++polls % EAGER_POLLS == 0)) {
            const uint64_t now_ns = kernel_now_ns();

            since_ns = (since_ns == 0) ? now_ns : since_ns;
            good     = now_ns - since_ns <= patience_ns;
        }
    } while (!all && good);
    return __all_sync(0xffffffffu, good);
}

/* A lane's unit of a group, in the vector. */
static __device__ __forceinline__ uint64_t parts_unit(const parts_call_t &call, unsigned part, unsigned group,
                                                      unsigned k)
{
    return (static_cast<uint64_t>(part * call.groups + group) * PARTS_PACK + k) * MPATH_EAGER_LANES + call.lane;
}

static __device__ __forceinline__ bool parts_has(const parts_call_t &call, unsigned part, unsigned group)
{
    return (group < call.groups) && (part * call.groups + group < call.total);
}

/* A lane's place in the slot of a rank. */
static __device__ __forceinline__ uint64_t parts_place(const mpath_kernel_eager_t &arguments, const parts_call_t &call,
                                                       unsigned rank, unsigned group)
{
    return rank * arguments.slot_bytes + static_cast<uint64_t>(group) * MPATH_EAGER_GROUP_SLOT_BYTES + call.lane * 16u;
}

/* To every rank its part of the own vector. */
template <typename type_t>
static __device__ __forceinline__ void parts_send(const mpath_kernel_eager_t &arguments, const parts_call_t &call)
{
    const unsigned jobs = call.groups * arguments.ranks;

    for (unsigned first = call.warp; first < jobs; first += PARTS_DEEP * call.warps) {
        uint64_t held[PARTS_DEEP][PARTS_PACK], to[PARTS_DEEP];

#pragma unroll
        for (unsigned deep = 0; deep < PARTS_DEEP; deep++) {
            const unsigned job = first + deep * call.warps, group = job / arguments.ranks;
            const unsigned part = (arguments.me + 1 + job % arguments.ranks) % arguments.ranks;

            to[deep] = 0;
            if (parts_has(call, part, group)) {
                to[deep] = arguments.memory[part] + call.vectors + parts_place(arguments, call, arguments.me, group);
#pragma unroll
                for (unsigned k = 0; k < PARTS_PACK; k++) {
                    held[deep][k] = eager_fetch<type_t>(arguments, parts_unit(call, part, group, k));
                }
            }
        }
#pragma unroll
        for (unsigned deep = 0; deep < PARTS_DEEP; deep++) {
            if (to[deep] != 0) {
                parts_store(to[deep], held[deep], call.number);
            }
        }
    }
}

template <typename type_t>
static __device__ __forceinline__ void parts_keep(const mpath_kernel_eager_t &arguments, const parts_call_t &call,
                                                  unsigned part, unsigned group, const uint64_t *units)
{
#pragma unroll
    for (unsigned k = 0; k < PARTS_PACK; k++) {
        eager_unit<type_t> unit;

        unit.bytes = units[k];
        eager_keep<type_t>(arguments, parts_unit(call, part, group, k), unit);
    }
}

/* One rank's units into the sum. */
template <typename type_t, typename op_t>
static __device__ __forceinline__ void parts_add(uint64_t *sum, const uint64_t *held)
{
#pragma unroll
    for (unsigned k = 0; k < PARTS_PACK; k++) {
        eager_unit<type_t> into, next;

        into.bytes = sum[k];
        next.bytes = held[k];
#pragma unroll
        for (unsigned at = 0; at < MPATH_EAGER_UNIT_BYTES / sizeof(type_t); at++) {
            into.elements[at] = op_t::apply(next.elements[at], into.elements[at]);
        }
        sum[k] = into.bytes;
    }
}

/* A group of the own part, in the order of the ranks; to all, and to its place. */
template <typename type_t, typename op_t>
static __device__ __forceinline__ bool parts_combine(const mpath_kernel_eager_t &arguments, const parts_call_t &call,
                                                     unsigned group)
{
    const uint64_t own = arguments.memory[arguments.me] + call.vectors;
    uint64_t held[PARTS_SLOTS][PARTS_PACK], from[PARTS_SLOTS], sum[PARTS_PACK];

    for (unsigned first = 0; first < arguments.ranks; first += PARTS_SLOTS) {
#pragma unroll
        for (unsigned slot = 0; slot < PARTS_SLOTS; slot++) {
            from[slot] =
                (first + slot < arguments.ranks) ? own + parts_place(arguments, call, first + slot, group) : 0;
        }
        if (!parts_await(from, call, arguments.patience_ns, held)) {
            return false;
        }
#pragma unroll
        for (unsigned slot = 0; slot < PARTS_SLOTS; slot++) {
            if ((first == 0) && (slot == 0)) {
#pragma unroll
                for (unsigned k = 0; k < PARTS_PACK; k++) {
                    sum[k] = held[0][k];
                }
            } else if (first + slot < arguments.ranks) {
                parts_add<type_t, op_t>(sum, held[slot]);
            }
        }
    }
    for (unsigned i = 1; i < arguments.ranks; i++) { /* GPUs begin with different ones */
        parts_store(arguments.memory[(arguments.me + i) % arguments.ranks] + call.results +
                        parts_place(arguments, call, arguments.me, group),
                    sum, call.number);
    }
    parts_keep<type_t>(arguments, call, arguments.me, group, sum);
    return true;
}

/* The other ranks' parts of the result, to their places. */
template <typename type_t>
static __device__ __forceinline__ bool parts_receive(const mpath_kernel_eager_t &arguments, const parts_call_t &call)
{
    const uint64_t own    = arguments.memory[arguments.me] + call.results;
    const unsigned others = arguments.ranks - 1;

    for (unsigned first = call.warp; first < call.groups * others; first += PARTS_DEEP * call.warps) {
        uint64_t held[PARTS_DEEP][PARTS_PACK], from[PARTS_DEEP];
        unsigned part[PARTS_DEEP], group[PARTS_DEEP];

#pragma unroll
        for (unsigned deep = 0; deep < PARTS_DEEP; deep++) {
            const unsigned job = first + deep * call.warps;

            group[deep] = job / others;
            part[deep]  = (arguments.me + 1 + job % others) % arguments.ranks;
            from[deep]  = parts_has(call, part[deep], group[deep])
                              ? own + parts_place(arguments, call, part[deep], group[deep])
                              : 0;
        }
        if (!parts_await(from, call, arguments.patience_ns, held)) {
            return false;
        }
#pragma unroll
        for (unsigned deep = 0; deep < PARTS_DEEP; deep++) {
            if (from[deep] != 0) {
                parts_keep<type_t>(arguments, call, part[deep], group[deep], held[deep]);
            }
        }
    }
    return true;
}

template <typename type_t, typename op_t>
static __device__ __forceinline__ void parts_all(const mpath_kernel_eager_t &arguments)
{
    const uint64_t bytes = arguments.elements * sizeof(type_t);
    bool good            = true;
    parts_call_t call;

    call.number  = eager_number(arguments.number, arguments.memory[arguments.me]);
    call.groups  = static_cast<unsigned>(MPATH_EAGER_PART_GROUPS(arguments.ranks, bytes));
    call.total   = static_cast<unsigned>(MPATH_EAGER_GROUPS(bytes));
    call.vectors = MPATH_EAGER_COUNTERS_BYTES + (call.number & 1) * 2 * arguments.ranks * arguments.slot_bytes;
    call.results = call.vectors + arguments.ranks * arguments.slot_bytes;
    call.lane    = threadIdx.x % MPATH_EAGER_LANES;
    call.warp    = threadIdx.x / MPATH_EAGER_LANES * gridDim.x + blockIdx.x;
    call.warps   = gridDim.x * blockDim.x / MPATH_EAGER_LANES;
    if (!arguments.again) {
        parts_send<type_t>(arguments, call);
    }
    for (unsigned group = call.warp; good && parts_has(call, arguments.me, group); group += call.warps) {
        good = parts_combine<type_t, op_t>(arguments, call, group);
    }
    good = good && parts_receive<type_t>(arguments, call);
    eager_end(arguments.memory[arguments.me], arguments.words, call.number, good);
}

#define EAGER_PARTS_KERNEL(_op, _type)                                                                                 \
    extern "C" __global__ void __launch_bounds__(MPATH_KERNEL_THREADS)                                                 \
        mpath_kernel_eager_parts_##_op##_##_type(KERNEL_ARGUMENTS(mpath_kernel_eager_t))                               \
    {                                                                                                                  \
        parts_all<mpath_reduce_##_type##_t, reduce_##_op<mpath_reduce_##_type##_t>>(arguments);                        \
    }

MPATH_EAGER_KERNELS(EAGER_PARTS_KERNEL)
