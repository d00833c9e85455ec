/* SPDX-License-Identifier: BSD-3-Clause */
/* The order in which a rank serves its outlets, and each outlet the destinations behind it. */
#include "exec/schedule.h"

#include <stdlib.h>

/*
 * A rank's turn, by rank: the next node's ranks come first, and on every node the one that stands there as this rank
 * does on its own. When all go round like this, no two of them are at the same destination at a time; were they all to
 * begin with rank 0, its rail would have too much to do and the others nothing, and wait for their part at the end.
 */
static uint64_t *make_turns(const mpath_topo_t *topo, int rank)
{
    size_t num_ranks = (size_t)mpath_topo_num_ranks(topo), num_nodes = (size_t)mpath_topo_num_nodes(topo);
    uint64_t *turns = malloc(num_ranks * sizeof(*turns)), *counts = calloc(num_nodes + 1, sizeof(*counts));
    uint64_t my_node = (uint64_t)mpath_topo_place(topo, rank)->node, my_local = 0;

    if ((turns == NULL) || (counts == NULL)) {
        free(turns);
        free(counts);
        return NULL;
    }
    for (size_t i = 0; i < num_ranks; i++) {
        turns[i] = counts[mpath_topo_place(topo, (int)i)->node]++; /* its number on its node */
    }
    my_local = turns[rank];
    for (size_t i = 0; i < num_ranks; i++) {
        uint64_t node = (uint64_t)mpath_topo_place(topo, (int)i)->node, count = counts[node];

        turns[i] = (((node + num_nodes - my_node) % num_nodes) << 32) | ((turns[i] + count - my_local % count) % count);
    }
    free(counts);
    return turns;
}

typedef struct outlet_turn {
    mpath_outlet_t outlet;
    int kind; /* 0: it does not matter */
    uint64_t turn;
    uint32_t was; /* its index */
} outlet_turn_t;

static int compare_outlets(const void *a, const void *b)
{
    const outlet_turn_t *x = a, *y = b;

    if (x->kind != y->kind) {
        return (x->kind < y->kind) ? -1 : 1;
    }
    if (x->turn != y->turn) {
        return (x->turn < y->turn) ? -1 : 1;
    }
    return (x->was < y->was) ? -1 : 1;
}

static mpath_status_t sort_outlets(mpath_schedule_t *schedule, const uint64_t *turns, int by_kind)
{
    outlet_turn_t *sorted = malloc((schedule->num_outlets + 1) * sizeof(*sorted));
    uint32_t *now         = malloc((schedule->num_outlets + 1) * sizeof(*now));

    if ((sorted == NULL) || (now == NULL)) {
        free(sorted);
        free(now);
        return MPATH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < schedule->num_outlets; i++) {
        const mpath_outlet_t *outlet = &schedule->outlets[i];

        sorted[i] = (outlet_turn_t){.outlet = *outlet,
                                    .kind   = by_kind ? (int)outlet->kind : 0,
                                    .turn   = turns[outlet->rank],
                                    .was    = (uint32_t)i};
    }
    qsort(sorted, schedule->num_outlets, sizeof(*sorted), compare_outlets);
    for (size_t i = 0; i < schedule->num_outlets; i++) {
        schedule->outlets[i] = sorted[i].outlet;
        now[sorted[i].was]   = (uint32_t)i;
    }
    for (size_t i = 0; i < schedule->num_duties; i++) {
        if (schedule->duties[i].hop_out != MPATH_DUTY_NO_HOP) {
            schedule->duties[i].outlet = now[schedule->duties[i].outlet];
        }
    }
    free(sorted);
    free(now);
    return MPATH_OK;
}

typedef struct duty_turn {
    uint64_t turn;
    uint32_t outlet, duty;
} duty_turn_t;

static int compare_duties(const void *a, const void *b)
{
    const duty_turn_t *x = a, *y = b;

    if (x->outlet != y->outlet) {
        return (x->outlet < y->outlet) ? -1 : 1;
    }
    if (x->turn != y->turn) {
        return (x->turn < y->turn) ? -1 : 1;
    }
    return (x->duty < y->duty) ? -1 : 1;
}

/* Groups this rank's own duties by outlet. */
static mpath_status_t sort_own(mpath_schedule_t *schedule, const uint64_t *turns)
{
    duty_turn_t *sorted = malloc((schedule->num_duties + 1) * sizeof(*sorted));
    uint32_t count      = 0;

    schedule->own = malloc((schedule->num_duties + 1) * sizeof(*schedule->own));
    if ((sorted == NULL) || (schedule->own == NULL)) {
        free(sorted);
        return MPATH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < schedule->num_duties; i++) {
        const mpath_duty_t *duty = &schedule->duties[i];

        if (duty->hop_in == MPATH_DUTY_NO_HOP) {
            sorted[count++] = (duty_turn_t){
                .turn = turns[duty->destination], .outlet = duty->outlet, .duty = (uint32_t)i};
        }
    }
    qsort(sorted, count, sizeof(*sorted), compare_duties);
    for (uint32_t i = count; i-- > 0;) {
        mpath_outlet_t *outlet = &schedule->outlets[sorted[i].outlet];

        schedule->own[i] = sorted[i].duty;
        outlet->own      = i;
        outlet->num_own++;
    }
    free(sorted);
    return MPATH_OK;
}

mpath_status_t mpath_schedule_sort(mpath_schedule_t *schedule, const mpath_topo_t *topo, int rank, int by_kind)
{
    uint64_t *turns       = make_turns(topo, rank);
    mpath_status_t status = (turns == NULL) ? MPATH_ERR_NO_MEMORY : sort_outlets(schedule, turns, by_kind);

    if (status == MPATH_OK) {
        status = sort_own(schedule, turns);
    }
    free(turns);
    return status;
}
