/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks whether the transport is asked for, and loads it; its constructor registers it. */
#include "ucx_tl_mpath/load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int mpath_ucx_asked_for(const char *list)
{
    const char *found;

    for (found = list; found != NULL && (found = strstr(found, "mpath")) != NULL; ++found) {
        if ((found == list || found[-1] == ',' || found[-1] == '\\') && (found[5] == '\0' || found[5] == ',')) {
            return 1;
        }
    }
    return 0;
}

void *mpath_ucx_load(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (handle == NULL) {
        fprintf(stderr, "mpath: %s; no transport mpath\n", dlerror());
    }
    return handle;
}
