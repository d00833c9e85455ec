/* SPDX-License-Identifier: BSD-3-Clause */
/* Brings the transport into this process without a reference to UCX: for the loader and for Open MPI's hook. */
#ifndef UCX_TL_MPATH_LOAD_H
#define UCX_TL_MPATH_LOAD_H

#include <stdint.h>

#define MPATH_UCX_TRANSPORT "libuct_mpath.so.0"

/* Nonzero when the list of transports (UCX_TLS; NULL: none) names this one; "^mpath" refuses it. */
int mpath_ucx_asked_for(const char *list);
/* Loads the transport from `path`; its handle. NULL: one that was built for another UCX does not load, which is said in
 * one line. */
void *mpath_ucx_load(const char *path);

/* What the transport has counted in this process, over all its interfaces and since it was loaded. */
typedef enum mpath_ucx_counter {
    MPATH_UCX_SENT_PACKETS,
    MPATH_UCX_SENT_BYTES,
    MPATH_UCX_RECEIVED_PACKETS,
    MPATH_UCX_RECEIVED_BYTES,
    MPATH_UCX_RESENT_PACKETS, /* after their rail had failed */
    MPATH_UCX_LOST_RAILS,     /* connections of rails that failed or stalled */
    MPATH_UCX_PLANS,          /* divisions of the rails among the peers */
    MPATH_UCX_RMA_BYTES,      /* put and got by rails with remote access */
    MPATH_UCX_RELAYED_BYTES,  /* passed on for other processes */
    MPATH_UCX_NUM_COUNTERS
} mpath_ucx_counter_t;

/* The transport exports its counters by this name, for whoever has its handle. */
#define MPATH_UCX_COUNTER_SYMBOL "mpath_ucx_counter_value"
uint64_t mpath_ucx_counter_value(mpath_ucx_counter_t counter);

#endif
