/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process dies before the ranks of a communicator set mpath up on it, or while they do: `first_dead WHEN OPERATION VICTIM [alone]`.
 * All others get an error from that first call and from the next one, can free the communicator, and go on with another one.
 * WHEN: "cold" (before the job has used mpath), "warm" (after that), "reserve" or "unlink" (while the victim makes shared
 * memory, or removes its name); "all": there it takes all others with it. "alone": the communicator has no other process
 * of the victim's host, so that nobody can see that it is gone.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mpi/cases.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define BYTES 50000
#define ELEMENTS 50000
#define PATIENCE_S 400
#define PAGE_BYTES 24576 /* what a process shares of its own with mpath_info */

static enum { DIES_NOT, DIES_AT_RESERVE, DIES_AT_UNLINK, ALL_DIE_AT_UNLINK } dies;
static int my_pid, num_pids, *pids;

static void die(int all)
{
    for (int i = 0; all && i < num_pids; i++) {
        if (pids[i] != my_pid) {
            kill(pids[i], SIGKILL);
        }
    }
    kill(my_pid, SIGKILL);
}

/* Before the library's of the same names. */
int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    static int (*next)(int, off_t, off_t);

    if (dies == DIES_AT_RESERVE && bytes != PAGE_BYTES) {
        die(0);
    }
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "posix_fallocate");
    }
    return next(fd, offset, bytes);
}

int shm_unlink(const char *name)
{
    static int (*next)(const char *);

    if (dies >= DIES_AT_UNLINK) {
        die(dies == ALL_DIE_AT_UNLINK);
    }
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "shm_unlink");
    }
    return next(name);
}

static int wait_for(int rc, MPI_Request *request)
{
    return rc != MPI_SUCCESS ? rc : MPI_Wait(request, MPI_STATUS_IGNORE);
}

/* One call, whose result is right if it succeeds. */
static int use(MPI_Comm comm, const char *operation)
{
    int size, rank, rc;
    MPI_Request request;

    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    if (strstr(operation, "alltoallv") != NULL) {
        int *counts = malloc((size_t)size * sizeof(int)), *offsets = malloc((size_t)size * sizeof(int));
        char *send = malloc((size_t)size * BYTES), *receive = malloc((size_t)size * BYTES);

        for (int i = 0; i < size; i++) {
            counts[i]  = BYTES;
            offsets[i] = i * BYTES;
        }
        memset(send, rank + 1, (size_t)size * BYTES);
        rc = operation[0] == 'i'
                 ? wait_for(MPI_Ialltoallv(send, counts, offsets, MPI_BYTE, receive, counts, offsets, MPI_BYTE, comm,
                                           &request),
                            &request)
                 : MPI_Alltoallv(send, counts, offsets, MPI_BYTE, receive, counts, offsets, MPI_BYTE, comm);
        for (int i = 0; rc == MPI_SUCCESS && i < size * BYTES; i++) {
            if (receive[i] != (char)(i / BYTES + 1)) {
                printf("case bad wrong byte %d\n", i);
                exit(1);
            }
        }
        free(counts);
        free(offsets);
        if (rc == MPI_SUCCESS) { /* else others may still read or write them */
            free(send);
            free(receive);
        }
        return rc;
    }
    {
        int *send = malloc(ELEMENTS * sizeof(int)), *receive = malloc(ELEMENTS * sizeof(int));

        for (int i = 0; i < ELEMENTS; i++) {
            send[i] = i + rank;
        }
        rc = operation[0] == 'i'
                 ? wait_for(MPI_Iallreduce(send, receive, ELEMENTS, MPI_INT, MPI_SUM, comm, &request), &request)
                 : MPI_Allreduce(send, receive, ELEMENTS, MPI_INT, MPI_SUM, comm);
        for (int i = 0; rc == MPI_SUCCESS && i < ELEMENTS; i++) {
            if (receive[i] != i * size + size * (size - 1) / 2) {
                printf("case bad wrong element %d\n", i);
                exit(1);
            }
        }
        if (rc == MPI_SUCCESS) {
            free(send);
            free(receive);
        }
    }
    return rc;
}

/* All, or without the other processes of the victim's host. */
static void make_comm(int victim, int alone, MPI_Comm *comm_p)
{
    char mine[MPI_MAX_PROCESSOR_NAME] = "", victims[MPI_MAX_PROCESSOR_NAME];
    int rank, length;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Get_processor_name(mine, &length);
    memcpy(victims, mine, sizeof(mine));
    MPI_Bcast(victims, sizeof(victims), MPI_CHAR, victim, MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, alone && rank != victim && strcmp(mine, victims) == 0 ? MPI_UNDEFINED : 0, rank,
                   comm_p);
}

int main(int argc, char **argv)
{
    const char *when = argc > 3 ? argv[1] : "", *operation = argc > 3 ? argv[2] : "";
    int victim = argc > 3 ? atoi(argv[3]) : 0, rank, first, second;
    MPI_Comm comm, others;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &num_pids);
    my_pid = (int)getpid();
    pids   = malloc((size_t)num_pids * sizeof(int));
    MPI_Allgather(&my_pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
    make_comm(victim, argc > 4 && strcmp(argv[4], "alone") == 0, &comm);
    MPI_Comm_split(MPI_COMM_WORLD, comm == MPI_COMM_NULL ? MPI_UNDEFINED : rank == victim, rank, &others);
    if (comm != MPI_COMM_NULL) {
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* to which Open MPI hands errors of MPI_Wait */
    if (strcmp(when, "warm") == 0 && use(MPI_COMM_WORLD, operation) != MPI_SUCCESS) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    alarm(PATIENCE_S); /* ends the process: no line from it */
    if (rank == victim) {
        printf("rank %d dies, process %d\n", rank, my_pid);
        fflush(stdout);
        dies = strcmp(when, "reserve") == 0  ? DIES_AT_RESERVE
               : strcmp(when, "unlink") == 0 ? DIES_AT_UNLINK
               : strcmp(when, "all") == 0    ? ALL_DIE_AT_UNLINK
                                             : DIES_NOT;
        if (dies == DIES_NOT) {
            die(0);
        }
    }
    first = second = MPI_SUCCESS;
    if (comm != MPI_COMM_NULL) {
        first  = use(comm, operation);
        second = use(comm, operation);
        MPI_Comm_free(&comm);
    }
    if (others != MPI_COMM_NULL && use(others, operation) != MPI_SUCCESS) {
        MPI_Abort(MPI_COMM_WORLD, 98);
    }
    printf("rank %d came back with %s, then with %s\n", rank, first == MPI_SUCCESS ? "success" : "an error",
           second == MPI_SUCCESS ? "success" : "an error");
    fflush(stdout);
    _exit(0); /* MPI_Finalize would wait for the dead */
}
