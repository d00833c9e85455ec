/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane "peer": pieces onto a stream, for copy engines or as one kernel, and what each way takes. */
#include "lane/peer.h"

#define LOCAL_CTAS 16 /* of a copy inside a GPU beside engine copies */

mpath_status_t mpath_peer_engine(mpath_stream_t *stream, const mpath_peer_piece_t *pieces, unsigned count,
                                 mpath_peer_word_t done)
{
    mpath_status_t status = mpath_stream_enter(stream);

    if (status != MPATH_OK) {
        return status;
    }
    for (unsigned i = 0; (status == MPATH_OK) && (i < count); i++) {
        status = mpath_stream_copy(stream, pieces[i].target, pieces[i].source, (size_t)pieces[i].bytes);
    }
    if ((status == MPATH_OK) && (done.address != 0)) {
        status = mpath_stream_write(stream, done.address, done.value);
    }
    mpath_stream_leave(stream);
    return status;
}

mpath_status_t mpath_peer_kernel(mpath_stream_t *stream, const mpath_kernel_piece_t *pieces, unsigned count,
                                 mpath_peer_word_t done)
{
    const mpath_kernel_word_t flag = {.address = done.address, .value = done.value};
    const mpath_launch_copy_t copy = {
        .pieces = pieces, .pieces_count = count, .flags = &flag, .flags_count = (done.address != 0) ? 1 : 0};

    return mpath_launch_copy(stream, &copy);
}

mpath_status_t mpath_peer_local(mpath_stream_t *stream, mpath_cu_ptr_t target, mpath_cu_ptr_t source, uint64_t bytes)
{
    const mpath_kernel_piece_t piece = {.target = target, .source = source, .bytes = bytes};
    const mpath_launch_copy_t copy   = {.pieces = &piece, .pieces_count = 1, .ctas = LOCAL_CTAS};
    mpath_status_t status            = mpath_launch_copy(stream, &copy);

    return (status == MPATH_ERR_UNSUPPORTED) ? mpath_stream_copy(stream, target, source, (size_t)bytes) : status;
}

/*
 * Measured between 4 processes on 4 H200: what a port carries, in bytes per microsecond, while its GPU only sends or only
 * receives, and while it does both alike; the start to end of an exchange whose bytes do not matter; a further piece.
 */
static const struct {
    uint64_t one_way, both_ways, start_ns, piece_ns;
} peer_model[] = {
    [MPATH_PEER_KERNEL] = {372000, 312000, 15000, 0},
    [MPATH_PEER_PUSH]   = {392000, 275000, 13000, 2000},
    [MPATH_PEER_PULL]   = {376000, 348000, 14000, 2000},
};

/* Between only in or out and both alike, a pull has been seen to be slower than at either end. */
#define PULL_BETWEEN 290000u
#define PULL_ALIKE_PERCENT 90u

uint64_t mpath_peer_predict_ns(mpath_peer_way_t way, const mpath_peer_load_t *load)
{
    uint64_t one_way = peer_model[way].one_way, both_ways = peer_model[way].both_ways, slow_bytes, percent;

    if (load->port_bytes == 0) {
        return 0;
    }
    /* How much of what the busiest port carries, the GPU carries the other way at the same time. */
    slow_bytes = (load->both_bytes > load->port_bytes) ? load->both_bytes - load->port_bytes : 0;
    slow_bytes = (slow_bytes > load->port_bytes) ? load->port_bytes : slow_bytes;
    percent    = slow_bytes * 100 / load->port_bytes;
    if ((way == MPATH_PEER_PULL) && (percent < PULL_ALIKE_PERCENT)) {
        both_ways  = PULL_BETWEEN;
        slow_bytes = (percent > 5) ? load->port_bytes : slow_bytes;
    }
    return peer_model[way].start_ns + load->pieces * peer_model[way].piece_ns +
           (load->port_bytes - slow_bytes) * 1000 / one_way + slow_bytes * 1000 / both_ways;
}
