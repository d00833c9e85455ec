/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nothing grows with the number of calls or of communicators: every operation in every form, many times, and communicators
 * that come, are used and go. Looks at resident memory, descriptors and names in /dev/shm.
 * Arguments: names of cases; "threads" asks for MPI_THREAD_MULTIPLE.
 */
#include "mpi/cases.h"
#include "mpi/nonblocking_ops.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ELEMENTS 1024 /* 8 KiB for each rank: more than travels in an agreement, or goes to libnbc without a question */
#define CALLS 2000
#define WARM_CALLS 200 /* pools of Open MPI and of UCX are made meanwhile */
#define CALL_BYTES 500 /* each keeps less */
#define COMMUNICATORS 500
#define WARM_COMMUNICATORS 60
#define COMMUNICATOR_BYTES 500 /* Open MPI itself keeps a hundred bytes or two of each */
#define THINGS 20 /* descriptors and names that come and go in a process; one that each left behind would be hundreds */

typedef struct state {
    long bytes;          /* resident */
    int files, segments; /* descriptors; this process's names in /dev/shm */
} state_t;

static int world_rank;

static int count_entries(const char *folder, const char *prefix)
{
    struct dirent *entry;
    DIR *dir  = opendir(folder);
    int count = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static state_t look(void)
{
    FILE *file    = fopen("/proc/self/statm", "r");
    state_t state = {0};
    char prefix[32];
    long pages = 0;

    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) {
        fprintf(stderr, "/proc/self/statm cannot be read\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    fclose(file);
    snprintf(prefix, sizeof(prefix), "mpath-%d-", (int)getpid());
    state.bytes    = pages * sysconf(_SC_PAGESIZE);
    state.files    = count_entries("/proc/self/fd", "");
    state.segments = count_entries("/dev/shm", prefix);
    return state;
}

/* Since `before`, in which so many calls or communicators were to keep less than `each_bytes`. 1: it grew. */
static long grown(const char *name, state_t before, int number, long each_bytes)
{
    state_t now  = look();
    long bytes   = now.bytes - before.bytes;
    int files    = now.files - before.files;
    int segments = now.segments - before.segments;

    if (bytes <= number * each_bytes && files <= THINGS && segments <= THINGS) {
        return 0;
    }
    fprintf(stderr, "rank %d: %d x %s left %ld bytes each, %d descriptors and %d names in /dev/shm in all\n",
            world_rank, number, name, bytes / number, files, segments);
    return 1;
}

/* -- calls -- */

/* The request is made before and freed afterwards. */
static void do_persistent(operation_t *operation)
{
    MPI_Start(&operation->request);
    MPI_Wait(&operation->request, MPI_STATUS_IGNORE);
}

static void do_made(operation_t *operation)
{
    operation_init(operation);
    MPI_Request_free(&operation->request);
}

static void do_blocking(operation_t *operation)
{
    operation_block(operation);
}

static void do_nonblocking(operation_t *operation)
{
    operation_start(operation);
    MPI_Wait(&operation->request, MPI_STATUS_IGNORE);
}

static long soak_calls(const char *form, int in_place, int persistent, void (*call)(operation_t *operation))
{
    static const char *names[KINDS] = {"Alltoallv", "Alltoall",  "Allreduce", "Reduce_scatter", "Reduce_scatter_block",
                                       "Allgather", "Allgatherv"};
    operation_t operation;
    state_t before = {0};
    long errors    = 0;
    int kind, i;
    char name[64];

    for (kind = 0; kind < KINDS; kind++) {
        operation_make(&operation, (kind_t)kind, MPI_COMM_WORLD, ELEMENTS, in_place, (uint32_t)kind);
        operation_fill(&operation, 1);
        if (persistent && operation_init(&operation) != 0) {
            operation_free(&operation);
            return errors;
        }
        for (i = 0; i < WARM_CALLS + CALLS; i++) {
            if (i == WARM_CALLS) {
                before = look();
            }
            if (in_place) {
                operation_fill(&operation, 1);
            }
            call(&operation);
        }
        if (call != do_made) {
            errors += operation_check(&operation);
        }
        if (persistent) {
            MPI_Request_free(&operation.request);
        }
        snprintf(name, sizeof(name), "%s of %s%s", form, names[kind], in_place ? " in place" : "");
        errors += grown(name, before, CALLS, CALL_BYTES);
        operation_free(&operation);
    }
    return errors;
}

static long case_blocking(void)
{
    return soak_calls("blocking calls", 0, 0, do_blocking);
}

static long case_nonblocking(void)
{
    return soak_calls("non-blocking calls", 0, 0, do_nonblocking);
}

static long case_in_place(void)
{
    return soak_calls("non-blocking calls", 1, 0, do_nonblocking);
}

static long case_persistent(void)
{
    return OPS_PERSISTENT ? soak_calls("starts", 0, 1, do_persistent) : 0;
}

/* Requests that are never started. */
static long case_made(void)
{
    return OPS_PERSISTENT ? soak_calls("requests", 0, 0, do_made) : 0;
}

/* -- communicators -- */

static void use_one(int i)
{
    kind_t kind = (kind_t)(i % KINDS);
    operation_t operation;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    operation_make(&operation, kind, comm, ELEMENTS, 0, (uint32_t)i);
    operation_fill(&operation, 1);
    operation_block(&operation);
    do_nonblocking(&operation);
    operation_free(&operation);
    MPI_Comm_free(&comm);
}

static long case_communicators(void)
{
    state_t before = {0};
    int i;

    for (i = 0; i < WARM_COMMUNICATORS + COMMUNICATORS; i++) {
        if (i == WARM_COMMUNICATORS) {
            before = look();
        }
        use_one(i);
    }
    return grown("communicators", before, COMMUNICATORS, COMMUNICATOR_BYTES);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        long (*run)(void);
    } cases[]   = {{"blocking", case_blocking}, {"nonblocking", case_nonblocking},
                   {"in_place", case_in_place}, {"persistent", case_persistent},
                   {"made", case_made},         {"communicators", case_communicators}};
    int threads = argc > 1 && strcmp(argv[1], "threads") == 0, provided;
    size_t i;

    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    if (threads && provided < MPI_THREAD_MULTIPLE) {
        printf("case skip threads: this MPI library offers no MPI_THREAD_MULTIPLE\n");
        MPI_Finalize();
        return 0;
    }
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (case_wanted(argc - threads, argv + threads, cases[i].name)) {
            case_end(cases[i].name, cases[i].run());
        }
    }
    cases_print_calls();
    MPI_Finalize();
    return cases_failed() != 0;
}
