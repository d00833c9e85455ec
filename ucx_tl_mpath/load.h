/* SPDX-License-Identifier: BSD-3-Clause */
/* Brings the transport into this process without a reference to UCX: for the loader and for Open MPI's hook. */
#ifndef UCX_TL_MPATH_LOAD_H
#define UCX_TL_MPATH_LOAD_H

#define MPATH_UCX_TRANSPORT "libuct_mpath.so.0"

/* Nonzero when the list of transports (UCX_TLS; NULL: none) names this one; "^mpath" refuses it. */
int mpath_ucx_asked_for(const char *list);
/* Loads the transport from `path`. One that was built for another UCX does not load, which is said in one line. */
void mpath_ucx_load(const char *path);

#endif
