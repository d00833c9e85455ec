/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planner against an exact linear program (GLPK) on random clusters of host ranks and of GPUs. For every instance:
 * the plan is valid, no policy without a search is better, no piece is below the minimum fragment, the certified bound
 * does not exceed the optimum, and Z is within 1 % of it: with fragments of one byte always, with the default fragment
 * where 1 % is some fragments. Elsewhere it may be above that by as many fragments.
 * `--all` runs all instances, which takes minutes; without it a part of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/plan_lp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GAP 0.01         /* of Z above the optimum */
#define LOSS 3           /* what whole fragments may cost beyond, in fragments on the bottleneck */
#define CLOSED_GAP 0.001 /* where the all-rails bound is the optimum */
#define FRAGMENT (32 * 1024)

typedef void (*draw_t)(plan_case_t *c, uint64_t seed, int max_ranks);

typedef struct summary {
    int instances, bad, closed;
    double worst, worst_bytewise, worst_loss, worst_closed, loosest;
} summary_t;

static int run_all;
static int verbose;

static mpath_plan_t *plan_with(const plan_case_t *c, mpath_policy_t policy, uint64_t fragment)
{
    mpath_plan_params_t params;
    mpath_plan_t *plan;

    mpath_plan_params_init(&params);
    params.policy             = policy;
    params.min_fragment_bytes = fragment;
    assert_int_equal(mpath_plan_create(c->topo, c->demand, &params, &plan), MPATH_OK);
    plan_case_check(c, plan);
    return plan;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/*
 * Policies are not looked at while planning: one may be better, never below the bound that is proved. In all of 2,700
 * instances stripe was in five, by a thousandth at most, direct and PXN in one, by 1.9 %.
 */
#define POLICY_PERCENT 2

static void compare_with_policies(const plan_case_t *c, const mpath_plan_t *plan, uint64_t fragment)
{
    static const mpath_policy_t others[] = {MPATH_POLICY_DIRECT, MPATH_POLICY_STRIPE, MPATH_POLICY_PXN};
    mpath_plan_t *other;
    size_t i;

    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        other = plan_with(c, others[i], fragment);
        assert_true(mpath_plan_bound_ns(plan) <= mpath_plan_z_ns(other));
        if (mpath_plan_z_ns(plan) * 100 > mpath_plan_z_ns(other) * (100 + POLICY_PERCENT)) {
            fail_msg("%s: Z is %llu ns, that of policy %d %llu ns", c->text, (unsigned long long)mpath_plan_z_ns(plan),
                     (int)others[i], (unsigned long long)mpath_plan_z_ns(other));
        }
        mpath_plan_destroy(other);
    }
}

/* Times are rounded to nanoseconds, up for Z and down for the bound. */
static double gap_of(const mpath_plan_t *plan, double optimum)
{
    return larger(0, ((double)mpath_plan_z_ns(plan) - 1) / optimum - 1);
}

static double slack_of(const mpath_plan_t *plan, double optimum)
{
    return 1 - (double)mpath_plan_bound_ns(plan) / optimum;
}

/* Time of a fragment on the plan's bottleneck. */
static double fragment_ns(const plan_case_t *c, const mpath_plan_t *plan)
{
    int bottleneck = mpath_plan_bottleneck(plan);

    return bottleneck < 0 ? 1 : FRAGMENT * 1e9 / (double)mpath_topo_resource(c->topo, bottleneck).capacity_bps;
}

/* By how many fragments a plan is above the tolerated gap. */
static double loss_of(const plan_case_t *c, const mpath_plan_t *plan, double optimum)
{
    return larger(0, ((double)mpath_plan_z_ns(plan) - 1 - optimum * (1 + GAP)) / fragment_ns(c, plan));
}

/*
 * Whether rails are equal, decide the optimum, and the memory of the nodes could not even with all bytes twice in one.
 */
static int is_closed(const plan_case_t *c, double optimum)
{
    size_t cells  = (size_t)mpath_topo_num_ranks(c->topo) * (size_t)mpath_topo_num_ranks(c->topo), i;
    double memory = 0;

    for (i = 0; i < cells; i++) {
        memory += 2 * (double)c->demand[i] * 1e9 / (double)mpath_topo_machine(c->topo, 0)->host_memory_bps;
    }
    return mpath_topo_rails_match(c->topo) && mpath_topo_rails_alike(c->topo) && memory < optimum &&
           (double)mpath_plan_all_rails_bound_ns(c->topo, c->demand) >= optimum * (1 - 1e-6) - 1;
}

/* Adds the comparison to the summary; nonzero when the plans are not as good as they must be. */
static int judge(const plan_case_t *c, const mpath_plan_t *plan, const mpath_plan_t *bytewise, double optimum,
                 summary_t *sum)
{
    double gap = gap_of(plan, optimum), gap_bytewise = gap_of(bytewise, optimum), loss = loss_of(c, plan, optimum);
    double slack = slack_of(plan, optimum), slack_bytewise = slack_of(bytewise, optimum);
    int closed = is_closed(c, optimum), large = optimum * GAP >= LOSS * fragment_ns(c, plan), bad;

    sum->worst          = large ? larger(sum->worst, gap) : sum->worst;
    sum->worst_loss     = larger(sum->worst_loss, loss);
    sum->worst_bytewise = larger(sum->worst_bytewise, gap_bytewise);
    sum->worst_closed   = closed ? larger(sum->worst_closed, gap_bytewise) : sum->worst_closed;
    sum->loosest        = larger(sum->loosest, larger(slack, slack_bytewise));
    sum->closed += closed;
    bad = (large && gap > GAP) || loss > LOSS || gap_bytewise > (closed ? CLOSED_GAP : GAP) || slack < -1e-6 ||
          slack_bytewise < -1e-6;
    if (bad || verbose) {
        print_message("%s: Z is %.4f of the optimum (%.1f fragments above; %.4f in single bytes), the bound %.4f\n",
                      c->text, 1 + gap, loss, 1 + gap_bytewise, 1 - slack);
    }
    return bad;
}

static void examine(const plan_case_t *c, summary_t *sum)
{
    mpath_plan_t *plan = plan_with(c, MPATH_POLICY_MPATH, FRAGMENT), *bytewise = plan_with(c, MPATH_POLICY_MPATH, 1);
    double optimum;

    compare_with_policies(c, plan, FRAGMENT);
    compare_with_policies(c, bytewise, 1);
    assert_int_equal(plan_case_crumbs(c, plan, FRAGMENT), 0);
    optimum = plan_lp_optimum(c);
    sum->bad += optimum > 0 && judge(c, plan, bytewise, optimum, sum);
    sum->instances++;
    mpath_plan_destroy(plan);
    mpath_plan_destroy(bytewise);
}

/* Every `step`-th of `count` instances. */
static void run(const char *what, draw_t draw, int max_ranks, uint64_t first, uint64_t count, uint64_t step)
{
    summary_t sum = {0};
    plan_case_t c;
    uint64_t seed;

    for (seed = first; seed < first + count; seed += run_all ? 1 : step) {
        draw(&c, seed, max_ranks);
        examine(&c, &sum);
        plan_case_release(&c);
    }
    print_message("%d instances of %s: Z above the optimum at most %.4f %%, %.4f %% in single bytes (%.4f %% of %d in "
                  "closed form), whole fragments cost up to %.2f more; bound below it at most %.4f %%\n",
                  sum.instances, what, sum.worst * 100, sum.worst_bytewise * 100, sum.worst_closed * 100, sum.closed,
                  sum.worst_loss, sum.loosest * 100);
    assert_int_equal(sum.bad, 0);
}

static void host_ranks(void **state)
{
    (void)state;
    run("up to 20 host ranks", plan_case_draw, 20, 0, 1200, 4);
}

static void few_gpus(void **state)
{
    (void)state;
    run("up to 16 GPUs", plan_case_draw_gpus, 16, 0, 1200, 4);
}

static void many_gpus(void **state)
{
    (void)state;
    run("up to 64 GPUs", plan_case_draw_gpus, 64, 5000, 300, 30);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(host_ranks), cmocka_unit_test(few_gpus),
                                       cmocka_unit_test(many_gpus)};

    run_all = argc > 1 && strcmp(argv[1], "--all") == 0;
    verbose = argc > 2 && strcmp(argv[2], "-v") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
