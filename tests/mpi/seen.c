/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A known number of calls, for what mpath says of them: seen [alone|packed|until FILE]. On MPI_COMM_WORLD 10 MPI_Alltoallv of
 * 64 KiB to each rank and 3 MPI_Allreduce of 8 bytes; on each half of the ranks 4 MPI_Alltoallv more. Checks the MPI_T
 * variables by reason and by rail; the summary is checked by mpi/run.
 *   alone   only the upper half makes calls, on its own communicator
 *   packed  5 MPI_Allgather of a type with gaps
 *   until   MPI_Alltoallv on MPI_COMM_WORLD until there is FILE and a rail has failed, and 3 more. Rank 0 prints "under way",
 *           and at the end what rails have carried, which is compared with what had to go between nodes; cluster/failures
 */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORLD_CALLS 10
#define HALF_CALLS 4
#define SHORT_CALLS 3
#define BYTES 65536

static void alltoallv(MPI_Comm comm, int calls)
{
    int size, rank, i;
    int *counts, *displs;
    char *send, *recv;

    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    counts = malloc((size_t)size * sizeof(*counts));
    displs = malloc((size_t)size * sizeof(*displs));
    send   = calloc((size_t)size, BYTES);
    recv   = calloc((size_t)size, BYTES);
    for (i = 0; i < size; i++) {
        counts[i] = BYTES;
        displs[i] = i * BYTES;
        memset(send + displs[i], rank, BYTES);
    }
    for (i = 0; i < calls; i++) {
        MPI_Alltoallv(send, counts, displs, MPI_BYTE, recv, counts, displs, MPI_BYTE, comm);
    }
    free(recv);
    free(send);
    free(displs);
    free(counts);
}

/* Each rank's variables say what this rank has done. */
static void check_reasons(void)
{
    static const char *const keys[] = {"parameter", "faster_before", "predicted", "one_rail", "one_node",
                                       "short",     "not_carried",   "no_path",   "setup",    "other"};
    unsigned long long left = 0, short_calls = cases_counter("coll_mpath_left_short");
    unsigned long long carried = cases_counter("coll_mpath_calls");
    char name[64];
    size_t i;

    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        snprintf(name, sizeof(name), "coll_mpath_left_%s", keys[i]);
        left += cases_counter(name);
    }
    case_end("carried", carried != WORLD_CALLS + HALF_CALLS);
    case_end("left-short", short_calls < SHORT_CALLS);
    case_end("left-otherwise", left != short_calls);
    case_end("not-failed", cases_counter("coll_mpath_failed") != 0 || cases_counter("coll_mpath_repeated") != 0);
}

static void check_rails(void)
{
    unsigned long long sent[64], received[64], numbers[64], failures[64], sum[2] = {0, 0}, all[2];
    int count  = cases_counters("coll_mpath_rail_sent_bytes", sent, 64), i;
    int same   = cases_counters("coll_mpath_rail_received_bytes", received, 64) == count;
    int others = cases_counters("coll_mpath_rail_number", numbers, 64) == count &&
                 cases_counters("coll_mpath_rail_failures", failures, 64) == count;

    for (i = 0; i < count; i++) {
        sum[0] += sent[i];
        sum[1] += received[i];
        others &= failures[i] == 0 && (numbers[i] != ~0ull || (sent[i] == 0 && received[i] == 0));
    }
    MPI_Allreduce(sum, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    case_end("rails", count == 0 || !same || !others);
    case_end("rails-bytes", all[0] == 0 || all[0] != all[1]); /* what is sent comes */
}

#define PACKED_CALLS 5
#define PACKED_BLOCKS 8192

static void allgather_packed(void)
{
    MPI_Datatype type;
    int size, i;
    char *send, *recv;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Type_vector(PACKED_BLOCKS, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    send = calloc(2 * PACKED_BLOCKS, sizeof(int));
    recv = calloc((size_t)size * 2 * PACKED_BLOCKS, sizeof(int));
    for (i = 0; i < PACKED_CALLS; i++) {
        MPI_Allgather(send, 1, type, recv, 1, type, MPI_COMM_WORLD);
    }
    free(recv);
    free(send);
    MPI_Type_free(&type);
}

/* Rails of a number, on all ranks: what they have carried, and the number of those that have failed. */
static void sum_rails(unsigned long long carried[2], unsigned long long failed[64])
{
    unsigned long long sent[64], received[64], numbers[64], failures[64], mine[2] = {0, 0}, lost[64] = {0};
    int count = cases_counters("coll_mpath_rail_sent_bytes", sent, 64), i;

    cases_counters("coll_mpath_rail_received_bytes", received, 64);
    cases_counters("coll_mpath_rail_number", numbers, 64);
    cases_counters("coll_mpath_rail_failures", failures, 64);
    for (i = 0; i < count; i++) {
        mine[0] += sent[i];
        mine[1] += received[i];
        if (numbers[i] < 64) {
            lost[numbers[i]] += failures[i];
        }
    }
    /* Not by Allreduce, which might use them itself. */
    MPI_Reduce(mine, carried, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(lost, failed, 64, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Bcast(carried, 2, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
    MPI_Bcast(failed, 64, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
}

#define WHOLE_CALLS 3 /* before anything fails: what is counted is just what goes between nodes */

static void alltoallv_until(const char *file)
{
    unsigned long long carried[2], failed[64], calls = 0, between, repeated;
    int rank, size, on_node, left = -1, wrong = 0, i;
    MPI_Comm node;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &on_node);
    MPI_Comm_free(&node);
    between = (unsigned long long)size * (unsigned long long)(size - on_node) * BYTES;
    while (left != 0) {
        alltoallv(MPI_COMM_WORLD, 1);
        calls++;
        if (calls == WHOLE_CALLS) {
            sum_rails(carried, failed);
            case_end("whole-sent", carried[0] != calls * between);
            case_end("whole-received", carried[1] != calls * between);
            if (rank == 0) {
                printf("under way\n");
                fflush(stdout);
            }
        }
        if (left > 0) {
            left--;
        } else if (rank == 0 && access(file, F_OK) == 0) {
            left = 3;
        }
        MPI_Bcast(&left, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    sum_rails(carried, failed);
    repeated = cases_counter("coll_mpath_repeated"); /* the same on all ranks */
    for (i = 0; i < 64; i++) {
        wrong += i == 1 ? failed[i] == 0 : failed[i] != 0;
    }
    case_end("failed-rail", wrong);
    case_end("repeated", repeated == 0);
    case_end("sent", carried[0] < calls * between || carried[0] > (calls + repeated) * between);
    case_end("received", carried[1] < calls * between || carried[1] > (calls + repeated) * between);
    if (rank == 0) {
        printf("calls %llu repeated %llu between %llu sent %llu received %llu\n", calls, repeated, calls * between,
               carried[0], carried[1]);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    int rank, size, i, value = 1, sum;
    MPI_Comm half;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank >= size / 2, rank, &half);
    if (argc > 1) {
        if (strcmp(argv[1], "packed") == 0) {
            allgather_packed();
        } else if (argc > 2) {
            alltoallv_until(argv[2]);
        } else if (rank >= size / 2) {
            alltoallv(half, HALF_CALLS);
        }
        MPI_Finalize();
        return cases_failed() > 0;
    }
    alltoallv(MPI_COMM_WORLD, WORLD_CALLS);
    alltoallv(half, HALF_CALLS);
    MPI_Comm_free(&half);
    for (i = 0; i < SHORT_CALLS; i++) {
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    check_reasons();
    check_rails();
    MPI_Finalize();
    return cases_failed() > 0;
}
