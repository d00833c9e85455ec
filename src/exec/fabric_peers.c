/* SPDX-License-Identifier: BSD-3-Clause */
/* Fabric, the peers of a rail: one connection to an address for all teams, and another one when it is lost and unused. */
#include "exec/fabric_private.h"

#include "lane/rail.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

static rail_peer_t *rail_find_peer(rail_t *rail, const void *address, size_t bytes)
{
    for (size_t i = 0; i < rail->num_peers; i++) {
        rail_peer_t *peer = &rail->peers[i];

        if ((peer->address != NULL) && (peer->bytes == bytes) && (memcmp(peer->address, address, bytes) == 0)) {
            return peer;
        }
    }
    return NULL;
}

/* A place in the table: one that was given up, or a new one; NULL without memory. */
static rail_peer_t *rail_free_peer(rail_t *rail)
{
    rail_peer_t *peers;

    for (size_t i = 0; i < rail->num_peers; i++) {
        if (rail->peers[i].address == NULL) {
            return &rail->peers[i];
        }
    }
    peers = realloc(rail->peers, (rail->num_peers + 1) * sizeof(*peers));
    if (peers == NULL) {
        return NULL;
    }
    rail->peers = peers;
    memset(&peers[rail->num_peers], 0, sizeof(*peers));
    return &peers[rail->num_peers++];
}

static int rail_add_peer(rail_t *rail, const void *address, size_t bytes, const char *name)
{
    rail_peer_t *peer = rail_free_peer(rail);
    void *copy        = malloc(bytes > 0 ? bytes : 1);
    int number;

    if ((peer == NULL) || (copy == NULL)) {
        mpath_error("no memory for the address of %s", name);
        free(copy);
        return MPATH_ERR_NO_MEMORY;
    }
    number = mpath_rail_add_peer(rail->lane, address, bytes, name);
    if (number < 0) {
        free(copy);
        return number;
    }
    memcpy(copy, address, bytes);
    *peer = (rail_peer_t){.number = number, .users = 1, .bytes = bytes, .address = copy};
    return number;
}

/* A lost connection that nobody uses is forgotten, so that its process may be tried again. */
static rail_peer_t *rail_reuse_peer(rail_t *rail, const void *address, size_t bytes)
{
    rail_peer_t *peer = rail_find_peer(rail, address, bytes);

    if ((peer != NULL) && (peer->users == 0) && (rail->lane->ops->peer_status(rail->lane, peer->number) != MPATH_OK)) {
        mpath_rail_remove_peer(rail->lane, peer->number);
        free(peer->address);
        peer->address = NULL;
        peer          = NULL;
    }
    return peer;
}

int mpath_fabric_peer(mpath_fabric_t *fabric, int which, const void *address, size_t bytes, const char *name)
{
    rail_t *rail = rail_lock(fabric, which);
    int number   = (int)mpath_fabric_rail_open(fabric, rail);
    rail_peer_t *peer;

    if (number == MPATH_OK) {
        peer = rail_reuse_peer(rail, address, bytes);
        if (peer != NULL) {
            peer->users++;
            number = peer->number;
        } else {
            number = rail_add_peer(rail, address, bytes, name);
        }
    }
    rail_unlock(rail);
    return number;
}

void mpath_fabric_forget_peer(mpath_fabric_t *fabric, int which, int peer)
{
    rail_t *rail = rail_lock(fabric, which);

    for (size_t i = 0; i < rail->num_peers; i++) {
        rail_peer_t *entry = &rail->peers[i];

        if ((entry->users > 0) && (entry->number == peer)) {
            entry->users--;
            break;
        }
    }
    rail_unlock(rail);
}
