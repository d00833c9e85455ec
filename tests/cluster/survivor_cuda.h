/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory for survivor.c and reduction_survivor.c: SURVIVOR_CUDA is the path of a CUDA driver. */
#ifndef MPATH_TESTS_CLUSTER_SURVIVOR_CUDA_H
#define MPATH_TESTS_CLUSTER_SURVIVOR_CUDA_H

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    int (*init)(unsigned);
    int (*retain)(void **context, int device);
    int (*use)(void *context);
    int (*alloc)(unsigned long long *address, size_t bytes);
    int (*write)(unsigned long long to, const void *from, size_t bytes);
    int (*read)(void *to, unsigned long long from, size_t bytes);
} cuda;

static void must(int result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "%s: %d\n", what, result);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

static void *symbol(void *library, const char *name)
{
    void *address = library != NULL ? dlsym(library, name) : NULL;

    must(address == NULL, name);
    return address;
}

/* 1: buffers are to be in device memory, which can be had from here on. */
static int start_cuda(void)
{
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK"), *path = getenv("SURVIVOR_CUDA");
    void *library, *context;

    if (path == NULL || *path == 0)
        return 0;
    library                = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    *(void **)&cuda.init   = symbol(library, "cuInit");
    *(void **)&cuda.retain = symbol(library, "cuDevicePrimaryCtxRetain");
    *(void **)&cuda.use    = symbol(library, "cuCtxSetCurrent");
    *(void **)&cuda.alloc  = symbol(library, "cuMemAlloc_v2");
    *(void **)&cuda.write  = symbol(library, "cuMemcpyHtoD_v2");
    *(void **)&cuda.read   = symbol(library, "cuMemcpyDtoH_v2");
    must(cuda.init(0), "cuInit");
    must(cuda.retain(&context, local != NULL ? atoi(local) : 0), "cuDevicePrimaryCtxRetain");
    must(cuda.use(context), "cuCtxSetCurrent");
    return 1;
}

#endif
