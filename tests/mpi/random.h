/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A random collective whose result is known: for random.c. Everything about a call follows from two numbers that all
 * ranks know, so that each rank can say what every other one sends, from where in its buffer, without a message.
 * `shape` decides sizes, types and places, `key` the contents of buffers.
 */
#ifndef MPATH_TESTS_MPI_RANDOM_H
#define MPATH_TESTS_MPI_RANDOM_H

#include "mpi/cases.h"

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_RANKS 64
#define MAX_PIECES 8

uint64_t random_mix(uint64_t left, uint64_t right);

/* -- random_types.c: datatypes whose bytes are known without asking MPI -- */

typedef struct piece {
    MPI_Aint at;
    int bytes;
} piece_t;

/* An element consists of pieces, in the order of the type's signature; it lies within [low, high). */
typedef struct type {
    const char *name;
    MPI_Datatype mpi;
    int elements; /* basic ones in an element; 1, 2, 4 or 8 */
    int num_pieces;
    piece_t pieces[MAX_PIECES];
    MPI_Aint extent, low, high;
    int bytes; /* of data */
} type_t;

/* Types of one signature: 8 basic elements are a multiple of each. The first one is a basic element. */
enum { FAMILIES = 5, FAMILY_TYPES = 10, FAMILY_RECEIVE_TYPES = 8, FAMILY_ELEMENTS = 8 };

void random_types_make(void);
void random_types_free(void);
/* The last ones of a family overlap themselves, and are for send buffers only. */
const type_t *random_type(int family, int index);
/* From a buffer to a stream of bytes, and back; `memory` is where the first element begins. */
void random_type_pack(const type_t *type, int count, const unsigned char *memory, unsigned char *stream);
void random_type_unpack(const type_t *type, int count, const unsigned char *stream, unsigned char *memory);

/* -- random_shape.c: what is sent by calls that only move data -- */

typedef enum function {
    ALLTOALLV,
    ALLTOALL,
    ALLTOALLW,
    ALLGATHER,
    ALLGATHERV,
    ALLREDUCE,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    FUNCTIONS
} function_t;

typedef struct block {
    const type_t *type;
    int count, displacement; /* displacement: in extents of the type */
} block_t;

/* A buffer: one block for each rank, or one. */
typedef struct side {
    int num_blocks;
    block_t blocks[MAX_RANKS];
    size_t origin; /* where the buffer that MPI gets begins in the memory */
    size_t bytes;  /* of the memory, guards included */
} side_t;

struct reduction;

typedef enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS } form_t;

typedef struct call {
    function_t function;
    form_t form;
    MPI_Comm comm;
    uint64_t comm_id;
    int rank, size, in_place;
    uint64_t shape, key;
    long step;
    int family, unit, *units; /* units[source * size + destination]; a unit is so many basic elements */
    const struct reduction *reduction;
    int operation;
    int counts[MAX_RANKS]; /* of a reduction: each rank's block */
    side_t send, receive;
    unsigned char *send_memory, *receive_memory, *sent, *received; /* as MPI gets them; copies on the host */
    void *send_start, *receive_start;                              /* of the allocations, of so many bytes */
    size_t send_capacity, receive_capacity;
    void *arguments; /* arrays that MPI may still read */
    MPI_Request request;
} call_t;

int random_gathers(const call_t *call);
int random_reduces(const call_t *call);
/* Sets the sizes. max_bytes: about the most that a rank sends or receives. */
void random_shape_make(call_t *call, size_t max_bytes);
/* One side of any rank, of a call that moves data. In place both are the receive side. */
void random_side_make(const call_t *call, int rank, int receive, side_t *side);
/* What is in memory before the call. */
void random_fill(const call_t *call, int rank, int receive, size_t from, size_t bytes, unsigned char *to);
/* Turns the receive memory as it was into what it has to be. */
void random_expect(const call_t *call, unsigned char *memory);

/* -- random_reduce.c -- */

void random_reductions_make(void);
void random_reductions_free(void);
/* Chooses type, operation and sizes, and both sides. */
void random_reduce_make(call_t *call, sequence_t *sequence, size_t max_bytes);
void random_reduce_fill(const call_t *call, unsigned char *send, unsigned char *receive);
/* Number of wrong bytes; tells the first one. */
long random_reduce_check(const call_t *call, const unsigned char *received, char *text, size_t capacity);
MPI_Datatype random_reduce_type(const call_t *call);
MPI_Op random_reduce_op(const call_t *call);
const char *random_reduce_name(const call_t *call);

/* -- random_comm.c -- */

typedef struct slot {
    MPI_Comm comm; /* MPI_COMM_NULL: this rank is not among its processes */
    uint64_t id;   /* the same on all of these */
} slot_t;

/* A communicator among the processes of another one; `step` is a number of its own. */
void random_slot_make(const slot_t *parent, sequence_t *sequence, long step, slot_t *slot);

/* -- random_call.c -- */

/* The same arguments on all ranks of the communicator. */
call_t *random_call_new(MPI_Comm comm, form_t form, uint64_t shape, long step, size_t max_bytes);
/* Fills the buffers and starts it; a blocking one has ended afterwards. */
void random_call_start(call_t *call, uint64_t key);
/* It has ended: checks it, and ends the job where it is wrong. Then its buffers belong to the program again. */
void random_call_check(call_t *call);
void random_call_free(call_t *call);
/* Buffers that this thread keeps for later calls. */
void random_call_end(void);
void random_call_describe(const call_t *call, char *text, size_t capacity);
/* Ends the job, with the seed. */
void random_fail(const call_t *call, const char *what);

#endif
