/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of lanes whose ranks are child processes: how a child starts, checks and keeps quiet. */
#ifndef MPATH_TESTS_UNIT_LANE_CHILD_H
#define MPATH_TESTS_UNIT_LANE_CHILD_H

#include "util/log.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LANE_CHILD_DEADLINE_S 600

/* In a child: ends it with a line that says where. */
#define CHECK(_condition)                                                                                              \
    do {                                                                                                               \
        if (!(_condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #_condition);                                           \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* A child ends when its parent does, and in any case some time. */
static inline void lane_child_start(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LANE_CHILD_DEADLINE_S);
}

/* A log sink for what a test provokes. */
static inline void lane_ignore_log(mpath_log_level_t level, const char *line)
{
    (void)level;
    (void)line;
}

#endif
