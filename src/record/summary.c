/* SPDX-License-Identifier: BSD-3-Clause */
/* Adds the reports of a job's processes up and writes what has become of it. */
#include "record/summary.h"

#include "util/log.h"
#include "util/number.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define REPORT_MAGIC (UINT64_C(0x6d70617468723031) ^ sizeof(mpath_report_t))

/* A NIC of a node: what all processes that drive it have put on it. */
typedef struct summary_rail {
    int node;
    mpath_report_rail_t rail;
} summary_rail_t;

typedef struct summary_rank {
    int node; /* -1: it has not reported */
    uint64_t sent_bytes, relayed_bytes, agree_ns, plan_ns, move_ns;
} summary_rank_t;

struct mpath_summary {
    const char *version;
    int num_ranks, num_hosts;
    size_t num_rails, max_rails;
    uint64_t job_ns; /* of rank 0 */
    char (*hosts)[MPATH_RECORD_NAME_MAX];
    summary_rail_t *rails;
    summary_rank_t *ranks;
    mpath_report_row_t rows[MPATH_RECORD_COLLECTIVES][MPATH_RECORD_MEMORIES];
};

static void report_rails(mpath_report_t *report)
{
    for (int i = 0; i < MPATH_PAGE_RAILS; i++) {
        const mpath_page_rail_t *rail = &mpath_page()->rails[i];
        mpath_report_rail_t *to       = &report->rails[report->num_rails];

        if (!atomic_load(&rail->is_used)) {
            continue;
        }
        report->num_rails++;

        memcpy(to->name, rail->name, sizeof(to->name));
        to->number         = rail->number;
        to->sent_bytes     = atomic_load(&rail->sent_bytes);
        to->received_bytes = atomic_load(&rail->received_bytes);
        to->failures       = atomic_load(&rail->failures);
    }
}

static void report_row(const mpath_record_row_t *first, const mpath_record_row_t *all, mpath_report_row_t *row)
{
    row->carried       = mpath_count_get(&first->carried);
    row->left          = mpath_count_get(&first->left);
    row->failed        = mpath_count_get(&first->failed);
    row->repeated      = mpath_count_get(&first->repeated);
    row->predicted     = mpath_count_get(&first->predicted);
    row->static_ns     = mpath_count_get(&first->static_ns);
    row->mpath_ns      = mpath_count_get(&first->mpath_ns);
    row->taken_ns      = mpath_count_get(&first->taken_ns);
    row->carried_bytes = mpath_count_get(&all->carried_bytes);
    row->left_bytes    = mpath_count_get(&all->left_bytes);
    for (int i = 0; i < MPATH_RECORD_ALGORITHMS; i++) {
        row->algorithms[i] = mpath_count_get(&first->algorithms[i]);
    }
    for (int i = 0; i < MPATH_REASONS; i++) {
        row->reasons[i] = mpath_count_get(&first->reasons[i]);
    }
}

void mpath_report_make(int rank, mpath_report_t *report)
{
    mpath_record_row_t first[MPATH_RECORD_COLLECTIVES][MPATH_RECORD_MEMORIES],
        all[MPATH_RECORD_COLLECTIVES][MPATH_RECORD_MEMORIES];
    uint64_t began_ns = mpath_record_began_ns();

    memset(report, 0, sizeof(*report));
    report->magic  = REPORT_MAGIC;
    report->rank   = rank;
    report->job_ns = began_ns > 0 ? mpath_time_ns() - began_ns : 0;
    mpath_record_host(report->host);
    report_rails(report);
    mpath_record_sum(1, first);
    mpath_record_sum(0, all);
    for (int collective = 0; collective < MPATH_RECORD_COLLECTIVES; collective++) {
        for (int memory = 0; memory < MPATH_RECORD_MEMORIES; memory++) {
            report_row(&first[collective][memory], &all[collective][memory], &report->rows[collective][memory]);
        }
    }
}

mpath_status_t mpath_summary_create(int num_ranks, const char *version, mpath_summary_t **summary_p)
{
    mpath_summary_t *summary = calloc(1, sizeof(*summary));

    if (summary != NULL) {
        summary->version   = version;
        summary->num_ranks = num_ranks;
        summary->ranks     = calloc((size_t)num_ranks, sizeof(*summary->ranks));
        summary->hosts     = calloc((size_t)num_ranks, sizeof(*summary->hosts));
    }
    if (summary == NULL || summary->ranks == NULL || summary->hosts == NULL) {
        mpath_error("no memory for the summary of %d ranks; there is none", num_ranks);
        mpath_summary_destroy(summary);
        return MPATH_ERR_NO_MEMORY;
    }
    for (int rank = 0; rank < num_ranks; rank++) {
        summary->ranks[rank].node = -1;
    }
    *summary_p = summary;
    return MPATH_OK;
}

void mpath_summary_destroy(mpath_summary_t *summary)
{
    if (summary != NULL) {
        free(summary->rails);
        free(summary->hosts);
        free(summary->ranks);
        free(summary);
    }
}

static int summary_node(mpath_summary_t *summary, const char *host)
{
    int node = 0;

    while (node < summary->num_hosts && strcmp(summary->hosts[node], host) != 0) {
        node++;
    }
    if (node == summary->num_hosts) {
        memcpy(summary->hosts[summary->num_hosts++], host, MPATH_RECORD_NAME_MAX);
    }
    return node;
}

static mpath_status_t summary_add_rail(mpath_summary_t *summary, int node, const mpath_report_rail_t *rail)
{
    summary_rail_t *at = summary->rails, *more;

    while (at < summary->rails + summary->num_rails &&
           (at->node != node || at->rail.number != rail->number || strcmp(at->rail.name, rail->name) != 0)) {
        at++;
    }
    if (at == summary->rails + summary->num_rails) {
        if (summary->num_rails == summary->max_rails) {
            more = realloc(summary->rails, (2 * summary->max_rails + 16) * sizeof(*more));
            if (more == NULL) {
                mpath_error("no memory for the summary's rails; some are missing in it");
                return MPATH_ERR_NO_MEMORY;
            }
            summary->rails     = more;
            summary->max_rails = 2 * summary->max_rails + 16;
        }
        summary->rails[summary->num_rails++] = (summary_rail_t){.node = node, .rail = *rail};
        return MPATH_OK;
    }
    at->rail.sent_bytes += rail->sent_bytes;
    at->rail.received_bytes += rail->received_bytes;
    /* All processes of a node hear of a failure. */
    at->rail.failures = at->rail.failures > rail->failures ? at->rail.failures : rail->failures;
    return MPATH_OK;
}

static void summary_add_rows(mpath_summary_t *summary, const mpath_report_t *report)
{
    uint64_t *to         = (uint64_t *)(void *)summary->rows;
    const uint64_t *from = (const uint64_t *)(const void *)report->rows;

    for (size_t word = 0; word < sizeof(summary->rows) / sizeof(*to); word++) {
        to[word] += from[word];
    }
}

static int is_terminated(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static int report_is_sound(const mpath_summary_t *summary, const mpath_report_t *report)
{
    int sound = report->magic == REPORT_MAGIC && report->rank >= 0 && report->rank < summary->num_ranks &&
                report->num_rails <= MPATH_PAGE_RAILS && is_terminated(report->host, sizeof(report->host));

    for (uint64_t i = 0; sound && i < report->num_rails; i++) {
        sound = is_terminated(report->rails[i].name, sizeof(report->rails[i].name));
    }
    return sound && summary->ranks[report->rank].node < 0;
}

mpath_status_t mpath_summary_add(mpath_summary_t *summary, const mpath_report_t *report)
{
    mpath_status_t status = MPATH_OK;
    summary_rank_t *rank;

    if (!report_is_sound(summary, report)) {
        mpath_warn("what a process has counted is no report of this version of mpath; it is missing in the summary");
        return MPATH_ERR_PARAM;
    }
    rank  = &summary->ranks[report->rank];
    *rank = (summary_rank_t){.node          = summary_node(summary, report->host),
                             .relayed_bytes = report->relayed_bytes,
                             .agree_ns      = report->agree_ns,
                             .plan_ns       = report->plan_ns,
                             .move_ns       = report->move_ns};
    for (int collective = 0; collective < MPATH_RECORD_COLLECTIVES; collective++) {
        for (int memory = 0; memory < MPATH_RECORD_MEMORIES; memory++) {
            rank->sent_bytes += report->rows[collective][memory].carried_bytes;
        }
    }
    if (report->rank == 0) {
        summary->job_ns = report->job_ns;
    }
    summary_add_rows(summary, report);
    for (uint64_t i = 0; i < report->num_rails && status == MPATH_OK; i++) {
        status = summary_add_rail(summary, rank->node, &report->rails[i]);
    }
    return status;
}

/* -- writing -- */

static int row_has_calls(const mpath_report_row_t *row)
{
    return (row->carried | row->left | row->failed) != 0;
}

/* Reasons of a row by falling number of calls; their number. */
static int row_reasons(const mpath_report_row_t *row, int order[MPATH_REASONS])
{
    int count = 0;

    for (int reason = 0; reason < MPATH_REASONS; reason++) {
        int at = count;

        if (row->reasons[reason] == 0) {
            continue;
        }
        while (at > 0 && row->reasons[order[at - 1]] < row->reasons[reason]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = reason;
        count++;
    }
    return count;
}

/* Calls f(row, collective, memory, out) for each row with calls. */
#define FOR_EACH_ROW(_summary, _row)                                                                                   \
    for (unsigned collective = 0; collective < MPATH_RECORD_COLLECTIVES; collective++)                                 \
        for (unsigned memory = 0; memory < MPATH_RECORD_MEMORIES; memory++)                                            \
            for (const mpath_report_row_t *_row            = &(_summary)->rows[collective][memory];                    \
                 _row != NULL && row_has_calls(_row); _row = NULL)

static void row_name(unsigned collective, unsigned memory, char *text, size_t size)
{
    snprintf(text, size, "%s %s", mpath_record_collective_name(collective), mpath_record_memory_name(memory));
}

static void text_seconds(uint64_t ns, int known, char text[MPATH_NUMBER_SHOWN])
{
    if (known) {
        mpath_number_show((double)ns / 1e9, "s", text);
    } else {
        strcpy(text, "-");
    }
}

static void text_calls(const mpath_summary_t *summary, FILE *out)
{
    int count = 0;

    fprintf(out, "%-24s%10s%10s%8s%10s%8s%12s%12s%12s\n", "calls", "carried", "left", "failed", "repeated", "pred.",
            "static", "mpath", "taken");
    FOR_EACH_ROW(summary, row)
    {
        char name[64], times[3][MPATH_NUMBER_SHOWN];
        const uint64_t ns[3] = {row->static_ns, row->mpath_ns, row->taken_ns};

        for (int i = 0; i < 3; i++) {
            text_seconds(ns[i], row->predicted > 0, times[i]);
        }
        row_name(collective, memory, name, sizeof(name));
        fprintf(out, "  %-22s%10llu%10llu%8llu%10llu%8llu%12s%12s%12s\n", name, (unsigned long long)row->carried,
                (unsigned long long)row->left, (unsigned long long)row->failed, (unsigned long long)row->repeated,
                (unsigned long long)row->predicted, times[0], times[1], times[2]);
        count++;
    }
    if (count == 0) {
        fprintf(out, "  none that mpath may carry\n");
    }
}

static void text_reasons(const mpath_summary_t *summary, FILE *out)
{
    int order[MPATH_REASONS], has_title = 0;

    FOR_EACH_ROW(summary, row)
    {
        int count = row_reasons(row, order);
        char name[64];

        row_name(collective, memory, name, sizeof(name));
        for (int i = 0; i < count; i++) {
            fprintf(out, "%s  %-22s%10llu  %s (%s)\n",
                    has_title ? "" : "left to the functions that mpath replaces, and why\n", name,
                    (unsigned long long)row->reasons[order[i]], mpath_reason_text(order[i]),
                    mpath_reason_key(order[i]));
            has_title = 1;
        }
    }
}

static void text_bytes(const mpath_summary_t *summary, FILE *out)
{
    FOR_EACH_ROW(summary, row)
    {
        char name[64], carried[MPATH_NUMBER_SHOWN], left[MPATH_NUMBER_SHOWN];

        row_name(collective, memory, name, sizeof(name));
        mpath_number_show((double)row->carried_bytes, "B", carried);
        mpath_number_show((double)row->left_bytes, "B", left);
        fprintf(out, "bytes of %-15s carried %s, left %s\n", name, carried, left);
    }
}

static void text_times(const mpath_summary_t *summary, FILE *out)
{
    const summary_rank_t *rank = &summary->ranks[0];
    char agree[MPATH_NUMBER_SHOWN], plan[MPATH_NUMBER_SHOWN], move[MPATH_NUMBER_SHOWN];

    if (rank->node >= 0) {
        text_seconds(rank->agree_ns, 1, agree);
        text_seconds(rank->plan_ns, 1, plan);
        text_seconds(rank->move_ns, 1, move);
        fprintf(out, "time of rank 0          agree %s, plan %s, move %s\n", agree, plan, move);
    }
}

static void text_rails(const mpath_summary_t *summary, FILE *out)
{
    if (summary->num_rails > 0) {
        fprintf(out, "%-32s%12s%12s%10s\n", "rails", "sent", "received", "failures");
    }
    for (size_t i = 0; i < summary->num_rails; i++) {
        const summary_rail_t *rail = &summary->rails[i];
        char name[2 * MPATH_RECORD_NAME_MAX], sent[MPATH_NUMBER_SHOWN], received[MPATH_NUMBER_SHOWN];

        snprintf(name, sizeof(name), "%s %s (%d)", summary->hosts[rail->node], rail->rail.name, (int)rail->rail.number);
        mpath_number_show((double)rail->rail.sent_bytes, "B", sent);
        mpath_number_show((double)rail->rail.received_bytes, "B", received);
        fprintf(out, "  %-30s%12s%12s%10llu\n", name, sent, received, (unsigned long long)rail->rail.failures);
    }
}

static void text_missing(const mpath_summary_t *summary, FILE *out)
{
    const char *before = "without what these ranks have counted:";

    for (int rank = 0; rank < summary->num_ranks; rank++) {
        if (summary->ranks[rank].node < 0) {
            fprintf(out, "%s %d", before, rank);
            before = "";
        }
    }
    if (before[0] == '\0') {
        fprintf(out, "\n");
    }
}

void mpath_summary_write_text(const mpath_summary_t *summary, FILE *out)
{
    char seconds[MPATH_NUMBER_SHOWN];

    text_seconds(summary->job_ns, 1, seconds);
    fprintf(out, "mpath %s in this job: %d ranks on %d nodes, %s\n", summary->version, summary->num_ranks,
            summary->num_hosts, seconds);
    text_calls(summary, out);
    text_reasons(summary, out);
    text_bytes(summary, out);
    text_times(summary, out);
    text_rails(summary, out);
    text_missing(summary, out);
}

typedef struct summary_seconds {
    char text[MPATH_NUMBER_SECONDS];
} summary_seconds_t;

static summary_seconds_t seconds_of(uint64_t ns)
{
    summary_seconds_t seconds;

    mpath_number_seconds(ns, seconds.text);
    return seconds;
}

static void json_algorithms(const mpath_report_row_t *row, FILE *out)
{
    const char *before = "";

    fprintf(out, "      \"algorithms\": {");
    for (unsigned i = 0; i < MPATH_RECORD_ALGORITHMS; i++) {
        if (row->algorithms[i] > 0) {
            fprintf(out, "%s\"%s\": %llu", before, mpath_record_algorithm_name(i),
                    (unsigned long long)row->algorithms[i]);
            before = ", ";
        }
    }
    fprintf(out, "},\n");
}

static void json_reasons(const mpath_report_row_t *row, FILE *out)
{
    int order[MPATH_REASONS], count = row_reasons(row, order);

    fprintf(out, "      \"left_because\": [");
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s{\"reason\": \"%s\", \"text\": ", i > 0 ? ", " : "", mpath_reason_key(order[i]));
        mpath_json_string(out, mpath_reason_text(order[i]));
        fprintf(out, ", \"calls\": %llu}", (unsigned long long)row->reasons[order[i]]);
    }
    fprintf(out, "],\n");
}

static void json_rows(const mpath_summary_t *summary, FILE *out)
{
    const char *before = "";

    fprintf(out, "  \"collectives\": [");
    FOR_EACH_ROW(summary, row)
    {
        fprintf(out, "%s\n    {\"collective\": \"%s\", \"memory\": \"%s\",\n", before,
                mpath_record_collective_name(collective), mpath_record_memory_name(memory));
        fprintf(out, "      \"calls\": {\"carried\": %llu, \"left\": %llu, \"failed\": %llu, \"repeated\": %llu},\n",
                (unsigned long long)row->carried, (unsigned long long)row->left, (unsigned long long)row->failed,
                (unsigned long long)row->repeated);
        json_algorithms(row, out);
        json_reasons(row, out);
        fprintf(out, "      \"sent_bytes\": {\"carried\": %llu, \"left\": %llu},\n",
                (unsigned long long)row->carried_bytes, (unsigned long long)row->left_bytes);
        fprintf(out, "      \"predicted\": {\"calls\": %llu, \"static_s\": %s, \"mpath_s\": %s, \"taken_s\": %s}}",
                (unsigned long long)row->predicted, seconds_of(row->static_ns).text, seconds_of(row->mpath_ns).text,
                seconds_of(row->taken_ns).text);
        before = ",";
    }
    fprintf(out, "],\n");
}

static void json_job(const mpath_summary_t *summary, FILE *out)
{
    const char *before = "";

    fprintf(out, "  \"job\": {\"ranks\": %d, \"nodes\": %d, \"seconds\": %s,\n    \"hosts\": [", summary->num_ranks,
            summary->num_hosts, seconds_of(summary->job_ns).text);
    for (int node = 0; node < summary->num_hosts; node++) {
        fprintf(out, "%s", node > 0 ? ", " : "");
        mpath_json_string(out, summary->hosts[node]);
    }
    fprintf(out, "],\n    \"missing\": [");
    for (int rank = 0; rank < summary->num_ranks; rank++) {
        if (summary->ranks[rank].node < 0) {
            fprintf(out, "%s%d", before, rank);
            before = ", ";
        }
    }
    fprintf(out, "]},\n");
}

static void json_rails(const mpath_summary_t *summary, FILE *out)
{
    fprintf(out, "  \"rails\": [");
    for (size_t i = 0; i < summary->num_rails; i++) {
        const summary_rail_t *rail = &summary->rails[i];

        fprintf(out, "%s\n    {\"node\": %d, \"rail\": ", i > 0 ? "," : "", rail->node);
        mpath_json_string(out, rail->rail.name);
        fprintf(out, ", \"number\": %lld, \"sent_bytes\": %llu, \"received_bytes\": %llu, \"failures\": %llu}",
                (long long)rail->rail.number, (unsigned long long)rail->rail.sent_bytes,
                (unsigned long long)rail->rail.received_bytes, (unsigned long long)rail->rail.failures);
    }
    fprintf(out, "],\n");
}

static void json_ranks(const mpath_summary_t *summary, FILE *out)
{
    const char *before = "";

    fprintf(out, "  \"ranks\": [");
    for (int i = 0; i < summary->num_ranks; i++) {
        const summary_rank_t *rank = &summary->ranks[i];

        if (rank->node >= 0) {
            fprintf(out,
                    "%s\n    {\"rank\": %d, \"node\": %d, \"sent_bytes\": %llu, \"relayed_bytes\": %llu, \"agree_s\": "
                    "%s, \"plan_s\": %s, \"move_s\": %s}",
                    before, i, rank->node, (unsigned long long)rank->sent_bytes,
                    (unsigned long long)rank->relayed_bytes, seconds_of(rank->agree_ns).text,
                    seconds_of(rank->plan_ns).text, seconds_of(rank->move_ns).text);
            before = ",";
        }
    }
    fprintf(out, "]\n");
}

void mpath_summary_write_json(const mpath_summary_t *summary, FILE *out)
{
    fprintf(out, "{\n  \"format\": \"mpath-summary\", \"version\": 1, \"mpath\": ");
    mpath_json_string(out, summary->version);
    fprintf(out, ",\n");
    json_job(summary, out);
    json_rows(summary, out);
    json_rails(summary, out);
    json_ranks(summary, out);
    fprintf(out, "}\n");
}
