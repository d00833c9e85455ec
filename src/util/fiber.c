/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fibers by makecontext() and swapcontext(). Sanitizers are told about every change of stack. Nothing that is local to
 * a thread is read after a change: the compiler may keep its address, and the thread may be another one.
 */
#include "util/fiber.h"
#include "util/log.h"
#include "util/time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
#endif

#ifdef FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define FIBER_SLICE_NS 100000u /* about as long as a call may take that only tests for completion */

struct mpath_fiber {
    ucontext_t own, caller;
    mpath_fiber_body_t body;
    void *argument;
    mpath_fiber_state_t state;
    int ending;
    uint64_t slice_end_ns;
    char *stack; /* above the guard page */
    size_t stack_bytes, guard_bytes;
#ifdef FIBER_ASAN
    void *own_fake, *caller_fake;
    const void *caller_stack;
    size_t caller_bytes;
#endif
#ifdef FIBER_TSAN
    void *own_tsan, *caller_tsan;
#endif
};

static _Thread_local mpath_fiber_t *fiber_current;

/* -- changes of stack, with what sanitizers have to know -- */

static void enter(mpath_fiber_t *fiber)
{
#ifdef FIBER_TSAN
    fiber->caller_tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->own_tsan, 0);
#endif
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&fiber->caller_fake, fiber->stack, fiber->stack_bytes);
#endif
    (void)swapcontext(&fiber->caller, &fiber->own);
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(fiber->caller_fake, NULL, NULL);
#endif
}

/* On the fiber's own stack: it has been entered. */
static void entered(mpath_fiber_t *fiber, int first)
{
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(first ? NULL : fiber->own_fake, &fiber->caller_stack, &fiber->caller_bytes);
#else
    (void)fiber;
    (void)first;
#endif
}

static void leave(mpath_fiber_t *fiber, mpath_fiber_state_t state)
{
    fiber->state = state;
#ifdef FIBER_TSAN
    __tsan_switch_to_fiber(fiber->caller_tsan, 0);
#endif
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber((state == MPATH_FIBER_ENDED) ? NULL : &fiber->own_fake, fiber->caller_stack,
                                   fiber->caller_bytes);
#endif
    (void)swapcontext(&fiber->own, &fiber->caller);
    entered(fiber, 0);
}

/* makecontext() hands over ints only. */
static void trampoline(unsigned high, unsigned low)
{
    mpath_fiber_t *fiber = (mpath_fiber_t *)(uintptr_t)(((uint64_t)high << 32) | low);

    entered(fiber, 1);
    fiber->body(fiber->argument);
    leave(fiber, MPATH_FIBER_ENDED);
    abort(); /* nobody takes up an ended body */
}

/* -- life -- */

mpath_status_t mpath_fiber_create(size_t stack_bytes, mpath_fiber_t **fiber_p)
{
    size_t page          = (size_t)sysconf(_SC_PAGESIZE);
    mpath_fiber_t *fiber = calloc(1, sizeof(*fiber));
    char *memory;

    if (fiber == NULL) {
        goto err_no_memory;
    }
    fiber->guard_bytes = page;
    fiber->stack_bytes = (stack_bytes + page - 1) / page * page;
    memory             = mmap(NULL, fiber->guard_bytes + fiber->stack_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        goto err_free;
    }
    if (mprotect(memory, fiber->guard_bytes, PROT_NONE) != 0) {
        goto err_unmap;
    }
    fiber->stack = memory + fiber->guard_bytes;
#ifdef FIBER_TSAN
    fiber->own_tsan = __tsan_create_fiber(0);
#endif
    *fiber_p = fiber;
    return MPATH_OK;

err_unmap:
    munmap(memory, fiber->guard_bytes + fiber->stack_bytes);
err_free:
    free(fiber);
err_no_memory:
    mpath_error("no memory for a stack of %zu bytes (%s); non-blocking collectives of mpath fail", stack_bytes,
                strerror(errno));
    return MPATH_ERR_NO_MEMORY;
}

void mpath_fiber_destroy(mpath_fiber_t *fiber)
{
    if (fiber == NULL) {
        return;
    }
#ifdef FIBER_TSAN
    __tsan_destroy_fiber(fiber->own_tsan);
#endif
    munmap(fiber->stack - fiber->guard_bytes, fiber->guard_bytes + fiber->stack_bytes);
    free(fiber);
}

void mpath_fiber_start(mpath_fiber_t *fiber, mpath_fiber_body_t body, void *argument)
{
    uint64_t value = (uint64_t)(uintptr_t)fiber;

    (void)getcontext(&fiber->own);
    fiber->own.uc_stack.ss_sp   = fiber->stack;
    fiber->own.uc_stack.ss_size = fiber->stack_bytes;
    fiber->own.uc_link          = NULL;
    fiber->body                 = body;
    fiber->argument             = argument;
    fiber->state                = MPATH_FIBER_BUSY;
    fiber->ending               = 0;
    makecontext(&fiber->own, (void (*)(void))trampoline, 2, (unsigned)(value >> 32), (unsigned)value);
}

mpath_fiber_state_t mpath_fiber_resume(mpath_fiber_t *fiber)
{
    if (fiber->state == MPATH_FIBER_ENDED) {
        return MPATH_FIBER_ENDED;
    }
    fiber->slice_end_ns = mpath_time_ns() + FIBER_SLICE_NS;
    fiber_current       = fiber;
    enter(fiber);
    fiber_current = NULL; /* this thread's, for its stack has never been left */
    return fiber->state;
}

void mpath_fiber_end_soon(mpath_fiber_t *fiber)
{
    fiber->ending = 1;
}

/* -- on a fiber; never inlined: see above -- */

__attribute__((noinline)) int mpath_fiber_is_on(void)
{
    return fiber_current != NULL;
}

__attribute__((noinline)) int mpath_fiber_is_ending(void)
{
    return (fiber_current != NULL) && fiber_current->ending;
}

__attribute__((noinline)) int mpath_fiber_rest(void)
{
    mpath_fiber_t *fiber = fiber_current;

    if (fiber == NULL) {
        return 0;
    }
    leave(fiber, MPATH_FIBER_IDLE);
    return 1;
}

__attribute__((noinline)) void mpath_fiber_breathe(void)
{
    mpath_fiber_t *fiber = fiber_current;

    if ((fiber != NULL) && (mpath_time_ns() >= fiber->slice_end_ns)) {
        leave(fiber, MPATH_FIBER_BUSY);
    }
}
