/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where files live that hold what was measured, so that it need not be measured again: the folder that the environment
 * variable MPATH_CACHE_DIR names, else mpath in $XDG_CACHE_HOME, else .cache/mpath in the user's home. They are text,
 * and may be read, kept and deleted at any time.
 */
#ifndef MPATH_UTIL_CACHE_H
#define MPATH_UTIL_CACHE_H

#include "util/status.h"

#include <stddef.h>

/*
 * The path of a file; an absolute name stands for itself. MPATH_ERR_UNSUPPORTED, silent: there is no such folder to
 * name, or the path is too long.
 */
mpath_status_t mpath_cache_path(const char *name, char *path, size_t size);

/*
 * Replaces a file of the cache with `text`, at once or not at all; makes the folder. MPATH_ERR_IO is logged with the
 * cause.
 */
mpath_status_t mpath_cache_write(const char *name, const char *text, size_t length);

/* Its contents, malloc'ed and terminated; MPATH_ERR_UNSUPPORTED, silent: there is none. */
mpath_status_t mpath_cache_read(const char *name, char **text_p);

#endif
