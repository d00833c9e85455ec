/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections of UCX's tcp that are closed with bytes under way.
 *
 * UCX keeps such a connection for what may still come in, and its socket in the event set for writing, too. When the peer
 * closes its end, UCX frees the connection while it handles the one event, and then handles the other one with what it has
 * freed: the process ends by a signal (seen with UCX 1.13; the source of 1.22 is the same there). So the connection is ended
 * below UCX, before UCX looks at it again: what UCX finds broken it takes out of the event set first.
 *
 * UCX does not say which socket a connection has. But once nothing else is sent on the rail, it is the connected ones that
 * the event set still waits for in both directions. One that has just connected, and was not answered yet, may be among
 * them: the next use connects again.
 */
#include "rail/rail_private.h"
#include "util/log.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENT_SETS_MAX 64

/* The process's event sets. */
static int event_sets(int *fds)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    int num_fds = 0;
    char target[32];

    if (folder == NULL) {
        return 0;
    }
    while ((entry = readdir(folder)) != NULL && num_fds < EVENT_SETS_MAX) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);

        target[length > 0 ? length : 0] = '\0';
        if (strcmp(target, "anon_inode:[eventpoll]") == 0) {
            fds[num_fds++] = atoi(entry->d_name);
        }
    }
    closedir(folder);
    return num_fds;
}

ucs_status_t rail_socket_create_worker(rail_t *rail, const ucp_worker_params_t *params)
{
    static pthread_mutex_t one_rail = PTHREAD_MUTEX_INITIALIZER; /* at a time, to know whose event sets are new */
    int before[EVENT_SETS_MAX], after[EVENT_SETS_MAX], num_before, num_after;
    ucs_status_t status;

    pthread_mutex_lock(&one_rail);
    num_before = event_sets(before);
    status     = ucp_worker_create(rail->context, params, &rail->worker);
    num_after  = event_sets(after);
    pthread_mutex_unlock(&one_rail);
    rail->num_event_sets = 0;
    for (int i = 0; i < num_after && num_before < EVENT_SETS_MAX; i++) {
        int known = 0;

        for (int j = 0; j < num_before; j++) {
            known |= before[j] == after[i];
        }
        if (!known && rail->num_event_sets < RAIL_EVENT_SETS_MAX) {
            rail->event_sets[rail->num_event_sets++] = after[i];
        }
    }
    return status;
}

static int is_connected_tcp(int fd)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
           (info.tcpi_state == TCP_ESTABLISHED || info.tcpi_state == TCP_CLOSE_WAIT);
}

/* Nothing comes in any more either: UCX must not find the peer's word that it closes. */
static void socket_end(int fd)
{
    char dropped[16384];

    shutdown(fd, SHUT_RDWR);
    while (recv(fd, dropped, sizeof(dropped), MSG_DONTWAIT) > 0) {
    }
}

static void event_set_end(const rail_t *rail, int event_set)
{
    char name[48], line[256];
    FILE *entries;

    snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", event_set);
    entries = fopen(name, "re");
    if (entries == NULL) {
        return;
    }
    while (fgets(line, sizeof(line), entries) != NULL) {
        unsigned events;
        int fd;

        if (sscanf(line, "tfd: %d events: %x", &fd, &events) == 2 && (events & EPOLLIN) != 0 &&
            (events & EPOLLOUT) != 0 && is_connected_tcp(fd)) {
            mpath_debug("rail %s: ends the connection of socket %d, closed with bytes under way", rail->nic, fd);
            socket_end(fd);
        }
    }
    fclose(entries);
}

/* Nonzero: sends of connections that are not closed are under way, or fetches, on sockets that wait for writing, too. */
static int is_in_use(const rail_t *rail)
{
    const rail_op_t *op;

    for (op = rail->active; op != NULL && op->peer != NULL && op->peer->ep == NULL; op = op->next) {
    }
    return op != NULL;
}

void rail_socket_end_closed(rail_t *rail)
{
    if (is_in_use(rail)) {
        return;
    }
    rail->closed_early = 0;
    for (int number = 0; number < rail->num_peers; number++) {
        if (rail->peers[number] != NULL) {
            rail_peer_probe_end(rail->peers[number]); /* it is made again, instead of being taken for refused */
        }
    }
    for (int i = 0; i < rail->num_event_sets; i++) {
        event_set_end(rail, rail->event_sets[i]);
    }
}
