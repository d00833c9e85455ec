/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * usage: ranks RANKS PER_NODE RAILS CASE [--json] [--tune RULES] [--calls N] [--steps] [--slow|--lost|--weak] [--gpus]
 *
 * Runs a case on RANKS ranks, PER_NODE of them on each node with RAILS NICs, all in this process, checks every byte, and
 * prints what a rank has caused: control plane bytes and messages, messages of the rails, processor time, heap memory, and
 * the shared memory of a node. Processor time is that of its fiber, without the changes of stack, which ranks that are
 * processes do not have, and without the copies between nodes and on devices, which NICs and engines make. Ends with status 1 when something is wrong.
 * --steps: a case that repeats calls makes one more, in which the first leader and the last rank of its node go step by step: the
 * instructions of a call, which are nearly the same in every run. 0: the processor does not tell.
 * --slow: the first rail has a quarter of the rate of the others, on all nodes. --lost: the second node has lost its second NIC.
 * --weak: the last NIC of the last node has a quarter of the rate of the others.
 * --gpus: buffers are in memory of GPUs, one for each rank, with links between those of a node and a NIC beside each; of some vendor
 * whose driver is in this process (unit/fake_device.h). For cases of alltoallv, and as many rails as ranks on a node.
 *
 *   agreement   calls without data
 *   small       8 bytes for everybody
 *   sparse      16 KiB for 4 neighbours, again and again
 *   dense       the first matrix: 4 KiB for everybody, 16 times as much for rank 0
 *   changing    a new one in each call: 4 KiB for everybody, the first rank of each node sends 16 times as much, and some rank
 *               gets more than others
 *   meet        the first exchange on a communicator: 16 KiB for 4 ranks on nodes that are not near, 3 and 6 to either side
 *   first       the first Allreduce of 64 KiB on a communicator
 *   allreduce   later ones
 */
#include "scale.h"

#include "coll/alltoallv.h"
#include "coll/reduction.h"
#include "team/agree.h"
#include "team/team_private.h"
#include "unit/fake_device.h"
#include "util/fiber.h"
#include "util/time.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define STACK_BYTES (256u << 10)
#define DEADLINE_S 300
#define ROUNDS 8 /* of a case that repeats calls */
#define RATE_BPS UINT64_C(50000000000)
#define SLOW_BPS UINT64_C(12500000000)
#define SPARSE_BYTES 16384
#define FAR_NODES 3   /* not near each other */
#define SWITCHES 4096 /* of fibers, to learn what one takes */
#define CLOCK_READINGS 4096
#define DENSE_BYTES 4096
#define DENSE_HOT 16
#define REDUCED_BYTES 65536
#define SLOTS_BYTES (UINT64_C(1) << 20)
#define STEPPED 2 /* ranks: the first leader, and the last rank of its node */

scale_t scale = {.running = -1};

typedef struct rank {
    int rank, has_ended;
    mpath_fiber_t *fiber;
    mpath_machine_t machine;
    mpath_oob_t oob;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_coll_t *coll;
    mpath_symmetric_t *symmetric;
    uint64_t *send_bytes, *send_offsets, *recv_bytes, *recv_offsets;
    char *send, *recv; /* with --gpus on its device, and what is known of them */
    mpath_memory_t send_memory, recv_memory;
    uint64_t send_room, recv_room;
    mpath_status_t status;
} rank_t;

typedef enum demand { DEMAND_NONE, DEMAND_SMALL, DEMAND_SPARSE, DEMAND_FAR, DEMAND_DENSE, DEMAND_CHANGING } demand_t;

typedef struct scenario {
    const char *name;
    demand_t demand;
    int reduces, rounds; /* rounds: calls before the one that counts are not measured */
} scenario_t;

static const scenario_t scenarios[] = {
    {.name = "agreement", .demand = DEMAND_NONE, .rounds = ROUNDS},
    {.name = "small", .demand = DEMAND_SMALL, .rounds = ROUNDS},
    {.name = "sparse", .demand = DEMAND_SPARSE, .rounds = ROUNDS},
    {.name = "dense", .demand = DEMAND_DENSE, .rounds = 1},
    {.name = "changing", .demand = DEMAND_CHANGING, .rounds = ROUNDS},
    {.name = "meet", .demand = DEMAND_FAR, .rounds = 1},
    {.name = "first", .reduces = 1, .rounds = 1},
    {.name = "allreduce", .reduces = 1, .rounds = ROUNDS},
};

/* The ranks that go step by step, while they do, and what they have done. */
static int wants_steps, steps_are_counted;
static volatile uint64_t steps, steps_of[STEPPED];

static rank_t *ranks;
static int slow, lost, weak, gpus; /* see above */
static mpath_settings_t settings;

static void fail(const char *what, int rank, mpath_status_t status)
{
    fprintf(stderr, "scale: %s: rank %d: %s\n", what, rank, mpath_status_string(status));
    exit(1);
}

uint64_t scale_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * MPATH_NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t clock_ns; /* that reading this clock takes, a system call */

static void clock_learn(void)
{
    uint64_t began_ns = scale_cpu_ns();

    for (int i = 0; i < CLOCK_READINGS; i++) {
        (void)scale_cpu_ns();
    }
    clock_ns = (scale_cpu_ns() - began_ns) / CLOCK_READINGS;
}

void scale_message_took(uint64_t began_ns)
{
    scale.counts[scale.running].message_cpu_ns += scale_cpu_ns() - began_ns + clock_ns;
}

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
/* No time passes while steps are counted, which takes as long as there is to do beside it: waits look around when time has passed. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    static struct timespec held;

    if (clock != CLOCK_MONOTONIC) {
        return __real_clock_gettime(clock, now);
    }
    if (!steps_are_counted && __real_clock_gettime(clock, &held) != 0) {
        return -1;
    }
    *now = held;
    return 0;
}

static void step(int trap)
{
    (void)trap;
    steps++;
}

/* Which of the ranks that go step by step it is; -1: none. */
static int stepped(int rank)
{
    return !steps_are_counted ? -1 : rank == 0 ? 0 : rank == scale.num_local - 1 ? 1 : -1;
}

/* From now on each instruction of this thread raises SIGTRAP, or none does: the trap flag, below what the compiler may use of the stack. */
#if defined(__x86_64__)
static inline void steps_begin(void)
{
    __asm__ __volatile__("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::
                             : "memory", "cc");
}

static inline void steps_end(void)
{
    __asm__ __volatile__("lea -128(%%rsp), %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::
                             : "memory", "cc");
}
#else
static inline void steps_begin(void)
{
}

static inline void steps_end(void)
{
}
#endif

static uint64_t slots_of(int rank)
{
    mpath_coll_counters_t counters = {0};

    if (gpus && ranks[rank].coll != NULL) {
        mpath_coll_counters(ranks[rank].coll, &counters);
    }
    return counters.relay.moved.slot_bytes;
}

/* Slots on GPUs have a limit for all ranks of a process: that leaves SLOTS_BYTES to each rank that is resumed. */
static int resume_with_slots(int rank)
{
    static uint64_t taken;
    uint64_t before = slots_of(rank);
    int has_ended;

    ranks[rank].context->settings.gpu_relay_bytes = taken + SLOTS_BYTES;

    has_ended = mpath_fiber_resume(ranks[rank].fiber) == MPATH_FIBER_ENDED;
    taken += slots_of(rank) - before;
    return has_ended;
}

static int resume(int rank)
{
    int at = stepped(rank), has_ended;

    if (gpus && at < 0) {
        return resume_with_slots(rank);
    }
    if (at < 0) {
        return mpath_fiber_resume(ranks[rank].fiber) == MPATH_FIBER_ENDED;
    }
    steps = 0;
    steps_begin();
    has_ended = mpath_fiber_resume(ranks[rank].fiber) == MPATH_FIBER_ENDED;
    steps_end();
    steps_of[at] += steps;
    return has_ended;
}

/* Runs `body` on all ranks, each on its fiber, until all have ended. */
static void run(const char *what, mpath_fiber_body_t body)
{
    uint64_t start_ns = scale_cpu_ns();
    int left          = scale.size;

    for (int i = 0; i < scale.size; i++) {
        ranks[i].has_ended = 0;
        mpath_fiber_start(ranks[i].fiber, body, &ranks[i]);
    }
    while (left > 0) {
        for (int i = 0; i < scale.size; i++) {
            uint64_t resumed_ns;

            if (ranks[i].has_ended) {
                continue;
            }
            scale.running      = i;
            resumed_ns         = scale_cpu_ns();
            ranks[i].has_ended = resume(i);
            scale.counts[i].cpu_ns += scale_cpu_ns() - resumed_ns;
            scale.counts[i].resumes++;
            scale.running = -1;
            left -= ranks[i].has_ended;
            if (ranks[i].has_ended && ranks[i].status != MPATH_OK) {
                fail(what, i, ranks[i].status);
            }
        }
        if (scale_cpu_ns() - start_ns > DEADLINE_S * MPATH_NS_PER_S) {
            fprintf(stderr, "scale: %s: %d ranks have not ended after %d s\n", what, left, DEADLINE_S);
            exit(1);
        }
    }
}

static void body_team(void *argument)
{
    rank_t *self = argument;

    self->status = mpath_team_create(self->context, &self->oob, &self->team);
}

static void body_coll(void *argument)
{
    rank_t *self = argument;

    self->status = mpath_coll_create(self->team, &self->coll);
}

static void body_symmetric(void *argument)
{
    rank_t *self = argument;

    self->status = mpath_symmetric_create(self->team, self->coll, &self->symmetric);
}

static mpath_call_t call_of(rank_t *self)
{
    return (mpath_call_t){.send_bytes   = self->send_bytes,
                          .send_offsets = self->send_offsets,
                          .send_buffer  = self->send,
                          .send_memory  = gpus && self->send != NULL ? &self->send_memory : NULL,
                          .recv_memory  = gpus && self->recv != NULL ? &self->recv_memory : NULL,
                          .recv_bytes   = self->recv_bytes,
                          .recv_offsets = self->recv_offsets,
                          .recv_buffer  = self->recv};
}

static void body_agree(void *argument)
{
    rank_t *self      = argument;
    mpath_call_t call = call_of(self);
    mpath_agreed_t agreed;

    self->status = mpath_agree(self->team, &call, &agreed);
    if (self->status == MPATH_OK && !agreed.finished) {
        self->status = MPATH_ERR_INTERNAL;
    }
}

static void body_alltoallv(void *argument)
{
    rank_t *self      = argument;
    mpath_call_t call = call_of(self);

    self->status = mpath_alltoallv(self->coll, &call);
}

static void add(void *argument, const void *in, void *inout, uint64_t elements)
{
    const uint32_t *from = in;
    uint32_t *to         = inout;

    (void)argument;
    for (uint64_t i = 0; i < elements; i++) {
        to[i] += from[i];
    }
}

static void body_allreduce(void *argument)
{
    rank_t *self                    = argument;
    mpath_combination_t combination = {.element_bytes = sizeof(uint32_t), .reduce = add};

    self->status = mpath_allreduce(self->symmetric, self->send, self->recv, REDUCED_BYTES / sizeof(uint32_t),
                                   &combination, 0);
}

static uint64_t demand_bytes(demand_t demand, int source, int destination, int round)
{
    int distance = (destination - source + scale.size) % scale.size;

    switch (demand) {
    case DEMAND_SMALL:
        return 8;
    case DEMAND_SPARSE:
        return distance == 1 || distance == scale.size - 1 || distance == scale.num_local ||
                       distance == scale.size - scale.num_local
                   ? SPARSE_BYTES
                   : 0;
    case DEMAND_FAR:
        return distance == FAR_NODES * scale.num_local || distance == scale.size - FAR_NODES * scale.num_local ||
                       distance == 2 * FAR_NODES * scale.num_local ||
                       distance == scale.size - 2 * FAR_NODES * scale.num_local
                   ? SPARSE_BYTES
                   : 0;
    case DEMAND_DENSE:
        return destination == 0 ? DENSE_HOT * DENSE_BYTES : DENSE_BYTES;
    case DEMAND_CHANGING:
        return DENSE_BYTES * (source % scale.num_local == 0 ? DENSE_HOT : 1) * (destination == round ? 2 : 1);
    default:
        return 0;
    }
}

static mpath_device_result_t engine_copy(mpath_device_stream_t stream, mpath_device_ptr_t target,
                                         mpath_device_ptr_t source, size_t bytes)
{
    uint64_t began_ns            = scale_cpu_ns();
    mpath_device_result_t result = fake_device.stream_copy(stream, target, source, bytes);

    scale_message_took(began_ns);
    return result;
}

/* On the device of the rank, which is one of few. */
static char *enlarge_on_gpu(int rank, char *buffer, uint64_t bytes, mpath_memory_t *memory)
{
    if (buffer != NULL) {
        fake_device_give(buffer);
    }
    buffer = fake_device_take(rank % FAKE_DEVICES, bytes);
    if (buffer == NULL || mpath_memory_classify(buffer, bytes, memory) != MPATH_OK) {
        fail("memory of a device", rank, MPATH_ERR_NO_MEMORY);
    }
    return buffer;
}

static char *enlarge(int rank, char *buffer, uint64_t *room_p, uint64_t bytes, mpath_memory_t *memory)
{
    if (bytes <= *room_p) {
        return buffer;
    }
    *room_p = bytes;
    if (gpus) {
        return enlarge_on_gpu(rank, buffer, bytes, memory);
    }
    scale_free(buffer);
    return scale_allocate(bytes);
}

static unsigned char pair_byte(int source, int destination, int round)
{
    return (unsigned char)(source * 7 + destination * 13 + round * 29 + 1);
}

static void fill(rank_t *self, const scenario_t *scenario, int round)
{
    uint64_t sent = 0, received = 0;

    if (scenario->reduces) {
        self->send = enlarge(self->rank, self->send, &self->send_room, REDUCED_BYTES, &self->send_memory);
        self->recv = enlarge(self->rank, self->recv, &self->recv_room, REDUCED_BYTES, &self->recv_memory);
        for (uint32_t i = 0; i < REDUCED_BYTES / sizeof(uint32_t); i++) {
            ((uint32_t *)(void *)self->send)[i] = (uint32_t)self->rank + i + (uint32_t)round;
        }
        memset(self->recv, 0, REDUCED_BYTES);
        return;
    }
    for (int i = 0; i < scale.size; i++) {
        self->send_bytes[i]   = demand_bytes(scenario->demand, self->rank, i, round);
        self->recv_bytes[i]   = demand_bytes(scenario->demand, i, self->rank, round);
        self->send_offsets[i] = sent;
        self->recv_offsets[i] = received;
        sent += self->send_bytes[i];
        received += self->recv_bytes[i];
    }
    self->send = enlarge(self->rank, self->send, &self->send_room, sent, &self->send_memory);
    self->recv = enlarge(self->rank, self->recv, &self->recv_room, received, &self->recv_memory);
    for (int i = 0; i < scale.size; i++) {
        if (self->send_bytes[i] > 0) {
            memset(self->send + self->send_offsets[i], pair_byte(self->rank, i, round), self->send_bytes[i]);
        }
    }
    if (received > 0) {
        memset(self->recv, 0, received);
    }
}

static int is_right(const rank_t *self, const scenario_t *scenario, int round)
{
    uint32_t size = (uint32_t)scale.size;

    if (scenario->reduces) {
        for (uint32_t i = 0; i < REDUCED_BYTES / sizeof(uint32_t); i++) {
            if (((uint32_t *)(void *)self->recv)[i] != size * (size - 1) / 2 + size * (i + (uint32_t)round)) {
                return 0;
            }
        }
        return 1;
    }
    for (int i = 0; i < scale.size; i++) {
        for (uint64_t k = 0; k < self->recv_bytes[i]; k++) {
            if ((unsigned char)self->recv[self->recv_offsets[i] + k] != pair_byte(i, self->rank, round)) {
                return 0;
            }
        }
    }
    return 1;
}

#define LINK_BPS UINT64_C(20000000000)
#define PCIE_BPS UINT64_C(50000000000)

/* GPU r of a node is that of its rank r, with NIC r beside it. */
static void describe_gpus(rank_t *self)
{
    mpath_node_gpus_t *node = &self->context->gpus;

    *node          = (mpath_node_gpus_t){.link = MPATH_GPU_LINK_MESH, .domain = -1};
    node->num_gpus = scale.num_local;
    for (int g = 0; g < node->num_gpus; g++) {
        node->gpus[g] = (mpath_gpu_t){.pcie_up_bps = PCIE_BPS, .pcie_down_bps = PCIE_BPS, .nics = 1u << g};
        for (int peer = 0; peer < node->num_gpus; peer++) {
            node->nvlink_bps[g][peer] = peer != g ? LINK_BPS : 0;
        }
    }
    self->context->gpu = self->context->nic = self->rank % scale.num_local;
    self->context->nic_known                = 1;
}

static void rank_init(int number)
{
    rank_t *self             = &ranks[number];
    mpath_machine_t *machine = &self->machine;
    int is_weak;

    self->rank = number;
    snprintf(machine->host, sizeof(machine->host), "node%d", scale_node(number));
    machine->num_nics        = scale.num_rails;
    machine->num_numa        = 1;
    machine->host_memory_bps = 200000000000ull;
    for (int nic = 0; nic < scale.num_rails; nic++) {
        snprintf(machine->nics[nic].name, sizeof(machine->nics[nic].name), "mlx5_%d:1", nic);
        is_weak                     = weak && nic == scale.num_rails - 1 && scale_node(number) == scale.num_nodes - 1;
        machine->nics[nic].rate_bps = (nic == 0 && slow) || is_weak ? SLOW_BPS : RATE_BPS;
        machine->nics[nic].numa     = -1;
        machine->nics[nic].rail     = (int16_t)nic;
        machine->nics[nic].up       = !(lost && nic == 1 && scale_node(number) == 1);
    }
    scale_control_oob(&self->rank, &self->oob);
    scale.running = number;
    if (mpath_context_create_on(&settings, machine, number % scale.num_local, &self->context) != MPATH_OK) {
        fail("context", number, MPATH_ERR_NO_MEMORY);
    }
    if (gpus) {
        describe_gpus(self);
    }
    scale.running = -1;
    if (mpath_fiber_create(STACK_BYTES, &self->fiber) != MPATH_OK) {
        fail("fiber", number, MPATH_ERR_NO_MEMORY);
    }
    self->send_bytes   = scale_allocate(4 * (size_t)scale.size * sizeof(uint64_t));
    self->send_offsets = self->send_bytes + scale.size;
    self->recv_bytes   = self->send_offsets + scale.size;
    self->recv_offsets = self->recv_bytes + scale.size;
}

/* What the rank of most has, of the leaders or of the others. */
static uint64_t most(size_t offset, const scale_counts_t *before, int leaders)
{
    uint64_t largest = 0;

    for (int i = 0; i < scale.size; i++) {
        uint64_t now, then;

        memcpy(&now, (const char *)&scale.counts[i] + offset, sizeof(now));
        memcpy(&then, (const char *)&before[i] + offset, sizeof(then));
        if ((i % scale.num_local == 0) == leaders && now - then > largest) {
            largest = now - then;
        }
    }
    return largest;
}

static void body_switch(void *argument)
{
    (void)argument;
    for (int i = 0; i < SWITCHES; i++) {
        (void)mpath_fiber_rest();
    }
}

/* What it costs to resume a fiber that does nothing, as run() measures it: ranks that are processes have no such cost. */
static uint64_t switch_ns(void)
{
    uint64_t sum_ns = 0;

    mpath_fiber_start(ranks[0].fiber, body_switch, NULL);
    for (int i = 0; i < SWITCHES; i++) {
        uint64_t resumed_ns = scale_cpu_ns();

        (void)mpath_fiber_resume(ranks[0].fiber);
        sum_ns += scale_cpu_ns() - resumed_ns;
    }
    while (mpath_fiber_resume(ranks[0].fiber) != MPATH_FIBER_ENDED) {
    }
    return sum_ns / SWITCHES;
}

/* The mean over these ranks: of times, which are disturbed. Without what the ranks of a job do not do, or their NICs do. */
static uint64_t mean_cpu_ns(const scale_counts_t *before, uint64_t resume_ns, int leaders)
{
    uint64_t sum = 0, count = 0;

    for (int i = 0; i < scale.size; i++) {
        if ((i % scale.num_local == 0) == leaders) {
            uint64_t cpu_ns   = scale.counts[i].cpu_ns - before[i].cpu_ns;
            uint64_t other_ns = (scale.counts[i].resumes - before[i].resumes) * resume_ns +
                                scale.counts[i].message_cpu_ns - before[i].message_cpu_ns;

            sum += cpu_ns > other_ns ? cpu_ns - other_ns : 0;
            count++;
        }
    }
    return count > 0 ? sum / count : 0;
}

static uint64_t total(size_t offset, const scale_counts_t *before)
{
    uint64_t sum = 0;

    for (int i = 0; i < scale.size; i++) {
        uint64_t now, then;

        memcpy(&now, (const char *)&scale.counts[i] + offset, sizeof(now));
        memcpy(&then, (const char *)&before[i] + offset, sizeof(then));
        sum += now - then;
    }
    return sum;
}

static void report(const scenario_t *scenario, const scale_counts_t *before, int calls, int json)
{
    mpath_coll_counters_t counters = {0};
    int64_t heap[2]                = {0, 0}; /* of leaders, of others */
    int64_t *there                 = scale_allocate((size_t)scale.size * sizeof(*there));
    uint64_t resume_ns = switch_ns(), reserved = 0;

    scale_reserved(there, &reserved);
    for (int i = 0; i < scale.size; i++) {
        int64_t bytes = scale.counts[i].heap_bytes + there[i], *most_p = &heap[i % scale.num_local != 0];

        *most_p = bytes > *most_p ? bytes : *most_p;
    }
    scale_free(there);
    if (scenario->reduces) {
        mpath_symmetric_counters(ranks[0].symmetric, &counters);
    } else if (ranks[0].coll != NULL) {
        mpath_coll_counters(ranks[0].coll, &counters);
    }
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
        {"ranks", (uint64_t)scale.size},
        {"per_node", (uint64_t)scale.num_local},
        {"rails", (uint64_t)scale.num_rails},
        {"leader_control_bytes", most(offsetof(scale_counts_t, control_bytes), before, 1) / (uint64_t)calls},
        {"leader_control_messages", most(offsetof(scale_counts_t, control_messages), before, 1) / (uint64_t)calls},
        {"other_control_bytes", most(offsetof(scale_counts_t, control_bytes), before, 0) / (uint64_t)calls},
        {"rail_messages", total(offsetof(scale_counts_t, rail_messages), before) / (uint64_t)calls},
        {"leader_cpu_ns", mean_cpu_ns(before, resume_ns, 1) / (uint64_t)calls},
        {"other_cpu_ns", mean_cpu_ns(before, resume_ns, 0) / (uint64_t)calls},
        {"message_cpu_ns", total(offsetof(scale_counts_t, message_cpu_ns), before) / (uint64_t)(calls * scale.size)},
        {"resumes", total(offsetof(scale_counts_t, resumes), before) / (uint64_t)(calls * scale.size)},
        {"resume_ns", resume_ns},
        {"leader_instructions", steps_of[0]},
        {"other_instructions", steps_of[1]},
        {"plans", counters.plans},
        {"plan_ns", counters.plans > 0 ? counters.plan_ns / counters.plans : 0},
        {"heap_bytes", (uint64_t)(heap[0] > heap[1] ? heap[0] : heap[1])},
        {"other_heap_bytes", (uint64_t)heap[1]},
        {"reserved_bytes", reserved},
        {"node_segment_bytes", scale.segment_bytes / (uint64_t)scale.num_nodes},
        {"carried", counters.calls},
        {"declined", counters.declined},
    };
    const size_t count = sizeof(figures) / sizeof(figures[0]);

    if (json) {
        printf("{\"case\": \"%s\"", scenario->name);
        for (size_t i = 0; i < count; i++) {
            printf(", \"%s\": %" PRIu64, figures[i].name, figures[i].value);
        }
        printf("}\n");
        return;
    }
    printf("%s\n", scenario->name);
    for (size_t i = 0; i < count; i++) {
        printf("  %-24s %12" PRIu64 "\n", figures[i].name, figures[i].value);
    }
}

/* A call that all ranks make. */
static void scenario_call(const scenario_t *scenario, mpath_fiber_body_t body, int round)
{
    run(scenario->name, body);
    for (int i = 0; i < scale.size; i++) {
        if (!is_right(&ranks[i], scenario, round)) {
            fail("wrong data", i, MPATH_ERR_INTERNAL);
        }
    }
}

static void scenario_fill(const scenario_t *scenario, int round)
{
    for (int i = 0; i < scale.size; i++) {
        fill(&ranks[i], scenario, round);
    }
}

/* A call more, of which nothing else is counted. */
static void scenario_count_steps(const scenario_t *scenario, mpath_fiber_body_t body)
{
    size_t bytes           = (size_t)scale.size * sizeof(*scale.counts);
    scale_counts_t *counts = scale_allocate(bytes);

    memcpy(counts, scale.counts, bytes);
    signal(SIGTRAP, step);
    scenario_fill(scenario, scenario->rounds + 2);
    steps_are_counted = 1;
    scenario_call(scenario, body, scenario->rounds + 2);
    steps_are_counted = 0;
    memcpy(scale.counts, counts, bytes);
    scale_free(counts);
}

static void scenario_run(const scenario_t *scenario, int json)
{
    scale_counts_t *before  = scale_allocate((size_t)scale.size * sizeof(*before));
    mpath_fiber_body_t body = scenario->reduces                 ? body_allreduce
                              : scenario->demand == DEMAND_NONE ? body_agree
                                                                : body_alltoallv;

    run("team", body_team);
    if (scenario->demand != DEMAND_NONE || scenario->reduces) {
        run("collectives", body_coll);
    }
    if (scenario->reduces) {
        run("reductions", body_symmetric);
    }
    /* Of a case that repeats calls the first two set up what later ones use. */
    for (int round = scenario->rounds > 1 ? -2 : 0; round < scenario->rounds; round++) {
        scenario_fill(scenario, round + 2);
        if (round == 0) {
            memcpy(before, scale.counts, (size_t)scale.size * sizeof(*before));
        }
        scenario_call(scenario, body, round + 2);
    }
    if (wants_steps && scenario->rounds > 1) {
        scenario_count_steps(scenario, body);
    }
    report(scenario, before, scenario->rounds, json);
}

static int number(const char *text, int most_value)
{
    char *end;
    long value = strtol(text, &end, 10);

    return *end == '\0' && value > 0 && value <= most_value ? (int)value : -1;
}

int main(int argc, char **argv)
{
    const scenario_t *scenario = NULL;
    const char *tune           = "";
    scenario_t repeated;
    int json = 0, is_usable;
    struct rlimit limit;

    for (size_t i = 0; argc > 4 && i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (strcmp(scenarios[i].name, argv[4]) == 0) {
            scenario = &scenarios[i];
        }
    }
    if (scenario != NULL) {
        scale.size      = number(argv[1], 65536);
        scale.num_local = number(argv[2], 1024);
        scale.num_rails = number(argv[3], MPATH_MAX_NICS);
    }
    is_usable = scenario != NULL;
    for (int i = 5; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = 1;
        } else if (strcmp(argv[i], "--slow") == 0) {
            slow = 1;
        } else if (strcmp(argv[i], "--lost") == 0) {
            lost = 1;
        } else if (strcmp(argv[i], "--weak") == 0) {
            weak = 1;
        } else if (strcmp(argv[i], "--gpus") == 0) {
            gpus = 1;
        } else if (strcmp(argv[i], "--steps") == 0) {
            wants_steps = 1;
        } else if (strcmp(argv[i], "--tune") == 0 && i + 1 < argc) {
            tune = argv[++i];
        } else if (strcmp(argv[i], "--calls") == 0 && i + 1 < argc && scenario != NULL && scenario->rounds > 1) {
            repeated        = *scenario;
            repeated.rounds = number(argv[++i], 1000000);
            is_usable       = is_usable && repeated.rounds > 1;
            scenario        = &repeated;
        } else {
            is_usable = 0;
        }
    }
    if (!is_usable || scale.size < 2 || scale.num_local < 1 || scale.num_rails < 1 ||
        scale.size % scale.num_local != 0 ||
        (gpus && (scale.num_rails != scale.num_local || scale.num_local > MPATH_MAX_GPUS || scenario->reduces))) {
        fprintf(
            stderr,
            "usage: ranks RANKS PER_NODE RAILS agreement|small|sparse|dense|changing|meet|first|allreduce [--json] [--tune RULES] "
            "[--calls N] [--steps] [--slow|--lost|--weak] [--gpus]\n");
        return 2;
    }
    scale.num_nodes = scale.size / scale.num_local;
    scale.counts    = scale_allocate((size_t)scale.size * sizeof(*scale.counts));
    ranks           = scale_allocate((size_t)scale.size * sizeof(*ranks));
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    mpath_settings_init(&settings);
    settings.gate              = MPATH_GATE_ALWAYS;
    settings.gpu               = gpus;
    settings.gpu_probe         = MPATH_GPU_PROBE_OFF;
    settings.gpu_rail          = MPATH_GPU_RAIL_HOST;
    settings.gpu_memory_bytes  = 4u << 20;
    settings.gpu_pinned_bytes  = UINT64_C(1) << 50;
    settings.gpu_device_bytes  = UINT64_C(1) << 50;
    settings.tune              = tune;
    settings.node_memory_bytes = UINT64_C(1) << 50;
    if (gpus) {
        static mpath_device_ops_t timed;

        timed             = fake_device;
        timed.stream_copy = engine_copy;
        mpath_device_add(&timed);
        fake_device_starts();
    }
    clock_learn();
    scale_control_init();
    for (int i = 0; i < scale.size; i++) {
        rank_init(i);
    }
    scenario_run(scenario, json);
    return 0;
}
