/* SPDX-License-Identifier: BSD-3-Clause */
/* The summary of a job (coll_mpath_summary=FILE.json) as a section of the page. Keys that are missing are left out. */
#include "tools/plan/svg.h"
#include "tools/report/page.h"

#include "util/number.h"

#include <math.h>
#include <string.h>

#define RANKS_SHOWN 32
#define RAILS_SHOWN 64

static const char *shown(double value, const char *unit, char text[MPATH_NUMBER_SHOWN])
{
    mpath_number_show(value, unit, text);
    return text;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

/* "node0", or its number where the hosts are not told. */
static void put_node(FILE *out, const json_t *summary, const json_t *item)
{
    json_int_t node   = json_integer_value(json_object_get(item, "node"));
    const json_t *job = json_object_get(summary, "job");
    const char *host  = json_string_value(json_array_get(json_object_get(job, "hosts"), (size_t)node));

    if (host != NULL) {
        plan_put_text(out, host);
    } else {
        fprintf(out, "node %lld", (long long)node);
    }
}

static void show_job(FILE *out, const json_t *summary)
{
    const json_t *job = json_object_get(summary, "job"), *list = json_object_get(summary, "collectives"), *item;
    double carried = 0, left = 0, failed = 0, repeated = 0, predicted = 0, taken = 0;
    char text[MPATH_NUMBER_SHOWN], other[MPATH_NUMBER_SHOWN], note[96];
    size_t i;

    json_array_foreach(list, i, item)
    {
        const json_t *calls = json_object_get(item, "calls"), *times = json_object_get(item, "predicted");

        carried += number_of(calls, "carried");
        left += number_of(calls, "left");
        failed += number_of(calls, "failed");
        repeated += number_of(calls, "repeated");
        predicted += number_of(times, "static_s");
        taken += number_of(times, "taken_s");
    }
    page_figures(out);
    snprintf(text, sizeof(text), "%.0f", number_of(job, "ranks"));
    snprintf(note, sizeof(note), "on %.0f node%s", number_of(job, "nodes"), number_of(job, "nodes") == 1 ? "" : "s");
    page_figure(out, "ranks", text, note);
    page_figure(out, "from first call to the end", shown(number_of(job, "seconds"), "s", text),
                text_of(summary, "mpath"));
    snprintf(text, sizeof(text), "%.0f", carried);
    snprintf(note, sizeof(note), "%.0f left to the previous functions", left);
    page_figure(out, "calls carried", text, note);
    if (failed > 0 || repeated > 0) {
        snprintf(text, sizeof(text), "%.0f", failed);
        snprintf(note, sizeof(note), "%.0f repetition%s after rails had failed", repeated, repeated == 1 ? "" : "s");
        page_figure(out, "calls failed", text, note);
    }
    if (taken > 0) {
        snprintf(text, sizeof(text), "%.2f x", predicted / taken);
        snprintf(note, sizeof(note), "%s predicted", shown(predicted, "s", other));
        page_figure(out, "of static routes' speed", text, note);
    }
    page_figures_end(out);
    if (json_array_size(json_object_get(job, "missing")) > 0) {
        fprintf(out, "<p class='note'>%zu rank%s sent nothing for this summary.</p>\n",
                json_array_size(json_object_get(job, "missing")),
                json_array_size(json_object_get(job, "missing")) == 1 ? "" : "s");
    }
}

static void show_collectives(FILE *out, const json_t *list)
{
    const json_t *item;
    char text[MPATH_NUMBER_SHOWN];
    size_t i;

    fprintf(out, "<h3>Calls</h3>\n<div class='wide'><table>\n<tr><th>collective<th>memory<th class='n'>carried<th "
                 "class='n'>left<th class='n'>failed<th class='n'>repeated<th>algorithms<th class='n'>bytes carried<th "
                 "class='n'>static, predicted<th class='n'>mpath, predicted<th class='n'>taken</tr>\n");
    json_array_foreach(list, i, item)
    {
        const json_t *calls = json_object_get(item, "calls"), *times = json_object_get(item, "predicted");
        const char *name, *between                                   = "";
        json_t *count;

        fprintf(out, "<tr><td>");
        plan_put_text(out, text_of(item, "collective"));
        fprintf(out, "<td>");
        plan_put_text(out, text_of(item, "memory"));
        fprintf(out, "<td class='n'>%.0f<td class='n'>%.0f<td class='n'>%.0f<td class='n'>%.0f<td>",
                number_of(calls, "carried"), number_of(calls, "left"), number_of(calls, "failed"),
                number_of(calls, "repeated"));
        json_object_foreach(json_object_get(item, "algorithms"), name, count)
        {
            fprintf(out, "%s", between);
            plan_put_text(out, name);
            fprintf(out, " %.0f", json_number_value(count));
            between = ", ";
        }
        fprintf(out, "<td class='n'>%s", shown(number_of(json_object_get(item, "sent_bytes"), "carried"), "B", text));
        if (number_of(times, "calls") > 0) {
            fprintf(out, "<td class='n'>%s", shown(number_of(times, "static_s"), "s", text));
            fprintf(out, "<td class='n'>%s", shown(number_of(times, "mpath_s"), "s", text));
            fprintf(out, "<td class='n'>%s</tr>\n", shown(number_of(times, "taken_s"), "s", text));
        } else {
            fprintf(out, "<td class='n'>-<td class='n'>-<td class='n'>-</tr>\n");
        }
    }
    fprintf(out, "</table></div>\n");
}

static void show_reasons(FILE *out, const json_t *list)
{
    const json_t *item, *reason;
    size_t i, k, shown_rows = 0;

    json_array_foreach(list, i, item)
    {
        json_array_foreach(json_object_get(item, "left_because"), k, reason)
        {
            if (shown_rows++ == 0) {
                fprintf(out, "<h3>Why calls were left to the previous functions</h3>\n<div class='wide'><table>\n"
                             "<tr><th>collective<th class='n'>calls<th>why</tr>\n");
            }
            fprintf(out, "<tr><td>");
            plan_put_text(out, text_of(item, "collective"));
            fprintf(out, " ");
            plan_put_text(out, text_of(item, "memory"));
            fprintf(out, "<td class='n'>%.0f<td>", number_of(reason, "calls"));
            plan_put_text(out,
                          text_of(reason, "text")[0] != '\0' ? text_of(reason, "text") : text_of(reason, "reason"));
            fprintf(out, "</tr>\n");
        }
    }
    if (shown_rows > 0) {
        fprintf(out, "</table></div>\n");
    }
}

static void show_rails(FILE *out, const json_t *summary)
{
    const json_t *list = json_object_get(summary, "rails"), *rail;
    char text[MPATH_NUMBER_SHOWN];
    double most = 0;
    size_t i;

    json_array_foreach(list, i, rail)
    {
        most = fmax(most, fmax(number_of(rail, "sent_bytes"), number_of(rail, "received_bytes")));
    }
    if (json_array_size(list) == 0) {
        return;
    }
    fprintf(out, "<h3>Rails</h3>\n<div class='wide'><table>\n<tr><th>node<th>rail<th>sent<th>received<th "
                 "class='n'>failures</tr>\n");
    json_array_foreach(list, i, rail)
    {
        if (i == RAILS_SHOWN) {
            fprintf(out, "<tr><td colspan='5'>and %zu more</tr>\n", json_array_size(list) - RAILS_SHOWN);
            break;
        }
        fprintf(out, "<tr><td>");
        put_node(out, summary, rail);
        fprintf(out, "<td>");
        plan_put_text(out, text_of(rail, "rail"));
        fprintf(out, "<td class='w'>");
        page_bar(out, most > 0 ? number_of(rail, "sent_bytes") / most : 0,
                 shown(number_of(rail, "sent_bytes"), "B", text));
        fprintf(out, "<td class='w'>");
        page_bar(out, most > 0 ? number_of(rail, "received_bytes") / most : 0,
                 shown(number_of(rail, "received_bytes"), "B", text));
        fprintf(out, "<td class='n'>%.0f</tr>\n", number_of(rail, "failures"));
    }
    fprintf(out, "</table></div>\n");
}

static void show_ranks(FILE *out, const json_t *summary)
{
    const json_t *list = json_object_get(summary, "ranks"), *rank;
    char text[MPATH_NUMBER_SHOWN];
    double most = 0;
    size_t i;

    json_array_foreach(list, i, rank)
    {
        most = fmax(most, fmax(number_of(rank, "sent_bytes"), number_of(rank, "relayed_bytes")));
    }
    if (json_array_size(list) == 0) {
        return;
    }
    fprintf(
        out,
        "<h3>Ranks</h3>\n<div class='wide'><table>\n<tr><th class='n'>rank<th>node<th>sent<th>relayed for others<th "
        "class='n'>agreeing<th class='n'>planning<th class='n'>moving</tr>\n");
    json_array_foreach(list, i, rank)
    {
        if (i == RANKS_SHOWN) {
            fprintf(out, "<tr><td colspan='7'>and %zu more</tr>\n", json_array_size(list) - RANKS_SHOWN);
            break;
        }
        fprintf(out, "<tr><td class='n'>%.0f<td>", number_of(rank, "rank"));
        put_node(out, summary, rank);
        fprintf(out, "<td class='w'>");
        page_bar(out, most > 0 ? number_of(rank, "sent_bytes") / most : 0,
                 shown(number_of(rank, "sent_bytes"), "B", text));
        fprintf(out, "<td class='w'>");
        page_bar(out, most > 0 ? number_of(rank, "relayed_bytes") / most : 0,
                 shown(number_of(rank, "relayed_bytes"), "B", text));
        fprintf(out, "<td class='n'>%s", shown(number_of(rank, "agree_s"), "s", text));
        fprintf(out, "<td class='n'>%s", shown(number_of(rank, "plan_s"), "s", text));
        fprintf(out, "<td class='n'>%s</tr>\n", shown(number_of(rank, "move_s"), "s", text));
    }
    fprintf(out, "</table></div>\n");
}

void report_summary(FILE *out, const json_t *summary)
{
    const json_t *collectives = json_object_get(summary, "collectives");

    page_section(out, "summary", "What mpath did in the job");
    show_job(out, summary);
    show_collectives(out, collectives);
    show_reasons(out, collectives);
    show_rails(out, summary);
    show_ranks(out, summary);
    page_section_end(out);
}
