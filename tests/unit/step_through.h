/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What others may do between any two instructions of a function, without threads and without luck: the processor stops
 * after each instruction. On x86-64 only.
 */
#ifndef MPATH_TESTS_UNIT_STEP_THROUGH_H
#define MPATH_TESTS_UNIT_STEP_THROUGH_H

#if defined(__x86_64__)
#define CAN_STEP 1
#else
#define CAN_STEP 0
#endif

/* From one place to stop at to the next. Sanitizers add instructions, and look for something else. */
#if defined(__SANITIZE_ADDRESS__)
#define STEP_STRIDE 13
#else
#define STEP_STRIDE 1
#endif

/*
 * Calls stepped(argument), and between(argument) once, before its instruction number `at`, on the same thread. 0: it
 * ended before. The other function is called by a signal handler, from which no assertion may jump, and may not need a
 * lock that the stepped one can hold there, that of malloc included.
 */
int step_through(void (*stepped)(void *argument), void (*between)(void *argument), void *argument, unsigned at);

#endif
