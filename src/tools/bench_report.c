/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: figures out of times, and the tables for people: a full one for a single case, one line each for many.
 */
#include "tools/bench_op.h"

#include <stdlib.h>
#include <string.h>

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

double bench_per_call(const bench_t *bench, int ranks, unsigned long long value)
{
    return (double)value / ranks / bench->options.iterations;
}

/* Ends a line of the report: nobody is to take an emulated rate for a measured one, whichever line is quoted. */
static void end_line(const bench_t *bench)
{
    printf("%s\n", bench->emulated != NULL ? "  emulated" : "");
}

static int carried_none(const bench_contestant_t *contestant)
{
    return contestant->is_mpath && contestant->counters[BENCH_PVAR_CALLS] == 0;
}

const char *bench_row_name(const bench_contestant_t *contestant)
{
    return carried_none(contestant) ? "not mpath" : contestant->name;
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
        if (carried_none(&bench->contestants[0])) {
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
