/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath's kernels, compiled for the host from their own sources. Before one runs, its arguments are looked at as far as CUDA
 * leaves misuse undefined, and each address becomes the place where its bytes lie: that is at the same distance everywhere in
 * an allocation.
 */
#include "fake_kernel.h"
#include "nvcc.h"

#include "device/kernels/kernels.cu"

#include <cstring>

/* Who launches what. */
struct launch_t {
    const struct mpath_device_context *context;
    unsigned ctas, threads;
    uint64_t element_bytes, alignment;
    const char *name;
};

/* -- addresses -- */

/* How far from `address` on the bytes lie that begin `skip` behind it. */
static uint64_t distance(const launch_t &launch, uint64_t address, uint64_t skip, uint64_t bytes, uint64_t alignment)
{
    if (address % alignment != 0) {
        fake_die("%s was told of 0x%llx, which is no multiple of %llu", launch.name,
                 static_cast<unsigned long long>(address), static_cast<unsigned long long>(alignment));
    }
    return reinterpret_cast<uint64_t>(fake_bytes(address + skip, bytes, launch.context, FAKE_BY_KERNEL, launch.name)) -
           (address + skip);
}

static void reach(const launch_t &launch, uint64_t &address, uint64_t bytes, uint64_t alignment)
{
    if (bytes > 0) {
        address += distance(launch, address, 0, bytes, alignment);
    }
}

/* `address` is where a vector begins, of which the kernel uses some parts. */
static void reach_parts(const launch_t &launch, uint64_t &address, const uint64_t *offsets, const uint64_t *bytes,
                        unsigned count)
{
    uint64_t far = 0;

    for (unsigned i = 0; i < count; i++) {
        far = (bytes[i] > 0) ? distance(launch, address, offsets[i], bytes[i], 16) : far;
    }
    address += far;
}

static void reach_flags(const launch_t &launch, mpath_kernel_word_t *flags, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        reach(launch, flags[i].address, 8, 8);
    }
}

static void reach_control(const launch_t &launch, mpath_kernel_control_t &control)
{
    const mpath_kernel_counters_t *counters;

    reach(launch, control.counters, sizeof(*counters), 8);
    counters = reinterpret_cast<const mpath_kernel_counters_t *>(control.counters);
    if (control.ctas != launch.ctas || control.arrivals != counters->arrivals + launch.ctas) {
        fake_die("%s, of %u CTAs, was told of %u and to expect %llu arrivals after %llu", launch.name, launch.ctas,
                 control.ctas, static_cast<unsigned long long>(control.arrivals),
                 static_cast<unsigned long long>(counters->arrivals));
    }
}

/* -- the arguments of each family -- */

template <typename arguments_t> static void look_copy(const launch_t &launch, arguments_t &arguments, unsigned most)
{
    uint64_t bytes = 0;

    if (arguments.fragments_count > most || launch.threads != MPATH_KERNEL_THREADS) {
        fake_die("%s has %u fragments and %u threads", launch.name, arguments.fragments_count, launch.threads);
    }
    for (uint32_t i = 0; i < arguments.fragments_count; i++) {
        bytes += arguments.fragments[i].bytes;
        reach(launch, arguments.fragments[i].target, arguments.fragments[i].bytes, 1);
        reach(launch, arguments.fragments[i].source, arguments.fragments[i].bytes, 1);
    }
    if (bytes != arguments.bytes) {
        fake_die("%s was told of %llu bytes, its fragments have %llu", launch.name,
                 static_cast<unsigned long long>(arguments.bytes), static_cast<unsigned long long>(bytes));
    }
    reach_flags(launch, arguments.flags, arguments.control.flags_count);
}

static void look(const launch_t &launch, mpath_kernel_copy_t &arguments)
{
    reach_control(launch, arguments.control);
    look_copy(launch, arguments, MPATH_KERNEL_FRAGMENTS_MAX);
}

static void look(const launch_t &launch, mpath_kernel_copy_few_t &arguments)
{
    reach_control(launch, arguments.control);
    look_copy(launch, arguments, MPATH_KERNEL_FRAGMENTS_FEW);
}

static void look(const launch_t &launch, mpath_kernel_copy_again_t &arguments)
{
    if (arguments.control.ctas != launch.ctas || arguments.control.flags_count != 1) {
        fake_die("%s, of %u CTAs, was told of %u, and %u flags", launch.name, launch.ctas, arguments.control.ctas,
                 arguments.control.flags_count);
    }
    reach(launch, arguments.control.counters, sizeof(mpath_kernel_counters_t), 8);
    reach(launch, arguments.number, 8, 8);
    look_copy(launch, arguments, MPATH_KERNEL_FRAGMENTS_FEW);
}

static void look(const launch_t &launch, mpath_kernel_reduce_t &arguments)
{
    const uint64_t bytes = arguments.elements * launch.element_bytes;

    if (launch.threads % 32 != 0 || launch.threads < 32 || launch.threads > MPATH_KERNEL_THREADS ||
        arguments.sources_count < 1 || arguments.elements < 1 || arguments.sources_count > MPATH_KERNEL_REDUCE_RANKS ||
        arguments.targets_count > MPATH_KERNEL_REDUCE_RANKS) {
        fake_die("%s has %u threads, %u sources, %u targets and %llu elements", launch.name, launch.threads,
                 arguments.sources_count, arguments.targets_count, static_cast<unsigned long long>(arguments.elements));
    }
    if (arguments.number != 0) {
        reach(launch, arguments.counters, sizeof(mpath_kernel_counters_t), 8);
        reach(launch, arguments.number, 8, 8);
    } else {
        reach_control(launch, arguments.control);
    }
    reach_flags(launch, arguments.flags, arguments.control.flags_count);
    for (uint32_t i = 0; i < arguments.sources_count; i++) {
        reach(launch, arguments.sources[i], bytes, launch.alignment);
    }
    for (uint32_t i = 0; i < arguments.targets_count; i++) {
        reach(launch, arguments.targets[i], bytes, launch.alignment);
    }
}

/* What both kernels that only write have in common. */
static void look_writes(const launch_t &launch, mpath_kernel_writes_t &arguments)
{
    if (launch.threads != MPATH_KERNEL_THREADS || arguments.tile_bytes % 16 != 0 || arguments.send % 16 != 0) {
        fake_die("%s has %u threads, %u CTAs and tiles of %llu bytes", launch.name, launch.threads, launch.ctas,
                 static_cast<unsigned long long>(arguments.tile_bytes));
    }
    reach_control(launch, arguments.control);
    reach_flags(launch, arguments.flags, arguments.control.flags_count);
    reach(launch, arguments.stop, 8, 8);
    reach_parts(launch, arguments.send, arguments.part_offsets, arguments.part_bytes, arguments.ranks);
}

static void look(const launch_t &launch, mpath_kernel_writes_t &arguments)
{
    const unsigned me = arguments.me;

    if (launch.ctas != MPATH_WRITES_CTAS) {
        fake_die("%s has %u CTAs", launch.name, launch.ctas);
    }
    look_writes(launch, arguments);
    for (unsigned rank = 0; rank < arguments.ranks; rank++) {
        reach_parts(launch, arguments.targets[rank], &arguments.part_offsets[me], &arguments.part_bytes[me], 1);
        reach(launch, arguments.memory[rank], MPATH_WRITES_MEMORY_BYTES(arguments.ranks, arguments.tile_bytes), 16);
    }
}

/* Arguments of the same layout, for another kernel. */
struct ring_t : mpath_kernel_writes_t {
};

static void look(const launch_t &launch, ring_t &arguments)
{
    const unsigned ranks = arguments.ranks, me = arguments.me, next = (me + 1) % ranks,
                   before = (me + ranks - 1) % ranks;

    if (launch.ctas > MPATH_RING_CTAS || arguments.tile_bytes > MPATH_RING_TILE_MAX) {
        fake_die("%s has %u CTAs and tiles of %llu bytes", launch.name, launch.ctas,
                 static_cast<unsigned long long>(arguments.tile_bytes));
    }
    look_writes(launch, arguments);
    for (unsigned rank = 0; rank < ranks; rank++) {
        if (rank == me || rank == next) {
            reach_parts(launch, arguments.targets[rank], arguments.part_offsets, arguments.part_bytes, ranks);
        }
        if (rank == me || rank == next || rank == before) {
            reach(launch, arguments.memory[rank],
                  MPATH_WRITES_TILES_AT(ranks) + launch.ctas * MPATH_RING_DEPTH * arguments.tile_bytes, 16);
        }
    }
}

/* `sends`: to the others' memory. */
static void look_eager(const launch_t &launch, mpath_kernel_eager_t &arguments, bool sends, uint64_t slot_bytes,
                       uint64_t memory_bytes)
{
    const uint64_t bytes = arguments.elements * launch.element_bytes;

    if (launch.threads != MPATH_KERNEL_THREADS || launch.ctas < 1 || launch.ctas > MPATH_EAGER_CTAS ||
        arguments.ranks < 2 || arguments.me >= arguments.ranks || arguments.ranks > MPATH_KERNEL_REDUCE_RANKS ||
        slot_bytes > arguments.slot_bytes || arguments.slot_bytes % 16 != 0) {
        fake_die("%s has %u threads, %u CTAs, %u ranks and slots of %llu bytes for %llu", launch.name, launch.threads,
                 launch.ctas, arguments.ranks, static_cast<unsigned long long>(arguments.slot_bytes),
                 static_cast<unsigned long long>(slot_bytes));
    }
    if (!arguments.again) {
        reach(launch, arguments.send, bytes, launch.element_bytes);
    }
    reach(launch, arguments.recv, bytes, launch.element_bytes);
    reach(launch, arguments.words, launch.ctas * 8u, 8);
    for (unsigned rank = 0; rank < arguments.ranks; rank++) {
        if (rank == arguments.me || sends) {
            reach(launch, arguments.memory[rank], memory_bytes, 16);
        }
    }
}

static void look(const launch_t &launch, mpath_kernel_eager_t &arguments)
{
    look_eager(launch, arguments, !arguments.again, MPATH_EAGER_SLOT_BYTES(arguments.elements * launch.element_bytes),
               MPATH_EAGER_MEMORY_BYTES(arguments.ranks, arguments.slot_bytes));
}

struct parts_t : mpath_kernel_eager_t {
};

static void look(const launch_t &launch, parts_t &arguments)
{
    look_eager(launch, arguments, true,
               MPATH_EAGER_PARTS_SLOT_BYTES(arguments.ranks, arguments.elements * launch.element_bytes),
               MPATH_EAGER_PARTS_MEMORY_BYTES(arguments.ranks, arguments.slot_bytes));
}

/* A slot, of even and of odd calls. */
static void reach_slot(const launch_t &launch, const mpath_kernel_exchange_t &arguments, uint64_t &address,
                       uint64_t bytes)
{
    if (bytes > 0) {
        uint64_t odd = address + arguments.generation_bytes;

        reach(launch, odd, MPATH_EAGER_SLOT_BYTES(bytes), 16);
        reach(launch, address, MPATH_EAGER_SLOT_BYTES(bytes), 16);
    }
}

static void check_ends(const launch_t &launch, const mpath_kernel_message_t *messages, uint32_t count)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < count; i++) {
        end += MPATH_EAGER_UNITS(messages[i].bytes);
        if (messages[i].end != end) {
            fake_die("message %u of %s ends at unit %llu, not %llu", i, launch.name,
                     static_cast<unsigned long long>(messages[i].end), static_cast<unsigned long long>(end));
        }
    }
}

static void look(const launch_t &launch, mpath_kernel_exchange_t &arguments)
{
    const uint32_t last = arguments.receive_count - 1;
    const uint64_t end  = arguments.memory + sizeof(mpath_exchange_head_t) + arguments.generation_bytes;

    if (launch.threads != MPATH_KERNEL_THREADS || launch.ctas < 1 || launch.ctas > MPATH_EAGER_CTAS ||
        arguments.send_count >= MPATH_EXCHANGE_RANKS || arguments.receive_count < 1 ||
        arguments.receive_count > MPATH_EXCHANGE_RANKS) {
        fake_die("%s has %u threads, %u CTAs, %u messages to send and %u to receive", launch.name, launch.threads,
                 launch.ctas, arguments.send_count, arguments.receive_count);
    }
    check_ends(launch, arguments.send, arguments.send_count);
    check_ends(launch, arguments.receive, arguments.receive_count);
    for (uint32_t i = 0; i < arguments.send_count && !arguments.again; i++) {
        reach(launch, arguments.send[i].source, arguments.send[i].bytes, 1);
        reach_slot(launch, arguments, arguments.send[i].target, arguments.send[i].bytes);
    }
    for (uint32_t i = 0; i <= last; i++) {
        mpath_kernel_message_t &message = arguments.receive[i];

        reach(launch, message.target, message.bytes, 1);
        if (i == last) {
            reach(launch, message.source, message.bytes, 1);
        } else if (message.source + MPATH_EAGER_SLOT_BYTES(message.bytes) >
                   end) { /* those of odd calls are behind them */
            fake_die("slot %u of %s ends %llu bytes after those of the call", i, launch.name,
                     static_cast<unsigned long long>(message.source + MPATH_EAGER_SLOT_BYTES(message.bytes) - end));
        } else {
            reach_slot(launch, arguments, message.source, message.bytes);
        }
    }
    reach(launch, arguments.memory, sizeof(mpath_exchange_head_t), 16);
    reach(launch, arguments.words, launch.ctas * 8u, 8);
}

/* -- the least threads of a CTA, as many as have something of their own to do -- */

template <typename arguments_t> static unsigned threads_least(const arguments_t &)
{
    return MPATH_KERNEL_FLAGS_MAX; /* one for each flag; more than ranks */
}

static unsigned threads_least(const mpath_kernel_eager_t &)
{
    return MPATH_EAGER_CTAS; /* one for each counter */
}

static unsigned threads_least(const parts_t &)
{
    return MPATH_EAGER_CTAS;
}

static unsigned threads_least(const mpath_kernel_exchange_t &)
{
    return MPATH_EAGER_CTAS;
}

static unsigned threads_least(const ring_t &)
{
    return RING_LOOKS_BEHIND + 32; /* a warp each waits for the rank before it and for the next one */
}

/* -- the table -- */

template <typename arguments_t, typename told_t, void (*kernel)(const told_t &)> static void body(const void *arguments)
{
    kernel(*static_cast<const arguments_t *>(arguments));
}

/* `told_t`: what the kernel takes; `arguments_t`: that, or a name of its own for the same. */
template <typename arguments_t, typename told_t, typename type_t, void (*kernel)(const told_t &)>
static void run(const struct mpath_device_context *context, const char *name, const void *given, unsigned ctas,
                unsigned threads)
{
    const launch_t launch = {context, ctas, threads, sizeof(type_t), alignof(type_t), name};
    arguments_t arguments;

    static_cast<told_t &>(arguments) = *static_cast<const told_t *>(given);
    look(launch, arguments);
    fake_grid_run(body<arguments_t, told_t, kernel>, &arguments, ctas, threads, threads_least(arguments));
}

#define COPY_ROW(_name, _arguments, _kernel) {_name, sizeof(_arguments), run<_arguments, _arguments, char, _kernel>},

#define REDUCE_ROW(_op, _type)                                                                                         \
    {MPATH_KERNEL_REDUCE #_op "_" #_type, sizeof(mpath_kernel_reduce_t),                                               \
     run<mpath_kernel_reduce_t, mpath_kernel_reduce_t, mpath_reduce_##_type##_t,                                       \
         mpath_kernel_reduce_##_op##_##_type>},

#define WRITES_ROW(_op, _type)                                                                                         \
    {MPATH_KERNEL_WRITES #_op "_" #_type, sizeof(mpath_kernel_writes_t),                                               \
     run<mpath_kernel_writes_t, mpath_kernel_writes_t, mpath_reduce_##_type##_t,                                       \
         mpath_kernel_writes_##_op##_##_type>},

#define RING_ROW(_op, _type)                                                                                           \
    {MPATH_KERNEL_RING #_op "_" #_type, sizeof(mpath_kernel_writes_t),                                                 \
     run<ring_t, mpath_kernel_writes_t, mpath_reduce_##_type##_t, mpath_kernel_ring_##_op##_##_type>},

#define EAGER_ROW(_op, _type)                                                                                          \
    {MPATH_KERNEL_EAGER #_op "_" #_type, sizeof(mpath_kernel_eager_t),                                                 \
     run<mpath_kernel_eager_t, mpath_kernel_eager_t, mpath_reduce_##_type##_t, mpath_kernel_eager_##_op##_##_type>},

#define PARTS_ROW(_op, _type)                                                                                          \
    {MPATH_KERNEL_EAGER_PARTS #_op "_" #_type, sizeof(mpath_kernel_eager_t),                                           \
     run<parts_t, mpath_kernel_eager_t, mpath_reduce_##_type##_t, mpath_kernel_eager_parts_##_op##_##_type>},

static const struct mpath_device_function kernels[] = {
    COPY_ROW(MPATH_KERNEL_COPY, mpath_kernel_copy_t, mpath_kernel_copy)
        COPY_ROW(MPATH_KERNEL_COPY_FEW, mpath_kernel_copy_few_t, mpath_kernel_copy_few)
            COPY_ROW(MPATH_KERNEL_COPY_AGAIN, mpath_kernel_copy_again_t, mpath_kernel_copy_again)
                COPY_ROW(MPATH_KERNEL_EXCHANGE, mpath_kernel_exchange_t, mpath_kernel_exchange)
                    MPATH_REDUCE_KERNELS(REDUCE_ROW) MPATH_WRITES_KERNELS(WRITES_ROW) MPATH_WRITES_KERNELS(RING_ROW)
                        MPATH_EAGER_KERNELS(EAGER_ROW) MPATH_EAGER_KERNELS(PARTS_ROW)};

const struct mpath_device_function *fake_kernel(const char *name)
{
    for (const struct mpath_device_function &kernel : kernels) {
        if (strcmp(kernel.name, name) == 0) {
            return &kernel;
        }
    }
    return nullptr;
}
