/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a process lives: this one, children in every state, numbers that have been given out again. */
#include "util/process.h"

#include "unit/child.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A child that has told who it is and waits for the end of `to`. */
static pid_t start_child(mpath_process_t *process, int *to)
{
    int up[2], down[2];
    pid_t child;
    char end;

    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(down[1]);
        mpath_process_self(process);
        if (write(up[1], process, sizeof(*process)) != (ssize_t)sizeof(*process)) {
            _exit(1);
        }
        _exit(read(down[0], &end, 1) != 0);
    }
    assert_int_equal(read(up[0], process, sizeof(*process)), sizeof(*process));
    close(up[0]);
    close(up[1]);
    close(down[0]);
    *to = down[1];
    return child;
}

static void test_child(void **state)
{
    mpath_process_t process;
    siginfo_t ended;
    int to, status;
    pid_t child = start_child(&process, &to);

    (void)state;
    assert_int_equal(process.pid, child);
    assert_true(mpath_process_alive(&process));
    close(to);
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    assert_false(mpath_process_alive(&process)); /* a zombie */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_false(mpath_process_alive(&process));
}

static void *wait_for_end(void *argument)
{
    char end;

    _exit(read(*(const int *)argument, &end, 1) != 0);
}

/* The state of this process's first thread in the system's table. */
static char state_of(pid_t pid)
{
    char path[64], text[512] = "";
    const char *at;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    at = strrchr(text, ')');
    assert_non_null(at);
    return at[2];
}

/* A process of which the first thread has ended and others go on: to the system it is a zombie. */
static void test_first_thread(void **state)
{
    mpath_process_t process = {0};
    int down[2], status;
    pthread_t thread;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(down), 0);
    child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(down[1]);
        if (pthread_create(&thread, NULL, wait_for_end, &down[0]) != 0) {
            _exit(1);
        }
        pthread_exit(NULL);
    }
    close(down[0]);
    while (state_of(child) != 'Z') {
        usleep(1000);
    }
    mpath_process_self(&process);
    process.pid         = child;
    process.start_ticks = 0;
    assert_true(mpath_process_alive(&process));
    close(down[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_false(mpath_process_alive(&process));
}

static void test_number_again(void **state)
{
    mpath_process_t self, other;

    (void)state;
    mpath_process_self(&self);
    assert_true(mpath_process_alive(&self));
    other = self;
    other.start_ticks--; /* one that had this number before */
    assert_int_equal(mpath_process_alive(&other), self.start_ticks == 0);
    other.start_ticks = 0; /* nobody has told */
    assert_true(mpath_process_alive(&other));
}

/* Where nobody can tell, it lives. */
static void test_unknown(void **state)
{
    mpath_process_t process;
    int to, status;
    pid_t child = start_child(&process, &to);

    (void)state;
    close(to);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(mpath_process_alive(&process));
    process.pid_space++;
    assert_true(mpath_process_alive(&process));
    process.pid_space--;
    process.pid = 0;
    assert_true(mpath_process_alive(&process));
}

/* The same in a word. */
static void test_word(void **state)
{
    mpath_process_t process;
    uint64_t word = mpath_process_word();
    int to, status;
    pid_t child = start_child(&process, &to);

    (void)state;
    assert_true(mpath_process_word_alive(word));
    assert_int_equal(word >> 42, getpid());
    assert_false(mpath_process_word_alive(word - 1)); /* one that had this number before */
    word = (uint64_t)child << 42 | process.start_ticks;
    assert_true(mpath_process_word_alive(word));
    close(to);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(mpath_process_word_alive(word));
    assert_true(mpath_process_word_alive(0)); /* nobody has told */
}

/* As the list of mappings has it. */
static void test_heap(void **state)
{
    char line[512], *end;
    uintptr_t begin = UINTPTR_MAX;
    FILE *maps      = fopen("/proc/self/maps", "re");

    (void)state;
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (strstr(line, "[heap]") != NULL && begin == UINTPTR_MAX) {
            begin = (uintptr_t)strtoull(line, &end, 16);
        }
    }
    fclose(maps);
    if (begin != UINTPTR_MAX) { /* there is one */
        assert_true(mpath_process_heap() == begin);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_child),   cmocka_unit_test(test_first_thread), cmocka_unit_test(test_number_again),
        cmocka_unit_test(test_unknown), cmocka_unit_test(test_word),         cmocka_unit_test(test_heap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
