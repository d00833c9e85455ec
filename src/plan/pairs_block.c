/* SPDX-License-Identifier: BSD-3-Clause */
/* Plan by pairs of nodes: the flows of a block, or those of them that one rank has to do with. */
#include "plan/pairs_private.h"

#include <stdlib.h>
#include <string.h>

#define GOLDEN 0x9e3779b9u /* the golden section of 2^32 */
#define DITHER_BITS 32     /* of the point at which what cannot be cut is looked at */

static uint64_t part_of(uint64_t bytes, uint64_t part, uint64_t all)
{
    return (uint64_t)((mpath_u128_t)bytes * part / all);
}

/* Every rail the same; the odd bytes of different pairs of nodes go to different rails. */
static void find_even_parts(int num_rails, uint64_t turn, uint64_t total, uint64_t *part)
{
    uint64_t count = (uint64_t)num_rails, each = total / count, odd = total % count, next = turn % count;

    for (uint64_t rail = 0; rail < count; rail++) {
        part[rail] = each + (next < odd);
        next       = next + 1 < count ? next + 1 : 0;
    }
}

/* The part of `total` bytes that each rail is to have of what one node sends to another. */
static void find_parts(const mpath_pairs_t *pairs, int from, int to, int is_receiver, uint64_t total, uint64_t *part)
{
    uint64_t weights[MPATH_MAX_NICS + 1], begin = 0;
    const uint64_t *before = pairs->before_bps;

    if (pairs->is_even && pairs->is_alike) {
        find_even_parts(pairs->num_rails, (uint64_t)(from + to), total, part);
        return;
    }
    if (!pairs->is_alike) {
        mpath_prices_split(pairs->prices, from, to, is_receiver, weights);
        before = weights;
    }
    for (int rail = 0; rail < pairs->num_rails; rail++) {
        uint64_t end = part_of(total, before[rail + 1], before[pairs->num_rails]);

        part[rail] = end - begin;
        begin      = end;
    }
}

/* The part of each NIC of a node at its cut. */
static void find_cut_parts(const mpath_pairs_t *pairs, int node, uint64_t total, uint64_t *part)
{
    uint64_t all_bps = 0, before_bps = 0, before = 0;

    memset(part, 0, (size_t)pairs->num_rails * sizeof(*part));
    for (mpath_nic_set_t rails = pairs->has[node]; rails != 0; rails &= rails - 1) {
        all_bps += pairs->rail_bps[mpath_nic_first(rails)];
    }
    for (mpath_nic_set_t rails = pairs->has[node]; rails != 0; rails &= rails - 1) {
        int rail = mpath_nic_first(rails);
        uint64_t end;

        before_bps += pairs->rail_bps[rail];
        end        = part_of(total, before_bps, all_bps);
        part[rail] = end - before;
        before     = end;
    }
}

/* Makes the flows of one pair, in the order of their offsets. */
typedef struct cutter {
    mpath_placer_t *placer;
    int source, destination, is_listed; /* whatever rails they take */
    mpath_arc_t first;                  /* the static route */
    uint64_t bytes, done;
    uint32_t number; /* of the next flow */
} cutter_t;

static void flow_add(mpath_plan_t *plan, int source, int destination, uint32_t number, int path, uint64_t offset,
                     uint64_t bytes)
{
    mpath_plan_append(plan, source, destination, path, offset, bytes);
    plan->flows[plan->num_flows - 1].number = number;
}

/* Whether the rank passes on what takes a route, if it does so at all for the pair. */
static int is_passed(const mpath_placer_t *placer, mpath_arc_t arc)
{
    return (placer->is_out ? arc.out : arc.in) == placer->rail;
}

/* Bytes up to `end` take a route. */
static void cutter_add(cutter_t *cutter, mpath_arc_t arc, uint64_t end)
{
    mpath_placer_t *placer = cutter->placer;

    if (cutter->is_listed || is_passed(placer, arc)) {
        int path = mpath_arc_is(arc, cutter->first) ? 0 : mpath_block_path(&placer->block, cutter->first, arc);

        flow_add(placer->plan, cutter->source, cutter->destination, cutter->number, path, cutter->done,
                 end - cutter->done);
    }
    cutter->number++;
    cutter->done = end;
}

/* Whether the point at which this block looks at `bytes` lies in the first `part` of them. */
static int is_before(uint32_t dither, uint64_t bytes, uint64_t part)
{
    return (mpath_u128_t)bytes * dither < (mpath_u128_t)part << DITHER_BITS;
}

/*
 * The pair's bytes up to `end` are some route's, those before `done` are placed. Where one side of the cut would be smaller
 * than a fragment it is one fragment or nothing; what is smaller than two is not cut. Returns where the cut is.
 */
static uint64_t cut_at(const cutter_t *cutter, uint64_t end)
{
    uint64_t least = cutter->placer->pairs->min_fragment_bytes, done = cutter->done, left = cutter->bytes - done;
    uint32_t dither = cutter->placer->dither;

    if (end <= done) {
        return done;
    }
    if (end < cutter->bytes && left / 2 < least) {
        return is_before(dither, left, end - done) ? cutter->bytes : done;
    }
    if (end - done < least && end < cutter->bytes) {
        return is_before(dither, least, end - done) ? done + least : done;
    }
    if (end < cutter->bytes && cutter->bytes - end < least) {
        return is_before(dither, least, least - (cutter->bytes - end)) ? cutter->bytes : cutter->bytes - least;
    }
    return end;
}

/* The pair's bytes up to `end`, which may be more than it has, are this route's. */
static void cut(cutter_t *cutter, mpath_arc_t arc, uint64_t end)
{
    end = cut_at(cutter, end < cutter->bytes ? end : cutter->bytes);
    if (end > cutter->done) {
        cutter_add(cutter, arc, end);
    }
}

/* The flows of a pair whose bytes begin at `at` among those of its static route, of which not all stay. */
static void cut_pair(cutter_t *cutter, const mpath_block_cell_t *cell, uint64_t at)
{
    const mpath_block_t *block = &cutter->placer->block;
    const mpath_arc_t arcs[]   = {cell->arc, {cell->arc.out, cell->arc.out}, {cell->arc.in, cell->arc.in}};
    const uint64_t ends[]      = {cell->keep, cell->out_end, cell->in_end};

    for (int i = 0; i < 3 && cutter->done < cutter->bytes; i++) {
        if (ends[i] > at && ends[i] > (i > 0 ? ends[i - 1] : 0)) {
            cut(cutter, arcs[i], ends[i] - at);
        }
    }
    /* byte x of the pair is byte line_at + at + x - in_end of all on the line */
    for (int i = 0; i < block->num_arcs && cutter->done < cutter->bytes; i++) {
        uint64_t end = block->arc_end[i];

        if (end > cell->line_at && end - cell->line_at + cell->in_end > at) {
            cut(cutter, block->arcs[i], end - cell->line_at + cell->in_end - at);
        }
    }
}

static uint32_t flow_number(const mpath_pairs_t *pairs, int source, int destination)
{
    return ((uint32_t)source * (uint32_t)pairs->num_ranks + (uint32_t)destination) * (uint32_t)pairs->flows_per_pair;
}

/* Flows of a pair whose bytes begin at `at` among those of its static route. Listed are all, or only those that the rank passes on. */
static inline void pair_place(mpath_placer_t *placer, int source, int destination, uint64_t bytes,
                              const mpath_block_cell_t *cell, uint64_t at, int is_listed)
{
    uint32_t number = flow_number(placer->pairs, source, destination);

    if (bytes > 0 && (!placer->block.moves || at + bytes <= cell->keep)) {
        if (is_listed || is_passed(placer, cell->arc)) {
            flow_add(placer->plan, source, destination, number, 0, 0, bytes);
        }
    } else if (bytes > 0) {
        cutter_t cutter = {.placer      = placer,
                           .source      = source,
                           .destination = destination,
                           .is_listed   = is_listed,
                           .first       = cell->arc,
                           .bytes       = bytes,
                           .number      = number};

        cut_pair(&cutter, cell, at);
    }
}

/* The bytes of a source for each destination. */
static const uint64_t *read_row(mpath_placer_t *placer, int i)
{
    size_t num_ranks    = (size_t)placer->pairs->num_ranks;
    const uint64_t *row = placer->table->bytes;
    uint64_t *values    = placer->values;

    if (placer->table->by == MPATH_PAIRS_RECEIVES) {
        row += placer->sources[i];
        for (int k = 0; k < placer->num_destinations; k++, row += num_ranks) {
            values[k] = *row;
        }
        return values;
    }
    row += (size_t)(placer->table->by == MPATH_PAIRS_SENDS ? i : placer->sources[i]) * num_ranks;
    for (int k = 0; k < placer->num_destinations; k++) {
        values[k] = row[placer->destinations[k]];
    }
    return values;
}

/* The static route of all that a rank sends between two nodes, as a cell; -1: it depends on who receives. */
static int cell_of_source(const mpath_placer_t *placer, int source)
{
    const mpath_pairs_t *pairs = placer->pairs;
    int home                   = pairs->home[source];

    if (home < 0 || (placer->block.from & placer->block.to & mpath_nic_bit(home)) == 0) {
        return -1;
    }
    return !pairs->crosses ? home : pairs->affine ? -1 : home * (pairs->num_rails + 1);
}

static int cell_of_pair(const mpath_placer_t *placer, int source, int destination)
{
    const mpath_pairs_t *pairs = placer->pairs;
    mpath_arc_t arc            = mpath_pairs_static_arc(pairs, placer->from, placer->to, source, destination);

    return pairs->crosses ? arc.out * pairs->num_rails + arc.in : arc.out;
}

/* What each source has for the other node, and what of it is for ranks before that of the part, if this receives. */
static void add_up_sources(mpath_placer_t *placer)
{
    size_t num_ranks = (size_t)placer->pairs->num_ranks;
    int num_sources = placer->num_sources, num_destinations = placer->num_destinations;
    const uint64_t *row    = placer->table->bytes;
    const int32_t *sources = placer->sources, *destinations = placer->destinations;
    uint64_t *sums = placer->sums;

    if (placer->table->by != MPATH_PAIRS_RECEIVES) {
        for (int i = 0; i < num_sources; i++) {
            uint64_t sum = 0;

            row = placer->table->bytes + (size_t)(placer->table->by == MPATH_PAIRS_SENDS ? i : sources[i]) * num_ranks;
            for (int k = 0; k < num_destinations; k++) {
                sum += row[destinations[k]];
            }
            sums[i] = sum;
        }
        return;
    }
    memset(sums, 0, (size_t)num_sources * sizeof(*sums));
    for (int k = 0; k < num_destinations; k++, row += num_ranks) {
        if (k == placer->place) {
            memcpy(placer->before, sums, (size_t)num_sources * sizeof(*sums));
        }
        for (int i = 0; i < num_sources; i++) {
            sums[i] += row[sources[i]];
        }
    }
}

/* Where the bytes of each pair begin on its static route. Returns what the source has. */
static uint64_t add_up_pairs(mpath_placer_t *placer, int i)
{
    const mpath_pairs_t *pairs = placer->pairs;
    size_t pair                = (size_t)i * (size_t)placer->num_destinations;
    const uint64_t *bytes      = read_row(placer, i);
    const int8_t *others       = pairs->home_at + pairs->first_on[placer->to];
    uint64_t *at = placer->at + pair, sum = 0;
    uint8_t *cells = placer->cell + pair;
    int source = placer->sources[i], home = pairs->crosses && pairs->affine ? pairs->home[source] : -1;

    for (int k = 0; k < placer->num_destinations; k++) {
        int route                = home >= 0 && others[k] >= 0 ? home * pairs->num_rails + others[k]
                                                               : cell_of_pair(placer, source, placer->destinations[k]);
        mpath_block_cell_t *cell = &placer->block.cells[route];

        cells[k] = (uint8_t)route;
        at[k]    = cell->bytes;
        sum += bytes[k];
        cell->bytes += bytes[k];
    }
    return sum;
}

/* What each static route has, and where the bytes of each source, or of each pair, begin there. Returns all bytes. */
static uint64_t block_add_up(mpath_placer_t *placer)
{
    uint64_t total = 0;

    if (!placer->pairs->crosses || !placer->pairs->affine) {
        add_up_sources(placer);
    }
    for (int i = 0; i < placer->num_sources; i++) {
        int cell = cell_of_source(placer, placer->sources[i]);

        placer->cell_of_source[i] = (int16_t)cell;
        if (cell >= 0) {
            placer->source_at[i] = placer->block.cells[cell].bytes;
            placer->block.cells[cell].bytes += placer->sums[i];
        } else {
            placer->source_at[i] = 0;
            placer->sums[i]      = add_up_pairs(placer, i);
        }
        total += placer->sums[i];
    }
    return total;
}

static void block_divide(mpath_placer_t *placer, uint64_t total)
{
    int from = placer->from, to = placer->to;
    const mpath_pairs_t *pairs = placer->pairs;
    mpath_block_t *block       = &placer->block;

    placer->dither = (uint32_t)(from + to) * GOLDEN + (1u << 31);
    if (pairs->is_cut) {
        find_cut_parts(pairs, from, total, block->out);
        find_cut_parts(pairs, to, total, block->in);
    } else {
        find_parts(pairs, from, to, 0, total, block->out);
    }
    if (pairs->crosses) {
        if (pairs->has_same_rails) { /* the same at both ends */
            memcpy(block->in, block->out, (size_t)pairs->num_rails * sizeof(*block->in));
        } else if (!pairs->is_cut) {
            find_parts(pairs, from, to, 1, total, block->in);
        }
        mpath_spine_divide(block);
    } else {
        mpath_block_divide(block);
    }
}

/* Of the line, the span that goes over the rank's NIC, or that and others. */
static void find_line(mpath_placer_t *placer)
{
    const mpath_block_t *block = &placer->block;
    uint64_t begin             = 0;

    placer->line_begin = UINT64_MAX;
    placer->line_end   = 0;
    for (int i = 0; i < block->num_arcs; i++) {
        if (is_passed(placer, block->arcs[i])) {
            placer->line_begin = begin < placer->line_begin ? begin : placer->line_begin;
            placer->line_end   = block->arc_end[i];
        }
        begin = block->arc_end[i];
    }
}

/* Whether some of these bytes of a static route may go over the rank's NIC. */
static int may_go_over(const mpath_placer_t *placer, const mpath_block_cell_t *cell, uint64_t at, uint64_t bytes)
{
    uint64_t end = at + bytes;

    if (!placer->block.moves || end <= cell->keep) {
        return bytes > 0 && is_passed(placer, cell->arc);
    }
    if ((at < cell->keep && is_passed(placer, cell->arc)) || (at < cell->out_end && cell->arc.out == placer->rail) ||
        (at < cell->in_end && end > cell->out_end && cell->arc.in == placer->rail)) {
        return 1;
    }
    return end > cell->in_end && end - cell->in_end + cell->line_at > placer->line_begin &&
           (at > cell->in_end ? at - cell->in_end : 0) + cell->line_at < placer->line_end;
}

/* Whether the rank drives its NIC for a pair, beside which the pair's own rank on the node is not. */
static int is_its_turn(const mpath_placer_t *placer, int source, int destination)
{
    return placer->pairs->home[placer->is_out ? source : destination] != placer->rail &&
           (placer->turns == 1 || ((uint32_t)source + (uint32_t)destination) % placer->turns == placer->turn);
}

/* All flows of a source, or those that the rank passes on and those that it receives. */
static void source_place(mpath_placer_t *placer, int i, int is_listed)
{
    const uint64_t *bytes = read_row(placer, i);
    size_t pair           = (size_t)i * (size_t)placer->num_destinations;
    uint64_t next         = placer->source_at[i];
    int route = placer->cell_of_source[i], source = placer->sources[i], own = placer->is_out ? -1 : placer->place;

    for (int k = 0; k < placer->num_destinations; k++) {
        int at_once = route >= 0, destination = placer->destinations[k], is_own = is_listed || k == own;
        const mpath_block_cell_t *cell = &placer->block.cells[at_once ? route : placer->cell[pair + (size_t)k]];
        uint64_t at                    = at_once ? next : placer->at[pair + (size_t)k];

        next += bytes[k];
        if (is_own || (may_go_over(placer, cell, at, bytes[k]) && is_its_turn(placer, source, destination))) {
            pair_place(placer, source, destination, bytes[k], cell, at, is_own);
        }
    }
}

/* What the rank receives from a source. */
static void own_place(mpath_placer_t *placer, int i)
{
    size_t pair         = (size_t)i * (size_t)placer->num_destinations + (size_t)placer->place;
    const uint64_t *row = placer->table->bytes + (size_t)placer->place * (size_t)placer->pairs->num_ranks;
    int route = placer->cell_of_source[i], source = placer->sources[i];
    int cell    = route >= 0 ? route : placer->cell[pair];
    uint64_t at = route >= 0 ? placer->source_at[i] + placer->before[i] : placer->at[pair];

    pair_place(placer, source, placer->rank, row[source], &placer->block.cells[cell], at, 1);
}

/* Whether the rank may have to pass on something of a source. */
static int may_pass(const mpath_placer_t *placer, int i)
{
    int route = placer->cell_of_source[i];

    if (placer->rail < 0 || (placer->is_out && placer->pairs->home[placer->sources[i]] == placer->rail)) {
        return 0;
    }
    return route < 0 || may_go_over(placer, &placer->block.cells[route], placer->source_at[i], placer->sums[i]);
}

static void block_place(mpath_placer_t *placer)
{
    if (placer->rail >= 0) {
        find_line(placer);
    }
    for (int i = 0; i < placer->num_sources; i++) {
        int is_listed = placer->rank < 0 || (placer->is_out && i == placer->place);

        if (placer->sums[i] > 0 && (is_listed || may_pass(placer, i))) {
            source_place(placer, i, is_listed);
        } else if (placer->sums[i] > 0 && !placer->is_out) {
            own_place(placer, i);
        }
    }
}

/* A rank that passes nothing on, where nothing moves. */
static void static_place(mpath_placer_t *placer)
{
    const mpath_pairs_t *pairs = placer->pairs;
    const uint64_t *row        = placer->table->bytes + (size_t)placer->place * (size_t)pairs->num_ranks;
    const int32_t *others      = placer->is_out ? placer->destinations : placer->sources;
    int num_others             = placer->is_out ? placer->num_destinations : placer->num_sources;

    for (int i = 0; i < num_others; i++) {
        int source = placer->is_out ? placer->rank : others[i], destination = placer->is_out ? others[i] : placer->rank;

        if (row[others[i]] > 0) {
            flow_add(placer->plan, source, destination, flow_number(pairs, source, destination), 0, 0, row[others[i]]);
        }
    }
}

/*
 * Flows of the block's pairs that may be listed, and the cuts: of each static route, or of each pair, the ends of its parts, and
 * those of the line twice.
 */
static size_t most_flows(const mpath_placer_t *placer)
{
    const mpath_pairs_t *pairs = placer->pairs;
    size_t sources = (size_t)placer->num_sources, destinations = (size_t)placer->num_destinations;
    size_t num_pairs = placer->rank < 0 || placer->rail >= 0 ? sources * destinations
                       : placer->is_out                      ? destinations
                                                             : sources;
    size_t cells     = (size_t)pairs->num_rails * (pairs->crosses ? (size_t)pairs->num_rails : 1);

    return num_pairs + 3 * (cells < num_pairs ? cells : num_pairs) + 2 * (size_t)pairs->flows_per_pair;
}

/* Whether a rank has bytes for, or from, some rank of a node: most have nothing to do with most nodes. */
static int row_reaches(const mpath_pairs_t *pairs, const uint64_t *row, int node)
{
    uint64_t any = 0;

    for (int i = pairs->first_on[node]; i < pairs->first_on[node + 1]; i++) {
        any |= row[pairs->ranks[i]];
    }
    return any > 0;
}

mpath_status_t mpath_placer_block(mpath_placer_t *placer, const mpath_pairs_table_t *table, int from, int to)
{
    const mpath_pairs_t *pairs = placer->pairs;
    mpath_status_t status;
    uint64_t total;
    int is_own;

    placer->table            = table;
    placer->from             = from;
    placer->to               = to;
    placer->sources          = pairs->ranks + pairs->first_on[from];
    placer->num_sources      = pairs->first_on[from + 1] - pairs->first_on[from];
    placer->destinations     = pairs->ranks + pairs->first_on[to];
    placer->num_destinations = pairs->first_on[to + 1] - pairs->first_on[to];
    placer->is_out           = table->by == MPATH_PAIRS_SENDS;
    is_own                   = placer->rank >= 0 && placer->rail < 0;
    if (is_own && !row_reaches(pairs, table->bytes + (size_t)placer->place * (size_t)pairs->num_ranks,
                               placer->is_out ? to : from)) {
        return MPATH_OK;
    }
    status = mpath_plan_reserve(placer->plan, most_flows(placer));
    if (status != MPATH_OK) {
        return status;
    }
    if (is_own && !placer->moves) {
        static_place(placer);
        return MPATH_OK;
    }
    mpath_block_begin(&placer->block, pairs->has[from], pairs->has[to]);
    total = block_add_up(placer);
    if (total == 0) {
        return MPATH_OK;
    }
    if (placer->moves) {
        block_divide(placer, total);
    }
    block_place(placer);
    return MPATH_OK;
}

mpath_status_t mpath_placer_local(mpath_placer_t *placer, int source, int destination, uint64_t bytes)
{
    mpath_status_t status;

    if (bytes == 0 || source == destination) {
        return MPATH_OK;
    }
    status = mpath_plan_reserve(placer->plan, 1);
    if (status == MPATH_OK) {
        mpath_plan_append(placer->plan, source, destination, 0, 0, bytes);
        placer->plan->flows[placer->plan->num_flows - 1].number = flow_number(placer->pairs, source, destination);
    }
    return status;
}

static int most_on_node(const mpath_pairs_t *pairs)
{
    int most = 0;

    for (int node = 0; node < pairs->num_nodes; node++) {
        int count = pairs->first_on[node + 1] - pairs->first_on[node];

        most = count > most ? count : most;
    }
    return most;
}

mpath_status_t mpath_placer_begin(mpath_placer_t *placer, const mpath_pairs_t *pairs, int rank, int moves,
                                  mpath_plan_t *plan)
{
    size_t most = (size_t)most_on_node(pairs), local = most;

    placer->pairs = pairs;
    placer->plan  = plan;
    placer->moves = moves;
    placer->rank  = rank;
    placer->place = placer->rail = -1;
    if (rank >= 0) {
        int node = mpath_pairs_node(pairs, rank);

        local         = (size_t)(pairs->first_on[node + 1] - pairs->first_on[node]);
        placer->rail  = pairs->affine ? pairs->home[rank] : -1;
        placer->place = 0;
        while (pairs->ranks[pairs->first_on[node] + placer->place] != rank) {
            placer->place++;
        }
    }
    if (placer->rail >= 0) {
        placer->turn = mpath_topo_turn(pairs->topo, rank, &placer->turns);
    }
    mpath_block_init(&placer->block, pairs->num_rails, pairs->crosses);
    placer->at             = malloc(most * local * (sizeof(*placer->at) + sizeof(*placer->cell)) +
                                    most * (4 * sizeof(*placer->at) + sizeof(*placer->cell_of_source)));
    placer->values         = placer->at + most * local;
    placer->sums           = placer->values + most;
    placer->before         = placer->sums + most;
    placer->source_at      = placer->before + most;
    placer->cell_of_source = (int16_t *)(placer->source_at + most);
    placer->cell           = (uint8_t *)(placer->cell_of_source + most);
    return placer->at != NULL ? MPATH_OK : MPATH_ERR_NO_MEMORY;
}

void mpath_placer_end(mpath_placer_t *placer)
{
    free(placer->at);
}

/* Flows are in order of source and destination, a pair's in that of their offsets. */
static int in_order(const mpath_flow_t *flows, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (flows[i].number < flows[i - 1].number) {
            return 0;
        }
    }
    return 1;
}

/* A counting sort that keeps the order of equals. */
static void sort_by(const mpath_flow_t *from, size_t count, int by_source, size_t num_ranks, uint32_t *first,
                    mpath_flow_t *to)
{
    memset(first, 0, (num_ranks + 1) * sizeof(*first));
    for (size_t i = 0; i < count; i++) {
        first[(by_source ? from[i].source : from[i].destination) + 1]++;
    }
    for (size_t i = 0; i < num_ranks; i++) {
        first[i + 1] += first[i];
    }
    for (size_t i = 0; i < count; i++) {
        to[first[by_source ? from[i].source : from[i].destination]++] = from[i];
    }
}

mpath_status_t mpath_placer_sort(mpath_placer_t *placer, size_t begin)
{
    size_t num_ranks = (size_t)placer->pairs->num_ranks, count = placer->plan->num_flows - begin;
    mpath_flow_t *flows = placer->plan->flows + begin, *sorted;
    uint32_t *first;

    if (count == 0 || in_order(flows, count)) {
        return MPATH_OK;
    }
    sorted = malloc(count * sizeof(*sorted));
    first  = malloc((num_ranks + 1) * sizeof(*first));
    if (sorted == NULL || first == NULL) {
        free(sorted);
        free(first);
        return MPATH_ERR_NO_MEMORY;
    }
    if (placer->pairs->in_order) {
        /* the destinations of each source are already */
        memcpy(sorted, flows, count * sizeof(*sorted));
    } else {
        sort_by(flows, count, 0, num_ranks, first, sorted);
    }
    sort_by(sorted, count, 1, num_ranks, first, flows);
    free(sorted);
    free(first);
    return MPATH_OK;
}
