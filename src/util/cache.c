/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of what was measured: their folder, reading, replacing. */
#define _GNU_SOURCE /* secure_getenv */
#include "util/cache.h"
#include "util/file.h"
#include "util/log.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CACHE_FILE_MAX (1u << 20)

mpath_status_t mpath_cache_path(const char *name, char *path, size_t size)
{
    const char *own = secure_getenv("MPATH_CACHE_DIR"), *cache = secure_getenv("XDG_CACHE_HOME"),
               *home = secure_getenv("HOME");
    int length;

    if (name[0] == '/') {
        length = snprintf(path, size, "%s", name);
    } else if ((own != NULL) && (own[0] != '\0')) {
        length = snprintf(path, size, "%s/%s", own, name);
    } else if ((cache != NULL) && (cache[0] == '/')) {
        length = snprintf(path, size, "%s/mpath/%s", cache, name);
    } else if ((home != NULL) && (home[0] == '/')) {
        length = snprintf(path, size, "%s/.cache/mpath/%s", home, name);
    } else {
        return MPATH_ERR_UNSUPPORTED;
    }
    return ((length > 0) && ((size_t)length < size)) ? MPATH_OK : MPATH_ERR_UNSUPPORTED;
}

/* Every folder above a file that is not there yet. */
static void make_folders(const char *path)
{
    char folder[PATH_MAX];
    char *slash;

    snprintf(folder, sizeof(folder), "%s", path);
    for (slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(folder, 0777); /* what then is not there shows when the file is made */
        *slash = '/';
    }
}

mpath_status_t mpath_cache_write(const char *name, const char *text, size_t length)
{
    char path[PATH_MAX], temporary[PATH_MAX + 8];
    int fd, saved_errno;

    if (mpath_cache_path(name, path, sizeof(path)) != MPATH_OK) {
        mpath_error("cache file %s: neither MPATH_CACHE_DIR, XDG_CACHE_HOME nor HOME names a folder; it is not kept",
                    name);
        return MPATH_ERR_IO;
    }
    if (mpath_file_is_special(path)) {
        mpath_error("cache file %s is no regular file, or a link of another user; it is not kept", path);
        return MPATH_ERR_IO;
    }
    make_folders(path);
    fd = mpath_file_create_beside(path, temporary, sizeof(temporary));
    if (fd < 0) {
        goto err;
    }
    if ((mpath_file_write(fd, text, length) != 0) || (fchmod(fd, 0644) != 0)) {
        goto err_close;
    }
    if ((close(fd) != 0) || (rename(temporary, path) != 0)) {
        goto err_remove;
    }
    return MPATH_OK;

err_close:
    saved_errno = errno;
    close(fd);
    errno = saved_errno;
err_remove:
    saved_errno = errno;
    unlink(temporary);
    errno = saved_errno;
err:
    mpath_error("cache file %s: %s; it is not kept", path, strerror(errno));
    return MPATH_ERR_IO;
}

mpath_status_t mpath_cache_read(const char *name, char **text_p)
{
    mpath_status_t status = MPATH_ERR_UNSUPPORTED;
    char path[PATH_MAX], *text;
    size_t length;
    FILE *file;

    if (mpath_cache_path(name, path, sizeof(path)) != MPATH_OK) {
        return MPATH_ERR_UNSUPPORTED;
    }
    if (mpath_file_open(path, &file) != MPATH_OK) {
        return MPATH_ERR_UNSUPPORTED;
    }
    text = malloc(CACHE_FILE_MAX + 1);
    if (text != NULL) {
        length       = fread(text, 1, CACHE_FILE_MAX, file);
        text[length] = '\0';
        if (!ferror(file)) {
            *text_p = text;
            status  = MPATH_OK;
        } else {
            free(text);
        }
    }
    fclose(file);
    return status;
}
