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
 * Measured between 4 processes on 4 H200 behind an NVSwitch. What a byte takes at the busiest port grows with what its GPU
 * carries the other way at the same time, `alone` + `alike` x share, and is never less than `least`; femtoseconds. Besides
 * that: from start to end when bytes do not matter, and for each piece. Where every GPU sends as much as it receives,
 * engines vary: a pull was seen at 2870 in a process without NCCL and at 3700 in one that uses it as well; the kernel does not.
 */
typedef struct peer_model {
    uint64_t start_ns, piece_ns, least_fs, alone_fs, alike_fs;
} peer_model_t;

static const peer_model_t kernel_model     = {15000, 0, 2700, 2330, 960};
static const peer_model_t push_model       = {14000, 1000, 2550, 2050, 1600};
static const peer_model_t pull_model       = {16000, 1000, 2650, 2000, 2500};
static const peer_model_t pull_alike_model = {16000, 1000, 3700, 3700, 0}; /* every GPU sends as much as it receives */

#define PULL_ALIKE_PERCENT 90u

static const peer_model_t *find_model(mpath_peer_way_t way, uint64_t percent)
{
    switch (way) {
    case MPATH_PEER_KERNEL:
        return &kernel_model;
    case MPATH_PEER_PUSH:
        return &push_model;
    default:
        return (percent >= PULL_ALIKE_PERCENT) ? &pull_alike_model : &pull_model;
    }
}

uint64_t mpath_peer_predict_ns(mpath_peer_way_t way, const mpath_peer_load_t *load)
{
    uint64_t other_bytes, percent, byte_fs;
    const peer_model_t *model;

    if (load->port_bytes == 0) {
        return 0;
    }
    other_bytes = (load->both_bytes > load->port_bytes) ? load->both_bytes - load->port_bytes : 0;
    other_bytes = (other_bytes < load->port_bytes) ? other_bytes : load->port_bytes;
    percent     = other_bytes * 100 / load->port_bytes;
    model       = find_model(way, percent);
    byte_fs     = model->alone_fs + model->alike_fs * percent / 100;
    byte_fs     = (byte_fs > model->least_fs) ? byte_fs : model->least_fs;
    return model->start_ns + load->pieces * model->piece_ns + load->port_bytes / 1000 * byte_fs / 1000;
}
