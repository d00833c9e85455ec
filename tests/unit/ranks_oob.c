/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane of the test ranks: a mesh of stream sockets, frames of {channel, bytes} and data. Sends never
 * block: what the socket does not take waits in memory and goes out with the next call. The end of a peer is an
 * error of the receives that its frames did not serve.
 */
#include "ranks_mesh.h"

#include "util/time.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_EVERY_NS 50000

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

static void lose_peer(const ranks_mesh_t *mesh, ranks_peer_t *peer)
{
    peer->gone     = 1;
    peer->out.used = 0;
    while (peer->posted != NULL && !mesh->deaf) {
        ranks_message_t *receive = peer->posted;

        peer->posted    = receive->next;
        receive->done   = 1;
        receive->status = MPATH_ERR_UNREACHABLE;
    }
}

static void flush(ranks_peer_t *peer)
{
    while (peer->out.used > 0) {
        ssize_t sent = send(peer->fd, peer->out.data, peer->out.used, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent <= 0) {
            if (errno != EAGAIN && errno != EINTR) {
                peer->out.used = 0; /* the peer ended; its last frames may still be there to read */
            }
            return;
        }
        buffer_consume(&peer->out, (size_t)sent);
    }
}

static void receive(const ranks_mesh_t *mesh, ranks_peer_t *peer)
{
    char block[65536];

    while (!peer->gone && !mesh->is_cut) {
        ssize_t got = recv(peer->fd, block, sizeof(block), MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (got <= 0) {
            lose_peer(mesh, peer);
            return;
        }
        buffer_append(&peer->in, block, (size_t)got);
        for (size_t used = 0;;) {
            frame_t frame;

            if (peer->in.used - used >= sizeof(frame)) {
                memcpy(&frame, peer->in.data + used, sizeof(frame));
                if (peer->in.used - used - sizeof(frame) >= frame.bytes) {
                    deliver(peer, frame.channel, peer->in.data + used + sizeof(frame), frame.bytes);
                    used += sizeof(frame) + frame.bytes;
                    continue;
                }
            }
            buffer_consume(&peer->in, used);
            break;
        }
    }
}

static mpath_status_t oob_isend(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request)
{
    ranks_plane_t *plane = context;
    ranks_peer_t *peer   = &plane->mesh->peers[plane->members[to]];
    frame_t frame        = {.channel = plane->channel, .bytes = (uint32_t)bytes};
    mpath_status_t status;

    pthread_mutex_lock(&plane->mesh->lock);
    request->handle = NULL;
    status          = peer->gone && !plane->mesh->deaf ? MPATH_ERR_UNREACHABLE : MPATH_OK;
    if (peer->fd < 0) { /* myself */
        deliver(peer, frame.channel, data, bytes);
    } else if (!peer->gone) {
        buffer_append(&peer->out, &frame, sizeof(frame));
        buffer_append(&peer->out, data, bytes);
        flush(peer);
    }
    pthread_mutex_unlock(&plane->mesh->lock);
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
    } else if (peer->gone && !plane->mesh->deaf) {
        message->done   = 1;
        message->status = MPATH_ERR_UNREACHABLE;
    } else {
        append(&peer->posted, message);
    }
    pthread_mutex_unlock(&plane->mesh->lock);
    request->handle = message;
    return MPATH_OK;
}

/* Waiting ranks ask all the time, and share few processors: a look is a call of the system. */
static void drive(const ranks_mesh_t *mesh, ranks_peer_t *peer)
{
    uint64_t now_ns = mpath_time_ns();

    if ((peer->fd >= 0) && (now_ns - peer->looked_ns > LOOK_EVERY_NS)) {
        peer->looked_ns = now_ns;
        flush(peer);
        receive(mesh, peer);
    }
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
        drive(plane->mesh, &plane->mesh->peers[message->peer]);
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
    for (int rank = 0; rank < plane->mesh->size; rank++) {
        drive(plane->mesh, &plane->mesh->peers[rank]);
    }
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

ranks_mesh_t *ranks_mesh_create(int rank, int size, int deaf, const int *fds)
{
    ranks_mesh_t *mesh = checked(calloc(1, sizeof(*mesh)));

    mesh->rank = rank;
    mesh->size = size;
    mesh->deaf = deaf;
    pthread_mutex_init(&mesh->lock, NULL);
    for (int peer = 0; peer < size; peer++) {
        mesh->peers[peer].fd = fds[peer];
    }
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
    for (int rank = 0; rank < mesh->size; rank++) {
        ranks_peer_t *peer = &mesh->peers[rank];

        /* What was sent must leave; a peer that has ended makes send() fail, which ends the loop, too. */
        while (peer->fd >= 0 && peer->out.used > 0) {
            struct pollfd ready = {.fd = peer->fd, .events = POLLOUT};

            poll(&ready, 1, 1000);
            flush(peer);
        }
        if (peer->fd >= 0) {
            close(peer->fd);
        }
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
