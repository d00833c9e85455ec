/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fabric: rails opened on demand, one recursive lock per rail. Every table (teams, peers, open arrivals) belongs to a
 * rail and lives under its lock; which rails there are stands under a lock of the fabric (rail/fabric.c), which comes
 * first. An arrival stays in its rail's list from the moment the lane hands it over until it is ended; that list is
 * also where chunks of a team wait that has not joined yet.
 */
#include "rail/fabric_private.h"

#include "device/device.h"
#include "rail/gpu_memory.h"
#include "rail/rail.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Fabric: memory of GPUs that rails read and write themselves. What a team has had registered is registered with every
 * rail that is open, and with those that are opened as long as it stays: a rail that takes the place of one that has
 * failed has to know it. The list has a lock of its own, after those of rails.
 */

/* rail/fabric.c: whether rails are to be opened for GPU memory; */
static int fabric_wants_memory(const mpath_fabric_t *fabric)
{
    switch (fabric->settings->gpu_rail) {
    case MPATH_GPU_RAIL_HOST:
        return 0;
    case MPATH_GPU_RAIL_DIRECT:
        return mpath_gpu_available();
    default:
        return mpath_gpu_available() && mpath_rail_gpu_can("/sys");
    }
}

/* and makes all of it known to a rail that has just been opened; under the rail's lock. */
/* Under the rail's lock. */
static mpath_status_t fabric_rail_register(mpath_fabric_t *fabric, rail_t *rail)
{
    mpath_status_t status = MPATH_OK;

    pthread_mutex_lock(&fabric->memory_lock);
    for (const fabric_memory_t *memory = fabric->memory; (memory != NULL) && (status == MPATH_OK);
         memory                        = memory->next) {
        if (!mpath_gpu_is_lost(memory->gpu)) {
            status = mpath_rail_memory_add(rail->lane, memory->gpu, memory->address, memory->bytes);
        }
    }
    pthread_mutex_unlock(&fabric->memory_lock);
    return status;
}

static mpath_status_t list_add(mpath_fabric_t *fabric, const mpath_gpu_t *gpu, mpath_device_ptr_t address, size_t bytes)
{
    fabric_memory_t *memory = malloc(sizeof(*memory));

    if (memory == NULL) {
        mpath_error("no memory to note memory of a GPU that rails use");
        return MPATH_ERR_NO_MEMORY;
    }
    pthread_mutex_lock(&fabric->memory_lock);
    *memory        = (fabric_memory_t){.next = fabric->memory, .gpu = gpu, .address = address, .bytes = bytes};
    fabric->memory = memory;
    pthread_mutex_unlock(&fabric->memory_lock);
    return MPATH_OK;
}

static void list_remove(mpath_fabric_t *fabric, const mpath_gpu_t *gpu, mpath_device_ptr_t address)
{
    fabric_memory_t **link = &fabric->memory, *memory;

    pthread_mutex_lock(&fabric->memory_lock);
    while ((*link != NULL) && (((*link)->gpu != gpu) || ((*link)->address != address))) {
        link = &(*link)->next;
    }
    memory = *link;
    if (memory != NULL) {
        *link = memory->next;
        free(memory);
    }
    pthread_mutex_unlock(&fabric->memory_lock);
}

mpath_status_t mpath_fabric_add_memory(mpath_fabric_t *fabric, const mpath_gpu_t *gpu, mpath_device_ptr_t address,
                                       size_t bytes)
{
    mpath_status_t status = list_add(fabric, gpu, address, bytes);

    for (int number = 0; (number < fabric->num_rails) && (status == MPATH_OK); number++) {
        rail_t *rail = rail_lock(fabric, number);

        if (rail->lane != NULL) {
            status = mpath_rail_memory_add(rail->lane, gpu, address, bytes);
        }
        rail_unlock(rail);
    }
    if (status != MPATH_OK) {
        mpath_fabric_remove_memory(fabric, gpu, address);
    }
    return status;
}

void mpath_fabric_remove_memory(mpath_fabric_t *fabric, const mpath_gpu_t *gpu, mpath_device_ptr_t address)
{
    list_remove(fabric, gpu, address);
    for (int number = 0; number < fabric->num_rails; number++) {
        rail_t *rail = rail_lock(fabric, number);

        if (rail->lane != NULL) {
            mpath_rail_memory_remove(rail->lane, gpu, address);
        }
        rail_unlock(rail);
    }
}

/* UCX learns of GPUs when a rail is opened: under the rail's lock. */
static mpath_status_t try_rail(const mpath_fabric_t *fabric, rail_t *rail, mpath_stream_t *stream)
{
    if (!rail->for_gpus && fabric_wants_memory(fabric)) {
        mpath_info_by(
            mpath_log_speaks(),
            "rail %s was opened before the application used CUDA: device memory goes over rails through pinned "
            "host slots (gpu_rail) in this job",
            fabric->machine->nics[rail->nic].name);
        return MPATH_ERR_UNSUPPORTED;
    }
    return mpath_rail_memory_try(rail->lane, stream);
}

mpath_status_t mpath_fabric_try_memory(mpath_fabric_t *fabric, mpath_stream_t *stream)
{
    mpath_status_t status = MPATH_OK;

    for (int number = 0; (number < fabric->num_rails) && (status == MPATH_OK); number++) {
        rail_t *rail = rail_lock(fabric, number);

        if (rail->lane != NULL) {
            status = try_rail(fabric, rail, stream);
        }
        rail_unlock(rail);
    }
    return status;
}

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
    fabric->settings  = settings;
    fabric->machine   = machine;
    fabric->num_rails = MPATH_FABRIC_RAILS * machine->num_nics;
    fabric->rails     = calloc((size_t)fabric->num_rails + 1, sizeof(*fabric->rails));
    if (fabric->rails == NULL) {
        free(fabric);
        mpath_error("no memory for the table of rails");
        return MPATH_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&fabric->lock, NULL);
    pthread_mutex_init(&fabric->memory_lock, NULL);
    for (int number = 0; number < fabric->num_rails; number++) {
        rail_init(&fabric->rails[number], number, (number < machine->num_nics) ? number : -1);
    }
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        fabric->newest[nic] = nic;
    }
    for (int nic = 0; nic < machine->num_nics; nic++) {
        atomic_store(&mpath_page_rail(machine->nics[nic].name, machine->nics[nic].rail)->rate_bps,
                     machine->nics[nic].rate_bps);
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

/* Ends the lane and what belongs to it; under the rail's lock. */
static void fabric_rail_close(rail_t *rail)
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

    fabric_rail_close(rail);
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
    for (int number = 0; number < fabric->num_rails; number++) {
        rail_destroy(&fabric->rails[number]);
    }
    while ((memory = fabric->memory) != NULL) {
        fabric->memory = memory->next;
        free(memory);
    }
    pthread_mutex_destroy(&fabric->memory_lock);
    pthread_mutex_destroy(&fabric->lock);
    free(fabric->rails);
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

static void fabric_note_why(mpath_fabric_t *fabric, int nic, const char *why)
{
    pthread_mutex_lock(&fabric->memory_lock);
    snprintf(fabric->why[nic], sizeof(fabric->why[nic]), "%s", why);
    pthread_mutex_unlock(&fabric->memory_lock);
}

void mpath_fabric_why(mpath_fabric_t *fabric, int nic, char *why, size_t size)
{
    pthread_mutex_lock(&fabric->memory_lock);
    snprintf(why, size, "%s", fabric->why[nic]);
    pthread_mutex_unlock(&fabric->memory_lock);
}

static void expect_most(atomic_int *number, int most)
{
    int now = atomic_load(number);

    while ((now < most) && !atomic_compare_exchange_weak(number, &now, most)) {
    }
}

void mpath_fabric_expect(mpath_fabric_t *fabric, int num_peers, int num_sharing)
{
    expect_most(&fabric->num_peers, num_peers);
    expect_most(&fabric->num_sharing, num_sharing);
}

/* Opens the lane unless it is open; under the rail's lock. */
static mpath_status_t fabric_rail_open(mpath_fabric_t *fabric, rail_t *rail)
{
    char why[MPATH_RAIL_WHY_MAX] = "";
    mpath_rail_params_t params   = {
          .nic                    = fabric->machine->nics[rail->nic].name,
          .tls                    = (fabric->settings->rail_tls != NULL && fabric->settings->rail_tls[0] != '\0')
                                        ? fabric->settings->rail_tls
                                        : NULL,
          .max_chunk_bytes        = max_chunk_bytes(fabric->settings),
          .max_open_arrival_bytes = mpath_fabric_open_limit_bytes(fabric),
          .rate_bps               = fabric->machine->nics[rail->nic].rate_bps,
          .num_peers              = atomic_load(&fabric->num_peers),
          .num_sharing            = atomic_load(&fabric->num_sharing),
          .gpu_memory             = fabric_wants_memory(fabric),
          .record = mpath_page_rail(fabric->machine->nics[rail->nic].name, fabric->machine->nics[rail->nic].rail),
          .why    = why,
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
        fabric_note_why(fabric, rail->nic, (why[0] != '\0') ? why : mpath_status_string(rail->status));
        return rail->status;
    }
    rail->for_gpus = params.gpu_memory;
    mpath_lane_set_arrive(rail->lane, rail_arrive, rail);
    rail->status = fabric_rail_register(fabric, rail);
    if (rail->status != MPATH_OK) {
        rail->lane->ops->destroy(rail->lane);
        rail->lane = NULL;
        fabric_note_why(fabric, rail->nic, "it does not take memory of GPUs that is in use");
        return rail->status;
    }
    return MPATH_OK;
}

int mpath_fabric_takes_writes(mpath_fabric_t *fabric, int which)
{
    rail_t *rail = rail_lock(fabric, which);
    int takes    = (rail->lane != NULL) && mpath_rail_takes_writes(rail->lane);

    rail_unlock(rail);
    return takes;
}

mpath_status_t mpath_fabric_address(mpath_fabric_t *fabric, int which, const void **address_p, size_t *bytes_p)
{
    rail_t *rail          = rail_lock(fabric, which);
    mpath_status_t status = fabric_rail_open(fabric, rail);

    if (status == MPATH_OK) {
        mpath_rail_address(rail->lane, address_p, bytes_p);
    }
    rail_unlock(rail);
    return status;
}

/* Unless it is there already; under the rail's lock. */
static mpath_status_t fabric_rail_join(rail_t *rail, const rail_team_t *team)
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

/* Unless it is there already; under the rail's lock. */
static void fabric_rail_leave(rail_t *rail, uint64_t id)
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

mpath_status_t mpath_fabric_probe(mpath_fabric_t *fabric, int which, int peer, int anew)
{
    rail_t *rail          = rail_lock(fabric, which);
    mpath_status_t status = (rail->lane == NULL) ? MPATH_OK : mpath_rail_probe(rail->lane, peer, anew);

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

/* Fabric, the peers of a rail: one connection to an address for all teams, and another one when it is lost and unused. */

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
    int number   = (int)fabric_rail_open(fabric, rail);
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

/*
 * Which rail a team uses. A NIC that has failed and is back gets a new rail, since connections of before cannot be
 * relied upon; the old one stays for the teams that have not come to that yet, and for a while after the last of them has
 * left it. So each team goes over in a call of its own, whatever the other teams of the process are at. The second one
 * to go over finds the rail that the first one has opened.
 */

static int is_nic(const mpath_fabric_t *fabric, int nic)
{
    return (nic >= 0) && (nic < fabric->machine->num_nics);
}

/* Under one hold of the lock: a rail that nobody uses may be replaced and closed by another team at any time. */
int mpath_fabric_join(mpath_fabric_t *fabric, int nic, uint64_t id, mpath_fabric_arrive_t arrive, void *argument)
{
    mpath_status_t status;
    int number;

    if (!is_nic(fabric, nic)) {
        mpath_error("rail number %d is out of range: this node has %d NICs", nic, fabric->machine->num_nics);
        return (int)MPATH_ERR_PARAM;
    }
    pthread_mutex_lock(&fabric->lock);
    number = fabric->newest[nic];
    status = mpath_fabric_join_rail(fabric, number, id, arrive, argument);
    pthread_mutex_unlock(&fabric->lock);
    return (status == MPATH_OK) ? number : (int)status;
}

const char *mpath_fabric_rail_name(const mpath_fabric_t *fabric, int number)
{
    int nic = fabric->rails[number].nic;

    return is_nic(fabric, nic) ? fabric->machine->nics[nic].name : "?";
}

/*
 * Under the fabric's lock: a number that is free, or else that of the rail which nobody has used for longest; -1: there is
 * none.
 */
static int find_free(const mpath_fabric_t *fabric)
{
    int longest = -1;

    for (int number = 0; number < fabric->num_rails; number++) {
        const rail_t *rail = &fabric->rails[number];

        if (rail->nic < 0) {
            return number;
        }
        if ((rail->unused_ns != 0) && ((longest < 0) || (rail->unused_ns < fabric->rails[longest].unused_ns))) {
            longest = number;
        }
    }
    return longest;
}

static int is_fresh(const mpath_fabric_t *fabric, int number, int than)
{
    return (number != than) && !fabric->rails[number].suspect;
}

int mpath_fabric_can_renew(mpath_fabric_t *fabric, int number)
{
    int can;

    pthread_mutex_lock(&fabric->lock);
    can = is_fresh(fabric, fabric->newest[fabric->rails[number].nic], number) || (find_free(fabric) >= 0);
    pthread_mutex_unlock(&fabric->lock);
    return can;
}

void mpath_fabric_suspect(mpath_fabric_t *fabric, int number)
{
    atomic_store(&fabric->rails[number].suspect, 1);
}

/* Under the fabric's lock and the rail's. */
static void close_replaced(rail_t *rail)
{
    fabric_rail_close(rail);
    rail->nic       = -1;
    rail->unused_ns = 0;
    rail->suspect   = 0;
}

/*
 * Under the fabric's lock: a rail that has been replaced and that nobody uses any more. What this process has sent last over it
 * may not have been read at the other end, whose call goes on, and would be lost with the connections: it stays as long as a
 * call waits for data. Those whose time is over are closed.
 */
static void retire_unused(mpath_fabric_t *fabric, int number)
{
    uint64_t now_ns = mpath_time_ns(), stays_ns = (uint64_t)fabric->settings->timeout_s * MPATH_NS_PER_S;
    rail_t *rail = rail_lock(fabric, number);

    if ((rail->nic >= 0) && (fabric->newest[rail->nic] != number) && (rail->num_teams == 0) && (rail->unused_ns == 0)) {
        rail->unused_ns = now_ns;
    }
    rail_unlock(rail);
    for (number = 0; number < fabric->num_rails; number++) {
        uint64_t unused_ns = fabric->rails[number].unused_ns;

        if ((unused_ns != 0) && (now_ns - unused_ns > stays_ns)) {
            rail = rail_lock(fabric, number);
            close_replaced(rail);
            rail_unlock(rail);
        }
    }
}

/* Another rail on the NIC, which new teams use from now on; under the fabric's lock. Its number, or negative status. */
static int open_another(mpath_fabric_t *fabric, int nic)
{
    int next = find_free(fabric), before = fabric->newest[nic];
    mpath_status_t status;
    rail_t *rail;

    if (next < 0) {
        return (int)MPATH_ERR_NO_MEMORY;
    }
    rail = rail_lock(fabric, next);
    if (rail->unused_ns != 0) {
        close_replaced(rail);
    }
    rail->nic = nic;
    status    = fabric_rail_open(fabric, rail);
    if (status == MPATH_OK) {
        fabric->newest[nic] = next;
        rail_unlock(rail);
        retire_unused(fabric, before);
        return next;
    }
    fabric_rail_close(rail);
    rail->nic = -1;
    rail_unlock(rail);
    return (int)status;
}

void mpath_fabric_freshen(mpath_fabric_t *fabric, int nic)
{
    pthread_mutex_lock(&fabric->lock);
    if (is_nic(fabric, nic) && fabric->rails[fabric->newest[nic]].suspect) {
        (void)open_another(fabric, nic);
    }
    pthread_mutex_unlock(&fabric->lock);
}

mpath_status_t mpath_fabric_renew(mpath_fabric_t *fabric, int number, int *number_p)
{
    int nic, next;

    pthread_mutex_lock(&fabric->lock);
    nic  = fabric->rails[number].nic;
    next = fabric->newest[nic];
    if (!is_fresh(fabric, next, number)) {
        if (find_free(fabric) < 0) {
            mpath_error(
                "NIC %s: the communicators of this process still hold too many rails of before its failures; the "
                "previous functions serve the one that was to use it again",
                fabric->machine->nics[nic].name);
        }
        next = open_another(fabric, nic);
    }
    pthread_mutex_unlock(&fabric->lock);
    if (next < 0) {
        return (mpath_status_t)next;
    }
    *number_p = next;
    return MPATH_OK;
}

mpath_status_t mpath_fabric_join_rail(mpath_fabric_t *fabric, int number, uint64_t id, mpath_fabric_arrive_t arrive,
                                      void *argument)
{
    rail_team_t team      = {.id = id, .arrive = arrive, .argument = argument};
    rail_t *rail          = rail_lock(fabric, number);
    mpath_status_t status = fabric_rail_join(rail, &team);

    rail_unlock(rail);
    return status;
}

/* Under the fabric's lock. */
static void leave(mpath_fabric_t *fabric, int number, uint64_t id)
{
    rail_t *rail = rail_lock(fabric, number);

    fabric_rail_leave(rail, id);
    rail_unlock(rail);
    retire_unused(fabric, number);
}

void mpath_fabric_leave_rail(mpath_fabric_t *fabric, int number, uint64_t id)
{
    pthread_mutex_lock(&fabric->lock);
    leave(fabric, number, id);
    pthread_mutex_unlock(&fabric->lock);
}

void mpath_fabric_leave(mpath_fabric_t *fabric, uint64_t id)
{
    pthread_mutex_lock(&fabric->lock);
    for (int number = 0; number < fabric->num_rails; number++) {
        if (fabric->rails[number].nic >= 0) {
            leave(fabric, number, id);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
}
