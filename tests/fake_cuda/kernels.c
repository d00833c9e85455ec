/* SPDX-License-Identifier: BSD-3-Clause */
/* What mpath's kernels do, in C, from the same arguments; each address is checked as a device would. */
#define _GNU_SOURCE
#include "fake.h"
#include "fake_kernel.h"

#include <string.h>
#include <time.h>

static uint64_t *word_at(const struct CUctx_st *context, uint64_t address, const char *what)
{
    if (address % 8 != 0) {
        fake_die("%s: the word at 0x%llx is not aligned", what, (unsigned long long)address);
    }
    return (uint64_t *)fake_bytes(address, 8, context, FAKE_BY_KERNEL, what);
}

static mpath_kernel_counters_t *counters_at(const struct CUctx_st *context, const mpath_kernel_control_t *control)
{
    return (mpath_kernel_counters_t *)fake_bytes(control->counters, sizeof(mpath_kernel_counters_t), context,
                                                 FAKE_BY_KERNEL, "counters of a kernel");
}

void fake_kernel_begin(const struct CUctx_st *context, const mpath_kernel_control_t *control, unsigned ctas)
{
    mpath_kernel_counters_t *counters = counters_at(context, control);

    if ((control->ctas != ctas) || (control->arrivals != counters->arrivals + ctas)) {
        fake_die("a kernel of %u CTAs was told of %u and to expect %llu arrivals after %llu", ctas, control->ctas,
                 (unsigned long long)control->arrivals, (unsigned long long)counters->arrivals);
    }
}

void fake_kernel_fail(const struct CUctx_st *context, const mpath_kernel_control_t *control)
{
    counters_at(context, control)->arrivals += control->ctas;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* some CTAs are at work still */
}

void fake_kernel_end(const struct CUctx_st *context, const mpath_kernel_control_t *control,
                     const mpath_kernel_word_t *flags)
{
    mpath_kernel_counters_t *counters = counters_at(context, control);
    uint32_t index;

    counters->arrivals += control->ctas;
    for (index = 0; index < control->flags_count; index++) {
        __atomic_store_n(word_at(context, flags[index].address, "flag of a kernel"), flags[index].value,
                         __ATOMIC_RELEASE);
    }
}

static void copy_pieces(const struct CUctx_st *context, const mpath_kernel_piece_t *pieces, unsigned count,
                        uint64_t expected)
{
    uint64_t bytes = 0;
    char *target, *source;
    unsigned index;

    for (index = 0; index < count; index++) {
        bytes += pieces[index].bytes;
        if (pieces[index].bytes > 0) {
            target = fake_bytes(pieces[index].target, pieces[index].bytes, context, FAKE_BY_KERNEL,
                                "copy kernel, target");
            source = fake_bytes(pieces[index].source, pieces[index].bytes, context, FAKE_BY_KERNEL,
                                "copy kernel, source");
            memmove(target, source, pieces[index].bytes);
        }
    }
    if (bytes != expected) {
        fake_die("the copy kernel was told of %llu bytes, its pieces have %llu", (unsigned long long)expected,
                 (unsigned long long)bytes);
    }
}

static void check_shape(unsigned pieces, unsigned most, unsigned threads)
{
    if ((pieces > most) || (threads != MPATH_KERNEL_THREADS)) {
        fake_die("the copy kernel has %u pieces and %u threads", pieces, threads);
    }
}

static void run_copy(const struct CUctx_st *context, const void *arguments, unsigned ctas, unsigned threads)
{
    const mpath_kernel_copy_t *copy = arguments;

    check_shape(copy->pieces_count, MPATH_KERNEL_PIECES_MAX, threads);
    fake_kernel_begin(context, &copy->control, ctas);
    copy_pieces(context, copy->pieces, copy->pieces_count, copy->bytes);
    fake_kernel_end(context, &copy->control, copy->flags);
}

static void run_copy_few(const struct CUctx_st *context, const void *arguments, unsigned ctas, unsigned threads)
{
    const mpath_kernel_copy_few_t *copy = arguments;

    check_shape(copy->pieces_count, MPATH_KERNEL_PIECES_FEW, threads);
    fake_kernel_begin(context, &copy->control, ctas);
    copy_pieces(context, copy->pieces, copy->pieces_count, copy->bytes);
    fake_kernel_end(context, &copy->control, copy->flags);
}

/* Only what a repeated launch leaves behind: its CTAs count for themselves. */
static void run_copy_again(const struct CUctx_st *context, const void *arguments, unsigned ctas, unsigned threads)
{
    const mpath_kernel_copy_again_t *copy = arguments;
    uint64_t number;

    check_shape(copy->pieces_count, MPATH_KERNEL_PIECES_FEW, threads);
    if ((copy->control.ctas != ctas) || (copy->control.flags_count != 1)) {
        fake_die("a repeated copy of %u CTAs was told of %u, and %u flags", ctas, copy->control.ctas,
                 copy->control.flags_count);
    }
    (void)counters_at(context, &copy->control);
    number = __atomic_load_n(word_at(context, copy->number, "number of a repeated copy"), __ATOMIC_ACQUIRE);
    copy_pieces(context, copy->pieces, copy->pieces_count, copy->bytes);
    __atomic_store_n(word_at(context, copy->flags[0].address, "flag of a repeated copy"), number, __ATOMIC_RELEASE);
}

static const struct CUfunc_st kernels[] = {
    {MPATH_KERNEL_COPY, sizeof(mpath_kernel_copy_t), run_copy},
    {MPATH_KERNEL_COPY_FEW, sizeof(mpath_kernel_copy_few_t), run_copy_few},
    {MPATH_KERNEL_COPY_AGAIN, sizeof(mpath_kernel_copy_again_t), run_copy_again},
};

const struct CUfunc_st *fake_kernel(const char *name)
{
    const struct CUfunc_st *(*const others[])(const char *name) = {fake_reduce_kernel, fake_writes_kernel,
                                                                   fake_eager_kernel, fake_exchange_kernel};
    const struct CUfunc_st *found                               = NULL;
    size_t index;

    for (index = 0; index < sizeof(kernels) / sizeof(kernels[0]); index++) {
        if (strcmp(kernels[index].name, name) == 0) {
            return &kernels[index];
        }
    }
    for (index = 0; (found == NULL) && (index < sizeof(others) / sizeof(others[0])); index++) {
        found = others[index](name);
    }
    return found;
}
