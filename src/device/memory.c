/* SPDX-License-Identifier: BSD-3-Clause */
/* What holds a buffer, as the driver tells of it. */
#include "config.h"

#include "device/memory.h"

#include "util/process.h"

#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

const char *mpath_memory_kind_name(mpath_memory_kind_t kind)
{
    static const char *const names[] = {"host", "registered", "device", "pool", "vmm", "managed"};

    return ((unsigned)kind < sizeof(names) / sizeof(names[0])) ? names[kind] : "unknown";
}

/* What stays where it is while the program runs: the segments of its variables, and the beginning of its heap. */
#define PROGRAM_SEGMENTS 4

static struct {
    pthread_once_t once;
    struct {
        uintptr_t begin, end;
    } segments[PROGRAM_SEGMENTS];
    int num_segments;
    uintptr_t heap; /* UINTPTR_MAX: nobody tells where it begins */
} program = {.once = PTHREAD_ONCE_INIT};

static int program_add_segments(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    (void)argument;
    for (int i = 0; i < info->dlpi_phnum && program.num_segments < PROGRAM_SEGMENTS; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin          = (uintptr_t)(info->dlpi_addr + header->p_vaddr);

        if (header->p_type == PT_LOAD && (header->p_flags & PF_W) != 0) {
            program.segments[program.num_segments].begin = begin;
            program.segments[program.num_segments++].end = begin + header->p_memsz;
        }
    }
    return 1; /* the first object is the program */
}

static void program_look(void)
{
    dl_iterate_phdr(program_add_segments, NULL);
    program.heap = mpath_process_heap();
}

/* The word behind sbrk(0) of the GNU C library: UCX takes that function over, which then is no longer short. */
extern char *__curbrk __attribute__((weak));

/* 0: it is not known. */
static inline uintptr_t program_break(void)
{
    return &__curbrk != NULL ? (uintptr_t)__atomic_load_n(&__curbrk, __ATOMIC_RELAXED) : 0;
}

int mpath_memory_is_programs(const void *address, size_t bytes)
{
    uintptr_t begin = (uintptr_t)address, end = begin + bytes;

    pthread_once(&program.once, program_look);
    if (end >= begin && begin >= program.heap && end <= program_break()) {
        return 1;
    }
    for (int i = 0; i < program.num_segments; i++) {
        if (end >= begin && begin >= program.segments[i].begin && end <= program.segments[i].end) {
            return 1;
        }
    }
    return 0;
}

mpath_status_t mpath_memory_block(uint64_t address, mpath_memory_block_t *block)
{
    const mpath_device_ops_t *ops = mpath_device();

    return ((ops != NULL) && (ops->memory_block != NULL)) ? ops->memory_block(address, block) : MPATH_ERR_PARAM;
}

/* Counts the mappings under a VMM buffer; 0: it reaches beyond mapped memory or onto another device. */
static int memory_count_blocks(uint64_t end, const mpath_memory_t *memory)
{
    uint64_t at = memory->base + memory->bytes;
    mpath_memory_block_t block;
    int blocks;

    for (blocks = 1; at < end; blocks++) {
        if ((mpath_memory_block(at, &block) != MPATH_OK) || (block.base != at) || (block.device != memory->device)) {
            return 0;
        }
        at += block.bytes;
    }
    return blocks;
}

mpath_status_t mpath_memory_find(const void *address, size_t bytes, mpath_memory_t *memory)
{
    const mpath_device_ops_t *ops = mpath_device();
    uint64_t at                   = (uint64_t)(uintptr_t)address;
    mpath_memory_t made           = {.kind = MPATH_MEMORY_HOST, .device = -1};
    mpath_device_result_t result;

    if ((ops == NULL) || (address == NULL) || (bytes == 0)) {
        *memory = made;
        return MPATH_OK;
    }
    result = ops->memory_find(at, &made);
    if (result != MPATH_DEVICE_DONE) {
        mpath_error("the %s driver does not tell what the buffer at %p is: %s: %s", ops->name, address,
                    ops->failed_call(), ops->error_string(result));
        return mpath_device_status(result);
    }
    if (!mpath_memory_on_host(made.kind)) {
        made.blocks = 1;
        if (bytes > made.bytes - (at - made.base)) {
            made.blocks = (made.kind == MPATH_MEMORY_VMM) ? memory_count_blocks(at + bytes, &made) : 0;
        }
    }
    *memory = made;
    return MPATH_OK;
}

mpath_status_t mpath_memory_classify(const void *address, size_t bytes, mpath_memory_t *memory)
{
    mpath_memory_t made;
    mpath_status_t status = mpath_memory_find(address, bytes, &made);

    if (status != MPATH_OK) {
        return status;
    }
    if (!mpath_memory_on_host(made.kind) && (made.blocks == 0)) {
        mpath_error("the buffer of %zu bytes at %p reaches beyond its allocation in %s memory of GPU %d: %" PRIu64
                    " bytes at 0x%" PRIx64,
                    bytes, address, mpath_memory_kind_name(made.kind), made.device, made.bytes, made.base);
        return MPATH_ERR_PARAM;
    }
    *memory = made;
    return MPATH_OK;
}

/* See device/memory.h. */

void mpath_memory_is_slow(int rank, const char *side, const mpath_memory_t *memory)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    if (memory->exportable || atomic_flag_test_and_set(&warned)) {
        return;
    }
    mpath_warn("rank %d: the %s buffer is %s memory that other processes cannot open; it goes through host memory, at "
               "about a tenth of the speed. Memory of cudaMalloc, or of a pool or cuMemCreate with POSIX file "
               "descriptor handles, goes from GPU to GPU",
               rank, side, mpath_memory_kind_name(memory->kind));
}
