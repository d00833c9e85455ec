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
#define STAT_FIELD_START_BRK 44
#define STAT_MAX 1024

#define WORD_START_BITS 42 /* below a pid, which has 22 at most */

/* The file's text from the state on; NULL: it tells nothing. */
static const char *stat_read(int64_t pid, char text[STAT_MAX])
{
    char path[64];
    const char *at;
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    length = read(fd, text, STAT_MAX - 1);
    close(fd);
    if (length <= 0) {
        return NULL;
    }
    text[length] = '\0';
    at           = strrchr(text, ')'); /* the name before it may hold anything */
    return ((at != NULL) && (at[1] == ' ')) ? at + 2 : NULL;
}

/* NULL: there is none. */
static const char *stat_field(const char *at, int field)
{
    for (; (at != NULL) && (field > 0); field--) {
        at = strchr(at, ' ');
        at = (at != NULL) ? at + 1 : NULL;
    }
    return at;
}

/* Returns 0 when the file tells nothing. *has_ended_p: nothing of it runs any more. */
static int process_read_stat(int64_t pid, int *has_ended_p, uint64_t *start_ticks_p)
{
    char text[STAT_MAX];
    const char *at = stat_read(pid, text), *start_time = stat_field(at, STAT_FIELD_START_TIME);

    if (start_time == NULL) {
        return 0;
    }
    /* The first thread may end before the others. */
    *has_ended_p   = ((*at == 'Z') || (*at == 'X')) && (strtol(stat_field(at, STAT_FIELD_NUM_THREADS), NULL, 10) <= 1);
    *start_ticks_p = strtoull(start_time, NULL, 10);
    return 1;
}

uintptr_t mpath_process_heap(void)
{
    char text[STAT_MAX];
    const char *at  = stat_field(stat_read(getpid(), text), STAT_FIELD_START_BRK);
    uintptr_t begin = (at != NULL) ? (uintptr_t)strtoull(at, NULL, 10) : 0;

    return (begin != 0) ? begin : UINTPTR_MAX;
}

static uint64_t process_pid_space(void)
{
    struct stat info;

    return (stat("/proc/self/ns/pid", &info) == 0) ? (uint64_t)info.st_ino : 0;
}

void mpath_process_self(mpath_process_t *process)
{
    static _Thread_local mpath_process_t self; /* asked for in calls; a child has another pid */
    pid_t me = getpid();
    int has_ended;

    if (self.pid != me) {
        self = (mpath_process_t){.pid = me, .pid_space = process_pid_space()};
        if (!process_read_stat(me, &has_ended, &self.start_ticks)) {
            self.start_ticks = 0;
        }
    }
    *process = self;
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

uint64_t mpath_process_word(void)
{
    mpath_process_t process;

    mpath_process_self(&process);
    return (uint64_t)process.pid << WORD_START_BITS | (process.start_ticks & ((UINT64_C(1) << WORD_START_BITS) - 1));
}

int mpath_process_word_alive(uint64_t word)
{
    mpath_process_t process = {.pid         = (int64_t)(word >> WORD_START_BITS),
                               .start_ticks = word & ((UINT64_C(1) << WORD_START_BITS) - 1),
                               .pid_space   = process_pid_space()};

    return mpath_process_alive(&process);
}
