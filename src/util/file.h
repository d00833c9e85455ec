/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files whose names others may have a hand in: nothing waits for whoever is at the other end of a pipe, what a name leads
 * to is looked at on the open descriptor, and new files have names that nobody could take before.
 *
 * And writing and reserving where limits are an error and nothing else: beyond the process's file size limit (ulimit -f)
 * the kernel also sends SIGXFSZ, which ends a process that does not handle it.
 */
#ifndef MPATH_UTIL_FILE_H
#define MPATH_UTIL_FILE_H

#include "util/status.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>

/* Opens a file for reading. MPATH_ERR_PARAM: it is a pipe, a device or a socket; MPATH_ERR_IO, with errno: it does not open. */
mpath_status_t mpath_file_open(const char *path, FILE **file_p);

/*
 * A file's name as the user gives it, in which %h stands for the host, %p for this process's id, %r for `rank` and %% for
 * one percent sign. MPATH_ERR_PARAM, not logged: another letter follows a percent sign, or the name is too long.
 */
#define MPATH_FILE_NAME_MAX 1024
mpath_status_t mpath_file_name(const char *pattern, int rank, char *path, size_t size);
/* Nonzero: each process has another one, for it has %p or %r. */
int mpath_file_name_differs(const char *pattern);

/* Nonzero: `path` leads to a pipe, a device or a socket, or is a link that somebody else, not root, has made. */
int mpath_file_is_special(const char *path);

/* A new empty file "path.XXXXXX" with another end, of this user only. Its descriptor and name, or -1 with errno. */
int mpath_file_create_beside(const char *path, char *name, size_t size);

/*
 * Opens or makes a file of this user's, which no other may read or write, in a folder that all users share. Nobody is waited
 * for. -1 with errno; EPERM: it is somebody else's, or no regular file.
 */
int mpath_file_open_own(int folder, const char *name, int flags);

/*
 * Locks of an open file live as long as the last process that has it, which a child made by fork() would be: in children
 * an open file of which this has been said becomes /dev/null. Before it is closed the other says that it is over. At most
 * 64 at a time, any thread; one more is inherited as usual.
 */
void mpath_file_hide_from_children(int fd);
void mpath_file_hide_end(int fd);

typedef struct mpath_file_guard {
    sigset_t before;
    int was_pending;
} mpath_file_guard_t;

/* Between these calls, on the same thread, a write beyond the limit fails with EFBIG only. errno stays. */
void mpath_file_guard_begin(mpath_file_guard_t *guard);
void mpath_file_guard_end(const mpath_file_guard_t *guard);

/*
 * Makes a file at least so long, with its pages: where there are none left, this fails and not who touches them. 0 or an
 * errno. Signals of this thread wait meanwhile, as each would undo what is reserved.
 */
int mpath_file_reserve(int fd, size_t bytes);

/* All of it; 0, or -1 with errno. */
int mpath_file_write(int fd, const void *data, size_t bytes);

#endif
