/* SPDX-License-Identifier: BSD-3-Clause */
/* Relay: a call from what this rank tells of its buffers to the last byte. */
#include "exec/relay_private.h"

#include "exec/move.h"
#include "exec/relay_pool.h"
#include "exec/relay_rail.h"
#include "exec/team_private.h"
#include "gpu/slow.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t stream_mutex = PTHREAD_MUTEX_INITIALIZER;

#define GIVE_UP_S 5 /* for copies under way when a call has failed */

void mpath_relay_lock(void)
{
    pthread_mutex_lock(&stream_mutex);
}

void mpath_relay_unlock(void)
{
    pthread_mutex_unlock(&stream_mutex);
}

/* -- life -- */

/* GPUs that a plan can help: several nodes, direct links, or rates that only chunks can hold. The same on all ranks. */
static int is_usable(const mpath_team_t *team, const mpath_topo_t *topo)
{
    int helps;

    if ((topo == NULL) || !mpath_team_settings(team)->gpu || (mpath_team_size(team) > MPATH_RELAY_MAX_RANKS)) {
        return 0;
    }
    helps = (mpath_topo_num_nodes(topo) > 1) || (mpath_topo_params(topo)->emulated != MPATH_EMULATED_NO);
    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        const mpath_place_t *place    = mpath_topo_place(topo, rank);
        const mpath_node_gpus_t *gpus = mpath_topo_gpus(topo, place->node);

        if ((gpus == NULL) || (place->gpu < 0) || (place->gpu >= gpus->num_gpus)) {
            return 0;
        }
        helps = helps || (gpus->link == MPATH_GPU_LINK_MESH);
    }
    return helps;
}

/* A topology file without GPUs wants none. The same on all ranks. */
static int may_discover(const mpath_team_t *team)
{
    const mpath_settings_t *settings = mpath_team_settings(team);

    return (team->gpu_topo == NULL) && settings->gpu && (team->size <= MPATH_RELAY_MAX_RANKS) &&
           ((settings->topo_file == NULL) || (settings->topo_file[0] == '\0'));
}

mpath_status_t mpath_relay_create(mpath_team_t *team, mpath_relay_t **relay_p)
{
    mpath_relay_t *relay = calloc(1, sizeof(*relay));

    if ((relay == NULL) || (mpath_rail_clock_init(&relay->clock, team) != MPATH_OK)) {
        mpath_error("no memory for relays of device memory");
        free(relay);
        return MPATH_ERR_NO_MEMORY;
    }
    relay->team      = team;
    relay->settings  = mpath_team_settings(team);
    relay->size      = mpath_team_size(team);
    relay->me        = mpath_team_rank(team);
    relay->usable    = is_usable(team, mpath_team_gpu_topo(team));
    relay->discovers = may_discover(team);
    relay->by_copies = relay->usable &&
                       (mpath_topo_params(mpath_team_gpu_topo(team))->emulated == MPATH_EMULATED_COPIES);
    relay->under_way_last_p = &relay->under_way;
    *relay_p                = relay;
    return MPATH_OK;
}

void mpath_relay_destroy(mpath_relay_t *relay)
{
    if (relay == NULL) {
        return;
    }
    if (relay->opened) {
        mpath_relay_cleanup(relay);
    }
    while (relay->spare_ops != NULL) {
        relay_op_t *next = relay->spare_ops->next;

        free(relay->spare_ops);
        relay->spare_ops = next;
    }
    while (relay->spare_items != NULL) {
        relay_item_t *next = relay->spare_items->next;

        free(relay->spare_items);
        relay->spare_items = next;
    }
    mpath_rail_clock_release(&relay->clock);
    free(relay);
}

int mpath_relay_usable(const mpath_relay_t *relay)
{
    return relay->usable || relay->discovers;
}

void mpath_relay_get_stats(const mpath_relay_t *relay, mpath_relay_stats_t *stats)
{
    *stats            = relay->stats;
    stats->slot_bytes = relay->my_pool_bytes;
}

/* -- before the agreement -- */

static uint64_t span_bytes(const uint64_t *bytes, const uint64_t *offsets, int size)
{
    uint64_t end = 0;

    for (int rank = 0; rank < size; rank++) {
        end = ((bytes[rank] > 0) && (offsets[rank] + bytes[rank] > end)) ? offsets[rank] + bytes[rank] : end;
    }
    return end;
}

/* Slots, streams and rails of this rank were made in a context that the application has ended since. */
static int has_lost_gpu(const mpath_relay_t *relay)
{
    return (relay->gpu != NULL) && mpath_gpu_is_lost(relay->gpu);
}

/*
 * The GPU that a set-up would take: that of the buffers, else that of the thread, on which the buffers to come may be.
 * What is known stays: the driver is not asked again.
 */
static void look_for_gpu(mpath_relay_t *relay, const mpath_call_t *call)
{
    const mpath_memory_t *memory = mpath_relay_memory(call);
    mpath_gpu_t *gpu;

    if ((relay->next_gpu != NULL) && mpath_gpu_is_lost(relay->next_gpu)) {
        relay->next_gpu = NULL;
    }
    if (memory != NULL) {
        if ((!relay->opened || relay->is_guess || (relay->next_gpu == NULL)) &&
            (mpath_gpu_get(memory->device, memory->context, &gpu) == MPATH_OK)) {
            relay->next_gpu = gpu;
            relay->is_guess = 0;
        }
    } else if ((relay->next_gpu == NULL) && !has_lost_gpu(relay) && (mpath_gpu_current(&gpu) == MPATH_OK)) {
        relay->next_gpu = gpu;
        relay->is_guess = 1;
    }
}

/* Memory that copy engines of this rank's GPU reach, of the one that slots and rails were or will be made with. */
static int is_reachable(const mpath_relay_t *relay, const mpath_memory_t *memory)
{
    mpath_gpu_t *gpu;

    return (memory != NULL) && !mpath_memory_on_host(memory->kind) && (memory->kind != MPATH_MEMORY_MANAGED) &&
           (mpath_gpu_get(memory->device, memory->context, &gpu) == MPATH_OK) &&
           (!relay->opened || (relay->gpu == gpu) || (relay->next_gpu == gpu));
}

/*
 * Sides without bytes may be any memory. But a rank whose context has ended waits for the next buffers to tell of one,
 * and all wait for the GPUs of all where nobody else tells of them.
 */
static int is_apart(const mpath_relay_t *relay, const mpath_call_t *call, uint64_t send_bytes, uint64_t recv_bytes)
{
    if ((has_lost_gpu(relay) && (mpath_relay_memory(call) == NULL)) ||
        (relay->discovers && (relay->next_gpu == NULL))) {
        return 1;
    }
    if (((send_bytes > 0) && !is_reachable(relay, call->send_memory)) ||
        ((recv_bytes > 0) && !is_reachable(relay, call->recv_memory))) {
        return 1;
    }
    return (send_bytes > 0) && (recv_bytes > 0) && (call->send_memory->device != call->recv_memory->device);
}

/* What keeps the call of all ranks from the GPUs is the kind of this rank's memory, which its user can change. */
static void tell_if_slow(const mpath_relay_t *relay, const mpath_call_t *call, uint64_t send_bytes, uint64_t recv_bytes)
{
    const mpath_memory_t *send = call->send_memory, *recv = call->recv_memory;

    if ((recv_bytes > 0) && (recv != NULL) && !mpath_memory_on_host(recv->kind)) {
        mpath_memory_is_slow(relay->me, "receive", recv);
    }
    if ((send_bytes > 0) && (send != NULL) && (send->kind == MPATH_MEMORY_MANAGED)) {
        mpath_memory_is_slow(relay->me, "send", send);
    }
}

static int is_same_memory(const mpath_export_t *a, const mpath_export_t *b)
{
    return (a->how == b->how) && ((a->how == MPATH_EXPORT_NONE) ||
                                  ((a->base == b->base) && (a->bytes == b->bytes) && (a->buffer_id == b->buffer_id)));
}

/* Nothing to receive is nothing to open. */
int mpath_relay_knows(const mpath_relay_t *relay, const mpath_export_t *memory)
{
    unsigned num = (relay->num_known < RELAY_KNOWN) ? relay->num_known : RELAY_KNOWN;
    int found    = (memory->how == MPATH_EXPORT_NONE) && !relay->partial;

    for (unsigned i = 0; (i < num) && !found; i++) {
        found = !relay->partial && is_same_memory(memory, &relay->known[i]);
    }
    return found;
}

static void write_cell(mpath_relay_t *relay, const mpath_call_t *call)
{
    mpath_relay_cell_t *cell = &relay->room.cells[relay->half][relay->room.my_member];

    if (cell->generation != relay->told.generation) {
        *cell = relay->told;
    } else {
        cell->address = relay->told.address;
    }
    memcpy(mpath_relay_offsets(&relay->room, relay->half, relay->me), call->recv_offsets,
           (size_t)relay->size * sizeof(uint64_t));
}

void mpath_relay_tell(mpath_relay_t *relay, mpath_call_t *call)
{
    mpath_export_t memory = {.how = MPATH_EXPORT_NONE};
    uint64_t send_bytes, recv_bytes;

    if (relay->opened) {
        relay->number++;
        relay->half = (int)(relay->number & 1);
    }
    if (!mpath_relay_usable(relay) || (call->flags & MPATH_CALL_INELIGIBLE)) {
        return;
    }
    if (mpath_relay_pool_is_short(relay)) {
        call->flags |= MPATH_CALL_SHORT;
    }
    send_bytes = span_bytes(call->send_bytes, call->send_offsets, relay->size);
    recv_bytes = span_bytes(call->recv_bytes, call->recv_offsets, relay->size);
    if ((send_bytes + recv_bytes == 0) || (mpath_relay_memory(call) != NULL)) {
        look_for_gpu(relay, call);
    }
    if (is_apart(relay, call, send_bytes, recv_bytes)) {
        tell_if_slow(relay, call, send_bytes, recv_bytes);
        call->flags |= MPATH_CALL_APART;
        return;
    }
    call->flags |= (relay->opened && (relay->next_gpu != relay->gpu)) ? MPATH_CALL_LOST : 0;
    if ((recv_bytes > 0) &&
        (mpath_export_make(call->recv_buffer, recv_bytes, call->recv_memory, &memory) != MPATH_OK)) {
        tell_if_slow(relay, call, send_bytes, recv_bytes);
        call->flags |= MPATH_CALL_APART;
        return;
    }
    if (!is_same_memory(&memory, &relay->told.memory) || (relay->told.generation == 0)) {
        relay->told.generation++;
        call->flags |= mpath_relay_knows(relay, &memory) ? 0 : MPATH_CALL_MOVED;
    }
    relay->told.memory  = memory;
    relay->told.address = (uint64_t)(uintptr_t)call->recv_buffer;
    if (relay->opened) {
        write_cell(relay, call);
    }
}

/* -- after it -- */

/* Once: this is why. */
static void say_waits(mpath_relay_t *relay)
{
    if (relay->discovers && (relay->next_gpu == NULL) && !relay->has_said) {
        relay->has_said = 1;
        mpath_info(
            "rank %d has no GPU so far: no relays of device memory in this communicator until every rank has one",
            relay->me);
    }
}

void mpath_relay_hear(mpath_relay_t *relay, uint32_t flags)
{
    relay->moved    = relay->moved || (flags & MPATH_CALL_MOVED);
    relay->is_short = relay->is_short || (flags & MPATH_CALL_SHORT);
    relay->is_lost  = relay->is_lost || (flags & MPATH_CALL_LOST);
}

mpath_status_t mpath_relay_prepare(mpath_relay_t *relay, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                   const mpath_topo_t **topo_p)
{
    mpath_status_t status = MPATH_OK;

    if (!mpath_relay_usable(relay) || (agreed->flags & MPATH_CALL_APART)) {
        say_waits(relay);
        return MPATH_DECLINED;
    }
    if (relay->discovers) {
        relay->discovers = 0;
        status           = mpath_relay_discover(relay);
        relay->usable    = (status == MPATH_OK) && is_usable(relay->team, mpath_team_gpu_topo(relay->team));
        status           = ((status == MPATH_OK) && !relay->usable) ? MPATH_DECLINED : status;
    }
    if ((status == MPATH_OK) && !relay->opened) {
        status = mpath_relay_setup(relay);
        if (status == MPATH_OK) {
            write_cell(relay, call);
            status = mpath_relay_all(relay->team, MPATH_OK); /* all cells are there */
        }
    }
    if ((status == MPATH_OK) && relay->is_lost) {
        relay->is_lost = 0;
        status         = mpath_relay_renew(relay);
    }
    if ((status == MPATH_OK) && (relay->rails.wire != NULL)) {
        status = mpath_move_recover(relay->team);
    }
    if ((status == MPATH_OK) && (relay->topo_version != mpath_team_topo_version(relay->team))) {
        status = mpath_relay_follow_topo(relay);
    }
    if ((status == MPATH_OK) && relay->is_short) {
        relay->is_short = 0;
        status          = mpath_relay_pool_give_back(relay);
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(relay->team, status);
    }
    relay->call = call;
    *topo_p     = relay->topo;
    return ((status == MPATH_OK) && relay->has_no_way) ? MPATH_DECLINED : status;
}

/* What a rank sends to itself, on the GPU. */
static mpath_status_t start_self(mpath_relay_t *relay)
{
    const mpath_call_t *call = relay->call;
    uint64_t bytes           = call->send_bytes[relay->me];
    mpath_status_t status;

    if (bytes == 0) {
        return MPATH_OK;
    }
    status = mpath_stream_get(relay->gpu, MPATH_GPU_STREAMS_DIRECT, &relay->self_stream);
    if (status == MPATH_OK) {
        mpath_relay_lock();
        status = mpath_stream_copy(relay->self_stream,
                                   (mpath_cu_ptr_t)(uintptr_t)call->recv_buffer + call->recv_offsets[relay->me],
                                   (mpath_cu_ptr_t)(uintptr_t)call->send_buffer + call->send_offsets[relay->me], bytes);
        if (status == MPATH_OK) {
            status = mpath_stream_mark(relay->self_stream, &relay->self_mark);
        }
        mpath_relay_unlock();
    }
    return status;
}

static void begin(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    const mpath_schedule_t *schedule = relay->bound.schedule;

    for (size_t i = 0; i < schedule->num_outlets; i++) {
        relay_outlet_t *outlet      = &relay->bound.outlets[i];
        const mpath_outlet_t *given = &schedule->outlets[i];

        *outlet = (relay_outlet_t){.last_p = &outlet->first};
        for (uint32_t k = 0; k < given->num_own; k++) {
            outlet->own_left += schedule->duties[schedule->own[given->own + k]].num_chunks;
        }
    }
    relay->send_left    = schedule->send_bytes;
    relay->forward_left = schedule->forward_bytes;
    relay->fetch_left   = relay->bound.fetch_bytes;
    relay->first_outlet = 0;
    relay->self_stream  = NULL;
    relay->settles      = relay->bound.has_rails && mpath_move_settles(relay->team, plan);
    relay->lost         = 0;
    for (int member = 0; member < relay->room.num_members; member++) {
        relay->expected[member] += relay->bound.expect[relay->room.members[member]];
    }
    mpath_relay_rails_begin(relay);
    mpath_idle_start(&relay->idle);
}

static void end(mpath_relay_t *relay)
{
    mpath_relay_announce_end(relay);
    mpath_relay_rails_end(relay);
    mpath_relay_close_buffers(relay);
    relay->call = NULL;
}

/* One round of everything. Number of events, or an error. */
static int progress(mpath_relay_t *relay)
{
    int (*const steps[])(mpath_relay_t *) = {mpath_relay_finish_ops, mpath_relay_take_arrivals,
                                             mpath_relay_rails_progress, mpath_relay_feed};
    int events                            = 0;

    mpath_relay_announce(relay);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        int result = steps[i](relay);

        if (result < 0) {
            return result;
        }
        events += result;
    }
    return events;
}

static mpath_status_t run(mpath_relay_t *relay)
{
    int begun             = progress(relay); /* what others wait for comes first */
    mpath_status_t status = (begun < 0) ? (mpath_status_t)begun : start_self(relay);
    uint64_t checked_ns   = 0;

    while ((status == MPATH_OK) && !mpath_relay_is_finished(relay)) {
        int events = progress(relay);

        if (events < 0) {
            status = (mpath_status_t)events;
        } else if (events > 0) {
            mpath_idle_event(&relay->idle);
            mpath_idle_give_way();
            checked_ns = 0;
        } else {
            status = mpath_relay_wait(relay, &checked_ns);
        }
    }
    return status;
}

mpath_status_t mpath_relay_move(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    mpath_status_t status = mpath_relay_take_plan(relay, plan);

    if (status == MPATH_OK) {
        begin(relay, plan);
        status = mpath_relay_settle(relay, run(relay));
        if (mpath_status_is_error(status)) {
            mpath_team_break(relay->team, status);
            mpath_relay_abandon(relay, GIVE_UP_S);
        }
        relay->stats.calls += (status == MPATH_OK) ? 1 : 0;
        end(relay);
    } else if (mpath_status_is_error(status)) {
        mpath_team_break(relay->team, status);
    }
    return status;
}

void mpath_relay_times(mpath_relay_t *relay, const mpath_topo_t *topo, const mpath_plan_t *plan,
                       mpath_rail_times_t *times)
{
    mpath_rail_times_read(&relay->clock, relay->team, topo, relay->bound.schedule, plan, times);
}
