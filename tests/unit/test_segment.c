/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments: shared between processes, reserved in full, gone when unlinked; errors that leave nothing behind. */
#include "lane/segment.h"
#include "unit/child.h"
#include "util/log.h"
#include "util/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
    child = child_fork();
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

/* Names that process `pid` has left. */
static int names_left(pid_t pid)
{
    DIR *folder = opendir("/dev/shm");
    struct dirent *entry;
    char prefix[32];
    int count = 0;

    assert_non_null(folder);
    snprintf(prefix, sizeof(prefix), "mpath-%d-", (int)pid);
    while ((entry = readdir(folder)) != NULL) {
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    }
    closedir(folder);
    return count;
}

/* Without a name, for whoever comes as long as its owner has it; nothing else is taken for it. */
static void test_open(void **state)
{
    mpath_segment_address_t address, wrong;
    mpath_segment_t segment, other;
    int names = names_left(getpid()), status, fd;
    uint64_t part, whole, before;
    pid_t child;

    (void)state;
    mpath_segment_held(&part, &before);
    assert_int_equal(mpath_segment_create_open(100000, &segment), MPATH_OK);
    assert_int_equal(names_left(getpid()), names);
    assert_int_equal(mpath_segment_address(&segment, &address), MPATH_OK);
    for (int i = 0; i < 2; i++) {
        child = child_fork();
        assert_true(child >= 0);
        if (child == 0) {
            if (mpath_segment_attach_open(&address, &other) != MPATH_OK) {
                _exit(1);
            }
            mpath_segment_note(&other, 0);
            ((unsigned char *)other.base)[99998 + i] = 42;
            mpath_segment_held(&part, &whole);
            mpath_segment_detach(&other);
            _exit(((part == 0) && (whole == before + 100000)) ? 0 : 2);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(((unsigned char *)segment.base)[99998 + i], 42);
    }

    mpath_log_set_sink(keep_error);
    wrong = address;
    wrong.bytes++;
    assert_int_equal(mpath_segment_attach_open(&wrong, &other), MPATH_ERR_IO);
    wrong = address;
    wrong.inode++;
    assert_int_equal(mpath_segment_attach_open(&wrong, &other), MPATH_ERR_IO);
    assert_non_null(strstr(last_error, "is not the shared memory of 100000 bytes"));
    wrong    = address;
    wrong.fd = 1;
    assert_int_equal(mpath_segment_attach_open(&wrong, &other), MPATH_ERR_IO);
    wrong.pid = 0;
    assert_int_equal(mpath_segment_attach_open(&wrong, &other), MPATH_ERR_IO);
    assert_non_null(strstr(last_error, "cannot be opened"));

    /* The descriptor's number is that of something else. */
    fd = segment.fd;
    mpath_segment_detach(&segment);
    assert_int_not_equal(fcntl(fd, F_GETFD), 0);
    assert_int_equal(mpath_segment_attach_open(&address, &other), MPATH_ERR_IO);
    assert_int_equal(dup2(1, fd), fd);
    assert_int_equal(mpath_segment_attach_open(&address, &other), MPATH_ERR_IO);
    close(fd);
    mpath_log_set_sink(NULL);
    mpath_segment_held(&part, &whole);
    assert_int_equal(whole, before);
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

/* An empty segment as this process, or another one, would have left it so many seconds ago. */
static void leave_segment(const mpath_process_t *process, const char *suffix, int age_s, char *name, size_t size)
{
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    int fd;

    snprintf(name, size, "/mpath-%lld-%llx-%llx-%s", (long long)process->pid, (unsigned long long)process->start_ticks,
             (unsigned long long)process->pid_space, suffix);
    fd = shm_open(name, O_CREAT | O_RDWR, 0600);
    assert_true(fd >= 0);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

/* Takes the last letters off the name; before, the segment becomes another user's. Nonzero when it did, which takes rights. */
static int give_away(char *name, const char *last)
{
    size_t length = strlen(name) - strlen(last);
    int fd        = shm_open(name, O_RDWR, 0), given;
    char from[128], to[128];

    assert_true(fd >= 0);
    assert_string_equal(name + length, last);
    given = fchown(fd, geteuid() + 1, (gid_t)-1) == 0;
    close(fd);
    snprintf(from, sizeof(from), "/dev/shm%s", name);
    name[length] = '\0';
    snprintf(to, sizeof(to), "/dev/shm%s", name);
    assert_int_equal(rename(from, to), 0);
    return given;
}

/*
 * Names of this user's processes that are gone are removed, and those of whom nobody can tell once they are old. Processes
 * of other tests sweep at any time, so what may go is only looked at afterwards.
 */
static void test_sweep(void **state)
{
    char dead[64], reused[64], own[64], alike[64], others[64], young[64], old[64];
    mpath_process_t self, gone, before, far;
    int is_others, status;

    (void)state;
    mpath_process_self(&self);
    gone     = self;
    gone.pid = child_fork();
    assert_true(gone.pid >= 0);
    if (gone.pid == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid((pid_t)gone.pid, &status, 0), gone.pid);
    before = self; /* who had this number before */
    before.start_ticks--;
    far = self;
    far.pid_space--;
    leave_segment(&gone, "01234567", 0, dead, sizeof(dead));
    leave_segment(&before, "01234567", 0, reused, sizeof(reused));
    leave_segment(&self, "01234567", 7200, own, sizeof(own));
    leave_segment(&gone, "01234567.x", 7200, alike, sizeof(alike));
    leave_segment(&gone, "01234568.x", 7200, others, sizeof(others));
    leave_segment(&far, "01234567", 60, young, sizeof(young));
    leave_segment(&far, "01234568", 7200, old, sizeof(old));
    is_others = give_away(others, ".x");
    mpath_segment_sweep();
    assert_int_equal(name_exists(others), is_others);
    assert_false(name_exists(dead));
    assert_false(name_exists(reused));
    assert_true(name_exists(own));
    assert_true(name_exists(alike));
    assert_true(name_exists(young));
    assert_false(name_exists(old));
    shm_unlink(own);
    shm_unlink(alike);
    shm_unlink(others);
    shm_unlink(young);
}

/* What a process that is killed leaves is recognised by its name. */
static void test_killed(void **state)
{
    mpath_segment_t segment;
    int pipe_fds[2], status;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(pipe_fds), 0);
    child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        status = mpath_segment_create(4096, &segment) == MPATH_OK &&
                 write(pipe_fds[1], segment.name, sizeof(segment.name)) == (ssize_t)sizeof(segment.name);
        kill(getpid(), status ? SIGKILL : SIGTERM);
    }
    assert_int_equal(read(pipe_fds[0], segment.name, sizeof(segment.name)), sizeof(segment.name));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    mpath_segment_sweep();
    assert_false(name_exists(segment.name));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
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

/* How a child that runs `body` ends, killed after five minutes. */
static int run_child(int (*body)(void), pid_t *pid_p)
{
    pid_t child = child_fork();
    int status  = -1;

    assert_true(child >= 0);
    if (child == 0) {
        _exit(body());
    }
    for (int i = 0; (i < 30000) && (waitpid(child, &status, WNOHANG) == 0); i++) {
        usleep(10000);
        status = -1;
    }
    if (status == -1) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    *pid_p = child;
    return status;
}

static int exceed_size_limit(void)
{
    struct rlimit limit = {.rlim_cur = 4 << 20, .rlim_max = 4 << 20};
    mpath_segment_t segment;
    sigset_t pending;

    mpath_log_set_sink(keep_error);
    if ((setrlimit(RLIMIT_FSIZE, &limit) != 0) || (mpath_segment_create(8 << 20, &segment) != MPATH_ERR_IO) ||
        (strstr(last_error, "File too large") == NULL) || (sigpending(&pending) != 0) ||
        sigismember(&pending, SIGXFSZ)) {
        return 1;
    }
    return (mpath_segment_create(1 << 20, &segment) == MPATH_OK) ? (mpath_segment_unlink(&segment), 0) : 2;
}

/* A file size limit is an error and no signal, and nothing is left. */
static void test_size_limit(void **state)
{
    pid_t pid;

    (void)state;
    assert_int_equal(run_child(exceed_size_limit, &pid), 0);
    assert_int_equal(names_left(pid), 0);
}

/* As posix_fallocate() where a signal comes each time. */
static int interrupted;

int __real_posix_fallocate(int fd, off_t offset, off_t length);
int __wrap_posix_fallocate(int fd, off_t offset, off_t length);
int __wrap_posix_fallocate(int fd, off_t offset, off_t length)
{
    return interrupted ? EINTR : __real_posix_fallocate(fd, offset, length);
}

static int reserve_interrupted(void)
{
    mpath_segment_t segment;

    mpath_log_set_sink(keep_error);
    interrupted = 1;
    return ((mpath_segment_create(1 << 20, &segment) == MPATH_ERR_IO) && (strstr(last_error, "Interrupted") != NULL))
               ? 0
               : 1;
}

/* Signals that come more often than a reservation takes, as those of a profiler may: it ends. */
static void test_interrupted(void **state)
{
    pid_t pid;

    (void)state;
    assert_int_equal(run_child(reserve_interrupted, &pid), 0);
    assert_int_equal(names_left(pid), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared),     cmocka_unit_test(test_open),        cmocka_unit_test(test_fresh_names),
        cmocka_unit_test(test_sweep),      cmocka_unit_test(test_killed),      cmocka_unit_test(test_errors),
        cmocka_unit_test(test_size_limit), cmocka_unit_test(test_interrupted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
