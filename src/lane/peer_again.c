/* SPDX-License-Identifier: BSD-3-Clause */
/* The launches of a communicator's last calls, and repeats of those that came again. */
#include "lane/peer_again.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_KEPT 8
#define AGAIN_BEFORE_REPEAT 2 /* making one costs as much as it saves in some 20 launches */

typedef struct again_launch {
    mpath_stream_t *stream; /* NULL: empty */
    mpath_kernel_piece_t pieces[MPATH_KERNEL_PIECES_FEW];
    unsigned count, ctas;
    unsigned times;
    uint64_t used;          /* clock of the last launch */
    mpath_repeat_t *repeat; /* NULL: not made */
} again_launch_t;

struct mpath_peer_again {
    uint64_t clock;
    int refused; /* this driver takes no graphs */
    again_launch_t kept[AGAIN_KEPT];
};

mpath_peer_again_t *mpath_peer_again_create(void)
{
    return calloc(1, sizeof(mpath_peer_again_t));
}

void mpath_peer_again_destroy(mpath_peer_again_t *again)
{
    for (int i = 0; (again != NULL) && (i < AGAIN_KEPT); i++) {
        mpath_repeat_destroy(again->kept[i].repeat);
    }
    free(again);
}

/* The entry of this launch: an old one, or one in the place of that which has not been used for longest. */
static again_launch_t *find_launch(mpath_peer_again_t *again, mpath_stream_t *stream, const mpath_launch_copy_t *launch)
{
    size_t bytes           = launch->pieces_count * sizeof(*launch->pieces);
    again_launch_t *oldest = &again->kept[0];

    again->clock++;
    for (int i = 0; i < AGAIN_KEPT; i++) {
        again_launch_t *kept = &again->kept[i];

        if ((kept->stream == stream) && (kept->count == launch->pieces_count) && (kept->ctas == launch->ctas) &&
            (memcmp(kept->pieces, launch->pieces, bytes) == 0)) {
            kept->used = again->clock;
            return kept;
        }
        oldest = (kept->used < oldest->used) ? kept : oldest;
    }
    mpath_repeat_destroy(oldest->repeat);
    *oldest = (again_launch_t){
        .stream = stream, .count = launch->pieces_count, .ctas = launch->ctas, .used = again->clock};
    memcpy(oldest->pieces, launch->pieces, bytes);
    return oldest;
}

mpath_status_t mpath_peer_again_launch(mpath_peer_again_t *again, mpath_stream_t *stream,
                                       const mpath_launch_copy_t *launch, const mpath_peer_number_t *number)
{
    mpath_status_t status = MPATH_OK;
    again_launch_t *kept;

    if ((again == NULL) || again->refused || (launch->pieces_count > MPATH_KERNEL_PIECES_FEW)) {
        return mpath_launch_copy(stream, launch);
    }
    kept = find_launch(again, stream, launch);
    if ((kept->repeat == NULL) && (kept->times++ >= AGAIN_BEFORE_REPEAT)) {
        status         = mpath_repeat_copy(stream, launch, number->address, &kept->repeat);
        again->refused = status == MPATH_ERR_UNSUPPORTED;
    }
    if (kept->repeat == NULL) {
        return again->refused || (status == MPATH_OK) ? mpath_launch_copy(stream, launch) : status;
    }
    atomic_store_explicit(number->word, launch->flags[0].value, memory_order_release);
    return mpath_repeat_start(kept->repeat);
}
