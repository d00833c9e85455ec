/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests with child processes. cmocka returns from a signal or a failed assertion into its list of tests, in a child, too,
 * which would go on with the tests that follow beside its parent. Here it ends, by that signal or by SIGABRT, and its parent
 * says so.
 */
#ifndef MPATH_TESTS_UNIT_CHILD_H
#define MPATH_TESTS_UNIT_CHILD_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* As fork(), of a child that runs code of a test and no other program. */
static inline pid_t child_fork(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
            signal(faults[i], SIG_DFL);
        }
        setenv("CMOCKA_TEST_ABORT", "1", 1);
    }
    return pid;
}

/* Says how a child ended that did not end with status 0; 1 then. */
static inline int child_failed(int number, int status)
{
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "child %d ended by signal %d (%s)\n", number, WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) != 0) {
        fprintf(stderr, "child %d ended with status %d\n", number, WEXITSTATUS(status));
    }
    return status != 0;
}

/*
 * Waits for children that wait for each other: once one has failed the others are killed. `victim` (-1: none) is to end by
 * SIGKILL. Returns how many failed by themselves.
 */
static inline int child_wait_all(const pid_t *children, int num_children, int victim)
{
    int failed = 0, status, number;

    for (int left = num_children; left > 0; left--) {
        pid_t ended = waitpid(-1, &status, 0);

        for (number = 0; number < num_children && children[number] != ended; number++) {
        }
        if (number == num_children) {
            fprintf(stderr, "process %d, no child of this test, ended\n", (int)ended);
            return failed + 1;
        }
        if (failed > 0 || (number == victim && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
            continue;
        }
        if (number == victim && status == 0) {
            fprintf(stderr, "child %d was not killed\n", number);
            failed = 1;
        } else {
            failed = child_failed(number, status);
        }
        for (int other = 0; failed > 0 && other < num_children; other++) {
            kill(children[other], SIGKILL);
        }
    }
    return failed;
}

#endif
