/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress: text in one static place, under a lock that the thread with the clock shares. */
#include "tools/progress.h"

#include "util/time.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define PROGRESS_ERASE "\r\033[K"
#define PROGRESS_AGAIN_NS (100 * MPATH_NS_PER_MS)

static struct progress {
    const char *program;
    int at_terminal, prints_lines;
    int is_shown;
    uint64_t shown_ns;
    char step[256];
    int counts, ends; /* a clock runs; it is to end */
    pthread_t clock;
} progress;

static pthread_mutex_t progress_lock  = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress_change = PTHREAD_COND_INITIALIZER;

void progress_start(const char *program, progress_kind_t kind)
{
    progress.program      = program;
    progress.at_terminal  = (kind != PROGRESS_NEVER) && isatty(STDERR_FILENO);
    progress.prints_lines = (kind == PROGRESS_LINES) && !progress.at_terminal;
}

static void progress_show(const char *more)
{
    fprintf(stderr, PROGRESS_ERASE "%s: %s%s", progress.program, progress.step, more);
    fflush(stderr);
    progress.is_shown = 1;
    progress.shown_ns = mpath_time_ns();
}

static void *progress_tick(void *arg)
{
    uint64_t began_ns = mpath_time_ns();
    struct timespec next;
    char more[32];

    (void)arg;
    pthread_mutex_lock(&progress_lock);
    while (!progress.ends) {
        clock_gettime(CLOCK_REALTIME, &next);
        next.tv_sec++;
        pthread_cond_timedwait(&progress_change, &progress_lock, &next);
        if (!progress.ends) {
            snprintf(more, sizeof(more), ", %d s", (int)((mpath_time_ns() - began_ns) / MPATH_NS_PER_S));
            progress_show(more);
        }
    }
    pthread_mutex_unlock(&progress_lock);
    return NULL;
}

static void progress_count_end(void)
{
    if (!progress.counts) {
        return;
    }
    pthread_mutex_lock(&progress_lock);
    progress.ends = 1;
    pthread_cond_signal(&progress_change);
    pthread_mutex_unlock(&progress_lock);
    pthread_join(progress.clock, NULL);
    progress.counts = 0;
}

void progress_step(const char *format, ...)
{
    va_list arguments;

    progress_count_end();
    if (!progress.at_terminal && !progress.prints_lines) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(progress.step, sizeof(progress.step), format, arguments);
    va_end(arguments);
    if (progress.at_terminal) {
        progress_show("");
    } else {
        fprintf(stderr, "%s: %s\n", progress.program, progress.step);
    }
}

void progress_more(const char *format, ...)
{
    char more[128];
    va_list arguments;

    if (!progress.at_terminal || (mpath_time_ns() - progress.shown_ns < PROGRESS_AGAIN_NS)) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(more, sizeof(more), format, arguments);
    va_end(arguments);
    progress_show(more);
}

void progress_count(void)
{
    progress.ends   = 0;
    progress.counts = progress.at_terminal && (pthread_create(&progress.clock, NULL, progress_tick, NULL) == 0);
}

void progress_stop(void)
{
    progress_count_end();
    if (progress.is_shown) {
        fputs(PROGRESS_ERASE, stderr);
        fflush(stderr);
        progress.is_shown = 0;
    }
}
