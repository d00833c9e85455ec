/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How vectors are cut: every element is in one segment and one rail's fragment, every segment fits the slots of every
 * node, and all nodes cut alike. The engine is made up: only what the cuts look at is there.
 */
#include "capture.h"
#include "pipeline/pipeline_private.h"

#include <stdlib.h>

#define MOST_NODES 4
#define MOST_ON 6
#define MOST_RANKS (MOST_NODES * MOST_ON)
#define MOST_RAILS 5
#define CASES 200
#define MOST_SEGMENTS 500 /* that are looked at */
#define MOST_SEEN 4096    /* elements of one, place by place */
#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

typedef struct made {
    mpath_share_t share;
    mpath_share_job_t job;
    mpath_share_gpus_t gpus;
    int num_on[MOST_NODES], first_on[MOST_NODES], by_node[MOST_RANKS];
    share_rail_t rails[MOST_RAILS];
    uint64_t blocks[MOST_RANKS], parts[MOST_NODES];
    uint64_t first[SHARE_SLOTS][MOST_NODES], at[SHARE_SLOTS][MOST_NODES + 1];
} made_t;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

static void connect(made_t *made)
{
    mpath_share_t *share = &made->share;
    int rank             = 0;

    share->job           = &made->job;
    share->num_on        = made->num_on;
    share->first_on      = made->first_on;
    share->by_node       = made->by_node;
    share->part_elements = made->parts;
    for (int slot = 0; slot < SHARE_SLOTS; slot++) {
        share->cuts[slot].first = made->first[slot];
        share->cuts[slot].at    = made->at[slot];
    }
    for (int node = 0; node < share->num_nodes; node++) {
        made->first_on[node] = rank;
        rank += made->num_on[node];
    }
    for (int i = 0; i < rank; i++) {
        made->by_node[i] = rank - 1 - i; /* not in the order of ranks */
    }
    made->job.block_elements = made->blocks;
}

static void set_rail(made_t *made, int rail, uint64_t rate_bps, uint32_t weight)
{
    made->rails[rail]                = (share_rail_t){.rate_bps = rate_bps, .weight = weight};
    made->share.rails                = made->rails;
    made->share.cumulative[rail + 1] = made->share.cumulative[rail] + weight;
}

static void draw_case(made_t *made, uint64_t seed)
{
    static const uint64_t element_bytes[] = {1, 2, 4, 8, 16, 12};
    static const unsigned flags[] = {MPATH_SHARE_REDUCE, MPATH_SHARE_GATHER, MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER};
    mpath_share_t *share          = &made->share;
    uint64_t state = seed * 77 + 5, most = UINT64_C(1) << draw(&state, 22);

    memset(made, 0, sizeof(*made));
    share->num_nodes = 1 + (int)draw(&state, MOST_NODES);
    share->num_rails = 1 + (int)draw(&state, MOST_RAILS);
    for (int node = 0; node < share->num_nodes; node++) {
        made->num_on[node] = 1 + (int)draw(&state, MOST_ON);
    }
    for (int rail = 0; rail < share->num_rails; rail++) {
        uint64_t rate_bps = 1000000 + draw(&state, 100000000);

        set_rail(made, rail, rate_bps, (rail == 0) ? SHARE_WEIGHT : (uint32_t)draw(&state, SHARE_WEIGHT + 1));
    }
    made->job.flags         = flags[draw(&state, 3)];
    made->job.element_bytes = element_bytes[draw(&state, 6)];
    made->job.gpus          = (draw(&state, 3) == 0) ? &made->gpus : NULL;
    for (int rank = 0; rank < MOST_RANKS; rank++) {
        made->blocks[rank] = (draw(&state, 5) == 0) ? 0 : draw(&state, most);
    }
    share->rank_bytes  = UINT64_C(512) << draw(&state, 13);
    made->job.in_steps = (made->job.gpus == NULL) && (share->num_nodes > 1) && (draw(&state, 2) == 0);
    connect(made);
}

/* By node: what a slot there has room for. */
static uint64_t slot_bytes(const mpath_share_t *share, int node)
{
    return share->rank_bytes * (uint64_t)share->num_on[node] / SHARE_SLOTS / SHARE_LINE * SHARE_LINE;
}

static uint64_t part_of(const made_t *made, int node)
{
    uint64_t elements = 0;

    for (int i = 0; i < made->num_on[node]; i++) {
        elements += made->blocks[made->by_node[made->first_on[node] + i]];
    }
    return elements;
}

static int is_in_grains(const made_t *made)
{
    return (made->job.gpus != NULL) && (MPATH_SHARE_GRAIN_BYTES % made->job.element_bytes == 0);
}

static void check_fits(const made_t *made, int node)
{
    const mpath_share_t *share = &made->share;
    int reduces                = (made->job.flags & MPATH_SHARE_REDUCE) != 0;
    uint64_t inputs            = (reduces && (made->job.gpus == NULL)) ? (uint64_t)made->num_on[node] : 1;
    uint64_t need              = inputs * share->input_bytes;

    assert_int_equal(share->num_inputs, inputs);
    assert_int_equal(share->grain, is_in_grains(made) ? MPATH_SHARE_GRAIN_BYTES / made->job.element_bytes : 1);
    assert_int_equal(share->input_bytes % SHARE_LINE, 0);
    assert_int_equal(share->other_bytes % SHARE_LINE, 0);
    need += (reduces && !made->job.in_steps) ? (uint64_t)(share->num_nodes - 1) * share->other_bytes : 0;
    assert_true(need <= slot_bytes(share, node));
}

/* Shares of a part are as the weights are, but for the odd elements. */
static void check_fragments(const mpath_share_t *share, const share_cut_t *cut, int node)
{
    uint64_t at = cut->at[node], count = cut->at[node + 1] - at, whole = share->cumulative[share->num_rails];

    for (int rail = 0; rail < share->num_rails; rail++) {
        uint64_t first, elements, due = count * share->rails[rail].weight;

        mpath_share_fragment(share, cut, node, rail, &first, &elements);
        assert_int_equal(first, at);
        assert_true((elements * whole < due + whole) && (due < (elements + 1) * whole));
        assert_true((share->rails[rail].weight > 0) || (elements == 0));
        at += elements;
    }
    assert_int_equal(at, cut->at[node + 1]);
}

/* In steps: every element of a segment has a place of its own, and what comes in a turn does not touch that of another one. */
static void check_steps(made_t *made, const share_cut_t *cut)
{
    static unsigned char seen[MOST_SEEN];
    mpath_share_t *share = &made->share;
    uint64_t all = cut->at[share->num_nodes], element = made->job.element_bytes, end;
    share_range_t from, stay, go;

    if (all <= MOST_SEEN) {
        memset(seen, 0, sizeof(seen));
        for (int node = 0; node < share->num_nodes; node++) {
            uint64_t count = cut->at[node + 1] - cut->at[node];

            for (uint64_t i = 0; i < count; i++) {
                uint64_t together = count - i, spot = mpath_share_spot(share, cut, node, i, &together), next = 1;

                assert_true((spot < all) && (seen[spot] == 0) && (together >= 1));
                assert_true((together == 1) || (mpath_share_spot(share, cut, node, i + 1, &next) == spot + 1));
                seen[spot] = 1;
            }
        }
    }
    for (int rail = 0; rail < share->num_rails; rail++) {
        for (int turn = 0; turn < share->num_turns; turn++) {
            mpath_share_sums(share, cut, rail, turn, &stay);
            mpath_share_others(share, cut, rail, turn, &go);
            mpath_share_sums_from(share, cut, rail, turn, &from);
            assert_int_equal(from.count, stay.count);
            assert_true((stay.data >= share_slot(share, cut->segment)) && (stay.data <= go.data));
            assert_true(go.data + go.count * element <= share_input(share, cut->segment, 0) + share->input_bytes);
            end = (turn + 1 < share->num_turns) ? share->turn_at[turn + 1] : UINT64_MAX;
            end = (end == UINT64_MAX) ? share->slot_bytes : share->num_inputs * share->input_bytes + end;
            assert_true(!(made->job.flags & MPATH_SHARE_REDUCE) ||
                        (from.data + from.count * element <= share_slot(share, cut->segment) + end));
        }
    }
}

static void check_segments(made_t *made)
{
    mpath_share_t *share      = &made->share;
    uint64_t done[MOST_NODES] = {0}, element = made->job.element_bytes;

    for (uint64_t segment = 0; segment < share->num_segments; segment++) {
        const share_cut_t *cut = mpath_share_cut(share, segment);

        assert_int_equal(cut->at[0], 0);
        for (int node = 0; node < share->num_nodes; node++) {
            uint64_t count = cut->at[node + 1] - cut->at[node];

            assert_int_equal(cut->first[node], done[node]);
            assert_int_equal(mpath_share_part_done(share, node, segment), done[node]);
            assert_true(!is_in_grains(made) || (done[node] * element % MPATH_SHARE_GRAIN_BYTES == 0) ||
                        (done[node] == made->parts[node]));
            assert_true((node != share->node) || (count * element <= share->other_bytes));
            done[node] += count;
            check_fragments(share, cut, node);
        }
        assert_true(cut->at[share->num_nodes] * element <= share->input_bytes);
        if (made->job.in_steps) {
            check_steps(made, cut);
        }
        assert_ptr_equal(mpath_share_cut(share, segment), cut); /* not made again */
    }
    for (int node = 0; node < share->num_nodes; node++) {
        assert_int_equal(made->parts[node], part_of(made, node));
        assert_int_equal(done[node], made->parts[node]);
        assert_int_equal(mpath_share_part_done(share, node, share->num_segments), done[node]);
    }
}

static void test_cuts(void **state)
{
    static made_t made;
    int cut = 0, declined = 0, in_steps = 0;

    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        mpath_status_t status = MPATH_OK;
        uint64_t segments     = 0;

        draw_case(&made, seed);
        for (int node = 0; node < made.share.num_nodes; node++) {
            made.share.node       = node;
            made.share.num_local  = made.num_on[node];
            made.share.slot_bytes = slot_bytes(&made.share, node);
            made.share.slots      = calloc(SHARE_SLOTS, made.share.slot_bytes + 1);
            assert_non_null(made.share.slots);
            if (node == 0) {
                status   = mpath_share_cut_job(&made.share);
                segments = made.share.num_segments;
            } else {
                assert_int_equal(mpath_share_cut_job(&made.share), status);
            }
            if (status == MPATH_OK) {
                assert_int_equal(made.share.num_segments, segments);
                check_fits(&made, node);
                if (segments <= MOST_SEGMENTS) {
                    check_segments(&made);
                    in_steps += made.job.in_steps;
                }
            }
            free(made.share.slots);
        }
        free(made.share.fragment_memory);
        cut += status == MPATH_OK;
        declined += status != MPATH_OK;
        assert_true((status == MPATH_OK) || (status == MPATH_DECLINED));
    }
    assert_true((cut > CASES / 2) && (declined > 0) && (in_steps > CASES / 8));
}

/* In steps between many nodes, where messages would take longer than what they hold; whatever has become of the rails. */
static void test_in_steps(void **state)
{
    const unsigned both = MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER;
    mpath_settings_t settings;
    mpath_share_t share = {.settings = &settings, .num_declared = 8, .declared_bps = UINT64_C(400000000000)};

    (void)state;
    mpath_settings_init(&settings);
    for (share.num_nodes = 1; share.num_nodes <= 16; share.num_nodes++) {
        for (uint64_t bytes = 1; bytes < UINT64_C(1) << 40; bytes *= 4) {
            assert_false(mpath_share_in_steps(&share, both, bytes));
        }
    }
    share.num_nodes = 64;
    assert_true(mpath_share_in_steps(&share, both, 64 * KIB));
    assert_true(mpath_share_in_steps(&share, MPATH_SHARE_REDUCE, 64 * MIB));
    assert_true(mpath_share_in_steps(&share, MPATH_SHARE_GATHER, 64 * MIB));
    assert_false(mpath_share_in_steps(&share, both, 64 * 1024 * MIB)); /* what is sent takes longer */
    share.num_rails = 3;
    assert_true(mpath_share_in_steps(&share, both, 64 * KIB));
    share.declared_bps = 0;
    assert_false(mpath_share_in_steps(&share, both, 64 * KIB));
    settings.steps_nodes = 3;
    for (share.num_nodes = 1; share.num_nodes < 6; share.num_nodes++) {
        assert_int_equal(mpath_share_in_steps(&share, both, 64 * KIB), share.num_nodes >= 3);
    }
}

/* Rails know the addresses of near nodes only. */
static void test_steps_go_near(void **state)
{
    mpath_share_job_t job = {.in_steps = 1};
    mpath_share_t share   = {.job = &job};

    (void)state;
    for (share.num_nodes = 2; share.num_nodes <= 1024; share.num_nodes++) {
        share.node = share.num_nodes / 3;
        mpath_share_begin_turns(&share);
        for (int turn = 0; turn < share.num_turns; turn++) {
            for (int phase = 0; phase < SHARE_PHASES; phase++) {
                assert_true(mpath_team_is_near(share.num_nodes, share.node, mpath_share_turn_to(&share, phase, turn)));
            }
        }
    }
}

/* Vectors of bytes that are combined by one rank per node, or one node. */
static unsigned flags = MPATH_SHARE_GATHER;

static uint64_t segments_of(int nodes, int on_each, int rails, uint64_t rail_bps, uint64_t bytes, int on_gpus,
                            uint64_t rank_bytes)
{
    static made_t made;

    memset(&made, 0, sizeof(made));
    made.share.num_nodes  = nodes;
    made.share.num_rails  = rails;
    made.share.num_local  = on_each;
    made.share.rank_bytes = rank_bytes;
    for (int node = 0; node < nodes; node++) {
        made.num_on[node] = on_each;
    }
    for (int rail = 0; rail < rails; rail++) {
        set_rail(&made, rail, rail_bps, SHARE_WEIGHT);
    }
    made.job       = (mpath_share_job_t){.flags = flags, .element_bytes = 1, .gpus = on_gpus ? &made.gpus : NULL};
    made.blocks[0] = bytes;
    connect(&made);
    return (mpath_share_cut_job(&made.share) == MPATH_OK) ? made.share.num_segments : 0;
}

static void test_sizes(void **state)
{
    const uint64_t much = 64 * 1024 * MIB;

    (void)state;
    /* on a node: 16 KiB for each rank at least, eight segments from there on, of 1 GiB at most */
    assert_int_equal(segments_of(1, 4, 1, 1, 0, 0, much), 1);
    assert_int_equal(segments_of(1, 4, 1, 1, 64 * KIB, 0, much), 1);
    assert_int_equal(segments_of(1, 4, 1, 1, 64 * KIB + 1, 0, much), 2);
    assert_int_equal(segments_of(1, 4, 1, 1, 512 * KIB, 0, much), 8);
    assert_int_equal(segments_of(1, 4, 1, 1, 8 * 1024 * MIB, 0, much), 8);
    assert_int_equal(segments_of(1, 4, 1, 1, 9 * 1024 * MIB, 0, much), 9);
    /* over rails: 8 KiB for each of them and of the nodes at least, what they carry in 2 ms at most */
    assert_int_equal(segments_of(2, 1, 2, 100000000, 32 * KIB, 0, much), 1);
    assert_int_equal(segments_of(2, 1, 2, 100000000, 32 * KIB + 1, 0, much), 2);
    assert_int_equal(segments_of(2, 1, 2, 100000000, 6400000, 0, much), 8);
    assert_int_equal(segments_of(2, 1, 2, 100000000, 8000000, 0, much), 10);
    assert_int_equal(segments_of(2, 1, 2, UINT64_C(1) << 40, 9 * 1024 * MIB, 0, much), 9);
    /* a start for each GPU costs as much as 128 KiB */
    assert_int_equal(segments_of(2, 3, 2, 100000000, 384 * KIB, 1, much), 1);
    assert_int_equal(segments_of(2, 3, 2, 100000000, 384 * KIB + 1, 1, much), 2);
    assert_int_equal(segments_of(2, 3, 3, 1000, 384 * KIB + 1, 1, much), 2);
    assert_int_equal(segments_of(4, 1, 5, 100000000, 160 * KIB, 1, much), 1);
    assert_int_equal(segments_of(4, 1, 5, 100000000, 160 * KIB + 1, 1, much), 2);
    /* as many more as fit the slots; an element for each is the end */
    assert_int_equal(segments_of(1, 1, 1, 1, 64 * KIB, 0, 8 * SHARE_SLOTS * KIB), 8);
    assert_int_equal(segments_of(1, 1, 1, 1, 64 * KIB, 0, 8 * SHARE_SLOTS * KIB - 1), 11);
    assert_int_equal(segments_of(1, 1, 1, 1, 100, 0, SHARE_SLOTS * SHARE_LINE), 2);
    assert_int_equal(segments_of(1, 1, 1, 1, 100, 0, SHARE_SLOTS * SHARE_LINE - 1), 0);
    /* inputs of all ranks of a node, and what comes from other nodes; on GPUs one input */
    flags = MPATH_SHARE_REDUCE;
    assert_int_equal(segments_of(1, 3, 1, 1, 48 * KIB, 0, 48 * KIB * SHARE_SLOTS), 1);
    assert_int_equal(segments_of(1, 3, 1, 1, 48 * KIB, 0, 48 * KIB * SHARE_SLOTS - 1), 2);
    assert_int_equal(segments_of(2, 1, 2, 100000000, 16 * KIB, 0, 32 * KIB * SHARE_SLOTS), 1);
    assert_int_equal(segments_of(2, 1, 2, 100000000, 16 * KIB, 0, 32 * KIB * SHARE_SLOTS - 1), 2);
    assert_int_equal(segments_of(2, 2, 2, 100000000, 16 * KIB, 0, 24 * KIB * SHARE_SLOTS), 1);
    assert_int_equal(segments_of(2, 2, 2, 100000000, 16 * KIB, 0, 24 * KIB * SHARE_SLOTS - 1), 2);
    assert_int_equal(segments_of(2, 2, 2, 100000000, 16 * KIB, 1, 16 * KIB * SHARE_SLOTS), 1);
    assert_int_equal(segments_of(2, 2, 2, 100000000, 16 * KIB, 1, 16 * KIB * SHARE_SLOTS - 1), 2);
    flags = MPATH_SHARE_GATHER;
}

static void test_least_local(void **state)
{
    static made_t made;

    (void)state;
    made.share.num_nodes = 3;
    made.num_on[0]       = 4;
    made.num_on[1]       = 2;
    made.num_on[2]       = 3;
    connect(&made);
    assert_int_equal(mpath_share_least_local(&made.share), 2);
    made.num_on[0] = 1;
    assert_int_equal(mpath_share_least_local(&made.share), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_in_steps),
                                       cmocka_unit_test(test_steps_go_near), cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_least_local)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
