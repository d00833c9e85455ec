/* SPDX-License-Identifier: BSD-3-Clause */
/* FAST and SABRE on paper: flows, steps, times. */
#include "tools/plan/rivals.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1e9
#define NO_PATH (-1)

static mpath_status_t no_memory(void)
{
    mpath_error("plan: no memory for the schedule of a rival");
    return MPATH_ERR_NO_MEMORY;
}

/* --- Birkhoff ---------------------------------------------------------------------------------------------------- */

/* What is left to decompose. The matching is kept from stage to stage, and mended where an entry has become 0. */
typedef struct decomposition {
    int size;
    uint64_t *real, *filled; /* entries of the matrix, and what rows and columns were filled up with */
    int32_t *column_of, *row_of, *seen;
    int32_t turn;
} decomposition_t;

static uint64_t rest_of(const decomposition_t *d, int row, int column)
{
    size_t at = (size_t)row * (size_t)d->size + (size_t)column;

    return d->real[at] + d->filled[at];
}

/* Every sum of a row or a column becomes the largest; returns that. */
static uint64_t fill_up(decomposition_t *d, uint64_t *rows, uint64_t *columns)
{
    uint64_t most = 0;
    int row = 0, column = 0;

    memset(rows, 0, (size_t)d->size * sizeof(*rows));
    memset(columns, 0, (size_t)d->size * sizeof(*columns));
    for (int r = 0; r < d->size; r++) {
        for (int c = 0; c < d->size; c++) {
            rows[r] += rest_of(d, r, c);
            columns[c] += rest_of(d, r, c);
        }
    }
    for (int i = 0; i < d->size; i++) {
        most = rows[i] > most ? rows[i] : most;
        most = columns[i] > most ? columns[i] : most;
    }
    while (row < d->size && column < d->size) {
        uint64_t of_row = most - rows[row], of_column = most - columns[column];
        uint64_t fits = of_row < of_column ? of_row : of_column;

        d->filled[(size_t)row * (size_t)d->size + (size_t)column] += fits;
        rows[row] += fits;
        columns[column] += fits;
        row += of_row == fits;
        column += of_row != fits;
    }
    return most;
}

/* Kuhn's augmenting path from a row. */
static int augment(decomposition_t *d, int row)
{
    for (int column = 0; column < d->size; column++) {
        if (rest_of(d, row, column) == 0 || d->seen[column] == d->turn) {
            continue;
        }
        d->seen[column] = d->turn;
        if (d->row_of[column] < 0 || augment(d, d->row_of[column])) {
            d->row_of[column] = row;
            d->column_of[row] = column;
            return 1;
        }
    }
    return 0;
}

static int match(decomposition_t *d)
{
    for (int row = 0; row < d->size; row++) {
        d->turn++;
        if (d->column_of[row] < 0 && !augment(d, row)) {
            return 0;
        }
    }
    return 1;
}

static mpath_status_t add_stage(decomposition_t *d, rival_stages_t *stages, size_t *capacity)
{
    size_t size     = (size_t)d->size;
    uint64_t length = UINT64_MAX;

    if (stages->count == *capacity) {
        size_t larger   = *capacity == 0 ? 64 : 2 * *capacity;
        int32_t *to     = realloc(stages->to, larger * size * sizeof(*to));
        uint64_t *bytes = to == NULL ? NULL : realloc(stages->bytes, larger * size * sizeof(*bytes));

        stages->to    = to != NULL ? to : stages->to;
        stages->bytes = bytes != NULL ? bytes : stages->bytes;
        if (to == NULL || bytes == NULL) {
            return no_memory();
        }
        *capacity = larger;
    }
    for (int row = 0; row < d->size; row++) {
        uint64_t rest = rest_of(d, row, d->column_of[row]);

        length = rest < length ? rest : length;
    }
    for (int row = 0; row < d->size; row++) {
        size_t at     = (size_t)row * size + (size_t)d->column_of[row];
        uint64_t real = d->real[at] < length ? d->real[at] : length;

        stages->to[stages->count * size + (size_t)row]    = d->column_of[row];
        stages->bytes[stages->count * size + (size_t)row] = real;
        d->real[at] -= real;
        d->filled[at] -= length - real;
        if (d->real[at] + d->filled[at] == 0) {
            d->row_of[d->column_of[row]] = -1;
            d->column_of[row]            = -1;
        }
    }
    stages->count++;
    return MPATH_OK;
}

mpath_status_t rival_decompose(int size, const uint64_t *matrix, rival_stages_t *stages)
{
    size_t n = (size_t)size, capacity = 0;
    decomposition_t d     = {.size      = size,
                             .real      = malloc((n * n + 1) * sizeof(*d.real)),
                             .filled    = calloc(n * n + 1, sizeof(*d.filled)),
                             .column_of = malloc((n + 1) * sizeof(*d.column_of)),
                             .row_of    = malloc((n + 1) * sizeof(*d.row_of)),
                             .seen      = calloc(n + 1, sizeof(*d.seen))};
    uint64_t *sums        = calloc(2 * n + 1, sizeof(*sums)), left;
    mpath_status_t status = MPATH_OK;

    memset(stages, 0, sizeof(*stages));
    stages->size = size;
    if (d.real == NULL || d.filled == NULL || d.column_of == NULL || d.row_of == NULL || d.seen == NULL ||
        sums == NULL) {
        status = no_memory();
    } else {
        memcpy(d.real, matrix, n * n * sizeof(*matrix));
        for (size_t i = 0; i < n; i++) {
            d.column_of[i] = d.row_of[i] = -1;
        }
        stages->total = left = fill_up(&d, sums, sums + n);
        while (left > 0 && status == MPATH_OK && match(&d)) {
            uint64_t before = rest_of(&d, 0, d.column_of[0]);
            int column      = d.column_of[0];

            status = add_stage(&d, stages, &capacity);
            left -= before - rest_of(&d, 0, column);
        }
    }
    free(d.real);
    free(d.filled);
    free(d.column_of);
    free(d.row_of);
    free(d.seen);
    free(sums);
    if (status != MPATH_OK) {
        rival_stages_release(stages);
    }
    return status;
}

void rival_stages_release(rival_stages_t *stages)
{
    free(stages->to);
    free(stages->bytes);
    memset(stages, 0, sizeof(*stages));
}

/* --- the bytes of two nodes over their rails ----------------------------------------------------------------------- */

enum { BALANCE, CROSS, HAND_OUT, NUM_PARTS }; /* hops before that between the nodes, this one, and those after it */

typedef struct use {
    uint32_t resource;
    uint64_t bytes;
} use_t;

/* What the bytes from one node to another ask of resources, in each part of their way. */
typedef struct block {
    uint64_t bytes;
    size_t first[NUM_PARTS + 1]; /* of its uses, in the schedule's */
} block_t;

typedef struct schedule {
    const mpath_topo_t *topo;
    const uint64_t *demand;
    const uint64_t
        *sends; /* in place of the demand: of the ranks of the node whose blocks are planned; no flows then */
    const mpath_time_params_t *time;
    int num_nodes, num_ranks, num_resources, num_rails; /* rails: their numbers are below */
    int32_t *rank_at,
        *first_rank; /* ranks by node: those of node n are rank_at[first_rank[n]] up to first_rank[n + 1] */
    mpath_flow_t *flows;
    size_t num_flows, flow_capacity;
    block_t *blocks; /* [from * num_nodes + to] */
    use_t *uses;
    size_t num_uses, use_capacity;
    uint64_t *loads[NUM_PARTS]; /* by resource, of the block under way */
    double *step;               /* by resource, of the step under way: seconds */
    double latency[NUM_PARTS];  /* the longest of a hop, seconds */
    int32_t *
        known; /* where nodes have the same rails: paths by rail, of the NICs beside two ranks; NULL: they are looked for */
} schedule_t;

/* A pair of ranks of two nodes. */
typedef struct pair {
    int source, destination;
    uint64_t left;                    /* of its bytes, not on a rail yet */
    int32_t path_of[MPATH_MAX_RAILS]; /* the first path over each rail that both nodes have; NO_PATH: none */
} pair_t;

static int rail_of(const mpath_topo_t *topo, int node, int nic)
{
    return nic < 0 ? -1 : mpath_topo_machine(topo, node)->nics[nic].rail;
}

/* The hop between two nodes; -1: the path has none. */
static int crossing_hop(const mpath_path_t *path)
{
    for (int hop = 0; hop < path->num_hops; hop++) {
        if (path->hops[hop].lane == MPATH_LANE_RAIL) {
            return hop;
        }
    }
    return -1;
}

static void find_paths(const mpath_topo_t *topo, pair_t *pair)
{
    int from = mpath_topo_place(topo, pair->source)->node, to = mpath_topo_place(topo, pair->destination)->node;
    int count = mpath_topo_num_paths(topo, pair->source, pair->destination);
    mpath_path_t path;

    for (int rail = 0; rail < MPATH_MAX_RAILS; rail++) {
        pair->path_of[rail] = NO_PATH;
    }
    for (int index = 0; index < count; index++) {
        int hop, rail;

        mpath_topo_path(topo, pair->source, pair->destination, index, &path);
        hop  = crossing_hop(&path);
        rail = hop < 0 ? -1 : rail_of(topo, from, path.hops[hop].nic_from);
        if (rail >= 0 && rail == rail_of(topo, to, path.hops[hop].nic_to) && pair->path_of[rail] == NO_PATH) {
            pair->path_of[rail] = index;
        }
    }
}

/* Where nodes have the same rails, ranks beside the same NICs have the same paths. 0: they are to be looked for, and kept at *at_p. */
static int known_paths(schedule_t *s, pair_t *pair, int32_t **at_p)
{
    int from = mpath_topo_place(s->topo, pair->source)->nic, to = mpath_topo_place(s->topo, pair->destination)->nic;
    int32_t *at = s->known == NULL || from < 0 || to < 0
                      ? NULL
                      : s->known + (size_t)(from * MPATH_MAX_NICS + to) * (MPATH_MAX_RAILS + 1);

    *at_p = at;
    if (at == NULL || at[MPATH_MAX_RAILS] == 0) {
        return 0;
    }
    memcpy(pair->path_of, at, (size_t)s->num_rails * sizeof(*at));
    return 1;
}

static int hop_end(const mpath_path_t *path, int hop)
{
    return hop + 1 < path->num_hops ? path->hops[hop + 1].first_resource : path->num_resources;
}

static mpath_status_t add_flow(schedule_t *s, const pair_t *pair, int index, uint64_t bytes)
{
    if (s->num_flows == s->flow_capacity) {
        size_t larger       = s->flow_capacity == 0 ? 1024 : 2 * s->flow_capacity;
        mpath_flow_t *flows = realloc(s->flows, larger * sizeof(*flows));

        if (flows == NULL) {
            return no_memory();
        }
        s->flows         = flows;
        s->flow_capacity = larger;
    }
    s->flows[s->num_flows++] = (mpath_flow_t){
        .source = pair->source, .destination = pair->destination, .path = index, .bytes = bytes};
    return MPATH_OK;
}

/* Puts bytes of a pair on a path: a flow, and what it asks of resources before, between and behind the nodes. */
static mpath_status_t put(schedule_t *s, pair_t *pair, int index, uint64_t bytes)
{
    mpath_path_t path;
    int crossing;

    if (s->sends == NULL && add_flow(s, pair, index, bytes) != MPATH_OK) {
        return MPATH_ERR_NO_MEMORY;
    }
    pair->left -= bytes;
    mpath_topo_path(s->topo, pair->source, pair->destination, index, &path);
    crossing = crossing_hop(&path);
    for (int hop = 0; hop < path.num_hops && crossing >= 0; hop++) {
        int part = hop < crossing ? BALANCE : hop == crossing ? CROSS : HAND_OUT;
        uint64_t rate, latency_ns;

        mpath_time_hop(s->topo, &path, hop, s->time, &rate, &latency_ns);
        s->latency[part] = (double)latency_ns / NS_PER_S > s->latency[part] ? (double)latency_ns / NS_PER_S
                                                                            : s->latency[part];
        for (int i = path.hops[hop].first_resource; i < hop_end(&path, hop); i++) {
            s->loads[part][path.resources[i]] += bytes;
        }
    }
    return MPATH_OK;
}

/* What of a pair goes over a rail: as much as is left of the rail's part. */
static mpath_status_t put_on_rail(schedule_t *s, pair_t *pair, int rail, uint64_t *budget)
{
    uint64_t bytes = rail < 0 ? 0 : pair->left < budget[rail] ? pair->left : budget[rail];

    if (bytes == 0 || pair->path_of[rail] == NO_PATH) {
        return MPATH_OK;
    }
    budget[rail] -= bytes;
    return put(s, pair, pair->path_of[rail], bytes);
}

/* Equal parts of the bytes for all rails that some pair has. */
static void divide(const schedule_t *s, const pair_t *pairs, size_t num_pairs, uint64_t bytes, uint64_t *budget)
{
    uint64_t count = 0;

    memset(budget, 0, MPATH_MAX_RAILS * sizeof(*budget));
    for (int turn = 0; turn < 2; turn++) {
        uint64_t number = 0;

        for (int rail = 0; rail < s->num_rails; rail++) {
            int is_there = 0;

            for (size_t p = 0; p < num_pairs && !is_there; p++) {
                is_there = pairs[p].left > 0 && pairs[p].path_of[rail] != NO_PATH;
            }
            if (is_there && turn == 0) {
                count++;
            } else if (is_there) {
                budget[rail] = bytes / count + (number++ < bytes % count);
            }
        }
    }
}

/*
 * Each rail gets its part: first what needs no hop inside a node on that rail, then what needs one behind the rail, then
 * what needs one before it, then the rest.
 */
static mpath_status_t put_evenly(schedule_t *s, pair_t *pairs, size_t num_pairs, uint64_t bytes)
{
    mpath_status_t status = MPATH_OK;
    uint64_t budget[MPATH_MAX_RAILS];

    divide(s, pairs, num_pairs, bytes, budget);
    for (int turn = 0; turn < 4; turn++) {
        for (size_t p = 0; p < num_pairs && status == MPATH_OK; p++) {
            const mpath_place_t *from = mpath_topo_place(s->topo, pairs[p].source);
            const mpath_place_t *to   = mpath_topo_place(s->topo, pairs[p].destination);
            int first = rail_of(s->topo, from->node, from->nic), last = rail_of(s->topo, to->node, to->nic);

            if (turn == 0 && first == last) {
                status = put_on_rail(s, &pairs[p], first, budget);
            } else if (turn == 1 || turn == 2) {
                status = put_on_rail(s, &pairs[p], turn == 1 ? first : last, budget);
            }
            for (int rail = 0; turn == 3 && pairs[p].left > 0 && rail < s->num_rails && status == MPATH_OK; rail++) {
                status = put_on_rail(s, &pairs[p], rail, budget);
            }
        }
    }
    for (size_t p = 0; p < num_pairs && status == MPATH_OK; p++) { /* no rail that both have: the static route */
        status = pairs[p].left > 0 ? put(s, &pairs[p], 0, pairs[p].left) : MPATH_OK;
    }
    return status;
}

/* Keeps what the block's bytes ask of resources, and clears the sums. */
static mpath_status_t keep_uses(schedule_t *s, block_t *block)
{
    for (int part = 0; part < NUM_PARTS; part++) {
        block->first[part] = s->num_uses;
        for (int r = 0; r < s->num_resources; r++) {
            if (s->loads[part][r] == 0) {
                continue;
            }
            if (s->num_uses == s->use_capacity) {
                size_t larger = s->use_capacity == 0 ? 1024 : 2 * s->use_capacity;
                use_t *uses   = realloc(s->uses, larger * sizeof(*uses));

                if (uses == NULL) {
                    return no_memory();
                }
                s->uses         = uses;
                s->use_capacity = larger;
            }
            s->uses[s->num_uses++] = (use_t){.resource = (uint32_t)r, .bytes = s->loads[part][r]};
            s->loads[part][r]      = 0;
        }
    }
    block->first[NUM_PARTS] = s->num_uses;
    return MPATH_OK;
}

static uint64_t bytes_of(const schedule_t *s, int from, int place, int source, int destination)
{
    return s->sends != NULL
               ? s->sends[(size_t)(place - s->first_rank[from]) * (size_t)s->num_ranks + (size_t)destination]
               : s->demand[(size_t)source * (size_t)s->num_ranks + (size_t)destination];
}

/* All bytes from one node to another. What does not cross a rail, as inside an NVLink domain, takes its static route. */
static mpath_status_t put_block(schedule_t *s, int from, int to, pair_t *pairs, uint64_t *bytes_p)
{
    mpath_status_t status = MPATH_OK;
    size_t num_pairs      = 0;

    for (int i = s->first_rank[from]; i < s->first_rank[from + 1]; i++) {
        for (int k = s->first_rank[to]; k < s->first_rank[to + 1] && status == MPATH_OK; k++) {
            pair_t *pair = &pairs[num_pairs];
            int32_t *known;
            mpath_path_t path;

            pair->source      = s->rank_at[i];
            pair->destination = s->rank_at[k];
            pair->left        = bytes_of(s, from, i, pair->source, pair->destination);
            if (pair->left == 0 || pair->source == pair->destination) {
                continue;
            }
            if (from != to && known_paths(s, pair, &known)) {
                *bytes_p += pair->left;
                num_pairs++;
                continue;
            }
            if (mpath_topo_num_paths(s->topo, pair->source, pair->destination) <= 0) {
                mpath_error("plan: rank %d has %llu bytes for rank %d, but no path leads there", pair->source,
                            (unsigned long long)pair->left, pair->destination);
                return MPATH_ERR_UNREACHABLE;
            }
            mpath_topo_path(s->topo, pair->source, pair->destination, 0, &path);
            if (crossing_hop(&path) < 0) {
                status = put(s, pair, 0, pair->left);
                continue;
            }
            find_paths(s->topo, pair);
            if (from != to && known != NULL) {
                memcpy(known, pair->path_of, sizeof(pair->path_of));
                known[MPATH_MAX_RAILS] = 1;
            }
            *bytes_p += pair->left;
            num_pairs++;
        }
    }
    return status == MPATH_OK ? put_evenly(s, pairs, num_pairs, *bytes_p) : status;
}

static mpath_status_t plan_block(schedule_t *s, int from, int to, pair_t *pairs)
{
    block_t *block        = &s->blocks[(size_t)from * (size_t)s->num_nodes + (size_t)to];
    mpath_status_t status = put_block(s, from, to, pairs, &block->bytes);

    return status == MPATH_OK ? keep_uses(s, block) : status;
}

static void sort_ranks(schedule_t *s)
{
    int count = 0;

    for (int node = 0; node < s->num_nodes; node++) {
        const mpath_machine_t *machine = mpath_topo_machine(s->topo, node);

        for (int nic = 0; nic < machine->num_nics; nic++) {
            s->num_rails = machine->nics[nic].rail >= s->num_rails ? machine->nics[nic].rail + 1 : s->num_rails;
        }
    }

    for (int node = 0; node < s->num_nodes; node++) {
        s->first_rank[node] = count;
        for (int rank = 0; rank < s->num_ranks; rank++) {
            if (mpath_topo_place(s->topo, rank)->node == node) {
                s->rank_at[count++] = rank;
            }
        }
    }
    s->first_rank[s->num_nodes] = count;
}

static void schedule_release(schedule_t *s)
{
    free(s->rank_at);
    free(s->first_rank);
    free(s->flows);
    free(s->blocks);
    free(s->uses);
    free(s->step);
    free(s->known);
    for (int part = 0; part < NUM_PARTS; part++) {
        free(s->loads[part]);
    }
}

static mpath_status_t schedule_init(schedule_t *s, const mpath_topo_t *topo, const uint64_t *demand,
                                    const mpath_time_params_t *time)
{
    int nodes = mpath_topo_num_nodes(topo), ranks = mpath_topo_num_ranks(topo);
    int resources = mpath_topo_num_resources(topo), good;

    *s   = (schedule_t){.topo          = topo,
                        .demand        = demand,
                        .time          = time,
                        .num_nodes     = nodes,
                        .num_ranks     = ranks,
                        .num_resources = resources,
                        .rank_at       = calloc((size_t)ranks + 1, sizeof(*s->rank_at)),
                        .first_rank    = calloc((size_t)nodes + 1, sizeof(*s->first_rank)),
                        .blocks        = calloc((size_t)nodes * (size_t)nodes + 1, sizeof(*s->blocks)),
                        .step          = calloc((size_t)resources + 1, sizeof(*s->step))};
    good = s->rank_at != NULL && s->first_rank != NULL && s->blocks != NULL && s->step != NULL;
    for (int part = 0; part < NUM_PARTS; part++) {
        s->loads[part] = calloc((size_t)resources + 1, sizeof(*s->loads[part]));
        good           = good && s->loads[part] != NULL;
    }
    return good ? MPATH_OK : no_memory();
}

/* Room for the pairs of two nodes; NULL: no memory. */
static pair_t *pairs_alloc(const schedule_t *s)
{
    int most = 0;

    for (int node = 0; node < s->num_nodes; node++) {
        int count = s->first_rank[node + 1] - s->first_rank[node];

        most = count > most ? count : most;
    }
    return malloc(((size_t)most * (size_t)most + 1) * sizeof(pair_t));
}

/* Flows and uses of all blocks. */
static mpath_status_t plan_blocks(schedule_t *s)
{
    mpath_status_t status = MPATH_OK;
    pair_t *pairs;

    sort_ranks(s);
    pairs = pairs_alloc(s);
    if (pairs == NULL) {
        return no_memory();
    }
    for (int from = 0; from < s->num_nodes && status == MPATH_OK; from++) {
        for (int to = 0; to < s->num_nodes && status == MPATH_OK; to++) {
            status = plan_block(s, from, to, pairs);
        }
    }
    free(pairs);
    return status;
}

static int by_pair(const void *a, const void *b)
{
    const mpath_flow_t *x = a, *y = b;

    if (x->source != y->source) {
        return x->source < y->source ? -1 : 1;
    }
    if (x->destination != y->destination) {
        return x->destination < y->destination ? -1 : 1;
    }
    return x->path < y->path ? -1 : x->path > y->path;
}

static mpath_status_t make_plan(schedule_t *s, mpath_plan_t **plan_p)
{
    uint64_t offset = 0;

    if (s->num_flows > 0) {
        qsort(s->flows, s->num_flows, sizeof(*s->flows), by_pair);
    }
    for (size_t i = 0; i < s->num_flows; i++) {
        int is_same = i > 0 && s->flows[i].source == s->flows[i - 1].source &&
                      s->flows[i].destination == s->flows[i - 1].destination;

        offset             = is_same ? offset + s->flows[i - 1].bytes : 0;
        s->flows[i].offset = offset;
    }
    return mpath_plan_from_flows(s->topo, s->demand, s->flows, s->num_flows, plan_p);
}

/* --- steps ------------------------------------------------------------------------------------------------------- */

/* Adds a part of a block, of which so many bytes move, to the step. */
static void add_part(schedule_t *s, int from, int to, int part, uint64_t bytes)
{
    const block_t *block = &s->blocks[(size_t)from * (size_t)s->num_nodes + (size_t)to];
    double share         = block->bytes == 0 ? 0 : (double)bytes / (double)block->bytes;

    for (size_t i = block->first[part]; share > 0 && i < block->first[part + 1]; i++) {
        const mpath_resource_t resource = mpath_topo_resource(s->topo, (int)s->uses[i].resource);

        s->step[s->uses[i].resource] += share * (double)s->uses[i].bytes / (double)resource.capacity_bps;
    }
}

/* How long the bytes of the step take; the next one begins empty. */
static double end_step(schedule_t *s)
{
    double seconds = 0;

    for (int r = 0; r < s->num_resources; r++) {
        seconds    = s->step[r] > seconds ? s->step[r] : seconds;
        s->step[r] = 0;
    }
    return seconds;
}

static void add_stage_part(schedule_t *s, const rival_stages_t *stages, size_t stage, int part)
{
    for (int row = 0; stage < stages->count && row < stages->size; row++) {
        size_t at = stage * (size_t)stages->size + (size_t)row;

        add_part(s, row, stages->to[at], part, stages->bytes[at]);
    }
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* Step i: stage i - 1 crosses, while stage i is balanced and stage i - 2 is handed out. */
static mpath_status_t run_stages(schedule_t *s, rival_result_t *result)
{
    size_t nodes     = (size_t)s->num_nodes;
    uint64_t *matrix = calloc(nodes * nodes + 1, sizeof(*matrix));
    rival_stages_t stages;
    mpath_status_t status;

    if (matrix == NULL) {
        return no_memory();
    }
    for (size_t i = 0; i < nodes * nodes; i++) {
        matrix[i] = s->blocks[i].bytes;
    }
    status = rival_decompose(s->num_nodes, matrix, &stages);
    free(matrix);
    if (status != MPATH_OK) {
        return status;
    }
    for (size_t step = 0; stages.count > 0 && step < stages.count + 2; step++) {
        double seconds;

        add_stage_part(s, &stages, step, BALANCE);
        add_stage_part(s, &stages, step >= 1 ? step - 1 : stages.count, CROSS);
        add_stage_part(s, &stages, step >= 2 ? step - 2 : stages.count, HAND_OUT);
        seconds = end_step(s);
        result->seconds += seconds;
        result->steps += seconds > 0;
    }
    for (size_t i = 0; i < stages.count * nodes; i++) {
        result->crossing_bytes += stages.bytes[i];
    }
    rival_stages_release(&stages);
    return MPATH_OK;
}

/* Everything is gathered, then everything crosses, then everything is handed out. */
static void run_phases(schedule_t *s, rival_result_t *result)
{
    for (int part = 0; part < NUM_PARTS; part++) {
        double seconds;

        for (int from = 0; from < s->num_nodes; from++) {
            for (int to = 0; to < s->num_nodes; to++) {
                uint64_t bytes = s->blocks[(size_t)from * (size_t)s->num_nodes + (size_t)to].bytes;

                add_part(s, from, to, part, bytes);
                result->crossing_bytes += part == CROSS ? bytes : 0;
            }
        }
        seconds = end_step(s);
        result->seconds += seconds;
        result->steps += seconds > 0;
    }
}

/*
 * Traffic inside nodes moves beside the steps, wherever there is room. Each part's latency counts once: the next step's
 * messages are under way before the last one's have arrived.
 */
static mpath_status_t run_in_steps(rival_t rival, const mpath_topo_t *topo, const uint64_t *demand,
                                   const mpath_time_params_t *time, rival_result_t *result)
{
    mpath_status_t status;
    schedule_t s;

    status = schedule_init(&s, topo, demand, time);
    if (status == MPATH_OK) {
        status = plan_blocks(&s);
    }
    if (status == MPATH_OK) {
        status = make_plan(&s, &result->plan);
    }
    if (status == MPATH_OK) {
        if (rival == RIVAL_FAST) {
            status = run_stages(&s, result);
        } else {
            run_phases(&s, result);
        }
        for (int part = 0; part < NUM_PARTS; part++) {
            result->seconds += s.latency[part];
        }
        result->seconds = most(result->seconds, (double)mpath_plan_z_ns(result->plan) / NS_PER_S);
        result->steps   = result->steps == 0 ? 1 : result->steps;
        if (status != MPATH_OK) {
            mpath_plan_destroy(result->plan);
        }
    }
    schedule_release(&s);
    return status;
}

/* All bytes at once, in a pipeline: to the rank beside the destination's rail, and over it. */
static mpath_status_t run_in_pipeline(const mpath_topo_t *topo, const uint64_t *demand, const mpath_time_params_t *time,
                                      rival_result_t *result)
{
    mpath_plan_params_t params;
    mpath_status_t status;
    uint64_t ns;

    mpath_plan_params_init(&params);
    params.policy = MPATH_POLICY_PXN;
    status        = mpath_plan_create(topo, demand, &params, &result->plan);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_time_predict(topo, result->plan, time, &ns);
    if (status != MPATH_OK) {
        mpath_plan_destroy(result->plan);
        return status;
    }
    result->seconds = (double)ns / NS_PER_S;
    result->steps   = 1;
    return MPATH_OK;
}

mpath_status_t rival_run(rival_t rival, const mpath_topo_t *topo, const uint64_t *demand,
                         const mpath_time_params_t *time, rival_result_t *result)
{
    rival_result_t steps = {0}, pipeline = {0};
    mpath_status_t status = run_in_steps(rival, topo, demand, time, &steps);

    if (status != MPATH_OK || rival == RIVAL_FAST) {
        *result = steps;
        return status;
    }
    status = run_in_pipeline(topo, demand, time, &pipeline);
    if (status != MPATH_OK) {
        mpath_plan_destroy(steps.plan);
        return status;
    }
    pipeline.crossing_bytes = steps.crossing_bytes;
    mpath_plan_destroy(steps.seconds <= pipeline.seconds ? pipeline.plan : steps.plan);
    *result = steps.seconds <= pipeline.seconds ? steps : pipeline;
    return MPATH_OK;
}

/* --- node by node ------------------------------------------------------------------------------------------------ */

struct rival_phases {
    schedule_t schedule; /* its loads are of all blocks */
    pair_t *pairs;
    uint64_t *at_once, *pipeline; /* by resource, with what stays inside nodes: FAST's flows, and those by PXN */
    double pipeline_fill;         /* the longest that a first chunk takes on its way, seconds */
};

mpath_status_t rival_phases_create(const mpath_topo_t *topo, const mpath_time_params_t *time, rival_phases_t **phases_p)
{
    size_t resources       = (size_t)mpath_topo_num_resources(topo) + 1;
    size_t known           = (size_t)MPATH_MAX_NICS * MPATH_MAX_NICS * (MPATH_MAX_RAILS + 1);
    rival_phases_t *phases = calloc(1, sizeof(*phases));
    mpath_status_t status;

    if (phases == NULL) {
        return no_memory();
    }
    status = schedule_init(&phases->schedule, topo, NULL, time);
    if (status == MPATH_OK) {
        sort_ranks(&phases->schedule);
        phases->pairs    = pairs_alloc(&phases->schedule);
        phases->at_once  = calloc(resources, sizeof(*phases->at_once));
        phases->pipeline = calloc(resources, sizeof(*phases->pipeline));
        if (mpath_topo_rails_match(topo)) {
            phases->schedule.known = calloc(known, sizeof(*phases->schedule.known));
        }
        status = phases->pairs == NULL || phases->at_once == NULL || phases->pipeline == NULL ? no_memory() : MPATH_OK;
    }
    if (status != MPATH_OK) {
        rival_phases_destroy(phases);
        return status;
    }
    *phases_p = phases;
    return MPATH_OK;
}

void rival_phases_destroy(rival_phases_t *phases)
{
    if (phases != NULL) {
        schedule_release(&phases->schedule);
        free(phases->pairs);
        free(phases->at_once);
        free(phases->pipeline);
        free(phases);
    }
}

static int pipeline_path(schedule_t *s, int source, int destination)
{
    pair_t pair               = {.source = source, .destination = destination};
    const mpath_place_t *home = mpath_topo_place(s->topo, destination);
    int32_t *known;

    if (mpath_topo_place(s->topo, source)->node == home->node) {
        return 0;
    }
    if (known_paths(s, &pair, &known)) {
        int path = pair.path_of[rail_of(s->topo, home->node, home->nic)];

        return path == NO_PATH ? 0 : path;
    }
    return mpath_plan_pxn_path(s->topo, source, destination);
}

/* A pair's bytes in SABRE's pipeline, and inside a node everywhere. */
static void add_to_pipeline(rival_phases_t *phases, int source, int destination, uint64_t bytes)
{
    schedule_t *s = &phases->schedule;
    int is_inside = mpath_topo_place(s->topo, source)->node == mpath_topo_place(s->topo, destination)->node;
    mpath_path_t path;
    double fill;

    mpath_topo_path(s->topo, source, destination, pipeline_path(s, source, destination), &path);
    fill = (double)mpath_time_fill_ns(s->topo, &path, bytes, s->time) / NS_PER_S;

    phases->pipeline_fill = most(phases->pipeline_fill, fill);
    for (int i = 0; i < path.num_resources; i++) {
        phases->pipeline[path.resources[i]] += bytes;
        phases->at_once[path.resources[i]] += is_inside ? bytes : 0;
    }
}

mpath_status_t rival_phases_add(rival_phases_t *phases, int node, const uint64_t *sends)
{
    schedule_t *s         = &phases->schedule;
    mpath_status_t status = MPATH_OK;

    s->sends = sends;
    for (int to = 0; to < s->num_nodes && status == MPATH_OK; to++) {
        uint64_t bytes = 0;

        status = to == node ? MPATH_OK : put_block(s, node, to, phases->pairs, &bytes);
    }
    for (int i = s->first_rank[node]; i < s->first_rank[node + 1] && status == MPATH_OK; i++) {
        for (int destination = 0; destination < s->num_ranks; destination++, sends++) {
            if (*sends > 0 && destination != s->rank_at[i]) {
                add_to_pipeline(phases, s->rank_at[i], destination, *sends);
            }
        }
    }
    return status;
}

static double seconds_of(const schedule_t *s, int resource, uint64_t bytes)
{
    return (double)bytes / (double)mpath_topo_resource(s->topo, resource).capacity_bps;
}

void rival_phases_seconds(const rival_phases_t *phases, double *sabre_p, double *fast_at_least_p)
{
    const schedule_t *s = &phases->schedule;
    double steps = 0, latencies = 0, at_once = 0, pipeline = 0;

    for (int part = 0; part < NUM_PARTS; part++) {
        double longest = 0;

        for (int r = 0; r < s->num_resources; r++) {
            longest = most(longest, seconds_of(s, r, s->loads[part][r]));
        }
        steps += longest;
        latencies += s->latency[part];
    }
    for (int r = 0; r < s->num_resources; r++) {
        uint64_t bytes = phases->at_once[r];

        for (int part = 0; part < NUM_PARTS; part++) {
            bytes += s->loads[part][r];
        }
        at_once  = most(at_once, seconds_of(s, r, bytes));
        pipeline = most(pipeline, seconds_of(s, r, phases->pipeline[r]));
    }
    steps += latencies;
    *sabre_p         = most(at_once, steps) < pipeline + phases->pipeline_fill ? most(at_once, steps)
                                                                               : pipeline + phases->pipeline_fill;
    *fast_at_least_p = at_once + latencies;
}
