/* SPDX-License-Identifier: BSD-3-Clause */
/* The agreement's memory: how much of it small pairs may take, where everything lies, and its life. */
#include "exec/agree_private.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define AGREE_MIN_CAPACITY 64u /* set-up data travels in the same cells, also when small_bytes is 0 */
#define AGREE_MAX_CAPACITY (1u << 20)

static uint64_t align_line(uint64_t bytes)
{
    return (bytes + 63) & ~63ull;
}

/*
 * Memory of the rank that has most: `fixed` for cells and rows, `per_byte` for each byte of a small pair. A leader
 * also keeps a message from and to every other node.
 */
static void agree_cost(const mpath_team_t *team, uint64_t *fixed_p, uint64_t *per_byte_p)
{
    uint64_t size = (uint64_t)team->size, fixed = 0, per_byte = 0;

    for (int node = 0; node < team->num_nodes; node++) {
        uint64_t num_local  = (uint64_t)team->num_on[node];
        uint64_t cells      = 2 * size * (sizeof(mpath_agree_cell_t) + size * sizeof(uint64_t)) / num_local;
        uint64_t rows       = team->num_nodes > 1 ? 2 * size * size * sizeof(uint64_t) : 0;
        uint64_t data       = 2 * (size + (size - num_local));
        uint64_t messages   = 2 * num_local * (size - num_local);
        uint64_t own        = 2 * (size + num_local * (uint64_t)team->num_nodes);
        uint64_t node_fixed = cells + rows, node_per_byte = data + messages + own;

        fixed    = node_fixed > fixed ? node_fixed : fixed;
        per_byte = node_per_byte > per_byte ? node_per_byte : per_byte;
    }
    *fixed_p    = fixed;
    *per_byte_p = per_byte;
}

/*
 * What a message goes through is one rail, that of the leaders or that of its sender: only as much as costs no time
 * there. Where each rank has a NIC beside it, the MPI library's messages use it; where they have not, all may be on the
 * same one, and what is too much for the leaders is left to the rails.
 */
static void agree_remote_limits(const mpath_team_t *team, mpath_agree_limits_t *limits)
{
    uint64_t most = 1, message_bytes = team->context->settings.leader_bytes, remote, leader;

    for (int node = 0; node < team->num_nodes; node++) {
        most = (uint64_t)team->num_on[node] > most ? (uint64_t)team->num_on[node] : most;
    }
    leader = message_bytes / (most * most) & ~7ull;
    remote = team->context->topo_params.access == MPATH_REACH_AFFINE ? message_bytes / most & ~7ull : leader;
    limits->remote_bytes = remote < limits->local_bytes ? remote : limits->local_bytes;
    limits->leader_bytes = leader < limits->remote_bytes ? leader : limits->remote_bytes;
}

mpath_status_t mpath_agree_layout(const mpath_team_t *team, mpath_agree_layout_t *layout)
{
    const mpath_settings_t *settings = &team->context->settings;
    uint64_t size = (uint64_t)team->size, num_local = (uint64_t)team->num_local;
    uint64_t fixed, per_byte, room, capacity, offset = 0;

    agree_cost(team, &fixed, &per_byte);
    if (fixed + AGREE_MIN_CAPACITY * per_byte > settings->memory_bytes / 2) {
        mpath_log(team->rank == 0 ? MPATH_LOG_WARN : MPATH_LOG_INFO,
                  "%s: to agree about sizes %d ranks need %llu bytes each, more than half of memory_bytes (%llu); the "
                  "previous functions serve the communicator",
                  team->oob.name, team->size, (unsigned long long)(fixed + AGREE_MIN_CAPACITY * per_byte),
                  (unsigned long long)settings->memory_bytes);
        return MPATH_DECLINED;
    }
    room = settings->memory_bytes / 2 - fixed;
    room = (room < settings->memory_bytes / 4 ? room : settings->memory_bytes / 4) / per_byte & ~7ull;
    room = room < AGREE_MAX_CAPACITY ? room : AGREE_MAX_CAPACITY;
    layout->limits.local_bytes = settings->small_bytes < room ? settings->small_bytes : room;
    agree_remote_limits(team, &layout->limits);
    capacity         = mpath_agree_stride(layout->limits.local_bytes);
    layout->capacity = capacity > AGREE_MIN_CAPACITY ? capacity : AGREE_MIN_CAPACITY;
    for (int half = 0; half < 2; half++) {
        layout->cells_offset[half] = (size_t)offset;
        offset += size * sizeof(mpath_agree_cell_t);
        layout->demand_offset[half] = (size_t)offset;
        offset += align_line(size * size * sizeof(uint64_t));
        layout->data_offset[half] = (size_t)offset;
        offset += align_line((num_local * size + (size - num_local) * num_local) * layout->capacity);
    }
    layout->bytes = (size_t)offset;
    return MPATH_OK;
}

/* Lists the ranks by node and gives each its row of the data. */
static void agree_index(const mpath_team_t *team, mpath_agree_state_t *state)
{
    int next = 0, other = team->num_local;

    for (int node = 0; node < team->num_nodes; node++) {
        state->first_on[node] = next;
        next += team->num_on[node];
    }
    for (int rank = 0; rank < team->size; rank++) {
        state->by_node[state->first_on[team->node_of[rank]] + team->local_of[rank]] = rank;
    }
    for (int i = 0; i < team->size; i++) {
        int rank = state->by_node[i];

        state->index_of[rank] = mpath_agree_is_local(team, rank) ? team->local_of[rank] : other++;
    }
}

mpath_status_t mpath_agree_create(mpath_team_t *team, const mpath_agree_layout_t *layout, void *region)
{
    const mpath_channel_rooms_t rooms = {.rows = mpath_agree_message_room, .own = mpath_agree_own_room};
    size_t size                       = (size_t)team->size;
    mpath_agree_state_t *state        = calloc(1, sizeof(*state));
    mpath_status_t status;

    if (state == NULL) {
        goto err_no_memory;
    }
    team->agree     = state;
    state->layout   = *layout;
    state->by_node  = calloc(size, sizeof(int));
    state->index_of = calloc(size, sizeof(int));
    state->first_on = calloc((size_t)team->num_nodes, sizeof(int));
    state->scratch  = calloc(3 * size, sizeof(uint64_t));

    state->attend.seen     = calloc(size, sizeof(unsigned));
    state->attend.told     = calloc(size, sizeof(unsigned));
    state->attend.heard_ns = calloc((size_t)team->num_nodes, sizeof(uint64_t));
    if (state->by_node == NULL || state->index_of == NULL || state->first_on == NULL || state->scratch == NULL ||
        state->attend.seen == NULL || state->attend.told == NULL || state->attend.heard_ns == NULL) {
        goto err_destroy;
    }
    for (int half = 0; half < 2; half++) {
        state->cells[half]  = (mpath_agree_cell_t *)(void *)((char *)region + layout->cells_offset[half]);
        state->demand[half] = (uint64_t *)(void *)((char *)region + layout->demand_offset[half]);
        state->data[half]   = (char *)region + layout->data_offset[half];
    }
    agree_index(team, state);
    status = mpath_channels_create(team, &rooms);
    if (status != MPATH_OK) {
        mpath_agree_destroy(team);
        return status;
    }
    return MPATH_OK;

err_destroy:
    mpath_agree_destroy(team);
err_no_memory:
    mpath_error("%s: no memory for the agreement of %d ranks; mpath does not serve the communicator", team->oob.name,
                team->size);
    return MPATH_ERR_NO_MEMORY;
}

void mpath_agree_destroy(mpath_team_t *team)
{
    mpath_agree_state_t *state = team->agree;

    mpath_channels_destroy(team);
    if (state != NULL) {
        free(state->by_node);
        free(state->index_of);
        free(state->first_on);
        free(state->scratch);
        free(state->attend.seen);
        free(state->attend.told);
        free(state->attend.heard_ns);
        free(state);
        team->agree = NULL;
    }
}
