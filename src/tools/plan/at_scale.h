/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An exchange of thousands of ranks on paper: what the network takes, with the plans by pairs of nodes that the ranks of a job make
 * (plan/pairs.h), and what the ranks' processors take. Node by node: nobody has the matrix, nor all flows.
 *
 * The network takes Z, the time of the busiest resource, and what a first chunk takes on the longest way: flows that share
 * a resource do so by their bytes, as the executor serves them, so that none is late because of another (doc/planner.md).
 *
 * A rank's processor agrees, plans and makes a schedule, one after the other, and then handles the messages of its chunks while the
 * network moves them. What that takes follows the counts by the constants below.
 */
#ifndef MPATH_TOOLS_AT_SCALE_H
#define MPATH_TOOLS_AT_SCALE_H

#include "plan/time_model.h"
#include "tools/plan/rows.h"
#include "topo/topo.h"

#include <stdio.h>

/* Of processors, nanoseconds. */
typedef struct at_scale_costs {
    double agree_ns, agree_rank_ns; /* of an agreement: always, and for each rank of the job: its counts are read */
    double round_ns;         /* of a leader, for each message to another leader; the NICs' latencies come on top */
    double plan_flow_ns;     /* for each flow that a rank's part of the plan has, */
    double schedule_flow_ns; /* and each that its schedule has */
    double message_ns;       /* of a chunk on a hop, to send it or to receive it */
} at_scale_costs_t;

/* As tests/scale measures them (doc/scale.md), times `factor`: 0 for none. */
void at_scale_costs_init(double factor, at_scale_costs_t *costs);

typedef struct at_scale_params {
    mpath_time_params_t time;
    uint64_t min_fragment_bytes;
    at_scale_costs_t costs;
    int with_rivals;
    int fast_ranks; /* FAST in steps up to so many ranks; beyond, what it takes at least */
} at_scale_params_t;

/* Default costs, rivals, 1024. */
void at_scale_params_init(at_scale_params_t *params);

/* One way to do the exchange: seconds. The total is agree, plan and schedule, and the longer of network and messages. */
typedef struct at_scale_way {
    double z, network, agree, plan, schedule, messages, total;
    uint64_t most_messages; /* of a rank */
} at_scale_way_t;

enum {
    AT_SCALE_STATIC, /* path 0 of every pair, without an agreement */
    AT_SCALE_FIRST,  /* mpath, sizes that no call had before */
    AT_SCALE_AGAIN,  /* mpath, sizes of an earlier call: it agrees only */
    AT_SCALE_SABRE,  /* rivals: steps only, of which processors know nothing */
    AT_SCALE_FAST,
    AT_SCALE_WAYS
};

typedef struct at_scale_result {
    double bound;           /* that nothing is below: the cut at the busiest node */
    double bytes, crossing; /* of all ranks, and those between nodes */
    int moves;              /* the plan moves bytes off static routes */
    int fast_is_least;      /* of FAST it is known what it takes at least */
    size_t fast_steps;
    at_scale_way_t ways[AT_SCALE_WAYS];
    uint64_t *loads[2]; /* by resource: on the static routes, and with the plan */
} at_scale_result_t;

/* "static", "mpath-first", "mpath-again", "sabre", "fast" */
const char *at_scale_way_name(int way);

/*
 * MPATH_ERR_UNSUPPORTED where nodes are not alike, or plans are not made by pairs of them. `rows` are of the ranks of `topo`, which lie by node in
 * their order. Errors are logged.
 */
mpath_status_t at_scale_run(const mpath_topo_t *topo, const plan_rows_t *rows, const at_scale_params_t *params,
                            at_scale_result_t *result);
void at_scale_release(at_scale_result_t *result);

/* `labels` NULL or one for each result. Results of several exchanges that follow each other: their sums at the end. */
typedef struct at_scale_report {
    const char *machine, *demand;
    const at_scale_result_t *results;
    const char *const *labels;
    int count;
} at_scale_report_t;

void at_scale_text(const at_scale_report_t *report, FILE *out);
/* MPATH_ERR_NO_MEMORY, logged. */
mpath_status_t at_scale_json(const at_scale_report_t *report, FILE *out);

#endif
