/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: the result as JSON (fields: doc/benchmark.md). The file is written anew after every case, so that a job
 * which is ended early leaves what it has measured.
 */
#include "tools/bench_op.h"

#include <jansson.h>
#include <string.h>

static json_t *all_cases; /* of this run */

static json_t *rails_json(const bench_rails_t *rails, const uint64_t *rail_bytes)
{
    json_t *list = json_array();
    int node, nic;

    for (node = 0; node < rails->num_nodes; node++) {
        for (nic = 0; nic < rails->machines[node].num_nics; nic++) {
            const uint64_t *tx = rail_bytes + (size_t)node * 2 * MPATH_MAX_NICS + (size_t)nic;

            json_array_append_new(list, json_pack("{s:i,s:s,s:I,s:I,s:I}", "node", node, "nic",
                                                  rails->machines[node].nics[nic].name, "rate_Bps",
                                                  (json_int_t)rails->machines[node].nics[nic].rate_bps, "tx_bytes",
                                                  (json_int_t)tx[0], "rx_bytes", (json_int_t)tx[MPATH_MAX_NICS]));
        }
    }
    return list;
}

static void set_real(json_t *object, const char *name, double value)
{
    json_object_set_new(object, name, json_real(value));
}

static json_t *contestant_json(const bench_t *bench, const bench_case_t *a_case, const bench_contestant_t *contestant,
                               const bench_result_t *result, const uint64_t *rail_bytes)
{
    const unsigned long long *counters = contestant->counters;
    json_t *times                      = json_array(), *object;
    int i;

    for (i = 0; i < bench->options.iterations; i++) {
        json_array_append_new(times, json_real((double)contestant->times_ns[i] / 1e9));
    }
    object = json_pack("{s:s,s:f,s:f,s:f,s:f,s:o,s:f,s:f,s:f,s:I}", "name", contestant->name, "min_s",
                       (double)result->min_ns / 1e9, "median_s", (double)result->median_ns / 1e9, "p99_s",
                       (double)result->p99_ns / 1e9, "max_s", (double)result->max_ns / 1e9, "times_s", times,
                       "algbw_Bps", result->algbw_bps, "busbw_Bps", result->busbw_bps, "port_Bps", result->port_bps,
                       "wrong_bytes", (json_int_t)contestant->wrong_bytes);
    if (object == NULL) {
        return NULL;
    }
    if (a_case->bound_ns != 0) {
        set_real(object, "ratio_to_bound", result->ratio_to_bound);
    }
    if (bench->emulated != NULL) {
        json_object_set_new(object, "emulated", json_true());
    }
    if (bench_uses_gpu(&bench->options)) {
        json_object_set_new(object, "gpu_bytes", json_integer((json_int_t)contestant->most_gpu_bytes));
        set_real(object, "kernel_bytes_per_call", bench_per_call(bench, 1, counters[BENCH_PVAR_KERNEL_BYTES]));
        set_real(object, "engine_bytes_per_call", bench_per_call(bench, 1, counters[BENCH_PVAR_ENGINE_BYTES]));
        if (counters[BENCH_PVAR_CALLS] > 0) {
            set_real(object, "kernel_launches_per_call",
                     bench_per_call(bench, bench->size, counters[BENCH_PVAR_KERNEL_LAUNCHES]));
            set_real(object, "kernel_ctas_per_call",
                     bench_per_call(bench, bench->size, counters[BENCH_PVAR_KERNEL_CTAS]));
        }
        set_real(object, "staged_bytes_per_call", bench_per_call(bench, 1, counters[BENCH_PVAR_STAGED_BYTES]));
    }
    set_real(object, "mpath_calls", (double)counters[BENCH_PVAR_CALLS] / bench->size);
    set_real(object, "agree_us", bench_per_call(bench, bench->size, counters[BENCH_PVAR_AGREE_NS]) / 1e3);
    set_real(object, "plan_us", bench_per_call(bench, bench->size, counters[BENCH_PVAR_PLAN_NS]) / 1e3);
    set_real(object, "move_us", bench_per_call(bench, bench->size, counters[BENCH_PVAR_MOVE_NS]) / 1e3);
    set_real(object, "relayed_bytes_per_call", bench_per_call(bench, 1, counters[BENCH_PVAR_RELAYED_BYTES]));
    set_real(object, "yields_per_call", bench_per_call(bench, 1, counters[BENCH_PVAR_YIELDS]));
    set_real(object, "receive_yields_per_call", bench_per_call(bench, 1, counters[BENCH_PVAR_RECEIVE_YIELDS]));
    if (contestant->overlap_ns[2] > 0) {
        set_real(object, "overlap_start_s", (double)contestant->start_ns / 1e9);
        set_real(object, "overlap_call_s", (double)contestant->overlap_ns[0] / 1e9);
        set_real(object, "overlap_computation_s", (double)contestant->overlap_ns[1] / 1e9);
        set_real(object, "overlap_both_s", (double)contestant->overlap_ns[2] / 1e9);
        set_real(object, "overlap_of_ideal", bench_overlap_share(contestant));
    }
    json_object_set_new(object, "rails", rails_json(&bench->rails, rail_bytes));
    return object;
}

int bench_json_add(const bench_t *bench, const bench_case_t *a_case, const bench_result_t *results,
                   const uint64_t *rail_bytes)
{
    const bench_options_t *options = &bench->options;
    size_t per_contestant          = (size_t)bench->rails.num_nodes * 2 * MPATH_MAX_NICS;
    json_t *root, *list = json_array();
    int i;

    for (i = 0; i < bench->num_contestants; i++) {
        json_array_append_new(list, contestant_json(bench, a_case, &bench->contestants[i], &results[i],
                                                    rail_bytes + (size_t)i * per_contestant));
    }
    root = json_pack("{s:s,s:s,s:i,s:i,s:s,s:I,s:I,s:I,s:i,s:b,s:o}", "benchmark", options->op->name, "label",
                     options->label, "ranks", bench->size, "nodes", bench->rails.num_nodes, "matrix", a_case->name,
                     "bytes", (json_int_t)a_case->bytes, "largest_rank_bytes", (json_int_t)a_case->largest_rank_bytes,
                     "busiest_port_bytes", (json_int_t)a_case->busiest_port_bytes, "iterations", options->iterations,
                     "one_clock", bench->rails.one_clock, "contestants", list);
    if (root == NULL) {
        fprintf(stderr, "mpath_bench: the result cannot be written as JSON\n");
        return -1;
    }
    if (bench_uses_gpu(options)) {
        json_object_set_new(root, "gpus", json_string(bench->gpu_text));
        json_object_set_new(root, "send_memory", json_string(bench_memory_names[options->send_memory]));
        json_object_set_new(root, "receive_memory", json_string(bench_memory_names[options->receive_memory]));
    }
    if (a_case->bound_ns != 0) {
        set_real(root, "bound_s", (double)a_case->bound_ns / 1e9);
    }
    if (bench->emulated != NULL) {
        json_object_set_new(root, "emulated", json_string(bench->emulated_text));
    }
    if (a_case->static_ns != 0) {
        set_real(root, "static_s", (double)a_case->static_ns / 1e9);
    }
    if (all_cases == NULL) {
        all_cases = json_array();
    }
    return json_array_append_new(all_cases, root);
}

/* A single case stands for itself. */
int bench_json_write(const bench_t *bench, int at_end)
{
    const char *path = bench->options.json;
    size_t flags     = JSON_INDENT(1) | JSON_REAL_PRECISION(9);
    json_t *root;
    int status = 0;

    if (json_array_size(all_cases) == 1) {
        root = json_incref(json_array_get(all_cases, 0));
    } else {
        root = json_pack("{s:O}", "cases", all_cases);
    }
    if (root == NULL) {
        return at_end ? 0 : -1; /* no case was run */
    }
    if (strcmp(path, "-") != 0) {
        status = json_dump_file(root, path, flags);
    } else if (at_end) {
        status = json_dumpf(root, bench->json_file, flags);
        status |= fputs("\n", bench->json_file) < 0 || fflush(bench->json_file) != 0;
    }
    json_decref(root);
    if (status != 0) {
        fprintf(stderr, "mpath_bench: cannot write '%s'; the table above is all there is\n", path);
    }
    if (at_end) {
        json_decref(all_cases);
        all_cases = NULL;
    }
    return status;
}
