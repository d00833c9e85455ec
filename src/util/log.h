/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Logging. One line per message: "mpath: [host:pid rank N] LEVEL text". Level, rooms, file and sink belong to the process;
 * messages above the level cost one comparison. Thread-safe: a line is written whole.
 */
#ifndef MPATH_UTIL_LOG_H
#define MPATH_UTIL_LOG_H

#include <stdatomic.h>

typedef enum mpath_log_level {
    MPATH_LOG_ERROR = 0, /* a call fails */
    MPATH_LOG_WARN  = 1, /* mpath goes on, with less than was asked for */
    MPATH_LOG_INFO  = 2, /* once per job, where all ranks would say the same */
    MPATH_LOG_DEBUG = 3, /* once per call */
    MPATH_LOG_TRACE = 4  /* once per chunk */
} mpath_log_level_t;

/* Takes a finished line, without a newline; it may not log. */
typedef void (*mpath_log_sink_t)(mpath_log_level_t level, const char *line);

extern atomic_int mpath_log_threshold;

void mpath_log_set_level(mpath_log_level_t level);

/* NULL restores the default sink: standard error. */
void mpath_log_set_sink(mpath_log_sink_t sink);

/*
 * Later lines go to a file, behind a time stamp and with the room that they come from; errors and warnings to the sink as
 * well. Appended to what is there, so that processes may share it. 0, or -1 with errno: they go where they went.
 */
int mpath_log_set_file(const char *path);

/*
 * Of what is above a warning only lines of these rooms are written: "wire,rail", or with "^" in front all but these. A room
 * is a folder of src/, "glue" the Open MPI component. NULL or "": all. A name that is no room is warned of.
 */
void mpath_log_set_rooms(const char *list);

/* The rank that later lines name; -1 (the start value) leaves it out. */
void mpath_log_set_rank(int rank);
/* Nonzero: this process says what each process of the job finds by itself: it has rank 0, or none. */
int mpath_log_speaks(void);

/* `file`: __FILE__ of who speaks, from which its room is known. */
void mpath_log_write(const char *file, mpath_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Shows what users can act on in a better form than a line: a text named `topic`, with `line` in it. Returns 0 when it
 * has not: then the line is logged. Processes of one job may differ in that.
 */
typedef int (*mpath_log_topic_sink_t)(const char *topic, const char *line);

/* NULL: lines only. */
void mpath_log_set_topic_sink(mpath_log_topic_sink_t sink);

/* A warning that users can act on. */
void mpath_warn_user(const char *topic, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define mpath_log(_level, ...)                                                                                         \
    do {                                                                                                               \
        const mpath_log_level_t mpath_log_level_ = (_level);                                                           \
                                                                                                                       \
        if ((int)mpath_log_level_ <= atomic_load_explicit(&mpath_log_threshold, memory_order_relaxed)) {               \
            mpath_log_write(__FILE__, mpath_log_level_, __VA_ARGS__);                                                  \
        }                                                                                                              \
    } while (0)

#define mpath_error(...) mpath_log(MPATH_LOG_ERROR, __VA_ARGS__)
#define mpath_warn(...) mpath_log(MPATH_LOG_WARN, __VA_ARGS__)
#define mpath_info(...) mpath_log(MPATH_LOG_INFO, __VA_ARGS__)
/* What all ranks find alike: `speaks` is true on one of them, on the others it is a line for debugging. */
#define mpath_info_by(_speaks, ...) mpath_log((_speaks) ? MPATH_LOG_INFO : MPATH_LOG_DEBUG, __VA_ARGS__)
#define mpath_warn_by(_speaks, ...) mpath_log((_speaks) ? MPATH_LOG_WARN : MPATH_LOG_DEBUG, __VA_ARGS__)
#define mpath_debug(...) mpath_log(MPATH_LOG_DEBUG, __VA_ARGS__)
#define mpath_trace(...) mpath_log(MPATH_LOG_TRACE, __VA_ARGS__)

#endif
