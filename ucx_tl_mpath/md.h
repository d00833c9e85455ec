/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory domain: which rails there are, and the memory domains of UCX behind them. A rail is one transport of UCX
 * on one device; its number is that of the topology, so that two nodes agree about which rails belong together.
 */
#ifndef UCX_TL_MPATH_MD_H
#define UCX_TL_MPATH_MD_H

#include "ucx_tl_mpath/compat.h"
#include "ucx_tl_mpath/regions.h"
#include "ucx_tl_mpath/wire.h"

typedef struct uct_mpath_rail {
    char transport[UCT_TL_NAME_MAX];
    char device[UCT_DEVICE_NAME_MAX];
    char rma_transport[UCT_TL_NAME_MAX]; /* that reaches the peer's memory; empty: none */
    unsigned child, rma_child;           /* indices of their memory domains */
    int has_rkey;                        /* registered memory has a key for it */
    int number;                          /* of the rail */
    uint64_t rate_bps;                   /* 0: ask the transport */
} uct_mpath_rail_t;

typedef struct uct_mpath_child_md {
    uct_component_h component;
    uct_md_h md;
    int need_memh;     /* for what is sent from user memory */
    int registers;     /* memory is registered with it: a rail does remote access */
    size_t rkey_bytes; /* of its packed keys */
} uct_mpath_child_md_t;

typedef enum uct_mpath_access {
    UCT_MPATH_ACCESS_ALL,
    UCT_MPATH_ACCESS_AFFINE,
    UCT_MPATH_ACCESS_LAST
} uct_mpath_access_t;

typedef struct uct_mpath_md_config {
    uct_md_config_t super;
    char *rails;
    char *rail_rates;
    int access;
    ucs_config_names_array_t rail_tls, rma_tls;
} uct_mpath_md_config_t;

typedef struct uct_mpath_md {
    uct_md_t super;
    int registers;           /* with any child */
    mpath_regions_t regions; /* what peers reach by messages */
    size_t rkey_bytes;
    unsigned num_children;
    unsigned num_rails;
    unsigned num_left_out; /* NICs of the node that this process does not drive */
    uct_mpath_child_md_t children[UCT_MPATH_MAX_RAILS];
    uct_mpath_rail_t rails[UCT_MPATH_MAX_RAILS];
} uct_mpath_md_t;

typedef struct uct_mpath_memh {
    uint64_t region;
    uct_mem_h child[UCT_MPATH_MAX_RAILS];
} uct_mpath_memh_t;

extern ucs_config_field_t uct_mpath_md_config_table[];

/* One key for all rails. */
typedef struct uct_mpath_rkey {
    uint64_t region; /* for accesses by messages */
    uint64_t rails;  /* that have a key */
    uct_rkey_bundle_t child[UCT_MPATH_MAX_RAILS];
    uct_component_h component[UCT_MPATH_MAX_RAILS];
} uct_mpath_rkey_t;

/* The handle that child `child` wants to see. */
static inline uct_mem_h uct_mpath_child_memh(uct_mem_h memh, unsigned child)
{
    return memh != UCT_MEM_HANDLE_NULL ? ((uct_mpath_memh_t *)memh)->child[child] : UCT_MEM_HANDLE_NULL;
}

#endif
