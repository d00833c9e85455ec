/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators that move device memory over the same NICs at a time, on the driver without a GPU: borrowed NICs make
 * way for their owners' bytes, also where the communicators share no process; emulated ports are no faster than
 * declared.
 */
#include "device/cuda/driver.h"
#include "mover/pace.h"
#include "mover/relay_owners.h"
#include "mover/relay_private.h"
#include "mover/relay_segment.h"
#include "relay_support.h"
#include "unit/capture.h"
#include "unit/child.h"
#include "util/time.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- a table of this program's own: other programs of the user live at another time, and may take what has expired -- */

static char own_table[64];

/* With the number at the end of the name. */
static const char *own_name(const char *path)
{
    static _Thread_local char name[sizeof(own_table) + 16];

    if (strstr(path, "/mpath-nics1-") == NULL) {
        return path;
    }
    snprintf(name, sizeof(name), "%s%.15s", own_table, strrchr(path, '.'));
    return name;
}

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list arguments;

    if (flags & O_CREAT) {
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    return __real_openat(folder, own_name(path), flags, mode);
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    return __real_unlink(own_name(path));
}

#define MEETINGS 1000 /* at most, of calls that are to meet, and may miss each other on a busy machine */

/* The second communicator of two threads that run at a time. */
typedef struct other {
    member_t member;
    const relay_job_t *job;
    mpath_cu_context_t context;
    pthread_barrier_t start; /* of a round, for both threads */
    int rounds;
} other_t;

static void *other_thread(void *argument)
{
    other_t *other = argument;

    ranks_check(mpath_gpu_driver()->CtxSetCurrent(other->context) == MPATH_CU_SUCCESS);
    for (int round = 0; round < other->rounds; round++) {
        pthread_barrier_wait(&other->start);
        member_round(&other->member, A2A_GIVEN, 0, (uint64_t)round);
    }
    return NULL;
}

/* Both communicators make their calls at a time. Nanoseconds that it took this rank. */
static uint64_t run_both(member_t *member, other_t *other)
{
    uint64_t start_ns = mpath_time_ns();
    pthread_t thread;

    ranks_check(mpath_gpu_driver()->CtxGetCurrent(&other->context) == MPATH_CU_SUCCESS);
    pthread_barrier_init(&other->start, NULL, 2);
    ranks_check(pthread_create(&thread, NULL, other_thread, other) == 0);
    for (int round = 0; round < other->rounds; round++) {
        pthread_barrier_wait(&other->start);
        member_round(member, A2A_GIVEN, 0, (uint64_t)round);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&other->start);
    return mpath_time_ns() - start_ns;
}

static void other_join(other_t *other, const member_t *member, ranks_self_t *self)
{
    mpath_oob_t oob;

    ranks_oob(self, 1, NULL, self->size, &oob);
    other->member.context = member->context;
    relay_member_join(&other->member, self, &oob, other->job);
}

/* What a rank's chunks have waited for: NICs of its own node, and of the other. */
typedef struct yields {
    uint64_t sending, receiving;
} yields_t;

static yields_t yields_of(const member_t *member)
{
    mpath_coll_counters_t counters;

    mpath_coll_counters(member->coll, &counters);
    return (yields_t){counters.relay.moved.yields, counters.relay.moved.receive_yields};
}

/*
 * Rank 1 sends over its NIC to rank 3 in one communicator, and rank 0 would borrow both for rank 2 in another: rank 0's
 * chunks wait for the one, and in rank 1 for the other.
 */
static int owner_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    other_t other          = {.job = job, .rounds = job->rounds};
    yields_t yields[2], all[4][2] = {{{0, 0}}};
    member_t member;

    relay_member_init(&member, self, job);
    other_join(&other, &member, self);
    member.demand[0 * 4 + 2]       = job->max_bytes;
    other.member.demand[1 * 4 + 3] = job->max_bytes;
    for (int i = 0; (i < MEETINGS) && ((all[0][0].sending == 0) || (all[1][1].sending == 0) ||
                                       (all[1][0].receiving == 0) || (all[0][1].receiving == 0));
         i++) {
        run_both(&member, &other);
        yields[0] = yields_of(&member);
        yields[1] = yields_of(&other.member);
        ranks_check(mpath_team_allgather(member.team, yields, sizeof(yields), all) == MPATH_OK);
    }
    ranks_check((yields[0].sending > 0) == (self->rank == 0));
    ranks_check((yields[0].receiving > 0) == (self->rank == 1));
    ranks_check((yields[1].sending > 0) == (self->rank == 1)); /* and the other way round */
    ranks_check((yields[1].receiving > 0) == (self->rank == 0));
    member_leave(&other.member);
    member_end(&member);
    return 0;
}

/* -- what an owner gains: the room that others have on the way to its NIC -- */

static struct {
    int full, most; /* slots on that way, and in use at a time */
} lent;

int __real_mpath_relay_slot_take(mpath_relay_gate_t *gate, mpath_relay_class_t slot_class, int slots);
int __wrap_mpath_relay_slot_take(mpath_relay_gate_t *gate, mpath_relay_class_t slot_class, int slots);
int __wrap_mpath_relay_slot_take(mpath_relay_gate_t *gate, mpath_relay_class_t slot_class, int slots)
{
    int before = __builtin_popcountll(atomic_load(&gate->free[slot_class])), slot, in_use;

    slot = __real_mpath_relay_slot_take(gate, slot_class, slots);
    if ((slot >= 0) && (slot_class == MPATH_RELAY_TO_RAIL)) {
        lent.full = (before > lent.full) ? before : lent.full;
        in_use    = lent.full - before + 1;
        lent.most = (in_use > lent.most) ? in_use : lent.most;
    }
    return slot;
}

/* Ports as one word, of NICs with small numbers. */
#define SENDS(nics) ((uint64_t)(nics))
#define RECEIVES(nics) ((uint64_t)(nics) << 32)

static mpath_owner_ports_t ports(uint64_t word)
{
    return (mpath_owner_ports_t){.sends = word & UINT32_MAX, .receives = word >> 32};
}

static uint64_t told(mpath_owner_ports_t ports_told)
{
    return SENDS(ports_told.sends) | RECEIVES(ports_told.receives);
}

/*
 * Rank 0 borrows the NIC of rank 1 for rank 2. While bytes of that NIC's own GPU go over it, which another communicator
 * says here, these have one chunk of rank 0's before them at most.
 */
static int room_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    mpath_machine_t machine;
    mpath_owners_t owner;
    yields_t before;
    member_t member;
    void *clocks;

    relay_member_init(&member, self, job);
    member.demand[0 * 4 + 2] = job->max_bytes;
    member_round(&member, A2A_GIVEN, 0, 0);
    ranks_check((self->rank == 0) ? (lent.full > 1 && lent.most > 1) : (lent.full == 0));
    ranks_check(mpath_relay_clocks_get(member.team, &clocks) == MPATH_OK);
    mpath_topo_copy_machine(mpath_team_gpu_topo(member.team), self->rank / 2, &machine);
    mpath_owners_open(&machine, mpath_team_id(member.team) + 1, mpath_relay_clocks_id(clocks), &owner);
    mpath_owners_announce(&owner, ports((self->rank == 0) ? SENDS(1u << 1) : 0),
                          mpath_time_ns() + 100 * MPATH_NS_PER_S);
    ranks_barrier(self);
    lent.most = 0;
    before    = yields_of(&member);
    member_round(&member, A2A_GIVEN, 0, 1);
    ranks_check(lent.most == ((self->rank == 0) ? 1 : 0));
    ranks_check((yields_of(&member).sending > before.sending) == (self->rank == 0));
    mpath_owners_close(&owner);
    member_end(&member);
    return 0;
}

/* Two communicators over the same emulated ports: together no faster than these. */
static int shared_ports_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    other_t other          = {.job = job, .rounds = job->rounds};
    uint64_t rails_bps = 2 * job->setup.nic_bps, bytes = 2 * job->max_bytes * (uint64_t)job->rounds, took_ns;
    void *mine, *theirs;
    member_t member;

    relay_member_init(&member, self, job);
    other_join(&other, &member, self);
    member.demand[0 * 4 + 2]       = job->max_bytes;
    other.member.demand[0 * 4 + 2] = job->max_bytes;
    took_ns                        = run_both(&member, &other);
    ranks_check((self->rank != 0) || (took_ns >= bytes * (MPATH_NS_PER_S / 100) / rails_bps * 97));
    ranks_check(mpath_relay_clocks_get(member.team, &mine) == MPATH_OK);
    ranks_check(mpath_relay_clocks_get(other.member.team, &theirs) == MPATH_OK);
    if (self->rank == 0) {
        ((uint64_t *)mine)[1] += 1ull << 62; /* a clock; nothing moves any more */
    }
    ranks_check(mpath_relay_all(member.team, MPATH_OK) == MPATH_OK);
    ranks_check((mine == theirs) && (((uint64_t *)theirs)[1] >= 1ull << 62));
    member_leave(&other.member);
    member_end(&member);
    return 0;
}

/*
 * Two ranks on each GPU and its NIC, in a communicator each: what either borrows is the other's own. The communicators
 * have no process in common.
 */
static int neighbours_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    int half = self->size / 2, parity = self->rank % 2, members[RANKS_MAX], borrower = parity ? 1 : 2;
    yields_t yields = {0, 0}, all[RANKS_MAX] = {{0, 0}};
    member_t member, mine;
    mpath_oob_t oob;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_EVEN, 1000, 1);
    for (int i = 0; i < half; i++) {
        members[i] = 2 * i + parity;
    }
    ranks_oob(self, 1 + parity, members, half, &oob);
    memset(&mine, 0, sizeof(mine));
    mine.context = member.context;
    relay_member_join(&mine, self, &oob, job);
    mine.demand[(borrower / 2) * half + (parity ? 3 : 2)] = job->max_bytes; /* 2 to 4, and 1 to 7 */
    for (int i = 0; (i < MEETINGS) && ((all[1].sending == 0) || (all[2].sending == 0) || (all[1].receiving == 0) ||
                                       (all[2].receiving == 0));
         i++) {
        ranks_barrier(self);
        for (int round = 0; round < job->rounds; round++) {
            member_round(&mine, A2A_GIVEN, 0, (uint64_t)round);
        }
        yields = yields_of(&mine);
        ranks_check(mpath_team_allgather(member.team, &yields, sizeof(yields), all) == MPATH_OK);
    }
    ranks_check((yields.sending > 0) == (self->rank == borrower));
    ranks_check((yields.receiving > 0) == (self->rank == borrower));
    member_leave(&mine);
    member_end(&member);
    return 0;
}

static void test_neighbours_on_a_nic(void **state)
{
    relay_job_t job = {.setup     = {.size = 8, .nodes = 2, .nics = 2, .nic_bps = 20000000},
                       .link      = MPATH_GPU_LINK_MESH,
                       .emulated  = MPATH_EMULATED_COPIES,
                       .on_gpu    = 2,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 2000000,
                       .rounds    = 2,
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, neighbours_body, &job), 0);
    job.emulated = MPATH_EMULATED_RAILS; /* by UCX: what the other node's NIC does comes with the credits */
    assert_int_equal(ranks_run(&job.setup, neighbours_body, &job), 0);
}

#define NOW_NS 1000000000000ull

/* What a process tells the others: who sees it, until when, and that a dead one is forgotten. */
static void test_table(void **state)
{
    mpath_machine_t machine = {.host = "some", .num_nics = 3};
    uint64_t scope          = ((uint64_t)getpid() << 20) ^ mpath_time_ns();
    mpath_owners_t mine, mate, other, elsewhere;
    int status;
    pid_t child;

    (void)state;
    for (int nic = 0; nic < machine.num_nics; nic++) {
        snprintf(machine.nics[nic].name, sizeof(machine.nics[nic].name), "nic%d", nic);
    }
    mpath_owners_open(&machine, 1, scope, &mine);
    mpath_owners_open(&machine, 1, scope, &mate);
    mpath_owners_open(&machine, 2, scope, &other);
    mpath_owners_open(&machine, 2, scope + 1, &elsewhere);
    mpath_owners_announce(&mine, ports(1u << 1 | 1u << 2), NOW_NS);
    assert_int_equal(told(mpath_owners_busy(&mine, NOW_NS)), 0);
    assert_int_equal(told(mpath_owners_busy(&mate, NOW_NS)), 0); /* one plan for both */
    assert_int_equal(told(mpath_owners_busy(&other, NOW_NS)), 1u << 1 | 1u << 2);
    assert_int_equal(told(mpath_owners_busy(&elsewhere, NOW_NS)), 0);
    mpath_owners_announce(&mate, ports(RECEIVES(1u << 1)), NOW_NS); /* the NIC's other port */
    assert_int_equal(told(mpath_owners_busy(&other, NOW_NS + MPATH_NS_PER_MS)), 1u << 1 | 1u << 2 | RECEIVES(2));
    assert_int_equal(mpath_owners_busy(&other, NOW_NS + MPATH_NS_PER_MS).receives, 1u << 1);
    mpath_owners_announce(&mate, ports(0), NOW_NS);
    mpath_owners_announce(&mine, ports(1u << 2), NOW_NS + MPATH_OWNER_NS / 2 + 1); /* renewed */
    assert_int_equal(told(mpath_owners_busy(&other, NOW_NS + MPATH_OWNER_NS + 1)), 1u << 2);
    assert_int_equal(told(mpath_owners_busy(&other, NOW_NS + 2 * MPATH_OWNER_NS)), 0); /* it is silent */
    mpath_owners_announce(&mine, ports(1u << 0), NOW_NS + 3 * MPATH_OWNER_NS);
    assert_int_equal(told(mpath_owners_busy(&other, NOW_NS + 3 * MPATH_OWNER_NS)), 1u << 0);
    mpath_owners_announce(&mine, ports(0), NOW_NS + 3 * MPATH_OWNER_NS);
    assert_int_equal(told(mpath_owners_busy(&other, NOW_NS + 3 * MPATH_OWNER_NS + MPATH_NS_PER_MS)), 0);

    child = child_fork();
    if (child == 0) {
        mpath_owners_t theirs;

        mpath_owners_open(&machine, 3, scope, &theirs);
        mpath_owners_announce(&theirs, ports(1u << 0), NOW_NS + 4 * MPATH_OWNER_NS);
        kill(getpid(), SIGKILL);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(told(mpath_owners_busy(&other, NOW_NS + 4 * MPATH_OWNER_NS)), 1u << 0);
    assert_int_equal(told(mpath_owners_busy(&other, NOW_NS + 5 * MPATH_OWNER_NS)), 0);
    for (int i = 0; i < 1000; i++) { /* more than the table has room for: places are used again */
        mpath_owners_announce(&mate, ports(1u << 0), NOW_NS + 2 * MPATH_NS_PER_S);
        mpath_owners_announce(&mate, ports(0), NOW_NS + 2 * MPATH_NS_PER_S);
    }
    mpath_owners_announce(&mate, ports(1u << 0), NOW_NS + 3 * MPATH_NS_PER_S);
    assert_int_equal(told(mpath_owners_busy(&other, NOW_NS + 3 * MPATH_NS_PER_S)), 1u << 0);
    mpath_owners_close(&mine);
    mpath_owners_close(&mate);
    mpath_owners_close(&mate); /* once is enough */
    assert_int_equal(told(mpath_owners_busy(&other, NOW_NS + 3 * MPATH_NS_PER_S + MPATH_NS_PER_MS)), 0);
    mpath_owners_close(&other);
    mpath_owners_close(&elsewhere);
}

/* A rank of three: rank 1 is on its node, and another communicator on its NICs. */
typedef struct lender {
    mpath_relay_t relay;
    mpath_schedule_t schedule;
    mpath_outlet_t given[3];
    relay_outlet_t outlets[3];
    mpath_duty_t duty;
    mpath_path_t path;
    mpath_relay_gate_t gates[2];
    mpath_relay_ring_t rings[4];
    mpath_owners_t other;
    uint64_t start_ns;
    relay_far_t far[3];
    int8_t member_of[3];
} lender_t;

static void lender_init(lender_t *lender)
{
    mpath_machine_t machine = {.host = "some", .num_nics = 3};
    mpath_relay_t *relay    = &lender->relay;
    uint64_t scope          = ((uint64_t)getpid() << 20) ^ mpath_time_ns();

    memset(lender, 0, sizeof(*lender));
    for (int nic = 0; nic < machine.num_nics; nic++) {
        snprintf(machine.nics[nic].name, sizeof(machine.nics[nic].name), "nic%d", nic);
    }
    mpath_owners_open(&machine, 1, scope, &relay->owners);
    mpath_owners_open(&machine, 2, scope, &lender->other);
    lender->start_ns = mpath_time_ns();
    lender->schedule = (mpath_schedule_t){
        .duties = &lender->duty, .num_duties = 1, .outlets = lender->given, .num_outlets = 3, .rails = 7};
    lender->given[0]         = (mpath_outlet_t){.kind = MPATH_OUTLET_RAIL, .nic = 0};
    lender->given[1]         = (mpath_outlet_t){.kind = MPATH_OUTLET_RAIL, .nic = 1};
    lender->given[2]         = (mpath_outlet_t){.kind = MPATH_OUTLET_LAST, .nic = -1};
    relay->size              = 3;
    relay->by_copies         = 1;
    relay->bound.schedule    = &lender->schedule;
    relay->bound.outlets     = lender->outlets;
    relay->bound.paths       = &lender->path;
    relay->shared.gates      = lender->gates;
    relay->shared.rings      = lender->rings;
    relay->rails.far         = lender->far;
    relay->shared.member_of  = lender->member_of;
    relay->shared.members[1] = lender->member_of[1] = 1;
    relay->shared.num_members                       = 2;
    lender->member_of[2]                            = -1;
}

static void lender_end(lender_t *lender)
{
    mpath_owners_close(&lender->relay.owners);
    mpath_owners_close(&lender->other);
}

/* What the other communicator sees of this one: at a time when nothing said since can have expired. */
static uint64_t seen_by_other(lender_t *lender)
{
    lender->other.looked_ns = 0;
    return told(mpath_owners_busy(&lender->other, lender->start_ns));
}

/* What it says, for longer than this takes. */
static void other_says(lender_t *lender, uint64_t word)
{
    mpath_owners_announce(&lender->other, ports(word), mpath_time_ns() + 100 * MPATH_NS_PER_S);
    lender->relay.owners.looked_ns = 0;
}

static mpath_nic_set_t busy_in_gate(const lender_t *lender, int member)
{
    return atomic_load(&lender->gates[member].nics_busy);
}

/* What a rank says of NICs in a call: as long as bytes of its own are left for them, and nothing after it. */
/* In a process of its own, until the other end of the pipe is closed. */
static pid_t announcing_child(const mpath_machine_t *machine, uint64_t scope, int ready[2])
{
    pid_t child = child_fork();

    if (child == 0) {
        mpath_owners_t theirs;
        char byte = 1;

        mpath_owners_open(machine, 3, scope, &theirs);
        mpath_owners_announce(&theirs, ports(1u << 0), NOW_NS);
        if (write(ready[1], &byte, 1) == 1) {
            pause();
        }
        _exit(1);
    }
    return child;
}

/* Somebody has made a file of the table's name, and keeps it locked: nobody waits for him, and processes meet elsewhere. */
static void test_table_taken(void **state)
{
    mpath_machine_t machine = {.host = "some", .num_nics = 1};
    uint64_t scope          = ((uint64_t)getpid() << 20) ^ mpath_time_ns();
    char taken[sizeof(own_table) + 16], byte;
    mpath_owners_t mine;
    int status, fd, ready[2];
    pid_t child;

    (void)state;
    strcpy(machine.nics[0].name, "nic0");
    snprintf(taken, sizeof(taken), "%s.0", own_table);
    fd = open(taken, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    (void)fchown(fd, 1, 1); /* as root: another user's */
    assert_int_equal(fchmod(fd, 0666), 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(pipe(ready), 0);
    alarm(300);
    child = announcing_child(&machine, scope, ready);
    assert_true(child > 0);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    mpath_owners_open(&machine, 1, scope, &mine);
    assert_int_equal(told(mpath_owners_busy(&mine, NOW_NS)), 1u << 0);
    mpath_owners_close(&mine);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    alarm(0);
    close(ready[0]);
    close(ready[1]);
    close(fd);
    unlink(taken);
    snprintf(taken, sizeof(taken), "%s.1", own_table);
    unlink(taken);
}

static void test_announced(void **state)
{
    static lender_t lender;
    mpath_relay_t *relay = &lender.relay;

    (void)state;
    lender_init(&lender);
    lender.outlets[1].own_left = 2;
    lender.outlets[2].own_left = 2; /* over no NIC */
    mpath_relay_announce(relay);
    assert_int_equal(seen_by_other(&lender), SENDS(1u << 1));
    lender.outlets[1].own_left = 0;
    mpath_relay_announce(relay);
    assert_int_equal(seen_by_other(&lender), 0);

    relay->bound.own_rails    = 1u << 2;
    relay->bound.rail_sources = 1ull << 1;
    relay->expected[1]        = 10;
    mpath_relay_announce(relay);
    assert_int_equal(seen_by_other(&lender), RECEIVES(1u << 2));
    atomic_store(&mpath_relay_ring(&relay->shared, 0, 1)->landed_bytes, 10);
    mpath_relay_announce(relay);
    assert_int_equal(seen_by_other(&lender), 0);
    relay->by_copies  = 0;
    relay->fetch_left = 1;
    mpath_relay_announce(relay);
    assert_int_equal(seen_by_other(&lender), RECEIVES(1u << 2));

    relay->bound.lent_rails = 1u << 0 | 1u << 2;
    other_says(&lender, RECEIVES(1u << 0 | 1u << 1) | SENDS(1u << 2));
    mpath_relay_announce(relay);
    assert_int_equal(busy_in_gate(&lender, 0), 1u << 0);
    mpath_relay_announce_end(relay);
    assert_int_equal(busy_in_gate(&lender, 0), 0);
    assert_int_equal(seen_by_other(&lender), 0);
    lender_end(&lender);
}

/* Which chunks make way: those for a NIC that is busy, at either end, unless it brings them to where they end. */
static void test_makes_way(void **state)
{
    static lender_t lender;
    mpath_relay_t *relay = &lender.relay;
    mpath_duty_t *duty   = &lender.duty;
    relay_op_t op        = {.duty = duty, .step = RELAY_TO_SLOT, .to_class = MPATH_RELAY_TO_LAST};

    (void)state;
    lender_init(&lender);
    duty->out   = (mpath_hop_t){.lane = MPATH_LANE_RAIL, .nic_from = 0, .nic_to = 2, .to = 1};
    duty->ahead = 1;
    assert_false(mpath_relay_yields(relay, &op));
    atomic_store(&lender.gates[0].nics_busy, 7);
    atomic_store(&lender.gates[1].nics_busy, 1u << 0 | 1u << 1);
    relay->rails.far[1].nics_busy = 1u << 2;
    assert_false(mpath_relay_yields(relay, &op));
    atomic_store(&lender.gates[1].nics_busy, 1u << 2);
    relay->rails.far[1].nics_busy = 1u << 0 | 1u << 1;
    assert_true(mpath_relay_yields(relay, &op));
    duty->ahead = 0; /* it ends there: the NIC is its own */
    assert_false(mpath_relay_yields(relay, &op));
    duty->ahead      = 1;
    relay->by_copies = 0;
    op.step          = RELAY_TO_WIRE;
    assert_false(mpath_relay_yields(relay, &op));
    relay->rails.far[1].nics_busy = 1u << 2;
    assert_true(mpath_relay_yields(relay, &op));
    duty->ahead = 0;
    assert_false(mpath_relay_yields(relay, &op));

    duty->out               = (mpath_hop_t){.lane = MPATH_LANE_PEER, .nic_from = -1, .nic_to = -1, .to = 1};
    duty->ahead             = 1;
    lender.path.hops[0]     = duty->out;
    lender.path.hops[1]     = (mpath_hop_t){.lane = MPATH_LANE_RAIL, .nic_from = 1, .nic_to = 2, .from = 1, .to = 2};
    lender.path.num_hops    = 2;
    op.step                 = RELAY_TO_SLOT;
    op.to_class             = MPATH_RELAY_TO_RAIL;
    relay->owners.looked_ns = 0;
    assert_false(mpath_relay_yields(relay, &op));
    other_says(&lender, SENDS(1u << 0 | 1u << 2) | RECEIVES(7));
    assert_false(mpath_relay_yields(relay, &op));
    other_says(&lender, SENDS(1u << 1));
    assert_true(mpath_relay_yields(relay, &op));
    op.to_class = MPATH_RELAY_TO_LAST; /* no NIC comes next */
    assert_false(mpath_relay_yields(relay, &op));
    lender_end(&lender);
}

static void test_room_of_others(void **state)
{
    relay_job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = 20000000},
                       .link      = MPATH_GPU_LINK_MESH,
                       .emulated  = MPATH_EMULATED_COPIES,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 2000000,
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, room_body, &job), 0);
}

static void test_owner(void **state)
{
    relay_job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = 20000000},
                       .link      = MPATH_GPU_LINK_MESH,
                       .emulated  = MPATH_EMULATED_COPIES,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 2000000,
                       .rounds    = 2,
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, owner_body, &job), 0);
    job.rounds = 1;
    assert_int_equal(ranks_run(&job.setup, shared_ports_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_table_taken),
        cmocka_unit_test(test_announced),
        cmocka_unit_test(test_makes_way),
        cmocka_unit_test(test_room_of_others),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_neighbours_on_a_nic),
    };

    snprintf(own_table, sizeof(own_table), "/dev/shm/mpath-nics-test-%d", (int)getpid());
    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay_owners", tests, NULL, NULL);
}
