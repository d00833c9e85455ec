/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay segment: made by the first rank of each host, attached by its mates, agreed upon over the team; slots and rings.
 */
#include "mover/relay_segment.h"

#include "team/team.h"

#include <stdlib.h>
#include <string.h>

#define LINE 64u

_Static_assert(sizeof(mpath_relay_gate_t) == LINE, "a gate is a line");

_Static_assert(sizeof(mpath_relay_ring_t) % LINE == 0, "rings are lines");

/* What the maker of a segment tells. */
typedef struct offer {
    int64_t status;
    char name[MPATH_SEGMENT_NAME_MAX];
} offer_t;

static size_t align_line(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

mpath_status_t mpath_relay_all(mpath_team_t *team, mpath_status_t mine)
{
    uint64_t most[MPATH_TEAM_NUMBERS] = {mpath_team_most_fails(team, mine)};
    mpath_status_t status             = mpath_team_most(team, most);
    int rank;

    return (status == MPATH_OK) ? mpath_team_most_failed(most[0], &rank) : status;
}

/* *offer: this member's own, and then that of the first one. Members are the ranks of a node, or all. */
static mpath_status_t hear_first(const mpath_relay_segment_t *shared, offer_t *offer)
{
    uint64_t nothing[MPATH_TEAM_NUMBERS] = {0};
    offer_t all[MPATH_RELAY_MAX_MEMBERS];
    mpath_status_t status;

    if (shared->num_members == mpath_team_num_local(shared->team)) {
        status = mpath_team_most_and_mates(shared->team, nothing, offer, sizeof(*offer), all);
    } else {
        status = mpath_team_allgather(shared->team, offer, sizeof(*offer), all);
    }
    *offer = (status == MPATH_OK) ? all[0] : *offer;
    return status;
}

mpath_status_t mpath_relay_segment_share(const mpath_relay_segment_t *shared, size_t bytes, mpath_segment_t *segment)
{
    offer_t offer        = {.status = MPATH_OK};
    mpath_segment_t made = {0};
    int leader           = shared->members[0];
    mpath_status_t status;

    if (shared->me == leader) {
        offer.status = mpath_segment_create(bytes, &made);
        memcpy(offer.name, made.name, sizeof(offer.name));
    }
    status = hear_first(shared, &offer);
    if (status == MPATH_OK) {
        status = (mpath_status_t)offer.status;
        if ((status == MPATH_OK) && (shared->me != leader)) {
            status = mpath_segment_attach(offer.name, bytes, &made);
        }
        status = mpath_relay_all(shared->team, status);
    }
    if (shared->me == leader) {
        mpath_segment_unlink(&made);
    }
    if (status != MPATH_OK) {
        mpath_segment_detach(&made);
        return status;
    }
    *segment = made;
    return MPATH_OK;
}

mpath_status_t mpath_relay_segment_open(mpath_team_t *team, const int *members, int num_members,
                                        mpath_relay_segment_t *shared)
{
    size_t size = (size_t)mpath_team_size(team), num = (size_t)num_members;
    size_t pools   = 0;
    size_t cells   = align_line(pools + num * sizeof(mpath_export_t));
    size_t half    = align_line(num * sizeof(mpath_relay_cell_t));
    size_t offsets = cells + 2 * half, rows = align_line(num * size * sizeof(uint64_t));
    size_t gates = offsets + 2 * rows, rings = gates + num * sizeof(mpath_relay_gate_t);
    mpath_relay_segment_t made = {
        .team = team, .size = (int)size, .me = mpath_team_rank(team), .num_members = num_members, .my_member = -1};
    mpath_status_t status;
    char *base;

    made.member_of = malloc(size);
    if (made.member_of == NULL) {
        mpath_team_break(team, MPATH_ERR_NO_MEMORY); /* the others would wait */
        return MPATH_ERR_NO_MEMORY;
    }
    memset(made.member_of, -1, size);
    for (int i = 0; i < num_members; i++) {
        made.members[i]            = members[i];
        made.member_of[members[i]] = (int8_t)i;
        made.my_member             = (members[i] == made.me) ? i : made.my_member;
    }
    status = mpath_relay_segment_share(&made, rings + num * num * sizeof(mpath_relay_ring_t), &made.segment);
    if (status != MPATH_OK) {
        free(made.member_of);
        return status;
    }
    base       = made.segment.base;
    made.pools = (mpath_export_t *)(void *)(base + pools);
    made.gates = (mpath_relay_gate_t *)(void *)(base + gates);
    made.rings = (mpath_relay_ring_t *)(void *)(base + rings);
    for (int i = 0; i < 2; i++) {
        made.cells[i]   = (mpath_relay_cell_t *)(void *)(base + cells + (size_t)i * half);
        made.offsets[i] = (uint64_t *)(void *)(base + offsets + (size_t)i * rows);
    }
    for (int i = 0; i < MPATH_RELAY_CLASSES; i++) {
        atomic_store(&made.gates[made.my_member].free[i], (1ull << MPATH_RELAY_MAX_SLOTS) - 1);
    }
    *shared = made;
    return MPATH_OK;
}

void mpath_relay_segment_close(mpath_relay_segment_t *shared)
{
    mpath_segment_detach(&shared->segment);
    free(shared->member_of);
    memset(shared, 0, sizeof(*shared));
}

int mpath_relay_slot_take(mpath_relay_gate_t *gate, mpath_relay_class_t slot_class, int slots)
{
    uint64_t usable = (slots >= 64) ? UINT64_MAX : (1ull << slots) - 1;
    uint64_t free   = atomic_load_explicit(&gate->free[slot_class], memory_order_acquire);

    while ((free & usable) != 0) {
        uint64_t lowest = free & usable & (~(free & usable) + 1);

        if (atomic_compare_exchange_weak_explicit(&gate->free[slot_class], &free, free & ~lowest, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            return __builtin_ctzll(lowest);
        }
    }
    return -1;
}

void mpath_relay_slot_give(mpath_relay_gate_t *gate, mpath_relay_class_t slot_class, int slot)
{
    atomic_fetch_or_explicit(&gate->free[slot_class], 1ull << slot, memory_order_acq_rel);
}

void mpath_relay_ring_put(mpath_relay_ring_t *ring, uint64_t entry)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

    atomic_store_explicit(&ring->entries[head % MPATH_RELAY_RING], entry, memory_order_relaxed);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

int mpath_relay_ring_get(mpath_relay_ring_t *ring, uint64_t *entry_p)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);

    if (ring->tail == head) {
        return 0;
    }
    *entry_p = atomic_load_explicit(&ring->entries[ring->tail % MPATH_RELAY_RING], memory_order_relaxed);
    ring->tail++;
    return 1;
}
