/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates of a team's GPUs: whose they are, whether an earlier probe has left them, and what is saved of a new one. */
#include "node/rates.h"

#include "device/ipc_export.h"
#include "device/ipc_import.h"
#include "device/kernels/copy.h"
#include "device/pinned.h"
#include "device/stream.h"
#include "device/usage.h"
#include "team/team.h"
#include "util/log.h"
#include "util/time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/*
 * The measurements. Every rank that stands for a GPU allocates memory there, opens that of the next GPU of its node,
 * and then takes part in phases between which all ranks meet: those in which one GPU of each node copies, then those in
 * which all do. A rank that cannot take part, or has spent its time, goes on meeting the others and tells zeros.
 */

#define PEER_BYTES (UINT64_C(16) << 20) /* of a copy between GPUs; twice that is allocated */
#define HOST_SHARE 4                    /* the same divided by this: of a copy to or from the host */
#define SPARE_SHARE 16                  /* of a GPU's memory has to be free besides */
#define SMALL_BYTES 4096
#define COPIES 4 /* enqueued behind each other */
#define TRIES 4  /* the first one warms up */
#define SMALL_TRIES 11
#define BUDGET_NS (60 * MPATH_NS_PER_MS) /* of a rank; once that is spent there is one try of everything that is left */
#define DEADLINE_NS (5 * MPATH_NS_PER_S)

/* What a rank tells of its memory. */
typedef struct rates_offer {
    int32_t good;
    uint64_t address;
    mpath_export_t memory;
} rates_offer_t;

/* What a rank has measured; bytes per second, 0: not. */
typedef struct rates_found {
    uint64_t up_bps, down_bps, both_bps, copy_bps, kernel_bps, beside_bps; /* alone on the node */
    uint64_t ring_bps, host_bps;                                           /* together with all others */
    uint32_t copy_ns, kernel_ns;
} rates_found_t;

typedef struct measurer {
    mpath_team_t *team;
    int size, me;
    mpath_gpu_t *gpu;     /* NULL: this rank stands for none */
    int number, num_gpus; /* of it on its node */
    int next_rank;        /* that stands for the next GPU; -1: there is only this one */
    mpath_stream_t *out, *back;
    mpath_device_ptr_t memory;
    uint64_t peer_bytes, spent_ns;
    mpath_pinned_t pinned;
    mpath_import_t *import;
    mpath_device_ptr_t theirs; /* where the next GPU receives; 0: out of reach */
    rates_found_t found;
    char *met; /* [size] */
} measurer_t;

typedef struct rates_copy {
    mpath_stream_t *stream;
    mpath_device_ptr_t target, source;
    uint64_t bytes;
    int by_kernel;
} rates_copy_t;

/* The GPUs of a node, and the first rank on each. */
typedef struct rates_node {
    mpath_gpu_survey_t survey; /* what is said of links is not filled in */
    int ranks[MPATH_MAX_GPUS];
    int measures; /* its figures are not known */
} rates_node_t;

/* --- set-up ------------------------------------------------------------------------------------------------------ */

static uint64_t host_bytes(const measurer_t *measurer)
{
    return measurer->peer_bytes / HOST_SHARE;
}

static mpath_status_t take_memory(measurer_t *measurer, uint64_t bytes)
{
    mpath_status_t status        = mpath_gpu_enter(measurer->gpu);
    mpath_device_result_t result = MPATH_DEVICE_NO_MEMORY;
    size_t free_bytes, total_bytes;

    if (status != MPATH_OK) {
        return status;
    }
    if ((mpath_device()->memory_info(&free_bytes, &total_bytes) == MPATH_DEVICE_DONE) &&
        (free_bytes >= bytes + total_bytes / SPARE_SHARE)) {
        result = mpath_gpu_memory_take(&measurer->memory, (size_t)bytes);
    }
    mpath_gpu_leave(measurer->gpu);
    if (result != MPATH_DEVICE_DONE) {
        measurer->memory = 0;
        mpath_debug("no %llu bytes on a GPU to measure it with: %s", (unsigned long long)bytes,
                    mpath_device_error_string(result));
        return MPATH_ERR_NO_MEMORY;
    }
    return MPATH_OK;
}

/* Memory and streams of this rank's GPU, and what it tells of them. */
static void make_offer(measurer_t *measurer, rates_offer_t *offer)
{
    uint64_t bytes = 2 * measurer->peer_bytes;
    mpath_memory_t memory;
    void *address;

    memset(offer, 0, sizeof(*offer));
    if ((measurer->gpu == NULL) || (take_memory(measurer, bytes) != MPATH_OK) ||
        (mpath_stream_get(measurer->gpu, MPATH_GPU_STREAMS_PROBE, &measurer->out) != MPATH_OK) ||
        (mpath_stream_get(measurer->gpu, MPATH_GPU_STREAMS_PROBE + 1, &measurer->back) != MPATH_OK) ||
        (mpath_pinned_alloc(measurer->gpu, 2 * host_bytes(measurer), &measurer->pinned) != MPATH_OK)) {
        return;
    }
    address        = (void *)(uintptr_t)measurer->memory;
    offer->address = measurer->memory;
    offer->good    = (mpath_memory_classify(address, bytes, &memory) == MPATH_OK) &&
                  (mpath_export_make(address, bytes, &memory, &offer->memory) == MPATH_OK);
}

/* The memory of the next GPU. */
static void open_next(measurer_t *measurer, const rates_offer_t *offers)
{
    const rates_offer_t *next;
    int peer;

    if ((measurer->pinned.base == NULL) || (measurer->next_rank < 0) || !offers[measurer->next_rank].good) {
        return;
    }
    next = &offers[measurer->next_rank];
    peer = mpath_gpu_find(&next->memory.uuid);
    if (((peer < 0) || mpath_gpu_can_reach(measurer->gpu, peer)) &&
        (mpath_import_get(&next->memory, measurer->gpu, &measurer->import) == MPATH_OK)) {
        measurer->theirs = mpath_import_address(measurer->import, next->address) + measurer->peer_bytes;
    } else {
        measurer->import = NULL;
    }
}

static void release(measurer_t *measurer)
{
    if (measurer->import != NULL) {
        mpath_import_put(measurer->import);
    }
    mpath_pinned_release(&measurer->pinned);
    mpath_gpu_memory_give(measurer->gpu, measurer->memory, 2 * measurer->peer_bytes);
}

/* --- copies ------------------------------------------------------------------------------------------------------ */

static mpath_status_t enqueue(const rates_copy_t *copy)
{
    const mpath_kernel_fragment_t fragment = {.target = copy->target, .source = copy->source, .bytes = copy->bytes};
    const mpath_launch_copy_t launch       = {.fragments = &fragment, .fragments_count = 1};

    return copy->by_kernel ? mpath_launch_copy(copy->stream, &launch)
                           : mpath_stream_copy(copy->stream, copy->target, copy->source, copy->bytes);
}

/* All of them `times` times; nanoseconds from the first call to the last end, 0: something went wrong. */
static uint64_t time_copies(const rates_copy_t *copies, int count, int times)
{
    uint64_t start_ns     = mpath_time_ns();
    mpath_status_t status = MPATH_OK;
    mpath_mark_t marks[2];

    for (int i = 0; (i < times * count) && (status == MPATH_OK); i++) {
        status = enqueue(&copies[i % count]);
    }
    for (int i = 0; (i < count) && (status == MPATH_OK); i++) {
        status = mpath_stream_mark(copies[i].stream, &marks[i]);
    }
    for (int i = 0; (i < count) && (status == MPATH_OK); i++) {
        status = mpath_stream_finish(copies[i].stream, marks[i], DEADLINE_NS, "a copy that measures the GPU");
    }
    return (status == MPATH_OK) ? mpath_time_ns() - start_ns + 1 : 0;
}

/*
 * What copies behind each other take, 0 when something went wrong. Alone the best of a few tries counts, since whatever
 * disturbs makes it slower; together with others their mean: the best one may be that for which the others were late.
 */
static uint64_t measure_time(measurer_t *measurer, const rates_copy_t *copies, int count, int together)
{
    uint64_t best_ns = UINT64_MAX, sum_ns = 0, tries = 0;

    for (int i = 0; (i < TRIES) && ((i < 2) || (measurer->spent_ns < BUDGET_NS)); i++) {
        uint64_t elapsed_ns = time_copies(copies, count, COPIES);

        if (elapsed_ns == 0) {
            return 0;
        }
        measurer->spent_ns += elapsed_ns;
        best_ns = ((i > 0) && (elapsed_ns < best_ns)) ? elapsed_ns : best_ns;
        sum_ns += (i > 0) ? elapsed_ns : 0;
        tries += (i > 0) ? 1 : 0;
    }
    return together ? sum_ns / tries : best_ns;
}

/*
 * Bytes per second of the first of them; 0 when something went wrong. What half of the bytes take less is the time of the
 * other half: starts, gaps between copies, and the host's seeing the end are in both. Where halves take nearly as long,
 * something has disturbed, and the whole time counts.
 */
static uint64_t measure_rate(measurer_t *measurer, const rates_copy_t *copies, int count, int together)
{
    rates_copy_t half[2] = {copies[0], copies[count - 1]};
    uint64_t bytes       = copies[0].bytes * COPIES, half_ns, ns, bps;

    half[0].bytes /= 2;
    half[1].bytes /= 2;
    half_ns = measure_time(measurer, half, count, together);
    ns      = measure_time(measurer, copies, count, together);
    if ((half_ns == 0) || (ns == 0)) {
        return 0;
    }
    if (half_ns <= ns / 4 * 3) {
        bytes -= bytes / 2;
        ns -= half_ns;
    }
    bps = (uint64_t)((double)bytes * 1e9 / (double)ns);
    return (bps < MPATH_MAX_RATE_BPS) ? bps : MPATH_MAX_RATE_BPS;
}

/* The least of a few tries. */
static uint32_t measure_small(measurer_t *measurer, rates_copy_t copy)
{
    uint64_t best_ns = UINT32_MAX;

    copy.bytes = SMALL_BYTES;
    for (int i = 0; (i < SMALL_TRIES) && ((i < 2) || (measurer->spent_ns < BUDGET_NS)); i++) {
        uint64_t elapsed_ns = time_copies(&copy, 1, 1);

        if (elapsed_ns == 0) {
            return 0;
        }
        measurer->spent_ns += elapsed_ns;
        best_ns = ((i > 0) && (elapsed_ns < best_ns)) ? elapsed_ns : best_ns;
    }
    return (uint32_t)best_ns;
}

/* --- phases ------------------------------------------------------------------------------------------------------ */

static rates_copy_t copy_next(const measurer_t *measurer)
{
    return (rates_copy_t){
        .stream = measurer->out, .target = measurer->theirs, .source = measurer->memory, .bytes = measurer->peer_bytes};
}

static rates_copy_t copy_up(const measurer_t *measurer)
{
    return (rates_copy_t){.stream = measurer->out,
                          .target = measurer->pinned.device_base,
                          .source = measurer->memory,
                          .bytes  = host_bytes(measurer)};
}

static rates_copy_t copy_down(const measurer_t *measurer)
{
    return (rates_copy_t){.stream = measurer->back,
                          .target = measurer->memory + measurer->peer_bytes,
                          .source = measurer->pinned.device_base + host_bytes(measurer),
                          .bytes  = host_bytes(measurer)};
}

/* What comes from the host into this GPU while it reads from the next one, whose memory nobody works on. */
static uint64_t measure_beside(measurer_t *measurer)
{
    rates_copy_t copies[2] = {copy_next(measurer), copy_down(measurer)};
    uint64_t alone_bps, bps;

    copies[0].source = measurer->theirs;
    copies[0].target = measurer->memory + measurer->peer_bytes;
    copies[1].target = measurer->memory;
    if ((measurer->found.copy_bps == 0) || (measurer->found.down_bps == 0)) {
        return 0;
    }
    mpath_gpu_probe_even(measurer->found.copy_bps, measurer->found.down_bps, &copies[0].bytes, &copies[1].bytes);
    alone_bps = measure_rate(measurer, copies, 1, 0);
    bps       = measure_rate(measurer, copies, 2, 0);
    return ((alone_bps > 0) && (bps > 0)) ? mpath_gpu_probe_added(alone_bps, bps, copies[0].bytes, copies[1].bytes) : 0;
}

/* This GPU alone on its node. */
static void measure_alone(measurer_t *measurer)
{
    rates_copy_t up = copy_up(measurer), down = copy_down(measurer), next = copy_next(measurer);
    rates_copy_t both[2] = {up, down};

    measurer->found.up_bps   = measure_rate(measurer, &up, 1, 0);
    measurer->found.down_bps = measure_rate(measurer, &down, 1, 0);
    measurer->found.both_bps = measure_rate(measurer, both, 2, 0);
    if (measurer->theirs == 0) {
        return;
    }
    measurer->found.copy_bps = measure_rate(measurer, &next, 1, 0);
    measurer->found.copy_ns  = measure_small(measurer, next);
    if (mpath_kernels_usable(measurer->gpu)) {
        next.by_kernel             = 1;
        measurer->found.kernel_bps = measure_rate(measurer, &next, 1, 0);
        measurer->found.kernel_ns  = measure_small(measurer, next);
    }
    measurer->found.beside_bps = measure_beside(measurer);
}

static void measure_ring(measurer_t *measurer)
{
    rates_copy_t next = copy_next(measurer);

    measurer->found.ring_bps = (measurer->theirs != 0) ? measure_rate(measurer, &next, 1, 1) : 0;
}

static void measure_host(measurer_t *measurer)
{
    rates_copy_t both[2] = {copy_up(measurer), copy_down(measurer)};

    measurer->found.host_bps = measure_rate(measurer, both, 2, 1);
}

/* All ranks begin the next phase together. */
static mpath_status_t meet(measurer_t *measurer)
{
    char here = 1;

    return mpath_team_allgather(measurer->team, &here, sizeof(here), measurer->met);
}

static mpath_status_t run_phases(measurer_t *measurer, int most_gpus)
{
    int can               = measurer->pinned.base != NULL;
    mpath_status_t status = meet(measurer); /* everybody has opened what it needs */

    for (int number = 0; (number < most_gpus) && (status == MPATH_OK); number++) {
        if (can && (number == measurer->number)) {
            measure_alone(measurer);
        }
        status = meet(measurer);
    }
    if ((status == MPATH_OK) && can) {
        measure_ring(measurer);
    }
    status = (status == MPATH_OK) ? meet(measurer) : status;
    if ((status == MPATH_OK) && can) {
        measure_host(measurer);
    }
    return (status == MPATH_OK) ? meet(measurer) : status; /* nobody copies into memory that is given back */
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

static void find_place(measurer_t *measurer, const rates_node_t *place, mpath_gpu_t *gpu)
{
    measurer->number   = -1;
    measurer->num_gpus = place->survey.num_gpus;
    for (int g = 0; place->measures && (g < measurer->num_gpus); g++) {
        if (place->ranks[g] == measurer->me) {
            measurer->number    = g;
            measurer->gpu       = gpu;
            measurer->next_rank = (measurer->num_gpus > 1) ? place->ranks[(g + 1) % measurer->num_gpus] : -1;
        }
    }
}

/* What all GPUs reach together is what the slowest does; not measured if one has not. */
static void assemble(const rates_node_t *place, const rates_found_t *found, mpath_node_rates_t *node)
{
    mpath_gpu_probe_t *probe = &node->probe;
    uint64_t ring_bps = UINT64_MAX, host_bps = UINT64_MAX;
    int count = place->survey.num_gpus;

    *probe = (mpath_gpu_probe_t){.num_gpus = count};
    for (int g = 0; g < count; g++) {
        const rates_found_t *one = &found[place->ranks[g]];

        probe->up_bps[g]     = one->up_bps;
        probe->down_bps[g]   = one->down_bps;
        probe->both_bps[g]   = one->both_bps;
        probe->beside_bps[g] = one->beside_bps;
        probe->kernel_bps[g] = one->kernel_bps;
        if (count > 1) {
            probe->copy_bps[g][(g + 1) % count] = one->copy_bps;
        }
        ring_bps = (one->ring_bps < ring_bps) ? one->ring_bps : ring_bps;
        host_bps = (one->host_bps < host_bps) ? one->host_bps : host_bps;
        if ((one->copy_ns > 0) && (probe->copy_latency_ns == 0)) {
            probe->copy_latency_ns   = one->copy_ns;
            probe->kernel_latency_ns = one->kernel_ns;
        }
    }
    probe->ring_bps = (count > 1) ? ring_bps : 0;
    probe->host_bps = host_bps * (uint64_t)count;
    probe->host_bps = (probe->host_bps < MPATH_MAX_RATE_BPS) ? probe->host_bps : MPATH_MAX_RATE_BPS;
    node->known     = probe->up_bps[0] > 0;
    if (!node->known) {
        *probe = (mpath_gpu_probe_t){.num_gpus = 0};
    }
}

/* The offers of all; every rank goes on to the end, whatever has failed on it. */
static mpath_status_t exchange(measurer_t *measurer, int most_gpus, rates_offer_t *offers, rates_found_t *found)
{
    rates_offer_t mine;
    mpath_status_t status;

    make_offer(measurer, &mine);
    status = mpath_team_allgather(measurer->team, &mine, sizeof(mine), offers);
    if (status == MPATH_OK) {
        open_next(measurer, offers);
        status = run_phases(measurer, most_gpus);
    }
    if (status == MPATH_OK) {
        status = mpath_team_allgather(measurer->team, &measurer->found, sizeof(measurer->found), found);
    }
    release(measurer);
    return status;
}

/*
 * Collective: fills nodes[i].probe where places[i].measures, with what could be measured. node/rates.c.
 */
static mpath_status_t gpu_rates_measure(mpath_team_t *team, mpath_gpu_t *gpu, const rates_node_t *places,
                                        mpath_node_rates_t *nodes)
{
    size_t size         = (size_t)mpath_team_size(team);
    measurer_t measurer = {.team = team, .size = mpath_team_size(team), .me = mpath_team_rank(team), .next_rank = -1};
    rates_offer_t *offers;
    rates_found_t *found;
    mpath_status_t status;
    int most = 0;

    measurer.peer_bytes = mpath_team_settings(team)->gpu_memory_bytes / 2;
    measurer.peer_bytes = (measurer.peer_bytes < PEER_BYTES) ? measurer.peer_bytes & ~UINT64_C(4095) : PEER_BYTES;
    find_place(&measurer, &places[mpath_team_node(team)], gpu);
    for (int node = 0; node < mpath_team_num_nodes(team); node++) {
        most = (places[node].measures && (places[node].survey.num_gpus > most)) ? places[node].survey.num_gpus : most;
    }
    offers       = calloc(size, sizeof(*offers));
    found        = calloc(size, sizeof(*found));
    measurer.met = calloc(size, 1);
    status       = ((offers != NULL) && (found != NULL) && (measurer.met != NULL)) ? MPATH_OK : MPATH_ERR_NO_MEMORY;
    if (status == MPATH_OK) {
        status = exchange(&measurer, most, offers, found);
    } else {
        mpath_error("no memory to measure the GPUs of %zu ranks; the call fails", size);
    }
    for (int node = 0; (node < mpath_team_num_nodes(team)) && (status == MPATH_OK); node++) {
        if (places[node].measures) {
            assemble(&places[node], found, &nodes[node]);
        }
    }
    free(offers);
    free(found);
    free(measurer.met);
    return status;
}

#define RATES_CACHED 4

/* What a rank tells of its GPU. */
typedef struct rates_hello {
    int32_t has_gpu;
    int32_t driver_version;
    int32_t busy; /* another call of this process measures at the moment, or this one must not */
    mpath_gpu_info_t info;
} rates_hello_t;

/* Of this process, from earlier communicators. */
static struct {
    pthread_mutex_t mutex;
    mpath_node_rates_t nodes[RATES_CACHED];
    int next;
} rates_cache = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static atomic_flag measuring = ATOMIC_FLAG_INIT;

static atomic_int in_vain; /* this process has measured, and nothing came of it: not tried again */

/* --- whose -------------------------------------------------------------------------------------------------------- */

static void say_hello(const mpath_gpu_t *gpu, rates_hello_t *hello)
{
    const mpath_device_ops_t *device = mpath_device();

    memset(hello, 0, sizeof(*hello));
    if ((gpu != NULL) && (device != NULL)) {
        hello->has_gpu = 1;
        hello->info    = *mpath_gpu_info_of(gpu);
        if (device->driver_version(&hello->driver_version) != MPATH_DEVICE_DONE) {
            hello->driver_version = 0;
        }
    }
}

/* Puts a GPU where its PCI address belongs. */
static void add_gpu(rates_node_t *place, int rank, const rates_hello_t *hello)
{
    mpath_gpu_survey_t *survey = &place->survey;
    int g                      = survey->num_gpus;

    if ((g == MPATH_MAX_GPUS) || (mpath_gpu_survey_find(survey, &hello->info.uuid) >= 0)) {
        return;
    }
    for (; (g > 0) && (strcmp(survey->gpus[g - 1].info.pci, hello->info.pci) > 0); g--) {
        survey->gpus[g] = survey->gpus[g - 1];
        place->ranks[g] = place->ranks[g - 1];
    }
    survey->gpus[g]        = (mpath_gpu_facts_t){.info = hello->info};
    place->ranks[g]        = rank;
    survey->num_gpus       = survey->num_gpus + 1;
    survey->driver_version = hello->driver_version;
}

static void name_gpus(const rates_node_t *place, mpath_node_rates_t *node)
{
    memset(node, 0, sizeof(*node));
    node->num_gpus = place->survey.num_gpus;
    for (int g = 0; g < node->num_gpus; g++) {
        node->uuids[g] = place->survey.gpus[g].info.uuid;
    }
}

/* --- from earlier ----------------------------------------------------------------------------------------------- */

void mpath_gpu_rates_of(const mpath_node_rates_t *node, const mpath_device_uuid_t *uuids, int num_gpus,
                        mpath_gpu_probe_t *probe)
{
    int to_of[MPATH_MAX_GPUS], found = 0;

    *probe = (mpath_gpu_probe_t){.num_gpus = num_gpus};
    for (int g = 0; g < num_gpus; g++) {
        to_of[g] = -1;
        for (int k = 0; k < node->num_gpus; k++) {
            to_of[g] = (memcmp(&node->uuids[k], &uuids[g], sizeof(uuids[g])) == 0) ? k : to_of[g];
        }
        found += to_of[g] >= 0;
    }
    if (!node->known || (found == 0)) {
        probe->num_gpus = 0;
        return;
    }
    mpath_gpu_probe_pick(&node->probe, to_of, probe);
}

static void remember(const mpath_node_rates_t *node)
{
    pthread_mutex_lock(&rates_cache.mutex);
    rates_cache.nodes[rates_cache.next] = *node;
    rates_cache.next                    = (rates_cache.next + 1) % RATES_CACHED;
    pthread_mutex_unlock(&rates_cache.mutex);
}

static int recall(mpath_node_rates_t *node)
{
    pthread_mutex_lock(&rates_cache.mutex);
    for (int i = 0; (i < RATES_CACHED) && !node->known; i++) {
        const mpath_node_rates_t *old = &rates_cache.nodes[i];

        if (old->known && (old->num_gpus == node->num_gpus) &&
            (memcmp(old->uuids, node->uuids, (size_t)node->num_gpus * sizeof(node->uuids[0])) == 0)) {
            *node = *old;
        }
    }
    pthread_mutex_unlock(&rates_cache.mutex);
    return node->known;
}

/* A probe of all GPUs that this process sees, for those of the team. */
static void load_of_all(const char *file, mpath_node_rates_t *node)
{
    mpath_gpu_survey_t *survey = malloc(sizeof(*survey));
    mpath_node_rates_t all     = {.known = 1};
    mpath_gpu_probe_t picked;

    if ((survey != NULL) && (mpath_gpu_survey(survey) == MPATH_OK) && (survey->num_gpus > node->num_gpus) &&
        (mpath_gpu_probe_load_from(file, survey, &all.probe) == MPATH_OK)) {
        all.num_gpus = survey->num_gpus;
        for (int g = 0; g < survey->num_gpus; g++) {
            all.uuids[g] = survey->gpus[g].info.uuid;
        }
        mpath_gpu_rates_of(&all, node->uuids, node->num_gpus, &picked);
        node->known = picked.num_gpus == node->num_gpus;
        node->probe = node->known ? picked : node->probe;
    }
    free(survey);
}

/* By one rank of a node. */
static void look_up(const rates_node_t *place, const char *file, mpath_node_rates_t *node)
{
    if (recall(node)) {
        return;
    }
    node->known = mpath_gpu_probe_load_from(file, &place->survey, &node->probe) == MPATH_OK;
    if (!node->known && ((file == NULL) || (file[0] == '\0'))) {
        load_of_all(file, node);
    }
}

/* --- from this probe --------------------------------------------------------------------------------------------- */

/* Why the figures are not believed, as far as this process can tell what the links promise; NULL: they are. */
static const char *find_doubt(const mpath_team_t *team, const mpath_node_rates_t *node)
{
    mpath_gpu_survey_t *survey = malloc(sizeof(*survey));
    const char *doubt          = NULL;
    mpath_node_gpus_t gpus;

    if ((survey != NULL) && (mpath_gpu_survey(survey) == MPATH_OK) && survey->has_nvml) {
        mpath_gpu_survey_model(survey, mpath_team_machine(team), &gpus);
        doubt = mpath_gpu_probe_doubt(&node->probe, &gpus);
    }
    free(survey);
    return doubt;
}

/* By the rank that has looked for the file. */
static void rates_save(const mpath_team_t *team, const rates_node_t *place, mpath_node_rates_t *node)
{
    const char *doubt = find_doubt(team, node);

    if (doubt != NULL) {
        mpath_info(
            "the GPUs of this node copy %.1f GB/s to each other at once, kernels %.1f: these figures are neither used nor "
            "kept, since %s",
            (double)node->probe.ring_bps / 1e9, (double)node->probe.kernel_bps[0] / 1e9, doubt);
        node->known = 0;
        node->probe = (mpath_gpu_probe_t){.num_gpus = 0};
        return;
    }
    mpath_info("measured the %d GPUs of this node: %.1f GB/s to each other at once, kernels %.1f, to and from the host "
               "%.1f and %.1f, all at once %.1f",
               node->num_gpus, (double)node->probe.ring_bps / 1e9, (double)node->probe.kernel_bps[0] / 1e9,
               (double)node->probe.up_bps[0] / 1e9, (double)node->probe.down_bps[0] / 1e9,
               (double)node->probe.host_bps / 1e9);
    (void)mpath_gpu_probe_save_as(mpath_team_settings(team)->gpu_probe_file, &place->survey, &node->probe);
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

/* Every node's figures are those of the first rank that has a GPU there. */
static mpath_status_t spread(mpath_team_t *team, const rates_node_t *places, mpath_node_rates_t *nodes)
{
    mpath_node_rates_t *all = malloc((size_t)mpath_team_size(team) * sizeof(*all));
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("no memory for the rates of %d ranks' GPUs; the call fails", mpath_team_size(team));
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_team_allgather(team, &nodes[mpath_team_node(team)], sizeof(*nodes), all);
    for (int node = 0; (node < mpath_team_num_nodes(team)) && (status == MPATH_OK); node++) {
        if (places[node].survey.num_gpus > 0) {
            nodes[node] = all[places[node].ranks[0]];
        }
    }
    free(all);
    return status;
}

/* Measures the nodes of which nothing is known, and keeps what comes out. */
static mpath_status_t measure(mpath_team_t *team, mpath_gpu_t *gpu, rates_node_t *places, mpath_node_rates_t *nodes)
{
    rates_node_t *place = &places[mpath_team_node(team)];
    mpath_status_t status;

    status = gpu_rates_measure(team, gpu, places, nodes);
    if ((status == MPATH_OK) && place->measures && nodes[mpath_team_node(team)].known &&
        (place->ranks[0] == mpath_team_rank(team))) {
        rates_save(team, place, &nodes[mpath_team_node(team)]);
    }
    return (status == MPATH_OK) ? spread(team, places, nodes) : status; /* whether they are believed */
}

static mpath_status_t agree(mpath_team_t *team, mpath_gpu_t *gpu, rates_hello_t *hellos, rates_node_t *places,
                            mpath_node_rates_t *nodes)
{
    const mpath_settings_t *settings = mpath_team_settings(team);
    int claimed                      = (settings->gpu_probe == MPATH_GPU_PROBE_AUTO) && !atomic_load(&in_vain) &&
                  !atomic_flag_test_and_set(&measuring);
    int unknown = 0, busy = 0;
    rates_hello_t mine;
    mpath_status_t status;

    say_hello(gpu, &mine);
    mine.busy = !claimed;
    status    = mpath_team_allgather(team, &mine, sizeof(mine), hellos);
    for (int rank = 0; (rank < mpath_team_size(team)) && (status == MPATH_OK); rank++) {
        busy = busy || hellos[rank].busy;
        if (hellos[rank].has_gpu) {
            add_gpu(&places[mpath_team_node_of(team, rank)], rank, &hellos[rank]);
        }
    }
    for (int node = 0; node < mpath_team_num_nodes(team); node++) {
        name_gpus(&places[node], &nodes[node]);
    }
    if ((status == MPATH_OK) && (places[mpath_team_node(team)].survey.num_gpus > 0) &&
        (places[mpath_team_node(team)].ranks[0] == mpath_team_rank(team))) {
        look_up(&places[mpath_team_node(team)], settings->gpu_probe_file, &nodes[mpath_team_node(team)]);
    }
    status = (status == MPATH_OK) ? spread(team, places, nodes) : status;
    for (int node = 0; (node < mpath_team_num_nodes(team)) && (status == MPATH_OK); node++) {
        places[node].measures = !nodes[node].known && (places[node].survey.num_gpus > 0);
        unknown               = unknown || places[node].measures;
    }
    if ((status == MPATH_OK) && unknown && !busy) {
        status = measure(team, gpu, places, nodes);
        atomic_store(&in_vain, !nodes[mpath_team_node(team)].known);
    }
    if ((status == MPATH_OK) && nodes[mpath_team_node(team)].known) {
        remember(&nodes[mpath_team_node(team)]);
    }
    if (claimed) {
        atomic_flag_clear(&measuring);
    }
    return status;
}

mpath_status_t mpath_gpu_rates_agree(mpath_team_t *team, mpath_gpu_t *gpu, mpath_node_rates_t *nodes)
{
    rates_hello_t *hellos;
    rates_node_t *places;
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    memset(nodes, 0, (size_t)mpath_team_num_nodes(team) * sizeof(*nodes));
    if (mpath_team_settings(team)->gpu_probe == MPATH_GPU_PROBE_OFF) {
        return MPATH_OK; /* the same on all ranks */
    }
    hellos = calloc((size_t)mpath_team_size(team), sizeof(*hellos));
    places = calloc((size_t)mpath_team_num_nodes(team), sizeof(*places));
    if ((hellos != NULL) && (places != NULL)) {
        status = agree(team, gpu, hellos, places, nodes);
    } else {
        mpath_error("no memory for the rates of %d ranks' GPUs; the call fails", mpath_team_size(team));
    }
    free(hellos);
    free(places);
    return status;
}
