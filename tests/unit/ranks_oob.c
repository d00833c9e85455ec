/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane of the test ranks: a mesh of rings in shared memory, frames of {channel, bytes} and data. Sends never
 * block: what a ring does not take waits in memory and goes out with the next call. The end of a peer is an error of the
 * receives that its frames did not serve. Waiting ranks look all the time and share few processors: a look that finds
 * nothing reads two words of the shared memory, and asks neither the system nor the clock.
 */
#include "ranks_mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct frame {
    uint32_t channel;
    uint32_t bytes;
} frame_t;

/* A posted receive, or a message that came before one. */
struct ranks_message {
    ranks_message_t *next;
    uint32_t channel;
    int peer;
    int done;
    mpath_status_t status;
    void *data; /* the receiver's memory, or our own */
    size_t room, bytes;
};

static void *checked(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "ranks: out of memory\n");
        abort();
    }
    return memory;
}

static void append(ranks_message_t **list, ranks_message_t *message)
{
    while (*list != NULL) {
        list = &(*list)->next;
    }
    message->next = NULL;
    *list         = message;
}

/* Takes the first message of the channel out of the list. */
static ranks_message_t *take(ranks_message_t **list, uint32_t channel)
{
    for (; *list != NULL; list = &(*list)->next) {
        if ((*list)->channel == channel) {
            ranks_message_t *message = *list;

            *list = message->next;
            return message;
        }
    }
    return NULL;
}

static void finish(ranks_message_t *receive, const void *data, size_t bytes)
{
    receive->done   = 1;
    receive->bytes  = bytes;
    receive->status = bytes <= receive->room ? MPATH_OK : MPATH_ERR_TRUNCATED;
    if (receive->status == MPATH_OK && bytes > 0) {
        memcpy(receive->data, data, bytes);
    }
}

static void deliver(ranks_peer_t *peer, uint32_t channel, const void *data, size_t bytes)
{
    ranks_message_t *message = take(&peer->posted, channel);

    if (message != NULL) {
        finish(message, data, bytes);
        return;
    }
    message          = checked(calloc(1, sizeof(*message)));
    message->channel = channel;
    message->bytes   = bytes;
    message->data    = checked(malloc(bytes + 1));
    memcpy(message->data, data, bytes);
    append(&peer->early, message);
}

static void buffer_append(ranks_buffer_t *buffer, const void *data, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    if (buffer->used + bytes > buffer->room) {
        buffer->room = 2 * (buffer->used + bytes);
        buffer->data = checked(realloc(buffer->data, buffer->room));
    }
    memcpy(buffer->data + buffer->used, data, bytes);
    buffer->used += bytes;
}

static void buffer_consume(ranks_buffer_t *buffer, size_t bytes)
{
    buffer->used -= bytes;
    memmove(buffer->data, buffer->data + bytes, buffer->used);
}

static int is_lost(const ranks_mesh_t *mesh, int rank)
{
    return (mesh->lost >> rank & 1) != 0;
}

static void lose_peer(ranks_mesh_t *mesh, int rank)
{
    ranks_peer_t *peer = &mesh->peers[rank];

    mesh->lost |= UINT32_C(1) << rank;
    while (peer->posted != NULL && !mesh->deaf) {
        ranks_message_t *receive = peer->posted;

        peer->posted    = receive->next;
        receive->done   = 1;
        receive->status = MPATH_ERR_UNREACHABLE;
    }
}

/* What lies in one stretch of a ring from byte `at` on, of `bytes` that go round its end. */
static size_t stretch(uint64_t at, size_t bytes)
{
    size_t to_end = RANKS_RING_BYTES - (size_t)(at % RANKS_RING_BYTES);

    return bytes < to_end ? bytes : to_end;
}

/* Writes to a rank's ring what it takes. */
static void flush(ranks_mesh_t *mesh, int to)
{
    ranks_shared_t *shared = mesh->shared;
    ranks_ring_t *ring     = &shared->rings[mesh->rank][to];
    ranks_buffer_t *out    = &mesh->peers[to].out;
    uint32_t bit           = UINT32_C(1) << to;

    if ((atomic_load(&shared->ended) & bit) != 0) {
        out->used = 0; /* its last frames may still be there to read */
    }
    while (out->used > 0) {
        uint64_t written = atomic_load(&ring->written);
        size_t left      = RANKS_RING_BYTES - (size_t)(written - atomic_load(&ring->read));
        size_t bytes     = stretch(written, out->used < left ? out->used : left);

        if (bytes == 0) {
            break;
        }
        memcpy(ring->data + written % RANKS_RING_BYTES, out->data, bytes);
        atomic_store(&ring->written, written + bytes);
        atomic_fetch_or(&shared->mail[to].from, UINT32_C(1) << mesh->rank);
        buffer_consume(out, bytes);
    }
    mesh->unsent = out->used > 0 ? mesh->unsent | bit : mesh->unsent & ~bit;
}

/* Reads everything that a rank has written so far, and delivers the frames that are complete. */
static void receive(ranks_mesh_t *mesh, int from)
{
    ranks_peer_t *peer = &mesh->peers[from];
    ranks_ring_t *ring = &mesh->shared->rings[from][mesh->rank];
    size_t used        = 0;

    for (;;) {
        uint64_t read = atomic_load(&ring->read);
        size_t bytes  = stretch(read, (size_t)(atomic_load(&ring->written) - read));

        if (bytes == 0) {
            break;
        }
        buffer_append(&peer->in, ring->data + read % RANKS_RING_BYTES, bytes);
        atomic_store(&ring->read, read + bytes);
    }
    while (peer->in.used - used >= sizeof(frame_t)) {
        frame_t frame;

        memcpy(&frame, peer->in.data + used, sizeof(frame));
        if (peer->in.used - used - sizeof(frame) < frame.bytes) {
            break;
        }
        deliver(peer, frame.channel, peer->in.data + used + sizeof(frame), frame.bytes);
        used += sizeof(frame) + frame.bytes;
    }
    if (used > 0) {
        buffer_consume(&peer->in, used);
    }
}

/* Sends what waits, and takes what has come. */
static void drive(ranks_mesh_t *mesh)
{
    ranks_mail_t *mail = &mesh->shared->mail[mesh->rank];
    uint32_t ended = 0, from = 0;

    if (!mesh->is_cut) {
        ended = atomic_load(&mesh->shared->ended) & ~mesh->lost; /* before their rings are read for the last time */
        from  = atomic_load(&mail->from) != 0 ? atomic_exchange(&mail->from, 0) : 0;
    }
    for (int rank = 0; (mesh->unsent | from | ended) != 0 && rank < mesh->size; rank++) {
        uint32_t bit = UINT32_C(1) << rank;

        if ((mesh->unsent & bit) != 0) {
            flush(mesh, rank);
        }
        if (((from | ended) & bit) != 0) {
            receive(mesh, rank);
        }
        if ((ended & bit) != 0) {
            lose_peer(mesh, rank);
        }
    }
}

static mpath_status_t oob_isend(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request)
{
    ranks_plane_t *plane  = context;
    ranks_mesh_t *mesh    = plane->mesh;
    int rank              = plane->members[to];
    ranks_peer_t *peer    = &mesh->peers[rank];
    frame_t frame         = {.channel = plane->channel, .bytes = (uint32_t)bytes};
    mpath_status_t status = MPATH_OK;

    pthread_mutex_lock(&mesh->lock);
    request->handle = NULL;
    if (rank == mesh->rank) {
        deliver(peer, frame.channel, data, bytes);
    } else if (!is_lost(mesh, rank)) {
        buffer_append(&peer->out, &frame, sizeof(frame));
        buffer_append(&peer->out, data, bytes);
        flush(mesh, rank);
    } else if (!mesh->deaf) {
        status = MPATH_ERR_UNREACHABLE;
    }
    pthread_mutex_unlock(&mesh->lock);
    return status;
}

static mpath_status_t oob_irecv(void *context, int from, void *data, size_t bytes, mpath_oob_request_t *request)
{
    ranks_plane_t *plane     = context;
    ranks_peer_t *peer       = &plane->mesh->peers[plane->members[from]];
    ranks_message_t *message = checked(calloc(1, sizeof(*message)));
    ranks_message_t *early;

    message->channel = plane->channel;
    message->peer    = plane->members[from];
    message->data    = data;
    message->room    = bytes;
    pthread_mutex_lock(&plane->mesh->lock);
    early = take(&peer->early, plane->channel);
    if (early != NULL) {
        finish(message, early->data, early->bytes);
        free(early->data);
        free(early);
    } else if (is_lost(plane->mesh, message->peer) && !plane->mesh->deaf) {
        message->done   = 1;
        message->status = MPATH_ERR_UNREACHABLE;
    } else {
        append(&peer->posted, message);
    }
    pthread_mutex_unlock(&plane->mesh->lock);
    request->handle = message;
    return MPATH_OK;
}

static mpath_status_t oob_test(void *context, mpath_oob_request_t *request, size_t *bytes_p)
{
    ranks_plane_t *plane     = context;
    ranks_message_t *message = request->handle;
    mpath_status_t status    = MPATH_INPROGRESS;

    if (message == NULL) {
        return MPATH_OK;
    }
    pthread_mutex_lock(&plane->mesh->lock);
    if (!message->done) {
        drive(plane->mesh);
    }
    if (message->done) {
        status = message->status;
        if (bytes_p != NULL) {
            *bytes_p = message->bytes;
        }
        request->handle = NULL;
        free(message);
    }
    pthread_mutex_unlock(&plane->mesh->lock);
    return status;
}

static void oob_cancel(void *context, mpath_oob_request_t *request)
{
    ranks_plane_t *plane     = context;
    ranks_message_t *message = request->handle;

    if (message == NULL) {
        return;
    }
    pthread_mutex_lock(&plane->mesh->lock);
    if (!message->done) {
        for (ranks_message_t **link = &plane->mesh->peers[message->peer].posted; *link != NULL; link = &(*link)->next) {
            if (*link == message) {
                *link = message->next;
                break;
            }
        }
    }
    pthread_mutex_unlock(&plane->mesh->lock);
    free(message);
    request->handle = NULL;
}

static void oob_progress(void *context)
{
    ranks_plane_t *plane = context;

    pthread_mutex_lock(&plane->mesh->lock);
    drive(plane->mesh);
    pthread_mutex_unlock(&plane->mesh->lock);
}

void ranks_oob(ranks_self_t *self, int channel, const int *members, int size, mpath_oob_t *oob_p)
{
    ranks_plane_t *plane = checked(calloc(1, sizeof(*plane)));

    plane->mesh    = self->mesh;
    plane->channel = (uint32_t)channel;
    plane->next    = self->mesh->planes;
    snprintf(plane->name, sizeof(plane->name), "test communicator %d", channel);
    *oob_p = (mpath_oob_t){.context  = plane,
                           .rank     = -1,
                           .size     = size,
                           .name     = plane->name,
                           .isend    = oob_isend,
                           .irecv    = oob_irecv,
                           .test     = oob_test,
                           .cancel   = oob_cancel,
                           .progress = oob_progress};
    for (int i = 0; i < size; i++) {
        plane->members[i] = members != NULL ? members[i] : i;
        if (plane->members[i] == self->rank) {
            oob_p->rank = i;
        }
    }
    self->mesh->planes = plane;
}

void ranks_cut(ranks_self_t *self)
{
    pthread_mutex_lock(&self->mesh->lock);
    self->mesh->is_cut = 1;
    pthread_mutex_unlock(&self->mesh->lock);
}

ranks_shared_t *ranks_shared_create(void)
{
    /* Without a name, so that nothing is left of it. Most of it is never touched. */
    void *shared = mmap(NULL, sizeof(ranks_shared_t), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (shared == MAP_FAILED) {
        perror("ranks: mmap");
        return NULL;
    }
    return shared;
}

void ranks_shared_destroy(ranks_shared_t *shared)
{
    munmap(shared, sizeof(*shared));
}

void ranks_shared_end(ranks_shared_t *shared, int rank)
{
    atomic_fetch_or(&shared->ended, UINT32_C(1) << rank);
}

ranks_mesh_t *ranks_mesh_create(int rank, int size, int deaf, ranks_shared_t *shared)
{
    ranks_mesh_t *mesh = checked(calloc(1, sizeof(*mesh)));

    mesh->rank   = rank;
    mesh->size   = size;
    mesh->deaf   = deaf;
    mesh->shared = shared;
    pthread_mutex_init(&mesh->lock, NULL);
    return mesh;
}

static void free_messages(ranks_message_t *message, int own_data)
{
    while (message != NULL) {
        ranks_message_t *next = message->next;

        if (own_data) {
            free(message->data);
        }
        free(message);
        message = next;
    }
}

void ranks_mesh_destroy(ranks_mesh_t *mesh)
{
    /* What was sent must leave, unless who is to have it has ended. Others may wait for the same here. */
    while (mesh->unsent != 0) {
        drive(mesh);
        usleep(100);
    }
    for (int rank = 0; rank < mesh->size; rank++) {
        ranks_peer_t *peer = &mesh->peers[rank];

        free_messages(peer->posted, 0);
        free_messages(peer->early, 1);
        free(peer->in.data);
        free(peer->out.data);
    }
    while (mesh->planes != NULL) {
        ranks_plane_t *plane = mesh->planes;

        mesh->planes = plane->next;
        free(plane);
    }
    pthread_mutex_destroy(&mesh->lock);
    free(mesh);
}
