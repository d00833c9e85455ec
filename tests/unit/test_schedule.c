/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules: the duties of all ranks together carry a plan completely, and both ends of every hop agree on its chunks.
 */
#include "mover/schedule.h"
#include "unit/capture.h"
#include "unit/grid.h"
#include "unit/topo_gpu_support.h"

#include <stdlib.h>

#define RANKS 8

static const uint32_t slots[]       = {16384, 12288, 16384, 16384};
static const uint32_t relay_slots[] = {10240, 16384, 16384, 16384};

static const mpath_chunk_limits_t limits = {
    .chunk_bytes = 65536, .rail_bytes = 32768, .last_slot_bytes = slots, .relay_slot_bytes = relay_slots};

typedef struct fixture {
    mpath_topo_t *topo;
    mpath_plan_t *plan;
    mpath_schedule_t *schedules[RANKS];
    const mpath_flow_t *flows;
    size_t num_flows;
} fixture_t;

static void fixture_make(fixture_t *f, mpath_access_mode_t access)
{
    uint64_t demand[RANKS * RANKS];

    for (int i = 0; i < RANKS * RANKS; i++) {
        demand[i] = (i % 5 == 0) ? 0 : (uint64_t)(i * 7919 % 300000) + 1;
    }
    f->topo = grid_topo(2, 4, 4, access);
    assert_int_equal(mpath_plan_create(f->topo, demand, NULL, &f->plan), MPATH_OK);
    f->flows = mpath_plan_flows(f->plan, &f->num_flows);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(mpath_schedule_create(f->topo, rank, f->plan, &limits, &f->schedules[rank]), MPATH_OK);
    }
}

static void fixture_end(fixture_t *f)
{
    for (int rank = 0; rank < RANKS; rank++) {
        mpath_schedule_destroy(f->schedules[rank]);
    }
    mpath_plan_destroy(f->plan);
    mpath_topo_destroy(f->topo);
}

/* Carries one chunk along the path as the ranks' schedules see it. */
static void carry_chunk(fixture_t *f, const mpath_path_t *path, uint32_t flow, uint32_t index)
{
    mpath_chunk_t chunk = {.flow = flow};
    uint32_t bytes;
    uint64_t offset;

    for (int hop = 0; hop < path->num_hops; hop++) {
        const mpath_hop_t *h  = &path->hops[hop];
        mpath_duty_t *sends   = mpath_schedule_find(f->schedules[h->from], flow);
        mpath_duty_t *catches = mpath_schedule_find(f->schedules[h->to], flow);
        const mpath_outlet_t *outlet;

        assert_non_null(sends);
        assert_non_null(catches);
        assert_int_equal(sends->hop_out, hop);
        mpath_duty_chunk(sends, index, &offset, &bytes);
        if (hop == 0) {
            chunk.offset = offset;
            chunk.bytes  = bytes;
        }
        assert_true(bytes == chunk.bytes && offset == chunk.offset);
        outlet = &f->schedules[h->from]->outlets[sends->outlet];
        assert_int_equal(outlet->rank, h->to);
        if (h->lane == MPATH_LANE_RAIL) {
            assert_int_equal(outlet->kind, MPATH_OUTLET_RAIL);
            assert_true(f->schedules[h->from]->rails >> h->nic_from & 1);
            assert_true(f->schedules[h->to]->rails >> h->nic_to & 1);
            assert_true(bytes <= limits.rail_bytes);
        } else {
            int node = mpath_topo_place(f->topo, h->from)->node;

            assert_int_equal(outlet->kind, (hop == path->num_hops - 1) ? MPATH_OUTLET_LAST : MPATH_OUTLET_RELAY);
            assert_true(bytes <= ((outlet->kind == MPATH_OUTLET_LAST) ? slots : relay_slots)[node]);
        }
        chunk.hop = (uint32_t)hop;
        assert_int_equal(mpath_schedule_accept(f->schedules[h->to], catches, &chunk), MPATH_OK);
        assert_int_equal(mpath_schedule_accept(f->schedules[h->to], catches, &chunk), MPATH_ERR_PARAM);
    }
}

static void check_carries(mpath_access_mode_t access)
{
    uint64_t sends = 0, receives = 0, forwards = 0, total = 0, relayed = 0;
    fixture_t f;

    fixture_make(&f, access);
    for (size_t i = 0; i < f.num_flows; i++) {
        const mpath_duty_t *duty = mpath_schedule_find(f.schedules[f.flows[i].source], (uint32_t)i);
        uint64_t covered         = 0;
        mpath_path_t path;

        mpath_topo_path(f.topo, f.flows[i].source, f.flows[i].destination, f.flows[i].path, &path);
        total += f.flows[i].bytes;
        relayed += f.flows[i].bytes * (uint64_t)path.num_relays;
        assert_non_null(duty);
        for (uint32_t k = 0; k < duty->num_chunks; k++) {
            uint64_t offset;
            uint32_t bytes;

            mpath_duty_chunk(duty, k, &offset, &bytes);
            assert_true(offset == f.flows[i].offset + covered);
            assert_true((bytes == duty->chunk_bytes) || (k == duty->num_chunks - 1));
            covered += bytes;
            carry_chunk(&f, &path, (uint32_t)i, k);
        }
        assert_true(covered == f.flows[i].bytes);
        if ((path.num_hops == 1) && (path.hops[0].lane == MPATH_LANE_RAIL)) {
            assert_int_equal(duty->chunk_bytes, limits.rail_bytes); /* slots are no concern of a rail */
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        sends += f.schedules[rank]->send_bytes;
        receives += f.schedules[rank]->receive_bytes;
        forwards += f.schedules[rank]->forward_bytes;
    }
    assert_true(sends == total && receives == total && forwards == relayed);
    fixture_end(&f);
}

static void test_carries_all(void **state)
{
    (void)state;
    check_carries(MPATH_REACH_ALL);
}

static void test_carries_affine(void **state)
{
    (void)state;
    check_carries(MPATH_REACH_AFFINE);
}

/* Chunks that nobody cut: each is refused, and leaves no mark. */
static void test_refuses(void **state)
{
    fixture_t f;
    mpath_duty_t *duty = NULL;
    mpath_schedule_t *schedule;
    mpath_chunk_t good, bad;

    (void)state;
    fixture_make(&f, MPATH_REACH_AFFINE);
    schedule = f.schedules[5];
    for (size_t i = 0; i < schedule->num_duties; i++) {
        if (schedule->duties[i].hop_in >= 0 && schedule->duties[i].num_chunks > 1) {
            duty = &schedule->duties[i];
        }
    }
    assert_non_null(duty);
    good = (mpath_chunk_t){.flow = duty->flow, .hop = (uint32_t)duty->hop_in};
    mpath_duty_chunk(duty, 0, &good.offset, &good.bytes);

    bad = good;
    bad.offset++;
    assert_int_equal(mpath_schedule_accept(schedule, duty, &bad), MPATH_ERR_PARAM);
    bad = good;
    bad.offset -= duty->chunk_bytes;
    assert_int_equal(mpath_schedule_accept(schedule, duty, &bad), MPATH_ERR_PARAM);
    bad = good;
    bad.offset += (uint64_t)duty->num_chunks * duty->chunk_bytes;
    assert_int_equal(mpath_schedule_accept(schedule, duty, &bad), MPATH_ERR_PARAM);
    bad = good;
    bad.bytes++;
    assert_int_equal(mpath_schedule_accept(schedule, duty, &bad), MPATH_ERR_PARAM);
    bad       = good;
    bad.bytes = 0;
    assert_int_equal(mpath_schedule_accept(schedule, duty, &bad), MPATH_ERR_PARAM);
    bad = good;
    bad.hop++;
    assert_int_equal(mpath_schedule_accept(schedule, duty, &bad), MPATH_ERR_PARAM);
    assert_int_equal(mpath_schedule_accept(schedule, duty, &good), MPATH_OK);
    assert_int_equal(duty->arrived_chunks, 1);

    mpath_schedule_reset(schedule);
    assert_int_equal(duty->arrived_chunks, 0);
    assert_int_equal(mpath_schedule_accept(schedule, duty, &good), MPATH_OK);
    assert_null(mpath_schedule_find(schedule, (uint32_t)f.num_flows));
    fixture_end(&f);
}

/* Flows of an outlet advance together: at no time is one more than a chunk ahead of its share. */
static void test_fair(void **state)
{
    fixture_t f;

    (void)state;
    fixture_make(&f, MPATH_REACH_AFFINE);
    for (int rank = 0; rank < RANKS; rank++) {
        mpath_schedule_t *schedule = f.schedules[rank];

        for (size_t i = 0; i < schedule->num_outlets; i++) {
            const mpath_outlet_t *outlet = &schedule->outlets[i];
            double all = 0, handed = 0;
            mpath_duty_t *duty;

            for (uint32_t k = 0; k < outlet->num_own; k++) {
                all += schedule->duties[schedule->own[outlet->own + k]].num_chunks;
            }
            while ((duty = mpath_schedule_next_own(schedule, outlet, 0)) != NULL) {
                duty->handed_chunks++;
                handed++;
                assert_true(duty->handed_chunks <= duty->num_chunks * handed / all + 1);
            }
            assert_true(handed == all);
        }
    }
    fixture_end(&f);
}

/*
 * An even exchange: the next node's ranks come first, and on every node the one that stands there as the rank does on
 * its own. So the turn of no rank's rail is at the same time at the same destination as another's.
 */
static void check_turns(int nodes, int on_node)
{
    enum { MOST = 16 };
    uint64_t demand[MOST * MOST];
    mpath_topo_t *topo = grid_topo(nodes, on_node, on_node, MPATH_REACH_ALL);
    uint32_t even[MOST];
    const mpath_chunk_limits_t even_limits = {
        .chunk_bytes = 65536, .rail_bytes = 32768, .last_slot_bytes = even, .relay_slot_bytes = even};
    int all = nodes * on_node;
    mpath_plan_t *plan;

    assert_true(all <= MOST);
    for (int i = 0; i < MOST; i++) {
        even[i] = 65536;
    }
    for (int i = 0; i < all * all; i++) {
        demand[i] = 100000;
    }
    assert_int_equal(mpath_plan_create(topo, demand, NULL, &plan), MPATH_OK);
    for (int rank = 0; rank < all; rank++) {
        mpath_schedule_t *schedule;
        int turn = 0;

        assert_int_equal(mpath_schedule_create(topo, rank, plan, &even_limits, &schedule), MPATH_OK);
        for (size_t i = 0; i < schedule->num_outlets; i++) {
            if (schedule->outlets[i].kind == MPATH_OUTLET_RAIL) {
                int node = (rank / on_node + 1 + turn / on_node) % nodes;

                assert_int_equal(schedule->outlets[i].rank, node * on_node + (rank + turn) % on_node);
                turn++;
            }
        }
        assert_int_equal(turn, all - on_node);
        mpath_schedule_destroy(schedule);
    }
    mpath_plan_destroy(plan);
    mpath_topo_destroy(topo);
}

static void test_turns(void **state)
{
    (void)state;
    check_turns(4, 4);
    check_turns(3, 4);
    check_turns(3, 3);
    check_turns(2, 5);
}

/* Where a rail is between GPUs, the first and the last chunk are short; chunks that are cut otherwise are refused. */
static int check_cut(mpath_schedule_t *schedule, mpath_duty_t *duty)
{
    uint64_t covered = 0, offset;
    uint32_t bytes, last = 0;

    for (uint32_t k = 0; k < duty->num_chunks; k++) {
        mpath_chunk_t chunk = {.flow = duty->flow, .hop = (uint32_t)duty->hop_in};

        mpath_duty_chunk(duty, k, &offset, &bytes);
        assert_true((offset == duty->offset + covered) && (bytes > 0) && (bytes <= duty->chunk_bytes));
        assert_int_equal(mpath_duty_index(duty, offset), k);
        assert_int_equal(mpath_duty_index(duty, offset + bytes - 1), k);
        covered += bytes;
        last = bytes;
        if (duty->hop_in != MPATH_DUTY_NO_HOP) {
            chunk.offset = offset + 64;
            chunk.bytes  = bytes;
            assert_int_equal(mpath_schedule_accept(schedule, duty, &chunk), MPATH_ERR_PARAM);
            chunk.offset = offset;
            assert_int_equal(mpath_schedule_accept(schedule, duty, &chunk), MPATH_OK);
        }
    }
    assert_true(covered == duty->bytes);
    mpath_duty_chunk(duty, 0, &offset, &bytes);
    assert_true((duty->cut == 0) || ((bytes <= duty->chunk_bytes * 3ull / 4) && (bytes >= duty->chunk_bytes / 4) &&
                                     (bytes >= last) && (bytes - last <= 128)));
    return duty->cut > 0;
}

/* On GPUs: what has relays ahead begins before what has not, among outlets and in each of them; and the chunks. */
static void test_far_first(void **state)
{
    const mpath_chunk_limits_t device = {.chunk_bytes = 1 << 20, .rail_bytes = UINT32_MAX, .device_ns = 50000};
    uint64_t demand[RANKS * RANKS];
    mpath_topo_t *topo;
    mpath_plan_t *plan;
    cluster_t cluster;
    int mixed = 0, cut = 0;

    (void)state;
    for (int i = 0; i < RANKS * RANKS; i++) {
        demand[i] = (i % (RANKS + 1) == 0) ? 0 : (i % RANKS == 0) ? 32000000 : 5000000;
    }
    cluster_init_gpus(&cluster, 2, RANKS / 2, MPATH_GPU_LINK_MESH, 0);
    topo = cluster_build(&cluster);
    assert_int_equal(mpath_plan_create(topo, demand, NULL, &plan), MPATH_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        mpath_schedule_t *schedule;

        assert_int_equal(mpath_schedule_create(topo, rank, plan, &device, &schedule), MPATH_OK);
        for (size_t i = 0; i < schedule->num_outlets; i++) {
            mpath_duty_t *duty;
            int ahead = -1;

            assert_true((i == 0) || (schedule->outlets[i - 1].kind <= schedule->outlets[i].kind));
            while ((duty = mpath_schedule_next_own(schedule, &schedule->outlets[i], INT8_MAX)) != NULL) {
                duty->handed_chunks++;
                assert_true((ahead < 0) || (duty->ahead <= ahead));
                mixed += (ahead > duty->ahead) ? 1 : 0;
                ahead = duty->ahead;
            }
        }
        for (size_t i = 0; i < schedule->num_duties; i++) {
            cut += check_cut(schedule, &schedule->duties[i]);
        }
        mpath_schedule_destroy(schedule);
    }
    assert_true((mixed > 0) && (cut > 0));
    mpath_plan_destroy(plan);
    mpath_topo_destroy(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_carries_all), cmocka_unit_test(test_carries_affine), cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_fair),        cmocka_unit_test(test_turns),          cmocka_unit_test(test_far_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
