/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds the topology and the demand that the planner's programs were asked for. */
#include "tools/plan_input.h"

#include "plan/demand.h"
#include "topo/xml.h"
#include "util/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES 4096
#define MAX_RANKS 16384

void plan_input_init(plan_input_t *input)
{
    memset(input, 0, sizeof(*input));
    input->num_nodes          = 2;
    input->ranks_per_node     = 4;
    input->num_nics           = 4;
    input->rate_bps           = 25000000000ull;
    input->topo_params.access = MPATH_REACH_ALL;
    input->seed               = 1;
    input->bytes              = 64ull << 20;
    input->emulate.scale_ppm  = 1000000;
    input->moe.token_bytes    = 8192; /* 4096 values of 2 bytes */
}

static int parse_scaled(const char *text, uint64_t step, uint64_t *value_p)
{
    unsigned long long value;
    uint64_t factor = 1;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (end == text || errno != 0 || *text == '-') {
        return 0;
    }
    switch (*end) {
    case 'g':
    case 'G':
        factor *= step; /* fall through */
    case 'm':
    case 'M':
        factor *= step; /* fall through */
    case 'k':
    case 'K':
        factor *= step;
        end++;
        break;
    default:
        break;
    }
    if (*end != '\0' || value > (UINT64_MAX >> 2) / factor) {
        return 0;
    }
    *value_p = value * factor;
    return 1;
}

int plan_parse_bytes(const char *text, uint64_t *bytes_p)
{
    return parse_scaled(text, 1024, bytes_p);
}

int plan_parse_rate(const char *text, uint64_t *rate_p)
{
    return parse_scaled(text, 1000, rate_p);
}

int plan_parse_ppm(const char *text, uint32_t *ppm_p)
{
    uint32_t value = 0, unit = 1000000;
    int digits = 0;

    for (; *text >= '0' && *text <= '9' && digits < 3; text++, digits++) {
        value = value * 10 + (uint32_t)(*text - '0');
    }
    value *= unit;
    if (*text == '.') {
        for (text++; *text >= '0' && *text <= '9'; text++, digits++) {
            unit /= 10;
            value += (uint32_t)(*text - '0') * unit;
        }
    }
    if (*text != '\0' || digits == 0) {
        return 0;
    }
    *ppm_p = value;
    return 1;
}

/* A whole number up to `most` and the comma behind it. */
static int parse_field(const char **text, uint64_t most, uint64_t *value_p)
{
    unsigned long long value;
    char *end;

    errno = 0;
    value = strtoull(*text, &end, 10);
    if (**text < '0' || **text > '9' || errno != 0 || *end != ',' || value > most) {
        return 0;
    }
    *text    = end + 1;
    *value_p = value;
    return 1;
}

int plan_parse_moe(const char *text, mpath_moe_t *moe)
{
    uint64_t tokens, topk, experts;
    uint32_t skew_ppm;

    if (!parse_field(&text, UINT32_MAX, &tokens) || !parse_field(&text, UINT32_MAX, &topk) ||
        !parse_field(&text, UINT32_MAX, &experts) || !plan_parse_ppm(text, &skew_ppm)) {
        return 0;
    }
    moe->tokens   = tokens;
    moe->topk     = (uint32_t)topk;
    moe->experts  = (uint32_t)experts;
    moe->skew_ppm = skew_ppm;
    return 1;
}

static void fill_machine(const plan_input_t *input, int node, mpath_machine_t *machine)
{
    int nic;

    memset(machine, 0, sizeof(*machine));
    snprintf(machine->host, sizeof(machine->host), "node%d", node);
    machine->num_nics        = input->num_nics;
    machine->num_numa        = 1;
    machine->host_memory_bps = input->host_memory_bps;
    if (machine->host_memory_bps == 0) {
        machine->host_memory_bps = 4 * input->rate_bps * (uint64_t)input->num_nics;
        if (machine->host_memory_bps > (uint64_t)MPATH_MAX_RATE_BPS) {
            machine->host_memory_bps = (uint64_t)MPATH_MAX_RATE_BPS;
        }
    }
    for (nic = 0; nic < input->num_nics; nic++) {
        snprintf(machine->nics[nic].name, sizeof(machine->nics[nic].name), "rail%d", nic);
        machine->nics[nic].rate_bps = input->rate_bps;
        machine->nics[nic].rail     = (int16_t)nic;
        machine->nics[nic].up       = 1;
    }
}

static mpath_status_t uniform_topo(const plan_input_t *input, mpath_topo_t **topo_p)
{
    int num_ranks = input->num_nodes * input->ranks_per_node, i;
    mpath_machine_t *machines;
    mpath_place_t *places;
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    machines = calloc((size_t)input->num_nodes, sizeof(*machines));
    places   = calloc((size_t)num_ranks, sizeof(*places));
    if (machines != NULL && places != NULL) {
        for (i = 0; i < input->num_nodes; i++) {
            fill_machine(input, i, &machines[i]);
        }
        for (i = 0; i < num_ranks; i++) {
            places[i].node = i / input->ranks_per_node;
            places[i].nic  = i % input->ranks_per_node % input->num_nics;
            places[i].gpu  = -1;
        }
        status = mpath_topo_create(machines, input->num_nodes, places, num_ranks, &input->topo_params, topo_p);
    } else {
        mpath_error("plan: no memory for %d ranks", num_ranks);
    }
    free(machines);
    free(places);
    return status;
}

static mpath_status_t file_topo(const char *path, mpath_topo_t **topo_p)
{
    mpath_topo_file_t file;
    mpath_status_t status;

    status = mpath_topo_file_load(path, &file);
    if (status != MPATH_OK) {
        return status;
    }
    if (file.num_ranks == 0) {
        mpath_error("topology file %s: it has no ranks, so there is nothing to plan", path);
        status = MPATH_ERR_PARAM;
    } else {
        status = mpath_topo_file_build(&file, topo_p);
    }
    mpath_topo_file_release(&file);
    return status;
}

static mpath_status_t preset_topo(const plan_input_t *input, mpath_topo_t **topo_p)
{
    mpath_status_t status;
    mpath_topo_t *topo;

    if (input->num_nodes < 1) {
        mpath_error("plan: %d nodes of preset '%s': at least one is needed", input->num_nodes, input->preset);
        return MPATH_ERR_PARAM;
    }
    status = mpath_topo_preset(input->preset, input->nodes_given ? input->num_nodes : 0, &topo);
    if (status != MPATH_OK) {
        return status;
    }
    if (mpath_topo_num_ranks(topo) > MAX_RANKS) {
        mpath_error("plan: %d nodes of preset '%s' have %d ranks: all ranks together must be 1 to %d", input->num_nodes,
                    input->preset, mpath_topo_num_ranks(topo), MAX_RANKS);
        mpath_topo_destroy(topo);
        return MPATH_ERR_PARAM;
    }
    *topo_p = topo;
    return MPATH_OK;
}

static mpath_status_t make_real_topo(const plan_input_t *input, mpath_topo_t **topo_p)
{
    if (input->topo_path != NULL) {
        return file_topo(input->topo_path, topo_p);
    }
    if (input->preset != NULL) {
        return preset_topo(input, topo_p);
    }
    if (input->num_nodes < 1 || input->num_nodes > MAX_NODES || input->ranks_per_node < 1 ||
        input->ranks_per_node > MAX_RANKS / input->num_nodes || input->num_nics < 1 ||
        input->num_nics > MPATH_MAX_NICS) {
        mpath_error(
            "plan: %d nodes of %d ranks and %d NICs: nodes must be 1 to %d, all ranks together 1 to %d, NICs 1 to %d",
            input->num_nodes, input->ranks_per_node, input->num_nics, MAX_NODES, MAX_RANKS, MPATH_MAX_NICS);
        return MPATH_ERR_PARAM;
    }
    if (input->rate_bps < 1 || input->rate_bps > (uint64_t)MPATH_MAX_RATE_BPS) {
        mpath_error("plan: the rate of a NIC, %llu, must be 1 to %lld bytes/s", (unsigned long long)input->rate_bps,
                    MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    return uniform_topo(input, topo_p);
}

static mpath_status_t make_topo(const plan_input_t *input, mpath_topo_t **topo_p)
{
    mpath_topo_t *topo;
    mpath_status_t status = make_real_topo(input, &topo);

    if ((status != MPATH_OK) || ((input->emulate.mode == MPATH_EMULATED_NO) && (input->emulate.scale_ppm == 1000000))) {
        *topo_p = (status == MPATH_OK) ? topo : *topo_p;
        return status;
    }
    status = plan_emulate(&input->emulate, topo, topo_p);
    mpath_topo_destroy(topo);
    return status;
}

static mpath_status_t file_demand(const char *path, int num_ranks, uint64_t **demand_p)
{
    mpath_status_t status;
    uint64_t *demand;
    int rows;

    status = mpath_demand_load(path, &rows, &demand);
    if (status != MPATH_OK) {
        return status;
    }
    if (rows != num_ranks) {
        mpath_error("matrix %s: %d rows for %d ranks; the matrix is not used", path, rows, num_ranks);
        free(demand);
        return MPATH_ERR_PARAM;
    }
    *demand_p = demand;
    return MPATH_OK;
}

static mpath_status_t make_demand(const plan_input_t *input, int num_ranks, uint64_t **demand_p)
{
    mpath_moe_t moe       = input->moe;
    mpath_status_t status = MPATH_OK;
    uint64_t *demand;

    if (input->matrix_path != NULL) {
        return file_demand(input->matrix_path, num_ranks, demand_p);
    }
    if (input->hot_rank < 0 || input->hot_rank >= num_ranks) {
        mpath_error("plan: hot rank %d must be 0 to %d", input->hot_rank, num_ranks - 1);
        return MPATH_ERR_PARAM;
    }
    demand = malloc((size_t)num_ranks * (size_t)num_ranks * sizeof(*demand));
    if (demand == NULL) {
        mpath_error("plan: no memory for the demand of %d ranks", num_ranks);
        return MPATH_ERR_NO_MEMORY;
    }
    if (input->use_moe) {
        moe.seed = input->seed;
        status   = mpath_demand_moe(num_ranks, &moe, demand);
    } else if (input->zipf) {
        mpath_demand_zipf(num_ranks, input->skew_ppm, input->seed, input->bytes, 1, demand);
    } else {
        mpath_demand_hot(num_ranks, input->hot_rank, input->skew_ppm, input->bytes, 1, demand);
    }
    if (status != MPATH_OK) {
        free(demand);
        return status;
    }
    *demand_p = demand;
    return MPATH_OK;
}

mpath_status_t plan_input_make(const plan_input_t *input, mpath_topo_t **topo_p, uint64_t **demand_p)
{
    mpath_status_t status;
    mpath_topo_t *topo;

    status = make_topo(input, &topo);
    if (status != MPATH_OK) {
        return status;
    }
    status = make_demand(input, mpath_topo_num_ranks(topo), demand_p);
    if (status != MPATH_OK) {
        mpath_topo_destroy(topo);
        return status;
    }
    *topo_p = topo;
    return MPATH_OK;
}
