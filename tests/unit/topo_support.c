/* SPDX-License-Identifier: BSD-3-Clause */
/* Clusters of the topology tests, and the texts of their paths and resources. */
#include "unit/topo_support.h"
#include "unit/capture.h"

#include <stdio.h>
#include <string.h>

static mpath_status_t cluster_create(const cluster_t *c, mpath_topo_t **topo_p)
{
    if (c->with_gpus) {
        return mpath_topo_create_with_gpus(c->machines, c->gpus, c->num_nodes, c->places, c->num_ranks, &c->params,
                                           topo_p);
    }
    return mpath_topo_create(c->machines, c->num_nodes, c->places, c->num_ranks, &c->params, topo_p);
}

void cluster_of_nics(cluster_t *c, int nodes, int nics, mpath_access_mode_t access, uint32_t fabric)
{
    int n, k;

    memset(c, 0, sizeof(*c));
    c->num_nodes     = nodes;
    c->num_ranks     = nodes * nics;
    c->params.access = access;
    c->params.fabric = fabric;
    for (n = 0; n < nodes; n++) {
        snprintf(c->machines[n].host, sizeof(c->machines[n].host), "host%d", n);
        c->machines[n].num_nics        = nics;
        c->machines[n].num_numa        = 1;
        c->machines[n].host_memory_bps = 8000000000ull;
        for (k = 0; k < nics; k++) {
            snprintf(c->machines[n].nics[k].name, MPATH_NIC_NAME_MAX, "rail%d", k);
            c->machines[n].nics[k].rate_bps = NIC_BPS;
            c->machines[n].nics[k].rail     = (int16_t)k;
            c->machines[n].nics[k].numa     = -1;
            c->machines[n].nics[k].up       = 1;
            c->places[n * nics + k]         = (mpath_place_t){.node = n, .nic = k, .gpu = -1};
        }
    }
}

mpath_topo_t *cluster_build(const cluster_t *c)
{
    mpath_topo_t *topo = NULL;

    assert_int_equal(cluster_create(c, &topo), MPATH_OK);
    assert_non_null(topo);
    return topo;
}

void topo_check_rejected(const cluster_t *c, const char *expected)
{
    mpath_topo_t *topo = NULL;

    capture_start();
    assert_int_equal(cluster_create(c, &topo), MPATH_ERR_PARAM);
    capture_stop();
    assert_null(topo);
    assert_int_equal(capture_count(), 1);
    if (strstr(capture_text(), expected) == NULL) {
        fail_msg("'%s' lacks '%s'", capture_text(), expected);
    }
}

uint64_t topo_signature_of(const cluster_t *c)
{
    mpath_topo_t *topo = cluster_build(c);
    uint64_t signature = mpath_topo_signature(topo);

    mpath_topo_destroy(topo);
    return signature;
}

void topo_check_text(const mpath_topo_t *topo, int source, int destination, const char *expected)
{
    char text[2048] = "", line[160];
    mpath_path_t path;
    int k;

    for (k = 0; k < mpath_topo_num_paths(topo, source, destination); k++) {
        mpath_topo_path(topo, source, destination, k, &path);
        mpath_topo_path_format(topo, &path, line, sizeof(line));
        assert_true(strlen(text) + strlen(line) + 2 < sizeof(text));
        strcat(text, line);
        strcat(text, "\n");
    }
    assert_string_equal(text, expected);
}

void topo_check_resources(const mpath_topo_t *topo, int source, int destination, int index, const char *expected)
{
    char text[1024] = "", name[64];
    mpath_path_t path;
    int i;

    mpath_topo_path(topo, source, destination, index, &path);
    for (i = 0; i < path.num_resources; i++) {
        mpath_topo_resource_name(topo, (int)path.resources[i], name, sizeof(name));
        strcat(text, (i > 0) ? " " : "");
        strcat(text, name);
    }
    assert_string_equal(text, expected);
}

int topo_draw(uint64_t *seed, int limit)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (int)(*seed >> 33) % limit;
}
