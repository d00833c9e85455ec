/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of MPI_Alltoallv. The expected receive buffer is made without communication: contents are a function of source
 * and position, so every rank can rebuild what each source sends, packs it with the source's datatype and unpacks it
 * into a copy of the untouched receive buffer with its own.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"
#include "tools/bench/pvar.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 128

static int failed;

long case_end(const char *name, long errors)
{
    long sum = 0;
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* Not by Allreduce, which is under test itself. */
    MPI_Reduce(&errors, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Bcast(&sum, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        if (sum == 0) {
            printf("case ok %s\n", name);
        } else {
            printf("case bad %s: %ld errors\n", name, sum);
        }
        fflush(stdout);
    }
    failed += sum != 0;
    return sum;
}

int cases_failed(void)
{
    return failed;
}

int case_wanted(int argc, char **argv, const char *name)
{
    int i;

    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return 1;
        }
    }
    return argc <= 1;
}

static int read_counters(const char *name, unsigned long long *values, int capacity)
{
    int index = mpath_pvar_find(name), elements = 0;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;

    if (index >= 0 && MPI_T_pvar_session_create(&session) == MPI_SUCCESS) {
        if (MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &elements) == MPI_SUCCESS) {
            if (elements > capacity) {
                elements = 0;
            } else {
                MPI_T_pvar_read(session, handle, values);
            }
            MPI_T_pvar_handle_free(session, &handle);
        }
        MPI_T_pvar_session_free(&session);
    }
    return elements;
}

int cases_counters(const char *name, unsigned long long *values, int capacity)
{
    static int provided = -1;

    if (provided < 0) {
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    }
    return read_counters(name, values, capacity);
}

unsigned long long cases_counter(const char *name)
{
    unsigned long long value = 0;

    (void)cases_counters(name, &value, 1);
    return value;
}

void cases_print_calls(void)
{
    static const char *const names[] = {"coll_mpath_calls",        "coll_mpath_declined",     "coll_mpath_kernel_bytes",
                                        "coll_mpath_engine_bytes", "coll_mpath_staged_bytes", "coll_mpath_eager_calls"};
    unsigned long long mine[6]       = {0}, sum[6];
    int provided, rank, i;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    for (i = 0; i < 6; i++) {
        (void)read_counters(names[i], &mine[i], 1);
    }
    MPI_Reduce(mine, sum, 6, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        printf("calls mpath=%llu previous=%llu\n", sum[0], sum[1]);
        if (memory_is_special()) {
            printf("device eager=%llu kernel=%llu engine=%llu staged=%llu\n", sum[5], sum[2], sum[3], sum[4]);
        }
        fflush(stdout);
    }
    MPI_T_finalize();
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);

    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return memory;
}

/* Contents of the send buffer of `source`, four bytes at a time, from `position` on. */
static uint32_t word_of(uint64_t key, size_t position)
{
    return (uint32_t)(((key + position / 4) * 0x9e3779b97f4a7c15ull) >> 32);
}

static void fill(unsigned char *to, size_t bytes, int source, size_t position, uint32_t round)
{
    uint64_t key = (uint64_t)(uint32_t)source * 0x632be59bd9b4e019ull + (uint64_t)round * 0xd6e8feb86659fd93ull;
    size_t start = (4 - position % 4) % 4, i;
    uint32_t word;

    start = (start < bytes) ? start : bytes;
    for (i = 0; i < start; i++) {
        to[i] = (unsigned char)(word_of(key, position + i) >> (8 * ((position + i) % 4)));
    }
    for (; i + 4 <= bytes; i += 4) {
        word = htole32(word_of(key, position + i));
        memcpy(to + i, &word, 4);
    }
    for (; i < bytes; i++) {
        to[i] = (unsigned char)(word_of(key, position + i) >> (8 * ((position + i) % 4)));
    }
}

/* A buffer of pieces of one datatype. */
typedef struct layout {
    int *counts, *displacements; /* elements */
    MPI_Aint extent;             /* of the type */
    MPI_Aint origin;             /* bytes from the start of the memory to displacement 0 */
    size_t bytes;                /* of the memory, guards included */
} layout_t;

static void layout_make(layout_t *layout, const exchange_t *exchange, int rank, int size, int receive)
{
    MPI_Datatype type  = receive || exchange->in_place ? exchange->receive_type : exchange->send_type;
    int per_unit       = receive || exchange->in_place ? exchange->receive_per_unit : exchange->send_per_unit;
    placement_t placed = receive || exchange->in_place ? exchange->receive_placement : exchange->send_placement;
    MPI_Aint lower, extent, true_lower, true_extent, first, last;
    int i, j, swap, next = 0, largest = 0, *order = allocate((size_t)size * sizeof(int));
    sequence_t sequence = {(uint64_t)rank * 77 + exchange->round};

    layout->counts        = allocate((size_t)size * sizeof(int));
    layout->displacements = allocate((size_t)size * sizeof(int));
    for (i = 0; i < size; i++) {
        order[i] = placed == PLACE_DESCENDING ? size - 1 - i : i;
    }
    for (i = size - 1; i > 0 && placed == PLACE_SHUFFLED; i--) {
        j        = (int)sequence_below(&sequence, (uint32_t)i + 1);
        swap     = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (i = 0; i < size; i++) {
        j                 = order[i];
        layout->counts[j] = per_unit * (receive ? exchange->units[j * size + rank] : exchange->units[rank * size + j]);
        layout->displacements[j] = placed == PLACE_OVERLAPPING ? 0 : next;
        next += layout->counts[j] + exchange->gap;
        largest = layout->counts[j] > largest ? layout->counts[j] : largest;
    }
    if (placed == PLACE_OVERLAPPING) {
        next = largest;
    }
    free(order);
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_get_true_extent(type, &true_lower, &true_extent);
    first          = true_lower < 0 ? true_lower : 0;
    last           = (MPI_Aint)next * extent + true_lower + true_extent;
    layout->extent = extent;
    layout->origin = GUARD_BYTES - first;
    layout->bytes  = (size_t)(layout->origin + last + GUARD_BYTES);
}

static void layout_free(layout_t *layout)
{
    free(layout->counts);
    free(layout->displacements);
}

/* Packs what `source` sends to `rank` and unpacks it into `expected`. */
static void deliver(const exchange_t *exchange, int source, int rank, int size, const layout_t *mine,
                    unsigned char *expected)
{
    MPI_Datatype type = exchange->in_place ? exchange->receive_type : exchange->send_type;
    int position      = 0, capacity, length, count, displacement;
    MPI_Aint true_lower, true_extent, start, end;
    unsigned char *piece, *packed;
    layout_t theirs;

    layout_make(&theirs, exchange, source, size, exchange->in_place);
    count        = theirs.counts[rank];
    displacement = theirs.displacements[rank];
    if (count > 0) {
        MPI_Type_get_true_extent(type, &true_lower, &true_extent);
        start = theirs.origin + displacement * theirs.extent + true_lower;
        end   = start + (MPI_Aint)(count - 1) * theirs.extent + true_extent;
        piece = allocate((size_t)(end - start));
        fill(piece, (size_t)(end - start), source, (size_t)start, exchange->round);
        MPI_Pack_size(count, type, MPI_COMM_WORLD, &capacity);
        packed = allocate((size_t)capacity);
        MPI_Pack(piece - true_lower, count, type, packed, capacity, &position, MPI_COMM_WORLD);
        length   = position;
        position = 0;
        MPI_Unpack(packed, length, &position, expected + mine->origin + mine->displacements[source] * mine->extent,
                   mine->counts[source], exchange->receive_type, MPI_COMM_WORLD);
        free(packed);
        free(piece);
    }
    layout_free(&theirs);
}

void exchange_init(exchange_t *exchange, MPI_Comm comm, const int *units)
{
    memset(exchange, 0, sizeof(*exchange));
    exchange->comm             = comm;
    exchange->units            = units;
    exchange->send_type        = MPI_BYTE;
    exchange->receive_type     = MPI_BYTE;
    exchange->send_per_unit    = 1;
    exchange->receive_per_unit = 1;
    exchange->gap              = 3;
}

/* The buffers of an exchange as MPI gets them, beside what the processor made. */
typedef struct buffers {
    unsigned char *send, *receive;             /* in any kind of memory */
    unsigned char *send_image, *receive_image; /* the same on the host */
} buffers_t;

static void buffers_make(const exchange_t *exchange, int rank, const layout_t *from, const layout_t *to,
                         buffers_t *buffers)
{
    buffers->send          = memory_new(from->bytes, exchange->round * 2);
    buffers->receive       = memory_new(to->bytes, exchange->round * 2 + 1);
    buffers->send_image    = allocate(from->bytes);
    buffers->receive_image = allocate(to->bytes);
    memset(buffers->send_image, 0xA5, from->bytes);
    if (exchange->in_place) {
        fill(buffers->receive_image, to->bytes, rank, 0, exchange->round);
    } else {
        fill(buffers->send_image, from->bytes, rank, 0, exchange->round);
        memset(buffers->receive_image, 0xC3, to->bytes);
    }
    memory_put(buffers->send, buffers->send_image, from->bytes);
    memory_put(buffers->receive, buffers->receive_image, to->bytes);
}

static void buffers_free(buffers_t *buffers)
{
    memory_free(buffers->send);
    memory_free(buffers->receive);
    free(buffers->send_image);
    free(buffers->receive_image);
}

long exchange_run(const exchange_t *exchange)
{
    unsigned char *expected;
    buffers_t buffers;
    layout_t from, to;
    long errors = 0;
    int rank, size, source;
    size_t i;

    MPI_Comm_rank(exchange->comm, &rank);
    MPI_Comm_size(exchange->comm, &size);
    layout_make(&from, exchange, rank, size, 0);
    layout_make(&to, exchange, rank, size, 1);
    expected = allocate(to.bytes);
    buffers_make(exchange, rank, &from, &to, &buffers);
    memcpy(expected, buffers.receive_image, to.bytes);
    for (source = 0; source < size; source++) {
        deliver(exchange, source, rank, size, &to, expected);
    }
    if (MPI_Alltoallv(exchange->in_place ? MPI_IN_PLACE : (void *)(buffers.send + from.origin), from.counts,
                      from.displacements, exchange->in_place ? exchange->receive_type : exchange->send_type,
                      buffers.receive + to.origin, to.counts, to.displacements, exchange->receive_type,
                      exchange->comm) != MPI_SUCCESS) {
        errors = 1;
    }
    /* the sender owns its buffer again: what is written now must not reach anybody */
    memory_fill(buffers.send, 0xEE, from.bytes);
    memory_get(buffers.receive_image, buffers.receive, to.bytes);
    for (i = 0; i < to.bytes; i++) {
        if (buffers.receive_image[i] != expected[i] && errors++ == 0) {
            fprintf(stderr, "rank %d: byte %zu of %zu is %02x, expected %02x\n", rank, i, to.bytes,
                    buffers.receive_image[i], expected[i]);
        }
    }
    buffers_free(&buffers);
    free(expected);
    layout_free(&from);
    layout_free(&to);
    return errors;
}
