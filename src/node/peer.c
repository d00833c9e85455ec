/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane "peer": fragments onto a stream, for copy engines or as one kernel, and what each takes. */
#include "node/peer.h"

#include <stdlib.h>
#include <string.h>

/* The launches of a communicator's last calls, and repeats of those that came again. */

#define AGAIN_CACHED 8
#define AGAIN_BEFORE_REPEAT 2 /* making one costs as much as it saves in some 20 launches */

typedef struct again_launch {
    mpath_stream_t *stream; /* NULL: empty */
    mpath_kernel_fragment_t fragments[MPATH_KERNEL_FRAGMENTS_FEW];
    unsigned count, ctas;
    unsigned times;
    uint64_t used;          /* clock of the last launch */
    mpath_repeat_t *repeat; /* NULL: not made */
} again_launch_t;

struct mpath_peer_again {
    uint64_t clock;
    int refused; /* this driver takes no graphs */
    again_launch_t cached[AGAIN_CACHED];
};

mpath_peer_again_t *mpath_peer_again_create(void)
{
    return calloc(1, sizeof(mpath_peer_again_t));
}

void mpath_peer_again_destroy(mpath_peer_again_t *again)
{
    for (int i = 0; (again != NULL) && (i < AGAIN_CACHED); i++) {
        mpath_repeat_destroy(again->cached[i].repeat);
    }
    free(again);
}

/* The entry of this launch: an old one, or one in the place of that which has not been used for longest. */
static again_launch_t *find_launch(mpath_peer_again_t *again, mpath_stream_t *stream, const mpath_launch_copy_t *launch)
{
    size_t bytes           = launch->fragments_count * sizeof(*launch->fragments);
    again_launch_t *oldest = &again->cached[0];

    again->clock++;
    for (int i = 0; i < AGAIN_CACHED; i++) {
        again_launch_t *cached = &again->cached[i];

        if ((cached->stream == stream) && (cached->count == launch->fragments_count) &&
            (cached->ctas == launch->ctas) && (memcmp(cached->fragments, launch->fragments, bytes) == 0)) {
            cached->used = again->clock;
            return cached;
        }
        oldest = (cached->used < oldest->used) ? cached : oldest;
    }
    mpath_repeat_destroy(oldest->repeat);
    *oldest = (again_launch_t){
        .stream = stream, .count = launch->fragments_count, .ctas = launch->ctas, .used = again->clock};
    memcpy(oldest->fragments, launch->fragments, bytes);
    return oldest;
}

mpath_status_t mpath_peer_again_launch(mpath_peer_again_t *again, mpath_stream_t *stream,
                                       const mpath_launch_copy_t *launch, const mpath_peer_number_t *number)
{
    mpath_status_t status = MPATH_OK;
    again_launch_t *cached;

    if ((again == NULL) || again->refused || (launch->fragments_count > MPATH_KERNEL_FRAGMENTS_FEW)) {
        return mpath_launch_copy(stream, launch);
    }
    cached = find_launch(again, stream, launch);
    if ((cached->repeat == NULL) && (cached->times++ >= AGAIN_BEFORE_REPEAT)) {
        status         = mpath_repeat_copy(stream, launch, number->address, &cached->repeat);
        again->refused = status == MPATH_ERR_UNSUPPORTED;
    }
    if (cached->repeat == NULL) {
        return again->refused || (status == MPATH_OK) ? mpath_launch_copy(stream, launch) : status;
    }
    atomic_store_explicit(number->word, launch->flags[0].value, memory_order_release);
    return mpath_repeat_start(cached->repeat);
}

/* Fragments that go to the driver in one call. */
#define TOGETHER_MOST 64u

static mpath_status_t copy_together(mpath_stream_t *stream, const mpath_peer_fragment_t *fragments, unsigned count)
{
    mpath_device_ptr_t targets[TOGETHER_MOST], sources[TOGETHER_MOST];
    size_t bytes[TOGETHER_MOST];
    mpath_status_t status = MPATH_OK;

    for (unsigned first = 0; (status == MPATH_OK) && (first < count); first += TOGETHER_MOST) {
        unsigned part = (count - first < TOGETHER_MOST) ? count - first : TOGETHER_MOST;

        for (unsigned i = 0; i < part; i++) {
            targets[i] = fragments[first + i].target;
            sources[i] = fragments[first + i].source;
            bytes[i]   = (size_t)fragments[first + i].bytes;
        }
        status = mpath_stream_copy_all(stream, targets, sources, bytes, part);
    }
    return status;
}

mpath_status_t mpath_peer_engine(mpath_stream_t *stream, const mpath_peer_fragment_t *fragments, unsigned count,
                                 mpath_peer_word_t done)
{
    mpath_status_t status = mpath_stream_enter(stream);

    if (status != MPATH_OK) {
        return status;
    }
    status = copy_together(stream, fragments, count);
    if ((status == MPATH_OK) && (done.address != 0)) {
        status = mpath_stream_write(stream, done.address, done.value);
    }
    mpath_stream_leave(stream);
    return status;
}

/* --- rates ------------------------------------------------------------------------------------------------------- */

static const mpath_peer_rates_t h200_rates = {.pair_bps   = 391000000000,
                                              .kernel_bps = 362000000000,
                                              .staged_bps = 45450000000,
                                              .beside_bps = 45450000000,
                                              .one_bps    = 34087500000,
                                              .both_bps   = 40000000000,
                                              .host_bps   = 80000000000,
                                              .engine_ns  = 8300,
                                              .kernel_ns  = 14300};

/*
 * What copies through the host were seen to reach of what plain ones do, in chunks that several processes handle (2 and
 * 4 H200, doc/benchmarks/2026-11-22-h200.md): of those from the host into one GPU, where several senders take turns, 45
 * of 55 GB/s; from one sender to one receiver, three quarters of that, or 34 of the 54 GB/s out of the sender's GPU; of
 * both directions at once 40 of 44.5 GB/s.
 */
#define STAGED_PER_MILLE 826u

#define ONE_PER_MILLE 750u
#define ONE_OF_UP_PER_MILLE 630u
#define BOTH_PER_MILLE 900u

/* Until the first bytes were there that went through the host from three GPUs to one, and from another to one. */
#define BESIDE_START_NS 245000u

#define ONE_START_NS 60000u

void mpath_peer_rates_init(mpath_peer_rates_t *rates)
{
    *rates = h200_rates;
}

/* The least that was measured; 0: nothing was. */
static uint64_t least_of(const uint64_t *values, int count)
{
    uint64_t least = 0;

    for (int i = 0; i < count; i++) {
        least = ((values[i] > 0) && ((least == 0) || (values[i] < least))) ? values[i] : least;
    }
    return least;
}

static void set_rate(uint64_t *rate, uint64_t measured)
{
    *rate = (measured > 0) ? measured : *rate;
}

static uint64_t less_of(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

/* The paths through the host, and how much of them is left beside the links. */
static void set_host(mpath_peer_rates_t *rates, const mpath_gpu_probe_t *probe)
{
    uint64_t beside = least_of(probe->beside_bps, probe->num_gpus), up = least_of(probe->up_bps, probe->num_gpus);
    uint64_t staged = least_of(probe->down_bps, probe->num_gpus) / 1000 * STAGED_PER_MILLE;

    staged = ((probe->host_bps > 0) && (probe->host_bps < staged)) ? probe->host_bps : staged;
    set_rate(&rates->staged_bps, staged);
    set_rate(&rates->both_bps, least_of(probe->both_bps, probe->num_gpus) / 1000 * BOTH_PER_MILLE);
    set_rate(&rates->host_bps, probe->host_bps);
    rates->beside_bps = (beside > 0) ? less_of(beside, rates->staged_bps) : rates->staged_bps;
    rates->one_bps    = rates->beside_bps / 1000 * ONE_PER_MILLE;
    rates->one_bps    = (up > 0) ? less_of(up / 1000 * ONE_OF_UP_PER_MILLE, rates->one_bps) : rates->one_bps;
}

void mpath_peer_rates_set(mpath_peer_rates_t *rates, const mpath_gpu_probe_t *probe)
{
    uint64_t pair = 0;

    for (int from = 0; from < probe->num_gpus; from++) {
        const uint64_t both[] = {pair, least_of(probe->copy_bps[from], probe->num_gpus)};

        pair = least_of(both, 2);
    }
    set_rate(&rates->pair_bps, pair);
    set_rate(&rates->kernel_bps, least_of(probe->kernel_bps, probe->num_gpus));
    set_host(rates, probe);
    rates->engine_ns = (probe->copy_latency_ns > 0) ? probe->copy_latency_ns : rates->engine_ns;
    rates->kernel_ns = (probe->kernel_latency_ns > 0) ? probe->kernel_latency_ns : rates->kernel_ns;
}

void mpath_peer_beside(const mpath_peer_rates_t *rates, int senders, uint64_t *bps_p, uint64_t *start_ns_p)
{
    uint64_t bps     = (senders == 1) ? rates->one_bps : rates->beside_bps;
    uint64_t of_h200 = (senders == 1) ? h200_rates.one_bps : h200_rates.beside_bps;

    *bps_p      = bps;
    *start_ns_p = ((senders == 1) ? ONE_START_NS : BESIDE_START_NS) * (of_h200 / 1000) / (bps / 1000 + (bps < 1000));
}

/* --- prediction -------------------------------------------------------------------------------------------------- */

/*
 * Measured between processes on 2 and 4 H200 behind an NVSwitch; the kernel's start is that of a repeat. What a byte
 * takes at the busiest port grows with what its GPU carries in the other direction at the same time, `alone` + `alike` x
 * share, and is never less than `least`; femtoseconds. Besides that: from start to end when bytes do not matter, and for each
 * fragment, since an engine begins the next one when the last byte of the one before has arrived. Where memory is mapped
 * in small pages, engines take longer in both directions, and vary: a push was seen at 3200 and at 4070. On other
 * machines all this is stretched as the rates are. An order of many fragments knows better than the busiest port when its
 * last one is through.
 */
typedef struct peer_model {
    uint64_t start_ns, fragment_ns, least_fs, alone_fs, alike_fs;
} peer_model_t;

static const peer_model_t kernel_model = {12400, 0, 2700, 2330, 960};

static const peer_model_t pair_model = {12400, 0, 2700, 2330, 520}; /* the same to one other GPU only */

static const peer_model_t push_model = {10500, 4000, 2525, 2525, 60};

static const peer_model_t small_push_model = {10000, 4000, 2550, 2050, 1600}; /* the same for small pages */

static const peer_model_t *find_model(mpath_peer_lane_t lane, const mpath_peer_load_t *load)
{
    if (lane == MPATH_PEER_KERNEL) {
        return (load->fragments <= 1) ? &pair_model : &kernel_model;
    }
    return load->small_pages ? &small_push_model : &push_model;
}

/* What a byte takes that takes `byte_fs` on the H200. */
static uint64_t stretch(uint64_t byte_fs, mpath_peer_lane_t lane, const mpath_peer_rates_t *rates)
{
    switch (lane) {
    case MPATH_PEER_KERNEL:
        return byte_fs * (h200_rates.kernel_bps / 1000000) / (rates->kernel_bps / 1000000 + 1);
    default:
        return byte_fs * (h200_rates.pair_bps / 1000000) / (rates->pair_bps / 1000000 + 1);
    }
}

static uint64_t start_of(const peer_model_t *model, mpath_peer_lane_t lane, const mpath_peer_rates_t *rates)
{
    uint64_t seen_ns    = (lane == MPATH_PEER_KERNEL) ? rates->kernel_ns : rates->engine_ns;
    uint64_t assumed_ns = (lane == MPATH_PEER_KERNEL) ? h200_rates.kernel_ns : h200_rates.engine_ns;

    return (model->start_ns + seen_ns > assumed_ns) ? model->start_ns + seen_ns - assumed_ns : 0;
}

void mpath_peer_order_rates(const mpath_peer_rates_t *rates, uint64_t *port_bps_p, uint64_t *fragment_ns_p)
{
    *port_bps_p    = 1000000000000000ull / stretch(push_model.alone_fs, MPATH_PEER_PUSH, rates);
    *fragment_ns_p = push_model.fragment_ns;
}

uint64_t mpath_peer_predict_ns(const mpath_peer_rates_t *rates, mpath_peer_lane_t lane, const mpath_peer_load_t *load)
{
    uint64_t other_bytes, percent, byte_fs, port_ns;
    const peer_model_t *model;

    if (load->port_bytes == 0) {
        return 0;
    }
    other_bytes = (load->both_bytes > load->port_bytes) ? load->both_bytes - load->port_bytes : 0;
    other_bytes = (other_bytes < load->port_bytes) ? other_bytes : load->port_bytes;
    percent     = other_bytes * 100 / load->port_bytes;
    model       = find_model(lane, load);
    byte_fs     = model->alone_fs + model->alike_fs * percent / 100;
    byte_fs     = stretch((byte_fs > model->least_fs) ? byte_fs : model->least_fs, lane, rates);
    port_ns     = load->fragments * model->fragment_ns + load->port_bytes / 1000 * byte_fs / 1000;
    if ((lane != MPATH_PEER_KERNEL) && (load->order_ns > port_ns)) {
        port_ns = load->order_ns;
    }
    return start_of(model, lane, rates) + port_ns;
}
