/* SPDX-License-Identifier: BSD-3-Clause */
/* For unit tests: cmocka with what it needs, and the log lines of the code under test as text. One thread only. */
#ifndef MPATH_TESTS_UNIT_CAPTURE_H
#define MPATH_TESTS_UNIT_CAPTURE_H

#include "util/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static char capture_buffer[65536];
static int capture_lines;

static inline void capture_line(mpath_log_level_t level, const char *line)
{
    (void)level;
    if (strlen(capture_buffer) + strlen(line) + 2 < sizeof(capture_buffer)) {
        strcat(capture_buffer, line);
        strcat(capture_buffer, "\n");
    }
    capture_lines++;
}

/* From here on, log lines are kept instead of printed. */
static inline void capture_start(void)
{
    capture_buffer[0] = '\0';
    capture_lines     = 0;
    mpath_log_set_sink(capture_line);
}

static inline void capture_stop(void)
{
    mpath_log_set_sink(NULL);
}

/* The lines since capture_start(), and their number. */
static inline const char *capture_text(void)
{
    return capture_buffer;
}

static inline int capture_count(void)
{
    return capture_lines;
}

#endif
