/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduces of short vectors, started before the agreement. Calls run out of numbers: the ranks lend each other memory
 * anew, and numbers begin again, which must not meet those that old calls have left; with 5 numbers instead of 2^32 - 1.
 * Which calls they are follows from the machine's rates; any way can be forced.
 */
#include "capture.h"
#include "device/kernels/reduce_eager_args.h"
#include "gpu_ranks.h"

#undef MPATH_EAGER_PARTS_CALLS
#define MPATH_EAGER_PARTS_CALLS UINT64_C(5)
#include "node/reduce.c"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 3
#define ROUNDS 40
#define MOST 200000
#define LONG 500000

typedef struct forced {
    mpath_gpu_reduce_t way;
    uint64_t elements;
    unsigned whole, parts; /* kernels of a rank that are expected */
} forced_t;

typedef struct job {
    ranks_setup_t setup;
    const char *probe_file; /* NULL: rates of an H200 */
    uint64_t first;         /* elements of the first call */
    uint64_t elements;      /* of those that follow, whose way follows from rates */
    unsigned eager;         /* of them, that are expected to be sent before the agreement */
    const forced_t *forced; /* NULL: none */
} job_t;

typedef struct member {
    mpath_context_t *context;
    mpath_team_t *team;
    gpu_sums_t sums;
} member_t;

static void begin(ranks_self_t *self, const job_t *job, member_t *member)
{
    mpath_settings_t settings;

    gpu_ranks_start(RANKS, "", &settings);
    settings.gpu_probe      = (job->probe_file != NULL) ? MPATH_GPU_PROBE_FILE : MPATH_GPU_PROBE_OFF;
    settings.gpu_probe_file = (job->probe_file != NULL) ? job->probe_file : "";
    settings.gpu_reduce     = (job->forced != NULL) ? (int)job->forced->way : MPATH_GPU_REDUCE_AUTO;
    member->context         = ranks_context(self, &settings);
    member->team            = ranks_team(self, member->context);
    gpu_sums_open(&member->sums, member->team, (job->elements > MOST) ? job->elements : MOST);
}

static void end(ranks_self_t *self, member_t *member)
{
    ranks_barrier(self);
    gpu_sums_close(&member->sums);
    mpath_team_destroy(member->team);
    mpath_context_destroy(member->context);
    mpath_gpu_cleanup();
}

static int numbers_body(ranks_self_t *self, void *argument)
{
    mpath_coll_counters_t counters;
    member_t member;

    begin(self, argument, &member);
    for (uint64_t round = 0; round < ROUNDS; round++) { /* whole and in parts, shorter ones now and then */
        gpu_sums_round(&member.sums, (round % 3 == 2) ? 100 : 3000, round);
        gpu_sums_round(&member.sums, (round % 3 == 2) ? 130000 : MOST, round);
        ranks_check(member.sums.gpu->eager->forms[MPATH_EAGER_PARTS].number <= MPATH_EAGER_PARTS_CALLS);
    }
    mpath_symmetric_gpu_counters(member.sums.gpu, &counters);
    ranks_check(counters.calls == 2 * ROUNDS);
    /* Of 6 calls one lends memory, and takes another way. */
    ranks_check(counters.gpu.eager == 2 * (ROUNDS - (ROUNDS + 5) / 6));
    end(self, &member);
    return 0;
}

static void test_numbers_end(void **state)
{
    job_t job = {.setup = {.size = RANKS}};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, numbers_body, &job), 0);
}

/* -- rates -- */

#define CALLS 4u

static int rates_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    begin(self, job, &member);
    for (uint64_t round = 0; round < CALLS; round++) {
        gpu_sums_round(&member.sums, (round == 0) ? job->first : job->elements, round);
    }
    mpath_symmetric_gpu_counters(member.sums.gpu, &counters);
    ranks_check(counters.gpu.eager == job->eager);
    end(self, &member);
    return 0;
}

static void write_probe(const char *path, uint64_t kernel_bps, unsigned latency_ns)
{
    FILE *out = fopen(path, "w");

    assert_non_null(out);
    for (int g = 0; g < RANKS; g++) {
        fprintf(out, "gpu %d GPU-66616b65-2067-7075-0000-00000000000%d 0000:1%d:00.0\n", g, g, g);
    }
    fprintf(out, "kernel %" PRIu64 " %" PRIu64 " %" PRIu64 "\nkernel-latency %u\n", kernel_bps, kernel_bps, kernel_bps,
            latency_ns);
    fclose(out);
}

/*
 * 800 kB are sent before the agreement on H200, not where links have a tenth, unless latencies are as much longer; 2 MB
 * are not, but with such latencies as soon as rates are known, after the first call, and there is memory for them.
 */
static void test_rates_choose_the_way(void **state)
{
    char path[] = "/tmp/mpath-eager-XXXXXX";
    job_t job   = {.setup = {.size = RANKS}, .first = MOST, .elements = MOST, .eager = CALLS - 1};
    int file    = mkstemp(path);

    (void)state;
    assert_true(file >= 0);
    close(file);
    assert_int_equal(ranks_run(&job.setup, rates_body, &job), 0);
    job.probe_file = path;
    job.eager      = 0;
    write_probe(path, UINT64_C(36200000000), 14300);
    assert_int_equal(ranks_run(&job.setup, rates_body, &job), 0);
    job.eager = CALLS - 1;
    write_probe(path, UINT64_C(36200000000), 143000);
    assert_int_equal(ranks_run(&job.setup, rates_body, &job), 0);
    job.elements = LONG;
    write_probe(path, UINT64_C(362000000000), 143000);
    assert_int_equal(ranks_run(&job.setup, rates_body, &job), 0);
    job.first = LONG;
    job.eager = CALLS - 2;
    assert_int_equal(ranks_run(&job.setup, rates_body, &job), 0);
    job.probe_file = NULL;
    job.eager      = 0;
    assert_int_equal(ranks_run(&job.setup, rates_body, &job), 0);
    unlink(path);
}

/* The same bytes of another operation or type may have to go another way than those of the call before. */
static int types_body(ranks_self_t *self, void *argument)
{
    static const struct {
        mpath_reduce_how_t how;
        int wanted;
    } calls[] = {
        {{MPATH_REDUCE_SUM, MPATH_REDUCE_U32}, 1},
        {{MPATH_REDUCE_PROD, MPATH_REDUCE_U32}, 0},
        {{MPATH_REDUCE_SUM, MPATH_REDUCE_U32}, 1},
        {{MPATH_REDUCE_SUM, MPATH_REDUCE_U8}, 0},
    };
    mpath_symmetric_gpu_t *gpu;
    member_t member;

    begin(self, argument, &member);
    gpu = member.sums.gpu;
    gpu_sums_round(&member.sums, 3000, 0);
    gpu->eager->bytes = 3000;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        mpath_gpu_writes_choose(gpu, gpu->eager->bytes, &calls[i].how);
        ranks_check(is_wanted(gpu, &calls[i].how) == calls[i].wanted);
    }
    end(self, &member);
    return 0;
}

static void test_types_choose_the_way(void **state)
{
    job_t job = {.setup = {.size = RANKS}};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, types_body, &job), 0);
}

/* -- forced ways -- */

static int forced_body(ranks_self_t *self, void *argument)
{
    const forced_t *forced = ((const job_t *)argument)->forced;
    uint64_t bytes         = forced->elements * sizeof(float), combined;
    const eager_form_t *forms;
    mpath_coll_counters_t counters;
    member_t member;

    begin(self, argument, &member);
    for (uint64_t round = 0; round < CALLS; round++) {
        gpu_sums_round(&member.sums, forced->elements, round);
    }
    mpath_symmetric_gpu_counters(member.sums.gpu, &counters);
    forms    = member.sums.gpu->eager->forms;
    combined = counters.gpu.kernel_bytes - (forced->whole + forced->parts) * bytes;
    ranks_check((counters.calls == CALLS) && (counters.gpu.eager == forced->whole + forced->parts));
    ranks_check((forms[MPATH_EAGER_WHOLE].counted == forced->whole) &&
                (forms[MPATH_EAGER_PARTS].counted == forced->parts));
    ranks_check(combined <= CALLS * (bytes / RANKS + 256));
    end(self, &member);
    return 0;
}

/* Each is the one that would not be chosen, but for one that cannot be: too long for whole vectors. */
static void test_ways_are_forced(void **state)
{
    static const forced_t table[] = {
        {.way = MPATH_GPU_REDUCE_WHOLE, .elements = 60000, .whole = CALLS - 1},
        {.way = MPATH_GPU_REDUCE_WHOLE, .elements = MOST},
        {.way = MPATH_GPU_REDUCE_PARTS, .elements = 3000, .parts = CALLS - 1},
        {.way = MPATH_GPU_REDUCE_DIRECT, .elements = 3000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        job_t job = {.setup = {.size = RANKS}, .forced = &table[i]};

        assert_int_equal(ranks_run(&job.setup, forced_body, &job), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_end),
        cmocka_unit_test(test_rates_choose_the_way),
        cmocka_unit_test(test_types_choose_the_way),
        cmocka_unit_test(test_ways_are_forced),
    };

    return cmocka_run_group_tests_name("gpu_eager", tests, NULL, NULL);
}
