/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the fake driver and the kernels, which are C++, have in common. A kernel's threads are stacks that one thread of the
 * host changes between: a thread runs until it waits, for the others of its CTA, of its warp, or for what others write.
 */
#ifndef FAKE_CUDA_FAKE_KERNEL_H
#define FAKE_CUDA_FAKE_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mpath_device_context;

/* Runs to its end. The arguments' addresses are those of the device. */
struct mpath_device_function {
    const char *name;
    size_t arguments_bytes;
    void (*run)(const struct mpath_device_context *context, const char *name, const void *arguments, unsigned ctas,
                unsigned threads);
};

/* NULL when there is none of that name. */
const struct mpath_device_function *fake_kernel(const char *name);

void fake_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

typedef enum fake_user { FAKE_BY_COPY, FAKE_BY_KERNEL } fake_user_t;
/* Where the bytes lie; dies when they may not be used so. The lock is taken inside. */
char *fake_bytes(uint64_t address, uint64_t bytes, const struct mpath_device_context *context, fake_user_t user,
                 const char *what);

/* -- CTAs and their threads -- */

/*
 * Runs `kernel` in CTAs of `threads`, a multiple of 32. CTAs begin in their order, the next one once all threads of those
 * before it have ended or wait. Where they are many they have fewer threads, for the host has to run one after the other, but
 * `least`, with which the kernel does its work, at least.
 */
void fake_grid_run(void (*kernel)(const void *arguments), const void *arguments, unsigned ctas, unsigned threads,
                   unsigned least);

/* Where a thread is. */
typedef struct fake_place {
    struct {
        unsigned x;
    } thread, block, block_size, grid_size;
} fake_place_t;

extern __thread const fake_place_t *fake_here __attribute__((visibility("hidden")));

/* For all threads of the CTA, or of the warp, that have not ended: whether `good` is nonzero in each. */
int fake_block_all(int good);
int fake_warp_all(int good);
/*
 * A look for what others write. From the second one on the others get their turn first; where none of them gets on, the
 * host's other threads do.
 */
void fake_poll(void);

#ifdef __cplusplus
}
#endif
#endif
