/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, the set-up by the first call on device memory: the segment on every host, streams and slots on the GPUs, and the
 * topology that is left where some rank cannot do its part. Every rank takes part in all exchanges whatever has failed
 * in it, so that all come to the same end.
 *
 * Slots on the GPUs for chunks that pass through are made where a path passes through the rank, opened by those who write
 * to them, and given back when a GPU gets short of memory.
 */
#include "mover/pace.h"
#include "mover/relay_private.h"

#include "device/usage.h"
#include "node/rates.h"
#include "team/team.h"
#include "topo/beside.h"
#include "topo/discover/gpus.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_LEAST_BYTES (1ull << 20)

/*
 * What stays free on a GPU when slots are made: so many times as much as all slots of the process, or this part of its
 * memory, if that is less.
 */
#define POOL_SPARE_TIMES 4

#define POOL_SPARE_SHARE 64
#define LOOK_CALLS 64 /* the question takes the driver some time */

/* GPU memory for slots, of all communicators of this process. */
static _Atomic uint64_t pool_total_bytes;

/* Its calls in communicators with slots, and how often a look has found a GPU short of memory. */
static atomic_uint calls, shortages;

/* What stays free beside so many bytes of slots. They are given back when only half of that is left. */
static uint64_t spare_beside(uint64_t bytes, uint64_t total_bytes)
{
    return (POOL_SPARE_TIMES * bytes < total_bytes / POOL_SPARE_SHARE) ? POOL_SPARE_TIMES * bytes
                                                                       : total_bytes / POOL_SPARE_SHARE;
}

/* Of what is left; communicators that come later get some, too. */
static uint64_t pool_share(uint64_t left, int is_first)
{
    uint64_t share = is_first ? left / 2 + POOL_LEAST_BYTES - 1 : left / 4;

    share = share / POOL_LEAST_BYTES * POOL_LEAST_BYTES;
    share = (share < POOL_LEAST_BYTES) ? POOL_LEAST_BYTES : share;
    return (share <= left) ? share : 0;
}

/* Noted as taken, of what the parameters leave to the process. */
static uint64_t pool_budget(const mpath_settings_t *settings)
{
    uint64_t limit = settings->gpu_relay_bytes, total = atomic_load(&pool_total_bytes), left, take;
    mpath_gpu_usage_t usage;

    mpath_gpu_usage(&usage);
    left = (usage.memory_bytes < settings->gpu_device_bytes) ? settings->gpu_device_bytes - usage.memory_bytes : 0;
    do {
        take = (total < limit) ? limit - total : 0;
        take = pool_share((take < left) ? take : left, total == 0);
    } while (!atomic_compare_exchange_weak(&pool_total_bytes, &total, total + take));
    return take;
}

/* What the GPU can spare, in halves of what is asked for. */
static mpath_device_ptr_t pool_allocate(mpath_gpu_t *gpu, uint64_t limit_bytes, uint64_t *bytes_p)
{
    uint64_t others            = atomic_load(&pool_total_bytes) - *bytes_p; /* of other communicators */
    mpath_device_ptr_t pointer = 0;
    size_t free_bytes, total_bytes;

    if (mpath_gpu_enter(gpu) != MPATH_OK) {
        return 0;
    }
    if (mpath_device()->memory_info(&free_bytes, &total_bytes) != MPATH_DEVICE_DONE) {
        free_bytes = total_bytes = 0;
    }
    while ((*bytes_p >= POOL_LEAST_BYTES) &&
           ((*bytes_p + spare_beside(others + *bytes_p, total_bytes) > free_bytes) ||
            (mpath_gpu_memory_take_within(limit_bytes, &pointer, (size_t)*bytes_p) != MPATH_DEVICE_DONE))) {
        *bytes_p /= 2;
        pointer = 0;
    }
    mpath_gpu_leave(gpu);
    return pointer;
}

static void relay_pool_free(mpath_relay_t *relay)
{
    mpath_relay_slots_forget_pool(relay);
    mpath_gpu_memory_give(relay->gpu, relay->pool, relay->my_pool_bytes);
    atomic_fetch_sub(&pool_total_bytes, relay->my_pool_bytes);
    relay->pool          = 0;
    relay->my_pool_bytes = 0;
}

/* The members into whose slots this rank would have to write, as a mask, and whether a path passes through its own GPU. */
typedef struct pool_users {
    uint64_t ahead;
    int passes;
} pool_users_t;

/* Of a pair, the hops that do not end at the destination. */
static void look_along(const mpath_relay_t *relay, const mpath_topo_t *topo, int source, int destination,
                       pool_users_t *users)
{
    int num = mpath_topo_num_paths(topo, source, destination);

    for (int index = 0; index < num; index++) {
        mpath_path_t path;

        mpath_topo_path(topo, source, destination, index, &path);
        for (int hop = 0; hop + 1 < path.num_hops; hop++) {
            int copies = (path.hops[hop].lane == MPATH_LANE_PEER) || relay->by_copies;

            users->ahead |= (copies && (path.hops[hop].from == relay->me))
                                ? mpath_relay_member_bit(relay, path.hops[hop].to)
                                : 0;
            users->passes |= path.hops[hop].to == relay->me;
        }
    }
}

/* Who passes on is on the node of the source, or on that of the destination. */
static pool_users_t users_of(const mpath_relay_t *relay, const mpath_topo_t *topo)
{
    int node           = mpath_topo_place(topo, relay->me)->node;
    pool_users_t users = {0, 0};

    for (int mate = 0; mate < relay->size; mate++) {
        for (int rank = 0; (rank < relay->size) && (mpath_topo_place(topo, mate)->node == node); rank++) {
            look_along(relay, topo, mate, rank, &users);
            if (mpath_topo_place(topo, rank)->node != node) {
                look_along(relay, topo, rank, mate, &users);
            }
        }
    }
    return users;
}

/* On its GPU; fewer than the budget allows, or none, when there is no memory for them. */
static void make_slots(mpath_relay_t *relay, mpath_export_t *export)
{
    uint64_t taken = pool_budget(relay->settings), bytes = taken;
    mpath_memory_t memory;

    relay->pool = pool_allocate(relay->gpu, relay->settings->gpu_device_bytes, &bytes);
    if (relay->pool == 0) {
        bytes = 0;
    } else if ((mpath_memory_classify((const void *)(uintptr_t)relay->pool, bytes, &memory) != MPATH_OK) ||
               (mpath_export_make((const void *)(uintptr_t)relay->pool, bytes, &memory, export) != MPATH_OK)) {
        export->how = MPATH_EXPORT_NONE;
    }
    atomic_fetch_sub(&pool_total_bytes, taken - bytes);
    relay->my_pool_bytes = bytes;
    if ((relay->pool != 0) && (export->how == MPATH_EXPORT_NONE)) {
        relay_pool_free(relay);
    }
}

/* Makes this rank's slots if paths of the topology, whose users are given, pass through it and it has memory. */
static void relay_pool_make(mpath_relay_t *relay, const pool_users_t *users)
{
    mpath_export_t *export = &relay->shared.pools[relay->shared.my_member];
    relay_rank_t *mine     = &relay->ranks[relay->me];

    export->how  = MPATH_EXPORT_NONE;
    mine->passes = (uint8_t)users->passes;
    if ((relay->gpu != NULL) && mine->passes) {
        make_slots(relay, export);
    }
    relay->shortages = atomic_load(&shortages);
}

/* Opens those of a mask of members. Returns a mask of those with whom it failed. */
static uint64_t relay_pool_open(mpath_relay_t *relay, uint64_t ahead)
{
    uint64_t failed = 0;

    for (uint64_t left = ahead; left != 0; left &= left - 1) {
        int member = __builtin_ctzll(left);

        if ((relay->gpu == NULL) || (relay->pools[member] != NULL) ||
            (relay->shared.pools[member].how == MPATH_EXPORT_NONE)) {
            continue;
        }
        if (mpath_import_get(&relay->shared.pools[member], relay->gpu, &relay->pools[member]) != MPATH_OK) {
            relay->pools[member] = NULL;
            failed |= 1ull << member;
        }
    }
    return failed;
}

/* Marks the members of a mask that `rank` has told of: they share its host. */
static void mark_members(mpath_relay_t *relay, int rank, uint64_t mask)
{
    int is_emulated = mpath_topo_params(mpath_team_gpu_topo(relay->team))->emulated != MPATH_EMULATED_NO;
    int node        = mpath_team_node_of(relay->team, rank);

    for (int other = 0; (other < relay->size) && (mask != 0); other++) {
        if (is_emulated || (mpath_team_node_of(relay->team, other) == node)) {
            relay->ranks[other].marked |= mask & 1;
            mask >>= 1;
        }
    }
}

/*
 * Collective: all learn who has slots, and who can open those that it has to write to, a mask. Marks the ranks that cannot pass on,
 * and says how many there are.
 */
static mpath_status_t relay_pool_agree(mpath_relay_t *relay, uint64_t ahead, int *num_without_p)
{
    uint64_t most[MPATH_TEAM_NUMBERS] = {0};
    relay_hello_t mine                = {.bytes = relay->my_pool_bytes, .passes = relay->ranks[relay->me].passes};
    mpath_status_t status             = mpath_team_most(relay->team, most); /* exports are there */

    if (status != MPATH_OK) {
        return status;
    }
    mine.failed    = relay_pool_open(relay, ahead);
    status         = mpath_team_allgather(relay->team, &mine, sizeof(mine), relay->said);
    *num_without_p = 0;
    for (int rank = 0; rank < relay->size; rank++) {
        relay->ranks[rank].marked = 0;
    }
    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        relay->ranks[rank].passes = relay->said[rank].passes != 0;
        relay->ranks[rank].marked |= (relay->said[rank].bytes == 0) && (relay->said[rank].passes != 0);
        mark_members(relay, rank, relay->said[rank].failed);
    }
    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        const relay_rank_t *one = &relay->ranks[rank];

        *num_without_p += one->marked;
        if (one->passes && !one->marked &&
            ((relay->pool_bytes == 0) || (relay->said[rank].bytes < relay->pool_bytes))) {
            relay->pool_bytes = relay->said[rank].bytes; /* the same slots on all */
        }
    }
    return status;
}

/* Which of the ranks, those that are marked, cannot pass on, and why; once as a warning: communicators come and go. */
static void relay_pool_say(const mpath_relay_t *relay, const char *why)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    char text[256]            = "";
    size_t at                 = 0;
    mpath_log_level_t level;

    for (int rank = 0; (rank < relay->size) && (at + 8 < sizeof(text)); rank++) {
        if (relay->ranks[rank].marked) {
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %d", rank);
        }
    }
    level = atomic_flag_test_and_set(&warned) ? MPATH_LOG_INFO : MPATH_LOG_WARN;
    mpath_log(level, "%s of rank%s; data of others does not pass through in this communicator (gpu_relay_bytes)", why,
              text);
}

/* Of all members, or of those that are marked. */
static void relay_pool_close(mpath_relay_t *relay, int all)
{
    for (int member = 0; member < relay->shared.num_members; member++) {
        if ((relay->pools[member] != NULL) && (all || relay->ranks[relay->shared.members[member]].marked)) {
            mpath_import_put(relay->pools[member]);
            mpath_import_forget(&relay->shared.pools[member].owner);
            relay->pools[member] = NULL;
        }
    }
}

/* -- when memory is short -- */

/* The same, asked now. */
static int relay_pool_is_short_now(const mpath_relay_t *relay)
{
    size_t free_bytes, total_bytes;
    int found = 0;

    if ((relay->pool != 0) && (mpath_gpu_enter(relay->gpu) == MPATH_OK)) {
        found = (mpath_device()->memory_info(&free_bytes, &total_bytes) == MPATH_DEVICE_DONE) &&
                (free_bytes < spare_beside(atomic_load(&pool_total_bytes), total_bytes) / 2);
        mpath_gpu_leave(relay->gpu);
    }
    return found;
}

int mpath_relay_pool_is_short(mpath_relay_t *relay)
{
    unsigned found = atomic_load_explicit(&shortages, memory_order_relaxed);
    int is_due, is;

    if (relay->pool == 0) {
        return 0;
    }
    is_due = (atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1) % LOOK_CALLS == 0;
    if (!is_due && (relay->shortages == found)) {
        return 0;
    }
    relay->shortages = found;
    is               = relay_pool_is_short_now(relay);
    if (is && is_due) {
        relay->shortages = atomic_fetch_add(&shortages, 1) + 1;
    }
    return is;
}

/*
 * Relay, where no topology file tells of GPUs: what the ranks' processes find out of them. Each rank tells of its own
 * GPU, and by their PCI addresses of what that one reaches; a node's GPUs are those of its ranks. So it does not matter
 * whether a process sees all GPUs, some, or its own only.
 */

/* Takes NVML some time, and does not change. */
static const mpath_gpu_survey_t *survey_once(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static mpath_gpu_survey_t survey;
    static int done;

    pthread_mutex_lock(&mutex);
    if (!done && (mpath_gpu_survey(&survey) != MPATH_OK)) {
        survey.num_gpus = 0;
    }
    done = 1;
    pthread_mutex_unlock(&mutex);
    return &survey;
}

/* What a rank tells. Plain data. */
static void look(const mpath_relay_t *relay, mpath_gpu_facts_t *told)
{
    const mpath_gpu_info_t *info     = mpath_gpu_info_of(relay->next_gpu);
    const mpath_gpu_survey_t *survey = survey_once();
    int number                       = mpath_gpu_survey_find(survey, &info->uuid);

    memset(told, 0, sizeof(*told));
    *told = (number >= 0) ? survey->gpus[number] : (mpath_gpu_facts_t){.info = *info};
    mpath_gpu_find_nics(told, mpath_topo_machine(mpath_team_topo(relay->team), mpath_team_node(relay->team)));
}

/* The GPUs of a node's ranks. */
static void survey_node(const mpath_team_t *team, const mpath_gpu_facts_t *all, int node, mpath_gpu_survey_t *survey)
{
    memset(survey, 0, sizeof(*survey));
    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        if (mpath_team_node_of(team, rank) == node) {
            mpath_gpu_survey_add(survey, &all[rank]);
        }
    }
    mpath_gpu_survey_number(survey);
}

/* The rank's number of it; -1: it is not known. All ranks find the same, one of them says so. */
static int find_gpu(const mpath_team_t *team, const mpath_gpu_survey_t *survey, const mpath_gpu_facts_t *all, int rank)
{
    int gpu = mpath_gpu_survey_find(survey, &all[rank].info.uuid);

    if ((gpu < 0) && (mpath_team_rank(team) == 0)) {
        mpath_info(
            "the GPU of rank %d is one more than the %d of its node that mpath knows: no relays of device memory "
            "in this communicator",
            rank, MPATH_MAX_GPUS);
    }
    return gpu;
}

/* Processes that do not see each other's GPUs, and no NVML that does. */
static void say_untold(const mpath_team_t *team, const mpath_gpu_survey_t *survey, int node)
{
    for (int g = 0; (g < survey->num_gpus) && (mpath_team_rank(team) == 0); g++) {
        if (survey->gpus[g].untold != 0) {
            mpath_info(
                "%s: nothing tells that GPU %s reaches GPU %s, as no process sees both and NVML does not say so: "
                "relays do without a way between the GPUs of this node",
                mpath_topo_host(mpath_team_topo(team), node), survey->gpus[g].info.pci,
                survey->gpus[__builtin_ctz(survey->gpus[g].untold)].info.pci);
            return;
        }
    }
}

/* What was measured of a node's GPUs in place of what their links promise. */
static void rate(const mpath_gpu_probe_t *probe, mpath_machine_t *machine, mpath_node_gpus_t *gpus)
{
    if ((probe->num_gpus > 0) && (probe->num_gpus == gpus->num_gpus)) {
        mpath_gpu_probe_apply(probe, machine, gpus);
    }
}

/* Each has copied to the next one: so does any, where nothing tells of a pair. */
static void describe_node(const mpath_team_t *team, const mpath_node_rates_t *rates, int node,
                          mpath_gpu_survey_t *survey, mpath_machine_t *machine, mpath_node_gpus_t *gpus)
{
    mpath_device_uuid_t uuids[MPATH_MAX_GPUS];
    mpath_gpu_probe_t probe;

    for (int g = 0; g < survey->num_gpus; g++) {
        uuids[g] = survey->gpus[g].info.uuid;
    }
    mpath_gpu_rates_of(rates, uuids, survey->num_gpus, &probe);
    for (int g = 0; (g < survey->num_gpus) && (probe.ring_bps > 0); g++) {
        survey->gpus[g].reaches |= survey->gpus[g].untold;
    }
    mpath_topo_copy_machine(mpath_team_topo(team), node, machine);
    mpath_gpu_survey_model(survey, machine, gpus);
    if ((survey->num_gpus > 1) && (gpus->link == MPATH_GPU_LINK_NONE)) {
        say_untold(team, survey, node);
    }
    rate(&probe, machine, gpus);
}

/* The ranks of a node on its GPUs; MPATH_DECLINED: one is on none. */
static mpath_status_t place_node(const mpath_team_t *team, const mpath_gpu_facts_t *all, int node,
                                 const mpath_gpu_survey_t *survey, mpath_place_t *places)
{
    mpath_status_t status = MPATH_OK;

    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        if (mpath_team_node_of(team, rank) == node) {
            places[rank]     = *mpath_topo_place(mpath_team_topo(team), rank);
            places[rank].gpu = find_gpu(team, survey, all, rank);
            status           = (places[rank].gpu < 0) ? MPATH_DECLINED : status;
        }
    }
    return status;
}

/* The topology. The same on all ranks. */
static mpath_status_t relay_discover_build(mpath_team_t *team, const mpath_gpu_facts_t *all,
                                           const mpath_node_rates_t *rates)
{
    mpath_machine_t *machines  = calloc((size_t)mpath_team_num_nodes(team), sizeof(*machines));
    mpath_node_gpus_t *gpus    = calloc((size_t)mpath_team_num_nodes(team), sizeof(*gpus));
    mpath_gpu_survey_t *survey = malloc(sizeof(*survey));
    mpath_topo_params_t params = *mpath_topo_params(mpath_team_topo(team));
    mpath_place_t *places      = calloc((size_t)mpath_team_size(team), sizeof(*places));
    mpath_topo_t *topo;
    mpath_status_t status = ((machines != NULL) && (gpus != NULL) && (survey != NULL) && (places != NULL))
                                ? MPATH_OK
                                : MPATH_ERR_NO_MEMORY;

    for (int node = 0; (status == MPATH_OK) && (node < mpath_team_num_nodes(team)); node++) {
        survey_node(team, all, node, survey);
        status = place_node(team, all, node, survey, places);
        describe_node(team, &rates[node], node, survey, &machines[node], &gpus[node]);
    }
    /* The NIC beside a rank's processor is not always one beside its GPU, where its data is. */
    if (status == MPATH_OK) {
        status = mpath_beside_deal(machines, gpus, mpath_team_num_nodes(team), places, mpath_team_size(team));
    }
    if (status == MPATH_OK) {
        params.peer_legs = 1;
        status = mpath_topo_create_with_gpus(machines, gpus, mpath_team_num_nodes(team), places, mpath_team_size(team),
                                             &params, &topo);
    }
    if (status == MPATH_OK) {
        mpath_team_set_gpu_topo(team, topo);
    }
    free(machines);
    free(gpus);
    free(survey);
    free(places);
    return status;
}

mpath_status_t mpath_relay_discover(mpath_relay_t *relay)
{
    mpath_gpu_facts_t mine, *all = malloc((size_t)relay->size * sizeof(*all));
    mpath_node_rates_t *rates = malloc((size_t)mpath_team_num_nodes(relay->team) * sizeof(*rates));
    mpath_status_t status;

    if ((all == NULL) || (rates == NULL)) {
        free(all);
        free(rates);
        mpath_error("no memory for the GPUs of %d ranks; the call fails", relay->size);
        return MPATH_ERR_NO_MEMORY;
    }
    look(relay, &mine);
    status = mpath_team_allgather(relay->team, &mine, sizeof(mine), all);
    if (status == MPATH_OK) {
        status = mpath_gpu_rates_agree(relay->team, relay->next_gpu, rates);
    }
    if (status == MPATH_OK) {
        status = mpath_relay_all(relay->team, relay_discover_build(relay->team, all, rates));
    }
    free(all);
    free(rates);
    if ((status != MPATH_OK) && (mpath_team_status(relay->team) == MPATH_OK)) {
        status = MPATH_DECLINED;
    }
    return status;
}

/*
 * Relay, what follows from a plan: this rank's duties, the size of chunks and slots, and the receive buffers that it
 * writes to. All of it stays while plan and memory do. Opening a buffer may fail on one rank, so after a change all
 * tell how it went.
 */

#define CHUNK_COST_NS 8000u /* of the host's time, for a chunk at a hop */
#define CROWD 12u
#define CROWD_LEAST 2u
#define CHUNK_LEAST_NS 20000u
#define CHUNK_MOST_NS 250000u
#define SLOT_GRAIN 65536u
#define CHUNK_WITHOUT_SLOTS (4u << 20)
#define SLOTS_LEAST 8u /* of a class: some mates, two chunks each */

static uint64_t root(uint64_t value)
{
    uint64_t low = 0, high = UINT32_MAX;

    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;

        if (middle * middle <= value) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/*
 * How many pieces of messages a rank has to do with, in eighths: with twelve and more, chunks cost as much as they
 * gain. A plan without relays has no pipeline to fill. Of a plan by pairs of nodes nobody knows, and ranks are many.
 */
static uint64_t crowd(const mpath_relay_t *relay, const mpath_plan_t *plan)
{
    uint64_t eighths;
    size_t num_flows;

    mpath_plan_flows(plan, &num_flows);
    eighths = 8 * num_flows / (uint64_t)relay->size;
    eighths = (eighths < CROWD_LEAST) ? CROWD_LEAST : eighths;
    return ((eighths > CROWD) || mpath_plan_is_part(plan) || (mpath_plan_relayed_bytes(plan) == 0)) ? CROWD : eighths;
}

/*
 * A pipeline of k chunks takes 1 + (hops - 1) / k times as long as its slowest hop, and k times what a chunk costs the
 * host: least at the root of the product of the two. Where few messages move, copies of one run while the host looks
 * after another: shorter chunks cost nothing then, and end sooner.
 */
static uint64_t chunk_ns(const mpath_relay_t *relay, const mpath_plan_t *plan)
{
    uint64_t z_ns = mpath_plan_z_ns(plan), ns = root((z_ns < UINT64_MAX / CHUNK_COST_NS) ? z_ns * CHUNK_COST_NS : 0);

    ns = ns * crowd(relay, plan) / CROWD;
    ns = (ns < CHUNK_LEAST_NS) ? CHUNK_LEAST_NS : ns;
    return (ns > CHUNK_MOST_NS) ? CHUNK_MOST_NS : ns;
}

/* Slots are as large as chunks of that length at the fastest link of GPUs, if there is room for enough of them. */
static void size_slots(mpath_relay_t *relay, uint64_t ns)
{
    uint64_t half = relay->pool_bytes / 2, fastest_bps = 0, bytes;

    for (int i = 0; i < mpath_topo_num_resources(relay->topo); i++) {
        const mpath_resource_t resource = mpath_topo_resource(relay->topo, i);

        if (((resource.kind == MPATH_RESOURCE_NVLINK) || (resource.kind == MPATH_RESOURCE_GPU_EGRESS)) &&
            (resource.capacity_bps > fastest_bps)) {
            fastest_bps = resource.capacity_bps;
        }
    }
    bytes = fastest_bps / MPATH_NS_PER_MS * ns / (MPATH_NS_PER_S / MPATH_NS_PER_MS);
    bytes = (bytes > half / SLOTS_LEAST) ? half / SLOTS_LEAST : bytes;
    if (half == 0) { /* nobody passes anything on: no slot is ever taken */
        bytes = CHUNK_WITHOUT_SLOTS;
    }
    if (relay->bound.has_staged && (bytes > relay->rails.host_bytes / 2)) { /* chunks fit into slots of the host, too */
        bytes = relay->rails.host_bytes / 2;
    }
    bytes                   = bytes / SLOT_GRAIN * SLOT_GRAIN;
    bytes                   = (bytes < SLOT_GRAIN) ? SLOT_GRAIN : bytes;
    relay->bound.slot_bytes = (uint32_t)bytes;
    relay->bound.slots      = (int)((half / bytes < MPATH_RELAY_MAX_SLOTS) ? half / bytes : MPATH_RELAY_MAX_SLOTS);
}

void mpath_relay_close_buffers(mpath_relay_t *relay)
{
    for (int member = 0; member < relay->shared.num_members; member++) {
        if (relay->buffers[member] != NULL) {
            mpath_import_put(relay->buffers[member]);
            relay->buffers[member] = NULL;
        }
    }
}

static void release(relay_bound_t *bound)
{
    if (bound->schedule != NULL) {
        mpath_schedule_destroy(bound->schedule);
    }
    free(bound->paths);
    free(bound->outlets);
    *bound = (relay_bound_t){.schedule = NULL};
}

void mpath_relay_forget_plans(mpath_relay_t *relay)
{
    for (int i = 0; i < RELAY_KEPT; i++) {
        release(&relay->kept[i]);
    }
    relay->bound     = (relay_bound_t){.schedule = NULL};
    relay->asked_for = 0;
}

/* A plan that calls were bound to before; NULL: not lately. */
static relay_bound_t *find_kept(mpath_relay_t *relay, uint64_t signature)
{
    for (int i = 0; i < RELAY_KEPT; i++) {
        if ((relay->kept[i].schedule != NULL) && (relay->kept[i].signature == signature)) {
            return &relay->kept[i];
        }
    }
    return NULL;
}

/* The present one moves into the place of the one that was not used for longest. */
static void keep(mpath_relay_t *relay)
{
    relay_bound_t *oldest = &relay->kept[0];

    for (int i = 1; i < RELAY_KEPT; i++) {
        oldest = (relay->kept[i].used < oldest->used) ? &relay->kept[i] : oldest;
    }
    release(oldest);
    *oldest = relay->bound;
}

/* A hop whose copy this rank makes into the receive buffer of a mate. */
static int writes_final(const mpath_relay_t *relay, const mpath_duty_t *duty)
{
    return (duty->hop_out != MPATH_DUTY_NO_HOP) && (duty->out.to == duty->destination) &&
           ((duty->out.lane == MPATH_LANE_PEER) || ((duty->out.lane == MPATH_LANE_RAIL) && relay->by_copies));
}

/* NICs that this rank sends by, and that bring it something. */
static void look_at_rail(mpath_relay_t *relay, const mpath_duty_t *duty)
{
    relay_bound_t *bound = &relay->bound;

    if ((duty->hop_out != MPATH_DUTY_NO_HOP) && (duty->out.lane == MPATH_LANE_RAIL)) {
        bound->send_rails |= mpath_nic_bit(duty->out.nic_from);
    }
    if ((duty->hop_in == MPATH_DUTY_NO_HOP) || (duty->in.lane != MPATH_LANE_RAIL)) {
        return;
    }
    if (duty->hop_out == MPATH_DUTY_NO_HOP) {
        bound->own_rails |= mpath_nic_bit(duty->in.nic_to);
        bound->rail_sources |= relay->by_copies ? mpath_relay_member_bit(relay, duty->in.from) : 0;
    } else {
        bound->lent_rails |= mpath_nic_bit(duty->in.nic_to);
    }
}

/* Whom this rank writes to, and who writes how much to it. */
static mpath_status_t look_at_duties(mpath_relay_t *relay)
{
    mpath_schedule_t *schedule = relay->bound.schedule;

    relay->bound.wanted      = 0;
    relay->bound.fetch_bytes = 0;
    memset(relay->bound.expect, 0, sizeof(relay->bound.expect));
    for (size_t i = 0; i < schedule->num_duties; i++) {
        const mpath_duty_t *duty = &schedule->duties[i];

        if (duty->num_chunks >= MPATH_RELAY_MAX_CHUNKS) {
            mpath_error("a message of %llu bytes has too many chunks for relays", (unsigned long long)duty->bytes);
            return MPATH_ERR_UNSUPPORTED;
        }
        if (writes_final(relay, duty)) {
            relay->bound.wanted |= mpath_relay_member_bit(relay, duty->destination);
        }
        look_at_rail(relay, duty);
        if (duty->hop_out != MPATH_DUTY_NO_HOP) {
            continue;
        }
        if ((duty->in.lane == MPATH_LANE_STAGED) || ((duty->in.lane == MPATH_LANE_RAIL) && !relay->by_copies)) {
            relay->bound.fetch_bytes += duty->bytes;
        } else {
            relay->bound.expect[relay->shared.member_of[duty->in.from]] += duty->bytes;
        }
    }
    return MPATH_OK;
}

static mpath_status_t make_tables(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    size_t num_flows, at = 0;
    const mpath_flow_t *flows = mpath_plan_flows(plan, &num_flows);

    relay->bound.paths   = malloc((relay->bound.schedule->num_duties + 1) * sizeof(*relay->bound.paths));
    relay->bound.outlets = calloc(relay->bound.schedule->num_outlets + 1, sizeof(*relay->bound.outlets));
    if ((relay->bound.paths == NULL) || (relay->bound.outlets == NULL)) {
        mpath_error("no memory for the paths of %zu flows over GPUs", relay->bound.schedule->num_duties);
        return MPATH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < relay->bound.schedule->num_duties; i++) {
        while (mpath_plan_flow_number(plan, at) != relay->bound.schedule->duties[i].flow) { /* both ascend */
            at++;
        }
        mpath_topo_path(relay->topo, flows[at].source, flows[at].destination, flows[at].path, &relay->bound.paths[i]);
    }
    return look_at_duties(relay);
}

static mpath_status_t open_buffer(mpath_relay_t *relay, int member)
{
    const mpath_export_t *memory = &relay->shared.cells[relay->half][member].memory;

    if (relay->buffers[member] != NULL) {
        return MPATH_OK;
    }
    if ((relay->gpu == NULL) || (memory->how == MPATH_EXPORT_NONE) ||
        (mpath_import_get(memory, relay->gpu, &relay->buffers[member]) != MPATH_OK)) {
        relay->buffers[member] = NULL;
        return MPATH_DECLINED;
    }
    return MPATH_OK;
}

/* Those that the plan needs. */
static mpath_status_t open_wanted(mpath_relay_t *relay)
{
    mpath_status_t status = MPATH_OK;

    for (uint64_t left = relay->bound.wanted; (left != 0) && (status == MPATH_OK); left &= left - 1) {
        status = open_buffer(relay, __builtin_ctzll(left));
    }
    return status;
}

/* Those that another plan may need. Nonzero: all that there are. */
static int open_others(mpath_relay_t *relay)
{
    int all = 1;

    for (int member = 0; (relay->gpu != NULL) && (member < relay->shared.num_members); member++) {
        if ((member != relay->shared.my_member) &&
            (relay->shared.cells[relay->half][member].memory.how != MPATH_EXPORT_NONE)) {
            all = (open_buffer(relay, member) == MPATH_OK) && all;
        }
    }
    return all;
}

/* Everything of this rank's own; the caller tells the others how it went. */
static mpath_status_t make_schedule(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    mpath_chunk_limits_t limits = {.device_ns = chunk_ns(relay, plan)};
    mpath_status_t status;

    relay->bound = (relay_bound_t){.signature = mpath_relay_signature(relay, plan)};
    mpath_relay_rails_look(relay, plan, &relay->bound);
    size_slots(relay, limits.device_ns);
    limits.chunk_bytes = relay->bound.slot_bytes;
    limits.rail_bytes  = mpath_relay_rails_chunk(relay);
    status             = mpath_schedule_create(relay->topo, relay->me, plan, &limits, &relay->bound.schedule);
    if (status == MPATH_OK) {
        status = make_tables(relay, plan);
    }
    if (status != MPATH_OK) {
        release(&relay->bound);
    }
    return status;
}

mpath_status_t mpath_relay_provide(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    mpath_status_t status = MPATH_OK;

    if (find_kept(relay, mpath_relay_signature(relay, plan)) == NULL) {
        status = mpath_relay_rails_prepare(relay, plan);
    }
    if (status == MPATH_AGAIN) {
        mpath_status_t followed = mpath_relay_follow_topo(relay);

        status = (followed == MPATH_OK) ? MPATH_AGAIN : followed;
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(relay->team, status);
    }
    return status;
}

/* Schedule and slots, of before or new. */
static mpath_status_t bind_plan(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    relay_bound_t *kept = find_kept(relay, mpath_relay_signature(relay, plan));

    if (kept == NULL) {
        mpath_status_t status = make_schedule(relay, plan);

        if (status != MPATH_OK) {
            return status;
        }
        keep(relay);
        kept = find_kept(relay, relay->bound.signature);
    }
    kept->used   = ++relay->bound_count;
    relay->bound = *kept;
    mpath_schedule_reset(relay->bound.schedule);
    return MPATH_OK;
}

/* How opening went on all ranks; *partial_p: some rank has not opened all that it might need one day. */
static mpath_status_t agree_on_buffers(mpath_relay_t *relay, mpath_status_t mine, int *partial_p)
{
    uint64_t most[MPATH_TEAM_NUMBERS] = {
        mpath_team_most_fails(relay->team, mpath_status_is_error(mine) ? mine : MPATH_OK),
        mpath_team_most_fails(relay->team, mpath_status_is_error(mine) ? MPATH_OK : mine), (uint64_t)(*partial_p != 0)};
    mpath_status_t status = mpath_team_most(relay->team, most);
    int rank;

    *partial_p = most[2] != 0;
    return (status == MPATH_OK) ? mpath_team_most_failed((most[0] != 0) ? most[0] : most[1], &rank) : status;
}

/* Nothing to receive is nothing to open. */
int mpath_relay_knows(const mpath_relay_t *relay, const mpath_export_t *memory)
{
    unsigned num = (relay->num_known < RELAY_KNOWN) ? relay->num_known : RELAY_KNOWN;
    int found    = (memory->how == MPATH_EXPORT_NONE) && !relay->partial;

    for (unsigned i = 0; (i < num) && !found; i++) {
        found = !relay->partial && mpath_relay_is_same_memory(memory, &relay->known[i]);
    }
    return found;
}

/* All have opened this rank's receive buffer, or could. */
static void know_buffer(mpath_relay_t *relay)
{
    if (!mpath_relay_knows(relay, &relay->told.memory)) {
        relay->known[relay->num_known++ % RELAY_KNOWN] = relay->told.memory;
    }
}

/* Not all can open everything: then what a plan needs is asked for whenever plan or memory change. */
static int must_ask(const mpath_relay_t *relay, uint64_t signature)
{
    return relay->moved || (relay->asked_for == 0) || (relay->partial && (relay->asked_for != signature));
}

mpath_status_t mpath_relay_take_plan(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    uint64_t signature    = mpath_relay_signature(relay, plan);
    int asks              = must_ask(relay, signature), partial;
    mpath_status_t status = bind_plan(relay, plan);

    if ((status != MPATH_OK) && !asks) {
        return status;
    }
    if (status == MPATH_OK) {
        status = open_wanted(relay);
    }
    if (!asks) {
        return (status == MPATH_DECLINED) ? MPATH_ERR_UNREACHABLE : status; /* the others count on it */
    }
    partial = relay->partial || ((status == MPATH_OK) && !open_others(relay));
    status  = agree_on_buffers(relay, status, &partial);
    if (status != MPATH_OK) {
        mpath_relay_close_buffers(relay);
        relay->asked_for = 0;
        return status;
    }
    if (relay->moved && !partial) {
        know_buffer(relay);
    }
    relay->partial   = partial;
    relay->asked_for = signature;
    relay->moved     = 0;
    return MPATH_OK;
}

static void leave_out(mpath_machine_t *machine, mpath_nic_set_t nics)
{
    for (; nics != 0; nics &= nics - 1) {
        machine->nics[mpath_nic_first(nics)].up = 0;
    }
}

/* One of before that is the same; else the number of a free place, if there is one. */
static int place_of_reduced(const mpath_relay_t *relay, const mpath_topo_t *topo)
{
    int place = 0;

    while ((place < relay->num_reduced) &&
           (mpath_topo_signature(relay->reduced[place]) != mpath_topo_signature(topo))) {
        place++;
    }
    return place;
}

/* It stays, for plans know it, and serves again when rails that come and go are as they were. */
static void take_reduced(mpath_relay_t *relay, mpath_topo_t *topo)
{
    int place = place_of_reduced(relay, topo);

    if (place < relay->num_reduced) {
        mpath_topo_destroy(topo);
    } else {
        relay->reduced[relay->num_reduced++] = topo;
    }
    relay->topo         = relay->reduced[place];
    relay->topo_version = mpath_team_topo_version(relay->team);
    relay->has_no_way   = 0;
    mpath_team_set_gpu_topo_left(relay->team, relay->topo);
}

/* The team's topology without NICs that have failed, in which the ranks that are marked pass nothing on. */
static mpath_status_t build(const mpath_relay_t *relay, mpath_topo_t **topo_p)
{
    const mpath_topo_t *topo   = mpath_team_gpu_topo(relay->team);
    int num_nodes              = mpath_topo_num_nodes(topo);
    mpath_machine_t *machines  = calloc((size_t)num_nodes, sizeof(*machines));
    mpath_node_gpus_t *gpus    = calloc((size_t)num_nodes, sizeof(*gpus));
    mpath_topo_params_t params = *mpath_topo_params(topo);
    mpath_place_t *places      = calloc((size_t)relay->size, sizeof(*places));
    mpath_status_t status      = MPATH_ERR_NO_MEMORY;

    if ((machines != NULL) && (gpus != NULL) && (places != NULL)) {
        for (int node = 0; node < num_nodes; node++) {
            mpath_topo_copy_machine(topo, node, &machines[node]);
            gpus[node] = *mpath_topo_gpus(topo, node);
            leave_out(&machines[node], mpath_team_lost(relay->team, node));
        }
        for (int rank = 0; rank < relay->size; rank++) {
            places[rank]          = *mpath_topo_place(topo, rank);
            places[rank].no_relay = relay->ranks[rank].marked;
        }
        params.no_staged = relay->no_staged;
        status           = mpath_topo_create_with_gpus(machines, gpus, num_nodes, places, relay->size, &params, topo_p);
    }
    free(machines);
    free(gpus);
    free(places);
    return status;
}

/*
 * Where it has paths through ranks that have no slots, since nothing passed through them before, these do not pass on. Collective:
 * each rank looks at its own. All come to the same end but for errors of their own.
 */
static mpath_status_t build_with_slots(mpath_relay_t *relay, mpath_topo_t **topo_p, pool_users_t *users_p)
{
    relay_rank_t *mine = &relay->ranks[relay->me];
    uint8_t *said      = (uint8_t *)relay->said;
    mpath_status_t status, exchanged;
    int more, fails;

    for (int rank = 0; rank < relay->size; rank++) {
        relay->ranks[rank].marked = relay->ranks[rank].without;
    }
    do {
        uint8_t told;

        status    = build(relay, topo_p);
        *users_p  = (status == MPATH_OK) ? users_of(relay, *topo_p) : (pool_users_t){0, 0};
        told      = (status != MPATH_OK) ? 2 : users_p->passes && !mine->passes && !mine->marked;
        exchanged = mpath_team_allgather(relay->team, &told, sizeof(told), said);
        more = fails = 0;
        for (int rank = 0; (exchanged == MPATH_OK) && (rank < relay->size); rank++) {
            fails |= said[rank] == 2;
            more |= said[rank] == 1;
            relay->ranks[rank].marked |= said[rank] == 1;
        }
        if (more && (*topo_p != NULL)) {
            mpath_topo_destroy(*topo_p);
            *topo_p = NULL;
        }
    } while (more && !fails);
    return (status == MPATH_OK) ? exchanged : status;
}

static mpath_status_t try_to_reduce(mpath_relay_t *relay)
{
    mpath_topo_t *reduced = NULL;
    pool_users_t users;
    mpath_status_t status = build_with_slots(relay, &reduced, &users);

    if ((status == MPATH_OK) && (reduced != NULL) && (place_of_reduced(relay, reduced) == RELAY_MAX_REDUCED)) {
        mpath_warn("rails and GPUs have failed in %d ways in this communicator; no relays in it until it is one of "
                   "them again",
                   RELAY_MAX_REDUCED);
        status = MPATH_ERR_UNREACHABLE;
    }
    if ((status == MPATH_OK) && (reduced != NULL) && (relay_pool_open(relay, users.ahead) != 0)) {
        status = MPATH_ERR_UNREACHABLE; /* some hops are new: NICs without a match reach others */
    }
    mpath_relay_forget_plans(relay);
    status = mpath_relay_all(relay->team, status);
    if (status == MPATH_OK) {
        take_reduced(relay, reduced);
        if (relay->rails.is_of_topo) { /* others may send to this rank now */
            mpath_relay_rails_cleanup(relay);
        }
    } else {
        mpath_topo_destroy(reduced);
    }
    return status;
}

/*
 * The topology in which some ranks pass nothing on, without NICs that have failed, and without host memory where there
 * are no slots in it. What is left may have no way for all; that may change with the rails. Collective.
 */
mpath_status_t mpath_relay_follow_topo(mpath_relay_t *relay)
{
    mpath_status_t status = try_to_reduce(relay);

    if ((status == MPATH_ERR_UNREACHABLE) && (mpath_team_status(relay->team) == MPATH_OK)) {
        relay->has_no_way   = 1;
        relay->topo_version = mpath_team_topo_version(relay->team);
        status              = MPATH_OK;
    }
    return status;
}

mpath_status_t mpath_relay_give_back(mpath_relay_t *relay)
{
    uint8_t mine = (uint8_t)relay_pool_is_short_now(relay), *said = (uint8_t *)relay->said;
    mpath_status_t status = mpath_team_allgather(relay->team, &mine, sizeof(mine), said);
    int givers            = 0;

    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        relay_rank_t *one = &relay->ranks[rank];

        one->marked = said[rank] && !one->without;
        one->without |= one->marked;
        givers += one->marked;
    }
    if ((status != MPATH_OK) || (givers == 0)) {
        return status;
    }
    if (relay->me == 0) {
        relay_pool_say(relay, "memory is short on the GPUs, which give their slots back,");
    }
    relay_pool_close(relay, 0);
    status = mpath_relay_all(relay->team, MPATH_OK); /* nobody writes to their slots any more */
    if (status == MPATH_OK) {
        if (mine) {
            relay_pool_free(relay);
        }
        relay->moved = 1; /* plans before this do not count */
        status       = mpath_relay_follow_topo(relay);
    }
    return status;
}

/* Who shares memory with this rank: all where a host stands for several nodes, else those of its node. */
static mpath_status_t open_shared(mpath_relay_t *relay)
{
    int members[MPATH_RELAY_MAX_MEMBERS], num = 0;

    for (int rank = 0; rank < relay->size; rank++) {
        if ((mpath_topo_params(mpath_team_gpu_topo(relay->team))->emulated != MPATH_EMULATED_NO) ||
            (mpath_team_node_of(relay->team, rank) == mpath_team_node(relay->team))) {
            members[num++] = rank;
        }
    }
    return mpath_relay_segment_open(relay->team, members, num, &relay->shared);
}

/* NICs of an emulated cluster are others than those of the same names in another job. */
static void open_owners(mpath_relay_t *relay, const mpath_topo_t *topo, uint64_t scope)
{
    mpath_machine_t machine;

    mpath_topo_copy_machine(topo, mpath_team_node(relay->team), &machine);
    mpath_owners_open(&machine, mpath_team_id(relay->team), scope, &relay->owners);
}

/* Collective. */
static mpath_status_t open_ranks(mpath_relay_t *relay)
{
    const mpath_team_t *team = relay->team;

    relay->ranks = calloc((size_t)relay->size, sizeof(*relay->ranks));
    relay->said  = malloc((size_t)relay->size * sizeof(*relay->said));
    for (int rank = 0; (rank < relay->size) && (relay->ranks != NULL); rank++) {
        int mate = rank - 1;

        while ((mate >= 0) && (mpath_team_node_of(team, mate) != mpath_team_node_of(team, rank))) {
            mate--;
        }
        relay->ranks[rank].mate = mate;
    }
    return mpath_relay_all(relay->team,
                           (relay->ranks != NULL) && (relay->said != NULL) ? MPATH_OK : MPATH_ERR_NO_MEMORY);
}

/* Collective: clocks for emulated rates, those of all communicators of the job. */
static mpath_status_t open_pace(mpath_relay_t *relay, const mpath_topo_t *topo)
{
    mpath_status_t status;
    void *clocks;

    if (mpath_topo_params(topo)->emulated == MPATH_EMULATED_NO) {
        open_owners(relay, topo, 0);
        return MPATH_OK;
    }
    status = mpath_relay_clocks_get(relay->team, &clocks);
    if (status == MPATH_OK) {
        open_owners(relay, topo, mpath_relay_clocks_id(clocks));
        status = mpath_relay_all(relay->team, mpath_pace_open(topo, clocks, &relay->pace));
    }
    return status;
}

/* All that copies of relays may need: one that cannot be had ends a call in the middle. */
static mpath_status_t make_streams(const mpath_relay_t *relay)
{
    mpath_status_t status = MPATH_OK;
    mpath_stream_t *stream;

    for (unsigned i = MPATH_GPU_STREAMS_DIRECT; (i < MPATH_GPU_STREAMS) && (status == MPATH_OK); i++) {
        status = mpath_stream_get(relay->gpu, i, &stream);
    }
    return status;
}

/* Of the set-up, what has to do with GPUs. Collective; an error of one is told to all. */
static mpath_status_t set_up_gpus(mpath_relay_t *relay)
{
    const mpath_topo_t *whole = mpath_team_gpu_topo(relay->team);
    pool_users_t users        = users_of(relay, whole); /* all its pairs are looked at once */
    mpath_status_t status     = MPATH_OK;
    int num_without = 0, has_changed = 0;

    relay->gpu = relay->next_gpu;
    if (relay->gpu != NULL) {
        status = make_streams(relay);
    } else {
        mpath_debug("rank %d has no GPU so far: it passes nothing on until it has device memory in a call", relay->me);
    }
    if (status == MPATH_OK) {
        relay_pool_make(relay, &users);
    }
    status = mpath_relay_all(relay->team, status);
    if (status == MPATH_OK) {
        users.ahead |= (relay->topo != whole) ? users_of(relay, relay->topo).ahead : 0;
        status = relay_pool_agree(relay, users.ahead, &num_without);
    }
    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        relay_rank_t *one = &relay->ranks[rank];

        has_changed |= one->without != one->marked;
        one->without = one->marked;
    }
    if ((status == MPATH_OK) && has_changed) {
        if ((relay->me == 0) && (num_without > 0)) {
            relay_pool_say(relay, "no slots on, or no way to them from all for, the GPUs");
        }
        status = mpath_relay_follow_topo(relay);
    }
    if (status == MPATH_OK) {
        relay->moved = 1; /* nobody has opened anything yet */
        mpath_info_by(relay->me == 0, "rank %d: %llu bytes of GPU memory for chunks that pass through", relay->me,
                      (unsigned long long)relay->my_pool_bytes);
    }
    return status;
}

/* A set-up has failed for all. */
static mpath_status_t give_up(mpath_relay_t *relay, mpath_status_t status)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    mpath_log_level_t level;

    relay->usable = 0;
    if (mpath_team_status(relay->team) != MPATH_OK) {
        return status;
    }
    if (relay->me == 0) {
        level = atomic_flag_test_and_set(&warned) ? MPATH_LOG_INFO : MPATH_LOG_WARN;
        mpath_log(level,
                  "relays of device memory cannot be set up on some rank (%s); it goes other ways in this communicator",
                  mpath_status_string(status));
    }
    return MPATH_DECLINED;
}

mpath_status_t mpath_relay_setup(mpath_relay_t *relay)
{
    const mpath_topo_t *topo = mpath_team_gpu_topo(relay->team);
    mpath_status_t status;

    status = open_ranks(relay);
    if (status == MPATH_OK) {
        status = open_shared(relay);
    }
    if (status != MPATH_OK) {
        return give_up(relay, status);
    }
    relay->opened = 1;
    relay->topo   = topo;
    mpath_process_self(&relay->told.process);
    status = open_pace(relay, topo);
    if (status == MPATH_OK) {
        status = set_up_gpus(relay);
    }
    return (status == MPATH_OK) ? MPATH_OK : give_up(relay, status);
}

/* What was made with GPUs, of this rank and of others. No call is under way. */
static void close_gpus(mpath_relay_t *relay)
{
    relay_pool_close(relay, 1);
    mpath_relay_close_buffers(relay);
    mpath_relay_forget_plans(relay);
    relay_pool_free(relay);
    mpath_relay_rails_cleanup(relay);
}

/* The segment stays: its slots are free and its rings are empty between calls. */
mpath_status_t mpath_relay_renew(mpath_relay_t *relay)
{
    mpath_status_t status;

    mpath_info_by(
        relay->me == 0,
        "rank %d: the application of some rank has ended the context of its GPU, or has begun to use one: relays "
        "are set up anew",
        relay->me);
    close_gpus(relay);
    relay->pool_bytes = 0;
    relay->num_known  = 0;
    relay->partial    = 0;
    status            = mpath_relay_all(relay->team, MPATH_OK); /* all have read what the others had told of slots */
    if (status == MPATH_OK) {
        status = set_up_gpus(relay);
    }
    return (status == MPATH_OK) ? MPATH_OK : give_up(relay, status);
}

void mpath_relay_cleanup(mpath_relay_t *relay)
{
    close_gpus(relay);
    mpath_owners_close(&relay->owners);
    if (relay->pace != NULL) {
        mpath_pace_close(relay->pace);
    }
    mpath_relay_segment_close(&relay->shared);
    mpath_team_set_gpu_topo_left(relay->team, NULL);
    while (relay->num_reduced > 0) {
        mpath_topo_destroy(relay->reduced[--relay->num_reduced]);
    }
}
