/* SPDX-License-Identifier: BSD-3-Clause */
/* Files: opening what others may have put there, and writes and reservations under limits. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sigtimedwait(), mkostemp() */
#endif
#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define RESERVE_PIECE_BYTES ((size_t)1 << 20) /* what an interruption can undo */
#define INTERRUPTIONS_MAX 1000                /* one after the other, without progress */
#define SAFE_FLAGS (O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

static int is_pipe_or_device(const struct stat *info)
{
    return !S_ISREG(info->st_mode) && !S_ISDIR(info->st_mode);
}

static void close_keeping_errno(int fd)
{
    int because = errno;

    close(fd);
    errno = because;
}

mpath_status_t mpath_file_open(const char *path, FILE **file_p)
{
    int fd = open(path, O_RDONLY | SAFE_FLAGS);
    struct stat info;

    if (fd < 0) {
        return (errno == ENXIO) ? MPATH_ERR_PARAM : MPATH_ERR_IO; /* a socket */
    }
    if (fstat(fd, &info) != 0) {
        close_keeping_errno(fd);
        return MPATH_ERR_IO;
    }
    if (is_pipe_or_device(&info)) {
        close(fd);
        return MPATH_ERR_PARAM;
    }
    *file_p = fdopen(fd, "r");
    if (*file_p == NULL) {
        close_keeping_errno(fd);
        return MPATH_ERR_IO;
    }
    return MPATH_OK;
}

/* What stands for the letter after a percent sign; NULL: nothing does. */
static const char *name_part(char letter, int rank, char *text, size_t size)
{
    switch (letter) {
    case 'h':
        if (gethostname(text, size) != 0) {
            snprintf(text, size, "host");
        }
        text[size - 1] = '\0';
        return text;
    case 'p':
        snprintf(text, size, "%d", (int)getpid());
        return text;
    case 'r':
        snprintf(text, size, "%d", rank);
        return text;
    case '%':
        return "%";
    default:
        return NULL;
    }
}

mpath_status_t mpath_file_name(const char *pattern, int rank, char *path, size_t size)
{
    size_t length = 0;
    char text[256];

    for (; *pattern != '\0'; pattern++) {
        char letter[2]   = {*pattern, '\0'};
        const char *part = *pattern == '%' ? name_part(*++pattern, rank, text, sizeof(text)) : letter;

        if (part == NULL || length + strlen(part) >= size) {
            return MPATH_ERR_PARAM;
        }
        memcpy(path + length, part, strlen(part));
        length += strlen(part);
    }
    path[length] = '\0';
    return length > 0 ? MPATH_OK : MPATH_ERR_PARAM;
}

int mpath_file_name_differs(const char *pattern)
{
    for (; *pattern != '\0' && (pattern = strchr(pattern, '%')) != NULL && pattern[1] != '\0'; pattern += 2) {
        if (pattern[1] == 'p' || pattern[1] == 'r') {
            return 1;
        }
    }
    return 0;
}

int mpath_file_is_special(const char *path)
{
    struct stat info;

    if ((lstat(path, &info) == 0) && S_ISLNK(info.st_mode) && (info.st_uid != geteuid()) && (info.st_uid != 0)) {
        return 1;
    }
    return (stat(path, &info) == 0) && is_pipe_or_device(&info);
}

int mpath_file_create_beside(const char *path, char *name, size_t size)
{
    int length = snprintf(name, size, "%s.XXXXXX", path);

    if ((length < 0) || ((size_t)length >= size)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return mkostemp(name, O_CLOEXEC);
}

int mpath_file_open_own(int folder, const char *name, int flags)
{
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | SAFE_FLAGS | flags, S_IRUSR | S_IWUSR);
    struct stat info;

    if ((fd >= 0) && ((fstat(fd, &info) != 0) || (info.st_uid != geteuid()) || !S_ISREG(info.st_mode))) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

static void guard_begin(mpath_file_guard_t *guard, const sigset_t *blocked)
{
    sigset_t pending;

    sigemptyset(&pending);
    pthread_sigmask(SIG_BLOCK, blocked, &guard->before);
    sigpending(&pending);
    guard->was_pending = sigismember(&pending, SIGXFSZ) == 1;
}

void mpath_file_guard_begin(mpath_file_guard_t *guard)
{
    int saved_errno = errno;
    sigset_t blocked;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGXFSZ);
    guard_begin(guard, &blocked);
    errno = saved_errno;
}

void mpath_file_guard_end(const mpath_file_guard_t *guard)
{
    const struct timespec now = {0};
    int saved_errno           = errno;
    sigset_t limit;

    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    if (!guard->was_pending) {
        (void)sigtimedwait(&limit, NULL, &now); /* the kernel's, to this thread; none is the rule */
    }
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
    errno = saved_errno;
}

int mpath_file_reserve(int fd, size_t bytes)
{
    int interruptions = 0, error = 0;
    mpath_file_guard_t guard;
    size_t done = 0;
    struct statvfs fs;
    struct stat info;
    sigset_t all;

    /* What cannot be had is not begun: while it is, others would find the file system full. */
    if ((fstatvfs(fd, &fs) == 0) && (fs.f_blocks > 0) && (fstat(fd, &info) == 0) &&
        (bytes / fs.f_frsize > fs.f_bavail + (size_t)info.st_blocks * 512 / fs.f_frsize)) {
        return ENOSPC;
    }
    sigfillset(&all);
    guard_begin(&guard, &all);
    while ((done < bytes) && (error == 0)) {
        size_t piece = (bytes - done < RESERVE_PIECE_BYTES) ? bytes - done : RESERVE_PIECE_BYTES;

        error = posix_fallocate(fd, (off_t)done, (off_t)piece);
        if (error == 0) {
            done += piece;
            interruptions = 0;
        } else if ((error == EINTR) && (++interruptions < INTERRUPTIONS_MAX)) {
            error = 0;
        }
    }
    mpath_file_guard_end(&guard);
    return error;
}

int mpath_file_write(int fd, const void *data, size_t bytes)
{
    const char *next  = data;
    int interruptions = 0;
    mpath_file_guard_t guard;
    ssize_t written = 0;

    mpath_file_guard_begin(&guard);
    while (bytes > 0) {
        written = write(fd, next, bytes);
        if (written > 0) {
            next += written;
            bytes -= (size_t)written;
            interruptions = 0;
        } else if (written == 0) {
            errno = EIO;
            break;
        } else if ((errno != EINTR) || (++interruptions >= INTERRUPTIONS_MAX)) {
            break;
        }
    }
    mpath_file_guard_end(&guard);
    return (bytes == 0) ? 0 : -1;
}

#define HIDDEN_MAX 64

static atomic_int hidden[HIDDEN_MAX]; /* descriptors + 1; 0: none */
static pthread_once_t hidden_once = PTHREAD_ONCE_INIT;

/* In the child, where little more than system calls may be made. The numbers stay taken. */
static void hidden_replace(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int i = 0; i < HIDDEN_MAX; i++) {
        int fd = atomic_load(&hidden[i]) - 1;

        if ((fd >= 0) && ((null < 0) || (dup3(null, fd, O_CLOEXEC) < 0))) {
            close(fd);
        }
    }
    if (null >= 0) {
        close(null);
    }
}

static void hidden_begin(void)
{
    (void)pthread_atfork(NULL, NULL, hidden_replace);
}

void mpath_file_hide_from_children(int fd)
{
    pthread_once(&hidden_once, hidden_begin);
    for (int i = 0; i < HIDDEN_MAX; i++) {
        int none = 0;

        if (atomic_compare_exchange_strong(&hidden[i], &none, fd + 1)) {
            return;
        }
    }
}

void mpath_file_hide_end(int fd)
{
    for (int i = 0; i < HIDDEN_MAX; i++) {
        int its = fd + 1;

        if (atomic_compare_exchange_strong(&hidden[i], &its, 0)) {
            return;
        }
    }
}
