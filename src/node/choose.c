/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What carries which pair.
 *
 * A pair goes from GPU to GPU when one of its ranks has managed to open the allocation of the other. That only this rank
 * knows: so whenever somebody meets an allocation for the first time, all ranks exchange how opening went. Buffers are
 * mostly the same from call to call, and then no exchange is needed; with the same demand as well, everything is as it
 * was in the call before.
 *
 * What is fastest for pairs that can go from GPU to GPU is predicted from the bytes through the busiest port and the
 * rates of this machine, all of which every rank has alike. Then the order of the fragments of the engines, and the share
 * that the host has of a hot receiver.
 *
 * What goes through the host: that share, the slots in host memory that it needs (where one rank cannot have these, none
 * has until all ask again), and which pairs go by streams.
 */
#include "node/node_private.h"
#include "node/rates.h"

#include "device/gpu.h"
#include "team/call.h"
#include "team/wait.h"
#include "util/log.h"

#include <string.h>

/*
 * Ranks that share a GPU without CUDA MPS: their kernels wait for each other's turns (device/gpu.h), whatever the size of
 * a message. A short call is done sooner by copies to the host, the function for host memory and copies back, which
 * need no turns. Which is faster is predicted from what all ranks have published, so that all come to the same.
 */

/*
 * With copies on the host, measured between 2, 4 and 8 ranks on an H100: a call without data, and for each rank on the
 * GPU; what the host's functions take for each byte of the busiest rank, of exchanges and of reductions.
 */
#define HOST_CALL_NS 20000u

#define HOST_RANK_NS 10000u
#define HOST_EXCHANGE_PS 125u
#define HOST_REDUCE_PS 250u

/*
 * Copies of a GPU between it and the host, in both directions together, for reductions: those on the host have another
 * order, and bits must not depend on what has been measured on the day.
 */
#define HOST_COPY_BPS UINT64_C(45000000000)

/* The GPU that a rank works on, by the side that tells it; NULL: none. */
static const mpath_device_uuid_t *gpu_of(const mpath_gpu_coll_t *gpu, int rank)
{
    const mpath_board_side_t *sides = gpu_cell(gpu, rank)->sides;

    if (sides[MPATH_BOARD_SEND].device >= 0) {
        return &sides[MPATH_BOARD_SEND].memory.uuid;
    }
    return (sides[MPATH_BOARD_RECV].device >= 0) ? &sides[MPATH_BOARD_RECV].memory.uuid : NULL;
}

static int first_on_the_same(const mpath_gpu_coll_t *gpu, int rank)
{
    const mpath_device_uuid_t *mine = gpu_of(gpu, rank);

    for (int other = 0; (mine != NULL) && (other < rank); other++) {
        const mpath_device_uuid_t *its = gpu_of(gpu, other);

        if ((its != NULL) && (memcmp(mine, its, sizeof(*mine)) == 0)) {
            return other;
        }
    }
    return rank;
}

static int count_on(const gpu_turns_t *turns, int size, int place)
{
    int count = 0;

    for (int rank = 0; rank < size; rank++) {
        count += turns->places[rank] == place;
    }
    return count;
}

static int is_on_the_same(const mpath_board_cell_t *one, const mpath_board_cell_t *other)
{
    int same = 0;

    for (int i = 0; i < MPATH_BOARD_SIDES * MPATH_BOARD_SIDES; i++) {
        const mpath_board_side_t *a = &one->sides[i / MPATH_BOARD_SIDES], *b = &other->sides[i % MPATH_BOARD_SIDES];

        same = same || ((a->device >= 0) && (b->device >= 0) &&
                        (memcmp(&a->memory.uuid, &b->memory.uuid, sizeof(a->memory.uuid)) == 0));
    }
    return same;
}

/* Whether two ranks have memory on one GPU, on whichever side. */
static int is_shared(const mpath_gpu_coll_t *gpu)
{
    for (int rank = 1; rank < gpu->size; rank++) {
        for (int other = 0; other < rank; other++) {
            if (is_on_the_same(gpu_cell(gpu, rank), gpu_cell(gpu, other))) {
                return 1;
            }
        }
    }
    return 0;
}

/* Once per process, by the first rank on the GPU: what makes calls slow, and the cure. */
static void tell_of_turns(const mpath_gpu_coll_t *gpu)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    int other               = gpu->me + 1;
    const char *calls       = (gpu->settings->gpu_way == MPATH_GPU_WAY_AUTO)
                                  ? "short calls on device memory go through the host, longer ones wait"
                                  : "calls on device memory wait";

    while ((other < gpu->size) && (gpu->turns.places[other] != gpu->me)) {
        other++;
    }
    if ((other < gpu->size) && (gpu->send.gpu != NULL) && !atomic_flag_test_and_set(&told)) {
        mpath_warn(
            "ranks %d and %d share the GPU %s, and without CUDA MPS their work on it takes turns: %s 0.15 ms for each of "
            "these ranks. nvidia-cuda-mps-control -d starts MPS, under which both take a fraction of it",
            gpu->me, other, mpath_gpu_info_of(gpu->send.gpu)->pci, calls);
    }
}

/* This rank's copies on the GPUs of this call need no turns from now on. */
static void avoid_turns(const mpath_gpu_coll_t *gpu)
{
    if (gpu->send.gpu != NULL) {
        mpath_gpu_set_turns(gpu->send.gpu);
    }
    if (gpu->receive.gpu != NULL) {
        mpath_gpu_set_turns(gpu->receive.gpu);
    }
}

/* Who is where, whenever some rank has published something new. */
static void look(mpath_gpu_coll_t *gpu)
{
    gpu_turns_t *turns   = &gpu->turns;
    uint64_t generations = 0;

    for (int rank = 0; rank < gpu->size; rank++) {
        generations += gpu_cell(gpu, rank)->generation; /* each only grows */
    }
    if (generations == turns->generations) {
        return;
    }
    turns->generations = generations;
    turns->most        = 0;
    turns->shared      = is_shared(gpu);
    for (int rank = 0; rank < gpu->size; rank++) {
        turns->places[rank] = first_on_the_same(gpu, rank);
    }
    for (int rank = 0; rank < gpu->size; rank++) {
        int count = gpu_cell(gpu, rank)->turns ? count_on(turns, gpu->size, turns->places[rank]) : 0;

        turns->most = ((count > 1) && (count > turns->most)) ? count : turns->most;
    }
    if (gpu_cell(gpu, gpu->me)->turns && (count_on(turns, gpu->size, turns->places[gpu->me]) > 1)) {
        avoid_turns(gpu);
        tell_of_turns(gpu);
    }
}

/* What a rank copies to the host, or back; of reductions and gathers the demand names the same bytes for every peer. */
static uint64_t copied(const mpath_gpu_coll_t *gpu, int rank, int back, uint32_t operation)
{
    int same = (operation == MPATH_OPERATION_ALLREDUCE) ||
               (operation == (back ? MPATH_OPERATION_REDUCE_SCATTER : MPATH_OPERATION_ALLGATHER));
    uint64_t sum = 0, most = 0;

    for (int peer = 0; peer < gpu->size; peer++) {
        uint64_t bytes = back ? gpu_bytes(gpu, peer, rank) : gpu_bytes(gpu, rank, peer);

        sum += bytes;
        most = (bytes > most) ? bytes : most;
    }
    return same ? most : sum;
}

static uint64_t host_ns(const mpath_gpu_coll_t *gpu, uint32_t operation)
{
    int reduces = (operation == MPATH_OPERATION_ALLREDUCE) || (operation == MPATH_OPERATION_REDUCE_SCATTER);
    uint64_t of_ranks[MPATH_ORDER_MAX_RANKS] = {0}, busiest = 0, most = 0;

    for (int rank = 0; rank < gpu->size; rank++) {
        uint64_t bytes = copied(gpu, rank, 0, operation) + copied(gpu, rank, 1, operation);
        int place      = gpu->turns.places[rank];

        of_ranks[place] += bytes;
        busiest = (of_ranks[place] > busiest) ? of_ranks[place] : busiest;
        most    = (bytes > most) ? bytes : most;
    }
    return HOST_CALL_NS + (uint64_t)gpu->turns.most * HOST_RANK_NS +
           busiest / 1024 * (UINT64_C(1024000000000) / (reduces ? HOST_COPY_BPS : gpu->rates.staged_bps)) +
           most / 1000 * (reduces ? HOST_REDUCE_PS : HOST_EXCHANGE_PS);
}

int mpath_gpu_coll_leaves_to_host(mpath_gpu_coll_t *gpu, uint32_t operation)
{
    look(gpu);
    gpu->turns.left = (gpu->turns.most > 0) && (gpu->settings->gpu_way == MPATH_GPU_WAY_AUTO) &&
                      (host_ns(gpu, operation) < (uint64_t)gpu->turns.most * MPATH_GPU_TURN_NS);
    return gpu->turns.left;
}

const char *mpath_gpu_coll_declined_because(const mpath_gpu_coll_t *gpu)
{
    if (gpu->lacks_slots) {
        return MPATH_WHY_NO_SLOTS;
    }
    return gpu->turns.left ? MPATH_WHY_TURNS : MPATH_WHY_NO_DEVICE_MEMORY;
}

/* The host's share of a hot receiver: x with x / host + start = (hot - x) / port. */

#define KIB 1024u

uint64_t mpath_host_share_bytes(const mpath_host_share_t *share)
{
    uint64_t host_ns, both_ns, bytes, limit, gap;

    if ((share->port_ns <= share->start_ns) || (share->hot_bytes <= share->next_bytes) || (share->host_bps < KIB)) {
        return 0;
    }
    /* In KiB and microseconds, since bytes x nanoseconds of a few GiB would not fit. */
    host_ns = share->hot_bytes / KIB * 1000000 / (share->host_bps / KIB) * 1000; /* all bytes through the host */
    both_ns = share->port_ns + host_ns;
    bytes   = (share->port_ns - share->start_ns) / 1000 * (share->hot_bytes / KIB) / (both_ns / 1000 + 1) * KIB;
    bytes   = bytes / 100 * share->take_percent;
    limit   = share->hot_bytes / 100 * share->most_percent;
    gap     = share->hot_bytes - share->next_bytes;
    bytes   = (bytes < limit) ? bytes : limit;
    return (bytes < gap) ? bytes : gap;
}

/*
 * Pairs of less than the first go with the kernel even when engines carry the others. So do those of less than the second
 * or third, where it is predicted to save so many percent: an engine begins each fragment some time after the one before,
 * but the kernel takes multiprocessors from the application.
 */
static const uint64_t engine_least[] = {1u << 20, 2u << 20, 4u << 20};

#define ENGINE_LEAST_GAIN 5

/*
 * The kernel has to be faster by a tenth: it takes multiprocessors from the application, and exchanges of 16 to 64 MiB
 * reach up to 8 % less than the rate that is measured for it.
 */
#define KERNEL_HANDICAP 10

/*
 * What of the share at which links and host end together is taken, from several GPUs and from one: the host's copies
 * vary more than those between GPUs, and too large a share costs more than too small a one.
 */
#define HOST_PERCENT 88u

#define HOST_ONE_PERCENT 85u

/*
 * A hot receiver is worth the path through the host from so many bytes on; parts of a message are multiples of the second.
 */
#define HOST_SHARE_MIN_BYTES (200u << 20)

#define HOST_SHARE_GRAIN (64u << 10)

/* What the GPUs carry of the pairs on `lane` with at least `least_bytes` and less than `end_bytes`. */
static void find_load(const mpath_gpu_coll_t *gpu, gpu_lane_t lane, uint64_t least_bytes, uint64_t end_bytes,
                      mpath_peer_load_t *load)
{
    *load = (mpath_peer_load_t){0};
    for (int rank = 0; rank < gpu->size; rank++) {
        uint64_t out = 0, in = 0;
        unsigned fragments = 0;

        for (int peer = 0; peer < gpu->size; peer++) {
            uint64_t sent = gpu_bytes(gpu, rank, peer), received = gpu_bytes(gpu, peer, rank);

            if ((gpu_lane(gpu, rank, peer) == lane) && (sent >= least_bytes) && (sent < end_bytes)) {
                out += sent;
                fragments++;
            }
            in += ((gpu_lane(gpu, peer, rank) == lane) && (received >= least_bytes) && (received < end_bytes))
                      ? received
                      : 0;
        }
        load->port_bytes = (out > load->port_bytes) ? out : load->port_bytes;
        load->port_bytes = (in > load->port_bytes) ? in : load->port_bytes;
        load->both_bytes = (in + out > load->both_bytes) ? in + out : load->both_bytes;
        load->fragments  = (fragments > load->fragments) ? fragments : load->fragments;
    }
}

/* Whether engines would write to memory of another rank that is mapped in small pages, for pairs of that size. */
static int meets_small_pages(const mpath_gpu_coll_t *gpu, uint64_t least_bytes)
{
    int meets = 0;

    for (int i = 0; i < gpu->size * gpu->size; i++) {
        const mpath_board_cell_t *owner = gpu_cell(gpu, i % gpu->size);

        meets = meets || ((gpu->decided.lanes[i] == LANE_PUSH) && (gpu->demand[i] >= least_bytes) &&
                          mpath_export_has_small_pages(&owner->sides[MPATH_BOARD_RECV].memory));
    }
    return meets;
}

uint64_t mpath_gpu_coll_engine_least(const mpath_gpu_coll_t *gpu)
{
    return (gpu->settings->gpu_way == MPATH_GPU_WAY_AUTO) ? gpu->decided.engine_least : 0;
}

/* Once, by one rank: engines could carry what ranks receive, were it not for its mapping. */
static void tell_of_small_pages(const mpath_gpu_coll_t *gpu)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    for (int rank = 0; gpu->me == 0 && rank < gpu->size; rank++) {
        const mpath_export_t *memory = &gpu_cell(gpu, rank)->sides[MPATH_BOARD_RECV].memory;

        if (mpath_export_has_small_pages(memory)) {
            mpath_info_by(
                !atomic_flag_test_and_set(&told),
                "rank %d: the receive buffer's allocation of %llu bytes is no multiple of 64 KiB; others have it mapped "
                "in small pages, into which copy engines are slow, and kernels carry large exchanges. Allocations "
                "that are a multiple leave the multiprocessors to the application",
                rank, (unsigned long long)memory->bytes);
            return;
        }
    }
}

/* The order of what engines would push or do carry: rows are the ranks whose engines work. */
static void compute_order(mpath_gpu_coll_t *gpu, uint64_t least_bytes)
{
    gpu_decided_t *decided = &gpu->decided;
    mpath_order_rates_t rates;

    decided->engine_ranks = 0;
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        decided->by_engine[i] = ((decided->lanes[i] == LANE_PUSH) && (gpu->demand[i] >= least_bytes))
                                    ? gpu->demand[i] - decided->beside[i] - decided->helped[i]
                                    : 0;
        decided->engine_ranks |= (decided->by_engine[i] > 0) ? 1ull << (i / gpu->size) : 0;
    }
    mpath_peer_order_rates(&gpu->rates, &rates.port_bps, &rates.fragment_ns);
    mpath_order_compute(gpu->order, decided->by_engine, &rates);
}

/* Of engines, with the kernel's part beside them; and of pushes, were all memory mapped in large pages. */
typedef struct predicted {
    uint64_t push_ns, large_pages_ns;
} predicted_t;

static uint64_t longer(uint64_t a, uint64_t b)
{
    return (a > b) ? a : b;
}

/* Nothing with engines is faster than everything in one fragment. */
static uint64_t whole_ns(const mpath_gpu_coll_t *gpu, const mpath_peer_load_t *all)
{
    mpath_peer_load_t whole = *all;

    whole.fragments = 1;
    return mpath_peer_predict_ns(&gpu->rates, MPATH_PEER_PUSH, &whole);
}

/*
 * At least, of engines with pairs from `least_bytes` on and the kernel with the others at the same time: what the kernel
 * takes alone, what engines do in the best of orders, and what the ports do that they share.
 */
static uint64_t bound_ns(const mpath_gpu_coll_t *gpu, uint64_t least_bytes, const mpath_peer_load_t *all)
{
    mpath_peer_load_t large, small;
    uint64_t kernel_ns;

    find_load(gpu, LANE_PUSH, least_bytes, UINT64_MAX, &large);
    find_load(gpu, LANE_PUSH, 0, least_bytes, &small);
    kernel_ns = mpath_peer_predict_ns(&gpu->rates, MPATH_PEER_KERNEL, &small);
    kernel_ns = longer(kernel_ns + kernel_ns / KERNEL_HANDICAP, whole_ns(gpu, all));
    return longer(kernel_ns, mpath_peer_predict_ns(&gpu->rates, MPATH_PEER_PUSH, &large));
}

/* The same in an order that is found. */
static predicted_t predict_engines(mpath_gpu_coll_t *gpu, uint64_t least_bytes, const mpath_peer_load_t *all)
{
    uint64_t bound = bound_ns(gpu, least_bytes, all);
    mpath_peer_load_t large;
    predicted_t predicted;

    find_load(gpu, LANE_PUSH, least_bytes, UINT64_MAX, &large);
    compute_order(gpu, least_bytes);
    large.order_ns           = mpath_order_time_ns(gpu->order);
    large.small_pages        = meets_small_pages(gpu, least_bytes);
    predicted.push_ns        = longer(mpath_peer_predict_ns(&gpu->rates, MPATH_PEER_PUSH, &large), bound);
    large.small_pages        = 0;
    predicted.large_pages_ns = longer(mpath_peer_predict_ns(&gpu->rates, MPATH_PEER_PUSH, &large), bound);
    return predicted;
}

/* Whether engines would have other pairs with the least size number `i` than with the one before it, and some. */
static int is_another(const mpath_gpu_coll_t *gpu, unsigned i)
{
    mpath_peer_load_t between, large;

    find_load(gpu, LANE_PUSH, (i > 0) ? engine_least[i - 1] : 0, engine_least[i], &between);
    find_load(gpu, LANE_PUSH, engine_least[i], UINT64_MAX, &large);
    return (large.port_bytes > 0) && ((i == 0) || (between.port_bytes > 0));
}

#define NUM_LEAST (sizeof(engine_least) / sizeof(engine_least[0]))

/* Of all least sizes; UINT64_MAX: no pair is worth an engine. Orders of many ranks take their time, this does not. */
static uint64_t engines_bound_ns(const mpath_gpu_coll_t *gpu, const mpath_peer_load_t *all)
{
    uint64_t least = UINT64_MAX, bound;

    for (unsigned i = 0; i < NUM_LEAST; i++) {
        bound = is_another(gpu, i) ? bound_ns(gpu, engine_least[i], all) : UINT64_MAX;
        least = (bound < least) ? bound : least;
    }
    return least;
}

/* From how many bytes on pairs are worth an engine, where some are; sets gpu->decided.engine_least. */
static predicted_t choose_least(mpath_gpu_coll_t *gpu, const mpath_peer_load_t *all)
{
    predicted_t best = predict_engines(gpu, engine_least[0], all), now;

    gpu->decided.engine_least = engine_least[0];
    for (unsigned i = 1; i < NUM_LEAST; i++) {
        uint64_t wanted_ns = best.push_ns * 100 / (100 + ENGINE_LEAST_GAIN);

        if (!is_another(gpu, i) || (bound_ns(gpu, engine_least[i], all) >= wanted_ns)) {
            continue;
        }
        now = predict_engines(gpu, engine_least[i], all);
        if (now.push_ns < wanted_ns) {
            gpu->decided.engine_least = engine_least[i];
            best                      = now;
        }
    }
    return best;
}

mpath_gpu_way_t mpath_gpu_coll_fastest_lane(mpath_gpu_coll_t *gpu)
{
    mpath_peer_load_t all;
    predicted_t engines;
    uint64_t kernel_ns;

    if (gpu->settings->gpu_way != MPATH_GPU_WAY_AUTO) {
        return (mpath_gpu_way_t)gpu->settings->gpu_way;
    }
    find_load(gpu, LANE_PUSH, 0, UINT64_MAX, &all);
    kernel_ns = mpath_peer_predict_ns(&gpu->rates, MPATH_PEER_KERNEL, &all);
    if (kernel_ns + kernel_ns / KERNEL_HANDICAP <= engines_bound_ns(gpu, &all)) {
        return MPATH_GPU_WAY_KERNEL;
    }
    engines = choose_least(gpu, &all);
    mpath_debug(
        "call %llu on device memory: %llu bytes through the busiest port; predicted: kernel %llu ns, push %llu ns with "
        "pairs from %llu bytes on",
        (unsigned long long)gpu->number, (unsigned long long)all.port_bytes, (unsigned long long)kernel_ns,
        (unsigned long long)engines.push_ns, (unsigned long long)gpu->decided.engine_least);
    kernel_ns += kernel_ns / KERNEL_HANDICAP;
    if (kernel_ns <= engines.push_ns) {
        if (engines.large_pages_ns < kernel_ns) {
            tell_of_small_pages(gpu);
        }
        return MPATH_GPU_WAY_KERNEL;
    }
    return MPATH_GPU_WAY_PUSH;
}

/* What a rank receives, or sends, by pushes. */
static uint64_t pushed(const mpath_gpu_coll_t *gpu, int rank, int receives)
{
    uint64_t bytes = 0;

    for (int peer = 0; peer < gpu->size; peer++) {
        int source = receives ? peer : rank, destination = receives ? rank : peer;

        bytes += (gpu_lane(gpu, source, destination) == LANE_PUSH) ? gpu_bytes(gpu, source, destination) : 0;
    }
    return bytes;
}

/*
 * What a sender's port would limit the share to, as if it were bytes that the host does not relieve: of what it sends,
 * the part to the hot receiver leaves by the host as well.
 */
static uint64_t unrelieved(uint64_t hot_bytes, uint64_t out, uint64_t to_hot)
{
    uint64_t relieved, others = hot_bytes - ((to_hot < hot_bytes) ? to_hot : hot_bytes);

    if (others == 0) {
        return 0; /* the only sender: its port gets free as the receiver's does */
    }
    if (out >= hot_bytes) {
        return out;
    }
    relieved = (hot_bytes - out) / 1024 * (hot_bytes / 1024) / (others / 1024 + 1) * 1024;
    return (relieved < hot_bytes) ? hot_bytes - relieved : 0;
}

/* The receiver with most; its senders; the most of any other port, or of its own other direction. */
static int find_hot(const mpath_gpu_coll_t *gpu, mpath_host_share_t *share, int *senders_p)
{
    uint64_t of_hot;
    int hot = 0, senders = 0;

    *share = (mpath_host_share_t){.hot_bytes = pushed(gpu, 0, 1)};
    for (int rank = 1; rank < gpu->size; rank++) {
        uint64_t in = pushed(gpu, rank, 1);

        if (in > share->hot_bytes) {
            share->hot_bytes = in;
            hot              = rank;
        }
    }
    of_hot            = pushed(gpu, hot, 0);
    share->next_bytes = of_hot;
    for (int rank = 0; rank < gpu->size; rank++) {
        uint64_t to_hot = (gpu_lane(gpu, rank, hot) == LANE_PUSH) ? gpu_bytes(gpu, rank, hot) : 0;
        uint64_t out    = (rank == hot) ? 0 : unrelieved(share->hot_bytes, pushed(gpu, rank, 0), to_hot);
        uint64_t in     = (rank == hot) ? 0 : pushed(gpu, rank, 1);

        senders += (to_hot > 0) ? 1 : 0;
        share->next_bytes = (out > share->next_bytes) ? out : share->next_bytes;
        share->next_bytes = (in > share->next_bytes) ? in : share->next_bytes;
    }
    share->port_ns = mpath_peer_predict_ns(
        &gpu->rates, MPATH_PEER_PUSH,
        &(mpath_peer_load_t){.port_bytes = share->hot_bytes, .both_bytes = share->hot_bytes + of_hot, .fragments = 1});
    *senders_p = senders;
    return hot;
}

/*
 * A hot receiver gets a share of its bytes through host memory as well, over a link that is idle otherwise; not so much
 * that another port, or the copies of the host, would take longer than its own.
 */
static void share_with_host(mpath_gpu_coll_t *gpu)
{
    mpath_host_share_t share;
    int senders, hot = find_hot(gpu, &share, &senders);
    uint64_t bytes;

    if (!gpu->decided.pushes || (share.hot_bytes < HOST_SHARE_MIN_BYTES) || gpu->no_beside) {
        return;
    }
    mpath_peer_beside(&gpu->rates, senders, &share.host_bps, &share.start_ns);
    share.take_percent = (senders == 1) ? HOST_ONE_PERCENT : HOST_PERCENT;
    share.most_percent = (unsigned)gpu->settings->gpu_host_percent;
    bytes              = mpath_host_share_bytes(&share);
    mpath_debug("call %llu on device memory: of %llu bytes to rank %d, %llu may go through the host",
                (unsigned long long)gpu->number, (unsigned long long)share.hot_bytes, hot, (unsigned long long)bytes);
    for (int source = 0; source < gpu->size; source++) {
        size_t pair   = (size_t)source * (size_t)gpu->size + (size_t)hot;
        uint64_t part = gpu->demand[pair] / 1000 * (bytes / (share.hot_bytes / 1000)) &
                        ~(uint64_t)(HOST_SHARE_GRAIN - 1);

        if ((gpu->decided.lanes[pair] == LANE_PUSH) && (part < gpu->demand[pair])) {
            gpu->decided.beside[pair] = part;
        }
    }
}

void mpath_gpu_coll_order_rest(mpath_gpu_coll_t *gpu)
{
    compute_order(gpu, 0);
}

void mpath_gpu_coll_make_order(mpath_gpu_coll_t *gpu)
{
    share_with_host(gpu);
    gpu->decided.order_ns = gpu->decided.bound_ns = 0;
    if (gpu->decided.pushes) {
        compute_order(gpu, 0);
        gpu->decided.order_ns = mpath_order_time_ns(gpu->order);
        gpu->decided.bound_ns = mpath_order_bound_ns(gpu->order);
        mpath_debug("call %llu on device memory: the engines take %llu ns in their order, the busiest one %llu ns",
                    (unsigned long long)gpu->number, (unsigned long long)gpu->decided.order_ns,
                    (unsigned long long)gpu->decided.bound_ns);
    }
}

/* What a kernel leaves to the host is a multiple of this. */
#define SHARE_GRAIN_BYTES (UINT64_C(64) << 10)

/* On an H100 that two and four ranks share, and on two of them: doc/benchmarks/2026-11-24-streams.md. */
#define STREAMS_LEAST_BYTES (UINT64_C(128) << 10)
#define STREAMS_MOST_BYTES (UINT64_C(2) << 20)

mpath_status_t mpath_gpu_coll_get_slots(mpath_gpu_coll_t *gpu, uint64_t bytes, const char *without)
{
    mpath_status_t status;

    if (gpu->board.staged != NULL) {
        return MPATH_OK;
    }
    status = mpath_board_open_slots(&gpu->board, bytes, (gpu->send.gpu != NULL) ? gpu->send.gpu : gpu->receive.gpu);
    if ((status == MPATH_OK) || (mpath_team_status(gpu->team) != MPATH_OK)) {
        return status;
    }
    if (mpath_board_asked_for_slots(&gpu->board)) {
        mpath_info_by(gpu->me == 0,
                      "a rank cannot have slots in host memory (%s); in this call and %u after it that need them %s",
                      mpath_status_string(status), gpu->board.slots_pause.length, without);
    }
    return MPATH_DECLINED;
}

/* For what goes through the host beside copies between GPUs: without slots nothing does, for a while. */
static mpath_status_t get_slots_beside(mpath_gpu_coll_t *gpu, uint64_t bytes)
{
    mpath_status_t status = mpath_gpu_coll_get_slots(gpu, bytes,
                                                     "nothing goes through the host beside the copies between GPUs");

    if (status == MPATH_DECLINED) {
        gpu->no_beside = 1;
        return MPATH_OK;
    }
    return status;
}

/* For what has no other algorithm: the call is not carried; nor are those like it for a while. */
static mpath_status_t get_slots_alone(mpath_gpu_coll_t *gpu, uint64_t bytes)
{
    mpath_status_t status = mpath_gpu_coll_get_slots(gpu, bytes, "device memory is copied as a whole");

    if (status == MPATH_DECLINED) {
        gpu->lacks_slots   = 1;
        gpu->decided.valid = 0; /* it has no slots */
    }
    return status;
}

void mpath_gpu_coll_count_pause(mpath_gpu_coll_t *gpu)
{
    if (gpu->no_beside && !mpath_pause_passes(&gpu->board.slots_pause)) {
        gpu->no_beside     = 0;
        gpu->decided.valid = 0; /* with nothing beside */
    }
}

static int goes_direct(const gpu_decided_t *decided, int pair)
{
    return (decided->lanes[pair] != LANE_NONE) && (decided->lanes[pair] != LANE_STAGED);
}

/*
 * What goes from GPU to GPU goes through the host in part, as the caller wants it: the same on all ranks. The slots are
 * there from the first call on that may need them, which takes longer anyway.
 */
static mpath_status_t gpu_coll_share_direct(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    mpath_status_t status  = MPATH_OK;
    int direct             = 0;

    for (int i = 0; gpu->timed && !direct && (gpu->board.staged == NULL) && (i < gpu->size * gpu->size); i++) {
        direct = goes_direct(decided, i);
    }
    if (direct && !gpu->no_beside) {
        status = get_slots_beside(gpu, mpath_gpu_beside_slots_bytes(gpu));
    }
    gpu->share_ppm = gpu->no_beside ? 0 : gpu->share_ppm;
    if ((status != MPATH_OK) || (decided->share_ppm == gpu->share_ppm)) {
        return status;
    }
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        if (goes_direct(decided, i)) {
            decided->beside[i] = gpu->demand[i] / 1000000 * gpu->share_ppm & ~(SHARE_GRAIN_BYTES - 1);
        }
    }
    if (decided->pushes) {
        mpath_gpu_coll_order_rest(gpu);
    }
    decided->share_ppm = gpu->share_ppm;
    return MPATH_OK;
}

/* Slots for what was decided to go through the host; what goes beside copies between GPUs (gpu->share_ppm) can do without. */
static mpath_status_t gpu_coll_open_slots(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    int staged = 0, beside = 0, pairs = gpu->size * gpu->size;
    mpath_status_t status;

    for (int i = 0; i < pairs; i++) {
        staged = staged || (decided->lanes[i] == LANE_STAGED);
        beside = beside || (decided->beside[i] > 0);
    }
    if (staged || !beside) {
        return staged ? get_slots_alone(gpu, gpu->settings->gpu_memory_bytes) : MPATH_OK;
    }
    status = get_slots_beside(gpu, gpu->settings->gpu_memory_bytes);
    if (gpu->no_beside) {
        memset(decided->beside, 0, (size_t)pairs * sizeof(*decided->beside));
        mpath_gpu_coll_make_order(gpu);
    }
    return status;
}

/*
 * Shorter messages are copied sooner than streams are told to wait. Of longer ones streams pass chunks of 512 KiB, hosts
 * those of whole slots, which is faster if the hosts look all the time.
 */
static int is_for_streams(const mpath_gpu_coll_t *gpu, uint64_t bytes)
{
    return (gpu->settings->gpu_stream_waits == MPATH_GPU_WAITS_YES) ||
           ((bytes >= STREAMS_LEAST_BYTES) && ((bytes <= STREAMS_MOST_BYTES) || mpath_idle_is_crowded()));
}

int mpath_gpu_coll_by_streams(const mpath_gpu_coll_t *gpu, int from, int to, uint64_t bytes)
{
    int32_t least = gpu->turns.shared ? MPATH_BOARD_WAITS_BESIDE : MPATH_BOARD_WAITS_ALONE;

    return is_for_streams(gpu, bytes) && (gpu_cell(gpu, from)->sides[MPATH_BOARD_SEND].waits >= least) &&
           (gpu_cell(gpu, to)->sides[MPATH_BOARD_RECV].waits >= least);
}

/* A rank that works on another's memory: a sender on a receive buffer (RECV), or a receiver on a send buffer (SEND). */
typedef struct access {
    int opener, owner, side;
} access_t;

static access_t access_of(int source, int destination, int side)
{
    return (side == MPATH_BOARD_RECV) ? (access_t){source, destination, side} : (access_t){destination, source, side};
}

static const mpath_export_t *memory_of(const mpath_gpu_coll_t *gpu, const access_t *access)
{
    return &gpu_cell(gpu, access->owner)->sides[access->side].memory;
}

/* The device with which the opener would work: that of its own side of the message. */
static int32_t device_of(const mpath_gpu_coll_t *gpu, const access_t *access)
{
    return gpu_cell(gpu, access->opener)->sides[MPATH_BOARD_SIDES - 1 - access->side].device;
}

/* What a rank has opened says nothing of its other devices: it is forgotten of one that has turned to another. */
static void forget_moved(mpath_gpu_coll_t *gpu)
{
    for (int i = 0; i < MPATH_BOARD_SIDES * gpu->size; i++) {
        int side = i / gpu->size, rank = i % gpu->size, opens = MPATH_BOARD_SIDES - 1 - side;
        int32_t device = gpu_cell(gpu, rank)->sides[side].device;

        if ((device < 0) || (device == gpu->devices[i])) {
            continue;
        }
        gpu->devices[i] = device;
        for (int k = 0; k < gpu->size * GPU_EXPORT_STATES; k++) {
            gpu_export_state_t *state = &gpu->export_states[opens * gpu->size + k / GPU_EXPORT_STATES]
                                             .exports[k % GPU_EXPORT_STATES];

            state->opened &= ~(1ull << rank);
            state->failed &= ~(1ull << rank);
        }
    }
}

static gpu_export_state_t *find_export(mpath_gpu_coll_t *gpu, const access_t *access)
{
    const mpath_export_t *memory = memory_of(gpu, access);
    gpu_export_states_t *list    = &gpu->export_states[access->side * gpu->size + access->owner];
    gpu_export_state_t *state;

    for (int i = 0; i < GPU_EXPORT_STATES; i++) {
        state = &list->exports[i];
        if ((state->buffer_id == memory->buffer_id) && (state->base == memory->base) &&
            (state->bytes == memory->bytes)) {
            return state;
        }
    }
    state      = &list->exports[list->next];
    list->next = (list->next + 1) % GPU_EXPORT_STATES;
    *state     = (gpu_export_state_t){.base = memory->base, .bytes = memory->bytes, .buffer_id = memory->buffer_id};
    return state;
}

static gpu_refused_t *refused_pair(const mpath_gpu_coll_t *gpu, const access_t *access)
{
    return &gpu->refused[(size_t)access->opener * (size_t)gpu->size + (size_t)access->owner];
}

/* Could work, if opening does. */
static int is_candidate(const mpath_gpu_coll_t *gpu, const access_t *access)
{
    const mpath_export_t *memory = memory_of(gpu, access);
    const gpu_refused_t *refused = refused_pair(gpu, access);
    int32_t device               = device_of(gpu, access);

    return (access->opener != access->owner) && (device >= 0) && (memory->how != MPATH_EXPORT_NONE) &&
           ((refused->device != device) || (memcmp(&refused->uuid, &memory->uuid, sizeof(memory->uuid)) != 0));
}

static int is_unknown(mpath_gpu_coll_t *gpu, const access_t *access)
{
    const gpu_export_state_t *state = is_candidate(gpu, access) ? find_export(gpu, access) : NULL;

    return (state != NULL) && !(((state->opened | state->failed) >> access->opener) & 1);
}

static int is_open(mpath_gpu_coll_t *gpu, const access_t *access)
{
    return is_candidate(gpu, access) && ((find_export(gpu, access)->opened >> access->opener) & 1);
}

/* Opens memory of a rank for this one; quietly fails where the devices are known not to reach each other. */
static int open_import(mpath_gpu_coll_t *gpu, const access_t *access)
{
    const mpath_export_t *memory = memory_of(gpu, access);
    mpath_gpu_t *device          = (access->side == MPATH_BOARD_RECV) ? gpu->send.gpu : gpu->receive.gpu;
    int peer                     = mpath_gpu_find(&memory->uuid); /* -1: only the other process sees it */

    return ((peer < 0) || mpath_gpu_can_reach(device, peer)) &&
           (mpath_import_get(memory, device, &gpu->decided.imports[access->side][access->owner]) == MPATH_OK);
}

/* Opens what this rank may work on and has not met before. Returns a mask of the owners with whom it failed. */
static uint64_t open_unknown(mpath_gpu_coll_t *gpu, int side)
{
    uint64_t failed = 0;

    for (int peer = 0; peer < gpu->size; peer++) {
        access_t access = {gpu->me, peer, side};
        uint64_t bytes  = (side == MPATH_BOARD_RECV) ? gpu_bytes(gpu, gpu->me, peer) : gpu_bytes(gpu, peer, gpu->me);

        if ((bytes > 0) && is_unknown(gpu, &access) && !open_import(gpu, &access)) {
            gpu->decided.imports[side][peer] = NULL;
            failed |= 1ull << peer;
        }
    }
    return failed;
}

/* All ranks tell how opening went. */
static mpath_status_t exchange_opened(mpath_gpu_coll_t *gpu, int side, uint64_t failed)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    uint64_t all[MPATH_ORDER_MAX_RANKS];
    mpath_status_t status = mpath_team_allgather(gpu->team, &failed, sizeof(failed), all);

    for (int i = 0; (status == MPATH_OK) && (i < gpu->size * gpu->size); i++) {
        access_t access = access_of(i / gpu->size, i % gpu->size, side);

        if ((gpu->demand[i] > 0) && is_unknown(gpu, &access)) {
            gpu_export_state_t *state = find_export(gpu, &access);

            if ((all[access.opener] >> access.owner) & 1) {
                state->failed |= 1ull << access.opener;
                *refused_pair(gpu, &access) = (gpu_refused_t){.device = device_of(gpu, &access),
                                                              .uuid   = memory_of(gpu, &access)->uuid};
            } else {
                state->opened |= 1ull << access.opener;
            }
        }
    }
    if ((status == MPATH_OK) && (failed != 0) && !atomic_flag_test_and_set(&warned)) {
        mpath_warn("rank %d cannot reach the device memory of %d other ranks; that data goes through host memory, at "
                   "about a tenth of the speed",
                   gpu->me, __builtin_popcountll(failed));
    }
    gpu->counters.imports++;
    return status;
}

/*
 * Of one side of everybody's memory, those pairs that have data: where all is known nothing is opened. Afterwards
 * is_open() holds where opening works.
 */
static mpath_status_t look_at_side(mpath_gpu_coll_t *gpu, int side)
{
    int unknown = 0;

    for (int i = 0; i < gpu->size * gpu->size; i++) {
        access_t access = access_of(i / gpu->size, i % gpu->size, side);

        unknown = ((gpu->demand[i] > 0) && is_unknown(gpu, &access)) || unknown;
    }
    return unknown ? exchange_opened(gpu, side, open_unknown(gpu, side)) : MPATH_OK;
}

/* Pairs between GPUs are LANE_PUSH so far: gives the kernel what is faster with it. */
static void choose(mpath_gpu_coll_t *gpu)
{
    mpath_gpu_way_t lane = mpath_gpu_coll_fastest_lane(gpu);

    gpu->decided.pushes = 0;
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        if (gpu->decided.lanes[i] != LANE_PUSH) {
            continue;
        }
        if (gpu_cell(gpu, i / gpu->size)->kernels &&
            ((lane == MPATH_GPU_WAY_KERNEL) || (gpu->demand[i] < mpath_gpu_coll_engine_least(gpu)))) {
            gpu->decided.lanes[i] = LANE_KERNEL;
        } else {
            gpu->decided.pushes = 1;
        }
    }
}

void mpath_gpu_coll_forget_lanes(mpath_gpu_coll_t *gpu)
{
    gpu->decided.valid = 0;
    mpath_gpu_coll_close_imports(gpu);
}

void mpath_gpu_coll_close_imports(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided   = &gpu->decided;
    mpath_import_t **imports = decided->imports[MPATH_BOARD_RECV]; /* of both sides */
    unsigned count           = 2 * (unsigned)gpu->size;

    decided->closed_stamp = mpath_import_put_all(imports, count);
    memcpy(decided->closed, imports, count * sizeof(mpath_import_t *));
    memset(imports, 0, count * sizeof(mpath_import_t *));
}

/* Whether all is as in the call before. All ranks find the same. */
static int is_decided(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    size_t cells           = (size_t)gpu->size * (size_t)gpu->size;
    int same               = decided->valid;

    for (int rank = 0; rank < gpu->size; rank++) {
        same                       = same && (decided->generations[rank] == gpu_cell(gpu, rank)->generation);
        decided->generations[rank] = gpu_cell(gpu, rank)->generation;
    }
    same = same && (memcmp(decided->demand, gpu->demand, cells * sizeof(*gpu->demand)) == 0);
    if (!same) {
        memcpy(decided->demand, gpu->demand, cells * sizeof(*gpu->demand));
    }
    return same;
}

/*
 * Notes what this rank works on. Nothing else may be opened now: its owner waits for nobody who has no work on it, and
 * may have ended the call and freed the memory.
 */
static void note_wanted(mpath_gpu_coll_t *gpu)
{
    memset(gpu->decided.wanted, 0, sizeof(gpu->decided.wanted));
    for (int rank = 0; rank < gpu->size; rank++) {
        gpu_lane_t to = gpu_lane(gpu, gpu->me, rank);

        gpu->decided.wanted[MPATH_BOARD_RECV] |= ((to == LANE_KERNEL) || (to == LANE_PUSH)) ? 1ull << rank : 0;
    }
}

/* In a call like the one before, what was open in that: the cache of imports has it. */
static void open_again(mpath_gpu_coll_t *gpu)
{
    unsigned count = 2 * (unsigned)gpu->size;

    if (mpath_import_take_again(gpu->decided.closed, count, gpu->decided.closed_stamp)) {
        memcpy(gpu->decided.imports[MPATH_BOARD_RECV], gpu->decided.closed, count * sizeof(mpath_import_t *));
    }
}

static mpath_status_t open_wanted(mpath_gpu_coll_t *gpu)
{
    for (int side = 0; side < MPATH_BOARD_SIDES; side++) {
        for (int rank = 0; rank < gpu->size; rank++) {
            access_t access = {gpu->me, rank, side};

            if (((gpu->decided.wanted[side] >> rank) & 1) && (gpu->decided.imports[side][rank] == NULL) &&
                !open_import(gpu, &access)) {
                gpu->decided.imports[side][rank] = NULL;
                return MPATH_ERR_UNREACHABLE; /* the others count on it */
            }
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_gpu_coll_find_rates(mpath_gpu_coll_t *gpu)
{
    mpath_node_rates_t node;
    mpath_status_t status;

    if (gpu->rated) {
        return MPATH_OK;
    }
    gpu->rated = 1;
    status     = mpath_gpu_rates_agree(gpu->team, (gpu->send.gpu != NULL) ? gpu->send.gpu : gpu->receive.gpu, &node);
    if ((status == MPATH_OK) && node.known) {
        mpath_peer_rates_set(&gpu->rates, &node.probe);
    }
    return status;
}

/* The lane of each pair, with memory open and rates known; the order of the engines. */
static void decide(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;

    for (int i = 0; i < gpu->size * gpu->size; i++) {
        access_t access = access_of(i / gpu->size, i % gpu->size, MPATH_BOARD_RECV);

        decided->lanes[i]  = LANE_NONE;
        decided->beside[i] = decided->helped[i] = 0;
        if ((gpu->demand[i] > 0) && (access.opener != access.owner)) {
            decided->lanes[i] = is_open(gpu, &access) ? LANE_PUSH : LANE_STAGED;
        }
    }
    choose(gpu);
    mpath_gpu_coll_make_order(gpu);
    note_wanted(gpu);
    decided->valid = 1;
}

/* What is kept of the call before; it counts as a plan that was there. */
static int keeps_lanes(mpath_gpu_coll_t *gpu)
{
    int cached;

    gpu_plan_begins(gpu);
    cached = is_decided(gpu);
    gpu_plan_ends(gpu);
    gpu->counters.plan_hits += cached ? 1 : 0;
    return cached;
}

mpath_status_t mpath_gpu_coll_find_lanes(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    mpath_status_t status;

    if (keeps_lanes(gpu)) {
        open_again(gpu);
        status = gpu_coll_share_direct(gpu);
        return (status == MPATH_OK) ? open_wanted(gpu) : status;
    }
    mpath_gpu_coll_forget_lanes(gpu);
    forget_moved(gpu);
    decided->share_ppm = decided->help_percent = 0;
    status                                     = look_at_side(gpu, MPATH_BOARD_RECV);
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_find_rates(gpu);
    }
    if (status == MPATH_OK) {
        gpu_plan_begins(gpu);
        decide(gpu);
        gpu_plan_ends(gpu);
        gpu->counters.plans++;
    }
    if (status == MPATH_OK) {
        status = gpu_coll_open_slots(gpu);
    }
    if (status == MPATH_OK) {
        status = gpu_coll_share_direct(gpu);
    }
    return (status == MPATH_OK) ? open_wanted(gpu) : status;
}

mpath_status_t mpath_gpu_coll_open_all(mpath_gpu_coll_t *gpu, int works)
{
    gpu_decided_t *decided = &gpu->decided;
    mpath_status_t status  = MPATH_OK;

    if (is_decided(gpu)) {
        open_again(gpu);
    } else {
        mpath_gpu_coll_forget_lanes(gpu);
        forget_moved(gpu);
        for (int side = 0; (status == MPATH_OK) && (side < MPATH_BOARD_SIDES); side++) {
            status = look_at_side(gpu, side);
        }
        decided->valid  = status == MPATH_OK;
        decided->all    = 1;
        decided->pushes = 0;
        for (int i = 0; decided->valid && (i < gpu->size * gpu->size); i++) {
            access_t write = access_of(i / gpu->size, i % gpu->size, MPATH_BOARD_RECV);
            access_t read  = access_of(i / gpu->size, i % gpu->size, MPATH_BOARD_SEND);
            int other      = (gpu->demand[i] > 0) && (write.opener != write.owner);

            decided->all = decided->all && gpu_cell(gpu, write.opener)->kernels &&
                           (!other || (is_open(gpu, &write) && is_open(gpu, &read)));
        }
    }
    if (status != MPATH_OK) {
        return status;
    }
    memset(decided->wanted, 0, sizeof(decided->wanted));
    for (int rank = 0; works && (rank < gpu->size); rank++) {
        uint64_t bit = (rank != gpu->me) ? 1ull << rank : 0;

        decided->wanted[MPATH_BOARD_RECV] |= (gpu_bytes(gpu, gpu->me, rank) > 0) ? bit : 0;
        decided->wanted[MPATH_BOARD_SEND] |= (gpu_bytes(gpu, rank, gpu->me) > 0) ? bit : 0;
    }
    return decided->all ? open_wanted(gpu) : MPATH_DECLINED;
}
