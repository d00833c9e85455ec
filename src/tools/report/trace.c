/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The timeline of a job (coll_mpath_trace) as a section of the page: all of it with a row for each rank, and the longest call
 * with what went over each lane. For more there are programs that read the same files.
 */
#include "tools/plan/svg.h"
#include "tools/report/page.h"

#include "util/log.h"
#include "util/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 1000 /* of the axis, in pixels */
#define LABEL 130
#define ROW 16
#define LANE_ROW 11
#define TOP 24
#define ROWS_SHOWN 128 /* ranks of the whole */
#define RANKS_ZOOMED 8 /* of the longest call */
#define CHUNKS_SHOWN 4000
#define CALLS_SHOWN 12
#define LANES_SHOWN 24 /* of a rank */

typedef enum event_kind { EVENT_CALL, EVENT_PHASE, EVENT_CHUNK } event_kind_t;

typedef struct trace_event {
    event_kind_t kind;
    int rank, row; /* row: `tid` */
    double begin_us, end_us;
    const char *name; /* the traces own it */
    const json_t *args;
} trace_event_t;

typedef struct timeline {
    FILE *out;
    json_t *const *traces;
    int num_traces;
    trace_event_t *events;
    size_t count;
    int num_ranks; /* largest rank + 1 */
    double begin_us, end_us;
} timeline_t;

static const struct {
    const char *name, *colour;
} phases[] = {
    {"setup", "#8c6bb1"}, {"agree", "#e0a100"}, {"plan", "#2e9e8f"}, {"move", "#2f78c4"}, {"settle", "#c2543d"}};

static const char *phase_colour(const char *name)
{
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        if (strcmp(name, phases[i].name) == 0) {
            return phases[i].colour;
        }
    }
    return "#7a868d";
}

static const char *shown(double value, const char *unit, char text[MPATH_NUMBER_SHOWN])
{
    mpath_number_show(value, unit, text);
    return text;
}

/* Reading: calls, phases and chunks with a duration; the rest is not drawn. */
static int event_read(const json_t *item, trace_event_t *event)
{
    const char *category = json_string_value(json_object_get(item, "cat"));
    const char *phase    = json_string_value(json_object_get(item, "ph"));

    if (category == NULL || phase == NULL || strcmp(phase, "X") != 0) {
        return 0;
    }
    *event        = (trace_event_t){.kind     = strcmp(category, "call") == 0    ? EVENT_CALL
                                                : strcmp(category, "phase") == 0 ? EVENT_PHASE
                                                                                 : EVENT_CHUNK,
                                    .rank     = (int)json_integer_value(json_object_get(item, "pid")),
                                    .row      = (int)json_integer_value(json_object_get(item, "tid")),
                                    .begin_us = json_number_value(json_object_get(item, "ts")),
                                    .name     = json_string_value(json_object_get(item, "name")),
                                    .args     = json_object_get(item, "args")};
    event->end_us = event->begin_us + json_number_value(json_object_get(item, "dur"));
    return event->name != NULL && event->rank >= 0 && event->rank < 1 << 20 && event->row >= 0;
}

static int compare_events(const void *one, const void *other)
{
    const trace_event_t *a = one, *b = other;

    return a->rank != b->rank          ? a->rank - b->rank
           : a->begin_us < b->begin_us ? -1
           : a->begin_us > b->begin_us ? 1
                                       : (int)a->kind - (int)b->kind;
}

static mpath_status_t timeline_read(timeline_t *line)
{
    size_t capacity = 0, i;
    json_t *item;

    for (int t = 0; t < line->num_traces; t++) {
        capacity += json_array_size(json_object_get(line->traces[t], "traceEvents"));
    }
    line->events = calloc(capacity + 1, sizeof(*line->events));
    if (line->events == NULL) {
        mpath_error("report: no memory for %zu events", capacity);
        return MPATH_ERR_NO_MEMORY;
    }
    line->begin_us = INFINITY;
    line->end_us   = -INFINITY;
    for (int t = 0; t < line->num_traces; t++) {
        json_array_foreach(json_object_get(line->traces[t], "traceEvents"), i, item)
        {
            trace_event_t *event = &line->events[line->count];

            if (event_read(item, event)) {
                line->num_ranks = event->rank >= line->num_ranks ? event->rank + 1 : line->num_ranks;
                line->begin_us  = fmin(line->begin_us, event->begin_us);
                line->end_us    = fmax(line->end_us, event->end_us);
                line->count++;
            }
        }
    }
    qsort(line->events, line->count, sizeof(*line->events), compare_events);
    return MPATH_OK;
}

/* What a row of a rank is called: "lane rail0". NULL: nobody says. */
static const char *row_name(const timeline_t *line, int rank, int row)
{
    json_t *item;
    size_t i;

    for (int t = 0; t < line->num_traces; t++) {
        json_array_foreach(json_object_get(line->traces[t], "traceEvents"), i, item)
        {
            const char *phase = json_string_value(json_object_get(item, "ph"));
            const char *name  = json_string_value(json_object_get(item, "name"));

            if (phase != NULL && name != NULL && strcmp(phase, "M") == 0 && strcmp(name, "thread_name") == 0 &&
                json_integer_value(json_object_get(item, "pid")) == rank &&
                json_integer_value(json_object_get(item, "tid")) == row) {
                return json_string_value(json_object_get(json_object_get(item, "args"), "name"));
            }
        }
    }
    return NULL;
}

/* Drawing. */

static void draw_begin(const timeline_t *line, int height, double begin_us, double end_us)
{
    char text[MPATH_NUMBER_SHOWN];

    fprintf(line->out, "<div class='wide'><svg class='tl' viewBox='0 0 %d %d' width='%d' height='%d' role='img'>\n",
            LABEL + WIDTH + 20, height, LABEL + WIDTH + 20, height);
    for (int i = 0; i <= 5; i++) {
        double x = LABEL + WIDTH * i / 5.0;

        fprintf(line->out,
                "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' class='grid'/><text x='%.1f' y='14' class='axis' "
                "text-anchor='%s'>%s</text>\n",
                x, TOP - 4, x, height, x,
                i == 0   ? "start"
                : i == 5 ? "end"
                         : "middle",
                i == 0 ? "0" : shown((end_us - begin_us) * i / 5e6, "s", text));
    }
}

static double x_of(double us, double begin_us, double end_us)
{
    double part = end_us > begin_us ? (us - begin_us) / (end_us - begin_us) : 0;

    return LABEL + WIDTH * fmax(0, fmin(1, part));
}

/* Of its name and time, what the mouse shows. */
static void draw_slice(const timeline_t *line, const trace_event_t *event, double y, double height, double begin_us,
                       double end_us, const char *colour)
{
    double left = x_of(event->begin_us, begin_us, end_us), right = x_of(event->end_us, begin_us, end_us);
    char text[MPATH_NUMBER_SHOWN], bytes[MPATH_NUMBER_SHOWN];
    json_t *count = json_object_get(event->args, "bytes"), *peer = json_object_get(event->args, "peer");

    fprintf(line->out, "<rect x='%.2f' y='%.1f' width='%.2f' height='%.1f' fill='%s'><title>rank %d: ", left, y,
            fmax(right - left, 0.4), height, colour, event->rank);
    plan_put_text(line->out, event->name);
    if (count != NULL) {
        fprintf(line->out, " %s", shown(json_number_value(count), "B", bytes));
    }
    if (json_is_string(peer)) {
        fprintf(line->out, ", ");
        plan_put_text(line->out, json_string_value(peer));
    }
    if (json_object_get(event->args, "call") != NULL) {
        fprintf(line->out, ", call %lld", (long long)json_integer_value(json_object_get(event->args, "call")));
    }
    fprintf(line->out, ", %s</title></rect>\n", shown((event->end_us - event->begin_us) / 1e6, "s", text));
}

static void draw_legend(const timeline_t *line)
{
    fprintf(line->out, "<div class='legend'>");
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        fprintf(line->out, "<span><i style='background:%s'></i>%s</span>", phases[i].colour, phases[i].name);
    }
    fprintf(line->out, "</div>\n");
}

/* All ranks, phases only. What is shorter than a pixel is drawn once per pixel. */
static void show_whole(const timeline_t *line)
{
    int rows = line->num_ranks < ROWS_SHOWN ? line->num_ranks : ROWS_SHOWN, step = rows > 32 ? 8 : ROW;
    double drawn_until = -1;
    int drawn_rank     = -1;

    fprintf(line->out, "<h3>The whole</h3>\n");
    draw_legend(line);
    if (rows < line->num_ranks) {
        fprintf(line->out, "<p class='note'>The first %d of %d ranks.</p>\n", rows, line->num_ranks);
    }
    draw_begin(line, TOP + rows * step + 4, line->begin_us, line->end_us);
    for (int rank = 0; rank < rows; rank++) {
        fprintf(line->out, "<rect x='%d' y='%d' width='%d' height='%d' class='row'/>", LABEL, TOP + rank * step, WIDTH,
                step - 1);
        if (step == ROW || rank % 8 == 0) {
            fprintf(line->out, "<text x='%d' y='%d' text-anchor='end'>rank %d</text>\n", LABEL - 6,
                    TOP + rank * step + (step == ROW ? 12 : 9), rank);
        }
    }
    for (size_t i = 0; i < line->count; i++) {
        const trace_event_t *event = &line->events[i];
        double right               = x_of(event->end_us, line->begin_us, line->end_us);

        if (event->kind != EVENT_PHASE || event->rank >= rows ||
            (event->rank == drawn_rank && right < drawn_until + 0.5)) {
            continue;
        }
        draw_slice(line, event, TOP + event->rank * step, step - 1, line->begin_us, line->end_us,
                   phase_colour(event->name));
        drawn_rank  = event->rank;
        drawn_until = right;
    }
    fprintf(line->out, "</svg></div>\n");
}

static int same_call(const trace_event_t *one, const trace_event_t *other)
{
    const char *a = json_string_value(json_object_get(one->args, "comm"));
    const char *b = json_string_value(json_object_get(other->args, "comm"));

    return json_integer_value(json_object_get(one->args, "call")) ==
               json_integer_value(json_object_get(other->args, "call")) &&
           a != NULL && b != NULL && strcmp(a, b) == 0;
}

static int compare_durations(const void *one, const void *other)
{
    const trace_event_t *a = *(const trace_event_t *const *)one, *b = *(const trace_event_t *const *)other;
    double of_a = a->end_us - a->begin_us, of_b = b->end_us - b->begin_us;

    return of_a < of_b ? 1 : of_a > of_b ? -1 : a < b ? -1 : 1;
}

/* The longest calls, each once, longest first. Returns how many there are. */
static int longest_calls(const timeline_t *line, const trace_event_t **calls, int most)
{
    const trace_event_t **all = malloc((line->count + 1) * sizeof(*all));
    size_t count              = 0;
    int found                 = 0;

    if (all == NULL) {
        return 0;
    }
    for (size_t i = 0; i < line->count; i++) {
        if (line->events[i].kind == EVENT_CALL) {
            all[count++] = &line->events[i];
        }
    }
    qsort((void *)all, count, sizeof(*all), compare_durations);
    for (size_t i = 0; i < count && found < most; i++) {
        int is_new = 1;

        for (int k = 0; k < found; k++) {
            is_new = is_new && !same_call(all[i], calls[k]);
        }
        if (is_new) {
            calls[found++] = all[i];
        }
    }
    free((void *)all);
    return found;
}

static void put_time(FILE *out, const json_t *args, const char *key)
{
    const json_t *ns = json_object_get(args, key);
    char text[MPATH_NUMBER_SHOWN];

    fprintf(out, "<td class='n'>%s", ns != NULL ? shown(json_number_value(ns) / 1e9, "s", text) : "-");
}

static void show_calls(const timeline_t *line, const trace_event_t **calls, int count)
{
    char text[MPATH_NUMBER_SHOWN];

    fprintf(
        line->out,
        "<h3>The longest calls</h3>\n<div class='wide'><table>\n<tr><th>collective<th>communicator<th class='n'>call<th "
        "class='n'>bytes of a rank<th>algorithm<th class='n'>static, predicted<th class='n'>mpath, predicted<th "
        "class='n'>took</tr>\n");
    for (int i = 0; i < count; i++) {
        const json_t *args = calls[i]->args, *bytes = json_object_get(args, "bytes");
        const char *algorithm = json_string_value(json_object_get(args, "algorithm"));
        const char *why       = json_string_value(json_object_get(args, "left"));

        fprintf(line->out, "<tr><td>");
        plan_put_text(line->out, calls[i]->name);
        fprintf(line->out, "<td>");
        plan_put_text(line->out, json_string_value(json_object_get(args, "comm")));
        fprintf(line->out, "<td class='n'>%lld<td class='n'>%s<td>",
                (long long)json_integer_value(json_object_get(args, "call")),
                bytes != NULL ? shown(json_number_value(bytes), "B", text) : "-");
        if (why != NULL) {
            fprintf(line->out, "left to the previous function: ");
        }
        plan_put_text(line->out, why != NULL ? why : algorithm);
        put_time(line->out, args, "static_ns");
        put_time(line->out, args, "mpath_ns");
        fprintf(line->out, "<td class='n'>%s</tr>\n", shown((calls[i]->end_us - calls[i]->begin_us) / 1e6, "s", text));
    }
    fprintf(line->out, "</table></div>\n");
}

/* Rows of a rank in the longest call: its phases, then its lanes in use. */
typedef struct zoom {
    const trace_event_t *call;
    double begin_us, end_us;
    int ranks[RANKS_ZOOMED], num_ranks, has_more;
} zoom_t;

static int is_in(const zoom_t *zoom, const trace_event_t *event)
{
    return event->end_us >= zoom->begin_us && event->begin_us <= zoom->end_us;
}

static void zoom_find(const timeline_t *line, const trace_event_t *call, zoom_t *zoom)
{
    *zoom = (zoom_t){.call = call, .begin_us = call->begin_us, .end_us = call->end_us};
    for (size_t i = 0; i < line->count; i++) {
        const trace_event_t *event = &line->events[i];

        if (event->kind == EVENT_CALL && same_call(event, call)) {
            zoom->begin_us = fmin(zoom->begin_us, event->begin_us);
            zoom->end_us   = fmax(zoom->end_us, event->end_us);
        }
    }
    for (size_t i = 0; i < line->count && !zoom->has_more; i++) { /* sorted by rank */
        const trace_event_t *event = &line->events[i];

        if (!is_in(zoom, event) || (zoom->num_ranks > 0 && zoom->ranks[zoom->num_ranks - 1] == event->rank)) {
            continue;
        }
        if (zoom->num_ranks == RANKS_ZOOMED) {
            zoom->has_more = 1;
        } else {
            zoom->ranks[zoom->num_ranks++] = event->rank;
        }
    }
}

/* The lanes of a rank on which something went in that time, by row. */
static int zoom_lanes(const timeline_t *line, const zoom_t *zoom, int rank, int lanes[LANES_SHOWN])
{
    int count = 0;

    for (size_t i = 0; i < line->count; i++) {
        const trace_event_t *event = &line->events[i];
        int at                     = 0;

        if (event->kind != EVENT_CHUNK || event->rank != rank || !is_in(zoom, event)) {
            continue;
        }
        while (at < count && lanes[at] < event->row) {
            at++;
        }
        if ((at < count && lanes[at] == event->row) || count == LANES_SHOWN) {
            continue;
        }
        memmove(&lanes[at + 1], &lanes[at], (size_t)(count - at) * sizeof(lanes[0]));
        lanes[at] = event->row;
        count++;
    }
    return count;
}

static void show_zoom(const timeline_t *line, const trace_event_t *call)
{
    static const char *const colours[] = {"#4f8fc4", "#86b6d9"}; /* of lanes, in turns */
    int lanes[RANKS_ZOOMED][LANES_SHOWN], num_lanes[RANKS_ZOOMED], height = TOP, y = TOP;
    size_t drawn = 0;
    zoom_t zoom;

    zoom_find(line, call, &zoom);
    for (int i = 0; i < zoom.num_ranks; i++) {
        num_lanes[i] = zoom_lanes(line, &zoom, zoom.ranks[i], lanes[i]);
        height += ROW + num_lanes[i] * LANE_ROW + 6;
    }
    fprintf(line->out, "<h3>The longest call: ");
    plan_put_text(line->out, call->name);
    fprintf(
        line->out,
        ", call %lld</h3>\n<p class='note'>For each rank its phases and, below, what is under way on each lane%s.</p>\n",
        (long long)json_integer_value(json_object_get(call->args, "call")), zoom.has_more ? "; the first ranks" : "");
    draw_legend(line);
    draw_begin(line, height + 4, zoom.begin_us, zoom.end_us);
    for (int i = 0; i < zoom.num_ranks; i++) {
        fprintf(
            line->out,
            "<rect x='%d' y='%d' width='%d' height='%d' class='row'/><text x='%d' y='%d' text-anchor='end' font-weight='bold'>rank "
            "%d</text>\n",
            LABEL, y, WIDTH, ROW - 1, LABEL - 6, y + 12, zoom.ranks[i]);
        for (int k = 0; k < num_lanes[i]; k++) {
            const char *name = row_name(line, zoom.ranks[i], lanes[i][k]);

            fprintf(line->out, "<text x='%d' y='%d' text-anchor='end' class='axis'>", LABEL - 6,
                    y + ROW + k * LANE_ROW + 9);
            plan_put_text(line->out, name == NULL ? "lane" : strncmp(name, "lane ", 5) == 0 ? name + 5 : name);
            fprintf(line->out, "</text>\n");
        }
        for (size_t e = 0; e < line->count; e++) {
            const trace_event_t *event = &line->events[e];
            int lane                   = 0;

            if (event->rank != zoom.ranks[i] || !is_in(&zoom, event)) {
                continue;
            }
            if (event->kind == EVENT_PHASE) {
                draw_slice(line, event, y, ROW - 1, zoom.begin_us, zoom.end_us, phase_colour(event->name));
            }
            while (lane < num_lanes[i] && lanes[i][lane] != event->row) {
                lane++;
            }
            if (event->kind == EVENT_CHUNK && lane < num_lanes[i] && drawn < CHUNKS_SHOWN) {
                draw_slice(line, event, y + ROW + lane * LANE_ROW, LANE_ROW - 1, zoom.begin_us, zoom.end_us,
                           colours[lane % 2]);
                drawn++;
            }
        }
        y += ROW + num_lanes[i] * LANE_ROW + 6;
    }
    fprintf(line->out, "</svg></div>\n");
    if (drawn == CHUNKS_SHOWN) {
        fprintf(line->out, "<p class='note'>Only %d chunks are drawn.</p>\n", CHUNKS_SHOWN);
    }
}

/* Ranks of several files have clocks of their own, unless they were put on one. */
static int is_one_clock(const timeline_t *line)
{
    return line->num_traces == 1;
}

mpath_status_t report_trace(FILE *out, json_t *const *traces, int count)
{
    timeline_t line = {.out = out, .traces = traces, .num_traces = count};
    const trace_event_t *calls[CALLS_SHOWN];
    mpath_status_t status = timeline_read(&line);
    int num_calls;

    if (status != MPATH_OK) {
        return status;
    }
    page_section(out, "timeline", "Timeline");
    if (line.count == 0) {
        fprintf(out, "<p class='note'>There is no call in it.</p>\n");
        page_section_end(out);
        free(line.events);
        return MPATH_OK;
    }
    if (!is_one_clock(&line)) {
        fprintf(out, "<p class='note'>These are the files of single ranks, each with the clock of its node: "
                     "<code>mpath_trace merge</code> puts them on one.</p>\n");
    }
    show_whole(&line);
    num_calls = longest_calls(&line, calls, CALLS_SHOWN);
    if (num_calls > 0) {
        show_calls(&line, calls, num_calls);
        show_zoom(&line, calls[0]);
    }
    page_section_end(out);
    free(line.events);
    return MPATH_OK;
}
