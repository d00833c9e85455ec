/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short calls on device memory, whose kernels start before the ranks agree: that they are taken where all ranks can, by
 * the counter; and that data is right where one is late, has other memory, more data, or nothing. For ranks that have a
 * GPU each. Arguments: the cases to run.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES (3u << 20) /* of a buffer; each message has its share */
#define RANKS_MAX 16

static int rank, size;
static unsigned char *image, *expected;

/* Both sides of a rank. */
typedef struct sides {
    unsigned char *send, *receive;
    int on_host;
} sides_t;

static sides_t device, ints; /* aligned, and of one kind, which GPUs ask for to combine anything */

static int share(void)
{
    return (int)(BUFFER_BYTES / (unsigned)size);
}

static unsigned char value_of(int source, int destination, int round, int position)
{
    return (unsigned char)(source * 31 + destination * 7 + round * 13 + position + position / 251);
}

static sides_t on_host(void)
{
    sides_t sides = {.send = malloc(BUFFER_BYTES), .receive = malloc(BUFFER_BYTES), .on_host = 1};

    if (sides.send == NULL || sides.receive == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return sides;
}

static unsigned char *align(unsigned char *address)
{
    return address + (sizeof(int) - (uintptr_t)address % sizeof(int)) % sizeof(int);
}

static void put(const sides_t *sides, unsigned char *to)
{
    if (sides->on_host) {
        memcpy(to, image, BUFFER_BYTES);
    } else {
        memory_put(to, image, BUFFER_BYTES);
    }
}

/* The number of wrong bytes of this rank's receive buffer. */
static long compare(const sides_t *sides)
{
    long errors = 0;

    if (sides->on_host) {
        memcpy(image, sides->receive, BUFFER_BYTES);
    } else {
        memory_get(image, sides->receive, BUFFER_BYTES);
    }
    if (memcmp(image, expected, BUFFER_BYTES) == 0) {
        return 0;
    }
    for (size_t i = 0; i < BUFFER_BYTES; i++) {
        errors += image[i] != expected[i];
    }
    return errors;
}

/* bytes[source * size + destination]; messages begin at odd places. */
static long alltoallv(MPI_Comm comm, const sides_t *sides, const int *bytes, int round)
{
    int counts[2][RANKS_MAX], offsets[2][RANKS_MAX], me, error;

    MPI_Comm_rank(comm, &me);
    memset(expected, 0x5a, BUFFER_BYTES);
    for (int peer = 0; peer < size; peer++) {
        counts[0][peer]  = bytes[me * size + peer];
        counts[1][peer]  = bytes[peer * size + me];
        offsets[0][peer] = offsets[1][peer] = peer * share() + (round + peer) % 5;
        for (int i = 0; i < counts[0][peer]; i++) {
            image[offsets[0][peer] + i] = value_of(me, peer, round, i);
        }
        for (int i = 0; i < counts[1][peer]; i++) {
            expected[offsets[1][peer] + i] = value_of(peer, me, round, i);
        }
    }
    put(sides, sides->send);
    memset(image, 0x5a, BUFFER_BYTES);
    put(sides, sides->receive);
    error = MPI_Alltoallv(sides->send, counts[0], offsets[0], MPI_BYTE, sides->receive, counts[1], offsets[1], MPI_BYTE,
                          comm);
    return (error != MPI_SUCCESS) + compare(sides);
}

static void set_all(int *bytes, int each)
{
    for (int i = 0; i < size * size; i++) {
        bytes[i] = each;
    }
}

/* Calls that were eager since the last time, on this rank. */
static unsigned long long eager_calls(void)
{
    static unsigned long long before;
    unsigned long long now = cases_counter("coll_mpath_eager_calls"), calls = now - before;

    before = now;
    return calls;
}

static void run_taken(int *bytes)
{
    static const int sizes[] = {1, 8, 100, 1000, 5000, 20000};
    long errors              = 0;

    (void)eager_calls();
    for (int round = 0; round < 30; round++) {
        set_all(bytes, sizes[round / 5]);
        errors += alltoallv(MPI_COMM_WORLD, &device, bytes, round / 5 + 1); /* the same offsets: graphs */
    }
    errors += eager_calls() < 28; /* the first one prepares */
    case_end("taken", errors);
}

/* What takes longer this way goes another. */
static void run_bounds(int *bytes)
{
    long errors = 0;

    set_all(bytes, 600000 / (size - 1));
    for (int round = 0; round < 4; round++) {
        errors += alltoallv(MPI_COMM_WORLD, &device, bytes, round);
    }
    errors += eager_calls() < 3;
    for (int kind = 0; kind < 3; kind++) { /* no room; too long together, and alone */
        set_all(bytes, (kind == 0) ? share() - 8 : (kind == 1) ? 1300000 / (size - 1) : 0);
        bytes[1] = (kind == 2) ? (2 << 20) / size + 8 : bytes[1];
        for (int round = 0; round < 4; round++) {
            errors += alltoallv(MPI_COMM_WORLD, &device, bytes, round);
        }
    }
    errors += eager_calls() > 0;
    set_all(bytes, 700); /* until it is tried again */
    for (int round = 0; round < 8; round++) {
        errors += alltoallv(MPI_COMM_WORLD, &device, bytes, round);
    }
    (void)eager_calls();
    case_end("bounds", errors);
}

static void run_late(int *bytes)
{
    long errors = 0;

    set_all(bytes, 700);
    for (int round = 0; round < 8; round++) {
        if (rank == round % size) {
            usleep(8000);
        }
        errors += alltoallv(MPI_COMM_WORLD, &device, bytes, round);
    }
    errors += eager_calls() < 7;
    case_end("late", errors);
}

/* Every other call has more for rank 0 than goes this way, which only rank 0 knows where there are several senders. */
static void run_hot(int *bytes)
{
    long errors  = 0;
    int capacity = (2 << 20) / size - 4096; /* of a slot, nearly */
    int each     = (size == 2) ? 1300000 : (capacity < 500000) ? capacity : 500000;
    unsigned long long calls;

    for (int round = 0; round < 24; round++) {
        set_all(bytes, 900);
        for (int source = 1; (round % 2 == 1) && source < size; source++) {
            bytes[source * size] = each;
        }
        errors += alltoallv(MPI_COMM_WORLD, &device, bytes, round);
    }
    calls = eager_calls();
    errors += calls < 4 || calls > ((size == 2) ? 12 : 8); /* most are not tried any more */
    set_all(bytes, 900);                                   /* whatever has gone wrong before */
    for (int round = 0; round < 8; round++) {
        errors += alltoallv(MPI_COMM_WORLD, &device, bytes, round);
    }
    errors += eager_calls() < 4;
    case_end("hot", errors);
}

/* Ranks that send nothing, receive nothing, or neither. */
static void run_idle(int *bytes)
{
    MPI_Comm comm;
    long errors = 0;

    for (int round = 0; round < 6; round++) {
        set_all(bytes, 300 + round);
        for (int peer = 0; peer < size; peer++) {
            bytes[round % size * size + peer]               = 0;
            bytes[peer * size + (round + round % 2) % size] = 0;
        }
        errors += alltoallv(MPI_COMM_WORLD, &device, bytes, round);
    }
    errors += eager_calls() < 6;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm); /* of whose memory on a GPU the others do not know */
    set_all(bytes, 500);
    memset(bytes, 0, (size_t)size * sizeof(int));
    for (int round = 0; round < 4; round++) {
        errors += alltoallv(comm, &device, bytes, round);
    }
    MPI_Comm_free(&comm);
    case_end("idle", errors);
}

/* One rank's data is in host memory. */
static void run_host(int *bytes)
{
    sides_t host = on_host();
    long errors  = 0;

    set_all(bytes, 1200);
    for (int round = 0; round < 20; round++) {
        int is_host = round < 10 && rank == round % size;

        errors += alltoallv(MPI_COMM_WORLD, is_host ? &host : &device, bytes, round);
    }
    errors += eager_calls() < 2;
    free(host.send);
    free(host.receive);
    case_end("host", errors);
}

/* Now and then one rank's bytes have gaps between them, of which only that rank knows, and may leave the call alone. */
static void run_gaps(int *bytes)
{
    enum { EACH = 300 };
    int counts[RANKS_MAX], offsets[RANKS_MAX];
    MPI_Datatype gapped;
    long errors = 0;

    MPI_Type_create_resized(MPI_BYTE, 0, 2, &gapped);
    MPI_Type_commit(&gapped);
    set_all(bytes, EACH);
    for (int round = 0; round < 24; round++) {
        int gaps = round % 6 == 5 && rank == round / 6 % size, step = gaps ? 2 : 1;

        memset(expected, 0x5a, BUFFER_BYTES);
        memset(image, 0x5a, BUFFER_BYTES);
        for (int peer = 0; peer < size; peer++) {
            counts[peer]  = EACH;
            offsets[peer] = peer * (EACH + 1);
            for (int i = 0; i < EACH; i++) {
                image[(offsets[peer] + i) * step]    = value_of(rank, peer, round, i);
                expected[(offsets[peer] + i) * step] = value_of(peer, rank, round, i);
            }
        }
        put(&device, device.send);
        memset(image, 0x5a, BUFFER_BYTES);
        put(&device, device.receive);
        errors += MPI_Alltoallv(device.send, counts, offsets, gaps ? gapped : MPI_BYTE, device.receive, counts, offsets,
                                gaps ? gapped : MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS;
        errors += compare(&device);
    }
    errors += eager_calls() < 8;
    MPI_Type_free(&gapped);
    case_end("gaps", errors);
}

static void run_communicators(int *bytes)
{
    MPI_Comm comms[3];
    long errors = 0;

    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[2]);
    set_all(bytes, 400);
    for (int round = 0; round < 18; round++) {
        errors += alltoallv(comms[round % 3], &device, bytes, round);
    }
    errors += eager_calls() < 14;
    MPI_Comm_free(&comms[1]);
    MPI_Comm_free(&comms[2]);
    case_end("communicators", errors);
}

/* Each lends memory as long as there is some: 64 MiB for all of them, beside the counters of kernels. */
static void run_many(int *bytes)
{
    enum { MANY = 9 };
    MPI_Comm comms[MANY];
    long errors = 0;

    set_all(bytes, 400);
    for (int i = 0; i < MANY; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        for (int round = 0; round < 3; round++) {
            errors += alltoallv(comms[i], &device, bytes, round);
        }
    }
    errors += cases_counter("coll_mpath_device_bytes") > (UINT64_C(64) << 20) + (UINT64_C(64) << 10);
    errors += eager_calls() < 12;
    for (int i = 0; i < MANY; i++) {
        MPI_Comm_free(&comms[i]);
    }
    case_end("many", errors);
}

static long allgather(int each, int in_place, int round)
{
    int error;

    memset(expected, 0x5a, BUFFER_BYTES);
    memset(image, 0x5a, BUFFER_BYTES);
    for (int peer = 0; peer < size; peer++) {
        for (int i = 0; i < each; i++) {
            expected[peer * each + i] = value_of(peer, 0, round, i);
        }
    }
    if (in_place) {
        memcpy(image + rank * each, expected + rank * each, (size_t)each);
        put(&device, device.receive);
    } else {
        put(&device, device.receive);
        memcpy(image, expected + rank * each, (size_t)each);
        put(&device, device.send);
    }
    error = MPI_Allgather(in_place ? MPI_IN_PLACE : device.send, each, MPI_BYTE, device.receive, each, MPI_BYTE,
                          MPI_COMM_WORLD);
    return (error != MPI_SUCCESS) + compare(&device);
}

static void run_gather(int *bytes)
{
    long errors = 0;

    (void)bytes;
    for (int round = 0; round < 20; round++) {
        errors += allgather(1 + round / 5 * 1999, round % 2, round);
    }
    errors += eager_calls() < 16;
    case_end("gather", errors);
}

/* Sums of integers, which the ranks take at different times if one is late by so much. */
static long allreduce_of(const sides_t *sides, size_t bytes, int in_place, int round, int late_us)
{
    size_t count = bytes / sizeof(int);
    int error;

    memset(expected, 0x5a, BUFFER_BYTES);
    memset(image, 0x5a, BUFFER_BYTES);
    put(sides, sides->receive);
    for (size_t i = 0; i < count; i++) {
        int base = (int)(i % 100003) * 7 + round, sum = size * base + 1000003 * (size * (size - 1) / 2);
        int own = base + 1000003 * rank;

        memcpy(image + i * sizeof(int), &own, sizeof(own));
        memcpy(expected + i * sizeof(int), &sum, sizeof(sum));
    }
    put(sides, in_place ? sides->receive : sides->send);
    if (rank == round % size) {
        usleep((useconds_t)late_us);
    }
    error = MPI_Allreduce(in_place ? MPI_IN_PLACE : sides->send, sides->receive, (int)count, MPI_INT, MPI_SUM,
                          MPI_COMM_WORLD);
    return (error != MPI_SUCCESS) + compare(sides);
}

static long allreduce(size_t bytes, int in_place, int round, int late_us)
{
    return allreduce_of(&ints, bytes, in_place, round, late_us);
}

/* Whole vectors, and parts of longer ones: each form is prepared by its first call. */
static void run_reduce(int *bytes)
{
    static const size_t sizes[] = {4, 4000, 60000, 270000, 270004, 1 << 20, (3 << 19) + 12};
    long errors                 = 0;

    (void)bytes;
    for (int round = 0; round < 42; round++) {
        errors += allreduce(sizes[round / 6], round / 3 % 2, round, 0); /* the same buffers: graphs */
    }
    errors += eager_calls() < 40;
    for (int round = 0; round < 4; round++) {
        errors += allreduce(BUFFER_BYTES, round % 2, round, 0);
    }
    errors += eager_calls() > 0; /* more than ranks lend for it */
    case_end("reduce", errors);
}

static void run_reduce_late(int *bytes)
{
    long errors = 0;

    (void)bytes;
    for (int round = 0; round < 12; round++) {
        errors += allreduce(300000 + (size_t)round * 100004, round % 2, round, 8000);
    }
    errors += eager_calls() < 11;
    case_end("reduce_late", errors);
}

/* One rank's vectors are in host memory in some calls, which count for all ranks. */
static void run_reduce_host(int *bytes)
{
    sides_t host = on_host();
    long errors  = 0;

    (void)bytes;
    for (int round = 0; round < 40; round++) {
        int is_host = round % 10 == 9 && rank == round / 10 % size;

        errors += allreduce_of(is_host ? &host : &ints, (round % 2 == 0) ? 5000 : 290000, 0, round, 0);
    }
    errors += eager_calls() < 30;
    free(host.send);
    free(host.receive);
    case_end("reduce_host", errors);
}

/*
 * The last rank's buffers are on another GPU for a while: all lend each other memory anew, which nobody may give back
 * while a kernel writes to it.
 */
static void run_elsewhere(int *bytes)
{
    unsigned char *capacity = NULL;
    sides_t others          = {0}, split;
    unsigned long long calls;
    long errors = 0;
    int moves   = rank == size - 1 && memory_turn(size), any;

    MPI_Allreduce(&moves, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!any) {
        if (rank == 0) {
            printf("case skip elsewhere: every GPU is the first one of some rank\n");
        }
        return;
    }
    if (moves) {
        capacity = memory_new(2 * BUFFER_BYTES + sizeof(int), 3);
        others   = (sides_t){.receive = align(capacity), .send = align(capacity) + BUFFER_BYTES};
        (void)memory_turn(0);
    }
    set_all(bytes, 700);
    split = (sides_t){.send = ints.send, .receive = others.receive};
    for (int phase = 0; phase < 5; phase++) {
        const sides_t *sides = !moves ? &ints : (phase == 4) ? &split : (phase % 2 == 1) ? &others : &ints;

        (void)eager_calls();
        for (int round = 0; round < 10; round++) { /* one that fails, those that do not try it, one that prepares */
            errors += alltoallv(MPI_COMM_WORLD, sides, bytes, round);
        }
        calls = eager_calls();
        errors += (phase == 4) ? calls > 0 : phase > 0 && calls < 5;
        for (int round = 0; round < 12; round++) { /* the longest whole vector has the same number each time */
            size_t whole = (round == 6) ? 60000 : 4000;

            errors += allreduce_of(sides, (round % 2 == 0) ? whole : 300000, phase < 4 && round / 2 % 2, round, 0);
        }
        calls = eager_calls();
        errors += (phase == 4) ? calls > 0 : phase > 0 && calls < 10;
    }
    for (int round = 0; round < 16; round++) { /* each memory is used once: the number of the call is always the same */
        errors += allreduce_of((moves && round / 2 % 2 == 0) ? &others : &ints, 4000, 0, round, 0);
    }
    errors += eager_calls() < 8;
    if (moves) {
        memory_free(capacity);
    }
    case_end("elsewhere", errors);
}

/* Rank 0 sends less than rank 1 expects, who is told; nobody hangs, in this call or the next. */
static void run_mismatch(int *bytes)
{
    MPI_Comm comm;
    long errors = 0;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    set_all(bytes, 400);
    for (int round = 0; round < 4; round++) {
        errors += alltoallv(comm, &device, bytes, round);
    }
    errors += eager_calls() < 3;
    bytes[1] = (rank == 0) ? 200 : 400;
    if (rank == 1) {
        errors += alltoallv(comm, &device, bytes, 9) == 0;
    } else {
        (void)alltoallv(comm, &device, bytes, 9);
    }
    memset(image, 0x33, BUFFER_BYTES); /* no kernel is under way any more */
    put(&device, device.receive);
    usleep(60000);
    memset(expected, 0x33, BUFFER_BYTES);
    errors += compare(&device);
    errors += alltoallv(comm, &device, bytes, 10) == 0; /* the communicator is broken */
    MPI_Comm_free(&comm);
    case_end("mismatch", errors);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(int *bytes);
    } cases[] = {{"taken", run_taken},
                 {"bounds", run_bounds},
                 {"late", run_late},
                 {"hot", run_hot},
                 {"idle", run_idle},
                 {"host", run_host},
                 {"gaps", run_gaps},
                 {"communicators", run_communicators},
                 {"many", run_many},
                 {"gather", run_gather},
                 {"reduce", run_reduce},
                 {"reduce_late", run_reduce_late},
                 {"reduce_host", run_reduce_host},
                 {"elsewhere", run_elsewhere},
                 {"mismatch", run_mismatch}};
    int bytes[RANKS_MAX * RANKS_MAX];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    image    = malloc(BUFFER_BYTES);
    expected = malloc(BUFFER_BYTES);
    if (size > RANKS_MAX || image == NULL || expected == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    device = (sides_t){.send = memory_new(BUFFER_BYTES, 1), .receive = memory_new(2 * BUFFER_BYTES + sizeof(int), 2)};
    ints   = (sides_t){.receive = align(device.receive), .send = align(device.receive) + BUFFER_BYTES};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (case_wanted(argc, argv, cases[i].name)) {
            cases[i].run(bytes);
        }
    }
    cases_print_calls();
    memory_free(device.send);
    memory_free(device.receive);
    free(image);
    free(expected);
    MPI_Finalize();
    return cases_failed() != 0;
}
