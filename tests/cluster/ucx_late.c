/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * To be preloaded: makes UCX's transport tcp tell of the end of its zero-copy sends some milliseconds later, as `ud`
 * does, which reads their memory until its own acknowledgement has come. Interfaces are told apart by nothing: one
 * worker, one thread.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "ucx_open_next.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LATE_NS 5000000

typedef struct late {
    struct late *next;
    uct_completion_t child, *user;
    long long end_ns; /* 0: not over */
} late_t;

static late_t *all;
static uct_iface_ops_t real;

static long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void sent(uct_completion_t *child)
{
    late_t *late = (late_t *)((char *)child - offsetof(late_t, child));

    late->end_ns = now_ns() + LATE_NS;
}

static unsigned tell(long long until_ns)
{
    late_t **at    = &all, *late;
    unsigned count = 0;

    while ((late = *at) != NULL) {
        if (late->end_ns == 0 || late->end_ns > until_ns) {
            at = &late->next;
            continue;
        }
        *at = late->next;
        if (--late->user->count == 0) {
            late->user->func(late->user);
        }
        free(late);
        at = &all; /* it may have sent more */
        ++count;
    }
    return count;
}

static ucs_status_t send_late(uct_ep_h ep, uint8_t id, const void *header, unsigned header_length, const uct_iov_t *iov,
                              size_t iovcnt, unsigned flags, uct_completion_t *user)
{
    late_t *late = calloc(1, sizeof(*late));
    ucs_status_t status;

    late->user  = user;
    late->child = (uct_completion_t){.func = sent, .count = 1, .status = UCS_OK};
    status      = real.ep_am_zcopy(ep, id, header, header_length, iov, iovcnt, flags, &late->child);
    if (status != UCS_OK && status != UCS_INPROGRESS) {
        free(late);
        return status;
    }
    if (status == UCS_OK) {
        sent(&late->child);
    }
    late->next = all;
    all        = late;
    return UCS_INPROGRESS;
}

static unsigned progress(uct_iface_h iface)
{
    unsigned count = real.iface_progress(iface);

    return count + tell(now_ns());
}

/* What is left is told at once, as by any transport. */
static void destroy(uct_ep_h ep)
{
    real.ep_destroy(ep);
    tell(now_ns() + LATE_NS);
}

/* Instead of UCX's. */
ucs_status_t uct_iface_open(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                            const uct_iface_config_t *config, uct_iface_h *iface_p)
{
    uct_iface_ops_t *ops;
    ucs_status_t status = open_next(md, worker, params, config, iface_p, "tcp", &ops);

    if (ops != NULL) {
        real                = *ops;
        ops->ep_am_zcopy    = send_late;
        ops->ep_destroy     = destroy;
        ops->iface_progress = progress;
    }
    return status;
}
