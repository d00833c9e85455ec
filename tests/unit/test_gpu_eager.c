/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduces of short vectors whose calls run out of numbers: the ranks lend each other memory anew, and numbers begin
 * again, which must not meet those that old calls have left. With 5 numbers instead of 2^32 - 1.
 */
#include "capture.h"
#include "gpu/reduce_eager_args.h"
#include "gpu_ranks.h"

#undef MPATH_EAGER_PARTS_CALLS
#define MPATH_EAGER_PARTS_CALLS UINT64_C(5)
#include "coll/allreduce_gpu_eager.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define RANKS 3
#define ROUNDS 40
#define MOST 200000

static int numbers_body(ranks_self_t *self, void *argument)
{
    mpath_coll_counters_t counters;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    gpu_sums_t sums;

    (void)argument;
    gpu_ranks_start(RANKS, "", &settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    gpu_sums_open(&sums, team, MOST);
    for (uint64_t round = 0; round < ROUNDS; round++) { /* whole and in parts, shorter ones now and then */
        gpu_sums_round(&sums, (round % 3 == 2) ? 100 : 3000, round);
        gpu_sums_round(&sums, (round % 3 == 2) ? 130000 : MOST, round);
        ranks_check(sums.gpu->eager->forms[MPATH_EAGER_PARTS].number <= MPATH_EAGER_PARTS_CALLS);
    }
    mpath_symmetric_gpu_counters(sums.gpu, &counters);
    ranks_check(counters.calls == 2 * ROUNDS);
    /* Of 6 calls one lends memory, and takes another way. */
    ranks_check(counters.gpu.eager == 2 * (ROUNDS - (ROUNDS + 5) / 6));
    ranks_barrier(self);
    gpu_sums_close(&sums);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_numbers_end(void **state)
{
    const ranks_setup_t setup = {.size = RANKS};

    (void)state;
    assert_int_equal(ranks_run(&setup, numbers_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers_end)};

    return cmocka_run_group_tests_name("gpu_eager", tests, NULL, NULL);
}
