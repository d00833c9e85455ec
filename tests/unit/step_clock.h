/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Step clock: the time that the library reads in ranks of a test whose outcome depends on what calls take. It stands still
 * until all ranks have looked at it, and goes a step then: ranks that wait look all the time, and who is kept from running
 * keeps the time of all. So calls take the time that emulated ports give them, however busy the machine is.
 *
 *   unit_test_NAME_SOURCES = ... unit/step_clock.c unit/step_clock.h
 *   unit_test_NAME_LDFLAGS = -Wl,--wrap=clock_gettime
 *
 * A rank that looks at no clock holds up the others for STEP_CLOCK_MOST_NS of real time at each step.
 */
#ifndef MPATH_TESTS_UNIT_STEP_CLOCK_H
#define MPATH_TESTS_UNIT_STEP_CLOCK_H

#define STEP_CLOCK_NS 1000000            /* of a step */
#define STEP_CLOCK_MOST_NS 1000000000ull /* of real time until it is gone in any case */

/* Before ranks_run(). */
void step_clock_make(int size);
/* In each rank, first of all, and when it waits for nobody any more. */
void step_clock_start(int rank);
void step_clock_end(void);

#endif
