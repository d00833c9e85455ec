/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies by the engines of all ranks, on the driver without a GPU, which counts the copies into and out of each device
 * over all processes: one at a time out of a GPU, in equal exchanges and with skews of real routings, however late the
 * ranks and their streams are. Data is checked in every call. Ranks whose engines are about to start meet, but do not
 * wait for one that does not come. Memory that is named anew is opened anew.
 */
#include "node/board.h"
#include "fake_cuda/fake.h"
#include "device/cuda/driver.h"
#include "device/ipc_import.h"
#include "device/usage.h"
#include "gpu_member.h"
#include "gpu_ranks.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define ROW_BYTES (2u << 20)

typedef enum shape { SHAPE_EVEN, SHAPE_ZIPF, SHAPE_HOT } shape_t;

typedef struct job {
    ranks_setup_t setup;
    int devices;
    shape_t shape;
    uint64_t row_bytes; /* of a rank */
    int rounds;
    const char *without;
    int killed;     /* this rank dies in its last call; -1: none */
    int one_by_one; /* the driver takes no copies at once */
    int shared;     /* GPUs have several ranks: more than one copy at a time leaves them */
    int mapped;     /* receive buffers are of cuMemCreate */
} job_t;

static char ports_path[] = "/tmp/mpath-ports.XXXXXX";
static fake_ports_t *ports;

/* What rank `source` sends to `destination`. */
static uint64_t bytes_of(const job_t *job, int size, int source, int destination, int round)
{
    double sum = 0, mine = 0;

    switch (job->shape) {
    case SHAPE_EVEN:
        return job->row_bytes / (uint64_t)size;
    case SHAPE_HOT:
        return (destination == 0) ? job->row_bytes * 7 / 10 : job->row_bytes * 3 / 10 / (uint64_t)(size - 1);
    default: /* experts of a popularity that follows Zipf's law with exponent 0.8, in another order in each round */
        for (int rank = 0; rank < size; rank++) {
            double share = pow(1.0 + (rank * 5 + round) % size, -0.8);

            sum += share;
            mine = (rank == destination) ? share : mine;
        }
        return (uint64_t)((double)job->row_bytes * mine / sum) + (uint64_t)(source * 4096);
    }
}

static void member_init(member_t *member, ranks_self_t *self, const job_t *job)
{
    mpath_settings_t settings;

    setenv("FAKE_CUDA_PORTS", ports_path, 1);
    setenv("FAKE_CUDA_COPY_US", job->shared ? "100000" : "300", 1); /* long enough to meet, however busy this machine */
    setenv("FAKE_CUDA_DELAY_US", "300", 1);
    gpu_ranks_start(job->devices, (job->without != NULL) ? job->without : "", &settings);
    settings.gpu_way = MPATH_GPU_WAY_PUSH;
    memset(member, 0, sizeof(*member));
    member->context = ranks_context(self, &settings);
    if (job->one_by_one) {
        ((mpath_cu_t *)mpath_gpu_driver())->MemcpyBatchAsync = NULL;
    }
    member_join(member, &self->oob, self->rank % job->devices, job->mapped ? MPATH_MEMORY_VMM : MPATH_MEMORY_DEVICE,
                (uint64_t)self->size * (job->row_bytes + 65536) + 4096);
}

static mpath_status_t call_round(member_t *member, const job_t *job, int round)
{
    int size = member->a2a.size;

    for (int i = 0; i < size * size; i++) {
        member->demand[i] = bytes_of(job, size, i / size, i % size, round / 2);
    }
    return member_call(member, A2A_GIVEN, 0, (uint64_t)round);
}

/* The most copies out of a device at a time; and none are left. */
static int most_at_a_time(const job_t *job)
{
    int most = 0;

    for (int device = 0; device < job->devices; device++) {
        ranks_check(ports->out[device] == 0);
        most = (ports->most_out[device] > most) ? ports->most_out[device] : most;
    }
    return most;
}

static int rounds_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    member_t member;

    member_init(&member, self, job);
    for (int round = 0; round < job->rounds; round++) {
        usleep((useconds_t)(rand() % 5000)); /* nobody is on time */
        ranks_check(call_round(&member, job, round) == MPATH_OK);
        ranks_check(a2a_check(&member.a2a) == 0);
        ranks_barrier(self);
    }
    if (self->rank == 0) {
        int most = most_at_a_time(job);

        if ((most > 1) != job->shared) {
            fprintf(stderr, "up to %d copies at a time out of a device, of %d\n", most, (int)ports->copies);
        }
        ranks_check((most > 1) == job->shared);
        ranks_check(ports->copies >= job->rounds * self->size);
    }
    ranks_barrier(self);
    member_end(&member);
    return 0;
}

static void run(const job_t *given)
{
    job_t job = *given;

    job.killed = -1;
    memset(ports, 0, sizeof(*ports));
    assert_int_equal(ranks_run(&job.setup, rounds_body, &job), 0);
}

static void test_equal_exchanges(void **state)
{
    (void)state;
    run(&(job_t){.setup = {.size = 4}, .devices = 4, .row_bytes = ROW_BYTES, .rounds = 4});
    run(&(job_t){.setup = {.size = 8}, .devices = 8, .row_bytes = 2 * ROW_BYTES, .rounds = 3});
}

static void test_skewed_exchanges(void **state)
{
    (void)state;
    run(&(job_t){.setup = {.size = 4}, .devices = 4, .shape = SHAPE_ZIPF, .row_bytes = 4 * ROW_BYTES, .rounds = 4});
    run(&(job_t){.setup = {.size = 8}, .devices = 8, .shape = SHAPE_ZIPF, .row_bytes = 5 * ROW_BYTES, .rounds = 4});
    run(&(job_t){.setup = {.size = 4}, .devices = 4, .shape = SHAPE_HOT, .row_bytes = 4 * ROW_BYTES, .rounds = 3});
}

/* A driver before CUDA 12.8 gets the copies of a call one after the other. */
static void test_copies_given_one_by_one(void **state)
{
    (void)state;
    run(&(job_t){.setup      = {.size = 8},
                 .devices    = 8,
                 .shape      = SHAPE_ZIPF,
                 .one_by_one = 1,
                 .row_bytes  = 5 * ROW_BYTES,
                 .rounds     = 3});
}

/* Where the driver has no words for streams, the host says that an engine is done. */
static void test_without_words_of_streams(void **state)
{
    (void)state;
    run(&(job_t){.setup     = {.size = 4},
                 .devices   = 4,
                 .shape     = SHAPE_HOT,
                 .without   = "values",
                 .row_bytes = ROW_BYTES,
                 .rounds    = 3});
}

/* Several ranks on a GPU: their copies meet there, which shows that the count sees what there is to see. */
static void test_ranks_share_gpus(void **state)
{
    (void)state;
    run(&(job_t){.setup = {.size = 4}, .devices = 2, .row_bytes = ROW_BYTES, .rounds = 3, .shared = 1});
}

/* What a rank sends to itself takes no multiprocessor where the driver can do without, and a kernel elsewhere. */
static int own_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_gpu_usage_t before, after;
    member_t member;

    member_init(&member, self, job);
    ranks_check(call_round(&member, job, 0) == MPATH_OK);
    mpath_gpu_usage(&before);
    ranks_check(call_round(&member, job, 1) == MPATH_OK);
    mpath_gpu_usage(&after);
    ranks_check(a2a_check(&member.a2a) == 0);
    ranks_check(after.launches - before.launches == (uint64_t)(job->one_by_one != 0));
    ranks_barrier(self);
    member_end(&member);
    return 0;
}

static void test_own_part(void **state)
{
    job_t job = {.setup = {.size = 2}, .devices = 2, .row_bytes = 16 * ROW_BYTES, .killed = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, own_body, &job), 0);
    job.one_by_one = 1;
    assert_int_equal(ranks_run(&job.setup, own_body, &job), 0);
}

/* The rank dies once its call has begun; the others get an error, and their streams are free. */
static int killed_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_status_t status;
    member_t member;

    member_init(&member, self, job);
    for (int round = 0; round < 2; round++) {
        ranks_check(call_round(&member, job, round) == MPATH_OK);
    }
    ranks_barrier(self);
    if (self->rank == job->killed) {
        setenv("FAKE_CUDA_COPY_US", "100000000", 1); /* its first copy lasts until it is gone */
        alarm(1);
        signal(SIGALRM, SIG_DFL);
    }
    status = call_round(&member, job, 2);
    ranks_check(mpath_status_is_error(status));
    ranks_check(call_round(&member, job, 3) == status);
    member_end(&member); /* waits for the streams */
    return 0;
}

static void test_the_dead_hold_nobody(void **state)
{
    job_t job = {.setup = {.size = 4, .may_die = 1u << 1}, .devices = 4, .row_bytes = ROW_BYTES, .killed = 1};

    (void)state;
    memset(ports, 0, sizeof(*ports));
    assert_int_equal(ranks_run(&job.setup, killed_body, &job), 0);
}

/*
 * Other communicators have taken the places of all exports and imports meanwhile: the same buffers have descriptors of
 * other numbers, and the old numbers are those of other memory.
 */
static int exports_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    gpu_memory_t others[MPATH_EXPORTS_MAX + 2];
    mpath_memory_t memory;
    mpath_export_t export;
    member_t member;

    member_init(&member, self, job);
    for (int round = 0; round < 2; round++) {
        ranks_check(call_round(&member, job, round) == MPATH_OK);
        ranks_check(a2a_check(&member.a2a) == 0);
    }
    for (int i = 0; i < MPATH_EXPORTS_MAX + 2; i++) {
        gpu_memory_alloc(MPATH_MEMORY_VMM, self->rank % job->devices, member.recv.block_bytes, 1, &others[i]);
        ranks_check(mpath_memory_classify((void *)(uintptr_t)others[i].address, others[i].bytes, &memory) == MPATH_OK);
        ranks_check(mpath_export_make((void *)(uintptr_t)others[i].address, others[i].bytes, &memory, &export) ==
                    MPATH_OK);
    }
    mpath_import_set_limit(0);
    ranks_barrier(self);
    for (int round = 2; round < 6; round++) {
        ranks_check(call_round(&member, job, round) == MPATH_OK);
        ranks_check(a2a_check(&member.a2a) == 0);
    }
    ranks_barrier(self);
    for (int i = 0; i < MPATH_EXPORTS_MAX + 2; i++) {
        gpu_memory_free(&others[i]);
    }
    member_end(&member);
    return 0;
}

static void test_exports_with_other_numbers(void **state)
{
    job_t job = {.setup = {.size = 2}, .devices = 2, .row_bytes = ROW_BYTES, .mapped = 1};

    (void)state;
    memset(ports, 0, sizeof(*ports));
    assert_int_equal(ranks_run(&job.setup, exports_body, &job), 0);
}

/* The application turns to another GPU, from where it cannot reach what it could reach before; and back. */
static void move_to(member_t *member, int device)
{
    uint64_t bytes = member->send.bytes;

    gpu_memory_free(&member->send);
    gpu_memory_free(&member->recv);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, bytes, 1, &member->send);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, bytes, 1, &member->recv);
}

static int changes_body(ranks_self_t *self, void *argument)
{
    static const int devices[] = {0, 1, 0, 1, 0};
    const job_t *job           = argument;
    mpath_coll_counters_t before, now;
    member_t member;

    member_init(&member, self, job);
    move_to(&member, 0);
    for (int round = 0; round < 5; round++) {
        mpath_coll_counters(member.coll, &before);
        if ((self->rank == 0) && (round > 0)) {
            move_to(&member, devices[round]);
        }
        ranks_check(call_round(&member, job, round) == MPATH_OK);
        ranks_check(a2a_check(&member.a2a) == 0);
        mpath_coll_counters(member.coll, &now);
        ranks_check((now.gpu.staged_bytes > before.gpu.staged_bytes) == (devices[round] == 1));
    }
    member_end(&member);
    return 0;
}

static void test_a_rank_turns_to_another_gpu(void **state)
{
    job_t job = {.setup = {.size = 2}, .devices = 2, .row_bytes = ROW_BYTES, .without = "peers"};

    (void)state;
    memset(ports, 0, sizeof(*ports));
    assert_int_equal(ranks_run(&job.setup, changes_body, &job), 0);
}

/* Who meets has seen what the others did before; who waits for somebody that does not come goes on. */
static int meet_body(ranks_self_t *self, void *argument)
{
    atomic_int *late_came = argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_board_t board;
    mpath_team_t *team;
    uint64_t everybody = (1ull << self->size) - 1;

    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    ranks_check(mpath_team_create(context, &self->oob, &team) == MPATH_OK);
    ranks_check(mpath_board_open(team, &board) == MPATH_OK);
    if (self->rank == 1) {
        usleep(50000);
        atomic_store(late_came, 1);
    }
    ranks_check(mpath_board_meet(&board, 1, everybody, UINT64_C(60000000000)));
    ranks_check(atomic_load(late_came) == 1);
    if (self->rank != 1) {
        ranks_check(!mpath_board_meet(&board, 2, everybody, 1000)); /* rank 1 stays away */
        ranks_check(mpath_board_meet(&board, 2, everybody & ~2ull, UINT64_C(60000000000)));
    }
    ranks_barrier(self);
    mpath_board_close(&board);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_engines_meet(void **state)
{
    const ranks_setup_t setup = {.size = 4};

    (void)state;
    memset(ports, 0, sizeof(*ports)); /* memory that all processes share */
    assert_int_equal(ranks_run(&setup, meet_body, ports), 0);
    memset(ports, 0, sizeof(*ports));
}

static int make_ports(void **state)
{
    int file = mkstemp(ports_path);

    (void)state;
    if ((file < 0) || (ftruncate(file, sizeof(*ports)) != 0)) {
        return -1;
    }
    ports = mmap(NULL, sizeof(*ports), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return (ports == MAP_FAILED) ? -1 : 0;
}

static int remove_ports(void **state)
{
    (void)state;
    munmap(ports, sizeof(*ports));
    return unlink(ports_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_exchanges),
        cmocka_unit_test(test_skewed_exchanges),
        cmocka_unit_test(test_copies_given_one_by_one),
        cmocka_unit_test(test_without_words_of_streams),
        cmocka_unit_test(test_ranks_share_gpus),
        cmocka_unit_test(test_own_part),
        cmocka_unit_test(test_the_dead_hold_nobody),
        cmocka_unit_test(test_engines_meet),
        cmocka_unit_test(test_exports_with_other_numbers),
        cmocka_unit_test(test_a_rank_turns_to_another_gpu),
    };

    return cmocka_run_group_tests(tests, make_ports, remove_ports);
}
