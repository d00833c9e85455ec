/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For LD_PRELOAD: brings the transport, which lies in the same folder, into programs that use UCX. It refers to nothing
 * of UCX itself, so that any program can start with it; programs that have no UCX and do not ask for the transport by
 * UCX_TLS are left alone. A transport that was built for another UCX does not load, which is said in one line.
 */
#define _GNU_SOURCE
#include "ucx_tl_mpath/load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void __attribute__((constructor)) load_transport(void)
{
    char path[PATH_MAX];
    const char *slash;
    Dl_info self;
    void *ucp;

    ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (ucp == NULL && !mpath_ucx_asked_for(secure_getenv("UCX_TLS"))) {
        return;
    }
    if (dladdr((const void *)(size_t)load_transport, &self) == 0 || (slash = strrchr(self.dli_fname, '/')) == NULL) {
        fprintf(stderr, "mpath: name the loader with its whole path; no transport mpath\n");
        return;
    }
    snprintf(path, sizeof(path), "%.*s/" MPATH_UCX_TRANSPORT, (int)(slash - self.dli_fname), self.dli_fname);
    (void)mpath_ucx_load(path);
}
