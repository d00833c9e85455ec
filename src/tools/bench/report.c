/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: figures out of times, the tables for people (a full one for a single case, one line each for many), and
 * the result as JSON (fields: doc/benchmark.md). That file is written anew after every case, so that a job which is ended
 * early leaves what it has measured.
 */
#include "tools/bench/op.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *all_cases; /* of this run */

/* Mean over ranks and iterations of a counter of all ranks. */
static double bench_per_call(const bench_t *bench, int ranks, unsigned long long value)
{
    return (double)value / ranks / bench->options.iterations;
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

/* Adds a case. */
static int bench_json_add(const bench_t *bench, const bench_case_t *a_case, const bench_result_t *results,
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

/* Writes all of them to a file; "-" is standard output, which gets them once, at the end. A single case stands for itself. */
static int bench_json_write(const bench_t *bench, int at_end)
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

#define BAR_WIDTH 30

static int compare_u64(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

static int evaluate(const bench_t *bench, const bench_case_t *a_case, const bench_contestant_t *contestant,
                    bench_result_t *result)
{
    size_t count     = (size_t)bench->options.iterations;
    uint64_t *sorted = malloc(count * sizeof(*sorted));

    if (sorted == NULL) {
        return -1;
    }
    memcpy(sorted, contestant->times_ns, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_u64);
    result->min_ns         = sorted[0];
    result->max_ns         = sorted[count - 1];
    result->p99_ns         = sorted[(count * 99 + 99) / 100 - 1]; /* nearest rank */
    result->median_ns      = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    result->median_ns      = result->median_ns > 0 ? result->median_ns : 1;
    result->algbw_bps      = (double)a_case->largest_rank_bytes * 1e9 / (double)result->median_ns;
    result->port_bps       = (double)a_case->busiest_port_bytes * 1e9 / (double)result->median_ns;
    result->busbw_bps      = result->algbw_bps * a_case->busbw_factor;
    result->ratio_to_bound = a_case->bound_ns ? (double)result->median_ns / (double)a_case->bound_ns : 0.0;
    free(sorted);
    return 0;
}

/* Ends a line of the report: nobody is to take an emulated rate for a measured one, whichever line is quoted. */
static void end_line(const bench_t *bench)
{
    printf("%s\n", bench->emulated != NULL ? "  emulated" : "");
}

/* Calls that mpath carried, of the timed ones. */
static void print_carried(const bench_t *bench, const bench_contestant_t *contestant)
{
    char text[48] = "-";

    if (contestant->is_mpath) {
        snprintf(text, sizeof(text), "%.0f/%d", (double)contestant->counters[BENCH_PVAR_CALLS] / bench->size,
                 bench->options.iterations);
    }
    printf(" %9s", text);
}

/* --- a single case ----------------------------------------------------------------------------------------------- */

static void print_bars(const bench_t *bench, const bench_contestant_t *contestant, const uint64_t *rail_bytes)
{
    const bench_rails_t *rails = &bench->rails;
    int iterations             = bench->options.iterations;
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
    printf("\nbytes on the rails, %s (sent and received, per call)", bench_row_name(contestant));
    end_line(bench);
    for (node = 0; node < rails->num_nodes; node++) {
        for (nic = 0; nic < rails->machines[node].num_nics; nic++) {
            tx     = rail_bytes + (size_t)node * 2 * MPATH_MAX_NICS + (size_t)nic;
            rx     = tx + MPATH_MAX_NICS;
            length = (int)((*tx > *rx ? *tx : *rx) * BAR_WIDTH / largest);
            memset(bar, '#', (size_t)length);
            bar[length] = '\0';
            printf("  node %d %-10s %8.2f MB %8.2f MB  %s", node, rails->machines[node].nics[nic].name,
                   (double)*tx / iterations / 1e6, (double)*rx / iterations / 1e6, bar);
            end_line(bench);
        }
    }
}

static void print_mpath_counters(const bench_t *bench)
{
    const bench_contestant_t *mpath = &bench->contestants[0];

    if (!mpath->is_mpath) {
        return;
    }
    printf(
        "mpath carried %.0f and declined %.0f of %d calls; agree %.1f us, plan %.1f us, move %.1f us per call; relayed "
        "%.0f bytes per call",
        (double)mpath->counters[BENCH_PVAR_CALLS] / bench->size,
        (double)mpath->counters[BENCH_PVAR_DECLINED] / bench->size, bench->options.iterations,
        bench_per_call(bench, bench->size, mpath->counters[BENCH_PVAR_AGREE_NS]) / 1e3,
        bench_per_call(bench, bench->size, mpath->counters[BENCH_PVAR_PLAN_NS]) / 1e3,
        bench_per_call(bench, bench->size, mpath->counters[BENCH_PVAR_MOVE_NS]) / 1e3,
        bench_per_call(bench, 1, mpath->counters[BENCH_PVAR_RELAYED_BYTES]));
    if (mpath->counters[BENCH_PVAR_YIELDS] + mpath->counters[BENCH_PVAR_RECEIVE_YIELDS] > 0) {
        printf("; chunks made way %.1f times per call to bytes of a NIC's own GPUs that it sent, %.1f times that the "
               "other end received",
               bench_per_call(bench, 1, mpath->counters[BENCH_PVAR_YIELDS]),
               bench_per_call(bench, 1, mpath->counters[BENCH_PVAR_RECEIVE_YIELDS]));
    }
    end_line(bench);
}

static void print_head(const bench_t *bench, const char *what)
{
    const bench_rails_t *rails = &bench->rails;

    printf("mpath_bench: %s, %d ranks on %d node%s, %s%s%d iterations, %s", bench->options.op->function, bench->size,
           rails->num_nodes, rails->num_nodes == 1 ? "" : "s", what, what[0] != '\0' ? ", " : "",
           bench->options.iterations,
           rails->one_clock ? "time = last finish - first start" : "time = longest of any rank after a barrier");
    end_line(bench);
    if ((bench->options.sides & BENCH_MPATH) && !bench->contestants[0].is_mpath) {
        printf(
            "mpath is not in this job (mpirun --mca coll mpath): 'as started' is what the MPI library does by itself");
        end_line(bench);
    }
    if (bench->emulated != NULL) {
        printf("%s", bench->emulated_text);
        end_line(bench);
    }
}

/* Ends a contestant's line. */
static void print_tail(const bench_t *bench, const bench_contestant_t *contestant)
{
    printf("%s", contestant->wrong_bytes ? "  WRONG BYTES" : "");
    end_line(bench);
}

static void print_case(const bench_t *bench, const bench_case_t *a_case, const bench_result_t *results,
                       const uint64_t *rail_bytes)
{
    int i;

    print_head(bench, a_case->name);
    if (bench_uses_gpu(&bench->options)) {
        printf("%s", bench->gpu_text);
        end_line(bench);
    }
    if (a_case->bound_ns != 0) {
        printf(bench->emulated != NULL ? "bound (any routing of this matrix on the emulated cluster): %.1f us"
                                       : "bound (busiest node over all its rails): %.1f us",
               (double)a_case->bound_ns / 1e3);
        if (a_case->static_ns != 0) {
            printf("; static routes at least %.1f us", (double)a_case->static_ns / 1e3);
        }
        end_line(bench);
    }
    printf("%-16s %12s %12s %12s %11s %11s %9s %8s", "", "min us", "median us", "max us", "algbw GB/s", "busbw GB/s",
           "carried", "x bound");
    end_line(bench);
    for (i = 0; i < bench->num_contestants; i++) {
        printf("%-16s %12.1f %12.1f %12.1f %11.4f %11.4f", bench_row_name(&bench->contestants[i]),
               (double)results[i].min_ns / 1e3, (double)results[i].median_ns / 1e3, (double)results[i].max_ns / 1e3,
               results[i].algbw_bps / 1e9, results[i].busbw_bps / 1e9);
        print_carried(bench, &bench->contestants[i]);
        printf(" ");
        if (a_case->bound_ns != 0) {
            printf("%8.3f", results[i].ratio_to_bound);
        } else {
            printf("%8s", "-");
        }
        print_tail(bench, &bench->contestants[i]);
    }
    print_mpath_counters(bench);
    for (i = 0; i < bench->num_contestants && bench->rails.num_nodes > 1; i++) {
        print_bars(bench, &bench->contestants[i],
                   rail_bytes + (size_t)i * (size_t)bench->rails.num_nodes * 2 * MPATH_MAX_NICS);
    }
}

/* --- many cases -------------------------------------------------------------------------------------------------- */

static const char *size_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    int unit                         = 0;

    while (bytes != 0 && bytes % 1024 == 0 && unit < 3) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, size, "%llu %s", (unsigned long long)bytes, units[unit]);
    return text;
}

/* What moved the bytes of mpath's calls, and how long its ranks were busy with anything else. */
static void print_ways(const bench_t *bench, const bench_contestant_t *contestant)
{
    const unsigned long long *counters = contestant->counters;
    double kernel = (double)counters[BENCH_PVAR_KERNEL_BYTES], engine = (double)counters[BENCH_PVAR_ENGINE_BYTES];
    double staged = (double)counters[BENCH_PVAR_STAGED_BYTES], all = kernel + engine + staged;

    if (all > 0) {
        printf("  SM %.0f %%, engines %.0f %%, host %.0f %%", 100 * kernel / all, 100 * engine / all,
               100 * staged / all);
    }
    if (counters[BENCH_PVAR_CALLS] > 0) {
        printf("  agree %.1f plan %.1f us", bench_per_call(bench, bench->size, counters[BENCH_PVAR_AGREE_NS]) / 1e3,
               bench_per_call(bench, bench->size, counters[BENCH_PVAR_PLAN_NS]) / 1e3);
    }
}

/* What the launches said, mean over ranks; of a contestant other than mpath nobody knows. */
static void print_ctas(const bench_t *bench, const bench_contestant_t *contestant)
{
    if (contestant->counters[BENCH_PVAR_CALLS] > 0) {
        printf(" %6.0f", bench_per_call(bench, bench->size, contestant->counters[BENCH_PVAR_KERNEL_CTAS]));
    } else {
        printf(" %6s", "-");
    }
}

static void print_lines(const bench_t *bench, const bench_case_t *a_case, const bench_result_t *results, int index)
{
    char text[32];
    int i;

    if (index == 0) {
        print_head(bench, "");
        printf(
            "port: bytes between ranks through the busiest one; gain: time divided by that of %s, where it carried calls; "
            "carried: calls by mpath, of those timed; not mpath: it left them all to the MPI library",
            bench->contestants[0].name);
        end_line(bench);
        if (bench_uses_gpu(&bench->options)) {
            printf("%s; MiB: device memory that the contestant takes for itself, on one GPU; CTAs: of all kernels of a "
                   "call on a GPU",
                   bench->gpu_text);
            end_line(bench);
        }
        printf("%-10s %-9s %-16s %9s %9s %9s %9s %8s %8s %8s %9s %6s %7s%s", "", "per rank", "", "min us", "median",
               "p99", "max", "algbw", "busbw", "port", "carried", "gain",
               bench_uses_gpu(&bench->options) ? "MiB" : "x bound", bench_uses_gpu(&bench->options) ? "   CTAs" : "");
        end_line(bench);
        printf("%-10s %-9s %-16s %9s %9s %9s %9s %8s %8s %8s", "", "", "", "", "", "", "", "GB/s", "GB/s", "GB/s");
        end_line(bench);
    }
    for (i = 0; i < bench->num_contestants; i++) {
        printf("%-10s %-9s %-16s %9.1f %9.1f %9.1f %9.1f %8.4f %8.4f %8.4f", i == 0 ? a_case->name : "",
               i == 0 ? size_text(a_case->bytes, text, sizeof(text)) : "", bench_row_name(&bench->contestants[i]),
               (double)results[i].min_ns / 1e3, (double)results[i].median_ns / 1e3, (double)results[i].p99_ns / 1e3,
               (double)results[i].max_ns / 1e3, results[i].algbw_bps / 1e9, results[i].busbw_bps / 1e9,
               results[i].port_bps / 1e9);
        print_carried(bench, &bench->contestants[i]);
        if (bench_carried_none(&bench->contestants[0])) {
            printf(" %6s ", "-"); /* the same functions on both sides: what differs is noise */
        } else {
            printf(" %6.2f ", results[i].speedup);
        }
        if (bench_uses_gpu(&bench->options)) {
            printf("%7.1f", (double)bench->contestants[i].most_gpu_bytes / (1 << 20));
            print_ctas(bench, &bench->contestants[i]);
            print_ways(bench, &bench->contestants[i]);
            if (bench->emulated != NULL && a_case->bound_ns != 0) {
                printf("  x bound %.3f", results[i].ratio_to_bound);
            }
        } else if (a_case->bound_ns != 0) {
            printf("%7.3f", results[i].ratio_to_bound);
        } else {
            printf("%7s", "-");
        }
        print_tail(bench, &bench->contestants[i]);
    }
    fflush(stdout);
}

int bench_report(const bench_t *bench, const bench_case_t *a_case, int index, int num_cases, const uint64_t *rail_bytes)
{
    bench_result_t results[BENCH_MAX_CONTESTANTS];
    int i, failed = 0;

    for (i = 0; i < bench->num_contestants; i++) {
        if (evaluate(bench, a_case, &bench->contestants[i], &results[i]) != 0) {
            fprintf(stderr, "mpath_bench: out of memory\n");
            return 1;
        }
        results[i].speedup = (double)results[i].median_ns / (double)results[0].median_ns;
        failed |= bench->contestants[i].wrong_bytes != 0;
    }
    if (num_cases == 1) {
        print_case(bench, a_case, results, rail_bytes);
    } else {
        print_lines(bench, a_case, results, index);
    }
    if (bench->options.json != NULL) {
        failed |= bench_json_add(bench, a_case, results, rail_bytes) != 0 || bench_json_write(bench, 0) != 0;
    }
    return failed;
}

int bench_report_finish(const bench_t *bench)
{
    return bench->options.json != NULL ? bench_json_write(bench, 1) : 0;
}
