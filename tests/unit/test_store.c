/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of what calls have shown: files of something else and of version 1, several writers, damage of all kinds.
 */
#include "tune/history.h"
#include "unit/capture.h"
#include "unit/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t random_below(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((*state >> 33) % limit);
}

static void store_path(char *path, size_t size)
{
    snprintf(path, size, "/tmp/mpath-test-rates.%ld", (long)getpid());
    unlink(path);
}

/* Nonzero counts what must not come out of any file. */
static void check_line(void *argument, const mpath_history_line_t *line)
{
    int *bad = argument;

    int has_rates = (line->key.kind == MPATH_HISTORY_RATES) || (line->key.kind == MPATH_HISTORY_NODE_RATES);

    *bad += (has_rates != (line->num_rails > 0)) || (line->key.node < 0) || (line->num_rails > MPATH_MAX_NICS) ||
            (line->key.kind < 0) || (line->key.kind >= MPATH_HISTORY_KINDS) ||
            (line->value >= ((line->key.kind == MPATH_HISTORY_HELP) ? 101 : 1000000)) ||
            (memchr(line->key.operation, 0, sizeof(line->key.operation)) == NULL);
    for (int rail = 0; rail < line->num_rails; rail++) {
        *bad += ((line->bps[rail] == 0) && (line->key.kind == MPATH_HISTORY_RATES)) ||
                (line->bps[rail] > (uint64_t)MPATH_MAX_RATE_BPS);
    }
}

/* Files of something else, and folders, are left alone. */
static void test_store_foreign(void **state)
{
    const char *text       = "important = 1\nother = 2\n";
    const uint64_t some[2] = {5, 6};
    char path[64], got[64] = "";
    uint64_t bps[2];
    FILE *file;

    (void)state;
    store_path(path, sizeof(path));
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    capture_start();
    assert_int_equal(mpath_history_save(path, 1, "allreduce", 0, 2, some), MPATH_ERR_PARAM);
    assert_int_equal(mpath_history_load(path, 1, "allreduce", 0, 2, bps), MPATH_DECLINED);
    assert_int_equal(mpath_history_load("/tmp", 1, "allreduce", 0, 2, bps), MPATH_DECLINED);
    assert_int_equal(mpath_history_save("/tmp", 1, "allreduce", 0, 2, some), MPATH_ERR_IO);
    capture_stop();
    assert_non_null(strstr(capture_text(), ":1: it does not begin with 'mpath-rates 3'"));
    assert_non_null(strstr(capture_text(), "/tmp cannot be written"));
    file = fopen(path, "r");
    assert_int_equal(fread(got, 1, sizeof(got) - 1, file), strlen(text));
    fclose(file);
    assert_string_equal(got, text);
    unlink(path);
}

/* A file that does not exist is an empty one, and no reason for a warning; one that cannot be read is. */
static void test_store_missing(void **state)
{
    char path[64], below[80];
    uint64_t bps[2];
    int lines = 0;
    FILE *file;

    (void)state;
    store_path(path, sizeof(path));
    snprintf(below, sizeof(below), "%s/file", path);
    capture_start();
    assert_int_equal(mpath_history_read(path, check_line, &lines), MPATH_DECLINED);
    assert_int_equal(mpath_history_load(path, 1, "allreduce", 0, 2, bps), MPATH_DECLINED);
    capture_stop();
    assert_int_equal(capture_count(), 0);
    file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    capture_start();
    assert_int_equal(mpath_history_read(below, check_line, &lines), MPATH_ERR_IO);
    assert_int_equal(mpath_history_load(below, 1, "allreduce", 0, 2, bps), MPATH_DECLINED);
    capture_stop();
    assert_int_equal(capture_count(), 1);
    assert_non_null(strstr(capture_text(), "cannot be read"));
    unlink(path);
}

/* A pipe stands for a device, such as /dev/null: nothing takes its place. A link leads to the same file afterwards. */
static void test_store_special(void **state)
{
    const uint64_t some[2] = {5, 6};
    char path[64], other[80];
    struct stat there;
    uint64_t bps[2];

    (void)state;
    store_path(path, sizeof(path));
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(300); /* an open pipe gives no end of file */
    capture_start();
    assert_int_equal(mpath_history_load(path, 1, "allreduce", 0, 2, bps), MPATH_DECLINED);
    assert_int_equal(mpath_history_save(path, 1, "allreduce", 0, 2, some), MPATH_ERR_PARAM);
    capture_stop();
    alarm(0);
    assert_non_null(strstr(capture_text(),
                           "is no regular file, or a link of another user; nothing is read from it, and nothing kept"));
    assert_int_equal(lstat(path, &there), 0);
    assert_true(S_ISFIFO(there.st_mode));
    unlink(path);

    snprintf(other, sizeof(other), "%s.other", path);
    unlink(other);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(mpath_history_save(path, 1, "allreduce", 0, 2, some), MPATH_OK);
    assert_int_equal(lstat(path, &there), 0);
    assert_true(S_ISLNK(there.st_mode));
    assert_int_equal(mpath_history_load(other, 1, "allreduce", 0, 2, bps), MPATH_OK);
    assert_int_equal(bps[1], 6);
    unlink(other);
    unlink(path);
}

#define WRITERS 4
#define LINES_EACH 8

/* Jobs that write at the same time do not lose each other's lines. */
/* Whoever may write in the folder knows which process will write next: links of the names that it might use lead nowhere. */
static void test_store_planted(void **state)
{
    const uint64_t some[2] = {5, 6};
    char path[64], planted[96], target[80], got[16] = "";
    struct stat there;
    uint64_t bps[2];
    FILE *file;

    (void)state;
    store_path(path, sizeof(path));
    snprintf(target, sizeof(target), "%s.target", path);
    snprintf(planted, sizeof(planted), "%s.%ld", path, (long)getpid());
    file = fopen(target, "w");
    assert_non_null(file);
    fputs("precious", file);
    fclose(file);
    assert_int_equal(symlink(target, planted), 0);
    assert_int_equal(mpath_history_save(path, 1, "allreduce", 0, 2, some), MPATH_OK);
    assert_int_equal(mpath_history_load(path, 1, "allreduce", 0, 2, bps), MPATH_OK);
    assert_int_equal(bps[1], 6);
    file = fopen(target, "r");
    assert_non_null(file);
    (void)fread(got, 1, sizeof(got) - 1, file);
    fclose(file);
    assert_string_equal(got, "precious");
    assert_int_equal(lstat(planted, &there), 0);
    assert_true(S_ISLNK(there.st_mode));
    unlink(planted);

    /* The file keeps its rights when another takes its place. */
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(mpath_history_save(path, 2, "allreduce", 0, 2, some), MPATH_OK);
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(there.st_mode & 0777, 0640);
    unlink(path);

    /* A link that somebody else has made in the file's place; only root can make one for a test. */
    assert_int_equal(symlink(target, path), 0);
    if (lchown(path, 1, 1) == 0) {
        capture_start();
        assert_int_equal(mpath_history_save(path, 1, "allreduce", 0, 2, some), MPATH_ERR_PARAM);
        capture_stop();
        assert_non_null(strstr(capture_text(), "or a link of another user"));
    }
    unlink(path);
    unlink(target);
}

static void test_store_writers(void **state)
{
    uint64_t bps[2] = {0, 0};
    char path[64];
    int status;

    (void)state;
    store_path(path, sizeof(path));
    for (int writer = 0; writer < WRITERS; writer++) {
        if (child_fork() == 0) {
            int bad = 0;

            for (uint64_t line = 0; line < LINES_EACH; line++) {
                const uint64_t mine[2] = {(uint64_t)writer + 1, line + 1};

                bad += mpath_history_save(path, line, "allreduce", writer, 2, mine) != MPATH_OK;
            }
            _exit(bad != 0);
        }
    }
    for (int writer = 0; writer < WRITERS; writer++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    for (int writer = 0; writer < WRITERS; writer++) {
        for (uint64_t line = 0; line < LINES_EACH; line++) {
            assert_int_equal(mpath_history_load(path, line, "allreduce", writer, 2, bps), MPATH_OK);
            assert_int_equal(bps[0], writer + 1);
            assert_int_equal(bps[1], line + 1);
        }
    }
    unlink(path);
}

/* A line is what ends in a newline, however long it is, and a number what fits. */
static void test_store_odd_lines(void **state)
{
    const char *lines[] = {"mpath-rates 1", "0000000000000001 allgather 4294967298 5 6", "nonsense",
                           "0000000000000001 allreduce 2 7 8"};
    uint64_t bps[2]     = {0, 0};
    char path[64], junk[1100];
    FILE *out;

    (void)state;
    memset(junk, 'x', sizeof(junk));
    store_path(path, sizeof(path));
    out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "%s\n", lines[0]);
    for (int length = 980; length < 1030; length++) { /* the end of one of them is where a buffer begins anew */
        fprintf(out, "%.*s%s\n", length, junk, "0000000000000001 allgather 0 5 6");
    }
    fprintf(out, "%s\n%s%c\n%s\n", lines[1], lines[2], 0, lines[3]);
    fclose(out);
    capture_start();
    assert_int_equal(mpath_history_load(path, 1, "allgather", 0, 2, bps), MPATH_DECLINED);
    capture_stop();
    assert_non_null(strstr(capture_text(), ":2: this line cannot be read"));
    assert_non_null(strstr(capture_text(), ":52: this line cannot be read"));
    assert_non_null(strstr(capture_text(), ":53: this line cannot be read"));
    assert_null(strstr(capture_text(), ":54:"));
    capture_start();
    assert_int_equal(mpath_history_load(path, 1, "allgather", 2, 2, bps), MPATH_DECLINED);
    assert_int_equal(mpath_history_load(path, 1, "allreduce", 2, 2, bps), MPATH_OK);
    capture_stop();
    assert_int_equal(bps[1], 8);
    unlink(path);
}

/* What a file holds, line by line. */
static void collect(void *argument, const mpath_history_line_t *line)
{
    char *text = argument;

    sprintf(text + strlen(text), "%llx %s %d:%d", (unsigned long long)line->key.machine, line->key.operation,
            line->key.size_class, (int)line->key.kind);
    if (line->key.kind == MPATH_HISTORY_NODE_RATES) {
        sprintf(text + strlen(text), " @%d", line->key.node);
    }
    for (int rail = 0; rail < line->num_rails; rail++) {
        sprintf(text + strlen(text), " %llu", (unsigned long long)line->bps[rail]);
    }
    if (line->num_rails == 0) {
        sprintf(text + strlen(text), " =%llu", (unsigned long long)line->value);
    }
    strcat(text, "\n");
}

static void write_text(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");

    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

/* A file of version 1 is read, and keeps all of its lines as one of version 3. */
static void test_store_first_version(void **state)
{
    const char *first         = "mpath-rates 1\n0000000000000001 allreduce 0 5 6\n0000000000000002 allgather 2 7\n";
    mpath_history_line_t line = {.key   = {.machine = 1, .operation = "allreduce", .kind = MPATH_HISTORY_HOST_SHARE},
                                 .value = 85000};
    char path[64], got[512] = "";
    FILE *in;

    (void)state;
    store_path(path, sizeof(path));
    write_text(path, first);
    assert_int_equal(mpath_history_read(path, collect, got), MPATH_OK);
    assert_string_equal(got, "1 allreduce 0:0 5 6\n2 allgather 2:0 7\n");
    assert_int_equal(mpath_history_put(path, &line, 1), MPATH_OK);
    memset(got, 0, sizeof(got));
    in = fopen(path, "r");
    assert_non_null(in);
    assert_true(fread(got, 1, sizeof(got) - 1, in) > 0);
    fclose(in);
    assert_string_equal(got, "mpath-rates 3\n0000000000000001 allreduce 0 rates 5 6\n"
                             "0000000000000002 allgather 2 rates 7\n0000000000000001 allreduce 0 host-share 85000\n");
    line.value = 0;
    assert_int_equal(mpath_history_put(path, &line, 1), MPATH_OK);
    got[0] = '\0';
    assert_int_equal(mpath_history_read(path, collect, got), MPATH_OK);
    assert_string_equal(got, "1 allreduce 0:0 5 6\n2 allgather 2:0 7\n1 allreduce 0:1 =0\n");

    /* what was not there yet is no line of version 1, and what is newer stays as it is */
    write_text(path, "mpath-rates 1\n0000000000000001 allreduce 0 host-share 85000\n");
    capture_start();
    got[0] = '\0';
    assert_int_equal(mpath_history_read(path, collect, got), MPATH_OK);
    write_text(path, "mpath-rates 4\n0000000000000001 allreduce 0 rates 5\n");
    assert_int_equal(mpath_history_put(path, &line, 1), MPATH_ERR_PARAM);
    capture_stop();
    assert_string_equal(got, "");
    assert_non_null(strstr(capture_text(), ":2: this line cannot be read"));
    assert_non_null(strstr(capture_text(), "or of a newer version; it is left as it is"));
    unlink(path);
}

/* Of each kind: what it may be, and what not. */
static void test_store_kinds(void **state)
{
    const char *text = "mpath-rates 2\n1 allreduce 27 host-share 999999\n1 alltoallv 255 help 100\n"
                       "1 allreduce 0 rates 5 6\n" /* lines 5 and further cannot be read */
                       "1 allreduce 27 host-share 1000000\n1 allreduce 27 host-share\n1 allreduce 27 host-share 5 6\n"
                       "1 alltoallv 255 help 101\n1 alltoallv 255 help -1\n1 alltoallv 255 hel 30\n"
                       "1 alltoallv 255 helpful 30\n1 alltoallv 255 5 6\n1 alltoallv 255 rates\n1 alltoallv 255\n"
                       "1 alltoallv help 30\n";
    char path[64], got[512] = "", where[16];

    (void)state;
    store_path(path, sizeof(path));
    write_text(path, text);
    capture_start();
    assert_int_equal(mpath_history_read(path, collect, got), MPATH_OK);
    capture_stop();
    assert_string_equal(got, "1 allreduce 27:1 =999999\n1 alltoallv 255:2 =100\n1 allreduce 0:0 5 6\n");
    assert_int_equal(capture_count(), 11);
    for (int line = 5; line <= 15; line++) {
        snprintf(where, sizeof(where), ":%d:", line);
        assert_non_null(strstr(capture_text(), where));
    }
    unlink(path);
}

/* Rates of nodes: of NICs that some of them have, each node's with a line of its own, all written at once. */
static void test_store_nodes(void **state)
{
    const char *text = "mpath-rates 3\n1 alltoallv 0 node-rates 2147483647 5 0 6\n"
                       "1 alltoallv 0 node-rates 1\n1 alltoallv 0 node-rates 1 0 0\n1 alltoallv 0 node-rates -1 5\n"
                       "1 alltoallv 0 node-rates 2147483648 5\n1 alltoallv 0 node-rates x 5\n"
                       "1 alltoallv 0 rates 5 0\n";
    mpath_history_line_t lines[2];
    char path[64], got[512] = "";

    (void)state;
    store_path(path, sizeof(path));
    write_text(path, text);
    capture_start();
    assert_int_equal(mpath_history_read(path, collect, got), MPATH_OK);
    capture_stop();
    assert_string_equal(got, "1 alltoallv 0:3 @2147483647 5 0 6\n");
    assert_int_equal(capture_count(), 6);
    write_text(path, "mpath-rates 2\n1 alltoallv 0 rates 5 6\n1 alltoallv 0 node-rates 0 5 6\n");
    for (int node = 0; node < 2; node++) {
        lines[node] = (mpath_history_line_t){
            .key       = {.machine = 1, .operation = "alltoallv", .kind = MPATH_HISTORY_NODE_RATES, .node = node},
            .num_rails = 2};
        lines[node].bps[1] = 7 + (uint64_t)node;
    }
    capture_start();
    assert_int_equal(mpath_history_put(path, lines, 2), MPATH_OK); /* what version 2 did not know was no line of it */
    capture_stop();
    assert_int_equal(capture_count(), 1);
    lines[1].bps[0] = 9;
    assert_int_equal(mpath_history_put(path, &lines[1], 1), MPATH_OK);
    got[0] = '\0';
    assert_int_equal(mpath_history_read(path, collect, got), MPATH_OK);
    assert_string_equal(got, "1 alltoallv 0:0 5 6\n1 alltoallv 0:3 @0 0 7\n1 alltoallv 0:3 @1 9 8\n");
    unlink(path);
}

/* What a process knows of the file is older than what it has learned itself; a machine is looked for once. */
static void test_store_known(void **state)
{
    mpath_history_key_t key = {
        .machine = 7, .operation = "allreduce", .size_class = 27, .kind = MPATH_HISTORY_HOST_SHARE};
    const mpath_learned_t mine = {.learned_ns = 2, .value = 60000}, other = {.learned_ns = 2, .value = 50000};
    const char *text = "mpath-rates 2\n0000000000000007 allreduce 27 host-share 85000\n"
                       "0000000000000008 allreduce 27 host-share 70000\n0000000000000007 alltoallv 3 help 12\n"
                       "0000000000000007 allreduce 27 rates 5 6\n";
    char path[64];

    (void)state;
    store_path(path, sizeof(path));
    write_text(path, text);
    assert_int_equal(mpath_history_of(&key).learned_ns, 0);
    mpath_history_look(path, 7);
    assert_int_equal(mpath_history_of(&key).value, 85000);
    assert_int_equal(mpath_history_note(&key, &mine), 1);
    assert_int_equal(mpath_history_of(&key).value, 60000);
    unlink(path);
    mpath_history_look(path, 7);
    assert_int_equal(mpath_history_of(&key).value, 60000);
    key.machine = 8;
    assert_int_equal(mpath_history_of(&key).learned_ns, 0);
    key = (mpath_history_key_t){.machine = 7, .operation = "alltoallv", .size_class = 3, .kind = MPATH_HISTORY_HELP};
    assert_int_equal(mpath_history_of(&key).value, 12);
    key.kind = MPATH_HISTORY_HOST_SHARE;
    assert_int_equal(mpath_history_of(&key).learned_ns, 0);
    assert_ptr_equal(mpath_history_later(&mine, &other), &other);
    assert_ptr_equal(mpath_history_later(&other, &mine), &other);

    assert_int_equal(mpath_history_changes(), 0); /* of rates */

    /* more than it has room for: what was learned first makes room */
    for (uint64_t i = 0; i < MPATH_HISTORY_MAX; i++) {
        const mpath_learned_t kept = {.learned_ns = 10 + i, .value = i + 1};

        key.machine = 1000 + i;
        assert_int_equal(mpath_history_note(&key, &kept), 1);
    }
    for (uint64_t i = 0; i < MPATH_HISTORY_MAX; i++) {
        key.machine = 1000 + i;
        assert_int_equal(mpath_history_of(&key).value, i + 1);
    }
}

/* Bytes changed, lost and doubled at random: lines come out usable or not at all. */
static void test_store_mutated(void **state)
{
    static const char *const files[] = {
        "mpath-rates 1\n5f0c2c9d01a3b77e allreduce 2 25000000 25000000 6250000 25000000\n"
        "0000000000000001 reduce_scatter 0 5 6\n",
        "mpath-rates 2\n5f0c2c9d01a3b77e allreduce 2 rates 25000000 6250000 25000000\n"
        "83d1f0b2c4a5e697 allreduce 28 host-share 85000\n83d1f0b2c4a5e697 alltoallv 112 help 30\n",
        "mpath-rates 3\n5f0c2c9d01a3b77e alltoallv 0 node-rates 1 25000000 0 6250000\n"};
    uint64_t random = 11;
    char path[64];
    int bad = 0;

    (void)state;
    store_path(path, sizeof(path));
    capture_start();
    for (int round = 0; round < 2000; round++) {
        const char *good = files[round % 3];
        size_t length    = strlen(good);
        FILE *out        = fopen(path, "w");

        assert_non_null(out);
        for (size_t i = 0; i < length; i++) {
            uint32_t chance = (i < 14) ? 99 : random_below(&random, 60);

            if (chance > 1) {
                fputc(good[i], out);
            }
            if (chance < 2) {
                fputc((int)random_below(&random, 256), out);
            }
            if (chance == 3) {
                fputs(good + i, out);
            }
        }
        fclose(out);
        (void)mpath_history_read(path, check_line, &bad);
    }
    capture_stop();
    assert_int_equal(bad, 0);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_foreign), cmocka_unit_test(test_store_missing),
        cmocka_unit_test(test_store_special), cmocka_unit_test(test_store_planted),
        cmocka_unit_test(test_store_writers), cmocka_unit_test(test_store_odd_lines),
        cmocka_unit_test(test_store_mutated), cmocka_unit_test(test_store_first_version),
        cmocka_unit_test(test_store_kinds),   cmocka_unit_test(test_store_known),
        cmocka_unit_test(test_store_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
