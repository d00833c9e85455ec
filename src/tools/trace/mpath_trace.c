/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_trace: puts the timelines that the ranks of a job have written on one clock, in one file. */
#include "util/log.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: mpath_trace merge [-o FILE] TRACE...\n"
    "Puts the timelines that the ranks of a job have written on one clock, in one file.\n"
    "\n"
    "Reads what coll_mpath_trace makes and writes a file for Perfetto (https://ui.perfetto.dev) or chrome://tracing, on the\n"
    "clock of rank 0, with which the ranks have compared theirs in MPI_Finalize. Says what it has found of the clocks: no\n"
    "rank can end the agreement of a call before the last one has come to it.\n"
    "\n"
    "  -o, --output FILE  write there instead of standard output\n"
    "  -h, --help         this text\n"
    "  --version          the version\n"
    "\n"
    "exit status: 0, 1: a file cannot be used or written, 2: wrong usage\n";

typedef struct trace {
    const char *path;
    json_t *root; /* the file */
    json_t *other, *events;
    int rank;
    double shift_us; /* to be added */
    int has_offset;  /* it was measured; else by the time of day */
    double error_us;
} trace_t;

/* The agreement of a call, over the ranks. */
typedef struct agreement {
    double last_began_us, first_ended_us, began_error_us, ended_error_us;
    int began_rank, ended_rank;
} agreement_t;

static int64_t integer_of(json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

/* 0, or 1 after a message. */
static int trace_load(const char *path, trace_t *trace)
{
    json_error_t error;
    json_t *clock;

    *trace = (trace_t){.path = path, .root = json_load_file(path, 0, &error)};
    if (trace->root == NULL) {
        mpath_error("%s:%d: %s; nothing is written", path, error.line, error.text);
        return 1;
    }
    trace->other  = json_object_get(trace->root, "otherData");
    trace->events = json_object_get(trace->root, "traceEvents");
    clock         = json_object_get(trace->other, "clock");
    if (json_object_get(trace->other, "merged") != NULL) {
        mpath_error("%s: is merged already; nothing is written", path);
        return 1;
    }
    if (!json_is_array(trace->events) || !json_is_object(clock) ||
        !json_is_string(json_object_get(trace->other, "format")) ||
        strcmp(json_string_value(json_object_get(trace->other, "format")), "mpath-trace") != 0) {
        mpath_error("%s: is no timeline of mpath; nothing is written", path);
        return 1;
    }
    if (integer_of(trace->other, "version") != 1) {
        mpath_error("%s: has version %lld of the format, and this program knows version 1; nothing is written", path,
                    (long long)integer_of(trace->other, "version"));
        return 1;
    }
    trace->rank       = (int)integer_of(trace->other, "rank");
    trace->has_offset = json_object_get(clock, "offset_ns") != NULL;
    trace->error_us   = (double)integer_of(clock, "error_ns") / 1000;
    trace->shift_us   = (double)integer_of(clock, "offset_ns") / 1000;
    return 0;
}

/* How far a clock is behind the time of day, in microseconds. */
static double behind_day_us(const trace_t *trace)
{
    json_t *clock = json_object_get(trace->other, "clock");

    return (double)(integer_of(clock, "realtime_ns") - integer_of(clock, "monotonic_ns")) / 1000;
}

/* Ranks without an offset: by the time of day, beside a rank that has one. */
static void find_shifts(trace_t *traces, int count)
{
    const trace_t *base = &traces[0];

    for (int i = 1; i < count; i++) {
        base = traces[i].has_offset && (!base->has_offset || traces[i].rank < base->rank) ? &traces[i] : base;
    }
    for (int i = 0; i < count; i++) {
        if (!traces[i].has_offset && &traces[i] != base) {
            traces[i].shift_us = base->shift_us + behind_day_us(&traces[i]) - behind_day_us(base);
            fprintf(stderr, "mpath_trace: rank %d has not compared its clock; the time of day is taken instead\n",
                    traces[i].rank);
        }
    }
}

static double first_us(const trace_t *traces, int count)
{
    double first = 0;
    int is_found = 0;
    size_t index;
    json_t *event;

    for (int i = 0; i < count; i++) {
        json_array_foreach(traces[i].events, index, event)
        {
            json_t *ts = json_object_get(event, "ts");
            double at  = json_number_value(ts) + traces[i].shift_us;

            if (ts != NULL && (!is_found || at < first)) {
                first    = at;
                is_found = 1;
            }
        }
    }
    return first;
}

/* Notes an agreement in `seen`: an object by communicator and call whose values are places in *list_p. */
static int note_agreement(json_t *seen, json_t *event, const trace_t *trace, agreement_t **list_p, size_t *count_p)
{
    json_t *args     = json_object_get(event, "args"), *place;
    double began     = json_number_value(json_object_get(event, "ts"));
    double ended     = began + json_number_value(json_object_get(event, "dur"));
    const char *team = json_string_value(json_object_get(args, "team"));
    agreement_t *at;
    char key[64];

    if (integer_of(args, "call") == 0 || team == NULL) {
        return 0;
    }
    snprintf(key, sizeof(key), "%.40s %lld", team, (long long)integer_of(args, "call"));
    place = json_object_get(seen, key);
    if (place == NULL) {
        at = realloc(*list_p, (*count_p + 1) * sizeof(*at));
        if (at == NULL || json_object_set_new(seen, key, json_integer((json_int_t)*count_p)) != 0) {
            return 1;
        }
        *list_p      = at;
        at[*count_p] = (agreement_t){began, ended, trace->error_us, trace->error_us, trace->rank, trace->rank};
        *count_p += 1;
        return 0;
    }
    at = &(*list_p)[json_integer_value(place)];
    if (began > at->last_began_us) {
        at->last_began_us  = began;
        at->began_rank     = trace->rank;
        at->began_error_us = trace->error_us;
    }
    if (ended < at->first_ended_us) {
        at->first_ended_us = ended;
        at->ended_rank     = trace->rank;
        at->ended_error_us = trace->error_us;
    }
    return 0;
}

/* Nonzero: no memory. */
static int check_clocks(const trace_t *traces, int count)
{
    json_t *seen      = json_object(), *event;
    size_t agreements = 0, wrong = 0, worst = 0, index;
    agreement_t *list = NULL;
    double worst_us   = 0;
    int failed        = seen == NULL;

    for (int i = 0; i < count; i++) {
        json_array_foreach(traces[i].events, index, event)
        {
            const char *name = json_string_value(json_object_get(event, "name"));
            const char *cat  = json_string_value(json_object_get(event, "cat"));

            if (!failed && name != NULL && cat != NULL && strcmp(cat, "phase") == 0 && strcmp(name, "agree") == 0) {
                failed = note_agreement(seen, event, &traces[i], &list, &agreements);
            }
        }
    }
    for (size_t i = 0; i < agreements; i++) {
        double by_us = list[i].last_began_us - list[i].first_ended_us - list[i].began_error_us - list[i].ended_error_us;

        if (by_us > 0) {
            wrong++;
            worst    = by_us > worst_us ? i : worst;
            worst_us = by_us > worst_us ? by_us : worst_us;
        }
    }
    fprintf(stderr, "mpath_trace: %d ranks, %zu agreements", count, agreements);
    if (wrong > 0) {
        fprintf(stderr, "; clocks contradict %zu of them, by %.3f us at most: rank %d ends before rank %d comes", wrong,
                worst_us, list[worst].ended_rank, list[worst].began_rank);
    }
    fprintf(stderr, "\n");
    free(list);
    json_decref(seen);
    return failed;
}

static int move_events(trace_t *trace, double zero_us, json_t *all)
{
    size_t index;
    json_t *event;
    int failed = 0;

    json_array_foreach(trace->events, index, event)
    {
        json_t *ts = json_object_get(event, "ts");

        if (ts != NULL) {
            double at = json_number_value(ts) + trace->shift_us - zero_us;

            failed |= json_object_set_new(event, "ts", json_real(at > 0 ? at : 0));
        }
        failed |= json_array_append(all, event);
    }
    return failed;
}

static int by_rank(const void *left, const void *right)
{
    const trace_t *a = left, *b = right;

    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* What is merged; NULL: no memory. */
static json_t *merge(trace_t *traces, int count)
{
    json_t *all = json_array(), *merged = json_array(), *root;
    double zero_us;
    int failed = all == NULL || merged == NULL;

    qsort(traces, (size_t)count, sizeof(*traces), by_rank);
    find_shifts(traces, count);
    zero_us = first_us(traces, count);
    for (int i = 0; i < count && !failed; i++) {
        failed = move_events(&traces[i], zero_us, all) || json_array_append(merged, traces[i].other);
    }
    failed |= check_clocks(traces, count);
    root = json_pack("{s:s, s:{s:s, s:i, s:o}, s:o}", "displayTimeUnit", "ns", "otherData", "format", "mpath-trace",
                     "version", 1, "merged", merged, "traceEvents", all);
    if (failed && root != NULL) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

static int write_to(json_t *root, const char *path)
{
    FILE *out = path != NULL ? fopen(path, "w") : stdout;
    int failed;

    if (out == NULL) {
        mpath_error("%s cannot be written; the merged timeline is lost", path);
        return 1;
    }
    /* fifteen digits: nanoseconds of eleven days */
    failed = json_dumpf(root, out, JSON_COMPACT | JSON_REAL_PRECISION(15)) != 0 || fputc('\n', out) == EOF;
    failed = (out != stdout ? fclose(out) : fflush(out)) != 0 || failed;
    if (failed) {
        mpath_error("%s cannot be written; the merged timeline is not whole", path != NULL ? path : "standard output");
    }
    return failed;
}

static int ranks_differ(const trace_t *traces, int count)
{
    for (int i = 0; i < count; i++) {
        for (int other = 0; other < i; other++) {
            if (traces[i].rank == traces[other].rank) {
                mpath_error("%s and %s are both of rank %d; nothing is written", traces[other].path, traces[i].path,
                            traces[i].rank);
                return 0;
            }
        }
    }
    return 1;
}

static int run_merge(char **paths, int count, const char *output)
{
    trace_t *traces = calloc((size_t)count, sizeof(*traces));
    json_t *root    = NULL;
    int failed      = traces == NULL;

    for (int i = 0; i < count && !failed; i++) {
        failed = trace_load(paths[i], &traces[i]);
    }
    failed = failed || !ranks_differ(traces, count);
    if (!failed) {
        root   = merge(traces, count);
        failed = root == NULL || write_to(root, output);
    }
    json_decref(root);
    for (int i = 0; i < count && traces != NULL; i++) {
        json_decref(traces[i].root);
    }
    free(traces);
    return failed;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {NULL, 0, NULL, 0}};
    const char *output                   = NULL;
    int code;

    while ((code = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
        switch (code) {
        case 'o':
            output = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        case 'V':
            printf("mpath_trace %s\n", MPATH_VERSION);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (argc - optind < 2 || strcmp(argv[optind], "merge") != 0) {
        fputs(usage, stderr);
        return 2;
    }
    return run_merge(argv + optind + 1, argc - optind - 1, output);
}
