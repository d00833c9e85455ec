/* SPDX-License-Identifier: BSD-3-Clause */
/* The board: made by rank 0, attached by the others, agreed upon over the team. */
#include "node/board.h"

#include "team/team.h"
#include "device/usage.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define BOARD_PAGE 4096u
#define SLOTS_LEAST_BYTES 65536u /* of slots of a rank: less is none */

static size_t align_to(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* What rank 0 tells about a new segment. */
typedef struct board_offer {
    int64_t status;
    char name[MPATH_SEGMENT_NAME_MAX];
} board_offer_t;

/* All ranks have succeeded, or all give up. */
static mpath_status_t board_all(mpath_team_t *team, mpath_status_t mine)
{
    int32_t status    = mine, *all;
    mpath_status_t rc = MPATH_ERR_NO_MEMORY;

    all = malloc((size_t)mpath_team_size(team) * sizeof(*all));
    if (all == NULL) {
        mpath_team_break(team, MPATH_ERR_NO_MEMORY); /* the others would wait */
        return MPATH_ERR_NO_MEMORY;
    }
    rc = mpath_team_allgather(team, &status, sizeof(status), all);
    for (int rank = 0; (rc == MPATH_OK) && (rank < mpath_team_size(team)); rank++) {
        rc = (mpath_status_t)all[rank];
    }
    free(all);
    return rc;
}

/* Rank 0 creates a segment, the others attach it; its name is gone afterwards. Collective. */
static mpath_status_t board_share(mpath_team_t *team, size_t bytes, mpath_segment_t *segment)
{
    board_offer_t mine    = {.status = MPATH_OK}, *all;
    mpath_segment_t made  = {0};
    mpath_status_t status = MPATH_OK;

    all = calloc((size_t)mpath_team_size(team), sizeof(*all));
    if (all == NULL) {
        mpath_team_break(team, MPATH_ERR_NO_MEMORY);
        return MPATH_ERR_NO_MEMORY;
    }
    if (mpath_team_rank(team) == 0) {
        mine.status = mpath_segment_create(bytes, &made);
        memcpy(mine.name, made.name, sizeof(mine.name));
    }
    status = mpath_team_allgather(team, &mine, sizeof(mine), all);
    if (status == MPATH_OK) {
        status = (mpath_status_t)all[0].status;
        if ((status == MPATH_OK) && (mpath_team_rank(team) != 0)) {
            status = mpath_segment_attach(all[0].name, bytes, &made);
        }
        status = board_all(team, status);
    }
    free(all);
    if (mpath_team_rank(team) == 0) {
        mpath_segment_unlink(&made);
    }
    if (status != MPATH_OK) {
        mpath_segment_detach(&made);
        return status;
    }
    *segment = made;
    return MPATH_OK;
}

mpath_status_t mpath_board_open(mpath_team_t *team, mpath_board_t *board)
{
    size_t size       = (size_t)mpath_team_size(team);
    size_t cells      = align_to(size * sizeof(mpath_board_words_t), BOARD_PAGE);
    size_t cells_half = align_to(size * sizeof(mpath_board_cell_t), 64);
    size_t rows = cells + 2 * cells_half, rows_half = align_to(size * size * sizeof(uint64_t), 64);
    mpath_board_t made = {.team = team, .size = (int)size, .me = mpath_team_rank(team)};
    mpath_status_t status;

    status = board_share(team, align_to(rows + 2 * rows_half, BOARD_PAGE), &made.segment);
    if (status != MPATH_OK) {
        return status;
    }
    made.words = made.segment.base;
    for (int half = 0; half < 2; half++) {
        char *base         = made.segment.base;
        made.cells[half]   = (mpath_board_cell_t *)(void *)(base + cells + (size_t)half * cells_half);
        made.offsets[half] = (uint64_t *)(void *)(base + rows + (size_t)half * rows_half);
    }
    *board = made;
    return MPATH_OK;
}

void mpath_board_close(mpath_board_t *board)
{
    mpath_staged_close(board->staged);
    mpath_pinned_release(&board->slots_pinned);
    mpath_pinned_release(&board->pinned);
    mpath_segment_detach(&board->slots);
    mpath_segment_detach(&board->segment);
    mpath_pins_give(board->slots_bytes);
    memset(board, 0, sizeof(*board));
}

mpath_status_t mpath_board_register(mpath_board_t *board, mpath_gpu_t *gpu)
{
    mpath_status_t status = MPATH_OK;

    mpath_pinned_release_lost(&board->pinned);
    mpath_pinned_release_lost(&board->slots_pinned);
    if (board->pinned.base == NULL) {
        status = mpath_pinned_register(gpu, board->segment.base, board->segment.bytes, &board->pinned);
    }
    if ((status == MPATH_OK) && (board->slots.base != NULL) && (board->slots_pinned.base == NULL)) {
        status = mpath_pinned_register(gpu, board->slots.base, board->slots.bytes, &board->slots_pinned);
    }
    return status;
}

/* What this rank can have of so many bytes, noted as taken. */
static uint64_t claim_slots(const mpath_board_t *board, uint64_t bytes)
{
    uint64_t free_bytes = mpath_shared_memory_free() / 4 / (uint64_t)board->size;
    uint64_t limit      = mpath_team_settings(board->team)->gpu_pinned_bytes;

    bytes = (free_bytes < bytes) ? free_bytes : bytes;
    bytes = mpath_pins_share(limit, bytes);
    return ((bytes >= SLOTS_LEAST_BYTES) && mpath_pins_take(limit, bytes)) ? bytes : 0;
}

/* What all ranks can have: board->slots_bytes, which 0 may be. */
static mpath_status_t agree_on_slots(mpath_board_t *board, uint64_t memory_bytes)
{
    uint64_t *all = calloc((size_t)board->size, sizeof(*all)), mine, least;
    mpath_status_t status;

    if (all == NULL) {
        mpath_team_break(board->team, MPATH_ERR_NO_MEMORY);
        return MPATH_ERR_NO_MEMORY;
    }
    least = mine = claim_slots(board, memory_bytes);
    status       = mpath_team_allgather(board->team, &mine, sizeof(mine), all);
    for (int rank = 0; (status == MPATH_OK) && (rank < board->size); rank++) {
        least = (all[rank] < least) ? all[rank] : least;
    }
    free(all);
    mpath_pins_give(mine - least);
    board->slots_bytes = least;
    return status;
}

static mpath_status_t make_slots(mpath_board_t *board, mpath_gpu_t *gpu)
{
    mpath_staged_shape_t shape;
    mpath_status_t status;

    if (board->slots_bytes == 0) {
        return MPATH_ERR_NO_MEMORY; /* all ranks know */
    }
    mpath_staged_shape_choose(board->size, board->slots_bytes, &shape);
    status = board_share(board->team, mpath_staged_region_bytes(&shape), &board->slots);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_staged_open(board->slots.base, &shape, board->me, &board->staged);
    if ((status == MPATH_OK) && (gpu != NULL)) {
        status = mpath_board_register(board, gpu);
    }
    return board_all(board->team, status);
}

mpath_status_t mpath_board_open_slots(mpath_board_t *board, uint64_t memory_bytes, mpath_gpu_t *gpu)
{
    mpath_status_t status;

    if (mpath_pause_passes(&board->slots_pause)) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = agree_on_slots(board, memory_bytes);
    if (status == MPATH_OK) {
        status = make_slots(board, gpu);
    }
    mpath_pause_note(&board->slots_pause, status == MPATH_OK);
    if (status != MPATH_OK) {
        mpath_staged_close(board->staged);
        mpath_pinned_release(&board->slots_pinned);
        mpath_segment_detach(&board->slots);
        mpath_pins_give(board->slots_bytes);
        board->staged      = NULL;
        board->slots_bytes = 0;
    }
    return status;
}

int mpath_board_meet(mpath_board_t *board, uint64_t number, uint64_t ranks, uint64_t limit_ns)
{
    uint64_t start_ns = mpath_time_ns();
    int rank          = 0;

    atomic_store_explicit(&board->words[board->me].ready, number, memory_order_release);
    while (rank < board->size) {
        if (!((ranks >> rank) & 1) ||
            (atomic_load_explicit(&board->words[rank].ready, memory_order_acquire) >= number)) {
            rank++;
        } else if (mpath_time_ns() - start_ns > limit_ns) {
            return 0;
        }
    }
    return 1;
}

int mpath_board_is_alive(const mpath_board_t *board, int half, int rank)
{
    return mpath_process_alive(&board->cells[half][rank].process);
}
