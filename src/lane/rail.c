/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "rail": opening a NIC, driving it, giving it up. The transfers are in rail_transfer.c, the peers in rail_peer.c.
 */
#include "lane/rail_private.h"
#include "util/log.h"
#include "util/time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define RAIL_WINDOW_CHUNKS 4
#define RAIL_WINDOW_BYTES (1u << 20)
#define RAIL_POLLS 4 /* of the worker per progress call while they bring something */
#define RAIL_GIVE_UP_NS MPATH_NS_PER_S

static int rail_progress(mpath_lane_t *base)
{
    rail_t *rail = (rail_t *)base;
    int polls;

    if (rail->worker == NULL) {
        return MPATH_ERR_UNREACHABLE;
    }
    rail->events = 0;
    rail_deliver_held(rail);
    for (polls = 0; (polls < RAIL_POLLS) && (rail->open_bytes <= rail->max_open_bytes); polls++) {
        if (ucp_worker_progress(rail->worker) == 0) {
            break;
        }
    }
    rail_peers_clean(rail);
    if (rail->error != MPATH_OK) {
        return rail->error;
    }
    return rail->events;
}

/*
 * A peer that nothing was sent to is connected to, so that a dead one shows by refusing. Seldom asked: by a caller that
 * has waited a while.
 */
static mpath_status_t rail_peer_status(mpath_lane_t *base, int number)
{
    rail_t *rail = (rail_t *)base;
    mpath_status_t status;
    rail_peer_t *peer;

    if (rail->worker == NULL) {
        return MPATH_ERR_UNREACHABLE;
    }
    status = rail_peer_find(rail, number, &peer);
    if (status == MPATH_OK) {
        status = rail_peer_connect(peer);
    }
    return (status == MPATH_NO_RESOURCE) ? MPATH_OK : status;
}

static mpath_status_t rail_reserve(mpath_lane_t *base, int number, size_t bytes, void **slot_p)
{
    (void)base;
    (void)number;
    (void)bytes;
    (void)slot_p;
    return MPATH_ERR_UNSUPPORTED;
}

static void rail_commit(mpath_lane_t *base, int number, void *slot, const mpath_chunk_t *chunk)
{
    (void)base;
    (void)number;
    (void)slot;
    (void)chunk;
}

static size_t rail_max_chunk(const mpath_lane_t *base)
{
    return ((const rail_t *)base)->max_chunk_bytes;
}

/* Ends the worker: whatever UCX did not let go of before is out of its hands then. */
static void rail_close(rail_t *rail)
{
    int number;

    rail_drop_open(rail);
    rail_ucx_close(rail);
    for (number = 0; number < rail->num_peers; number++) {
        if (rail->peers[number] != NULL) {
            rail->peers[number]->ep     = NULL;
            rail->peers[number]->status = MPATH_ERR_UNREACHABLE;
        }
    }
    while (rail->active != NULL) {
        rail_op_t *op = rail->active;

        rail_op_unlink(op);
        rail_op_finish(op, MPATH_ERR_UNREACHABLE);
    }
}

/* Progresses until no op is under way, for RAIL_GIVE_UP_NS at most; nonzero when it succeeded. */
static int rail_drain(rail_t *rail)
{
    uint64_t end_ns = mpath_time_ns() + RAIL_GIVE_UP_NS;

    rail->giving_up = 1;
    while ((rail->active != NULL) && (mpath_time_ns() < end_ns)) {
        ucp_worker_progress(rail->worker);
    }
    rail->giving_up = 0;
    return rail->active == NULL;
}

static void give_peer_up(rail_peer_t *peer)
{
    if (peer->window_bytes > 0) {
        rail_peer_fail(peer, "given up with chunks under way");
        rail_peer_close(peer);
    }
}

void mpath_rail_abort_peer(mpath_lane_t *base, int number)
{
    rail_t *rail = (rail_t *)base;
    rail_peer_t *peer;

    if ((rail->worker != NULL) && (rail_peer_find(rail, number, &peer) == MPATH_OK)) {
        give_peer_up(peer);
    }
}

/*
 * Ends the connections on which something is under way; peers without stay. A rendezvous that is being fetched cannot
 * be called back: when the sender does not end it in time, the whole rail has to go.
 */
static void rail_abort(mpath_lane_t *base)
{
    rail_t *rail = (rail_t *)base;
    int number;

    if (rail->worker == NULL) {
        return;
    }
    for (number = 0; number < rail->num_peers; number++) {
        if (rail->peers[number] != NULL) {
            give_peer_up(rail->peers[number]);
        }
    }
    if (!rail_drain(rail)) {
        mpath_error("rail %s: UCX does not end the transfers under way within a second; the rail is closed, calls that "
                    "use it fail or do without it until it is opened anew",
                    rail->nic);
        rail_close(rail);
    }
}

static void rail_destroy(mpath_lane_t *base)
{
    rail_t *rail = (rail_t *)base;
    int number;

    if (rail->worker != NULL) {
        for (number = 0; number < rail->num_peers; number++) {
            if (rail->peers[number] != NULL) {
                rail->peers[number]->status = MPATH_ERR_UNREACHABLE;
                rail_peer_close(rail->peers[number]);
            }
        }
        rail_drain(rail);
    }
    rail_close(rail);
    rail_transfer_destroy(rail);
    rail_peers_destroy(rail);
    free(rail->address);
    free(rail);
}

static const mpath_lane_ops_t rail_ops = {
    .name        = "rail",
    .kind        = MPATH_LANE_RAIL,
    .send        = rail_send,
    .reserve     = rail_reserve,
    .commit      = rail_commit,
    .progress    = rail_progress,
    .take        = rail_take,
    .release     = rail_release,
    .peer_status = rail_peer_status,
    .max_chunk   = rail_max_chunk,
    .abort       = rail_abort,
    .destroy     = rail_destroy,
};

static mpath_status_t rail_make_address(rail_t *rail)
{
    ucp_address_t *address;
    ucs_status_t status;
    size_t bytes;

    status = ucp_worker_get_address(rail->worker, &address, &bytes);
    if (status != UCS_OK) {
        mpath_error("rail %s: ucp_worker_get_address failed: %s; the rail is not used", rail->nic,
                    ucs_status_string(status));
        return MPATH_ERR_IO;
    }
    rail->address_bytes = sizeof(*rail->address) + bytes;
    if (rail->address_bytes > MPATH_RAIL_ADDRESS_MAX) {
        mpath_error("rail %s: the UCX address has %zu bytes, more than the limit of %d; the rail is not used",
                    rail->nic, bytes, MPATH_RAIL_ADDRESS_MAX - (int)sizeof(*rail->address));
        ucp_worker_release_address(rail->worker, address);
        return MPATH_ERR_UNSUPPORTED;
    }
    rail->address = malloc(rail->address_bytes);
    if (rail->address == NULL) {
        ucp_worker_release_address(rail->worker, address);
        return MPATH_ERR_NO_MEMORY;
    }
    rail->address->magic        = RAIL_ADDRESS_MAGIC;
    rail->address->worker_bytes = (uint32_t)bytes;
    rail->address->uid          = rail->uid;
    memcpy(rail->address + 1, address, bytes);
    ucp_worker_release_address(rail->worker, address);
    return MPATH_OK;
}

mpath_status_t mpath_rail_open(const mpath_rail_params_t *params, mpath_lane_t **lane_p)
{
    mpath_status_t status;
    rail_t *rail;

    if ((strlen(params->nic) >= RAIL_NAME_MAX) || (params->max_chunk_bytes == 0) ||
        (params->max_chunk_bytes > UINT32_MAX)) {
        mpath_error("rail '%s' with chunks of %zu bytes cannot be opened; the rail is not used", params->nic,
                    params->max_chunk_bytes);
        return MPATH_ERR_PARAM;
    }
    rail = calloc(1, sizeof(*rail));
    if (rail == NULL) {
        mpath_error("rail %s: no memory; the rail is not used", params->nic);
        return MPATH_ERR_NO_MEMORY;
    }
    strcpy(rail->nic, params->nic);
    rail->base.ops         = &rail_ops;
    rail->max_chunk_bytes  = params->max_chunk_bytes;
    rail->max_open_bytes   = params->max_open_arrival_bytes;
    rail->rate_bps         = params->rate_bps;
    rail->max_window_bytes = params->max_chunk_bytes * RAIL_WINDOW_CHUNKS;
    if (rail->max_window_bytes > RAIL_WINDOW_BYTES) {
        rail->max_window_bytes = RAIL_WINDOW_BYTES;
    }
    if (getrandom(&rail->uid, sizeof(rail->uid), 0) != (ssize_t)sizeof(rail->uid)) {
        mpath_error("rail %s: getrandom failed: %s; the rail is not used", rail->nic, strerror(errno));
        status = MPATH_ERR_IO;
        goto err_free;
    }
    status = rail_ucx_open(rail, params->tls, params->gpu_memory);
    if (status != MPATH_OK) {
        goto err_free;
    }
    status = rail_make_address(rail);
    if (status != MPATH_OK) {
        goto err_close;
    }
    mpath_info("rail %s: open, %s", rail->nic, rail->description);
    *lane_p = &rail->base;
    return MPATH_OK;

err_close:
    rail_ucx_close(rail);
err_free:
    free(rail);
    return status;
}

void mpath_rail_address(mpath_lane_t *lane, const void **address_p, size_t *bytes_p)
{
    rail_t *rail = (rail_t *)lane;

    *address_p = rail->address;
    *bytes_p   = rail->address_bytes;
}

const char *mpath_rail_description(mpath_lane_t *lane)
{
    return ((rail_t *)lane)->description;
}
