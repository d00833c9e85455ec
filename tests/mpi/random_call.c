/* SPDX-License-Identifier: BSD-3-Clause */
/* See random.h: buffers, the call itself, and whether it did what it should. */
#include "mpi/random.h"
#include "mpi/memory.h"
#include "mpi/persistent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[FUNCTIONS] = {"Alltoallv",  "Alltoall",  "Alltoallw",      "Allgather",
                                             "Allgatherv", "Allreduce", "Reduce_scatter", "Reduce_scatter_block"};
static const char *const forms[FORMS]     = {"MPI_", "MPI_I", "persistent MPI_"};

/* -- buffers: some are used again, at other places -- */

enum { KEPT = 6 };

static _Thread_local struct {
    void *start;
    size_t capacity;
} kept[KEPT];

/* `seed` is this rank's. */
static unsigned char *buffer_new(size_t bytes, uint64_t seed, void **start_p, size_t *capacity_p)
{
    size_t rest;

    *start_p = NULL;
    for (int i = 0; i < KEPT && *start_p == NULL && seed % 2; i++) {
        if (kept[i].start != NULL && kept[i].capacity >= bytes && kept[i].capacity < 8 * bytes + 4096) {
            *start_p      = kept[i].start;
            *capacity_p   = kept[i].capacity;
            kept[i].start = NULL;
        }
    }
    if (*start_p == NULL) {
        *capacity_p = bytes + 64;
        *start_p    = memory_new(*capacity_p, (unsigned)(seed >> 8));
    }
    rest = *capacity_p - bytes;
    return (unsigned char *)*start_p + (seed >> 40) % ((rest < 200 ? rest : 200) + 1);
}

static void buffer_free(void *start, size_t capacity, uint64_t seed)
{
    int place = (int)(seed % KEPT);

    if (seed % 5 < 2) {
        if (kept[place].start != NULL) {
            memory_free(kept[place].start);
        }
        kept[place].start    = start;
        kept[place].capacity = capacity;
    } else {
        memory_free(start);
    }
}

void random_call_end(void)
{
    for (int i = 0; i < KEPT; i++) {
        if (kept[i].start != NULL) {
            memory_free(kept[i].start);
            kept[i].start = NULL;
        }
    }
}

/* -- calls -- */

/* The shape of each rank's side is asked for by others, so nothing here may depend on this rank, but for the memory. */
call_t *random_call_new(MPI_Comm comm, form_t form, uint64_t shape, long step, size_t max_bytes)
{
    call_t *call        = calloc(1, sizeof(*call));
    sequence_t sequence = {random_mix(shape, 0)};
    uint64_t mine;

    call->comm     = comm;
    call->form     = form;
    call->shape    = shape;
    call->step     = step;
    call->request  = MPI_REQUEST_NULL;
    call->function = (function_t)sequence_below(&sequence, FUNCTIONS);
    call->in_place = sequence_below(&sequence, 4) == 0;
    MPI_Comm_rank(comm, &call->rank);
    MPI_Comm_size(comm, &call->size);
    if (call->function == ALLTOALLW && form != BLOCKING) {
        /* mpath leaves it alone: libnbc spoils blocks beside empty ones, as with MPI_Ialltoallv, and crashes on device memory */
        call->in_place = 0;
        call->function = memory_is_special() ? ALLTOALLV : ALLTOALLW;
    }
    if (random_reduces(call)) {
        random_reduce_make(call, &sequence, max_bytes);
    } else {
        call->family = (int)sequence_below(&sequence, FAMILIES);
        call->unit   = call->family == FAMILIES - 1 || sequence_below(&sequence, 3) > 0 ? 1 : FAMILY_ELEMENTS;
        random_shape_make(call, max_bytes);
        random_side_make(call, call->rank, 0, &call->send);
        random_side_make(call, call->rank, 1, &call->receive);
    }
    mine                 = random_mix(shape + (uint64_t)step, (uint64_t)call->rank + 77);
    call->send_memory    = buffer_new(call->send.bytes, mine, &call->send_start, &call->send_capacity);
    call->receive_memory = buffer_new(call->receive.bytes, random_mix(mine, 1), &call->receive_start,
                                      &call->receive_capacity);
    call->sent           = malloc(call->send.bytes);
    call->received       = malloc(call->receive.bytes);
    return call;
}

void random_call_free(call_t *call)
{
    uint64_t mine = random_mix(call->shape + (uint64_t)call->step, (uint64_t)call->rank + 99);

    buffer_free(call->send_start, call->send_capacity, mine);
    buffer_free(call->receive_start, call->receive_capacity, random_mix(mine, 1));
    free(call->sent);
    free(call->received);
    free(call->units);
    free(call->arguments);
    free(call);
}

void random_call_describe(const call_t *call, char *text, size_t capacity)
{
    int length = snprintf(text, capacity, "step %ld: %s%s%s, %d ranks, rank %d", call->step, forms[call->form],
                          names[call->function], call->in_place ? " in place" : "", call->size, call->rank);

    if (random_reduces(call)) {
        snprintf(text + length, capacity - (size_t)length, ", %s, counts %d %d.., %zu bytes", random_reduce_name(call),
                 call->counts[0], call->size > 1 ? call->counts[1] : -1, call->send.bytes);
    } else {
        snprintf(text + length, capacity - (size_t)length,
                 ", family %d, %s to %s, units of %d: %d %d.. to it, sends %zu bytes of memory, receives %zu",
                 call->family, call->send.blocks[0].type->name, call->receive.blocks[0].type->name, call->unit,
                 call->units[call->rank], call->size > 1 ? call->units[call->size + call->rank] : -1, call->send.bytes,
                 call->receive.bytes);
    }
}

/* The arrays that MPI gets; it may read those of a non-blocking operation until it has ended, a persistent one's always. */
typedef struct arguments {
    int send_counts[MAX_RANKS], send_places[MAX_RANKS], receive_counts[MAX_RANKS], receive_places[MAX_RANKS];
    MPI_Datatype send_types[MAX_RANKS], receive_types[MAX_RANKS];
} arguments_t;

static void list_blocks(const call_t *call, const side_t *side, int *counts, int *places, MPI_Datatype *types)
{
    for (int i = 0; i < side->num_blocks; i++) {
        const block_t *block = &side->blocks[i];

        counts[i] = block->count;
        places[i] = block->displacement * (call->function == ALLTOALLW ? (int)block->type->extent : 1);
        types[i]  = block->type->mpi;
    }
}

#if OPS_PERSISTENT
#define CALL_INIT(_name, ...) OPS_INIT(_name)(__VA_ARGS__, MPI_INFO_NULL, &call->request)
#else
#define CALL_INIT(_name, ...) MPI_ERR_OTHER
#endif
/* Each function in its three forms. */
#define CALL(_name, ...)                                                                                               \
    (call->form == BLOCKING      ? MPI_##_name(__VA_ARGS__)                                                            \
     : call->form == NONBLOCKING ? MPI_I##_name(__VA_ARGS__, &call->request)                                           \
                                 : CALL_INIT(_name, __VA_ARGS__))
#define MPI_IAlltoallv MPI_Ialltoallv
#define MPI_IAlltoall MPI_Ialltoall
#define MPI_IAlltoallw MPI_Ialltoallw
#define MPI_IAllgather MPI_Iallgather
#define MPI_IAllgatherv MPI_Iallgatherv
#define MPI_IAllreduce MPI_Iallreduce
#define MPI_IReduce_scatter MPI_Ireduce_scatter
#define MPI_IReduce_scatter_block MPI_Ireduce_scatter_block

/* Blocking: the whole of it; else the start, or what makes the request of a persistent one. */
static int issue(call_t *call, arguments_t *a)
{
    void *send    = call->in_place ? MPI_IN_PLACE : call->send_memory + call->send.origin;
    void *receive = call->receive_memory + call->receive.origin;

    if (!random_reduces(call)) {
        list_blocks(call, &call->send, a->send_counts, a->send_places, a->send_types);
        list_blocks(call, &call->receive, a->receive_counts, a->receive_places, a->receive_types);
    }
    switch (call->function) {
    case ALLTOALLV:
        return CALL(Alltoallv, send, a->send_counts, a->send_places, a->send_types[0], receive, a->receive_counts,
                    a->receive_places, a->receive_types[0], call->comm);
    case ALLTOALL:
        return CALL(Alltoall, send, a->send_counts[0], a->send_types[0], receive, a->receive_counts[0],
                    a->receive_types[0], call->comm);
    case ALLTOALLW:
        return CALL(Alltoallw, send, a->send_counts, a->send_places, a->send_types, receive, a->receive_counts,
                    a->receive_places, a->receive_types, call->comm);
    case ALLGATHER:
        return CALL(Allgather, send, a->send_counts[0], a->send_types[0], receive, a->receive_counts[0],
                    a->receive_types[0], call->comm);
    case ALLGATHERV:
        return CALL(Allgatherv, send, a->send_counts[0], a->send_types[0], receive, a->receive_counts,
                    a->receive_places, a->receive_types[0], call->comm);
    case ALLREDUCE:
        return CALL(Allreduce, send, receive, call->counts[0], random_reduce_type(call), random_reduce_op(call),
                    call->comm);
    case REDUCE_SCATTER:
        return CALL(Reduce_scatter, send, receive, call->counts, random_reduce_type(call), random_reduce_op(call),
                    call->comm);
    default:
        return CALL(Reduce_scatter_block, send, receive, call->counts[0], random_reduce_type(call),
                    random_reduce_op(call), call->comm);
    }
}

static void fill(call_t *call, uint64_t key)
{
    call->key = key;
    if (random_reduces(call)) {
        random_reduce_fill(call, call->sent, call->received);
    } else {
        random_fill(call, call->rank, 0, 0, call->send.bytes, call->sent);
        random_fill(call, call->rank, 1, 0, call->receive.bytes, call->received);
    }
    memory_put(call->send_memory, call->sent, call->send.bytes);
    memory_put(call->receive_memory, call->received, call->receive.bytes);
}

void random_call_start(call_t *call, uint64_t key)
{
    arguments_t *arguments;
    int rc = MPI_SUCCESS;

    fill(call, key);
    if (call->form == PERSISTENT && call->request != MPI_REQUEST_NULL) {
        rc = MPI_Start(&call->request);
    } else {
        arguments       = malloc(sizeof(*arguments));
        rc              = issue(call, arguments);
        call->arguments = arguments;
        if (rc == MPI_SUCCESS && call->form == PERSISTENT) {
            rc = MPI_Start(&call->request);
        }
    }
    if (rc != MPI_SUCCESS) {
        random_fail(call, "an MPI error");
    }
}

static void compare(const call_t *call, const unsigned char *image, const unsigned char *found, size_t bytes,
                    const char *side)
{
    char text[200];
    size_t i = 0, last = bytes - 1, wrong = 0;

    if (memcmp(image, found, bytes) == 0) {
        return;
    }
    while (image[i] == found[i]) {
        i++;
    }
    while (image[last] == found[last]) {
        last--;
    }
    for (size_t j = i; j <= last; j++) {
        wrong += image[j] != found[j];
    }
    snprintf(text, sizeof(text),
             "%s: byte %zu of %zu (the buffer begins at %zu) is %02x, expected %02x; %zu are wrong, the last is %zu",
             side, i, bytes, side[0] == 's' ? call->send.origin : call->receive.origin, found[i], image[i], wrong,
             last);
    random_fail(call, text);
}

void random_call_check(call_t *call)
{
    size_t most          = call->send.bytes > call->receive.bytes ? call->send.bytes : call->receive.bytes;
    unsigned char *found = malloc(most);
    char text[200];

    memory_get(found, call->send_memory, call->send.bytes);
    compare(call, call->sent, found, call->send.bytes, "send buffer");
    /* the sender owns its buffer again: what is written now must not reach anybody */
    memory_fill(call->send_memory, 0xee, call->send.bytes);
    memory_get(found, call->receive_memory, call->receive.bytes);
    if (random_reduces(call)) {
        if (random_reduce_check(call, found, text, sizeof(text)) > 0) {
            random_fail(call, text);
        }
    } else {
        random_expect(call, call->received);
        compare(call, call->received, found, call->receive.bytes, "receive buffer");
    }
    free(found);
    if (call->form != PERSISTENT) {
        free(call->arguments);
        call->arguments = NULL;
    }
}
