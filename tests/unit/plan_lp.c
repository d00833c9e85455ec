/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The linear program of a planning problem: one column per path of each class of pairs that have the same choices, one
 * row per class (all bytes shipped) and per resource (load at most Z times capacity). Pairs with one path only load
 * their resources as constants.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/plan_lp.h"

#include <glpk.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATHS 300
#define SCALE 1e3 /* the sum of all demands in the solver's units: far from its tolerances */
#define BPS 1e9   /* the unit of capacities */

typedef struct lp_path {
    int num_resources;
    uint32_t resources[MPATH_PATH_MAX_RESOURCES];
} lp_path_t;

typedef struct lp_class {
    int num_paths;
    double bytes;
    lp_path_t *paths;
    uint64_t hash;
} lp_class_t;

typedef struct lp_problem {
    const plan_case_t *c;
    int num_resources, num_classes;
    double unit;  /* bytes */
    double *base; /* bytes that have no choice, by resource */
    lp_class_t *classes;
} lp_problem_t;

static int compare_paths(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(lp_path_t));
}

/* The pair's paths, sorted. */
static int paths_of(const plan_case_t *c, int source, int destination, lp_path_t *paths)
{
    int count = mpath_topo_num_paths(c->topo, source, destination), k;
    mpath_path_t path;

    assert_in_range(count, 1, MAX_PATHS);
    memset(paths, 0, (size_t)count * sizeof(*paths));
    for (k = 0; k < count; k++) {
        mpath_topo_path(c->topo, source, destination, k, &path);
        paths[k].num_resources = path.num_resources;
        memcpy(paths[k].resources, path.resources, (size_t)path.num_resources * sizeof(path.resources[0]));
    }
    qsort(paths, (size_t)count, sizeof(*paths), compare_paths);
    return count;
}

static uint64_t hash_paths(const lp_path_t *paths, int count)
{
    const unsigned char *bytes = (const unsigned char *)paths;
    uint64_t hash              = 0xcbf29ce484222325ull;
    size_t i;

    for (i = 0; i < (size_t)count * sizeof(*paths); i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    }
    return hash;
}

static void add_pair(lp_problem_t *lp, int source, int destination, double bytes)
{
    lp_path_t paths[MAX_PATHS];
    int count     = paths_of(lp->c, source, destination, paths), i, r;
    uint64_t hash = hash_paths(paths, count);
    lp_class_t *class;

    if (count == 1) {
        for (r = 0; r < paths[0].num_resources; r++) {
            lp->base[paths[0].resources[r]] += bytes;
        }
        return;
    }
    for (i = 0; i < lp->num_classes; i++) {
        class = &lp->classes[i];
        if (class->hash == hash && class->num_paths == count &&
            memcmp(class->paths, paths, (size_t)count * sizeof(*paths)) == 0) {
            class->bytes += bytes;
            return;
        }
    }
    class            = &lp->classes[lp->num_classes++];
    class->num_paths = count;
    class->bytes     = bytes;
    class->hash      = hash;
    class->paths     = malloc((size_t)count * sizeof(*paths));
    assert_non_null(class->paths);
    memcpy(class->paths, paths, (size_t)count * sizeof(*paths));
}

static void problem_init(lp_problem_t *lp, const plan_case_t *c)
{
    int num_ranks = mpath_topo_num_ranks(c->topo), s, d;
    uint64_t bytes;

    lp->c             = c;
    lp->unit          = 0;
    lp->num_classes   = 0;
    lp->num_resources = mpath_topo_num_resources(c->topo);
    lp->base          = calloc((size_t)lp->num_resources + 1, sizeof(*lp->base));
    lp->classes       = malloc(((size_t)num_ranks * (size_t)num_ranks + 1) * sizeof(*lp->classes));
    assert_non_null(lp->base);
    assert_non_null(lp->classes);
    for (s = 0; s < num_ranks; s++) {
        for (d = 0; d < num_ranks; d++) {
            bytes = c->demand[(size_t)s * (size_t)num_ranks + (size_t)d];
            if (s != d && bytes > 0) {
                add_pair(lp, s, d, (double)bytes);
                lp->unit += (double)bytes / SCALE;
            }
        }
    }
}

static void problem_release(lp_problem_t *lp)
{
    int i;

    for (i = 0; i < lp->num_classes; i++) {
        free(lp->classes[i].paths);
    }
    free(lp->classes);
    free(lp->base);
}

/* The columns of one class; `row` is its row. */
static void add_columns(glp_prob *solver, const lp_problem_t *lp, const lp_class_t *class, int row)
{
    int column = glp_add_cols(solver, class->num_paths), k, r, i, length;
    int rows[MPATH_PATH_MAX_RESOURCES + 2];
    double values[MPATH_PATH_MAX_RESOURCES + 2];

    glp_set_row_bnds(solver, row, GLP_FX, class->bytes / lp->unit, class->bytes / lp->unit);
    for (k = 0; k < class->num_paths; k++) {
        length    = 1;
        rows[1]   = row;
        values[1] = 1;
        for (r = 0; r < class->paths[k].num_resources; r++) {
            int resource = (int)class->paths[k].resources[r];
            double value = BPS / (double)mpath_topo_resource(lp->c->topo, resource).capacity_bps;

            for (i = 2; i <= length && rows[i] != resource + 1; i++) {
            }
            if (i <= length) { /* passed twice */
                values[i] += value;
                continue;
            }
            length++;
            rows[length]   = resource + 1;
            values[length] = value;
        }
        glp_set_mat_col(solver, column + k, length, rows, values);
        glp_set_col_bnds(solver, column + k, GLP_LO, 0, 0);
    }
}

/* Column 1 is Z, which all resources' rows have. */
static void add_z(glp_prob *solver, const lp_problem_t *lp)
{
    int *rows      = malloc(((size_t)lp->num_resources + 1) * sizeof(*rows)), r;
    double *values = malloc(((size_t)lp->num_resources + 1) * sizeof(*values)), load;

    assert_non_null(rows);
    assert_non_null(values);
    glp_add_cols(solver, 1);
    glp_set_col_bnds(solver, 1, GLP_LO, 0, 0);
    glp_set_obj_coef(solver, 1, 1);
    for (r = 0; r < lp->num_resources; r++) {
        rows[r + 1]   = r + 1;
        values[r + 1] = -1;
        load          = lp->base[r] / lp->unit * BPS / (double)mpath_topo_resource(lp->c->topo, r).capacity_bps;
        glp_set_row_bnds(solver, r + 1, GLP_UP, 0, -load);
    }
    glp_set_mat_col(solver, 1, lp->num_resources, rows, values);
    free(rows);
    free(values);
}

double plan_lp_optimum(const plan_case_t *c)
{
    glp_prob *solver = glp_create_prob();
    lp_problem_t lp;
    glp_smcp options;
    double z;
    int i;

    problem_init(&lp, c);
    if (lp.unit <= 0) {
        glp_delete_prob(solver);
        problem_release(&lp);
        return 0;
    }
    glp_add_rows(solver, lp.num_resources + lp.num_classes);
    add_z(solver, &lp);
    for (i = 0; i < lp.num_classes; i++) {
        add_columns(solver, &lp, &lp.classes[i], lp.num_resources + i + 1);
    }
    glp_init_smcp(&options);
    options.msg_lev  = GLP_MSG_ERR;
    options.presolve = GLP_ON;
    assert_int_equal(glp_simplex(solver, &options), 0);
    assert_int_equal(glp_get_status(solver), GLP_OPT);
    z = glp_get_obj_val(solver) * lp.unit / BPS * 1e9;
    glp_delete_prob(solver);
    problem_release(&lp);
    return z;
}
