/* SPDX-License-Identifier: BSD-3-Clause */
/* Logging: the threshold, the shape of a line, long lines, lines of several threads; and the texts of status codes. */
#include "unit/capture.h"
#include "util/file.h"
#include "util/status.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 4
#define LINES 200

static void test_threshold(void **state)
{
    int evaluated = 0;

    (void)state;
    capture_start();
    mpath_log_set_level(MPATH_LOG_WARN);
    mpath_info("hidden %d", ++evaluated);
    assert_int_equal(evaluated, 0); /* the arguments of a hidden message are not computed */
    mpath_warn("shown %d", ++evaluated);
    mpath_log_set_level(MPATH_LOG_TRACE);
    mpath_trace("shown as well");
    mpath_log_set_level(MPATH_LOG_ERROR);
    mpath_warn("hidden again");
    mpath_error("the error");
    evaluated = 0;
    mpath_log((mpath_log_level_t)evaluated++, "once");
    mpath_log((mpath_log_level_t)evaluated++, "hidden, once");
    mpath_log_set_level(MPATH_LOG_WARN);
    capture_stop();
    assert_int_equal(capture_count(), 4);
    assert_int_equal(evaluated, 2);
    assert_non_null(strstr(capture_text(), "WARN shown 1\n"));
    assert_non_null(strstr(capture_text(), "ERROR once\n"));
    assert_non_null(strstr(capture_text(), "TRACE shown as well\n"));
    assert_non_null(strstr(capture_text(), "ERROR the error\n"));
    assert_null(strstr(capture_text(), "hidden"));
}

static void test_shape(void **state)
{
    char host[64] = "", expected[384];

    (void)state;
    gethostname(host, sizeof(host) - 1);
    capture_start();
    mpath_log_set_rank(7);
    mpath_error("rail %s is gone", "r1");
    mpath_log_set_rank(0);
    mpath_error("rank 0 too");
    mpath_log_set_rank(-1);
    mpath_error("no rank");
    capture_stop();
    snprintf(expected, sizeof(expected),
             "mpath: [%s:%d rank 7] ERROR rail r1 is gone\nmpath: [%s:%d rank 0] ERROR rank 0 too\n"
             "mpath: [%s:%d] ERROR no rank\n",
             host, (int)getpid(), host, (int)getpid(), host, (int)getpid());
    assert_string_equal(capture_text(), expected);
}

static char told[256];
static int tells;

static int topic_sink(const char *topic, const char *line)
{
    snprintf(told, sizeof(told), "%s: %s", topic, line);
    return tells;
}

/* What users can act on is shown once: by whoever shows it better, else as a line, and not at all to who wants no
 * warnings. */
static void test_tell(void **state)
{
    (void)state;
    capture_start();
    mpath_warn_user("rails", "%d is slow", 1);
    assert_non_null(strstr(capture_text(), "WARN 1 is slow\n"));
    mpath_log_set_topic_sink(topic_sink);
    mpath_warn_user("rails", "%d is slow", 2);
    assert_string_equal(told, "rails: 2 is slow");
    assert_non_null(strstr(capture_text(), "WARN 2 is slow\n"));
    tells = 1;
    mpath_warn_user("rails", "%d is slow", 3);
    assert_string_equal(told, "rails: 3 is slow");
    assert_int_equal(capture_count(), 2);
    mpath_log_set_level(MPATH_LOG_ERROR);
    mpath_warn_user("rails", "%d is slow", 4);
    assert_string_equal(told, "rails: 3 is slow");
    mpath_log_set_level(MPATH_LOG_WARN);
    mpath_log_set_topic_sink(NULL);
    mpath_warn_user("rails", "%d is slow", 5);
    capture_stop();
    assert_string_equal(told, "rails: 3 is slow");
    assert_int_equal(capture_count(), 3);
}

static void test_long_line(void **state)
{
    char text[5000];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    capture_start();
    mpath_error("%s", text);
    capture_stop();
    assert_int_equal(capture_count(), 1);
    assert_true(strlen(capture_text()) > 900);
    assert_true(strlen(capture_text()) < 1100);
}

static void *write_lines(void *argument)
{
    int i;

    for (i = 0; i < LINES; i++) {
        mpath_error("thread %d line %d end", *(int *)argument, i);
    }
    return NULL;
}

/* Standard error of several threads: every line arrives whole. */
static void test_threads(void **state)
{
    int saved, whole = 0, ids[THREADS], i;
    pthread_t threads[THREADS];
    FILE *file = tmpfile();
    char line[512];

    (void)state;
    assert_non_null(file);
    fflush(stderr);
    saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    for (i = 0; i < THREADS; i++) {
        ids[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &ids[i]), 0);
    }
    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    fflush(stderr);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        whole += (strncmp(line, "mpath: [", 8) == 0) && (strstr(line, " end\n") != NULL);
    }
    fclose(file);
    assert_int_equal(whole, THREADS * LINES);
}

static void test_status(void **state)
{
    int status;

    (void)state;
    for (status = MPATH_ERR_INTERNAL; status <= MPATH_NO_RESOURCE; status++) {
        assert_string_not_equal(mpath_status_string((mpath_status_t)status), "unknown status");
        assert_int_equal(mpath_status_is_error((mpath_status_t)status), status < 0);
    }
    assert_string_equal(mpath_status_string((mpath_status_t)99), "unknown status");
    assert_string_equal(mpath_status_string(MPATH_OK), "success");
}

static void read_all(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

/* Behind a time stamp and with the room of who speaks; errors and warnings go where they went as well. */
static void test_file(void **state)
{
    char path[] = "/tmp/mpath-test-log.XXXXXX", text[4096];
    int fd      = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(mpath_log_set_file("/no/such/folder/log"), -1);
    assert_int_equal(mpath_log_set_file(path), 0);
    mpath_log_set_level(MPATH_LOG_DEBUG);
    capture_start();
    mpath_log_write("../src/wire/failover.c", MPATH_LOG_DEBUG, "of wire");
    mpath_log_write("/usr/src/mpath/src/topo/file/xml.c", MPATH_LOG_WARN, "of topo");
    mpath_log_set_rooms("wire,rail");
    mpath_log_write("../src/rail/rail.c", MPATH_LOG_DEBUG, "of rail");
    mpath_log_write("../src/plan/plan.c", MPATH_LOG_INFO, "hidden");
    mpath_log_write("../src/plan/plan.c", MPATH_LOG_WARN, "not hidden");
    mpath_log_set_rooms("^wire");
    mpath_log_write("../src/wire/connect.c", MPATH_LOG_INFO, "hidden");
    mpath_log_write("../ompi_coll_mpath/coll_mpath_team.c", MPATH_LOG_INFO, "of the component");
    mpath_log_set_rooms("glue");
    mpath_log_write("../src/wire/connect.c", MPATH_LOG_INFO, "hidden");
    mpath_log_write("/home/me/src/mpath/ompi_coll_mpath/coll_mpath_team.c", MPATH_LOG_INFO, "of it again");
    mpath_log_set_rooms("kitchen");
    capture_stop();
    assert_int_equal(mpath_log_set_file("/dev/null"), 0);
    mpath_log_set_rooms("");
    mpath_log_set_level(MPATH_LOG_WARN);
    read_all(path, text, sizeof(text));
    unlink(path);
    assert_int_equal(text[4], '-');
    assert_int_equal(text[10], 'T');
    assert_int_equal(text[19], '.');
    assert_non_null(strstr(text, "Z wire mpath: ["));
    assert_non_null(strstr(text, "] DEBUG of wire\n"));
    assert_non_null(strstr(text, "Z topo mpath: ["));
    assert_non_null(strstr(text, "] DEBUG of rail\n"));
    assert_non_null(strstr(text, "] WARN not hidden\n"));
    assert_non_null(strstr(text, "Z glue mpath: ["));
    assert_non_null(strstr(text, "] INFO of it again\n"));
    assert_non_null(strstr(text, "log_rooms: 'kitchen' is no room; it is ignored\n"));
    assert_null(strstr(text, "] INFO hidden"));
    assert_int_equal(capture_count(), 3); /* the warnings */
    assert_null(strstr(capture_text(), "of wire"));
}

static void test_names(void **state)
{
    char path[MPATH_FILE_NAME_MAX], host[256], expected[512];

    (void)state;
    assert_int_equal(gethostname(host, sizeof(host)), 0);
    snprintf(expected, sizeof(expected), "/tmp/%s-%d-7-100%%.json", host, (int)getpid());
    assert_int_equal(mpath_file_name("/tmp/%h-%p-%r-100%%.json", 7, path, sizeof(path)), MPATH_OK);
    assert_string_equal(path, expected);
    assert_int_equal(mpath_file_name("x%", 7, path, sizeof(path)), MPATH_ERR_PARAM);
    assert_int_equal(mpath_file_name("x%y", 7, path, sizeof(path)), MPATH_ERR_PARAM);
    assert_int_equal(mpath_file_name("", 7, path, sizeof(path)), MPATH_ERR_PARAM);
    assert_int_equal(mpath_file_name("1234", 7, path, 4), MPATH_ERR_PARAM);
    assert_int_equal(mpath_file_name("123", 7, path, 4), MPATH_OK);
    assert_true(mpath_file_name_differs("a%r") && mpath_file_name_differs("%h%p"));
    assert_false(mpath_file_name_differs("a") || mpath_file_name_differs("a%%r") || mpath_file_name_differs("%h%"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threshold), cmocka_unit_test(test_shape),   cmocka_unit_test(test_tell),
        cmocka_unit_test(test_long_line), cmocka_unit_test(test_threads), cmocka_unit_test(test_status),
        cmocka_unit_test(test_file),      cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
