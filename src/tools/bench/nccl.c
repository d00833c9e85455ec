/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_bench: loads NCCL and makes one communicator of all ranks. */
#include "tools/bench/nccl.h"

#include "tools/bench/memory.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bench_nccl_t bench_nccl;

void bench_nccl_prepare(void)
{
    setenv("NCCL_NVLS_ENABLE", "0", 1);
}

void bench_nccl_check(bench_nccl_result_t result, const char *call)
{
    if (result != 0) {
        fprintf(stderr, "mpath_bench: GPU %d: %s: %s\n", bench_gpu.ordinal, call, bench_nccl.get_error_string(result));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* 0, or -1 with a message. */
static int load(void)
{
    const char *path   = getenv("MPATH_BENCH_NCCL");
    void *library      = dlopen(path != NULL ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    const char *wanted = NULL;

    if (library == NULL) {
        fprintf(stderr, "mpath_bench: --against nccl: %s; MPATH_BENCH_NCCL can name the library\n", dlerror());
        return -1;
    }
#define LOAD(_member, _symbol, _parameters)                                                                            \
    *(void **)&bench_nccl._member = dlsym(library, #_symbol);                                                          \
    wanted                        = bench_nccl._member == NULL ? #_symbol : wanted;
    BENCH_NCCL_FUNCTIONS(LOAD)
    LOAD(get_error_string, ncclGetErrorString, )
#undef LOAD
    if (wanted != NULL) {
        fprintf(stderr, "mpath_bench: --against nccl: the library has no %s\n", wanted);
        return -1;
    }
    bench_nccl_check(bench_nccl.get_version(&bench_nccl.version), "ncclGetVersion");
    return 0;
}

/* Whether NCCL would let ranks share a GPU: from 2.30 on, where it is told to. */
static int may_share_gpus(void)
{
    const char *told = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    return bench_nccl.version >= 23000 && told != NULL && strcmp(told, "1") == 0;
}

/* NCCL may give each rank a GPU of its own or none at all, so this is asked before it is. Collective. */
static int shared_gpus(void)
{
    MPI_Comm node;
    int ranks;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &ranks);
    MPI_Comm_free(&node);
    return ranks > bench_gpu.num_devices;
}

int bench_nccl_open(void)
{
    int rank, size, bad, shared = shared_gpus();
    bench_nccl_id_t id;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bad = load() != 0;
    if (!bad && shared && !may_share_gpus()) {
        fprintf(stderr,
                "mpath_bench: --against nccl: rank %d shares its GPU, which NCCL refuses; from 2.30 on it can be told "
                "to allow it by NCCL_MULTI_RANK_GPU_ENABLE=1\n",
                rank);
        bad = 1;
    }
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (bad) {
        return -1;
    }
    memset(&id, 0, sizeof(id));
    if (rank == 0) {
        bench_nccl_check(bench_nccl.get_unique_id(&id), "ncclGetUniqueId");
    }
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    bench_nccl_check(bench_nccl.comm_init_rank(&bench_nccl.comm, size, id, rank), "ncclCommInitRank");
    bench_gpu_check(bench_gpu.cu->StreamCreateWithPriority(&bench_nccl.stream, MPATH_CU_STREAM_NON_BLOCKING, 0),
                    "cuStreamCreateWithPriority");
    return 0;
}

void bench_nccl_close(void)
{
    if (bench_nccl.comm != NULL) {
        bench_gpu_check(bench_gpu.cu->StreamDestroy(bench_nccl.stream), "cuStreamDestroy");
        bench_nccl_check(bench_nccl.comm_destroy(bench_nccl.comm), "ncclCommDestroy");
        bench_nccl.comm = NULL;
    }
}

void bench_nccl_finish(void)
{
    bench_gpu_check(bench_gpu.cu->StreamSynchronize(bench_nccl.stream), "cuStreamSynchronize");
}
