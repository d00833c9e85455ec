/* SPDX-License-Identifier: BSD-3-Clause */
/* CTAs and threads of a kernel, each on a stack of its own. */
#define _GNU_SOURCE
#include "fake_kernel.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

/* Room for a signal, too. Sanitizers make frames larger. */
#ifdef FAKE_SANITIZED
#define STACK_BYTES (UINT64_C(64) << 10)
#else
#define STACK_BYTES (UINT64_C(16) << 10)
#endif
#define STACKS_BYTES (UINT64_C(2) << 20) /* mapped together: a large page, where there are any */
#define CANARY UINT64_C(0x6b65726e656c2121)
#define WARP 32u
#define THREADS_MOST 1024u
/* Threads of a grid from which on CTAs get fewer: the host has to run one after the other. */
#define THREADS_ENOUGH 2048u

typedef enum state { AT_WORK, AT_BLOCK, AT_WARP, POLLS, ENDED } state_t;

/* Those that have to meet: a CTA, or a warp. */
typedef struct meeting {
    unsigned left, arrived; /* threads that have not ended; of these, those that wait */
    int all, result;        /* so far; of the last time */
} meeting_t;

struct block;

typedef struct gpu_thread {
    fake_place_t place; /* first */
    state_t state;
    int looked; /* for what others write, since it has met others */
    struct block *block;
    void *here[5]; /* of __builtin_setjmp() */
    char *stack;
} gpu_thread_t;

typedef struct block {
    struct block *next;
    unsigned made; /* threads that have a stack */
    meeting_t meeting, warps[THREADS_MOST / WARP];
    gpu_thread_t threads[THREADS_MOST];
} block_t;

typedef struct grid {
    void (*kernel)(const void *arguments);
    const void *arguments;
    unsigned threads;
    void *here[5];
    ucontext_t context; /* while a stack is entered for the first time */
} grid_t;

__thread const fake_place_t *fake_here;
static __thread grid_t *grid;

/* Blocks that no launch uses: stacks are made once. */
static block_t *spare;
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * -- changes of stack; what is local to a thread of the host is read anew after each, for it may be another one. Nothing is known of
 * the registers that others have used meanwhile, so callers may not look into these functions --
 */
#ifdef __clang__
#define CHANGES_STACK __attribute__((noinline, optnone))
#else
#define CHANGES_STACK __attribute__((noipa))
#endif

static CHANGES_STACK void jump(void **to)
{
    __builtin_longjmp(to, 1);
}

static CHANGES_STACK void thread_leave(state_t state)
{
    gpu_thread_t *thread = (gpu_thread_t *)(uintptr_t)fake_here;

    thread->state = state;
    if (__builtin_setjmp(thread->here) == 0) {
        jump(grid->here);
    }
}

static CHANGES_STACK void thread_resume(gpu_thread_t *thread)
{
    fake_here = &thread->place;
    if (__builtin_setjmp(grid->here) == 0) {
        jump(thread->here);
    }
}

static CHANGES_STACK void thread_work(void)
{
    grid->kernel(grid->arguments);
}

static CHANGES_STACK void thread_first_leave(void)
{
    gpu_thread_t *thread = (gpu_thread_t *)(uintptr_t)fake_here;

    if (__builtin_setjmp(thread->here) == 0) {
        (void)setcontext(&grid->context);
    }
}

static void thread_main(void)
{
    thread_first_leave();
    for (;;) {
        thread_work();
        thread_leave(ENDED);
    }
}

static char *stack_make(void)
{
    static char *rest;
    static uint64_t rest_bytes;
    char *stack;

    pthread_mutex_lock(&spare_lock);
    if (rest_bytes == 0) {
        rest = mmap(NULL, 2 * STACKS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (rest == MAP_FAILED) {
            fake_die("no memory for the stacks of a kernel");
        }
        rest += STACKS_BYTES - (uintptr_t)rest % STACKS_BYTES;
        rest_bytes = STACKS_BYTES;
        (void)madvise(rest, STACKS_BYTES, MADV_HUGEPAGE);
    }
    rest_bytes -= STACK_BYTES;
    stack = rest + rest_bytes;
    pthread_mutex_unlock(&spare_lock);
    return stack;
}

static void thread_make(gpu_thread_t *thread)
{
    ucontext_t context;
    char *memory = stack_make();

    *(uint64_t *)(void *)memory = CANARY;
    thread->stack               = memory;
    (void)getcontext(&context);
    context.uc_stack.ss_sp   = memory;
    context.uc_stack.ss_size = STACK_BYTES -
                               thread->place.thread.x % 8 * 128; /* not all in the same lines of a cache */
    context.uc_link = NULL;
    makecontext(&context, thread_main, 0);
    fake_here = &thread->place;
    (void)swapcontext(&grid->context, &context);
}

/* -- blocks -- */

static block_t *block_begin(unsigned index, unsigned ctas, unsigned threads)
{
    block_t *block;

    pthread_mutex_lock(&spare_lock);
    block = spare;
    if (block != NULL) {
        spare = block->next;
    }
    pthread_mutex_unlock(&spare_lock);
    if (block == NULL) {
        block = calloc(1, sizeof(*block));
    }
    for (unsigned i = 0; i < threads; i++) {
        gpu_thread_t *thread = &block->threads[i];

        thread->place  = (fake_place_t){{i}, {index}, {threads}, {ctas}};
        thread->block  = block;
        thread->state  = AT_WORK;
        thread->looked = 0;
        if (i == block->made) {
            thread_make(thread);
            block->made++;
        }
    }
    block->meeting = (meeting_t){.left = threads, .all = 1};
    for (unsigned warp = 0; warp < threads / WARP; warp++) {
        block->warps[warp] = (meeting_t){.left = WARP, .all = 1};
    }
    return block;
}

static void block_end(block_t *block)
{
    for (unsigned i = 0; i < block->made; i++) {
        if (*(const uint64_t *)(const void *)block->threads[i].stack != CANARY) {
            fake_die("a thread of a kernel has used more stack than %llu bytes", (unsigned long long)STACK_BYTES);
        }
    }
    pthread_mutex_lock(&spare_lock);
    block->next = spare;
    spare       = block;
    pthread_mutex_unlock(&spare_lock);
}

/* Lets those go that wait for each other, once all have come. */
static int meeting_ends(meeting_t *meeting, gpu_thread_t *threads, unsigned count, state_t state)
{
    if ((meeting->arrived == 0) || (meeting->arrived < meeting->left)) {
        return 0;
    }
    meeting->result  = meeting->all;
    meeting->all     = 1;
    meeting->arrived = 0;
    for (unsigned i = 0; i < count; i++) {
        if (threads[i].state == state) {
            threads[i].state = AT_WORK;
        }
    }
    return 1;
}

static int block_meets(block_t *block, unsigned threads)
{
    int met = meeting_ends(&block->meeting, block->threads, threads, AT_BLOCK);

    for (unsigned warp = 0; warp < threads / WARP; warp++) {
        met |= meeting_ends(&block->warps[warp], &block->threads[warp * WARP], WARP, AT_WARP);
    }
    return met;
}

/* Until its threads have ended or all wait for others. Whether one has got on; *polls_p: whether one polls. */
static int block_run(block_t *block, unsigned threads, int *polls_p)
{
    int moved = 0;

    do {
        *polls_p = 0;
        for (unsigned i = 0; i < threads; i++) {
            gpu_thread_t *thread = &block->threads[i];

            if ((thread->state != AT_WORK) && (thread->state != POLLS)) {
                continue;
            }
            thread_resume(thread);
            if (thread->state == ENDED) {
                block->meeting.left--;
                block->warps[i / WARP].left--;
            }
            if (thread->state == POLLS) {
                *polls_p = 1;
            } else {
                moved = 1;
            }
        }
    } while (block_meets(block, threads));
    return moved;
}

/* -- of the launch, and of its threads -- */

static unsigned threads_of(unsigned ctas, unsigned threads, unsigned least)
{
    unsigned most = THREADS_ENOUGH / ctas / WARP * WARP;

    most = (most < least) ? least : most;
    return (threads < most) ? threads : most;
}

void fake_grid_run(void (*kernel)(const void *arguments), const void *arguments, unsigned ctas, unsigned threads,
                   unsigned least)
{
    grid_t own         = {.kernel = kernel, .arguments = arguments, .threads = threads_of(ctas, threads, least)};
    block_t *under_way = NULL, **at = &under_way;
    unsigned begun = 0;
    int moved = 0, polls, any_polls = 0;

    grid = &own;
    while ((under_way != NULL) || (begun < ctas)) {
        if (*at == NULL) {
            if (begun < ctas) { /* those before it have ended or wait */
                *at         = block_begin(begun++, ctas, own.threads);
                (*at)->next = NULL;
                moved       = 1;
            } else {
                if (!moved && !any_polls) {
                    fake_die("the threads of a kernel wait for each other");
                }
                if (!moved) {
                    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
                }
                moved     = 0;
                any_polls = 0;
                at        = &under_way;
                continue;
            }
        }
        moved |= block_run(*at, own.threads, &polls);
        any_polls |= polls;
        if ((*at)->meeting.left == 0) {
            block_t *ended = *at;

            *at = ended->next;
            block_end(ended);
        } else {
            at = &(*at)->next;
        }
    }
    grid      = NULL;
    fake_here = NULL;
}

static int meet(meeting_t *meeting, state_t state, int good)
{
    ((gpu_thread_t *)(uintptr_t)fake_here)->looked = 0;
    meeting->arrived++;
    meeting->all = meeting->all && good;
    thread_leave(state);
    return meeting->result;
}

int fake_block_all(int good)
{
    block_t *block = ((const gpu_thread_t *)(const void *)fake_here)->block;

    return meet(&block->meeting, AT_BLOCK, good);
}

int fake_warp_all(int good)
{
    block_t *block = ((const gpu_thread_t *)(const void *)fake_here)->block;

    return meet(&block->warps[fake_here->thread.x / WARP], AT_WARP, good);
}

void fake_poll(void)
{
    gpu_thread_t *thread = (gpu_thread_t *)(uintptr_t)fake_here;

    if (thread->looked) {
        thread_leave(POLLS);
    }
    thread->looked = 1;
}
