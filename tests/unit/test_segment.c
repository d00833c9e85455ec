/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments: shared between processes, reserved in full, gone when unlinked; errors that leave nothing behind. */
#include "lane/segment.h"
#include "util/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char last_error[1024];

static void keep_error(mpath_log_level_t level, const char *line)
{
    if (level == MPATH_LOG_ERROR) {
        strncpy(last_error, line, sizeof(last_error) - 1);
    }
}

static int name_exists(const char *name)
{
    int fd = shm_open(name, O_RDONLY, 0);

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static void test_shared(void **state)
{
    char name[MPATH_SEGMENT_NAME_MAX];
    mpath_segment_t segment, other;
    volatile unsigned char *bytes;
    int status;
    pid_t child;
    size_t i;

    (void)state;
    assert_int_equal(mpath_segment_create(100000, &segment), MPATH_OK);
    assert_int_equal(segment.bytes, 100000);
    assert_int_equal((uintptr_t)segment.base % 64, 0);
    bytes = segment.base;
    for (i = 0; i < segment.bytes; i++) {
        assert_int_equal(bytes[i], 0);
    }
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (mpath_segment_attach(segment.name, segment.bytes, &other) != MPATH_OK) {
            _exit(1);
        }
        ((unsigned char *)other.base)[99999] = 42;
        mpath_segment_detach(&other);
        _exit((other.base == NULL) ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(bytes[99999], 42);

    strcpy(name, segment.name);
    assert_true(name_exists(name));
    mpath_segment_unlink(&segment);
    assert_false(name_exists(name));
    bytes[0] = 1; /* the mapping stays */
    mpath_segment_unlink(&segment);
    mpath_segment_detach(&segment);
    assert_null(segment.base);
    mpath_segment_detach(&segment);
}

static void test_fresh_names(void **state)
{
    mpath_segment_t a, b;

    (void)state;
    assert_int_equal(mpath_segment_create(4096, &a), MPATH_OK);
    assert_int_equal(mpath_segment_create(4096, &b), MPATH_OK);
    assert_string_not_equal(a.name, b.name);
    mpath_segment_unlink(&a);
    mpath_segment_unlink(&b);
    mpath_segment_detach(&a);
    mpath_segment_detach(&b);
}

/* An empty segment as process `pid` would have left it so many seconds ago. */
static void leave_segment(const char *suffix, int pid, int age_s, char *name, size_t size)
{
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    int fd;

    snprintf(name, size, "/mpath-%d-%s", pid, suffix);
    fd = shm_open(name, O_CREAT | O_RDWR, 0600);
    assert_true(fd >= 0);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

/* Nonzero when the segment is another user's now, which takes rights. */
static int give_away(const char *name)
{
    int fd = shm_open(name, O_RDWR, 0), given;

    assert_true(fd >= 0);
    given = fchown(fd, geteuid() + 1, (gid_t)-1) == 0;
    close(fd);
    return given;
}

/* Only old names of this user's processes that are gone are removed. */
static void test_sweep(void **state)
{
    char old[MPATH_SEGMENT_NAME_MAX], young[MPATH_SEGMENT_NAME_MAX], own[MPATH_SEGMENT_NAME_MAX],
        foreign[MPATH_SEGMENT_NAME_MAX], others[MPATH_SEGMENT_NAME_MAX];
    int is_others;
    pid_t gone = fork();
    int status;

    (void)state;
    assert_true(gone >= 0);
    if (gone == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(gone, &status, 0), gone);
    leave_segment("0123456789abcdef", (int)gone, 7200, old, sizeof(old));
    leave_segment("0123456789abcde0", (int)gone, 60, young, sizeof(young));
    leave_segment("0123456789abcdef", (int)getpid(), 7200, own, sizeof(own));
    leave_segment("0123456789abcdef.x", (int)gone, 7200, foreign, sizeof(foreign));
    leave_segment("0123456789abcde1", (int)gone, 7200, others, sizeof(others));
    is_others = give_away(others);
    mpath_segment_sweep();
    assert_int_equal(name_exists(others), is_others);
    assert_false(name_exists(old));
    assert_true(name_exists(young));
    assert_true(name_exists(own));
    assert_true(name_exists(foreign));
    shm_unlink(young);
    shm_unlink(own);
    shm_unlink(foreign);
    shm_unlink(others);
}

static void test_errors(void **state)
{
    mpath_segment_t segment, untouched = {.bytes = 7}, other = untouched;

    (void)state;
    mpath_log_set_sink(keep_error);
    assert_int_equal(mpath_segment_attach("/mpath-no-such-segment", 4096, &other), MPATH_ERR_IO);
    assert_non_null(strstr(last_error, "/mpath-no-such-segment"));
    assert_int_equal(mpath_segment_create(0, &other), MPATH_ERR_PARAM);

    assert_int_equal(mpath_segment_create(8192, &segment), MPATH_OK);
    assert_int_equal(mpath_segment_attach(segment.name, 4096, &other), MPATH_ERR_PARAM);
    assert_non_null(strstr(last_error, "4096 bytes"));

    /* More than any /dev/shm: an error now, no SIGBUS later, and no name left. */
    last_error[0] = '\0';
    assert_int_equal(mpath_segment_create((size_t)1 << 50, &other), MPATH_ERR_IO);
    assert_non_null(strstr(last_error, "/dev/shm"));
    assert_memory_equal(&other, &untouched, sizeof(other));
    mpath_segment_unlink(&segment);
    mpath_segment_detach(&segment);
    mpath_log_set_sink(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_fresh_names),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
