/* SPDX-License-Identifier: BSD-3-Clause */
/* The processor's trap flag: as long as it is set, each instruction ends in a signal. */
#define _GNU_SOURCE
#include "step_through.h"

#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

#if CAN_STEP

#define TRAP_FLAG 0x100u

static struct {
    void (*between)(void *argument);
    void *argument;
    unsigned left;
} step;

static void trap(int signal, siginfo_t *info, void *context)
{
    ucontext_t *interrupted = context;

    (void)signal;
    (void)info;
    if (--step.left == 0) {
        step.between(step.argument);
        interrupted->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
    }
}

int step_through(void (*stepped)(void *argument), void (*between)(void *argument), void *argument, unsigned at)
{
    struct sigaction action = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO}, before;

    step.between  = between;
    step.argument = argument;
    step.left     = at + 1;
    if (sigaction(SIGTRAP, &action, &before) != 0) {
        abort();
    }
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | TRAP_FLAG);
    stepped(argument);
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~(unsigned long long)TRAP_FLAG);
    (void)sigaction(SIGTRAP, &before, NULL);
    return step.left == 0;
}

#else

int step_through(void (*stepped)(void *argument), void (*between)(void *argument), void *argument, unsigned at)
{
    (void)between;
    (void)at;
    stepped(argument);
    return 0;
}

#endif
