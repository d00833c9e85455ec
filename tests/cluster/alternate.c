/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two live communicators on which MPI_Alltoallv and MPI_Allreduce alternate, every result checked, while a rail is cut
 * and plugged in again:
 *
 *   alternate BYTES_PER_RANK FILE
 *
 * The program goes on until FILE says "end". "alltoallv": only that, for a reduction does not survive the loss of a
 * rail; "allreduce": only that; "both": the two in turn. Rank 0 reads the file before each round, tells the others and
 * prints "doing WHAT" when it has changed. A rank with an error or a wrong result prints "rank R: ..." and stays.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOT_SHARE_PERCENT 70

enum { WANT_END, WANT_ALLTOALLV, WANT_ALLREDUCE, WANT_BOTH };
static const char *const wants[] = {"end", "alltoallv", "allreduce", "both"};

typedef struct work {
    int rank, size;
    MPI_Comm comms[2]; /* the world, and the same ranks in reverse order */
    int bytes;
    int *counts; /* 4 * size: of the sends, their offsets, of the receives, their offsets */
    unsigned char *send, *receive;
    int elements;
    int *vector, *sum;
} work_t;

static void fail(const work_t *work, const char *what, int comm, int round)
{
    printf("rank %d: %s on communicator %d in round %d\n", work->rank, what, comm, round);
    fflush(stdout);
    pause();
}

static unsigned char byte_of(int source, int destination, int round)
{
    return (unsigned char)(source * 17 + destination * 29 + round * 7);
}

static void alltoallv(work_t *work, int comm, int round)
{
    int me, *send_counts = work->counts, *send_offsets = work->counts + work->size;
    int *receive_counts = work->counts + 2 * work->size, *receive_offsets = work->counts + 3 * work->size;
    int hot = work->bytes / 100 * HOT_SHARE_PERCENT, even = (work->bytes - hot) / work->size, sent = 0, received = 0;

    MPI_Comm_rank(work->comms[comm], &me);
    for (int peer = 0; peer < work->size; peer++) {
        send_counts[peer]     = even + (peer == 0 ? hot : 0);
        receive_counts[peer]  = even + (me == 0 ? hot : 0);
        send_offsets[peer]    = sent;
        receive_offsets[peer] = received;
        memset(work->send + sent, byte_of(me, peer, round), (size_t)send_counts[peer]);
        sent += send_counts[peer];
        received += receive_counts[peer];
    }
    memset(work->receive, byte_of(1, 1, round) ^ 0x55, (size_t)received);
    if (MPI_Alltoallv(work->send, send_counts, send_offsets, MPI_BYTE, work->receive, receive_counts, receive_offsets,
                      MPI_BYTE, work->comms[comm]) != MPI_SUCCESS) {
        fail(work, "error of MPI_Alltoallv", comm, round);
    }
    for (int peer = 0; peer < work->size; peer++) {
        for (int i = 0; i < receive_counts[peer]; i++) {
            if (work->receive[receive_offsets[peer] + i] != byte_of(peer, me, round)) {
                fail(work, "wrong bytes of MPI_Alltoallv", comm, round);
            }
        }
    }
}

static void allreduce(work_t *work, int comm, int round)
{
    for (int i = 0; i < work->elements; i++) {
        work->vector[i] = work->rank * (i % 1000) + round;
        work->sum[i]    = -1;
    }
    if (MPI_Allreduce(work->vector, work->sum, work->elements, MPI_INT, MPI_SUM, work->comms[comm]) != MPI_SUCCESS) {
        fail(work, "error of MPI_Allreduce", comm, round);
    }
    for (int i = 0; i < work->elements; i++) {
        if (work->sum[i] != work->size * (work->size - 1) / 2 * (i % 1000) + work->size * round) {
            fail(work, "wrong sum of MPI_Allreduce", comm, round);
        }
    }
}

static int read_want(const char *path, int before)
{
    char text[32] = "";
    FILE *file    = fopen(path, "r");

    if (file != NULL) {
        if (fgets(text, sizeof(text), file) == NULL) {
            text[0] = '\0';
        }
        fclose(file);
    }
    text[strcspn(text, "\n")] = '\0';
    for (int want = 0; want <= WANT_BOTH; want++) {
        if (strcmp(text, wants[want]) == 0) {
            return want;
        }
    }
    return before;
}

static int work_init(work_t *work, int bytes)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &work->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &work->size);
    work->bytes    = bytes;
    work->elements = bytes / (int)sizeof(int);
    work->counts   = malloc(4 * (size_t)work->size * sizeof(int));
    work->send     = malloc((size_t)bytes + 1);
    work->receive  = malloc((size_t)bytes * (size_t)work->size + 1);
    work->vector   = malloc((size_t)bytes);
    work->sum      = malloc((size_t)bytes);
    work->comms[0] = MPI_COMM_WORLD;
    if (work->counts == NULL || work->send == NULL || work->receive == NULL || work->vector == NULL ||
        work->sum == NULL) {
        return -1;
    }
    MPI_Comm_split(MPI_COMM_WORLD, 0, -work->rank, &work->comms[1]);
    MPI_Comm_set_name(work->comms[1], "reversed");
    MPI_Comm_set_errhandler(work->comms[0], MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(work->comms[1], MPI_ERRORS_RETURN);
    return 0;
}

int main(int argc, char **argv)
{
    int want = WANT_BOTH, said = -1;
    work_t work = {0};

    MPI_Init(&argc, &argv);
    if (argc != 3 || work_init(&work, atoi(argv[1])) != 0) {
        fprintf(stderr, "usage: alternate BYTES_PER_RANK FILE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int round = 0; want != WANT_END; round++) {
        if (work.rank == 0) {
            want = read_want(argv[2], want);
        }
        MPI_Bcast(&want, 1, MPI_INT, 0, MPI_COMM_WORLD);
        for (int comm = 0; comm < 2 && want != WANT_END; comm++) {
            if (want != WANT_ALLREDUCE) {
                alltoallv(&work, comm, round);
            }
            if (want != WANT_ALLTOALLV) {
                allreduce(&work, comm, round);
            }
        }
        if (work.rank == 0 && want != said) {
            printf("doing %s\n", wants[want]);
            fflush(stdout);
            said = want;
        }
    }
    MPI_Comm_free(&work.comms[1]);
    MPI_Finalize();
    return 0;
}
