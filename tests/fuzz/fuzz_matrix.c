/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes the reader of matrices, in all their forms, and the planner behind it: what is read is planned on a small topology,
 * whose kind the first byte chooses, and the pieces must cover the demand. The same text is read as a table of loads.
 */
#include "plan/matrix.h"
#include "plan/plan.h"
#include "util/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 24

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void no_log(mpath_log_level_t level, const char *line)
{
    (void)level;
    (void)line;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    mpath_log_set_sink(no_log);
    return 0;
}

/* Nodes of 4 ranks: the last may be smaller. Bits of `kind`: affine, spine, a slow NIC, a NIC down, scarce memory,
 * three NICs. */
static mpath_topo_t *make_topo(int num_ranks, uint8_t kind)
{
    mpath_topo_params_t params = {.access = kind & 1 ? MPATH_REACH_AFFINE : MPATH_REACH_ALL,
                                  .fabric = kind & 2 ? MPATH_FABRIC_SPINE : 0};
    mpath_machine_t machines[MAX_RANKS / 4 + 1];
    mpath_place_t places[MAX_RANKS];
    int num_nodes = (num_ranks + 3) / 4, num_nics = kind & 32 ? 3 : 4, node, nic, rank;
    mpath_topo_t *topo;

    memset(machines, 0, sizeof(machines));
    for (node = 0; node < num_nodes; node++) {
        machines[node].num_nics        = num_nics;
        machines[node].num_numa        = 1;
        machines[node].host_memory_bps = kind & 16 ? 1000 : 1000000;
        for (nic = 0; nic < num_nics; nic++) {
            machines[node].nics[nic].rail     = (int16_t)nic;
            machines[node].nics[nic].rate_bps = kind & 4 && node == 0 && nic == 1 ? 1 : 1000;
            machines[node].nics[nic].up       = !(kind & 8 && node == 0 && nic == 0);
        }
    }
    for (rank = 0; rank < num_ranks; rank++) {
        places[rank].node = rank / 4;
        places[rank].nic  = rank % num_nics;
        places[rank].gpu  = -1;
    }
    return mpath_topo_create(machines, num_nodes, places, num_ranks, &params, &topo) == MPATH_OK ? topo : NULL;
}

static void check_plan(const mpath_plan_t *plan, const uint64_t *demand, int num_ranks)
{
    const mpath_flow_t *flows;
    size_t num_flows, i;
    uint64_t *left = malloc((size_t)num_ranks * (size_t)num_ranks * sizeof(*left));
    int r;

    memcpy(left, demand, (size_t)num_ranks * (size_t)num_ranks * sizeof(*left));
    flows = mpath_plan_flows(plan, &num_flows);
    for (i = 0; i < num_flows; i++) {
        uint64_t *cell = &left[flows[i].source * num_ranks + flows[i].destination];

        if (flows[i].bytes == 0 || flows[i].bytes > *cell) {
            abort();
        }
        *cell -= flows[i].bytes;
    }
    for (i = 0, r = num_ranks; i < (size_t)num_ranks * (size_t)num_ranks; i++) {
        if (left[i] != 0 && i % (size_t)(r + 1) != 0) { /* not on the diagonal */
            abort();
        }
    }
    if (mpath_plan_bound_ns(plan) > mpath_plan_z_ns(plan)) {
        abort();
    }
    free(left);
}

/* A table's values are in the range that it promises, and no row is all zero. */
static void read_table(const char *text, size_t length)
{
    mpath_table_t table;

    if (mpath_table_parse("input", text, length, &table) != MPATH_OK) {
        return;
    }
    for (size_t row = 0; row < table.rows; row++) {
        uint64_t most = 0;

        for (size_t i = 0; i < table.columns; i++) {
            uint64_t value = table.values[row * table.columns + i];

            most = value > most ? value : most;
        }
        if (most == 0 || most >> 40 != 0) {
            abort();
        }
    }
    mpath_table_release(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mpath_matrix_format_t format = {.share_bytes = 1000000};
    mpath_plan_params_t params;
    uint64_t *demand;
    mpath_topo_t *topo;
    mpath_plan_t *plan;
    int num_ranks, has_shares;

    if (size < 2) {
        return 0;
    }
    read_table((const char *)data + 2, size - 2);
    format.step  = data[1] >> 4;
    format.scale = data[1] & 8 ? "0.75k" : NULL;
    if (mpath_matrix_parse("input", (const char *)data + 2, size - 2, &format, &num_ranks, &has_shares, &demand) !=
        MPATH_OK) {
        return 0;
    }
    topo = num_ranks <= MAX_RANKS ? make_topo(num_ranks, data[0]) : NULL;
    if (topo != NULL) {
        mpath_plan_params_init(&params);
        params.policy             = data[0] & 64 ? (mpath_policy_t)(data[1] % 4) : MPATH_POLICY_MPATH;
        params.min_fragment_bytes = data[0] & 128 ? 1 : 32 * 1024;
        if (mpath_plan_create(topo, demand, &params, &plan) == MPATH_OK) {
            check_plan(plan, demand, num_ranks);
            mpath_plan_destroy(plan);
        }
        mpath_topo_destroy(topo);
    }
    free(demand);
    return 0;
}
