/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs that take the place of UCX's uct_iface_open(), to change what interfaces of a transport do. */
#ifndef MPATH_TESTS_CLUSTER_UCX_OPEN_NEXT_H
#define MPATH_TESTS_CLUSTER_UCX_OPEN_NEXT_H

#include <dlfcn.h>
#include <string.h>
#include <uct/api/uct.h>

/* UCX's function. *ops_p: what the interface does, to be changed, if it is one of `transport`; else NULL. */
static inline ucs_status_t open_next(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                                     const uct_iface_config_t *config, uct_iface_h *iface_p, const char *transport,
                                     uct_iface_ops_t **ops_p)
{
    __typeof__(uct_iface_open) *next = (__typeof__(uct_iface_open) *)dlsym(RTLD_NEXT, "uct_iface_open");
    ucs_status_t status              = next(md, worker, params, config, iface_p);
    int is_it                        = status == UCS_OK && params->open_mode == UCT_IFACE_OPEN_MODE_DEVICE &&
                strcmp(params->mode.device.tl_name, transport) == 0;

    *ops_p = is_it ? &(*iface_p)->ops : NULL;
    return status;
}

#endif
