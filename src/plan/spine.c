/* SPDX-License-Identifier: BSD-3-Clause */
/* Spine: the division of the bytes between two nodes over static, matched and crossing routes. */
#include "plan/spine.h"

/* What is left of the parts. */
typedef struct left {
    /* Of a rail that both nodes have, up to the smaller of its two parts: what matched routes could take. */
    uint64_t out[MPATH_SPINE_RAILS], in[MPATH_SPINE_RAILS];
    /* The rest: what only crossing routes can take. */
    uint64_t more_out[MPATH_SPINE_RAILS], more_in[MPATH_SPINE_RAILS];
} left_t;

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int are_both(const mpath_block_t *block, int rail)
{
    return (block->from & block->to & mpath_nic_bit(rail)) != 0;
}

static uint64_t *keep_at(mpath_block_t *block, int out, int in)
{
    return &block->cells[out * block->num_rails + in].keep;
}

static void keep(mpath_block_cell_t *cell, uint64_t *left_out, uint64_t *left_in)
{
    uint64_t bytes = smaller(cell->bytes, smaller(*left_out, *left_in));

    cell->keep = bytes;
    *left_out -= bytes;
    *left_in -= bytes;
}

/* What rails that only the sender has need not bring to rails that both have. */
static uint64_t to_spare(const mpath_block_t *block, const left_t *left)
{
    uint64_t bytes = 0, needed = 0;

    for (int rail = 0; rail < block->num_rails; rail++) {
        bytes += are_both(block, rail) ? 0 : left->more_out[rail];
        needed += are_both(block, rail) ? left->more_in[rail] : 0;
    }
    return bytes > needed ? bytes - needed : 0;
}

/*
 * As many bytes as fit: rails to themselves first, which leave as much to send as to receive. Between rails that only one node has no more than
 * others do not need there.
 */
static void keep_static(mpath_block_t *block, left_t *left)
{
    const mpath_nic_set_t both = block->from & block->to;
    const int num_rails        = block->num_rails;
    uint64_t spare;

    for (int rail = 0; rail < num_rails; rail++) {
        uint64_t part = are_both(block, rail) ? smaller(block->out[rail], block->in[rail]) : 0;

        left->out[rail] = left->in[rail] = part;
        left->more_out[rail]             = block->out[rail] - part;
        left->more_in[rail]              = block->in[rail] - part;
        keep(&block->cells[rail * (num_rails + 1)], &left->out[rail], &left->in[rail]);
    }
    spare = to_spare(block, left);
    for (int step = 1; step < num_rails; step++) {
        mpath_block_cell_t *row = block->cells;
        int in                  = step;

        for (int out = 0; out < num_rails; out++, row += num_rails) {
            if ((both >> out & both >> in & 1) != 0) {
                keep(&row[in], &left->out[out], &left->in[in]);
            } else if ((both >> out & 1) == 0 && (both >> in & 1) == 0) {
                uint64_t may = smaller(left->more_out[out], spare);

                keep(&row[in], &may, &left->more_in[in]);
                left->more_out[out] -= row[in].keep;
                spare -= row[in].keep;
            } else {
                keep(&row[in], &left->more_out[out], &left->more_in[in]);
            }
            in = in + 1 < num_rails ? in + 1 : 0;
        }
    }
}

/*
 * Breadth first from a rail with more left to send than to receive, against routes that bytes stay on, to one with less. Returns it, and
 * next[rail]: where the route from there leads. -1: there is none.
 */
static int find_chain(mpath_block_t *block, const left_t *left, int rail, int8_t *next)
{
    int8_t queue[MPATH_SPINE_RAILS];
    uint32_t seen = 1u << rail;
    int first = 0, count = 1;

    queue[0] = (int8_t)rail;
    while (first < count) {
        int in = queue[first++];

        for (int out = 0; out < block->num_rails; out++) {
            if ((seen >> out & 1) != 0 || !are_both(block, out) || *keep_at(block, out, in) == 0) {
                continue;
            }
            seen |= 1u << out;
            next[out] = (int8_t)in;
            if (left->out[out] < left->in[out]) {
                return out;
            }
            queue[count++] = (int8_t)out;
        }
    }
    return -1;
}

/* Bytes leave crossing routes until every rail that both have has as much left to send as to receive. */
static void balance(mpath_block_t *block, left_t *left)
{
    int8_t next[MPATH_SPINE_RAILS];

    for (int rail = 0; rail < block->num_rails; rail++) {
        while (left->out[rail] > left->in[rail]) {
            int end        = find_chain(block, left, rail, next);
            uint64_t bytes = left->out[rail] - left->in[rail];

            if (end < 0) {
                break; /* cannot be: all that stays could leave */
            }
            bytes = smaller(bytes, left->in[end] - left->out[end]);
            for (int out = end; out != rail; out = next[out]) {
                bytes = smaller(bytes, *keep_at(block, out, next[out]));
            }
            for (int out = end; out != rail; out = next[out]) {
                *keep_at(block, out, next[out]) -= bytes;
                left->out[out] += bytes;
                left->in[(int)next[out]] += bytes;
            }
        }
    }
}

/* What moves goes by the rail of an end where that has something left; the others come to the line. */
static void move(mpath_block_t *block, left_t *left)
{
    uint64_t at = 0;

    /* what has left crossing routes may let more stay on others that go from a rail to itself */
    for (int rail = 0; rail < block->num_rails; rail++) {
        mpath_block_cell_t *cell = &block->cells[rail * block->num_rails + rail];
        uint64_t stays           = smaller(cell->bytes - cell->keep, left->out[rail]);

        cell->keep += stays;
        left->out[rail] -= stays;
    }
    for (int i = 0; i < block->num_cells; i++) {
        mpath_block_cell_t *cell = &block->cells[i];
        uint64_t over            = cell->bytes - cell->keep;

        cell->out_end = cell->in_end = cell->keep;
        cell->line_at                = at;
        if (over > 0) {
            uint64_t *left_out = &left->out[cell->arc.out], *left_in = &left->out[cell->arc.in];

            cell->out_end += smaller(over, *left_out);
            *left_out -= cell->out_end - cell->keep;
            over         = cell->bytes - cell->out_end;
            cell->in_end = cell->out_end + smaller(over, *left_in);
            *left_in -= cell->in_end - cell->out_end;
            at += cell->bytes - cell->in_end;
            block->moves = 1;
        }
    }
}

/* Crossing routes from these rails to those; none where both nodes have both. */
static void cross(mpath_block_t *block, left_t *left, mpath_nic_set_t from, mpath_nic_set_t to)
{
    for (mpath_nic_set_t rest = from; rest != 0; rest &= rest - 1) {
        int out = mpath_nic_first(rest);

        for (mpath_nic_set_t others = to; others != 0 && left->more_out[out] > 0; others &= others - 1) {
            int in         = mpath_nic_first(others);
            uint64_t bytes = smaller(left->more_out[out], left->more_in[in]);

            left->more_out[out] -= bytes;
            left->more_in[in] -= bytes;
            mpath_block_add_arc(block, out, in, bytes);
        }
    }
}

/* The line: matched routes, then crossing ones. */
static void draw_line(mpath_block_t *block, left_t *left)
{
    mpath_nic_set_t both = block->from & block->to, only_from = block->from & ~both, only_to = block->to & ~both;

    cross(block, left, both, only_to);
    cross(block, left, only_from, both);
    cross(block, left, only_from, only_to);
    for (int rail = 0; rail < block->num_rails; rail++) {
        /* with the odd bytes by which a part is larger than the other one */
        if (are_both(block, rail)) {
            mpath_block_add_arc(block, rail, rail, left->out[rail] + left->more_out[rail]);
        } else if (left->more_out[rail] > 0) {
            mpath_block_add_arc(block, rail, mpath_nic_first(block->to), left->more_out[rail]);
        }
    }
}

void mpath_spine_divide(mpath_block_t *block)
{
    left_t left;

    keep_static(block, &left);
    balance(block, &left);
    move(block, &left);
    draw_line(block, &left);
}
