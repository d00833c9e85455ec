/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planner against an exact linear program (GLPK): on hundreds of random instances Z stays within 1 % of the optimum
 * and the certified bound never exceeds it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/plan_cases.h"

#include <glpk.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTANCES 600
#define MAX_RANKS 20
#define MAX_PATHS 64

/* A column set of the LP: pairs that have the same choices. */
typedef struct lp_class {
    int num_paths;
    double bytes;
    struct {
        int num_resources;
        uint32_t resources[MPATH_PATH_MAX_RESOURCES];
    } paths[MAX_PATHS];
} lp_class_t;

static int compare_paths(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(((lp_class_t *)NULL)->paths[0]));
}

static void class_of(const plan_case_t *c, int source, int destination, lp_class_t *found)
{
    mpath_path_t path;
    int k;

    memset(found, 0, sizeof(*found));
    found->num_paths = mpath_topo_num_paths(c->topo, source, destination);
    assert_in_range(found->num_paths, 1, MAX_PATHS);
    for (k = 0; k < found->num_paths; k++) {
        mpath_topo_path(c->topo, source, destination, k, &path);
        found->paths[k].num_resources = path.num_resources;
        memcpy(found->paths[k].resources, path.resources, (size_t)path.num_resources * sizeof(path.resources[0]));
    }
    qsort(found->paths, (size_t)found->num_paths, sizeof(found->paths[0]), compare_paths);
}

static int make_classes(const plan_case_t *c, lp_class_t **classes_p)
{
    int num_ranks = mpath_topo_num_ranks(c->topo), s, d, i, count = 0;
    lp_class_t *classes = malloc((size_t)num_ranks * (size_t)num_ranks * sizeof(*classes));

    assert_non_null(classes);
    for (s = 0; s < num_ranks; s++) {
        for (d = 0; d < num_ranks; d++) {
            uint64_t bytes = c->demand[(size_t)s * (size_t)num_ranks + (size_t)d];

            if (s == d || bytes == 0) {
                continue;
            }
            class_of(c, s, d, &classes[count]);
            for (i = 0; i < count && (classes[i].num_paths != classes[count].num_paths ||
                                      memcmp(classes[i].paths, classes[count].paths, sizeof(classes[i].paths)) != 0);
                 i++) {
            }
            classes[i].bytes += (double)bytes;
            count += i == count;
        }
    }
    *classes_p = classes;
    return count;
}

/* The optimum in nanoseconds. */
static double lp_optimum(const plan_case_t *c)
{
    int num_resources = mpath_topo_num_resources(c->topo), count, i, k, r, column = 1, length;
    int rows[MPATH_PATH_MAX_RESOURCES + 2];
    double values[MPATH_PATH_MAX_RESOURCES + 2], z;
    lp_class_t *classes;
    glp_prob *lp = glp_create_prob();
    glp_smcp options;

    count = make_classes(c, &classes);
    glp_add_rows(lp, num_resources + count + 1);
    glp_add_cols(lp, 1);
    glp_set_col_bnds(lp, 1, GLP_LO, 0, 0);
    glp_set_obj_coef(lp, 1, 1);
    {
        int *all       = malloc(((size_t)num_resources + 1) * sizeof(*all));
        double *minus1 = malloc(((size_t)num_resources + 1) * sizeof(*minus1));

        for (r = 0; r < num_resources; r++) {
            all[r + 1]    = r + 1;
            minus1[r + 1] = -1;
            glp_set_row_bnds(lp, r + 1, GLP_UP, 0, 0);
        }
        glp_set_mat_col(lp, 1, num_resources, all, minus1);
        free(all);
        free(minus1);
    }
    for (i = 0; i < count; i++) {
        glp_set_row_bnds(lp, num_resources + 1 + i, GLP_FX, classes[i].bytes / 1e6, classes[i].bytes / 1e6);
        column = glp_add_cols(lp, classes[i].num_paths);
        for (k = 0; k < classes[i].num_paths; k++) {
            length         = 1;
            rows[length]   = num_resources + 1 + i;
            values[length] = 1;
            for (r = 0; r < classes[i].paths[k].num_resources; r++) {
                length++;
                rows[length]   = (int)classes[i].paths[k].resources[r] + 1;
                values[length] = 1e9 / (double)mpath_topo_resource(c->topo, rows[length] - 1)->capacity_bps;
            }
            glp_set_mat_col(lp, column + k, length, rows, values);
            glp_set_col_bnds(lp, column + k, GLP_LO, 0, 0);
        }
    }
    glp_init_smcp(&options);
    options.msg_lev  = GLP_MSG_ERR;
    options.presolve = GLP_ON;
    assert_int_equal(glp_simplex(lp, &options), 0);
    assert_int_equal(glp_get_status(lp), GLP_OPT);
    z = glp_get_obj_val(lp) * 1e6;
    glp_delete_prob(lp);
    free(classes);
    return z;
}

static mpath_plan_t *plan_with(const plan_case_t *c, mpath_policy_t policy)
{
    mpath_plan_params_t params;
    mpath_plan_t *plan;

    mpath_plan_params_init(&params);
    params.policy = policy;
    assert_int_equal(mpath_plan_create(c->topo, c->demand, &params, &plan), MPATH_OK);
    plan_case_check(c, plan);
    return plan;
}

static void random_instances_are_near_the_optimum(void **state)
{
    static const mpath_policy_t others[] = {MPATH_POLICY_DIRECT, MPATH_POLICY_STRIPE, MPATH_POLICY_PXN};
    double worst = 0, loosest = 0, optimum, gap, slack;
    mpath_plan_t *plan, *other;
    plan_case_t c;
    uint64_t seed;
    size_t i;
    int bad = 0;

    (void)state;
    for (seed = 0; seed < INSTANCES; seed++) {
        plan_case_draw(&c, seed, MAX_RANKS);
        plan    = plan_with(&c, MPATH_POLICY_MPATH);
        optimum = lp_optimum(&c);
        if (optimum > 1e7) { /* below 250 KB per rail the fragments are what counts */
            gap     = (double)mpath_plan_z_ns(plan) / optimum - 1;
            slack   = 1 - (double)mpath_plan_bound_ns(plan) / optimum;
            worst   = gap > worst && !c.small ? gap : worst;
            loosest = slack > loosest ? slack : loosest;
            if (gap > (c.small ? 0.3 : 0.01) || slack < -1e-6) {
                print_message("%s: Z is %.4f, the bound %.4f of the optimum\n", c.text, 1 + gap, 1 - slack);
                bad++;
            }
        }
        for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
            other = plan_with(&c, others[i]);
            assert_true(mpath_plan_z_ns(plan) <= mpath_plan_z_ns(other));
            mpath_plan_destroy(other);
        }
        assert_int_equal(plan_case_crumbs(&c, plan, 32 * 1024), 0);
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
    print_message("%d instances: Z at most %.4f %% above the optimum, the bound at most %.4f %% below\n", INSTANCES,
                  worst * 100, loosest * 100);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_instances_are_near_the_optimum)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
