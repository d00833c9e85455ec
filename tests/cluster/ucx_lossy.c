/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * To be preloaded: loses the first greeting and each rail's first probe that the transport mpath sends through shared
 * memory, as a relay may do with any message that it holds; with LOSSY_SENDS=N in the environment, which is not 0, also
 * the connection over which the Nth large piece is sent, in its middle.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "ucx_open_next.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MESSAGE_BYTES (1 << 17)
/* ucx_tl_mpath/wire.h: a message for a relay begins with four numbers of 64 bits, the rail, and the id inside. */
#define ID_RELAY 5
#define ID_PROBE 2
#define ID_HELLO 3
#define RAIL (4 * 8)
#define INNER_ID (RAIL + 1)
#define PROBED_RAIL (5 * 8 + 12) /* behind the link; another one's where an acknowledgement is asked for */
#define LARGE_BYTES 32768
#define FIRST_BYTES 20000 /* of the piece that does not go whole */

static __typeof__(((uct_iface_ops_t *)0)->ep_am_bcopy) real;
static char message[MESSAGE_BYTES];
static size_t message_bytes;
static int lost_greeting, probes_lost, tried_again; /* bit n: rail n */

static size_t pack_message(void *destination, void *arg)
{
    (void)arg;
    memcpy(destination, message, message_bytes);
    return message_bytes;
}

static int loses(char id, int rail, int probed_rail)
{
    if (id == ID_HELLO && !lost_greeting) {
        lost_greeting = 1;
        fprintf(stderr, "lost a greeting\n");
        return 1;
    }
    if (id == ID_PROBE && probed_rail == rail && !(probes_lost & 1 << rail)) {
        probes_lost |= 1 << rail;
        fprintf(stderr, "lost a probe of rail %d\n", rail);
        return 1;
    }
    if ((probes_lost & ~tried_again) & 1 << rail) {
        tried_again |= 1 << rail;
        fprintf(stderr, "tried again rail %d\n", rail);
    }
    return 0;
}

static ssize_t send_or_lose(uct_ep_h ep, uint8_t id, uct_pack_callback_t pack, void *arg, unsigned flags)
{
    message_bytes = pack(message, arg);
    if (id == ID_RELAY && loses(message[INNER_ID], message[RAIL], message[PROBED_RAIL])) {
        return (ssize_t)message_bytes;
    }
    return real(ep, id, pack_message, NULL, flags);
}

static size_t bytes_of(const struct msghdr *piece)
{
    size_t bytes = 0, i;

    for (i = 0; i < piece->msg_iovlen; ++i) {
        bytes += piece->msg_iov[i].iov_len;
    }
    return bytes;
}

/* The first part of a piece; the next attempt meets the reset connection. */
static ssize_t send_first(__typeof__(sendmsg) *next, int fd, const struct msghdr *piece, int flags)
{
    struct iovec iov[16];
    struct msghdr part = {.msg_iov = iov};
    size_t bytes       = 0, i;

    for (i = 0; i < piece->msg_iovlen && i < 16 && bytes < FIRST_BYTES; ++i) {
        iov[i] = piece->msg_iov[i];
        if (iov[i].iov_len > FIRST_BYTES - bytes) {
            iov[i].iov_len = FIRST_BYTES - bytes;
        }
        bytes += iov[i].iov_len;
        part.msg_iovlen = i + 1;
    }
    return next(fd, &part, flags);
}

/* Instead of libc's, which UCX's tcp uses for what it does not copy. */
ssize_t sendmsg(int fd, const struct msghdr *piece, int flags)
{
    __typeof__(sendmsg) *next = (__typeof__(sendmsg) *)dlsym(RTLD_NEXT, "sendmsg");
    static int number, lost_fd = -1;
    const char *which = getenv("LOSSY_SENDS");

    if (which != NULL && fd == lost_fd) {
        lost_fd = -1;
        fprintf(stderr, "lost a connection\n");
        shutdown(fd, SHUT_RDWR);
        errno = ECONNRESET;
        return -1;
    }
    if (which != NULL && bytes_of(piece) >= LARGE_BYTES && ++number == atoi(which)) {
        lost_fd = fd;
        return send_first(next, fd, piece, flags);
    }
    return next(fd, piece, flags);
}

/* Instead of UCX's. */
ucs_status_t uct_iface_open(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                            const uct_iface_config_t *config, uct_iface_h *iface_p)
{
    uct_iface_ops_t *ops;
    ucs_status_t status = open_next(md, worker, params, config, iface_p, "posix", &ops);

    if (ops != NULL) {
        real             = ops->ep_am_bcopy;
        ops->ep_am_bcopy = send_or_lose;
    }
    return status;
}
