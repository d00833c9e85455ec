/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_bench: the result as a table for people and as JSON (fields: doc/benchmark.md). */
#include "tools/bench.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define BAR_WIDTH 30

static int compare_u64(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

/* Largest of what any rank sends and receives, the diagonal included: nccl-tests' size of an alltoallv. */
static uint64_t largest_rank_bytes(int size, const uint64_t *demand)
{
    uint64_t largest = 0, sent, received;
    int i, j;

    for (i = 0; i < size; i++) {
        sent = received = 0;
        for (j = 0; j < size; j++) {
            sent += demand[(size_t)i * (size_t)size + (size_t)j];
            received += demand[(size_t)j * (size_t)size + (size_t)i];
        }
        largest = sent > largest ? sent : largest;
        largest = received > largest ? received : largest;
    }
    return largest;
}

static int evaluate(const bench_options_t *options, const bench_rails_t *rails, int size, const uint64_t *demand,
                    const bench_contestant_t *contestant, bench_result_t *result)
{
    size_t count     = (size_t)options->iterations;
    uint64_t *sorted = malloc(count * sizeof(*sorted));

    if (sorted == NULL) {
        return -1;
    }
    memcpy(sorted, contestant->times_ns, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_u64);
    result->min_ns         = sorted[0];
    result->max_ns         = sorted[count - 1];
    result->median_ns      = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    result->algbw_bps      = (double)largest_rank_bytes(size, demand) * 1e9 / (double)result->median_ns;
    result->busbw_bps      = result->algbw_bps * (double)(size - 1) / (double)size;
    result->ratio_to_bound = rails->bound_ns ? (double)result->median_ns / (double)rails->bound_ns : 0.0;
    free(sorted);
    return 0;
}

static const char *matrix_text(const bench_options_t *options, char *text, size_t size)
{
    switch (options->matrix) {
    case BENCH_HOT:
        snprintf(text, size, "hot %.6g", options->hot_ppm / 1e6);
        break;
    case BENCH_ZIPF:
        snprintf(text, size, "zipf %.6g", options->zipf_ppm / 1e6);
        break;
    case BENCH_FILE:
        snprintf(text, size, "%s", options->matrix_file);
        break;
    }
    return text;
}

static double per_call(const bench_options_t *options, int size, unsigned long long value)
{
    return (double)value / size / options->iterations;
}

static void print_bars(const bench_rails_t *rails, const bench_contestant_t *contestant, const uint64_t *rail_bytes,
                       int iterations)
{
    const uint64_t *tx, *rx;
    uint64_t largest = 1;
    char bar[BAR_WIDTH + 1];
    int node, nic, length;

    for (node = 0; node < rails->num_nodes; node++) {
        for (nic = 0; nic < 2 * MPATH_MAX_NICS; nic++) {
            largest = rail_bytes[(size_t)node * 2 * MPATH_MAX_NICS + (size_t)nic] > largest
                          ? rail_bytes[(size_t)node * 2 * MPATH_MAX_NICS + (size_t)nic]
                          : largest;
        }
    }
    printf("\nbytes on the rails, %s (sent and received, per call)\n", contestant->name);
    for (node = 0; node < rails->num_nodes; node++) {
        for (nic = 0; nic < rails->machines[node].num_nics; nic++) {
            tx     = rail_bytes + (size_t)node * 2 * MPATH_MAX_NICS + (size_t)nic;
            rx     = tx + MPATH_MAX_NICS;
            length = (int)((*tx > *rx ? *tx : *rx) * BAR_WIDTH / largest);
            memset(bar, '#', (size_t)length);
            bar[length] = '\0';
            printf("  node %d %-10s %8.2f MB %8.2f MB  %s\n", node, rails->machines[node].nics[nic].name,
                   (double)*tx / iterations / 1e6, (double)*rx / iterations / 1e6, bar);
        }
    }
}

static void print_table(const bench_options_t *options, const bench_rails_t *rails, int size,
                        const bench_contestant_t *contestants, const bench_result_t *results, int count,
                        const uint64_t *rail_bytes)
{
    char text[512];
    int i;

    printf("mpath_bench: MPI_Alltoallv, %d ranks on %d node%s, %s, %d iterations, %s\n", size, rails->num_nodes,
           rails->num_nodes == 1 ? "" : "s", matrix_text(options, text, sizeof(text)), options->iterations,
           rails->one_clock ? "time = last finish - first start" : "time = longest of any rank after a barrier");
    if (rails->bound_ns != 0) {
        printf("bound (busiest node over all its rails): %.3f ms\n", (double)rails->bound_ns / 1e6);
    }
    printf("%-16s %10s %10s %10s %10s %10s %8s\n", "", "min ms", "median ms", "max ms", "algbw MB/s", "busbw MB/s",
           "x bound");
    for (i = 0; i < count; i++) {
        printf("%-16s %10.3f %10.3f %10.3f %10.1f %10.1f ", contestants[i].name, (double)results[i].min_ns / 1e6,
               (double)results[i].median_ns / 1e6, (double)results[i].max_ns / 1e6, results[i].algbw_bps / 1e6,
               results[i].busbw_bps / 1e6);
        if (rails->bound_ns != 0) {
            printf("%8.3f", results[i].ratio_to_bound);
        } else {
            printf("%8s", "-");
        }
        printf("%s\n", contestants[i].wrong_bytes ? "  WRONG BYTES" : "");
    }
    printf(
        "mpath carried %.0f and declined %.0f of %d calls; agree %.1f us, plan %.1f us, move %.1f us per call; relayed %.0f "
        "bytes per call\n",
        (double)contestants[0].counters[BENCH_PVAR_CALLS] / size,
        (double)contestants[0].counters[BENCH_PVAR_DECLINED] / size, options->iterations,
        per_call(options, size, contestants[0].counters[BENCH_PVAR_AGREE_NS]) / 1e3,
        per_call(options, size, contestants[0].counters[BENCH_PVAR_PLAN_NS]) / 1e3,
        per_call(options, size, contestants[0].counters[BENCH_PVAR_MOVE_NS]) / 1e3,
        per_call(options, 1, contestants[0].counters[BENCH_PVAR_RELAYED_BYTES]));
    for (i = 0; i < count && rails->num_nodes > 1; i++) {
        print_bars(rails, &contestants[i], rail_bytes + (size_t)i * (size_t)rails->num_nodes * 2 * MPATH_MAX_NICS,
                   options->iterations);
    }
}

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

static json_t *contestant_json(const bench_options_t *options, const bench_rails_t *rails, int size,
                               const bench_contestant_t *contestant, const bench_result_t *result,
                               const uint64_t *rail_bytes)
{
    json_t *times = json_array(), *object;
    int i;

    for (i = 0; i < options->iterations; i++) {
        json_array_append_new(times, json_real((double)contestant->times_ns[i] / 1e9));
    }
    object = json_pack("{s:s,s:f,s:f,s:f,s:o,s:f,s:f,s:I}", "name", contestant->name, "min_s",
                       (double)result->min_ns / 1e9, "median_s", (double)result->median_ns / 1e9, "max_s",
                       (double)result->max_ns / 1e9, "times_s", times, "algbw_Bps", result->algbw_bps, "busbw_Bps",
                       result->busbw_bps, "wrong_bytes", (json_int_t)contestant->wrong_bytes);
    if (rails->bound_ns != 0) {
        json_object_set_new(object, "ratio_to_bound", json_real(result->ratio_to_bound));
    }
    json_object_set_new(object, "mpath_calls", json_real((double)contestant->counters[BENCH_PVAR_CALLS] / size));
    json_object_set_new(object, "agree_us",
                        json_real(per_call(options, size, contestant->counters[BENCH_PVAR_AGREE_NS]) / 1e3));
    json_object_set_new(object, "plan_us",
                        json_real(per_call(options, size, contestant->counters[BENCH_PVAR_PLAN_NS]) / 1e3));
    json_object_set_new(object, "move_us",
                        json_real(per_call(options, size, contestant->counters[BENCH_PVAR_MOVE_NS]) / 1e3));
    json_object_set_new(object, "relayed_bytes_per_call",
                        json_real(per_call(options, 1, contestant->counters[BENCH_PVAR_RELAYED_BYTES])));
    json_object_set_new(object, "rails", rails_json(rails, rail_bytes));
    return object;
}

static int write_json(const bench_options_t *options, const bench_rails_t *rails, int size, const uint64_t *demand,
                      const bench_contestant_t *contestants, const bench_result_t *results, int count,
                      const uint64_t *rail_bytes)
{
    char text[512];
    json_t *root, *list = json_array();
    int i, status;

    for (i = 0; i < count; i++) {
        json_array_append_new(list,
                              contestant_json(options, rails, size, &contestants[i], &results[i],
                                              rail_bytes + (size_t)i * (size_t)rails->num_nodes * 2 * MPATH_MAX_NICS));
    }
    root = json_pack("{s:s,s:s,s:i,s:i,s:s,s:I,s:I,s:i,s:b,s:o}", "benchmark", "alltoallv", "label", options->label,
                     "ranks", size, "nodes", rails->num_nodes, "matrix", matrix_text(options, text, sizeof(text)),
                     "bytes", (json_int_t)options->bytes, "largest_rank_bytes",
                     (json_int_t)largest_rank_bytes(size, demand), "iterations", options->iterations, "one_clock",
                     rails->one_clock, "contestants", list);
    if (root == NULL) {
        fprintf(stderr, "mpath_bench: the result cannot be written as JSON\n");
        return -1;
    }
    if (rails->bound_ns != 0) {
        json_object_set_new(root, "bound_s", json_real((double)rails->bound_ns / 1e9));
    }
    if (strcmp(options->json, "-") == 0) {
        status = json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
        printf("\n");
    } else {
        status = json_dump_file(root, options->json, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    }
    json_decref(root);
    if (status != 0) {
        fprintf(stderr, "mpath_bench: cannot write '%s'; the table above is all there is\n", options->json);
    }
    return status;
}

int bench_report(const bench_options_t *options, const bench_rails_t *rails, int size, const uint64_t *demand,
                 const bench_contestant_t *contestants, int num_contestants, const uint64_t *rail_bytes)
{
    bench_result_t results[BENCH_MAX_CONTESTANTS];
    int i, failed = 0;

    for (i = 0; i < num_contestants; i++) {
        if (evaluate(options, rails, size, demand, &contestants[i], &results[i]) != 0) {
            fprintf(stderr, "mpath_bench: out of memory\n");
            return 1;
        }
        failed |= contestants[i].wrong_bytes != 0;
    }
    print_table(options, rails, size, contestants, results, num_contestants, rail_bytes);
    if (options->json != NULL) {
        failed |= write_json(options, rails, size, demand, contestants, results, num_contestants, rail_bytes) != 0;
    }
    return failed;
}
