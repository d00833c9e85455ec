/* SPDX-License-Identifier: BSD-3-Clause */
/* What is learned about rails: noise, drifts and jumps; the file of learned rates. */
#include "tune/nic_rates.h"
#include "tune/history.h"
#include "plan/cache.h"
#include "unit/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MB 1000000ull
#define RAILS 4

static uint32_t random_below(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((*state >> 33) % limit);
}

/* Rails, as reductions learn of them. */
static void rails_init(mpath_nics_t *rails, int num_rails, const uint64_t *bps)
{
    assert_int_equal(mpath_nics_init(rails, 1, num_rails, bps), MPATH_OK);
    rails->looks = 1;
}

/* The end of a window in which `num_ranks` have seen rows[]. Whether rates have changed. */
static int follow(mpath_nics_t *rails, const mpath_nics_seen_t *rows, int num_ranks)
{
    int changed;

    assert_int_equal(mpath_nics_update(rails, rows, num_ranks, NULL, &changed), MPATH_OK);
    return changed;
}

/* The same of ranks that have seen rails carry all[num_ranks * num_rails]; 0: nothing. */
static int update_by(mpath_nics_t *rails, const uint64_t *all, int num_ranks)
{
    mpath_nics_seen_t rows[3 * MPATH_MAX_NICS];

    for (int rank = 0; rank < num_ranks; rank++) {
        for (int rail = 0; rail < rails->num_rails; rail++) {
            uint64_t bytes = all[rank * rails->num_rails + rail];

            mpath_nics_carried(rails, rail, bytes, (bytes > 0) ? 1000000000 : 0);
        }
        mpath_nics_read(rails, rows + rank * rails->num_rails);
    }
    return follow(rails, rows, num_ranks);
}

/* A rate, as near as a pace in millionths says it. */
static void check_rate(uint64_t bps, uint64_t expected_bps)
{
    assert_in_range(bps, expected_bps - expected_bps / 500000 - 1, expected_bps + expected_bps / 500000 + 1);
}

/* One rank's calls; the rail's true rate is off by up to `noise` per cent in each. Returns the number of changes. */
static int run_calls(mpath_nics_t *rates, const uint64_t *true_bps, int calls, uint32_t noise, uint64_t *random)
{
    int changes = 0;

    for (int call = 0; call < calls; call++) {
        for (int rail = 0; rail < rates->num_rails; rail++) {
            uint64_t percent = (noise > 0) ? 100 - noise + random_below(random, 2 * noise + 1) : 100;

            mpath_nics_carried(rates, rail, 4 * MB, 4 * MB * 1000000000ull / (true_bps[rail] * percent / 100));
        }
        if (mpath_nics_end_call(rates, 160000000)) {
            mpath_nics_seen_t row[RAILS];

            mpath_nics_read(rates, row);
            changes += follow(rates, row, 1);
        }
    }
    return changes;
}

/* What the slowest rail takes, over what all would take with shares in proportion to their rates. */
static double over_bound(const mpath_nics_t *rates, const uint64_t *true_bps)
{
    double sum_true = 0, sum_current = 0, worst = 0;

    for (int rail = 0; rail < rates->num_rails; rail++) {
        sum_true += (double)true_bps[rail];
        sum_current += (double)rates->current_bps[rail];
    }
    for (int rail = 0; rail < rates->num_rails; rail++) {
        double time = (double)rates->current_bps[rail] / sum_current / (double)true_bps[rail] * sum_true;

        worst = (time > worst) ? time : worst;
    }
    return worst;
}

static void test_noise(void **state)
{
    const uint64_t bps[RAILS] = {25 * MB, 25 * MB, 25 * MB, 25 * MB};
    uint64_t random           = 1;
    mpath_nics_t rates;

    (void)state;
    rails_init(&rates, RAILS, bps);
    assert_int_equal(run_calls(&rates, bps, 20000, 10, &random), 0);
    assert_memory_equal(rates.current_bps, bps, sizeof(bps));
    mpath_nics_release(&rates);
}

/*
 * The same where a rail is slow by right, for many seeds, and when the noise lasts for whole windows: each rail keeps
 * its error.
 */
static void test_steady_noise(void **state)
{
    const uint64_t bps[RAILS] = {25 * MB, 6 * MB, 25 * MB, 50 * MB};

    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t random = seed, off[RAILS];
        mpath_nics_t rates;

        rails_init(&rates, RAILS, bps);
        assert_int_equal(run_calls(&rates, bps, 500, 10, &random), 0);
        for (int window = 0; window < 100; window++) {
            for (int rail = 0; rail < RAILS; rail++) {
                off[rail] = bps[rail] / 100 * (95 + random_below(&random, 11));
            }
            assert_int_equal(run_calls(&rates, off, MPATH_RATES_WINDOW_CALLS, 5, &random), 0);
        }
        assert_memory_equal(rates.current_bps, bps, sizeof(bps));
        mpath_nics_release(&rates);
    }
}

/* As many rails as there may be, as fast as they may be. */
static void test_fastest(void **state)
{
    uint64_t bps[MPATH_MAX_NICS], seen[MPATH_MAX_NICS];
    mpath_nics_t rates;

    (void)state;
    for (int rail = 0; rail < MPATH_MAX_NICS; rail++) {
        bps[rail] = seen[rail] = (uint64_t)MPATH_MAX_RATE_BPS;
    }
    rails_init(&rates, MPATH_MAX_NICS, bps);
    assert_int_equal(update_by(&rates, seen, 1), 0);
    seen[3] /= 2;
    assert_int_equal(update_by(&rates, seen, 1), 1);
    check_rate(rates.current_bps[3], seen[3]);
    assert_int_equal(rates.current_bps[4], bps[4]);
    mpath_nics_release(&rates);
}

/* Slower or faster by whatever factor: followed within 20 calls, in the presence of noise. */
static void test_follows(void **state)
{
    const uint64_t start[RAILS] = {25 * MB, 25 * MB, 25 * MB, 25 * MB};

    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t now[RAILS], random = seed;
        mpath_nics_t rates;

        rails_init(&rates, RAILS, start);
        memcpy(now, start, sizeof(now));
        now[seed % RAILS] = 25 * MB / (1 + seed % 4);
        run_calls(&rates, now, 20, 5, &random);
        assert_true(over_bound(&rates, now) < 1.15);
        run_calls(&rates, start, 20, 5, &random); /* it recovers */
        assert_true(over_bound(&rates, start) < 1.15);
        mpath_nics_release(&rates);
    }
}

/* All rails slower alike: no reason to change shares. */
static void test_common_change(void **state)
{
    const uint64_t start[RAILS] = {25 * MB, 50 * MB, 25 * MB, 25 * MB};
    const uint64_t half[RAILS]  = {12 * MB, 24 * MB, 12 * MB, 12 * MB};
    uint64_t random             = 3;
    mpath_nics_t rates;

    (void)state;
    rails_init(&rates, RAILS, start);
    assert_int_equal(run_calls(&rates, half, 40, 0, &random), 0);
    mpath_nics_release(&rates);
}

/* The rank that sees least of a rail is right; ranks that saw nothing have no say. */
static void test_ranks(void **state)
{
    const uint64_t start[2] = {100 * MB, 100 * MB};
    uint64_t all[3 * 2]     = {0};
    mpath_nics_t rates;

    (void)state;
    rails_init(&rates, 2, start);
    all[0]         = 100 * MB;
    all[2 + 1]     = 90 * MB;
    all[2 * 2 + 1] = 50 * MB;
    assert_int_equal(update_by(&rates, all, 3), 1);
    check_rate(rates.current_bps[0], 100 * MB);
    check_rate(rates.current_bps[1], 50 * MB);
    memset(all, 0, sizeof(all));
    assert_int_equal(update_by(&rates, all, 3), 0);
    check_rate(rates.current_bps[1], 50 * MB);
    mpath_nics_release(&rates);
}

/* What one rank sees in a window. */
static int update(mpath_nics_t *rates, uint64_t first_mb, uint64_t second_mb, uint64_t third_mb)
{
    const uint64_t seen[MPATH_MAX_NICS] = {first_mb * MB, second_mb * MB, third_mb * MB};

    return update_by(rates, seen, 1);
}

/* A small difference counts when the next window shows it, too; a large one at once. */
static void test_drift(void **state)
{
    const uint64_t start[3] = {100 * MB, 100 * MB, 100 * MB};
    mpath_nics_t rates;

    (void)state;
    rails_init(&rates, 3, start);
    assert_int_equal(update(&rates, 100, 100, 78), 0);
    assert_int_equal(update(&rates, 100, 100, 98), 0);
    assert_int_equal(update(&rates, 100, 100, 78), 0);
    check_rate(rates.current_bps[2], 100 * MB);
    assert_int_equal(update(&rates, 100, 100, 77), 1);
    check_rate(rates.current_bps[2], 77 * MB);
    assert_int_equal(update(&rates, 100, 100, 96), 0); /* counted anew */
    assert_int_equal(update(&rates, 100, 100, 40), 1);
    check_rate(rates.current_bps[2], 40 * MB);
    mpath_nics_release(&rates);
}

/* A window doubles a rate at most, and takes seven eighths of it away. */
static void test_limited_change(void **state)
{
    const uint64_t start[3] = {100 * MB, 100 * MB, 160 * MB};
    mpath_nics_t rates;

    (void)state;
    rails_init(&rates, 3, start);
    assert_int_equal(update(&rates, 100, 500, 1), 1);
    check_rate(rates.current_bps[0], 100 * MB);
    check_rate(rates.current_bps[1], 200 * MB);
    check_rate(rates.current_bps[2], 20 * MB);
    mpath_nics_release(&rates);
}

/* Too little to say anything, no time, and rates beyond all bounds. */
static void test_odd_observations(void **state)
{
    const uint64_t start[2] = {100 * MB, 100 * MB};
    mpath_nics_seen_t row[2];
    mpath_nics_t rates;

    (void)state;
    rails_init(&rates, 2, start);
    mpath_nics_carried(&rates, 0, 100, 1000000);
    mpath_nics_carried(&rates, 1, 100 * MB, 0);
    memset(row, 0xff, sizeof(row));
    mpath_nics_read(&rates, row);
    for (int rail = 0; rail < 2; rail++) {
        assert_int_equal(row[rail].pace, 0);
    }
    mpath_nics_carried(&rates, 0, UINT64_MAX / 2, 1);
    mpath_nics_carried(&rates, 1, 65536, UINT64_MAX / 2);
    mpath_nics_read(&rates, row);
    assert_int_equal(row[0].pace, (uint32_t)MPATH_NICS_MOST_PACE);
    assert_int_equal(row[1].pace, 1); /* next to nothing is not nothing */
    /* what is too little for a window counts in the next one */
    for (int window = 0; window < 3; window++) {
        mpath_nics_carried(&rates, 0, 30000, 300000);
        mpath_nics_read(&rates, row);
        assert_int_equal(row[0].pace, (window < 2) ? 0 : MPATH_NICS_ON_TIME);
    }
    mpath_nics_carried(&rates, 0, MB, 1000);
    mpath_nics_restart(&rates);
    mpath_nics_read(&rates, row);
    assert_int_equal(row[0].pace, 0);
    mpath_nics_release(&rates);
}

/* What reductions look at themselves is not trusted unseen. */
static void test_unseen(void **state)
{
    const uint64_t start[2] = {100 * MB, 100 * MB}, slow[2] = {100 * MB, 5 * MB}, unseen[2] = {100 * MB, 0};
    mpath_nics_t rates;

    (void)state;
    for (int looks = 0; looks < 2; looks++) {
        rails_init(&rates, 2, start);
        rates.looks = looks;
        for (int window = 0; window < 3; window++) {
            (void)update_by(&rates, slow, 1);
        }
        check_rate(rates.current_bps[1], 5 * MB);
        for (int window = 0; window < MPATH_NICS_UNSEEN_WINDOWS; window++) {
            (void)update_by(&rates, unseen, 1);
        }
        check_rate(rates.current_bps[1], (looks ? 5 : 10) * MB);
        mpath_nics_release(&rates);
    }
}

/* Calls with noise of rails that change now and then: the call whose window has changed rates, and these, in MB/s. */
static const struct {
    int ranks;
    uint64_t seed, noise;
    const char *changes;
} recorded[] = {
    {1, 1, 2,
     " 63:25075,10028,25000,24774 159:24927,6621,25197,24862 167:25013,5000,25178,24821 171:24852,10001,24965,25249 "
     "175:25090,17899,24750,24902 183:25019,28086,25179,24843 215:15933,28279,25362,24840 231:16110,27950,25031,7916 "
     "247:15925,5774,24997,7964 255:16153,4051,25242,8103 271:12004,4001,24773,8022 307:12079,4040,25247,14280 "
     "367:12113,3976,25265,28560"},
    {1, 2, 12,
     " 7:24744,24153,25733,4156 67:25921,13210,25750,4134 71:22865,5947,24877,3767 91:24338,11895,23514,4252 "
     "95:24717,21340,24862,4206 187:5173,14118,23997,4008 195:3996,13793,25288,4077 219:3791,20399,24448,4101 "
     "231:7583,21076,24331,8203 235:15167,20789,24131,10672 243:20006,20544,25831,11095 255:15342,20236,24783,10606 "
     "299:15736,20250,14809,11538 395:31473,21634,13890,11485"},
    {3, 3, 8,
     " 151:3125,27559,30368,30291 155:1966,28673,28301,28450 199:2005,28296,14846,28882 207:1903,28327,15095,18112 "
     "243:1938,3540,14503,21438 247:2011,952,14267,22662 263:2024,983,15076,29889 331:1886,930,17721,28174 "
     "375:1958,955,17143,23999"},
    {4, 4, 16,
     " 31:26091,22947,9976,23573 63:24674,22046,8232,23520 143:25650,13658,9113,23901 199:25131,13738,6109,24914 "
     "251:28388,13295,5728,22261 275:25975,17507,5651,23194 279:26467,2188,6063,25217 283:26185,973,5170,25555 "
     "379:3273,966,5788,23741 383:982,910,11014,26864 387:902,956,18235,24940"}};

#define RECORDED_RANKS 4

/* A call of all ranks, which see a rail or do not, much or little of it. Whether the window ends. */
static int recorded_call(mpath_nics_t *ranks, int num_ranks, const uint64_t *real_bps, uint32_t noise, uint64_t *random)
{
    int ends = 0;

    for (int rank = 0; rank < num_ranks; rank++) {
        for (int rail = 0; rail < RAILS; rail++) {
            uint64_t bytes   = (random_below(random, 8) == 0) ? 9000 : 4000000 + random_below(random, 4000000);
            uint64_t percent = 100 - noise + random_below(random, 2 * noise + 1);

            if (random_below(random, 10) > 0) {
                mpath_nics_carried(&ranks[rank], rail, bytes,
                                   (uint64_t)((double)bytes * 1e9 / ((double)real_bps[rail] * (double)percent / 100)));
            }
        }
        ends = mpath_nics_end_call(&ranks[rank], 15000000);
    }
    return ends;
}

static int recorded_window(mpath_nics_t *ranks, int num_ranks)
{
    mpath_nics_seen_t rows[RECORDED_RANKS * RAILS];
    int changed = 0;

    for (int rank = 0; rank < num_ranks; rank++) {
        mpath_nics_read(&ranks[rank], rows + rank * RAILS);
    }
    for (int rank = 0; rank < num_ranks; rank++) {
        changed = follow(&ranks[rank], rows, num_ranks);
        assert_memory_equal(ranks[rank].current_bps, ranks[0].current_bps, RAILS * sizeof(uint64_t));
    }
    return changed;
}

/* The next number of the text. */
static uint64_t read_number(const char **text)
{
    char *end;
    uint64_t number = strtoull(*text, &end, 10);

    *text = end + ((*end != '\0') ? 1 : 0);
    return number;
}

static void test_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
        uint64_t random     = recorded[i].seed, real_bps[RAILS];
        const char *changes = recorded[i].changes;
        mpath_nics_t ranks[RECORDED_RANKS];

        for (int rail = 0; rail < RAILS; rail++) {
            real_bps[rail] = 25000 * MB;
        }
        for (int rank = 0; rank < recorded[i].ranks; rank++) {
            rails_init(&ranks[rank], RAILS, real_bps);
        }
        for (int call = 0; call < 400; call++) {
            if (random_below(&random, 40) == 0) {
                uint64_t bps = 1000 * MB * (1 + random_below(&random, 30));

                real_bps[random_below(&random, RAILS)] = bps;
            }
            if (recorded_call(ranks, recorded[i].ranks, real_bps, (uint32_t)recorded[i].noise, &random) &&
                recorded_window(ranks, recorded[i].ranks)) {
                assert_int_equal(call, read_number(&changes));
                for (int rail = 0; rail < RAILS; rail++) {
                    uint64_t expected = read_number(&changes);

                    assert_in_range(ranks[0].current_bps[rail] / MB, expected - 1, expected + 1);
                }
            }
        }
        assert_string_equal(changes, "");
        for (int rank = 0; rank < recorded[i].ranks; rank++) {
            mpath_nics_release(&ranks[rank]);
        }
    }
}

/* A window is a few calls, and more of them while they are short. */
static void test_window(void **state)
{
    const uint64_t start[2] = {100 * MB, 100 * MB};
    mpath_nics_t rates;
    int calls = 0;

    (void)state;
    rails_init(&rates, 2, start);
    do {
        calls++;
    } while (!mpath_nics_end_call(&rates, MPATH_RATES_WINDOW_NS));
    assert_int_equal(calls, MPATH_RATES_WINDOW_CALLS);
    for (int window = 0; window < 2; window++) { /* the next ones too */
        update_by(&rates, (const uint64_t[2 * 2]){0}, 2);
        calls = 0;
        do {
            calls++;
        } while (!mpath_nics_end_call(&rates, (window == 0) ? MPATH_RATES_WINDOW_NS / 100 : MPATH_RATES_WINDOW_NS));
        assert_int_equal(calls, (window == 0) ? 100 : MPATH_RATES_WINDOW_CALLS);
    }
    mpath_nics_release(&rates);
}

/* The planner sees the rates, on every node, and nothing else changes. */
static void test_topo(void **state)
{
    const mpath_place_t places[4]    = {{.node = 0, .nic = 0, .gpu = -1},
                                        {.node = 0, .nic = 1, .gpu = -1},
                                        {.node = 1, .nic = 0, .gpu = -1},
                                        {.node = 1, .nic = 1, .gpu = -1}};
    const mpath_topo_params_t params = {.access = MPATH_REACH_AFFINE};
    const int rails[2]               = {0, 1};
    const uint64_t nominal[2] = {100 * MB, 100 * MB}, rates[2] = {50 * MB, 125 * MB};
    const uint64_t much[2] = {1000 * MB, 1}, odd[2] = {1, (uint64_t)MPATH_MAX_RATE_BPS};
    const uint64_t by_node[4] = {100 * MB, 100 * MB, 0, 200 * MB}, of_nics[4] = {100 * MB, 50 * MB, 0, 20 * MB};
    mpath_machine_t machines[2];
    mpath_topo_t *topo, *rated;

    (void)state;
    memset(machines, 0, sizeof(machines));
    for (int node = 0; node < 2; node++) {
        snprintf(machines[node].host, sizeof(machines[node].host), "node%d", node);
        machines[node].num_nics        = 2;
        machines[node].host_memory_bps = 1000 * MB;
        for (int nic = 0; nic < 2; nic++) {
            mpath_nic_t *entry = &machines[node].nics[nic];

            *entry = (mpath_nic_t){
                .rate_bps = 100 * MB * (uint64_t)(node + 1), .numa = -1, .rail = (int16_t)nic, .up = 1};
            snprintf(entry->name, sizeof(entry->name), "rail%d", nic);
        }
    }
    assert_int_equal(mpath_topo_create(machines, 2, places, 4, &params, &topo), MPATH_OK);
    assert_int_equal(mpath_topo_with_rates(topo, &(mpath_topo_rates_t){1, 2, rails, nominal, rates}, &rated), MPATH_OK);
    assert_int_equal(mpath_topo_machine(rated, 0)->nics[0].rate_bps, 50 * MB);
    assert_int_equal(mpath_topo_machine(rated, 0)->nics[1].rate_bps, 125 * MB);
    assert_int_equal(mpath_topo_machine(rated, 1)->nics[0].rate_bps, 100 * MB);
    assert_int_equal(mpath_topo_machine(rated, 1)->nics[1].rate_bps, 250 * MB);
    for (int source = 0; source < 4; source++) {
        for (int to = 0; to < 4; to++) {
            assert_int_equal(mpath_topo_num_paths(topo, source, to), mpath_topo_num_paths(rated, source, to));
        }
    }
    mpath_topo_destroy(rated);
    /* A rail that carries next to nothing is slow, not missing; and there is a fastest rate. */
    assert_int_equal(mpath_topo_with_rates(topo, &(mpath_topo_rates_t){1, 2, rails, much, odd}, &rated), MPATH_OK);
    assert_int_equal(mpath_topo_machine(rated, 0)->nics[0].rate_bps, 1);
    assert_int_equal(mpath_topo_machine(rated, 0)->nics[1].rate_bps, (uint64_t)MPATH_MAX_RATE_BPS);
    mpath_topo_destroy(rated);
    /* By node: a NIC that the rates do not know stays as it is. */
    assert_int_equal(mpath_topo_with_rates(topo, &(mpath_topo_rates_t){2, 2, rails, by_node, of_nics}, &rated),
                     MPATH_OK);
    assert_int_equal(mpath_topo_machine(rated, 0)->nics[0].rate_bps, 100 * MB);
    assert_int_equal(mpath_topo_machine(rated, 0)->nics[1].rate_bps, 50 * MB);
    assert_int_equal(mpath_topo_machine(rated, 1)->nics[0].rate_bps, 200 * MB);
    assert_int_equal(mpath_topo_machine(rated, 1)->nics[1].rate_bps, 20 * MB);
    mpath_topo_destroy(rated);
    mpath_topo_destroy(topo);
}

static void store_path(char *path, size_t size)
{
    snprintf(path, size, "/tmp/mpath-test-rates.%ld", (long)getpid());
    unlink(path);
}

static void test_store(void **state)
{
    const uint64_t first[3] = {1, 25 * MB, 50000 * MB}, second[3] = {7, 8, 9};
    uint64_t got[3] = {0};
    char path[64];

    (void)state;
    store_path(path, sizeof(path));
    assert_int_equal(mpath_history_load(path, 1, "allreduce", 0, 3, got), MPATH_DECLINED);
    assert_int_equal(mpath_history_save(path, 1, "allreduce", 0, 3, first), MPATH_OK);
    assert_int_equal(mpath_history_save(path, 1, "allreduce", 2, 3, second), MPATH_OK);
    assert_int_equal(mpath_history_save(path, 2, "allgather", 0, 3, second), MPATH_OK);
    assert_int_equal(mpath_history_load(path, 1, "allreduce", 0, 3, got), MPATH_OK);
    assert_memory_equal(got, first, sizeof(got));
    assert_int_equal(mpath_history_save(path, 1, "allreduce", 0, 3, second), MPATH_OK); /* replaces */
    assert_int_equal(mpath_history_load(path, 1, "allreduce", 0, 3, got), MPATH_OK);
    assert_memory_equal(got, second, sizeof(got));
    assert_int_equal(mpath_history_load(path, 2, "allgather", 0, 3, got), MPATH_OK);
    assert_int_equal(mpath_history_load(path, 2, "allgather", 1, 3, got), MPATH_DECLINED);
    assert_int_equal(mpath_history_load(path, 2, "allgather", 0, 2, got), MPATH_DECLINED); /* another number of rails */
    unlink(path);
}

/* A line that cannot be read is named, and the others count. */
static void test_store_damaged(void **state)
{
    const char *text = "mpath-rates 1\n0000000000000001 allreduce 0 5 6\nnonsense\n0000000000000001 allgather 0 5 x\n"
                       "0000000000000001 allgather 1 0 5\n\n0000000000000001 allreduce 1 7 8\n";
    uint64_t got[2]  = {0};
    char path[64];
    FILE *out;

    (void)state;
    store_path(path, sizeof(path));
    out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    capture_start();
    assert_int_equal(mpath_history_load(path, 1, "allreduce", 1, 2, got), MPATH_OK);
    assert_int_equal(got[1], 8);
    assert_int_equal(mpath_history_load(path, 1, "allgather", 0, 2, got), MPATH_DECLINED);
    capture_stop();
    assert_non_null(strstr(capture_text(), ":3: this line cannot be read"));
    assert_non_null(strstr(capture_text(), ":4: this line cannot be read"));
    assert_non_null(strstr(capture_text(), ":5: this line cannot be read"));
    unlink(path);
    capture_start();
    assert_int_equal(mpath_history_save("/nonexistent/folder/rates", 1, "allreduce", 0, 2, got), MPATH_ERR_IO);
    capture_stop();
    assert_non_null(strstr(capture_text(), "/nonexistent/folder/rates cannot be written"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise),   cmocka_unit_test(test_steady_noise),   cmocka_unit_test(test_fastest),
        cmocka_unit_test(test_follows), cmocka_unit_test(test_common_change),  cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_drift),   cmocka_unit_test(test_limited_change), cmocka_unit_test(test_odd_observations),
        cmocka_unit_test(test_unseen),  cmocka_unit_test(test_recorded),       cmocka_unit_test(test_window),
        cmocka_unit_test(test_topo),    cmocka_unit_test(test_store),          cmocka_unit_test(test_store_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
