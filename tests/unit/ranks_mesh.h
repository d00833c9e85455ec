/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of the test ranks' control plane, for ranks.c and ranks_oob.c. */
#ifndef MPATH_TESTS_UNIT_RANKS_MESH_H
#define MPATH_TESTS_UNIT_RANKS_MESH_H

#include "ranks.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct ranks_message ranks_message_t;

typedef struct ranks_buffer {
    char *data;
    size_t used, room;
} ranks_buffer_t;

#define RANKS_RING_BYTES 65536

/* What a rank has sent to another one. The one writes, the other reads; both numbers only grow. */
typedef struct ranks_ring {
    _Atomic uint64_t written, read;
    char data[RANKS_RING_BYTES];
} ranks_ring_t;

/* In a cache line of its own: a rank that waits looks here. */
typedef struct ranks_mail {
    _Alignas(64) _Atomic uint32_t from; /* bit r: rank r has written since its owner last took this */
} ranks_mail_t;

/* The memory between the ranks, made before they are forked. */
typedef struct ranks_shared {
    _Alignas(64) _Atomic uint32_t ended; /* bit r: rank r has ended */
    ranks_mail_t mail[RANKS_MAX];
    ranks_ring_t rings[RANKS_MAX][RANKS_MAX]; /* from, to */
} ranks_shared_t;

typedef struct ranks_peer {
    ranks_buffer_t in, out;
    ranks_message_t *posted; /* receives, in order */
    ranks_message_t *early;  /* messages without a receive, in order */
} ranks_peer_t;

/* One communicator's view of the mesh. */
typedef struct ranks_plane {
    ranks_mesh_t *mesh;
    struct ranks_plane *next;
    uint32_t channel;
    int members[RANKS_MAX];
    char name[32];
} ranks_plane_t;

struct ranks_mesh {
    pthread_mutex_t lock;
    int rank, size;
    int deaf;
    int is_cut;      /* see ranks_cut() */
    uint32_t lost;   /* bit r: rank r has ended; what it sent before has been delivered */
    uint32_t unsent; /* bit r: something for rank r waits in memory */
    ranks_shared_t *shared;
    ranks_peer_t peers[RANKS_MAX];
    ranks_plane_t *planes;
};

/* NULL: it said why not. */
ranks_shared_t *ranks_shared_create(void);
void ranks_shared_destroy(ranks_shared_t *shared);
/* For the parent of the ranks, which sees every end of one: tells the others. */
void ranks_shared_end(ranks_shared_t *shared, int rank);

ranks_mesh_t *ranks_mesh_create(int rank, int size, int deaf, ranks_shared_t *shared);
/* Waits until what was sent has left. */
void ranks_mesh_destroy(ranks_mesh_t *mesh);

#endif
