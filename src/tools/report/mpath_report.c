/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_report: one page of HTML out of what a job has left, or of a matrix and a machine. Not an MPI program. */
#include "tools/plan/input.h"
#include "tools/plan/svg.h"
#include "tools/report/page.h"
#include "util/file.h"
#include "util/log.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_TEXT 4096
#define TITLE_TEXT 256

typedef struct report {
    plan_input_t input;
    mpath_plan_params_t params;
    int has_plan; /* there is a matrix, or options say what to plan for */
    const char *output;
    const char *title;
    json_t *summary;
    json_t **traces;
    int num_traces;
    char topo[PATH_TEXT], matrix[PATH_TEXT]; /* of coll_mpath_dump_plan */
} report_t;

static const char usage[] = "  -o, --output FILE       the page (report.html); - for standard output\n"
                            "  --title TEXT            what stands above it\n"
                            "  --min-fragment N        smallest piece of a split pair (32k)\n"
                            "  -h, --help              this text\n"
                            "  --version               the version\n";

static void print_help(void)
{
    printf("NAME\n"
           "  mpath_report - one page of HTML: what mpath did in a job, or would do for a matrix\n\n"
           "SYNOPSIS\n"
           "  mpath_report [RUN]... [-o FILE] [OPTION]...\n"
           "  mpath_report [--topo FILE | --preset NAME | --nodes N ...]\n"
           "               [--matrix FILE | --hot H | --zipf S | --moe TOKENS,TOPK,EXPERTS,SKEW] [-o FILE]\n\n"
           "DESCRIPTION\n"
           "  Writes a page that needs nothing beside itself: no server, no network, no script. Of a matrix and a\n"
           "  machine it shows the load of each link by static routes and by the plan, what other policies would\n"
           "  take, and why the hottest pair takes the paths that it takes; of a summary what was carried and what\n"
           "  not; of a trace the timeline. RUN is any of these, known by what is in it:\n"
           "    a summary             of coll_mpath_summary=FILE.json\n"
           "    a trace               of coll_mpath_trace=FILE, best after mpath_trace merge\n"
           "    NAME                  of coll_mpath_dump_plan=NAME: NAME.matrix.txt and NAME.topo.xml\n"
           "    a topology file       XML, as --topo\n"
           "    a matrix              anything else, as --matrix\n\n"
           "OPTIONS\n"
           "%s%s\n",
           plan_input_help, usage);
    printf("EXIT STATUS\n"
           "  0: done; 1: the input cannot be used, or the page not be written; 2: wrong options.\n\n"
           "EXAMPLES\n"
           "  mpath_report --preset hgx-h100 --nodes 8 --hot 0.7 -o load.html\n"
           "  mpath_report summary.json run.trace.json hottest -o run.html\n");
}

/* A file of JSON; NULL: it cannot be read, which has been said. */
static json_t *load_json(const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);

    if (json == NULL) {
        mpath_error("%s: line %d: %s; no page is written", path, error.line, error.text);
    }
    return json;
}

static mpath_status_t take_json(report_t *report, const char *path)
{
    json_t *json = load_json(path), **more;
    const char *format;

    if (json == NULL) {
        return MPATH_ERR_PARAM;
    }
    if (json_is_array(json_object_get(json, "traceEvents"))) {
        more = realloc(report->traces, (size_t)(report->num_traces + 1) * sizeof(*more));
        if (more == NULL) {
            mpath_error("%s: no memory for it", path);
            json_decref(json);
            return MPATH_ERR_NO_MEMORY;
        }
        report->traces                       = more;
        report->traces[report->num_traces++] = json;
        return MPATH_OK;
    }
    format = json_string_value(json_object_get(json, "format"));
    if (format == NULL || strcmp(format, "mpath-summary") != 0 || report->summary != NULL) {
        mpath_error("%s: %s; no page is written", path,
                    report->summary != NULL ? "it is a second summary, and a page has one"
                                            : "it is neither a summary nor a trace of mpath");
        json_decref(json);
        return MPATH_ERR_PARAM;
    }
    report->summary = json;
    return MPATH_OK;
}

/* The first character that is no blank; EOF: there is none, or the file does not open, which *status_p says. */
static int first_character(const char *path, mpath_status_t *status_p)
{
    int character = EOF;
    FILE *file;

    *status_p = mpath_file_open(path, &file);
    if (*status_p != MPATH_OK) {
        mpath_error("%s: %s; no page is written", path,
                    *status_p == MPATH_ERR_PARAM ? "it is no regular file" : strerror(errno));
        return EOF;
    }
    do {
        character = fgetc(file);
    } while (character == ' ' || character == '\t' || character == '\r' || character == '\n');
    fclose(file);
    return character;
}

/* NAME.matrix.txt and NAME.topo.xml, if they are there. */
static int take_dump(report_t *report, const char *name)
{
    snprintf(report->matrix, sizeof(report->matrix), "%s.matrix.txt", name);
    snprintf(report->topo, sizeof(report->topo), "%s.topo.xml", name);
    if (access(name, F_OK) == 0 || access(report->matrix, F_OK) != 0 || access(report->topo, F_OK) != 0) {
        return 0;
    }
    report->input.matrix_path = report->matrix;
    report->input.topo_path   = report->topo;
    report->has_plan          = 1;
    return 1;
}

static mpath_status_t take_run(report_t *report, const char *path)
{
    mpath_status_t status;
    int first;

    if (take_dump(report, path)) {
        return MPATH_OK;
    }
    first = first_character(path, &status);
    if (status != MPATH_OK) {
        return status;
    }
    if (first == '{') {
        return take_json(report, path);
    }
    if (first == '<') {
        report->input.topo_path = path;
    } else {
        report->input.matrix_path = path;
    }
    report->has_plan = 1;
    return MPATH_OK;
}

static void write_head(const report_t *report, FILE *out, char **runs, int num_runs)
{
    char title[TITLE_TEXT];

    snprintf(title, sizeof(title), "%s", report->title != NULL ? report->title : "mpath report");
    page_begin(out, title, MPATH_VERSION);
    fprintf(out, "<header>\n<h1>");
    plan_put_text(out, title);
    fprintf(out, "</h1>\n");
    if (num_runs > 0) {
        fprintf(out, "<p>from");
        for (int i = 0; i < num_runs; i++) {
            fprintf(out, "%s", i > 0 ? ", " : " ");
            plan_put_text(out, runs[i]);
        }
        fprintf(out, "</p>\n");
    }
    fprintf(out, "<nav>");
    if (report->summary != NULL) {
        fprintf(out, "<a href='#summary'>what was done</a>");
    }
    if (report->num_traces > 0) {
        fprintf(out, "<a href='#timeline'>timeline</a>");
    }
    if (report->has_plan) {
        fprintf(
            out,
            "<a href='#load'>load</a><a href='#policies'>what if</a><a href='#links'>links</a><a href='#matrix'>matrix</a>");
    }
    fprintf(out, "</nav>\n</header>\n");
}

static mpath_status_t write_page(const report_t *report, FILE *out, char **runs, int num_runs)
{
    mpath_status_t status = MPATH_OK;

    write_head(report, out, runs, num_runs);
    if (report->summary != NULL) {
        report_summary(out, report->summary);
    }
    if (report->num_traces > 0) {
        status = report_trace(out, report->traces, report->num_traces);
    }
    if (status == MPATH_OK && report->has_plan) {
        status = report_plan(out, &report->input, &report->params);
    }
    page_end(out);
    return status;
}

/* Written beside its place first, so that a page that fails leaves nothing, and none of before is lost. */
static mpath_status_t write_file(const report_t *report, char **runs, int num_runs)
{
    int is_stdout = strcmp(report->output, "-") == 0, failed, fd = -1;
    char beside[PATH_TEXT];
    mpath_status_t status;
    FILE *out = stdout;

    if (!is_stdout) {
        fd  = mpath_file_create_beside(report->output, beside, sizeof(beside));
        out = fd >= 0 ? fdopen(fd, "w") : NULL;
        if (out == NULL) {
            mpath_error("page %s: %s; it is not written", report->output, strerror(errno));
            if (fd >= 0) {
                close(fd);
                unlink(beside);
            }
            return MPATH_ERR_IO;
        }
    }
    status = write_page(report, out, runs, num_runs);
    failed = fflush(out) != 0 || ferror(out);
    if (!is_stdout) {
        failed = (fchmod(fd, 0644) != 0) || failed;
        failed = (fclose(out) != 0) || failed;
        failed = failed || (status == MPATH_OK && rename(beside, report->output) != 0);
    }
    if (failed && status == MPATH_OK) {
        mpath_error("page %s: %s; it is not written", report->output, strerror(errno));
        status = MPATH_ERR_IO;
    }
    if (status != MPATH_OK && !is_stdout) {
        unlink(beside);
    }
    return status;
}

/* 1: go on; 0: done; -1: wrong. */
static int parse_options(int argc, char **argv, report_t *report)
{
    static const struct option names[] = {
        PLAN_INPUT_OPTIONS,     {"min-fragment", 1, NULL, 'f'}, {"title", 1, NULL, 'T'}, {"output", 1, NULL, 'o'},
        {"help", 0, NULL, 'h'}, {"version", 0, NULL, 'X'},      {NULL, 0, NULL, 0}};
    char given[128] = "";
    int option, index = 0, good;

    while ((option = getopt_long(argc, argv, "ho:", names, &index)) != -1) {
        if (option == '?') {
            fprintf(stderr, "mpath_report: see mpath_report --help\n");
            return -1;
        }
        if (option == 'h') {
            print_help();
            return 0;
        }
        if (option == 'X') {
            printf("mpath_report %s\n", MPATH_VERSION);
            return 0;
        }
        if (option == 'o') {
            report->output = optarg;
            continue;
        }
        if (option == 'T') {
            report->title = optarg;
            continue;
        }
        given[option & 127] = 1;
        good                = option == 'f' ? plan_parse_bytes(optarg, &report->params.min_fragment_bytes)
                                            : plan_input_option(&report->input, option, optarg);
        report->has_plan |= option != 'f';
        if (good <= 0) {
            fprintf(stderr, "mpath_report: --%s does not take '%s'; see mpath_report --help\n", names[index].name,
                    optarg);
            return -1;
        }
    }
    return plan_input_fits(&report->input, "mpath_report", names, given) ? 1 : -1;
}

int main(int argc, char **argv)
{
    report_t report       = {.output = "report.html"};
    mpath_status_t status = MPATH_OK;
    int go_on;

    plan_input_init(&report.input);
    mpath_plan_params_init(&report.params);
    go_on = parse_options(argc, argv, &report);
    if (go_on <= 0) {
        return go_on < 0 ? 2 : 0;
    }
    if (optind == argc && !report.has_plan) {
        fprintf(stderr, "mpath_report: there is nothing to report on; see mpath_report --help\n");
        return 2;
    }
    for (int i = optind; i < argc && status == MPATH_OK; i++) {
        status = take_run(&report, argv[i]);
    }
    if (status == MPATH_OK) {
        status = write_file(&report, argv + optind, argc - optind);
    }
    for (int i = 0; i < report.num_traces; i++) {
        json_decref(report.traces[i]);
    }
    free(report.traces);
    if (report.summary != NULL) {
        json_decref(report.summary);
    }
    return status != MPATH_OK;
}
