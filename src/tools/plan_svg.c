/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws a plan: a panel for the static routes, one for the plan, in each a box per node with gauges for its links. */
#include "tools/plan_svg.h"

#include "tools/plan_report.h"
#include "util/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pixels. */
#define MARGIN 16
#define HEADER 74
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

typedef struct picture {
    FILE *out;
    const mpath_topo_t *topo;
    const mpath_plan_t *plan; /* of the panel that is being drawn */
    double scale_s;           /* full gauges */
    int columns;              /* of a box: NICs or GPUs, whichever are more */
    int cell;                 /* width of a column */
    int boxes_across, num_nodes;
    int has_gpus, has_ports, has_mesh, has_uplinks;
    int box_width, box_height;
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

static double fill_of(const picture_t *p, int resource)
{
    return (p->scale_s > 0) ? plan_resource_seconds(p->topo, p->plan, resource) / p->scale_s : 0;
}

/* What the mouse shows of a resource. */
static void tooltip(const picture_t *p, int resource)
{
    char name[64];

    mpath_topo_resource_name(p->topo, resource, name, sizeof(name));
    fprintf(p->out, "<title>%s: %llu bytes, %.6f ms</title>", name,
            (unsigned long long)mpath_plan_loads(p->plan)[resource],
            plan_resource_seconds(p->topo, p->plan, resource) * 1e3);
}

/* An upright gauge, filled from below; the number is its load in per cent of the scale. */
static void gauge(const picture_t *p, int x, int y, int width, int height, int resource)
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
    fprintf(p->out, "<rect x='%d' y='%d' width='%d' height='%d' fill='#f7f8f9' stroke='#90a4ae' stroke-width='0.6'/>",
            x, y, width, height);
    fprintf(p->out, "<rect x='%d' y='%.1f' width='%d' height='%.1f' fill='%s'/>", x, y + height * (1 - fmin(fill, 1)),
            width, height * fmin(fill, 1), fill_colour);
    if (p->cell == LARGE_CELL) {
        fprintf(p->out, "<text x='%.1f' y='%d' class='n'>%.0f</text>", x + width / 2.0, y + height - 4, fill * 100);
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
            "<rect x='%d' y='%d' width='%d' height='%d' fill='#f7f8f9' stroke='#90a4ae' stroke-width='0.6'/>"
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
    fprintf(p->out, "<rect x='%d' y='%d' width='%d' height='%d' rx='6' fill='#ffffff' stroke='#b0bec5'/>\n", x, y,
            p->box_width, p->box_height);
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
    p->boxes_across = (int)ceil(sqrt(p->num_nodes / 2.0));
    p->box_width    = GUTTER + p->columns * p->cell + 6;
    p->box_height   = TITLE + SQUARE + 6 + (p->has_mesh ? 2 * ARCS : 0) + ROW * (1 + p->has_gpus + p->has_ports) +
                    (p->has_uplinks ? WIDE + 2 : 0) + WIDE + 6;
}

static void draw_panel(picture_t *p, int x, const mpath_plan_t *plan, const char *name, double gain)
{
    int bottleneck   = mpath_plan_bottleneck(plan);
    char busiest[64] = "nothing";

    p->plan = plan;
    if (bottleneck >= 0) {
        mpath_topo_resource_name(p->topo, bottleneck, busiest, sizeof(busiest));
    }
    fprintf(p->out, "<text x='%d' y='%d' class='h'>%s: Z = %.3f ms", x, HEADER - 4, name,
            (double)mpath_plan_z_ns(plan) / 1e6);
    if (gain > 0) {
        fprintf(p->out, ", %.2f x as fast", gain);
    }
    fprintf(p->out, "</text>\n<text x='%d' y='%d' class='c'>busiest: %s</text>\n", x, HEADER + CAPTION - 13, busiest);
    for (int node = 0; node < p->num_nodes; node++) {
        draw_node(p, x + node % p->boxes_across * (p->box_width + GAP),
                  HEADER + CAPTION + node / p->boxes_across * (p->box_height + GAP), node);
    }
}

static void draw_legend(const picture_t *p, int x)
{
    char text[16];

    for (int step = 0; step < 40; step++) {
        colour((step + 0.5) / 40, text, sizeof(text));
        fprintf(p->out, "<rect x='%d' y='18' width='5' height='12' fill='%s'/>", x + step * 5, text);
    }
    fprintf(p->out,
            "\n<text x='%d' y='44' class='c'>idle</text><text x='%d' y='44' class='e'>busy for %.3f ms</text>\n"
            "<text x='%d' y='28' class='c'>left half of a gauge: out of the node or GPU; right half: into it</text>\n",
            x, x + 200, p->scale_s * 1e3, x + 216);
}

static int draw(picture_t *p, const mpath_plan_t *before, const mpath_plan_t *after, const char *after_name)
{
    int rows  = (p->num_nodes + p->boxes_across - 1) / p->boxes_across;
    int panel = p->boxes_across * (p->box_width + GAP) - GAP;
    int width, height = HEADER + CAPTION + rows * (p->box_height + GAP) + MARGIN;
    double z_before = (double)mpath_plan_z_ns(before), z_after = (double)mpath_plan_z_ns(after);

    panel      = (panel < MIN_PANEL) ? MIN_PANEL : panel;
    p->scale_s = fmax(z_before, z_after) / 1e9;
    width      = 2 * panel + 4 * GAP + 2 * MARGIN;
    fprintf(p->out,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d' "
            "font-family='DejaVu Sans, Helvetica, sans-serif'>\n"
            "<style>.h{font-size:15px;font-weight:bold;fill:#263238}.c{font-size:11px;fill:#455a64}"
            ".e{font-size:11px;fill:#455a64;text-anchor:end}.t{font-size:11px;font-weight:bold;fill:#37474f}"
            ".r{font-size:9px;fill:#607d8b;text-anchor:end}.n{font-size:9px;fill:#263238;text-anchor:middle}"
            ".k{font-size:10px;fill:#ffffff;text-anchor:middle}</style>\n"
            "<rect width='%d' height='%d' fill='#fafbfc'/>\n",
            width, height, width, height, width, height);
    draw_legend(p, MARGIN);
    draw_panel(p, MARGIN, before, "static routes", 0);
    draw_panel(p, MARGIN + panel + 4 * GAP, after, after_name, (z_after > 0) ? z_before / z_after : 0);
    fprintf(p->out, "</svg>\n");
    return ferror(p->out);
}

mpath_status_t plan_svg_write(const char *path, const mpath_topo_t *topo, const mpath_plan_t *before,
                              const mpath_plan_t *after, const char *after_name)
{
    picture_t picture = {.topo = topo};
    int failed;

    if (mpath_topo_num_nodes(topo) > PLAN_SVG_MAX_NODES) {
        mpath_error("picture %s: %d nodes, but %d at most can be told apart; it is not drawn", path,
                    mpath_topo_num_nodes(topo), PLAN_SVG_MAX_NODES);
        return MPATH_ERR_PARAM;
    }
    measure(&picture);
    picture.out = fopen(path, "w");
    if (picture.out == NULL) {
        mpath_error("picture %s: %s; it is not drawn", path, strerror(errno));
        return MPATH_ERR_IO;
    }
    failed = draw(&picture, before, after, after_name);
    if ((fclose(picture.out) != 0) || failed) {
        mpath_error("picture %s: %s; it is not complete", path, strerror(errno));
        return MPATH_ERR_IO;
    }
    return MPATH_OK;
}
