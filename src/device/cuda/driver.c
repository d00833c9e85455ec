/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds libcuda.so.1 once the application has loaded it, and fills the table of its functions. */
#include "config.h"
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define DRIVER_LIBRARY "libcuda.so.1"

typedef enum driver_state {
    DRIVER_ABSENT, /* not in the process */
    DRIVER_FOUND,  /* in the process, not initialised by anybody */
    DRIVER_READY,
    DRIVER_UNUSABLE
} driver_state_t;

static struct {
    atomic_int state; /* driver_state_t; READY and UNUSABLE are final */
    pthread_mutex_t lock;
    atomic_ullong objects_seen; /* loaded into the process when the library was last looked for, plus 1 */
    mpath_cu_t cu;
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int driver_count_objects(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    *(unsigned long long *)argument = info->dlpi_adds;
    return 1; /* every object tells the same number */
}

/* Loaded into the process so far. Counted before a look, which costs more: that finds these at least. */
static unsigned long long driver_objects(void)
{
    unsigned long long objects = 0;

    dl_iterate_phdr(driver_count_objects, &objects);
    return objects;
}

#define DRIVER_RESOLVE(_member, _symbol, _parameters)                                                                  \
    *(void **)&driver.cu._member = dlsym(library, #_symbol);                                                           \
    if ((driver.cu._member == NULL) && (missing == NULL)) {                                                            \
        missing = #_symbol;                                                                                            \
    }
#define DRIVER_RESOLVE_OPTIONAL(_member, _symbol, _parameters) *(void **)&driver.cu._member = dlsym(library, #_symbol);

/* Under the lock. The library stays loaded from here on. */
static driver_state_t driver_resolve(void *library)
{
    const char *missing = NULL;

    MPATH_CU_FUNCTIONS(DRIVER_RESOLVE)
    MPATH_CU_OPTIONAL_FUNCTIONS(DRIVER_RESOLVE_OPTIONAL)
    if (missing != NULL) {
        mpath_warn(DRIVER_LIBRARY " has no function %s (CUDA 11.4 or newer is needed); buffers in GPU memory are not "
                                  "recognised",
                   missing);
        dlclose(library);
        return DRIVER_UNUSABLE;
    }
    return DRIVER_FOUND;
}

/* Under the lock: ABSENT to FOUND, FOUND to READY. */
static driver_state_t driver_advance(int flags)
{
    driver_state_t state = (driver_state_t)atomic_load_explicit(&driver.state, memory_order_relaxed);
    void *library;
    int count;

    if (state == DRIVER_ABSENT) {
        library = dlopen(DRIVER_LIBRARY, RTLD_LAZY | flags);
        if (library != NULL) {
            state = driver_resolve(library);
        }
    }
    if ((state == DRIVER_FOUND) && (driver.cu.DeviceGetCount(&count) == MPATH_CU_SUCCESS) && (count > 0)) {
        state = DRIVER_READY;
    }
    atomic_store_explicit(&driver.state, state, memory_order_release);
    return state;
}

const mpath_cu_t *mpath_gpu_driver(void)
{
    driver_state_t state       = (driver_state_t)atomic_load_explicit(&driver.state, memory_order_acquire);
    unsigned long long objects = 0;

    if (state == DRIVER_ABSENT) {
        objects = driver_objects();
        /* every call comes here, so nothing is written; a look of another thread that has just ended may have found it */
        if (atomic_load_explicit(&driver.objects_seen, memory_order_acquire) == objects + 1) {
            state = (driver_state_t)atomic_load_explicit(&driver.state, memory_order_acquire);
            if (state == DRIVER_ABSENT) {
                return NULL;
            }
        }
    }
    if (state == DRIVER_READY) {
        return &driver.cu;
    }
    if (state == DRIVER_UNUSABLE) {
        return NULL;
    }
    /* A thread that comes while another one looks waits for it: what it has in its hands may be memory of a GPU. */
    pthread_mutex_lock(&driver.lock);
    state = driver_advance(RTLD_NOLOAD);
    if (objects > 0) {
        atomic_store_explicit(&driver.objects_seen, objects + 1, memory_order_release);
    }
    pthread_mutex_unlock(&driver.lock);
    return (state == DRIVER_READY) ? &driver.cu : NULL;
}

mpath_status_t mpath_cuda_start(void)
{
    mpath_status_t status = MPATH_ERR_UNSUPPORTED;
    mpath_cu_result_t result;
    driver_state_t state;

    pthread_mutex_lock(&driver.lock);
    state = driver_advance(0);
    if (state == DRIVER_FOUND) {
        result = driver.cu.Init(0);
        if ((result != MPATH_CU_SUCCESS) && (result != MPATH_CU_NO_DEVICE)) {
            mpath_error("the CUDA driver does not start: cuInit: %s; GPUs are not used",
                        mpath_cuda_error_string(result));
            status = MPATH_ERR_IO;
        }
        state = driver_advance(0);
    }
    pthread_mutex_unlock(&driver.lock);
    return (state == DRIVER_READY) ? MPATH_OK : status;
}

const char *mpath_cuda_error_string(mpath_cu_result_t result)
{
    static _Thread_local char text[160];
    const char *name = NULL, *meaning = NULL;

    if ((driver.cu.GetErrorName == NULL) || (driver.cu.GetErrorString == NULL) ||
        (driver.cu.GetErrorName(result, &name) != MPATH_CU_SUCCESS) ||
        (driver.cu.GetErrorString(result, &meaning) != MPATH_CU_SUCCESS)) {
        snprintf(text, sizeof(text), "CUDA error %d", result);
    } else {
        snprintf(text, sizeof(text), "%s (%s)", name, meaning);
    }
    return text;
}
