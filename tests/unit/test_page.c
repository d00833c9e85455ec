/* SPDX-License-Identifier: BSD-3-Clause */
/* The page of a process: what others of its user read there, who else can, and what becomes of it. */
#include "lane/segment.h"
#include "record/record.h"
#include "team/call.h"
#include "unit/child.h"
#include "util/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The name of a process's page; 0: it has none. */
static int page_path(pid_t pid, char *path, size_t size)
{
    char pattern[64];
    glob_t found;
    int count = 0;

    snprintf(pattern, sizeof(pattern), "/dev/shm/mpath-%d-*" MPATH_PAGE_NAME_END, (int)pid);
    if (glob(pattern, 0, NULL, &found) == 0) {
        count = (int)found.gl_pathc;
        snprintf(path, size, "%s", found.gl_pathv[0]);
    }
    globfree(&found);
    return count;
}

static void page_read(const char *path, mpath_page_t *page)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(read(fd, page, sizeof(*page)), sizeof(*page));
    close(fd);
}

/* Without a file there are no places for communicators; with one it is there at once, for this user only. */
static void test_life(void **state)
{
    mpath_page_t page;
    struct stat info;
    char path[256];

    (void)state;
    assert_null(mpath_page_slot_take("early", 0, 2));
    atomic_store(&mpath_page_rail("early", 1)->sent_bytes, 5);
    assert_int_equal(page_path(getpid(), path, sizeof(path)), 0);

    mpath_page_open(77, 3, 4);
    mpath_page_open(78, 3, 4); /* there is one */
    assert_int_equal(page_path(getpid(), path, sizeof(path)), 1);
    assert_int_equal(lstat(path, &info), 0);
    assert_int_equal(info.st_mode, S_IFREG | S_IRUSR | S_IWUSR);
    assert_int_equal(info.st_size, MPATH_PAGE_BYTES);
    page_read(path, &page);
    assert_true(page.magic == MPATH_PAGE_MAGIC);
    assert_int_equal(page.process.pid, getpid());
    assert_int_equal(page.job, 77);
    assert_int_equal(page.rank, 3);
    assert_int_equal(page.size, 4);
    assert_string_equal(page.rails[0].name, "early");
    assert_string_equal(page.rails[1].name, "");
    atomic_fetch_add(&mpath_page_rail("early", 1)->sent_bytes, 6);
    mpath_page_close();
    mpath_page_close();
    assert_int_equal(page_path(getpid(), path, sizeof(path)), 0);
    assert_int_equal(mpath_page_rail("early", 1)->sent_bytes, 11); /* for summaries, what was counted stays */
}

static const mpath_page_slot_t *find_slot(const mpath_page_t *page, const char *name)
{
    for (int i = 0; i < MPATH_PAGE_SLOTS; i++) {
        if (page->slots[i].used && strcmp(page->slots[i].name, name) == 0) {
            return &page->slots[i];
        }
    }
    return NULL;
}

/* A call, its wait as seen in between, and its end; what goes over NICs. */
static void test_call(void **state)
{
    const mpath_page_slot_t *seen;
    const mpath_page_rail_t *nic;
    mpath_page_rail_t *rail;
    mpath_record_t *record = mpath_record_open("world", 2);
    uint64_t now_ns        = mpath_time_ns();
    mpath_page_t page;
    char path[256];

    (void)state;
    assert_non_null(record);
    mpath_record_agree(record, MPATH_OPERATION_ALLTOALLV, 1, now_ns); /* nobody sees it: there is no team */
    mpath_record_end(record, MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_CARRIED, NULL);
    mpath_page_open(77, 0, 4);
    assert_int_equal(page_path(getpid(), path, sizeof(path)), 1);
    mpath_record_enter_team(record, 0xabc, 2, 4);
    mpath_record_agree(record, MPATH_OPERATION_ALLREDUCE, 9, now_ns);
    mpath_record_is_long(record, 1000);
    mpath_page_wait_begin(record->slot, 3, MPATH_NS_PER_S, "first");
    mpath_page_wait_begin(record->slot, 1, 2 * MPATH_NS_PER_S, "second");
    rail           = mpath_page_rail("rail1", 1);
    rail->rate_bps = 25;
    atomic_fetch_add(&rail->sent_bytes, 111);
    atomic_fetch_add(&rail->received_bytes, 7);
    mpath_page_rail_lose(rail, 1);

    page_read(path, &page);
    seen = find_slot(&page, "world");
    assert_non_null(seen);
    assert_int_equal(seen->rank, 2);
    assert_int_equal(seen->team, 0xabc);
    assert_int_equal(seen->phase, MPATH_RECORD_AGREE);
    assert_int_equal(seen->number, 9);
    assert_int_equal(seen->collective, MPATH_OPERATION_ALLREDUCE);
    assert_int_equal(seen->calls, 2);
    assert_int_equal(seen->bytes, 1000);
    assert_true(seen->began_ns == now_ns);
    assert_in_range(seen->edge, 1, 2);
    assert_string_equal(seen->edges[seen->edge - 1].text, "second");
    assert_string_equal(seen->edges[2 - seen->edge].text, "first"); /* who is stopped while it writes has this one */
    assert_int_equal(seen->edges[seen->edge - 1].rank, 1);
    assert_int_equal(seen->edges[seen->edge - 1].call, seen->calls);
    assert_true(seen->edges[seen->edge - 1].since_ns < now_ns - MPATH_NS_PER_S);
    nic = &page.rails[rail - mpath_page()->rails];
    assert_string_equal(nic->name, "rail1");
    assert_int_equal(nic->number, 1);
    assert_int_equal(nic->rate_bps, 25);
    assert_int_equal(nic->sent_bytes, 111);
    assert_int_equal(nic->received_bytes, 7);
    assert_true(nic->lost_ns >= now_ns);

    mpath_page_wait_end(record->slot);
    mpath_record_end(record, MPATH_OPERATION_ALLREDUCE, MPATH_RECORD_LEFT, MPATH_WHY_FASTER);
    mpath_page_rail_lose(rail, 0);
    page_read(path, &page);
    assert_int_equal(find_slot(&page, "world")->edge, 0);
    assert_int_equal(find_slot(&page, "world")->phase, MPATH_RECORD_IDLE);
    assert_int_equal(find_slot(&page, "world")->end, MPATH_RECORD_LEFT);
    assert_int_equal(nic->lost_ns, 0);
    mpath_record_leave_team(record);
    page_read(path, &page);
    assert_null(find_slot(&page, "world"));
    assert_int_equal(record->slot->calls, 2);
    mpath_record_close(record);
    mpath_page_close();
}

/* More communicators than there are places: those beyond are not told of, and get one when another ends. */
static void test_full(void **state)
{
    mpath_record_t *records[MPATH_PAGE_SLOTS + 1];
    mpath_page_t page;
    char path[256], name[16];

    (void)state;
    mpath_page_open(77, 0, 4);
    for (int i = 0; i <= MPATH_PAGE_SLOTS; i++) {
        snprintf(name, sizeof(name), "comm%d", i);
        records[i] = mpath_record_open(name, 0);
        mpath_record_enter_team(records[i], 1, 0, 2);
        mpath_record_agree(records[i], MPATH_OPERATION_ALLTOALLV, 1, 1);
    }
    assert_int_equal(page_path(getpid(), path, sizeof(path)), 1);
    page_read(path, &page);
    snprintf(name, sizeof(name), "comm%d", MPATH_PAGE_SLOTS);
    assert_null(find_slot(&page, name));
    mpath_record_close(records[MPATH_PAGE_SLOTS]);
    mpath_record_close(records[3]);
    records[3] = mpath_record_open(name, 0);
    mpath_record_enter_team(records[3], 2, 0, 2);
    page_read(path, &page);
    assert_non_null(find_slot(&page, name));
    assert_int_equal(find_slot(&page, name)->calls, 0);
    for (int i = 0; i < MPATH_PAGE_SLOTS; i++) {
        mpath_record_close(records[i]);
    }
    mpath_page_close();
}

/* Of a process that was killed: swept by the user's next one, and not before it is dead. A child by fork() removes nothing. */
static void test_left(void **state)
{
    int ready[2], status;
    char path[256], word;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        mpath_page_open(1, 0, 1);
        if (fork() == 0) {
            mpath_page_close();
            _exit(0);
        }
        wait(NULL);
        (void)!write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &word, 1), 1);
    mpath_segment_sweep();
    assert_int_equal(page_path(child, path, sizeof(path)), 1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    mpath_segment_sweep(); /* others may do so before */
    assert_int_equal(page_path(child, path, sizeof(path)), 0);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_life), cmocka_unit_test(test_call),
                                       cmocka_unit_test(test_full), cmocka_unit_test(test_left)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
