/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane "peer": pieces onto a stream, for copy engines or as one kernel. */
#include "lane/peer.h"

/* Start to finish of a launch whose bytes do not matter, and the rate of a port written by many CTAs. */
#define KERNEL_START_NS 8000u
#define KERNEL_BYTES_PER_US 330000u
/* The same for copy engines, and what each further piece on a stream adds with its words. */
#define ENGINE_START_NS 10000u
#define ENGINE_PIECE_NS 3000u
#define ENGINE_BYTES_PER_US 385000u

static mpath_status_t put_one(mpath_stream_t *stream, const mpath_peer_put_t *put)
{
    mpath_status_t status = MPATH_OK;

    if (put->gate.address != 0) {
        status = mpath_stream_wait(stream, put->gate.address, put->gate.value);
    }
    if (status == MPATH_OK) {
        status = mpath_stream_copy(stream, put->target, put->source, put->bytes);
    }
    if ((status == MPATH_OK) && (put->after.address != 0)) {
        status = mpath_stream_write(stream, put->after.address, put->after.value);
    }
    return status;
}

mpath_status_t mpath_peer_put_engine(mpath_stream_t *stream, const mpath_peer_put_t *puts, unsigned count,
                                     mpath_peer_word_t done)
{
    mpath_status_t status = mpath_stream_enter(stream);

    if (status != MPATH_OK) {
        return status;
    }
    for (unsigned i = 0; (status == MPATH_OK) && (i < count); i++) {
        status = put_one(stream, &puts[i]);
    }
    if ((status == MPATH_OK) && (done.address != 0)) {
        status = mpath_stream_write(stream, done.address, done.value);
    }
    mpath_stream_leave(stream);
    return status;
}

mpath_status_t mpath_peer_put_kernel(mpath_stream_t *stream, const mpath_kernel_piece_t *pieces, unsigned count,
                                     mpath_peer_word_t done)
{
    const mpath_kernel_word_t flag = {.address = done.address, .value = done.value};
    const mpath_launch_copy_t copy = {
        .pieces = pieces, .pieces_count = count, .flags = &flag, .flags_count = (done.address != 0) ? 1 : 0};

    return mpath_launch_copy(stream, &copy);
}

uint64_t mpath_peer_kernel_ns(uint64_t port_bytes)
{
    return KERNEL_START_NS + port_bytes * 1000 / KERNEL_BYTES_PER_US;
}

uint64_t mpath_peer_engine_ns(uint64_t port_bytes, unsigned pieces)
{
    return ENGINE_START_NS + (uint64_t)pieces * ENGINE_PIECE_NS + port_bytes * 1000 / ENGINE_BYTES_PER_US;
}
