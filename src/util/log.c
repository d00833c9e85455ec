/* SPDX-License-Identifier: BSD-3-Clause */
/* Logging: formats a line once and hands it to the sink. */
#include "util/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MPATH_LOG_LINE_MAX 1024

atomic_int mpath_log_threshold = MPATH_LOG_WARN;

static _Atomic(mpath_log_sink_t) log_sink;
static _Atomic(mpath_log_teller_t) log_teller;
static atomic_int log_rank = -1;

static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG", "TRACE"};

void mpath_log_set_level(mpath_log_level_t level)
{
    atomic_store(&mpath_log_threshold, (int)level);
}

void mpath_log_set_sink(mpath_log_sink_t sink)
{
    atomic_store(&log_sink, sink);
}

void mpath_log_set_rank(int rank)
{
    atomic_store(&log_rank, rank);
}

void mpath_log_write(mpath_log_level_t level, const char *format, ...)
{
    char line[MPATH_LOG_LINE_MAX];
    char host[64];
    int length, rank = atomic_load(&log_rank);
    mpath_log_sink_t sink;
    va_list arguments;

    if (gethostname(host, sizeof(host)) != 0) {
        strcpy(host, "?");
    }
    host[sizeof(host) - 1] = '\0';
    if (rank >= 0) {
        length = snprintf(line, sizeof(line), "mpath: [%s:%d rank %d] %s ", host, (int)getpid(), rank,
                          level_names[level]);
    } else {
        length = snprintf(line, sizeof(line), "mpath: [%s:%d] %s ", host, (int)getpid(), level_names[level]);
    }
    va_start(arguments, format);
    vsnprintf(line + length, sizeof(line) - (size_t)length, format, arguments);
    va_end(arguments);
    sink = atomic_load(&log_sink);
    if (sink != NULL) {
        sink(level, line);
    } else {
        fprintf(stderr, "%s\n", line); /* one call: stdio locks the stream, so the line stays whole */
    }
}

void mpath_log_set_teller(mpath_log_teller_t teller)
{
    atomic_store(&log_teller, teller);
}

void mpath_tell(const char *topic, const char *format, ...)
{
    mpath_log_teller_t teller = atomic_load(&log_teller);
    char line[MPATH_LOG_LINE_MAX];
    va_list arguments;

    if ((int)MPATH_LOG_WARN > atomic_load(&mpath_log_threshold)) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if ((teller == NULL) || (teller(topic, line) == 0)) {
        mpath_warn("%s", line);
    }
}
