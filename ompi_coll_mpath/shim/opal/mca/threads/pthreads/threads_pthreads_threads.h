/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stand-in for a header that `make install` of Open MPI 5 and 6 leaves out; see threads_pthreads_mutex.h.
 */
#ifndef MPATH_SHIM_THREADS_PTHREADS_THREADS_H
#define MPATH_SHIM_THREADS_PTHREADS_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>

static inline void opal_thread_yield(void)
{
    sched_yield();
}

#endif
