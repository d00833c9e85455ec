/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of settings that mpath does not have, in the environment and in files. */
#include "capture.h"

#include "util/param.h"
#include "util/spelling.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char said[4096];

static void say(const char *place, const char *name, const char *nearest, const char *remark, void *arg)
{
    size_t used = strlen(said);

    (void)arg;
    snprintf(said + used, sizeof(said) - used, "%s|%s|%s%s%s\n", place, name, (nearest != NULL) ? nearest : "-",
             (remark != NULL) ? "|" : "", (remark != NULL) ? remark : "");
}

static const char *of_variable(const char *name)
{
    said[0] = '\0';
    setenv(name, "1", 1);
    mpath_spelling_check_environment(say, NULL);
    unsetenv(name);
    return said;
}

static void nearest_names(void **state)
{
    (void)state;
    assert_string_equal(of_variable("OMPI_MCA_coll_mpath_timeuot_s"),
                        "the environment|OMPI_MCA_coll_mpath_timeuot_s|OMPI_MCA_coll_mpath_timeout_s\n");
    assert_string_equal(of_variable("OMPI_MCA_coll_mpath_timeout"),
                        "the environment|OMPI_MCA_coll_mpath_timeout|OMPI_MCA_coll_mpath_timeout_s\n");
    assert_string_equal(of_variable("OMPI_MCA_coll_mpath_Rails"),
                        "the environment|OMPI_MCA_coll_mpath_Rails|OMPI_MCA_coll_mpath_rails\n");
    assert_string_equal(of_variable("OMPI_MCA_coll_mpath_enabled"),
                        "the environment|OMPI_MCA_coll_mpath_enabled|OMPI_MCA_coll_mpath_enable\n");
    assert_string_equal(of_variable("OMPI_MCA_coll_mpath_zzzzzzzzzz"),
                        "the environment|OMPI_MCA_coll_mpath_zzzzzzzzzz|-\n");
    assert_string_equal(of_variable("MPATH_CACHE_DIRS"), "the environment|MPATH_CACHE_DIRS|MPATH_CACHE_DIR\n");
}

/* Not the nearest name, which may do something else. */
static void removed_names(void **state)
{
    char name[128], wanted[512];

    (void)state;
    for (size_t i = 0; mpath_params_removed[i].name != NULL; i++) {
        snprintf(name, sizeof(name), "OMPI_MCA_coll_mpath_%s", mpath_params_removed[i].name);
        snprintf(wanted, sizeof(wanted), "the environment|%s|-|was removed and has no effect: %s\n", name,
                 mpath_params_removed[i].instead);
        assert_string_equal(of_variable(name), wanted);
    }
    assert_non_null(strstr(of_variable("MPATH_GPU_BATCH"), "the environment|MPATH_GPU_BATCH|-|was removed"));
}

/* They still count, so what is said is what to use. */
static void names_that_go(void **state)
{
    char name[128];

    (void)state;
    for (size_t i = 0; i < mpath_params_count; i++) {
        snprintf(name, sizeof(name), "OMPI_MCA_coll_mpath_%s", mpath_params[i].name);
        assert_int_equal(strstr(of_variable(name), "|-|goes with the next version: use coll_mpath_") != NULL,
                         mpath_params[i].kind != MPATH_PARAM_OWN);
    }
    assert_string_equal(of_variable("MPATH_CHUNK_BYTES"),
                        "the environment|MPATH_CHUNK_BYTES|-|goes with the next version: use "
                        "coll_mpath_internals=chunk_bytes=VALUE\n");
    assert_string_equal(of_variable("OMPI_MCA_coll_mpath_allgather_algorithm"),
                        "the environment|OMPI_MCA_coll_mpath_allgather_algorithm|-|goes with the next version: use "
                        "coll_mpath_tune=allgather:@previous, @inline for \"small\", or @pipeline for \"lanes\"\n");
}

static void right_names_and_those_of_others(void **state)
{
    static const char *const names[] = {"OMPI_MCA_coll_mpath_timeout_s",
                                        "OMPI_MCA_coll_mpath_internals",
                                        "OMPI_MCA_coll_tuned_timeout",
                                        "MPATH_TIMEOUT_S",
                                        "MPATH_CACHE_DIR",
                                        "MPATH_SBIN_PATH",
                                        "MPATH_CLUSTER_DIR",
                                        "XMPATH_TIMEUOT_S"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_string_equal(of_variable(names[i]), "");
    }
}

static void files(void **state)
{
    char path[] = "/tmp/mpath-spelling.XXXXXX", list[128], wanted[256];
    FILE *file;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    file = fdopen(fd, "w");
    assert_non_null(file);
    fputs("# coll_mpath_comment = 1\ncoll = mpath\n  coll_mpath_gates=never\ncoll_mpath_gate = never\n", file);
    fclose(file);
    said[0] = '\0';
    snprintf(list, sizeof(list), "/nonexistent/file:%s", path);
    mpath_spelling_check_files(list, say, NULL);
    unlink(path);
    snprintf(wanted, sizeof(wanted), "%s:3|coll_mpath_gates|coll_mpath_gate\n", path);
    assert_string_equal(said, wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nearest_names), cmocka_unit_test(removed_names),
                                       cmocka_unit_test(names_that_go),
                                       cmocka_unit_test(right_names_and_those_of_others), cmocka_unit_test(files)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
