/* SPDX-License-Identifier: BSD-3-Clause */
/* Logging: the threshold, the shape of a line, long lines, lines of several threads; and the texts of status codes. */
#include "unit/capture.h"
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

static int teller(const char *topic, const char *line)
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
    mpath_tell("rails", "%d is slow", 1);
    assert_non_null(strstr(capture_text(), "WARN 1 is slow\n"));
    mpath_log_set_teller(teller);
    mpath_tell("rails", "%d is slow", 2);
    assert_string_equal(told, "rails: 2 is slow");
    assert_non_null(strstr(capture_text(), "WARN 2 is slow\n"));
    tells = 1;
    mpath_tell("rails", "%d is slow", 3);
    assert_string_equal(told, "rails: 3 is slow");
    assert_int_equal(capture_count(), 2);
    mpath_log_set_level(MPATH_LOG_ERROR);
    mpath_tell("rails", "%d is slow", 4);
    assert_string_equal(told, "rails: 3 is slow");
    mpath_log_set_level(MPATH_LOG_WARN);
    mpath_log_set_teller(NULL);
    mpath_tell("rails", "%d is slow", 5);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threshold), cmocka_unit_test(test_shape),   cmocka_unit_test(test_tell),
        cmocka_unit_test(test_long_line), cmocka_unit_test(test_threads), cmocka_unit_test(test_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
