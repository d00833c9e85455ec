/* SPDX-License-Identifier: BSD-3-Clause */
/* The demand of a mixture-of-experts layer: sums, shares, repeatability, and what it refuses. */
#include "plan/demand.h"
#include "unit/capture.h"

#define RANKS 8

static const mpath_moe_t layer = {
    .tokens = 4096, .topk = 4, .experts = 64, .skew_ppm = 1000000, .seed = 5, .token_bytes = 1024};

static uint64_t column(const uint64_t *demand, int rank)
{
    uint64_t sum = 0;

    for (int source = 0; source < RANKS; source++) {
        sum += demand[source * RANKS + rank];
    }
    return sum;
}

static void expect_rows(const uint64_t *demand, const mpath_moe_t *moe)
{
    for (int source = 0; source < RANKS; source++) {
        uint64_t sum = 0;

        for (int destination = 0; destination < RANKS; destination++) {
            sum += demand[source * RANKS + destination];
            assert_true(demand[source * RANKS + destination] % moe->token_bytes == 0);
        }
        assert_true(sum == moe->tokens * moe->topk * moe->token_bytes);
    }
}

static void test_every_token_goes_to_topk(void **state)
{
    uint64_t demand[RANKS * RANKS];
    mpath_moe_t moe = layer;

    (void)state;
    for (moe.skew_ppm = 0; moe.skew_ppm <= 3000000; moe.skew_ppm += 500000) {
        assert_int_equal(mpath_demand_moe(RANKS, &moe, demand), MPATH_OK);
        expect_rows(demand, &moe);
    }
    moe.token_bytes = 1;
    assert_int_equal(mpath_demand_moe(RANKS, &moe, demand), MPATH_OK);
    expect_rows(demand, &moe);
}

/* Alike experts get alike; the most popular of 64 with exponent 1 gets 1 / H(64) = 21 % of single choices. */
static void test_popularity(void **state)
{
    uint64_t demand[RANKS * RANKS], total = RANKS * 20000 * 1024ull, most = 0;
    mpath_moe_t moe = layer;

    (void)state;
    moe.tokens   = 20000;
    moe.topk     = 1;
    moe.skew_ppm = 0;
    assert_int_equal(mpath_demand_moe(RANKS, &moe, demand), MPATH_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_true(column(demand, rank) > total / RANKS / 100 * 97 &&
                    column(demand, rank) < total / RANKS / 100 * 103);
    }
    moe.skew_ppm = 1000000;
    moe.experts  = RANKS; /* one per rank: 1 / H(8) = 36.8 % */
    assert_int_equal(mpath_demand_moe(RANKS, &moe, demand), MPATH_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        most = column(demand, rank) > most ? column(demand, rank) : most;
    }
    assert_true(most > total / 1000 * 360 && most < total / 1000 * 376);
}

/* With as many choices as experts each expert gets every token, whatever the skew. */
static void test_all_experts(void **state)
{
    uint64_t demand[RANKS * RANKS];
    mpath_moe_t moe = layer;

    (void)state;
    moe.topk = moe.experts = 16;
    moe.skew_ppm           = 20000000;
    moe.tokens             = 10;
    assert_int_equal(mpath_demand_moe(RANKS, &moe, demand), MPATH_OK);
    for (int cell = 0; cell < RANKS * RANKS; cell++) {
        assert_true(demand[cell] == 10 * 2 * 1024); /* two experts on each rank */
    }
    moe.topk = moe.experts = 4; /* on every other rank */
    assert_int_equal(mpath_demand_moe(RANKS, &moe, demand), MPATH_OK);
    for (int cell = 0; cell < RANKS * RANKS; cell++) {
        assert_true(demand[cell] == (cell % 2 == 0 ? 10 * 1024 : 0));
    }
}

static void test_repeatable(void **state)
{
    uint64_t first[RANKS * RANKS], again[RANKS * RANKS], other[RANKS * RANKS];
    mpath_moe_t moe = layer;

    (void)state;
    assert_int_equal(mpath_demand_moe(RANKS, &moe, first), MPATH_OK);
    assert_int_equal(mpath_demand_moe(RANKS, &moe, again), MPATH_OK);
    assert_memory_equal(first, again, sizeof(first));
    moe.seed++;
    assert_int_equal(mpath_demand_moe(RANKS, &moe, other), MPATH_OK);
    assert_memory_not_equal(first, other, sizeof(first));
    /* the same on any machine: these are its bytes */
    assert_true(first[1] / 1024 == 3493 && first[RANKS] / 1024 == 2360);
}

static void refuse(mpath_moe_t moe, const char *why)
{
    uint64_t demand[RANKS * RANKS];

    capture_start();
    assert_int_equal(mpath_demand_moe(RANKS, &moe, demand), MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_buffer, why));
}

static void test_refused(void **state)
{
    mpath_moe_t moe = layer;

    (void)state;
    moe.experts = 0;
    refuse(moe, "experts must be");
    moe      = layer;
    moe.topk = 0;
    refuse(moe, "1 to 64 experts");
    moe.topk    = 65;
    moe.experts = 128;
    refuse(moe, "1 to 64 experts");
    moe.experts = 3;
    moe.topk    = 4;
    refuse(moe, "no more than there are");
    moe        = layer;
    moe.tokens = 0;
    refuse(moe, "must be 1 to 1000000000");
    moe.tokens = UINT64_MAX;
    refuse(moe, "must be 1 to 1000000000");
    moe.tokens = 1000000000 / RANKS / layer.topk + 1;
    refuse(moe, "must be 1 to 1000000000");
    moe             = layer;
    moe.token_bytes = 0;
    refuse(moe, "1 byte to 1 GiB");
    moe.token_bytes = (1ull << 30) + 1;
    refuse(moe, "1 byte to 1 GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_token_goes_to_topk),
        cmocka_unit_test(test_popularity),
        cmocka_unit_test(test_all_experts),
        cmocka_unit_test(test_repeatable),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
