/* SPDX-License-Identifier: BSD-3-Clause */
/* A child process of a test ends where it fails, and never goes on with the tests that follow. */
#include "unit/child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static pid_t parent;

static void expect_signal(pid_t child, int signal_number)
{
    int status;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), signal_number);
}

static void test_signal(void **state)
{
    pid_t child = child_fork();

    (void)state;
    if (child == 0) {
        raise(SIGSEGV);
        _exit(0);
    }
    expect_signal(child, SIGSEGV);
}

static void test_assertion(void **state)
{
    pid_t child = child_fork();

    (void)state;
    if (child == 0) {
        assert_int_equal(1, 2);
        _exit(0);
    }
    expect_signal(child, SIGABRT);
}

/* The others wait for the one that failed: they are ended with it. */
static void test_wait_all(void **state)
{
    pid_t children[3];

    (void)state;
    for (int number = 0; number < 3; number++) {
        children[number] = child_fork();
        assert_true(children[number] >= 0);
        if (children[number] == 0) {
            if (number == 1) {
                raise(SIGFPE);
            }
            pause();
            _exit(0);
        }
    }
    assert_int_equal(child_wait_all(children, 3, -1), 1);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void test_only_parent(void **state)
{
    (void)state;
    assert_int_equal(getpid(), parent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_signal), cmocka_unit_test(test_assertion),
                                       cmocka_unit_test(test_wait_all), cmocka_unit_test(test_only_parent)};

    parent = getpid();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
