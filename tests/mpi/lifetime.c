/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an application may do around the calls: communicators that come and go by the hundred, a fork, a datatype
 * without bytes, negative displacements, processes that are spawned, counts that do not fit, communicators that nobody
 * frees. Arguments: names of cases. "spawned" alone is what the case "spawn" starts.
 */
#include "mpi/cases.h"

#include <dirent.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 120
#define KEPT_BYTES 2048 /* Open MPI itself keeps a hundred bytes of each */
#define WARM 20 /* communicators until nothing grows any more: pools of Open MPI and of UCX are made meanwhile */

static int world_rank, world_size;

/* Entries of a folder whose name begins with `prefix`; -1: cannot be read. */
static int count_entries(const char *folder, const char *prefix)
{
    struct dirent *entry;
    DIR *dir  = opendir(folder);
    int count = 0;

    if (dir == NULL) {
        return -1;
    }
    while ((entry = readdir(dir)) != NULL) {
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    }
    closedir(dir);
    return count;
}

static int count_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    int lines  = 0, c;

    while (file != NULL && (c = getc(file)) != EOF) {
        lines += c == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return lines;
}

/* Names of this process's segments that are still there. */
static int count_segments(void)
{
    char prefix[32];

    snprintf(prefix, sizeof(prefix), "mpath-%d-", (int)getpid());
    return count_entries("/dev/shm", prefix);
}

/* Bytes that malloc() has handed out; 0 where the C library cannot say. */
static size_t count_heap(void)
{
#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 33)
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
#endif
#endif
    return 0;
}

/* Every pair exchanges about `bytes` bytes; the number that came out wrong. */
static long exchange_equal(MPI_Comm comm, int bytes, uint32_t round)
{
    exchange_t exchange;
    int size, i, *units;
    long errors;

    MPI_Comm_size(comm, &size);
    units = calloc((size_t)size * (size_t)size, sizeof(int));
    if (units == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (i = 0; i < size * size; i++) {
        units[i] = bytes + i;
    }
    exchange_init(&exchange, comm, units);
    exchange.round = round;
    errors         = exchange_run(&exchange);
    free(units);
    return errors;
}

/*
 * Descriptors, mappings, memory and names in /dev/shm stay as they are, however many communicators were used and freed.
 */
static long case_leaks(void)
{
    int files = 0, mappings = 0, segments = 0, i;
    long errors = 0, heap = 0;
    MPI_Comm comm;

    for (i = 0; i < WARM + MANY; i++) {
        if (i == WARM) {
            files    = count_entries("/proc/self/fd", "");
            mappings = count_mappings();
            segments = count_segments();
            heap     = (long)count_heap();
        }
        MPI_Comm_split(MPI_COMM_WORLD, i % 4 == 3 ? world_rank % 2 : 0, i % 2 ? -world_rank : world_rank, &comm);
        errors += exchange_equal(comm, i % 3 ? 3000 : 20000, (uint32_t)i);
        MPI_Comm_free(&comm);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    files    = count_entries("/proc/self/fd", "") - files;
    mappings = count_mappings() - mappings;
    segments = count_segments() - segments;
    heap     = (long)count_heap() - heap;
    /* One thing left by each communicator would be MANY; what else comes and goes in a process is far fewer. */
    if (files > MANY / 4 || mappings > MANY / 4 || segments > MANY / 4 || heap > MANY * KEPT_BYTES) {
        fprintf(stderr, "rank %d: %d communicators left %d descriptors, %d mappings, %d names in /dev/shm, %ld bytes\n",
                world_rank, MANY, files, mappings, segments, heap);
        errors++;
    }
    return errors;
}

/* Children that end at once or become another program: the parent's communicators must not notice. */
static long case_fork(void)
{
    long errors = exchange_equal(MPI_COMM_WORLD, 40000, 1);
    int status  = -1, how;
    pid_t pid;

    for (how = 0; how < 2; how++) {
        pid = fork();
        if (pid == 0) {
            if (how == 0) {
                _exit(7);
            }
            execlp("sh", "sh", "-c", "exit 7", (char *)NULL);
            _exit(1);
        }
        errors += exchange_equal(MPI_COMM_WORLD, 40000, 2); /* while the child lives */
        errors += pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7;
        errors += exchange_equal(MPI_COMM_WORLD, 40000, 3);
    }
    return errors;
}

/* A type of no bytes has the largest counts and any displacement; not a byte may move. */
static long case_no_bytes(void)
{
    int *counts         = calloc((size_t)world_size * 2, sizeof(int)), i;
    unsigned char guard = 0xa5;
    MPI_Datatype nothing;
    long errors;

    if (counts == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    MPI_Type_contiguous(0, MPI_INT, &nothing);
    MPI_Type_commit(&nothing);
    for (i = 0; i < world_size; i++) {
        counts[i]              = INT_MAX;
        counts[world_size + i] = INT_MIN + i;
    }
    errors = MPI_Alltoallv(&guard, counts, counts + world_size, nothing, &guard, counts, counts + world_size, nothing,
                           MPI_COMM_WORLD) != MPI_SUCCESS;
    errors += guard != 0xa5;
    MPI_Type_free(&nothing);
    free(counts);
    return errors;
}

/* 0 when the request has ended within two minutes. */
static long wait_a_while(MPI_Request *request)
{
    double end = MPI_Wtime() + 120.0;
    int ended  = 0;

    while (!ended && (MPI_Wtime() < end)) {
        MPI_Test(request, &ended, MPI_STATUS_IGNORE);
    }
    return !ended;
}

/* In place, and one rank has nothing: the collectives after it still find each other. */
static long case_one_without(void)
{
    int *counts = calloc((size_t)world_size * 3, sizeof(int)), rank, round;
    int *displs = counts + world_size, *ranks = counts + 2 * world_size;
    int *elements = calloc((size_t)world_size * 1000, sizeof(int));
    MPI_Request request;
    long errors = 0;

    if ((counts == NULL) || (elements == NULL)) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (rank = 0; rank < world_size; rank++) {
        counts[rank] = ((rank == world_size - 1) || (world_rank == world_size - 1)) ? 0 : 1000;
        displs[rank] = rank * 1000;
    }
    for (round = 0; (round < 3) && (errors == 0); round++) {
        MPI_Ialltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, elements, counts, displs, MPI_INT, MPI_COMM_WORLD,
                       &request);
        errors = wait_a_while(&request);
        if (errors == 0) {
            MPI_Iallgather(&world_rank, 1, MPI_INT, ranks, 1, MPI_INT, MPI_COMM_WORLD, &request);
            errors = wait_a_while(&request);
        }
        for (rank = 0; (errors == 0) && (rank < world_size); rank++) {
            errors += ranks[rank] != rank;
        }
    }
    if (errors != 0) {
        printf("case bad one_without: round %d has not ended, or not well\n", round);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    free(elements);
    free(counts);
    return 0;
}

/* Both buffers are given by their end. */
static long case_negative(void)
{
    enum { COUNT = 9000 };
    size_t elements = (size_t)world_size * COUNT;
    int *send = malloc(elements * sizeof(int)), *receive = calloc(elements, sizeof(int));
    int *counts = calloc((size_t)world_size * 2, sizeof(int)), *displacements = counts + world_size, i, k;
    long errors = 0;

    if (send == NULL || receive == NULL || counts == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (i = 0; i < world_size; i++) {
        counts[i]        = COUNT;
        displacements[i] = -COUNT * (i + 1); /* rank 0's part is the last one */
        for (k = 0; k < COUNT; k++) {
            send[(world_size - 1 - i) * COUNT + k] = (world_rank * world_size + i) * COUNT + k;
        }
    }
    errors += MPI_Alltoallv(send + elements, counts, displacements, MPI_INT, receive + elements, counts, displacements,
                            MPI_INT, MPI_COMM_WORLD) != MPI_SUCCESS;
    for (i = 0; i < world_size; i++) {
        for (k = 0; k < COUNT; k++) {
            errors += receive[(world_size - 1 - i) * COUNT + k] != (i * world_size + world_rank) * COUNT + k;
        }
    }
    free(send);
    free(receive);
    free(counts);
    return errors;
}

static int delete_errors;

static int call_at_deletion(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)keyval;
    (void)value;
    (void)extra;
    delete_errors += exchange_equal(comm, 5000, 9) != 0;
    return MPI_SUCCESS;
}

/* An attribute's delete function uses the communicator that is being freed, before and after mpath has heard of it. */
static long case_deletion(void)
{
    int keyval, i;
    long errors = 0;
    MPI_Comm comm;

    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_at_deletion, &keyval, NULL);
    for (i = 0; i < 3; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (i < 2) {
            MPI_Comm_set_attr(comm, keyval, NULL);
        }
        errors += exchange_equal(comm, 5000, (uint32_t)i);
        if (i > 0) {
            MPI_Comm_set_attr(comm, keyval, NULL);
        }
        MPI_Comm_free(&comm);
    }
    MPI_Comm_free_keyval(&keyval);
    return errors + delete_errors;
}

/*
 * MPI_ERRORS_RETURN: who receives less than is sent hears of it, or all do; later calls of other communicators are
 * right.
 */
static long case_truncated(void)
{
    int *counts = calloc((size_t)world_size * 3, sizeof(int)), *less = counts + world_size, i, class = MPI_SUCCESS, rc;
    int any = 0;
    char *buffers;
    MPI_Comm comm;
    long errors;

    if (world_size < 2) {
        free(counts);
        return 0;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    errors  = exchange_equal(comm, 100, 1);
    buffers = calloc((size_t)world_size, 2 * 5000);
    if (counts == NULL || buffers == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (i = 0; i < world_size; i++) {
        counts[i] = 5000;
        /* not of its own: that mismatch Open MPI finds before any component is asked */
        less[i]                    = world_rank == world_size - 1 && i < world_rank ? 4000 : 5000;
        counts[2 * world_size + i] = i * 5000;
    }
    rc = MPI_Alltoallv(buffers, counts, counts + 2 * world_size, MPI_CHAR, buffers + (size_t)world_size * 5000, less,
                       counts + 2 * world_size, MPI_CHAR, comm);
    if (rc != MPI_SUCCESS) {
        MPI_Error_class(rc, &class);
    }
    errors += world_rank == world_size - 1 && class != MPI_ERR_TRUNCATE;
    rc = rc != MPI_SUCCESS;
    MPI_Reduce(&rc, &any, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    errors += world_rank == 0 && any == 0;
    MPI_Comm_free(&comm);
    errors += exchange_equal(MPI_COMM_WORLD, 5000, 3);
    free(counts);
    free(buffers);
    return errors;
}

/* Ranks of two jobs, whose numbers in their jobs are the same, in one communicator. */
static long merged_exchange(MPI_Comm inter, int high)
{
    MPI_Comm merged;
    long errors, sum = 0;

    MPI_Intercomm_merge(inter, high, &merged);
    errors = exchange_equal(merged, 200, 1);
    errors += exchange_equal(merged, 30000, 2);
    MPI_Reduce(&errors, &sum, 1, MPI_LONG, MPI_SUM, 0, merged);
    MPI_Bcast(&sum, 1, MPI_LONG, 0, merged);
    MPI_Comm_free(&merged);
    return sum;
}

static char *program;

static long case_spawn(void)
{
    char *arguments[] = {"spawned", NULL};
    MPI_Comm inter;
    long errors;

    if (MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE) !=
        MPI_SUCCESS) {
        return 1;
    }
    errors = merged_exchange(inter, 0);
    MPI_Comm_disconnect(&inter);
    return errors;
}

static int spawned(void)
{
    MPI_Comm parent;
    long errors;

    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        fprintf(stderr, "\"spawned\" is for the case \"spawn\" alone\n");
        return 2;
    }
    errors = merged_exchange(parent, 1);
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
    return errors != 0;
}

/* Last: MPI_Finalize finds communicators that were used. */
static long case_not_freed(void)
{
    MPI_Comm comm;
    long errors = 0;
    int i;

    for (i = 0; i < 5; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, i % 2 ? world_rank % 2 : 0, world_rank, &comm);
        errors += exchange_equal(comm, 3000, (uint32_t)i);
    }
    return errors;
}

/* Ranks that reduce in different ways, one call after the other on new communicators: an error on every rank. */
static long case_differing(void)
{
    enum { COUNT = 65536 };
    int32_t *in = calloc(COUNT, sizeof(*in)), *out = calloc(COUNT, sizeof(*out));
    int last = world_rank == world_size - 1, *counts = calloc((size_t)world_size, sizeof(*counts)), way, part;
    int rc      = MPI_SUCCESS;
    long errors = 0;
    MPI_Request request;
    MPI_Comm comm;

    if (in == NULL || out == NULL || counts == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* it is asked about collective requests */
    for (way = 0; way < 7; way++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        if (way == 0) {
            rc = MPI_Allreduce(in, out, COUNT, MPI_INT, last ? MPI_SUM : MPI_MAX, comm);
        } else if (way == 1) {
            rc = MPI_Allreduce(in, out, COUNT, last ? MPI_FLOAT : MPI_INT, MPI_MAX, comm);
        } else if (way == 2) {
            rc = MPI_Iallreduce(in, out, 16, MPI_INT64_T, MPI_MAX, comm, &request); /* set up in another call */
            rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
            rc = MPI_Iallreduce(in, out, COUNT, last ? MPI_UNSIGNED : MPI_INT, MPI_MAX, comm, &request);
            rc = rc == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
        } else if (way == 3) {
            rc = MPI_Reduce_scatter_block(in, out, COUNT / world_size, MPI_INT, last ? MPI_SUM : MPI_MAX, comm);
        } else if (way == 5) { /* as many bytes */
            rc = MPI_Allreduce(in, out, last ? COUNT / 2 : COUNT, last ? MPI_INT64_T : MPI_INT, MPI_SUM, comm);
        } else if (way == 6) { /* as many elements in all, in other parts; some ranks see it, all hear of it */
            for (part = 0; part < world_size; part++) {
                counts[part] = COUNT / world_size;
            }
            counts[0] += last ? 1000 : 0;
            counts[1] -= last ? 1000 : 0;
            rc = MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, comm);
            rc = rc == MPI_SUCCESS ? MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm) : rc;
        } else { /* the same numbers under two names */
            rc = MPI_Allreduce(in, out, COUNT, last ? MPI_INT32_T : MPI_INT, MPI_SUM, comm) == MPI_SUCCESS
                     ? MPI_ERR_OTHER
                     : MPI_SUCCESS;
        }
        if (rc == MPI_SUCCESS) {
            fprintf(stderr, "rank %d: call %d ends as it should not\n", world_rank, way);
            errors++;
        }
        MPI_Comm_free(&comm);
    }
    free(in);
    free(out);
    free(counts);
    return errors;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        long (*run)(void);
    } cases[] = {{"leaks", case_leaks},        {"fork", case_fork},           {"no_bytes", case_no_bytes},
                 {"negative", case_negative},  {"deletion", case_deletion},   {"truncated", case_truncated},
                 {"spawn", case_spawn},        {"not_freed", case_not_freed}, {"one_without", case_one_without},
                 {"differing", case_differing}};
    size_t i;

    program = argv[0];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (argc == 2 && strcmp(argv[1], "spawned") == 0) {
        return spawned();
    }
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (case_wanted(argc, argv, cases[i].name)) {
            case_end(cases[i].name, cases[i].run());
        }
    }
    cases_print_calls();
    MPI_Finalize();
    return cases_failed() != 0;
}
