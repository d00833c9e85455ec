/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_relay [N]: a process that opens UCX and progresses it until it is killed. With UCX_TLS=mpath and UCX_MPATH_RELAYS
 * it relays for the others of its UCX_MPATH_RELAY_GROUP. Prints "ready" when they can see it. With N it is killed in the
 * middle of the Nth large message that it passes on through shared memory. After SIGUSR1 it loses all greetings that it
 * should pass on there, for 15 seconds.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "ucx_open_next.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define IDLE_ROUNDS 200 /* that only yield; then it sleeps a little between rounds */

#define LARGE_BYTES 32768
/* ucx_tl_mpath/wire.h: a message for a relay begins with four numbers of 64 bits, the rail, and the id inside. */
#define ID_RELAY 5
#define ID_HELLO 3
#define ID_NONE 127 /* that nobody knows */
#define INNER_ID (4 * 8 + 1)
#define LOSES_S 15

static __typeof__(((uct_iface_ops_t *)0)->ep_am_bcopy) send_bcopy;
static int last_message; /* 0: none is */
static volatile sig_atomic_t loses_greetings;

typedef struct packing {
    uint8_t id;
    uct_pack_callback_t pack;
    void *arg;
} packing_t;

static size_t pack_or_die(void *destination, void *arg)
{
    static int number;
    const packing_t *packing = arg;
    size_t bytes             = packing->pack(destination, packing->arg);
    char *inner_id           = (char *)destination + INNER_ID;

    if (loses_greetings && packing->id == ID_RELAY && *inner_id == ID_HELLO) {
        *inner_id = ID_NONE;
    }
    if (bytes >= LARGE_BYTES && ++number == last_message) {
        raise(SIGKILL);
    }
    return bytes;
}

static ssize_t send_or_die(uct_ep_h ep, uint8_t id, uct_pack_callback_t pack, void *arg, unsigned flags)
{
    packing_t packing = {.id = id, .pack = pack, .arg = arg};

    return send_bcopy(ep, id, pack_or_die, &packing, flags);
}

/* Instead of UCX's. */
ucs_status_t uct_iface_open(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                            const uct_iface_config_t *config, uct_iface_h *iface_p)
{
    uct_iface_ops_t *ops;
    ucs_status_t status = open_next(md, worker, params, config, iface_p, "posix", &ops);

    if (ops != NULL) {
        send_bcopy       = ops->ep_am_bcopy;
        ops->ep_am_bcopy = send_or_die;
    }
    return status;
}

static void lose_greetings(int signal_number)
{
    loses_greetings = signal_number == SIGUSR1;
    alarm(loses_greetings ? LOSES_S : 0);
}

int main(int argc, char **argv)
{
    const struct timespec pause = {.tv_nsec = 50000};
    ucp_worker_params_t worker_params;
    ucp_params_t params;
    ucp_context_h context;
    ucp_worker_h worker;
    unsigned idle = 0;

    signal(SIGUSR1, lose_greetings);
    signal(SIGALRM, lose_greetings);
    last_message = argc > 1 ? atoi(argv[1]) : 0;
    memset(&params, 0, sizeof(params));
    memset(&worker_params, 0, sizeof(worker_params));
    params.field_mask         = UCP_PARAM_FIELD_FEATURES;
    params.features           = UCP_FEATURE_TAG;
    worker_params.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
    if (ucp_init(&params, NULL, &context) != UCS_OK || ucp_worker_create(context, &worker_params, &worker) != UCS_OK) {
        fprintf(stderr, "ucx_relay: UCX does not open\n");
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        if (ucp_worker_progress(worker) > 0) {
            idle = 0;
        } else if (++idle < IDLE_ROUNDS) {
            sched_yield();
        } else {
            nanosleep(&pause, NULL);
        }
    }
}
