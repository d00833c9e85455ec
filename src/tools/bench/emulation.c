/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: emulated clusters, that is virtual nodes of one host whose rates hold by clocks. Which one the job runs
 * on, for every line of output, and what a matrix takes on it: the bound that no routing beats, and the static routes.
 */
#include "tools/bench/op.h"

#include "plan/plan.h"
#include "topo/file/xml.h"
#include "util/number.h"

#include <stdlib.h>
#include <string.h>

static int is_emulated(const mpath_topo_file_t *file)
{
    return file->params.emulated != MPATH_EMULATED_NO;
}

/* "emulated cluster: 2 nodes, rails by copies, 4 NICs of 11.28 GB/s, NVLinks of 30 GB/s; rates hold by clocks" */
static void describe(const mpath_topo_t *topo, const char *path, char *text, size_t size)
{
    const mpath_machine_t *machine = mpath_topo_machine(topo, 0);
    const mpath_node_gpus_t *gpus  = mpath_topo_gpus(topo, 0);
    char rate[MPATH_NUMBER_SHOWN];
    size_t length;

    mpath_number_show((machine->num_nics > 0) ? (double)machine->nics[0].rate_bps : 0.0, "B/s", rate);
    length = (size_t)snprintf(text, size, "emulated cluster: %s, %d virtual nodes, %d NICs of %s each (%s)", path,
                              mpath_topo_num_nodes(topo), machine->num_nics, rate,
                              mpath_emulation_names[mpath_topo_params(topo)->emulated]);
    if (gpus != NULL && gpus->link == MPATH_GPU_LINK_MESH && length < size) {
        mpath_number_show((double)gpus->nvlink_bps[0][1], "B/s", rate);
        length += (size_t)snprintf(text + length, size - length, ", NVLinks of %s a pair", rate);
    }
    if (length < size) {
        snprintf(text + length, size - length, "; clocks hold these rates, not links");
    }
}

/* Why the job cannot be measured on this cluster; NULL when it can. */
static const char *find_obstacle(const mpath_topo_file_t *file, const bench_t *bench)
{
    if (file->num_ranks != bench->size) {
        return "it places another number of ranks than the job has";
    }
    if (bench->options.against != NULL || !(bench->options.sides & BENCH_MPATH)) {
        return "only mpath holds its rates, so that --against means nothing (--paths compares routings)";
    }
    if (!bench_uses_gpu(&bench->options) || !bench->options.op->has_matrix) {
        return "its rates hold for alltoallv with --memory on GPUs only";
    }
    return NULL;
}

static int build(const mpath_topo_file_t *file, const char *path, bench_t *bench)
{
    const char *obstacle = find_obstacle(file, bench);

    if (obstacle != NULL) {
        if (bench->rank == 0) {
            fprintf(stderr, "mpath_bench: emulated topology file %s: %s; nothing was run\n", path, obstacle);
        }
        return -1;
    }
    if (mpath_topo_file_build(file, &bench->emulated) != MPATH_OK) {
        return -1;
    }
    describe(bench->emulated, path, bench->emulated_text, sizeof(bench->emulated_text));
    return 0;
}

int bench_emulation_open(bench_t *bench)
{
    char path[1024];
    mpath_topo_file_t file;
    int status = 0;

    bench_cvar_string("coll_mpath_topo_file", path, sizeof(path));
    if (path[0] == '\0' || mpath_topo_file_load(path, &file) != MPATH_OK) {
        return 0; /* the component has said what is wrong with it */
    }
    if (is_emulated(&file)) {
        status = build(&file, path, bench);
    }
    mpath_topo_file_release(&file);
    return status;
}

void bench_emulation_close(bench_t *bench)
{
    if (bench->emulated != NULL) {
        mpath_topo_destroy(bench->emulated);
        bench->emulated = NULL;
    }
}

int bench_emulation_bound(const bench_t *bench, bench_case_t *a_case)
{
    mpath_plan_params_t params;
    mpath_plan_t *plan;
    int i;

    for (i = 0; i < 2; i++) {
        mpath_plan_params_init(&params);
        params.policy = (i == 0) ? MPATH_POLICY_MPATH : MPATH_POLICY_DIRECT;
        if (mpath_plan_create(bench->emulated, a_case->demand, &params, &plan) != MPATH_OK) {
            return -1;
        }
        if (i == 0) {
            a_case->bound_ns = mpath_plan_bound_ns(plan);
        } else {
            a_case->static_ns = mpath_plan_z_ns(plan);
        }
        mpath_plan_destroy(plan);
    }
    return 0;
}
