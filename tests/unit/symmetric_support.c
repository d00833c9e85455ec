/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank of a job, and sums whose order of combination shows in every bit. */
#include "symmetric_support.h"

#include <stdlib.h>
#include <string.h>

void member_init(member_t *member, ranks_self_t *self, const job_t *job)
{
    memset(member, 0, sizeof(*member));
    mpath_settings_init(&member->settings);
    member->settings.access                   = job->access;
    member->settings.gate                     = job->gate_auto ? MPATH_GATE_AUTO : MPATH_GATE_ALWAYS;
    member->settings.deterministic            = job->deterministic;
    member->settings.memory_bytes             = job->memory_bytes ? job->memory_bytes : 8 << 20;
    member->settings.timeout_s                = 100;
    member->settings.allreduce_algorithm      = job->algorithm;
    member->settings.reduce_scatter_algorithm = job->algorithm;
    member->settings.allgather_algorithm      = job->algorithm;
    member->settings.adapt_file               = job->adapt_file ? job->adapt_file : "";
    member->settings.steps_nodes              = job->steps_nodes;
    if (job->repeatable) {
        member->settings.resend_min_ms = 0;
    }
    if (job->tune != NULL) {
        member->settings.tune = job->tune;
    }
    member_open(member, self);
}

void member_open(member_t *member, ranks_self_t *self)
{
    member->context = ranks_context(self, &member->settings);
    member_begin(member, self);
}

void member_begin(member_t *member, ranks_self_t *self)
{
    const mpath_topo_t *topo;
    int next = 0;

    member->team = ranks_team(self, member->context);
    ranks_check(mpath_coll_create(member->team, &member->coll) == MPATH_OK);
    ranks_check(mpath_symmetric_create(member->team, member->coll, &member->symmetric) == MPATH_OK);
    topo = mpath_team_topo(member->team);
    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        for (int rank = 0; rank < self->size; rank++) {
            if (mpath_topo_place(topo, rank)->node == node) {
                member->order[next++] = rank;
                member->node_of[rank] = node;
            }
        }
    }
}

void member_end(member_t *member)
{
    mpath_symmetric_destroy(member->symmetric);
    mpath_coll_destroy(member->coll);
    mpath_team_destroy(member->team);
    mpath_context_destroy(member->context);
}

void *zeroed(size_t bytes)
{
    void *memory = calloc(1, bytes + 64);

    ranks_check(memory != NULL);
    return memory;
}

void add_doubles(void *argument, const void *in, void *inout, uint64_t elements)
{
    (void)argument;
    ranks_check(((uintptr_t)in % sizeof(double) == 0) && ((uintptr_t)inout % sizeof(double) == 0));
    for (uint64_t i = 0; i < elements; i++) {
        ((double *)inout)[i] = ((const double *)in)[i] + ((double *)inout)[i];
    }
}

const mpath_combination_t doubles = {.element_bytes = sizeof(double), .reduce = add_doubles};

double value_of(int rank, uint64_t position, uint64_t round)
{
    uint64_t x = ((uint64_t)rank + 1) * 0x9e3779b97f4a7c15ull + position * 0xbf58476d1ce4e5b9ull + round * 77;

    x ^= x >> 29;
    x *= 0x94d049bb133111ebull;
    return ((double)(x >> 11) - 4e15) * (double)(1u << (x % 30)) / 3.0;
}

double sum_of(const member_t *member, int size, uint64_t position, uint64_t round)
{
    double whole = 0, part = 0;
    int first_node = 1;

    for (int i = 0; i < size; i++) {
        int rank = member->order[i];

        part = (i > 0 && member->node_of[rank] == member->node_of[member->order[i - 1]])
                   ? value_of(rank, position, round) + part
                   : value_of(rank, position, round);
        if (i == size - 1 || member->node_of[member->order[i + 1]] != member->node_of[rank]) {
            whole      = first_node ? part : part + whole;
            first_node = 0;
        }
    }
    return whole;
}

static int num_nodes_of(const member_t *member)
{
    return mpath_topo_num_nodes(mpath_team_topo(member->team));
}

int has_steps(const member_t *member)
{
    return member->settings.steps_nodes > 0 && num_nodes_of(member) > 1 &&
           num_nodes_of(member) >= member->settings.steps_nodes;
}

static int goes_in_steps(const member_t *member, uint64_t bytes)
{
    const mpath_settings_t *settings = &member->settings;

    return has_steps(member) &&
           (settings->allreduce_algorithm == MPATH_ALGORITHM_LANES || bytes > settings->small_bytes);
}

/* The sum of a node's ranks. */
static double node_sum_of(const member_t *member, int size, int node, uint64_t position, uint64_t round)
{
    double sum = 0;
    int first  = 1;

    for (int i = 0; i < size; i++) {
        int rank = member->order[i];

        if (member->node_of[rank] == node) {
            sum   = first ? value_of(rank, position, round) : value_of(rank, position, round) + sum;
            first = 0;
        }
    }
    return sum;
}

double sum_in_steps(const member_t *member, int size, int owner, uint64_t position, uint64_t round)
{
    int nodes = num_nodes_of(member), own = member->node_of[owner];
    double sums[RANKS_MAX];

    for (int before = 0; before < nodes; before++) {
        sums[before] = node_sum_of(member, size, (own - before + nodes) % nodes, position, round);
    }
    for (int width = nodes; width > 1; width = (width + 1) / 2) {
        for (int before = (width + 1) / 2; before < width; before++) {
            sums[before - (width + 1) / 2] += sums[before];
        }
    }
    return sums[0];
}

double expected_of(const member_t *member, int size, uint64_t bytes, int owner, uint64_t position, uint64_t round)
{
    return goes_in_steps(member, bytes) ? sum_in_steps(member, size, owner, position, round)
                                        : sum_of(member, size, position, round);
}

void check_allreduce(member_t *member, const ranks_self_t *self, uint64_t elements, uint64_t round)
{
    int in_place = (int)(round % 2);
    double *send = zeroed(elements * sizeof(double)), *recv = zeroed((elements + 1) * sizeof(double));
    double *from = in_place ? recv : send;
    int owner    = -1;

    for (uint64_t i = 0; i < elements; i++) {
        from[i] = value_of(self->rank, i, round);
    }
    recv[elements] = 4711;
    ranks_check(mpath_allreduce(member->symmetric, from, recv, elements, &doubles, 0) == MPATH_OK);
    memset(send, 0xEE, elements * sizeof(double));
    for (uint64_t i = 0, end = 0; i < elements; i++) {
        double expected;

        while (i >= end &&
               goes_in_steps(member, elements * sizeof(double))) { /* the parts lie in the order of the ranks */
            end += member->symmetric->elements[++owner];
        }
        expected = expected_of(member, self->size, elements * sizeof(double), owner < 0 ? 0 : owner, i, round);
        ranks_check(memcmp(&recv[i], &expected, sizeof(expected)) == 0);
    }
    ranks_check(recv[elements] == 4711);
    free(send);
    free(recv);
}
