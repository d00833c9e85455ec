/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Board: the memory that the ranks of a node share to move device buffers, besides the team's own. One per communicator
 * of a single node, made collectively by its first call with device memory.
 *
 *   words     [ranks]             a line each: numbers that a rank's GPU writes when its copies are done, and others
 *                                 await
 *   cells     [2][ranks]          what a rank tells of its buffers in a call
 *   offsets   [2][ranks][ranks]   where in rank r's receive buffer the message of each source belongs
 *
 * Cells and offsets are double buffered like the agreement's own cells: call k uses half k % 2, is written before the
 * agreement of call k and read after it. A rank that writes half k % 2 has seen all others in the agreement of call
 * k - 1, so nobody still reads what call k - 2 left there.
 *
 * The slots of the lane "staged" are a segment of their own, made by the first call that needs them.
 */
#ifndef MPATH_NODE_BOARD_H
#define MPATH_NODE_BOARD_H

#include "team/agree.h"
#include "team/team.h"
#include "device/ipc_export.h"
#include "device/pinned.h"
#include "lane/segment.h"
#include "node/staged.h"
#include "util/pause.h"
#include "util/process.h"

#include <stdatomic.h>

/* The sides of a call: what others write to, and what they read. */
enum { MPATH_BOARD_RECV, MPATH_BOARD_SEND, MPATH_BOARD_SIDES };

/* Numbers that only grow: the number of a call says that the words' owner has done all of that kind in it. */
typedef struct mpath_board_words {
    _Atomic uint64_t kernel_done;
    _Atomic uint64_t engine_done;
    _Atomic uint64_t number; /* of the call, for kernels of the owner whose arguments do not tell it */
    _Atomic uint64_t stop;   /* the host gives the call up: kernels of the owner wait no longer */
    _Atomic uint64_t ready;  /* the owner's engine would start now: mpath_board_meet() */
    uint8_t padding[24];
} mpath_board_words_t;

/* Whether streams of a side's GPU wait for words that those of other ranks write. */
enum {
    MPATH_BOARD_WAITS_NOT,
    MPATH_BOARD_WAITS_ALONE,  /* where no other rank has memory on the GPU: processes may take turns on it */
    MPATH_BOARD_WAITS_BESIDE, /* also where others do: CUDA MPS lets them work at once */
};

typedef struct mpath_board_side {
    uint32_t kind;         /* mpath_memory_kind_t */
    int32_t device;        /* mpath_gpu_number() in its process; -1: memory that no GPU of this side works on */
    int32_t waits;         /* MPATH_BOARD_WAITS_NOT... */
    uint64_t address;      /* of the buffer, in its owner */
    mpath_export_t memory; /* how NONE: others cannot open it; the uuid is that of the device in any case */
} mpath_board_side_t;

/* Of large reductions, a part of which may go through the host: see node/reduce.c. */
typedef struct mpath_board_host {
    uint64_t capacity_bytes;      /* for what others send through the host in the call; 0: nothing goes there */
    uint64_t call;                /* an earlier one, of which the times are: how long */
    uint64_t first_ns, second_ns; /* what went from GPU to GPU took, and what went through the host */
} mpath_board_host_t;

typedef struct mpath_board_cell {
    uint64_t generation; /* as long as it stays the same, so do both sides but for the addresses within the memory */
    int32_t kernels;     /* the sending GPU runs mpath's kernels */
    uint32_t place;      /* changes with the GPU or the context of the send buffer */
    int32_t turns;       /* processes take turns on the sending GPU, or else the receiving one */
    int32_t claimed;     /* in this call its GPU may wait for those of others; not part of the generation */
    int32_t eager;       /* GPU_EAGER_NOT...: of kernels that are started before the agreement. Neither is this, */
    int32_t ready;       /* nor this: it has all that its GPUs need in a call */
    mpath_board_host_t host; /* not part of the generation */
    mpath_process_t process;
    mpath_board_side_t sides[MPATH_BOARD_SIDES];
} mpath_board_cell_t;

typedef struct mpath_board {
    mpath_team_t *team;
    int size, me;
    mpath_segment_t segment, slots;
    mpath_board_words_t *words;
    mpath_board_cell_t *cells[2];
    uint64_t *offsets[2];                /* see mpath_board_offsets() */
    mpath_pinned_t pinned, slots_pinned; /* zeroed until this rank has a GPU */
    uint64_t slots_bytes;                /* of a rank, noted in device/usage.h */
    mpath_pause_t slots_pause;           /* since some rank could not have them; the same on all ranks */
    mpath_staged_t *staged;              /* NULL until a call needed it */
} mpath_board_t;

/* Collective. On an error nobody has a board; logged by the rank on which it went wrong. */
mpath_status_t mpath_board_open(mpath_team_t *team, mpath_board_t *board);
void mpath_board_close(mpath_board_t *board);

/* Makes the shared memory known to the GPUs of this process; once, and when that GPU is lost. Errors are logged. */
mpath_status_t mpath_board_register(mpath_board_t *board, mpath_gpu_t *gpu);

/*
 * Collective: makes the slots of the lane "staged", at most `memory_bytes` for each rank, and as much as all may pin and
 * /dev/shm holds. Either all ranks have them or all get an error, and for a while (util/pause.h) each time.
 */
mpath_status_t mpath_board_open_slots(mpath_board_t *board, uint64_t memory_bytes, mpath_gpu_t *gpu);
/* After such an error: whether they have been asked for, and not left out for the time being. */
static inline int mpath_board_asked_for_slots(const mpath_board_t *board)
{
    return board->slots_pause.left == board->slots_pause.length;
}

/*
 * The ranks of `ranks`, a mask with this one in it, wait for each other, this one for no longer than limit_ns; whether
 * all have come. They start together then; that they have is nothing to rely on.
 */
int mpath_board_meet(mpath_board_t *board, uint64_t number, uint64_t ranks, uint64_t limit_ns);

/* Whether a rank's process still lives, as far as its last cell tells. */
int mpath_board_is_alive(const mpath_board_t *board, int half, int rank);

/* Row of a rank: one entry for every source. */
static inline uint64_t *mpath_board_offsets(const mpath_board_t *board, int half, int rank)
{
    return board->offsets[half] + (size_t)rank * (size_t)board->size;
}

static inline mpath_device_ptr_t mpath_board_device(const mpath_board_t *board, const volatile void *word)
{
    return mpath_pinned_device(&board->pinned, word);
}

#endif
