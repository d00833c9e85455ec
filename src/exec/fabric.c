/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fabric: rails opened on demand, one recursive lock per rail. Every table (teams, peers, open arrivals) belongs to a
 * rail and lives under its lock; which rails there are stands under a lock of the fabric (fabric_renew.c), which comes
 * first. An arrival stays in its rail's list from the moment the lane hands it over until it is ended; that list is
 * also where chunks of a team wait that has not joined yet.
 */
#include "exec/fabric_private.h"

#include "gpu/driver.h"
#include "lane/rail.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define OPEN_ARRIVAL_CHUNKS 16 /* of full size, before a rail stops reading */

static void rail_init(rail_t *rail, int number, int nic)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&rail->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    rail->number        = number;
    rail->nic           = nic;
    rail->open.next     = &rail->open;
    rail->open.previous = &rail->open;
}

mpath_status_t mpath_fabric_create(const mpath_settings_t *settings, const mpath_machine_t *machine,
                                   mpath_fabric_t **fabric_p)
{
    mpath_fabric_t *fabric = calloc(1, sizeof(*fabric));

    if (fabric == NULL) {
        mpath_error("no memory for the table of rails");
        return MPATH_ERR_NO_MEMORY;
    }
    fabric->settings = settings;
    fabric->machine  = machine;
    pthread_mutex_init(&fabric->lock, NULL);
    pthread_mutex_init(&fabric->memory_lock, NULL);
    for (int number = 0; number < MPATH_FABRIC_RAILS; number++) {
        rail_init(&fabric->rails[number], number, (number < machine->num_nics) ? number : -1);
    }
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        fabric->newest[nic] = nic;
    }
    *fabric_p = fabric;
    return MPATH_OK;
}

/* Takes an arrival off the list; its place is kept for the next one. */
static mpath_arrival_t open_remove(rail_t *rail, open_arrival_t *open)
{
    open->previous->next = open->next;
    open->next->previous = open->previous;
    open->next           = rail->spare;
    rail->spare          = open;
    return open->arrival;
}

static void open_release(rail_t *rail, open_arrival_t *open)
{
    mpath_arrival_t arrival = open_remove(rail, open);

    rail->lane->ops->release(rail->lane, &arrival);
}

void mpath_fabric_rail_close(rail_t *rail)
{
    while (rail->open.next != &rail->open) {
        open_release(rail, rail->open.next);
    }
    if (rail->lane != NULL) {
        rail->lane->ops->destroy(rail->lane);
        rail->lane = NULL;
    }
    for (size_t i = 0; i < rail->num_peers; i++) {
        free(rail->peers[i].address);
    }
    rail->num_peers = 0;
    rail->status    = MPATH_OK;
}

static void rail_destroy(rail_t *rail)
{
    open_arrival_t *open;

    mpath_fabric_rail_close(rail);
    while ((open = rail->spare) != NULL) {
        rail->spare = open->next;
        free(open);
    }
    free(rail->peers);
    free(rail->teams);
    pthread_mutex_destroy(&rail->lock);
}

void mpath_fabric_destroy(mpath_fabric_t *fabric)
{
    fabric_memory_t *memory;

    if (fabric == NULL) {
        return;
    }
    for (int number = 0; number < MPATH_FABRIC_RAILS; number++) {
        rail_destroy(&fabric->rails[number]);
    }
    while ((memory = fabric->memory) != NULL) {
        fabric->memory = memory->next;
        free(memory);
    }
    pthread_mutex_destroy(&fabric->memory_lock);
    pthread_mutex_destroy(&fabric->lock);
    free(fabric);
}

static rail_team_t *rail_find_team(rail_t *rail, uint64_t id)
{
    for (size_t i = 0; i < rail->num_teams; i++) {
        if (rail->teams[i].id == id) {
            return &rail->teams[i];
        }
    }
    return NULL;
}

static void open_hand_over(const rail_t *rail, open_arrival_t *open, const rail_team_t *team)
{
    mpath_arrival_t arrival = open->arrival;

    open->waiting        = 0;
    arrival.private_data = open;
    team->arrive(team->argument, rail->number, &arrival);
}

/* Where a team that has left stands in the ring; NULL when it has not. */
static uint64_t *rail_find_left(rail_t *rail, uint64_t id)
{
    for (size_t i = 0; i < LEFT_TEAMS; i++) {
        if (rail->left[i] == id) {
            return &rail->left[i];
        }
    }
    return NULL;
}

/* The lane's callback, under the rail's lock. */
static void rail_arrive(void *argument, const mpath_arrival_t *arrival)
{
    rail_t *rail            = argument;
    const rail_team_t *team = rail_find_team(rail, arrival->chunk.team);
    open_arrival_t *open    = rail->spare;

    /* A team that failed here and has gone may still be sent to: its chunks, kept, would stop the rail for others. */
    if ((team == NULL) && (rail_find_left(rail, arrival->chunk.team) != NULL)) {
        rail->lane->ops->release(rail->lane, arrival);
        return;
    }
    if (open != NULL) {
        rail->spare = open->next;
    } else if ((open = malloc(sizeof(*open))) == NULL) {
        mpath_error("no memory to note an arrived chunk; the calls that use this rail fail");
        rail->status = MPATH_ERR_NO_MEMORY;
        rail->lane->ops->release(rail->lane, arrival);
        return;
    }
    open->arrival             = *arrival;
    open->waiting             = 1;
    open->next                = &rail->open;
    open->previous            = rail->open.previous;
    rail->open.previous->next = open;
    rail->open.previous       = open;
    if (team != NULL) {
        open_hand_over(rail, open, team);
    }
}

uint64_t mpath_fabric_open_limit_bytes(const mpath_fabric_t *fabric)
{
    uint64_t bytes       = OPEN_ARRIVAL_CHUNKS * fabric->settings->chunk_bytes,
             limit_bytes = fabric->settings->memory_bytes / 8;

    return (bytes < limit_bytes) ? bytes : limit_bytes;
}

/* Chunks of device memory are longer: a chunk costs two copies of engines beside the rail's work. */
static uint64_t max_chunk_bytes(const mpath_settings_t *settings)
{
    int longer = mpath_gpu_available() && (settings->gpu_chunk_bytes > settings->chunk_bytes);

    return longer ? settings->gpu_chunk_bytes : settings->chunk_bytes;
}

mpath_status_t mpath_fabric_rail_open(mpath_fabric_t *fabric, rail_t *rail)
{
    mpath_rail_params_t params = {
        .nic                    = fabric->machine->nics[rail->nic].name,
        .tls                    = (fabric->settings->rail_tls != NULL && fabric->settings->rail_tls[0] != '\0')
                                      ? fabric->settings->rail_tls
                                      : NULL,
        .max_chunk_bytes        = max_chunk_bytes(fabric->settings),
        .max_open_arrival_bytes = mpath_fabric_open_limit_bytes(fabric),
        .rate_bps               = fabric->machine->nics[rail->nic].rate_bps,
        .gpu_memory             = mpath_fabric_wants_memory(fabric),
    };

    if ((rail->lane != NULL) || (rail->status != MPATH_OK)) {
        return rail->status;
    }
    if (params.max_chunk_bytes > params.max_open_arrival_bytes) {
        params.max_chunk_bytes = params.max_open_arrival_bytes;
    }
    rail->status = mpath_rail_open(&params, &rail->lane);
    if (rail->status != MPATH_OK) {
        rail->lane = NULL;
        return rail->status;
    }
    rail->for_gpus = params.gpu_memory;
    mpath_lane_set_arrive(rail->lane, rail_arrive, rail);
    rail->status = mpath_fabric_rail_register(fabric, rail);
    if (rail->status != MPATH_OK) {
        rail->lane->ops->destroy(rail->lane);
        rail->lane = NULL;
        return rail->status;
    }
    mpath_debug("opened %s", mpath_rail_description(rail->lane));
    return MPATH_OK;
}

mpath_status_t mpath_fabric_address(mpath_fabric_t *fabric, int which, const void **address_p, size_t *bytes_p)
{
    rail_t *rail          = rail_lock(fabric, which);
    mpath_status_t status = mpath_fabric_rail_open(fabric, rail);

    if (status == MPATH_OK) {
        mpath_rail_address(rail->lane, address_p, bytes_p);
    }
    rail_unlock(rail);
    return status;
}

mpath_status_t mpath_fabric_rail_join(rail_t *rail, const rail_team_t *team)
{
    rail_team_t *teams;
    open_arrival_t *open;
    uint64_t *left;

    if (rail_find_team(rail, team->id) != NULL) {
        return MPATH_OK;
    }
    teams = realloc(rail->teams, (rail->num_teams + 1) * sizeof(*teams));

    if (teams == NULL) {
        mpath_error("no memory to let a communicator use the rails");
        return MPATH_ERR_NO_MEMORY;
    }
    rail->teams              = teams;
    teams[rail->num_teams++] = *team;
    left                     = rail_find_left(rail, team->id);
    if (left != NULL) {
        *left = 0;
    }

    /* `arrive` may end what it is given, and only that: the next one is looked up before. */
    open = rail->open.next;
    while (open != &rail->open) {
        open_arrival_t *next = open->next;

        if (open->waiting && (open->arrival.chunk.team == team->id)) {
            open_hand_over(rail, open, team);
        }
        open = next;
    }
    return MPATH_OK;
}

void mpath_fabric_rail_leave(rail_t *rail, uint64_t id)
{
    rail_team_t *team    = rail_find_team(rail, id);
    open_arrival_t *open = rail->open.next;

    if (team != NULL) {
        *team                                     = rail->teams[--rail->num_teams];
        rail->left[rail->num_left++ % LEFT_TEAMS] = id;
    }
    while (open != &rail->open) {
        open_arrival_t *next = open->next;

        if (open->arrival.chunk.team == id) {
            open_release(rail, open);
        }
        open = next;
    }
}

/* What came of something on a rail, for its user. */
static mpath_status_t noted(rail_t *rail, mpath_status_t status)
{
    if (status == MPATH_ERR_UNREACHABLE) {
        atomic_store(&rail->suspect, 1);
    }
    return status;
}

mpath_status_t mpath_fabric_send(mpath_fabric_t *fabric, int which, int peer, const mpath_chunk_t *chunk,
                                 const void *data, mpath_lane_op_t *op)
{
    rail_t *rail          = rail_lock(fabric, which);
    mpath_status_t status = noted(rail, rail->lane->ops->send(rail->lane, peer, chunk, data, op));

    rail_unlock(rail);
    return status;
}

mpath_status_t mpath_fabric_take(mpath_fabric_t *fabric, int which, const mpath_arrival_t *arrival, void *to,
                                 mpath_lane_op_t *op)
{
    rail_t *rail          = rail_lock(fabric, which);
    open_arrival_t *open  = arrival->private_data;
    mpath_status_t status = noted(rail, rail->lane->ops->take(rail->lane, &open->arrival, to, op));

    /* A take that was begun, or that failed, has ended the arrival. */
    if (status != MPATH_NO_RESOURCE) {
        open_remove(rail, open);
    }
    rail_unlock(rail);
    return status;
}

void mpath_fabric_release(mpath_fabric_t *fabric, int which, const mpath_arrival_t *arrival)
{
    rail_t *rail = rail_lock(fabric, which);

    open_release(rail, arrival->private_data);
    rail_unlock(rail);
}

mpath_status_t mpath_fabric_op_status(mpath_fabric_t *fabric, int which, const mpath_lane_op_t *op)
{
    rail_t *rail          = &fabric->rails[which];
    mpath_status_t status = MPATH_INPROGRESS;

    if (pthread_mutex_trylock(&rail->lock) == 0) {
        status = noted(rail, op->status);
        rail_unlock(rail);
    }
    return status;
}

mpath_status_t mpath_fabric_peer_status(mpath_fabric_t *fabric, int which, int peer)
{
    rail_t *rail          = rail_lock(fabric, which);
    mpath_status_t status = noted(rail, rail->lane->ops->peer_status(rail->lane, peer));

    rail_unlock(rail);
    return status;
}

size_t mpath_fabric_max_chunk(mpath_fabric_t *fabric, int which)
{
    rail_t *rail = rail_lock(fabric, which);
    size_t bytes = rail->lane->ops->max_chunk(rail->lane);

    rail_unlock(rail);
    return bytes;
}

int mpath_fabric_progress(mpath_fabric_t *fabric, int which)
{
    rail_t *rail = &fabric->rails[which];
    int events;

    if (pthread_mutex_trylock(&rail->lock) != 0) {
        return 0;
    }
    if (rail->status != MPATH_OK) {
        events = (int)rail->status;
    } else {
        events = (rail->lane == NULL) ? 0 : rail->lane->ops->progress(rail->lane);
    }
    rail_unlock(rail);
    return events;
}

void mpath_fabric_abort(mpath_fabric_t *fabric, int which)
{
    rail_t *rail = rail_lock(fabric, which);

    if (rail->lane != NULL) {
        rail->lane->ops->abort(rail->lane);
        atomic_store(&rail->suspect, 1);
    }
    rail_unlock(rail);
}

void mpath_fabric_abort_peer(mpath_fabric_t *fabric, int which, int peer)
{
    rail_t *rail = rail_lock(fabric, which);

    if (rail->lane != NULL) {
        mpath_rail_abort_peer(rail->lane, peer);
        atomic_store(&rail->suspect, 1);
    }
    rail_unlock(rail);
}
