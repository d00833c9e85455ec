/* SPDX-License-Identifier: BSD-3-Clause */
/* What calls of the share engine teach: nothing where ranks may compute in between. */
#include "unit/symmetric_support.h"
#include "util/fiber.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 4
#define NICS 2
#define NIC_BPS UINT64_C(25000000)
#define MIB (UINT64_C(1) << 20)
#define CALLS (3 * MPATH_RATES_WINDOW_CALLS)
#define COMPUTES_US 3000

static void open_affine(member_t *member, ranks_self_t *self, int adapt)
{
    mpath_settings_init(&member->settings);
    member->settings.memory_bytes = 8 * MIB;
    member->settings.access       = MPATH_ACCESS_AFFINE;
    member->settings.adapt        = adapt;
    member_open(member, self);
}

/* -- non-blocking calls, one rank of which computes in between -- */

static void calls_fiber(void *argument)
{
    member_t *member = argument;
    double *vector   = zeroed(MIB);

    for (int call = 0; call < CALLS; call++) {
        ranks_check(mpath_allreduce(member->symmetric, vector, vector, MIB / sizeof(*vector), &doubles, 0) == MPATH_OK);
    }
    free(vector);
}

static void check_nothing_learned(const member_t *member)
{
    const mpath_rates_t *rates = &member->symmetric->adapt.rates[0][0];

    ranks_check((rates->num_rails == NICS) && (rates->calls == 0) && (rates->drifts == 0));
    for (int rail = 0; rail < NICS; rail++) {
        ranks_check((rates->current_bps[rail] == NIC_BPS) && (rates->bytes[rail] == 0));
    }
    for (int kind = 0; kind < MPATH_WAY_CHOICE_KINDS; kind++) {
        ranks_check(member->symmetric->doubts[0].slow[0][kind] == 0);
    }
}

static int late_body(ranks_self_t *self, void *argument)
{
    mpath_fiber_t *fiber;
    member_t member;

    open_affine(&member, self, *(const int *)argument);
    ranks_check(mpath_fiber_create(256 << 10, &fiber) == MPATH_OK);
    mpath_fiber_start(fiber, calls_fiber, &member);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
        if (self->rank == 1) {
            usleep(COMPUTES_US);
        }
    }
    mpath_fiber_destroy(fiber);
    check_nothing_learned(&member);
    member_end(&member);
    return 0;
}

static void test_late(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = NICS, .nic_bps = NIC_BPS};
    int adapts[]              = {MPATH_ADAPT_RUN, MPATH_ADAPT_START};

    (void)state;
    for (size_t i = 0; i < sizeof(adapts) / sizeof(adapts[0]); i++) {
        assert_int_equal(ranks_run(&setup, late_body, &adapts[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_late)};

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
