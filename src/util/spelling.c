/* SPDX-License-Identifier: BSD-3-Clause */
/* The nearest right name: the distance of Damerau and Levenshtein (optimal string alignment), letters of either case alike. */
#include "util/spelling.h"

#include "util/file.h"
#include "util/param.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SPELLING_NAME_MAX 64 /* of a setting without its prefix; what is longer is near to nothing */
#define SPELLING_TEXT_MAX 160
#define SPELLING_LINE_MAX 4096
#define SPELLING_REMARK_MAX 256

#define SPELLING_MCA "coll_mpath"
#define SPELLING_MCA_ENV "OMPI_MCA_"
#define SPELLING_OWN_ENV "MPATH_"

extern char **environ;

/* Variables MPATH_<NAME> that are no parameters. */
static const char *const spelling_own_names[] = {"bench_nccl", "cache_dir", NULL};

static int spelling_least(int a, int b)
{
    return (a < b) ? a : b;
}

static int spelling_distance(const char *a, const char *b)
{
    int cost[SPELLING_NAME_MAX + 1][SPELLING_NAME_MAX + 1];
    int length_a = (int)strlen(a), length_b = (int)strlen(b), i, j, differ;

    if ((length_a > SPELLING_NAME_MAX) || (length_b > SPELLING_NAME_MAX)) {
        return SPELLING_NAME_MAX;
    }
    for (i = 0; i <= length_a; i++) {
        for (j = 0; j <= length_b; j++) {
            if ((i == 0) || (j == 0)) {
                cost[i][j] = i + j;
                continue;
            }
            differ     = tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]);
            cost[i][j] = spelling_least(cost[i - 1][j - 1] + differ,
                                        spelling_least(cost[i - 1][j], cost[i][j - 1]) + 1);
            if ((i > 1) && (j > 1) && (tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 2])) &&
                (tolower((unsigned char)a[i - 2]) == tolower((unsigned char)b[j - 1]))) {
                cost[i][j] = spelling_least(cost[i][j], cost[i - 2][j - 2] + 1);
            }
        }
    }
    return cost[length_a][length_b];
}

typedef struct spelling_search {
    const char *given;
    const char *best;
    int distance; /* of the best; names that are not nearer are left out */
    int is_right;
} spelling_search_t;

static void spelling_try(spelling_search_t *search, const char *name)
{
    /* The beginning of a name is a slip of one letter at most: "timeout" is meant for "timeout_s". */
    size_t length = strlen(search->given);
    int distance  = spelling_distance(search->given, name);

    if ((length >= 3) && (strncasecmp(search->given, name, length) == 0)) {
        distance = spelling_least(distance, 1);
    }
    if (distance < search->distance) {
        search->best     = name;
        search->distance = distance;
    }
    search->is_right |= (strcasecmp(search->given, name) == 0);
}

static void spelling_begin(spelling_search_t *search, const char *given)
{
    search->given    = given;
    search->best     = NULL;
    search->distance = 2 + (int)strlen(given) / 5;
    search->is_right = 0;
}

const char *mpath_spelling_nearest(const char *given, const char *const *names)
{
    spelling_search_t search;

    spelling_begin(&search, given);
    for (; *names != NULL; names++) {
        spelling_try(&search, *names);
    }
    return search.best;
}

/* Looks for `given`, a name without its prefix, among all parameters and `others`. */
static void spelling_find(spelling_search_t *search, const char *given, const char *const *others)
{
    size_t i;

    spelling_begin(search, given);
    for (i = 0; i < mpath_params_count; i++) {
        if (mpath_params[i].kind == MPATH_PARAM_OWN) {
            spelling_try(search, mpath_params[i].name);
        }
    }
    for (i = 0; others[i] != NULL; i++) {
        spelling_try(search, others[i]);
    }
}

/* Of a name that was removed or goes; NULL: of none. `prefix`: of names where it stands. */
static const char *spelling_remark(const char *given, const char *prefix, char *text, size_t size)
{
    size_t i;

    for (i = 0; i < mpath_params_count; i++) {
        if ((mpath_params[i].kind != MPATH_PARAM_OWN) && (strcasecmp(mpath_params[i].name, given) == 0)) {
            return mpath_param_remark(&mpath_params[i], prefix, text, size);
        }
    }
    for (i = 0; mpath_params_removed[i].name != NULL; i++) {
        if (strcasecmp(mpath_params_removed[i].name, given) == 0) {
            snprintf(text, size, "was removed and has no effect: %s", mpath_params_removed[i].instead);
            return text;
        }
    }
    return NULL;
}

/* "coll_mpath_...", as it stands in a file or behind OMPI_MCA_ (`before`). */
static void spelling_check_mca(const char *place, const char *before, const char *name, mpath_spelling_found_t found,
                               void *arg)
{
    size_t prefix = strlen(SPELLING_MCA);
    char whole[SPELLING_TEXT_MAX], nearest[SPELLING_TEXT_MAX], text[SPELLING_REMARK_MAX];
    const char *given, *remark;
    spelling_search_t search;

    if (strncasecmp(name, SPELLING_MCA, prefix) != 0) {
        return;
    }
    given  = name + prefix + (name[prefix] == '_');
    remark = spelling_remark(given, SPELLING_MCA "_", text, sizeof(text));
    snprintf(whole, sizeof(whole), "%s%s", before, name);
    if (remark != NULL) {
        found(place, whole, NULL, remark, arg);
        return;
    }
    spelling_find(&search, given, mpath_param_component_names);
    if (search.best != NULL) {
        snprintf(nearest, sizeof(nearest), "%s%s_%s", before, SPELLING_MCA, search.best);
    }
    if ((search.best == NULL) || (strcmp(whole, nearest) != 0)) { /* Open MPI tells capital letters from small ones */
        found(place, whole, (search.best != NULL) ? nearest : NULL, NULL, arg);
    }
}

static void spelling_check_own(const char *name, mpath_spelling_found_t found, void *arg)
{
    char nearest[SPELLING_TEXT_MAX], text[SPELLING_REMARK_MAX];
    const char *given  = name + strlen(SPELLING_OWN_ENV);
    const char *remark = spelling_remark(given, SPELLING_MCA "_", text, sizeof(text));
    spelling_search_t search;
    size_t i;

    if (remark != NULL) {
        found("the environment", name, NULL, remark, arg);
        return;
    }
    spelling_find(&search, given, spelling_own_names);
    if (search.is_right || (search.best == NULL)) {
        return;
    }
    snprintf(nearest, sizeof(nearest), "%s%s", SPELLING_OWN_ENV, search.best);
    for (i = 0; nearest[i] != '\0'; i++) {
        nearest[i] = (char)toupper((unsigned char)nearest[i]);
    }
    found("the environment", name, nearest, NULL, arg);
}

void mpath_spelling_check_environment(mpath_spelling_found_t found, void *arg)
{
    size_t mca = strlen(SPELLING_MCA_ENV), own = strlen(SPELLING_OWN_ENV), length;
    char name[SPELLING_TEXT_MAX];
    char **variable;

    for (variable = environ; (variable != NULL) && (*variable != NULL); variable++) {
        length = strcspn(*variable, "=");
        if (length >= sizeof(name)) {
            continue;
        }
        memcpy(name, *variable, length);
        name[length] = '\0';
        if (strncmp(name, SPELLING_MCA_ENV, mca) == 0) {
            spelling_check_mca("the environment", SPELLING_MCA_ENV, name + mca, found, arg);
        } else if (strncmp(name, SPELLING_OWN_ENV, own) == 0) {
            spelling_check_own(name, found, arg);
        }
    }
}

static void spelling_check_file(const char *path, mpath_spelling_found_t found, void *arg)
{
    char line[SPELLING_LINE_MAX], place[SPELLING_LINE_MAX];
    int number = 0;
    FILE *file;
    char *name;

    if (mpath_file_open(path, &file) != MPATH_OK) {
        return;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        number++;
        name                             = line + strspn(line, " \t");
        name[strcspn(name, " \t=#\n\r")] = '\0';
        snprintf(place, sizeof(place), "%s:%d", path, number);
        spelling_check_mca(place, "", name, found, arg);
    }
    fclose(file);
}

void mpath_spelling_check_files(const char *paths, mpath_spelling_found_t found, void *arg)
{
    char *list = strdup(paths), *path, *rest = NULL;

    if (list == NULL) {
        return;
    }
    for (path = strtok_r(list, ",:", &rest); path != NULL; path = strtok_r(NULL, ",:", &rest)) {
        spelling_check_file(path, found, arg);
    }
    free(list);
}
