/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways to move rows between ranks. With mpath, MPI_Alltoallv takes device buffers as they are. An MPI library
 * without it may know nothing of them: "stock" goes through pinned host memory. NCCL is loaded at run time.
 */
#include "moe.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of NCCL that is used; NVIDIA's nccl.h documents it. */
typedef struct nccl_id {
    char bytes[128];
} nccl_id_t;

enum { NCCL_UINT8 = 1 };

static struct {
    void *library, *comm;
    int (*get_unique_id)(nccl_id_t *id);
    int (*comm_init_rank)(void **comm, int ranks, nccl_id_t id, int rank);
    int (*comm_destroy)(void *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *buffer, size_t count, int type, int peer, void *comm, cudaStream_t stream);
    int (*receive)(void *buffer, size_t count, int type, int peer, void *comm, cudaStream_t stream);
    const char *(*error_string)(int result);
} nccl;

/* Pinned copies of what "stock" moves; they grow. */
static struct {
    char *memory;
    size_t bytes;
} staging[2];

static void nccl_check(int result, const char *call)
{
    if (result != 0) {
        moe_fail("%s: %s", call, nccl.error_string(result));
    }
}

/* --- variables of the MPI library -------------------------------------------------------------------------------- */

static int open_variable(const char *name, MPI_T_cvar_handle *handle)
{
    int index, count;

    return MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS &&
           MPI_T_cvar_handle_alloc(index, NULL, handle, &count) == MPI_SUCCESS;
}

static int set_variable(const char *name, int value)
{
    MPI_T_cvar_handle handle;
    int status;

    if (!open_variable(name, &handle)) {
        return 0;
    }
    status = MPI_T_cvar_write(handle, &value);
    MPI_T_cvar_handle_free(&handle);
    return status == MPI_SUCCESS;
}

void moe_variable(const char *name, char *value, size_t size)
{
    char text[4096] = "";
    MPI_T_cvar_handle handle;

    if (open_variable(name, &handle)) {
        MPI_T_cvar_read(handle, text);
        MPI_T_cvar_handle_free(&handle);
    }
    snprintf(value, size, "%s", text);
}

/* --- backends ---------------------------------------------------------------------------------------------------- */

static int load_nccl(void)
{
    const char *path = getenv("MPATH_BENCH_NCCL");

    nccl.library = dlopen(path != NULL ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (nccl.library == NULL) {
        return 0;
    }
#define LOAD(_member, _symbol) *(void **)&nccl._member = dlsym(nccl.library, #_symbol)
    LOAD(get_unique_id, ncclGetUniqueId);
    LOAD(comm_init_rank, ncclCommInitRank);
    LOAD(comm_destroy, ncclCommDestroy);
    LOAD(group_start, ncclGroupStart);
    LOAD(group_end, ncclGroupEnd);
    LOAD(send, ncclSend);
    LOAD(receive, ncclRecv);
    LOAD(error_string, ncclGetErrorString);
#undef LOAD
    return nccl.get_unique_id && nccl.comm_init_rank && nccl.comm_destroy && nccl.group_start && nccl.group_end &&
           nccl.send && nccl.receive && nccl.error_string;
}

/* NULL, or why NCCL cannot run here; the same on all ranks. */
static const char *open_nccl(void)
{
    int rank, size, node_size, devices, good[2];
    nccl_id_t id = {{0}};
    MPI_Comm node;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &node_size);
    MPI_Comm_free(&node);
    MOE_CUDA(cudaGetDeviceCount(&devices));
    good[0] = load_nccl();
    good[1] = node_size <= devices;
    MPI_Allreduce(MPI_IN_PLACE, good, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!good[0]) {
        return "libnccl.so.2 is not found on every rank; MPATH_BENCH_NCCL can name it";
    }
    if (!good[1]) {
        return "ranks share a GPU, which NCCL refuses";
    }
    if (rank == 0) {
        nccl_check(nccl.get_unique_id(&id), "ncclGetUniqueId");
    }
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    nccl_check(nccl.comm_init_rank(&nccl.comm, size, id, rank), "ncclCommInitRank");
    return NULL;
}

/* A communicator made, and first used, while a variable has a value other than its own. */
static MPI_Comm make_comm(const char *variable, int value, int otherwise)
{
    int sizes[2 * MOE_MAX_RANKS] = {0};
    MPI_Comm comm;

    if (variable != NULL && !set_variable(variable, value)) {
        return MPI_COMM_NULL;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Alltoall(sizes, 1, MPI_INT, sizes + MOE_MAX_RANKS, 1, MPI_INT, comm);
    if (variable != NULL) {
        set_variable(variable, otherwise);
    }
    return comm;
}

/* NULL, or why it cannot run. */
static const char *open_backend(const char *name, moe_backend_t *backend)
{
    MPI_T_cvar_handle handle;
    int with_mpath = open_variable("coll_mpath_enable", &handle);

    if (with_mpath) {
        MPI_T_cvar_handle_free(&handle);
    }
    backend->comm = MPI_COMM_NULL;
    if (strcmp(name, "nccl") == 0) {
        backend->name = "nccl";
        backend->way  = MOE_NCCL;
        return open_nccl();
    }
    if (strcmp(name, "stock") == 0) {
        backend->name = "stock";
        backend->way  = MOE_STAGED;
        backend->comm = with_mpath ? make_comm("coll_mpath_enable", 0, 1) : make_comm(NULL, 0, 0);
        return NULL;
    }
    backend->way = MOE_MPI;
    if (!with_mpath) {
        return "mpath is not in this job (mpirun --mca coll mpath)";
    }
    if (strcmp(name, "static") == 0) { /* each pair takes its first path only */
        backend->name = "static";
        backend->comm = make_comm("coll_mpath_max_paths", 1, 0);
    } else if (strcmp(name, "mpath") == 0) {
        backend->name = "mpath";
        backend->comm = make_comm(NULL, 0, 0);
    } else {
        return "there are stock, nccl, static and mpath";
    }
    return backend->comm == MPI_COMM_NULL ? "this build of mpath has no coll_mpath_max_paths" : NULL;
}

int moe_backends_open(const char *list, moe_backend_t *backends, int max)
{
    char copy[256], *rest = copy, *name;
    const char *why;
    int count = 0, rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(copy, sizeof(copy), "%s", list);
    while ((name = strsep(&rest, ",")) != NULL && count < max) {
        why = open_backend(name, &backends[count]);
        if (why == NULL) {
            count++;
        } else if (rank == 0) {
            fprintf(stderr, "moe_layer: %s is left out: %s\n", name, why);
        }
    }
    return count;
}

void moe_backends_close(moe_backend_t *backends, int count)
{
    int i;

    for (i = 0; i < count; i++) {
        if (backends[i].comm != MPI_COMM_NULL) {
            MPI_Comm_free(&backends[i].comm);
        }
    }
    if (nccl.comm != NULL) {
        nccl_check(nccl.comm_destroy(nccl.comm), "ncclCommDestroy");
        nccl.comm = NULL;
    }
    for (i = 0; i < 2; i++) {
        cudaFreeHost(staging[i].memory);
        staging[i].memory = NULL;
        staging[i].bytes  = 0;
    }
}

/* --- exchange ---------------------------------------------------------------------------------------------------- */

static char *stage(int side, size_t bytes)
{
    if (staging[side].bytes < bytes) {
        MOE_CUDA(cudaFreeHost(staging[side].memory));
        MOE_CUDA(cudaMallocHost((void **)&staging[side].memory, bytes));
        staging[side].bytes = bytes;
    }
    return staging[side].memory;
}

void moe_exchange_poison(int byte)
{
    int side;

    for (side = 0; side < 2; side++) {
        if (staging[side].memory != NULL) {
            memset(staging[side].memory, byte, staging[side].bytes);
        }
    }
}

static void exchange_mpi(MPI_Comm comm, const moe_counts_t *counts, size_t row_bytes, const void *send, void *receive)
{
    MPI_Datatype row; /* counts in rows stay small where bytes would not */

    MPI_Type_contiguous((int)row_bytes, MPI_BYTE, &row);
    MPI_Type_commit(&row);
    MPI_Alltoallv(send, counts->send, counts->send_offset, row, receive, counts->receive, counts->receive_offset, row,
                  comm);
    MPI_Type_free(&row);
}

static size_t total_rows(MPI_Comm comm, const int *count, const int *offset)
{
    int size;

    MPI_Comm_size(comm, &size);
    return (size_t)offset[size - 1] + (size_t)count[size - 1];
}

static void exchange_staged(MPI_Comm comm, const moe_counts_t *counts, size_t row_bytes, const void *send,
                            void *receive)
{
    size_t send_bytes    = total_rows(comm, counts->send, counts->send_offset) * row_bytes;
    size_t receive_bytes = total_rows(comm, counts->receive, counts->receive_offset) * row_bytes;
    char *from = stage(0, send_bytes), *to = stage(1, receive_bytes);

    MOE_CUDA(cudaMemcpy(from, send, send_bytes, cudaMemcpyDeviceToHost));
    exchange_mpi(comm, counts, row_bytes, from, to);
    MOE_CUDA(cudaMemcpy(receive, to, receive_bytes, cudaMemcpyHostToDevice));
}

static void exchange_nccl(const moe_counts_t *counts, size_t row_bytes, const void *send, void *receive,
                          cudaStream_t stream)
{
    int size, peer;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    nccl_check(nccl.group_start(), "ncclGroupStart");
    for (peer = 0; peer < size; peer++) {
        if (counts->send[peer] > 0) {
            nccl_check(nccl.send((const char *)send + (size_t)counts->send_offset[peer] * row_bytes,
                                 (size_t)counts->send[peer] * row_bytes, NCCL_UINT8, peer, nccl.comm, stream),
                       "ncclSend");
        }
        if (counts->receive[peer] > 0) {
            nccl_check(nccl.receive((char *)receive + (size_t)counts->receive_offset[peer] * row_bytes,
                                    (size_t)counts->receive[peer] * row_bytes, NCCL_UINT8, peer, nccl.comm, stream),
                       "ncclRecv");
        }
    }
    nccl_check(nccl.group_end(), "ncclGroupEnd");
    MOE_CUDA(cudaStreamSynchronize(stream));
}

void moe_exchange(const moe_backend_t *backend, const moe_counts_t *counts, size_t row_bytes, const void *send,
                  void *receive, cudaStream_t stream)
{
    MOE_CUDA(cudaStreamSynchronize(stream)); /* the data is ready when the collective is called */
    switch (backend->way) {
    case MOE_MPI:
        exchange_mpi(backend->comm, counts, row_bytes, send, receive);
        break;
    case MOE_STAGED:
        exchange_staged(backend->comm, counts, row_bytes, send, receive);
        break;
    case MOE_NCCL:
        exchange_nccl(counts, row_bytes, send, receive, stream);
        break;
    }
}
