/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that users act on: a text of help-coll-mpath.txt, from the first process of a node, or where that file
 * cannot be read, and from the others, a line of the log with the same arguments. Open MPI 6.0 compiles such texts in,
 * so there it is always the line.
 */
#ifndef COLL_MPATH_HELP_H
#define COLL_MPATH_HELP_H

#include "coll_mpath_compat.h"

#include "util/log.h"

#include <stdbool.h>

#define COLL_MPATH_HELP_FILE "help-coll-mpath.txt"

#if OMPI_MAJOR_VERSION < 6

/*
 * Writes the topic's text to standard error. False, and nothing is written: the file is neither where Open MPI looks
 * nor beside the component, this is not the first process of its node, or it has shown the topic before.
 */
bool mca_coll_mpath_help_show(const char *topic, ...);
/* From now on what libmpath tells is shown in the same way, where there is a topic. */
void mca_coll_mpath_help_hook(void);
#else
#define mca_coll_mpath_help_show(_topic, ...) false
#define mca_coll_mpath_help_hook() ((void)0)
#endif

/* The arguments after `_line`, a literal, are those of the topic, too. */
#define COLL_MPATH_TELL(_topic, _line, ...)                                                                            \
    do {                                                                                                               \
        if ((MPATH_LOG_WARN <= (int)atomic_load(&mpath_log_threshold)) &&                                              \
            !mca_coll_mpath_help_show(_topic, __VA_ARGS__)) {                                                          \
            mpath_warn(_line, __VA_ARGS__);                                                                            \
        }                                                                                                              \
    } while (0)

#endif
