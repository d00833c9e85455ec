/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers of a rail. Endpoints are made on first use. A connection that is lost while nothing is under way on it may just
 * mean that the other process forgot us: it is made again on the next use, and only when that is lost too, without
 * anything having gone through in between, has the peer failed. A connection lost under a send fails the peer at once.
 */
#include "rail/rail_private.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define PEER_MAX_FRUITLESS 2

static uint32_t peer_hash(const rail_t *rail, uint64_t uid)
{
    return (uint32_t)(uid * 0x9e3779b97f4a7c15ull >> 32) & rail->by_uid_mask;
}

/* Builds the table anew: peers come and go with teams, so seldom. */
static mpath_status_t peer_index(rail_t *rail)
{
    uint32_t capacity = 16, at;
    int *table, number;

    while (capacity < 2 * (uint32_t)rail->num_peers + 2) {
        capacity *= 2;
    }
    table = malloc(capacity * sizeof(*table));
    if (table == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    memset(table, 0xff, capacity * sizeof(*table));
    free(rail->by_uid);
    rail->by_uid      = table;
    rail->by_uid_mask = capacity - 1;
    for (number = 0; number < rail->num_peers; number++) {
        if (rail->peers[number] == NULL) {
            continue;
        }
        for (at = peer_hash(rail, rail->peers[number]->uid); table[at] >= 0; at = (at + 1) & rail->by_uid_mask) {
        }
        table[at] = number;
    }
    return MPATH_OK;
}

int rail_peer_by_uid(const rail_t *rail, uint64_t uid)
{
    uint32_t at;

    if (rail->by_uid == NULL) {
        return -1;
    }
    for (at = peer_hash(rail, uid); rail->by_uid[at] >= 0; at = (at + 1) & rail->by_uid_mask) {
        if (rail->peers[rail->by_uid[at]]->uid == uid) {
            return rail->by_uid[at];
        }
    }
    return -1;
}

mpath_status_t rail_peer_find(const rail_t *rail, int number, rail_peer_t **peer_p)
{
    if ((number < 0) || (number >= rail->num_peers) || (rail->peers[number] == NULL)) {
        mpath_error("rail %s: there is no peer %d; nothing is done", rail->nic, number);
        return MPATH_ERR_PARAM;
    }
    *peer_p = rail->peers[number];
    return MPATH_OK;
}

static mpath_status_t peer_read_address(const rail_t *rail, const void *address, size_t bytes, const char *name,
                                        rail_peer_t **peer_p)
{
    rail_address_t head;
    rail_peer_t *peer;

    if (rail_address_read(address, bytes, &head) != MPATH_OK) {
        mpath_error("rail %s: the address of %s (%zu bytes) is none of this version of mpath; it cannot be reached",
                    rail->nic, name, bytes);
        return MPATH_ERR_PARAM;
    }
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    peer->address = malloc(head.worker_bytes);
    if (peer->address == NULL) {
        free(peer);
        return MPATH_ERR_NO_MEMORY;
    }
    memcpy(peer->address, (const char *)address + sizeof(head), head.worker_bytes);
    strncpy(peer->name, name, sizeof(peer->name) - 1);
    peer->uid = head.uid;
    *peer_p   = peer;
    return MPATH_OK;
}

static void peer_free(rail_peer_t *peer)
{
    free(peer->address);
    free(peer);
}

/* The lowest free number, room for it made; negative status. */
static int peer_number(rail_t *rail)
{
    rail_peer_t **peers;
    int number, capacity;

    for (number = 0; (number < rail->num_peers) && (rail->peers[number] != NULL); number++) {
    }
    if (number >= rail->max_peers) {
        capacity = (rail->max_peers == 0) ? 16 : 2 * rail->max_peers;
        peers    = realloc(rail->peers, (size_t)capacity * sizeof(*peers));
        if (peers == NULL) {
            return MPATH_ERR_NO_MEMORY;
        }
        rail->peers     = peers;
        rail->max_peers = capacity;
    }
    return number;
}

int mpath_rail_add_peer(mpath_lane_t *lane, const void *address, size_t bytes, const char *name)
{
    rail_t *rail = (rail_t *)lane;
    rail_peer_t *peer;
    mpath_status_t status;
    int number;

    status = peer_read_address(rail, address, bytes, name, &peer);
    if (status == MPATH_ERR_NO_MEMORY) {
        goto err_memory;
    } else if (status != MPATH_OK) {
        return status;
    }
    number = peer_number(rail);
    if (number < 0) {
        peer_free(peer);
        goto err_memory;
    }
    peer->rail          = rail;
    peer->number        = number;
    rail->peers[number] = peer;
    if (number == rail->num_peers) {
        rail->num_peers++;
    }
    if (peer_index(rail) != MPATH_OK) {
        rail->peers[number] = NULL;
        peer_free(peer);
        goto err_memory;
    }
    return number;

err_memory:
    mpath_error("rail %s: no memory for peer %s; it cannot be reached", rail->nic, name);
    return MPATH_ERR_NO_MEMORY;
}

void mpath_rail_remove_peer(mpath_lane_t *lane, int number)
{
    rail_t *rail = (rail_t *)lane;
    rail_peer_t *peer;

    if (rail_peer_find(rail, number, &peer) != MPATH_OK) {
        return;
    }
    rail->peers[number] = NULL;
    while ((rail->num_peers > 0) && (rail->peers[rail->num_peers - 1] == NULL)) {
        rail->num_peers--;
    }
    if (peer_index(rail) != MPATH_OK) { /* then late arrivals have no known sender */
        free(rail->by_uid);
        rail->by_uid = NULL;
    }
    peer->number  = -1;
    peer->status  = MPATH_ERR_UNREACHABLE;
    peer->next    = rail->removed;
    rail->removed = peer;
    peer->references++;
    rail_peer_close(peer);
    rail_peer_probe_end(peer);
    rail_peer_put(peer);
}

void rail_peer_put(rail_peer_t *peer)
{
    rail_peer_t **link;

    if ((--peer->references > 0) || (peer->number >= 0)) {
        return;
    }
    for (link = &peer->rail->removed; *link != peer; link = &(*link)->next) {
    }
    *link = peer->next;
    peer_free(peer);
}

static void peer_error(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    rail_peer_t *peer = argument;

    if (peer->ep == ep) {
        peer->ep_error              = status;
        peer->rail->endpoint_failed = 1;
    }
}

mpath_status_t rail_peer_connect(rail_peer_t *peer)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address  = peer->address,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER};
    ucs_status_t status;

    if (peer->status != MPATH_OK) {
        return peer->status;
    }
    if (peer->ep_error != UCS_OK) {
        return MPATH_NO_RESOURCE;
    }
    if (peer->ep != NULL) {
        return MPATH_OK;
    }
    params.err_handler.cb  = peer_error;
    params.err_handler.arg = peer;
    status                 = ucp_ep_create(peer->rail->worker, &params, &peer->ep);
    if (status != UCS_OK) {
        peer->ep = NULL;
        rail_peer_fail(peer, ucs_status_string(status));
        return peer->status;
    }
    return MPATH_OK;
}

void rail_peer_fail(rail_peer_t *peer, const char *reason)
{
    if (peer->status != MPATH_OK) {
        return;
    }
    peer->status = MPATH_ERR_UNREACHABLE;
    if (peer->ep != NULL) {
        peer->ep_error              = UCS_ERR_CONNECTION_RESET;
        peer->rail->endpoint_failed = 1;
    }
    mpath_error("rail %s: lost peer %s: %s; sends to it fail from now on", peer->rail->nic, peer->name, reason);
}

static void peer_closed(void *request, ucs_status_t status, void *user_data)
{
    (void)status;
    ucp_request_free(request);
    rail_peer_put(user_data);
}

/* `peer`: counted for what comes of it. */
static void peer_close_endpoint(rail_peer_t *peer, ucp_ep_h ep)
{
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                                  UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags     = UCP_EP_CLOSE_FLAG_FORCE,
                                  .user_data = peer};

    params.cb.send = peer_closed;
    peer->references += 2;
    if (!UCS_PTR_IS_PTR(ucp_ep_close_nbx(ep, &params))) {
        peer->references--;
    }
    rail_peer_put(peer);
}

void rail_peer_close(rail_peer_t *peer)
{
    ucp_ep_h ep = peer->ep;

    if (ep != NULL) {
        peer->ep       = NULL;
        peer->ep_error = UCS_OK;
        peer->rail->closed_early |= peer->sends > 0 && peer->rail->takes_writes;
        peer_close_endpoint(peer, ep);
    }
}

#define PROBE_PAUSE_NS MPATH_NS_PER_S

static void peer_probe_error(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    rail_peer_t *peer = argument;

    (void)status;
    if (peer->probe == ep) {
        peer->probe_failed = 1;
    }
}

void rail_peer_probe_end(rail_peer_t *peer)
{
    ucp_ep_h ep = peer->probe;

    peer->probe        = NULL;
    peer->probe_failed = 0;
    if (ep != NULL) {
        peer_close_endpoint(peer, ep);
    }
}

static void peer_probe_begin(rail_peer_t *peer, uint64_t now_ns)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address     = peer->address,
                              .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = peer_probe_error, .arg = peer}};

    peer->probe_next_ns = now_ns + PROBE_PAUSE_NS;
    if (ucp_ep_create(peer->rail->worker, &params, &peer->probe) != UCS_OK) {
        peer->probe         = NULL;
        peer->probe_lost_ns = now_ns;
    }
}

mpath_status_t mpath_rail_probe(mpath_lane_t *lane, int number, int anew)
{
    rail_t *rail    = (rail_t *)lane;
    uint64_t now_ns = mpath_time_ns();
    mpath_status_t status;
    rail_peer_t *peer;

    if (rail->worker == NULL) {
        return MPATH_ERR_UNREACHABLE;
    }
    status = rail_peer_find(rail, number, &peer);
    if (status != MPATH_OK) {
        return status;
    }
    if (anew) {
        rail_peer_probe_end(peer);
        peer->probe_lost_ns = peer->probe_next_ns = 0;
    }
    if (peer->probe_failed) {
        rail_peer_probe_end(peer);
        peer->probe_lost_ns = now_ns;
    }
    if ((peer->probe == NULL) && (now_ns >= peer->probe_next_ns)) {
        peer_probe_begin(peer, now_ns);
    }
    return ((peer->probe_lost_ns != 0) && (now_ns - peer->probe_lost_ns < MPATH_RAIL_PROBE_NS)) ? MPATH_ERR_UNREACHABLE
                                                                                                : MPATH_OK;
}

static void peer_lost(rail_peer_t *peer)
{
    const char *reason = ucs_status_string(peer->ep_error);

    if (peer->status == MPATH_OK) {
        peer->fruitless++;
        if ((peer->window_bytes > 0) || (peer->fruitless >= PEER_MAX_FRUITLESS)) {
            rail_peer_fail(peer, reason);
        } else {
            mpath_debug("rail %s: idle connection to %s is gone: %s; the next use connects again", peer->rail->nic,
                        peer->name, reason);
        }
    }
    rail_peer_close(peer);
}

void rail_peers_clean(rail_t *rail)
{
    int number;

    if (!rail->endpoint_failed) {
        return;
    }
    rail->endpoint_failed = 0;
    for (number = 0; number < rail->num_peers; number++) {
        if ((rail->peers[number] != NULL) && (rail->peers[number]->ep_error != UCS_OK)) {
            peer_lost(rail->peers[number]);
        }
    }
}

/* The worker is gone, so no callback comes any more. */
void rail_peers_destroy(rail_t *rail)
{
    rail_peer_t *peer;
    int number;

    for (number = 0; number < rail->num_peers; number++) {
        if (rail->peers[number] != NULL) {
            peer_free(rail->peers[number]);
        }
    }
    while (rail->removed != NULL) {
        peer          = rail->removed;
        rail->removed = peer->next;
        peer_free(peer);
    }
    free(rail->peers);
    free(rail->by_uid);
    rail->peers     = NULL;
    rail->by_uid    = NULL;
    rail->num_peers = 0;
}

void rail_note_stranger(rail_t *rail)
{
    if (rail->strangers++ == 0) {
        mpath_warn(
            "rail %s: a message came from a sender that is none of this job's processes; it is dropped, and so are "
            "others of the kind, which are only counted; doc/security.md says who can send to a rail",
            rail->nic);
    }
}
