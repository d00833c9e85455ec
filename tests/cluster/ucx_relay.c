/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_relay: a process that opens UCX and progresses it until it is killed. With UCX_TLS=mpath and UCX_MPATH_RELAYS it
 * relays for the others of its UCX_MPATH_RELAY_GROUP. Prints "ready" when they can see it.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

#define IDLE_ROUNDS 200 /* that only yield; then it sleeps a little between rounds */

int main(void)
{
    const struct timespec pause = {.tv_nsec = 50000};
    ucp_worker_params_t worker_params;
    ucp_params_t params;
    ucp_context_h context;
    ucp_worker_h worker;
    unsigned idle = 0;

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
