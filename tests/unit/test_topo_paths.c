/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths of topologies: every kind, in every access mode, with NICs that are missing, down or shared. */
#include "topo/topo.h"
#include "unit/capture.h"
#include "unit/topo_support.h"

#include <stdio.h>

/* What holds for every path of every topology. */
static void check_path(const mpath_topo_t *topo, const mpath_path_t *path, int source, int destination)
{
    int i, r = 0, node_from, node_to;
    mpath_resource_t resource;
    uint32_t latency = 0;
    const mpath_hop_t *hop;

    assert_int_equal(path->num_relays, path->num_hops - 1);
    assert_int_equal(path->hops[0].from, source);
    assert_int_equal(path->hops[path->num_hops - 1].to, destination);
    for (i = 0; i < path->num_hops; i++) {
        hop = &path->hops[i];
        assert_true((i == 0) || (path->hops[i - 1].to == hop->from));
        assert_int_not_equal(hop->from, hop->to);
        node_from = mpath_topo_place(topo, hop->from)->node;
        node_to   = mpath_topo_place(topo, hop->to)->node;
        if (hop->lane == MPATH_LANE_SHM) {
            assert_int_equal(node_from, node_to);
            assert_int_equal(hop->nic_from, -1);
            resource = mpath_topo_resource(topo, (int)path->resources[r++]);
            assert_int_equal(resource.kind, MPATH_RESOURCE_HOST_MEMORY);
            assert_int_equal(resource.node, node_from);
            latency += resource.latency_ns;
            continue;
        }
        assert_int_equal(hop->lane, MPATH_LANE_RAIL);
        assert_int_not_equal(node_from, node_to);
        assert_true(mpath_topo_machine(topo, node_from)->nics[hop->nic_from].up);
        assert_true(mpath_topo_machine(topo, node_to)->nics[hop->nic_to].up);
        if (mpath_topo_params(topo)->access == MPATH_REACH_AFFINE) {
            assert_int_equal(mpath_topo_place(topo, hop->from)->nic, hop->nic_from);
            assert_int_equal(mpath_topo_place(topo, hop->to)->nic, hop->nic_to);
        }
        assert_int_equal(path->resources[r],
                         mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_TX, node_from, hop->nic_from));
        latency += mpath_topo_resource(topo, (int)path->resources[r++]).latency_ns;
        assert_int_equal(path->resources[r],
                         mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_RX, node_to, hop->nic_to));
        latency += mpath_topo_resource(topo, (int)path->resources[r++]).latency_ns;
    }
    assert_int_equal(path->num_resources, r);
    assert_int_equal(path->latency_ns, latency);
    assert_true(r <= MPATH_PATH_MAX_RESOURCES);
}

/* Nodes are apart where all of their ranks are, and are counted so. */
static void check_apart(const mpath_topo_t *topo)
{
    int ranks = mpath_topo_num_ranks(topo), nodes = mpath_topo_num_nodes(topo);
    size_t apart = 0;

    for (int from = 0; from < nodes; from++) {
        for (int to = 0; to < nodes; to++) {
            size_t without = 0, all = 0;

            for (int i = 0; i < ranks * ranks; i++) {
                if (mpath_topo_place(topo, i / ranks)->node == from && mpath_topo_place(topo, i % ranks)->node == to) {
                    all++;
                    without += i / ranks != i % ranks && mpath_topo_num_paths(topo, i / ranks, i % ranks) == 0;
                }
            }
            if (all == 0) {
                return; /* nodes have ranks, or there is nothing to compare */
            }
            assert_true(without == 0 || without == all);
            apart += without > 0;
        }
    }
    assert_int_equal(mpath_topo_num_apart(topo), apart);
}

/* Checks every path of every pair, and that a pair's paths differ in their NICs. */
static void check_all_paths(const mpath_topo_t *topo)
{
    int s, d, k, j, count, ranks = mpath_topo_num_ranks(topo);
    int16_t seen[512];
    mpath_path_t path;

    for (s = 0; s < ranks; s++) {
        for (d = 0; d < ranks; d++) {
            count = mpath_topo_num_paths(topo, s, d);
            assert_true((count >= 0) && (count < 512));
            assert_true((s != d) || (count == 0));
            for (k = 0; k < count; k++) {
                mpath_topo_path(topo, s, d, k, &path);
                check_path(topo, &path, s, d);
                seen[k] = -1;
                for (j = 0; j < path.num_hops; j++) {
                    if (path.hops[j].lane == MPATH_LANE_RAIL) {
                        seen[k] = (int16_t)(path.hops[j].nic_from * 256 + path.hops[j].nic_to);
                    }
                }
                for (j = 0; j < k; j++) {
                    assert_int_not_equal(seen[j], seen[k]);
                }
            }
        }
    }
    check_apart(topo);
}

static void test_same_node(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_of_nics(&c, 2, 4, MPATH_REACH_AFFINE, 0);
    topo = cluster_build(&c);
    topo_check_text(topo, 0, 3, "0 -shm-> 3\n");
    topo_check_text(topo, 6, 5, "6 -shm-> 5\n");
    topo_check_text(topo, 2, 2, "");
    mpath_topo_destroy(topo);
}

/* A path that does not fit is cut where the room ends. */
static void test_cut_text(void **state)
{
    char whole[128], text[128];
    mpath_topo_t *topo;
    mpath_path_t path;
    cluster_t c;

    (void)state;
    cluster_of_nics(&c, 2, 4, MPATH_REACH_AFFINE, 0);
    topo = cluster_build(&c);
    mpath_topo_path(topo, 0, 5, 1, &path);
    assert_true(path.num_hops > 1);
    mpath_topo_path_format(topo, &path, whole, sizeof(whole));
    for (size_t size = 1; size < strlen(whole) + 4; size++) {
        memset(text, '#', sizeof(text));
        mpath_topo_path_format(topo, &path, text, size);
        assert_int_equal(text[size], '#');
        assert_int_equal(strlen(text), (size <= strlen(whole)) ? size - 1 : strlen(whole));
        assert_int_equal(strncmp(text, whole, strlen(text)), 0);
    }
    mpath_topo_destroy(topo);
}

static void test_all(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_of_nics(&c, 2, 4, MPATH_REACH_ALL, 0);
    topo = cluster_build(&c);
    assert_true(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
    check_all_paths(topo);
    topo_check_text(topo, 0, 5, "0 -rail0-> 5\n0 -rail1-> 5\n0 -rail2-> 5\n0 -rail3-> 5\n");
    topo_check_text(topo, 6, 1, "6 -rail2-> 1\n6 -rail0-> 1\n6 -rail1-> 1\n6 -rail3-> 1\n");
    mpath_topo_destroy(topo);
    /* A spine adds nothing where all rails match. */
    c.params.fabric = MPATH_FABRIC_SPINE;
    topo            = cluster_build(&c);
    topo_check_text(topo, 6, 1, "6 -rail2-> 1\n6 -rail0-> 1\n6 -rail1-> 1\n6 -rail3-> 1\n");
    mpath_topo_destroy(topo);
    /* Ranks without a NIC spread over the rails. */
    c.places[1].nic = c.places[5].nic = -1;
    topo                              = cluster_build(&c);
    check_all_paths(topo);
    topo_check_text(topo, 1, 5, "1 -rail1-> 5\n1 -rail0-> 5\n1 -rail2-> 5\n1 -rail3-> 5\n");
    mpath_topo_destroy(topo);
}

static void test_affine(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_of_nics(&c, 2, 4, MPATH_REACH_AFFINE, 0);
    topo = cluster_build(&c);
    assert_true(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
    check_all_paths(topo);
    /* No relay on the pair's own rail, two on any other. */
    topo_check_text(topo, 1, 5,
                    "1 -rail1-> 5\n"
                    "1 -shm-> 0 -rail0-> 4 -shm-> 5\n"
                    "1 -shm-> 2 -rail2-> 6 -shm-> 5\n"
                    "1 -shm-> 3 -rail3-> 7 -shm-> 5\n");
    /* One relay on the source's and on the destination's rail. */
    topo_check_text(topo, 1, 6,
                    "1 -rail1-> 5 -shm-> 6\n"
                    "1 -shm-> 0 -rail0-> 4 -shm-> 6\n"
                    "1 -shm-> 2 -rail2-> 6\n"
                    "1 -shm-> 3 -rail3-> 7 -shm-> 6\n");
    mpath_topo_destroy(topo);
}

static void test_affine_spine(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_of_nics(&c, 2, 3, MPATH_REACH_AFFINE, MPATH_FABRIC_SPINE);
    topo = cluster_build(&c);
    check_all_paths(topo);
    topo_check_text(topo, 1, 4,
                    "1 -rail1-> 4\n"
                    "1 -shm-> 0 -rail0-> 3 -shm-> 4\n"
                    "1 -shm-> 2 -rail2-> 5 -shm-> 4\n");
    topo_check_text(topo, 1, 5,
                    "1 -rail1-2-> 5\n"
                    "1 -shm-> 0 -rail0-> 3 -shm-> 5\n"
                    "1 -rail1-> 4 -shm-> 5\n"
                    "1 -shm-> 2 -rail2-> 5\n");
    mpath_topo_destroy(topo);
}

/* A communicator of which no two ranks share a rail across the nodes. */
static void test_no_rail_mates(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_of_nics(&c, 2, 4, MPATH_REACH_AFFINE, 0);
    c.num_ranks = 4;
    c.places[0] = (mpath_place_t){.node = 0, .nic = 0, .gpu = -1};
    c.places[1] = (mpath_place_t){.node = 0, .nic = 1, .gpu = -1};
    c.places[2] = (mpath_place_t){.node = 1, .nic = 2, .gpu = -1};
    c.places[3] = (mpath_place_t){.node = 1, .nic = 3, .gpu = -1};
    topo        = cluster_build(&c);
    assert_false(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
    topo_check_text(topo, 0, 1, "0 -shm-> 1\n");
    topo_check_text(topo, 0, 2, "");
    mpath_topo_destroy(topo);

    c.params.fabric = MPATH_FABRIC_SPINE;
    topo            = cluster_build(&c);
    check_all_paths(topo);
    topo_check_text(topo, 1, 2,
                    "1 -rail1-2-> 2\n"
                    "1 -shm-> 0 -rail0-2-> 2\n"
                    "1 -shm-> 0 -rail0-3-> 3 -shm-> 2\n"
                    "1 -rail1-3-> 3 -shm-> 2\n");
    mpath_topo_destroy(topo);

    /* With access to all NICs no mates are needed. */
    c.params = (mpath_topo_params_t){.access = MPATH_REACH_ALL, .fabric = 0};
    topo     = cluster_build(&c);
    check_all_paths(topo);
    topo_check_text(topo, 0, 2, "0 -rail0-> 2\n0 -rail1-> 2\n0 -rail2-> 2\n0 -rail3-> 2\n");
    mpath_topo_destroy(topo);

    /* One mate, and a source whose own rail does not reach: the rail of the destination is the static route. */
    c.params    = (mpath_topo_params_t){.access = MPATH_REACH_AFFINE, .fabric = 0};
    c.places[1] = (mpath_place_t){.node = 0, .nic = 2, .gpu = -1};
    topo        = cluster_build(&c);
    check_all_paths(topo);
    topo_check_text(topo, 0, 2, "0 -shm-> 1 -rail2-> 2\n");
    topo_check_text(topo, 0, 3, "0 -shm-> 1 -rail2-> 2 -shm-> 3\n");
    mpath_topo_destroy(topo);
}

static void test_unequal_nics(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_of_nics(&c, 2, 4, MPATH_REACH_ALL, 0);
    c.machines[1].num_nics = 2;
    c.places[6].nic = c.places[7].nic = 0;
    topo                              = cluster_build(&c);
    assert_false(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
    check_all_paths(topo);
    topo_check_text(topo, 3, 5, "3 -rail1-> 5\n3 -rail0-> 5\n");
    mpath_topo_destroy(topo);

    c.params.fabric = MPATH_FABRIC_SPINE;
    topo            = cluster_build(&c);
    check_all_paths(topo);
    topo_check_text(topo, 3, 5,
                    "3 -rail1-> 5\n3 -rail0-> 5\n3 -rail2-0-> 5\n3 -rail2-1-> 5\n3 -rail3-0-> 5\n3 -rail3-1-> 5\n");
    mpath_topo_destroy(topo);
}

static void test_nic_down(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_of_nics(&c, 2, 3, MPATH_REACH_AFFINE, 0);
    c.machines[1].nics[1].up = 0;
    topo                     = cluster_build(&c);
    assert_false(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
    check_all_paths(topo);
    topo_check_text(topo, 1, 4,
                    "1 -shm-> 2 -rail2-> 5 -shm-> 4\n"
                    "1 -shm-> 0 -rail0-> 3 -shm-> 4\n");
    topo_check_text(topo, 0, 4,
                    "0 -rail0-> 3 -shm-> 4\n"
                    "0 -shm-> 2 -rail2-> 5 -shm-> 4\n");
    mpath_topo_destroy(topo);
    /* Down on both nodes: the other two are alike again. */
    c.machines[0].nics[1].up = 0;
    topo                     = cluster_build(&c);
    assert_true(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
    mpath_topo_destroy(topo);
    c.machines[0].nics[2].rate_bps = NIC_BPS / 4;
    topo                           = cluster_build(&c);
    assert_false(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
    mpath_topo_destroy(topo);
}

/* A topology whose NIC is taken out is the one that was built without it, and comes back whole. */
static void test_set_nic(void **state)
{
    const mpath_access_mode_t modes[] = {MPATH_REACH_ALL, MPATH_REACH_AFFINE};
    mpath_topo_t *topo, *built;
    uint64_t whole;
    cluster_t c;

    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        cluster_of_nics(&c, 2, 3, modes[mode], 0);
        topo                     = cluster_build(&c);
        whole                    = mpath_topo_signature(topo);
        c.machines[1].nics[1].up = 0;
        built                    = cluster_build(&c);
        assert_int_equal(mpath_topo_set_nic(topo, 1, 1, 0), MPATH_OK);
        assert_true(mpath_topo_signature(topo) == mpath_topo_signature(built));
        assert_true(mpath_topo_signature(topo) != whole);
        assert_false(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
        check_all_paths(topo);
        for (int source = 0; source < 6; source++) {
            for (int destination = 0; destination < 6; destination++) {
                assert_int_equal(mpath_topo_num_paths(topo, source, destination),
                                 mpath_topo_num_paths(built, source, destination));
            }
        }
        assert_int_equal(mpath_topo_set_nic(topo, 1, 1, 1), MPATH_OK);
        assert_true(mpath_topo_signature(topo) == whole);
        assert_true(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
        mpath_topo_destroy(built);
        mpath_topo_destroy(topo);
    }
}

/* Nodes beside each other, and with others between, that share no rail; with a spine only one without a NIC is apart. */
static void test_apart(void **state)
{
    const uint8_t rails[][4] = {{1, 1, 2, 1}, {3, 1, 2, 6}, {1, 0, 7, 1}};
    cluster_t c;

    (void)state;
    for (int kind = 0; kind < 12; kind++) {
        const mpath_access_mode_t access = kind / 3 % 2 == 0 ? MPATH_REACH_ALL : MPATH_REACH_AFFINE;
        mpath_topo_t *topo;

        cluster_of_nics(&c, 4, 3, access, kind / 6);
        topo = cluster_build(&c);
        assert_int_equal(mpath_topo_num_apart(topo), 0);
        for (int i = 0; i < 12; i++) {
            assert_int_equal(mpath_topo_set_nic(topo, i / 3, i % 3, (rails[kind % 3][i / 3] >> i % 3) & 1), MPATH_OK);
        }
        assert_true(kind >= 6 && kind % 3 != 2 ? mpath_topo_num_apart(topo) == 0 : mpath_topo_num_apart(topo) > 0);
        check_all_paths(topo);
        mpath_topo_destroy(topo);
    }
}

/* What equal nodes share stays theirs when one of them changes, the first or another one; each has its own name. */
static void test_shared(void **state)
{
    mpath_topo_t *topo, *built;
    mpath_machine_t copy;
    char name[16];
    cluster_t c;

    (void)state;
    for (int changed = 0; changed < 4; changed++) {
        cluster_of_nics(&c, 4, 3, MPATH_REACH_ALL, 0);
        c.machines[2].nics[0].rate_bps = NIC_BPS / 2;
        topo                           = cluster_build(&c);
        assert_ptr_equal(mpath_topo_machine(topo, 0), mpath_topo_machine(topo, 1));
        assert_ptr_equal(mpath_topo_machine(topo, 0), mpath_topo_machine(topo, 3));
        assert_ptr_not_equal(mpath_topo_machine(topo, 0), mpath_topo_machine(topo, 2));
        for (int up = 0; up < 2; up++) {
            c.machines[changed].nics[1].up = (uint8_t)up;
            built                          = cluster_build(&c);
            assert_int_equal(mpath_topo_set_nic(topo, changed, 1, up), MPATH_OK);
            assert_true(mpath_topo_signature(topo) == mpath_topo_signature(built));
            check_all_paths(topo);
            for (int node = 0; node < 4; node++) {
                snprintf(name, sizeof(name), "host%d", node);
                assert_string_equal(mpath_topo_host(topo, node), name);
                mpath_topo_copy_machine(topo, node, &copy);
                assert_string_equal(copy.host, name);
                assert_int_equal(copy.nics[1].up, node != changed || up);
                assert_true(copy.nics[0].rate_bps == (node == 2 ? NIC_BPS / 2 : NIC_BPS));
                assert_int_equal(mpath_topo_num_paths(topo, node * 3, (node + 1) % 4 * 3),
                                 mpath_topo_num_paths(built, node * 3, (node + 1) % 4 * 3));
            }
            mpath_topo_destroy(built);
        }
        mpath_topo_destroy(topo);
    }
}

/* What is computed of a topology, as a user keeps it. */
typedef struct computed {
    mpath_topo_extra_t extra;
    int released;
} computed_t;

static void computed_release(mpath_topo_extra_t *extra)
{
    ((computed_t *)extra)->released++;
}

/* The first one is kept, until the topology changes or ends. */
static void test_keep(void **state)
{
    computed_t first = {.extra.release = computed_release}, second = first;
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_of_nics(&c, 2, 3, MPATH_REACH_ALL, 0);
    topo = cluster_build(&c);
    assert_null(mpath_topo_extra(topo));
    assert_ptr_equal(mpath_topo_keep(topo, &first.extra), &first.extra);
    assert_ptr_equal(mpath_topo_keep(topo, &second.extra), &first.extra);
    assert_ptr_equal(mpath_topo_extra(topo), &first.extra);
    assert_int_equal(first.released, 0);
    assert_int_equal(second.released, 1);
    assert_int_equal(mpath_topo_set_nic(topo, 1, 1, 0), MPATH_OK);
    assert_int_equal(first.released, 1);
    assert_null(mpath_topo_extra(topo));
    assert_ptr_equal(mpath_topo_keep(topo, &second.extra), &second.extra);
    mpath_topo_destroy(topo);
    assert_int_equal(second.released, 2);
}

/* Several ranks beside a NIC share the work of relaying. */
static void test_shared_nic(void **state)
{
    int relays[MAX_TEST_RANKS] = {0}, s, d, k, h;
    mpath_topo_t *topo;
    mpath_path_t path;
    cluster_t c;

    (void)state;
    cluster_of_nics(&c, 2, 8, MPATH_REACH_AFFINE, 0);
    c.machines[0].num_nics = c.machines[1].num_nics = 4;
    for (s = 0; s < 16; s++) {
        c.places[s].nic = s % 4;
    }
    topo = cluster_build(&c);
    check_all_paths(topo);
    for (s = 0; s < 8; s++) {
        for (d = 8; d < 16; d++) {
            for (k = 0; k < mpath_topo_num_paths(topo, s, d); k++) {
                mpath_topo_path(topo, s, d, k, &path);
                for (h = 0; h + 1 < path.num_hops; h++) {
                    relays[path.hops[h].to]++;
                }
            }
        }
    }
    for (s = 1; s < 16; s++) {
        assert_int_equal(relays[s], relays[0]);
    }
    assert_int_equal(relays[0], 24);
    mpath_topo_destroy(topo);
}

/* Random topologies: the rules of check_path hold for all of them. */
static void test_random(void **state)
{
    mpath_access_mode_t access;
    uint64_t seed = 12345;
    mpath_topo_t *topo;
    int i, n, k, r;
    uint32_t fabric;
    cluster_t c;

    (void)state;
    for (i = 0; i < 400; i++) {
        access = topo_draw(&seed, 2) ? MPATH_REACH_ALL : MPATH_REACH_AFFINE;
        fabric = topo_draw(&seed, 2) ? MPATH_FABRIC_SPINE : 0;
        cluster_of_nics(&c, 1 + topo_draw(&seed, MAX_TEST_NODES), 4, access, fabric);
        for (n = 0; n < c.num_nodes; n++) {
            c.machines[n].num_nics = topo_draw(&seed, 5);
            for (k = 0; k < c.machines[n].num_nics; k++) {
                c.machines[n].nics[k].up   = (uint8_t)(topo_draw(&seed, 5) > 0);
                c.machines[n].nics[k].rail = (int16_t)((k * 3 + (n & 1)) % 7);
            }
        }
        c.num_ranks = topo_draw(&seed, 17);
        for (r = 0; r < c.num_ranks; r++) {
            c.places[r].node = topo_draw(&seed, c.num_nodes);
            c.places[r].nic  = topo_draw(&seed, c.machines[c.places[r].node].num_nics + 1) - 1;
        }
        topo = cluster_build(&c);
        check_all_paths(topo);
        mpath_topo_destroy(topo);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_node),    cmocka_unit_test(test_cut_text),     cmocka_unit_test(test_all),
        cmocka_unit_test(test_affine),       cmocka_unit_test(test_affine_spine), cmocka_unit_test(test_no_rail_mates),
        cmocka_unit_test(test_unequal_nics), cmocka_unit_test(test_nic_down),     cmocka_unit_test(test_set_nic),
        cmocka_unit_test(test_apart),        cmocka_unit_test(test_keep),         cmocka_unit_test(test_shared),
        cmocka_unit_test(test_shared_nic),   cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
