/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: NCCL as a contestant, loaded at run time (libnccl.so.2, or what the environment variable
 * MPATH_BENCH_NCCL names). The part of its binary interface that is used is declared here; NVIDIA's nccl.h documents
 * it.
 */
#ifndef MPATH_TOOLS_BENCH_NCCL_H
#define MPATH_TOOLS_BENCH_NCCL_H

#include "device/cuda/cuda_abi.h"

#include <mpi.h>
#include <stddef.h>

typedef int bench_nccl_result_t;
typedef struct ncclComm *bench_nccl_comm_t;

typedef struct bench_nccl_id {
    char bytes[128];
} bench_nccl_id_t;

enum { BENCH_NCCL_UINT8 = 1, BENCH_NCCL_INT32 = 2, BENCH_NCCL_FLOAT = 7, BENCH_NCCL_DOUBLE = 8 }; /* ncclDataType_t */
enum { BENCH_NCCL_SUM = 0 };                                                                      /* ncclRedOp_t */

/* X(member, symbol, (parameters)) */
#define BENCH_NCCL_FUNCTIONS(X)                                                                                        \
    X(get_version, ncclGetVersion, (int *version))                                                                     \
    X(get_unique_id, ncclGetUniqueId, (bench_nccl_id_t * id))                                                          \
    X(comm_init_rank, ncclCommInitRank, (bench_nccl_comm_t * comm, int ranks, bench_nccl_id_t id, int rank))           \
    X(comm_destroy, ncclCommDestroy, (bench_nccl_comm_t comm))                                                         \
    X(group_start, ncclGroupStart, (void))                                                                             \
    X(group_end, ncclGroupEnd, (void))                                                                                 \
    X(send, ncclSend,                                                                                                  \
      (const void *buffer, size_t count, int type, int peer, bench_nccl_comm_t comm, mpath_cu_stream_t stream))        \
    X(recv, ncclRecv,                                                                                                  \
      (void *buffer, size_t count, int type, int peer, bench_nccl_comm_t comm, mpath_cu_stream_t stream))              \
    X(all_reduce, ncclAllReduce,                                                                                       \
      (const void *send, void *receive, size_t count, int type, int op, bench_nccl_comm_t comm,                        \
       mpath_cu_stream_t stream))                                                                                      \
    X(all_gather, ncclAllGather,                                                                                       \
      (const void *send, void *receive, size_t send_count, int type, bench_nccl_comm_t comm,                           \
       mpath_cu_stream_t stream))                                                                                      \
    X(reduce_scatter, ncclReduceScatter,                                                                               \
      (const void *send, void *receive, size_t receive_count, int type, int op, bench_nccl_comm_t comm,                \
       mpath_cu_stream_t stream))

#define BENCH_NCCL_MEMBER(_member, _symbol, _parameters) bench_nccl_result_t(*_member) _parameters;

typedef struct bench_nccl {
    BENCH_NCCL_FUNCTIONS(BENCH_NCCL_MEMBER)
    const char *(*get_error_string)(bench_nccl_result_t result);
    int version; /* 22809: 2.28.9 */
    bench_nccl_comm_t comm;
    mpath_cu_stream_t stream;
} bench_nccl_t;

extern bench_nccl_t bench_nccl;

/*
 * Keeps NCCL from NVLink multicast: on shared hosts it can put GPUs out of service, and it plays no part in what is
 * compared. Before anything loads NCCL.
 */
void bench_nccl_prepare(void);
/* Collective over MPI_COMM_WORLD, with this rank's GPU current. Returns 0, or -1 on all ranks with a message. */
int bench_nccl_open(void);
void bench_nccl_close(void);
/* Ends the job with a message that names the call unless it succeeded. */
void bench_nccl_check(bench_nccl_result_t result, const char *call);
/* Until all that was enqueued is done. */
void bench_nccl_finish(void);

#endif
