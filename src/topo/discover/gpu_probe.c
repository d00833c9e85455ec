/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measurements of the probe. A step enqueues copies on one stream of each GPU that takes part and waits for all of
 * them; the best of several tries counts, since whatever disturbs makes it slower.
 */
#include "topo/discover/gpu_probe.h"

#include "device/kernels/copy.h"
#include "device/pinned.h"
#include "device/stream.h"
#include "device/usage.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define PEER_BYTES (UINT64_C(128) << 20) /* of each copy between GPUs, unless the caller says otherwise */
#define HOST_SHARE 4                     /* the same divided by this: of each copy to or from the host */
#define COPIES 4                         /* enqueued behind each other */
#define TRIES 4                          /* the first one warms up */
#define LATENCY_TRIES 51
#define LATENCY_BYTES 4096
#define DEADLINE_NS UINT64_C(20000000000)
#define PAGE_BYTES UINT64_C(4096)

enum { STREAM_OUT, STREAM_BACK, NUM_STREAMS };

/* One GPU of the probe. */
typedef struct probe_gpu {
    mpath_gpu_t *gpu;
    mpath_stream_t *streams[NUM_STREAMS];
    mpath_device_ptr_t memory; /* peer_bytes to send from, then peer_bytes to receive into */
    uint64_t memory_bytes;
    mpath_pinned_t pinned; /* the same with host_bytes */
    uint32_t reaches;      /* as in the survey */
    int has_kernels;
} probe_gpu_t;

typedef struct prober {
    int num_gpus;
    uint64_t peer_bytes, host_bytes;
    probe_gpu_t gpus[MPATH_MAX_GPUS];
} prober_t;

/* A copy of one step. */
typedef struct probe_copy {
    int gpu, stream;
    mpath_device_ptr_t target, source;
    uint64_t bytes;
    int by_kernel;
} probe_copy_t;

/* --- set-up ------------------------------------------------------------------------------------------------------ */

static mpath_status_t gpu_prepare(const prober_t *prober, const mpath_gpu_info_t *info, probe_gpu_t *gpu)
{
    mpath_status_t status = mpath_gpu_get(info->ordinal, NULL, &gpu->gpu);
    mpath_device_result_t result;
    unsigned i;

    for (i = 0; (i < NUM_STREAMS) && (status == MPATH_OK); i++) {
        status = mpath_stream_get(gpu->gpu, i, &gpu->streams[i]);
    }
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_gpu_enter(gpu->gpu);
    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_gpu_memory_take(&gpu->memory, 2 * prober->peer_bytes);
    mpath_gpu_leave(gpu->gpu);
    if (result != MPATH_DEVICE_DONE) {
        mpath_error("probe: %llu bytes on GPU %d: %s; nothing is measured",
                    (unsigned long long)(2 * prober->peer_bytes), info->ordinal, mpath_device_error_string(result));
        return mpath_device_status(result);
    }
    gpu->memory_bytes = 2 * prober->peer_bytes;
    gpu->has_kernels  = mpath_kernels_usable(gpu->gpu);
    return mpath_pinned_alloc(gpu->gpu, 2 * prober->host_bytes, &gpu->pinned);
}

static void gpu_release(probe_gpu_t *gpu)
{
    mpath_gpu_memory_give(gpu->gpu, gpu->memory, gpu->memory_bytes);
    mpath_pinned_release(&gpu->pinned);
}

/* --- steps ------------------------------------------------------------------------------------------------------- */

static mpath_status_t copy_enqueue(prober_t *prober, const probe_copy_t *copy)
{
    const mpath_kernel_fragment_t fragment = {.target = copy->target, .source = copy->source, .bytes = copy->bytes};
    const mpath_launch_copy_t launch       = {.fragments = &fragment, .fragments_count = 1};
    mpath_stream_t *stream                 = prober->gpus[copy->gpu].streams[copy->stream];

    return copy->by_kernel ? mpath_launch_copy(stream, &launch)
                           : mpath_stream_copy(stream, copy->target, copy->source, copy->bytes);
}

/* All copies at once, each `times` times; *elapsed_ns_p from the first call to the last end. */
static mpath_status_t step_time(prober_t *prober, const probe_copy_t *copies, int count, int times,
                                uint64_t *elapsed_ns_p)
{
    mpath_mark_t marks[2 * MPATH_MAX_GPUS];
    uint64_t start_ns = mpath_time_ns();
    mpath_status_t status;
    int i, k;

    for (k = 0; k < times; k++) {
        for (i = 0; i < count; i++) {
            status = copy_enqueue(prober, &copies[i]);
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    for (i = 0; i < count; i++) {
        status = mpath_stream_mark(prober->gpus[copies[i].gpu].streams[copies[i].stream], &marks[i]);
        if (status != MPATH_OK) {
            return status;
        }
    }
    for (i = 0; i < count; i++) {
        status = mpath_stream_finish(prober->gpus[copies[i].gpu].streams[copies[i].stream], marks[i], DEADLINE_NS,
                                     "a copy of the probe");
        if (status != MPATH_OK) {
            return status;
        }
    }
    *elapsed_ns_p = mpath_time_ns() - start_ns;
    return MPATH_OK;
}

/* Bytes per second of each of them, when all run at once. */
static mpath_status_t step_rate(prober_t *prober, const probe_copy_t *copies, int count, uint64_t *bps_p)
{
    uint64_t elapsed_ns = 0, best_ns = UINT64_MAX;
    mpath_status_t status;
    int i;

    for (i = 0; i < TRIES; i++) {
        status = step_time(prober, copies, count, COPIES, &elapsed_ns);
        if (status != MPATH_OK) {
            return status;
        }
        best_ns = ((i > 0) && (elapsed_ns < best_ns)) ? elapsed_ns : best_ns;
    }
    *bps_p = (uint64_t)((double)copies[0].bytes * COPIES * 1e9 / (double)(best_ns > 0 ? best_ns : 1));
    *bps_p = (*bps_p < MPATH_MAX_RATE_BPS) ? *bps_p : MPATH_MAX_RATE_BPS;
    return MPATH_OK;
}

static int compare_u64(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a < b) ? -1 : (a > b);
}

static mpath_status_t step_latency(prober_t *prober, const probe_copy_t *copy, uint32_t *latency_ns_p)
{
    uint64_t times_ns[LATENCY_TRIES] = {0};
    mpath_status_t status;
    int i;

    for (i = 0; i < LATENCY_TRIES; i++) {
        status = step_time(prober, copy, 1, 1, &times_ns[i]);
        if (status != MPATH_OK) {
            return status;
        }
    }
    qsort(times_ns, LATENCY_TRIES, sizeof(times_ns[0]), compare_u64);
    *latency_ns_p = (uint32_t)times_ns[LATENCY_TRIES / 2];
    return MPATH_OK;
}

/* --- what is copied ---------------------------------------------------------------------------------------------- */

static probe_copy_t copy_up(const prober_t *prober, int g)
{
    const probe_gpu_t *gpu = &prober->gpus[g];

    return (probe_copy_t){.gpu    = g,
                          .stream = STREAM_OUT,
                          .target = gpu->pinned.device_base,
                          .source = gpu->memory,
                          .bytes  = prober->host_bytes};
}

static probe_copy_t copy_down(const prober_t *prober, int g)
{
    const probe_gpu_t *gpu = &prober->gpus[g];

    return (probe_copy_t){.gpu    = g,
                          .stream = STREAM_BACK,
                          .target = gpu->memory + prober->peer_bytes,
                          .source = gpu->pinned.device_base + prober->host_bytes,
                          .bytes  = prober->host_bytes};
}

static probe_copy_t copy_peer(const prober_t *prober, int from, int to)
{
    return (probe_copy_t){.gpu    = from,
                          .stream = STREAM_OUT,
                          .target = prober->gpus[to].memory + prober->peer_bytes,
                          .source = prober->gpus[from].memory,
                          .bytes  = prober->peer_bytes};
}

void mpath_gpu_probe_even(uint64_t first_bps, uint64_t second_bps, uint64_t *first_bytes, uint64_t *second_bytes)
{
    double first  = (double)*second_bytes * (double)first_bps / (double)second_bps;
    double second = (double)*first_bytes * (double)second_bps / (double)first_bps;

    if (first < (double)*first_bytes) {
        *first_bytes = (uint64_t)first & ~(PAGE_BYTES - 1);
        *first_bytes = (*first_bytes > PAGE_BYTES) ? *first_bytes : PAGE_BYTES;
    } else {
        *second_bytes = (uint64_t)second & ~(PAGE_BYTES - 1);
        *second_bytes = (*second_bytes > PAGE_BYTES) ? *second_bytes : PAGE_BYTES;
    }
}

uint64_t mpath_gpu_probe_added(uint64_t alone_bps, uint64_t beside_bps, uint64_t bytes, uint64_t added_bytes)
{
    double bps = (double)beside_bps * (double)(bytes + added_bytes) / (double)bytes - (double)alone_bps;

    if (bps < 1) {
        return 1;
    }
    return (bps < (double)MPATH_MAX_RATE_BPS) ? (uint64_t)bps : MPATH_MAX_RATE_BPS;
}

static mpath_status_t probe_host(prober_t *prober, mpath_gpu_probe_t *probe)
{
    probe_copy_t copies[2 * MPATH_MAX_GPUS];
    mpath_status_t status;
    uint64_t each_bps = 0;
    int g;

    for (g = 0; g < prober->num_gpus; g++) {
        copies[2 * g]     = copy_up(prober, g);
        copies[2 * g + 1] = copy_down(prober, g);
        if (((status = step_rate(prober, &copies[2 * g], 1, &probe->up_bps[g])) != MPATH_OK) ||
            ((status = step_rate(prober, &copies[2 * g + 1], 1, &probe->down_bps[g])) != MPATH_OK) ||
            ((status = step_rate(prober, &copies[2 * g], 2, &probe->both_bps[g])) != MPATH_OK)) {
            return status;
        }
    }
    status          = step_rate(prober, copies, 2 * prober->num_gpus, &each_bps);
    probe->host_bps = each_bps * (uint64_t)prober->num_gpus;
    return status;
}

static int probe_reaches(const prober_t *prober, int from, int to)
{
    const probe_gpu_t *gpu = &prober->gpus[from];

    return (from != to) && ((gpu->reaches >> to) & 1) &&
           mpath_gpu_reaches(gpu->gpu, mpath_gpu_info_of(prober->gpus[to].gpu)->ordinal);
}

static mpath_status_t probe_pairs(prober_t *prober, mpath_gpu_probe_t *probe)
{
    probe_copy_t copy;
    mpath_status_t status;
    int from, to;

    for (from = 0; from < prober->num_gpus; from++) {
        for (to = 0; to < prober->num_gpus; to++) {
            if (!probe_reaches(prober, from, to)) {
                continue;
            }
            copy   = copy_peer(prober, from, to);
            status = step_rate(prober, &copy, 1, &probe->copy_bps[from][to]);
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

/* From the next GPU and from the host at once. */
static mpath_status_t probe_beside(prober_t *prober, int g, mpath_gpu_probe_t *probe)
{
    int next               = (g + 1) % prober->num_gpus;
    probe_copy_t copies[2] = {copy_peer(prober, next, g), copy_down(prober, g)};
    uint64_t alone_bps = 0, bps = 0;
    mpath_status_t status;

    copies[1].target = prober->gpus[g].memory;
    mpath_gpu_probe_even(probe->copy_bps[next][g], probe->down_bps[g], &copies[0].bytes, &copies[1].bytes);
    status = step_rate(prober, copies, 1, &alone_bps);
    if (status == MPATH_OK) {
        status = step_rate(prober, copies, 2, &bps);
    }
    probe->beside_bps[g] = mpath_gpu_probe_added(alone_bps, bps, copies[0].bytes, copies[1].bytes);
    return status;
}

/* With the next GPU, where each reaches the other. */
static mpath_status_t probe_neighbour(prober_t *prober, int g, mpath_gpu_probe_t *probe)
{
    int next               = (g + 1) % prober->num_gpus;
    probe_copy_t copies[2] = {copy_peer(prober, g, next), copy_peer(prober, next, g)};
    mpath_status_t status  = step_rate(prober, copies, 2, &probe->each_way_bps[g]);

    status = (status == MPATH_OK) ? probe_beside(prober, g, probe) : status;
    if ((status != MPATH_OK) || !prober->gpus[g].has_kernels) {
        return status;
    }
    copies[0].by_kernel = 1;
    return step_rate(prober, copies, 1, &probe->kernel_bps[g]);
}

static mpath_status_t probe_latency(prober_t *prober, mpath_gpu_probe_t *probe)
{
    probe_copy_t copy = copy_peer(prober, 0, 1);
    mpath_status_t status;

    copy.bytes = LATENCY_BYTES;
    status     = step_latency(prober, &copy, &probe->copy_latency_ns);
    if ((status != MPATH_OK) || !prober->gpus[0].has_kernels) {
        return status;
    }
    copy.by_kernel = 1;
    return step_latency(prober, &copy, &probe->kernel_latency_ns);
}

static mpath_status_t probe_peers(prober_t *prober, mpath_gpu_probe_t *probe)
{
    mpath_status_t status = probe_pairs(prober, probe);
    probe_copy_t ring[MPATH_MAX_GPUS];
    int g, next, closed = prober->num_gpus > 1;

    for (g = 0; (g < prober->num_gpus) && (status == MPATH_OK) && (prober->num_gpus > 1); g++) {
        next    = (g + 1) % prober->num_gpus;
        ring[g] = copy_peer(prober, g, next);
        if ((probe->copy_bps[g][next] > 0) && (probe->copy_bps[next][g] > 0)) {
            status = probe_neighbour(prober, g, probe);
        } else {
            closed = 0;
        }
    }
    if ((status != MPATH_OK) || !closed) {
        return status;
    }
    status = step_rate(prober, ring, prober->num_gpus, &probe->ring_bps);
    return (status == MPATH_OK) ? probe_latency(prober, probe) : status;
}

mpath_status_t mpath_gpu_probe_run(const mpath_gpu_survey_t *survey, uint64_t bytes, mpath_gpu_probe_t *probe_p)
{
    prober_t *prober        = calloc(1, sizeof(*prober));
    mpath_gpu_probe_t probe = {.num_gpus = survey->num_gpus};
    mpath_status_t status   = MPATH_OK;
    int g;

    if (prober == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    prober->num_gpus   = survey->num_gpus;
    prober->peer_bytes = (bytes > 0) ? bytes : PEER_BYTES;
    prober->host_bytes = (prober->peer_bytes + HOST_SHARE - 1) / HOST_SHARE;
    for (g = 0; (g < survey->num_gpus) && (status == MPATH_OK); g++) {
        prober->gpus[g].reaches = survey->gpus[g].reaches;
        status                  = gpu_prepare(prober, &survey->gpus[g].info, &prober->gpus[g]);
    }
    if (status == MPATH_OK) {
        status = probe_host(prober, &probe);
    }
    if (status == MPATH_OK) {
        status = probe_peers(prober, &probe);
    }
    for (g = 0; g < survey->num_gpus; g++) {
        gpu_release(&prober->gpus[g]);
    }
    free(prober);
    if (status == MPATH_OK) {
        *probe_p = probe;
    }
    return status;
}
