/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws a plan: a panel for the static routes, one for the plan, in each a box per node with gauges for its links. */
#include "tools/plan/svg.h"

#include "tools/plan/report.h"
#include "util/log.h"
#include "util/number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pixels. */
#define MARGIN 16
#define HEADER 112
#define CAPTION_GLYPH 6.6 /* of the captions, on average */
#define CAPTION 26
#define GUTTER 58 /* names of the rows, in each box */
#define GAP 12
#define TITLE 18
#define ROW 34 /* a row of gauges */
#define BAR 28
#define SQUARE 20
#define ARCS 34 /* room for the NVLinks of one direction */
#define WIDE 12 /* a gauge across the box */
#define LARGE_CELL 60
#define MIN_PANEL 340 /* what the headings need */
#define SMALL_CELL 30
#define LARGE_UP_TO_RANKS 16
#define FOOT 11 /* of a gauge: the digits, on its colour */
/* A heat map, where gauges would be too small. */
#define HEAT_WIDTH 30
#define HEAT_HEIGHT 18
#define HEAT_LABEL 46
#define STACKED_FROM 1160
#define STACK_GAP 30

typedef struct picture {
    FILE *out;
    const mpath_topo_t *topo;
    const mpath_plan_t *plan; /* of the panel that is being drawn */
    double scale_s;           /* full gauges */
    int rows_of_boxes, gap_y; /* of boxes, which are rows of cells in a heat map */
    int columns;              /* of a box: NICs or GPUs, whichever are more */
    int cell;                 /* width of a column */
    int boxes_across, num_nodes;
    int has_gpus, has_ports, has_mesh, has_uplinks;
    int box_width, box_height;
    int is_heat; /* a cell for each GPU instead of gauges */
} picture_t;

/* --- colours and gauges ------------------------------------------------------------------------------------------- */

/* Blue when idle, yellow at half, red when full. */
static void colour(double fill, char *text, size_t size)
{
    static const int low[3] = {173, 205, 232}, middle[3] = {255, 205, 86}, high[3] = {208, 32, 58};
    const int *from = (fill < 0.5) ? low : middle, *to = (fill < 0.5) ? middle : high;
    double part = (fill < 0.5) ? fill * 2 : fmin(fill, 1) * 2 - 1;

    if (fill <= 0) {
        snprintf(text, size, "#eceff1");
        return;
    }
    snprintf(text, size, "#%02x%02x%02x", (unsigned)(from[0] + (to[0] - from[0]) * part),
             (unsigned)(from[1] + (to[1] - from[1]) * part), (unsigned)(from[2] + (to[2] - from[2]) * part));
}

/* Of the two the one that is read more easily on a colour: by the contrast of WCAG 2. */
static const char *digits_on(const char *colour_text)
{
    unsigned rgb[3]  = {255, 255, 255};
    double luminance = 0;

    if (sscanf(colour_text, "#%2x%2x%2x", &rgb[0], &rgb[1], &rgb[2]) == 3) {
        static const double weights[3] = {0.2126, 0.7152, 0.0722};

        for (int i = 0; i < 3; i++) {
            double part = rgb[i] / 255.0;

            luminance += weights[i] * (part <= 0.03928 ? part / 12.92 : pow((part + 0.055) / 1.055, 2.4));
        }
    }
    return 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 ? "#ffffff" : "#000000";
}

static double fill_of(const picture_t *p, int resource)
{
    return (p->scale_s > 0) ? plan_resource_seconds(p->topo, p->plan, resource) / p->scale_s : 0;
}

/* What the mouse shows of a resource. */
static void tooltip(const picture_t *p, int resource)
{
    char name[64], load[MPATH_NUMBER_SHOWN], busy[MPATH_NUMBER_SHOWN];

    mpath_topo_resource_name(p->topo, resource, name, sizeof(name));
    mpath_number_show((double)mpath_plan_loads(p->plan)[resource], "B", load);
    mpath_number_show(plan_resource_seconds(p->topo, p->plan, resource), "s", busy);
    fprintf(p->out, "<title>%s: %s, %s</title>", name, load, busy);
}

/* An upright gauge, filled from below; the number is its load in per cent of the scale. */
static void gauge(const picture_t *p, int x, int y, int width, int height, int resource)
{
    double fill;
    char fill_colour[16];
    int has_digits = p->cell == LARGE_CELL, column = has_digits ? height - FOOT : height;

    if (resource < 0) {
        return;
    }
    fill = fill_of(p, resource);
    colour(fill, fill_colour, sizeof(fill_colour));
    fprintf(p->out, "<g>");
    tooltip(p, resource);
    fprintf(p->out, "<rect x='%d' y='%d' width='%d' height='%d' class='g'/>", x, y, width, height);
    fprintf(p->out, "<rect x='%d' y='%.1f' width='%d' height='%.1f' fill='%s'/>", x, y + column * (1 - fmin(fill, 1)),
            width, column * fmin(fill, 1), fill_colour);
    if (has_digits) {
        fprintf(p->out,
                "<rect x='%d' y='%d' width='%d' height='%d' fill='%s'/>"
                "<text x='%.1f' y='%d' class='n' fill='%s'>%.0f</text>",
                x, y + column, width, FOOT, fill_colour, x + width / 2.0, y + height - 2, digits_on(fill_colour),
                fill * 100);
    }
    fprintf(p->out, "</g>\n");
}

/* A level gauge across the box. */
static void wide_gauge(const picture_t *p, int x, int y, int width, int resource)
{
    double fill;
    char fill_colour[16];

    if (resource < 0) {
        return;
    }
    fill = fill_of(p, resource);
    colour(fill, fill_colour, sizeof(fill_colour));
    fprintf(p->out, "<g>");
    tooltip(p, resource);
    fprintf(p->out,
            "<rect x='%d' y='%d' width='%d' height='%d' class='g'/>"
            "<rect x='%d' y='%d' width='%.1f' height='%d' fill='%s'/></g>\n",
            x, y, width, WIDE - 2, x, y, width * fmin(fill, 1), WIDE - 2, fill_colour);
}

static void row_name(const picture_t *p, int x, int y, const char *name)
{
    fprintf(p->out, "<text x='%d' y='%d' class='r'>%s</text>\n", x + GUTTER - 6, y, name);
}

/* --- one node ----------------------------------------------------------------------------------------------------- */

/* Out and in of one kind of link, side by side in each column. */
static int gauge_row(const picture_t *p, int x, int y, int node, const char *name, mpath_resource_kind_t out,
                     mpath_resource_kind_t in)
{
    int width = (p->cell - 8) / 2;

    row_name(p, x, y + BAR / 2 + 3, name);
    for (int column = 0; column < p->columns; column++) {
        int left = x + GUTTER + column * p->cell + 3;

        gauge(p, left, y, width, BAR, mpath_topo_resource_find(p->topo, out, node, column));
        gauge(p, left + width + 1, y, width, BAR, mpath_topo_resource_find(p->topo, in, node, column));
    }
    return y + ROW;
}

/* The NVLinks of a mesh in one direction, as arcs over (up) or under the GPUs. */
static void arcs(const picture_t *p, int x, int y, int node, int up)
{
    for (int from = 0; from < p->columns; from++) {
        for (int to = 0; to < p->columns; to++) {
            int resource = ((from < to) == up && from != to) ? mpath_topo_nvlink_find(p->topo, node, from, to) : -1;
            double left = x + GUTTER + (from + 0.5) * p->cell, right = x + GUTTER + (to + 0.5) * p->cell;
            double fill, height;
            char stroke[16];

            if (resource < 0) {
                continue;
            }
            fill   = fill_of(p, resource);
            height = 2.0 * (ARCS - 4) * abs(to - from) / (p->columns > 1 ? p->columns - 1 : 1);
            colour(fill, stroke, sizeof(stroke));
            fprintf(p->out, "<g>");
            tooltip(p, resource);
            fprintf(p->out, "<path d='M%.1f %d Q%.1f %.1f %.1f %d' fill='none' stroke='%s' stroke-width='%.1f'/></g>\n",
                    left, y, (left + right) / 2, up ? y - height : y + height, right, y,
                    (fill > 0) ? stroke : "#cfd8dc", 1 + 4 * fmin(fill, 1));
        }
    }
}

/* The ranks of a column: on that GPU, or beside that NIC. Several are counted. */
static void rank_label(const picture_t *p, int node, int column, char *text, size_t size)
{
    int count = 0, first = 0;

    for (int rank = 0; rank < mpath_topo_num_ranks(p->topo); rank++) {
        const mpath_place_t *place = mpath_topo_place(p->topo, rank);

        if (place->node == node && (p->has_gpus && place->gpu >= 0 ? place->gpu : place->nic) == column) {
            first = (count == 0) ? rank : first;
            count++;
        }
    }
    if (count == 0) {
        text[0] = 0;
    } else if (count == 1) {
        snprintf(text, size, "%d", first);
    } else {
        snprintf(text, size, "%d+%d", first, count - 1);
    }
}

static int rank_row(const picture_t *p, int x, int y, int node)
{
    y += p->has_mesh ? ARCS : 0;
    if (p->has_mesh) {
        arcs(p, x, y, node, 1);
        row_name(p, x, y - ARCS / 2, "NVLink");
        arcs(p, x, y + SQUARE, node, 0);
    }
    row_name(p, x, y + SQUARE / 2 + 4, "rank");
    for (int column = 0; column < p->columns; column++) {
        char text[32];

        rank_label(p, node, column, text, sizeof(text));
        if (text[0] != 0) {
            fprintf(p->out,
                    "<rect x='%d' y='%d' width='%d' height='%d' rx='3' fill='#37474f'/>"
                    "<text x='%.1f' y='%d' class='k'>%s</text>\n",
                    x + GUTTER + column * p->cell + 3, y, p->cell - 7, SQUARE, x + GUTTER + (column + 0.5) * p->cell,
                    y + SQUARE - 6, text);
        }
    }
    return y + SQUARE + (p->has_mesh ? ARCS : 0) + 6;
}

static void draw_node(const picture_t *p, int x, int y, int node)
{
    fprintf(p->out, "<rect x='%d' y='%d' width='%d' height='%d' rx='6' class='b'/>\n", x, y, p->box_width,
            p->box_height);
    fprintf(p->out, "<text x='%d' y='%d' class='t'>node %d</text>\n", x + 8, y + TITLE - 4, node);
    y = rank_row(p, x, y + TITLE, node);
    if (p->has_ports) {
        y = gauge_row(p, x, y, node, "NVSwitch", MPATH_RESOURCE_GPU_EGRESS, MPATH_RESOURCE_GPU_INGRESS);
    }
    if (p->has_gpus) {
        y = gauge_row(p, x, y, node, "PCIe", MPATH_RESOURCE_PCIE_UP, MPATH_RESOURCE_PCIE_DOWN);
    }
    y = gauge_row(p, x, y, node, "NIC", MPATH_RESOURCE_NIC_TX, MPATH_RESOURCE_NIC_RX);
    if (p->has_uplinks) {
        int half = p->columns * p->cell / 2 - 4;

        row_name(p, x, y + WIDE - 3, "uplink");
        wide_gauge(p, x + GUTTER + 3, y, half, mpath_topo_resource_find(p->topo, MPATH_RESOURCE_UPLINK_TX, node, 0));
        wide_gauge(p, x + GUTTER + half + 6, y, half,
                   mpath_topo_resource_find(p->topo, MPATH_RESOURCE_UPLINK_RX, node, 0));
        y += WIDE + 2;
    }
    row_name(p, x, y + WIDE - 3, "memory");
    wide_gauge(p, x + GUTTER + 3, y, p->columns * p->cell - 6,
               mpath_topo_resource_find(p->topo, MPATH_RESOURCE_HOST_MEMORY, node, 0));
}

/* --- many nodes: a heat map --------------------------------------------------------------------------------------- */

/* Of two resources the one that is busy for longer; -1: none. */
static int busier(const picture_t *p, int one, int other)
{
    if (one < 0 || other < 0) {
        return one < 0 ? other : one;
    }
    return fill_of(p, other) > fill_of(p, one) ? other : one;
}

/* What a GPU, or the NIC of its number, has to do most of. */
static int heat_resource(const picture_t *p, int node, int column)
{
    static const mpath_resource_kind_t kinds[] = {MPATH_RESOURCE_NIC_TX,     MPATH_RESOURCE_NIC_RX,
                                                  MPATH_RESOURCE_GPU_EGRESS, MPATH_RESOURCE_GPU_INGRESS,
                                                  MPATH_RESOURCE_PCIE_UP,    MPATH_RESOURCE_PCIE_DOWN};
    int busiest                                = -1;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        busiest = busier(p, busiest, mpath_topo_resource_find(p->topo, kinds[i], node, column));
    }
    for (int peer = 0; peer < p->columns && p->has_mesh; peer++) {
        if (peer != column) {
            busiest = busier(p, busiest, mpath_topo_nvlink_find(p->topo, node, column, peer));
            busiest = busier(p, busiest, mpath_topo_nvlink_find(p->topo, node, peer, column));
        }
    }
    return busiest;
}

static void heat_node(const picture_t *p, int x, int y, int node)
{
    fprintf(p->out, "<text x='%d' y='%d' class='r'>node %d</text>\n", x + HEAT_LABEL - 4, y + HEAT_HEIGHT - 5, node);
    for (int column = 0; column < p->columns; column++) {
        int resource = heat_resource(p, node, column), left = x + HEAT_LABEL + column * HEAT_WIDTH;
        double fill;
        char fill_colour[16];

        if (resource < 0) {
            continue;
        }
        fill = fill_of(p, resource);
        colour(fill, fill_colour, sizeof(fill_colour));
        fprintf(p->out, "<g class='x'>");
        tooltip(p, resource);
        fprintf(p->out, "<rect x='%d' y='%d' width='%d' height='%d' fill='%s'/>", left, y, HEAT_WIDTH - 1,
                HEAT_HEIGHT - 1, fill_colour);
        if (fill >= 0.005) {
            fprintf(p->out, "<text x='%.1f' y='%d' class='n' fill='%s'>%.0f</text>", left + (HEAT_WIDTH - 1) / 2.0,
                    y + HEAT_HEIGHT - 6, digits_on(fill_colour), fill * 100);
        }
        fprintf(p->out, "</g>\n");
    }
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static void measure(picture_t *p)
{
    p->num_nodes = mpath_topo_num_nodes(p->topo);
    p->columns   = 1;
    for (int node = 0; node < p->num_nodes; node++) {
        const mpath_node_gpus_t *gpus = mpath_topo_gpus(p->topo, node);
        int nics                      = mpath_topo_machine(p->topo, node)->num_nics;

        p->columns = (nics > p->columns) ? nics : p->columns;
        if (gpus != NULL) {
            p->columns = (gpus->num_gpus > p->columns) ? gpus->num_gpus : p->columns;
            p->has_gpus |= gpus->num_gpus > 0;
            p->has_ports |= gpus->link == MPATH_GPU_LINK_SWITCH;
            p->has_mesh |= gpus->link == MPATH_GPU_LINK_MESH;
            p->has_uplinks |= gpus->uplink_bps > 0;
        }
    }
    p->cell         = (p->columns * p->num_nodes <= LARGE_UP_TO_RANKS) ? LARGE_CELL : SMALL_CELL;
    p->is_heat      = p->columns * p->num_nodes >= PLAN_SVG_HEAT_FROM;
    p->boxes_across = (int)ceil(sqrt(p->num_nodes / 2.0));
    p->box_width    = GUTTER + p->columns * p->cell + 6;
    p->box_height   = TITLE + SQUARE + 6 + (p->has_mesh ? 2 * ARCS : 0) + ROW * (1 + p->has_gpus + p->has_ports) +
                    (p->has_uplinks ? WIDE + 2 : 0) + WIDE + 6;
    if (p->is_heat) {
        p->box_width    = HEAT_LABEL + p->columns * HEAT_WIDTH;
        p->box_height   = HEAT_HEIGHT;
        p->boxes_across = (int)ceil(sqrt(p->num_nodes * (double)p->box_height / p->box_width));
    }
    p->rows_of_boxes = (p->num_nodes + p->boxes_across - 1) / p->boxes_across;
    p->gap_y         = p->is_heat ? 0 : GAP;
}

/* `top`: where its heading stands. */
static void draw_panel(picture_t *p, int x, int top, const mpath_plan_t *plan, const char *name, double gain)
{
    int bottleneck   = mpath_plan_bottleneck(plan);
    char busiest[64] = "nothing", z[MPATH_NUMBER_SHOWN];

    p->plan = plan;
    mpath_number_show((double)mpath_plan_z_ns(plan) / 1e9, "s", z);
    if (bottleneck >= 0) {
        mpath_topo_resource_name(p->topo, bottleneck, busiest, sizeof(busiest));
    }
    fprintf(p->out, "<text x='%d' y='%d' class='h'>%s: Z = %s", x, top - 4, name, z);
    if (gain > 0) {
        fprintf(p->out, ", %.2f x as fast", gain);
    }
    fprintf(p->out, "</text>\n<text x='%d' y='%d' class='c'>busiest: %s</text>\n", x, top + CAPTION - 13, busiest);
    for (int node = 0; node < p->num_nodes; node++) {
        if (p->is_heat) { /* down the columns: neighbours stay together */
            heat_node(p, x + node / p->rows_of_boxes * (p->box_width + GAP),
                      top + CAPTION + node % p->rows_of_boxes * p->box_height, node);
        } else {
            draw_node(p, x + node % p->boxes_across * (p->box_width + GAP),
                      top + CAPTION + node / p->boxes_across * (p->box_height + GAP), node);
        }
    }
}

static void draw_legend(const picture_t *p, int x)
{
    char text[16], busy[MPATH_NUMBER_SHOWN];

    mpath_number_show(p->scale_s, "s", busy);
    for (int step = 0; step < 40; step++) {
        colour((step + 0.5) / 40, text, sizeof(text));
        fprintf(p->out, "<rect x='%d' y='18' width='5' height='12' fill='%s'/>", x + step * 5, text);
    }
    fprintf(p->out,
            "\n<text x='%d' y='44' class='c'>idle</text><text x='%d' y='44' class='e'>busy for %s</text>\n"
            "<text x='%d' y='28' class='c'>%s</text>\n",
            x, x + 200, busy, x + 216,
            p->is_heat              ? "a cell for each GPU or NIC: its busiest link, in per cent"
            : p->cell == LARGE_CELL ? "left half of a gauge: out of the node or GPU; right half: into it; per cent"
                                    : "left half of a gauge: out of the node or GPU; right half: into it");
}

void plan_put_text(FILE *out, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
            break;
        }
    }
}

/* What is text or ground, by class, so that a reader's dark mode can turn it; colours of loads stay. */
static const char styles[] =
    "<style>.mp .h{font-size:15px;font-weight:bold;fill:#263238}.mp .c{font-size:11px;fill:#455a64}"
    ".mp .e{font-size:11px;fill:#455a64;text-anchor:end}.mp .t{font-size:11px;font-weight:bold;fill:#37474f}"
    ".mp .r{font-size:9px;fill:#455a64;text-anchor:end}.mp .n{font-size:9px;text-anchor:middle}"
    ".mp .k{font-size:10px;fill:#ffffff;text-anchor:middle}.mp .p{fill:#fafbfc}.mp .b{fill:#ffffff;stroke:#b0bec5}"
    ".mp .g{fill:#f7f8f9;stroke:#90a4ae;stroke-width:0.6}"
    "@media (prefers-color-scheme:dark){.mp .h{fill:#eceff1}.mp .c,.mp .e,.mp .r{fill:#b8c4ca}.mp .t{fill:#dde4e8}"
    ".mp .p{fill:#12181c}.mp .b{fill:#1c242a;stroke:#4a5a64}.mp .g{fill:#2a343b;stroke:#60727d}}</style>\n";

static void draw(picture_t *p, const plan_svg_t *svg)
{
    int panel       = p->boxes_across * (p->box_width + GAP) - GAP;
    int boxes       = CAPTION + p->rows_of_boxes * (p->box_height + p->gap_y), is_stacked, width, height;
    double z_before = (double)mpath_plan_z_ns(svg->before), z_after = (double)mpath_plan_z_ns(svg->after);

    panel      = (panel < MIN_PANEL) ? MIN_PANEL : panel;
    p->scale_s = fmax(z_before, z_after) / 1e9;
    is_stacked = p->is_heat && 2 * panel > STACKED_FROM; /* below each other a page has room for them */
    height     = HEADER + (is_stacked ? 2 * boxes + STACK_GAP : boxes) + MARGIN;
    width      = (is_stacked ? panel : 2 * panel + 4 * GAP) + 2 * MARGIN;
    width      = (int)fmax(width, 2 * MARGIN + CAPTION_GLYPH * (double)strlen(svg->captions->machine));
    width      = (int)fmax(width, 2 * MARGIN + CAPTION_GLYPH * (double)strlen(svg->captions->matrix));
    fprintf(
        p->out,
        "<svg xmlns='http://www.w3.org/2000/svg' class='mp' viewBox='0 0 %d %d' width='%d' height='%d' "
        "font-family='DejaVu Sans, Helvetica, sans-serif' role='img'>\n%s<rect width='%d' height='%d' class='p'/>\n",
        width, height, width, height, styles, width, height);
    draw_legend(p, MARGIN);
    fprintf(p->out, "<text x='%d' y='66' class='c'>", MARGIN);
    plan_put_text(p->out, svg->captions->machine);
    fprintf(p->out, "</text>\n<text x='%d' y='82' class='c'>", MARGIN);
    plan_put_text(p->out, svg->captions->matrix);
    fprintf(p->out, "</text>\n");
    draw_panel(p, MARGIN, HEADER, svg->before, "static routes", 0);
    draw_panel(p, is_stacked ? MARGIN : MARGIN + panel + 4 * GAP, is_stacked ? HEADER + boxes + STACK_GAP : HEADER,
               svg->after, svg->after_name, (z_after > 0) ? z_before / z_after : 0);
    fprintf(p->out, "</svg>\n");
}

mpath_status_t plan_svg_draw(const plan_svg_t *svg, FILE *out)
{
    picture_t picture = {.topo = svg->topo, .out = out};

    if (mpath_topo_num_nodes(svg->topo) > PLAN_SVG_MAX_NODES) {
        mpath_error("picture: %d nodes, but %d at most can be told apart; it is not drawn",
                    mpath_topo_num_nodes(svg->topo), PLAN_SVG_MAX_NODES);
        return MPATH_ERR_PARAM;
    }
    measure(&picture);
    draw(&picture, svg);
    return MPATH_OK;
}

mpath_status_t plan_svg_write(const char *path, const plan_svg_t *svg)
{
    mpath_status_t status;
    FILE *out;
    int failed;

    if (mpath_topo_num_nodes(svg->topo) > PLAN_SVG_MAX_NODES) {
        mpath_error("picture %s: %d nodes, but %d at most can be told apart; it is not drawn", path,
                    mpath_topo_num_nodes(svg->topo), PLAN_SVG_MAX_NODES);
        return MPATH_ERR_PARAM;
    }
    out = fopen(path, "w");
    if (out == NULL) {
        mpath_error("picture %s: %s; it is not drawn", path, strerror(errno));
        return MPATH_ERR_IO;
    }
    status = plan_svg_draw(svg, out);
    failed = ferror(out);
    if (((fclose(out) != 0) || failed) && status == MPATH_OK) {
        mpath_error("picture %s: %s; it is not complete", path, strerror(errno));
        status = MPATH_ERR_IO;
    }
    return status;
}
