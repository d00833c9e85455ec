/* SPDX-License-Identifier: BSD-3-Clause */
/* Who finds whom among the processes of a node that relay for each other, and how the dead are told from the living. */
#define _GNU_SOURCE
#include "ucx_tl_mpath/neighbours.h"
#include "unit/child.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/mpath-neighbours-XXXXXX";

static mpath_neighbours_t *join(const char *group, uint64_t uid)
{
    mpath_neighbour_card_t card = {.uid = uid, .num_rails = 1};
    mpath_neighbours_t *neighbours;

    card.rails[0].number = (uint8_t)uid;
    assert_int_equal(mpath_neighbours_join(folder, group, &card, &neighbours), MPATH_OK);
    return neighbours;
}

static int is_empty(void)
{
    return rmdir(folder) == 0 && mkdir(folder, 0700) == 0;
}

static void test_cards(void **state)
{
    mpath_neighbours_t *first = join("job", 1), *second = join("job", 2), *stranger = join("other job", 3);
    uint32_t version = mpath_neighbours_version(first);
    mpath_neighbour_card_t card;

    (void)state;
    assert_int_equal(mpath_neighbours_count(first), 2);
    assert_int_equal(mpath_neighbours_count(stranger), 1);
    assert_true(mpath_neighbours_card(first, mpath_neighbours_self(second), &card));
    assert_int_equal(card.uid, 2);
    assert_int_equal(card.rails[0].number, 2);
    mpath_neighbours_set_demand(second, 12345);
    assert_int_equal(mpath_neighbours_demand(first, mpath_neighbours_self(second)), 12345);
    mpath_neighbours_leave(second);
    assert_int_not_equal(mpath_neighbours_version(first), version);
    assert_false(mpath_neighbours_card(first, 1, &card));
    assert_int_equal(mpath_neighbours_demand(first, 1), 0);
    second = join("job", 4); /* in the place that is free */
    assert_int_equal(mpath_neighbours_self(second), 1);
    assert_int_equal(mpath_neighbours_demand(first, 1), 0);
    assert_true(mpath_neighbours_alive(first, 1, 4));
    assert_false(mpath_neighbours_alive(first, 1, 2));
    version        = mpath_neighbours_version(first);
    card.uid       = 4;
    card.pid       = 5;
    card.num_rails = 0;
    mpath_neighbours_update(second, &card);
    assert_int_not_equal(mpath_neighbours_version(first), version);
    assert_true(mpath_neighbours_card(first, 1, &card));
    assert_int_equal(card.pid, 5);
    mpath_neighbours_leave(first);
    mpath_neighbours_leave(second);
    mpath_neighbours_leave(stranger);
    assert_true(is_empty());
}

/* A process that joins and stays until it is killed. */
static pid_t start_member(const char *group, uint64_t uid)
{
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)join(group, uid);
        if (write(ready[1], "x", 1) == 1) {
            pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

/* A process that ends without leaving; not reaped yet, it is no neighbour any more all the same. */
static void test_death(void **state)
{
    mpath_neighbours_t *self = join("job", 1);
    pid_t pid                = start_member("job", 2);
    mpath_neighbour_card_t card;
    int status;

    (void)state;
    assert_true(mpath_neighbours_alive(self, 1, 2));
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    assert_false(mpath_neighbours_alive(self, 1, 2));
    assert_false(mpath_neighbours_card(self, 1, &card));
    waitpid(pid, &status, 0);
    mpath_neighbours_leave(self); /* the last one alive removes the file */
    assert_true(is_empty());
}

/* The same while a child of it lives, as data loaders do that were forked: nobody takes the child for the process. */
static void test_death_of_a_parent(void **state)
{
    mpath_neighbours_t *self = join("job", 1);
    int told[2], status;
    pid_t pid, child, self_pid;

    (void)state;
    assert_int_equal(pipe(told), 0);
    pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)join("job", 2);
        child = fork();
        alarm(300); /* should this test fail */
        self_pid = getpid();
        if ((child == 0) && (write(told[1], &self_pid, sizeof(self_pid)) != sizeof(self_pid))) { /* it runs */
            _exit(1);
        }
        pause();
        _exit(1);
    }
    assert_int_equal(read(told[0], &child, sizeof(child)), sizeof(child));
    close(told[0]);
    close(told[1]);
    assert_true(mpath_neighbours_alive(self, 1, 2));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    assert_int_equal(kill(child, 0), 0);
    assert_false(mpath_neighbours_alive(self, 1, 2));
    mpath_neighbours_leave(self);
    assert_true(is_empty());
    kill(child, SIGKILL);
}

static int num_files(void)
{
    DIR *files = opendir(folder);
    struct dirent *entry;
    int count = 0;

    assert_non_null(files);
    while ((entry = readdir(files)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(files);
    return count;
}

/* What a job leaves whose last process is killed the next job removes, and nothing that lives or is not ours. */
static void test_sweep(void **state)
{
    mpath_neighbours_t *living = join("living job", 1), *next;
    pid_t killed[2]            = {start_member("dead job", 2), start_member("dead job", 3)};
    char other_user[256], other_name[256], link[256];
    int i, status;

    (void)state;
    snprintf(other_user, sizeof(other_user), "%s/mpath-ucx-%u-0123456789abcdef", folder, (unsigned)geteuid() + 1);
    snprintf(other_name, sizeof(other_name), "%s/mpath-ucx-%u-0123456789abcdef.x", folder, (unsigned)geteuid());
    snprintf(link, sizeof(link), "%s/mpath-ucx-%u-0123456789abcdef", folder, (unsigned)geteuid());
    close(open(other_user, O_CREAT | O_WRONLY, 0600));
    close(open(other_name, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(symlink("/dev/null", link), 0);
    for (i = 0; i < 2; ++i) {
        next = join("next job", 4);
        assert_int_equal(num_files(), 6); /* one of the dead job still lives */
        mpath_neighbours_leave(next);
        kill(killed[i], SIGKILL);
        assert_int_equal(waitpid(killed[i], &status, 0), killed[i]);
    }
    next = join("next job", 4);
    assert_int_equal(num_files(), 5);
    mpath_neighbours_leave(next);
    next = join("living job", 5);
    assert_true(mpath_neighbours_alive(living, mpath_neighbours_self(next), 5));
    mpath_neighbours_leave(living);
    mpath_neighbours_leave(next);
    assert_int_equal(unlink(other_user) | unlink(other_name) | unlink(link), 0);
    assert_true(is_empty());
}

/* A job of the same name as one that was killed begins with an empty table. */
static void test_same_name(void **state)
{
    pid_t killed[2] = {start_member("job", 2), start_member("job", 3)};
    mpath_neighbours_t *next;
    int i, status;

    (void)state;
    for (i = 0; i < 2; ++i) {
        kill(killed[i], SIGKILL);
        assert_int_equal(waitpid(killed[i], &status, 0), killed[i]);
    }
    next = join("job", 4);
    assert_int_equal(mpath_neighbours_count(next), 1);
    mpath_neighbours_leave(next);
    assert_true(is_empty());
}

static void test_full(void **state)
{
    mpath_neighbours_t *members[MPATH_NEIGHBOURS_MAX], *one_more;
    mpath_neighbour_card_t card = {.uid = 1000};
    int i;

    (void)state;
    for (i = 0; i < MPATH_NEIGHBOURS_MAX; ++i) {
        members[i] = join("job", (uint64_t)i + 1);
    }
    assert_int_equal(mpath_neighbours_join(folder, "job", &card, &one_more), MPATH_NO_RESOURCE);
    for (i = 0; i < MPATH_NEIGHBOURS_MAX; ++i) {
        mpath_neighbours_leave(members[i]);
    }
    assert_true(is_empty());
}

/* What somebody else has put there, or a table of another layout whose owners live, is not used. */
static void test_bad_file(void **state)
{
    struct flock lock           = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    mpath_neighbour_card_t card = {.uid = 1};
    mpath_neighbours_t *neighbours, *other;
    char path[256], found[128];
    FILE *names;
    int fd;

    (void)state;
    neighbours = join("job", 1);
    snprintf(path, sizeof(path), "ls %s", folder);
    names = popen(path, "r");
    assert_non_null(names);
    assert_int_equal(fscanf(names, "%127s", found), 1);
    pclose(names);
    mpath_neighbours_leave(neighbours);
    snprintf(path, sizeof(path), "%s/%s", folder, found);
    /* Who has taken the name keeps nobody from meeting. */
    assert_int_equal(symlink("/dev/null", path), 0);
    neighbours = join("job", 1);
    other      = join("job", 2);
    assert_int_equal(mpath_neighbours_count(neighbours), 2);
    mpath_neighbours_leave(other);
    mpath_neighbours_leave(neighbours);
    unlink(path);
    assert_int_equal(mkfifo(path, 0666), 0);
    neighbours = join("job", 1);
    other      = join("job", 2);
    assert_int_equal(mpath_neighbours_count(neighbours), 2);
    mpath_neighbours_leave(other);
    mpath_neighbours_leave(neighbours);
    unlink(path);
    fd = open(path, O_CREAT | O_RDWR, 0600);
    assert_int_equal(ftruncate(fd, 10), 0);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    assert_int_equal(mpath_neighbours_join(folder, "job", &card, &neighbours), MPATH_ERR_IO);
    close(fd);
    mpath_neighbours_leave(join("job", 1)); /* they have ended */
    assert_int_equal(mpath_neighbours_join("/nowhere", "job", &card, &neighbours), MPATH_ERR_IO);
    assert_true(is_empty());
}

/* Steps of two jobs of SLURM have the same number. */
static void test_group(void **state)
{
    static const char *const names[] = {
        "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_STEP_ID", "SLURM_JOB_ID", "PMI_JOBID", "PBS_JOBID",
        "LSB_JOBID"};
    char group[16] = "none", other[16];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        unsetenv(names[i]);
    }
    assert_int_equal(mpath_neighbours_group("", group, sizeof(group)), MPATH_DECLINED);
    assert_string_equal(group, "none");
    assert_int_equal(mpath_neighbours_group("wanted", group, sizeof(group)), MPATH_OK);
    assert_string_equal(group, "wanted");
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_JOB_ID", "17", 1);
    assert_int_equal(mpath_neighbours_group("", group, sizeof(group)), MPATH_OK);
    setenv("SLURM_JOB_ID", "18", 1);
    assert_int_equal(mpath_neighbours_group("", other, sizeof(other)), MPATH_OK);
    assert_string_not_equal(group, other);
    assert_int_equal(mpath_neighbours_group("wanted", group, sizeof(group)), MPATH_OK);
    assert_string_equal(group, "wanted");
    setenv("PMIX_NAMESPACE", "prterun", 1);
    assert_int_equal(mpath_neighbours_group("", group, sizeof(group)), MPATH_OK);
    assert_string_equal(group, "prterun");
    setenv("PMIX_NAMESPACE", "more than the room for it", 1);
    assert_int_equal(mpath_neighbours_group("", group, sizeof(group)), MPATH_ERR_PARAM);
    unsetenv("PMIX_NAMESPACE");
    unsetenv("SLURM_STEP_ID");
    unsetenv("SLURM_JOB_ID");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

#define NO_RIGHTS 77

static int tell(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    int told   = file != NULL && fputs(text, file) >= 0;

    return file != NULL && fclose(file) == 0 && told;
}

/* A namespace with a tiny file system of its own at `folder`; 0: this process may not make one. */
static int mount_tiny(void)
{
    char users[32], groups[32];

    snprintf(users, sizeof(users), "0 %u 1", (unsigned)geteuid());
    snprintf(groups, sizeof(groups), "0 %u 1", (unsigned)getegid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && tell("/proc/self/uid_map", users) &&
           tell("/proc/self/setgroups", "deny") && tell("/proc/self/gid_map", groups) &&
           mount("none", folder, "tmpfs", 0, "size=64k") == 0;
}

/* Where there is no free page files may still grow, on paper: who touches what is not there is killed. */
static void join_without_space(void)
{
    mpath_neighbour_card_t card = {.uid = 1, .num_rails = 1};
    mpath_neighbours_t *neighbours;
    char page[4096] = "", path[sizeof(folder) + 8];
    int fd;

    if (!mount_tiny()) {
        _exit(NO_RIGHTS);
    }
    snprintf(path, sizeof(path), "%s/rest", folder);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        _exit(NO_RIGHTS);
    }
    while (write(fd, page, sizeof(page)) > 0) {
    }
    _exit(mpath_neighbours_join(folder, "job", &card, &neighbours) == MPATH_ERR_IO ? 0 : 1);
}

static void test_no_space(void **state)
{
    pid_t pid = child_fork();
    int status;

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        join_without_space();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_RIGHTS) {
        skip();
    }
    assert_int_equal(status, 0);
    assert_true(is_empty());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cards), cmocka_unit_test(test_death),     cmocka_unit_test(test_death_of_a_parent),
        cmocka_unit_test(test_sweep), cmocka_unit_test(test_same_name), cmocka_unit_test(test_group),
        cmocka_unit_test(test_full),  cmocka_unit_test(test_bad_file),  cmocka_unit_test(test_no_space),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
