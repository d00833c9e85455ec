/* SPDX-License-Identifier: BSD-3-Clause */
/* Logging: formats a line once and hands it to the sink. */
#include "util/log.h"
#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MPATH_LOG_LINE_MAX 1024

atomic_int mpath_log_threshold = MPATH_LOG_WARN;

static _Atomic(mpath_log_sink_t) log_sink;
static _Atomic(mpath_log_topic_sink_t) log_topic_sink;
static atomic_int log_rank = -1;

static atomic_int log_fd     = -1;  /* of the file; -1: there is none */
static atomic_uint log_rooms = ~0u; /* a bit each */

static const char *const room_names[] = {"util", "record", "device", "topo",  "plan",     "lane", "rail",  "team",
                                         "wire", "tune",   "node",   "mover", "pipeline", "coll", "tools", "glue"};
#define ROOMS (sizeof(room_names) / sizeof(room_names[0]))

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

int mpath_log_speaks(void)
{
    return atomic_load(&log_rank) <= 0;
}

int mpath_log_set_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);

    if (fd < 0) {
        return -1;
    }
    fd = atomic_exchange(&log_fd, fd);
    if (fd >= 0) {
        close(fd);
    }
    return 0;
}

static size_t room_find(const char *name, size_t length)
{
    size_t room = 0;

    while (room < ROOMS && (strlen(room_names[room]) != length || strncmp(room_names[room], name, length) != 0)) {
        room++;
    }
    return room;
}

void mpath_log_set_rooms(const char *list)
{
    int is_without = list != NULL && list[0] == '^';
    unsigned rooms = 0;

    for (list = list == NULL ? "" : list + is_without; *list != '\0'; list += *list == ',') {
        size_t length = strcspn(list, ","), room = room_find(list, length);

        if (room < ROOMS) {
            rooms |= 1u << room;
        } else {
            mpath_warn("log_rooms: '%.*s' is no room; it is ignored", (int)length, list);
        }
        list += length;
    }
    atomic_store(&log_rooms, rooms == 0 ? ~0u : is_without ? ~rooms : rooms);
}

/* Of a source's path: the folder below src/; what is in no room is the component's. */
static size_t room_of(const char *file)
{
    const char *folder = NULL, *at = file;

    while ((at = strstr(at, "src/")) != NULL) {
        at += 4;
        folder = at;
    }
    if (folder != NULL && room_find(folder, strcspn(folder, "/")) < ROOMS) {
        return room_find(folder, strcspn(folder, "/"));
    }
    return ROOMS - 1;
}

/* "2026-11-26T18:10:11.123456 " and the line, in one piece. */
static void write_to_file(int fd, const char *room, const char *line)
{
    char text[MPATH_LOG_LINE_MAX + 64];
    struct timespec now;
    struct tm parts;
    size_t length;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    length = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + length, sizeof(text) - length, ".%06ldZ %s %s\n", now.tv_nsec / 1000, room, line);
    (void)mpath_file_write(fd, text, strlen(text)); /* there is nobody left to tell */
}

/* Where a finished line goes. */
static void log_hand_out(mpath_log_level_t level, size_t room, const char *line)
{
    mpath_log_sink_t sink = atomic_load(&log_sink);
    int fd                = atomic_load(&log_fd);
    mpath_file_guard_t guard;

    if (fd >= 0) {
        write_to_file(fd, room_names[room], line);
        if (level > MPATH_LOG_WARN) {
            return;
        }
    }
    if (sink != NULL) {
        sink(level, line);
        return;
    }
    mpath_file_guard_begin(&guard);
    fprintf(stderr, "%s\n", line); /* one call: stdio locks the stream, so the line stays whole */
    mpath_file_guard_end(&guard);
}

void mpath_log_write(const char *file, mpath_log_level_t level, const char *format, ...)
{
    char line[MPATH_LOG_LINE_MAX];
    char host[64];
    int length, rank = atomic_load(&log_rank);
    size_t room = room_of(file);
    va_list arguments;

    if (level > MPATH_LOG_WARN && !((atomic_load(&log_rooms) >> room) & 1)) {
        return;
    }

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
    log_hand_out(level, room, line);
}

void mpath_log_set_topic_sink(mpath_log_topic_sink_t sink)
{
    atomic_store(&log_topic_sink, sink);
}

void mpath_warn_user(const char *topic, const char *format, ...)
{
    mpath_log_topic_sink_t sink = atomic_load(&log_topic_sink);
    char line[MPATH_LOG_LINE_MAX];
    va_list arguments;

    if ((int)MPATH_LOG_WARN > atomic_load(&mpath_log_threshold)) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if ((sink == NULL) || (sink(topic, line) == 0)) {
        mpath_warn("%s", line);
    }
}
