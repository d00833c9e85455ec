/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plan as text and as JSON, and why the bytes of a pair take the paths that they take: each path with its price, and
 * what else it would lead to.
 */
#include "tools/plan/report.h"

#include "util/log.h"
#include "util/number.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How steeply prices fall with the load, as late in the search: 1 % less load, half the price. */
#define ALPHA 100.0
/* A resource this full cannot take more without raising Z; also the planner's accepted gap. */
#define FULL 0.998
/* Prices that the accepted gap makes of one. */
#define SAME_PRICE 1.2

/* Bytes of the pair on one of its paths. */
static uint64_t bytes_on(const mpath_plan_t *plan, int source, int destination, int path)
{
    uint64_t bytes = 0;
    const mpath_flow_t *flows;
    size_t num_flows;

    flows = mpath_plan_flows(plan, &num_flows);
    for (size_t i = 0; i < num_flows; i++) {
        if ((flows[i].source == source) && (flows[i].destination == destination) &&
            ((path < 0) || (flows[i].path == path))) {
            bytes += flows[i].bytes;
        }
    }
    return bytes;
}

/* The loads without the pair. */
static void take_out(const mpath_topo_t *topo, const mpath_plan_t *plan, const plan_alternative_t *alternatives,
                     int count, uint64_t *loads)
{
    for (int r = 0; r < mpath_topo_num_resources(topo); r++) {
        loads[r] = mpath_plan_loads(plan)[r];
    }
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < alternatives[k].route.num_resources; i++) {
            loads[alternatives[k].route.resources[i]] -= alternatives[k].bytes;
        }
    }
}

static double z_with(const mpath_topo_t *topo, const uint64_t *loads, const mpath_path_t *route, uint64_t bytes)
{
    double z = 0;

    for (int r = 0; r < mpath_topo_num_resources(topo); r++) {
        uint64_t load = loads[r];

        for (int i = 0; i < route->num_resources; i++) {
            load += ((int)route->resources[i] == r) ? bytes : 0;
        }
        z = fmax(z, (double)load / (double)mpath_topo_resource(topo, r).capacity_bps);
    }
    return z;
}

/* Fullest resource and price, from the plan's loads. */
static void appraise(const mpath_topo_t *topo, const mpath_plan_t *plan, double z, plan_alternative_t *alternative)
{
    alternative->fullest = -1;
    for (int i = 0; i < alternative->route.num_resources; i++) {
        int r       = (int)alternative->route.resources[i];
        double fill = (z > 0) ? plan_resource_seconds(topo, plan, r) / z : 0;

        if ((alternative->fullest < 0) || (fill > alternative->fill)) {
            alternative->fullest = r;
            alternative->fill    = fill;
        }
        alternative->price += exp2(ALPHA * (fill - 1)) / (double)mpath_topo_resource(topo, r).capacity_bps;
    }
}

static const char *verdict(const plan_alternative_t *alternative, const plan_alternative_t *all, int count)
{
    int relays = INT32_MAX;

    for (int k = 0; k < count; k++) {
        if (all[k].bytes > 0 && all[k].route.num_relays < relays) {
            relays = all[k].route.num_relays;
        }
    }
    if (alternative->bytes > 0) {
        return (alternative->fill >= FULL) ? "used; what is on it makes Z" : "used; has room left";
    }
    if ((alternative->fill >= FULL) && (relays != INT32_MAX) && (alternative->route.num_relays > relays) &&
        (alternative->price < SAME_PRICE)) {
        return "not used: as full as those in use, with more relays";
    }
    if (alternative->fill >= FULL) {
        return "not used: full, any byte on it would raise Z";
    }
    if (relays != INT32_MAX && alternative->route.num_relays > relays) {
        return "not used: has room, but costs relays that Z does not need";
    }
    return "not used: has room that Z does not need";
}

mpath_status_t plan_explain(const mpath_topo_t *topo, const mpath_plan_t *plan, int source, int destination,
                            plan_alternative_t **alternatives_p, int *count_p)
{
    int count                        = mpath_topo_num_paths(topo, source, destination);
    plan_alternative_t *alternatives = calloc((size_t)count + 1, sizeof(*alternatives));
    uint64_t *loads                  = calloc((size_t)mpath_topo_num_resources(topo) + 1, sizeof(*loads));
    double z = (double)mpath_plan_z_ns(plan) / 1e9, cheapest = INFINITY;
    uint64_t bytes;

    if ((alternatives == NULL) || (loads == NULL)) {
        free(alternatives);
        free(loads);
        mpath_error("plan: no memory for %d paths; the pair is not explained", count);
        return MPATH_ERR_NO_MEMORY;
    }
    for (int k = 0; k < count; k++) {
        alternatives[k].path = k;
        mpath_topo_path(topo, source, destination, k, &alternatives[k].route);
        alternatives[k].bytes = bytes_on(plan, source, destination, k);
        appraise(topo, plan, z, &alternatives[k]);
        cheapest = fmin(cheapest, alternatives[k].price);
    }
    take_out(topo, plan, alternatives, count, loads);
    bytes = bytes_on(plan, source, destination, -1);
    for (int k = 0; k < count; k++) {
        alternatives[k].z_if_all_s = z_with(topo, loads, &alternatives[k].route, bytes);
        alternatives[k].price      = (cheapest > 0) ? alternatives[k].price / cheapest : 1;
        alternatives[k].verdict    = verdict(&alternatives[k], alternatives, count);
    }
    free(loads);
    *alternatives_p = alternatives;
    *count_p        = count;
    return MPATH_OK;
}

static const char *const policy_names[] = {"mpath", "direct", "stripe", "pxn", "pairs", "fast", "sabre"};

#define NUM_POLICIES (sizeof(policy_names) / sizeof(policy_names[0]))

_Static_assert(NUM_POLICIES == PLAN_REPORT_POLICIES, "a time for each");

const char *plan_policy_name(plan_policy_t policy)
{
    return policy_names[policy];
}

int plan_policy_find(const char *name, plan_policy_t *policy_p)
{
    for (size_t i = 0; i < NUM_POLICIES; i++) {
        if (strcmp(name, policy_names[i]) == 0) {
            *policy_p = (plan_policy_t)i;
            return 1;
        }
    }
    return 0;
}

double plan_resource_seconds(const mpath_topo_t *topo, const mpath_plan_t *plan, int resource)
{
    return (double)mpath_plan_loads(plan)[resource] / (double)mpath_topo_resource(topo, resource).capacity_bps;
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static double gap_of(const mpath_plan_t *plan)
{
    uint64_t bound = mpath_plan_bound_ns(plan);

    return bound == 0 ? 0 : (double)mpath_plan_z_ns(plan) / (double)bound - 1;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

/* "0 -nic1:nic1-> 4 ~> 5": ranks of a path; ~> host memory. */
static void print_route(const mpath_path_t *path, FILE *out)
{
    fprintf(out, "%d", path->hops[0].from);
    for (int i = 0; i < path->num_hops; i++) {
        const mpath_hop_t *hop = &path->hops[i];

        if (hop->lane == MPATH_LANE_RAIL) {
            fprintf(out, " -nic%d:nic%d-> %d", hop->nic_from, hop->nic_to, hop->to);
        } else if (hop->lane == MPATH_LANE_SHM) {
            fprintf(out, " ~> %d", hop->to);
        } else {
            fprintf(out, " -%s-> %d", mpath_lane_kind_name((mpath_lane_kind_t)hop->lane), hop->to);
        }
    }
    fprintf(out, "\n");
}

static void print_time(FILE *out, const char *name, double time_s)
{
    char text[MPATH_NUMBER_SHOWN];

    mpath_number_show(time_s, "s", text);
    fprintf(out, "%-15s %s\n", name, text);
}

static const char *shown(double value, const char *unit, char text[MPATH_NUMBER_SHOWN])
{
    mpath_number_show(value, unit, text);
    return text;
}

static void print_summary(const plan_report_t *report, FILE *out)
{
    char text[MPATH_NUMBER_SHOWN], name[16];
    size_t num_flows;

    mpath_plan_flows(report->plan, &num_flows);
    fprintf(out, "policy          %s\n", plan_policy_name(report->policy));
    print_time(out, "Z", seconds(mpath_plan_z_ns(report->plan)));
    print_time(out, "lower bound", seconds(mpath_plan_bound_ns(report->plan)));
    fprintf(out, "gap             %.3f %%\n", gap_of(report->plan) * 100);
    for (size_t i = 0; report->has_policies && (i < NUM_POLICIES); i++) {
        snprintf(name, sizeof(name), "Z of %s", policy_names[i]);
        print_time(out, name, seconds(report->policies_z_ns[i]));
    }
    print_time(out, "predicted", seconds(report->predicted_ns));
    if (report->steps > 0) {
        fprintf(out, "steps           %zu, in %s\n", report->steps, shown(report->steps_seconds, "s", text));
    }
    if (report->gate != NULL) {
        fprintf(out, "static routes   %s predicted; %s\n", shown(seconds(report->static_predicted_ns), "s", text),
                report->gate);
    }
    if (report->has_simulation) {
        print_time(out, "simulated", report->simulation.seconds);
        fprintf(out, "relays hold     %s at most, all together\n",
                shown((double)report->simulation.peak_bytes, "B", text));
    }
    fprintf(out, "relayed bytes   %s\n", shown((double)mpath_plan_relayed_bytes(report->plan), "B", text));
    fprintf(out, "fragments       %zu\n", num_flows);
    fprintf(out, "signature       %016" PRIx64 "\n", mpath_plan_signature(report->plan));
    if (report->plan_us >= 0) {
        print_time(out, "planning time", report->plan_us / 1e6);
    }
}

static void print_resources(const plan_report_t *report, FILE *out)
{
    uint64_t z_ns = mpath_plan_z_ns(report->plan);

    fprintf(out, "\n%-24s %14s %16s %12s\n", "resource", "capacity", "load", "% of Z");
    for (int r = 0; r < mpath_topo_num_resources(report->topo); r++) {
        const mpath_resource_t resource = mpath_topo_resource(report->topo, r);
        uint64_t load                   = mpath_plan_loads(report->plan)[r];
        char name[64], capacity_text[MPATH_NUMBER_SHOWN], load_text[MPATH_NUMBER_SHOWN];

        mpath_topo_resource_name(report->topo, r, name, sizeof(name));
        fprintf(out, "%-24s %14s %16s %12.2f%s\n", name, shown((double)resource.capacity_bps, "B/s", capacity_text),
                shown((double)load, "B", load_text),
                z_ns == 0 ? 0 : (double)load * 1e11 / (double)resource.capacity_bps / (double)z_ns,
                r == mpath_plan_bottleneck(report->plan) ? " <" : "");
    }
}

static void print_flows(const plan_report_t *report, FILE *out)
{
    const mpath_flow_t *flows;
    mpath_path_t path;
    size_t num_flows;

    flows = mpath_plan_flows(report->plan, &num_flows);
    fprintf(out, "\n  from   to  offset, bytes          bytes   path\n");
    for (size_t i = 0; i < num_flows; i++) {
        fprintf(out, "  %4d %4d %14" PRIu64 " %14" PRIu64 "   ", flows[i].source, flows[i].destination, flows[i].offset,
                flows[i].bytes);
        mpath_topo_path(report->topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        print_route(&path, out);
    }
}

static void print_explanation(const plan_report_t *report, FILE *out)
{
    plan_alternative_t *all;
    uint64_t bytes = 0;
    int count;

    if (plan_explain(report->topo, report->plan, report->explain_source, report->explain_destination, &all, &count) !=
        MPATH_OK) {
        return;
    }
    for (int k = 0; k < count; k++) {
        bytes += all[k].bytes;
    }
    fprintf(out, "\nrank %d to rank %d: %" PRIu64 " bytes, %d paths\n", report->explain_source,
            report->explain_destination, bytes, count);
    fprintf(out, "%4s %14s %-24s %8s %9s %14s   %s\n", "path", "bytes", "its fullest resource", "% of Z", "price",
            "Z if all", "route, verdict");
    for (int k = 0; k < count; k++) {
        char name[64] = "-", z_text[MPATH_NUMBER_SHOWN];

        if (all[k].fullest >= 0) {
            mpath_topo_resource_name(report->topo, all[k].fullest, name, sizeof(name));
        }
        fprintf(out, "%4d %14" PRIu64 " %-24s %8.2f ", k, all[k].bytes, name, all[k].fill * 100);
        fprintf(out, (all[k].price < 1e6) ? "%9.2f" : "%9.1e", all[k].price);
        fprintf(out, " %14s   ", shown(all[k].z_if_all_s, "s", z_text));
        print_route(&all[k].route, out);
        fprintf(out, "%79s %s\n", "", all[k].verdict);
    }
    free(all);
}

void plan_report_text(const plan_report_t *report, FILE *out)
{
    print_summary(report, out);
    print_resources(report, out);
    if (report->explain) {
        print_explanation(report, out);
    }
    if (report->show_flows) {
        print_flows(report, out);
    }
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *json_resources(const plan_report_t *report)
{
    json_t *list = json_array();
    char name[64];

    for (int r = 0; r < mpath_topo_num_resources(report->topo); r++) {
        mpath_topo_resource_name(report->topo, r, name, sizeof(name));
        json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "name", name, "capacity_Bps",
                                              (json_int_t)mpath_topo_resource(report->topo, r).capacity_bps,
                                              "load_bytes", (json_int_t)mpath_plan_loads(report->plan)[r]));
    }
    return list;
}

static json_t *json_route(const mpath_path_t *path)
{
    json_t *list = json_array(), *hop;

    for (int i = 0; i < path->num_hops; i++) {
        hop = json_pack("{s:i, s:s}", "to", (int)path->hops[i].to, "lane",
                        mpath_lane_kind_name((mpath_lane_kind_t)path->hops[i].lane));
        if (path->hops[i].lane == MPATH_LANE_RAIL) {
            json_object_set_new(hop, "nic_from", json_integer(path->hops[i].nic_from));
            json_object_set_new(hop, "nic_to", json_integer(path->hops[i].nic_to));
        }
        json_array_append_new(list, hop);
    }
    return list;
}

static json_t *json_flows(const plan_report_t *report)
{
    json_t *list = json_array();
    const mpath_flow_t *flows;
    mpath_path_t path;
    size_t num_flows;

    flows = mpath_plan_flows(report->plan, &num_flows);
    for (size_t i = 0; i < num_flows; i++) {
        mpath_topo_path(report->topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        json_array_append_new(list, json_pack("{s:i, s:i, s:I, s:I, s:o}", "src", (int)flows[i].source, "dst",
                                              (int)flows[i].destination, "offset", (json_int_t)flows[i].offset, "bytes",
                                              (json_int_t)flows[i].bytes, "path", json_route(&path)));
    }
    return list;
}

static json_t *json_explanation(const plan_report_t *report)
{
    json_t *list = json_array();
    plan_alternative_t *all;
    int count;

    if (plan_explain(report->topo, report->plan, report->explain_source, report->explain_destination, &all, &count) !=
        MPATH_OK) {
        json_decref(list);
        return NULL;
    }
    for (int k = 0; k < count; k++) {
        char name[64] = "";

        if (all[k].fullest >= 0) {
            mpath_topo_resource_name(report->topo, all[k].fullest, name, sizeof(name));
        }
        json_array_append_new(list,
                              json_pack("{s:o, s:I, s:i, s:s, s:f, s:f, s:f, s:s}", "path", json_route(&all[k].route),
                                        "bytes", (json_int_t)all[k].bytes, "relays", all[k].route.num_relays, "fullest",
                                        name, "fill", all[k].fill, "price", all[k].price, "z_if_all_s",
                                        all[k].z_if_all_s, "verdict", all[k].verdict));
    }
    free(all);
    return json_pack("{s:i, s:i, s:o}", "src", report->explain_source, "dst", report->explain_destination,
                     "alternatives", list);
}

static json_t *json_report(const plan_report_t *report)
{
    size_t num_flows;
    json_t *all;

    mpath_plan_flows(report->plan, &num_flows);
    all = json_pack("{s:f, s:f, s:f, s:f, s:s, s:f, s:I, s:I, s:o, s:o}", "z_s", seconds(mpath_plan_z_ns(report->plan)),
                    "bound_s", seconds(mpath_plan_bound_ns(report->plan)), "gap", gap_of(report->plan), "predicted_s",
                    seconds(report->predicted_ns), "policy", plan_policy_name(report->policy), "plan_us",
                    report->plan_us < 0 ? 0.0 : report->plan_us, "relayed_bytes",
                    (json_int_t)mpath_plan_relayed_bytes(report->plan), "fragments", (json_int_t)num_flows, "resources",
                    json_resources(report), "flows", json_flows(report));
    if ((all != NULL) && (report->gate != NULL)) {
        json_object_set_new(all, "static_predicted_s", json_real(seconds(report->static_predicted_ns)));
        json_object_set_new(all, "gate", json_string(report->gate_id));
    }
    if ((all != NULL) && (report->steps > 0)) {
        json_object_set_new(all, "steps", json_integer((json_int_t)report->steps));
        json_object_set_new(all, "steps_s", json_real(report->steps_seconds));
    }
    if ((all != NULL) && report->has_policies) {
        json_t *times = json_object();

        for (size_t i = 0; i < NUM_POLICIES; i++) {
            json_object_set_new(times, policy_names[i], json_real(seconds(report->policies_z_ns[i])));
        }
        json_object_set_new(all, "policies_z_s", times);
    }
    if ((all != NULL) && report->has_simulation) {
        json_object_set_new(all, "simulated_s", json_real(report->simulation.seconds));
        json_object_set_new(all, "relay_peak_bytes", json_integer((json_int_t)report->simulation.peak_bytes));
    }
    if ((all != NULL) && report->explain) {
        json_object_set_new(all, "explain", json_explanation(report));
    }
    return all;
}

mpath_status_t plan_report_json(const plan_report_t *report, FILE *out)
{
    json_t *all = json_report(report);
    int result;

    if (all == NULL) {
        mpath_error("plan: no memory for the JSON output; nothing is printed");
        return MPATH_ERR_NO_MEMORY;
    }
    result = json_dumpf(all, out, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    fprintf(out, "\n");
    json_decref(all);
    return (result == 0) ? MPATH_OK : MPATH_ERR_IO;
}
