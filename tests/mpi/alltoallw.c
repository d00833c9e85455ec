/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Alltoallw on the kinds of memory that MPATH_TEST_MEMORY names, with a datatype for each pair: every other pair has
 * one with gaps, which stay as they are, and some have nothing. Blocking, non-blocking and persistent; in place, too, and
 * without any data.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"
#include "mpi/nonblocking_ops.h"

#include <stdlib.h>
#include <string.h>

#define LONG 20000 /* ints of a pair, at most */
#define ROUNDS 12

static int rank, size;

typedef enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS } form_t;

static form_t form_of(int round)
{
    return (form_t)(round / 3 % FORMS);
}

/*
 * Ints that a pair exchanges. In place both ways are as long; and none is empty in other than blocking calls, whose data
 * libnbc spoils then (doc/openmpi.md).
 */
static int length(int source, int destination, int in_place, int round)
{
    int a            = in_place && (source > destination) ? destination : source;
    int b            = in_place && (source > destination) ? source : destination;
    int may_be_empty = !in_place || (form_of(round) == BLOCKING);

    return may_be_empty && ((a + 2 * b + round) % 4 == 0)
               ? 0
               : (a * 7919 + b * 104729 + round * 31) % (round % 3 == 0 ? 40 : LONG) + 1;
}

/* Of pairs with gaps, every second int is there. */
static int step(int source, int destination, int round)
{
    return 1 + (source + destination + round) % 2;
}

static int element(int source, int destination, int i, int round)
{
    return source * 10000019 + destination * 1009 + i * 3 + round;
}

typedef struct side {
    int *host, *memory;
    int *counts, *displs;
    MPI_Datatype *types;
} side_t;

static size_t capacity(void)
{
    return (size_t)size * (2 * LONG + 5);
}

/* What is for `rank` from each peer, or of it for each; `fill`: with the data. */
static void side_open(side_t *side, int receives, int fill, int in_place, int round)
{
    side->host   = malloc(capacity() * sizeof(int));
    side->counts = calloc(2 * (size_t)size, sizeof(int));
    side->displs = side->counts + size;
    side->types  = malloc((size_t)size * sizeof(*side->types));
    for (size_t i = 0; i < capacity(); i++) {
        side->host[i] = -(int)i;
    }
    for (int peer = 0; peer < size; peer++) {
        int source = receives ? peer : rank, destination = receives ? rank : peer;
        int place = (peer + round) % size, count = length(source, destination, in_place, round);
        int apart = step(source, destination, round);

        MPI_Type_vector(count > 0 ? count : 1, 1, apart, MPI_INT, &side->types[peer]);
        MPI_Type_commit(&side->types[peer]);
        side->counts[peer] = count > 0;
        side->displs[peer] = place * (2 * LONG + 5) * (int)sizeof(int);
        for (int i = 0; fill && (i < count); i++) {
            side->host[place * (2 * LONG + 5) + i * apart] = element(rank, peer, i, round);
        }
    }
    side->memory = memory_new(capacity() * sizeof(int), (unsigned)(2 * round + receives));
    memory_put(side->memory, side->host, capacity() * sizeof(int));
}

static void side_close(side_t *side)
{
    for (int peer = 0; peer < size; peer++) {
        MPI_Type_free(&side->types[peer]);
    }
    memory_free(side->memory);
    free(side->types);
    free(side->counts);
    free(side->host);
}

/* What is to be in the receive buffer, gaps included. */
static long wrong_ints(const side_t *recv, int in_place, int round)
{
    int *found  = malloc(capacity() * sizeof(int));
    long errors = 0;

    for (int peer = 0; peer < size; peer++) {
        int apart = step(peer, rank, round), count = length(peer, rank, in_place, round);

        for (int i = 0; i < count; i++) {
            recv->host[recv->displs[peer] / (int)sizeof(int) + i * apart] = element(peer, rank, i, round);
        }
    }
    memory_get(found, recv->memory, capacity() * sizeof(int));
    for (size_t i = 0; i < capacity(); i++) {
        errors += found[i] != recv->host[i];
    }
    free(found);
    return errors;
}

#if OPS_PERSISTENT
/* Twice: what is there when it is started counts, not when it was made. */
static int persistent(const void *from, side_t *send, side_t *recv)
{
    MPI_Request request;
    int rc;

    memory_put(send->memory, recv->host, capacity() * sizeof(int));
    memory_put(recv->memory, send->host, capacity() * sizeof(int));
    rc = OPS_INIT(Alltoallw)(from, send->counts, send->displs, send->types, recv->memory, recv->counts, recv->displs,
                             recv->types, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int start = 0; (start < 2) && (rc == MPI_SUCCESS); start++) {
        if (start == 1) {
            memory_put(send->memory, send->host, capacity() * sizeof(int));
            memory_put(recv->memory, recv->host, capacity() * sizeof(int));
        }
        rc = MPI_Start(&request);
        rc = (rc == MPI_SUCCESS) ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
    }
    return (rc == MPI_SUCCESS) ? MPI_Request_free(&request) : rc;
}
#endif

static int exchange_in(form_t form, const void *from, side_t *send, side_t *recv)
{
    MPI_Request request;
    int rc;

#if OPS_PERSISTENT
    if (form == PERSISTENT) {
        return persistent(from, send, recv);
    }
#endif
    if (form == BLOCKING) {
        return MPI_Alltoallw(from, send->counts, send->displs, send->types, recv->memory, recv->counts, recv->displs,
                             recv->types, MPI_COMM_WORLD);
    }
    rc = MPI_Ialltoallw(from, send->counts, send->displs, send->types, recv->memory, recv->counts, recv->displs,
                        recv->types, MPI_COMM_WORLD, &request);
    return (rc == MPI_SUCCESS) ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
}

static long exchange_of(int in_place, int round)
{
    side_t send, recv;
    long errors;
    int rc;

    side_open(&send, 0, 1, in_place, round);
    side_open(&recv, 1, in_place, in_place, round);
    rc     = exchange_in(form_of(round), in_place ? MPI_IN_PLACE : send.memory, &send, &recv);
    errors = (rc != MPI_SUCCESS) + wrong_ints(&recv, in_place, round);
    side_close(&send);
    side_close(&recv);
    return errors;
}

static long nothing(void)
{
    int *zeros          = calloc((size_t)size, sizeof(int)), rc;
    MPI_Datatype *types = malloc((size_t)size * sizeof(*types));

    for (int peer = 0; peer < size; peer++) {
        types[peer] = MPI_INT;
    }
    rc = MPI_Alltoallw(NULL, zeros, zeros, types, NULL, zeros, zeros, types, MPI_COMM_WORLD);
    free(types);
    free(zeros);
    return rc != MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"types", "in_place"};
    int failed;

    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int in_place = 0; in_place < 2; in_place++) {
        long errors = 0;

        for (int round = 0; (round < ROUNDS) && case_wanted(argc, argv, names[in_place]); round++) {
            errors += exchange_of(in_place, round);
        }
        case_end(names[in_place], errors);
    }
    case_end("nothing", nothing());
    cases_print_calls();
    failed = cases_failed();
    MPI_Finalize();
    return failed != 0;
}
