/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libnccl.so.2 without a GPU, for tests of mpath_bench: what it uses of NCCL, done by MPI from host copies of the
 * buffers, which the (fake) CUDA driver makes. Everything is finished when a call or a group returns.
 */
#include "device/cuda/driver.h"
#include "tools/bench/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_API __attribute__((visibility("default")))
#define OPS_MAX 1024
#define FAKE_VERSION 10203 /* 1.2.3: nobody takes it for a real one */

enum { FAILED = 3 };

typedef struct fake_op {
    int is_send, peer;
    void *device, *host;
    size_t bytes;
} fake_op_t;

struct ncclComm {
    MPI_Comm comm;
};

static struct {
    int depth, count;
    fake_op_t ops[OPS_MAX];
    struct ncclComm *comm;
} group;

static void *driver(const char *name)
{
    void *library  = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *function = (library != NULL) ? dlsym(library, name) : NULL;

    if (function == NULL) {
        fprintf(stderr, "fake NCCL: no %s\n", name);
        abort();
    }
    return function;
}

static void copy_in(void *host, const void *device, size_t bytes)
{
    mpath_cu_result_t (*copy)(void *, mpath_cu_ptr_t, size_t);

    *(void **)&copy = driver("cuMemcpyDtoH_v2");
    if (copy(host, (mpath_cu_ptr_t)(uintptr_t)device, bytes) != MPATH_CU_SUCCESS) {
        abort();
    }
}

static void copy_out(void *device, const void *host, size_t bytes)
{
    mpath_cu_result_t (*copy)(mpath_cu_ptr_t, const void *, size_t);

    *(void **)&copy = driver("cuMemcpyHtoD_v2");
    if (copy((mpath_cu_ptr_t)(uintptr_t)device, host, bytes) != MPATH_CU_SUCCESS) {
        abort();
    }
}

FAKE_API bench_nccl_result_t ncclGetVersion(int *version)
{
    *version = FAKE_VERSION;
    return 0;
}

FAKE_API const char *ncclGetErrorString(bench_nccl_result_t result)
{
    return result == 0 ? "no error" : "said by the fake NCCL";
}

FAKE_API bench_nccl_result_t ncclGetUniqueId(bench_nccl_id_t *id)
{
    memcpy(id->bytes, "fake", 5);
    return 0;
}

/* Of all ranks of MPI_COMM_WORLD, in its order. */
FAKE_API bench_nccl_result_t ncclCommInitRank(bench_nccl_comm_t *comm, int ranks, bench_nccl_id_t id, int rank)
{
    int mine, size;

    MPI_Comm_rank(MPI_COMM_WORLD, &mine);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (memcmp(id.bytes, "fake", 5) != 0 || mine != rank || size != ranks) {
        return FAILED;
    }
    *comm = malloc(sizeof(**comm));
    return MPI_Comm_dup(MPI_COMM_WORLD, &(*comm)->comm) == MPI_SUCCESS ? 0 : FAILED;
}

FAKE_API bench_nccl_result_t ncclCommDestroy(bench_nccl_comm_t comm)
{
    MPI_Comm_free(&comm->comm);
    free(comm);
    return 0;
}

FAKE_API bench_nccl_result_t ncclGroupStart(void)
{
    group.depth++;
    return 0;
}

FAKE_API bench_nccl_result_t ncclGroupEnd(void)
{
    static MPI_Request requests[OPS_MAX];
    fake_op_t *op;
    int i;

    if (--group.depth > 0) {
        return 0;
    }
    for (i = 0; i < group.count; i++) {
        op       = &group.ops[i];
        op->host = malloc(op->bytes);
        if (op->is_send) {
            copy_in(op->host, op->device, op->bytes);
            MPI_Isend(op->host, (int)op->bytes, MPI_BYTE, op->peer, 0, group.comm->comm, &requests[i]);
        } else {
            MPI_Irecv(op->host, (int)op->bytes, MPI_BYTE, op->peer, 0, group.comm->comm, &requests[i]);
        }
    }
    MPI_Waitall(group.count, requests, MPI_STATUSES_IGNORE);
    for (i = 0; i < group.count; i++) {
        op = &group.ops[i];
        if (!op->is_send) {
            copy_out(op->device, op->host, op->bytes);
        }
        free(op->host);
    }
    group.count = 0;
    return 0;
}

static bench_nccl_result_t add(int is_send, void *device, size_t count, int type, int peer, bench_nccl_comm_t comm)
{
    if (type != BENCH_NCCL_UINT8 || group.count == OPS_MAX || group.depth == 0) {
        return FAILED;
    }
    group.comm               = comm;
    group.ops[group.count++] = (fake_op_t){.is_send = is_send, .peer = peer, .device = device, .bytes = count};
    return 0;
}

FAKE_API bench_nccl_result_t ncclSend(const void *buffer, size_t count, int type, int peer, bench_nccl_comm_t comm,
                                      mpath_cu_stream_t stream)
{
    (void)stream;
    return add(1, (void *)(uintptr_t)buffer, count, type, peer, comm);
}

FAKE_API bench_nccl_result_t ncclRecv(void *buffer, size_t count, int type, int peer, bench_nccl_comm_t comm,
                                      mpath_cu_stream_t stream)
{
    (void)stream;
    return add(0, buffer, count, type, peer, comm);
}

static const struct {
    int type;
    size_t bytes;
} types[] = {{BENCH_NCCL_UINT8, 1}, {BENCH_NCCL_INT32, 4}, {BENCH_NCCL_FLOAT, 4}, {BENCH_NCCL_DOUBLE, 8}};

static size_t type_bytes(int type, MPI_Datatype *mpi_p)
{
    const MPI_Datatype mpi[] = {MPI_UINT8_T, MPI_INT32_T, MPI_FLOAT, MPI_DOUBLE};
    size_t i;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].type == type) {
            *mpi_p = mpi[i];
            return types[i].bytes;
        }
    }
    fprintf(stderr, "fake NCCL: type %d\n", type);
    abort();
}

typedef enum fake_collective { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER } fake_collective_t;

/* `count` as the function counts: sent by a rank, received by one of a reduce-scatter. */
static bench_nccl_result_t collective(fake_collective_t what, const void *send, void *receive, size_t count, int type,
                                      bench_nccl_comm_t comm)
{
    MPI_Datatype mpi;
    size_t bytes = count * type_bytes(type, &mpi), send_bytes, receive_bytes;
    void *from, *to;
    int size;

    MPI_Comm_size(comm->comm, &size);
    send_bytes    = what == REDUCE_SCATTER ? bytes * (size_t)size : bytes;
    receive_bytes = what == ALL_GATHER ? bytes * (size_t)size : bytes;
    from          = malloc(send_bytes);
    to            = malloc(receive_bytes);
    copy_in(from, send, send_bytes);
    if (what == ALL_REDUCE) {
        MPI_Allreduce(from, to, (int)count, mpi, MPI_SUM, comm->comm);
    } else if (what == ALL_GATHER) {
        MPI_Allgather(from, (int)count, mpi, to, (int)count, mpi, comm->comm);
    } else {
        MPI_Reduce_scatter_block(from, to, (int)count, mpi, MPI_SUM, comm->comm);
    }
    copy_out(receive, to, receive_bytes);
    free(from);
    free(to);
    return 0;
}

FAKE_API bench_nccl_result_t ncclAllReduce(const void *send, void *receive, size_t count, int type, int op,
                                           bench_nccl_comm_t comm, mpath_cu_stream_t stream)
{
    (void)stream;
    return op == BENCH_NCCL_SUM ? collective(ALL_REDUCE, send, receive, count, type, comm) : FAILED;
}

FAKE_API bench_nccl_result_t ncclAllGather(const void *send, void *receive, size_t count, int type,
                                           bench_nccl_comm_t comm, mpath_cu_stream_t stream)
{
    (void)stream;
    return collective(ALL_GATHER, send, receive, count, type, comm);
}

FAKE_API bench_nccl_result_t ncclReduceScatter(const void *send, void *receive, size_t count, int type, int op,
                                               bench_nccl_comm_t comm, mpath_cu_stream_t stream)
{
    (void)stream;
    return op == BENCH_NCCL_SUM ? collective(REDUCE_SCATTER, send, receive, count, type, comm) : FAILED;
}
