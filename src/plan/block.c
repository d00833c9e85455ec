/* SPDX-License-Identifier: BSD-3-Clause */
/* Block: its division over matched routes, and the numbers of paths. */
#include "plan/block.h"

#include <string.h>

void mpath_block_init(mpath_block_t *block, int num_rails, int crosses)
{
    block->from = block->to = 0;
    block->num_rails        = num_rails;
    block->num_cells        = crosses ? num_rails * num_rails : num_rails;
    for (int i = 0; i < block->num_cells; i++) {
        block->cells[i].arc.out = (int8_t)(crosses ? i / num_rails : i);
        block->cells[i].arc.in  = (int8_t)(crosses ? i % num_rails : i);
    }
}

/* Nodes mostly have the same as those of the block before. */
static void count_below(mpath_block_t *block, mpath_nic_set_t from, mpath_nic_set_t to)
{
    block->from = from;
    block->to   = to;
    for (int rail = 0; rail < block->num_rails; rail++) {
        mpath_nic_set_t below = mpath_nics_below(rail);

        block->below_both[rail] = (uint8_t)mpath_nic_count(from & to & below);
        block->below_from[rail] = (uint8_t)mpath_nic_count(from & below);
        block->below_to[rail]   = (uint8_t)mpath_nic_count(to & below);
    }
}

void mpath_block_begin(mpath_block_t *block, mpath_nic_set_t from, mpath_nic_set_t to)
{
    if (block->from != from || block->to != to) {
        count_below(block, from, to);
    }
    block->moves    = 0;
    block->num_arcs = 0;
    for (int i = 0; i < block->num_cells; i++) {
        block->cells[i].bytes = 0;
    }
}

void mpath_block_divide(mpath_block_t *block)
{
    uint64_t line = 0;

    for (int rail = 0; rail < block->num_rails; rail++) {
        mpath_block_cell_t *cell = &block->cells[rail];

        cell->keep    = cell->bytes < block->out[rail] ? cell->bytes : block->out[rail];
        cell->out_end = cell->in_end = cell->keep;
        cell->line_at                = line;
        line += cell->bytes - cell->keep;
        mpath_block_add_arc(block, rail, rail, block->out[rail] - cell->keep);
    }
    block->moves = line > 0;
}

/* Where a route stands among those of two nodes: matched ones, then crossing ones; see topo/paths.c. */
static int arc_position(const mpath_block_t *block, mpath_arc_t arc)
{
    mpath_nic_set_t both = block->from & block->to;
    int num_both, is_both;

    if (arc.out == arc.in) {
        return block->below_both[arc.out];
    }
    num_both = mpath_nic_count(both);
    is_both  = (both & mpath_nic_bit(arc.out)) != 0;
    return num_both + block->below_from[arc.out] * mpath_nic_count(block->to) - block->below_both[arc.out] * num_both +
           block->below_to[arc.in] - (is_both ? block->below_both[arc.in] : 0);
}

/* The static route would go first, which is among the others, or between rails that both nodes have. */
int mpath_block_path(const mpath_block_t *block, mpath_arc_t first, mpath_arc_t arc)
{
    mpath_nic_set_t both = block->from & block->to;
    int position, is_extra;

    position = arc_position(block, arc);
    is_extra = first.out != first.in && (both & mpath_nic_bit(first.out)) != 0 && (both & mpath_nic_bit(first.in)) != 0;
    return is_extra || position < arc_position(block, first) ? position + 1 : position;
}
