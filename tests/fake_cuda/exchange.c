/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel for short messages does, in C, from the same arguments. */
#define _GNU_SOURCE
#include "fake_kernel.h"
#include "gpu/exchange_args.h"

#include <string.h>
#include <time.h>

typedef struct kernel {
    const struct CUctx_st *context;
    const mpath_kernel_exchange_t *arguments;
    mpath_exchange_head_t *head;
    uint64_t number;
    struct timespec deadline;
} kernel_t;

static char *bytes_at(const kernel_t *kernel, uint64_t address, uint64_t bytes)
{
    return fake_bytes(address, bytes, kernel->context, FAKE_BY_KERNEL, "eager exchange");
}

/* A unit of a slot, and behind it the number. */
static uint64_t *unit_at(const kernel_t *kernel, uint64_t slot, uint64_t index)
{
    uint64_t address = slot + (kernel->number & 1) * kernel->arguments->generation_bytes + index * 16;

    if (address % 16 != 0) {
        fake_die("an eager exchange has a slot at 0x%llx", (unsigned long long)slot);
    }
    return (uint64_t *)(void *)bytes_at(kernel, address, 16);
}

static uint64_t unit_bytes(const mpath_kernel_message_t *message, uint64_t index)
{
    uint64_t left = message->bytes - index * MPATH_EAGER_UNIT_BYTES;

    return (left < MPATH_EAGER_UNIT_BYTES) ? left : MPATH_EAGER_UNIT_BYTES;
}

static void send(const kernel_t *kernel, const mpath_kernel_message_t *message)
{
    const char *source = bytes_at(kernel, message->source, message->bytes);

    for (uint64_t index = 0; index < MPATH_EAGER_UNITS(message->bytes); index++) {
        uint64_t *to = unit_at(kernel, message->target, index), own = 0;

        memcpy(&own, source + index * MPATH_EAGER_UNIT_BYTES, unit_bytes(message, index));
        __atomic_store_n(&to[0], own, __ATOMIC_RELAXED);
        __atomic_store_n(&to[1], kernel->number, __ATOMIC_RELEASE);
    }
}

/* 0: given up. */
static int await(const kernel_t *kernel, const uint64_t *of)
{
    struct timespec now;

    while (__atomic_load_n(&of[1], __ATOMIC_ACQUIRE) != kernel->number) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec > kernel->deadline.tv_sec) ||
            ((now.tv_sec == kernel->deadline.tv_sec) && (now.tv_nsec > kernel->deadline.tv_nsec)) ||
            (__atomic_load_n(&kernel->head->stop, __ATOMIC_RELAXED) >= kernel->number)) {
            return 0;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return 1;
}

static int receive(const kernel_t *kernel, const mpath_kernel_message_t *message)
{
    char *target = (message->bytes > 0) ? bytes_at(kernel, message->target, message->bytes) : NULL;

    for (uint64_t index = 0; index < MPATH_EAGER_UNITS(message->bytes); index++) {
        const uint64_t *from = unit_at(kernel, message->source, index);
        uint64_t held;

        if (!await(kernel, from)) {
            return 0;
        }
        held = __atomic_load_n(&from[0], __ATOMIC_RELAXED);
        memcpy(target + index * MPATH_EAGER_UNIT_BYTES, &held, unit_bytes(message, index));
    }
    return 1;
}

static void copy(const kernel_t *kernel, const mpath_kernel_message_t *message)
{
    if (message->bytes > 0) {
        memmove(bytes_at(kernel, message->target, message->bytes), bytes_at(kernel, message->source, message->bytes),
                message->bytes);
    }
}

static void check_ends(const mpath_kernel_message_t *messages, uint32_t count)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < count; i++) {
        end += MPATH_EAGER_UNITS(messages[i].bytes);
        if (messages[i].end != end) {
            fake_die("message %u of an eager exchange ends at unit %llu, not %llu", i,
                     (unsigned long long)messages[i].end, (unsigned long long)end);
        }
    }
}

/* Slots of even calls end before those of odd ones begin. */
static void check_slots(const mpath_kernel_exchange_t *arguments)
{
    uint64_t end = arguments->memory + sizeof(mpath_exchange_head_t) + arguments->generation_bytes;

    for (uint32_t i = 0; i + 1 < arguments->receive_count; i++) {
        if (arguments->receive[i].source + MPATH_EAGER_SLOT_BYTES(arguments->receive[i].bytes) > end) {
            fake_die("slot %u of an eager exchange ends %llu bytes after those of the call", i,
                     (unsigned long long)(arguments->receive[i].source +
                                          MPATH_EAGER_SLOT_BYTES(arguments->receive[i].bytes) - end));
        }
    }
}

static void check(const mpath_kernel_exchange_t *arguments, unsigned ctas, unsigned threads)
{
    if ((threads != MPATH_KERNEL_THREADS) || (ctas < 1) || (ctas > MPATH_EAGER_CTAS) ||
        (arguments->send_count >= MPATH_EXCHANGE_RANKS) || (arguments->receive_count < 1) ||
        (arguments->receive_count > MPATH_EXCHANGE_RANKS)) {
        fake_die("an eager exchange has %u threads, %u CTAs, %u messages to send and %u to receive", threads, ctas,
                 arguments->send_count, arguments->receive_count);
    }
    check_ends(arguments->send, arguments->send_count);
    check_ends(arguments->receive, arguments->receive_count);
    check_slots(arguments);
}

static void set_deadline(kernel_t *kernel)
{
    uint64_t patience_ns = kernel->arguments->patience_ns;

    clock_gettime(CLOCK_MONOTONIC, &kernel->deadline);
    kernel->deadline.tv_sec += (time_t)(patience_ns / 1000000000);
    kernel->deadline.tv_nsec += (long)(patience_ns % 1000000000);
    if (kernel->deadline.tv_nsec >= 1000000000) {
        kernel->deadline.tv_nsec -= 1000000000;
        kernel->deadline.tv_sec++;
    }
}

static void run(const struct CUctx_st *context, const void *argument, unsigned ctas, unsigned threads)
{
    const mpath_kernel_exchange_t *arguments = argument;
    kernel_t kernel                          = {.context = context, .arguments = arguments};
    uint32_t last                            = arguments->receive_count - 1;
    int good                                 = 1;
    uint64_t *words;

    check(arguments, ctas, threads);
    kernel.head   = (mpath_exchange_head_t *)(void *)bytes_at(&kernel, arguments->memory, sizeof(*kernel.head));
    kernel.number = (arguments->number != 0) ? arguments->number : kernel.head->counters[0] + 1;
    set_deadline(&kernel);
    for (uint32_t i = 0; !arguments->again && (i < arguments->send_count); i++) {
        send(&kernel, &arguments->send[i]);
    }
    for (uint32_t i = 0; good && (i < last); i++) {
        good = receive(&kernel, &arguments->receive[i]);
    }
    copy(&kernel, &arguments->receive[last]);
    for (unsigned cta = 0; cta < MPATH_EAGER_CTAS; cta++) {
        kernel.head->counters[cta] = kernel.number;
    }
    words = (uint64_t *)(void *)bytes_at(&kernel, arguments->words, ctas * UINT64_C(8));
    for (unsigned cta = 0; cta < ctas; cta++) {
        __atomic_store_n(&words[cta], good ? kernel.number : (kernel.number | MPATH_EAGER_GAVE_UP), __ATOMIC_RELEASE);
    }
}

static const struct CUfunc_st kernel = {MPATH_KERNEL_EXCHANGE, sizeof(mpath_kernel_exchange_t), run};

const struct CUfunc_st *fake_exchange_kernel(const char *name)
{
    return (strcmp(name, kernel.name) == 0) ? &kernel : NULL;
}
