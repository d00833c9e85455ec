/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of the test ranks' control plane, for ranks.c and ranks_oob.c. */
#ifndef MPATH_TESTS_UNIT_RANKS_MESH_H
#define MPATH_TESTS_UNIT_RANKS_MESH_H

#include "ranks.h"

#include <pthread.h>

typedef struct ranks_message ranks_message_t;

typedef struct ranks_buffer {
    char *data;
    size_t used, room;
} ranks_buffer_t;

typedef struct ranks_peer {
    int fd;             /* -1: myself */
    int gone;           /* it ended; what it sent before has been delivered */
    uint64_t looked_ns; /* for what it has sent */
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
    int is_cut; /* see ranks_cut() */
    ranks_peer_t peers[RANKS_MAX];
    ranks_plane_t *planes;
};

/* fds[peer], -1 for the rank itself; the mesh closes them. */
ranks_mesh_t *ranks_mesh_create(int rank, int size, int deaf, const int *fds);
void ranks_mesh_destroy(ranks_mesh_t *mesh);

#endif
