/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a process lives: kill(pid, 0), then state and start time from /proc/<pid>/stat. */
#include "util/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fields of /proc/<pid>/stat after the name, counted from the state. */
#define STAT_FIELD_NUM_THREADS 17
#define STAT_FIELD_START_TIME 19

/* Returns 0 when the file tells nothing. *has_ended_p: nothing of it runs any more. */
static int process_read_stat(int64_t pid, int *has_ended_p, uint64_t *start_ticks_p)
{
    long num_threads = 1;
    char path[64], text[1024];
    const char *at;
    ssize_t length;
    int fd, field;

    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0) {
        return 0;
    }
    text[length] = '\0';
    at           = strrchr(text, ')'); /* the name before it may hold anything */
    if ((at == NULL) || (at[1] != ' ')) {
        return 0;
    }
    at += 2;
    *has_ended_p = (*at == 'Z') || (*at == 'X');
    for (field = 0; field < STAT_FIELD_START_TIME; field++) {
        at = strchr(at, ' ');
        if (at == NULL) {
            return 0;
        }
        at++;
        num_threads = (field + 1 == STAT_FIELD_NUM_THREADS) ? strtol(at, NULL, 10) : num_threads;
    }
    /* The first thread may end before the others. */
    *has_ended_p   = *has_ended_p && (num_threads <= 1);
    *start_ticks_p = strtoull(at, NULL, 10);
    return 1;
}

static uint64_t process_pid_space(void)
{
    struct stat info;

    return (stat("/proc/self/ns/pid", &info) == 0) ? (uint64_t)info.st_ino : 0;
}

void mpath_process_self(mpath_process_t *process)
{
    int has_ended;

    process->pid = getpid();
    if (!process_read_stat(process->pid, &has_ended, &process->start_ticks)) {
        process->start_ticks = 0;
    }
    process->pid_space = process_pid_space();
}

int mpath_process_alive(const mpath_process_t *process)
{
    uint64_t start_ticks;
    int has_ended;

    if ((process->pid <= 0) || (process->pid_space != process_pid_space())) {
        return 1;
    }
    if ((kill((pid_t)process->pid, 0) != 0) && (errno == ESRCH)) {
        return 0;
    }
    if (!process_read_stat(process->pid, &has_ended, &start_ticks)) {
        return 1;
    }
    if (has_ended) {
        return 0;
    }
    return (process->start_ticks == 0) || (process->start_ticks == start_ticks);
}
