/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory runs out on one rank, for one allocation of the component: `no_memory WHERE LAST [N]`. For each N, from 1 to LAST
 * or just the one, and each of two victims a communicator is made and used for the first time, and the victim's N-th
 * allocation meanwhile fails. Nobody may hang, and who has no error has the right data. WHERE is "again", where the
 * process has used mpath before, or "first": then the program needs an N, and the victim is its rank. With "again-waits" and
 * "first-waits" a non-blocking call is the first one of the communicator.
 *
 * Only what mca_coll_mpath.so asks for by itself counts: others have their own ways to fail.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mpi/cases.h"

#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES 20000
#define ELEMENTS 100000
#define PATIENCE_S 400

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static int armed;    /* which allocation from now on fails; 0: none */
static int num_made; /* since then */
static uintptr_t
    component[2]; /* where the component is; found out beforehand: an allocation may be the dynamic linker's */

static int find_component(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    (void)argument;
    if (info->dlpi_name == NULL || strstr(info->dlpi_name, "mca_coll_mpath") == NULL) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = begin + info->dlpi_phdr[i].p_memsz;

        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            component[0] = component[0] == 0 || begin < component[0] ? begin : component[0];
            component[1] = end > component[1] ? end : component[1];
        }
    }
    return 1;
}

static int fails(const void *caller)
{
    if (armed == 0 || (uintptr_t)caller < component[0] || (uintptr_t)caller >= component[1]) {
        return 0;
    }
    if (__atomic_add_fetch(&num_made, 1, __ATOMIC_RELAXED) != armed) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory_p, size_t alignment, size_t bytes)
{
    void *memory = fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);

    *memory_p = (memory != NULL) ? memory : *memory_p;
    return (memory != NULL) ? 0 : ENOMEM;
}

typedef struct buffers {
    int *counts, *offsets;
    unsigned char *send, *receive;
    int *in, *out;
} buffers_t;

static void buffers_init(buffers_t *b, int size)
{
    b->counts  = malloc((size_t)size * sizeof(int));
    b->offsets = malloc((size_t)size * sizeof(int));
    b->send    = malloc((size_t)size * BYTES);
    b->receive = malloc((size_t)size * BYTES);
    b->in      = malloc(ELEMENTS * sizeof(int));
    b->out     = malloc(ELEMENTS * sizeof(int));
    for (int peer = 0; peer < size; peer++) {
        b->counts[peer]  = BYTES;
        b->offsets[peer] = peer * BYTES;
    }
}

static int exchange_is_wrong(buffers_t *b, MPI_Comm comm, int rank, int size, int waits)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int status;

    memset(b->send, rank + 1, (size_t)size * BYTES);
    memset(b->receive, 0, (size_t)size * BYTES);
    if (waits) {
        status = MPI_Ialltoallv(b->send, b->counts, b->offsets, MPI_BYTE, b->receive, b->counts, b->offsets, MPI_BYTE,
                                comm, &request);
        status = (status == MPI_SUCCESS) ? MPI_Wait(&request, MPI_STATUS_IGNORE) : status;
    } else {
        status = MPI_Alltoallv(b->send, b->counts, b->offsets, MPI_BYTE, b->receive, b->counts, b->offsets, MPI_BYTE,
                               comm);
    }
    for (int i = 0; status == MPI_SUCCESS && i < size * BYTES; i++) {
        if (b->receive[i] != i / BYTES + 1) {
            return 1;
        }
    }
    return 0;
}

static int sum_is_wrong(buffers_t *b, MPI_Comm comm, int rank, int size)
{
    for (int i = 0; i < ELEMENTS; i++) {
        b->in[i] = rank + i;
    }
    if (MPI_Allreduce(b->in, b->out, ELEMENTS, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS) {
        return 0;
    }
    for (int i = 0; i < ELEMENTS; i++) {
        if (b->out[i] != size * i + size * (size - 1) / 2) {
            return 1;
        }
    }
    return 0;
}

/* Returns how many allocations there were on the victim. */
static int use_first(buffers_t *b, int n, int victim, int reduces, int waits, int *bad_p)
{
    int rank, size, wrong = 0, made, any;
    MPI_Comm comm;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    PMPI_Barrier(MPI_COMM_WORLD);
    alarm(PATIENCE_S);
    num_made = 0;
    armed    = (rank == victim) ? n : 0;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &comm) != MPI_SUCCESS) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    wrong |= waits && exchange_is_wrong(b, comm, rank, size, 1);
    wrong |= reduces && sum_is_wrong(b, comm, rank, size);
    wrong |= exchange_is_wrong(b, comm, rank, size, 0);
    wrong |= exchange_is_wrong(b, comm, rank, size, 1);
    wrong |= !reduces && sum_is_wrong(b, comm, rank, size);
    armed = 0;
    made  = num_made;
    MPI_Comm_free(&comm);
    MPI_Bcast(&made, 1, MPI_INT, victim, MPI_COMM_WORLD);
    MPI_Reduce(&wrong, &any, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    alarm(0);
    if (rank == 0 && any) {
        printf("case bad rank %d without its allocation %d: wrong data\n", victim, n);
        *bad_p = 1;
    }
    return made;
}

int main(int argc, char **argv)
{
    int last = (argc > 2) ? atoi(argv[2]) : 200, only = (argc > 3) ? atoi(argv[3]) : 0, bad = 0, rank, size, made = 0;
    const char *where = argc > 1 ? argv[1] : "first";
    int waits = strstr(where, "waits") != NULL, again = strncmp(where, "first", 5) != 0;
    buffers_t b;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    buffers_init(&b, size);
    (void)dl_iterate_phdr(find_component, NULL);
    if (component[0] == 0) {
        fprintf(stderr, "mca_coll_mpath is not loaded\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* MPI_Wait asks this one */
    if (again) {
        (void)use_first(&b, 0, 0, 0, 0, &bad);
    }
    for (int victim = 0; victim < 2; victim++) {
        for (int n = (only > 0) ? only : 1; n <= ((only > 0) ? only : last); n++) {
            if (rank == victim) {
                fprintf(stderr, "rank %d without its allocation %d\n", victim, n);
            }
            made = use_first(&b, n, victim, n % 2, waits, &bad);
            if (made < n) {
                break;
            }
        }
        if (!again) {
            break;
        }
        if (rank == 0) {
            printf("%d allocations on rank %d\n", made, victim);
        }
    }
    cases_print_calls();
    if (rank == 0 && !bad) {
        printf("case ok %s\n", where);
    }
    MPI_Finalize();
    return bad;
}
