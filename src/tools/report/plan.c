/* SPDX-License-Identifier: BSD-3-Clause */
/* A matrix on a machine: what every policy would make of it, and why the hottest pair takes the paths that it takes. */
#include "tools/report/page.h"

#include "plan/time_model.h"
#include "tools/plan/report.h"
#include "tools/plan/svg.h"
#include "util/log.h"
#include "util/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LINKS_SHOWN 12
#define PATHS_SHOWN 40
#define MATRIX_CELLS 64 /* each way; larger matrices are put together */
#define CELL 9

typedef struct report_policy {
    const char *name, *what;
    mpath_plan_t *plan;
    uint64_t predicted_ns;
} report_policy_t;

/* All that the sections show. */
typedef struct plan_pages {
    FILE *out;
    const mpath_topo_t *topo;
    const uint64_t *demand;
    report_policy_t policies[PLAN_OWN_POLICIES]; /* by mpath_policy_t */
    const mpath_plan_t *before, *after;
} plan_pages_t;

static const char *shown(double value, const char *unit, char text[MPATH_NUMBER_SHOWN])
{
    mpath_number_show(value, unit, text);
    return text;
}

static double z_s(const mpath_plan_t *plan)
{
    return (double)mpath_plan_z_ns(plan) / 1e9;
}

static void busiest_name(const plan_pages_t *pages, const mpath_plan_t *plan, char *name, size_t size)
{
    int busiest = mpath_plan_bottleneck(plan);

    snprintf(name, size, "nothing");
    if (busiest >= 0) {
        mpath_topo_resource_name(pages->topo, busiest, name, size);
    }
}

static void show_figures(const plan_pages_t *pages)
{
    char value[MPATH_NUMBER_SHOWN + 8], number[MPATH_NUMBER_SHOWN], name[64];
    double before = z_s(pages->before), after = z_s(pages->after),
           bound = (double)mpath_plan_bound_ns(pages->after) / 1e9;

    page_figures(pages->out);
    busiest_name(pages, pages->before, name, sizeof(name));
    page_figure(pages->out, "static routes", shown(before, "s", number), name);
    busiest_name(pages, pages->after, name, sizeof(name));
    page_figure(pages->out, "mpath", shown(after, "s", number), name);
    snprintf(value, sizeof(value), "%.2f x", after > 0 ? before / after : 1);
    page_figure(pages->out, "as fast", value, "the busiest link decides");
    snprintf(value, sizeof(value), "%.2f %%", bound > 0 ? (after / bound - 1) * 100 : 0);
    page_figure(pages->out, "above the proved bound", value, shown(bound, "s", number));
    page_figure(pages->out, "relayed", shown((double)mpath_plan_relayed_bytes(pages->after), "B", number),
                "through ranks in between");
    page_figures_end(pages->out);
}

static mpath_status_t show_picture(const plan_pages_t *pages, const plan_captions_t *captions)
{
    const plan_svg_t svg  = {.topo       = pages->topo,
                             .before     = pages->before,
                             .after      = pages->after,
                             .after_name = "mpath",
                             .captions   = captions};
    mpath_status_t status = MPATH_OK;

    page_section(pages->out, "load", "Machine and load, before and after");
    show_figures(pages);
    fprintf(pages->out, "<div class='wide'>\n");
    if (mpath_topo_num_nodes(pages->topo) <= PLAN_SVG_MAX_NODES) {
        status = plan_svg_draw(&svg, pages->out);
    } else {
        fprintf(pages->out, "<p class='note'>%d nodes: too many to be told apart in a picture.</p>\n",
                mpath_topo_num_nodes(pages->topo));
    }
    fprintf(pages->out, "</div>\n");
    page_section_end(pages->out);
    return status;
}

/* What if: every policy on the same matrix. */
static void show_policies(const plan_pages_t *pages)
{
    double worst = 0, best = INFINITY;

    for (int i = 0; i < PLAN_OWN_POLICIES; i++) {
        worst = fmax(worst, z_s(pages->policies[i].plan));
        best  = fmin(best, z_s(pages->policies[i].plan));
    }
    page_section(pages->out, "policies", "What if: other policies");
    fprintf(pages->out,
            "<p class='note'>Z is the time that the busiest link needs for its bytes; \"predicted\" adds latencies "
            "and the filling of pipelines.</p>\n<div class='wide'><table>\n<tr><th>policy<th>routes<th>Z<th "
            "class='n'>predicted<th class='n'>relayed<th class='n'>fragments<th>busiest link</tr>\n");
    for (int i = 0; i < PLAN_OWN_POLICIES; i++) {
        const report_policy_t *policy = &pages->policies[i];
        char text[MPATH_NUMBER_SHOWN], name[64];
        size_t num_flows;

        mpath_plan_flows(policy->plan, &num_flows);
        busiest_name(pages, policy->plan, name, sizeof(name));
        fprintf(pages->out, "<tr%s><td>%s<td>%s<td class='w'>", z_s(policy->plan) <= best ? " class='best'" : "",
                policy->name, policy->what);
        page_bar(pages->out, worst > 0 ? z_s(policy->plan) / worst : 0, shown(z_s(policy->plan), "s", text));
        fprintf(pages->out, "<td class='n'>%s", shown((double)policy->predicted_ns / 1e9, "s", text));
        fprintf(pages->out, "<td class='n'>%s<td class='n'>%zu<td>",
                shown((double)mpath_plan_relayed_bytes(policy->plan), "B", text), num_flows);
        plan_put_text(pages->out, name);
        fprintf(pages->out, "</tr>\n");
    }
    fprintf(pages->out, "</table></div>\n");
    page_section_end(pages->out);
}

/* Links that are busy for longest by static routes. */
static const plan_pages_t *sorting;

static int compare_links(const void *one, const void *other)
{
    double a = plan_resource_seconds(sorting->topo, sorting->before, *(const int *)one);
    double b = plan_resource_seconds(sorting->topo, sorting->before, *(const int *)other);

    return a < b ? 1 : a > b ? -1 : *(const int *)one - *(const int *)other;
}

static mpath_status_t show_links(const plan_pages_t *pages)
{
    int count = mpath_topo_num_resources(pages->topo), *order = malloc((size_t)(count + 1) * sizeof(*order));
    double longest = fmax(z_s(pages->before), z_s(pages->after));

    if (order == NULL) {
        mpath_error("report: no memory for %d links", count);
        return MPATH_ERR_NO_MEMORY;
    }
    for (int i = 0; i < count; i++) {
        order[i] = i;
    }
    sorting = pages;
    qsort(order, (size_t)count, sizeof(*order), compare_links);
    page_section(pages->out, "links", "The busiest links");
    fprintf(pages->out,
            "<p class='note'>Those that static routes keep busy for longest, %d of %d.</p>\n<div class='wide'><table>\n"
            "<tr><th>link<th class='n'>carries<th>by static routes<th>by mpath</tr>\n",
            count < LINKS_SHOWN ? count : LINKS_SHOWN, count);
    for (int i = 0; i < count && i < LINKS_SHOWN; i++) {
        double before = plan_resource_seconds(pages->topo, pages->before, order[i]);
        double after  = plan_resource_seconds(pages->topo, pages->after, order[i]);
        char name[64], text[MPATH_NUMBER_SHOWN];

        mpath_topo_resource_name(pages->topo, order[i], name, sizeof(name));
        fprintf(pages->out, "<tr><td>");
        plan_put_text(pages->out, name);
        fprintf(pages->out, "<td class='n'>%s<td class='w'>",
                shown((double)mpath_topo_resource(pages->topo, order[i]).capacity_bps, "B/s", text));
        page_bar(pages->out, longest > 0 ? before / longest : 0, shown(before, "s", text));
        fprintf(pages->out, "<td class='w'>");
        page_bar(pages->out, longest > 0 ? after / longest : 0, shown(after, "s", text));
        fprintf(pages->out, "</tr>\n");
    }
    fprintf(pages->out, "</table></div>\n");
    page_section_end(pages->out);
    free(order);
    return MPATH_OK;
}

/* Whether the plan takes a pair over relays. */
static int is_relayed(const plan_pages_t *pages, const mpath_flow_t *pair)
{
    const mpath_flow_t *flows;
    size_t num_flows;

    flows = mpath_plan_flows(pages->after, &num_flows);
    for (size_t i = 0; i < num_flows; i++) {
        mpath_path_t path;

        if (flows[i].source == pair->source && flows[i].destination == pair->destination) {
            mpath_topo_path(pages->topo, flows[i].source, flows[i].destination, flows[i].path, &path);
            if (path.num_relays > 0) {
                return 1;
            }
        }
    }
    return 0;
}

/* The pair with most bytes on the link that static routes fill, of equal ones one that the plan takes elsewhere; 0: none. */
static int hottest_pair(const plan_pages_t *pages, int *source_p, int *destination_p)
{
    int busiest = mpath_plan_bottleneck(pages->before), relayed = 0;
    const mpath_flow_t *flows;
    uint64_t most = 0;
    size_t num_flows;

    flows = mpath_plan_flows(pages->before, &num_flows);
    for (size_t i = 0; i < num_flows; i++) {
        mpath_path_t path;
        int is_on = 0;

        if (flows[i].bytes < most || (flows[i].bytes == most && (most == 0 || relayed))) {
            continue;
        }
        mpath_topo_path(pages->topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        for (int r = 0; r < path.num_resources; r++) {
            is_on |= (int)path.resources[r] == busiest;
        }
        if (is_on && (flows[i].bytes > most || is_relayed(pages, &flows[i]))) {
            relayed        = is_relayed(pages, &flows[i]);
            most           = flows[i].bytes;
            *source_p      = flows[i].source;
            *destination_p = flows[i].destination;
        }
    }
    return most > 0;
}

static void put_route(FILE *out, const mpath_path_t *path)
{
    fprintf(out, "%d", path->hops[0].from);
    for (int i = 0; i < path->num_hops; i++) {
        const mpath_hop_t *hop = &path->hops[i];

        if (hop->lane == MPATH_LANE_RAIL) {
            fprintf(out, " &#8594; NIC %d &#8594; NIC %d &#8594; %d", hop->nic_from, hop->nic_to, hop->to);
        } else {
            fprintf(out, " &#8594; %s &#8594; %d", mpath_lane_kind_name((mpath_lane_kind_t)hop->lane), hop->to);
        }
    }
}

static mpath_status_t show_pair(const plan_pages_t *pages)
{
    char text[MPATH_NUMBER_SHOWN], z_text[MPATH_NUMBER_SHOWN], title[96], name[64];
    plan_alternative_t *all;
    int source = 0, destination = 0, count;
    mpath_status_t status;
    double bytes = 0;

    if (!hottest_pair(pages, &source, &destination)) {
        return MPATH_OK;
    }
    status = plan_explain(pages->topo, pages->after, source, destination, &all, &count);
    if (status != MPATH_OK) {
        return status;
    }
    for (int i = 0; i < count; i++) {
        bytes += (double)all[i].bytes;
    }
    snprintf(title, sizeof(title), "Why: the hottest pair, rank %d to rank %d", source, destination);
    page_section(pages->out, "pair", title);
    busiest_name(pages, pages->before, name, sizeof(name));
    fprintf(pages->out, "<p class='note'>%s, the most that one pair puts on ", shown(bytes, "B", text));
    plan_put_text(pages->out, name);
    fprintf(pages->out,
            " by static routes; %d path%s%s. The price is that of a byte, the cheapest path of the pair being 1; "
            "\"Z if all\" is what Z would be if all bytes of the pair took that path. The same for another pair: "
            "<code>mpath_plan --explain S,D</code>.</p>\n<div class='wide'><table>\n<tr><th>path<th>route<th "
            "class='n'>bytes<th>its fullest link<th class='n'>%% of Z<th class='n'>price<th class='n'>Z if "
            "all<th>verdict</tr>\n",
            count, count == 1 ? "" : "s", count > PATHS_SHOWN ? ", of which the first are shown" : "");
    for (int i = 0; i < count && i < PATHS_SHOWN; i++) {
        fprintf(pages->out, "<tr%s><td class='n'>%d<td class='w'>", all[i].bytes > 0 ? " class='best'" : "", i);
        put_route(pages->out, &all[i].route);
        snprintf(name, sizeof(name), "-");
        if (all[i].fullest >= 0) {
            mpath_topo_resource_name(pages->topo, all[i].fullest, name, sizeof(name));
        }
        fprintf(pages->out, "<td class='n'>%s<td>%s<td class='n'>%.1f<td class='n'>",
                shown((double)all[i].bytes, "B", text), name, all[i].fill * 100);
        fprintf(pages->out, all[i].price < 1e6 ? "%.2f" : "%.1e", all[i].price);
        fprintf(pages->out, "<td class='n'>%s<td>%s</tr>\n", shown(all[i].z_if_all_s, "s", z_text), all[i].verdict);
    }
    fprintf(pages->out, "</table></div>\n");
    page_section_end(pages->out);
    free(all);
    return MPATH_OK;
}

/* Who sends to whom: a square for each pair, or for each group of them. */
static void show_matrix(const plan_pages_t *pages)
{
    int ranks = mpath_topo_num_ranks(pages->topo), group = (ranks + MATRIX_CELLS - 1) / MATRIX_CELLS,
        cells = (ranks + group - 1) / group, cell = cells <= 16 ? 2 * CELL : CELL, left = 44, top = 26;
    double sums[MATRIX_CELLS][MATRIX_CELLS], most = 0;
    char text[MPATH_NUMBER_SHOWN];

    memset(sums, 0, sizeof(sums));
    for (int source = 0; source < ranks; source++) {
        for (int destination = 0; destination < ranks; destination++) {
            double *sum = &sums[source / group][destination / group];

            *sum += (double)pages->demand[(size_t)source * (size_t)ranks + (size_t)destination];
            most = fmax(most, *sum);
        }
    }
    page_section(pages->out, "matrix", "Who sends to whom");
    fprintf(pages->out,
            "<p class='note'>Rows send, columns receive; the fullest square is %s%s.</p>\n<div class='wide'>"
            "<svg class='tl scroll' width='%d' height='%d' role='img'>\n<text x='%d' y='16'>to rank 0 &#8230; "
            "%d</text><text x='2' y='%d'>from 0</text>\n",
            shown(most, "B", text), group > 1 ? "; each stands for a group of ranks" : "", left + cells * cell + 4,
            top + cells * cell + 4, left, ranks - 1, top + 12);
    for (int row = 0; row < cells; row++) {
        for (int column = 0; column < cells; column++) {
            double part = most > 0 ? sums[row][column] / most : 0;

            if (part > 0) {
                fprintf(pages->out,
                        "<rect x='%d' y='%d' width='%d' height='%d' fill='#2176ae' fill-opacity='%.3f'><title>",
                        left + column * cell, top + row * cell, cell - 1, cell - 1, 0.08 + 0.92 * sqrt(part));
                if (group > 1) {
                    fprintf(pages->out, "ranks %d to %d to ranks %d to %d: ", row * group,
                            (row + 1) * group < ranks ? (row + 1) * group - 1 : ranks - 1, column * group,
                            (column + 1) * group < ranks ? (column + 1) * group - 1 : ranks - 1);
                } else {
                    fprintf(pages->out, "rank %d to rank %d: ", row, column);
                }
                fprintf(pages->out, "%s</title></rect>\n", shown(sums[row][column], "B", text));
            } else {
                fprintf(pages->out, "<rect x='%d' y='%d' width='%d' height='%d' class='row'/>\n", left + column * cell,
                        top + row * cell, cell - 1, cell - 1);
            }
        }
    }
    fprintf(pages->out, "</svg></div>\n");
    page_section_end(pages->out);
}

static mpath_status_t make_plans(plan_pages_t *pages, const mpath_plan_params_t *given)
{
    static const char *const what[] = {[MPATH_POLICY_MPATH] = "least congestion over all paths, relays where they help",
                                       [MPATH_POLICY_DIRECT] = "the static route of each pair",
                                       [MPATH_POLICY_STRIPE] = "every pair evenly over its paths without relays",
                                       [MPATH_POLICY_PXN]    = "one relay, to the rail beside the receiver",
                                       [MPATH_POLICY_PAIRS]  = "as mpath, but for each pair of nodes by itself"};
    mpath_time_params_t time;
    mpath_status_t status = MPATH_OK;

    _Static_assert(sizeof(what) / sizeof(what[0]) == PLAN_OWN_POLICIES, "words for each");
    mpath_time_params_init(&time);
    for (int i = 0; i < PLAN_OWN_POLICIES && status == MPATH_OK; i++) {
        report_policy_t *policy    = &pages->policies[i];
        mpath_plan_params_t params = *given;

        params.policy = (mpath_policy_t)i;
        policy->name  = plan_policy_name((plan_policy_t)i);
        policy->what  = what[i];
        status        = mpath_plan_create(pages->topo, pages->demand, &params, &policy->plan);
        if (status == MPATH_OK) {
            status = mpath_time_predict(pages->topo, policy->plan, &time, &policy->predicted_ns);
        }
    }
    pages->before = pages->policies[MPATH_POLICY_DIRECT].plan;
    pages->after  = pages->policies[MPATH_POLICY_MPATH].plan;
    return status;
}

mpath_status_t report_plan(FILE *out, const plan_input_t *input, const mpath_plan_params_t *params)
{
    plan_pages_t pages = {.out = out};
    plan_captions_t captions;
    mpath_status_t status;
    mpath_topo_t *topo;
    uint64_t *demand;

    status = plan_input_make(input, &topo, &demand);
    if (status != MPATH_OK) {
        return status;
    }
    pages.topo   = topo;
    pages.demand = demand;
    status       = make_plans(&pages, params);
    if (status == MPATH_OK) {
        plan_input_describe(input, topo, demand, &captions);
        status = show_picture(&pages, &captions);
    }
    if (status == MPATH_OK) {
        show_policies(&pages);
        status = show_pair(&pages);
    }
    if (status == MPATH_OK) {
        status = show_links(&pages);
        show_matrix(&pages);
    }
    for (int i = 0; i < PLAN_OWN_POLICIES; i++) {
        if (pages.policies[i].plan != NULL) {
            mpath_plan_destroy(pages.policies[i].plan);
        }
    }
    free(demand);
    mpath_topo_destroy(topo);
    return status;
}
