/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stand-in for a header that `make install` of Open MPI 5 and 6 leaves out; see threads_pthreads_mutex.h.
 */
#ifndef MPATH_SHIM_THREADS_PTHREADS_TSD_H
#define MPATH_SHIM_THREADS_PTHREADS_TSD_H

#include <pthread.h>

typedef pthread_key_t opal_tsd_key_t;

static inline int opal_tsd_key_delete(opal_tsd_key_t key)
{
    return pthread_key_delete(key);
}

static inline int opal_tsd_set(opal_tsd_key_t key, void *value)
{
    return pthread_setspecific(key, value);
}

static inline int opal_tsd_get(opal_tsd_key_t key, void **value_p)
{
    *value_p = pthread_getspecific(key);
    return 0;
}

#endif
