/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers that are no one piece of memory: what a rank sends or receives lies in several allocations, of the kinds that
 * MPATH_TEST_MEMORY names. By displacements from one allocation into another, and by a datatype of absolute addresses.
 * At the end the communicator still does what it did before.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"
#include "mpi/nonblocking_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PARTS 3                  /* allocations of a side */
#define BUFFER_BYTES (3 << 20)   /* bytes of each that may be used */
#define STEP ((MPI_Aint)1 << 20) /* displacements count in this unit: they are of type int */
#define SHARE 8192 /* bytes of each allocation from one rank to the next, in elements of absolute addresses */

static int rank, size;

/* One side: allocations, what they are to hold, and where in them an aligned address is. */
typedef struct side {
    char *memory[PARTS], *aligned[PARTS];
    unsigned char *image[PARTS]; /* of ROOM bytes from the aligned address on */
} side_t;

static unsigned char byte_of(int source, int destination, long position)
{
    return (unsigned char)(source * 37 + destination * 11 + position * 3 + 1);
}

static void side_open(side_t *side, unsigned seed)
{
    for (int i = 0; i < PARTS; i++) {
        side->memory[i]  = memory_new((size_t)BUFFER_BYTES + STEP, seed * PARTS + (unsigned)i);
        side->aligned[i] = side->memory[i] + (STEP - (MPI_Aint)side->memory[i] % STEP) % STEP;
        side->image[i]   = malloc(BUFFER_BYTES);
        memset(side->image[i], 0x5a, BUFFER_BYTES);
    }
}

static void side_put(const side_t *side)
{
    for (int i = 0; i < PARTS; i++) {
        memory_put(side->aligned[i], side->image[i], BUFFER_BYTES);
    }
}

/* Frees it. The number of bytes that are not what they are to be. */
static long side_close(side_t *side)
{
    unsigned char *found = malloc(BUFFER_BYTES);
    long wrong           = 0;

    for (int i = 0; i < PARTS; i++) {
        memory_get(found, side->aligned[i], BUFFER_BYTES);
        for (long at = 0; at < BUFFER_BYTES; at++) {
            wrong += found[at] != side->image[i][at];
        }
        memory_free(side->memory[i]);
        free(side->image[i]);
    }
    free(found);
    return wrong;
}

/* -- displacements: what is of or for a peer lies in one of the allocations -- */

/* An element of `bytes` bytes without gaps; the next one would be a step away. */
static MPI_Datatype stepped(int bytes)
{
    MPI_Datatype dense, type;

    MPI_Type_contiguous(bytes, MPI_BYTE, &dense);
    MPI_Type_create_resized(dense, 0, STEP, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&dense);
    return type;
}

static char *stepped_place(const side_t *side, int peer)
{
    return side->aligned[peer % PARTS] + peer / PARTS * STEP;
}

static void stepped_fill(const side_t *side, int peer, int bytes, int source, int destination)
{
    unsigned char *image = side->image[peer % PARTS] + peer / PARTS * STEP;

    for (int i = 0; i < bytes; i++) {
        image[i] = byte_of(source, destination, i);
    }
}

/* Nobody sends to the rank before. */
static int stepped_count(int source, int destination)
{
    return (source + size - 1) % size != destination || size == 1;
}

static long displacements(int bytes, int nonblocking)
{
    int counts[2][64], places[2][64];
    MPI_Datatype type = stepped(bytes);
    side_t send, recv;
    char *base[2];
    int rc;

    side_open(&send, 1);
    side_open(&recv, 2);
    base[0] = stepped_place(&send, 0);
    base[1] = stepped_place(&recv, 0);
    for (int peer = 0; peer < size; peer++) {
        counts[0][peer] = stepped_count(rank, peer);
        counts[1][peer] = stepped_count(peer, rank);
        places[0][peer] = (int)((stepped_place(&send, peer) - base[0]) / STEP);
        places[1][peer] = (int)((stepped_place(&recv, peer) - base[1]) / STEP);
        stepped_fill(&send, peer, bytes, rank, peer);
    }
    side_put(&send);
    side_put(&recv);
    if (nonblocking) {
        MPI_Request request;

        rc = MPI_Ialltoallv(base[0], counts[0], places[0], type, base[1], counts[1], places[1], type, MPI_COMM_WORLD,
                            &request);
        rc = (rc == MPI_SUCCESS) ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
    } else {
        rc = MPI_Alltoallv(base[0], counts[0], places[0], type, base[1], counts[1], places[1], type, MPI_COMM_WORLD);
    }
    for (int peer = 0; peer < size; peer++) {
        if (counts[1][peer] > 0) {
            stepped_fill(&recv, peer, bytes, peer, rank);
        }
    }
    MPI_Type_free(&type);
    return (rc != MPI_SUCCESS) + side_close(&send) + side_close(&recv);
}

static long gather_displacements(int bytes)
{
    MPI_Datatype type = stepped(bytes);
    int counts[64], places[64], rc;
    char *base, *block = memory_new((size_t)bytes, 5);
    unsigned char *mine = malloc((size_t)bytes);
    side_t recv;

    side_open(&recv, 3);
    base = stepped_place(&recv, 0);
    for (int i = 0; i < bytes; i++) {
        mine[i] = byte_of(rank, 99, i);
    }
    memory_put(block, mine, (size_t)bytes);
    side_put(&recv);
    for (int peer = 0; peer < size; peer++) {
        counts[peer] = 1;
        places[peer] = (int)((stepped_place(&recv, peer) - base) / STEP);
        stepped_fill(&recv, peer, bytes, peer, 99);
    }
    rc = MPI_Allgatherv(block, bytes, MPI_BYTE, base, counts, places, type, MPI_COMM_WORLD);
    memory_free(block);
    free(mine);
    MPI_Type_free(&type);
    return (rc != MPI_SUCCESS) + side_close(&recv);
}

/* -- absolute addresses: every element has bytes in all of the allocations -- */

/* Of an element in its share of an allocation: runs of bytes. */
typedef struct run {
    int part, from, bytes;
} run_t;

#define BLOCKS 3
#define SINGLES 100 /* more pieces than Open MPI is asked for at a time */
#define RUNS (BLOCKS + SINGLES + OTHERS)

static const run_t others[] = {{1, 1000, 300}, {2, 4001, 99}, {2, 70, 1}, {2, 71, 2}, {0, 5000, 3000}};

#define OTHERS ((int)(sizeof(others) / sizeof(others[0])))

/* Three blocks of a vector, many single integers, and the others. */
static run_t run_at(int i)
{
    if (i < BLOCKS) {
        return (run_t){0, i * 128, 96};
    }
    i -= BLOCKS;
    return (i < SINGLES) ? (run_t){1, 8 + i * 8, 4} : others[i - SINGLES];
}

/* The same bytes. */
static MPI_Datatype absolute(const side_t *side)
{
    MPI_Datatype parts[2 + OTHERS], type, resized;
    MPI_Aint places[2 + OTHERS];
    int lengths[2 + OTHERS], count = 0;

    MPI_Type_vector(BLOCKS, 24, 32, MPI_INT, &parts[count]);
    MPI_Get_address(side->aligned[0], &places[count++]);
    MPI_Type_vector(SINGLES, 1, 2, MPI_INT, &parts[count]);
    MPI_Get_address(side->aligned[1] + 8, &places[count++]);
    for (int i = 0; i < OTHERS; i++) {
        MPI_Type_contiguous(others[i].bytes, MPI_BYTE, &parts[count]);
        MPI_Get_address(side->aligned[others[i].part] + others[i].from, &places[count++]);
    }
    for (int i = 0; i < count; i++) {
        lengths[i] = 1;
    }
    MPI_Type_create_struct(count, lengths, places, parts, &type);
    MPI_Type_create_resized(type, 0, SHARE, &resized);
    MPI_Type_commit(&resized);
    MPI_Type_free(&type);
    for (int i = 0; i < count; i++) {
        MPI_Type_free(&parts[i]);
    }
    return resized;
}

static void absolute_fill(const side_t *side, int peer, int source, int destination)
{
    for (int i = 0; i < RUNS; i++) {
        run_t run = run_at(i);

        for (int at = 0; at < run.bytes; at++) {
            side->image[run.part][peer * SHARE + run.from + at] = byte_of(source, destination, i * 7 + at);
        }
    }
}

typedef enum call {
    ALLTOALL,
    ALLTOALLV,
    IN_PLACE,
    IALLTOALLV,
    IALLTOALL,
    INIT,
    IN_PLACE_NONBLOCKING,
    ALLGATHER,
} call_t;

static int finish(int rc, MPI_Request *request)
{
    return (rc == MPI_SUCCESS) ? MPI_Wait(request, MPI_STATUS_IGNORE) : rc;
}

/* Twice, with the same data. */
static int finish_persistent(int rc, MPI_Request *request)
{
    for (int i = 0; rc == MPI_SUCCESS && i < 2; i++) {
        rc = finish(MPI_Start(request), request);
    }
    return (rc == MPI_SUCCESS) ? MPI_Request_free(request) : rc;
}

static int absolute_call(call_t call, const int *counts, const int *places, MPI_Datatype from, MPI_Datatype to)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Request request;

    switch (call) {
    case ALLTOALL:
        return MPI_Alltoall(MPI_BOTTOM, 1, from, MPI_BOTTOM, 1, to, comm);
    case ALLTOALLV:
        return MPI_Alltoallv(MPI_BOTTOM, counts, places, from, MPI_BOTTOM, counts, places, to, comm);
    case IN_PLACE:
        return MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, MPI_BOTTOM, counts, places, to, comm);
    case IALLTOALLV:
        return finish(MPI_Ialltoallv(MPI_BOTTOM, counts, places, from, MPI_BOTTOM, counts, places, to, comm, &request),
                      &request);
    case IALLTOALL:
        return finish(MPI_Ialltoall(MPI_BOTTOM, 1, from, MPI_BOTTOM, 1, to, comm, &request), &request);
    case INIT:
#if OPS_PERSISTENT
        return finish_persistent(OPS_INIT(Alltoallv)(MPI_BOTTOM, counts, places, from, MPI_BOTTOM, counts, places, to,
                                                     comm, MPI_INFO_NULL, &request),
                                 &request);
#else
        return MPI_Alltoallv(MPI_BOTTOM, counts, places, from, MPI_BOTTOM, counts, places, to, comm);
#endif
    case IN_PLACE_NONBLOCKING:
        return finish(
            MPI_Ialltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, MPI_BOTTOM, counts, places, to, comm, &request),
            &request);
    default:
        return MPI_Allgather(MPI_BOTTOM, 1, from, MPI_BOTTOM, 1, to, comm);
    }
}

/* Whether two ranks exchange something: in place and non-blocking not all do, which Open MPI then does from a copy. */
static int exchanges(call_t call, int peer)
{
    return call != IN_PLACE_NONBLOCKING || (rank + peer) % 3 != 0;
}

static long addresses(call_t call)
{
    int counts[64], places[64], rc, in_place = call == IN_PLACE || call == IN_PLACE_NONBLOCKING;
    MPI_Datatype from, to;
    side_t send, recv;

    side_open(&send, 3);
    side_open(&recv, 4);
    for (int peer = 0; peer < size; peer++) {
        counts[peer] = exchanges(call, peer);
        places[peer] = peer;
        if (call != ALLGATHER || peer == 0) {
            absolute_fill(in_place ? &recv : &send, peer, rank, (call == ALLGATHER) ? 99 : peer);
        }
    }
    from = absolute(&send);
    to   = absolute(&recv);
    side_put(&send);
    side_put(&recv);
    rc = absolute_call(call, counts, places, from, to);
    for (int peer = 0; peer < size; peer++) {
        if (exchanges(call, peer)) {
            absolute_fill(&recv, peer, peer, (call == ALLGATHER) ? 99 : rank);
        }
    }
    MPI_Type_free(&from);
    MPI_Type_free(&to);
    return (rc != MPI_SUCCESS) + side_close(&send) + side_close(&recv);
}

/* -- host memory with a hole: nothing between the pieces may be touched -- */

#define HOLE_BYTES ((size_t)1 << 30)
#define HOLE_PIECE 600

static char *hole_piece(char *base, int peer)
{
    return base + ((peer % 2) ? HOLE_BYTES : 0) + (size_t)peer * HOLE_PIECE;
}

static long hole(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), ends = ((size_t)size * HOLE_PIECE + page - 1) / page * page;
    int counts[64], places[64], rc;
    MPI_Request request;
    long errors;
    char *base;

    base = mmap(NULL, HOLE_BYTES + ends, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || mprotect(base, ends, PROT_READ | PROT_WRITE) != 0 ||
        mprotect(base + HOLE_BYTES, ends, PROT_READ | PROT_WRITE) != 0) {
        return 1;
    }
    for (int peer = 0; peer < size; peer++) {
        counts[peer] = exchanges(IN_PLACE_NONBLOCKING, peer) ? HOLE_PIECE : 0;
        places[peer] = (int)(hole_piece(base, peer) - base);
        memset(hole_piece(base, peer), byte_of(rank, peer, 0), HOLE_PIECE);
    }
    rc     = MPI_Ialltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, base, counts, places, MPI_BYTE, MPI_COMM_WORLD,
                            &request);
    errors = finish(rc, &request) != MPI_SUCCESS;
    for (int peer = 0; peer < size; peer++) {
        unsigned char wanted = (counts[peer] > 0) ? byte_of(peer, rank, 0) : byte_of(rank, peer, 0);

        for (int i = 0; i < HOLE_PIECE; i++) {
            errors += (unsigned char)hole_piece(base, peer)[i] != wanted;
        }
    }
    munmap(base, HOLE_BYTES + ends);
    return errors;
}

/* -- an ordinary call -- */

static long ordinary(void)
{
    int units[64 * 64];
    exchange_t exchange;

    for (int i = 0; i < size * size; i++) {
        units[i] = 1000 + i;
    }
    exchange_init(&exchange, MPI_COMM_WORLD, units);
    return exchange_run(&exchange);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"absolute_alltoall",   "absolute_alltoallv", "absolute_in_place",
                                        "absolute_ialltoallv", "absolute_ialltoall", "absolute_init",
                                        "absolute_in_place_i", "absolute_allgather"};

    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    case_end("displacements_short", displacements(100, 0));
    case_end("displacements_long", displacements(700001, 0));
    case_end("displacements_nonblocking", displacements(300, 1) + displacements(500001, 1));
    case_end("gather_short", gather_displacements(200));
    case_end("gather_long", gather_displacements(600001));
    for (int call = ALLTOALL; call <= ALLGATHER; call++) {
        case_end(names[call], addresses((call_t)call));
    }
    case_end("hole", hole());
    case_end("ordinary", ordinary());
    cases_print_calls();
    MPI_Finalize();
    return cases_failed() > 0;
}
